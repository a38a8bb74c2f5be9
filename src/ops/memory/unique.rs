//! `V_u`, `Psi` and `Phi`: the unique nodes of a batch, the row of each occurrence among them, and the latest
//! event of each node.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `stamp` | `[v]` u32, state | working memory, all zero between runs |
//! | `roots` | `[(2 + m) b]` u32 | event by event: two positives, m negatives; or a list of positives, if m is 0 |
//! | `others` | any number of `[n, k]` u32 | neighbours; [`NONE`] is skipped here and among the roots |
//! | counts | three `[1]` u32 | number of unique nodes; of those among the roots; of those among the positive roots |
//! | unique | `[<= v]` u32 | positive roots first, then negatives, then the others, each class in order of first appearance |
//! | phi | `[<= v]` u32 | latest row of `roots` that holds the node as a positive; `NONE` for other nodes |
//! | psi | one for each of `roots` and `others`, same shape | row of the occurrence in `unique`, or `NONE` |
//!
//! With *occurrences* in place of unique nodes, every occurrence has a row of its own: it is the only one of
//! its node, and phi is its own row of `roots`. Results are the same, with more rows: the baseline to measure
//! what removing the repeated ones saves.
//!
//! In this order, the nodes of the roots and the nodes whose memory is written are prefixes of the rows.
//! Linear time, by direct addressing with `stamp`. Source: Sven, Algorithm 2 (V_u, Phi, Psi); the order of
//! the classes is ours.
use super::*;
use crate::runtime::cuda::abi;

/// See the [module](self).
#[derive(Debug)]
pub struct Unique {
    /// Roots per event.
    stride: usize,
    /// Nodes of the table, one stamp each.
    nodes: usize,
    /// Whether every occurrence has a row of its own.
    repeated: bool,
}

/// Positions of the outputs; psi of input `i` is output `PSI + i - 1`.
mod output {
    pub(in crate::ops) const COUNT: usize = 0;
    pub(in crate::ops) const ROOT_COUNT: usize = 1;
    pub(in crate::ops) const POSITIVES: usize = 2;
    pub(in crate::ops) const UNIQUE: usize = 3;
    pub(in crate::ops) const PHI: usize = 4;
    pub(in crate::ops) const PSI: usize = 5;
}

/// Unique nodes of a batch.
#[derive(Clone, Debug)]
pub struct UniqueNodes {
    /// `[<= v]` u32 node ids.
    pub node: Var,
    /// Rows of all unique nodes.
    pub rows: Rows,
    /// Rows of the unique nodes among the roots, a prefix of `rows`.
    pub root_rows: Rows,
    /// `[<= v]` u32 latest root of each positive.
    pub phi: Var,
    /// `[1]` u32 number of unique positive roots.
    pub positives: Var,
    /// Psi of the roots, then of each of the others.
    pub psi: Vec<Var>,
}

