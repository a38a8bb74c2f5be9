//! A run: epochs, the best of them, its test, and the folder that tells of it.
use super::{
    Checkpoint, Choice, Config, EdgeBank, EventTask, NegativeKind, Progress, Scores, ScoresByMemory, Task,
    TaskName, TestScores,
    checkpoint::{import_weights, write_whole},
    event_task::tie_rule,
    matching::{resumed, same_data, same_model, same_test},
    pretrain, tensorboard,
    test_part::test_anew,
};
use crate::{
    data::Events,
    error::{Error, ErrorKind, Result},
    model::{Queries, StaticMode},
    ops::{Backend, Tape},
    runtime::{cuda::Gpu, *},
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// One epoch, a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Mean of the batches' losses.
    pub train_loss: f64,
    /// Seconds of the training pass alone.
    pub train_seconds: f64,
    /// Training events a second.
    pub events_per_second: f64,
    /// Validation; `None` where nothing is evaluated.
    pub val: Option<Scores>,
    /// When it ended, validation included: seconds since 1970, UTC.
    #[serde(default)]
    pub wall_time: f64,
}

/// What [`EdgeBank`] scores on the test part, against the same candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeBankScores {
    /// Remembering every pair.
    pub unlimited: TestScores,
    /// Remembering a window as long as the test part.
    pub window: TestScores,
}

impl EdgeBankScores {
    /// None where links are not predicted.
    fn of(task: &EventTask, events: &Events) -> Option<Self> {
        let share = task.split.test.len() as f64 / events.len() as f64;
        let unlimited = task.edgebank(EdgeBank::Unlimited, events)?;
        Some(EdgeBankScores { unlimited, window: task.edgebank(EdgeBank::Window { share }, events)? })
    }
}

/// What a baseline of snapshots scores on the test part, against the same candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineScores {
    /// What it knows.
    pub name: String,
    /// Its scores.
    pub test: TestScores,
}

/// Device of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// The maker's name.
    pub name: String,
    /// Threads.
    pub threads: usize,
}

/// Data of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    /// Its name.
    pub name: String,
    /// Events of all parts.
    pub events: usize,
    /// Nodes.
    pub nodes: usize,
    /// Width of the edge features; of snapshots, of the vertices' features.
    pub edge_features: usize,
    /// Snapshots, where that is what the data are; `events` are edges then, of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<usize>,
}

impl DataRecord {
    pub(super) fn of(events: &Events) -> Self {
        DataRecord {
            name: events.name.clone(),
            events: events.len(),
            nodes: events.nodes,
            edge_features: events.edge_width(),
            snapshots: None,
        }
    }
    /// What a checkpoint knows its data by.
    pub(super) fn identity(&self) -> (usize, usize, usize) {
        (self.events, self.nodes, self.edge_features)
    }
}

/// Most memory held, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakMemory {
    /// By the process.
    pub host: u64,
    /// On a device of its own; 0 on the CPU.
    pub device: u64,
}

/// `summary.json`, schema 1: what was run, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // documented in docs/summary.md, key by key
pub struct Summary {
    pub schema: u32,
    pub version: String,
    pub commit: Option<String>,
    pub command: String,
    pub device: DeviceRecord,
    pub data: DataRecord,
    pub model: String,
    pub task: TaskName,
    pub plan: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Choice>,
    pub seed: u64,
    pub protocol: String,
    pub negatives: NegativeKind,
    pub ties: String,
    pub batch: usize,
    pub precision: MatmulPrecision,
    pub features_as: StoredAs,
    pub memory_as: StoredAs,
    pub epochs: Vec<EpochRecord>,
    pub best_epoch: Option<usize>,
    #[serde(default)]
    pub settled: Option<EpochRecord>,
    pub stopped_early: bool,
    pub test: Option<TestScores>,
    #[serde(default)]
    pub test_by_memory: Option<ScoresByMemory>,
    pub edgebank: Option<EdgeBankScores>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineScores>,
    pub peak_memory_bytes: PeakMemory,
    pub parameters: usize,
}

