//! Mean and standard deviation over seeds.
use serde::Serialize;

/// Mean and standard deviation of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistic {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (divided by n - 1); `None` for a single number.
    pub deviation: Option<f64>,
    /// How many numbers.
    pub n: usize,
}

impl Statistic {
    /// Returns the statistic of `numbers`; `None` if there are none.
    pub fn new(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.into_iter().collect();
        let n = numbers.len();
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
        let deviation = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        (n > 0).then_some(Statistic { mean, deviation, n })
    }
}

/// Returns the median of `numbers`; `None` if there are none.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    let (low, high) = (numbers.len().checked_sub(1)? / 2, numbers.len() / 2);
    Some((numbers[low] + numbers[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_deviation_and_median_are_those_computed_by_hand() {
        let s = Statistic::new([2.0, 4.0, 9.0]).unwrap();
        // Squared distances from 5: 9, 1 and 16.
        assert_eq!((s.mean, s.deviation, s.n), (5.0, Some(13f64.sqrt()), 3));
        assert_eq!(Statistic::new([0.5]), Some(Statistic { mean: 0.5, deviation: None, n: 1 }));
        assert_eq!(Statistic::new([]), None);
        assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0])), (Some(2.0), Some(2.5)));
        assert_eq!(median([]), None);
    }
}
