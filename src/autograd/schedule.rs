//! The schedule of several runs of a program: the order of the nodes on each lane, and the waits between the
//! lanes.
//!
//! Waits follow from the declared reads and writes alone. If one of two nodes writes what the other reads or
//! writes, the two execute in the order of the program and of its runs, whatever their lanes are; if runs
//! read older state, in the [order](Precedence) that follows from that. All other nodes may overlap.
use super::{
    lanes::MAX_LANES,
    staleness::{Precedence, Staleness},
    variant::{Place, PlannedNode, Variant},
    windows::Window,
};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::*,
};
use std::collections::{HashMap, HashSet};

/// A node of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledNode {
    /// The run, from 0.
    pub run: usize,
    /// The node, in the order of its variant.
    pub node: usize,
    /// For each lane, the number of nodes of its list that must have finished before this one starts; 0 for
    /// the node's own lane, which executes its list in order.
    pub after: [usize; MAX_LANES],
}

/// For each lane, the nodes that it executes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(pub [Vec<ScheduledNode>; MAX_LANES]);

/// A command to the CUDA stream of a lane.
pub(super) enum StreamCommand {
    /// Launch a node.
    Launch { lane: usize, scheduled: ScheduledNode },
    /// Record an event after the first `nodes` nodes of the lane.
    Record { lane: usize, nodes: usize },
    /// Wait for the event that the lane `other` records after its first `nodes` nodes.
    Wait { lane: usize, other: usize, nodes: usize },
}

impl ScheduledNode {
    /// Whether the node can start once each lane has finished this many nodes.
    pub fn is_ready(&self, finished: &[usize; MAX_LANES]) -> bool {
        self.after.iter().zip(finished).all(|(after, finished)| after <= finished)
    }
}

