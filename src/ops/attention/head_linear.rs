//! Products per head: `up` computes `y_h = x_h W_h`, `down` computes `y_h = x_h W_h^T + s_h b_h`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `W` | `[h p, c]` f32 | head `h` owns rows `h p .. (h + 1) p` |
//! | `x` up, y down | `[n, h p]` f32 | one short row per head: queries, values |
//! | `x` down, y up | `[n, h c]` f32 | one long row per head: absorbed queries, mixed neighbour rows |
//! | `b`, `s` | `[1, h p]`, `[n, h]` f32, optional | bias, and its weight per row and head: they act as one more column (c) of `W` and of the long rows |
//!
//! These are the two projections of absorbed attention: `up` takes a query through W_k; `down` takes a mixed
//! row through W_v, whose bias is multiplied by the sum of the attention weights (1, except with dropout and
//! for roots without neighbours). Each product is the other's backward: `{dx | ds}_down = up(dy)` with
//! `ds_h = dy_h . b_h`, `dx_up = down(dy)`; `{dW_h | db_h} = x_h^T dy_h` (short times long). Deterministic.
//! Source: `docs/attention.md`.
use super::*;
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long, row_parts, split_rows},
    parts,
    simd::{self, vectorised},
    team::InParallel,
};
use std::ptr::{null, null_mut};

const BIAS_WEIGHT: usize = 2;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct HeadLinear {
    heads: usize,
    down: bool,
}
/// `{dW_h | db_h} = short_h^T {long_h | s_h}`: gradients of the weights, and of the bias if `s` is given.
#[derive(Debug)]
pub struct HeadWeightGrad {
    heads: usize,
}

