//! Products head by head: `up` `y_h = x_h W_h`, `down` `y_h = x_h W_h^T + scale_h b_h`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `W` | `[h p, c]` f32 | head `h` owns rows `h p .. (h + 1) p` |
//! | `x` up, y down | `[n, h p]` f32 | one short row a head: queries, values |
//! | `x` down, y up | `[n, h c]` f32 | one long row a head: absorbed queries, mixed neighbour rows |
//! | `b`, `scale` (down) | `[1, h p]`, `[n, h]` f32, optional | bias times a weight a row and head |
//!
//! These are the two projections of absorbed attention: `up` takes a query through W_k, `down` takes a mixed row
//! through W_v, whose bias counts as often as the attention weights sum to (1, but for drop-out and empty rows).
//! Each is the other's backward: `dx_up = down(dy)`, `dx_down = up(dy)`; `dW_h = x_h^T dy_h` (short times long).
//! Deterministic. Source: `docs/attention.md`.
use super::*;
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long, row_parts, split_rows},
    parts,
    simd::{self, vectorised},
    team::InParallel,
};

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct HeadLinear {
    heads: usize,
    down: bool,
}
/// `dW_h = short_h^T long_h`
#[derive(Debug)]
pub struct HeadWeightGrad {
    heads: usize,
}
/// Gradients of bias and scale.
#[derive(Debug)]
pub struct HeadBiasGrad;

impl HeadBiasGrad {
    /// Parts of the rows on a device. Short ones: work goes from row to row.
    fn device_parts(rows: usize) -> usize {
        (rows / 32).clamp(1, 64)
    }
}

impl Tape {
    /// Appends the `up` product: `x [n, h p]`, `w [h p, c]`, out `[n, h c]`.
    ///
    /// # Errors
    /// `Shape` when the widths do not fit.
    pub fn head_up(&mut self, x: Var, w: Var, heads: usize) -> Result<Var> {
        self.push1(HeadLinear { heads, down: false }, &[x, w])
    }
    /// Appends the `down` product: `x [n, h c]`, `w [h p, c]`, out `[n, h p]`; `bias` is `(b, scale)`.
    ///
    /// # Errors
    /// `Shape` when the widths do not fit.
    pub fn head_down(&mut self, x: Var, w: Var, bias: Option<(Var, Var)>, heads: usize) -> Result<Var> {
        let op = HeadLinear { heads, down: true };
        match bias {
            Some((b, scale)) => self.push1(op, &[x, w, b, scale]),
            None => self.push1(op, &[x, w]),
        }
    }
}

vectorised! {
    /// `y_h = scale_h b_h` for rows of all heads.
    fn scaled_bias(y: &mut [f32], b: &[f32], scale: &[f32], p: usize) {
        for (y, scale) in y.chunks_exact_mut(b.len()).zip(scale.chunks_exact(b.len() / p)) {
            for ((y, b), &scale) in y.chunks_exact_mut(p).zip(b.chunks_exact(p)).zip(scale) {
                for (y, &b) in y.iter_mut().zip(b) {
                    *y = b * scale;
                }
            }
        }
    }
    /// `dscale_h = b_h . dy_h` and `db_h += scale_h dy_h` for rows of all heads.
    fn bias_grad(dscale: &mut [f32], db: &mut [f32], b: &[f32], scale: &[f32], dy: &[f32], p: usize) {
        let heads = b.len() / p;
        for ((dy, scale), dscale) in
            dy.chunks_exact(b.len()).zip(scale.chunks_exact(heads)).zip(dscale.chunks_exact_mut(heads))
        {
            for h in 0..heads {
                let dy = &dy[h * p..][..p];
                dscale[h] = simd::dot::<V>(&b[h * p..][..p], dy);
                simd::axpy(&mut db[h * p..][..p], scale[h], dy);
            }
        }
    }
}

/// Columns of one head of a `[n, heads * width]` matrix.
fn head(x: &[f32], n: usize, heads: usize, width: usize, h: usize) -> Mat<'_> {
    Mat::strided(x.get(h * width..).unwrap_or(&[]), n, width, heads * width)
}

