//! `loss = mean (pred - want)^2` over the elements whose `want` is known.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `pred` | `[<= n, h]` f32 | predictions |
//! | `want` | `[<= n, h]` f32 | targets; an element is unknown if it is NaN, and is then ignored whatever `pred` is |
//! | loss | `[1, 1]` f32 | mean squared error; 0 if no element is known |
//! | known | `[1]` u32 | number of known elements, for the backward pass |
//!
//! Backward: `dpred = 2 (pred - want) / known dloss`, 0 for unknown elements. A loss that is not finite is
//! reported as a fault, so that training stops where it diverges. Deterministic. Source: PyTorch's `MSELoss`.
use super::*;
use crate::runtime::{
    parts,
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// Maximum number of blocks of the sum on a device.
const BLOCKS: usize = 128;
/// Elements per block, as long as [`BLOCKS`] is not exceeded.
const BLOCK_ELEMENTS: usize = 2048;

/// See the [module](self).
#[derive(Debug)]
pub struct SquaredLoss;
/// Gradient of the predictions.
#[derive(Debug)]
pub struct SquaredLossGrad;

impl Tape {
    /// Appends [`SquaredLoss`]; returns the mean squared error, `[1, 1]`, of `pred` against `want`, both f32
    /// `[n, h]`. Elements of `want` that are NaN do not count.
    ///
    /// # Errors
    /// `Shape` if `pred` and `want` differ in rows or widths, or are not f32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let pred = tape.input(&mut store, "pred", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let want = tape.input(&mut store, "want", Spec::real(Rows::fixed(1), 2), &[3.0f32, f32::NAN])?;
    /// let loss = tape.squared_loss(pred, want)?;
    /// let mut program = Program::new(&tape, &[loss], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(loss, &store)?, [4.0]); // the unknown element does not count
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn squared_loss(&mut self, pred: Var, want: Var) -> Result<Var> {
        Ok(self.push(SquaredLoss, &[pred, want])?[0])
    }
}

/// Elements per vectorised partial sum.
const ELEMENTS: usize = 64;

vectorised! {
    /// Returns the sum of the squares of the known elements, and their number.
    fn sum_of_squares(pred: &[f32], want: &[f32]) -> (f32, u32) {
        let (mut sum, mut known, mut each) = (0.0, 0, [0.0; ELEMENTS]);
        for (pred, want) in pred.chunks(ELEMENTS).zip(want.chunks(ELEMENTS)) {
            for ((e, &p), &w) in each.iter_mut().zip(pred).zip(want) {
                *e = if w.is_nan() { 0.0 } else { (p - w) * (p - w) };
            }
            known += want.iter().map(|w| u32::from(!w.is_nan())).sum::<u32>();
            sum += simd::sum::<V>(&each[..pred.len()]);
        }
        (sum, known)
    }
    fn gradients(out: &mut [f32], pred: &[f32], want: &[f32], scale: f32) {
        for ((d, &p), &w) in out.iter_mut().zip(pred).zip(want) {
            *d = if w.is_nan() { 0.0 } else { (p - w) * scale };
        }
    }
}

impl Op for SquaredLoss {
    const NAME: &'static str = "squared_loss";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "pred [n, d], want [n, d] -> loss [1], known [1] ids";
    fn reports_infinite(&self) -> bool {
        true
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        2 * BLOCKS
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 3 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (pred, want) = (io.input::<R>(0), io.input::<R>(1));
        let known = pred.iter().zip(want).filter(|(_, w)| !w.f64().is_nan());
        let count = known.clone().count();
        self.finish(io, known.map(|(&p, &w)| (p - w) * (p - w)).sum::<R>(), count);
    }
    fn cpu(&self, io: &Io<'_>) {
        let (pred, want) = (io.input::<f32>(0), io.input::<f32>(1));
        let size = parts::part_rows(pred.len());
        let mut partials = [(0.0f32, 0u32); parts::PARTS];
        let work = partials.iter_mut().zip(pred.chunks(size).zip(want.chunks(size)));
        work.in_parallel(1, |(partial, (pred, want))| *partial = sum_of_squares(pred, want));
        let (sum, known) = partials.iter().fold((0.0, 0), |(sum, known), &(part_sum, part_known)| {
            (sum + part_sum, known + part_known as usize)
        });
        self.finish(io, sum, known);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.spec(0).len().div_ceil(BLOCK_ELEMENTS).min(BLOCKS), Grid::THREADS);
        let (pred, want, sums, ticket) = (on.input(0), on.input(1), on.scratch(), on.tickets());
        let (loss, known, rows, h, status) = (on.out(0), on.needed(1), on.rows(0), on.cols(0), on.status());
        launch!(k, on, squared_loss[grid]; pred, want, sums, ticket, loss, known, rows, h, status)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let (pred, want, known) = (node.ins[0], node.ins[1], node.outs[1]);
        let grad = |dloss| t.push1(SquaredLossGrad, &[pred, want, known, dloss]);
        Ok(vec![douts[0].map(grad).transpose()?, None])
    }
}

