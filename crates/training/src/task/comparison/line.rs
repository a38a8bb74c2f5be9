//! A line of a comparison: the runs that differ in nothing but their seed.
use super::{
    FinishedRun,
    settings::Settings,
    statistic::{Statistic, median},
};
use crate::task::{
    Scores, TestScores,
    config::table::text_of,
    training::{EdgeBankScores, StageRecord, Summary},
};
use indexmap::IndexMap;
use serde::Serialize;
use std::path::PathBuf;
use toml::Value;

/// Runs that differ in nothing but their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What tells the line apart, in a few words.
    pub name: String,
    /// The settings that differ between lines, as far as this one has them.
    pub settings: IndexMap<String, Value>,
    /// Name of the data set.
    pub data: String,
    /// Whether the line has the best validation of its data set.
    pub best: bool,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Metrics of the test part, by name.
    pub test: IndexMap<String, Statistic>,
    /// The same metric as `val`, of the best baseline on the test part; of rules, given the events of earlier
    /// batches.
    pub baseline: Option<Statistic>,
    /// Name of that baseline in the first run.
    pub baseline_name: Option<String>,
    /// The same of the best rule, given all strictly earlier events.
    pub strict_baseline: Option<Statistic>,
    /// Name of that rule in the first run.
    pub strict_baseline_name: Option<String>,
    /// The metric of the validation part in the best epoch.
    pub val: Option<Statistic>,
    /// The best epoch.
    pub best_epoch: Option<Statistic>,
    /// Seconds of a training pass: the median of a run.
    pub seconds_per_epoch: Option<Statistic>,
    /// Seconds of all training passes.
    pub training_seconds: Option<Statistic>,
    /// Peak memory of the process, in bytes.
    pub memory_bytes: Option<Statistic>,
    /// Peak memory of the device, in bytes; `None` on the CPU.
    pub device_memory_bytes: Option<Statistic>,
    /// Number of learned numbers.
    pub parameters: usize,
    /// Seconds of stages in a training pass, means over the runs that were timed.
    pub stages: Vec<StageRecord>,
    /// The runs, in the order of their seeds.
    pub runs: Vec<RunOfLine>,
}

/// A run of a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOfLine {
    /// Its folder.
    pub path: PathBuf,
    /// Its seed.
    pub seed: u64,
    /// Its epochs.
    pub epochs: Vec<Point>,
}

/// An epoch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Number of the epoch.
    pub epoch: usize,
    /// Seconds of training until its end.
    pub seconds: f64,
    /// Mean loss.
    pub loss: f64,
    /// The metric of the validation part.
    pub val: Option<f64>,
}

/// Returns a metric by its name.
fn named(scores: &Scores, name: &str) -> Option<f64> {
    scores.named().into_iter().find(|(n, _)| *n == name).and_then(|(_, x)| x)
}

/// Returns the test metrics of a run by name: all events', and the main metric of those with new nodes.
fn test_metrics(test: &TestScores, metric: &str) -> IndexMap<String, f64> {
    let all = test.transductive.named().into_iter().filter_map(|(name, x)| Some((name.to_owned(), x?)));
    let inductive = named(&test.inductive, metric).map(|x| (format!("inductive {metric}"), x));
    all.chain(inductive).collect()
}

/// Returns the best baseline of a run by `metric`: its name, and the metric.
fn baseline(summary: &Summary, metric: &str) -> Option<(String, f64)> {
    let bank = summary.edgebank.iter().flat_map(EdgeBankScores::named);
    best(bank.chain(summary.baselines.iter().map(|b| (b.name.as_str(), &b.test))), metric)
}

/// Returns the best rule of a run, given all strictly earlier events.
fn strict_baseline(summary: &Summary, metric: &str) -> Option<(String, f64)> {
    best(summary.strictly_earlier.as_ref()?.named(), metric)
}

/// Returns the best of some named scores by `metric`.
fn best<'a>(all: impl Iterator<Item = (&'a str, &'a TestScores)>, metric: &str) -> Option<(String, f64)> {
    let scored = all.filter_map(|(name, test)| Some((name.to_owned(), named(&test.transductive, metric)?)));
    let sign = if metric == "RMSE" { -1.0 } else { 1.0 };
    scored.max_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))
}

