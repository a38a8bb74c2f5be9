//! `out[index[i, j], :] += src[i k + j, :]` with `out` zero at first: the transpose of `gather_rows`.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src` | `[n k, d]` f32 | rows to add |
//! | `index` | `[n, k]` u32 below `v`, or [`NONE`] (the row is dropped) | row of `out`; rows with the same index are added in ascending order |
//! | `starts`, `slots` | `[v + 1]`, `[m]` u32 | rows of `src` that go to each row of `out` ([`group_all_slots`](Tape::group_all_slots)) |
//! | `out` | `[v, d]` f32 | sums |
//!
//! Backward: `dsrc = gather_rows(dout, index)`. Deterministic: rows are grouped by `index` and added without
//! atomics. The lists depend on indices only, so they are made before there is anything to add.
//! Source: aggregation, Sven, Algorithm 2.
use super::*;
use crate::runtime::{
    changes::{Change, Changes},
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct ScatterAddRows {
    rows: Rows,
    /// Whether starts and slots are given.
    listed: bool,
}

/// Starts and slots: the rows that go to each row of a sum.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct RowLists {
    starts: Var,
    slots: Var,
}

/// Rows of `out` for which a block on a device is worth starting.
const ROWS: usize = 8;
/// Maximum number of blocks on a device; beyond it, they get more rows each.
const BLOCKS: usize = 1024;

impl Tape {
    /// Appends [`ScatterAddRows`] and returns sums of rows of `src`, `[n k, d]`: row `i k + j` is added to
    /// row `index[i, j]` of the result, which has `rows` rows.
    ///
    /// # Errors
    /// `Shape` if `index` is not u32 with one entry for each row of `src`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::real(Rows::fixed(4), 1), &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let index = tape.input(&mut store, "index", Spec::ids(Rows::fixed(4), 1), &[1u32, 0, 1, NONE])?;
    /// let sums = tape.scatter_add_rows(src, index, Rows::fixed(2))?;
    /// let mut program = Program::new(&tape, &[sums], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(sums, &store)?, [2.0, 4.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn scatter_add_rows(&mut self, src: Var, index: Var, rows: Rows) -> Result<Var> {
        let lists = self.row_lists(index, rows)?;
        self.scatter_add_listed(src, index, rows, lists)
    }
    /// Appends [`group_all_slots`](Self::group_all_slots) and returns the lists for sums by `index`, for any
    /// number of sources. Without [`Change::Small`] there are none.
    pub(in crate::ops) fn row_lists(&mut self, index: Var, rows: Rows) -> Result<Option<RowLists>> {
        if !Changes::of_environment()?.has(Change::Small) {
            return Ok(None);
        }
        let (starts, slots) = self.group_all_slots(index, rows)?;
        Ok(Some(RowLists { starts, slots }))
    }
    /// Appends [`ScatterAddRows`] with [lists](Self::row_lists) by the same index and rows.
    pub(in crate::ops) fn scatter_add_listed(
        &mut self,
        src: Var,
        index: Var,
        rows: Rows,
        lists: Option<RowLists>,
    ) -> Result<Var> {
        // The live count is an operand, so that the op runs after the count is computed.
        let count = rows.live.map(|live| live.var);
        let lists = lists.map(|l| [l.starts, l.slots]);
        let ins: Vec<Var> =
            [src, index].into_iter().chain(count).chain(lists.into_iter().flatten()).collect();
        self.push1(ScatterAddRows { rows, listed: lists.is_some() }, &ins)
    }
}

vectorised! {
    fn add_rows(out: &mut [f32], src: &[f32], index: &[u32], d: usize) {
        for (i, &r) in index.iter().enumerate() {
            if let Some(row) = out.get_mut(r as usize * d..(r as usize + 1) * d) {
                simd::add_assign(row, &src[i * d..][..d]);
            }
        }
    }
}

