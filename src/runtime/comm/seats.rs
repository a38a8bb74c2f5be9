//! What the ranks of a process do on their devices, for those that wait for them: a call of the driver may
//! never return, and then the rank itself cannot say so.
use super::{Comm, Local};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// What a rank does in calls of the driver.
#[derive(Clone, Copy, Debug)]
struct Doing {
    what: &'static str,
    /// For which op, and its stage; empty if for none.
    op: &'static str,
    stage: &'static str,
    /// Whether no call takes long. Those that prepare a device may: they copy tables, and lock memory.
    is_short: bool,
}

impl Doing {
    fn op(self) -> Option<String> {
        (!self.op.is_empty()).then(|| format!("{} ({})", self.op, self.stage))
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        self.op().map_or(Ok(()), |op| write!(f, " {op}"))
    }
}

/// Where a rank says what it does.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// `None` if it is in no call of the driver.
    doing: Mutex<Option<Doing>>,
    /// When a call of the driver returned last, in microseconds of [`now`].
    answered: AtomicU64,
    /// Number of times that its device has got on.
    steps: AtomicU64,
    /// The number of its device, once it has opened one; `None` for the CPU.
    device: OnceLock<Option<usize>>,
}

/// Returns the microseconds since the first call.
fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_micros() as u64
}

impl Seat {
    fn doing(&self) -> MutexGuard<'_, Option<Doing>> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Says that the rank does this from now on, in calls of the driver that take no longer than the
    /// deadline.
    pub(crate) fn does(&self, what: &'static str) {
        self.does_for(what, "", "");
    }
    /// Does the same, for an op of a stage.
    pub(crate) fn does_for(&self, what: &'static str, op: &'static str, stage: &'static str) {
        self.answers();
        *self.doing() = Some(Doing { what, op, stage, is_short: true });
    }
    /// Says that the rank is in no call of the driver any more.
    pub(crate) fn leaves(&self) {
        *self.doing() = None;
    }
    /// Returns the op for which the rank is in calls of the driver.
    pub(crate) fn op(&self) -> Option<String> {
        self.doing().and_then(Doing::op)
    }
    /// Says that the last call of the driver has returned.
    pub(crate) fn answers(&self) {
        self.answered.store(now(), Relaxed);
    }
    /// Says which device the rank has opened: a CUDA device, or the CPU.
    pub(crate) fn opens(&self, device: Option<usize>) {
        self.device.get_or_init(|| device);
    }
    /// Returns the CUDA device that the rank has opened, or the CPU; `None` if it has not opened one yet.
    pub(super) fn device(&self) -> Option<Option<usize>> {
        self.device.get().copied()
    }
    /// Says that the rank's device has got on.
    pub(crate) fn steps_on(&self) {
        self.steps.fetch_add(1, Relaxed);
    }
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }
    /// Returns what the rank does, if it is in a call of the driver.
    pub(super) fn place(&self) -> Option<String> {
        Some((*self.doing())?.to_string())
    }
    fn silent_for(&self) -> std::time::Duration {
        std::time::Duration::from_micros(now().saturating_sub(self.answered.load(Relaxed)))
    }
}

/// A rank that is in calls of the driver, until this is dropped.
pub(crate) struct InDriver(Arc<dyn Comm>);

impl InDriver {
    /// Says what a rank of this process does, in calls that may take long; `None` for other ranks.
    pub fn enter(comm: &Arc<dyn Comm>, what: &'static str) -> Option<Self> {
        *comm.local()?.seat().doing() = Some(Doing { what, op: "", stage: "", is_short: false });
        Some(InDriver(Arc::clone(comm)))
    }
}

impl Drop for InDriver {
    fn drop(&mut self) {
        self.0.local().map(Local::seat).into_iter().for_each(Seat::leaves);
    }
}

/// The seats of all ranks of a process.
#[derive(Debug)]
pub(super) struct Seats {
    of: Vec<Seat>,
    /// When a rank failed first.
    failed: OnceLock<Instant>,
}

impl Seats {
    pub fn new(ranks: usize) -> Self {
        Seats { of: (0..ranks).map(|_| Seat::default()).collect(), failed: OnceLock::new() }
    }
    pub fn seat(&self, seat: usize) -> &Seat {
        &self.of[seat]
    }
    pub fn number(&self) -> usize {
        self.of.len()
    }
    /// Records that a rank has failed.
    pub fn fail(&self) {
        self.failed.get_or_init(Instant::now);
    }
}

impl Seats {
    /// Returns how long ago a rank failed; zero if none has.
    pub fn failed_for(&self) -> std::time::Duration {
        self.failed.get().map_or(std::time::Duration::ZERO, Instant::elapsed)
    }
    /// Returns a rank that has been in a short call of the driver for longer than `most`, with what it does.
    pub fn longer_than(&self, most: std::time::Duration) -> Option<(usize, String)> {
        let late = |(seat, of): (usize, &Seat)| {
            // In this order: when a rank begins something, it answers before it says what.
            let doing = (*of.doing()).filter(|doing| doing.is_short)?;
            (of.silent_for() > most).then(|| (seat, doing.to_string()))
        };
        self.of.iter().enumerate().find_map(late)
    }
    /// Returns what the other ranks do with their devices, as the end of a sentence.
    pub fn others(&self, but: usize) -> String {
        let others = self.of.iter().enumerate().filter(|(seat, _)| *seat != but);
        others.filter_map(|(seat, of)| Some(format!("; rank {seat} is {}", of.place()?))).collect()
    }
}
