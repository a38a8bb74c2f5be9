//! The fast host path, root by root: raw rows gathered into a padded buffer, then scores, softmax and mixture.
use super::{
    super::time_encode::{add_phi_grad, phi},
    Operands,
};
use crate::runtime::simd::{self, Block, LANES, vectorised};

/// Raw rows that one tile of scores takes.
const TILE: usize = 4;

/// Buffers of one thread. Rows and columns are padded to whole blocks and tiles, so that no loop has a ragged end; the
/// padding of raw rows, queries and gradients is zero.
pub(super) struct Work<'a> {
    /// Padded widths: of a raw row, of a time encoding, of a row of weights.
    row: usize,
    t: usize,
    k: usize,
    /// Raw rows, `[k, row]`.
    z: &'a mut [f32],
    /// Gradients of the mixed rows (forward: mixed rows), then queries, `[2 H, row]`.
    gq: &'a mut [f32],
    /// Gradients of the queries, `[H, row]`.
    dq: &'a mut [f32],
    /// Sines of the time encodings, `[k, t]`.
    sin: &'a mut [f32],
    /// Weights after drop-out, then gradients of the scores, `[2 H, k]`: what `dz` multiplies the rows of `gq` with.
    a_ds: &'a mut [f32],
    /// Drop-out factors, `[H * k]` without padding.
    kept: &'a mut [f32],
    /// Gradient of a row of `h`, and of a time encoding.
    dz: &'a mut [f32],
    dphi: &'a mut [f32],
}

impl<'a> Work<'a> {
    fn widths(k: usize, c: usize, d: usize, t: usize) -> [usize; 4] {
        let blocks = |n: usize| n.next_multiple_of(LANES);
        // Room for a time encoding and for a row of h that end in whole blocks.
        [blocks((c - t + blocks(t)).max(blocks(d))), blocks(t), blocks(k), blocks(d)]
    }
    pub(super) fn size(heads: usize, k: usize, c: usize, d: usize, t: usize) -> usize {
        let [row, t, k, d] = Self::widths(k, c, d, t);
        row * (k + 3 * heads) + (k + 1) * t + 3 * heads * k + d
    }
    pub(super) fn new(buffer: &'a mut [f32], o: &Operands<'_, f32>) -> Self {
        let heads = o.heads;
        let [row, t, k, d] = Self::widths(o.k, o.width(), o.d, o.w.len());
        buffer.fill(0.0);
        let mut rest = buffer;
        let mut take = |n: usize| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            head
        };
        Work {
            row,
            t,
            k,
            z: take(k * row),
            gq: take(2 * heads * row),
            dq: take(heads * row),
            sin: take(k * t),
            a_ds: take(2 * heads * k),
            kept: take(heads * k),
            dz: take(d),
            dphi: take(t),
        }
    }
}

/// Loads the query of root `i`.
#[inline(always)]
fn load_query(o: &Operands<'_, f32>, i: usize, w: &mut Work<'_>) {
    let (row, c) = (w.row, o.width());
    for h in 0..o.heads {
        w.gq[(o.heads + h) * row..][..c].copy_from_slice(o.query_of(i, h));
    }
}

/// Loads the raw rows of root `i`, and asks for those of root `next`, which come from all over memory; returns the
/// slots in use.
#[inline(always)]
fn load(o: &Operands<'_, f32>, i: usize, next: Option<usize>, w: &mut Work<'_>, sines: bool) -> usize {
    let (n, t) = (o.count[i] as usize, o.w.len());
    let (mut ahead, end) = next.map_or((0, 0), |next| (next * o.k, next * o.k + o.count[next] as usize));
    for j in 0..o.k {
        if ahead < end {
            simd::prefetch(o.features(ahead));
            simd::prefetch(o.memory(ahead));
            ahead += 1;
        }
        if j < n {
            let slot = i * o.k + j;
            let z = &mut w.z[j * w.row..][..w.row];
            z[..o.d].copy_from_slice(o.memory(slot));
            z[o.d..o.d + o.f].copy_from_slice(o.features(slot));
            let sin = if sines { Some(&mut w.sin[j * w.t..][..t]) } else { None };
            phi(o.dt[slot], o.w, o.b, &mut z[o.d + o.f..][..t], sin);
        }
    }
    match o.drop {
        Some((rate, key)) => rate.factors(key, i * o.heads * o.k, &mut w.kept[..o.heads * o.k]),
        None => w.kept.fill(1.0),
    }
    n
}

