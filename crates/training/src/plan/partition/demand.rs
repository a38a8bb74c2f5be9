//! Pre-sampling: how many rows of each node each rank needs or writes.
use super::{Partition, check_ranks};
use rayon::prelude::*;
use std::{mem::replace, ops::Range};
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::{
        draw_negatives::negative,
        sample_neighbors::{Entry, History},
    },
    runtime::{check_room, philox::Key},
};
use tgnn_data::{Events, Tcsr};

/// Maximum number of rows in total: sums stay exact in i64 and in f64.
const MAX_ROWS: u64 = 1 << 53;
/// Maximum number of neighbours that are read or written for a root.
const MAX_NEIGHBORS: usize = 4096;
/// Distinguishes these random draws from others with the same seed.
const SALT: u32 = 0x5041_5254;

/// What [`Demand::count`] counts.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandOptions {
    /// Number of ranks.
    pub ranks: usize,
    /// Events of a batch, over all ranks.
    pub batch: usize,
    /// Number of most recent neighbours of each root whose rows are read: those of TGN or DyRep; 0 for JODIE
    /// and APAN.
    pub neighbors: usize,
    /// Number of most recent neighbours of each positive root whose rows are written: the recipients of
    /// APAN's mails; 0 for other models.
    pub recipients: usize,
    /// Which events the recent neighbours are of.
    pub history: History,
    /// Whether each event has a negative, drawn uniformly from the destinations of the events.
    pub negatives: bool,
    /// Maximum number of batches. If there are more, batches at equal distances are counted.
    pub max_batches: usize,
    /// Seed of the negatives.
    pub seed: u64,
}

impl Default for DemandOptions {
    fn default() -> Self {
        let (ranks, batch, neighbors, recipients, negatives) = (2, 200, 10, 0, true);
        let history = History::Time;
        DemandOptions { ranks, batch, neighbors, recipients, history, negatives, max_batches: 1000, seed: 1 }
    }
}

/// The rows of a node that a rank needs or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRows {
    /// The rank.
    pub rank: u32,
    /// Number of rows, above 0.
    pub rows: u32,
}

/// The trainer-vertex graph: for each node, the ranks that need or write its row, and how often.
///
/// ```
/// use tgnn_training::plan::partition::{Demand, RankRows};
/// // Rank 0 uses node 2 three times, rank 1 uses it once.
/// let demand = Demand::new(3, 2, &[(0, 2, 1), (1, 2, 1), (0, 2, 2)])?;
/// assert_eq!(demand.of_node(2), [RankRows { rank: 0, rows: 3 }, RankRows { rank: 1, rows: 1 }]);
/// assert_eq!((demand.total(2), demand.rows(2, 1), demand.of_node(0).len()), (4, 1, 0));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    ranks: usize,
    batches: usize,
    /// `[nodes + 1]`: the start of each node's entries.
    starts: Vec<usize>,
    entries: Vec<RankRows>,
}

