//! Rules that learn nothing, and score a pair by what has happened lately or often.
//!
//! A rule scores the pair (u, v) by the events before the batch. The order of its ends does not matter.
//!
//! | rule | score |
//! | --- | --- |
//! | local recency | the number of the pair's latest event |
//! | local popularity | how many events the pair has |
//! | global recency | the number of v's latest event |
//! | global popularity | how many events v has |
//! | local ..., then global ... | the first; the second decides among pairs that tie, as all new pairs do |
//! | PopTrack | how many events v is the destination of; each counts less with every batch that follows |
//! | t-CoMem | 0.8 c / (1 + c) for c events of the pair, and the activity of u |
//!
//! If the events of a batch have no order, as those of a snapshot, their number is that of the batch.
//!
//! The activity of u is the sum of `exp(-(t - s) / w) sigmoid(p)` over u's last 100 events as a source that
//! are not older than w: s is the time of the event, t that of the query, p the number of events of the other
//! end, and w is 15 % of the time since the first event. It is the same for all candidates of a source. The
//! decay of PopTrack is the one of [`DECAYS`] that is best on the validation part.
//!
//! Sources: the combinations of local and global rules, "LocalGlobal" on the leaderboards of TGB (PMLR 296,
//! 2025). PopTrack: Daniluk and Dabrowski, "Temporal graph models fail to capture global temporal dynamics",
//! 2023. t-CoMem: Kondrup, "Base3: a simple interpolation-based ensemble method for robust dynamic link
//! prediction", 2025, with a sigmoid of the popularity as in the library TGM, which counts it by destination
//! only.
use super::{Pair, Scores, TestScores};
use std::{cell::LazyCell, collections::HashMap, ops::Range};
use tgnn_data::Events;

/// The factors by which an event counts less with every batch, of which PopTrack takes the best.
const DECAYS: [f64; 8] = [0.36, 0.6, 0.8, 0.9, 0.94, 0.97, 0.99, 0.997];
/// Number of a source's events that t-CoMem looks at.
const RECENT: usize = 100;
/// The part of the time since the first event that t-CoMem looks at.
const WINDOW: f64 = 0.15;
/// The weight of a pair's own events in t-CoMem.
const OWN: f64 = 0.8;

/// What a local or global rule compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Recency,
    Popularity,
}

impl By {
    const ALL: [By; 2] = [By::Recency, By::Popularity];
    fn name(self) -> &'static str {
        match self {
            By::Recency => "recency",
            By::Popularity => "popularity",
        }
    }
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// The pair first, then the candidate.
    Counts {
        local: Option<By>,
        global: Option<By>,
    },
    /// Its number among the decays.
    PopTrack(usize),
    CoMemory,
}

impl Rule {
    /// Returns all rules, with the PopTrack of this decay.
    fn all(decay: usize) -> Vec<Rule> {
        let local = By::ALL.map(|by| Rule::Counts { local: Some(by), global: None });
        let global = By::ALL.map(|by| Rule::Counts { local: None, global: Some(by) });
        let both = |local| By::ALL.map(|global| Rule::Counts { local: Some(local), global: Some(global) });
        let both = By::ALL.into_iter().flat_map(both);
        let others = [Rule::PopTrack(decay), Rule::CoMemory];
        local.into_iter().chain(global).chain(both).chain(others).collect()
    }
    fn name(self) -> String {
        let part = |what, by: Option<By>| by.map(|by| format!("{what} {}", by.name()));
        match self {
            Rule::Counts { local, global } => {
                let parts = [part("local", local), part("global", global)];
                parts.into_iter().flatten().collect::<Vec<_>>().join(", then ")
            }
            Rule::PopTrack(_) => "PopTrack".into(),
            Rule::CoMemory => "t-CoMem".into(),
        }
    }
}

/// The events of a pair or a node so far.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    /// Number of the latest one or of its batch, from 1.
    latest: u32,
    count: u32,
}

