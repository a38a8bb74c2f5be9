//! Writes new memory and new mails of the positive roots, in place.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `memory`, `memory time`, `mail`, `mail event`, `mail time` | as in `memory_update`, rows by node | state |
//! | `mail edge` | `[v, f]` as `memory`, state | features stored per mail; only with the mean combiner |
//! | `unique`, `phi`, `positives` | outputs of `unique` | phi is the node's latest root |
//! | `psi` | `[(2 + m) b]` u32 | rows of the roots in `unique` |
//! | `s'`, `time` | `[n, d]` f32, `[n]` i64 | memory after the mails, and its times |
//! | `event`, `event time` | `[b]` u32, i64 | events of the batch |
//! | `edge` | `[e, f]` f32 | edge features; read only by the mean combiner |
//! | `edge row` | `[b]` u32 | row of `edge` for each event; only with the mean combiner |
//! | `content` | `[2 b, d]` f32, optional | rows that mails hold in place of rows of `s'`: row `2 i + side` is that of event i's source (side 0) or destination (1) |
//!
//! For each unique positive root, `memory` becomes `s'` and `memory time` the time of the consumed mail. The
//! new mail is `(s'_partner, event, time)` of the root's latest event in the batch, or with `content`
//! `(content_partner, event, time)`; on equal times the later position wins. phi decides this, so there is
//! no race. The combiner `Mean` averages the partners' rows and edge features over the node's events in the
//! batch and takes the latest time. Negatives and supporting nodes write nothing. A node, root or row outside
//! its table and a phi that belongs to a negative are reported as faults; nothing is written for them. No
//! gradient. 16-bit tables store rounded numbers ([`StoredAs`]); means are computed before rounding.
//! Source: TGN (Rossi et al. 2020), section 3; PyTorch Geometric's order of reading before writing. Content
//! that is an embedding: TGN's code, `use_destination_embedding_in_message`.
use super::{memory_update::MemoryVars, *};
use crate::runtime::simd::{self, vectorised};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Rule that combines the mails that a node gets in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combiner {
    /// The latest mail.
    Last,
    /// The mean of the mails.
    Mean,
}

impl fmt::Display for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Combiner::Last => "last",
            Combiner::Mean => "mean",
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct WriteMemory {
    combiner: Combiner,
    /// Roots per event.
    stride: usize,
    /// Whether the last input is `content`.
    content: bool,
}

/// The batch whose memory is written.
///
/// Example: [`Tape::write_memory`].
#[derive(Clone, Debug)]
pub struct WrittenBatch {
    /// `[<= v]` unique nodes.
    pub node: Var,
    /// Latest root of each unique node.
    pub phi: Var,
    /// Number of unique positive roots.
    pub positives: Var,
    /// Rows of the roots among the unique nodes.
    pub psi: Var,
    /// Memory after the mails.
    pub memory: Var,
    /// `[2 b, d]` rows that the mails hold in place of the partner's memory, one per positive root. `None` if
    /// they hold the memory.
    pub content: Option<Var>,
    /// Times of the memory after the mails.
    pub time: Var,
    /// Event ids of the batch.
    pub event: Var,
    /// Times of the events.
    pub event_time: Var,
    /// Edge features.
    pub edge: Var,
    /// Row of `edge` for each event of the batch: the event ids if `edge` has the features of all events.
    pub edge_row: Var,
}