impl Tape {
    /// Appends [`Unique`] for `stride` roots per event: lists the nodes of `roots` and `others` once each,
    /// and the row of every occurrence. `stamp`, u32 `[v]`, is zero before and after a run.
    ///
    /// # Errors
    /// `Shape` if an input is not u32, if the stamps are not one column, if `stride` is 0, or if there are
    /// too many ids.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let roots = tape.input(&mut store, "roots", Spec::ids(Rows::fixed(4), 1), &[4u32, 7, 4, 9])?;
    /// let neighbors = tape.input(&mut store, "neighbors", Spec::ids(Rows::fixed(1), 2), &[7u32, 3])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(10), 1))?;
    /// let stamp = tape.stored(stamp)?;
    /// let nodes = tape.unique(stamp, roots, &[neighbors], 2)?; // the events (4, 7) and (4, 9)
    /// let keep = [nodes.node, nodes.phi, nodes.psi[0], nodes.psi[1]];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(nodes.node, &store)?, [4, 7, 9, 3]);
    /// assert_eq!(program.read::<u32>(nodes.phi, &store)?, [2, 1, 3, NONE]); // latest roots
    /// assert_eq!(program.read::<u32>(nodes.psi[0], &store)?, [0, 1, 0, 2]); // rows of the roots
    /// assert_eq!(program.read::<u32>(nodes.psi[1], &store)?, [1, 3]); // rows of the neighbours
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn unique(&mut self, stamp: Var, roots: Var, others: &[Var], stride: usize) -> Result<UniqueNodes> {
        self.push_unique(stamp, roots, others, stride, false)
    }
    /// [`unique`](Self::unique), but with a row for every occurrence of a node.
    ///
    /// # Errors
    /// As [`unique`](Self::unique).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let roots = tape.input(&mut store, "roots", Spec::ids(Rows::fixed(4), 1), &[4u32, 7, 4, 9])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(10), 1))?;
    /// let stamp = tape.stored(stamp)?;
    /// let nodes = tape.occurrences(stamp, roots, &[], 2)?;
    /// let keep = [nodes.node, nodes.phi, nodes.psi[0]];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(nodes.node, &store)?, [4, 7, 4, 9]);
    /// assert_eq!(program.read::<u32>(nodes.phi, &store)?, [0, 1, 2, 3]);
    /// assert_eq!(program.read::<u32>(nodes.psi[0], &store)?, [0, 1, 2, 3]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn occurrences(
        &mut self,
        stamp: Var,
        roots: Var,
        others: &[Var],
        stride: usize,
    ) -> Result<UniqueNodes> {
        self.push_unique(stamp, roots, others, stride, true)
    }
    fn push_unique(
        &mut self,
        stamp: Var,
        roots: Var,
        others: &[Var],
        stride: usize,
        repeated: bool,
    ) -> Result<UniqueNodes> {
        self.check(Unique::NAME, stamp)?;
        let nodes = self.spec(stamp).rows.capacity;
        let ins: Vec<Var> = [stamp, roots].iter().chain(others).copied().collect();
        let outs = self.push(Unique { stride, nodes, repeated }, &ins)?;
        let node = outs[output::UNIQUE];
        let capacity = self.spec(node).rows.capacity;
        let root_capacity = capacity.min(self.spec(roots).len());
        Ok(UniqueNodes {
            node,
            rows: Rows::live(capacity, outs[output::COUNT]),
            root_rows: Rows::live(root_capacity, outs[output::ROOT_COUNT]),
            phi: outs[output::PHI],
            positives: outs[output::POSITIVES],
            psi: outs[output::PSI..].to_vec(),
        })
    }
}

/// Division of the occurrences among blocks: one tile per block of 256 threads, which goes over it in
/// `rounds` rounds.
struct Tiles {
    tiles: usize,
    rounds: u32,
}

impl Tiles {
    const THREADS: u32 = 256;
    /// Maximum number of tiles: every block adds up the sums of all tiles by itself.
    const MOST: usize = 1024;

    /// Divides `n` occurrences.
    fn new(n: usize) -> Self {
        let pieces = n.div_ceil(Self::THREADS as usize);
        let rounds = pieces.div_ceil(Self::MOST).max(1);
        Tiles { tiles: pieces.div_ceil(rounds).max(1), rounds: rounds as u32 }
    }
    /// Returns the number of 32-bit words of a bit mask of `n` occurrences.
    fn words(n: usize) -> usize {
        n.div_ceil(32)
    }
}

