//! A model on an event stream: the passes that train and evaluate it.
use super::{
    StreamTask, batches,
    by_plan::PlanState,
    candidates::Tested,
    first_batch,
    model::{Model, Results},
    objective::{Objective, Target},
    places::Places,
    recorder::{Programs, Recorder, Settling},
    setup::Setup,
};
use crate::{
    model::{EventTables, Net},
    plan::PassSchedule,
    task::{
        Summary,
        config::Config,
        evaluation::{Scores, TestScores},
        training::{
            EventCount, LastEpoch, Manifest, PassShare, PlanRecord, Progress, RecordedTask, Remembers,
            Report, RuleScores, Runs, SameTimeRecord, Task, TaskCore, Uses, Walks, add_up, begin_pass,
            evaluation_clock, located, of_whole_batches, repeat_and_report,
        },
    },
};
use std::{ops::Range, time::Instant};
use tgnn::{
    autograd::{MostRows, Program},
    error::{Error, ErrorKind, Result},
    ops::sample_neighbors::History,
    runtime::*,
};
use tgnn_data::{ClassTable, Events, Part, Split, text::span};

/// What a pass over a range of events does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Train,
    /// Trains with fixed weights for writing memory, by the settling step.
    Settle,
    Score,
    /// Updates the memory only.
    Remember,
}

impl Pass {
    fn trains(self) -> bool {
        matches!(self, Pass::Train | Pass::Settle)
    }
}

/// What a pass has run.
#[derive(Clone, Default)]
pub(super) struct Passed {
    /// The steps, numbered by their batches.
    pub steps: Range<usize>,
    /// Mean loss of the batches; 0 if the pass does not train.
    pub loss: f64,
    pub events: usize,
}

/// The extent of a pass.
struct Extent {
    /// Maximum number of events of a batch.
    batch: usize,
    /// Number of events that the first batch has fewer than the others.
    short: usize,
    /// Number of batches.
    batches: usize,
    /// Number of events.
    events: usize,
}

