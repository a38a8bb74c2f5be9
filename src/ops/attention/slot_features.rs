//! `out[i k + j, :] = {edge[event[i, j]] | cos(w dt[i, j] + b)}`: what is known of a neighbour slot's event
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `event` | `[n, k]` u32 below `e`, or [`NONE`] | row of `edge`; any number but `NONE` if `f` is 0 |
//! | `dt` | `[n, k]` f32 | seconds from the event to the query |
//! | `edge` | `[e, f]` f32 | edge features |
//! | `w`, `b` | `[1, t]` f32 | fixed frequencies and phases of the time encoding, as in [`time_encode`] |
//! | out | `[n k, f + t]` f32 | one row per slot; zeros where the event is `NONE` |
//!
//! No backward: everything that it reads is data. An event outside of `edge` is a fault.
//! Source: the link encoder of GraphMixer (Cong et al. 2023).
use super::{
    sample_neighbors::Neighbors,
    time_encode::{define_phi, encode},
    *,
};
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct SlotFeatures;

impl Tape {
    /// Appends [`SlotFeatures`] of sampled neighbours: the edge features and the time encoding of every slot,
    /// f32 `[n k, f + t]`. `time` holds `w` and `b`.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{sample_neighbors::Neighbors, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let event = tape.input(&mut store, "event", Spec::ids(Rows::fixed(1), 2), &[1u32, NONE])?;
    /// let dt = tape.input(&mut store, "dt", Spec::real(Rows::fixed(1), 2), &[0.0f32, 0.0])?;
    /// let edge = tape.input(&mut store, "edge", Spec::real(Rows::fixed(2), 1), &[4.0f32, 5.0])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[2.0f32])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 1), &[0.0f32])?;
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(1), 2), &[0u32, NONE])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(2)), &[0i64, 0])?;
    /// let count = tape.input(&mut store, "count", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let near = Neighbors { node, event, dt, time, count }; // from `sample_neighbors`
    /// let features = tape.slot_features(&near, edge, (w, b))?;
    /// let mut program = Program::new(&tape, &[features], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(features, &store)?, [5.0, 1.0, 0.0, 0.0]); // cos(2 * 0 + 0) = 1
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn slot_features(&mut self, near: &Neighbors, edge: Var, time: (Var, Var)) -> Result<Var> {
        self.push1(SlotFeatures, &[near.event, near.dt, edge, time.0, time.1])
    }
}

/// Returns the row of the edge features of slot `at`, 0 if these have no columns; `None` for an unused slot.
fn feature_row(io: &Io<'_>, at: usize, event: u32) -> Option<usize> {
    match (event, io.cols(at!(SlotFeatures, edge))) {
        (NONE, _) => None,
        (_, 0) => Some(0),
        _ => io.row_of(at, event, io.rows(at!(SlotFeatures, edge))),
    }
}

impl Op for SlotFeatures {
    const NAME: &'static str = "slot_features";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "event [n, k] ids, dt [n, k], edge [e, f], w [1, t], b [1, t] \
        -> out [n k, f + t]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let event = ins[at!(event)];
        countable(Self::NAME, "slots", event.rows.times(event.cols).capacity)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (slots, t) = (ins[at!(event)].len(), ins[at!(w)].cols);
        let read = slots * (2 + ins[at!(edge)].cols);
        Cost { bytes: 4 * (read + outs[0].len()), flops: 20 * slots * t }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (event, dt, edge) = (io.input(at!(event)), io.input::<R>(at!(dt)), io.input::<R>(at!(edge)));
        let (w, b, f, c) = (io.input(at!(w)), io.input(at!(b)), io.cols(at!(edge)), io.out_cols(0));
        for (at, out) in io.out::<R>(0).iter_mut().enumerate() {
            let (slot, j) = (at / c, at % c);
            *out = match feature_row(io, slot, event[slot]) {
                None => R::ZERO,
                Some(row) if j < f => edge[row * f + j],
                Some(_) => define_phi(dt[slot], w, b, j - f),
            };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (event, dt, edge) = (io.input(at!(event)), io.input::<f32>(at!(dt)), io.input(at!(edge)));
        let (w, b, f, c) = (io.input(at!(w)), io.input(at!(b)), io.cols(at!(edge)), io.out_cols(0));
        if c == 0 {
            return;
        }
        let size = team::piece(event.len(), 64);
        io.out::<f32>(0).chunks_mut(size * c).enumerate().in_parallel(1, |(piece, out)| {
            for (slot, out) in (piece * size..).zip(out.chunks_exact_mut(c)) {
                let Some(row) = feature_row(io, slot, event[slot]) else {
                    out.fill(0.0);
                    continue;
                };
                let (features, phi) = out.split_at_mut(f);
                features.copy_from_slice(&edge[row * f..][..f]);
                encode(phi, dt[slot], w, b);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (event, dt, edge) = (on.input(at!(event)), on.input(at!(dt)), on.input(at!(edge)));
        let (w, b, out, rows) = (on.input(at!(w)), on.input(at!(b)), on.out(0), on.out_rows(0));
        let (events, f, t) = (on.rows(at!(edge)), on.cols(at!(edge)), on.cols(at!(w)));
        let grid = Grid::warps(on.out_cap(0));
        launch!(k, on, slot_features[grid]; event, dt, edge, w, b, out, rows, events, f, t, on.status())
    }
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// `[n, k, events, f, t]`; every third slot is unused.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 1, 1], &[0, 3, 2, 4, 4], &[5, 3, 7, 0, 6], &[4, 2, 5, 3, 0], &[20, 5, 30, 37, 40]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 20, 110_232, 172, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, events, f, t] = [dims[0], dims[1], dims[2], dims[3], dims[4]];
    let slots: Vec<u32> =
        (0..n * k).map(|i| if i % 3 == 2 { NONE } else { c.below(events) as u32 }).collect();
    let event = c.values(Spec::ids(Rows::fixed(n), k), &slots);
    let dt = c.real_in(n, k, |u| (10.0 * (u + 1.0)).round());
    let (edge, w, b) = (c.real(events, f), c.real(1, t), c.real(1, t));
    let out = c.tape.push1(SlotFeatures, &[event, dt, edge, w, b])?;
    Ok(Built::new(&[out], &[]))
}
