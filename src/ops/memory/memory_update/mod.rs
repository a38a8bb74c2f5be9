//! `s' = cell({s | s_partner | e | Phi(t_mail - t_s)}, s)`: updates the memory of the unique nodes from their
//! mails; nodes without a mail keep `s`. The ops are [`gru_memory`] and [`rnn_memory`], one [`Cell`] each;
//! this module is their common code.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `nodes` | `[n]` u32 | nodes |
//! | `memory`, `memory time` | `[v, d]` f32, `[v]` i64 | node memory and the time of its last update |
//! | `mail`, `mail time` | `[v, d]` f32, `[v]` i64 | partner's memory in the node's mail, and the time of the mail's event |
//! | | `[n, ..]` | shapes of all state if its rows were gathered for this step: row i is that of `nodes[i]` |
//! | `mail event` | `[v]` u32 | event of the mail, or [`NONE`] if there is no mail |
//! | `edge` | `[e, f]` f32 | features of the mails' events, indexed by [`FeatureRow`] |
//! | `w`, `b` | `[1, t]` f32 | time encoding |
//! | `W_x`, `W_h` | `[g d, 2 d + f + t]`, `[g d, d]` f32 | weights of message and state, for g gates one below the other |
//! | `b_x`, `b_h` | `[1, g d]` f32 | biases |
//! | s' | `[n, d]` f32 | new memory |
//! | time | `[n]` i64 | `t_mail` if the node has a mail, otherwise the stored time |
//! | count, row, message, gates, dt | `[1]`, `[m]`, `[m, 2 d + f + t]`, `[m, sums d]`, `[m]` | saved for the backward pass: the m nodes with a mail |
//!
//! **Lean mail**: a mail `{s_u | s_v | e | dt}` is stored as `s_v`, the event's id and its time. `s_u` needs
//! no copy, because node u's memory changes only when u's mail is consumed and written back, so the stored
//! row still is `s_u`. `e` is a row of the feature table, and `dt` follows from two times. This is exact
//! (tested against full mails). Gates that use message and state only as a sum then multiply `s_u` by
//! `W_x + W_h` once.
//!
//! No gradient flows into stored memory or mails; gradients flow to the weights and to `w`, `b`.
//! Deterministic.
//! Source: TGN (Rossi et al. 2020), equations 1 to 4.
mod case;
mod cell;
mod grad;
mod parts;
mod vars;

pub(in crate::ops) use self::case::build;
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
pub use cell::Cell;
pub use grad::MemoryUpdateGrad;
pub(in crate::ops) use grad::input as grad_input;
use std::{marker::PhantomData, ops::Range};
pub use vars::{CellVars, FeatureRow, MemoryVars};

/// Positions of the inputs.
mod input {
    pub(in crate::ops) const UNIQUE: usize = 0;
    pub(in crate::ops) const MEMORY: usize = 1;
    pub(in crate::ops) const MEMORY_TIME: usize = 2;
    pub(in crate::ops) const MAIL: usize = 3;
    pub(in crate::ops) const MAIL_EVENT: usize = 4;
    pub(in crate::ops) const MAIL_TIME: usize = 5;
    pub(in crate::ops) const EDGE: usize = 6;
    pub(in crate::ops) const W: usize = 7;
    pub(in crate::ops) const B: usize = 8;
    pub(in crate::ops) const W_X: usize = 9;
    pub(in crate::ops) const W_H: usize = 10;
    pub(in crate::ops) const B_X: usize = 11;
    pub(in crate::ops) const B_H: usize = 12;
    pub(in crate::ops) const COUNT: usize = 13;
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const MEMORY: usize = 0;
    pub(in crate::ops) const TIME: usize = 1;
    pub(in crate::ops) const COUNT: usize = 2;
    pub(in crate::ops) const ROW: usize = 3;
    pub(in crate::ops) const MESSAGE: usize = 4;
    pub(in crate::ops) const GATES: usize = 5;
    pub(in crate::ops) const DT: usize = 6;
}

