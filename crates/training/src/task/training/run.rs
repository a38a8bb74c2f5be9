//! A run: its epochs with validation, the test of the best epoch, and the files of the run folder.
use super::{
    Checkpoint, DataRecord, DataTask, DeviceRecord, EpochRecord, HostMemory, Manifest, NodeState, PeakMemory,
    PhaseRecord, PlanManifest, Progress, RanksRecord, Remembers, StageRecord, StartRecord, Summary, Task,
    Uses,
    extractor::Extractor,
    folder::{
        USE_A_COPY, as_json, is_free, locked, never_saved, open_run, read_metrics, write_metrics, write_whole,
    },
    lock::FolderLock,
    matching::{may_load, may_start, resumed},
    over_ranks::{from_first, load},
    tensor_files::import_weights,
    tensorboard,
};
use crate::{
    plan::Timeline,
    task::{
        config::Config,
        evaluation::{ScoresByMemory, TestScores},
    },
};
use std::{
    path::PathBuf,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{cuda::Gpu, *},
};
use tgnn_data::Part;

/// The file of a run folder with the timeline of some steps of the last epoch, if the run was traced.
pub(in crate::task) const TIMELINE: &str = "timeline.json";
/// The number of those steps.
const STEPS_KEPT: usize = 6;

/// The beginning of a training pass.
struct Began {
    at: Instant,
    /// Graphs that the program had captured before.
    graphs_captured: usize,
}

impl Began {
    fn now(task: &dyn Task) -> Self {
        Began { at: Instant::now(), graphs_captured: task.core().step().graphs_captured().unwrap_or(0) }
    }
}

/// Callbacks of a run, which can also [stop](Progress::stop) it.
pub trait Watch: Send {
    /// The task is built and training is about to start.
    fn start(&mut self, _task: &mut dyn Task) {}
    /// Something that the user should know, such as that there is nothing to resume.
    fn note(&mut self, _what: &str) {}
    /// Progress of a pass (`train`, `val`, `test`, ...) of an epoch.
    fn progress(&mut self, _pass: &str, _epoch: usize, _p: Progress<'_>) {}
    /// An epoch has ended.
    fn epoch(&mut self, _record: &EpochRecord) {}
    /// The settling epoch has ended.
    fn settled(&mut self, _record: &EpochRecord) {}
    /// The run has ended.
    fn end(&mut self, _task: &dyn Task) {}
}
impl Watch for () {}

/// Where a run writes its files, and what it starts from.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder of the run; `None` writes nothing. It must be missing or empty, unless the run resumes.
    pub out: Option<PathBuf>,
    /// Continue the run in `out` after its last epoch. If there is none, the run starts, with a note.
    pub resume: bool,
    /// A safetensors file of initial weights; see docs/weights.md.
    pub weights: Option<PathBuf>,
    /// A run folder or checkpoint whose settled model this run starts from. The head is not taken over.
    pub from: Option<PathBuf>,
    /// The command line, for the summary.
    pub command: String,
}

impl RunOptions {
    /// Returns the manifest of the run that this one goes on with, if there is one that can be read; another
    /// is refused when its state is loaded. Collective.
    pub(in crate::task) fn resumed(&self, device: &Device) -> Result<Option<Manifest>> {
        let Some(out) = self.out.as_ref().filter(|_| self.resume) else { return Ok(None) };
        from_first(device, || Ok(Checkpoint::at(out.join("checkpoint")).manifest().ok()))
    }
    /// Returns what the run starts from, if not from random weights.
    fn start(&self) -> Option<StartRecord> {
        let [weights, from] = [&self.weights, &self.from].map(|p| Some(p.as_ref()?.display().to_string()));
        let given = StartRecord { weights, from };
        (given != StartRecord::default()).then_some(given)
    }
}

/// A run of any task.
pub(in crate::task) struct Run<'a> {
    pub config: &'a Config,
    pub data: DataRecord,
    pub device: &'a Device,
    pub options: &'a RunOptions,
    /// Write the extracts of the data before the test part, and of all data; `None` if no predictor can use
    /// the run.
    pub extractors: Option<[Extractor<'a>; 2]>,
}

