//! `loss = mean_i sum_e w_e (ln sum_k exp(logit[i, k]) - logit[i, c_e])`, `e` the entries of row `i`'s label
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `logits` | `[b, C]` f32 | one logit a class |
//! | `row` | `[b]` u32 below R, or [`NONE`] | the label row of each row of logits |
//! | `offsets` | `[R + 1]` u32 | label row `r` has the entries `offsets[r]..offsets[r + 1]` |
//! | `classes` | `[E]` u32 below `C`, or [`NONE`] | class of each entry |
//! | `weights` | `[E]` f32 | weight of each entry |
//! | loss | `[1, 1]` f32 | cross entropy with soft labels, mean over the b rows |
//!
//! The weights of a row need not add up to 1. A row without entries adds nothing to the sum. There
//! is at least one class.
//!
//! Backward: `dlogit[i, c] = (W_i softmax(logit[i])[c] - w_ic) dloss / b`; `W_i` is the sum of the weights of
//! the row, `w_ic` that of its entries of class `c`. A loss that is not finite is a fault, so training stops
//! where it diverged; so is an index outside of its table. Deterministic. The loss of an empty batch is 0.
//!
//! Source: PyTorch's `CrossEntropyLoss` with class probabilities as targets.
use super::*;
use crate::runtime::{
    parts,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ops::Range;

/// Maximum number of blocks that sum losses on a device.
const BLOCKS: usize = 128;
/// Rows of a block, if that needs fewer than [`BLOCKS`] blocks.
const BLOCK_ROWS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub struct SoftLabelLoss;
/// Gradient of [`SoftLabelLoss`] with respect to the logits.
#[derive(Debug)]
pub struct SoftLabelLossGrad;

/// Labels of rows as the values of a tape: for each row the weights of some classes.
#[derive(Clone, Copy, Debug)]
pub struct SoftLabels {
    /// `[R + 1]` u32: where the entries of each label row begin.
    pub offsets: Var,
    /// `[E]` u32: class of each entry.
    pub classes: Var,
    /// `[E]` f32: weight of each entry.
    pub weights: Var,
}

impl Tape {
    /// Appends [`SoftLabelLoss`] and returns the cross entropy, `[1, 1]`, of `logits`, one a class, `[b, C]`,
    /// against the label rows `row`, u32 `[b]`, of `labels`.
    ///
    /// # Errors
    /// `Shape` if the types or row counts do not fit, or there is no class.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{soft_label_loss::SoftLabels, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let logits = tape.input(&mut store, "logits", Spec::real(Rows::fixed(1), 2), &[0.0f32, 0.0])?;
    /// let row = tape.input(&mut store, "row", ids(1), &[1u32])?;
    /// let labels = SoftLabels {
    ///     offsets: tape.input(&mut store, "offsets", ids(3), &[0u32, 1, 3])?,
    ///     classes: tape.input(&mut store, "classes", ids(3), &[1u32, 0, 1])?,
    ///     weights: tape.input(&mut store, "weights", Spec::real(Rows::fixed(3), 1), &[9.0f32, 0.25, 0.75])?,
    /// };
    /// let loss = tape.soft_label_loss(logits, row, labels)?; // the second row of labels: 0.25 and 0.75
    /// let mut program = Program::new(&tape, &[loss], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert!((program.read::<f32>(loss, &store)?[0] - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn soft_label_loss(&mut self, logits: Var, row: Var, labels: SoftLabels) -> Result<Var> {
        let SoftLabels { offsets, classes, weights } = labels;
        self.push1(SoftLabelLoss, &[logits, row, offsets, classes, weights])
    }
}

// Input indices.

/// Returns the entries of the label row of row `i`; none if an index is outside of its table, which is a
/// fault unless it is [`NONE`].
fn entries_of(io: &Io<'_>, i: usize) -> Range<usize> {
    let (offsets, entries) =
        (io.input::<u32>(at!(SoftLabelLoss, offsets)), io.rows(at!(SoftLabelLoss, classes)));
    let row = io.row_of(i, io.input::<u32>(at!(SoftLabelLoss, row))[i], offsets.len() - 1);
    let past = row.and_then(|row| io.row_of(i, offsets[row + 1], entries + 1)).unwrap_or(0);
    row.map_or(0, |row| (offsets[row] as usize).min(past))..past
}

