//! Windows, by which the kernels of several ranks exchange data.
//!
//! A window is a block of a rank's device memory that the kernels of all ranks read. In a collective every
//! rank writes what it sends to its own window, says so, waits until all others have said so, and reads its
//! parts from their windows. All of that is work of CUDA streams, so the host neither waits nor learns the
//! counts, and a graph can capture it. While a stream waits for another rank, it occupies no multiprocessor,
//! so ranks that share a device do not hold up one another.
//!
//! Rank r says that it has written its window by writing 1 to word `written[r]` in the inbox of each other
//! rank, and that it has read a window by writing 1 to `read[r]` in the inbox of the window's rank. The rank
//! that waits for such a word sets it back to 0.
use super::{
    CudaEvent, CudaStream, DeviceBuffer, Gpu, abi,
    memory::PinnedWords,
    stream::WordOp::{self, Wait, Write},
};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::{
        comm::{Channel, Comm, Ranks, Traffic, TrafficKind, overdue},
        sync::pause,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed},
        },
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
    /// `OutOfMemory`; `Device` if a device cannot access the memory of another one, or if ranks are
    /// processes; `Comm` if a rank is missing.
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
    pub fn of(&self, channel: Channel) -> Option<&Window> {
        self.0[channel as usize].as_ref()
    }
    fn all(&self) -> impl Iterator<Item = &Window> {
        self.0.iter().flatten()
    }
    /// Blocks until `event` has been reached, but not longer than the other ranks allow. Afterwards, adds
    /// what this rank has sent to its traffic.
    ///
    /// # Errors
    /// `Device` if work before the event failed; `Comm` if another rank has failed or is missing. No work of
    /// this program waits any more then.
    pub fn wait(&self, event: &CudaEvent) -> Result<()> {
        let (mut polls, mut progress, mut since) = (0, 0, Instant::now());
        while self.all().next().is_some() && !event.is_reached()? {
            let now = self.all().map(|window| window.word(window.progress_at())).sum();
            if now != progress {
                (progress, since) = (now, Instant::now());
            }
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
        let local = any.comm.local()?;
        if let Some(e) = local.failed() {
            return Some(e);
        }
        if since.elapsed() <= local.deadline() {
            return None;
        }
        // Other ranks may wait for the missing one, too, but it is behind on the most channels.
        let behind = |&other: &usize| self.all().filter(|window| window.is_behind(other)).count();
        let missing = any.others().rev().max_by_key(behind).filter(|other| behind(other) > 0)?;
        let what = "a collective on the device";
        let e = overdue(any.rank, any.ranks(), missing, what, local.deadline());
        local.fail(&e.to_string());
        Some(e)
    }
    /// Lets work that waits for other ranks go on until `event` has been reached, or can never be.
    pub fn release(&self, event: &CudaEvent) {
        let mut polls = 0;
        while let Ok(false) = event.is_reached() {
            self.all().for_each(Window::release);
            pause(&mut polls);
        }
    }
}

/// The window of a channel, as one of the ranks uses it.
#[derive(Debug)]
pub struct Window {
    rank: usize,
    comm: Arc<dyn Comm>,
    traffic: Arc<Traffic>,
    /// All ranks' memory, which this rank's streams access.
    memory: Vec<Arc<Memory>>,
    /// Address and bytes of all ranks' blocks, for kernels.
    blocks: DeviceBuffer,
}

/// The memory of a rank that all ranks access. It lives as long as one of them may.
#[derive(Debug)]
struct Memory {
    block: DeviceBuffer,
    inbox: PinnedWords,
}

