//! Groups a list of nodes by the rank that owns them
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node` | `[n]` u32 below `v`, or [`NONE`] | nodes |
//! | `limit` | `[1]` u32, optional | only the first `limit` rows count |
//! | `rank_of`, `row_of` | `[v]` u32 | for each node, its owner, and its row in the owner's tables |
//! | count | `[1]` u32 | number of listed nodes |
//! | order | `[<= n]` u32 | rows of `node`, those of rank 0's nodes first, each rank's in their order; without `NONE` |
//! | row | `[<= n]` u32 | `row_of[node[order]]` |
//! | counts | `[ranks]` u32 | number of nodes of each rank |
//! | position | `[n]` u32 | for each row of `node`, its position in `order`; `NONE` for a row that is not listed |
//!
//! Source: the two maps of Sven, section 4.1.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Route {
    ranks: usize,
}

/// Nodes grouped by their owners.
#[derive(Clone, Copy, Debug)]
pub struct Routed {
    /// Rows of the list of nodes, grouped by owner.
    pub order: Var,
    /// Row of each of these nodes in its owner's tables.
    pub row: Var,
    /// Number of nodes of each owner.
    pub counts: Var,
    /// For each row of the list of nodes, its position in `order`.
    pub position: Var,
}

/// Positions of the inputs.
mod input {
    pub(super) const NODE: usize = 0;
    pub(super) const RANK_OF: usize = 1;
    pub(super) const ROW_OF: usize = 2;
    pub(super) const LIMIT: usize = 3;
}

/// Positions of the outputs.
mod output {
    pub(super) const COUNT: usize = 0;
    pub(super) const ORDER: usize = 1;
    pub(super) const ROW: usize = 2;
    pub(super) const COUNTS: usize = 3;
    pub(super) const POSITION: usize = 4;
}

impl Tape {
    /// Appends [`Route`] for nodes of `ranks` ranks; `maps` is `(rank_of, row_of)`. With `limit`, u32 `[1]`,
    /// only that many of the first nodes count.
    ///
    /// # Errors
    /// `Shape` if types or rows differ.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let node = tape.input(&mut store, "node", ids(3), &[3u32, 0, 1])?;
    /// let rank_of = tape.input(&mut store, "rank of", ids(4), &[0u32, 1, 0, 1])?;
    /// let row_of = tape.input(&mut store, "row of", ids(4), &[0u32, 0, 1, 1])?;
    /// let routed = tape.route(node, (rank_of, row_of), 2, None)?;
    /// let keep = [routed.order, routed.row, routed.counts, routed.position];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(routed.order, &store)?, [1, 0, 2]); // node 0, then nodes 3 and 1
    /// assert_eq!(program.read::<u32>(routed.row, &store)?, [0, 1, 0]);
    /// assert_eq!(program.read::<u32>(routed.counts, &store)?, [1, 2]);
    /// assert_eq!(program.read::<u32>(routed.position, &store)?, [1, 0, 2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn route(&mut self, node: Var, maps: (Var, Var), ranks: usize, limit: Option<Var>) -> Result<Routed> {
        let ins: Vec<Var> = [node, maps.0, maps.1].into_iter().chain(limit).collect();
        let outs = self.push(Route { ranks }, &ins)?;
        let [order, row, counts, position] =
            [output::ORDER, output::ROW, output::COUNTS, output::POSITION].map(|at| outs[at]);
        Ok(Routed { order, row, counts, position })
    }
}

impl Op for Route {
    const NAME: &'static str = "route";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, ins.len().clamp(3, 4))?;
        let (node, nodes) = (ins[input::NODE], ins[input::RANK_OF].rows.capacity);
        ensure!(Self::NAME, node == Spec::ids(node.rows, 1), "node is {node}, want one column of U32");
        for (what, map) in [("rank_of", &ins[input::RANK_OF]), ("row_of", &ins[input::ROW_OF])] {
            typed(Self::NAME, what, map, DType::U32)?;
            shaped(Self::NAME, what, map, nodes, 1)?;
        }
        if let Some(limit) = ins.get(input::LIMIT) {
            ensure!(Self::NAME, *limit == Spec::count(), "limit is {limit}, want {}", Spec::count());
        }
        countable(Self::NAME, "nodes", node.len())?;
        countable(Self::NAME, "ranks", self.ranks)?;
        let listed = Out::counted_by(Spec::ids(Rows::fixed(node.rows.capacity), 1), output::COUNT);
        let counts = Spec::ids(Rows::fixed(self.ranks), 1);
        Ok(vec![Spec::count().into(), listed, listed, counts.into(), node.into()])
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, rank_of) = (io.input::<u32>(input::NODE), io.input::<u32>(input::RANK_OF));
        let row_of = io.input::<u32>(input::ROW_OF);
        let limit = if io.inputs() > input::LIMIT { io.input::<u32>(input::LIMIT)[0] } else { u32::MAX };
        let limit = node.len().min(limit as usize);
        let (order, row) = (io.out::<u32>(output::ORDER), io.out::<u32>(output::ROW));
        let (counts, position) = (io.out::<u32>(output::COUNTS), io.out::<u32>(output::POSITION));
        let mut listed = 0;
        for (rank, count) in counts.iter_mut().enumerate() {
            let before = listed;
            for (i, &v) in node[..limit].iter().enumerate() {
                let Some(v) = (if rank == 0 { io.row_of(i, v, rank_of.len()) } else { Some(v as usize) })
                else {
                    continue;
                };
                if rank_of.get(v).is_some_and(|&owner| owner as usize == rank) {
                    (order[listed], row[listed]) = (i as u32, row_of[v]);
                    listed += 1;
                }
            }
            *count = (listed - before) as u32;
        }
        position.fill(NONE);
        order[..listed].iter().zip(0..).for_each(|(&i, at)| position[i as usize] = at);
        io.out::<u32>(output::COUNT)[0] = listed as u32;
    }
    fn cpu(&self, io: &Io<'_>) {
        let (node, rank_of) = (io.input::<u32>(input::NODE), io.input::<u32>(input::RANK_OF));
        let row_of = io.input::<u32>(input::ROW_OF);
        let limit = if io.inputs() > input::LIMIT { io.input::<u32>(input::LIMIT)[0] } else { u32::MAX };
        let limit = node.len().min(limit as usize);
        let (order, row) = (io.out::<u32>(output::ORDER), io.out::<u32>(output::ROW));
        let (counts, position) = (io.out::<u32>(output::COUNTS), io.out::<u32>(output::POSITION));
        // The owner of the node in each row; `ranks` if it has none.
        let owner = |i: usize, v: u32| {
            let owner = io.row_of(i, v, rank_of.len()).map_or(self.ranks, |v| rank_of[v] as usize);
            owner.min(self.ranks)
        };
        counts.fill(0);
        position.fill(NONE);
        // `position` holds the owners until the rows have their places.
        for (i, &v) in node[..limit].iter().enumerate() {
            let owner = owner(i, v);
            if owner < self.ranks {
                counts[owner] += 1;
                position[i] = owner as u32;
            }
        }
        let mut next: Vec<u32> =
            counts.iter().scan(0, |sum, &n| Some(std::mem::replace(sum, *sum + n))).collect();
        for (i, position) in position[..limit].iter_mut().enumerate().filter(|(_, owner)| **owner != NONE) {
            let at = &mut next[*position as usize];
            (order[*at as usize], row[*at as usize]) = (i as u32, row_of[node[i] as usize]);
            *position = std::mem::replace(at, *at + 1);
        }
        io.out::<u32>(output::COUNT)[0] = counts.iter().sum();
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let limit = if on.inputs() > input::LIMIT { on.input(input::LIMIT) } else { std::ptr::null() };
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.route(
                on,
                Grid::new(1, 1024),
                on.input(input::NODE),
                on.input(input::RANK_OF),
                on.input(input::ROW_OF),
                limit,
                on.kept(output::COUNT),
                on.kept(output::ORDER),
                on.kept(output::ROW),
                on.kept(output::COUNTS),
                on.kept(output::POSITION),
                on.rows(input::NODE),
                on.capacity(input::RANK_OF) as u32,
                self.ranks as u32,
                on.status(),
            )
        }
    }
}

/// `[nodes, list, ranks, NONEs (every n-th)]`, and optionally the limit
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 9], &[9, 20, 3, 4], &[9, 0, 2, 9], &[500, 700, 8, 7], &[9, 20, 3, 4, 11], &[9, 5, 2, 9, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 1_500, 4, 1_000_000]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (v, n, ranks, none) = (dims[0], dims[1], dims[2], dims[3]);
    let nodes: Vec<u32> = (1..=n).map(|i| if i % none == 0 { NONE } else { c.below(v) as u32 }).collect();
    let (node, rank_of, row_of) = (c.ids(&nodes, 1), c.ids_below(v, ranks), c.ids_below(v, v));
    let limit = dims.get(4).map(|&limit| c.count(limit));
    let routed = c.tape.route(node, (rank_of, row_of), ranks, limit)?;
    Ok(Built::new(&[routed.order, routed.row, routed.counts, routed.position], &[]))
}
