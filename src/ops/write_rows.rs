//! `table[index[i], :] = rows[from[i], :]`, in place; `from[i] = i` unless it is given.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` of any type, state | scores by event, losses by batch, memory by node, candidates by edge |
//! | `index` | `[n]` u32 below `v`, unique, or [`NONE`] | row of `table` |
//! | `rows` | `[m, d]`, or `[n, d]` without `from`; u32 or i64 as the table, otherwise f32 | rows to write |
//! | `from` | `[n]` u32 below `m`, or `NONE`, optional | row of `rows` |
//!
//! An index may also refer to *items* of several consecutive rows: `table` is `[v e, d]`, `rows` `[n e, d]`.
//! Nothing is written if `index` or `from` is `NONE`. An index outside its table is reported as a fault. A
//! 16-bit table stores rounded numbers ([`StoredAs`]). With this op, scores and losses stay on the device
//! until the end of a pass.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct WriteRows {
    /// Number of rows that an index refers to.
    each: usize,
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
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(2), 1), &[2u32, 0])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(2), 1), &[5.0f32, 6.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(3), 1))?;
    /// let table = tape.stored(&store, table)?;
    /// tape.write_rows(table, index, rows)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(table, &store)?, [6.0, 0.0, 5.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_rows(&mut self, table: Var, index: Var, rows: Var) -> Result<()> {
        self.write_items(table, index, rows, 1)
    }
    /// Appends [`WriteRows`] for items of `each` rows: item i of `rows`, `[n each, d]`, becomes item
    /// `index[i]` of `table`, `[v each, d]`.
    ///
    /// # Errors
    /// As [`write_rows`](Self::write_rows).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(2), 1), &[5.0f32, 6.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(4), 1))?;
    /// let table = tape.stored(&store, table)?;
    /// tape.write_items(table, index, rows, 2)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(table, &store)?, [0.0, 0.0, 5.0, 6.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn write_items(&mut self, table: Var, index: Var, rows: Var, each: usize) -> Result<()> {
        self.push(WriteRows { each }, &[table, index, rows]).map(drop)
    }
    /// Appends [`WriteRows`] for picked rows: `table[index[i], :] = rows[from[i], :]`.
    ///
    /// # Errors
    /// As [`write_rows`](Self::write_rows).
    ///
    /// # Examples
    /// As [`write_latest`](Self::write_latest), with `phi` as `from`.
    pub fn write_picked(&mut self, table: Var, index: Var, rows: Var, from: Var) -> Result<()> {
        self.push(WriteRows { each: 1 }, &[table, index, rows, from]).map(drop)
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
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let node = tape.input(&mut store, "node", Spec::ids(Rows::fixed(2), 1), &[1u32, 0])?;
    /// let phi = tape.input(&mut store, "phi", Spec::ids(Rows::fixed(2), 1), &[2u32, NONE])?;
    /// let rows = tape.input(&mut store, "rows", Spec::real(Rows::fixed(3), 1), &[5.0f32, 6.0, 7.0])?;
    /// let table = store.zeros("table", Spec::real(Rows::fixed(2), 1))?;
    /// let table = tape.stored(&store, table)?;
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

/// Positions of the inputs; `from` is optional.
mod input {
    pub(super) const TABLE: usize = 0;
    pub(super) const INDEX: usize = 1;
    pub(super) const ROWS: usize = 2;
    pub(super) const FROM: usize = 3;
}

impl WriteRows {
    /// Writes rows into a table stored as `T`.
    fn write<R: Element, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, table) = (self.each * io.cols(input::TABLE), io.state::<T>(input::TABLE));
        let [to, given] = [input::TABLE, input::ROWS].map(|at| io.rows(at) / self.each);
        let (index, rows) = (io.input::<u32>(input::INDEX), io.input::<R>(input::ROWS));
        let from = (io.inputs() > input::FROM).then(|| io.input::<u32>(input::FROM));
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(3, 4))?;
        let (table, index, rows) = (&ins[input::TABLE], &ins[input::INDEX], &ins[input::ROWS]);
        ensure!(Self::NAME, table.dtype.widened() == rows.dtype, "table is {table}, rows are {rows}");
        let ids = Spec::ids(index.rows, 1);
        ensure!(Self::NAME, *index == ids, "index is {index}, want {ids}");
        ensure!(Self::NAME, table.cols == rows.cols, "table is {table}, rows are {rows}");
        let items = self.each > 0 && table.rows.capacity.is_multiple_of(self.each);
        ensure!(Self::NAME, items, "table is {table}, want items of {} rows", self.each);
        match ins.get(input::FROM) {
            Some(from) => ensure!(Self::NAME, from == index, "index is {index}, from is {from}"),
            None => {
                let want = index.rows.times(self.each);
                ensure!(Self::NAME, want == rows.rows, "index is {index}, rows are {rows}");
            }
        }
        Ok(vec![])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![input::TABLE]
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let (table, index, rows) = (&ins[input::TABLE], &ins[input::INDEX], &ins[input::ROWS]);
        let written = index.rows.capacity.min(rows.rows.capacity);
        let number = 4 + table.dtype.size(Precision::F32);
        Cost { bytes: number * written * table.cols + 4 * (ins.len() - 2) * index.len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(input::TABLE).dtype {
            DType::U32 => self.write::<u32, u32>(io),
            DType::I64 => self.write::<i64, i64>(io),
            dtype => by_kept!(dtype, R, self.write(io)),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let each = self.each as u32;
        let (index, d) = (on.input(input::INDEX), each * on.cols(input::TABLE));
        let grid = Grid::warps(on.capacity(input::INDEX));
        let from = if on.inputs() > input::FROM { on.input(input::FROM) } else { std::ptr::null() };
        let (to, n, m) = (on.rows(input::TABLE), on.rows(input::INDEX), on.rows(input::ROWS));
        let (to, m) = (to.items(each), m.items(each));
        let status = on.status();
        if on.spec(input::TABLE).dtype.is_half() {
            let ((table, kind), rows) = (on.halves_state(input::TABLE), on.input(input::ROWS));
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            return unsafe {
                k.write_half_rows(on, grid, table, kind, index, from, rows, to, n, m, d, status)
            };
        }
        let spec = on.spec(input::TABLE);
        let d = d * (spec.dtype.size(Precision::F32) / size_of::<u32>()) as u32;
        let (table, rows) = (on.state_words(input::TABLE), on.words(input::ROWS));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.write_rows(on, grid, table, index, from, rows, to, n, m, d, status) }
    }
}

/// `[v, n, d]`. An optional fourth number is the number of roots whose latest rows are written; nodes beyond
/// it are not positives. An optional fifth number is the index of the table's storage type in
/// [`StoredAs::ALL`], [`IDS`] for a table of ids, or [`TIMES`] for one column of times.
pub(super) const CASES: &[&[usize]] = &[
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
pub(super) const BENCH: &[&[usize]] = &[&[23_621, 600, 2], &[9_228, 1_487, 100, 1_800]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
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
        Some(&stored_as) => c.kept(v, d, stored_as),
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
        c.tape.write_rows(table, index, rows)?;
    }
    Ok(Built { states: vec![table], ..Built::default() })
}
