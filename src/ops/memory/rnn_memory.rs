//! `s' = tanh(W_x {s | s_partner | e | Phi(t_mail - t_s)} + b_x + W_h s + b_h)`: updates the memory of the
//! unique nodes from their mails with a plain recurrent cell.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | state, mails, time encoding, s', time | as in [`memory_update`] | |
//! | `W_x`, `W_h` | `[d, 2 d + f + t]`, `[d, d]` f32 | weights, as in PyTorch's `RNNCell` |
//! | `b_x`, `b_h` | `[1, d]` f32 | biases |
//! | gates | `[m, d]` f32 | s' of the nodes with a mail, saved for the backward pass |
//!
//! Source: JODIE (Kumar et al. 2019), equations 1 and 2; RNN: Elman 1990 in PyTorch's form.
use super::{memory_update::Cell, *};
use crate::runtime::{
    cuda::abi,
    simd::{self, vectorised},
};

/// The plain recurrent cell, for [`Tape::memory_update`].
#[derive(Debug)]
pub struct Rnn;

vectorised! {
    /// Updates one row. `pre` holds the sums without the biases on entry and s' on return.
    fn update(pre: &mut [f32], out: &mut [f32], b_x: &[f32], b_h: &[f32]) {
        for (((pre, out), &bx), &bh) in pre.iter_mut().zip(&mut *out).zip(b_x).zip(b_h) {
            *pre = simd::tanh(*pre + (bx + bh));
            *out = *pre;
        }
    }
    /// Computes the gradients of one row before the tanh.
    fn update_grad(dpre: &mut [f32], s: &[f32], dy: &[f32]) {
        for ((dpre, &s), &dy) in dpre.iter_mut().zip(s).zip(dy) {
            *dpre = dy * (1.0 - s * s);
        }
    }
}

impl Cell for Rnn {
    const NAME: &'static str = "rnn_memory";
    const GRAD_NAME: &'static str = "rnn_memory_grad";
    const JOINT: usize = 1;
    const APART: usize = 0;
    const KERNEL: unsafe fn(&Kernels, &Launch<'_>, Grid, abi::MemoryUpdate) -> Result<()> =
        Kernels::rnn_memory;

    fn define<R: Real>(x: impl Fn(usize) -> R, h: impl Fn(usize) -> R, _: R, gates: &mut [R]) -> R {
        gates[0] = (x(0) + h(0)).tanh();
        gates[0]
    }
    fn define_grad<R: Real>(dpre: &mut [R], gates: &[R], _: R, dy: R) {
        dpre[0] = dy * (R::ONE - gates[0] * gates[0]);
    }
    fn cpu(pre: &mut [f32], out: &mut [f32], _: &[f32], b_x: &[f32], b_h: &[f32]) {
        update(pre, out, b_x, b_h);
    }
    fn cpu_grad(dpre: &mut [f32], gates: &[f32], _: &[f32], dy: &[f32]) {
        update_grad(dpre, gates, dy);
    }
    unsafe fn launch_grad(k: &Kernels, on: &Launch<'_>, dpre: *mut f32) -> Result<()> {
        use super::memory_update::grad_input::{DOUT, GATES, ROW, W_H};
        let (mailed, gates, dout) = (on.input(ROW), on.input(GATES), on.input(DOUT));
        let (grid, d, status) = (Grid::warps(on.capacity(ROW)), on.cols(W_H), on.status());
        let (mails, nodes) = (on.rows(ROW), on.rows(DOUT));
        launch!(k, on, rnn_memory_gates_grad[grid]; mailed, gates, dout, dpre, mails, nodes, d, status)
    }
}

/// `[nodes, unique, d, f, t, g]` as in [`memory_update`]. Among them: no unique node; no node without a mail;
/// several tiles along rows and columns; many rows.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 1, 4],
    &[5, 0, 3, 2, 4, 4],
    &[9, 6, 4, 3, 5, 4],
    &[6, 6, 3, 0, 2, 0],
    &[100, 90, 66, 1, 5, 4],
    &[4_200, 4_150, 1, 1, 1, 3],
    &[100, 90, 66, 1, 5, 4, 1],
    &[9, 6, 4, 3, 5, 4, 1],
    &[9, 6, 4, 3, 5, 4, 0, 0],
    &[100, 90, 66, 1, 5, 4, 0, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[9_228, 1_165, 100, 172, 100, 0], &[9_228, 1_165, 100, 172, 100, 0, 0, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    memory_update::build::<Rnn>(c, dims)
}
