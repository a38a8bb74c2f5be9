//! Temporal neighbours of each query `(node, time)` over a T-CSR, strictly before it
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `offsets` | `[v + 1]` i64 | where each node's list begins |
//! | `list node`, `list event` | `[2 e]` u32 | other end and id of each of the node's events, in order |
//! | `list time` | `[2 e]` i64 | its time |
//! | `position` | `[e, 2]` u32 | rank of event `e` in the lists of its source and of its destination |
//! | `node`, `time` | `[n]` u32 (or [`NONE`]), i64 | queries; the roots come event by event, `stride` rows each |
//! | `event` | `[<= b]` u32 | events of the batch: history ends before the first of them |
//! | `now` | `[1, 2]` u32 | clock of the uniform draw |
//! | neighbor, event | `[n, k]` u32 | other end and id; `NONE` in unused slots |
//! | dt | `[n, k]` f32 | seconds from the neighbour's event to the query; 0 in unused slots |
//! | count | `[n]` u32 | slots in use: a prefix |
//!
//! **No leakage**: a sampled event belongs to an earlier batch *and* its time is strictly earlier than the query's.
//! `Recent` takes the k latest, latest first; `Uniform` draws k with replacement (all of them, latest first, when
//! there are at most k). For the positive roots the history's end is found from the known position of their own
//! event, walking back over the batch; others search by halving. A query for `NONE` has no neighbours.
//! Source: TGN's most recent sampling; the T-CSR is TGL's, the known position is ours.
use super::*;
use crate::runtime::{
    philox::Key,
    team::{self, InParallel},
};

/// Which of a node's earlier events are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The latest.
    Recent,
    /// Uniform with replacement; seed of the run.
    Uniform(u64),
}

/// See the [module](self).
#[derive(Debug)]
pub struct SampleNeighbors {
    k: usize,
    strategy: Strategy,
    /// Roots an event, where queries are roots: the first two have known positions. 0 where every query searches.
    stride: usize,
    gaps: Gaps,
}

/// T-CSR tables as values.
#[derive(Clone, Copy, Debug)]
pub struct TcsrVars {
    /// `[v + 1]` i64.
    pub offsets: Var,
    /// `[2 e]` u32.
    pub node: Var,
    /// `[2 e]` u32.
    pub event: Var,
    /// `[2 e]` i64.
    pub time: Var,
    /// `[e, 2]` u32.
    pub position: Var,
}

/// Sampled neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Neighbors {
    /// `[n, k]` u32, or `NONE`.
    pub node: Var,
    /// `[n, k]` u32, or `NONE`.
    pub event: Var,
    /// `[n, k]` f32 seconds.
    pub dt: Var,
    /// `[n]` u32.
    pub count: Var,
}

/// How neighbours are sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Slots a query.
    pub k: usize,
    /// Which events.
    pub strategy: Strategy,
    /// Makes seconds of ticks.
    pub gaps: Gaps,
}

impl Tape {
    /// Appends [`SampleNeighbors`] for queries `(node, time)`. `stride` is the number of roots an event when the
    /// queries are the roots of the batch, else 0.
    ///
    /// # Errors
    /// `Shape` when types or rows do not fit.
    pub fn sample_neighbors(
        &mut self,
        tcsr: TcsrVars,
        query: (Var, Var),
        batch: (Var, Var),
        stride: usize,
        how: Sampling,
    ) -> Result<Neighbors> {
        let Sampling { k, strategy, gaps } = how;
        let op = SampleNeighbors { k, strategy, stride, gaps };
        let TcsrVars { offsets, node, event, time, position } = tcsr;
        let o = self.push(op, &[offsets, node, event, time, position, query.0, query.1, batch.0, batch.1])?;
        Ok(Neighbors { node: o[0], event: o[1], dt: o[2], count: o[3] })
    }
}

impl SampleNeighbors {
    /// Events of the list `events`, ascending, that are before `first`. `own` is the rank of an event of this batch.
    fn history(events: &[u32], first: u32, own: Option<usize>) -> usize {
        let Some(own) = own else { return events.partition_point(|&e| e < first) };
        // Double the step back over this batch's events, then halve inside the last step.
        let (mut end, mut step) = (own, 1);
        while end > 0 && events[end - 1] >= first {
            let from = end.saturating_sub(step);
            if events[from] < first {
                return from + events[from..end].partition_point(|&e| e < first);
            }
            (end, step) = (from, 2 * step);
        }
        end
    }
}

