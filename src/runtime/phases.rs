//! What the time goes to until a device is busy.
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Seconds by phase, in the order in which the phases first ended.
#[derive(Debug, Default)]
pub(crate) struct Phases(Mutex<Vec<(&'static str, f64)>>);

impl Phases {
    /// Does some work as a phase. What it does as other phases counts as theirs.
    pub fn time<T>(&self, phase: &'static str, work: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), self.total());
        let done = work();
        let of_others = self.total() - before;
        self.add(phase, (began.elapsed().as_secs_f64() - of_others).max(0.0));
        done
    }
    /// Adds seconds to a phase.
    pub fn add(&self, phase: &'static str, seconds: f64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|(known, _)| *known == phase) {
            Some((_, sum)) => *sum += seconds,
            None => all.push((phase, seconds)),
        }
    }
    /// Returns all phases.
    pub fn all(&self) -> Vec<(&'static str, f64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn total(&self) -> f64 {
        self.all().iter().map(|(_, seconds)| seconds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_phase_within_another_one_counts_once() {
        let phases = Phases::default();
        let hour = 3600.0;
        let done = phases.time("memory", || {
            phases.add("upload", hour);
            7
        });
        phases.add("upload", hour);
        assert_eq!((done, phases.all()), (7, vec![("upload", 2.0 * hour), ("memory", 0.0)]));
    }
}