/// `out[h, j] = rows_h . z_j` for `n` neighbours and as many more as fill a tile.
#[inline(always)]
fn products<V: Block>(
    out: &mut [f32],
    heads: usize,
    k: usize,
    rows: &[f32],
    z: &[f32],
    row: usize,
    n: usize,
) {
    for j in (0..n).step_by(TILE) {
        let z = &z[j * row..][..TILE * row];
        let mut h = 0;
        while h + 2 <= heads {
            let [p, q] = simd::dot_tile::<V, 2>(&rows[h * row..][..2 * row], z, row);
            out[h * k + j..][..TILE].copy_from_slice(&p);
            out[(h + 1) * k + j..][..TILE].copy_from_slice(&q);
            h += 2;
        }
        if h < heads {
            let [p] = simd::dot_tile::<V, 1>(&rows[h * row..][..row], z, row);
            out[h * k + j..][..TILE].copy_from_slice(&p);
        }
    }
}

/// What flows back into attention: weights before drop-out, gradients of the mixed rows and of the sums.
pub(super) struct Upstream<'a> {
    pub(super) weights: &'a [f32],
    pub(super) dmix: &'a [f32],
    pub(super) dsum: &'a [f32],
}

vectorised! {
    /// Roots `first..`, as many as `sums` has rows.
    pub(super) fn forward(o: &Operands<'_, f32>, first: usize, out: &mut [f32], sums: &mut [f32], weights: &mut [f32], w: &mut Work<'_>) {
        let (c, heads, row, k) = (o.width(), o.heads, w.row, w.k);
        let rows = sums.len() / heads;
        weights.fill(0.0);
        for at in 0..rows {
            let i = first + at;
            let n = load(o, i, (at + 1 < rows).then_some(i + 1), w, false);
            let (out, sums) = (&mut out[at * heads * c..][..heads * c], &mut sums[at * heads..][..heads]);
            if n == 0 {
                out.fill(0.0); // such a root may have no query either
                sums.fill(0.0);
                continue;
            }
            load_query(o, i, w);
            let (mixed, q) = w.gq.split_at_mut(heads * row);
            products::<V>(w.a_ds, heads, k, q, w.z, row, n);
            for h in 0..heads {
                let a = &mut w.a_ds[h * k..][..k];
                let mut top = f32::NEG_INFINITY;
                for a in &mut a[..n] {
                    *a *= o.scale as f32;
                    top = top.max(*a);
                }
                a[n..].fill(f32::NEG_INFINITY);
                for block in a.chunks_exact_mut(LANES) {
                    for l in 0..LANES {
                        block[l] = simd::exp(block[l] - top);
                    }
                }
                let total: f32 = a[..n].iter().sum();
                let saved = &mut weights[(at * heads + h) * o.k..][..n];
                sums[h] = 0.0;
                for ((a, saved), &kept) in a.iter_mut().zip(saved).zip(&w.kept[h * o.k..]) {
                    *saved = *a / total;
                    *a = *saved * kept;
                    sums[h] += *a;
                }
                let row_of = &mut mixed[h * row..][..row];
                simd::mix::<V>(row_of, false, a, 1, n, w.z, row, 0);
                out[h * c..][..c].copy_from_slice(&row_of[..c]);
            }
        }
    }
    /// The first `n` of `roots`, which share a query: its gradient, added to `dwb = {dw | db}` (padded) that of the time
    /// encoding, and a row of `dz` (its memory part) a slot. What follows in `roots` comes next.
    pub(super) fn backward(
        o: &Operands<'_, f32>, up: &Upstream<'_>, roots: &[u32], n: usize, dquery: &mut [f32], dz: &mut [f32],
        dwb: &mut [f32], w: &mut Work<'_>,
    ) {
        let (c, heads, row, k, d, t) = (o.width(), o.heads, w.row, w.k, o.d, w.t);
        w.dq.fill(0.0);
        if n > 0 {
            load_query(o, roots[0] as usize, w);
        }
        for (at, dz) in dz.chunks_exact_mut((o.k * d).max(1)).enumerate().take(n) {
            let i = roots[at] as usize;
            let n = load(o, i, roots.get(at + 1).map(|&r| r as usize), w, true);
            for h in 0..heads {
                w.gq[h * row..][..c].copy_from_slice(&up.dmix[(i * heads + h) * c..][..c]);
            }
            let (a, ds) = w.a_ds.split_at_mut(heads * k);
            products::<V>(ds, heads, k, w.gq, w.z, row, n);
            for h in 0..heads {
                let (a, ds) = (&mut a[h * k..][..n], &mut ds[h * k..][..n]);
                let (kept, weights) = (&w.kept[h * o.k..][..n], &up.weights[(i * heads + h) * o.k..][..n]);
                let mut mean = 0.0;
                for j in 0..n {
                    ds[j] = (ds[j] + up.dsum[i * heads + h]) * kept[j];
                    mean = weights[j].mul_add(ds[j], mean);
                }
                for j in 0..n {
                    ds[j] = weights[j] * (ds[j] - mean) * o.scale as f32;
                    a[j] = weights[j] * kept[j];
                }
                simd::mix::<V>(&mut w.dq[h * row..][..row], true, ds, 1, n, w.z, row, 0);
            }
            let (dw, db) = dwb.split_at_mut(t);
            for j in 0..n {
                simd::mix::<V>(w.dz, false, &w.a_ds[j..], k, 2 * heads, w.gq, row, 0);
                dz[j * d..][..d].copy_from_slice(&w.dz[..d]);
                simd::mix::<V>(w.dphi, false, &w.a_ds[j..], k, 2 * heads, w.gq, row, o.d + o.f);
                add_phi_grad(dw, db, o.dt[i * o.k + j], &w.sin[j * t..][..t], w.dphi);
            }
        }
        for h in 0..heads {
            dquery[h * c..][..c].copy_from_slice(&w.dq[h * row..][..c]);
        }
    }
    /// `dh[row] = sum of the rows of dz that `order` lists for it`.
    pub(super) fn sum_rows(dh: &mut [f32], d: usize, first: usize, starts: &[u32], order: &[u32], dz: &[f32]) {
        for (i, dh) in dh.chunks_exact_mut(d).enumerate() {
            dh.fill(0.0);
            for &slot in &order[starts[first + i] as usize..starts[first + i + 1] as usize] {
                simd::add_assign(dh, &dz[slot as usize * d..][..d]);
            }
        }
    }
}

/// Groups `0..n` by `key`: `order[starts[key]..starts[key + 1]]` lists, ascending, the items of a key.
pub(super) fn group(
    n: usize,
    keys: usize,
    starts: &mut [u32],
    order: &mut [u32],
    key: impl Fn(usize) -> Option<usize>,
) {
    starts[..=keys].fill(0);
    (0..n).filter_map(&key).for_each(|k| starts[k + 1] += 1);
    for k in 0..keys {
        starts[k + 1] += starts[k];
    }
    for (i, k) in (0..n).filter_map(|i| Some((i, key(i)?))) {
        order[starts[k] as usize] = i as u32;
        starts[k] += 1;
    }
    starts.copy_within(0..keys, 1); // every start has moved to its end, which is the next one's start
    starts[0] = 0;
}
