//! Training, evaluation and embeddings of models of event streams, and online prediction on a stream that
//! continues.
mod by_plan;
mod candidates;
mod chunks;
mod model;
mod objective;
mod places;
pub mod predictor;
mod pretrain;
mod property;
mod recorded;
mod recorder;
mod scored;
mod setup;
mod task;

pub use by_plan::staleness_of;
pub use chunks::{batches, first_batch};
pub use predictor::{NewEvent, Predictor, PredictorOptions, PredictorState};
pub use pretrain::pretrain;
pub use property::PropertyTask;
pub(super) use property::label_steps;
pub use recorded::{RankPass, RecordedPasses, RecordedRun, record_passes};
pub use scored::{Candidate, OnScore, ScoredCandidate};
pub use task::EventTask;

use super::{
    After, Config, RunOptions, Summary, Task, TaskCore, TaskName, Watch,
    training::{
        self, Checkpoint, DataRecord, DataTask, Extractor, Manifest, Report, Run, Uses, restored, same_test,
    },
};
use crate::model::{EventTables, Net, Queries};
use setup::{classes_of, predicts_classes};
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
    let run = Run { config, data: DataRecord::of_events(events), device, options, extractors: None };
    if config.task == TaskName::Property {
        let mut task = device.timed("task", || PropertyTask::new(config, events, device.clone()))?;
        return run.train(&mut task, events, watch);
    }
    let build = || by_plan::task_of_run(config, events, device.clone(), options);
    let mut task = device.timed("task", build)?;
    let extractor = |before| Extractor::new(config, events, before, task.tables.gaps);
    let extractors = options.out.as_ref().and_then(|_| {
        let Range { start, end } = task.tested();
        Some([extractor(start)?, extractor(end)?])
    });
    Run { extractors, ..run }.train(&mut task, events, watch)
}

/// What the tasks on event streams have in common.
trait StreamTask: Task + Sized {
    /// Builds the model of a checkpoint and records its programs.
    fn build(config: &Config, events: &Events, device: Device, manifest: &Manifest) -> Result<Self>;
    /// Returns what computes embeddings.
    fn embedder(&mut self) -> (&mut TaskCore, &Net, &mut EventTables);
    /// Returns the events of the test part.
    fn test_part(&self) -> Range<usize>;
    /// As [`DataTask::step_bytes`].
    fn step_bytes(&mut self, uses: Uses) -> Result<usize> {
        Ok(self.core().step_bytes(uses))
    }
    /// As [`DataTask::evaluation_bytes`].
    fn evaluation_bytes(&self, events: &Events) -> [usize; 2];
    /// Adds the scores of baselines on the test part to a summary.
    fn compare(&self, events: &Events, summary: &mut Summary, progress: Report<'_>) -> Result<()>;
}

impl<T: StreamTask> DataTask for T {
    type Data = Events;

    fn build(config: &Config, events: &Events, device: Device, manifest: &Manifest) -> Result<Self> {
        StreamTask::build(config, events, device, manifest)
    }
    fn same_classes(manifest: &Manifest, config: &Config, events: &Events) -> Result<()> {
        match predicts_classes(config) {
            true => events.classes_by(&classes_of(manifest, events)?).map(drop),
            false => Ok(()),
        }
    }
    fn describe(events: &Events) -> DataRecord {
        DataRecord::of_events(events)
    }
    fn same_test(manifest: &Manifest, config: &Config, events: &Events) -> Result<()> {
        same_test(manifest, config, events)
    }
    fn prepare(&mut self, config: &Config, events: &Events, watch: &mut dyn Watch) -> Result<()> {
        let (core, _, tables) = self.embedder();
        pretrain::fill(config, events, core, tables.static_memory, watch)
    }
    fn step_bytes(&mut self, uses: Uses) -> Result<usize> {
        StreamTask::step_bytes(self, uses)
    }
    fn evaluation_bytes(&self, events: &Events) -> [usize; 2] {
        StreamTask::evaluation_bytes(self, events)
    }
    fn compare(&self, events: &Events, summary: &mut Summary, progress: Report<'_>) -> Result<()> {
        StreamTask::compare(self, events, summary, progress)
    }
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
    let tested = match config.task {
        TaskName::Property => tested::<PropertyTask>,
        _ => tested::<EventTask>,
    };
    tested(checkpoint, config, events, device, (command, replay), watch)
}

/// Tests a checkpoint of a task, of which only the summary is of interest.
fn tested<T: DataTask<Data = Events>>(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    command: (&str, bool),
    watch: &mut dyn Watch,
) -> Result<Summary> {
    training::evaluate::<T>(checkpoint, config, events, device, command, watch, &mut |_| Ok(()))
}

/// Tests a checkpoint as [`evaluate`] does, and hands over every score: of an event and its negatives, or of
/// the classes of an event. `on_score` gets the scores of the test that the protocol asks for.
///
/// # Errors
/// Those of [`evaluate`] and of `on_score`; `Usage` for a task without such scores.
pub fn evaluate_each(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    (command, replay): (&str, bool),
    watch: &mut dyn Watch,
    on_score: OnScore<'_>,
) -> Result<Summary> {
    let on_test = &mut |task: &EventTask| task.each_score(events, on_score);
    training::evaluate(checkpoint, config, events, device, (command, replay), watch, on_test)
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
    let mut task: T = restored(checkpoint, config, events, device, &mut ())?;
    let Range { start, end } = task.test_part();
    let known = match after {
        After::Stream => {
            task.remembering().map_or(Ok(()), |memory| memory.remember(Part::Test, &mut |_| {}))?;
            end
        }
        After::Validation => start,
    };
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
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::for_device(&core.device))?;
    core.device.install(|| program.run(store))?;
    Ok(program.read::<f32>(z, store)?.to_vec())
}
