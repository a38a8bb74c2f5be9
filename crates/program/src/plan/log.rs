//! What every rank of `train` keeps for a file: its accesses to node memory (`--accesses`), and when its ops
//! ran (`--timeline`).
use serde::{Serialize, de::DeserializeOwned};
use std::path::Path;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::Device,
};
use tgnn_training::{
    plan::{Access, Timeline, access_log},
    task::{EpochRecord, Progress, Task, Watch, training::folder::write_whole},
};

/// The files that are wanted.
#[derive(Clone, Copy, Default)]
pub struct LogFiles<'a> {
    /// The log of accesses of the last pass that trains.
    pub accesses: Option<&'a Path>,
    /// The trace of the last epoch.
    pub timeline: Option<&'a Path>,
}

/// Watches a run for another watch, and keeps what this rank adds to the files.
pub struct LoggingWatch<'a> {
    inner: &'a mut dyn Watch,
    wanted: LogFiles<'a>,
    accesses: Vec<Access>,
    timeline: Timeline,
}

impl<'a> LoggingWatch<'a> {
    /// Watches for `inner`.
    pub fn new(inner: &'a mut dyn Watch, wanted: LogFiles<'a>) -> Self {
        LoggingWatch { inner, wanted, accesses: Vec::new(), timeline: Timeline::default() }
    }
    /// Writes the files that are wanted, with what all ranks have kept. Collective.
    ///
    /// # Errors
    /// `Io`; `Comm`.
    pub fn write(&self, device: &Device) -> Result<()> {
        if let Some(path) = self.wanted.accesses {
            let all = of_ranks(device, &self.accesses)?;
            self.write_first(path, device, || access_log(all.concat()))?;
        }
        if let Some(path) = self.wanted.timeline {
            let rank = device.ranks().map_or(0, |ranks| ranks.rank());
            let all = of_ranks(device, &self.timeline.trace_events(rank))?;
            self.write_first(path, device, || Timeline::trace_of(&all.concat()))?;
        }
        Ok(())
    }
    /// Writes a file on the first rank.
    fn write_first(&self, path: &Path, device: &Device, text: impl FnOnce() -> String) -> Result<()> {
        if device.is_first() { write_whole(path, text().as_bytes()) } else { Ok(()) }
    }
}

/// Returns what every rank has, in the order of the ranks. Collective.
///
/// # Errors
/// `Comm`.
fn of_ranks<T: Serialize + DeserializeOwned>(device: &Device, own: &T) -> Result<Vec<T>> {
    let bad = |e| Error::new(ErrorKind::Comm, "what the ranks have logged").caused_by(e);
    let own = serde_json::to_vec(own).map_err(bad)?;
    let all = device.ranks().map_or_else(|| Ok(vec![own.clone()]), |ranks| ranks.gathered(&own))?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(bad)).collect()
}

impl Watch for LoggingWatch<'_> {
    fn start(&mut self, task: &mut dyn Task) {
        if self.wanted.accesses.is_some() || self.wanted.timeline.is_some() {
            task.core_mut().trace();
        }
        self.inner.start(task);
    }
    fn note(&mut self, what: &str) {
        self.inner.note(what);
    }
    fn progress(&mut self, pass: &str, epoch: usize, p: Progress<'_>) {
        self.inner.progress(pass, epoch, p);
    }
    fn epoch(&mut self, record: &EpochRecord) {
        self.inner.epoch(record);
    }
    fn settled(&mut self, record: &EpochRecord) {
        self.inner.settled(record);
    }
    fn end(&mut self, task: &dyn Task) {
        if self.wanted.accesses.is_some() {
            self.accesses = task.plan_record().accesses;
        }
        if self.wanted.timeline.is_some() {
            self.timeline = task.core().timeline();
        }
        self.inner.end(task);
    }
}
