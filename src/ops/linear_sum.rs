//! `y = x1 W1^T + x2 W2^T + b`: the sum of two maps, such as what the gates of a cell are functions of
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x1`, `x2` | `[n, k1]`, `[n, k2]` f32 | an input and a state, say |
//! | `W1`, `W2` | `[m, k1]`, `[m, k2]` f32 | weights, as PyTorch's `Linear` |
//! | `b` | `[1, m]` f32 | bias |
//! | y | `[n, m]` f32 | |
//!
//! Backward: `dx_i = dy W_i`, `dW_i = dy^T x_i`, `db = sum_n dy`. On the host a run of rows stays in a core's cache for both
//! products, and its dy for all five gradients: y, much wider than what goes in, is written once and dy read
//! once, where two [`linear`]s and their gradients would go through memory seven times. On a device the kernels are theirs.
//! Deterministic: gradients of weights add up over a fixed number of parts.
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
    /// Appends [`LinearSum`] of two pairs of rows and weights.
    ///
    /// # Errors
    /// `Shape` when types or widths do not fit.
    pub fn linear_sum(&mut self, first: (Var, Var), second: (Var, Var), bias: Var) -> Result<Var> {
        self.push1(LinearSum, &[first.0, first.1, second.0, second.1, bias])
    }
}

impl Op for LinearSum {
    const NAME: &'static str = "linear_sum";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 5)?;
        let m = ins[1].rows.capacity;
        for of in [0, 2] {
            let (x, w) = (&ins[of], &ins[of + 1]);
            typed(Self::NAME, "x", x, DType::F32)?;
            typed(Self::NAME, "w", w, DType::F32)?;
            ensure!(Self::NAME, x.rows == ins[0].rows, "rows are {} and {x}", ins[0]);
            shaped(Self::NAME, "w", w, m, x.cols)?;
        }
        typed(Self::NAME, "bias", &ins[4], DType::F32)?;
        shaped(Self::NAME, "bias", &ins[4], 1, m)?;
        Ok(vec![Spec::real(ins[0].rows, m).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len() * (ins[0].cols + ins[2].cols))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (m, b) = (io.out_cols(0), io.input::<R>(4));
        let [x1, w1, x2, w2] = [0, 1, 2, 3].map(|i| io.input::<R>(i));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j) = (at / m, at % m);
            let product = |x: &[R], w: &[R], k: usize| -> R {
                x[i * k..][..k].iter().zip(&w[j * k..]).map(|(&x, &w)| x * w).sum()
            };
            *y = product(x1, w1, io.cols(0)) + product(x2, w2, io.cols(2)) + b[j];
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, m) = (io.rows(0), io.out_cols(0));
        if m == 0 {
            return;
        }
        let parts = row_parts(n, m, io.cols(0).min(io.cols(2)));
        split_rows(io.out(0), &parts, m).into_iter().zip(&parts).in_parallel(1, |(y, rows)| {
            for of in [0, 2] {
                let k = io.cols(of);
                let (x, w) = (Mat::new(io.input(of), n, k), Mat::new(io.input(of + 1), m, k));
                matmul(MatMut::new(y, rows.len(), m), x.rows(rows), w.t(), of > 0);
            }
            add_bias(y, io.input(4), false);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, rows, y) = (on.out_cols(0), on.rows(0), on.out::<f32>(0));
        let grid = Grid::tiles(on.capacity(0), m as usize);
        let then = Epilogue::from(Activation::Identity);
        for of in [0, 2] {
            let (x, w) = (on.input(of), on.input(of + 1));
            let (bias, sum) = if of == 0 { (on.input(4), null()) } else { (null(), y.cast_const()) };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.linear(
                    on,
                    grid,
                    x,
                    w,
                    bias,
                    sum,
                    y,
                    rows,
                    on.cols(of),
                    m,
                    then.on_device(on),
                    on.precision(),
                )
            }?;
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
    /// Numbers of the gradients of weights and bias.
    fn learned(ins: &[Spec]) -> usize {
        ins[0].cols * (ins[1].cols + ins[3].cols + 1)
    }
    /// Tiles of `{dW | db}` of a pair, and parts of the rows.
    fn grid(dy: &Spec, x: &Spec) -> Grid {
        Grid::tiles(dy.cols, x.cols + 1).parts(Grid::parts_of(dy.rows.capacity))
    }
}

impl Op for LinearSumGrad {
    const NAME: &'static str = "linear_sum_grad";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 5)?;
        let db = Spec::real(Rows::fixed(1), ins[0].cols);
        let y = Op::infer(&LinearSum, &[ins[1], ins[2], ins[3], ins[4], db])?[0].spec;
        ensure!(Self::NAME, ins[0] == y, "y is {y}, dy is {}", ins[0]);
        Ok([ins[1], ins[2], ins[3], ins[4], db].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let on_device = [1, 3].map(|x| Self::grid(&ins[0], &ins[x]).tile_parts());
        (PARTS * Self::learned(ins)).max(on_device[0].max(on_device[1]))
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        [1, 3].map(|x| Self::grid(&ins[0], &ins[x]).parts(1).count()).iter().sum()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 4 * ins[0].len() * (ins[1].cols + ins[3].cols))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dy, n, m) = (io.input::<R>(0), io.rows(0), io.cols(0));
        for of in [1, 3] {
            let (x, w, k) = (io.input::<R>(of), io.input::<R>(of + 1), io.cols(of));
            for (at, dx) in io.out::<R>(of - 1).iter_mut().enumerate() {
                *dx = (0..m).map(|j| dy[at / k * m + j] * w[j * k + at % k]).sum();
            }
            for (at, dw) in io.out::<R>(of).iter_mut().enumerate() {
                *dw = (0..n).map(|i| dy[i * m + at / k] * x[i * k + at % k]).sum();
            }
        }
        for (j, db) in io.out::<R>(4).iter_mut().enumerate() {
            *db = (0..n).map(|i| dy[i * m + j]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dy, n, m) = (io.input::<f32>(0), io.rows(0), io.cols(0));
        let (ks, of_part) = ([io.cols(1), io.cols(3)], m * (io.cols(1) + io.cols(3) + 1));
        let (size, cached) = (parts::part_rows(n), (CACHED / size_of::<f32>()).div_ceil(m.max(1)));
        let parts: Vec<Range<usize>> = (0..n).step_by(size).map(|first| first..n.min(first + size)).collect();
        let partials = &mut io.scratch::<f32>()[..parts.len() * of_part];
        partials.fill(0.0);
        let dxs = [0, 1].map(|of| split_rows(io.out(2 * of), &parts, ks[of]));
        let [dx1, dx2] = dxs;
        let outs = dx1.into_iter().zip(dx2).zip(partials.chunks_mut(of_part.max(1)));
        outs.zip(&parts).in_parallel(1, |(((dx1, dx2), partial), part)| {
            let mut dxs = [dx1, dx2];
            for first in part.clone().step_by(cached) {
                let rows = first..part.end.min(first + cached);
                let own = Mat::new(dy, n, m).rows(&rows);
                let mut at = 0;
                for (of, dx) in dxs.iter_mut().enumerate() {
                    let (k, made) = (ks[of], rows.start - part.start..rows.end - part.start);
                    let (x, w) = (Mat::new(io.input(2 * of + 1), n, k), Mat::new(io.input(2 * of + 2), m, k));
                    if io.wanted(2 * of) {
                        let dx = &mut dx[made.start * k..made.end * k];
                        matmul(MatMut::new(dx, rows.len(), k), own, w, false);
                    }
                    let dw = MatMut::new(&mut partial[at..at + m * k], m, k);
                    matmul(dw, own.t(), x.rows(&rows), true);
                    at += m * k;
                }
                add_column_sums(&mut partial[at..], &dy[rows.start * m..rows.end * m]);
            }
        });
        let mut at = 0;
        for (out, len) in [(1, m * ks[0]), (3, m * ks[1]), (4, m)] {
            let (share, partials) = (team::share(len), &*partials);
            io.out::<f32>(out).chunks_mut(share).enumerate().in_parallel(1, |(i, out)| {
                out.fill(0.0);
                for partial in partials.chunks_exact(of_part) {
                    add_column_sums(out, &partial[at + i * share..][..out.len()]);
                }
            });
            at += len;
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (dy, rows, m) = (on.input(0), on.rows(0), on.cols(0));
        let (scratch, mut tickets) = (on.scratch(), on.tickets());
        for of in [1, 3] {
            let (x, w, depth) = (on.input(of), on.input(of + 1), on.cols(of));
            if on.wanted(of - 1) {
                let grid = Grid::tiles(on.capacity(0), depth as usize);
                // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
                unsafe {
                    k.linear_input_grad(on, grid, dy, w, on.out(of - 1), rows, m, depth, on.precision())
                }?;
            }
            let (grid, dw, db) = (Self::grid(&on.spec(0), &on.spec(of)), on.out(of), on.out(4));
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.linear_weight_grad(
                    on,
                    grid,
                    dy,
                    x,
                    scratch,
                    tickets,
                    dw,
                    db,
                    rows,
                    m,
                    depth,
                    on.precision(),
                )
            }?;
            tickets = tickets.wrapping_add(grid.parts(1).count());
        }
        Ok(())
    }
}

/// `[n, k1, k2, m]`; `n` of `n + 2` rows live.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 1], &[0, 5, 3, 2], &[9, 0, 3, 7], &[9, 5, 3, 70], &[40, 64, 20, 65], &[70, 7, 3, 33]];
pub(super) const BENCH: &[&[usize]] = &[&[10_000, 64, 64, 256], &[10_000, 64, 64, 64]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k1, k2, m] = *dims else { return Err(Error::shape("linear_sum", "four sizes")) };
    let count = c.count(n);
    let [first, second] = [k1, k2].map(|k| (c.live_real(n + 2, count, k), c.real(m, k)));
    let b = c.real(1, m);
    let y = c.tape.linear_sum(first, second, b)?;
    Ok(Built::new(&[y], &[first.0, first.1, second.0, second.1, b]))
}
