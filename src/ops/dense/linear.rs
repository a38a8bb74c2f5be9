//! `y = drop(act(x W^T + b + r))`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, k]` f32 | |
//! | `W` | `[m, k]` f32 | weights, as PyTorch's `Linear` |
//! | `b` | `[1, m]` f32, optional | bias |
//! | `r` | `[n, m]` f32, optional | residual; a second product can be accumulated this way without a copy |
//! | `now` | `[1, 2]` or `[1, 3]` u32, with dropout only | clock of the dropout ([`Epilogue`]) |
//! | y | `[n, m]` f32 | |
//!
//! Backward: `dz` is computed from `dy` by the [`epilogue`]; `dx = dz W`, `dW = dz^T x`, `db = sum_n dz`,
//! `dr = dz`. Deterministic.
use super::{
    epilogue::{Activation, Epilogue, above_zero, case_drop},
    *,
};
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long, row_parts, split_rows},
    parts, simd,
    simd::vectorised,
    team::InParallel,
};

/// Largest width of a narrow map, which has a kernel of its own (`NARROW` in `kernels/linear.cu`).
const NARROW: u32 = 32;

/// See the [module](self).
#[derive(Debug)]
pub struct Linear {
    epilogue: Epilogue,
    bias: bool,
    residual: bool,
}
/// `dx = dz W`
#[derive(Debug)]
pub struct LinearInputGrad;
/// `dW = dz^T x` and `db = sum_n dz`
#[derive(Debug)]
pub struct LinearWeightGrad;

impl Tape {
    /// Appends [`Linear`] and returns `y = epilogue(x W^T + bias + residual)`, f32 `[n, m]`, for `x` `[n, k]`
    /// and `W` `[m, k]`. The epilogue may be a plain [`Activation`].
    ///
    /// # Errors
    /// `Shape` if types or widths do not fit, or the dropout probability is not in [0, 1).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{epilogue::Activation, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(2), 2), &[3.0f32, 4.0, 5.0, -6.0])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 2), &[10.0f32, 0.0])?;
    /// let y = tape.linear(x, w, Some(b), None, Activation::Relu)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [21.0, 0.0]); // relu(11 + 10), relu(-7)
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn linear(
        &mut self,
        x: Var,
        w: Var,
        bias: Option<Var>,
        residual: Option<Var>,
        epilogue: impl Into<Epilogue>,
    ) -> Result<Var> {
        self.check(Linear::NAME, x)?;
        self.check(Linear::NAME, w)?;
        let epilogue = epilogue.into().over(self.spec(x).rows, self.spec(w).rows.capacity);
        let ins: Vec<Var> =
            [Some(x), Some(w), bias, residual, epilogue.clock()].into_iter().flatten().collect();
        self.push1(Linear { epilogue, bias: bias.is_some(), residual: residual.is_some() }, &ins)
    }
}

vectorised! {
    /// Adds the bias to every row, then applies relu if `relu` is set.
    pub(in crate::ops) fn add_bias(rows: &mut [f32], bias: &[f32], relu: bool) {
        for row in rows.chunks_exact_mut(bias.len()) {
            simd::add_assign(row, bias);
            if relu {
                for z in row.iter_mut() {
                    *z = above_zero(*z);
                }
            }
        }
    }
    fn relu(row: &mut [f32]) {
        for z in row.iter_mut() {
            *z = above_zero(*z);
        }
    }
}

/// Whether a map from `depth` to `m` columns is narrow.
fn is_narrow(depth: u32, m: u32) -> bool {
    [depth, m].iter().all(|width| (1..=NARROW).contains(width))
}

impl Linear {
    /// Returns the input index of the bias.
    fn bias(&self) -> Option<usize> {
        self.bias.then_some(2)
    }
    /// Returns the input index of the residual.
    fn residual(&self) -> Option<usize> {
        self.residual.then_some(2 + usize::from(self.bias))
    }
}

