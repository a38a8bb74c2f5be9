//! `y = drop(x P(x))`, where `P(x) = (1 + erf(x / sqrt(2))) / 2` is the normal distribution function
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, d]` f32 | |
//! | `now` | `[1, 2]` or `[1, 3]` u32, only with a dropout | clock of the dropout ([`epilogue`]) |
//! | y | `[n, d]` f32 | |
//!
//! Backward: `dx = dy f (P(x) + x p(x))`, where `p(x) = e^(-x^2 / 2) / sqrt(2 pi)` and `f` is the dropout's
//! factor. Two numbers have the same y, so the backward pass reads `x`, and this is no
//! [`Activation`] of an epilogue.
//! Source: Hendrycks and Gimpel 2016, in the exact form.
use super::{
    epilogue::{Activation, DropRate, Epilogue, case_drop},
    *,
};
use crate::runtime::{
    simd::{self, vectorised},
    team::InParallel,
};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// See the [module](self). The epilogue is a dropout, or nothing.
#[derive(Debug)]
pub struct Gelu(Epilogue);
/// Gradient of `x`.
#[derive(Debug)]
pub struct GeluGrad(Epilogue);

/// Number of elements of a task on the host.
const BLOCK: usize = 16 * 1024;

impl Tape {
    /// Appends [`Gelu`] and returns `x P(x)`, f32 `[n, d]` as `x`, followed by a dropout if a rate and its
    /// clock are given. P is the normal distribution function.
    ///
    /// # Errors
    /// `Shape` if `x` is not f32, or the dropout probability is not in [0, 1).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 3), &[-10.0f32, 0.0, 1.0])?;
    /// let y = tape.gelu(x, None)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let y = program.read::<f32>(y, &store)?;
    /// assert!(y[0].abs() < 1e-6 && y[1] == 0.0 && (y[2] - 0.841345).abs() < 1e-6); // P(1) = 0.841345
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gelu(&mut self, x: Var, drop: Option<(DropRate, Var)>) -> Result<Var> {
        self.check(Gelu::NAME, x)?;
        let Spec { rows, cols, .. } = self.spec(x);
        let drop = Activation::Identity.then_drop(drop).over(rows, cols);
        let ins: Vec<Var> = std::iter::once(x).chain(drop.clock()).collect();
        self.push1(Gelu(drop), &ins)
    }
}

/// Returns P(x).
pub(in crate::ops) fn below<R: Real>(x: R) -> R {
    R::from_f64(0.5) * (R::ONE + (x * R::from_f64(FRAC_1_SQRT_2)).erf())
}

/// Returns p(x).
pub(in crate::ops) fn density<R: Real>(x: R) -> R {
    (-(x * x) * R::from_f64(0.5)).exp() * R::from_f64(1.0 / (2.0 * PI).sqrt())
}

/// As [`below`], for vector code.
#[inline(always)]
pub(in crate::ops) fn fast_below(x: f32) -> f32 {
    simd::erf(x * FRAC_1_SQRT_2 as f32).mul_add(0.5, 0.5)
}

vectorised! {
    fn forward(y: &mut [f32], x: &[f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * fast_below(x);
        }
    }
    fn backward(dx: &mut [f32], x: &[f32], dy: &[f32], peak: f32) {
        for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
            *dx = dy * (x * peak).mul_add(simd::exp(-0.5 * x * x), fast_below(x));
        }
    }
}

impl Op for Gelu {
    const NAME: &'static str = "gelu";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], now? [1, c] ids -> y [n, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.0.clock().is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.0.check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 20 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for (i, (y, &x)) in io.out::<R>(0).iter_mut().zip(io.input::<R>(0)).enumerate() {
            *y = self.0.apply(io, x * below(x), i);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let blocks = io.out::<f32>(0).chunks_mut(BLOCK).zip(io.input::<f32>(0).chunks(BLOCK));
        blocks.enumerate().in_parallel(1, |(at, (y, x))| {
            forward(y, x);
            self.0.drop(io, at * BLOCK, y);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (grid, epilogue) = (Grid::items(on.spec(0).len().div_ceil(4)), self.0.on_device(on));
        launch!(k, on, gelu[grid]; on.input(0), on.out(0), on.rows(0), on.cols(0), epilogue)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        if let Some(dy) = douts[0] {
            let ins: Vec<Var> = [node.ins[0], dy].into_iter().chain(self.0.clock()).collect();
            dins[0] = Some(t.push1(GeluGrad(self.0), &ins)?);
        }
        Ok(dins)
    }
}

impl Op for GeluGrad {
    const NAME: &'static str = "gelu_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], dy [n, d], now? [1, c] ids -> dx [n, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.0.clock().is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.0.check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 40 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, dy) = (io.input::<R>(0), io.input::<R>(1));
        for (i, dx) in io.out::<R>(0).iter_mut().enumerate() {
            *dx = self.0.apply(io, dy[i] * (below(x[i]) + x[i] * density(x[i])), i);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, dy) = (io.input::<f32>(0).chunks(BLOCK), io.input::<f32>(1).chunks(BLOCK));
        let peak = (1.0 / (2.0 * PI).sqrt()) as f32;
        io.out::<f32>(0).chunks_mut(BLOCK).zip(x.zip(dy)).enumerate().in_parallel(
            1,
            |(at, (dx, (x, dy)))| {
                backward(dx, x, dy, peak);
                self.0.drop(io, at * BLOCK, dx);
            },
        );
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (grid, epilogue) = (Grid::items(on.spec(0).len().div_ceil(4)), self.0.on_device(on));
        launch!(k, on, gelu_grad[grid]; on.input(0), on.input(1), on.out(0), on.rows(0), on.cols(0), epilogue)
    }
}

/// `[n, d, dropout in percent]`; `n` of `n + 2` rows are live. Among them sizes that four do not divide, and
/// more than one task.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0], &[0, 4, 30], &[9, 5, 0], &[7, 3, 30], &[33, 64, 10], &[45, 400, 20]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[12_000, 400, 0], &[12_000, 400, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (rows, drop) = (Rows::live(dims[0] + 2, c.count(dims[0])), case_drop(c, dims[2]));
    let values: Vec<f32> = (0..rows.capacity * dims[1]).map(|_| 4.0 * c.uniform()).collect();
    let x = c.values(Spec::real(rows, dims[1]), &values);
    let y = c.tape.gelu(x, drop)?;
    Ok(Built::new(&[y], &[x]))
}
