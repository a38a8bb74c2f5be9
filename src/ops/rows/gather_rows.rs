//! `out[i k + j, :] = table[index[i, j], :]`, for one table or several
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `index` | `[n, k]` u32 below `v`, or [`NONE`] | row of each `table`; mostly `k = 1` |
//! | `tables` | 1 to 8, `[v, d]` of any type and width | one row per node, or per event |
//! | outs | `[n k, d]` as their tables; f32 if it is bf16 or f16 | zeros where the index is `NONE` |
//!
//! Backward: `dtable = scatter_add_rows(dout, index)`; a table stored in 16 bits has no gradient, because no
//! learned value is stored that way. An index outside the tables is a fault.
//! Source: dispatch through Psi, Sven, Algorithm 2.
use super::*;
use crate::runtime::{
    cuda::abi,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct GatherRows;

impl Tape {
    /// Appends [`GatherRows`] and returns rows of `table`, `[v, d]`: row `i k + j` of the result, `[n k, d]`,
    /// is row `index[i, j]` of the table, or zeros if that is [`NONE`].
    ///
    /// # Errors
    /// `Shape` if `index` is not u32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let table = tape.input(&mut store, "table", Spec::real(Rows::fixed(3), 1), &[10.0f32, 11.0, 12.0])?;
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(3), 1), &[2u32, 0, NONE])?;
    /// let rows = tape.gather_rows(table, index)?;
    /// let mut program = Program::new(&tape, &[rows], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(rows, &store)?, [12.0, 10.0, 0.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gather_rows(&mut self, table: Var, index: Var) -> Result<Var> {
        self.push1(GatherRows, &[index, table])
    }
    /// Appends [`GatherRows`] for several tables of `v` rows, and returns the rows of each. One kernel
    /// gathers from up to 8 tables.
    ///
    /// # Errors
    /// `Shape` if `index` is not u32, or if the tables differ in their number of rows.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(2), 1), &[10.0f32, 11.0])?;
    /// let b = tape.input(&mut store, "b", Spec::ids(Rows::fixed(2), 1), &[5u32, 6])?;
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let rows = tape.gather_all_rows(&[a, b], index)?;
    /// let mut program = Program::new(&tape, &rows, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(rows[0], &store)?, [11.0]);
    /// assert_eq!(program.read::<u32>(rows[1], &store)?, [6]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn gather_all_rows(&mut self, tables: &[Var], index: Var) -> Result<Vec<Var>> {
        let mut rows = Vec::with_capacity(tables.len());
        for tables in tables.chunks(abi::Tables::MOST) {
            let ins: Vec<Var> = std::iter::once(index).chain(tables.iter().copied()).collect();
            rows.extend(self.push(GatherRows, &ins)?);
        }
        Ok(rows)
    }
}

impl GatherRows {
    /// Gathers the rows of output `k`, of `R`, from a table stored as `T`.
    fn gather<R: Element, T: Stored<R>>(&self, io: &Io<'_>, k: usize) {
        let at = at!(table) + k;
        let (d, table, index) = (io.cols(at), io.input::<T>(at), io.input::<u32>(at!(index)));
        if d == 0 {
            return;
        }
        let size = team::piece(index.len(), 128);
        io.out::<R>(k).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, out)| {
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
    const SIGNATURE: &'static str = "index [n, k] ids, {table} -> out";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(2, at!(table) + abi::Tables::MOST))?;
        let (index, tables) = (&ins[at!(index)], &ins[at!(table)..]);
        signature::infer(self, ins)?;
        let rows = index.rows.times(index.cols);
        countable(Self::NAME, "rows", rows.capacity)?;
        for table in tables {
            let first = &tables[0];
            ensure!(Self::NAME, table.rows == first.rows, "tables are {first} and {table}");
        }
        Ok(tables.iter().map(|table| Spec { dtype: table.dtype.widened(), rows, ..*table }.into()).collect())
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let moved = |(table, out): (&Spec, &Spec)| out.len() * (table.dtype.size(Precision::F32) + 4);
        let moved: usize = ins[at!(table)..].iter().zip(outs).map(moved).sum();
        Cost { bytes: moved + 4 * ins[at!(index)].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for k in (0..io.inputs() - at!(table)).filter(|&k| io.wanted(k)) {
            match io.spec(at!(table) + k).dtype {
                DType::U32 => self.gather::<u32, u32>(io, k),
                DType::I64 => self.gather::<i64, i64>(io, k),
                dtype => by_storage!(dtype, R, self.gather(io, k)),
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let wanted = (0..on.inputs() - at!(table)).filter(|&k| on.wanted(k));
        let tables = abi::Tables::new(wanted.map(|k| {
            let (at, spec) = (at!(table) + k, on.spec(at!(table) + k));
            (spec.dtype, spec.cols, [on.address(at), on.out_words(k) as u64])
        }));
        let grid = Grid::warps(on.out_cap(0));
        let (index, rows, from) = (on.input(at!(index)), on.out_rows(0), on.rows(at!(table)));
        launch!(k, on, gather_rows[grid]; tables, index, rows, from, on.status())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let index = node.ins[at!(index)];
        let (mut dins, mut lists) = (vec![None], None);
        for (&table, dout) in node.ins[at!(table)..].iter().zip(douts) {
            let Spec { dtype, rows, .. } = t.spec(table);
            let Some(dout) = dout.filter(|_| !dtype.is_half()) else {
                dins.push(None);
                continue;
            };
            // All tables have the same rows.
            let lists = match lists {
                Some(lists) => lists,
                None => *lists.insert(t.row_lists(index, rows)?),
            };
            dins.push(Some(t.scatter_add_listed(dout, index, rows, lists)?));
        }
        Ok(dins)
    }
}

/// `[v, n, d]`: one element; narrow rows; widths that no vector divides; no rows or columns. Rows repeat, and
/// the last of several indices is `NONE`. A fourth number is the index of the table's storage type in
/// [`StoredAs::ALL`], a fifth one the columns of the index. Times and ids are gathered by the same indices,
/// and the ids by an op of their own.
pub(in crate::ops) const CASES: &[&[usize]] = &[
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
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[700, 1_800, 100], &[700, 1_800, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut index: Vec<u32> = (0..dims[1]).map(|_| c.below(dims[0]) as u32).collect();
    if let [_, .., last] = index.as_mut_slice() {
        *last = NONE;
    }
    let stored_as = StoredAs::ALL[dims.get(3).copied().unwrap_or(0)];
    let columns = dims.get(4).copied().unwrap_or(1);
    let (table, index) = (c.stored(dims[0], dims[2], stored_as), c.ids(&index, columns));
    let times = c.times(&(0..dims[0] as i64).map(|i| i << 40).collect::<Vec<_>>());
    let ids: Vec<u32> = (0..2 * dims[0] as u32).collect();
    let ids = c.ids(&ids, 2);
    let mut outs = c.tape.gather_all_rows(&[times, table, ids], index)?;
    outs.push(c.tape.gather_rows(ids, index)?);
    Ok(Built::new(&outs, if stored_as == StoredAs::F32 { std::slice::from_ref(&table) } else { &[] }))
}
