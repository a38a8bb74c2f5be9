//! Absorbed temporal attention with H heads of width p: `mix_h = sum_j drop(a_hj) z_j`,
//! `a_h = softmax_j(q_h . z_j / sqrt(p))`, `z_j = {h_j | e_j | Phi(dt_j)}`.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `query` | `[q, H c]` f32 | queries multiplied by W_k^T, one row per *unique* root |
//! | `starts`, `order`, `own` | `[q + 1]`, `[m]`, `[m]` u32 | the m roots that have neighbours, grouped by query, and the query of each ([`group_roots`]) |
//! | `h` | `[u, d]` f32 | embeddings of the layer below, by unique node |
//! | `row`, `event` | `[n, k]` u32 | rows of the neighbours in `h` and in `edge` |
//! | `dt` | `[n, k]` f32 | seconds from the neighbour's event to the root |
//! | `count` | `[n]` u32 | slots in use |
//! | `edge` | `[e, f]` f32 | edge features |
//! | `w`, `b` | `[1, t]` f32 | time encoding; c = d + f + t |
//! | `now` | `[1, 2]` or `[1, 3]` u32 | clock of the dropout, if there is one |
//! | mix | `[m, H c]` f32 | mixed raw rows, in the order of `order` |
//! | sum | `[m, H]` f32 | sum of the weights after dropout |
//! | weight | `[m, H k]` f32 | weights before dropout, for the backward pass |
//!
//! **Absorbed**: keys `W_k z_j + b_k` and values `W_v z_j + b_v` are never formed. `q . (W_k z_j + b_k)` is
//! `(W_k^T q) . z_j` plus a number that is the same for all j and cancels in the softmax;
//! `sum_j a_j (W_v z_j + b_v)` is `W_v mix + b_v sum_j a_j`. This is exact (tested against the plain form),
//! needs about ten times fewer operations, and makes one pass over the raw rows. Work that depends only on
//! the root's node is done once per unique root.
//!
//! Backward, with the weights after dropout `a'`, `da_hj = (dmix_h . z_j + dsum_h) drop_hj` and
//! `ds = a (da - sum_j a_j da_j) / sqrt(p)`: `dquery_h = sum_j ds_hj z_j`,
//! `dz_j = sum_h a'_hj dmix_h + ds_hj q_h`. Rows of `dz` are added by unique row of `h` in the order of the
//! roots grouped by query ([`group_slots`]), so the result is deterministic. If `h` is data, its gradient is
//! not computed.
//! A root, query, row or event outside its table and a count above `k` are reported as faults.
//! Source: TGAT (Xu et al. 2020) and TGN's attention; the absorption is described in `docs/attention.md`.
mod grad;
mod operands;
mod rows;

use self::rows::{Workspace, forward};
use super::{epilogue::DropRate, group_roots::RootGroups, *};
use crate::runtime::{changes::Change, cuda::abi, parts, team::InParallel};
pub use grad::TemporalAttentionGrad;
use operands::Operands;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct TemporalAttention {
    heads: usize,
    /// Width p of a head: scores are divided by its square root.
    head_width: usize,
    drop: Option<DropRate>,
    /// Whether `h` has a gradient.
    learn_h: bool,
}

/// Positions of the inputs; `now` is there only with a dropout.
mod input {
    pub(in crate::ops) const QUERY: usize = 0;
    pub(in crate::ops) const STARTS: usize = 1;
    pub(in crate::ops) const H: usize = 2;
    pub(in crate::ops) const ROW: usize = 3;
    pub(in crate::ops) const EVENT: usize = 4;
    pub(in crate::ops) const DT: usize = 5;
    pub(in crate::ops) const COUNT: usize = 6;
    pub(in crate::ops) const EDGE: usize = 7;
    pub(in crate::ops) const W: usize = 8;
    pub(in crate::ops) const B: usize = 9;
    pub(in crate::ops) const ORDER: usize = 10;
    pub(in crate::ops) const OWN: usize = 11;
    pub(in crate::ops) const NOW: usize = 12;
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const MIX: usize = 0;
    pub(in crate::ops) const SUM: usize = 1;
    pub(in crate::ops) const WEIGHT: usize = 2;
}

