//! `logit[i, j] = w . relu(W_src z_u + W_dst z_x + b) + b_out`, u the source of event i, x its j-th candidate
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `z` | `[(2 + m) b, d]` f32 | embeddings of the roots, event by event: source, destination, m negatives, if any |
//! | `W_src`, `W_dst`, `b` | `[c, d]`, `[c, d]`, `[1, c]` f32 | |
//! | `w`, `b_out` | `[1, c]`, `[1, 1]` f32 | |
//! | logits | `[b, 1 + m]` f32 | column 0: the event itself |
//! | hidden | `[b, (1 + m) c]` f32 | after relu, for the backward |
//!
//! `W_src z_u` is computed once for all candidates of an event. Backward: `dhid = dlogit w [hidden > 0]`,
//! `dz_u = sum_j dhid_j W_src`, `dz_x = dhid W_dst`, weights likewise. Deterministic.
//! Source: the merge layer of TGN (Rossi et al. 2020) as PyTorch Geometric splits it.
use super::{epilogue::above_zero, *};
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
/// Gradients of all inputs.
#[derive(Debug)]
pub struct LinkDecoderGrad;

impl Tape {
    /// Appends [`LinkDecoder`]; returns the logits. `weights` are `W_src, W_dst, b, w, b_out`.
    ///
    /// # Errors
    /// `Shape` when the rows of `z` are not `2 + negatives` an event, or widths do not fit.
    pub fn link_decoder(&mut self, z: Var, events: Rows, weights: [Var; 5]) -> Result<Var> {
        let [w_src, w_dst, b, w, b_out] = weights;
        Ok(self.push(LinkDecoder { events }, &[z, w_src, w_dst, b, w, b_out])?[0])
    }
}

vectorised! {
    /// `hidden = relu(hidden + from_u + b)` for the candidates of one event, and their logits.
    fn finish(hidden: &mut [f32], logits: &mut [f32], from_u: &[f32], b: &[f32], w: &[f32], b_out: f32) {
        for (hidden, logit) in hidden.chunks_exact_mut(b.len()).zip(logits) {
            for ((h, &u), &b) in hidden.iter_mut().zip(from_u).zip(b) {
                *h = above_zero(*h + u + b);
            }
            *logit = simd::dot::<V>(hidden, w) + b_out;
        }
    }
    /// For one event: `dhidden`, its sum over the candidates, and the gradients of `b` and `w`.
    fn hidden_grad(
        dhidden: &mut [f32], du: &mut [f32], db: &mut [f32], dw: &mut [f32], hidden: &[f32], dlogits: &[f32], w: &[f32],
    ) {
        let c = w.len();
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

/// Sizes: events, width of the embeddings, width of the hidden layer, for `x` candidates an event.
fn sizes(io: &Io<'_>, x: usize) -> (usize, usize, usize) {
    (io.rows(0) / (1 + x), io.cols(1), io.rows(1))
}

/// Blocks of the products of every root of an event with `width` columns; the kernels go round for roots beyond them.
fn root_tiles(events: usize, width: u32, roots: u32) -> Grid {
    Grid::tiles(events, width as usize).parts(roots.min(65_535) as usize)
}

impl LinkDecoderGrad {
    /// What its kernels make in parts: tiles of the gradients of W_src and W_dst, and those of b, w and b_out, a block of
    /// threads for 32 columns; and the number of parts of the events.
    fn grids(z: &Spec, w: &Spec) -> (Grid, Grid, usize) {
        let of_the_rest = Grid::new((w.rows.cap + 1).div_ceil(32), Grid::THREADS);
        (Grid::tiles(w.rows.cap, w.cols).parts(2), of_the_rest, Grid::parts_of(z.rows.cap))
    }
}

impl Op for LinkDecoder {
    const NAME: &'static str = "link_decoder";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 6)?;
        let (z, c) = (&ins[0], ins[1].rows.cap);
        typed(Self::NAME, "z", z, DType::F32)?;
        let roots = z.rows.cap.checked_div(self.events.cap).unwrap_or(2);
        ensure!(
            Self::NAME,
            roots >= 2 && z.rows == self.events.times(roots),
            "z is {z} for {} events",
            self.events.cap
        );
        shaped(Self::NAME, "w_src", &ins[1], c, z.cols)?;
        shaped(Self::NAME, "w_dst", &ins[2], c, z.cols)?;
        shaped(Self::NAME, "b", &ins[3], 1, c)?;
        shaped(Self::NAME, "w", &ins[4], 1, c)?;
        shaped(Self::NAME, "b_out", &ins[5], 1, 1)?;
        let x = roots - 1;
        Ok(vec![Spec::real(self.events, x).into(), Spec::real(self.events, x * c).into()])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.events.cap * ins[1].rows.cap
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * ins[0].rows.cap * ins[1].len() + 2 * outs[1].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (z, w_src, w_dst) = (io.input::<R>(0), io.input::<R>(1), io.input::<R>(2));
        let (b, w, b_out) = (io.input::<R>(3), io.input::<R>(4), io.input::<R>(5)[0]);
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
                logits[i * x + j] = h.iter().zip(w).map(|(&h, &w)| h * w).sum::<R>() + b_out;
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (z, w_src, w_dst) = (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2));
        let (b, w, b_out) = (io.input::<f32>(3), io.input::<f32>(4), io.input::<f32>(5)[0]);
        let x = io.out_cols(0);
        let (n, d, c) = sizes(io, x);
        let (logits, hidden) = (io.out::<f32>(0), io.out::<f32>(1));
        if n == 0 || c == 0 {
            return logits.fill(b_out);
        }
        let stride = (1 + x) * d;
        let parts = row_parts(n, c, d);
        let from_u = split_rows(io.scratch::<f32>(), &parts, c);
        let hidden = split_rows(hidden, &parts, x * c).into_iter().zip(split_rows(logits, &parts, x));
        hidden.zip(from_u).zip(&parts).in_parallel(1, |(((hidden, logits), from_u), rows)| {
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
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, c, x, events) = (on.cols(0), on.cap(1) as u32, on.out_cols(0), on.out_rows(0));
        let (from_u, hidden) = (on.scratch(), on.kept(1));
        let (z, w_src, w_dst) = (on.input(0), on.input(1), on.input(2));
        let grid = root_tiles(self.events.cap, c, 1 + x);
        k.link_decoder_products(
            on,
            grid,
            z,
            w_src,
            w_dst,
            from_u,
            hidden,
            events,
            1 + x,
            d,
            c,
            on.precision(),
        )?;
        let (b, w, b_out) = (on.input(3), on.input(4), on.input(5));
        let grid = Grid::warps(self.events.cap * x as usize);
        k.link_decoder_logits(on, grid, from_u, b, w, b_out, hidden, on.out(0), events, x, c)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dlogits) = douts[0] else { return Ok(vec![None; 6]) };
        let i = &node.ins;
        let d = t.push(LinkDecoderGrad, &[i[0], i[1], i[2], i[4], node.outs[1], dlogits])?;
        Ok(d.into_iter().map(Some).collect())
    }
}

