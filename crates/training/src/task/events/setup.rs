//! What is decided before a task is built: the device, the parts of the stream, and the plan.
use super::by_plan::OverRanks;
use crate::{
    plan::Plan,
    task::{
        config::{Config, TaskName},
        training::Manifest,
    },
};
use tgnn::{error::Result, runtime::Device};
use tgnn_data::{ClassTable, Events, Split};

/// What is decided before a task is built. Several tasks can share it.
#[derive(Clone)]
pub(super) struct Setup {
    pub device: Device,
    pub split: Split,
    pub plan: Plan,
    pub over_ranks: OverRanks,
    /// What the classes stand for, if the task predicts classes.
    pub classes: Option<ClassTable>,
}

impl Setup {
    /// Decides by a configuration, for a new model or that of a checkpoint, whose classes stay. Over ranks,
    /// collective.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself or the device; `Data` if the events lack the classes
    /// that are predicted; `Comm` if the ranks disagree.
    pub fn new(
        config: &Config,
        events: &Events,
        device: Device,
        checkpoint: Option<&Manifest>,
    ) -> Result<Self> {
        config.validate()?;
        let device = device.multiplying_in(config.precision)?;
        let split = config.split(events)?;
        let plan = config.plan_on(&device)?;
        let (plan, over_ranks) = OverRanks::new(config, events, &split, plan, &device)?;
        let classes = match (predicts_classes(config), checkpoint) {
            (false, _) => None,
            (true, None) => Some(own_classes(config, events)?),
            (true, Some(manifest)) => Some(classes_of(manifest, events)?),
        };
        Ok(Setup { device, split, plan, over_ranks, classes })
    }
}

/// Whether a configuration is of a task that predicts the labels of events as classes.
pub(super) fn predicts_classes(config: &Config) -> bool {
    matches!(config.task, TaskName::Node | TaskName::Edge)
}

/// Returns the classes of a new run.
fn own_classes(config: &Config, events: &Events) -> Result<ClassTable> {
    let table = events.class_table()?;
    events.two_classes(&table)?;
    match &config.classify.positive {
        Some(label) => table.with_positive(label),
        None => Ok(table),
    }
}

/// Returns the classes of a checkpoint. Earlier versions did not keep them.
pub(super) fn classes_of(manifest: &Manifest, events: &Events) -> Result<ClassTable> {
    manifest.classes.clone().map_or_else(|| ClassTable::before_tables(events), Ok)
}
