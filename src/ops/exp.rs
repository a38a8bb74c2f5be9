//! `out = e^a`, element by element
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, out | `[n, d]` f32 | the same shape |
//!
//! Within 2 ulp; infinity above 88.7, which is no fault. Below -87.3, where the exact result is smaller than
//! the smallest normal number, the CPU returns 0.
//!
//! Backward: `da = dout * out`, by [`mul`].
use super::*;
use crate::runtime::{
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Exp;

impl Tape {
    /// Appends [`Exp`] and returns `e^a`, element by element; both are f32 `[n, d]`.
    ///
    /// # Errors
    /// `Shape` if `a` is not f32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[0.0f32, -200.0])?;
    /// let power = tape.exp(a)?;
    /// let mut program = Program::new(&tape, &[power], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(power, &store)?, [1.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn exp(&mut self, a: Var) -> Result<Var> {
        self.push1(Exp, &[a])
    }
}

vectorised! {
    fn powers(out: &mut [f32], a: &[f32]) {
        for (out, &a) in out.iter_mut().zip(a) {
            *out = simd::exp(a);
        }
    }
}

impl Op for Exp {
    const NAME: &'static str = "exp";
    const KIND: OpKind = OpKind::Nn;
    const INPUTS: &'static [&'static str] = &["a"];
    const OUTPUTS: &'static [&'static str] = &["out"];
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 1)?;
        typed(Self::NAME, "a", &ins[0], DType::F32)?;
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for (o, &a) in io.out::<R>(0).iter_mut().zip(io.input::<R>(0)) {
            *o = a.exp();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        let work = out.chunks_mut(share).zip(io.input::<f32>(0).chunks(share));
        work.in_parallel(1, |(out, a)| powers(out, a));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, out, d) = (on.input(0), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.exponential(on, Grid::items(on.spec(0).len()), a, out, on.rows(0), d) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|dout| t.mul(dout, node.outs[0])).transpose()?])
    }
}

/// `[n, live, d]`
pub(super) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("exp", "three sizes")) };
    let count = c.count(live);
    let a = c.live_real(n, count, d);
    let out = c.tape.exp(a)?;
    Ok(Built::new(&[out], &[a]))
}
