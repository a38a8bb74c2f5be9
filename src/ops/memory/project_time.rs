//! `y[i, :] = h[row[i], :] (1 + w delta[i] + b)`, `delta[i] = (T - t) / (T + 1)`: an embedding projected to
//! the time of a query
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `h` | `[n, d]` f32 | embeddings, one row for each unique node |
//! | `row` | `[r]` u32 below `n`, or [`NONE`] | row of `h` of each root; `NONE` gives zeros |
//! | `node time` | `[n]` i64 | t: time of the last update of the node's memory |
//! | `time` | `[r]` i64 | T: time of the query |
//! | `w`, `b` | `[1, d]` f32 | |
//! | y | `[r, d]` f32 | |
//!
//! T - t and T are exact in i64, then converted to seconds in f32; gaps are not clipped. A row index outside
//! `h` is a fault.
//!
//! Backward, with `g = dy (1 + w delta + b)` for each root: `dh = scatter_add_rows(g, row)`,
//! `dw = sum dy h delta`, `db = sum dy h`. Deterministic.
//!
//! Source: the projection of JODIE (Kumar et al., KDD 2019); delta as in TGL.
use super::*;
use crate::runtime::{
    parts,
    simd::vectorised,
    team::{self, InParallel},
};

/// Maximum number of blocks that sum gradients on a device.
const BLOCKS: usize = 512;
/// Minimum number of rows of such a block.
const BLOCK_ROWS: usize = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct ProjectTime {
    gaps: Gaps,
}
/// `g = dy (1 + w delta + b)` for each root, and the gradients of `w` and `b`.
#[derive(Debug)]
pub struct ProjectTimeGrad(ProjectTime);

impl Tape {
    /// Appends [`ProjectTime`] and returns `y`: the rows of `h`, with the times of their last updates,
    /// projected to each query `(row, time)`. A tick is `seconds_per_tick` long.
    ///
    /// # Errors
    /// `Shape` if types, row counts or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let h = tape.input(&mut store, "h", Spec::real(Rows::fixed(1), 1), &[2.0f32])?;
    /// let row = tape.input(&mut store, "row", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
    /// let updated = tape.input(&mut store, "updated", Spec::times(Rows::fixed(1)), &[4i64])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(1)), &[9i64])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[3.0f32])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 1), &[0.25f32])?;
    /// let y = tape.project_time((h, updated), (row, time), (w, b), 1.0)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // delta = (9 - 4) / (9 + 1) = 0.5
    /// assert_eq!(program.read::<f32>(y, &store)?, [5.5]); // 2 (1 + 3 * 0.5 + 0.25)
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn project_time(
        &mut self,
        (h, node_time): (Var, Var),
        (row, time): (Var, Var),
        (w, b): (Var, Var),
        seconds_per_tick: f32,
    ) -> Result<Var> {
        let op = ProjectTime { gaps: Gaps::unlimited(seconds_per_tick) };
        self.push1(op, &[h, row, node_time, time, w, b])
    }
}

// Input indices; the gradient op has the same inputs, followed by `dy`.

/// Operands that the forward and the backward pass read.
struct Operands<'a, R> {
    h: &'a [R],
    row: &'a [u32],
    node_time: &'a [i64],
    time: &'a [i64],
    w: &'a [R],
    b: &'a [R],
    gaps: Gaps,
}

impl<'a, R: Real> Operands<'a, R> {
    fn new(op: &ProjectTime, io: &Io<'a>) -> Self {
        Operands {
            h: io.input(at!(ProjectTime, h)),
            row: io.input(at!(ProjectTime, row)),
            node_time: io.input(at!(ProjectTime, node_time)),
            time: io.input(at!(ProjectTime, time)),
            w: io.input(at!(ProjectTime, w)),
            b: io.input(at!(ProjectTime, b)),
            gaps: op.gaps,
        }
    }
    /// Returns the row of `h` and delta of root `i`; `None` if it has no valid row, which is a fault unless
    /// it is `NONE`.
    fn root(&self, io: &Io<'_>, i: usize) -> Option<(&'a [R], R)> {
        let (row, d) = (io.row_of(i, self.row[i], self.node_time.len())?, self.w.len());
        let seconds = |from, to| R::from_f64(f64::from(self.gaps.seconds(from, to)));
        let delta = seconds(self.node_time[row], self.time[i]) / (seconds(0, self.time[i]) + R::ONE);
        Some((&self.h[row * d..][..d], delta))
    }
}

