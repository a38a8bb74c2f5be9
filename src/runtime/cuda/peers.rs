//! Windows that the kernels of other ranks read where they are: the devices are peers, or one device, and the
//! ranks are threads of one process. There are two ways to wait for the other ranks.
//!
//! **Words** ([`Peers`]), if each rank has a device of its own. Rank r says that it has written its window by
//! writing 1 to word `written[r]` in the inbox of each other rank, and that it has read a window by writing 1
//! to `read[r]` in the inbox of the window's rank. The rank that waits for such a word sets it back to 0. All
//! of this is work of streams, which graphs capture. Inboxes lie in page-locked memory of the host, so the
//! host can see who is missing, and end the waiting, without the driver.
//!
//! **Events** ([`OrderedPeers`]), if ranks share a device. The driver promises no order of streams, but may
//! run all work of a device in the order in which it was submitted: streams share connections, and a call
//! that allocates, frees, loads or makes a graph may first wait for all work of the device. If that work
//! waits for a word whose writing another rank has not submitted yet, it waits for ever. So a rank first
//! waits on the host until the others have submitted what it waits for, and then lets its stream wait for
//! their events. All work that has been submitted can then end. A graph cannot capture this.
use super::{
    CudaEvent, CudaStream, DeviceBuffer, Gpu,
    memory::PinnedWords,
    stream::WordOp::{self, Wait, Write},
    transport::Transport,
};
use crate::{
    error::Result,
    runtime::comm::{Comm, Local},
};
use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// The windows of a channel, and the inboxes.
#[derive(Debug)]
pub(super) struct Peers {
    rank: usize,
    memory: Vec<Arc<Memory>>,
}

/// The memory of a rank that all ranks access. It lives as long as one of them may.
#[derive(Debug)]
struct Memory {
    block: DeviceBuffer,
    /// The words `written`, then the words `read`. Streams access the lower 32 bits of each.
    inbox: PinnedWords,
}

impl Peers {
    /// Allocates a window of `bytes`. Collective.
    ///
    /// # Errors
    /// `OutOfMemory`; `Comm` if a rank is missing.
    pub fn open(gpu: &Gpu, local: &Local, bytes: usize) -> Result<Self> {
        let (rank, ranks) = (local.rank(), local.size());
        let own = Memory { block: DeviceBuffer::new(gpu, bytes)?, inbox: PinnedWords::new(gpu, 2 * ranks)? };
        // Nothing is written yet.
        own.inbox.all()[ranks..].iter().for_each(|read| read.store(1, Relaxed));
        Ok(Peers { rank, memory: local.share(own)? })
    }
    fn written_at(&self, rank: usize) -> usize {
        rank
    }
    fn read_at(&self, rank: usize) -> usize {
        self.memory.len() + rank
    }
    fn inbox(&self) -> &[AtomicU64] {
        self.memory[self.rank].inbox.all()
    }
    /// Tells each other rank by a word of its inbox.
    fn tell(&self, at: usize) -> impl Iterator<Item = WordOp> {
        let others = self.memory.iter().enumerate().filter(move |(rank, _)| *rank != self.rank);
        others.map(move |(_, of)| Write(of.inbox.address(at), 1))
    }
    /// Waits until each other rank has written its word, and sets the words back.
    fn take(&self, at: impl Fn(usize) -> usize) -> impl Iterator<Item = WordOp> {
        let others = (0..self.memory.len()).filter(|&rank| rank != self.rank);
        let words: Vec<u64> = others.map(|rank| self.memory[self.rank].inbox.address(at(rank))).collect();
        let waits: Vec<WordOp> = words.iter().map(|&word| Wait(word, 1)).collect();
        waits.into_iter().chain(words.into_iter().map(|word| Write(word, 0)))
    }
    fn submit(&self, stream: &CudaStream, ops: impl Iterator<Item = WordOp>) -> Result<()> {
        let ops: Vec<WordOp> = ops.collect();
        // SAFETY: inboxes live as long as this value, and all devices access them.
        unsafe { stream.word_ops(&ops) }
    }
}

