//! The files of a run folder: configuration, metrics, summary. Each is written atomically.
#[doc(hidden)]
pub use super::lock::FolderLock;
use super::{EpochRecord, lock::LOCK, tensor_files::crc};
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
    written().map_err(|e| unwritten(e, &beside, path))
}

/// Writes `bytes` to `path` atomically. Once this returns, a power cut loses nothing of it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("partial");
    let written = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        place(&file, &beside, path)
    };
    written().map_err(|e| unwritten(e, &beside, path))
}

/// Gives a complete file `beside` the name `path`. The file is on the disk before its name, and both are once
/// this returns.
pub(super) fn place(file: &File, beside: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Returns the error of a failed write of `path`, and removes its temporary file `beside`, which is of no use
/// and takes room.
pub(super) fn unwritten(e: io::Error, beside: &Path, path: &Path) -> Error {
    let _ = fs::remove_file(beside);
    Error::io(path, "cannot write", e)
}

/// Returns the error of a failed read of a file that a run has written. Where the system refuses, the file
/// may be good.
pub(super) fn unread(path: &Path, e: io::Error) -> Error {
    let damaged = |what| Error::new(ErrorKind::Checkpoint, what).in_file(path).remedy(USE_A_COPY);
    match e.kind() {
        io::ErrorKind::NotFound => damaged("the file is missing").caused_by(e),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::IsADirectory => {
            damaged("the file is damaged").caused_by(e)
        }
        _ => Error::io(path, "cannot read", e).remedy("try again"),
    }
}

/// Reads a file of text that a run has written.
pub(in crate::task) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| unread(path, e))
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
    write_synced(&out.join("config.toml"), config.to_toml()?.as_bytes())
}

/// Reads the records of the first `epochs` epochs from a `metrics.jsonl`.
pub(in crate::task) fn read_metrics(path: &Path, epochs: usize) -> Result<Vec<EpochRecord>> {
    let text = read_text(path)?;
    let records = text.lines().take(epochs).enumerate().map(|(i, line)| {
        let wrong = |what| {
            Error::new(ErrorKind::Checkpoint, what).in_file(path).at(i as u64 + 1, 0).remedy(USE_A_COPY)
        };
        let record =
            match line.rsplit_once(SUM).and_then(|(record, sum)| Some((record, sum.strip_suffix('}')?))) {
                // An earlier version wrote no checksums.
                None => line.to_owned(),
                Some((record, sum)) => {
                    let record = format!("{record}}}");
                    if sum.parse() != Ok(crc(record.as_bytes())) {
                        return Err(wrong("the line does not have its own checksum: it was changed"));
                    }
                    record
                }
            };
        serde_json::from_str::<EpochRecord>(&record)
            .map_err(|e| wrong("the line is not the record of an epoch").caused_by(e))
    });
    // After an interruption, the file may have records of later epochs than the checkpoint.
    records.take_while(|record| record.as_ref().map_or(true, |record| record.epoch <= epochs)).collect()
}

/// Serialises `value` as indented JSON; `what` names it in errors.
pub(super) fn as_json(what: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec_pretty(value);
    json.map_err(|e| Error::new(ErrorKind::Io, format!("cannot write {what}")).caused_by(e))
}

/// What is between a record and its checksum in a line of `metrics.jsonl`.
const SUM: &str = ",\"checksum\":";

/// Writes `metrics.jsonl`: one line per epoch, with a checksum of its own.
pub(super) fn write_metrics(out: &Path, records: &[EpochRecord]) -> Result<()> {
    let path = out.join("metrics.jsonl");
    let mut text = String::new();
    for r in records {
        let record = serde_json::to_string(r)
            .map_err(|e| Error::new(ErrorKind::Io, "cannot write").in_file(&path).caused_by(e))?;
        let open = record.strip_suffix('}').unwrap_or(&record);
        text += &format!("{open}{SUM}{}}}\n", crc(record.as_bytes()));
    }
    write_synced(&path, text.as_bytes())
}
