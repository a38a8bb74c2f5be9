//! Windows that the kernels of other ranks read where they are: the devices are peers, or one device, and the
//! ranks are threads of one process.
//!
//! Rank r says that it has written its window by writing 1 to word `written[r]` in the inbox of each other
//! rank, and that it has read a window by writing 1 to `read[r]` in the inbox of the window's rank. The rank
//! that waits for such a word sets it back to 0. While a stream waits, it occupies no multiprocessor, so
//! ranks that share a device do not hold up one another.
//!
//! An inbox lies in the memory of the device that waits: there, looking at a word takes no way over the bus.
use super::{
    CudaStream, DeviceBuffer, Gpu,
    stream::WordOp::{self, Wait, Write},
    transport::Transport,
};
use crate::{
    error::Result,
    runtime::comm::{Comm, Local},
};
use std::sync::Arc;

/// The windows of a channel, and the inboxes, in the memory of their ranks.
#[derive(Debug)]
pub(super) struct Peers {
    rank: usize,
    memory: Vec<Arc<Memory>>,
    /// On which the host reads and writes this rank's inbox while the rank's other streams wait.
    aside: CudaStream,
}

/// The memory of a rank that all ranks access. It lives as long as one of them may.
#[derive(Debug)]
struct Memory {
    block: DeviceBuffer,
    /// The words `written`, then the words `read`, of 32 bits.
    inbox: DeviceBuffer,
}

impl Memory {
    fn words(&self) -> usize {
        self.inbox.bytes() / size_of::<u32>()
    }
    /// Returns the address of a word of the inbox.
    fn word(&self, at: usize) -> u64 {
        self.inbox.address() + (at * size_of::<u32>()) as u64
    }
}

impl Peers {
    /// Lets the kernels of this rank's device read the memory of the others. Returns whether all ranks can do
    /// so. Collective.
    ///
    /// # Errors
    /// `Comm` if a rank is missing; `Device` if the driver refuses.
    pub fn connect(gpu: &Gpu, local: &Local) -> Result<bool> {
        let mut ordinals = vec![0u64; local.size()];
        let each = vec![size_of::<u64>(); local.size()];
        let own = gpu.ordinal() as u64;
        local.all_gather(&own.to_ne_bytes(), bytemuck::cast_slice_mut(&mut ordinals), &each)?;
        let mut can = true;
        for ordinal in ordinals {
            can &= gpu.reach(ordinal as usize)?;
        }
        let mut all = vec![0u8; local.size()];
        local.all_gather(&[u8::from(can)], &mut all, &vec![1; local.size()])?;
        Ok(all.into_iter().all(|can| can == 1))
    }
    /// Allocates a window of `bytes`. Collective.
    ///
    /// # Errors
    /// `OutOfMemory`; `Comm` if a rank is missing.
    pub fn open(gpu: &Gpu, local: &Local, bytes: usize) -> Result<Self> {
        let (rank, ranks) = (local.rank(), local.size());
        let inbox = DeviceBuffer::new(gpu, 2 * ranks * size_of::<u32>())?;
        let own = Memory { block: DeviceBuffer::new(gpu, bytes)?, inbox };
        let aside = CudaStream::new(gpu)?;
        let nothing_written = [vec![0u32; ranks], vec![1; ranks]].concat();
        own.inbox.upload(&nothing_written, &aside)?;
        aside.synchronize()?;
        Ok(Peers { rank, memory: local.share(own)?, aside })
    }
    fn written_at(&self, rank: usize) -> usize {
        rank
    }
    fn read_at(&self, rank: usize) -> usize {
        self.memory.len() + rank
    }
    /// Whether two words of this rank's inbox are 0; false if they cannot be read.
    fn are_zero(&self, words: [usize; 2]) -> bool {
        let own = &self.memory[self.rank];
        let mut all = vec![0u32; own.words()];
        own.inbox.download(&mut all, &self.aside).is_ok() && words.iter().all(|&at| all[at] == 0)
    }
    /// Tells each other rank by a word of its inbox.
    fn tell(&self, at: usize) -> impl Iterator<Item = WordOp> {
        let others = self.memory.iter().enumerate().filter(move |(rank, _)| *rank != self.rank);
        others.map(move |(_, of)| Write(of.word(at), 1))
    }
    /// Waits until each other rank has written its word, and sets the words back.
    fn take(&self, at: impl Fn(usize) -> usize) -> impl Iterator<Item = WordOp> {
        let others = (0..self.memory.len()).filter(|&rank| rank != self.rank);
        let words: Vec<u64> = others.map(|rank| self.memory[self.rank].word(at(rank))).collect();
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
    /// Whether it has not read this rank's window, and has not written its own one since.
    fn is_behind(&self, rank: usize) -> bool {
        self.are_zero([self.read_at(rank), self.written_at(rank)])
    }
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn release(&self) {
        let own = &self.memory[self.rank];
        // If the driver refuses, nothing that this rank could do ends its streams.
        let _ = self.submit(&self.aside, (0..own.words()).map(|at| Write(own.word(at), 1)));
    }
}
