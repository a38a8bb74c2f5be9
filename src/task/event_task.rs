//! A model on an event stream, trained and evaluated: the passes of the one training loop.
use super::{
    Candidates, Config, EdgeBank, FeaturesOn, MemoryPlan, Protocol, Report, Task, TaskName, TestScores,
    batches, first_batch,
    metrics::Scores,
    passes::{Runs, repeat_and_report},
};
use crate::{
    autograd::{Average, Lanes, Parameters, Program},
    data::{Classes, Events, Part, Split, text::span},
    error::{Error, ErrorKind, Result},
    model::{EventTables, Forward, HeadKind, Negatives, Net, StaticMode},
    ops::Tape,
    plan::{CostModel, Plan, Timeline, predict},
    runtime::*,
};
use std::ops::Range;

/// Salts of the negatives' draws.
const TRAIN: u32 = 0x7261;
pub(super) const EVALUATE: u32 = 0x6576;

/// Clock epoch of an evaluation pass: its draws are the same in every epoch.
pub(super) fn pass_clock(part: Part) -> u32 {
    part as u32
}

/// What is predicted of the events.
enum Objective {
    /// Which of the candidates the event is of.
    Links(Candidates),
    /// Which classes the event, or its source, has.
    Classes(Classes),
}

/// Epochs over which weights are averaged, up to the one that is settled: one follows chance, three remember what has changed (docs/evaluation.md).
const AVERAGED: usize = 2;

/// A training step, a scored batch, and a batch that is only remembered.
type Programs = (Program, Program, Option<Program>);

/// A pass over a range of events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Train,
    /// Training in which what writes the memory is at rest: the second variant of the step.
    Settle,
    Score,
    Remember,
}

/// What settling a model takes, where it has a memory to settle to.
struct Settling {
    /// Of the parameters, over the last epochs.
    average: Average,
    /// `[batches, 1]`: the step size of each batch.
    rates: BufferId,
}

/// A model on a stream, ready to train and to evaluate: programs for both, over one store.
pub struct EventTask {
    /// Parameters, memory, tables.
    pub store: Store,
    /// Parameters and optimiser.
    pub parameters: Parameters,
    settling: Option<Settling>,
    /// The model, with its head.
    pub net: Net,
    /// The stream's tables.
    pub tables: EventTables,
    /// Parts of the stream.
    pub split: Split,
    device: Device,
    objective: Objective,
    seed: u64,
    batch: usize,
    chunks: usize,
    max_batches: usize,
    /// Columns of the scores.
    columns: usize,
    step: Program,
    score: Program,
    /// What a batch leaves in the memory, and no more; none where the model keeps nothing.
    remember: Option<Program>,
    losses: BufferId,
    scores: BufferId,
    memory: MemoryPlan,
    plan: Plan,
    /// Whether epochs note down when nodes run.
    traced: bool,
    /// Batches of the last epoch.
    batches: usize,
}

