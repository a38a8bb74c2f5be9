//! A model on a sequence of snapshots: the passes over snapshot groups that train and evaluate it.
use super::{
    group_plan::{GroupPlan, Loads, PassGroups, StepSource},
    objective::Objective,
    recorder::{Parts, Recorder},
    split::SnapshotSplit,
};
use crate::{
    model::{SnapshotModel, SnapshotTables, SwappedLayers, VertexInputs},
    plan::{Choice, First, FirstRule, GroupChoice, Plan},
    task::{
        Summary,
        config::{Config, TaskName},
        evaluation::{Scores, TestScores},
        training::{
            Buffers, DataRecord, DataTask, EventCount, LastEpoch, Manifest, MemoryPlan, NodeState,
            PlanRecord, RecordedTask, Report, Runs, StoredTables, Task, TaskCore, evaluation_clock, located,
            parameters_except, repeat_and_report,
        },
    },
};
use std::{ops::Range, sync::Arc, time::Instant};
use tgnn::{
    autograd::{Lanes, NodeInfo, Parameters, Program},
    error::Result,
    ops::{Backend, Tape, epilogue::Activation},
    runtime::*,
};
use tgnn_data::{Adjacency, ClassTable, Part, Snapshots};

/// Salt of the draws of an epoch's order.
const ORDER: u32 = 0x6f72;

/// A model on a sequence of snapshots, ready to train and to evaluate.
pub struct SnapshotTask {
    /// What every task has. The training step has one variant or several; if an update takes several groups,
    /// the update is the last variant.
    pub core: TaskCore,
    /// The tables of the snapshots.
    pub tables: SnapshotTables,
    /// The steps of each part.
    pub split: SnapshotSplit,
    /// The model, without its head.
    pub model: Box<dyn SnapshotModel>,
    objective: Objective,
    loads: Loads,
    /// Number of graph convolutions of a snapshot.
    layers: usize,
    recorder: Recorder,
    /// Number of groups per update.
    round: usize,
    /// The update, if it takes several groups.
    update: Option<Tape>,
    /// Assigns groups to lanes by predictions, if the plan asks for it.
    group_plan: Option<GroupPlan>,
    /// The targets of the last epoch, and its runs since its trace began.
    last: (Vec<u32>, Runs),
}

brief_debug!(SnapshotTask, t => { split: t.split, layers: t.layers });

/// The programs of the passes.
struct Programs {
    /// The training step; the update is its last variant if it takes several groups.
    step: Program,
    score: Program,
    update: Option<Tape>,
    group_plan: Option<GroupPlan>,
}

impl Programs {
    /// Records and plans the programs.
    fn record(
        config: &Config,
        plan: &Plan,
        device: &Device,
        store: &mut Store,
        recorder: &mut Recorder,
        parts: &Parts<'_>,
        parameters: &Parameters,
    ) -> Result<Self> {
        let (length, round) = (config.group.length, config.group.batch);
        let tape = recorder.record(store, parts, parameters, &SwappedLayers::default())?;
        let update = recorder.update(store, parameters)?;
        let balanced = plan.groups.filter(|g| g.first == First::Rule(FirstRule::Balanced) && length > 1);
        let group_plan = balanced.map(|groups| GroupPlan { exchange: groups.exchange, round, chosen: None });
        let step = match &group_plan {
            None => {
                let lanes = plan.lanes(length, round > 1);
                let update = update.as_ref().map(|tape| (tape, Lanes::One));
                let variants: Vec<(&Tape, Lanes)> = std::iter::once((&tape, lanes)).chain(update).collect();
                Program::with_variants(&variants, Precision::F32, device)?
            }
            Some(group_plan) => {
                let choice = GroupChoice { snapshots: length, ..GroupChoice::default() };
                let layers = config.snapshot_model()?.section().1.layers;
                let mut record =
                    |exchanged: &SwappedLayers| recorder.record(store, parts, parameters, exchanged);
                let mut source = StepSource { record: &mut record, update: update.as_ref(), layers };
                group_plan.step(&choice, device, &mut source)?
            }
        };
        // A pass without a backward pass is not split by snapshots.
        let lanes = if plan.groups.is_some() { Lanes::One } else { plan.lanes(length, round > 1) };
        let tape = recorder.score(store, parts)?;
        let score = Program::on_lanes(&tape, &[], Precision::F32, device, lanes)?;
        Ok(Programs { step, score, update, group_plan })
    }
}

