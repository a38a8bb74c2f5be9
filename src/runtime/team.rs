//! Teams of threads that work on one op together. Fork and join take well under a microsecond, and every
//! thread keeps its own range of the tasks.
//!
//! A step consists of about a hundred short parallel jobs, and a thread often reads in one job the data that
//! it wrote in the job before. Each thread therefore starts with the same range of the tasks every time, and
//! helps others only when its own range is finished. No thread sleeps between two jobs of a pass. Results do
//! not depend on which thread runs which task.
use super::{
    simd::LANES,
    sync::{AtomicBool, AtomicUsize, Condvar, Counter, Mutex, PATIENCE, UnsafeCell, pause},
};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, PoisonError, atomic::Ordering::SeqCst},
    thread::{self, JoinHandle},
};

/// Number of pieces per thread for small items: enough to balance the load when a thread is delayed.
const PIECES: usize = 8;

/// A team of threads: the caller and its helpers.
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    partners: Vec<Partner>,
}

/// Another team. Idle threads of this team take part in the partner's jobs; thread `t` begins with the range
/// `first_range + t` of the tasks.
#[derive(Clone)]
struct Partner {
    shared: Arc<Shared>,
    first_range: usize,
}

/// For each partner of a thread's team, the number of the last job that the thread has seen.
#[derive(Default)]
pub(crate) struct SeenJobs(Vec<usize>);

