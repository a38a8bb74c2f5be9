//! The data of a run: events or snapshots, depending on its model.
use super::{reading::Reading, scores::ScoreFile};
use std::path::Path;
use tgnn::{error::Result, runtime::Device};
use tgnn_data::{Events, Snapshots, text::counted};
use tgnn_training::task::{
    self, Checkpoint, Config, EventTask, PropertyTask, RunOptions, SnapshotTask, Summary, Task, TaskName,
    Watch,
};

/// The data of a run, in the form that its model reads.
pub(super) enum Data {
    Events(Box<Events>),
    Snapshots(Box<Snapshots>),
}

impl Data {
    /// Loads the data of a configuration.
    pub fn load(c: &Config) -> Result<Self> {
        match c.model.reads_snapshots() {
            true => c.load_snapshots().map(|snapshots| Data::Snapshots(Box::new(snapshots))),
            false => {
                let _reading = Reading::of(&c.data.path, &c.data.read_options());
                c.load().map(|events| Data::Events(Box::new(events)))
            }
        }
    }
    /// Returns the configuration with the keys that the data suit, where the user has set none, and says so
    /// in `notes`: the sizes of training, or the task of snapshots.
    pub fn fitted(
        &self,
        mut c: Config,
        is_given: impl Fn(&str) -> bool,
        notes: &mut Vec<String>,
    ) -> Result<Config> {
        let snapshots = match self {
            Data::Events(events) => {
                notes.extend(c.fit_to(events, is_given)?);
                c.validate()?;
                return Ok(c);
            }
            Data::Snapshots(snapshots) => snapshots,
        };
        let task = TaskName::suited_to(snapshots);
        if task != c.task && !is_given("task") {
            notes.push(format!("the data suit the task {}; --task link predicts edges", task.name()));
            c.task = task;
            c.validate()?;
        }
        Ok(c)
    }
    /// Builds the task of a configuration, ready for single passes.
    pub fn task(&self, c: &Config, d: &Device) -> Result<Box<dyn Task>> {
        Ok(match self {
            Data::Events(e) if c.task == TaskName::Property => Box::new(PropertyTask::new(c, e, d.clone())?),
            Data::Events(e) => Box::new(EventTask::new(c, e, d.clone())?),
            Data::Snapshots(s) => Box::new(SnapshotTask::new(c, s, d.clone())?),
        })
    }
    /// Trains the model of a configuration.
    pub fn train(
        &self,
        c: &Config,
        d: &Device,
        options: &RunOptions,
        watch: &mut dyn Watch,
    ) -> Result<Summary> {
        match self {
            Data::Events(e) => task::train(c, e, d, options, watch),
            Data::Snapshots(s) => task::train_snapshots(c, s, d, options, watch),
        }
    }
    /// Tests a checkpoint; `replay` clears and replays the node memory first. The scores go to a file if
    /// there is one, which must be of a run on events.
    pub fn evaluate(
        &self,
        checkpoint: &Checkpoint,
        c: &Config,
        d: &Device,
        (command, replay): (&str, bool),
        watch: &mut dyn Watch,
        scores: Option<&Path>,
    ) -> Result<Summary> {
        match self {
            Data::Events(e) => {
                let Some(path) = scores else {
                    return task::evaluate(checkpoint, c, e, d, command, replay, watch);
                };
                let mut file = ScoreFile::create(path, e, c.task)?;
                let add = &mut |row| file.add(row);
                let summary = task::evaluate_each(checkpoint, c, e, d, (command, replay), watch, add)?;
                file.finish()?;
                Ok(summary)
            }
            // Models of snapshots have no memory beyond a group, so `replay` makes no difference.
            Data::Snapshots(s) => task::evaluate_snapshots(checkpoint, c, s, d, command, watch),
        }
    }
    /// Returns what passes over the data count.
    pub fn counts(&self) -> &'static str {
        match self {
            Data::Events(_) => "events",
            Data::Snapshots(_) => "edges",
        }
    }
    /// Returns the notes of the reader.
    pub fn notes(&self) -> &[String] {
        match self {
            Data::Events(e) => &e.notes,
            Data::Snapshots(s) => &s.notes,
        }
    }
    /// Describes the data in one line.
    pub fn describe(&self, c: &Config) -> String {
        match self {
            Data::Events(e) => {
                let features = match (e.edge_width(), c.data.random_edge_features) {
                    (0, _) => "no edge features".to_owned(),
                    (w, 0) => format!("{w} edge features"),
                    (w, _) => format!("{w} random edge features"),
                };
                let (events, nodes) = (counted(e.len() as u64, "event"), counted(e.nodes as u64, "node"));
                format!("{}  {events}, {nodes}, {features}", e.name)
            }
            Data::Snapshots(s) => {
                let features = match s.width() {
                    0 => format!("{} learned features", c.snapshots.width),
                    w => format!("{w} features"),
                };
                let (steps, edges) =
                    (counted(s.len() as u64, "snapshot"), counted(s.src.len() as u64, "edge"));
                format!(
                    "{}  {steps}, {} vertices, {edges}, {features}",
                    s.name,
                    tgnn_data::text::grouped(s.nodes as u64)
                )
            }
        }
    }
}