/// Blocks of a kernel, at most: a few for each multiprocessor. A grid for all rows of the capacity would have
/// thousands without work.
const MOST_BLOCKS: usize = 1024;

/// What a launch of `memory_update_messages` prepares, as its code.
#[derive(Clone, Copy)]
enum Prepares {
    Messages = 1,
    /// Weights of messages, and the memory of rows without a mail.
    Weights = 2,
    Both = 3,
}

/// See the [module](self).
#[derive(Debug)]
pub struct MemoryUpdate<C> {
    features: FeatureRow,
    /// Whether state has one row per unique node instead of one per node.
    gathered: bool,
    gaps: Gaps,
    cell: PhantomData<C>,
}

impl Tape {
    /// Appends [`MemoryUpdate`] with the cell `C`, [`Gru`](super::gru_memory::Gru) or
    /// [`Rnn`](super::rnn_memory::Rnn), for the n nodes `unique`. Returns their new memory s', f32 `[n, d]`,
    /// and its times in ticks, i64 `[n]`.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{gru_memory::Gru, memory_update::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Two nodes; node 0 has a mail of event 0 at time 30. The weights are zeros.
    /// let unique = tape.input(&mut store, "unique", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let memory = tape.input(&mut store, "memory", Spec::real(Rows::fixed(2), 1), &[4.0f32, 6.0])?;
    /// let memory_time = tape.input(&mut store, "memory time", Spec::times(Rows::fixed(2)), &[5i64, 7])?;
    /// let mail = tape.input(&mut store, "mail", Spec::real(Rows::fixed(2), 1), &[9.0f32, 0.0])?;
    /// let mail_event = tape.input(&mut store, "mail event", Spec::ids(Rows::fixed(2), 1), &[0u32, NONE])?;
    /// let mail_time = tape.input(&mut store, "mail time", Spec::times(Rows::fixed(2)), &[30i64, 0])?;
    /// let edge = store.zeros("edge", Spec::real(Rows::fixed(1), 0))?;
    /// let time_w = store.zeros("time w", Spec::real(Rows::fixed(1), 1))?;
    /// let time_b = store.zeros("time b", Spec::real(Rows::fixed(1), 1))?;
    /// let w_x = store.zeros("w x", Spec::real(Rows::fixed(3), 3))?;
    /// let w_h = store.zeros("w h", Spec::real(Rows::fixed(3), 1))?;
    /// let b_x = store.zeros("b x", Spec::real(Rows::fixed(1), 3))?;
    /// let b_h = store.zeros("b h", Spec::real(Rows::fixed(1), 3))?;
    /// let ids = tape.stored_all([edge, time_w, time_b, w_x, w_h, b_x])?;
    /// let [edge, time_w, time_b, w_x, w_h, b_x] = ids;
    /// let b_h = tape.stored(b_h)?;
    /// let gathered = false;
    /// let state = MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, gathered };
    /// let weights = CellVars { time_w, time_b, w_x, w_h, b_x, b_h };
    /// let (rule, gaps) = (FeatureRow::Event, Gaps::unlimited(1.0));
    /// let (new, time) = tape.memory_update::<Gru>(unique, state, weights, rule, gaps)?;
    /// let mut program = Program::new(&tape, &[new, time], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The gate z is a half and the candidate 0; node 1 is unchanged.
    /// assert_eq!(program.read::<f32>(new, &store)?, [2.0, 6.0]);
    /// assert_eq!(program.read::<i64>(time, &store)?, [30, 7]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
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
        let op = MemoryUpdate::<C>::new(features, m.gathered, gaps);
        let outs = self.push(op, &ins)?;
        Ok((outs[output::MEMORY], outs[output::TIME]))
    }
}

/// Widths of memory (d), edge features (f) and time encoding (t).
#[derive(Clone, Copy)]
struct Widths {
    d: usize,
    f: usize,
    t: usize,
}

