//! What a process that runs inside of a tool tells the one that started the tool, by a file.
use super::measured::MeasuredOp;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_lab::ceilings::Work;

/// What it has done, or why it could not.
#[derive(Serialize, Deserialize)]
pub(super) enum Report {
    Done(Vec<OpDone>),
    Failed { exit_code: u8, error: String },
}

/// The runs of an op.
#[derive(Serialize, Deserialize)]
pub(super) struct OpDone {
    pub op: String,
    pub runs: usize,
    bytes: f64,
    flops: f64,
}

impl OpDone {
    /// Returns the work of a run.
    pub fn work(&self) -> Work {
        Work { bytes: self.bytes, flops: self.flops }
    }
}

impl Report {
    /// Reports what `work` has done.
    pub fn from_work(work: impl FnOnce() -> Result<Vec<MeasuredOp>>) -> Self {
        let done = |m: MeasuredOp| {
            let Work { bytes, flops } = m.work;
            OpDone { op: m.op.into(), runs: m.runs, bytes, flops }
        };
        match work() {
            Ok(found) => Report::Done(found.into_iter().map(done).collect()),
            Err(e) => Report::Failed { exit_code: e.kind().exit_code(), error: e.to_string() },
        }
    }
    /// Writes the report.
    ///
    /// # Errors
    /// `Io`; what the work failed by.
    pub fn write(self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(&self)
            .map_err(|e| Error::usage("cannot write what was profiled").caused_by(e))?;
        fs::write(file, text).map_err(|e| Error::io(file, "cannot write", e))?;
        self.done().map(drop)
    }
    /// Reads a report; `None` if the process has not come that far.
    pub fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }
    /// Returns the runs.
    ///
    /// # Errors
    /// What the work failed by.
    pub fn done(self) -> Result<Vec<OpDone>> {
        match self {
            Report::Done(ops) => Ok(ops),
            Report::Failed { exit_code, error } => {
                let kind = ErrorKind::of_exit_code(exit_code).unwrap_or(ErrorKind::Device);
                Err(Error::new(kind, error))
            }
        }
    }
}