impl Tape {
    /// Appends [`WriteMemory`] for `stride` roots per event: the positive roots get new memory and new mails,
    /// in place. With `Mean`, `state.edge` is the table of features stored per mail.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match, or if a state is read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{memory_update::MemoryVars, write_memory::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Event 7 of nodes 0 and 1 at time 30. Memory and mails are zeros.
    /// let roots = tape.input(&mut store, "roots", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 1), &[7u32])?;
    /// let event_time = tape.input(&mut store, "event time", Spec::times(Rows::fixed(1)), &[30i64])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(2), 1))?;
    /// let memory = store.zeros("memory", Spec::real(Rows::fixed(2), 1))?;
    /// let memory_time = store.zeros("memory time", Spec::times(Rows::fixed(2)))?;
    /// let mail = store.zeros("mail", Spec::real(Rows::fixed(2), 1))?;
    /// let mail_event = store.zeros("mail event", Spec::ids(Rows::fixed(2), 1))?;
    /// let mail_time = store.zeros("mail time", Spec::times(Rows::fixed(2)))?;
    /// let edge = store.zeros("edge", Spec::real(Rows::fixed(1), 0))?;
    /// let [stamp, memory, memory_time] = tape.stored_all([stamp, memory, memory_time])?;
    /// let ids = tape.stored_all([mail, mail_event, mail_time, edge])?;
    /// let [mail, mail_event, mail_time, edge] = ids;
    /// let gathered = false;
    /// let unique::UniqueNodes { node, rows, phi, positives, psi, .. } =
    ///     tape.unique(stamp, roots, &[], 2)?;
    /// // The memory of the two nodes after their mails, and the times of these mails.
    /// let new = tape.input(&mut store, "new", Spec::real(rows, 1), &[5.0f32, 6.0])?;
    /// let time = tape.input(&mut store, "time", Spec::times(rows), &[10i64, 20])?;
    /// let state = MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, gathered };
    /// let (psi, edge_row, content) = (psi[0], event, None);
    /// let batch = WrittenBatch {
    ///     node, phi, positives, psi, memory: new, content, time, event, event_time, edge, edge_row,
    /// };
    /// tape.write_memory(state, &batch, Combiner::Last, 2)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(memory, &store)?, [5.0, 6.0]);
    /// assert_eq!(program.read::<i64>(memory_time, &store)?, [10, 20]);
    /// assert_eq!(program.read::<f32>(mail, &store)?, [6.0, 5.0]); // the partner's memory
    /// assert_eq!(program.read::<i64>(mail_time, &store)?, [30, 30]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_memory(
        &mut self,
        state: MemoryVars,
        w: &WrittenBatch,
        combiner: Combiner,
        stride: usize,
    ) -> Result<()> {
        let mut ins = vec![
            state.memory,
            state.memory_time,
            state.mail,
            state.mail_event,
            state.mail_time,
            w.node,
            w.phi,
            w.positives,
            w.psi,
            w.memory,
            w.time,
            w.event,
            w.event_time,
            w.edge,
        ];
        if combiner == Combiner::Mean {
            ins.extend([state.edge, w.edge_row]);
        }
        ins.extend(w.content);
        self.push(WriteMemory { combiner, stride, content: w.content.is_some() }, &ins).map(drop)
    }
}

vectorised! {
    /// Computes `y += a x`.
    pub(in crate::ops) fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
        simd::axpy(y, a, x);
    }
}

/// The inputs that determine which rows are written, on the host.
struct Batch<'a, R> {
    io: &'a Io<'a>,
    node: &'a [u32],
    phi: &'a [u32],
    psi: &'a [u32],
    /// Memory after the mails, `[n, d]`.
    s: &'a [R],
    /// Rows that the mails hold in place of the partner's memory, `[2 b, d]`.
    content: Option<&'a [R]>,
    d: usize,
    stride: usize,
    /// Number of rows to write.
    written: usize,
}

impl<'a, R: Real> Batch<'a, R> {
    fn new(io: &'a Io<'a>, op: &WriteMemory) -> Self {
        let positives = io.input::<u32>(at!(WriteMemory, positives))[0] as usize;
        // Each row needs a row of s', and a batch has at most two positive roots per event.
        let written =
            positives.min(io.rows(at!(WriteMemory, new_memory))).min(2 * io.rows(at!(WriteMemory, event)));
        Batch {
            io,
            node: io.input(at!(WriteMemory, node)),
            phi: io.input(at!(WriteMemory, phi)),
            psi: io.input(at!(WriteMemory, psi)),
            s: io.input(at!(WriteMemory, new_memory)),
            content: op.content().map(|i| io.input(i)),
            d: io.cols(at!(WriteMemory, memory)),
            stride: op.stride,
            written,
        }
    }
    /// Returns node and latest root of `row`; reports a fault and returns `None` if one of them is invalid.
    fn target(&self, row: usize) -> Option<(usize, usize)> {
        let v = self.io.row_of(row, self.node[row], self.io.rows(at!(WriteMemory, memory)))?;
        let latest = self.io.row_of(row, self.phi[row], self.psi.len())?;
        if latest % self.stride > 1 {
            self.io.fault(row, Fault::out_of_range(latest));
            return None;
        }
        Some((v, latest))
    }
    /// Returns the content, or else the new memory, of the other end of the event of positive root `i`.
    /// Faults are reported for `row`.
    fn partner(&self, row: usize, i: usize) -> Option<&'a [R]> {
        let (event, other) = (i / self.stride, 1 - i % self.stride);
        let (rows, at) = match self.content {
            Some(content) => (content, 2 * event + other),
            None => {
                let other = self.psi[event * self.stride + other];
                (self.s, self.io.row_of(row, other, self.io.rows(at!(WriteMemory, new_memory)))?)
            }
        };
        Some(&rows[at * self.d..][..self.d])
    }
    /// Returns the positive roots whose nodes are written, each with its row.
    fn positive_roots(&self) -> impl Iterator<Item = (usize, usize)> {
        let positive = (0..self.psi.len()).filter(|i| i % self.stride < 2);
        positive.map(|i| (i, self.psi[i] as usize)).filter(|&(_, row)| row < self.written)
    }
}

