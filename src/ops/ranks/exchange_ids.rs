//! Sends lists of ids to other ranks: to each its part (all-to-all), or the whole list to all (all-gather)
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `sequence` | `[1]` u32, state | sequence number of the [`Link`] |
//! | `id` | `[n]` u32 | ids, those for rank 0 first |
//! | `counts` | `[ranks]` u32 | number of ids for each rank; without it, all ids go to all ranks |
//! | count | `[1]` u32 | number of received ids |
//! | id | `[<= capacity]` u32 | received ids, those from rank 0 first |
//! | counts | `[ranks]` u32 | number of ids from each rank |
//!
//! By these lists ranks learn which rows to send where. They follow from the data alone, so they can be
//! exchanged ahead of the rows. A rank's own part is copied.
use super::{
    window::{UNIT, WindowHead, WindowParts, WindowRows},
    *,
};
use crate::runtime::{
    comm::{Channel, Comm, Ranks, TrafficKind},
    cuda::{Window, WindowSize},
};

/// See the [module](self).
#[derive(Debug)]
pub struct ExchangeIds {
    link: Link,
    capacity: usize,
}

/// Ids that a rank has received.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedIds {
    /// The ids, those from rank 0 first.
    pub id: Var,
    /// Number of ids from each rank.
    pub counts: Var,
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const COUNT: usize = 0;
    pub(in crate::ops) const ID: usize = 1;
    pub(in crate::ops) const COUNTS: usize = 2;
}

impl Tape {
    /// Appends [`ExchangeIds`], which sends `counts[r]` of the ids, u32 `[n]`, to each rank r; without
    /// `counts`, u32 `[ranks]`, it sends all ids to all ranks. At most `capacity` ids arrive.
    ///
    /// # Errors
    /// `Shape` if types or rows differ. A run fails with `Comm` if more ids arrive.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::{*, comm::{Channel, Ranks}}};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let link = Link::new(&mut store, &Ranks::alone(), Channel::Routes)?;
    /// let id = tape.input(&mut store, "id", Spec::ids(Rows::fixed(2), 1), &[7u32, 8])?;
    /// let received = tape.exchange_ids(&link, id, None, 4)?;
    /// let mut program = Program::new(&tape, &[received.id, received.counts], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(received.id, &store)?, [7, 8]); // from a single rank, itself
    /// assert_eq!(program.read::<u32>(received.counts, &store)?, [2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn exchange_ids(
        &mut self,
        link: &Link,
        id: Var,
        counts: Option<Var>,
        capacity: usize,
    ) -> Result<ReceivedIds> {
        let ins: Vec<Var> = [link.sequence(self)?, id].into_iter().chain(counts).collect();
        let outs = self.push(ExchangeIds { link: link.clone(), capacity }, &ins)?;
        Ok(ReceivedIds { id: outs[output::ID], counts: outs[output::COUNTS] })
    }
}