impl Occurrences {
    fn add(&mut self, number: u32) {
        (self.latest, self.count) = (number, self.count + 1);
    }
    fn by(self, by: Option<By>) -> u64 {
        u64::from(match by {
            None => 0,
            Some(By::Recency) => self.latest,
            Some(By::Popularity) => self.count,
        })
    }
}

/// The popularity of destinations with a decay. A value is as it was before the batch of its last event had
/// decayed.
#[derive(Clone, Copy, Debug, Default)]
struct DecayedCount {
    value: f64,
    batch: u32,
}

impl DecayedCount {
    fn at(self, decay: f64, batch: u32) -> f64 {
        if self.value == 0.0 { 0.0 } else { self.value * decay.powi((batch - self.batch) as i32) }
    }
}

/// What the rules remember of the events so far. Every event takes constant time, and so does every score of
/// a pair, but for the activity of its source.
struct Past<'a> {
    events: &'a Events,
    /// The first event of each batch.
    starts: &'a [usize],
    /// Whether the events of a batch have an order.
    ordered: bool,
    /// Number of events, and of the batches in which they came.
    end: usize,
    batches: u32,
    pairs: HashMap<Pair, Occurrences>,
    nodes: Vec<Occurrences>,
    /// By decay and node.
    popularity: Vec<Vec<DecayedCount>>,
    /// The latest event of each source, and the one of the same source before each event, from 1.
    latest: Vec<u32>,
    before: Vec<u32>,
}

impl<'a> Past<'a> {
    fn new(events: &'a Events, starts: &'a [usize], ordered: bool) -> Self {
        let n = events.nodes;
        Past {
            events,
            starts,
            ordered,
            end: 0,
            batches: 0,
            pairs: HashMap::new(),
            nodes: vec![Occurrences::default(); n],
            popularity: vec![vec![DecayedCount::default(); n]; DECAYS.len()],
            latest: vec![0; n],
            before: Vec::with_capacity(events.len()),
        }
    }
    /// Adds the batches that begin before `end`.
    fn advance(&mut self, end: usize) {
        while self.starts.get(self.batches as usize).is_some_and(|&start| start < end) {
            let next = self.starts.get(self.batches as usize + 1).copied().unwrap_or(end);
            for event in self.end..next {
                self.add(event);
            }
            (self.end, self.batches) = (next, self.batches + 1);
        }
    }
    fn add(&mut self, event: usize) {
        let (src, dst) = (self.events.src[event], self.events.dst[event]);
        let number = 1 + if self.ordered { event as u32 } else { self.batches };
        self.pairs.entry(sorted([src, dst])).or_default().add(number);
        self.nodes[dst as usize].add(number);
        if src != dst {
            self.nodes[src as usize].add(number);
        }
        for (of, decay) in self.popularity.iter_mut().zip(DECAYS) {
            let of = &mut of[dst as usize];
            *of = DecayedCount { value: of.at(decay, self.batches) + 1.0, batch: self.batches };
        }
        self.before.push(self.latest[src as usize]);
        self.latest[src as usize] = event as u32 + 1;
    }
    /// Returns the activity of a source at a time.
    fn activity(&self, src: u32, now: i64) -> f64 {
        let time = &self.events.time;
        let window =
            WINDOW * self.end.checked_sub(1).map_or(0.0, |last| (time[last] - time[0]) as f64).max(1.0);
        let mut events = std::iter::successors(Some(self.latest[src as usize]), |&at| {
            (at > 0).then(|| self.before[at as usize - 1])
        });
        let of = |at: u32| {
            let event = at.checked_sub(1)? as usize;
            let age = (now - time[event]) as f64;
            let popularity = f64::from(self.nodes[self.events.dst[event] as usize].count);
            (age <= window).then(|| (-age / window).exp() / (1.0 + (-popularity).exp()))
        };
        events.by_ref().take(RECENT).map_while(of).sum()
    }
    /// Returns the scores of a pair by the rules, as numbers with the same order. `activity` is that of its
    /// source.
    fn scores<'b>(&'b self, rules: &'b [Rule], pair: Pair, activity: f64) -> impl Iterator<Item = u64> + 'b {
        // PopTrack looks at no pair.
        let of_pair = LazyCell::new(move || self.pairs.get(&sorted(pair)).copied().unwrap_or_default());
        let (v, of_node) = (pair[1] as usize, self.nodes[pair[1] as usize]);
        rules.iter().map(move |rule| match *rule {
            Rule::Counts { local, global } => of_pair.by(local) << 32 | of_node.by(global),
            Rule::PopTrack(decay) => self.popularity[decay][v].at(DECAYS[decay], self.batches).to_bits(),
            Rule::CoMemory => {
                let count = f64::from(of_pair.count);
                (activity + OWN * count / (1.0 + count)).to_bits()
            }
        })
    }
}

