//! The fast path on the host: vector lanes are columns, and a root's rows stay in the cache of a core.
//!
//! In the workspace, rows are padded to whole blocks. The padding of the normalised rows and of `du` is zero,
//! so padded columns add nothing to a gradient.
use super::*;
use crate::runtime::{
    simd::{self, Block, LANES, vectorised},
    team::{self, InParallel},
};
use std::f64::consts::PI;

/// Hidden units or tokens that are computed at a time, each for one or two blocks of columns.
const AT_ONCE: usize = 5;

/// Buffers of one thread.
struct Workspace<'a> {
    /// Length of a row.
    s: usize,
    /// `[k, s]`: the normalised rows, the same scaled, `du` (y before dropout, in the forward pass), `dv`.
    xh: &'a mut [f32],
    v: &'a mut [f32],
    u: &'a mut [f32],
    dv: &'a mut [f32],
    /// `[m, s]`: before and behind the GELU, `dz`.
    z: &'a mut [f32],
    g: &'a mut [f32],
    dz: &'a mut [f32],
    /// `[m d]`: factors of the first dropout.
    factors: &'a mut [f32],
    /// `[k, m]` and `[m, k]`: the weights, transposed.
    w1: &'a mut [f32],
    w2: &'a mut [f32],
    /// `[d]`: 1 / deviation of each column, and two further numbers of each column.
    rstd: &'a mut [f32],
    columns: [&'a mut [f32]; 2],
    /// `[max(k, m)]`
    zeros: &'a [f32],
    /// Sums of the gradients of weights, `LANES` numbers for each weight.
    sums: [&'a mut [f32]; 6],
}

impl Workspace<'_> {
    /// Runs `work` with the buffers of this thread, for `sums` gradients of weights.
    fn with(o: &Operands<'_, f32>, sums: [usize; 6], work: impl FnOnce(&mut Workspace<'_>)) {
        let (k, m, d) = (o.k, o.m, o.d);
        let padded = |n: usize| n.next_multiple_of(LANES);
        let s = padded(d);
        let weights: usize = sums.iter().sum();
        let n =
            (4 * k + 3 * m + 3) * s + padded(m * d) + 2 * padded(k * m) + padded(k.max(m)) + weights * LANES;
        parts::with_thread_buffer(n, |mut buffer| {
            let mut take = |n: usize| split_off(&mut buffer, padded(n));
            let [xh, v, u, dv] = std::array::from_fn(|_| take(k * s));
            let [z, g, dz] = std::array::from_fn(|_| take(m * s));
            let factors = &mut take(m * d)[..m * d];
            let [w1, w2] = std::array::from_fn(|_| &mut take(k * m)[..k * m]);
            let [rstd, first, second] = std::array::from_fn(|_| &mut take(d)[..d]);
            let (zeros, sums) = (&*take(k.max(m)), sums.map(|n| take(n * LANES)));
            transpose(w1, o.w1, k);
            transpose(w2, o.w2, m);
            let columns = [first, second];
            work(&mut Workspace { s, xh, v, u, dv, z, g, dz, factors, w1, w2, rstd, columns, zeros, sums });
        });
    }
}

/// Writes the transpose of `w`, whose rows have `cols` numbers.
fn transpose(out: &mut [f32], w: &[f32], cols: usize) {
    let rows = w.len() / cols;
    for (i, row) in w.chunks_exact(cols).enumerate() {
        row.iter().enumerate().for_each(|(j, &w)| out[j * rows + i] = w);
    }
}

/// Computes J rows of a [`product`] from row `j` on, B blocks of columns each from column `at` on. Returns J.
#[inline(always)]
fn product_tile<V: Block, const J: usize, const B: usize>(
    out: &mut [f32],
    first: &[f32],
    w: &[f32],
    rows: &[f32],
    s: usize,
    (j, at): (usize, usize),
) -> usize {
    let mut sum = [[V::splat(0.0); B]; J];
    for q in 0..J {
        sum[q] = [V::splat(first[j + q]); B];
    }
    for (w, row) in w.chunks_exact(first.len()).zip(rows.chunks_exact(s)) {
        let (w, row) = (&w[j..][..J], &row[at..][..B * LANES]);
        let mut x = [V::splat(0.0); B];
        for b in 0..B {
            x[b] = V::load(&row[b * LANES..]);
        }
        for q in 0..J {
            let w = V::splat(w[q]);
            for b in 0..B {
                sum[q][b] = w.mul_add(x[b], sum[q][b]);
            }
        }
    }
    for q in 0..J {
        for b in 0..B {
            sum[q][b].store(&mut out[(j + q) * s + at + b * LANES..]);
        }
    }
    J
}

