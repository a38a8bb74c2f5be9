//! Memory of the distinct nodes after their mails: `s' = GRU({s | s_partner | e | Phi(t_mail - t_s)}, s)`; nodes
//! without a mail keep `s`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `distinct` | `[n]` u32 | nodes |
//! | `memory`, `memory time` | `[v, d]` f32, `[v]` i64 | stored memory and when it was last updated |
//! | `mail`, `mail time` | `[v, d]` f32, `[v]` i64 | partner's memory of the node's mail, and its event's time |
//! | `mail event` | `[v]` u32 | its event, or [`NONE`]: no mail |
//! | `edge` | `[e, f]` f32 | edge features by event, or by node where the mail keeps its own (mean combiner) |
//! | `w`, `b` | `[1, t]` f32 | time encoding |
//! | `W_x`, `W_h` | `[3 d, 2 d + f + t]`, `[3 d, d]` f32 | gates r, z, n as PyTorch's `GRUCell` |
//! | `b_x`, `b_h` | `[1, 3 d]` f32 | |
//! | s' | `[n, d]` f32 | |
//! | time | `[n]` i64 | `t_mail` where there was a mail, else the stored time |
//! | count, row, message, gates, dt | saved for the backward: m nodes with a mail | `[m]`, `[m, 2d+f+t]`, `[m, 4 d]`, `[m]` |
//!
//! **Lean mail**: a mail `{s_u | s_v | e | dt}` is stored as `s_v`, the event's id and its time. `s_u` needs no copy:
//! node u's memory changes only when u's mail is consumed and written back, so it still is the stored row; `e` is a
//! row of the feature table; `dt` follows from two times. This is exact (tested against full mails), and the gates
//! r and z then multiply `s_u` by `W_x + W_h` once.
//!
//! No gradient flows into stored memory or mails; it flows to the weights and to `w`, `b`. Deterministic.
//! Source: TGN (Rossi et al. 2020), equations 1 to 4; GRU: Cho et al. 2014 in PyTorch's form.
mod grad;

use super::{
    time_encode::{define_phi, phi},
    *,
};
use crate::runtime::{
    cuda::abi,
    matmul::{Mat, MatMut, matmul, row_parts, split_rows},
    simd::{self, vectorised},
    team::InParallel,
};
pub use grad::GruMemoryGrad;
use std::ops::Range;

/// See the [module](self).
#[derive(Debug)]
pub struct GruMemory {
    features: FeatureRow,
    gaps: Gaps,
}

/// Which row of the edge features belongs to a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureRow {
    /// The row of its event: the features of known edges are stored once.
    Event,
    /// The row of its node: the mail keeps features of its own, such as a mean.
    Node,
}

/// Node memory and mailbox as values; all but `edge` are state.
#[derive(Clone, Copy, Debug)]
pub struct MemoryVars {
    /// `[v, d]` f32.
    pub memory: Var,
    /// `[v]` i64 ticks.
    pub memory_time: Var,
    /// `[v, d]` f32: partner's memory.
    pub mail: Var,
    /// `[v]` u32 event, or `NONE`.
    pub mail_event: Var,
    /// `[v]` i64 ticks.
    pub mail_time: Var,
    /// `[e, f]` or `[v, f]` f32.
    pub edge: Var,
}

/// Weights of the update.
#[derive(Clone, Copy, Debug)]
pub struct GruVars {
    /// `[1, t]`.
    pub time_w: Var,
    /// `[1, t]`.
    pub time_b: Var,
    /// `[3 d, 2 d + f + t]`.
    pub w_x: Var,
    /// `[3 d, d]`.
    pub w_h: Var,
    /// `[1, 3 d]`.
    pub b_x: Var,
    /// `[1, 3 d]`.
    pub b_h: Var,
}

impl Tape {
    /// Appends [`GruMemory`]; returns s' and its times.
    ///
    /// # Errors
    /// `Shape` when widths do not fit.
    pub fn gru_memory(
        &mut self,
        distinct: Var,
        m: MemoryVars,
        g: GruVars,
        features: FeatureRow,
        gaps: Gaps,
    ) -> Result<(Var, Var)> {
        let ins = [
            distinct,
            m.memory,
            m.memory_time,
            m.mail,
            m.mail_event,
            m.mail_time,
            m.edge,
            g.time_w,
            g.time_b,
            g.w_x,
            g.w_h,
            g.b_x,
            g.b_h,
        ];
        let o = self.push(GruMemory { features, gaps }, &ins)?;
        Ok((o[0], o[1]))
    }
}

