//! The configuration of a run: a TOML file, every key of which a flag may override.
mod choices;
mod custom;
mod effect;
mod fitted;
mod optimizer;
mod plan;
mod sections;
pub mod table;
#[cfg(feature = "formats")]
pub mod tgl;
mod validate;

pub use choices::{HistoryRule, NegativeKind, Protocol, TaskName};
pub use custom::CustomModel;
pub use optimizer::{OptimizerConfig, OptimizerName};
pub use sections::{ClassifyConfig, DataConfig, GroupConfig, PropertyConfig, StoredOn};

use crate::model::{self, ModelConfig, ModelName, SnapshotModelConfig, StaticMode, for_each_model};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, path::Path};
use tgnn::{
    error::{Error, Result},
    ops::sample_neighbors::History,
    runtime::{Device, MatmulPrecision, StoredAs},
};
use tgnn_data::{
    Events, SnapshotOptions, Snapshots, Split, start_threads,
    text::{toml_error, toml_message},
};

/// Declares [`Config`], with a section for each model.
macro_rules! config {
    ($($module:ident: $config:ident, $section:literal, $reads:ident {
        $($name:ident $text:literal $about:literal $(=> $($build:ident)::+)?,)*
    })*) => {
        /// Everything that decides a run's results, and where it runs.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            /// The model.
            pub model: ModelName,
            /// An event model from outside of the crate; it takes the place of `model`. A configuration file
            /// has its name alone, and is refused where the model is needed and not given.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub custom_model: Option<CustomModel>,
            /// The task: what is predicted.
            pub task: TaskName,
            /// The evaluation protocol.
            pub protocol: Protocol,
            /// The negatives of validation and test.
            pub negatives: NegativeKind,
            /// Which events a query sees as neighbours; `auto`: as the protocol says.
            pub history: HistoryRule,
            /// `auto` (the CPU), `cpu`, `cuda`, `cuda:N`, or `emu`.
            pub device: String,
            /// The schedule of training: a [preset](crate::plan::Plan::PRESETS), the file of a plan, or
            /// `auto`: `overlap` on a CUDA device, else `sequential`. Results do not depend on it, unless it
            /// exchanges layers, lets steps read older state, or trains several batches at the same time.
            pub plan: String,
            /// Over ranks, the owners of the nodes' memory: a partitioner (`range`, `interval`,
            /// `re-flex-bicut`), the `.npy` file of a partition, or `auto`: as the plan says.
            pub partition: String,
            /// Where a CUDA device reads features.
            pub features_on: StoredOn,
            /// Where a CUDA device keeps node memory and mails.
            pub memory_on: StoredOn,
            /// Storage type of edge and node features; steps compute in f32.
            pub features_as: StoredAs,
            /// Storage type of node memory and mails; steps compute in f32.
            pub memory_as: StoredAs,
            /// Threads of the CPU; 0: every core.
            pub threads: usize,
            /// Precision of dense products on a CUDA device; the CPU computes in f32.
            pub precision: MatmulPrecision,
            /// Seed of parameters, negatives, dropout and random features.
            pub seed: u64,
            /// Passes over the training events.
            pub epochs: usize,
            /// Events per step.
            pub batch: usize,
            /// Events per step of validation, test and replay of a stream, whatever the batch of training is:
            /// node memory is as old as the batch, so scores depend on it.
            pub eval_batch: usize,
            /// Chunks per batch: an epoch's first batch ends after a random number of them; 1: it is a whole
            /// batch.
            pub chunks: usize,
            /// Whether a settling epoch follows the best one: the weights that write memory rest at their
            /// averages.
            pub settle: bool,
            /// Epochs without a better validation metric after which training stops; 0: training does not
            /// stop early.
            pub patience: usize,
            /// Whether the run folder also gets a TensorBoard event file.
            pub tensorboard: bool,
            /// Maximum number of steps of each pass, for trials; 0: no limit.
            pub max_batches: usize,
            /// Full learning rate of the optimiser.
            pub learning_rate: f64,
            /// Require the same bits on the same build and device, for any number of threads, or refuse the
            /// run.
            pub deterministic: bool,
            /// Whether a run is refused that needs more memory of the host than is free.
            pub check_memory: bool,
            /// Whether to validate and test.
            pub evaluate: bool,
            /// Whether a test of links also scores EdgeBank and the rules that learn nothing.
            pub rules: bool,
            /// The data.
            pub data: DataConfig,
            /// The optimiser.
            pub optimizer: OptimizerConfig,
            /// How data become snapshots, for snapshot models.
            pub snapshots: SnapshotOptions,
            /// Snapshot groups, for snapshot models.
            pub group: GroupConfig,
            /// Classification.
            pub classify: ClassifyConfig,
            /// Prediction of labels of nodes.
            pub property: PropertyConfig,
            $(
                #[doc = concat!("Sizes and choices of the models of the section `", $section, "`.")]
                #[serde(rename = $section)]
                pub $module: model::$config,
            )*
        }

        impl Default for Config {
            fn default() -> Self {
                Config {
                    model: ModelName::Tgn,
                    custom_model: None,
                    task: TaskName::Link,
                    protocol: Protocol::Dyglib,
                    negatives: NegativeKind::Random,
                    history: HistoryRule::Auto,
                    device: "auto".into(),
                    plan: "auto".into(),
                    partition: "auto".into(),
                    features_on: StoredOn::Auto,
                    memory_on: StoredOn::Auto,
                    features_as: StoredAs::F32,
                    memory_as: StoredAs::F32,
                    threads: 0,
                    precision: MatmulPrecision::F32,
                    seed: 1,
                    epochs: 10,
                    batch: 200,
                    eval_batch: 200,
                    chunks: 1,
                    settle: true,
                    patience: 0,
                    tensorboard: false,
                    max_batches: 0,
                    learning_rate: 5e-4,
                    deterministic: false,
                    check_memory: true,
                    evaluate: true,
                    rules: true,
                    data: DataConfig::default(),
                    optimizer: OptimizerConfig::default(),
                    snapshots: SnapshotOptions::default(),
                    group: GroupConfig::default(),
                    classify: ClassifyConfig::default(),
                    property: PropertyConfig::default(),
                    $($module: model::$config::default(),)*
                }
            }
        }

        impl Config {
            /// Returns the configuration of the model, if it reads events.
            ///
            /// # Errors
            /// `Usage` if the model reads snapshots.
            pub fn event_model(&self) -> Result<&dyn ModelConfig> {
                if let Some(custom) = &self.custom_model {
                    return custom.config();
                }
                let config = match self.model {
                    $($(ModelName::$name => event_model!($reads, &self.$module),)*)*
                };
                config.ok_or_else(|| self.reads_other("snapshots", "events"))
            }
            /// Returns the configuration of the model, if it reads snapshots.
            ///
            /// # Errors
            /// `Usage` if the model reads events.
            pub fn snapshot_model(&self) -> Result<Box<dyn SnapshotModelConfig>> {
                let config: Option<Box<dyn SnapshotModelConfig>> = match self.model {
                    $($(ModelName::$name => snapshot_model!($reads, self.$module $(, model::$($build)::+)?),)*)*
                };
                config.ok_or_else(|| self.reads_other("events", "snapshots"))
            }
        }
    };
}

