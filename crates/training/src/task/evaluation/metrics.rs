//! Metrics of link prediction, computed over a whole part (a mean of metrics of batches is a different
//! quantity).
//!
//! Ties are never broken by position. For AP and AUC, tied scores form one threshold, as in scikit-learn; for
//! ranks, the event gets the mean of the best and the worst rank among its ties. NaN ranks last, tied with
//! minus infinity: a model that outputs NaN scores no better than chance, and causes no error.
use crate::task::config::TaskName;
use serde::{Deserialize, Serialize};

/// The metrics of a part of the data. A metric is `None` if it is not defined: there are no events, or the
/// protocol does not use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scores {
    /// Average precision.
    pub ap: Option<f64>,
    /// Area under the ROC curve.
    pub auc: Option<f64>,
    /// Mean reciprocal rank of the event among its candidates.
    pub mrr: Option<f64>,
    /// Fraction of the events that rank among the first ten of their candidates.
    pub hits_at_10: Option<f64>,
    /// For classes: `2 TP / (2 TP + FP + FN)` over all pairs of an event and a class, where a logit above 0
    /// predicts the class; 0 if no pair is positive and none is predicted.
    pub f1: Option<f64>,
    /// For classes, if every event has exactly one class and there are several: fraction of the events whose
    /// class has the highest logit. If `k` classes tie for the highest logit, the event counts `1 / k`.
    pub accuracy: Option<f64>,
    /// For labels of nodes: NDCG@10, mean over times of the means over nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndcg: Option<f64>,
    /// For values: mean absolute error, in the units of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// For values: root of the mean squared error, in the units of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
}

impl Scores {
    /// Returns the metric by which epochs are compared; higher is better. For links it is MRR if defined,
    /// else AP; for classes of nodes AUC; for classes of events AP; for labels of nodes
    /// NDCG; for values the negated RMSE.
    pub fn figure(&self, task: TaskName) -> Option<f64> {
        match task {
            TaskName::Link => self.mrr.or(self.ap),
            TaskName::Node => self.auc,
            TaskName::Edge => self.ap,
            TaskName::Regression => self.rmse.map(|e| -e),
            TaskName::Property => self.ndcg,
        }
    }
}

