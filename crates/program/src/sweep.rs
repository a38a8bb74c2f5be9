//! `tgnn-bench sweep`: trains over a grid and over random draws of any keys, and says which is the best by
//! validation.
use super::{
    compare::{Format, Timelines, compared, write},
    output::{print_json, say},
    settings::GivenFiles,
    trials::{Outcome, TrialArgs, parse_seeds},
};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};
use tgnn_training::task::{
    comparison::Comparison,
    search::{Draw, Space, values},
};

/// Arguments of `sweep`.
#[derive(Args)]
#[command(next_help_heading = "Sweep", disable_help_flag = true)]
#[command(after_help = "\
The folder --out has a run folder for every trial, and nothing else. The same command goes on where a sweep \
was interrupted. The best is chosen by validation, over all seeds, never by test.

Examples:
  One setting with five seeds, as TGB asks for:
    tgnn-bench sweep --data tgbl_wiki --protocol tgb --seeds 5 --out s
  Every combination of two learning rates and two depths, with three seeds:
    tgnn-bench sweep --grid learning_rate=1e-4,1e-3 --grid tgn.layers=1,2 \\
      --seeds 1,2,3 --out s
  Twenty draws:
    tgnn-bench sweep --random learning_rate=log:1e-5..1e-2 --trials 20 --out s")]
pub struct Sweep {
    #[command(flatten)]
    files: GivenFiles,
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
    /// Folder of the sweep
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the comparison, the best settings and the failures as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trials_have: TrialArgs,
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
            self.trials_have.run(&self.files.sorted()?, &space, &self.out, self.json)?;
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
            space.seeds = parse_seeds(seeds)?;
        }
        if self.trials.is_some() && space.random.is_empty() {
            return Err(Error::usage("--trials counts draws, and nothing is drawn").remedy("give --random"));
        }
        space.trials = self.trials.unwrap_or(space.trials);
        space.sweep_seed = self.sweep_seed.unwrap_or(space.sweep_seed);
        Ok(space)
    }
}

/// Splits `pair` at its first `=`.
fn pair_of<'a>(flag: &str, pair: &'a str, want: &str) -> Result<(&'a str, &'a str)> {
    let split = pair.split_once('=').map(|(key, value)| (key.trim(), value));
    let wrong = || Error::usage(format!("{flag} {pair}")).remedy(format!("give {want}"));
    split.filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)
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
