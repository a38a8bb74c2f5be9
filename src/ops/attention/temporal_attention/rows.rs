//! The fast host path. Roots are processed query by query. Roots of one node share their query and, within a
//! batch, often also their neighbours: between two of the node's events, only the gaps differ. For such
//! roots, raw rows are loaded once, and the terms that do not depend on the gaps are computed once: in the
//! forward pass the score terms of memory and features, in the backward pass their gradients, for which the
//! gradients of the scores are summed first.
//!
//! A root *leads* if it is the first of its query, or if its neighbours differ from those of the root before
//! it. A leading root and the roots after it with the same neighbours are a *run*.
use super::{
    super::time_encode::{add_phi_grad, phi},
    Operands,
};
use crate::runtime::{
    Fault, Io, parts,
    simd::{self, Block, LANES, vectorised},
};

/// Raw rows in one tile of products.
const TILE: usize = 4;

/// Buffers of one thread. A raw row is `{memory | features}`, then its time encoding, each padded with zeros
/// to whole SIMD blocks, so that no loop has a ragged end. Queries and gradients have the same layout.
pub(super) struct Workspace<'a> {
    /// Padded width of `{memory | features}`.
    known: usize,
    /// Padded width of a time encoding.
    time: usize,
    /// Padded width of a raw row: `known + time`.
    row: usize,
    /// Padded width of a row of memory.
    d: usize,
    /// Padded width of a row of weights.
    k: usize,
    /// Raw rows, `[k, row]`.
    z: &'a mut [f32],
    /// `[2 H, row]`: gradients of the mixed rows (in the forward pass, mixed rows), then queries.
    gq: &'a mut [f32],
    /// Gradients of the queries, `[H, row]`.
    dq: &'a mut [f32],
    /// Sines of the time encodings, `[k, time]`.
    sin: &'a mut [f32],
    /// `[2 H, k]`: weights after drop-out, then gradients of the scores; the factors of the rows of `gq` in
    /// the gradient of a raw row.
    a_ds: &'a mut [f32],
    /// `[H, k]`, for a run of roots: the score terms of `{memory | features}` in the forward pass, the sums
    /// of the gradients of the scores in the backward pass.
    shared: &'a mut [f32],
    /// Drop-out factors, `[H k]` without padding.
    kept: &'a mut [f32],
    /// Gradients of the neighbours' rows of memory, `[k, d]`.
    dz: &'a mut [f32],
    /// Gradient of a time encoding, `[time]`.
    dphi: &'a mut [f32],
}

/// Rounds `n` up to whole SIMD blocks.
fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

impl<'a> Workspace<'a> {
    /// Runs `work` with the buffers of this thread.
    pub(super) fn with(o: &Operands<'_, f32>, work: impl FnOnce(&mut Workspace<'_>)) {
        let (known, time, d, k) = (padded(o.d + o.f), padded(o.w.len()), padded(o.d), padded(o.k));
        let n = (known + time) * (k + 3 * o.heads) + (k + 1) * time + 4 * o.heads * k + k * d;
        parts::with_thread_buffer(n, |buffer| work(&mut Workspace::new(buffer, o)));
    }
    fn new(buffer: &'a mut [f32], o: &Operands<'_, f32>) -> Self {
        let heads = o.heads;
        let (known, time, d, k) = (padded(o.d + o.f), padded(o.w.len()), padded(o.d), padded(o.k));
        let row = known + time;
        let mut rest = buffer;
        let mut take = |n: usize| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            head
        };
        Workspace {
            known,
            time,
            row,
            d,
            k,
            z: take(k * row),
            gq: take(2 * heads * row),
            dq: take(heads * row),
            sin: take(k * time),
            a_ds: take(2 * heads * k),
            shared: take(heads * k),
            kept: take(heads * k),
            dz: take(k * d),
            dphi: take(time),
        }
    }
}

/// Copies `row` into its padded form: `{memory | features}`, then the time encoding of `t` numbers at
/// `known`.
#[inline(always)]
fn pad(padded: &mut [f32], row: &[f32], known: usize, t: usize) {
    let (raw, time) = row.split_at(row.len() - t);
    padded[..raw.len()].copy_from_slice(raw);
    padded[known..known + t].copy_from_slice(time);
}

/// Copies a padded row back into a row without padding, see [`pad`].
#[inline(always)]
fn unpad(row: &mut [f32], padded: &[f32], known: usize, t: usize) {
    let (raw, time) = row.split_at_mut(row.len() - t);
    raw.copy_from_slice(&padded[..raw.len()]);
    time.copy_from_slice(&padded[known..known + t]);
}

