//! Samples the temporal neighbours of each query `(node, time)` from a T-CSR, strictly before the query's
//! time.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[v + 1]` i64 | start of each node's list in `entries` |
//! | `entries` | `[2 e, 2]` i64 | time, other end and id of each of the node's events, in order ([`Entry`]) |
//! | `position` | `[e, 2]` u32 | rank of an event in the lists of its source and of its destination; if it has no rows, every query searches from the end of its list |
//! | `node`, `time` | `[n]` u32 (or [`NONE`]), i64 | queries; roots come event by event, `stride` rows per event |
//! | `event` | `[<= b]` u32 | events of the batch |
//! | `now` | `[1, 2]` or `[1, 3]` u32 | clock of the uniform draw; events of the batch before those in `event`, which other ranks have |
//! | neighbor, event | `[n, k]` u32 | other end and id of the event; `NONE` in unused slots |
//! | dt | `[n, k]` f32 | seconds from the neighbour's event to the query; 0 in unused slots |
//! | time | `[n, k]` i64 | time of the event; 0 in unused slots |
//! | count | `[n]` u32 | number of slots in use; they come first |
//!
//! **No leakage**: the time of a sampled event is strictly earlier than the query's. With [`History::Batch`]
//! it also belongs to an earlier batch. `Recent` takes the k latest events, latest first. `Uniform` draws k
//! events with replacement; a history of at most k events is taken whole, latest first. For positive roots,
//! the search for the end of the history starts at the known position of the root's own event; other queries
//! start where the end would be if the events of the list were spread evenly over the stream. A query for
//! `NONE` has no neighbours. Source: TGN's most recent sampling, TGL's and DyGLib's search by time, and
//! PyTorch Geometric's loader, which a batch enters as a whole; the T-CSR is TGL's, the known position is
//! ours.
use super::*;
use crate::runtime::{
    cuda::abi,
    philox::Key,
    simd,
    team::{self, InParallel},
};
use std::ops::Range;

/// Number of queries between prefetching a list and reading it.
const AHEAD: usize = 8;

/// Rule that selects neighbours among a node's earlier events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The latest events.
    Recent,
    /// Uniform draws with replacement; holds the seed of the run.
    Uniform(u64),
}

/// Which events before a query are its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Those strictly earlier in time, events of the query's own batch among them.
    Time,
    /// Those strictly earlier in time that also belong to an earlier batch.
    Batch,
}

impl History {
    /// Returns the name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            History::Time => "time",
            History::Batch => "batch",
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct SampleNeighbors {
    k: usize,
    strategy: Strategy,
    history: History,
    /// Roots per event if the queries are roots: the first two of each event have known positions. Otherwise
    /// 0.
    stride: usize,
    gaps: Gaps,
}

/// An entry of a node's list: 16 bytes, so that one load fetches a neighbour. In a value, an entry is a row
/// of two i64.
///
/// Example: [`Tape::sample_neighbors`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Entry {
    /// Time of the event, in ticks.
    pub time: i64,
    /// Other end of the event.
    pub node: u32,
    /// Event id.
    pub event: u32,
}

impl Entry {
    /// Returns the shape and type of a value of `n` entries.
    pub fn spec(n: usize) -> Spec {
        Spec { cols: 2, ..Spec::times(Rows::fixed(n)) }
    }
}

// SAFETY: as for other vectors; an entry is two i64 without padding.
unsafe impl Bytes for Vec<Entry> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
    fn dtype(&self) -> DType {
        DType::I64
    }
}

/// T-CSR tables as values.
///
/// Example: [`Tape::sample_neighbors`].
#[derive(Clone, Copy, Debug)]
pub struct TcsrVars {
    /// `[v + 1]` i64 starts of the nodes' lists.
    pub offsets: Var,
    /// `[2 e, 2]` i64 entries of the lists, see [`Entry`].
    pub entries: Var,
    /// `[e, 2]` u32 ranks of the events in the lists of their ends, or `[0, 2]` if unknown.
    pub position: Var,
}

/// Sampled neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Neighbors {
    /// `[n, k]` u32 neighbours, or `NONE`.
    pub node: Var,
    /// `[n, k]` u32 events, or `NONE`.
    pub event: Var,
    /// `[n, k]` f32 seconds from the event to the query.
    pub dt: Var,
    /// `[n, k]` i64 times of the events, in ticks.
    pub time: Var,
    /// `[n]` u32 numbers of slots in use.
    pub count: Var,
}