impl EventTask {
    /// Builds the model and records both programs.
    ///
    /// # Errors
    /// Usage when the configuration contradicts itself, or the device; data where it lacks what the task learns from.
    pub fn new(config: &Config, events: &Events, device: Device) -> Result<Self> {
        config.validate()?;
        let device = device.multiplying_in(config.precision)?;
        let split = config.split(events)?;
        let state = config.event_model()?.state_bytes(events.nodes, events.edge_width(), config.memory_as);
        check_room("node memory and mailbox", state, "take a narrower memory, or fewer nodes")?;
        let mut store = Store::new(Precision::F32);
        let mut tables = EventTables::keeping(&mut store, events, config.features_as)?;
        tables.memory_as = config.memory_as;
        tables.gaps.longest = split.longest_gap(events, config.event_model()?.gap_quantile());
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate)?;
        if config.static_mode() != StaticMode::Off {
            tables.static_memory = config.static_memory.add(&mut parameters, &mut store, events.nodes)?;
        }
        // A batch larger than the data is the whole data.
        let longest = split.val.len().max(split.test.len());
        let batch = config.batch.min(split.train.len().max(longest));
        let (objective, head, negatives, labels) = match config.task {
            TaskName::Link => {
                let mut table =
                    |name, pool: &[u32]| store.values(name, Spec::ids(Rows::fixed(pool.len()), 1), pool);
                let pool = config.protocol.pool(events);
                let id = table("negatives", &pool)?;
                let trained = config.protocol.training_pool(events, &split);
                let trained = if trained == pool { id } else { table("training negatives", &trained)? };
                let candidates = Candidates::new(config, events, &split, batch, &mut store, (pool, id))?;
                let negatives =
                    [Negatives::Drawn { pool: trained, per_event: 1, salt: TRAIN }, candidates.negatives()];
                (Objective::Links(candidates), HeadKind::Links, negatives, None)
            }
            TaskName::Node | TaskName::Edge => {
                let classes = events.class_labels()?.into_owned();
                let (width, count) = (config.classify.width, classes.count());
                let head = match config.task {
                    TaskName::Node => HeadKind::Nodes { width, classes: count },
                    _ => HeadKind::Edges { width, classes: count },
                };
                let spec = Spec::ids(Rows::fixed(events.len()), classes.most());
                let table = store.table("classes", spec, classes.table())?;
                (Objective::Classes(classes), head, [Negatives::None; 2], Some(table))
            }
            TaskName::Regression => {
                return Err(Error::usage(format!("{} predicts no values of nodes", config.model.name()))
                    .remedy("give task=link, node or edge, or a model of snapshots"));
            }
        };
        let net = Net::new(&mut parameters, &mut store, &tables, config.event_model()?, head, config.seed)?;
        if config.classify.frozen {
            parameters.learn_only(Net::HEADS);
        }
        let columns = match &objective {
            Objective::Links(candidates) => candidates.columns(&store),
            Objective::Classes(classes) => classes.count(),
        };
        check_room("scores", 4 * longest * columns, "take fewer events")?;
        let most_batches = 1 + split.train.len().div_ceil(batch);
        let losses = store.zeros("losses", Spec::real(Rows::fixed(most_batches), 1))?;
        let scores = store.zeros("scores", Spec::real(Rows::fixed(longest), columns))?;
        let settles = config.settle && !net.model.state().is_empty();
        let settling = match settles {
            true => Some(Settling {
                average: parameters.average(&mut store, AVERAGED)?,
                rates: store.zeros("settling rates", Spec::real(Rows::fixed(most_batches), 1))?,
            }),
            false => None,
        };

