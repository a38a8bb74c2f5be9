//! `table[index[i], :] = rows[from[i], :]`, in place, for one table or several; `from[i] = i` unless given.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `index` | `[n]` u32 below `v`, unique, or [`NONE`] | row of each `table` |
//! | `from` | `[n]` u32 below `m`, or `NONE`, optional | row of `rows` |
//! | `tables` | 1 to 8, `[v, d]` of any type and width, state | scores by event, losses by batch, memory by node |
//! | `rows` | for each table `[m, d]`, or `[n, d]` without `from`; u32 or i64 as the table, otherwise f32 | rows to write |
//!
//! An index may also refer to *items* of e consecutive rows: a table is `[v e, d]`, its rows `[n e, d]`.
//! Nothing is written if `index` or `from` is `NONE`. An index outside the tables is reported as a
//! fault. A 16-bit table stores rounded numbers ([`StoredAs`]). With this op, scores and losses stay on the
//! device until the end of a pass.
use super::*;
use crate::runtime::cuda::abi;

/// See the [module](self).
#[derive(Debug)]
pub struct WriteRows {
    /// For each table, the number of rows that an index refers to.
    each: Vec<usize>,
    /// Whether `from` is given.
    picked: bool,
}

impl Tape {
    /// Appends [`WriteRows`], which copies row i of `rows`, `[n, d]`, to row `index[i]` of `table`, `[v, d]`,
    /// in place.
    ///
    /// # Errors
    /// `Shape` if types, widths or rows differ, or if the table is read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(2), 1), &[2u32, 0])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(2), 1), &[5.0f32, 6.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(3), 1))?;
    /// let table = tape.stored(table)?;
    /// tape.write_rows(table, index, rows)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(table, &store)?, [6.0, 0.0, 5.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_rows(&mut self, table: Var, index: Var, rows: Var) -> Result<()> {
        self.write_all_rows(&[(table, rows)], index)
    }
    /// Appends [`WriteRows`] for several tables of `v` rows: row i of the rows beside a table, `[n, d]`,
    /// becomes row `index[i]` of the table, in place. One kernel writes to up to 8 tables.
    ///
    /// # Errors
    /// `Shape` if types, widths or rows differ, or if a table is read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(1), 1), &[5.0f32])?;
    /// let [a, b] = ["a", "b"].map(|name| store.zeros(name, Spec::real(Rows::fixed(2), 1)));
    /// let (a, b) = (tape.stored(a?)?, tape.stored(b?)?);
    /// tape.write_all_rows(&[(a, rows), (b, rows)], index)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(a, &store)?, [0.0, 5.0]);
    /// assert_eq!(program.read::<f32>(b, &store)?, [0.0, 5.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_all_rows(&mut self, tables: &[(Var, Var)], index: Var) -> Result<()> {
        let items: Vec<(Var, Var, usize)> = tables.iter().map(|&(table, rows)| (table, rows, 1)).collect();
        self.write_items(&items, index)
    }
    /// Appends [`WriteRows`] for items of several rows, of one table or several, each with its rows and the
    /// number of rows of an item, e: item i of the rows, `[n e, d]`, becomes item `index[i]` of the table,
    /// `[v e, d]`.
    ///
    /// # Errors
    /// As [`write_all_rows`](Self::write_all_rows).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(2), 1), &[5.0f32, 6.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(4), 1))?;
    /// let table = tape.stored(table)?;
    /// tape.write_items(&[(table, rows, 2)], index)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(table, &store)?, [0.0, 0.0, 5.0, 6.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_items(&mut self, tables: &[(Var, Var, usize)], index: Var) -> Result<()> {
        tables.chunks(abi::Tables::MOST).try_for_each(|tables| self.push_write(tables, index, None))
    }
    fn push_write(&mut self, tables: &[(Var, Var, usize)], index: Var, from: Option<Var>) -> Result<()> {
        let mut ins = vec![index];
        ins.extend(from);
        ins.extend(tables.iter().flat_map(|&(table, rows, _)| [table, rows]));
        let each = tables.iter().map(|&(.., each)| each).collect();
        self.push(WriteRows { each, picked: from.is_some() }, &ins).map(drop)
    }
    /// Appends [`WriteRows`] for picked rows: `table[index[i], :] = rows[from[i], :]`.
    ///
    /// # Errors
    /// As [`write_rows`](Self::write_rows).
    ///
    /// # Examples
    /// As [`write_latest`](Self::write_latest), with `phi` as `from`.
    pub fn write_picked(&mut self, table: Var, index: Var, rows: Var, from: Var) -> Result<()> {
        self.push_write(&[(table, rows, 1)], index, Some(from))
    }
    /// Appends [`WriteRows`] for the latest row of each positive root's node:
    /// `table[node[i], :] = rows[phi[i], :]`, with the `rows` of the roots and `(node, phi)` of their
    /// [`unique`] nodes.
    ///
    /// # Errors
    /// `Shape` if widths or rows differ, or if the table is read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(2), 1), &[1u32, 0])?;
    /// let phi = tape.input(&mut store, "phi", Spec::ids(Rows::fixed(2), 1), &[2u32, NONE])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(3), 1), &[5.0f32, 6.0, 7.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(2), 1))?;
    /// let table = tape.stored(table)?;
    /// tape.write_latest(table, (node, phi), rows)?; // root 2 is the latest of node 1
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(table, &store)?, [0.0, 7.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_latest(&mut self, table: Var, (node, phi): (Var, Var), rows: Var) -> Result<()> {
        self.write_picked(table, node, rows, phi)
    }
}