/// Options of neighbour sampling.
///
/// Example: [`Tape::sample_neighbors`].
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Slots per query.
    pub k: usize,
    /// Rule that selects the events.
    pub strategy: Strategy,
    /// Which events there are to select from.
    pub history: History,
    /// Conversion of ticks to seconds.
    pub gaps: Gaps,
}

impl Tape {
    /// Appends [`SampleNeighbors`] for queries `(node, time)`, u32 and i64 `[n]`; `batch` is `(event, now)`.
    /// `stride` is the number of roots per event if the queries are the roots of the batch, otherwise 0.
    ///
    /// # Errors
    /// `Shape` if types or rows do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{functions::EventLists, sample_neighbors::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Node 0 has event 0 with node 1 at time 10, and event 1 with node 2 at time 20; event 2 is later.
    /// let lists = EventLists::new(&[0, 0, 1], &[1, 2, 2], &[10, 20, 30], 3)?;
    /// let tcsr = lists.stored(&mut tape, &mut store)?;
    /// // A query for node 0 at time 25, in a batch that begins with event 2.
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(1)), &[25i64])?;
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 1), &[2u32])?;
    /// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 2), &[0u32, 0])?; // of random draws
    /// let (strategy, history) = (Strategy::Recent, History::Time);
    /// let how = Sampling { k: 3, strategy, history, gaps: Gaps::unlimited(1.0) };
    /// let near = tape.sample_neighbors(tcsr, (node, time), (event, now), 0, how)?;
    /// let mut program = Program::new(&tape, &[near.node, near.dt], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(near.node, &store)?, [2, 1, NONE]); // latest first
    /// assert_eq!(program.read::<f32>(near.dt, &store)?, [5.0, 15.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn sample_neighbors(
        &mut self,
        tcsr: TcsrVars,
        query: (Var, Var),
        batch: (Var, Var),
        stride: usize,
        how: Sampling,
    ) -> Result<Neighbors> {
        let op = SampleNeighbors::new(how, stride);
        let TcsrVars { offsets, entries, position } = tcsr;
        let o = self.push(op, &[offsets, entries, position, query.0, query.1, batch.0, batch.1])?;
        Ok(Neighbors { node: o[0], event: o[1], dt: o[2], time: o[3], count: o[4] })
    }
}

/// The inputs of a run.
struct Tables<'a> {
    offsets: &'a [i64],
    entries: &'a [Entry],
    position: &'a [u32],
    query: &'a [u32],
    query_time: &'a [i64],
    batch: &'a [u32],
    /// First event of the batch; 0 if the batch is empty.
    first: u32,
    /// The history ends before this event.
    bound: u32,
    /// Key of the uniform draw.
    key: Key,
}

/// The output slots of one query.
struct Slots<'a, R> {
    node: &'a mut [u32],
    event: &'a mut [u32],
    dt: &'a mut [R],
    time: &'a mut [i64],
}

impl<'a> Tables<'a> {
    fn new(op: &SampleNeighbors, io: &Io<'a>) -> Self {
        let (batch, now) =
            (io.input::<u32>(at!(SampleNeighbors, event)), io.input::<u32>(at!(SampleNeighbors, now)));
        let (seed, salt) = op.seed();
        let key = Key::at(seed, salt, now, op.per_event(io.spec(at!(SampleNeighbors, node)).rows));
        let before = now.get(2).copied().unwrap_or(0);
        let first = batch.first().map_or(0, |first| first.saturating_sub(before));
        Tables {
            offsets: io.input(at!(SampleNeighbors, offsets)),
            entries: bytemuck::cast_slice(io.input::<i64>(at!(SampleNeighbors, entries))),
            position: io.input(at!(SampleNeighbors, position)),
            query: io.input(at!(SampleNeighbors, node)),
            query_time: io.input(at!(SampleNeighbors, time)),
            batch,
            first,
            // No event has the number `NONE`, which stands for an empty slot of a list.
            bound: if op.history == History::Time { NONE } else { first },
            key,
        }
    }
    /// Returns the range of `entries` that is the list of query `i`; empty if the query is for `NONE`.
    /// Reports a fault for a node outside the table and for offsets outside the entries.
    fn list(&self, io: &Io<'_>, i: usize) -> Range<usize> {
        let Some(v) = io.row_of(i, self.query[i], self.offsets.len() - 1) else { return 0..0 };
        let [start, end] = [self.offsets[v], self.offsets[v + 1]].map(usize::try_from);
        match (start, end) {
            (Ok(start), Ok(end)) if start <= end && end <= self.entries.len() => start..end,
            _ => {
                io.fault(i, Fault::out_of_range(v));
                0..0
            }
        }
    }
    /// Returns the two offsets that bound the list of query `i`, as far as they exist.
    fn bounds(&self, i: usize) -> &[i64] {
        self.offsets.get(self.query[i] as usize..).map_or(&[], |rest| &rest[..rest.len().min(2)])
    }
}

