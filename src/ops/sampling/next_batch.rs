//! Returns the next `b` events of a range, in order, or a rank's slice of them; the cursor lives in device
//! memory.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[e]` u32 | endpoints of all events of the stream |
//! | `time` | `[e]` i64 | ticks |
//! | `range` | `[1, 3]` u32 | first event of the pass; one past its last, clipped to `e`; by how many events the first batch is shorter than `b` |
//! | `clock` | `[1, 2]` u32, state | epoch, and number of this step's batch, which the op increments |
//! | `turn` | `[1, 2]` u32, optional | the epoch and the batch of this step, if they are not those of the clock ([`next_turn`](super::next_turn)) |
//! | count | `[1, 1]` u32 | live events n: `b`; fewer in a shortened first batch and in the last; 0 past the end |
//! | src, dst, event | `[<= b]` u32 | endpoints and ids |
//! | time | `[<= b]` i64 | |
//! | row | `[<= b]` u32 | index of each event within the range: its row in the tables of a pass |
//! | index | `[1]` u32 | index of the batch within the pass |
//! | now | `[1, 3]` u32 | epoch and batch index of this step, and number of events of the batch before the rank's: the clock of its random draws |
//! | share | `[1]` f32 | the rank's live events, divided by those of all batches of the step; 0 if the batch is empty |
//!
//! Of N ranks, rank r gets the events from n r / N up to n (r + 1) / N of the batch, rounded down; or, if
//! ranks get whole batches, all events in every N-th step, from step r on.
use super::{next_turn::TurnVars, *};
use std::ptr::null;

/// See the [module](self).
#[derive(Debug)]
pub struct NextBatch {
    /// Maximum number of events of a batch, those of all ranks.
    capacity: usize,
    slice: Slice,
    /// Number of batches of a step.
    batches: usize,
}

/// The slice of a batch that a rank gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of the rank among those that share a batch, from 0.
    pub rank: usize,
    /// Number of ranks that share a batch.
    pub ranks: usize,
    /// Whether the ranks get whole batches, one rank after the other, in place of a part of each.
    pub whole: bool,
}

impl Slice {
    /// All events of every batch.
    pub const ALL: Slice = Slice::new(0, 1);

    /// The slice of a rank, of `ranks` ranks that share every batch.
    pub const fn new(rank: usize, ranks: usize) -> Self {
        Slice { rank, ranks, whole: false }
    }
}

/// A batch of events.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Source nodes.
    pub src: Var,
    /// Destination nodes.
    pub dst: Var,
    /// Event ids, consecutive.
    pub event: Var,
    /// Times in ticks.
    pub time: Var,
    /// Row of each event in the tables of the pass: its index within the range.
    pub row: Var,
    /// Index of the batch within the pass, `[1]` u32.
    pub index: Var,
    /// Epoch, batch index, and number of events before the rank's, `[1, 3]` u32: the clock of random draws.
    pub now: Var,
    /// The rank's part of the events of all batches of the step, `[1]` f32: 1 for a single rank.
    pub share: Var,
    /// Whose turn it is in this step, if ranks take turns.
    pub turn: Option<TurnVars>,
    /// Row count: the capacity of a rank's slice, and its live events.
    pub rows: Rows,
}

impl Batch {
    /// Returns the values that have no rows if the batch has no events.
    pub fn per_event(&self) -> Vec<Var> {
        let count = self.rows.live.map(|live| live.var);
        [self.src, self.dst, self.event, self.time, self.row].into_iter().chain(count).collect()
    }
}

