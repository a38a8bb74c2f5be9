//! The schedule of several runs of a program: the order of the nodes on each of two lanes, and the waits between the lanes.
//!
//! Waits follow from the declared reads and writes alone. If one of two nodes writes what the other reads or writes, the two
//! execute in the order of the program and of its runs, whatever their lanes are. All other nodes may overlap.
use super::{
    lanes::{LANES, Placement},
    variant::{Place, PlannedNode, Variant},
};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::*,
};
use std::collections::HashMap;

/// A node of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledNode {
    /// The run, from 0.
    pub run: usize,
    /// The node, in the order of its variant.
    pub node: usize,
    /// Number of nodes of the other lane's list that must have finished before this one starts.
    pub after: usize,
}

/// For each lane, the nodes that it executes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(pub [Vec<ScheduledNode>; LANES]);

/// A command to one of two CUDA streams.
pub(super) enum StreamCommand {
    /// Launch a node.
    Launch { lane: usize, scheduled: ScheduledNode },
    /// Record an event after the first `nodes` nodes of the lane.
    Record { lane: usize, nodes: usize },
    /// Wait for the event that the other lane records after its first `nodes` nodes.
    Wait { lane: usize, nodes: usize },
}

impl Schedule {
    /// The schedule of one run for each entry of `variant_of_run`. `buffer_depth` is for how many runs each lane holds values at
    /// the same time. Nothing is prefetched across a run that has [one lane](super::Lanes::One) to itself.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn of(
        variants: &[Variant],
        variant_of_run: &[usize],
        buffer_depth: [usize; LANES],
    ) -> Result<Self> {
        let nodes: Vec<&[PlannedNode]> =
            variant_of_run.iter().map(|&variant| &variants[variant].nodes[..]).collect();
        let order = std::array::from_fn(|lane| {
            let (mut order, mut first) = (Vec::new(), 0);
            let overlap = |&a: &usize, &b: &usize| !variants[a].alone && !variants[b].alone;
            for group in variant_of_run.chunk_by(overlap) {
                let placements = |run: usize| nodes[first + run].iter().map(|p| p.placement);
                let of_group = in_order(group.len(), lane, placements);
                order.extend(of_group.into_iter().map(|(run, node)| (first + run, node)));
                first += group.len();
            }
            order
        });
        Self::new(&nodes, buffer_depth, order)
    }
    /// The schedule of one run for each entry of `nodes`, in which each lane executes its (run, node) pairs in the order given.
    ///
    /// # Errors
    /// `Plan` if a node would execute before one of its lane that it must follow, or if the lanes would wait for each other.
    pub(super) fn new(
        nodes: &[&[PlannedNode]],
        buffer_depth: [usize; LANES],
        order: [Vec<(usize, usize)>; LANES],
    ) -> Result<Self> {
        // The lane of each node, and its index in the lane's list.
        let mut positions: Vec<Vec<Option<(usize, usize)>>> =
            nodes.iter().map(|n| vec![None; n.len()]).collect();
        for (lane, order) in order.iter().enumerate() {
            for (index, &(run, node)) in order.iter().enumerate() {
                positions[run][node] = Some((lane, index));
            }
        }
        let scheduled = |(run, node)| ScheduledNode { run, node, after: 0 };
        let mut schedule = Schedule(order.map(|order| order.into_iter().map(scheduled).collect()));
        let mut hazards = Hazards { buffer_depth, ..Hazards::default() };
        for (run, (nodes, positions)) in nodes.iter().zip(&positions).enumerate() {
            for (planned, position) in nodes.iter().zip(positions) {
                let Some((lane, index)) = *position else {
                    return Err(illegal(planned, run, "is on no lane"));
                };
                let accesses = hazards.accesses(planned, run);
                let after = hazards.must_wait_for(&accesses, run);
                hazards.record(accesses, lane, index);
                if after[lane] > index {
                    return Err(illegal(planned, run, "comes before what it waits for, on its own lane"));
                }
                schedule.0[lane][index].after = after[1 - lane];
            }
        }
        if let Err(stuck) = schedule.linear() {
            let ScheduledNode { run, node, .. } = stuck[0];
            let what = "waits for a node that waits for it, on the other lane";
            return Err(illegal(&nodes[run][node], run, what));
        }
        Ok(schedule)
    }
    /// One order of all nodes, as (lane, index) pairs, in which every node follows those it waits for.
    ///
    /// # Errors
    /// The next nodes of the lanes that wait for each other for ever.
    pub fn linear(&self) -> Result<Vec<(usize, usize)>, Vec<ScheduledNode>> {
        let (mut finished, mut order) = ([0; LANES], Vec::with_capacity(self.0.iter().map(Vec::len).sum()));
        loop {
            let before = finished;
            for lane in 0..LANES {
                let ready = |scheduled: &&ScheduledNode| scheduled.after <= finished[1 - lane];
                let more = self.0[lane][finished[lane]..].iter().take_while(ready).count();
                order.extend((finished[lane]..finished[lane] + more).map(|index| (lane, index)));
                finished[lane] += more;
            }
            if finished == before {
                let stuck = (0..LANES).filter_map(|lane| self.0[lane].get(finished[lane]).copied());
                let stuck: Vec<ScheduledNode> = stuck.collect();
                return if stuck.is_empty() { Ok(order) } else { Err(stuck) };
            }
        }
    }
    /// Issues the commands that execute the schedule on two CUDA streams. Every event is recorded before it is waited for.
    pub(super) fn stream_commands(&self, mut issue: impl FnMut(StreamCommand) -> Result<()>) -> Result<()> {
        // For each lane, the indices after which the other lane waits, ascending.
        let mut recorded: [Vec<usize>; LANES] = Default::default();
        for lane in 0..LANES {
            let mut latest = 0;
            for after in self.0[lane].iter().map(|scheduled| scheduled.after) {
                if after > latest {
                    recorded[1 - lane].push(after);
                    latest = after;
                }
            }
        }
        let order = self.linear().unwrap_or_default();
        let mut waited = [0; LANES];
        for (lane, index) in order {
            let scheduled = self.0[lane][index];
            if scheduled.after > waited[lane] {
                waited[lane] = scheduled.after;
                issue(StreamCommand::Wait { lane, nodes: scheduled.after })?;
            }
            issue(StreamCommand::Launch { lane, scheduled })?;
            if recorded[lane].binary_search(&(index + 1)).is_ok() {
                issue(StreamCommand::Record { lane, nodes: index + 1 })?;
            }
        }
        Ok(())
    }
}