/// A model on an event stream, ready to train and to evaluate.
pub struct EventTask {
    /// What every task has.
    pub core: TaskCore,
    /// The model with its head.
    pub net: Net,
    /// The tables of the stream.
    pub tables: EventTables,
    /// The parts of the stream.
    pub split: Split,
    settling: Option<Settling>,
    objective: Objective,
    /// What the user should know of the objective.
    remarks: Vec<(&'static str, String)>,
    batch: usize,
    eval_batch: usize,
    chunks: usize,
    /// Number of scores of an event.
    columns: usize,
    /// Updates the memory by a batch and does nothing else; `None` if the model has no memory.
    remember: Option<Program>,
    /// `[events of a part, columns]` f32.
    scores: BufferId,
    /// The steps of the last epoch.
    steps: Range<usize>,
    /// What the plan adds to passes.
    pub(super) plan_state: PlanState,
}

brief_debug!(EventTask, t => { split: t.split, batch: t.batch });

impl EventTask {
    /// Builds the model and records its programs.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself or the device; `Data` if the data lack what the task
    /// learns from; `OutOfMemory`.
    pub fn new(config: &Config, events: &Events, device: Device) -> Result<Self> {
        Self::with(config, events, Setup::new(config, events, device, None)?)
    }
    /// Builds the model and records its programs, given what is decided before.
    pub(super) fn with(config: &Config, events: &Events, setup: Setup) -> Result<Self> {
        let batches_of_epoch = |batch, epoch| {
            let first = first_batch(config.seed, epoch as u32, batch, config.chunks);
            batches(setup.split.train.len(), batch, first)
        };
        let target = |store: &mut Store, batch| {
            let target = Target::new(config, events, (&setup.split, setup.classes.as_ref()), batch, store)?;
            let head = target.head;
            Ok((target, head))
        };
        let mut model = Model::new(config, events, &setup, batches_of_epoch, target)?;
        let mut plan_state = PlanState::new(config, events, &setup)?;
        let step_plan = plan_state.step_plan(&setup);
        let Setup { device, split, plan, over_ranks, .. } = setup;
        let Results { losses, scores, columns, settling } = model.results(config, &split)?;
        let (nodes, buffers) = (model.node_state(), model.buffers(settling.as_ref()));
        let Model { mut store, mut tables, parameters, net, target, batch, eval_batch, .. } = model;
        let recorder = Recorder {
            net: &net,
            parameters: &parameters,
            settling: settling.as_ref(),
            negatives: target.negatives,
            labels: target.labels,
            positive_weight: config.classify.positive_weight,
            frozen: config.classify.frozen,
            losses,
            scores,
            batch,
            eval_batch,
            device: &device,
            step_plan,
        };
        let places = Places::new(config, &device, over_ranks.may_partition, net.model.state());
        let (programs, memory) = recorder.programs(&mut store, &mut tables, &places)?;
        let Programs { step, variants, score, remember } = programs;
        plan_state.variants = variants;
        let has_features = tables.features.exist();
        let recorded = RecordedTask { step, score, losses, memory, nodes, buffers, has_features };
        let core = TaskCore::new(config, (device, plan), (store, parameters), recorded)?;
        let (objective, remarks, chunks) = (target.objective, target.remarks, config.chunks);
        Ok(EventTask {
            core,
            net,
            tables,
            split,
            settling,
            objective,
            remarks,
            batch,
            eval_batch,
            chunks,
            columns,
            remember,
            scores,
            steps: 0..0,
            plan_state,
        })
    }
    /// Returns the number of scores of an event: one per candidate, including the event itself, or one per
    /// class.
    pub fn columns(&self) -> usize {
        self.columns
    }
    /// Returns the maximum number of events of a batch of training.
    pub fn batch(&self) -> usize {
        self.batch
    }
    /// Returns what is predicted.
    pub(super) fn objective(&self) -> &Objective {
        &self.objective
    }
    /// Returns the number of steps of the last epoch.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }
    /// Returns the schedule of the last epoch.
    ///
    /// # Errors
    /// `Plan` if lanes would wait for each other.
    pub(super) fn pass_schedule(&self) -> Result<PassSchedule> {
        PassSchedule::new(&self.core.step, &self.plan_state.runs_of_epoch(self.steps.clone()))
    }
    /// Empties node memory and mails.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.net.model.reset(&mut self.core.store)?;
        self.tables.rows.ranks.as_ref().map_or(Ok(()), |rank_tables| rank_tables.reset(&mut self.core.store))
    }
    /// Returns the events of the test part that a test scores.
    pub(super) fn tested(&self) -> Range<usize> {
        let test = &self.split.test;
        test.start..test.start + self.extent(Pass::Score, 0, test).events
    }
    /// Computes the metrics of the first `events` events of the test part.
    fn test_scores(&self, table: &[f32], events: usize) -> TestScores {
        let unseen = &self.split.unseen[self.split.test.clone()][..events];
        let scores = |mask| self.measure(table, Part::Test, mask);
        TestScores { transductive: scores(None), inductive: scores(Some(unseen)) }
    }
    /// Returns the scores of the first `events` events of the part that was evaluated last, `[events,
    /// columns]` (see [`columns`](Self::columns)). In link prediction, column 0 is the event itself.
    ///
    /// # Errors
    /// `Device` if the scores cannot be read.
    pub fn scored(&self, events: usize) -> Result<&[f32]> {
        Ok(&self.core.store.read::<f32>(self.scores)?[..events * self.columns])
    }
    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Val => self.split.val.clone(),
            Part::Test => self.split.test.clone(),
        }
    }
    /// Scores a part. Returns the number of events scored.
    fn evaluate(&mut self, part: Part, progress: Report<'_>) -> Result<usize> {
        let _range = nvtx::range(part.name());
        if let Objective::Links(candidates) = &self.objective {
            candidates.bring(&mut self.core.store, part)?;
        }
        Ok(self.pass(Pass::Score, evaluation_clock(part), self.range(part), progress)?.events)
    }
    /// Computes the metrics of a part from a table of scores.
    fn measure(&self, table: &[f32], part: Part, mask: Option<&[bool]>) -> Scores {
        self.objective.measure(table, self.columns, part, self.range(part).start, mask)
    }
    /// Returns the extent of a pass over a range of events.
    fn extent(&self, pass: Pass, epoch: u32, range: &Range<usize>) -> Extent {
        let batch = if pass.trains() { self.batch } else { self.eval_batch };
        let chunks = if pass == Pass::Train { self.chunks } else { 1 };
        let short = batch - first_batch(self.core.seed, epoch, batch, chunks);
        let batches = batches(range.len(), batch, batch - short).min(self.core.max_batches);
        Extent { batch, short, batches, events: range.len().min((batches * batch).saturating_sub(short)) }
    }
    /// Runs the steps of a pass, numbered by their batches, from where the tables are. An error comes with
    /// the batch, if it is known.
    fn run(
        &mut self,
        pass: Pass,
        steps: Range<usize>,
        count: &EventCount<'_>,
        progress: Report<'_>,
    ) -> Result<(), (Option<usize>, Error)> {
        let (device, core) = (self.core.device.clone(), &mut self.core);
        let program = match (pass, &mut self.remember) {
            (Pass::Train | Pass::Settle, _) => {
                let (settles, state) = (pass == Pass::Settle, &mut self.plan_state);
                return device.keep_awake(|| state.train(core, settles, steps, count, progress));
            }
            (Pass::Score, _) => &mut core.score,
            (Pass::Remember, Some(program)) => program,
            (Pass::Remember, None) => return Ok(()),
        };
        let (runs, store) = (Runs::of_batches(0, steps.start, steps.len()), &mut core.store);
        device.keep_awake(|| repeat_and_report(program, &runs, store, None, count, progress))
    }
    /// Runs a pass over a range of events.
    pub(super) fn pass(
        &mut self,
        pass: Pass,
        epoch: u32,
        range: Range<usize>,
        progress: Report<'_>,
    ) -> Result<Passed> {
        if pass == Pass::Remember && self.remember.is_none() {
            return Ok(Passed::default());
        }
        let train = pass.trains();
        let Extent { batch, short, batches, events: total } = self.extent(pass, epoch, &range);
        let up_to = |batches: usize| total.min((batches * batch).saturating_sub(short));
        let core = &mut self.core;
        let share = if train { core.nodes.begin_pass(batches) } else { PassShare::whole(batches) };
        let PassShare { batches: own, steps, shares, epochs } = share;
        // Ranks derive the batches of the others from the range, so it must end where the pass does.
        self.tables.seek(&mut core.store, epoch, range.start..range.start + up_to(own.end), short)?;
        if train {
            self.tables.begin_at(&mut core.store, epoch, own.start)?;
        }
        let (results, per_batch, numbers) = match train {
            true => (core.losses, 1, core.nodes.losses(batches)),
            false => (self.scores, batch * self.columns, total * self.columns),
        };
        begin_pass(core, results, train)?;
        let device = core.device.clone();
        let progress: Report<'_> = &mut |p: Progress<'_>| progress(of_whole_batches(p, &device));
        let done = |batches: usize| total.min((up_to(batches) - up_to(own.start)) * shares);
        let count = EventCount { first: own.start, up_to: &done, total };
        let ran = self.run(pass, steps.clone(), &count, progress);
        let store = &mut self.core.store;
        store.fetch(&[results])?;
        ran.map_err(|(at, e)| match (train, e.kind()) {
            (false, ErrorKind::Comm) => e,
            _ => located(e, epoch, at.or_else(|| first_bad(store, results, per_batch))),
        })?;
        if train {
            self.plan_state.end_pass(&*self.net.model, &mut self.core, pass == Pass::Settle)?;
        }
        let core = &mut self.core;
        if pass != Pass::Remember {
            add_up(core.device.ranks(), &mut core.store, results, numbers)?;
        }
        let loss = match train {
            true => core.sum_of_losses(numbers)? * shares as f64 / batches.max(1) as f64,
            false => 0.0,
        };
        Ok(Passed { steps, loss, events: total * epochs })
    }
}

