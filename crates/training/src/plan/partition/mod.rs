//! Partitions of node memory: which rank owns the row of which node.
//!
//! With N ranks, each batch is cut into N slices of consecutive events, one for each rank. A rank needs the
//! rows of node memory of its slice's unique nodes. A row that it does not own is sent to it by the owner
//! (dispatch), and a row that it writes and does not own is sent back (aggregation). The rows that travel
//! depend on the partition:
//!
//! 1. [`Demand`] counts, by going through batches, how many rows of each node each rank needs or writes.
//! 2. A [`Partitioner`] assigns the nodes to ranks.
//! 3. [`Traffic`] is what then travels between the ranks: the communication matrix, its residual, the cost.
//! 4. [`Partition`] has the maps from nodes to ranks and rows, and reads and writes its file.
//!
//! ```
//! use tgnn_training::plan::partition::*;
//! use tgnn_data::{SynthOptions, synth};
//!
//! let options = SynthOptions { events: 2_000, sources: 90, destinations: 30, ..Default::default() };
//! let events = synth(&options)?;
//! let demand = Demand::count(&events, 0..1_400, &DemandOptions { ranks: 4, ..Default::default() })?;
//! let best = Partitioner::ReFlexBiCut.partition(&demand, 0.1)?;
//! let range = Partitioner::Range.partition(&demand, 0.1)?;
//! assert!(Traffic::count(&demand, &best)?.cost() <= Traffic::count(&demand, &range)?.cost());
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! Source: Sven, sections 3.1.2 and 4.1. `docs/partition.md` has the definitions and measurements.
mod demand;
#[cfg(feature = "metis")]
mod metis;
mod partitioner;
mod re_flex_bicut;
mod simple;
mod traffic;

pub use demand::{Demand, DemandOptions, RankRows, needed_nodes};
pub use partitioner::Partitioner;
pub use traffic::Traffic;

use std::path::Path;
use tgnn::error::{Error, Result};
use tgnn_data::{npy, text::counted};

/// Maximum number of ranks.
pub const MAX_RANKS: usize = 1024;

/// The owner of every node's row, and the row's place in the owner's table.
///
/// The rows of a rank are numbered in the order of their nodes. All maps are plain arrays, so a device looks
/// them up in constant time.
///
/// ```
/// use tgnn_training::plan::partition::Partition;
/// let partition = Partition::new(vec![1, 0, 1, 1], 2)?;
/// assert_eq!((partition.rank_of(), partition.row_of()), (&[1, 0, 1, 1][..], &[0, 0, 1, 2][..]));
/// assert_eq!(partition.nodes_of(1), [0, 2, 3]);
/// assert_eq!((partition.node(1, 2), partition.node(1, 3)), (Some(3), None));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    rank_of: Vec<u32>,
    row_of: Vec<u32>,
    /// The nodes of rank 0 in order, then those of rank 1, and so on.
    nodes_by_rank: Vec<u32>,
    /// `[ranks + 1]`: the start of each rank's nodes in `nodes_by_rank`.
    starts: Vec<u32>,
}

