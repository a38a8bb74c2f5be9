//! Finds the nodes of a list that are also in another list, those of an adjacent batch
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `stamp` | `[v]` u32, state | working memory, all zero between runs |
//! | `node` | `[n]` u32 below `v`, or [`NONE`] | nodes, each once |
//! | `other` | `[m]` u32 below `v`, or `NONE` | the other list; of a node that it has several times, the last row counts |
//! | `step` | `[1]` u32 | number of the step |
//! | count | `[1]` u32 | number of nodes in both |
//! | row | `[<= n]` u32 | their rows in `node`, in order |
//! | at | `[<= n]` u32 | their rows in `other` |
//! | rest | `[n]` u32 | `node` with `NONE` in place of nodes in both |
//! | counts | `[ranks]` u32 | the count for rank `(step + ahead) mod ranks`, 0 for the others |
//!
//! A node outside the table is a fault. Deterministic.
//! Source: the direct transfer of memory of PipeTGL, section 4.2: the positive roots that repeat in the next
//! batch.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct RepeatedRoots {
    ahead: usize,
    ranks: usize,
}

/// The nodes of two lists: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct RepeatedRows {
    /// Rows in the first list.
    pub row: Var,
    /// Rows in the other list.
    pub at: Var,
    /// The first list with [`NONE`] in place of the nodes in both.
    pub rest: Var,
    /// Their number, for the rank whose turn it is.
    pub counts: Var,
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const COUNT: usize = 0;
    pub(in crate::ops) const ROW: usize = 1;
    pub(in crate::ops) const AT: usize = 2;
    pub(in crate::ops) const REST: usize = 3;
    pub(in crate::ops) const COUNTS: usize = 4;
}

impl Tape {
    /// Appends [`RepeatedRoots`] for two lists, u32 `[n]` and `[m]`; `stamp`, u32 `[v]`, is zero before and
    /// after a run. The count is that of the rank whose turn it is `ahead` steps after `step`, u32 `[1]`.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32, or if there are no ranks.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let now = tape.input(&mut store, "now", ids(3), &[4u32, 7, 2])?;
    /// let next = tape.input(&mut store, "next", ids(3), &[2u32, 5, 4])?;
    /// let step = tape.input(&mut store, "step", ids(1), &[8u32])?;
    /// let stamp = store.zeros("stamp", ids(9))?;
    /// let stamp = tape.stored(stamp)?;
    /// let both = tape.repeated_roots(stamp, now, next, step, 1, 2)?; // the next step is rank 1's
    /// let keep = [both.row, both.at, both.rest, both.counts];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(both.row, &store)?, [0, 2]);
    /// assert_eq!(program.read::<u32>(both.at, &store)?, [2, 0]);
    /// assert_eq!(program.read::<u32>(both.rest, &store)?, [NONE, 7, NONE]);
    /// assert_eq!(program.read::<u32>(both.counts, &store)?, [0, 2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn repeated_roots(
        &mut self,
        stamp: Var,
        node: Var,
        other: Var,
        step: Var,
        ahead: usize,
        ranks: usize,
    ) -> Result<RepeatedRows> {
        let outs = self.push(RepeatedRoots { ahead, ranks }, &[stamp, node, other, step])?;
        let [row, at, rest, counts] =
            [output::ROW, output::AT, output::REST, output::COUNTS].map(|out| outs[out]);
        Ok(RepeatedRows { row, at, rest, counts })
    }
}

impl Op for RepeatedRoots {
    const NAME: &'static str = "repeated_roots";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "stamp [V] ids state, node [n] ids, other [m] ids, step [1] ids \
        -> count [1] ids, row [n] ids by count, at [n] ids by count, rest [n] ids, counts [r] ids";
    fn sizes(&self) -> Sizes {
        vec![("r", Rows::fixed(self.ranks))]
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        all_countable(self, ins)?;
        ensure!(Self::NAME, self.ranks > 0, "there are no ranks");
        countable(Self::NAME, "ranks", self.ranks.saturating_add(self.ahead))
    }
    fn empty_without(&self) -> Option<usize> {
        Some(at!(node))
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (stamp, other) = (io.state::<u32>(at!(stamp)), io.input::<u32>(at!(other)));
        for (i, &v) in other.iter().enumerate() {
            if let Some(v) = io.row_of(i, v, stamp.len()) {
                stamp[v] = i as u32 + 1;
            }
        }
        let (node, rest) = (io.input::<u32>(at!(node)), io.out::<u32>(output::REST));
        let (row, at) = (io.out::<u32>(output::ROW), io.out::<u32>(output::AT));
        let mut count = 0;
        for (i, (&v, rest)) in node.iter().zip(rest).enumerate() {
            let found = io.row_of(i, v, stamp.len()).map_or(0, |v| stamp[v]);
            *rest = if found > 0 { NONE } else { v };
            if found > 0 {
                (row[count], at[count]) = (i as u32, found - 1);
                count += 1;
            }
        }
        for &v in other {
            if let Some(stamp) = stamp.get_mut(v as usize) {
                *stamp = 0;
            }
        }
        io.out::<u32>(output::COUNT)[0] = count as u32;
        let counts = io.out::<u32>(output::COUNTS);
        counts.fill(0);
        counts[(io.input::<u32>(at!(step))[0] as usize + self.ahead) % self.ranks] = count as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, repeated_roots[Grid::new(1, 1024)];
            on.state(at!(stamp)), on.input(at!(node)), on.input(at!(other)), on.input(at!(step)),
            on.needed(output::COUNT), on.needed(output::ROW), on.needed(output::AT), on.needed(output::REST),
            on.needed(output::COUNTS), on.rows(at!(node)), on.rows(at!(other)),
            on.capacity(at!(stamp)) as u32, self.ahead as u32, self.ranks as u32, on.status()
        )
    }
}

/// `[nodes of the first list, of the other one, below, steps ahead, ranks]`
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 0, 1],
    &[0, 5, 9, 1, 2],
    &[5, 0, 9, 1, 2],
    &[40, 30, 90, 1, 3],
    &[1_500, 1_700, 4_000, 2, 9],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[900, 900, 9_228, 1, 4]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, m, below, ahead, ranks] = dims[..] else {
        return Err(Error::shape("repeated_roots", "five numbers"));
    };
    let stamp = c.ids(&vec![0; below], 1);
    // Every fifth row is not a node; the others are consecutive, so that no node is listed twice.
    let mut list = |n: usize| {
        let first = c.below(below);
        let ids = (0..n).map(|i| if i % 5 == 3 { NONE } else { ((first + i) % below) as u32 });
        c.ids(&ids.collect::<Vec<_>>(), 1)
    };
    let (node, other) = (list(n), list(m));
    let step = c.count(7);
    let both = c.tape.repeated_roots(stamp, node, other, step, ahead, ranks)?;
    let outs = vec![both.row, both.at, both.rest, both.counts];
    Ok(Built { outs, states: vec![stamp], ..Built::default() })
}
