//! Lists the positive roots of the step's batch, of the one before or of the one after it
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `src`, `dst` | `[e]` u32 | endpoints of all events of the stream |
//! | `range` | `[1, 3]` u32 | the pass, as in [`next_batch`] |
//! | `index` | `[1]` u32 | index of the step's batch within the pass |
//! | count | `[1]` u32 | number of roots: none past the end or before the first batch |
//! | node | `[<= 2 b]` u32 | source and destination of each event |
//!
//! All ranks get the roots, or only the rank whose turn the batch is, if ranks get whole batches in turn.
//! Source: PipeTGL, section 4.2: the roots of adjacent batches are known before training.
use super::{next_batch::events_of, *};

/// See the [module](self).
#[derive(Debug)]
pub struct BatchRoots {
    capacity: usize,
    near: Near,
    /// The rank, and the number of ranks, if only the batch's rank gets its roots.
    only: Option<[usize; 2]>,
}

/// A batch, by its distance from the step's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// The one before.
    Before,
    /// The step's.
    Now,
    /// The one after.
    After,
}

impl Tape {
    /// Appends [`BatchRoots`] of batches with at most `capacity` events; `stream` is `[src, dst]` of all
    /// events. With `only`, a rank and the number of ranks, the batch's rank alone gets its roots.
    ///
    /// # Errors
    /// `Shape` if types do not fit, or if there is no such rank.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{batch_roots::Near, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let src = tape.input(&mut store, "src", ids(3), &[0u32, 1, 2])?;
    /// let dst = tape.input(&mut store, "dst", ids(3), &[3u32, 4, 5])?;
    /// let range = tape.input(&mut store, "range", Spec::ids(Rows::fixed(1), 3), &[0u32, 3, 0])?;
    /// let index = tape.input(&mut store, "index", ids(1), &[0u32])?;
    /// let next = tape.batch_roots([src, dst], range, index, 2, Near::After, None)?;
    /// let mut program = Program::new(&tape, &[next], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(next, &store)?, [2, 5]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn batch_roots(
        &mut self,
        stream: [Var; 2],
        range: Var,
        index: Var,
        capacity: usize,
        near: Near,
        only: Option<[usize; 2]>,
    ) -> Result<Var> {
        let known = only.is_none_or(|[rank, ranks]| rank < ranks);
        ensure!(BatchRoots::NAME, known, "there is no rank {only:?}");
        let outs = self.push(BatchRoots { capacity, near, only }, &[stream[0], stream[1], range, index])?;
        Ok(outs[1])
    }
}

impl Op for BatchRoots {
    const NAME: &'static str = "batch_roots";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "src [e] ids, dst [e] ids, range [1, 3] ids, index [1] ids \
        -> count [1] ids, node [2 c] ids by count";
    fn sizes(&self) -> Sizes {
        vec![("c", Rows::fixed(self.capacity))]
    }
    fn check(&self, _: &[Spec]) -> Result<()> {
        countable(Self::NAME, "roots", self.capacity.saturating_mul(2))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (range, index) = (io.input::<u32>(at!(range)), io.input::<u32>(at!(index))[0] as usize);
        let pass = [range[0] as usize, (range[1] as usize).min(io.rows(at!(src))), range[2] as usize];
        let nth = (index + self.near as usize).checked_sub(1);
        let nth = nth.filter(|nth| self.only.is_none_or(|[rank, ranks]| nth % ranks == rank));
        let events = nth.map_or(0..0, |nth| events_of(nth, pass, self.capacity));
        io.out::<u32>(0)[0] = 2 * events.len() as u32;
        let (src, dst) = (io.input::<u32>(at!(src)), io.input::<u32>(at!(dst)));
        for (to, event) in io.out::<u32>(1).chunks_exact_mut(2).zip(events) {
            to.copy_from_slice(&[src[event], dst[event]]);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let [rank, ranks] = self.only.unwrap_or_default();
        launch!(
            k, on, batch_roots[Grid::items(self.capacity)];
            on.input(at!(src)), on.input(at!(dst)), on.input(at!(range)), on.input(at!(index)),
            on.needed(0), on.needed(1), on.rows(at!(src)), self.capacity as u32, self.near as u32,
            rank as u32, ranks as u32
        )
    }
}

/// `[events, batch, batches done, how much shorter the first batch is, 0 for the batch before, 1 for the
/// step's or 2 for the one after it]`, and optionally rank and number of ranks.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0, 1],
    &[10, 4, 0, 0, 0],
    &[10, 4, 0, 0, 2],
    &[10, 4, 1, 3, 2],
    &[10, 4, 1, 3, 0],
    &[10, 4, 2, 0, 2],
    &[10, 4, 5, 0, 0],
    &[3, 8, 0, 0, 1],
    &[5_000, 3_000, 0, 700, 2],
    &[10, 4, 0, 0, 2, 1, 3],
    &[10, 4, 0, 0, 2, 0, 3],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[110_232, 600, 100, 0, 2]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[0];
    let (src, dst) = (c.ids_below(n, 50), c.ids_below(n, 50));
    let (range, index) = (c.ids(&[0, n as u32, dims[3] as u32], 3), c.count(dims[2]));
    let near = [Near::Before, Near::Now, Near::After][dims[4]];
    let only = dims.get(5..7).map(|only| [only[0], only[1]]);
    let node = c.tape.batch_roots([src, dst], range, index, dims[1], near, only)?;
    Ok(Built { outs: vec![node], ..Built::default() })
}
