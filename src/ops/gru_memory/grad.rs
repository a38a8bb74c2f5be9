//! Gradients of the weights and of the time encoding.
use super::super::{time_encode::reduce_phi_grads, *};
use crate::runtime::{
    matmul::{Mat, MatMut, matmul, matmul_long},
    parts,
    simd::vectorised,
    team::InParallel,
};

/// Gradients of [`GruMemory`](super::GruMemory).
#[derive(Debug)]
pub struct GruMemoryGrad;

vectorised! {
    /// Gradients of one row before the gates: `dpre = [dr | dz | dn_x | dn_h]`.
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

impl Op for GruMemoryGrad {
    const NAME: &'static str = "gru_memory_grad";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let bias = Spec::real(Rows::fixed(1), ins[7].rows.cap);
        Ok([ins[4], ins[5], ins[6], ins[7], bias, bias].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let (n, d, t) = (ins[0].rows.cap, ins[7].cols, ins[4].cols);
        // Half a product; gradients before the gates, gradients of Phi, sums of both kinds.
        let host = ins[6].len() + n * (4 * d + t) + 4 * d * (parts::PARTS + 1) + (4 * parts::PARTS + 2) * t;
        // Gradients before the gates, parts of the product.
        let device = n * 4 * d + Grid::parts_of(n) * 4 * d * (ins[1].cols + 2 * t + 1);
        host.max(device)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (n, d, c, t) = (ins[0].rows.cap, ins[7].cols, ins[1].cols, ins[4].cols);
        Cost::streaming(ins, outs, 2 * n * (3 * d * c + d * d + 3 * d * t))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (rows, x, gates, dt) = (io.input::<u32>(0), io.input::<R>(1), io.input::<R>(2), io.input::<R>(3));
        let (tw, tb, w_x, dout) = (io.input::<R>(4), io.input::<R>(5), io.input::<R>(6), io.input::<R>(8));
        let (d, c, t) = (io.cols(7), io.cols(1), io.cols(4));
        let [dtw, dtb, dw_x, dw_h, db_x, db_h] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<R>(k));
        [&mut *dtw, dtb, dw_x, dw_h, db_x, db_h].into_iter().for_each(|g| g.fill(R::ZERO));
        for (k, &row) in rows.iter().enumerate() {
            let (x, g) = (&x[k * c..][..c], |g: usize, j: usize| gates[k * 4 * d + g * d + j]);
            for j in 0..d {
                let (r, z, n, nh, dy) = (g(0, j), g(1, j), g(2, j), g(3, j), dout[row as usize * d + j]);
                let dn = dy * (R::ONE - z) * (R::ONE - n * n);
                let dr = dn * nh * r * (R::ONE - r);
                let dz = dy * (x[j] - n) * z * (R::ONE - z);
                for (gate, dx, dh) in [(0, dr, dr), (1, dz, dz), (2, dn, dn * r)] {
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
        let (rows, x, gates, dt) =
            (io.input::<u32>(0), io.input::<f32>(1), io.input::<f32>(2), io.input::<f32>(3));
        let (tw, tb, w_x, dout) =
            (io.input::<f32>(4), io.input::<f32>(5), io.input::<f32>(6), io.input::<f32>(8));
        let (d, c, t, m) = (io.cols(7), io.cols(1), io.cols(4), rows.len());
        let [dtw, dtb, dw_x, dw_h, db_x, db_h] = [0, 1, 2, 3, 4, 5].map(|k| io.out::<f32>(k));
        if m == 0 || d == 0 {
            [dtw, dtb, dw_x, dw_h, db_x, db_h].into_iter().for_each(|g| g.fill(0.0));
            return;
        }
        let (half, rest) = io.scratch::<f32>().split_at_mut(3 * d * c);
        let (dpre, rest) = rest.split_at_mut(m * 4 * d);
        let (dphi, rest) = rest.split_at_mut(m * t);
        let (sums, rest) = rest.split_at_mut(4 * d);
        let (partials, phi_work) = rest.split_at_mut(4 * d * parts::PARTS);
        dpre.chunks_exact_mut(4 * d).enumerate().in_parallel(64, |(k, dpre)| {
            let s = &x[k * c..][..d]; // the message begins with the node's own memory
            gates_grad(dpre, &gates[k * 4 * d..][..4 * d], s, &dout[rows[k] as usize * d..][..d]);
        });
        let dx = Mat::strided(dpre, m, 3 * d, 4 * d);
        matmul_long(MatMut::new(dw_x, 3 * d, c), dx.t(), Mat::new(x, m, c), false, half);
        for (dw_h, dw_x) in dw_h.chunks_exact_mut(d).zip(dw_x.chunks_exact(c)).take(2 * d) {
            dw_h.copy_from_slice(&dw_x[..d]);
        }
        let dnh = Mat::strided(&dpre[3 * d..], m, d, 4 * d);
        matmul_long(
            MatMut::new(&mut dw_h[2 * d * d..], d, d),
            dnh.t(),
            Mat::strided(x, m, d, c),
            false,
            half,
        );
        parts::column_sums(sums, dpre, partials);
        db_x.copy_from_slice(&sums[..3 * d]);
        db_h.copy_from_slice(&sums[..3 * d]);
        db_h[2 * d..].copy_from_slice(&sums[3 * d..]);
        if !io.wanted(0) && !io.wanted(1) {
            return; // the time encoding is not learned
        }
        if t > 0 {
            matmul(MatMut::new(dphi, m, t), dx, Mat::strided(&w_x[c - t..], 3 * d, t, c), false);
        }
        reduce_phi_grads(dt, tw, tb, dphi, t, dtw, dtb, phi_work);
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, d, c) = (on.cap(0), on.cols(7), on.cols(1));
        let learned = on.wanted(0) || on.wanted(1);
        let t = if learned { on.cols(4) } else { 0 };
        let dpre = on.scratch();
        // Scratch has room for both.
        let made = dpre.wrapping_add(m * 4 * d as usize);
        let (parts, rows, columns) = (Grid::parts_of(m), 4 * d as usize, (c + 2 * t + 1) as usize);
        k.gru_memory_gates_grad(
            on,
            Grid::warps(m),
            on.input(0),
            on.input(1),
            on.input(2),
            on.input(8),
            dpre,
            on.rows(0),
            d,
            c,
        )?;
        k.gru_memory_weight_grad(
            on,
            Grid::tiles(rows, columns).parts(parts),
            dpre,
            on.input(1),
            on.input(3),
            on.input(4),
            on.input(5),
            made,
            on.rows(0),
            d,
            c,
            t,
        )?;
        k.gru_memory_weight_grad_sum(
            on,
            Grid::items(rows * columns),
            made,
            parts as u32,
            on.out(2),
            on.out(3),
            on.out(4),
            on.out(5),
            d,
            c,
            t,
        )?;
        if !learned {
            return Ok(());
        }
        let grid = Grid::new((2 * t as usize).div_ceil(32), 1024);
        k.gru_memory_time_grad(on, grid, made, on.input(6), on.out(0), on.out(1), d, c, t)
    }
}