impl Op for SampleNeighbors {
    const NAME: &'static str = "sample_neighbors";
    const KIND: Kind = Kind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 9)?;
        for (i, want) in [DType::I64, DType::U32, DType::U32, DType::I64, DType::U32, DType::U32, DType::I64]
            .into_iter()
            .enumerate()
        {
            typed(Self::NAME, &format!("input {i}"), &ins[i], want)?;
        }
        ensure!(Self::NAME, ins[1] == ins[2] && ins[1].rows == ins[3].rows, "lists differ in length");
        ensure!(Self::NAME, ins[5].rows == ins[6].rows, "queries differ in rows");
        ensure!(
            Self::NAME,
            self.stride == 0 || ins[5].rows == ins[7].rows.times(self.stride),
            "{} queries are not {} an event of {}",
            ins[5],
            self.stride,
            ins[7]
        );
        let slots = Spec::ids(ins[5].rows, self.k);
        Ok(vec![
            slots.into(),
            slots.into(),
            Spec::real(ins[5].rows, self.k).into(),
            Spec::ids(ins[5].rows, 1).into(),
        ])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        // A slot reads 16 bytes of the lists and writes 12.
        Cost { bytes: 28 * outs[0].len() + 24 * ins[5].rows.cap, flops: 0 }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (offsets, list_node) = (io.input::<i64>(0), io.input::<u32>(1));
        let (list_event, list_time) = (io.input::<u32>(2), io.input::<i64>(3));
        let (position, node, time) = (io.input::<u32>(4), io.input::<u32>(5), io.input::<i64>(6));
        let (batch, now) = (io.input::<u32>(7), io.input::<u32>(8));
        let (out_node, out_event) = (io.out::<u32>(0), io.out::<u32>(1));
        let (out_dt, out_count) = (io.out::<R>(2), io.out::<u32>(3));
        let Some(&first) = batch.first() else { return };
        let key = match self.strategy {
            Strategy::Uniform(seed) => Key::new(seed, 0x5A3B + self.stride as u32, [now[0], now[1]]),
            Strategy::Recent => Key::new(0, 0, [0, 0]),
        };
        let sample = |i: usize, out_node: &mut [u32], out_event: &mut [u32], out_dt: &mut [R]| -> u32 {
            out_node.fill(NONE);
            out_event.fill(NONE);
            out_dt.fill(R::ZERO);
            let Some(v) = io.row_of(i, node[i], offsets.len() - 1) else { return 0 };
            let list = offsets[v] as usize..offsets[v + 1] as usize;
            let (nodes, events, times) =
                (&list_node[list.clone()], &list_event[list.clone()], &list_time[list]);
            let own = (self.stride > 0 && i % self.stride < 2)
                .then(|| position[2 * batch[i / self.stride] as usize + i % self.stride] as usize);
            let mut end = Self::history(events, first, own);
            if end > 0 && times[end - 1] >= time[i] {
                end = times[..end].partition_point(|&t| t < time[i]);
            }
            let n = end.min(self.k);
            let uniform = self.strategy != Strategy::Recent && end > self.k;
            for j in 0..n {
                let at = if uniform {
                    key.below((i * self.k + j) as u64, end as u32) as usize
                } else {
                    end - 1 - j
                };
                (out_node[j], out_event[j]) = (nodes[at], events[at]);
                out_dt[j] = R::of(f64::from(self.gaps.seconds(times[at], time[i])));
            }
            n as u32
        };
        if self.k == 0 {
            return out_count.fill(0);
        }
        let (k, size) = (self.k, team::piece(node.len(), 64));
        out_node
            .chunks_mut(size * k)
            .zip(out_event.chunks_mut(size * k))
            .zip(out_dt.chunks_mut(size * k))
            .zip(out_count.chunks_mut(size))
            .enumerate()
            .in_parallel(1, |(piece, (((node, event), dt), count))| {
                let rows =
                    node.chunks_exact_mut(k).zip(event.chunks_exact_mut(k)).zip(dt.chunks_exact_mut(k));
                for (i, (((node, event), dt), count)) in (piece * size..).zip(rows.zip(count)) {
                    *count = sample(i, node, event, dt);
                }
            });
    }
}

/// `[nodes, events, first event of the batch, k, uniform]`; the queries are roots with one negative each.
pub(super) const CASES: &[&[usize]] =
    &[&[2, 1, 0, 1, 0], &[5, 60, 40, 3, 0], &[5, 60, 40, 3, 1], &[9, 300, 100, 10, 0]];
pub(super) const BENCH: &[&[usize]] = &[&[9_228, 110_232, 109_632, 10, 0], &[9_228, 110_232, 109_632, 10, 1]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, e, first, k, uniform] = *dims else { return Err(Error::shape("sample_neighbors", "five sizes")) };
    let ends: Vec<[u32; 2]> = (0..e).map(|_| [c.below(v) as u32, c.below(v) as u32]).collect();
    let times: Vec<i64> = (0..e as i64).map(|i| i / 3).collect();
    let mut lists = vec![Vec::new(); v];
    let mut position = vec![0; 2 * e];
    for (i, &[s, d]) in ends.iter().enumerate() {
        position[2 * i] = lists[s as usize].len() as u32;
        lists[s as usize].push((d, i));
        position[2 * i + 1] = position[2 * i];
        if s != d {
            position[2 * i + 1] = lists[d as usize].len() as u32;
            lists[d as usize].push((s, i));
        }
    }
    let mut offsets = vec![0i64];
    lists.iter().for_each(|l| offsets.push(offsets[offsets.len() - 1] + l.len() as i64));
    let flat: Vec<(u32, usize)> = lists.concat();
    let tcsr = TcsrVars {
        offsets: c.times(&offsets),
        node: c.ids(&flat.iter().map(|x| x.0).collect::<Vec<_>>(), 1),
        event: c.ids(&flat.iter().map(|x| x.1 as u32).collect::<Vec<_>>(), 1),
        time: c.times(&flat.iter().map(|x| times[x.1]).collect::<Vec<_>>()),
        position: c.ids(&position, 2),
    };
    let batch: Vec<u32> = (first as u32..e as u32).collect();
    let roots: Vec<u32> =
        batch.iter().flat_map(|&i| [ends[i as usize][0], ends[i as usize][1], i % v as u32]).collect();
    let root_times: Vec<i64> = batch.iter().flat_map(|&i| [times[i as usize]; 3]).collect();
    let (node, time) = (c.ids(&roots, 1), c.times(&root_times));
    let (event, now) = (c.ids(&batch, 1), c.ids(&[0, 1], 2));
    let strategy = if uniform == 1 { Strategy::Uniform(3) } else { Strategy::Recent };
    let gaps = Gaps { seconds_per_tick: 0.5, longest: e as i64 / 5 };
    let how = Sampling { k, strategy, gaps };
    let n = c.tape.sample_neighbors(tcsr, (node, time), (event, now), 3, how)?;
    Ok(Built::new(&[n.node, n.event, n.dt, n.count], &[]))
}
