//! `out[i, :] = x[i, :]` for the first `n` rows: a view, unless `x` is a stored value. The gradient of `x` is as short as that
//! of `out`; where others add up to it, it is added to their first rows, else padded with zeros ([`PadRows`]).
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | |
//! | out | `[n, d]` f32, `n <= m` | the roots come first among the unique nodes: work that concerns them alone |
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct PrefixRows {
    rows: Rows,
}
/// `dx[i, :] = base[i, :] + dy[i, :]`, where `dy` and base have such a row.
#[derive(Debug)]
pub struct PadRows {
    /// Whether there is a base; else the second input is an operand for its rows only.
    pub(super) onto: bool,
}

impl Tape {
    /// Appends [`PrefixRows`]: the first `rows` rows of `x`.
    ///
    /// # Errors
    /// `Shape` when `x` has fewer.
    pub fn prefix_rows(&mut self, x: Var, rows: Rows) -> Result<Var> {
        match rows.live {
            Some(l) => self.push1(PrefixRows { rows }, &[x, l.var]),
            None => self.push1(PrefixRows { rows }, &[x]),
        }
    }
}

/// Both directions: rows of the first input, added to those of `base` where there is one.
fn copy_first(k: &Kernels, on: &Launch<'_>, base: *const f32) -> Result<()> {
    let (x, out, d) = (on.input(0), on.out(0), on.cols(0));
    // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
    unsafe {
        k.prefix_rows(
            on,
            Grid::items(on.out_cap(0) * d as usize),
            x,
            base,
            out,
            on.rows(0),
            on.out_rows(0),
            d,
        )
    }
}

/// What the first input holds, as it lies, into the output: its rows may be other ones.
pub(super) fn copy_words(k: &Kernels, on: &Launch<'_>) -> Result<()> {
    let (x, out, d, rows) = (on.input(0), on.out(0), on.cols(0), on.rows(0));
    // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
    unsafe { k.prefix_rows(on, Grid::items(on.spec(0).len()), x, std::ptr::null(), out, rows, rows, d) }
}

impl Op for PrefixRows {
    const NAME: &'static str = "prefix_rows";
    const KIND: OpKind = OpKind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 1 + usize::from(self.rows.live.is_some()))?;
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        if let Some(count) = ins.get(1) {
            ensure!(Self::NAME, *count == Spec::count(), "count is {count}, want {}", Spec::count());
        }
        ensure!(
            Self::NAME,
            self.rows.capacity <= ins[0].rows.capacity,
            "{} rows of {}",
            self.rows.capacity,
            ins[0]
        );
        Ok(vec![Spec { rows: self.rows, ..ins[0] }.into()])
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len(), flops: 0 }
    }
    fn is_view(&self) -> bool {
        true
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, out) = (io.input::<R>(0), io.out::<R>(0));
        // Zeros come of rows that are not live in x.
        let (copied, beyond) = out.split_at_mut(x.len().min(out.len()));
        copied.copy_from_slice(&x[..copied.len()]);
        beyond.fill(R::ZERO);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        copy_first(k, on, std::ptr::null())
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        let [dy, whole] = [ins[0], ins[1]];
        typed(Self::NAME, "dy", &dy, DType::F32)?;
        typed(Self::NAME, "base", &whole, DType::F32)?;
        ensure!(
            Self::NAME,
            dy.cols == whole.cols && dy.rows.capacity <= whole.rows.capacity,
            "{dy} rows of {whole}"
        );
        Ok(vec![whole.into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let base = if self.onto { outs[0].len() } else { 0 };
        Cost { bytes: 4 * (ins[0].len() + outs[0].len() + base), flops: base.min(ins[0].len()) }
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
        copy_first(k, on, if self.onto { on.input(1) } else { std::ptr::null() })
    }
}

/// `[m, n, d, whether all rows are an output too]`, whose gradient the prefix's is then added to.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[5, 0, 3, 1], &[9, 4, 7, 0], &[9, 4, 7, 1], &[6, 6, 2, 1], &[40, 25, 8, 1]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 700, 100, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, count) = (c.real(dims[0], dims[2]), c.count(dims[1]));
    // A stored value is copied, a value of the step is not.
    let all = c.tape.add(x, x)?;
    let (shown, copied) = (Rows::live(dims[0], count), Rows::fixed(dims[1]));
    let (shown, copied) = (c.tape.prefix_rows(all, shown)?, c.tape.prefix_rows(x, copied)?);
    let outs = [shown, copied, all];
    Ok(Built::new(&outs[..2 + dims[3]], &[x]))
}