/// Position of the index.
const INDEX: usize = 0;
const FROM: usize = 1;

impl WriteRows {
    /// Returns the position of the first table.
    fn first(&self) -> usize {
        FROM + usize::from(self.picked)
    }
    /// Returns the positions of each table and of its rows, and the number of rows that an index refers to.
    fn tables(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let first = self.first();
        self.each.iter().enumerate().map(move |(k, &each)| (first + 2 * k, first + 2 * k + 1, each))
    }
    /// Returns the position of `from`.
    fn from(&self) -> Option<usize> {
        self.picked.then_some(FROM)
    }
    /// Writes rows into a table stored as `T`.
    fn write<R: Element, T: Stored<R>>(&self, io: &Io<'_>, (table, rows, each): (usize, usize, usize)) {
        let [to, given] = [table, rows].map(|at| io.rows(at) / each);
        let (d, table) = (each * io.cols(table), io.state::<T>(table));
        let (index, rows) = (io.input::<u32>(INDEX), io.input::<R>(rows));
        let from = self.from().map(|from| io.input::<u32>(from));
        for (i, &at) in index.iter().enumerate() {
            let row = from.map_or(Some(i), |from| io.row_of(i, from[i], given));
            if let (Some(at), Some(row)) = (io.row_of(i, at, to), row) {
                T::keep(&rows[row * d..][..d], &mut table[at * d..][..d]);
            }
        }
    }
}

