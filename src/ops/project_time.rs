//! `y[i, :] = h[row[i], :] (1 + w delta[i] + b)`, `delta[i] = (T - t) / (T + 1)`: what a row has become by the time of a query
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `h` | `[n, d]` f32 | embeddings, by unique node |
//! | `row` | `[r]` u32 below `n`, or [`NONE`] | row of `h` of each root; zeros come of `NONE` |
//! | `node time` | `[n]` i64 | t: when the row's memory was updated last |
//! | `time` | `[r]` i64 | T: time of the query |
//! | `w`, `b` | `[1, d]` f32 | |
//! | y | `[r, d]` f32 | |
//!
//! T - t and T are exact in i64, then f32 seconds; no gap is cut. Backward, with `g = dy (1 + w delta + b)` by root:
//! `dh = scatter_add_rows(g, row)`, `dw = sum dy h delta`, `db = sum dy h`. Deterministic. A row outside `h` is a fault.
//! Source: JODIE (Kumar et al., KDD 2019), the projection; delta as TGL has it.
use super::*;
use crate::runtime::{
    parts,
    simd::vectorised,
    team::{self, InParallel},
};

/// On a device: most blocks that sum gradients, and fewest rows of one.
const BLOCKS: usize = 512;
const BLOCK_ROWS: usize = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct ProjectTime {
    gaps: Gaps,
}
/// `dy (1 + w delta + b)` by root, and the gradients of `w` and `b`.
#[derive(Debug)]
pub struct ProjectTimeGrad(ProjectTime);

impl Tape {
    /// Appends [`ProjectTime`]: rows of `h` with their times, as each query `(row, time)` sees them; ticks are
    /// `seconds_per_tick` long.
    ///
    /// # Errors
    /// `Shape` when types, rows or widths do not fit.
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

/// What forward and backward read.
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
    fn of(op: &ProjectTime, io: &Io<'a>) -> Self {
        Operands {
            h: io.input(0),
            row: io.input(1),
            node_time: io.input(2),
            time: io.input(3),
            w: io.input(4),
            b: io.input(5),
            gaps: op.gaps,
        }
    }
    /// Row of `h`, and delta, of root `i`.
    fn root(&self, io: &Io<'_>, i: usize) -> Option<(&'a [R], R)> {
        let (row, d) = (io.row_of(i, self.row[i], self.node_time.len())?, self.w.len());
        let seconds = |from, to| R::of(f64::from(self.gaps.seconds(from, to)));
        let delta = seconds(self.node_time[row], self.time[i]) / (seconds(0, self.time[i]) + R::ONE);
        Some((&self.h[row * d..][..d], delta))
    }
}

vectorised! {
    /// Rows `y` of the roots from `first` on.
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
    /// Rows `g` of the roots from `first` on; adds to `dwb = {dw | db}`.
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 6)?;
        let [h, row, node_time, time, w, b] = [0, 1, 2, 3, 4, 5].map(|i| ins[i]);
        typed(Self::NAME, "h", &h, DType::F32)?;
        ensure!(Self::NAME, node_time == Spec::times(h.rows), "h is {h}, node time is {node_time}");
        ensure!(
            Self::NAME,
            row == Spec::ids(row.rows, 1) && time == Spec::times(row.rows),
            "row is {row}, time is {time}"
        );
        for (what, row) in [("w", w), ("b", b)] {
            typed(Self::NAME, what, &row, DType::F32)?;
            shaped(Self::NAME, what, &row, 1, h.cols)?;
        }
        Ok(vec![Spec::real(row.rows, h.cols).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len() + 20 * ins[1].len(), flops: 4 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, d) = (Operands::<R>::of(self, io), io.cols(0));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, j) = (at / d, at % d);
            *y = o.root(io, i).map_or(R::ZERO, |(x, delta)| x[j] * (R::ONE + o.w[j] * delta + o.b[j]));
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (o, d) = (Operands::<f32>::of(self, io), io.cols(0));
        if d == 0 {
            return;
        }
        let size = team::piece(o.row.len(), 64);
        let pieces = io.out::<f32>(0).chunks_mut(size * d).enumerate();
        pieces.in_parallel(1, |(piece, y)| forward(y, piece * size, &o, io));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (h, row, node_time, time) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let (w, b, y, rows, from, d) =
            (on.input(4), on.input(5), on.out(0), on.rows(1), on.rows(0), on.cols(0));
        let (grid, gaps) = (Grid::warps(on.capacity(1)), self.gaps.into());
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.project_time(on, grid, h, row, node_time, time, w, b, y, rows, from, d, gaps, on.status())
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 6]) };
        let d = t.push(ProjectTimeGrad(*self), &[&node.ins[..], &[dy]].concat())?;
        let rows = t.spec(node.ins[0]).rows;
        let dh = t.scatter_add_rows(d[0], node.ins[1], rows)?;
        Ok(vec![Some(dh), None, None, None, Some(d[1]), Some(d[2])])
    }
}

