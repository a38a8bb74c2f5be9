//! Splits rows into the first few and the rest, and puts two such parts together again
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[<= n, d]` f32 or u32 | rows |
//! | `count` | `[1]` u32 | number of the first rows; more than there are means all |
//! | first, rest | `[<= n, d]` as `x`, each with its number of rows `[1]` u32 | rows up to `count`, and those from there on |
//! | `like` | `[<= n, ...]` | any value with the rows of the whole |
//! | joined | `[<= n, d]` f32 or i64 | two parts, one after the other |
//!
//! Backward: the gradients of the parts are the parts of the gradient. Parts with fewer rows than the whole
//! are a fault.
//! Source: the memory operations of PipeTGL, section 4.1: those of the positive roots, which come first among
//! the unique nodes, are apart from the others.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct SplitRows {
    /// Whether the parts are counted; else there is a value with the rows of each.
    counted: bool,
}

/// Puts two parts together: see the [module](self).
#[derive(Debug)]
pub struct JoinSplit;

/// Two parts of some rows.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// The first rows.
    pub first: Var,
    /// The others.
    pub rest: Var,
}

impl Tape {
    /// Appends [`SplitRows`]: the first `count` rows of `x`, f32 or u32 `[<= n, d]`, and the others; `count`
    /// is u32 `[1]`.
    ///
    /// # Errors
    /// `Shape` if types or shapes are not those of the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(3), 1), &[5.0f32, 6.0, 7.0])?;
    /// let count = tape.input(&mut store, "count", Spec::count(), &[2u32])?;
    /// let parts = tape.split_rows(x, count)?;
    /// let joined = tape.join_split(x, parts)?;
    /// let keep = [parts.first, parts.rest, joined];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(parts.first, &store)?, [5.0, 6.0]);
    /// assert_eq!(program.read::<f32>(parts.rest, &store)?, [7.0]);
    /// assert_eq!(program.read::<f32>(joined, &store)?, [5.0, 6.0, 7.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn split_rows(&mut self, x: Var, count: Var) -> Result<Split> {
        let outs = self.push(SplitRows { counted: true }, &[x, count])?;
        Ok(Split { first: outs[2], rest: outs[3] })
    }
    /// Appends [`JoinSplit`], which joins two parts, f32 or i64 `[<= n, d]`, to a value with the rows of
    /// `like`.
    ///
    /// # Errors
    /// `Shape` if the parts differ in type or width.
    ///
    /// # Examples
    /// As [`split_rows`](Self::split_rows).
    pub fn join_split(&mut self, like: Var, parts: Split) -> Result<Var> {
        self.push1(JoinSplit, &[like, parts.first, parts.rest])
    }
}

impl SplitRows {
    /// Position of the first part among the outputs.
    fn first(&self) -> usize {
        if self.counted { 2 } else { 0 }
    }
    fn split<T: Element>(&self, io: &Io<'_>) {
        let (x, d, n, first) = (io.input::<T>(0), io.cols(0), io.rows(0), self.first());
        let count = match self.counted {
            true => (io.input::<u32>(1)[0] as usize).min(n),
            false => io.rows(1).min(n),
        };
        io.out::<T>(first)[..count * d].copy_from_slice(&x[..count * d]);
        let rest = if self.counted { n - count } else { io.rows(2).min(n - count) };
        io.out::<T>(first + 1)[..rest * d].copy_from_slice(&x[count * d..][..rest * d]);
        if self.counted {
            io.out::<u32>(0)[0] = count as u32;
            io.out::<u32>(1)[0] = rest as u32;
        }
    }
}

impl Op for SplitRows {
    const NAME: &'static str = "split_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "x, count?, first?, rest? ->";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "count" => self.counted,
            _ => !self.counted,
        })
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, if self.counted { 2 } else { 3 })?;
        let x = ins[0];
        ensure!(Self::NAME, matches!(x.dtype, DType::F32 | DType::U32), "x is {x}, want F32 or U32");
        if !self.counted {
            return Ok(ins[1..].iter().map(|like| Spec { rows: like.rows, ..x }.into()).collect());
        }
        ensure!(Self::NAME, ins[1] == Spec::count(), "count is {}, want {}", ins[1], Spec::count());
        let part = Spec { rows: Rows::fixed(x.rows.capacity), ..x };
        let count = || Spec::count().into();
        Ok(vec![count(), count(), Out::counted_by(part, 0), Out::counted_by(part, 1)])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::U32 => self.split::<u32>(io),
            _ => self.split::<R>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (first, d) = (self.first(), on.cols(0));
        let counts = |i: usize| if self.counted { on.needed(i) } else { std::ptr::null_mut() };
        let (count, rows) = match self.counted {
            true => (on.input(1), on.rows(0)),
            false => (std::ptr::null(), on.rows(1)),
        };
        let grid = Grid::items(on.capacity(0) * d as usize);
        let rest = if self.counted { on.rows(0) } else { on.rows(2) };
        launch!(
            k, on, split_rows[grid];
            on.words(0), count, on.out_words(first), on.out_words(first + 1), counts(0), counts(1),
            on.rows(0), rows, rest, d
        )
    }
}

impl JoinSplit {
    fn join<T: Element>(&self, io: &Io<'_>) {
        let (out, d, n) = (io.out::<T>(0), io.out_cols(0), io.rows(0));
        let [first, rest] = [io.rows(1), io.rows(2)];
        if first + rest != n {
            io.fault(first, Fault::out_of_range(rest));
            return;
        }
        out[..first * d].copy_from_slice(io.input::<T>(1));
        out[first * d..n * d].copy_from_slice(io.input::<T>(2));
    }
}

impl Op for JoinSplit {
    const NAME: &'static str = "join_split";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "like, first, rest -> joined";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 3)?;
        let [first, rest] = [ins[1], ins[2]];
        let known = matches!(first.dtype, DType::F32 | DType::I64);
        ensure!(Self::NAME, known, "first is {first}, want F32 or I64");
        let same = (first.dtype, first.cols) == (rest.dtype, rest.cols);
        ensure!(Self::NAME, same, "first is {first}, and rest is {rest}");
        Ok(vec![Spec { rows: ins[0].rows, ..first }.into()])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(1).dtype {
            DType::I64 => self.join::<i64>(io),
            _ => self.join::<R>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let spec = on.spec(1);
        let d = (spec.cols * spec.dtype.size(Precision::F32) / size_of::<u32>()) as u32;
        let grid = Grid::items(on.capacity(0) * d as usize);
        launch!(
            k, on, join_split[grid];
            on.words(1), on.words(2), on.out_words(0), on.rows(0), on.rows(1), on.rows(2), d, on.status()
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dout) = douts[0] else { return Ok(vec![None; 3]) };
        let parts = t.push(SplitRows { counted: false }, &[dout, node.ins[1], node.ins[2]])?;
        Ok(vec![None, Some(parts[0]), Some(parts[1])])
    }
}

/// `[rows, columns, first rows]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[0, 3, 2], &[7, 5, 3], &[7, 5, 0], &[7, 5, 9], &[700, 3, 400], &[5, 0, 2]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[5_000, 100, 1_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, d, first] = dims[..] else { return Err(Error::shape("split_rows", "three numbers")) };
    let (list, count) = (c.ids_below(n, 1_000), c.count(first));
    let split = c.tape.split_rows(list, count)?;
    let (x, [first, rest]) = (c.real(n, d), [first.min(n), n.saturating_sub(first)]);
    let (a, b) = (c.real(first, d), c.real(rest, d));
    let times = |c: &mut CaseBuilder, n: usize| c.times(&(0..n as i64).map(|i| i << 40).collect::<Vec<_>>());
    let (early, late) = (times(c, first), times(c, rest));
    let joined = c.tape.join_split(x, Split { first: a, rest: b })?;
    let times = c.tape.join_split(x, Split { first: early, rest: late })?;
    Ok(Built::new(&[split.first, split.rest, joined, times], &[a, b]))
}
