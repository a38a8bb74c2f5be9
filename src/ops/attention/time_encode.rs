//! `y[i, j] = cos(w[j] dt[i] + b[j])`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `dt` | `[n, 1]` f32 | seconds; has no gradient |
//! | `w`, `b` | `[1, t]` f32 | learned frequencies and phases |
//! | y | `[n, t]` f32 | time encoding Phi(dt) |
//!
//! The argument is an f32 product followed by an f32 sum, never a fused multiply-add, so that it is the same
//! on all devices. Its cosine is accurate for large arguments, too.
//! Backward: `dw[j] = -sum_i sin(.) dt[i] dy[i, j]`, `db[j] = -sum_i sin(.) dy[i, j]`.
//! Source: TGAT's functional time encoding in the form of GraphMixer and TGL.
use super::*;
use crate::runtime::{
    parts,
    simd::{self, LANES, vectorised},
    team::InParallel,
};

/// See the [module](self).
#[derive(Debug)]
pub struct TimeEncode;
/// Gradients of `w` and `b`.
#[derive(Debug)]
pub struct TimeEncodeGrad;

/// Maximum number of blocks that sum gradients on a device.
const BLOCKS: usize = 512;
/// Minimum number of rows per block.
const BLOCK_ROWS: usize = 16;

impl Tape {
    /// Appends [`TimeEncode`] and returns `cos(w dt + b)`, f32 `[n, t]`, for gaps `dt` in seconds, `[n, 1]`,
    /// and t frequencies and phases, `[1, t]`.
    ///
    /// # Errors
    /// `Shape` if `w` or `b` is not `[1, t]`, or `dt` is not `[n, 1]`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let dt = tape.input(&mut store, "dt", Spec::real(Rows::fixed(2), 1), &[0.0f32, 2.0])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 2), &[1.0f32, 0.5])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 2), &[0.0f32, 1.0])?;
    /// let y = tape.time_encode(dt, w, b)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let want = [0f32, 1.0, 2.0, 2.0].map(f32::cos); // 0 + 0, 0 + 1; 2 + 0, 1 + 1
    /// assert!(program.read::<f32>(y, &store)?.iter().zip(want).all(|(y, w)| (y - w).abs() < 1e-6));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn time_encode(&mut self, dt: Var, w: Var, b: Var) -> Result<Var> {
        self.push1(TimeEncode, &[dt, w, b])
    }
}

/// Returns element `j` of Phi(dt), by its definition.
pub(in crate::ops) fn define_phi<R: Real>(dt: R, w: &[R], b: &[R], j: usize) -> R {
    (w[j] * dt + b[j]).cos()
}

/// Computes `cos(w dt + b)` and, if `sin` is given, `sin(w dt + b)`.
#[inline(always)]
pub(in crate::ops) fn phi(dt: f32, w: &[f32], b: &[f32], cos: &mut [f32], mut sin: Option<&mut [f32]>) {
    let t = w.len();
    if t < LANES {
        return far_phi(dt, w, b, cos, sin.unwrap_or(&mut []));
    }
    let mut top = [0; LANES];
    let mut at = 0;
    // If t is not a multiple of the block, the last block overlaps the one before it.
    while at < t {
        let block = at.min(t - LANES)..at.min(t - LANES) + LANES;
        let (w, b, cos) = (&w[block.clone()], &b[block.clone()], &mut cos[block.clone()]);
        let mut x = [0.0; LANES];
        for l in 0..LANES {
            x[l] = w[l] * dt + b[l];
            top[l] = x[l].abs().to_bits().max(top[l]);
        }
        if let Some(sin) = sin.as_deref_mut() {
            let sin = &mut sin[block];
            for l in 0..LANES {
                (sin[l], cos[l]) = simd::sin_cos(x[l]);
            }
        } else {
            for l in 0..LANES {
                cos[l] = simd::cos(x[l]);
            }
        }
        at += LANES;
    }
    if top.iter().any(|&x| x >= simd::FAR.to_bits()) {
        far_phi(dt, w, b, cos, sin.unwrap_or(&mut []));
    }
}