impl Widths {
    /// Returns the widths, given the shape and type of each input.
    fn from_specs(spec: impl Fn(usize) -> Spec) -> Self {
        Widths { d: spec(input::MEMORY).cols, f: spec(input::EDGE).cols, t: spec(input::W).cols }
    }
    /// Returns the width of a message, saturating.
    fn message(self) -> usize {
        self.phi().saturating_add(self.t)
    }
    /// Returns the first column of the time encoding in a message.
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

/// Copies the message weights `w_x`, `[gates d, c]`, to `folded`, and adds `w_h` to the columns of the node's
/// own memory in the first `joint` rows.
fn fold_state_weights(folded: &mut [f32], w_x: &[f32], w_h: &[f32], c: usize, d: usize, joint: usize) {
    let rows = folded.chunks_exact_mut(c).zip(w_x.chunks_exact(c)).enumerate();
    rows.in_parallel(64, |(j, (row, w_x))| {
        row.copy_from_slice(w_x);
        if j < joint {
            row.iter_mut().zip(&w_h[j * d..][..d]).for_each(|(w, &h)| *w += h);
        }
    });
}

/// The inputs that messages are made of.
struct Tables<'a, R> {
    unique: &'a [u32],
    memory: &'a [R],
    memory_time: &'a [i64],
    mail: &'a [R],
    mail_event: &'a [u32],
    mail_time: &'a [i64],
    edge: &'a [R],
    time_w: &'a [R],
    time_b: &'a [R],
    widths: Widths,
}

impl<'a, R: Real> Tables<'a, R> {
    fn new(io: &Io<'a>) -> Self {
        Tables {
            unique: io.input(input::UNIQUE),
            memory: io.input(input::MEMORY),
            memory_time: io.input(input::MEMORY_TIME),
            mail: io.input(input::MAIL),
            mail_event: io.input(input::MAIL_EVENT),
            mail_time: io.input(input::MAIL_TIME),
            edge: io.input(input::EDGE),
            time_w: io.input(input::W),
            time_b: io.input(input::B),
            widths: Widths::from_specs(|i| io.spec(i)),
        }
    }
    /// Returns the seconds between the last update of node `v` and its mail, as f32.
    fn dt(&self, v: usize, gaps: Gaps) -> f32 {
        gaps.seconds(self.memory_time[v], self.mail_time[v])
    }
}

/// The lists of the mails and the weights of whole messages, in the scratch of a device.
struct PreparedMessages {
    node: *mut u32,
    feature: *mut u32,
    weights: *mut f32,
}

