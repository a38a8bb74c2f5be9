//! Philox4x32-10, a counter-based random number generator.
//!
//! A draw is a pure function of a key and a counter, so every device and every number of threads or ranks
//! gets the same numbers. The key combines the run's seed and the salt of the op that draws; the counter is
//! `(index, epoch, batch)`. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

const ROUNDS: usize = 10;
const MULTIPLIERS: (u32, u32) = (0xD251_1F53, 0xCD9E_8D57);
const WEYL: (u32, u32) = (0x9E37_79B9, 0xBB67_AE85);

/// Everything that determines a draw except its index: the run's seed, the op's salt, the epoch and the
/// batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Seed and salt, as [`key_words`] combines them.
    key: [u32; 2],
    /// Epoch and batch.
    clock: [u32; 2],
    /// Added to every index.
    first: u64,
}

/// Returns the low word of the run's seed, and its high word mixed with the salt of the op.
pub fn key_words(seed: u64, salt: u32) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32 ^ salt.wrapping_mul(0x85EB_CA6B)]
}

impl Key {
    /// Returns the key of the op with `salt` in a run with `seed`, at `clock = [epoch, batch]`.
    pub fn new(seed: u64, salt: u32, clock: [u32; 2]) -> Self {
        Key { key: key_words(seed, salt), clock, first: 0 }
    }
    /// Returns the key at the clock `now`: epoch and batch, and optionally how many events of the batch come
    /// before those that draw. The latter draw `per_event` numbers each.
    ///
    /// # Panics
    /// If `now` has fewer than two words.
    pub fn at(seed: u64, salt: u32, now: &[u32], per_event: usize) -> Self {
        let before = now.get(2).map_or(0, |&events| u64::from(events));
        Key { first: before * per_event as u64, ..Self::new(seed, salt, [now[0], now[1]]) }
    }
    /// Returns the index of the first draw: what all indices are counted from.
    pub fn first(self) -> u64 {
        self.first
    }
    /// Returns four uniform 32-bit words for `index`, counted from 0.
    #[inline(always)]
    pub fn draw(self, index: u64) -> [u32; 4] {
        philox([index as u32, (index >> 32) as u32, self.clock[0], self.clock[1]], self.key)
    }
    /// Returns a uniform integer below `n` for `index`; 0 if `n` is 0. The bias is below n / 2^32.
    #[inline(always)]
    pub fn below(self, index: u64, n: u32) -> u32 {
        ((u64::from(self.draw(self.first + index)[0]) * u64::from(n)) >> 32) as u32
    }
    /// Returns eight uniform 16-bit numbers for `index`, counted from 0: precise enough for a dropout mask,
    /// at an eighth of a draw each.
    #[inline(always)]
    pub fn draw_u16(self, index: u64) -> [u16; 8] {
        let w = self.draw(index);
        std::array::from_fn(|i| (w[i / 2] >> (16 * (i % 2))) as u16)
    }
}

#[inline(always)]
fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIERS.0) * u64::from(c[0]);
        let b = u64::from(MULTIPLIERS.1) * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(WEYL.0), k[1].wrapping_add(WEYL.1)];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: known answers in the authors' Random123 distribution (kat_vectors, philox4x32 10).
    #[test]
    fn philox_returns_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let key = Key::new(7, 1, [0, 0]);
        let mut seen = [0; 5];
        (0..1000).for_each(|i| seen[key.below(i, 5) as usize] += 1);
        assert!(seen.iter().all(|&n| n > 150), "{seen:?}");
        assert_eq!(key.below(3, 0), 0);
    }
}
