//! Returns the next `b` events of a range, in order, or a rank's slice of them; the cursor lives in device
//! memory.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[e]` u32 | endpoints of all events of the stream |
//! | `time` | `[e]` i64 | ticks |
//! | `range` | `[1, 3]` u32 | first event of the pass; one past its last, clipped to `e`; by how many events the first batch is shorter than `b` |
//! | `clock` | `[1, 2]` u32, state | epoch, and number of batches done in this pass, which the op increments |
//! | count | `[1, 1]` u32 | live events n: `b`; fewer in a shortened first batch and in the last; 0 past the end |
//! | src, dst, event | `[<= b]` u32 | endpoints and ids |
//! | time | `[<= b]` i64 | |
//! | rank | `[<= b]` u32 | index of each event within the range |
//! | index | `[1]` u32 | index of the batch within the pass |
//! | now | `[1, 3]` u32 | epoch and batch index of this step, and number of events of the batch before the rank's: the clock of its random draws |
//! | share | `[1]` f32 | the rank's live events, divided by those of all batches of the step; 0 if the batch is empty |
//! | writes | `[1]` u32 | the largest number in a step that writes memory, else 0 |
//! | slot | `[1]` u32 | number of this step among those that train on the same batch |
//! | clear | `[1]` u32 | in the last step with the batch, the slot after which memory begins anew; else [`NONE`] |
//!
//! Of N ranks, rank r gets the events from n r / N up to n (r + 1) / N of the batch, rounded down; or, if
//! ranks get whole batches, all events in every N-th step, from step r on (PipeTGL, section 4.1). Groups of
//! ranks can take [`Turns`]: then each step has a batch for each group.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct NextBatch {
    /// Maximum number of events of a batch, those of all ranks.
    capacity: usize,
    slice: Slice,
}

/// The slice of a batch that a rank gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of the rank among those that share a batch, from 0.
    pub rank: usize,
    /// Number of ranks that share a batch.
    pub ranks: usize,
    /// The batches that these ranks get.
    pub turns: Turns,
    /// Whether the ranks get whole batches, one rank after the other, in place of a part of each.
    pub whole: bool,
}

impl Slice {
    /// All events of every batch.
    pub const ALL: Slice = Slice::of(0, 1);

    /// The slice of a rank, of `ranks` ranks that share every batch.
    pub const fn of(rank: usize, ranks: usize) -> Self {
        Slice { rank, ranks, turns: Turns::ALL, whole: false }
    }
}

/// The batches that a group of ranks gets, if several groups train on batches of their own (DistTGL, sections
/// 3.2.2 and 3.2.3). The groups that share a copy of the node memory take turns: group e gets the batches e,
/// e + j, e + 2 j, ... of j groups, one batch for j steps, and only the first of these steps writes memory.
/// Each of k copies begins elsewhere in the stream: copy c with batch c n / k of n batches; after the last
/// batch it begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Number of this group among those with the same copy of the memory, from 0.
    pub group: usize,
    /// Number of groups with the same copy.
    pub groups: usize,
    /// Number of the copy, from 0.
    pub copy: usize,
    /// Number of copies.
    pub copies: usize,
}

/// The step of a group: see [`Turns::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The batch within the pass; `None` if the group has none yet, or no more.
    pub batch: Option<usize>,
    /// Number of this step among those that train on the batch, from 0. The first one writes memory.
    pub slot: usize,
    /// In the last step with the batch, the slot after which memory begins anew.
    pub clear: Option<usize>,
}

impl Turns {
    /// Every batch, in order.
    pub const ALL: Turns = Turns { group: 0, groups: 1, copy: 0, copies: 1 };

