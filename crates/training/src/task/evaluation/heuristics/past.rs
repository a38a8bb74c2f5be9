//! What rules remember of the events that a query may know.
use super::{DECAYS, OWN, RECENT, WINDOW};
use crate::task::evaluation::{
    Pair,
    pairs::{PairTable, table_bytes, undirected},
};
use std::sync::LazyLock;
use tgnn::{error::Result, ops::sample_neighbors::History};
use tgnn_data::Events;

/// A stream, and the batches in which it is evaluated.
#[derive(Clone, Copy)]
pub(in crate::task) struct Batches<'a> {
    pub events: &'a Events,
    /// The first event of each batch, in order, from the beginning of the stream to the end of the test part.
    /// The first event of a part is one.
    pub starts: &'a [usize],
    /// Whether the events of a batch have an order.
    pub ordered: bool,
}

/// Is told the number of events by which a walk over a stream has gone on; its error ends the walk.
pub(in crate::task) type Walked<'a> = &'a (dyn Fn(usize) -> Result<()> + Sync);

/// Most events by which a walk goes on before it says so.
const STRIDE: usize = 1 << 16;

/// The events of a pair or a node so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Occurrences {
    /// Number of the latest one or of its batch, from 1.
    pub latest: u32,
    pub count: u32,
}

impl Occurrences {
    fn add(&mut self, number: u32) {
        (self.latest, self.count) = (number, self.count + 1);
    }
}

/// What is known of a node, but for its popularity.
#[derive(Clone, Copy, Default)]
struct Node {
    events: Occurrences,
    /// Its latest event as a source, from 1.
    sent: u32,
    /// The batch of its latest event as a destination.
    received_in: u32,
}

/// The popularity of a destination by each of [`DECAYS`], as it was before the batch of its last event had
/// decayed. A line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Popularity([f64; DECAYS.len()]);

/// The first powers of [`DECAYS`].
static POWERS: LazyLock<Vec<[f64; DECAYS.len()]>> =
    LazyLock::new(|| (0..1 << 14).map(|batches| DECAYS.map(|decay| decay.powi(batches))).collect());

impl Popularity {
    /// Lets a number of batches go by.
    fn decay(&mut self, batches: u32) {
        let beyond;
        let powers = match POWERS.get(batches as usize) {
            Some(powers) => powers,
            None => {
                beyond = DECAYS.map(|decay| decay.powi(batches as i32));
                &beyond
            }
        };
        for (value, power) in self.0.iter_mut().zip(powers) {
            *value *= power;
        }
    }
}

/// `1 + exp(-n)` of the first numbers n; of all later ones it is 1 in f64.
static LOGISTIC: LazyLock<Vec<f64>> = LazyLock::new(|| (0..38).map(|n| 1.0 + f64::from(-n).exp()).collect());

/// What is known of the events so far. Every event takes constant time.
pub(super) struct Past<'a> {
    batches: Batches<'a>,
    history: History,
    /// Number of known events.
    end: usize,
    /// Numbers of the batches of the last known event and of the query.
    batch_of_last: u32,
    now: u32,
    pairs: PairTable<Occurrences>,
    nodes: Vec<Node>,
    popularity: Vec<Popularity>,
    /// For each event, the one before with the same source, from 1.
    before: Vec<u32>,
}

