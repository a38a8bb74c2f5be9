//! Appends the events of a batch to their nodes' lists of recent events, which have a fixed number of slots
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[v + 1]` i64 | start of each node's list in `entries`, and the end of the last list |
//! | `entries` | `[n, 2]` i64, state | lists as `sample_neighbors` reads them; the event of an empty slot is [`NONE`], and all slots behind it are empty |
//! | `node`, `positives` | `[<= v]` u32, `[1]` u32 | unique nodes; the first `positives` of them are endpoints of the events |
//! | `starts`, `order` | as `group_roots` returns them | roots of each unique node, ascending |
//! | `src`, `dst`, `time`, `event` | `[<= b]` u32, u32, i64, u32 | events of the batch |
//!
//! A full list loses its earliest entries. An event is appended to the lists of its source and of its
//! destination, a self-loop only once, as in a T-CSR. An endless stream of events therefore needs a fixed
//! amount of memory, which holds the most recent events of every node. Deterministic. Source: the mailbox's
//! ring, applied to the adjacency; ours.
use super::{group_roots::RootGroups, next_batch::Batch, sample_neighbors::Entry, unique::UniqueNodes, *};

/// See the [module](self).
#[derive(Debug)]
pub struct AppendHistory {
    /// Roots per event: source, destination, then negatives.
    stride: usize,
}

impl Tape {
    /// Appends [`AppendHistory`] for a batch with `stride` roots per event. `lists` are the offsets and
    /// entries, `to` the unique nodes of the roots, and `roots` the roots of each unique node.
    ///
    /// # Errors
    /// `Shape` if types or rows do not match, or if the entries are read-only.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{sample_neighbors::Entry, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // Two events of nodes 0 and 1; one slot for node 0, two for node 1.
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(2), 1), &[0u32, 0])?;
    /// let dst = tape.input(&mut store, "dst", Spec::ids(Rows::fixed(2), 1), &[1u32, 1])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(2)), &[10i64, 20])?;
    /// let offsets = tape.input(&mut store, "offsets", Spec::times(Rows::fixed(3)), &[0i64, 1, 3])?;
    /// let empty = [Entry { event: NONE, ..Entry::default() }; 3];
    /// let empty: &[i64] = bytemuck::cast_slice(&empty);
    /// let entries = tape.input(&mut store, "entries", Entry::spec(3), empty)?;
    /// let range = tape.input(&mut store, "range", Spec::ids(Rows::fixed(1), 3), &[0u32, 2, 0])?;
    /// let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(2), 1))?;
    /// let clock = tape.stored(clock)?;
    /// let stamp = tape.stored(stamp)?;
    /// let batch = tape.next_batch([src, dst, time], range, clock, 2)?;
    /// let (roots, _) = tape.roots(batch.src, batch.dst, batch.time, None)?;
    /// let nodes = tape.unique(stamp, roots, &[], 2)?;
    /// let of_nodes = tape.group_roots(nodes.psi[0], None, nodes.rows)?;
    /// tape.append_history((offsets, entries), &batch, &nodes, of_nodes, 2)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let lists: &[Entry] = bytemuck::cast_slice(program.read::<i64>(entries, &store)?);
    /// assert_eq!(lists.iter().map(|e| e.event).collect::<Vec<_>>(), [1, 0, 1]); // {1}, {0, 1}
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn append_history(
        &mut self,
        lists: (Var, Var),
        batch: &Batch,
        to: &UniqueNodes,
        roots: RootGroups,
        stride: usize,
    ) -> Result<()> {
        let (offsets, entries) = lists;
        let lists_and_nodes = [offsets, entries, to.node, to.positives, roots.starts, roots.order];
        let events = [batch.src, batch.dst, batch.time, batch.event];
        let ins = [lists_and_nodes.as_slice(), &events].concat();
        self.push(AppendHistory { stride }, &ins).map(drop)
    }
}

impl Op for AppendHistory {
    const NAME: &'static str = "append_history";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "offsets [v + 1] times, entries [E, 2] times state, node [n] ids, \
        positives [1] ids, starts [s + 1] ids, order [o] ids, src [b] ids, dst [b] ids, time [b] times, \
        event [b] ids ->";
    fn check(&self, _: &[Spec]) -> Result<()> {
        ensure!(Self::NAME, self.stride >= 2, "{} roots per event, want at least 2", self.stride);
        countable(Self::NAME, "roots per event", self.stride)
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        // Every entry of a full list moves as well, but the shapes do not tell the lengths of the lists.
        let ends = 2 * ins[at!(src)].rows.capacity;
        Cost { bytes: ends * (2 * size_of::<Entry>() + 24), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let entries: &mut [Entry] = bytemuck::cast_slice_mut(io.state::<i64>(at!(entries)));
        let (offsets, node) = (io.input::<i64>(at!(offsets)), io.input::<u32>(at!(node)));
        let positives = io.input::<u32>(at!(positives))[0];
        let (starts, order) = (io.input::<u32>(at!(starts)), io.input::<u32>(at!(order)));
        let (src, dst) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(dst)));
        let (time, event) = (io.input::<i64>(at!(time)), io.input::<u32>(at!(event)));
        let roots = self.stride * src.len();
        let nodes = node.iter().zip(starts.windows(2)).take(positives as usize);
        for (row, (&v, group)) in nodes.enumerate() {
            let Some(v) = io.row_of(row, v, offsets.len() - 1) else { continue };
            let [from, to] = [offsets[v], offsets[v + 1]].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            let list = entries.get_mut(from..to);
            let roots_of_node = order.get(group[0] as usize..group[1] as usize);
            let (Some(list), Some(roots_of_node)) = (list, roots_of_node) else {
                io.fault(row, Fault::out_of_range(v));
                continue;
            };
            let mut used = list.partition_point(|e| e.event != NONE);
            for &root in roots_of_node {
                let Some(root) = io.row_of(row, root, roots) else { continue };
                let (i, side) = (root / self.stride, root % self.stride);
                if list.is_empty() || side > 1 || (side == 1 && src[i] == dst[i]) {
                    continue;
                }
                if used == list.len() {
                    list.rotate_left(1);
                    used -= 1;
                }
                let other_end = if side == 0 { dst[i] } else { src[i] };
                list[used] = Entry { time: time[i], node: other_end, event: event[i] };
                used += 1;
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // A positive root is the source or the destination of an event.
        let grid = Grid::warps(on.capacity(at!(node)).min(2 * on.capacity(at!(src))));
        launch!(
            k, on, append_history[grid];
            on.input(at!(offsets)), on.state(at!(entries)), on.input(at!(node)), on.input(at!(positives)),
            on.input(at!(starts)), on.input(at!(order)), on.input(at!(src)), on.input(at!(dst)),
            on.input(at!(time)), on.input(at!(event)), on.rows(at!(node)), on.rows(at!(order)),
            on.rows(at!(src)), on.capacity(at!(offsets)) as u32 - 1, on.capacity(at!(starts)) as u32 - 1,
            on.capacity(at!(entries)) as u64, self.stride as u32, on.status()
        )
    }
}

/// `[nodes, slots per list, earlier events, events of the batch, roots per event]`: empty, half-full and full
/// lists; more new events of a node than slots; no slots; no events; self-loops, which are frequent among few
/// nodes.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 1, 2],
    &[2, 3, 1, 4, 2],
    &[4, 6, 9, 5, 3],
    &[5, 40, 60, 30, 2],
    &[3, 33, 200, 90, 2],
    &[3, 0, 0, 5, 2],
    &[9, 4, 30, 0, 2],
    &[300, 70, 9_000, 400, 2],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 40, 110_232, 600, 2]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, slots, before, b, stride] = *dims else {
        return Err(Error::shape("append_history", "want five sizes"));
    };
    let empty = Entry { time: 0, node: 0, event: NONE };
    let (mut lists, mut used) = (vec![empty; v * slots], vec![0; v]);
    for event in 0..before {
        let node = c.below(v);
        if used[node] < slots {
            let entry = Entry { time: event as i64, node: c.below(v) as u32, event: event as u32 };
            lists[node * slots + used[node]] = entry;
            used[node] += 1;
        }
    }
    let offsets: Vec<i64> = (0..=v).map(|v| (v * slots) as i64).collect();
    let entries = c.values(Entry::spec(lists.len()), bytemuck::cast_slice::<_, i64>(&lists));
    let lists = (c.times(&offsets), entries);
    let first = before as u32;
    let event: Vec<u32> = (first..first + b as u32).collect();
    let times: Vec<i64> = event.iter().map(|&e| i64::from(e)).collect();
    let range = [0, b as u32, 0];
    let (src, dst, time) = (c.ids_below(b, v), c.ids_below(b, v), c.times(&times));
    let (range, clock, event) = (c.ids(&range, 3), c.ids(&[0, 0], 2), c.ids(&event, 1));
    let stamp = c.ids(&vec![0; v], 1);
    let negatives = (stride > 2).then(|| c.ids_below(v, v));
    let mut batch = c.tape.next_batch([src, dst, time], range, clock, b.max(1))?;
    batch.event = c.tape.gather_rows(event, batch.row)?;
    let others = match negatives {
        Some(pool) => Some(c.tape.draw_negatives(pool, batch.now, batch.src, stride - 2, 1, 1)?),
        None => None,
    };
    let (node, _) = c.tape.roots(batch.src, batch.dst, batch.time, others)?;
    let to = c.tape.unique(stamp, node, &[], stride)?;
    let roots = c.tape.group_roots(to.psi[0], None, to.root_rows)?;
    c.tape.append_history(lists, &batch, &to, roots, stride)?;
    Ok(Built { states: vec![entries], ..Built::default() })
}