/// Computes `out[j] = first[j] + sum_t w[t, j] rows[t]` for padded rows of `s` numbers.
#[inline(always)]
fn product<V: Block>(out: &mut [f32], first: &[f32], w: &[f32], rows: &[f32], s: usize) {
    let mut at = 0;
    while at < s {
        let (two, mut j) = (at + 2 * LANES <= s, 0);
        while j < first.len() {
            j += match (j + AT_ONCE <= first.len(), two) {
                (true, true) => product_tile::<V, AT_ONCE, 2>(out, first, w, rows, s, (j, at)),
                (true, false) => product_tile::<V, AT_ONCE, 1>(out, first, w, rows, s, (j, at)),
                (false, true) => product_tile::<V, 1, 2>(out, first, w, rows, s, (j, at)),
                (false, false) => product_tile::<V, 1, 1>(out, first, w, rows, s, (j, at)),
            };
        }
        at += if two { 2 * LANES } else { LANES };
    }
}

/// Adds, lane by lane, `sums[t, j] += a_t b_j^T` for T rows of a and J rows of b, from `t` and `j` on.
/// Returns J.
#[inline(always)]
fn outer_tile<V: Block, const T: usize, const J: usize>(
    sums: &mut [f32],
    a: &[f32],
    b: &[f32],
    s: usize,
    (t, j): (usize, usize),
) -> usize {
    let n = b.len() / s;
    let (a, b) = (&a[t * s..][..T * s], &b[j * s..][..J * s]);
    let mut sum = [[V::splat(0.0); J]; T];
    for at in (0..s).step_by(LANES) {
        let mut of_b = [V::splat(0.0); J];
        for q in 0..J {
            of_b[q] = V::load(&b[q * s + at..]);
        }
        for r in 0..T {
            let a = V::load(&a[r * s + at..]);
            for q in 0..J {
                sum[r][q] = a.mul_add(of_b[q], sum[r][q]);
            }
        }
    }
    for r in 0..T {
        for q in 0..J {
            let to = &mut sums[((t + r) * n + j + q) * LANES..][..LANES];
            V::load(to).add(sum[r][q]).store(to);
        }
    }
    J
}

/// Adds, lane by lane, `sums[t, j] += a_t b_j^T` for all rows of a and of b.
#[inline(always)]
fn outer<V: Block>(sums: &mut [f32], a: &[f32], b: &[f32], s: usize) {
    let (rows, n) = (a.len() / s, b.len() / s);
    let mut t = 0;
    while t < rows {
        let (two, mut j) = (t + 2 <= rows, 0);
        while j < n {
            j += match (two, j + AT_ONCE <= n) {
                (true, true) => outer_tile::<V, 2, AT_ONCE>(sums, a, b, s, (t, j)),
                (true, false) => outer_tile::<V, 2, 1>(sums, a, b, s, (t, j)),
                (false, true) => outer_tile::<V, 1, AT_ONCE>(sums, a, b, s, (t, j)),
                (false, false) => outer_tile::<V, 1, 1>(sums, a, b, s, (t, j)),
            };
        }
        t += if two { 2 } else { 1 };
    }
}

/// Adds, lane by lane, the sum of each row of a, times the row of b if there is one.
#[inline(always)]
fn add_sums<V: Block>(sums: &mut [f32], a: &[f32], b: Option<&[f32]>, s: usize) {
    for (t, (sums, a)) in sums.chunks_exact_mut(LANES).zip(a.chunks_exact(s)).enumerate() {
        let mut sum = V::load(sums);
        for at in (0..s).step_by(LANES) {
            let a = V::load(&a[at..]);
            sum = match b {
                Some(b) => a.mul_add(V::load(&b[t * s + at..]), sum),
                None => sum.add(a),
            };
        }
        sum.store(sums);
    }
}

