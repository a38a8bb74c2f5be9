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
    simd::{self, Block, LANES, Terms, vectorised},
};

/// How many slots before its sum a row of dz is prefetched.
const AHEAD: usize = 6;
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
    /// Padded width of a row of weights.
    k: usize,
    /// Raw rows, `[k, row]`.
    z: &'a mut [f32],
    /// `[2 H, row]`: gradients of the mixed rows (not in the forward pass), then queries.
    gq: &'a mut [f32],
    /// Sines of the time encodings, `[k, time]`.
    sin: &'a mut [f32],
    /// `[2 H, k]`: weights after dropout, then gradients of the scores; the factors of the rows of `gq` in
    /// the gradient of a raw row.
    a_ds: &'a mut [f32],
    /// `[H, k]`, for a run of roots: the score terms of `{memory | features}` in the forward pass, the sums
    /// of the gradients of the scores in the backward pass.
    shared: &'a mut [f32],
    /// Dropout factors, `[H k]` without padding.
    factors: &'a mut [f32],
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
        let (known, time, k) = (padded(o.d + o.f), padded(o.w.len()), padded(o.k));
        let n = (known + time) * (k + 2 * o.heads) + (k + 1) * time + 4 * o.heads * k;
        parts::with_thread_buffer(n, |buffer| work(&mut Workspace::new(buffer, o)));
    }
    fn new(buffer: &'a mut [f32], o: &Operands<'_, f32>) -> Self {
        let heads = o.heads;
        let (known, time, k) = (padded(o.d + o.f), padded(o.w.len()), padded(o.k));
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
            k,
            z: take(k * row),
            gq: take(2 * heads * row),
            sin: take(k * time),
            a_ds: take(2 * heads * k),
            shared: take(heads * k),
            factors: take(heads * k),
            dphi: take(time),
        }
    }
}

/// Copies `row` into its padded form: `{memory | features}`, then the time encoding of `t` numbers at
/// `known`.
#[inline(always)]
fn pad<V: Block>(padded: &mut [f32], row: &[f32], known: usize, t: usize) {
    let (raw, time) = row.split_at(row.len() - t);
    simd::copy::<V>(&mut padded[..raw.len()], raw);
    simd::copy::<V>(&mut padded[known..known + t], time);
}

/// Loads query `q` of all heads.
#[inline(always)]
fn load_query<V: Block>(o: &Operands<'_, f32>, q: usize, w: &mut Workspace<'_>) {
    for h in 0..o.heads {
        pad::<V>(&mut w.gq[(o.heads + h) * w.row..][..w.row], o.query_of(q, h), w.known, o.w.len());
    }
}

