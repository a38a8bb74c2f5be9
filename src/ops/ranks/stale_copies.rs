//! Marks the rows of which other ranks have no valid copy, and notes that they get one
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `copies` | `[v, w]` u32, state | for each row, a bit for each rank, 32 a word: whether the rank's copy is valid |
//! | `id` | `[n]` u32 below `v` | rows that ranks want, those of rank 0 first; unique for each rank |
//! | `counts` | `[ranks]` u32, at most `32 w` | number of rows that each rank wants |
//! | mark | `[n]` u32 | 1 if the rank's copy was not valid, else 0; 0 for the rank itself, which owns the rows |
//!
//! Afterwards, all copies of the listed rows are valid for the ranks that want them. An id outside of the
//! table is a fault. Deterministic.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct StaleCopies {
    /// The rank that owns the rows.
    own: usize,
}

impl Tape {
    /// Appends [`StaleCopies`] on the rank `own`; `copies` is u32 `[v, w]`, `id` u32 `[n]`, grouped by rank,
    /// `counts` u32 `[ranks]`.
    ///
    /// # Errors
    /// `Shape` if types or rows differ, or if a row of `copies` has fewer bits than there are ranks.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let id = tape.input(&mut store, "id", ids(3), &[5u32, 5, 6])?; // rank 0 wants 5, rank 1 wants 5 and 6
    /// let counts = tape.input(&mut store, "counts", ids(2), &[1u32, 2])?;
    /// let copies = store.zeros("copies", ids(9))?;
    /// let copies = tape.stored(copies)?;
    /// let mark = tape.stale_copies(copies, id, counts, 0)?;
    /// let mut program = Program::new(&tape, &[mark], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(mark, &store)?, [0, 1, 1]); // rank 0 owns the rows
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(mark, &store)?, [0, 0, 0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn stale_copies(&mut self, copies: Var, id: Var, counts: Var, own: usize) -> Result<Var> {
        self.push1(StaleCopies { own }, &[copies, id, counts])
    }
}

/// Checks the inputs of ops that change copies: a table of bits, rows of it, and their number by rank.
pub(in crate::ops) fn check(op: &'static str, ins: &[Spec]) -> Result<()> {
    let [copies, id, ranks] =
        [ins[at!(StaleCopies, copies)], ins[at!(StaleCopies, id)], ins[at!(StaleCopies, counts)]];
    let ranks = ranks.len();
    ensure!(op, ranks <= 32 * copies.cols, "{ranks} ranks have no bits in {copies}");
    countable(op, "rows", copies.rows.capacity)?;
    countable(op, "ids", id.len())
}

/// Calls `visit` with each row of the list, as position and number, and with its rank.
pub(in crate::ops) fn by_rank(io: &Io<'_>, mut visit: impl FnMut(usize, usize, usize)) {
    let (id, counts) = (io.input::<u32>(at!(StaleCopies, id)), io.input::<u32>(at!(StaleCopies, counts)));
    let mut begin = 0usize;
    for (rank, &count) in counts.iter().enumerate() {
        let end = begin.saturating_add(count as usize).min(id.len());
        for (at, &id) in (begin..end).zip(&id[begin..end]) {
            if let Some(row) = io.row_of(at, id, io.rows(at!(StaleCopies, copies))) {
                visit(at, row, rank);
            }
        }
        begin = end;
    }
}

impl Op for StaleCopies {
    const NAME: &'static str = "stale_copies";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "copies [v, w] ids state, id [n] ids, counts [R] ids -> mark [n] ids";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, ins)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (copies, words) = (io.state::<u32>(at!(copies)), io.cols(at!(copies)));
        let mark = io.out::<u32>(0);
        mark.fill(0);
        by_rank(io, |at, row, rank| {
            let (word, bit) = (&mut copies[row * words + rank / 32], 1 << (rank % 32));
            mark[at] = u32::from(rank != self.own && *word & bit == 0);
            *word |= bit;
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, stale_copies[Grid::items(on.capacity(at!(id)))];
            on.state(at!(copies)), on.input(at!(id)), on.input(at!(counts)), on.needed(0),
            on.rows(at!(id)), on.capacity(at!(copies)) as u32, on.cols(at!(copies)),
            on.capacity(at!(counts)) as u32, self.own as u32, on.status()
        )
    }
}

/// `[rows, words, wanted by each of five ranks, own rank]`
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[9, 1, 0, 2], &[40, 2, 30, 4], &[900, 1, 700, 1]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 1, 1_500, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (copies, id, counts) = listed(c, dims);
    let mark = c.tape.stale_copies(copies, id, counts, dims[3])?;
    Ok(Built { outs: vec![mark], states: vec![copies], ..Built::default() })
}

/// Returns bits, and lists of five ranks of consecutive rows, which begin where they like.
pub(in crate::ops) fn listed(c: &mut CaseBuilder, dims: &[usize]) -> (Var, Var, Var) {
    let (rows, words, wanted) = (dims[0], dims[1], dims[2]);
    let bits: Vec<u32> = (0..rows * words).map(|_| c.below(32) as u32).collect();
    let ids: Vec<u32> = (0..5)
        .flat_map(|_| {
            let first = c.below(rows);
            (0..wanted).map(move |i| ((first + i) % rows) as u32)
        })
        .collect();
    let counts = c.ids(&[wanted as u32; 5], 1);
    (c.ids(&bits, words), c.ids(&ids, 1), counts)
}
