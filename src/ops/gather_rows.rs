//! `out[i k + j, :] = table[index[i, j], :]`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` of any type | one row per node, or per event |
//! | `index` | `[n, k]` u32 below `v`, or [`NONE`] | row of `table`; mostly `k = 1` |
//! | out | `[n k, d]` as `table`; f32 if it is bf16 or f16 | zeros where the index is `NONE` |
//!
//! Backward: `dtable = scatter_add_rows(dout, index)`; a table stored in 16 bits has no gradient, because no
//! learned value is stored that way. An index outside the table is a fault.
//! Source: dispatch through Psi, Sven, Algorithm 2.
use super::*;
use crate::runtime::team::{self, InParallel};

/// See the [module](self).
#[derive(Debug)]
pub struct GatherRows;

impl Tape {
    /// Appends [`GatherRows`] and returns rows of `table`, `[v, d]`: row `i k + j` of the result, `[n k, d]`,
    /// is row `index[i, j]` of the table, or zeros if that is [`NONE`].
    ///
    /// # Errors
    /// `Shape` if `index` is not u32, or if `table` is i64.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let table = tape.input(&mut store, "table", Spec::real(Rows::fixed(3), 1), &[10.0f32, 11.0, 12.0])?;
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(3), 1), &[2u32, 0, NONE])?;
    /// let rows = tape.gather_rows(table, index)?;
    /// let mut program = Program::new(&tape, &[rows], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(rows, &store)?, [12.0, 10.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gather_rows(&mut self, table: Var, index: Var) -> Result<Var> {
        self.push1(GatherRows, &[table, index])
    }
}

impl GatherRows {
    /// Gathers rows of a table stored as `T` into an output of `R`.
    fn gather<R: Element, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, table, index) = (io.cols(0), io.input::<T>(0), io.input::<u32>(1));
        if d == 0 {
            return;
        }
        let size = team::piece(index.len(), 128);
        io.out::<R>(0).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, out)| {
            for (i, out) in (piece * size..).zip(out.chunks_exact_mut(d)) {
                match io.row_of(i, index[i], table.len() / d) {
                    Some(r) => T::real(&table[r * d..][..d], out),
                    None => out.fill(R::zeroed()),
                }
            }
        });
    }
}

impl Op for GatherRows {
    const NAME: &'static str = "gather_rows";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        typed(Self::NAME, "index", &ins[1], DType::U32)?;
        let rows = ins[1].rows.times(ins[1].cols);
        countable(Self::NAME, "rows", rows.capacity)?;
        Ok(vec![Spec { dtype: ins[0].dtype.widened(), rows, ..ins[0] }.into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let read = outs[0].len() * ins[0].dtype.size(Precision::F32);
        Cost { bytes: read + 4 * (outs[0].len() + ins[1].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::U32 => self.gather::<u32, u32>(io),
            DType::I64 => self.gather::<i64, i64>(io),
            dtype => by_kept!(dtype, R, self.gather(io)),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rows, from, d) = (on.out_rows(0), on.rows(0), on.cols(0));
        let words = d * (on.spec(0).dtype.size(Precision::F32) / size_of::<u32>()) as u32;
        if on.spec(0).dtype.is_half() {
            let (table, kind) = on.halves(0);
            let grid = Grid::warps(on.out_cap(0));
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            return unsafe {
                k.gather_half_rows(on, grid, table, kind, on.input(1), on.out(0), rows, from, d, on.status())
            };
        }
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.gather_rows(
                on,
                Grid::warps(on.out_cap(0)),
                on.words(0),
                on.input(1),
                on.out_words(0),
                rows,
                from,
                words,
                on.status(),
            )
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Spec { dtype, rows, .. } = t.spec(node.ins[0]);
        if dtype.is_half() {
            return Ok(vec![None, None]);
        }
        Ok(vec![douts[0].map(|d| t.scatter_add_rows(d, node.ins[1], rows)).transpose()?, None])
    }
}

/// `[v, n, d]`: one element; narrow rows; widths that no vector divides; no rows or columns. Rows repeat, and
/// the last of several indices is `NONE`. A fourth number is the index of the table's storage type in
/// [`StoredAs::ALL`], a fifth one the columns of the index. A second output gathers times.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1],
    &[5, 9, 3],
    &[7, 33, 100],
    &[64, 300, 128],
    &[3, 0, 4],
    &[3, 5, 0],
    &[1, 1, 1, 1],
    &[7, 33, 100, 1],
    &[5, 300, 37, 1],
    &[3, 5, 0, 1],
    &[7, 33, 100, 2],
    &[5, 300, 37, 2],
    &[3, 0, 4, 2],
    &[7, 12, 5, 0, 4],
    &[7, 12, 5, 1, 3],
];
pub(super) const BENCH: &[&[usize]] = &[&[700, 1_800, 100], &[700, 1_800, 100, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut index: Vec<u32> = (0..dims[1]).map(|_| c.below(dims[0]) as u32).collect();
    if let [_, .., last] = index.as_mut_slice() {
        *last = NONE;
    }
    let stored_as = StoredAs::ALL[dims.get(3).copied().unwrap_or(0)];
    let columns = dims.get(4).copied().unwrap_or(1);
    let (table, index) = (c.kept(dims[0], dims[2], stored_as), c.ids(&index, columns));
    let times = c.times(&(0..dims[0] as i64).map(|i| i << 40).collect::<Vec<_>>());
    let outs = [c.tape.gather_rows(table, index)?, c.tape.gather_rows(times, index)?];
    Ok(Built::new(&outs, if stored_as == StoredAs::F32 { std::slice::from_ref(&table) } else { &[] }))
}
