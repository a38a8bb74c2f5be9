//! Lists the items of one step, such as its edges or its labelled vertices, from a list that is sorted by
//! step.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[s + 1]` u32 | first item of each step, then the end of the last step |
//! | `step` | `[1]` u32 below s, or [`NONE`] | the step; `NONE` has no items |
//! | `base` | `[1]` u32 | first item of the pass |
//! | count | `[1]` u32 | number of items of the step |
//! | item | `[<= capacity]` u32 | indices of the items in the list, consecutive |
//! | rank | `[<= capacity]` u32 | indices of the items in the pass: `item - base` |
//!
//! Reported as faults: a step outside the list, a step with more than `capacity` items, and one that ends
//! before it begins.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct StepItems {
    capacity: usize,
}

/// The items of a step.
#[derive(Clone, Copy, Debug)]
pub struct Items {
    /// `[<= capacity]` u32 indices of the items in the list.
    pub item: Var,
    /// `[<= capacity]` u32 indices of the items in the pass.
    pub rank: Var,
    /// Rows of both, live as far as the step has items.
    pub rows: Rows,
}

impl Tape {
    /// Appends [`StepItems`] for at most `capacity` items: those from `offsets[step]` to `offsets[step + 1]`.
    ///
    /// # Errors
    /// `Shape` if types do not match, or if `capacity` does not fit in 32 bits.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let offsets = tape.input(&mut store, "offsets", Spec::ids(Rows::fixed(3), 1), &[0u32, 2, 5])?;
    /// let step = tape.input(&mut store, "step", Spec::count(), &[1u32])?;
    /// let base = tape.input(&mut store, "base", Spec::count(), &[2u32])?;
    /// let items = tape.step_items(offsets, step, base, 4)?;
    /// let mut program = Program::new(&tape, &[items.item, items.rank], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(items.item, &store)?, [2, 3, 4]);
    /// assert_eq!(program.read::<u32>(items.rank, &store)?, [0, 1, 2]); // the pass begins with item 2
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn step_items(&mut self, offsets: Var, step: Var, base: Var, capacity: usize) -> Result<Items> {
        let o = self.push(StepItems { capacity }, &[offsets, step, base])?;
        Ok(Items { item: o[1], rank: o[2], rows: Rows::live(capacity, o[0]) })
    }
}

impl Op for StepItems {
    const NAME: &'static str = "step_items";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "offsets [s + 1] ids, step [1] ids, base [1] ids \
        -> count [1] ids, item [n] ids by count, rank [n] ids by count";
    fn sizes(&self) -> Sizes {
        vec![("n", Rows::fixed(self.capacity))]
    }
    fn check(&self, _: &[Spec]) -> Result<()> {
        at_most_u32(Self::NAME, "items", self.capacity)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (offsets, base) = (io.input::<u32>(0), io.input::<u32>(2)[0]);
        let step = io.row_of(0, io.input::<u32>(1)[0], offsets.len() - 1);
        let (first, past) = step.map_or((0, 0), |s| (offsets[s], offsets[s + 1]));
        let mut n = past.wrapping_sub(first);
        if past < first || n as usize > self.capacity {
            io.fault(0, Fault::OutOfRange(n));
            n = 0;
        }
        io.out::<u32>(0)[0] = n;
        let items = io.out::<u32>(1).iter_mut().zip(io.out::<u32>(2));
        for (i, (item, rank)) in (first..first + n).zip(items) {
            (*item, *rank) = (i, i.wrapping_sub(base));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (offsets, step, base) = (on.input(0), on.input(1), on.input(2));
        let (count, item, rank) = (on.needed(0), on.out(1), on.out(2));
        let steps = on.capacity(0) as u32 - 1;
        launch!(
            k, on, step_items[Grid::items(self.capacity)];
            offsets, step, base, count, item, rank, steps, self.capacity as u32, on.status()
        )
    }
}

/// `[maximum items of a step, step]` for five steps; step 9 stands for [`NONE`]. Among them: an empty step, a
/// full step, no step.
pub(in crate::ops) const CASES: &[&[usize]] = &[&[4, 0], &[4, 3], &[700, 4], &[0, 1], &[4, 9]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[100_000, 4]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut offsets = vec![0];
    for s in 0..5 {
        offsets.push(offsets[s] + (dims[0] * s / 4) as u32);
    }
    let step = if dims[1] == 9 { NONE } else { dims[1] as u32 };
    let (offsets, step, base) = (c.ids(&offsets, 1), c.ids(&[step], 1), c.ids(&[0], 1));
    let items = c.tape.step_items(offsets, step, base, dims[0])?;
    Ok(Built::new(&[items.item, items.rank], &[]))
}