/// Bytes that metrics take of each score: the score again, and a number by which it is sorted.
const MEASURED: usize = size_of::<f32>() + size_of::<u64>();

/// Number of batches by which the memory of a program is estimated, spread over its events.
const LOOKED_AT: usize = 16;

/// Returns the bytes that the values of variants of a program fill in batches of `events`, by some of them:
/// an estimate.
fn filled(
    program: &mut Program,
    variants: &[usize],
    store: &mut Store,
    tables: &EventTables,
    events: &Range<usize>,
    batch: usize,
) -> Result<usize> {
    let mut most = MostRows::default();
    let last = events.len().saturating_sub(batch);
    for at in 0..LOOKED_AT.min(1 + last) {
        let from = events.start + last * at / (LOOKED_AT - 1);
        tables.seek(store, 0, from..events.end, 0)?;
        // The pass itself meets the error, and says in which batch.
        if program.count_rows(store, &mut most).is_err() {
            return Ok(program.arena_bytes());
        }
    }
    Ok(program.filled_bytes(variants, &most))
}

/// Returns the first batch whose results are not finite: a device reports an error only after the pass.
fn first_bad(store: &Store, results: BufferId, per_batch: usize) -> Option<usize> {
    let bad = store.read::<f32>(results).ok()?.iter().position(|x| !x.is_finite())?;
    Some(bad / per_batch)
}

