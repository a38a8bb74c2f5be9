//! Absorbed temporal attention: `mix_h = sum_j drop(a_hj) z_j`, `a_h = softmax_j(q_h . z_j / sqrt(p))`,
//! `z_j = {h_j | e_j | Phi(dt_j)}`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `query` | `[q, H c]` f32 | queries taken through W_k, a row for each *unique* root |
//! | `starts`, `order` | `[q + 1]`, `[m]` u32 | the m roots that have neighbours, by query ([`group_roots`]) |
//! | `h` | `[m, d]` f32 | embeddings of the layer below, by unique node |
//! | `row`, `event` | `[n, k]` u32 | the neighbours' rows of `h` and of `edge` |
//! | `dt` | `[n, k]` f32 | seconds |
//! | `count` | `[n]` u32 | slots in use |
//! | `edge` | `[e, f]` f32 | edge features |
//! | `w`, `b` | `[1, t]` f32 | time encoding; c = d + f + t |
//! | `now` | `[1, 2]` u32 | clock of the drop-out, where there is one |
//! | mix | `[m, H c]` f32 | mixed raw rows, in the order of `order` |
//! | sum | `[m, H]` f32 | sum of the weights after drop-out |
//! | weight | `[m, H k]` f32 | before drop-out, for the backward |
//!
//! **Absorbed**: keys `W_k z_j + b_k` and values `W_v z_j + b_v` are never formed. `q . (W_k z_j + b_k)` is
//! `(W_k^T q) . z_j` plus a number that is the same for all j, which softmax drops; `sum_j a_j (W_v z_j + b_v)` is
//! `W_v mix + b_v sum_j a_j`. Exact (tested against the plain form), about ten times fewer operations, and one pass
//! over the raw rows. What depends on the root's node alone is done once for each unique root.
//!
//! Backward, with `da_hj = (dmix_h . z_j + dsum_h) drop_hj` and `ds = a (da - sum_j a_j da_j) / sqrt(p)`:
//! `dquery_h = sum_j ds_hj z_j`, `dz_j = sum_h a'_hj dmix_h + ds_hj q_h`; rows of `dz` are added up by unique row of
//! `h` in the order of the roots grouped by query ([`group_slots`]), so it is deterministic. Where `h` is data, there is
//! none of that.
//! A root, a row or an event that there is not is a fault, and so are more slots in use than `k`.
//! Source: TGAT (Xu et al. 2020) and TGN's attention; the absorption is described in `docs/attention.md`.
mod grad;
mod rows;

use super::{epilogue::DropRate, group_roots::Grouped, time_encode::define_phi, *};
use crate::runtime::{cuda::abi, parts, philox::Key, team::InParallel};
use grad::TemporalAttentionGrad;
use rows::{Workspace, forward};
use std::ops::Range;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct TemporalAttention {
    heads: usize,
    /// Width of a head: scores are divided by its root.
    head_width: usize,
    drop: Option<DropRate>,
    /// Whether `h` has a gradient.
    learn_h: bool,
}

/// Operands of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionVars {
    /// `[q, H c]` absorbed queries.
    pub query: Var,
    /// Roots that have neighbours, by query.
    pub roots: Grouped,
    /// `[m, d]` embeddings below.
    pub h: Var,
    /// Whether gradients flow into `h`; they do not into data, such as stored mails or the features of nodes.
    pub learn_h: bool,
    /// `[n, k]` rows of `h`.
    pub row: Var,
    /// `[n, k]` events.
    pub event: Var,
    /// `[n, k]` seconds.
    pub dt: Var,
    /// `[n]` slots in use.
    pub count: Var,
    /// `[e, f]` edge features.
    pub edge: Var,
    /// `[1, t]`.
    pub time_w: Var,
    /// `[1, t]`.
    pub time_b: Var,
}

impl Tape {
    /// Appends [`TemporalAttention`]; returns the mixed rows and the sums of the weights. `drop` comes with its clock.
    ///
    /// # Errors
    /// `Shape` when types, rows or widths do not fit, there is no head, or p of the drop-out is not in [0, 1).
    pub fn temporal_attention(
        &mut self,
        a: AttentionVars,
        heads: usize,
        head_width: usize,
        drop: Option<(DropRate, Var)>,
    ) -> Result<(Var, Var)> {
        let drop = drop.filter(|(rate, _)| rate.p != 0.0);
        let op =
            TemporalAttention { heads, head_width, drop: drop.map(|(rate, _)| rate), learn_h: a.learn_h };
        let mut ins = vec![
            a.query,
            a.roots.starts,
            a.h,
            a.row,
            a.event,
            a.dt,
            a.count,
            a.edge,
            a.time_w,
            a.time_b,
            a.roots.order,
        ];
        ins.extend(drop.map(|(_, now)| now));
        let o = self.push(op, &ins)?;
        Ok((o[0], o[1]))
    }
}