impl Op for HeadLinear {
    const NAME: &'static str = "head_linear";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let (x, w, h) = (&ins[0], &ins[1], self.heads);
        typed(Self::NAME, "x", x, DType::F32)?;
        typed(Self::NAME, "w", w, DType::F32)?;
        ensure!(Self::NAME, h > 0 && w.rows.cap % h == 0, "{h} heads do not divide the rows of w, {w}");
        let (short, long) = (w.rows.cap, h * w.cols);
        let (from, to) = if self.down { (long, short) } else { (short, long) };
        ensure!(Self::NAME, x.cols == from, "x is {x}, want {from} columns");
        if let [_, _, b, scale] = ins {
            shaped(Self::NAME, "bias", b, 1, short)?;
            ensure!(Self::NAME, *scale == Spec::real(x.rows, h), "scale is {scale}, want {h} columns");
        }
        Ok(vec![Spec::real(x.rows, to).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[0].rows.cap * ins[1].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, w, c) = (io.input::<R>(0), io.input::<R>(1), io.cols(1));
        let p = io.rows(1) / self.heads;
        let (from, to) = if self.down { (c, p) } else { (p, c) };
        let bias = (io.inputs() == 4).then(|| (io.input::<R>(2), io.input::<R>(3)));
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            let (row, j) = (at / to, at % to); // row counts rows and heads: n * heads + h
            let h = row % self.heads;
            let weight = |l: usize| if self.down { w[(h * p + j) * c + l] } else { w[(h * p + l) * c + j] };
            *y = (0..from).map(|l| x[row * from + l] * weight(l)).sum();
            if let Some((b, scale)) = bias {
                *y += b[h * p + j] * scale[row];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, w, n, c, heads) =
            (io.input::<f32>(0), io.input::<f32>(1), io.rows(0), io.cols(1), self.heads);
        let p = io.rows(1) / heads;
        let (from, to) = if self.down { (c, p) } else { (p, c) };
        let y = io.out::<f32>(0);
        if n == 0 || to == 0 {
            return;
        }
        let bias = (io.inputs() == 4).then(|| (io.input::<f32>(2), io.input::<f32>(3)));
        let parts = row_parts(n, to, from);
        split_rows(y, &parts, heads * to).into_iter().zip(&parts).in_parallel(1, |(y, rows)| {
            if let Some((b, scale)) = bias {
                scaled_bias(y, b, &scale[rows.start * heads..rows.end * heads], p);
            }
            for h in 0..heads {
                let wh = Mat::new(&w[h * p * c..][..p * c], p, c);
                let wh = if self.down { wh.t() } else { wh };
                let out = MatMut::strided(&mut y[h * to..], rows.len(), to, heads * to);
                matmul(out, head(x, n, heads, from, h).rows(rows), wh, bias.is_some());
            }
        });
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let heads = self.heads as u32;
        let (p, c, rows) = (on.cap(1) as u32 / heads, on.cols(1), on.rows(0));
        let grid = Grid::tiles(on.cap(0), if self.down { p } else { c } as usize).parts(self.heads);
        let (x, w, y) = (on.input(0), on.input(1), on.out(0));
        if !self.down {
            return k.head_linear_up(on, grid, x, w, y, rows, heads, p, c, on.precision());
        }
        let (b, scale) =
            if on.inputs() == 4 { (on.input(2), on.input(3)) } else { (std::ptr::null(), std::ptr::null()) };
        k.head_linear_down(on, grid, x, w, b, scale, y, rows, heads, p, c, on.precision())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; node.ins.len()]) };
        let (x, w) = (node.ins[0], node.ins[1]);
        let dx = t.push1(HeadLinear { down: !self.down, ..*self }, &[dy, w])?;
        let (short, long) = if self.down { (dy, x) } else { (x, dy) };
        let dw = t.push1(HeadWeightGrad { heads: self.heads }, &[short, long])?;
        let mut dins = vec![Some(dx), Some(dw)];
        if let [_, _, b, scale] = node.ins[..] {
            dins.extend(t.push(HeadBiasGrad, &[b, scale, dy])?.into_iter().map(Some));
        }
        Ok(dins)
    }
}

impl HeadWeightGrad {
    /// Tiles of the gradient of one head.
    fn tiles(&self, ins: &[Spec]) -> Grid {
        Grid::tiles(ins[0].cols / self.heads, ins[1].cols / self.heads)
    }
}

