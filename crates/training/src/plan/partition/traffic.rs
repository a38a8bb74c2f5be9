//! The rows that travel between ranks, and what a partition costs.
use super::{Demand, Partition};
use tgnn::error::Result;

/// The communication matrix of a partition: how many rows travel between each pair of ranks, over all counted
/// batches.
///
/// The **balance cost** of a rank is the cut of its part in the trainer-vertex graph: the rows that it
/// receives from owners or sends back to them, and the rows that other ranks get from it or send to it. The
/// **cost** of a partition is the maximum over ranks, because an all-to-all exchange ends when the busiest
/// rank is done.
///
/// ```
/// use tgnn_training::plan::partition::{Demand, Partition, Traffic};
/// let demand = Demand::new(2, 2, &[(0, 0, 5), (1, 0, 3), (1, 1, 4)])?;
/// let traffic = Traffic::count(&demand, &Partition::new(vec![0, 1], 2)?)?;
/// // Rank 1 uses three rows of node 0, which rank 0 owns.
/// assert_eq!((traffic.rows(0, 1), traffic.rows(1, 0), traffic.cost()), (3, 0, 3));
/// assert_eq!((traffic.residual(0, 1), traffic.residual(1, 0)), (0, 3));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    ranks: usize,
    /// `[ranks, ranks]`: the owner's nodes in the rank's batches.
    matrix: Vec<u64>,
}

impl Traffic {
    /// Computes the matrix in one pass over the demand.
    ///
    /// # Errors
    /// `Usage` if the partition is of other nodes, or over another number of ranks.
    pub fn count(demand: &Demand, partition: &Partition) -> Result<Self> {
        demand.check(partition)?;
        let ranks = demand.ranks();
        let mut matrix = vec![0; ranks * ranks];
        for (node, &owner) in partition.rank_of().iter().enumerate() {
            for entry in demand.of_node(node) {
                matrix[owner as usize * ranks + entry.rank as usize] += u64::from(entry.rows);
            }
        }
        Ok(Traffic { ranks, matrix })
    }
    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }
    /// Returns C\[owner\]\[rank\]: the rows of the owner's nodes that the rank needs or writes. If both are
    /// the same rank, these rows do not travel.
    ///
    /// # Panics
    /// Unless both are below [`ranks`](Self::ranks).
    pub fn rows(&self, owner: usize, rank: usize) -> u64 {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        self.matrix[owner * self.ranks + rank]
    }
    /// Returns the pairs of different ranks.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let ranks = self.ranks;
        (0..ranks).flat_map(move |i| (0..ranks).map(move |j| (i, j))).filter(|(i, j)| i != j)
    }
    /// Returns the maximum of the matrix off its diagonal.
    fn most(&self) -> u64 {
        self.pairs().map(|(i, j)| self.rows(i, j)).max().unwrap_or(0)
    }
    /// Returns R\[owner\]\[rank\] = max C - C\[owner\]\[rank\] (equation 2): how far a pair of ranks is below
    /// the busiest pair; 0 on the diagonal.
    ///
    /// # Panics
    /// Unless both are below [`ranks`](Self::ranks).
    pub fn residual(&self, owner: usize, rank: usize) -> u64 {
        if owner == rank { 0 } else { self.most() - self.rows(owner, rank) }
    }
    /// Returns the residual of every pair of different ranks, owner by owner.
    pub fn residuals(&self) -> Vec<u64> {
        let most = self.most();
        self.pairs().map(|(i, j)| most - self.rows(i, j)).collect()
    }
    /// Returns the rows of other owners that a rank needs or writes: equation 5, read literally.
    ///
    /// # Panics
    /// Unless the rank is below [`ranks`](Self::ranks).
    pub fn received(&self, rank: usize) -> u64 {
        (0..self.ranks).filter(|&owner| owner != rank).map(|owner| self.rows(owner, rank)).sum()
    }
    /// Returns the rows of a rank's nodes that other ranks need or write.
    ///
    /// # Panics
    /// Unless the rank is below [`ranks`](Self::ranks).
    pub fn sent(&self, rank: usize) -> u64 {
        (0..self.ranks).filter(|&other| other != rank).map(|other| self.rows(rank, other)).sum()
    }
    /// Returns the balance cost of every rank: rows received and sent.
    pub fn costs(&self) -> Vec<u64> {
        (0..self.ranks).map(|rank| self.received(rank) + self.sent(rank)).collect()
    }
    /// Returns the cost of the partition: the maximum balance cost.
    pub fn cost(&self) -> u64 {
        self.costs().into_iter().max().unwrap_or(0)
    }
    /// Returns the maximum over ranks of the rows received.
    pub fn most_received(&self) -> u64 {
        (0..self.ranks).map(|rank| self.received(rank)).max().unwrap_or(0)
    }
    /// Returns the rows that travel between ranks.
    pub fn total(&self) -> u64 {
        self.pairs().map(|(i, j)| self.rows(i, j)).sum()
    }
    /// Returns the maximum over the mean of the ranks' balance costs; 1 if nothing travels.
    pub fn imbalance(&self) -> f64 {
        let costs = self.costs();
        let sum: u64 = costs.iter().sum();
        if sum == 0 { 1.0 } else { self.cost() as f64 * costs.len() as f64 / sum as f64 }
    }
}
