//! Pairs of nodes: which of them the events of a moving range have.
use crate::data::Events;
use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

/// A source and a destination.
pub type Pair = [u32; 2];

/// Source and destination of an event.
pub(super) fn pair_of(events: &Events, event: usize) -> Pair {
    [events.src[event], events.dst[event]]
}

/// The pairs of a range of events whose ends only move on. Every event enters once and leaves once, so a walk over a stream
/// takes time linear in it.
pub(super) struct PairWindow<'a> {
    events: &'a Events,
    range: Range<usize>,
    /// How many events each pair has in the range; none has 0.
    times: HashMap<Pair, u32>,
}

impl<'a> PairWindow<'a> {
    /// Before the first event.
    pub fn new(events: &'a Events) -> Self {
        PairWindow { events, range: 0..0, times: HashMap::new() }
    }
    /// Moves on to `to`. `changed` hears of every pair that gets its first event in the range (true), then of every pair that
    /// loses its last (false); an end that lies behind stays where it is.
    pub fn advance(&mut self, to: Range<usize>, mut changed: impl FnMut(Pair, bool)) {
        for event in self.range.end..to.end {
            let pair = pair_of(self.events, event);
            let times = self.times.entry(pair).or_default();
            *times += 1;
            if *times == 1 {
                changed(pair, true);
            }
        }
        for event in self.range.start..to.start {
            let pair = pair_of(self.events, event);
            if let Entry::Occupied(mut times) = self.times.entry(pair) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                    changed(pair, false);
                }
            }
        }
        self.range = self.range.start.max(to.start)..self.range.end.max(to.end);
    }
    /// Whether an event of the range is of `pair`.
    pub fn has(&self, pair: Pair) -> bool {
        self.times.contains_key(&pair)
    }
}

/// Streams for tests.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Events of these pairs at these times.
    pub fn stream(nodes: usize, pairs: &[Pair], time: Vec<i64>) -> Events {
        let events = Events {
            name: "made".into(),
            src: pairs.iter().map(|p| p[0]).collect(),
            dst: pairs.iter().map(|p| p[1]).collect(),
            time,
            label: None,
            classes: None,
            nodes,
            first_destination: None,
            ticks_per_second: 1.0,
            origin: 0,
            ids: None,
            edge_features: None,
            node_features: None,
            notes: Vec::new(),
        };
        events.validate("made").unwrap();
        events
    }

    /// Streams among few nodes, so that pairs repeat; many events at the time of the one before.
    pub fn any_stream() -> impl Strategy<Value = Events> {
        let event = (0u32..64, 0u32..64, prop_oneof![1 => Just(0i64), 2 => 1i64..4]);
        (1u32..9, prop::collection::vec(event, 1..80)).prop_map(|(nodes, events)| {
            let pairs: Vec<Pair> = events.iter().map(|e| [e.0 % nodes, e.1 % nodes]).collect();
            let mut now = -events[0].2;
            let time = events.iter().map(|e| {
                now += e.2;
                now
            });
            stream(nodes as usize, &pairs, time.collect())
        })
    }

    proptest! {
        #[test]
        fn a_window_has_the_pairs_of_its_events_and_tells_of_every_one_that_comes_or_goes(
            events in any_stream(), mut ends in prop::collection::vec((0usize..81, 0usize..81), 1..9)
        ) {
            let n = events.len();
            ends.iter_mut().for_each(|(a, b)| (*a, *b) = ((*a).min(*b).min(n), (*a).max(*b).min(n)));
            let (mut firsts, mut lasts): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
            firsts.sort_unstable();
            lasts.sort_unstable();
            let (mut window, mut told) = (PairWindow::new(&events), HashSet::new());
            for (first, last) in firsts.into_iter().zip(lasts) {
                window.advance(first..last, |pair, came| {
                    assert!(if came { told.insert(pair) } else { told.remove(&pair) }, "told twice");
                });
                let want: HashSet<Pair> = (first..last).map(|i| pair_of(&events, i)).collect();
                prop_assert_eq!(&told, &want);
                let all = (0..n).map(|i| pair_of(&events, i));
                prop_assert!(all.into_iter().all(|pair| window.has(pair) == want.contains(&pair)));
            }
        }
    }
}
