//! `out = min(a, b)` of two counts
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `a`, `b` | `[1]` u32 | counts, such as of new rows, and of those that this step may write |
//! | out | `[1]` u32 | the smaller one |
//!
//! No gradient. Exact.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Least;

impl Tape {
    /// Appends [`Least`] of two counts, u32 `[1]`.
    ///
    /// # Errors
    /// `Shape` if an input is not a count.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::ids(Rows::fixed(1), 1), &[5u32])?;
    /// let b = tape.input(&mut store, "b", Spec::ids(Rows::fixed(1), 1), &[3u32])?;
    /// let least = tape.least(a, b)?;
    /// let mut program = Program::new(&tape, &[least], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(least, &store)?, [3]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn least(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Least, &[a, b])
    }
}

impl Op for Least {
    const NAME: &'static str = "least";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "a [1] ids, b [1] ids -> out [1] ids";
    fn define<R: Real>(&self, io: &Io<'_>) {
        io.out::<u32>(0)[0] = io.input::<u32>(0)[0].min(io.input::<u32>(1)[0]);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(k, on, least[Grid::new(1, 32)]; on.input(0), on.input(1), on.out(0))
    }
}

/// `[a, b]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[0, 0], &[3, 7], &[9, 2], &[4, u32::MAX as usize]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[900, 700]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (a, b) = (c.count(dims[0]), c.count(dims[1]));
    let least = c.tape.least(a, b)?;
    Ok(Built::new(&[least], &[]))
}
