//! The arguments that several commands share: what decides a run, what was trained, how to read data, and how
//! many ranks there are.
mod files;
mod keys;
mod ranks;
mod read;
mod trained;

pub(super) use files::{Files, GivenFiles, check_ending, data_files, refuse_over};
pub(super) use keys::{Keys, keys, refuse_unread, set_flag, set_keys, with_default};
pub(super) use ranks::{Opened, RankArgs, is_on_gpu};
pub(super) use read::ReadArgs;
pub(super) use trained::{MovedData, TrainedModelArgs, with_flag};

use clap::Args;
use tgnn::{
    error::{Error, Result},
    runtime::MatmulPrecision,
};
use tgnn_data::Every;
use tgnn_training::{
    model::ModelName,
    plan::Plan,
    task::{
        Config, HistoryRule, NegativeKind, Protocol, TaskName,
        config::table::{keys_of, set_key},
    },
};

/// The headings of these arguments in help.
pub(super) mod headings {
    pub const DATA: &str = "Data";
    pub const TRAINING: &str = "Model and training";
    pub const PLAN: &str = "Ranks and plan";
}
use headings::{DATA, PLAN, TRAINING};

/// What decides a run: flags that override the keys of a configuration file. What neither sets keeps its
/// default.
#[derive(Args)]
pub(super) struct Settings {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    plan: PlanArgs,
}

/// The data of a run.
#[derive(Args)]
#[command(next_help_heading = DATA)]
#[command(mut_args(|arg| with_default(arg, Self::KEYS)), mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
struct DataArgs {
    /// Events or snapshots: a file, or a folder
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    /// Length of a snapshot: day, week, month, year; 7d, 12h, 600s, from the first event on; 1000e (events);
    /// or step, if times are numbers of snapshots
    #[arg(long, value_name = "LENGTH")]
    every: Option<Every>,
    #[command(flatten)]
    read: ReadArgs,
    /// Width of random edge features, for data without edge features
    #[arg(long, value_name = "W")]
    random_edge_features: Option<usize>,
}

