//! The items of a step of a list that steps divide: its edges, its labelled vertices
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[s + 1]` u32 | where the items of each step begin, and where those of the last end |
//! | `step` | `[1]` u32 below s, or [`NONE`]: no item | |
//! | `base` | `[1]` u32 | the first item of the pass |
//! | count | `[1]` u32 | items of the step |
//! | item | `[<= cap]` u32 | their numbers, consecutive |
//! | rank | `[<= cap]` u32 | their places in the pass: the number less `base` |
//!
//! A step outside the list is a fault, and so is one with more than `cap` items.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct StepItems {
    cap: usize,
}

/// The items of a step.
#[derive(Clone, Copy, Debug)]
pub struct Items {
    /// `[<= cap]` u32: their numbers.
    pub item: Var,
    /// `[<= cap]` u32: their places in the pass.
    pub rank: Var,
    /// How many there are.
    pub rows: Rows,
}

impl Tape {
    /// Appends [`StepItems`], with room for `cap`.
    ///
    /// # Errors
    /// `Shape` when types do not fit.
    pub fn step_items(&mut self, offsets: Var, step: Var, base: Var, cap: usize) -> Result<Items> {
        let o = self.push(StepItems { cap }, &[offsets, step, base])?;
        Ok(Items { item: o[1], rank: o[2], rows: Rows::live(cap, o[0]) })
    }
}

impl Op for StepItems {
    const NAME: &'static str = "step_items";
    const KIND: Kind = Kind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 3)?;
        let offsets = &ins[0];
        ensure!(Self::NAME, *offsets == Spec::ids(offsets.rows, 1), "offsets are {offsets}");
        ensure!(Self::NAME, offsets.rows.cap > 0, "offsets are {offsets}, want one more than steps");
        shaped(Self::NAME, "step", &ins[1], 1, 1)?;
        shaped(Self::NAME, "base", &ins[2], 1, 1)?;
        let items = Out::counted_by(Spec::ids(Rows::fixed(self.cap), 1), 0);
        Ok(vec![Spec::count().into(), items, items])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (offsets, base) = (io.input::<u32>(0), io.input::<u32>(2)[0]);
        let step = io.row_of(0, io.input::<u32>(1)[0], offsets.len() - 1);
        let (first, mut n) = step.map_or((0, 0), |s| (offsets[s], (offsets[s + 1] - offsets[s]) as usize));
        if n > self.cap {
            io.fault(0, n as f64);
            n = 0;
        }
        io.out::<u32>(0)[0] = n as u32;
        io.out::<u32>(1).iter_mut().zip(first..).take(n).for_each(|(item, i)| *item = i);
        io.out::<u32>(2).iter_mut().zip(first.wrapping_sub(base)..).take(n).for_each(|(rank, r)| *rank = r);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (offsets, step, base) = (on.input(0), on.input(1), on.input(2));
        let (count, item, rank) = (on.kept(0), on.out(1), on.out(2));
        let steps = on.cap(0) as u32 - 1;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.step_items(
                on,
                Grid::items(self.cap),
                offsets,
                step,
                base,
                count,
                item,
                rank,
                steps,
                self.cap as u32,
                on.status(),
            )
        }
    }
}

/// `[items a step at most, step]` of five steps; step 9 stands for [`NONE`]: an empty step, a full one, none.
pub(super) const CASES: &[&[usize]] = &[&[4, 0], &[4, 3], &[700, 4], &[0, 1], &[4, 9]];
pub(super) const BENCH: &[&[usize]] = &[&[100_000, 4]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut offsets = vec![0];
    for s in 0..5 {
        offsets.push(offsets[s] + (dims[0] * s / 4) as u32);
    }
    let step = if dims[1] == 9 { NONE } else { dims[1] as u32 };
    let (offsets, step, base) = (c.ids(&offsets, 1), c.ids(&[step], 1), c.ids(&[0], 1));
    let items = c.tape.step_items(offsets, step, base, dims[0])?;
    Ok(Built::new(&[items.item, items.rank], &[]))
}
