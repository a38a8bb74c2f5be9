//! `loss = mean_ic l(logit[i, c])`, where `l(x) = w softplus(-x)` if class `c` is in the set of event `i`,
//! else `softplus(x)`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `logits` | `[b, C]` f32 | one logit a class |
//! | `labels` | `[b, m]` u32 below `C`, or [`NONE`] | the event's set of classes, in any order, padded with `NONE` |
//! | loss | `[1, 1]` f32 | binary cross entropy, mean over the `b C` elements |
//!
//! `w` weighs the positive elements, those in the sets. If they are rare, a `w` near the ratio of negative to
//! positive elements keeps a model from predicting "no" for everything.
//!
//! Backward: `dlogit = (sigmoid(logit) - 1) w / (b C) dloss` in the set, else `sigmoid(logit) / (b C) dloss`.
//! A loss that is not finite is a fault, so training stops where it diverged; so is a label that names no
//! class. Deterministic. The loss of an empty batch is 0.
//!
//! Source: PyTorch's `BCEWithLogitsLoss`, whose `pos_weight` is `w`.
use super::*;
use crate::runtime::{
    parts,
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// Maximum number of blocks that sum losses on a device.
const BLOCKS: usize = 128;
/// Rows of a block, if that needs fewer than [`BLOCKS`] blocks.
const BLOCK_ROWS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub struct LabelLoss {
    positive_weight: f32,
}
/// Gradient of [`LabelLoss`] with respect to the logits.
#[derive(Debug)]
pub struct LabelLossGrad {
    positive_weight: f32,
}

impl Tape {
    /// Appends [`LabelLoss`] and returns the binary cross entropy, `[1, 1]`, of `logits`, one a class, `[b,
    /// C]`; `labels`, u32 `[b, m]`, are the sets of classes. A `positive_weight` of 1 weighs all elements
    /// equally.
    ///
    /// # Errors
    /// `Shape` if the types or row counts do not fit, there is no class, or the weight is not a finite
    /// positive number.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let logits = tape.input(&mut store, "logits", Spec::real(Rows::fixed(1), 2), &[0.0f32, 0.0])?;
    /// let labels = tape.input(&mut store, "labels", Spec::ids(Rows::fixed(1), 2), &[1u32, NONE])?;
    /// let loss = tape.label_loss(logits, labels, 3.0)?; // the event is of class 1 alone
    /// let mut program = Program::new(&tape, &[loss], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let want = (1.0 + 3.0) * 2f32.ln() / 2.0; // class 1 counts three times
    /// assert!((program.read::<f32>(loss, &store)?[0] - want).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn label_loss(&mut self, logits: Var, labels: Var, positive_weight: f32) -> Result<Var> {
        self.push1(LabelLoss { positive_weight }, &[logits, labels])
    }
}

/// Returns one over the number of elements.
fn mean_factor<R: Real>(n: usize, classes: usize) -> R {
    R::from_f64(1.0 / (n * classes) as f64)
}

/// Columns of a row whose losses are computed at a time, then summed.
const COLUMNS: usize = 64;

vectorised! {
    /// Returns the sum of the losses of some rows.
    fn sum_of_losses(logits: &[f32], labels: &[u32], classes: usize, weight: f32) -> f32 {
        let set_size = labels.len() / (logits.len() / classes).max(1);
        let (mut sum, mut losses) = (0.0, [0.0; COLUMNS]);
        for (i, logits) in logits.chunks_exact(classes).enumerate() {
            let set = &labels[i * set_size..][..set_size];
            for (first, logits) in (0..).step_by(COLUMNS).zip(logits.chunks(COLUMNS)) {
                for (loss, &x) in losses.iter_mut().zip(logits) {
                    *loss = simd::softplus(x);
                }
                for &label in set {
                    let c = (label as usize).wrapping_sub(first);
                    if c < logits.len() {
                        losses[c] = weight * simd::softplus(-logits[c]);
                    }
                }
                sum += simd::sum::<V>(&losses[..logits.len()]);
            }
        }
        sum
    }
    /// Writes the gradients of one row's logits; `scale` is the mean's factor times `dloss`.
    fn gradients(dlogits: &mut [f32], logits: &[f32], labels: &[u32], weight: f32, scale: f32) {
        for (d, &x) in dlogits.iter_mut().zip(logits) {
            *d = simd::sigmoid(x) * scale;
        }
        for &label in labels {
            if let Some(d) = dlogits.get_mut(label as usize) {
                *d = -weight * simd::sigmoid(-logits[label as usize]) * scale;
            }
        }
    }
}

/// Checks that there is a class, and the weight of the positive one.
fn check(op: &'static str, logits: &Spec, w: f32) -> Result<()> {
    ensure!(op, logits.cols > 0, "logits are {logits}, want at least one class");
    ensure!(op, w.is_finite() && w > 0.0, "positive weight is {w}, want a finite number above 0");
    Ok(())
}

