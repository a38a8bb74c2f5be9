//! `logit[i, j] = w . relu(W_src z_u + W_dst z_x + b) + b_out`, where u is the source of event i and x its
//! candidate j
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `z` | `[(2 + m) b, d]` f32 | embeddings of the roots, event by event: source, destination, m >= 0 negatives |
//! | `W_src`, `W_dst`, `b` | `[c, d]`, `[c, d]`, `[1, c]` f32 | |
//! | `w`, `b_out` | `[1, c]`, `[1, 1]` f32 | |
//! | logits | `[b, 1 + m]` f32 | column 0: the event itself |
//! | hidden | `[b, (1 + m) c]` f32 | hidden layer after relu, for the backward pass |
//!
//! `W_src z_u` is computed once for all candidates of an event.
//!
//! Backward: `dhidden` has the rows of `z`: `dhidden_x = dlogit w [hidden > 0]` for a candidate, and
//! `dhidden_u = sum_x dhidden_x` for the source. Then `dz_u = dhidden_u W_src`, `dz_x = dhidden_x W_dst`,
//! `dW_src = sum_u dhidden_u^T z_u`, `dW_dst = sum_x dhidden_x^T z_x`. If `dlogit` is the gradient of a
//! [`bce_loss`], it is computed in the same pass as `dhidden`. Deterministic.
//!
//! Source: the merge layer of TGN (Rossi et al. 2020), split as in PyTorch Geometric.
use super::{
    bce_loss::{BceLossGrad, define_gradient, gradients, two_columns, weights},
    epilogue::above_zero,
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
pub struct LinkDecoder {
    events: Rows,
}
/// Gradients of the sums before relu (`dhidden`, with the rows of `z`), and of `b`, `w` and `b_out`.
#[derive(Debug)]
pub struct LinkDecoderGrad {
    /// Whether the inputs are the logits and the gradient of their [`bce_loss`](super::bce_loss), not the
    /// gradients of the logits.
    of_loss: bool,
}
/// Gradient of `z`.
#[derive(Debug)]
pub struct LinkDecoderInputGrad {
    /// Roots an event.
    roots: u32,
}
/// Gradients of `W_src` and `W_dst`.
#[derive(Debug)]
pub struct LinkDecoderWeightGrad {
    /// Roots an event.
    roots: u32,
}

impl Tape {
    /// Appends [`LinkDecoder`] and returns the logits, `[b, 1 + m]`, of each of the b `events` and its m
    /// negatives, from the embeddings `z` of their roots, `[(2 + m) b, d]`; `weights` are `W_src, W_dst, b,
    /// w, b_out`.
    ///
    /// # Errors
    /// `Shape` if `z` does not have the same number of rows, two or more, for every event, or types or widths
    /// do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let z = tape.input(&mut store, "z", Spec::real(Rows::fixed(3), 1), &[1.0f32, 2.0, -3.0])?;
    /// let w_src = tape.input(&mut store, "w src", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
    /// let w_dst = tape.input(&mut store, "w dst", Spec::real(Rows::fixed(1), 1), &[10.0f32])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 1), &[0.0f32])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[2.0f32])?;
    /// let b_out = tape.input(&mut store, "b out", Spec::real(Rows::fixed(1), 1), &[0.5f32])?;
    /// // One event: source 1, destination 2, and the negative -3.
    /// let logits = tape.link_decoder(z, Rows::fixed(1), [w_src, w_dst, b, w, b_out])?;
    /// let mut program = Program::new(&tape, &[logits], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(logits, &store)?, [42.5, 0.5]); // 2 relu(1 + 20), 2 relu(1 - 30)
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn link_decoder(&mut self, z: Var, events: Rows, weights: [Var; 5]) -> Result<Var> {
        let [w_src, w_dst, b, w, b_out] = weights;
        Ok(self.push(LinkDecoder { events }, &[z, w_src, w_dst, b, w, b_out])?[0])
    }
}

vectorised! {
    /// Computes `hidden = relu(hidden + from_u + b)` for the candidates of one event, and their logits.
    fn finish(hidden: &mut [f32], logits: &mut [f32], from_u: &[f32], b: &[f32], w: &[f32], b_out: f32) {
        for (hidden, logit) in hidden.chunks_exact_mut(b.len()).zip(logits) {
            for ((h, &u), &b) in hidden.iter_mut().zip(from_u).zip(b) {
                *h = above_zero(*h + u + b);
            }
            *logit = simd::dot::<V>(hidden, w) + b_out;
        }
    }
    /// Writes `dhidden` of one event, the row of the source first, and adds to the gradients of `b` and `w`.
    fn hidden_grad(
        dhidden: &mut [f32], db: &mut [f32], dw: &mut [f32], hidden: &[f32], dlogits: &[f32], w: &[f32],
    ) {
        let c = w.len();
        let (du, dhidden) = dhidden.split_at_mut(c);
        du.fill(0.0);
        for ((dh, h), &dl) in dhidden.chunks_exact_mut(c).zip(hidden.chunks_exact(c)).zip(dlogits) {
            for ((dh, &h), &w) in dh.iter_mut().zip(h).zip(w) {
                *dh = if h > 0.0 { dl * w } else { 0.0 };
            }
            simd::add_assign(du, dh);
            simd::axpy(dw, dl, h);
        }
        simd::add_assign(db, du);
    }
}

/// Checks that there are `roots` rows, two or more, for every event.
fn check_roots(op: &'static str, rows: &Spec, roots: u32) -> Result<()> {
    let whole = |n: usize| roots >= 2 && n.is_multiple_of(roots as usize);
    let ok = whole(rows.rows.capacity) && rows.rows.live.is_none_or(|live| whole(live.times));
    ensure!(op, ok, "rows are {rows}, want {roots} an event");
    Ok(())
}

/// Returns the number of events, the width of the embeddings and the width of the hidden layer, for `x`
/// candidates an event.
fn sizes(io: &Io<'_>, x: usize) -> (usize, usize, usize) {
    let (z, w_src) = (at!(LinkDecoder, z), at!(LinkDecoder, w_src));
    (io.rows(z) / (1 + x), io.cols(w_src), io.rows(w_src))
}

/// Returns the grid of the products of every root of an event with `width` columns.
fn root_tiles(events: usize, width: u32, roots: u32) -> Grid {
    let grid = Grid::tiles(events, width as usize);
    Grid { blocks: (grid.blocks.0 * roots, grid.blocks.1, 1), ..grid }
}

impl LinkDecoderGrad {
    /// Returns a grid with one block for every 32 columns of the gradients of `b`, `w` and `b_out`.
    fn tiles(c: usize) -> Grid {
        Grid::new((c + 1).div_ceil(32), Grid::THREADS)
    }
    /// Returns the same grid, times the chunks of the events: of at least 32 each, and at most 16, because
    /// one block adds their sums.
    fn grid(dlogits: &Spec, c: usize) -> Grid {
        Self::tiles(c).over_rows((4 * dlogits.rows.capacity).min(16 * 128))
    }
}

impl LinkDecoderWeightGrad {
    /// Returns a grid with the tiles of both gradients.
    fn tiles(dhidden: &Spec, z: &Spec) -> Grid {
        Grid::tiles(dhidden.cols, z.cols).parts(2)
    }
    /// Returns the same grid, times the chunks of the events.
    fn grid(&self, dhidden: &Spec, z: &Spec) -> Grid {
        Self::tiles(dhidden, z).over_rows(z.rows.capacity / self.roots as usize)
    }
}

impl Op for LinkDecoder {
    const NAME: &'static str = "link_decoder";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "z [r, d], w_src [c, d], w_dst [c, d], b [1, c], w [1, c], b_out [1] \
        -> logits, hidden";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        signature::infer(self, ins)?;
        let (z, c) = (&ins[at!(z)], ins[at!(w_src)].rows.capacity);
        let roots = z.rows.capacity.checked_div(self.events.capacity).unwrap_or(2);
        ensure!(
            Self::NAME,
            (2..NONE as usize).contains(&roots) && z.rows == self.events.times(roots),
            "z is {z} for {} events",
            self.events.capacity
        );
        let x = roots - 1;
        Ok([x, x.saturating_mul(c)].map(|cols| Spec::real(self.events, cols).into()).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.events.capacity * ins[at!(w_src)].rows.capacity
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let products = 2 * ins[at!(z)].rows.capacity * ins[at!(w_src)].len();
        Cost::streaming(ins, outs, products + 2 * outs[1].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [z, w_src, w_dst, b, w, b_out] = [0, 1, 2, 3, 4, 5].map(|i| io.input::<R>(i));
        let x = io.out_cols(0);
        let (n, d, c) = sizes(io, x);
        let (logits, hidden) = (io.out::<R>(0), io.out::<R>(1));
        for i in 0..n {
            let u = &z[i * (1 + x) * d..][..d];
            for j in 0..x {
                let v = &z[(i * (1 + x) + 1 + j) * d..][..d];
                let h = &mut hidden[(i * x + j) * c..][..c];
                for (l, h) in h.iter_mut().enumerate() {
                    let sum: R = (0..d).map(|k| w_src[l * d + k] * u[k] + w_dst[l * d + k] * v[k]).sum();
                    *h = above_zero(sum + b[l]);
                }
                logits[i * x + j] = h.iter().zip(w).map(|(&h, &w)| h * w).sum::<R>() + b_out[0];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let [z, w_src, w_dst, b, w, b_out] = [0, 1, 2, 3, 4, 5].map(|i| io.input::<f32>(i));
        let b_out = b_out[0];
        let x = io.out_cols(0);
        let (n, d, c) = sizes(io, x);
        let (logits, hidden) = (io.out::<f32>(0), io.out::<f32>(1));
        if n == 0 || c == 0 {
            return logits.fill(b_out);
        }
        let stride = (1 + x) * d;
        let chunks = row_parts(n, c, d);
        let from_u = split_rows(io.scratch::<f32>(), &chunks, c);
        let outs = split_rows(hidden, &chunks, x * c).into_iter().zip(split_rows(logits, &chunks, x));
        outs.zip(from_u).zip(&chunks).in_parallel(1, |(((hidden, logits), from_u), rows)| {
            let n = rows.len();
            let root = |j: usize| Mat::strided(&z[rows.start * stride + j * d..], n, d, stride);
            matmul(MatMut::new(from_u, n, c), root(0), Mat::new(w_src, c, d).t(), false);
            for j in 0..x {
                let out = MatMut::strided(&mut hidden[j * c..], n, c, x * c);
                matmul(out, root(1 + j), Mat::new(w_dst, c, d).t(), false);
            }
            let events = hidden.chunks_exact_mut(x * c).zip(logits.chunks_exact_mut(x));
            events.zip(from_u.chunks_exact(c)).for_each(|((h, l), u)| finish(h, l, u, b, w, b_out));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, c) = (on.cols(at!(z)), on.capacity(at!(w_src)) as u32);
        let (x, events, logits) = (on.out_cols(0), on.out_rows(0), on.out(0));
        let [z, w_src, w_dst, b, w, b_out] = [0, 1, 2, 3, 4, 5].map(|i| on.input(i));
        let (from_u, hidden) = (on.scratch(), on.needed(1));
        let grid = root_tiles(self.events.capacity, c, 1 + x);
        launch!(
            k, on, link_decoder_products[grid];
            z, w_src, w_dst, from_u, hidden, events, 1 + x, d, c, on.precision()
        )?;
        let grid = Grid::warps(self.events.capacity * x as usize);
        launch!(k, on, link_decoder_logits[grid]; from_u, b, w, b_out, hidden, logits, events, x, c)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dlogits) = douts[0] else { return Ok(vec![None; 6]) };
        let [z, w_src, w_dst, _, w, _] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "six inputs"));
        };
        let roots = 1 + t.spec(dlogits).cols as u32;
        let grads = t.push(LinkDecoderGrad { of_loss: false }, &[w, node.outs[1], dlogits])?;
        let [dhidden, db, dw, db_out] = [0, 1, 2, 3].map(|out| grads[out]);
        let dz = t.push1(LinkDecoderInputGrad { roots }, &[dhidden, w_src, w_dst])?;
        let weight_grads = t.push(LinkDecoderWeightGrad { roots }, &[dhidden, z])?;
        Ok([dz, weight_grads[0], weight_grads[1], db, dw, db_out].map(Some).to_vec())
    }
}

impl Op for LinkDecoderGrad {
    const NAME: &'static str = "link_decoder_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "w [1, c], hidden [n, x c], dlogits [n, x], dloss? [1] \
        -> dhidden [n (1 + x), c], db [1, c], dw [1, c], db_out [1]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.of_loss)
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        if self.of_loss {
            two_columns(Self::NAME, &ins[at!(dlogits)])?;
        }
        some_columns(Self::NAME, "dlogits", &ins[at!(dlogits)])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (c, dlogits) = (ins[at!(w)].cols, ins[at!(dlogits)]);
        let (_, _, chunks) = Self::grid(&dlogits, c).blocks;
        let of_loss = if self.of_loss { dlogits.len() } else { 0 };
        (of_loss + 2 * (parts::PARTS + 1) * c).max(chunks as usize * 2 * (c + 1))
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::tiles(ins[at!(w)].cols).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let of_loss = if self.of_loss { 10 * ins[at!(dlogits)].len() } else { 0 };
        Cost::streaming(ins, outs, 6 * ins[at!(hidden)].len() + of_loss)
    }
    fn empty_without(&self) -> Option<usize> {
        Some(at!(hidden))
    }
    fn fused(&self, t: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        let &[w, hidden, dlogits] = ins else { return None };
        let of = t.maker(dlogits).filter(|node| node.op.name() == BceLossGrad::NAME)?;
        Some((Arc::new(LinkDecoderGrad { of_loss: true }), [&[w, hidden], &of.ins[..]].concat()))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [w, hidden, dlogits] = [at!(w), at!(hidden), at!(dlogits)].map(|i| io.input::<R>(i));
        let (n, x) = (io.rows(at!(dlogits)), io.cols(at!(dlogits)));
        let dloss = if self.of_loss { Some(io.input::<R>(at!(dloss))[0]) } else { None };
        let [dhidden, db, dw, db_out] = [0, 1, 2, 3].map(|k| io.out::<R>(k));
        [&mut *dhidden, db, dw, db_out].into_iter().for_each(|g| g.fill(R::ZERO));
        let c = w.len();
        for (at, &dl) in dlogits.iter().enumerate() {
            let dl = dloss.map_or(dl, |dloss| define_gradient(dl, at, [n, x], dloss));
            let (u, v) = (at / x * (1 + x) * c, (at / x * (1 + x) + 1 + at % x) * c);
            db_out[0] += dl;
            for l in 0..c {
                let h = hidden[at * c + l];
                dw[l] += dl * h;
                if h > R::ZERO {
                    let dh = dl * w[l];
                    db[l] += dh;
                    dhidden[u + l] += dh;
                    dhidden[v + l] = dh;
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let [w, hidden, dlogits] = [at!(w), at!(hidden), at!(dlogits)].map(|i| io.input::<f32>(i));
        let (n, x, c) = (io.rows(at!(dlogits)), io.cols(at!(dlogits)), w.len());
        let [dhidden, db, dw, db_out] = [0, 1, 2, 3].map(|k| io.out::<f32>(k));
        let (of_loss, rest) = io.scratch::<f32>().split_at_mut(if self.of_loss { n * x } else { 0 });
        let dlogits = if self.of_loss {
            gradients(of_loss, dlogits, x, weights(n, x, io.input::<f32>(at!(dloss))[0]));
            &*of_loss
        } else {
            dlogits
        };
        db_out[0] = dlogits.iter().sum();
        if c == 0 {
            return;
        }
        let (sum, partials) = rest.split_at_mut(2 * c);
        let size = parts::part_rows(n);
        let partials = &mut partials[..n.div_ceil(size) * 2 * c];
        partials.fill(0.0);
        dhidden
            .chunks_mut(size * (1 + x) * c)
            .zip(partials.chunks_exact_mut(2 * c))
            .zip(hidden.chunks(size * x * c).zip(dlogits.chunks(size * x)))
            .in_parallel(1, |((dh, partial), (h, dl))| {
                let (db, dw) = partial.split_at_mut(c);
                let events = h.chunks_exact(x * c).zip(dl.chunks_exact(x));
                for (dh, (h, dl)) in dh.chunks_exact_mut((1 + x) * c).zip(events) {
                    hidden_grad(dh, db, dw, h, dl, w);
                }
            });
        sum.fill(0.0);
        parts::add_column_sums(sum, partials);
        db.copy_from_slice(&sum[..c]);
        dw.copy_from_slice(&sum[c..]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (events, x, c) = (on.rows(at!(dlogits)), on.cols(at!(dlogits)), on.cols(at!(w)));
        let grid = Self::grid(&on.spec(at!(dlogits)), c as usize);
        let [w, hidden, dlogits] = [at!(w), at!(hidden), at!(dlogits)].map(|i| on.input(i));
        let (dhidden, db, dw, db_out) = (on.needed(0), on.out(1), on.out(2), on.out(3));
        let (sums, tickets) = (on.scratch(), on.tickets());
        let dloss = if self.of_loss { on.input(at!(dloss)) } else { std::ptr::null() };
        launch!(
            k, on, link_decoder_grad[grid];
            w, hidden, dlogits, dloss, dhidden, sums, tickets, db, dw, db_out, events, x, c
        )
    }
}

impl Op for LinkDecoderInputGrad {
    const NAME: &'static str = "link_decoder_input_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dhidden [n, c], w_src [c, d], w_dst [c, d] -> dz [n, d]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_roots(Self::NAME, &ins[0], self.roots)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len() * ins[0].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dhidden, c, d, roots) = (io.input::<R>(0), io.cols(0), io.cols(1), self.roots as usize);
        for (at, dz) in io.out::<R>(0).iter_mut().enumerate() {
            let (row, k) = (at / d, at % d);
            let w = io.input::<R>(if row % roots == 0 { 1 } else { 2 });
            *dz = (0..c).map(|l| dhidden[row * c + l] * w[l * d + k]).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dhidden, c, d, roots) = (io.input::<f32>(0), io.cols(0), io.cols(1), self.roots as usize);
        let n = io.rows(0) / roots;
        if n == 0 {
            return;
        }
        let chunks = row_parts(n, d, c);
        split_rows(io.out(0), &chunks, roots * d).into_iter().zip(&chunks).in_parallel(1, |(dz, rows)| {
            for j in 0..roots {
                let w = Mat::new(io.input(if j == 0 { 1 } else { 2 }), c, d);
                let dz_root = MatMut::strided(&mut dz[j * d..], rows.len(), d, roots * d);
                matmul(dz_root, Mat::block(dhidden, n, roots, c, j).rows(rows), w, false);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (c, d, roots) = (on.cols(0), on.cols(1), self.roots);
        let grid = root_tiles(on.capacity(0) / roots as usize, d, roots);
        let (dhidden, w_src, w_dst, dz) = (on.input(0), on.input(1), on.input(2), on.out(0));
        launch!(
            k, on, link_decoder_input_grad[grid];
            dhidden, w_src, w_dst, dz, on.rows(0), roots, d, c, on.precision()
        )
    }
}

impl Op for LinkDecoderWeightGrad {
    const NAME: &'static str = "link_decoder_weight_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dhidden [n, c], z [n, d] -> dw_src [c, d], dw_dst [c, d]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_roots(Self::NAME, &ins[0], self.roots)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.grid(&ins[0], &ins[1]).tile_parts().max(ins[0].cols * ins[1].cols)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        self.grid(&ins[0], &ins[1]).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[1].len() * ins[0].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dhidden, z, c, d) = (io.input::<R>(0), io.input::<R>(1), io.cols(0), io.cols(1));
        for (out, dw) in [0, 1].map(|out| io.out::<R>(out)).into_iter().enumerate() {
            for (at, dw) in dw.iter_mut().enumerate() {
                let rows = (0..io.rows(0)).filter(|i| usize::from(i % self.roots as usize != 0) == out);
                *dw = rows.map(|i| dhidden[i * c + at / d] * z[i * d + at % d]).sum();
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dhidden, z, c, d) = (io.input::<f32>(0), io.input::<f32>(1), io.cols(0), io.cols(1));
        let (roots, half_sums) = (self.roots as usize, io.scratch::<f32>());
        let (n, dws) = (io.rows(0) / roots, [0, 1].map(|out| io.out::<f32>(out)));
        for j in 0..roots {
            let dw = MatMut::new(&mut *dws[usize::from(j > 0)], c, d);
            let (dh, z) = (Mat::block(dhidden, n, roots, c, j), Mat::block(z, n, roots, d, j));
            matmul_long(dw, dh.t(), z, j > 1, half_sums);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (c, d) = (on.cols(0), on.cols(1));
        let grid = self.grid(&on.spec(0), &on.spec(1));
        let (dhidden, z, dw_src, dw_dst) = (on.input(0), on.input(1), on.out(0), on.out(1));
        launch!(
            k, on, link_decoder_weight_grad[grid];
            dhidden, z, on.scratch(), on.tickets(), dw_src, dw_dst, on.rows(0), self.roots, d, c,
            on.precision()
        )
    }
}

/// `[b, negatives, d, c]`; `b` of `b + 1` events are live. With a fifth number, the output is the loss of the
/// logits.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1],
    &[0, 1, 3, 4],
    &[5, 1, 3, 4],
    &[7, 1, 4, 0],
    // No negatives: each event is scored alone.
    &[1, 0, 3, 4],
    &[40, 0, 8, 20],
    &[9, 4, 6, 5],
    &[70, 1, 100, 100],
    &[130, 2, 3, 4],
    &[40, 0, 5, 7],
    &[0, 1, 3, 4, 1],
    &[9, 4, 6, 5, 1],
    &[7, 1, 4, 0, 1],
    &[70, 1, 50, 100, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 1, 100, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, d, width] = dims[..4] else { return Err(Error::shape("link_decoder", "four sizes")) };
    let count = c.count(n);
    let events = Rows::live(n + 1, count);
    let values: Vec<f32> = (0..(n + 1) * (2 + m) * d).map(|_| c.uniform()).collect();
    let z = c.values(Spec::real(events.times(2 + m), d), &values);
    let weights = [c.real(width, d), c.real(width, d), c.real(1, width), c.real(1, width), c.real(1, 1)];
    let logits = c.tape.link_decoder(z, events, weights)?;
    let out = if dims.len() > 4 { c.tape.bce_loss(logits)? } else { logits };
    Ok(Built::new(&[out], &[&[z], &weights[..]].concat()))
}