/// The order of a lane over `runs` runs, some items of which are prefetched by up to `most` runs: (run, prefetch depth) pairs,
/// period by period, the deepest first within a period.
pub fn periods(runs: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = (0..runs + most).flat_map(move |period| (0..=most).rev().map(move |depth| (period, depth)));
    let run = move |(period, depth): (usize, usize)| Some(((period + depth).checked_sub(most)?, depth));
    all.filter_map(run).filter(move |&(run, _)| run < runs)
}

/// The (run, item) pairs of a lane over `runs` runs, in order; `placements` returns the placements of the items of a run.
pub fn in_order<I: Iterator<Item = Placement>>(
    runs: usize,
    lane: usize,
    placements: impl Fn(usize) -> I,
) -> Vec<(usize, usize)> {
    let of_lane = |run: usize| placements(run).enumerate().filter(|(_, p)| p.lane == lane);
    let depths = (0..runs).flat_map(of_lane).map(|(_, p)| p.prefetch_depth);
    let most = depths.max().unwrap_or(0);
    let mut order = Vec::new();
    for (run, depth) in periods(runs, most) {
        let items = of_lane(run).filter(|(_, p)| p.prefetch_depth == depth);
        order.extend(items.map(|(item, _)| (run, item)));
    }
    order
}

/// Something that nodes of different runs may both access.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Tracked {
    Stored(BufferId),
    /// A value of a run, by its place: its views have the same place.
    Value {
        run: usize,
        place: Place,
    },
    /// One of the buffers that hold a lane's values.
    Buffer {
        lane: usize,
        index: usize,
    },
}