/// Tasks `0..tasks`, each run once by calling `run` with its number.
struct Job {
    run: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

/// The state that the leader of a job and the helpers share.
struct Shared {
    /// Whether a thread leads a job. There is one job at a time; another caller meanwhile runs its tasks
    /// alone.
    led: AtomicBool,
    /// Number of jobs so far. A helper tells by the number of a job whether it has seen the job before.
    jobs: AtomicUsize,
    /// Number of the open job, or 0 if no job is open.
    open: Counter,
    /// Number of helpers that may be accessing the job.
    inside: Counter,
    /// Next task in each thread's range.
    next: Vec<Counter>,
    job: UnsafeCell<Job>,
    /// The first panic of the job's tasks.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Whether helpers stay awake between jobs.
    awake: AtomicBool,
    /// Whether helpers end.
    stop: AtomicBool,
    /// Number of sleeping helpers.
    asleep: Mutex<usize>,
    wake: Condvar,
}

// SAFETY: the leader writes `job` only while no job is open and no helper is inside; `job` is read only by
// the leader of the open job and by helpers that are inside.
unsafe impl Sync for Shared {}
// SAFETY: as above; the closure that `job` points to is `Sync` and outlives the job.
unsafe impl Send for Shared {}

thread_local! {
    /// The team that this thread forks to.
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Whether this thread is running a task. Jobs that it forks meanwhile run on this thread alone.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

impl Shared {
    /// Returns the state of a team without a job, whose jobs are divided into `ranges` ranges.
    fn new(ranges: usize) -> Arc<Self> {
        Arc::new(Shared {
            led: AtomicBool::new(false),
            jobs: AtomicUsize::new(0),
            open: Counter::default(),
            inside: Counter::default(),
            next: (0..ranges).map(|_| Counter::default()).collect(),
            job: UnsafeCell::new(Job { run: &|_| {}, tasks: 0 }),
            panic: Mutex::new(None),
            awake: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
        })
    }
    /// Returns the first task of the range of thread `t`, and the task after its last.
    fn range(&self, t: usize, tasks: usize) -> (usize, usize) {
        let n = self.next.len();
        (t * tasks / n, (t + 1) * tasks / n)
    }
    /// Runs the remaining tasks of the open job, beginning with the range of thread `t`.
    ///
    /// # Safety
    /// The job must be open, or the caller must be inside.
    unsafe fn work(&self, t: usize) {
        // SAFETY: no thread writes the job meanwhile, and its closure lives until all helpers are outside.
        let (run, tasks) = self.job.with(|job| unsafe { (&*(*job).run, (*job).tasks) });
        let n = self.next.len();
        BUSY.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for owner in (0..n).map(|i| (t + i) % n) {
                let (_, end) = self.range(owner, tasks);
                loop {
                    let task = self.next[owner].0.fetch_add(1, SeqCst);
                    if task >= end {
                        break;
                    }
                    run(task);
                }
            }
        }));
        BUSY.set(false);
        if let Err(panic) = outcome {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match &*first {
                None => *first = Some(panic),
                // Dropping the payload of a panic may panic, and nothing may unwind from here.
                Some(_) => std::mem::forget(panic),
            }
        }
    }
    /// Runs a job as its leader: opens it, works on it, closes it and waits until no helper is inside.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; when this returns, the job is over and no helper is inside.
        let run: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(task) };
        // SAFETY: this thread leads, no job is open and no helper is inside.
        self.job.with_mut(|job| unsafe { *job = Job { run, tasks } });
        for (t, next) in self.next.iter().enumerate() {
            next.0.store(self.range(t, tasks).0, SeqCst);
        }
        self.open.0.store(self.jobs.fetch_add(1, SeqCst) + 1, SeqCst);
        if !self.awake.load(SeqCst) && *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.wake.notify_all();
        }
        // SAFETY: the job is open.
        unsafe { self.work(0) };
        // A helper first increments `inside` and then checks whether the job is open. `fetch_add(0)`, a
        // read-modify-write, reads the latest value of `inside`: a helper whose increment it does not see
        // increments later, and therefore sees that the job is closed.
        self.open.0.store(0, SeqCst);
        let (mut inside, mut polls) = (self.inside.0.fetch_add(0, SeqCst), 0);
        while inside > 0 {
            pause(&mut polls);
            inside = self.inside.0.load(SeqCst);
        }
    }
    /// The main loop of helper `t`.
    fn help(&self, t: usize, partners: &[Partner]) {
        let (mut last, mut seen, mut polls) = (0, SeenJobs::default(), 0);
        while !self.stop.load(SeqCst) {
            if self.take_part(t, &mut last) || seen.take_part(partners, t) {
                polls = 0;
                continue;
            }
            pause(&mut polls);
            if polls >= PATIENCE && !self.awake.load(SeqCst) {
                self.sleep();
                polls = 0;
            }
        }
    }
    /// Runs the remaining tasks of the open job, beginning with range `t`, and sets `last` to the number of
    /// the job. Returns `false` if no job is open or the open job is number `last`, which this thread has
    /// already seen.
    fn take_part(&self, t: usize, last: &mut usize) -> bool {
        let open = self.open.0.load(SeqCst);
        if open == 0 || open == *last {
            return false;
        }
        self.inside.0.fetch_add(1, SeqCst);
        let still_open = self.open.0.load(SeqCst) == open;
        if still_open {
            *last = open;
            // SAFETY: this thread is inside.
            unsafe { self.work(t) };
        }
        self.inside.0.fetch_sub(1, SeqCst);
        still_open
    }
    /// Blocks until a job is open, helpers are to stay awake, or they are to end.
    fn sleep(&self) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep += 1;
        while self.open.0.load(SeqCst) == 0 && !self.awake.load(SeqCst) && !self.stop.load(SeqCst) {
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        *asleep -= 1;
    }
    /// Wakes the sleeping helpers.
    fn rouse(&self) {
        // The lock ensures that no helper is between its check of the flags and its wait.
        drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}

impl SeenJobs {
    /// Lets thread `t` of a team take part in a new job of one of its partners. Returns `false` if there is
    /// none.
    fn take_part(&mut self, partners: &[Partner], t: usize) -> bool {
        self.0.resize(partners.len(), 0);
        let mut jobs = partners.iter().zip(&mut self.0);
        jobs.any(|(partner, last)| partner.shared.take_part(partner.first_range + t, last))
    }
}

