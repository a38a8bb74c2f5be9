//! Statistics of snapshots.
use super::Snapshots;
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Ordering;

/// Statistics of snapshots; computed by [`SnapshotStats::new`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SnapshotStats {
    /// The data set's name.
    pub name: String,
    /// Number of vertices.
    pub vertices: u64,
    /// Ids of the first vertices, at most five.
    pub first_ids: Vec<String>,
    /// Number of edges in all steps together.
    pub edges: u64,
    /// Number of different (source, destination) pairs that have an edge in any step.
    pub unique_edges: u64,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Width of the vertex features; 0 if there are none.
    pub feature_width: usize,
    /// Whether features have one row per step and vertex.
    pub features_change: bool,
    /// Number of values to predict per vertex; 0 if there are no targets.
    pub target_width: usize,
    /// Number of vertex classes that occur; 0 if there are none.
    pub classes: u64,
    /// Statistics of each step.
    pub steps: Vec<StepStats>,
    /// Notes on what a reader changed or found doubtful.
    pub notes: Vec<String>,
}

/// Statistics of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepStats {
    /// Name of the step.
    pub label: String,
    /// Number of vertices that are present.
    pub present: u64,
    /// Number of vertices with an edge.
    pub active: u64,
    /// Number of edges.
    pub edges: u64,
    /// Number of edges that the previous step has, too; `None` for the first step.
    pub kept: Option<u64>,
    /// Fraction of the previous step's edges that this step has, too; `None` if the previous step has no
    /// edges.
    pub kept_share: Option<f64>,
    /// Jaccard index with the previous step: edges in both steps divided by edges in either. `None` for the
    /// first step, and if neither step has edges.
    pub jaccard: Option<f64>,
}

impl StepStats {
    /// Returns the number of edges divided by the number of vertices with an edge; 0 if there are none.
    pub fn edges_per_vertex(&self) -> f64 {
        self.edges as f64 / self.active.max(1) as f64
    }
}

impl SnapshotStats {
    /// Computes the statistics of `s` in parallel. Sorts one 64-bit number per edge, which determines the
    /// memory used.
    pub fn new(s: &Snapshots) -> Self {
        let mut pairs: Vec<u64> = s.src.par_iter().zip(&s.dst).map(|(&a, &b)| pair(a, b)).collect();
        pairs.par_sort_unstable();
        pairs.dedup();
        SnapshotStats {
            name: s.name.clone(),
            vertices: s.nodes as u64,
            first_ids: (0..s.nodes.min(5)).map(|v| s.vertex_id(v as u32).to_string()).collect(),
            edges: s.src.len() as u64,
            unique_edges: pairs.len() as u64,
            weighted: s.weight.is_some(),
            feature_width: s.width(),
            features_change: s.features_change(),
            target_width: s.targets.as_ref().map_or(0, |t| t.cols()),
            classes: s.occurring_classes().len() as u64,
            steps: (0..s.len()).into_par_iter().map(|step| of_step(s, step)).collect(),
            notes: s.notes.clone(),
        }
    }

    /// Returns the mean of a statistic over the steps that have it; `None` if no step does.
    pub fn mean(&self, statistic: impl Fn(&StepStats) -> Option<f64>) -> Option<f64> {
        let values = self.steps.iter().filter_map(statistic);
        let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    }
}

/// Packs an edge into one number that sorts by source, then destination.
fn pair(src: u32, dst: u32) -> u64 {
    u64::from(src) << 32 | u64::from(dst)
}

/// Computes the statistics of one step.
fn of_step(s: &Snapshots, step: usize) -> StepStats {
    let pairs = |step: usize| s.edges(step).map(|i| pair(s.src[i], s.dst[i]));
    let edges = s.edges(step).len() as u64;
    let mut active: Vec<u32> = s.edges(step).flat_map(|i| [s.src[i], s.dst[i]]).collect();
    active.sort_unstable();
    active.dedup();
    let before = step.checked_sub(1);
    let kept = before.map(|before| common(pairs(before), pairs(step)));
    let kept_fraction = |total: u64| kept.filter(|_| total > 0).map(|kept| kept as f64 / total as f64);
    let edges_before = before.map_or(0, |before| s.edges(before).len() as u64);
    StepStats {
        label: s.labels[step].clone(),
        present: (0..s.nodes).filter(|&v| s.has(step, v)).count() as u64,
        active: active.len() as u64,
        edges,
        kept,
        kept_share: kept_fraction(edges_before),
        jaccard: kept_fraction(edges + edges_before - kept.unwrap_or(0)),
    }
}

/// Counts the numbers that two strictly ascending sequences have in common.
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
    use crate::snapshots::Presence;

    #[test]
    fn steps_are_counted_and_compared_with_the_previous_ones() {
        let edges = |list: &[(u32, u32)]| list.iter().map(|&(a, b)| (a, b, 1.0)).collect();
        let steps = vec![edges(&[(0, 1), (1, 2)]), edges(&[(0, 1), (1, 0), (3, 3)]), vec![], vec![]];
        let labels = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let mut s = Snapshots::of_edges("s".into(), 5, steps, labels, false).unwrap();
        s.mark_present(Presence::Seen).unwrap();
        let stats = SnapshotStats::new(&s);
        assert_eq!((stats.edges, stats.unique_edges, stats.vertices), (5, 4, 5));
        let numbers: Vec<_> = stats.steps.iter().map(|s| (s.present, s.active, s.edges, s.kept)).collect();
        assert_eq!(numbers, [(3, 3, 2, None), (4, 3, 3, Some(1)), (4, 0, 0, Some(0)), (4, 0, 0, Some(0))]);
        let shares: Vec<_> = stats.steps.iter().map(|s| (s.kept_share, s.jaccard)).collect();
        assert_eq!(shares, [(None, None), (Some(0.5), Some(0.25)), (Some(0.0), Some(0.0)), (None, None)]);
        assert_eq!((stats.mean(|s| s.kept_share), stats.steps[1].edges_per_vertex()), (Some(0.25), 1.0));
    }
}
