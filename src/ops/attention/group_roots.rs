//! Groups the roots with neighbours by query: `order[starts[q]..starts[q + 1]]` are the roots of query `q`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `query` | `[n]` u32 | row of the root's query, or [`NONE`]; not read if the root has no neighbours |
//! | `queries` | `[1]` u32, only if the number of queries is live | number of queries |
//! | `count` | `[n]` u32, optional | number of neighbours of the root; without it every root with a query is grouped |
//! | starts | `[q + 1]` u32 | start of each query's roots in `order` |
//! | order | `[m]` u32 | the m roots with neighbours; the roots of a query are consecutive and ascending |
//! | position | `[n]` u32 | index of the root in `order`, or [`NONE`] |
//! | m | `[1]` u32 | number of grouped roots |
//! | own | `[m]` u32 | row of the query of each root in `order` |
//!
//! Roots of the same node share their query and most of their neighbours, so an op that processes the roots
//! in this order finds its operands in cache, and roots without neighbours cost it nothing. Deterministic: a
//! counting sort.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct GroupRoots {
    queries: Rows,
    counted: bool,
}

/// The roots with neighbours, grouped by query.
#[derive(Clone, Copy, Debug)]
pub struct RootGroups {
    /// `[q + 1]` u32 starts of the groups in `order`.
    pub starts: Var,
    /// `[m]` u32 roots, group by group.
    pub order: Var,
    /// `[n]` u32 indices in `order`, or `NONE`.
    pub position: Var,
    /// `[m]` u32 rows of the queries of the roots in `order`.
    pub own: Var,
}

impl Tape {
    /// Appends [`GroupRoots`]; `queries` are the rows of the queries. The op does not read the queries
    /// themselves, so it can run before they are computed.
    ///
    /// # Errors
    /// `Shape` if `query` or `count` is not u32 `[n]`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let query = tape.input(&mut store, "query", Spec::ids(Rows::fixed(3), 1), &[1u32, 0, 1])?;
    /// let count = tape.input(&mut store, "count", Spec::ids(Rows::fixed(3), 1), &[2u32, 0, 5])?;
    /// let grouped = tape.group_roots(query, count, Rows::fixed(2))?;
    /// let keep = [grouped.starts, grouped.order, grouped.position, grouped.own];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(grouped.starts, &store)?, [0, 0, 2]);
    /// assert_eq!(program.read::<u32>(grouped.order, &store)?, [0, 2]); // root 1 has no neighbours
    /// assert_eq!(program.read::<u32>(grouped.position, &store)?, [0, NONE, 1]);
    /// assert_eq!(program.read::<u32>(grouped.own, &store)?, [1, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn group_roots(
        &mut self,
        query: Var,
        count: impl Into<Option<Var>>,
        queries: Rows,
    ) -> Result<RootGroups> {
        let count = count.into();
        let ins: Vec<Var> = [query].into_iter().chain(queries.live.map(|l| l.var)).chain(count).collect();
        let o = self.push(GroupRoots { queries, counted: count.is_some() }, &ins)?;
        Ok(RootGroups { starts: o[0], order: o[1], position: o[2], own: o[4] })
    }
}

impl GroupRoots {
    /// Creates the op for the rows `queries`. If `counted`, roots without neighbours are left out.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::{Call, group_roots::GroupRoots}, runtime::Rows};
    /// let op = GroupRoots::new(Rows::fixed(2), false);
    /// let (mut starts, mut order, mut position) = ([0; 3], [0; 3], [0; 3]);
    /// let (mut listed, mut own) = ([0], [0; 3]);
    /// Call::new(&op)
    ///     .input(&[1u32, 0, 1], [3, 1])?
    ///     .output::<u32>(&mut starts)?
    ///     .output::<u32>(&mut order)?
    ///     .output::<u32>(&mut position)?
    ///     .output::<u32>(&mut listed)?
    ///     .output::<u32>(&mut own)?
    ///     .run()?;
    /// assert_eq!((starts, order, position), ([0, 1, 3], [1, 0, 2], [1, 0, 2]));
    /// assert_eq!((listed, own), ([3], [0, 1, 1]));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn new(queries: Rows, counted: bool) -> Self {
        GroupRoots { queries, counted }
    }
    /// Returns the position of the input `count`, if it is given.
    fn count(&self) -> Option<usize> {
        self.counted.then_some(1 + usize::from(self.queries.live.is_some()))
    }
}

