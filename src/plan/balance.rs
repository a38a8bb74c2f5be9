//! How many snapshots of each group the first lane takes, so that neither lane waits long for the other.
//!
//! Source: BLAD (Fu et al. 2023), equation 2, a dynamic program over groups. In period i the first lane reads the first `p_i` snapshots of
//! group i and does the backward pass of those of group i - 1, while the second lane does the rest of group i - 1, both ways; the
//! longer of both is the period. Two things are ours: what a group costs the second lane beyond its snapshots, the prediction, and what
//! comes behind the last period, when the first lane has only a backward pass left and must wait for the second: the paper's sum ends before it.

/// Predicted seconds of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupCost {
    /// Of each snapshot's forward pass, in order.
    pub forward: Vec<f64>,
    /// Of each one's backward pass.
    pub backward: Vec<f64>,
    /// Of the prediction, both ways: the second lane's.
    pub prediction: f64,
}

impl GroupCost {
    fn first_forward(&self, first: usize) -> f64 {
        self.forward[..first].iter().sum()
    }
    fn first_backward(&self, first: usize) -> f64 {
        self.backward[..first].iter().sum()
    }
    fn rest(&self, first: usize) -> f64 {
        self.prediction + self.forward[first..].iter().chain(&self.backward[first..]).sum::<f64>()
    }
}

/// Predicted seconds of groups one after another, `first[i]` snapshots of group i on the first lane: what [`balance`] makes least.
///
/// # Panics
/// Where a group has fewer snapshots, or is not told of.
pub fn pipeline(groups: &[GroupCost], first: &[usize]) -> f64 {
    let Some(last) = groups.len().checked_sub(1) else { return 0.0 };
    let period = |i: usize| {
        let (now, before) = (&groups[i], &groups[i - 1]);
        (now.first_forward(first[i]) + before.first_backward(first[i - 1])).max(before.rest(first[i - 1]))
    };
    let drain = groups[last].rest(first[last]) + groups[last].first_backward(first[last]);
    groups[0].first_forward(first[0]) + (1..groups.len()).map(period).sum::<f64>() + drain
}

/// Snapshots of the first lane for each group, at least one and where there are two not all, so that the [`pipeline`] takes the least time.
/// Groups have as many snapshots. Ties go to the fewer. O(groups snapshots^2).
pub fn balance(groups: &[GroupCost]) -> Vec<usize> {
    let Some(head) = groups.first() else { return Vec::new() };
    let most = head.forward.len().saturating_sub(1).max(1).min(head.forward.len());
    // Of the groups so far, by what the last one's first lane has: the least time, and what the one before had.
    let mut least: Vec<f64> = (1..=most).map(|p| head.first_forward(p)).collect();
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    for w in groups.windows(2) {
        let (before, now) = (&w[0], &w[1]);
        let best = |p: usize| {
            let time = |q: usize| {
                let period = (now.first_forward(p) + before.first_backward(q)).max(before.rest(q));
                (least[q - 1] + period, q)
            };
            (1..=most).map(time).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 1))
        };
        let (times, from): (Vec<f64>, Vec<usize>) = (1..=most).map(best).unzip();
        least = times;
        chosen.push(from);
    }
    let end = &groups[groups.len() - 1];
    let total = |p: &usize| least[p - 1] + end.rest(*p) + end.first_backward(*p);
    let Some(mut p) = (1..=most).min_by(|a, b| total(a).total_cmp(&total(b))) else {
        return vec![0; groups.len()];
    };
    let mut first = vec![p];
    for from in chosen.iter().rev() {
        p = from[p - 1];
        first.push(p);
    }
    first.reverse();
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::philox::Key;

    fn drawn(groups: usize, length: usize, seed: u32) -> Vec<GroupCost> {
        let key = Key::new(3, seed, [0, 0]);
        let real = |i: usize| f64::from(key.draw(i as u64)[0] % 1000) / 100.0;
        let group = |g: usize| GroupCost {
            forward: (0..length).map(|j| real(100 * g + j)).collect(),
            backward: (0..length).map(|j| 2.0 * real(100 * g + 50 + j)).collect(),
            prediction: real(100 * g + 99),
        };
        (0..groups).map(group).collect()
    }

    #[test]
    fn the_program_finds_what_trying_every_split_finds() {
        for seed in 0..60 {
            let (groups, length) = (1 + seed as usize % 5, 1 + seed as usize % 4);
            let costs = drawn(groups, length, seed);
            let most = (length - 1).max(1);
            let mut best = f64::INFINITY;
            for code in 0..most.pow(groups as u32) {
                let split: Vec<usize> = (0..groups).map(|g| 1 + code / most.pow(g as u32) % most).collect();
                best = best.min(pipeline(&costs, &split));
            }
            let found = balance(&costs);
            assert_eq!(found.len(), groups);
            assert!((pipeline(&costs, &found) - best).abs() < 1e-9, "{groups} groups of {length}: {found:?}");
        }
        assert!(balance(&[]).is_empty());
    }

    #[test]
    fn a_heavy_prediction_leaves_the_second_lane_fewer_snapshots() {
        let group = |prediction| GroupCost { forward: vec![1.0; 8], backward: vec![2.0; 8], prediction };
        let split = |prediction| balance(&vec![group(prediction); 9])[4];
        assert_eq!(split(0.0), 4);
        assert_eq!(split(6.0), 5);
        assert_eq!(split(12.0), 6);
        assert_eq!(split(100.0), 7);
    }
}
