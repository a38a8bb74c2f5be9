//! The fast host path, root by root: raw rows gathered into a padded buffer, then scores, softmax and mixture.
use super::{
    super::time_encode::{add_phi_grad, phi_blocks},
    Operands,
};
use crate::runtime::simd::{self, LANES, vectorised};

/// Widths in whole blocks, so that no product has a ragged end: of a raw row (with room for a time encoding that ends
/// in whole blocks), and of a time encoding.
fn padded(c: usize, t: usize) -> (usize, usize) {
    let t_blocks = t.next_multiple_of(LANES);
    ((c - t + t_blocks).next_multiple_of(LANES), t_blocks)
}

/// Buffers of one thread. Rows are padded: queries and gradients with zeros, raw rows with anything finite.
pub(super) struct Work<'a> {
    /// Raw rows, `[k, padded]`.
    z: &'a mut [f32],
    /// A row a head: queries.
    q: &'a mut [f32],
    /// A row a head: mixed rows, or their gradients.
    mix: &'a mut [f32],
    /// A row a head: gradients of the query.
    dq: &'a mut [f32],
    /// Sines of the time encodings, `[k, padded t]`.
    sin: &'a mut [f32],
    /// Weights, drop-out factors and score gradients, `[H, k]` each.
    a: &'a mut [f32],
    kept: &'a mut [f32],
    ds: &'a mut [f32],
    /// Frequencies and phases, padded.
    w: &'a mut [f32],
    b: &'a mut [f32],
}

impl<'a> Work<'a> {
    pub(super) fn size(heads: usize, k: usize, c: usize, t: usize) -> usize {
        let (row, t) = padded(c, t);
        row * (k + 3 * heads) + (k + 2) * t + 3 * heads * k
    }
    pub(super) fn new(buffer: &'a mut [f32], o: &Operands<'_, f32>) -> Self {
        let (heads, k) = (o.heads, o.k);
        let (row, t) = padded(o.width(), o.w.len());
        buffer.fill(0.0);
        let mut rest = buffer;
        let mut take = |n: usize| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            head
        };
        let work = Work {
            z: take(k * row),
            q: take(heads * row),
            mix: take(heads * row),
            dq: take(heads * row),
            sin: take(k * t),
            a: take(heads * k),
            kept: take(heads * k),
            ds: take(heads * k),
            w: take(t),
            b: take(t),
        };
        work.w[..o.w.len()].copy_from_slice(o.w);
        work.b[..o.b.len()].copy_from_slice(o.b);
        work
    }
}

/// Asks for the raw rows of root `i`, which come from all over memory.
#[inline(always)]
pub(super) fn ask(o: &Operands<'_, f32>, i: usize) {
    for slot in i * o.k..i * o.k + o.count[i] as usize {
        simd::prefetch(o.features(slot));
        simd::prefetch(o.memory(slot));
    }
}

/// Loads the query and raw rows of root `i`; returns the slots in use.
#[inline(always)]
fn load(o: &Operands<'_, f32>, i: usize, w: &mut Work<'_>, sines: bool) -> usize {
    let (n, c) = (o.count[i] as usize, o.width());
    let (row, t) = padded(c, o.w.len());
    if n == 0 {
        return 0; // such a root may have no query either
    }
    for h in 0..o.heads {
        w.q[h * row..][..c].copy_from_slice(o.query_of(i, h));
    }
    for j in 0..n {
        let slot = i * o.k + j;
        let z = &mut w.z[j * row..][..row];
        z[..o.d].copy_from_slice(o.memory(slot));
        z[o.d..o.d + o.f].copy_from_slice(o.features(slot));
        let sin = if sines { Some(&mut w.sin[j * t..][..t]) } else { None };
        phi_blocks(o.dt[slot], w.w, w.b, &mut z[o.d + o.f..][..t], sin);
    }
    match o.drop {
        Some((rate, key)) => rate.factors(key, i * o.heads * o.k, w.kept),
        None => w.kept.fill(1.0),
    }
    n
}

/// `out = sum_j a[j] z_j` over padded rows.
#[inline(always)]
fn mix(out: &mut [f32], a: &[f32], z: &[f32]) {
    let width = out.len();
    let mut blocks = out.chunks_exact_mut(4 * LANES);
    let mut from = 0;
    // Four blocks at a time stay in registers while the neighbours pass by.
    for out in &mut blocks {
        let mut sum = [[0.0f32; LANES]; 4];
        for (&a, z) in a.iter().zip(z.chunks_exact(width)) {
            let z = &z[from..from + 4 * LANES];
            for (q, sum) in sum.iter_mut().enumerate() {
                for l in 0..LANES {
                    sum[l] = a.mul_add(z[q * LANES + l], sum[l]);
                }
            }
        }
        out.copy_from_slice(sum.as_flattened());
        from += 4 * LANES;
    }
    for out in blocks.into_remainder().chunks_exact_mut(LANES) {
        let mut sum = [0.0f32; LANES];
        for (&a, z) in a.iter().zip(z.chunks_exact(width)) {
            let z = &z[from..from + LANES];
            for l in 0..LANES {
                sum[l] = a.mul_add(z[l], sum[l]);
            }
        }
        out.copy_from_slice(&sum);
        from += LANES;
    }
}

