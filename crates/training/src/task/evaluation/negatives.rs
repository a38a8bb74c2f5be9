//! Hard negatives: pairs that had an event before the batch and have none during it. One pair is drawn for
//! each event; both its source and its destination are drawn.
//!
//! *Historical* negatives had an event before the batch. *Inductive* negatives did, too, but none before the
//! evaluated part. Neither kind has an event between the first and the last time of the batch. If there are
//! at least as many such pairs as the batch has events, all negatives of the batch are different. Else all
//! such pairs come first, and the rest are random pairs of a source and a destination of the stream, except
//! the pairs of the batch; the random pairs are different from each other if there are enough of them.
//!
//! Source: Poursafaei et al., "Towards better evaluation for dynamic link prediction", NeurIPS 2022. The
//! rules are those of DyGLib's `NegativeEdgeSampler` over all events; the random numbers are our own.
use super::{
    Pair,
    pairs::{PairWindow, pair_of},
};
use foldhash::fast::FixedState;
use indexmap::IndexSet;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::philox::Key,
};
use tgnn_data::Events;

/// Salts of the random draws.
const HISTORICAL: u32 = 0x6869;
const INDUCTIVE: u32 = 0x696e;

/// Draws a historical negative for each event of `part`, in batches of `batch` events. The draws of a batch
/// depend on `seed` and on the index of its first event. Takes nearly linear time in the number of events up
/// to the end of `part`.
///
/// # Errors
/// `Data` if the events of a batch have every possible pair.
pub fn historical(events: &Events, part: Range<usize>, batch: usize, seed: u64) -> Result<Vec<Pair>> {
    draw(events, part, batch, seed, HISTORICAL, &HashSet::new())
}

/// Draws an inductive negative for each event of `part`, as [`historical`] does, but excludes the pairs with
/// an event up to the time of the last event before the part.
///
/// # Errors
/// Those of [`historical`].
pub fn inductive(events: &Events, part: Range<usize>, batch: usize, seed: u64) -> Result<Vec<Pair>> {
    let last = events.time[..part.start].last();
    let observed = last.map_or(0, |last| events.time.partition_point(|t| t <= last));
    let observed = (0..observed).map(|i| pair_of(events, i)).collect();
    draw(events, part, batch, seed, INDUCTIVE, &observed)
}

/// Draws the negatives of `part`. No pair of `excluded` counts as a pair that had an event before.
fn draw(
    events: &Events,
    part: Range<usize>,
    batch: usize,
    seed: u64,
    salt: u32,
    excluded: &HashSet<Pair>,
) -> Result<Vec<Pair>> {
    let all_pairs = AllPairs::new(events);
    // `now`: pairs with an event at the times of the batch. `before`: pairs with an event before these times
    // and none at them.
    let mut now = PairWindow::new(events);
    let mut before: IndexSet<Pair, FixedState> = IndexSet::default();
    let mut drawn = Vec::with_capacity(part.len());
    for first in part.clone().step_by(batch.max(1)) {
        let rows = first..part.end.min(first + batch.max(1));
        let times = [events.time[rows.start], events.time[rows.end - 1]];
        let from = events.time.partition_point(|&t| t < times[0]);
        let to = events.time.partition_point(|&t| t <= times[1]);
        now.advance(from..to, |pair, came| {
            if came {
                before.swap_remove(&pair);
            } else if !excluded.contains(&pair) {
                before.insert(pair);
            }
        });
        let key = Key::new(seed, salt, [0, first as u32]);
        let known = rows.len().min(before.len());
        for at in 0..known {
            before.swap_indices(at, at + below(key, at, (before.len() - at) as u64) as usize);
            drawn.push(before[at]);
        }
        if known < rows.len() {
            let taken = rows.clone().map(|i| pair_of(events, i));
            let rest = all_pairs.draw_others(taken, known..rows.len(), key).ok_or_else(|| {
                let what = format!(
                    "events {} to {} have every pair that a negative may be",
                    rows.start,
                    rows.end - 1
                );
                Error::new(ErrorKind::Data, what).remedy("take a smaller batch, or negatives of another kind")
            })?;
            drawn.extend(rest);
        }
    }
    Ok(drawn)
}