impl StreamTask for EventTask {
    fn build(config: &Config, events: &Events, device: Device, manifest: &Manifest) -> Result<Self> {
        Self::with(config, events, Setup::new(config, events, device, Some(manifest))?)
    }
    fn embedder(&mut self) -> (&mut TaskCore, &Net, &mut EventTables) {
        (&mut self.core, &self.net, &mut self.tables)
    }
    fn test_part(&self) -> Range<usize> {
        self.tested()
    }
    fn step_bytes(&mut self, uses: Uses) -> Result<usize> {
        // The rows of a rank depend on the others.
        if self.core.device.ranks().is_some() {
            return Ok(self.core.step_bytes(uses));
        }
        let _range = nvtx::range("memory");
        let Split { train, val, test, .. } = self.split.clone();
        let (part, scored) = if val.len() < test.len() { (Part::Test, test) } else { (Part::Val, val) };
        let (TaskCore { store, step, score, .. }, tables) = (&mut self.core, &self.tables);
        let mut bytes = 0;
        if uses.trains {
            let variants = self.plan_state.variants.used(step, uses.settles);
            bytes += filled(step, &variants, store, tables, &train, self.batch)?;
        }
        if uses.evaluates {
            if let Objective::Links(candidates) = &self.objective {
                candidates.bring(store, part)?;
            }
            bytes += filled(score, &[0], store, tables, &scored, self.eval_batch)?;
        }
        if let (Some(remember), true) = (&mut self.remember, uses.settles) {
            bytes += filled(remember, &[0], store, tables, &train, self.eval_batch)?;
        }
        Ok(bytes)
    }
    fn evaluation_bytes(&self, events: &Events) -> [usize; 2] {
        let val = self.extent(Pass::Score, 0, &self.split.val).events;
        let parts = [val, self.tested().len()];
        let [val, test] = parts.map(|events| MEASURED * events * self.columns);
        let rules = match &self.objective {
            Objective::Links(candidates) if self.core.rules => {
                // Both pasts at a time.
                let at_once = if self.core.device.threads() > 1 { 2 } else { 1 };
                at_once * candidates.rules_bytes(events, parts, self.columns)
            }
            _ => 0,
        };
        [val, test.max(rules)]
    }
    fn compare(&self, events: &Events, summary: &mut Summary, progress: Report<'_>) -> Result<()> {
        let test = self.tested();
        summary.same_time = Some(SameTimeRecord::count(&events.time, test.clone(), self.eval_batch));
        let Objective::Links(candidates) = &self.objective else { return Ok(()) };
        if !self.core.rules {
            return Ok(());
        }
        let (start, split) = (Instant::now(), &self.split);
        let val = split.val.start..split.val.start + self.extent(Pass::Score, 0, &split.val).events;
        let mask = &split.unseen[test.clone()];
        let walks = Walks::new(2 * test.end, progress);
        let tested = Tested { events, split, val, test, columns: self.columns, mask };
        let rules = |history| candidates.rules(history, &tested, &|events| walks.on(events));
        let [batch, time] = [History::Batch, History::Time];
        let (batch, time) = match self.core.device.threads() {
            1 => (rules(batch), rules(time)),
            _ => rayon::join(|| rules(batch), || rules(time)),
        };
        let RuleScores { edgebank, baselines } = batch?;
        (summary.edgebank, summary.baselines) = (Some(edgebank), baselines);
        summary.strictly_earlier = Some(time?);
        summary.baselines_seconds = Some(start.elapsed().as_secs_f64());
        Ok(())
    }
}

