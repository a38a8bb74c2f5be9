//! `c' = sig(f) c + sig(i) tanh(g)`, `h' = sig(o) tanh(c')`: an LSTM step on precomputed gate pre-activations
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `pre` | `[n, 4 d]` f32 | pre-activations of the gates i, f, g, o, biases included; the order is that of PyTorch's `LSTMCell` |
//! | `h`, `c` | `[n, d]` f32, optional | the state; zeros if absent |
//! | `present` | `[n]` u32, optional | [`NONE`] for a row whose state is carried over unchanged |
//! | h', c' | `[n, d]` f32 | |
//!
//! Backward, with the gates recomputed from `pre`: `ds = dc' + dh' o (1 - tanh(c')^2)`,
//! `di = ds g i (1 - i)`, `df = ds c f (1 - f)`, `dg = ds i (1 - g^2)`, `do = dh' tanh(c') o (1 - o)`,
//! `dc = ds f`. For a row whose state is carried over, `dh = dh'` and `dc = dc'`. Deterministic.
//!
//! Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
use super::*;
use crate::runtime::{
    parts::with_thread_buffer,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::{null, null_mut};

/// Minimum number of rows of a task on the host.
const TASK_ROWS: usize = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct LstmCell {
    /// Whether `h` and `c` are inputs.
    state: bool,
    /// Whether `present` is an input.
    present: bool,
}
/// Gradients of `pre`; of `c`, if there is a state; and of `h`, if there are also presence flags.
#[derive(Debug)]
pub struct LstmCellGrad {
    cell: LstmCell,
    /// Whether `h'` has a gradient.
    dh: bool,
    /// Whether `c'` has a gradient.
    dc: bool,
}

impl Tape {
    /// Appends [`LstmCell`] and returns `h'` and `c'`, for the arguments `pre` of the gates i, f, g and o,
    /// `[n, 4 d]`; `state` is `(h, c)`, each `[n, d]`. Rows for which `present`, u32 `[n]`, is [`NONE`] keep
    /// their state.
    ///
    /// # Errors
    /// `Shape` if types or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let pre = tape.input(&mut store, "pre", Spec::real(Rows::fixed(1), 4), &[0.0f32, 0.0, 0.0, 0.0])?;
    /// let h = tape.input(&mut store, "h", Spec::real(Rows::fixed(1), 1), &[9.0f32])?;
    /// let c = tape.input(&mut store, "c", Spec::real(Rows::fixed(1), 1), &[4.0f32])?;
    /// let (new_h, new_c) = tape.lstm_cell(pre, Some((h, c)), None)?;
    /// let mut program = Program::new(&tape, &[new_h, new_c], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The gates i, f and o are a half, and g is 0.
    /// assert_eq!(program.read::<f32>(new_c, &store)?, [2.0]);
    /// assert!((program.read::<f32>(new_h, &store)?[0] - 0.5 * 2f32.tanh()).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn lstm_cell(
        &mut self,
        pre: Var,
        state: Option<(Var, Var)>,
        present: Option<Var>,
    ) -> Result<(Var, Var)> {
        let cell = LstmCell { state: state.is_some(), present: present.is_some() };
        let ins: Vec<Var> = std::iter::once(pre)
            .chain(state.map(|(h, c)| [h, c]).into_iter().flatten())
            .chain(present)
            .collect();
        let outs = self.push(cell, &ins)?;
        Ok((outs[LstmCell::H_OUT], outs[LstmCell::C_OUT]))
    }
}

impl LstmCell {
    const H_OUT: usize = 0;
    const C_OUT: usize = 1;

    /// Returns the input indices of `h` and `c`.
    fn state(self) -> Option<[usize; 2]> {
        self.state.then_some([1, 2])
    }
    /// Returns the input index of `present`.
    fn present(self) -> Option<usize> {
        self.present.then_some(1 + 2 * usize::from(self.state))
    }
    /// Returns the number of inputs.
    fn inputs(self) -> usize {
        1 + 2 * usize::from(self.state) + usize::from(self.present)
    }
}

/// Returns the gates i, f, g, o of column `j` of a row.
fn gates<R: Real>(pre: &[R], d: usize, j: usize) -> [R; 4] {
    [pre[j].sigmoid(), pre[d + j].sigmoid(), pre[2 * d + j].tanh(), pre[3 * d + j].sigmoid()]
}

