//! `y = x1 W1^T + x2 W2^T + b`: the sum of two linear maps, such as the pre-activations of a recurrent cell's
//! gates
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x1`, `x2` | `[n, k1]`, `[n, k2]` f32 | for example an input and a state |
//! | `W1`, `W2` | `[m, k1]`, `[m, k2]` f32 | weights, as PyTorch's `Linear` |
//! | `b` | `[1, m]` f32 | bias |
//! | y | `[n, m]` f32 | |
//!
//! Backward: `dx_i = dy W_i`, `dW_i = dy^T x_i`, `db = sum_n dy`. Deterministic: weight gradients are summed
//! over a fixed number of row chunks.
//!
//! On the host a range of rows stays in a core's cache for both products, and its rows of `dy` for all five
//! gradients. So `y`, much wider than the inputs, is written once and `dy` read once; two [`linear`]s and
//! their gradients would pass over memory seven times. On a device the op launches the kernels of [`linear`].
use super::{
    epilogue::{Activation, Epilogue},
    linear::add_bias,
    *,
};
use crate::runtime::{
    matmul::{CACHED, Mat, MatMut, matmul, row_parts, split_rows},
    parts::{self, PARTS, add_column_sums},
    team::{self, InParallel},
};
use std::{ops::Range, ptr::null};

/// See the [module](self).
#[derive(Debug)]
pub struct LinearSum;
/// `dx_1`, `dW_1`, `dx_2`, `dW_2` and `db`.
#[derive(Debug)]
pub struct LinearSumGrad;

impl Tape {
    /// Appends [`LinearSum`] and returns `y = x1 W1^T + x2 W2^T + b`; `first` and `second` are `(x, W)` of
    /// the two maps.
    ///
    /// # Errors
    /// `Shape` if types or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x1 = tape.input(&mut store, "x1", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let w1 = tape.input(&mut store, "w1", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// let x2 = tape.input(&mut store, "x2", Spec::real(Rows::fixed(1), 1), &[5.0f32])?;
    /// let w2 = tape.input(&mut store, "w2", Spec::real(Rows::fixed(1), 1), &[6.0f32])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 1), &[7.0f32])?;
    /// let y = tape.linear_sum((x1, w1), (x2, w2), b)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [48.0]); // 11 + 30 + 7
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn linear_sum(&mut self, first: (Var, Var), second: (Var, Var), bias: Var) -> Result<Var> {
        self.push1(LinearSum, &[first.0, first.1, second.0, second.1, bias])
    }
}

/// Input indices; `X` and `W` have one index for each map.
impl LinearSum {
    const X: [usize; 2] = [0, 2];
    const W: [usize; 2] = [1, 3];
}

impl Op for LinearSum {
    const NAME: &'static str = "linear_sum";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x1 [n, k], w1 [m, k], x2 [n, l], w2 [m, l], b [1, m] -> y [n, m]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let k: usize = Self::X.iter().map(|&x| ins[x].cols).sum();
        Cost::streaming(ins, outs, 2 * outs[0].len() * k)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (m, b) = (io.out_cols(0), io.input::<R>(at!(b)));
        let ([x1, x2], [w1, w2]) = (Self::X.map(|x| io.input::<R>(x)), Self::W.map(|w| io.input::<R>(w)));
        let [k1, k2] = Self::X.map(|x| io.cols(x));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j) = (at / m, at % m);
            let product = |x: &[R], w: &[R], k: usize| -> R {
                x[i * k..][..k].iter().zip(&w[j * k..]).map(|(&x, &w)| x * w).sum()
            };
            *y = product(x1, w1, k1) + product(x2, w2, k2) + b[j];
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, m) = (io.rows(Self::X[0]), io.out_cols(0));
        if m == 0 {
            return;
        }
        let ks = Self::X.map(|x| io.cols(x));
        let chunks = row_parts(n, m, ks[0].min(ks[1]));
        split_rows(io.out(0), &chunks, m).into_iter().zip(&chunks).in_parallel(1, |(y, rows)| {
            for (map, k) in ks.into_iter().enumerate() {
                let x = Mat::new(io.input(Self::X[map]), n, k);
                let w = Mat::new(io.input(Self::W[map]), m, k);
                matmul(MatMut::new(y, rows.len(), m), x.rows(rows), w.t(), map > 0);
            }
            add_bias(y, io.input(at!(b)), false);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, rows, y) = (on.out_cols(0), on.rows(Self::X[0]), on.out::<f32>(0));
        let grid = Grid::tiles(on.capacity(Self::X[0]), m as usize);
        let identity = Epilogue::from(Activation::Identity);
        for map in 0..2 {
            let (x, w, depth) = (on.input(Self::X[map]), on.input(Self::W[map]), on.cols(Self::X[map]));
            // The second map takes the result of the first as its residual.
            let (bias, residual) =
                if map == 0 { (on.input(at!(b)), null()) } else { (null(), y.cast_const()) };
            launch!(
                k, on, linear[grid];
                x, w, bias, residual, y, rows, depth, m, identity.on_device(on), on.precision()
            )?;
        }
        Ok(())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 5]) };
        let ins: Vec<Var> = std::iter::once(dy).chain(node.ins[..4].iter().copied()).collect();
        Ok(t.push(LinearSumGrad, &ins)?.into_iter().map(Some).collect())
    }
}

impl LinearSumGrad {
    // Input and output indices; the arrays have one index for each map.
    const X: [usize; 2] = [1, 3];
    const W: [usize; 2] = [2, 4];
    const DX: [usize; 2] = [0, 2];
    const DW: [usize; 2] = [1, 3];
    const DB: usize = 4;

    /// Returns the number of elements of the gradients of weights and bias.
    fn learned(ins: &[Spec]) -> usize {
        ins[at!(dy)].cols * (ins[Self::X[0]].cols + ins[Self::X[1]].cols + 1)
    }
    /// Returns the grid of one map's weight gradient: the tiles of `{dW | db}`, times the chunks of the rows.
    fn weight_grid(dy: &Spec, x: &Spec) -> Grid {
        Grid::tiles(dy.cols, x.cols + 1).over_rows(dy.rows.capacity)
    }
    fn weight_grids(ins: &[Spec]) -> [Grid; 2] {
        Self::X.map(|x| Self::weight_grid(&ins[at!(dy)], &ins[x]))
    }
}

impl Op for LinearSumGrad {
    const NAME: &'static str = "linear_sum_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dy [n, m], x1 [n, k], w1 [m, k], x2 [n, l], w2 [m, l] \
        -> dx1 [n, k], dw1 [m, k], dx2 [n, l], dw2 [m, l], db [1, m]";
    fn scratch(&self, ins: &[Spec]) -> usize {
        let on_device = Self::weight_grids(ins).map(Grid::tile_parts);
        (PARTS * Self::learned(ins)).max(on_device[0].max(on_device[1]))
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::weight_grids(ins).map(Grid::count).iter().sum()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let k: usize = Self::X.iter().map(|&x| ins[x].cols).sum();
        Cost::streaming(ins, outs, 4 * ins[at!(dy)].len() * k)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dy, n, m) = (io.input::<R>(at!(dy)), io.rows(at!(dy)), io.cols(at!(dy)));
        for map in 0..2 {
            let (x, w) = (io.input::<R>(Self::X[map]), io.input::<R>(Self::W[map]));
            let k = io.cols(Self::X[map]);
            for (at, dx) in io.out::<R>(Self::DX[map]).iter_mut().enumerate() {
                *dx = (0..m).map(|j| dy[at / k * m + j] * w[j * k + at % k]).sum();
            }
            for (at, dw) in io.out::<R>(Self::DW[map]).iter_mut().enumerate() {
                *dw = (0..n).map(|i| dy[i * m + at / k] * x[i * k + at % k]).sum();
            }
        }
        for (j, db) in io.out::<R>(Self::DB).iter_mut().enumerate() {
            *db = (0..n).map(|i| dy[i * m + j]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dy, n, m) = (io.input::<f32>(at!(dy)), io.rows(at!(dy)), io.cols(at!(dy)));
        let ks = Self::X.map(|x| io.cols(x));
        if m == 0 {
            Self::DX.into_iter().for_each(|dx| io.out::<f32>(dx).fill(0.0));
            return;
        }
        let learned = m * (ks[0] + ks[1] + 1);
        let size = parts::part_rows(n);
        let chunks: Vec<Range<usize>> =
            (0..n).step_by(size).map(|first| first..n.min(first + size)).collect();
        let partials = &mut io.scratch::<f32>()[..chunks.len() * learned];
        partials.fill(0.0);
        let cached_rows = (CACHED / size_of::<f32>()).div_ceil(m);
        let dx1 = split_rows(io.out(Self::DX[0]), &chunks, ks[0]);
        let dx2 = split_rows(io.out(Self::DX[1]), &chunks, ks[1]);
        let outs = dx1.into_iter().zip(dx2).zip(partials.chunks_mut(learned));
        outs.zip(&chunks).in_parallel(1, |(((dx1, dx2), partial), chunk)| {
            let mut dxs = [dx1, dx2];
            for first in chunk.clone().step_by(cached_rows) {
                let rows = first..chunk.end.min(first + cached_rows);
                let dy_rows = Mat::new(dy, n, m).rows(&rows);
                let mut offset = 0;
                for (map, dx) in dxs.iter_mut().enumerate() {
                    let k = ks[map];
                    let x = Mat::new(io.input(Self::X[map]), n, k);
                    let w = Mat::new(io.input(Self::W[map]), m, k);
                    if io.wanted(Self::DX[map]) {
                        let dx = &mut dx[(rows.start - chunk.start) * k..(rows.end - chunk.start) * k];
                        matmul(MatMut::new(dx, rows.len(), k), dy_rows, w, false);
                    }
                    let dw = MatMut::new(&mut partial[offset..offset + m * k], m, k);
                    matmul(dw, dy_rows.t(), x.rows(&rows), true);
                    offset += m * k;
                }
                add_column_sums(&mut partial[offset..], &dy[rows.start * m..rows.end * m]);
            }
        });
        let mut offset = 0;
        for (out, len) in [(Self::DW[0], m * ks[0]), (Self::DW[1], m * ks[1]), (Self::DB, m)] {
            let (share, partials) = (team::share(len), &*partials);
            io.out::<f32>(out).chunks_mut(share).enumerate().in_parallel(1, |(i, sum)| {
                sum.fill(0.0);
                for partial in partials.chunks_exact(learned) {
                    add_column_sums(sum, &partial[offset + i * share..][..sum.len()]);
                }
            });
            offset += len;
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (dy, rows, m) = (on.input(at!(dy)), on.rows(at!(dy)), on.cols(at!(dy)));
        let (scratch, mut tickets) = (on.scratch(), on.tickets());
        for map in 0..2 {
            let (x, w, depth) = (on.input(Self::X[map]), on.input(Self::W[map]), on.cols(Self::X[map]));
            if on.wanted(Self::DX[map]) {
                let grid = Grid::tiles(on.capacity(at!(dy)), depth as usize);
                let dx = on.out(Self::DX[map]);
                launch!(k, on, linear_input_grad[grid]; dy, w, dx, rows, m, depth, on.precision())?;
            }
            let grid = Self::weight_grid(&on.spec(at!(dy)), &on.spec(Self::X[map]));
            // Both launches write the same db.
            let (dw, db) = (on.out(Self::DW[map]), on.out(Self::DB));
            launch!(
                k, on, linear_weight_grad[grid];
                dy, x, scratch, tickets, dw, db, rows, m, depth, on.precision()
            )?;
            tickets = tickets.wrapping_add(grid.count());
        }
        Ok(())
    }
}

/// `[n, k1, k2, m]`; `n` of `n + 2` rows are live.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1],
    &[0, 5, 3, 2],
    &[9, 0, 3, 7],
    &[4, 2, 3, 0],
    &[9, 5, 3, 70],
    &[40, 64, 20, 65],
    &[70, 7, 3, 33],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 64, 64, 256], &[10_000, 64, 64, 64]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k1, k2, m] = *dims else { return Err(Error::shape("linear_sum", "four sizes")) };
    let count = c.count(n);
    let [first, second] = [k1, k2].map(|k| (c.live_real(n + 2, count, k), c.real(m, k)));
    let b = c.real(1, m);
    let y = c.tape.linear_sum(first, second, b)?;
    Ok(Built::new(&[y], &[first.0, first.1, second.0, second.1, b]))
}