/// What a caller may watch while a run goes on.
pub trait Watch: Send {
    /// The run is built and about to start.
    fn start(&mut self, _task: &mut dyn Task) {}
    /// A pass (`train`, `val`, `test`) of an epoch has come this far.
    fn progress(&mut self, _pass: &str, _epoch: usize, _p: Progress) {}
    /// An epoch is over.
    fn epoch(&mut self, _record: &EpochRecord) {}
    /// The model has settled.
    fn settled(&mut self, _record: &EpochRecord) {}
    /// The run is over.
    fn end(&mut self, _task: &dyn Task) {}
}
impl Watch for () {}

/// Where a run writes, and whether it goes on from there.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder of the run; nothing is written without one.
    pub out: Option<PathBuf>,
    /// Go on after the last epoch of `out`.
    pub resume: bool,
    /// A safetensors file whose weights a run starts from; see docs/weights.md.
    pub weights: Option<PathBuf>,
    /// A run's folder, or its checkpoint: its model, in its best epoch and settled, is what this run starts from; the head starts anew.
    pub from: Option<PathBuf>,
    /// The command line, for the summary.
    pub command: String,
}

/// The folder `out`, made, with the resolved configuration in it.
fn open_run(out: &Path, config: &Config, resume: bool) -> Result<()> {
    let taken = fs::read_dir(out).is_ok_and(|mut d| d.next().is_some());
    if taken && !resume {
        return Err(Error::usage(format!("{} is not empty", out.display()))
            .remedy("give another --out, or --resume to go on with the run in it"));
    }
    fs::create_dir_all(out).map_err(|e| Error::io(out, "cannot create", e))?;
    write_whole(&out.join("config.toml"), config.to_toml()?.as_bytes())
}

/// Lines of `metrics.jsonl` of the first `epochs` epochs.
fn read_metrics(path: &Path, epochs: usize) -> Result<Vec<EpochRecord>> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
    let records = text.lines().take(epochs).enumerate().map(|(i, line)| {
        serde_json::from_str(line).map_err(|e| {
            Error::new(ErrorKind::Checkpoint, "not an epoch's record")
                .in_file(path)
                .at(i as u64 + 1, 0)
                .caused_by(e)
        })
    });
    records.collect()
}

/// Trains a model on an event stream, validates after every epoch, and tests the best one from the memory its validation left,
/// and settled from memory made anew.
///
/// # Errors
/// Usage, Data, Checkpoint, Diverged or Io; what the run folder held stays whole.
pub fn train(
    config: &Config,
    events: &Events,
    device: &Device,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = EventTask::new(config, events, device.clone())?;
    let mut prepare = |task: &mut EventTask, watch: &mut dyn Watch| {
        if let (StaticMode::Pretrained, Some(id)) = (config.static_mode(), task.tables.static_memory) {
            // Rows that a checkpoint has filled are not learned again.
            if task.store.read::<f32>(id)?.iter().all(|&x| x == 0.0) {
                let rows = pretrain(config, events, device, watch)?;
                task.store.write(id, &rows)?;
            }
        }
        Ok(())
    };
    let compare = |task: &EventTask, summary: &mut Summary| {
        summary.edgebank = EdgeBankScores::of(task, events);
        Ok(())
    };
    let run = Run { config, data: DataRecord::of(events), device, options };
    run.train(&mut task, watch, &mut prepare, &compare)
}

/// What a run is of, whatever its task.
pub(super) struct Run<'a> {
    pub config: &'a Config,
    pub data: DataRecord,
    pub device: &'a Device,
    pub options: &'a RunOptions,
}