impl Tape {
    /// Appends the `up` product: `x [n, h p]`, `w [h p, c]`, out `[n, h c]`.
    ///
    /// # Errors
    /// `Shape` if types or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[2.0f32, 3.0])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(2), 2), &[1.0f32, 10.0, 100.0, 1000.0])?;
    /// let y = tape.head_up(x, w, 2)?; // head 0 has the first row of w, head 1 the second
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [2.0, 20.0, 300.0, 3000.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn head_up(&mut self, x: Var, w: Var, heads: usize) -> Result<Var> {
        self.push1(HeadLinear { heads, down: false }, &[x, w])
    }
    /// Appends the `down` product: `x [n, h c]`, `w [h p, c]`, out `[n, h p]`; `bias` is `(b, s)`.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 4), &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(2), 2), &[1.0f32, 10.0, 100.0, 1000.0])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 2), &[5.0f32, 7.0])?;
    /// let s = tape.input(&mut store, "s", Spec::real(Rows::fixed(1), 2), &[1.0f32, 0.0])?;
    /// let y = tape.head_down(x, w, Some((b, s)), 2)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [26.0, 4300.0]); // 1 + 20 + 5, 300 + 4000 + 0
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn head_down(&mut self, x: Var, w: Var, bias: Option<(Var, Var)>, heads: usize) -> Result<Var> {
        let op = HeadLinear { heads, down: true };
        match bias {
            Some((b, s)) => self.push1(op, &[x, w, b, s]),
            None => self.push1(op, &[x, w]),
        }
    }
}

vectorised! {
    /// `y_h = s_h b_h` for rows of all heads.
    fn scaled_bias(y: &mut [f32], b: &[f32], s: &[f32], p: usize) {
        for (y, s) in y.chunks_exact_mut(b.len()).zip(s.chunks_exact(b.len() / p)) {
            for ((y, b), &s) in y.chunks_exact_mut(p).zip(b.chunks_exact(p)).zip(s) {
                for (y, &b) in y.iter_mut().zip(b) {
                    *y = b * s;
                }
            }
        }
    }
    /// `s_h = x_h . b_h` for rows of all heads.
    fn along_bias(s: &mut [f32], b: &[f32], x: &[f32], p: usize) {
        for (s, x) in s.chunks_exact_mut(b.len() / p).zip(x.chunks_exact(b.len())) {
            for ((s, b), x) in s.iter_mut().zip(b.chunks_exact(p)).zip(x.chunks_exact(p)) {
                *s = simd::dot::<V>(b, x);
            }
        }
    }
    /// `db_h += s_h short_h` for rows of all heads.
    fn add_scaled(db: &mut [f32], s: &[f32], short: &[f32], p: usize) {
        for (short, s) in short.chunks_exact(db.len()).zip(s.chunks_exact(db.len() / p)) {
            for ((db, short), &s) in db.chunks_exact_mut(p).zip(short.chunks_exact(p)).zip(s) {
                simd::axpy(db, s, short);
            }
        }
    }
}

impl HeadLinear {
    /// Returns a grid over the tiles of the short rows of all heads, times the chunks of the depth.
    fn grid_down(&self, x: &Spec, w: &Spec) -> Grid {
        Grid::tiles(x.rows.capacity, w.rows.capacity / self.heads).parts(self.heads).over_depth(w.cols)
    }
}

impl Op for HeadLinear {
    const NAME: &'static str = "head_linear";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, p], w [m, q], b? [1, m], s? [n, h] -> y";
    fn sizes(&self) -> Sizes {
        vec![("h", Rows::fixed(self.heads))]
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if ins.len() > at!(b) { 3 + usize::from(self.down) } else { 2 })?;
        let (x, w, h) = (&ins[at!(x)], &ins[at!(w)], self.heads);
        signature::infer(self, ins)?;
        ensure!(Self::NAME, h > 0 && w.rows.capacity % h == 0, "{h} heads do not divide the rows of w, {w}");
        let (short, long) = (w.rows.capacity, h.saturating_mul(w.cols));
        for (what, n) in [("heads", h), ("width of the short rows", short), ("width of the long rows", long)]
        {
            countable(Self::NAME, what, n)?;
        }
        let (from, to) = if self.down { (long, short) } else { (short, long) };
        ensure!(Self::NAME, x.cols == from, "x is {x}, want width {from}");
        let y = Spec::real(x.rows, to).into();
        Ok(if self.down || ins.len() == 2 { vec![y] } else { vec![y, Spec::real(x.rows, h).into()] })
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        if self.down { self.grid_down(&ins[at!(x)], &ins[at!(w)]).tile_parts() } else { 0 }
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        if self.down { self.grid_down(&ins[at!(x)], &ins[at!(w)]).count() } else { 0 }
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[at!(x)].rows.capacity * ins[at!(w)].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, w, c) = (io.input::<R>(at!(x)), io.input::<R>(at!(w)), io.cols(at!(w)));
        let p = io.rows(at!(w)) / self.heads;
        let (from, to) = if self.down { (c, p) } else { (p, c) };
        let bias = (io.inputs() > at!(b)).then(|| io.input::<R>(at!(b)));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (row, j) = (at / to, at % to); // `row` numbers the pairs of a row and a head
            let h = row % self.heads;
            let weight = |l: usize| if self.down { w[(h * p + j) * c + l] } else { w[(h * p + l) * c + j] };
            *y = (0..from).map(|l| x[row * from + l] * weight(l)).sum();
            if let (Some(b), true) = (bias, self.down) {
                *y += b[h * p + j] * io.input::<R>(at!(s))[row];
            }
        }
        if let (Some(b), false) = (bias, self.down) {
            for (row, s) in io.out::<R>(1).iter_mut().enumerate() {
                let h = row % self.heads;
                *s = (0..p).map(|l| x[row * p + l] * b[h * p + l]).sum();
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, w, n, c, heads) =
            (io.input::<f32>(at!(x)), io.input::<f32>(at!(w)), io.rows(at!(x)), io.cols(at!(w)), self.heads);
        let p = io.rows(at!(w)) / heads;
        let (from, to) = if self.down { (c, p) } else { (p, c) };
        let bias = (io.inputs() > at!(b) && p > 0).then(|| io.input::<f32>(at!(b)));
        if !self.down && io.inputs() > at!(b) {
            let (s, size) = (io.out::<f32>(1), parts::part_rows(n));
            match bias {
                Some(b) => s
                    .chunks_mut(size * heads)
                    .zip(x.chunks(size * b.len()))
                    .in_parallel(1, |(s, x)| along_bias(s, b, x, p)),
                None => s.fill(0.0),
            }
        }
        if n == 0 || to == 0 {
            return;
        }
        let bias = bias.filter(|_| self.down).map(|b| (b, io.input::<f32>(at!(s))));
        let parts = row_parts(n, to, from);
        split_rows(io.out(0), &parts, heads * to).into_iter().zip(&parts).in_parallel(1, |(y, rows)| {
            if let Some((b, s)) = bias {
                scaled_bias(y, b, &s[rows.start * heads..rows.end * heads], p);
            }
            for h in 0..heads {
                let wh = Mat::new(&w[h * p * c..][..p * c], p, c);
                let wh = if self.down { wh.t() } else { wh };
                let out = MatMut::strided(&mut y[h * to..], rows.len(), to, heads * to);
                matmul(out, Mat::block(x, n, heads, from, h).rows(rows), wh, bias.is_some());
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let heads = self.heads as u32;
        let (p, c, rows) = (on.capacity(at!(w)) as u32 / heads, on.cols(at!(w)), on.rows(at!(x)));
        let (x, w, y, biased) = (on.input(at!(x)), on.input(at!(w)), on.needed(0), on.inputs() > at!(b));
        let b = if biased { on.input(at!(b)) } else { null() };
        if self.down {
            let s = if biased { on.input(at!(s)) } else { null() };
            let (sums, tickets) = (on.scratch(), on.tickets());
            let grid = self.grid_down(&on.spec(at!(x)), &on.spec(at!(w)));
            launch!(
                k, on, head_linear_down[grid];
                x, w, b, s, sums, tickets, y, rows, heads, p, c, on.precision()
            )
        } else {
            let s = if biased { on.needed(1) } else { null_mut() };
            let grid = Grid::tiles(on.capacity(at!(x)), c as usize + usize::from(biased)).parts(self.heads);
            launch!(k, on, head_linear_up[grid]; x, w, b, y, s, rows, heads, p, c, on.precision())
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        if let (false, 3) = (self.down, node.ins.len()) {
            return Err(Error::shape(Self::NAME, "the backward of `down` has no derivative"));
        }
        let Some(dy) = douts[0] else { return Ok(vec![None; node.ins.len()]) };
        // With a bias (`down` only) the gradients are those of x and w, then of b and s.
        let (x, w) = (node.ins[at!(x)], node.ins[at!(w)]);
        let (b, s) = node.ins[at!(b)..].split_at(node.ins.len().min(at!(s)) - at!(b));
        let dx = t.push(HeadLinear { down: !self.down, ..*self }, &[&[dy, w], b].concat())?;
        let (short, long) = if self.down { (dy, x) } else { (x, dy) };
        let dw = t.push(HeadWeightGrad { heads: self.heads }, &[&[short, long], s].concat())?;
        let dins = [dx[0], dw[0]].into_iter().chain(dw[1..].iter().chain(&dx[1..]).copied());
        Ok(dins.map(Some).collect())
    }
}

impl HeadWeightGrad {
    /// Returns a grid over the tiles of the heads' gradients, the bias being one more column, times the
    /// chunks of the rows.
    fn grid(&self, ins: &[Spec]) -> Grid {
        let (short, long) = (&ins[at!(short)], &ins[at!(long)]);
        let tiles = Grid::tiles(short.cols / self.heads, long.cols / self.heads + ins.len() - 2);
        tiles.parts(self.heads).over_rows(short.rows.capacity)
    }
}

impl Op for HeadWeightGrad {
    const NAME: &'static str = "head_weight_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "short [n, h a], long [n, h c], s? [n, h] -> dw [h a, c], db [1, h a]";
    fn sizes(&self) -> Sizes {
        vec![("h", Rows::fixed(self.heads))]
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let mut outs = signature::infer(self, ins)?;
        countable(Self::NAME, "short", ins[at!(short)].cols)?;
        countable(Self::NAME, "long", ins[at!(long)].cols)?;
        outs.truncate(ins.len() - 1);
        Ok(outs)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.grid(ins).tile_parts().max(parts::PARTS * ins[at!(short)].cols)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        self.grid(ins).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[at!(short)].rows.capacity * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (short, long, n) = (io.input::<R>(at!(short)), io.input::<R>(at!(long)), io.rows(at!(short)));
        let (p, c) = (io.cols(at!(short)) / self.heads, io.cols(at!(long)) / self.heads);
        for (at, dw) in io.out::<R>(0).iter_mut().enumerate() {
            let (h, l, j) = (at / c / p, at / c % p, at % c);
            let head_row = |i: usize| i * self.heads + h;
            *dw = (0..n).map(|i| short[head_row(i) * p + l] * long[head_row(i) * c + j]).sum();
        }
        if io.inputs() > BIAS_WEIGHT {
            let s = io.input::<R>(BIAS_WEIGHT);
            for (at, db) in io.out::<R>(1).iter_mut().enumerate() {
                let head_row = |i: usize| i * self.heads + at / p;
                *db = (0..n).map(|i| short[head_row(i) * p + at % p] * s[head_row(i)]).sum();
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (short, long, n, heads) =
            (io.input::<f32>(at!(short)), io.input::<f32>(at!(long)), io.rows(at!(short)), self.heads);
        let (p, c) = (io.cols(at!(short)) / heads, io.cols(at!(long)) / heads);
        let scratch = io.scratch::<f32>();
        for (h, dw) in io.out::<f32>(0).chunks_exact_mut((p * c).max(1)).enumerate() {
            let (short, long) = (Mat::block(short, n, heads, p, h), Mat::block(long, n, heads, c, h));
            matmul_long(MatMut::new(dw, p, c), short.t(), long, false, scratch);
        }
        if io.inputs() > BIAS_WEIGHT && p > 0 {
            let (db, s, size) = (io.out::<f32>(1), io.input::<f32>(BIAS_WEIGHT), parts::part_rows(n));
            let partials = &mut scratch[..n.div_ceil(size) * db.len()];
            partials.fill(0.0);
            let rows = short.chunks(size * db.len()).zip(s.chunks(size * heads));
            partials
                .chunks_exact_mut(db.len())
                .zip(rows)
                .in_parallel(1, |(db, (short, s))| add_scaled(db, s, short, p));
            db.fill(0.0);
            parts::add_column_sums(db, partials);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let heads = self.heads as u32;
        let ins: Vec<Spec> = (0..on.inputs()).map(|i| on.spec(i)).collect();
        let grid = self.grid(&ins);
        let (s, db) =
            if ins.len() > BIAS_WEIGHT { (on.input(BIAS_WEIGHT), on.out(1)) } else { (null(), null_mut()) };
        launch!(
            k, on, head_weight_grad[grid];
            on.input(at!(short)), on.input(at!(long)), s, on.scratch(), on.tickets(), on.out(0), db,
            on.rows(at!(short)), heads, on.cols(at!(short)) / heads, on.cols(at!(long)) / heads,
            on.precision()
        )
    }
}

/// `[n, heads, p, c, down]`: up without a bias, down with one; `n` of `n + 2` rows are live.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 0],
    &[1, 1, 1, 1, 1],
    &[0, 2, 3, 4, 1],
    &[7, 2, 5, 9, 0],
    &[7, 3, 5, 9, 1],
    &[90, 2, 50, 372, 0],
    &[90, 2, 50, 372, 1],
    &[300, 2, 3, 5, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[700, 2, 50, 372, 0], &[1_800, 2, 50, 372, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, h, p, long, down] = *dims else { return Err(Error::shape("head_linear", "want five sizes")) };
    let (w, count) = (c.real(h * p, long), c.count(n));
    if down == 0 {
        let x = c.live_real(n + 2, count, h * p);
        let y = c.tape.head_up(x, w, h)?;
        return Ok(Built::new(&[y], &[x, w]));
    }
    let x = c.live_real(n + 2, count, h * long);
    let (b, s) = (c.real(1, h * p), c.live_real(n + 2, count, h));
    let y = c.tape.head_down(x, w, Some((b, s)), h)?;
    Ok(Built::new(&[y], &[x, w, b, s]))
}