/// Normalises the columns of the rows `x` of d numbers into the padded rows `xh`.
#[inline(always)]
fn normalise(xh: &mut [f32], x: &[f32], s: usize, mean: &mut [f32], rstd: &mut [f32]) {
    let d = rstd.len();
    let each = d as f32 / x.len() as f32;
    mean.fill(0.0);
    rstd.fill(0.0);
    x.chunks_exact(d).for_each(|x| simd::add_assign(mean, x));
    for mean in mean.iter_mut() {
        *mean *= each;
    }
    for (xh, x) in xh.chunks_exact_mut(s).zip(x.chunks_exact(d)) {
        for (((xh, &x), &mean), var) in xh.iter_mut().zip(x).zip(&*mean).zip(rstd.iter_mut()) {
            *xh = x - mean;
            *var = xh.mul_add(*xh, *var);
        }
    }
    for rstd in rstd.iter_mut() {
        *rstd = 1.0 / rstd.mul_add(each, EPS as f32).sqrt();
    }
    for xh in xh.chunks_exact_mut(s) {
        for (xh, &rstd) in xh.iter_mut().zip(&*rstd) {
            *xh *= rstd;
        }
    }
}

vectorised! {
    /// Computes the hidden units `z` of a root with the rows `x`.
    fn hidden(x: &[f32], o: &Operands<'_, f32>, w: &mut Workspace<'_>) {
        let s = w.s;
        normalise(w.xh, x, s, w.columns[0], w.rstd);
        for (t, (v, xh)) in w.v.chunks_exact_mut(s).zip(w.xh.chunks_exact(s)).enumerate() {
            for (v, &xh) in v.iter_mut().zip(&xh[..o.d]) {
                *v = xh.mul_add(o.gain[t], o.bias[t]);
            }
        }
        product::<V>(w.z, o.b1, w.w1, w.v, s);
    }
    /// Computes the rows `y`, which hold the factors of the second dropout before, from the hidden units.
    fn mixed(y: &mut [f32], x: &[f32], b2: &[f32], d: usize, w: &mut Workspace<'_>) {
        let s = w.s;
        for ((g, z), kept) in w.g.chunks_exact_mut(s).zip(w.z.chunks_exact(s)).zip(w.factors.chunks_exact(d)) {
            for ((g, &z), &kept) in g.iter_mut().zip(z).zip(kept) {
                *g = z * fast_below(z) * kept;
            }
        }
        product::<V>(w.u, b2, w.w2, w.g, s);
        for ((y, x), u) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(w.u.chunks_exact(s)) {
            for ((y, &x), &u) in y.iter_mut().zip(x).zip(u) {
                *y = u.mul_add(*y, x);
            }
        }
    }
    /// Adds the gradients of the weights of a root, of whose columns `w.u` has `du`, and computes `dv`.
    fn gradients(o: &Operands<'_, f32>, peak: f32, w: &mut Workspace<'_>) {
        let (s, d) = (w.s, o.d);
        let [dgain, dbias, dw1, db1, dw2, db2] = &mut w.sums;
        product::<V>(w.dz, &w.zeros[..o.m], o.w2, w.u, s);
        let rows = w.g.chunks_exact_mut(s).zip(w.z.chunks_exact(s)).zip(w.dz.chunks_exact_mut(s));
        for (((g, z), dz), kept) in rows.zip(w.factors.chunks_exact(d)) {
            for (((g, &z), dz), &kept) in g.iter_mut().zip(z).zip(dz).zip(kept) {
                let below = fast_below(z);
                *g = z * below * kept;
                *dz *= (z * peak).mul_add(simd::exp(-0.5 * z * z), below) * kept;
            }
        }
        add_sums::<V>(db2, w.u, None, s);
        outer::<V>(dw2, w.u, w.g, s);
        add_sums::<V>(db1, w.dz, None, s);
        outer::<V>(dw1, w.dz, w.v, s);
        product::<V>(w.dv, &w.zeros[..o.k], o.w1, w.dz, s);
        add_sums::<V>(dbias, w.dv, None, s);
        add_sums::<V>(dgain, w.dv, Some(w.xh), s);
    }
    /// Computes `dx = (dv gain - mean(dv gain) - xh mean(dv gain xh)) rstd + dy`.
    fn input_gradient(dx: &mut [f32], dy: &[f32], gain: &[f32], w: &mut Workspace<'_>) {
        let (d, each) = (w.rstd.len(), 1.0 / gain.len() as f32);
        let [mean_g, mean_gx] = &mut w.columns;
        mean_g.fill(0.0);
        mean_gx.fill(0.0);
        for ((dv, xh), gain) in w.dv.chunks_exact(w.s).zip(w.xh.chunks_exact(w.s)).zip(gain) {
            let of_columns = mean_g.iter_mut().zip(mean_gx.iter_mut());
            for ((&dv, &xh), (mean_g, mean_gx)) in dv.iter().zip(xh).zip(of_columns) {
                let g = dv * gain;
                *mean_g += g;
                *mean_gx = g.mul_add(xh, *mean_gx);
            }
        }
        for mean in mean_g.iter_mut().chain(mean_gx.iter_mut()) {
            *mean *= each;
        }
        let rows = w.dv.chunks_exact(w.s).zip(w.xh.chunks_exact(w.s)).zip(gain);
        let rows = rows.zip(dx.chunks_exact_mut(d).zip(dy.chunks_exact(d)));
        for (((dv, xh), gain), (dx, dy)) in rows {
            for c in 0..d {
                let g = dv[c] * gain - mean_g[c] - xh[c] * mean_gx[c];
                dx[c] = g.mul_add(w.rstd[c], dy[c]);
            }
        }
    }
    /// Writes the sum of the lanes of each number.
    fn sums_of_lanes(out: &mut [f32], lanes: &[f32]) {
        for (out, lanes) in out.iter_mut().zip(lanes.chunks_exact(LANES)) {
            *out = V::load(lanes).sum();
        }
    }
}

