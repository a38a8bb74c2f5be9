//! The arguments that several commands share: what decides a run, what was trained, how to read data, and how
//! many ranks there are.
mod keys;
mod ranks;
mod read;
mod trained;

pub(super) use keys::{set_flag, set_keys};
pub(super) use ranks::RankArgs;
pub(super) use read::ReadArgs;
pub(super) use trained::{Moved, Trained, with_flag};

use crate::{
    data::Every,
    error::{Error, Result},
    model::ModelName,
    runtime::MatmulPrecision,
    task::{Config, HistoryRule, NegativeKind, Protocol, TaskName},
};
use clap::Args;
use std::path::PathBuf;

/// Returns the help text of `--model`.
fn model_help() -> String {
    let [events, snapshots] = [false, true].map(ModelName::names);
    format!("Model of events: {events}; of snapshots: {snapshots} [default: tgn]")
}

/// What decides a run: flags that override the keys of a configuration file. What neither sets keeps its
/// default.
#[derive(Args)]
pub(super) struct Settings {
    /// Events: `wikipedia`, a file, or a folder of .npy [default: wikipedia]
    #[arg(long, value_name = "PATH")]
    pub(super) data: Option<String>,
    #[arg(long, help = model_help())]
    model: Option<ModelName>,
    /// auto, cpu, cuda, cuda:N or emu [default: auto, the CPU]
    #[arg(long)]
    device: Option<String>,
    /// CPU threads; 0 uses every core [default: 0]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    pub(super) ranks: RankArgs,
    /// Precision of dense products on a CUDA device: f32, tf32 or bf16 [default: f32]
    #[arg(long)]
    precision: Option<MatmulPrecision>,
    /// How the stages of steps are scheduled: auto, sequential, prefetch, overlap, blad-even, blad-nm, blad,
    /// presample, mspipe, mspipe:k=K, mspipe-s; over ranks depcache, depcomm, sven, sven-cached,
    /// disttgl:IxJxK, pipetgl, pipetgl:k=K; or a plan in a file; see `plan show` [default: auto]
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// Over ranks, the owners of the nodes' memory: range, interval, re-flex-bicut, or the .npy file of
    /// `tgnn-bench partition` [default: as the plan says]
    #[arg(long, value_name = "NAME|FILE")]
    partition: Option<String>,
    /// Passes over the training events [default: 10]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Events per step [default: 200]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Events of a batch of validation and test; scores depend on it [default: 200]
    #[arg(long, value_name = "N")]
    eval_batch: Option<usize>,
    /// Chunks of a batch; an epoch's first batch has a random number of them (TGL's random chunk scheduling)
    /// [default: 1]
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// Stop after N epochs without a better validation score; 0 never stops [default: 0]
    #[arg(long, value_name = "N")]
    patience: Option<usize>,
    /// Maximum number of steps of each pass, for quick trials; 0 runs all [default: 0]
    #[arg(long, value_name = "N")]
    max_batches: Option<usize>,
    /// Length of a snapshot: 7d, 12h, 600s (from the first event on), 1000e (events), day, week, month, year,
    /// or step if times are numbers of snapshots [default: week]
    #[arg(long, value_name = "LENGTH")]
    every: Option<Every>,
    /// Number of snapshots that a model reads before the one it predicts [default: 8]
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// Task, what is predicted: link, node, edge or property; for snapshots link, node or regression
    /// [default: link; property if nodes have labels]
    #[arg(long)]
    task: Option<TaskName>,
    /// dyglib, tgl, disttgl or tgb: how negatives are drawn and which metrics are computed [default: dyglib]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Negatives of validation and test: random, historical or inductive [default: random]
    #[arg(long)]
    negatives: Option<NegativeKind>,
    /// Which events a query sees as neighbours: time (all that are strictly earlier), batch (of these, those
    /// of earlier batches) or auto (as the protocol says) [default: auto]
    #[arg(long, value_name = "RULE")]
    history: Option<HistoryRule>,
    /// Seed of all random numbers [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Learning rate of the optimiser [default: 0.0005]
    #[arg(long, value_name = "X")]
    learning_rate: Option<f64>,
    /// Width of random edge features, for data without edge features [default: 0]
    #[arg(long, value_name = "W")]
    random_edge_features: Option<usize>,
    /// Set any key of the configuration: --set tgn.layers=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    read: ReadArgs,
    /// Give the same bits on the same build and device, or refuse; so far every device can
    #[arg(long)]
    deterministic: bool,
    /// Train only, without validation and test
    #[arg(long)]
    no_eval: bool,
}

impl Settings {
    /// Returns the keys that the file and the flags set, and notes on settings of the file that have no
    /// counterpart.
    ///
    /// # Errors
    /// `Usage`, with the flag or the place in the file, for a wrong key or value; `Io`.
    pub(super) fn table(&self, file: Option<&PathBuf>) -> Result<(toml::Table, Vec<String>)> {
        let (mut table, notes) = file.map(Config::read).transpose()?.unwrap_or_default();
        set_keys(&mut table, &self.set)?;
        macro_rules! take {
            ($($flag:ident => $key:literal),*) => {$(
                if let Some(value) = &self.$flag { set_flag(&mut table, $key, value)?; }
            )*};
        }
        take!(data => "data.path", model => "model", device => "device", threads => "threads",
              precision => "precision", plan => "plan", partition => "partition", epochs => "epochs",
              batch => "batch", eval_batch => "eval_batch", history => "history", every => "snapshots.every", group => "group.length", chunks => "chunks",
              patience => "patience", max_batches => "max_batches", task => "task", protocol => "protocol",
              negatives => "negatives", seed => "seed", learning_rate => "learning_rate",
              random_edge_features => "data.random_edge_features");
        self.read.set(&mut table)?;
        if self.deterministic {
            set_flag(&mut table, "deterministic", &true)?;
        }
        if self.no_eval {
            set_flag(&mut table, "evaluate", &false)?;
        }
        let config = Config::of_table(&table)?;
        if (self.every.is_some() || self.group.is_some()) && !config.model.reads_snapshots() {
            return Err(Error::usage(format!(
                "--every and --group are of snapshots, and {} reads events",
                config.model.name()
            ))
            .remedy(format!("give --model {}", ModelName::names(true))));
        }
        Ok((table, notes))
    }
}