impl Schedule {
    /// Returns the schedule of a window. Each lane holds the values of `buffer_depth` runs at the same time.
    /// Nothing is prefetched across a run whose variant is on [one lane](super::Lanes::One).
    pub(super) fn for_window(
        variants: &[Variant],
        window: Window<'_>,
        buffer_depth: [usize; MAX_LANES],
    ) -> Result<Self> {
        let variant_of_run = window.variant_of_run;
        let nodes: Vec<&[PlannedNode]> =
            variant_of_run.iter().map(|&variant| &variants[variant].nodes[..]).collect();
        let order = std::array::from_fn(|lane| {
            let (mut order, mut first) = (Vec::new(), 0);
            let overlap = |&a: &usize, &b: &usize| !variants[a].alone && !variants[b].alone;
            for group in variant_of_run.chunk_by(overlap) {
                let precedences = |run: usize| nodes[first + run].iter().map(|p| p.precedence);
                let group_order = in_order(group.len(), lane, precedences);
                order.extend(group_order.into_iter().map(|(run, node)| (first + run, node)));
                first += group.len();
            }
            order.retain(|&(run, node)| window.has(run, &nodes[run][node]));
            order
        });
        Self::new(&nodes, buffer_depth, order, |run, planned| window.has(run, planned))
    }
    /// Whether windows can prepare the runs that follow them: whether something is prefetched, and nothing of
    /// it waits for a node that is executed during a later run.
    pub(super) fn can_prepare(variants: &[Variant], buffer_depth: [usize; MAX_LANES]) -> bool {
        let variants: Vec<&Variant> = variants.iter().filter(|variant| !variant.alone).collect();
        if !variants.iter().flat_map(|variant| &variant.nodes).any(|p| p.placement.prefetch_depth > 0) {
            return false;
        }
        // Each variant after each other one, and enough runs for every buffer to be used again.
        let pairs = variants.iter().flat_map(|first| variants.iter().map(move |second| [first, second]));
        let runs = 3 + 2 * (buffer_depth.iter().sum::<usize>() + variants.len().pow(2));
        let nodes: Vec<&[PlannedNode]> =
            pairs.flatten().cycle().take(runs).map(|variant| &variant.nodes[..]).collect();
        let all = nodes.iter().enumerate().flat_map(|(run, n)| (0..n.len()).map(move |node| (run, node)));
        let mut order: [Vec<(usize, usize)>; MAX_LANES] = Default::default();
        order[0] = all.collect();
        order[0].sort_by_cached_key(|&(run, node)| {
            let precedence = nodes[run][node].precedence;
            (precedence.during(run), precedence.of_accesses(run), node)
        });
        Self::new(&nodes, buffer_depth, order, |_, _| true).is_ok()
    }
    /// Returns buffer depths with which the first variant can be repeated: the `least`, or as much deeper
    /// ones as are needed so that no lane waits for memory that another lane reads only later. A lane needs
    /// more buffers if a stage that reads its values is prefetched on another lane.
    pub(super) fn buffer_depth(
        variants: &[Variant],
        least: [usize; MAX_LANES],
    ) -> Result<[usize; MAX_LANES]> {
        let Staleness { memory, weights } = variants[0].staleness;
        // Enough runs for every lane to be as far ahead of the others as it ever is.
        let runs = vec![0; 3 + 2 * (least.iter().sum::<usize>() + memory + weights)];
        let window = Window::whole(variants, &runs);
        let deeper = |more: usize| least.map(|depth| if depth > 0 { depth + more } else { 0 });
        let suffices = |depth: &[usize; MAX_LANES]| Self::for_window(variants, window, *depth).is_ok();
        let Some(mut found) = (0..runs.len()).map(deeper).find(suffices) else {
            return Self::for_window(variants, window, least).map(|_| least);
        };
        for lane in 0..MAX_LANES {
            while found[lane] > least[lane] {
                let mut less = found;
                less[lane] -= 1;
                if !suffices(&less) {
                    break;
                }
                found = less;
            }
        }
        Ok(found)
    }
    /// Returns the schedule of those nodes of runs that `has` picks, given the nodes of each run; each lane
    /// executes its (run, node) pairs in the given order.
    pub(super) fn new(
        nodes: &[&[PlannedNode]],
        buffer_depth: [usize; MAX_LANES],
        order: [Vec<(usize, usize)>; MAX_LANES],
        has: impl Fn(usize, &PlannedNode) -> bool,
    ) -> Result<Self> {
        // The lane of each node, and its index in the lane's list.
        let mut positions: Vec<Vec<Option<(usize, usize)>>> =
            nodes.iter().map(|n| vec![None; n.len()]).collect();
        for (lane, order) in order.iter().enumerate() {
            for (index, &(run, node)) in order.iter().enumerate() {
                positions[run][node] = Some((lane, index));
            }
        }
        let scheduled = |(run, node)| ScheduledNode { run, node, after: [0; MAX_LANES] };
        let mut schedule = Schedule(order.map(|order| order.into_iter().map(scheduled).collect()));
        let (mut hazards, mut reuse) =
            (Hazards::default(), BufferReuse { buffer_depth, ..Default::default() });
        let all = || nodes.iter().enumerate().flat_map(|(run, n)| (0..n.len()).map(move |node| (run, node)));
        let mut by_accesses: Vec<(usize, usize)> = all().collect();
        by_accesses.sort_by_cached_key(|&(run, node)| (nodes[run][node].precedence.of_accesses(run), node));
        for (run, node) in by_accesses {
            let planned = &nodes[run][node];
            match positions[run][node] {
                Some((lane, index)) => {
                    let after = hazards.after(planned, run, lane, index);
                    schedule.wait(planned, (lane, index), after)?;
                }
                None if has(run, planned) => return Err(illegal(planned, run, "is on no lane")),
                None => {}
            }
        }
        for (run, node) in all() {
            let planned = &nodes[run][node];
            if let Some((lane, index)) = positions[run][node] {
                let after = reuse.after(planned, run, lane, index)?;
                schedule.wait(planned, (lane, index), after)?;
            }
        }
        if let Err(stuck) = schedule.linear() {
            let ScheduledNode { run, node, .. } = stuck[0];
            let what = "waits for a node that waits for it, on another lane";
            return Err(illegal(&nodes[run][node], run, what));
        }
        Ok(schedule)
    }
    /// Lets a node wait until each lane has finished this many nodes.
    fn wait(
        &mut self,
        planned: &PlannedNode,
        (lane, index): (usize, usize),
        after: [usize; MAX_LANES],
    ) -> Result<()> {
        let scheduled = &mut self.0[lane][index];
        if after[lane] > index {
            let what = "comes before a node of its lane that it must follow";
            return Err(illegal(planned, scheduled.run, what));
        }
        let others = scheduled.after.iter_mut().zip(after).enumerate().filter(|(other, _)| *other != lane);
        others.for_each(|(_, (waits, nodes))| *waits = nodes.max(*waits));
        Ok(())
    }
    /// Returns an order of all nodes, as (lane, index) pairs, in which every node follows those that it waits
    /// for.
    ///
    /// # Errors
    /// The next node of each lane, if the lanes would wait for each other for ever.
    pub fn linear(&self) -> Result<Vec<(usize, usize)>, Vec<ScheduledNode>> {
        let mut order = Vec::with_capacity(self.0.iter().map(Vec::len).sum());
        let mut finished = [0; MAX_LANES];
        loop {
            let before = finished;
            for lane in 0..MAX_LANES {
                let ready = |scheduled: &&ScheduledNode| scheduled.is_ready(&finished);
                let more = self.0[lane][finished[lane]..].iter().take_while(ready).count();
                order.extend((finished[lane]..finished[lane] + more).map(|index| (lane, index)));
                finished[lane] += more;
            }
            if finished == before {
                let stuck = (0..MAX_LANES).filter_map(|lane| self.0[lane].get(finished[lane]).copied());
                let stuck: Vec<ScheduledNode> = stuck.collect();
                return if stuck.is_empty() { Ok(order) } else { Err(stuck) };
            }
        }
    }
    /// Issues the commands that execute the schedule on a CUDA stream for each lane, in an `order` as that of
    /// [`linear`](Self::linear). Every event is recorded before a stream waits for it.
    pub(super) fn stream_commands(
        &self,
        order: &[(usize, usize)],
        mut issue: impl FnMut(StreamCommand) -> Result<()>,
    ) -> Result<()> {
        let waits = self.waits(order);
        // For each lane, the numbers of its nodes after which another lane waits.
        let mut recorded: [HashSet<usize>; MAX_LANES] = Default::default();
        for &(other, nodes) in waits.iter().flatten() {
            recorded[other].insert(nodes);
        }
        for (&(lane, index), waits) in order.iter().zip(&waits) {
            for &(other, nodes) in waits {
                issue(StreamCommand::Wait { lane, other, nodes })?;
            }
            issue(StreamCommand::Launch { lane, scheduled: self.0[lane][index] })?;
            if recorded[lane].contains(&(index + 1)) {
                issue(StreamCommand::Record { lane, nodes: index + 1 })?;
            }
        }
        Ok(())
    }
    /// Returns for each node of an `order` the lanes that it waits for, each with the number of its nodes.
    /// What follows from the earlier waits of its lane, or from another wait, is left out: a lane that has
    /// finished a node has also finished what that node waited for.
    fn waits(&self, order: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
        // For each node of a lane, how many nodes of every lane have finished when it has.
        let mut finished: [Vec<[usize; MAX_LANES]>; MAX_LANES] = Default::default();
        let waits = order.iter().map(|&(lane, index)| {
            let mut known = finished[lane].last().copied().unwrap_or_default();
            let new = self.0[lane][index].after.into_iter().enumerate().filter(|&(of, n)| n > known[of]);
            let new: Vec<(usize, usize)> = new.collect();
            let follows = |&(of, n): &(usize, usize)| {
                new.iter().any(|&(other, m)| other != of && finished[other][m - 1][of] >= n)
            };
            let waits = new.iter().copied().filter(|wait| !follows(wait)).collect();
            new.iter().for_each(|&(other, m)| wait_for(&mut known, &finished[other][m - 1]));
            known[lane] = index + 1;
            finished[lane].push(known);
            waits
        });
        waits.collect()
    }
}

