//! Marks the last appearance of each id in a list
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `stamp` | `[v]` u32, state | working memory, all zero between runs |
//! | `id` | `[n]` u32 below `v`, or [`NONE`] | ids |
//! | out | `[n]` u32 | 1 where no later row has the same id, else 0; 0 for `NONE` |
//!
//! Several ranks may offer new memory for the same node; lists are in the order of the ranks, whose events
//! are in the order of time, so the last offer is of the node's latest event. Deterministic.
//! Source: Sven, Algorithm 2 (Phi), over ranks.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct Latest;

impl Tape {
    /// Appends [`Latest`]; `stamp`, u32 `[v]`, is zero before and after a run.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let id = tape.input(&mut store, "id", Spec::ids(Rows::fixed(4), 1), &[3u32, 5, 3, 1])?;
    /// let stamp = store.zeros("stamp", Spec::ids(Rows::fixed(6), 1))?;
    /// let stamp = tape.stored(stamp)?;
    /// let latest = tape.latest(stamp, id)?;
    /// let mut program = Program::new(&tape, &[latest], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(latest, &store)?, [0, 1, 1, 1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn latest(&mut self, stamp: Var, id: Var) -> Result<Var> {
        self.push1(Latest, &[stamp, id])
    }
}

impl Op for Latest {
    const NAME: &'static str = "latest";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "stamp [V] ids state, id [n] ids -> out [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "ids", ins[1].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (stamp, id, out) = (io.state::<u32>(0), io.input::<u32>(1), io.out::<u32>(0));
        for (i, (&v, out)) in id.iter().zip(out).enumerate().rev() {
            *out = 0;
            if let Some(v) = io.row_of(i, v, stamp.len()) {
                *out = u32::from(stamp[v] == 0);
                stamp[v] = 1;
            }
        }
        for &v in id {
            if let Some(stamp) = stamp.get_mut(v as usize) {
                *stamp = 0;
            }
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (grid, stamp, id, v) =
            (Grid::items(on.capacity(1)), on.state(0), on.input(1), on.capacity(0) as u32);
        launch!(k, on, latest_stamp[grid]; stamp, id, on.rows(1), v, on.status())?;
        launch!(k, on, latest[grid]; stamp, id, on.needed(0), on.rows(1), v)?;
        launch!(k, on, latest_clear[grid]; stamp, id, on.needed(0), on.rows(1))
    }
}

/// `[ids, below, every how many is NONE]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 9], &[0, 3, 9], &[40, 9, 5], &[5_000, 900, 77]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_200, 9_228, 1_000_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let stamp = c.ids(&vec![0; dims[1]], 1);
    let id = |c: &mut CaseBuilder, i| if i % dims[2] == 0 { NONE } else { c.below(dims[1]) as u32 };
    let ids: Vec<u32> = (1..=dims[0]).map(|i| id(c, i)).collect();
    let id = c.ids(&ids, 1);
    let out = c.tape.latest(stamp, id)?;
    Ok(Built { outs: vec![out], states: vec![stamp], ..Built::default() })
}