fn sorted([a, b]: Pair) -> Pair {
    [a.min(b), a.max(b)]
}

/// What metrics need of the scores of a rule on the events of a part.
#[derive(Default)]
struct Ranking {
    /// The rank of each event among its candidates: the mean of the best and the worst one if some tie.
    ranks: Vec<f64>,
    /// The scores of each event and of its first negative.
    pairs: Vec<[u64; 2]>,
}

impl Ranking {
    fn scores(&self, metrics: Metrics, mask: Option<&[bool]>) -> Scores {
        let curves = || {
            // They depend on the order of all scores alone.
            let mut order = self.pairs.as_flattened().to_vec();
            order.sort_unstable();
            order.dedup();
            let place = |score: &u64| f32::from_bits(order.partition_point(|other| other < score) as u32);
            let table: Vec<f32> = self.pairs.as_flattened().iter().map(place).collect();
            Scores::from_table(&table, 2, mask)
        };
        let ranks = || Scores::of_ranks(&self.ranks, mask);
        match metrics {
            Metrics::Curves => curves(),
            Metrics::Ranks => ranks(),
            Metrics::Both => Scores { mrr: ranks().mrr, hits_at_10: ranks().hits_at_10, ..curves() },
        }
    }
}

/// The metrics of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum Metrics {
    /// AP and AUC, of each event and its first negative.
    Curves,
    /// MRR and hits@10, among all negatives.
    Ranks,
    Both,
}

/// A part of a stream to be scored.
pub(in crate::task) struct ScoredPart<'a, F> {
    pub events: &'a Events,
    pub part: Range<usize>,
    /// The first event of each batch, in order, from the beginning of the stream to the end of the part. The
    /// first event of the part is one.
    pub starts: &'a [usize],
    /// Whether the events of a batch have an order.
    pub ordered: bool,
    pub metrics: Metrics,
    /// Returns the negatives of an event.
    pub negatives: F,
}

/// Returns the first event of each batch of `batch` events, which do not reach from one part to the next.
pub(in crate::task) fn batch_starts(parts: &[Range<usize>], batch: usize) -> Vec<usize> {
    parts.iter().flat_map(|part| part.clone().step_by(batch.max(1))).collect()
}

