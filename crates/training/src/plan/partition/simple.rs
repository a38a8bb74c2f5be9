//! Assignments of nodes to ranks that do not look at the events.
use super::Demand;
use std::{cmp::Reverse, collections::BinaryHeap};
use tgnn::runtime::NONE;

/// Returns consecutive nodes for each rank; numbers of nodes differ by at most one.
pub(super) fn range(nodes: usize, ranks: usize) -> Vec<u32> {
    (0..nodes).map(|node| (node * ranks / nodes) as u32).collect()
}

/// Returns the nodes in turn.
pub(super) fn interval(nodes: usize, ranks: usize) -> Vec<u32> {
    (0..nodes).map(|node| (node % ranks) as u32).collect()
}

/// Returns the maximum number of nodes of a rank.
pub(super) fn capacity(demand: &Demand, slack: f64) -> usize {
    // A float beyond the range becomes the largest integer.
    let most = (demand.nodes() as f64 / demand.ranks() as f64 * (1.0 + slack)) as usize;
    most.saturating_add(1)
}

/// Gives the nodes with owner [`NONE`] to the ranks with the fewest nodes.
pub(super) fn fill(rank_of: &mut [u32], ranks: usize) {
    let mut count = vec![0; ranks];
    rank_of.iter().filter(|rank| **rank != NONE).for_each(|&rank| count[rank as usize] += 1);
    let mut fewest: BinaryHeap<Reverse<(usize, u32)>> = count.into_iter().zip(0..).map(Reverse).collect();
    for rank_of in rank_of.iter_mut().filter(|rank| **rank == NONE) {
        if let Some(mut least) = fewest.peek_mut() {
            let Reverse((count, rank)) = &mut *least;
            *rank_of = *rank;
            *count += 1;
        }
    }
}