        let plan = config.plan_on(&device)?;
        let lanes = plan.lanes(0, false);
        let planned = |t: &Tape| Program::on_lanes(t, &[], Precision::F32, &device, lanes);
        let record = |store: &mut Store, tables: &EventTables| -> Result<Programs> {
            let remember = if net.model.state().is_empty() {
                None
            } else {
                let mut t = Tape::new();
                net.remember(&mut t, store, tables, batch)?;
                Some(planned(&t)?)
            };

            // A training step up to its loss; `train` switches the model's drop-out on.
            let loss = |t: &mut Tape, store: &Store, train| -> Result<(Forward, Var)> {
                let f = net.forward(t, store, tables, batch, negatives[0], train)?;
                let loss = match labels {
                    None => t.bce_loss(f.logits)?,
                    Some(labels) => {
                        let labels = t.stored(store, labels)?;
                        let labels = t.gather_rows(labels, f.batch.event)?;
                        t.label_loss(f.logits, labels, config.classify.positive_weight)?
                    }
                };
                let table = t.stored(store, losses)?;
                t.write_rows(table, f.batch.index, loss)?;
                Ok((f, loss))
            };
            let mut steps = vec![Tape::new()];
            let t = &mut steps[0];
            let (f, l) = loss(t, store, !config.classify.frozen)?;
            parameters.minimize(t, store, l)?;
            if let Some(settling) = &settling {
                settling.average.record(t, store)?;
            }
            net.write(t, store, tables, &f)?;
            if let (Some(settling), Some(remember)) = (&settling, &remember) {
                // What memory is written by is what a batch reads that is only remembered.
                let writers: Vec<BufferId> = remember.stored().collect();
                let mut t = Tape::new();
                let (f, l) = loss(&mut t, store, parameters.learns_beyond(Net::HEADS, &writers))?;
                let rates = t.stored(store, settling.rates)?;
                let rate = t.gather_rows(rates, f.batch.index)?;
                parameters.minimize_others(&mut t, store, l, rate, &writers)?;
                net.write(&mut t, store, tables, &f)?;
                steps.push(t);
            }
            let variants: Vec<(&Tape, Lanes)> = steps.iter().map(|t| (t, lanes)).collect();
            let step = Program::with_variants(&variants, Precision::F32, &device)?;

            let mut t = Tape::new();
            let f = net.forward(&mut t, store, tables, batch, negatives[1], false)?;
            let table = t.stored(store, scores)?;
            t.write_rows(table, f.batch.rank, f.logits)?;
            net.write(&mut t, store, tables, &f)?;
            Ok((step, planned(&t)?, remember))
        };
        let free = device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        if config.features_on == FeaturesOn::Host && free.is_some() {
            tables.keep_features_on_host(&mut store)?;
        }
        let mut programs = record(&mut store, &tables)?;
        let memory_of = |store: &Store, tables: &EventTables, (step, score, remember): &Programs| {
            MemoryPlan::of(
                store,
                (&tables.features().collect::<Vec<_>>(), tables.features_on_host()),
                &[step, score].into_iter().chain(remember).collect::<Vec<_>>(),
                free,
            )
        };
        let mut memory = memory_of(&store, &tables, &programs);
        if !memory.fits() && memory.features > 0 && config.features_on == FeaturesOn::Auto {
            tables.keep_features_on_host(&mut store)?;
            programs = record(&mut store, &tables)?;
            memory = memory_of(&store, &tables, &programs);
        }
        memory.check()?;
        let (step, score, remember) = programs;