impl<P: IntoIterator<Item = Pair>, F: Fn(usize) -> P> ScoredPart<'_, F> {
    /// Scores every event of the part by the rules.
    fn by(&self, rules: &[Rule]) -> Vec<Ranking> {
        let (mut past, n) = (Past::new(self.events, self.starts, self.ordered), rules.len());
        let mut rankings: Vec<Ranking> = std::iter::repeat_with(Ranking::default).take(n).collect();
        let (mut own, mut above, mut ties, mut first) =
            (vec![0; n], vec![0u32; n], vec![0u32; n], vec![None; n]);
        for event in self.part.clone() {
            if self.starts.binary_search(&event).is_ok() {
                past.advance(event);
            }
            let (pair, now) = ([self.events.src[event], self.events.dst[event]], self.events.time[event]);
            let activity = past.activity(pair[0], now);
            own.iter_mut().zip(past.scores(rules, pair, activity)).for_each(|(own, score)| *own = score);
            above.fill(0);
            ties.fill(0);
            first.fill(None);
            for other in (self.negatives)(event) {
                let activity = if other[0] == pair[0] { activity } else { past.activity(other[0], now) };
                for (rule, score) in past.scores(rules, other, activity).enumerate() {
                    above[rule] += u32::from(score > own[rule]);
                    ties[rule] += u32::from(score == own[rule]);
                    first[rule].get_or_insert(score);
                }
            }
            for (rule, ranking) in rankings.iter_mut().enumerate() {
                ranking.ranks.push(1.0 + f64::from(above[rule]) + f64::from(ties[rule]) / 2.0);
                ranking.pairs.push([own[rule], first[rule].unwrap_or(0)]);
            }
        }
        rankings
    }
    /// Returns the decay that is best on this part.
    pub fn best_decay(&self) -> Decay {
        let rules: Vec<Rule> = (0..DECAYS.len()).map(Rule::PopTrack).collect();
        let scores = self.by(&rules).into_iter().map(|ranking| ranking.scores(self.metrics, None));
        let figures = scores.map(|scores| scores.mrr.or(scores.ap).unwrap_or(0.0)).enumerate();
        Decay(figures.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0))
    }
    /// Returns the metrics of all rules on the part, with their names: on all events, and on those that
    /// `mask` has.
    pub fn scores(&self, decay: &Decay, mask: &[bool]) -> Vec<(String, TestScores)> {
        let rules = Rule::all(decay.0);
        let scores = |ranking: Ranking| TestScores {
            transductive: ranking.scores(self.metrics, None),
            inductive: ranking.scores(self.metrics, Some(mask)),
        };
        rules.iter().zip(self.by(&rules)).map(|(rule, ranking)| (rule.name(), scores(ranking))).collect()
    }
}

/// A decay of PopTrack.
pub(in crate::task) struct Decay(usize);

#[cfg(test)]
mod tests {
    use super::{super::pairs::tests::any_stream, *};
    use proptest::prelude::*;

    /// The score of a pair by a rule, from the definition: `past` are the events before the batch, and
    /// `batch_of` returns the number of an event's batch.
    fn naive(
        rule: Rule,
        (events, ordered): (&Events, bool),
        past: usize,
        batches: &[u32],
        pair: Pair,
        now: i64,
    ) -> f64 {
        let number = |i: usize| if ordered { i as f64 } else { f64::from(batches[i]) };
        let of_pair = |i: &usize| sorted([events.src[*i], events.dst[*i]]) == sorted(pair);
        let of_node = |i: &usize| [events.src[*i], events.dst[*i]].contains(&pair[1]);
        let by = |by: Option<By>, with: &dyn Fn(&usize) -> bool| match by {
            None => 0.0,
            Some(By::Recency) => (0..past).rev().find(|i| with(i)).map_or(0.0, |i| number(i) + 1.0),
            Some(By::Popularity) => (0..past).filter(|i| with(i)).count() as f64,
        };
        let count =
            |v: u32| (0..past).filter(|&i| [events.src[i], events.dst[i]].contains(&v)).count() as f64;
        match rule {
            Rule::Counts { local, global } => 1e6 * by(local, &of_pair) + by(global, &of_node),
            Rule::PopTrack(decay) => {
                let now = past.checked_sub(1).map_or(0, |last| batches[last] + 1);
                let worth = |i: usize| DECAYS[decay].powi((now - batches[i]) as i32);
                (0..past).filter(|&i| events.dst[i] == pair[1]).map(worth).sum()
            }
            Rule::CoMemory => {
                let span = past.checked_sub(1).map_or(0, |last| events.time[last] - events.time[0]) as f64;
                let window = 0.15 * span.max(1.0);
                let own = (0..past).rev().filter(|&i| events.src[i] == pair[0]).take(RECENT);
                let age = |i: usize| (now - events.time[i]) as f64;
                let worth = |i: usize| (-age(i) / window).exp() / (1.0 + (-count(events.dst[i])).exp());
                let c = (0..past).filter(of_pair).count() as f64;
                own.filter(|&i| age(i) <= window).map(worth).sum::<f64>() + 0.8 * c / (1.0 + c)
            }
        }
    }

