//! `out = s * a` for a constant `s`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, out | `[n, d]` f32 | the same shape |
//!
//! Backward: `da = s * dout`, by the same op.
use super::*;
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Scale {
    factor: f32,
}

impl Tape {
    /// Appends [`Scale`] and returns `s a` for the constant `s`; both are f32 `[n, d]`.
    ///
    /// # Errors
    /// `Shape` if `a` is not f32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[3.0f32, -2.0])?;
    /// let half = tape.scale(a, 0.5)?;
    /// let mut program = Program::new(&tape, &[half], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(half, &store)?, [1.5, -1.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn scale(&mut self, a: Var, s: f32) -> Result<Var> {
        self.push1(Scale { factor: s }, &[a])
    }
}

vectorised! {
    fn scaled(out: &mut [f32], a: &[f32], factor: f32) {
        for (out, a) in out.iter_mut().zip(a) {
            *out = factor * a;
        }
    }
}

impl Op for Scale {
    const NAME: &'static str = "scale";
    const KIND: OpKind = OpKind::Nn;
    const INPUTS: &'static [&'static str] = &["a"];
    const OUTPUTS: &'static [&'static str] = &["out"];
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 1)?;
        typed(Self::NAME, "a", &ins[0], DType::F32)?;
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let factor = R::of(self.factor.into());
        for (o, &a) in io.out::<R>(0).iter_mut().zip(io.input::<R>(0)) {
            *o = factor * a;
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        let work = out.chunks_mut(share).zip(io.input::<f32>(0).chunks(share));
        work.in_parallel(1, |(out, a)| scaled(out, a, self.factor));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, out, d) = (on.input(0), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.scaled(on, Grid::items(on.spec(0).len()), a, self.factor, out, on.rows(0), d) }
    }
    fn vjp(&self, t: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|dout| t.scale(dout, self.factor)).transpose()?])
    }
}

/// `[n, live, d]`
pub(super) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("scale", "three sizes")) };
    let count = c.count(live);
    let a = c.live_real(n, count, d);
    let out = c.tape.scale(a, -0.3)?;
    Ok(Built::new(&[out], &[a]))
}
