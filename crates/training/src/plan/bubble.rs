//! The bubble of a pipeline of ranks that get whole batches in turn: how long a rank idles for each of its
//! batches, by the formula and as measured.
//!
//! A rank that has finished a batch waits if the memory that its next batch reads is not there yet. By
//! PipeTGL's theorem 4.1, this takes `max(t2 - t1, 0)` seconds with `t1 = 2 s + roots + others + train +
//! step` and `t2 = s + n roots`: on n ranks the memory of the positive roots goes round once while a rank
//! samples, trains and updates once.
use super::Timeline;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tgnn::autograd::{Span, Stage};

/// The seconds of a rank for each of its batches, and how long it idles.
///
/// ```
/// use tgnn_training::plan::Bubble;
/// let mut bubble = Bubble { ranks: 4, sample: 1.0, roots: 3.0, train: 6.0, ..Bubble::default() };
/// assert_eq!(bubble.by_formula(), 2.0); // 1 + 4 * 3 - (2 * 1 + 3 + 6)
/// bubble.ranks = 2;
/// assert_eq!(bubble.by_formula(), 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bubble {
    /// Number of ranks that get batches in turn.
    pub ranks: usize,
    /// Sampling.
    pub sample: f64,
    /// Memory of the positive roots: fetched, updated, and sent to where it is kept.
    pub roots: f64,
    /// Memory of the other nodes.
    pub others: f64,
    /// Embeddings and the backward pass.
    pub train: f64,
    /// Sums of gradients, and updates.
    pub step: f64,
    /// From the end of a batch to the next one of the same rank, in which no op of the rank's own batches
    /// runs.
    pub idle: f64,
    /// Between the ends of two batches of the rank.
    pub round: f64,
}

impl Bubble {
    /// Returns the seconds that a rank idles for each batch, by theorem 4.1.
    pub fn by_formula(&self) -> f64 {
        let before = 2.0 * self.sample + self.roots + self.others + self.train + self.step;
        let arrives = self.sample + self.ranks as f64 * self.roots;
        (arrives - before).max(0.0)
    }
    /// Returns the means over the batches of `rank` in a timeline of a pass over `ranks` ranks; `None` if it
    /// has fewer than two of them.
    pub fn measure(timeline: &Timeline, rank: usize, ranks: usize) -> Option<Self> {
        let batches = batches(timeline, rank, ranks);
        let mut sum = Bubble { ranks, ..Bubble::default() };
        batches.values().for_each(|spans| sum.add(spans));
        let times: Vec<[f64; 2]> = batches.values().map(|spans| computed(spans)).collect();
        let (counted, rounds) =
            (times.len() as f64, times.len().checked_sub(1).filter(|&rounds| rounds > 0)?);
        let Bubble { sample, roots, others, train, step, .. } = sum;
        let [sample, roots, others, train, step] =
            [sample, roots, others, train, step].map(|seconds| seconds / counted);
        let idle = waits(&times).map(|[from, until]| until - from).sum::<f64>() / rounds as f64;
        let round = (times[rounds][1] - times[0][1]) / rounds as f64;
        Some(Bubble { ranks, sample, roots, others, train, step, idle, round })
    }
    /// Returns the times, start and end, in which `rank` waits for the memory of its next batch.
    pub fn waits(timeline: &Timeline, rank: usize, ranks: usize) -> Vec<[f64; 2]> {
        let times: Vec<[f64; 2]> =
            batches(timeline, rank, ranks).values().map(|spans| computed(spans)).collect();
        waits(&times).collect()
    }
    /// Adds the ops of a batch.
    fn add(&mut self, spans: &[&Span]) {
        // The rows of the roots are updated first.
        let updates = spans.iter().filter(|span| span.node_info.stage == Stage::UpdateMemory);
        let of_roots = updates.map(|span| span.node).min().unwrap_or(usize::MAX);
        for span in spans {
            let of_others = span.node > of_roots;
            *match span.node_info.stage {
                Stage::Sample | Stage::Route => &mut self.sample,
                // Features are gathered beside the batch before.
                Stage::FetchFeatures => continue,
                Stage::Dispatch | Stage::FetchMemory | Stage::UpdateMemory if of_others => &mut self.others,
                Stage::Dispatch | Stage::FetchMemory | Stage::UpdateMemory => &mut self.roots,
                Stage::Aggregate | Stage::WriteMemory => &mut self.roots,
                Stage::Embed | Stage::WeightGrads => &mut self.train,
                Stage::ReduceGradients | Stage::Step => &mut self.step,
            } += span.end - span.start;
        }
    }
}