impl Transport for Peers {
    fn blocks(&self) -> Vec<[u64; 2]> {
        self.memory.iter().map(|of| [of.block.address(), of.block.bytes() as u64]).collect()
    }
    fn before_write(&self, stream: &CudaStream) -> Result<()> {
        // The others have read what this rank wrote before.
        self.submit(stream, self.take(|rank| self.read_at(rank)))
    }
    fn before_read(&self, stream: &CudaStream) -> Result<()> {
        let written = self.tell(self.written_at(self.rank));
        self.submit(stream, written.chain(self.take(|rank| self.written_at(rank))))
    }
    fn after_read(&self, stream: &CudaStream) -> Result<()> {
        self.submit(stream, self.tell(self.read_at(self.rank)))
    }
    fn is_captured(&self) -> bool {
        true
    }
    /// Whether it has not read this rank's window, and has not written its own one since.
    fn is_behind(&self, rank: usize) -> bool {
        [self.read_at(rank), self.written_at(rank)].iter().all(|&at| self.inbox()[at].load(Acquire) == 0)
    }
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn release(&self) {
        self.inbox().iter().for_each(|word| word.store(1, Release));
    }
}

/// The windows of a channel, with events.
#[derive(Debug)]
pub(super) struct OrderedPeers {
    comm: Arc<dyn Comm>,
    ranks: Vec<Arc<Steps>>,
    /// Number of collectives so far.
    round: AtomicU64,
}

/// The window of a rank, and how far the rank has come with it.
#[derive(Debug)]
struct Steps {
    block: DeviceBuffer,
    written: Step,
    read: Step,
}

/// An event, and how often it was recorded. It is not recorded again before all other ranks wait for it.
#[derive(Debug)]
struct Step {
    event: CudaEvent,
    times: AtomicU64,
}

impl Step {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Step { event: CudaEvent::new(gpu)?, times: AtomicU64::new(0) })
    }
    fn record(&self, stream: &CudaStream) -> Result<()> {
        self.event.record(stream)?;
        self.times.fetch_add(1, Release);
        Ok(())
    }
}

impl OrderedPeers {
    /// Allocates a window of `bytes`; `comm` is the connection `local`. Collective.
    ///
    /// # Errors
    /// `OutOfMemory`; `Comm` if a rank is missing.
    pub fn open(gpu: &Gpu, comm: &Arc<dyn Comm>, local: &Local, bytes: usize) -> Result<Self> {
        let block = DeviceBuffer::new(gpu, bytes)?;
        let own = Steps { block, written: Step::new(gpu)?, read: Step::new(gpu)? };
        Ok(OrderedPeers { comm: Arc::clone(comm), ranks: local.share(own)?, round: AtomicU64::new(0) })
    }
    fn own(&self) -> &Steps {
        &self.ranks[self.comm.rank()]
    }
    /// Lets `stream` wait until each other rank has taken a step `times` times. First the host waits until
    /// all of them have submitted it.
    fn wait(&self, stream: &CudaStream, times: u64, step: impl Fn(&Steps) -> &Step) -> Result<()> {
        let Some(local) = self.comm.local() else { return Ok(()) };
        let op = local.seat().op().unwrap_or_else(|| "a collective".into());
        let others = || self.ranks.iter().enumerate().filter(|(rank, _)| *rank != self.comm.rank());
        for (rank, of) in others() {
            local.wait(rank, &op, || step(of).times.load(Acquire) >= times)?;
        }
        others().try_for_each(|(_, of)| stream.wait(&step(of).event))
    }
}

impl Transport for OrderedPeers {
    fn blocks(&self) -> Vec<[u64; 2]> {
        self.ranks.iter().map(|of| [of.block.address(), of.block.bytes() as u64]).collect()
    }
    fn before_write(&self, stream: &CudaStream) -> Result<()> {
        match self.round.fetch_add(1, Relaxed) {
            0 => Ok(()),
            // The others have read what this rank wrote before.
            rounds => self.wait(stream, rounds, |of| &of.read),
        }
    }
    fn before_read(&self, stream: &CudaStream) -> Result<()> {
        self.own().written.record(stream)?;
        self.wait(stream, self.round.load(Relaxed), |of| &of.written)
    }
    fn after_read(&self, stream: &CudaStream) -> Result<()> {
        self.own().read.record(stream)
    }
    fn is_captured(&self) -> bool {
        false
    }
    fn is_behind(&self, _: usize) -> bool {
        false
    }
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// Nothing that has been submitted waits for what has not.
    fn release(&self) {}
}