impl Demand {
    /// Makes a demand of `nodes` nodes from triples `(rank, node, rows)`; the rows of equal pairs are added.
    ///
    /// # Errors
    /// `Usage` if there are 0 ranks or too many; `Data` if a rank or a node is out of range, or there are
    /// more rows than can be counted: 2^32 for a pair, 2^53 in total.
    pub fn new(nodes: usize, ranks: usize, rows: &[(usize, usize, u32)]) -> Result<Self> {
        check_ranks(ranks)?;
        if nodes > u32::MAX as usize {
            return Err(too_many("nodes"));
        }
        if let Some(&(rank, node, _)) = rows.iter().find(|&&(r, v, _)| r >= ranks || v >= nodes) {
            let what = format!("demand: rank {rank}, node {node} of {ranks} ranks, {nodes} nodes");
            return Err(Error::new(ErrorKind::Data, what).remedy("both count from 0"));
        }
        let key = |&(rank, node, rows): &(usize, usize, u32)| (pair(node as u32, rank), rows);
        let mut rows: Vec<(u64, u32)> = rows.iter().map(key).filter(|&(_, rows)| rows > 0).collect();
        rows.sort_unstable();
        Self::of_sorted(
            nodes,
            ranks,
            1,
            rows.chunk_by(|a, b| a.0 == b.0)
                .map(|same| (same[0].0, same.iter().map(|&(_, rows)| u64::from(rows)).sum())),
        )
    }
    /// Counts the rows of the events in `part`, the training part of a stream.
    ///
    /// A rank needs the rows of its slice's sources and destinations, of their negatives, and of the most
    /// recent neighbours of all of these, before the event (see [`History`]). It needs the row of a node
    /// once per batch, however often the node occurs in its slice. The row of a positive root, and that of a
    /// recipient, is written once per batch, by the rank with the latest event that changes it.
    ///
    /// Negatives are not those of a training run, which differ from epoch to epoch. They are there because
    /// they are a third of the roots: without them, owners of destinations would seem to send less.
    ///
    /// # Errors
    /// `Usage` if an option is out of its range; `Data` if the events are not valid; `OutOfMemory` if their
    /// lists do not fit.
    pub fn count(events: &Events, part: Range<usize>, options: &DemandOptions) -> Result<Self> {
        let sampler = Sampler::new(events, &part, options)?;
        let whole = part.len().div_ceil(options.batch);
        let batches = whole.min(options.max_batches);
        let per_event = 5 + 3 * options.neighbors + 2 * options.recipients;
        let bytes = 2 * size_of::<u64>() * batches * options.batch.min(part.len()) * per_event;
        check_room("rows of the counted batches", bytes, "count fewer batches, or fewer neighbours")?;
        let sample = |last_seen: &mut LastSeen, i: usize| {
            // The product may exceed 64 bits on no machine that holds the events.
            let batch = (i as u128 * whole as u128 / batches as u128) as usize;
            let start = part.start + batch * options.batch;
            let of_batch = sampler.batch(start..part.end.min(start + options.batch), batch, last_seen);
            of_batch.concat()
        };
        let pairs: Vec<Vec<u64>> =
            (0..batches).into_par_iter().map_init(|| LastSeen::new(events.nodes), sample).collect();
        let mut pairs = pairs.concat();
        pairs.par_sort_unstable();
        let counted = pairs.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64));
        Self::of_sorted(events.nodes, options.ranks, batches, counted)
    }
    /// Makes the lists from sorted unique pairs and their rows.
    fn of_sorted(
        nodes: usize,
        ranks: usize,
        batches: usize,
        sorted: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Self> {
        let (mut starts, mut entries, mut total) = (vec![0; nodes + 1], Vec::new(), 0u64);
        for (pair, rows) in sorted {
            total = total.saturating_add(rows);
            let rows = u32::try_from(rows).map_err(|_| too_many("rows of a node"))?;
            entries.push(RankRows { rank: pair as u32, rows });
            starts[(pair >> 32) as usize + 1] = entries.len();
        }
        if total > MAX_ROWS {
            return Err(too_many("rows"));
        }
        for node in 0..nodes {
            starts[node + 1] = starts[node + 1].max(starts[node]);
        }
        Ok(Demand { ranks, batches, starts, entries })
    }
    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }
    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }
    /// Returns the number of batches that were counted; 1 for a demand made of triples.
    pub fn batches(&self) -> usize {
        self.batches
    }
    /// Returns the rows of a node, by rank in ascending order.
    ///
    /// # Panics
    /// Unless the node is below [`nodes`](Self::nodes).
    pub fn of_node(&self, node: usize) -> &[RankRows] {
        &self.entries[self.starts[node]..self.starts[node + 1]]
    }
    /// Returns the rows of a node that a rank needs or writes.
    ///
    /// # Panics
    /// Unless the node is below [`nodes`](Self::nodes).
    pub fn rows(&self, node: usize, rank: usize) -> u64 {
        let list = self.of_node(node);
        list.iter().find(|entry| entry.rank as usize == rank).map_or(0, |entry| entry.rows.into())
    }
    /// Returns the rows of a node that all ranks together need or write.
    ///
    /// # Panics
    /// Unless the node is below [`nodes`](Self::nodes).
    pub fn total(&self, node: usize) -> u64 {
        self.of_node(node).iter().map(|entry| u64::from(entry.rows)).sum()
    }
    /// Returns a cost below which no partition is. If the rank that uses a node most owned it, the fewest
    /// rows would travel. Each of them costs two ranks one row, and the maximum over ranks is at least the
    /// mean.
    pub fn lower_bound(&self) -> u64 {
        let most = |node| self.of_node(node).iter().map(|entry| u64::from(entry.rows)).max().unwrap_or(0);
        let travel: u64 = (0..self.nodes()).map(|node| self.total(node) - most(node)).sum();
        (2 * travel).div_ceil(self.ranks as u64)
    }
    /// Checks that a partition is of these nodes and ranks.
    pub(super) fn check(&self, partition: &Partition) -> Result<()> {
        let (has, wants) = ([partition.ranks(), partition.rank_of().len()], [self.ranks, self.nodes()]);
        if has == wants {
            return Ok(());
        }
        let [[ranks, nodes], [want_ranks, want_nodes]] = [has, wants];
        Err(Error::usage(format!(
            "a partition of {nodes} nodes over {ranks} ranks for a demand of {want_nodes} nodes over {want_ranks}"
        )))
    }
}

/// Returns the sort key of a node and a rank.
fn pair(node: u32, rank: usize) -> u64 {
    u64::from(node) << 32 | rank as u64
}

#[cold]
fn too_many(what: &str) -> Error {
    Error::new(ErrorKind::Data, format!("demand: too many {what}"))
}