impl Scores {
    /// Returns every metric with its name.
    pub fn named(&self) -> [(&'static str, Option<f64>); 9] {
        [
            ("AP", self.ap),
            ("AUC", self.auc),
            ("MRR", self.mrr),
            ("hits@10", self.hits_at_10),
            ("F1", self.f1),
            ("accuracy", self.accuracy),
            ("NDCG@10", self.ndcg),
            ("MAE", self.mae),
            ("RMSE", self.rmse),
        ]
    }
}

/// The lowest rank that counts as a hit.
const HIT: f64 = 10.0;

impl Scores {
    /// Computes the metrics of a table of scores `[events, candidates]`, with the event itself in column 0.
    /// If there is a `mask`, only events for which it is true count.
    ///
    /// With one negative per event, these are AP and AUC over all pairs; with more, also MRR and hits.
    pub fn from_table(table: &[f32], candidates: usize, mask: Option<&[bool]>) -> Self {
        let rows = picked(table.chunks_exact(candidates.max(1)), mask);
        Self::of_rows(rows, candidates > 2)
    }
    /// Computes the metrics as [`from_table`](Self::from_table) does, but each event has its own number of
    /// candidates: event `i` has the first `counts[i]` columns, including itself; the other columns are
    /// ignored. MRR and hits are always computed; an event without negatives has rank 1. Rows beyond the end
    /// of `counts` are ignored, and counts are clamped to `1..=candidates`.
    ///
    /// MRR and hits equal those of TGB's `Evaluator`, but are computed in f64.
    pub fn of_lists(table: &[f32], candidates: usize, counts: &[u32], mask: Option<&[bool]>) -> Self {
        let width = candidates.max(1);
        let rows =
            table.chunks_exact(width).zip(counts).map(|(row, &n)| &row[..(n as usize).clamp(1, width)]);
        Self::of_rows(picked(rows, mask), true)
    }
    /// Computes the metrics as [`from_table`](Self::from_table) does, but AP and AUC use only the event and
    /// its first negative, so that they do not depend on the number of negatives.
    pub fn of_candidates(table: &[f32], candidates: usize, mask: Option<&[bool]>) -> Self {
        let first: Vec<f32> = table
            .chunks_exact(candidates.max(1))
            .flat_map(|row| &row[..candidates.min(2)])
            .copied()
            .collect();
        let ranks = Self::from_table(table, candidates, mask);
        Scores {
            mrr: ranks.mrr,
            hits_at_10: ranks.hits_at_10,
            ..Self::from_table(&first, candidates.min(2), mask)
        }
    }
    /// Computes MRR and hits from the rank of each event among its candidates.
    pub(super) fn of_ranks(ranks: &[f64], mask: Option<&[bool]>) -> Self {
        let ranks: Vec<f64> = picked(ranks.iter(), mask).copied().collect();
        let mean = |value: fn(f64) -> f64| {
            (!ranks.is_empty())
                .then(|| ranks.iter().map(|&rank| value(rank)).sum::<f64>() / ranks.len() as f64)
        };
        Scores {
            mrr: mean(f64::recip),
            hits_at_10: mean(|rank| f64::from(u8::from(rank <= HIT))),
            ..Scores::default()
        }
    }
    /// Computes MAE and RMSE from pairs of a predicted and a true value. Pairs whose true value is NaN
    /// (unknown) are skipped. Errors are multiplied by `unit`, which converts them to the units of the data.
    pub fn of_values(pairs: impl Iterator<Item = (f32, f32)>, unit: f64) -> Self {
        let (mut n, mut absolute, mut squared) = (0u64, 0.0, 0.0);
        for (predicted, truth) in pairs.filter(|(_, truth)| !truth.is_nan()) {
            let error = (f64::from(predicted) - f64::from(truth)).abs() * unit;
            (n, absolute, squared) = (n + 1, absolute + error, squared + error * error);
        }
        let mean = |sum: f64| (n > 0).then(|| sum / n as f64);
        Scores { mae: mean(absolute), rmse: mean(squared).map(f64::sqrt), ..Scores::default() }
    }
    fn of_rows<'a>(rows: impl Iterator<Item = &'a [f32]> + Clone, ranked: bool) -> Self {
        let positive: Vec<f32> = rows.clone().map(|r| r[0]).collect();
        let negative: Vec<f32> = rows.clone().flat_map(|r| &r[1..]).copied().collect();
        if positive.is_empty() || negative.is_empty() {
            return Scores::default();
        }
        let curves = Curves::new(&positive, &negative);
        let mean_over_ranks = |value: fn(f64) -> f64| {
            ranked.then(|| rows.clone().map(|r| value(rank(r))).sum::<f64>() / positive.len() as f64)
        };
        Scores {
            ap: Some(curves.average_precision),
            auc: Some(curves.area),
            mrr: mean_over_ranks(f64::recip),
            hits_at_10: mean_over_ranks(|rank| f64::from(u8::from(rank <= HIT))),
            ..Scores::default()
        }
    }
}

/// Returns the rows for which `mask` is true, or all rows if there is no mask. Rows beyond the end of the
/// mask are left out.
fn picked<T>(
    rows: impl Iterator<Item = T> + Clone,
    mask: Option<&[bool]>,
) -> impl Iterator<Item = T> + Clone {
    rows.enumerate().filter(move |(i, _)| mask.is_none_or(|m| m.get(*i) == Some(&true))).map(|(_, row)| row)
}

/// Returns the average precision, `sum_k (R_k - R_(k-1)) P_k` over the unique scores from high to low, where
/// `R_k` and `P_k` are the recall and the precision of all pairs that score at least as high; NaN if there is
/// no positive.
///
/// Equals scikit-learn's `average_precision_score`. Takes O(n log n) time.
pub fn average_precision(positive: &[f32], negative: &[f32]) -> f64 {
    Curves::new(positive, negative).average_precision
}

/// Returns the area under the ROC curve: the fraction of pairs of a positive and a negative in which the
/// positive scores higher, where a tie counts one half; NaN if there is no pair.
///
/// Equals scikit-learn's `roc_auc_score`. Takes O(n log n) time.
pub fn roc_auc(positive: &[f32], negative: &[f32]) -> f64 {
    Curves::new(positive, negative).area
}

/// Returns the mean of 1 / rank of column 0 over rows of `candidates` scores; NaN if there is no row. Among
/// ties, the rank is the mean of the optimistic and the pessimistic rank. Scores after the last whole row are
/// ignored.
pub fn mean_reciprocal_rank(scores: &[f32], candidates: usize) -> f64 {
    let rows = scores.chunks_exact(candidates.max(1));
    let n = rows.len() as f64;
    rows.map(|row| rank(row).recip()).sum::<f64>() / n
}

