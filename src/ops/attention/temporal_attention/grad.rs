//! Gradients of `query`, `w`, `b`, and of `h` unless it is data.
use super::{
    super::*,
    Operands, THREADS, TemporalAttention, input, is_small,
    rows::{Upstream, Workspace, backward, sum_rows},
};
use crate::runtime::{changes::Change, parts, simd::LANES, team::InParallel};

/// Gradients of [`TemporalAttention`]. The inputs are those of the op, then the weights, the gradients of mix
/// and sum, and, if h has a gradient, the slots grouped by row of h
/// ([`group_slots`](super::super::group_slots)).
#[derive(Debug)]
pub struct TemporalAttentionGrad(TemporalAttention);

/// Positions of the inputs behind those of the op.
mod saved {
    pub(super) const WEIGHT: usize = 0;
    pub(super) const DMIX: usize = 1;
    pub(super) const DSUM: usize = 2;
    pub(super) const STARTS: usize = 3;
    pub(super) const SLOTS: usize = 4;
}

/// Position of the output that is the gradient of the queries.
const DQUERY: usize = 0;
/// Positions of the outputs that are the gradients of the time encoding.
const DW: usize = 1;
const DB: usize = 2;
/// Position of the output that is the gradient of h, if h has one.
const DH: usize = 3;
/// Maximum number of blocks on a device; each writes a partial sum.
const BLOCKS: usize = 1024;
/// Threads of a block that sums rows on a device; the same as in the kernel.
const SUM_THREADS: u32 = 384;
/// Rows of h, or queries, for which a block is worth starting.
const ROWS: usize = 4;
/// Maximum number of blocks for each of these sums: those of all three tasks run at the same time on 132
/// multiprocessors, two on each.
const SUM_BLOCKS: usize = 126;
/// Columns that a block sums at a time.
const SUM_COLUMNS: usize = 128;

impl TemporalAttentionGrad {
    /// Creates the gradient of `of`.
    pub fn new(of: TemporalAttention) -> Self {
        TemporalAttentionGrad(of)
    }
    /// Returns the lengths of the sections of the scratch on the host: partials of {dw | db}, rows of dz,
    /// flags of the leading roots, and {dw | db}. If h is data, the second and the third are empty.
    fn layout(&self, spec: impl Fn(usize) -> Spec) -> [usize; 4] {
        let dwb = 2 * spec(input::W).cols.next_multiple_of(LANES);
        let [dz, leading] = if self.0.learn_h {
            [spec(input::ROW).len() * spec(input::H).cols, spec(input::ORDER).len()]
        } else {
            [0, 0]
        };
        [parts::PARTS * dwb, dz, leading, dwb]
    }
    /// Returns the lengths of the sections of the scratch on a device, rounded up to keep rows aligned: dz,
    /// gradients of the queries by root, partials of {dw | db}, and gradients of the weights.
    fn device_layout(&self, spec: impl Fn(usize) -> Spec) -> [usize; 4] {
        let (roots, k) = (spec(input::ORDER).rows.capacity, spec(input::ROW).cols);
        [
            if self.0.learn_h { roots * k * spec(input::H).cols } else { 0 },
            roots * spec(input::QUERY).cols,
            BLOCKS * 2 * spec(input::W).cols,
            roots * self.0.heads * k,
        ]
        .map(|n| n.next_multiple_of(4))
    }
}

