//! `tgnn-bench compare`: runs side by side, as a table, Markdown, JSON, CSV or a page of HTML.
mod cells;
mod leaderboard;
#[cfg(test)]
#[path = "../../../training/src/task/comparison/made_runs.rs"]
mod made_runs;
mod page;
mod table;

pub(super) use page::Timelines;

use super::{
    output::{json, print, say, tell, terminal_width},
    settings::Files,
    trials::{Outcome, TrialArgs, parse_seeds},
};
use clap::{Args, ValueEnum, builder::Resettable};
use std::path::{Path, PathBuf};
use tgnn::error::{Error, ErrorKind, Result};
#[cfg(test)]
use tgnn_training::task::{Config, Summary};
use tgnn_training::task::{
    comparison::{Comparison, FinishedRun, run_folders},
    search::Space,
    training::folder::write_whole,
};
use toml::Value;

/// How a comparison is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For a terminal
    Table,
    /// For a document
    Markdown,
    /// With every number
    Json,
    /// For a spreadsheet
    Csv,
    /// A page with curves, stage times and timelines
    Html,
    /// The rows of TGB's leaderboards, for a document
    Tgb,
}

impl Format {
    /// Refuses runs that cannot be written so.
    pub(super) fn check(self, runs: &[FinishedRun]) -> Result<()> {
        if self == Format::Tgb { leaderboard::check(runs) } else { Ok(()) }
    }
    /// Returns the format that the ending of a file asks for.
    fn of_file(path: &Path) -> Result<Self> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("txt") => Ok(Format::Table),
            Some("md") => Ok(Format::Markdown),
            Some("json") => Ok(Format::Json),
            Some("csv") => Ok(Format::Csv),
            Some("html" | "htm") => Ok(Format::Html),
            _ => Err(Error::usage(format!("--out {}: the ending names no format", path.display()))
                .remedy("end it with .html, .md, .csv, .json or .txt, or give --as")),
        }
    }
}

/// Arguments of `compare`.
#[derive(Args)]
#[command(next_help_heading = "Comparison", disable_help_flag = true)]
#[command(after_help = "\
Runs that differ in nothing but their seed are one line, with mean and standard deviation.