/// Operands of an attention layer.
///
/// Example: [`Tape::temporal_attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionVars {
    /// `[q, H c]` absorbed queries.
    pub query: Var,
    /// Roots that have neighbours, grouped by query.
    pub roots: RootGroups,
    /// `[u, d]` embeddings of the layer below.
    pub h: Var,
    /// Whether gradients flow into `h`; false for data, such as stored mails or node features.
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
    /// `[1, t]` frequencies of the time encoding.
    pub time_w: Var,
    /// `[1, t]` phases of the time encoding.
    pub time_b: Var,
}

impl Tape {
    /// Appends [`TemporalAttention`]; returns the mixed rows, `[m, heads c]`, and the sums of the weights,
    /// `[m, heads]`, of the m roots with neighbours. `drop` is the dropout of the weights and its clock.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match, if `heads` or `head_width` is 0, or if p of the
    /// dropout is not in [0, 1).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{temporal_attention::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // One root with two neighbours, whose rows are {h | cos 0} = {1 | 1} and {3 | 1}.
    /// let query = tape.input(&mut store, "query", Spec::real(Rows::fixed(1), 2), &[1.0f32, 0.0])?;
    /// let h = tape.input(&mut store, "h", Spec::real(Rows::fixed(2), 1), &[1.0f32, 3.0])?;
    /// let row = tape.input(&mut store, "row", Spec::ids(Rows::fixed(1), 2), &[0u32, 1])?;
    /// let count = tape.input(&mut store, "count", Spec::ids(Rows::fixed(1), 1), &[2u32])?;
    /// let event = store.zeros("event", Spec::ids(Rows::fixed(1), 2))?;
    /// let dt = store.zeros("dt", Spec::real(Rows::fixed(1), 2))?;
    /// let own = store.zeros("own", Spec::ids(Rows::fixed(1), 1))?;
    /// let edge = store.zeros("edge", Spec::real(Rows::fixed(1), 0))?;
    /// let time_w = store.zeros("time w", Spec::real(Rows::fixed(1), 1))?;
    /// let time_b = store.zeros("time b", Spec::real(Rows::fixed(1), 1))?;
    /// let [event, dt] = tape.stored_all([event, dt])?;
    /// let [own, edge, time_w, time_b] = tape.stored_all([own, edge, time_w, time_b])?;
    /// let learn_h = true;
    /// let roots = tape.group_roots(own, count, Rows::fixed(1))?; // `own` is the row of the query, 0
    /// let layer = AttentionVars { query, roots, h, learn_h, row, event, dt, count, edge, time_w, time_b };
    /// let (mix, sum) = tape.temporal_attention(layer, 1, 1, None)?; // one head of width 1
    /// let mut program = Program::new(&tape, &[mix, sum], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The scores are 1 and 3.
    /// let (mix, sum) = (program.read::<f32>(mix, &store)?, program.read::<f32>(sum, &store)?);
    /// let weight = 1.0 / (1.0 + 2f32.exp()); // of the first neighbour
    /// assert!((mix[0] - (weight + 3.0 * (1.0 - weight))).abs() < 1e-5);
    /// assert!((mix[1] - 1.0).abs() < 1e-5 && (sum[0] - 1.0).abs() < 1e-5);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn temporal_attention(
        &mut self,
        a: AttentionVars,
        heads: usize,
        head_width: usize,
        drop: Option<(DropRate, Var)>,
    ) -> Result<(Var, Var)> {
        let drop = drop.filter(|(rate, _)| rate.p != 0.0);
        let op = TemporalAttention::new(heads, head_width, drop.map(|(rate, _)| rate), a.learn_h);
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
            a.roots.own,
        ];
        ins.extend(drop.map(|(_, now)| now));
        let outs = self.push(op, &ins)?;
        Ok((outs[output::MIX], outs[output::SUM]))
    }
}

/// Threads of a block on a device.
const THREADS: u32 = 128;
/// Maximum number of blocks of the forward pass on a device.
const MOST_BLOCKS: usize = 1 << 16;
/// Neighbours that a device handles at a time; the same as in the kernel.
const CHUNK: u32 = 10;

/// Whether a device can use the kernels for small operands: one chunk of neighbours, one tile of columns, two
/// heads, and rows, also those of `others`, that can be moved 16 bytes at a time.
fn is_small(a: &abi::Attention, others: &[*const f32]) -> bool {
    let aligned = [a.d, a.f, a.t].iter().all(|width| width % 4 == 0)
        && [a.h, a.edge, a.query].iter().chain(others).all(|rows| rows.addr() % 16 == 0);
    aligned && a.heads == 2 && a.k <= CHUNK && a.d + a.f <= 4 * THREADS && a.t <= THREADS
}

