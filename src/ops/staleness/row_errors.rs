//! Adds up how far rows are from what they should be, before and after they were changed
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `before`, `exact` | `[m, d]` f32 | rows before a change, and as they should be |
//! | `after` | `[n, d]` f32 | rows after the change |
//! | `row` | `[m]` u32 below n | the rows of `after` |
//! | `errors` | `[1, 6]` f32, state | to which the op adds, of all rows: their number, the sums of `‖before - exact‖` and `‖after - exact‖`; then the same of those rows whose `before` is not `exact` |
//!
//! Norms are Euclidean. Sums are f32, so they should be read and cleared now and then. Deterministic: the
//! order of the sums depends on the number of rows alone.
//! Source: the error of staleness in MSPipe, section 5.5.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct RowErrors;

/// Sums of rows: all, and those that were wrong.
const SUMS: usize = 6;

impl Tape {
    /// Appends [`RowErrors`] of the rows `before`, f32 `[m, d]`, and of the rows `row`, u32 `[m]`, of
    /// `after`, f32 `[n, d]`, which should be `exact`, f32 `[m, d]`. It adds to `errors`, f32 `[1, 6]`.
    ///
    /// # Errors
    /// `Shape` if types or shapes are not those of the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let rows = Spec::real(Rows::fixed(2), 1);
    /// let before = tape.input(&mut store, "before", rows, &[1.0f32, 5.0])?;
    /// let exact = tape.input(&mut store, "exact", rows, &[3.0f32, 5.0])?;
    /// let after = tape.input(&mut store, "after", rows, &[2.0f32, 5.5])?;
    /// let row = tape.input(&mut store, "row", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let sums = store.zeros("errors", Spec::real(Rows::fixed(1), 6))?;
    /// let errors = tape.stored(sums)?;
    /// tape.row_errors((before, after), row, exact, errors)?;
    /// Program::new(&tape, &[], Precision::F32, Backend::Cpu)?.run(&mut store)?;
    /// assert_eq!(store.read::<f32>(sums)?, [2.0, 2.0, 1.5, 1.0, 2.0, 1.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn row_errors(
        &mut self,
        (before, after): (Var, Var),
        row: Var,
        exact: Var,
        errors: Var,
    ) -> Result<()> {
        self.push(RowErrors, &[before, exact, after, row, errors]).map(drop)
    }
}

impl Op for RowErrors {
    const NAME: &'static str = "row_errors";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "before [m, d], exact [m, d], after [n, d], row [m] ids, \
        errors [1, 6] state ->";
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 12 * ins[at!(before)].len(), flops: 6 * ins[at!(before)].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (before, exact) = (io.input::<R>(at!(before)), io.input::<R>(at!(exact)));
        let (after, d) = (io.input::<R>(at!(after)), io.cols(at!(before)));
        let errors = io.state::<R>(at!(errors));
        for (i, &row) in io.input::<u32>(at!(row)).iter().enumerate() {
            let Some(row) = io.row_of(i, row, io.rows(at!(after))) else { continue };
            let exact = &exact[i * d..][..d];
            let distance = |x: &[R]| x.iter().zip(exact).map(|(&a, &b)| (a - b) * (a - b)).sum::<R>().sqrt();
            let [was, is] = [distance(&before[i * d..][..d]), distance(&after[row * d..][..d])];
            let wrong = was > R::ZERO;
            let adds = [R::ONE, was, is];
            for (at, &add) in adds.iter().enumerate() {
                errors[at] += add;
                if wrong {
                    errors[3 + at] += add;
                }
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, row_errors[Grid::new(1, 1024)];
            on.input(at!(before)), on.input(at!(exact)), on.input(at!(after)), on.input(at!(row)),
            on.state(at!(errors)), on.rows(at!(row)), on.rows(at!(after)), on.cols(at!(before)),
            on.status()
        )
    }
}

/// `[rows, changed rows, columns]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[9, 5, 3], &[100, 70, 33], &[5, 0, 4], &[5, 3, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[5_000, 60, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, d] = dims[..] else { return Err(Error::shape("row_errors", "three numbers")) };
    let (before, after, exact) = (c.real(m, d), c.real(n, d), c.real(m, d));
    let row = c.ids_below(m, n);
    let errors = c.real(1, SUMS);
    // Rows that are exact do not count as wrong.
    c.tape.row_errors((before, after), row, exact, errors)?;
    c.tape.row_errors((exact, after), row, exact, errors)?;
    Ok(Built { states: vec![errors], ..Built::default() })
}
