//! `table[index[i], :] = rows[from[i], :]`, in place; `from[i] = i` unless it is given
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` f32, u32, bf16 or f16, state | scores by event, losses by batch, memory by node, candidates by edge |
//! | `index` | `[n]` u32 below `v`, unique, or [`NONE`] | |
//! | `rows` | `[m, d]` f32, u32 where the table is, `[n, d]` where there is no `from` | |
//! | `from` | `[n]` u32 below `m`, or `NONE`, optional | row of `rows` |
//!
//! Nothing is written where either is `NONE`; an index outside of its rows is a fault. A table of 16 bits takes the nearest
//! numbers ([`StoredAs`]). What a pass measures stays on the
//! device until the pass is over.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct WriteRows;

impl Tape {
    /// Appends [`WriteRows`].
    ///
    /// # Errors
    /// `Shape` when types, widths or rows differ, or the table is read only.
    pub fn write_rows(&mut self, table: Var, index: Var, rows: Var) -> Result<()> {
        self.push(WriteRows, &[table, index, rows]).map(drop)
    }
    /// Appends [`WriteRows`] of the latest row of each positive root's node: `table[node[i], :] = rows[phi[i], :]`, for
    /// `rows` of the roots and `(node, phi)` of their [`unique`] nodes.
    ///
    /// # Errors
    /// `Shape` when widths or rows differ, or the table is read only.
    pub fn write_latest(&mut self, table: Var, (node, phi): (Var, Var), rows: Var) -> Result<()> {
        self.push(WriteRows, &[table, node, rows, phi]).map(drop)
    }
}

impl WriteRows {
    /// Rows into a table kept in `T`.
    fn write<R: Element, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, table, index, rows) = (io.cols(0), io.state::<T>(0), io.input::<u32>(1), io.input::<R>(2));
        let from = (io.inputs() > 3).then(|| io.input::<u32>(3));
        for (i, &to) in index.iter().enumerate() {
            let row = from.map_or(Some(i), |from| io.row_of(i, from[i], io.rows(2)));
            if let (Some(to), Some(row)) = (io.row_of(i, to, io.rows(0)), row) {
                T::keep(&rows[row * d..][..d], &mut table[to * d..][..d]);
            }
        }
    }
}

impl Op for WriteRows {
    const NAME: &'static str = "write_rows";
    const KIND: OpKind = OpKind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(3, 4))?;
        let (table, rows) = (&ins[0], &ins[2]);
        ensure!(Self::NAME, table.dtype != DType::I64, "table is {table}, want F32 or U32");
        ensure!(Self::NAME, table.dtype.widened() == rows.dtype, "table is {table}, rows are {rows}");
        ensure!(Self::NAME, ins[1] == Spec::ids(ins[1].rows, 1), "index is {}", ins[1]);
        ensure!(Self::NAME, table.cols == rows.cols, "table is {table}, rows are {rows}");
        match ins.get(3) {
            Some(from) => ensure!(Self::NAME, *from == ins[1], "index is {}, from is {from}", ins[1]),
            None => {
                ensure!(Self::NAME, ins[1].rows == rows.rows, "index is {}, rows are {rows}", ins[1]);
            }
        }
        Ok(vec![])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![0]
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let written = ins[1].rows.capacity.min(ins[2].rows.capacity);
        let number = 4 + ins[0].dtype.size(Precision::F32);
        Cost { bytes: number * written * ins[0].cols + 4 * (ins.len() - 2) * ins[1].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::U32 => self.write::<u32, u32>(io),
            dtype => by_kept!(dtype, R, self.write(io)),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (index, d, grid) = (on.input(1), on.cols(0), Grid::warps(on.capacity(1)));
        let from = if on.inputs() > 3 { on.input(3) } else { std::ptr::null() };
        let (to, n, m) = (on.rows(0), on.rows(1), on.rows(2));
        if on.spec(0).dtype.is_half() {
            let (table, kind) = on.halves_state(0);
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            return unsafe {
                k.write_half_rows(on, grid, table, kind, index, from, on.input(2), to, n, m, d, on.status())
            };
        }
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.write_rows(on, grid, on.state_words(0), index, from, on.words(2), to, n, m, d, on.status())
        }
    }
}

/// `[v, n, d]`; a fourth number is that of the roots whose latest rows are written, the nodes beyond it being no positives; a
/// fifth says which of [`StoredAs::ALL`] the table is kept as, or that it is of ids.
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
    &[90, 50, 4, 60, IDS],
];
const IDS: usize = StoredAs::ALL.len();
pub(super) const BENCH: &[&[usize]] = &[&[23_621, 600, 2], &[9_228, 1_487, 100, 1_800]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, d] = dims[..3] else { return Err(Error::shape("write_rows", "three sizes, or four")) };
    let kept = dims.get(4).copied().unwrap_or(0);
    let ids = |c: &mut CaseBuilder, rows: usize| {
        let values: Vec<u32> = (0..rows * d).map(|_| c.below(1000) as u32).collect();
        c.ids(&values, d)
    };
    let table = if kept == IDS { ids(c, v) } else { c.kept(v, d, StoredAs::ALL[kept]) };
    let index: Vec<u32> = (0..n as u32).map(|i| v as u32 - 1 - i).collect();
    let index = c.ids(&index, 1);
    if let Some(&roots) = dims.get(3) {
        let phi: Vec<u32> = (0..n).map(|i| if i < roots { c.below(roots) as u32 } else { NONE }).collect();
        let (phi, rows) = (c.ids(&phi, 1), if kept == IDS { ids(c, roots) } else { c.real(roots, d) });
        c.tape.write_latest(table, (index, phi), rows)?;
    } else {
        let rows = c.real(n, d);
        c.tape.write_rows(table, index, rows)?;
    }
    Ok(Built { states: vec![table], ..Built::default() })
}