impl ExchangeIds {
    /// Exchanges the ids; returns the number of received ids.
    fn exchange(&self, io: &Io<'_>, comm: &dyn Comm) -> Result<usize> {
        let (id, ranks) = (io.input::<u32>(at!(id)), comm.size());
        let (received, received_counts) = (io.out::<u32>(output::ID), io.out::<u32>(output::COUNTS));
        received_counts.fill(0);
        let counts = (io.inputs() > at!(counts)).then(|| io.input::<u32>(at!(counts)));
        let traffic = self.link.ranks().traffic();
        let word = size_of::<u32>();
        // How many ids arrive from each rank.
        let bytes = bytemuck::cast_slice_mut(received_counts);
        match counts {
            Some(counts) => {
                comm.all_to_all(bytemuck::cast_slice(counts), &vec![word; ranks], bytes, &vec![word; ranks])?;
            }
            None => comm.all_gather(&(id.len() as u32).to_ne_bytes(), bytes, &vec![word; ranks])?,
        }
        let all: usize = received_counts.iter().map(|&n| n as usize).sum();
        if all > received.len() {
            let what =
                format!("{all} ids arrive at rank {}, which has space for {}", comm.rank(), received.len());
            return Err(Error::new(ErrorKind::Comm, what));
        }
        let sizes = |counts: &[u32]| counts.iter().map(|&n| n as usize * word).collect::<Vec<_>>();
        let (ids, to) = (bytemuck::cast_slice(id), bytemuck::cast_slice_mut(&mut received[..all]));
        let sent = match counts {
            Some(counts) => {
                comm.all_to_all(ids, &sizes(counts), to, &sizes(received_counts))?;
                id.len() - counts[comm.rank()] as usize
            }
            None => {
                comm.all_gather(ids, to, &sizes(received_counts))?;
                id.len() * (ranks - 1)
            }
        };
        traffic.add(TrafficKind::Routes, sent, word * (sent + ranks - 1));
        let ids_to = |to: usize| counts.map_or(id.len(), |counts| counts[to] as usize);
        traffic.add_to_record(TrafficKind::Routes, (comm.rank(), ranks), 2, |to| word * (1 + ids_to(to)));
        Ok(all)
    }
    /// Launches the kernels that write the window.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn write(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let (rows, width) = (on.rows(at!(id)), size_of::<u32>());
        let to_each = on.inputs() > at!(counts);
        let head = WindowHead {
            counts: if to_each { on.input(at!(counts)) } else { std::ptr::null() },
            rows,
            width,
            extra: width * (self.link.ranks().size() - 1),
            kind: TrafficKind::Routes,
        };
        // SAFETY: the caller's promise.
        unsafe { head.write(k, on, window) }?;
        let begin = WindowHead::bytes(self.link.ranks().size(), 1);
        let (from, index) = (on.words(at!(id)).cast(), std::ptr::null());
        let ids = WindowRows { table: 0, from, of: rows, index, rows, begin, units: width / UNIT };
        // SAFETY: the caller's promise.
        unsafe { ids.write(k, on, window) }
    }
    /// Launches the kernel that reads the windows.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn read(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let parts = WindowParts {
            table: 0,
            to_all: on.inputs() <= at!(counts),
            expected: std::ptr::null(),
            counts: on.needed(output::COUNTS),
            count: on.needed(output::COUNT),
            out: on.needed_words(output::ID).cast(),
            capacity: self.capacity,
            units: size_of::<u32>() / UNIT,
            kind: 0,
            is_last: true,
        };
        // SAFETY: the caller's promise.
        unsafe { parts.read(k, on, window) }
    }
}

impl Op for ExchangeIds {
    const NAME: &'static str = "exchange_ids";
    const KIND: OpKind = OpKind::Comm;
    const SIGNATURE: &'static str = "sequence [1] ids state, id [n] ids, counts? [r] ids \
        -> count [1] ids, id [c] ids by count, counts [r] ids";
    fn sizes(&self) -> Sizes {
        vec![("r", Rows::fixed(self.link.ranks().size())), ("c", Rows::fixed(self.capacity))]
    }
    fn check(&self, _: &[Spec]) -> Result<()> {
        countable(Self::NAME, "ids", self.capacity)
    }
    fn traffic(&self) -> Option<TrafficKind> {
        Some(TrafficKind::Routes)
    }
    fn window(&self, ins: &[Spec], _: &[Spec]) -> Option<WindowSize<'_>> {
        let ids = ins[at!(id)].rows.capacity * size_of::<u32>();
        self.link.window(WindowHead::bytes(self.link.ranks().size(), 1) + ids)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let mut received = 0;
        self.link.step(io, Self::NAME, |comm| {
            received = self.exchange(io, comm)?;
            Ok(())
        });
        io.out::<u32>(output::COUNT)[0] = received as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        if !self.link.is_alone() {
            let channel = self.link.channel();
            // SAFETY: the caller's promise.
            let write = |window: &Window| unsafe { self.write(k, on, window) };
            // SAFETY: as above.
            let read = |window: &Window| unsafe { self.read(k, on, window) };
            return on.exchange(channel, write, read);
        }
        let (id, count, out) = (on.input(at!(id)), on.needed(output::COUNT), on.needed(output::ID));
        let (counts, rows) = (on.needed(output::COUNTS), on.rows(at!(id)));
        let (grid, capacity) = (Grid::items(on.capacity(at!(id))), self.capacity as u32);
        launch!(k, on, exchange_ids[grid]; id, count, out, counts, rows, capacity)
    }
}

/// `[ids, capacity]`, and 1 if all ids go to all ranks
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 0], &[0, 3, 0], &[40, 50, 0], &[40, 40, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_500, 1_500, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let link = Link::new(&mut c.store, &Ranks::alone(), Channel::Routes)?;
    let id = c.ids_below(dims[0], 1_000);
    let counts = (dims[2] == 0).then(|| c.ids(&[dims[0] as u32], 1));
    let received = c.tape.exchange_ids(&link, id, counts, dims[1])?;
    Ok(Built::new(&[received.id, received.counts], &[]))
}