/// Loads query `q` of all heads.
#[inline(always)]
fn load_query(o: &Operands<'_, f32>, q: usize, w: &mut Workspace<'_>) {
    for h in 0..o.heads {
        pad(&mut w.gq[(o.heads + h) * w.row..][..w.row], o.query_of(q, h), w.known, o.w.len());
    }
}

/// Loads memory and features of the `n` neighbours of root `i`. Missing rows are reported as faults and
/// loaded as zeros.
#[inline(always)]
fn load_known(o: &Operands<'_, f32>, i: usize, n: usize, w: &mut Workspace<'_>) {
    for j in 0..n {
        let (z, slot) = (&mut w.z[j * w.row..][..o.d + o.f], i * o.k + j);
        let (of_h, of_edge) = z.split_at_mut(o.d);
        for (to, row) in [(of_h, o.memory(slot)), (of_edge, o.features(slot))] {
            match row {
                Some(row) => to.copy_from_slice(row),
                None => {
                    to.fill(0.0);
                    o.check(i, slot);
                }
            }
        }
    }
}

/// Prefetches a row, if there is one.
#[inline(always)]
fn prefetch(row: Option<&[f32]>) {
    if let Some(row) = row {
        simd::prefetch(row);
    }
}

/// Loads the time encodings of the `n` neighbours of root `i`, with their sines if `sines` is set, and its
/// drop-out factors. Meanwhile prefetches memory and features of root `next`, whose rows are scattered over
/// memory.
#[inline(always)]
fn load_time(
    o: &Operands<'_, f32>,
    i: usize,
    n: usize,
    next: Option<usize>,
    w: &mut Workspace<'_>,
    sines: bool,
) {
    let t = o.w.len();
    let (mut ahead, end) = next.map_or((0, 0), |next| (next * o.k, next * o.k + o.used(next)));
    for j in 0..o.k {
        if ahead < end {
            prefetch(o.features(ahead));
            prefetch(o.memory(ahead));
            ahead += 1;
        }
        if j < n {
            let time = &mut w.z[j * w.row + w.known..][..t];
            let sin = if sines { Some(&mut w.sin[j * w.time..][..t]) } else { None };
            phi(o.dt[i * o.k + j], o.w, o.b, time, sin);
        }
    }
    match o.drop {
        Some((rate, key)) => rate.factors(key, i * o.heads * o.k, &mut w.kept[..o.heads * o.k]),
        None => w.kept.fill(1.0),
    }
}

/// Computes `out[h, j] = rows_h . z_j` over `width` columns from `from`, for `n` neighbours, rounded up to
/// whole tiles.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn products<V: Block>(
    out: &mut [f32],
    heads: usize,
    k: usize,
    rows: &[f32],
    z: &[f32],
    row: usize,
    n: usize,
    from: usize,
    width: usize,
) {
    for j in (0..n).step_by(TILE) {
        let z = &z[j * row..][..TILE * row];
        let mut h = 0;
        while h + 2 <= heads {
            let [p, q] = simd::dot_tile::<V, 2>(&rows[h * row..][..2 * row], z, row, from, width);
            out[h * k + j..][..TILE].copy_from_slice(&p);
            out[(h + 1) * k + j..][..TILE].copy_from_slice(&q);
            h += 2;
        }
        if h < heads {
            let [p] = simd::dot_tile::<V, 1>(&rows[h * row..][..row], z, row, from, width);
            out[h * k + j..][..TILE].copy_from_slice(&p);
        }
    }
}

/// Whether the root at index `at` of the order leads; the roots of its query begin at `begin`.
#[inline(always)]
fn leads(o: &Operands<'_, f32>, begin: usize, at: usize) -> bool {
    at == begin || !o.same_neighbors(at - 1, at)
}

/// Returns the root after the one at index `at` of the order, if its neighbours differ.
#[inline(always)]
fn next_run(o: &Operands<'_, f32>, at: usize) -> Option<usize> {
    (at + 1 < o.order.len() && !o.same_neighbors(at, at + 1)).then(|| o.order[at + 1] as usize)
}

/// Inputs and options of the backward pass, in addition to the operands of the op.
pub(super) struct Upstream<'a> {
    /// Weights before drop-out, `[m, H k]`.
    pub(super) weights: &'a [f32],
    /// Gradients of the mixed rows, `[m, H c]`.
    pub(super) dmix: &'a [f32],
    /// Gradients of the sums of the weights, `[m, H]`.
    pub(super) dsum: &'a [f32],
    /// Whether gradients of the time encoding are wanted.
    pub(super) learn_time: bool,
    /// Whether gradients of h are wanted.
    pub(super) learn_h: bool,
}

