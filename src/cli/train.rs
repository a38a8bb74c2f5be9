//! `tgnn-bench train`, `eval` and `embed`.
use super::{
    accesses::{Logged, Wanted},
    command_line,
    plan_explain::planned,
    print_json,
    ranks::RankArgs,
    read_args::ReadArgs,
    train_data::Data,
    watch::Display,
};
use crate::{
    data::{Every, is_imported},
    error::{Error, ErrorKind, Result},
    model::ModelName,
    plan::Plan,
    runtime::{Device, MatmulPrecision},
    task::{
        Checkpoint, Config, HistoryRule, NegativeKind, Protocol, RunOptions, Summary, TaskName, Watch,
        config::{
            DataConfig,
            table::{keys_of, set_key, value_of},
        },
        with_model_of,
    },
};
use clap::Args;
use std::path::{Path, PathBuf};

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
    data: Option<String>,
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

/// Arguments of `train`.
#[derive(Args)]
pub struct Train {
    /// Configuration file: TOML, in which every key is optional, or TGL's YAML (.yml)
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Folder of the run: config.toml, metrics.jsonl, summary.json, checkpoint/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write an event file of TensorBoard into the run folder
    #[arg(long, requires = "out")]
    tensorboard: bool,
    /// Continue the run in --out; start it if it has no epoch yet
    #[arg(long)]
    resume: bool,
    /// Start from the weights in a safetensors file, such as PyTorch's; names and shapes: docs/weights.md
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    weights: Option<PathBuf>,
    /// Start from the model of another run's best epoch, with its settings and a new head
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "weights"])]
    from: Option<PathBuf>,
    /// Print the summary as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Time every op, and print a table at the end
    #[arg(long)]
    profile: bool,
    /// Write a trace for Perfetto or Chrome: when and on which lane every op of the last epoch ran, on every
    /// rank. Some steps of the first rank go into the run folder, too; without FILE they are all that is
    /// written
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    timeline: Option<Option<PathBuf>>,
    /// Write a log of how the ranks read and wrote node memory in the last pass that trains, as CSV
    #[arg(long, value_name = "FILE")]
    accesses: Option<PathBuf>,
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

impl Train {
    /// Returns the configuration, the keys that the user has set, and notes on settings of the configuration
    /// file that have no counterpart.
    fn config(&self) -> Result<(Config, toml::Table, Vec<String>)> {
        let (mut table, notes) = self.settings.table(self.config.as_ref())?;
        if self.tensorboard {
            set_flag(&mut table, "tensorboard", &true)?;
        }
        if let Some(from) = &self.from {
            table = with_model_of(from, table)?;
        }
        let config = Config::of_table(&table)?;
        config.validate()?;
        Ok((config, table, notes))
    }
    /// Checks that the plan fits the model, the other keys and the ranks, before anything is printed. What
    /// the planner will choose is not known yet.
    fn check_plan(&self, config: &Config) -> Result<()> {
        if config.plan == Plan::PLANNED && !config.model.reads_snapshots() {
            return Ok(());
        }
        let on_gpu = !matches!(config.device.as_str(), "auto" | "cpu");
        config.plan_over(on_gpu, self.settings.ranks.size()?).map(drop)
    }
    /// Lets the planner replace the plan `disttgl` by one for the data and the ranks; says why in `notes`.
    fn planned(&self, config: Config, data: &Data, notes: &mut Vec<String>) -> Result<Config> {
        let Data::Events(events) = data else { return Ok(config) };
        let ranks = (self.settings.ranks.size()?, self.settings.ranks.size_of_node()?);
        Ok(match planned(&config, events, ranks)? {
            Some((config, reasons)) => {
                notes.extend(reasons);
                config
            }
            None => config,
        })
    }
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let (config, given, mut notes) = self.config()?;
        self.check_plan(&config)?;
        notes.extend(self.from.iter().map(|dir| format!("starts from the model of {}", dir.display())));
        let load = Data::load(&config).map_err(|e| match &self.config {
            Some(_) => with_flag(e, &config, self.settings.data.is_some()),
            None => e,
        });
        let data = load?;
        let config = self.planned(config, &data, &mut notes)?;
        self.check_plan(&config)?;
        let given = keys_of(&given);
        let config = data.fitted(config, |key| given.contains_key(key), &mut notes)?;
        let options = RunOptions {
            out: self.out.clone(),
            resume: self.resume,
            weights: self.weights.clone(),
            from: self.from.clone(),
            command: command_line(),
        };
        // Checked now rather than after the last epoch.
        let timeline = self.timeline.as_ref().and_then(Option::as_ref);
        if matches!(self.timeline, Some(None)) && self.out.is_none() {
            return Err(Error::usage("--timeline has neither a file nor a run folder to write into")
                .remedy("give --timeline FILE, or --out"));
        }
        for (flag, path) in [("timeline", timeline), ("accesses", self.accesses.as_ref())] {
            let folder = path.and_then(|path| path.parent());
            if let Some(folder) = folder.filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
                let path = path.map_or(folder, PathBuf::as_path).display();
                let what = format!("--{flag} {path}: there is no folder {}", folder.display());
                return Err(Error::usage(what).remedy("make it first"));
            }
        }
        if self.accesses.is_some() && config.has_memory() == Some(false) {
            let what = format!("--accesses, and the model {} has no node memory", config.model_name());
            return Err(Error::usage(what).remedy("leave it out"));
        }
        let wanted = Wanted { accesses: self.accesses.as_deref(), timeline: timeline.map(PathBuf::as_path) };
        let train = |device: &Device, watch: &mut dyn Watch| {
            let mut logged = Logged::new(watch, wanted);
            let summary = data.train(&config, device, &options, &mut logged)?;
            logged.write(device)?;
            Ok(summary)
        };
        self.settings.ranks.run(&config, |device| {
            if !device.is_first() {
                return train(&device, &mut ()).map(drop);
            }
            let mut display = Display::new(self.json, self.profile, self.timeline.is_some());
            display.configuration(&config, &data, &device, &notes)?;
            let summary = train(&device, &mut display)?;
            display.finish(&summary, &config, self.out.as_deref());
            if let Some(path) = timeline {
                display.tell_timeline(path, &device);
            }
            print_summary(&summary, self.json)
        })
    }
}

