//! The configuration of a run: a TOML file, every key of which a flag may override.
mod choices;
pub mod tgl;

pub use choices::{NegativeKind, Protocol, TaskName};

use crate::{
    data::{self, Events, Features, ReadOptions, SnapshotOptions, Snapshots, Split},
    error::{Error, Result},
    model::{self, ModelConfig, ModelName, SnapshotModelConfig, StaticMode, for_each_model},
    plan::Plan,
    runtime::{Device, MatmulPrecision, StoredAs, check_room},
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How classes are predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifyConfig {
    /// Width of the head's hidden layers.
    pub width: usize,
    /// Weight of the classes that an event has against those that it has not.
    pub positive_weight: f32,
    /// Whether the head alone learns, on a model that is kept as it is.
    pub frozen: bool,
}

impl Default for ClassifyConfig {
    fn default() -> Self {
        ClassifyConfig { width: 100, positive_weight: 1.0, frozen: false }
    }
}

/// Snapshot groups, and what their targets are told from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Steps that a model reads before the one it predicts.
    pub length: usize,
    /// Pairs without an edge that validation and test rank each edge among; AP and AUC are told from the first of them.
    pub negatives: usize,
    /// Groups whose gradients are added up, and divided by their number, before parameters move. The last ones of an epoch may be fewer.
    pub batch: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig { length: 8, negatives: 100, batch: 1 }
    }
}

/// Where a CUDA device reads edge and node features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeaturesOn {
    /// In its own memory where they fit, else on the host.
    Auto,
    /// In its own memory, or refuse.
    Device,
    /// On the host, in locked memory; the rows that a step uses are brought ahead of it.
    Host,
}

/// Which events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// `wikipedia`, an event file, or a folder of `.npy`.
    pub path: String,
    /// Refuse events out of order.
    pub strict: bool,
    /// Width of seeded random edge features, which stand in for features that a data set lacks; 0: none.
    pub random_edge_features: usize,
    /// Share of the events that train.
    pub train: f64,
    /// Share of the events that validate; the rest tests.
    pub val: f64,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            path: "wikipedia".into(),
            strict: false,
            random_edge_features: 0,
            train: 0.70,
            val: 0.15,
        }
    }
}

impl DataConfig {
    /// Reads the events.
    ///
    /// # Errors
    /// As [`data::load`]; usage when random features are asked for where there are real ones.
    pub fn load(&self, seed: u64) -> Result<Events> {
        let mut events =
            data::load(&self.path, &ReadOptions { strict: self.strict, ..ReadOptions::default() })?;
        if self.random_edge_features > 0 {
            if events.edge_features.is_some() {
                return Err(Error::usage(format!("{} has edge features of its own", self.path))
                    .remedy("leave out random_edge_features"));
            }
            let bytes = 4 * events.len() * self.random_edge_features;
            check_room("random edge features", bytes, "take a smaller random_edge_features")?;
            events.edge_features = Some(Features::random(events.len(), self.random_edge_features, seed));
        }
        Ok(events)
    }
}