impl Op for ProjectTimeGrad {
    const NAME: &'static str = "project_time_grad";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 7)?;
        let y = Op::infer(&self.0, &ins[..6])?[0].spec;
        ensure!(Self::NAME, ins[6] == y, "y is {y}, dy is {}", ins[6]);
        Ok(vec![y.into(), ins[4].into(), ins[5].into()])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        2 * (parts::PARTS + 1).max(BLOCKS) * ins[0].cols
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 12 * outs[0].len() + 20 * ins[1].len(), flops: 8 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, dy, d) = (Operands::<R>::of(&self.0, io), io.input::<R>(6), io.cols(0));
        let (g, dw, db) = (io.out::<R>(0), io.out::<R>(1), io.out::<R>(2));
        [&mut *g, dw, db].into_iter().for_each(|x| x.fill(R::ZERO));
        for i in 0..io.rows(1) {
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
        let (o, dy, d) = (Operands::<f32>::of(&self.0, io), io.input::<f32>(6), io.cols(0));
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
            .in_parallel(1, |(part, ((g, dy), dwb))| backward(g, dwb, dy, part * size, &o, io));
        sum.fill(0.0);
        parts::add_column_sums(sum, partials);
        io.out::<f32>(1).copy_from_slice(&sum[..d]);
        io.out::<f32>(2).copy_from_slice(&sum[d..]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let each = on.capacity(1).div_ceil(BLOCKS).max(BLOCK_ROWS);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.project_time_grad(
                on,
                Grid::new(on.capacity(1).div_ceil(each), Grid::THREADS),
                on.input(0),
                on.input(1),
                on.input(2),
                on.input(3),
                on.input(4),
                on.input(5),
                on.input(6),
                on.out(0),
                on.scratch(),
                on.tickets(),
                on.out(1),
                on.out(2),
                on.rows(1),
                on.rows(0),
                on.cols(0),
                self.0.gaps.into(),
                each as u32,
            )
        }
    }
}

/// `[roots, rows of h, d]`; every seventh root has no row, and there is room for three rows more.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[0, 2, 4], &[9, 4, 3], &[70, 33, 100], &[200, 5, 133], &[9, 4, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 700, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [r, n, d] = *dims else { return Err(Error::shape("project_time", "three sizes")) };
    let count = c.count(n);
    let rows = Rows::live(n + 3, count);
    let updated: Vec<i64> = (0..n + 3).map(|_| c.below(1_000) as i64).collect();
    let of_roots: Vec<u32> = (0..r).map(|i| if i % 7 == 6 { NONE } else { c.below(n) as u32 }).collect();
    let times: Vec<i64> =
        of_roots.iter().map(|&row| updated.get(row as usize).unwrap_or(&0) + c.below(500) as i64).collect();
    let (h, node_time) = (c.live_real(n + 3, count, d), c.values(Spec::times(rows), &updated));
    let (row, time) = (c.ids(&of_roots, 1), c.times(&times));
    let (w, b) = (c.real(1, d), c.real(1, d));
    let y = c.tape.project_time((h, node_time), (row, time), (w, b), 0.5)?;
    Ok(Built::new(&[y], &[h, w, b]))
}
