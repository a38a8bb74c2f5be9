//! `table[index[i], :] = rows[i, :]`, in place
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `table` | `[v, d]` f32, state | scores by event, losses by batch |
//! | `index` | `[n]` u32 below `v`, distinct | |
//! | `rows` | `[n, d]` f32 | |
//!
//! An index outside the table is a fault. What a pass measures stays on the device until the pass is over.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct WriteRows;

impl Tape {
    /// Appends [`WriteRows`].
    ///
    /// # Errors
    /// `Shape` when widths or rows differ, or the table is read only.
    pub fn write_rows(&mut self, table: Var, index: Var, rows: Var) -> Result<()> {
        self.push(WriteRows, &[table, index, rows]).map(drop)
    }
}

impl Op for WriteRows {
    const NAME: &'static str = "write_rows";
    const KIND: Kind = Kind::Copy;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 3)?;
        typed(Self::NAME, "index", &ins[1], DType::U32)?;
        ensure!(Self::NAME, ins[0].cols == ins[2].cols, "table is {}, rows are {}", ins[0], ins[2]);
        ensure!(Self::NAME, ins[1].rows == ins[2].rows, "index is {}, rows are {}", ins[1], ins[2]);
        Ok(vec![])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![0]
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 8 * ins[2].len() + 4 * ins[1].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, table, rows) = (io.cols(0), io.state::<R>(0), io.input::<R>(2));
        for (i, &r) in io.input::<u32>(1).iter().enumerate() {
            if let Some(r) = io.row_of(i, r, table.len() / d.max(1)) {
                table[r * d..][..d].copy_from_slice(&rows[i * d..][..d]);
            }
        }
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (table, index, rows, d) = (on.state(0), on.input(1), on.input(2), on.cols(0));
        let grid = Grid::items(on.spec(2).len());
        k.write_rows(on, grid, table, index, rows, on.rows(0), on.rows(2), d, on.status())
    }
}

/// `[v, n, d]`
pub(super) const CASES: &[&[usize]] = &[&[1, 1, 1], &[9, 5, 2], &[4, 0, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[23_621, 600, 2]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let table = c.real(dims[0], dims[2]);
    let index: Vec<u32> = (0..dims[1] as u32).map(|i| dims[0] as u32 - 1 - i).collect();
    let (index, rows) = (c.ids(&index, 1), c.real(dims[1], dims[2]));
    c.tape.write_rows(table, index, rows)?;
    Ok(Built { states: vec![table], ..Built::default() })
}