vectorised! {
    /// Computes one row of `h'` and `c'`; `old` is the row of `c`.
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
    /// Computes the gradients of one row.
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
    const SIGNATURE: &'static str = "pre [n, 4 d], h? [n, d], c? [n, d], present? [n] ids \
        -> h_out [n, d], c_out [n, d]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "present" => self.present,
            _ => self.state,
        })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 40 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, pre) = (io.out_cols(Self::H_OUT), io.input::<R>(at!(pre)));
        let present = self.present().map(|p| io.input::<u32>(p));
        let state = self.state().map(|h_and_c| h_and_c.map(|i| io.input::<R>(i)));
        let (h, c) = (io.out::<R>(Self::H_OUT), io.out::<R>(Self::C_OUT));
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
        let (d, pre) = (io.out_cols(Self::H_OUT), io.input::<f32>(at!(pre)));
        let present = self.present().map(|p| io.input::<u32>(p));
        let state = self.state().map(|h_and_c| h_and_c.map(|i| io.input::<f32>(i)));
        let size = team::piece(io.rows(at!(pre)), TASK_ROWS);
        let (h, c) = (io.out::<f32>(Self::H_OUT), io.out::<f32>(Self::C_OUT));
        let outs = h.chunks_mut((size * d).max(1)).zip(c.chunks_mut((size * d).max(1)));
        outs.enumerate().in_parallel(1, |(task, (h, c))| {
            with_thread_buffer(d, |zeros| {
                for (i, (h, c)) in (task * size..).zip(h.chunks_exact_mut(d).zip(c.chunks_exact_mut(d))) {
                    let [h_old, c_old] = state.map_or([&*zeros; 2], |s| s.map(|s| &s[i * d..][..d]));
                    if present.is_some_and(|p| p[i] == NONE) {
                        h.copy_from_slice(h_old);
                        c.copy_from_slice(c_old);
                    } else {
                        row(h, c, &pre[4 * i * d..][..4 * d], c_old);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [h, c] = self.state().map_or([null(); 2], |h_and_c| h_and_c.map(|i| on.input(i)));
        let present = self.present().map_or(null(), |p| on.input(p));
        let (pre, rows, d) = (on.input(at!(pre)), on.rows(at!(pre)), on.out_cols(Self::H_OUT));
        let (h_out, c_out) = (on.out(Self::H_OUT), on.out(Self::C_OUT));
        let grid = Grid::items(on.spec(at!(pre)).len() / 16);
        launch!(k, on, lstm_cell[grid]; pre, h, c, present, h_out, c_out, rows, d)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let [dh, dc] = [Self::H_OUT, Self::C_OUT].map(|out| douts[out].is_some());
        let ins: Vec<Var> = node.ins.iter().copied().chain(douts.iter().copied().flatten()).collect();
        let grads = t.push(LstmCellGrad { cell: *self, dh, dc }, &ins)?;
        let mut dins = vec![None; node.ins.len()];
        dins[at!(pre)] = Some(grads[LstmCellGrad::DPRE]);
        if let Some([h, c]) = self.state() {
            dins[h] = grads.get(LstmCellGrad::DH).copied();
            dins[c] = Some(grads[LstmCellGrad::DC]);
        }
        Ok(dins)
    }
}

impl LstmCellGrad {
    const DPRE: usize = 0;
    const DC: usize = 1;
    const DH: usize = 2;

    /// Returns the input indices of `dh'` and `dc'`, which follow the inputs of the cell.
    fn upstream(&self) -> [Option<usize>; 2] {
        let first = self.cell.inputs();
        [self.dh.then_some(first), self.dc.then_some(first + usize::from(self.dh))]
    }
}

impl Op for LstmCellGrad {
    const NAME: &'static str = "lstm_cell_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "pre [n, 4 d], h? [n, d], c? [n, d], present? [n] ids, dh_out? [n, d], \
        dc_out? [n, d] -> dpre [n, 4 d], dc? [n, d], dh? [n, d]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "present" => self.cell.present,
            "dh_out" => self.dh,
            "dc_out" => self.dc,
            "dh" => self.cell.state && self.cell.present,
            _ => self.cell.state,
        })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 60 * ins[at!(pre)].len() / 4)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, pre) = (io.cols(at!(pre)) / 4, io.input::<R>(at!(pre)));
        let present = self.cell.present().map(|p| io.input::<u32>(p));
        let c = self.cell.state().map(|[_, c]| io.input::<R>(c));
        let upstream = self.upstream().map(|index| index.map(|i| io.input::<R>(i)));
        let dpre = io.out::<R>(Self::DPRE);
        let mut dc = c.map(|_| io.out::<R>(Self::DC));
        let mut dh = (c.is_some() && present.is_some()).then(|| io.out::<R>(Self::DH));
        for at in 0..pre.len() / 4 {
            let (row, j) = (at / d, at % d);
            let [dh_out, dc_out] = upstream.map(|grad| grad.map_or(R::ZERO, |grad| grad[at]));
            let [i, f, g, o] = gates(&pre[4 * d * row..], d, j);
            let c = c.map_or(R::ZERO, |c| c[at]);
            let t = (f * c + i * g).tanh();
            let carried_over = present.is_some_and(|p| p[row] == NONE);
            let ds = dc_out + dh_out * o * (R::ONE - t * t);
            let gate_grads = [
                ds * g * i * (R::ONE - i),
                ds * c * f * (R::ONE - f),
                ds * i * (R::ONE - g * g),
                dh_out * t * o * (R::ONE - o),
            ];
            for (gate, grad) in gate_grads.into_iter().enumerate() {
                dpre[(4 * row + gate) * d + j] = if carried_over { R::ZERO } else { grad };
            }
            if let Some(dc) = &mut dc {
                dc[at] = if carried_over { dc_out } else { ds * f };
            }
            if let Some(dh) = &mut dh {
                dh[at] = if carried_over { dh_out } else { R::ZERO };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, pre) = (io.cols(at!(pre)) / 4, io.input::<f32>(at!(pre)));
        let present = self.cell.present().map(|p| io.input::<u32>(p));
        let c = self.cell.state().map(|[_, c]| io.input::<f32>(c));
        let [dh_out, dc_out] = self.upstream().map(|index| index.map(|i| io.input::<f32>(i)));
        let size = team::piece(io.rows(at!(pre)), TASK_ROWS);
        let chunks = |out: Option<usize>| optional_pieces(out.map(|out| io.out(out)), size * d);
        let dc = chunks(c.map(|_| Self::DC));
        let dh = chunks(c.and(present).map(|_| Self::DH));
        let outs = io.out::<f32>(Self::DPRE).chunks_mut((4 * size * d).max(1)).zip(dc.zip(dh));
        outs.enumerate().in_parallel(1, |(task, (dpre, (mut dc, mut dh)))| {
            with_thread_buffer(2 * d, |buffer| {
                let (zeros, unread) = buffer.split_at_mut(d);
                for (row, dpre) in dpre.chunks_exact_mut(4 * d).enumerate() {
                    // `row` counts from the first row of the task, `i` from the first row of the inputs.
                    let (i, elements) = (task * size + row, row * d..(row + 1) * d);
                    let [dh_out, dc_out, c] =
                        [dh_out, dc_out, c].map(|x| x.map_or(&*zeros, |x| &x[i * d..][..d]));
                    let carried_over = present.is_some_and(|p| p[i] == NONE);
                    let dc = dc.as_deref_mut().map_or(&mut *unread, |dc| &mut dc[elements.clone()]);
                    if carried_over {
                        dpre.fill(0.0);
                        dc.copy_from_slice(dc_out);
                    } else {
                        row_grad(dpre, dc, &pre[4 * i * d..][..4 * d], c, dh_out, dc_out);
                    }
                    if let Some(dh) = &mut dh {
                        dh[elements].copy_from_slice(if carried_over { dh_out } else { zeros });
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (cell, pre, rows, d) = (self.cell, on.input(at!(pre)), on.rows(at!(pre)), on.cols(at!(pre)) / 4);
        let present = cell.present().map_or(null(), |p| on.input(p));
        let c = cell.state().map_or(null(), |[_, c]| on.input(c));
        let [dh_out, dc_out] = self.upstream().map(|index| index.map_or(null(), |i| on.input(i)));
        let out_if = |exists: bool, out: usize| if exists { on.out(out) } else { null_mut() };
        let dpre = on.out(Self::DPRE);
        let dc = out_if(cell.state, Self::DC);
        let dh = out_if(cell.state && cell.present, Self::DH);
        let grid = Grid::items(on.spec(at!(pre)).len() / 16);
        launch!(k, on, lstm_cell_grad[grid]; pre, c, present, dh_out, dc_out, dpre, dc, dh, rows, d)
    }
}

/// `[n, d, has a state, has absent rows, outputs]`; `n` of `n + 2` rows are live. With 1 output only `h'` has
/// a gradient.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0, 2],
    &[0, 3, 1, 1, 2],
    &[9, 5, 1, 0, 1],
    &[9, 5, 1, 1, 2],
    &[40, 64, 1, 1, 1],
    &[33, 17, 0, 1, 1],
    &[70, 20, 1, 1, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 64, 1, 0, 2]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, state, absent, outputs] = *dims else { return Err(Error::shape("lstm_cell", "five sizes")) };
    let count = c.count(n);
    let pre = c.live_real(n + 2, count, 4 * d);
    let state = (state == 1).then(|| (c.live_real(n + 2, count, d), c.live_real(n + 2, count, d)));
    let present = (absent == 1).then(|| c.present(n + 2, count));
    let (h, cell) = c.tape.lstm_cell(pre, state, present)?;
    // The old h is read only for rows whose state is carried over.
    let state_read = state.map(|(h, cell)| [cell, h][..1 + absent].to_vec()).unwrap_or_default();
    Ok(Built::new(&[h, cell][..outputs], &[vec![pre], state_read].concat()))
}
