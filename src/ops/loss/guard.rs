//! `out = a`, and a fault if the loss `x` is not finite
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, out | `[1, 1]` f32 | such as the gradient of a loss for itself |
//! | `x` | `[1, 1]` f32 | loss |
//!
//! Backward: `da = dout`; `x` has no gradient.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Guard;

impl Tape {
    /// Appends [`Guard`] and returns `a`; what reads it runs only if `x` is finite. Both are f32 `[1, 1]`.
    ///
    /// # Errors
    /// `Shape` if one of them is not.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, error::ErrorKind, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let one = Spec::real(Rows::fixed(1), 1);
    /// let a = tape.input(&mut store, "a", one, &[2.0f32])?;
    /// let x = tape.input(&mut store, "x", one, &[f32::NAN])?;
    /// let guarded = tape.guard(a, x)?;
    /// let mut program = Program::new(&tape, &[guarded], Precision::F32, Backend::Cpu)?;
    /// assert_eq!(program.run(&mut store).unwrap_err().kind(), ErrorKind::Diverged);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn guard(&mut self, a: Var, x: Var) -> Result<Var> {
        self.push1(Guard, &[a, x])
    }
}

impl Op for Guard {
    const NAME: &'static str = "guard";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "a [n], x [m] -> out [n]";
    const ROW: &'static str = "the loss";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        for (what, spec) in ["a", "x"].iter().zip(ins) {
            ensure!(Self::NAME, spec.rows.capacity == 1, "{what} is {spec}, want one row");
        }
        Ok(())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (a, out) = (io.input::<R>(0), io.out::<R>(0));
        out.copy_from_slice(a);
        for x in io.input::<R>(1).iter().filter(|x| !x.f64().is_finite()) {
            io.fault(0, Fault::NotFinite(x.f64() as f32));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (a, x, out) = (on.input(0), on.input(1), on.out(0));
        launch!(k, on, guard[Grid::new(1, 1)]; a, x, out, on.rows(0), on.rows(1), on.status())
    }
    fn vjp(&self, _: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0], None])
    }
}

/// `[]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, _: &[usize]) -> Result<Built> {
    let (a, x) = (c.real(1, 1), c.real(1, 1));
    let out = c.tape.guard(a, x)?;
    Ok(Built::new(&[out], &[a]))
}
