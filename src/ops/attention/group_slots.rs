//! Groups neighbour slots by the row they read: `slots[starts[r]..starts[r + 1]]` are the slots of row `r`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `row` | `[n, k]` u32 | row that each neighbour of a root reads; not read beyond `count` |
//! | `count`, `order` | `[n]`, `[m]` u32, optional | number of slots in use per root; roots whose slots are listed, such as `order` of [`group_roots`]. Without them all slots of all roots are listed in order, except those that are [`NONE`] |
//! | `rows` | `[1]` u32, only if the number of rows is live | number of rows |
//! | starts | `[rows + 1]` u32 | start of each row's slots in `slots` |
//! | slots | `[listed]` u32 | the slots in use; the slots of a row are consecutive and ascending |
//! | listed | `[1]` u32 | number of slots listed |
//!
//! Slot `at k + j` is neighbour `j` of the root at index `at` of `order`. The gradient of a row can then be
//! summed over its slots in a fixed order; and because the lists depend on indices only, they are computed
//! before there are any gradients. Deterministic: a counting sort.
use super::{
    group_roots::{group, grouping},
    *,
};
use crate::runtime::changes::Change;
use std::ptr::null;

/// See the [module](self).
#[derive(Debug)]
pub struct GroupSlots {
    rows: Rows,
    /// Whether `count` and `order` are given.
    chosen: bool,
}

impl Tape {
    /// Appends [`GroupSlots`]; `rows` are the rows that `row` refers to. Returns starts and slots.
    ///
    /// # Errors
    /// `Shape` if `row` is not u32 `[n, k]`, `count` not u32 `[n]` or `order` not u32 `[m]`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let row = tape.input(&mut store, "row", Spec::ids(Rows::fixed(2), 2), &[0u32, 1, 1, NONE])?;
    /// let count = tape.input(&mut store, "count", Spec::ids(Rows::fixed(2), 1), &[2u32, 1])?;
    /// let order = tape.input(&mut store, "order", Spec::ids(Rows::fixed(2), 1), &[0u32, 1])?;
    /// let (starts, slots) = tape.group_slots(row, count, order, Rows::fixed(2))?;
    /// let mut program = Program::new(&tape, &[starts, slots], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(starts, &store)?, [0, 1, 3]);
    /// assert_eq!(program.read::<u32>(slots, &store)?, [0, 1, 2]); // of row 0; of row 1
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn group_slots(&mut self, row: Var, count: Var, order: Var, rows: Rows) -> Result<(Var, Var)> {
        let ins: Vec<Var> = [row, count, order].into_iter().chain(rows.live.map(|l| l.var)).collect();
        let o = self.push(GroupSlots { rows, chosen: true }, &ins)?;
        Ok((o[0], o[1]))
    }
    /// Appends [`GroupSlots`] for all slots: slot `i k + j` is `row[i, j]`. Returns starts and slots.
    ///
    /// # Errors
    /// `Shape` if `row` is not u32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let row = tape.input(&mut store, "row", Spec::ids(Rows::fixed(2), 2), &[1u32, 0, 1, NONE])?;
    /// let (starts, slots) = tape.group_all_slots(row, Rows::fixed(2))?;
    /// let mut program = Program::new(&tape, &[starts, slots], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(starts, &store)?, [0, 1, 3]);
    /// assert_eq!(program.read::<u32>(slots, &store)?, [1, 0, 2]); // of row 0; of row 1
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn group_all_slots(&mut self, row: Var, rows: Rows) -> Result<(Var, Var)> {
        let ins: Vec<Var> = [row].into_iter().chain(rows.live.map(|l| l.var)).collect();
        let o = self.push(GroupSlots { rows, chosen: false }, &ins)?;
        Ok((o[0], o[1]))
    }
}

impl GroupSlots {
    /// Creates the op for slots of `rows` rows. If `chosen`, count and order say which slots are listed.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::{Call, group_slots::GroupSlots}, runtime::{NONE, Rows}};
    /// let op = GroupSlots::new(Rows::fixed(2), false);
    /// let (mut starts, mut slots, mut listed) = ([0; 3], [0; 4], [0]);
    /// Call::new(&op)
    ///     .input(&[1u32, 0, 1, NONE], [2, 2])?
    ///     .output::<u32>(&mut starts)?
    ///     .output::<u32>(&mut slots)?
    ///     .output::<u32>(&mut listed)?
    ///     .run()?;
    /// assert_eq!((starts, listed), ([0, 1, 3], [3]));
    /// assert_eq!(slots[..3], [1, 0, 2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn new(rows: Rows, chosen: bool) -> Self {
        GroupSlots { rows, chosen }
    }
    /// Returns the position of the input with the live count of the rows, if there is one.
    fn live(&self) -> usize {
        if self.chosen { 3 } else { 1 }
    }
}

