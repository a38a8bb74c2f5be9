//! Trials: runs that `sweep` and `compare` start, several at the same time, each as a process.
mod board;
mod child;
mod runner;

pub(super) use child::end_with_parent;
pub(super) use runner::Outcome;

use super::settings::{Files, Settings, headings::TRAINING};
use clap::{ArgAction, Args};
use runner::{Runner, Words};
use std::{
    path::{Path, PathBuf},
    str::FromStr,
};
use tgnn::error::{Error, Result};
use tgnn_training::task::{
    Config,
    comparison::comparable_configs,
    config::table::keys_of,
    search::{self, Space},
};
use toml::Value;

/// What trials have in common. Of the flags, those that no training has are under the heading of the command.
#[derive(Args)]
pub(super) struct TrialArgs {
    /// Trials at the same time; without --threads each gets its share of the cores [default: one until the
    /// first has ended, then as many as its memory and the --threads of a trial leave room for]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Time every op, for the stage times of the comparison
    #[arg(long)]
    profile: bool,
    /// Keep the timeline of some steps in each run folder, for the comparison
    #[arg(long)]
    timeline: bool,
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    settings: Settings,
    /// Start every trial from the weights in a safetensors file
    #[arg(long, value_name = "FILE", help_heading = TRAINING)]
    weights: Option<PathBuf>,
    /// Start every trial from the model of another run's best epoch
    #[arg(long, value_name = "DIR", conflicts_with = "weights", help_heading = TRAINING)]
    from: Option<PathBuf>,
}

impl TrialArgs {
    /// Whether any of the arguments is given.
    pub(super) fn given(&self) -> Result<bool> {
        let paths = self.weights.is_some() || self.from.is_some();
        let flags = self.profile || self.timeline || self.jobs.is_some();
        Ok(paths || flags || !self.settings.table(&Files::default())?.0.is_empty())
    }
    /// Trains the trials of `space` that have not finished yet, in folders in `out`. If `quiet`, standard
    /// output stays empty.
    ///
    /// # Errors
    /// `Usage` if the trials make no sense, cannot be compared, or have other runs in their folders; the
    /// first failure if no trial finished.
    pub(super) fn run(&self, files: &Files, space: &Space, out: &Path, quiet: bool) -> Result<Outcome> {
        let (mut base, notes) = self.settings.table(files)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.jobs == Some(0) {
            return Err(Error::usage("--jobs 0").remedy("give 1 or more"));
        }
        if let (Some(jobs), false) = (self.jobs, base.contains_key("threads")) {
            base.insert("threads".into(), Value::Integer((cores / jobs).max(1) as i64));
        }
        let trials = space.trials(&base)?;
        let configs =
            trials.iter().map(|trial| Config::of_table(&trial.table)).collect::<Result<Vec<_>>>()?;
        let tried = trials.iter().flat_map(|trial| keys_of(&trial.table).into_keys());
        let of_base = keys_of(&base);
        let tried = tried.filter(|key| !of_base.contains_key(key));
        for key in keys_of(&self.settings.flags(files)?).into_keys().chain(tried) {
            let refused: Vec<Result<()>> = configs.iter().map(|config| config.model_reads(&key)).collect();
            if refused.iter().all(Result::is_err) {
                refused.into_iter().collect::<Result<()>>()?;
            }
        }
        let named = trials.iter().zip(&configs).map(|(trial, config)| (trial.name.clone(), config));
        comparable_configs(named)?;
        if configs.iter().any(|config| !config.evaluate) {
            return Err(
                Error::usage("trials without validation cannot be compared").remedy("leave out --no-eval")
            );
        }
        let runner =
            Runner { out, trials: &trials, configs: &configs, cores, jobs: self.jobs, args: self.words()? };
        runner.run(&notes, quiet)
    }
    /// Returns the words that every trial's command line has, besides its keys.
    fn words(&self) -> Result<Words> {
        let mut always = self.settings.ranks().words();
        always.extend(self.profile.then(|| "--profile".into()));
        always.extend(self.timeline.then(|| "--timeline".into()));
        let start = [("--weights", &self.weights), ("--from", &self.from)];
        let start = start.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let at_start = start.flat_map(|(flag, path)| [flag.into(), path.into()]).collect();
        Ok(Words { always, at_start })
    }
}

/// Parses a list of words.
///
/// # Errors
/// `Usage`, with the flag and the word.
fn words<T: FromStr>(flag: &str, list: &str) -> Result<Vec<T>> {
    let word = |word: &str| {
        let wrong = || Error::usage(format!("{flag} {list}: `{word}` is not a whole number, 0 or more"));
        word.trim().parse().map_err(|_| wrong().remedy("separate them by commas, as in 1,2,3"))
    };
    list.split(',').map(word).collect()
}

/// Parses `--seeds`: a list, or the number of seeds from 1 on.
///
/// # Errors
/// `Usage`, with the flag and what is wrong.
pub(super) fn parse_seeds(list: &str) -> Result<Vec<u64>> {
    match words("--seeds", list)?[..] {
        [number] => search::seeds(number).map_err(|e| Error::usage(format!("--seeds {list}: {e}"))),
        ref list => Ok(list.to_vec()),
    }
}
