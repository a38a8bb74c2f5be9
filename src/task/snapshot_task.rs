//! A model on snapshots, trained and evaluated: the passes of the one training loop over snapshot groups.
use super::{
    Config, MemoryPlan, Report, Scores, Task, TestScores,
    passes::{Rounds, repeat_and_report},
    snapshot_objective::Objective,
    snapshot_split::SnapshotSplit,
};
use crate::{
    autograd::{Lanes, OpTime, Parameters, Program},
    data::{Adjacency, Part, Snapshots},
    error::Result,
    model::{SnapshotModel, SnapshotTables, VertexInputs},
    ops::{Backend, Tape, epilogue::Activation},
    plan::Timeline,
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
    /// Edges that the group of each target reads.
    edges_read: Vec<usize>,
    step: Program,
    /// Where several groups make an update: how many, what each counts, and the update.
    rounds: Option<(usize, BufferId, Program)>,
    score: Program,
    losses: BufferId,
    memory: MemoryPlan,
    plan: &'static str,
    /// Whether epochs note down when nodes run.
    traced: bool,
}

impl SnapshotTask {
    /// Builds the model and records both programs.
    ///
    /// # Errors
    /// Usage when the configuration contradicts itself, or the device; data where it lacks what the task learns from.
    pub fn new(config: &Config, snapshots: &Snapshots, device: Device) -> Result<Self> {
        config.validate()?;
        let device = device.multiplying_in(config.precision)?;
        let (c, length) = (&config.snapshots, config.group.length);
        let split = SnapshotSplit::of(snapshots, config.data.train, config.data.val)?;
        let mut store = Store::new(Precision::F32);
        let mut parameters = Parameters::new(&mut store, config.seed, config.learning_rate);
        let adjacency = Adjacency::of(snapshots, c.directed)?;
        let mut tables = SnapshotTables::new(&mut store, &mut parameters, snapshots, &adjacency, c.width)?;
        let net = config.snapshot_model()?;
        let given = snapshots.features.is_some();
        if given && net.aggregates_once() {
            tables.aggregated = aggregate(&mut store, &tables, &device)?;
        }
        let model = net.build(&mut parameters, &mut store, &tables)?;
        let objective = Objective::new(config, snapshots, &split, net.width(), &mut parameters, &mut store)?;
        let losses = store.zeros("losses", Spec::real(Rows::fixed(split.train.len().max(1)), 1));

        let plan = config.plan_on(&device)?;
        let lanes = |trains: bool| match plan {
            "prefetch" => Lanes::Prefetch,
            "blad-even" if trains => Lanes::Groups { first: length / 2, pipelined: config.group.batch > 1 },
            _ => Lanes::One,
        };
        let planned = |t: &Tape, trains| Program::on_lanes(t, &[], Precision::F32, &device, lanes(trains));
        let (mut t, mut rounds) = (Tape::new(), None);
        let group = tables.next_group(&mut t, &store, length)?;
        let z = model.embed(&mut t, &store, &tables, &group)?;
        if let Some(loss) = objective.record(&mut t, &store, &tables, &group, z, true)? {
            let table = t.stored(&store, losses);
            t.write_rows(table, group.index, loss)?;
            rounds = match config.group.batch {
                1 => {
                    parameters.minimize(&mut t, &mut store, loss)?;
                    None
                }
                size => {
                    let share = store.zeros("share", Spec::real(Rows::fixed(1), 1));
                    let sums = parameters.accumulate(&mut t, &mut store, loss, share)?;
                    let mut t = Tape::new();
                    sums.minimize(&parameters, &mut t, &store)?;
                    Some((size, share, Program::new(&t, &[], Precision::F32, Backend::of(&device))?))
                }
            };
        }
        let step = planned(&t, true)?;

        let mut t = Tape::new();
        let group = tables.next_group(&mut t, &store, length)?;
        let z = model.embed(&mut t, &store, &tables, &group)?;
        objective.record(&mut t, &store, &tables, &group, z, false)?;
        let score = planned(&t, false)?;

        let free = device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        let (VertexInputs::Vertices(inputs) | VertexInputs::Steps(inputs)) = tables.inputs;
        let features: Vec<BufferId> = tables.aggregated.into_iter().chain(given.then_some(inputs)).collect();
        let memory = MemoryPlan::of(&store, (&features, false), [&step, &score], free);
        memory.check()?;
        let edges_read = (0..snapshots.len())
            .map(|s| snapshots.offsets[s] - snapshots.offsets[s.saturating_sub(length)])
            .collect();
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
            edges_read,
            step,
            rounds,
            score,
            losses,
            memory,
            plan,
            traced: false,
        })
    }
    /// What baselines score on the test part, by their names; against the same candidates.
    pub fn baselines(&self, snapshots: &Snapshots) -> Vec<(&'static str, TestScores)> {
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
        self.objective.begin(&mut self.store, range);
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
    fn pass(&mut self, epoch: u32, targets: &[u32], train: bool, progress: Report<'_>) -> Result<()> {
        self.tables.seek(&mut self.store, epoch, targets);
        let mut read = vec![0];
        for &target in targets {
            read.push(read[read.len() - 1] + self.edges_read[target as usize]);
        }
        let total = read[targets.len()];
        let (store, losses) = (&mut self.store, self.losses);
        let program = if train { &mut self.step } else { &mut self.score };
        let rounds = self.rounds.as_mut().filter(|_| train);
        let rounds = rounds.map(|&mut (size, share, ref mut update)| Rounds { update, size, share });
        let events = |runs: usize| read[runs.min(targets.len())];
        let losses_of = train.then_some(losses);
        let ran = self.device.keep_awake(|| {
            repeat_and_report(program, rounds, store, targets.len(), losses_of, (&events, total), progress)
        });
        let results: &[BufferId] = if train { &[losses] } else { self.objective.results() };
        self.store.fetch(results)?;
        ran.map_err(|(at, e)| {
            let bad = || {
                let losses = self.store.read::<f32>(losses);
                losses.iter().take(targets.len()).position(|x| !x.is_finite()).filter(|_| train)
            };
            super::event_task::located(e, epoch, at.or_else(bad))
        })
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
    fn plan(&self) -> &'static str {
        self.plan
    }
    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = Vec::new();
        if self.split.val.is_empty() || self.split.test.is_empty() {
            let what = "too few snapshots to validate and to test on; take shorter ones: --every";
            remarks.push(("note", what.into()));
        }
        remarks
    }
    fn profile(&mut self) {
        self.step.profile();
    }
    fn op_times(&self) -> Vec<OpTime> {
        self.step.op_times()
    }
    fn trace(&mut self) {
        self.traced = true;
    }
    fn timeline(&self) -> Timeline {
        Timeline::new(self.step.trace())
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
        self.objective.begin(&mut self.store, self.split.train.clone());
        self.pass(epoch, &targets, true, progress)?;
        let losses = &self.store.read::<f32>(self.losses)[..targets.len()];
        let mean = losses.iter().map(|&l| f64::from(l)).sum::<f64>() / targets.len().max(1) as f64;
        Ok((mean, targets.iter().map(|&s| self.edges_read[s as usize]).sum()))
    }
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores> {
        self.evaluate(Part::Val, progress)?;
        Ok(self.objective.measure(&self.store, self.targets(Part::Val)).transductive)
    }
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores> {
        self.evaluate(Part::Test, progress)?;
        Ok(self.objective.measure(&self.store, self.targets(Part::Test)))
    }
}