impl Op for LinkDecoderGrad {
    const NAME: &'static str = "link_decoder_grad";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let one = Spec::real(Rows::fixed(1), 1);
        Ok([ins[0], ins[1], ins[2], ins[3], ins[3], one].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // dhidden and its sum over candidates; half a product, {db | dw} and their partials.
        let dhidden = ins[0].rows.cap * ins[3].cols;
        let host = ins[1].len() + 2 * (parts::PARTS + 1) * ins[3].cols;
        let (of_weights, _, parts) = Self::grids(&ins[0], &ins[1]);
        let device = parts * (of_weights.tile_parts() + 2 * (ins[3].cols + 1));
        dhidden + host.max(device)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        let (of_weights, of_the_rest, _) = Self::grids(&ins[0], &ins[1]);
        of_weights.count() + of_the_rest.count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 4 * ins[0].rows.cap * ins[1].len() + 4 * ins[4].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (z, w_src, w_dst, w) = (io.input::<R>(0), io.input::<R>(1), io.input::<R>(2), io.input::<R>(3));
        let (hidden, dlogits) = (io.input::<R>(4), io.input::<R>(5));
        let x = io.cols(5);
        let (n, d, c) = sizes(io, x);
        let [dz, dw_src, dw_dst, db, dw, db_out] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<R>(k));
        [&mut *dz, dw_src, dw_dst, db, dw, db_out].into_iter().for_each(|g| g.fill(R::ZERO));
        for i in 0..n {
            let u = i * (1 + x) * d;
            for j in 0..x {
                let (v, dl) = (u + (1 + j) * d, dlogits[i * x + j]);
                db_out[0] += dl;
                for l in 0..c {
                    let h = hidden[(i * x + j) * c + l];
                    dw[l] += dl * h;
                    if h > R::ZERO {
                        let dh = dl * w[l];
                        db[l] += dh;
                        for k in 0..d {
                            dw_src[l * d + k] += dh * z[u + k];
                            dw_dst[l * d + k] += dh * z[v + k];
                            dz[u + k] += dh * w_src[l * d + k];
                            dz[v + k] += dh * w_dst[l * d + k];
                        }
                    }
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (z, w_src, w_dst, w) =
            (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2), io.input::<f32>(3));
        let (hidden, dlogits) = (io.input::<f32>(4), io.input::<f32>(5));
        let x = io.cols(5);
        let (n, d, c) = sizes(io, x);
        let [dz, dw_src, dw_dst, db, dw, db_out] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<f32>(k));
        db_out[0] = dlogits.iter().sum();
        if n == 0 || c == 0 {
            [dz, dw_src, dw_dst, db, dw].into_iter().for_each(|g| g.fill(0.0));
            return;
        }
        let (half, rest) = io.scratch::<f32>().split_at_mut(c * d);
        let (dhidden, rest) = rest.split_at_mut(n * x * c);
        let (du, rest) = rest.split_at_mut(n * c);
        let (sum, partials) = rest.split_at_mut(2 * c);
        let size = parts::part_rows(n);
        let partials = &mut partials[..n.div_ceil(size) * 2 * c];
        partials.fill(0.0);
        dhidden
            .chunks_mut(size * x * c)
            .zip(du.chunks_mut(size * c))
            .zip(partials.chunks_exact_mut(2 * c))
            .zip(hidden.chunks(size * x * c).zip(dlogits.chunks(size * x)))
            .in_parallel(1, |(((dh, du), partial), (h, dl))| {
                let (db, dw) = partial.split_at_mut(c);
                let candidates =
                    dh.chunks_exact_mut(x * c).zip(h.chunks_exact(x * c)).zip(dl.chunks_exact(x));
                for (((dh, h), dl), du) in candidates.zip(du.chunks_exact_mut(c)) {
                    hidden_grad(dh, du, db, dw, h, dl, w);
                }
            });
        sum.fill(0.0);
        parts::add_column_sums(sum, partials);
        db.copy_from_slice(&sum[..c]);
        dw.copy_from_slice(&sum[c..]);

        let stride = (1 + x) * d;
        let du = Mat::new(du, n, c);
        let dh = |j: usize| Mat::strided(&dhidden[j * c..], n, c, x * c);
        let parts = row_parts(n, d, c);
        split_rows(dz, &parts, stride).into_iter().zip(&parts).in_parallel(1, |(dz, rows)| {
            let n = rows.len();
            matmul(MatMut::strided(dz, n, d, stride), du.rows(rows), Mat::new(w_src, c, d), false);
            for j in 0..x {
                let dv = MatMut::strided(&mut dz[(1 + j) * d..], n, d, stride);
                matmul(dv, dh(j).rows(rows), Mat::new(w_dst, c, d), false);
            }
        });
        let root = |j: usize| Mat::strided(&z[j * d..], n, d, stride);
        matmul_long(MatMut::new(dw_src, c, d), du.t(), root(0), false, half);
        for j in 0..x {
            matmul_long(MatMut::new(dw_dst, c, d), dh(j).t(), root(1 + j), j > 0, half);
        }
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, c, x, events) = (on.cols(0), on.cap(1) as u32, on.cols(5), on.rows(5));
        let (tiles, columns, parts) = Self::grids(&on.spec(0), &on.spec(1));
        // Scratch has room for all of it; parts of tiles are moved 16 bytes at a time, so they come first.
        let of_weights = on.scratch();
        let of_the_rest = of_weights.wrapping_add(parts * tiles.tile_parts());
        let dhidden = of_the_rest.wrapping_add(parts * 2 * (c as usize + 1));
        let tickets = on.tickets();
        let (z, w_src, w_dst, w) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let [dz, dw_src, dw_dst, db, dw, db_out] = [0, 1, 2, 3, 4, 5].map(|k| on.out(k));
        k.link_decoder_hidden_grad(
            on,
            columns.parts(parts),
            w,
            on.input(4),
            on.input(5),
            dhidden,
            of_the_rest,
            tickets.wrapping_add(tiles.count()),
            db,
            dw,
            db_out,
            events,
            x,
            c,
        )?;
        if on.wanted(0) {
            let grid = root_tiles(on.cap(5), d, 1 + x);
            k.link_decoder_input_grad(
                on,
                grid,
                dhidden,
                w_src,
                w_dst,
                dz,
                events,
                1 + x,
                d,
                c,
                on.precision(),
            )?;
        }
        if !on.wanted(1) && !on.wanted(2) {
            return Ok(());
        }
        k.link_decoder_weight_grad(
            on,
            tiles.parts(2 * parts),
            dhidden,
            z,
            of_weights,
            tickets,
            dw_src,
            dw_dst,
            events,
            1 + x,
            d,
            c,
            parts as u32,
            on.precision(),
        )
    }
}

/// `[b, negatives, d, c]`
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1],
    &[0, 1, 3, 4],
    &[5, 1, 3, 4],
    &[7, 1, 4, 0],
    // No negative: pairs that are events of their own.
    &[1, 0, 3, 4],
    &[40, 0, 8, 20],
    &[9, 4, 6, 5],
    &[70, 1, 100, 100],
    &[130, 2, 3, 4],
    &[40, 0, 5, 7],
];
pub(super) const BENCH: &[&[usize]] = &[&[600, 1, 100, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, d, width] = *dims else { return Err(Error::shape("link_decoder", "four sizes")) };
    let count = c.count(n);
    let events = Rows::live(n + 1, count);
    let values: Vec<f32> = (0..(n + 1) * (2 + m) * d).map(|_| c.uniform()).collect();
    let z = c.values(Spec::real(events.times(2 + m), d), &values);
    let weights = [c.real(width, d), c.real(width, d), c.real(1, width), c.real(1, width), c.real(1, 1)];
    let logits = c.tape.link_decoder(z, events, weights)?;
    Ok(Built::new(&[logits], &[&[z], &weights[..]].concat()))
}
