//! `train --accesses`: the log of the ranks' accesses to node memory.
use crate::{
    error::{Error, ErrorKind, Result},
    plan::{Access, access_log},
    runtime::Device,
    task::{EpochRecord, Progress, Task, Watch, training::folder::write_whole},
};
use std::path::Path;

/// Watches a run for another watch, and keeps the rank's accesses in the last pass that trains.
pub(super) struct Logged<'a> {
    inner: &'a mut dyn Watch,
    accesses: Option<Vec<Access>>,
}

impl<'a> Logged<'a> {
    /// Watches for `inner`; keeps a log if `wanted`.
    pub fn new(inner: &'a mut dyn Watch, wanted: bool) -> Self {
        Logged { inner, accesses: wanted.then(Vec::new) }
    }
    /// Writes the log of all ranks to `path`, if it was wanted. Collective.
    ///
    /// # Errors
    /// `Io`; `Comm`.
    pub fn write(&self, path: Option<&Path>, device: &Device) -> Result<()> {
        let (Some(own), Some(path)) = (&self.accesses, path) else { return Ok(()) };
        let bad = |e| Error::new(ErrorKind::Comm, "the log of accesses").caused_by(e);
        let all = match device.ranks() {
            Some(ranks) => {
                let of_ranks = ranks.gathered(&serde_json::to_vec(own).map_err(bad)?)?;
                let read = |bytes: &Vec<u8>| serde_json::from_slice::<Vec<Access>>(bytes).map_err(bad);
                of_ranks.iter().map(read).collect::<Result<Vec<_>>>()?.concat()
            }
            None => own.clone(),
        };
        if device.is_first() { write_whole(path, access_log(all).as_bytes()) } else { Ok(()) }
    }
}

impl Watch for Logged<'_> {
    fn start(&mut self, task: &mut dyn Task) {
        if self.accesses.is_some() {
            task.trace();
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
        if let Some(accesses) = &mut self.accesses {
            *accesses = task.accesses();
        }
        self.inner.end(task);
    }
}