impl Tape {
    /// Appends [`NextBatch`] with at most `capacity` events; `stream` is `[src, dst, time]` of all events,
    /// and `range`, u32 `[1, 3]`, says which of them the pass visits. Every run moves `clock`, u32 `[1, 2]`,
    /// on by one batch.
    ///
    /// # Errors
    /// `Shape` if types do not fit or the clock is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2])?;
    /// let dst = tape.input(&mut store, "dst", Spec::ids(Rows::fixed(3), 1), &[3u32, 4, 5])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(3)), &[10i64, 20, 30])?;
    /// let range = tape.input(&mut store, "range", Spec::ids(Rows::fixed(1), 3), &[0u32, 3, 0])?;
    /// let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
    /// let clock = tape.stored(clock)?;
    /// let batch = tape.next_batch([src, dst, time], range, clock, 2)?;
    /// let mut program = Program::new(&tape, &[batch.src, batch.time], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(batch.src, &store)?, [0, 1]);
    /// program.run(&mut store)?; // the last batch is shorter
    /// assert_eq!(program.read::<u32>(batch.src, &store)?, [2]);
    /// assert_eq!(program.read::<i64>(batch.time, &store)?, [30]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn next_batch(&mut self, stream: [Var; 3], range: Var, clock: Var, capacity: usize) -> Result<Batch> {
        self.next_slice(stream, range, clock, capacity, Slice::ALL, None)
    }
    /// Appends [`NextBatch`] for a rank's slice of the batch. It has at most `capacity` / ranks events,
    /// rounded up, or `capacity` if ranks get whole batches. If ranks take turns, it is a part of the batch
    /// of this `turn`. Otherwise as [`next_batch`](Self::next_batch).
    ///
    /// # Errors
    /// `Shape` if types do not fit, the clock is not writable, or there is no such rank.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{next_batch::Slice, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2])?;
    /// let dst = tape.input(&mut store, "dst", Spec::ids(Rows::fixed(3), 1), &[3u32, 4, 5])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(3)), &[10i64, 20, 30])?;
    /// let range = tape.input(&mut store, "range", Spec::ids(Rows::fixed(1), 3), &[0u32, 3, 0])?;
    /// let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
    /// let clock = tape.stored(clock)?;
    /// let slice = tape.next_slice([src, dst, time], range, clock, 3, Slice::new(1, 2), None)?; // of rank 1
    /// let keep = [slice.src, slice.now, slice.share];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(slice.src, &store)?, [1, 2]);
    /// assert_eq!(program.read::<u32>(slice.now, &store)?, [0, 0, 1]); // one event is the first rank's
    /// assert_eq!(program.read::<f32>(slice.share, &store)?, [2.0 / 3.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn next_slice(
        &mut self,
        stream: [Var; 3],
        range: Var,
        clock: Var,
        capacity: usize,
        slice: Slice,
        turn: Option<TurnVars>,
    ) -> Result<Batch> {
        let ([src, dst, time], Slice { rank, ranks, .. }) = (stream, slice);
        let op = NextBatch { capacity, slice, batches: turn.map_or(1, |turn| turn.batches) };
        ensure!(NextBatch::NAME, rank < ranks, "rank {rank} of {ranks}");
        let rows = op.rows();
        let ins = [src, dst, time, range, clock].into_iter().chain(turn.map(|turn| turn.at));
        let outs = self.push(op, &ins.collect::<Vec<_>>())?;
        let [count, src, dst, event, time, row] =
            [COUNT, SRC_OUT, DST_OUT, EVENT, TIME_OUT, ROW].map(|out| outs[out]);
        let [index, now, share] = [INDEX, NOW, SHARE].map(|out| outs[out]);
        let rows = Rows::live(rows, count);
        Ok(Batch { src, dst, event, time, row, index, now, share, turn, rows })
    }
}

impl NextBatch {
    /// Returns the maximum number of events of a rank.
    fn rows(&self) -> usize {
        if self.slice.whole { self.capacity } else { self.capacity.div_ceil(self.slice.ranks) }
    }
}

/// Returns the events of batch `nth` of the pass from event `begin` up to `end`. Batches are counted as if
/// the pass began `short` events earlier; the events before `begin` are left out.
pub(in crate::ops) fn events_of(
    nth: usize,
    [begin, end, short]: [usize; 3],
    capacity: usize,
) -> std::ops::Range<usize> {
    let from = begin + nth * capacity;
    let first = from.saturating_sub(short).max(begin);
    let past = (from + capacity).saturating_sub(short).min(end);
    first..past.max(first)
}

// Output indices.
const COUNT: usize = 0;
const SRC_OUT: usize = 1;
const DST_OUT: usize = 2;
const EVENT: usize = 3;
const TIME_OUT: usize = 4;
const ROW: usize = 5;
const INDEX: usize = 6;
const NOW: usize = 7;
const SHARE: usize = 8;

