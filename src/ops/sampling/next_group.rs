//! Returns the next snapshot group of a pass; the cursor lives in device memory.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `order` | `[g]` u32 | target step of each group of the pass; [`NONE`] beyond the last group |
//! | `clock` | `[1, 2]` u32, state | epoch, and number of groups done in this pass, which the op increments |
//! | steps | `[l]` u32 | the `l` steps before the target, in order; [`NONE`] where the history is shorter |
//! | target | `[1]` u32 | the step to predict, or [`NONE`] past the end |
//! | index | `[1]` u32 | index of the group within the pass |
//! | now | `[1, 2]` u32 | epoch and group index of this step: the clock of its random draws |
//!
//! Source: snapshot groups of BLAD (Fu et al. 2023), equation 1; the host shuffles their order.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct NextGroup {
    length: usize,
}

/// A snapshot group: the steps that a model reads, and the step that it predicts.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The steps before the target, `[l]` u32; [`NONE`] where the history is shorter.
    pub steps: Var,
    /// Number of these steps, `l`.
    pub length: usize,
    /// The step to predict, `[1]` u32, or [`NONE`].
    pub target: Var,
    /// Index of the group within the pass, `[1]` u32.
    pub index: Var,
    /// Epoch and group index, `[1, 2]` u32: the clock of random draws.
    pub now: Var,
}

impl Tape {
    /// Appends [`NextGroup`] for groups of `length` steps; `order`, u32 `[g]`, holds the target steps of the
    /// pass. Every run moves `clock`, u32 `[1, 2]`, on by one group.
    ///
    /// # Errors
    /// `Shape` if types do not fit or the clock is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let order = tape.input(&mut store, "order", Spec::ids(Rows::fixed(1), 1), &[2u32])?;
    /// let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
    /// let clock = tape.stored(clock)?;
    /// let group = tape.next_group(order, clock, 3)?;
    /// let keep = [group.steps, group.target];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(group.steps, &store)?, [NONE, 0, 1]); // two before it
    /// assert_eq!(program.read::<u32>(group.target, &store)?, [2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn next_group(&mut self, order: Var, clock: Var, length: usize) -> Result<Group> {
        let outs = self.push(NextGroup { length }, &[order, clock])?;
        let [steps, target, index, now] = [STEPS, TARGET, INDEX, NOW].map(|out| outs[out]);
        Ok(Group { steps, length, target, index, now })
    }
}

// Output indices.
const STEPS: usize = 0;
const TARGET: usize = 1;
const INDEX: usize = 2;
const NOW: usize = 3;

impl Op for NextGroup {
    const NAME: &'static str = "next_group";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "order [o] ids, clock [1, 2] ids state \
        -> steps [n] ids, target [1] ids, index [1] ids, now [1, 2] ids";
    fn sizes(&self) -> Sizes {
        vec![("n", Rows::fixed(self.length))]
    }
    fn check(&self, _: &[Spec]) -> Result<()> {
        at_most_u32(Self::NAME, "steps", self.length)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (order, clock) = (io.input::<u32>(0), io.state::<u32>(1));
        let target = order.get(clock[1] as usize).copied().unwrap_or(NONE);
        let before = |back: usize| match target {
            NONE => NONE,
            t => (t as usize).checked_sub(back).map_or(NONE, |s| s as u32),
        };
        io.out::<u32>(STEPS).iter_mut().enumerate().for_each(|(p, s)| *s = before(self.length - p));
        io.out::<u32>(TARGET)[0] = target;
        io.out::<u32>(INDEX)[0] = clock[1];
        io.out::<u32>(NOW).copy_from_slice(clock);
        clock[1] = clock[1].wrapping_add(1);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (order, clock) = (on.input(0), on.state(1));
        let [steps, target, index, now] = [STEPS, TARGET, INDEX, NOW].map(|out| on.out(out));
        let length = self.length as u32;
        launch!(
            k, on, next_group[Grid::new(1, 32)];
            order, clock, steps, target, index, now, on.rows(0), length
        )
    }
}

/// `[groups of the pass, groups done, length]`: a first group without history, a short history, a complete
/// one, a group past the end; more steps than a warp has lanes.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 0, 1], &[5, 0, 3], &[5, 2, 3], &[5, 4, 3], &[5, 5, 3], &[0, 0, 2], &[90, 80, 70]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[100, 50, 8]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let order: Vec<u32> = (0..dims[0] as u32).collect();
    let (order, clock) = (c.ids(&order, 1), c.ids(&[2, dims[1] as u32], 2));
    let group = c.tape.next_group(order, clock, dims[2])?;
    Ok(Built {
        outs: vec![group.steps, group.target, group.index, group.now],
        states: vec![clock],
        ..Built::default()
    })
}
