//! Notes that rows have changed, so that other ranks' copies of them are no longer valid
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `copies` | `[v, w]` u32, state | for each row, a bit for each rank, 32 a word: whether the rank's copy is valid |
//! | `id` | `[n]` u32 below `v`, unique | rows that have changed, those that rank 0 has computed first |
//! | `counts` | `[ranks]` u32, at most `32 w` | number of rows that each rank has computed |
//!
//! The rank that has computed a row may keep it as a copy. An id outside of the table is a fault.
//! Deterministic.
use super::{
    stale_copies::{by_rank, check, listed},
    *,
};

/// See the [module](self).
#[derive(Debug)]
pub struct ExpireCopies {
    /// Whether a rank keeps the rows that it has computed.
    kept: bool,
}

impl Tape {
    /// Appends [`ExpireCopies`]; `copies` is u32 `[v, w]`, `id` u32 `[n]`, grouped by rank, `counts` u32
    /// `[ranks]`. `kept` says whether a rank keeps the rows that it has computed as copies.
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
    /// let id = tape.input(&mut store, "id", ids(2), &[2u32, 0])?; // computed by rank 1
    /// let counts = tape.input(&mut store, "counts", ids(2), &[0u32, 2])?;
    /// let copies = store.values("copies", ids(3), &[0b11u32, 0b11, 0b01])?;
    /// let copies = tape.stored(copies)?;
    /// tape.expire_copies(copies, id, counts, true)?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(copies, &store)?, [0b10, 0b11, 0b10]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn expire_copies(&mut self, copies: Var, id: Var, counts: Var, kept: bool) -> Result<()> {
        self.push(ExpireCopies { kept }, &[copies, id, counts]).map(drop)
    }
}

impl Op for ExpireCopies {
    const NAME: &'static str = "expire_copies";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "copies [v, w] ids state, id [n] ids, counts [R] ids ->";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        check(Self::NAME, ins)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (copies, words) = (io.state::<u32>(at!(copies)), io.cols(at!(copies)));
        by_rank(io, |_, row, rank| {
            let bits = &mut copies[row * words..][..words];
            bits.fill(0);
            if self.kept {
                bits[rank / 32] = 1 << (rank % 32);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, expire_copies[Grid::items(on.capacity(at!(id)))];
            on.state(at!(copies)), on.input(at!(id)), on.input(at!(counts)), on.rows(at!(id)),
            on.capacity(at!(copies)) as u32, on.cols(at!(copies)), on.capacity(at!(counts)) as u32,
            self.kept.into(), on.status()
        )
    }
}

/// `[rows, words, changed by each of five ranks, 1 if they keep them]`; no row has changed twice
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 0, 0], &[20, 1, 4, 1], &[300, 2, 60, 1], &[900, 1, 100, 0]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 1, 300, 1]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (copies, _, counts) = listed(c, dims);
    let first = c.below(dims[0]);
    let ids: Vec<u32> = (0..5 * dims[2]).map(|i| ((first + i) % dims[0]) as u32).collect();
    let id = c.ids(&ids, 1);
    c.tape.expire_copies(copies, id, counts, dims[3] == 1)?;
    Ok(Built { states: vec![copies], ..Built::default() })
}