impl Op for Linear {
    const NAME: &'static str = "linear";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, k], w [m, k], bias? [1, m], residual? [n, m], now? [1, c] ids \
        -> y [n, m]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "bias" => self.bias,
            "residual" => self.residual,
            _ => self.epilogue.clock().is_some(),
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.epilogue.check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len() * ins[at!(x)].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, w, k) = (io.input::<R>(at!(x)), io.input::<R>(at!(w)), io.cols(at!(x)));
        let m = io.out_cols(0);
        let bias = self.bias().map(|b| io.input::<R>(b));
        let residual = self.residual().map(|r| io.input::<R>(r));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j) = (at / m, at % m);
            let product: R = (0..k).map(|l| x[i * k + l] * w[j * k + l]).sum();
            let z = product + bias.map_or(R::ZERO, |b| b[j]) + residual.map_or(R::ZERO, |r| r[at]);
            *y = self.epilogue.apply(io, z, at);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k, m) = (io.rows(at!(x)), io.cols(at!(x)), io.out_cols(0));
        let y = io.out::<f32>(0);
        if m == 0 {
            return;
        }
        let residual = self.residual().map(|r| io.input::<f32>(r));
        let (bias, act) = (self.bias().map(|b| io.input::<f32>(b)), self.epilogue.act);
        let (x, w) = (Mat::new(io.input(at!(x)), n, k), Mat::new(io.input(at!(w)), m, k));
        let chunks = row_parts(n, m, k);
        split_rows(y, &chunks, m).into_iter().zip(&chunks).in_parallel(1, |(y, rows)| {
            if let Some(residual) = residual {
                y.copy_from_slice(&residual[rows.start * m..rows.end * m]);
            }
            matmul(MatMut::new(y, rows.len(), m), x.rows(rows), w.t(), self.residual);
            match bias {
                Some(b) => add_bias(y, b, act == Activation::Relu),
                None if act == Activation::Relu => relu(y),
                None => {}
            }
            if !matches!(act, Activation::Identity | Activation::Relu) {
                y.iter_mut().for_each(|z| *z = act.apply(*z));
            }
            self.epilogue.drop(io, rows.start * m, y);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (depth, m) = (on.cols(at!(x)), on.out_cols(0));
        let bias = self.bias().map_or(std::ptr::null(), |b| on.input(b));
        let residual = self.residual().map_or(std::ptr::null(), |r| on.input(r));
        let (x, w, y, rows) = (on.input(at!(x)), on.input(at!(w)), on.out(0), on.rows(at!(x)));
        let epilogue = self.epilogue.on_device(on);
        if is_narrow(depth, m) {
            let grid = Grid::items(on.capacity(at!(x)));
            return launch!(k, on, linear_narrow[grid]; x, w, bias, residual, y, rows, depth, m, epilogue);
        }
        let grid = Grid::tiles(on.capacity(at!(x)), m as usize);
        launch!(
            k, on, linear[grid];
            x, w, bias, residual, y, rows, depth, m, epilogue, on.precision()
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let (x, w) = (node.ins[at!(x)], node.ins[at!(w)]);
        let Some(dy) = douts[0] else { return Ok(vec![None; node.ins.len()]) };
        let dz = self.epilogue.grad(t, node.outs[0], dy)?;
        let dx = t.push1(LinearInputGrad, &[dz, w])?;
        let dw = t.push(LinearWeightGrad, &[dz, x])?;
        let mut dins = vec![Some(dx), Some(dw[0])];
        dins.extend(self.bias.then_some(Some(dw[1])));
        dins.extend(self.residual.then_some(Some(dz)));
        dins.extend(self.epilogue.clock().map(|_| None));
        Ok(dins)
    }
}

impl Op for LinearInputGrad {
    const NAME: &'static str = "linear_input_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dz [n, m], w [m, k] -> dx [n, k]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len() * ins[0].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dz, w, m, k) = (io.input::<R>(0), io.input::<R>(1), io.cols(0), io.cols(1));
        for (at, dx) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, l) = (at / k, at % k);
            *dx = (0..m).map(|j| dz[i * m + j] * w[j * k + l]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, m, k) = (io.rows(0), io.cols(0), io.cols(1));
        let (dz, w) = (Mat::new(io.input(0), n, m), Mat::new(io.input(1), m, k));
        matmul(MatMut::new(io.out(0), n, k), dz, w, false);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, depth) = (on.cols(0), on.cols(1));
        let (dz, w, dx, rows) = (on.input(0), on.input(1), on.out(0), on.rows(0));
        if is_narrow(depth, m) {
            let grid = Grid::items(on.capacity(0));
            return launch!(k, on, linear_narrow_input_grad[grid]; dz, w, dx, rows, m, depth);
        }
        let grid = Grid::tiles(on.capacity(0), depth as usize);
        launch!(k, on, linear_input_grad[grid]; dz, w, dx, rows, m, depth, on.precision())
    }
}

