//! Memory of the unique nodes after their mails: `s' = cell({s | s_partner | e | Phi(t_mail - t_s)}, s)`; nodes without
//! a mail keep `s`. The ops are [`gru_memory`] and [`rnn_memory`], a [`Cell`] each; here is what they share.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `unique` | `[n]` u32 | nodes |
//! | `memory`, `memory time` | `[v, d]` f32, `[v]` i64 | stored memory and when it was last updated |
//! | `mail`, `mail time` | `[v, d]` f32, `[v]` i64 | partner's memory of the node's mail, and its event's time |
//! | | `[n, d]` f32 | `memory` and `mail` where their rows were gathered for this step |
//! | `mail event` | `[v]` u32 | its event, or [`NONE`]: no mail |
//! | `edge` | `[e, f]` f32 | features of the mails' events, by [`FeatureRow`] |
//! | `w`, `b` | `[1, t]` f32 | time encoding |
//! | `W_x`, `W_h` | `[g d, 2 d + f + t]`, `[g d, d]` f32 | weights of message and state, g gates one below the other |
//! | `b_x`, `b_h` | `[1, g d]` f32 | |
//! | s' | `[n, d]` f32 | |
//! | time | `[n]` i64 | `t_mail` where there was a mail, else the stored time |
//! | count, row, message, gates, dt | saved for the backward: m nodes with a mail | `[m]`, `[m, 2d+f+t]`, `[m, sums d]`, `[m]` |
//!
//! **Lean mail**: a mail `{s_u | s_v | e | dt}` is stored as `s_v`, the event's id and its time. `s_u` needs no copy:
//! node u's memory changes only when u's mail is consumed and written back, so it still is the stored row; `e` is a
//! row of the feature table; `dt` follows from two times. This is exact (tested against full mails), and the gates
//! that see message and state only as a sum then multiply `s_u` by `W_x + W_h` once.
//!
//! No gradient flows into stored memory or mails; it flows to the weights and to `w`, `b`. Deterministic.
//! Source: TGN (Rossi et al. 2020), equations 1 to 4.
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
pub use grad::MemoryUpdateGrad;
use std::{marker::PhantomData, ops::Range};

/// A recurrent cell, as far as memory updates differ by it.
///
/// It has `JOINT + APART` gates, each d rows of the weights. A gate g has the terms `x(g) = W_x m + b_x` of the message and
/// `h(g) = W_h s + b_h` of the state. The first `JOINT` gates see nothing but `x + h`; the others see the two apart. So
/// every memory column has `SUMS` sums: `x + h` of the joint gates, then `x`, then `h` of the others. Rows of `SUMS` times
/// d numbers hold the first sum of all columns, then the second, and so on.
///
/// Nobody else can add one: its kernel writes what the numbers of its gates say that there is room for.
pub trait Cell: sealed::Sealed + std::fmt::Debug + Send + Sync + 'static {
    /// Name of its op.
    const NAME: &'static str;
    /// Name of the op of its gradients.
    const GRAD_NAME: &'static str;
    /// Gates that see message and state as a sum.
    const JOINT: usize;
    /// Gates that see them apart.
    const APART: usize;
    /// All its gates.
    const GATES: usize = Self::JOINT + Self::APART;
    /// Sums of a memory column.
    const SUMS: usize = Self::GATES + Self::APART;
    /// Its kernel.
    const KERNEL: unsafe fn(&Kernels, &Launch<'_>, Grid, abi::MemoryUpdate) -> Result<()>;

    /// The definition for one column of a row: the new memory from the terms `x(g)` and `h(g)` of every gate and from the
    /// column's memory `s`. Leaves in `gates` what the backward reads, `SUMS` numbers.
    fn define<R: Real>(x: impl Fn(usize) -> R, h: impl Fn(usize) -> R, s: R, gates: &mut [R]) -> R;
    /// The gradients `dpre` of the sums of one column, from what `define` left and from the gradient `dy` of the new memory.
    fn define_grad<R: Real>(dpre: &mut [R], gates: &[R], s: R, dy: R);
    /// `define` for a row: `gates` holds the sums before their biases, and afterwards what the backward reads.
    fn cpu(gates: &mut [f32], out: &mut [f32], s: &[f32], b_x: &[f32], b_h: &[f32]);
    /// `define_grad` for a row.
    fn cpu_grad(dpre: &mut [f32], gates: &[f32], s: &[f32], dy: &[f32]);
    /// Launches what makes `dpre`, `[m, SUMS d]`, of all mails.
    ///
    /// # Safety
    /// The operands must be those of [`MemoryUpdateGrad`], and `dpre` must have that room on the device.
    ///
    /// # Errors
    /// Device, when the driver refuses the launch.
    ///
    /// # Safety
    /// As [`Op::launch`], with `dpre` in the scratch.
    unsafe fn launch_grad(k: &Kernels, on: &Launch<'_>, dpre: *mut f32) -> Result<()>;
}

mod sealed {
    use super::super::{gru_memory::Gru, rnn_memory::Rnn};

    /// What only this module can implement.
    pub trait Sealed {}
    impl Sealed for Gru {}
    impl Sealed for Rnn {}
}

/// See the [module](self).
#[derive(Debug)]
pub struct MemoryUpdate<C> {
    features: FeatureRow,
    /// Whether memory and mail have a row a unique node, not a node.
    gathered: bool,
    gaps: Gaps,
    cell: PhantomData<C>,
}

/// Which row of the edge features belongs to a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureRow {
    /// The row of its event: the features of known edges are stored once.
    Event,
    /// The row of its node: the mail keeps features of its own, such as a mean.
    Node,
    /// The row of its node among the unique ones: features that were brought for this step.
    Unique,
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
    /// `[e, f]`, `[v, f]` or `[n, f]` f32, by [`FeatureRow`].
    pub edge: Var,
    /// Whether `memory` and `mail` are `[n, d]`, rows of the unique nodes that were gathered for this step: so they are
    /// read where they are kept in 16 bits. What is written is never gathered.
    pub gathered: bool,
}