/// Returns the ops of each batch of a rank, by step.
fn batches(timeline: &Timeline, rank: usize, ranks: usize) -> BTreeMap<usize, Vec<&Span>> {
    let mut of_step: BTreeMap<usize, Vec<&Span>> = BTreeMap::new();
    for span in timeline.spans().iter().filter(|span| span.step % ranks.max(1) == rank) {
        of_step.entry(span.step).or_default().push(span);
    }
    of_step
}

/// Returns when a rank begins and ends to compute with a batch, once memory is there.
fn computed(spans: &[&Span]) -> [f64; 2] {
    let computes = |span: &&&Span| {
        let stage = span.node_info.stage;
        let of_batch = matches!(stage, Stage::UpdateMemory | Stage::Embed | Stage::WeightGrads);
        span.node_info.traffic.is_none() && of_batch
    };
    let own = || spans.iter().filter(computes);
    [
        own().map(|span| span.start).fold(f64::INFINITY, f64::min),
        own().map(|span| span.end).fold(0.0, f64::max),
    ]
}

/// Returns the times between a batch and the next one.
fn waits(times: &[[f64; 2]]) -> impl Iterator<Item = [f64; 2]> {
    times.windows(2).map(|pair| [pair[0][1], pair[1][0]]).filter(|[from, until]| until > from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::{
        autograd::{NodeInfo, Resource},
        ops::{Cost, OpKind, Tag},
    };

    #[test]
    fn a_rank_idles_from_the_end_of_its_batch_to_the_update_of_the_next_one() {
        let span = |stage, node, step, start: f64, end: f64| {
            let node_info = NodeInfo {
                op: "op",
                kind: OpKind::Nn,
                resource: Resource::Arithmetic,
                stage,
                tag: Tag::default(),
                lane: 0,
                cost: Cost::default(),
                traffic: None,
                cols: 1,
            };
            Span { node_info, node, step, start, end, cost: Cost::default() }
        };
        // Two ranks. Batches 1 and 3 are of the second one; a batch takes 1 s to sample, 2 for the roots, 1
        // for the others, 4 to train, 1 to write and 1 to update.
        let batch = |step, from: f64| {
            [
                span(Stage::Sample, 0, step, from - 5.0, from - 4.0),
                span(Stage::UpdateMemory, 1, step, from, from + 2.0),
                span(Stage::UpdateMemory, 2, step, from + 2.0, from + 3.0),
                span(Stage::Embed, 3, step, from + 3.0, from + 7.0),
                span(Stage::WriteMemory, 4, step, from + 2.0, from + 3.0),
                span(Stage::Step, 5, step, from + 7.0, from + 8.0),
            ]
        };
        let of_others = span(Stage::Embed, 3, 2, 10.0, 90.0);
        let spans = [batch(1, 10.0), batch(3, 20.0)].concat().into_iter().chain([of_others]).collect();
        let bubble = Bubble::measure(&Timeline::new(spans), 1, 2).unwrap();
        let want = Bubble {
            ranks: 2,
            sample: 1.0,
            roots: 3.0,
            others: 1.0,
            train: 4.0,
            step: 1.0,
            idle: 3.0,
            round: 10.0,
        };
        assert_eq!((bubble, bubble.by_formula()), (want, 0.0));
        assert_eq!(Bubble { ranks: 8, ..bubble }.by_formula(), 1.0 + 8.0 * 3.0 - 11.0);
        assert_eq!(Bubble::measure(&Timeline::new(batch(1, 0.0).to_vec()), 1, 2), None);
    }
}
