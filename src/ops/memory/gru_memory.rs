//! `s' = GRU({s | s_partner | e | Phi(t_mail - t_s)}, s)`: updates the memory of the unique nodes by their
//! mails
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | state, mails, time encoding, s', time | as in [`memory_update`] | |
//! | `W_x`, `W_h` | `[3 d, 2 d + f + t]`, `[3 d, d]` f32 | gates r, z, n as in PyTorch's `GRUCell` |
//! | `b_x`, `b_h` | `[1, 3 d]` f32 | biases of the gates |
//! | gates | `[m, 4 d]` f32 | saved for the backward pass: r, z, n, and `h_n` |
//!
//! With m the message: `r, z = sigmoid(x + h)`, `n = tanh(x_n + r h_n)`, `s' = (1 - z) n + z s`, where
//! `x = W_x m + b_x` and `h = W_h s + b_h`. Source: GRU: Cho et al. 2014 in PyTorch's form.
use super::{memory_update::Cell, *};
use crate::runtime::{
    cuda::abi,
    simd::{self, vectorised},
};

/// The gated recurrent unit as a cell of [`Tape::memory_update`].
#[derive(Debug)]
pub struct Gru;

vectorised! {
    /// Computes gates and new memory `out` of one row. `pre` is `[r | z | n_x | n_h]` before the biases on
    /// entry, and `[r | z | n | n_h]` on return.
    fn gates(pre: &mut [f32], out: &mut [f32], s: &[f32], b_x: &[f32], b_h: &[f32]) {
        let d = s.len();
        let (rz, n) = pre.split_at_mut(2 * d);
        for ((g, &bx), &bh) in rz.iter_mut().zip(b_x).zip(b_h) {
            *g = simd::sigmoid(*g + (bx + bh));
        }
        let (r, z) = rz.split_at(d);
        let (n, nh) = n.split_at_mut(d);
        let (bx, bh) = (&b_x[2 * d..], &b_h[2 * d..]);
        for i in 0..d {
            let h = nh[i] + bh[i];
            let c = simd::tanh(r[i].mul_add(h, n[i] + bx[i]));
            (n[i], nh[i]) = (c, h);
            out[i] = (1.0 - z[i]).mul_add(c, z[i] * s[i]);
        }
    }
    /// Computes the gradients of one row with respect to the arguments of the gates:
    /// `dpre = [dr | dz | dn_x | dn_h]`.
    fn gates_grad(dpre: &mut [f32], gates: &[f32], s: &[f32], dout: &[f32]) {
        let d = s.len();
        let (r, z, n, nh) = (&gates[..d], &gates[d..2 * d], &gates[2 * d..3 * d], &gates[3 * d..4 * d]);
        let (dr, rest) = dpre.split_at_mut(d);
        let (dz, rest) = rest.split_at_mut(d);
        let (dn, dnh) = rest.split_at_mut(d);
        for i in 0..d {
            let c = dout[i] * (1.0 - z[i]) * (1.0 - n[i] * n[i]);
            dn[i] = c;
            dnh[i] = c * r[i];
            dr[i] = c * nh[i] * r[i] * (1.0 - r[i]);
            dz[i] = dout[i] * (s[i] - n[i]) * z[i] * (1.0 - z[i]);
        }
    }
}

impl Cell for Gru {
    const NAME: &'static str = "gru_memory";
    const GRAD_NAME: &'static str = "gru_memory_grad";
    const JOINT: usize = 2;
    const APART: usize = 1;
    const KERNEL: unsafe fn(&Kernels, &Launch<'_>, Grid, abi::MemoryUpdate) -> Result<()> =
        Kernels::gru_memory;

    fn define<R: Real>(x: impl Fn(usize) -> R, h: impl Fn(usize) -> R, s: R, gates: &mut [R]) -> R {
        let r = (x(0) + h(0)).sigmoid();
        let z = (x(1) + h(1)).sigmoid();
        let nh = h(2);
        let n = (x(2) + r * nh).tanh();
        gates.copy_from_slice(&[r, z, n, nh]);
        (R::ONE - z) * n + z * s
    }
    fn define_grad<R: Real>(dpre: &mut [R], gates: &[R], s: R, dy: R) {
        let [r, z, n, nh] = [0, 1, 2, 3].map(|g| gates[g]);
        let dn = dy * (R::ONE - z) * (R::ONE - n * n);
        let dr = dn * nh * r * (R::ONE - r);
        let dz = dy * (s - n) * z * (R::ONE - z);
        dpre.copy_from_slice(&[dr, dz, dn, dn * r]);
    }
    fn cpu(pre: &mut [f32], out: &mut [f32], s: &[f32], b_x: &[f32], b_h: &[f32]) {
        gates(pre, out, s, b_x, b_h);
    }
    fn cpu_grad(dpre: &mut [f32], gates: &[f32], s: &[f32], dy: &[f32]) {
        gates_grad(dpre, gates, s, dy);
    }
    unsafe fn launch_grad(k: &Kernels, on: &Launch<'_>, dpre: *mut f32) -> Result<()> {
        // Positions of the inputs of `MemoryUpdateGrad`.
        const ROW: usize = 0;
        const MESSAGE: usize = 1;
        const GATES: usize = 2;
        const W_H: usize = 7;
        const DOUT: usize = 8;
        let grid = Grid::warps(on.capacity(ROW));
        launch!(
            k, on, gru_memory_gates_grad[grid];
            on.input(ROW), on.input(MESSAGE), on.input(GATES), on.input(DOUT), dpre, on.rows(ROW),
            on.rows(DOUT), on.cols(W_H), on.cols(MESSAGE), on.status()
        )
    }
}

/// `[nodes, unique, d, f, t, g]` as in [`memory_update::build`]: no unique nodes; wide rows; several tiles;
/// many rows. A seventh number, 1: memory and mails are gathered for the unique nodes.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 1, 4],
    &[5, 0, 3, 2, 4, 4],
    &[9, 6, 4, 3, 5, 4],
    &[40, 33, 100, 17, 20, 4],
    &[6, 6, 3, 0, 2, 4],
    &[150, 130, 21, 5, 9, 4],
    &[4_200, 4_150, 1, 1, 1, 3],
    &[150, 130, 21, 5, 9, 4, 1],
    &[9, 6, 4, 3, 5, 4, 1],
    &[9, 6, 4, 3, 5, 4, 0, 0],
    &[150, 130, 21, 5, 9, 4, 0, 0],
    &[4_200, 4_150, 1, 1, 1, 3, 0, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[9_228, 1_165, 100, 172, 100, 0], &[9_228, 1_165, 100, 172, 100, 0, 0, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    memory_update::build::<Gru>(c, dims)
}