impl Op for WriteRows {
    const NAME: &'static str = "write_rows";
    const KIND: OpKind = OpKind::Copy;
    const SIGNATURE: &'static str = "index [n] ids, from? [n] ids, {table state, rows} ->";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.picked)
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let tables = self.each.len();
        ensure!(Self::NAME, (1..=abi::Tables::MOST).contains(&tables), "{tables} tables, want 1 to 8");
        arity(Self::NAME, ins, self.first() + 2 * tables)?;
        let outs = signature::infer(self, ins)?;
        let (index, mut items, mut picked) = (&ins[INDEX], None, None);
        for (table, rows, each) in self.tables() {
            let (table, rows) = (&ins[table], &ins[rows]);
            ensure!(Self::NAME, table.dtype.widened() == rows.dtype, "table is {table}, rows are {rows}");
            ensure!(Self::NAME, table.cols == rows.cols, "table is {table}, rows are {rows}");
            let whole = each > 0 && table.rows.capacity.is_multiple_of(each);
            ensure!(Self::NAME, whole, "table is {table}, want items of {each} rows");
            let of_table = table.rows.capacity / each;
            let alike = *items.get_or_insert(of_table) == of_table;
            ensure!(Self::NAME, alike, "table is {table}, the first one has other rows");
            // Where rows are picked, all tables have the same number of them.
            let want = if self.picked { *picked.get_or_insert(rows.rows) } else { index.rows.times(each) };
            ensure!(Self::NAME, want == rows.rows, "index is {index}, rows are {rows}");
        }
        Ok(outs)
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let index = &ins[INDEX];
        let moved = |(table, rows, _): (usize, usize, usize)| {
            let (table, rows) = (&ins[table], &ins[rows]);
            (4 + table.dtype.size(Precision::F32)) * index.rows.capacity.min(rows.rows.capacity) * table.cols
        };
        let indices = index.len() * (1 + usize::from(self.picked));
        Cost { bytes: self.tables().map(moved).sum::<usize>() + 4 * indices, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for of in self.tables() {
            match io.spec(of.0).dtype {
                DType::U32 => self.write::<u32, u32>(io, of),
                DType::I64 => self.write::<i64, i64>(io, of),
                dtype => by_storage!(dtype, R, self.write(io, of)),
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let tables = abi::Tables::new(self.tables().map(|(table, rows, each)| {
            let spec = on.spec(table);
            (spec.dtype, each * spec.cols, [on.state_address(table), on.address(rows)])
        }));
        let from = self.from().map_or(std::ptr::null(), |from| on.input(from));
        let (grid, index, n) = (Grid::warps(on.capacity(INDEX)), on.input(INDEX), on.rows(INDEX));
        let first = self.first();
        let [to, given] = [first, first + 1].map(|at| on.rows(at).items(self.each[0] as u32));
        launch!(k, on, write_rows[grid]; tables, index, from, to, n, given, on.status())
    }
}

/// `[v, n, d]`. An optional fourth number is the number of roots whose latest rows are written; nodes beyond
/// it are not positives. An optional fifth number is the index of the table's storage type in
/// [`StoredAs::ALL`], [`IDS`] for a table of ids, or [`TIMES`] for one column of times. Without a fourth one,
/// items of two times are written by the same op.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1],
    &[9, 5, 2],
    &[4, 0, 3],
    &[40, 20, 16],
    &[9, 9, 3, 5],
    &[90, 50, 100, 60],
    &[4, 4, 5, 0],
    &[9, 9, 3, 5, 1],
    &[90, 50, 100, 60, 1],
    &[9, 9, 3, 5, 2],
    &[90, 50, 100, 60, 2],
    &[4, 4, 5, 0, 2],
    &[9, 9, 3, 5, IDS],
    &[90, 50, 1, 60, TIMES],
    &[9, 5, 1, 5, TIMES],
    &[90, 50, 4, 60, IDS],
];
/// Stands for a table of ids.
const IDS: usize = StoredAs::ALL.len();
/// Stands for a table of times.
const TIMES: usize = IDS + 1;
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[23_621, 600, 2], &[9_228, 1_487, 100, 1_800]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, d] = dims[..3] else { return Err(Error::shape("write_rows", "three sizes, or four")) };
    let stored_as = dims.get(4).copied().unwrap_or(0);
    let ids = |c: &mut CaseBuilder, rows: usize| {
        let values: Vec<u32> = (0..rows * d).map(|_| c.below(1000) as u32).collect();
        c.ids(&values, d)
    };
    let rows_of = |c: &mut CaseBuilder, rows: usize| match stored_as {
        IDS => ids(c, rows),
        TIMES => c.times(&(0..rows as i64).map(|i| (i << 33) + i).collect::<Vec<_>>()),
        _ => c.real(rows, d),
    };
    let table = match StoredAs::ALL.get(stored_as) {
        Some(&stored_as) => c.stored(v, d, stored_as),
        None => rows_of(c, v),
    };
    let index: Vec<u32> = (0..n as u32).map(|i| v as u32 - 1 - i).collect();
    let index = c.ids(&index, 1);
    if let Some(&roots) = dims.get(3) {
        let phi: Vec<u32> = (0..n).map(|i| if i < roots { c.below(roots) as u32 } else { NONE }).collect();
        let (phi, rows) = (c.ids(&phi, 1), rows_of(c, roots));
        c.tape.write_latest(table, (index, phi), rows)?;
    } else {
        let rows = rows_of(c, n);
        let times =
            |c: &mut CaseBuilder, n: usize| c.times(&(0..2 * n as i64).map(|i| i << 33).collect::<Vec<_>>());
        let (items, given) = (times(c, v), times(c, n));
        c.tape.write_items(&[(table, rows, 1), (items, given, 2)], index)?;
        return Ok(Built { states: vec![table, items], ..Built::default() });
    }
    Ok(Built { states: vec![table], ..Built::default() })
}