/// Returns the (run, item) pairs of a lane over `runs` runs, in order. `precedences` returns when the items
/// of a run are due.
pub fn in_order<I: Iterator<Item = Precedence>>(
    runs: usize,
    lane: usize,
    precedences: impl Fn(usize) -> I,
) -> Vec<(usize, usize)> {
    let of_run = |run: usize| {
        let of_lane = precedences(run).enumerate().filter(|(_, p)| p.lane() == lane);
        of_lane.map(move |(item, p)| (p.on_lane(run), run, item))
    };
    let mut order: Vec<_> = (0..runs).flat_map(of_run).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, run, item)| (run, item)).collect()
}

/// Memory that nodes of different runs may access.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum AccessedMemory {
    Stored(BufferId),
    /// A value of a run, by its place, which it shares with its views.
    Value {
        run: usize,
        place: Place,
    },
}

/// The accesses to a tracked piece of memory so far: for each lane, the number of its nodes that must have
/// finished.
#[derive(Clone, Copy, Default)]
struct Accesses {
    /// Number of nodes up to the last write.
    written: [usize; MAX_LANES],
    /// Number of nodes up to the last access of any kind.
    accessed: [usize; MAX_LANES],
}

impl Accesses {
    /// Returns both these accesses and `other`.
    fn and(mut self, other: Accesses) -> Accesses {
        wait_for(&mut self.written, &other.written);
        wait_for(&mut self.accessed, &other.accessed);
        self
    }
    /// Adds an access of the node at `index` of a lane.
    fn add(&mut self, lane: usize, index: usize, writes: bool) {
        if writes {
            self.written[lane] = self.written[lane].max(index + 1);
        }
        self.accessed[lane] = self.accessed[lane].max(index + 1);
    }
}

