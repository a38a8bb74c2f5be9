//! `X[r] = x[i_r] tanh(y[i_r])`, `y = x p^T / |p|`: the k rows with the greatest scores y, greatest first.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, d]` f32 | candidate rows |
//! | `p` | `[1, d]` f32 | scoring vector |
//! | `present` | `[n]` u32 | rows where this is [`NONE`] are never taken |
//! | X | `[k, d]` f32 | rows taken, times tanh of their scores |
//! | i | `[k]` u32 | indices of the rows taken, on equal scores the lower row first. If fewer than k rows are present, the last one repeats; if none is, the index is [`NONE`] and X is zero |
//! | y | `[k, 1]` f32 | scores of the rows taken, for the backward pass |
//!
//! Backward, with `dy_r = (dX[r] . x[i_r]) (1 - tanh(y_r)^2)`:
//! `dx[i_r] = sum_r (dX[r] tanh(y_r) + dy_r p / |p|)`, `dp = sum_r dy_r (x[i_r] - y_r p / |p|) / |p|`; zeros
//! for the other rows. Deterministic.
//! Source: the summary of EvolveGCN-H (Pareja et al. 2020), after Gao and Ji 2019.
use super::*;
use crate::runtime::{
    changes::Change,
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// Minimum number of rows of a parallel task.
const PIECE: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub struct TopRows {
    k: usize,
}
/// Gradients of `x` and `p`.
#[derive(Debug)]
pub struct TopRowsGrad;

/// Position of `dX` among the inputs of [`TopRowsGrad`].
const GRAD_DOUT: usize = 4;

impl Tape {
    /// Appends [`TopRows`]; returns X, f32 `[k, d]`: the k present rows of `x` with the greatest scores `x p
    /// / |p|`, each times tanh of its score.
    ///
    /// # Errors
    /// `Shape` if types or widths do not match, or if `k` is 0.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(3), 1), &[1.0f32, 3.0, 2.0])?;
    /// let p = tape.input(&mut store, "p", Spec::real(Rows::fixed(1), 1), &[4.0f32])?;
    /// let present = tape.input(&mut store, "present", Spec::ids(Rows::fixed(3), 1), &[0u32, NONE, 2])?;
    /// let top = tape.top_rows(x, p, present, 1)?;
    /// let mut program = Program::new(&tape, &[top], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The scores are x p / |p| = 1, 3 and 2, but row 1 is absent.
    /// assert!((program.read::<f32>(top, &store)?[0] - 2.0 * 2f32.tanh()).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn top_rows(&mut self, x: Var, p: Var, present: Var, k: usize) -> Result<Var> {
        Ok(self.push(TopRows { k }, &[x, p, present])?[0])
    }
}

vectorised! {
    /// Computes the scores of rows `x`; `inverse_norm` is `1 / |p|`.
    fn scores(y: &mut [f32], x: &[f32], p: &[f32], inverse_norm: f32) {
        for (y, x) in y.iter_mut().zip(x.chunks_exact(p.len())) {
            *y = simd::dot::<V>(x, p) * inverse_norm;
        }
    }
}

fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// Returns the `k` present rows with the greatest scores, sorted by score, then by row.
fn greatest<R: Real>(y: &[R], present: &[u32], k: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..y.len()).filter(|&i| present[i] != NONE).collect();
    let before = |&a: &usize, &b: &usize| y[b].f64().total_cmp(&y[a].f64()).then(a.cmp(&b));
    if k < rows.len() {
        rows.select_nth_unstable_by(k, before);
        rows.truncate(k);
    }
    rows.sort_unstable_by(before);
    rows
}

impl TopRows {
    /// Writes X, i and y, given the scores of all rows.
    fn take<R: Real>(&self, io: &Io<'_>, y: &[R]) {
        let (d, x, present) = (io.cols(0), io.input::<R>(0), io.input::<u32>(2));
        let rows = greatest(y, present, self.k);
        let (out, index, score) = (io.out::<R>(0), io.out::<u32>(1), io.out::<R>(2));
        for (r, out) in out.chunks_exact_mut(d).enumerate() {
            // The last row taken repeats; if no row is present, the output row is zero.
            let row = rows.get(r).or(rows.last()).copied();
            index[r] = row.map_or(NONE, |row| row as u32);
            score[r] = row.map_or(R::ZERO, |row| y[row]);
            let gate = score[r].tanh();
            match row {
                Some(row) => out.iter_mut().zip(&x[row * d..]).for_each(|(out, &x)| *out = x * gate),
                None => out.fill(R::ZERO),
            }
        }
    }
}

