//! Training, evaluation and embeddings of models of event streams, and online prediction on a stream that
//! continues.
mod candidates;
mod chunks;
mod micro_batches;
mod model;
mod objective;
mod owners;
mod pipeline;
pub mod predictor;
mod pretrain;
mod recorded;
mod recorder;
mod setup;
mod staleness;
mod task;

pub use chunks::{batches, first_batch};
pub use predictor::{NewEvent, Predictor, PredictorOptions};
pub use pretrain::pretrain;
pub use recorded::{RankPass, RecordedPasses, RecordedRun, record_passes};
pub use task::EventTask;

use self::setup::Setup;
use super::{
    Config, EdgeBank, RunOptions, ScoresByMemory, Summary, Task, Watch,
    training::{
        Checkpoint, DataRecord, EdgeBankScores, Extractor, Run, load, restored, same_test, test_replayed,
    },
};
use crate::{
    autograd::Program,
    data::Events,
    error::{Error, Result},
    model::{Queries, StaticMode},
    ops::{Backend, Tape},
    runtime::*,
};

/// Trains a model on an event stream. Every epoch is validated. The best epoch is tested twice: with the
/// memory that its validation left, and, settled, with replayed memory. The run is on `device`;
/// [`Config::device`] is for those who open it by [`Config::open_device`].
///
/// # Errors
/// `Usage`, `Data`, `Checkpoint`, `Diverged` or `Io`. What the run folder held before stays intact.
pub fn train(
    config: &Config,
    events: &Events,
    device: &Device,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut setup = Setup::new(config, events, device.clone())?;
    let micro_batches = micro_batches::chosen(config, events, &setup, options)?;
    if let Some(choice) = &micro_batches {
        setup = setup.in_parts(choice.micro_batches);
    }
    let mut task = EventTask::with(config, events, setup)?;
    task.micro_batches = micro_batches;
    let mut prepare = |task: &mut EventTask, watch: &mut dyn Watch| {
        if let (StaticMode::Pretrained, Some(id)) = (config.static_mode(), task.tables.static_memory) {
            // A checkpoint may have filled the rows already.
            if task.core.store.read::<f32>(id)?.iter().all(|&x| x == 0.0) {
                let rows = pretrain(config, events, device, watch)?;
                task.core.store.write(id, &rows)?;
            }
        }
        Ok(())
    };
    let compare = |task: &EventTask, summary: &mut Summary| {
        summary.edgebank = edgebank_scores(task, events);
        Ok(())
    };
    let first = task.split.test.start;
    let extractor =
        options.out.as_ref().and_then(|_| Extractor::new(config, events, first, task.tables.gaps));
    let run = Run { config, data: DataRecord::of_events(events), device, options, extractor };
    run.train(&mut task, watch, &mut prepare, &compare)
}

/// Returns EdgeBank's scores on the test part; `None` if the task is not link prediction.
fn edgebank_scores(task: &EventTask, events: &Events) -> Option<EdgeBankScores> {
    let fraction = task.split.test.len() as f64 / events.len() as f64;
    let unlimited = task.edgebank(EdgeBank::Unlimited, events)?;
    Some(EdgeBankScores { unlimited, window: task.edgebank(EdgeBank::Window { fraction }, events)? })
}

/// Tests a checkpoint: with the memory that its validation left, or, if `replay` is set or the protocol asks
/// for it, the settled model with replayed memory.
///
/// # Errors
/// `Checkpoint` if the checkpoint is damaged, or of other data or another model.
pub fn evaluate(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    command: &str,
    replay: bool,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = restored_task(checkpoint, config, events, device)?;
    let (manifest, mut scores) = (checkpoint.manifest()?, ScoresByMemory::default());
    let (best, replays) = (manifest.best_epoch, replay || config.protocol.replays());
    if !replays {
        same_test(&manifest, config, events)?;
    }
    if replays && task.has_memory() {
        let buffers = task.checkpoint_buffers();
        load(&mut task, &buffers, |store, buffers| checkpoint.load_settled(store, buffers))?;
        scores.replayed = Some(test_replayed(&mut task, watch, best)?);
    } else {
        scores.as_trained = Some(task.test(&mut |p| watch.progress("test", best, p))?);
    }
    let options = RunOptions { command: command.into(), ..RunOptions::default() };
    let data = DataRecord::of_events(events);
    let run = Run { config, data, device, options: &options, extractor: None };
    let mut summary = run.summary(&task)?;
    summary.test = scores.asked(config.protocol);
    summary.test_by_memory = task.has_memory().then_some(scores);
    summary.edgebank = edgebank_scores(&task, events);
    summary.best_epoch = Some(best);
    Ok(summary)
}

/// Computes the embeddings of nodes at times (ticks since the first event of the stream), by the best epoch
/// of a checkpoint from the history and memory of the training and validation events. Returns their width and
/// the array `[n, width]`.
///
/// # Errors
/// `Usage` if a node does not exist, or the numbers of nodes and times differ.
pub fn embed(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    nodes: &[u32],
    times: &[i64],
) -> Result<(usize, Vec<f32>)> {
    if nodes.len() != times.len() {
        return Err(Error::usage(format!("{} nodes and {} times", nodes.len(), times.len()))
            .remedy("give a time for every node"));
    }
    if let Some(v) = nodes.iter().find(|&&v| v as usize >= events.nodes) {
        let last = events.nodes - 1;
        return Err(Error::usage(format!("there is no node {v}"))
            .remedy(format!("{} has nodes 0 to {last}", events.name)));
    }
    same_test(&checkpoint.manifest()?, config, events)?;
    let mut task = restored_task(checkpoint, config, events, device)?;
    let test_start = task.split.test.start as u32;
    let store = &mut task.core.store;
    let (mut t, n) = (Tape::new(), Rows::fixed(nodes.len()));
    let mut ids = |name: &str, spec, values: &[u32]| {
        let id = store.values(name, spec, values)?;
        t.stored(store, id)
    };
    let node = ids("queries", Spec::ids(n, 1), nodes)?;
    let event = ids("history", Spec::ids(Rows::fixed(1), 1), &[test_start])?;
    let now = ids("now", Spec::ids(Rows::fixed(1), 2), &[0, 0])?;
    let time = store.values("query times", Spec::times(n), times)?;
    let time = t.stored(store, time)?;
    let queries = Queries { node, time, event, now, stride: 0, batch: None, train: false };
    let z = task.net.model.embed(&mut t, store, &task.tables, &queries)?.z;
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::of(&task.core.device))?;
    device.install(|| program.run(store))?;
    Ok((config.event_model()?.width(), program.read::<f32>(z, store)?.to_vec()))
}

/// Builds a task with the state of a checkpoint's best epoch.
fn restored_task(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
) -> Result<EventTask> {
    let build = || EventTask::new(&config.clone().after_training(), events, device.clone());
    restored(checkpoint, config, &DataRecord::of_events(events), build)
}