/// Adds to the nodes `after` which something waits those that must have `finished`.
fn wait_for(after: &mut [usize; MAX_LANES], finished: &[usize; MAX_LANES]) {
    after.iter_mut().zip(finished).for_each(|(after, finished)| *after = (*after).max(*finished));
}

/// Returns the places that a node accesses, and whether it writes them.
fn accessed(planned: &PlannedNode) -> impl Iterator<Item = (Place, bool)> {
    let writes = |i: usize| planned.node.writes.contains(&i);
    let ins = planned.ins.iter().enumerate().map(move |(i, operand)| (operand.0, writes(i)));
    let counts = planned.counts.iter().map(|&place| (place, false));
    ins.chain(counts).chain(planned.outs.iter().map(|operand| (operand.0, true)))
}

/// Read-write hazards between the nodes of successive runs, by accesses to stored buffers and to values.
#[derive(Default)]
struct Hazards(HashMap<AccessedMemory, Accesses>);

impl Hazards {
    /// Returns, for each lane, the number of its nodes that must have finished before the node at `index` of
    /// a lane starts, and records its accesses.
    fn after(&mut self, planned: &PlannedNode, run: usize, lane: usize, index: usize) -> [usize; MAX_LANES] {
        let tracked = |(place, writes)| match place {
            Place::Stored(id) => Some((AccessedMemory::Stored(id), writes)),
            Place::Arena(..) => Some((AccessedMemory::Value { run, place }, writes)),
            Place::Zeros => None,
        };
        let mut after = [0; MAX_LANES];
        for (tracked, writes) in accessed(planned).filter_map(tracked) {
            if let Some(earlier) = self.0.get(&tracked) {
                wait_for(&mut after, if writes { &earlier.accessed } else { &earlier.written });
            }
        }
        // Afterwards, because two outputs of a node may have the same place: a value without columns takes no
        // memory.
        for (tracked, writes) in accessed(planned).filter_map(tracked) {
            self.0.entry(tracked).or_default().add(lane, index, writes);
        }
        after
    }
}

