//! Training, validation and test parts of a stream.
use super::Events;
use crate::error::{Error, Result};
use std::ops::Range;

/// Consecutive parts of a stream: the first events train, the next validate, the last test.
///
/// All events of a part count, also those of nodes that training never saw; nothing is held out of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Events to learn from.
    pub train: Range<usize>,
    /// Events to choose by.
    pub val: Range<usize>,
    /// Events to report.
    pub test: Range<usize>,
    /// For every event: whether one of its nodes has no training event (the inductive ones).
    pub unseen: Vec<bool>,
}

impl Split {
    /// By event order: shares `train` and `val` of the events, the rest tests. The first part has at least one event.
    ///
    /// # Errors
    /// Usage when the shares do not leave room for one another.
    pub fn by_order(events: &Events, train: f64, val: f64) -> Result<Self> {
        if !(train > 0.0 && val >= 0.0 && train + val <= 1.0) {
            return Err(Error::usage(format!("split {train}/{val} of the events"))
                .remedy("shares are positive and sum to at most 1"));
        }
        let n = events.len();
        let first = ((n as f64 * train) as usize).clamp(1.min(n), n);
        let second = ((n as f64 * (train + val)).round() as usize).clamp(first, n);
        let mut seen = vec![false; events.nodes];
        for i in 0..first {
            seen[events.src[i] as usize] = true;
            seen[events.dst[i] as usize] = true;
        }
        let known = |v: u32| seen[v as usize];
        let unseen = events.src.iter().zip(&events.dst).map(|(&s, &d)| !(known(s) && known(d))).collect();
        Ok(Split { train: 0..first, val: first..second, test: second..n, unseen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn wikipedia_splits_into_the_published_sizes() {
        let s = Split::by_order(&data::bundled().unwrap(), 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (0..110_231, 110_231..133_853, 133_853..157_474));
        assert!(!s.unseen[0] && s.unseen.iter().any(|&u| u));
    }

    #[test]
    fn a_stream_of_one_event_trains_on_it() {
        let mut e = data::bundled().unwrap();
        e.src.truncate(1);
        e.dst.truncate(1);
        e.time.truncate(1);
        let s = Split::by_order(&e, 0.7, 0.15).unwrap();
        assert_eq!((s.train, s.val, s.test), (0..1, 1..1, 1..1));
        assert!(Split::by_order(&e, 0.9, 0.2).is_err());
    }
}