/// Clears the flag when dropped.
struct Flag<'a>(&'a AtomicBool);
impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Team {
    /// Starts a team of the caller and `threads - 1` helpers.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        Self::start(Shared::new(threads), threads, Vec::new())
    }
    /// Starts a team for each of several concurrent callers, with `threads` threads each. Idle threads of one
    /// team [take part](Self::help_partners) in the jobs of the others, so each team divides its jobs into
    /// one range for each thread of all teams. A team of no threads is its caller alone; it neither helps nor
    /// is helped.
    pub(crate) fn partners(threads: &[usize]) -> std::io::Result<Vec<Self>> {
        let ranges: usize = threads.iter().sum();
        let shared: Vec<Arc<Shared>> =
            threads.iter().map(|&n| Shared::new(if n > 0 { ranges } else { 1 })).collect();
        let team = |(i, &n): (usize, &usize)| {
            let others = threads.iter().enumerate().filter(|&(j, &of)| j != i && n > 0 && of > 0);
            let partner = |(j, &of): (usize, &usize)| {
                // The first ranges of a job are those of its own team; the other teams follow in order.
                let before: usize = threads[..i].iter().sum();
                let first_range = if j < i { before } else { of + before };
                Partner { shared: Arc::clone(&shared[j]), first_range }
            };
            Self::start(Arc::clone(&shared[i]), n, others.map(partner).collect())
        };
        threads.iter().enumerate().map(team).collect()
    }
    fn start(shared: Arc<Shared>, threads: usize, partners: Vec<Partner>) -> std::io::Result<Self> {
        let mut team = Team { shared, helpers: Vec::new(), partners };
        for t in 1..threads {
            let (shared, partners) = (Arc::clone(&team.shared), team.partners.clone());
            let helper = thread::Builder::new().name(format!("cpu-{t}"));
            team.helpers.push(helper.spawn(move || shared.help(t, &partners))?);
        }
        Ok(team)
    }
    /// Lets a waiting caller run the remaining tasks of an open job of a partner. Returns `false` if there is
    /// no job that the caller has not `seen`.
    pub(super) fn help_partners(&self, seen: &mut SeenJobs) -> bool {
        seen.take_part(&self.partners, 0)
    }
    /// Returns the number of threads that a job is divided among, including those of partners.
    pub(super) fn threads(&self) -> usize {
        self.shared.next.len()
    }
    /// Runs `work` on this thread, with this team as the thread's current one.
    pub(crate) fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Shared>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(Arc::clone(&self.shared))));
        work()
    }
    /// Runs `work` as [`install`](Self::install) does, and keeps the helpers awake meanwhile. A helper that
    /// is idle for a while yields its core to other processes between polls, or sleeps for a moment, but
    /// keeps polling.
    pub(super) fn keep_awake<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.awake.store(true, SeqCst);
        let _awake = Flag(&self.shared.awake);
        self.shared.rouse();
        self.install(work)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.rouse();
        for helper in self.helpers.drain(..) {
            let _ = helper.join(); // panics of tasks were passed to the leader
        }
    }
}

/// Runs `work`, which occupies other threads, and lets the helpers of the current team sleep meanwhile.
pub fn rest<T>(work: impl FnOnce() -> T) -> T {
    struct Rouse(Arc<Shared>);
    impl Drop for Rouse {
        fn drop(&mut self) {
            self.0.awake.store(true, SeqCst);
            self.0.rouse();
        }
    }
    let team = CURRENT.with_borrow(Clone::clone).filter(|team| team.awake.swap(false, SeqCst));
    let _rouse = team.map(Rouse);
    work()
}

/// Returns the number of threads that would run a job forked here: those of the current team; 1 if there is
/// no team or this thread is running a task.
pub fn threads() -> usize {
    if BUSY.get() {
        return 1;
    }
    CURRENT.with_borrow(|team| team.as_ref().map_or(1, |team| team.next.len()))
}