/// The model, and how it is trained and evaluated.
#[derive(Args)]
#[command(next_help_heading = TRAINING, mut_args(|arg| with_default(arg, Self::KEYS)))]
struct TrainingArgs {
    #[arg(long, help = model_help())]
    model: Option<ModelName>,
    /// What is predicted: link, node, edge or property; of snapshots link, node or regression [default: link;
    /// property if nodes have labels]
    #[arg(long)]
    task: Option<TaskName>,
    /// Of two labels of events, the one that is yes [default: the larger one]
    #[arg(long, value_name = "LABEL", allow_hyphen_values = true)]
    positive: Option<String>,
    /// Passes over the training events
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Events per step
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Snapshots that a model reads before the one it predicts
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// Learning rate of the optimiser
    #[arg(long, value_name = "X")]
    learning_rate: Option<f64>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after N epochs without a better validation score; 0 never stops
    #[arg(long, value_name = "N")]
    patience: Option<usize>,
    /// Most steps of a pass, for quick trials; 0 runs all
    #[arg(long, value_name = "N")]
    max_batches: Option<usize>,
    /// Chunks of a batch; an epoch's first batch has a random number of them (TGL's random chunk scheduling)
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// How negatives are drawn and which metrics are computed: dyglib, tgl, disttgl or tgb
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Negatives of validation and test: random, historical or inductive
    #[arg(long)]
    negatives: Option<NegativeKind>,
    /// Which events a query sees as neighbours: time (all that are strictly earlier), batch (of these, those
    /// of earlier batches) or auto (as the protocol says)
    #[arg(long, value_name = "RULE")]
    history: Option<HistoryRule>,
    /// Events of a batch of validation and test; scores depend on it
    #[arg(long, value_name = "N")]
    eval_batch: Option<usize>,
    /// Train only, without validation and test
    #[arg(long)]
    no_eval: bool,
    /// Leave out EdgeBank and the rules that learn nothing, which a test of links scores beside the model
    #[arg(long)]
    no_rules: bool,
    /// Set any key of the configuration: --set tgn.layers=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Where a run computes, and in which order.
#[derive(Args)]
#[command(next_help_heading = PLAN, mut_args(|arg| with_default(arg, Self::KEYS)))]
struct PlanArgs {
    /// auto (the CPU), cpu, cuda, cuda:N or emu
    #[arg(long)]
    device: Option<String>,
    /// CPU threads; 0 uses every core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Precision of dense products on a CUDA device: f32 or tf32
    #[arg(long)]
    precision: Option<MatmulPrecision>,
    #[command(flatten)]
    ranks: RankArgs,
    #[arg(long, value_name = "PLAN", help = plan_help())]
    plan: Option<String>,
    /// Over ranks, the owners of the nodes' memory: range, interval, re-flex-bicut, auto (as the plan says),
    /// or the .npy file of `tgnn-bench partition`
    #[arg(long, value_name = "NAME|FILE")]
    partition: Option<String>,
    /// Refuse what may not give the same bits in every run on the same build and device: plans that choose by
    /// measured times, such as mspipe and blad
    #[arg(long)]
    deterministic: bool,
}

/// Returns the help text of `--plan`.
fn plan_help() -> String {
    let forms = |over_ranks: bool| {
        let forms = Plan::PRESETS.iter().filter(|plan| plan.over_ranks == over_ranks).map(|plan| plan.form);
        forms.collect::<Vec<_>>().join(", ")
    };
    let [plain, ranks] = [false, true].map(forms);
    format!(
        "How the stages of steps are scheduled: {plain}; over ranks {ranks}; or a plan in a file; see `plan show`"
    )
}

/// Returns the help text of `--model`.
fn model_help() -> String {
    let [events, snapshots] = [false, true].map(ModelName::names);
    format!("Model of events: {events}; of snapshots: {snapshots}")
}

keys!(DataArgs {
    data => "data.path",
    every => "snapshots.every",
    random_edge_features => "data.random_edge_features",
});
keys!(TrainingArgs {
    model => "model",
    task => "task",
    positive => "classify.positive",
    epochs => "epochs",
    batch => "batch",
    group => "group.length",
    learning_rate => "learning_rate",
    seed => "seed",
    patience => "patience",
    max_batches => "max_batches",
    chunks => "chunks",
    protocol => "protocol",
    negatives => "negatives",
    history => "history",
    eval_batch => "eval_batch",
});
keys!(PlanArgs {
    device => "device",
    threads => "threads",
    precision => "precision",
    plan => "plan",
    partition => "partition",
});

impl Settings {
    /// Returns how many ranks there are, and how they work together.
    pub(super) fn ranks(&self) -> &RankArgs {
        &self.plan.ranks
    }
    /// Whether the data are given by a flag.
    pub(super) fn gives_data(&self) -> bool {
        self.data.data.is_some()
    }
    /// Returns the keys that the files and the flags set, and notes on settings of the configuration file
    /// that have no counterpart.
    ///
    /// # Errors
    /// `Usage`, with the flag or the place in the file, for a wrong key or value; `Io`.
    pub(super) fn table(&self, files: &Files) -> Result<(toml::Table, Vec<String>)> {
        let (mut table, notes) = files.config.as_ref().map(Config::read).transpose()?.unwrap_or_default();
        for (key, value) in keys_of(&self.flags(files)?) {
            set_key(&mut table, &key, value)?;
        }
        let config = Config::of_table(&table)?;
        let of_snapshots = self.data.every.is_some() || self.training.group.is_some();
        if of_snapshots && !config.model.reads_snapshots() {
            return Err(Error::usage(format!(
                "--every and --group are of snapshots, and {} reads events",
                config.model.name()
            ))
            .remedy(format!("give --model {}", ModelName::names(true))));
        }
        Ok((table, notes))
    }
    /// Returns the keys that the command line sets, and not a configuration file.
    ///
    /// # Errors
    /// `Usage`, with the flag, for a wrong key or value.
    pub(super) fn flags(&self, files: &Files) -> Result<toml::Table> {
        let Settings { data, training, plan } = self;
        let mut table = toml::Table::new();
        set_keys(&mut table, &training.set)?;
        if let (Some(first), Some(second)) = (&files.data, &data.data) {
            return Err(Error::usage(format!("the data are given twice: {first} and --data {second}"))
                .remedy("give one of them"));
        }
        if let Some(path) = &files.data {
            set_flag(&mut table, "data.path", path)?;
        }
        data.set_given(&mut table)?;
        data.read.set(&mut table)?;
        training.set_given(&mut table)?;
        plan.set_given(&mut table)?;
        if plan.deterministic {
            set_flag(&mut table, "deterministic", &true)?;
        }
        if training.no_eval {
            set_flag(&mut table, "evaluate", &false)?;
        }
        if training.no_rules {
            set_flag(&mut table, "rules", &false)?;
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn_training::task::config::table::text_of;

    #[test]
    fn the_help_of_a_flag_has_the_default_of_the_key_that_it_sets() {
        let command = Settings::augment_args(clap::Command::new("train"));
        let defaults = keys_of(&Config::default().to_table().unwrap());
        let keys = [DataArgs::KEYS, TrainingArgs::KEYS, PlanArgs::KEYS, ReadArgs::KEYS].concat();
        for (flag, key) in keys {
            let arg = command.get_arguments().find(|arg| arg.get_id() == flag).unwrap();
            let help = arg.get_help().unwrap().to_string();
            match defaults.get(key) {
                // Labels of nodes decide it, too.
                Some(_) if flag == "task" => assert!(help.contains("[default: link; ")),
                Some(value) => {
                    assert!(help.ends_with(&format!(" [default: {}]", text_of(value))), "{flag}: {help}");
                    assert_eq!(help.matches("[default: ").count(), 1, "{flag}: {help}");
                }
                None => {
                    let table = format!("{key} = []").parse().unwrap();
                    let e = Config::of_table(&table).unwrap_err().to_string();
                    assert!(!e.contains("unknown field"), "{flag}: {e}");
                }
            }
        }
    }
}