impl Op for Unique {
    const NAME: &'static str = "unique";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "stamp [v] ids state, roots [n, k] ids, {others [m, l] ids} ->";
    fn sizes(&self) -> Sizes {
        vec![("v", Rows::fixed(self.nodes))]
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        signature::infer(self, ins)?;
        ensure!(Self::NAME, self.stride > 0, "0 roots per event, want one or more");
        let lists = &ins[at!(roots)..];
        let occurrences: usize = lists.iter().map(Spec::len).sum();
        for (what, n) in [("nodes", self.nodes), ("ids", occurrences), ("roots per event", self.stride)] {
            countable(Self::NAME, what, n)?;
        }
        let most = if self.repeated { occurrences } else { self.nodes.min(occurrences) };
        let rows = Spec::ids(Rows::fixed(most), 1);
        let (count, counted) = (Out::from(Spec::count()), Out::counted_by(rows, output::COUNT));
        let mut outs = vec![count, count, count, counted, counted];
        outs.extend(lists.iter().map(|&s| Out::from(s)));
        Ok(outs)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let n = ins[at!(roots)..].iter().map(Spec::len).sum();
        2 * Tiles::words(n) + Tiles::new(n).tiles
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let n: usize = ins[at!(roots)..].iter().map(Spec::len).sum();
        Cost { bytes: 16 * n + 12 * outs[output::UNIQUE].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (stamp, roots) = (io.state::<u32>(at!(stamp)), io.input::<u32>(at!(roots)));
        let (unique, phi) = (io.out::<u32>(output::UNIQUE), io.out::<u32>(output::PHI));
        let mut n = 0;
        // Returns the row of node `v`, a new row on its first appearance. The stamp of a node is its row plus
        // one.
        let mut row_of = |at: usize, v: u32| -> u32 {
            let Some(v) = io.row_of(at, v, stamp.len()) else { return NONE };
            if self.repeated {
                unique[n] = v as u32;
                n += 1;
                return n as u32 - 1;
            }
            if stamp[v] == 0 {
                unique[n] = v as u32;
                n += 1;
                stamp[v] = n as u32;
            }
            // The stamp was not zero before the run: there is no such row.
            if stamp[v] as usize > n {
                io.fault(at, Fault::OutOfRange(stamp[v]));
                return NONE;
            }
            stamp[v] - 1
        };
        let psi = io.out::<u32>(output::PSI);
        // Goes over the positive or the negative roots; returns the number of rows up to the last of theirs.
        let mut add_roots = |positive: bool| {
            let mut rows = 0;
            for (i, &v) in roots.iter().enumerate().filter(|(i, _)| (i % self.stride < 2) == positive) {
                psi[i] = row_of(i, v);
                if psi[i] != NONE {
                    rows = rows.max(psi[i] as usize + 1);
                    if positive {
                        phi[psi[i] as usize] = i as u32;
                    }
                }
            }
            rows
        };
        let positives = add_roots(true);
        let root_rows = add_roots(false).max(positives);
        for other in at!(others)..io.inputs() {
            let ids = io.input::<u32>(other);
            let psi = io.out::<u32>(output::PSI + other - at!(roots));
            for (i, (psi, &v)) in psi.iter_mut().zip(ids).enumerate() {
                *psi = row_of(i, v);
            }
        }
        for (count, rows) in
            [(output::COUNT, n), (output::ROOT_COUNT, root_rows), (output::POSITIVES, positives)]
        {
            io.out::<u32>(count)[0] = rows as u32;
        }
        phi[positives..n].fill(NONE);
        unique[..n].iter().for_each(|&v| stamp[v as usize] = 0);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let ids = self.id_lists(on)?;
        let n: usize = (at!(roots)..on.inputs()).map(|i| on.spec(i).len()).sum();
        let Tiles { tiles, rounds } = Tiles::new(n);
        let (words, tile_items) = (Tiles::words(n), rounds * Tiles::THREADS);
        let (stamp, nodes, phi) = (on.state(at!(stamp)), self.nodes as u32, on.needed(output::PHI));
        // `scratch` declares the memory of all three.
        let firsts = on.scratch().cast::<u32>();
        let (before, sums) = (firsts.wrapping_add(words), firsts.wrapping_add(2 * words));
        let (items, status) = (Grid::items(n), on.status());
        launch!(k, on, unique_mark[items]; ids, stamp, nodes, status)?;
        let (grid, capacity) = (Grid::new(tiles, Tiles::THREADS), on.out_cap(output::UNIQUE) as u32);
        launch!(k, on, unique_first[grid]; ids, stamp, nodes, phi, capacity, firsts, before, sums, rounds)?;
        let (unique, count) = (on.needed(output::UNIQUE), on.needed(output::COUNT));
        let (roots, positives) = (on.needed(output::ROOT_COUNT), on.needed(output::POSITIVES));
        let tiles = tiles as u32;
        launch!(
            k, on, unique_rows[items];
            ids, stamp, firsts, before, sums, tiles, tile_items, unique, phi, count, roots, positives,
            status
        )
    }
}

impl Unique {
    /// Returns the lists of ids, with the outputs for their rows, as kernels take them. Entries beyond the
    /// last list repeat it.
    ///
    /// # Errors
    /// `Device` if there are more lists than a launch takes.
    fn id_lists(&self, on: &Launch<'_>) -> Result<abi::IdLists> {
        let lists = on.inputs() - at!(roots);
        if lists > abi::IdLists::MOST {
            return Err(Error::new(
                ErrorKind::Device,
                format!("unique has {lists} lists of ids, a launch takes at most {}", abi::IdLists::MOST),
            ));
        }
        let id_lists = std::array::from_fn(|list| {
            let list = list.min(lists - 1);
            let (i, psi) = (at!(roots) + list, output::PSI + list);
            abi::IdList { ids: on.input(i), psi: on.needed(psi), rows: on.rows(i), cols: on.cols(i).into() }
        });
        Ok(abi::IdLists {
            of: id_lists,
            lists: lists as u16,
            stride: self.stride as u32,
            repeated: self.repeated.into(),
        })
    }
}

/// `[nodes, events, slots per root]`. An optional fourth number is the number of roots per event, otherwise
/// 3; with it, the roots also are one of the `others`. An optional fifth number n makes every n-th root
/// `NONE`. One case has more occurrences than 1,024 blocks handle in one round. Every case lists the
/// occurrences, too.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1],
    &[6, 0, 2],
    &[9, 4, 2],
    &[9, 4, 1, 2],
    // An even case: the thread sanitizer, which has the odd ones, would take a minute for it.
    &[700, 8_000, 6, 5],
    &[500, 40, 10],
    &[9, 4, 1, 2, 1],
    &[9, 40, 1, 2, 3],
    &[90, 400, 2, 5, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 600, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (v, b, k, stride, none) = match *dims {
        [v, b, k] => (v, b, k, None, usize::MAX),
        [v, b, k, stride] => (v, b, k, Some(stride), usize::MAX),
        [v, b, k, stride, none] => (v, b, k, Some(stride), none),
        _ => return Err(Error::shape("unique", "three to five sizes")),
    };
    let stamp = c.ids(&vec![0; v], 1);
    let n = stride.unwrap_or(3) * b;
    let roots: Vec<u32> = (1..=n).map(|i| if i % none == 0 { NONE } else { c.below(v) as u32 }).collect();
    let roots = c.ids(&roots, 1);
    let slots: Vec<u32> = (0..n * k).map(|i| if i % 4 == 3 { NONE } else { c.below(v) as u32 }).collect();
    let slots = c.values(Spec::ids(Rows::fixed(n), k), &slots);
    let others = [slots, roots];
    let others = &others[..1 + usize::from(stride.is_some())];
    let stride = stride.unwrap_or(3);
    let all =
        [c.tape.unique(stamp, roots, others, stride)?, c.tape.occurrences(stamp, roots, others, stride)?];
    let outs = all.into_iter().flat_map(|d| [vec![d.node, d.phi, d.positives], d.psi].concat()).collect();
    Ok(Built { outs, states: vec![stamp], ..Built::default() })
}
