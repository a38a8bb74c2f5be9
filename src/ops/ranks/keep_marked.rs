//! Keeps the marked rows of a list that is grouped by rank
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `mark` | `[m]` u32 | 1 for a row to keep, else 0 |
//! | `counts` | `[ranks]` u32 | number of rows of each rank, in order |
//! | `id` | `[n]` u32 | the list |
//! | count | `[1]` u32 | number of kept rows |
//! | id | `[<= n]` u32 | kept rows, in order |
//! | counts | `[ranks]` u32 | kept rows of each rank |
//! | row | `[<= n]` u32 | position of each kept row in the list |
//!
//! Usually the list has a row for each mark. With a *segment* r, it has only those of rank r's marks, and the
//! result is one group: `counts` then is the number of its kept rows in place r, and 0 elsewhere.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct KeepMarked {
    segment: Option<usize>,
}

/// The kept rows of a list.
#[derive(Clone, Copy, Debug)]
pub struct MarkedRows {
    /// The rows.
    pub id: Var,
    /// Number of rows of each rank.
    pub counts: Var,
    /// Their positions in the list.
    pub row: Var,
}

/// Positions of the outputs.
mod output {
    pub(in crate::ops) const COUNT: usize = 0;
    pub(in crate::ops) const ID: usize = 1;
    pub(in crate::ops) const COUNTS: usize = 2;
    pub(in crate::ops) const ROW: usize = 3;
}

impl Tape {
    /// Appends [`KeepMarked`] for the list `id`, u32 `[n]`, with its marks, u32 `[m]`, and the number of
    /// marks of each rank, u32 `[ranks]`. `segment` is the rank whose marks belong to the list; `None` if all
    /// do.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32, or there is no such rank.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let mark = tape.input(&mut store, "mark", ids(3), &[1u32, 0, 1])?;
    /// let counts = tape.input(&mut store, "counts", ids(2), &[2u32, 1])?;
    /// let id = tape.input(&mut store, "id", ids(3), &[7u32, 8, 9])?;
    /// let kept = tape.keep_marked(mark, counts, id, None)?;
    /// let keep = [kept.id, kept.counts, kept.row];
    /// let mut program = Program::new(&tape, &keep, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(kept.id, &store)?, [7, 9]);
    /// assert_eq!(program.read::<u32>(kept.counts, &store)?, [1, 1]);
    /// assert_eq!(program.read::<u32>(kept.row, &store)?, [0, 2]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn keep_marked(
        &mut self,
        mark: Var,
        counts: Var,
        id: Var,
        segment: Option<usize>,
    ) -> Result<MarkedRows> {
        let outs = self.push(KeepMarked { segment }, &[mark, counts, id])?;
        Ok(MarkedRows { id: outs[output::ID], counts: outs[output::COUNTS], row: outs[output::ROW] })
    }
}

impl Op for KeepMarked {
    const NAME: &'static str = "keep_marked";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "mark [m] ids, counts [R] ids, id [n] ids \
        -> count [1] ids, id [n] ids by count, counts [R] ids, row [n] ids by count";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "rows", ins[at!(mark)].len())?;
        countable(Self::NAME, "rows", ins[at!(id)].len())?;
        let ranks = ins[at!(counts)].len();
        let known = self.segment.is_none_or(|rank| rank < ranks);
        ensure!(Self::NAME, known, "segment {:?} of {ranks} ranks", self.segment);
        Ok(())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (mark, counts) = (io.input::<u32>(at!(mark)), io.input::<u32>(at!(counts)));
        let (id, kept) = (io.input::<u32>(at!(id)), io.out::<u32>(output::ID));
        let (kept_counts, row) = (io.out::<u32>(output::COUNTS), io.out::<u32>(output::ROW));
        let (mut begin, mut n, mut listed) = (0usize, 0, 0);
        for (rank, (&count, kept_count)) in counts.iter().zip(kept_counts).enumerate() {
            let end = begin.saturating_add(count as usize);
            *kept_count = 0;
            if self.segment.is_none_or(|segment| segment == rank) {
                for &mark in mark.get(begin..end.min(mark.len())).unwrap_or_default() {
                    let Some(&id) = id.get(listed) else { break };
                    if mark == 1 {
                        (kept[n], row[n]) = (id, listed as u32);
                        (n, *kept_count) = (n + 1, *kept_count + 1);
                    }
                    listed += 1;
                }
            }
            begin = end;
        }
        io.out::<u32>(output::COUNT)[0] = n as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, keep_marked[Grid::new(1, 1024)];
            on.input(at!(mark)), on.input(at!(counts)), on.input(at!(id)), on.needed(output::COUNT),
            on.needed(output::ID), on.needed(output::COUNTS), on.needed(output::ROW), on.rows(at!(mark)),
            on.rows(at!(id)), on.capacity(at!(counts)) as u32,
            self.segment.map_or(NONE, |rank| rank as u32)
        )
    }
}

/// Numbers of rows of three ranks, and optionally the segment
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 0, 0], &[0, 0, 0], &[3, 5, 9], &[400, 0, 700], &[3, 5, 9, 1], &[30, 50, 900, 2]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[500, 500, 500]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let n = dims[..3].iter().sum();
    let segment = dims.get(3).copied();
    let counts: Vec<u32> = dims[..3].iter().map(|&n| n as u32).collect();
    let (mark, counts) = (c.ids_below(n, 2), c.ids(&counts, 1));
    let id = c.ids_below(segment.map_or(n, |rank| dims[rank]), 1_000);
    let kept = c.tape.keep_marked(mark, counts, id, segment)?;
    Ok(Built::new(&[kept.id, kept.counts, kept.row], &[]))
}