impl Task for EventTask {
    fn core(&self) -> &TaskCore {
        &self.core
    }
    fn core_mut(&mut self) -> &mut TaskCore {
        &mut self.core
    }
    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = self.remarks.clone();
        let gaps = self.tables.gaps;
        if (1..i64::MAX).contains(&gaps.longest) {
            let longest = span(f64::from(gaps.seconds(0, i64::MAX)));
            remarks.push((
                "time",
                format!("gaps longer than {longest} count as {longest}: they are rare in training"),
            ));
        }
        if self.batch >= self.split.train.len() {
            remarks.push(("note", "one step an epoch: a batch holds all training events".into()));
        }
        if self.split.val.is_empty() || self.split.test.is_empty() {
            let what = match self.split.test.end {
                ..20 => {
                    "too short a stream to validate and test on; give more events, or --set data.train=0.5"
                }
                _ => "too few different times to validate and test on; is another column the time?",
            };
            remarks.push(("note", what.into()));
        }
        remarks.into_iter().chain(self.core.plan_remarks()).collect()
    }
    fn class_table(&self) -> Option<&ClassTable> {
        self.objective.class_table()
    }
    fn last_epoch(&self) -> LastEpoch<'_> {
        let (step, variant_of_run) = (&self.core.step, self.plan_state.runs_of_epoch(self.steps.clone()));
        LastEpoch { step, variant_of_run, edges: Box::new(|_, _| 0.0) }
    }
    fn plan_record(&self) -> PlanRecord {
        self.plan_state.record(&self.core)
    }
    fn remembering(&mut self) -> Option<&mut dyn Remembers> {
        if self.remember.is_some() { Some(self) } else { None }
    }
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)> {
        self.core.begin_trace()?;
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        self.reset()?;
        self.plan_state.begin_pass(&mut self.core, false)?;
        if let Some(settling) = &self.settling {
            settling.average.begin(&mut self.core.store)?;
        }
        let Passed { steps, loss, events } =
            self.pass(Pass::Train, epoch, self.split.train.clone(), progress)?;
        if let Some(settling) = &self.settling {
            settling.average.end(&mut self.core.store, steps.len())?;
        }
        self.steps = steps;
        Ok((loss, events))
    }
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores> {
        let events = self.evaluate(Part::Val, progress)?;
        Ok(self.measure(self.scored(events)?, Part::Val, None))
    }
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores> {
        let events = self.evaluate(Part::Test, progress)?;
        Ok(self.test_scores(self.scored(events)?, events))
    }
}

impl Remembers for EventTask {
    fn settle(&mut self, epoch: u32, progress: Report<'_>) -> Result<Option<(f64, usize)>> {
        let Some(settling) = &self.settling else { return Ok(None) };
        let _range = nvtx::range("settle");
        self.core.begin_trace()?;
        settling.average.adopt(&mut self.core.store)?;
        // The step size decreases to zero, so that the weights that read memory settle, too. There are no
        // random chunks, as in a replay.
        let range = self.split.train.clone();
        let batches = self.extent(Pass::Settle, epoch, &range).batches;
        let PassShare { steps, .. } = self.core.nodes.begin_pass(batches);
        let rate = self.core.store.read::<f32>(self.core.parameters.learning_rate())?[0];
        let rates = &mut self.core.store.get_mut::<f32>(settling.rates)?[steps];
        let n = rates.len() as f32;
        for (at, step_size) in rates.iter_mut().enumerate() {
            *step_size = rate * (1.0 - at as f32 / n);
        }
        self.reset()?;
        self.plan_state.begin_pass(&mut self.core, true)?;
        let Passed { loss, events, .. } = self.pass(Pass::Settle, epoch, range, progress)?;
        Ok(Some((loss, events)))
    }
    fn replay(&mut self, progress: Report<'_>) -> Result<()> {
        let _range = nvtx::range("replay");
        self.reset()?;
        for part in [self.split.train.clone(), self.split.val.clone()] {
            self.pass(Pass::Remember, 0, part, progress)?;
        }
        Ok(())
    }
    fn remember(&mut self, part: Part, progress: Report<'_>) -> Result<()> {
        self.pass(Pass::Remember, evaluation_clock(part), self.range(part), progress).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::ModelName, task::training::DataTask};
    use tgnn_data::{SynthOptions, synth};

    #[test]
    fn what_values_fill_is_told_for_every_model_without_a_change_of_its_state() {
        let events = synth(&SynthOptions { events: 600, ..SynthOptions::default() }).unwrap();
        for &model in ModelName::ALL.iter().filter(|model| !model.reads_snapshots()) {
            let config = Config { model, batch: 100, ..Config::default() };
            let task = || EventTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap();
            let (mut plain, mut told) = (task(), task());
            let uses = Uses { trains: true, evaluates: true, settles: true, keeps_best: true };
            let (filled, all) = (DataTask::step_bytes(&mut told, uses).unwrap(), told.core.step_bytes(uses));
            assert!(filled <= all && filled >= all / 8, "{}: {filled} of {all} bytes", model.name());
            let train = |task: &mut EventTask| task.train_epoch(0, &mut |_| {}).unwrap();
            assert_eq!(train(&mut plain), train(&mut told), "{}", model.name());
            let state = |task: &EventTask| -> Vec<Vec<u8>> {
                let buffers = task.core.checkpoint_buffers().into_iter();
                buffers.map(|id| task.core.store.raw(id).unwrap().to_vec()).collect()
            };
            assert!(state(&plain) == state(&told), "{}", model.name());
        }
    }
}
