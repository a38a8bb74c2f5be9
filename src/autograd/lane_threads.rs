//! Executes schedules on two threads of the host, one for each lane.
use super::{
    host::{BoundVariant, ViewBuffers},
    lanes::LANES,
    run::{OnProgress, RepeatProgress, VariantRuns},
    schedule::{Schedule, ScheduledNode},
    schedule_cache::{ScheduleCache, windows},
    trace::{Ran, Trace},
};
use crate::{
    error::{Error, Result},
    runtime::{
        sync::{AtomicBool, AtomicUsize, Counter, Mutex, pause},
        *,
    },
};
use std::{
    sync::{
        PoisonError,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Instant,
};

/// Executes one run for each entry of `runs`, on two lanes. `on_progress` is called occasionally while lanes
/// run, without the store, and at the end of every window, with the store.
///
/// # Errors
/// The first error of a node, with its run.
pub(super) fn repeat(
    runs: VariantRuns<'_>,
    bound: &[BoundVariant<'_>],
    store: &Store,
    devices: &[Device; LANES],
    schedules: &mut ScheduleCache,
    mut trace: Option<&mut Trace>,
    on_progress: OnProgress<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let last_nodes = LastNodes::of(runs);
    let (mut first, mut reported) = (0, 0);
    let mut report = |runs: usize, store| {
        if runs > reported {
            reported = runs;
            on_progress(RepeatProgress { runs, store });
        }
    };
    for variant_of_run in windows(runs.variants, runs.variant_of_run) {
        let window = VariantRuns { variant_of_run, ..runs };
        let schedule = &schedules.of(window).map_err(|e| (None, e))?.schedule;
        let steps_before = trace.as_ref().map(|trace| trace.steps);
        let mut workers = [(); LANES].map(|()| Worker::new(bound, window.variant_of_run, steps_before));
        let [first_worker, second_worker] = &mut workers;
        // Runs that the second lane has finished.
        let second = AtomicUsize::new(0);
        let ran = execute(
            schedule,
            |lane, work| devices[lane].keep_awake(work),
            |lane, last_job| devices[lane].help_partner(last_job),
            &mut |node| {
                first_worker.run(node)?;
                if last_nodes.ends(window, 0, node) {
                    let finished = last_nodes.finished_by_second(window, second.load(Acquire));
                    // The end of the window is reported when both lanes rest.
                    let finished = finished.min(node.run + 1).min(window.variant_of_run.len() - 1);
                    report(first + finished, None);
                }
                Ok(())
            },
            &mut |node| {
                second_worker.run(node)?;
                if last_nodes.ends(window, 1, node) {
                    second.store(node.run + 1, Release);
                }
                Ok(())
            },
        );
        if let Some(trace) = &mut trace {
            trace.ran.extend(workers.into_iter().flat_map(|worker| worker.ran));
            trace.steps += window.variant_of_run.len();
        }
        ran.map_err(|(run, e)| (Some(first + run), e))?;
        first += window.variant_of_run.len();
        report(first, Some(store));
    }
    Ok(())
}

/// For each lane, the last node of each variant; `None` if the variant has no node on the lane.
struct LastNodes([Vec<Option<usize>>; LANES]);

impl LastNodes {
    fn of(runs: VariantRuns<'_>) -> Self {
        LastNodes(std::array::from_fn(|lane| {
            let last = |nodes: &[super::variant::PlannedNode]| {
                nodes.iter().rposition(|planned| planned.placement.lane == lane)
            };
            runs.variants.iter().map(|variant| last(&variant.nodes)).collect()
        }))
    }
    /// Whether `node` is the last of its run on `lane`.
    fn ends(&self, window: VariantRuns<'_>, lane: usize, node: ScheduledNode) -> bool {
        Some(node.node) == self.0[lane][window.variant_of_run[node.run]]
    }
    /// Returns the number of runs that the second lane has finished once its nodes of the first `runs` runs
    /// are finished: runs without nodes on the second lane need no waiting.
    fn finished_by_second(&self, window: VariantRuns<'_>, runs: usize) -> usize {
        let following = window.variant_of_run[runs..].iter();
        runs + following.take_while(|&&variant| self.0[1][variant].is_none()).count()
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
            let (step, node) = (before + node.run, node.node);
            self.ran.push(Ran { step, variant, node, start, end: Instant::now() });
        }
        Ok(())
    }
}

/// Executes the nodes of the first lane by `first` on this thread, and those of the second lane by `second`
/// on another thread. `begin(lane, work)` prepares a thread and calls `work`. A lane that waits, or that has
/// finished before the other, calls `help(lane, last_job)` again and again; it returns whether it found work
/// to help with. After an error no lane starts another node.
///
/// # Errors
/// The first error, with its run.
fn execute(
    schedule: &Schedule,
    begin: impl Fn(usize, &mut dyn FnMut()) + Sync,
    help: impl Fn(usize, &mut usize) -> bool + Sync,
    first: &mut dyn FnMut(ScheduledNode) -> Result<()>,
    second: &mut (dyn FnMut(ScheduledNode) -> Result<()> + Send),
) -> Result<(), (usize, Error)> {
    let sync = LaneSync::default();
    thread::scope(|scope| {
        scope.spawn(|| begin(1, &mut || sync.run_lane(schedule, 1, &help, second)));
        begin(0, &mut || sync.run_lane(schedule, 0, &help, first));
    });
    sync.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// State that the threads of the two lanes share.
#[derive(Default)]
struct LaneSync {
    /// Number of nodes that each lane has finished.
    finished: [Counter; LANES],
    stop: AtomicBool,
    failure: Mutex<Option<(usize, Error)>>,
}

impl LaneSync {
    /// Runs the nodes of a lane, each after the nodes of the other lane that it waits for. Returns when both
    /// lanes are at their end.
    fn run_lane(
        &self,
        schedule: &Schedule,
        lane: usize,
        help: &dyn Fn(usize, &mut usize) -> bool,
        run: &mut dyn FnMut(ScheduledNode) -> Result<()>,
    ) {
        // The other lane must not wait for one that panicked.
        let _stop = StopOnPanic(&self.stop);
        let (other, mut last_job) = (1 - lane, 0);
        let mut wait =
            |nodes| wait_for(&self.finished[other], nodes, &self.stop, &mut || help(lane, &mut last_job));
        for (index, &node) in schedule.0[lane].iter().enumerate() {
            wait(node.after);
            if self.stop.load(Relaxed) {
                return;
            }
            if let Err(e) = run(node) {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert((node.run, e));
                self.stop.store(true, Relaxed);
                return;
            }
            self.finished[lane].0.store(index + 1, Release);
        }
        wait(schedule.0[other].len());
    }
}

/// Waits until `finished` reaches `nodes` or `stop` is set; meanwhile calls `help` again and again.
fn wait_for(finished: &Counter, nodes: usize, stop: &AtomicBool, help: &mut dyn FnMut() -> bool) {
    let mut polls = 0;
    while finished.0.load(Acquire) < nodes && !stop.load(Relaxed) {
        if help() {
            polls = 0;
        }
        pause(&mut polls);
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

/// The counters by which lanes synchronise, under every order that the memory model allows.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::runtime::sync::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// A value that one lane writes and the other reads, over two runs in one buffer: the second value is
    /// written after the first has been read.
    struct Handed {
        both: LaneSync,
        value: UnsafeCell<usize>,
    }
    // SAFETY: the model detects whether both lanes access it at the same time.
    unsafe impl Sync for Handed {}
    // SAFETY: as above.
    unsafe impl Send for Handed {}

    fn schedule() -> Schedule {
        let node = |run, after| ScheduledNode { run, node: 0, after };
        Schedule([vec![node(0, 0), node(1, 1)], vec![node(0, 1), node(1, 2)]])
    }

    #[test]
    fn a_value_is_read_after_it_was_written_and_overwritten_after_it_was_read() {
        loom::model(|| {
            let handed = Arc::new(Handed { both: LaneSync::default(), value: UnsafeCell::new(0) });
            let reader = Arc::clone(&handed);
            let second = thread::spawn(move || {
                let mut read = |node: ScheduledNode| {
                    // SAFETY: as above.
                    let found = reader.value.with(|value| unsafe { *value });
                    assert_eq!(found, 10 + node.run);
                    Ok(())
                };
                reader.both.run_lane(&schedule(), 1, &|_, _| false, &mut read);
            });
            let mut write = |node: ScheduledNode| {
                // SAFETY: as above.
                handed.value.with_mut(|value| unsafe { *value = 10 + node.run });
                Ok(())
            };
            handed.both.run_lane(&schedule(), 0, &|_, _| false, &mut write);
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

    /// Returns a schedule of nine runs of two nodes each, one on each lane; the second lane's node waits for
    /// the first lane's.
    fn schedule() -> Schedule {
        let node = |node, after: fn(usize) -> usize| {
            (0..9).map(|run| ScheduledNode { run, node, after: after(run) }).collect::<Vec<_>>()
        };
        Schedule([node(0, |_| 0), node(1, |run| run + 1)])
    }

    #[test]
    fn an_error_or_a_panic_of_a_lane_ends_the_other() {
        let schedule = schedule();
        let bad = |node: ScheduledNode| if node.run == 4 { Err(Error::usage("planted")) } else { Ok(()) };
        let begin = |_: usize, work: &mut dyn FnMut()| work();
        let help = |_: usize, _: &mut usize| false;
        let ran = execute(&schedule, begin, help, &mut |_| Ok(()), &mut |node| bad(node));
        assert_eq!(ran.unwrap_err().0, 4);
        let ran = execute(&schedule, begin, help, &mut |node| bad(node), &mut |_| Ok(()));
        assert_eq!(ran.unwrap_err().1.to_string(), "planted");
        let panicked = std::panic::catch_unwind(|| {
            let _ = execute(&schedule, begin, help, &mut |_| Ok(()), &mut |node| {
                if node.run == 4 { panic!("planted") } else { Ok(()) }
            });
        });
        assert!(panicked.is_err());
    }
}