impl SnapshotTask {
    /// Builds the model and records its programs.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself or the device; `Data` if the data lack what the task
    /// learns from; `OutOfMemory`.
    pub fn new(config: &Config, snapshots: &Snapshots, device: Device) -> Result<Self> {
        Self::with(config, snapshots, device, None)
    }
    /// Builds the model and records its programs; a run that goes on with a checkpoint keeps its classes.
    pub(super) fn with(
        config: &Config,
        snapshots: &Snapshots,
        device: Device,
        known: Option<&Manifest>,
    ) -> Result<Self> {
        config.validate()?;
        snapshots.validate(&snapshots.name)?;
        let plan = config.plan_on(&device)?;
        let device = device.multiplying_in(config.precision)?;
        let length = config.group.length;
        let split = SnapshotSplit::new(snapshots, config.data.train, config.data.val)?;
        let mut store = Store::new(Precision::F32);
        let round = config.group.batch;
        let updates = split.train.len().min(config.most_batches()).div_ceil(round);
        let optimizer = config.optimizer.optimizer(config.epochs.saturating_mul(updates));
        let mut parameters =
            Parameters::with_optimizer(&mut store, config.seed, config.learning_rate, optimizer)?;
        let adjacency = Adjacency::from_snapshots(snapshots, config.snapshots.directed)?;
        let width = config.snapshots.width;
        let mut tables = SnapshotTables::new(&mut store, &mut parameters, snapshots, &adjacency, width)?;
        let net = config.snapshot_model()?;
        if snapshots.features.is_some() && net.aggregates_once() {
            tables.aggregated = aggregate(&mut store, &tables, &device)?;
        }
        let model = net.build(&mut parameters, &mut store, &tables)?;
        let inputs = (snapshots, classes_of(known, snapshots));
        let objective = Objective::new(config, inputs, &split, net.width(), &mut parameters, &mut store)?;
        let mut recorder = Recorder::new(&mut store, length, split.train.len(), round > 1)?;
        let parts = Parts { tables: &tables, model: &*model, objective: &objective };
        let programs =
            Programs::record(config, &plan, &device, &mut store, &mut recorder, &parts, &parameters)?;
        let Programs { step, score, update, group_plan } = programs;
        let layers = net.section().1.layers;
        let given = snapshots.features.is_some();
        let memory = memory_plan(&store, &tables, given, &[&step, &score], &device)?;
        let edges_by_step = snapshots.offsets.windows(2).map(|w| w[1] - w[0]).collect();
        let losses = recorder.losses;
        let buffers = Buffers { state: Vec::new(), model: parameters_except(&parameters, Objective::HEADS) };
        let nodes = NodeState::default();
        let recorded = RecordedTask { step, score, losses, memory, nodes, buffers, has_features: given };
        let core = TaskCore::new(config, (device, plan), (store, parameters), recorded)?;
        let loads = Loads { edges_by_step, length };
        Ok(SnapshotTask {
            core,
            tables,
            split,
            model,
            objective,
            loads,
            layers,
            recorder,
            round,
            update,
            group_plan,
            last: Default::default(),
        })
    }
    /// Returns the steps of a part that are predicted, at most `max_batches`.
    fn targets(&self, part: Part) -> Range<usize> {
        let steps = if part == Part::Val { self.split.val.clone() } else { self.split.test.clone() };
        steps.start..steps.end.min(steps.start.saturating_add(self.core.max_batches))
    }
    /// Scores a part.
    fn evaluate(&mut self, part: Part, progress: Report<'_>) -> Result<()> {
        let _range = nvtx::range(part.name());
        let range = self.targets(part);
        let targets: Vec<u32> = range.clone().map(|s| s as u32).collect();
        self.objective.begin(&mut self.core.store, range)?;
        self.pass(evaluation_clock(part), &targets, false, progress)
    }
    /// Returns the targets of an epoch, in random order.
    fn shuffled(&self, epoch: u32) -> Vec<u32> {
        let mut targets: Vec<u32> = self.split.train.clone().map(|s| s as u32).collect();
        let key = philox::Key::new(self.core.seed, ORDER, [epoch, 0]);
        for i in (1..targets.len()).rev() {
            let drawn = u64::from(key.draw(i as u64)[0]);
            targets.swap(i, ((drawn * (i as u64 + 1)) >> 32) as usize);
        }
        targets.truncate(self.core.max_batches);
        targets
    }
    /// Returns the number of edges that the group of `target` reads.
    fn edges_read(&self, target: u32) -> usize {
        let target = target as usize;
        self.loads.edges_by_step[target.saturating_sub(self.loads.length)..target].iter().sum()
    }
    /// Runs a pass over the groups of `targets`. The first training pass also decides how groups are assigned
    /// to lanes, if the plan leaves this to predictions.
    fn pass(&mut self, epoch: u32, targets: &[u32], train: bool, progress: Report<'_>) -> Result<()> {
        self.tables.seek(&mut self.core.store, epoch, targets)?;
        // While ops are profiled, one op runs at a time and lanes do not matter.
        let chooses = train && !self.core.step.is_profiled();
        let timed = self.group_plan.as_ref().filter(|_| chooses).and_then(|g| g.to_be_timed(targets.len()));
        let groups = targets.len();
        let Some(timed) = timed else { return self.groups(epoch, targets, 0..groups, train, progress) };
        self.core.step.start_trace();
        self.groups(epoch, targets, 0..timed, train, progress)?;
        self.choose(targets)?;
        self.core.begin_trace()?;
        self.groups(epoch, targets, timed..groups, train, progress)
    }
    /// Runs the groups in `range` of a pass over `targets`. In training, a last round with fewer groups runs
    /// separately.
    fn groups(
        &mut self,
        epoch: u32,
        targets: &[u32],
        range: Range<usize>,
        train: bool,
        progress: Report<'_>,
    ) -> Result<()> {
        let mut edges_up_to = vec![0];
        for &target in targets {
            edges_up_to.push(edges_up_to[edges_up_to.len() - 1] + self.edges_read(target));
        }
        let count = EventCount {
            first: 0,
            up_to: &|groups| edges_up_to[groups.min(targets.len())],
            total: edges_up_to[targets.len()],
        };
        let range_targets = &targets[range.clone()];
        let variant_of_run = match &self.group_plan {
            Some(plan) if train => {
                plan.variant_of_run(PassGroups { loads: &self.loads, targets: range_targets })
            }
            _ => vec![0; range_targets.len()],
        };
        let round = if train { self.round } else { 1 };
        let core = &mut self.core;
        let program = if train { &mut core.step } else { &mut core.score };
        let losses = train.then_some(core.losses);
        let (whole_rounds, rest) = variant_of_run.split_at(range_targets.len() / round * round);
        let (mut all_runs, mut ran) = (Runs::default(), Ok(()));
        for (variants, before) in [(whole_rounds, range.start), (rest, range.start + whole_rounds.len())] {
            if variants.is_empty() || ran.is_err() {
                continue;
            }
            let runs = Runs::of_groups(variants, before, round, program.variants() - 1);
            if train {
                self.recorder.set_round(&mut core.store, variants.len().min(round))?;
            }
            let store = &mut core.store;
            ran = core
                .device
                .keep_awake(|| repeat_and_report(program, &runs, store, losses, &count, &mut *progress));
            all_runs.append(runs);
        }
        let results: &[BufferId] = if train { &[core.losses] } else { self.objective.results() };
        core.store.fetch(results)?;
        if train {
            self.last = (targets.to_vec(), all_runs);
        }
        ran.map_err(|(at, e)| {
            let first_bad = || {
                let losses = core.store.read::<f32>(core.losses).ok()?;
                losses.iter().take(targets.len()).position(|x| !x.is_finite()).filter(|_| train)
            };
            located(e, epoch, at.or_else(first_bad))
        })
    }
    /// Decides, by the traced times of the first groups, how the groups of `targets` are assigned to lanes.
    fn choose(&mut self, targets: &[u32]) -> Result<()> {
        let costs = self.last_epoch().costs();
        let Some(mut plan) = self.group_plan.take() else { return Ok(()) };
        let TaskCore { store, parameters, step, device, .. } = &mut self.core;
        let parts = Parts { tables: &self.tables, model: &*self.model, objective: &self.objective };
        let mut record =
            |exchanged: &SwappedLayers| self.recorder.record(store, &parts, parameters, exchanged);
        let source = StepSource { record: &mut record, update: self.update.as_ref(), layers: self.layers };
        let groups = PassGroups { loads: &self.loads, targets };
        let chosen = plan.choose(costs, step, groups, device, source);
        self.group_plan = Some(plan);
        chosen
    }
}