/// Loads memory and features of the `n` neighbours of root `i`. Missing rows are reported as faults and
/// loaded as zeros.
#[inline(always)]
fn load_known<V: Block>(o: &Operands<'_, f32>, i: usize, n: usize, w: &mut Workspace<'_>) {
    for j in 0..n {
        let (z, slot) = (&mut w.z[j * w.row..][..o.d + o.f], i * o.k + j);
        let (of_h, of_edge) = z.split_at_mut(o.d);
        for (to, row) in [(of_h, o.memory(slot)), (of_edge, o.features(slot))] {
            match row {
                Some(row) => simd::copy::<V>(to, row),
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
/// dropout factors. Meanwhile prefetches memory and features of root `next`, whose rows are scattered over
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
        Some((rate, key)) => rate.factors(key, i * o.heads * o.k, &mut w.factors[..o.heads * o.k]),
        None => w.factors.fill(1.0),
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

/// Part of a raw row.
#[derive(Clone, Copy)]
enum Part {
    /// Memory and features.
    Known,
    /// The time encoding.
    Time,
    /// All, if there is no padding between the others.
    All,
}

/// Computes `out_h = sum_j a[h, j] z_j`, or `out_h += ...` if `add`, in the columns of `part`, for the rows
/// of all heads, which have no padding.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn mix_heads<V: Block>(
    o: &Operands<'_, f32>,
    out: &mut [f32],
    add: bool,
    part: Part,
    a: &[f32],
    k: usize,
    n: usize,
    z: &[f32],
    row: usize,
) {
    let (c, known) = (o.width(), o.d + o.f);
    let (columns, from) = match part {
        Part::Known => (0..known, 0),
        Part::Time => (known..c, padded(known)),
        Part::All => (0..c, 0),
    };
    let of = Terms { rows: &z[from..], stride: row, step: 1, n };
    for (out, a) in out.chunks_mut(2 * c).zip(a.chunks(2 * k)) {
        match out.split_at_mut_checked(c) {
            Some((p, q)) if !q.is_empty() => {
                let out = [&mut p[columns.clone()], &mut q[columns.clone()]];
                simd::mix::<V, 2>(out, add, [a, &a[k..]], of);
            }
            _ => simd::mix::<V, 1>([&mut out[columns.clone()]], add, [a], of),
        }
    }
}

/// Returns the root after the one at index `at` of the order, if its neighbours differ.
#[inline(always)]
fn next_run(o: &Operands<'_, f32>, at: usize) -> Option<usize> {
    (at + 1 < o.order.len() && !o.same_neighbors(at, at + 1)).then(|| o.order[at + 1] as usize)
}

/// Inputs and options of the backward pass, in addition to the operands of the op.
pub(super) struct Upstream<'a> {
    /// Weights before dropout, `[m, H k]`.
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

/// Computes, for the root at index `at` of the order with `n` neighbours, the weights after dropout and the
/// gradients of the scores. Adds the latter to the sums of the run.
#[inline(always)]
fn score_gradients<V: Block>(
    o: &Operands<'_, f32>,
    at: usize,
    n: usize,
    up: &Upstream<'_>,
    w: &mut Workspace<'_>,
) {
    let (c, heads, row, k) = (o.width(), o.heads, w.row, w.k);
    for h in 0..heads {
        let dmix = &up.dmix[(at * heads + h) * c..][..c];
        pad::<V>(&mut w.gq[h * row..][..row], dmix, w.known, o.w.len());
    }
    let (a, ds) = w.a_ds.split_at_mut(heads * k);
    products::<V>(ds, heads, k, w.gq, w.z, row, n, 0, row);
    for h in 0..heads {
        let (a, ds) = (&mut a[h * k..][..n], &mut ds[h * k..][..n]);
        let shared = &mut w.shared[h * k..][..n];
        let (kept, weights) = (&w.factors[h * o.k..][..n], &up.weights[(at * heads + h) * o.k..][..n]);
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
    }
}

/// Adds the terms of a root to the gradients `dz` of the rows of memory of its neighbours, `d` numbers each,
/// or writes them if the root leads. The last root of a run also adds the terms of the whole run, whose
/// factors take the place of the gradients of its own scores.
#[inline(always)]
fn memory_gradients<V: Block>(
    heads: usize,
    dz: &mut [f32],
    d: usize,
    leads: bool,
    last: bool,
    w: &mut Workspace<'_>,
) {
    if last {
        simd::copy::<V>(&mut w.a_ds[heads * w.k..], w.shared);
    }
    let n = if last { 2 * heads } else { heads };
    let of = Terms { rows: w.gq, stride: w.row, step: w.k, n };
    for (i, dz) in dz.chunks_mut((2 * d).max(1)).enumerate() {
        let a = &w.a_ds[2 * i..];
        match dz.split_at_mut_checked(d) {
            Some((p, q)) if !q.is_empty() => simd::mix::<V, 2>([p, q], !leads, [a, &a[1..]], of),
            _ => simd::mix::<V, 1>([dz], !leads, [a], of),
        }
    }
}

/// Computes the weights of one head before and after dropout from its scores `a`, padded, of `n` neighbours:
/// the former go to `saved`, the latter to `a`. Returns the sum of the latter.
#[inline(always)]
fn soft_max<V: Block>(a: &mut [f32], shared: &[f32], scale: f32, saved: &mut [f32], kept: &[f32]) -> f32 {
    let n = saved.len();
    let mut top = f32::NEG_INFINITY;
    for j in 0..n {
        a[j] = (a[j] + shared[j]) * scale;
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
    let mut sum = 0.0;
    for ((a, saved), &kept) in a.iter_mut().zip(saved).zip(kept) {
        *saved = *a / total;
        *a = *saved * kept;
        sum += *a;
    }
    sum
}

vectorised! {
    /// Computes the mixed rows, the sums of the weights and the weights before dropout of the roots of
    /// queries `from..until`.
    pub(super) fn forward(
        o: &Operands<'_, f32>, from: usize, until: usize, out: &mut [f32], sums: &mut [f32], weights: &mut [f32],
        w: &mut Workspace<'_>,
    ) {
        let (c, heads, row, k) = (o.width(), o.heads, w.row, w.k);
        let first = o.starts[from] as usize;
        let contiguous = w.known == o.d + o.f;
        let parts: &[Part] = if contiguous { &[Part::All] } else { &[Part::Known, Part::Time] };
        weights.fill(0.0);
        for q in from..until {
            let (begin, end) = (o.starts[q] as usize, o.starts[q + 1] as usize);
            if begin < end {
                load_query::<V>(o, q, w);
            }
            let mut leads = true;
            for at in begin..end {
                let ((i, n), next) = (o.root(at), next_run(o, at));
                if leads {
                    load_known::<V>(o, i, n, w);
                    products::<V>(w.shared, heads, k, &w.gq[heads * row..], w.z, row, n, 0, w.known);
                }
                leads = next.is_some();
                load_time(o, i, n, next, w, false);
                products::<V>(w.a_ds, heads, k, &w.gq[heads * row..], w.z, row, n, w.known, w.time);
                for h in 0..heads {
                    let of = (at - first) * heads + h;
                    let (a, shared) = (&mut w.a_ds[h * k..][..k], &w.shared[h * k..][..k]);
                    let (saved, kept) = (&mut weights[of * o.k..][..n], &w.factors[h * o.k..]);
                    sums[of] = soft_max::<V>(a, shared, o.scale as f32, saved, kept);
                }
                let out = &mut out[(at - first) * heads * c..][..heads * c];
                for &part in parts {
                    mix_heads::<V>(o, out, false, part, w.a_ds, k, n, w.z, row);
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
        let (c, heads, row, k, time) = (o.width(), o.heads, w.row, w.k, w.time);
        let (dw, db) = dwb.split_at_mut(time);
        let first = o.starts[from] as usize;
        for (q, dquery) in (from..until).zip(dquery.chunks_exact_mut(heads * c)) {
            let (begin, end) = (o.starts[q] as usize, o.starts[q + 1] as usize);
            if begin < end {
                load_query::<V>(o, q, w);
            } else {
                dquery.fill(0.0);
            }
            let (mut lead, mut leads) = (begin, true);
            for at in begin..end {
                let ((i, n), next) = (o.root(at), next_run(o, at));
                let last = at + 1 == end || next.is_some();
                if leads {
                    lead = at;
                    load_known::<V>(o, i, n, w);
                    w.shared.fill(0.0);
                }
                load_time(o, i, n, next, w, up.learn_time);
                score_gradients::<V>(o, at, n, up, w);
                mix_heads::<V>(o, dquery, at > begin, Part::Time, &w.a_ds[heads * k..], k, n, w.z, row);
                for j in 0..if up.learn_time { n } else { 0 } {
                    let of = Terms { rows: &w.gq[w.known..], stride: row, step: k, n: 2 * heads };
                    simd::mix::<V, 1>([&mut *w.dphi], false, [&w.a_ds[j..]], of);
                    add_phi_grad(dw, db, o.dt[i * o.k + j], &w.sin[j * time..][..time], w.dphi);
                }
                if up.learn_h {
                    leading[at - first] = u32::from(leads);
                    let dz = &mut dz[(lead - first) * o.k * o.d..][..n * o.d];
                    memory_gradients::<V>(heads, dz, o.d, leads, last, w);
                }
                if last {
                    mix_heads::<V>(o, dquery, lead > begin, Part::Known, w.shared, k, n, w.z, row);
                }
                leads = last;
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
            for (j, &slot) in row_slots.iter().enumerate() {
                // Rows of dz are scattered over memory.
                let ahead = slots.get(begin as usize + j + AHEAD).and_then(|&slot| dz.get(slot as usize * d..));
                prefetch(ahead.and_then(|dz| dz.get(..d)));
                match leading.get(slot as usize / k) {
                    Some(0) => {}
                    Some(_) => simd::add_assign(dh, &dz[slot as usize * d..][..d]),
                    None => io.fault(row, Fault::OutOfRange(slot)),
                }
            }
        }
    }
}
