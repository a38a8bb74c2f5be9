//! `logit[i, j] = w . relu(P[src[i]] + b + Q[x[i, j]]) + b_out`: a decoder of pairs whose products are
//! computed once a vertex
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `P`, `Q` | `[v, d]`, `[v', d]` f32 | terms of a vertex as source and as destination, such as `z W_src^T` and `z W_dst^T` |
//! | `b`, `w`, `b_out` | `[1, d]`, `[1, d]`, `[1, 1]` f32 | |
//! | `src` | `[<= n]` u32 below v, or [`NONE`] | source of each row, in any order; adjacent rows of one source hit the cache |
//! | `x` | `[<= n, 1 + m]` u32 below v', or `NONE` | candidates; column 0: the pair itself |
//! | logits | `[<= n, 1 + m]` f32 | 0 if the source or the candidate is `NONE` |
//!
//! Backward, with `g[i, j, :] = dlogit[i, j] w [the sum before relu > 0]`: `dP[u]` is the sum of `g` over the
//! rows with source u, `dQ[x]` the sum over the slots with candidate x ([`group_slots`]), `db = sum_u dP[u]`,
//! `dw = sum_ij dlogit[i, j] relu(..)` and `db_out = sum_ij dlogit[i, j]`. The mask of relu is recomputed, so
//! nothing of size `n m d` is stored. A pair with a `NONE` has no gradient; an index outside of its table is
//! a fault. Deterministic: the order in which the pairs of a vertex are summed depends on their indices only.
//!
//! Source: TGN's merge layer (Rossi et al. 2020), as in [`link_decoder`].
use super::{epilogue::above_zero, *};
use crate::runtime::{
    parts::{self, PARTS},
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ops::Range;

/// See the [module](self).
#[derive(Debug)]
pub struct PairLogits;
/// Gradients of `P`, `Q`, `b`, `w` and `b_out`.
#[derive(Debug)]
pub struct PairLogitsGrad;

/// Maximum number of blocks, along x, over which a device distributes the vertices.
const BLOCKS: usize = 512;
/// Columns of a block, as in the kernels.
const COLUMNS: usize = 64;

/// Prefetch distance of rows on the host, in pairs.
const AHEAD: usize = 8;

impl Tape {
    /// Appends [`PairLogits`] and returns the logits of the pairs of `src`, u32 `[n]`, and `candidates`, u32
    /// `[n, 1 + m]`, in the shape of the latter, for tables `[P, Q]` and `weights` `[b, w, b_out]`.
    ///
    /// # Errors
    /// `Shape` if types, row counts or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let p = tape.input(&mut store, "p", Spec::real(Rows::fixed(2), 1), &[1.0f32, 2.0])?;
    /// let q = tape.input(&mut store, "q", Spec::real(Rows::fixed(2), 1), &[10.0f32, -20.0])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 1), &[0.0f32])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[3.0f32])?;
    /// let b_out = tape.input(&mut store, "b out", Spec::real(Rows::fixed(1), 1), &[0.5f32])?;
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let x = tape.input(&mut store, "x", Spec::ids(Rows::fixed(1), 2), &[0u32, 1])?;
    /// let logits = tape.pair_logits([p, q], [b, w, b_out], src, x)?;
    /// let mut program = Program::new(&tape, &[logits], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(logits, &store)?, [36.5, 0.5]); // 3 relu(2 + 10), 3 relu(2 - 20)
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
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
    /// Computes the logits of one row. `base` is `P[u] + b`, `hidden` a buffer of the same length, and
    /// `candidates` holds the rows of `Q`.
    fn logits_of(
        logits: &mut [f32], base: &[f32], hidden: &mut [f32], candidates: &[Option<&[f32]>], w: &[f32],
        b_out: f32,
    ) {
        for (logit, q) in logits.iter_mut().zip(candidates) {
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
    /// Adds a pair to the sums of its source: in columns where relu is active, adds `dl` to `active` and `dl`
    /// times the hidden value to `dw`.
    fn add_source_pair(active: &mut [f32], dw: &mut [f32], base: &[f32], q: &[f32], dl: f32) {
        for (((active, dw), &base), &q) in active.iter_mut().zip(dw).zip(base).zip(q) {
            let (z, on) = (base + q, base + q > 0.0);
            *active += if on { dl } else { 0.0 };
            *dw = if on { z } else { 0.0 }.mul_add(dl, *dw);
        }
    }
    /// Adds a pair to the sum of its candidate: `dl` in columns where relu is active.
    fn add_candidate_pair(active: &mut [f32], p: &[f32], b: &[f32], q: &[f32], dl: f32) {
        for (((active, &p), &b), &q) in active.iter_mut().zip(p).zip(b).zip(q) {
            *active += if p + b + q > 0.0 { dl } else { 0.0 };
        }
    }
    fn product_into(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
}

/// Returns row `index` of a table of width `d`; `None` if there is no such row.
fn row_at<R>(table: &[R], index: u32, d: usize) -> Option<&[R]> {
    let first = index as usize * d;
    (index != NONE).then(|| table.get(first..first + d)).flatten()
}

/// Prefetches row `index` of a table of width `d`, if there is such a row.
fn prefetch_row(table: &[f32], index: Option<&u32>, d: usize) {
    if let Some(row) = index.and_then(|&index| row_at(table, index, d)) {
        simd::prefetch(row);
    }
}

/// Splits the vertices into [`PARTS`] ranges with about the same number of pairs, whatever the number of
/// threads. `starts` holds the index of the first pair of each vertex.
fn even_ranges(starts: &[u32], vertices: usize) -> Vec<Range<usize>> {
    let pairs = u64::from(starts[vertices]);
    let bound = |i: usize| match i {
        PARTS => vertices,
        _ => starts[..vertices].partition_point(|&s| u64::from(s) * (PARTS as u64) < pairs * i as u64),
    };
    let mut end = 0;
    let next_range = |i| {
        let first = end;
        end = bound(i + 1).max(first);
        first..end
    };
    (0..PARTS).map(next_range).collect()
}

/// Returns the range of `list` with the pairs of vertex `v`. If `starts` exceeds the list, the range is empty
/// and a fault is recorded.
fn span_of(io: &Io<'_>, starts: &[u32], v: usize, list: &[u32]) -> Range<usize> {
    let [first, last] = [starts[v], starts[v + 1]];
    if first > last || last as usize > list.len() {
        io.fault(v, Fault::OutOfRange(last));
        return 0..0;
    }
    first as usize..last as usize
}

/// Input indices.
/// Checks that there are candidates, and not too many.
fn check_candidates(op: &'static str, x: &Spec) -> Result<()> {
    some_columns(op, "x", x)?;
    // Lists of the pairs of a candidate name a pair by 32 bits.
    ensure!(op, x.len() < NONE as usize, "x is {x}, want fewer than {NONE} candidates in all");
    Ok(())
}

impl Op for PairLogits {
    const NAME: &'static str = "pair_logits";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "p [u, c], q [v, c], b [1, c], w [1, c], b_out [1], src [n] ids, \
        x [n, k] ids -> logits [n, k]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_candidates(Self::NAME, &ins[6])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (p, q, src, pairs) = (ins[at!(p)], ins[at!(q)], ins[at!(src)].len(), outs[0].len());
        let read = (p.len() + q.len()).min((src + pairs) * p.cols);
        Cost { bytes: 4 * (read + src + 2 * pairs), flops: 4 * pairs * p.cols }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [p, q, b, w, b_out] = [0, 1, 2, 3, 4].map(|i| io.input::<R>(i));
        let (src, x) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(x)));
        let (d, m) = (io.cols(at!(p)), io.cols(at!(x)));
        for (at, logit) in io.out::<R>(0).iter_mut().enumerate() {
            let (i, u, x) = (at / m, src[at / m], x[at]);
            *logit = match (io.row_of(i, u, io.rows(at!(p))), io.row_of(i, x, io.rows(at!(q)))) {
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
        let (src, x) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(x)));
        let (d, m) = (io.cols(at!(p)), io.cols(at!(x)));
        let checked_row =
            |i, table, index, rows| io.row_of(i, index, rows).and_then(|_| row_at(table, index, d));
        let size = team::piece(src.len(), 64);
        io.out::<f32>(0).chunks_mut(size * m).enumerate().in_parallel(1, |(chunk, out)| {
            parts::with_thread_buffer(2 * d, |buffer| {
                let (base, hidden) = buffer.split_at_mut(d);
                let mut candidates = Vec::with_capacity(m);
                for (i, logits) in (chunk * size..).zip(out.chunks_exact_mut(m)) {
                    candidates.clear();
                    candidates.extend((i * m..(i + 1) * m).map(|at| {
                        prefetch_row(q, x.get(at + AHEAD), d);
                        checked_row(i, q, x[at], io.rows(at!(q)))
                    }));
                    match checked_row(i, p, src[i], io.rows(at!(p))) {
                        Some(p) => {
                            sum_into(base, p, b);
                            logits_of(logits, base, hidden, &candidates, w, b_out[0]);
                        }
                        None => logits.fill(0.0),
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [p, q, b, w, b_out] = [0, 1, 2, 3, 4].map(|i| on.input(i));
        let (src, x, logits) = (on.input(at!(src)), on.input(at!(x)), on.out(0));
        let (sources, others, rows) = (on.rows(at!(p)), on.rows(at!(q)), on.rows(at!(src)));
        let (grid, d, m) = (Grid::items(on.spec(at!(x)).len()), on.cols(at!(p)), on.cols(at!(x)));
        launch!(
            k, on, pair_logits[grid];
            p, q, b, w, b_out, src, x, logits, sources, others, rows, m, d, on.status()
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; 7];
        let Some(dlogits) = douts[0] else { return Ok(dins) };
        let [p, q, b, w, _, src, x] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        let (source_starts, rows) = t.group_all_slots(src, t.spec(p).rows)?;
        let (candidate_starts, slots) = t.group_all_slots(x, t.spec(q).rows)?;
        let ins = [p, q, b, w, src, x, dlogits, source_starts, rows, candidate_starts, slots];
        let grads = t.push(PairLogitsGrad, &ins)?;
        // The gradients are those of the first five inputs, in order.
        dins.iter_mut().zip(grads).for_each(|(din, grad)| *din = Some(grad));
        Ok(dins)
    }
}

impl PairLogitsGrad {
    // Input indices.

    // Output indices.
    const DP: usize = 0;
    const DQ: usize = 1;
    const DB: usize = 2;
    const DW: usize = 3;
    const DB_OUT: usize = 4;

    /// Returns the grid of a gradient kernel: blocks for the vertices along x, and for every [`COLUMNS`]
    /// columns along y.
    fn grid(vertices: &Spec) -> Grid {
        let blocks = vertices.rows.capacity.clamp(1, BLOCKS) as u32;
        let columns = vertices.cols.div_ceil(COLUMNS).max(1) as u32;
        Grid { blocks: (blocks, columns, 1), ..Grid::new(1, Grid::THREADS) }
    }
}

impl Op for PairLogitsGrad {
    const NAME: &'static str = "pair_logits_grad";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "p [u, c], q [v, c], b [1, c], w [1, c], src [n] ids, x [n, k] ids, \
        dlogits [n, k], source_starts [u + 1] ids, source_rows [s] ids, candidate_starts [v + 1] ids, \
        candidate_slots [t] ids -> dp [u, c], dq [v, c], db [1, c], dw [1, c], db_out [1]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check_candidates(Self::NAME, &ins[5])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (d, blocks) = (ins[at!(p)].cols, Self::grid(&ins[at!(p)]).blocks.0 as usize);
        (PARTS * 2 * d).max(blocks * (2 * d + 1))
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grid(&ins[at!(p)]).blocks.1 as usize
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (d, pairs) = (ins[at!(p)].cols, ins[at!(dlogits)].len());
        let tables = outs[Self::DP].len() + outs[Self::DQ].len();
        let lists = [at!(src), at!(x), at!(dlogits), at!(source_rows), at!(candidate_slots)];
        let lists: usize = lists.map(|i| ins[i].len()).iter().sum();
        Cost { bytes: 4 * (2 * tables + lists), flops: 6 * pairs * d }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<R>(i));
        let (src, x) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(x)));
        let dlogits = io.input::<R>(at!(dlogits));
        let (d, m) = (io.cols(at!(p)), io.cols(at!(x)));
        let [dp, dq, db, dw, db_out] = [0, 1, 2, 3, 4].map(|out| io.out::<R>(out));
        [&mut *dp, dq, db, dw, db_out].into_iter().for_each(|grad| grad.fill(R::ZERO));
        for (at, &dl) in dlogits.iter().enumerate() {
            let (u, x) = (src[at / m] as usize, x[at] as usize);
            if u >= io.rows(at!(p)) || x >= io.rows(at!(q)) {
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
        let (d, m) = (io.cols(at!(p)), io.cols(at!(x)));
        let (src, x) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(x)));
        let (sources, others) = (io.rows(at!(p)), io.rows(at!(q)));
        let is_pair = |at: usize| (src[at / m] as usize) < sources && (x[at] as usize) < others;
        let dlogits = io.input::<f32>(at!(dlogits)).iter().enumerate();
        io.out::<f32>(Self::DB_OUT)[0] = dlogits.filter(|&(at, _)| is_pair(at)).map(|(_, dl)| dl).sum();
        if d > 0 {
            self.source_grads(io);
            if io.wanted(Self::DQ) {
                self.candidate_grad(io);
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        if [Self::DP, Self::DB, Self::DW, Self::DB_OUT].into_iter().any(|out| on.wanted(out)) {
            // SAFETY: the caller's promise.
            unsafe { Self::launch_source_grads(k, on) }?;
        }
        if on.wanted(Self::DQ) && on.cols(at!(p)) > 0 {
            // SAFETY: the caller's promise.
            unsafe { Self::launch_candidate_grad(k, on) }?;
        }
        Ok(())
    }
}

/// The two passes of the gradient: over the pairs of each source, and over the pairs of each candidate.
impl PairLogitsGrad {
    /// Launches the kernel of `dP`, `db`, `dw` and `db_out`.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn launch_source_grads(k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| on.input(i));
        let (x, dlogits) = (on.input(at!(x)), on.input(at!(dlogits)));
        let (starts, list) = (on.input(at!(source_starts)), on.input(at!(source_rows)));
        let [dp, db, dw, db_out] = [Self::DP, Self::DB, Self::DW, Self::DB_OUT].map(|out| on.out(out));
        let (grid, sums, tickets) = (Self::grid(&on.spec(at!(p))), on.scratch(), on.tickets());
        launch!(
            k, on, pair_logits_source_grad[grid];
            p, q, b, w, x, dlogits, starts, list, sums, tickets, dp, db, dw, db_out, on.rows(at!(p)),
            on.rows(at!(q)), on.rows(at!(src)), on.rows(at!(source_rows)), on.cols(at!(x)),
            on.cols(at!(p)), on.status()
        )
    }
    /// Launches the kernel of `dQ`.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn launch_candidate_grad(k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| on.input(i));
        let (src, dlogits, dq) = (on.input(at!(src)), on.input(at!(dlogits)), on.out(Self::DQ));
        let (starts, slots) = (on.input(at!(candidate_starts)), on.input(at!(candidate_slots)));
        let grid = Self::grid(&on.spec(at!(q)));
        launch!(
            k, on, pair_logits_candidate_grad[grid];
            p, q, b, w, src, dlogits, starts, slots, dq, on.rows(at!(p)), on.rows(at!(q)),
            on.rows(at!(src)), on.rows(at!(candidate_slots)), on.cols(at!(x)), on.cols(at!(p)),
            on.status()
        )
    }
    /// Computes `dP`, `db` and `dw` on the host, from the pairs of each source.
    fn source_grads(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<f32>(i));
        let (src, x) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(x)));
        let (starts, rows) = (io.input::<u32>(at!(source_starts)), io.input::<u32>(at!(source_rows)));
        let (dlogits, d, m) = (io.input::<f32>(at!(dlogits)), io.cols(at!(p)), io.cols(at!(x)));
        let (mut dp, partials) = (io.out::<f32>(Self::DP), io.scratch::<f32>());
        let partials = &mut partials[..PARTS * 2 * d];
        partials.fill(0.0);
        let ranges = even_ranges(starts, io.rows(at!(p)));
        let dps: Vec<&mut [f32]> = ranges.iter().map(|r| split_off(&mut dp, r.len() * d)).collect();
        let tasks = dps.into_iter().zip(&ranges).zip(partials.chunks_exact_mut(2 * d));
        tasks.in_parallel(1, |((dp, vertices), sums)| {
            let (db, dw) = sums.split_at_mut(d);
            parts::with_thread_buffer(2 * d, |buffer| {
                let (base, active) = buffer.split_at_mut(d);
                for (u, dp) in vertices.clone().zip(dp.chunks_exact_mut(d)) {
                    sum_into(base, &p[u * d..][..d], b);
                    active.fill(0.0);
                    for &i in &rows[span_of(io, starts, u, rows)] {
                        let Some(i) = io.row_of(u, i, src.len()) else { continue };
                        for at in i * m..(i + 1) * m {
                            prefetch_row(q, x.get(at + AHEAD), d);
                            if let Some(q) = row_at(q, x[at], d) {
                                add_source_pair(active, dw, base, q, dlogits[at]);
                            }
                        }
                    }
                    product_into(dp, active, w);
                    parts::add_column_sums(db, dp);
                }
            });
        });
        let (db, dw) = (io.out::<f32>(Self::DB), io.out::<f32>(Self::DW));
        [&mut *db, dw].into_iter().for_each(|grad| grad.fill(0.0));
        for sums in partials.chunks_exact(2 * d) {
            parts::add_column_sums(db, &sums[..d]);
            parts::add_column_sums(dw, &sums[d..]);
        }
    }
    /// Computes `dQ` on the host, from the slots of each candidate.
    fn candidate_grad(&self, io: &Io<'_>) {
        let [p, q, b, w] = [0, 1, 2, 3].map(|i| io.input::<f32>(i));
        let (src, dlogits) = (io.input::<u32>(at!(src)), io.input::<f32>(at!(dlogits)));
        let starts = io.input::<u32>(at!(candidate_starts));
        let slots = io.input::<u32>(at!(candidate_slots));
        let (d, m, mut dq) = (io.cols(at!(p)), io.cols(at!(x)), io.out::<f32>(Self::DQ));
        let ranges = even_ranges(starts, io.rows(at!(q)));
        let dqs: Vec<&mut [f32]> = ranges.iter().map(|r| split_off(&mut dq, r.len() * d)).collect();
        dqs.into_iter().zip(&ranges).in_parallel(1, |(dq, vertices)| {
            parts::with_thread_buffer(d, |active| {
                for (v, dq) in vertices.clone().zip(dq.chunks_exact_mut(d)) {
                    active.fill(0.0);
                    for at in span_of(io, starts, v, slots) {
                        let source = |slot: &u32| src.get(*slot as usize / m);
                        prefetch_row(p, slots.get(at + AHEAD).and_then(source), d);
                        let Some(slot) = io.row_of(v, slots[at], dlogits.len()) else { continue };
                        if let Some(p) = row_at(p, src[slot / m], d) {
                            add_candidate_pair(active, p, b, &q[v * d..][..d], dlogits[slot]);
                        }
                    }
                    product_into(dq, active, w);
                }
            });
        });
    }
}

