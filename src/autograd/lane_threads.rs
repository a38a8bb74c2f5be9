//! Executes schedules on threads of the host, each of which takes one lane or several.
use super::{
    host::{BoundVariant, ViewBuffers},
    lanes::{LaneWork, MAX_LANES, lanes_of_threads, thread_shares},
    run::{self, NodeTime, OnProgress, VariantRuns},
    schedule::{Schedule, ScheduledNode},
    schedule_cache::ScheduleCache,
    stages::StageRange,
    staleness::Staleness,
    trace::{Ran, Trace},
    variant::Variant,
    windows::Window,
};
use crate::{
    error::{Error, Result},
    runtime::{
        comm::{Channel, Ranks},
        sync::{AtomicBool, AtomicUsize, Counter, Mutex, pause},
        team::SeenJobs,
        *,
    },
};
use std::{
    collections::BTreeMap,
    sync::{
        PoisonError,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Instant,
};

/// A thread of the host, with its share of the device, and the lanes that it takes.
pub(super) struct LaneThread {
    pub lanes: Vec<usize>,
    pub device: Device,
}

impl LaneThread {
    /// Returns the threads for the lanes `in_use`; none if a device or the caller's thread takes them all.
    ///
    /// # Errors
    /// `Device` if the system refuses a thread.
    pub fn for_lanes(
        in_use: BTreeMap<usize, LaneWork>,
        variants: &[Variant],
        device: &Device,
    ) -> Result<Vec<Self>> {
        // A single lane needs no schedule unless steps read older state.
        let fresh = variants.iter().all(|variant| variant.staleness == Staleness::NONE);
        if device.gpu().is_some() || (in_use.len() == 1 && fresh) {
            return Ok(Vec::new());
        }
        let in_use: Vec<(usize, LaneWork)> = in_use.into_iter().collect();
        let several = device.ranks().is_some_and(|ranks| ranks.size() > 1);
        let waits = |lane| several && variants.iter().any(|variant| variant.communicates_on(lane));
        let of_threads = lanes_of_threads(&in_use, device.threads(), waits);
        let work: Vec<LaneWork> = of_threads.iter().map(|(_, work)| *work).collect();
        let devices = device.lanes(&thread_shares(&work, device.threads()))?;
        let lanes = of_threads.into_iter().map(|(lanes, _)| lanes);
        Ok(lanes.zip(devices).map(|(lanes, device)| LaneThread { lanes, device }).collect())
    }
}

/// What lanes run on.
#[derive(Clone, Copy)]
pub(super) struct OnLanes<'a> {
    /// The threads; the first one is the caller's.
    pub threads: &'a [LaneThread],
    /// The ranks that all lanes belong to.
    pub ranks: Option<&'a Ranks>,
}

impl OnLanes<'_> {
    /// Ends the waiting of lanes for other ranks, because a lane has failed.
    fn abandon(&self, e: &Error) {
        if let Some(ranks) = self.ranks {
            ranks.channel(Channel::Control).abandon(&e.to_string());
        }
    }
}