/// Sets the keys of `pairs`, one after another.
///
/// # Errors
/// `Usage`, with the pair, if it is not `key=value`, or the configuration has no such key or value.
pub(super) fn set_keys(table: &mut toml::Table, pairs: &[String]) -> Result<()> {
    pairs.iter().try_for_each(|pair| {
        set(table, pair)?;
        Config::of_table(table).map(drop).map_err(|e| Error::usage(format!("--set {pair}: {e}")))
    })
}

/// Sets the key of a `key=value` pair in `table`. A value that is not valid TOML is taken as a string.
fn set(table: &mut toml::Table, pair: &str) -> Result<()> {
    let wrong = || Error::usage(format!("--set {pair}")).remedy("give KEY=VALUE, as in --set tgn.layers=2");
    let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
    if value.trim().parse::<u128>().is_ok_and(|number| number > i64::MAX as u128) {
        let what = format!("--set {pair}: the number is too large");
        return Err(Error::usage(what).remedy(format!("give at most {}", i64::MAX)));
    }
    set_key(table, key.trim(), value_of(value)).map_err(|_| wrong())
}

/// Sets a key to the value of a flag.
pub(super) fn set_flag(table: &mut toml::Table, key: &str, value: &impl serde::Serialize) -> Result<()> {
    let value = toml::Value::try_from(value).map_err(|_| {
        Error::usage(format!("{key} is too large")).remedy(format!("give at most {}", i64::MAX))
    });
    set_key(table, key, value?)
}

/// Prints the summary if `json`.
fn print_summary(summary: &Summary, json: bool) -> Result<()> {
    if json { print_json(summary) } else { Ok(()) }
}

/// Where the data of a trained model are now, and how to read them there.
#[derive(Args)]
pub(super) struct Moved {
    /// Events or snapshots, if they have moved since training; they must be the same
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
}

impl Moved {
    /// Returns the configuration with the place of the data. A folder that `data import` wrote has everything
    /// in it that other files have told.
    fn applied_to(&self, mut config: Config) -> Result<Config> {
        if let Some(path) = &self.data {
            let DataConfig { train, val, random_edge_features, .. } = config.data;
            if is_imported(path.as_ref()) {
                config.data = DataConfig { train, val, random_edge_features, ..DataConfig::default() };
            }
            config.data.path = path.clone();
        }
        let mut table = config.to_table()?;
        self.read.set(&mut table)?;
        Config::of_table(&table)
    }
    /// Loads the data of a configuration to which this was applied.
    pub(super) fn load(&self, config: &Config) -> Result<Data> {
        Data::load(config).map_err(|e| with_flag(e, config, self.data.is_some()))
    }
}