vectorised! {
    pub(super) fn forward(o: &Operands<'_, f32>, first: usize, out: &mut [f32], sums: &mut [f32], weights: &mut [f32], w: &mut Work<'_>) {
        let (c, k) = (o.width(), o.k);
        let (row_width, _) = padded(c, o.w.len());
        let rows = sums.len() / o.heads;
        for (at, sums) in sums.chunks_exact_mut(o.heads).enumerate() {
            let i = first + at;
            if at + 1 < rows {
                ask(o, i + 1);
            }
            let n = load(o, i, w, false);
            for h in 0..o.heads {
                let (q, a) = (&w.q[h * row_width..][..row_width], &mut w.a[h * k..][..n]);
                let mut top = f32::NEG_INFINITY;
                for (j, a) in a.iter_mut().enumerate() {
                    *a = simd::dot_blocks(q, &w.z[j * row_width..][..row_width]) * o.scale as f32;
                    top = top.max(*a);
                }
                let mut total = 0.0;
                for a in a.iter_mut() {
                    *a = simd::exp(*a - top);
                    total += *a;
                }
                let saved = &mut weights[(at * o.heads + h) * k..][..k];
                saved[n..].fill(0.0);
                sums[h] = 0.0;
                for ((a, saved), &kept) in a.iter_mut().zip(saved).zip(&w.kept[h * k..]) {
                    *saved = *a / total;
                    *a = *saved * kept;
                    sums[h] += *a;
                }
                let row = &mut w.mix[h * row_width..][..row_width];
                mix(row, a, w.z);
                out[(at * o.heads + h) * c..][..c].copy_from_slice(&row[..c]);
            }
        }
    }
    /// Adds root `i` to its query's gradient and to `dwb = {dw | db}`; writes a row of `dz` (its memory part) a slot.
    pub(super) fn backward(
        o: &Operands<'_, f32>, i: usize, weights: &[f32], dmix: &[f32], dsum: &[f32], dquery: &mut [f32], dz: &mut [f32],
        dwb: &mut [f32], dphi: &mut [f32], w: &mut Work<'_>,
    ) {
        let (c, k, d, t) = (o.width(), o.k, o.d, o.w.len());
        let (row_width, t_padded) = padded(c, t);
        let n = load(o, i, w, true);
        for h in 0..o.heads {
            let g = &mut w.mix[h * row_width..][..row_width];
            g[..c].copy_from_slice(&dmix[h * c..][..c]);
            let (a, ds, kept) = (&mut w.a[h * k..][..n], &mut w.ds[h * k..][..n], &w.kept[h * k..][..n]);
            let mut mean = 0.0;
            for j in 0..n {
                ds[j] = (simd::dot_blocks(g, &w.z[j * row_width..][..row_width]) + dsum[h]) * kept[j];
                mean = weights[h * k + j].mul_add(ds[j], mean);
            }
            for j in 0..n {
                ds[j] = weights[h * k + j] * (ds[j] - mean) * o.scale as f32;
                a[j] = weights[h * k + j] * kept[j];
            }
            let dq = &mut w.dq[h * row_width..][..row_width];
            mix(dq, ds, w.z);
            simd::add_assign(&mut dquery[h * c..][..c], dq);
        }
        let (dw, db) = dwb.split_at_mut(t);
        for j in 0..n {
            let (dz, dphi) = (&mut dz[j * d..][..d], &mut dphi[..t]);
            dz.fill(0.0);
            dphi.fill(0.0);
            for h in 0..o.heads {
                let (g, q) = (&w.mix[h * row_width..][..c], &w.q[h * row_width..][..c]);
                let (a, ds) = (w.a[h * k + j], w.ds[h * k + j]);
                for ((z, &g), &q) in dz.iter_mut().zip(g).zip(q) {
                    *z = ds.mul_add(q, a.mul_add(g, *z));
                }
                for ((z, &g), &q) in dphi.iter_mut().zip(&g[c - t..]).zip(&q[c - t..]) {
                    *z = ds.mul_add(q, a.mul_add(g, *z));
                }
            }
            add_phi_grad(dw, db, o.dt[i * k + j], &w.sin[j * t_padded..][..t], dphi);
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
