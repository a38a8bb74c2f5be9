//! Passes over data: the runs of a program that make one up, and their progress.
use super::{Progress, Report};
use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tgnn::{
    autograd::Program,
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, Store},
};
use tgnn_data::Part;

/// The runs of a program that make up a pass.
#[derive(Clone, Debug, Default)]
pub(in crate::task) struct Runs {
    /// For each run, the variant of the program.
    pub variant_of_run: Vec<usize>,
    /// For each run, the number of batches or groups of the pass that are complete after it.
    pub complete: Vec<usize>,
}

impl Runs {
    /// Creates one run per batch, all in the same variant, after `before` batches of the pass.
    pub fn of_batches(variant: usize, before: usize, batches: usize) -> Self {
        Runs { variant_of_run: vec![variant; batches], complete: (before + 1..=before + batches).collect() }
    }
    /// Creates one run per snapshot group in the given variants, after `before` groups of the pass. If an
    /// update takes several groups (`groups_per_update` > 1), a run of variant `update` follows every such
    /// round.
    pub fn of_groups(variants: &[usize], before: usize, groups_per_update: usize, update: usize) -> Self {
        let mut runs = Runs::default();
        for (at, &variant) in variants.iter().enumerate() {
            let ends_round = (at + 1).is_multiple_of(groups_per_update) || at + 1 == variants.len();
            let update = (groups_per_update > 1 && ends_round).then_some(update);
            for variant in std::iter::once(variant).chain(update) {
                runs.variant_of_run.push(variant);
                runs.complete.push(before + at + 1);
            }
        }
        runs
    }
    /// Returns the batch or group that a run belongs to; for an update, the last group of its round.
    pub fn group(&self, run: usize) -> usize {
        self.complete[run] - 1
    }
    /// Appends the runs of `other`.
    pub fn append(&mut self, mut other: Runs) {
        self.variant_of_run.append(&mut other.variant_of_run);
        self.complete.append(&mut other.complete);
    }
}

/// Counts events (or edges) for progress reports.
pub(in crate::task) struct EventCount<'a> {
    /// Number of the batch with which the pass begins.
    pub first: usize,
    /// Events in the first `n` batches or groups.
    pub up_to: &'a (dyn Fn(usize) -> usize + Sync),
    /// Events of the pass.
    pub total: usize,
}

/// Executes `runs` of a program over its store and reports progress after each of them, with the mean of the
/// losses that the pass has written to `losses` so far.
pub(in crate::task) fn repeat_and_report(
    program: &mut Program,
    runs: &Runs,
    store: &mut Store,
    losses: Option<BufferId>,
    count: &EventCount<'_>,
    progress: Report<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let (mut counted, mut sum) = (count.first, 0.0);
    let ran = program.repeat_in(store, &runs.variant_of_run, &mut |done| {
        let complete = runs.complete[done.runs - 1];
        // While lanes are running, losses cannot be read; a device's losses are read after the pass.
        let new = done.store.and_then(|store| store.read::<f32>(losses?).ok()?.get(counted..complete));
        if let Some(new) = new {
            sum += new.iter().map(|&loss| f64::from(loss)).sum::<f64>();
            counted = complete;
        }
        let loss = (counted > count.first).then(|| sum / (counted - count.first) as f64);
        progress(Progress { events: (count.up_to)(complete), total: count.total, loss, stop: done.stop });
    });
    ran.map_err(|(run, e)| (run.map(|run| runs.group(run)), e))
}

/// Walks over a stream that go on at the same time, and report their progress together.
pub(in crate::task) struct Walks<'a> {
    done: AtomicUsize,
    /// Events of all walks.
    total: usize,
    stopped: AtomicBool,
    progress: Mutex<Report<'a>>,
}

impl<'a> Walks<'a> {
    /// Creates walks over `total` events.
    pub fn new(total: usize, progress: Report<'a>) -> Self {
        let (done, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        Walks { done, total, stopped, progress: Mutex::new(progress) }
    }
    /// Takes note that a walk has gone on by `events` events.
    ///
    /// # Errors
    /// `Interrupted` if the progress callback has stopped the run.
    pub fn on(&self, events: usize) -> Result<()> {
        // So many events make a report.
        const REPORTED: usize = 1 << 16;
        let before = self.done.fetch_add(events, Ordering::Relaxed);
        let after = before + events;
        if before / REPORTED != after / REPORTED || after == self.total {
            let stop = Cell::new(false);
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress(Progress { events: after, total: self.total, loss: None, stop: &stop });
            self.stopped.fetch_or(stop.get(), Ordering::Relaxed);
        }
        match self.stopped.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}

/// Returns the epoch from which an evaluation pass derives its random draws. It is the same in every epoch,
/// and so are the draws.
pub(in crate::task) fn evaluation_clock(part: Part) -> u32 {
    part as u32
}

/// Adds epoch and batch to an error that says that training diverged, or that a rank was lost.
pub(in crate::task) fn located(e: Error, epoch: u32, batch: Option<usize>) -> Error {
    let what = match e.kind() {
        ErrorKind::Diverged => "training diverged",
        ErrorKind::Comm => "the ranks lost one another",
        _ => return e,
    };
    let batch = batch.map_or(String::new(), |b| format!(", batch {}", b + 1));
    Error::new(e.kind(), format!("{what} in epoch {}{batch}", epoch + 1)).caused_by(e)
}
