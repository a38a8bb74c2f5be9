//! Pairs of nodes, and the set of pairs that the events of a moving range have.
use foldhash::fast::FixedState;
use std::{
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasher,
    ops::Range,
};
use tgnn_data::Events;

/// A source and a destination.
pub type Pair = [u32; 2];

/// Returns the source and destination of an event.
pub(super) fn pair_of(events: &Events, event: usize) -> Pair {
    [events.src[event], events.dst[event]]
}

/// Returns a pair whose order does not matter.
pub(super) fn undirected([a, b]: Pair) -> Pair {
    [a.min(b), a.max(b)]
}

/// A value for each pair of a stream, or for those that will be asked for, if these are few: most pairs of a
/// long stream are not asked for, and a small table is faster.
pub(super) struct PairTable<V> {
    values: HashMap<u64, V, FixedState>,
    has_all: bool,
}

impl<V: Copy + Default> PairTable<V> {
    /// Creates a table which will be asked for some pairs of a stream of `events` events.
    pub fn new(asked: impl Iterator<Item = Pair>, events: usize) -> Self {
        let mut values = HashMap::default();
        for pair in asked {
            values.insert(key(pair), V::default());
            if values.len() > events / 2 {
                return PairTable { values: HashMap::default(), has_all: true };
            }
        }
        PairTable { values, has_all: false }
    }
    /// Returns the value of a pair; `None` if nobody will ask for it.
    pub fn get_mut(&mut self, pair: Pair) -> Option<&mut V> {
        match self.has_all {
            true => Some(self.values.entry(key(pair)).or_default()),
            false => self.values.get_mut(&key(pair)),
        }
    }
    /// Returns the value of a pair that was to be asked for.
    pub fn get(&self, pair: Pair) -> V {
        self.values.get(&key(pair)).copied().unwrap_or_default()
    }
}

/// Returns the number of pairs in a [`PairTable`] that was made for `asked` pairs.
pub(in crate::task) fn kept(events: &Events, asked: usize) -> usize {
    if asked > events.len() / 2 { distinct(events) } else { asked }
}

/// Returns the bytes of a [`PairTable`] of so many pairs, with values of at most 8 bytes.
pub(super) fn table_bytes(pairs: usize) -> usize {
    // The table of the standard library: an eighth of the places is free, and each has a byte that describes
    // it.
    (pairs * 8 / 7 + 1).next_power_of_two() * (1 + size_of::<(u64, u64)>())
}

/// Estimates the number of different pairs of a stream, within 1 %, by a bit for each value of a hash.
/// Source: Whang et al., "A linear-time probabilistic counting algorithm for database applications", ACM TODS
/// 15, 1990.
fn distinct(events: &Events) -> usize {
    let bits = events.len().next_power_of_two().max(1 << 12);
    let (mut seen, hash) = (vec![0u64; bits / 64], FixedState::default());
    for event in 0..events.len() {
        let at = hash.hash_one(key(pair_of(events, event))) as usize % bits;
        seen[at / 64] |= 1 << (at % 64);
    }
    let free: u32 = seen.iter().map(|word| word.count_zeros()).sum();
    ((bits as f64 * (bits as f64 / f64::from(free.max(1))).ln()) as usize).min(events.len())
}

/// Returns a pair as one number, which is hashed faster.
fn key([a, b]: Pair) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

/// The pairs that the events of a range have. Both ends of the range only move forward, so every event enters
/// once and leaves once, and a walk over a stream takes linear time.
pub(super) struct PairWindow<'a> {
    events: &'a Events,
    range: Range<usize>,
    /// Number of events of each pair in the range. Pairs without events are absent.
    times: HashMap<u64, u32, FixedState>,
}

