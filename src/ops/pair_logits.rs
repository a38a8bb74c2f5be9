//! `logit[i, j] = w . relu(P[src[i]] + b + Q[x[i, j]]) + b_out`: a decoder of pairs whose products are made once a vertex
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `P`, `Q` | `[v, d]`, `[v', d]` f32 | what a vertex adds as source and as destination, such as `z W_src^T` and `z W_dst^T` |
//! | `b`, `w`, `b_out` | `[1, d]`, `[1, d]`, `[1, 1]` f32 | |
//! | `src` | `[<= n]` u32 below v, or [`NONE`] | source of each row, in any order; one after the other they are read from cache |
//! | `x` | `[<= n, 1 + m]` u32 below v', or `NONE` | candidates; column 0: the pair itself |
//! | logits | `[<= n, 1 + m]` f32 | 0 where an end is `NONE` |
//!
//! Backward, with `g[i, j, :] = dlogit[i, j] w [the sum before relu > 0]`: `dP[u]` is the sum of `g` over the rows of source u,
//! `dQ[x]` that over the slots of candidate x ([`group_slots`]), `db = sum_u dP[u]`, and
//! `dw = sum_ij dlogit[i, j] relu(..)`. What relu lets through is computed again, so nothing of size `n m d` is stored. A pair with
//! a `NONE` has no gradient; an index outside is a fault. Deterministic: pairs of a vertex add up in an order that their indices
//! alone decide.
//! Source: TGN's merge layer (Rossi et al. 2020), as in [`link_decoder`].
use super::{epilogue::above_zero, *};
use crate::runtime::{
    parts::{self, PARTS},
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct PairLogits;
/// Gradients of P, Q, b, w and `b_out`.
#[derive(Debug)]
pub struct PairLogitsGrad;

/// On a device: most blocks that share the vertices, and the columns of one; as in the kernels.
const BLOCKS: usize = 512;
const COLUMNS: usize = 64;

/// On the host: how many pairs ahead a row is asked for.
const AHEAD: usize = 8;

impl Tape {
    /// Appends [`PairLogits`] of tables `P, Q` and weights `b, w, b_out` for the rows `src` and their candidates.
    ///
    /// # Errors
    /// `Shape` when types, rows or widths do not fit.
    pub fn pair_logits(
        &mut self,
        [p, q]: [Var; 2],
        weights: [Var; 3],
        src: Var,
        candidates: Var,
    ) -> Result<Var> {
        let [b, w, b_out] = weights;
        self.push1(PairLogits, &[p, q, b, w, b_out, src, candidates])
    }
}

vectorised! {
    /// Logits of one row: `base` is `P[u] + b`, `hidden` has room for as many.
    fn logits_of(logits: &mut [f32], base: &[f32], hidden: &mut [f32], of: &[Option<&[f32]>], w: &[f32], b_out: f32) {
        for (logit, q) in logits.iter_mut().zip(of) {
            *logit = match q {
                Some(q) => {
                    for ((h, &base), &q) in hidden.iter_mut().zip(base).zip(*q) {
                        *h = above_zero(base + q);
                    }
                    simd::dot::<V>(hidden, w) + b_out
                }
                None => 0.0,
            };
        }
    }
    fn sum_into(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a + b;
        }
    }
    /// For a pair of a source: adds `dl` where the sum is above zero, and `dl` times the sum to `dw`.
    fn add_pair(open: &mut [f32], dw: &mut [f32], base: &[f32], q: &[f32], dl: f32) {
        for (((open, dw), &base), &q) in open.iter_mut().zip(dw).zip(base).zip(q) {
            let (z, on) = (base + q, base + q > 0.0);
            *open += if on { dl } else { 0.0 };
            *dw = if on { z } else { 0.0 }.mul_add(dl, *dw);
        }
    }
    /// For a pair of a candidate: adds `dl` where the sum is above zero.
    fn add_open(open: &mut [f32], p: &[f32], b: &[f32], q: &[f32], dl: f32) {
        for (((open, &p), &b), &q) in open.iter_mut().zip(p).zip(b).zip(q) {
            *open += if p + b + q > 0.0 { dl } else { 0.0 };
        }
    }
    fn product_into(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
}

/// Row `index` of a table `d` wide, if it has one.
fn row_at<R>(table: &[R], index: u32, d: usize) -> Option<&[R]> {
    let first = index as usize * d;
    (index != NONE).then(|| table.get(first..first + d)).flatten()
}

/// Asks for the row of a table that `index`, if there is one, names.
fn ask(table: &[f32], index: Option<&u32>, d: usize) {
    if let Some(row) = index.and_then(|&index| row_at(table, index, d)) {
        simd::prefetch(row);
    }
}

/// Vertices in [`PARTS`] ranges with about as many pairs each, whatever the number of threads; `starts` has where the pairs of a
/// vertex begin.
fn even_parts(starts: &[u32], vertices: usize) -> Vec<std::ops::Range<usize>> {
    let all = u64::from(starts[vertices]);
    let mut from = 0;
    let bound = |part: usize| match part {
        PARTS => vertices,
        _ => starts[..vertices].partition_point(|&s| u64::from(s) * (PARTS as u64) < all * part as u64),
    };
    let range = |part| {
        let first = from;
        from = bound(part + 1).max(first);
        first..from
    };
    (0..PARTS).map(range).collect()
}

/// Where the pairs of vertex `v` are listed in `list`; nowhere, and a fault, where its `starts` are beyond.
fn span_of(io: &Io<'_>, starts: &[u32], v: usize, list: &[u32]) -> std::ops::Range<usize> {
    let [first, last] = [starts[v], starts[v + 1]];
    if first > last || last as usize > list.len() {
        io.fault(v, f64::from(last));
        return 0..0;
    }
    first as usize..last as usize
}

impl Op for PairLogits {
    const NAME: &'static str = "pair_logits";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 7)?;
        let [p, q, b, w, b_out, src, x] = [0, 1, 2, 3, 4, 5, 6].map(|i| ins[i]);
        for (what, table) in [("P", p), ("Q", q)] {
            ensure!(Self::NAME, table == Spec::real(table.rows, p.cols), "{what} is {table}, P is {p}");
        }
        for (what, row, width) in [("b", b, p.cols), ("w", w, p.cols), ("b_out", b_out, 1)] {
            typed(Self::NAME, what, &row, DType::F32)?;
            shaped(Self::NAME, what, &row, 1, width)?;
        }
        ensure!(Self::NAME, src == Spec::ids(src.rows, 1), "src is {src}");
        ensure!(Self::NAME, x == Spec::ids(src.rows, x.cols), "src is {src}, candidates are {x}");
        ensure!(Self::NAME, x.cols > 0, "candidates are {x}, want one or more");
        // A pair is named by 32 bits where those of a candidate are listed.
        ensure!(Self::NAME, x.len() < NONE as usize, "candidates are {x}, want fewer");
        Ok(vec![Spec::real(x.rows, x.cols).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let [d, pairs, tables] = [ins[0].cols, outs[0].len(), ins[0].len() + ins[1].len()];
        let rows = tables.min((ins[5].len() + pairs) * d);
        Cost { bytes: 4 * (rows + ins[5].len() + 2 * pairs), flops: 4 * pairs * d }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [p, q, b, w, b_out] = [0, 1, 2, 3, 4].map(|i| io.input::<R>(i));
        let (src, x, d, m) = (io.input::<u32>(5), io.input::<u32>(6), io.cols(0), io.cols(6));
        for (at, logit) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, u, x) = (at / m, src[at / m], x[at]);
            *logit = match (io.row_of(i, u, io.rows(0)), io.row_of(i, x, io.rows(1))) {
                (Some(u), Some(x)) => {
                    let hidden = |l: usize| above_zero(p[u * d + l] + b[l] + q[x * d + l]);
                    (0..d).map(|l| hidden(l) * w[l]).sum::<R>() + b_out[0]
                }
                _ => R::ZERO,
            };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let [p, q, b, w, b_out] = [0, 1, 2, 3, 4].map(|i| io.input::<f32>(i));
        let (src, x, d, m) = (io.input::<u32>(5), io.input::<u32>(6), io.cols(0), io.cols(6));
        let row = |i, table, index, rows| io.row_of(i, index, rows).and_then(|_| row_at(table, index, d));
        let size = team::piece(src.len(), 64);
        io.out::<f32>(0).chunks_mut(size * m).enumerate().in_parallel(1, |(piece, out)| {
            parts::with_thread_buffer(2 * d, |buffer| {
                let (base, hidden) = buffer.split_at_mut(d);
                let mut of = Vec::with_capacity(m);
                for (i, logits) in (piece * size..).zip(out.chunks_exact_mut(m)) {
                    of.clear();
                    of.extend((i * m..(i + 1) * m).map(|at| {
                        ask(q, x.get(at + AHEAD), d);
                        row(i, q, x[at], io.rows(1))
                    }));
                    match row(i, p, src[i], io.rows(0)) {
                        Some(p) => {
                            sum_into(base, p, b);
                            logits_of(logits, base, hidden, &of, w, b_out[0]);
                        }
                        None => logits.fill(0.0),
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [p, q, b, w, b_out] = [0, 1, 2, 3, 4].map(|i| on.input(i));
        let (src, x, logits, d, m) = (on.input(5), on.input(6), on.out(0), on.cols(0), on.cols(6));
        let (grid, sources, others, rows) =
            (Grid::warps(on.spec(6).len()), on.rows(0), on.rows(1), on.rows(5));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.pair_logits(
                on,
                grid,
                p,
                q,
                b,
                w,
                b_out,
                src,
                x,
                logits,
                sources,
                others,
                rows,
                m,
                d,
                on.status(),
            )
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; 7];
        let Some(dlogits) = douts[0] else { return Ok(dins) };
        let [p, q, b, w, _, src, x] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        let (of_source, rows) = t.group_all_slots(src, t.spec(p).rows)?;
        let (of_candidate, slots) = t.group_all_slots(x, t.spec(q).rows)?;
        let ins = [p, q, b, w, src, x, dlogits, of_source, rows, of_candidate, slots];
        let d = t.push(PairLogitsGrad, &ins)?;
        dins.iter_mut().zip(d).for_each(|(din, d)| *din = Some(d));
        Ok(dins)
    }
}

impl PairLogitsGrad {
    /// Blocks of the gradients of the sources' rows and of all weights, a layer of them for every [`COLUMNS`] columns.
    fn grid(vertices: &Spec) -> Grid {
        let blocks = vertices.rows.capacity.clamp(1, BLOCKS) as u32;
        let columns = vertices.cols.div_ceil(COLUMNS).max(1) as u32;
        Grid { blocks: (blocks, columns, 1), ..Grid::new(1, Grid::THREADS) }
    }
}

impl Op for PairLogitsGrad {
    const NAME: &'static str = "pair_logits_grad";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 11)?;
        let one = Spec::real(Rows::fixed(1), 1);
        let [p, q, b, w, src, x, dlogits] = [0, 1, 2, 3, 4, 5, 6].map(|i| ins[i]);
        let logits = Op::infer(&PairLogits, &[p, q, b, w, one, src, x])?[0].spec;
        ensure!(Self::NAME, dlogits == logits, "logits are {logits}, dlogits are {dlogits}");
        for (lists, of) in [(&ins[7..9], p), (&ins[9..11], q)] {
            let want = Spec::ids(Rows::fixed(of.rows.capacity + 1), 1);
            ensure!(Self::NAME, lists[0] == want, "starts are {}, want {want}", lists[0]);
            let want = Spec::ids(lists[1].rows, 1);
            ensure!(Self::NAME, lists[1] == want, "slots are {}, want {want}", lists[1]);
        }
        Ok([ins[0], ins[1], ins[2], ins[3], one].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (d, blocks) = (ins[0].cols, Self::grid(&ins[0]).blocks.0 as usize);
        (PARTS * 2 * d).max(blocks * (2 * d + 1))
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grid(&ins[0]).blocks.1 as usize
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (d, pairs, tables) = (ins[0].cols, ins[6].len(), outs[0].len() + outs[1].len());
        let lists: usize = [4, 5, 6, 8, 10].map(|i| ins[i].len()).iter().sum();
        Cost { bytes: 4 * (2 * tables + lists), flops: 6 * pairs * d }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<R>(i));
        let (src, x, dlogits) = (io.input::<u32>(4), io.input::<u32>(5), io.input::<R>(6));
        let (d, m) = (io.cols(0), io.cols(5));
        let [dp, dq, db, dw, db_out] = [0, 1, 2, 3, 4].map(|k| io.out::<R>(k));
        [&mut *dp, dq, db, dw, db_out].into_iter().for_each(|g| g.fill(R::ZERO));
        for (at, &dl) in dlogits.iter().enumerate() {
            let (u, x) = (src[at / m] as usize, x[at] as usize);
            if u >= io.rows(0) || x >= io.rows(1) {
                continue;
            }
            db_out[0] += dl;
            for l in 0..d {
                let z = p[u * d + l] + b[l] + q[x * d + l];
                if z > R::ZERO {
                    let dz = dl * w[l];
                    dp[u * d + l] += dz;
                    dq[x * d + l] += dz;
                    db[l] += dz;
                    dw[l] += dl * z;
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, m) = (io.cols(0), io.cols(5));
        let (src, x, dlogits) = (io.input::<u32>(4), io.input::<u32>(5), io.input::<f32>(6));
        let is_pair = |at: usize| (src[at / m] as usize) < io.rows(0) && (x[at] as usize) < io.rows(1);
        io.out::<f32>(4)[0] =
            dlogits.iter().enumerate().filter(|&(at, _)| is_pair(at)).map(|(_, dl)| dl).sum();
        if d > 0 {
            self.by_source(io);
            if io.wanted(1) {
                self.by_candidate(io);
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| on.input(i));
        let (src, x, dlogits) = (on.input(4), on.input(5), on.input(6));
        let (sources, others, m, d) = (on.rows(0), on.rows(1), on.cols(5), on.cols(0));
        if [0, 2, 3, 4].into_iter().any(|out| on.wanted(out)) {
            let (starts, rows, grid) = (on.input(7), on.input(8), Self::grid(&on.spec(0)));
            let [dp, db, dw, db_out] = [0, 2, 3, 4].map(|out| on.out(out));
            let (made, tickets) = (on.scratch(), on.tickets());
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.pair_logits_source_grad(
                    on,
                    grid,
                    p,
                    q,
                    b,
                    w,
                    x,
                    dlogits,
                    starts,
                    rows,
                    made,
                    tickets,
                    dp,
                    db,
                    dw,
                    db_out,
                    sources,
                    others,
                    on.rows(4),
                    on.rows(8),
                    m,
                    d,
                    on.status(),
                )
            }?;
        }
        if on.wanted(1) && d > 0 {
            let (starts, slots) = (on.input(9), on.input(10));
            let grid = Self::grid(&on.spec(1));
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.pair_logits_candidate_grad(
                    on,
                    grid,
                    p,
                    q,
                    b,
                    w,
                    src,
                    dlogits,
                    starts,
                    slots,
                    on.out(1),
                    sources,
                    others,
                    on.rows(4),
                    on.rows(10),
                    m,
                    d,
                    on.status(),
                )
            }?;
        }
        Ok(())
    }
}

impl PairLogitsGrad {
    /// dP, and with it db and dw: the pairs of each source.
    fn by_source(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<f32>(i));
        let (src, x, dlogits) = (io.input::<u32>(4), io.input::<u32>(5), io.input::<f32>(6));
        let (starts, rows, d, m) = (io.input::<u32>(7), io.input::<u32>(8), io.cols(0), io.cols(5));
        let (mut dp, partials) = (io.out::<f32>(0), io.scratch::<f32>());
        let partials = &mut partials[..PARTS * 2 * d];
        partials.fill(0.0);
        let ranges = even_parts(starts, io.rows(0));
        let shares: Vec<&mut [f32]> = ranges.iter().map(|r| split_off(&mut dp, r.len() * d)).collect();
        let work = shares.into_iter().zip(&ranges).zip(partials.chunks_exact_mut(2 * d));
        work.in_parallel(1, |((dp, vertices), sums)| {
            let (db, dw) = sums.split_at_mut(d);
            parts::with_thread_buffer(2 * d, |buffer| {
                let (base, open) = buffer.split_at_mut(d);
                for (u, dp) in vertices.clone().zip(dp.chunks_exact_mut(d)) {
                    sum_into(base, &p[u * d..][..d], b);
                    open.fill(0.0);
                    for &i in &rows[span_of(io, starts, u, rows)] {
                        let Some(i) = io.row_of(u, i, src.len()) else { continue };
                        for at in i * m..(i + 1) * m {
                            ask(q, x.get(at + AHEAD), d);
                            if let Some(q) = row_at(q, x[at], d) {
                                add_pair(open, dw, base, q, dlogits[at]);
                            }
                        }
                    }
                    product_into(dp, open, w);
                    parts::add_column_sums(db, dp);
                }
            });
        });
        let (db, dw) = (io.out::<f32>(2), io.out::<f32>(3));
        [&mut *db, dw].into_iter().for_each(|g| g.fill(0.0));
        for sums in partials.chunks_exact(2 * d) {
            parts::add_column_sums(db, &sums[..d]);
            parts::add_column_sums(dw, &sums[d..]);
        }
    }
    /// dQ: the slots of each candidate.
    fn by_candidate(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<f32>(i));
        let (src, dlogits, d, m) = (io.input::<u32>(4), io.input::<f32>(6), io.cols(0), io.cols(5));
        let (starts, slots, mut dq) = (io.input::<u32>(9), io.input::<u32>(10), io.out::<f32>(1));
        let ranges = even_parts(starts, io.rows(1));
        let shares: Vec<&mut [f32]> = ranges.iter().map(|r| split_off(&mut dq, r.len() * d)).collect();
        shares.into_iter().zip(&ranges).in_parallel(1, |(dq, vertices)| {
            parts::with_thread_buffer(d, |open| {
                for (v, dq) in vertices.clone().zip(dq.chunks_exact_mut(d)) {
                    open.fill(0.0);
                    for at in span_of(io, starts, v, slots) {
                        let source = |slot: &u32| src.get(*slot as usize / m);
                        ask(p, slots.get(at + AHEAD).and_then(source), d);
                        let Some(slot) = io.row_of(v, slots[at], dlogits.len()) else { continue };
                        if let Some(p) = row_at(p, src[slot / m], d) {
                            add_open(open, p, b, &q[v * d..][..d], dlogits[slot]);
                        }
                    }
                    product_into(dq, open, w);
                }
            });
        });
    }
}

/// `[rows, negatives, v, v', d]`; `n` of `n + 2` rows live. Every fifth source and every seventh candidate is [`NONE`]; a third
/// of the sources are vertex 0, and they are in no order.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 2, 2, 1],
    &[0, 1, 3, 3, 4],
    &[0, 1, 0, 0, 4],
    &[6, 0, 3, 4, 5],
    &[9, 3, 4, 4, 0],
    &[40, 1, 9, 9, 64],
    &[40, 5, 9, 30, 68],
    &[300, 2, 700, 50, 7],
    &[30, 1, 5, 5, 131],
];
pub(super) const BENCH: &[&[usize]] =
    &[&[100_000, 1, 10_000, 10_000, 64], &[20_000, 100, 10_000, 10_000, 64]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, v, others, d] = *dims else { return Err(Error::shape("pair_logits", "five sizes")) };
    let (count, bench) = (c.count(n), BENCH.contains(&dims));
    let rows = Rows::live(n + 2, count);
    let mut ends = |size: usize, below: usize, every: usize, first: bool| -> Vec<u32> {
        let mut ids: Vec<u32> = (0..size)
            .map(|i| match i {
                _ if bench => c.below(below) as u32,
                _ if below == 0 || i % every == every - 1 => NONE,
                _ if first && i % 3 == 0 => 0,
                _ => c.below(below) as u32,
            })
            .collect();
        if bench && first {
            ids.sort_unstable();
        }
        ids
    };
    let (src, x) = (ends(n + 2, v, 5, true), ends((n + 2) * (1 + m), others, 7, false));
    let (src, x) = (c.values(Spec::ids(rows, 1), &src), c.values(Spec::ids(rows, 1 + m), &x));
    let wrt = [c.real(v, d), c.real(others, d), c.real(1, d), c.real(1, d), c.real(1, 1)];
    let [p, q, b, w, b_out] = wrt;
    let logits = c.tape.pair_logits([p, q], [b, w, b_out], src, x)?;
    Ok(Built::new(&[logits], &wrt))
}