/// Returns an integer that orders scores as this module ranks them; ties have equal keys.
fn key(score: f32) -> u32 {
    // Adding 0 turns -0 into 0, so that the two tie.
    let score = if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 };
    let bits = score.to_bits();
    // The bits of positive floats are ordered like integers; those of negative floats are in reverse order
    // and must come before all positive ones.
    bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 }
}

/// Returns the probability that column `c` ranks first in a row if ties are broken at random: 1 over the
/// number of columns with the highest score if `c` is one of them, else 0.
pub(super) fn chance_of_first(row: &[f32], c: usize) -> f64 {
    let highest = row.iter().map(|&s| key(s)).max();
    match row.get(c).map(|&s| key(s)) {
        score if score == highest => {
            1.0 / row.iter().filter(|&&s| Some(key(s)) == highest).count().max(1) as f64
        }
        _ => 0.0,
    }
}

/// Returns the rank of each column, from 1: the mean of the best and the worst rank among its ties.
pub(in crate::task) fn ranks(row: &[f32]) -> Vec<f64> {
    let mut keys: Vec<u32> = row.iter().map(|&score| key(score)).collect();
    keys.sort_unstable();
    let rank = |&score: &f32| {
        let not_above = keys.partition_point(|&other| other <= key(score));
        let below = keys.partition_point(|&other| other < key(score));
        // `keys.len() - not_above` are above; `not_above - below` tie, itself among them.
        1.0 + (keys.len() - not_above) as f64 + (not_above - below - 1) as f64 / 2.0
    };
    row.iter().map(rank).collect()
}

/// Returns the rank of column 0, from 1: the mean of the best and the worst rank among its ties.
fn rank(row: &[f32]) -> f64 {
    let event = key(row[0]);
    let (mut above, mut tied) = (0, 0);
    for &s in &row[1..] {
        above += usize::from(key(s) > event);
        tied += usize::from(key(s) == event);
    }
    1.0 + above as f64 + tied as f64 / 2.0
}

/// The two metrics that need sorted scores.
pub(super) struct Curves {
    pub average_precision: f64,
    /// Area under the ROC curve.
    pub area: f64,
}

