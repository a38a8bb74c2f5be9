//! New memory and new mails of the positive roots, in place
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `memory`, `memory time`, `mail`, `mail event`, `mail time` | as in `memory_update`, rows by node | state |
//! | `mail edge` | `[v, f]` as `memory`, state | only with the mean combiner: the mail's own features |
//! | `unique`, `phi`, `positives` | as `unique` gives them | phi: the node's latest root |
//! | `psi` | `[(2 + m) b]` u32 | rows of the roots in `unique` |
//! | `s'`, `time` | `[n, d]` f32, `[n]` i64 | memory after the mails |
//! | `event`, `event time` | `[b]` u32, i64 | events of the batch |
//! | `edge` | `[e, f]` f32 | edge features; without the mean none is read |
//! | `edge row` | `[b]` u32 | with the mean: rows of `edge` |
//!
//! For each unique positive root: memory := s', its time := the time of the consumed mail; then the new mail is
//! `(s'_partner, event, time)` of its latest event in the batch (ties: the later position; phi decides, so no race
//! does). `Mean` averages partner memory and edge features over the node's events of the batch and takes the latest
//! time. Negatives and supporting nodes write nothing. A node, a root or a row that there is not is a fault, and so is a phi
//! of a negative: nothing is written for it. No gradient. Tables of 16 bits take the nearest numbers
//! ([`StoredAs`]), of means computed before.
//! Source: TGN (Rossi et al. 2020), section 3; PyTorch Geometric's order of reading before writing.
use super::{memory_update::MemoryVars, *};
use crate::runtime::simd::{self, vectorised};

/// How the mails that a node gets in one batch become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combiner {
    /// The latest.
    Last,
    /// Their mean.
    Mean,
}

/// See the [module](self).
#[derive(Debug)]
pub struct WriteMemory {
    combiner: Combiner,
    stride: usize,
}

/// The batch whose memory is written.
#[derive(Clone, Debug)]
pub struct Written {
    /// `[<= v]` unique nodes.
    pub node: Var,
    /// Latest root of each.
    pub phi: Var,
    /// Number of unique positive roots.
    pub positives: Var,
    /// Rows of the roots.
    pub psi: Var,
    /// Memory after the mails.
    pub memory: Var,
    /// Its times.
    pub time: Var,
    /// Event ids of the batch.
    pub event: Var,
    /// Their times.
    pub event_time: Var,
    /// Edge features.
    pub edge: Var,
    /// Rows of these by event of the batch: the events' ids, where they are those of all events.
    pub edge_row: Var,
}

impl Tape {
    /// Appends [`WriteMemory`]; `stride` roots an event. With `Mean`, `state.edge` is the mails' own feature table.
    ///
    /// # Errors
    /// `Shape` when widths do not fit or state is read only.
    pub fn write_memory(
        &mut self,
        state: MemoryVars,
        w: &Written,
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
        self.push(WriteMemory { combiner, stride }, &ins).map(drop)
    }
}

vectorised! {
    /// `y += a x`
    pub(super) fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
        simd::axpy(y, a, x);
    }
}

