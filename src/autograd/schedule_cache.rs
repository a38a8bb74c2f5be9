//! Caches the schedules of the last windows.
use super::{lanes::MAX_LANES, schedule::Schedule, variant::Variant, windows::Window};
use crate::{error::Result, runtime::cuda::CudaGraph};

/// Number of schedules that are cached.
const CACHED: usize = 8;

/// A schedule, with its window.
pub(super) struct CachedSchedule {
    variant_of_run: Vec<usize>,
    updates: usize,
    begins: bool,
    pub schedule: Schedule,
    /// On a device, its launches as a graph, from the second use on.
    pub graph: Option<CudaGraph>,
    /// Number of uses.
    pub uses: usize,
}

impl CachedSchedule {
    fn window(&self) -> Window<'_> {
        let Self { variant_of_run, updates, begins, .. } = self;
        Window { first: 0, variant_of_run, updates: *updates, begins: *begins }
    }
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
    /// Returns the number of runs whose values each lane holds at the same time.
    pub fn buffer_depth(&self) -> &[usize; MAX_LANES] {
        &self.buffer_depth
    }
    /// Returns the schedule of a window.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of(&mut self, variants: &[Variant], window: Window<'_>) -> Result<&mut CachedSchedule> {
        let Window { variant_of_run, updates, begins, .. } = window;
        let found = self.cached.iter().position(|cached| cached.window().is_like(window));
        let mut cached = match found {
            Some(at) => self.cached.remove(at),
            None => {
                let schedule = Schedule::of(variants, window, self.buffer_depth)?;
                self.cached.truncate(CACHED - 1);
                let variant_of_run = variant_of_run.to_vec();
                CachedSchedule { variant_of_run, updates, begins, schedule, graph: None, uses: 0 }
            }
        };
        cached.uses += 1;
        self.cached.insert(0, cached);
        Ok(&mut self.cached[0])
    }
}
