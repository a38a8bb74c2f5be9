//! `loss = mean_i softplus(-logit[i, 0]) + mean_{i, j > 0} softplus(logit[i, j])`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `logits` | `[b, 1 + m]` f32 | column 0: the positive; the other columns: negatives |
//! | loss | `[1, 1]` f32 | binary cross entropy: the mean over the positives plus the mean over the negatives |
//!
//! Backward: `dlogit = (sigmoid(logit) - label) / count * dloss`. A loss that is not finite is a fault, so
//! that training stops where it diverged. The loss of an empty batch is 0. Deterministic.
use super::*;
use crate::runtime::{
    parts::{self, PARTS},
    simd::{self, LANES, vectorised},
    team::{self, InParallel},
};

/// Minimum number of rows per piece of work.
const PIECE: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub struct BceLoss;
/// Gradient of the logits.
#[derive(Debug)]
pub struct BceLossGrad;

impl Tape {
    /// Appends [`BceLoss`] and returns the binary cross entropy, `[1, 1]`, of `logits` `[b, 1 + m]`: column 0
    /// holds those of the events, the others those of m negatives.
    ///
    /// # Errors
    /// `Shape` if there is no column of negatives.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let logits = tape.input(&mut store, "logits", Spec::real(Rows::fixed(1), 3), &[0.0f32, 0.0, 0.0])?;
    /// let loss = tape.bce_loss(logits)?; // one positive, two negatives
    /// let mut program = Program::new(&tape, &[loss], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let want = 2.0 * 2f32.ln(); // ln 2 for the positive, and ln 2 for the mean of the negatives
    /// assert!((program.read::<f32>(loss, &store)?[0] - want).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn bce_loss(&mut self, logits: Var) -> Result<Var> {
        self.push1(BceLoss, &[logits])
    }
}

/// Returns one over the number of elements in the mean that `column` belongs to.
fn weight<R: Real>(column: usize, rows: usize, cols: usize) -> R {
    let per_row = if column == 0 { 1 } else { cols - 1 };
    R::from_f64(1.0 / (rows * per_row) as f64)
}

/// Returns the gradient of logit `x`, element `at` of `n` rows of `m`.
pub(in crate::ops) fn define_gradient<R: Real>(x: R, at: usize, [n, m]: [usize; 2], dloss: R) -> R {
    let label = R::from_f64(f64::from(u8::from(at.is_multiple_of(m))));
    (x.sigmoid() - label) * weight::<R>(at % m, n, m) * dloss
}

/// Returns the weights of negatives and positives in the gradients of `n` rows of `m` logits.
pub(in crate::ops) fn weights(n: usize, m: usize, dloss: f32) -> [f32; 2] {
    [1, 0].map(|column| weight::<f32>(column, n.max(1), m) * dloss)
}

/// Calls `visit(lane, at)` for each element of column `c` in at most [`LANES`] rows, `len` numbers: `lane` is
/// the row and `at` the index of the element.
#[inline(always)]
fn for_column(len: usize, cols: usize, c: usize, mut visit: impl FnMut(usize, usize)) {
    for (lane, at) in (c..len).step_by(cols).enumerate() {
        visit(lane, at);
    }
}