impl<C> MemoryUpdate<C> {
    /// Creates the op. If `gathered`, state has one row per unique node instead of one per node.
    pub fn new(features: FeatureRow, gathered: bool, gaps: Gaps) -> Self {
        MemoryUpdate { features, gathered, gaps, cell: PhantomData }
    }
    /// Returns the same op, for a part of it.
    fn whole(&self) -> Self {
        Self::new(self.features, self.gathered, self.gaps)
    }
    /// Writes the times of all unique nodes, and lists the rows with a mail and their gaps. Returns the
    /// length of the list and the list. A row that is not a node gets time 0 and counts as without a mail, as
    /// does a row whose mail has no row in the edge features; both are reported as faults unless they are
    /// `NONE`.
    fn list<'a, R: Real>(&self, t: &Tables<'_, R>, io: &Io<'a>) -> (usize, &'a mut [u32]) {
        let (time, rows) = (io.out::<i64>(output::TIME), io.out::<u32>(output::ROW));
        let dt = io.out::<R>(output::DT);
        let mut m = 0;
        for (i, time) in time.iter_mut().enumerate().take(t.unique.len()) {
            let Some(v) = io.row_of(i, self.node(t, i) as u32, t.mail_event.len()) else {
                *time = 0;
                continue;
            };
            let feature = match t.mail_event[v] {
                NONE => NONE,
                event => self.edge_row(i, v, event) as u32,
            };
            let mailed = io.row_of(i, feature, io.rows(input::EDGE)).is_some();
            *time = if mailed { t.mail_time[v] } else { t.memory_time[v] };
            if mailed {
                rows[m] = i as u32;
                dt[m] = R::from_f64(f64::from(t.dt(v, self.gaps)));
                m += 1;
            }
        }
        io.out::<u32>(output::COUNT)[0] = m as u32;
        (m, rows)
    }
    /// Returns the memory of the unique node in `row`; `None` if the row is not a node.
    fn memory<'a, R>(&self, t: &Tables<'a, R>, row: usize) -> Option<&'a [R]> {
        let (v, d) = (self.node(t, row), t.widths.d);
        (v < t.mail_event.len()).then(|| &t.memory[v * d..][..d])
    }
    /// Returns the row in the state of the unique node in `row`.
    fn node<R>(&self, t: &Tables<'_, R>, row: usize) -> usize {
        if self.gathered { row } else { t.unique[row] as usize }
    }
    /// Returns the row of the features of the mail of node `v`, which is in `row` of the unique nodes.
    fn edge_row(&self, row: usize, v: usize, event: u32) -> usize {
        match self.features {
            FeatureRow::Event => event as usize,
            FeatureRow::Node => v,
            FeatureRow::Unique => row,
        }
    }
    /// Returns the message parts of the unique node in `row`, which has a mail: the node, its memory, its
    /// partner's memory and the edge features.
    fn parts<'a, R>(&self, t: &Tables<'a, R>, row: u32) -> (usize, &'a [R], &'a [R], &'a [R]) {
        let (row, Widths { d, f, .. }) = (row as usize, t.widths);
        let v = self.node(t, row);
        let edge = self.edge_row(row, v, t.mail_event[v]) * f;
        (v, &t.memory[v * d..][..d], &t.mail[v * d..][..d], &t.edge[edge..][..f])
    }
    /// Writes the messages of the unique nodes in `rows` to the rows of `messages`.
    fn write_messages(&self, t: &Tables<'_, f32>, rows: &[u32], messages: &mut [f32]) {
        for (k, x) in messages.chunks_exact_mut(t.widths.message()).enumerate() {
            // The rows are scattered over memory: prefetch those of a later message.
            if let Some(&later) = rows.get(k + 4) {
                let (_, s, partner, edge) = self.parts(t, later);
                simd::prefetch(edge);
                simd::prefetch(s);
                simd::prefetch(partner);
            }
            let (v, s, partner, edge) = self.parts(t, rows[k]);
            message(x, s, partner, edge, t.dt(v, self.gaps), t.time_w, t.time_b);
        }
    }
}

/// Writes a row without a mail: the stored memory, or zeros if the row is not a node.
fn keep<R: Real>(memory: Option<&[R]>, out: &mut [R]) {
    match memory {
        Some(memory) => out.copy_from_slice(memory),
        None => out.fill(R::ZERO),
    }
}