/// Returns the classes of a checkpoint, which earlier versions did not keep, or else those of the snapshots.
fn classes_of(known: Option<&Manifest>, snapshots: &Snapshots) -> ClassTable {
    match known {
        None => snapshots.class_table(),
        Some(Manifest { classes: Some(table), .. }) => table.clone(),
        Some(_) => snapshots.class_table_before_tables(),
    }
}

impl DataTask for SnapshotTask {
    type Data = Snapshots;

    fn build(config: &Config, data: &Snapshots, device: Device, manifest: &Manifest) -> Result<Self> {
        Self::with(config, data, device, Some(manifest))
    }
    fn same_classes(manifest: &Manifest, config: &Config, data: &Snapshots) -> Result<()> {
        match config.task {
            TaskName::Node => data.classes_by(&classes_of(Some(manifest), data)).map(drop),
            _ => Ok(()),
        }
    }
    fn describe(data: &Snapshots) -> DataRecord {
        DataRecord::of_snapshots(data)
    }
    fn evaluation_bytes(&self, data: &Snapshots) -> [usize; 2] {
        let parts = [Part::Val, Part::Test].map(|part| self.targets(part));
        self.objective.evaluation_bytes(data, parts, self.core.rules)
    }
    fn compare(&self, data: &Snapshots, summary: &mut Summary, _: Report<'_>) -> Result<()> {
        if !self.core.rules && self.objective.of_links() {
            return Ok(());
        }
        let (start, parts) = (Instant::now(), [Part::Val, Part::Test].map(|part| self.targets(part)));
        summary.baselines = self.objective.baselines(&self.core.store, data, parts)?;
        summary.baselines_seconds = Some(start.elapsed().as_secs_f64());
        Ok(())
    }
}

