//! Gradients of a memory update: of the weights and of the time encoding.
use super::super::{time_encode::reduce_phi_grads, *};
use super::Cell;
use crate::runtime::{
    changes::Change,
    matmul::{Mat, MatMut, matmul, matmul_long},
    parts,
    team::InParallel,
};
use std::marker::PhantomData;

/// Gradients of [`MemoryUpdate`](super::MemoryUpdate) with respect to `w`, `b`, `W_x`, `W_h`, `b_x` and
/// `b_h`. The inputs are the saved row, message, gates and dt, then `w`, `b`, `W_x`, `W_h` and the gradient
/// of s'.
#[derive(Debug)]
pub struct MemoryUpdateGrad<C>(PhantomData<C>);

impl<C> Default for MemoryUpdateGrad<C> {
    fn default() -> Self {
        MemoryUpdateGrad(PhantomData)
    }
}

/// Positions of the inputs; the cells use them, too.
pub(in crate::ops) mod input {
    pub(in crate::ops) const ROW: usize = 0;
    pub(in crate::ops) const MESSAGE: usize = 1;
    pub(in crate::ops) const GATES: usize = 2;
    pub(in crate::ops) const DT: usize = 3;
    pub(in crate::ops) const W: usize = 4;
    pub(in crate::ops) const B: usize = 5;
    pub(in crate::ops) const W_X: usize = 6;
    pub(in crate::ops) const W_H: usize = 7;
    pub(in crate::ops) const DOUT: usize = 8;
}

/// Positions of the outputs.
mod output {
    pub(super) const DW: usize = 0;
    pub(super) const DB: usize = 1;
    pub(super) const DW_X: usize = 2;
    pub(super) const DW_H: usize = 3;
    pub(super) const DB_X: usize = 4;
    pub(super) const DB_H: usize = 5;
}

impl<C: Cell> MemoryUpdateGrad<C> {
    /// Returns the grid of the product that computes all gradients, including `t` columns of the time
    /// encoding: its tiles, times the chunks of the messages.
    fn grid(messages: &Spec, w_h: &Spec, t: usize) -> Grid {
        Grid::tiles(C::SUMS * w_h.cols, messages.cols + 2 * t + 1).over_rows(messages.rows.capacity)
    }
    /// Returns the grids without and with the gradients of the time encoding. The first one has fewer tiles,
    /// but may have more chunks.
    fn grids(ins: &[Spec]) -> [Grid; 2] {
        [0, ins[input::W].cols].map(|t| Self::grid(&ins[input::MESSAGE], &ins[input::W_H], t))
    }
}

