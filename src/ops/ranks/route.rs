//! Groups a list of nodes by the rank that owns them
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node` | `[n]` u32 below `v`, or [`NONE`] | nodes |
//! | `limit` | `[1]` u32, optional | only the first `limit` rows count |
//! | `rank_of`, `row_of` | `[v]` u32, optional | for each node, its owner, and its row in the owner's tables; without them, node i is on rank i mod ranks, in row i / ranks |
//! | count | `[1]` u32 | number of listed nodes |
//! | order | `[<= n]` u32 | rows of `node`, those of rank 0's nodes first, each rank's in their order; without `NONE` |
//! | row | `[<= n]` u32 | rows in their owners' tables: `row_of[node[order]]` |
//! | counts | `[ranks]` u32 | number of nodes of each rank |
//! | position | `[n]` u32 | for each row of `node`, its position in `order`; `NONE` for a row that is not listed |
//!
//! Source: the two maps of Sven, section 4.1.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Route {
    ranks: usize,
    /// Number of nodes, if their owners are interleaved; else there are maps.
    interleaved: Option<usize>,
}

/// Who owns which node.
#[derive(Clone, Copy, Debug)]
pub enum Owners {
    /// `[v]` u32 each: for each node, its owner, and its row in the owner's tables.
    Listed(Var, Var),
    /// This many nodes, interleaved: node i is on rank i mod ranks, in row i / ranks.
    Interleaved(usize),
}

impl From<(Var, Var)> for Owners {
    fn from((rank_of, row_of): (Var, Var)) -> Self {
        Owners::Listed(rank_of, row_of)
    }
}

/// Nodes grouped by their owners.
#[derive(Clone, Copy, Debug)]
pub struct Routes {
    /// Rows of the list of nodes, grouped by owner.
    pub order: Var,
    /// Row of each of these nodes in its owner's tables.
    pub row: Var,
    /// Number of nodes of each owner.
    pub counts: Var,
    /// For each row of the list of nodes, its position in `order`.
    pub position: Var,
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const COUNT: usize = 0;
    pub(in crate::ops) const ORDER: usize = 1;
    pub(in crate::ops) const ROW: usize = 2;
    pub(in crate::ops) const COUNTS: usize = 3;
    pub(in crate::ops) const POSITION: usize = 4;
}

impl Tape {
    /// Appends [`Route`] for nodes of `ranks` ranks; `owners` may be `(rank_of, row_of)`. With `limit`, u32
    /// `[1]`, only that many of the first nodes count.
    ///
    /// # Errors
    /// `Shape` if types or rows differ.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
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
    pub fn route(
        &mut self,
        node: Var,
        owners: impl Into<Owners>,
        ranks: usize,
        limit: Option<Var>,
    ) -> Result<Routes> {
        let (maps, interleaved) = match owners.into() {
            Owners::Listed(rank_of, row_of) => (vec![rank_of, row_of], None),
            Owners::Interleaved(nodes) => (Vec::new(), Some(nodes)),
        };
        let ins: Vec<Var> = std::iter::once(node).chain(maps).chain(limit).collect();
        let outs = self.push(Route { ranks, interleaved }, &ins)?;
        let [order, row, counts, position] =
            [output::ORDER, output::ROW, output::COUNTS, output::POSITION].map(|at| outs[at]);
        Ok(Routes { order, row, counts, position })
    }
}

impl Route {
    /// Returns the position of the limit.
    fn limit_at(&self) -> usize {
        if self.interleaved.is_some() { at!(rank_of) } else { at!(row_of) + 1 }
    }
    /// Returns how many of the first nodes count.
    fn limit(&self, io: &Io<'_>) -> usize {
        let at = self.limit_at();
        let limit = if io.inputs() > at { io.input::<u32>(at)[0] } else { u32::MAX };
        io.rows(at!(node)).min(limit as usize)
    }
    /// Returns the number of nodes, and a function that returns the owner of a node and its row there.
    fn owners<'a>(&self, io: &'a Io<'_>) -> (usize, impl Fn(usize) -> (usize, u32) + 'a) {
        let (ranks, interleaved) = (self.ranks, self.interleaved);
        let maps = match interleaved {
            None => [at!(rank_of), at!(row_of)].map(|at| io.input::<u32>(at)),
            Some(_) => [&[][..]; 2],
        };
        let of = move |v: usize| match interleaved {
            None => (maps[0][v] as usize, maps[1][v]),
            Some(_) => (v % ranks, (v / ranks) as u32),
        };
        (interleaved.unwrap_or(maps[0].len()), of)
    }
}

impl Op for Route {
    const NAME: &'static str = "route";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, rank_of? [V] ids, row_of? [V] ids, limit? [1] ids \
        -> count [1] ids, order [n] ids by count, row [n] ids by count, counts [r] ids, position [n] ids";
    fn sizes(&self) -> Sizes {
        vec![("r", Rows::fixed(self.ranks))]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        (operand != "limit").then_some(self.interleaved.is_none())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "interleaved nodes", self.interleaved.unwrap_or(0))?;
        countable(Self::NAME, "nodes", ins[at!(node)].len())?;
        countable(Self::NAME, "ranks", self.ranks)?;
        ensure!(
            Self::NAME,
            self.ranks > 0 || self.interleaved.is_none(),
            "no rank to own the interleaved nodes"
        );
        Ok(())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, limit) = (io.input::<u32>(at!(node)), self.limit(io));
        let (nodes, owner_of) = self.owners(io);
        let (order, row) = (io.out::<u32>(output::ORDER), io.out::<u32>(output::ROW));
        let (counts, position) = (io.out::<u32>(output::COUNTS), io.out::<u32>(output::POSITION));
        let mut listed = 0;
        for (rank, count) in counts.iter_mut().enumerate() {
            let before = listed;
            for (i, &v) in node[..limit].iter().enumerate() {
                // Faults are reported once.
                let v = if rank == 0 { io.row_of(i, v, nodes) } else { Some(v as usize) };
                let Some((owner, at)) = v.filter(|&v| v < nodes).map(&owner_of) else { continue };
                if owner == rank {
                    (order[listed], row[listed]) = (i as u32, at);
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
        let (node, limit) = (io.input::<u32>(at!(node)), self.limit(io));
        let (nodes, owner_of) = self.owners(io);
        let (order, row) = (io.out::<u32>(output::ORDER), io.out::<u32>(output::ROW));
        let (counts, position) = (io.out::<u32>(output::COUNTS), io.out::<u32>(output::POSITION));
        // The owner of the node in each row; `ranks` if it has none.
        let owner =
            |i: usize, v: u32| io.row_of(i, v, nodes).map_or(self.ranks, |v| owner_of(v).0.min(self.ranks));
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
            (order[*at as usize], row[*at as usize]) = (i as u32, owner_of(node[i] as usize).1);
            *position = std::mem::replace(at, *at + 1);
        }
        io.out::<u32>(output::COUNT)[0] = counts.iter().sum();
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let limit = if on.inputs() > self.limit_at() { on.input(self.limit_at()) } else { std::ptr::null() };
        let (nodes, [rank_of, row_of]) = match self.interleaved {
            Some(nodes) => (nodes, [std::ptr::null(); 2]),
            None => (on.capacity(at!(rank_of)), [on.input(at!(rank_of)), on.input(at!(row_of))]),
        };
        launch!(
            k, on, route[Grid::new(1, 1024)];
            on.input(at!(node)), rank_of, row_of, limit, on.needed(output::COUNT), on.needed(output::ORDER),
            on.needed(output::ROW), on.needed(output::COUNTS), on.needed(output::POSITION),
            on.rows(at!(node)), nodes as u32, self.ranks as u32, on.status()
        )
    }
}

/// `[nodes, list, ranks, NONEs (every n-th)]`, and optionally the limit, and 1 if ranks own nodes in turn
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 9],
    &[9, 20, 3, 4],
    &[9, 0, 2, 9],
    &[500, 700, 8, 7],
    &[9, 20, 3, 4, 11],
    &[9, 5, 2, 9, 0],
    &[9, 20, 3, 4, 11, 1],
    &[500, 700, 8, 7, 700, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 1_500, 4, 1_000_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (v, n, ranks, none) = (dims[0], dims[1], dims[2], dims[3]);
    let nodes: Vec<u32> = (1..=n).map(|i| if i % none == 0 { NONE } else { c.below(v) as u32 }).collect();
    let node = c.ids(&nodes, 1);
    let owners = match dims.get(5) {
        Some(_) => Owners::Interleaved(v),
        None => (c.ids_below(v, ranks), c.ids_below(v, v)).into(),
    };
    let limit = dims.get(4).map(|&limit| c.count(limit));
    let routed = c.tape.route(node, owners, ranks, limit)?;
    Ok(Built::new(&[routed.order, routed.row, routed.counts, routed.position], &[]))
}
