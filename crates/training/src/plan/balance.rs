//! Balances the snapshots of each group between the two lanes, so that neither lane waits long for the other.
//!
//! Source: BLAD (Fu et al. 2023), equation 2, a dynamic program over groups. In period i the first lane
//! executes the forward pass of the first `p_i` snapshots of group i and the backward pass of the first
//! `p_(i-1)` snapshots of group i - 1, while the second lane executes both passes of the rest of group i - 1.
//! The slower lane determines the length of the period. Two terms are not in the paper's sum: the prediction,
//! which each group costs the second lane in addition to its snapshots, and the time after the last period,
//! in which the first lane has only a backward pass left and must wait for the second.

/// Predicted seconds of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupCost {
    /// Seconds of the forward pass of each snapshot, in order.
    pub forward: Vec<f64>,
    /// Seconds of the backward pass of each snapshot, in order.
    pub backward: Vec<f64>,
    /// Seconds of the prediction, which the second lane executes: forward and backward pass.
    pub prediction: f64,
}

impl GroupCost {
    /// Returns the seconds of the forward pass of the first lane, which has the first `first` snapshots.
    fn first_forward(&self, first: usize) -> f64 {
        self.forward[..first].iter().sum()
    }
    /// Returns the seconds of the backward pass of the first lane.
    fn first_backward(&self, first: usize) -> f64 {
        self.backward[..first].iter().sum()
    }
    /// Returns the seconds of the second lane.
    fn rest(&self, first: usize) -> f64 {
        self.prediction + self.forward[first..].iter().chain(&self.backward[first..]).sum::<f64>()
    }
}

/// Returns the number of snapshots of the first lane for each group, such that successive groups take the
/// least predicted time. Each lane gets at least one snapshot; if groups have a single one, the first lane
/// gets it. All groups must have the same number of snapshots. Ties go to the smaller number. O(groups *
/// snapshots^2).
pub fn balance(groups: &[GroupCost]) -> Vec<usize> {
    let (Some(head), Some(end)) = (groups.first(), groups.last()) else { return Vec::new() };
    let max_first = head.forward.len().saturating_sub(1).max(1).min(head.forward.len());
    // Entry p - 1: the least time of the groups so far, if the first lane has p snapshots of the last one.
    let mut least: Vec<f64> = (1..=max_first).map(|p| head.first_forward(p)).collect();
    // For each group but the first, entry p - 1: the best number of snapshots in the group before.
    let mut best_before: Vec<Vec<usize>> = Vec::new();
    for pair in groups.windows(2) {
        let (before, now) = (&pair[0], &pair[1]);
        let best = |p: usize| {
            let time = |q: usize| {
                let period = (now.first_forward(p) + before.first_backward(q)).max(before.rest(q));
                (least[q - 1] + period, q)
            };
            (1..=max_first).map(time).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 1))
        };
        let (times, numbers): (Vec<f64>, Vec<usize>) = (1..=max_first).map(best).unzip();
        least = times;
        best_before.push(numbers);
    }
    let total = |p: &usize| least[p - 1] + end.rest(*p) + end.first_backward(*p);
    let Some(mut p) = (1..=max_first).min_by(|a, b| total(a).total_cmp(&total(b))) else {
        return vec![0; groups.len()];
    };
    let mut first = vec![p];
    for numbers in best_before.iter().rev() {
        p = numbers[p - 1];
        first.push(p);
    }
    first.reverse();
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::runtime::philox::Key;

    /// Returns the predicted seconds of successive groups, with `first[i]` snapshots of group i on the first
    /// lane.
    fn pipeline(groups: &[GroupCost], first: &[usize]) -> f64 {
        let Some(last) = groups.len().checked_sub(1) else { return 0.0 };
        let period = |i: usize| {
            let (now, before) = (&groups[i], &groups[i - 1]);
            (now.first_forward(first[i]) + before.first_backward(first[i - 1])).max(before.rest(first[i - 1]))
        };
        let drain = groups[last].rest(first[last]) + groups[last].first_backward(first[last]);
        groups[0].first_forward(first[0]) + (1..groups.len()).map(period).sum::<f64>() + drain
    }

    fn random_costs(groups: usize, length: usize, seed: u32) -> Vec<GroupCost> {
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
    fn the_dynamic_program_finds_the_best_of_all_splits() {
        for seed in 0..60 {
            let (groups, length) = (1 + seed as usize % 5, 1 + seed as usize % 4);
            let costs = random_costs(groups, length, seed);
            let max_first = (length - 1).max(1);
            let mut best = f64::INFINITY;
            for code in 0..max_first.pow(groups as u32) {
                let digit = |g: usize| code / max_first.pow(g as u32) % max_first;
                let split: Vec<usize> = (0..groups).map(|g| 1 + digit(g)).collect();
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
