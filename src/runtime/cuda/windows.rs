//! Windows, by which the kernels of several ranks exchange data.
//!
//! A window is a block of a rank's device memory that the kernels of all ranks read. In a collective every
//! rank writes what it sends to its own window, waits until all others have done so, and reads its parts from
//! their windows. All of that is work of CUDA streams, so the host does not learn the counts. Nor does it
//! wait, and a graph can capture it, unless ranks share a device.
//!
//! How kernels come to read the windows of other ranks is the affair of a [`Transport`].
use super::{
    CudaEvent, CudaStream, DeviceBuffer, Gpu, abi, exchange, memory::PinnedWords, transport::Transport,
};
use crate::{
    error::{Error, Result},
    runtime::{
        comm::{Channel, Comm, InDriver, Local, Ranks, Seat, Traffic, TrafficKind, overdue},
        sync::pause,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// The window that an op needs to communicate on a device.
#[derive(Clone, Copy, Debug)]
pub struct WindowSize<'a> {
    /// All ranks.
    pub ranks: &'a Ranks,
    /// The channel of the op. Ops of a channel share a window.
    pub channel: Channel,
    /// Bytes that the op writes to the window at most.
    pub bytes: usize,
}

/// The windows of a program, one for each channel that it uses.
#[derive(Debug, Default)]
pub(crate) struct Windows([Option<Window>; Channel::ALL.len()]);

impl Windows {
    /// Opens windows that suffice for ops with these sizes. Collective.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device` if the devices need NCCL and it is missing or refuses; `Comm` if a rank is
    /// missing.
    pub fn open<'a>(gpu: &Gpu, sizes: impl Iterator<Item = WindowSize<'a>>) -> Result<Self> {
        let mut largest: [Option<WindowSize<'a>>; Channel::ALL.len()] = Default::default();
        for size in sizes {
            let of_channel = largest[size.channel as usize].get_or_insert(size);
            of_channel.bytes = of_channel.bytes.max(size.bytes);
        }
        let mut windows = Windows::default();
        for (window, size) in windows.0.iter_mut().zip(largest) {
            *window = size.map(|size| Window::open(gpu, size)).transpose()?;
        }
        Ok(windows)
    }
    /// Returns the window of a channel.
    pub fn get(&self, channel: Channel) -> Option<&Window> {
        self.0[channel as usize].as_ref()
    }
    fn all(&self) -> impl Iterator<Item = &Window> {
        self.0.iter().flatten()
    }
    /// Waits until every rank of this process has come here. No rank may allocate or free memory of a device
    /// while the work of another rank on the same device waits for it: the driver may first wait for that
    /// work. So ranks come here after they have allocated, before they submit such work.
    ///
    /// # Errors
    /// `Comm` if a rank is missing.
    pub fn meet(&self) -> Result<()> {
        self.local().map_or(Ok(()), |local| local.barrier())
    }
    /// Returns a connection between threads of this process, if the ranks are such.
    fn local(&self) -> Option<&Local> {
        self.all().find_map(|window| window.comm.local())
    }
    /// Returns where this rank says what it does.
    fn seat(&self) -> Option<&Seat> {
        self.local().map(Local::seat)
    }
    /// Says that this rank does this from now on, in calls of the driver that may take long, until the result
    /// is dropped.
    pub fn in_driver(&self, what: &'static str) -> Option<InDriver> {
        self.all().find_map(|window| InDriver::enter(&window.comm, what))
    }
    /// Says that this rank does this from now on, in calls of the driver that take no longer than the
    /// deadline.
    pub fn does(&self, what: &'static str) {
        self.seat().into_iter().for_each(|seat| seat.does(what));
    }
    /// Does the same, for an op of a stage.
    pub fn does_for(&self, what: &'static str, op: &'static str, stage: &'static str) {
        self.seat().into_iter().for_each(|seat| seat.does_for(what, op, stage));
    }
    /// Whether a graph can capture collectives.
    pub fn are_captured(&self) -> bool {
        self.all().all(|window| window.transport.is_captured())
    }
    /// Tells the other ranks of this process that this one ends with an error. It will free memory, for which
    /// the driver may wait for their work, which waits for this rank.
    pub fn fail(&self, e: &Error) {
        self.local().into_iter().for_each(|local| local.fail(&e.to_string()));
    }
    /// Blocks until `event` has been reached, but not longer than the other ranks allow. Afterwards, adds
    /// what this rank has sent to its traffic.
    ///
    /// # Errors
    /// `Device` if work before the event failed; `Comm` if another rank has failed or is missing. No work of
    /// this program waits any more then.
    pub fn wait(&self, event: &CudaEvent) -> Result<()> {
        self.does("waiting for its device");
        let (mut polls, mut progress, mut since) = (0, 0, Instant::now());
        while self.all().next().is_some() && !event.is_reached()? {
            let now = self.all().map(|window| window.counter(PROGRESS).load(Relaxed)).sum();
            if now != progress {
                (progress, since) = (now, Instant::now());
                self.seat().into_iter().for_each(Seat::steps_on);
            }
            self.seat().into_iter().for_each(Seat::answers);
            if let Some(e) = self.lost(since) {
                self.release(event);
                return Err(e);
            }
            pause(&mut polls);
        }
        event.synchronize()?;
        self.all().for_each(Window::count);
        Ok(())
    }
    /// Returns an error if another rank has failed, or if nothing has happened `since` for too long.
    fn lost(&self, since: Instant) -> Option<Error> {
        let any = self.all().next()?;
        let checked = self.all().try_for_each(|window| window.comm.check().and(window.transport.check()));
        if let Err(e) = checked {
            return Some(e);
        }
        let deadline = any.comm.deadline();
        if since.elapsed() <= deadline {
            return None;
        }
        // Other ranks may wait for the missing one, too, but it is behind on the most channels.
        let behind = |&other: &usize| self.all().filter(|window| window.transport.is_behind(other)).count();
        let others = (0..any.ranks).rev().filter(|&other| other != any.rank);
        let missing = others.max_by_key(behind).filter(|other| behind(other) > 0);
        let waits = |window: &&Window| missing.is_none_or(|missing| window.transport.is_behind(missing));
        let channels: Vec<&str> = self.all().filter(waits).map(|window| window.channel.name()).collect();
        let missing = match (missing, any.comm.local()) {
            (Some(missing), Some(local)) => local.named(missing),
            (None, Some(_)) if !self.are_captured() => "the device".into(),
            _ => "another rank".into(),
        };
        let what = format!("a collective on the device ({})", channels.join(", "));
        let e = overdue(any.rank, any.ranks, missing, &what, deadline);
        self.fail(&e);
        Some(e)
    }
    /// Lets work that waits for other ranks go on until `event` has been reached, or can never be.
    pub fn release(&self, event: &CudaEvent) {
        let mut polls = 0;
        while let Ok(false) = event.is_reached() {
            self.all().for_each(|window| window.transport.release());
            pause(&mut polls);
        }
    }
}

/// The window of a channel, as one of the ranks uses it.
#[derive(Debug)]
pub struct Window {
    rank: usize,
    ranks: usize,
    channel: Channel,
    comm: Arc<dyn Comm>,
    traffic: Arc<Traffic>,
    transport: Box<dyn Transport>,
    /// Address of this rank's block.
    address: u64,
    /// Address and bytes of all ranks' blocks, for kernels.
    blocks: DeviceBuffer,
    /// Counters that kernels add to: collectives so far, then rows and bytes sent of each kind.
    counters: PinnedWords,
}

/// Position of the number of collectives among the counters.
const PROGRESS: usize = 0;

impl Window {
    fn open(gpu: &Gpu, size: WindowSize<'_>) -> Result<Self> {
        let WindowSize { ranks, channel, .. } = size;
        let comm = Arc::clone(ranks.channel(channel));
        let transport = exchange::open(gpu, &size)?;
        let all = transport.blocks();
        let blocks = DeviceBuffer::new(gpu, size_of_val(all.as_slice()))?;
        let stream = CudaStream::new(gpu)?;
        blocks.upload(&all, &stream)?;
        stream.synchronize()?;
        Ok(Window {
            rank: comm.rank(),
            ranks: comm.size(),
            channel,
            comm,
            traffic: Arc::clone(ranks.traffic()),
            address: all[size.ranks.rank()][0],
            transport,
            blocks,
            counters: PinnedWords::new(gpu, 1 + 2 * TrafficKind::ALL.len())?,
        })
    }
    fn counter(&self, at: usize) -> &AtomicU64 {
        &self.counters.all()[at]
    }
    /// Returns the address of this rank's block.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
    /// Returns all blocks, for kernels.
    pub(crate) fn blocks(&self) -> abi::Windows {
        abi::Windows {
            of: self.blocks.address() as *const u64,
            rank: self.rank as u32,
            ranks: self.ranks as u32,
        }
    }
    /// Returns the address of the rows and bytes of a kind that this rank has sent, two u64, to which kernels
    /// add.
    pub(crate) fn sent(&self, kind: TrafficKind) -> *mut u64 {
        self.counters.address(sent_at(kind)) as *mut u64
    }
    /// Returns the address of a u64 to which the last kernel of a collective adds 1.
    pub(crate) fn progress(&self) -> *mut u64 {
        self.counters.address(PROGRESS) as *mut u64
    }
    /// Submits a collective to `stream`: `write` submits kernels that write this rank's block, `read` such
    /// that read the blocks of all ranks.
    pub(crate) fn exchange(
        &self,
        stream: &CudaStream,
        write: impl FnOnce() -> Result<()>,
        read: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.transport.before_write(stream)?;
        write()?;
        self.transport.before_read(stream)?;
        read()?;
        self.transport.after_read(stream)
    }
    /// Moves the counters of what this rank has sent to its traffic.
    fn count(&self) {
        for kind in TrafficKind::ALL {
            let at = sent_at(kind);
            let [rows, bytes] = [at, at + 1].map(|at| self.counter(at).swap(0, Relaxed) as usize);
            self.traffic.add(kind, rows, bytes);
        }
    }
}

/// Returns the position of the rows of a kind among the counters; the bytes follow.
fn sent_at(kind: TrafficKind) -> usize {
    1 + 2 * kind as usize
}