    /// Returns the number of batches of a step.
    pub const fn batches(self) -> usize {
        self.groups * self.copies
    }
    /// Returns the number of steps of a pass over `batches` batches.
    pub const fn steps(self, batches: usize) -> usize {
        if batches == 0 { 0 } else { batches + self.groups - 1 }
    }
    /// Returns the batch with which the copy begins a pass over `batches` batches.
    pub const fn first(self, batches: usize) -> usize {
        if batches == 0 { 0 } else { self.copy * batches / self.copies }
    }
    /// Returns what the group does in a step of a pass over `batches` batches.
    pub fn at(self, step: usize, batches: usize) -> Turn {
        // Batches are counted from the `groups` steps before the pass, in which a group has none.
        let turn = step + self.groups - self.group;
        let slot = turn % self.groups;
        let begun = turn - slot + self.group;
        let place = |nth: usize| (self.first(batches) + nth) % batches;
        let counted = |begun: usize| begun.checked_sub(self.groups).filter(|&nth| nth < batches);
        let begins_anew =
            |slot: &usize| counted(begun + slot + 1).is_some_and(|nth| nth > 0 && place(nth) == 0);
        let clear = (0..self.groups).find(begins_anew).filter(|_| slot + 1 == self.groups);
        Turn { batch: counted(begun).map(place), slot, clear }
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
    /// Index of each event within the range of the pass.
    pub rank: Var,
    /// Index of the batch within the pass, `[1]` u32.
    pub index: Var,
    /// Epoch, batch index, and number of events before the rank's, `[1, 3]` u32: the clock of random draws.
    pub now: Var,
    /// The rank's part of the events of all batches of the step, `[1]` f32: 1 for a single rank.
    pub share: Var,
    /// The largest number if this step writes memory, else 0, `[1]` u32.
    pub writes: Var,
    /// Number of this step among those that train on the batch, `[1]` u32.
    pub slot: Var,
    /// In the last step with the batch, the slot after which memory begins anew; else [`NONE`], `[1]` u32.
    pub clear: Var,
    /// Row count: the capacity of a rank's slice, and its live events.
    pub rows: Rows,
}

impl Batch {
    /// Returns the values that have no rows if the batch has no events.
    pub fn per_event(&self) -> Vec<Var> {
        let count = self.rows.live.map(|live| live.var);
        [self.src, self.dst, self.event, self.time, self.rank].into_iter().chain(count).collect()
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
        self.next_slice(stream, range, clock, capacity, Slice::ALL)
    }
    /// Appends [`NextBatch`] for a rank's slice of the batch. It has at most `capacity` / ranks events,
    /// rounded up, or `capacity` if ranks get whole batches. Otherwise as [`next_batch`](Self::next_batch).
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
    /// let slice = tape.next_slice([src, dst, time], range, clock, 3, Slice::of(1, 2))?; // of rank 1
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
    ) -> Result<Batch> {
        let ([src, dst, time], Slice { rank, ranks, turns, .. }) = (stream, slice);
        let op = NextBatch { capacity, slice };
        ensure!(NextBatch::NAME, rank < ranks, "rank {rank} of {ranks}");
        let known = turns.group < turns.groups && turns.copy < turns.copies;
        ensure!(NextBatch::NAME, known, "there are no such {turns:?}");
        let rows = op.rows();
        let outs = self.push(op, &[src, dst, time, range, clock])?;
        let [count, src, dst, event, time, rank] =
            [COUNT, SRC_OUT, DST_OUT, EVENT, TIME_OUT, RANK].map(|out| outs[out]);
        let [index, now, share, writes, slot, clear] =
            [INDEX, NOW, SHARE, WRITES, SLOT, CLEAR].map(|out| outs[out]);
        let rows = Rows::live(rows, count);
        Ok(Batch { src, dst, event, time, rank, index, now, share, writes, slot, clear, rows })
    }
}

impl NextBatch {
    /// Returns the maximum number of events of a rank.
    fn rows(&self) -> usize {
        if self.slice.whole { self.capacity } else { self.capacity.div_ceil(self.slice.ranks) }
    }
}

/// Returns the events of batch `nth` of the pass from event `begin` up to `end`. Batches are counted as if
/// the pass began `missing` events earlier; the events before `begin` are left out.
pub(in crate::ops) fn events_of(
    nth: usize,
    [begin, end, missing]: [usize; 3],
    capacity: usize,
) -> std::ops::Range<usize> {
    let from = begin + nth * capacity;
    let first = from.saturating_sub(missing).max(begin);
    let past = (from + capacity).saturating_sub(missing).min(end);
    first..past.max(first)
}

// Input indices.

