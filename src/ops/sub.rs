//! `out = a - b`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, `b`, out | `[n, d]` f32 | the same shape |
//!
//! Backward: `da = dout`, `db = -dout`, by [`scale`].
use super::*;
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Sub;

impl Tape {
    /// Appends [`Sub`] and returns `a - b`; all are f32 `[n, d]`.
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
    /// let difference = tape.sub(a, b)?;
    /// let mut program = Program::new(&tape, &[difference], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(difference, &store)?, [2.0, -2.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn sub(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Sub, &[a, b])
    }
}

vectorised! {
    fn difference(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a - b;
        }
    }
}

impl Op for Sub {
    const NAME: &'static str = "sub";
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
            *o = a[i] - b[i];
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        let (a, b) = (io.input::<f32>(0).chunks(share), io.input::<f32>(1).chunks(share));
        out.chunks_mut(share).zip(a.zip(b)).in_parallel(1, |(out, (a, b))| difference(out, a, b));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, b, out, d) = (on.input(0), on.input(1), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.sub(on, Grid::items(on.spec(0).len()), a, b, out, on.rows(0), d) }
    }
    fn vjp(&self, t: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0], douts[0].map(|dout| t.scale(dout, -1.0)).transpose()?])
    }
}

/// `[n, live, d]`
pub(super) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("sub", "three sizes")) };
    let count = c.count(live);
    let (a, b) = (c.live_real(n, count, d), c.live_real(n, count, d));
    let out = c.tape.sub(a, b)?;
    Ok(Built::new(&[out], &[a, b]))
}