impl WriteMemory {
    /// Returns the position of the input `content`, if it is given.
    fn content(&self) -> Option<usize> {
        self.content.then_some(self.others())
    }
    /// Returns the number of the other inputs.
    fn others(&self) -> usize {
        if self.combiner == Combiner::Mean { at!(content) } else { at!(mail_edge) }
    }
    /// Writes all state, with `add_scaled(y, a, x)` for `y += a x`.
    fn write<R: Real, T: Stored<R>>(&self, io: &Io<'_>, add_scaled: impl Fn(&mut [R], R, &[R])) {
        let batch = Batch::<R>::new(io, self);
        let mail = io.state::<T>(at!(mail));
        self.write_latest(&batch, mail);
        if self.combiner == Combiner::Mean {
            self.write_means(&batch, mail, add_scaled);
        }
    }
    /// Writes memory, times and events, and with the combiner `Last` the mails.
    fn write_latest<R: Real, T: Stored<R>>(&self, batch: &Batch<'_, R>, mail: &mut [T]) {
        let (io, d) = (batch.io, batch.d);
        let (memory, memory_time) = (io.state::<T>(at!(memory)), io.state::<i64>(at!(memory_time)));
        let (mail_event, mail_time) = (io.state::<u32>(at!(mail_event)), io.state::<i64>(at!(mail_time)));
        let (time, event) = (io.input::<i64>(at!(new_time)), io.input::<u32>(at!(event)));
        let event_time = io.input::<i64>(at!(event_time));
        for (row, &time) in time.iter().enumerate().take(batch.written) {
            let Some((v, latest)) = batch.target(row) else { continue };
            let at = v * d..(v + 1) * d;
            T::keep(&batch.s[row * d..][..d], &mut memory[at.clone()]);
            memory_time[v] = time;
            if self.combiner == Combiner::Last {
                match batch.partner(row, latest) {
                    Some(partner) => T::keep(partner, &mut mail[at]),
                    None => mail[at].fill(T::zeroed()),
                }
            }
            mail_event[v] = event[latest / self.stride];
            mail_time[v] = event_time[latest / self.stride];
        }
    }
    /// Writes the means of the partners' rows and of edge features over each node's events of the batch.
    fn write_means<R: Real, T: Stored<R>>(
        &self,
        batch: &Batch<'_, R>,
        mail: &mut [T],
        add_scaled: impl Fn(&mut [R], R, &[R]),
    ) {
        let (io, written, d, f) = (batch.io, batch.written, batch.d, batch.io.cols(at!(edge)));
        let (mail_edge, edge) = (io.state::<T>(at!(mail_edge)), io.input::<R>(at!(edge)));
        let edge_row = io.input::<u32>(at!(edge_row));
        // For each row, its number of events, then the sums {partners' rows | edge features}.
        let (counts, sums) = io.scratch::<R>()[..written * (1 + d + f)].split_at_mut(written);
        counts.fill(R::ZERO);
        sums.fill(R::ZERO);
        batch.positive_roots().for_each(|(_, row)| counts[row] += R::ONE);
        for (i, row) in batch.positive_roots() {
            let (partners, features) = sums[row * (d + f)..][..d + f].split_at_mut(d);
            if let Some(partner) = batch.partner(row, i) {
                add_scaled(partners, R::ONE / counts[row], partner);
            }
            if let Some(e) = io.row_of(row, edge_row[i / self.stride], io.rows(at!(edge))) {
                add_scaled(features, R::ONE / counts[row], &edge[e * f..][..f]);
            }
        }
        for row in 0..written {
            let Some((v, _)) = batch.target(row) else { continue };
            let (partners, features) = sums[row * (d + f)..][..d + f].split_at(d);
            T::keep(partners, &mut mail[v * d..][..d]);
            T::keep(features, &mut mail_edge[v * f..][..f]);
        }
    }
    /// Returns one warp per positive root, which is the source or the destination of an event.
    fn grid(on: &Launch<'_>) -> Grid {
        Grid::warps(on.capacity(at!(node)).min(2 * on.capacity(at!(event))))
    }
    /// Launches the kernels of the mean combiner: means of the partners' rows into the mails, and of edge
    /// features into the features stored per mail.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn launch_means(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, phi) = (on.input(at!(node)), on.input(at!(phi)));
        let (positives, psi) = (on.input(at!(positives)), on.input(at!(psi)));
        let (rows, roots) = (on.rows(at!(new_memory)), on.rows(at!(psi)));
        let (nodes, stride, status) = (on.capacity(at!(memory)) as u32, self.stride as u32, on.status());
        let by_root = u32::from(self.content);
        // Table to write, source table, its row for each event (null: the row of the other end), its rows,
        // its width.
        let partners = self.content().unwrap_or(at!(new_memory));
        let of_partners =
            (at!(mail), on.input(partners), std::ptr::null(), on.rows(partners), on.cols(at!(memory)));
        let of_edges = (
            at!(mail_edge),
            on.input(at!(edge)),
            on.input(at!(edge_row)),
            on.rows(at!(edge)),
            on.cols(at!(edge)),
        );
        for (table, src, src_row, src_rows, width) in [of_partners, of_edges] {
            // The arguments after the table are the same for f32 and 16 bits.
            macro_rules! write_mean {
                ($kernel:ident, $($table:expr),+) => {
                    launch!(
                        k, on, $kernel[Self::grid(on)];
                        $($table,)+ src, node, phi, positives, psi, src_row, by_root, rows, src_rows, roots, nodes,
                        width, stride, status
                    )
                };
            }
            if on.spec(table).dtype.is_half() {
                let (table, kind) = on.halves_state(table);
                write_mean!(write_half_memory_mean, table, kind)
            } else {
                write_mean!(write_memory_mean, on.state(table))
            }?;
        }
        Ok(())
    }
}

