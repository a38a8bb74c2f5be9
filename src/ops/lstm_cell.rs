//! `c' = sig(f) c + sig(i) tanh(g)`, `h' = sig(o) tanh(c')`: a step of an LSTM whose products are made before
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `pre` | `[n, 4 d]` f32 | what the gates i, f, g, o are functions of, biases inside; the order is that of PyTorch's `LSTMCell` |
//! | `h`, `c` | `[n, d]` f32, optional | the state; zeros without |
//! | `present` | `[n]` u32, optional | a row's state goes on as it is where this is [`NONE`] |
//! | h', c' | `[n, d]` f32 | |
//!
//! Backward, with the gates made again of `pre`: `ds = dc' + dh' o (1 - tanh(c')^2)`, `di = ds g i (1 - i)`,
//! `df = ds c f (1 - f)`, `dg = ds i (1 - g^2)`, `do = dh' tanh(c') o (1 - o)`, `dc = ds f`; where the state goes on, `dh = dh'`
//! and `dc = dc'`. Deterministic.
//! Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
use super::*;
use crate::runtime::{
    parts::with_thread_buffer,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::{null, null_mut};

/// Fewest rows that are a piece of work.
const PIECE: usize = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct LstmCell {
    state: bool,
    present: bool,
}
/// Gradients of `pre`; of `c`, where there is a state; of `h`, where it may go on as it is.
#[derive(Debug)]
pub struct LstmCellGrad {
    cell: LstmCell,
    dh: bool,
    dc: bool,
}

impl Tape {
    /// Appends [`LstmCell`] and returns h' and c'; `state` is h and c.
    ///
    /// # Errors
    /// `Shape` when types or widths do not fit.
    pub fn lstm_cell(
        &mut self,
        pre: Var,
        state: Option<(Var, Var)>,
        present: Option<Var>,
    ) -> Result<(Var, Var)> {
        let cell = LstmCell { state: state.is_some(), present: present.is_some() };
        let ins: Vec<Var> = std::iter::once(pre)
            .chain(state.map(|s| [s.0, s.1]).into_iter().flatten())
            .chain(present)
            .collect();
        let o = self.push(cell, &ins)?;
        Ok((o[0], o[1]))
    }
}

impl LstmCell {
    /// Where h and c are among the inputs.
    fn state(self) -> Option<[usize; 2]> {
        self.state.then_some([1, 2])
    }
    fn present(self) -> Option<usize> {
        self.present.then_some(1 + 2 * usize::from(self.state))
    }
    fn inputs(self) -> usize {
        1 + 2 * usize::from(self.state) + usize::from(self.present)
    }
}

/// i, f, g, o of column `j`.
fn gates<R: Real>(pre: &[R], d: usize, j: usize) -> [R; 4] {
    [pre[j].sigmoid(), pre[d + j].sigmoid(), pre[2 * d + j].tanh(), pre[3 * d + j].sigmoid()]
}

vectorised! {
    /// One row.
    fn row(h: &mut [f32], c: &mut [f32], pre: &[f32], old: &[f32]) {
        let d = old.len();
        let (i, f, g, o) = (&pre[..d], &pre[d..2 * d], &pre[2 * d..3 * d], &pre[3 * d..4 * d]);
        let (h, c) = (&mut h[..d], &mut c[..d]);
        for j in 0..d {
            let new = simd::sigmoid(f[j]).mul_add(old[j], simd::sigmoid(i[j]) * simd::tanh(g[j]));
            c[j] = new;
            h[j] = simd::sigmoid(o[j]) * simd::tanh(new);
        }
    }
    /// Gradients of one row.
    fn row_grad(dpre: &mut [f32], dc: &mut [f32], pre: &[f32], c: &[f32], dh_out: &[f32], dc_out: &[f32]) {
        let d = c.len();
        let (i, f, g, o) = (&pre[..d], &pre[d..2 * d], &pre[2 * d..3 * d], &pre[3 * d..4 * d]);
        let (di, rest) = dpre.split_at_mut(d);
        let (df, rest) = rest.split_at_mut(d);
        let (dg, d_o) = rest.split_at_mut(d);
        let (dc, d_o, dh_out, dc_out) = (&mut dc[..d], &mut d_o[..d], &dh_out[..d], &dc_out[..d]);
        for j in 0..d {
            let (i, f, g, o) = (simd::sigmoid(i[j]), simd::sigmoid(f[j]), simd::tanh(g[j]), simd::sigmoid(o[j]));
            let t = simd::tanh(f.mul_add(c[j], i * g));
            let ds = (dh_out[j] * o).mul_add((-t).mul_add(t, 1.0), dc_out[j]);
            di[j] = ds * g * i * (1.0 - i);
            df[j] = ds * c[j] * f * (1.0 - f);
            dg[j] = ds * i * (-g).mul_add(g, 1.0);
            d_o[j] = dh_out[j] * t * o * (1.0 - o);
            dc[j] = ds * f;
        }
    }
}

impl Op for LstmCell {
    const NAME: &'static str = "lstm_cell";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, self.inputs())?;
        let pre = ins[0];
        typed(Self::NAME, "pre", &pre, DType::F32)?;
        ensure!(Self::NAME, pre.cols.is_multiple_of(4), "pre is {pre}, want four gates");
        let out = Spec::real(pre.rows, pre.cols / 4);
        for at in self.state().into_iter().flatten() {
            ensure!(Self::NAME, ins[at] == out, "state is {}, want {out}", ins[at]);
        }
        presence(Self::NAME, ins, self.present(), out.rows)?;
        Ok(vec![out.into(), out.into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 40 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, pre, present) =
            (io.out_cols(0), io.input::<R>(0), self.present().map(|p| io.input::<u32>(p)));
        let state = self.state().map(|s| s.map(|s| io.input::<R>(s)));
        let (h, c) = (io.out::<R>(0), io.out::<R>(1));
        for at in 0..h.len() {
            let (row, j) = (at / d, at % d);
            let [h_old, c_old] = state.map_or([R::ZERO; 2], |s| s.map(|s| s[at]));
            if present.is_some_and(|p| p[row] == NONE) {
                (h[at], c[at]) = (h_old, c_old);
                continue;
            }
            let [i, f, g, o] = gates(&pre[4 * d * row..], d, j);
            c[at] = f * c_old + i * g;
            h[at] = o * c[at].tanh();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, pre, present) =
            (io.out_cols(0), io.input::<f32>(0), self.present().map(|p| io.input::<u32>(p)));
        let state = self.state().map(|s| s.map(|s| io.input::<f32>(s)));
        let size = team::piece(io.rows(0), PIECE);
        let outs = io
            .out::<f32>(0)
            .chunks_mut((size * d).max(1))
            .zip(io.out::<f32>(1).chunks_mut((size * d).max(1)));
        outs.enumerate().in_parallel(1, |(piece, (h, c))| {
            with_thread_buffer(d, |zeros| {
                for (k, (h, c)) in (piece * size..).zip(h.chunks_exact_mut(d).zip(c.chunks_exact_mut(d))) {
                    let [h_old, c_old] = state.map_or([&*zeros; 2], |s| s.map(|s| &s[k * d..][..d]));
                    if present.is_some_and(|p| p[k] == NONE) {
                        h.copy_from_slice(h_old);
                        c.copy_from_slice(c_old);
                    } else {
                        row(h, c, &pre[4 * k * d..][..4 * d], c_old);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [h, c] = self.state().map_or([null(); 2], |s| s.map(|s| on.input(s)));
        let present = self.present().map_or(null(), |p| on.input(p));
        let (d, grid) = (on.out_cols(0), Grid::items(on.spec(0).len() / 16));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.lstm_cell(on, grid, on.input(0), h, c, present, on.out(0), on.out(1), on.rows(0), d) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let grad = LstmCellGrad { cell: *self, dh: douts[0].is_some(), dc: douts[1].is_some() };
        let ins: Vec<Var> = node.ins.iter().copied().chain(douts.iter().copied().flatten()).collect();
        let d = t.push(grad, &ins)?;
        let mut dins = vec![None; node.ins.len()];
        dins[0] = Some(d[0]);
        if let Some([h, c]) = self.state() {
            (dins[h], dins[c]) = (d.get(2).copied(), Some(d[1]));
        }
        Ok(dins)
    }
}

impl LstmCellGrad {
    /// Where dh' and dc' are among the inputs.
    fn upstream(&self) -> [Option<usize>; 2] {
        let first = self.cell.inputs();
        [self.dh.then_some(first), self.dc.then_some(first + usize::from(self.dh))]
    }
}

impl Op for LstmCellGrad {
    const NAME: &'static str = "lstm_cell_grad";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let (own, douts) = (self.cell.inputs(), [self.dh, self.dc].map(usize::from));
        arity(Self::NAME, ins, own + douts[0] + douts[1])?;
        let state = Op::infer(&self.cell, &ins[..own])?[0].spec;
        for dout in &ins[own..] {
            ensure!(Self::NAME, *dout == state, "state is {state}, its gradient is {dout}");
        }
        let of_state = usize::from(self.cell.state) * (1 + usize::from(self.cell.present));
        Ok(std::iter::once(ins[0]).chain(std::iter::repeat_n(state, of_state)).map(Out::from).collect())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 60 * ins[0].len() / 4)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, pre) = (io.cols(0) / 4, io.input::<R>(0));
        let present = self.cell.present().map(|p| io.input::<u32>(p));
        let c = self.cell.state().map(|[_, c]| io.input::<R>(c));
        let up = self.upstream().map(|u| u.map(|u| io.input::<R>(u)));
        let dpre = io.out::<R>(0);
        let mut dc = c.map(|_| io.out::<R>(1));
        let mut dh = (c.is_some() && present.is_some()).then(|| io.out::<R>(2));
        for at in 0..pre.len() / 4 {
            let (row, j) = (at / d, at % d);
            let [dh_out, dc_out] = up.map(|u| u.map_or(R::ZERO, |u| u[at]));
            let [i, f, g, o] = gates(&pre[4 * d * row..], d, j);
            let c = c.map_or(R::ZERO, |c| c[at]);
            let t = (f * c + i * g).tanh();
            let goes_on = present.is_some_and(|p| p[row] == NONE);
            let ds = dc_out + dh_out * o * (R::ONE - t * t);
            let of_gates = [
                ds * g * i * (R::ONE - i),
                ds * c * f * (R::ONE - f),
                ds * i * (R::ONE - g * g),
                dh_out * t * o * (R::ONE - o),
            ];
            for (k, of_gate) in of_gates.into_iter().enumerate() {
                dpre[(4 * row + k) * d + j] = if goes_on { R::ZERO } else { of_gate };
            }
            if let Some(dc) = &mut dc {
                dc[at] = if goes_on { dc_out } else { ds * f };
            }
            if let Some(dh) = &mut dh {
                dh[at] = if goes_on { dh_out } else { R::ZERO };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, pre) = (io.cols(0) / 4, io.input::<f32>(0));
        let present = self.cell.present().map(|p| io.input::<u32>(p));
        let c = self.cell.state().map(|[_, c]| io.input::<f32>(c));
        let up = self.upstream().map(|u| u.map(|u| io.input::<f32>(u)));
        let size = team::piece(io.rows(0), PIECE);
        let pieces = |out: Option<usize>| optional_pieces(out.map(|out| io.out(out)), size * d);
        let (dc, dh) = (pieces(c.map(|_| 1)), pieces(c.and(present).map(|_| 2)));
        let outs = io.out::<f32>(0).chunks_mut((4 * size * d).max(1)).zip(dc.zip(dh));
        outs.enumerate().in_parallel(1, |(piece, (dpre, (mut dc, mut dh)))| {
            with_thread_buffer(2 * d, |buffer| {
                let (zeros, unread) = buffer.split_at_mut(d);
                for (own, dpre) in dpre.chunks_exact_mut(4 * d).enumerate() {
                    let (k, at) = (piece * size + own, own * d..(own + 1) * d);
                    let [dh_out, dc_out, c] =
                        [up[0], up[1], c].map(|x| x.map_or(&*zeros, |x| &x[k * d..][..d]));
                    let goes_on = present.is_some_and(|p| p[k] == NONE);
                    let dc = dc.as_deref_mut().map_or(&mut *unread, |dc| &mut dc[at.clone()]);
                    if goes_on {
                        dpre.fill(0.0);
                        dc.copy_from_slice(dc_out);
                    } else {
                        row_grad(dpre, dc, &pre[4 * k * d..][..4 * d], c, dh_out, dc_out);
                    }
                    if let Some(dh) = &mut dh {
                        dh[at].copy_from_slice(if goes_on { dh_out } else { zeros });
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (cell, d) = (self.cell, on.cols(0) / 4);
        let present = cell.present().map_or(null(), |p| on.input(p));
        let c = cell.state().map_or(null(), |[_, c]| on.input(c));
        let [dh_out, dc_out] = self.upstream().map(|u| u.map_or(null(), |u| on.input(u)));
        let out = |there: bool, out: usize| if there { on.out(out) } else { null_mut() };
        let (dc, dh) = (out(cell.state, 1), out(cell.state && cell.present, 2));
        let grid = Grid::items(on.spec(0).len() / 16);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.lstm_cell_grad(
                on,
                grid,
                on.input(0),
                c,
                present,
                dh_out,
                dc_out,
                on.out(0),
                dc,
                dh,
                on.rows(0),
                d,
            )
        }
    }
}

/// `[n, d, with a state, with rows that are not there, outputs]`: of n + 2 rows n are live; h' alone where the last is 1.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0, 2],
    &[0, 3, 1, 1, 2],
    &[9, 5, 1, 0, 1],
    &[9, 5, 1, 1, 2],
    &[40, 64, 1, 1, 1],
    &[33, 17, 0, 1, 1],
    &[70, 20, 1, 1, 2],
];
pub(super) const BENCH: &[&[usize]] = &[&[10_000, 64, 1, 0, 2]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, state, absent, outs] = *dims else { return Err(Error::shape("lstm_cell", "five sizes")) };
    let count = c.count(n);
    let pre = c.live_real(n + 2, count, 4 * d);
    let state = (state == 1).then(|| (c.live_real(n + 2, count, d), c.live_real(n + 2, count, d)));
    let present = (absent == 1).then(|| c.present(n + 2, count));
    let (h, cell) = c.tape.lstm_cell(pre, state, present)?;
    // The old h is read where a row's state goes on, and nowhere else.
    let read = state.map(|(h, cell)| [cell, h][..1 + absent].to_vec()).unwrap_or_default();
    Ok(Built::new(&[h, cell][..outs], &[vec![pre], read].concat()))
}