impl Partition {
    /// Makes the partition in which `rank_of[node]` owns the row of the node.
    ///
    /// # Errors
    /// `Usage` if there are 0 ranks or more than [`MAX_RANKS`]; `Data` if there are more than `u32::MAX`
    /// nodes, a rank is not below `ranks`, or a rank owns no node although there are enough nodes for all.
    pub fn new(rank_of: Vec<u32>, ranks: usize) -> Result<Self> {
        check_ranks(ranks)?;
        let bad = |what: String| Error::new(tgnn::error::ErrorKind::Data, format!("partition: {what}"));
        let nodes = u32::try_from(rank_of.len()).map_err(|_| bad("more than 2^32 - 1 nodes".into()))?;
        let mut starts = vec![0u32; ranks + 1];
        for (node, &rank) in rank_of.iter().enumerate() {
            if rank as usize >= ranks {
                let what = format!("node {node} is owned by rank {rank}, but there are {}", of_ranks(ranks));
                return Err(bad(what).remedy("ranks count from 0"));
            }
            starts[rank as usize + 1] += 1;
        }
        if let Some(empty) = starts[1..].iter().position(|&n| n == 0).filter(|_| nodes as usize >= ranks) {
            let what = format!("rank {empty} of {} owns no node", of_ranks(ranks));
            return Err(bad(what).remedy("make a partition for this number of ranks"));
        }
        for rank in 0..ranks {
            starts[rank + 1] += starts[rank];
        }
        let mut next = starts.clone();
        let (mut row_of, mut nodes_by_rank) = (vec![0; rank_of.len()], vec![0; rank_of.len()]);
        for (node, &rank) in (0..nodes).zip(&rank_of) {
            let at = &mut next[rank as usize];
            nodes_by_rank[*at as usize] = node;
            row_of[node as usize] = *at - starts[rank as usize];
            *at += 1;
        }
        Ok(Partition { rank_of, row_of, nodes_by_rank, starts })
    }
    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }
    /// Returns, for each node, the rank that owns its row.
    pub fn rank_of(&self) -> &[u32] {
        &self.rank_of
    }
    /// Returns, for each node, its row in the owner's table.
    pub fn row_of(&self) -> &[u32] {
        &self.row_of
    }
    /// Returns the nodes of a rank, one for each row of its table, in ascending order; none if there is no
    /// such rank.
    pub fn nodes_of(&self, rank: usize) -> &[u32] {
        match self.starts.get(rank..).unwrap_or(&[]) {
            [start, end, ..] => &self.nodes_by_rank[*start as usize..*end as usize],
            _ => &[],
        }
    }
    /// Returns the node of a row: the inverse of the two maps; `None` if there is no such row.
    pub fn node(&self, rank: usize, row: usize) -> Option<u32> {
        self.nodes_of(rank).get(row).copied()
    }
    /// Writes the ranks of all nodes as an `.npy` file of u32 `[nodes]`.
    ///
    /// # Errors
    /// `Io` if the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        npy::write(path.into(), &[self.rank_of.len()], &self.rank_of)
    }
    /// Reads a partition of `nodes` nodes over `ranks` ranks: an `.npy` file with one rank for each node.
    ///
    /// # Errors
    /// `Io` if the file cannot be opened; `Data`, with the file, if it is not an `.npy` vector of `nodes`
    /// whole numbers, or for the reasons of [`new`](Self::new).
    pub fn read(path: &Path, nodes: usize, ranks: usize) -> Result<Self> {
        check_ranks(ranks)?;
        let array = npy::Array::open(path)?;
        let entries = match array.shape() {
            [n] | [n, 1] => *n,
            shape => {
                return Err(Error::data(path, format!("partition: an array of shape {shape:?}"))
                    .remedy("write a vector with one rank for each node"));
            }
        };
        if entries != nodes {
            let (has, wants) = (counted(entries as u64, "rank"), counted(nodes as u64, "node"));
            return Err(Error::data(path, format!("partition: {has} for {wants}"))
                .remedy("make a partition of this data set"));
        }
        let rank_of = array.scalars().enumerate().map(|(node, value)| {
            value.whole().and_then(|rank| u32::try_from(rank).ok()).ok_or_else(|| {
                let what = format!("partition: node {node} has `{}`, which is not a rank", value.text());
                Error::data(path, what).remedy("write ranks from 0, as whole numbers")
            })
        });
        let rank_of = rank_of.collect::<Result<Vec<u32>>>()?;
        let made_for = rank_of.iter().max().map_or(0, |&last| last as usize + 1);
        if made_for > ranks {
            let what =
                format!("partition: made for {}, and there are {}", of_ranks(made_for), of_ranks(ranks));
            let remedy = "train with as many ranks, or make it for these by `tgnn-bench partition --ranks`";
            return Err(Error::data(path, what).remedy(remedy));
        }
        Self::new(rank_of, ranks).map_err(|e| e.in_file(path))
    }
}

/// Checks a number of ranks.
fn check_ranks(ranks: usize) -> Result<()> {
    if (1..=MAX_RANKS).contains(&ranks) {
        return Ok(());
    }
    Err(Error::usage(of_ranks(ranks)).remedy(format!("give 1 to {MAX_RANKS} ranks")))
}

/// Returns `1 rank`, `2 ranks`.
fn of_ranks(ranks: usize) -> String {
    counted(ranks as u64, "rank")
}