/// Widths: memory, edge features, time encoding, message.
#[derive(Clone, Copy)]
struct Widths {
    d: usize,
    f: usize,
    t: usize,
}
impl Widths {
    fn of(memory: &Spec, edge: &Spec, time: &Spec) -> Self {
        Widths { d: memory.cols, f: edge.cols, t: time.cols }
    }
    fn message(self) -> usize {
        2 * self.d + self.f + self.t
    }
    fn phi(self) -> usize {
        2 * self.d + self.f
    }
}

vectorised! {
    /// Gates of one row. `pre` is `[r | z | n_x | n_h]` before its biases, and holds `[r | z | n | n_h]` afterwards.
    fn gates(pre: &mut [f32], out: &mut [f32], s: &[f32], b_x: &[f32], b_h: &[f32]) {
        let d = s.len();
        let (rz, n) = pre.split_at_mut(2 * d);
        for ((g, &bx), &bh) in rz.iter_mut().zip(b_x).zip(b_h) {
            *g = simd::sigmoid(*g + (bx + bh));
        }
        let (r, z) = rz.split_at(d);
        let (n, nh) = n.split_at_mut(d);
        let (bx, bh) = (&b_x[2 * d..], &b_h[2 * d..]);
        for i in 0..d {
            let h = nh[i] + bh[i];
            let c = simd::tanh(r[i].mul_add(h, n[i] + bx[i]));
            (n[i], nh[i]) = (c, h);
            out[i] = (1.0 - z[i]).mul_add(c, z[i] * s[i]);
        }
    }
    fn message(m: &mut [f32], s: &[f32], partner: &[f32], edge: &[f32], dt: f32, w: &[f32], b: &[f32]) {
        let (own, rest) = m.split_at_mut(s.len());
        let (other, rest) = rest.split_at_mut(s.len());
        let (features, time) = rest.split_at_mut(edge.len());
        own.copy_from_slice(s);
        other.copy_from_slice(partner);
        features.copy_from_slice(edge);
        phi(dt, w, b, time, None);
    }
}

/// Stored tables that a run reads.
struct Tables<'a, R> {
    distinct: &'a [u32],
    memory: &'a [R],
    memory_time: &'a [i64],
    mail: &'a [R],
    mail_event: &'a [u32],
    mail_time: &'a [i64],
    edge: &'a [R],
}

impl<'a, R: Real> Tables<'a, R> {
    fn of(io: &Io<'a>) -> Self {
        Tables {
            distinct: io.input(0),
            memory: io.input(1),
            memory_time: io.input(2),
            mail: io.input(3),
            mail_event: io.input(4),
            mail_time: io.input(5),
            edge: io.input(6),
        }
    }
    /// Seconds between the node's last update and its mail, as f32.
    fn dt(&self, v: usize, gaps: Gaps) -> f32 {
        gaps.seconds(self.memory_time[v], self.mail_time[v])
    }
}

impl GruMemory {
    /// Times of all nodes, and the list of rows with a mail with their gaps. Returns its length.
    fn list<'a, R: Real>(&self, t: &Tables<'_, R>, io: &Io<'a>) -> (usize, &'a mut [u32]) {
        let (time, rows, dt) = (io.out::<i64>(1), io.out::<u32>(3), io.out::<R>(6));
        let mut m = 0;
        for (i, &v) in t.distinct.iter().enumerate() {
            let v = v as usize;
            let mailed = t.mail_event[v] != NONE;
            time[i] = if mailed { t.mail_time[v] } else { t.memory_time[v] };
            if mailed {
                rows[m] = i as u32;
                dt[m] = R::of(f64::from(t.dt(v, self.gaps)));
                m += 1;
            }
        }
        io.out::<u32>(2)[0] = m as u32;
        (m, rows)
    }
    fn edge_row(&self, v: usize, event: u32) -> usize {
        match self.features {
            FeatureRow::Event => event as usize,
            FeatureRow::Node => v,
        }
    }
}