impl WriteMemory {
    /// The writes, with `add_scaled(y, a, x)`: `y += a x`.
    fn write<R: Real, T: Stored<R>>(&self, io: &Io<'_>, add_scaled: impl Fn(&mut [R], R, &[R])) {
        let (memory, memory_time) = (io.state::<T>(0), io.state::<i64>(1));
        let (mail, mail_event, mail_time) = (io.state::<T>(2), io.state::<u32>(3), io.state::<i64>(4));
        let (node, phi, positives) = (io.input::<u32>(5), io.input::<u32>(6), io.input::<u32>(7)[0] as usize);
        let (psi, s, time) = (io.input::<u32>(8), io.input::<R>(9), io.input::<i64>(10));
        let (event, event_time) = (io.input::<u32>(11), io.input::<i64>(12));
        let (d, f) = (io.cols(0), io.cols(13));
        // No more nodes are an end of an event than that, and each has a row of s'.
        let written = positives.min(io.rows(9)).min(2 * event.len());
        // Node and latest root of a row.
        let target = |row: usize| {
            let v = io.row_of(row, node[row], io.rows(0))?;
            let latest = io.row_of(row, phi[row], psi.len())?;
            if latest % self.stride > 1 {
                io.fault(row, latest as f64);
                return None;
            }
            Some((v, latest))
        };
        // Memory of the node at the other end of the event of root `i`.
        let partner = |row: usize, i: usize| {
            let other = psi[i - i % self.stride + (1 - i % self.stride)];
            io.row_of(row, other, io.rows(9)).map(|other| &s[other * d..][..d])
        };
        for row in 0..written {
            let Some((v, latest)) = target(row) else { continue };
            let at = v * d..(v + 1) * d;
            T::keep(&s[row * d..][..d], &mut memory[at.clone()]);
            memory_time[v] = time[row];
            if self.combiner == Combiner::Last {
                match partner(row, latest) {
                    Some(other) => T::keep(other, &mut mail[at]),
                    None => mail[at].fill(T::zeroed()),
                }
            }
            mail_event[v] = event[latest / self.stride];
            mail_time[v] = event_time[latest / self.stride];
        }
        if self.combiner == Combiner::Last {
            return;
        }
        let (mail_edge, edge, edge_row) = (io.state::<T>(14), io.input::<R>(13), io.input::<u32>(15));
        let (shares, sums) = io.scratch::<R>()[..written * (1 + d + f)].split_at_mut(written);
        shares.fill(R::ZERO);
        sums.fill(R::ZERO);
        // Positive roots, with the rows that they are of.
        let positive = (0..psi.len()).filter(|i| i % self.stride < 2).map(|i| (i, psi[i] as usize));
        let positive = positive.filter(|&(_, row)| row < written);
        positive.clone().for_each(|(_, row)| shares[row] += R::ONE);
        for (i, row) in positive {
            let (own, features) = sums[row * (d + f)..][..d + f].split_at_mut(d);
            if let Some(other) = partner(row, i) {
                add_scaled(own, R::ONE / shares[row], other);
            }
            if let Some(e) = io.row_of(row, edge_row[i / self.stride], io.rows(13)) {
                add_scaled(features, R::ONE / shares[row], &edge[e * f..][..f]);
            }
        }
        for row in 0..written {
            let Some((v, _)) = target(row) else { continue };
            let (own, features) = sums[row * (d + f)..][..d + f].split_at(d);
            T::keep(own, &mut mail[v * d..][..d]);
            T::keep(features, &mut mail_edge[v * f..][..f]);
        }
    }
}