/// Adds the gradients of one row: `dw -= sin dt dphi`, `db -= sin dphi`.
#[inline(always)]
pub(in crate::ops) fn add_phi_grad(dw: &mut [f32], db: &mut [f32], dt: f32, sin: &[f32], dphi: &[f32]) {
    for (((dw, db), &s), &d) in dw.iter_mut().zip(db).zip(sin).zip(dphi) {
        let g = -s * d;
        *db += g;
        *dw = g.mul_add(dt, *dw);
    }
}

vectorised! {
    /// Computes [`phi`] for rows shorter than a block, and recomputes blocks whose arguments are too large
    /// for `phi`.
    fn far_phi(dt: f32, w: &[f32], b: &[f32], cos: &mut [f32], sin: &mut [f32]) {
        let near = |w: &[f32], b: &[f32]| w.iter().zip(b).all(|(w, b)| (w * dt + b).abs() < simd::FAR);
        for (at, (w, b)) in w.chunks(LANES).zip(b.chunks(LANES)).enumerate() {
            if w.len() == LANES && near(w, b) {
                continue;
            }
            for l in 0..w.len() {
                let (s, c) = simd::far_sin_cos(w[l] * dt + b[l]);
                cos[at * LANES + l] = c;
                if let Some(sin) = sin.get_mut(at * LANES + l) {
                    *sin = s;
                }
            }
        }
    }
    pub(in crate::ops) fn encode(out: &mut [f32], dt: f32, w: &[f32], b: &[f32]) {
        phi(dt, w, b, out, None);
    }
    /// Adds the gradients of rows `dt` to `dwb = {dw | db}`. The rows of the upstream gradient `dphi` are
    /// `stride` numbers apart; `work` holds two rows.
    pub(in crate::ops) fn add_phi_grads(
        dwb: &mut [f32], dt: &[f32], w: &[f32], b: &[f32], dphi: &[f32], stride: usize, work: &mut [f32],
    ) {
        let t = w.len();
        let (dw, db) = dwb.split_at_mut(t);
        let (cos, sin) = work.split_at_mut(t);
        for (i, &dt) in dt.iter().enumerate() {
            phi(dt, w, b, cos, Some(&mut *sin));
            add_phi_grad(dw, db, dt, sin, &dphi[i * stride..][..t]);
        }
    }
}

impl Op for TimeEncode {
    const NAME: &'static str = "time_encode";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dt [n], w [1, t], b [1, t] -> y [n, t]";
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 20 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dt, w, b, t) = (io.input::<R>(0), io.input::<R>(1), io.input::<R>(2), io.out_cols(0));
        // `at` is the flat index of an element of y.
        for (at, y) in io.out::<R>(0).iter_mut().enumerate() {
            *y = define_phi(dt[at / t], w, b, at % t);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dt, w, b, t) = (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2), io.out_cols(0));
        if t > 0 {
            io.out::<f32>(0).chunks_exact_mut(t).zip(dt).in_parallel(64, |(y, &dt)| encode(y, dt, w, b));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (dt, w, b, y) = (on.input(0), on.input(1), on.input(2), on.out(0));
        launch!(k, on, time_encode[Grid::warps(on.capacity(0))]; dt, w, b, y, on.rows(0), on.cols(1))
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 3]) };
        let grads = t.push(TimeEncodeGrad, &[node.ins[0], node.ins[1], node.ins[2], dy])?;
        Ok(vec![None, Some(grads[0]), Some(grads[1])])
    }
}