/// Returns the length of the history in `list`: its entries before event `bound` and time `now`, which are a
/// prefix. The search starts at `guess`.
fn history(list: &[Entry], bound: u32, now: i64, guess: usize) -> usize {
    let earlier = |e: &Entry| e.event < bound && e.time < now;
    // Galloping search: steps away from the guess double until they enclose the answer; then bisection.
    let (mut low, mut high, mut step) = (guess, guess, 1);
    while low > 0 && !earlier(&list[low - 1]) {
        (low, high, step) = (low.saturating_sub(step), low - 1, 2 * step);
    }
    while high < list.len() && earlier(&list[high]) {
        (low, high, step) = (high + 1, (high + step).min(list.len()), 2 * step);
    }
    low + list[low..high].partition_point(earlier)
}

impl SampleNeighbors {
    /// Creates the op; `stride` is the number of roots per event if the queries are roots, otherwise 0.
    pub fn new(how: Sampling, stride: usize) -> Self {
        let Sampling { k, strategy, history, gaps } = how;
        SampleNeighbors { k, strategy, history, stride, gaps }
    }
    /// Returns seed and salt of the uniform draw; zeros for `Recent`, which does not draw.
    fn seed(&self) -> (u64, u32) {
        match self.strategy {
            Strategy::Uniform(seed) => (seed, 0x5A3Bu32.wrapping_add(self.stride as u32)),
            Strategy::Recent => (0, 0),
        }
    }
    /// Returns the number of slots of each event.
    fn per_event(&self, queries: Rows) -> usize {
        per_event(queries, self.k)
    }
    /// Estimates the number of entries of the list that are history. A positive root knows the
    /// position of its own event. All other queries, and roots of events that `position` does not have,
    /// assume that the events of the list are spread evenly over the stream.
    fn guess(&self, t: &Tables<'_>, i: usize, list: &Range<usize>) -> usize {
        let events = t.position.len() as u64 / 2;
        if events == 0 {
            return list.len();
        }
        let known = (self.stride > 0 && i % self.stride < 2)
            .then(|| t.position.get(2 * t.batch[i / self.stride] as usize + i % self.stride));
        let guess = match known.flatten() {
            Some(&position) => position as usize,
            None => (list.len() as u64 * u64::from(t.first) / events) as usize,
        };
        guess.min(list.len())
    }
    /// Prefetches the entries that query `i` will probably read.
    fn prefetch(&self, t: &Tables<'_>, io: &Io<'_>, i: usize) {
        let list = t.list(io, i);
        let end = list.start + self.guess(t, i, &list);
        let read = end.saturating_sub(self.k).max(list.start)..end.min(list.end);
        simd::prefetch(&t.entries[read]);
    }
    /// Fills the slots of query `i` from its `history`; returns the number of slots in use.
    fn take<R: Real>(&self, t: &Tables<'_>, i: usize, history: Range<usize>, slots: Slots<'_, R>) -> u32 {
        let Slots { node, event, dt, time } = slots;
        let list = &t.entries[history];
        let n = list.len().min(self.k);
        node[n..].fill(NONE);
        event[n..].fill(NONE);
        dt[n..].fill(R::ZERO);
        time[n..].fill(0);
        let (gaps, now) = (self.gaps, t.query_time[i]);
        let mut put = |j: usize, e: &Entry| {
            (node[j], event[j], time[j]) = (e.node, e.event, e.time);
            dt[j] = R::from_f64(f64::from(gaps.seconds(e.time, now)));
        };
        if self.strategy == Strategy::Recent || list.len() <= self.k {
            list.iter().rev().take(n).enumerate().for_each(|(j, e)| put(j, e));
        } else {
            let draw = |j| t.key.below((i * self.k + j) as u64, list.len() as u32) as usize;
            (0..n).for_each(|j| put(j, &list[draw(j)]));
        }
        n as u32
    }
}

