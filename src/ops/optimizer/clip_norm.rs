//! `norm = sqrt(sum g^2)`, `scale = min(1, most / (norm + 1e-6))`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `norm` | `[1, 1]` f32, state | norm of all gradients together |
//! | `g`, for every parameter | any shape, f32 | gradients |
//! | scale | `[1, 1]` f32 | factor by which the gradients have at most the norm `most` |
//!
//! The update of the parameters multiplies the gradients by the factor ([`adam`],
//! [`sgd`]), so that they are not written once more. One op reads all gradients, with one launch
//! for every 64 of them. Deterministic. Source: Pascanu et al. 2013; as PyTorch's `clip_grad_norm_`.
use super::{
    adam::{PIECE, Part, parameters},
    *,
};
use crate::runtime::{
    cuda::abi,
    parts::{self, PARTS},
    simd::{self, vectorised},
    team::InParallel,
};
use std::{cell::Cell, ptr::null_mut};

/// Added to the norm, so that gradients of zero have a factor.
const EPS: f64 = 1e-6;

const FIRST_G: usize = 1;

/// See the [module](self).
#[derive(Debug)]
pub struct ClipNorm {
    most: f64,
}

impl Tape {
    /// Appends [`ClipNorm`]; returns the factor, `[1, 1]`, by which the gradients have at most the norm
    /// `most`. The norm of all gradients together is stored in `norm`, `[1, 1]`.
    ///
    /// # Errors
    /// `Shape` if a gradient is not f32 with a fixed number of rows, or if `norm` is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let g = tape.input(&mut store, "g", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// let norm = store.zeros("norm", Spec::real(Rows::fixed(1), 1))?;
    /// let norm = tape.stored(norm)?;
    /// let scale = tape.clip_norm(norm, &[g], 1.0)?;
    /// let mut program = Program::new(&tape, &[scale], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(norm, &store)?, [5.0]);
    /// assert!((program.read::<f32>(scale, &store)?[0] - 0.2).abs() < 1e-6);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn clip_norm(&mut self, norm: Var, gradients: &[Var], most: f64) -> Result<Var> {
        let ins: Vec<Var> = [norm].into_iter().chain(gradients.iter().copied()).collect();
        self.push1(ClipNorm { most }, &ins)
    }
}

vectorised! {
    fn sum_of_squares(g: &[f32]) -> f32 {
        simd::dot::<V>(g, g)
    }
}

/// Returns the number of blocks that process a gradient.
fn blocks_of(g: &Spec) -> usize {
    g.len().div_ceil(PIECE)
}

impl ClipNorm {
    /// Writes norm and factor.
    fn finish<R: Real>(&self, io: &Io<'_>, sum: R) {
        let norm = sum.sqrt();
        let scale = R::from_f64(self.most) / (norm + R::from_f64(EPS));
        io.state::<R>(at!(norm))[0] = norm;
        // A norm that is not a number must not look like one that needs no clipping.
        io.out::<R>(0)[0] = if scale >= R::ONE { R::ONE } else { scale };
    }
}

impl Op for ClipNorm {
    const NAME: &'static str = "clip_norm";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "norm [1] state, {g [R, d]} -> scale [1]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        all_countable(self, ins)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let gradients = &ins[FIRST_G..];
        gradients.iter().map(blocks_of).sum::<usize>().max(PARTS * gradients.len()).max(1)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins[FIRST_G..].iter().map(Spec::len).sum();
        Cost { bytes: 4 * n, flops: 2 * n }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let gradients = (FIRST_G..io.inputs()).flat_map(|at| io.input::<R>(at));
        self.finish(io, gradients.map(|&g| g * g).sum::<R>());
    }
    fn cpu(&self, io: &Io<'_>) {
        let sums = &mut io.scratch::<f32>()[..PARTS * (io.inputs() - FIRST_G)];
        sums.fill(0.0);
        let parts = (FIRST_G..io.inputs()).zip(sums.chunks_mut(PARTS)).flat_map(|(at, sums)| {
            let g = io.input::<f32>(at);
            g.chunks(parts::part_rows(g.len())).zip(sums)
        });
        parts.in_parallel(1, |(g, sum)| *sum = sum_of_squares(g));
        self.finish(io, sums.iter().sum::<f32>());
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (norm, most, sums) = (on.state(at!(norm)), self.most as f32, on.scratch());
        let scale = on.needed(0);
        let gradient_at = |at: usize, end| {
            let (g, n) = (on.input(at), on.spec(at).len() as u32);
            abi::Parameter { w: null_mut(), g, m: null_mut(), v: null_mut(), sum: null_mut(), n, end }
        };
        let all = FIRST_G..on.inputs();
        if all.clone().all(|at| on.spec(at).is_empty()) {
            let none = abi::Parameter {
                w: null_mut(),
                g: std::ptr::null(),
                m: null_mut(),
                v: null_mut(),
                sum: null_mut(),
                n: 0,
                end: 1,
            };
            let gradients = abi::Parameters { of: [none; abi::Parameters::MOST] };
            let grid = Grid::new(1, Grid::THREADS);
            // The kernel reads no gradient, and scratch has room for the sum of one block.
            return launch!(k, on, clip_norm[grid]; gradients, sums, 0, norm, scale, most, on.tickets());
        }
        // Blocks of earlier launches.
        let before = Cell::new(0u32);
        parameters(on, all, gradient_at, |grid, gradients, Part { last, .. }| {
            let ticket = if last { on.tickets() } else { null_mut() };
            let first = before.get();
            before.set(first + gradients.of[abi::Parameters::MOST - 1].end);
            // Scratch has room for the sum of every block.
            launch!(k, on, clip_norm[grid]; gradients, sums, first, norm, scale, most, ticket)
        })
    }
}

/// `[most, sizes of the gradients...]`, with the largest norm in tenths.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[5, 1, 1], &[1_000, 5, 9], &[1, 0, 0], &[7, 33, 20_000, 0], &[3, 1_027], &MANY, &[8]];
/// More gradients than one launch takes.
const MANY: [usize; 80] = [13; 80];
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[10, 141_600, 30_000, 37_200, 37_200, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let norm = c.real(1, 1);
    let gradients: Vec<Var> = dims[1..].iter().map(|&n| c.real(1, n)).collect();
    let scale = c.tape.clip_norm(norm, &gradients, dims[0] as f64 / 10.0)?;
    Ok(Built { outs: vec![scale], states: vec![norm], ..Built::default() })
}