impl TemporalAttention {
    /// Creates the op; `learn_h` says whether `h` has a gradient.
    pub fn new(heads: usize, head_width: usize, drop: Option<DropRate>, learn_h: bool) -> Self {
        TemporalAttention { heads, head_width, drop, learn_h }
    }
    /// Returns the number of inputs.
    fn operands(&self) -> usize {
        input::NOW + usize::from(self.drop.is_some())
    }
    /// Checks the options, and that the numbers of slots, roots and columns are not too large.
    fn check_limits(&self, ins: &[Spec]) -> Result<()> {
        let (heads, width) = (self.heads, self.head_width);
        ensure!(
            Self::NAME,
            heads > 0 && width > 0,
            "{heads} heads of width {width}, want at least one head and a width of at least 1"
        );
        if let Some(rate) = self.drop {
            ensure!(Self::NAME, (0.0..1.0).contains(&rate.p), "p is {}, want 0 <= p < 1", rate.p);
            clock(Self::NAME, &ins[input::NOW])?;
        }
        let [query, row, order] = [input::QUERY, input::ROW, input::ORDER].map(|i| ins[i]);
        // Kernels count slots, and pairs of a root and a head, in 32 bits.
        let rows = row.rows.capacity.max(order.rows.capacity);
        let most = rows.saturating_mul(row.cols.max(heads)).max(query.cols);
        ensure!(
            Self::NAME,
            most < NONE as usize,
            "{heads} heads, order is {order}, row is {row}, want fewer than {NONE} slots, roots times heads, \
             and columns"
        );
        let queries = query.rows.capacity > 0 || order.is_empty();
        ensure!(Self::NAME, queries, "query is {query}, order is {order}, want a query for the roots");
        Ok(())
    }
    /// Returns the number of attention weights of each event, given the shape of `row`.
    fn per_event(&self, row: Spec) -> usize {
        per_event(row.rows, self.heads.saturating_mul(row.cols))
    }
    /// Returns the operands as kernels take them.
    fn on_device(&self, on: &Launch<'_>) -> abi::Attention {
        abi::Attention {
            query: on.input(input::QUERY),
            h: on.input(input::H),
            dt: on.input(input::DT),
            edge: on.input(input::EDGE),
            w: on.input(input::W),
            b: on.input(input::B),
            starts: on.input(input::STARTS),
            order: on.input(input::ORDER),
            own: on.input(input::OWN),
            row: on.input(input::ROW),
            event: on.input(input::EVENT),
            count: on.input(input::COUNT),
            roots: on.rows(input::ORDER),
            queries: on.rows(input::QUERY),
            heads: self.heads as u32,
            k: on.cols(input::ROW),
            d: on.cols(input::H),
            f: on.cols(input::EDGE),
            t: on.cols(input::W),
            scale: (1.0 / (self.head_width as f64).sqrt()) as f32,
            drop: DropRate::on_device(self.drop, on, input::NOW, self.per_event(on.spec(input::ROW))),
        }
    }
}

