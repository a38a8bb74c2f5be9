//! New memory and new mails of the positive roots, in place
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `memory`, `memory time`, `mail`, `mail event`, `mail time` | as in `memory_update` | state |
//! | `mail edge` | `[v, f]` f32, state | only with the mean combiner: the mail's own features |
//! | `distinct`, `phi`, `positives` | as `distinct` gives them | phi: the node's latest root |
//! | `psi` | `[(2 + m) b]` u32 | rows of the roots in `distinct` |
//! | `s'`, `time` | `[n, d]` f32, `[n]` i64 | memory after the mails |
//! | `event`, `event time` | `[b]` u32, i64 | events of the batch |
//! | `edge` | `[e, f]` f32 | edge features |
//!
//! For each distinct positive root: memory := s', its time := the time of the consumed mail; then the new mail is
//! `(s'_partner, event, time)` of its latest event in the batch (ties: the later position; phi decides, so no race
//! does). `Mean` averages partner memory and edge features over the node's events of the batch and takes the latest
//! time. Negatives and supporting nodes write nothing. No gradient.
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
    /// `[<= v]` distinct nodes.
    pub node: Var,
    /// Latest root of each.
    pub phi: Var,
    /// Number of distinct positive roots.
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
    /// Edge features by event.
    pub edge: Var,
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
            ins.push(state.edge);
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
    fn write<R: Real>(&self, io: &Io<'_>, add_scaled: impl Fn(&mut [R], R, &[R])) {
        let (memory, memory_time) = (io.state::<R>(0), io.state::<i64>(1));
        let (mail, mail_event, mail_time) = (io.state::<R>(2), io.state::<u32>(3), io.state::<i64>(4));
        let (node, phi, positives) = (io.input::<u32>(5), io.input::<u32>(6), io.input::<u32>(7)[0] as usize);
        let (psi, s, time) = (io.input::<u32>(8), io.input::<R>(9), io.input::<i64>(10));
        let (event, event_time, edge) = (io.input::<u32>(11), io.input::<i64>(12), io.input::<R>(13));
        let (d, f) = (io.cols(0), io.cols(13));
        // The row of the node at the other end of the event of root `i`.
        let partner = |i: usize| {
            let side = i % self.stride;
            psi[i - side + (1 - side)] as usize
        };
        for row in 0..positives {
            let (v, latest) = (node[row] as usize, phi[row] as usize);
            let at = v * d..(v + 1) * d;
            memory[at.clone()].copy_from_slice(&s[row * d..][..d]);
            memory_time[v] = time[row];
            match self.combiner {
                Combiner::Last => mail[at].copy_from_slice(&s[partner(latest) * d..][..d]),
                Combiner::Mean => mail[at].fill(R::ZERO),
            }
            mail_event[v] = event[latest / self.stride];
            mail_time[v] = event_time[latest / self.stride];
        }
        if self.combiner == Combiner::Last {
            return;
        }
        let mail_edge = io.state::<R>(14);
        let shares = &mut io.scratch::<R>()[..node.len()];
        shares.fill(R::ZERO);
        let positive = || (0..psi.len()).filter(|i| i % self.stride < 2);
        positive().for_each(|i| shares[psi[i] as usize] += R::ONE);
        for v in node[..positives].iter().map(|&v| v as usize) {
            mail_edge[v * f..][..f].fill(R::ZERO);
        }
        for i in positive() {
            let (v, e) = (node[psi[i] as usize] as usize, event[i / self.stride] as usize);
            let share = R::ONE / shares[psi[i] as usize];
            add_scaled(&mut mail[v * d..][..d], share, &s[partner(i) * d..][..d]);
            add_scaled(&mut mail_edge[v * f..][..f], share, &edge[e * f..][..f]);
        }
    }
}