impl Op for HeadWeightGrad {
    const NAME: &'static str = "head_weight_grad";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(Self::NAME, ins[0].rows == ins[1].rows, "short is {}, long is {}", ins[0], ins[1]);
        Ok(vec![Spec::real(Rows::fixed(ins[0].cols), ins[1].cols / self.heads).into()])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.tiles(ins).parts(self.heads * Grid::parts_of(ins[0].rows.cap)).tile_parts()
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        self.tiles(ins).parts(self.heads).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[0].rows.cap * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (short, long, n) = (io.input::<R>(0), io.input::<R>(1), io.rows(0));
        let (p, c) = (io.cols(0) / self.heads, io.cols(1) / self.heads);
        for (at, dw) in io.out::<R>(0).iter_mut().enumerate() {
            let (h, l, j) = (at / c / p, at / c % p, at % c);
            let row = |i: usize| i * self.heads + h;
            *dw = (0..n).map(|i| short[row(i) * p + l] * long[row(i) * c + j]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (short, long, n, heads) = (io.input::<f32>(0), io.input::<f32>(1), io.rows(0), self.heads);
        let (p, c) = (io.cols(0) / heads, io.cols(1) / heads);
        let half = io.scratch::<f32>();
        for (h, dw) in io.out::<f32>(0).chunks_exact_mut((p * c).max(1)).enumerate() {
            let (short, long) = (head(short, n, heads, p, h), head(long, n, heads, c, h));
            matmul_long(MatMut::new(dw, p, c), short.t(), long, false, half);
        }
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (heads, parts) = (self.heads as u32, Grid::parts_of(on.cap(0)));
        let grid = self.tiles(&[on.spec(0), on.spec(1)]).parts(self.heads * parts);
        k.head_weight_grad(
            on,
            grid,
            on.input(0),
            on.input(1),
            on.scratch(),
            on.tickets(),
            on.out(0),
            on.rows(0),
            heads,
            on.cols(0) / heads,
            on.cols(1) / heads,
            parts as u32,
            on.precision(),
        )
    }
}

impl Op for HeadBiasGrad {
    const NAME: &'static str = "head_bias_grad";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Ok(vec![ins[0].into(), ins[1].into()])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        parts::PARTS.max(Self::device_parts(ins[1].rows.cap)) * ins[0].cols
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 4 * ins[2].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (b, scale, dy, heads) = (io.input::<R>(0), io.input::<R>(1), io.input::<R>(2), io.cols(1));
        let p = b.len() / heads;
        let (db, dscale) = (io.out::<R>(0), io.out::<R>(1));
        db.fill(R::ZERO);
        for (row, ds) in dscale.iter_mut().enumerate() {
            let h = row % heads;
            *ds = (0..p).map(|j| b[h * p + j] * dy[row * p + j]).sum();
            for j in 0..p {
                db[h * p + j] += scale[row] * dy[row * p + j];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (b, scale, dy) = (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2));
        let (heads, n) = (io.cols(1), io.rows(1));
        let p = b.len() / heads;
        if p == 0 {
            return io.out::<f32>(1).fill(0.0);
        }
        let (db, size) = (io.out::<f32>(0), parts::part_rows(n));
        let partials = &mut io.scratch::<f32>()[..n.div_ceil(size) * b.len()];
        partials.fill(0.0);
        partials
            .chunks_exact_mut(b.len())
            .zip(io.out::<f32>(1).chunks_mut(size * heads))
            .zip(scale.chunks(size * heads).zip(dy.chunks(size * b.len())))
            .in_parallel(1, |((db, dscale), (scale, dy))| bias_grad(dscale, db, b, scale, dy, p));
        db.fill(0.0);
        parts::add_column_sums(db, partials);
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(1, Grid::THREADS).parts(Self::device_parts(on.cap(1)));
        let (b, scale, dy, db, dscale) = (on.input(0), on.input(1), on.input(2), on.out(0), on.out(1));
        let (made, ticket, heads, p) = (on.scratch(), on.tickets(), on.cols(1), on.cols(0) / on.cols(1));
        k.head_bias_grad(on, grid, b, scale, dy, made, ticket, db, dscale, on.rows(1), heads, p)
    }
}

/// `[n, heads, p, c, down]`: up without, down with a bias; `n` of `n + 2` rows live.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 0],
    &[1, 1, 1, 1, 1],
    &[0, 2, 3, 4, 1],
    &[7, 2, 5, 9, 0],
    &[7, 3, 5, 9, 1],
    &[90, 2, 50, 372, 0],
    &[90, 2, 50, 372, 1],
    &[300, 2, 3, 5, 1],
];
pub(super) const BENCH: &[&[usize]] = &[&[700, 2, 50, 372, 0], &[1_800, 2, 50, 372, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, h, p, long, down] = *dims else { return Err(Error::shape("head_linear", "five sizes")) };
    let (w, count) = (c.real(h * p, long), c.count(n));
    if down == 0 {
        let x = c.live_real(n + 2, count, h * p);
        let y = c.tape.head_up(x, w, h)?;
        return Ok(Built::new(&[y], &[x, w]));
    }
    let x = c.live_real(n + 2, count, h * long);
    let (b, scale) = (c.real(1, h * p), c.live_real(n + 2, count, h));
    let y = c.tape.head_down(x, w, Some((b, scale)), h)?;
    Ok(Built::new(&[y], &[x, w, b, scale]))
}
