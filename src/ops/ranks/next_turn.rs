//! Returns which batch a rank trains on in a step, if groups of ranks take [`Turns`].
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src` | `[e]` u32 | sources of all events of the stream, of which the op only counts the rows |
//! | `range` | `[1, 3]` u32 | as in [`next_batch`](super::next_batch) |
//! | `clock` | `[1, 2]` u32 | epoch, and number of this step: that of the batch which a group begins in it |
//! | `first` | `[1]` u32 | number of the first batch; those before it are not trained on |
//! | at | `[1, 2]` u32 | epoch and batch of this step; a batch past the end if the group has none |
//! | writes | `[1]` u32 | the largest number in a step that writes memory, else 0 |
//! | slot | `[1]` u32 | number of this step among those that train on the same batch |
//!
//! Every step with the same batch is an epoch of its own. Source: epoch parallelism of DistTGL, section
//! 3.2.2.
use super::*;
use std::ops::Range;

/// See the [module](self).
#[derive(Debug)]
pub struct NextTurn {
    /// Maximum number of events of a batch.
    capacity: usize,
    turns: Turns,
}

/// The batches that a group of ranks gets, if several groups train on batches of their own. The groups that
/// share a copy of the node memory take turns: group e gets the batches e, e + j, e + 2 j, ... of j groups,
/// one batch for j steps, and only the first of these steps writes memory. Each of k copies is elsewhere in
/// the stream: see [`Turns::segment`].
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
    /// The batch; `None` if the group has none yet, or no more.
    pub batch: Option<usize>,
    /// Number of this step among those that train on the batch, from 0. The first one writes memory.
    pub slot: usize,
}

impl Turns {
    /// Every batch, in order.
    pub const ALL: Turns = Turns { group: 0, groups: 1, copy: 0, copies: 1 };

    /// Returns the number of batches of a step.
    pub const fn batches(self) -> usize {
        self.groups * self.copies
    }
    /// Returns the batches of the copy in a pass in which all copies together train `batches` batches: one of
    /// as many segments as there are copies. The copy trains segment `copy` in pass 0, the next one in the
    /// next pass, and so on; after the last one it begins anew. Source: memory parallelism of DistTGL,
    /// section 3.2.3.
    pub const fn segment(self, pass: usize, batches: usize) -> Range<usize> {
        let nth = (self.copy + pass) % self.copies;
        nth * batches / self.copies..(nth + 1) * batches / self.copies
    }
    /// Returns the number of steps of such a pass: those of the longest segment.
    pub const fn steps(self, batches: usize) -> usize {
        if batches == 0 { 0 } else { batches.div_ceil(self.copies) + self.groups - 1 }
    }
    /// Returns what the group does in a step of a pass over `batches`. A step has the number of the batch
    /// that a group begins in it.
    pub fn at(self, step: usize, batches: Range<usize>) -> Turn {
        let slot = (step + self.groups - self.group) % self.groups;
        Turn { batch: step.checked_sub(slot).filter(|batch| batches.contains(batch)), slot }
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
    /// Number of batches of a step, those of all groups.
    pub batches: usize,
}

impl Tape {
    /// Appends [`NextTurn`] for batches of at most `capacity` events; `src`, `range` and `clock` are those of
    /// [`next_slice`](Self::next_slice), which moves the clock on. The clock begins at batch `first`, u32
    /// `[1]`.
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
    /// let clock = store.values("clock", Spec::ids(Rows::fixed(1), 2), &[0u32, 1])?;
    /// let clock = tape.stored(clock)?;
    /// let first = tape.input(&mut store, "first", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// // Of two groups, the second one begins the second of three batches.
    /// let turns = Turns { group: 1, groups: 2, copy: 0, copies: 1 };
    /// let turn = tape.next_turn([src, range, clock, first], 1, turns)?;
    /// let batch = tape.next_slice([src, src, time], range, clock, 1, Slice::ALL, Some(turn))?;
    /// let mut program = Program::new(&tape, &[batch.src, turn.at], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(batch.src, &store)?, [1]);
    /// assert_eq!(program.read::<u32>(turn.at, &store)?, [0, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn next_turn(
        &mut self,
        [src, range, clock, first]: [Var; 4],
        capacity: usize,
        turns: Turns,
    ) -> Result<TurnVars> {
        let known = turns.group < turns.groups && turns.copy < turns.copies;
        ensure!(NextTurn::NAME, known, "there are no such {turns:?}");
        let outs = self.push(NextTurn { capacity, turns }, &[src, range, clock, first])?;
        let [at, writes, slot] = [AT, WRITES, SLOT].map(|out| outs[out]);
        Ok(TurnVars { at, writes, slot, batches: turns.batches() })
    }
}

// Output indices.
const AT: usize = 0;
const WRITES: usize = 1;
const SLOT: usize = 2;

impl Op for NextTurn {
    const NAME: &'static str = "next_turn";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [e] ids, range [1, 3] ids, clock [1, 2] ids, first [1] ids \
        -> at [1, 2] ids, writes [1] ids, slot [1] ids";
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
        let first = io.input::<u32>(at!(first))[0] as usize;
        let turn = self.turns.at(clock[1] as usize, first..batches);
        let epoch = clock[0].wrapping_add(turn.slot as u32);
        io.out::<u32>(AT).copy_from_slice(&[epoch, turn.batch.unwrap_or(batches) as u32]);
        io.out::<u32>(WRITES)[0] = if turn.slot == 0 { u32::MAX } else { 0 };
        io.out::<u32>(SLOT)[0] = turn.slot as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let Turns { group, groups, .. } = self.turns;
        launch!(
            k, on, next_turn[Grid::new(1, 1)];
            on.input(at!(range)), on.input(at!(clock)), on.input(at!(first)), on.out(AT), on.out(WRITES),
            on.out(SLOT), on.rows(at!(src)), self.capacity as u32, group as u32, groups as u32
        )
    }
}

/// `[events, batch, step, how much shorter the first batch is, group, groups, first batch]`: the only group,
/// groups before, in and after their turns, passes that begin in the middle, an empty pass.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[10, 4, 0, 0, 0, 1, 0],
    &[10, 4, 0, 0, 1, 2, 0],
    &[10, 4, 2, 0, 1, 2, 0],
    &[10, 4, 1, 1, 0, 1, 1],
    &[20, 4, 3, 0, 2, 3, 3],
    &[20, 4, 4, 0, 2, 3, 3],
    &[20, 4, 6, 0, 2, 3, 3],
    &[20, 4, 9, 0, 1, 2, 2],
    &[0, 4, 1, 0, 1, 2, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0, 1, 2, 50]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let src = c.ids_below(n, 50);
    let (range, clock) = (c.ids(&[0, n as u32, dims[3] as u32], 3), c.ids(&[2, dims[2] as u32], 2));
    let (first, turns) = (c.count(dims[6]), Turns { group: dims[4], groups: dims[5], ..Turns::ALL });
    let turn = c.tape.next_turn([src, range, clock, first], dims[1], turns)?;
    Ok(Built { outs: vec![turn.at, turn.writes, turn.slot], ..Built::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns_and_each_copy_goes_through_all_segments() {
        for (groups, copies, batches) in [(1, 1, 3), (2, 1, 5), (1, 3, 7), (3, 2, 8), (4, 3, 2), (2, 4, 0)] {
            for copy in 0..copies {
                let (mut written, mut trained) = (Vec::new(), vec![0; batches]);
                let of = |group| Turns { group, groups, copy, copies };
                for pass in 0..copies {
                    let own = of(0).segment(pass, batches);
                    // Copies with shorter segments have no batch in the last steps.
                    for step in own.start..own.start + of(0).steps(batches) {
                        let turns = (0..groups).map(|group| of(group).at(step, own.clone()));
                        let turns: Vec<Turn> = turns.collect();
                        // One group writes, the one whose turn it is.
                        let writers: Vec<usize> = (0..groups).filter(|&g| turns[g].slot == 0).collect();
                        assert_eq!(writers, [step % groups]);
                        written.extend(turns[writers[0]].batch);
                        turns.iter().filter_map(|turn| turn.batch).for_each(|batch| trained[batch] += 1);
                    }
                }
                let first = copy * batches / copies;
                let want: Vec<usize> = (0..batches).map(|nth| (first + nth) % batches).collect();
                assert_eq!(written, want, "{groups} groups, copy {copy} of {copies}");
                assert!(trained.iter().all(|&times| times == groups), "{trained:?}");
            }
            let of = |copy| Turns { copy, copies, ..Turns::ALL };
            let longest = (0..copies).map(|copy| of(copy).segment(0, batches).len()).max();
            assert_eq!(longest, Some(of(0).steps(batches)));
        }
    }
}
