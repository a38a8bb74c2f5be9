//! Gradients of the weights and of the time encoding.
use super::super::{time_encode::reduce_phi_grads, *};
use super::Cell;
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long},
    parts,
    team::InParallel,
};
use std::marker::PhantomData;

/// Gradients of [`MemoryUpdate`](super::MemoryUpdate). Reads its row, message, gates and dt, then `w`, `b`, `W_x`, `W_h` and
/// the gradient of s'.
#[derive(Debug)]
pub struct MemoryUpdateGrad<C>(pub(super) PhantomData<C>);

impl<C: Cell> MemoryUpdateGrad<C> {
    /// Tiles of the product that has all gradients, of `t` columns of the time encoding among them.
    fn tiles(messages: Spec, w_h: Spec, t: usize) -> Grid {
        Grid::tiles(C::SUMS * w_h.cols, messages.cols + 2 * t + 1)
    }
}

impl<C: Cell> Op for MemoryUpdateGrad<C> {
    const NAME: &'static str = C::GRAD_NAME;
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 9)?;
        let (m, c, t, d) = (ins[0].rows, ins[6].cols, ins[4].cols, ins[7].cols);
        countable(Self::NAME, "width", d.max(c))?;
        ensure!(Self::NAME, c >= 2 * d + t, "w_x is {}, for times of {t} and memory of {d} numbers", ins[6]);
        let (one, gates) = (Rows::fixed(1), Rows::fixed(C::GATES * d));
        for (i, what, want) in [
            (0, "row", Spec::ids(m, 1)),
            (1, "message", Spec::real(m, c)),
            (2, "gates", Spec::real(m, C::SUMS * d)),
            (3, "dt", Spec::real(m, 1)),
            (4, "w", Spec::real(one, t)),
            (5, "b", Spec::real(one, t)),
            (6, "w_x", Spec::real(gates, c)),
            (7, "w_h", Spec::real(gates, d)),
            (8, "dout", Spec::real(ins[8].rows, d)),
        ] {
            ensure!(Self::NAME, ins[i] == want, "{what} is {}, want {want}", ins[i]);
        }
        let bias = Spec::real(Rows::fixed(1), ins[7].rows.capacity);
        Ok([ins[4], ins[5], ins[6], ins[7], bias, bias].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (n, d, t) = (ins[0].rows.capacity, ins[7].cols, ins[4].cols);
        let sums = C::SUMS * d;
        // Half a product; gradients before the gates, gradients of Phi, sums of both kinds.
        let host = ins[6].len() + n * (sums + t) + sums * (parts::PARTS + 1) + (4 * parts::PARTS + 2) * t;
        // On a device: parts of the product, gradients before the gates, the product's columns of the time encoding.
        let parts = Self::tiles(ins[1], ins[7], t).parts(Grid::parts_of(n)).tile_parts();
        host.max(parts + n * sums + 2 * C::GATES * d * t)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Self::tiles(ins[1], ins[7], ins[4].cols).count()
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, d, c, t) = (ins[0].rows.capacity, ins[7].cols, ins[1].cols, ins[4].cols);
        Cost::streaming(ins, outs, 2 * n * d * (C::GATES * (c + t) + C::APART * d))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (rows, x, gates, dt) = (io.input::<u32>(0), io.input::<R>(1), io.input::<R>(2), io.input::<R>(3));
        let (tw, tb, w_x, dout) = (io.input::<R>(4), io.input::<R>(5), io.input::<R>(6), io.input::<R>(8));
        let (d, c, t) = (io.cols(7), io.cols(1), io.cols(4));
        let [dtw, dtb, dw_x, dw_h, db_x, db_h] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<R>(k));
        [&mut *dtw, dtb, dw_x, dw_h, db_x, db_h].into_iter().for_each(|g| g.fill(R::ZERO));
        let (mut saved, mut dpre) = (vec![R::ZERO; C::SUMS], vec![R::ZERO; C::SUMS]);
        for (k, &row) in rows.iter().enumerate() {
            let Some(row) = io.row_of(k, row, io.rows(8)) else { continue };
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
        let (rows, x, saved, dt) =
            (io.input::<u32>(0), io.input::<f32>(1), io.input::<f32>(2), io.input::<f32>(3));
        let (tw, tb, w_x, dout) =
            (io.input::<f32>(4), io.input::<f32>(5), io.input::<f32>(6), io.input::<f32>(8));
        let (d, c, t, m) = (io.cols(7), io.cols(1), io.cols(4), rows.len());
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
            match io.row_of(k, rows[k], io.rows(8)) {
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
        let own = Mat::strided(x, m, d, c);
        matmul_long(MatMut::new(&mut dw_h[joint * d..], apart, d), dh.t(), own, false, half);
        parts::column_sums(totals, dpre, partials);
        db_x.copy_from_slice(&totals[..gates]);
        db_h[..joint].copy_from_slice(&totals[..joint]);
        db_h[joint..].copy_from_slice(&totals[gates..]);
        if !io.wanted(0) && !io.wanted(1) {
            return; // the time encoding is not learned
        }
        if t > 0 {
            matmul(MatMut::new(dphi, m, t), dx, Mat::strided(&w_x[c - t..], gates, t, c), false);
        }
        reduce_phi_grads(dt, tw, tb, dphi, t, dtw, dtb, phi_work);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, d, c) = (on.capacity(0), on.cols(7), on.cols(1));
        let learned = on.wanted(0) || on.wanted(1);
        let t = if learned { on.cols(4) } else { 0 };
        let (joint, apart) = (C::JOINT as u32 * d, C::APART as u32 * d);
        let grid = Self::tiles(on.spec(1), on.spec(7), t as usize).parts(Grid::parts_of(m));
        // Scratch has room for all three; parts of tiles come first, for they are aligned.
        let made = on.scratch();
        let dpre = made.wrapping_add(grid.tile_parts());
        let of_time = dpre.wrapping_add(m * C::SUMS * d as usize);
        // SAFETY: `infer` checked the shapes, and the scratch has room for `dpre`.
        unsafe { C::launch_grad(k, on, dpre) }?;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.memory_update_weight_grad(
                on,
                grid,
                dpre,
                on.input(1),
                on.input(3),
                on.input(4),
                on.input(5),
                made,
                on.tickets(),
                of_time,
                on.out(2),
                on.out(3),
                on.out(4),
                on.out(5),
                on.rows(0),
                joint,
                apart,
                d,
                c,
                t,
                on.precision(),
            )
        }?;
        if !learned {
            return Ok(());
        }
        let grid = Grid::new((2 * t as usize).div_ceil(32), 1024);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.memory_update_time_grad(
                on,
                grid,
                of_time,
                on.input(6),
                on.out(0),
                on.out(1),
                joint + apart,
                c,
                t,
            )
        }
    }
}
