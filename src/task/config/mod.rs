//! The configuration of a run: a TOML file, every key of which a flag may override.
mod choices;
mod optimizer;
pub mod tgl;

pub use choices::{NegativeKind, Protocol, TaskName};
pub use optimizer::{OptimizerConfig, OptimizerName};

use crate::{
    data::{self, Events, Features, ReadOptions, SnapshotOptions, Snapshots, Split},
    error::{Error, Result},
    model::{
        ApanConfig, EvolveGcn, GcnConfig, JodieConfig, ModelConfig, ModelName, SnapshotModelConfig,
        StaticConfig, StaticMode, TGcn, TgatConfig, TgnConfig, WdGcn,
    },
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
    /// Full learning rate of the optimiser.
    pub learning_rate: f64,
    /// Same bits on the same build and device, or refuse. Every device keeps it, for any number of threads.
    pub deterministic: bool,
    /// Whether to validate and test.
    pub evaluate: bool,
    /// Which events.
    pub data: DataConfig,
    /// How parameters are updated.
    pub optimizer: OptimizerConfig,
    /// How data become snapshots, for models of these.
    pub snapshots: SnapshotOptions,
    /// Snapshot groups, likewise.
    pub group: GroupConfig,
    /// How classes are predicted.
    pub classify: ClassifyConfig,
    /// Sizes of a TGN.
    pub tgn: TgnConfig,
    /// Sizes of a JODIE.
    pub jodie: JodieConfig,
    /// Sizes of an APAN.
    pub apan: ApanConfig,
    /// Sizes of a TGAT.
    pub tgat: TgatConfig,
    /// Static node memory, of every model.
    #[serde(rename = "static")]
    pub static_memory: StaticConfig,
    /// Sizes of a WD-GCN.
    #[serde(rename = "wd-gcn")]
    pub wd_gcn: GcnConfig,
    /// Sizes of a T-GCN.
    #[serde(rename = "t-gcn")]
    pub t_gcn: GcnConfig,
    /// Sizes of an EvolveGCN, of either kind.
    #[serde(rename = "evolve-gcn")]
    pub evolve_gcn: GcnConfig,
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
            optimizer: OptimizerConfig::default(),
            snapshots: SnapshotOptions::default(),
            group: GroupConfig::default(),
            classify: ClassifyConfig::default(),
            tgn: TgnConfig::default(),
            jodie: JodieConfig::default(),
            apan: ApanConfig::default(),
            tgat: TgatConfig::default(),
            static_memory: StaticConfig::default(),
            wd_gcn: GcnConfig::default(),
            t_gcn: GcnConfig::default(),
            evolve_gcn: GcnConfig::default(),
        }
    }
}

impl Config {
    /// Sizes and choices of the model that runs, where it reads events.
    ///
    /// # Errors
    /// Usage where it reads snapshots.
    pub fn event_model(&self) -> Result<&dyn ModelConfig> {
        Ok(match self.model {
            ModelName::Tgn => &self.tgn,
            ModelName::Jodie => &self.jodie,
            ModelName::Apan => &self.apan,
            ModelName::Tgat => &self.tgat,
            ModelName::Static => &self.static_memory,
            other => {
                return Err(Error::usage(format!(
                    "{} is a model of snapshots, and this is for models of events",
                    other.name()
                ))
                .remedy("give tgn, jodie, apan, tgat or static"));
            }
        })
    }
    /// Sizes and choices of the model that runs, where it reads snapshots.
    ///
    /// # Errors
    /// Usage where it reads events.
    pub fn snapshot_model(&self) -> Result<Box<dyn SnapshotModelConfig>> {
        let evolve = |summarised| Box::new(EvolveGcn { config: self.evolve_gcn.clone(), summarised });
        Ok(match self.model {
            ModelName::WdGcn => Box::new(WdGcn(self.wd_gcn.clone())),
            ModelName::TGcn => Box::new(TGcn(self.t_gcn.clone())),
            ModelName::EvolveGcnO => evolve(false),
            ModelName::EvolveGcnH => evolve(true),
            other => {
                return Err(Error::usage(format!(
                    "{} is a model of events, and this is for models of snapshots",
                    other.name()
                ))
                .remedy("give wd-gcn, t-gcn, evolve-gcn-o or evolve-gcn-h"));
            }
        })
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
        let bad = |what: String, want: &str| Err(Error::usage(what).remedy(want.to_owned()));
        if self.batch == 0 || self.batch > 1 << 20 {
            return bad(format!("batch is {}", self.batch), "give 1 to 1048576");
        }
        if !(1..=self.batch).contains(&self.chunks) {
            return bad(format!("chunks is {}", self.chunks), "give 1 to the events of a batch");
        }
        if self.negatives != NegativeKind::Random
            && (self.task != TaskName::Link || !matches!(self.protocol, Protocol::Dyglib | Protocol::Tgl))
        {
            return bad(
                format!(
                    "negatives are chosen, and task {} under {} has none to choose",
                    self.task.name(),
                    self.protocol.name()
                ),
                "give them with task=link and protocol=dyglib or tgl",
            );
        }
        let c = &self.classify;
        if !(1..=4096).contains(&c.width) {
            return bad(format!("classify.width is {}", c.width), "give 1 to 4096");
        }
        if !(c.positive_weight > 0.0 && c.positive_weight.is_finite()) {
            return bad(
                format!("classify.positive_weight is {}", c.positive_weight),
                "give a positive number",
            );
        }
        if c.frozen && self.task == TaskName::Link {
            return bad("classify.frozen, and the task is link".into(), "give task=node or task=edge");
        }
        if self.epochs == 0 {
            return bad("epochs is 0".into(), "give at least 1");
        }
        if self.patience > 0 && !self.evaluate {
            return bad(
                format!("patience is {}, and nothing is validated", self.patience),
                "leave out patience, or validate",
            );
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
        self.optimizer.validate()?;
        if self.data.random_edge_features > 4096 {
            return bad(
                format!("random_edge_features is {}", self.data.random_edge_features),
                "give 0 to 4096",
            );
        }
        self.static_memory.validate()?;
        if !self.model.reads_snapshots() {
            return self.event_model()?.validate();
        }
        let kept = [
            (self.static_mode() != StaticMode::Off, "static.mode"),
            (self.chunks != 1, "chunks"),
            (self.data.random_edge_features > 0, "data.random_edge_features"),
            (self.protocol != Protocol::Dyglib, "protocol"),
            (self.classify.frozen, "classify.frozen"),
        ];
        if let Some((_, key)) = kept.iter().find(|(set, _)| *set) {
            return bad(format!("{key} is set, and {} reads snapshots", self.model.name()), "leave it out");
        }
        let g = &self.group;
        if !(1..=1024).contains(&g.length) {
            return bad(format!("group.length is {}", g.length), "give 1 to 1024");
        }
        if g.batch == 0 {
            return bad("group.batch is 0".into(), "give 1 or more");
        }
        if !(1..=10_000).contains(&g.negatives) {
            return bad(format!("group.negatives is {}", g.negatives), "give 1 to 10000");
        }
        self.snapshots.validate()?;
        self.snapshot_model()?.validate()
    }
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
