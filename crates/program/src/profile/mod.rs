//! `tgnn-bench profile`: an op, steps or an epoch of training, by itself or under one of NVIDIA's tools.
mod measured;
mod ncu;
mod op;
mod report;
mod table;
mod tool;
mod training;

use super::settings::{Files, Settings};
use clap::{ArgAction, Args, builder::Resettable};
use measured::{How, MeasuredOp};
use op::OpCases;
use report::Report;
use std::path::PathBuf;
use tgnn::{
    error::{Error, Result},
    runtime::Device,
};
use tgnn_lab::ceilings::{Caches, Ceilings};
use tgnn_training::task::{Config, config::table::keys_of};
use tool::{Check, Tool};

/// Keys of the configuration that count for a single op.
const KEYS_OF_OPS: [&str; 3] = ["device", "threads", "precision"];

/// Arguments of the command.
#[derive(Args)]
#[command(next_help_heading = "Profile", disable_help_flag = true)]
pub struct ProfileArgs {
    /// An op, by its name in tables, such as gru_memory_grad; or step, or epoch: of a training whose settings
    /// are those of `train`
    #[arg(value_name = "OP|step|epoch", help_heading = Resettable::Reset)]
    what: String,
    /// Sizes of the op's operands, such as 1487x100 [default: those in a training step]
    #[arg(long, value_name = "DIMS")]
    case: Option<String>,
    /// Runs of the op, steps, or epochs [default: 20, 10, 1; under a tool 5, 2, 1]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Steps of the same epoch before the first one that is profiled
    #[arg(long, value_name = "N", default_value_t = 20)]
    warm_up: usize,
    /// Overwrite the caches before each run of an op; with ncu, before each kernel
    #[arg(long)]
    cold: bool,
    /// Run under a tool, on a CUDA device: ncu (Nsight Compute) counts what each kernel does, nsys (Nsight
    /// Systems) writes a timeline, sanitizer (compute-sanitizer) finds faults
    #[arg(long, value_enum, value_name = "TOOL", hide_possible_values = true)]
    with: Option<Tool>,
    /// What --with sanitizer looks for: memcheck, racecheck, initcheck or synccheck
    #[arg(long, value_enum, value_name = "CHECK", default_value_t = Check::Memcheck, hide_possible_values = true)]
    tool: Check,
    /// Report of --with nsys, without extension [default: profile-OP]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Set where this process is inside of a tool: the file for what it has done
    #[arg(long, value_name = "FILE", hide = true)]
    inside: Option<PathBuf>,
    /// Configuration file, TOML or TGL's YAML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    settings: Settings,
}

/// What is profiled.
enum Subject {
    Op(OpCases),
    Steps { warm_up: usize },
    Epochs,
}

impl Subject {
    /// Runs the subject on a device.
    fn measure(&self, config: &Config, device: &Device, how: How) -> Result<Vec<MeasuredOp>> {
        match self {
            Subject::Op(cases) => cases.measure(device, how),
            Subject::Steps { warm_up } => training::steps(config, device, *warm_up, how),
            Subject::Epochs => training::epochs(config, device, how),
        }
    }
    /// Returns the number of runs, on its own and under a tool.
    fn runs(&self) -> [usize; 2] {
        match self {
            Subject::Op(_) => [20, 5],
            Subject::Steps { .. } => [10, 2],
            Subject::Epochs => [1, 1],
        }
    }
}

impl ProfileArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let (subject, config) = (self.subject()?, self.config()?);
        match (&self.inside, self.with) {
            (Some(file), _) => Report::from_work(|| self.measured(&subject, &config)).write(file),
            (None, Some(tool)) => self.under(tool, &subject, &config),
            (None, None) => {
                let device = config.open_device()?;
                let ceilings = Ceilings::measure(&device)?;
                let found = subject.measure(&config, &device, self.how(&subject)?)?;
                table::print(&device, &ceilings, &found, self.caches(), self.json)
            }
        }
    }
    /// Runs the subject inside of a tool.
    fn measured(&self, subject: &Subject, config: &Config) -> Result<Vec<MeasuredOp>> {
        subject.measure(config, &config.open_device()?, self.how(subject)?)
    }
    fn subject(&self) -> Result<Subject> {
        let subject = match self.what.as_str() {
            "step" => Subject::Steps { warm_up: self.warm_up },
            "epoch" => Subject::Epochs,
            name => return OpCases::find(name, self.case.as_deref()).map(Subject::Op),
        };
        if let Some(case) = &self.case {
            let what = format!("--case {case} is for an op, and this is `{}`", self.what);
            return Err(Error::usage(what).remedy("give the op's name, or leave out --case"));
        }
        if self.cold && self.with != Some(Tool::Ncu) && self.inside.is_none() {
            let what = format!("--cold is for an op: a {} finds what the one before has left", self.what);
            return Err(Error::usage(what).remedy("leave it out, or give --with ncu"));
        }
        Ok(subject)
    }
    /// Returns the configuration of the training. Under a tool the device is a CUDA device by default.
    fn config(&self) -> Result<Config> {
        let files = Files::of_config(self.config.as_ref());
        let (mut table, _) = self.settings.table(&files)?;
        let given = keys_of(&table);
        let of_training = given.keys().find(|key| !KEYS_OF_OPS.contains(&key.as_str()));
        if let (Some(key), false) = (of_training, matches!(self.what.as_str(), "step" | "epoch")) {
            let what = format!("`{key}` is a setting of a training, and `{}` is an op", self.what);
            return Err(Error::usage(what).remedy("leave it out, or profile step or epoch"));
        }
        let (config, flags) = (Config::of_table(&table)?, keys_of(&self.settings.flags(&files)?));
        flags.keys().try_for_each(|key| config.model_reads(key))?;
        if self.settings.ranks().size()? > 1 {
            return Err(Error::usage("one rank is profiled, and there are several").remedy(
                "leave out --ranks; `train --profile --ranks N` measures the first of several ranks",
            ));
        }
        if (self.with.is_some() || self.inside.is_some()) && !given.contains_key("device") {
            table.insert("device".into(), "cuda".into());
        }
        let config = Config::of_table(&table)?;
        config.validate()?;
        Ok(config)
    }
    fn caches(&self) -> Caches {
        if self.cold { Caches::Cold } else { Caches::Warm }
    }
    fn how(&self, subject: &Subject) -> Result<How> {
        let [own, under_tool] = subject.runs();
        let by_launch = self.inside.is_some();
        let runs = self.runs.unwrap_or(if by_launch { under_tool } else { own });
        if runs == 0 {
            return Err(Error::usage("--runs 0").remedy("give 1 or more"));
        }
        // Nsight Compute overwrites the caches itself, before every kernel.
        let caches = if by_launch && self.with == Some(Tool::Ncu) { Caches::Warm } else { self.caches() };
        Ok(How { runs, caches, by_launch })
    }
}
