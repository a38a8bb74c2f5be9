//! Returns which batch a rank trains on in a step, if groups of ranks take [`Turns`].
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src` | `[e]` u32 | sources of all events of the stream, of which the op only counts the rows |
//! | `range` | `[1, 3]` u32 | as in [`next_batch`](super::next_batch) |
//! | `clock` | `[1, 2]` u32 | epoch, and number of steps done in this pass |
//! | at | `[1, 2]` u32 | epoch and batch of this step; a batch past the end if the group has none |
//! | writes | `[1]` u32 | the largest number in a step that writes memory, else 0 |
//! | slot | `[1]` u32 | number of this step among those that train on the same batch |
//! | clear | `[1]` u32 | in the last step with the batch, the slot after which memory begins anew; else [`NONE`] |
//!
//! Every copy and every step with the same batch is an epoch of its own. Source: epoch and memory
//! parallelism of DistTGL, sections 3.2.2 and 3.2.3.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct NextTurn {
    /// Maximum number of events of a batch.
    capacity: usize,
    turns: Turns,
}

/// The batches that a group of ranks gets, if several groups train on batches of their own. The groups that
/// share a copy of the node memory take turns: group e gets the batches e, e + j, e + 2 j, ... of j groups,
/// one batch for j steps, and only the first of these steps writes memory. Each of k copies begins elsewhere
/// in the stream: copy c with batch c n / k of n batches; after the last batch it begins anew.
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

/// What a group of ranks does in a step.
#[derive(Clone, Copy, Debug)]
pub struct TurnVars {
    /// Epoch and batch, `[1, 2]` u32.
    pub at: Var,
    /// The largest number if this step writes memory, else 0, `[1]` u32.
    pub writes: Var,
    /// Number of this step among those that train on the batch, `[1]` u32.
    pub slot: Var,
    /// In the last step with the batch, the slot after which memory begins anew; else [`NONE`], `[1]` u32.
    pub clear: Var,
    /// Number of batches of a step, those of all groups.
    pub batches: usize,
}

impl Tape {
    /// Appends [`NextTurn`] for batches of at most `capacity` events; `src`, `range` and `clock` are those of
    /// [`next_slice`](Self::next_slice), which moves the clock on.
    ///
    /// # Errors
    /// `Shape` if types do not fit, or there is no such group or copy.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{next_batch::Slice, next_turn::Turns, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(3)), &[10i64, 20, 30])?;
    /// let range = tape.input(&mut store, "range", Spec::ids(Rows::fixed(1), 3), &[0u32, 3, 0])?;
    /// let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
    /// let clock = tape.stored(clock)?;
    /// // The second of three copies begins with the second of three batches.
    /// let turns = Turns { group: 0, groups: 1, copy: 1, copies: 3 };
    /// let turn = tape.next_turn(src, range, clock, 1, turns)?;
    /// let batch = tape.next_slice([src, src, time], range, clock, 1, Slice::ALL, Some(turn))?;
    /// let mut program = Program::new(&tape, &[batch.src, turn.at], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(batch.src, &store)?, [1]);
    /// assert_eq!(program.read::<u32>(turn.at, &store)?, [1, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn next_turn(
        &mut self,
        src: Var,
        range: Var,
        clock: Var,
        capacity: usize,
        turns: Turns,
    ) -> Result<TurnVars> {
        let known = turns.group < turns.groups && turns.copy < turns.copies;
        ensure!(NextTurn::NAME, known, "there are no such {turns:?}");
        let outs = self.push(NextTurn { capacity, turns }, &[src, range, clock])?;
        let [at, writes, slot, clear] = [AT, WRITES, SLOT, CLEAR].map(|out| outs[out]);
        Ok(TurnVars { at, writes, slot, clear, batches: turns.batches() })
    }
}

// Output indices.
const AT: usize = 0;
const WRITES: usize = 1;
const SLOT: usize = 2;
const CLEAR: usize = 3;

impl Op for NextTurn {
    const NAME: &'static str = "next_turn";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [e] ids, range [1, 3] ids, clock [1, 2] ids \
        -> at [1, 2] ids, writes [1] ids, slot [1] ids, clear [1] ids";
    fn check(&self, _: &[Spec]) -> Result<()> {
        at_most_u32(Self::NAME, "events", self.capacity)
    }
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 40, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (range, clock) = (io.input::<u32>(at!(range)), io.input::<u32>(at!(clock)));
        let [begin, end, missing] = [0, 1, 2].map(|i| range[i] as usize);
        let events = end.min(io.rows(at!(src))).saturating_sub(begin) + missing;
        let batches = events.div_ceil(self.capacity.max(1));
        let turn = self.turns.at(clock[1] as usize, batches);
        let epoch = clock[0].wrapping_add((self.turns.copy * self.turns.groups + turn.slot) as u32);
        io.out::<u32>(AT).copy_from_slice(&[epoch, turn.batch.unwrap_or(batches) as u32]);
        io.out::<u32>(WRITES)[0] = if turn.slot == 0 { u32::MAX } else { 0 };
        io.out::<u32>(SLOT)[0] = turn.slot as u32;
        io.out::<u32>(CLEAR)[0] = turn.clear.map_or(NONE, |slot| slot as u32);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let Turns { group, groups, copy, copies } = self.turns;
        launch!(
            k, on, next_turn[Grid::new(1, 1)];
            on.input(at!(range)), on.input(at!(clock)), on.out(AT), on.out(WRITES), on.out(SLOT), on.out(CLEAR),
            on.rows(at!(src)), self.capacity as u32, group as u32, groups as u32, copy as u32, copies as u32
        )
    }
}

/// `[events, batch, steps done, how much shorter the first batch is]`, and the four numbers of turns. The
/// only group, groups before, in and after their turns, copies that begin anew, an empty pass.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[10, 4, 0, 0, 0, 1, 0, 1],
    &[10, 4, 0, 0, 1, 2, 0, 1],
    &[10, 4, 2, 0, 1, 2, 0, 1],
    &[10, 4, 1, 1, 0, 1, 2, 3],
    &[10, 4, 0, 0, 0, 1, 2, 3],
    &[20, 4, 3, 0, 2, 3, 1, 2],
    &[20, 4, 6, 0, 2, 3, 1, 2],
    &[20, 4, 9, 0, 1, 2, 1, 2],
    &[0, 4, 1, 0, 1, 2, 0, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0, 1, 2, 1, 2]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let src = c.ids_below(n, 50);
    let (range, clock) = (c.ids(&[0, n as u32, dims[3] as u32], 3), c.ids(&[2, dims[2] as u32], 2));
    let turns = Turns { group: dims[4], groups: dims[5], copy: dims[6], copies: dims[7] };
    let turn = c.tape.next_turn(src, range, clock, dims[1], turns)?;
    Ok(Built { outs: vec![turn.at, turn.writes, turn.slot, turn.clear], ..Built::default() })
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
