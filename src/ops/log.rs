//! `out = ln a`, the natural logarithm, element by element
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, out | `[n, d]` f32 | the same shape |
//!
//! As IEEE 754 says, the logarithm of 0 is minus infinity and that of a negative number is NaN. Neither is a
//! fault; an op that reads the result may report it.
//!
//! Backward: `da = dout / a` for any `a`, so the gradient at 0 is infinite, or NaN if `dout` is 0.
use super::*;
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Log;
/// `da = dout / a`
#[derive(Debug)]
pub struct LogGrad;

impl Tape {
    /// Appends [`Log`] and returns `ln a`, element by element; both are f32 `[n, d]`.
    ///
    /// # Errors
    /// `Shape` if `a` is not f32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[1.0f32, 0.0])?;
    /// let logarithm = tape.log(a)?;
    /// let mut program = Program::new(&tape, &[logarithm], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(logarithm, &store)?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn log(&mut self, a: Var) -> Result<Var> {
        self.push1(Log, &[a])
    }
}

vectorised! {
    fn quotients(da: &mut [f32], a: &[f32], dout: &[f32]) {
        for ((da, a), dout) in da.iter_mut().zip(a).zip(dout) {
            *da = dout / a;
        }
    }
}

impl Op for Log {
    const NAME: &'static str = "log";
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
            *o = a.ln();
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        let work = out.chunks_mut(share).zip(io.input::<f32>(0).chunks(share));
        work.in_parallel(1, |(out, a)| out.iter_mut().zip(a).for_each(|(o, a)| *o = a.ln()));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, out, d) = (on.input(0), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.logarithm(on, Grid::items(on.spec(0).len()), a, out, on.rows(0), d) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|dout| t.push1(LogGrad, &[node.ins[0], dout])).transpose()?])
    }
}

impl Op for LogGrad {
    const NAME: &'static str = "log_grad";
    const KIND: OpKind = OpKind::Nn;
    const INPUTS: &'static [&'static str] = &["a", "dout"];
    const OUTPUTS: &'static [&'static str] = &["da"];
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        typed(Self::NAME, "a", &ins[0], DType::F32)?;
        ensure!(Self::NAME, ins[0] == ins[1], "a is {}, dout is {}", ins[0], ins[1]);
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (a, dout) = (io.input::<R>(0), io.input::<R>(1));
        for (i, da) in io.out::<R>(0).iter_mut().enumerate() {
            *da = dout[i] / a[i];
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let da = io.out::<f32>(0);
        let share = team::share(da.len());
        let (a, dout) = (io.input::<f32>(0).chunks(share), io.input::<f32>(1).chunks(share));
        da.chunks_mut(share).zip(a.zip(dout)).in_parallel(1, |(da, (a, dout))| quotients(da, a, dout));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, dout, da, d) = (on.input(0), on.input(1), on.out(0), on.cols(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.log_grad(on, Grid::items(on.spec(0).len()), a, dout, da, on.rows(0), d) }
    }
}

/// `[n, live, d]`
pub(super) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("log", "three sizes")) };
    let count = c.count(live);
    // From 0.5 to 2.5: closer to 0 the finite differences of the gradient check are not exact enough.
    let positive: Vec<f32> = (0..n * d).map(|_| 1.5 + c.uniform()).collect();
    let a = c.values(Spec::real(Rows::live(n, count), d), &positive);
    let out = c.tape.log(a)?;
    Ok(Built::new(&[out], &[a]))
}