impl Run<'_> {
    /// The training loop. `prepare` does what comes before the first epoch, `compare` adds what baselines score to the summary
    /// of a run that was tested.
    pub fn train<T: Task>(
        &self,
        task: &mut T,
        watch: &mut dyn Watch,
        prepare: &mut dyn FnMut(&mut T, &mut dyn Watch) -> Result<()>,
        compare: &dyn Fn(&T, &mut Summary) -> Result<()>,
    ) -> Result<Summary> {
        let (config, options) = (self.config, self.options);
        if let Some(path) = &options.weights {
            let (store, parameters) = task.store_and_parameters();
            import_weights(path, store, parameters)?;
        }
        if let Some(path) = &options.from {
            let (trained, model) = (Checkpoint::at(path), task.model_buffers());
            same_model(&trained.manifest()?, config).map_err(|e| e.in_file(path))?;
            trained.load_settled(task.store_mut(), &model)?;
        }
        let buffers = task.checkpoint_buffers();
        let checkpoint = options.out.as_ref().map(|out| Checkpoint::at(out.join("checkpoint")));
        let mut manifest = Checkpoint::describe(config, self.data.identity());
        let mut records = Vec::new();
        let restored = match (&checkpoint, options.resume, &options.out) {
            // A run that ended before its first epoch did begins anew.
            (Some(c), true, Some(out)) if c.exists() || !out.join("config.toml").exists() => {
                manifest = resumed(c.manifest()?, config, &self.data)?;
                records = read_metrics(&out.join("metrics.jsonl"), manifest.epochs)?;
                c.load(task.store_mut(), &buffers, false)?;
                true
            }
            (None, true, _) => {
                return Err(Error::usage("--resume has no run to go on with").remedy("give its --out"));
            }
            _ => false,
        };
        let given = options.from.is_some() || options.weights.is_some();
        if config.classify.frozen && !restored && !given {
            return Err(Error::usage(
                "classify.frozen keeps the model as it is, and this one has learned nothing",
            )
            .remedy("give --from with the folder of a run that trained it"));
        }
        if let Some(out) = &options.out {
            open_run(out, config, options.resume)?;
            write_metrics(out, &records)?;
        }
        // What a run starts from is kept, so that one which ends before its first epoch goes on from there, too.
        if let (Some(c), true, false) = (&checkpoint, given, restored) {
            c.save(task.store(), &buffers, &manifest, true)?;
        }
        watch.start(task);
        prepare(task, watch)?;
        let mut best: Option<Vec<Vec<u8>>> = None;
        for epoch in manifest.epochs + 1..=config.epochs {
            if config.patience > 0 && manifest.epochs - manifest.best_epoch >= config.patience {
                break;
            }
            let record = self.epoch(task, watch, epoch)?;
            manifest.epochs = epoch;
            let score = record.val.and_then(|v| v.figure(config.task));
            records.push(record);
            let is_best = manifest.best_epoch == 0 || score > manifest.best_score || score.is_none();
            if is_best {
                (manifest.best_epoch, manifest.best_score) = (epoch, score);
            }
            if checkpoint.is_some() || is_best {
                task.store_mut().fetch(&buffers)?;
            }
            match (&checkpoint, &options.out) {
                (Some(c), Some(out)) => {
                    write_metrics(out, &records)?;
                    c.save(task.store(), &buffers, &manifest, is_best)?;
                    if config.tensorboard {
                        tensorboard::write(out, &records, None)?;
                    }
                }
                _ if is_best => {
                    let raw = buffers.iter().map(|&id| Ok(task.store().raw(id)?.to_vec()));
                    best = Some(raw.collect::<Result<_>>()?);
                }
                _ => {}
            }
        }
        let (mut settled, mut scores, best_epoch) = (None, ScoresByMemory::default(), manifest.best_epoch);
        // Without a test or a folder nobody uses the model.
        if config.evaluate || checkpoint.is_some() {
            match (&checkpoint, best) {
                (Some(c), _) => c.load(task.store_mut(), &buffers, true)?,
                (None, Some(state)) => {
                    for (&id, s) in buffers.iter().zip(state) {
                        task.store_mut().raw_mut(id)?.copy_from_slice(&s);
                    }
                }
                (None, None) => {}
            }
            if config.evaluate {
                scores.as_trained = Some(task.test(&mut |p| watch.progress("test", best_epoch, p))?);
            }
            settled = self.settle(task, watch, best_epoch)?;
            if let (Some(c), true) = (&checkpoint, settled.is_some()) {
                task.store_mut().fetch(&buffers)?;
                c.save_settled(task.store(), &buffers, &manifest)?;
            }
        }
        if config.evaluate && task.has_memory() {
            scores.replayed = Some(test_anew(task, watch, best_epoch)?);
        }
        watch.end(task);
        let mut summary = self.summary(task);
        summary.stopped_early = manifest.epochs < config.epochs;
        summary.test = scores.asked(config.protocol);
        summary.test_by_memory = (config.evaluate && task.has_memory()).then_some(scores);
        (summary.epochs, summary.settled) = (records, settled);
        if summary.test.is_some() {
            compare(task, &mut summary)?;
        }
        summary.best_epoch = config.evaluate.then_some(manifest.best_epoch);
        if let Some(out) = &options.out {
            write_whole(&out.join("summary.json"), &as_json("the summary", &summary)?)?;
            if let Some((_, costs)) = task.chosen() {
                write_whole(&out.join("predictions.json"), &as_json("the predictions", costs)?)?;
            }
            if config.tensorboard {
                let test = summary.test.map(|test| (manifest.best_epoch, test));
                tensorboard::write(out, &summary.epochs, test)?;
            }
        }
        Ok(summary)
    }
    /// Trains for an epoch, and validates.
    fn epoch(&self, task: &mut dyn Task, watch: &mut dyn Watch, epoch: usize) -> Result<EpochRecord> {
        let started = Instant::now();
        let trained = task.train_epoch(epoch as u32 - 1, &mut |p| watch.progress("train", epoch, p))?;
        let record = self.record(task, watch, epoch, trained, started)?;
        watch.epoch(&record);
        Ok(record)
    }
    /// Settles the model of the epoch `best`, and validates; none where there is nothing to settle.
    fn settle(&self, task: &mut dyn Task, watch: &mut dyn Watch, best: usize) -> Result<Option<EpochRecord>> {
        let started = Instant::now();
        // It draws what the epoch after the best one drew, or would have.
        let trained = task.settle(best as u32, &mut |p| watch.progress("settle", best, p))?;
        let record = trained.map(|trained| self.record(task, watch, best, trained, started)).transpose()?;
        record.iter().for_each(|record| watch.settled(record));
        Ok(record)
    }
    /// The record of an epoch of which the training pass, begun at `started`, is over: validates.
    fn record(
        &self,
        task: &mut dyn Task,
        watch: &mut dyn Watch,
        epoch: usize,
        (train_loss, done): (f64, usize),
        started: Instant,
    ) -> Result<EpochRecord> {
        let train_seconds = started.elapsed().as_secs_f64();
        let val = if self.config.evaluate {
            Some(task.validate(&mut |p| watch.progress("val", epoch, p))?)
        } else {
            None
        };
        let events_per_second = done as f64 / train_seconds;
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Ok(EpochRecord { epoch, train_loss, train_seconds, events_per_second, val, wall_time })
    }
    /// What is known of a run without its figures.
    pub fn summary(&self, task: &dyn Task) -> Summary {
        let (config, device) = (self.config, self.device);
        Summary {
            schema: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("TGNN_COMMIT").map(Into::into),
            command: self.options.command.clone(),
            device: DeviceRecord {
                kind: device.kind().into(),
                name: device.name().into(),
                threads: device.threads(),
            },
            data: self.data.clone(),
            model: config.model.name().into(),
            plan: task.plan().name.clone(),
            chosen: task.chosen().map(|(choice, _)| choice.clone()),
            task: config.task,
            seed: config.seed,
            protocol: config.protocol_name().into(),
            negatives: config.negatives,
            ties: tie_rule(config).into(),
            batch: config.batch,
            precision: config.precision,
            features_as: config.features_as,
            memory_as: config.memory_as,
            epochs: Vec::new(),
            best_epoch: None,
            settled: None,
            stopped_early: false,
            test: None,
            test_by_memory: None,
            edgebank: None,
            baselines: Vec::new(),
            peak_memory_bytes: PeakMemory {
                host: peak_memory_bytes(),
                device: device.gpu().map_or(0, Gpu::peak_bytes),
            },
            parameters: task.parameters().count(task.store()),
        }
    }
}

