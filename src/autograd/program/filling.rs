//! How much of its memory a program fills. What lies beyond the live rows of a value is never touched, and
//! takes no memory of the host.
use super::{Memory, Program};
use crate::{
    autograd::{
        host::{BoundVariant, ViewBuffers},
        lanes::MAX_LANES,
        variant::{Place, PlannedNode, Variant, live_spec},
    },
    error::Result,
    ops::OpKind,
    runtime::{BufferId, Spec, Store, Var, pages_of},
};
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

/// The most live rows that were [counted](Program::count_rows), by the values that count them.
#[derive(Clone, Debug, Default)]
pub struct MostRows(HashMap<Var, usize>);

impl MostRows {
    fn add(&mut self, count: Var, rows: usize) {
        let most = self.0.entry(count).or_default();
        *most = rows.max(*most);
    }
    /// Bounds the counts that a node computes: it takes the counted rows from an input of the same capacity.
    fn bound(&mut self, p: &PlannedNode, variant: &Variant) {
        for &count in p.node.outs.iter().filter(|out| variant.counts(**out)) {
            let of = p.outs.iter().find(|(_, spec)| spec.rows.live.is_some_and(|live| live.var == count));
            let Some(capacity) = of.map(|(_, spec)| spec.rows.capacity) else { continue };
            let rows = |spec: Spec| self.rows(spec).filter(|_| spec.rows.capacity == capacity);
            if let Some(rows) = p.ins.iter().filter_map(|&(_, spec)| rows(spec)).min() {
                self.add(count, rows);
            }
        }
    }
    /// Returns the live rows of values; `None` if they were not counted.
    fn rows(&self, spec: Spec) -> Option<usize> {
        let live = spec.rows.live?;
        Some(self.0.get(&live.var)?.saturating_mul(live.times))
    }
}

impl Program {
    /// Counts the live rows of the values of a run: runs the nodes that the counts depend on, and no others.
    /// The store is as before then. Counts that depend on state, such as node memory, are bounded by those of
    /// the rows that they are taken from. Nothing is counted on a device, nor where counts depend on other
    /// ranks.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::*, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let roots = tape.input(&mut store, "roots", Spec::ids(Rows::fixed(4), 1), &[4u32, 7, 4, 4])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(10), 1))?;
    /// let stamp = tape.stored(stamp)?;
    /// let nodes = tape.unique(stamp, roots, &[], 2)?;
    /// let mut program = Program::new(&tape, &[nodes.node], Precision::F32, Backend::Cpu)?;
    /// let mut most = MostRows::default();
    /// program.count_rows(&mut store, &mut most)?; // two nodes
    /// assert!(program.filled_bytes(&[0], &most) <= program.arena_bytes());
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn count_rows(&mut self, store: &mut Store, most: &mut MostRows) -> Result<()> {
        self.check(store)?;
        let Memory::Host(host) = &mut self.memory else { return Ok(()) };
        self.kept = false;
        for variant in &self.variants {
            let Counting { nodes, others } = Counting::new(variant);
            let written: Vec<BufferId> = nodes.iter().flat_map(written).collect();
            let before = written.iter().map(|&id| Ok((id, store.raw(id)?.to_vec())));
            let before: Vec<(BufferId, Vec<u8>)> = before.collect::<Result<_>>()?;
            let bound = host.bind_nodes(&nodes, &variant.places, store, &self.backend, self.precision)?;
            let ran = count(&bound, variant, most);
            for (id, bytes) in before {
                store.raw_mut(id)?.copy_from_slice(&bytes);
            }
            ran?;
            for p in &others {
                most.bound(p, variant);
            }
        }
        Ok(())
    }
    /// Returns the bytes of memory that values fill in runs of these variants with no more than these live
    /// rows. A value whose rows were not counted fills its whole place. On a device all
    /// [bytes](Self::arena_bytes) are allocated.
    ///
    /// # Panics
    /// If there is no such variant.
    pub fn filled_bytes(&self, variants: &[usize], most: &MostRows) -> usize {
        let Memory::Host(_) = &self.memory else { return self.arena_bytes() };
        let filled = |lane: usize| {
            let len = self.variants.iter().map(|v| v.arenas[lane].size()).max().unwrap_or(0);
            let nodes = variants.iter().flat_map(|&variant| &self.variants[variant].nodes);
            let spans = nodes.flat_map(|p| self.spans(p, lane, most));
            self.buffer_depth[lane] * union(spans.collect(), pages_of(len)).min(len)
        };
        (0..MAX_LANES).map(filled).sum()
    }
    /// Returns what the results and the scratch of a node fill in the arena of a lane.
    fn spans(&self, p: &PlannedNode, lane: usize, most: &MostRows) -> Vec<Range<usize>> {
        let bytes = |spec: Spec| live_spec(spec, &|count| most.0.get(&count).copied()).bytes(self.precision);
        let results = p.outs.iter().map(|&(place, spec)| (place, bytes(spec)));
        let placed = results.chain([p.scratch]).filter_map(|(place, bytes)| match place {
            Place::Arena(of, offset) if of == lane => Some(offset..offset + bytes),
            _ => None,
        });
        placed.collect()
    }
}