/// Executes one run for each entry of `runs`, on the lanes `on`. `on_progress` is called occasionally
/// while lanes run, without the store, and at the end of every window, with the store.
pub(super) fn repeat(
    runs: VariantRuns<'_>,
    bound: &[BoundVariant<'_>],
    store: &Store,
    on: OnLanes<'_>,
    schedules: &mut ScheduleCache,
    mut trace: Option<&mut Trace>,
    on_progress: OnProgress<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let last_nodes = LastNodes::new(runs);
    let mut reported = 0;
    let steps_before = trace.as_ref().map(|trace| trace.steps);
    let mut report = |runs: usize, store| {
        if runs > reported {
            reported = runs;
            return run::report(on_progress, runs, store);
        }
        Ok(())
    };
    for window in schedules.windows(runs.variants, runs.variant_of_run) {
        let first = window.first;
        let schedule = &schedules.get(runs.variants, window).map_err(|e| (None, e))?.schedule;
        let recorded = trace.as_ref().map_or(0, |trace| trace.recorded);
        let mut workers = Vec::new();
        workers.resize_with(on.threads.len(), || {
            let before = steps_before.map(|steps| steps + first).filter(|before| *before < recorded);
            Worker::new(bound, window.variant_of_run, before)
        });
        let ran = run_window(window, schedule, &last_nodes, &mut workers, on, &mut |runs| {
            // The end of the window is reported when all lanes rest.
            report(first + runs.min(window.variant_of_run.len() - 1), None)
        });
        if let Some(trace) = &mut trace {
            let ran = workers.into_iter().flat_map(|worker| worker.ran);
            trace.ran.extend(ran.filter(|ran| ran.step < trace.recorded));
            trace.steps += window.updates;
        }
        ran.map_err(|(run, e)| (Some(first + run), e))?;
        report(window.ended(), Some(store)).map_err(|e| (None, e))?;
    }
    Ok(())
}

/// Executes the schedule of a window by `workers`, one for each thread. `report` is called with the number of
/// runs of the window that all lanes have finished.
fn run_window(
    window: Window<'_>,
    schedule: &Schedule,
    last_nodes: &LastNodes,
    workers: &mut [Worker<'_>],
    on: OnLanes<'_>,
    report: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<(), (usize, Error)> {
    let Some((first_worker, other_workers)) = workers.split_first_mut() else { return Ok(()) };
    let other_lanes = || on.threads.iter().flat_map(|thread| &thread.lanes).skip(1);
    // Runs that each lane but the first has finished.
    let finished: [AtomicUsize; MAX_LANES] = Default::default();
    execute(
        schedule,
        on.threads,
        |e| on.abandon(e),
        &mut |_, node| {
            first_worker.run(node)?;
            if last_nodes.ends(window, 0, node) {
                let by_others = other_lanes()
                    .map(|&lane| last_nodes.finished_by(lane, window, finished[lane].load(Acquire)));
                report(by_others.fold(node.run + 1, usize::min))?;
            }
            Ok(())
        },
        other_workers.iter_mut().map(|worker| {
            let finished = &finished;
            move |lane: usize, node: ScheduledNode| -> Result<()> {
                worker.run(node)?;
                if last_nodes.ends(window, lane, node) {
                    finished[lane].store(node.run + 1, Release);
                }
                Ok(())
            }
        }),
    )
}

/// Executes the same schedules as [`repeat`], one node after the other on this thread, and adds the times of
/// the nodes to `times`.
pub(super) fn one_by_one(
    runs: VariantRuns<'_>,
    bound: &[BoundVariant<'_>],
    store: &Store,
    schedules: &mut ScheduleCache,
    times: &mut [Vec<NodeTime>],
    mut trace: Option<&mut Trace>,
    on_progress: OnProgress<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let steps_before = trace.as_ref().map_or(0, |trace| trace.steps);
    for window in schedules.windows(runs.variants, runs.variant_of_run) {
        let cached = schedules.get(runs.variants, window).map_err(|e| (None, e))?;
        let mut worker = Worker::new(bound, window.variant_of_run, Some(steps_before + window.first));
        let mut stage = StageRange::default();
        for &(lane, index) in &cached.order {
            let node = cached.schedule.0[lane][index];
            stage.enter(runs.variants[window.variant_of_run[node.run]].nodes[node.node].stage);
            worker.run(node).map_err(|e| (Some(window.first + node.run), e))?;
        }
        for ran in &worker.ran {
            let seconds = (ran.end - ran.start).as_secs_f64();
            times[ran.variant][ran.node].add(seconds, 1, ran.cost.unwrap_or_default());
        }
        if let Some(trace) = &mut trace {
            trace.ran.append(&mut worker.ran);
            trace.steps += window.updates;
        }
        run::report(on_progress, window.ended(), Some(store)).map_err(|e| (None, e))?;
    }
    Ok(())
}

/// For each lane, the last node of each variant; `None` if the variant has no node on the lane.
struct LastNodes([Vec<Option<usize>>; MAX_LANES]);

impl LastNodes {
    fn new(runs: VariantRuns<'_>) -> Self {
        LastNodes(std::array::from_fn(|lane| {
            let last = |nodes: &[super::variant::PlannedNode]| {
                nodes.iter().rposition(|planned| planned.placement.lane == lane)
            };
            runs.variants.iter().map(|variant| last(&variant.nodes)).collect()
        }))
    }
    /// Whether `node` is the last of its run on `lane`.
    fn ends(&self, window: Window<'_>, lane: usize, node: ScheduledNode) -> bool {
        Some(node.node) == self.0[lane][window.variant_of_run[node.run]]
    }
    /// Returns the number of runs that a lane has finished once its nodes of the first `runs` runs are
    /// finished: runs without nodes on the lane need no waiting.
    fn finished_by(&self, lane: usize, window: Window<'_>, runs: usize) -> usize {
        let following = window.variant_of_run[runs..].iter();
        runs + following.take_while(|&&variant| self.0[lane][variant].is_none()).count()
    }
}

/// Runs the nodes of a lane.
struct Worker<'a> {
    bound: &'a [BoundVariant<'a>],
    variant_of_run: &'a [usize],
    views: ViewBuffers,
    /// If a trace is recorded: the number of its steps before this window.
    steps_before: Option<usize>,
    ran: Vec<Ran>,
}

impl<'a> Worker<'a> {
    fn new(bound: &'a [BoundVariant<'a>], variant_of_run: &'a [usize], steps_before: Option<usize>) -> Self {
        Worker { bound, variant_of_run, views: ViewBuffers::default(), steps_before, ran: Vec::new() }
    }
    fn run(&mut self, node: ScheduledNode) -> Result<()> {
        let start = self.steps_before.map(|before| (before, Instant::now()));
        let variant = self.variant_of_run[node.run];
        // SAFETY: the schedule keeps the order of conflicting accesses.
        unsafe { self.bound[variant].run(node.run, node.node, &mut self.views)? };
        if let Some((before, start)) = start {
            let (step, ran, node) = (before + node.run, node.run, node.node);
            let end = Instant::now();
            // SAFETY: the node has run, and nothing that conflicts with it has been told so yet.
            let cost = Some(unsafe { self.bound[variant].cost_of_run(ran, node) });
            self.ran.push(Ran { step, variant, node, start, end, cost });
        }
        Ok(())
    }
}

/// Executes the nodes of each thread's lanes: those of the first thread by `first` on this one, those of the
/// others by `others` on threads of their own; each is called with the lane. A thread whose lanes wait, or
/// have finished before the others, helps with the work of others. After an error no lane starts another
/// node; `failed` gets the error, to end what lanes wait for.
fn execute<R: FnMut(usize, ScheduledNode) -> Result<()> + Send>(
    schedule: &Schedule,
    threads: &[LaneThread],
    failed: impl Fn(&Error) + Sync,
    first: &mut dyn FnMut(usize, ScheduledNode) -> Result<()>,
    others: impl Iterator<Item = R>,
) -> Result<(), (usize, Error)> {
    let sync = LaneSync::default();
    thread::scope(|scope| {
        for (LaneThread { lanes, device }, mut run) in threads[1..].iter().zip(others) {
            let (sync, failed) = (&sync, &failed);
            scope.spawn(move || {
                device.keep_awake(|| {
                    sync.run_lanes(schedule, lanes, &|seen| device.help_partners(seen), &mut |lane, node| {
                        run(lane, node).inspect_err(failed)
                    });
                });
            });
        }
        let LaneThread { lanes, device } = &threads[0];
        device.keep_awake(|| {
            sync.run_lanes(schedule, lanes, &|seen| device.help_partners(seen), &mut |lane, node| {
                first(lane, node).inspect_err(&failed)
            });
        });
    });
    sync.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// State that the threads of the lanes share.
#[derive(Default)]
struct LaneSync {
    /// Number of nodes that each lane has finished.
    finished: [Counter; MAX_LANES],
    stop: AtomicBool,
    failure: Mutex<Option<(usize, Error)>>,
}

impl LaneSync {
    /// Runs the nodes of some lanes, each after the nodes of other lanes that it waits for; of several lanes
    /// whose next node is ready, the one that is behind goes first. While none is ready, and when these lanes
    /// have ended, it calls `help` again and again, until all lanes are at their end.
    fn run_lanes(
        &self,
        schedule: &Schedule,
        lanes: &[usize],
        help: &dyn Fn(&mut SeenJobs) -> bool,
        run: &mut dyn FnMut(usize, ScheduledNode) -> Result<()>,
    ) {
        // The other lanes must not wait for one that panicked.
        let _stop = StopOnPanic(&self.stop);
        let (mut seen, mut polls, mut next) = (SeenJobs::default(), 0, [0; MAX_LANES]);
        let has = |lane: usize, nodes: usize| nodes == 0 || self.finished[lane].0.load(Acquire) >= nodes;
        let have = |after: [usize; MAX_LANES]| (0..MAX_LANES).all(|lane| has(lane, after[lane]));
        let ends = schedule.0.each_ref().map(Vec::len);
        while !self.stop.load(Relaxed) {
            let heads = lanes.iter().filter_map(|&lane| Some((lane, *schedule.0[lane].get(next[lane])?)));
            let ready = heads.filter(|(_, node)| have(node.after)).min_by_key(|(_, node)| node.run);
            let Some((lane, node)) = ready else {
                if lanes.iter().all(|&lane| next[lane] == ends[lane]) && have(ends) {
                    return;
                }
                if help(&mut seen) {
                    polls = 0;
                }
                pause(&mut polls);
                continue;
            };
            polls = 0;
            if let Err(e) = run(lane, node) {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert((node.run, e));
                self.stop.store(true, Relaxed);
                return;
            }
            next[lane] += 1;
            self.finished[lane].0.store(next[lane], Release);
        }
    }
}

/// Sets the flag if the thread panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// The counters by which lanes synchronise, under every order that the memory model allows. Two lanes: with
/// three, two that wait can yield to each other for ever. Every pair of lanes synchronises in the same way.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::runtime::sync::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// Two values that lanes write and read, over two runs in the same memory.
    struct SharedValues {
        lanes: LaneSync,
        values: [UnsafeCell<usize>; 2],
    }
    // SAFETY: the model detects whether two lanes access a value at the same time.
    unsafe impl Sync for SharedValues {}
    // SAFETY: as above.
    unsafe impl Send for SharedValues {}

    impl SharedValues {
        fn new() -> Arc<Self> {
            let values = [UnsafeCell::new(0), UnsafeCell::new(0)];
            Arc::new(SharedValues { lanes: LaneSync::default(), values })
        }
        fn write(&self, at: usize, value: usize) {
            // SAFETY: as above.
            self.values[at].with_mut(|to| unsafe { *to = value });
        }
        fn read(&self, at: usize) -> usize {
            // SAFETY: as above.
            self.values[at].with(|value| unsafe { *value })
        }
        fn run_lane(&self, schedule: &Schedule, lane: usize, mut run: impl FnMut(usize) -> Result<()>) {
            self.lanes.run_lanes(schedule, &[lane], &|_| false, &mut |_, node| run(node.run));
        }
    }

    /// Returns a schedule of two runs, with a node of each run on each lane. The entry for a lane and a run
    /// has, for each lane, the number of nodes to wait for.
    fn schedule<const N: usize>(after: [[[usize; N]; 2]; N]) -> Schedule {
        let mut schedule = Schedule::default();
        for (lane, runs) in schedule.0.iter_mut().zip(after) {
            for (run, nodes) in runs.into_iter().enumerate() {
                let mut after = [0; MAX_LANES];
                after[..N].copy_from_slice(&nodes);
                lane.push(ScheduledNode { run, node: 0, after });
            }
        }
        schedule
    }

    /// The first lane writes a value and the second reads it, before the first writes the next one.
    fn two_lanes() -> Schedule {
        schedule([[[0, 0], [0, 1]], [[1, 0], [2, 0]]])
    }

    #[test]
    fn a_value_is_read_after_it_was_written_and_overwritten_after_it_was_read() {
        loom::model(|| {
            let handed = SharedValues::new();
            let reader = Arc::clone(&handed);
            let second = thread::spawn(move || {
                reader.run_lane(&two_lanes(), 1, |run| {
                    assert_eq!(reader.read(0), 10 + run);
                    Ok(())
                });
            });
            handed.run_lane(&two_lanes(), 0, |run| {
                handed.write(0, 10 + run);
                Ok(())
            });
            second.join().unwrap();
        });
    }

    #[test]
    fn an_error_of_one_lane_ends_the_other() {
        loom::model(|| {
            let handed = SharedValues::new();
            let other = Arc::clone(&handed);
            let second = thread::spawn(move || other.run_lane(&two_lanes(), 1, |_| Ok(())));
            handed.run_lane(&two_lanes(), 0, |_| Err(Error::usage("planted")));
            second.join().unwrap();
            assert!(handed.lanes.failure.lock().unwrap().is_some());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns a schedule of nine runs of three nodes each, one on each of three lanes; a node waits for that
    /// of the lane before.
    fn schedule() -> Schedule {
        let mut schedule = Schedule::default();
        for (lane, run) in (0..3).flat_map(|lane| (0..9).map(move |run| (lane, run))) {
            let mut after = [0; MAX_LANES];
            if lane > 0 {
                after[lane - 1] = run + 1;
            }
            schedule.0[lane].push(ScheduledNode { run, node: lane, after });
        }
        schedule
    }

    /// Executes the schedule on threads that take these lanes. The node of run 4 on the lane `bad` ends as
    /// `ends`.
    fn ran(lanes: &[&[usize]], bad: usize, ends: fn() -> Result<()>) -> Result<(), (usize, Error)> {
        let devices = Device::cpu(1).unwrap().lanes(&vec![1; lanes.len()]).unwrap();
        let thread = |(device, lanes): (Device, &&[usize])| LaneThread { lanes: lanes.to_vec(), device };
        let threads: Vec<LaneThread> = devices.into_iter().zip(lanes).map(thread).collect();
        let run = |lane: usize, node: ScheduledNode| {
            assert_eq!(node.node, lane);
            if (node.run, lane) == (4, bad) { ends() } else { Ok(()) }
        };
        let others = std::iter::repeat_n(run, lanes.len() - 1);
        execute(&schedule(), &threads, |_| {}, &mut |lane, node| run(lane, node), others)
    }

    #[test]
    fn an_error_or_a_panic_of_a_lane_ends_the_others() {
        for lanes in [&[&[0][..], &[1], &[2]][..], &[&[0], &[1, 2]], &[&[0, 2], &[1]], &[&[0, 1, 2]]] {
            for bad in 0..3 {
                let (run, e) = ran(lanes, bad, || Err(Error::usage("planted"))).unwrap_err();
                assert_eq!((run, e.to_string().as_str()), (4, "planted"));
                assert!(std::panic::catch_unwind(|| _ = ran(lanes, bad, || panic!("planted"))).is_err());
            }
            assert!(ran(lanes, 3, || Ok(())).is_ok());
        }
    }
}
