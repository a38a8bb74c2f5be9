//! The next `b` events of a range, in order; the cursor lives on the device.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[e]` u32 | endpoints of every event of the stream |
//! | `time` | `[e]` i64 | ticks |
//! | `range` | `[1, 3]` u32 | first event of the pass, one past its last (events there are not do not count), and by how many events its first batch is shorter |
//! | `clock` | `[1, 2]` u32, state | epoch, and batches done in this pass: counted up |
//! | count | `[1, 1]` u32 | live events: `b`, fewer in a shorter first batch and in the last, 0 past the end |
//! | src, dst, event | `[<= b]` u32 | endpoints and ids |
//! | time | `[<= b]` i64 | |
//! | rank | `[<= b]` u32 | place of each event in the range |
//! | index | `[1]` u32 | the batch's number in the pass |
//! | now | `[1, 2]` u32 | epoch and batch of this step: the clock of its random draws |
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct NextBatch {
    capacity: usize,
}

/// A batch of events.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Source nodes.
    pub src: Var,
    /// Destination nodes.
    pub dst: Var,
    /// Event ids, consecutive.
    pub event: Var,
    /// Times in ticks.
    pub time: Var,
    /// Place of each event in the range of the pass.
    pub rank: Var,
    /// Number of the batch in the pass, `[1]` u32.
    pub index: Var,
    /// Epoch and batch.
    pub now: Var,
    /// Live events.
    pub rows: Rows,
}

impl Tape {
    /// Appends [`NextBatch`]: at most `capacity` events; `stream` is `[src, dst, time]`.
    ///
    /// # Errors
    /// `Shape` when types do not fit or the clock is not writable.
    pub fn next_batch(&mut self, stream: [Var; 3], range: Var, clock: Var, capacity: usize) -> Result<Batch> {
        let [src, dst, time] = stream;
        let o = self.push(NextBatch { capacity }, &[src, dst, time, range, clock])?;
        let rows = Rows::live(capacity, o[0]);
        Ok(Batch { src: o[1], dst: o[2], event: o[3], time: o[4], rank: o[5], index: o[6], now: o[7], rows })
    }
}

impl Op for NextBatch {
    const NAME: &'static str = "next_batch";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 5)?;
        let events = ins[0].rows;
        let one = |cols| Spec::ids(Rows::fixed(1), cols);
        for (i, what, want) in [
            (0, "src", Spec::ids(events, 1)),
            (1, "dst", Spec::ids(events, 1)),
            (2, "time", Spec::times(events)),
            (3, "range", one(3)),
            (4, "clock", one(2)),
        ] {
            ensure!(Self::NAME, ins[i] == want, "{what} is {}, want {want}", ins[i]);
        }
        ensure!(Self::NAME, u32::try_from(self.capacity).is_ok(), "{} events, want fewer", self.capacity);
        let rows = Rows::fixed(self.capacity);
        let ids = Out::counted_by(Spec::ids(rows, 1), 0);
        let now = Spec::ids(Rows::fixed(1), 2);
        let time = Out::counted_by(Spec::times(rows), 0);
        Ok(vec![Spec::count().into(), ids, ids, ids, time, ids, Spec::count().into(), now.into()])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        vec![4]
    }
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost { bytes: 36 * self.capacity, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (range, clock) = (io.input::<u32>(3), io.state::<u32>(4));
        let [begin, end, short] = [0, 1, 2].map(|i| range[i] as usize);
        let end = end.min(io.rows(0));
        // As if the pass began `short` events earlier; those are not there.
        let batch = begin + clock[1] as usize * self.capacity;
        let first = batch.saturating_sub(short).max(begin);
        let n = (batch + self.capacity).saturating_sub(short).min(end).saturating_sub(first);
        io.out::<u32>(0)[0] = n as u32;
        io.out::<u32>(6)[0] = clock[1];
        io.out::<u32>(7).copy_from_slice(clock);
        clock[1] = clock[1].wrapping_add(1);
        if n > 0 {
            io.out::<u32>(1)[..n].copy_from_slice(&io.input(0)[first..first + n]);
            io.out::<u32>(2)[..n].copy_from_slice(&io.input(1)[first..first + n]);
            io.out::<i64>(4)[..n].copy_from_slice(&io.input(2)[first..first + n]);
            io.out::<u32>(3)[..n].iter_mut().zip(first as u32..).for_each(|(e, id)| *e = id);
            io.out::<u32>(5)[..n].iter_mut().zip((first - begin) as u32..).for_each(|(r, rank)| *r = rank);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (src, dst, time) = (on.input(0), on.input(1), on.input(2));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.next_batch(
                on,
                Grid::new(1, 1024),
                src,
                dst,
                time,
                on.input(3),
                on.state(4),
                on.kept(0),
                on.out(1),
                on.out(2),
                on.out(3),
                on.out(4),
                on.out(5),
                on.out(6),
                on.out(7),
                on.rows(0),
                self.capacity as u32,
            )
        }
    }
}

/// `[events, batch, batches done, how much shorter the first is]`: a full batch, the short last one, one past the end, one of
/// many rows; a short first one, those after it, none at all. A fifth number is how far the range goes beyond the stream.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0],
    &[10, 4, 1, 0],
    &[10, 4, 2, 0],
    &[10, 4, 5, 0],
    &[3, 8, 0, 0],
    &[5_000, 3_000, 1, 0],
    &[10, 4, 0, 3],
    &[10, 4, 1, 3],
    &[11, 4, 3, 1],
    &[10, 4, 4, 2],
    &[2, 8, 0, 5],
    &[10, 4, 0, 4],
    &[5_000, 3_000, 0, 700],
    &[10, 4, 2, 0, 90],
    &[10, 4, 7, 0, 90],
];
pub(super) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let (src, dst) = (c.ids_below(n, 50), c.ids_below(n, 50));
    let time = c.times(&(0..n as i64).map(|t| 3 * t).collect::<Vec<_>>());
    let end = n + dims.get(4).unwrap_or(&0);
    let (range, clock) = (c.ids(&[0, end as u32, dims[3] as u32], 3), c.ids(&[2, dims[2] as u32], 2));
    let b = c.tape.next_batch([src, dst, time], range, clock, dims[1])?;
    Ok(Built {
        outs: vec![b.src, b.dst, b.event, b.time, b.rank, b.index, b.now],
        states: vec![clock],
        ..Built::default()
    })
}
