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
    pub fn new(rules: usize, metrics: Metrics) -> Self {
        Rankings { metrics, ranks: Vec::new(), pairs: Vec::new(), own: vec![(0, 0, 0); rules] }
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
    /// Returns the metrics of a rule, on the events that `mask` has if there is one.
    pub fn scores(&self, rule: usize, score: impl Fn(&F) -> u64, mask: Option<&[bool]>) -> Scores {
        let curves = || {
            let scores: Vec<u64> = self.pairs.as_flattened().iter().map(&score).collect();
            // They depend on the order of all scores alone.
            let mut order = scores.clone();
            order.sort_unstable();
            order.dedup();
            let place = |score: &u64| f32::from_bits(order.partition_point(|other| other < score) as u32);
            let table: Vec<f32> = scores.iter().map(place).collect();
            Scores::from_table(&table, 2, mask)
        };
        let ranks = || {
            let of_rule: Vec<f64> = self.ranks.iter().skip(rule).step_by(self.own.len()).copied().collect();
            Scores::of_ranks(&of_rule, mask)
        };
        match self.metrics {
            Metrics::Curves => curves(),
            Metrics::Ranks => ranks(),
            Metrics::Both => Scores { mrr: ranks().mrr, hits_at_10: ranks().hits_at_10, ..curves() },
        }
    }
}