impl<'a> PairWindow<'a> {
    /// Returns an empty range before the first event.
    pub fn new(events: &'a Events) -> Self {
        PairWindow { events, range: 0..0, times: HashMap::default() }
    }
    /// Moves the range forward to `to`; an end of `to` that lies before the current one is ignored. Calls
    /// `changed` for every pair that gets its first event in the range (with `true`), then for every pair
    /// that loses its last (with `false`).
    pub fn advance(&mut self, to: Range<usize>, mut changed: impl FnMut(Pair, bool)) {
        for event in self.range.end..to.end {
            let pair = pair_of(self.events, event);
            let times = self.times.entry(key(pair)).or_default();
            *times += 1;
            if *times == 1 {
                changed(pair, true);
            }
        }
        for event in self.range.start..to.start {
            let pair = pair_of(self.events, event);
            if let Entry::Occupied(mut times) = self.times.entry(key(pair)) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                    changed(pair, false);
                }
            }
        }
        self.range = self.range.start.max(to.start)..self.range.end.max(to.end);
    }
}

/// Event streams for tests.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::HashSet, sync::Arc};

    /// Returns a stream of events with these pairs and times.
    pub fn stream(nodes: usize, pairs: &[Pair], time: Vec<i64>) -> Events {
        let events = Events {
            name: "made".into(),
            src: Arc::new(pairs.iter().map(|p| p[0]).collect()),
            dst: Arc::new(pairs.iter().map(|p| p[1]).collect()),
            time: time.into(),
            label: None,
            label_names: None,
            classes: None,
            node_labels: None,
            nodes,
            first_destination: None,
            ticks_per_second: 1.0,
            encoding: None,
            tables: tgnn_data::Encodings::default(),
            time_format: tgnn_data::TimeFormat::Seconds,
            origin: 0,
            ids: None,
            edge_features: None,
            node_features: None,
            lines: None,
            notes: Vec::new(),
        };
        events.validate("made").unwrap();
        events
    }

    /// Generates streams with few nodes, so that pairs repeat, and with many events at equal times.
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
        fn a_table_counts_the_events_of_every_pair_that_it_is_asked_for(
            events in any_stream(), asked in prop::collection::vec((0u32..9, 0u32..9), 0..90)
        ) {
            let asked: Vec<Pair> = asked.into_iter().map(|(a, b)| [a, b]).collect();
            let mut table = PairTable::<u32>::new(asked.iter().copied(), events.len());
            for i in 0..events.len() {
                table.get_mut(pair_of(&events, i)).into_iter().for_each(|count| *count += 1);
            }
            for &pair in &asked {
                let count = (0..events.len()).filter(|&i| pair_of(&events, i) == pair).count();
                prop_assert_eq!(table.get(pair), count as u32);
            }
        }

        #[test]
        fn the_number_of_different_pairs_is_close(pairs in prop::collection::vec((0u32..900, 0u32..900), 1..9000)) {
            let pairs: Vec<Pair> = pairs.into_iter().map(|(a, b)| [a, b]).collect();
            let events = stream(900, &pairs, vec![0; pairs.len()]);
            let want = pairs.iter().collect::<HashSet<_>>().len() as f64;
            prop_assert!((distinct(&events) as f64 - want).abs() <= 0.08 * want + 4.0);
        }

        #[test]
        fn a_window_has_the_pairs_of_its_events_and_reports_every_pair_that_comes_or_goes(
            events in any_stream(), mut ends in prop::collection::vec((0usize..81, 0usize..81), 1..9)
        ) {
            let n = events.len();
            ends.iter_mut().for_each(|(a, b)| (*a, *b) = ((*a).min(*b).min(n), (*a).max(*b).min(n)));
            let (mut firsts, mut lasts): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
            firsts.sort_unstable();
            lasts.sort_unstable();
            let (mut window, mut reported) = (PairWindow::new(&events), HashSet::new());
            for (first, last) in firsts.into_iter().zip(lasts) {
                window.advance(first..last, |pair, came| {
                    assert!(if came { reported.insert(pair) } else { reported.remove(&pair) }, "reported twice");
                });
                let want: HashSet<Pair> = (first..last).map(|i| pair_of(&events, i)).collect();
                prop_assert_eq!(&reported, &want);
            }
        }
    }
}
