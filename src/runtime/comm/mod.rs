//! Ranks: one training over several devices, each with its own program and its own store.
//!
//! A [`Comm`] connects the ranks. All ranks make the same calls in the same order; a call returns when this
//! rank has what it receives and the bytes that it sends may change. Ops communicate through [`Ranks`], this
//! rank's view of all ranks, which has one connection for each [`Channel`], so that collectives of one
//! channel need not wait for those of another.
//!
//! No rank waits for ever: after the deadline a call returns an error of kind
//! [`Comm`](crate::error::ErrorKind::Comm) that names the missing rank.
mod launch;
mod local;
mod mpi;
mod rendezvous;
mod seats;
mod traffic;

pub use launch::{LaunchedProcess, Launcher, end_process, launched};
#[doc(hidden)]
pub use local::RanksWatch;
pub use local::{Local, local};
pub(crate) use local::{copy_part, ranges};
pub use mpi::{Mpi, mpi, mpi_library};
pub use rendezvous::Rendezvous;
pub(crate) use seats::{InDriver, Seat};
pub use traffic::{Sent, SentByKind, Traffic, TrafficKind};

use super::Real;
use crate::error::{Error, ErrorKind, Result};
use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Time after which a rank gives up waiting for another one, unless the caller sets another time.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A connection between ranks, as one of them sees it.
///
/// Counts are in bytes. Every call is collective unless it says otherwise: all ranks make it, in the same
/// order, with counts that fit together. Results have the same bits on every rank, and do not depend on the
/// kind of connection.
///
/// # Errors
/// Every call returns an error of kind [`Comm`](ErrorKind::Comm) if another rank has failed, if it is missing
/// after the deadline, or if its counts do not fit. Afterwards the connection must not be used any more.
pub trait Comm: Send + Sync + fmt::Debug {
    /// Returns the number of this rank, from 0.
    fn rank(&self) -> usize;
    /// Returns the number of ranks.
    fn size(&self) -> usize;
    /// Sends to each rank its part of `send`, and receives a part from each. `send` and `recv` hold the parts
    /// in the order of the ranks, `send_counts` and `recv_counts` their bytes. The part for this rank itself
    /// is copied.
    fn all_to_all(
        &self,
        send: &[u8],
        send_counts: &[usize],
        recv: &mut [u8],
        recv_counts: &[usize],
    ) -> Result<()>;
    /// Sends `send` to every rank, and receives what the ranks send, in their order; `counts` are the bytes
    /// from each rank.
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[usize]) -> Result<()>;
    /// Copies `bytes` of rank `root` to all ranks.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()>;
    /// Sends `bytes` to rank `to`, which calls [`recv`](Self::recv). Not collective.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()>;
    /// Receives the next bytes that rank `from` [sends](Self::send) to this one. Not collective.
    fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<()>;
    /// Waits until all ranks have called it.
    fn barrier(&self) -> Result<()>;
    /// Divides the ranks, in their order, into `groups` groups of equal size, and returns a connection
    /// between the ranks of this one's group, which are numbered anew. Calls on the two connections may
    /// overlap; a failure ends both.
    fn split(&self, groups: usize) -> Result<Arc<dyn Comm>>;
    /// Returns another connection between the same ranks. Calls on the two may overlap.
    fn duplicate(&self) -> Result<Arc<dyn Comm>> {
        self.split(1)
    }
    /// Tells the other ranks that this one has failed, so that they end at once. Not collective.
    fn fail(&self, reason: &str);
    /// Ends all calls of this rank that wait, because another of its threads has failed. Not collective.
    fn abandon(&self, reason: &str);
    /// Returns the time after which this rank gives up waiting for another one.
    fn deadline(&self) -> Duration;
    /// Checks that no other rank is known to have failed. Does not wait. Not collective.
    ///
    /// # Errors
    /// `Comm`, with the reason.
    fn check(&self) -> Result<()>;
    /// Returns the connection if it is between threads of this process: their devices exchange data without
    /// it.
    fn local(&self) -> Option<&Local> {
        None
    }
    /// Returns the kind of connection, for people: `local`, `mpi (Open MPI 5.0.11)`.
    fn describe(&self) -> String;
}

/// Replaces `values` by their sums over all ranks, added in the order of the ranks, so that the bits are the
/// same on every rank and by every connection. `scratch` is reused from call to call. Collective.
///
/// # Errors
/// As the calls of [`Comm`].
pub fn all_reduce<R: Real>(comm: &dyn Comm, values: &mut [R], scratch: &mut Vec<R>) -> Result<()> {
    let (n, rank, size) = (values.len(), comm.rank(), comm.size());
    if size == 1 {
        return Ok(());
    }
    // Each rank adds up one piece of the values; then the pieces are gathered.
    let piece = |r: usize| n * r / size..n * (r + 1) / size;
    let own = piece(rank).len();
    scratch.clear();
    scratch.resize(size * own, R::ZERO);
    let bytes = |count: usize| count * size_of::<R>();
    let send_counts: Vec<usize> = (0..size).map(|r| bytes(piece(r).len())).collect();
    let recv = bytemuck::cast_slice_mut(scratch.as_mut_slice());
    comm.all_to_all(bytemuck::cast_slice(values), &send_counts, recv, &vec![bytes(own); size])?;
    let (sum, others) = scratch.split_at_mut(own);
    for part in others.chunks_exact(own.max(1)) {
        sum.iter_mut().zip(part).for_each(|(sum, &x)| *sum += x);
    }
    comm.all_gather(bytemuck::cast_slice(sum), bytemuck::cast_slice_mut(values), &send_counts)
}