/// Calls `take` with the class and the weight of each entry of row `i`.
fn each_entry<R: Real>(io: &Io<'_>, i: usize, mut take: impl FnMut(usize, R)) {
    let (classes, weights) =
        (io.input::<u32>(at!(SoftLabelLoss, classes)), io.input::<R>(at!(SoftLabelLoss, weights)));
    for e in entries_of(io, i) {
        if let Some(c) = io.row_of(i, classes[e], io.cols(at!(SoftLabelLoss, logits))) {
            take(c, weights[e]);
        }
    }
}

/// Returns the largest element and the sum of `exp(x - largest)`.
fn exponentials<R: Real>(x: &[R]) -> (R, R) {
    let largest = x.iter().fold(x[0], |a, &b| if b.f64() > a.f64() { b } else { a });
    let mut sum = R::ZERO;
    x.iter().for_each(|&x| sum += (x - largest).exp());
    (largest, sum)
}

vectorised! {
    /// Returns the largest element.
    fn largest_of(x: &[f32]) -> f32 {
        x.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
    }
    /// Writes `exp(x - largest)` and returns the sum.
    fn powers(out: &mut [f32], x: &[f32], largest: f32) -> f32 {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = simd::exp(x - largest);
        }
        simd::sum::<V>(out)
    }
    /// Multiplies by `a`.
    fn scale(out: &mut [f32], a: f32) {
        for out in out {
            *out *= a;
        }
    }
}

/// Checks that there is a class, and not too many entries.
fn check(op: &'static str, ins: &[Spec]) -> Result<()> {
    let (logits, classes) = (ins[at!(SoftLabelLoss, logits)], ins[at!(SoftLabelLoss, classes)]);
    ensure!(op, logits.cols > 0, "logits are {logits}, want at least one class");
    countable(op, "entries", classes.len())
}

impl Op for SoftLabelLoss {
    const NAME: &'static str = "soft_label_loss";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, c], row [n] ids, offsets [r + 1] ids, classes [E] ids, \
        weights [E] -> loss [1]";
    fn reports_infinite(&self) -> bool {
        true
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, ins)
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        parts::PARTS.max(BLOCKS)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(&ins[..at!(row)], outs, 20 * ins[at!(logits)].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let mut sum = R::ZERO;
        for (i, x) in io.input::<R>(at!(logits)).chunks_exact(io.cols(at!(logits))).enumerate() {
            let (largest, powers) = exponentials(x);
            let log_sum = largest + powers.ln();
            each_entry(io, i, |c, w: R| sum += w * (log_sum - x[c]));
        }
        Self::finish(io, sum);
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, classes) = (io.input::<f32>(at!(logits)), io.cols(at!(logits)));
        let mut sum = [0.0];
        parts::sum_parts(io.rows(at!(logits)), &mut sum, io.scratch::<f32>(), |rows, sum| {
            parts::with_thread_buffer(classes, |buffer| {
                for i in rows {
                    let x = &x[i * classes..][..classes];
                    let largest = largest_of(x);
                    let log_sum = largest + powers(buffer, x, largest).ln();
                    each_entry(io, i, |c, w: f32| sum[0] += w * (log_sum - x[c]));
                }
            });
        });
        Self::finish(io, sum[0]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.capacity(at!(logits)).div_ceil(BLOCK_ROWS).min(BLOCKS), Grid::THREADS);
        let (logits, row, offsets) = (on.input(at!(logits)), on.input(at!(row)), on.input(at!(offsets)));
        let (classes, weights, labelled) =
            (on.input(at!(classes)), on.input(at!(weights)), on.capacity(at!(offsets)) as u32 - 1);
        let (rows, width, entries) =
            (on.rows(at!(logits)), on.cols(at!(logits)), on.capacity(at!(classes)) as u32);
        let (sums, ticket, loss, status) = (on.scratch(), on.tickets(), on.out(0), on.status());
        launch!(
            k, on, soft_label_loss[grid];
            logits, row, offsets, classes, weights, sums, ticket, loss, rows, width, labelled, entries,
            status
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut grads = vec![None; node.ins.len()];
        if let Some(dloss) = douts[0] {
            let ins: Vec<Var> = node.ins.iter().copied().chain([dloss]).collect();
            grads[at!(logits)] = Some(t.push1(SoftLabelLossGrad, &ins)?);
        }
        Ok(grads)
    }
}

impl SoftLabelLoss {
    /// Writes the mean of the losses, whose sum is `sum`, and records a fault unless it is finite.
    fn finish<R: Real>(io: &Io<'_>, sum: R) {
        let n = io.rows(at!(logits));
        let loss = if n == 0 { R::ZERO } else { sum * R::from_f64(1.0 / n as f64) };
        io.write_loss(loss);
    }
}

