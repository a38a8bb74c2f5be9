//! Rules that learn nothing, and score a pair by what has happened lately or often.
//!
//! A rule scores the pair (u, v) by the events that it knows: those of earlier batches ([`History::Batch`]),
//! or those that are strictly earlier in time ([`History::Time`]). The order of the pair's ends does not
//! matter.
//!
//! | rule | score |
//! | --- | --- |
//! | local recency | the number of the pair's latest event |
//! | local popularity | how many events the pair has |
//! | global recency | the number of v's latest event |
//! | global popularity | how many events v has |
//! | local ..., then global ... | the first; the second decides among pairs that tie, as all new pairs do |
//! | PopTrack | how many events v is the destination of; each counts less with every batch after its own |
//! | t-CoMem | 0.8 c / (1 + c) for c events of the pair, and the activity of u |
//! | recency of both ends | minus `ln(1 + a) + ln(1 + b)`: a and b are the times since u's and v's latest events |
//!
//! If the events of a batch have no order, as those of a snapshot, their number is that of the batch, and
//! their time that of its first event.
//!
//! Times are in ticks. A node without an event is as old as the stream, and a tick more.
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
mod past;
mod ranking;
#[cfg(test)]
mod tests;

pub(in crate::task) use past::{Batches, Walked};
pub(in crate::task) use ranking::Metrics;

use super::{Pair, TestScores, pairs::pair_of};
use past::{Occurrences, Past};
use ranking::Rankings;
use std::ops::Range;
use tgnn::{error::Result, ops::sample_neighbors::History};

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
    PopTrack,
    CoMemory,
    BothEnds,
}

impl Rule {
    fn all() -> Vec<Rule> {
        let local = By::ALL.map(|by| Rule::Counts { local: Some(by), global: None });
        let global = By::ALL.map(|by| Rule::Counts { local: None, global: Some(by) });
        let both = |local| By::ALL.map(|global| Rule::Counts { local: Some(local), global: Some(global) });
        let both = By::ALL.into_iter().flat_map(both);
        let others = [Rule::PopTrack, Rule::CoMemory, Rule::BothEnds];
        local.into_iter().chain(global).chain(both).chain(others).collect()
    }
    fn name(self) -> String {
        let part = |what, by: Option<By>| by.map(|by| format!("{what} {}", by.name()));
        match self {
            Rule::Counts { local, global } => {
                let parts = [part("local", local), part("global", global)];
                parts.into_iter().flatten().collect::<Vec<_>>().join(", then ")
            }
            Rule::PopTrack => "PopTrack".into(),
            Rule::CoMemory => "t-CoMem".into(),
            Rule::BothEnds => "recency of both ends".into(),
        }
    }
}

/// What the rules score a pair by.
#[derive(Clone, Copy)]
struct Facts {
    pair: Occurrences,
    /// Of the destination.
    node: Occurrences,
    /// By the decay of PopTrack.
    popularity: f64,
    co_memory: f64,
    /// Product of the ages of both ends.
    ages: f64,
}

impl Facts {
    /// Returns a number with the order of a rule's scores.
    fn score(&self, rule: Rule) -> u64 {
        let by = |of: Occurrences, by: Option<By>| match by {
            None => 0,
            Some(By::Recency) => u64::from(of.latest),
            Some(By::Popularity) => u64::from(of.count),
        };
        match rule {
            Rule::Counts { local, global } => by(self.pair, local) << 32 | by(self.node, global),
            Rule::PopTrack => self.popularity.to_bits(),
            Rule::CoMemory => self.co_memory.to_bits(),
            // The less, the better.
            Rule::BothEnds => u64::MAX - self.ages.to_bits(),
        }
    }
}

/// Appends the negatives of an event to a list.
pub(in crate::task) type Negatives<'a> = &'a (dyn Fn(usize, &mut Vec<Pair>) + Sync);

/// Events of a part that are scored, and their negatives.
#[derive(Clone)]
pub(in crate::task) struct ScoredPart<'a> {
    pub events: Range<usize>,
    pub negatives: Negatives<'a>,
}

impl ScoredPart<'_> {
    /// Returns the candidates of all events, each event before its negatives.
    fn candidates<'b>(&'b self, batches: Batches<'b>) -> impl Iterator<Item = Pair> + 'b {
        self.events.clone().flat_map(move |event| {
            let mut pairs = vec![pair_of(batches.events, event)];
            (self.negatives)(event, &mut pairs);
            pairs
        })
    }
}

/// Scores of the rules on the test part of a stream.
pub(in crate::task) struct Rules<'a> {
    pub batches: Batches<'a>,
    pub metrics: Metrics,
    /// The part on which the decay of PopTrack is chosen.
    pub val: ScoredPart<'a>,
    pub test: ScoredPart<'a>,
}