        let max_batches = if config.max_batches == 0 { usize::MAX } else { config.max_batches };
        Ok(EventTask {
            store,
            parameters,
            settling,
            net,
            tables,
            split,
            device,
            objective,
            seed: config.seed,
            batch,
            chunks: config.chunks,
            max_batches,
            columns,
            step,
            score,
            remember,
            losses,
            scores,
            memory,
            plan,
            traced: false,
            batches: 0,
        })
    }
    /// Where it runs, and what products multiply in there.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// Scores of an event: of it and its candidates, or of the classes.
    pub fn columns(&self) -> usize {
        self.columns
    }
    /// Most events of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }
    /// Rows of the static memory, where they are not a parameter.
    fn static_rows(&self) -> Option<BufferId> {
        let rows = self.tables.static_memory?;
        (!self.parameters.iter().any(|p| p.1 == rows)).then_some(rows)
    }
    /// What `bank` scores on the test events, against the same candidates; none where the task is another.
    pub fn edgebank(&self, bank: EdgeBank, events: &Events) -> Option<TestScores> {
        let Objective::Links(candidates) = &self.objective else { return None };
        let range = self.split.test.clone();
        let (_, _, total) = self.extent(0, &range, false);
        let range = range.start..range.start + total;
        let table = candidates.edgebank(bank, events, Part::Test, range, self.columns);
        Some(self.test_scores(&table, total))
    }
    fn test_scores(&self, table: &[f32], events: usize) -> TestScores {
        let unseen = &self.split.unseen[self.split.test.clone()][..events];
        let of = |mask| self.measure(table, Part::Test, mask);
        TestScores { transductive: of(None), inductive: of(Some(unseen)) }
    }
    /// The scores of the first `events` of the part that was evaluated last: a row of [`columns`](Self::columns) each, the event's
    /// own first.
    pub fn scored(&self, events: usize) -> Result<&[f32]> {
        Ok(&self.store.read::<f32>(self.scores)?[..events * self.columns])
    }
    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Val => self.split.val.clone(),
            Part::Test => self.split.test.clone(),
        }
    }
    fn evaluate(&mut self, part: Part, progress: Report<'_>) -> Result<usize> {
        let _range = nvtx::range(part.name());
        if let Objective::Links(candidates) = &self.objective {
            candidates.bring(&mut self.store, part)?;
        }
        Ok(self.pass(Pass::Score, pass_clock(part), self.range(part), progress)?.1)
    }
    fn measure(&self, table: &[f32], part: Part, mask: Option<&[bool]>) -> Scores {
        match &self.objective {
            Objective::Links(candidates) => candidates.measure(table, self.columns, part, mask),
            Objective::Classes(classes) => {
                let first = self.range(part).start;
                let rows = table.chunks_exact(self.columns).enumerate();
                let picked = rows.filter(|(i, _)| mask.is_none_or(|m| m[*i]));
                Scores::of_classes(picked.map(|(i, row)| (row, classes.of(first + i))))
            }
        }
    }
    /// By how many events the first batch of a pass is shorter, its batches, and its events.
    fn extent(&self, epoch: u32, range: &Range<usize>, train: bool) -> (usize, usize, usize) {
        let chunks = if train { self.chunks } else { 1 };
        let short = self.batch - first_batch(self.seed, epoch, self.batch, chunks);
        let n = batches(range.len(), self.batch, self.batch - short).min(self.max_batches);
        (short, n, range.len().min((n * self.batch).saturating_sub(short)))
    }
    /// Mean of the first losses of a pass.
    fn mean_loss(&self, batches: usize) -> Result<f64> {
        let losses = &self.store.read::<f32>(self.losses)?[..batches];
        Ok(losses.iter().map(|&l| f64::from(l)).sum::<f64>() / batches.max(1) as f64)
    }
    fn pass(
        &mut self,
        pass: Pass,
        epoch: u32,
        range: Range<usize>,
        progress: Report<'_>,
    ) -> Result<(usize, usize)> {
        let train = matches!(pass, Pass::Train | Pass::Settle);
        let (short, batches, total) = self.extent(epoch, &range, pass == Pass::Train);
        self.tables.seek(&mut self.store, epoch, range, short)?;
        let (store, losses, batch) = (&mut self.store, self.losses, self.batch);
        let program = match pass {
            Pass::Train | Pass::Settle => &mut self.step,
            Pass::Score => &mut self.score,
            Pass::Remember => match &mut self.remember {
                Some(program) => program,
                None => return Ok((0, 0)),
            },
        };
        let events = |runs: usize| total.min(runs * batch - short);
        let losses_of = train.then_some(losses);
        let ran = self.device.keep_awake(|| {
            let variant = usize::from(pass == Pass::Settle);
            let what = (program, &Runs::variant_of_run(variant, batches));
            repeat_and_report(what, store, losses_of, (&events, total), progress)
        });
        let (figures, each) = if train { (losses, 1) } else { (self.scores, batch * self.columns) };
        self.store.fetch(&[figures])?;
        ran.map_err(|(at, e)| {
            // A device says so at the end of the pass: the batch is the first whose figures are no numbers.
            let bad = || {
                self.store.read::<f32>(figures).ok()?.iter().position(|x| !x.is_finite()).map(|x| x / each)
            };
            located(e, epoch, at.or_else(bad))
        })?;
        Ok((batches, total))
    }
}

