//! `V_u`, `Psi` and `Phi`: the unique nodes of a batch, where each occurrence lies among them, and each one's
//! latest event
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `stamp` | `[v]` u32, state | all zero between runs |
//! | `roots` | `[(2 + m) b]` u32 | event by event: two positives, m negatives; or a list of positives, m being 0 |
//! | `others` | any number of `[n, k]` u32 | neighbours; [`NONE`] is skipped, as among the roots |
//! | counts | three `[1]` u32 | unique nodes; those among the roots; those among the positive roots |
//! | unique | `[<= v]` u32 | positive roots first, then negatives, then the others, each in order of appearance |
//! | phi | `[<= v]` u32 | the latest row of `roots` that is this node as a positive; `NONE` for other nodes |
//! | psi | one for each of `roots` and `others`, same shape | row of the occurrence in `unique`, or `NONE` |
//!
//! So what concerns only the roots' nodes, or only those whose memory is written, is a prefix of the rows. Linear
//! time, by direct address. Source: Sven, Algorithm 2 (V_u, Phi, Psi); the order of the classes is ours.
use super::*;
use crate::runtime::cuda::abi;

/// See the [module](self).
#[derive(Debug)]
pub struct Unique {
    /// Roots an event.
    stride: usize,
    nodes: usize,
}

/// Unique nodes of a batch.
#[derive(Clone, Debug)]
pub struct UniqueNodes {
    /// `[<= v]` u32 node ids.
    pub node: Var,
    /// Rows of all unique nodes.
    pub rows: Rows,
    /// Rows of those among the roots.
    pub root_rows: Rows,
    /// `[<= v]` u32: the latest root of each positive.
    pub phi: Var,
    /// The number of unique positive roots, `[1]` u32.
    pub positives: Var,
    /// Psi of the roots, then of each of the others.
    pub psi: Vec<Var>,
}

impl Tape {
    /// Appends [`Unique`]; `stride` roots an event.
    ///
    /// # Errors
    /// `Shape` when an input is not u32 or the stamps are not one a node.
    pub fn unique(&mut self, stamp: Var, roots: Var, others: &[Var], stride: usize) -> Result<UniqueNodes> {
        self.check(Unique::NAME, stamp)?;
        let nodes = self.spec(stamp).rows.capacity;
        let ins: Vec<Var> = [stamp, roots].iter().chain(others).copied().collect();
        let o = self.push(Unique { stride, nodes }, &ins)?;
        let capacity = self.spec(o[3]).rows.capacity;
        let root_cap = capacity.min(self.spec(roots).len());
        Ok(UniqueNodes {
            node: o[3],
            rows: Rows::live(capacity, o[0]),
            root_rows: Rows::live(root_cap, o[1]),
            phi: o[4],
            positives: o[2],
            psi: o[5..].to_vec(),
        })
    }
}

/// How the kernels divide the occurrences: a block of 256 threads goes `rounds` times over a tile.
struct Tiles {
    tiles: usize,
    rounds: u32,
}

impl Tiles {
    const THREADS: u32 = 256;
    /// Tiles whose sums every block adds up by itself.
    const MOST: usize = 1024;

    fn of(n: usize) -> Self {
        let pieces = n.div_ceil(Self::THREADS as usize);
        let rounds = pieces.div_ceil(Self::MOST).max(1);
        Tiles { tiles: pieces.div_ceil(rounds).max(1), rounds: rounds as u32 }
    }
    /// Words of one bit an occurrence.
    fn words(n: usize) -> usize {
        n.div_ceil(32)
    }
}

