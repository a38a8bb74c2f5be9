//! What metrics need of the scores of rules on the events of a part.
use crate::task::evaluation::Scores;

/// The metrics of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum Metrics {
    /// AP and AUC, of each event and its first negative.
    Curves,
    /// MRR and hits@10, among all negatives.
    Ranks,
    Both,
}

/// The ranks of events by several rules, and what each rule scores a pair by, `F`.
pub(super) struct Rankings<F> {
    metrics: Metrics,
    /// By event and rule, the rank among the candidates: the mean of the best and the worst one if some tie.
    /// Empty if the metrics need no ranks.
    pub ranks: Vec<f64>,
    /// Of each event and its first negative. Empty if the metrics need no curves.
    pairs: Vec<[F; 2]>,
    /// For each rule, the score of the event at hand, and how many candidates are above it or tie.
    own: Vec<(u64, u32, u32)>,
}

impl<F: Copy> Rankings<F> {
    /// Makes room for so many events.
    pub fn new(rules: usize, metrics: Metrics, events: usize) -> Self {
        let [ranked, curved] = [metrics != Metrics::Curves, metrics != Metrics::Ranks].map(usize::from);
        let ranks = Vec::with_capacity(ranked * events * rules);
        let pairs = Vec::with_capacity(curved * events);
        Rankings { metrics, ranks, pairs, own: vec![(0, 0, 0); rules] }
    }
    /// Returns the most bytes of the rankings of so many events, with what the scores of a rule take.
    pub fn bytes(rules: usize, metrics: Metrics, events: usize) -> usize {
        let [ranked, curved] = [metrics != Metrics::Curves, metrics != Metrics::Ranks].map(usize::from);
        // A score and a place of the event and of its negative, and then two numbers of each.
        let of_curves = size_of::<[F; 2]>() + 2 * (size_of::<(u64, u32)>() + size_of::<f32>()) + 8;
        events * (ranked * (rules + 1) * size_of::<f64>() + curved * of_curves)
    }
    /// Adds an event: `candidates` are itself and then its negatives; `score` returns a number with the order
    /// of a rule's scores.
    pub fn add(&mut self, mut candidates: impl Iterator<Item = F>, score: impl Fn(usize, &F) -> u64) {
        let Some(event) = candidates.next() else { return };
        let mut first = None;
        if self.metrics == Metrics::Curves {
            first = candidates.next();
        } else {
            self.own.iter_mut().enumerate().for_each(|(rule, own)| *own = (score(rule, &event), 0, 0));
            for other in candidates {
                for (rule, (own, above, ties)) in self.own.iter_mut().enumerate() {
                    let score = score(rule, &other);
                    *above += u32::from(score > *own);
                    *ties += u32::from(score == *own);
                }
                first.get_or_insert(other);
            }
            let rank = |&(_, above, ties): &(u64, u32, u32)| 1.0 + f64::from(above) + f64::from(ties) / 2.0;
            self.ranks.extend(self.own.iter().map(rank));
        }
        if self.metrics != Metrics::Ranks {
            self.pairs.push([event, first.unwrap_or(event)]);
        }
    }
    /// Returns the metrics of a rule: on all events, and on those that each mask has.
    pub fn scores<const N: usize>(
        &self,
        rule: usize,
        score: impl Fn(&F) -> u64,
        masks: [Option<&[bool]>; N],
    ) -> [Scores; N] {
        let table = places(self.pairs.as_flattened().iter().map(score));
        let ranks: Vec<f64> = self.ranks.iter().skip(rule).step_by(self.own.len()).copied().collect();
        masks.map(|mask| {
            let curves = || Scores::from_table(&table, 2, mask);
            let ranks = || Scores::of_ranks(&ranks, mask);
            match self.metrics {
                Metrics::Curves => curves(),
                Metrics::Ranks => ranks(),
                Metrics::Both => Scores { mrr: ranks().mrr, hits_at_10: ranks().hits_at_10, ..curves() },
            }
        })
    }
}

/// Returns numbers of f32 with the order of `scores`, on which alone curves depend.
fn places(scores: impl Iterator<Item = u64>) -> Vec<f32> {
    let mut order: Vec<(u64, u32)> = scores.zip(0..).collect();
    order.sort_unstable();
    let (mut table, mut place) = (vec![0.0; order.len()], 0);
    for (i, &(score, at)) in order.iter().enumerate() {
        place += u32::from(i > 0 && order[i - 1].0 < score);
        table[at as usize] = f32::from_bits(place);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_order_and_the_ties_of_the_scores() {
        let scores = [7, 0, u64::MAX, 7, 1 << 40, 0];
        assert_eq!(
            places(scores.into_iter()).into_iter().map(f32::to_bits).collect::<Vec<_>>(),
            [1, 0, 3, 1, 2, 0]
        );
        assert!(places(std::iter::empty()).is_empty());
    }
}