impl Op for WriteMemory {
    const NAME: &'static str = "write_memory";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if self.combiner == Combiner::Mean { 16 } else { 14 })?;
        kept_reals(Self::NAME, "memory", &ins[0])?;
        let fits = (2..NONE as usize).contains(&self.stride);
        ensure!(Self::NAME, fits, "{} roots an event, want two or more", self.stride);
        let [v, n, b, roots] = [ins[0], ins[5], ins[11], ins[8]].map(|s| s.rows);
        let (d, f, kept) = (ins[0].cols, ins[13].cols, ins[0].dtype);
        let table = |cols| Spec { dtype: kept, ..Spec::real(Rows::fixed(v.capacity), cols) };
        let of_nodes = Rows::fixed(v.capacity);
        for (i, what, want) in [
            (0, "memory", table(d)),
            (1, "memory time", Spec::times(of_nodes)),
            (2, "mail", table(d)),
            (3, "mail event", Spec::ids(of_nodes, 1)),
            (4, "mail time", Spec::times(of_nodes)),
            (5, "node", Spec::ids(n, 1)),
            (6, "phi", Spec::ids(n, 1)),
            (7, "positives", Spec::count()),
            (8, "psi", Spec::ids(b.times(self.stride), 1)),
            (9, "s'", Spec::real(n, d)),
            (10, "time", Spec::times(n)),
            (11, "event", Spec::ids(b, 1)),
            (12, "event time", Spec::times(b)),
            (14, "mail edge", table(f)),
            (15, "edge row", Spec::ids(b, 1)),
        ] {
            if let Some(found) = ins.get(i) {
                ensure!(Self::NAME, *found == want, "{what} is {found}, want {want}");
            }
        }
        ensure!(Self::NAME, roots.capacity < NONE as usize, "psi is {}, want fewer roots", ins[8]);
        if self.combiner == Combiner::Mean {
            typed(Self::NAME, "edge", &ins[13], DType::F32)?;
        }
        Ok(vec![])
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        if inputs > 14 { vec![0, 1, 2, 3, 4, 14] } else { vec![0, 1, 2, 3, 4] }
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        // The mean's: a share and the sums of every positive root, a source or a destination.
        let positives = ins[5].rows.capacity.min(2 * ins[11].rows.capacity);
        if self.combiner == Combiner::Mean { positives * (1 + ins[0].cols + ins[13].cols) } else { 0 }
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let rows = (2 * ins[11].rows.capacity).min(ins[5].rows.capacity);
        let number = 4 + ins[0].dtype.size(Precision::F32);
        Cost { bytes: rows * (2 * number * ins[0].cols + 40), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let add_scaled = |y: &mut [R], a: R, x: &[R]| y.iter_mut().zip(x).for_each(|(y, &x)| *y += a * x);
        by_kept!(io.spec(0).dtype, R, self.write(io, add_scaled));
    }
    fn cpu(&self, io: &Io<'_>) {
        by_kept!(io.spec(0).dtype, f32, self.write(io, axpy));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, phi, positives, psi) = (on.input(5), on.input(6), on.input(7), on.input(8));
        let (s, event, rows, roots) = (on.input(9), on.input(11), on.rows(9), on.rows(8));
        let (nodes, d, stride, status) = (on.capacity(0) as u32, on.cols(0), self.stride as u32, on.status());
        let mean = self.combiner == Combiner::Mean;
        let half = on.spec(0).dtype.is_half();
        // A positive root is the source or the destination of an event.
        let grid = Grid::warps(on.capacity(5).min(2 * on.capacity(11)));
        let (memory_time, mail_event, mail_time) = (on.state(1), on.state(3), on.state(4));
        let (time, event_time) = (on.input(10), on.input(12));
        if half {
            let ((memory, kind), (mail, _)) = (on.halves_state(0), on.halves_state(2));
            let mail = if mean { std::ptr::null_mut() } else { mail };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.write_half_memory(
                    on,
                    grid,
                    memory,
                    kind,
                    memory_time,
                    mail,
                    mail_event,
                    mail_time,
                    node,
                    phi,
                    positives,
                    psi,
                    s,
                    time,
                    event,
                    event_time,
                    rows,
                    roots,
                    nodes,
                    d,
                    stride,
                    status,
                )
            }?;
        } else {
            let mail = if mean { std::ptr::null_mut() } else { on.state(2) };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe {
                k.write_memory(
                    on,
                    grid,
                    on.state(0),
                    memory_time,
                    mail,
                    mail_event,
                    mail_time,
                    node,
                    phi,
                    positives,
                    psi,
                    s,
                    time,
                    event,
                    event_time,
                    rows,
                    roots,
                    nodes,
                    d,
                    stride,
                    status,
                )
            }?;
        }
        if !mean {
            return Ok(());
        }
        let by_end = (2, s, std::ptr::null(), rows, d);
        let by_event = (14, on.input(13), on.input(15), on.rows(13), on.cols(13));
        for (to, from, of, there, width) in [by_end, by_event] {
            if half {
                let (to, kind) = on.halves_state(to);
                // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
                unsafe {
                    k.write_half_memory_mean(
                        on, grid, to, kind, from, node, phi, positives, psi, of, rows, there, roots, nodes,
                        width, stride, status,
                    )
                }?;
            } else {
                let to = on.state(to);
                // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
                unsafe {
                    k.write_memory_mean(
                        on, grid, to, from, node, phi, positives, psi, of, rows, there, roots, nodes, width,
                        stride, status,
                    )
                }?;
            }
        }
        Ok(())
    }
}

/// `[nodes, events, d, f, mean]`; a sixth number says which of [`StoredAs::ALL`] memory and mails are kept as.
pub(super) const CASES: &[&[usize]] = &[
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
];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 600, 100, 172, 0]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, d, f, mean] = dims[..5] else {
        return Err(Error::shape("write_memory", "five sizes, or six"));
    };
    let combiner = if mean == 1 { Combiner::Mean } else { Combiner::Last };
    let kept = StoredAs::ALL[dims.get(5).copied().unwrap_or(0)];
    let half_mean = mean == 1 && kept != StoredAs::F32;
    let (memory, mail) = (c.kept(v, d, kept), c.kept(v, d, kept));
    let edge = if half_mean { c.few_bits(b + 5, f) } else { c.real(b + 5, f) };
    let state = MemoryVars {
        memory,
        memory_time: c.times(&vec![0; v]),
        mail,
        mail_event: c.ids(&vec![NONE; v], 1),
        mail_time: c.times(&vec![0; v]),
        edge: c.kept(v, f, kept),
        gathered: false,
    };
    let (stamp, roots) = (c.ids(&vec![0; v], 1), c.ids_below(3 * b, v));
    let n = c.tape.unique(stamp, roots, &[], 3)?;
    let made = match kept {
        StoredAs::F32 => memory,
        _ if half_mean => c.few_bits(v, d),
        _ => c.real(v, d),
    };
    let s = c.tape.gather_rows(made, n.node)?;
    let event = c.ids(&(5..5 + b as u32).collect::<Vec<_>>(), 1);
    let written = Written {
        memory: s,
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
