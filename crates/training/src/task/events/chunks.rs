//! Random chunk scheduling: batches begin at different events in every epoch, so that a model also learns
//! across the borders of batches.
//!
//! Source: Zhou et al., "TGL: A general framework for temporal GNN training on billion-scale graphs", VLDB
//! 2022, algorithm 2.
use tgnn::runtime::philox::Key;

/// Salt of the random draw.
const SALT: u32 = 0x6368;

/// Returns the number of events of an epoch's first batch: `i * batch / chunks` with `i` drawn uniformly from
/// `0..chunks`, or `batch` if that is 0. All other batches are whole, except the last one. The result depends
/// on the arguments only.
pub fn first_batch(seed: u64, epoch: u32, batch: usize, chunks: usize) -> usize {
    let i = Key::new(seed, SALT, [epoch, 0]).below(0, chunks as u32) as usize;
    match i * batch / chunks.max(1) {
        0 => batch,
        first => first,
    }
}

/// Returns the number of batches of a pass over `events` events if the first batch has at most `first` events
/// and every other one at most `batch`.
pub fn batches(events: usize, batch: usize, first: usize) -> usize {
    usize::from(events > 0) + events.saturating_sub(first).div_ceil(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_has_any_number_of_chunks_with_equal_probability() {
        let mut drawn = [0; 4];
        for epoch in 0..1000 {
            let first = first_batch(7, epoch, 200, 4);
            assert_eq!(first, first_batch(7, epoch, 200, 4));
            assert!(first.is_multiple_of(50) && (50..=200).contains(&first));
            drawn[first / 50 - 1] += 1;
        }
        assert!(drawn.iter().all(|&n| (200..300).contains(&n)), "{drawn:?}");
        assert!((0..100).any(|epoch| first_batch(7, epoch, 200, 4) != first_batch(8, epoch, 200, 4)));
    }

    #[test]
    fn the_first_batch_is_valid_if_chunks_do_not_divide_the_batch() {
        for (batch, chunks) in [(1, 1), (1, 8), (7, 3), (7, 20), (200, 0), (200, 1), (1 << 20, 1000)] {
            for epoch in 0..50 {
                let first = first_batch(1, epoch, batch, chunks);
                assert!((1..=batch).contains(&first));
                assert!(chunks > 1 || first == batch);
            }
        }
    }

    #[test]
    fn the_number_of_batches_covers_all_events() {
        for (events, first, want) in
            [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (9, 1, 3), (8, 3, 3), (7, 3, 2), (2, 3, 1)]
        {
            assert_eq!(batches(events, 4, first), want, "{events} events, {first} in the first batch");
        }
    }
}