/// `[steps nodes, width]`: the inputs of every step, aggregated, as a table; none where there is no room for it.
fn aggregate(store: &mut Store, tables: &SnapshotTables, device: &Device) -> Result<Option<BufferId>> {
    let (rows, width) = (tables.nodes * tables.steps, tables.width);
    if check_room("aggregated features", 4 * rows * width, "").is_err() {
        return Ok(None);
    }
    let mut all = vec![0f32; rows * width];
    let step = store.zeros("step", Spec::ids(Rows::fixed(1), 1));
    let mut t = Tape::new();
    let (VertexInputs::Vertices(id) | VertexInputs::Steps(id)) = tables.inputs;
    let (x, steps, graph) = (t.stored(store, id), t.stored(store, step), tables.graph.vars(&mut t, store));
    let y = t.spmm(graph, x, (steps, 0), None, Activation::Identity)?;
    let mut program = Program::new(&t, &[y], Precision::F32, Backend::of(device))?;
    for (s, out) in all.chunks_exact_mut((tables.nodes * width).max(1)).enumerate() {
        store.write(step, &[s as u32]);
        device.install(|| program.run(store))?;
        out.copy_from_slice(program.read::<f32>(y, store));
    }
    Ok(Some(store.table("aggregated features", Spec::real(Rows::fixed(rows), width), Arc::new(all))))
}
