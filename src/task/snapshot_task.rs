//! A model on snapshots, trained and evaluated: the passes of the one training loop over snapshot groups.
use super::{
    Config, MemoryPlan, Report, Scores, Task, TestScores,
    group_plan::{Choice, GroupPlan, Loads, Recorded},
    passes::{Runs, repeat_and_report},
    snapshot_objective::Objective,
    snapshot_split::SnapshotSplit,
};
use crate::{
    autograd::{Lanes, NodeInfo, Parameters, Program, Span, Sums},
    data::{Adjacency, Part, Snapshots},
    error::Result,
    model::{Exchanged, SnapshotModel, SnapshotTables, VertexInputs},
    ops::{Backend, Tape, epilogue::Activation},
    plan::{CostModel, First, FirstRule, Plan, Timeline, predict},
    runtime::*,
};
use std::{ops::Range, sync::Arc};

/// Sets the draws of an epoch's order apart from others.
const ORDER: u32 = 0x6f72;

/// A model of snapshots, ready to train and to evaluate: programs for both, over one store.
pub struct SnapshotTask {
    /// Parameters and tables.
    pub store: Store,
    /// Parameters and optimiser.
    pub parameters: Parameters,
    /// The snapshots' tables.
    pub tables: SnapshotTables,
    /// Which steps are predicted in which part.
    pub split: SnapshotSplit,
    /// The model, without the head.
    pub model: Box<dyn SnapshotModel>,
    objective: Objective,
    device: Device,
    seed: u64,
    max_groups: usize,
    loads: Loads,
    /// Graph convolutions of a snapshot.
    layers: usize,
    /// The step of a group in one variant or several, and, where several groups make an update, that as the last.
    step: Program,
    recorder: Recorder,
    /// Groups of an update.
    round: usize,
    /// Where there are several.
    update: Option<Tape>,
    /// Where predictions share out the groups.
    group_plan: Option<GroupPlan>,
    score: Program,
    memory: MemoryPlan,
    plan: Plan,
    /// Whether epochs note down when nodes run.
    traced: bool,
    /// Groups of the last epoch, and its runs, since its trace began.
    last: (Vec<u32>, Runs),
}

/// What the training step is recorded from, besides the model.
struct Recorder {
    length: usize,
    losses: BufferId,
    /// Where several groups make an update: what each counts, and the sums of their gradients.
    sums: Option<(BufferId, Sums)>,
}

impl Recorder {
    fn record(
        &mut self,
        store: &mut Store,
        (tables, model, objective): (&SnapshotTables, &dyn SnapshotModel, &Objective),
        parameters: &Parameters,
        exchanged: &Exchanged,
    ) -> Result<Tape> {
        let mut t = Tape::new();
        let group = tables.next_group(&mut t, store, self.length)?;
        let z = model.embed(&mut t, store, tables, &group, exchanged)?;
        if let Some(loss) = objective.record(&mut t, store, tables, &group, z, true)? {
            let table = t.stored(store, self.losses)?;
            t.write_rows(table, group.index, loss)?;
            match &mut self.sums {
                None => drop(parameters.minimize(&mut t, store, loss)?),
                Some((share, sums)) => parameters.accumulate(&mut t, store, loss, *share, sums)?,
            }
        }
        Ok(t)
    }
}

impl SnapshotTask {
    /// Builds the model and records both programs.
    ///
    /// # Errors
    /// Usage when the configuration contradicts itself, or the device; data where it lacks what the task learns from.
    pub fn new(config: &Config, snapshots: &Snapshots, device: Device) -> Result<Self> {
        config.validate()?;
        snapshots.validate(&snapshots.name)?;
        let device = device.multiplying_in(config.precision)?;
        let (c, length) = (&config.snapshots, config.group.length);
        let split = SnapshotSplit::of(snapshots, config.data.train, config.data.val)?;
        let mut store = Store::new(Precision::F32);
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate)?;
        let adjacency = Adjacency::of(snapshots, c.directed)?;
        let mut tables = SnapshotTables::new(&mut store, &mut parameters, snapshots, &adjacency, c.width)?;
        let net = config.snapshot_model()?;
        let given = snapshots.features.is_some();
        if given && net.aggregates_once() {
            tables.aggregated = aggregate(&mut store, &tables, &device)?;
        }
        let model = net.build(&mut parameters, &mut store, &tables)?;
        let objective = Objective::new(config, snapshots, &split, net.width(), &mut parameters, &mut store)?;
        let losses = store.zeros("losses", Spec::real(Rows::fixed(split.train.len().max(1)), 1))?;