/// Says in the error about data that are not where a file of keys says how to tell where they are now.
fn with_flag(e: Error, config: &Config, given: bool) -> Error {
    let data = &config.data;
    let files = [
        ("--edge-features", &data.edge_features),
        ("--node-features", &data.node_features),
        ("--labels", &data.labels),
    ];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
    let mut all = std::iter::once(("--data", Path::new(&data.path))).filter(|_| !given).chain(files);
    let missing = all.find(|(_, path)| !path.exists());
    match missing.filter(|_| e.kind() == ErrorKind::Io) {
        Some((flag, path)) if path.is_relative() => e.remedy(format!(
            "the path counts from the folder in which it was first given; say with {flag} where the data are now"
        )),
        Some((flag, _)) => e.remedy(format!("say with {flag} where the data are now")),
        None => e,
    }
}

/// The arguments that `eval`, `embed` and `predict` share.
#[derive(Args)]
pub(super) struct Trained {
    /// Run folder, or its checkpoint/
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// auto, cpu, cuda, cuda:N or emu [default: the run's]
    #[arg(long)]
    device: Option<String>,
    /// CPU threads; 0 uses every core [default: the run's]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Precision of dense products on a CUDA device: f32, tf32 or bf16 [default: the run's]
    #[arg(long)]
    precision: Option<MatmulPrecision>,
}

impl Trained {
    /// Opens the checkpoint. Returns it and its configuration, with the flags and the path of the data
    /// applied.
    pub(super) fn open(&self, moved: Option<&Moved>) -> Result<(Checkpoint, Config)> {
        let checkpoint = Checkpoint::at(&self.checkpoint);
        let mut config = checkpoint.manifest()?.config.after_training();
        if let Some(moved) = moved {
            config = moved.applied_to(config)?;
        }
        if let Some(device) = &self.device {
            config.device = device.clone();
        }
        config.threads = self.threads.unwrap_or(config.threads);
        config.precision = self.precision.unwrap_or(config.precision);
        config.validate()?;
        Ok((checkpoint, config))
    }
}

/// Arguments of `eval`.
#[derive(Args)]
pub struct Eval {
    #[command(flatten)]
    trained: Trained,
    #[command(flatten)]
    moved: Moved,
    /// dyglib, tgl, disttgl or tgb: how negatives are drawn and which metrics are computed [default: the
    /// run's]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Negatives: random, historical or inductive [default: the run's]
    #[arg(long)]
    negatives: Option<NegativeKind>,
    /// Events of a batch [default: the run's eval_batch]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Which events a query sees as neighbours: time, batch or auto [default: the run's]
    #[arg(long, value_name = "RULE")]
    history: Option<HistoryRule>,
    /// Replay the node memory before the test: clear it, then process the training and validation events with
    /// the checkpoint's weights. Protocol tgl always does this
    #[arg(long)]
    replay: bool,
    #[command(flatten)]
    ranks: RankArgs,
    /// Print the summary as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let (checkpoint, mut config) = self.trained.open(Some(&self.moved))?;
        // Another protocol does not change what the model sees.
        let history = if config.model.reads_snapshots() { config.history } else { config.history().into() };
        config.history = self.history.unwrap_or(history);
        config.protocol = self.protocol.unwrap_or(config.protocol);
        config.negatives = self.negatives.unwrap_or(config.negatives);
        config.eval_batch = self.batch.unwrap_or(config.eval_batch);
        config.evaluate = true;
        config.validate()?;
        let data = self.moved.load(&config)?;
        self.ranks.run(&config, |device| {
            let evaluate = |watch: &mut dyn Watch| {
                data.evaluate(&checkpoint, &config, &device, &command_line(), self.replay, watch)
            };
            if !device.is_first() {
                return evaluate(&mut ()).map(drop);
            }
            let mut display = Display::new(self.json, false, false);
            let summary = evaluate(&mut display)?;
            display.finish(&summary, &config, None);
            print_summary(&summary, self.json)
        })
    }
}