/// The nodes that the counts of live rows in a variant depend on.
struct Counting {
    /// Those that can run by themselves.
    nodes: Vec<PlannedNode>,
    /// Those that read state which other nodes write, or wait for other ranks.
    others: Vec<PlannedNode>,
}

impl Counting {
    fn new(variant: &Variant) -> Self {
        let (mut nodes, rest) = needed(variant);
        let mut changes: HashSet<BufferId> = rest.iter().flat_map(|p| written(p)).collect();
        let mut others: Vec<PlannedNode> = Vec::new();
        loop {
            let mut unknown: HashSet<Var> = others.iter().flat_map(|p| &p.node.outs).copied().collect();
            let mut known = |p: &PlannedNode| {
                let changes = |place: Place| matches!(place, Place::Stored(id) if changes.contains(&id));
                let by_others = |v: &Var| unknown.contains(&variant.lies_in[v.at()]);
                let known = p.node.op.kind() != OpKind::Comm
                    && !p.ins.iter().any(|&(place, _)| changes(place))
                    && !operands(p, variant).any(|v| by_others(&v) && !p.node.outs.contains(&v));
                if !known {
                    unknown.extend(&p.node.outs);
                }
                known
            };
            let (runs, dropped): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|p| known(p));
            nodes = runs;
            if dropped.is_empty() {
                return Counting { nodes, others };
            }
            changes.extend(dropped.iter().flat_map(written));
            others.extend(dropped);
        }
    }
}

/// Returns the operands of a node, and the counts of their rows.
fn operands<'a>(p: &'a PlannedNode, variant: &'a Variant) -> impl Iterator<Item = Var> + 'a {
    let operands = p.node.ins.iter().chain(&p.node.outs);
    operands.flat_map(|&v| std::iter::once(v).chain(variant.specs[v.at()].rows.live.map(|live| live.var)))
}

/// Returns the nodes that the counts of a variant's values depend on, in order, and the others.
fn needed(variant: &Variant) -> (Vec<PlannedNode>, Vec<&PlannedNode>) {
    let live = |v: &Var| variant.specs[v.at()].rows.live.map(|live| live.var);
    let mut values: HashSet<Var> = variant.nodes.iter().flat_map(|p| &p.node.outs).filter_map(live).collect();
    let (mut nodes, mut rest) = (Vec::new(), Vec::new());
    for p in variant.nodes.iter().rev() {
        if p.node.outs.iter().any(|out| values.contains(out)) {
            values.extend(operands(p, variant).map(|v| variant.lies_in[v.at()]));
            nodes.push(p.clone());
        } else {
            rest.push(p);
        }
    }
    nodes.reverse();
    (nodes, rest)
}

/// Returns the stored buffers that a node writes.
fn written(p: &PlannedNode) -> impl Iterator<Item = BufferId> + '_ {
    p.node.writes.iter().filter_map(|&at| match p.ins[at].0 {
        Place::Stored(id) => Some(id),
        _ => None,
    })
}

