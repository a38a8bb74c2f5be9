//! Picks the nodes that had no event for long, and for each of them similar nodes that had
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `node` | `[n]` u32 | nodes whose rows a step reads |
//! | `similar` | `[n, s]` u32, or [`NONE`] | similar nodes of each of them ([`count_common`]) |
//! | `event`, `time` | `[v, k]` u32, i64 | events of each node's mails, or [`NONE`], and their times in ticks |
//! | `now` | `[b]` i64 | times of the batch, of which the first counts |
//! | count | `[1]` u32 | number m of picked nodes |
//! | row | `[m]` u32 | their rows in `node`, ascending |
//! | picks | `[m, s]` u32, or [`NONE`] | the similar nodes that count |
//!
//! A node's last event is the latest of its mails. It is picked if that is more than `gap` ticks before the
//! batch, and one of its similar nodes at least had a later event, less than `gap` ticks before the batch;
//! these count. A node without a mail is neither picked nor counts. Deterministic.
//! Source: MSPipe, section 3.3: the nodes that are stale, and the active ones among their most similar nodes.
use super::*;

/// See the [module](self).
#[derive(Debug)]
pub struct PickSimilar {
    /// In ticks.
    gap: i64,
}

/// Nodes that were picked.
#[derive(Clone, Copy, Debug)]
pub struct NodesToMix {
    /// `[m]` u32 rows of the nodes.
    pub row: Var,
    /// `[m, s]` u32 similar nodes, or `NONE`.
    pub similar: Var,
}

impl Tape {
    /// Appends [`PickSimilar`] for the nodes `node`, u32 `[n]`, with `similar`, u32 `[n, s]`; mails are
    /// `event`, u32 `[v, k]`, and `time`, i64 `[v, k]`; the batch has the times `now`, i64 `[b]`.
    ///
    /// # Errors
    /// `Shape` if types or shapes are not those of the module's table.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let ids = |n| Spec::ids(Rows::fixed(n), 1);
    /// let node = tape.input(&mut store, "node", ids(2), &[0u32, 1])?;
    /// let similar = tape.input(&mut store, "similar", ids(2), &[1u32, 0])?;
    /// let event = tape.input(&mut store, "event", ids(2), &[3u32, 7])?;
    /// let time = tape.input(&mut store, "time", Spec::times(Rows::fixed(2)), &[10i64, 90])?;
    /// let now = tape.input(&mut store, "now", Spec::times(Rows::fixed(1)), &[100i64])?;
    /// let picked = tape.pick_similar(node, similar, (event, time), now, 50)?;
    /// let mut program = Program::new(&tape, &[picked.row, picked.similar], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<u32>(picked.row, &store)?, [0]); // node 0 is quiet for 90 ticks
    /// assert_eq!(program.read::<u32>(picked.similar, &store)?, [1]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn pick_similar(
        &mut self,
        node: Var,
        similar: Var,
        (event, time): (Var, Var),
        now: Var,
        gap: i64,
    ) -> Result<NodesToMix> {
        let outs = self.push(PickSimilar { gap }, &[node, similar, event, time, now])?;
        Ok(NodesToMix { row: outs[1], similar: outs[2] })
    }
}

/// Returns the time of a node's last event, from the events and times of its mails.
fn last(event: &[u32], time: &[i64]) -> Option<i64> {
    event.iter().zip(time).filter(|(event, _)| **event != NONE).map(|(_, &time)| time).max()
}

impl Op for PickSimilar {
    const NAME: &'static str = "pick_similar";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "node [n] ids, similar [n, s] ids, event [V, k] ids, time [V, k] times, \
        now [m] times -> count [1] ids, row [n] ids by count, picks [n, s] ids by count";
    fn check(&self, ins: &[Spec]) -> Result<()> {
        countable(Self::NAME, "similar nodes", ins[at!(similar)].len())
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let (n, k) = (ins[at!(node)].rows.capacity, ins[at!(event)].cols);
        Cost { bytes: n * (4 + 12 * k), flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (node, similar) = (io.input::<u32>(at!(node)), io.input::<u32>(at!(similar)));
        let (event, time) = (io.input::<u32>(at!(event)), io.input::<i64>(at!(time)));
        let (v, k, s) = (io.rows(at!(event)), io.cols(at!(event)), io.cols(at!(similar)));
        let (row, picks) = (io.out::<u32>(1), io.out::<u32>(2));
        let last = |v: usize| last(&event[v * k..][..k], &time[v * k..][..k]);
        let mut m = 0;
        for (i, &of) in node.iter().enumerate() {
            let (Some(of), Some(&now)) = (io.row_of(i, of, v), io.input::<i64>(at!(now)).first()) else {
                continue;
            };
            let Some(own) = last(of).filter(|&own| now.wrapping_sub(own) > self.gap) else { continue };
            let picks = &mut picks[m * s..][..s];
            let active = |other: u32| {
                let later = last(Some(other as usize).filter(|&other| other < v)?)?;
                (later > own && now.wrapping_sub(later) < self.gap).then_some(other)
            };
            for (pick, &other) in picks.iter_mut().zip(&similar[i * s..][..s]) {
                *pick = active(other).unwrap_or(NONE);
            }
            if picks.iter().any(|&pick| pick != NONE) {
                row[m] = i as u32;
                m += 1;
            }
        }
        io.out::<u32>(0)[0] = m as u32;
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        launch!(
            k, on, pick_similar[Grid::new(1, 1024)];
            on.input(at!(node)), on.input(at!(similar)), on.input(at!(event)),
            on.input(at!(time)), on.input(at!(now)), on.needed(0), on.needed(1), on.needed(2),
            on.rows(at!(node)), on.rows(at!(now)), on.cols(at!(similar)), on.cols(at!(event)),
            on.capacity(at!(event)) as u32, self.gap, on.status()
        )
    }
}

/// `[nodes, rows, similar, mails, times of the batch]`
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 1],
    &[30, 20, 3, 1, 4],
    &[700, 1500, 4, 1, 2],
    &[40, 1100, 2, 3, 1],
    &[9, 0, 2, 1, 1],
    &[9, 7, 2, 1, 0],
    &[9, 7, 0, 1, 1],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[9_228, 5_000, 8, 1, 600]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, s, k, b] = dims[..] else { return Err(Error::shape("pick_similar", "five numbers")) };
    let node = c.ids_below(n, v);
    let mut with_gaps = |items: usize| -> Vec<u32> {
        (0..items).map(|i| if i % 4 == 3 { NONE } else { c.below(v) as u32 }).collect()
    };
    let (similar, event) = (with_gaps(n * s), with_gaps(v * k));
    let time: Vec<i64> = (0..v * k).map(|_| c.below(100) as i64).collect();
    let similar = c.values(Spec::ids(Rows::fixed(n), s), &similar);
    let event = c.values(Spec::ids(Rows::fixed(v), k), &event);
    let time = c.values(Spec { cols: k, ..Spec::times(Rows::fixed(v)) }, &time);
    let now = c.times(&(100..100 + b as i64).collect::<Vec<_>>());
    let picked = c.tape.pick_similar(node, similar, (event, time), now, 50)?;
    Ok(Built::new(&[picked.row, picked.similar], &[]))
}