/// The accesses to a buffer by the last two runs that used it.
#[derive(Clone, Copy)]
struct BufferUse {
    /// The last run that used the buffer.
    run: usize,
    /// Accesses by the last run.
    current: Accesses,
    /// Accesses by the run that used the buffer before, and by those before it since the last one that wrote.
    previous: Accesses,
    /// The latest slots of these accesses.
    current_slot: isize,
    previous_slot: isize,
}

impl Default for BufferUse {
    fn default() -> Self {
        let (current, previous) = (Accesses::default(), Accesses::default());
        BufferUse { run: 0, current, previous, current_slot: isize::MIN, previous_slot: isize::MIN }
    }
}

/// The reuse of the buffers of lanes by successive runs. The values of a run only conflict with those of the
/// run that used the buffer before: if that run wrote, its writes have waited for all earlier ones.
#[derive(Default)]
struct BufferReuse {
    buffer_depth: [usize; MAX_LANES],
    /// By lane and index of the buffer.
    buffers: HashMap<(usize, usize), BufferUse>,
}

impl BufferReuse {
    /// As [`Hazards::after`]; to be called run by run.
    fn after(
        &mut self,
        planned: &PlannedNode,
        run: usize,
        lane: usize,
        index: usize,
    ) -> Result<[usize; MAX_LANES]> {
        let slot = planned.precedence.slot(run);
        let scratch = (planned.scratch.1 > 0).then_some((planned.scratch.0, true));
        let mut after = [0; MAX_LANES];
        for (place, writes) in accessed(planned).chain(scratch) {
            let Place::Arena(of, _) = place else { continue };
            let buffer = self.buffers.entry((of, run % self.buffer_depth[of])).or_default();
            if buffer.run != run {
                let (mut previous, mut previous_slot) = (buffer.current, buffer.current_slot);
                if previous.written == [0; MAX_LANES] {
                    previous = previous.and(buffer.previous);
                    previous_slot = previous_slot.max(buffer.previous_slot);
                }
                let current = Accesses::default();
                *buffer = BufferUse { run, current, previous, current_slot: isize::MIN, previous_slot };
            }
            if writes {
                if buffer.previous_slot > slot {
                    return Err(illegal(planned, run, "needs a buffer whose values are still to be read"));
                }
                wait_for(&mut after, &buffer.previous.accessed);
            }
            buffer.current.add(lane, index, writes);
            buffer.current_slot = slot.max(buffer.current_slot);
        }
        Ok(after)
    }
}

