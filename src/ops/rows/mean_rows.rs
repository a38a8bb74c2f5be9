//! `y[i, :] = sum_j x[i k + j, :] / m_i` over the first `m_i` of every `k` rows; zeros if `m_i` is 0
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n k, d]` f32 | for example one row per neighbour slot |
//! | `count` | `[n]` u32, optional | `m_i`, at most `k`: the slots in use, which come first; `k` if absent |
//! | y | `[n, d]` f32 | |
//!
//! Backward: `dx[i k + j, :] = dy[i, :] / m_i` for `j < m_i`, otherwise 0. Source: none.
use super::*;
use crate::runtime::{
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::null;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct MeanRows {
    k: usize,
}
/// Gradient of `x`.
#[derive(Debug)]
pub struct MeanRowsGrad(MeanRows);

/// Minimum number of groups of a task on the host.
const TASK: usize = 16;

impl Tape {
    /// Appends [`MeanRows`]: the mean of every `k` rows, or of the first `count` of them.
    ///
    /// # Errors
    /// `Shape` if `k` is 0 or does not divide the capacity of `x` or its live rows per unit of their count,
    /// or if `count` is not u32 with one number for every `k` rows.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(4), 1), &[1.0f32, 3.0, 5.0, 7.0])?;
    /// let count = tape.input(&mut store, "count", Spec::ids(Rows::fixed(2), 1), &[2u32, 1])?;
    /// let mean = tape.mean_rows(x, 2, Some(count))?;
    /// let mut program = Program::new(&tape, &[mean], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(mean, &store)?, [2.0, 5.0]); // of both rows; of the first
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn mean_rows(&mut self, x: Var, k: usize, count: Option<Var>) -> Result<Var> {
        let ins: Vec<Var> = std::iter::once(x).chain(count).collect();
        self.push1(MeanRows { k }, &ins)
    }
}

impl MeanRows {
    /// Returns `m_i`; `count` is input 1, if it exists.
    fn used(&self, count: Option<&[u32]>, i: usize) -> usize {
        count.map_or(self.k, |count| (count[i] as usize).min(self.k))
    }
}

vectorised! {
    /// Writes the mean of `n` rows.
    fn mean(y: &mut [f32], x: &[f32], n: usize) {
        y.fill(0.0);
        for row in x.chunks_exact(y.len()).take(n) {
            simd::add_assign(y, row);
        }
        for y in y.iter_mut() {
            *y /= n.max(1) as f32;
        }
    }
    /// Writes the gradients of rows, of which `n` are used.
    fn spread(dx: &mut [f32], dy: &[f32], n: usize) {
        for (j, dx) in dx.chunks_exact_mut(dy.len()).enumerate() {
            if j < n {
                for (dx, &dy) in dx.iter_mut().zip(dy) {
                    *dx = dy / n as f32;
                }
            } else {
                dx.fill(0.0);
            }
        }
    }
}

impl Op for MeanRows {
    const NAME: &'static str = "mean_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "x [n k, d], count? [n] ids -> y [n, d]";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.k))]
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, d) = (io.input::<R>(0), io.cols(0));
        let count = (io.inputs() > 1).then(|| io.input(1));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, c) = (at / d, at % d);
            let n = self.used(count, i);
            let sum: R = (0..n).map(|j| x[(i * self.k + j) * d + c]).sum();
            *y = sum / R::from_f64(n.max(1) as f64);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, y, d) = (io.input::<f32>(0), io.out::<f32>(0), io.cols(0));
        let count = (io.inputs() > 1).then(|| io.input(1));
        if y.is_empty() {
            return;
        }
        let size = team::piece(y.len() / d, TASK);
        let pieces = y.chunks_mut(size * d).zip(x.chunks(size * self.k * d));
        pieces.enumerate().in_parallel(1, |(piece, (y, x))| {
            let rows = y.chunks_exact_mut(d).zip(x.chunks_exact(self.k * d));
            rows.enumerate().for_each(|(i, (y, x))| mean(y, x, self.used(count, piece * size + i)));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, y, count) = (on.input(0), on.out(0), if on.inputs() > 1 { on.input(1) } else { null() });
        let (grid, rows) = (Grid::items(on.out_cap(0) * on.spec(0).cols), on.out_rows(0));
        launch!(k, on, mean_rows[grid]; x, count, y, rows, self.k as u32, on.cols(0))
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        if let Some(dy) = douts[0] {
            let ins: Vec<Var> = std::iter::once(dy).chain(node.ins.get(1).copied()).collect();
            dins[0] = Some(t.push1(MeanRowsGrad(*self), &ins)?);
        }
        Ok(dins)
    }
}

impl Op for MeanRowsGrad {
    const NAME: &'static str = "mean_rows_grad";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "dy [n, d], count? [n] ids -> dx [n k, d]";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.0.k))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "rows", ins[0].rows.times(self.0.k).capacity)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dy, d, k) = (io.input::<R>(0), io.cols(0), self.0.k);
        let count = (io.inputs() > 1).then(|| io.input(1));
        for (at, dx) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j, c) = (at / (k * d), at / d % k, at % d);
            let n = self.0.used(count, i);
            *dx = if j < n { dy[i * d + c] / R::from_f64(n as f64) } else { R::ZERO };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dy, dx, d, k) = (io.input::<f32>(0), io.out::<f32>(0), io.cols(0), self.0.k);
        let count = (io.inputs() > 1).then(|| io.input(1));
        if dx.is_empty() {
            return;
        }
        let size = team::piece(dy.len() / d, TASK);
        let pieces = dx.chunks_mut(size * k * d).zip(dy.chunks(size * d));
        pieces.enumerate().in_parallel(1, |(piece, (dx, dy))| {
            let rows = dx.chunks_exact_mut(k * d).zip(dy.chunks_exact(d));
            rows.enumerate().for_each(|(i, (dx, dy))| spread(dx, dy, self.0.used(count, piece * size + i)));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (dy, dx, count) = (on.input(0), on.out(0), if on.inputs() > 1 { on.input(1) } else { null() });
        let (grid, rows) = (Grid::items(on.out_cap(0) * on.spec(0).cols), on.rows(0));
        launch!(k, on, mean_rows_grad[grid]; dy, count, dx, rows, self.0.k as u32, on.cols(0))
    }
}

/// `[n, k, d, counts]`; `n` of `n + 2` groups are live. With counts they are 0 to `k + 1`.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[0, 2, 3, 1], &[5, 2, 1, 1], &[7, 3, 4, 0], &[40, 5, 33, 1], &[3, 20, 100, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 20, 100, 0], &[1_800, 20, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, d] = [dims[0], dims[1], dims[2]];
    let groups = Rows::live(n + 2, c.count(n));
    let values: Vec<f32> = (0..(n + 2) * k * d).map(|_| c.uniform()).collect();
    let x = c.values(Spec::real(groups.times(k), d), &values);
    let counts: Vec<u32> = (0..n + 2).map(|i| (i % (k + 2)) as u32).collect();
    let count = (dims[3] == 1).then(|| c.values(Spec::ids(groups, 1), &counts));
    let y = c.tape.mean_rows(x, k, count)?;
    Ok(Built::new(&[y], &[x]))
}