impl Op for GruMemory {
    const NAME: &'static str = "gru_memory";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 13)?;
        let (v, w) = (ins[1].rows.cap, Widths::of(&ins[1], &ins[6], &ins[7]));
        let Widths { d, t, .. } = w;
        typed(Self::NAME, "distinct", &ins[0], DType::U32)?;
        typed(Self::NAME, "memory", &ins[1], DType::F32)?;
        for (i, what, dtype) in
            [(2, "memory time", DType::I64), (4, "mail event", DType::U32), (5, "mail time", DType::I64)]
        {
            typed(Self::NAME, what, &ins[i], dtype)?;
            shaped(Self::NAME, what, &ins[i], v, 1)?;
        }
        shaped(Self::NAME, "mail", &ins[3], v, d)?;
        typed(Self::NAME, "edge", &ins[6], DType::F32)?;
        shaped(Self::NAME, "w", &ins[7], 1, t)?;
        shaped(Self::NAME, "b", &ins[8], 1, t)?;
        shaped(Self::NAME, "w_x", &ins[9], 3 * d, w.message())?;
        shaped(Self::NAME, "w_h", &ins[10], 3 * d, d)?;
        shaped(Self::NAME, "b_x", &ins[11], 1, 3 * d)?;
        shaped(Self::NAME, "b_h", &ins[12], 1, 3 * d)?;
        let n = ins[0].rows;
        let listed = |spec| Out::counted_by(spec, 2);
        Ok(vec![
            Spec::real(n, d).into(),
            Spec::times(n).into(),
            Spec::count().into(),
            listed(Spec::ids(n, 1)),
            listed(Spec::real(n, w.message())),
            listed(Spec::real(n, 4 * d)),
            listed(Spec::real(n, 1)),
        ])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // On the host, weights of [r | z | n_x] with W_h folded into the first two; on a device, node and row of the
        // features of every mail.
        ins[9].len().max(2 * ins[0].rows.cap)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, w) = (ins[0].rows.cap, Widths::of(&ins[1], &ins[6], &ins[7]));
        let read = n * (w.message() - w.t + 6) + ins[9].len() + ins[10].len();
        Cost { bytes: 4 * (read + outs[0].len()), flops: 2 * n * (w.message() * 3 * w.d + w.d * w.d) }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let t = Tables::<R>::of(io);
        let (tw, tb, w_x, w_h) = (io.input::<R>(7), io.input::<R>(8), io.input::<R>(9), io.input::<R>(10));
        let (b_x, b_h) = (io.input::<R>(11), io.input::<R>(12));
        let w = Widths::of(&io.spec(1), &io.spec(6), &io.spec(7));
        let (d, c) = (w.d, w.message());
        let (out, messages, gates) = (io.out::<R>(0), io.out::<R>(4), io.out::<R>(5));
        for (i, &v) in t.distinct.iter().enumerate() {
            out[i * d..][..d].copy_from_slice(&t.memory[v as usize * d..][..d]);
        }
        let (m, rows) = self.list(&t, io);
        for (k, &row) in rows[..m].iter().enumerate() {
            let v = t.distinct[row as usize] as usize;
            let s = &t.memory[v * d..][..d];
            let x = &mut messages[k * c..][..c];
            let dt = R::of(f64::from(t.dt(v, self.gaps)));
            x[..d].copy_from_slice(s);
            x[d..2 * d].copy_from_slice(&t.mail[v * d..][..d]);
            x[2 * d..w.phi()].copy_from_slice(&t.edge[self.edge_row(v, t.mail_event[v]) * w.f..][..w.f]);
            (0..w.t).for_each(|j| x[w.phi() + j] = define_phi(dt, tw, tb, j));
            // Row `j` of the weights `w` times `x`.
            let dot = |w: &[R], x: &[R], j: usize| -> R {
                w[j * x.len()..].iter().zip(x).map(|(&w, &x)| w * x).sum()
            };
            for j in 0..d {
                let gate = |g: usize| dot(w_x, x, g * d + j) + b_x[g * d + j];
                let hidden = |g: usize| dot(w_h, s, g * d + j) + b_h[g * d + j];
                let r = (gate(0) + hidden(0)).sigmoid();
                let z = (gate(1) + hidden(1)).sigmoid();
                let nh = hidden(2);
                let n = (gate(2) + r * nh).tanh();
                for (g, value) in [r, z, n, nh].into_iter().enumerate() {
                    gates[k * 4 * d + g * d + j] = value;
                }
                out[row as usize * d + j] = (R::ONE - z) * n + z * s[j];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let t = Tables::<f32>::of(io);
        let (tw, tb, w_x, w_h) =
            (io.input::<f32>(7), io.input::<f32>(8), io.input::<f32>(9), io.input::<f32>(10));
        let (b_x, b_h) = (io.input::<f32>(11), io.input::<f32>(12));
        let w = Widths::of(&io.spec(1), &io.spec(6), &io.spec(7));
        let (d, c) = (w.d, w.message());
        let (out, messages, gates_out) = (io.out::<f32>(0), io.out::<f32>(4), io.out::<f32>(5));
        let (m, rows) = self.list(&t, io);
        let rows = &rows[..m];
        if d == 0 {
            return;
        }
        let folded = io.scratch::<f32>();
        let folding = folded.chunks_exact_mut(c).zip(w_x.chunks_exact(c)).enumerate();
        folding.in_parallel(64, |(j, (row, w_x))| {
            row.copy_from_slice(w_x);
            if j < 2 * d {
                row.iter_mut().zip(&w_h[j * d..][..d]).for_each(|(w, &h)| *w += h);
            }
        });
        let (w_r, w_n) = (Mat::new(folded, 3 * d, c).t(), Mat::new(&w_h[2 * d * d..], d, d).t());
        let edge_of = |v: usize| &t.edge[self.edge_row(v, t.mail_event[v]) * w.f..][..w.f];
        // A part of the mailed rows, and the rows before each of them that keep their memory.
        let parts = row_parts(m, d, c);
        let first = |part: &Range<usize>| if part.start == 0 { 0 } else { rows[part.start] as usize };
        let last =
            |part: &Range<usize>| if part.end == m { t.distinct.len() } else { rows[part.end] as usize };
        let outs: Vec<Range<usize>> = parts.iter().map(|p| first(p)..last(p)).collect();
        let made = split_rows(messages, &parts, c).into_iter().zip(split_rows(gates_out, &parts, 4 * d));
        made.zip(split_rows(out, &outs, d)).zip(parts.iter().zip(&outs)).in_parallel(
            1,
            |(((x, pre), out), (part, outs))| {
                let (rows, n) = (&rows[part.clone()], part.len());
                for (k, x) in x.chunks_exact_mut(c).enumerate() {
                    // Rows come from all over memory: ask for those of a later message while this one is made.
                    if let Some(&row) = rows.get(k + 4) {
                        let v = t.distinct[row as usize] as usize;
                        simd::prefetch(edge_of(v));
                        simd::prefetch(&t.memory[v * d..][..d]);
                        simd::prefetch(&t.mail[v * d..][..d]);
                    }
                    let v = t.distinct[rows[k] as usize] as usize;
                    let (s, partner) = (&t.memory[v * d..][..d], &t.mail[v * d..][..d]);
                    message(x, s, partner, edge_of(v), t.dt(v, self.gaps), tw, tb);
                }
                matmul(MatMut::strided(pre, n, 3 * d, 4 * d), Mat::new(x, n, c), w_r, false);
                if n > 0 {
                    let own = Mat::strided(x, n, d, c);
                    matmul(MatMut::strided(&mut pre[3 * d..], n, d, 4 * d), own, w_n, false);
                }
                let mut mailed =
                    rows.iter().zip(pre.chunks_exact_mut(4 * d).zip(x.chunks_exact(c))).peekable();
                for (row, out) in outs.clone().zip(out.chunks_exact_mut(d)) {
                    match mailed.next_if(|(r, _)| **r as usize == row) {
                        Some((_, (pre, x))) => gates(pre, out, &x[..d], b_x, b_h),
                        None => out.copy_from_slice(&t.memory[t.distinct[row] as usize * d..][..d]),
                    }
                }
            },
        );
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (n, d, f, t) = (on.cap(0), on.cols(1), on.cols(6), on.cols(7));
        let (count, mailed, dt) = (on.kept(2), on.kept(3), on.kept(6));
        let node = on.scratch().cast::<u32>();
        // Scratch has room for both lists.
        let feature = node.wrapping_add(n);
        let by_node = u32::from(self.features == FeatureRow::Node);
        k.gru_memory_list(
            on,
            Grid::new(1, 1024),
            on.input(0),
            on.input(2),
            on.input(4),
            on.input(5),
            on.kept(1),
            count,
            mailed,
            node,
            feature,
            dt,
            on.rows(0),
            self.gaps.into(),
            by_node,
        )?;
        let mails = abi::Rows { count, times: 1, cap: n as u32 };
        let tiles = Grid::tiles(n, 4 * d as usize).blocks;
        k.gru_memory(
            on,
            Grid::new(tiles.0 as usize * tiles.1 as usize, Grid::THREADS),
            on.input(0),
            on.input(1),
            on.input(3),
            on.input(4),
            on.input(6),
            on.input(7),
            on.input(8),
            on.input(9),
            on.input(10),
            on.input(11),
            on.input(12),
            mailed,
            node,
            feature,
            dt,
            on.kept(0),
            on.out(4),
            on.out(5),
            on.rows(0),
            mails,
            d,
            f,
            t,
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dout) = douts[0] else { return Ok(vec![None; 13]) };
        let (i, o) = (&node.ins, &node.outs);
        let d = t.push(GruMemoryGrad, &[o[3], o[4], o[5], o[6], i[7], i[8], i[9], i[10], dout])?;
        let mut dins = vec![None; 7];
        dins.extend(d.into_iter().map(Some));
        Ok(dins)
    }
}

