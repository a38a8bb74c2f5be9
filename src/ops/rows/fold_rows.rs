//! `out[i, j d + c] = x[i k + j, c]`: folds every `k` rows into one; [`UnfoldRows`] is the inverse. Both are
//! views of `x`, because its elements keep their order; only a stored `x` is copied.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n k, d]` f32 | for example the logits of `k` pairs per event |
//! | out | `[n, k d]` f32 | one row per event |
//!
//! Backward: the unfolded gradient, also a view.
use super::{prefix_rows::copy_words, *};

/// See the [module](self).
#[derive(Debug)]
pub struct FoldRows {
    k: usize,
}
/// `out[i k + j, c] = x[i, j d + c]`: splits every row into `k` rows.
#[derive(Debug)]
pub struct UnfoldRows {
    k: usize,
}

impl Tape {
    /// Appends [`FoldRows`], which folds every `k` rows into one.
    ///
    /// # Errors
    /// `Shape` if `k` is 0, or does not divide the capacity of `x` or its live rows per unit of their count.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(4), 1), &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let pairs = tape.fold_rows(x, 2)?;
    /// assert_eq!(tape.spec(pairs), Spec::real(Rows::fixed(2), 2));
    /// let mut program = Program::new(&tape, &[pairs], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(pairs, &store)?, [1.0, 2.0, 3.0, 4.0]); // the same elements
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn fold_rows(&mut self, x: Var, k: usize) -> Result<Var> {
        self.push1(FoldRows { k }, &[x])
    }
    /// Appends [`UnfoldRows`], which splits every row into `k` rows.
    ///
    /// # Errors
    /// `Shape` if `k` is 0 or does not divide the width of `x`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(2), 2), &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let single = tape.unfold_rows(x, 2)?;
    /// assert_eq!(tape.spec(single), Spec::real(Rows::fixed(4), 1));
    /// let mut program = Program::new(&tape, &[single], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(single, &store)?, [1.0, 2.0, 3.0, 4.0]); // the same elements
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn unfold_rows(&mut self, x: Var, k: usize) -> Result<Var> {
        self.push1(UnfoldRows { k }, &[x])
    }
}

/// Copies the input to the output, in either direction; called only if the output is not a view.
fn copy<R: Real>(io: &Io<'_>) {
    io.out::<R>(0).copy_from_slice(io.input::<R>(0));
}

impl Op for FoldRows {
    const NAME: &'static str = "fold_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x [n k, d] -> out [n, k d]";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.k))]
    }
    fn is_view(&self) -> bool {
        true
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        copy::<R>(io);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { copy_words(k, on) }
    }
    fn vjp(&self, t: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|d| t.unfold_rows(d, self.k)).transpose()?])
    }
}

impl Op for UnfoldRows {
    const NAME: &'static str = "unfold_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x [n, k d] -> out [n k, d]";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.k))]
    }
    fn is_view(&self) -> bool {
        true
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        copy::<R>(io);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { copy_words(k, on) }
    }
    fn vjp(&self, t: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|d| t.fold_rows(d, self.k)).transpose()?])
    }
}

/// `[n, k, d]`; `n` of `n + 2` groups are live.
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 1], &[0, 2, 3], &[5, 2, 1], &[7, 3, 4], &[40, 2, 33]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 2, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, d] = [dims[0], dims[1], dims[2]];
    let rows = Rows::live(n + 2, c.count(n));
    let values: Vec<f32> = (0..(n + 2) * k * d).map(|_| c.uniform()).collect();
    let x = c.values(Spec::real(rows.times(k), d), &values);
    // A stored value is copied; of a computed value the result is a view.
    let computed = c.tape.add(x, x)?;
    let (copied, view) = (c.tape.fold_rows(x, k)?, c.tape.fold_rows(computed, k)?);
    let back = c.tape.unfold_rows(copied, k)?;
    let table = c.values(Spec::real(rows, k * d), &values);
    let unfolded = c.tape.unfold_rows(table, k)?;
    Ok(Built::new(&[copied, view, back, unfolded], &[x, table]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::Program;

    #[test]
    fn folding_and_unfolding_computed_rows_needs_neither_memory_nor_a_kernel() {
        let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let program = |folded: bool| -> Result<(Vec<f32>, Vec<&'static str>, usize)> {
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let x = store.values("x", Spec::real(Rows::fixed(6), 2), &values)?;
            let x = t.stored(x)?;
            let mut y = t.add(x, x)?;
            if folded {
                y = t.fold_rows(y, 3)?;
                let rows = t.prefix_rows(y, Rows::fixed(1))?;
                y = t.unfold_rows(rows, 6)?;
            }
            let z = t.add(y, y)?;
            let mut program = Program::new(&t, &[z], Precision::F32, Backend::Cpu)?;
            program.run(&mut store)?;
            let ran = program.nodes().map(|n| n.op.name()).collect();
            Ok((program.read::<f32>(z, &store)?.to_vec(), ran, program.arena_bytes()))
        };
        let (whole, ran, bytes) = program(false).unwrap();
        let (part, folded_ran, folded_bytes) = program(true).unwrap();
        assert_eq!(part, whole[..6]);
        assert_eq!((ran, bytes), (folded_ran, folded_bytes));
    }

    #[test]
    fn rows_that_do_not_form_whole_groups_are_refused() {
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let count = store.values("count", Spec::count(), &[2u32]).unwrap();
        let count = t.stored(count).unwrap();
        let mut value = |t: &mut Tape, rows, cols| {
            let id = store.zeros("x", Spec::real(rows, cols)).unwrap();
            t.stored(id).unwrap()
        };
        let seven = value(&mut t, Rows::fixed(7), 6);
        assert!(t.fold_rows(seven, 2).is_err() && t.fold_rows(seven, 0).is_err());
        assert!(t.unfold_rows(seven, 4).is_err() && t.unfold_rows(seven, 0).is_err());
        // The capacity is a multiple of 2, but the live rows need not be.
        let live = Rows::live(6, count);
        let uneven = value(&mut t, live, 1);
        assert!(t.fold_rows(uneven, 2).is_err());
        let pairs = value(&mut t, live.times(4), 1);
        let folded = t.fold_rows(pairs, 2).unwrap();
        assert_eq!(t.spec(folded), Spec::real(live.times(2), 2));
    }
}