impl Op for SampleNeighbors {
    const NAME: &'static str = "sample_neighbors";
    const KIND: OpKind = OpKind::Graph;
    // The tables have fixed rows: all of their rows are live.
    const SIGNATURE: &'static str = "offsets [v + 1] times, entries [E, 2] times, position [P, 2] ids, \
        node [q] ids, time [q] times, event [b] ids, now [1, c] ids \
        -> node [q, k] ids, event [q, k] ids, dt [q, k], time [q, k] times, count [q] ids";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.k))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let [node, event, now] = [at!(node), at!(event), at!(now)].map(|i| ins[i]);
        clock(Self::NAME, &now)?;
        at_most_u32(Self::NAME, "neighbours per query", self.k)?;
        at_most_u32(Self::NAME, "roots per event", self.stride)?;
        let each = self.stride;
        let of_events = each == 0 || node.rows == event.rows.times(each);
        ensure!(Self::NAME, of_events, "queries are {node}, want {each} for each event of {event}");
        Ok(())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        // A slot reads 16 bytes of the lists and writes 12, or 20 if its time is wanted.
        Cost { bytes: 28 * outs[0].len() + 24 * ins[at!(node)].rows.capacity, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, event) = (io.out::<u32>(0), io.out::<u32>(1));
        let (dt, time, count) = (io.out::<R>(2), io.out::<i64>(3), io.out::<u32>(4));
        let t = Tables::new(self, io);
        for (i, count) in count.iter_mut().enumerate() {
            let list = t.list(io, i);
            let earlier = |e: &&Entry| e.event < t.bound && e.time < t.query_time[i];
            let end = t.entries[list.clone()].iter().filter(earlier).count();
            let row = i * self.k..(i + 1) * self.k;
            let slots = Slots {
                node: &mut node[row.clone()],
                event: &mut event[row.clone()],
                dt: &mut dt[row.clone()],
                time: &mut time[row],
            };
            *count = self.take(&t, i, list.start..list.start + end, slots);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (node, event) = (io.out::<u32>(0), io.out::<u32>(1));
        let (dt, time, count) = (io.out::<f32>(2), io.out::<i64>(3), io.out::<u32>(4));
        let t = Tables::new(self, io);
        if self.k == 0 {
            return count.fill(0);
        }
        let (k, size) = (self.k, team::piece(count.len(), 64));
        node.chunks_mut(size * k)
            .zip(event.chunks_mut(size * k))
            .zip(dt.chunks_mut(size * k))
            .zip(time.chunks_mut(size * k))
            .zip(count.chunks_mut(size))
            .enumerate()
            .in_parallel(1, |(piece, ((((node, event), dt), time), count))| {
                let rows = node
                    .chunks_exact_mut(k)
                    .zip(event.chunks_exact_mut(k))
                    .zip(dt.chunks_exact_mut(k))
                    .zip(time.chunks_exact_mut(k));
                let last = piece * size + count.len();
                (piece * size..last.min(piece * size + AHEAD)).for_each(|i| self.prefetch(&t, io, i));
                for (i, ((((node, event), dt), time), count)) in (piece * size..).zip(rows.zip(count)) {
                    if i + 2 * AHEAD < last {
                        simd::prefetch(t.bounds(i + 2 * AHEAD));
                    }
                    if i + AHEAD < last {
                        self.prefetch(&t, io, i + AHEAD);
                    }
                    let list = t.list(io, i);
                    let entries = &t.entries[list.clone()];
                    let end = history(entries, t.bound, t.query_time[i], self.guess(&t, i, &list));
                    let slots = Slots { node, event, dt, time };
                    *count = self.take(&t, i, list.start..list.start + end, slots);
                }
            });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (seed, salt) = self.seed();
        let per_event = self.per_event(on.spec(at!(node)).rows);
        let (neighbor, event, dt, time, count) = (on.out(0), on.out(1), on.out(2), on.out(3), on.out(4));
        launch!(
            k, on, sample_neighbors[Grid::warps(on.capacity(at!(node)))];
            on.input(at!(offsets)), on.input(at!(entries)), on.input(at!(position)),
            on.input(at!(node)), on.input(at!(time)), on.input(at!(event)), on.input(at!(now)),
            neighbor, event, dt, time, count, on.rows(at!(node)), on.rows(at!(event)),
            on.capacity(at!(offsets)).saturating_sub(1) as u32, on.capacity(at!(position)) as u32,
            on.capacity(at!(entries)) as u64, self.k as u32, self.stride as u32, on.cols(at!(now)),
            per_event as u32, u32::from(self.strategy != Strategy::Recent),
            u32::from(self.history == History::Time), self.gaps.into(), abi::Key::new(seed, salt),
            on.status()
        )
    }
}

