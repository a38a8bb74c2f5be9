//! Which node of which run comes when on which of two lanes, and for what of the other lane it waits.
//!
//! Found from the declared reads and writes alone. Two nodes of which one makes or changes what the other touches come in the
//! order of the program and of its runs, whatever lanes they are on; all else may happen side by side.
use super::{
    lanes::LANES,
    variant::{Place, PlannedNode, Variant},
};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::{
        sync::{AtomicBool, AtomicUsize, Mutex, spin_loop, yield_now},
        *,
    },
};
use std::{
    collections::HashMap,
    sync::{
        PoisonError,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

/// A node of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledNode {
    /// Which run.
    pub run: usize,
    /// Which node.
    pub node: usize,
    /// Steps of the other lane that must be over.
    pub after: usize,
}

/// What each lane does, in order: steps of runs of a program, each with what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(pub [Vec<ScheduledNode>; LANES]);

/// What touches a item, by the places of steps on their lanes: for each lane how many steps must be over.
#[derive(Clone, Copy, Default)]
struct Accesses {
    /// Up to the last change.
    changed: [usize; LANES],
    /// Up to the last touch of any kind.
    touched: [usize; LANES],
}

/// A item that nodes of different runs share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Tracked {
    Stored(BufferId),
    /// A value of a run, by where it lies: views of it lie there, too.
    Value(usize, Place),
    /// The memory of a lane's values in a turn.
    Memory(usize, usize),
}