impl Op for GroupSlots {
    const NAME: &'static str = "group_slots";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "row [n, k] ids, count? [n] ids, order? [o] ids, rows? [1] ids \
        -> starts [r + 1] ids, slots, listed";
    fn sizes(&self) -> Sizes {
        vec![("r", self.rows)]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "rows" => self.rows.live.is_some(),
            _ => self.chosen,
        })
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let mut outs = signature::infer(self, ins)?;
        let (row, roots) = (ins[at!(row)], ins[if self.chosen { at!(order) } else { at!(row) }].rows);
        let slots = roots.times(row.cols).capacity;
        for (what, n) in [
            ("rows", self.rows.capacity),
            ("roots", row.rows.capacity),
            ("slots per root", row.cols),
            ("slots", slots),
        ] {
            countable(Self::NAME, what, n)?;
        }
        outs.extend([Out::counted_by(Spec::ids(Rows::fixed(slots), 1), 2), Spec::count().into()]);
        Ok(outs)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        ins[if self.chosen { at!(order) } else { at!(row) }].rows.times(ins[at!(row)].cols).capacity
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 0)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (row, rows, k) =
            (io.input::<u32>(at!(row)), io.live_rows(self.rows, self.live()), io.cols(at!(row)));
        let chosen = self.chosen.then(|| (io.input::<u32>(at!(count)), io.input::<u32>(at!(order))));
        let (starts, slots) = (io.out::<u32>(0), io.out::<u32>(1));
        let roots = chosen.map_or(io.rows(at!(row)), |(_, order)| order.len());
        let used = (0..roots).flat_map(|at| {
            // An invalid root has no slots.
            let (i, count) = match chosen {
                Some((count, order)) => {
                    io.row_of(at, order[at], count.len()).map_or((0, 0), |i| (i, (count[i] as usize).min(k)))
                }
                None => (at, k),
            };
            let of_root = row[i * k..][..count].iter().enumerate();
            of_root.filter_map(move |(j, &r)| Some((at * k + j, io.row_of(i, r, rows)?)))
        });
        io.out::<u32>(2)[0] = group(used, rows, starts, slots);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (row, row_of, rows, width) = (
            on.input(at!(row)),
            on.scratch().cast::<u32>(),
            on.live_rows(self.rows, self.live()),
            on.cols(at!(row)),
        );
        let (count, order, roots) = match self.chosen {
            true => (on.input(at!(count)), on.input(at!(order)), on.rows(at!(order))),
            false => (null(), null(), on.rows(at!(row))),
        };
        let (starts, slots, listed, known) = (on.needed(0), on.needed(1), on.needed(2), on.rows(at!(row)));
        let (all, blocks, s) = (Grid::items(on.out_cap(1)), grouping(self.rows.capacity), on.status());
        if !self.chosen && on.stream().gpu().has(Change::Small) {
            // Each slot's row is as given.
            return launch!(k, on, group_slots[blocks]; row, starts, slots, listed, roots, rows, width, s);
        }
        launch!(k, on, group_slots_rows[all]; row, count, order, row_of, roots, known, rows, width, s)?;
        launch!(k, on, group_slots[blocks]; row_of, starts, slots, listed, roots, rows, width, s)
    }
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// `[roots, k, rows]`; counts run from 0 to k, and the capacity is three rows more. With a fourth number all
/// slots of all roots are listed.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[0, 2, 3],
    &[4, 2, 0],
    &[1, 1, 1],
    &[9, 0, 4],
    &[9, 3, 7],
    &[50, 3, 2],
    // More slots than a block reads in one round, or lists at a time; then more rows than a block has
    // threads.
    &[2_000, 10, 60],
    &[2_000, 10, 2],
    &[300, 10, 2_500],
    &[20, 10, 70_000],
    &[0, 2, 3, 1],
    &[9, 3, 7, 1],
    &[2_000, 2, 60, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 10, 1_487], &[100_000, 2, 10_000, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, rows] = dims[..3] else { return Err(Error::shape("group_slots", "want three or four sizes")) };
    let counts: Vec<u32> = (0..n).map(|i| if rows == 0 { 0 } else { (i % (k + 1)) as u32 }).collect();
    let of_slots: Vec<u32> = (0..n * k)
        .map(|s| if s % k < counts[s / k] as usize { c.unevenly_below(rows) as u32 } else { NONE })
        .collect();
    let roots: Vec<u32> = counts.iter().map(|&n| if n == 0 { NONE } else { c.below(7) as u32 }).collect();
    let row = c.values(Spec::ids(Rows::fixed(n), k), &of_slots);
    let (query, count, live) = (c.ids(&roots, 1), c.ids(&counts, 1), c.count(rows));
    if dims.len() == 4 {
        let (starts, slots) = c.tape.group_all_slots(row, Rows::live(rows + 3, live))?;
        return Ok(Built::new(&[starts, slots], &[]));
    }
    let order = c.tape.group_roots(query, count, Rows::fixed(7))?.order;
    let (starts, slots) = c.tape.group_slots(row, count, order, Rows::live(rows + 3, live))?;
    Ok(Built::new(&[starts, slots], &[]))
}