fn as_json(what: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec_pretty(value);
    json.map_err(|e| Error::new(ErrorKind::Io, format!("cannot write {what}")).caused_by(e))
}

fn write_metrics(out: &Path, records: &[EpochRecord]) -> Result<()> {
    let path = out.join("metrics.jsonl");
    let mut text = Vec::new();
    for r in records {
        serde_json::to_writer(&mut text, r)
            .map_err(|e| Error::new(ErrorKind::Io, "cannot write").in_file(&path).caused_by(e))?;
        text.write_all(b"\n").map_err(|e| Error::io(&path, "cannot write", e))?;
    }
    write_whole(&path, &text)
}

/// A task with the best state of a checkpoint.
fn restore(checkpoint: &Checkpoint, config: &Config, events: &Events, device: &Device) -> Result<EventTask> {
    let manifest = checkpoint.manifest()?;
    same_data(&manifest, &DataRecord::of(events))?;
    same_model(&manifest, config)?;
    let mut task = EventTask::new(config, events, device.clone())?;
    let buffers = task.checkpoint_buffers();
    checkpoint.load(&mut task.store, &buffers, true)?;
    Ok(task)
}

/// Tests a checkpoint: from the memory its validation left, or, with `replay` or under a protocol that does so, the settled model from
/// memory made anew.
///
/// # Errors
/// Checkpoint when it does not fit the data or is damaged.
pub fn evaluate(
    checkpoint: &Checkpoint,
    config: &Config,
    events: &Events,
    device: &Device,
    command: &str,
    replay: bool,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut task = restore(checkpoint, config, events, device)?;
    let (manifest, mut scores) = (checkpoint.manifest()?, ScoresByMemory::default());
    let (best, replays) = (manifest.best_epoch, replay || config.protocol.replays());
    if !replays {
        same_test(&manifest, config, events)?;
    }
    if replays && task.has_memory() {
        let buffers = task.checkpoint_buffers();
        checkpoint.load_settled(&mut task.store, &buffers)?;
        scores.replayed = Some(test_anew(&mut task, watch, best)?);
    } else {
        scores.as_trained = Some(task.test(&mut |p| watch.progress("test", best, p))?);
    }
    let options = RunOptions { command: command.into(), ..RunOptions::default() };
    let run = Run { config, data: DataRecord::of(events), device, options: &options };
    let mut summary = run.summary(&task);
    summary.test = scores.asked(config.protocol);
    summary.test_by_memory = task.has_memory().then_some(scores);
    summary.edgebank = EdgeBankScores::of(&task, events);
    summary.best_epoch = Some(best);
    Ok(summary)
}

