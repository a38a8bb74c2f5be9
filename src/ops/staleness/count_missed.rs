//! Counts the writes of node memory that a step has missed, because it read the rows some steps before
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node`, `seen` | `[n]` u32 | nodes whose rows the step has read, and the version of each row |
//! | `written` | `[m]` u32 | nodes whose rows the step writes, each once |
//! | `after` | f32 of any shape | what the step computes; its elements are not read |
//! | `limit` | `[1]` u32, optional | number of the first nodes of `written` that count |
//! | `version` | `[v]` u32, state | number of writes of each node's row before this step, which the op increments |
//! | `missed` | `[bins]` u32, state | to whose entry i the rows are added that have missed i writes, or more if i is the last one |
//!
//! With a memory staleness of k steps no row misses more than k writes. Versions follow from the data alone,
//! so without `after` the op would be prefetched, and count before the step writes. At most 32 bins.
//! Deterministic.
//! Source: the staleness of MSPipe, section 3.1, as it is seen by the rows of a fetch.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct CountMissed {
    limited: bool,
}

/// Most entries of `missed`; the same as in the kernel.
const MOST_BINS: usize = 32;

impl Tape {
    /// Appends [`CountMissed`] for the rows of the nodes `node`, u32 `[n]`, that were read in the versions
    /// `seen`, u32 `[n]`; the first `limit` of the nodes `written`, u32 `[m]`, or all, are written. The op
    /// follows the nodes that compute `after`.
    ///
    /// # Errors
    /// `Shape` if an input is not one column of u32, or there are no bins or too many.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let node = tape.input(&mut store, "node", ids(3), &[0u32, 1, 2])?;
    /// let seen = tape.input(&mut store, "seen", ids(3), &[5u32, 7, 2])?;
    /// let versions = store.values("version", ids(3), &[5u32, 8, 4])?;
    /// let counts = store.zeros("missed", ids(3))?;
    /// let [version, missed] = tape.stored_all([versions, counts])?;
    /// let after = tape.input(&mut store, "after", Spec::real(Rows::fixed(1), 1), &[0.0f32])?;
    /// tape.count_missed((node, seen), (node, None), [version, missed], after)?;
    /// Program::new(&tape, &[], Precision::F32, Backend::Cpu)?.run(&mut store)?;
    /// assert_eq!(store.read::<u32>(counts)?, [1, 1, 1]); // rows that missed no write, one, and two
    /// assert_eq!(store.read::<u32>(versions)?, [6, 9, 5]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn count_missed(
        &mut self,
        (node, seen): (Var, Var),
        (written, limit): (Var, Option<Var>),
        [version, missed]: [Var; 2],
        after: Var,
    ) -> Result<()> {
        let ins = [node, seen, written, version, missed, after];
        let ins: Vec<Var> = ins.into_iter().chain(limit).collect();
        self.push(CountMissed { limited: limit.is_some() }, &ins).map(drop)
    }
}

impl Op for CountMissed {
    const NAME: &'static str = "count_missed";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, seen [n] ids, written [w] ids, version [V] ids state, \
        missed [B] ids state, after [a, d], limit? [1] ids ->";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.limited)
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let bins = ins[at!(missed)].len();
        ensure!(Self::NAME, (1..=MOST_BINS).contains(&bins), "{bins} bins, want 1 to {MOST_BINS}");
        Ok(())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, seen) = (io.input::<u32>(at!(node)), io.input::<u32>(at!(seen)));
        let (version, missed) = (io.state::<u32>(at!(version)), io.state::<u32>(at!(missed)));
        for (i, (&v, &seen)) in node.iter().zip(seen).enumerate() {
            let Some(v) = io.row_of(i, v, version.len()) else { continue };
            let writes = version[v].wrapping_sub(seen) as usize;
            let count = &mut missed[writes.min(missed.len() - 1)];
            *count = count.wrapping_add(1); // as the kernel's
        }
        let written = io.input::<u32>(at!(written));
        let limit = if self.limited { io.input::<u32>(at!(limit))[0] as usize } else { written.len() };
        for (i, &v) in written.iter().take(limit).enumerate() {
            let Some(v) = io.row_of(i, v, version.len()) else { continue };
            version[v] = version[v].wrapping_add(1);
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let limit = if self.limited { on.input(at!(limit)) } else { std::ptr::null() };
        launch!(
            k, on, count_missed[Grid::new(1, 1024)];
            on.input(at!(node)), on.input(at!(seen)), on.input(at!(written)), limit,
            on.state(at!(version)), on.state(at!(missed)), on.rows(at!(node)),
            on.rows(at!(written)), on.capacity(at!(missed)) as u32,
            on.capacity(at!(version)) as u32, on.status()
        )
    }
}

/// `[nodes, rows read, rows written, bins, limit + 1 or 0 for none]`
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 0],
    &[9, 9, 4, 3, 0],
    &[2000, 1500, 1100, 9, 700],
    &[5, 0, 0, 2, 0],
    &[30, 20, 20, 32, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 5_000, 1_200, 9, 0]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, m, bins, limit] = dims[..] else { return Err(Error::shape("count_missed", "five numbers")) };
    let listed = |n: usize| (0..n as u32).map(|i| (i * 7 + 1) % v as u32).collect::<Vec<_>>();
    // 7 and the numbers of nodes have no common divisor, so each node is listed once.
    let (node, written) = (c.ids(&listed(n), 1), c.ids(&listed(m), 1));
    let seen: Vec<u32> = (0..n).map(|_| c.below(6) as u32).collect();
    let seen = c.ids(&seen, 1);
    let version: Vec<u32> = (0..v).map(|_| 6 + c.below(4) as u32).collect();
    let (version, missed) = (c.ids(&version, 1), c.ids(&vec![3; bins], 1));
    let limit = (limit > 0).then(|| c.count(limit - 1));
    let after = c.real(1, 1);
    c.tape.count_missed((node, seen), (written, limit), [version, missed], after)?;
    Ok(Built { states: vec![version, missed], ..Built::default() })
}