/// The accesses to something so far: for each lane, the number of its nodes that must have finished.
#[derive(Clone, Copy, Default)]
struct Accesses {
    /// Up to the last write.
    written: [usize; LANES],
    /// Up to the last access of any kind.
    accessed: [usize; LANES],
}

/// The runs that used a buffer last.
#[derive(Clone, Copy, Default)]
struct BufferUse {
    run: usize,
    current: Accesses,
    previous: Accesses,
}

/// Read-write hazards between the nodes of successive runs.
#[derive(Default)]
struct Hazards {
    buffer_depth: [usize; LANES],
    values: HashMap<Tracked, Accesses>,
    /// A run's values share the buffer with those of the run before in it, and with no earlier ones.
    buffers: HashMap<Tracked, BufferUse>,
}

impl Hazards {
    /// What a node accesses, and whether it writes it.
    fn accesses(&self, planned: &PlannedNode, run: usize) -> Vec<(Tracked, bool)> {
        let buffer = |lane: usize| Tracked::Buffer { lane, index: run % self.buffer_depth[lane] };
        let mut all = Vec::with_capacity(2 * (planned.ins.len() + planned.outs.len()));
        let mut access = |place: Place, writes: bool| match place {
            Place::Stored(id) => all.push((Tracked::Stored(id), writes)),
            Place::Arena(lane, _) => {
                all.push((Tracked::Value { run, place }, writes));
                all.push((buffer(lane), writes));
            }
        };
        planned.ins.iter().enumerate().for_each(|(i, x)| access(x.0, planned.node.writes.contains(&i)));
        planned.outs.iter().for_each(|x| access(x.0, true));
        planned.counts.iter().for_each(|&place| access(place, false));
        if let (Place::Arena(lane, _), 1..) = planned.scratch {
            all.push((buffer(lane), true));
        }
        all
    }
    /// For each lane, the number of its nodes that must have finished before a node of `run` with these accesses starts.
    fn must_wait_for(&mut self, accesses: &[(Tracked, bool)], run: usize) -> [usize; LANES] {
        let mut after = [0; LANES];
        let mut wait = |upto: &[usize; LANES]| {
            after.iter_mut().zip(upto).for_each(|(after, upto)| *after = (*after).max(*upto));
        };
        for (tracked, writes) in accesses {
            if let Tracked::Buffer { .. } = tracked {
                let buffer = self.buffers.entry(*tracked).or_default();
                if buffer.run != run {
                    *buffer = BufferUse { run, current: Accesses::default(), previous: buffer.current };
                }
                if *writes {
                    wait(&buffer.previous.accessed);
                }
            } else if let Some(known) = self.values.get(tracked) {
                wait(if *writes { &known.accessed } else { &known.written });
            }
        }
        after
    }
    /// Records the accesses of the node at `index` of a lane. Separate from [`must_wait_for`](Self::must_wait_for), since two
    /// outputs of a node may lie at the same place: a value without columns takes no memory.
    fn record(&mut self, accesses: Vec<(Tracked, bool)>, lane: usize, index: usize) {
        for (tracked, writes) in accesses {
            let known = match tracked {
                Tracked::Buffer { .. } => &mut self.buffers.entry(tracked).or_default().current,
                _ => self.values.entry(tracked).or_default(),
            };
            if writes {
                known.written[lane] = known.written[lane].max(index + 1);
            }
            known.accessed[lane] = known.accessed[lane].max(index + 1);
        }
    }
}

