//! Random draws for synthetic streams: uniform numbers, power-law ranks, scattered ids.
use super::features::hash;

/// A sequence of draws from the counter-based generator [`hash`].
pub(super) struct Draws {
    seed: u64,
    counter: u64,
}

impl Draws {
    /// Starts the sequence of `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Draws { seed, counter: 0 }
    }
    fn next(&mut self) -> u64 {
        self.counter += 1;
        hash(self.seed, self.counter)
    }
    /// Draws a number uniform in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
    /// Returns true with the given probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
    /// Draws a number uniform in `0..n`; the bias is below `n / 2^64`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// A distribution over the ranks `0..n` with weights close to `(rank + 1)^-exponent`: the continuous power
/// law on `[1, n + 1)`, rounded down. Its distribution function inverts in closed form, so a draw takes
/// constant time and no table.
pub(super) struct PowerLaw {
    n: usize,
    power: f64,
    span: f64,
}

impl PowerLaw {
    pub(super) fn new(n: usize, exponent: f64) -> Self {
        let power = 1.0 - exponent;
        let end = n as f64 + 1.0;
        // At an exponent of 1 the density's integral is a logarithm; a power of exactly 0 marks this case.
        let power = if power.abs() < 1e-9 { 0.0 } else { power };
        PowerLaw { n, power, span: if power == 0.0 { end.ln() } else { end.powf(power) - 1.0 } }
    }

    /// Maps `unit`, uniform in `[0, 1)`, to a rank.
    pub(super) fn rank(&self, unit: f64) -> usize {
        let position = if self.power == 0.0 {
            (unit * self.span).exp()
        } else {
            (1.0 + unit * self.span).powf(1.0 / self.power)
        };
        // Saturates and clamps because rounding may leave the interval.
        (position as usize).saturating_sub(1).min(self.n.saturating_sub(1))
    }
}

/// A bijection of `0..n` without an obvious pattern: multiplication modulo `n` by a factor coprime to `n`.
pub(super) struct Scatter {
    n: u64,
    factor: u64,
}

impl Scatter {
    pub(super) fn new(n: usize) -> Self {
        let n = n as u64;
        let mut factor = (n as f64 * 0.618_033_988_749_895) as u64 | 1;
        while gcd(factor, n) != 1 {
            factor += 2;
        }
        Scatter { n, factor }
    }

    /// Maps `rank` to an id. `rank` is below `n < 2^32`, so the product fits 64 bits.
    pub(super) fn id(&self, rank: usize) -> usize {
        (rank as u64 * self.factor % self.n) as usize
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_power_law_has_the_documented_weights() {
        let (law, mut draws) = (PowerLaw::new(3, 1.0), Draws::new(5));
        let mut counts = [0f64; 3];
        (0..100_000).for_each(|_| counts[law.rank(draws.unit())] += 1e-5);
        // The integrals of 1/x over [1, 2), [2, 3) and [3, 4), divided by the integral over [1, 4).
        let wanted = [1.0f64, 2.0, 3.0].map(|x| ((x + 1.0) / x).ln() / 4f64.ln());
        assert!(counts.iter().zip(wanted).all(|(c, w)| (c - w).abs() < 0.01), "{counts:?} {wanted:?}");
    }

    proptest! {
        #[test]
        fn scattering_is_a_bijection(n in 1usize..500) {
            let scatter = Scatter::new(n);
            let mut ids: Vec<_> = (0..n).map(|r| scatter.id(r)).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..n).collect::<Vec<_>>());
        }

        #[test]
        fn a_rank_is_below_its_bound(n in 1usize..1000, exponent in 0f64..10.0, unit in 0f64..1.0) {
            prop_assert!(PowerLaw::new(n, exponent).rank(unit) < n);
        }
    }
}
