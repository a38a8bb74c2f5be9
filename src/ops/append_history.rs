//! Appends the events of a batch to the lists of their nodes, each of as many slots as there is room for
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[v + 1]` i64 | where each node's list begins |
//! | `entries` | `[n, 2]` i64, state | lists as `sample_neighbors` reads them; the event of an empty slot is [`NONE`], and behind it all are empty |
//! | `node`, `positives` | `[<= v]` u32, `[1]` u32 | unique nodes, and how many of the first are ends of events |
//! | `starts`, `order` | as `group_roots` gives them | the roots of each unique node, ascending |
//! | `src`, `dst`, `time`, `event` | `[<= b]` u32, u32, i64, u32 | events of the batch |
//!
//! A full list loses its earliest entries. An event stands in the list of its source and in that of its destination, a
//! self-loop once, as in a T-CSR. So a stream without an end keeps the latest events of every node in memory that never
//! grows. Deterministic. Source: the mailbox's ring, for the adjacency; ours.
use super::{group_roots::Grouped, next_batch::Batch, sample_neighbors::Entry, unique::UniqueNodes, *};

/// See the [module](self).
#[derive(Debug)]
pub struct AppendHistory {
    stride: usize,
}

impl Tape {
    /// Appends [`AppendHistory`] of a batch, of whose roots, `stride` an event, `to` are the unique nodes and `roots` those
    /// of each; `lists` are offsets and entries.
    ///
    /// # Errors
    /// `Shape` when types or rows do not fit, or the entries are read only.
    pub fn append_history(
        &mut self,
        lists: (Var, Var),
        batch: &Batch,
        to: &UniqueNodes,
        roots: Grouped,
        stride: usize,
    ) -> Result<()> {
        let (offsets, entries) = lists;
        let of_nodes = [offsets, entries, to.node, to.positives, roots.starts, roots.order];
        let ins: Vec<Var> =
            of_nodes.into_iter().chain([batch.src, batch.dst, batch.time, batch.event]).collect();
        self.push(AppendHistory { stride }, &ins).map(drop)
    }
}

impl Op for AppendHistory {
    const NAME: &'static str = "append_history";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 10)?;
        ensure!(Self::NAME, self.stride >= 2, "{} roots an event, at least 2 wanted", self.stride);
        countable(Self::NAME, "roots an event", self.stride)?;
        let [offsets, entries, starts] = [0, 1, 4].map(|i| ins[i].rows.capacity);
        ensure!(Self::NAME, offsets > 0 && starts > 0, "offsets are {}, starts are {}", ins[0], ins[4]);
        let (nodes, order, events) = (ins[2].rows, ins[5].rows, ins[6].rows);
        let ids = |rows| Spec::ids(rows, 1);
        for (i, what, want) in [
            (0, "offsets", Spec::times(Rows::fixed(offsets))),
            (1, "entries", Entry::spec(entries)),
            (2, "node", ids(nodes)),
            (3, "positives", Spec::count()),
            (4, "starts", ids(Rows::fixed(starts))),
            (5, "order", ids(order)),
            (6, "src", ids(events)),
            (7, "dst", ids(events)),
            (8, "time", Spec::times(events)),
            (9, "event", ids(events)),
        ] {
            ensure!(Self::NAME, ins[i] == want, "{what} is {}, want {want}", ins[i]);
        }
        Ok(vec![])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![1]
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        // Every entry of a full list moves; how long the lists are, the shapes do not say.
        let ends = 2 * ins[6].rows.capacity;
        Cost { bytes: ends * (2 * size_of::<Entry>() + 24), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let entries: &mut [Entry] = bytemuck::cast_slice_mut(io.state::<i64>(1));
        let (offsets, node, positives) = (io.input::<i64>(0), io.input::<u32>(2), io.input::<u32>(3)[0]);
        let (starts, order) = (io.input::<u32>(4), io.input::<u32>(5));
        let (src, dst) = (io.input::<u32>(6), io.input::<u32>(7));
        let (time, event) = (io.input::<i64>(8), io.input::<u32>(9));
        let roots = self.stride * src.len();
        let nodes = node.iter().zip(starts.windows(2)).take(positives as usize);
        for (row, (&v, of_node)) in nodes.enumerate() {
            let Some(v) = io.row_of(row, v, offsets.len() - 1) else { continue };
            let [from, to] = [offsets[v], offsets[v + 1]].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            let list = entries.get_mut(from..to);
            let (Some(list), Some(own)) = (list, order.get(of_node[0] as usize..of_node[1] as usize)) else {
                io.fault(row, v as f64);
                continue;
            };
            let mut used = list.partition_point(|e| e.event != NONE);
            for &root in own {
                let Some(root) = io.row_of(row, root, roots) else { continue };
                let (i, side) = (root / self.stride, root % self.stride);
                if list.is_empty() || side > 1 || (side == 1 && src[i] == dst[i]) {
                    continue;
                }
                if used == list.len() {
                    list.rotate_left(1);
                    used -= 1;
                }
                list[used] =
                    Entry { time: time[i], node: if side == 0 { dst[i] } else { src[i] }, event: event[i] };
                used += 1;
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // A positive root is the source or the destination of an event.
        let grid = Grid::warps(on.capacity(2).min(2 * on.capacity(6)));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.append_history(
                on,
                grid,
                on.input(0),
                on.state(1),
                on.input(2),
                on.input(3),
                on.input(4),
                on.input(5),
                on.input(6),
                on.input(7),
                on.input(8),
                on.input(9),
                on.rows(2),
                on.rows(5),
                on.rows(6),
                on.capacity(0) as u32 - 1,
                on.capacity(4) as u32 - 1,
                on.capacity(1) as u64,
                self.stride as u32,
                on.status(),
            )
        }
    }
}

/// `[nodes, slots of a list, events before, events of the batch, roots an event]`: lists empty, half full and full; more new
/// events of a node than it has slots; none; self-loops, wherever there are few nodes.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 1, 2],
    &[2, 3, 1, 4, 2],
    &[4, 6, 9, 5, 3],
    &[5, 40, 60, 30, 2],
    &[3, 33, 200, 90, 2],
    &[3, 0, 0, 5, 2],
    &[9, 4, 30, 0, 2],
    &[300, 70, 9_000, 400, 2],
];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 40, 110_232, 600, 2]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, slots, before, b, stride] = *dims else {
        return Err(Error::shape("append_history", "five sizes"));
    };
    let empty = Entry { time: 0, node: 0, event: NONE };
    let (mut lists, mut used) = (vec![empty; v * slots], vec![0; v]);
    for event in 0..before {
        let at = c.below(v);
        if used[at] < slots {
            let entry = Entry { time: event as i64, node: c.below(v) as u32, event: event as u32 };
            lists[at * slots + used[at]] = entry;
            used[at] += 1;
        }
    }
    let offsets: Vec<i64> = (0..=v).map(|v| (v * slots) as i64).collect();
    let entries = c.values(Entry::spec(lists.len()), bytemuck::cast_slice::<_, i64>(&lists));
    let lists = (c.times(&offsets), entries);
    let first = before as u32;
    let event: Vec<u32> = (first..first + b as u32).collect();
    let times: Vec<i64> = event.iter().map(|&e| i64::from(e)).collect();
    let (all, range) = (event.len(), [0, b as u32, 0]);
    let (src, dst, time) = (c.ids_below(all, v), c.ids_below(all, v), c.times(&times));
    let (range, clock, event) = (c.ids(&range, 3), c.ids(&[0, 0], 2), c.ids(&event, 1));
    let stamp = c.ids(&vec![0; v], 1);
    let negatives = (stride > 2).then(|| c.ids_below(v, v));
    let mut batch = c.tape.next_batch([src, dst, time], range, clock, b.max(1))?;
    batch.event = c.tape.gather_rows(event, batch.rank)?;
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
