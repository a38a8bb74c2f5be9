//! `z = sig(pre_z)`, `y = sig(pre_r) h`: gates of a GRU and its state after the reset, from computed products
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `pre` | `[n, 2 d]` f32 | arguments of the gates r and z, biases included |
//! | `h` | `[n, d]` f32, optional | state; without it there is no y |
//! | z | `[n, d]` f32 | the update gate, for [`gru_state`] |
//! | y | `[n, d]` f32 | `r h`, an input of the candidate state |
//!
//! Backward, with r recomputed: `dpre_r = dy h r (1 - r)`, `dpre_z = dz z (1 - z)`, `dh = dy r`.
//! Deterministic.
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
#[derive(Debug)]
pub struct GruGates;
/// Gradients of `pre`, and of `h` if there is a state.
///
/// The inputs are `pre`, `h`, z, dz and dy; the fields tell which of the optional ones are given.
#[derive(Debug)]
pub struct GruGatesGrad {
    state: bool,
    dz: bool,
    dy: bool,
}

impl Tape {
    /// Appends [`GruGates`] for the arguments `pre` of the gates r and z, `[n, 2 d]`. Returns z, and `y = r
    /// h` if there is a state `h`; all are f32 `[n, d]`.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let pre = tape.input(&mut store, "pre", Spec::real(Rows::fixed(1), 2), &[0.0f32, 20.0])?;
    /// let h = tape.input(&mut store, "h", Spec::real(Rows::fixed(1), 1), &[4.0f32])?;
    /// let (z, y) = tape.gru_gates(pre, Some(h))?;
    /// let y = y.expect("there is a state");
    /// let mut program = Program::new(&tape, &[z, y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert!((program.read::<f32>(z, &store)?[0] - 1.0).abs() < 1e-6); // sigmoid(20)
    /// assert_eq!(program.read::<f32>(y, &store)?, [2.0]); // sigmoid(0) 4
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gru_gates(&mut self, pre: Var, h: Option<Var>) -> Result<(Var, Option<Var>)> {
        let ins: Vec<Var> = std::iter::once(pre).chain(h).collect();
        let o = self.push(GruGates, &ins)?;
        Ok((o[0], o.get(1).copied()))
    }
}

vectorised! {
    fn update(z: &mut [f32], pre: &[f32]) {
        for (z, &pre) in z.iter_mut().zip(pre) {
            *z = simd::sigmoid(pre);
        }
    }
    fn reset(y: &mut [f32], pre: &[f32], h: &[f32]) {
        for ((y, &pre), &h) in y.iter_mut().zip(pre).zip(h) {
            *y = simd::sigmoid(pre) * h;
        }
    }
    fn update_grad(dpre: &mut [f32], z: &[f32], dz: &[f32]) {
        for ((dpre, &z), &dz) in dpre.iter_mut().zip(z).zip(dz) {
            *dpre = dz * z * (1.0 - z);
        }
    }
    fn reset_grad(dpre: &mut [f32], dh: &mut [f32], pre: &[f32], h: &[f32], dy: &[f32]) {
        for ((((dpre, dh), &pre), &h), &dy) in dpre.iter_mut().zip(dh).zip(pre).zip(h).zip(dy) {
            let r = simd::sigmoid(pre);
            *dpre = dy * h * r * (1.0 - r);
            *dh = dy * r;
        }
    }
}

