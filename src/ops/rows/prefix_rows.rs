//! `out[i, :] = x[i, :]` for the first `n` rows: a view, unless `x` is a stored value
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | |
//! | out | `[n, d]` f32, `n <= m` | the first rows of `x`, such as those of the roots, which come first among the unique nodes |
//!
//! Backward: the gradient of `x` is the gradient of `out`, which has only `n` rows. [`PadRows`] later adds it
//! to the first rows of the other gradients of `x`, or pads it with zeros if there are none. The op that
//! computes the gradient of `out` may do that instead ([`LinearPairInputGrad`]).
use super::{linear_pair::LinearPairInputGrad, *};

/// See the [module](self).
#[derive(Debug)]
pub struct PrefixRows {
    rows: Rows,
}
/// `dx[i, :] = base[i, :] + dy[i, :]`; rows that `dy` does not have count as zeros, and so does an absent
/// base.
#[derive(Debug)]
pub struct PadRows {
    /// Whether the second input is the base; otherwise only its row count is used.
    pub(in crate::ops) onto: bool,
}

impl Tape {
    /// Appends [`PrefixRows`] and returns the first `rows` rows of `x`.
    ///
    /// # Errors
    /// `Shape` if `x` is not f32 or has fewer rows.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(3), 1), &[1.0f32, 2.0, 3.0])?;
    /// let first = tape.prefix_rows(x, Rows::fixed(2))?;
    /// let mut program = Program::new(&tape, &[first], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(first, &store)?, [1.0, 2.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn prefix_rows(&mut self, x: Var, rows: Rows) -> Result<Var> {
        match rows.live {
            Some(l) => self.push1(PrefixRows { rows }, &[x, l.var]),
            None => self.push1(PrefixRows { rows }, &[x]),
        }
    }
}

/// Launches the kernel of both ops: copies the first rows of input 0 to the output, added to `base` unless it
/// is null.
///
/// # Safety
/// As [`Op::launch`].
unsafe fn copy_first(k: &Kernels, on: &Launch<'_>, base: *const f32) -> Result<()> {
    let (x, out, d) = (on.input(0), on.out(0), on.cols(0));
    launch!(
        k, on, prefix_rows[Grid::items(on.out_cap(0) * d as usize)];
        x, base, out, on.rows(0), on.out_rows(0), d
    )
}

/// Launches a copy of the elements of input 0, in order, to the output, whose shape may differ.
///
/// # Safety
/// As [`Op::launch`].
pub(in crate::ops) unsafe fn copy_words(k: &Kernels, on: &Launch<'_>) -> Result<()> {
    let (x, out, d, rows) = (on.input(0), on.out(0), on.cols(0), on.rows(0));
    launch!(k, on, prefix_rows[Grid::items(on.spec(0).len())]; x, std::ptr::null(), out, rows, rows, d)
}

impl Op for PrefixRows {
    const NAME: &'static str = "prefix_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x [m, d], count? [1] ids -> out [n, d]";
    fn sizes(&self) -> Sizes {
        vec![("n", self.rows)]
    }
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.rows.live.is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (x, n) = (ins[0], self.rows.capacity);
        ensure!(Self::NAME, n <= x.rows.capacity, "x is {x}, want at least {n} rows");
        Ok(())
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len(), flops: 0 }
    }
    fn is_view(&self) -> bool {
        true
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, out) = (io.input::<R>(0), io.out::<R>(0));
        // Rows that are not live in x are zeros.
        let (copied, beyond) = out.split_at_mut(x.len().min(out.len()));
        copied.copy_from_slice(&x[..copied.len()]);
        beyond.fill(R::ZERO);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { copy_first(k, on, std::ptr::null()) }
    }
    fn vjp(&self, _: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        dins[0] = douts[0];
        Ok(dins)
    }
}

impl Op for PadRows {
    const NAME: &'static str = "pad_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "dy [n, d], base [m, d] -> out [m, d]";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let [dy, base] = [ins[0], ins[1]];
        let fits = dy.rows.capacity <= base.rows.capacity;
        ensure!(Self::NAME, fits, "dy is {dy}, want at most the rows of base, {base}");
        Ok(())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let base_len = if self.onto { outs[0].len() } else { 0 };
        Cost { bytes: 4 * (ins[0].len() + outs[0].len() + base_len), flops: base_len.min(ins[0].len()) }
    }
    fn fused(&self, t: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        match *ins {
            [dy, base] if self.onto => LinearPairInputGrad::added_to(base, t.maker(dy)?),
            _ => None,
        }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (dy, out) = (io.input::<R>(0), io.out::<R>(0));
        if self.onto {
            out.copy_from_slice(io.input::<R>(1));
        } else {
            out.fill(R::ZERO);
        }
        out.iter_mut().zip(dy).for_each(|(o, &d)| *o += d);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { copy_first(k, on, if self.onto { on.input(1) } else { std::ptr::null() }) }
    }
}

/// `[m, n, d, all rows are an output]`; the gradient of the prefix is added to that of all rows if these are
/// an output.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[5, 0, 3, 1], &[9, 4, 7, 0], &[9, 4, 7, 1], &[6, 6, 2, 1], &[40, 25, 8, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_487, 700, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, count) = (c.real(dims[0], dims[2]), c.count(dims[1]));
    // A prefix of a step's value is a view, a prefix of a stored value is a copy.
    let all_rows = c.tape.add(x, x)?;
    let view = c.tape.prefix_rows(all_rows, Rows::live(dims[0], count))?;
    let copy = c.tape.prefix_rows(x, Rows::fixed(dims[1]))?;
    let outs = [view, copy, all_rows];
    Ok(Built::new(&outs[..2 + dims[3]], &[x]))
}