// Output indices.
const COUNT: usize = 0;
const SRC_OUT: usize = 1;
const DST_OUT: usize = 2;
const EVENT: usize = 3;
const TIME_OUT: usize = 4;
const RANK: usize = 5;
const INDEX: usize = 6;
const NOW: usize = 7;
const SHARE: usize = 8;
const WRITES: usize = 9;
const SLOT: usize = 10;
const CLEAR: usize = 11;

impl Op for NextBatch {
    const NAME: &'static str = "next_batch";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [e] ids, dst [e] ids, time [e] times, range [1, 3] ids, \
        clock [1, 2] ids state \
        -> count [1] ids, src [n] ids by count, dst [n] ids by count, event [n] ids by count, \
        time [n] times by count, rank [n] ids by count, index [1] ids, now [1, 3] ids, share [1], \
        writes [1] ids, slot [1] ids, clear [1] ids";
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
        let [begin, end, missing] = [0, 1, 2].map(|i| range[i] as usize);
        let end = end.min(io.rows(at!(src)));
        let Slice { rank, ranks, turns, whole } = self.slice;
        let batches = (end.saturating_sub(begin) + missing).div_ceil(self.capacity.max(1));
        let turn = turns.at(clock[1] as usize, batches);
        let nth = if turns == Turns::ALL { clock[1] as usize } else { turn.batch.unwrap_or(batches) };
        let events = events_of(nth, [begin, end, missing], self.capacity);
        let (first, n) = (events.start, events.len());
        let [before, past] = match whole {
            true => [0, if clock[1] as usize % ranks == rank { n } else { 0 }],
            false => [rank, rank + 1].map(|rank| n * rank / ranks),
        };
        let share = if n == 0 { 0.0 } else { (past - before) as f64 / (n * turns.batches()) as f64 };
        let (first, n) = (first + before, past - before);
        io.out::<R>(SHARE)[0] = R::of(share);
        io.out::<u32>(COUNT)[0] = n as u32;
        io.out::<u32>(INDEX)[0] = clock[1];
        // Every copy and every step with the same batch is an epoch of its own.
        let epoch = clock[0].wrapping_add((turns.copy * turns.groups + turn.slot) as u32);
        io.out::<u32>(NOW).copy_from_slice(&[epoch, nth as u32, before as u32]);
        io.out::<u32>(WRITES)[0] = if turn.slot == 0 { u32::MAX } else { 0 };
        io.out::<u32>(SLOT)[0] = turn.slot as u32;
        io.out::<u32>(CLEAR)[0] = turn.clear.map_or(NONE, |slot| slot as u32);
        clock[1] = clock[1].wrapping_add(1);
        if n > 0 {
            io.out::<u32>(SRC_OUT)[..n].copy_from_slice(&io.input(at!(src))[first..first + n]);
            io.out::<u32>(DST_OUT)[..n].copy_from_slice(&io.input(at!(dst))[first..first + n]);
            io.out::<i64>(TIME_OUT)[..n].copy_from_slice(&io.input(at!(time))[first..first + n]);
            io.out::<u32>(EVENT)[..n].iter_mut().zip(first as u32..).for_each(|(e, id)| *e = id);
            let ranks = (first - begin) as u32..;
            io.out::<u32>(RANK)[..n].iter_mut().zip(ranks).for_each(|(r, rank)| *r = rank);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (src, dst, time) = (on.input(at!(src)), on.input(at!(dst)), on.input(at!(time)));
        let Slice { rank, ranks, turns, whole } = self.slice;
        launch!(
            k, on, next_batch[Grid::new(1, 1024)];
            src, dst, time, on.input(at!(range)), on.state(at!(clock)), on.kept(COUNT), on.out(SRC_OUT),
            on.out(DST_OUT), on.out(EVENT), on.out(TIME_OUT), on.out(RANK), on.out(INDEX), on.out(NOW),
            on.out(SHARE), on.out(WRITES), on.out(SLOT), on.out(CLEAR), on.rows(at!(src)),
            self.capacity as u32, rank as u32, ranks as u32, u32::from(whole), turns.group as u32,
            turns.groups as u32, turns.copy as u32, turns.copies as u32
        )
    }
    /// The share is data: a loss times it has a gradient, but none for the batch.
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// `[events, batch, batches done, how much shorter the first batch is]`, and optionally by how many events
/// the range exceeds the stream, rank and number of ranks, the four numbers of turns, and 1 for whole
/// batches. A full batch, a short last one, one past the end, one of many rows; a shortened first batch, the
/// batches after it, an empty one.
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
    &[10, 4, 0, 0, 0, 0, 1, 1, 2, 0, 1],
    &[10, 4, 2, 0, 0, 0, 1, 1, 2, 0, 1],
    &[10, 4, 1, 1, 0, 1, 2, 0, 1, 2, 3],
    &[10, 4, 0, 0, 0, 0, 1, 0, 1, 2, 3],
    &[20, 4, 3, 0, 0, 0, 1, 2, 3, 1, 2],
    &[20, 4, 6, 0, 0, 1, 2, 2, 3, 1, 2],
    &[20, 4, 2, 1, 0, 2, 3, 0, 1, 0, 1, 1],
    &[20, 4, 3, 0, 0, 2, 3, 0, 1, 0, 1, 1],
    &[20, 4, 3, 0, 0, 1, 2, 0, 1, 1, 2, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let (src, dst) = (c.ids_below(n, 50), c.ids_below(n, 50));
    let time = c.times(&(0..n as i64).map(|t| 3 * t).collect::<Vec<_>>());
    let end = n + dims.get(4).unwrap_or(&0);
    let (range, clock) = (c.ids(&[0, end as u32, dims[3] as u32], 3), c.ids(&[2, dims[2] as u32], 2));
    let turns = match dims.get(7..11) {
        Some(&[group, groups, copy, copies]) => Turns { group, groups, copy, copies },
        _ => Turns::ALL,
    };
    let slice = match dims.get(5..7) {
        Some(&[rank, ranks]) => Slice { rank, ranks, turns, whole: dims.get(11) == Some(&1) },
        _ => Slice::ALL,
    };
    let batch = c.tape.next_slice([src, dst, time], range, clock, dims[1], slice)?;
    Ok(Built {
        outs: vec![
            batch.src,
            batch.dst,
            batch.event,
            batch.time,
            batch.rank,
            batch.index,
            batch.now,
            batch.share,
            batch.writes,
            batch.slot,
            batch.clear,
        ],
        states: vec![clock],
        ..Built::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns_and_a_copy_begins_anew_after_the_last_batch() {
        for (groups, copies, batches) in [(1, 1, 3), (2, 1, 5), (1, 3, 7), (3, 2, 8), (4, 3, 2), (2, 4, 0)] {
            for copy in 0..copies {
                let (mut written, mut trained) = (Vec::new(), vec![0; batches]);
                let of = |group| Turns { group, groups, copy, copies };
                for step in 0..of(0).steps(batches) {
                    let turns = (0..groups).map(|group| of(group).at(step, batches));
                    let turns: Vec<Turn> = turns.collect();
                    // One group writes, the one whose turn it is.
                    let writers: Vec<usize> = (0..groups).filter(|&g| turns[g].slot == 0).collect();
                    assert_eq!(writers, [step % groups]);
                    written.extend(turns[writers[0]].batch);
                    turns.iter().filter_map(|turn| turn.batch).for_each(|batch| trained[batch] += 1);
                    for (group, turn) in turns.iter().enumerate() {
                        // In the last step of a turn, the rows of the turn's steps are written. After which
                        // of them does the next batch begin the stream?
                        let begins = (0..groups).find(|slot| {
                            let next = (step + 1 + slot).checked_sub(groups - 1);
                            let counts = |nth: &usize| *nth > 0 && *nth < batches;
                            next.filter(counts)
                                .is_some_and(|nth| (copy * batches / copies + nth) % batches == 0)
                        });
                        assert_eq!(
                            turn.clear,
                            begins.filter(|_| turn.slot == groups - 1),
                            "group {group}: {turn:?}"
                        );
                    }
                }
                let first = copy * batches / copies;
                let want: Vec<usize> = (0..batches).map(|nth| (first + nth) % batches).collect();
                assert_eq!(written, want, "{groups} groups, copy {copy} of {copies}");
                assert!(trained.iter().all(|&times| times == groups), "{trained:?}");
            }
        }
    }
}
