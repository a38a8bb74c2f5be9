//! Metrics of classification into sets of classes, over a whole split.
//!
//! Every pair of an event and a class is one decision; figures are over all of them alike ("micro"), so that a rare class
//! counts as little as it occurs. AP and AUC look at the order of the logits alone: a model whose logits are all too low, as
//! happens where few pairs are in the sets, scores as well as if they were not. F1 counts the pairs with a logit above 0, and
//! does not forgive that: `positive_weight` of [`label_loss`](crate::ops::label_loss) is what moves it.
use super::metrics::{Curves, Scores, chance_of_first};

impl Scores {
    /// Scores of events: the logits of each, one a class, and its set of classes.
    ///
    /// F1 equals scikit-learn's `f1_score(average="micro")`; AP and AUC its `average_precision_score` and `roc_auc_score`, ties
    /// as in [`metrics`](super::metrics). A logit that is not a number ranks last. O(n log n) in the number of pairs.
    pub fn of_classes<'a>(rows: impl IntoIterator<Item = (&'a [f32], &'a [u32])>) -> Self {
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        let (mut first, mut single, mut events) = (0.0, true, 0);
        for (row, set) in rows {
            for (c, &logit) in (0..).zip(row) {
                if set.contains(&c) { positive.push(logit) } else { negative.push(logit) }
            }
            match set {
                &[class] if row.len() > 1 => first += chance_of_first(row, class as usize),
                _ => single = false,
            }
            events += 1;
        }
        if events == 0 {
            return Scores::default();
        }
        let yes = |logits: &[f32]| logits.iter().filter(|&&x| x > 0.0).count();
        let (hits, said, are) = (yes(&positive), yes(&positive) + yes(&negative), positive.len());
        let both = !positive.is_empty() && !negative.is_empty();
        let curves = both.then(|| Curves::of(&positive, &negative));
        Scores {
            ap: curves.as_ref().map(|c| c.average_precision),
            auc: curves.as_ref().map(|c| c.area),
            f1: Some(2.0 * hits as f64 / (said + are).max(1) as f64),
            accuracy: single.then(|| first / f64::from(events)),
            ..Scores::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Classes;
    use serde::Deserialize;

    fn of<'a>(logits: &'a [f32], classes: usize, sets: impl IntoIterator<Item = &'a [u32]>) -> Scores {
        Scores::of_classes(logits.chunks_exact(classes).zip(sets))
    }

    #[derive(Deserialize)]
    struct Golden {
        labels: Vec<Case>,
    }

    /// A table, the sets, and what scikit-learn makes of it.
    #[derive(Deserialize)]
    struct Case {
        classes: usize,
        logits: Vec<f32>,
        sets: Vec<Vec<u32>>,
        #[serde(flatten)]
        want: Scores,
    }

    #[test]
    fn every_figure_equals_the_one_of_scikit_learn_ties_and_empty_sets_included() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../tests/golden/metrics.json")).unwrap();
        assert!(golden.labels.len() > 10);
        for c in golden.labels {
            let got = of(&c.logits, c.classes, c.sets.iter().map(Vec::as_slice));
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
    fn nothing_to_score_has_no_score_and_a_logit_that_is_not_a_number_says_no() {
        assert_eq!(of(&[], 3, []), Scores::default());
        let bad = of(&[f32::NAN, -1.0, -2.0, f32::NAN], 2, [&[0][..], &[0]]);
        assert_eq!((bad.auc, bad.f1, bad.accuracy), (Some(0.375), Some(0.0), Some(0.5)));
    }

    #[test]
    fn sets_of_a_stream_score_as_they_are() {
        let sets = Classes::new(3, 2, vec![2, 0, crate::runtime::NONE, 1]).unwrap();
        let scores = of(&[1.0, -1.0, 2.0, -3.0, 0.5, -1.0], 3, (0..2).map(|i| sets.of(i)));
        let perfect =
            Scores { ap: Some(1.0), auc: Some(1.0), f1: Some(1.0), accuracy: None, ..Scores::default() };
        assert_eq!(scores, perfect);
    }
}