/// The purpose of a connection. Collectives of one channel run in the order of the program; those of
/// different channels may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Channel {
    /// What follows from the data alone: which rows go where. It may run steps ahead.
    Routes,
    /// Rows of node memory and of mails, and their gradients.
    Rows,
    /// Rows of features that are known from the data alone. They may run steps ahead.
    Features,
    /// Rows of the features of mails' events, and the ids by which ranks ask for them. Node memory decides
    /// which events these are, so they follow the step before.
    MailFeatures,
    /// Gradients of the parameters.
    Gradients,
    /// Everything outside of steps: agreement at the start, scores, checkpoints.
    Control,
}

impl Channel {
    /// All channels.
    pub const ALL: [Channel; 6] = [
        Channel::Routes,
        Channel::Rows,
        Channel::Features,
        Channel::MailFeatures,
        Channel::Gradients,
        Channel::Control,
    ];
    /// Returns the name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Channel::Routes => "routes",
            Channel::Rows => "rows",
            Channel::Features => "features",
            Channel::MailFeatures => "features of mails",
            Channel::Gradients => "gradients",
            Channel::Control => "control",
        }
    }
}

/// All ranks, as one of them sees them. Clones share the connections and the counters.
#[derive(Clone)]
pub struct Ranks {
    channels: [Arc<dyn Comm>; Channel::ALL.len()],
    traffic: Arc<Traffic>,
    attached: Arc<[OnceLock<Attached>; Channel::ALL.len()]>,
}

/// What a device keeps for a channel.
type Attached = Arc<dyn Any + Send + Sync>;

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = self.channel(Channel::Control);
        write!(f, "Ranks {{ rank: {}, size: {}, by: {} }}", self.rank(), self.size(), control.describe())
    }
}

