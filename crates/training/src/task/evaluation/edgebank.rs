//! EdgeBank, a baseline that memorises pairs and learns nothing. A memorised pair scores 1, every other pair
//! 0.
//!
//! Source: Poursafaei et al., "Towards better evaluation for dynamic link prediction", NeurIPS 2022, in
//! DyGLib's variant: for a batch, the memory holds the pairs of all events before the batch, whichever part
//! they belong to. Here the memory may also hold, for each event, those of all strictly earlier events.
use super::{
    Pair,
    pairs::{PairTable, pair_of},
};
use std::ops::Range;
use tgnn::ops::sample_neighbors::History;
use tgnn_data::Events;

/// Which pairs EdgeBank remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EdgeBank {
    /// Every pair with a known event.
    Unlimited,
    /// Pairs of the events at or after the `1 - fraction` quantile of the times of all known events,
    /// interpolated as NumPy does: about the last `fraction` of these events. The length of this window in
    /// time changes with every batch. Equals DyGLib's `time_window_memory` with `fixed_proportion` if
    /// `fraction` is the fraction of the test part, and the events before the batch are known.
    Window {
        /// Fraction of the known events, 0 to 1.
        fraction: f64,
    },
}

impl EdgeBank {
    /// Scores every event of `part`, in batches of `batch` events. Known are all events before the batch
    /// ([`History::Batch`]), or all that are strictly earlier ([`History::Time`]). Returns the table that
    /// [`Scores::from_table`](super::Scores::from_table) reads: `[events, candidates]`, with the event itself
    /// in column 0, followed by the pairs that `negatives` returns for the event. Missing pairs score 0,
    /// surplus pairs are ignored.
    ///
    /// Takes nearly linear time in the number of events and candidates.
    pub fn scores<P: IntoIterator<Item = Pair>>(
        self,
        events: &Events,
        (part, batch): (Range<usize>, usize),
        history: History,
        candidates: usize,
        negatives: impl Fn(usize) -> P,
    ) -> Vec<f32> {
        let pairs =
            |event: usize| std::iter::once(pair_of(events, event)).chain(negatives(event)).take(candidates);
        // The number of each pair's latest event, from 1.
        let mut latest = PairTable::<u32>::new(part.clone().flat_map(pairs), events.len());
        let (mut known, mut oldest) = (0, 0);
        let mut table = vec![0.0; part.len() * candidates];
        for (event, row) in part.clone().zip(table.chunks_mut(candidates.max(1))) {
            let end = match history {
                History::Batch => event - (event - part.start) % batch.max(1),
                History::Time => {
                    known + events.time[known..event].partition_point(|&t| t < events.time[event])
                }
            };
            if end > known {
                for at in known..end {
                    latest
                        .get_mut(pair_of(events, at))
                        .into_iter()
                        .for_each(|latest| *latest = at as u32 + 1);
                }
                (known, oldest) = (end, self.oldest(&events.time[..end]));
            }
            for (score, pair) in row.iter_mut().zip(pairs(event)) {
                *score = f32::from(u8::from(latest.get(pair) as usize > oldest));
            }
        }
        table
    }
    /// Returns the first event to remember, given the times of the known events.
    fn oldest(self, time: &[i64]) -> usize {
        let (EdgeBank::Window { fraction }, Some(last)) = (self, time.len().checked_sub(1)) else { return 0 };
        let at = (1.0 - fraction).clamp(0.0, 1.0) * last as f64;
        let [below, above] = [at as usize, last.min(at as usize + 1)].map(|i| time[i] as f64);
        let since = below + (above - below) * at.fract();
        time.partition_point(|&t| (t as f64) < since)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Scores, negatives,
            pairs::tests::{any_stream, stream},
        },
        *,
    };
    use proptest::prelude::*;
    use std::collections::HashSet;
    use tgnn::{
        ops::{Backend, Tape, draw_negatives::negative},
        runtime::{philox::Key, *},
    };

    proptest! {
        #[test]
        fn a_pair_scores_1_exactly_if_a_known_event_in_the_window_has_it(
            events in any_stream(), from in 0usize..80, batch in 1usize..20, eighths in prop::option::of(0usize..9), m in 0usize..4,
            by_time in any::<bool>(),
        ) {
            let part = from.min(events.len())..events.len();
            let bank = eighths.map_or(EdgeBank::Unlimited, |n| EdgeBank::Window { fraction: n as f64 / 8.0 });
            let negatives = |event: usize| (0..m).map(move |j| [(event % 7) as u32, j as u32]);
            let table = bank.scores(&events, (part.clone(), batch), if by_time { History::Time } else { History::Batch }, 1 + m, negatives);
            prop_assert_eq!(table.len(), part.len() * (1 + m));
            for (event, row) in part.clone().zip(table.chunks(1 + m)) {
                let first = match by_time {
                    true => (0..event).filter(|&i| events.time[i] < events.time[event]).count(),
                    false => event - (event - part.start) % batch,
                };
                // In eighths of a tick, because the quantile may lie between two ticks.
                let since = eighths.filter(|_| first > 0).map_or(0, |n| {
                    let (low, between) = ((first - 1) * (8 - n) / 8, (first - 1) * (8 - n) % 8);
                    let (below, above) = (events.time[low], events.time[(low + 1).min(first - 1)]);
                    8 * below + (above - below) * between as i64
                });
                let memory: HashSet<Pair> =
                    (0..first).filter(|&i| 8 * events.time[i] >= since).map(|i| pair_of(&events, i)).collect();
                let pairs = std::iter::once(pair_of(&events, event)).chain(negatives(event));
                let want: Vec<f32> = pairs.map(|p| f32::from(u8::from(memory.contains(&p)))).collect();
                prop_assert_eq!(row, &want[..], "event {}", event);
            }
        }
    }

    #[test]
    fn the_window_begins_at_the_same_quantile_as_in_numpy() {
        let time = vec![0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89];
        let oldest = |fraction| EdgeBank::Window { fraction }.oldest(&time);
        // numpy.quantile(time, [0.85, 0.5, 0.8, 0.1, 1, 0]) is 41.35, 6.5, 31.4, 1, 89, 0.
        assert_eq!([0.15, 0.5, 0.2, 0.9, 0.0, 1.0].map(oldest), [10, 6, 9, 1, 11, 0]);
    }

    #[test]
    fn lists_that_are_too_long_or_too_short_do_not_change_the_width_of_the_table() {
        let events = stream(3, &[[0, 1], [0, 2], [0, 1]], vec![0, 1, 2]);
        let lists = [vec![], vec![[0, 1]], vec![[0, 2], [0, 1], [0, 1]]];
        let table =
            EdgeBank::Unlimited.scores(&events, (0..3, 1), History::Batch, 3, |event| lists[event].clone());
        assert_eq!(table, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn historical_negatives_score_as_high_as_repeated_events() {
        let pairs: Vec<Pair> = (0..40).map(|i| [i % 5, 5 + i % 7]).collect();
        let events = stream(12, &pairs, (0..40).collect());
        let drawn = negatives::historical(&events, 35..40, 5, 3).unwrap();
        let table =
            EdgeBank::Unlimited.scores(&events, (35..40, 5), History::Batch, 2, |event| [drawn[event - 35]]);
        assert_eq!(Scores::from_table(&table, 2, None).auc, Some(0.5));
        assert!(table.iter().skip(1).step_by(2).all(|&score| score == 1.0));
    }

    #[test]
    fn the_host_reproduces_the_negatives_that_a_program_draws() {
        let (n, batch, m, seed, salt, epoch) = (10, 4, 3, 7 << 40, 9, 2);
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let events = stream(2, &[[0, 1]; 10], vec![0; 10]);
        let tables = crate::model::EventTables::new(&mut store, &events).unwrap();
        let pool: Vec<u32> = (0..50).map(|i| 3 * i).collect();
        let on_device = store.values("pool", Spec::ids(Rows::fixed(pool.len()), 1), &pool).unwrap();
        let on_device = t.stored(on_device).unwrap();
        let b = tables.next_batch(&mut t, batch).unwrap();
        let drawn = t.draw_negatives(on_device, b.now, b.src, m, seed, salt).unwrap();
        let mut program = tgnn::autograd::Program::new(&t, &[drawn], Precision::F32, Backend::Cpu).unwrap();
        tables.seek(&mut store, epoch, 0..n, 0).unwrap();
        let mut drawn_by_program = Vec::new();
        for _ in 0..n.div_ceil(batch) {
            program.run(&mut store).unwrap();
            drawn_by_program.extend_from_slice(program.read::<u32>(drawn, &store).unwrap());
        }
        let by_event = |event: usize| {
            let key = Key::new(seed, salt, [epoch, (event / batch) as u32]);
            (0..m).map(move |column| (key, (event % batch, column)))
        };
        let drawn_on_host: Vec<u32> =
            (0..n).flat_map(by_event).map(|(key, at)| negative(&pool, key, m, at)).collect();
        assert_eq!(drawn_by_program, drawn_on_host);
        assert!(drawn_on_host.iter().collect::<HashSet<_>>().len() > 10);
    }
}