impl Task for SnapshotTask {
    fn core(&self) -> &TaskCore {
        &self.core
    }
    fn core_mut(&mut self) -> &mut TaskCore {
        &mut self.core
    }
    fn class_table(&self) -> Option<&ClassTable> {
        self.objective.class_table()
    }
    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks: Vec<_> =
            self.class_table().map(|table| ("classes", table.to_string())).into_iter().collect();
        if self.split.val.is_empty() || self.split.test.is_empty() {
            let what = "too few snapshots to validate and test on; make the snapshots shorter with --every";
            remarks.push(("note", what.into()));
        }
        remarks.extend(self.core.plan_remarks());
        remarks
    }
    fn last_epoch(&self) -> LastEpoch<'_> {
        let (targets, runs) = &self.last;
        let edges =
            |run: usize, node: &NodeInfo| self.loads.edges(targets[runs.group(run)], node.tag.section);
        let variant_of_run = runs.variant_of_run.clone();
        LastEpoch { step: &self.core.step, variant_of_run, edges: Box::new(edges) }
    }
    fn plan_record(&self) -> PlanRecord {
        let chosen = self.group_plan.as_ref().and_then(|plan| plan.chosen.as_ref());
        PlanRecord {
            chosen: chosen.map(|chosen| Choice::Groups(chosen.choice.clone())),
            costs: chosen.map(|chosen| chosen.costs.clone()),
            ..PlanRecord::default()
        }
    }
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)> {
        self.core.begin_trace()?;
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        let targets = self.shuffled(epoch);
        self.objective.begin(&mut self.core.store, self.split.train.clone())?;
        self.pass(epoch, &targets, true, progress)?;
        let edges = targets.iter().map(|&target| self.edges_read(target)).sum();
        Ok((self.core.mean_loss(targets.len())?, edges))
    }
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores> {
        self.evaluate(Part::Val, progress)?;
        Ok(self.objective.measure(&self.core.store, self.targets(Part::Val))?.transductive)
    }
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores> {
        self.evaluate(Part::Test, progress)?;
        self.objective.measure(&self.core.store, self.targets(Part::Test))
    }
}

/// Returns the memory that the programs need; `given` says that the inputs are features of the data.
fn memory_plan(
    store: &Store,
    tables: &SnapshotTables,
    given: bool,
    programs: &[&Program],
    device: &Device,
) -> Result<MemoryPlan> {
    let free = device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
    let (VertexInputs::Vertices(inputs) | VertexInputs::Steps(inputs)) = tables.inputs;
    let features: Vec<BufferId> = tables.aggregated.into_iter().chain(given.then_some(inputs)).collect();
    let memory = MemoryPlan::new(
        store,
        StoredTables { buffers: &features, ..Default::default() },
        StoredTables::default(),
        programs,
        free,
    );
    memory.check()?;
    Ok(memory)
}

/// Computes the aggregated inputs of every step as a table, `[steps * nodes, width]`. Returns `None` if they
/// do not fit into memory.
fn aggregate(store: &mut Store, tables: &SnapshotTables, device: &Device) -> Result<Option<BufferId>> {
    let (rows, width) = (tables.nodes * tables.steps, tables.width);
    if check_room("aggregated features", 4 * rows * width, "").is_err() {
        return Ok(None);
    }
    let mut aggregated = vec![0f32; rows * width];
    let step = store.zeros("step", Spec::ids(Rows::fixed(1), 1))?;
    let mut t = Tape::new(store);
    let (VertexInputs::Vertices(id) | VertexInputs::Steps(id)) = tables.inputs;
    let (x, steps, graph) = (t.stored(id)?, t.stored(step)?, tables.graph.vars(&mut t)?);
    let y = t.spmm(graph, x, (steps, 0), None, Activation::Identity)?;
    let mut program = Program::new(&t, &[y], Precision::F32, Backend::for_device(device))?;
    for (s, out) in aggregated.chunks_exact_mut((tables.nodes * width).max(1)).enumerate() {
        store.write(step, &[s as u32])?;
        device.install(|| program.run(store))?;
        out.copy_from_slice(program.read::<f32>(y, store)?);
    }
    Ok(Some(store.table(
        "aggregated features",
        Spec::real(Rows::fixed(rows), width),
        Arc::new(aggregated),
    )?))
}