impl Op for Unique {
    const NAME: &'static str = "unique";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(Self::NAME, ins.len() >= 2, "{} inputs, want a stamp, roots, and other ids", ins.len());
        ensure!(Self::NAME, ins.iter().all(|s| s.dtype == DType::U32), "an input is not U32: {ins:?}");
        shaped(Self::NAME, "stamp", &ins[0], self.nodes, 1)?;
        ensure!(Self::NAME, self.stride > 0, "an event has no root");
        let occurrences: usize = ins[1..].iter().map(Spec::len).sum();
        for (what, n) in [("nodes", self.nodes), ("ids", occurrences), ("roots an event", self.stride)] {
            countable(Self::NAME, what, n)?;
        }
        let rows = Spec::ids(Rows::fixed(self.nodes.min(occurrences)), 1);
        let count = Out::from(Spec::count());
        let mut outs = vec![count, count, count, Out::counted_by(rows, 0), Out::counted_by(rows, 0)];
        outs.extend(ins[1..].iter().map(|&s| Out::from(s)));
        Ok(outs)
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![0]
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let n = ins[1..].iter().map(Spec::len).sum();
        2 * Tiles::words(n) + Tiles::of(n).tiles
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let n: usize = ins[1..].iter().map(Spec::len).sum();
        Cost { bytes: 16 * n + 12 * outs[3].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (stamp, roots) = (io.state::<u32>(0), io.input::<u32>(1));
        let (unique, phi) = (io.out::<u32>(3), io.out::<u32>(4));
        let mut n = 0;
        // The row of node `v`, a new one on its first appearance; its stamp is the row plus one.
        let mut row_of = |at: usize, v: u32| -> u32 {
            let Some(v) = io.row_of(at, v, stamp.len()) else { return NONE };
            if stamp[v] == 0 {
                unique[n] = v as u32;
                n += 1;
                stamp[v] = n as u32;
            }
            // It was not zero before: there is no such row.
            if stamp[v] as usize > n {
                io.fault(at, f64::from(stamp[v]));
                return NONE;
            }
            stamp[v] - 1
        };
        let psi = io.out::<u32>(5);
        let mut class = |positive: bool| {
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
        let positives = class(true);
        let root_rows = class(false).max(positives);
        for other in 2..io.inputs() {
            let ids = io.input::<u32>(other);
            for (i, (psi, &v)) in io.out::<u32>(4 + other).iter_mut().zip(ids).enumerate() {
                *psi = row_of(i, v);
            }
        }
        for (k, rows) in [n, root_rows, positives].into_iter().enumerate() {
            io.out::<u32>(k)[0] = rows as u32;
        }
        phi[positives..n].fill(NONE);
        unique[..n].iter().for_each(|&v| stamp[v as usize] = 0);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let lists = on.inputs() - 1;
        if lists > abi::IdLists::MOST {
            return Err(Error::new(
                ErrorKind::Device,
                format!("unique has {lists} lists of ids, a launch takes {}", abi::IdLists::MOST),
            ));
        }
        let of = std::array::from_fn(|l| {
            let i = 1 + l.min(lists - 1);
            abi::IdList { ids: on.input(i), psi: on.kept(4 + i), rows: on.rows(i), cols: on.cols(i).into() }
        });
        let ids = abi::IdLists { of, lists: lists as u32, stride: self.stride as u32 };
        let n: usize = (1..=lists).map(|i| on.spec(i).len()).sum();
        let Tiles { tiles, rounds } = Tiles::of(n);
        let words = Tiles::words(n);
        let (stamp, nodes, phi) = (on.state(0), self.nodes as u32, on.kept(4));
        let firsts = on.scratch().cast::<u32>();
        // Within the scratch that `scratch` declares.
        let (before, sums) = (firsts.wrapping_add(words), firsts.wrapping_add(2 * words));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.unique_mark(on, Grid::items(n), ids, stamp, nodes, on.status()) }?;
        let (grid, capacity) = (Grid::new(tiles, Tiles::THREADS), on.out_cap(3) as u32);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.unique_first(on, grid, ids, stamp, nodes, phi, capacity, firsts, before, sums, rounds) }?;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.unique_rows(
                on,
                Grid::items(n),
                ids,
                stamp,
                firsts,
                before,
                sums,
                tiles as u32,
                rounds * Tiles::THREADS,
                on.kept(3),
                phi,
                on.kept(0),
                on.kept(1),
                on.kept(2),
                on.status(),
            )
        }
    }
}

/// `[nodes, events, slots a root]`, then the roots an event where they are not three, and are a list themselves. A fifth
/// number: every so many-th root is `NONE`. One case has more occurrences than 1,024 blocks see at a time.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 1],
    &[6, 0, 2],
    &[9, 4, 2],
    &[9, 4, 1, 2],
    &[500, 40, 10],
    &[700, 8_000, 6, 5],
    &[9, 4, 1, 2, 1],
    &[9, 40, 1, 2, 3],
    &[90, 400, 2, 5, 2],
];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 600, 10]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
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
    let d = c.tape.unique(stamp, roots, others, stride.unwrap_or(3))?;
    let outs = [vec![d.node, d.phi, d.positives], d.psi].concat();
    Ok(Built { outs, states: vec![stamp], ..Built::default() })
}