/// Declares [`Config`], with a section for each model.
macro_rules! config {
    ($($module:ident: $config:ident, $section:literal, $reads:ident {
        $($name:ident $text:literal $about:literal $(=> $($build:ident)::+)?,)*
    })*) => {
        /// Everything that decides a run's results, and where it runs.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            /// Which model.
            pub model: ModelName,
            /// What is predicted.
            pub task: TaskName,
            /// How it is measured.
            pub protocol: Protocol,
            /// Negatives of validation and test.
            pub negatives: NegativeKind,
            /// `auto` (the CPU), `cpu`, `cuda`, `cuda:N`, or `emu`.
            pub device: String,
            /// How steps follow one another: a [preset](Plan::PRESETS), a file with a [`Plan`], or `auto`: `prefetch` on a CUDA device, else
            /// `sequential`. Results are the same.
            pub plan: String,
            /// Where a CUDA device reads features.
            pub features_on: FeaturesOn,
            /// What features of edges and nodes are kept in; a step computes in f32 all the same.
            pub features_as: StoredAs,
            /// What node memory and mails are kept in, likewise.
            pub memory_as: StoredAs,
            /// Threads; 0: every core.
            pub threads: usize,
            /// What dense products multiply in on a CUDA device; the CPU knows f32 alone.
            pub precision: MatmulPrecision,
            /// Seed of parameters, negatives, drop-out and random features.
            pub seed: u64,
            /// Passes over the training events.
            pub epochs: usize,
            /// Events a step.
            pub batch: usize,
            /// Chunks that a batch has: an epoch's first batch has some of them, at random; 1: it is a whole one.
            pub chunks: usize,
            /// Whether the best epoch is followed by one in which the weights that write memory are at rest, at their averages.
            pub settle: bool,
            /// Epochs without a better validation after which training stops; 0: it does not.
            pub patience: usize,
            /// Whether a run's folder gets an event file of TensorBoard, too.
            pub tensorboard: bool,
            /// Steps of each pass at most; 0: all. For trying out.
            pub max_batches: usize,
            /// Step size of Adam.
            pub learning_rate: f64,
            /// Same bits on the same build and device, or refuse. Every device keeps it, for any number of threads.
            pub deterministic: bool,
            /// Whether to validate and test.
            pub evaluate: bool,
            /// Which events.
            pub data: DataConfig,
            /// How data become snapshots, for models of these.
            pub snapshots: SnapshotOptions,
            /// Snapshot groups, likewise.
            pub group: GroupConfig,
            /// How classes are predicted.
            pub classify: ClassifyConfig,
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
                    task: TaskName::Link,
                    protocol: Protocol::Dyglib,
                    negatives: NegativeKind::Random,
                    device: "auto".into(),
                    plan: "auto".into(),
                    features_on: FeaturesOn::Auto,
                    features_as: StoredAs::F32,
                    memory_as: StoredAs::F32,
                    threads: 0,
                    precision: MatmulPrecision::F32,
                    seed: 1,
                    epochs: 10,
                    batch: 200,
                    chunks: 1,
                    settle: true,
                    patience: 0,
                    tensorboard: false,
                    max_batches: 0,
                    learning_rate: 5e-4,
                    deterministic: false,
                    evaluate: true,
                    data: DataConfig::default(),
                    snapshots: SnapshotOptions::default(),
                    group: GroupConfig::default(),
                    classify: ClassifyConfig::default(),
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
    /// The model that runs, in a line or two for people.
    pub fn describe_model(&self) -> String {
        let described = self.event_model().map(ModelConfig::describe);
        described.or_else(|_| self.snapshot_model().map(|m| m.describe())).unwrap_or_default()
    }
    /// How the model's static memory is learned.
    pub fn static_mode(&self) -> StaticMode {
        if self.model == ModelName::Static { StaticMode::Off } else { self.static_memory.mode }
    }
    /// The protocol as results name it.
    pub fn protocol_name(&self) -> &'static str {
        if self.model.reads_snapshots() { "next-snapshot" } else { self.protocol.name() }
    }
    /// Maximum number of batches or groups of a pass.
    pub(in crate::task) fn most_batches(&self) -> usize {
        if self.max_batches == 0 { usize::MAX } else { self.max_batches }
    }
    /// How tied scores count in the metrics of a run.
    pub fn tie_rule(&self) -> &'static str {
        match (self.task, self.protocol) {
            (TaskName::Link, Protocol::Disttgl | Protocol::Tgb) => "mean of optimistic and pessimistic rank",
            _ => "tied scores form one threshold",
        }
    }
    /// Parts of the events.
    ///
    /// # Errors
    /// Usage where the shares leave no room for one another.
    pub fn split(&self, events: &Events) -> Result<Split> {
        Split::by_time(events, self.data.train, self.data.val)
    }
    /// The plan of a run on `device`.
    ///
    /// # Errors
    /// As [`Plan::named`]; usage where the device, or the model, does not have it.
    pub fn plan_on(&self, device: &Device) -> Result<Plan> {
        let on_gpu = device.gpu().is_some();
        let plan = match self.plan.as_str() {
            "auto" => Plan::named(if on_gpu { "prefetch" } else { "sequential" })?,
            name => Plan::named(name)?,
        };
        if plan.groups.is_some() && !self.model.reads_snapshots() {
            let what =
                format!("plan {} shares out snapshots, and {} reads none", plan.name, self.model.name());
            return Err(Error::usage(what).remedy("give --plan prefetch, or a model of snapshots"));
        }
        if self.deterministic && plan.groups.is_some_and(|g| g.exchange) {
            let what =
                format!("plan {} exchanges layers by measured times, and deterministic is set", plan.name);
            return Err(Error::usage(what).remedy("give --plan blad-nm"));
        }
        Ok(plan)
    }
    /// Reads the events, their features kept as a run keeps them.
    ///
    /// # Errors
    /// As [`DataConfig::load`] and [`Events::keep_features_as`].
    pub fn load(&self) -> Result<Events> {
        let mut events = self.data.load(self.seed)?;
        events.keep_features_as(self.features_as)?;
        Ok(events)
    }
    /// Reads the snapshots, their features kept as a run keeps them.
    ///
    /// # Errors
    /// As [`Snapshots::load`].
    pub fn load_snapshots(&self) -> Result<Snapshots> {
        let read = ReadOptions { strict: self.data.strict, ..ReadOptions::default() };
        let options = SnapshotOptions { train: self.data.train, ..self.snapshots.clone() };
        let mut snapshots = Snapshots::load(&self.data.path, &read, &options, self.seed)?;
        if let Some(f) = &mut snapshots.features {
            *f = f.kept_as(self.features_as)?;
        }
        Ok(snapshots)
    }
    /// Reads the keys that a file names, and notes on what it says that has no counterpart here: TOML, or TGL's YAML where its
    /// name ends so ([`tgl`]).
    ///
    /// # Errors
    /// Io when it cannot be read; usage, with line and column, for an unknown key or a value of another type.
    pub fn read(path: impl AsRef<Path>) -> Result<(toml::Table, Vec<String>)> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        let yaml = path.extension().is_some_and(|e| e == "yml" || e == "yaml");
        let read = || -> Result<_> {
            if yaml {
                let (table, notes) = tgl::translate(&text)?;
                Self::of_table(&table)?;
                return Ok((table, notes));
            }
            Self::parse(&text)?; // a mistake is told with its place
            let table = toml::from_str(&text).map_err(|e| Error::usage("cannot parse").caused_by(e))?;
            Ok((table, Vec::new()))
        };
        read().map_err(|e| e.in_file(path))
    }
    /// The configuration that names the keys of `table`.
    ///
    /// # Errors
    /// Usage for an unknown key or a value of another type.
    pub fn of_table(table: &toml::Table) -> Result<Self> {
        table.clone().try_into().map_err(|e: toml::de::Error| Error::usage(e.message().replace('\n', " ")))
    }
    /// Parses TOML.
    ///
    /// # Errors
    /// Usage, with line and column, for an unknown key or a value of another type.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|e| Error::of_toml(&e, text))
    }
    /// The configuration as TOML, every key named.
    ///
    /// # Errors
    /// None in practice.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::usage("cannot write the configuration").caused_by(e))
    }
    /// The device, to multiply in `precision`.
    ///
    /// # Errors
    /// As [`Device::open`] and [`Device::multiplying_in`].
    pub fn open_device(&self) -> Result<Device> {
        Device::open(&self.device, self.threads)?.multiplying_in(self.precision)
    }
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// Usage, naming the key and what it may be.
    pub fn validate(&self) -> Result<()> {
        self.validate_training()?;
        self.validate_evaluation()?;
        self.static_memory.validate()?;
        if self.model.reads_snapshots() { self.validate_snapshots() } else { self.event_model()?.validate() }
    }
    fn validate_training(&self) -> Result<()> {
        if self.batch == 0 || self.batch > 1 << 20 {
            return bad(format!("batch is {}", self.batch), "give 1 to 1048576");
        }
        if !(1..=self.batch).contains(&self.chunks) {
            return bad(format!("chunks is {}", self.chunks), "give 1 to the events of a batch");
        }
        if self.epochs == 0 {
            return bad("epochs is 0".into(), "give at least 1");
        }
        if self.patience > 0 && !self.evaluate {
            let what = format!("patience is {}, and nothing is validated", self.patience);
            return bad(what, "leave out patience, or validate");
        }
        if self.plan != "auto" {
            Plan::named(&self.plan)?;
        }
        if self.threads > Device::MOST_THREADS {
            let most = Device::MOST_THREADS;
            return bad(format!("threads is {}", self.threads), &format!("give 0 (every core) to {most}"));
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return bad(format!("learning_rate is {}", self.learning_rate), "give a positive number");
        }
        if self.data.random_edge_features > 4096 {
            let what = format!("random_edge_features is {}", self.data.random_edge_features);
            return bad(what, "give 0 to 4096");
        }
        Ok(())
    }
    fn validate_evaluation(&self) -> Result<()> {
        let (task, protocol) = (self.task.name(), self.protocol.name());
        let draws = self.task == TaskName::Link && matches!(self.protocol, Protocol::Dyglib | Protocol::Tgl);
        if self.negatives != NegativeKind::Random && !draws {
            let what = format!("negatives are chosen, and task {task} under {protocol} has none to choose");
            return bad(what, "give them with task=link and protocol=dyglib or tgl");
        }
        let classify = &self.classify;
        if !(1..=4096).contains(&classify.width) {
            return bad(format!("classify.width is {}", classify.width), "give 1 to 4096");
        }
        if !(classify.positive_weight > 0.0 && classify.positive_weight.is_finite()) {
            let what = format!("classify.positive_weight is {}", classify.positive_weight);
            return bad(what, "give a positive number");
        }
        if classify.frozen && self.task == TaskName::Link {
            return bad("classify.frozen, and the task is link".into(), "give task=node or task=edge");
        }
        Ok(())
    }
    fn validate_snapshots(&self) -> Result<()> {
        let unsupported = [
            (self.static_mode() != StaticMode::Off, "static.mode"),
            (self.chunks != 1, "chunks"),
            (self.data.random_edge_features > 0, "data.random_edge_features"),
            (self.protocol != Protocol::Dyglib, "protocol"),
            (self.classify.frozen, "classify.frozen"),
        ];
        if let Some((_, key)) = unsupported.iter().find(|(set, _)| *set) {
            return bad(format!("{key} is set, and {} reads snapshots", self.model.name()), "leave it out");
        }
        let group = &self.group;
        if !(1..=1024).contains(&group.length) {
            return bad(format!("group.length is {}", group.length), "give 1 to 1024");
        }
        if group.batch == 0 {
            return bad("group.batch is 0".into(), "give 1 or more");
        }
        if !(1..=10_000).contains(&group.negatives) {
            return bad(format!("group.negatives is {}", group.negatives), "give 1 to 10000");
        }
        self.snapshots.validate()?;
        self.snapshot_model()?.validate()
    }
}

/// A usage error: what was found, and what to give.
fn bad(what: String, remedy: &str) -> Result<()> {
    Err(Error::usage(what).remedy(remedy.to_owned()))
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
    fn an_unknown_key_and_a_wrong_type_are_named_with_their_place() {
        let e = Config::parse("seed = 3\nbatchsize = 4\n").unwrap_err();
        assert_eq!(e.position(), Some((2, 1)), "{e}");
        assert!(e.to_string().contains("batchsize") && !e.to_string().contains('\n'), "{e}");
        let e = Config::parse("[tgn]\nheads = \"two\"").unwrap_err();
        assert_eq!(e.position(), Some((2, 9)), "{e}");
    }
}