/// Embeddings `[n, width]` of nodes at times (ticks since the stream's first event), by the best state of a
/// checkpoint: history and memory are those of the training and validation events.
///
/// # Errors
/// Usage when a node does not exist, or the numbers of nodes and times differ.
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
        return Err(Error::usage(format!("there is no node {v}")).remedy(format!(
            "{} has nodes 0 to {}",
            events.name,
            events.nodes - 1
        )));
    }
    same_test(&checkpoint.manifest()?, config, events)?;
    let mut task = restore(checkpoint, config, events, device)?;
    let mut t = Tape::new();
    let n = Rows::fixed(nodes.len());
    let mut value = |name: &str, spec, ids: &[u32]| {
        let id = task.store.values(name, spec, ids)?;
        t.stored(&task.store, id)
    };
    let node = value("queries", Spec::ids(n, 1), nodes)?;
    let first = value("history", Spec::ids(Rows::fixed(1), 1), &[task.split.test.start as u32])?;
    let now = value("now", Spec::ids(Rows::fixed(1), 2), &[0, 0])?;
    let time = task.store.values("query times", Spec::times(n), times)?;
    let time = t.stored(&task.store, time)?;
    let q = Queries { node, time, event: first, now, stride: 0, train: false };
    let z = task.net.model.embed(&mut t, &task.store, &task.tables, &q)?.z;
    let mut program = crate::autograd::Program::new(&t, &[z], Precision::F32, Backend::of(task.device()))?;
    device.install(|| program.run(&mut task.store))?;
    Ok((config.event_model()?.width(), program.read::<f32>(z, &task.store)?.to_vec()))
}
