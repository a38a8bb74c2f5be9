//! `tgnn-bench sweep`: trains over a grid and over random draws of any keys, and says which is the best by
//! validation.
mod board;
mod child;
mod runner;

pub(super) use child::end_with_parent;
pub(super) use runner::Outcome;

use super::{
    compare::{Format, Timelines, compared, write},
    print_json, say,
    train::Settings,
};
use crate::{
    error::{Error, Result},
    task::{
        Config,
        comparison::{Comparison, comparable_configs},
        search::{self, Draw, Space, values},
    },
};
use clap::Args;
use runner::Runner;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    str::FromStr,
};
use toml::Value;

/// What the trials of a sweep have in common.
#[derive(Args)]
pub(super) struct TrialArgs {
    #[command(flatten)]
    settings: Settings,
    /// Trials at the same time; without --threads each gets its share of the cores [default: one until the
    /// first has ended, then as many as its memory and the --threads of a trial leave room for]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Start every trial from the weights in a safetensors file
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Start every trial from the model of another run's best epoch
    #[arg(long, value_name = "DIR", conflicts_with = "weights")]
    from: Option<PathBuf>,
    /// Time every op, for the stage times of the comparison
    #[arg(long)]
    profile: bool,
    /// Keep the timeline of some steps in each run folder, for the comparison
    #[arg(long)]
    timeline: bool,
}

/// Arguments of `sweep`.
#[derive(Args)]
#[command(after_help = "\
The folder --out has a run folder for every trial, and nothing else. The same command goes on where a sweep
was interrupted. The best is chosen by validation, over all seeds, never by test.

Examples:
  tgnn-bench sweep --data tgbl_wiki --protocol tgb --seeds 5 --out s    one setting with five seeds, as TGB asks for
  tgnn-bench sweep --data events --grid learning_rate=0.0001,0.001 --grid tgn.layers=1,2 --seeds 1,2,3 --out s
  tgnn-bench sweep --random learning_rate=log:1e-5..1e-2 --random batch=100..1000 --trials 20 --out s")]
pub struct Sweep {
    /// Configuration file of all trials: TOML, in which every key is optional, or TGL's YAML (.yml)
    config: Option<PathBuf>,
    /// TOML file of the sweep: [grid], [random], trials, seeds, sweep_seed; flags override it
    #[arg(long, value_name = "FILE")]
    space: Option<PathBuf>,
    /// Try every one of these values: --grid tgn.layers=1,2 (may be repeated, for every combination)
    #[arg(long, value_name = "KEY=LIST")]
    grid: Vec<String>,
    /// Draw values: --random batch=100..1000, --random learning_rate=log:1e-5..1e-2, --random model=tgn,jodie
    /// (may be repeated)
    #[arg(long, value_name = "KEY=RANGE")]
    random: Vec<String>,
    /// How many times values are drawn; every draw is combined with the whole grid [default: 10]
    #[arg(long, value_name = "N")]
    trials: Option<usize>,
    /// Seeds with which every combination is trained: how many from 1 on, as in 5, or which, as in 1,2,3
    /// [default: --seed]
    #[arg(long, value_name = "LIST")]
    seeds: Option<String>,
    /// Seed of the draws [default: 1]
    #[arg(long, value_name = "N")]
    sweep_seed: Option<u64>,
    #[command(flatten)]
    trials_have: TrialArgs,
    /// Folder of the sweep
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the comparison, the best settings and the failures as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
}

/// What a sweep prints as JSON.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// Index of the best line; null if there is none.
    best: Option<usize>,
    /// A command that trains it again.
    command: Option<String>,
    /// Trials without results, with the reasons.
    failed: &'a [(String, String)],
}