impl Ranks {
    /// Opens the channels over a connection. Collective.
    ///
    /// # Errors
    /// As the calls of [`Comm`].
    pub fn new(control: Arc<dyn Comm>) -> Result<Self> {
        // The control channel is the connection itself, which outlives the others.
        let [routes, rows, features, mail_features, gradients] = [
            control.duplicate()?,
            control.duplicate()?,
            control.duplicate()?,
            control.duplicate()?,
            control.duplicate()?,
        ];
        let channels = [routes, rows, features, mail_features, gradients, control];
        Ok(Ranks { channels, traffic: Arc::default(), attached: Arc::default() })
    }
    /// Divides the ranks, in their order, into `groups` groups of equal size. Returns those of this rank's
    /// group, which are numbered anew; the counters of bytes are shared. Collective.
    ///
    /// # Errors
    /// As the calls of [`Comm`]; `Comm` if the ranks cannot be divided.
    pub fn split(&self, groups: usize) -> Result<Self> {
        if groups == 1 {
            return Ok(self.clone());
        }
        let of_group = Ranks::new(self.channel(Channel::Control).split(groups)?)?;
        Ok(Ranks { traffic: Arc::clone(&self.traffic), ..of_group })
    }
    /// Returns a single rank, with nobody to talk to.
    pub fn alone() -> Self {
        let comm: Arc<dyn Comm> = Arc::new(Local::alone());
        let channels = std::array::from_fn(|_| Arc::clone(&comm));
        Ranks { channels, traffic: Arc::default(), attached: Arc::default() }
    }
    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.channels[0].rank()
    }
    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.channels[0].size()
    }
    /// Whether this is the first rank, which writes files and prints.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }
    /// Returns the connection of a channel.
    pub fn channel(&self, channel: Channel) -> &Arc<dyn Comm> {
        &self.channels[channel as usize]
    }
    /// Returns what the device of this rank keeps for a channel, made by the first call.
    pub(crate) fn attached<T: Any + Send + Sync>(
        &self,
        channel: Channel,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let slot = &self.attached[channel as usize];
        let attached = match slot.get() {
            Some(attached) => Arc::clone(attached),
            None => {
                let made: Attached = Arc::new(make()?);
                Arc::clone(slot.get_or_init(|| made))
            }
        };
        attached.downcast().map_err(|_| Error::new(ErrorKind::Comm, "a channel serves two kinds of devices"))
    }
    /// Says which device this rank has opened: a CUDA device, or the CPU.
    pub(crate) fn opens(&self, device: Option<usize>) {
        let local = self.channel(Channel::Control).local();
        local.map(Local::seat).into_iter().for_each(|seat| seat.opens(device));
    }
    /// Says that this rank does this in calls of the driver that may take long, until the result is dropped.
    pub(crate) fn in_driver(&self, what: &'static str) -> Option<InDriver> {
        InDriver::enter(self.channel(Channel::Control), what)
    }
    /// Returns the bytes that this rank has sent to other ranks, by kind.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }
    /// Returns the same ranks with counters of their own: what is sent for a trial is not counted in the run.
    #[must_use]
    pub fn counted_apart(&self) -> Self {
        Ranks { traffic: Arc::default(), ..self.clone() }
    }
    /// Returns the result of `make` on the first rank, on every rank. Collective.
    ///
    /// # Errors
    /// The error of `make` on the first rank; on the others, that the first rank failed.
    pub fn from_first(&self, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let control = self.channel(Channel::Control);
        let made = if self.is_first() { make() } else { Ok(Vec::new()) };
        let mut length = made.as_ref().map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes();
        control.broadcast(0, &mut length)?;
        let mut bytes = made?;
        match u64::from_le_bytes(length) {
            u64::MAX => Err(Error::new(ErrorKind::Comm, "rank 0 has failed")),
            length => {
                bytes.resize(length as usize, 0);
                control.broadcast(0, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
    /// Returns the `bytes` of every rank, in the order of the ranks. Collective.
    ///
    /// # Errors
    /// As the calls of [`Comm`].
    pub fn gathered(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (control, size) = (self.channel(Channel::Control), self.size());
        let (mut lengths, each) = (vec![0u64; size], vec![size_of::<u64>(); size]);
        let own = bytes.len() as u64;
        control.all_gather(&own.to_ne_bytes(), bytemuck::cast_slice_mut(&mut lengths), &each)?;
        let counts: Vec<usize> = lengths.iter().map(|&length| length as usize).collect();
        let mut all = vec![0; counts.iter().sum()];
        control.all_gather(bytes, &mut all, &counts)?;
        let mut rest = all.as_slice();
        let next = |count: usize| {
            let (of_rank, later) = rest.split_at(count);
            rest = later;
            of_rank.to_vec()
        };
        Ok(counts.into_iter().map(next).collect())
    }
    /// Checks that all ranks have the same `value` of `what`, such as the hash of a configuration.
    /// Collective.
    ///
    /// # Errors
    /// `Comm`, with the first rank that differs from this one, and the first lines that differ.
    pub fn agree(&self, what: &str, value: &str) -> Result<()> {
        for (rank, other) in self.gathered(value.as_bytes())?.into_iter().enumerate() {
            if other != value.as_bytes() {
                let other = String::from_utf8_lossy(&other);
                // Of long values, the first lines that differ.
                let lines = value.lines().zip(other.lines()).find(|(a, b)| a != b);
                let (own, other) = lines.unwrap_or((value, &other));
                let this = self.rank();
                let found = format!(
                    "the ranks disagree on {what}: rank {this} has `{own}`, rank {rank} has `{other}`"
                );
                return Err(
                    Error::new(ErrorKind::Comm, found).remedy(format!("give all ranks the same {what}"))
                );
            }
        }
        Ok(())
    }
    /// Replaces `values` by their sums over all ranks. Collective.
    ///
    /// # Errors
    /// As the calls of [`Comm`].
    pub fn sum(&self, values: &mut [f32]) -> Result<()> {
        all_reduce(&**self.channel(Channel::Control), values, &mut Vec::new())
    }
}

/// Returns the error of a rank that waits for `missing`, a rank, longer than `deadline`, in the call `what`.
pub(crate) fn overdue(
    rank: usize,
    size: usize,
    missing: impl fmt::Display,
    what: &str,
    deadline: Duration,
) -> Error {
    let waited = format!(
        "rank {rank} of {size}: no answer from {missing} within {} s, in {what}",
        deadline.as_secs_f64()
    );
    let remedy = "see what that rank says; if it is only slow, give a longer --deadline";
    Error::new(ErrorKind::Comm, waited).remedy(remedy)
}

/// Returns the error of counts that do not fit together.
fn disagree(rank: usize, other: usize, what: &str, found: impl fmt::Display) -> Error {
    let text = format!("ranks {rank} and {other} disagree in {what}: {found}");
    Error::new(ErrorKind::Comm, text).remedy("all ranks must run the same program on the same data")
}

/// Returns the number of ranks of each of `groups` groups.
pub(crate) fn group_size(size: usize, groups: usize) -> Result<usize> {
    match size.checked_rem(groups) {
        Some(0) => Ok(size / groups),
        _ => Err(Error::new(ErrorKind::Comm, format!("{size} ranks cannot be divided into {groups} groups"))),
    }
}

/// Checks that `counts` add up to `bytes`, one count for each rank.
pub(crate) fn check_counts(size: usize, what: &str, bytes: usize, counts: &[usize]) -> Result<()> {
    let sum = counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count));
    if counts.len() == size && sum == bytes {
        return Ok(());
    }
    let found = format!("{what}: {} counts of {sum} bytes for {size} ranks and {bytes} bytes", counts.len());
    Err(Error::new(ErrorKind::Comm, found))
}