impl<'a> Past<'a> {
    /// Creates an empty past, which will be asked for these pairs.
    pub fn new(batches: Batches<'a>, history: History, asked: impl Iterator<Item = Pair>) -> Self {
        let (n, events) = (batches.events.nodes, batches.events.len());
        Past {
            batches,
            history,
            end: 0,
            batch_of_last: 0,
            now: 0,
            pairs: PairTable::new(asked.map(undirected), events),
            nodes: vec![Node::default(); n],
            popularity: vec![Popularity::default(); n],
            before: Vec::with_capacity(events),
        }
    }
    /// Returns the bytes of a past of so many nodes, events and pairs.
    pub fn bytes([nodes, events, pairs]: [usize; 3]) -> usize {
        let of_node = size_of::<Node>() + size_of::<Popularity>();
        table_bytes(pairs) + nodes * of_node + events * size_of::<u32>()
    }
    /// Returns the number of known events.
    pub fn known(&self) -> usize {
        self.end
    }
    /// Goes on to what a query at an event knows. Queries come in the order of events.
    pub fn reach(&mut self, event: usize, walked: Walked<'_>) -> Result<()> {
        let Batches { events, starts, .. } = self.batches;
        last_start(starts, &mut self.now, event);
        let known = match self.history {
            History::Batch => starts[self.now as usize],
            History::Time => {
                let now = events.time[event];
                self.end + events.time[self.end..event].partition_point(|&time| time < now)
            }
        };
        while self.end < known {
            let next = known.min(self.end + STRIDE);
            (self.end..next).for_each(|event| self.add(event));
            walked(next - self.end)?;
            self.end = next;
        }
        Ok(())
    }
    fn add(&mut self, event: usize) {
        let Batches { events, starts, ordered } = self.batches;
        let (src, dst) = (events.src[event], events.dst[event]);
        last_start(starts, &mut self.batch_of_last, event);
        let number = 1 + if ordered { event as u32 } else { self.batch_of_last };
        if let Some(pair) = self.pairs.get_mut(undirected([src, dst])) {
            pair.add(number);
        }
        let (receiver, popularity) = (&mut self.nodes[dst as usize], &mut self.popularity[dst as usize]);
        receiver.events.add(number);
        popularity.decay(self.batch_of_last - receiver.received_in);
        popularity.0.iter_mut().for_each(|value| *value += 1.0);
        receiver.received_in = self.batch_of_last;
        let sender = &mut self.nodes[src as usize];
        if src != dst {
            sender.events.add(number);
        }
        self.before.push(sender.sent);
        sender.sent = event as u32 + 1;
    }
    /// Returns the events of a pair. It must be one of those that the past was created to be asked for.
    pub fn pair(&self, pair: Pair) -> Occurrences {
        self.pairs.get(undirected(pair))
    }
    pub fn node(&self, v: u32) -> Occurrences {
        self.nodes[v as usize].events
    }
    /// Returns 1 and the time since the latest event of a node; if there is none, since a tick before the
    /// first event of the stream.
    pub fn age(&self, v: u32, now: i64) -> f64 {
        let Batches { events, starts, ordered } = self.batches;
        let time = match self.node(v).latest.checked_sub(1) {
            None => events.time[0] - 1,
            Some(number) if ordered => events.time[number as usize],
            Some(batch) => events.time[starts[batch as usize]],
        };
        1.0 + (now - time) as f64
    }
    /// Returns the popularity of a destination by each decay.
    pub fn popularity(&self, v: u32) -> [f64; DECAYS.len()] {
        let mut popularity = self.popularity[v as usize];
        popularity.decay(self.now - self.nodes[v as usize].received_in);
        popularity.0
    }
    /// Returns the activity of a source at a time.
    fn activity(&self, src: u32, now: i64) -> f64 {
        let Events { time, dst, .. } = self.batches.events;
        let window =
            WINDOW * self.end.checked_sub(1).map_or(0.0, |last| (time[last] - time[0]) as f64).max(1.0);
        let mut events = std::iter::successors(Some(self.nodes[src as usize].sent), |&at| {
            (at > 0).then(|| self.before[at as usize - 1])
        });
        let of = |at: u32| {
            let event = at.checked_sub(1)? as usize;
            let age = (now - time[event]) as f64;
            let popularity = self.node(dst[event]).count as usize;
            let logistic = LOGISTIC.get(popularity).copied().unwrap_or(1.0);
            (age <= window).then(|| (-age / window).exp() / logistic)
        };
        events.by_ref().take(RECENT).map_while(of).sum()
    }
    /// Returns the score of t-CoMem at an event, with its time. `activity` is the last one that was computed,
    /// with its event and source.
    pub fn co_memory(
        &self,
        [src, _]: Pair,
        of_pair: Occurrences,
        (event, now): (usize, i64),
        activity: &mut Option<(usize, u32, f64)>,
    ) -> f64 {
        let known = activity.filter(|known| (known.0, known.1) == (event, src));
        let (.., active) = *activity.insert(known.unwrap_or_else(|| (event, src, self.activity(src, now))));
        let count = f64::from(of_pair.count);
        active + OWN * count / (1.0 + count)
    }
}

/// Moves `at`, the number of a batch, on to the last one that begins at or before an event.
fn last_start(starts: &[usize], at: &mut u32, event: usize) {
    while starts.get(*at as usize + 1).is_some_and(|&start| start <= event) {
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_powers_and_of_the_logistic_function_have_the_bits_of_what_they_stand_for() {
        let last = POWERS.len() as u32 - 1;
        for batches in [0, 1, 100, last, last + 1, 300_000] {
            let want = DECAYS.map(|decay| decay.powi(batches as i32));
            let mut popularity = Popularity([1.0; DECAYS.len()]);
            popularity.decay(batches);
            assert_eq!(popularity.0, want, "{batches}");
        }
        let first = |n: usize| 1.0 + (-(n as f64)).exp();
        assert_eq!(first(LOGISTIC.len()), 1.0);
        assert!((0..LOGISTIC.len()).all(|n| LOGISTIC[n] == first(n)), "{LOGISTIC:?}");
    }
}
