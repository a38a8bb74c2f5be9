//! Gaps of time, as models see them.

/// How the ticks between two events become seconds: exact in i64, then saturated, then one f32 product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// Length of a tick.
    pub seconds_per_tick: f32,
    /// Ticks that a longer gap counts as.
    pub longest: i64,
}

impl Gaps {
    /// Every gap counts as what it is.
    pub fn unlimited(seconds_per_tick: f32) -> Self {
        Gaps { seconds_per_tick, longest: i64::MAX }
    }
    /// Seconds from one tick to another.
    pub fn seconds(self, from: i64, to: i64) -> f32 {
        to.saturating_sub(from).min(self.longest) as f32 * self.seconds_per_tick
    }
}

#[cfg(test)]
mod tests {
    use super::Gaps;

    #[test]
    fn a_gap_is_exact_until_it_is_cut() {
        let far = 1 << 60;
        assert_eq!(Gaps::unlimited(0.5).seconds(far, far + 3), 1.5);
        let gaps = Gaps { seconds_per_tick: 0.5, longest: 10 };
        assert_eq!([3, 10, 11, far].map(|to| gaps.seconds(0, to)), [1.5, 5.0, 5.0, 5.0]);
    }
}