impl Window {
    fn open(gpu: &Gpu, size: WindowSize<'_>) -> Result<Self> {
        let WindowSize { ranks, channel, bytes } = size;
        let comm = Arc::clone(ranks.channel(channel));
        let Some(local) = comm.local() else {
            let what = format!("ranks that are connected by {} cannot use CUDA devices yet", comm.describe());
            return Err(
                Error::new(ErrorKind::Device, what).remedy("give --ranks, or train with --device cpu")
            );
        };
        let ranks_in_all = local.size();
        let words = 2 * ranks_in_all + 1 + 2 * TrafficKind::ALL.len();
        let own = Memory { block: DeviceBuffer::new(gpu, bytes)?, inbox: PinnedWords::new(gpu, words)? };
        own.inbox.all()[ranks_in_all..2 * ranks_in_all].iter().for_each(|read| read.store(1, Relaxed));
        let memory = local.share(own)?;
        memory.iter().try_for_each(|of| gpu.reach(of.block.gpu().ordinal()))?;
        let all: Vec<u64> =
            memory.iter().flat_map(|of| [of.block.address(), of.block.bytes() as u64]).collect();
        let blocks = DeviceBuffer::new(gpu, size_of_val(all.as_slice()))?;
        let stream = CudaStream::new(gpu)?;
        blocks.upload(&all, &stream)?;
        stream.synchronize()?;
        let (rank, traffic) = (local.rank(), Arc::clone(ranks.traffic()));
        Ok(Window { rank, comm, traffic, memory, blocks })
    }
    fn ranks(&self) -> usize {
        self.memory.len()
    }
    fn others(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.ranks()).filter(move |&r| r != rank)
    }
    /// Returns the words of this rank's inbox.
    fn words(&self) -> &[AtomicU64] {
        self.memory[self.rank].inbox.all()
    }
    fn word(&self, at: usize) -> u64 {
        self.words()[at].load(Acquire)
    }
    // Places of words in an inbox.
    fn written_at(&self, rank: usize) -> usize {
        rank
    }
    fn read_at(&self, rank: usize) -> usize {
        self.ranks() + rank
    }
    fn progress_at(&self) -> usize {
        2 * self.ranks()
    }
    fn sent_at(&self, kind: TrafficKind) -> usize {
        2 * self.ranks() + 1 + 2 * kind as usize
    }
    /// Returns the address of word `at` of the inbox of `rank`.
    fn address_at(&self, rank: usize, at: usize) -> u64 {
        self.memory[rank].inbox.address(at)
    }
    /// Returns the address of this rank's block.
    pub(crate) fn address(&self) -> u64 {
        self.memory[self.rank].block.address()
    }
    /// Returns all blocks, for kernels.
    pub(crate) fn blocks(&self) -> abi::Windows {
        abi::Windows {
            of: self.blocks.address() as *const u64,
            rank: self.rank as u32,
            ranks: self.ranks() as u32,
        }
    }
    /// Returns the address of the rows and bytes of a kind that this rank has sent, two u64, to which kernels
    /// add.
    pub(crate) fn sent(&self, kind: TrafficKind) -> *mut u64 {
        self.address_at(self.rank, self.sent_at(kind)) as *mut u64
    }
    /// Returns the address of a u64 to which the last kernel of a collective adds 1.
    pub(crate) fn progress(&self) -> *mut u64 {
        self.address_at(self.rank, self.progress_at()) as *mut u64
    }
    /// Submits a collective to `stream`: `write` submits kernels that write this rank's block, `read` such
    /// that read the blocks of all ranks.
    ///
    /// # Errors
    /// Those of `write` and `read`; `Device` if the driver refuses.
    pub(crate) fn exchange(
        &self,
        stream: &CudaStream,
        write: impl FnOnce() -> Result<()>,
        read: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // The others have read what this rank wrote before.
        let own = |at: usize| self.address_at(self.rank, at);
        let waits = self.others().map(|other| Wait(own(self.read_at(other)), 1));
        let resets = self.others().map(|other| Write(own(self.read_at(other)), 0));
        self.submit(stream, waits.chain(resets))?;
        write()?;
        let written = self.others().map(|other| Write(self.address_at(other, self.written_at(self.rank)), 1));
        let waits = self.others().map(|other| Wait(own(self.written_at(other)), 1));
        let resets = self.others().map(|other| Write(own(self.written_at(other)), 0));
        self.submit(stream, written.chain(waits).chain(resets))?;
        read()?;
        let read = |other: usize| Write(self.address_at(other, self.read_at(self.rank)), 1);
        self.submit(stream, self.others().map(read))
    }
    fn submit(&self, stream: &CudaStream, ops: impl Iterator<Item = WordOp>) -> Result<()> {
        let ops: Vec<WordOp> = ops.collect();
        // SAFETY: inboxes live as long as this window, and are page-locked for all devices.
        unsafe { stream.word_ops(&ops) }
    }
    /// Whether `other` has not read this rank's block, and has not written its own one since.
    fn is_behind(&self, other: usize) -> bool {
        self.word(self.read_at(other)) == 0 && self.word(self.written_at(other)) == 0
    }
    /// Ends what this rank's streams wait for now.
    fn release(&self) {
        self.words()[..2 * self.ranks()].iter().for_each(|word| word.store(1, Relaxed));
    }
    /// Moves the counters of what this rank has sent to its traffic.
    fn count(&self) {
        for kind in TrafficKind::ALL {
            let at = self.sent_at(kind);
            let [rows, bytes] = [at, at + 1].map(|at| self.words()[at].swap(0, Relaxed) as usize);
            self.traffic.add(kind, rows, bytes);
        }
    }
}