        let plan = config.plan_on(&device)?;
        let round = config.group.batch;
        let lanes = plan.lanes(length, round > 1);
        let share = (round > 1).then(|| store.zeros("share", Spec::real(Rows::fixed(1), 1))).transpose()?;
        let sums = share.map(|share| (share, Sums::default()));
        let mut recorder = Recorder { length, losses, sums };
        let parts = (&tables, &*model, &objective);
        let t = recorder.record(&mut store, parts, &parameters, &Exchanged::default())?;
        let update = match &recorder.sums {
            None => None,
            Some((_, sums)) => {
                let mut t = Tape::new();
                sums.minimize(&parameters, &mut t, &store)?;
                Some(t)
            }
        };
        let balanced = plan.groups.filter(|g| g.first == First::Rule(FirstRule::Balanced) && length > 1);
        let group_plan = balanced.map(|groups| GroupPlan { exchange: groups.exchange, round, chosen: None });
        let step = match &group_plan {
            None => {
                let variants = std::iter::once((&t, lanes)).chain(update.as_ref().map(|t| (t, Lanes::One)));
                Program::with_variants(&variants.collect::<Vec<_>>(), Precision::F32, &device)?
            }
            Some(group_plan) => {
                let (choice, layers) =
                    (Choice { snapshots: length, ..Choice::default() }, net.section().1.layers);
                let mut step =
                    |exchanged: &Exchanged| recorder.record(&mut store, parts, &parameters, exchanged);
                group_plan.step(
                    &choice,
                    &device,
                    &mut Recorded { step: &mut step, update: update.as_ref(), layers },
                )?
            }
        };

        let mut t = Tape::new();
        let group = tables.next_group(&mut t, &store, length)?;
        let z = model.embed(&mut t, &store, &tables, &group, &Exchanged::default())?;
        objective.record(&mut t, &store, &tables, &group, z, false)?;
        // What has no backward pass is not shared out by snapshots.
        let lanes = if plan.groups.is_some() { Lanes::One } else { lanes };
        let score = Program::on_lanes(&t, &[], Precision::F32, &device, lanes)?;

