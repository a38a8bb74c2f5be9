//! What `predict` reports at its end.
use crate::output::tell;
use std::time::Duration;
use tgnn::{error::Error, runtime::peak_memory_bytes};
use tgnn_data::text::counted;

/// A histogram of times in logarithmic classes about 2 % wide, so that memory does not grow with the number
/// of times.
pub(super) struct Latencies {
    classes: Vec<u64>,
    max: Duration,
}

impl Latencies {
    /// Number of classes per power of two.
    const CLASSES_PER_OCTAVE: f64 = 32.0;

    /// Returns the class of a time.
    fn class(time: Duration) -> usize {
        ((time.as_nanos().max(1) as f64).log2() * Self::CLASSES_PER_OCTAVE) as usize
    }
    /// Adds a time, `count` times.
    fn add(&mut self, time: Duration, count: u64) {
        let class = Self::class(time);
        self.classes.resize(self.classes.len().max(class + 1), 0);
        self.classes[class] += count;
        self.max = self.max.max(time);
    }
    /// Returns the nanoseconds that the given fraction of all times does not exceed: the upper end of a
    /// class, but at most the largest time.
    fn quantile(&self, fraction: f64) -> f64 {
        let mut left = fraction * self.classes.iter().sum::<u64>() as f64;
        let class = self.classes.iter().position(|&n| {
            left -= n as f64;
            left <= 0.0
        });
        class.map_or(0.0, |c| {
            ((c + 1) as f64 / Self::CLASSES_PER_OCTAVE).exp2().min(self.max.as_nanos() as f64)
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { classes: Vec::new(), max: Duration::ZERO }
    }
}

/// The statistics printed at the end.
#[derive(Default)]
pub(super) struct Statistics {
    pub events: u64,
    /// Candidates of lines, beside their events.
    pub candidates: u64,
    /// Lines that are no events.
    skipped: u64,
    /// Why the first of them is none.
    first_skipped: Option<String>,
    batches: u64,
    batch_latencies: Latencies,
    event_latencies: Latencies,
}

impl Statistics {
    /// Adds a batch of `events` events that took `time`.
    pub fn add(&mut self, time: Duration, events: usize) {
        self.events += events as u64;
        self.batches += 1;
        self.batch_latencies.add(time, 1);
        self.event_latencies.add(time / events.max(1) as u32, events as u64);
    }
    /// Adds a line that `e` refused.
    pub fn skip(&mut self, e: &Error) {
        self.skipped += 1;
        self.first_skipped.get_or_insert_with(|| e.to_string());
    }
    /// Prints the statistics to standard error.
    pub fn print(&self, known: &str, seconds: f64, batch: usize) {
        let line = |l: &Latencies| {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|fraction| l.quantile(fraction) / 1e3);
            let max = l.max.as_secs_f64() * 1e6;
            format!("p50 {p50:.0} us, p90 {p90:.0} us, p99 {p99:.0} us, at most {max:.0} us")
        };
        let (mut events, steps) = (counted(self.events, "event"), counted(self.batches, "step"));
        if self.candidates > 0 {
            events =
                format!("{} and {}", counted(self.events, "line"), counted(self.candidates, "candidate"));
        }
        tell(format_args!("scored    {events} in {steps} of at most {batch}, {known}"));
        tell(format_args!("speed     {:.0} events/s, {seconds:.2} s", self.events as f64 / seconds));
        tell(format_args!("a step    {}", line(&self.batch_latencies)));
        tell(format_args!("an event  {}", line(&self.event_latencies)));
        if let Some(first) = &self.first_skipped {
            tell(format_args!("skipped   {}, the first: {first}", counted(self.skipped, "line")));
        }
        tell(format_args!("memory    {:.0} MiB at most", peak_memory_bytes() as f64 / f64::from(1u32 << 20)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_up_to_a_class_and_the_maximum_is_exact() {
        let mut l = Latencies::default();
        (1..=1000).for_each(|i| l.add(Duration::from_micros(i), 1));
        for (fraction, want) in [(0.5, 500e3), (0.9, 900e3), (0.99, 990e3), (1.0, 1e6)] {
            let found = l.quantile(fraction);
            assert!((want..want * 1.05).contains(&found), "{fraction}: {found}");
        }
        assert_eq!((l.max, Latencies::default().quantile(0.5)), (Duration::from_millis(1), 0.0));
    }
}