/// Runs the nodes that count rows, and reads what they count.
fn count(bound: &BoundVariant<'_>, variant: &Variant, most: &mut MostRows) -> Result<()> {
    let mut views = ViewBuffers::default();
    for (at, p) in bound.nodes().iter().enumerate() {
        // SAFETY: one node after the other, in the order in which they were planned, after all that they
        // depend on; store and memory are borrowed.
        unsafe { bound.run(0, at, &mut views)? };
        for (i, &out) in p.node.outs.iter().enumerate().filter(|(_, out)| variant.counts(**out)) {
            // SAFETY: the node has run; a count is a `[1]` u32.
            most.add(out, unsafe { bound.count_of_run(at, i) } as usize);
        }
    }
    Ok(())
}

/// Returns the size of the union of ranges of bytes, each widened to whole pages.
fn union(mut spans: Vec<Range<usize>>, page: usize) -> usize {
    spans.retain(|span| !span.is_empty());
    spans.sort_by_key(|span| span.start);
    let (mut bytes, mut end) = (0, 0);
    for span in spans {
        let (from, until) = (span.start / page * page, span.end.next_multiple_of(page));
        bytes += until.saturating_sub(from.max(end));
        end = end.max(until);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::{Backend, Tape},
        runtime::{Precision, Rows},
    };

    const WIDTH: usize = 4096;

    /// A step that adds rows of the distinct nodes of `roots` to themselves and writes the sums into a state.
    fn step(roots: &[u32]) -> (Store, Program, [BufferId; 2]) {
        let (nodes, mut store) = (Rows::fixed(600), Store::new(Precision::F32));
        let mut t = Tape::new(&store);
        let roots = t.input(&mut store, "roots", Spec::ids(Rows::fixed(roots.len()), 1), roots).unwrap();
        let stamp = store.zeros("stamp", Spec::ids(nodes, 1)).unwrap();
        let (ones, spec) = (vec![1.0f32; 600 * WIDTH], Spec::real(nodes, WIDTH));
        let [table, state] = ["table", "state"].map(|name| store.values(name, spec, &ones).unwrap());
        let [stamps, rows, written] = t.stored_all([stamp, table, state]).unwrap();
        let unique = t.unique(stamps, roots, &[], 1).unwrap();
        let rows = t.gather_rows(rows, unique.node).unwrap();
        let sum = t.add(rows, rows).unwrap();
        t.write_rows(written, unique.node, sum).unwrap();
        let program = Program::new(&t, &[], Precision::F32, Backend::Cpu).unwrap();
        (store, program, [stamp, state])
    }

    #[test]
    fn rows_are_counted_without_a_change_of_the_store_and_tell_what_a_run_fills() {
        let roots: Vec<u32> = (0..600).map(|i| i % 120).collect();
        let (mut store, mut program, buffers) = step(&roots);
        let before = buffers.map(|id| store.raw(id).unwrap().to_vec());
        let mut most = MostRows::default();
        assert_eq!(program.filled_bytes(&[0], &most), program.arena_bytes(), "nothing is counted yet");
        program.count_rows(&mut store, &mut most).unwrap();
        assert!(most.0.values().any(|&rows| rows == 120), "{most:?}");
        assert_eq!(buffers.map(|id| store.raw(id).unwrap().to_vec()), before);
        let (filled, all) = (program.filled_bytes(&[0], &most), program.arena_bytes());
        assert!(filled <= all * 2 / 5 && filled >= all / 5, "{filled} of {all}");
        program.run(&mut store).unwrap();
        assert_eq!(&store.read::<f32>(buffers[1]).unwrap()[119 * WIDTH - 1..][..2], [2.0, 2.0]);
    }

    #[test]
    fn a_union_counts_whole_pages_once() {
        assert_eq!(union(vec![], 4), 0);
        assert_eq!(union(vec![5..6, 0..1, 2..2], 4), 8);
        assert_eq!(union(vec![0..9, 3..5, 30..33], 4), 12 + 8);
    }
}