vectorised! {
    /// Sums the rows of `src` that `slots` lists for each row of `out`.
    fn add_listed(out: &mut [f32], src: &[f32], starts: &[u32], slots: &[u32], d: usize) {
        out.fill(0.0);
        for (row, range) in out.chunks_exact_mut(d).zip(starts.windows(2)) {
            for &slot in slots.get(range[0] as usize..range[1] as usize).unwrap_or(&[]) {
                if let Some(x) = src.get(slot as usize * d..(slot as usize + 1) * d) {
                    simd::add_assign(row, x);
                }
            }
        }
    }
}

impl ScatterAddRows {
    /// Returns the positions of starts and slots among the inputs, if they are given.
    fn lists(&self) -> Option<[usize; 2]> {
        let first = 2 + usize::from(self.rows.live.is_some());
        self.listed.then_some([first, first + 1])
    }
}

impl Op for ScatterAddRows {
    const NAME: &'static str = "scatter_add_rows";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [n k, d], index [n, k] ids, count? [1] ids, starts? [r + 1] ids, \
        slots? [m] ids -> out [r, d]";
    fn sizes(&self) -> Sizes {
        vec![("r", self.rows)]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(if operand == "count" { self.rows.live.is_some() } else { self.listed })
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, ins[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, src, out) = (io.cols(0), io.input::<R>(0), io.out::<R>(0));
        let rows = io.out_rows(0);
        out.fill(R::ZERO);
        for (i, &r) in io.input::<u32>(1).iter().enumerate() {
            if let Some(r) = io.row_of(i, r, rows) {
                for j in 0..d {
                    out[r * d + j] += src[i * d + j];
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (index, out, rows) = (io.input::<u32>(1), io.out::<f32>(0), io.out_rows(0));
        if let Some([starts, slots]) = self.lists().map(|lists| lists.map(|i| io.input::<u32>(i))) {
            let (src, d, size) = (io.input::<f32>(0), io.cols(0), team::piece(rows, 128));
            let pieces = out.chunks_mut((size * d).max(1)).enumerate();
            pieces.in_parallel(1, |(piece, out)| add_listed(out, src, &starts[piece * size..], slots, d));
            return;
        }
        // Without lists one thread, because concurrent adds would not be deterministic.
        out.fill(0.0);
        if let Some(i) = index.iter().position(|&r| r != NONE && r as usize >= rows) {
            io.fault(i, Fault::OutOfRange(index[i]));
        }
        add_rows(out, io.input::<f32>(0), index, io.cols(0));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // Without lists every block reads the whole index, so that large outputs get more rows per block. The
        // grid decides how sums are divided, so it is the same with lists.
        let grid = Grid::new(on.out_cap(0).div_ceil(ROWS).min(BLOCKS), Grid::THREADS);
        let (src, index, out, status) = (on.input(0), on.input(1), on.out(0), on.status());
        let (rows, out_rows, d) = (on.rows(0), on.out_rows(0), on.cols(0));
        let Some([starts, slots]) = self.lists() else {
            return launch!(k, on, scatter_add_rows_before[grid]; src, index, out, rows, out_rows, d, status);
        };
        let (listed, starts, slots) = (on.rows(slots), on.input(starts), on.input(slots));
        launch!(
            k, on, scatter_add_rows[grid];
            src, index, starts, slots, out, rows, out_rows, listed, d, status
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        dins[0] = douts[0].map(|d| t.gather_rows(d, node.ins[1])).transpose()?;
        Ok(dins)
    }
}

/// `[n, v, d]`. Among them: more source rows for one output row than fit in a queue, more output rows than
/// blocks, and than 32 for each; wide rows. The last index is `NONE`, and the capacity of `out` is `v + 2`
/// rows.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[9, 5, 3], &[200, 7, 100], &[0, 2, 4], &[5_000, 3, 4], &[40, 40_000, 1], &[30, 20, 131]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 1_487, 100]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let mut index: Vec<u32> = (0..dims[0]).map(|_| c.unevenly_below(dims[1]) as u32).collect();
    if let [_, .., last] = index.as_mut_slice() {
        *last = NONE;
    }
    let (src, index, count) = (c.real(dims[0], dims[2]), c.ids(&index, 1), c.count(dims[1]));
    let out = c.tape.scatter_add_rows(src, index, Rows::live(dims[1] + 2, count))?;
    Ok(Built::new(&[out], &[src]))
}