/// Computes, for the root at index `at` of the order with `n` neighbours, the weights after drop-out and the
/// gradients of the scores. Adds the latter to the sums of the run, and their products with the time
/// encodings to the gradients of the queries.
#[inline(always)]
fn score_gradients<V: Block>(
    o: &Operands<'_, f32>,
    at: usize,
    n: usize,
    up: &Upstream<'_>,
    w: &mut Workspace<'_>,
) {
    let (c, heads, row, k, known, time) = (o.width(), o.heads, w.row, w.k, w.known, w.time);
    for h in 0..heads {
        pad(&mut w.gq[h * row..][..row], &up.dmix[(at * heads + h) * c..][..c], known, o.w.len());
    }
    let (a, ds) = w.a_ds.split_at_mut(heads * k);
    products::<V>(ds, heads, k, w.gq, w.z, row, n, 0, row);
    for h in 0..heads {
        let (a, ds) = (&mut a[h * k..][..n], &mut ds[h * k..][..n]);
        let shared = &mut w.shared[h * k..][..n];
        let (kept, weights) = (&w.kept[h * o.k..][..n], &up.weights[(at * heads + h) * o.k..][..n]);
        let mut mean = 0.0;
        for j in 0..n {
            ds[j] = (ds[j] + up.dsum[at * heads + h]) * kept[j];
            mean = weights[j].mul_add(ds[j], mean);
        }
        for j in 0..n {
            ds[j] = weights[j] * (ds[j] - mean) * o.scale as f32;
            a[j] = weights[j] * kept[j];
            shared[j] += ds[j];
        }
        simd::mix::<V>(&mut w.dq[h * row + known..][..time], true, ds, 1, n, w.z, row, known);
    }
}

/// Adds the terms of the whole run to the gradients of the queries and, if `learn_h` is set, of the rows of
/// memory of its `n` neighbours.
#[inline(always)]
fn finish_run<V: Block>(heads: usize, n: usize, learn_h: bool, w: &mut Workspace<'_>) {
    let (row, k, known, d) = (w.row, w.k, w.known, w.d);
    for h in 0..heads {
        simd::mix::<V>(&mut w.dq[h * row..][..known], true, &w.shared[h * k..], 1, n, w.z, row, 0);
    }
    for j in 0..if learn_h { n } else { 0 } {
        let queries = &w.gq[heads * row..];
        simd::mix::<V>(&mut w.dz[j * d..][..d], true, &w.shared[j..], k, heads, queries, row, 0);
    }
}

