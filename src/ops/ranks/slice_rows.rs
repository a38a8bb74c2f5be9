//! `out[i, :] = x[n m / parts + i, :]`: the m-th of several slices of the rows
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[<= n, d]` f32 or u32 | rows |
//! | `like` | `[<= k, ...]`, optional | any value with the rows of the slice |
//! | count | `[1]` u32, only without `like` | number of rows of the slice |
//! | out | `[<= n / parts + 1, d]` as `x`, or with the rows of `like` | rows `n m / parts` to `n (m + 1) / parts` of `x`, of its n live rows |
//!
//! No gradient: lists are cut, and gradients for [`join_rows`].
//! Source: the micro-batches of Sven, section 3.3.2.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct SliceRows {
    slice: usize,
    of: usize,
    counted: bool,
}

impl Tape {
    /// Appends [`SliceRows`]: slice `slice` of `of` slices of the rows of `x`, f32 or u32 `[<= n, d]`.
    ///
    /// # Errors
    /// `Shape` if `x` has another type, or if there is no such slice.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::ids(Rows::fixed(5), 1), &[5u32, 6, 7, 8, 9])?;
    /// let (first, second) = (tape.slice_rows(x, 0, 2)?, tape.slice_rows(x, 1, 2)?);
    /// let mut program = Program::new(&tape, &[first, second], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(first, &store)?, [5, 6]);
    /// assert_eq!(program.read::<u32>(second, &store)?, [7, 8, 9]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn slice_rows(&mut self, x: Var, slice: usize, of: usize) -> Result<Var> {
        Ok(self.push(SliceRows { slice, of, counted: true }, &[x])?[1])
    }
    /// Appends [`SliceRows`] with the rows of `like`, which is such a slice of another value with the rows of
    /// `x`.
    pub(in crate::ops) fn slice_like(&mut self, x: Var, like: Var, slice: usize, of: usize) -> Result<Var> {
        self.push1(SliceRows { slice, of, counted: false }, &[x, like])
    }
}

/// Returns the first row of a slice of `rows` rows.
pub(in crate::ops) fn first_row(rows: usize, slice: usize, of: usize) -> usize {
    rows * slice / of
}

impl SliceRows {
    fn copy<T: Element>(&self, io: &Io<'_>) {
        let (x, d) = (io.input::<T>(0), io.cols(0));
        let [first, end] = [self.slice, self.slice + 1].map(|slice| first_row(io.rows(0), slice, self.of));
        let out = io.out::<T>(usize::from(self.counted));
        let rows = if self.counted { end - first } else { (end - first).min(io.out_rows(0)) };
        out[..rows * d].copy_from_slice(&x[first * d..][..rows * d]);
        if self.counted {
            io.out::<u32>(0)[0] = rows as u32;
        }
    }
}

impl Op for SliceRows {
    const NAME: &'static str = "slice_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x, like? -> count?, out";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "like" => !self.counted,
            _ => self.counted,
        })
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if self.counted { 1 } else { 2 })?;
        let x = ins[0];
        ensure!(Self::NAME, matches!(x.dtype, DType::F32 | DType::U32), "x is {x}, want F32 or U32");
        ensure!(Self::NAME, self.slice < self.of, "slice {} of {}", self.slice, self.of);
        countable(Self::NAME, "slices", self.of)?;
        if let Some(like) = ins.get(1) {
            return Ok(vec![Spec { rows: like.rows, ..x }.into()]);
        }
        let rows = Rows::fixed(x.rows.capacity.min(x.rows.capacity / self.of + 1));
        Ok(vec![Spec::count().into(), Out::counted_by(Spec { rows, ..x }, 0)])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::U32 => self.copy::<u32>(io),
            _ => self.copy::<R>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let out = usize::from(self.counted);
        let count = if self.counted { on.needed(0) } else { std::ptr::null_mut() };
        let (d, grid) = (on.cols(0), Grid::items(on.out_cap(out) * on.cols(0) as usize));
        let (x, y, slice, of) = (on.words(0), on.out_words(out), self.slice as u32, self.of as u32);
        launch!(k, on, slice_rows[grid]; x, y, count, on.rows(0), on.out_cap(out) as u32, d, slice, of)
    }
}

/// `[rows, columns, slices]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 1], &[0, 3, 2], &[7, 5, 3], &[2, 4, 5], &[700, 1, 4]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_500, 1, 4]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, list) = (c.real(dims[0], dims[1]), c.ids_below(dims[0], 1_000));
    let mut outs = Vec::new();
    for slice in 0..dims[2] {
        let part = c.tape.slice_rows(list, slice, dims[2])?;
        outs.extend([part, c.tape.slice_like(x, part, slice, dims[2])?]);
    }
    Ok(Built::new(&outs, &[]))
}
