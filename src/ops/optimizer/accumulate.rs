//! `sum += x`, or `sum = 0`: accumulates gradients over several steps before the parameters are updated
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `sum` | `[n, d]` f32, state | one per parameter |
//! | `x` | as its `sum` | the summand; absent if the sums are cleared |
//!
//! One op handles all parameters, with one launch for every 64 of them. Deterministic.
use super::{adam::parameters, *};
use crate::runtime::{
    cuda::abi,
    simd,
    team::{self, InParallel},
};
use std::ptr::{null, null_mut};

/// See the [module](self).
#[derive(Debug)]
pub struct Accumulate {
    clears: bool,
}

impl Tape {
    /// Appends [`Accumulate`], which adds the second value of each pair to the first, a stored sum of the
    /// same shape.
    ///
    /// # Errors
    /// `Shape` if the shapes of a pair differ, or a sum is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let sum = tape.input(&mut store, "sum", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[10.0f32, 20.0])?;
    /// tape.accumulate(&[(sum, x)])?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// program.run(&mut store)?; // a second step
    /// assert_eq!(program.read::<f32>(sum, &store)?, [21.0, 42.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn accumulate(&mut self, pairs: &[(Var, Var)]) -> Result<()> {
        let ins: Vec<Var> = pairs.iter().flat_map(|p| [p.0, p.1]).collect();
        self.push(Accumulate { clears: false }, &ins).map(drop)
    }
    /// Appends [`Accumulate`] that sets `sums` to zero.
    ///
    /// # Errors
    /// `Shape` if a sum is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let sum = tape.input(&mut store, "sum", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// tape.clear(&[sum])?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(sum, &store)?, [0.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn clear(&mut self, sums: &[Var]) -> Result<()> {
        self.push(Accumulate { clears: true }, sums).map(drop)
    }
}

impl Accumulate {
    /// Returns the number of inputs per sum: the sum alone, or the sum and its summand.
    fn inputs_per_sum(&self) -> usize {
        if self.clears { 1 } else { 2 }
    }
}

impl Op for Accumulate {
    const NAME: &'static str = "accumulate";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "{sum [R, d] state, x? [R, d]} ->";
    fn has(&self, _: &str) -> Option<bool> {
        Some(!self.clears)
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        all_countable(self, ins)
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins.iter().step_by(self.inputs_per_sum()).map(Spec::len).sum();
        if self.clears { Cost { bytes: 4 * n, flops: 0 } } else { Cost { bytes: 12 * n, flops: n } }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for at in (0..io.inputs()).step_by(self.inputs_per_sum()) {
            let sum = io.state::<R>(at);
            match self.clears {
                true => sum.fill(R::ZERO),
                false => sum.iter_mut().zip(io.input::<R>(at + 1)).for_each(|(sum, &x)| *sum += x),
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        for at in (0..io.inputs()).step_by(self.inputs_per_sum()) {
            let sum = io.state::<f32>(at);
            if self.clears {
                sum.fill(0.0);
                continue;
            }
            let chunk = team::share(sum.len());
            let chunks = sum.chunks_mut(chunk).zip(io.input::<f32>(at + 1).chunks(chunk));
            chunks.in_parallel(1, |(sum, x)| add(sum, x));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let sums = (0..on.inputs()).step_by(self.inputs_per_sum());
        let parameter_at = |at: usize, end| {
            let x = if self.clears { null() } else { on.input(at + 1) };
            abi::Parameter {
                w: on.state(at),
                g: x,
                m: null_mut(),
                v: null_mut(),
                sum: null_mut(),
                n: on.spec(at).len() as u32,
                end,
            }
        };
        parameters(on, sums, parameter_at, |grid, sums, _| launch!(k, on, accumulate[grid]; sums))
    }
}

simd::vectorised! {
    pub(in crate::ops) fn add(sum: &mut [f32], x: &[f32]) {
        simd::add_assign(sum, x);
    }
}

/// `[clear, sizes of the sums...]`: sums are cleared if the first number is 1.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[0, 1, 1], &[1, 5, 70], &[0, 0, 7], &[0, 33, 20_000], &[1, 20_001], &[0, 3, 3, 3, 3, 3, 3, 3, 3]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[0, 12_288, 8192, 4096, 4096, 4096]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let sums: Vec<Var> = dims[1..].iter().map(|&n| c.real(1, n)).collect();
    match dims[0] {
        1 => c.tape.clear(&sums)?,
        _ => {
            let pairs: Vec<(Var, Var)> =
                sums.iter().map(|&sum| (sum, c.real(1, c.tape.spec(sum).cols))).collect();
            c.tape.accumulate(&pairs)?;
        }
    }
    Ok(Built { states: sums, ..Built::default() })
}