impl Line {
    /// Returns the line of `runs`, which have the same `settings`, of which `differing` differ between lines.
    pub(super) fn new(
        settings: &Settings,
        differing: &[String],
        mut runs: Vec<FinishedRun>,
        metric: &str,
    ) -> Self {
        runs.sort_by_key(|run| run.config.seed);
        let summaries = || runs.iter().map(|run| &run.summary);
        let over = |of: &dyn Fn(&Summary) -> Option<f64>| Statistic::new(summaries().filter_map(of));
        let own = differing.iter().filter_map(|key| Some((key.clone(), settings.get(key)?.clone())));
        let own: IndexMap<String, Value> = own.collect();
        let tests: Vec<_> =
            summaries().filter_map(|s| Some(test_metrics(s.test.as_ref()?, metric))).collect();
        let names: IndexMap<&String, ()> = tests.iter().flatten().map(|(name, _)| (name, ())).collect();
        let test = names.into_keys().filter_map(|name| {
            let numbers = tests.iter().filter_map(|test| test.get(name).copied());
            Some((name.clone(), Statistic::new(numbers)?))
        });
        let best_val = |s: &Summary| {
            let best = s.epochs.iter().find(|record| Some(record.epoch) == s.best_epoch)?;
            named(&best.val?, metric)
        };
        let seconds = |s: &Summary| s.epochs.iter().chain(&s.settled).map(|r| r.train_seconds).sum();
        let device_bytes = |s: &Summary| Some(s.peak_memory_bytes.device as f64).filter(|&bytes| bytes > 0.0);
        Line {
            name: name(&own, settings),
            data: settings.get("data").map_or_else(String::new, text_of),
            best: false,
            seeds: runs.iter().map(|run| run.config.seed).collect(),
            test: test.collect(),
            baseline: over(&|s| baseline(s, metric).map(|b| b.1)),
            baseline_name: summaries().find_map(|s| baseline(s, metric)).map(|b| b.0),
            strict_baseline: over(&|s| strict_baseline(s, metric).map(|b| b.1)),
            strict_baseline_name: summaries().find_map(|s| strict_baseline(s, metric)).map(|b| b.0),
            val: over(&best_val),
            best_epoch: over(&|s| s.best_epoch.map(|epoch| epoch as f64)),
            seconds_per_epoch: over(&|s| median(s.epochs.iter().map(|record| record.train_seconds))),
            training_seconds: over(&|s| Some(seconds(s))),
            memory_bytes: over(&|s| Some(s.peak_memory_bytes.host as f64)),
            device_memory_bytes: over(&device_bytes),
            parameters: summaries().next().map_or(0, |s| s.parameters),
            stages: stages(summaries().map(|s| s.stages.as_slice())),
            runs: runs.iter().map(|run| RunOfLine::new(run, metric)).collect(),
            settings: own,
        }
    }
}

impl RunOfLine {
    fn new(run: &FinishedRun, metric: &str) -> Self {
        let mut seconds = 0.0;
        let points = run.summary.epochs.iter().map(|record| {
            seconds += record.train_seconds;
            let val = record.val.and_then(|scores| named(&scores, metric));
            Point { epoch: record.epoch, seconds, loss: record.train_loss, val }
        });
        RunOfLine { epochs: points.collect(), path: run.path.clone(), seed: run.config.seed }
    }
}

/// Returns the name of a line: the values of its own settings, with their keys where they do not speak for
/// themselves.
fn name(own: &IndexMap<String, Value>, settings: &Settings) -> String {
    if own.is_empty() {
        return settings.get("model").map_or_else(String::new, text_of);
    }
    let part = |(key, value): (&String, &Value)| match key.as_str() {
        "model" | "plan" | "device" | "data" => text_of(value),
        key => format!("{key}={}", text_of(value)),
    };
    own.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// Returns the means of the stages' seconds over the runs that have any.
fn stages<'a>(of_runs: impl Iterator<Item = &'a [StageRecord]>) -> Vec<StageRecord> {
    let timed: Vec<&[StageRecord]> = of_runs.filter(|stages| !stages.is_empty()).collect();
    let mut sums: Vec<StageRecord> = Vec::new();
    for record in timed.iter().copied().flatten() {
        match sums.iter_mut().find(|sum| (sum.stage, sum.lane) == (record.stage, record.lane)) {
            Some(sum) => sum.seconds += record.seconds,
            None => sums.push(*record),
        }
    }
    sums.iter_mut().for_each(|sum| sum.seconds /= timed.len() as f64);
    sums
}