impl Schedule {
    /// The schedule of a run for each entry of `variant_of_run`; `depth` are how many runs of a lane have values at a time. Nothing goes ahead of a
    /// run that has one lane to itself, nor does that run go ahead of anything.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn of(variants: &[Variant], variant_of_run: &[usize], depth: [usize; LANES]) -> Result<Self> {
        let nodes: Vec<&[PlannedNode]> =
            variant_of_run.iter().map(|&variant| &variants[variant].nodes[..]).collect();
        let order = std::array::from_fn(|lane| {
            let (mut order, mut first) = (Vec::new(), 0);
            for together in variant_of_run.chunk_by(|&a, &b| !variants[a].alone && !variants[b].alone) {
                let own = in_order(&nodes[first..][..together.len()], lane);
                order.extend(own.into_iter().map(|(run, node)| (first + run, node)));
                first += together.len();
            }
            order
        });
        Self::new(&nodes, depth, order)
    }
    /// The schedule of a run of each of `nodes`, each lane taking its own in the order given.
    ///
    /// # Errors
    /// `Plan` where the order of a lane turns round what must come one after the other, or lanes would wait for each other.
    pub(super) fn new(
        nodes: &[&[PlannedNode]],
        depth: [usize; LANES],
        order: [Vec<(usize, usize)>; LANES],
    ) -> Result<Self> {
        let mut at: Vec<Vec<Option<(usize, usize)>>> = nodes.iter().map(|n| vec![None; n.len()]).collect();
        for (lane, order) in order.iter().enumerate() {
            for (place, &(run, node)) in order.iter().enumerate() {
                at[run][node] = Some((lane, place));
            }
        }
        let mut schedule = order.map(|order| {
            let step = |(run, node)| ScheduledNode { run, node, after: 0 };
            order.into_iter().map(step).collect::<Vec<_>>()
        });
        let mut tracked: HashMap<Tracked, Accesses> = HashMap::new();
        // Who used a memory in the run that has it now, and in the one before: its values share room only with that one's.
        let mut users: HashMap<Tracked, (usize, Accesses, Accesses)> = HashMap::new();
        for (run, (nodes, at)) in nodes.iter().zip(&at).enumerate() {
            for (p, at) in nodes.iter().zip(at) {
                let Some((lane, place)) = *at else {
                    return Err(broken(p, run, "is on no lane"));
                };
                let mut after = [0; LANES];
                let mut wait = |upto: &[usize; LANES]| {
                    after.iter_mut().zip(upto).for_each(|(after, upto)| *after = (*after).max(*upto));
                };
                let touched = accesses(p, run, depth);
                for (item, changes) in &touched {
                    if let Tracked::Memory(..) = item {
                        let (of, now, before) = users.entry(*item).or_default();
                        if *of != run {
                            (*of, *before, *now) = (run, *now, Accesses::default());
                        }
                        if *changes {
                            wait(&before.touched);
                        }
                    } else if let Some(known) = tracked.get(item) {
                        wait(if *changes { &known.touched } else { &known.changed });
                    }
                }
                // Only now, for two of them may lie at the same place: what has no columns takes no room.
                for (item, changes) in touched {
                    let known = match item {
                        Tracked::Memory(..) => &mut users.entry(item).or_default().1,
                        _ => tracked.entry(item).or_default(),
                    };
                    if changes {
                        known.changed[lane] = known.changed[lane].max(place + 1);
                    }
                    known.touched[lane] = known.touched[lane].max(place + 1);
                }
                if after[lane] > place {
                    return Err(broken(p, run, "comes before what it waits for, on its own lane"));
                }
                schedule[lane][place].after = after[1 - lane];
            }
        }
        let schedule = Schedule(schedule);
        match schedule.one_by_one() {
            Ok(_) => Ok(schedule),
            Err(step) => {
                let what = "waits for a node that waits for it, on the other lane";
                Err(broken(&nodes[step.run][step.node], step.run, what))
            }
        }
    }
    /// Lanes and places of all steps in an order in which each comes after what it waits for; or a step that never comes, where
    /// each lane would wait for the other.
    fn one_by_one(&self) -> Result<Vec<(usize, usize)>, ScheduledNode> {
        let (mut over, mut order) = ([0; LANES], Vec::with_capacity(self.0.iter().map(Vec::len).sum()));
        loop {
            let before = over;
            for lane in 0..LANES {
                let ready = |step: &&ScheduledNode| step.after <= over[1 - lane];
                let more = self.0[lane][over[lane]..].iter().take_while(ready).count();
                order.extend((over[lane]..over[lane] + more).map(|place| (lane, place)));
                over[lane] += more;
            }
            if over == before {
                let left = (0..LANES).find_map(|lane| self.0[lane].get(over[lane]).copied());
                return left.map_or(Ok(order), Err);
            }
        }
    }
    /// The steps, for somebody who gives them to two queues, and where one queue is to wait for a mark in the other: in an order in
    /// which every mark is there before it is waited for.
    pub(super) fn queued(&self, mut give: impl FnMut(StreamCommand) -> Result<()>) -> Result<()> {
        let mut marked: [Vec<usize>; LANES] = Default::default();
        for lane in 0..LANES {
            let mut most = 0;
            for after in self.0[lane].iter().map(|step| step.after) {
                if after > most {
                    marked[1 - lane].push(after);
                    most = after;
                }
            }
        }
        let order = self.one_by_one().unwrap_or_default();
        let mut waited = [0; LANES];
        for (lane, place) in order {
            let step = self.0[lane][place];
            if step.after > waited[lane] {
                waited[lane] = step.after;
                give(StreamCommand::Wait { lane, mark: step.after })?;
            }
            give(StreamCommand::Node { lane, step })?;
            if marked[lane].binary_search(&(place + 1)).is_ok() {
                give(StreamCommand::Mark { lane, mark: place + 1 })?;
            }
        }
        Ok(())
    }
    /// Gives the steps of the first lane to `first`, in this thread, and those of the second to `second`, in another; `begin(lane, work)` prepares a
    /// thread for its work, and `help(lane, last)` is what a lane does again and again while it waits, or is done before the other; false where
    /// there was nothing to help with. After an error no lane begins another step.
    ///
    /// # Errors
    /// The first, with the number of its run.
    pub(super) fn execute(
        &self,
        begin: impl Fn(usize, &mut dyn FnMut()) + Sync,
        help: impl Fn(usize, &mut usize) -> bool + Sync,
        first: &mut dyn FnMut(ScheduledNode) -> Result<()>,
        second: &mut (dyn FnMut(ScheduledNode) -> Result<()> + Send),
    ) -> Result<(), (usize, Error)> {
        let both = LaneSync::default();
        thread::scope(|scope| {
            scope.spawn(|| begin(1, &mut || both.run_lane(self, 1, &help, second)));
            begin(0, &mut || both.run_lane(self, 0, &help, first));
        });
        both.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// What two lanes that run side by side know of each other.
#[derive(Default)]
struct LaneSync {
    over: [Counter; LANES],
    stop: AtomicBool,
    failure: Mutex<Option<(usize, Error)>>,
}

impl LaneSync {
    /// Runs the steps of a lane, each after what it waits for on the other one, and returns when that is at its end, too.
    fn run_lane(
        &self,
        schedule: &Schedule,
        lane: usize,
        help: &dyn Fn(usize, &mut usize) -> bool,
        run: &mut dyn FnMut(ScheduledNode) -> Result<()>,
    ) {
        // A lane that panics must not be waited for.
        let _stop = StopOnPanic(&self.stop);
        let (other, mut last) = (1 - lane, 0);
        let mut wait = |steps| self.over[other].wait_for(steps, &self.stop, &mut || help(lane, &mut last));
        for (place, &step) in schedule.0[lane].iter().enumerate() {
            wait(step.after);
            if self.stop.load(Relaxed) {
                return;
            }
            if let Err(e) = run(step) {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert((step.run, e));
                self.stop.store(true, Relaxed);
                return;
            }
            self.over[lane].0.store(place + 1, Release);
        }
        wait(schedule.0[other].len());
    }
}

/// What a queue is given.
pub(super) enum StreamCommand {
    /// A step of a lane.
    Node { lane: usize, step: ScheduledNode },
    /// A mark in the lane's queue: by how many of its steps are before it.
    Mark { lane: usize, mark: usize },
    /// What comes to the lane's queue next waits for a mark in the other's.
    Wait { lane: usize, mark: usize },
}

/// The order of a lane over `runs` runs, of which parts are ahead by up to `most`, as runs with what part of them comes: in periods, in each
/// what is furthest ahead first.
pub fn periods(runs: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = (0..runs + most).flat_map(move |period| (0..=most).rev().map(move |ahead| (period, ahead)));
    let run = move |(period, ahead): (usize, usize)| Some(((period + ahead).checked_sub(most)?, ahead));
    all.filter_map(run).filter(move |&(run, _)| run < runs)
}

/// What a lane does in a run of each of `nodes`.
fn in_order(nodes: &[&[PlannedNode]], lane: usize) -> Vec<(usize, usize)> {
    let own = |run: usize| nodes[run].iter().enumerate().filter(|(_, p)| p.placement.lane == lane);
    let most = (0..nodes.len()).flat_map(own).map(|(_, p)| p.placement.prefetch_depth).max().unwrap_or(0);
    let mut order = Vec::new();
    for (run, ahead) in periods(nodes.len(), most) {
        order.extend(own(run).filter(|(_, p)| p.placement.prefetch_depth == ahead).map(|(at, _)| (run, at)));
    }
    order
}

/// Steps that a lane has behind it, in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    /// Looks before a lane offers its core to others, some 50 us.
    const PATIENCE: u32 = if cfg!(any(loom, miri)) { 1 } else { 2_000 };

    fn wait_for(&self, steps: usize, stop: &AtomicBool, help: &mut dyn FnMut() -> bool) {
        let mut looks = 0;
        while self.0.load(Acquire) < steps && !stop.load(Relaxed) {
            looks = if help() { 0 } else { looks + 1 };
            if looks < Self::PATIENCE { spin_loop() } else { yield_now() }
        }
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);
impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// What a node touches, and whether it makes or changes it.
fn accesses(p: &PlannedNode, run: usize, depth: [usize; LANES]) -> Vec<(Tracked, bool)> {
    let mut all = Vec::with_capacity(2 * (p.ins.len() + p.outs.len()));
    let mut touch = |place: Place, changes: bool| match place {
        Place::Stored(id) => all.push((Tracked::Stored(id), changes)),
        Place::Arena(lane, _) => {
            all.push((Tracked::Value(run, place), changes));
            all.push((Tracked::Memory(lane, run % depth[lane]), changes));
        }
    };
    p.ins.iter().enumerate().for_each(|(i, x)| touch(x.0, p.node.writes.contains(&i)));
    p.outs.iter().for_each(|x| touch(x.0, true));
    p.counts.iter().for_each(|&place| touch(place, false));
    if let (Place::Arena(lane, _), 1..) = p.scratch {
        all.push((Tracked::Memory(lane, run % depth[lane]), true));
    }
    all
}

fn broken(p: &PlannedNode, run: usize, what: &str) -> Error {
    Error::new(ErrorKind::Plan, format!("{} of run {run} {what}", p.node.op.name()))
}

/// What lanes tell each other by their counters, under every order that memory allows.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::runtime::sync::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// A value that one lane makes and the other reads, over two runs in one memory: the second is made after the first was read.
    struct Handed {
        both: LaneSync,
        value: UnsafeCell<usize>,
    }
    // SAFETY: the model finds out whether both lanes touch it at a time.
    unsafe impl Sync for Handed {}
    // SAFETY: as above.
    unsafe impl Send for Handed {}

    fn schedule() -> Schedule {
        let step = |run, after| ScheduledNode { run, node: 0, after };
        Schedule([vec![step(0, 0), step(1, 1)], vec![step(0, 1), step(1, 2)]])
    }

    #[test]
    fn a_value_is_read_after_it_was_made_and_made_anew_after_it_was_read() {
        loom::model(|| {
            let handed = Arc::new(Handed { both: LaneSync::default(), value: UnsafeCell::new(0) });
            let reader = Arc::clone(&handed);
            let second = thread::spawn(move || {
                let mut read = |step: ScheduledNode| {
                    // SAFETY: as above.
                    let found = reader.value.with(|value| unsafe { *value });
                    assert_eq!(found, 10 + step.run);
                    Ok(())
                };
                reader.both.run_lane(&schedule(), 1, &|_, _| false, &mut read);
            });
            let mut make = |step: ScheduledNode| {
                // SAFETY: as above.
                handed.value.with_mut(|value| unsafe { *value = 10 + step.run });
                Ok(())
            };
            handed.both.run_lane(&schedule(), 0, &|_, _| false, &mut make);
            second.join().unwrap();
        });
    }

    #[test]
    fn an_error_of_one_lane_ends_the_other() {
        loom::model(|| {
            let handed = Arc::new(Handed { both: LaneSync::default(), value: UnsafeCell::new(0) });
            let other = Arc::clone(&handed);
            let second = thread::spawn(move || {
                other.both.run_lane(&schedule(), 1, &|_, _| false, &mut |_| Ok(()));
            });
            let mut fail = |_: ScheduledNode| Err(Error::usage("planted"));
            handed.both.run_lane(&schedule(), 0, &|_, _| false, &mut fail);
            second.join().unwrap();
            assert!(handed.both.failure.lock().unwrap().is_some());
        });
    }
}