impl LinearWeightGrad {
    /// Returns the grid: the tiles of `{dW | db}`, times the chunks of the rows.
    fn grid(dz: &Spec, x: &Spec) -> Grid {
        Grid::tiles(dz.cols, x.cols + 1).over_rows(dz.rows.capacity)
    }
}

impl Op for LinearWeightGrad {
    const NAME: &'static str = "linear_weight_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dz [n, m], x [n, k] -> dw [m, k], db [1, m]";
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (m, k) = (ins[0].cols, ins[1].cols);
        (parts::PARTS * m + m * k).max(Self::grid(&ins[0], &ins[1]).tile_parts())
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grid(&ins[0], &ins[1]).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[0].len() * ins[1].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dz, x, n, m, k) = (io.input::<R>(0), io.input::<R>(1), io.rows(0), io.cols(0), io.cols(1));
        for (at, dw) in io.out::<R>(0).iter_mut().enumerate() {
            let (j, l) = (at / k, at % k);
            *dw = (0..n).map(|i| dz[i * m + j] * x[i * k + l]).sum();
        }
        for (j, db) in io.out::<R>(1).iter_mut().enumerate() {
            *db = (0..n).map(|i| dz[i * m + j]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, m, k) = (io.rows(0), io.cols(0), io.cols(1));
        let dz = io.input::<f32>(0);
        let (half_sums, partials) = io.scratch::<f32>().split_at_mut(m * k);
        let x = Mat::new(io.input(1), n, k);
        matmul_long(MatMut::new(io.out(0), m, k), Mat::new(dz, n, m).t(), x, false, half_sums);
        if io.wanted(1) {
            parts::column_sums(io.out(1), dz, partials);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (dz, x, dw, db) = (on.input(0), on.input(1), on.out(0), on.out(1));
        let (grid, sums, tickets) = (Self::grid(&on.spec(0), &on.spec(1)), on.scratch(), on.tickets());
        let (m, depth) = (on.cols(0), on.cols(1));
        launch!(
            k, on, linear_weight_grad[grid];
            dz, x, sums, tickets, dw, db, on.rows(0), m, depth, on.precision()
        )
    }
}

/// `[n, k, m, activation, bias and residual, dropout in percent]`; `n` of `n + 2` rows are live. One element,
/// no row, ragged and full tiles; narrow maps, of which the last has sums of more parts than a block adds.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 1, 0],
    &[0, 5, 3, 0, 1, 30],
    &[9, 5, 3, 2, 0, 0],
    &[33, 100, 50, 1, 1, 0],
    &[5, 7, 4, 3, 1, 0],
    &[6, 3, 8, 4, 0, 0],
    &[300, 172, 100, 1, 1, 0],
    &[33, 5, 7, 0, 0, 30],
    &[40, 6, 50, 1, 1, 20],
    &[9, 5, 3, 2, 1, 40],
    &[5, 7, 4, 3, 0, 30],
    &[70, 3, 65, 4, 1, 50],
    &[300, 20, 100, 1, 1, 10],
    &[300, 32, 32, 1, 1, 30],
    &[600, 20, 10, 0, 0, 0],
    &[2_500, 2, 3, 0, 1, 10],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[
    &[700, 100, 100, 0, 1, 0],
    &[1_800, 100, 100, 1, 1, 0],
    &[36_000, 100, 400, 0, 1, 0],
    &[180_000, 20, 10, 0, 1, 10],
];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (n, k, m) = (dims[0], dims[1], dims[2]);
    let act = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu(0.2),
        Activation::Tanh,
        Activation::Sigmoid,
    ][dims[3]]
        .then_drop(case_drop(c, dims[5]));
    let count = c.count(n);
    let x = c.live_real(n + 2, count, k);
    let w = c.real(m, k);
    if dims[4] == 0 {
        let y = c.tape.linear(x, w, None, None, act)?;
        return Ok(Built::new(&[y], &[x, w]));
    }
    let (b, r) = (c.real(1, m), c.live_real(n + 2, count, m));
    let y = c.tape.linear(x, w, Some(b), Some(r), act)?;
    Ok(Built::new(&[y], &[x, w, b, r]))
}
