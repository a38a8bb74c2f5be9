//! `sum += x`, or `sum = 0`: gradients of several steps, added up before parameters move
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `sum` | `[n, d]` f32, state | one for every parameter |
//! | `x` | as its sum | what is added; none where sums are cleared |
//!
//! One op for all: one launch. Deterministic.
use super::{
    adam::{check_parameter, parameters},
    *,
};
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
    /// Appends [`Accumulate`]: adds the second of each pair to the first, which is stored.
    ///
    /// # Errors
    /// `Shape` when those of a pair differ in shape, or a sum is not writable.
    pub fn accumulate(&mut self, pairs: &[(Var, Var)]) -> Result<()> {
        let ins: Vec<Var> = pairs.iter().flat_map(|p| [p.0, p.1]).collect();
        self.push(Accumulate { clears: false }, &ins).map(drop)
    }
    /// Appends [`Accumulate`] that sets `sums` to zero.
    ///
    /// # Errors
    /// `Shape` when one is not writable.
    pub fn clear(&mut self, sums: &[Var]) -> Result<()> {
        self.push(Accumulate { clears: true }, sums).map(drop)
    }
}

impl Accumulate {
    /// Inputs a sum.
    fn each(&self) -> usize {
        if self.clears { 1 } else { 2 }
    }
}

impl Op for Accumulate {
    const NAME: &'static str = "accumulate";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().next_multiple_of(self.each()))?;
        for pair in ins.chunks_exact(self.each()) {
            check_parameter(Self::NAME, "sum", &pair[0])?;
            ensure!(Self::NAME, pair.iter().all(|s| *s == pair[0]), "shapes of a pair differ: {pair:?}");
        }
        Ok(vec![])
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        (0..inputs).step_by(self.each()).collect()
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins.iter().step_by(self.each()).map(Spec::len).sum();
        if self.clears { Cost { bytes: 4 * n, flops: 0 } } else { Cost { bytes: 12 * n, flops: n } }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for at in (0..io.inputs()).step_by(self.each()) {
            let sum = io.state::<R>(at);
            match self.clears {
                true => sum.fill(R::ZERO),
                false => sum.iter_mut().zip(io.input::<R>(at + 1)).for_each(|(sum, &x)| *sum += x),
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        for at in (0..io.inputs()).step_by(self.each()) {
            let sum = io.state::<f32>(at);
            if self.clears {
                sum.fill(0.0);
                continue;
            }
            let share = team::share(sum.len());
            let shares = sum.chunks_mut(share).zip(io.input::<f32>(at + 1).chunks(share));
            shares.in_parallel(1, |(sum, x)| add(sum, x));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let each = self.each();
        let of = |at: usize, end| {
            let x = if self.clears { null() } else { on.input(at + 1) };
            abi::Parameter {
                w: on.state(at),
                g: x,
                m: null_mut(),
                v: null_mut(),
                n: on.spec(at).len() as u32,
                end,
            }
        };
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        parameters(on, (0..on.inputs()).step_by(each), of, |grid, sums, _| unsafe {
            k.accumulate(on, grid, sums)
        })
    }
}

simd::vectorised! {
    fn add(sum: &mut [f32], x: &[f32]) {
        simd::add_assign(sum, x);
    }
}

/// `[clear, sizes of the sums]`; more than a launch takes.
pub(super) const CASES: &[&[usize]] =
    &[&[0, 1, 1], &[1, 5, 70], &[0, 0, 7], &[0, 33, 20_000], &[1, 20_001], &[0, 3, 3, 3, 3, 3, 3, 3, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[0, 12_288, 8192, 4096, 4096, 4096]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
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