/// `[nodes, events, first event of the batch, k, rule]`; rule 0 takes recent events and rule 1 uniform ones,
/// of a history by time; 2 and 3 are the same of earlier batches. The queries are the roots of the batch with
/// one negative per event; if the batch is empty, every node is a query. An optional sixth number is the
/// stride: with 2 there are no negatives; with 0 the op does not know that its queries are roots, so that
/// every query searches. An optional seventh number is the length of every node's list, which then holds the
/// node's latest events before the batch; positions are empty.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[2, 1, 0, 1, 0],
    &[5, 60, 40, 3, 0],
    &[5, 60, 40, 3, 0, 0],
    &[5, 60, 60, 3, 0, 0],
    &[5, 60, 40, 3, 0, 2],
    &[5, 60, 40, 3, 1],
    &[5, 60, 40, 3, 2],
    &[5, 60, 40, 3, 2, 2],
    &[5, 60, 40, 3, 3],
    &[5, 60, 60, 3, 2, 0],
    &[5, 60, 40, 0, 0],
    &[9, 300, 100, 10, 0],
    &[3, 4_000, 3_900, 40, 0],
    &[3, 4_000, 3_000, 40, 0, 0],
    &[3, 4_000, 1_000, 33, 1, 0],
    &[3, 4_000, 3_000, 40, 2, 0],
    &[3, 4_000, 1_000, 33, 3, 0],
    &[5, 60, 40, 3, 2, 2, 8],
    &[5, 60, 40, 3, 0, 2, 8],
    &[9, 90, 20, 3, 0, 3, 40],
    &[3, 4_000, 3_000, 10, 0, 2, 70],
];
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[9_228, 110_232, 109_632, 10, 0], &[9_228, 110_232, 109_632, 10, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (v, e, first, k, rule, stride) = match *dims {
        [v, e, first, k, rule] => (v, e, first, k, rule, 3),
        [v, e, first, k, rule, stride, ..] => (v, e, first, k, rule, stride),
        _ => return Err(Error::shape("sample_neighbors", "five sizes, or more")),
    };
    let ends: Vec<[u32; 2]> = (0..e).map(|_| [c.below(v) as u32, c.below(v) as u32]).collect();
    let times: Vec<i64> = (0..e as i64).map(|i| i / 3).collect();
    let mut lists = vec![Vec::new(); v];
    let mut position = vec![0; 2 * e];
    for (i, &[s, d]) in ends.iter().enumerate() {
        let entry = |node| Entry { time: times[i], node, event: i as u32 };
        position[2 * i] = lists[s as usize].len() as u32;
        lists[s as usize].push(entry(d));
        position[2 * i + 1] = position[2 * i];
        if s != d {
            position[2 * i + 1] = lists[d as usize].len() as u32;
            lists[d as usize].push(entry(s));
        }
    }
    if let Some(&slots) = dims.get(6) {
        position.clear();
        for list in &mut lists {
            list.retain(|entry: &Entry| (entry.event as usize) < first);
            list.drain(..list.len().saturating_sub(slots));
            list.resize(slots, Entry { event: NONE, ..Entry::default() });
        }
    }
    let mut offsets = vec![0i64];
    lists.iter().for_each(|l| offsets.push(offsets[offsets.len() - 1] + l.len() as i64));
    let entries: Vec<Entry> = lists.concat();
    let tcsr = TcsrVars {
        offsets: c.times(&offsets),
        entries: c.values(Entry::spec(entries.len()), bytemuck::cast_slice::<_, i64>(&entries)),
        position: c.ids(&position, 2),
    };
    let batch: Vec<u32> = (first as u32..e as u32).collect();
    let negative = |i: u32| if i % 7 == 6 { NONE } else { i % v as u32 };
    let event_roots = if stride == 2 { 2 } else { 3 };
    let roots_of =
        |&i: &u32| [ends[i as usize][0], ends[i as usize][1], negative(i)].into_iter().take(event_roots);
    let mut roots: Vec<u32> = batch.iter().flat_map(roots_of).collect();
    let mut root_times: Vec<i64> =
        batch.iter().flat_map(|&i| [times[i as usize]; 3].into_iter().take(event_roots)).collect();
    if batch.is_empty() {
        (roots, root_times) = ((0..v as u32).collect(), vec![e as i64; v]);
    }
    let (node, time) = (c.ids(&roots, 1), c.times(&root_times));
    let (event, now) = (c.ids(&batch, 1), c.ids(&[0, 1], 2));
    let strategy = if rule % 2 == 1 { Strategy::Uniform(3) } else { Strategy::Recent };
    let history = if rule < 2 { History::Time } else { History::Batch };
    let gaps = Gaps { seconds_per_tick: 0.5, longest: e as i64 / 5 };
    let how = Sampling { k, strategy, history, gaps };
    let n = c.tape.sample_neighbors(tcsr, (node, time), (event, now), stride, how)?;
    Ok(Built::new(&[n.node, n.event, n.dt, n.time, n.count], &[]))
}