vectorised! {
    /// Adds the losses of the positives to `sums[0]` and those of the negatives to `sums[1]`, for rows of
    /// `cols` logits.
    fn add_losses(sums: &mut [f32], x: &[f32], cols: usize) {
        let mut lanes = [[0.0; LANES]; 2];
        for rows in x.chunks(LANES * cols) {
            for c in 0..cols {
                // A lane without a row adds nothing: softplus(-inf) is 0.
                let mut z = [f32::NEG_INFINITY; LANES];
                let sign = if c == 0 { -1.0 } else { 1.0 };
                for_column(rows.len(), cols, c, |lane, at| z[lane] = sign * rows[at]);
                for (sum, z) in lanes[usize::from(c > 0)].iter_mut().zip(z) {
                    *sum += simd::softplus(z);
                }
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += lanes.iter().sum::<f32>();
        }
    }
    /// `dx = (sigmoid(x) - label) weights[label]`
    pub(in crate::ops) fn gradients(dx: &mut [f32], x: &[f32], cols: usize, weights: [f32; 2]) {
        for (dx, x) in dx.chunks_mut(LANES * cols).zip(x.chunks(LANES * cols)) {
            for c in 0..cols {
                let mut z = [0.0; LANES];
                for_column(x.len(), cols, c, |lane, at| z[lane] = x[at]);
                let (label, weight) = if c == 0 { (1.0, weights[1]) } else { (0.0, weights[0]) };
                for z in &mut z {
                    *z = (simd::sigmoid(*z) - label) * weight;
                }
                for_column(x.len(), cols, c, |lane, at| dx[at] = z[lane]);
            }
        }
    }
}

/// Checks that `logits` have negatives.
pub(in crate::ops) fn two_columns(op: &'static str, logits: &Spec) -> Result<()> {
    let fits = logits.cols >= 2;
    ensure!(op, fits, "logits are {logits}, want a column of positives and one or more of negatives");
    Ok(())
}

impl BceLoss {
    /// Writes the loss from its sums over the positives and over the negatives; records a fault if the loss
    /// is not finite.
    fn finish<R: Real>(io: &Io<'_>, sums: &[R]) {
        let (n, m) = (io.rows(0), io.cols(0));
        let loss = if n == 0 { R::ZERO } else { sums[0] * weight(0, n, m) + sums[1] * weight(1, n, m) };
        io.write_loss(loss);
    }
}

impl Op for BceLoss {
    const NAME: &'static str = "bce_loss";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, m] -> loss [1]";
    fn reports_infinite(&self) -> bool {
        true
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        two_columns(Self::NAME, &ins[0])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 20 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, m) = (io.input::<R>(0), io.cols(0));
        let mut sums = [R::ZERO; 2];
        for (at, &x) in x.iter().enumerate() {
            sums[usize::from(at % m > 0)] += if at % m == 0 { -x } else { x }.softplus();
        }
        Self::finish(io, &sums);
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        2 * PARTS
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, m, mut sums) = (io.input::<f32>(0), io.cols(0), [0.0; 2]);
        parts::sum_parts(io.rows(0), &mut sums, io.scratch(), |rows, sums| {
            add_losses(sums, &x[rows.start * m..rows.end * m], m);
        });
        Self::finish(io, &sums);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(1, 1024);
        launch!(k, on, bce_loss[grid]; on.input(0), on.out(0), on.rows(0), on.cols(0), on.status())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|d| t.push1(BceLossGrad, &[node.ins[0], d])).transpose()?])
    }
}

impl Op for BceLossGrad {
    const NAME: &'static str = "bce_loss_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, m], dloss [1] -> dlogits [n, m]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        two_columns(Self::NAME, &ins[0])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, dloss, n, m) = (io.input::<R>(0), io.input::<R>(1)[0], io.rows(0), io.cols(0));
        for (at, dx) in io.out::<R>(0).iter_mut().enumerate() {
            *dx = define_gradient(x[at], at, [n, m], dloss);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, dloss, n, m) = (io.input::<f32>(0), io.input::<f32>(1)[0], io.rows(0), io.cols(0));
        let weights = weights(n, m, dloss);
        let size = m * team::piece(n, PIECE);
        io.out::<f32>(0).chunks_mut(size).zip(x.chunks(size)).in_parallel(1, |(dx, x)| {
            gradients(dx, x, m, weights);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::items(on.spec(0).len());
        launch!(k, on, bce_loss_grad[grid]; on.input(0), on.input(1), on.out(0), on.rows(0), on.cols(0))
    }
}

/// `[b, negatives]`; `b` of `b + 2` rows are live.
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1], &[0, 1], &[7, 1], &[50, 3], &[700, 2]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (count, cols) = (c.count(dims[0]), 1 + dims[1]);
    let values: Vec<f32> = (0..(dims[0] + 2) * cols).map(|_| 8.0 * c.uniform()).collect();
    let logits = c.values(Spec::real(Rows::live(dims[0] + 2, count), cols), &values);
    let loss = c.tape.bce_loss(logits)?;
    Ok(Built::new(&[loss], &[logits]))
}