impl Op for WriteMemory {
    const NAME: &'static str = "write_memory";
    const KIND: Kind = Kind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if self.combiner == Combiner::Mean { 15 } else { 14 })?;
        let (v, d, f) = (ins[0].rows.cap, ins[0].cols, ins[13].cols);
        for (i, what, cols) in [
            (1, "memory time", 1),
            (2, "mail", d),
            (3, "mail event", 1),
            (4, "mail time", 1),
            (14, "mail edge", f),
        ] {
            if let Some(s) = ins.get(i) {
                shaped(Self::NAME, what, s, v, cols)?;
            }
        }
        ensure!(
            Self::NAME,
            ins[9].cols == d && ins[9].rows == ins[5].rows,
            "s' is {}, memory is {}",
            ins[9],
            ins[0]
        );
        ensure!(
            Self::NAME,
            ins[8].rows == ins[11].rows.times(self.stride),
            "psi is {}, events {}",
            ins[8],
            ins[11]
        );
        Ok(vec![])
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        if inputs > 14 { vec![0, 1, 2, 3, 4, 14] } else { vec![0, 1, 2, 3, 4] }
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        if self.combiner == Combiner::Mean { ins[5].rows.cap } else { 0 }
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let rows = (2 * ins[11].rows.cap).min(ins[5].rows.cap);
        Cost { bytes: rows * (16 * ins[0].cols + 40), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        self.write::<R>(io, |y, a, x| y.iter_mut().zip(x).for_each(|(y, &x)| *y += a * x));
    }
    fn cpu(&self, io: &Io<'_>) {
        self.write::<f32>(io, axpy);
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (node, phi, positives, psi) = (on.input(5), on.input(6), on.input(7), on.input(8));
        let (s, event, rows, d, stride) =
            (on.input(9), on.input(11), on.rows(9), on.cols(0), self.stride as u32);
        let mean = self.combiner == Combiner::Mean;
        let mail = on.state::<f32>(2);
        // A positive root is the source or the destination of an event.
        let grid = Grid::warps(on.cap(5).min(2 * on.cap(11)));
        k.write_memory(
            on,
            grid,
            on.state(0),
            on.state(1),
            if mean { std::ptr::null_mut() } else { mail },
            on.state(3),
            on.state(4),
            node,
            phi,
            positives,
            psi,
            s,
            on.input(10),
            event,
            on.input(12),
            rows,
            d,
            stride,
        )?;
        if !mean {
            return Ok(());
        }
        let ends = std::ptr::null();
        k.write_memory_mean(on, grid, mail, s, node, phi, positives, psi, ends, rows, rows, d, stride)?;
        let (mails, edge, edges, f) = (on.state(14), on.input(13), on.rows(13), on.cols(13));
        k.write_memory_mean(on, grid, mails, edge, node, phi, positives, psi, event, rows, edges, f, stride)
    }
}

/// `[nodes, events, d, f, mean]`
pub(super) const CASES: &[&[usize]] = &[
    &[2, 1, 1, 0, 0],
    &[5, 0, 3, 2, 1],
    &[6, 9, 4, 3, 0],
    &[6, 9, 4, 3, 1],
    &[90, 50, 20, 3, 1],
    &[9, 60, 133, 70, 1],
    &[40, 60, 133, 8, 0],
];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 600, 100, 172, 0]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, d, f, mean] = *dims else { return Err(Error::shape("write_memory", "five sizes")) };
    let combiner = if mean == 1 { Combiner::Mean } else { Combiner::Last };
    let (memory, mail, edge) = (c.real(v, d), c.real(v, d), c.real(b + 5, f));
    let state = MemoryVars {
        memory,
        memory_time: c.times(&vec![0; v]),
        mail,
        mail_event: c.ids(&vec![NONE; v], 1),
        mail_time: c.times(&vec![0; v]),
        edge: c.real(v, f),
    };
    let (stamp, roots) = (c.ids(&vec![0; v], 1), c.ids_below(3 * b, v));
    let n = c.tape.distinct(stamp, roots, &[], 3)?;
    let s = c.tape.gather_rows(memory, n.node)?;
    let written = Written {
        memory: s,
        time: c.values(Spec::times(n.rows), &(0..v.min(3 * b) as i64).collect::<Vec<_>>()),
        event: c.ids(&(5..5 + b as u32).collect::<Vec<_>>(), 1),
        event_time: c.times(&(0..b as i64).map(|t| 9 + t).collect::<Vec<_>>()),
        edge,
        node: n.node,
        phi: n.phi,
        positives: n.positives,
        psi: n.psi[0],
    };
    c.tape.write_memory(state, &written, combiner, 3)?;
    let MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge } = state;
    Ok(Built { states: vec![memory, memory_time, mail, mail_event, mail_time, edge], ..Built::default() })
}