/// Writes the factors of a dropout of the elements from `first` on.
fn factors(drop: &Epilogue, io: &Io<'_>, first: usize, out: &mut [f32]) {
    out.fill(1.0);
    drop.drop(io, first, out);
}

pub(super) fn forward(drops: &[Epilogue; 2], io: &Io<'_>) {
    // Fewer roots would not be worth transposing the weights.
    const LEAST: usize = 4;
    let (o, b2) = (Operands::<f32>::new(io), io.input::<f32>(at!(MixTokens, b2)));
    let (size, rows, hidden_size) = (team::piece(o.roots(), LEAST), o.k * o.d, o.m * o.d);
    let pieces = io.out::<f32>(0).chunks_mut(size * rows).zip(o.x.chunks(size * rows));
    pieces.enumerate().in_parallel(1, |(piece, (y, x))| {
        Workspace::with(&o, [0; 6], |w| {
            for (i, (y, x)) in y.chunks_exact_mut(rows).zip(x.chunks_exact(rows)).enumerate() {
                let root = piece * size + i;
                factors(&drops[0], io, root * hidden_size, w.factors);
                factors(&drops[1], io, root * rows, y);
                hidden(x, &o, w);
                mixed(y, x, b2, o.d, w);
            }
        });
    });
}

pub(super) fn backward(drops: &[Epilogue; 2], io: &Io<'_>) {
    let (o, dy) = (Operands::<f32>::new(io), io.input::<f32>(at!(MixTokensGrad, dy)));
    let (size, rows, hidden_size) = (parts::part_rows(o.roots()), o.k * o.d, o.m * o.d);
    let sizes = MixTokensGrad::sizes([o.k, o.m]);
    let weights: usize = sizes.iter().sum();
    let (sum, partials) = io.scratch::<f32>().split_at_mut(weights);
    let partials = &mut partials[..weights * o.roots().div_ceil(size)];
    let peak = (1.0 / (2.0 * PI).sqrt()) as f32;
    let pieces = io.out::<f32>(0).chunks_mut(size * rows).zip(o.x.chunks(size * rows));
    let pieces = pieces.zip(dy.chunks(size * rows)).zip(partials.chunks_exact_mut(weights));
    pieces.enumerate().in_parallel(1, |(piece, (((dx, x), dy), mut partial))| {
        Workspace::with(&o, sizes, |w| {
            let roots = dx.chunks_exact_mut(rows).zip(x.chunks_exact(rows)).zip(dy.chunks_exact(rows));
            for (i, ((dx, x), dy)) in roots.enumerate() {
                let root = piece * size + i;
                factors(&drops[0], io, root * hidden_size, w.factors);
                dx.copy_from_slice(dy);
                drops[1].drop(io, root * rows, dx);
                for (du, dx) in w.u.chunks_exact_mut(w.s).zip(dx.chunks_exact(o.d)) {
                    du[..o.d].copy_from_slice(dx);
                }
                hidden(x, &o, w);
                gradients(&o, peak, w);
                input_gradient(dx, dy, o.gain, w);
            }
            for lanes in &w.sums {
                sums_of_lanes(split_off(&mut partial, lanes.len() / LANES), lanes);
            }
        });
    });
    sum.fill(0.0);
    parts::add_column_sums(sum, partials);
    let mut rest = sum;
    for (i, n) in sizes.into_iter().enumerate() {
        io.out::<f32>(1 + i).copy_from_slice(split_off(&mut rest, n));
    }
}