/// Draws a uniform integer below `n`, which may exceed 32 bits.
fn below(key: Key, index: usize, n: u64) -> u64 {
    let [low, high, ..] = key.draw(index as u64);
    let word = u64::from(high) << 32 | u64::from(low);
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// All pairs of a source and a destination of a stream. A pair's number is its position in lexicographic
/// order.
struct AllPairs {
    /// Unique sources, sorted.
    src: Vec<u32>,
    /// Unique destinations, sorted.
    dst: Vec<u32>,
}

impl AllPairs {
    fn new(events: &Events) -> Self {
        let unique = |ids: &[u32]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        AllPairs { src: unique(&events.src), dst: unique(&events.dst) }
    }
    fn number(&self, [src, dst]: Pair) -> u64 {
        let index = |ids: &[u32], id| ids.partition_point(|&v| v < id) as u64;
        index(&self.src, src) * self.dst.len() as u64 + index(&self.dst, dst)
    }
    fn pair(&self, number: u64) -> Pair {
        let n = self.dst.len() as u64;
        [self.src[(number / n) as usize], self.dst[(number % n) as usize]]
    }
    /// Draws a pair that is not in `taken` for each draw number in `draws`. The pairs are different if there
    /// are enough of them. `None` if every pair is taken.
    fn draw_others(
        &self,
        taken: impl Iterator<Item = Pair>,
        draws: Range<usize>,
        key: Key,
    ) -> Option<Vec<Pair>> {
        let mut taken: Vec<u64> = taken.map(|pair| self.number(pair)).collect();
        taken.sort_unstable();
        taken.dedup();
        // For each taken pair, the number of other pairs before it.
        let others_before: Vec<u64> = taken.iter().zip(0..).map(|(number, before)| number - before).collect();
        let others = (self.src.len() * self.dst.len() - taken.len()) as u64;
        if others == 0 {
            return None;
        }
        let other = |i: u64| self.pair(i + others_before.partition_point(|&before| before <= i) as u64);
        if others < draws.len() as u64 {
            return Some(draws.map(|at| other(below(key, at, others))).collect());
        }
        // The first steps of a Fisher-Yates shuffle of the other pairs; `moved` maps the positions that no
        // longer hold their initial pair to the pair they hold.
        let mut moved: HashMap<u64, u64> = HashMap::new();
        let shuffled = draws.zip(0..).map(|(draw, at)| {
            let from = at + below(key, draw, others - at);
            let displaced = moved.get(&at).copied().unwrap_or(at);
            other(moved.insert(from, displaced).unwrap_or(from))
        });
        Some(shuffled.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::pairs::tests::{any_stream, stream},
        *,
    };
    use proptest::prelude::*;

    /// Checks the rules at the head of this file by a search through the whole stream.
    fn check(events: &Events, part: Range<usize>, batch: usize, drawn: &[Pair], excluded: &HashSet<Pair>) {
        assert_eq!(drawn.len(), part.len());
        let pairs_where = |accepts: &dyn Fn(i64) -> bool| -> HashSet<Pair> {
            (0..events.len()).filter(|&i| accepts(events.time[i])).map(|i| pair_of(events, i)).collect()
        };
        for (at, drawn) in drawn.chunks(batch).enumerate() {
            let first = part.start + at * batch;
            let rows = first..first + drawn.len();
            let (t0, t1) = (events.time[rows.start], events.time[rows.end - 1]);
            let now = pairs_where(&|t| t0 <= t && t <= t1);
            let before: HashSet<Pair> = pairs_where(&|t| t < t0).difference(&now).copied().collect();
            let before: HashSet<Pair> = before.difference(excluded).copied().collect();
            let (known, rest) = drawn.split_at(drawn.len().min(before.len()));
            let unique = |v: &[Pair]| v.iter().copied().collect::<HashSet<_>>();
            assert!(unique(known).is_subset(&before), "batch {at}: {known:?} of {before:?}");
            assert_eq!(unique(known).len(), known.len(), "batch {at}");
            let in_batch: HashSet<Pair> = rows.map(|i| pair_of(events, i)).collect();
            let possible = |p: &Pair| events.src.contains(&p[0]) && events.dst.contains(&p[1]);
            assert!(rest.iter().all(|p| possible(p) && !in_batch.contains(p)), "batch {at}");
            let others = unique(&events.src.iter().map(|&s| [s, 0]).collect::<Vec<_>>()).len()
                * unique(&events.dst.iter().map(|&d| [0, d]).collect::<Vec<_>>()).len()
                - in_batch.len();
            assert!(others < rest.len() || unique(rest).len() == rest.len(), "batch {at}");
        }
    }

    /// Returns whether the events of some batch have every possible pair.
    fn exhausted(events: &Events, part: Range<usize>, batch: usize) -> bool {
        let all_pairs = AllPairs::new(events);
        part.clone().step_by(batch).any(|first| {
            let in_batch: HashSet<Pair> =
                (first..part.end.min(first + batch)).map(|i| pair_of(events, i)).collect();
            in_batch.len() == all_pairs.src.len() * all_pairs.dst.len()
        })
    }

    proptest! {
        #[test]
        fn negatives_obey_the_rules_and_are_the_same_for_the_same_seed(
            events in any_stream(), cut in 0usize..80, to in 0usize..80, batch in 1usize..20, seed: u64,
        ) {
            let first = cut.min(events.len() - 1);
            let part = first..events.len().min(first + to);
            let last = (first > 0).then(|| events.time[first - 1]);
            let observed = (0..events.len()).filter(|&i| last.is_some_and(|t| events.time[i] <= t));
            let observed: HashSet<Pair> = observed.map(|i| pair_of(&events, i)).collect();
            for excluded in [None, Some(observed)] {
                let draw = || match excluded {
                    None => historical(&events, part.clone(), batch, seed),
                    Some(_) => inductive(&events, part.clone(), batch, seed),
                };
                match draw() {
                    Ok(drawn) => {
                        check(&events, part.clone(), batch, &drawn, &excluded.clone().unwrap_or_default());
                        prop_assert_eq!(drawn, draw().unwrap());
                    }
                    Err(e) => prop_assert!(exhausted(&events, part.clone(), batch), "{}", e),
                }
            }
        }
    }

    /// Returns a stream with each of the twelve pairs of three sources and four destinations once, followed
    /// by `more`.
    fn grid(more: &[Pair]) -> Events {
        let twelve = (0..12).map(|i| [i / 4, 3 + i % 4]);
        let pairs: Vec<Pair> = twelve.chain(more.iter().copied()).collect();
        let time = (0..pairs.len() as i64).collect();
        stream(7, &pairs, time)
    }

    #[test]
    fn all_possible_pairs_are_equally_likely() {
        let events = grid(&[[0, 3], [1, 4], [2, 6]]);
        let times = |draw: &dyn Fn(u64) -> Vec<Pair>| {
            let mut times = HashMap::new();
            (0..2000).flat_map(draw).for_each(|pair| *times.entry(pair).or_insert(0) += 1);
            times
        };
        // Three historical negatives out of nine, then two random ones out of the ten pairs outside the
        // batch.
        let drawn = times(&|seed| historical(&events, 12..15, 3, seed).unwrap());
        assert!(drawn.len() == 9 && drawn.values().all(|n| (560..780).contains(n)), "{drawn:?}");
        let drawn = times(&|seed| historical(&events, 0..2, 2, seed).unwrap());
        assert!(drawn.len() == 10 && drawn.values().all(|n| (300..500).contains(n)), "{drawn:?}");
    }

    #[test]
    fn the_draws_depend_on_the_seed_the_batch_and_the_kind() {
        let more: Vec<Pair> = (0..8).map(|_| [0, 3]).collect();
        let events = grid(&more);
        let draw = |seed| historical(&events, 12..20, 4, seed).unwrap();
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[..4], draw(1)[4..]);
        assert_ne!(inductive(&events, 12..20, 4, 1).unwrap(), draw(1), "every pair was observed");
    }

    #[test]
    fn a_batch_with_every_pair_is_refused() {
        let e = historical(&grid(&[]), 0..12, 12, 1).unwrap_err();
        assert!(e.to_string().contains("events 0 to 11 have every pair"), "{e}");
        assert!(historical(&stream(2, &[[0, 1]; 3], vec![0, 1, 2]), 1..3, 1, 1).is_err());
        assert_eq!(historical(&grid(&[]), 12..12, 5, 1).unwrap(), Vec::<Pair>::new());
    }
}
