//! Rows of a table of steps and vertices that are of one step: `out[i] = step n + i`, or [`NONE`] where the vertex is not there
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `steps` | `[l]` u32 | steps of a snapshot group, or [`NONE`]: none of the rows is there |
//! | `scale` | `[s n, 1]` f32, optional | a row is there where its number is above 0; all are without |
//! | out | `[n]` u32 | |
//!
//! An index for `gather_rows`, and what tells a recurrent cell whose state goes on. A step outside the table is a fault.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct StepRows {
    place: usize,
    rows: usize,
}

impl Tape {
    /// Appends [`StepRows`] for the step at `place` of `steps`.
    ///
    /// # Errors
    /// `Shape` when types do not fit, or the group has no such place.
    pub fn step_rows(&mut self, steps: Var, place: usize, rows: usize, scale: Option<Var>) -> Result<Var> {
        let ins: Vec<Var> = std::iter::once(steps).chain(scale).collect();
        self.push1(StepRows { place, rows }, &ins)
    }
}

impl StepRows {
    /// Steps of a table of `len` rows; of one without vertices any.
    fn steps(&self, len: usize) -> usize {
        len.checked_div(self.rows).unwrap_or(NONE as usize)
    }
}

impl Op for StepRows {
    const NAME: &'static str = "step_rows";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(1, 2))?;
        // Fixed rows: all of them are there, that at `place` too.
        let want = Spec::ids(Rows::fixed(ins[0].rows.capacity), 1);
        ensure!(Self::NAME, ins[0] == want, "steps are {}, want {want}", ins[0]);
        ensure!(Self::NAME, u32::try_from(self.rows).is_ok(), "{} rows, want fewer", self.rows);
        ensure!(Self::NAME, self.place < ins[0].rows.capacity, "place {} of {}", self.place, ins[0]);
        if let Some(scale) = ins.get(1) {
            let whole = scale.rows.capacity.is_multiple_of(self.rows.max(1));
            ensure!(
                Self::NAME,
                whole && *scale == Spec::real(Rows::fixed(scale.rows.capacity), 1),
                "scale is {scale}"
            );
        }
        Ok(vec![Spec::ids(Rows::fixed(self.rows), 1).into()])
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
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.step_rows(
                on,
                Grid::items(self.rows),
                on.input(0),
                scale,
                on.out(0),
                steps,
                place,
                rows,
                on.status(),
            )
        }
    }
}

/// `[rows, steps of the table, place]`; without a table where there are no steps. The last place has no step.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 0], &[5, 3, 1], &[700, 4, 3], &[5, 3, 4], &[6, 0, 2], &[6, 0, 4], &[0, 2, 1]];
pub(super) const BENCH: &[&[usize]] = &[&[10_000, 20, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (steps, n) = (c.ids(&[0, 1, 2, 3, NONE], 1), dims[0]);
    let scale = (dims[1] > 0).then(|| c.real_in(dims[1] * n, 1, |u| u.max(0.0)));
    let out = c.tape.step_rows(steps, dims[2], n, scale)?;
    Ok(Built::new(&[out], &[]))
}