impl Op for LabelLoss {
    const NAME: &'static str = "label_loss";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, c], labels [n, l] ids -> loss [1]";
    fn reports_infinite(&self) -> bool {
        true
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, &ins[0], self.positive_weight)
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        parts::PARTS.max(BLOCKS)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 20 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, labels, n) = (io.input::<R>(0), io.input::<u32>(1), io.rows(0));
        let (classes, set_size) = (io.cols(0), io.cols(1));
        let mut sum = R::ZERO;
        for i in 0..n {
            let set = &labels[i * set_size..][..set_size];
            for c in 0..classes {
                let x = x[i * classes + c];
                let is_positive = set.contains(&(c as u32));
                sum += if is_positive {
                    R::from_f64(self.positive_weight.into()) * (-x).softplus()
                } else {
                    x.softplus()
                };
            }
        }
        self.finish(io, sum);
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, labels) = (io.input::<f32>(0), io.input::<u32>(1));
        let (classes, set_size) = (io.cols(0), io.cols(1));
        let mut sum = [0.0];
        parts::sum_parts(io.rows(0), &mut sum, io.scratch::<f32>(), |rows, sum| {
            let labels = &labels[rows.start * set_size..rows.end * set_size];
            let x = &x[rows.start * classes..rows.end * classes];
            sum[0] = sum_of_losses(x, labels, classes, self.positive_weight);
        });
        self.finish(io, sum[0]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.capacity(0).div_ceil(BLOCK_ROWS).min(BLOCKS), Grid::THREADS);
        let (logits, labels, rows, weight) = (on.input(0), on.input(1), on.rows(0), self.positive_weight);
        let (classes, set_size, sums, ticket) = (on.cols(0), on.cols(1), on.scratch(), on.tickets());
        let (loss, status) = (on.out(0), on.status());
        launch!(
            k, on, label_loss[grid];
            logits, labels, sums, ticket, loss, rows, classes, set_size, weight, status
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let grad = LabelLossGrad { positive_weight: self.positive_weight };
        let dlogits = douts[0].map(|d| t.push1(grad, &[node.ins[0], node.ins[1], d])).transpose()?;
        Ok(vec![dlogits, None])
    }
}

impl LabelLoss {
    /// Writes the mean of the losses, whose sum is `sum`, and records faults.
    fn finish<R: Real>(&self, io: &Io<'_>, sum: R) {
        let (n, classes, set_size) = (io.rows(0), io.cols(0), io.cols(1));
        let loss = if n == 0 { R::ZERO } else { sum * mean_factor(n, classes) };
        for (at, &label) in io.input::<u32>(1).iter().enumerate() {
            // Records a fault if the label names no class.
            io.row_of(at / set_size, label, classes);
        }
        io.write_loss(loss);
    }
}

impl Op for LabelLossGrad {
    const NAME: &'static str = "label_loss_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, c], labels [n, l] ids, dloss [1] -> dlogits [n, c]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, &ins[0], self.positive_weight)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, labels, dloss) = (io.input::<R>(0), io.input::<u32>(1), io.input::<R>(2)[0]);
        let (n, classes, set_size) = (io.rows(0), io.cols(0), io.cols(1));
        for (at, dx) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, c) = (at / classes, at % classes);
            let slope = if labels[i * set_size..][..set_size].contains(&(c as u32)) {
                -R::from_f64(self.positive_weight.into()) * (-x[at]).sigmoid()
            } else {
                x[at].sigmoid()
            };
            *dx = slope * mean_factor::<R>(n, classes) * dloss;
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, labels) = (io.input::<f32>(0), io.input::<u32>(1));
        let (n, classes, set_size) = (io.rows(0), io.cols(0), io.cols(1));
        let scale = mean_factor::<f32>(n.max(1), classes) * io.input::<f32>(2)[0];
        let size = team::piece(n, 16);
        io.out::<f32>(0).chunks_mut(size * classes).enumerate().in_parallel(1, |(piece, out)| {
            for (i, dx) in (piece * size..).zip(out.chunks_exact_mut(classes)) {
                let (x, set) = (&x[i * classes..][..classes], &labels[i * set_size..][..set_size]);
                gradients(dx, x, set, self.positive_weight, scale);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (logits, labels, dloss, dlogits) = (on.input(0), on.input(1), on.input(2), on.out(0));
        let (rows, classes, set_size, weight) = (on.rows(0), on.cols(0), on.cols(1), self.positive_weight);
        launch!(
            k, on, label_loss_grad[Grid::warps(on.capacity(0))];
            logits, labels, dloss, dlogits, rows, classes, set_size, weight
        )
    }
}

/// `[b, C, m, tenths of the weight]`; `b` of `b + 2` rows are live; sets have up to `m` classes, some
/// repeated.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 10],
    &[0, 3, 2, 10],
    &[7, 1, 1, 250],
    &[9, 5, 3, 10],
    &[40, 70, 1, 35],
    &[9, 130, 9, 10],
    &[4, 6, 0, 10],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 230, 9, 10], &[600, 1, 1, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[b, classes, set_size, tenths] = dims else { return Err(Error::shape("label_loss", "four sizes")) };
    let count = c.count(b);
    let rows = Rows::live(b + 2, count);
    let values: Vec<f32> = (0..rows.capacity * classes).map(|_| 8.0 * c.uniform()).collect();
    let logits = c.values(Spec::real(rows, classes), &values);
    let drawn = (0..rows.capacity * set_size).map(|_| c.below(classes + 2));
    let labels: Vec<u32> = drawn.map(|l| if l < classes { l as u32 } else { NONE }).collect();
    let labels = c.values(Spec::ids(rows, set_size), &labels);
    let loss = c.tape.label_loss(logits, labels, tenths as f32 / 10.0)?;
    Ok(Built::new(&[loss], &[logits]))
}