        let free = device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        let (VertexInputs::Vertices(inputs) | VertexInputs::Steps(inputs)) = tables.inputs;
        let features: Vec<BufferId> = tables.aggregated.into_iter().chain(given.then_some(inputs)).collect();
        let memory = MemoryPlan::of(&store, (&features, false), &[&step, &score], free);
        memory.check()?;
        let edges = snapshots.offsets.windows(2).map(|w| w[1] - w[0]).collect();
        let max_groups = if config.max_batches == 0 { usize::MAX } else { config.max_batches };
        Ok(SnapshotTask {
            store,
            parameters,
            tables,
            split,
            model,
            objective,
            device,
            seed: config.seed,
            max_groups,
            loads: Loads { edges_by_step: edges, length },
            layers: net.section().1.layers,
            step,
            recorder,
            round,
            update,
            group_plan,
            score,
            memory,
            plan,
            traced: false,
            last: Default::default(),
        })
    }
    /// What baselines score on the test part, by their names; against the same candidates.
    pub fn baselines(&self, snapshots: &Snapshots) -> Result<Vec<(&'static str, TestScores)>> {
        self.objective.baselines(&self.store, snapshots, self.targets(Part::Test))
    }
    fn targets(&self, part: Part) -> Range<usize> {
        let all = if part == Part::Val { self.split.val.clone() } else { self.split.test.clone() };
        all.start..all.end.min(all.start.saturating_add(self.max_groups))
    }
    fn evaluate(&mut self, part: Part, progress: Report<'_>) -> Result<()> {
        let _range = nvtx::range(part.name());
        let range = self.targets(part);
        let targets: Vec<u32> = range.clone().map(|s| s as u32).collect();
        self.objective.begin(&mut self.store, range)?;
        self.pass(super::event_task::pass_clock(part), &targets, false, progress)
    }
    /// The targets of an epoch, in an order drawn for it.
    fn shuffled(&self, epoch: u32) -> Vec<u32> {
        let mut targets: Vec<u32> = self.split.train.clone().map(|s| s as u32).collect();
        let key = philox::Key::new(self.seed, ORDER, [epoch, 0]);
        for i in (1..targets.len()).rev() {
            let drawn = u64::from(key.draw(i as u64)[0]);
            targets.swap(i, ((drawn * (i as u64 + 1)) >> 32) as usize);
        }
        targets.truncate(self.max_groups);
        targets
    }
    /// Edges that the group of a target reads.
    fn edges_read(&self, target: u32) -> usize {
        let target = target as usize;
        self.loads.edges_by_step[target.saturating_sub(self.loads.length)..target].iter().sum()
    }
    fn pass(&mut self, epoch: u32, targets: &[u32], train: bool, progress: Report<'_>) -> Result<()> {
        self.tables.seek(&mut self.store, epoch, targets)?;
        // Where ops are timed one by one, lanes do not matter.
        let chooses = train && !self.step.is_profiled();
        let first = self.group_plan.as_ref().filter(|_| chooses).and_then(|g| g.to_be_timed(targets.len()));
        let all = targets.len();
        let Some(first) = first else { return self.groups(epoch, (targets, 0..all), train, progress) };
        self.step.start_trace();
        self.groups(epoch, (targets, 0..first), train, progress)?;
        self.choose(targets)?;
        if self.traced {
            self.step.start_trace();
        }
        self.groups(epoch, (targets, first..all), train, progress)
    }
    /// The groups of a pass from `range.start` to `range.end`; when it trains, a last round of fewer groups by itself.
    fn groups(
        &mut self,
        epoch: u32,
        (targets, range): (&[u32], Range<usize>),
        train: bool,
        progress: Report<'_>,
    ) -> Result<()> {
        let mut read = vec![0];
        for &target in targets {
            read.push(read[read.len() - 1] + self.edges_read(target));
        }
        let total = read[targets.len()];
        let own = &targets[range.clone()];
        let variant_of_run = match &self.group_plan {
            Some(plan) if train => plan.variant_of_run(&self.loads, own),
            _ => vec![0; own.len()],
        };
        let round = if train { self.round } else { 1 };
        let (store, losses) = (&mut self.store, self.recorder.losses);
        let program = if train { &mut self.step } else { &mut self.score };
        let events = |groups: usize| read[groups.min(targets.len())];
        let losses_of = train.then_some(losses);
        let (whole, rest) = variant_of_run.split_at(own.len() / round * round);
        let (mut all, mut ran) = (Runs::default(), Ok(()));
        for (variants, before) in [(whole, range.start), (rest, range.start + whole.len())] {
            if variants.is_empty() || ran.is_err() {
                continue;
            }
            let runs = Runs::of_groups(variants, before, (round, program.variants() - 1));
            if let Some((share, _)) = self.recorder.sums.as_ref().filter(|_| train) {
                store.write(*share, &[1.0 / variants.len().min(round) as f32])?;
            }
            ran = self.device.keep_awake(|| {
                let what = (&mut *program, &runs);
                repeat_and_report(what, store, losses_of, (&events, total), progress)
            });
            all.append(runs);
        }
        let results: &[BufferId] = if train { &[losses] } else { self.objective.results() };
        self.store.fetch(results)?;
        if train {
            self.last = (targets.to_vec(), all);
        }
        ran.map_err(|(at, e)| {
            let bad = || {
                let losses = self.store.read::<f32>(losses).ok()?;
                losses.iter().take(targets.len()).position(|x| !x.is_finite()).filter(|_| train)
            };
            super::event_task::located(e, epoch, at.or_else(bad))
        })
    }
    /// Chooses, by what the groups that were traced took, how the others are shared out, which are of `targets`.
    fn choose(&mut self, targets: &[u32]) -> Result<()> {
        let costs = self.costs();
        let Some(mut plan) = self.group_plan.take() else { return Ok(()) };
        let (store, parts) = (&mut self.store, (&self.tables, &*self.model, &self.objective));
        let mut record =
            |exchanged: &Exchanged| self.recorder.record(store, parts, &self.parameters, exchanged);
        let from = Recorded { step: &mut record, update: self.update.as_ref(), layers: self.layers };
        let chosen = plan.choose((costs, &mut self.step), (&self.loads, targets), &self.device, from);
        self.group_plan = Some(plan);
        chosen
    }
}