/// What a run has produced so far.
struct RunState<'a> {
    /// Buffers that a checkpoint holds.
    buffers: Vec<BufferId>,
    /// Where checkpoints are written, if the run has a folder.
    checkpoint: Option<Checkpoint>,
    extractors: Option<[Extractor<'a>; 2]>,
    manifest: Manifest,
    records: Vec<EpochRecord>,
    /// Contents of `buffers` after the best epoch, if there is no checkpoint to hold them.
    best: Option<Vec<Vec<u8>>>,
    /// On the first rank: nobody else writes into the run folder.
    lock: Option<FolderLock>,
}

impl RunState<'_> {
    /// Saves the last epoch to the run folder if there is one; a best epoch with the extract of the data that
    /// belongs to its state.
    fn save(&mut self, task: &dyn Task, is_best: bool) -> Result<()> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        self.manifest.by_plan.save(checkpoint, task)?;
        let (extractors, manifest, mails) =
            (&mut self.extractors, &mut self.manifest, task.core().nodes.mail_events);
        checkpoint.save_by(task, &self.buffers, |checkpoint, whole| {
            if let (Some([extractor, _]), true) = (extractors, is_best) {
                manifest.extract = Some(extractor.write(checkpoint, whole.mail_events(mails)?)?);
            }
            checkpoint.save(whole.store, &whole.ids(), manifest, is_best)
        })
    }
    /// Saves node memory and mails, which have seen the whole stream, for predictors.
    fn save_latest(&mut self, task: &mut dyn Task) -> Result<()> {
        let (Some(checkpoint), Some([_, extractor])) = (&self.checkpoint, &mut self.extractors) else {
            return Ok(());
        };
        let NodeState { buffers, mail_events: mails, .. } = &task.core().nodes;
        let (state, mails) = (buffers.clone(), *mails);
        let manifest = &mut self.manifest;
        task.core_mut().store.fetch(&state)?;
        checkpoint.save_by(task, &state, |checkpoint, whole| {
            let extract = extractor.write(checkpoint, whole.mail_events(mails)?)?;
            checkpoint.save_latest(whole.store, &whole.ids(), extract, manifest)
        })
    }
    /// Restores the best epoch, from the run folder if there is one.
    fn restore_best(&mut self, task: &mut dyn Task) -> Result<()> {
        if let Some(checkpoint) = &self.checkpoint {
            return load(task, &self.buffers, |store, buffers| checkpoint.load(store, buffers, true));
        }
        for (&id, bytes) in self.buffers.iter().zip(self.best.take().unwrap_or_default()) {
            task.core_mut().store.raw_mut(id)?.copy_from_slice(&bytes);
        }
        Ok(())
    }
    /// Saves the settled model to the run folder if there is one.
    fn save_settled(&self, task: &mut dyn Task) -> Result<()> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        task.core_mut().store.fetch(&self.buffers)?;
        checkpoint.save_by(task, &self.buffers, |checkpoint, whole| {
            checkpoint.save_settled(whole.store, &whole.ids(), &self.manifest)
        })
    }
}