vectorised! {
    /// Computes the mixed rows, the sums of the weights and the weights before drop-out of the roots of
    /// queries `from..until`.
    pub(super) fn forward(
        o: &Operands<'_, f32>, from: usize, until: usize, out: &mut [f32], sums: &mut [f32], weights: &mut [f32],
        w: &mut Workspace<'_>,
    ) {
        let (c, t, heads, row, k) = (o.width(), o.w.len(), o.heads, w.row, w.k);
        let first = o.starts[from] as usize;
        weights.fill(0.0);
        for q in from..until {
            let (begin, end) = (o.starts[q] as usize, o.starts[q + 1] as usize);
            if begin < end {
                load_query(o, q, w);
            }
            for at in begin..end {
                let (i, n) = o.root(at);
                if leads(o, begin, at) {
                    load_known(o, i, n, w);
                    products::<V>(w.shared, heads, k, &w.gq[heads * row..], w.z, row, n, 0, w.known);
                }
                load_time(o, i, n, next_run(o, at), w, false);
                let (mixed, query) = w.gq.split_at_mut(heads * row);
                products::<V>(w.a_ds, heads, k, query, w.z, row, n, w.known, w.time);
                for h in 0..heads {
                    let row_of = (at - first) * heads + h;
                    let (a, shared) = (&mut w.a_ds[h * k..][..k], &w.shared[h * k..][..k]);
                    let mut top = f32::NEG_INFINITY;
                    for j in 0..n {
                        a[j] = (a[j] + shared[j]) * o.scale as f32;
                        top = top.max(a[j]);
                    }
                    a[n..].fill(f32::NEG_INFINITY);
                    for a in a.chunks_exact_mut(LANES) {
                        V::load_each(a).store(a); // from here on, blocks can be loaded
                        for a in a.iter_mut() {
                            *a = simd::exp(*a - top);
                        }
                    }
                    let total: f32 = a[..n].iter().sum();
                    let saved = &mut weights[row_of * o.k..][..n];
                    sums[row_of] = 0.0;
                    for ((a, saved), &kept) in a.iter_mut().zip(saved).zip(&w.kept[h * o.k..]) {
                        *saved = *a / total;
                        *a = *saved * kept;
                        sums[row_of] += *a;
                    }
                    let mixed = &mut mixed[h * row..][..row];
                    simd::mix::<V>(mixed, false, a, 1, n, w.z, row, 0);
                    unpad(&mut out[row_of * c..][..c], mixed, w.known, t);
                }
            }
        }
    }
    /// Computes the gradients of queries `from..until`, and adds the gradients of the time encoding to
    /// `dwb = {dw | db}`, which is padded. For the gradient of h, flags the roots that lead in `leading`, and
    /// writes to `dz`, for each neighbour of such a root, the gradient of its row of memory, summed over the
    /// run.
    pub(super) fn backward(
        o: &Operands<'_, f32>, from: usize, until: usize, up: &Upstream<'_>, dquery: &mut [f32],
        dz: &mut [f32], leading: &mut [u32], dwb: &mut [f32], w: &mut Workspace<'_>,
    ) {
        let (c, t, heads, row, k) = (o.width(), o.w.len(), o.heads, w.row, w.k);
        let (known, time, d) = (w.known, w.time, w.d);
        let (dw, db) = dwb.split_at_mut(time);
        let first = o.starts[from] as usize;
        for (q, dquery) in (from..until).zip(dquery.chunks_exact_mut(heads * c)) {
            let (begin, end) = (o.starts[q] as usize, o.starts[q + 1] as usize);
            w.dq.fill(0.0);
            if begin < end {
                load_query(o, q, w);
            }
            let mut lead = begin;
            for at in begin..end {
                let (i, n) = o.root(at);
                let leads_here = leads(o, begin, at);
                if up.learn_h {
                    leading[at - first] = u32::from(leads_here);
                }
                if leads_here {
                    lead = at;
                    load_known(o, i, n, w);
                    w.shared.fill(0.0);
                    w.dz.fill(0.0);
                }
                load_time(o, i, n, next_run(o, at), w, up.learn_time);
                score_gradients::<V>(o, at, n, up, w);
                for j in 0..n {
                    if up.learn_h {
                        simd::mix::<V>(&mut w.dz[j * d..][..d], true, &w.a_ds[j..], k, heads, w.gq, row, 0);
                    }
                    if up.learn_time {
                        simd::mix::<V>(w.dphi, false, &w.a_ds[j..], k, 2 * heads, w.gq, row, known);
                        add_phi_grad(dw, db, o.dt[i * o.k + j], &w.sin[j * time..][..time], w.dphi);
                    }
                }
                if at + 1 == end || leads(o, begin, at + 1) {
                    finish_run::<V>(heads, n, up.learn_h, w);
                    for j in 0..if up.learn_h { n } else { 0 } {
                        let sum = &w.dz[j * d..][..o.d];
                        dz[((lead - first) * o.k + j) * o.d..][..o.d].copy_from_slice(sum);
                    }
                }
            }
            for h in 0..heads {
                unpad(&mut dquery[h * c..][..c], &w.dq[h * row..][..row], known, t);
            }
        }
    }
    /// Writes to each row of `dh`, which begins with row `first` of h, the sum of the rows of `dz` of its
    /// slots. Only slots of leading roots are added; their rows hold the sums of whole runs.
    pub(super) fn sum_rows(
        io: &Io<'_>, dh: &mut [f32], d: usize, first: usize, starts: &[u32], slots: &[u32], dz: &[f32],
        leading: &[u32], k: usize,
    ) {
        for (i, dh) in dh.chunks_exact_mut(d).enumerate() {
            dh.fill(0.0);
            let (row, [begin, end]) = (first + i, [first + i, first + i + 1].map(|row| starts[row]));
            let Some(row_slots) = slots.get(begin as usize..end as usize) else {
                io.fault(row, Fault::OutOfRange(end));
                continue;
            };
            for &slot in row_slots {
                match leading.get(slot as usize / k) {
                    Some(0) => {}
                    Some(_) => simd::add_assign(dh, &dz[slot as usize * d..][..d]),
                    None => io.fault(row, Fault::OutOfRange(slot)),
                }
            }
        }
    }
}