impl<C: Cell> Op for MemoryUpdateGrad<C> {
    const NAME: &'static str = C::GRAD_NAME;
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "row [m] ids, message [m, c], gates [m, s d], dt [m], time_w [1, t], \
        time_b [1, t], w_x [g d, c], w_h [g d, d], dmemory [n, d] \
        -> time_w [1, t], time_b [1, t], w_x [g d, c], w_h [g d, d], b_x [1, g d], b_h [1, g d]";
    fn sizes(&self) -> Sizes {
        vec![("g", Rows::fixed(C::GATES)), ("s", Rows::fixed(C::SUMS))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let [w, w_x, w_h] = [input::W, input::W_X, input::W_H].map(|i| ins[i]);
        let (c, t, d) = (w_x.cols, w.cols, w_h.cols);
        countable(Self::NAME, "width", d.max(c))?;
        ensure!(
            Self::NAME,
            c >= 2 * d + t,
            "w_x is {w_x}, want at least {} columns for memory of {d} and time encodings of {t}",
            2 * d + t
        );
        Ok(())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (w_x, w_h) = (ins[input::W_X], ins[input::W_H]);
        let (n, d, t) = (ins[input::ROW].rows.capacity, w_h.cols, ins[input::W].cols);
        let sums = C::SUMS * d;
        // On the host: half a product, gradients before the gates, gradients of Phi, and the sums with their
        // partials, first of the biases, then of the time encoding.
        let host = w_x.len() + n * (sums + t) + sums * (parts::PARTS + 1) + (4 * parts::PARTS + 2) * t;
        // On a device: partial tiles of the product, gradients before the gates, the product's columns of the
        // time encoding.
        let tiles = Self::grids(ins).map(Grid::tile_parts).into_iter().max().unwrap_or(0);
        host.max(tiles + n * sums + 2 * C::GATES * d * t)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::grids(ins).map(Grid::count).into_iter().max().unwrap_or(0)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, d) = (ins[input::ROW].rows.capacity, ins[input::W_H].cols);
        let (c, t) = (ins[input::MESSAGE].cols, ins[input::W].cols);
        Cost::streaming(ins, outs, 2 * n * d * (C::GATES * (c + t) + C::APART * d))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (rows, x) = (io.input::<u32>(input::ROW), io.input::<R>(input::MESSAGE));
        let (gates, dt) = (io.input::<R>(input::GATES), io.input::<R>(input::DT));
        let (tw, tb) = (io.input::<R>(input::W), io.input::<R>(input::B));
        let (w_x, dout) = (io.input::<R>(input::W_X), io.input::<R>(input::DOUT));
        let (d, c, t) = (io.cols(input::W_H), io.cols(input::MESSAGE), io.cols(input::W));
        let [dtw, dtb, dw_x, dw_h, db_x, db_h] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<R>(k));
        [&mut *dtw, dtb, dw_x, dw_h, db_x, db_h].into_iter().for_each(|g| g.fill(R::ZERO));
        let (mut saved, mut dpre) = (vec![R::ZERO; C::SUMS], vec![R::ZERO; C::SUMS]);
        for (k, &row) in rows.iter().enumerate() {
            let Some(row) = io.row_of(k, row, io.rows(input::DOUT)) else { continue };
            let x = &x[k * c..][..c]; // begins with the node's own memory
            for j in 0..d {
                for (g, saved) in saved.iter_mut().enumerate() {
                    *saved = gates[k * C::SUMS * d + g * d + j];
                }
                C::define_grad(&mut dpre, &saved, x[j], dout[row * d + j]);
                for gate in 0..C::GATES {
                    let dx = dpre[gate];
                    let dh = if gate < C::JOINT { dx } else { dpre[gate + C::APART] };
                    let row = gate * d + j;
                    db_x[row] += dx;
                    db_h[row] += dh;
                    (0..c).for_each(|l| dw_x[row * c + l] += dx * x[l]);
                    (0..d).for_each(|l| dw_h[row * d + l] += dh * x[l]);
                    for l in 0..t {
                        let s = -(tw[l] * dt[k] + tb[l]).sin() * dx * w_x[row * c + c - t + l];
                        dtb[l] += s;
                        dtw[l] += s * dt[k];
                    }
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (rows, x) = (io.input::<u32>(input::ROW), io.input::<f32>(input::MESSAGE));
        let (saved, dt) = (io.input::<f32>(input::GATES), io.input::<f32>(input::DT));
        let (tw, tb) = (io.input::<f32>(input::W), io.input::<f32>(input::B));
        let (w_x, dout) = (io.input::<f32>(input::W_X), io.input::<f32>(input::DOUT));
        let (d, c, t, m) = (io.cols(input::W_H), io.cols(input::MESSAGE), io.cols(input::W), rows.len());
        let [dtw, dtb, dw_x, dw_h, db_x, db_h] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<f32>(k));
        if m == 0 || d == 0 {
            [dtw, dtb, dw_x, dw_h, db_x, db_h].into_iter().for_each(|g| g.fill(0.0));
            return;
        }
        let (joint, gates, sums) = (C::JOINT * d, C::GATES * d, C::SUMS * d);
        let (half, rest) = io.scratch::<f32>().split_at_mut(gates * c);
        let (dpre, rest) = rest.split_at_mut(m * sums);
        let (dphi, rest) = rest.split_at_mut(m * t);
        let (totals, rest) = rest.split_at_mut(sums);
        let (partials, phi_work) = rest.split_at_mut(sums * parts::PARTS);
        dpre.chunks_exact_mut(sums).enumerate().in_parallel(64, |(k, dpre)| {
            let s = &x[k * c..][..d]; // the message begins with the node's own memory
            match io.row_of(k, rows[k], io.rows(input::DOUT)) {
                Some(row) => C::cpu_grad(dpre, &saved[k * sums..][..sums], s, &dout[row * d..][..d]),
                None => dpre.fill(0.0),
            }
        });
        let dx = Mat::strided(dpre, m, gates, sums);
        matmul_long(MatMut::new(dw_x, gates, c), dx.t(), Mat::new(x, m, c), false, half);
        for (dw_h, dw_x) in dw_h.chunks_exact_mut(d).zip(dw_x.chunks_exact(c)).take(joint) {
            dw_h.copy_from_slice(&dw_x[..d]);
        }
        let apart = C::APART * d;
        let dh = Mat::strided(&dpre[gates..], m, apart, sums);
        let s = Mat::strided(x, m, d, c); // the first columns of the messages
        matmul_long(MatMut::new(&mut dw_h[joint * d..], apart, d), dh.t(), s, false, half);
        parts::column_sums(totals, dpre, partials);
        db_x.copy_from_slice(&totals[..gates]);
        db_h[..joint].copy_from_slice(&totals[..joint]);
        db_h[joint..].copy_from_slice(&totals[gates..]);
        if !io.wanted(output::DW) && !io.wanted(output::DB) {
            return; // the time encoding is not learned
        }
        if t > 0 {
            matmul(MatMut::new(dphi, m, t), dx, Mat::strided(&w_x[c - t..], gates, t, c), false);
        }
        reduce_phi_grads(dt, tw, tb, dphi, t, dtw, dtb, phi_work);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, d, c) = (on.capacity(input::ROW), on.cols(input::W_H), on.cols(input::MESSAGE));
        let learn_time = on.wanted(output::DW) || on.wanted(output::DB);
        let t = if learn_time { on.cols(input::W) } else { 0 };
        let (joint, apart) = (C::JOINT as u32 * d, C::APART as u32 * d);
        let (messages, w_h) = (on.spec(input::MESSAGE), on.spec(input::W_H));
        let grid = Self::grid(&messages, &w_h, t as usize);
        // The scratch holds all three; the partial tiles come first, because they must be aligned.
        let tiles = on.scratch();
        let dpre = tiles.wrapping_add(grid.tile_parts());
        let time_columns = dpre.wrapping_add(m * C::SUMS * d as usize);
        // SAFETY: `infer` checked the shapes, and the scratch holds `dpre`.
        unsafe { C::launch_grad(k, on, dpre) }?;
        let [dw_x, dw_h, db_x, db_h] =
            [output::DW_X, output::DW_H, output::DB_X, output::DB_H].map(|k| on.out(k));
        let (messages, mails) = (on.input(input::MESSAGE), on.rows(input::ROW));
        if !learn_time && on.stream().gpu().has(Change::Products) {
            return launch!(
                k, on, memory_update_weight_grad_fixed[grid];
                dpre, messages, tiles, on.tickets(), dw_x, dw_h, db_x, db_h, mails, joint, apart, d, c,
                on.precision()
            );
        }
        launch!(
            k, on, memory_update_weight_grad[grid];
            dpre, messages, on.input(input::DT), on.input(input::W), on.input(input::B), tiles,
            on.tickets(), time_columns, dw_x, dw_h, db_x, db_h, mails, joint, apart, d, c, t, on.precision()
        )?;
        if !learn_time {
            return Ok(());
        }
        let grid = Grid::new((2 * t as usize).div_ceil(32), 1024);
        let (w_x, gates) = (on.input(input::W_X), joint + apart);
        let (dw, db) = (on.out(output::DW), on.out(output::DB));
        launch!(k, on, memory_update_time_grad[grid]; time_columns, w_x, dw, db, gates, c, t)
    }
}