impl<'a> Run<'a> {
    /// Trains a task: validates every epoch, and tests the best one.
    ///
    /// # Errors
    /// The errors of the task, of the checkpoint and of the file system. What the run folder held before
    /// stays intact.
    pub fn train<T: DataTask>(
        mut self,
        task: &mut T,
        data: &T::Data,
        watch: &mut dyn Watch,
    ) -> Result<Summary> {
        let evaluates = self.config.evaluate;
        let in_folder = self.options.out.is_some();
        let (settles, keeps_best) = (evaluates || in_folder, evaluates && !in_folder);
        let uses = Uses { trains: true, evaluates, settles, keeps_best };
        fits(task, data, uses, self.config.check_memory)?;
        self.load_initial_weights(task, watch)?;
        let extractors = self.extractors.take();
        let mut state = self.open(task, watch, extractors)?;
        watch.start(task);
        task.prepare(self.config, data, watch)?;
        let before = state.records.len();
        self.train_epochs(task, watch, &mut state)?;
        // Before the model settles, so that the means are over whole epochs.
        let stages = StageRecord::list(task, state.records.len() - before);
        let steps = task.core().traced.then(|| task.core().timeline().middle(STEPS_KEPT));
        let (settled, scores) = self.settle_and_test(task, watch, &mut state)?;
        watch.end(task);
        let mut summary = self.summary(task)?;
        summary.stages = stages;
        summary.start.clone_from(&state.manifest.start);
        summary.stopped_early = state.manifest.epochs < self.config.epochs;
        summary.test = scores.asked(self.config.protocol);
        summary.test_by_memory = (self.config.evaluate && task.remembering().is_some()).then_some(scores);
        (summary.epochs, summary.settled) = (state.records, settled);
        summary.best_epoch = self.config.evaluate.then_some(state.manifest.best_epoch);
        if summary.test.is_some() {
            self.compare(task, data, &mut summary, watch)?;
        }
        self.write_summary(task, &summary, state.manifest.best_epoch, steps.as_ref())?;
        Ok(summary)
    }
    /// Adds the scores of baselines on the test part to a summary, and what memory they took.
    pub(super) fn compare<T: DataTask>(
        &self,
        task: &T,
        data: &T::Data,
        summary: &mut Summary,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let epoch = summary.best_epoch.unwrap_or(0);
        task.compare(data, summary, &mut |p| watch.progress("rules", epoch, p))?;
        summary.peak_memory_bytes.host = peak_memory_bytes();
        Ok(())
    }
    /// Loads the weights that the options name.
    fn load_initial_weights(&self, task: &mut dyn Task, watch: &mut dyn Watch) -> Result<()> {
        if let Some(path) = &self.options.weights {
            let parameters: Vec<(String, BufferId)> =
                task.core().parameters.iter().map(|(name, id)| (name.to_owned(), id)).collect();
            let ids: Vec<BufferId> = parameters.iter().map(|p| p.1).collect();
            load(task, &ids, |store, _| {
                let note = may_load(path, &self.data).map_err(|e| e.in_file(path))?;
                note.iter().for_each(|note| watch.note(note));
                import_weights(path, store, &parameters)
            })?;
        }
        if let Some(path) = &self.options.from {
            let (trained, model) = (Checkpoint::at(path), task.core().buffers.model.clone());
            load(task, &model, |store, model| {
                let note = may_start(&trained.manifest()?, self.config, &self.data);
                note.map_err(|e| e.in_file(path))?.iter().for_each(|note| watch.note(note));
                trained.load_settled(store, model)
            })?;
        }
        Ok(())
    }
    /// Opens the run folder, and restores the last epoch of a run that is resumed.
    fn open(
        &self,
        task: &mut dyn Task,
        watch: &mut dyn Watch,
        extractors: Option<[Extractor<'a>; 2]>,
    ) -> Result<RunState<'a>> {
        let (config, options) = (self.config, self.options);
        let buffers = task.core().checkpoint_buffers();
        let checkpoint = options.out.as_ref().map(|out| Checkpoint::at(out.join("checkpoint")));
        let mut manifest = Checkpoint::describe(config, &self.data);
        manifest.by_plan = PlanManifest::new(task);
        manifest.classes = task.class_table().cloned();
        manifest.start = options.start();
        let (records, best, lock) = (Vec::new(), None, None);
        let mut state = RunState { buffers, checkpoint, extractors, manifest, records, best, lock };
        let restored = options.resume && self.restore(task, watch, &mut state)?;
        let starts_trained = options.start().is_some();
        if config.classify.frozen && !restored && !starts_trained {
            let what = "classify.frozen keeps the model as it is, and this one has learned nothing";
            return Err(Error::usage(what).remedy("give --from with the folder of a run that trained it"));
        }
        if let Some(out) = &options.out {
            self.lock(watch, &mut state, true)?;
            from_first(self.device, || {
                open_run(out, config, options.resume)?;
                write_metrics(out, &state.records)
            })?;
        }
        // Saved before the first epoch, so that a run that is interrupted earlier can be resumed from the
        // same weights.
        if starts_trained && !restored {
            state.save(task, true)?;
        }
        Ok(state)
    }
    /// Locks the run folder, once; a missing one is made if `make`. Collective.
    fn lock(&self, watch: &mut dyn Watch, state: &mut RunState<'_>, make: bool) -> Result<()> {
        let (Some(out), lock) = (&self.options.out, &mut state.lock) else { return Ok(()) };
        from_first(self.device, || {
            if lock.is_none() && (make || out.is_dir()) {
                let taken = lock.insert(locked(out)?);
                taken.note().iter().for_each(|note| watch.note(note));
            }
            Ok(())
        })
    }
    /// Restores the last epoch of the run in the run folder. Returns false, with a note, if there is none.
    fn restore(&self, task: &mut dyn Task, watch: &mut dyn Watch, state: &mut RunState<'_>) -> Result<bool> {
        self.lock(watch, state, false)?;
        let (Some(checkpoint), Some(out)) = (&state.checkpoint, &self.options.out) else {
            return Err(Error::usage("--resume has no run to go on with").remedy("give its --out"));
        };
        let found = from_first(self.device, || {
            if !checkpoint.exists() && (is_free(out) || never_saved(out)) {
                return Ok(None);
            }
            let manifest = checkpoint.manifest()?;
            let records = read_metrics(&out.join("metrics.jsonl"), manifest.epochs)?;
            complete(&records, manifest.epochs).map_err(|e| e.in_file(out.join("metrics.jsonl")))?;
            Ok(Some((manifest, records)))
        })?;
        let Some((mut manifest, records)) = found else {
            watch.note(&format!("there is no epoch to resume in {}: the run starts", out.display()));
            return Ok(false);
        };
        manifest.doubt().iter().for_each(|doubt| watch.note(doubt));
        let by_plan = std::mem::take(&mut state.manifest.by_plan);
        state.manifest = Manifest { by_plan, ..resumed(manifest.clone(), self.config, &self.data)? };
        state.records = records;
        // An earlier version wrote no extract; a damaged one is written anew.
        if let Some([extractor, _]) = &mut state.extractors {
            let mails = task.core().nodes.mail_events;
            let read = || checkpoint.extract(&manifest, manifest.extract.as_ref());
            let missing = from_first(self.device, || Ok(read().is_err()))?;
            if missing {
                load(task, &state.buffers, |store, buffers| checkpoint.load(store, buffers, true))?;
                checkpoint.save_by(task, &state.buffers, |checkpoint, whole| {
                    manifest.extract = Some(extractor.write(checkpoint, whole.mail_events(mails)?)?);
                    checkpoint.write_manifest(&manifest)
                })?;
                state.manifest.extract.clone_from(&manifest.extract);
            }
        }
        load(task, &state.buffers, |store, buffers| checkpoint.load(store, buffers, false))?;
        let last = (manifest.by_plan, manifest.epochs);
        state.manifest.by_plan.resume(last, checkpoint, task)?.iter().for_each(|note| watch.note(note));
        Ok(true)
    }
    /// Trains, validates and saves epoch after epoch, until all are over or validation no longer improves.
    fn train_epochs(
        &self,
        task: &mut dyn Task,
        watch: &mut dyn Watch,
        state: &mut RunState<'_>,
    ) -> Result<()> {
        let config = self.config;
        while state.manifest.epochs < config.epochs {
            let epoch = state.manifest.epochs + task.core().nodes.epochs_of_pass();
            let without_gain = state.manifest.epochs - state.manifest.best_epoch;
            if config.patience > 0 && without_gain >= config.patience {
                break;
            }
            let record = self.epoch(task, watch, epoch)?;
            let score = record.val.and_then(|scores| scores.figure(config.task));
            state.records.push(record);
            let manifest = &mut state.manifest;
            manifest.epochs = epoch;
            let is_best = manifest.best_epoch == 0 || score > manifest.best_score || score.is_none();
            if is_best {
                (manifest.best_epoch, manifest.best_score) = (epoch, score);
            }
            self.save_epoch(task, state, is_best).map_err(|e| lost(e, &format!("saving epoch {epoch}")))?;
        }
        Ok(())
    }
    /// Saves the epoch that has just ended: to the run folder if there is one, else the best one in memory.
    fn save_epoch(&self, task: &mut dyn Task, state: &mut RunState<'_>, is_best: bool) -> Result<()> {
        if state.checkpoint.is_some() || is_best && self.config.evaluate {
            task.core_mut().store.fetch(&state.buffers)?;
        }
        match &self.options.out {
            Some(out) => {
                if self.device.is_first() {
                    write_metrics(out, &state.records)?;
                }
                state.save(task, is_best)?;
                if self.config.tensorboard && self.device.is_first() {
                    tensorboard::write(out, &state.records, None)?;
                }
            }
            // Without a test nobody uses it.
            None if is_best && self.config.evaluate => {
                let contents = state.buffers.iter().map(|&id| Ok(task.core().store.raw(id)?.to_vec()));
                state.best = Some(contents.collect::<Result<_>>()?);
            }
            _ => {}
        }
        Ok(())
    }
    /// Restores the best epoch, tests it, settles it, and tests it again with replayed memory.
    fn settle_and_test(
        &self,
        task: &mut dyn Task,
        watch: &mut dyn Watch,
        state: &mut RunState<'_>,
    ) -> Result<(Option<EpochRecord>, ScoresByMemory)> {
        let (mut settled, mut scores) = (None, ScoresByMemory::default());
        let (best_epoch, evaluate) = (state.manifest.best_epoch, self.config.evaluate);
        // Without a test or a folder nobody uses the model.
        if evaluate || state.checkpoint.is_some() {
            state.restore_best(task)?;
            if evaluate {
                scores.as_trained = Some(task.test(&mut |p| watch.progress("test", best_epoch, p))?);
            } else if state.extractors.is_some() {
                for part in [Part::Val, Part::Test] {
                    task.remembering().map_or(Ok(()), |memory| memory.remember(part, &mut |_| {}))?;
                }
            }
            state.save_latest(task)?;
            settled = self.settle(task, watch, best_epoch)?;
            if settled.is_some() {
                state.save_settled(task)?;
            }
        }
        if evaluate {
            scores.replayed = test_replayed(task, watch, best_epoch)?;
        }
        Ok((settled, scores))
    }
    /// Trains for an epoch, then validates. Returns the epoch's record.
    fn epoch(&self, task: &mut dyn Task, watch: &mut dyn Watch, epoch: usize) -> Result<EpochRecord> {
        let began = Began::now(task);
        let first = epoch - task.core().nodes.epochs_of_pass();
        let trained = task.train_epoch(first as u32, &mut |p| watch.progress("train", epoch, p))?;
        let record = self.record(task, watch, epoch, trained, began)?;
        watch.epoch(&record);
        Ok(record)
    }
    /// Settles the model of the best epoch, then validates; `None` if the task has nothing to settle.
    fn settle(&self, task: &mut dyn Task, watch: &mut dyn Watch, best: usize) -> Result<Option<EpochRecord>> {
        let began = Began::now(task);
        // The epoch after the best one: settling draws the same random numbers as that epoch.
        let settle = |memory: &mut dyn Remembers| {
            memory.settle(best as u32, &mut |p| watch.progress("settle", best, p))
        };
        let trained = task.remembering().map_or(Ok(None), settle)?;
        let record = trained.map(|trained| self.record(task, watch, best, trained, began)).transpose()?;
        record.iter().for_each(|record| watch.settled(record));
        Ok(record)
    }
    /// Validates, and returns the record of an epoch whose training pass has just ended.
    fn record(
        &self,
        task: &mut dyn Task,
        watch: &mut dyn Watch,
        epoch: usize,
        (train_loss, events): (f64, usize),
        began: Began,
    ) -> Result<EpochRecord> {
        let train_seconds = began.at.elapsed().as_secs_f64();
        let graphs_captured =
            task.core().step().graphs_captured().map(|all| all.saturating_sub(began.graphs_captured));
        let validating = Instant::now();
        let val = if self.config.evaluate {
            let validated = task.validate(&mut |p| watch.progress("val", epoch, p));
            Some(validated.map_err(|e| lost(e, &format!("validating epoch {epoch}")))?)
        } else {
            None
        };
        let events_per_second = events as f64 / train_seconds;
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Ok(EpochRecord {
            epoch,
            train_loss,
            train_seconds,
            events_per_second,
            wall_time,
            graphs_captured,
            val_seconds: val.is_some().then(|| validating.elapsed().as_secs_f64()),
            val,
        })
    }
    /// Returns the summary of a run, without its scores.
    ///
    /// # Errors
    /// `Comm`.
    pub fn summary(&self, task: &dyn Task) -> Result<Summary> {
        let (config, device) = (self.config, self.device);
        let of_events = !config.model.reads_snapshots();
        let plan_record = task.plan_record();
        Ok(Summary {
            schema: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("TGNN_COMMIT").map(Into::into),
            command: self.options.command.clone(),
            device: DeviceRecord {
                kind: device.kind().into(),
                name: device.name().into(),
                threads: device.threads(),
            },
            ranks: RanksRecord::gather(device, task.core().plan(), task.core().memory())?,
            data: DataRecord { classes: task.class_table().cloned(), ..self.data.clone() },
            model: config.model_name().into(),
            plan: task.core().plan.name.clone(),
            chosen: plan_record.chosen,
            staleness: plan_record.staleness,
            pipeline: plan_record.pipeline,
            task: config.task,
            seed: config.seed,
            start: None,
            protocol: config.protocol_name().into(),
            negatives: config.negatives,
            ties: config.tie_rule().into(),
            batch: config.batch,
            eval_batch: of_events.then_some(config.evaluation_batch()),
            history: of_events.then(|| config.history().name().into()),
            precision: config.precision,
            features_as: config.features_as,
            memory_as: config.memory_as,
            epochs: Vec::new(),
            best_epoch: None,
            settled: None,
            stopped_early: false,
            test: None,
            test_by_memory: None,
            rules: config.rules,
            past: of_events.then(|| config.past().name().into()),
            edgebank: None,
            baselines: Vec::new(),
            strictly_earlier: None,
            baselines_seconds: None,
            same_time: None,
            stages: Vec::new(),
            phases: PhaseRecord::list(device),
            peak_memory_bytes: PeakMemory {
                host: peak_memory_bytes(),
                device: device.gpu().map_or(0, Gpu::peak_bytes),
            },
            parameters: task.core().parameters.count(&task.core().store),
        })
    }
    /// Writes `summary.json` and what else a finished run leaves in its folder.
    fn write_summary(
        &self,
        task: &dyn Task,
        summary: &Summary,
        best_epoch: usize,
        steps: Option<&Timeline>,
    ) -> Result<()> {
        let Some(out) = self.options.out.as_ref().filter(|_| self.device.is_first()) else { return Ok(()) };
        write_whole(&out.join("summary.json"), &as_json("the summary", summary)?)?;
        if let Some(costs) = task.plan_record().costs {
            write_whole(&out.join("predictions.json"), &as_json("the predictions", &costs)?)?;
        }
        if let Some(steps) = steps {
            write_whole(&out.join(TIMELINE), steps.trace().as_bytes())?;
        }
        if self.config.tensorboard {
            tensorboard::write(out, &summary.epochs, summary.test.map(|test| (best_epoch, test)))?;
        }
        Ok(())
    }
}