impl Op for TopRows {
    const NAME: &'static str = "top_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "x [n, d], p [1, d], present [n] ids -> out [k, d], index [k] ids, y [k]";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.k))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[0])?;
        let fits = (1..NONE as usize).contains(&self.k);
        ensure!(Self::NAME, fits, "k is {}, want at least 1 and less than {NONE}", self.k);
        Ok(())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // A score for each row of x; a score and an index for each row taken.
        ins[0].rows.capacity + 2 * self.k
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, x, p) = (io.cols(0), io.input::<R>(0), io.input::<R>(1));
        let norm = dot(p, p).sqrt();
        let y: Vec<R> = x.chunks_exact(d.max(1)).map(|x| dot(x, p) / norm).collect();
        self.take(io, &y);
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, x, p) = (io.cols(0), io.input::<f32>(0), io.input::<f32>(1));
        let (inverse_norm, size) = (1.0 / dot(p, p).sqrt(), team::piece(io.rows(0), PIECE));
        let y = &mut io.scratch::<f32>()[..io.rows(0)];
        y.chunks_mut(size)
            .zip(x.chunks((size * d).max(1)))
            .in_parallel(1, |(y, x)| scores(y, x, p, inverse_norm));
        self.take(io, y);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, p, present) = (on.input(0), on.input(1), on.input(2));
        let (rows, d, take) = (on.rows(0), on.cols(0), self.k as u32);
        let keys = on.scratch().cast::<u32>();
        let taken = keys.wrapping_add(on.capacity(0));
        launch!(k, on, top_rows_score[Grid::warps(on.capacity(0))]; x, p, present, keys, rows, d)?;
        let (block, index, score) = (Grid::new(1, 1024), on.needed(1), on.needed(2));
        match on.stream().gpu().has(Change::Small) {
            true => launch!(k, on, top_rows_select[block]; keys, taken, index, score, rows, take),
            false => launch!(k, on, top_rows_select_before[block]; keys, taken, index, score, rows, take),
        }?;
        launch!(k, on, top_rows[Grid::warps(self.k)]; x, on.needed(1), on.needed(2), on.out(0), take, d)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dout) = douts[0] else { return Ok(vec![None; 3]) };
        let (x, p, index, y) = (node.ins[0], node.ins[1], node.outs[1], node.outs[2]);
        let grads = t.push(TopRowsGrad, &[x, p, index, y, dout])?;
        Ok(vec![Some(grads[0]), Some(grads[1]), None])
    }
}

impl Op for TopRowsGrad {
    const NAME: &'static str = "top_rows_grad";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "x [n, d], p [1, d], index [K] ids, y [K], dout [K, d] \
        -> dx [n, d], dp [1, d]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[0])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        ins[GRAD_DOUT].rows.capacity
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        // x is read only in the rows taken.
        Cost::streaming(&ins[1..], outs, 8 * ins[GRAD_DOUT].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, x, p) = (io.cols(0), io.input::<R>(0), io.input::<R>(1));
        let (index, y, dout) = (io.input::<u32>(2), io.input::<R>(3), io.input::<R>(4));
        let norm = dot(p, p).sqrt();
        let (dx, dp) = (io.out::<R>(0), io.out::<R>(1));
        dx.fill(R::ZERO);
        dp.fill(R::ZERO);
        for (r, &row) in index.iter().enumerate() {
            let Some(row) = io.row_of(r, row, io.rows(0)) else { continue };
            let (at, dout) = (row * d, &dout[r * d..][..d]);
            let t = y[r].tanh();
            let dy = dot(dout, &x[at..][..d]) * (R::ONE - t * t);
            for j in 0..d {
                dx[at + j] += dout[j] * t + dy * p[j] / norm;
                dp[j] += dy * (x[at + j] - y[r] * p[j] / norm) / norm;
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, p, index, y, dout) =
            (on.input(0), on.input(1), on.input(2), on.input(3), on.input(GRAD_DOUT));
        let (dx, dp, status) = (on.out(0), on.out(1), on.status());
        let (rows, d, take, dy) = (on.rows(0), on.cols(0), on.capacity(GRAD_DOUT) as u32, on.scratch());
        if on.wanted(0) {
            on.clear(0)?;
        }
        let grid = Grid::warps(take as usize);
        launch!(k, on, top_rows_input_grad[grid]; x, p, index, y, dout, dx, dy, rows, take, d, status)?;
        if on.wanted(1) {
            let grid = Grid::items(d as usize);
            launch!(k, on, top_rows_score_grad[grid]; x, p, index, y, dy, dp, rows, take, d)?;
        }
        Ok(())
    }
}

/// `[n, d, k, which rows]`; n of n + 2 rows are live. Which rows: 0, all rows are present and differ; 1,
/// every third row is absent; 2, rows repeat, so that scores are equal, and no gradient is checked, because
/// it is not continuous where the order of rows changes; 3, no row is present.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0],
    &[9, 5, 4, 1],
    &[9, 4, 9, 0],
    &[5, 3, 8, 1],
    &[0, 3, 2, 0],
    &[40, 6, 12, 2],
    &[2_300, 3, 40, 2],
    &[2_300, 8, 5, 1],
    &[6, 4, 3, 3],
    &[3, 2, 70, 0],
    // More rows than a block keeps in registers.
    &[12_400, 1, 30, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 64, 64, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, k, which] = *dims else { return Err(Error::shape("top_rows", "four sizes")) };
    let count = c.count(n);
    let rows = Rows::live(n + 2, count);
    let x = if which == 2 {
        let patterns: Vec<f32> = (0..3 * d).map(|_| c.uniform()).collect();
        let values: Vec<f32> = (0..n + 2).flat_map(|i| patterns[i % 3 * d..][..d].to_vec()).collect();
        c.values(Spec::real(rows, d), &values)
    } else {
        c.live_real(n + 2, count, d)
    };
    let p = c.real(1, d);
    let present = match which {
        1 => c.present(n + 2, count),
        _ => c.values(Spec::ids(rows, 1), &vec![if which == 3 { NONE } else { 0 }; n + 2]),
    };
    let out = c.tape.push(TopRows { k }, &[x, p, present])?;
    Ok(if which == 2 { Built::new(&out, &[]) } else { Built::new(&out[..1], &[x, p]) })
}