impl<C: Cell> MemoryUpdate<C> {
    /// Returns the length of the weights of whole messages, one row for each sum of each column of memory.
    fn weights(w: Widths) -> usize {
        C::SUMS.saturating_mul(w.d).saturating_mul(w.message())
    }
    /// Returns what the kernels prepare in the scratch: the weights first, because they are read 16 bytes at
    /// a time.
    fn prepared(on: &Launch<'_>) -> PreparedMessages {
        let weights = on.scratch();
        let node = weights.wrapping_add(Self::weights(Widths::from_specs(|i| on.spec(i)))).cast::<u32>();
        PreparedMessages { node, feature: node.wrapping_add(on.capacity(input::UNIQUE)), weights }
    }
    /// Returns the arguments of a cell's kernel.
    fn arguments(&self, on: &Launch<'_>, to: &PreparedMessages) -> abi::MemoryUpdate {
        let Widths { d, f, t } = Widths::from_specs(|i| on.spec(i));
        abi::MemoryUpdate {
            unique: on.input(input::UNIQUE),
            mail_event: on.input(input::MAIL_EVENT),
            memory: on.input(input::MEMORY),
            mail: on.input(input::MAIL),
            edge: on.input(input::EDGE),
            w: on.input(input::W),
            b: on.input(input::B),
            w_x: on.input(input::W_X),
            w_h: on.input(input::W_H),
            b_x: on.input(input::B_X),
            b_h: on.input(input::B_H),
            mailed: on.needed(output::ROW),
            node: to.node,
            feature: to.feature,
            dt: on.needed(output::DT),
            weights: to.weights,
            out: on.needed(output::MEMORY),
            messages: on.needed(output::MESSAGE),
            gates: on.out(output::GATES),
            rows: on.rows(input::UNIQUE),
            mails: abi::Rows {
                count: on.needed(output::COUNT),
                times: 1,
                capacity: on.capacity(input::UNIQUE) as u32,
            },
            d: d as u32,
            f: f as u32,
            t: t as u32,
            gathered: u32::from(self.gathered),
            precision: on.precision(),
            nodes: on.capacity(input::MAIL_EVENT) as u32,
            joint: C::JOINT as u32,
            apart: C::APART as u32,
        }
    }
}

/// The kernels. They are unsafe to launch as [`Op::launch`] is.
impl<C: Cell> MemoryUpdate<C> {
    unsafe fn launch_list(&self, k: &Kernels, on: &Launch<'_>, to: &PreparedMessages) -> Result<()> {
        let (unique, memory_time) = (on.input(input::UNIQUE), on.input(input::MEMORY_TIME));
        let (mail_event, mail_time) = (on.input(input::MAIL_EVENT), on.input(input::MAIL_TIME));
        let (time, count) = (on.needed(output::TIME), on.needed(output::COUNT));
        let (mailed, dt) = (on.needed(output::ROW), on.needed(output::DT));
        launch!(
            k, on, memory_update_list[Grid::new(1, 1024)];
            unique, memory_time, mail_event, mail_time, time, count, mailed, to.node, to.feature, dt,
            on.rows(input::UNIQUE), on.rows(input::EDGE), self.gaps.into(), self.features.code(),
            u32::from(self.gathered), on.capacity(input::MAIL_EVENT) as u32, on.status()
        )
    }
    unsafe fn launch_prepared(
        &self,
        k: &Kernels,
        on: &Launch<'_>,
        to: &PreparedMessages,
        what: Prepares,
    ) -> Result<()> {
        let (n, sums) = (on.capacity(input::UNIQUE), C::SUMS * on.cols(input::MEMORY) as usize);
        let warps = match what {
            Prepares::Messages => n,
            Prepares::Weights => n + sums,
            Prepares::Both => 2 * n + sums,
        };
        let grid = Grid::new(Grid::warps(warps).count().min(MOST_BLOCKS), Grid::THREADS);
        launch!(k, on, memory_update_messages[grid]; self.arguments(on, to), what as u32)
    }
    unsafe fn launch_cell(&self, k: &Kernels, on: &Launch<'_>, to: &PreparedMessages) -> Result<()> {
        let grid = Grid::tiles(on.capacity(input::UNIQUE), C::SUMS * on.cols(input::MEMORY) as usize);
        let (rows, columns, _) = grid.blocks;
        let grid =
            Grid { blocks: (rows.min((Grid::TILES_AT_ONCE as u32).div_ceil(columns)), columns, 1), ..grid };
        // SAFETY: as of `launch!`.
        unsafe { (C::KERNEL)(k, on, grid, self.arguments(on, to)) }
    }
}

