//! Slots of neighbours, grouped by the row that they read: `slots[starts[r]..starts[r + 1]]` are those of row `r`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `row` | `[n, k]` u32 | the row that a root's neighbour is; not read beyond `count` |
//! | `count`, `order` | `[n]`, `[m]` u32, optional | slots in use; roots whose slots count, such as those of [`group_roots`]. Without them all slots of all roots in order, but for those that are [`NONE`] |
//! | `rows` | `[1]` u32 | live count of the rows, where they have one |
//! | starts | `[rows + 1]` u32 | where a row's slots begin |
//! | slots | `[listed]` u32 | the slots in use, those of a row side by side and ascending |
//! | listed | `[1]` u32 | |
//!
//! Slot `at k + j` is neighbour `j` of the root at place `at` of `order`. So the gradient of a row is the sum of its slots'
//! gradients, in a fixed order; and since a list depends on indices alone, it is made before there are any gradients.
//! Deterministic: a counting sort.
use super::{group_roots::group, *};

/// See the [module](self).
#[derive(Debug)]
pub struct GroupSlots {
    rows: Rows,
    /// Whether `count` and `order` are given.
    chosen: bool,
}

/// Parts of the slots, on a device, each with a count for every row; as in the kernels.
const TILES: usize = 32;

impl Tape {
    /// Appends [`GroupSlots`]; `rows` are those that `row` names. Returns starts and slots.
    ///
    /// # Errors
    /// `Shape` when `row` is not u32 `[n, k]`, `count` not u32 `[n]`, `order` not u32 `[m]`.
    pub fn group_slots(&mut self, row: Var, count: Var, order: Var, rows: Rows) -> Result<(Var, Var)> {
        let ins: Vec<Var> = [row, count, order].into_iter().chain(rows.live.map(|l| l.var)).collect();
        let o = self.push(GroupSlots { rows, chosen: true }, &ins)?;
        Ok((o[0], o[1]))
    }
    /// Appends [`GroupSlots`] of all slots: slot `i k + j` is `row[i, j]`.
    ///
    /// # Errors
    /// `Shape` when `row` is not u32.
    pub fn group_all_slots(&mut self, row: Var, rows: Rows) -> Result<(Var, Var)> {
        let ins: Vec<Var> = [row].into_iter().chain(rows.live.map(|l| l.var)).collect();
        let o = self.push(GroupSlots { rows, chosen: false }, &ins)?;
        Ok((o[0], o[1]))
    }
}

impl GroupSlots {
    /// The input with the live count of the rows.
    fn live(&self) -> usize {
        if self.chosen { 3 } else { 1 }
    }
}

impl Op for GroupSlots {
    const NAME: &'static str = "group_slots";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, self.live() + usize::from(self.rows.live.is_some()))?;
        let (n, k) = (ins[0].rows, ins[0].cols);
        ensure!(Self::NAME, ins[0] == Spec::ids(n, k), "row is {}", ins[0]);
        let mut roots = n;
        if self.chosen {
            ensure!(Self::NAME, ins[1] == Spec::ids(n, 1), "row is {}, count is {}", ins[0], ins[1]);
            ensure!(Self::NAME, ins[2] == Spec::ids(ins[2].rows, 1), "order is {}", ins[2]);
            roots = ins[2].rows;
        }
        if self.rows.live.is_some() {
            let (found, want) = (ins[self.live()], Spec::count());
            ensure!(Self::NAME, found == want, "rows are {found}, want {want}");
        }
        let slots = roots.times(k).capacity;
        for (what, n) in
            [("rows", self.rows.capacity), ("roots", n.capacity), ("slots of a root", k), ("slots", slots)]
        {
            countable(Self::NAME, what, n)?;
        }
        let starts = Spec::ids(Rows::fixed(self.rows.capacity + 1), 1);
        let slots = Spec::ids(Rows::fixed(slots), 1);
        Ok(vec![starts.into(), Out::counted_by(slots, 2), Spec::count().into()])
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        TILES * self.rows.capacity
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 0)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (row, rows, k) = (io.input::<u32>(0), io.live_rows(self.rows, self.live()), io.cols(0));
        let chosen = self.chosen.then(|| (io.input::<u32>(1), io.input::<u32>(2)));
        let (starts, slots) = (io.out::<u32>(0), io.out::<u32>(1));
        let roots = chosen.map_or(io.rows(0), |(_, order)| order.len());
        let used = (0..roots).flat_map(|at| {
            // Of a root that is none, no slot.
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
        let (row, counts, rows, width) =
            (on.input(0), on.scratch().cast(), on.live_rows(self.rows, self.live()), on.cols(0));
        let null = std::ptr::null();
        let (count, order, roots) =
            if self.chosen { (on.input(1), on.input(2), on.rows(2)) } else { (null, null, on.rows(0)) };
        let (starts, slots, listed, known) = (on.kept(0), on.kept(1), on.kept(2), on.rows(0));
        let blocks = Grid::new(TILES, 1024);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.group_slots_count(on, blocks, row, count, order, counts, roots, known, rows, width, on.status())
        }?;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.group_slots_starts(on, Grid::new(1, 512), counts, starts, listed, rows) }?;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.group_slots_list(
                on,
                Grid::new(TILES, 32),
                row,
                count,
                order,
                counts,
                slots,
                roots,
                known,
                rows,
                width,
            )
        }
    }
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// `[roots, k, rows]`; counts run from 0 to k, and there is room for three rows more. A fourth number: all slots of all roots.
pub(super) const CASES: &[&[usize]] = &[
    &[0, 2, 3],
    &[4, 2, 0],
    &[1, 1, 1],
    &[9, 0, 4],
    &[9, 3, 7],
    &[50, 3, 2],
    // Several rounds of a warp a tile; more rows than a block has threads.
    &[2_000, 10, 60],
    &[300, 10, 2_500],
    &[0, 2, 3, 1],
    &[9, 3, 7, 1],
    &[2_000, 2, 60, 1],
];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 10, 1_487], &[100_000, 2, 10_000, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, rows] = dims[..3] else { return Err(Error::shape("group_slots", "three sizes, or four")) };
    let counts: Vec<u32> = (0..n).map(|i| if rows == 0 { 0 } else { (i % (k + 1)) as u32 }).collect();
    let of_slots: Vec<u32> = (0..n * k)
        .map(|s| if s % k < counts[s / k] as usize { c.below(rows) as u32 } else { NONE })
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