impl Curves {
    pub(super) fn new(positive: &[f32], negative: &[f32]) -> Self {
        // The key takes care of ties, zeros and NaN; the lowest bit holds the label.
        let tagged = |s: &[f32], label: u64| s.iter().map(move |&x| u64::from(key(x)) << 1 | label).collect();
        let mut all: Vec<u64> = tagged(positive, 1);
        all.extend::<Vec<u64>>(tagged(negative, 0));
        all.sort_unstable_by(|a, b| b.cmp(a));
        // Numbers of positives and negatives that score at least as high. The counts are exact, and so is the
        // f64 of the sum of half pairs below 2^53.
        let (mut hits, mut misses, mut half_pairs) = (0, 0, 0u128);
        let mut sum = 0.0;
        for tied in all.chunk_by(|a, b| a >> 1 == b >> 1) {
            let new_hits = tied.iter().filter(|&&x| x & 1 == 1).count();
            let new_misses = tied.len() - new_hits;
            half_pairs += new_misses as u128 * (2 * hits + new_hits) as u128;
            hits += new_hits;
            misses += new_misses;
            sum += new_hits as f64 * (hits as f64 / (hits + misses) as f64);
        }
        let (p, n) = (positive.len() as f64, negative.len() as f64);
        Curves { average_precision: sum / p, area: half_pairs as f64 / 2.0 / (p * n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Deserialize)]
    struct Golden {
        cases: Vec<Case>,
    }

    /// A table of scores, and the metrics that scikit-learn and SciPy compute for it.
    #[derive(Deserialize)]
    struct Case {
        candidates: usize,
        table: Vec<f32>,
        ap: f64,
        auc: f64,
        mrr: f64,
    }

    fn split(table: &[f32], candidates: usize) -> (Vec<f32>, Vec<f32>) {
        let rows = || table.chunks_exact(candidates);
        (rows().map(|r| r[0]).collect(), rows().flat_map(|r| &r[1..]).copied().collect())
    }

    #[test]
    fn every_metric_equals_scikit_learn_including_ties() -> Result<(), serde_json::Error> {
        let golden: Golden = serde_json::from_str(include_str!("../../../../../tests/golden/metrics.json"))?;
        assert!(golden.cases.len() > 10);
        for c in golden.cases {
            let (positive, negative) = split(&c.table, c.candidates);
            let got = [
                average_precision(&positive, &negative),
                roc_auc(&positive, &negative),
                mean_reciprocal_rank(&c.table, c.candidates),
            ];
            for (got, want) in got.into_iter().zip([c.ap, c.auc, c.mrr]) {
                assert!((got - want).abs() < 1e-14, "{:?}: {got} against {want}", c.table);
            }
            let scores = Scores::from_table(&c.table, c.candidates, None);
            let mrr = (c.candidates > 2).then_some(got[2]);
            assert_eq!(
                scores,
                Scores {
                    ap: Some(got[0]),
                    auc: Some(got[1]),
                    mrr,
                    hits_at_10: scores.hits_at_10,
                    ..Scores::default()
                }
            );
            assert_eq!(scores.hits_at_10.is_some(), mrr.is_some());
        }
        Ok(())
    }

    /// The scores of lists of candidates of any length, and TGB's MRR and hits for each list.
    #[derive(Deserialize)]
    struct Lists {
        lists: Vec<Vec<f32>>,
        mrr: Vec<f64>,
        hits: Vec<f64>,
    }

    #[test]
    fn metrics_of_lists_of_any_length_equal_those_of_tgb() -> Result<(), Box<dyn std::error::Error>> {
        #[derive(Deserialize)]
        struct Golden {
            cases: Vec<Lists>,
        }
        let golden: Golden = serde_json::from_str(include_str!("../../../../../tests/golden/tgb.json"))?;
        assert!(golden.cases.len() > 5);
        for Lists { lists, mrr, hits } in golden.cases {
            let width = lists.iter().map(Vec::len).max().unwrap_or(0) + 1;
            let counts: Vec<u32> = lists.iter().map(|l| l.len() as u32).collect();
            let row = |l: &Vec<f32>| [&l[..], &vec![f32::NAN; width - l.len()]].concat();
            let table: Vec<f32> = lists.iter().flat_map(row).collect();
            let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
            let of_all_lists = Scores::of_lists(&table, width, &counts, None);
            for i in 0..lists.len() {
                let only: Vec<bool> = (0..lists.len()).map(|j| i == j).collect();
                let one = Scores::of_lists(&table, width, &counts, Some(&only));
                if counts[i] == 1 {
                    assert_eq!(
                        (one, mrr[i], hits[i]),
                        (Scores::default(), 1.0, 1.0),
                        "no negative to rank against"
                    );
                    continue;
                }
                // TGB divides in f32, where half ranks are exact up to 2^23, so our f64 rounded to f32 equals
                // its result.
                assert_eq!((one.mrr.map(|x| x as f32), one.hits_at_10), (Some(mrr[i] as f32), Some(hits[i])));
            }
            let off = (of_all_lists.mrr.ok_or("no rank")? - mean(&mrr)).abs();
            assert!(off <= f64::from(f32::EPSILON) / 2.0, "{off:e}");
            assert_eq!(of_all_lists.hits_at_10, Some(mean(&hits)));
        }
        Ok(())
    }

    #[test]
    fn full_lists_score_like_the_table_and_columns_beyond_a_list_are_ignored() {
        let table = [0.9, 0.1, 0.2, 0.8, 0.9, 0.7, 0.3, 0.4, 0.5];
        assert_eq!(Scores::of_lists(&table, 3, &[3; 3], None), Scores::from_table(&table, 3, None));
        assert_eq!(Scores::of_lists(&table, 3, &[9; 3], None), Scores::from_table(&table, 3, None));
        let cut = Scores::of_lists(&table, 3, &[3, 2, 0], None);
        let other = [0.9, 0.1, 0.2, 0.8, 0.9, f32::NAN, 0.3, 7.0, f32::NAN];
        assert_eq!(Scores::of_lists(&other, 3, &[3, 2, 1], None), cut);
        assert_eq!(cut.mrr, Some((1.0 + 0.5 + 1.0) / 3.0));
        // Of the three negatives, 0.9 beats 2.5 (one tie), 0.8 and 0.3 beat 2 each.
        assert_eq!((cut.auc, cut.hits_at_10), (Some((2.5 + 2.0 + 2.0) / 9.0), Some(1.0)));
        assert_eq!(Scores::of_lists(&table, 3, &[3], None), Scores::from_table(&table[..3], 3, None));
        assert_eq!(Scores::of_lists(&table, 3, &[1; 3], None), Scores::default());
    }

    #[test]
    fn a_hit_is_an_event_whose_mean_rank_is_at_most_10() {
        let hits = |above: usize, tied: usize| {
            let row: Vec<f32> = [vec![0.0], vec![1.0; above], vec![0.0; tied], vec![-1.0; 20]].concat();
            Scores::from_table(&row, row.len(), None).hits_at_10
        };
        assert_eq!(
            [hits(9, 0), hits(10, 0), hits(9, 1), hits(8, 2)],
            [Some(1.0), Some(0.0), Some(0.0), Some(1.0)]
        );
    }

    #[test]
    fn a_tie_takes_the_mean_rank() {
        assert_eq!(mean_reciprocal_rank(&[1.0, 2.0, 1.0, 0.0], 4), 1.0 / 2.5);
        assert_eq!(mean_reciprocal_rank(&[0.0, -0.0, 1.0, 0.0], 2), (1.0 / 1.5 + 1.0) / 2.0);
    }

    #[test]
    fn empty_input_has_no_scores() {
        assert_eq!(Scores::from_table(&[], 2, None), Scores::default());
        assert_eq!(Scores::from_table(&[1.0, 0.0], 2, Some(&[false])), Scores::default());
        assert_eq!(Scores::from_table(&[1.0], 1, None), Scores::default());
        assert!(average_precision(&[], &[1.0]).is_nan());
        assert!(roc_auc(&[1.0], &[]).is_nan());
        assert!(mean_reciprocal_rank(&[], 2).is_nan());
    }

    #[test]
    fn nan_ranks_last_whatever_its_sign() {
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!(mean_reciprocal_rank(&[nan, -1e30, 0.0], 3), 1.0 / 3.0);
            assert_eq!(roc_auc(&[nan], &[f32::MIN, nan, f32::NEG_INFINITY]), 1.0 / 3.0);
            assert_eq!(roc_auc(&[nan; 3], &[nan; 5]), 0.5);
            assert_eq!(average_precision(&[0.0, nan], &[1.0, nan]), 0.5);
        }
    }