/// Weights of an update by a cell of g gates: 3 of a GRU, 1 of an RNN.
#[derive(Clone, Copy, Debug)]
pub struct CellVars {
    /// `[1, t]`.
    pub time_w: Var,
    /// `[1, t]`.
    pub time_b: Var,
    /// `[g d, 2 d + f + t]`.
    pub w_x: Var,
    /// `[g d, d]`.
    pub w_h: Var,
    /// `[1, g d]`.
    pub b_x: Var,
    /// `[1, g d]`.
    pub b_h: Var,
}

impl Tape {
    /// Appends [`MemoryUpdate`]; returns s' and its times.
    ///
    /// # Errors
    /// `Shape` when widths do not fit.
    pub fn memory_update<C: Cell>(
        &mut self,
        unique: Var,
        m: MemoryVars,
        c: CellVars,
        features: FeatureRow,
        gaps: Gaps,
    ) -> Result<(Var, Var)> {
        let ins = [
            unique,
            m.memory,
            m.memory_time,
            m.mail,
            m.mail_event,
            m.mail_time,
            m.edge,
            c.time_w,
            c.time_b,
            c.w_x,
            c.w_h,
            c.b_x,
            c.b_h,
        ];
        let o =
            self.push(MemoryUpdate::<C> { features, gathered: m.gathered, gaps, cell: PhantomData }, &ins)?;
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
    /// Of a message; the most there is where it is more.
    fn message(self) -> usize {
        self.phi().saturating_add(self.t)
    }
    fn phi(self) -> usize {
        self.d.saturating_mul(2).saturating_add(self.f)
    }
}

vectorised! {
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
    unique: &'a [u32],
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
            unique: io.input(0),
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

impl<C> MemoryUpdate<C> {
    /// Times of all nodes, and the list of rows with a mail with their gaps. Returns its length. A row that is of no node has
    /// no time and no mail, nor has a mail whose features are not there.
    fn list<'a, R: Real>(&self, t: &Tables<'_, R>, io: &Io<'a>) -> (usize, &'a mut [u32]) {
        let (time, rows, dt) = (io.out::<i64>(1), io.out::<u32>(3), io.out::<R>(6));
        let mut m = 0;
        for (i, &v) in t.unique.iter().enumerate() {
            let Some(v) = io.row_of(i, v, t.mail_event.len()) else {
                time[i] = 0;
                continue;
            };
            let feature = match t.mail_event[v] {
                NONE => NONE,
                event => self.edge_row(i as u32, v, event) as u32,
            };
            let mailed = io.row_of(i, feature, io.rows(6)).is_some();
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
    /// Memory of node `v`, the `row`-th of the unique ones; none where that is no node.
    fn memory<'a, R>(&self, t: &Tables<'a, R>, row: usize, d: usize) -> Option<&'a [R]> {
        let v = t.unique[row] as usize;
        (v < t.mail_event.len()).then(|| &t.memory[self.memory_row(row, v) * d..][..d])
    }
    /// Row of memory and mail of node `v`, the `row`-th of the unique ones.
    fn memory_row(&self, row: usize, v: usize) -> usize {
        if self.gathered { row } else { v }
    }
    /// Row of the features of the mail of node `v`, the `row`-th of the unique ones.
    fn edge_row(&self, row: u32, v: usize, event: u32) -> usize {
        match self.features {
            FeatureRow::Event => event as usize,
            FeatureRow::Node => v,
            FeatureRow::Unique => row as usize,
        }
    }
}

/// What a row is that has no mail.
fn keep<R: Real>(memory: Option<&[R]>, out: &mut [R]) {
    match memory {
        Some(memory) => out.copy_from_slice(memory),
        None => out.fill(R::ZERO),
    }
}

impl<C: Cell> Op for MemoryUpdate<C> {
    const NAME: &'static str = C::NAME;
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 13)?;
        let (v, w) = (ins[2].rows.capacity, Widths::of(&ins[1], &ins[6], &ins[7]));
        let Widths { d, t, .. } = w;
        let n = ins[0].rows;
        ensure!(Self::NAME, ins[0] == Spec::ids(n, 1), "unique is {}, want {}", ins[0], Spec::ids(n, 1));
        for (i, what, dtype) in
            [(2, "memory time", DType::I64), (4, "mail event", DType::U32), (5, "mail time", DType::I64)]
        {
            typed(Self::NAME, what, &ins[i], dtype)?;
            shaped(Self::NAME, what, &ins[i], v, 1)?;
        }
        let rows = if self.gathered { ins[0].rows } else { Rows::fixed(v) };
        ensure!(Self::NAME, ins[1] == Spec::real(rows, d), "memory is {}, its times {}", ins[1], ins[2]);
        ensure!(Self::NAME, ins[3] == ins[1], "mail is {}, memory is {}", ins[3], ins[1]);
        typed(Self::NAME, "edge", &ins[6], DType::F32)?;
        let least = match self.features {
            FeatureRow::Event => 0,
            FeatureRow::Node => v,
            FeatureRow::Unique => n.capacity,
        };
        ensure!(Self::NAME, ins[6].rows.capacity >= least, "edge is {}, want {least} rows", ins[6]);
        for (what, n) in
            [("nodes", v), ("rows", n.capacity), ("events", ins[6].rows.capacity), ("width", w.message())]
        {
            countable(Self::NAME, what, n)?;
        }
        let gates = C::GATES * d;
        for (i, what, rows, cols) in [
            (7, "w", 1, t),
            (8, "b", 1, t),
            (9, "w_x", gates, w.message()),
            (10, "w_h", gates, d),
            (11, "b_x", 1, gates),
            (12, "b_h", 1, gates),
        ] {
            typed(Self::NAME, what, &ins[i], DType::F32)?;
            shaped(Self::NAME, what, &ins[i], rows, cols)?;
        }
        let listed = |spec| Out::counted_by(spec, 2);
        Ok(vec![
            Spec::real(n, d).into(),
            Spec::times(n).into(),
            Spec::count().into(),
            listed(Spec::ids(n, 1)),
            listed(Spec::real(n, w.message())),
            listed(Spec::real(n, C::SUMS * d)),
            listed(Spec::real(n, 1)),
        ])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // On the host, weights of the message with W_h folded into the joint gates'; on a device, node and row of the
        // features of every mail.
        ins[9].len().max(2 * ins[0].rows.capacity)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, w) = (ins[0].rows.capacity, Widths::of(&ins[1], &ins[6], &ins[7]));
        let read = n * (w.message() - w.t + 6) + ins[9].len() + ins[10].len();
        let flops = 2 * n * w.d * (w.message() * C::GATES + w.d * C::APART);
        Cost { bytes: 4 * (read + outs[0].len()), flops }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let t = Tables::<R>::of(io);
        let (tw, tb, w_x, w_h) = (io.input::<R>(7), io.input::<R>(8), io.input::<R>(9), io.input::<R>(10));
        let (b_x, b_h) = (io.input::<R>(11), io.input::<R>(12));
        let w = Widths::of(&io.spec(1), &io.spec(6), &io.spec(7));
        let (d, c) = (w.d, w.message());
        let (out, messages, gates) = (io.out::<R>(0), io.out::<R>(4), io.out::<R>(5));
        for i in 0..t.unique.len() {
            keep(self.memory(&t, i, d), &mut out[i * d..][..d]);
        }
        let (m, rows) = self.list(&t, io);
        let mut column = vec![R::ZERO; C::SUMS];
        for (k, &row) in rows[..m].iter().enumerate() {
            let v = t.unique[row as usize] as usize;
            let at = self.memory_row(row as usize, v);
            let s = &t.memory[at * d..][..d];
            let x = &mut messages[k * c..][..c];
            let dt = R::of(f64::from(t.dt(v, self.gaps)));
            x[..d].copy_from_slice(s);
            x[d..2 * d].copy_from_slice(&t.mail[at * d..][..d]);
            x[2 * d..w.phi()].copy_from_slice(&t.edge[self.edge_row(row, v, t.mail_event[v]) * w.f..][..w.f]);
            (0..w.t).for_each(|j| x[w.phi() + j] = define_phi(dt, tw, tb, j));
            // Row `j` of the weights `w` times `x`.
            let dot = |w: &[R], x: &[R], j: usize| -> R {
                w[j * x.len()..].iter().zip(x).map(|(&w, &x)| w * x).sum()
            };
            for j in 0..d {
                let of_message = |g: usize| dot(w_x, x, g * d + j) + b_x[g * d + j];
                let of_state = |g: usize| dot(w_h, s, g * d + j) + b_h[g * d + j];
                out[row as usize * d + j] = C::define(of_message, of_state, s[j], &mut column);
                for (g, &value) in column.iter().enumerate() {
                    gates[k * C::SUMS * d + g * d + j] = value;
                }
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
        let (joint, gates, sums) = (C::JOINT * d, C::GATES * d, C::SUMS * d);
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
            if j < joint {
                row.iter_mut().zip(&w_h[j * d..][..d]).for_each(|(w, &h)| *w += h);
            }
        });
        let of_message = Mat::new(folded, gates, c).t();
        let of_state = Mat::new(&w_h[joint * d..], C::APART * d, d).t();
        let edge_of = |row: u32, v: usize| &t.edge[self.edge_row(row, v, t.mail_event[v]) * w.f..][..w.f];
        // A part of the mailed rows, and the rows before each of them that keep their memory.
        let parts = row_parts(m, d, c);
        let first = |part: &Range<usize>| if part.start == 0 { 0 } else { rows[part.start] as usize };
        let last = |part: &Range<usize>| if part.end == m { t.unique.len() } else { rows[part.end] as usize };
        let outs: Vec<Range<usize>> = parts.iter().map(|p| first(p)..last(p)).collect();
        let made = split_rows(messages, &parts, c).into_iter().zip(split_rows(gates_out, &parts, sums));
        made.zip(split_rows(out, &outs, d)).zip(parts.iter().zip(&outs)).in_parallel(
            1,
            |(((x, pre), out), (part, outs))| {
                let (rows, n) = (&rows[part.clone()], part.len());
                for (k, x) in x.chunks_exact_mut(c).enumerate() {
                    // Rows come from all over memory: ask for those of a later message while this one is made.
                    if let Some(&row) = rows.get(k + 4) {
                        let v = t.unique[row as usize] as usize;
                        let at = self.memory_row(row as usize, v);
                        simd::prefetch(edge_of(row, v));
                        simd::prefetch(&t.memory[at * d..][..d]);
                        simd::prefetch(&t.mail[at * d..][..d]);
                    }
                    let v = t.unique[rows[k] as usize] as usize;
                    let at = self.memory_row(rows[k] as usize, v);
                    let (s, partner) = (&t.memory[at * d..][..d], &t.mail[at * d..][..d]);
                    message(x, s, partner, edge_of(rows[k], v), t.dt(v, self.gaps), tw, tb);
                }
                matmul(MatMut::strided(pre, n, gates, sums), Mat::new(x, n, c), of_message, false);
                if n > 0 {
                    let own = Mat::strided(x, n, d, c);
                    matmul(MatMut::strided(&mut pre[gates..], n, sums - gates, sums), own, of_state, false);
                }
                let mut mailed =
                    rows.iter().zip(pre.chunks_exact_mut(sums).zip(x.chunks_exact(c))).peekable();
                for (row, out) in outs.clone().zip(out.chunks_exact_mut(d)) {
                    match mailed.next_if(|(r, _)| **r as usize == row) {
                        Some((_, (pre, x))) => C::cpu(pre, out, &x[..d], b_x, b_h),
                        None => keep(self.memory(&t, row, d), out),
                    }
                }
            },
        );
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (n, d) = (on.capacity(0), on.cols(1));
        let (count, mailed, dt) = (on.kept(2), on.kept(3), on.kept(6));
        let node = on.scratch().cast::<u32>();
        // Scratch has room for both lists.
        let feature = node.wrapping_add(n);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.memory_update_list(
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
                on.rows(6),
                self.gaps.into(),
                match self.features {
                    FeatureRow::Event => 0,
                    FeatureRow::Node => 1,
                    FeatureRow::Unique => 2,
                },
                u32::from(self.gathered),
                on.capacity(4) as u32,
                on.status(),
            )
        }?;
        let tiles = Grid::tiles(n, C::SUMS * d as usize).blocks;
        let grid = Grid::new(tiles.0 as usize * tiles.1 as usize, Grid::THREADS);
        let update = abi::MemoryUpdate {
            unique: on.input(0),
            mail_event: on.input(4),
            memory: on.input(1),
            mail: on.input(3),
            edge: on.input(6),
            w: on.input(7),
            b: on.input(8),
            w_x: on.input(9),
            w_h: on.input(10),
            b_x: on.input(11),
            b_h: on.input(12),
            mailed,
            node,
            feature,
            dt,
            out: on.kept(0),
            messages: on.out(4),
            gates: on.out(5),
            rows: on.rows(0),
            mails: abi::Rows { count, times: 1, capacity: n as u32 },
            d,
            f: on.cols(6),
            t: on.cols(7),
            gathered: u32::from(self.gathered),
            precision: on.precision(),
            nodes: on.capacity(4) as u32,
        };
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { (C::KERNEL)(k, on, grid, update) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dout) = douts[0] else { return Ok(vec![None; 13]) };
        let (i, o) = (&node.ins, &node.outs);
        let grad = MemoryUpdateGrad::<C>(PhantomData);
        let d = t.push(grad, &[o[3], o[4], o[5], o[6], i[7], i[8], i[9], i[10], dout])?;
        let mut dins = vec![None; 7];
        dins.extend(d.into_iter().map(Some));
        Ok(dins)
    }
}