vectorised! {
    /// Computes rows of `y`, beginning with root `first`.
    fn forward(y: &mut [f32], first: usize, o: &Operands<'_, f32>, io: &Io<'_>) {
        for (i, y) in (first..).zip(y.chunks_exact_mut(o.w.len())) {
            let Some((x, delta)) = o.root(io, i) else {
                y.fill(0.0);
                continue;
            };
            for (((y, &x), &w), &b) in y.iter_mut().zip(x).zip(o.w).zip(o.b) {
                *y = x * (w.mul_add(delta, 1.0) + b);
            }
        }
    }
    /// Computes rows of `g`, beginning with root `first`, and adds their terms to `dwb = {dw | db}`.
    fn backward(g: &mut [f32], dwb: &mut [f32], dy: &[f32], first: usize, o: &Operands<'_, f32>, io: &Io<'_>) {
        let d = o.w.len();
        let (dw, db) = dwb.split_at_mut(d);
        for ((i, g), dy) in (first..).zip(g.chunks_exact_mut(d)).zip(dy.chunks_exact(d)) {
            let Some((x, delta)) = o.root(io, i) else {
                g.fill(0.0);
                continue;
            };
            for (((g, &dy), &w), &b) in g.iter_mut().zip(dy).zip(o.w).zip(o.b) {
                *g = dy * (w.mul_add(delta, 1.0) + b);
            }
            for (((dw, db), &dy), &x) in dw.iter_mut().zip(db.iter_mut()).zip(dy).zip(x) {
                *db += dy * x;
                *dw = (dy * x).mul_add(delta, *dw);
            }
        }
    }
}

impl Op for ProjectTime {
    const NAME: &'static str = "project_time";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "h [n, d], row [r] ids, node_time [n] times, time [r] times, w [1, d], \
        b [1, d] -> y [r, d]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len() + 20 * ins[at!(row)].len(), flops: 4 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, d) = (Operands::<R>::new(self, io), io.cols(at!(h)));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j) = (at / d, at % d);
            *y = o.root(io, i).map_or(R::ZERO, |(x, delta)| x[j] * (R::ONE + o.w[j] * delta + o.b[j]));
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (o, d) = (Operands::<f32>::new(self, io), io.cols(at!(h)));
        if d == 0 {
            return;
        }
        let size = team::piece(o.row.len(), 64);
        let chunks = io.out::<f32>(0).chunks_mut(size * d).enumerate();
        chunks.in_parallel(1, |(chunk, y)| forward(y, chunk * size, &o, io));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (h, row, w, b, y) =
            (on.input(at!(h)), on.input(at!(row)), on.input(at!(w)), on.input(at!(b)), on.out(0));
        let (node_time, time) = (on.input(at!(node_time)), on.input(at!(time)));
        let (roots, rows, d) = (on.rows(at!(row)), on.rows(at!(h)), on.cols(at!(h)));
        let (grid, gaps) = (Grid::warps(on.capacity(at!(row))), self.gaps.into());
        launch!(
            k, on, project_time[grid];
            h, row, node_time, time, w, b, y, roots, rows, d, gaps, on.status()
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 6]) };
        let grads = t.push(ProjectTimeGrad(*self), &[&node.ins[..], &[dy]].concat())?;
        let [g, dw, db] = [0, 1, 2].map(|out| grads[out]);
        let rows = t.spec(node.ins[at!(h)]).rows;
        let dh = t.scatter_add_rows(g, node.ins[at!(row)], rows)?;
        Ok(vec![Some(dh), None, None, None, Some(dw), Some(db)])
    }
}