impl Task for SnapshotTask {
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
        if self.split.val.is_empty() || self.split.test.is_empty() {
            let what = "too few snapshots to validate and to test on; take shorter ones: --every";
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
        let (targets, runs) = &self.last;
        let edges = |s: &Span| self.loads.edges(targets[runs.group(s.step)], s.work.tag.section);
        CostModel::fit(&self.step.trace(), &edges)
    }
    fn predicted(&self, costs: &CostModel) -> Result<Timeline> {
        let (targets, runs) = &self.last;
        let edges =
            |run: usize, work: &NodeInfo| self.loads.edges(targets[runs.group(run)], work.tag.section);
        predict(&self.step, &runs.variant_of_run, costs, &edges)
    }
    fn chosen(&self) -> Option<(&Choice, &CostModel)> {
        let chosen = self.group_plan.as_ref()?.chosen.as_ref()?;
        Some((&chosen.choice, &chosen.costs))
    }
    fn state(&self) -> Vec<BufferId> {
        Vec::new()
    }
    fn model_buffers(&self) -> Vec<BufferId> {
        let own =
            self.parameters.iter().filter(|p| !Objective::HEADS.iter().any(|head| p.0.starts_with(head)));
        own.map(|p| p.1).collect()
    }
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)> {
        if self.traced {
            self.step.start_trace();
        }
        let _range = nvtx::range(format_args!("train epoch {}", epoch + 1));
        let targets = self.shuffled(epoch);
        self.objective.begin(&mut self.store, self.split.train.clone())?;
        self.pass(epoch, &targets, true, progress)?;
        let losses = &self.store.read::<f32>(self.recorder.losses)?[..targets.len()];
        let mean = losses.iter().map(|&l| f64::from(l)).sum::<f64>() / targets.len().max(1) as f64;
        Ok((mean, targets.iter().map(|&target| self.edges_read(target)).sum()))
    }
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores> {
        self.evaluate(Part::Val, progress)?;
        Ok(self.objective.measure(&self.store, self.targets(Part::Val))?.transductive)
    }
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores> {
        self.evaluate(Part::Test, progress)?;
        self.objective.measure(&self.store, self.targets(Part::Test))
    }
}

/// `[steps nodes, width]`: the inputs of every step, aggregated, as a table; none where there is no room for it.
fn aggregate(store: &mut Store, tables: &SnapshotTables, device: &Device) -> Result<Option<BufferId>> {
    let (rows, width) = (tables.nodes * tables.steps, tables.width);
    if check_room("aggregated features", 4 * rows * width, "").is_err() {
        return Ok(None);
    }
    let mut all = vec![0f32; rows * width];
    let step = store.zeros("step", Spec::ids(Rows::fixed(1), 1))?;
    let mut t = Tape::new();
    let (VertexInputs::Vertices(id) | VertexInputs::Steps(id)) = tables.inputs;
    let (x, steps, graph) = (t.stored(store, id)?, t.stored(store, step)?, tables.graph.vars(&mut t, store)?);
    let y = t.spmm(graph, x, (steps, 0), None, Activation::Identity)?;
    let mut program = Program::new(&t, &[y], Precision::F32, Backend::of(device))?;
    for (s, out) in all.chunks_exact_mut((tables.nodes * width).max(1)).enumerate() {
        store.write(step, &[s as u32])?;
        device.install(|| program.run(store))?;
        out.copy_from_slice(program.read::<f32>(y, store)?);
    }
    Ok(Some(store.table("aggregated features", Spec::real(Rows::fixed(rows), width), Arc::new(all))?))
}
