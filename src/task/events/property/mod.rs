//! Node property prediction: the labels of nodes at times, from the events before.
mod programs;
mod task;
mod walk;

pub use task::PropertyTask;

use self::walk::Walk;
use super::{evaluate_task, pretrain};
use crate::{
    data::{Events, Split},
    error::{Error, ErrorKind, Result},
    runtime::Device,
    task::{
        Config, RunOptions, Summary, Watch,
        training::{Checkpoint, DataRecord, Run, restored},
    },
};

/// Trains a model on the labels of nodes, validates after every epoch, and tests the best epoch beside the
/// baselines.
///
/// # Errors
/// Those of [`train`](super::train).
pub(super) fn train(
    config: &Config,
    events: &Events,
    device: &Device,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = PropertyTask::new(config, events, device.clone())?;
    let mut prepare = |task: &mut PropertyTask, watch: &mut dyn Watch| {
        pretrain::fill(config, events, &mut task.core, task.tables.static_memory, watch)
    };
    let compare = |task: &PropertyTask, summary: &mut Summary| {
        summary.baselines = task.baselines();
        Ok(())
    };
    let run = Run { config, data: DataRecord::of_events(events), device, options, extractor: None };
    run.train(&mut task, watch, &mut prepare, &compare)
}

/// Tests a checkpoint, as [`evaluate`](super::evaluate) does.
///
/// # Errors
/// Those of [`evaluate`](super::evaluate).
pub(super) fn evaluate(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    command: &str,
    replay: bool,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let task = restored_task(checkpoint, config, events, device)?;
    let compare = |task: &PropertyTask, summary: &mut Summary| summary.baselines = task.baselines();
    evaluate_task(task, (checkpoint, config), events, command, replay, watch, &compare)
}

/// Builds a task with the state of a checkpoint's best epoch.
pub(super) fn restored_task(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
) -> Result<PropertyTask> {
    let build = || PropertyTask::new(&config.clone().after_training(), events, device.clone());
    restored(checkpoint, config, &DataRecord::of_events(events), build)
}

/// Returns the numbers of label rows and of steps of an epoch that trains on the labels of `events`; 0
/// without labels.
pub(in crate::task) fn label_steps(config: &Config, events: &Events, split: &Split) -> [usize; 2] {
    let Some(labels) = &events.node_labels else { return [0, 0] };
    let walk = Walk::new(&events.time, labels, split, config.property.rows);
    [walk.stops[0].iter().map(|stop| stop.rows.len()).sum(), walk.steps(0)]
}

/// The error for events without labels of nodes.
fn unlabelled(events: &Events) -> Error {
    Error::new(ErrorKind::Data, format!("{} has no labels of nodes", events.name))
        .remedy("give a table of them with --labels FILE, or take a folder of TGB such as tgbn_genre")
}