impl Op for TemporalAttentionGrad {
    const NAME: &'static str = "temporal_attention_grad";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "query [q, h (d + f + t)], starts [q + 1] ids, h [v, d], row [n, k] ids, \
        event [n, k] ids, dt [n, k], count [n] ids, edge [e, f], time_w [1, t], time_b [1, t], \
        order [o] ids, own [o] ids, now? [1, c] ids, weight [o, h k], dmix [o, h (d + f + t)], dsum [o, h], \
        starts? [v + 1] ids, slots? [s] ids \
        -> query [q, h (d + f + t)], time_w [1, t], time_b [1, t], h? [v, d]";
    fn sizes(&self) -> Sizes {
        vec![("h", Rows::fixed(self.0.heads))]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "now" => self.0.drop.is_some(),
            _ => self.0.learn_h,
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.0.check_limits(ins)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (host, device) = (self.layout(|i| ins[i]), self.device_layout(|i| ins[i]));
        host.iter().sum::<usize>().max(device.iter().sum())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let forward = Op::cost(&self.0, ins, outs);
        let dz = ins[input::ROW].len() * ins[input::H].cols;
        let dh = outs.get(DH).map_or(0, |dh| 2 * dz + dh.len());
        let rows = dh + outs[DQUERY].len();
        Cost { bytes: forward.bytes + 4 * rows, flops: 3 * forward.flops }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let o = Operands::<R>::new(&self.0, io);
        let base = self.0.operands();
        let [weights, dmix, dsum] =
            [saved::WEIGHT, saved::DMIX, saved::DSUM].map(|at| io.input::<R>(base + at));
        let [dquery, dw, db] = [DQUERY, DW, DB].map(|k| io.out::<R>(k));
        let dh = if self.0.learn_h { io.out::<R>(DH) } else { &mut [] };
        [&mut *dquery, dh, dw, db].into_iter().for_each(|g| g.fill(R::ZERO));
        let (c, k, d, heads) = (o.width(), o.k, o.d, self.0.heads);
        for (query, at, i, n) in o.roots() {
            for h in 0..heads {
                let row = at * heads + h;
                let (q, g) = (o.query_of(query, h), &dmix[row * c..][..c]);
                let a = |j: usize| weights[row * k + j];
                let da = |j: usize| {
                    ((0..c).map(|l| g[l] * o.z(i * k + j, l)).sum::<R>() + dsum[row]) * o.drop_factor(i, h, j)
                };
                let mean: R = (0..n).map(|j| a(j) * da(j)).sum();
                for j in 0..n {
                    let (slot, ds) = (i * k + j, a(j) * (da(j) - mean) * R::from_f64(o.scale));
                    let a = a(j) * o.drop_factor(i, h, j);
                    for l in 0..c {
                        dquery[(query * heads + h) * c + l] += ds * o.z(slot, l);
                        let dz = a * g[l] + ds * q[l];
                        if l < d && self.0.learn_h {
                            if let Some(dh) = dh.get_mut(o.row[slot] as usize * d + l) {
                                *dh += dz;
                            }
                        } else if l >= d + o.f {
                            let l = l - d - o.f;
                            let s = -(o.w[l] * o.dt[slot] + o.b[l]).sin() * dz;
                            dw[l] += s * o.dt[slot];
                            db[l] += s;
                        }
                    }
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let o = Operands::<f32>::new(&self.0, io);
        let base = self.0.operands();
        let [weights, dmix, dsum] =
            [saved::WEIGHT, saved::DMIX, saved::DSUM].map(|at| io.input::<f32>(base + at));
        let [dquery, dw, db] = [DQUERY, DW, DB].map(|k| io.out::<f32>(k));
        let learn_h = self.0.learn_h && io.wanted(DH);
        let dh = if learn_h { io.out::<f32>(DH) } else { &mut [] };
        let (c, k, d, t, heads) = (o.width(), o.k, o.d, o.w.len(), self.0.heads);
        let rows = io.rows(input::H);
        if c == 0 || k == 0 || o.order.is_empty() || !o.grouped {
            [dquery, dh, dw, db].into_iter().for_each(|g| g.fill(0.0));
            return;
        }
        let layout = self.layout(|i| io.spec(i));
        let (partials, rest) = io.scratch::<f32>().split_at_mut(layout[0]);
        let (dz, rest) = rest.split_at_mut(layout[1]);
        let (leading, rest) = rest.split_at_mut(layout[2]);
        let leading = bytemuck::cast_slice_mut::<f32, u32>(leading);
        let sum = &mut rest[..layout[3]];

        // A task has whole queries, so that the gradient of a query is written by one thread.
        let mut tasks = Vec::with_capacity(parts::PARTS);
        let (mut dquery, mut dz_left, mut leading_left) = (dquery, &mut *dz, &mut *leading);
        partials.fill(0.0);
        for ((queries, roots), dwb) in o.parts().zip(partials.chunks_exact_mut(sum.len().max(1))) {
            let dquery = split_off(&mut dquery, queries.len() * heads * c);
            let listed = if learn_h { roots.len() } else { 0 };
            let dz = split_off(&mut dz_left, listed * k * d);
            tasks.push((queries, dquery, dz, split_off(&mut leading_left, listed), dwb));
        }
        let up = Upstream { weights, dmix, dsum, learn_time: io.wanted(DW) || io.wanted(DB), learn_h };
        tasks.into_iter().in_parallel(1, |(queries, dquery, dz, leading, dwb)| {
            Workspace::with(&o, |work| {
                backward(&o, queries.start, queries.end, &up, dquery, dz, leading, dwb, work);
            });
        });

        sum.fill(0.0);
        parts::add_column_sums(sum, partials);
        let (sum_w, sum_b) = sum.split_at(sum.len() / 2);
        dw.copy_from_slice(&sum_w[..t]);
        db.copy_from_slice(&sum_b[..t]);
        if learn_h && d > 0 {
            let [starts, slots] = [saved::STARTS, saved::SLOTS].map(|at| io.input::<u32>(base + at));
            let (size, dz, leading) = (parts::part_rows(rows), &*dz, &*leading);
            dh.chunks_mut(size * d)
                .enumerate()
                .in_parallel(1, |(i, dh)| sum_rows(io, dh, d, i * size, starts, slots, dz, leading, k));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let a = self.0.on_device(on);
        let base = self.0.operands();
        let mut end = 0;
        let [dz, by_root, dwb, da] = self.device_layout(|i| on.spec(i)).map(|n| {
            end += n;
            on.scratch().wrapping_add(end - n)
        });
        let if_wanted = |wanted: bool, p: *mut f32| if wanted { p } else { std::ptr::null_mut() };
        let learn_h = self.0.learn_h && on.wanted(DH) && a.d > 0;
        let learn_time = on.wanted(DW) || on.wanted(DB);
        let (dz, dwb) = (if_wanted(learn_h, dz), if_wanted(learn_time, dwb));
        let (dquery, dw, db) = (on.out(DQUERY), on.out(DW), on.out(DB));

        let blocks = on.capacity(input::ORDER).min(BLOCKS);
        let [weight, dmix, dsum] = [saved::WEIGHT, saved::DMIX, saved::DSUM].map(|at| on.input(base + at));
        let (roots, rows, edges) = (on.rows(input::COUNT), on.rows(input::H), on.rows(input::EDGE));
        let (grid, status) = (Grid::new(blocks, THREADS), on.status());
        let changed = !learn_time && on.stream().gpu().has(Change::Attention);
        if changed && is_small(&a, &[dmix, dquery, by_root, dz]) {
            launch!(
                k, on, temporal_attention_grad_small[grid];
                a, weight, dmix, dsum, dquery, by_root, dz, roots, rows, edges, status
            )?;
        } else if changed {
            launch!(
                k, on, temporal_attention_grad_fixed[grid];
                a, weight, dmix, dsum, dquery, by_root, dz, da, roots, rows, edges, status
            )?;
        } else {
            launch!(
                k, on, temporal_attention_grad[grid];
                a, weight, dmix, dsum, dquery, by_root, dz, dwb, da, roots, rows, edges, status
            )?;
        }

        // The second launch has blocks for three tasks: rows of dh, {dw | db}, and queries.
        let row_blocks = if learn_h { on.capacity(input::H).div_ceil(ROWS).min(SUM_BLOCKS) } else { 0 };
        let time_blocks = if learn_time { (2 * a.t as usize).div_ceil(32) } else { 0 };
        let tiles = on.spec(input::QUERY).cols.div_ceil(SUM_COLUMNS);
        let queries = (on.capacity(input::QUERY).div_ceil(ROWS) * tiles).min(SUM_BLOCKS);
        let query_blocks = if on.wanted(DQUERY) { queries } else { 0 };
        let sum_blocks = row_blocks + time_blocks + query_blocks;
        if sum_blocks == 0 {
            return Ok(());
        }
        let (starts, slots, dh, listed) = if learn_h {
            let (starts, slots) = (base + saved::STARTS, base + saved::SLOTS);
            (on.input(starts), on.input(slots), on.out(DH), on.rows(slots))
        } else {
            (std::ptr::null(), std::ptr::null(), std::ptr::null_mut(), on.rows(input::ORDER))
        };
        let grid = Grid::new(sum_blocks, SUM_THREADS);
        let [for_rows, for_time, partials] = [row_blocks, time_blocks, blocks].map(|blocks| blocks as u32);
        launch!(
            k, on, temporal_attention_grad_sums[grid];
            a, dz, starts, slots, dh, rows, listed, for_rows, dwb, dw, db, for_time, partials, by_root,
            dquery, status
        )
    }
}