/// Returns the first event of each batch of `batch` events, which do not reach from one part to the next.
pub(in crate::task) fn batch_starts(parts: &[Range<usize>], batch: usize) -> Vec<usize> {
    parts.iter().flat_map(|part| part.clone().step_by(batch.max(1))).collect()
}

/// Returns the most bytes that the [scores](Rules::scores) of the rules take, on a stream of so many nodes,
/// events and pairs, for so many events of validation and test.
pub(in crate::task) fn bytes(stream: [usize; 3], [val, test]: [usize; 2], metrics: Metrics) -> usize {
    let val = Rankings::<[f64; DECAYS.len()]>::bytes(DECAYS.len(), metrics, val);
    let test = Rankings::<Facts>::bytes(Rule::all().len(), metrics, test);
    Past::bytes(stream) + val.max(test)
}

impl Rules<'_> {
    /// Returns the metrics of all rules, with their names: on all test events, and on those that `mask` has.
    ///
    /// # Errors
    /// The error with which `walked` ends the walk.
    pub fn scores(
        &self,
        history: History,
        mask: &[bool],
        walked: Walked<'_>,
    ) -> Result<Vec<(String, TestScores)>> {
        let mut past = Past::new(self.batches, history, self.test.candidates(self.batches));
        let decay = self.best_decay(&mut past, walked)?;
        let rankings = self.by_all(&mut past, decay, walked)?;
        walked(self.test.events.end - past.known())?;
        let scores = |(at, rule): (usize, Rule)| {
            let [transductive, inductive] =
                rankings.scores(at, |facts| facts.score(rule), [None, Some(mask)]);
            (rule.name(), TestScores { transductive, inductive })
        };
        Ok(Rule::all().into_iter().enumerate().map(scores).collect())
    }
    /// Returns the number of the decay of PopTrack that is best on the validation part.
    fn best_decay(&self, past: &mut Past<'_>, walked: Walked<'_>) -> Result<usize> {
        let mut rankings = Rankings::new(DECAYS.len(), self.metrics, self.val.events.len());
        let of_pair = |past: &Past<'_>, pair: Pair, _| past.popularity(pair[1]);
        let by = |decay: usize, popularity: &[f64; DECAYS.len()]| popularity[decay].to_bits();
        self.rank(past, &self.val, &mut rankings, of_pair, by, walked)?;
        let figure = |decay| {
            let [scores] = rankings.scores(decay, |popularity| by(decay, popularity), [None]);
            scores.mrr.or(scores.ap).unwrap_or(0.0)
        };
        let figures = (0..DECAYS.len()).map(|decay| (decay, figure(decay)));
        Ok(figures.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0))
    }
    /// Ranks the test events by all rules, with a decay of PopTrack.
    fn by_all(&self, past: &mut Past<'_>, decay: usize, walked: Walked<'_>) -> Result<Rankings<Facts>> {
        let rules = Rule::all();
        let mut rankings = Rankings::new(rules.len(), self.metrics, self.test.events.len());
        let mut activity = None;
        let of_pair = |past: &Past<'_>, pair: Pair, event: usize| {
            let of_pair = past.pair(pair);
            let now = self.batches.events.time[event];
            Facts {
                pair: of_pair,
                node: past.node(pair[1]),
                popularity: past.popularity(pair[1])[decay],
                co_memory: past.co_memory(pair, of_pair, (event, now), &mut activity),
                ages: pair.into_iter().map(|v| past.age(v, now)).product(),
            }
        };
        let by = |rule: usize, facts: &Facts| facts.score(rules[rule]);
        self.rank(past, &self.test, &mut rankings, of_pair, by, walked)?;
        Ok(rankings)
    }
    /// Ranks the events of a part: `of_pair` returns what the rules score a pair by at an event.
    fn rank<F: Copy>(
        &self,
        past: &mut Past<'_>,
        part: &ScoredPart<'_>,
        rankings: &mut Rankings<F>,
        mut of_pair: impl FnMut(&Past<'_>, Pair, usize) -> F,
        score: impl Fn(usize, &F) -> u64,
        walked: Walked<'_>,
    ) -> Result<()> {
        let mut pairs = Vec::new();
        for event in part.events.clone() {
            past.reach(event, walked)?;
            pairs.clear();
            pairs.push(pair_of(self.batches.events, event));
            (part.negatives)(event, &mut pairs);
            rankings.add(pairs.iter().map(|&pair| of_pair(past, pair, event)), &score);
        }
        Ok(())
    }
}
