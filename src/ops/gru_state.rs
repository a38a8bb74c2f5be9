//! `h' = z h + (1 - z) tanh(pre)`: the new state of a GRU whose products are made before
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `z` | `[n, d]` f32 | the update gate, from [`gru_gates`]: how much of the state stays |
//! | `pre` | `[n, d]` f32 | what the candidate is a function of, bias inside |
//! | `h` | `[n, d]` f32, optional | the state; zeros without |
//! | `present` | `[n]` u32, optional | a row's state goes on as it is where this is [`NONE`] |
//! | h' | `[n, d]` f32 | |
//!
//! Backward, with `c = tanh(pre)` made again: `dz = dh' (h - c)`, `dpre = dh' (1 - z) (1 - c^2)`, `dh = dh' z`; where the state
//! goes on, `dh = dh'`. Deterministic.
//! Source: Cho et al. 2014.
use super::*;
use crate::runtime::{
    parts::with_thread_buffer,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::{null, null_mut};

/// Fewest rows that are a piece of work.
const PIECE: usize = 32;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct GruState {
    state: bool,
    present: bool,
}
/// Gradients of `z` and `pre`, and of `h` where it is there.
#[derive(Debug)]
pub struct GruStateGrad(GruState);

impl Tape {
    /// Appends [`GruState`].
    ///
    /// # Errors
    /// `Shape` when types or widths do not fit.
    pub fn gru_state(&mut self, z: Var, pre: Var, h: Option<Var>, present: Option<Var>) -> Result<Var> {
        let ins: Vec<Var> = [Some(z), Some(pre), h, present].into_iter().flatten().collect();
        self.push1(GruState { state: h.is_some(), present: present.is_some() }, &ins)
    }
}

impl GruState {
    /// Where h and the presence are among the inputs.
    fn places(self) -> [Option<usize>; 2] {
        [self.state.then_some(2), self.present.then_some(2 + usize::from(self.state))]
    }
    fn inputs(self) -> usize {
        2 + usize::from(self.state) + usize::from(self.present)
    }
    /// Refuses the first of these, which are there, where they are not those of the forward.
    fn check(self, op: &'static str, ins: &[Spec]) -> Result<()> {
        let out = ins[0];
        typed(op, "z", &out, DType::F32)?;
        for (what, at) in [("pre", Some(1)), ("h", self.places()[0])] {
            if let Some(at) = at {
                ensure!(op, ins[at] == out, "{what} is {}, want {out}", ins[at]);
            }
        }
        presence(op, ins, self.places()[1], out.rows)
    }
}

vectorised! {
    /// One row.
    fn row(out: &mut [f32], z: &[f32], pre: &[f32], h: &[f32]) {
        for (((out, &z), &pre), &h) in out.iter_mut().zip(z).zip(pre).zip(h) {
            *out = (1.0 - z).mul_add(simd::tanh(pre), z * h);
        }
    }
    /// Gradients of one row.
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, self.inputs())?;
        self.check(Self::NAME, ins)?;
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 14 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z, pre, [h, present]) = (io.cols(0), io.input::<R>(0), io.input::<R>(1), self.places());
        let (h, present) = (h.map(|h| io.input::<R>(h)), present.map(|p| io.input::<u32>(p)));
        for (at, out) in io.out::<R>(0).iter_mut().enumerate() {
            let h = h.map_or(R::ZERO, |h| h[at]);
            let goes_on = present.is_some_and(|p| p[at / d] == NONE);
            *out = if goes_on { h } else { z[at] * h + (R::ONE - z[at]) * pre[at].tanh() };
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, z, pre, [h, present]) = (io.cols(0), io.input::<f32>(0), io.input::<f32>(1), self.places());
        let (h, present) = (h.map(|h| io.input::<f32>(h)), present.map(|p| io.input::<u32>(p)));
        let size = team::piece(io.rows(0), PIECE);
        io.out::<f32>(0).chunks_mut((size * d).max(1)).enumerate().in_parallel(1, |(piece, out)| {
            with_thread_buffer(d, |zeros| {
                for (k, out) in (piece * size..).zip(out.chunks_exact_mut(d)) {
                    let h = h.map_or(&*zeros, |h| &h[k * d..][..d]);
                    if present.is_some_and(|p| p[k] == NONE) {
                        out.copy_from_slice(h);
                    } else {
                        row(out, &z[k * d..], &pre[k * d..], h);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [h, present] = self.places();
        let (h, present) = (h.map_or(null(), |h| on.input(h)), present.map_or(null(), |p| on.input(p)));
        let grid = Grid::items(on.spec(0).len() / 4);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.gru_state(on, grid, on.input(0), on.input(1), h, present, on.out(0), on.rows(0), on.cols(0))
        }
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let dout = self.0.inputs();
        arity(Self::NAME, ins, dout + 1)?;
        self.0.check(Self::NAME, ins)?;
        ensure!(Self::NAME, ins[dout] == ins[0], "dout is {}, want {}", ins[dout], ins[0]);
        Ok(ins[..2 + usize::from(self.0.state)].iter().map(|&s| s.into()).collect())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 16 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z, pre, [h, present]) = (io.cols(0), io.input::<R>(0), io.input::<R>(1), self.0.places());
        let (h, present) = (h.map(|h| io.input::<R>(h)), present.map(|p| io.input::<u32>(p)));
        let dout = io.input::<R>(self.0.inputs());
        let (dz, dpre, mut dh) = (io.out::<R>(0), io.out::<R>(1), h.map(|_| io.out::<R>(2)));
        for at in 0..dout.len() {
            let (c, old) = (pre[at].tanh(), h.map_or(R::ZERO, |h| h[at]));
            let goes_on = present.is_some_and(|p| p[at / d] == NONE);
            let (of_z, of_pre) = (dout[at] * (old - c), dout[at] * (R::ONE - z[at]) * (R::ONE - c * c));
            (dz[at], dpre[at]) = if goes_on { (R::ZERO, R::ZERO) } else { (of_z, of_pre) };
            if let Some(dh) = &mut dh {
                dh[at] = if goes_on { dout[at] } else { dout[at] * z[at] };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, z, pre, [h, present]) = (io.cols(0), io.input::<f32>(0), io.input::<f32>(1), self.0.places());
        let (h, present) = (h.map(|h| io.input::<f32>(h)), present.map(|p| io.input::<u32>(p)));
        let (dout, size) = (io.input::<f32>(self.0.inputs()), team::piece(io.rows(0), PIECE));
        let pieces = |k: usize| io.out::<f32>(k).chunks_mut((size * d).max(1));
        let outs = pieces(0).zip(pieces(1)).zip(optional_pieces(h.map(|_| io.out(2)), size * d));
        outs.enumerate().in_parallel(1, |(piece, ((dz, dpre), mut dh))| {
            with_thread_buffer(2 * d, |buffer| {
                let (zeros, unread) = buffer.split_at_mut(d);
                for (own, (dz, dpre)) in dz.chunks_exact_mut(d).zip(dpre.chunks_exact_mut(d)).enumerate() {
                    let at = (piece * size + own) * d;
                    let dh = dh.as_deref_mut().map_or(&mut *unread, |dh| &mut dh[own * d..][..d]);
                    let dout = &dout[at..][..d];
                    if present.is_some_and(|p| p[piece * size + own] == NONE) {
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
        let [h, present] = self.0.places();
        let (h, present) = (h.map_or(null(), |h| on.input(h)), present.map_or(null(), |p| on.input(p)));
        let dh = if self.0.state { on.out(2) } else { null_mut() };
        let (z, pre, dout) = (on.input(0), on.input(1), on.input(self.0.inputs()));
        let grid = Grid::items(on.spec(0).len() / 4);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.gru_state_grad(
                on,
                grid,
                z,
                pre,
                h,
                present,
                dout,
                on.out(0),
                on.out(1),
                dh,
                on.rows(0),
                on.cols(0),
            )
        }
    }
}

/// `[n, d, with a state, with rows that are not there]`: of n + 2 rows n are live.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 0, 0], &[0, 3, 1, 1], &[9, 5, 1, 1], &[40, 64, 1, 1], &[33, 16, 0, 1], &[9, 4, 1, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[10_000, 64, 1, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, state, absent] = *dims else { return Err(Error::shape("gru_state", "four sizes")) };
    let count = c.count(n);
    let [z, pre] = [(); 2].map(|()| c.live_real(n + 2, count, d));
    let h = (state == 1).then(|| c.live_real(n + 2, count, d));
    let present = (absent == 1).then(|| c.present(n + 2, count));
    let out = c.tape.gru_state(z, pre, h, present)?;
    Ok(Built::new(&[out], &[z, pre].into_iter().chain(h).collect::<Vec<_>>()))
}