/// The configuration as that of an event model; `None` if it is of a snapshot model.
macro_rules! event_model {
    (events, $config:expr) => {
        Some($config as &dyn ModelConfig)
    };
    (snapshots, $config:expr) => {
        None
    };
}

/// The configuration as that of a snapshot model; `None` if it is of an event model.
macro_rules! snapshot_model {
    (events, $config:expr) => {
        None
    };
    (snapshots, $config:expr, $build:path) => {
        Some(Box::new($build($config.clone())))
    };
}

for_each_model!(config);

impl Config {
    fn reads_other(&self, reads: &str, wanted: &str) -> Error {
        let name = self.model.name();
        Error::usage(format!("{name} is a model of {reads}, and this is for models of {wanted}"))
            .remedy(format!("give {}", ModelName::names(wanted == "snapshots")))
    }
    /// Returns the name of the model.
    pub fn model_name(&self) -> &str {
        self.custom_model.as_ref().map_or(self.model.name(), CustomModel::name)
    }
    /// Describes the model in a line or two.
    pub fn describe_model(&self) -> String {
        let described = self.event_model().map(ModelConfig::describe);
        described.or_else(|_| self.snapshot_model().map(|m| m.describe())).unwrap_or_default()
    }
    /// Returns how the model's static memory is learned.
    pub fn static_mode(&self) -> StaticMode {
        if self.model == ModelName::Static { StaticMode::Off } else { self.static_memory.mode }
    }
    /// Returns the name of the protocol, as results give it.
    pub fn protocol_name(&self) -> &'static str {
        if self.model.reads_snapshots() { "next-snapshot" } else { self.protocol.name() }
    }
    /// Returns which events a query sees as neighbours.
    pub fn history(&self) -> History {
        match self.history {
            HistoryRule::Auto => self.protocol.history(),
            HistoryRule::Time => History::Time,
            HistoryRule::Batch => History::Batch,
        }
    }
    /// Returns which events a query of the model knows at most: those that are strictly earlier if it reads
    /// them as neighbours, else those of earlier batches, which node memory has seen.
    pub fn past(&self) -> History {
        match self.event_model().is_ok_and(ModelConfig::reads_neighbors) {
            true => self.history(),
            false => History::Batch,
        }
    }
    /// Returns the number of events per step of validation and test.
    pub fn evaluation_batch(&self) -> usize {
        if self.task == TaskName::Property { self.batch } else { self.eval_batch }
    }
    /// Evaluates a model of events by the rules of versions that had neither `history` nor `eval_batch`.
    pub(in crate::task) fn evaluate_as_before(&mut self) {
        if !self.model.reads_snapshots() {
            self.history = HistoryRule::Batch;
            if self.task != TaskName::Property {
                self.eval_batch = self.batch;
            }
        }
    }
    /// Returns the maximum number of batches or groups of a pass.
    pub(in crate::task) fn most_batches(&self) -> usize {
        if self.max_batches == 0 { usize::MAX } else { self.max_batches }
    }
    /// Returns how tied scores count in the metrics of a run.
    pub fn tie_rule(&self) -> &'static str {
        match (self.task, self.protocol) {
            (TaskName::Link, Protocol::Disttgl | Protocol::Tgb) => "mean of optimistic and pessimistic rank",
            _ => "tied scores form one threshold",
        }
    }
    /// Splits the events into parts.
    ///
    /// # Errors
    /// `Usage` if the fractions do not add up to at most 1.
    pub fn split(&self, events: &Events) -> Result<Split> {
        Split::by_time(events, self.data.train, self.data.val)
    }
    /// Reads the events, with features in the storage type of a run.
    ///
    /// # Errors
    /// As [`DataConfig::load`] and [`Events::keep_features_as`]; `Usage` if the data are snapshots.
    pub fn load(&self) -> Result<Events> {
        if !self.data.read_options().says_events() && Snapshots::are_at(&self.data.path) {
            let what = format!("{} has snapshots, and {} reads events", self.data.path, self.model_name());
            let lists = match std::path::Path::new(&self.data.path).is_dir() {
                true => ", or --format table if its files are events, such as a file per day",
                false => "",
            };
            return Err(Error::usage(what).remedy(format!("give --model {}{lists}", ModelName::names(true))));
        }
        start_threads(self.threads)?;
        let mut events = self.data.load(self.seed)?;
        events.keep_features_as(self.features_as)?;
        Ok(events)
    }
    /// Returns events that are loaded already as a run reads them: with random features if it wants them,
    /// and features in its storage type. They are copied only if something changes.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn prepare<'e>(&self, events: &'e Events) -> Result<Cow<'e, Events>> {
        start_threads(self.threads)?;
        let features = [&events.edge_features, &events.node_features];
        let kept = features.into_iter().flatten().all(|f| f.kept() == self.features_as);
        let mut events = Cow::Borrowed(events);
        if !kept || self.data.random_edge_features > 0 {
            let events = events.to_mut();
            self.data.complete(events, self.seed)?;
            events.keep_features_as(self.features_as)?;
        }
        Ok(events)
    }
    /// Reads the snapshots, with features in the storage type of a run.
    ///
    /// # Errors
    /// As [`Snapshots::load`].
    pub fn load_snapshots(&self) -> Result<Snapshots> {
        start_threads(self.threads)?;
        self.kept(Snapshots::load(
            &self.data.path,
            &self.data.read_options(),
            &self.snapshot_options(),
            self.seed,
        )?)
    }
    /// Cuts events that are loaded already into the snapshots of a run.
    ///
    /// # Errors
    /// As [`Snapshots::of_events`].
    pub fn cut(&self, events: &Events) -> Result<Snapshots> {
        start_threads(self.threads)?;
        let snapshots = Snapshots::of_events(events, &self.snapshot_options(), self.seed)?;
        self.kept(snapshots)
    }
    fn snapshot_options(&self) -> SnapshotOptions {
        SnapshotOptions { train: self.data.train, ..self.snapshots.clone() }
    }
    /// Returns snapshots with features in the storage type of a run.
    fn kept(&self, mut snapshots: Snapshots) -> Result<Snapshots> {
        if let Some(f) = &mut snapshots.features {
            *f = f.stored_as(self.features_as)?;
        }
        Ok(snapshots)
    }
    /// Reads a file: TOML, or TGL's YAML if its name says so (`task::tgl`, in builds with the cargo feature
    /// `formats`). Returns the keys, and notes on keys of TGL that have no counterpart here.
    ///
    /// # Errors
    /// `Io` if the file cannot be read; `Usage`, with line and column, for an unknown key or a value of the
    /// wrong type.
    pub fn read(path: impl AsRef<Path>) -> Result<(toml::Table, Vec<String>)> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        let yaml = path.extension().is_some_and(|e| e == "yml" || e == "yaml");
        let read = || -> Result<_> {
            if yaml {
                let (table, notes) = from_tgl(&text)?;
                Self::of_table(&table)?;
                return Ok((table, notes));
            }
            Self::parse(&text)?; // a mistake is told with its place
            let table = toml::from_str(&text).map_err(|e| toml_error(&e, &text))?;
            Ok((table, Vec::new()))
        };
        read().map_err(|e| e.in_file(path))
    }
    /// Returns the configuration with the keys of `table`; all others have their defaults.
    ///
    /// # Errors
    /// `Usage` for an unknown key or a value of the wrong type.
    pub fn of_table(table: &toml::Table) -> Result<Self> {
        table.clone().try_into().map_err(|e| toml_message(&e))
    }
    /// Returns a table with every key.
    ///
    /// # Errors
    /// `Usage` if a number is too large for TOML.
    pub fn to_table(&self) -> Result<toml::Table> {
        toml::Table::try_from(self).map_err(|e| Error::usage("cannot write the configuration").caused_by(e))
    }
    /// Parses TOML.
    ///
    /// # Errors
    /// `Usage`, with line and column, for an unknown key or a value of the wrong type.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|e| toml_error(&e, text))
    }
    /// Returns the configuration as TOML, with every key.
    ///
    /// # Errors
    /// None in practice.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::usage("cannot write the configuration").caused_by(e))
    }
    /// Opens the device, with products in `precision`.
    ///
    /// # Errors
    /// As [`Device::open`] and [`Device::multiplying_in`].
    pub fn open_device(&self) -> Result<Device> {
        Device::open(&self.device, self.threads)?.multiplying_in(self.precision)
    }
    /// Opens the device of rank `rank` of a computer.
    ///
    /// # Errors
    /// As [`Device::open_for`] and [`Device::multiplying_in`].
    pub fn open_device_for(&self, rank: usize) -> Result<Device> {
        Device::open_for(&self.device, self.threads, rank)?.multiplying_in(self.precision)
    }
}