    proptest! {
        #[test]
        fn rules_rank_by_the_events_before_the_batch(
            events in any_stream(), from in 1usize..60, batch in 1usize..20, m in 1usize..5,
            ordered in any::<bool>(),
        ) {
            let part = from.min(events.len())..events.len();
            let before = [0..part.start / 2, part.start / 2..part.start];
            let nodes = events.nodes;
            let negatives = |event: usize| (0..m).map(move |j| [((event + j * j) % nodes) as u32, ((3 * event + j) % nodes) as u32]);
            let mut batches = Vec::new();
            for range in before.iter().cloned().chain([part.clone()]) {
                let first = batches.last().map_or(0, |last| last + 1);
                batches.extend((0..range.len()).map(|i| first + (i / batch) as u32));
            }
            let rules = Rule::all(3);
            let [trained, validated] = before.clone();
            let starts = batch_starts(&[trained, validated, part.clone()], batch);
            let metrics = Metrics::Ranks;
            let scored = ScoredPart { events: &events, part: part.clone(), starts: &starts, ordered, metrics, negatives };
            for (rule, Ranking { ranks, .. }) in rules.iter().zip(scored.by(&rules)) {
                prop_assert_eq!(ranks.len(), part.len());
                for (event, rank) in part.clone().zip(ranks) {
                    let past = event - (event - part.start) % batch;
                    let score = |pair| naive(*rule, (&events, ordered), past, &batches, pair, events.time[event]);
                    let own = score([events.src[event], events.dst[event]]);
                    // Sums in another order differ in their last bits.
                    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * (a.abs() + b.abs());
                    let [mut least, mut most] = [1.0, 1.0];
                    for other in negatives(event).map(score) {
                        if near(other, own) { most += 1.0 } else if other > own { least += 1.0; most += 1.0 }
                    }
                    prop_assert!(least <= rank && rank <= most, "{:?}: event {event} has rank {rank}, not {least} to {most}", rule);
                    let exact = !matches!(rule, Rule::PopTrack(_) | Rule::CoMemory);
                    prop_assert!(!exact || rank == (least + most) / 2.0, "{:?}: event {event}", rule);
                }
            }
        }
    }

    #[test]
    fn a_single_negative_gives_the_curves_of_all_pairs() {
        let events =
            Events::new("made", vec![0, 0, 1, 0, 1, 0], vec![2, 3, 3, 2, 3, 2], (0..6).collect()).unwrap();
        let negatives = |_: usize| [[0, 3]];
        let starts = [0, 3, 4, 5];
        let metrics = Metrics::Curves;
        let scored =
            ScoredPart { events: &events, part: 3..6, starts: &starts, ordered: true, metrics, negatives };
        let names: Vec<String> =
            scored.scores(&Decay(0), &[true; 3]).into_iter().map(|rule| rule.0).collect();
        assert_eq!(names[0], "local recency");
        assert_eq!(names[4], "local recency, then global recency");
        assert_eq!(names[8..], ["PopTrack", "t-CoMem"]);
        let recency = scored.scores(&Decay(0), &[true; 3])[0].1.transductive;
        // Events have 1, 3 and 4; negatives 2 each.
        assert_eq!(recency.auc, Some(2.0 / 3.0));
        assert_eq!(recency.mrr, None);
        // The event that scores below its negative has rank 2.
        let both = ScoredPart { metrics: Metrics::Both, ..scored }.scores(&Decay(0), &[true; 3])[0].1;
        assert_eq!((both.transductive.auc, both.transductive.mrr), (Some(2.0 / 3.0), Some(2.5 / 3.0)));
    }
}