impl Op for GruGates {
    const NAME: &'static str = "gru_gates";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "pre [n, 2 d], h? [n, d] -> z [n, d], y [n, d]";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let mut outs = signature::infer(self, ins)?;
        outs.truncate(ins.len());
        Ok(outs)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, pre, z) = (io.out_cols(0), io.input::<R>(0), io.out::<R>(0));
        for (at, z) in z.iter_mut().enumerate() {
            *z = pre[at / d * 2 * d + d + at % d].sigmoid();
        }
        if io.inputs() > 1 {
            let h = io.input::<R>(1);
            for (at, y) in io.out::<R>(1).iter_mut().enumerate() {
                *y = pre[at / d * 2 * d + at % d].sigmoid() * h[at];
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, pre) = (io.out_cols(0), io.input::<f32>(0));
        let h = (io.inputs() > 1).then(|| io.input::<f32>(1));
        let size = team::piece(io.rows(0), PIECE);
        let z = io.out::<f32>(0).chunks_mut((size * d).max(1));
        let y = optional_pieces(h.map(|_| io.out(1)), size * d);
        z.zip(y).enumerate().in_parallel(1, |(piece, (z, mut y))| {
            for (i, z) in z.chunks_exact_mut(d).enumerate() {
                let row = piece * size + i;
                let (pre_r, pre_z) = pre[2 * row * d..][..2 * d].split_at(d);
                update(z, pre_z);
                if let (Some(y), Some(h)) = (&mut y, h) {
                    reset(&mut y[i * d..][..d], pre_r, &h[row * d..]);
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let state = on.inputs() > 1;
        let h = if state { on.input(1) } else { null() };
        let y = if state { on.out(1) } else { null_mut() };
        let grid = Grid::items(on.spec(0).len() / 8);
        launch!(k, on, gru_gates[grid]; on.input(0), h, on.out(0), y, on.rows(0), on.out_cols(0))
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let grad = GruGatesGrad {
            state: node.ins.len() > 1,
            dz: douts[0].is_some(),
            dy: douts.get(1).is_some_and(Option::is_some),
        };
        let ins: Vec<Var> =
            node.ins.iter().chain(&node.outs[..1]).copied().chain(douts.iter().copied().flatten()).collect();
        Ok(t.push(grad, &ins)?.into_iter().map(Some).collect())
    }
}

impl GruGatesGrad {
    /// Returns the positions of h, z, dz and dy among the inputs.
    fn positions(&self) -> (Option<usize>, usize, Option<usize>, Option<usize>) {
        let z = 1 + usize::from(self.state);
        let dy = z + 1 + usize::from(self.dz);
        (self.state.then_some(1), z, self.dz.then_some(z + 1), self.dy.then_some(dy))
    }
}

impl Op for GruGatesGrad {
    const NAME: &'static str = "gru_gates_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "pre [n, 2 d], h? [n, d], z [n, d], dz? [n, d], dy? [n, d] \
        -> dpre [n, 2 d], dh? [n, d]";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "h" | "dh" => self.state,
            "dz" => self.dz,
            _ => self.dy,
        })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (h, z, dz, dy) = self.positions();
        let (d, pre, z) = (io.cols(0) / 2, io.input::<R>(0), io.input::<R>(z));
        let [h, dz, dy] = [h, dz, dy].map(|at| at.map(|at| io.input::<R>(at)));
        let (dpre, mut dh) = (io.out::<R>(0), h.map(|_| io.out::<R>(1)));
        for at in 0..z.len() {
            let (row, j) = (at / d, at % d);
            let r = pre[2 * d * row + j].sigmoid();
            let [h, dz, dy] = [h, dz, dy].map(|x| x.map_or(R::ZERO, |x| x[at]));
            dpre[2 * d * row + j] = dy * h * r * (R::ONE - r);
            dpre[2 * d * row + d + j] = dz * z[at] * (R::ONE - z[at]);
            if let Some(dh) = &mut dh {
                dh[at] = dy * r;
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (h, z, dz, dy) = self.positions();
        let (d, pre, z) = (io.cols(0) / 2, io.input::<f32>(0), io.input::<f32>(z));
        let [h, dz, dy] = [h, dz, dy].map(|at| at.map(|at| io.input::<f32>(at)));
        let size = team::piece(io.rows(0), PIECE);
        let dpre = io.out::<f32>(0).chunks_mut((2 * size * d).max(1));
        let dh = optional_pieces(h.map(|_| io.out(1)), size * d);
        dpre.zip(dh).enumerate().in_parallel(1, |(piece, (dpre, mut dh))| {
            with_thread_buffer(d, |zeros| {
                for (i, dpre) in dpre.chunks_exact_mut(2 * d).enumerate() {
                    let at = (piece * size + i) * d;
                    let (dpre_r, dpre_z) = dpre.split_at_mut(d);
                    update_grad(dpre_z, &z[at..][..d], dz.map_or(zeros, |dz| &dz[at..][..d]));
                    if let (Some(h), Some(dh)) = (h, &mut dh) {
                        let (h, dy) = (&h[at..][..d], dy.map_or(&*zeros, |dy| &dy[at..][..d]));
                        reset_grad(dpre_r, &mut dh[i * d..][..d], &pre[2 * at..], h, dy);
                    } else {
                        dpre_r.fill(0.0);
                    }
                }
            });
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (h, z, dz, dy) = self.positions();
        let [h, dz, dy] = [h, dz, dy].map(|at| at.map_or(null(), |at| on.input(at)));
        let dh = if self.state { on.out(1) } else { null_mut() };
        let (grid, d) = (Grid::items(on.spec(0).len() / 8), on.cols(0) / 2);
        launch!(
            k, on, gru_gates_grad[grid];
            on.input(0), h, on.input(z), dz, dy, on.out(0), dh, on.rows(0), d
        )
    }
}

/// `[n, d, state, outputs]`: n of n + 2 rows are live; a state is given if the third number is 1; the last
/// number is 1 for z alone, 2 for y alone and 3 for both.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 1],
    &[0, 3, 1, 3],
    &[9, 5, 1, 3],
    &[40, 64, 1, 3],
    &[33, 16, 0, 1],
    &[9, 4, 1, 2],
    &[9, 4, 1, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 64, 1, 3]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, state, outs] = *dims else { return Err(Error::shape("gru_gates", "want four sizes")) };
    let count = c.count(n);
    let pre = c.live_real(n + 2, count, 2 * d);
    let h = (state == 1).then(|| c.live_real(n + 2, count, d));
    let (z, y) = c.tape.gru_gates(pre, h)?;
    let outs: Vec<Var> = [Some(z), y]
        .into_iter()
        .enumerate()
        .filter(|&(k, _)| outs >> k & 1 == 1)
        .filter_map(|(_, out)| out)
        .collect();
    Ok(Built::new(&outs, &std::iter::once(pre).chain(h).collect::<Vec<_>>()))
}