#[cfg(feature = "formats")]
fn from_tgl(yaml: &str) -> Result<(toml::Table, Vec<String>)> {
    tgl::translate(yaml)
}

#[cfg(not(feature = "formats"))]
fn from_tgl(_: &str) -> Result<(toml::Table, Vec<String>)> {
    Err(tgnn_data::text::needs_formats("YAML"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_being_written_and_read() {
        let mut c = Config::default();
        (c.tgn.layers, c.data.path, c.protocol) = (2, "a \"b\".csv".into(), Protocol::Tgl);
        assert_eq!(Config::parse(&c.to_toml().unwrap()).unwrap(), c);
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_model_from_outside_is_written_by_its_name_and_refused_by_it_where_it_is_not_given() {
        let custom = CustomModel::new("a table", Config::default().tgn);
        let c = Config { custom_model: Some(custom), ..Config::default() };
        c.validate().unwrap();
        let text = c.to_toml().unwrap();
        assert!(text.contains("custom_model = \"a table\"\n"), "{text}");
        let read = Config::parse(&text).unwrap();
        assert_eq!(
            (read.model_name(), &read),
            ("a table", &Config::parse(&read.to_toml().unwrap()).unwrap())
        );
        let e = read.validate().unwrap_err().to_string();
        assert!(e.contains("the model `a table` is from outside of the crate"), "{e}");
        let given = Config { custom_model: c.custom_model.clone(), ..read };
        assert_eq!(given, c);
        given.validate().unwrap();
    }

    #[test]
    fn a_seed_that_no_file_can_hold_is_refused_with_the_range() {
        let c = |seed| Config { seed, ..Config::default() }.validate();
        c(i64::MAX as u64).unwrap();
        let e = c(u64::MAX).unwrap_err().to_string();
        assert_eq!(e, "seed is 18446744073709551615; give 0 to 9223372036854775807");
    }

    #[test]
    fn an_unknown_key_and_a_wrong_type_are_named_with_their_place() {
        let e = Config::parse("seed = 3\nbatchsize = 4\n").unwrap_err();
        assert_eq!(e.position(), Some((2, 1)), "{e}");
        assert!(e.to_string().contains("batchsize") && !e.to_string().contains('\n'), "{e}");
        let e = Config::parse("[tgn]\nheads = \"two\"").unwrap_err();
        assert_eq!(e.position(), Some((2, 9)), "{e}");
    }
}