impl Op for TemporalAttention {
    const NAME: &'static str = "temporal_attention";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "query [q, h (d + f + t)], starts [q + 1] ids, h [v, d], row [n, k] ids, \
        event [n, k] ids, dt [n, k], count [n] ids, edge [e, f], time_w [1, t], time_b [1, t], \
        order [o] ids, own [o] ids, now? [1, c] ids -> mix [o, h (d + f + t)], sum [o, h], weight [o, h k]";
    fn sizes(&self) -> Sizes {
        vec![("h", Rows::fixed(self.heads))]
    }
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.drop.is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.check_limits(ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let [query, h, row, edge, w] =
            [input::QUERY, input::H, input::ROW, input::EDGE, input::W].map(|i| ins[i]);
        let (slots, c) = (row.len(), query.cols / self.heads);
        let bytes = 4 * (slots * (h.cols + edge.cols + 3) + query.len() + outs[0].len());
        Cost { bytes, flops: slots * (4 * self.heads * c + 20 * w.cols) }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let o = Operands::<R>::new(self, io);
        let (mix, sums, weights) =
            (io.out::<R>(output::MIX), io.out::<R>(output::SUM), io.out::<R>(output::WEIGHT));
        let (c, k) = (o.width(), o.k);
        [&mut *mix, sums, weights].into_iter().for_each(|out| out.fill(R::ZERO));
        for (query, at, i, n) in o.roots() {
            for h in 0..self.heads {
                let (row, q) = (at * self.heads + h, o.query_of(query, h));
                let score =
                    |j: usize| (0..c).map(|l| q[l] * o.z(i * k + j, l)).sum::<R>() * R::from_f64(o.scale);
                let top = (0..n).map(score).fold(R::from_f64(f64::NEG_INFINITY), R::max);
                let total: R = (0..n).map(|j| (score(j) - top).exp()).sum();
                for j in 0..n {
                    let a = (score(j) - top).exp() / total;
                    weights[row * k + j] = a;
                    let a = a * o.drop_factor(i, h, j);
                    sums[row] += a;
                    (0..c).for_each(|l| mix[row * c + l] += a * o.z(i * k + j, l));
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let o = Operands::<f32>::new(self, io);
        let (c, k, heads) = (o.width(), o.k, self.heads);
        let (mut mix, mut sums, mut weights) =
            (io.out::<f32>(output::MIX), io.out::<f32>(output::SUM), io.out::<f32>(output::WEIGHT));
        if c == 0 || k == 0 || !o.grouped {
            [mix, sums, weights].into_iter().for_each(|out| out.fill(0.0));
            return;
        }
        let mut tasks = Vec::with_capacity(parts::PARTS);
        for (queries, roots) in o.parts() {
            let n = roots.len();
            let rows = (
                split_off(&mut mix, n * heads * c),
                split_off(&mut sums, n * heads),
                split_off(&mut weights, n * heads * k),
            );
            tasks.push((queries, rows));
        }
        tasks.into_iter().in_parallel(1, |(queries, (mix, sums, weights))| {
            Workspace::with(&o, |work| forward(&o, queries.start, queries.end, mix, sums, weights, work));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.capacity(input::ORDER).min(MOST_BLOCKS), THREADS);
        let a = self.on_device(on);
        let (mix, sum, weight) = (on.out(output::MIX), on.out(output::SUM), on.needed(output::WEIGHT));
        let (roots, rows, edges) = (on.rows(input::COUNT), on.rows(input::H), on.rows(input::EDGE));
        let status = on.status();
        if is_small(&a, &[mix]) && on.stream().gpu().has(Change::Attention) {
            launch!(k, on, temporal_attention_small[grid]; a, mix, sum, weight, roots, rows, edges, status)
        } else {
            launch!(k, on, temporal_attention[grid]; a, mix, sum, weight, roots, rows, edges, status)
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let (Some(dmix), Some(dsum)) = (douts[output::MIX], douts[output::SUM]) else {
            return Err(Error::shape(
                Self::NAME,
                "the backward pass needs the gradients of both mix and sum",
            ));
        };
        let mut ins = [&node.ins[..], &[node.outs[output::WEIGHT], dmix, dsum]].concat();
        if self.learn_h {
            let [h, row, count, order] =
                [input::H, input::ROW, input::COUNT, input::ORDER].map(|i| node.ins[i]);
            let (starts, slots) = t.group_slots(row, count, order, t.spec(h).rows)?;
            ins.extend([starts, slots]);
        }
        let grads = t.push(TemporalAttentionGrad::new(*self), &ins)?;
        let mut dins = vec![None; node.ins.len()];
        // The gradient of h is the last output, which is missing if h is data.
        for (grad, i) in grads.into_iter().zip([input::QUERY, input::W, input::B, input::H]) {
            dins[i] = Some(grad);
        }
        Ok(dins)
    }
}

/// `[roots, queries, rows of h, k, heads, d, f, t, dropout percentage, events, least]`; counts run from
/// `least` to k. If there is a twelfth number, and it is 0, h is data; with a thirteenth, the time encoding
/// is.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1, 1, 0, 1, 0, 30, 0],
    &[0, 1, 1, 2, 1, 2, 1, 2, 0, 30, 0],
    &[9, 4, 7, 3, 2, 5, 3, 4, 0, 30, 0],
    &[9, 4, 7, 3, 2, 5, 0, 4, 30, 30, 0],
    &[70, 33, 60, 10, 2, 20, 17, 20, 10, 30, 0],
    // Aligned rows, three heads, more neighbours than a device handles at a time.
    &[5, 2, 9, 23, 3, 8, 4, 8, 20, 10, 21],
    // Rows of h whose slots several warps add up: unaligned rows; wide, aligned rows.
    &[150, 40, 2, 3, 2, 5, 0, 4, 10, 10, 0],
    &[80, 3, 1, 2, 1, 140, 0, 4, 0, 4, 2],
    // More rows of h than the blocks sum at a time.
    &[40, 4, 9_000, 3, 1, 4, 0, 4, 0, 4, 2],
    // Wide rows, aligned and unaligned.
    &[2, 1, 3, 2, 1, 300, 240, 4, 0, 4, 2],
    &[3, 2, 3, 2, 1, 3, 150, 131, 10, 4, 2],
    // h of width 0: features and times alone, aligned and unaligned, or times alone.
    &[9, 4, 7, 3, 2, 0, 3, 4, 10, 30, 0],
    &[70, 33, 60, 10, 2, 0, 8, 20, 10, 30, 0],
    &[9, 4, 7, 3, 1, 0, 0, 5, 0, 30, 0, 0],
    // h is data.
    &[9, 4, 7, 3, 2, 5, 3, 4, 30, 30, 0, 0],
    &[70, 33, 600, 10, 2, 20, 16, 20, 0, 30, 0, 0],
    &[5, 2, 9, 23, 3, 0, 4, 8, 20, 10, 21, 0],
    // The time encoding is data: narrow and wide rows of h, aligned and unaligned; more neighbours than a
    // device handles at a time; then h is data, too.
    &[9, 4, 7, 3, 2, 5, 3, 4, 30, 30, 0, 1, 0],
    &[70, 33, 60, 10, 2, 20, 16, 20, 10, 30, 0, 1, 0],
    &[30, 12, 20, 10, 2, 200, 172, 100, 10, 30, 0, 1, 0],
    &[5, 2, 9, 23, 3, 8, 4, 8, 20, 10, 21, 1, 0],
    &[70, 33, 60, 7, 2, 8, 0, 128, 10, 30, 0, 0, 0],
    // More roots than multiprocessors.
    &[420, 40, 20, 3, 2, 132, 4, 4, 10, 30, 1, 1, 0],
    // Three heads, at most one neighbour, and widths of several blocks and a ragged end.
    &[40, 12, 30, 1, 3, 37, 29, 19, 10, 30, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[
    &[1_800, 700, 1_487, 10, 2, 100, 172, 100, 10, 110_232, 10],
    &[1_800, 700, 92_280, 10, 2, 200, 172, 100, 10, 110_232, 10, 0],
    &[1_800, 700, 1_487, 10, 2, 100, 172, 100, 10, 110_232, 10, 1, 0],
    &[1_800, 700, 92_280, 10, 2, 200, 172, 100, 10, 110_232, 10, 0, 0],
];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, q, m, k, heads, d, f, t, drop, events, least] = dims[..11] else {
        return Err(Error::shape("attention", "eleven sizes, or up to thirteen"));
    };
    let (learn_h, learn_time) = (dims.get(11) != Some(&0), dims.len() < 13);
    let counts: Vec<u32> = (0..n).map(|i| (least + i % (k + 1 - least)) as u32).collect();
    let slots = |draw: &mut dyn FnMut() -> usize| -> Vec<u32> {
        (0..n * k).map(|s| if s % k < counts[s / k] as usize { draw() as u32 } else { NONE }).collect()
    };
    let (row, event) = (slots(&mut || c.unevenly_below(m)), slots(&mut || c.below(events)));
    let spec = Spec::ids(Rows::fixed(n), k);
    let rows: Vec<u32> =
        (0..n).map(|i| if counts[i] == 0 { NONE } else { c.unevenly_below(q) as u32 }).collect();
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
    let drop = (DropRate { p: drop as f32 / 100.0, seed: 5, salt: 1 }, c.ids(&[0, 2], 2));
    let (mix, sum) = c.tape.temporal_attention(a, heads, 4, Some(drop))?;
    let mut wrt = vec![a.query];
    wrt.extend([a.time_w, a.time_b].into_iter().filter(|_| learn_time));
    wrt.extend(learn_h.then_some(a.h));
    Ok(Built::new(&[mix, sum], &wrt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_heads_and_invalid_drop_rates_are_refused() {
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
    fn slots_are_grouped_only_if_h_has_a_gradient() {
        for (dims, grouped) in [(CASES[2], true), (&[9, 4, 7, 3, 2, 5, 3, 4, 0, 30, 0, 0], false)] {
            let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
            let built = build(&mut c, dims).unwrap();
            let pairs: Vec<_> = built.outs.iter().map(|&y| (y, y)).collect();
            c.tape.backward_many(&pairs).unwrap();
            assert_eq!(c.tape.nodes().iter().any(|n| n.op.name() == "group_slots"), grouped);
        }
    }
}