impl Sweep {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let space = self.space()?;
        let Outcome { finished, failed } =
            self.trials_have.run(self.config.as_ref(), &space, &self.out, self.json)?;
        let for_tgb = Format::Tgb.check(&finished).is_ok();
        let (comparison, _) = compared(finished, Vec::new())?;
        let best = comparison.best();
        let command = best
            .and_then(|line| line.runs.first())
            .map(|run| format!("tgnn-bench train {} --out DIR", quoted(&run.path.join("config.toml"))));
        if self.json {
            let best = comparison.lines.iter().position(|line| Some(line) == best);
            return print_json(&Report { comparison: &comparison, best, command, failed: &failed });
        }
        say("");
        write(&comparison, &Timelines::new(), Format::Table, None)?;
        if let (Some(best), Some(command)) = (best, command) {
            say(format_args!("\nbest by validation  {}", best.name));
            say(format_args!("train it again      {command}"));
        }
        say(format_args!("curves and times    tgnn-bench compare {} --out compare.html", quoted(&self.out)));
        if for_tgb {
            say(format_args!("rows for TGB        tgnn-bench compare {} --as tgb", quoted(&self.out)));
        }
        if !failed.is_empty() {
            say(format_args!("{} of the trials failed; the same command tries them again", failed.len()));
        }
        Ok(())
    }
    /// Returns what the file and the flags say is tried.
    fn space(&self) -> Result<Space> {
        let mut space = self.space.as_deref().map(Space::read).transpose()?.unwrap_or_default();
        for pair in &self.grid {
            let (key, list) = pair_of("--grid", pair, "KEY=LIST, as in --grid tgn.layers=1,2")?;
            let add = values(list).and_then(|list| space.add_grid(key, list));
            add.map_err(|e| Error::usage(format!("--grid {pair}: {e}")))?;
        }
        for pair in &self.random {
            let (key, range) = pair_of("--random", pair, "KEY=RANGE, as in --random batch=100..1000")?;
            let add = Draw::parse(key, range).and_then(|draw| space.add_random(key, draw));
            add.map_err(|e| Error::usage(format!("--random {pair}: {e}")))?;
        }
        if let Some(seeds) = &self.seeds {
            space.seeds = self::seeds(seeds)?;
        }
        if self.trials.is_some() && space.random.is_empty() {
            return Err(Error::usage("--trials counts draws, and nothing is drawn").remedy("give --random"));
        }
        space.trials = self.trials.unwrap_or(space.trials);
        space.sweep_seed = self.sweep_seed.unwrap_or(space.sweep_seed);
        Ok(space)
    }
}

impl TrialArgs {
    /// Whether any of the arguments is given.
    pub(super) fn given(&self) -> Result<bool> {
        let paths = self.weights.is_some() || self.from.is_some();
        let flags = self.profile || self.timeline || self.jobs.is_some();
        Ok(paths || flags || !self.settings.table(None)?.0.is_empty())
    }
    /// Trains the trials of `space` that have not finished yet, in folders in `out`. If `quiet`, standard
    /// output stays empty.
    ///
    /// # Errors
    /// `Usage` if the trials make no sense, cannot be compared, or have other runs in their folders; the
    /// first failure if no trial finished.
    pub(super) fn run(
        &self,
        config: Option<&PathBuf>,
        space: &Space,
        out: &Path,
        quiet: bool,
    ) -> Result<Outcome> {
        let (mut base, notes) = self.settings.table(config)?;
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
        let mut always = self.settings.ranks.words();
        always.extend(self.profile.then(|| "--profile".into()));
        always.extend(self.timeline.then(|| "--timeline".into()));
        let start = [("--weights", &self.weights), ("--from", &self.from)];
        let start = start.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let at_start = start.flat_map(|(flag, path)| [flag.into(), path.into()]).collect();
        Ok(Words { always, at_start })
    }
}

/// Words of the command line of a trial.
struct Words {
    always: Vec<std::ffi::OsString>,
    /// Only where the trial is not resumed.
    at_start: Vec<std::ffi::OsString>,
}

/// Splits `pair` at its first `=`.
fn pair_of<'a>(flag: &str, pair: &'a str, want: &str) -> Result<(&'a str, &'a str)> {
    let split = pair.split_once('=').map(|(key, value)| (key.trim(), value));
    let wrong = || Error::usage(format!("{flag} {pair}")).remedy(format!("give {want}"));
    split.filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)
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
pub(super) fn seeds(list: &str) -> Result<Vec<u64>> {
    match words("--seeds", list)?[..] {
        [number] => search::seeds(number).map_err(|e| Error::usage(format!("--seeds {list}: {e}"))),
        ref list => Ok(list.to_vec()),
    }
}

/// Returns a path as a word for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-=,:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
