//! Gradients of `query`, `w`, `b`, and of `h` where it is not data.
use super::{
    super::*,
    Operands, THREADS, TemporalAttention,
    rows::{Upstream, Workspace, backward, sum_rows},
};
use crate::runtime::{parts, simd::LANES, team::InParallel};

/// Gradients of [`TemporalAttention`]. After its operands come the weights, the gradients of mix and sum, and, where h has a
/// gradient, the slots by row of h ([`group_slots`](super::super::group_slots)).
#[derive(Debug)]
pub struct TemporalAttentionGrad(pub(super) TemporalAttention);

/// The output that is the gradient of h, where it has one.
const DH: usize = 3;
/// Most blocks on a device, where each leaves a partial sum.
const BLOCKS: usize = 1024;
/// Rows of h that a block sums there, a warp each.
const ROWS: usize = 16;

impl TemporalAttentionGrad {
    /// Scratch in parts: partials of {dw | db}, rows of dz, which roots lead, and {dw | db}. Data has none for the second and
    /// the third.
    fn layout(&self, ins: &[Spec]) -> [usize; 4] {
        let dwb = 2 * ins[8].cols.next_multiple_of(LANES);
        let [dz, leading] = if self.0.learn_h { [ins[3].len() * ins[2].cols, ins[10].len()] } else { [0, 0] };
        [parts::PARTS * dwb, dz, leading, dwb]
    }
    /// Scratch on a device, in parts that keep rows aligned: dz, gradients of queries by root, partials of {dw | db}, and
    /// gradients of weights.
    fn device_layout(&self, specs: impl Fn(usize) -> Spec) -> [usize; 4] {
        let (roots, k) = (specs(10).rows.capacity, specs(3).cols);
        [
            if self.0.learn_h { roots * k * specs(2).cols } else { 0 },
            roots * specs(0).cols,
            BLOCKS * 2 * specs(8).cols,
            roots * self.0.heads * k,
        ]
        .map(|n| n.next_multiple_of(4))
    }
}

