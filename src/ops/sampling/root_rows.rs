//! `out[i] = stride i + side`: the rows of one side of every event among the roots of a batch.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `events` | `[<= b, *]` | any value with one row per event; only its row count is used |
//! | out | `[<= b]` u32 | row among the [`roots`], of which each event has `stride`: side 0 is the source, side 1 the destination |
//!
//! `gather_rows(z, out)` then returns one embedding per event, for heads that read one side only.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct RootRows {
    stride: usize,
    side: usize,
}

impl Tape {
    /// Appends [`RootRows`]: one row for each of `events`, for instance those of the sources of the batch.
    ///
    /// # Errors
    /// `Shape` if `side` is not below `stride`, or if the rows do not fit in 32 bits.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let rows = tape.root_rows(event, 3, 1)?; // the destinations, among three roots an event
    /// let mut program = Program::new(&tape, &[rows], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(rows, &store)?, [1, 4]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn root_rows(&mut self, events: Var, stride: usize, side: usize) -> Result<Var> {
        self.push1(RootRows { stride, side }, &[events])
    }
}

impl Op for RootRows {
    const NAME: &'static str = "root_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "events [n, d] any -> out [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        ensure!(Self::NAME, self.side < self.stride, "side is {}, want less than {}", self.side, self.stride);
        let (stride, roots) = (self.stride, ins[0].rows.capacity.saturating_mul(self.stride));
        let fits = roots <= NONE as usize;
        ensure!(Self::NAME, fits, "{stride} roots for each row of {}, want at most {NONE} in all", ins[0]);
        Ok(())
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * outs[0].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for (i, row) in io.out::<u32>(0).iter_mut().enumerate() {
            *row = (self.stride * i + self.side) as u32;
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (stride, side) = (self.stride as u32, self.side as u32);
        launch!(k, on, root_rows[Grid::items(on.capacity(0))]; on.out(0), on.rows(0), stride, side)
    }
}

/// `[b, stride, side]`; `b` of `b + 2` rows are live.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 3, 0], &[0, 3, 1], &[5, 2, 1], &[300, 1, 0], &[40, 7, 6]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 3, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let count = c.count(dims[0]);
    let events = c.live_real(dims[0] + 2, count, 1);
    let out = c.tape.root_rows(events, dims[1], dims[2])?;
    Ok(Built::new(&[out], &[]))
}