/// `[n, negatives, v, v', d]`; `n` of `n + 2` rows are live. Every fifth source and every seventh candidate
/// is [`NONE`]; about a third of the sources are vertex 0, and the sources are unordered. In benchmarks
/// nothing is `NONE` and the sources are sorted.
pub(in crate::ops) const CASES: &[&[usize]] = &[
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
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[100_000, 1, 10_000, 10_000, 64], &[20_000, 100, 10_000, 10_000, 64]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, v, others, d] = *dims else { return Err(Error::shape("pair_logits", "five sizes")) };
    let (count, bench) = (c.count(n), BENCH.contains(&dims));
    let rows = Rows::live(n + 2, count);
    let mut draw_ends = |size: usize, below: usize, none_every: usize, sources: bool| -> Vec<u32> {
        let mut ids: Vec<u32> = (0..size)
            .map(|i| match i {
                _ if bench => c.below(below) as u32,
                _ if below == 0 || i % none_every == none_every - 1 => NONE,
                _ if sources && i % 3 == 0 => 0,
                _ => c.below(below) as u32,
            })
            .collect();
        if bench && sources {
            ids.sort_unstable();
        }
        ids
    };
    let (src, x) = (draw_ends(n + 2, v, 5, true), draw_ends((n + 2) * (1 + m), others, 7, false));
    let (src, x) = (c.values(Spec::ids(rows, 1), &src), c.values(Spec::ids(rows, 1 + m), &x));
    let wrt = [c.real(v, d), c.real(others, d), c.real(1, d), c.real(1, d), c.real(1, 1)];
    let [p, q, b, w, b_out] = wrt;
    let logits = c.tape.pair_logits([p, q], [b, w, b_out], src, x)?;
    Ok(Built::new(&[logits], &wrt))
}
