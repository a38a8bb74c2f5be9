//! `out[i, :] = table[index[i], :]`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` f32 or u32 | one row per node, or per event |
//! | `index` | `[n]` u32 below `v`, or [`NONE`] | row of `table` |
//! | out | `[n, d]` as `table` | zeros where the index is `NONE` |
//!
//! Backward: `dtable = scatter_add_rows(dout, index)`. An index outside the table is a fault.
//! Source: dispatch through Psi, Sven, Algorithm 2.
use super::*;
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct GatherRows;

impl Tape {
    /// Appends [`GatherRows`].
    ///
    /// # Errors
    /// `Shape` when `index` is not u32 `[n]`, or `table` holds times.
    pub fn gather_rows(&mut self, table: Var, index: Var) -> Result<Var> {
        self.push1(GatherRows, &[table, index])
    }
}

impl GatherRows {
    fn gather<T: Element>(&self, io: &Io<'_>) {
        let (d, table, index) = (io.cols(0), io.input::<T>(0), io.input::<u32>(1));
        if d == 0 {
            return;
        }
        let size = team::piece(index.len(), 128);
        io.out::<T>(0).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, out)| {
            for (i, out) in (piece * size..).zip(out.chunks_exact_mut(d)) {
                match io.row_of(i, index[i], table.len() / d) {
                    Some(r) => out.copy_from_slice(&table[r * d..][..d]),
                    None => out.fill(T::zeroed()),
                }
            }
        });
    }
}

impl Op for GatherRows {
    const NAME: &'static str = "gather_rows";
    const KIND: Kind = Kind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        typed(Self::NAME, "index", &ins[1], DType::U32)?;
        ensure!(Self::NAME, ins[1].cols == 1, "index is {}, want one column", ins[1]);
        ensure!(Self::NAME, ins[0].dtype != DType::I64, "table is {}, want F32 or U32", ins[0]);
        Ok(vec![Spec { rows: ins[1].rows, ..ins[0] }.into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (2 * outs[0].len() + ins[1].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::U32 => self.gather::<u32>(io),
            _ => self.gather::<R>(io),
        }
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rows, from, d) = (on.out_rows(0), on.rows(0), on.cols(0));
        k.gather_rows(
            on,
            Grid::warps(on.out_cap(0)),
            on.words(0),
            on.input(1),
            on.out_words(0),
            rows,
            from,
            d,
            on.status(),
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let rows = t.spec(node.ins[0]).rows;
        Ok(vec![douts[0].map(|d| t.scatter_add_rows(d, node.ins[1], rows)).transpose()?, None])
    }
}

/// `[v, n, d]`: one element; a narrow row; a ragged tail; nothing. Rows repeat, and the last index is `NONE`.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[5, 9, 3], &[7, 33, 100], &[64, 300, 128], &[3, 0, 4], &[3, 5, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[700, 1_800, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut index: Vec<u32> = (0..dims[1]).map(|_| c.below(dims[0]) as u32).collect();
    if let [_, .., last] = index.as_mut_slice() {
        *last = NONE;
    }
    let (table, index) = (c.real(dims[0], dims[2]), c.ids(&index, 1));
    let out = c.tape.gather_rows(table, index)?;
    Ok(Built::new(&[out], &[table]))
}
