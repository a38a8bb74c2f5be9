//! Puts slices of rows together again
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `like` | `[<= n, ...]` | any value with the rows of the whole |
//! | `part`, any number of them | `[<= k, d]` f32 or i64 | slice m of the rows, as [`slice_rows`] cuts them |
//! | out | `[<= n, d]` as the parts | all rows |
//!
//! Backward: the gradient of a part is its slice of the gradient of the whole. A part with fewer rows than
//! its slice is a fault.
use super::{slice_rows::first_row, *};

/// See the [module](self).
#[derive(Debug)]
pub struct JoinRows;

/// Position of the first part.
const FIRST: usize = 1;

impl Tape {
    /// Appends [`JoinRows`], which joins `parts`, f32 or i64 `[<= k, d]`, to a value with the rows of `like`.
    ///
    /// # Errors
    /// `Shape` if there are no parts, or if they differ in type or width.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let real = |n| Spec::real(Rows::fixed(n), 1);
    /// let like = tape.input(&mut store, "like", real(3), &[0.0f32; 3])?;
    /// let first = tape.input(&mut store, "first", real(1), &[5.0f32])?;
    /// let second = tape.input(&mut store, "second", real(2), &[6.0f32, 7.0])?;
    /// let all = tape.join_rows(like, &[first, second])?;
    /// let mut program = Program::new(&tape, &[all], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(all, &store)?, [5.0, 6.0, 7.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn join_rows(&mut self, like: Var, parts: &[Var]) -> Result<Var> {
        self.push1(JoinRows, &[&[like], parts].concat())
    }
}

impl JoinRows {
    fn copy<T: Element>(&self, io: &Io<'_>) {
        let (out, d, rows) = (io.out::<T>(0), io.out_cols(0), io.rows(0));
        let parts = io.inputs() - FIRST;
        for slice in 0..parts {
            let [first, end] = [slice, slice + 1].map(|slice| first_row(rows, slice, parts));
            let part = io.input::<T>(FIRST + slice);
            if io.rows(FIRST + slice) != end - first {
                io.fault(first, Fault::out_of_range(end - first));
                return;
            }
            out[first * d..end * d].copy_from_slice(part);
        }
    }
}

impl Op for JoinRows {
    const NAME: &'static str = "join_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "like, {part} -> out";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(Self::NAME, ins.len() > FIRST, "{} inputs, want a value with all rows, and parts", ins.len());
        let part = ins[FIRST];
        ensure!(
            Self::NAME,
            matches!(part.dtype, DType::F32 | DType::I64),
            "a part is {part}, want F32 or I64"
        );
        let same = ins[FIRST..].iter().all(|p| (p.dtype, p.cols) == (part.dtype, part.cols));
        ensure!(Self::NAME, same, "the parts are {:?}", &ins[FIRST..]);
        Ok(vec![Spec { rows: ins[0].rows, ..part }.into()])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(FIRST).dtype {
            DType::I64 => self.copy::<i64>(io),
            _ => self.copy::<R>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let parts = on.inputs() - FIRST;
        (0..parts).try_for_each(|slice| {
            let spec = on.spec(FIRST + slice);
            let d = (spec.cols * spec.dtype.size(Precision::F32) / size_of::<u32>()) as u32;
            let (grid, x, y) = (Grid::items(spec.len()), on.words(FIRST + slice), on.out_words(0));
            let (all, rows, status) = (on.rows(0), on.rows(FIRST + slice), on.status());
            launch!(k, on, join_rows[grid]; x, y, all, rows, d, slice as u32, parts as u32, status)
        })
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        let Some(dout) = douts[0] else { return Ok(dins) };
        let parts = node.ins.len() - FIRST;
        for slice in 0..parts {
            dins[FIRST + slice] = Some(t.slice_like(dout, node.ins[FIRST + slice], slice, parts)?);
        }
        Ok(dins)
    }
}

/// `[rows, columns, parts]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 1], &[0, 3, 2], &[7, 5, 3], &[2, 4, 5], &[700, 3, 4]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_500, 100, 4]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (rows, parts) = (dims[0], dims[2]);
    let all = c.ids_below(rows, 9);
    let of = |slice| first_row(rows, slice + 1, parts) - first_row(rows, slice, parts);
    let real: Vec<Var> = (0..parts).map(|slice| c.real(of(slice), dims[1])).collect();
    let times: Vec<Var> = (0..parts)
        .map(|slice| c.times(&(0..of(slice) as i64).map(|i| i << 40).collect::<Vec<_>>()))
        .collect();
    let outs = [c.tape.join_rows(all, &real)?, c.tape.join_rows(all, &times)?];
    Ok(Built::new(&outs, &real))
}
