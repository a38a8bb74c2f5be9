//! The schedules of a pass: its runs in windows, and the last of them kept.
use super::{lanes::LANES, schedule::Schedule, variant::Variant};
use crate::{error::Result, runtime::cuda::CudaGraph};

/// Steps of a schedule, or hardly more: at its end lanes wait for one another, and what is known of it takes room.
const STEPS: usize = 1 << 12;
/// Schedule that are kept.
const KEPT: usize = 8;

/// Cuts runs into those that are scheduled together; behind a run that is on one lane alone, where there is any.
pub(super) fn windows<'a>(variants: &[Variant], variant_of_run: &'a [usize]) -> Vec<&'a [usize]> {
    let (mut windows, mut rest) = (Vec::new(), variant_of_run);
    while !rest.is_empty() {
        let mut steps = 0;
        let mut fits = |&&variant: &&usize| {
            steps += variants[variant].nodes.len();
            steps <= STEPS
        };
        let fit = rest.iter().take_while(&mut fits).count().max(1);
        let end = rest[..fit].iter().rposition(|&variant| variants[variant].alone).map_or(fit, |at| at + 1);
        let (window, later) = rest.split_at(if fit == rest.len() { fit } else { end });
        windows.push(window);
        rest = later;
    }
    windows
}

/// A schedule that was made, of which runs.
pub(super) struct CachedSchedule {
    variant_of_run: Vec<usize>,
    pub schedule: Schedule,
    /// On a device, its launches, from its second time on.
    pub graph: Option<CudaGraph>,
    /// Times that it was asked for.
    pub times: usize,
}

/// The last schedules that were made.
pub(super) struct ScheduleCache {
    known: Vec<CachedSchedule>,
    depth: [usize; LANES],
}

impl ScheduleCache {
    /// None so far; `depth` are how many runs of a lane have values at a time.
    pub fn new(depth: [usize; LANES]) -> Self {
        ScheduleCache { known: Vec::new(), depth }
    }
    /// The schedule of runs in these variants.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of(&mut self, variants: &[Variant], variant_of_run: &[usize]) -> Result<&mut CachedSchedule> {
        let mut known = match self.known.iter().position(|known| known.variant_of_run == variant_of_run) {
            Some(at) => self.known.remove(at),
            None => {
                let schedule = Schedule::of(variants, variant_of_run, self.depth)?;
                self.known.truncate(KEPT - 1);
                CachedSchedule { variant_of_run: variant_of_run.to_vec(), schedule, graph: None, times: 0 }
            }
        };
        known.times += 1;
        self.known.insert(0, known);
        Ok(&mut self.known[0])
    }
}