impl Op for WriteMemory {
    const NAME: &'static str = "write_memory";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "memory [V, d] stored state, memory_time [V] times state, \
        mail [V, d] stored state, mail_event [V] ids state, mail_time [V] times state, node [n] ids, \
        phi [n] ids, positives [1] ids, psi [b s] ids, new_memory [n, d], new_time [n] times, event [b] ids, \
        event_time [b] times, edge [e, f] any, mail_edge? [V, f] stored state, edge_row? [b] ids, \
        content? [2 b, d] ->";
    fn sizes(&self) -> Sizes {
        vec![("s", Rows::fixed(self.stride))]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "content" => self.content,
            _ => self.combiner == Combiner::Mean,
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (edge, psi) = (ins[at!(edge)], ins[at!(psi)]);
        let fits = (2..NONE as usize).contains(&self.stride);
        ensure!(Self::NAME, fits, "{} roots per event, want at least 2 and less than {NONE}", self.stride);
        ensure!(Self::NAME, psi.rows.capacity < NONE as usize, "psi is {psi}, want fewer than {NONE} roots");
        if self.combiner == Combiner::Mean {
            typed(Self::NAME, "edge", &edge, DType::F32)?;
        }
        Ok(())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        if self.combiner == Combiner::Last {
            return 0;
        }
        // A count and the sums for every unique positive root, which is a source or a destination.
        let positives = ins[at!(node)].rows.capacity.min(2 * ins[at!(event)].rows.capacity);
        positives * (1 + ins[at!(memory)].cols + ins[at!(edge)].cols)
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let rows = (2 * ins[at!(event)].rows.capacity).min(ins[at!(node)].rows.capacity);
        let memory = &ins[at!(memory)];
        // Each number is read in f32 and written in the table's type.
        let number = 4 + memory.dtype.size(Precision::F32);
        Cost { bytes: rows * (2 * number * memory.cols + 40), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let add_scaled = |y: &mut [R], a: R, x: &[R]| y.iter_mut().zip(x).for_each(|(y, &x)| *y += a * x);
        by_storage!(io.spec(at!(memory)).dtype, R, self.write(io, add_scaled));
    }
    fn cpu(&self, io: &Io<'_>) {
        by_storage!(io.spec(at!(memory)).dtype, f32, self.write(io, axpy));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let mean = self.combiner == Combiner::Mean;
        let memory_time = on.state(at!(memory_time));
        let (mail_event, mail_time) = (on.state(at!(mail_event)), on.state(at!(mail_time)));
        let (node, phi) = (on.input(at!(node)), on.input(at!(phi)));
        let (positives, psi) = (on.input(at!(positives)), on.input(at!(psi)));
        let (s, time) = (on.input(at!(new_memory)), on.input(at!(new_time)));
        let content = self.content().map_or(std::ptr::null(), |i| on.input(i));
        let (event, event_time) = (on.input(at!(event)), on.input(at!(event_time)));
        let (rows, roots) = (on.rows(at!(new_memory)), on.rows(at!(psi)));
        let (nodes, d) = (on.capacity(at!(memory)) as u32, on.cols(at!(memory)));
        let (stride, status) = (self.stride as u32, on.status());
        // The arguments are the same for f32 and 16 bits, except for the tables of memory and mails. With the
        // mean combiner the mails are left to `launch_means`.
        macro_rules! write {
            ($kernel:ident, $mail:expr, $($memory:expr),+) => {{
                let mail = if mean { std::ptr::null_mut() } else { $mail };
                launch!(
                    k, on, $kernel[Self::grid(on)];
                    $($memory,)+ memory_time, mail, mail_event, mail_time, node, phi, positives, psi, s, content,
                    time, event, event_time, rows, roots, nodes, d, stride, status
                )
            }};
        }
        if on.spec(at!(memory)).dtype.is_half() {
            let ((memory, kind), (mail, _)) = (on.halves_state(at!(memory)), on.halves_state(at!(mail)));
            write!(write_half_memory, mail, memory, kind)
        } else {
            write!(write_memory, on.state(at!(mail)), on.state(at!(memory)))
        }?;
        if mean {
            // SAFETY: the caller's promise.
            unsafe { self.launch_means(k, on) }?;
        }
        Ok(())
    }
}

/// `[nodes, events, d, f, mean]`; an optional sixth number is the index in [`StoredAs::ALL`] of the storage
/// type of memory and mails. An optional seventh number of 1 adds the input `content`.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[2, 1, 1, 0, 0],
    &[5, 0, 3, 2, 1],
    &[6, 9, 4, 3, 0],
    &[6, 9, 4, 3, 1],
    &[90, 50, 20, 3, 1],
    &[9, 60, 133, 70, 1],
    &[40, 60, 133, 8, 0],
    &[6, 9, 4, 3, 0, 1],
    &[40, 60, 133, 8, 0, 2],
    &[90, 50, 20, 3, 1, 1],
    &[9, 60, 133, 72, 1, 2],
    &[5, 0, 3, 2, 1, 2],
    &[2, 1, 1, 0, 0, 0, 1],
    &[5, 0, 3, 2, 0, 0, 1],
    &[6, 9, 4, 3, 0, 0, 1],
    &[40, 60, 133, 8, 0, 0, 1],
    &[90, 50, 20, 3, 1, 0, 1],
    &[40, 60, 133, 8, 0, 1, 1],
    &[9, 60, 8, 3, 0, 2, 1],
    &[9, 60, 132, 72, 1, 1, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 600, 100, 172, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, d, f, mean] = dims[..5] else {
        return Err(Error::shape("write_memory", "five to seven sizes"));
    };
    let combiner = if mean == 1 { Combiner::Mean } else { Combiner::Last };
    let stored_as = StoredAs::ALL[dims.get(5).copied().unwrap_or(0)];
    let half_mean = mean == 1 && stored_as != StoredAs::F32;
    let (memory, mail) = (c.stored(v, d, stored_as), c.stored(v, d, stored_as));
    let edge = if half_mean { c.few_bits(b + 5, f) } else { c.real(b + 5, f) };
    let state = MemoryVars {
        memory,
        memory_time: c.times(&vec![0; v]),
        mail,
        mail_event: c.ids(&vec![NONE; v], 1),
        mail_time: c.times(&vec![0; v]),
        edge: c.stored(v, f, stored_as),
        gathered: false,
    };
    let (stamp, roots) = (c.ids(&vec![0; v], 1), c.ids_below(3 * b, v));
    let n = c.tape.unique(stamp, roots, &[], 3)?;
    let new_memory = match stored_as {
        StoredAs::F32 => memory,
        _ if half_mean => c.few_bits(v, d),
        _ => c.real(v, d),
    };
    let s = c.tape.gather_rows(new_memory, n.node)?;
    let own = dims.get(6) == Some(&1);
    let content = own.then(|| if half_mean { c.few_bits(2 * b, d) } else { c.real(2 * b, d) });
    let event = c.ids(&(5..5 + b as u32).collect::<Vec<_>>(), 1);
    let written = WrittenBatch {
        memory: s,
        content,
        time: c.values(Spec::times(n.rows), &(0..v.min(3 * b) as i64).collect::<Vec<_>>()),
        event,
        event_time: c.times(&(0..b as i64).map(|t| 9 + t).collect::<Vec<_>>()),
        edge,
        edge_row: event,
        node: n.node,
        phi: n.phi,
        positives: n.positives,
        psi: n.psi[0],
    };
    c.tape.write_memory(state, &written, combiner, 3)?;
    let MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, .. } = state;
    Ok(Built { states: vec![memory, memory_time, mail, mail_event, mail_time, edge], ..Built::default() })
}