/// What forward and backward read.
struct Operands<'a, R> {
    io: &'a Io<'a>,
    query: &'a [R],
    starts: &'a [u32],
    order: &'a [u32],
    queries: usize,
    /// Whether `starts` divide all of `order`; else there is no root to work on.
    grouped: bool,
    h: &'a [R],
    row: &'a [u32],
    event: &'a [u32],
    dt: &'a [R],
    count: &'a [u32],
    edge: &'a [R],
    w: &'a [R],
    b: &'a [R],
    heads: usize,
    k: usize,
    d: usize,
    f: usize,
    scale: f64,
    drop: Option<(DropRate, Key)>,
}

impl<'a, R: Real> Operands<'a, R> {
    /// A division of the roots among the queries that is none is a fault.
    fn of(op: &TemporalAttention, io: &'a Io<'a>) -> Self {
        let (starts, order, queries) = (io.input::<u32>(1), io.input::<u32>(10), io.rows(0));
        let ends = [starts[0], starts[queries]].map(|end| end as usize);
        let grouped = ends == [0, order.len()] && starts[..=queries].is_sorted();
        if !grouped {
            io.fault(queries, ends[1] as f64);
        }
        Operands {
            io,
            query: io.input(0),
            starts,
            order,
            queries,
            grouped,
            h: io.input(2),
            row: io.input(3),
            event: io.input(4),
            dt: io.input(5),
            count: io.input(6),
            edge: io.input(7),
            w: io.input(8),
            b: io.input(9),
            heads: op.heads,
            k: io.cols(3),
            d: io.cols(2),
            f: io.cols(7),
            scale: 1.0 / (op.head_width as f64).sqrt(),
            drop: op.drop.map(|rate| (rate, rate.key(io.input(11)))),
        }
    }
    fn width(&self) -> usize {
        self.d + self.f + self.w.len()
    }
    /// The root at a place of the order, and its slots in use. One that there is not has none, and is a fault; so are more
    /// slots than there is room for, of which those that there are count.
    fn root(&self, at: usize) -> (usize, usize) {
        let i = self.order[at] as usize;
        match self.count.get(i) {
            None => drop(self.io.row_of(at, self.order[at], self.count.len())),
            Some(&n) if n as usize > self.k => self.io.fault(i, f64::from(n)),
            Some(_) => {}
        }
        (i, self.used(i))
    }
    /// Slots in use of root `i`.
    fn used(&self, i: usize) -> usize {
        self.count.get(i).map_or(0, |&n| (n as usize).min(self.k))
    }
    /// The row of h of `slot`, if there is one.
    fn memory(&self, slot: usize) -> Option<&'a [R]> {
        self.h.get(self.row[slot] as usize * self.d..)?.get(..self.d)
    }
    /// The edge features of `slot`, if there are some.
    fn features(&self, slot: usize) -> Option<&'a [R]> {
        self.edge.get(self.event[slot] as usize * self.f..)?.get(..self.f)
    }
    /// What is missing of `slot` of root `i` is a fault.
    fn check(&self, i: usize, slot: usize) {
        if self.memory(slot).is_none() {
            self.io.row_of(i, self.row[slot], self.io.rows(2));
        }
        if self.features(slot).is_none() {
            self.io.row_of(i, self.event[slot], self.io.rows(7));
        }
    }
    /// Element `i` of the raw row of `slot`, as the definition has it; 0 where a row is missing.
    fn z(&self, slot: usize, i: usize) -> R {
        if i < self.d {
            self.memory(slot).map_or(R::ZERO, |h| h[i])
        } else if i < self.d + self.f {
            self.features(slot).map_or(R::ZERO, |e| e[i - self.d])
        } else {
            define_phi(self.dt[slot], self.w, self.b, i - self.d - self.f)
        }
    }
    /// Drop-out factor of the weight of head `h` and neighbour `j` of root `i`.
    fn kept(&self, i: usize, h: usize, j: usize) -> R {
        R::of(self.drop.map_or(1.0, |(rate, key)| rate.factor(key, (i * self.heads + h) * self.k + j)))
    }
    /// Whether the roots at two places of the order have the same neighbours; their gaps may differ.
    fn same_neighbors(&self, a: usize, b: usize) -> bool {
        let (i, j) = (self.order[a] as usize, self.order[b] as usize);
        let n = self.used(i);
        let slots = |i: usize| i * self.k..i * self.k + n;
        n == self.used(j)
            && self.event.get(slots(i)) == self.event.get(slots(j))
            && self.row.get(slots(i)) == self.row.get(slots(j))
    }
    fn query_of(&self, q: usize, h: usize) -> &'a [R] {
        let c = self.width();
        &self.query[(q * self.heads + h) * c..][..c]
    }
    /// Query, place, root and slots in use of every root that has neighbours, all of them checked.
    fn roots(&self) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        (0..if self.grouped { self.queries } else { 0 }).flat_map(move |q| {
            (self.starts[q] as usize..self.starts[q + 1] as usize).map(move |at| {
                let (i, n) = self.root(at);
                (0..n).for_each(|j| self.check(i, i * self.k + j));
                (q, at, i, n)
            })
        })
    }
    /// Queries in [`parts::PARTS`] ranges with about as many roots each, and the places of their roots.
    fn parts(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let starts = &self.starts[..=self.queries];
        let cut = move |part: usize| match part {
            0 => 0,
            parts::PARTS => self.queries,
            _ => starts
                .partition_point(|&s| (s as usize) < part * self.order.len() / parts::PARTS)
                .min(self.queries),
        };
        (0..parts::PARTS).map(move |part| {
            let (from, until) = (cut(part), cut(part + 1));
            (from..until, starts[from] as usize..starts[until] as usize)
        })
    }
}

