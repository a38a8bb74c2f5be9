//! The next snapshot group of a pass; the cursor lives on the device.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `order` | `[g]` u32 | the step that each group of the pass predicts, or [`NONE`] beyond its last group |
//! | `clock` | `[1, 2]` u32, state | epoch, and groups done in this pass: counted up |
//! | steps | `[l]` u32 | the `l` steps before the target, in order; [`NONE`] where the history is shorter |
//! | target | `[1]` u32 | the step to be predicted, or [`NONE`] past the end |
//! | index | `[1]` u32 | the group's number in the pass |
//! | now | `[1, 2]` u32 | epoch and group of this step: the clock of its random draws |
//!
//! Source: snapshot groups of BLAD (Fu et al. 2023), equation 1; their order is the host's, who shuffles it.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct NextGroup {
    length: usize,
}

/// A snapshot group: the steps that a model reads, and the one it predicts.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// `[l]` u32: the steps before the target, or [`NONE`].
    pub steps: Var,
    /// How many they are.
    pub length: usize,
    /// `[1]` u32: the step to be predicted, or [`NONE`].
    pub target: Var,
    /// `[1]` u32: number of the group in the pass.
    pub index: Var,
    /// `[1, 2]` u32: epoch and group.
    pub now: Var,
}

impl Tape {
    /// Appends [`NextGroup`], of `length` steps.
    ///
    /// # Errors
    /// `Shape` when types do not fit or the clock is not writable.
    pub fn next_group(&mut self, order: Var, clock: Var, length: usize) -> Result<Group> {
        let o = self.push(NextGroup { length }, &[order, clock])?;
        Ok(Group { steps: o[0], length, target: o[1], index: o[2], now: o[3] })
    }
}

impl Op for NextGroup {
    const NAME: &'static str = "next_group";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        ensure!(Self::NAME, ins[0] == Spec::ids(ins[0].rows, 1), "order is {}", ins[0]);
        let steps = Spec::ids(Rows::fixed(self.length), 1);
        let now = Spec::ids(Rows::fixed(1), 2);
        ensure!(Self::NAME, ins[1] == now, "clock is {}, want {now}", ins[1]);
        ensure!(Self::NAME, u32::try_from(self.length).is_ok(), "{} steps, want fewer", self.length);
        Ok(vec![steps.into(), Spec::count().into(), Spec::count().into(), now.into()])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![1]
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (order, clock) = (io.input::<u32>(0), io.state::<u32>(1));
        let target = order.get(clock[1] as usize).copied().unwrap_or(NONE);
        let before = |back: usize| match target {
            NONE => NONE,
            t => (t as usize).checked_sub(back).map_or(NONE, |s| s as u32),
        };
        io.out::<u32>(0).iter_mut().enumerate().for_each(|(p, s)| *s = before(self.length - p));
        io.out::<u32>(1)[0] = target;
        io.out::<u32>(2)[0] = clock[1];
        io.out::<u32>(3).copy_from_slice(clock);
        clock[1] = clock[1].wrapping_add(1);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (order, clock) = (on.input(0), on.state(1));
        let (steps, target, index, now) = (on.out(0), on.out(1), on.out(2), on.out(3));
        let length = self.length as u32;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.next_group(on, Grid::new(1, 32), order, clock, steps, target, index, now, on.rows(0), length)
        }
    }
}

/// `[groups of the pass, groups done, length]`: a first group without history, a short history, a whole one, one past the end;
/// more steps than a warp has lanes.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 0, 1], &[5, 0, 3], &[5, 2, 3], &[5, 4, 3], &[5, 5, 3], &[0, 0, 2], &[90, 80, 70]];
pub(super) const BENCH: &[&[usize]] = &[&[100, 50, 8]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let order: Vec<u32> = (0..dims[0] as u32).collect();
    let (order, clock) = (c.ids(&order, 1), c.ids(&[2, dims[1] as u32], 2));
    let g = c.tape.next_group(order, clock, dims[2])?;
    Ok(Built { outs: vec![g.steps, g.target, g.index, g.now], states: vec![clock], ..Built::default() })
}
