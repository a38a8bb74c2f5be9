//! `out = sum_ij a_ij / (n d)`, the mean over all elements
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a` | `[<= n, d]` f32 | only live rows count |
//! | out | `[1, 1]` f32 | mean; 0 if there are no elements |
//!
//! Backward: `da_ij = dout / (n d)` for the live rows. Deterministic: the number of threads changes no bit. A
//! mean that is not finite is no fault, unlike that of [`squared_loss`].
use super::*;
use crate::runtime::{
    parts,
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// Maximum number of blocks of the sum on a device.
const BLOCKS: usize = 128;
/// Elements per block, as long as [`BLOCKS`] is not exceeded.
const BLOCK_ELEMENTS: usize = 2048;

/// See the [module](self).
#[derive(Debug)]
pub struct Mean;
/// `da_ij = dout / (n d)` for the live rows of `a`. Reads nothing of `a` but the count of its live rows.
#[derive(Debug)]
pub struct MeanGrad {
    rows: Rows,
    cols: usize,
}

impl Tape {
    /// Appends [`Mean`] and returns the mean of all elements of `a`, `[1, 1]`.
    ///
    /// # Errors
    /// `Shape` if `a` is not f32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(2), 2), &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let mean = tape.mean(a)?;
    /// let mut program = Program::new(&tape, &[mean], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(mean, &store)?, [2.5]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn mean(&mut self, a: Var) -> Result<Var> {
        self.push1(Mean, &[a])
    }
}

vectorised! {
    fn sum(a: &[f32]) -> f32 {
        simd::sum::<V>(a)
    }
}

/// Returns `1 / n`, or 0 if `n` is 0.
fn reciprocal<R: Real>(n: usize) -> R {
    if n == 0 { R::ZERO } else { R::from_f64(1.0 / n as f64) }
}

impl Op for Mean {
    const NAME: &'static str = "mean";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "a [n, d] -> out [1]";
    fn scratch(&self, _: &[Spec]) -> usize {
        BLOCKS
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let a = io.input::<R>(0);
        io.out::<R>(0)[0] = a.iter().copied().sum::<R>() * reciprocal(a.len());
    }
    fn cpu(&self, io: &Io<'_>) {
        let a = io.input::<f32>(0);
        let mut partials = [0.0f32; parts::PARTS];
        let work = partials.iter_mut().zip(a.chunks(parts::part_rows(a.len())));
        work.in_parallel(1, |(partial, a)| *partial = sum(a));
        io.out::<f32>(0)[0] = partials.iter().sum::<f32>() * reciprocal::<f32>(a.len());
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::new(on.spec(0).len().div_ceil(BLOCK_ELEMENTS).min(BLOCKS), Grid::THREADS);
        let (a, sums, ticket, out) = (on.input(0), on.scratch(), on.tickets(), on.out(0));
        launch!(k, on, mean[grid]; a, sums, ticket, out, on.rows(0), on.cols(0))
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Spec { rows, cols, .. } = t.spec(node.ins[0]);
        let Some(dout) = douts[0] else { return Ok(vec![None]) };
        // The live count is an operand, so that the op runs after the count is computed.
        let ins: Vec<Var> = [Some(dout), rows.live.map(|live| live.var)].into_iter().flatten().collect();
        Ok(vec![Some(t.push1(MeanGrad { rows, cols }, &ins)?)])
    }
}

impl Op for MeanGrad {
    const NAME: &'static str = "mean_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "dout [1], count? [1] ids -> da [n, d]";
    fn sizes(&self) -> Sizes {
        vec![("n", self.rows), ("d", Rows::fixed(self.cols))]
    }
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.rows.live.is_some())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let da = io.out::<R>(0);
        da.fill(io.input::<R>(0)[0] * reciprocal(da.len()));
    }
    fn cpu(&self, io: &Io<'_>) {
        let da = io.out::<f32>(0);
        let each = io.input::<f32>(0)[0] * reciprocal::<f32>(da.len());
        da.chunks_mut(team::share(da.len())).in_parallel(1, |da| da.fill(each));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::items(on.out_cap(0) * on.out_cols(0) as usize);
        launch!(k, on, mean_grad[grid]; on.input(0), on.out(0), on.out_rows(0), on.out_cols(0))
    }
}

/// `[n, live, d]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3], &[3_001, 2_999, 3]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("mean", "three sizes")) };
    let count = c.count(live);
    // Positive numbers: a sum that cancels has a relative error of any size.
    let positive: Vec<f32> = (0..n * d).map(|_| 1.0 + c.uniform()).collect();
    let a = c.values(Spec::real(Rows::live(n, count), d), &positive);
    let out = c.tape.mean(a)?;
    Ok(Built::new(&[out], &[a]))
}