/// On a device: threads of a block, and most blocks of the forward.
const THREADS: u32 = 128;
const MOST_BLOCKS: usize = 1 << 16;

impl TemporalAttention {
    /// Number of its operands.
    fn operands(&self) -> usize {
        11 + usize::from(self.drop.is_some())
    }
    /// The operands as kernels take them.
    fn on_device(&self, on: &Launch<'_>) -> abi::Attention {
        let none = DropRate { p: 0.0, seed: 0, salt: 0 }.on_device(std::ptr::null());
        abi::Attention {
            query: on.input(0),
            h: on.input(2),
            dt: on.input(5),
            edge: on.input(7),
            w: on.input(8),
            b: on.input(9),
            starts: on.input(1),
            order: on.input(10),
            row: on.input(3),
            event: on.input(4),
            count: on.input(6),
            roots: on.rows(10),
            queries: on.rows(0),
            heads: self.heads as u32,
            k: on.cols(3),
            d: on.cols(2),
            f: on.cols(7),
            t: on.cols(8),
            scale: (1.0 / (self.head_width as f64).sqrt()) as f32,
            drop: self.drop.map_or(none, |rate| rate.on_device(on.input(11))),
        }
    }
}

impl Op for TemporalAttention {
    const NAME: &'static str = "temporal_attention";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, self.operands())?;
        let (heads, width) = (self.heads, self.head_width);
        ensure!(
            Self::NAME,
            heads > 0 && width > 0,
            "{heads} heads of {width}, want one or more, of a column or more"
        );
        if let Some(rate) = self.drop {
            ensure!(Self::NAME, (0.0..1.0).contains(&rate.p), "p is {}, want 0 <= p < 1", rate.p);
        }
        let [query, h, edge, w, order] = [0, 2, 7, 8, 10].map(|i| ins[i]);
        let (n, k) = (ins[6].rows, ins[3].cols);
        let c = h.cols.saturating_add(edge.cols).saturating_add(w.cols);
        let [all, weights] = [c, k].map(|each| heads.saturating_mul(each));
        // Kernels count slots, and heads of roots, in 32 bits.
        let most = n.capacity.max(order.rows.capacity).saturating_mul(k.max(heads)).max(all);
        ensure!(Self::NAME, most < NONE as usize, "{heads} heads, {order} and {}, want fewer", ins[3]);
        ensure!(
            Self::NAME,
            query.rows.capacity > 0 || order.is_empty(),
            "query is {query}, order is {order}"
        );
        for (i, what, want) in [
            (0, "query", Spec::real(query.rows, all)),
            (1, "starts", Spec::ids(Rows::fixed(query.rows.capacity + 1), 1)),
            (2, "h", Spec::real(h.rows, h.cols)),
            (3, "row", Spec::ids(n, k)),
            (4, "event", Spec::ids(n, k)),
            (5, "dt", Spec::real(n, k)),
            (6, "count", Spec::ids(n, 1)),
            (7, "edge", Spec::real(edge.rows, edge.cols)),
            (8, "w", Spec::real(Rows::fixed(1), w.cols)),
            (9, "b", Spec::real(Rows::fixed(1), w.cols)),
            (10, "order", Spec::ids(order.rows, 1)),
            (11, "now", Spec::ids(Rows::fixed(1), 2)),
        ] {
            if let Some(found) = ins.get(i) {
                ensure!(Self::NAME, *found == want, "{what} is {found}, want {want}");
            }
        }
        Ok([all, heads, weights].map(|cols| Spec::real(order.rows, cols).into()).to_vec())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (slots, c) = (ins[3].len(), ins[0].cols / self.heads);
        let bytes = 4 * (slots * (ins[2].cols + ins[7].cols + 3) + ins[0].len() + outs[0].len());
        Cost { bytes, flops: slots * (4 * self.heads * c + 20 * ins[8].cols) }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let o = Operands::<R>::of(self, io);
        let (out, sums, weights) = (io.out::<R>(0), io.out::<R>(1), io.out::<R>(2));
        let (c, k) = (o.width(), o.k);
        [&mut *out, sums, weights].into_iter().for_each(|x| x.fill(R::ZERO));
        for (query, at, i, n) in o.roots() {
            for h in 0..self.heads {
                let (row, q) = (at * self.heads + h, o.query_of(query, h));
                let score = |j: usize| (0..c).map(|l| q[l] * o.z(i * k + j, l)).sum::<R>() * R::of(o.scale);
                let top = (0..n).map(score).fold(R::of(f64::NEG_INFINITY), R::max);
                let total: R = (0..n).map(|j| (score(j) - top).exp()).sum();
                for j in 0..n {
                    let a = (score(j) - top).exp() / total;
                    weights[row * k + j] = a;
                    let a = a * o.kept(i, h, j);
                    sums[row] += a;
                    (0..c).for_each(|l| out[row * c + l] += a * o.z(i * k + j, l));
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let o = Operands::<f32>::of(self, io);
        let (c, k, heads) = (o.width(), o.k, self.heads);
        let (out, sums, weights) = (io.out::<f32>(0), io.out::<f32>(1), io.out::<f32>(2));
        if c == 0 || k == 0 || !o.grouped {
            [out, sums, weights].into_iter().for_each(|x| x.fill(0.0));
            return;
        }
        let (mut out, mut sums, mut weights) = (out, sums, weights);
        let mut tasks = Vec::with_capacity(parts::PARTS);
        for (queries, roots) in o.parts() {
            let n = roots.len();
            let rows = (
                split_off(&mut out, n * heads * c),
                split_off(&mut sums, n * heads),
                split_off(&mut weights, n * heads * k),
            );
            tasks.push((queries, rows));
        }
        tasks.into_iter().in_parallel(1, |(queries, (out, sums, weights))| {
            Workspace::with(&o, |work| forward(&o, queries.start, queries.end, out, sums, weights, work));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.capacity(10).min(MOST_BLOCKS), THREADS);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.temporal_attention(
                on,
                grid,
                self.on_device(on),
                on.out(0),
                on.out(1),
                on.kept(2),
                on.rows(6),
                on.rows(2),
                on.rows(7),
                on.status(),
            )
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let (Some(dmix), Some(dsum)) = (douts[0], douts[1]) else {
            return Err(Error::shape(
                Self::NAME,
                "the backward wants gradients of both the rows and the sums",
            ));
        };
        let mut ins = [&node.ins[..], &[node.outs[2], dmix, dsum]].concat();
        if self.learn_h {
            let [h, row, count, order] = [2, 3, 6, 10].map(|i| node.ins[i]);
            let (starts, slots) = t.group_slots(row, count, order, t.spec(h).rows)?;
            ins.extend([starts, slots]);
        }
        let d = t.push(TemporalAttentionGrad(*self), &ins)?;
        let mut dins = vec![None; node.ins.len()];
        for (d, i) in d.into_iter().zip([0, 8, 9, 2]) {
            dins[i] = Some(d);
        }
        Ok(dins)
    }
}

/// `[roots, queries, rows of h, k, heads, d, f, t, drop-out in percent, events, least]`; counts run from `least` to k. A
/// twelfth number, 0: h is data.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1, 1, 0, 1, 0, 30, 0],
    &[0, 1, 1, 2, 1, 2, 1, 2, 0, 30, 0],
    &[9, 4, 7, 3, 2, 5, 3, 4, 0, 30, 0],
    &[9, 4, 7, 3, 2, 5, 0, 4, 30, 30, 0],
    &[70, 33, 60, 10, 2, 20, 17, 20, 10, 30, 0],
    // Aligned rows, three heads, more neighbours than a device takes at a time.
    &[5, 2, 9, 23, 3, 8, 4, 8, 20, 10, 21],
    // More slots a row of h than a warp adds up by itself: rows that are not aligned, wide ones that are.
    &[150, 40, 2, 3, 2, 5, 0, 4, 10, 10, 0],
    &[80, 3, 1, 2, 1, 140, 0, 4, 0, 4, 2],
    // Wide rows, aligned and not.
    &[2, 1, 3, 2, 1, 300, 240, 4, 0, 4, 2],
    &[3, 2, 3, 2, 1, 3, 150, 131, 10, 4, 2],
    // Rows of h without width: features and times alone, aligned and not, or times alone.
    &[9, 4, 7, 3, 2, 0, 3, 4, 10, 30, 0],
    &[70, 33, 60, 10, 2, 0, 8, 20, 10, 30, 0],
    &[9, 4, 7, 3, 1, 0, 0, 5, 0, 30, 0, 0],
    // Data.
    &[9, 4, 7, 3, 2, 5, 3, 4, 30, 30, 0, 0],
    &[70, 33, 600, 10, 2, 20, 16, 20, 0, 30, 0, 0],
    &[5, 2, 9, 23, 3, 0, 4, 8, 20, 10, 21, 0],
];
pub(super) const BENCH: &[&[usize]] = &[
    &[1_800, 700, 1_487, 10, 2, 100, 172, 100, 10, 110_232, 10],
    &[1_800, 700, 92_280, 10, 2, 200, 172, 100, 10, 110_232, 10, 0],
];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, q, m, k, heads, d, f, t, drop, events, least] = dims[..11] else {
        return Err(Error::shape("attention", "eleven sizes, or twelve"));
    };
    let learn_h = dims.len() == 11;
    let counts: Vec<u32> = (0..n).map(|i| (least + i % (k + 1 - least)) as u32).collect();
    let mut slots = |below: usize| -> Vec<u32> {
        (0..n * k)
            .map(|s| if s % k < counts[s / k] as usize { c.below(below) as u32 } else { NONE })
            .collect()
    };
    let (row, event) = (slots(m), slots(events));
    let spec = Spec::ids(Rows::fixed(n), k);
    let rows: Vec<u32> = (0..n).map(|i| if counts[i] == 0 { NONE } else { c.below(q) as u32 }).collect();
    let (queries, query_row, count) = (c.real(q, heads * (d + f + t)), c.ids(&rows, 1), c.ids(&counts, 1));
    let a = AttentionVars {
        query: queries,
        roots: c.tape.group_roots(query_row, count, c.tape.spec(queries).rows)?,
        h: c.real(m, d),
        learn_h,
        row: c.values(spec, &row),
        event: c.values(spec, &event),
        dt: c.real_in(n, k, |u| (8.0 * (u + 1.0)).round()),
        count,
        edge: c.real(events, f),
        time_w: c.real(1, t),
        time_b: c.real(1, t),
    };
    let rate = DropRate { p: drop as f32 / 100.0, seed: 5, salt: 1 };
    let now = c.ids(&[0, 2], 2);
    let (mix, sum) = c.tape.temporal_attention(a, heads, 4, Some((rate, now)))?;
    let mut wrt = vec![a.query, a.time_w, a.time_b];
    wrt.extend(learn_h.then_some(a.h));
    Ok(Built::new(&[mix, sum], &wrt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_head_and_a_rate_that_is_none_are_refused() {
        let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
        build(&mut c, CASES[3]).unwrap();
        let node = c.tape.nodes().iter().find(|n| n.op.name() == "temporal_attention").unwrap().clone();
        let op = |heads, p| TemporalAttention {
            heads,
            head_width: 4,
            drop: Some(DropRate { p, seed: 5, salt: 1 }),
            learn_h: true,
        };
        assert!(c.tape.push(op(2, 0.3), &node.ins).is_ok());
        for (heads, p) in [(0, 0.3), (2, 1.0), (2, -0.1), (2, f32::NAN), (usize::MAX, 0.3)] {
            assert!(c.tape.push(op(heads, p), &node.ins).is_err(), "{heads} heads, p {p}");
        }
    }

    #[test]
    fn slots_are_grouped_for_the_gradient_of_h_and_not_where_h_is_data() {
        for (dims, grouped) in [(CASES[2], true), (&[9, 4, 7, 3, 2, 5, 3, 4, 0, 30, 0, 0], false)] {
            let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
            let built = build(&mut c, dims).unwrap();
            let pairs: Vec<_> = built.outs.iter().map(|&y| (y, y)).collect();
            c.tape.backward_many(&pairs).unwrap();
            assert_eq!(c.tape.nodes().iter().any(|n| n.op.name() == "group_slots"), grouped);
        }
    }
}