impl Op for SoftLabelLossGrad {
    const NAME: &'static str = "soft_label_loss_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "logits [n, c], row [n] ids, offsets [r + 1] ids, classes [E] ids, \
        weights [E], dloss [1] -> dlogits [n, c]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(&ins[..at!(row)], outs, 20 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let classes = io.cols(at!(logits));
        let factor = R::from_f64(1.0 / io.rows(at!(logits)).max(1) as f64) * io.input::<R>(at!(dloss))[0];
        let rows =
            io.input::<R>(at!(logits)).chunks_exact(classes).zip(io.out::<R>(0).chunks_exact_mut(classes));
        for (i, (x, dx)) in rows.enumerate() {
            let (largest, powers) = exponentials(x);
            let mut whole = R::ZERO;
            each_entry(io, i, |_, w: R| whole += w);
            for (dx, &x) in dx.iter_mut().zip(x) {
                *dx = whole * (x - largest).exp() / powers * factor;
            }
            each_entry(io, i, |c, w: R| dx[c] = dx[c] - w * factor);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, classes, n) = (io.input::<f32>(at!(logits)), io.cols(at!(logits)), io.rows(at!(logits)));
        let factor = (1.0 / n.max(1) as f64) as f32 * io.input::<f32>(at!(dloss))[0];
        let size = team::piece(n, 16);
        io.out::<f32>(0).chunks_mut(size * classes).enumerate().in_parallel(1, |(piece, out)| {
            for (i, dx) in (piece * size..).zip(out.chunks_exact_mut(classes)) {
                let x = &x[i * classes..][..classes];
                let sum = powers(dx, x, largest_of(x));
                let mut whole = 0.0;
                each_entry(io, i, |_, w: f32| whole += w);
                scale(dx, whole / sum * factor);
                each_entry(io, i, |c, w: f32| dx[c] -= w * factor);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (logits, row, offsets) = (on.input(at!(logits)), on.input(at!(row)), on.input(at!(offsets)));
        let (classes, weights, labelled) =
            (on.input(at!(classes)), on.input(at!(weights)), on.capacity(at!(offsets)) as u32 - 1);
        let (rows, width, entries) =
            (on.rows(at!(logits)), on.cols(at!(logits)), on.capacity(at!(classes)) as u32);
        let (dloss, dlogits, grid) = (on.input(at!(dloss)), on.out(0), Grid::warps(on.capacity(at!(logits))));
        launch!(
            k, on, soft_label_loss_grad[grid];
            logits, row, offsets, classes, weights, dloss, dlogits, rows, width, labelled, entries,
            on.status()
        )
    }
}

/// `[b, C, label rows, most entries of a row]`; `b` of `b + 2` rows are live; some have no label row, and
/// some entries no class; classes may repeat.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 1], &[0, 3, 2, 2], &[7, 5, 3, 4], &[40, 70, 9, 5], &[9, 130, 20, 40], &[3, 4, 1, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 513, 5_000, 40]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[b, classes, labelled, most] = dims else {
        return Err(Error::shape("soft_label_loss", "four sizes"));
    };
    let count = c.count(b);
    let rows = Rows::live(b + 2, count);
    let values: Vec<f32> = (0..rows.capacity * classes).map(|_| 4.0 * c.uniform()).collect();
    let logits = c.values(Spec::real(rows, classes), &values);
    let or_none = |id: usize, n: usize| if id < n { id as u32 } else { NONE };
    let row: Vec<u32> = (0..rows.capacity).map(|_| or_none(c.below(labelled + 1), labelled)).collect();
    let row = c.values(Spec::ids(rows, 1), &row);
    let mut offsets = vec![0];
    for r in 0..labelled {
        offsets.push(offsets[r] + c.below(most + 1) as u32);
    }
    let entries = offsets[labelled] as usize;
    let ids: Vec<u32> = (0..entries).map(|_| or_none(c.below(classes + 1), classes)).collect();
    let labels = SoftLabels {
        offsets: c.ids(&offsets, 1),
        classes: c.ids(&ids, 1),
        weights: c.real_in(entries, 1, |u| 0.5 * (u + 1.0)),
    };
    let loss = c.tape.soft_label_loss(logits, row, labels)?;
    Ok(Built::new(&[loss], &[logits]))
}