/// Returns the error of a node that a schedule cannot execute.
fn illegal(planned: &PlannedNode, run: usize, what: &str) -> Error {
    Error::new(ErrorKind::Plan, format!("{} of run {run} {what}", planned.node.op.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{Lanes, Program, windows::windows},
        ops::Tape,
    };

    /// Returns a program that moves a cursor, gathers a row by it, adds the row to a sum, and writes the sum
    /// to `sum` and to a row of `trace`; and the buffer of `trace`. The first two nodes can be prefetched.
    fn program(store: &mut Store) -> (Program, BufferId) {
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let order = store.values("order", ids(40), &(0..40u32).rev().collect::<Vec<_>>()).unwrap();
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2)).unwrap();
        let table = store
            .values("table", Spec::real(Rows::fixed(40), 1), &(0..40).map(|i| i as f32).collect::<Vec<_>>())
            .unwrap();
        let [sum, trace_buffer] = [("sum", 1), ("trace", 40)]
            .map(|(name, n)| store.zeros(name, Spec::real(Rows::fixed(n), 1)).unwrap());
        let first = store.values("first", ids(1), &[0u32]).unwrap();
        let mut t = Tape::new(store);
        let [order, clock, table, sum, trace, first] =
            t.stored_all([order, clock, table, sum, trace_buffer, first]).unwrap();
        let group = t.next_group(order, clock, 2).unwrap();
        let row = t.gather_rows(table, group.target).unwrap();
        let added = t.add(sum, row).unwrap();
        t.write_rows(sum, first, added).unwrap();
        t.write_rows(trace, group.index, added).unwrap();
        let device = Device::cpu(2).unwrap();
        (Program::on_lanes(&t, &[], Precision::F32, &device, Lanes::PREFETCH).unwrap(), trace_buffer)
    }

    /// Returns the schedule with these orders on the first lane and on the second, which prefetches.
    fn on_two_lanes(nodes: &[&[PlannedNode]], [first, second]: [Vec<(usize, usize)>; 2]) -> Result<Schedule> {
        let (mut buffer_depth, mut order) = ([0; MAX_LANES], <[Vec<_>; MAX_LANES]>::default());
        [buffer_depth[0], buffer_depth[1]] = [1, 2];
        [order[0], order[1]] = [first, second];
        Schedule::new(nodes, buffer_depth, order, |_, _| true)
    }

    #[test]
    fn two_lanes_compute_what_one_computes_and_the_second_waits_for_memory_that_the_first_still_reads() {
        let run = |(program, trace): &mut (Program, BufferId), store: &mut Store, times| {
            let mut reported = Vec::new();
            program.repeat(store, times, &mut |progress| reported.push(progress.runs)).unwrap();
            let ascending = reported.is_sorted_by(|a, b| a < b);
            assert!(ascending && reported.last() == Some(&times), "{reported:?}");
            store.read::<f32>(*trace).unwrap().to_vec()
        };
        let (mut store, mut sequential_store) = (Store::new(Precision::F32), Store::new(Precision::F32));
        let (mut program, mut sequential) = (program(&mut store), program(&mut sequential_store));
        assert_eq!(
            program.0.prefetched().map(|n| n.op.name()).collect::<Vec<_>>(),
            ["next_group", "gather_rows"]
        );
        // A program that is profiled executes one node at a time.
        sequential.0.profile();
        let want = run(&mut sequential, &mut sequential_store, 40);
        assert_eq!(want[..3], [39.0, 39.0 + 38.0, 39.0 + 38.0 + 37.0]);
        assert_eq!(run(&mut program, &mut store, 40), want);

        let order = |nodes: std::ops::Range<usize>| {
            (0..6).flat_map(|run| nodes.clone().map(move |node| (run, node))).collect()
        };
        let schedule =
            on_two_lanes(&[&program.0.planned()[0].nodes[..]; 6], [order(2..5), order(0..2)]).unwrap();
        let waits = |lane: usize, other: usize| {
            schedule.0[lane].iter().map(move |node| node.after[other]).collect::<Vec<_>>()
        };
        // The addition needs the gathered row; the last write needs the index of its row.
        assert_eq!(waits(0, 1)[..6], [2, 0, 1, 4, 0, 3]);
        // The values of the third run reuse the buffer of the first, which the last node of the first lane
        // reads.
        assert_eq!(waits(1, 0)[..8], [0, 0, 0, 0, 3, 3, 6, 6]);
    }

    #[test]
    fn every_node_of_a_pass_is_in_one_of_the_windows_that_prepare_the_next_one() {
        let mut store = Store::new(Precision::F32);
        let (program, _) = program(&mut store);
        let mut depth = [0; MAX_LANES];
        [depth[0], depth[1]] = [1, 2];
        let variants = program.planned();
        assert!(Schedule::can_prepare(variants, depth));
        assert!(!Schedule::can_prepare(&[], depth), "nothing is prefetched");
        for (runs, lengths) in
            [(0, vec![]), (1, vec![0, 1]), (36, vec![0, 8, 8, 8, 8, 4]), (41, vec![0, 8, 8, 8, 8, 8, 1])]
        {
            let variant_of_run = vec![0; runs];
            let windows = windows(variants, &variant_of_run, &depth, true);
            assert_eq!(windows.iter().map(|window| window.updates).collect::<Vec<_>>(), lengths);
            let mut times: HashMap<(usize, usize), usize> = HashMap::new();
            for window in windows {
                Schedule::for_window(variants, window, depth).unwrap();
                for run in 0..window.variant_of_run.len() {
                    for (node, planned) in variants[0].nodes.iter().enumerate() {
                        *times.entry((window.first + run, node)).or_default() +=
                            usize::from(window.has(run, planned));
                    }
                }
            }
            assert_eq!(times.len(), runs * variants[0].nodes.len());
            assert!(times.values().all(|&times| times == 1), "{times:?}");
        }
    }

    #[test]
    fn a_wait_that_follows_from_others_is_left_out() {
        let node = |after: [usize; 3]| {
            let mut all = [0; MAX_LANES];
            all[..3].copy_from_slice(&after);
            ScheduledNode { run: 0, node: 7, after: all }
        };
        let mut schedule = Schedule::default();
        schedule.0[0] = vec![node([0; 3]), node([0; 3])];
        schedule.0[1] = vec![node([1, 0, 0]), node([1, 0, 0])];
        // The second lane has waited for the first node of the first lane, but not for the second one.
        schedule.0[2] = vec![node([1, 1, 0]), node([1, 1, 0]), node([2, 2, 0])];
        let order = schedule.linear().unwrap();
        let waits: HashMap<_, _> = order.iter().copied().zip(schedule.waits(&order)).collect();
        assert_eq!(waits[&(1, 0)], [(0, 1)]);
        assert!(waits[&(1, 1)].is_empty(), "its lane has waited before");
        assert_eq!(waits[&(2, 0)], [(1, 1)], "that node has waited for the first lane");
        assert!(waits[&(2, 1)].is_empty());
        assert_eq!(waits[&(2, 2)], [(0, 2), (1, 2)]);
    }

    #[test]
    fn an_order_that_reverses_a_dependency_is_refused() {
        let mut store = Store::new(Precision::F32);
        let (program, _) = program(&mut store);
        let prefetched = vec![(0, 0), (0, 1)];
        let refused = |order| on_two_lanes(&[&program.planned()[0].nodes], order).unwrap_err();
        let e = refused([vec![(0, 3), (0, 2), (0, 4)], prefetched.clone()]);
        assert_eq!(e.kind(), ErrorKind::Plan);
        assert!(e.to_string().contains("write_rows of run 0 comes before a node of its lane"), "{e}");
        let e = refused([vec![(0, 2), (0, 3)], prefetched]);
        assert!(e.to_string().contains("write_rows of run 0 is on no lane"), "{e}");
        let node = |other: usize, nodes| {
            let mut after = [0; MAX_LANES];
            after[other] = nodes;
            ScheduledNode { run: 0, node: 7, after }
        };
        let linear = |lanes: &[[ScheduledNode; 2]]| {
            let mut schedule = Schedule::default();
            schedule.0.iter_mut().zip(lanes).for_each(|(lane, nodes)| *lane = nodes.to_vec());
            schedule.linear()
        };
        let second = [node(0, 1), node(0, 2)];
        assert_eq!(linear(&[[node(1, 0), node(1, 1)], second]).unwrap(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        let stuck = linear(&[[node(1, 0), node(1, 2)], second]);
        assert_eq!(stuck, Err(vec![node(1, 2), node(0, 2)]), "each lane waits for the other");
        // The first lane waits for the third, the third for the second, the second for the first.
        let circle = [2, 0, 1].map(|other| [node(other, 0), node(other, 2)]);
        assert_eq!(linear(&circle), Err(circle.map(|nodes| nodes[1]).into()));
    }
}