impl Op for TemporalAttentionGrad {
    const NAME: &'static str = "temporal_attention_grad";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let more = self.0.operands();
        arity(Self::NAME, ins, more + if self.0.learn_h { 5 } else { 3 })?;
        let outs = Op::infer(&self.0, &ins[..more])?;
        for (at, what, of) in [(0, "weight", 2), (1, "dmix", 0), (2, "dsum", 1)] {
            let (found, want) = (ins[more + at], outs[of].spec);
            ensure!(Self::NAME, found == want, "{what} is {found}, want {want}");
        }
        if let [starts, slots] = ins[more + 3..] {
            let want = Spec::ids(Rows::fixed(ins[2].rows.capacity + 1), 1);
            ensure!(Self::NAME, starts == want, "starts are {starts}, want {want}");
            ensure!(Self::NAME, slots == Spec::ids(slots.rows, 1), "slots are {slots}");
        }
        let of_h = self.0.learn_h.then_some(ins[2]);
        Ok([ins[0], ins[8], ins[9]].into_iter().chain(of_h).map(Out::from).collect())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (host, device) = (self.layout(ins), self.device_layout(|i| ins[i]));
        host.iter().sum::<usize>().max(device.iter().sum())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let forward = Op::cost(&self.0, ins, outs);
        let dh = outs.get(DH).map_or(0, |dh| 2 * ins[3].len() * ins[2].cols + dh.len());
        let rows = dh + outs[0].len();
        Cost { bytes: forward.bytes + 4 * rows, flops: 3 * forward.flops }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let o = Operands::<R>::of(&self.0, io);
        let more = self.0.operands();
        let (weights, dmix, dsum) = (io.input::<R>(more), io.input::<R>(more + 1), io.input::<R>(more + 2));
        let [dquery, dw, db] = [0, 1, 2].map(|k| io.out::<R>(k));
        let dh = if self.0.learn_h { io.out::<R>(DH) } else { &mut [] };
        [&mut *dquery, dh, dw, db].into_iter().for_each(|g| g.fill(R::ZERO));
        let (c, k, d, heads) = (o.width(), o.k, o.d, self.0.heads);
        for (query, at, i, n) in o.roots() {
            for h in 0..heads {
                let row = at * heads + h;
                let (q, g) = (o.query_of(query, h), &dmix[row * c..][..c]);
                let a = |j: usize| weights[row * k + j];
                let da = |j: usize| {
                    ((0..c).map(|l| g[l] * o.z(i * k + j, l)).sum::<R>() + dsum[row]) * o.kept(i, h, j)
                };
                let mean: R = (0..n).map(|j| a(j) * da(j)).sum();
                for j in 0..n {
                    let (slot, ds) = (i * k + j, a(j) * (da(j) - mean) * R::of(o.scale));
                    let a = a(j) * o.kept(i, h, j);
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
        let o = Operands::<f32>::of(&self.0, io);
        let more = self.0.operands();
        let (weights, dmix, dsum) =
            (io.input::<f32>(more), io.input::<f32>(more + 1), io.input::<f32>(more + 2));
        let [dquery, dw, db] = [0, 1, 2].map(|k| io.out::<f32>(k));
        let learn_h = self.0.learn_h && io.wanted(DH);
        let dh = if learn_h { io.out::<f32>(DH) } else { &mut [] };
        let (c, k, d, t, heads) = (o.width(), o.k, o.d, o.w.len(), self.0.heads);
        let rows = io.rows(2);
        if c == 0 || k == 0 || o.order.is_empty() || !o.grouped {
            [dquery, dh, dw, db].into_iter().for_each(|g| g.fill(0.0));
            return;
        }
        let specs: Vec<Spec> = (0..11).map(|i| io.spec(i)).collect();
        let layout = self.layout(&specs);
        let (partials, rest) = io.scratch::<f32>().split_at_mut(layout[0]);
        let (dz, rest) = rest.split_at_mut(layout[1]);
        let (leading, rest) = rest.split_at_mut(layout[2]);
        let leading = bytemuck::cast_slice_mut::<f32, u32>(leading);
        let sum = &mut rest[..layout[3]];

        // A thread owns whole queries, so their gradients are written by one thread.
        let mut tasks = Vec::with_capacity(parts::PARTS);
        let (mut dquery, mut dz_left, mut leading_left) = (dquery, &mut *dz, &mut *leading);
        partials.fill(0.0);
        for ((queries, roots), dwb) in o.parts().zip(partials.chunks_exact_mut(sum.len().max(1))) {
            let dquery = split_off(&mut dquery, queries.len() * heads * c);
            let listed = if learn_h { roots.len() } else { 0 };
            let dz = split_off(&mut dz_left, listed * k * d);
            tasks.push((queries, dquery, dz, split_off(&mut leading_left, listed), dwb));
        }
        let up = Upstream { weights, dmix, dsum, learn_time: io.wanted(1) || io.wanted(2), learn_h };
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
            let (starts, slots) = (io.input::<u32>(more + 3), io.input::<u32>(more + 4));
            let (size, dz, leading) = (parts::part_rows(rows), &*dz, &*leading);
            dh.chunks_mut(size * d)
                .enumerate()
                .in_parallel(1, |(i, dh)| sum_rows(io, dh, d, i * size, starts, slots, dz, leading, k));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let a = self.0.on_device(on);
        let more = self.0.operands();
        let mut at = 0;
        let [dz, by_root, dwb, da] = self.device_layout(|i| on.spec(i)).map(|n| {
            at += n;
            on.scratch().wrapping_add(at - n)
        });
        let wanted = |is: bool, p: *mut f32| if is { p } else { std::ptr::null_mut() };
        let learn_h = self.0.learn_h && on.wanted(DH) && a.d > 0;
        let learn_time = on.wanted(1) || on.wanted(2);
        let (dz, dwb, dquery) = (wanted(learn_h, dz), wanted(learn_time, dwb), on.out(0));

        let blocks = on.capacity(10).min(BLOCKS);
        let (weight, dmix, dsum) = (on.input(more), on.input(more + 1), on.input(more + 2));
        let grid = Grid::new(blocks, THREADS);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.temporal_attention_grad(
                on,
                grid,
                a,
                weight,
                dmix,
                dsum,
                dquery,
                by_root,
                dz,
                dwb,
                da,
                on.rows(6),
                on.rows(2),
                on.rows(7),
                on.status(),
            )
        }?;
        // Blocks of the three tasks of one launch.
        let row_blocks = if learn_h { on.capacity(2).div_ceil(ROWS).min(BLOCKS) } else { 0 };
        let time_blocks = if learn_time { (2 * a.t as usize).div_ceil(32) } else { 0 };
        let query_blocks = if on.wanted(0) { on.capacity(0).min(BLOCKS) } else { 0 };
        let (starts, slots, dh, listed) = if learn_h {
            (on.input(more + 3), on.input(more + 4), on.out(DH), on.rows(more + 4))
        } else {
            (std::ptr::null(), std::ptr::null(), std::ptr::null_mut(), on.rows(10))
        };
        let all = row_blocks + time_blocks + query_blocks;
        if all > 0 {
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.temporal_attention_grad_sums(
                    on,
                    Grid::new(all, 32 * ROWS as u32),
                    a,
                    dz,
                    starts,
                    slots,
                    dh,
                    on.rows(2),
                    listed,
                    row_blocks as u32,
                    dwb,
                    on.out(1),
                    on.out(2),
                    time_blocks as u32,
                    blocks as u32,
                    by_root,
                    dquery,
                    on.status(),
                )
            }?;
        }
        Ok(())
    }
}