/// Inputs of a cell's cases: `[nodes, unique, d, f, t, g]`, one node in g without a mail, g = 0: none; features lie
/// by event, by unique node or by node, as f mod 3 says, and memory and mails by unique node where a seventh number is 1.
/// There is room for two unique nodes more.
pub(super) fn build<C: Cell>(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, d, f, t, gap] = dims[..6] else { return Err(Error::shape(C::NAME, "six sizes, or seven")) };
    let gathered = dims.get(6) == Some(&1);
    let events_held = v.max(20);
    let count = c.count(n);
    let mut unique: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 1) % v as u32).collect();
    unique.extend([NONE; 2]);
    let unique = c.values(Spec::ids(Rows::live(n + 2, count), 1), &unique);
    let rows = |c: &mut CaseBuilder| if gathered { c.live_real(n + 2, count, d) } else { c.real(v, d) };
    let without = |i: usize| gap > 0 && i % gap == gap - 1;
    let events: Vec<u32> =
        (0..v).map(|i| if without(i) { NONE } else { c.below(events_held) as u32 }).collect();
    let time: Vec<i64> = (0..v as i64).map(|i| i % 3).collect();
    let mail_time: Vec<i64> = time.iter().map(|t| t + 2).collect();
    let m = MemoryVars {
        memory: rows(c),
        memory_time: c.times(&time),
        mail: rows(c),
        mail_event: c.ids(&events, 1),
        mail_time: c.times(&mail_time),
        edge: c.real(events_held, f),
        gathered,
    };
    let gates = C::GATES * d;
    let w = CellVars {
        time_w: c.real(1, t),
        time_b: c.real(1, t),
        w_x: c.real_in(gates, 2 * d + f + t, |u| 0.3 * u),
        w_h: c.real_in(gates, d, |u| 0.3 * u),
        b_x: c.real(1, gates),
        b_h: c.real(1, gates),
    };
    let gaps = Gaps::unlimited(0.5);
    let features = [FeatureRow::Node, FeatureRow::Event, FeatureRow::Unique][f % 3];
    let (s, time) = c.tape.memory_update::<C>(unique, m, w, features, gaps)?;
    Ok(Built::new(&[s, time], &[w.time_w, w.time_b, w.w_x, w.w_h, w.b_x, w.b_h]))
}