impl Op for GroupRoots {
    const NAME: &'static str = "group_roots";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "query [n] ids, queries? [1] ids, count? [n] ids \
        -> starts [q + 1] ids, order [n] ids by m, position [n] ids, m [1] ids, own [n] ids by m";
    fn sizes(&self) -> Sizes {
        vec![("q", self.queries)]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "queries" => self.queries.live.is_some(),
            _ => self.counted,
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "roots", ins[0].rows.capacity)?;
        countable(Self::NAME, "queries", self.queries.capacity)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (5 * ins[0].len() + 2 * outs[0].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (query, count) = (io.input::<u32>(0), self.count().map(|i| io.input::<u32>(i)));
        let queries = io.live_rows(self.queries, 1);
        let (starts, order, position) = (io.out::<u32>(0), io.out::<u32>(1), io.out::<u32>(2));
        let with_neighbors = (0..query.len()).filter(|&i| count.is_none_or(|count| count[i] > 0));
        let by_query = with_neighbors.filter_map(|i| Some((i, io.row_of(i, query[i], queries)?)));
        let m = group(by_query, queries, starts, order);
        io.out::<u32>(3)[0] = m;
        position.fill(NONE);
        for (at, own) in io.out::<u32>(4)[..m as usize].iter_mut().enumerate() {
            let root = order[at] as usize;
            (position[root], *own) = (at as u32, query[root]);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (query, starts, order, position) = (on.input(0), on.needed(0), on.needed(1), on.needed(2));
        let count = self.count().map_or(std::ptr::null(), |i| on.input(i));
        let (own, roots, queries) = (on.out(4), on.rows(0), on.live_rows(self.queries, 1));
        launch!(
            k, on, group_roots[grouping(self.queries.capacity)];
            query, count, starts, order, position, own, on.needed(3), roots, queries, on.status()
        )
    }
    fn vjp(&self, _: &mut Tape, node: &Node, _: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![None; node.ins.len()])
    }
}

/// Returns the grid of the kernels that group items by one of `keys` keys. Every block reads all items.
pub(in crate::ops) fn grouping(keys: usize) -> Grid {
    /// Keys for which a block is worth starting, and blocks beyond which they get more keys each.
    const KEYS: usize = 32;
    const BLOCKS: usize = 64;
    /// Maximum number of keys of a block; the same as in the kernels.
    const MOST_KEYS: usize = 2048;
    Grid::new(keys.div_ceil(KEYS).min(BLOCKS).max(keys.div_ceil(MOST_KEYS)), 1024)
}

/// Groups `(item, key)` pairs by their key, a number below `keys`: `order[starts[key]..starts[key + 1]]`
/// lists the items of a key in the order of `items`. Returns the number of items, which also fills the starts
/// beyond `keys`.
pub(in crate::ops) fn group(
    items: impl Iterator<Item = (usize, usize)> + Clone,
    keys: usize,
    starts: &mut [u32],
    order: &mut [u32],
) -> u32 {
    starts[..=keys].fill(0);
    items.clone().for_each(|(_, key)| starts[key + 1] += 1);
    for key in 0..keys {
        starts[key + 1] += starts[key];
    }
    items.for_each(|(item, key)| {
        order[starts[key] as usize] = item as u32;
        starts[key] += 1;
    });
    let total = starts[keys];
    starts.copy_within(0..keys, 1); // every start has advanced to the end of its group, the start of the next
    starts[0] = 0;
    starts[keys..].fill(total);
    total
}

/// `[roots, queries]`; every fourth root has no neighbours, and the capacity is three queries more. With a
/// third number, 0, there is no `count`, and every fourth root has no query.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1], &[0, 2], &[9, 4], &[9, 4, 0], &[200, 33], &[5_000, 40], &[20_000, 3, 0], &[200, 5_000]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 700]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, queries] = dims[..2] else { return Err(Error::shape("group_roots", "want two or three sizes")) };
    let counts: Vec<u32> = (0..n).map(|i| (i % 4) as u32).collect();
    let roots: Vec<u32> =
        counts.iter().map(|&k| if k == 0 { NONE } else { c.unevenly_below(queries) as u32 }).collect();
    let (query, count, live) = (c.ids(&roots, 1), c.ids(&counts, 1), c.count(queries));
    let count = (dims.len() == 2).then_some(count);
    let g = c.tape.group_roots(query, count, Rows::live(queries + 3, live))?;
    Ok(Built::new(&[g.starts, g.order, g.position, g.own], &[]))
}