#[cfg(all(test, not(loom)))]
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
        let one_by_one =
            |of_first: [usize; 2]| Schedule([of_first.map(step).into(), vec![step(1), step(2)]]).one_by_one();
        assert_eq!(one_by_one([0, 1]).unwrap(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(one_by_one([0, 2]), Err(step(2)), "each lane waits for the other");
    }

    #[test]
    fn an_error_or_a_panic_of_a_lane_ends_the_other() {
        let mut store = Store::new(Precision::F32);
        let (program, _) = program(&mut store);
        let order = |ahead| {
            (0..9)
                .flat_map(move |run| (if ahead { 0..2 } else { 2..5 }).map(move |node| (run, node)))
                .collect()
        };
        let schedule = Schedule::new(&[program.planned(); 9], [1, 2], [order(false), order(true)]).unwrap();
        let bad = |step: ScheduledNode| if step.run == 4 { Err(Error::usage("planted")) } else { Ok(()) };
        let begin = |_: usize, work: &mut dyn FnMut()| work();
        let help = |_: usize, _: &mut usize| false;
        let ran = schedule.execute(begin, help, &mut |_| Ok(()), &mut |step| bad(step));
        assert_eq!(ran.unwrap_err().0, 4);
        let ran = schedule.execute(begin, help, &mut |step| bad(step), &mut |_| Ok(()));
        assert_eq!(ran.unwrap_err().1.to_string(), "planted");
        let panicked = std::panic::catch_unwind(|| {
            let _ = schedule.execute(begin, help, &mut |_| Ok(()), &mut |step| {
                if step.run == 4 { panic!("planted") } else { Ok(()) }
            });
        });
        assert!(panicked.is_err());
    }
}
