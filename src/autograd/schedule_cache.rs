//! Caches the schedules of the last windows.
use super::{
    lanes::MAX_LANES,
    schedule::Schedule,
    timed_graph::TimedGraph,
    variant::Variant,
    windows::{Window, windows},
};
use crate::{error::Result, runtime::cuda::CudaGraph};

/// Number of schedules that are cached.
const CACHED: usize = 8;

/// A schedule, with its window.
pub(super) struct CachedSchedule {
    variant_of_run: Vec<usize>,
    updates: usize,
    begins: bool,
    prepares: bool,
    pub schedule: Schedule,
    /// An order of all nodes, as (lane, index) pairs, in which every node follows those that it waits for. It
    /// is the same on ranks that leave out different nodes, so what issues nodes one after the other never
    /// waits for a rank that waits for it.
    pub order: Vec<(usize, usize)>,
    /// On a device, its launches as a graph, from the second use on.
    pub graph: Option<CudaGraph>,
    /// On a device, if ops are timed: its launches as graphs that also record times.
    pub timed: Vec<TimedGraph>,
    /// Number of uses.
    pub uses: usize,
}

impl CachedSchedule {
    fn window(&self) -> Window<'_> {
        let &Self { ref variant_of_run, updates, begins, prepares, .. } = self;
        Window { first: 0, variant_of_run, updates, begins, prepares }
    }
}

/// The schedules that were used last, the latest first.
pub(super) struct ScheduleCache {
    cached: Vec<CachedSchedule>,
    buffer_depth: [usize; MAX_LANES],
    /// Whether windows prepare the first runs of the next one.
    prepares: bool,
}

impl ScheduleCache {
    /// Returns an empty cache. Each lane holds the values of `buffer_depth` runs at the same time. If
    /// `prepares`, windows prepare the first runs of the next one.
    pub fn new(buffer_depth: [usize; MAX_LANES], prepares: bool) -> Self {
        ScheduleCache { cached: Vec::new(), buffer_depth, prepares }
    }
    /// Cuts runs into [windows](fn@windows).
    pub fn windows<'a>(&self, variants: &[Variant], variant_of_run: &'a [usize]) -> Vec<Window<'a>> {
        windows(variants, variant_of_run, &self.buffer_depth, self.prepares)
    }
    /// Returns the schedule of a window.
    ///
    /// # Errors
    /// As [`Schedule::for_window`].
    pub fn get(&mut self, variants: &[Variant], window: Window<'_>) -> Result<&mut CachedSchedule> {
        let Window { variant_of_run, updates, begins, prepares, .. } = window;
        let found = self.cached.iter().position(|cached| cached.window().is_like(window));
        let mut cached = match found {
            Some(at) => self.cached.remove(at),
            None => {
                let schedule = Schedule::for_window(variants, window, self.buffer_depth)?;
                // Other ranks are idle in other runs.
                let of_any = |&variant: &usize| if variants[variant].idle { 0 } else { variant };
                let variant_of_any: Vec<usize> = variant_of_run.iter().map(of_any).collect();
                let any = Window { variant_of_run: &variant_of_any, ..window };
                let order = if variant_of_any == variant_of_run {
                    schedule.linear()
                } else {
                    Schedule::for_window(variants, any, self.buffer_depth)?.linear()
                };
                let order = order.unwrap_or_default();
                self.cached.truncate(CACHED - 1);
                let variant_of_run = variant_of_run.to_vec();
                let (graph, timed, uses) = (None, Vec::new(), 0);
                CachedSchedule {
                    variant_of_run,
                    updates,
                    begins,
                    prepares,
                    schedule,
                    order,
                    graph,
                    timed,
                    uses,
                }
            }
        };
        cached.uses += 1;
        self.cached.insert(0, cached);
        Ok(&mut self.cached[0])
    }
}