impl Op for ProjectTimeGrad {
    const NAME: &'static str = "project_time_grad";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "h [n, d], row [r] ids, node_time [n] times, time [r] times, w [1, d], \
        b [1, d], dy [r, d] -> g [r, d], dw [1, d], db [1, d]";
    fn scratch(&self, ins: &[Spec]) -> usize {
        2 * (parts::PARTS + 1).max(BLOCKS) * ins[at!(h)].cols
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 12 * outs[0].len() + 20 * ins[at!(row)].len(), flops: 8 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, dy, d) = (Operands::<R>::new(&self.0, io), io.input::<R>(at!(dy)), io.cols(at!(h)));
        let (g, dw, db) = (io.out::<R>(0), io.out::<R>(1), io.out::<R>(2));
        [&mut *g, dw, db].into_iter().for_each(|out| out.fill(R::ZERO));
        for i in 0..io.rows(at!(row)) {
            let Some((x, delta)) = o.root(io, i) else { continue };
            for j in 0..d {
                let dy = dy[i * d + j];
                g[i * d + j] = dy * (R::ONE + o.w[j] * delta + o.b[j]);
                dw[j] += dy * x[j] * delta;
                db[j] += dy * x[j];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (o, dy, d) = (Operands::<f32>::new(&self.0, io), io.input::<f32>(at!(dy)), io.cols(at!(h)));
        if d == 0 {
            return;
        }
        let size = parts::part_rows(o.row.len());
        let (sum, partials) = io.scratch::<f32>().split_at_mut(2 * d);
        let partials = &mut partials[..2 * d * o.row.len().div_ceil(size)];
        partials.fill(0.0);
        let g = io.out::<f32>(0).chunks_mut(size * d).zip(dy.chunks(size * d));
        g.zip(partials.chunks_exact_mut(2 * d))
            .enumerate()
            .in_parallel(1, |(chunk, ((g, dy), dwb))| backward(g, dwb, dy, chunk * size, &o, io));
        sum.fill(0.0);
        parts::add_column_sums(sum, partials);
        io.out::<f32>(1).copy_from_slice(&sum[..d]);
        io.out::<f32>(2).copy_from_slice(&sum[d..]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let block_rows = on.capacity(at!(row)).div_ceil(BLOCKS).max(BLOCK_ROWS);
        launch!(
            k, on, project_time_grad[Grid::new(on.capacity(at!(row)).div_ceil(block_rows), Grid::THREADS)];
            on.input(at!(h)), on.input(at!(row)), on.input(at!(node_time)), on.input(at!(time)),
            on.input(at!(w)), on.input(at!(b)), on.input(at!(dy)), on.out(0), on.scratch(), on.tickets(),
            on.out(1), on.out(2), on.rows(at!(row)), on.rows(at!(h)), on.cols(at!(h)), self.0.gaps.into(),
            block_rows as u32
        )
    }
}

/// `[roots, rows of h, d]`; every seventh root has no row, and the capacity of `h` is three rows larger.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[0, 2, 4], &[9, 4, 3], &[70, 33, 100], &[200, 5, 133], &[9, 4, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 700, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [r, n, d] = *dims else { return Err(Error::shape("project_time", "three sizes")) };
    let count = c.count(n);
    let rows = Rows::live(n + 3, count);
    let updated: Vec<i64> = (0..n + 3).map(|_| c.below(1_000) as i64).collect();
    let root_rows: Vec<u32> = (0..r).map(|i| if i % 7 == 6 { NONE } else { c.below(n) as u32 }).collect();
    let times: Vec<i64> =
        root_rows.iter().map(|&row| updated.get(row as usize).unwrap_or(&0) + c.below(500) as i64).collect();
    let (h, node_time) = (c.live_real(n + 3, count, d), c.values(Spec::times(rows), &updated));
    let (row, time) = (c.ids(&root_rows, 1), c.times(&times));
    let (w, b) = (c.real(1, d), c.real(1, d));
    let y = c.tape.project_time((h, node_time), (row, time), (w, b), 0.5)?;
    Ok(Built::new(&[y], &[h, w, b]))
}
