//! `y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias`, row by row
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, d]` f32 | |
//! | `gain`, `bias` | `[1, d]` f32 | |
//! | y | `[n, d]` f32 | |
//! | stats | `[n, 2]` f32 | mean and `rstd = 1 / sqrt(var + eps)` of each row, for the backward pass |
//!
//! The variance is the mean square of `x - mean`, computed in a second pass over the row.
//!
//! Backward, with `g = dy gain` and `xh` the normalised x: `dx = (g - mean(g) - xh mean(g xh)) rstd`,
//! `dgain = sum dy xh`, `dbias = sum dy`. Deterministic.
//!
//! Source: Ba et al. 2016; eps as in PyTorch.
use super::*;
use crate::runtime::{
    parts,
    simd::{self, vectorised},
    team::InParallel,
};

/// Added to the variance.
pub const EPS: f64 = 1e-5;

/// Maximum number of blocks that sum gradients on a device.
const BLOCKS: usize = 512;
/// Minimum number of rows of such a block.
const BLOCK_ROWS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub struct LayerNorm;
/// Gradients of `x`, `gain` and `bias`.
#[derive(Debug)]
pub struct LayerNormGrad;

impl Tape {
    /// Appends [`LayerNorm`] and returns `y`: every row of `x`, f32 `[n, d]`, with mean 0 and variance 1,
    /// times `gain` plus `bias`, both `[1, d]`.
    ///
    /// # Errors
    /// `Shape` if `x` is not f32 or has no column, or if `gain` or `bias` is not f32 `[1, d]`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[1.0f32, 3.0])?;
    /// let gain = tape.input(&mut store, "gain", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let bias = tape.input(&mut store, "bias", Spec::real(Rows::fixed(1), 2), &[0.0f32, 10.0])?;
    /// let y = tape.layer_norm(x, gain, bias)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The mean is 2 and the variance 1, so the normalised row is -1, 1.
    /// let y = program.read::<f32>(y, &store)?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 12.0).abs() < 1e-4);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn layer_norm(&mut self, x: Var, gain: Var, bias: Var) -> Result<Var> {
        Ok(self.push(LayerNorm, &[x, gain, bias])?[0])
    }
}

vectorised! {
    /// Writes rows of `y` and their stats.
    pub(in crate::ops) fn forward(y: &mut [f32], stats: &mut [f32], x: &[f32], gain: &[f32], bias: &[f32]) {
        let d = gain.len();
        for ((y, s), x) in y.chunks_exact_mut(d).zip(stats.chunks_exact_mut(2)).zip(x.chunks_exact(d)) {
            let mean = simd::sum::<V>(x) / d as f32;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x - mean;
            }
            let rstd = 1.0 / (simd::dot::<V>(y, y) / d as f32 + EPS as f32).sqrt();
            for ((y, &g), &b) in y.iter_mut().zip(gain).zip(bias) {
                *y = (*y * rstd).mul_add(g, b);
            }
            (s[0], s[1]) = (mean, rstd);
        }
    }
    /// Writes rows of `dx`, and adds the rows' terms to `dgb = {dgain | dbias}`.
    fn backward(dx: &mut [f32], dgb: &mut [f32], x: &[f32], gain: &[f32], stats: &[f32], dy: &[f32]) {
        let d = gain.len();
        let (dgain, dbias) = dgb.split_at_mut(d);
        for (((dx, x), s), dy) in
            dx.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(stats.chunks_exact(2)).zip(dy.chunks_exact(d))
        {
            let (mean, rstd) = (s[0], s[1]);
            for (o, &x) in dx.iter_mut().zip(x) {
                *o = (x - mean) * rstd;
            }
            for (((dg, db), &xh), &dy) in dgain.iter_mut().zip(dbias.iter_mut()).zip(&*dx).zip(dy) {
                *dg = dy.mul_add(xh, *dg);
                *db += dy;
            }
            let mean_g = simd::dot::<V>(dy, gain) / d as f32;
            let mean_gx = simd::dot3::<V>(dy, gain, dx) / d as f32;
            for ((xh, &dy), &g) in dx.iter_mut().zip(dy).zip(gain) {
                *xh = (dy * g - mean_g - *xh * mean_gx) * rstd;
            }
        }
    }
}

impl Op for LayerNorm {
    const NAME: &'static str = "layer_norm";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], gain [1, d], bias [1, d] -> y [n, d], stats [n, 2]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[0])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 8 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        normalised(io.input::<R>(0), io.input(1), io.input(2), io.out(0), io.out(1));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, gain, bias) = (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2));
        let (d, size) = (gain.len().max(1), parts::part_rows(io.rows(0)));
        io.out::<f32>(0)
            .chunks_mut(size * d)
            .zip(io.out::<f32>(1).chunks_mut(size * 2))
            .zip(x.chunks(size * d))
            .in_parallel(1, |((y, s), x)| forward(y, s, x, gain, bias));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, gain, bias, y, stats) = (on.input(0), on.input(1), on.input(2), on.out(0), on.out(1));
        launch!(
            k, on, layer_norm[Grid::warps(on.capacity(0))];
            x, gain, bias, y, stats, on.rows(0), on.cols(0), EPS as f32
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 3]) };
        let d = t.push(LayerNormGrad, &[node.ins[0], node.ins[1], node.outs[1], dy])?;
        Ok(d.into_iter().map(Some).collect())
    }
}

/// Returns the mean and `rstd` of a row.
pub(in crate::ops) fn moments<R: Real>(x: &[R]) -> (R, R) {
    let d = R::from_f64(x.len() as f64);
    let mean = x.iter().copied().sum::<R>() / d;
    let var = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<R>() / d;
    (mean, R::ONE / (var + R::from_f64(EPS)).sqrt())
}

/// Writes `y` and `stats` for the rows `x`, by definition.
pub(in crate::ops) fn normalised<R: Real>(x: &[R], gain: &[R], bias: &[R], y: &mut [R], stats: &mut [R]) {
    let d = gain.len().max(1);
    for ((x, y), stats) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(stats.chunks_exact_mut(2)) {
        let (mean, rstd) = moments(x);
        for j in 0..d {
            y[j] = (x[j] - mean) * rstd * gain[j] + bias[j];
        }
        (stats[0], stats[1]) = (mean, rstd);
    }
}

/// Writes the gradients for the rows `x` and `dy`, by definition.
pub(in crate::ops) fn gradients<R: Real>(
    x: &[R],
    gain: &[R],
    dy: &[R],
    dx: &mut [R],
    dgain: &mut [R],
    dbias: &mut [R],
) {
    let d = gain.len().max(1);
    dgain.fill(R::ZERO);
    dbias.fill(R::ZERO);
    for ((x, dy), dx) in x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
        let (mean, rstd) = moments(x);
        let xh = |j: usize| (x[j] - mean) * rstd;
        let width = R::from_f64(d as f64);
        let mean_g = (0..d).map(|j| dy[j] * gain[j]).sum::<R>() / width;
        let mean_gx = (0..d).map(|j| dy[j] * gain[j] * xh(j)).sum::<R>() / width;
        for j in 0..d {
            dx[j] = (dy[j] * gain[j] - mean_g - xh(j) * mean_gx) * rstd;
            dgain[j] += dy[j] * xh(j);
            dbias[j] += dy[j];
        }
    }
}

/// Computes the gradients on the host and returns `dx`.
///
/// Inputs 0 to 3 are `x`, `gain`, `stats` and `dy`; output 0 is `dx`, and `weights` holds the output indices
/// of `dgain` and `dbias`. `then` is called with each chunk of rows of `dx` while they are in cache: with the
/// index of their first element, the rows of `dx`, and the same rows of `x`.
pub(in crate::ops) fn gradients_on_host<'a>(
    io: &Io<'a>,
    weights: [usize; 2],
    then: impl Fn(usize, &mut [f32], &[f32]) + Sync,
) -> &'a [f32] {
    let (x, gain, stats, dy) =
        (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2), io.input::<f32>(3));
    let (d, n) = (gain.len().max(1), io.rows(0));
    let size = parts::part_rows(n);
    let (sum, partials) = io.scratch::<f32>().split_at_mut(2 * d);
    let partials = &mut partials[..2 * d * n.div_ceil(size)];
    partials.fill(0.0);
    let whole_dx = io.out::<f32>(0);
    whole_dx.chunks_mut(size * d).zip(partials.chunks_exact_mut(2 * d)).enumerate().in_parallel(
        1,
        |(i, (dx, dgb))| {
            let rows = i * size..i * size + dx.len() / d;
            let elements = rows.start * d..rows.end * d;
            let x = &x[elements.clone()];
            backward(dx, dgb, x, gain, &stats[2 * rows.start..2 * rows.end], &dy[elements.clone()]);
            then(elements.start, dx, x);
        },
    );
    sum.fill(0.0);
    parts::add_column_sums(sum, partials);
    let [dgain, dbias] = weights.map(|index| io.out::<f32>(index));
    dgain.copy_from_slice(&sum[..d]);
    dbias.copy_from_slice(&sum[d..]);
    whole_dx
}

/// Returns the scratch size of the gradients for rows of width `d`, enough for host and device.
pub(in crate::ops) fn gradient_scratch(d: usize) -> usize {
    2 * (parts::PARTS + 1).max(BLOCKS) * d
}

/// Returns the grid of the gradient kernels for `rows` rows, and the rows of each block.
pub(in crate::ops) fn gradient_blocks(rows: usize) -> (Grid, u32) {
    let block_rows = rows.div_ceil(BLOCKS).max(BLOCK_ROWS);
    (Grid::new(rows.div_ceil(block_rows), Grid::THREADS), block_rows as u32)
}

impl Op for LayerNormGrad {
    const NAME: &'static str = "layer_norm_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], gain [1, d], stats [n, 2], dy [n, d] \
        -> dx [n, d], dgain [1, d], dbias [1, d]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[0])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        gradient_scratch(ins[0].cols)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 14 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, gain, dy) = (io.input::<R>(0), io.input(1), io.input(3));
        gradients(x, gain, dy, io.out(0), io.out(1), io.out(2));
    }
    fn cpu(&self, io: &Io<'_>) {
        gradients_on_host(io, [1, 2], |_, _, _| {});
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, rows, sums, (grid, block_rows)) =
            (on.cols(0), on.rows(0), on.scratch(), gradient_blocks(on.capacity(0)));
        let (x, gain, stats, dy) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let (dx, dgain, dbias, ticket) = (on.out(0), on.out(1), on.out(2), on.tickets());
        launch!(
            k, on, layer_norm_grad[grid];
            x, gain, stats, dy, dx, sums, ticket, dgain, dbias, rows, d, block_rows
        )
    }
}

/// `[n, d]`; a row of one number normalises to 0, so only the bias has a non-zero gradient.
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1], &[0, 4], &[3, 10], &[65, 100], &[18, 260], &[2, 35]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, gain, bias) = (c.real(dims[0], dims[1]), c.real(1, dims[1]), c.real(1, dims[1]));
    let y = c.tape.layer_norm(x, gain, bias)?;
    Ok(Built::new(&[y], &[x, gain, bias]))
}