/// Returns the length of one thread's range of `n` f32 elements, in whole cache lines. For work whose results
/// are bit-identical for every split.
pub fn share(n: usize) -> usize {
    n.div_ceil(threads()).next_multiple_of(LANES).max(LANES)
}

/// Returns how many consecutive items of `n` make up a piece of work: at least `least`, and otherwise few
/// enough for several pieces per thread.
pub fn piece(n: usize, least: usize) -> usize {
    n.div_ceil(PIECES * threads()).max(least).max(1)
}

/// Runs `task(0)` to `task(tasks - 1)` in parallel on the current team, and returns when all are done.
///
/// # Panics
/// If one of the tasks panics.
pub fn run(tasks: usize, task: impl Fn(usize) + Sync) {
    let team = CURRENT
        .with_borrow(Clone::clone)
        .filter(|team| tasks > 1 && team.next.len() > 1 && !BUSY.get() && !team.led.swap(true, SeqCst));
    let Some(team) = team else { return (0..tasks).for_each(task) };
    let led = Flag(&team.led);
    team.run(tasks, &task);
    let panic = team.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(led);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// Items that a team processes in parallel.
pub trait InParallel: Iterator + Sized
where
    Self::Item: Send,
{
    /// Runs `process` on every item. Pieces of at least `least` consecutive items run on the same thread.
    fn in_parallel(self, least: usize, process: impl Fn(Self::Item) + Sync) {
        if threads() == 1 {
            return self.for_each(process);
        }
        let items: Vec<TakeCell<Self::Item>> =
            self.map(|item| TakeCell(UnsafeCell::new(Some(item)))).collect();
        let size = piece(items.len(), least);
        run(items.len().div_ceil(size), |piece| {
            for cell in items.iter().skip(piece * size).take(size) {
                // SAFETY: every piece runs once, and no two pieces have a cell in common.
                if let Some(item) = cell.0.with_mut(|item| unsafe { (*item).take() }) {
                    process(item);
                }
            }
        });
    }
}
impl<I: Iterator> InParallel for I where I::Item: Send {}

/// An item that one thread takes out.
struct TakeCell<T>(UnsafeCell<Option<T>>);
// SAFETY: only the thread that runs the piece of a cell accesses the cell.
unsafe impl<T: Send> Sync for TakeCell<T> {}

/// Checks the protocol between the leader and a helper under every order of memory operations that the model
/// allows.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{model::Builder, thread};

    /// Runs `check` in every order of its threads' operations, with at most three preemptions.
    fn in_every_order(check: impl Fn() + Sync + Send + 'static) {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    /// Cells that tasks write to.
    struct Cells([UnsafeCell<usize>; 2]);
    // SAFETY: loom reports two threads that access a cell at the same time.
    unsafe impl Sync for Cells {}

    impl Cells {
        fn add(&self, task: usize, value: usize) {
            // SAFETY: as above.
            self.0[task].with_mut(|cell| unsafe { *cell += value });
        }
    }

    /// Runs a job of two tasks that write to a cell each, and checks the values that the leader reads
    /// afterwards.
    fn job(shared: &Shared, value: usize) {
        let cells = Cells([UnsafeCell::new(0), UnsafeCell::new(0)]);
        shared.run(2, &|task| cells.add(task, value));
        // SAFETY: no helper is inside any more.
        let found = [0, 1].map(|task| cells.0[task].with(|cell| unsafe { *cell }));
        assert_eq!(found, [value; 2], "every task ran once");
    }

    #[test]
    fn every_task_of_every_job_runs_once_and_its_writes_are_seen() {
        in_every_order(|| {
            let shared = Shared::new(2);
            shared.awake.store(true, SeqCst);
            let helper = Arc::clone(&shared);
            let helper = thread::spawn(move || {
                let mut last = 0;
                (0..2).for_each(|_| _ = helper.take_part(1, &mut last));
            });
            [3, 5].into_iter().for_each(|value| job(&shared, value));
            helper.join().unwrap();
        });
    }

    #[test]
    fn a_sleeping_helper_wakes_for_a_job_and_ends() {
        in_every_order(|| {
            let shared = Shared::new(2);
            let helper = Arc::clone(&shared);
            let helper = thread::spawn(move || helper.help(1, &[]));
            job(&shared, 7);
            shared.stop.store(true, SeqCst);
            shared.rouse();
            helper.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() -> std::io::Result<()> {
        for threads in [1, 2, 3, 8] {
            let team = Team::new(threads)?;
            let rounds = |n: usize| {
                let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    run(n, |i| _ = counts[i].fetch_add(1, SeqCst));
                }
                assert!(counts.iter().all(|c| c.load(SeqCst) == 50), "{n} tasks, {threads} threads");
            };
            team.install(|| [0, 1, 2, 7, 100].map(rounds));
            team.keep_awake(|| [1, 2, 7, 100].map(rounds));
            let mut x = vec![0usize; 1000];
            team.install(|| x.chunks_mut(3).enumerate().in_parallel(4, |(i, x)| x.fill(i)));
            assert!(x.iter().enumerate().all(|(i, &x)| x == i / 3));
        }
        Ok(())
    }

    #[test]
    fn a_fork_in_a_task_or_beside_another_leader_runs_on_the_callers_thread() -> std::io::Result<()> {
        let (team, sum) = (Team::new(3)?, AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    team.install(|| run(10, |_| run(10, |_| _ = sum.fetch_add(1, SeqCst))));
                });
            }
        });
        assert_eq!(sum.load(SeqCst), 400);
        Ok(())
    }

    #[test]
    fn a_waiting_caller_takes_part_in_the_jobs_of_partner_teams() -> std::io::Result<()> {
        // The threads of each team, and the team that leads a job.
        let cases: [(&[usize], usize); 5] =
            [(&[1, 1], 0), (&[2, 1], 0), (&[2, 3], 0), (&[1, 2, 1], 1), (&[1, 1, 0, 2], 3)];
        for (threads, led) in cases {
            let teams = Team::partners(threads)?;
            let (over, started) = (AtomicBool::new(false), AtomicUsize::new(0));
            thread::scope(|scope| {
                for (at, team) in teams.iter().enumerate().filter(|&(at, _)| at != led) {
                    let over = &over;
                    scope.spawn(move || {
                        let mut seen = SeenJobs::default();
                        while !over.load(SeqCst) {
                            assert!(!team.help_partners(&mut seen) || threads[at] > 0);
                        }
                    });
                }
                // A task ends when all tasks have begun, or after a minute. There is a task for each thread
                // of the team and for each other caller with a share, so all can begin only if they take
                // part.
                let others = threads.iter().enumerate().filter(|&(at, &n)| at != led && n > 0).count();
                let (tasks, begun) = (threads[led] + others, Instant::now());
                let met = AtomicUsize::new(0);
                teams[led].install(|| {
                    run(tasks, |_| {
                        started.fetch_add(1, SeqCst);
                        while started.load(SeqCst) < tasks && begun.elapsed() < Duration::from_secs(60) {
                            thread::yield_now();
                        }
                        met.fetch_add(usize::from(begun.elapsed() < Duration::from_secs(60)), SeqCst);
                    });
                });
                over.store(true, SeqCst);
                assert_eq!(met.load(SeqCst), tasks, "{threads:?}");
            });
        }
        Ok(())
    }

    #[test]
    fn a_panic_reaches_the_leader_and_the_team_goes_on() -> std::io::Result<()> {
        let team = Team::new(2)?;
        for bad in [0, 99] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.install(|| run(100, |i| assert!(i != bad, "task {i}")));
            }));
            assert!(caught.is_err());
        }
        let done = AtomicUsize::new(0);
        team.install(|| run(100, |_| _ = done.fetch_add(1, SeqCst)));
        assert_eq!(done.load(SeqCst), 100);
        Ok(())
    }
}
