//! Finished runs, compared: one line for all runs that differ in nothing but their seed.
//!
//! - [`FinishedRun`] reads a run folder, and refuses a damaged or unfinished one.
//! - [`Comparison`] refuses runs that do not measure the same thing, groups the others, and computes means
//!   and deviations over seeds. It serialises as the JSON that docs/compare.md describes.
mod comparable;
mod finished;
mod line;
mod settings;
mod statistic;
#[cfg(test)]
mod tests;
mod timeline;

pub use comparable::comparable_configs;
pub use finished::{FinishedRun, run_folders};
pub use line::{Line, Point, RunOfLine};
pub use statistic::Statistic;
pub use timeline::LaneSpan;

use crate::task::config::TaskName;
use comparable::comparable;
use indexmap::IndexMap;
use serde::Serialize;
use settings::{Settings, settings};
use tgnn::error::{Error, Result};
use toml::Value;

/// Runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this document.
    pub schema: u32,
    /// What the runs predict.
    pub task: TaskName,
    /// The protocol, and the negatives if the protocol leaves them open.
    pub measured: String,
    /// The metric by which epochs and lines are compared.
    pub metric: &'static str,
    /// Whether more of it is better.
    pub higher_is_better: bool,
    /// The settings that differ between lines.
    pub differing: Vec<String>,
    /// What all runs have in common: model, plan, device and data, unless lines differ in them.
    pub common: IndexMap<String, String>,
    /// The metrics of the test part that any line has.
    pub metrics: Vec<String>,
    /// The lines: of each data set the best validation first.
    pub lines: Vec<Line>,
    /// What a reader should know, such as runs that are left out.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Compares runs.
    ///
    /// # Errors
    /// `Usage` if there is no run, or if two of them do not measure the same thing.
    pub fn new(runs: Vec<FinishedRun>) -> Result<Self> {
        comparable(&runs)?;
        let Some(first) = runs.first() else {
            return Err(Error::usage("there is no finished run to compare").remedy("give run folders"));
        };
        let (task, measured) = (first.config.task, first.measures());
        let metric = metric(task, &runs);
        let mut notes = Vec::new();
        let mut groups: Vec<(Settings, Vec<FinishedRun>)> = Vec::new();
        for run in runs {
            let settings = settings(&run)?;
            match groups.iter_mut().find(|(known, _)| *known == settings) {
                None => groups.push((settings, vec![run])),
                Some((_, same)) => match same.iter().find(|r| r.config.seed == run.config.seed) {
                    Some(twin) => notes.push(format!(
                        "{} is left out: it repeats {} (same settings, same seed)",
                        run.path.display(),
                        twin.path.display()
                    )),
                    None => same.push(run),
                },
            }
        }
        let differing = differing(&groups);
        let common = ["model", "plan", "device", "data"].into_iter().filter_map(|key| {
            let value = groups[0].0.get(key).filter(|_| !differing.iter().any(|d| d == key))?;
            Some((key.to_owned(), super::config::table::text_of(value)))
        });
        let common = common.collect();
        let mut lines: Vec<Line> = groups
            .into_iter()
            .map(|(settings, runs)| Line::new(&settings, &differing, runs, metric))
            .collect();
        sort(&mut lines, metric != "RMSE");
        let mut metrics: Vec<String> = Vec::new();
        for name in lines.iter().flat_map(|line| line.test.keys()) {
            if !metrics.contains(name) {
                metrics.push(name.clone());
            }
        }
        let higher_is_better = metric != "RMSE";
        let schema = 1;
        Ok(Comparison {
            schema,
            task,
            measured,
            metric,
            higher_is_better,
            differing,
            common,
            metrics,
            lines,
            notes,
        })
    }
    /// Returns the line with the best validation; `None` if no run was validated, or if there are several
    /// data sets.
    pub fn best(&self) -> Option<&Line> {
        let mut best = self.lines.iter().filter(|line| line.best);
        best.next().filter(|_| best.next().is_none())
    }
}

/// Returns the metric by which the epochs of `runs` were compared; see
/// [`Scores::figure`](super::Scores::figure).
fn metric(task: TaskName, runs: &[FinishedRun]) -> &'static str {
    let validated = || runs.iter().flat_map(|run| &run.summary.epochs).filter_map(|epoch| epoch.val);
    match task {
        TaskName::Link if validated().any(|val| val.mrr.is_some()) => "MRR",
        TaskName::Link | TaskName::Edge => "AP",
        TaskName::Node => "AUC",
        TaskName::Property => "NDCG@10",
        TaskName::Regression => "RMSE",
    }
}

/// Returns the settings with several values among the groups that have them.
fn differing(groups: &[(Settings, Vec<FinishedRun>)]) -> Vec<String> {
    let mut values: IndexMap<&String, &Value> = IndexMap::new();
    let mut found: Vec<String> = Vec::new();
    for (key, value) in groups.iter().flat_map(|(settings, _)| settings) {
        if *values.entry(key).or_insert(value) != value && !found.contains(key) {
            found.push(key.clone());
        }
    }
    // In the order of the settings, in which model, plan, device and data come first.
    found.sort_by_key(|key| values.get_index_of(key));
    found
}

/// Sorts the lines of each data set by their validation, best first, and marks the best.
fn sort(lines: &mut Vec<Line>, higher_is_better: bool) {
    let mut by_data: IndexMap<String, Vec<Line>> = IndexMap::new();
    lines.drain(..).for_each(|line| by_data.entry(line.data.clone()).or_default().push(line));
    for mut same in by_data.into_values() {
        let score = |line: &Line| {
            let mean =
                line.val.map_or(f64::NEG_INFINITY, |v| if higher_is_better { v.mean } else { -v.mean });
            if mean.is_nan() { f64::NEG_INFINITY } else { mean }
        };
        same.sort_by(|a, b| score(b).total_cmp(&score(a)));
        if let Some(first) = same.first_mut().filter(|first| first.val.is_some()) {
            first.best = true;
        }
        lines.append(&mut same);
    }
}
