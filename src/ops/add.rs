//! `out = a + b`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, `b`, out | `[n, d]` f32 | the same shape |
use super::*;
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Add;

impl Tape {
    /// Appends [`Add`] and returns `a + b`; all are f32 `[n, d]`.
    ///
    /// # Errors
    /// `Shape` when the shapes differ.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// let b = tape.input(&mut store, "b", Spec::real(Rows::fixed(1), 2), &[1.0f32, 6.0])?;
    /// let sum = tape.add(a, b)?;
    /// let mut program = Program::new(&tape, &[sum], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(sum, &store)?, [4.0, 10.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn add(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Add, &[a, b])
    }
}

vectorised! {
    fn sum(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a + b;
        }
    }
}

impl Op for Add {
    const NAME: &'static str = "add";
    const KIND: OpKind = OpKind::Nn;
    const INPUTS: &'static [&'static str] = &["a", "b"];
    const OUTPUTS: &'static [&'static str] = &["out"];
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        typed(Self::NAME, "a", &ins[0], DType::F32)?;
        ensure!(Self::NAME, ins[0] == ins[1], "a is {}, b is {}", ins[0], ins[1]);
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (a, b) = (io.input::<R>(0), io.input::<R>(1));
        for (i, o) in io.out::<R>(0).iter_mut().enumerate() {
            *o = a[i] + b[i];
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        let (a, b) = (io.input::<f32>(0).chunks(share), io.input::<f32>(1).chunks(share));
        out.chunks_mut(share).zip(a.zip(b)).in_parallel(1, |(out, (a, b))| sum(out, a, b));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, b, out, d) = (on.input(0), on.input(1), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.add(on, Grid::items(on.spec(0).len()), a, b, out, on.rows(0), d) }
    }
    fn vjp(&self, _: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0], douts[0]])
    }
}

/// `[n, d]`; both operands are the same value, so that its gradient must accumulate.
pub(super) const CASES: &[&[usize]] = &[&[0, 3], &[1, 1], &[10, 100]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let a = c.real(dims[0], dims[1]);
    let out = c.tape.add(a, a)?;
    Ok(Built::new(&[out], &[a]))
}
