//! Ranks that NCCL alone connects.
use super::{
    CudaEvent, CudaStream, DeviceBuffer, Gpu,
    nccl::{Message, Nccl},
};
use crate::{
    error::Result,
    runtime::{
        comm::{Comm, LaunchedProcess, Rendezvous, check_counts, copy_part, group_size, overdue, ranges},
        sync::pause,
    },
};
use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A connection between processes with a CUDA device each, for clusters without MPI. Bytes of the host travel
/// through device memory.
#[derive(Debug)]
pub struct NcclComm {
    gpu: Gpu,
    nccl: Nccl,
    rank: usize,
    size: usize,
    deadline: Duration,
    staging: Mutex<Staging>,
}

/// Device memory for what is sent and what is received.
#[derive(Debug)]
struct Staging {
    stream: CudaStream,
    blocks: [DeviceBuffer; 2],
}

/// What goes to a rank or comes from it.
type Part = (usize, Range<usize>);

impl NcclComm {
    /// Connects the processes that `torchrun` has started, each with its device. They give up waiting after
    /// `deadline`. Collective.
    ///
    /// # Errors
    /// `Comm` if a rank is missing, or two have the same device; `Device` if there is no NCCL.
    ///
    /// # Examples
    /// ```no_run
    /// use tgnn::runtime::{comm::{DEADLINE, Ranks, Rendezvous, launched}, cuda::{Gpu, NcclComm}};
    /// let launched = launched()?.expect("torchrun has started this process");
    /// let gpu = Gpu::open(launched.local_rank.unwrap_or(0))?;
    /// let comm = NcclComm::connect(&gpu, launched, &Rendezvous::from_environment()?, DEADLINE)?;
    /// let ranks = Ranks::new(std::sync::Arc::new(comm))?;
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn connect(
        gpu: &Gpu,
        launched: LaunchedProcess,
        at: &Rendezvous,
        deadline: Duration,
    ) -> Result<Self> {
        let mut id = Nccl::id(launched.rank)?;
        at.share(launched, &mut id, deadline)?;
        let nccl = Nccl::connect(gpu, &id, launched.rank, launched.size)?;
        Self::open(gpu, nccl, launched.rank, launched.size, deadline)
    }
    fn open(gpu: &Gpu, nccl: Nccl, rank: usize, size: usize, deadline: Duration) -> Result<Self> {
        let blocks = [DeviceBuffer::new(gpu, 0)?, DeviceBuffer::new(gpu, 0)?];
        let staging = Mutex::new(Staging { stream: CudaStream::new(gpu)?, blocks });
        Ok(NcclComm { gpu: gpu.clone(), nccl, rank, size, deadline, staging })
    }
    /// Sends parts of `send` to other ranks and receives parts of `recv` from them, in the call `what`.
    fn transfer(
        &self,
        what: &str,
        send: &[u8],
        sent: &[Part],
        recv: &mut [u8],
        received: &[Part],
    ) -> Result<()> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let Staging { stream, blocks } = &mut *staging;
        for (block, bytes) in blocks.iter_mut().zip([send.len(), recv.len()]) {
            if block.bytes() < bytes {
                *block = DeviceBuffer::new(&self.gpu, bytes.next_power_of_two())?;
            }
        }
        let [from, to] = blocks;
        from.upload(send, stream)?;
        let messages = |block: &DeviceBuffer, parts: &[Part]| -> Vec<Message> {
            let others = parts.iter().filter(|(rank, part)| *rank != self.rank && !part.is_empty());
            let address = |start: usize| block.address() + start as u64;
            others
                .map(|(rank, part)| Message { rank: *rank, address: address(part.start), bytes: part.len() })
                .collect()
        };
        // SAFETY: the blocks have room for the parts; the stream is done below, or aborted.
        unsafe { self.nccl.messages(&messages(from, sent), &messages(to, received), stream)? };
        let end = CudaEvent::new(&self.gpu)?;
        end.record(stream)?;
        self.wait(&end, what)?;
        for (_, part) in received.iter().filter(|(rank, _)| *rank != self.rank) {
            to.download_at(part.start, &mut recv[part.clone()], stream)?;
        }
        Ok(())
    }
    fn wait(&self, end: &CudaEvent, what: &str) -> Result<()> {
        let (mut polls, since) = (0, Instant::now());
        while !end.is_reached()? {
            let late = || overdue(self.rank, self.size, "another rank", what, self.deadline);
            let checked = self.nccl.check();
            let checked = checked.and(if since.elapsed() > self.deadline { Err(late()) } else { Ok(()) });
            if let Err(e) = checked {
                self.nccl.abort();
                while !end.is_reached()? {
                    pause(&mut polls);
                }
                return Err(e);
            }
            pause(&mut polls);
        }
        Ok(())
    }
}

