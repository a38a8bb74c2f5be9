//! The schedules of a pass: its runs cut into windows, and the schedules of the last windows.
use super::{lanes::MAX_LANES, run::VariantRuns, schedule::Schedule, variant::Variant};
use crate::{error::Result, runtime::cuda::CudaGraph};

/// Maximum number of nodes of a window, unless a single run has more. At the end of a window lanes wait for
/// each other, and a schedule takes memory.
const MAX_NODES: usize = 1 << 12;
/// Number of schedules that are cached.
const CACHED: usize = 8;

/// Cuts runs into windows that are scheduled together. If possible, a window ends after a run that has one
/// lane to itself.
pub(super) fn windows<'a>(variants: &[Variant], variant_of_run: &'a [usize]) -> Vec<&'a [usize]> {
    let (mut windows, mut rest) = (Vec::new(), variant_of_run);
    while !rest.is_empty() {
        let mut nodes = 0;
        let mut fits = |&&variant: &&usize| {
            nodes += variants[variant].nodes.len();
            nodes <= MAX_NODES
        };
        let fit = rest.iter().take_while(&mut fits).count().max(1);
        let alone = rest[..fit].iter().rposition(|&variant| variants[variant].alone);
        let end = if fit == rest.len() { fit } else { alone.map_or(fit, |at| at + 1) };
        let (window, later) = rest.split_at(end);
        windows.push(window);
        rest = later;
    }
    windows
}

/// A schedule, with the variants of its runs.
pub(super) struct CachedSchedule {
    variant_of_run: Vec<usize>,
    pub schedule: Schedule,
    /// On a device, its launches as a graph, from the second use on.
    pub graph: Option<CudaGraph>,
    /// Number of uses.
    pub uses: usize,
}

/// The schedules that were used last, the latest first.
pub(super) struct ScheduleCache {
    cached: Vec<CachedSchedule>,
    buffer_depth: [usize; MAX_LANES],
}

impl ScheduleCache {
    /// Returns an empty cache. Each lane holds the values of `buffer_depth` runs at the same time.
    pub fn new(buffer_depth: [usize; MAX_LANES]) -> Self {
        ScheduleCache { cached: Vec::new(), buffer_depth }
    }
    /// Returns the schedule of a window.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of(&mut self, window: VariantRuns<'_>) -> Result<&mut CachedSchedule> {
        let VariantRuns { variants, variant_of_run } = window;
        let found = self.cached.iter().position(|cached| cached.variant_of_run == variant_of_run);
        let mut cached = match found {
            Some(at) => self.cached.remove(at),
            None => {
                let schedule = Schedule::of(variants, variant_of_run, self.buffer_depth)?;
                self.cached.truncate(CACHED - 1);
                CachedSchedule { variant_of_run: variant_of_run.to_vec(), schedule, graph: None, uses: 0 }
            }
        };
        cached.uses += 1;
        self.cached.insert(0, cached);
        Ok(&mut self.cached[0])
    }
}
