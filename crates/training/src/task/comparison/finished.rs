//! Reading the folders of finished runs.
use crate::task::{
    config::Config,
    training::{
        Checkpoint, Summary,
        folder::{USE_A_COPY, read_metrics, read_text},
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, ErrorKind, Result};

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
    /// came, or if a file is damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let [file, results] = ["config.toml", "summary.json"].map(|name| path.join(name));
        if !file.exists() && !results.exists() && !Checkpoint::at(path).exists() {
            return Err(Error::usage("is not a run folder: it has no config.toml")
                .in_file(path)
                .remedy("give a folder that `train --out` has written"));
        }
        let text = read_text(&file)?;
        let mut config = whole(&text).map_err(|e| {
            let damaged = Error::new(ErrorKind::Checkpoint, "the file is damaged, or of another version");
            let (line, column) = e.position().unwrap_or_default();
            damaged.in_file(&file).at(line, column).caused_by(e).remedy(USE_A_COPY)
        })?;
        if !results.exists() {
            return Err(unfinished(path, &config, 0));
        }
        let text = read_text(&results)?;
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
        let metrics = path.join("metrics.jsonl");
        let records = read_metrics(&metrics, usize::MAX)?;
        if records.len() < summary.epochs.len() {
            let what = format!("the file has {} of {} epochs", records.len(), summary.epochs.len());
            return Err(Error::new(ErrorKind::Checkpoint, what).in_file(metrics).remedy(USE_A_COPY));
        }
        if records.len() > summary.epochs.len() || epochs < config.epochs && !summary.stopped_early {
            return Err(unfinished(path, &config, epochs));
        }
        Ok(FinishedRun { path: path.to_owned(), config, summary })
    }
}

/// Parses the configuration of a run. A file that was cut may still be valid, with other values.
fn whole(text: &str) -> Result<Config> {
    let config = Config::parse(text)?;
    if text.ends_with('\n') { Ok(config) } else { Err(Error::usage("its last line has no end")) }
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
