//! Definitions that the executors of a program share: progress and the times of nodes.
use crate::{
    error::{Error, ErrorKind, Result},
    ops::Cost,
    runtime::Store,
};
use std::cell::Cell;

/// Progress of [`Program::repeat`](super::Program::repeat).
#[derive(Clone, Copy, Debug)]
pub struct RepeatProgress<'a> {
    /// Number of runs that have finished.
    pub runs: usize,
    /// The store as these runs left it; `None` while a lane is running. On a device, buffers that were not
    /// fetched are stale.
    pub store: Option<&'a Store>,
    /// Set to end the runs here, with an error of kind `Interrupted`.
    pub stop: &'a Cell<bool>,
}

/// A progress callback, called after every run if one lane executes, otherwise occasionally.
pub(super) type OnProgress<'a> = &'a mut dyn FnMut(RepeatProgress<'_>);

/// Tells `on_progress` that `runs` runs have finished; nothing if none has.
pub(super) fn report(on_progress: OnProgress<'_>, runs: usize, store: Option<&Store>) -> Result<()> {
    if runs == 0 {
        return Ok(());
    }
    let stop = Cell::new(false);
    on_progress(RepeatProgress { runs, store, stop: &stop });
    if stop.get() { Err(Error::new(ErrorKind::Interrupted, "interrupted")) } else { Ok(()) }
}

/// The variants of a program, and the variant of each run.
#[derive(Clone, Copy)]
pub(super) struct VariantRuns<'a> {
    pub variants: &'a [super::variant::Variant],
    /// For each run, the index of its variant.
    pub variant_of_run: &'a [usize],
}

/// Time taken by the runs of a node.
#[derive(Clone, Default)]
pub(super) struct NodeTime {
    pub seconds: f64,
    pub runs: usize,
    pub kernels: usize,
    /// Bytes and operations of all runs, at their row counts.
    pub cost: Cost,
    /// Seconds of a run, of every run that was timed by itself, or on average of runs that were timed
    /// together.
    samples: Vec<f32>,
}

impl NodeTime {
    /// Adds runs of the same cost, without a time.
    pub fn count(&mut self, runs: usize, cost: Cost) {
        self.runs += runs;
        self.cost.bytes += runs * cost.bytes;
        self.cost.flops += runs * cost.flops;
    }
    /// Adds runs of the same cost that took `seconds` together.
    pub fn add(&mut self, seconds: f64, runs: usize, cost: Cost) {
        self.count(runs, cost);
        self.seconds += seconds;
        self.samples.push((seconds / runs.max(1) as f64) as f32);
    }
    /// Returns the median seconds of a run; 0 if there was none.
    pub fn median(&self) -> f64 {
        let mut samples = self.samples.clone();
        samples.sort_unstable_by(f32::total_cmp);
        samples.get(samples.len() / 2).map_or(0.0, |&seconds| f64::from(seconds))
    }
}