impl Op for NextBatch {
    const NAME: &'static str = "next_batch";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [e] ids, dst [e] ids, time [e] times, range [1, 3] ids, \
        clock [1, 2] ids state, turn? [1, 2] ids \
        -> count [1] ids, src [n] ids by count, dst [n] ids by count, event [n] ids by count, \
        time [n] times by count, row [n] ids by count, index [1] ids, now [1, 3] ids, share [1]";
    fn sizes(&self) -> Sizes {
        vec![("n", Rows::fixed(self.rows()))]
    }
    fn check(&self, _: &[Spec]) -> Result<()> {
        at_most_u32(Self::NAME, "events", self.capacity)
    }
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 36 * self.rows(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (range, clock) = (io.input::<u32>(at!(range)), io.state::<u32>(at!(clock)));
        let [begin, end, short] = [0, 1, 2].map(|i| range[i] as usize);
        let end = end.min(io.rows(at!(src)));
        let Slice { rank, ranks, whole } = self.slice;
        let step = clock[1];
        let [epoch, nth] = match io.inputs() > at!(turn) {
            true => [0, 1].map(|at| io.input::<u32>(at!(turn))[at]),
            false => [clock[0], step],
        };
        let events = events_of(nth as usize, [begin, end, short], self.capacity);
        let (first, n) = (events.start, events.len());
        let [before, past] = match whole {
            true => [0, if step as usize % ranks == rank { n } else { 0 }],
            false => [rank, rank + 1].map(|rank| n * rank / ranks),
        };
        let share = if n == 0 { 0.0 } else { (past - before) as f64 / (n * self.batches) as f64 };
        let (first, n) = (first + before, past - before);
        io.out::<R>(SHARE)[0] = R::from_f64(share);
        io.out::<u32>(COUNT)[0] = n as u32;
        io.out::<u32>(INDEX)[0] = step;
        io.out::<u32>(NOW).copy_from_slice(&[epoch, nth, before as u32]);
        clock[1] = step.wrapping_add(1);
        if n > 0 {
            io.out::<u32>(SRC_OUT)[..n].copy_from_slice(&io.input(at!(src))[first..first + n]);
            io.out::<u32>(DST_OUT)[..n].copy_from_slice(&io.input(at!(dst))[first..first + n]);
            io.out::<i64>(TIME_OUT)[..n].copy_from_slice(&io.input(at!(time))[first..first + n]);
            io.out::<u32>(EVENT)[..n].iter_mut().zip(first as u32..).for_each(|(e, id)| *e = id);
            let rows = (first - begin) as u32..;
            io.out::<u32>(ROW)[..n].iter_mut().zip(rows).for_each(|(row, at)| *row = at);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (src, dst, time) = (on.input(at!(src)), on.input(at!(dst)), on.input(at!(time)));
        let Slice { rank, ranks, whole } = self.slice;
        let turn = if on.inputs() > at!(turn) { on.input(at!(turn)) } else { null() };
        launch!(
            k, on, next_batch[Grid::new(1, 1024)];
            src, dst, time, on.input(at!(range)), on.state(at!(clock)), turn,
            on.needed(COUNT), on.out(SRC_OUT), on.out(DST_OUT), on.out(EVENT), on.out(TIME_OUT), on.out(ROW),
            on.out(INDEX), on.out(NOW), on.out(SHARE), on.rows(at!(src)), self.capacity as u32, rank as u32,
            ranks as u32, u32::from(whole), self.batches as u32
        )
    }
    /// The share is data: a loss times it has a gradient, but none for the batch.
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// `[events, batch, batches done, how much shorter the first batch is]`, and optionally by how many events
/// the range exceeds the stream, rank and number of ranks, 1 for whole batches, and the batch and the number
/// of batches of a turn. A full batch, a short last one, one past the end, one of many rows; a shortened
/// first batch, the batches after it, an empty one.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0],
    &[10, 4, 1, 0],
    &[10, 4, 2, 0],
    &[10, 4, 5, 0],
    &[3, 8, 0, 0],
    &[5_000, 3_000, 1, 0],
    &[10, 4, 0, 3],
    &[10, 4, 1, 3],
    &[11, 4, 3, 1],
    &[10, 4, 4, 2],
    &[2, 8, 0, 5],
    &[10, 4, 0, 4],
    &[5_000, 3_000, 0, 700],
    &[10, 4, 2, 0, 90],
    &[10, 4, 7, 0, 90],
    &[10, 4, 0, 0, 0, 1, 3],
    &[10, 4, 2, 0, 0, 2, 3],
    &[10, 4, 2, 0, 0, 0, 3],
    &[10, 4, 4, 0, 0, 1, 2],
    &[5_000, 3_000, 1, 700, 0, 3, 4],
    &[20, 4, 2, 1, 0, 2, 3, 1],
    &[20, 4, 3, 0, 0, 2, 3, 1],
    &[10, 4, 0, 0, 0, 0, 1, 0, 1, 2],
    &[10, 4, 2, 0, 0, 1, 2, 0, 3, 6],
    &[20, 4, 6, 2, 0, 1, 2, 0, 2, 3],
    &[20, 4, 3, 0, 0, 1, 2, 1, 4, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let (src, dst) = (c.ids_below(n, 50), c.ids_below(n, 50));
    let time = c.times(&(0..n as i64).map(|t| 3 * t).collect::<Vec<_>>());
    let end = n + dims.get(4).unwrap_or(&0);
    let (range, clock) = (c.ids(&[0, end as u32, dims[3] as u32], 3), c.ids(&[2, dims[2] as u32], 2));
    let slice = match dims.get(5..7) {
        Some(&[rank, ranks]) => Slice { rank, ranks, whole: dims.get(7) == Some(&1) },
        _ => Slice::ALL,
    };
    let turn = match dims.get(8..10) {
        Some(&[nth, batches]) => {
            let one = c.ids(&[0], 1);
            let at = c.ids(&[7, nth as u32], 2);
            Some(TurnVars { at, writes: one, slot: one, batches })
        }
        _ => None,
    };
    let batch = c.tape.next_slice([src, dst, time], range, clock, dims[1], slice, turn)?;
    let Batch { src, dst, event, time, row, index, now, share, .. } = batch;
    Ok(Built {
        outs: vec![src, dst, event, time, row, index, now, share],
        states: vec![clock],
        ..Built::default()
    })
}
