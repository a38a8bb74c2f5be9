//! `out[i] = stride i + side`: where side `side` of every event is among a batch's roots
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `events` | `[<= b, *]` | any value with a row for each event; only its rows matter |
//! | out | `[<= b]` u32 | row of [`roots`], which have `stride` an event: side 0 source, 1 destination |
//!
//! `gather_rows(z, out)` then is one embedding an event, for heads that look at one side.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct RootRows {
    stride: usize,
    side: usize,
}

impl Tape {
    /// Appends [`RootRows`]: a row for each of `events`, for instance the sources of the batch.
    ///
    /// # Errors
    /// `Shape` when there is no such side, or rows need more than 32 bits.
    pub fn root_rows(&mut self, events: Var, stride: usize, side: usize) -> Result<Var> {
        self.push1(RootRows { stride, side }, &[events])
    }
}

impl Op for RootRows {
    const NAME: &'static str = "root_rows";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 1)?;
        ensure!(Self::NAME, self.side < self.stride, "side {} of {}", self.side, self.stride);
        let last = ins[0].rows.capacity.checked_mul(self.stride).filter(|&n| n <= NONE as usize);
        ensure!(Self::NAME, last.is_some(), "{} roots for each row of {}", self.stride, ins[0]);
        Ok(vec![Spec::ids(ins[0].rows, 1).into()])
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
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.root_rows(on, Grid::items(on.capacity(0)), on.out(0), on.rows(0), stride, side) }
    }
}

/// `[b, stride, side]`; `b` of `b + 2` rows live.
pub(super) const CASES: &[&[usize]] = &[&[1, 3, 0], &[0, 3, 1], &[5, 2, 1], &[300, 1, 0], &[40, 7, 6]];
pub(super) const BENCH: &[&[usize]] = &[&[600, 3, 0]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let count = c.count(dims[0]);
    let events = c.live_real(dims[0] + 2, count, 1);
    let out = c.tape.root_rows(events, dims[1], dims[2])?;
    Ok(Built::new(&[out], &[]))
}
