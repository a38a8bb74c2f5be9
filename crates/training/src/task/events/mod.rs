//! Training, evaluation and embeddings of models of event streams, and online prediction on a stream that
//! continues.
mod candidates;
mod chunks;
mod micro_batches;
mod model;
mod objective;
mod owners;
mod pipeline;
mod places;
pub mod predictor;
mod pretrain;
mod property;
mod recorded;
mod recorder;
mod setup;
mod staleness;
mod task;

pub use chunks::{batches, first_batch};
pub use predictor::{NewEvent, Predictor, PredictorOptions};
pub use pretrain::pretrain;
pub use property::PropertyTask;
pub(super) use property::label_steps;
pub use recorded::{RankPass, RecordedPasses, RecordedRun, record_passes};
pub use staleness::staleness_of;
pub use task::EventTask;

use self::setup::Setup;
use super::{
    After, Config, RunOptions, ScoresByMemory, Summary, Task, TaskCore, TaskName, Watch,
    training::{Checkpoint, DataRecord, Extractor, Run, load, restored, same_test, test_replayed},
};
use crate::model::{EventTables, Net, Queries};
use std::ops::Range;
use tgnn::{
    autograd::Program,
    error::{Error, Result},
    ops::{Backend, Tape, sample_neighbors::History},
    runtime::*,
};
use tgnn_data::{Events, Part};

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
    if config.task == TaskName::Property {
        let task = PropertyTask::new(config, events, device.clone())?;
        let run = Run { config, data: DataRecord::of_events(events), device, options, extractors: None };
        return run_task(task, events, run, watch);
    }
    let mut setup = Setup::new(config, events, device.clone())?;
    let micro_batches = micro_batches::chosen(config, events, &setup, options)?;
    if let Some(choice) = &micro_batches {
        setup = setup.in_parts(choice.micro_batches);
    }
    let mut task = EventTask::with(config, events, setup)?;
    task.micro_batches = micro_batches;
    let extractor = |before| Extractor::new(config, events, before, task.tables.gaps);
    let extractors = options.out.as_ref().and_then(|_| {
        let Range { start, end } = task.tested();
        Some([extractor(start)?, extractor(end)?])
    });
    let run = Run { config, data: DataRecord::of_events(events), device, options, extractors };
    run_task(task, events, run, watch)
}

/// What the tasks on event streams have in common.
trait StreamTask: Task + Sized {
    /// Builds the model and records its programs.
    fn build(config: &Config, events: &Events, device: Device) -> Result<Self>;
    /// Returns what computes embeddings.
    fn embedder(&mut self) -> (&mut TaskCore, &Net, &mut EventTables);
    /// Returns the events of the test part.
    fn test_part(&self) -> Range<usize>;
    /// Adds the scores of baselines on the test part to a summary.
    fn compare(&self, events: &Events, summary: &mut Summary);
}

/// Trains a task that is built.
fn run_task<T: StreamTask>(
    mut task: T,
    events: &Events,
    run: Run<'_>,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let config = run.config;
    let mut prepare = |task: &mut T, watch: &mut dyn Watch| {
        let (core, _, tables) = task.embedder();
        let rows = tables.static_memory;
        pretrain::fill(config, events, core, rows, watch)
    };
    let compare = |task: &T, summary: &mut Summary| {
        task.compare(events, summary);
        Ok(())
    };
    run.train(&mut task, watch, &mut prepare, &compare)
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
    let test = match config.task {
        TaskName::Property => evaluate_task::<PropertyTask>,
        _ => evaluate_task::<EventTask>,
    };
    test(checkpoint, config, events, device, command, replay, watch)
}

/// Tests the checkpoint of a task.
fn evaluate_task<T: StreamTask>(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    command: &str,
    replay: bool,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let (mut task, data): (T, _) = restored_task(checkpoint, config, events, device, watch)?;
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
    let run = Run { config, data, device, options: &options, extractors: None };
    let mut summary = run.summary(&task)?;
    summary.test = scores.asked(config.protocol);
    summary.test_by_memory = task.has_memory().then_some(scores);
    task.compare(events, &mut summary);
    summary.best_epoch = Some(best);
    Ok(summary)
}

/// Computes the embeddings of nodes at times (ticks since the first event of the stream), by the best epoch
/// of a checkpoint from the history and memory of all events, or of those of training and validation. Returns
/// their width and the array `[n, width]`. Memory does not know how it was before its last event, so times
/// should not be earlier.
///
/// # Errors
/// `Usage` if a node does not exist, or the numbers of nodes and times differ.
pub fn embed(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    after: After,
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
    let width = config.event_model()?.width();
    let embed = match config.task {
        TaskName::Property => embed_by::<PropertyTask>,
        _ => embed_by::<EventTask>,
    };
    Ok((width, embed(checkpoint, config, events, device, after, nodes, times)?))
}

/// Computes the embeddings of nodes at times by the checkpoint of a task.
fn embed_by<T: StreamTask>(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    after: After,
    nodes: &[u32],
    times: &[i64],
) -> Result<Vec<f32>> {
    let (mut task, _): (T, _) = restored_task(checkpoint, config, events, device, &mut ())?;
    let Range { start, end } = task.test_part();
    if after == After::Stream {
        task.remember(Part::Test, &mut |_| {})?;
    }
    let known = if after == After::Stream { end } else { start };
    let (core, net, tables) = task.embedder();
    // The history ends with the events that memory knows, however late the queries are.
    tables.history = History::Batch;
    let store = &mut core.store;
    let (mut t, n) = (Tape::new(store), Rows::fixed(nodes.len()));
    let mut ids = |name: &str, spec, values: &[u32]| {
        let id = store.values(name, spec, values)?;
        t.stored(id)
    };
    let node = ids("queries", Spec::ids(n, 1), nodes)?;
    let event = ids("history", Spec::ids(Rows::fixed(1), 1), &[known as u32])?;
    let now = ids("now", Spec::ids(Rows::fixed(1), 2), &[0, 0])?;
    let time = store.values("query times", Spec::times(n), times)?;
    let time = t.stored(time)?;
    let queries = Queries { node, time, event, now, stride: 0, batch: None, train: false };
    let z = net.model.embed(&mut t, tables, &queries)?.z;
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::of(&core.device))?;
    core.device.install(|| program.run(store))?;
    Ok(program.read::<f32>(z, store)?.to_vec())
}

/// Builds a task with the state of a checkpoint's best epoch after validation.
fn restored_task<T: StreamTask>(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    watch: &mut dyn Watch,
) -> Result<(T, DataRecord)> {
    let (build, data) = (
        || T::build(&config.clone().after_training(), events, device.clone()),
        DataRecord::of_events(events),
    );
    let mut task = restored(checkpoint, config, &data, watch, build)?;
    // A run that does not evaluate leaves the memory of its training events.
    if !checkpoint.manifest()?.config.evaluate {
        task.remember(Part::Val, &mut |_| {})?;
    }
    Ok((task, data))
}
