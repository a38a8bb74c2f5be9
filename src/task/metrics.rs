//! Metrics of link prediction, over a whole split (a mean of batch metrics is another quantity).
use serde::{Deserialize, Serialize};

/// What a split scored; a figure that is not defined (no events, or not part of the protocol) is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Average precision.
    pub ap: Option<f64>,
    /// Area under the ROC curve.
    pub auc: Option<f64>,
    /// Mean reciprocal rank of the event among its candidates.
    pub mrr: Option<f64>,
}

impl Scores {
    /// Scores of a table with `candidates` columns, the event itself in column 0; `mask` picks events.
    ///
    /// With one negative an event: AP and AUC over all pairs. With more: the reciprocal rank too.
    pub fn of(table: &[f32], candidates: usize, mask: Option<&[bool]>) -> Self {
        let rows = || {
            let rows = table.chunks_exact(candidates.max(1)).enumerate();
            rows.filter(|(i, _)| mask.is_none_or(|m| m[*i])).map(|(_, row)| row)
        };
        let positive: Vec<f32> = rows().map(|r| r[0]).collect();
        let negative: Vec<f32> = rows().flat_map(|r| &r[1..]).copied().collect();
        if positive.is_empty() || negative.is_empty() {
            return Scores::default();
        }
        let (ap, auc) = curves(&positive, &negative);
        let mrr = (candidates > 2).then(|| rows().map(reciprocal_rank).sum::<f64>() / positive.len() as f64);
        Scores { ap: Some(ap), auc: Some(auc), mrr }
    }
}

/// 1 / rank of column 0, the rank being the mean of the optimistic (ties lost by others) and the pessimistic one.
fn reciprocal_rank(row: &[f32]) -> f64 {
    let above = row[1..].iter().filter(|s| s.total_cmp(&row[0]).is_gt()).count();
    let tied = row[1..].iter().filter(|s| s.total_cmp(&row[0]).is_eq()).count();
    1.0 / (1.0 + above as f64 + tied as f64 / 2.0)
}

/// Average precision and area under the ROC curve; tied scores form one threshold, as in scikit-learn.
///
/// `AP = sum_k (R_k - R_(k-1)) P_k` over the thresholds, `AUC = P(positive > negative) + P(tie) / 2`. A NaN counts
/// as the largest score. O(n log n).
fn curves(positive: &[f32], negative: &[f32]) -> (f64, f64) {
    // -0 and 0 are one score.
    let tagged = |s: &[f32], label: bool| s.iter().map(move |&x| (x + 0.0, label)).collect::<Vec<_>>();
    let mut all = tagged(positive, true);
    all.extend(tagged(negative, false));
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (p, n) = (positive.len() as f64, negative.len() as f64);
    let (mut true_positives, mut false_positives, mut ap, mut auc) = (0.0, 0.0, 0.0, 0.0);
    for tied in all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let hits = tied.iter().filter(|x| x.1).count() as f64;
        let misses = tied.len() as f64 - hits;
        auc += misses * (true_positives + hits / 2.0);
        (true_positives, false_positives) = (true_positives + hits, false_positives + misses);
        ap += hits / p * true_positives / (true_positives + false_positives);
    }
    (ap, auc / (p * n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// scikit-learn 1.9.1: average_precision_score and roc_auc_score of
    /// [.9, .8, .8, .3, .3] against [.8, .7, .3, .1, .1].
    #[test]
    fn ties_count_as_in_scikit_learn() {
        let (ap, auc) = curves(&[0.9, 0.8, 0.8, 0.3, 0.3], &[0.8, 0.7, 0.3, 0.1, 0.1]);
        assert!((ap - 0.75).abs() < 1e-12 && (auc - 0.76).abs() < 1e-12, "{ap} {auc}");
    }

    #[test]
    fn a_tie_takes_the_mean_rank_and_no_event_has_no_score() {
        assert_eq!(reciprocal_rank(&[1.0, 2.0, 1.0, 0.0]), 1.0 / 2.5);
        assert_eq!(Scores::of(&[], 2, None), Scores::default());
        assert_eq!(Scores::of(&[1.0, 0.0], 2, Some(&[false])), Scores::default());
        assert_eq!(Scores::of(&[1.0, 0.0], 2, None).mrr, None);
    }

    proptest! {
        #[test]
        fn the_area_is_the_share_of_pairs_in_order(
            p in prop::collection::vec(0u8..6, 1..30), n in prop::collection::vec(0u8..6, 1..30)
        ) {
            let to = |v: &[u8]| v.iter().map(|&x| f32::from(x)).collect::<Vec<_>>();
            let pairs = p.iter().flat_map(|a| n.iter().map(move |b| (a, b)));
            let won: f64 = pairs.map(|(a, b)| if a > b { 1.0 } else if a == b { 0.5 } else { 0.0 }).sum();
            let (ap, auc) = curves(&to(&p), &to(&n));
            prop_assert!((auc - won / (p.len() * n.len()) as f64).abs() < 1e-12);
            // The definition of AP, threshold by threshold.
            let mut want = 0.0;
            for t in 0..6u8 {
                let hits = p.iter().filter(|&&x| x == t).count() as f64;
                let tp = p.iter().filter(|&&x| x >= t).count() as f64;
                let fp = n.iter().filter(|&&x| x >= t).count() as f64;
                if hits > 0.0 { want += hits / p.len() as f64 * tp / (tp + fp); }
            }
            prop_assert!((ap - want).abs() < 1e-12);
        }
    }
}
