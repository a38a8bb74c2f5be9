//! Runs of several ranks in one process.
use std::{
    panic,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::Duration,
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{
        Device,
        comm::{Comm, Local, Ranks, RanksWatch},
    },
};

/// Runs `work` as every rank of `ranks`, each on a thread of its own with a device that `open` opens, given
/// the rank. Returns the result of the first rank. If a rank fails, the others end as well.
///
/// # Errors
/// The error of the rank that failed first. `Usage` if there are no ranks.
///
/// # Examples
/// ```
/// use tgnn::runtime::Device;
/// use tgnn_training::task::on_local_ranks;
/// let sum = on_local_ranks(3, tgnn::runtime::comm::DEADLINE, |_| Device::cpu(1), |device| {
///     let ranks = device.ranks().expect("the device is one of three ranks");
///     let mut numbers = [ranks.rank() as f32];
///     ranks.sum(&mut numbers)?;
///     Ok(numbers[0])
/// })?;
/// assert_eq!(sum, 3.0); // 0 + 1 + 2
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn on_local_ranks<T: Send>(
    ranks: usize,
    deadline: Duration,
    open: impl Fn(usize) -> Result<Device> + Sync,
    work: impl Fn(Device) -> Result<T> + Sync,
) -> Result<T> {
    run(ranks, deadline, None, &open, &work)
}

/// Like [`on_local_ranks`], and calls `stuck` from a thread of its own if the ranks have not ended though
/// they should have: a call of a device's driver takes longer than the deadline, or a rank has failed some
/// seconds ago. This function cannot return then, because a thread that is in a call cannot be ended. `stuck`
/// may end the process, as by [`end_process`](tgnn::runtime::comm::end_process).
///
/// # Errors
/// As `on_local_ranks`.
pub fn on_watched_ranks<T: Send>(
    ranks: usize,
    deadline: Duration,
    stuck: impl Fn(&Error) + Sync,
    open: impl Fn(usize) -> Result<Device> + Sync,
    work: impl Fn(Device) -> Result<T> + Sync,
) -> Result<T> {
    run(ranks, deadline, Some(&stuck), &open, &work)
}

/// Time that ranks have to end after one of them has failed.
const GRACE: Duration = Duration::from_secs(5);
/// Time between two looks at what the ranks do.
const LOOK: Duration = Duration::from_millis(100);

/// What is told of ranks that should have ended.
type Stuck<'a> = &'a (dyn Fn(&Error) + Sync);

fn run<T: Send>(
    ranks: usize,
    deadline: Duration,
    stuck: Option<Stuck<'_>>,
    open: &(dyn Fn(usize) -> Result<Device> + Sync),
    work: &(dyn Fn(Device) -> Result<T> + Sync),
) -> Result<T> {
    if ranks == 0 {
        return Err(Error::usage("there are no ranks").remedy("give 1 or more"));
    }
    let cause = Cause::default();
    let run = |comm: Local| -> Result<T> {
        let (rank, comm) = (comm.rank(), Arc::new(comm));
        let failing = FailOnPanic(&*comm);
        let ran = open(rank).and_then(|device| {
            let connection: Arc<dyn Comm> = comm.clone();
            work(device.over(Ranks::new(connection)?))
        });
        drop(failing);
        ran.inspect_err(|e| {
            cause.add(e);
            comm.fail(&e.to_string());
        })
    };
    let connections = Local::with_deadline(ranks, deadline);
    let watched = connections.first().map(Local::watched);
    let (mut connections, ended) = (connections.into_iter(), AtomicBool::new(false));
    let first = connections.next();
    thread::scope(|scope| {
        let watcher =
            watched.zip(stuck).map(|(watched, stuck)| scope.spawn(|| watch(watched, &ended, &cause, stuck)));
        let _ended = EndsWatch { ended: &ended, watcher: watcher.as_ref().map(|w| w.thread().clone()) };
        let others: Vec<_> = connections.map(|comm| scope.spawn(|| run(comm))).collect();
        let first = first.map(&run);
        let others = others.into_iter().map(|rank| rank.join().unwrap_or_else(|e| panic::resume_unwind(e)));
        // A rank that ends because another one has failed only says so.
        let mut all: Vec<Result<T>> = first.into_iter().chain(others).collect();
        let failed = |r: &Result<T>| r.as_ref().err().map(|e| e.kind() == ErrorKind::Comm);
        let cause = all.iter().position(|r| failed(r) == Some(false)).or(all.iter().position(Result::is_err));
        all.swap_remove(cause.unwrap_or(0))
    })
}

/// Calls `stuck` if ranks should have ended and have not.
fn watch(watched: RanksWatch, ended: &AtomicBool, cause: &Cause, stuck: Stuck<'_>) {
    while !ended.load(Relaxed) {
        if let Some(e) = watched.stuck(GRACE) {
            return stuck(&cause.take().unwrap_or(e));
        }
        thread::park_timeout(LOOK);
    }
}

/// Why ranks fail: the first error that is not about another rank, or else the first one.
#[derive(Default)]
struct Cause(Mutex<Option<Error>>);

impl Cause {
    fn add(&self, e: &Error) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.kind() == ErrorKind::Comm && e.kind() != ErrorKind::Comm) {
            *known = Some(Error::new(e.kind(), e.to_string()));
        }
    }
    fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Ends the watching of ranks when they end, also by a panic.
struct EndsWatch<'a> {
    ended: &'a AtomicBool,
    watcher: Option<Thread>,
}

impl Drop for EndsWatch<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        self.watcher.iter().for_each(Thread::unpark);
    }
}

/// Tells the other ranks if the thread panics.
struct FailOnPanic<'a>(&'a dyn Comm);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("a panic");
        }
    }
}
