//! Reading the folders of finished runs.
use crate::{
    error::{Error, ErrorKind, Result},
    task::{
        config::Config,
        training::{Summary, folder::read_metrics},
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A run that has ended, as its folder tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRun {
    /// The folder.
    pub path: PathBuf,
    /// The configuration.
    pub config: Config,
    /// The results.
    pub summary: Summary,
}

impl FinishedRun {
    /// Reads a run folder.
    ///
    /// # Errors
    /// `Usage` if the folder is none of a run; `Checkpoint` if the run has not finished, with how far it
    /// came, or if a file is damaged; `Io`.
    pub fn read(path: &Path) -> Result<Self> {
        let [file, results] = ["config.toml", "summary.json"].map(|name| path.join(name));
        if !file.is_file() {
            return Err(Error::usage("is not a run folder: it has no config.toml")
                .in_file(path)
                .remedy("give a folder that `train --out` has written"));
        }
        let text = fs::read_to_string(&file).map_err(|e| Error::io(&file, "cannot read", e))?;
        let mut config = Config::parse(&text).map_err(|e| e.in_file(&file))?;
        if !results.is_file() {
            return Err(unfinished(path, &config, 0));
        }
        let text = fs::read_to_string(&results).map_err(|e| Error::io(&results, "cannot read", e))?;
        let summary: Summary = serde_json::from_str(&text).map_err(|e| {
            let (line, column) = (e.line() as u64, e.column() as u64);
            Error::new(ErrorKind::Checkpoint, "is damaged, or of another version")
                .in_file(&results)
                .at(line, column)
                .caused_by(e)
                .remedy("train again")
        })?;
        if summary.history.is_none() {
            config.evaluate_as_before();
        }
        // A run that was continued has the summary of its earlier end until it ends again.
        let epochs = summary.epochs.last().map_or(0, |record| record.epoch);
        let records = read_metrics(&path.join("metrics.jsonl"), usize::MAX)?;
        if records.len() > summary.epochs.len() || epochs < config.epochs && !summary.stopped_early {
            return Err(unfinished(path, &config, epochs));
        }
        Ok(FinishedRun { path: path.to_owned(), config, summary })
    }
}

/// Returns the error about a run that has not finished.
fn unfinished(path: &Path, config: &Config, epochs: usize) -> Error {
    let records = read_metrics(&path.join("metrics.jsonl"), usize::MAX).ok();
    let epochs = records.and_then(|r| r.last().map(|r| r.epoch)).unwrap_or(epochs);
    let what = format!("the run has not finished: {epochs} of {} epochs", config.epochs);
    let path = path.display();
    Error::new(ErrorKind::Checkpoint, what)
        .in_file(path.to_string())
        .remedy(format!("go on with `tgnn-bench train {path}/config.toml --out {path} --resume`"))
}

/// Returns the run folders that `path` stands for: itself, or the folders in it if it is the folder of a
/// sweep.
pub fn run_folders(path: &Path) -> Vec<PathBuf> {
    let is_run = |path: &Path| path.join("config.toml").is_file();
    let mut inside: Vec<PathBuf> = match fs::read_dir(path) {
        Ok(entries) if !is_run(path) => entries.flatten().map(|e| e.path()).filter(|p| is_run(p)).collect(),
        _ => Vec::new(),
    };
    inside.sort();
    if inside.is_empty() { vec![path.to_owned()] } else { inside }
}