impl<C: Cell> Op for MemoryUpdate<C> {
    const NAME: &'static str = C::NAME;
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "nodes [n] ids, memory [v, d], memory_time [v] times, mail [v, d], \
        mail_event [v] ids, mail_time [v] times, edge [e, f], time_w [1, t], time_b [1, t], \
        w_x [g d, 2 d + f + t], w_h [g d, d], b_x [1, g d], b_h [1, g d] \
        -> memory [n, d], time [n] times, count [1] ids, row [n] ids by count, \
        message [n, 2 d + f + t] by count, gates [n, s d] by count, dt [n] by count";
    fn sizes(&self) -> Sizes {
        vec![("g", Rows::fixed(C::GATES)), ("s", Rows::fixed(C::SUMS))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let [unique, memory, edge] = [input::UNIQUE, input::MEMORY, input::EDGE].map(|i| ins[i]);
        let alike = !self.gathered || memory.rows == unique.rows;
        ensure!(Self::NAME, alike, "memory is {memory}, want the rows of nodes, {unique}");
        let (v, n) = (memory.rows.capacity, unique.rows.capacity);
        let least = match self.features {
            FeatureRow::Event => 0,
            FeatureRow::Node => v,
            FeatureRow::Unique => n,
        };
        ensure!(Self::NAME, edge.rows.capacity >= least, "edge is {edge}, want at least {least} rows");
        let width = Widths::from_specs(|i| ins[i]).message();
        for (what, n) in [("nodes", v), ("rows", n), ("events", edge.rows.capacity), ("width", width)] {
            countable(Self::NAME, what, n)?;
        }
        Ok(())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // On the host: the message weights with W_h folded into the joint gates. On a device: the weights of
        // whole messages, then node and feature row of every mail.
        let lists = 2 * ins[input::UNIQUE].rows.capacity;
        ins[input::W_X].len().max(Self::weights(Widths::from_specs(|i| ins[i])).saturating_add(lists))
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, w) = (ins[input::UNIQUE].rows.capacity, Widths::from_specs(|i| ins[i]));
        let read = n * (w.message() - w.t + 6) + ins[input::W_X].len() + ins[input::W_H].len();
        let flops = 2 * n * w.d * (w.message() * C::GATES + w.d * C::APART);
        Cost { bytes: 4 * (read + outs[output::MEMORY].len()), flops }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let t = Tables::<R>::new(io);
        let (w_x, w_h) = (io.input::<R>(input::W_X), io.input::<R>(input::W_H));
        let (b_x, b_h) = (io.input::<R>(input::B_X), io.input::<R>(input::B_H));
        let w = t.widths;
        let (d, c) = (w.d, w.message());
        let (out, messages) = (io.out::<R>(output::MEMORY), io.out::<R>(output::MESSAGE));
        let gates = io.out::<R>(output::GATES);
        for i in 0..t.unique.len() {
            keep(self.memory(&t, i), &mut out[i * d..][..d]);
        }
        let (m, rows) = self.list(&t, io);
        let mut column = vec![R::ZERO; C::SUMS];
        for (k, &row) in rows[..m].iter().enumerate() {
            let (v, s, partner, edge) = self.parts(&t, row);
            let x = &mut messages[k * c..][..c];
            let dt = R::from_f64(f64::from(t.dt(v, self.gaps)));
            x[..d].copy_from_slice(s);
            x[d..2 * d].copy_from_slice(partner);
            x[2 * d..w.phi()].copy_from_slice(edge);
            (0..w.t).for_each(|j| x[w.phi() + j] = define_phi(dt, t.time_w, t.time_b, j));
            // Row `j` of the weights `w` times `x`.
            let dot = |w: &[R], x: &[R], j: usize| -> R {
                w[j * x.len()..].iter().zip(x).map(|(&w, &x)| w * x).sum()
            };
            for j in 0..d {
                let message_term = |g: usize| dot(w_x, x, g * d + j) + b_x[g * d + j];
                let state_term = |g: usize| dot(w_h, s, g * d + j) + b_h[g * d + j];
                out[row as usize * d + j] = C::define(message_term, state_term, s[j], &mut column);
                for (g, &value) in column.iter().enumerate() {
                    gates[k * C::SUMS * d + g * d + j] = value;
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let t = Tables::<f32>::new(io);
        let (w_x, w_h) = (io.input::<f32>(input::W_X), io.input::<f32>(input::W_H));
        let (b_x, b_h) = (io.input::<f32>(input::B_X), io.input::<f32>(input::B_H));
        let (d, c) = (t.widths.d, t.widths.message());
        let (joint, gates, sums) = (C::JOINT * d, C::GATES * d, C::SUMS * d);
        let (out, messages) = (io.out::<f32>(output::MEMORY), io.out::<f32>(output::MESSAGE));
        let gates_out = io.out::<f32>(output::GATES);
        let (m, rows) = self.list(&t, io);
        let rows = &rows[..m];
        if d == 0 {
            return;
        }
        let folded = io.scratch::<f32>();
        fold_state_weights(folded, w_x, w_h, c, d, joint);
        let message_weights = Mat::new(folded, gates, c).t();
        let state_weights = Mat::new(&w_h[joint * d..], C::APART * d, d).t();
        // Each task takes a range of the rows with a mail, and the rows without one that follow each of them.
        // The first task also takes the rows before its first mail.
        let parts = row_parts(m, d, c);
        let first = |part: &Range<usize>| if part.start == 0 { 0 } else { rows[part.start] as usize };
        let last = |part: &Range<usize>| if part.end == m { t.unique.len() } else { rows[part.end] as usize };
        let outs: Vec<Range<usize>> = parts.iter().map(|p| first(p)..last(p)).collect();
        let saved = split_rows(messages, &parts, c).into_iter().zip(split_rows(gates_out, &parts, sums));
        saved.zip(split_rows(out, &outs, d)).zip(parts.iter().zip(&outs)).in_parallel(
            1,
            |(((x, pre), out), (part, outs))| {
                let (rows, n) = (&rows[part.clone()], part.len());
                self.write_messages(&t, rows, x);
                matmul(MatMut::strided(pre, n, gates, sums), Mat::new(x, n, c), message_weights, false);
                if n > 0 {
                    let s = Mat::strided(x, n, d, c); // a message begins with the node's own memory
                    matmul(
                        MatMut::strided(&mut pre[gates..], n, sums - gates, sums),
                        s,
                        state_weights,
                        false,
                    );
                }
                let mut mailed =
                    rows.iter().zip(pre.chunks_exact_mut(sums).zip(x.chunks_exact(c))).peekable();
                for (row, out) in outs.clone().zip(out.chunks_exact_mut(d)) {
                    match mailed.next_if(|(r, _)| **r as usize == row) {
                        Some((_, (pre, x))) => C::cpu(pre, out, &x[..d], b_x, b_h),
                        None => keep(self.memory(&t, row), out),
                    }
                }
            },
        );
    }
    fn parts(&self) -> Option<Parts> {
        Some(Parts {
            ahead: Arc::new(parts::Messages(self.whole())),
            reads: parts::READS,
            makes: &parts::MADE,
            rest: Arc::new(parts::Updated(self.whole())),
        })
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let to = Self::prepared(on);
        // SAFETY: as of `launch!`.
        unsafe {
            self.launch_list(k, on, &to)?;
            self.launch_prepared(k, on, &to, Prepares::Both)?;
            self.launch_cell(k, on, &to)
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; input::COUNT];
        let Some(dout) = douts[output::MEMORY] else { return Ok(dins) };
        let saved = [output::ROW, output::MESSAGE, output::GATES, output::DT].map(|k| node.outs[k]);
        let weights = [input::W, input::B, input::W_X, input::W_H].map(|i| node.ins[i]);
        let grads = t.push(MemoryUpdateGrad::<C>::default(), &[&saved[..], &weights, &[dout]].concat())?;
        // The gradients are those of the last inputs, from the time encoding on.
        for (din, grad) in dins[input::W..].iter_mut().zip(grads) {
            *din = Some(grad);
        }
        Ok(dins)
    }
}
