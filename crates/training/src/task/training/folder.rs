//! The files of a run folder: configuration, metrics, summary. Each is written atomically.
use super::{
    EpochRecord,
    lock::{FolderLock, LOCK},
};
use crate::task::config::Config;
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};
use tgnn::error::{Error, ErrorKind, Result};

/// The remedy for a damaged file.
pub(in crate::task) const USE_A_COPY: &str = "train again, or use a copy";

/// Writes `bytes` to `path` atomically, by renaming a temporary file.
#[doc(hidden)]
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_parts(path, |file| file.write_all(bytes))
}

/// Writes what `write` puts into a file to `path`, in the same way.
#[doc(hidden)]
pub fn write_parts(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let beside = path.with_extension("partial");
    let written = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&beside)?);
        write(&mut file)?;
        file.into_inner()?;
        fs::rename(&beside, path)
    };
    written().map_err(|e| {
        let _ = fs::remove_file(&beside); // it is of no use, and takes room
        Error::io(path, "cannot write", e)
    })
}

/// Reads a file of text that a run has written.
pub(in crate::task) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| {
        let what = match e.kind() {
            io::ErrorKind::NotFound => "the file is missing",
            io::ErrorKind::InvalidData => "the file is damaged",
            _ => "cannot read",
        };
        Error::new(ErrorKind::Checkpoint, what).in_file(path).caused_by(e).remedy(USE_A_COPY)
    })
}

/// The file that a sweep writes into the folder of a trial before the trial starts: the keys that it sets.
pub(in crate::task) const TRIAL: &str = "trial.toml";

/// Whether a folder is missing, or holds nothing of a run.
pub(in crate::task) fn is_free(out: &Path) -> bool {
    let ours = |name: std::ffi::OsString| name == TRIAL || name == LOCK;
    fs::read_dir(out).map_or(true, |entries| entries.flatten().all(|entry| ours(entry.file_name())))
}

/// Whether a run ended before its first checkpoint, which is written after the record of its first epoch.
pub(super) fn never_saved(out: &Path) -> bool {
    let records = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count();
    out.join("config.toml").exists() && !out.join("summary.json").exists() && records <= 1
}

/// Creates and locks the folder `out`.
#[doc(hidden)]
pub fn locked(out: &Path) -> Result<FolderLock> {
    fs::create_dir_all(out).map_err(|e| Error::io(out, "cannot create", e))?;
    FolderLock::acquire(out)
}

/// Writes the resolved configuration into the folder `out`, which is locked.
pub(super) fn open_run(out: &Path, config: &Config, resume: bool) -> Result<()> {
    if !resume && !is_free(out) {
        return Err(Error::usage(format!("{} is not empty", out.display()))
            .remedy("give another folder (--out), or go on with the run in it (--resume)"));
    }
    write_whole(&out.join("config.toml"), config.to_toml()?.as_bytes())
}

/// Reads the records of the first `epochs` epochs from a `metrics.jsonl`.
pub(in crate::task) fn read_metrics(path: &Path, epochs: usize) -> Result<Vec<EpochRecord>> {
    let text = read_text(path)?;
    let records = text.lines().take(epochs).enumerate().map(|(i, line)| {
        serde_json::from_str::<EpochRecord>(line).map_err(|e| {
            Error::new(ErrorKind::Checkpoint, "the line is not the record of an epoch")
                .in_file(path)
                .at(i as u64 + 1, 0)
                .caused_by(e)
                .remedy(USE_A_COPY)
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
