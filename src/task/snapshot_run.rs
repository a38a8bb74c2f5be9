//! Runs of models of snapshots: trained by the one training loop, tested, asked for embeddings.
use super::{
    Checkpoint, Config, RunOptions, SnapshotTask, Summary, Task, Watch,
    matching::{same_data, same_model},
    run::{BaselineScores, DataRecord, Run},
};
use crate::{
    autograd::Program,
    data::Snapshots,
    error::{Error, Result},
    model::Exchanged,
    ops::{Backend, Tape},
    runtime::*,
};

impl DataRecord {
    fn of_snapshots(data: &Snapshots) -> Self {
        DataRecord {
            name: data.name.clone(),
            events: data.src.len(),
            nodes: data.nodes,
            edge_features: data.width(),
            snapshots: Some(data.len()),
        }
    }
}

/// Trains a model of snapshots, validates after every epoch, and tests the best one.
///
/// # Errors
/// As [`train`](super::train).
pub fn train_snapshots(
    config: &Config,
    data: &Snapshots,
    device: &Device,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = SnapshotTask::new(config, data, device.clone())?;
    let run = Run { config, data: DataRecord::of_snapshots(data), device, options };
    let compare = |task: &SnapshotTask, summary: &mut Summary| {
        summary.baselines = baselines(task, data)?;
        Ok(())
    };
    run.train(&mut task, watch, &mut |_, _| Ok(()), &compare)
}

fn baselines(task: &SnapshotTask, data: &Snapshots) -> Result<Vec<BaselineScores>> {
    let of = |(name, test): (&str, _)| BaselineScores { name: name.into(), test };
    Ok(task.baselines(data)?.into_iter().map(of).collect())
}

/// A task with the best parameters of a checkpoint.
fn restore(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &Snapshots,
    device: &Device,
) -> Result<SnapshotTask> {
    let manifest = checkpoint.manifest()?;
    same_data(&manifest, &DataRecord::of_snapshots(data))?;
    same_model(&manifest, config)?;
    let mut task = SnapshotTask::new(config, data, device.clone())?;
    let buffers = task.checkpoint_buffers();
    checkpoint.load(&mut task.store, &buffers, true)?;
    Ok(task)
}

/// Tests a checkpoint.
///
/// # Errors
/// Checkpoint when it does not fit the data or is damaged.
pub fn evaluate_snapshots(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &Snapshots,
    device: &Device,
    command: &str,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = restore(checkpoint, config, data, device)?;
    let best = checkpoint.manifest()?.best_epoch;
    let test = task.test(&mut |p| watch.progress("test", best, p))?;
    let options = RunOptions { command: command.into(), ..RunOptions::default() };
    let run = Run { config, data: DataRecord::of_snapshots(data), device, options: &options };
    let mut summary = run.summary(&task);
    (summary.test, summary.best_epoch) = (Some(test), Some(best));
    summary.baselines = baselines(&task, data)?;
    Ok(summary)
}

/// Embeddings `[n, width]` of vertices after the last snapshots, by the best parameters of a checkpoint: those that the step to
/// come would be predicted from.
///
/// # Errors
/// Usage when a vertex does not exist.
pub fn embed_snapshots(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &Snapshots,
    device: &Device,
    vertices: &[u32],
) -> Result<(usize, Vec<f32>)> {
    if let Some(v) = vertices.iter().find(|&&v| v as usize >= data.nodes) {
        let last = data.nodes - 1;
        return Err(Error::usage(format!("there is no vertex {v}"))
            .remedy(format!("{} has vertices 0 to {last}", data.name)));
    }
    let mut task = restore(checkpoint, config, data, device)?;
    let width = config.snapshot_model()?.width();
    let mut t = Tape::new();
    let group = task.tables.next_group(&mut t, &task.store, config.group.length)?;
    let z = task.model.embed(&mut t, &task.store, &task.tables, &group, &Exchanged::default())?;
    let rows = Spec::ids(Rows::fixed(vertices.len()), 1);
    let asked = task.store.values("vertices", rows, vertices)?;
    let asked = t.stored(&task.store, asked)?;
    let z = t.gather_rows(z, asked)?;
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::of(device))?;
    task.tables.seek(&mut task.store, 0, &[data.len() as u32])?;
    device.install(|| program.run(&mut task.store))?;
    Ok((width, program.read::<f32>(z, &task.store)?.to_vec()))
}
