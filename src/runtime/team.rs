//! Threads that work on one op together: fork and join in well under a microsecond, and every thread keeps its share.
//!
//! A step is some hundred short parallel pieces, and what a thread wrote in one is what it reads in the next. So each
//! thread starts with the same share of the tasks every time, and helps others only when it has finished; and nobody
//! goes to sleep between two pieces of a pass. Results do not depend on who does what.
use super::{
    simd::LANES,
    sync::{AtomicBool, AtomicUsize, Condvar, Mutex, UnsafeCell, spin_loop, yield_now},
};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, PoisonError, atomic::Ordering::SeqCst},
    thread::{self, JoinHandle},
};

/// Looks for work before a thread offers its core to others, some 50 us.
const PATIENCE: u32 = if cfg!(any(loom, miri)) { 1 } else { 2_000 };
/// Pieces a thread's share is cut into where items are small: enough to even out threads that are held up.
const PIECES: usize = 8;

/// The caller and its helpers.
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    partner: Option<Partner>,
}

/// Another team, whose jobs those take part in who have nothing else to do, from this share on.
#[derive(Clone)]
struct Partner {
    shared: Arc<Shared>,
    share: usize,
}

/// A counter in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicUsize);

struct Job {
    run: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct Shared {
    /// Whether somebody leads: one job at a time, others run theirs alone.
    led: AtomicBool,
    /// Jobs so far: their numbers tell a helper whether it has seen one.
    jobs: AtomicUsize,
    /// Number of the job that is open, or 0.
    open: Counter,
    /// Helpers that may be looking at the job.
    inside: Counter,
    /// Next task of each thread's share.
    next: Vec<Counter>,
    job: UnsafeCell<Job>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Whether helpers stay awake between jobs.
    awake: AtomicBool,
    stop: AtomicBool,
    asleep: Mutex<usize>,
    wake: Condvar,
}

// SAFETY: `job` is written by the leader while no job is open and nobody is inside, and read by those inside only.
unsafe impl Sync for Shared {}
// SAFETY: as above; the closure it points to is `Sync` and outlives the job.
unsafe impl Send for Shared {}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Whether this thread runs a task already: what it forks then, it runs alone.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

impl Shared {
    /// Without a job, for work in `shares` parts.
    fn new(shares: usize) -> Arc<Self> {
        Arc::new(Shared {
            led: AtomicBool::new(false),
            jobs: AtomicUsize::new(0),
            open: Counter::default(),
            inside: Counter::default(),
            next: (0..shares).map(|_| Counter::default()).collect(),
            job: UnsafeCell::new(Job { run: &|_| {}, tasks: 0 }),
            panic: Mutex::new(None),
            awake: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
        })
    }
    /// Tasks of the share of thread `t`.
    fn share(&self, t: usize, tasks: usize) -> (usize, usize) {
        let n = self.next.len();
        (t * tasks / n, (t + 1) * tasks / n)
    }
    /// Runs what is left of the open job, the share of thread `t` first.
    ///
    /// # Safety
    /// The job must be open, or the caller inside.
    unsafe fn work(&self, t: usize) {
        // SAFETY: nobody writes the job meanwhile, and its closure lives until all are outside.
        let (run, tasks) = self.job.with(|job| unsafe { (&*(*job).run, (*job).tasks) });
        let n = self.next.len();
        BUSY.set(true);
        let done = catch_unwind(AssertUnwindSafe(|| {
            for owner in (0..n).map(|i| (t + i) % n) {
                let (_, end) = self.share(owner, tasks);
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
        if let Err(panic) = done {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match &*first {
                None => *first = Some(panic),
                // What a panic carries may panic when it is dropped, and nothing must unwind from here.
                Some(_) => std::mem::forget(panic),
            }
        }
    }
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime is changed; the job is over, and nobody is inside, before this returns.
        let run: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(f) };
        // SAFETY: this thread leads, no job is open and nobody is inside.
        self.job.with_mut(|job| unsafe { *job = Job { run, tasks } });
        for (t, next) in self.next.iter().enumerate() {
            next.0.store(self.share(t, tasks).0, SeqCst);
        }
        self.open.0.store(self.jobs.fetch_add(1, SeqCst) + 1, SeqCst);
        if !self.awake.load(SeqCst) && *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.wake.notify_all();
        }
        // SAFETY: the job is open.
        unsafe { self.work(0) };
        // A helper goes inside first and looks whether the job is open second. Counting none more reads the newest count: a helper that it
        // does not tell of goes inside after it, and so sees that the job is closed.
        self.open.0.store(0, SeqCst);
        let (mut inside, mut looks) = (self.inside.0.fetch_add(0, SeqCst), 0);
        while inside > 0 {
            pause(&mut looks);
            inside = self.inside.0.load(SeqCst);
        }
    }
    /// What helper `t` does all its life.
    fn help(&self, t: usize, partner: Option<&Partner>) {
        let (mut last, mut lent, mut looks) = (0, 0, 0);
        while !self.stop.load(SeqCst) {
            let other = |lent: &mut usize| partner.is_some_and(|p| p.shared.take_part(p.share + t, lent));
            if self.take_part(t, &mut last) || other(&mut lent) {
                looks = 0;
                continue;
            }
            pause(&mut looks);
            if looks >= PATIENCE && !self.awake.load(SeqCst) {
                self.sleep();
                looks = 0;
            }
        }
    }
    /// Does what is left of the job that is open, beginning with share `t`, unless it is number `last`, which becomes the number of
    /// the job; false where there is none.
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
    fn sleep(&self) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep += 1;
        while self.open.0.load(SeqCst) == 0 && !self.awake.load(SeqCst) && !self.stop.load(SeqCst) {
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        *asleep -= 1;
    }
    fn rouse(&self) {
        // The lock makes sure that nobody is between looking and waiting.
        drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}

fn pause(looks: &mut u32) {
    if *looks < PATIENCE {
        *looks += 1;
        spin_loop();
    } else {
        yield_now();
    }
}

/// Sets a flag back when it goes.
struct Flag<'a>(&'a AtomicBool);
impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Team {
    /// The caller and `threads - 1` helpers.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        Self::of(Shared::new(threads), threads, None)
    }
    /// Two teams, for two callers at a time, of so many threads each. Who has nothing to do in one [takes part](Self::help_partner) in what
    /// the other does: both cut their work for all threads.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub(crate) fn pair(threads: [usize; 2]) -> std::io::Result<[Self; 2]> {
        let shared = threads.map(|_| Shared::new(threads[0] + threads[1]));
        let team = |own: usize| {
            let partner = Partner { shared: Arc::clone(&shared[1 - own]), share: threads[1 - own] };
            Self::of(Arc::clone(&shared[own]), threads[own], Some(partner))
        };
        Ok([team(0)?, team(1)?])
    }
    fn of(shared: Arc<Shared>, threads: usize, partner: Option<Partner>) -> std::io::Result<Self> {
        let mut team = Team { shared, helpers: Vec::new(), partner };
        for t in 1..threads {
            let (shared, partner) = (Arc::clone(&team.shared), team.partner.clone());
            let helper = thread::Builder::new().name(format!("cpu-{t}"));
            team.helpers.push(helper.spawn(move || shared.help(t, partner.as_ref()))?);
        }
        Ok(team)
    }
    /// For a caller that waits: does what is left of the partner's open job, unless it is number `last`, which becomes the number of the job;
    /// false where there is none.
    pub(super) fn help_partner(&self, last: &mut usize) -> bool {
        self.partner.as_ref().is_some_and(|p| p.shared.take_part(p.share, last))
    }
    pub(super) fn threads(&self) -> usize {
        self.shared.next.len()
    }
    /// Runs `work` on this thread with the team as its own.
    pub(crate) fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Back(Option<Arc<Shared>>);
        impl Drop for Back {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _back = Back(CURRENT.replace(Some(Arc::clone(&self.shared))));
        work()
    }
    /// [`install`](Self::install), helpers staying awake meanwhile. One that finds nothing to do for a while offers
    /// its core to others, so this is polite on a shared machine, but not idle.
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
            let _ = helper.join(); // its panics went to the leader
        }
    }
}

