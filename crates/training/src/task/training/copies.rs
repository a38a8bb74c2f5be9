//! Copies of node memory in checkpoints.
//!
//! Ranks may keep several copies of the node memory, each of which is elsewhere in the stream (DistTGL,
//! section 3.2.3). After an epoch all ranks validate with the copy that is at the end of the training part,
//! which the checkpoint of the epoch holds. The others are in files of their own, so that a resumed run goes
//! on with them.
use super::{
    Checkpoint, Task, TaskCore,
    tensor_files::{TensorFile, dtype_of},
};
use tgnn::{
    error::Result,
    runtime::{BufferId, comm::Channel},
};

/// The copies of a task's node memory: their buffers, and the ranks of each. They are numbered by the segment
/// of the training part with which they go on; the first one begins anew, and is in no file.
struct Copies {
    state: Vec<BufferId>,
    /// Bytes of each buffer.
    bytes: Vec<usize>,
    copies: usize,
    /// Number of ranks with the same copy, which follow one another.
    ranks: usize,
    /// The first rank with each copy.
    first_rank: Vec<usize>,
}

impl Copies {
    /// Returns the copies of a task; `None` if there is only one.
    fn find(task: &dyn Task) -> Option<Self> {
        let TaskCore { nodes, store, device, .. } = task.core();
        let (state, copies, size) = (nodes.buffers.clone(), nodes.turns.copies, device.ranks()?.size());
        let bytes = state.iter().map(|&id| store.spec(id).bytes(store.precision())).collect();
        let ranks = size / copies;
        let first_rank = (0..copies).map(|segment| nodes.copy_of_segment(segment) * ranks).collect();
        (copies > 1).then_some(Copies { bytes, state, copies, ranks, first_rank })
    }
    /// Divides the bytes of a copy among its buffers.
    fn divided(&self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let next = |&length: &usize| {
            let (buffer, rest) = bytes.split_at(length);
            bytes = rest;
            buffer.to_vec()
        };
        self.bytes.iter().map(next).collect()
    }
}

impl Checkpoint {
    /// Writes a file for each copy of the node memory but the first. Returns their checksums, on the first
    /// rank; none if there are no such copies, or one of them is empty. Collective.
    pub(super) fn save_copies(&self, task: &dyn Task) -> Result<Vec<u32>> {
        let (Some(of), Some(ranks)) = (Copies::find(task), task.core().device.ranks()) else {
            return Ok(Vec::new());
        };
        let (control, rank) = (ranks.channel(Channel::Control), ranks.rank());
        let mut sums = Vec::new();
        for copy in 1..of.copies {
            let from = of.first_rank[copy];
            let mut there = [u8::from(task.core().nodes.own.is_some())];
            control.broadcast(from, &mut there)?;
            if there == [0] {
                return Ok(Vec::new());
            }
            let mut bytes: Vec<u8> = match rank == from {
                true => task.core().nodes.own.iter().flatten().flatten().copied().collect(),
                false => vec![0; of.bytes.iter().sum()],
            };
            if from != 0 && rank == from {
                control.send(0, &bytes)?;
            }
            if rank == 0 {
                if from != 0 {
                    control.recv(from, &mut bytes)?;
                }
                sums.push(self.save_copy(task, &of, copy, &bytes)?);
            }
        }
        Ok(sums)
    }
    /// Writes the file of a copy; returns its checksum.
    fn save_copy(&self, task: &dyn Task, of: &Copies, copy: usize, bytes: &[u8]) -> Result<u32> {
        let (store, buffers) = (&task.core().store, of.divided(bytes));
        let tensors = of.state.iter().zip(&buffers).map(|(&id, bytes)| {
            let spec = store.spec(id);
            (store.name(id), dtype_of(store, id), vec![spec.rows.capacity, spec.cols], &bytes[..])
        });
        Ok(self.write(tensors, |sum| self.copy_file(copy, sum))?.1)
    }
    /// Gives every rank its copy of the node memory after `epochs` epochs, from the files with the given
    /// checksums. Returns a note if they are of another number of copies: all but the first then begin empty.
    /// Collective.
    pub(super) fn load_copies(
        &self,
        task: &mut dyn Task,
        epochs: usize,
        sums: &[u32],
    ) -> Result<Option<String>> {
        let nodes = &mut task.core_mut().nodes;
        let of_pass = nodes.epochs_of_pass();
        nodes.pass = epochs / of_pass;
        let (Some(of), Some(ranks)) = (Copies::find(task), task.core().device.ranks().cloned()) else {
            return Ok(None);
        };
        if sums.len() + 1 != of.copies {
            // Before the first epoch, copies begin empty in any case.
            return Ok((epochs > 0).then(|| {
                let (copies, complete) = (of.copies, epochs + of_pass * of.copies);
                format!(
                    "{copies} memory copies go on with a run that had {}: all but the first begin empty, and memory \
                     is complete after epoch {complete}",
                    sums.len() + 1
                )
            }));
        }
        let (control, rank) = (ranks.channel(Channel::Control), ranks.rank());
        for (copy, &sum) in (1..).zip(sums) {
            let own = of.first_rank[copy]..of.first_rank[copy] + of.ranks;
            let mut bytes = vec![0; of.bytes.iter().sum()];
            if rank == 0 {
                let mut file = TensorFile::open(&self.copy_file(copy, sum), sum)?;
                let mut rest = &mut bytes[..];
                for (&id, &length) in of.state.iter().zip(&of.bytes) {
                    let (to, others) = rest.split_at_mut(length);
                    file.read(task.core().store.name(id), to)?;
                    rest = others;
                }
                own.clone().filter(|&to| to != 0).try_for_each(|to| control.send(to, &bytes))?;
            }
            if own.contains(&rank) {
                if rank != 0 {
                    control.recv(0, &mut bytes)?;
                }
                task.core_mut().nodes.own = Some(of.divided(&bytes));
            }
        }
        Ok(None)
    }
}