/// Says what memory of the host the run of a task takes, and refuses the run if it does not fit and `checks`.
pub(super) fn fits<T: DataTask>(task: &mut T, data: &T::Data, uses: Uses, checks: bool) -> Result<()> {
    let memory = HostMemory::of(task, data, uses)?;
    task.core_mut().host_memory = Some(memory);
    if checks { memory.check() } else { Ok(()) }
}

/// Adds to an error that says that a rank was lost what the ranks were doing.
fn lost(e: Error, doing: &str) -> Error {
    match e.kind() {
        ErrorKind::Comm => {
            Error::new(ErrorKind::Comm, format!("the ranks lost one another {doing}")).caused_by(e)
        }
        _ => e,
    }
}

/// Replays the memory of a model, then tests it; `None` if it has none.
pub(super) fn test_replayed(
    task: &mut dyn Task,
    watch: &mut dyn Watch,
    epoch: usize,
) -> Result<Option<TestScores>> {
    let Some(memory) = task.remembering() else { return Ok(None) };
    memory.replay(&mut |p| watch.progress("replay", epoch, p))?;
    task.test(&mut |p| watch.progress("test", epoch, p)).map(Some)
}

/// Checks that the records of a run reach its last epoch.
fn complete(records: &[EpochRecord], epochs: usize) -> Result<()> {
    let reached = records.last().map_or(0, |record| record.epoch);
    if reached == epochs && records.is_sorted_by(|a, b| a.epoch < b.epoch) {
        return Ok(());
    }
    let what = format!("the records end with epoch {reached}, and the checkpoint is of epoch {epochs}");
    Err(Error::new(ErrorKind::Checkpoint, what).remedy(USE_A_COPY))
}
