//! Split of a stream into training, validation and test parts.
use super::Events;
use std::ops::Range;
#[cfg(test)]
use std::sync::Arc;
use tgnn::error::{Error, Result};

/// Approximate maximum number of gaps that [`Split::longest_gap`] examines.
const MAX_GAPS: usize = 1 << 20;

/// Consecutive parts of a stream: training events, then validation events, then test events.
///
/// A part has all events of its range, including those of nodes without a training event; no node is held out
/// of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The training events.
    pub train: Range<usize>,
    /// The validation events, used to choose a model.
    pub val: Range<usize>,
    /// The test events, used to report a score.
    pub test: Range<usize>,
    /// For every event, whether one of its nodes has no training event (an inductive event).
    pub unseen: Vec<bool>,
}

impl Split {
    /// Returns the fractions of events that train and validate by which results on the data set `name` are
    /// published: 0.70 and 0.15, except for TGB's `tkgl-yago`.
    pub fn fractions(name: &str) -> [f64; 2] {
        if name == "tkgl-yago" { [0.80, 0.10] } else { [0.70, 0.15] }
    }

    /// Splits by time, as DyGLib and TGB do. Events up to the quantile `train` of all times are training
    /// events, later ones up to the quantile `train + val` are validation events, the rest are test events.
    /// Events with equal times are in the same part, and there is at least one training event.
    ///
    /// The quantiles are bitwise equal to NumPy's (`numpy.quantile`, linear).
    ///
    /// # Errors
    /// Usage if `train` is not positive, `val` is negative, or their sum exceeds 1; data if the events are
    /// not valid ([`Events::validate`]).
    pub fn by_time(events: &Events, train: f64, val: f64) -> Result<Self> {
        if !(train > 0.0 && val >= 0.0 && train + val <= 1.0) {
            return Err(Error::usage(format!("split {train}/{val} of the events"))
                .remedy("give positive fractions whose sum is at most 1"));
        }
        events.validate(&events.name)?;
        if events.is_empty() {
            return Ok(Self::at(events, 0, 0));
        }
        let events_until = |q: f64| {
            let latest = quantile(events, q);
            events.time.partition_point(|&t| events.origin.wrapping_add(t) as f64 <= latest)
        };
        let first = events_until(train);
        Ok(Self::at(events, first, events_until(train + val).max(first)))
    }

    /// Splits by index: events before `first` are training events, those from `first` to before `second` are
    /// validation events, the rest are test events.
    ///
    /// # Panics
    /// Unless `first <= second <= events.len()`.
    pub fn at(events: &Events, first: usize, second: usize) -> Self {
        assert!(first <= second && second <= events.len(), "parts {first}, {second} of {}", events.len());
        let seen = events.nodes_in(0..first);
        let known = |v: u32| seen[v as usize];
        let unseen =
            events.src.iter().zip(events.dst.iter()).map(|(&s, &d)| !(known(s) && known(d))).collect();
        Split { train: 0..first, val: first..second, test: second..events.len(), unseen }
    }

    /// Returns the `quantile` of the gaps between successive training events of a node, in ticks; `i64::MAX`
    /// if `quantile` is 1 or no node has two training events.
    ///
    /// Exact for up to a million training events; beyond, only the gaps of every n-th event count.
    #[doc(hidden)]
    pub fn longest_gap(&self, events: &Events, quantile: f64) -> i64 {
        let every = 1 + self.train.len() / MAX_GAPS;
        let mut last = vec![None; events.nodes];
        let mut gaps = Vec::new();
        for i in self.train.clone() {
            let (src, dst) = (events.src[i], events.dst[i]);
            for v in [Some(src), (dst != src).then_some(dst)].into_iter().flatten() {
                let gap = last[v as usize].replace(events.time[i]).map(|t| events.time[i] - t);
                gaps.extend(gap.filter(|_| i % every == 0));
            }
        }
        if quantile >= 1.0 || gaps.is_empty() {
            return i64::MAX;
        }
        let rank = (quantile * gaps.len() as f64) as usize;
        *gaps.select_nth_unstable(rank).1
    }
}

/// Returns the quantile `q` of the original times of the events, in ticks: interpolated between two events
/// with the same floating-point operations as NumPy.
fn quantile(events: &Events, q: f64) -> f64 {
    let last = events.len() - 1;
    let time = |i: usize| events.origin.wrapping_add(events.time[i.min(last)]);
    let position = last as f64 * q;
    let fraction = position - position.floor();
    let (a, b) = (time(position as usize), time(position as usize + 1));
    let step = b.wrapping_sub(a) as f64;
    if fraction < 0.5 { a as f64 + step * fraction } else { b as f64 - step * (1.0 - fraction) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate as data;

    #[test]
    fn a_split_by_time_matches_numpy_on_every_golden_stream_and_on_wikipedia() {
        let text = std::fs::read_to_string("../../tests/golden/time_split.json").unwrap();
        let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut e = data::bundled().unwrap();
        let s = Split::by_time(&e, 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (0..110_232, 110_232..133_853, 133_853..157_474));
        assert!(!s.unseen[0] && s.unseen.iter().any(|&u| u));
        e.label = None;
        for case in golden["cases"].as_array().unwrap() {
            let time: Vec<i64> = serde_json::from_value(case["time"].clone()).unwrap();
            Arc::make_mut(&mut e.src).resize(time.len(), 0);
            Arc::make_mut(&mut e.dst).resize(time.len(), 8_227);
            (e.origin, e.time) = (time[0], Arc::new(time.iter().map(|t| t - time[0]).collect()));
            let s = Split::by_time(&e, 0.7, 0.15).unwrap();
            let parts = [("train", s.train), ("val", s.val), ("test", s.test)];
            assert!(parts.iter().all(|(name, part)| case[name] == part.len()), "{parts:?} of {case}");
        }
    }

    #[test]
    fn gaps_are_between_training_events_of_the_same_node_only() {
        let mut e = data::bundled().unwrap();
        (e.nodes, e.first_destination) = (20, None);
        // Node 0 has an event with another node every second, then a self-loop, then no event for a long
        // time.
        e.src = vec![0; 12].into();
        e.dst = Arc::new((1..11).chain([0, 1]).collect());
        e.time = vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 1000].into();
        let s = Split { train: 0..11, val: 11..11, test: 11..12, unseen: vec![] };
        // Nine gaps of 1, one of 2 and one of 10.
        assert_eq!([0.5, 0.95, 1.0].map(|q| s.longest_gap(&e, q)), [1, 10, i64::MAX]);
        let alone = Split { train: 0..1, ..s };
        assert_eq!(alone.longest_gap(&e, 0.5), i64::MAX);
        let wikipedia = data::bundled().unwrap();
        let s = Split::by_time(&wikipedia, 0.7, 0.15).unwrap();
        assert_eq!(s.longest_gap(&wikipedia, 0.99), 355_054);
    }

    #[test]
    fn a_stream_of_one_event_trains_on_it() {
        let mut e = Events { label: None, ..data::bundled().unwrap() };
        Arc::make_mut(&mut e.src).truncate(1);
        Arc::make_mut(&mut e.dst).truncate(1);
        Arc::make_mut(&mut e.time).truncate(1);
        let s = Split::by_time(&e, 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (0..1, 1..1, 1..1));
        assert!(Split::by_time(&e, 0.9, 0.2).is_err());
    }
}
