//! `h' = z h + (1 - z) tanh(pre)`: the new state of a GRU, from computed products
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `z` | `[n, d]` f32 | the update gate, from [`gru_gates`]: the fraction of the state that is kept |
//! | `pre` | `[n, d]` f32 | argument of the candidate state, bias included |
//! | `h` | `[n, d]` f32, optional | state; zeros if absent |
//! | `present` | `[n]` u32, optional | a row with [`NONE`] keeps its state unchanged |
//! | h' | `[n, d]` f32 | new state |
//!
//! Backward, with `c = tanh(pre)` recomputed: `dz = dh' (h - c)`, `dpre = dh' (1 - z) (1 - c^2)`,
//! `dh = dh' z`; in a row that keeps its state, `dz = dpre = 0` and `dh = dh'`. Deterministic.
//! Source: Cho et al. 2014.
use super::*;
use crate::runtime::{
    parts::with_thread_buffer,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::{null, null_mut};

/// Minimum number of rows per piece of work.
const PIECE: usize = 32;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct GruState {
    state: bool,
    present: bool,
}
/// Gradients of `z`, `pre`, and `h` if there is a state. The inputs are those of [`GruState`], then dh'.
#[derive(Debug)]
pub struct GruStateGrad(GruState);

impl Tape {
    /// Appends [`GruState`] and returns the new state `z h + (1 - z) tanh(pre)`; all are f32 `[n, d]`. Rows
    /// for which `present`, u32 `[n]`, is [`NONE`] keep their state.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let z = tape.input(&mut store, "z", Spec::real(Rows::fixed(2), 1), &[0.5f32, 0.5])?;
    /// let pre = tape.input(&mut store, "pre", Spec::real(Rows::fixed(2), 1), &[0.0f32, 0.0])?;
    /// let h = tape.input(&mut store, "h", Spec::real(Rows::fixed(2), 1), &[4.0f32, 6.0])?;
    /// let present = tape.input(&mut store, "present", Spec::ids(Rows::fixed(2), 1), &[0u32, NONE])?;
    /// let state = tape.gru_state(z, pre, Some(h), Some(present))?;
    /// let mut program = Program::new(&tape, &[state], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(state, &store)?, [2.0, 6.0]); // row 1 is absent
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gru_state(&mut self, z: Var, pre: Var, h: Option<Var>, present: Option<Var>) -> Result<Var> {
        let ins: Vec<Var> = [Some(z), Some(pre), h, present].into_iter().flatten().collect();
        self.push1(GruState { state: h.is_some(), present: present.is_some() }, &ins)
    }
}

impl GruState {
    /// Returns the positions of `h` and `present`, `None` if absent.
    fn positions(self) -> [Option<usize>; 2] {
        [self.state.then_some(2), self.present.then_some(2 + usize::from(self.state))]
    }
    /// Returns the number of inputs of the forward op.
    fn inputs(self) -> usize {
        2 + usize::from(self.state) + usize::from(self.present)
    }
}

vectorised! {
    /// Computes the new state of one row.
    fn row(out: &mut [f32], z: &[f32], pre: &[f32], h: &[f32]) {
        for (((out, &z), &pre), &h) in out.iter_mut().zip(z).zip(pre).zip(h) {
            *out = (1.0 - z).mul_add(simd::tanh(pre), z * h);
        }
    }
    /// Computes the gradients of one row.
    fn row_grad(dz: &mut [f32], dpre: &mut [f32], dh: &mut [f32], z: &[f32], pre: &[f32], h: &[f32], dout: &[f32]) {
        let outs = dz.iter_mut().zip(dpre).zip(dh);
        for (((((dz, dpre), dh), &z), &pre), (&h, &dout)) in outs.zip(z).zip(pre).zip(h.iter().zip(dout)) {
            let c = simd::tanh(pre);
            *dz = dout * (h - c);
            *dpre = dout * (1.0 - z) * (-c).mul_add(c, 1.0);
            *dh = dout * z;
        }
    }
}

impl Op for GruState {
    const NAME: &'static str = "gru_state";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "z [n, d], pre [n, d], h? [n, d], present? [n] ids -> h_out [n, d]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "h" => self.state,
            _ => self.present,
        })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 14 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z, pre, [h, present]) =
            (io.cols(at!(z)), io.input::<R>(at!(z)), io.input::<R>(at!(pre)), self.positions());
        let (h, present) = (h.map(|h| io.input::<R>(h)), present.map(|p| io.input::<u32>(p)));
        for (at, out) in io.out::<R>(0).iter_mut().enumerate() {
            let h = h.map_or(R::ZERO, |h| h[at]);
            let absent = present.is_some_and(|p| p[at / d] == NONE);
            *out = if absent { h } else { z[at] * h + (R::ONE - z[at]) * pre[at].tanh() };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, z, pre) = (io.cols(at!(z)), io.input::<f32>(at!(z)), io.input::<f32>(at!(pre)));
        let [h, present] = self.positions();
        let (h, present) = (h.map(|h| io.input::<f32>(h)), present.map(|p| io.input::<u32>(p)));
        let size = team::piece(io.rows(at!(z)), PIECE);
        io.out::<f32>(0).chunks_mut((size * d).max(1)).enumerate().in_parallel(1, |(piece, out)| {
            with_thread_buffer(d, |zeros| {
                for (i, out) in (piece * size..).zip(out.chunks_exact_mut(d)) {
                    let h = h.map_or(&*zeros, |h| &h[i * d..][..d]);
                    if present.is_some_and(|p| p[i] == NONE) {
                        out.copy_from_slice(h);
                    } else {
                        row(out, &z[i * d..], &pre[i * d..], h);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [h, present] = self.positions();
        let (h, present) = (h.map_or(null(), |h| on.input(h)), present.map_or(null(), |p| on.input(p)));
        let grid = Grid::items(on.spec(at!(z)).len() / 4);
        launch!(
            k, on, gru_state[grid];
            on.input(at!(z)), on.input(at!(pre)), h, present, on.out(0), on.rows(at!(z)), on.cols(at!(z))
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dout) = douts[0] else { return Ok(vec![None; node.ins.len()]) };
        let ins: Vec<Var> = node.ins.iter().copied().chain([dout]).collect();
        let mut dins: Vec<Option<Var>> = t.push(GruStateGrad(*self), &ins)?.into_iter().map(Some).collect();
        dins.resize(node.ins.len(), None);
        Ok(dins)
    }
}

impl Op for GruStateGrad {
    const NAME: &'static str = "gru_state_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "z [n, d], pre [n, d], h? [n, d], present? [n] ids, dout [n, d] \
        -> dz [n, d], dpre [n, d], dh? [n, d]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "present" => self.0.present,
            _ => self.0.state,
        })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 16 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z, pre) = (io.cols(at!(z)), io.input::<R>(at!(z)), io.input::<R>(at!(pre)));
        let [h, present] = self.0.positions();
        let (h, present) = (h.map(|h| io.input::<R>(h)), present.map(|p| io.input::<u32>(p)));
        let dout = io.input::<R>(self.0.inputs());
        let (dz, dpre, mut dh) = (io.out::<R>(0), io.out::<R>(1), h.map(|_| io.out::<R>(2)));
        for at in 0..dout.len() {
            let (c, old) = (pre[at].tanh(), h.map_or(R::ZERO, |h| h[at]));
            let absent = present.is_some_and(|p| p[at / d] == NONE);
            let (of_z, of_pre) = (dout[at] * (old - c), dout[at] * (R::ONE - z[at]) * (R::ONE - c * c));
            (dz[at], dpre[at]) = if absent { (R::ZERO, R::ZERO) } else { (of_z, of_pre) };
            if let Some(dh) = &mut dh {
                dh[at] = if absent { dout[at] } else { dout[at] * z[at] };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, z, pre) = (io.cols(at!(z)), io.input::<f32>(at!(z)), io.input::<f32>(at!(pre)));
        let [h, present] = self.0.positions();
        let (h, present) = (h.map(|h| io.input::<f32>(h)), present.map(|p| io.input::<u32>(p)));
        let (dout, size) = (io.input::<f32>(self.0.inputs()), team::piece(io.rows(at!(z)), PIECE));
        let pieces = |k: usize| io.out::<f32>(k).chunks_mut((size * d).max(1));
        let outs = pieces(0).zip(pieces(1)).zip(optional_pieces(h.map(|_| io.out(2)), size * d));
        outs.enumerate().in_parallel(1, |(piece, ((dz, dpre), mut dh))| {
            with_thread_buffer(2 * d, |buffer| {
                let (zeros, unused) = buffer.split_at_mut(d);
                for (i, (dz, dpre)) in dz.chunks_exact_mut(d).zip(dpre.chunks_exact_mut(d)).enumerate() {
                    let at = (piece * size + i) * d;
                    let dh = dh.as_deref_mut().map_or(&mut *unused, |dh| &mut dh[i * d..][..d]);
                    let dout = &dout[at..][..d];
                    if present.is_some_and(|p| p[piece * size + i] == NONE) {
                        dz.fill(0.0);
                        dpre.fill(0.0);
                        dh.copy_from_slice(dout);
                    } else {
                        row_grad(dz, dpre, dh, &z[at..], &pre[at..], h.map_or(zeros, |h| &h[at..]), dout);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [h, present] = self.0.positions();
        let (h, present) = (h.map_or(null(), |h| on.input(h)), present.map_or(null(), |p| on.input(p)));
        let dh = if self.0.state { on.out(2) } else { null_mut() };
        let (z, pre, dout) = (on.input(at!(z)), on.input(at!(pre)), on.input(self.0.inputs()));
        let grid = Grid::items(on.spec(at!(z)).len() / 4);
        launch!(
            k, on, gru_state_grad[grid];
            z, pre, h, present, dout, on.out(0), on.out(1), dh, on.rows(at!(z)), on.cols(at!(z))
        )
    }
}

/// `[n, d, state, absent rows]`: n of n + 2 rows are live; a state is given and rows are absent if these are
/// 1.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0, 0], &[0, 3, 1, 1], &[9, 5, 1, 1], &[40, 64, 1, 1], &[33, 16, 0, 1], &[9, 4, 1, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 64, 1, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, state, absent] = *dims else { return Err(Error::shape("gru_state", "want four sizes")) };
    let count = c.count(n);
    let [z, pre] = [(); 2].map(|()| c.live_real(n + 2, count, d));
    let h = (state == 1).then(|| c.live_real(n + 2, count, d));
    let present = (absent == 1).then(|| c.present(n + 2, count));
    let out = c.tape.gru_state(z, pre, h, present)?;
    Ok(Built::new(&[out], &[z, pre].into_iter().chain(h).collect::<Vec<_>>()))
}