/// Checks options and events.
fn check(o: &DemandOptions, events: &Events, part: &Range<usize>) -> Result<()> {
    check_ranks(o.ranks)?;
    let bad = |what: String, valid: String| Err(Error::usage(what).remedy(format!("give {valid}")));
    if o.batch == 0 || o.max_batches == 0 {
        return bad("batches of 0 events, or 0 batches".into(), "1 or more".into());
    }
    let most = o.neighbors.max(o.recipients);
    if most > MAX_NEIGHBORS {
        return bad(format!("{most} neighbours"), format!("at most {MAX_NEIGHBORS}"));
    }
    events.validate(&events.name)?;
    if part.start > part.end || part.end > events.len() {
        return bad(format!("part {part:?} of {} events", events.len()), "a range of events".into());
    }
    Ok(())
}

/// For each node, where it was seen last.
struct LastSeen {
    /// The slice that last needed the row: its number among all slices, from 1.
    needed: Vec<u64>,
    /// The batch that last wrote the row, from 1, and the rank that does.
    written: Vec<(u32, u32)>,
}

impl LastSeen {
    fn new(nodes: usize) -> Self {
        LastSeen { needed: vec![0; nodes], written: vec![(0, 0); nodes] }
    }
}

/// Goes through batches as training does.
struct Sampler<'a> {
    events: &'a Events,
    tcsr: Option<Tcsr>,
    /// Nodes that negatives are drawn from; empty if there are none.
    pool: Vec<u32>,
    options: &'a DemandOptions,
}

/// Returns a function that lists the nodes whose rows a batch of the events needs, each once.
///
/// # Errors
/// As [`Demand::count`].
pub fn needed_nodes<'a>(
    events: &'a Events,
    part: Range<usize>,
    options: &'a DemandOptions,
) -> Result<impl FnMut(Range<usize>) -> Vec<u32> + use<'a>> {
    let sampler = Sampler::new(events, &part, options)?;
    let (mut seen, mut number) = (LastSeen::new(events.nodes), 0);
    Ok(move |batch| {
        number += 1;
        let [needed, _] = sampler.batch(batch, number - 1, &mut seen);
        needed.into_iter().map(|pair| (pair >> 32) as u32).collect()
    })
}

impl<'a> Sampler<'a> {
    fn new(events: &'a Events, part: &Range<usize>, options: &'a DemandOptions) -> Result<Self> {
        check(options, events, part)?;
        let sampled = options.neighbors.max(options.recipients);
        let tcsr = if sampled > 0 { Some(Tcsr::new(events)?) } else { None };
        let mut pool = if options.negatives { events.dst[part.clone()].to_vec() } else { Vec::new() };
        pool.sort_unstable();
        pool.dedup();
        Ok(Sampler { events, tcsr, pool, options })
    }
    /// Returns a pair of node and rank for each row that is needed, and for each that is written, in the
    /// batch of these events.
    fn batch(&self, batch: Range<usize>, number: usize, seen: &mut LastSeen) -> [Vec<u64>; 2] {
        let o = self.options;
        let key = Key::new(o.seed, SALT, [0, number as u32]);
        let (mut pairs, mut written) = (Vec::new(), Vec::new());
        // Events are fewer than 2^32, so batches are, too.
        let this_batch = number as u32 + 1;
        for rank in 0..o.ranks {
            let this_slice = (number * o.ranks + rank) as u64 + 1;
            let cut = |rank: usize| batch.start + batch.len() * rank / o.ranks;
            let mut need = |node: u32| {
                if replace(&mut seen.needed[node as usize], this_slice) != this_slice {
                    pairs.push(pair(node, rank));
                }
            };
            let mut write = |node: u32| {
                // Events are in time order, so the last one decides.
                let before = replace(&mut seen.written[node as usize], (this_batch, rank as u32));
                if before.0 != this_batch {
                    written.push(node);
                }
            };
            for event in cut(rank)..cut(rank + 1) {
                let (src, dst) = (self.events.src[event], self.events.dst[event]);
                let drawn = !self.pool.is_empty();
                let drawn = drawn.then(|| negative(&self.pool, key, 1, (event - batch.start, 0)));
                for root in [Some(src), Some(dst), drawn].into_iter().flatten() {
                    need(root);
                    self.recent(root, event, batch.start, o.neighbors).for_each(|e| need(e.node));
                }
                for root in [src, dst] {
                    write(root);
                    self.recent(root, event, batch.start, o.recipients).for_each(|e| write(e.node));
                }
            }
        }
        let written = written.into_iter().map(|node| pair(node, seen.written[node as usize].1 as usize));
        [pairs, written.collect()]
    }
    /// Returns the `k` latest events of a node that the event sees; its batch starts at `first`.
    fn recent(&self, node: u32, event: usize, first: usize, k: usize) -> impl Iterator<Item = &Entry> {
        let list = self.tcsr.as_ref().filter(|_| k > 0).map_or(&[][..], |tcsr| {
            let (start, end) = (tcsr.offsets[node as usize], tcsr.offsets[node as usize + 1]);
            &tcsr.entries[start as usize..end as usize]
        });
        let time = self.events.time[event];
        let in_batch = self.options.history == History::Time;
        let end = list.partition_point(|e| (in_batch || (e.event as usize) < first) && e.time < time);
        list[end.saturating_sub(k)..end].iter()
    }
}
