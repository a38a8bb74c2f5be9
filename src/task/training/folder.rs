//! The files of a run folder: configuration, metrics, summary. Each is written atomically.
use super::EpochRecord;
use crate::{
    error::{Error, ErrorKind, Result},
    task::config::Config,
};
use serde::Serialize;
use std::{fs, io::Write, path::Path};

/// Writes `bytes` to `path` atomically, by renaming a temporary file.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("partial");
    fs::write(&beside, bytes)
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|e| Error::io(path, "cannot write", e))
}

/// The file that a sweep writes into the folder of a trial before the trial starts: the keys that it sets.
pub(in crate::task) const TRIAL: &str = "trial.toml";

/// Creates the folder `out` and writes the resolved configuration into it.
///
/// # Errors
/// `Usage` if the folder is not empty and the run is not resumed; `Io`.
pub(super) fn open_run(out: &Path, config: &Config, resume: bool) -> Result<()> {
    let taken = fs::read_dir(out).is_ok_and(|d| d.flatten().any(|entry| entry.file_name() != TRIAL));
    if taken && !resume {
        return Err(Error::usage(format!("{} is not empty", out.display()))
            .remedy("give another folder (--out), or go on with the run in it (--resume)"));
    }
    fs::create_dir_all(out).map_err(|e| Error::io(out, "cannot create", e))?;
    write_whole(&out.join("config.toml"), config.to_toml()?.as_bytes())
}

/// Reads the records of the first `epochs` epochs from a `metrics.jsonl`.
///
/// # Errors
/// `Checkpoint`, with the line, if a record is damaged; `Io`.
pub(in crate::task) fn read_metrics(path: &Path, epochs: usize) -> Result<Vec<EpochRecord>> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
    let records = text.lines().take(epochs).enumerate().map(|(i, line)| {
        serde_json::from_str::<EpochRecord>(line).map_err(|e| {
            Error::new(ErrorKind::Checkpoint, "the line is not the record of an epoch")
                .in_file(path)
                .at(i as u64 + 1, 0)
                .caused_by(e)
        })
    });
    // After an interruption, the file may have records of later epochs than the checkpoint.
    records.take_while(|record| record.as_ref().map_or(true, |record| record.epoch <= epochs)).collect()
}

/// Serialises `value` as indented JSON; `what` names it in errors.
pub(super) fn as_json(what: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec_pretty(value);
    json.map_err(|e| Error::new(ErrorKind::Io, format!("cannot write {what}")).caused_by(e))
}

/// Writes `metrics.jsonl`, one line per epoch.
pub(super) fn write_metrics(out: &Path, records: &[EpochRecord]) -> Result<()> {
    let path = out.join("metrics.jsonl");
    let mut text = Vec::new();
    for r in records {
        serde_json::to_writer(&mut text, r)
            .map_err(|e| Error::new(ErrorKind::Io, "cannot write").in_file(&path).caused_by(e))?;
        text.write_all(b"\n").map_err(|e| Error::io(&path, "cannot write", e))?;
    }
    write_whole(&path, &text)
}