    #[test]
    fn a_mask_picks_events_and_events_beyond_its_end_do_not_count() {
        let table = [0.9, 0.1, 0.2, 0.8, 0.7, 0.3];
        let all = Scores::from_table(&[0.9, 0.1, 0.7, 0.3], 2, None);
        assert_eq!(Scores::from_table(&table, 2, Some(&[true, false, true])), all);
        assert_eq!(Scores::from_table(&table, 2, Some(&[true])), Scores::from_table(&table[..2], 2, None));
    }

    proptest! {
        /// Compares with the definitions, pair by pair and threshold by threshold. There are few unique
        /// scores, so there are many ties.
        #[test]
        fn sorting_and_counting_give_the_same_metrics(
            p in prop::collection::vec(-3i8..4, 1..40), n in prop::collection::vec(-3i8..4, 1..40)
        ) {
            let to = |v: &[i8]| v.iter().map(|&x| f32::from(x)).collect::<Vec<_>>();
            let pairs = p.iter().flat_map(|a| n.iter().map(move |b| (a, b)));
            let won: f64 = pairs.map(|(a, b)| if a > b { 1.0 } else if a == b { 0.5 } else { 0.0 }).sum();
            prop_assert!((roc_auc(&to(&p), &to(&n)) - won / (p.len() * n.len()) as f64).abs() < 1e-12);
            let count = |v: &[i8], t| v.iter().filter(|&&x| x >= t).count() as f64;
            let precision = |&t: &i8| count(&p, t) / (count(&p, t) + count(&n, t));
            let want = p.iter().map(precision).sum::<f64>() / p.len() as f64;
            prop_assert!((average_precision(&to(&p), &to(&n)) - want).abs() < 1e-12);
        }
        /// The rank does not depend on the order of the negatives in the row.
        #[test]
        fn the_rank_of_an_event_is_the_mean_of_its_best_and_worst_rank(
            row in prop::collection::vec(-3i8..4, 2..20)
        ) {
            let above = row[1..].iter().filter(|&&x| x > row[0]).count();
            let not_below = row[1..].iter().filter(|&&x| x >= row[0]).count();
            let rank = ((1 + above) as f64 + (1 + not_below) as f64) / 2.0;
            let scores: Vec<f32> = row.iter().map(|&x| f32::from(x)).collect();
            prop_assert!((mean_reciprocal_rank(&scores, row.len()) - 1.0 / rank).abs() < 1e-15);
        }
        #[test]
        fn keys_are_ordered_like_the_numbers_themselves(a in any::<f32>(), b in any::<f32>()) {
            prop_assert_eq!(a.partial_cmp(&b), Some(key(a).cmp(&key(b))));
        }
    }
}