Examples:
  A table, a page with curves, and rows for TGB's leaderboards:
    tgnn-bench compare runs/*
    tgnn-bench compare runs/* --out compare.html
    tgnn-bench compare runs/* --as tgb
  Train what is missing in runs/both, then compare:
    tgnn-bench compare --models tgn,jodie --seeds 5 --out runs/both")]
pub struct Compare {
    /// Run folders, or folders of sweeps
    #[arg(help_heading = Resettable::Reset)]
    runs: Vec<PathBuf>,
    /// Compare these models by name: train what has no finished run in --out yet
    #[arg(long, value_name = "LIST", conflicts_with = "runs")]
    models: Option<String>,
    /// The same for plans
    #[arg(long, value_name = "LIST", conflicts_with = "runs")]
    plans: Option<String>,
    /// The same for devices
    #[arg(long, value_name = "LIST", conflicts_with = "runs")]
    devices: Option<String>,
    /// Seeds of what is trained: how many from 1 on, as in 5, or which, as in 1,2,3 [default: --seed]
    #[arg(long, value_name = "LIST", conflicts_with = "runs")]
    seeds: Option<String>,
    /// Configuration file of what is trained
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    config: Option<PathBuf>,
    /// How to write the comparison: table, markdown, json, csv, html or tgb [default: by the ending of --out,
    /// else a table]
    #[arg(long = "as", value_enum, value_name = "FORMAT", hide_possible_values = true)]
    written_as: Option<Format>,
    /// File of the comparison; by name, the folder of the run folders
    #[arg(long, value_name = "FILE|DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    trials: TrialArgs,
}

impl Compare {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let by_name = [&self.models, &self.plans, &self.devices, &self.seeds];
        if by_name.into_iter().any(Option::is_some) {
            return self.by_name();
        }
        if self.runs.is_empty() {
            return Err(Error::usage("there is nothing to compare")
                .remedy("give run folders, or --models, --plans or --devices"));
        }
        if self.trials.given()? {
            let what = "settings are for runs that are still to be trained, and these have ended";
            return Err(Error::usage(what).remedy("leave them out, or compare by name: --models, --plans"));
        }
        let format = match (self.written_as, &self.out) {
            (Some(format), _) => format,
            (None, Some(out)) => Format::of_file(out)?,
            (None, None) => Format::Table,
        };
        if let Some(missing) = self.runs.iter().find(|path| !path.exists()) {
            let what = format!("{}: there is no such folder", missing.display());
            return Err(Error::new(ErrorKind::Io, what).remedy("give folders that `train --out` has written"));
        }
        let (runs, notes) = read(self.runs.iter().flat_map(|path| run_folders(path)))?;
        format.check(&runs)?;
        let (comparison, timelines) = compared(runs, notes)?;
        write(&comparison, &timelines, format, self.out.as_deref())
    }
    /// Trains the combinations of models, plans and devices that are not trained yet, then compares all.
    fn by_name(&self) -> Result<()> {
        let Some(out) = &self.out else {
            return Err(
                Error::usage("a comparison by name keeps its runs").remedy("give their folder, --out")
            );
        };
        let mut space =
            Space { seeds: self.seeds.as_deref().map_or(Ok(Vec::new()), parse_seeds)?, ..Space::default() };
        let axes = [("model", &self.models), ("plan", &self.plans), ("device", &self.devices)];
        for (key, list) in axes.into_iter().filter_map(|(key, list)| Some((key, list.as_ref()?))) {
            let names = list.split(',').map(|name| Value::String(name.trim().to_owned()));
            space.add_grid(key, names.collect())?;
        }
        let format = self.written_as.unwrap_or(Format::Table);
        let quiet = format != Format::Table;
        let Outcome { finished, failed } =
            self.trials.run(&Files::of_config(self.config.as_ref()), &space, out, quiet)?;
        format.check(&finished)?;
        let notes = failed.iter().map(|(name, why)| format!("{name} failed: {why}")).collect();
        let (comparison, timelines) = compared(finished, notes)?;
        write(&comparison, &timelines, format, None)
    }
}

/// Reads runs; those that cannot be read are left out, each with a note.
///
/// # Errors
/// The first run's error if no run can be read.
fn read(paths: impl Iterator<Item = PathBuf>) -> Result<(Vec<FinishedRun>, Vec<String>)> {
    let (mut runs, mut notes, mut first) = (Vec::new(), Vec::new(), None);
    for path in paths {
        match FinishedRun::read(&path) {
            Ok(run) => runs.push(run),
            Err(e) => {
                notes.push(format!("left out: {e}"));
                first.get_or_insert(e);
            }
        }
    }
    match first {
        Some(e) if runs.is_empty() => Err(e),
        _ => Ok((runs, notes)),
    }
}

/// Only so many lines, from the first on, show their timelines, so that pages stay small.
const MOST_TIMELINES: usize = 8;

/// Compares runs, and reads the timelines of the lines.
pub(super) fn compared(runs: Vec<FinishedRun>, notes: Vec<String>) -> Result<(Comparison, Timelines)> {
    let mut comparison = Comparison::new(runs.clone())?;
    comparison.notes.extend(notes);
    let mut timelines = Timelines::new();
    for (at, line) in comparison.lines.iter().enumerate().take(MOST_TIMELINES) {
        for run in &line.runs {
            let spans = match runs.iter().find(|r| r.path == run.path).map(FinishedRun::timeline) {
                Some(Ok(spans)) => spans,
                Some(Err(e)) => {
                    comparison.notes.push(format!("left out: {e}"));
                    continue;
                }
                None => continue,
            };
            if !spans.is_empty() {
                timelines.push((at, spans));
                break;
            }
        }
    }
    Ok((comparison, timelines))
}

/// Writes a comparison to a file, or to standard output; its notes go to standard error as well.
pub(super) fn write(
    comparison: &Comparison,
    timelines: &Timelines,
    format: Format,
    out: Option<&Path>,
) -> Result<()> {
    let text = match format {
        Format::Table => {
            let width = if out.is_none() { terminal_width(false) } else { None };
            table::plain(comparison, width)
        }
        Format::Tgb => leaderboard::markdown(comparison),
        Format::Markdown => table::markdown(comparison),
        Format::Csv => table::csv(comparison),
        Format::Json => json(comparison)?,
        Format::Html => page::page(comparison, timelines)?,
    };
    comparison.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
    match out {
        Some(out) => {
            write_whole(out, text.as_bytes())?;
            say(format_args!("wrote {}", out.display()));
        }
        None if format == Format::Table => say(text.trim_end()),
        None => print(text.trim_end()),
    }
    Ok(())
}
