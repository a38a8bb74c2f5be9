//! `y1 = x W1^T + c V^T + b1` and `y2 = x W2^T + b2`: two linear maps of the same rows in one op
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, k]` f32 | |
//! | `c` | `[1, s]` f32 | input shared by all rows: the first map takes `{x_i \| c}` |
//! | `W1`, `V`, `W2` | `[m1, k]`, `[m1, s]`, `[m2, k]` f32 | weights, as PyTorch's `Linear` |
//! | `b1`, `b2` | `[1, m1]`, `[1, m2]` f32 | biases |
//! | y1, y2 | `[n, m1]`, `[n, m2]` f32 | |
//!
//! Backward: `dx = dy1 W1 + dy2 W2`, `dW_i = dy_i^T x`, `db_i = sum_n dy_i`, `dV = db1^T c`, `dc = db1 V`.
//! One kernel replaces the three that three [`linear`]s would launch, and, in the backward pass, the five
//! that their gradients and the sum of these would launch. If `x` is a prefix of other rows, the gradients of
//! all of these are added in the same pass. Deterministic.
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
/// `dx = dy1 W1 + dy2 W2`, or `dx = base + dy1 W1 + dy2 W2`, whose base may have more rows; these are copied.
#[derive(Debug)]
pub struct LinearPairInputGrad {
    /// Whether there is a base.
    onto: bool,
}
/// `dW_i = dy_i^T x`, `db_i = sum_n dy_i` and `dV = db1^T c`
#[derive(Debug)]
pub struct LinearPairWeightGrad;

impl Tape {
    /// Appends [`LinearPair`] and returns `y1 = x W1^T + c V^T + b1` and `y2 = x W2^T + b2`. `first` and
    /// `second` are `(W, b)` of the two maps; `shared` is `(c, V)` of the first.
    ///
    /// # Errors
    /// `Shape` if types or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(2), 1), &[1.0f32, 2.0])?;
    /// let w1 = tape.input(&mut store, "w1", Spec::real(Rows::fixed(1), 1), &[10.0f32])?;
    /// let b1 = tape.input(&mut store, "b1", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
    /// let c = tape.input(&mut store, "c", Spec::real(Rows::fixed(1), 1), &[5.0f32])?;
    /// let v = tape.input(&mut store, "v", Spec::real(Rows::fixed(1), 1), &[100.0f32])?;
    /// let w2 = tape.input(&mut store, "w2", Spec::real(Rows::fixed(1), 1), &[-1.0f32])?;
    /// let b2 = tape.input(&mut store, "b2", Spec::real(Rows::fixed(1), 1), &[0.5f32])?;
    /// let (y1, y2) = tape.linear_pair(x, (w1, b1), (c, v), (w2, b2))?;
    /// let mut program = Program::new(&tape, &[y1, y2], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y1, &store)?, [511.0, 521.0]); // 10 x + 500 + 1
    /// assert_eq!(program.read::<f32>(y2, &store)?, [-0.5, -1.5]); // -x + 0.5
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn linear_pair(
        &mut self,
        x: Var,
        first: (Var, Var),
        shared: (Var, Var),
        second: (Var, Var),
    ) -> Result<(Var, Var)> {
        let y = self.push(LinearPair, &[x, first.0, first.1, second.0, second.1, shared.0, shared.1])?;
        Ok((y[0], y[1]))
    }
}

vectorised! {
    fn add_bias(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            simd::add_assign(row, bias);
        }
    }
    /// Computes `bias = b + c V^T`.
    fn shared_bias(bias: &mut [f32], b: &[f32], c: &[f32], v: &[f32]) {
        for (j, (bias, &b)) in bias.iter_mut().zip(b).enumerate() {
            *bias = b + simd::dot::<V>(&v[j * c.len()..][..c.len()], c);
        }
    }
}

/// Input indices; `W` and `B` have one index for each map.
impl LinearPair {
    const W: [usize; 2] = [1, 3];
    const B: [usize; 2] = [2, 4];
}

impl Op for LinearPair {
    const NAME: &'static str = "linear_pair";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, k], w1 [m1, k], b1 [1, m1], w2 [m2, k], b2 [1, m2], c [1, t], \
        v [m1, t] -> y1 [n, m1], y2 [n, m2]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let products = 2 * (outs[0].len() + outs[1].len()) * ins[at!(x)].cols;
        Cost::streaming(ins, outs, products + 2 * ins[at!(v)].len())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        ins[Self::B[0]].cols
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, k) = (io.input::<R>(at!(x)), io.cols(at!(x)));
        let (c, v) = (io.input::<R>(at!(c)), io.input::<R>(at!(v)));
        let shared = |j: usize| -> R { c.iter().zip(&v[j * c.len()..]).map(|(&c, &v)| c * v).sum() };
        for map in 0..2 {
            let (w, b, m) = (io.input::<R>(Self::W[map]), io.input::<R>(Self::B[map]), io.out_cols(map));
            for (at, y) in io.out::<R>(map).iter_mut().enumerate() {
                let (i, j) = (at / m, at % m);
                let product: R = (0..k).map(|l| x[i * k + l] * w[j * k + l]).sum();
                *y = product + b[j] + if map == 0 { shared(j) } else { R::ZERO };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k, m1, m2) = (io.rows(at!(x)), io.cols(at!(x)), io.out_cols(0), io.out_cols(1));
        let x = Mat::new(io.input(at!(x)), n, k);
        let bias = &mut io.scratch::<f32>()[..m1];
        shared_bias(bias, io.input(Self::B[0]), io.input(at!(c)), io.input(at!(v)));
        let biases = [&*bias, io.input(Self::B[1])];
        // One thread computes both maps of a chunk, so the rows of x stay in its cache.
        let chunks = row_parts(n, m1 + m2, k);
        let (y1, y2) = (split_rows(io.out(0), &chunks, m1), split_rows(io.out(1), &chunks, m2));
        y1.into_iter().zip(y2).zip(&chunks).in_parallel(1, |((y1, y2), rows)| {
            for (map, y, m) in [(0, y1, m1), (1, y2, m2)] {
                if m > 0 {
                    let w = Mat::new(io.input(Self::W[map]), m, k);
                    matmul(MatMut::new(y, rows.len(), m), x.rows(rows), w.t(), false);
                    add_bias(y, biases[map]);
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m1, m2) = (on.out_cols(0), on.out_cols(1));
        let tiles = [m1, m2].map(|m| Grid::tiles(on.capacity(at!(x)), m as usize).blocks);
        let blocks = (tiles[0].0, tiles[0].1 + tiles[1].1, 1);
        let grid = Grid { blocks, ..Grid::new(1, Grid::THREADS) };
        let (x, [w1, w2], [b1, b2]) =
            (on.input(at!(x)), Self::W.map(|w| on.input(w)), Self::B.map(|b| on.input(b)));
        let (c, v, y1, y2) = (on.input(at!(c)), on.input(at!(v)), on.needed(0), on.needed(1));
        let (rows, depth, shared) = (on.rows(at!(x)), on.cols(at!(x)), on.cols(at!(c)));
        launch!(
            k, on, linear_pair[grid];
            x, w1, b1, c, v, w2, b2, y1, y2, rows, depth, shared, m1, m2, on.precision()
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let [x, w1, _, w2, _, c, v] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        if let (Some(dy1), Some(dy2)) = (douts[0], douts[1]) {
            let dx = t.push1(LinearPairInputGrad { onto: false }, &[dy1, w1, dy2, w2])?;
            let grads = t.push(LinearPairWeightGrad, &[dy1, dy2, x, c])?;
            let [dw1, db1, dw2, db2, dv] = [0, 1, 2, 3, 4].map(|out| grads[out]);
            let dc = t.push1(LinearInputGrad, &[db1, v])?;
            return Ok([dx, dw1, db1, dw2, db2, dc, dv].map(Some).to_vec());
        }
        // At most one output has a gradient.
        let mut dins = vec![None; 7];
        for (map, w) in [(0, w1), (1, w2)] {
            if let Some(dy) = douts[map] {
                let grads = t.push(LinearWeightGrad, &[dy, x])?;
                dins[at!(x)] = Some(t.push1(LinearInputGrad, &[dy, w])?);
                (dins[Self::W[map]], dins[Self::B[map]]) = (Some(grads[0]), Some(grads[1]));
            }
        }
        if let Some(db1) = dins[Self::B[0]] {
            dins[at!(c)] = Some(t.push1(LinearInputGrad, &[db1, v])?);
            dins[at!(v)] = Some(t.push(LinearWeightGrad, &[db1, c])?[0]);
        }
        Ok(dins)
    }
}

/// Input indices; `DY` and `W` have one index for each map.
impl LinearPairInputGrad {
    const DY: [usize; 2] = [0, 2];
    const W: [usize; 2] = [1, 3];

    /// Returns the op, with its inputs, that adds the output of `node` to `base`; `None` if `node` is another
    /// op or has a base.
    pub(in crate::ops) fn added_to(base: Var, node: &Node) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        if node.op.name() != Self::NAME || node.ins.len() != at!(base) {
            return None;
        }
        Some((Arc::new(LinearPairInputGrad { onto: true }), [&node.ins[..], &[base]].concat()))
    }
}

impl Op for LinearPairInputGrad {
    const NAME: &'static str = "linear_pair_input_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dy1 [n, m1], w1 [m1, k], dy2 [n, m2], w2 [m2, k], base? [a, k] \
        -> dx [n, k]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.onto)
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let outs = signature::infer(self, ins)?;
        let Some(base) = ins.get(at!(base)) else { return Ok(outs) };
        let dy1 = ins[Self::DY[0]];
        let fits = dy1.rows.capacity <= base.rows.capacity;
        ensure!(Self::NAME, fits, "dy1 is {dy1}, want at most the rows of base, {base}");
        Ok(vec![(*base).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let m: usize = Self::DY.iter().map(|&dy| ins[dy].cols).sum();
        Cost::streaming(ins, outs, 2 * ins[Self::DY[0]].rows.capacity * outs[0].cols * m)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (n, k, dx) = (io.rows(Self::DY[0]), io.out_cols(0), io.out::<R>(0));
        if self.onto {
            dx.copy_from_slice(io.input(at!(base)));
        } else {
            dx.fill(R::ZERO);
        }
        for (at, dx) in dx.iter_mut().enumerate().take(n * k) {
            let (i, l) = (at / k, at % k);
            let term = |map: usize| -> R {
                let (dy, w) = (io.input::<R>(Self::DY[map]), io.input::<R>(Self::W[map]));
                let m = io.cols(Self::DY[map]);
                (0..m).map(|j| dy[i * m + j] * w[j * k + l]).sum()
            };
            *dx += term(0) + term(1);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k, dx) = (io.rows(Self::DY[0]).min(io.out_rows(0)), io.out_cols(0), io.out::<f32>(0));
        if self.onto {
            dx.copy_from_slice(io.input(at!(base)));
        }
        for map in 0..2 {
            let m = io.cols(Self::DY[map]);
            let (dy, w) = (Mat::new(io.input(Self::DY[map]), n, m), Mat::new(io.input(Self::W[map]), m, k));
            matmul(MatMut::new(&mut dx[..n * k], n, k), dy, w, self.onto || map > 0);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let ([dy1, dy2], [w1, w2]) = (Self::DY.map(|dy| on.input(dy)), Self::W.map(|w| on.input(w)));
        let ([m1, m2], depth) = (Self::DY.map(|dy| on.cols(dy)), on.out_cols(0));
        let grid = Grid::tiles(on.out_cap(0), depth as usize);
        let base = if self.onto { on.input(at!(base)) } else { std::ptr::null() };
        let (dx, rows, of_base, precision) =
            (on.out(0), on.rows(Self::DY[0]), on.out_rows(0), on.precision());
        launch!(
            k, on, linear_pair_input_grad[grid];
            dy1, w1, dy2, w2, base, dx, rows, of_base, m1, m2, depth, precision
        )
    }
}

/// Input and output indices; the arrays have one index for each map.
impl LinearPairWeightGrad {
    const DY: [usize; 2] = [0, 1];
    const DW: [usize; 2] = [0, 2];
    const DB: [usize; 2] = [1, 3];
    const DV: usize = 4;

    /// Returns the grid: the tiles of the wider `{dW | db}`, times the chunks of the rows for both maps.
    fn grid(ins: &[Spec]) -> Grid {
        let ([m1, m2], x) = (Self::DY.map(|dy| ins[dy].cols), &ins[at!(x)]);
        Grid::tiles(m1.max(m2), x.cols + 1).parts(2).over_rows(x.rows.capacity)
    }
}

/// Computes `dv = db^T c`.
fn outer<R: Real>(dv: &mut [R], db: &[R], c: &[R]) {
    for (dv, &db) in dv.chunks_exact_mut(c.len().max(1)).zip(db) {
        dv.iter_mut().zip(c).for_each(|(dv, &c)| *dv = db * c);
    }
}

impl Op for LinearPairWeightGrad {
    const NAME: &'static str = "linear_pair_weight_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dy1 [n, m1], dy2 [n, m2], x [n, k], c [1, t] \
        -> dw1 [m1, k], db1 [1, m1], dw2 [m2, k], db2 [1, m2], dv [m1, t]";
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (m, k) = (ins[Self::DY[0]].cols.max(ins[Self::DY[1]].cols), ins[at!(x)].cols);
        (parts::PARTS * m + m * k).max(Self::grid(ins).tile_parts())
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grid(ins).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let dy: usize = Self::DY.iter().map(|&dy| ins[dy].len()).sum();
        Cost::streaming(ins, outs, 2 * dy * ins[at!(x)].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, n, k) = (io.input::<R>(at!(x)), io.rows(at!(x)), io.cols(at!(x)));
        let mut dbs = Self::DB.map(|out| io.out::<R>(out));
        for (map, db) in dbs.iter_mut().enumerate() {
            let (dy, m) = (io.input::<R>(Self::DY[map]), io.cols(Self::DY[map]));
            for (at, dw) in io.out::<R>(Self::DW[map]).iter_mut().enumerate() {
                *dw = (0..n).map(|i| dy[i * m + at / k] * x[i * k + at % k]).sum();
            }
            for (j, db) in db.iter_mut().enumerate() {
                *db = (0..n).map(|i| dy[i * m + j]).sum();
            }
        }
        outer(io.out(Self::DV), dbs[0], io.input(at!(c)));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (n, k) = (io.rows(at!(x)), io.cols(at!(x)));
        let (x, scratch) = (Mat::new(io.input(at!(x)), n, k), io.scratch::<f32>());
        let mut dbs = Self::DB.map(|out| io.out::<f32>(out));
        for (map, db) in dbs.iter_mut().enumerate() {
            let (dy, m) = (io.input::<f32>(Self::DY[map]), io.cols(Self::DY[map]));
            let (half_sums, partials) = scratch.split_at_mut(m * k);
            let dw = MatMut::new(io.out(Self::DW[map]), m, k);
            matmul_long(dw, Mat::new(dy, n, m).t(), x, false, half_sums);
            parts::column_sums(db, dy, partials);
        }
        outer(io.out(Self::DV), dbs[0], io.input(at!(c)));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Self::grid(&[0, 1, 2, 3].map(|i| on.spec(i)));
        let ([dy1, dy2], x, c) = (Self::DY.map(|dy| on.input(dy)), on.input(at!(x)), on.input(at!(c)));
        let [dw1, dw2] = Self::DW.map(|out| on.out(out));
        let ([db1, db2], dv) = (Self::DB.map(|out| on.out(out)), on.out(Self::DV));
        let (rows, [m1, m2]) = (on.rows(at!(x)), Self::DY.map(|dy| on.cols(dy)));
        let (depth, shared) = (on.cols(at!(x)), on.cols(at!(c)));
        launch!(
            k, on, linear_pair_weight_grad[grid];
            dy1, dy2, x, c, on.scratch(), on.tickets(), dw1, db1, dw2, db2, dv, rows, m1, m2, depth,
            shared, on.precision()
        )
    }
}

/// `[n, k, s, m1, m2, outputs]`; `n` of `n + 2` rows are live. `outputs` is 2 if both maps have a gradient, 1
/// if only the second has, 0 if only the first has. It is 3 if both have and `x` is a prefix of `2 n + 2`
/// rows, which are an output, too.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1, 2],
    &[0, 5, 4, 3, 2, 2],
    &[9, 0, 2, 3, 70, 2],
    &[9, 5, 0, 3, 70, 2],
    &[6, 3, 7, 8, 4, 1],
    &[6, 3, 7, 8, 4, 0],
    &[300, 100, 60, 100, 30, 2],
    &[0, 3, 2, 4, 5, 3],
    &[1, 1, 1, 1, 1, 3],
    &[9, 5, 2, 3, 7, 3],
    &[70, 100, 4, 8, 30, 3],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[700, 100, 100, 100, 100, 3]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, s, m1, m2, outputs] = *dims else { return Err(Error::shape("linear_pair", "six sizes")) };
    let count = c.count(n);
    let leaf = if outputs == 3 { c.real(2 * n + 2, k) } else { c.live_real(n + 2, count, k) };
    let (all_rows, x) = if outputs == 3 {
        let all_rows = c.tape.add(leaf, leaf)?;
        (Some(all_rows), c.tape.prefix_rows(all_rows, Rows::live(n + 2, count))?)
    } else {
        (None, leaf)
    };
    let (first, second) = ((c.real(m1, k), c.real(1, m1)), (c.real(m2, k), c.real(1, m2)));
    let shared = (c.real(1, s), c.real(m1, s));
    let (y1, y2) = c.tape.linear_pair(x, first, shared, second)?;
    let first_inputs = [leaf, first.0, first.1, shared.0, shared.1];
    Ok(match outputs {
        0 => Built::new(&[y1], &first_inputs),
        1 => Built::new(&[y2], &[leaf, second.0, second.1]),
        _ => {
            let outs: Vec<Var> = [y1, y2].into_iter().chain(all_rows).collect();
            Built::new(&outs, &[&first_inputs[..], &[second.0, second.1]].concat())
        }
    })
}