fn illegal(planned: &PlannedNode, run: usize, what: &str) -> Error {
    Error::new(ErrorKind::Plan, format!("{} of run {run} {what}", planned.node.op.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{Lanes, Program},
        ops::Tape,
    };

    /// A cursor that is counted up, a row looked up by it, and one that is written: the first two may run ahead.
    fn program(store: &mut Store) -> (Program, BufferId) {
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let order = store.values("order", ids(40), &(0..40u32).rev().collect::<Vec<_>>()).unwrap();
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2)).unwrap();
        let table = store
            .values("table", Spec::real(Rows::fixed(40), 1), &(0..40).map(|i| i as f32).collect::<Vec<_>>())
            .unwrap();
        let [sum, trace] = ["sum", "trace"].map(|name| (name, if name == "sum" { 1 } else { 40 }));
        let [sum, trace] =
            [sum, trace].map(|(name, n)| store.zeros(name, Spec::real(Rows::fixed(n), 1)).unwrap());
        let first = store.values("first", ids(1), &[0u32]).unwrap();
        let mut t = Tape::new();
        let traced = trace;
        let [order, clock, table, sum, trace, first] =
            t.stored_all(store, [order, clock, table, sum, trace, first]).unwrap();
        let group = t.next_group(order, clock, 2).unwrap();
        let row = t.gather_rows(table, group.target).unwrap();
        let added = t.add(sum, row).unwrap();
        t.write_rows(sum, first, added).unwrap();
        t.write_rows(trace, group.index, added).unwrap();
        let device = Device::cpu(2).unwrap();
        (Program::on_lanes(&t, &[], Precision::F32, &device, Lanes::PREFETCH).unwrap(), traced)
    }

    #[test]
    fn two_lanes_do_what_one_does_and_the_second_waits_for_memory_that_the_first_still_reads() {
        let run = |(program, trace): &mut (Program, BufferId), store: &mut Store, times| {
            let mut heard = Vec::new();
            program.repeat(store, times, &mut |done| heard.push(done.runs)).unwrap();
            assert!(heard.is_sorted_by(|a, b| a < b) && heard.last() == Some(&times), "{heard:?}");
            store.read::<f32>(*trace).unwrap().to_vec()
        };
        let (mut store, mut alone) = (Store::new(Precision::F32), Store::new(Precision::F32));
        let (mut program, mut sequential) = (program(&mut store), program(&mut alone));
        assert_eq!(
            program.0.prefetched().map(|n| n.op.name()).collect::<Vec<_>>(),
            ["next_group", "gather_rows"]
        );
        sequential.0.profile();
        let want = run(&mut sequential, &mut alone, 40);
        assert_eq!(want[..3], [39.0, 39.0 + 38.0, 39.0 + 38.0 + 37.0]);
        assert_eq!(run(&mut program, &mut store, 40), want);

        let order = |ahead| {
            (0..6)
                .flat_map(move |run| (if ahead { 0..2 } else { 2..5 }).map(move |node| (run, node)))
                .collect()
        };
        let schedule = Schedule::new(&[program.0.planned(); 6], [1, 2], [order(false), order(true)]).unwrap();
        let [first, second] = &schedule.0;
        let waits = |steps: &[ScheduledNode]| steps.iter().map(|s| s.after).collect::<Vec<_>>();
        // The add wants the row; the trace's row its index.
        assert_eq!(waits(first)[..6], [2, 0, 1, 4, 0, 3]);
        // The third run's values lie where the first's did, which the first lane reads to its last node.
        assert_eq!(waits(second)[..8], [0, 0, 0, 0, 3, 3, 6, 6]);
    }

    #[test]
    fn an_order_that_turns_round_what_must_follow_is_refused() {
        let mut store = Store::new(Precision::F32);
        let (program, _) = program(&mut store);
        let ahead = vec![(0, 0), (0, 1)];
        let refused = |order| Schedule::new(&[program.planned()], [1, 2], order).unwrap_err();
        let e = refused([vec![(0, 3), (0, 2), (0, 4)], ahead.clone()]);
        assert_eq!(e.kind(), ErrorKind::Plan);
        assert!(e.to_string().contains("write_rows of run 0 comes before what it waits for"), "{e}");
        let e = refused([vec![(0, 2), (0, 3)], ahead]);
        assert!(e.to_string().contains("write_rows of run 0 is on no lane"), "{e}");
        let step = |after| ScheduledNode { run: 0, node: 7, after };
        let linear =
            |of_first: [usize; 2]| Schedule([of_first.map(step).into(), vec![step(1), step(2)]]).linear();
        assert_eq!(linear([0, 1]).unwrap(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(linear([0, 2]), Err(vec![step(2), step(2)]), "each lane waits for the other");
    }
}
