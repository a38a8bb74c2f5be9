//! Counts common neighbours: for each node, the nodes with which it has most of them, kept as events arrive
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node` | `[n]` u32, unique | nodes with a new common neighbour |
//! | `starts`, `slots` | `[n + 1]`, `[m]` u32 | slots of `near` that hold each node ([`group_slots`]) |
//! | `root starts`, `roots` | `[n + 1]`, `[2 b]` u32 | roots that each node is |
//! | `root` | `[2 b]` u32 | roots of the batch: source and destination of each event |
//! | `near` | `[2 b, k]` u32, or [`NONE`] | recent neighbours of each root |
//! | `similar`, `common` | `[v, s]` u32, state | for each node s others, or [`NONE`], and how often they had a common neighbour |
//!
//! An event joins two roots. A recent neighbour of one of them has it in common with the other root, so each
//! of the two counts the other one: first a node counts the roots whose partners have it as a neighbour, slot
//! by slot, then, as a root, the neighbours of its partners. Of the nodes without an entry, the last one
//! takes the place of that with the lowest count, the first of several, and counts one more ("space saving",
//! Metwally et al. 2005): the nodes that come most often stay. Deterministic.
//! Source: the similarity of MSPipe, section 3.3, which counts common neighbours; keeping the counts while
//! events arrive is ours.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct CountCommon;

/// What [`Tape::count_common`] reads.
#[derive(Clone, Copy, Debug)]
pub struct CommonVars {
    /// `[n]` u32 unique nodes: all roots and neighbours.
    pub node: Var,
    /// `[n + 1]` and `[m]` u32: the slots of `near` that hold each node.
    pub slots: (Var, Var),
    /// `[n + 1]` and `[2 b]` u32: the roots that each node is.
    pub roots: (Var, Var),
    /// `[2 b]` u32 source and destination of each event.
    pub root: Var,
    /// `[2 b, k]` u32 recent neighbours of the roots.
    pub near: Var,
}

impl Tape {
    /// Appends [`CountCommon`] to the lists `similar` and `common`, u32 `[v, s]`.
    ///
    /// # Errors
    /// `Shape` if types or shapes are not those of the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{count_common::CommonVars, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Node 0 meets node 1, which has met node 2 before.
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let node = tape.input(&mut store, "node", ids(3), &[0u32, 1, 2])?;
    /// let root = tape.input(&mut store, "root", ids(2), &[0u32, 1])?;
    /// let near = tape.input(&mut store, "near", ids(2), &[NONE, 2])?;
    /// let slot_of = tape.input(&mut store, "slots of", ids(2), &[NONE, 2])?; // the third of `node`
    /// let root_of = tape.input(&mut store, "roots of", ids(2), &[0u32, 1])?;
    /// let slots = tape.group_all_slots(slot_of, Rows::fixed(3))?;
    /// let roots = tape.group_all_slots(root_of, Rows::fixed(3))?;
    /// let lists = store.values("similar", ids(3), &[NONE; 3])?;
    /// let counts = store.zeros("common", ids(3))?;
    /// let state = tape.stored_all([lists, counts])?;
    /// tape.count_common(CommonVars { node, slots, roots, root, near }, state)?;
    /// Program::new(&tape, &[], Precision::F32, Backend::Cpu)?.run(&mut store)?;
    /// assert_eq!(store.read::<u32>(lists)?, [2, NONE, 0]); // nodes 0 and 2 both know node 1
    /// assert_eq!(store.read::<u32>(counts)?, [1, 0, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn count_common(&mut self, c: CommonVars, [similar, common]: [Var; 2]) -> Result<()> {
        let ins = [c.node, c.slots.0, c.slots.1, c.roots.0, c.roots.1, c.root, c.near, similar, common];
        self.push(CountCommon, &ins).map(drop)
    }
}

/// Counts `other` in the list of a node.
fn count(similar: &mut [u32], common: &mut [u32], other: u32) {
    // The first entry of its own, else the first of the lowest counts; empty entries have the count 0.
    let own = similar.iter().position(|&of| of == other);
    let lowest = || (0..common.len()).min_by_key(|&at| common[at]);
    if let Some(at) = own.or_else(lowest) {
        (similar[at], common[at]) = (other, common[at].wrapping_add(1));
    }
}

impl Op for CountCommon {
    const NAME: &'static str = "count_common";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, starts [s] ids, slots [l] ids, root_starts [t] ids, \
        roots [o] ids, root [r] ids, near [r, k] ids, similar [V, m] ids state, common [V, m] ids state ->";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (node, near) = (ins[at!(node)], ins[at!(near)]);
        for i in [at!(starts), at!(root_starts)] {
            let (starts, least) = (ins[i], node.rows.capacity + 1);
            ensure!(Self::NAME, starts.rows.capacity >= least, "starts are {starts}, want {least} rows");
        }
        countable(Self::NAME, "slots", near.len())
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let (pairs, s) = (2 * ins[at!(near)].len(), ins[at!(similar)].cols);
        Cost { bytes: 4 * pairs * (3 + 2 * s), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let list = |i: usize| io.input::<u32>(i);
        let (root, near, k) = (list(at!(root)), list(at!(near)), io.cols(at!(near)));
        let (similar, common) = (io.state::<u32>(at!(similar)), io.state::<u32>(at!(common)));
        let (v, s) = (io.rows(at!(similar)), io.cols(at!(similar)));
        let of = |lists: [usize; 2], i: usize| {
            let (starts, items) = (list(lists[0]), list(lists[1]));
            let (first, end) = (starts.get(i)?, starts.get(i + 1)?);
            items.get(*first as usize..*end as usize)
        };
        for (i, &node) in list(at!(node)).iter().enumerate() {
            let Some(row) = io.row_of(i, node, v) else { continue };
            let (similar, common) = (&mut similar[row * s..][..s], &mut common[row * s..][..s]);
            let mut seen = |other: u32| {
                if other != node && (other as usize) < v {
                    count(similar, common, other);
                }
            };
            for &slot in of([at!(starts), at!(slots)], i).unwrap_or_default() {
                let partner = (slot as usize / k.max(1)) ^ 1;
                root.get(partner).into_iter().for_each(|&other| seen(other));
            }
            for &at in of([at!(root_starts), at!(roots)], i).unwrap_or_default() {
                let partner = at as usize ^ 1;
                near.get(partner * k..(partner + 1) * k).into_iter().flatten().for_each(|&other| seen(other));
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, count_common[Grid::items(on.capacity(at!(node)))];
            on.input(at!(node)), on.input(at!(starts)), on.input(at!(slots)),
            on.input(at!(root_starts)), on.input(at!(roots)), on.input(at!(root)),
            on.input(at!(near)), on.state(at!(similar)), on.state(at!(common)),
            on.rows(at!(node)), on.rows(at!(slots)), on.rows(at!(roots)), on.rows(at!(root)),
            on.cols(at!(near)), on.cols(at!(similar)), on.capacity(at!(similar)) as u32, on.status()
        )
    }
}

/// `[nodes, events, neighbours, entries]`
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1],
    &[9, 5, 2, 3],
    &[40, 60, 5, 2],
    &[300, 200, 3, 8],
    &[5, 0, 4, 2],
    &[5, 3, 0, 2],
    &[5, 3, 2, 0],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 600, 5, 8]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, b, k, s] = dims[..] else { return Err(Error::shape("count_common", "four numbers")) };
    let root = c.ids_below(2 * b, v);
    // The nodes are the rows of the unique list themselves; every fourth neighbour is missing.
    let near: Vec<u32> = (0..2 * b * k).map(|i| if i % 4 == 3 { NONE } else { c.below(v) as u32 }).collect();
    let near = c.values(Spec::ids(Rows::fixed(2 * b), k), &near);
    let node = c.ids(&(0..v as u32).collect::<Vec<_>>(), 1);
    let slots = c.tape.group_all_slots(near, Rows::fixed(v))?;
    let roots = c.tape.group_all_slots(root, Rows::fixed(v))?;
    let similar: Vec<u32> = (0..v * s).map(|i| if i % 3 == 0 { NONE } else { c.below(v) as u32 }).collect();
    let common: Vec<u32> =
        similar.iter().map(|&of| if of == NONE { 0 } else { 1 + c.below(3) as u32 }).collect();
    let lists = Spec::ids(Rows::fixed(v), s);
    let (similar, common) = (c.values(lists, &similar), c.values(lists, &common));
    c.tape.count_common(CommonVars { node, slots, roots, root, near }, [similar, common])?;
    Ok(Built { states: vec![similar, common], ..Built::default() })
}
