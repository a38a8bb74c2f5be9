//! Node property prediction: NDCG@10, and the baselines that remember labels.
//!
//! A score for each class ranks the classes of a label row. The discounted cumulative gain of a ranking is
//! the sum of `weight / log2(1 + rank)` over its first ten ranks; NDCG divides it by that of the best
//! ranking. Classes with equal scores share the mean of their weights. A row without weights has NDCG 0.
//!
//! Source: scikit-learn's `ndcg_score` with `k=10`, as TGB's evaluator calls it; the baselines are TGB's.
use super::Scores;
use rayon::prelude::*;
use std::{collections::HashMap, ops::Range};
use tgnn_data::NodeLabels;

/// Number of ranks that count.
const RANKS: usize = 10;
/// TGB's weight of the past in the moving average: a label counts `1 / WINDOW`.
const WINDOW: f32 = 7.0;

/// Returns the discount of a rank, counted from 0.
fn discount(rank: usize) -> f64 {
    1.0 / ((rank + 2) as f64).log2()
}

/// Returns the sum of the discounts of ranks.
fn discounts(ranks: Range<usize>) -> f64 {
    (ranks.start..ranks.end.min(RANKS)).map(discount).sum()
}

/// Returns NDCG@10 of `scores`, one for each class, against the classes of a row with their weights. NaN
/// ranks last, tied with minus infinity.
///
/// Takes O(n) time for n classes, if few of them tie.
///
/// ```
/// use tgnn_training::task::ndcg;
/// assert_eq!(ndcg(&[0.9, 0.5, 0.1], [(0, 2.0), (1, 1.0)]), 1.0);
/// let best = 2.0 + 1.0 / 3f64.log2();
/// assert_eq!(ndcg(&[0.0, 1.0, 2.0], [(0, 2.0), (1, 1.0)]), (1.0 / 3f64.log2() + 1.0) / best);
/// ```
pub fn ndcg(scores: &[f32], row: impl IntoIterator<Item = (u32, f32)>) -> f64 {
    let mut weights: Vec<(u32, f64)> = row.into_iter().map(|(class, w)| (class, w.into())).collect();
    let score = |class: u32| match scores.get(class as usize) {
        Some(score) if !score.is_nan() => *score,
        _ => f32::NEG_INFINITY,
    };
    // Classes without a weight gain nothing, so only their number at each score counts.
    let mut highest: Vec<f32> = (0..scores.len() as u32).map(score).collect();
    let ranks = RANKS.min(highest.len());
    if ranks < highest.len() {
        highest.select_nth_unstable_by(ranks - 1, |a, b| b.total_cmp(a));
    }
    let Some(last) = highest[..ranks].iter().copied().reduce(f32::min) else { return 0.0 };
    highest.retain(|&score| score >= last);
    highest.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut gain, mut rank) = (0.0, 0);
    for tied in highest.chunk_by(|a, b| a == b) {
        let of_tie = weights.iter().filter(|(class, _)| score(*class) == tied[0]);
        let weight: f64 = of_tie.map(|(_, weight)| weight).sum();
        gain += weight / tied.len() as f64 * discounts(rank..rank + tied.len());
        rank += tied.len();
    }
    weights.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
    let best: f64 = weights.iter().take(RANKS).enumerate().map(|(rank, (_, w))| w * discount(rank)).sum();
    if best == 0.0 { 0.0 } else { gain / best }
}

/// Returns the mean over times of the means over the label rows of a time, as TGB does; `times` are ranges of
/// `values`, one for each row. If there is a `mask`, only rows for which it is true count; `None` if none
/// does.
pub fn mean_over_times(
    times: impl IntoIterator<Item = Range<usize>>,
    values: &[f64],
    mask: Option<&[bool]>,
) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0);
    for rows in times {
        let counts = |row: &usize| mask.is_none_or(|mask| mask[*row]);
        let here: Vec<f64> = rows.filter(counts).map(|row| values[row]).collect();
        if !here.is_empty() {
            sum += here.iter().sum::<f64>() / here.len() as f64;
            n += 1;
        }
    }
    (n > 0).then(|| sum / f64::from(n))
}

/// Baseline that predicts the label of a node from its earlier ones; a node without any gets zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forecast {
    /// The last label.
    Persistent,
    /// The moving average `(6 a + label) / 7`, which starts with the first label.
    MovingAverage,
}

impl Forecast {
    /// All baselines.
    pub const ALL: [Forecast; 2] = [Forecast::Persistent, Forecast::MovingAverage];