/// Runs `work`, which is other threads', while the helpers of the current team sleep.
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

/// Threads that would share work from here: those of the current team, and 1 where there is none or within a piece of work.
pub fn threads() -> usize {
    if BUSY.get() {
        return 1;
    }
    CURRENT.with_borrow(|team| team.as_ref().map_or(1, |team| team.next.len()))
}

/// Elements of one thread's share of `n`, in whole cache lines: for work that has the same bits however it is split.
pub fn share(n: usize) -> usize {
    n.div_ceil(threads()).next_multiple_of(LANES).max(LANES)
}

/// Consecutive items of `n` that make a piece of work: `least` or more, and a few pieces for each thread.
pub fn piece(n: usize, least: usize) -> usize {
    n.div_ceil(PIECES * threads()).max(least).max(1)
}

/// Runs `f(0)` to `f(tasks - 1)`, side by side on the current team, and returns when all are done.
///
/// # Panics
/// When one of them does.
pub fn run(tasks: usize, f: impl Fn(usize) + Sync) {
    let team = CURRENT
        .with_borrow(Clone::clone)
        .filter(|team| tasks > 1 && team.next.len() > 1 && !BUSY.get() && !team.led.swap(true, SeqCst));
    let Some(team) = team else { return (0..tasks).for_each(f) };
    let led = Flag(&team.led);
    team.run(tasks, &f);
    let panic = team.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(led);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// Items that a team works through.
pub trait InParallel: Iterator + Sized
where
    Self::Item: Send,
{
    /// Runs `f` on every item; at least `least` consecutive ones by the same thread.
    fn in_parallel(self, least: usize, f: impl Fn(Self::Item) + Sync) {
        if threads() == 1 {
            return self.for_each(f);
        }
        let items: Vec<TakeCell<Self::Item>> = self.map(|x| TakeCell(UnsafeCell::new(Some(x)))).collect();
        let size = piece(items.len(), least);
        run(items.len().div_ceil(size), |piece| {
            for slot in items.iter().skip(piece * size).take(size) {
                // SAFETY: every piece is run once, and pieces share no slot.
                if let Some(x) = slot.0.with_mut(|item| unsafe { (*item).take() }) {
                    f(x);
                }
            }
        });
    }
}
impl<I: Iterator> InParallel for I where I::Item: Send {}

/// An item that one thread takes.
struct TakeCell<T>(UnsafeCell<Option<T>>);
// SAFETY: a slot is touched by the thread alone that runs its piece.
unsafe impl<T: Send> Sync for TakeCell<T> {}

/// The protocol of leader and helpers under every order of a small number of them that memory allows.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{model::Builder, thread};

    fn in_every_order(check: impl Fn() + Sync + Send + 'static) {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    /// Cells that tasks write.
    struct Cells([UnsafeCell<usize>; 2]);
    // SAFETY: the model finds out whether two threads touch one of them at a time.
    unsafe impl Sync for Cells {}

    impl Cells {
        fn add(&self, task: usize, value: usize) {
            // SAFETY: as above.
            self.0[task].with_mut(|cell| unsafe { *cell += value });
        }
    }

    /// A job of two tasks, each of which writes a cell of its own; what the leader then finds there.
    fn job(shared: &Shared, value: usize) {
        let cells = Cells([UnsafeCell::new(0), UnsafeCell::new(0)]);
        shared.run(2, &|task| cells.add(task, value));
        // SAFETY: nobody is inside any more.
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
    fn a_helper_that_went_to_sleep_is_woken_and_ends() {
        in_every_order(|| {
            let shared = Shared::new(2);
            let helper = Arc::clone(&shared);
            let helper = thread::spawn(move || helper.help(1, None));
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
    fn a_fork_within_a_task_or_beside_another_leader_runs_alone() -> std::io::Result<()> {
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
    fn who_waits_in_one_of_two_teams_takes_part_in_what_the_other_does() -> std::io::Result<()> {
        for threads in [[1, 1], [2, 1], [2, 3]] {
            let [one, other] = Team::pair(threads)?;
            let (over, started) = (AtomicBool::new(false), AtomicUsize::new(0));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(SeqCst) {
                        other.help_partner(&mut last);
                    }
                });
                // No task ends before all have begun, or for long: there is one more than the team has threads.
                let (tasks, begun) = (threads[0] + 1, Instant::now());
                let met = AtomicUsize::new(0);
                one.install(|| {
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