/// `[nodes, distinct, d, f, t, g]`, one node in g without a mail, g = 0: none; features belong to nodes where f is odd; no
/// distinct node; wide rows; several tiles; many rows. There is room for two distinct nodes more.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 1, 4],
    &[5, 0, 3, 2, 4, 4],
    &[9, 6, 4, 3, 5, 4],
    &[40, 33, 100, 17, 20, 4],
    &[6, 6, 3, 0, 2, 4],
    &[150, 130, 21, 5, 9, 4],
    &[4_200, 4_150, 1, 1, 1, 3],
];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 1_165, 100, 172, 100, 0]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, d, f, t, gap] = *dims else { return Err(Error::shape("gru_memory", "six sizes")) };
    let events_held = v.max(20);
    let count = c.count(n);
    let mut distinct: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 1) % v as u32).collect();
    distinct.extend([NONE; 2]);
    let distinct = c.values(Spec::ids(Rows::live(n + 2, count), 1), &distinct);
    let without = |i: usize| gap > 0 && i % gap == gap - 1;
    let events: Vec<u32> =
        (0..v).map(|i| if without(i) { NONE } else { c.below(events_held) as u32 }).collect();
    let time: Vec<i64> = (0..v as i64).map(|i| i % 3).collect();
    let mail_time: Vec<i64> = time.iter().map(|t| t + 2).collect();
    let m = MemoryVars {
        memory: c.real(v, d),
        memory_time: c.times(&time),
        mail: c.real(v, d),
        mail_event: c.ids(&events, 1),
        mail_time: c.times(&mail_time),
        edge: c.real(events_held, f),
    };
    let g = GruVars {
        time_w: c.real(1, t),
        time_b: c.real(1, t),
        w_x: c.real_in(3 * d, 2 * d + f + t, |u| 0.3 * u),
        w_h: c.real_in(3 * d, d, |u| 0.3 * u),
        b_x: c.real(1, 3 * d),
        b_h: c.real(1, 3 * d),
    };
    let gaps = Gaps::unlimited(0.5);
    let features = if f % 2 == 0 { FeatureRow::Event } else { FeatureRow::Node };
    let (s, time) = c.tape.gru_memory(distinct, m, g, features, gaps)?;
    Ok(Built::new(&[s, time], &[g.time_w, g.time_b, g.w_x, g.w_h, g.b_x, g.b_h]))
}
