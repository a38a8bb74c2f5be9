//! `out[i, j] = pool[Philox(i m + j) below p]`: m uniform negatives for every event, drawn with replacement
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `pool` | `[p]` u32 | nodes to draw from: the destinations, or all nodes |
//! | `now` | `[1, 2]` or `[1, 3]` u32 | epoch and batch: the clock of the draw; events of the batch before the first row |
//! | `like` | `[<= b]` | a value with one row per event, which gives the result its rows |
//! | out | `[<= b, m]` u32 | negatives |
//!
//! A draw may hit the true destination, as in DyGLib and TGL. All devices draw the same nodes.
use super::*;
use crate::runtime::{cuda::abi, philox::Key};

/// See the [module](self).
#[derive(Debug)]
pub struct DrawNegatives {
    per_event: usize,
    seed: u64,
    salt: u32,
}

/// Returns the negative that event `row` of a batch draws from `pool` in column `column`. `key` combines the
/// run's seed, the op's salt, epoch and batch. The host uses this function where it must know what a device
/// drew.
///
/// # Panics
/// If the pool is empty.
///
/// # Examples
/// ```
/// use tgnn::{ops::draw_negatives::negative, runtime::philox::Key};
/// let (pool, key) = ([7, 8, 9], Key::new(42, 0, [0, 0]));
/// let drawn = [0, 1, 2].map(|column| negative(&pool, key, 3, (0, column)));
/// assert!(drawn.iter().all(|node| pool.contains(node)));
/// assert_eq!(negative(&pool, key, 3, (0, 1)), drawn[1]); // a draw is a function of its place
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn negative(pool: &[u32], key: Key, per_event: usize, (row, column): (usize, usize)) -> u32 {
    let at = row * per_event + column;
    pool[key.below(at as u64, pool.len() as u32) as usize]
}

impl Tape {
    /// Appends [`DrawNegatives`]; returns u32 `[b, per_event]`, drawn from `pool` for each of the b rows of
    /// `like`. Different values of `salt` make the draws of training, validation and test independent; `now`
    /// is the clock of the draw, u32 `[1, 2]`, or `[1, 3]` with the number of events before the first row.
    ///
    /// # Errors
    /// `Shape` if the pool is empty or not u32 `[p]`, or if `now` is not a clock.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let pool = tape.input(&mut store, "pool", Spec::ids(Rows::fixed(3), 1), &[7u32, 8, 9])?;
    /// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 2), &[0u32, 0])?;
    /// let src = tape.input(&mut store, "src", Spec::ids(Rows::fixed(2), 1), &[1u32, 2])?;
    /// let drawn = tape.draw_negatives(pool, now, src, 4, 42, 0)?; // four for each of two events
    /// let mut program = Program::new(&tape, &[drawn], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let first = program.read::<u32>(drawn, &store)?.to_vec();
    /// assert!(first.len() == 8 && first.iter().all(|node| (7..10).contains(node)));
    /// program.run(&mut store)?; // the same clock draws the same nodes
    /// assert_eq!(program.read::<u32>(drawn, &store)?, first);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn draw_negatives(
        &mut self,
        pool: Var,
        now: Var,
        like: Var,
        per_event: usize,
        seed: u64,
        salt: u32,
    ) -> Result<Var> {
        self.push1(DrawNegatives { per_event, seed, salt }, &[pool, now, like])
    }
}

impl Op for DrawNegatives {
    const NAME: &'static str = "draw_negatives";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "pool [p + 1] ids, now [1, c] ids, like [n, d] any -> out [n, k] ids";
    fn sizes(&self) -> Sizes {
        vec![("k", Rows::fixed(self.per_event))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        clock(Self::NAME, &ins[1])?;
        countable(Self::NAME, "nodes of the pool", ins[0].len())?;
        countable(Self::NAME, "negatives per event", self.per_event)
    }
    fn cost(&self, _: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 8 * outs[0].len(), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (pool, now, m) = (io.input::<u32>(0), io.input::<u32>(1), self.per_event);
        let key = Key::at(self.seed, self.salt, now, m);
        for (i, out) in io.out::<u32>(0).iter_mut().enumerate() {
            *out = negative(pool, key, m, (i / m, i % m));
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (pool, now, out, m) = (on.input(0), on.input(1), on.out(0), on.out_cols(0));
        let grid = Grid::items(on.out_cap(0) * self.per_event);
        let (key, per_event) =
            (abi::Key::new(self.seed, self.salt), counted_per_event(on.spec(1), self.per_event));
        launch!(k, on, draw_negatives[grid]; pool, now, out, on.rows(0), on.out_rows(0), m, per_event, key)
    }
}

/// `[b, negatives per event, pool]`, and optionally the number of events before
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1], &[5, 3, 50, 7], &[1, 1, 9, 600], &[0, 1, 5], &[5, 0, 9], &[30, 1, 9], &[7, 49, 1000]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[600, 1, 1_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let pool = c.ids(&(0..dims[2] as u32).map(|i| 100 + i).collect::<Vec<_>>(), 1);
    let like = c.ids(&vec![0; dims[0]], 1);
    let now = match dims.get(3) {
        Some(&before) => c.ids(&[1, 4, before as u32], 3),
        None => c.ids(&[1, 4], 2),
    };
    let out = c.tape.draw_negatives(pool, now, like, dims[1], 7, 3)?;
    Ok(Built::new(&[out], &[]))
}