impl Comm for NcclComm {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn all_to_all(
        &self,
        send: &[u8],
        send_counts: &[usize],
        recv: &mut [u8],
        recv_counts: &[usize],
    ) -> Result<()> {
        const WHAT: &str = "all_to_all";
        check_counts(self.size, WHAT, send.len(), send_counts)?;
        check_counts(self.size, WHAT, recv.len(), recv_counts)?;
        let parts = |counts: &[usize]| -> Vec<Part> { ranges(counts).into_iter().enumerate().collect() };
        let (sent, received) = (parts(send_counts), parts(recv_counts));
        let (from, to) = (sent[self.rank].1.clone(), received[self.rank].1.clone());
        copy_part(self.rank, self.rank, WHAT, &send[from], &mut recv[to])?;
        self.transfer(WHAT, send, &sent, recv, &received)
    }
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[usize]) -> Result<()> {
        const WHAT: &str = "all_gather";
        check_counts(self.size, WHAT, recv.len(), counts)?;
        let received: Vec<Part> = ranges(counts).into_iter().enumerate().collect();
        let sent: Vec<Part> = (0..self.size).map(|rank| (rank, 0..send.len())).collect();
        let to = received[self.rank].1.clone();
        copy_part(self.rank, self.rank, WHAT, send, &mut recv[to])?;
        self.transfer(WHAT, send, &sent, recv, &received)
    }
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let all = 0..bytes.len();
        if self.rank == root {
            let sent: Vec<Part> = (0..self.size).map(|rank| (rank, all.clone())).collect();
            return self.transfer("broadcast", bytes, &sent, &mut [], &[]);
        }
        self.transfer("broadcast", &[], &[], bytes, &[(root, all)])
    }
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.transfer("send", bytes, &[(to, 0..bytes.len())], &mut [], &[])
    }
    fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let all = 0..bytes.len();
        self.transfer("recv", &[], &[], bytes, &[(from, all)])
    }
    fn barrier(&self) -> Result<()> {
        let mut all = vec![0; self.size];
        self.all_gather(&[0], &mut all, &vec![1; self.size])
    }
    fn split(&self, groups: usize) -> Result<Arc<dyn Comm>> {
        let size = group_size(self.size, groups)?;
        let (rank, first) = (self.rank % size, self.rank / size * size);
        // The first rank of every group makes the identification of its communicator.
        let own = Nccl::id(rank)?;
        let mut ids = vec![0; self.size * own.len()];
        self.all_gather(&own, &mut ids, &vec![own.len(); self.size])?;
        let mut id = own;
        id.copy_from_slice(&ids[first * own.len()..][..own.len()]);
        let nccl = Nccl::connect(&self.gpu, &id, rank, size)?;
        Ok(Arc::new(Self::open(&self.gpu, nccl, rank, size, self.deadline)?))
    }
    /// Ends the work of this rank; the others notice by NCCL or by their deadline.
    fn fail(&self, _reason: &str) {
        self.nccl.abort();
    }
    fn abandon(&self, _reason: &str) {
        self.nccl.abort();
    }
    fn deadline(&self) -> Duration {
        self.deadline
    }
    fn check(&self) -> Result<()> {
        self.nccl.check()
    }
    fn describe(&self) -> String {
        "nccl".into()
    }
}
