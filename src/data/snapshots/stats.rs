//! Snapshots in numbers.
use super::Snapshots;
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Ordering;

/// What snapshots are like; made by [`SnapshotStats::of`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SnapshotStats {
    /// The data set's name.
    pub name: String,
    /// Vertices.
    pub vertices: u64,
    /// Edges in all steps.
    pub edges: u64,
    /// Pairs that have an edge in any step.
    pub unique_edges: u64,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Columns of the features; 0 for none.
    pub feature_width: usize,
    /// Whether features have a row per step and vertex.
    pub features_change: bool,
    /// Values that are predicted of a vertex; 0 for none.
    pub target_width: usize,
    /// Classes of vertices: one more than the greatest; 0 for none.
    pub classes: u64,
    /// Every step.
    pub steps: Vec<StepStats>,
    /// What a reader changed or doubted.
    pub notes: Vec<String>,
}

/// What a step is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepStats {
    /// What the step is called.
    pub label: String,
    /// Vertices that are there.
    pub present: u64,
    /// Vertices with an edge.
    pub active: u64,
    /// Edges.
    pub edges: u64,
    /// Edges that the step before has, too; nothing for the first step.
    pub kept: Option<u64>,
    /// Share of the edges of the step before that are still there; nothing where it had none.
    pub kept_share: Option<f64>,
    /// Edges of both steps by edges of either; nothing for the first step, and where neither has any.
    pub jaccard: Option<f64>,
}

impl StepStats {
    /// Edges by vertices with an edge; 0 where there are none.
    pub fn edges_per_vertex(&self) -> f64 {
        self.edges as f64 / self.active.max(1) as f64
    }
}

impl SnapshotStats {
    /// Looks at every edge; memory is that of sorting one 64-bit number per edge.
    pub fn of(s: &Snapshots) -> Self {
        let mut pairs: Vec<u64> = s.src.par_iter().zip(&s.dst).map(|(&a, &b)| pair(a, b)).collect();
        pairs.par_sort_unstable();
        pairs.dedup();
        let known = s.classes.iter().flatten().filter(|c| **c != crate::runtime::NONE).max();
        SnapshotStats {
            name: s.name.clone(),
            vertices: s.nodes as u64,
            edges: s.src.len() as u64,
            unique_edges: pairs.len() as u64,
            weighted: s.weight.is_some(),
            feature_width: s.width(),
            features_change: s.features_change(),
            target_width: s.targets.as_ref().map_or(0, |t| t.cols()),
            classes: known.map_or(0, |c| u64::from(*c) + 1),
            steps: (0..s.len()).into_par_iter().map(|step| of_step(s, step)).collect(),
            notes: s.notes.clone(),
        }
    }

    /// Mean of a figure over the steps that have it; nothing where none has.
    pub fn mean(&self, figure: impl Fn(&StepStats) -> Option<f64>) -> Option<f64> {
        let (sum, n) = self.steps.iter().filter_map(figure).fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    }
}

fn pair(src: u32, dst: u32) -> u64 {
    u64::from(src) << 32 | u64::from(dst)
}

fn of_step(s: &Snapshots, step: usize) -> StepStats {
    let pairs = |step: usize| s.edges(step).map(|i| pair(s.src[i], s.dst[i]));
    let edges = s.edges(step).len() as u64;
    let mut active: Vec<u32> = s.edges(step).flat_map(|i| [s.src[i], s.dst[i]]).collect();
    active.sort_unstable();
    active.dedup();
    let before = step.checked_sub(1);
    let kept = before.map(|before| common(pairs(before), pairs(step)));
    let share = |of: u64| kept.filter(|_| of > 0).map(|kept| kept as f64 / of as f64);
    let edges_before = before.map_or(0, |before| s.edges(before).len() as u64);
    StepStats {
        label: s.labels[step].clone(),
        present: (0..s.nodes).filter(|&v| s.has(step, v)).count() as u64,
        active: active.len() as u64,
        edges,
        kept,
        kept_share: share(edges_before),
        jaccard: share(edges + edges_before - kept.unwrap_or(0)),
    }
}

/// How many numbers two ascending lists share.
fn common(mut a: impl Iterator<Item = u64>, mut b: impl Iterator<Item = u64>) -> u64 {
    let (mut x, mut y, mut n) = (a.next(), b.next(), 0);
    while let (Some(i), Some(j)) = (x, y) {
        n += u64::from(i == j);
        match i.cmp(&j) {
            Ordering::Less => x = a.next(),
            Ordering::Greater => y = b.next(),
            Ordering::Equal => (x, y) = (a.next(), b.next()),
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::snapshots::Presence;

    #[test]
    fn steps_are_counted_and_compared_with_the_ones_before_them() {
        let edges = |list: &[(u32, u32)]| list.iter().map(|&(a, b)| (a, b, 1.0)).collect();
        let steps = vec![edges(&[(0, 1), (1, 2)]), edges(&[(0, 1), (1, 0), (3, 3)]), vec![], vec![]];
        let labels = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let mut s = Snapshots::of_edges("s".into(), 5, steps, labels, false).unwrap();
        s.mark_present(Presence::Seen).unwrap();
        let stats = SnapshotStats::of(&s);
        assert_eq!((stats.edges, stats.unique_edges, stats.vertices), (5, 4, 5));
        let numbers: Vec<_> = stats.steps.iter().map(|s| (s.present, s.active, s.edges, s.kept)).collect();
        assert_eq!(numbers, [(3, 3, 2, None), (4, 3, 3, Some(1)), (4, 0, 0, Some(0)), (4, 0, 0, Some(0))]);
        let shares: Vec<_> = stats.steps.iter().map(|s| (s.kept_share, s.jaccard)).collect();
        assert_eq!(shares, [(None, None), (Some(0.5), Some(0.25)), (Some(0.0), Some(0.0)), (None, None)]);
        assert_eq!((stats.mean(|s| s.kept_share), stats.steps[1].edges_per_vertex()), (Some(0.25), 1.0));
    }
}