impl Task for EventTask {
    fn store(&self) -> &Store {
        &self.store
    }
    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }
    fn store_and_parameters(&mut self) -> (&mut Store, &Parameters) {
        (&mut self.store, &self.parameters)
    }
    fn memory(&self) -> MemoryPlan {
        self.memory
    }
    fn plan(&self) -> &Plan {
        &self.plan
    }
    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = Vec::new();
        let gaps = self.tables.gaps;
        if gaps.longest < i64::MAX {
            let longest = span(f64::from(gaps.seconds(0, i64::MAX)));
            remarks.push((
                "time",
                format!("gaps of more than {longest} count as that, they are rare in training"),
            ));
        }
        if self.batch >= self.split.train.len() {
            remarks.push(("note", "one step an epoch: a batch takes in all training events".into()));
        }
        if self.split.val.is_empty() || self.split.test.is_empty() {
            let what =
                "too short a stream to validate and to test on; give more events, or --set data.train=0.5";
            remarks.push(("note", what.into()));
        }
        remarks
    }
    fn step(&self) -> &Program {
        &self.step
    }
    fn step_mut(&mut self) -> &mut Program {
        &mut self.step
    }
    fn trace(&mut self) {
        self.traced = true;
    }
    fn costs(&self) -> CostModel {
        CostModel::fit(&self.step.trace(), &|_| 0.0)
    }
    fn predicted(&self, costs: &CostModel) -> Result<Timeline> {
        predict(&self.step, &vec![0; self.batches], costs, &|_, _| 0.0)
    }
    fn state(&self) -> Vec<BufferId> {
        let averages = self.settling.iter().flat_map(|s| s.average.buffers());
        self.net.model.state().into_iter().chain(self.static_rows()).chain(averages).collect()
    }
    fn model_buffers(&self) -> Vec<BufferId> {
        let own = self.parameters.iter().filter(|p| !Net::HEADS.iter().any(|head| p.0.starts_with(head)));
        own.map(|p| p.1).chain(self.static_rows()).collect()
    }
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)> {
        if self.traced {
            self.step.start_trace();
        }
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        self.net.model.reset(&mut self.store)?;
        if let Some(settling) = &self.settling {
            settling.average.begin(&mut self.store)?;
        }
        let (batches, events) = self.pass(Pass::Train, epoch, self.split.train.clone(), progress)?;
        self.batches = batches;
        if let Some(settling) = &self.settling {
            settling.average.end(&mut self.store, batches)?;
        }
        Ok((self.mean_loss(batches)?, events))
    }
    fn settle(&mut self, epoch: u32, progress: Report<'_>) -> Result<Option<(f64, usize)>> {
        let Some(settling) = &self.settling else { return Ok(None) };
        let _range = nvtx::range("settle");
        if self.traced {
            self.step.start_trace();
        }
        settling.average.adopt(&mut self.store)?;
        // The step size falls to zero: the memory's readers come to rest, too. Batches end where those of a replay do.
        let range = self.split.train.clone();
        let batches = self.extent(epoch, &range, false).1;
        let rate = self.store.read::<f32>(self.parameters.learning_rate())?[0];
        let rates = self.store.get_mut::<f32>(settling.rates)?;
        let falling = rates.iter_mut().take(batches).enumerate();
        falling.for_each(|(at, r)| *r = rate * (1.0 - at as f32 / batches as f32));
        self.net.model.reset(&mut self.store)?;
        let (batches, events) = self.pass(Pass::Settle, epoch, range, progress)?;
        Ok(Some((self.mean_loss(batches)?, events)))
    }
    fn has_memory(&self) -> bool {
        self.remember.is_some()
    }
    fn replay(&mut self, progress: Report<'_>) -> Result<()> {
        let _range = nvtx::range("replay");
        self.net.model.reset(&mut self.store)?;
        for part in [self.split.train.clone(), self.split.val.clone()] {
            self.pass(Pass::Remember, 0, part, progress)?;
        }
        Ok(())
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

pub(super) fn located(e: Error, epoch: u32, batch: Option<usize>) -> Error {
    if e.kind() != ErrorKind::Diverged {
        return e;
    }
    let batch = batch.map_or(String::new(), |b| format!(", batch {}", b + 1));
    Error::new(ErrorKind::Diverged, format!("training diverged in epoch {}{batch}", epoch + 1)).caused_by(e)
}

/// The tie rule that a run's figures follow.
pub fn tie_rule(config: &Config) -> &'static str {
    match (config.task, config.protocol) {
        (TaskName::Link, Protocol::Disttgl | Protocol::Tgb) => "mean of optimistic and pessimistic rank",
        _ => "tied scores form one threshold",
    }
}