impl Op for TimeEncodeGrad {
    const NAME: &'static str = "time_encode_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dt [n], w [1, t], b [1, t], dy [n, t] -> dw [1, t], db [1, t]";
    fn scratch(&self, ins: &[Spec]) -> usize {
        // On the host: the sums {dw | db}, then for each chunk a partial of them and two work rows. On a
        // device: one partial per block.
        (4 * parts::PARTS + 2).max(2 * BLOCKS) * ins[1].cols
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 24 * ins[3].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dt, w, b, dy) = (io.input::<R>(0), io.input::<R>(1), io.input::<R>(2), io.input::<R>(3));
        let (t, dw, db) = (w.len(), io.out::<R>(0), io.out::<R>(1));
        for j in 0..t {
            let argument_grad = |i: usize| -(w[j] * dt[i] + b[j]).sin() * dy[i * t + j];
            dw[j] = (0..dt.len()).map(|i| argument_grad(i) * dt[i]).sum();
            db[j] = (0..dt.len()).map(argument_grad).sum();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (dt, w, b, dy) = (io.input::<f32>(0), io.input::<f32>(1), io.input::<f32>(2), io.input::<f32>(3));
        reduce_phi_grads(dt, w, b, dy, w.len(), io.out(0), io.out(1), io.scratch());
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (t, rows, sums) = (on.cols(1), on.rows(0), on.scratch());
        let block_rows = on.capacity(0).div_ceil(BLOCKS).max(BLOCK_ROWS);
        let grid = Grid::new(on.capacity(0).div_ceil(block_rows), Grid::THREADS);
        let (dt, w, b, dy) = (on.input(0), on.input(1), on.input(2), on.input(3));
        let (dw, db, ticket, block_rows) = (on.out(0), on.out(1), on.tickets(), block_rows as u32);
        launch!(k, on, time_encode_grad[grid]; dt, w, b, dy, sums, ticket, dw, db, rows, t, block_rows)
    }
}

/// Computes `dw` and `db` for rows `dt`. The rows of the upstream gradient `dphi` are `stride` numbers apart;
/// `scratch` holds `(4 * PARTS + 2) * t` numbers.
#[allow(clippy::too_many_arguments)]
pub(in crate::ops) fn reduce_phi_grads(
    dt: &[f32],
    w: &[f32],
    b: &[f32],
    dphi: &[f32],
    stride: usize,
    dw: &mut [f32],
    db: &mut [f32],
    scratch: &mut [f32],
) {
    let t = w.len();
    let (sum, scratch) = scratch.split_at_mut(2 * t);
    // A partial is {dw | db | two work rows}.
    let size = parts::part_rows(dt.len());
    sum.fill(0.0);
    if t > 0 {
        scratch.chunks_exact_mut(4 * t).zip(dt.chunks(size)).enumerate().in_parallel(
            1,
            |(i, (partial, dt))| {
                let (dwb, work) = partial.split_at_mut(2 * t);
                dwb.fill(0.0);
                add_phi_grads(dwb, dt, w, b, &dphi[i * size * stride..], stride, work);
            },
        );
        for partial in scratch.chunks_exact(4 * t).take(dt.len().div_ceil(size)) {
            parts::add_column_sums(sum, &partial[..2 * t]);
        }
    }
    dw.copy_from_slice(&sum[..t]);
    db.copy_from_slice(&sum[t..]);
}

/// `[n, t]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1], &[0, 4], &[9, 6], &[70, 100]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[18_000, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let dt = c.real_in(dims[0], 1, |u| (10.0 * (u + 1.0)).round());
    let (w, b) = (c.real(1, dims[1]), c.real(1, dims[1]));
    let y = c.tape.time_encode(dt, w, b)?;
    Ok(Built::new(&[y], &[w, b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arguments_keep_the_cosine_of_their_f32_product() {
        let (w, b) = ([1.0, 0.5, 1e-9], [0.25, 0.0, 1.0]);
        for dt in [0.0, 1.0, 2_678_373.0, 3e8] {
            let mut y = [0.0; 3];
            encode(&mut y, dt, &w, &b);
            for j in 0..3 {
                let want = f64::from(w[j] * dt + b[j]).cos();
                assert!(
                    (f64::from(y[j]) - want).abs() < 2e-7,
                    "dt {dt}, column {j}: {} against {want}",
                    y[j]
                );
            }
        }
    }
}