impl SquaredLoss {
    /// Writes both outputs for `known` squares that add up to `sum`; reports a fault if the mean is not
    /// finite.
    fn finish<R: Real>(&self, io: &Io<'_>, sum: R, known: usize) {
        let loss = if known == 0 { R::ZERO } else { sum * R::from_f64(1.0 / known as f64) };
        if !loss.f64().is_finite() {
            let mut elements = io.input::<R>(0).iter().zip(io.input::<R>(1));
            let first = elements.position(|(p, w)| !w.f64().is_nan() && !(*p - *w).f64().is_finite());
            io.fault(first.unwrap_or(0) / io.cols(0).max(1), Fault::NotFinite(loss.f64() as f32));
        }
        io.out::<R>(0)[0] = loss;
        io.out::<u32>(1)[0] = known as u32;
    }
}

impl Op for SquaredLossGrad {
    const NAME: &'static str = "squared_loss_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "pred [n, d], want [n, d], known [1] ids, dloss [1] -> dpred [n, d]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (pred, want) = (io.input::<R>(0), io.input::<R>(1));
        let scale = self.scale::<R>(io);
        for (i, d) in io.out::<R>(0).iter_mut().enumerate() {
            *d = if want[i].f64().is_nan() { R::ZERO } else { (pred[i] - want[i]) * scale };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (out, scale) = (io.out::<f32>(0), self.scale::<f32>(io));
        let size = team::share(out.len());
        let (pred, want) = (io.input::<f32>(0).chunks(size), io.input::<f32>(1).chunks(size));
        let work = out.chunks_mut(size).zip(pred.zip(want));
        work.in_parallel(1, |(out, (pred, want))| gradients(out, pred, want, scale));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (pred, want, known, dloss) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let grid = Grid::items(on.spec(0).len());
        launch!(k, on, squared_loss_grad[grid]; pred, want, known, dloss, on.out(0), on.rows(0), on.cols(0))
    }
}

impl SquaredLossGrad {
    /// Returns the factor of `pred - want` in the gradient: `2 / known dloss`.
    fn scale<R: Real>(&self, io: &Io<'_>) -> R {
        let (known, dloss) = (io.input::<u32>(2)[0], io.input::<R>(3)[0]);
        R::from_f64(2.0 / f64::from(known.max(1))) * dloss
    }
}

/// `[n, h, every]`: every `every`-th element is unknown, none if `every` is 0; `n` of `n + 2` rows are live.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0], &[0, 3, 2], &[5, 0, 2], &[4, 3, 1], &[9, 5, 3], &[700, 4, 0], &[3_000, 3, 2]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 12, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, h, every] = dims else { return Err(Error::shape("squared_loss", "three sizes")) };
    let count = c.count(n);
    let rows = Rows::live(n + 2, count);
    let pred = c.live_real(n + 2, count, h);
    let unknown = |i: usize| every > 0 && i % every == every - 1;
    let want: Vec<f32> = (0..(n + 2) * h).map(|i| if unknown(i) { f32::NAN } else { c.uniform() }).collect();
    let want = c.values(Spec::real(rows, h), &want);
    let loss = c.tape.squared_loss(pred, want)?;
    Ok(Built::new(&[loss], &[pred]))
}
