//! Training, evaluation and embeddings of models of snapshot sequences.
mod group_plan;
mod objective;
mod recorder;
mod scores;
mod split;
mod task;

pub use split::SnapshotSplit;
pub use task::SnapshotTask;

use super::{
    Config, RunOptions, Summary, Watch,
    training::{Checkpoint, DataRecord, Run, evaluate, restored},
};
use crate::model::SwappedLayers;
use tgnn::{
    autograd::Program,
    error::{Error, Result},
    ops::{Backend, Tape},
    runtime::*,
};
use tgnn_data::Snapshots;

/// Trains a model of snapshots, validates after every epoch, and tests the best epoch.
///
/// # Errors
/// Those of [`train`](super::train).
pub fn train_snapshots(
    config: &Config,
    data: &Snapshots,
    device: &Device,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let known = options.resumed(device)?;
    let build = || SnapshotTask::with(config, data, device.clone(), known.as_ref());
    let mut task = device.timed("task", build)?;
    let run = Run { config, data: DataRecord::of_snapshots(data), device, options, extractors: None };
    run.train(&mut task, data, watch)
}

/// Tests a checkpoint.
///
/// # Errors
/// `Checkpoint` if the checkpoint is damaged or does not fit the data.
pub fn evaluate_snapshots(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &Snapshots,
    device: &Device,
    command: &str,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    evaluate::<SnapshotTask>(checkpoint, config, data, device, (command, false), watch, &mut |_| Ok(()))
}

/// Computes the embeddings of vertices after the last snapshot, with the parameters of a checkpoint's best
/// epoch. The next step would be predicted from these embeddings. Returns their width and the array `[n,
/// width]`.
///
/// # Errors
/// `Usage` if a vertex does not exist.
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
    let mut task: SnapshotTask = restored(checkpoint, config, data, device, &mut ())?;
    let width = config.snapshot_model()?.width();
    let (store, tables) = (&mut task.core.store, &task.tables);
    let mut t = Tape::new(store);
    let group = tables.next_group(&mut t, config.group.length)?;
    let z = task.model.embed(&mut t, tables, &group, &SwappedLayers::default())?;
    let rows = Spec::ids(Rows::fixed(vertices.len()), 1);
    let queries = store.values("vertices", rows, vertices)?;
    let queries = t.stored(queries)?;
    let z = t.gather_rows(z, queries)?;
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::for_device(device))?;
    tables.seek(store, 0, &[data.len() as u32])?;
    device.install(|| program.run(store))?;
    Ok((width, program.read::<f32>(z, store)?.to_vec()))
}
