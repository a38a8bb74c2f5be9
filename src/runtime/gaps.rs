//! Time gaps, as models see them.

/// Conversion of the ticks between two events to seconds: the difference is exact in i64, is limited to
/// `longest`, and is then multiplied in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// Length of a tick, in seconds.
    pub seconds_per_tick: f32,
    /// Longest gap, in ticks; longer gaps count as this one.
    pub longest: i64,
}

impl Gaps {
    /// Returns a conversion that leaves gaps of every length as they are.
    pub fn unlimited(seconds_per_tick: f32) -> Self {
        Gaps { seconds_per_tick, longest: i64::MAX }
    }
    /// Returns the seconds from tick `from` to tick `to`.
    pub fn seconds(self, from: i64, to: i64) -> f32 {
        to.saturating_sub(from).min(self.longest) as f32 * self.seconds_per_tick
    }
}

#[cfg(test)]
mod tests {
    use super::Gaps;

    #[test]
    fn a_gap_is_exact_up_to_the_longest() {
        let far = 1 << 60;
        assert_eq!(Gaps::unlimited(0.5).seconds(far, far + 3), 1.5);
        let gaps = Gaps { seconds_per_tick: 0.5, longest: 10 };
        assert_eq!([3, 10, 11, far].map(|to| gaps.seconds(0, to)), [1.5, 5.0, 5.0, 5.0]);
    }
}
