//! `out[i, :] = x[i, :]` for the first `n` rows; the backward pads with zeros.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | |
//! | out | `[n, d]` f32, `n <= m` | the roots come first among the distinct nodes: work that concerns them alone |
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct PrefixRows {
    rows: Rows,
}
/// Rows of `dy`, then zeros, to the rows of `x`.
#[derive(Debug)]
pub struct PadRows;

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

/// Both directions: rows of the input, zeros after its last.
fn copy_first(k: &Kernels, on: &Launch<'_>) -> Result<()> {
    let (x, out, d) = (on.input(0), on.out(0), on.cols(0));
    k.prefix_rows(on, Grid::items(on.out_cap(0) * d as usize), x, out, on.rows(0), on.out_rows(0), d)
}

impl Op for PrefixRows {
    const NAME: &'static str = "prefix_rows";
    const KIND: Kind = Kind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        ensure!(Self::NAME, self.rows.cap <= ins[0].rows.cap, "{} rows of {}", self.rows.cap, ins[0]);
        Ok(vec![Spec { rows: self.rows, ..ins[0] }.into()])
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let out = io.out::<R>(0);
        out.copy_from_slice(&io.input::<R>(0)[..out.len()]);
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        copy_first(k, on)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        // `x` is an operand for its rows only.
        dins[0] = douts[0].map(|d| t.push1(PadRows, &[d, node.ins[0]])).transpose()?;
        Ok(dins)
    }
}

impl Op for PadRows {
    const NAME: &'static str = "pad_rows";
    const KIND: Kind = Kind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Ok(vec![ins[1].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (ins[0].len() + outs[0].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let dy = io.input::<R>(0);
        let (head, tail) = io.out::<R>(0).split_at_mut(dy.len());
        head.copy_from_slice(dy);
        tail.fill(R::ZERO);
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        copy_first(k, on)
    }
}

/// `[m, n, d]`
pub(super) const CASES: &[&[usize]] = &[&[1, 1, 1], &[5, 0, 3], &[9, 4, 7], &[6, 6, 2], &[40, 25, 8]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 700, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, count) = (c.real(dims[0], dims[2]), c.count(dims[1]));
    let out = c.tape.prefix_rows(x, Rows::live(dims[0], count))?;
    Ok(Built::new(&[out], &[x]))
}
