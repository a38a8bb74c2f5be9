//! `y1 = x W1^T + c V^T + b1` and `y2 = x W2^T + b2`: two maps of the same rows in one go
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, k]` f32 | |
//! | `c` | `[1, s]` f32 | what all rows share: the first map is one of `{x_i | c}` |
//! | `W1`, `V`, `W2` | `[m1, k]`, `[m1, s]`, `[m2, k]` f32 | weights, as PyTorch's `Linear` |
//! | `b1`, `b2` | `[1, m1]`, `[1, m2]` f32 | biases |
//! | y1, y2 | `[n, m1]`, `[n, m2]` f32 | |
//!
//! Backward: `dx = dy1 W1 + dy2 W2`, `dW_i = dy_i^T x`, `db_i = sum_n dy_i`, `dV = db1^T c`, `dc = db1 V`. One kernel where
//! three [`linear`]s would have three, and five with the sum of their gradients. Deterministic.
use super::{
    linear::{LinearInputGrad, LinearWeightGrad},
    *,
};
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long, row_parts, split_rows},
    parts,
    simd::{self, vectorised},
    team::InParallel,
};

/// See the [module](self).
#[derive(Debug)]
pub struct LinearPair;
/// `dx = dy1 W1 + dy2 W2`
#[derive(Debug)]
pub struct LinearPairInputGrad;
/// `dW_i = dy_i^T x`, `db_i = sum_n dy_i` and `dV = db1^T c`
#[derive(Debug)]
pub struct LinearPairWeightGrad;

impl Tape {
    /// Appends [`LinearPair`] of two pairs of weights and bias; `shared` is `(c, V)`, of the first.
    ///
    /// # Errors
    /// `Shape` when the widths do not fit.
    pub fn linear_pair(
        &mut self,
        x: Var,
        first: (Var, Var),
        shared: (Var, Var),
        second: (Var, Var),
    ) -> Result<(Var, Var)> {
        let o = self.push(LinearPair, &[x, first.0, first.1, second.0, second.1, shared.0, shared.1])?;
        Ok((o[0], o[1]))
    }
}

vectorised! {
    fn add_bias(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            simd::add_assign(row, bias);
        }
    }
    /// `bias = b + c V^T`
    fn shared_bias(bias: &mut [f32], b: &[f32], c: &[f32], v: &[f32]) {
        for (j, (bias, &b)) in bias.iter_mut().zip(b).enumerate() {
            *bias = b + simd::dot::<V>(&v[j * c.len()..][..c.len()], c);
        }
    }
}

impl Op for LinearPair {
    const NAME: &'static str = "linear_pair";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 7)?;
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        for of in [1, 3] {
            let (w, b) = (&ins[of], &ins[of + 1]);
            typed(Self::NAME, "w", w, DType::F32)?;
            typed(Self::NAME, "bias", b, DType::F32)?;
            shaped(Self::NAME, "w", w, w.rows.capacity, ins[0].cols)?;
            shaped(Self::NAME, "bias", b, 1, w.rows.capacity)?;
        }
        let (c, v) = (&ins[5], &ins[6]);
        typed(Self::NAME, "c", c, DType::F32)?;
        typed(Self::NAME, "v", v, DType::F32)?;
        shaped(Self::NAME, "c", c, 1, c.cols)?;
        shaped(Self::NAME, "v", v, ins[1].rows.capacity, c.cols)?;
        Ok([1, 3].map(|w| Spec::real(ins[0].rows, ins[w].rows.capacity).into()).to_vec())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * (outs[0].len() + outs[1].len()) * ins[0].cols + 2 * ins[6].len())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        ins[2].cols
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, k) = (io.input::<R>(0), io.cols(0));
        for of in 0..2 {
            let (w, b, m) = (io.input::<R>(1 + 2 * of), io.input::<R>(2 + 2 * of), io.out_cols(of));
            let shared = |j: usize| -> R {
                let (c, v) = (io.input::<R>(5), io.input::<R>(6));
                c.iter().zip(&v[j * c.len()..]).map(|(&c, &v)| c * v).sum()
            };
            for (at, y) in io.out::<R>(of).iter_mut().enumerate() {
                let (i, j) = (at / m, at % m);
                let product: R = (0..k).map(|l| x[i * k + l] * w[j * k + l]).sum();
                *y = product + b[j] + if of == 0 { shared(j) } else { R::ZERO };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k, m1, m2) = (io.rows(0), io.cols(0), io.out_cols(0), io.out_cols(1));
        let x = Mat::new(io.input(0), n, k);
        let bias = &mut io.scratch::<f32>()[..m1];
        shared_bias(bias, io.input(2), io.input(5), io.input(6));
        let biases = [&*bias, io.input(4)];
        // Both maps of the same rows by the same thread: the rows are in its cache.
        let parts = row_parts(n, m1 + m2, k);
        let outs =
            split_rows(io.out(0), &parts, m1).into_iter().zip(split_rows(io.out(1), &parts, m2)).zip(&parts);
        outs.in_parallel(1, |((y1, y2), rows)| {
            for (of, y, m) in [(0, y1, m1), (1, y2, m2)] {
                if m > 0 {
                    let w = Mat::new(io.input(1 + 2 * of), m, k);
                    matmul(MatMut::new(y, rows.len(), m), x.rows(rows), w.t(), false);
                    add_bias(y, biases[of]);
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m1, m2) = (on.out_cols(0), on.out_cols(1));
        let tiles = [m1, m2].map(|m| Grid::tiles(on.capacity(0), m as usize).blocks);
        let blocks = (tiles[0].0, tiles[0].1 + tiles[1].1, 1);
        let (w1, b1, w2, b2) = (on.input(1), on.input(2), on.input(3), on.input(4));
        let (c, v) = (on.input(5), on.input(6));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.linear_pair(
                on,
                Grid { blocks, ..Grid::new(1, Grid::THREADS) },
                on.input(0),
                w1,
                b1,
                c,
                v,
                w2,
                b2,
                on.kept(0),
                on.kept(1),
                on.rows(0),
                on.cols(0),
                on.cols(5),
                m1,
                m2,
                on.precision(),
            )
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let [x, w1, _, w2, _, c, v] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        if let (Some(dy1), Some(dy2)) = (douts[0], douts[1]) {
            let dx = t.push1(LinearPairInputGrad, &[dy1, w1, dy2, w2])?;
            let d = t.push(LinearPairWeightGrad, &[dy1, dy2, x, c])?;
            let dc = t.push1(LinearInputGrad, &[d[1], v])?;
            return Ok([dx, d[0], d[1], d[2], d[3], dc, d[4]].map(Some).to_vec());
        }
        // Only one of the two is used.
        let mut dins = vec![None; 7];
        for (of, w) in [(0, w1), (1, w2)] {
            if let Some(dy) = douts[of] {
                let d = t.push(LinearWeightGrad, &[dy, x])?;
                dins[0] = Some(t.push1(LinearInputGrad, &[dy, w])?);
                (dins[1 + 2 * of], dins[2 + 2 * of]) = (Some(d[0]), Some(d[1]));
            }
        }
        if let Some(db1) = dins[2] {
            dins[5] = Some(t.push1(LinearInputGrad, &[db1, v])?);
            dins[6] = Some(t.push(LinearWeightGrad, &[db1, c])?[0]);
        }
        Ok(dins)
    }
}

impl Op for LinearPairInputGrad {
    const NAME: &'static str = "linear_pair_input_grad";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 4)?;
        for of in [0, 2] {
            let (dy, w) = (&ins[of], &ins[of + 1]);
            typed(Self::NAME, "dy", dy, DType::F32)?;
            typed(Self::NAME, "w", w, DType::F32)?;
            shaped(Self::NAME, "w", w, dy.cols, ins[1].cols)?;
        }
        ensure!(Self::NAME, ins[0].rows == ins[2].rows, "dy are {} and {}", ins[0], ins[2]);
        Ok(vec![Spec::real(ins[0].rows, ins[1].cols).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len() * (ins[0].cols + ins[2].cols))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let k = io.cols(1);
        for (at, dx) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, l) = (at / k, at % k);
            let sum = |of: usize| -> R {
                let (dy, w, m) = (io.input::<R>(of), io.input::<R>(of + 1), io.cols(of));
                (0..m).map(|j| dy[i * m + j] * w[j * k + l]).sum()
            };
            *dx = sum(0) + sum(2);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k, dx) = (io.rows(0), io.cols(1), io.out::<f32>(0));
        for of in [0, 2] {
            let (dy, w) =
                (Mat::new(io.input(of), n, io.cols(of)), Mat::new(io.input(of + 1), io.cols(of), k));
            matmul(MatMut::new(dx, n, k), dy, w, of > 0);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m1, m2, depth) = (on.cols(0), on.cols(2), on.cols(1));
        let grid = Grid::tiles(on.capacity(0), depth as usize);
        let (dy1, w1, dy2, w2) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let (dx, rows, precision) = (on.out(0), on.rows(0), on.precision());
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.linear_pair_input_grad(on, grid, dy1, w1, dy2, w2, dx, rows, m1, m2, depth, precision) }
    }
}

impl LinearPairWeightGrad {
    /// Tiles of the wider `{dW | db}`, parts of the rows, for both.
    fn grid(ins: &[Spec]) -> Grid {
        let m = ins[0].cols.max(ins[1].cols);
        Grid::tiles(m, ins[2].cols + 1).parts(2 * Grid::parts_of(ins[2].rows.capacity))
    }
}

/// `dv = db^T c`
fn outer<R: Real>(dv: &mut [R], db: &[R], c: &[R]) {
    for (dv, &db) in dv.chunks_exact_mut(c.len().max(1)).zip(db) {
        dv.iter_mut().zip(c).for_each(|(dv, &c)| *dv = db * c);
    }
}

impl Op for LinearPairWeightGrad {
    const NAME: &'static str = "linear_pair_weight_grad";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 4)?;
        let k = ins[2].cols;
        typed(Self::NAME, "x", &ins[2], DType::F32)?;
        typed(Self::NAME, "c", &ins[3], DType::F32)?;
        shaped(Self::NAME, "c", &ins[3], 1, ins[3].cols)?;
        let mut outs = Vec::new();
        for dy in &ins[..2] {
            typed(Self::NAME, "dy", dy, DType::F32)?;
            ensure!(Self::NAME, dy.rows == ins[2].rows, "dy is {dy}, x is {}", ins[2]);
            outs.push(Spec::real(Rows::fixed(dy.cols), k).into());
            outs.push(Spec::real(Rows::fixed(1), dy.cols).into());
        }
        outs.push(Spec::real(Rows::fixed(ins[0].cols), ins[3].cols).into());
        Ok(outs)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (m, k) = (ins[0].cols.max(ins[1].cols), ins[2].cols);
        (parts::PARTS * m + m * k).max(Self::grid(ins).tile_parts())
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grid(ins).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * (ins[0].len() + ins[1].len()) * ins[2].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, n, k) = (io.input::<R>(2), io.rows(2), io.cols(2));
        let mut db = [1, 3].map(|of| io.out::<R>(of));
        for (of, db) in db.iter_mut().enumerate() {
            let (dy, m) = (io.input::<R>(of), io.cols(of));
            for (at, dw) in io.out::<R>(2 * of).iter_mut().enumerate() {
                *dw = (0..n).map(|i| dy[i * m + at / k] * x[i * k + at % k]).sum();
            }
            for (j, db) in db.iter_mut().enumerate() {
                *db = (0..n).map(|i| dy[i * m + j]).sum();
            }
        }
        outer(io.out(4), db[0], io.input(3));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k) = (io.rows(2), io.cols(2));
        let (x, scratch) = (Mat::new(io.input(2), n, k), io.scratch::<f32>());
        let mut db = [1, 3].map(|of| io.out::<f32>(of));
        for (of, db) in db.iter_mut().enumerate() {
            let (dy, m) = (io.input::<f32>(of), io.cols(of));
            let (half, partials) = scratch.split_at_mut(m * k);
            matmul_long(MatMut::new(io.out(2 * of), m, k), Mat::new(dy, n, m).t(), x, false, half);
            parts::column_sums(db, dy, partials);
        }
        outer(io.out(4), db[0], io.input(3));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.linear_pair_weight_grad(
                on,
                Self::grid(&[on.spec(0), on.spec(1), on.spec(2)]),
                on.input(0),
                on.input(1),
                on.input(2),
                on.input(3),
                on.scratch(),
                on.tickets(),
                on.out(0),
                on.out(1),
                on.out(2),
                on.out(3),
                on.out(4),
                on.rows(2),
                on.cols(0),
                on.cols(1),
                on.cols(2),
                on.cols(3),
                on.precision(),
            )
        }
    }
}

/// `[n, k, s, m1, m2, outputs]`; of one output only one map has a gradient: 1 the second, 0 the first; `n` of `n + 2` rows live.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1, 2],
    &[0, 5, 4, 3, 2, 2],
    &[9, 0, 2, 3, 70, 2],
    &[9, 5, 0, 3, 70, 2],
    &[6, 3, 7, 8, 4, 1],
    &[6, 3, 7, 8, 4, 0],
    &[300, 100, 60, 100, 30, 2],
];
pub(super) const BENCH: &[&[usize]] = &[&[700, 100, 100, 100, 100, 2]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, s, m1, m2, outs] = *dims else { return Err(Error::shape("linear_pair", "six sizes")) };
    let count = c.count(n);
    let x = c.live_real(n + 2, count, k);
    let (first, second) = ((c.real(m1, k), c.real(1, m1)), (c.real(m2, k), c.real(1, m2)));
    let shared = (c.real(1, s), c.real(m1, s));
    let (y1, y2) = c.tape.linear_pair(x, first, shared, second)?;
    let of_first = [x, first.0, first.1, shared.0, shared.1];
    Ok(match outs {
        0 => Built::new(&[y1], &of_first),
        1 => Built::new(&[y2], &[x, second.0, second.1]),
        _ => Built::new(&[y1, y2], &[&of_first[..], &[second.0, second.1]].concat()),
    })
}