    /// Returns the name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Forecast::Persistent => "persistent forecast",
            Forecast::MovingAverage => "moving average",
        }
    }

    /// Returns NDCG@10 of the rows of a range, in order; the rows before it are remembered, too.
    ///
    /// # Panics
    /// If `labels` has no such rows.
    pub fn ndcg(self, labels: &NodeLabels, rows: Range<usize>) -> Vec<f64> {
        let mut known: HashMap<u32, Vec<(u32, f32)>> = HashMap::new();
        let mut guesses = Vec::with_capacity(rows.len());
        for row in 0..rows.end {
            let guess = known.entry(labels.nodes()[row]).or_default();
            if row >= rows.start {
                guesses.push(guess.clone());
            }
            *guess = match self {
                Forecast::MovingAverage if !guess.is_empty() => averaged(guess, labels.row(row)),
                _ => labels.row(row).collect(),
            };
        }
        let scored = |(row, guess): (usize, Vec<(u32, f32)>)| {
            let mut scores = vec![0.0; labels.classes()];
            guess.iter().for_each(|&(class, score)| scores[class as usize] = score);
            ndcg(&scores, labels.row(row))
        };
        rows.into_par_iter().zip(guesses).map(scored).collect()
    }
}

/// Returns the average `(6 a + label) / 7` of two lists of classes in ascending order.
fn averaged(past: &[(u32, f32)], label: impl Iterator<Item = (u32, f32)>) -> Vec<(u32, f32)> {
    let mut both = Vec::with_capacity(past.len());
    let mut past = past.iter().copied().peekable();
    let mean = |past: f32, label: f32| (past * (WINDOW - 1.0) + label) / WINDOW;
    for (class, weight) in label {
        while let Some((other, old)) = past.next_if(|(other, _)| *other < class) {
            both.push((other, mean(old, 0.0)));
        }
        let old = past.next_if(|(other, _)| *other == class).map_or(0.0, |(_, old)| old);
        both.push((class, mean(old, weight)));
    }
    both.extend(past.map(|(class, old)| (class, mean(old, 0.0))));
    both
}

impl Scores {
    /// Returns scores that have NDCG only.
    pub fn of_ndcg(ndcg: Option<f64>) -> Self {
        Scores { ndcg, ..Scores::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use tgnn_data::ReadOptions;

    #[derive(Deserialize)]
    struct Case {
        weights: Vec<f32>,
        scores: Vec<f32>,
        ndcg: f64,
    }

    fn golden() -> Value {
        serde_json::from_str(include_str!("../../../../../tests/golden/tgb_nodes.json")).unwrap()
    }

    #[test]
    fn ndcg_equals_scikit_learns_with_ties_and_without_weights() {
        let cases: Vec<Case> = serde_json::from_value(golden()["ndcg"].clone()).unwrap();
        assert!(cases.len() >= 20);
        for Case { weights, scores, ndcg: want } in cases {
            let row = (0..).zip(weights.iter().copied()).filter(|(_, w)| *w > 0.0);
            let got = ndcg(&scores, row);
            assert!((got - want).abs() < 1e-12, "{got}, not {want}: {weights:?} {scores:?}");
        }
        assert_eq!(ndcg(&[f32::NAN, 0.0], [(0, 1.0)]), 1.0 / 3f64.log2());
        assert_eq!((ndcg(&[], []), ndcg(&[1.0], [])), (0.0, 0.0));
    }

    #[test]
    fn the_baselines_have_the_scores_of_tgbs_on_every_part() {
        for set in ["trade", "genre", "reddit", "token"] {
            let path = format!("../../tests/golden/foreign/tgbn_{set}");
            let e = tgnn_data::load(&path, &ReadOptions::default()).unwrap();
            let labels = e.node_labels.as_ref().unwrap();
            for part in ["train", "val", "test"] {
                let want = &golden()["sets"][set]["parts"][part];
                let times: Vec<i64> = serde_json::from_value(want["times"].clone()).unwrap();
                let is_here = |row: &usize| times.contains(&(labels.times()[*row] + e.origin));
                let first = (0..labels.len()).find(is_here).unwrap();
                let past = 1 + (0..labels.len()).rev().find(is_here).unwrap();
                for (forecast, name) in Forecast::ALL.into_iter().zip(["persistent", "moving"]) {
                    let values = forecast.ndcg(labels, first..past);
                    let rows = labels.at_once().filter(|rows| rows.start >= first && rows.end <= past);
                    let rows = rows.map(|rows| rows.start - first..rows.end - first);
                    let (got, want) = (mean_over_times(rows, &values, None), want[name].as_f64());
                    assert!(
                        (got.unwrap() - want.unwrap()).abs() < 1e-6,
                        "{set} {part}: {got:?}, not {want:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn times_weigh_equally_and_rows_that_are_masked_do_not_count() {
        let values = [1.0, 0.0, 0.5];
        assert_eq!(mean_over_times([0..2, 2..3], &values, None), Some(0.5));
        assert_eq!(mean_over_times([0..2, 2..3], &values, Some(&[true, false, false])), Some(1.0));
        assert_eq!(mean_over_times([0..1, 1..3], &values, Some(&[false; 3])), None);
    }
}
