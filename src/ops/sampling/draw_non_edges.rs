//! Draws candidates for a step's edges: each edge's destination, then `m` vertices with no edge from its
//! source
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[e]` u32 | unique edges of all steps, sorted by (src, dst) within a step |
//! | `offsets` | `[s + 1]` u32 | start of each step's edges, and the end of the last step's |
//! | `step` | `[1]` u32 below s, or [`NONE`] if there are no items | current step |
//! | `item` | `[<= b]` u32 | edges of the step |
//! | `now` | `[1, 2]` u32 | epoch and group: the clock of the draw |
//! | out | `[<= b, 1 + m]` u32 | column 0: the destination; the other columns: uniform draws with replacement |
//!
//! A drawn vertex is never a destination of the source in that step, nor the source itself. If `n` vertices
//! remain, draw `j` of row `i` selects number `Philox((i m + j) / 4)[(i m + j) % 4] n / 2^32` of them, in
//! ascending order. A binary search in the source's destinations finds that vertex, so no draw has to be
//! repeated. If no vertex remains, any vertex is drawn. All devices draw the same vertices.
use super::{step_items::Items, *};
use crate::runtime::{
    cuda::abi,
    philox::Key,
    team::{self, InParallel},
};
use std::ops::Range;

/// See the [module](self).
#[derive(Debug)]
pub struct DrawNonEdges {
    vertices: usize,
    per_item: usize,
    seed: u64,
    salt: u32,
}

impl Tape {
    /// Appends [`DrawNonEdges`] for the `items` of a step, `per_item` draws for each; `offsets` and `step`
    /// are as in [`step_items`](Self::step_items). Returns u32 `[b, 1 + per_item]`: the destination of each
    /// item's edge, then its draws. Different values of `salt` make the draws of training and evaluation
    /// independent.
    ///
    /// # Errors
    /// `Shape` if types do not match, or if there are edges but no vertices.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(2), 1), &[0u32, 0])?;
    /// let dst = tape.input(&mut store, "dst", Spec::ids(Rows::fixed(2), 1), &[1u32, 2])?;
    /// let offsets = tape.input(&mut store, "offsets", Spec::ids(Rows::fixed(2), 1), &[0u32, 2])?;
    /// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 2), &[0u32, 0])?;
    /// let step = store.zeros("step", Spec::count())?;
    /// let base = store.zeros("base", Spec::count())?;
    /// let [step, base] = tape.stored_all([step, base])?;
    /// let items = tape.step_items(offsets, step, base, 2)?;
    /// let drawn = tape.draw_non_edges([src, dst], (offsets, step), items, now, 4, 2, 42, 0)?;
    /// let mut program = Program::new(&tape, &[drawn], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // Vertex 0 has edges to 1 and 2, so of 4 vertices only 3 can be drawn.
    /// assert_eq!(program.read::<u32>(drawn, &store)?, [1, 3, 3, 2, 3, 3]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    #[allow(clippy::too_many_arguments)]
    pub fn draw_non_edges(
        &mut self,
        [src, dst]: [Var; 2],
        (offsets, step): (Var, Var),
        items: Items,
        now: Var,
        vertices: usize,
        per_item: usize,
        seed: u64,
        salt: u32,
    ) -> Result<Var> {
        let op = DrawNonEdges { vertices, per_item, seed, salt };
        self.push1(op, &[src, dst, offsets, step, items.item, now])
    }
}

/// Random words, four from each Philox draw; the last draw is cached.
struct Words {
    key: Key,
    index: u64,
    words: [u32; 4],
}

impl Words {
    fn new(key: Key) -> Self {
        Words { key, index: u64::MAX, words: [0; 4] }
    }
    /// Returns word `at`, scaled to a number below `n`.
    fn below(&mut self, at: usize, n: usize) -> usize {
        let index = at as u64 / 4;
        if index != self.index {
            (self.index, self.words) = (index, self.key.draw(index));
        }
        ((u64::from(self.words[at % 4]) * n as u64) >> 32) as usize
    }
}

/// The edges of all steps, and the range of the current step's.
struct Edges<'a> {
    src: &'a [u32],
    dst: &'a [u32],
    step: Range<usize>,
}

impl<'a> Edges<'a> {
    /// Reads the operands; an invalid step is a fault and has no edges.
    fn read(io: &Io<'a>) -> Self {
        let (src, dst, offsets) = (
            io.input::<u32>(at!(DrawNonEdges, src)),
            io.input::<u32>(at!(DrawNonEdges, dst)),
            io.input::<u32>(at!(DrawNonEdges, offsets)),
        );
        let step = io.row_of(0, io.input::<u32>(at!(DrawNonEdges, step))[0], offsets.len() - 1);
        let mut step = step.map_or(0..0, |s| offsets[s] as usize..offsets[s + 1] as usize);
        if step.start > step.end || step.end > src.len() {
            io.fault(0, Fault::out_of_range(step.start));
            step = 0..0;
        }
        Edges { src, dst, step }
    }
    /// Returns the destinations of the edges from `u` in the step, ascending.
    fn destinations(&self, u: u32) -> &'a [u32] {
        let sources = &self.src[self.step.clone()];
        let begin = sources.partition_point(|&s| s < u);
        let degree = sources[begin..].partition_point(|&s| s <= u);
        &self.dst[self.step.clone()][begin..][..degree]
    }
}

/// The vertices that may be drawn for a source: all but the source itself and its destinations.
struct Others<'a> {
    /// Destinations of the source, ascending.
    to: &'a [u32],
    /// Number of them below the source; `None` if the source has an edge to itself and is therefore in `to`.
    before: Option<usize>,
}

impl<'a> Others<'a> {
    fn new(u: u32, to: &'a [u32]) -> Self {
        let at = to.partition_point(|&v| v < u);
        // The difference is negative only if the destinations are not ascending; then any number will do.
        Others { to, before: (to.get(at) != Some(&u)).then(|| (u as usize).wrapping_sub(at)) }
    }
    /// Returns the number of vertices that may be drawn.
    fn count(&self, vertices: usize) -> usize {
        vertices.saturating_sub(self.to.len() + usize::from(self.before.is_some()))
    }
    /// Returns the `k`-th vertex that may be drawn, in ascending order.
    fn nth(&self, k: usize) -> u32 {
        // From the numbering without the source to the numbering of all vertices that are not destinations.
        let k = k + usize::from(self.before.is_some_and(|before| k >= before));
        // `to[p] - p` vertices below destination `p` are not destinations.
        let (mut low, mut high) = (0, self.to.len());
        while low < high {
            let middle = (low + high) / 2;
            if (self.to[middle] as usize).wrapping_sub(middle) <= k {
                low = middle + 1
            } else {
                high = middle
            }
        }
        (k + low) as u32
    }
}

impl Op for DrawNonEdges {
    const NAME: &'static str = "draw_non_edges";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [E] ids, dst [E] ids, offsets [s + 1] ids, step [1] ids, \
        item [n] ids, now [1, 2] ids -> out [n, 1 + k] ids";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.per_item))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let edges = ins[at!(src)].rows.capacity;
        ensure!(Self::NAME, self.vertices > 0 || edges == 0, "{edges} edges, but no vertices");
        countable(Self::NAME, "vertices", self.vertices)?;
        countable(Self::NAME, "edges", edges)?;
        countable(Self::NAME, "negatives per item", self.per_item)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (3 * ins[at!(item)].len() + outs[0].len()), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (edges, items, now, m) =
            (Edges::read(io), io.input::<u32>(at!(item)), io.input::<u32>(at!(now)), self.per_item);
        let mut words = Words::new(Key::new(self.seed, self.salt, [now[0], now[1]]));
        for (i, row) in io.out::<u32>(0).chunks_exact_mut(1 + m).enumerate() {
            let Some(item) = io.row_of(i, items[i], edges.src.len()) else {
                row.fill(NONE);
                continue;
            };
            row[0] = edges.dst[item];
            let source = edges.src[item];
            let is_edge = |v| edges.step.clone().any(|e| edges.src[e] == source && edges.dst[e] == v);
            let others: Vec<u32> =
                (0..self.vertices as u32).filter(|&v| v != source && !is_edge(v)).collect();
            for (j, out) in row[1..].iter_mut().enumerate() {
                let mut below = |n| words.below(i * m + j, n);
                *out =
                    if others.is_empty() { below(self.vertices) as u32 } else { others[below(others.len())] };
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (edges, items, now, m) =
            (Edges::read(io), io.input::<u32>(at!(item)), io.input::<u32>(at!(now)), self.per_item);
        let key = Key::new(self.seed, self.salt, [now[0], now[1]]);
        let size = team::piece(items.len(), 256);
        io.out::<u32>(0).chunks_mut(size * (1 + m)).enumerate().in_parallel(1, |(piece, out)| {
            let mut words = Words::new(key);
            // The edges of a source are consecutive, so its other vertices are computed only once.
            let mut known: Option<(u32, Others<'_>)> = None;
            for (i, row) in (piece * size..).zip(out.chunks_exact_mut(1 + m)) {
                let Some(item) = io.row_of(i, items[i], edges.src.len()) else {
                    row.fill(NONE);
                    continue;
                };
                row[0] = edges.dst[item];
                let source = edges.src[item];
                if known.as_ref().is_none_or(|(u, _)| *u != source) {
                    known = Some((source, Others::new(source, edges.destinations(source))));
                }
                let Some((_, others)) = &known else { continue };
                let n = others.count(self.vertices);
                for (j, out) in row[1..].iter_mut().enumerate() {
                    let mut below = |n| words.below(i * m + j, n);
                    *out = if n == 0 { below(self.vertices) as u32 } else { others.nth(below(n)) };
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let grid = Grid::warps(on.out_cap(0));
        let (edges, steps) = (on.capacity(at!(src)) as u32, on.capacity(at!(offsets)) as u32 - 1);
        let (vertices, key) = (self.vertices as u32, abi::Key::new(self.seed, self.salt));
        launch!(
            k, on, draw_non_edges[grid];
            on.input(at!(src)), on.input(at!(dst)), on.input(at!(offsets)), on.input(at!(step)),
            on.input(at!(item)), on.input(at!(now)), on.out(0), on.rows(at!(item)), edges, steps, vertices,
            self.per_item as u32, key, on.status()
        )
    }
}

/// `[vertices, maximum degree, negatives, step]`, with three steps; vertex 0 has an edge to every vertex, and
/// vertices with odd numbers have one to themselves. Step 9 stands for [`NONE`].
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0],
    &[2, 2, 3, 1],
    &[9, 4, 1, 2],
    &[9, 4, 7, 9],
    &[9, 0, 2, 1],
    &[40, 12, 0, 1],
    &[40, 39, 5, 0],
    &[60, 5, 49, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[10_000, 18, 1, 1], &[10_000, 18, 100, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, max_degree, m, step] = *dims else {
        return Err(Error::shape("draw_non_edges", "want four sizes"));
    };
    let (mut src, mut dst, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
    for _ in 0..3 {
        for u in 0..v {
            let n = if max_degree > 0 { c.below(max_degree + 1) } else { 0 };
            let mut to: Vec<usize> = (0..n).map(|_| c.below(v)).collect();
            match u {
                0 if max_degree > 0 => to = (0..v).collect(),
                _ if u % 2 == 1 && n > 0 => to.push(u),
                _ => {}
            }
            to.sort_unstable();
            to.dedup();
            src.extend(to.iter().map(|_| u as u32));
            dst.extend(to.iter().map(|&v| v as u32));
        }
        offsets.push(src.len() as u32);
    }
    let step = if step == 9 { NONE } else { step as u32 };
    let capacity = offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0) as usize;
    let [src, dst, offsets, step, base] = [src, dst, offsets, vec![step], vec![0]].map(|ids| c.ids(&ids, 1));
    let items = c.tape.step_items(offsets, step, base, capacity)?;
    let now = c.ids(&[1, 4], 2);
    let out = c.tape.draw_non_edges([src, dst], (offsets, step), items, now, v, m, 7, 3)?;
    Ok(Built::new(&[out], &[]))
}
