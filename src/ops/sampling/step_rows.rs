//! `out[i] = step n + i`, or [`NONE`] if vertex i is absent: rows of one step in a table of s steps with n
//! vertices each.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `steps` | `[l]` u32 | steps of a snapshot group; all vertices of a step that is [`NONE`] are absent |
//! | `scale` | `[s n, 1]` f32, optional | a vertex is present if its number is above 0; without `scale` all are present |
//! | out | `[n]` u32 | row of each vertex, or `NONE` |
//!
//! The output is an index for `gather_rows`, and tells a recurrent cell which vertices advance their state. A
//! step outside the table is reported as a fault.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct StepRows {
    /// Index into `steps`.
    place: usize,
    /// Vertices of a step.
    rows: usize,
}

impl Tape {
    /// Appends [`StepRows`] for the step `steps[place]` of `rows` vertices; returns their rows in a table of
    /// all steps, u32 `[rows]`, or [`NONE`] for absent vertices, those whose `scale` is not above 0.
    ///
    /// # Errors
    /// `Shape` if types do not match, or if `place` is not below the length of `steps`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let steps = tape.input(&mut store, "steps", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let scale = tape.input(&mut store, "scale", Spec::real(Rows::fixed(4), 1), &[1.0f32, 1.0, 0.0, 1.0])?;
    /// let rows = tape.step_rows(steps, 0, 2, Some(scale))?; // two vertices a step
    /// let mut program = Program::new(&tape, &[rows], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(rows, &store)?, [NONE, 3]); // vertex 0 is absent from step 1
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn step_rows(&mut self, steps: Var, place: usize, rows: usize, scale: Option<Var>) -> Result<Var> {
        let ins: Vec<Var> = std::iter::once(steps).chain(scale).collect();
        self.push1(StepRows { place, rows }, &ins)
    }
}

impl StepRows {
    /// Returns the number of steps of a table of `len` rows; the largest possible number if a step has no
    /// vertices.
    fn steps(&self, len: usize) -> usize {
        len.checked_div(self.rows).unwrap_or(NONE as usize)
    }
}

impl Op for StepRows {
    const NAME: &'static str = "step_rows";
    const KIND: OpKind = OpKind::Graph;
    // The rows of `steps` are fixed, so that the one at `place` is live.
    const SIGNATURE: &'static str = "steps [S] ids, scale? [R] -> out [n] ids";
    fn sizes(&self) -> Sizes {
        vec![("n", Rows::fixed(self.rows))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let steps = ins[0];
        at_most_u32(Self::NAME, "rows", self.rows)?;
        let known = self.place < steps.rows.capacity;
        ensure!(Self::NAME, known, "index into steps is {}, steps are {steps}", self.place);
        if let Some(scale) = ins.get(1) {
            let whole = scale.rows.capacity.is_multiple_of(self.rows.max(1));
            ensure!(Self::NAME, whole, "scale is {scale}, want {} rows for each step", self.rows);
        }
        Ok(())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * outs[0].len() * ins.len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let scale = (io.inputs() > 1).then(|| io.input::<R>(1));
        let step = io.input::<u32>(0)[self.place];
        let step = match scale {
            Some(scale) => io.row_of(self.place, step, self.steps(scale.len())),
            None => (step != NONE).then_some(step as usize),
        };
        for (i, out) in io.out::<u32>(0).iter_mut().enumerate() {
            let row = step.map(|s| s * self.rows + i).filter(|&row| scale.is_none_or(|w| w[row] > R::ZERO));
            *out = row.map_or(NONE, |row| row as u32);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let scale = if on.inputs() > 1 { on.input(1) } else { std::ptr::null() };
        let steps = if on.inputs() > 1 { self.steps(on.capacity(1)) as u32 } else { NONE };
        let (place, rows) = (self.place as u32, self.rows as u32);
        launch!(
            k, on, step_rows[Grid::items(self.rows)];
            on.input(0), scale, on.out(0), steps, place, rows, on.status()
        )
    }
}

/// `[rows, steps of the table, place]`; without a table if it has no steps. The last place holds [`NONE`].
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0], &[5, 3, 1], &[700, 4, 3], &[5, 3, 4], &[6, 0, 2], &[6, 0, 4], &[0, 2, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 20, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (steps, n) = (c.ids(&[0, 1, 2, 3, NONE], 1), dims[0]);
    let scale = (dims[1] > 0).then(|| c.real_in(dims[1] * n, 1, |u| u.max(0.0)));
    let out = c.tape.step_rows(steps, dims[2], n, scale)?;
    Ok(Built::new(&[out], &[]))
}
