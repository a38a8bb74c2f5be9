//! Metrics of classification into sets of classes, over a whole split.
//!
//! Every pair of an event and a class is one decision, and the metrics are micro-averages: each decision has
//! the same weight, so a rare class contributes little. AP and AUC depend on the order of the logits only: a
//! model whose logits are all too low, as happens if few pairs are positive, loses nothing. F1 counts the
//! pairs with a logit above 0 and suffers from low logits; `positive_weight` of
//! [`label_loss`](tgnn::ops::label_loss) raises them.
use super::metrics::{Curves, Scores, chance_of_first};

impl Scores {
    /// Computes the metrics of `rows`. A row holds the logits of an event, one per class, and the classes the
    /// event has.
    ///
    /// F1 equals scikit-learn's `f1_score(average="micro")`; AP and AUC equal its `average_precision_score`
    /// and `roc_auc_score`, with ties handled as in [`metrics`](super::metrics). NaN logits rank last. Takes
    /// O(n log n) time for n pairs of an event and a class.
    pub fn of_classes<'a>(rows: impl IntoIterator<Item = (&'a [f32], &'a [u32])>) -> Self {
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        let (mut correct, mut single_class, mut events) = (0.0, true, 0);
        for (row, set) in rows {
            for (c, &logit) in (0..).zip(row) {
                if set.contains(&c) { positive.push(logit) } else { negative.push(logit) }
            }
            match set {
                &[class] if row.len() > 1 => correct += chance_of_first(row, class as usize),
                _ => single_class = false,
            }
            events += 1;
        }
        if events == 0 {
            return Scores::default();
        }
        let above_zero = |logits: &[f32]| logits.iter().filter(|&&logit| logit > 0.0).count();
        let true_positives = above_zero(&positive);
        let predicted = true_positives + above_zero(&negative);
        let has_both = !positive.is_empty() && !negative.is_empty();
        let curves = has_both.then(|| Curves::new(&positive, &negative));
        Scores {
            ap: curves.as_ref().map(|c| c.average_precision),
            auc: curves.as_ref().map(|c| c.area),
            f1: Some(2.0 * true_positives as f64 / (predicted + positive.len()).max(1) as f64),
            accuracy: single_class.then(|| correct / f64::from(events)),
            ..Scores::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use tgnn_data::Classes;

    fn scores_of<'a>(logits: &'a [f32], classes: usize, sets: impl IntoIterator<Item = &'a [u32]>) -> Scores {
        Scores::of_classes(logits.chunks_exact(classes).zip(sets))
    }

    #[derive(Deserialize)]
    struct Golden {
        labels: Vec<Case>,
    }

    /// Logits, sets of classes, and scikit-learn's metrics for them.
    #[derive(Deserialize)]
    struct Case {
        classes: usize,
        logits: Vec<f32>,
        sets: Vec<Vec<u32>>,
        #[serde(flatten)]
        want: Scores,
    }

    #[test]
    fn every_metric_equals_scikit_learn_including_ties_and_empty_sets() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../../../tests/golden/metrics.json")).unwrap();
        assert!(golden.labels.len() > 10);
        for c in golden.labels {
            let got = scores_of(&c.logits, c.classes, c.sets.iter().map(Vec::as_slice));
            let pairs = [
                (got.ap, c.want.ap),
                (got.auc, c.want.auc),
                (got.f1, c.want.f1),
                (got.accuracy, c.want.accuracy),
            ];
            for (got, want) in pairs {
                let near = got.zip(want).is_some_and(|(a, b)| (a - b).abs() < 1e-14);
                assert!(near || (got, want) == (None, None), "{:?}: {got:?}, not {want:?}", c.sets);
            }
        }
    }

    #[test]
    fn no_events_have_no_scores_and_a_nan_logit_predicts_no() {
        assert_eq!(scores_of(&[], 3, []), Scores::default());
        let bad = scores_of(&[f32::NAN, -1.0, -2.0, f32::NAN], 2, [&[0][..], &[0]]);
        assert_eq!((bad.auc, bad.f1, bad.accuracy), (Some(0.375), Some(0.0), Some(0.5)));
    }

    #[test]
    fn the_class_sets_of_an_event_stream_can_be_scored_directly() {
        let sets = Classes::new(3, 2, vec![2, 0, tgnn::runtime::NONE, 1]).unwrap();
        let scores = scores_of(&[1.0, -1.0, 2.0, -3.0, 0.5, -1.0], 3, (0..2).map(|i| sets.get(i)));
        let perfect =
            Scores { ap: Some(1.0), auc: Some(1.0), f1: Some(1.0), accuracy: None, ..Scores::default() };
        assert_eq!(scores, perfect);
    }
}
