//! The interface between the training loop and a task: passes over its data, what a checkpoint holds, and
//! what there is to report.
use super::{
    BubbleRecord, DataRecord, HostMemory, Manifest, MemoryPlan, NodeState, PlanUse, StalenessRecord, Summary,
    Uses, Watch,
};
use crate::{
    plan::{Access, Bubble, Choice, CostModel, Plan, Timeline, predict},
    task::{
        config::Config,
        evaluation::{Scores, TestScores},
    },
};
use std::cell::Cell;
use tgnn::{
    autograd::{NodeInfo, Parameters, Program},
    error::Result,
    runtime::{
        BufferId, Device, Store, brief_debug,
        comm::{Channel, Ranks},
    },
};
use tgnn_data::{ClassTable, Part};

/// Progress of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Events processed so far; for snapshots, edges of the groups processed so far.
    pub events: usize,
    /// Events, or edges, of the whole pass.
    pub total: usize,
    /// Mean loss of the pass so far; `None` if the pass does not train, or no loss has reached the host yet.
    pub loss: Option<f64>,
    /// Set to end the run here, between two steps, with an error of kind `Interrupted`.
    pub stop: &'a Cell<bool>,
}

/// A progress callback.
pub type Report<'a> = &'a mut (dyn FnMut(Progress<'_>) + Send);

/// The fields that every task has.
pub struct TaskCore {
    /// Parameters, optimiser state, model state and tables.
    pub store: Store,
    /// Parameters and their optimiser.
    pub parameters: Parameters,
    /// The rows of nodes in the model's state.
    pub nodes: NodeState,
    pub(in crate::task) buffers: Buffers,
    pub(in crate::task) device: Device,
    pub(in crate::task) seed: u64,
    /// The training step.
    pub(in crate::task) step: Program,
    /// Scores a batch or a group without training.
    pub(in crate::task) score: Program,
    /// `[n, 1]` f32: the loss of every batch or group of a training pass.
    pub(in crate::task) losses: BufferId,
    pub(in crate::task) memory: MemoryPlan,
    /// Of a run; `None` before it starts.
    pub(in crate::task) host_memory: Option<HostMemory>,
    pub(in crate::task) plan: Plan,
    /// Whether training passes record a trace.
    pub(in crate::task) traced: bool,
    /// Maximum number of batches or groups of a pass.
    pub(in crate::task) max_batches: usize,
    /// Whether a test of links also scores EdgeBank and the rules that learn nothing.
    pub(in crate::task) rules: bool,
    /// What the plan says without effect.
    pub(in crate::task) plan_notes: Vec<String>,
}

brief_debug!(TaskCore, c => { device: c.device, plan: c.plan, parameters: c.parameters });

/// The buffers of a task that outlive a run.
#[derive(Debug)]
pub(in crate::task) struct Buffers {
    /// What a checkpoint holds in addition to parameters and optimiser state.
    pub state: Vec<BufferId>,
    /// The model without its head, from which a run of another task can start.
    pub model: Vec<BufferId>,
}

/// What a task has recorded.
pub(in crate::task) struct RecordedTask {
    pub step: Program,
    pub score: Program,
    pub losses: BufferId,
    pub memory: MemoryPlan,
    pub nodes: NodeState,
    pub buffers: Buffers,
    /// Whether the data have features of edges or nodes.
    pub has_features: bool,
}

impl TaskCore {
    /// Puts together what a task has built by a configuration and recorded by a plan.
    pub(in crate::task) fn new(
        config: &Config,
        (device, plan): (Device, Plan),
        (store, parameters): (Store, Parameters),
        recorded: RecordedTask,
    ) -> Result<Self> {
        let RecordedTask { step, score, losses, memory, nodes, buffers, has_features } = recorded;
        let (ranks, on_gpu) = (device.ranks().map_or(1, Ranks::size), device.gpu().is_some());
        let plan_notes = PlanUse { config, plan: &plan, ranks, step: &step, has_features, on_gpu }.notes()?;
        let (seed, max_batches, rules) = (config.seed, config.most_batches(), config.rules);
        Ok(TaskCore {
            store,
            parameters,
            nodes,
            buffers,
            device,
            seed,
            step,
            score,
            losses,
            memory,
            host_memory: None,
            plan,
            traced: false,
            max_batches,
            rules,
            plan_notes,
        })
    }
    /// Returns the device on which the task runs.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// Returns the plan of the training step.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// Returns the memory that the programs and their tables need.
    pub fn memory(&self) -> MemoryPlan {
        self.memory
    }
    /// Returns the memory of the host that the run takes; `None` before the run starts.
    pub fn host_memory(&self) -> Option<HostMemory> {
        self.host_memory
    }
    /// Returns the bytes that there are for the values of the programs of a run.
    pub(in crate::task) fn step_bytes(&self, uses: Uses) -> usize {
        let training = self.step.arena_bytes();
        let others = self.memory.step.saturating_sub(training);
        let uses = [(uses.trains, training), (uses.evaluates || uses.settles, others)];
        uses.iter().filter(|(runs, _)| *runs).map(|(_, bytes)| bytes).sum()
    }
    /// Returns the training step.
    pub fn step(&self) -> &Program {
        &self.step
    }
    /// Returns the training step, mutable, for example to profile it.
    pub fn step_mut(&mut self) -> &mut Program {
        &mut self.step
    }
    /// Records a trace of the training step from the next epoch on; each epoch replaces the trace of the one
    /// before.
    pub fn trace(&mut self) {
        self.traced = true;
    }
    /// Returns the timeline of the last [traced](Self::trace) epoch.
    pub fn timeline(&self) -> Timeline {
        let timeline = Timeline::new(self.step.trace());
        match self.nodes.pipeline_of_pass() {
            Some([rank, ranks]) => {
                let waits = Bubble::waits(&timeline, rank, ranks);
                timeline.with_waits(waits)
            }
            None => timeline,
        }
    }
    /// Returns the buffers that a checkpoint holds: parameters, optimiser state, model state.
    pub fn checkpoint_buffers(&self) -> Vec<BufferId> {
        let parameters = self.parameters.iter().map(|p| p.1);
        parameters
            .chain(self.parameters.optimizer_buffers())
            .chain(self.buffers.state.iter().copied())
            .collect()
    }
    /// Starts a new trace of the training step if tracing is on. Ranks meet before, so that the times of
    /// their traces count from the same moment. Collective.
    pub(in crate::task) fn begin_trace(&mut self) -> Result<()> {
        if let Some(ranks) = self.device.ranks() {
            ranks.channel(Channel::Control).barrier()?;
        }
        if self.traced {
            self.step.start_trace();
        }
        Ok(())
    }
    /// Returns the mean of the first `n` losses of the last training pass.
    pub(in crate::task) fn mean_loss(&self, n: usize) -> Result<f64> {
        Ok(self.sum_of_losses(n)? / n.max(1) as f64)
    }
    /// Returns the sum of the first `n` losses of the last pass.
    pub(in crate::task) fn sum_of_losses(&self, n: usize) -> Result<f64> {
        let losses = &self.store.read::<f32>(self.losses)?[..n];
        Ok(losses.iter().map(|&loss| f64::from(loss)).sum())
    }
    /// Returns what there is to say about the plan, as remarks.
    pub(in crate::task) fn plan_remarks(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.plan_notes.iter().map(|note| ("note", note.clone()))
    }
}

/// Returns the buffers of the parameters whose names begin with none of `prefixes`.
pub(in crate::task) fn parameters_except(parameters: &Parameters, prefixes: &[&str]) -> Vec<BufferId> {
    let of_model = |name: &str| !prefixes.iter().any(|prefix| name.starts_with(prefix));
    parameters.iter().filter(|p| of_model(p.0)).map(|p| p.1).collect()
}

/// What is recorded of the training only with some plans.
#[derive(Clone, Debug, Default)]
pub struct PlanRecord {
    /// What the plan leaves to measurements, as chosen; `None` if nothing is left, or nothing is chosen yet.
    pub chosen: Option<Choice>,
    /// The cost model of ops, if it was chosen by predictions.
    pub costs: Option<CostModel>,
    /// What steps have missed so far, if they read older node memory.
    pub staleness: Option<StalenessRecord>,
    /// How long each rank idled in the last pass that trained, if ranks get batches in turn.
    pub pipeline: Vec<BubbleRecord>,
    /// This rank's accesses to node memory in the last [traced](TaskCore::trace) pass that trained.
    pub accesses: Vec<Access>,
}

/// Returns the number of edges that a node of a run reads; 0 if its work does not depend on them.
pub(in crate::task) type Edges<'a> = dyn Fn(usize, &NodeInfo) -> f64 + 'a;

/// The training steps of the last epoch, for predictions.
pub struct LastEpoch<'a> {
    pub(in crate::task) step: &'a Program,
    /// The variant of each run.
    pub(in crate::task) variant_of_run: Vec<usize>,
    pub(in crate::task) edges: Box<Edges<'a>>,
}

brief_debug!(LastEpoch<'_>, e => { runs: e.variant_of_run.len() });

impl LastEpoch<'_> {
    /// Fits a cost model of the ops to the trace of the epoch.
    pub fn costs(&self) -> CostModel {
        CostModel::fit(&self.step.trace(), &|span| (self.edges)(span.step, &span.node_info))
    }
    /// Returns the timeline of the epoch as `costs` predicts it.
    ///
    /// # Errors
    /// `Plan` if lanes would wait for each other.
    pub fn predicted(&self, costs: &CostModel) -> Result<Timeline> {
        predict(self.step, &self.variant_of_run, costs, &self.edges)
    }
}

/// A model with its data, ready to train and to evaluate.
pub trait Task {
    /// Returns the fields that every task has.
    fn core(&self) -> &TaskCore;
    /// Returns the same, mutable.
    fn core_mut(&mut self) -> &mut TaskCore;
    /// Returns remarks for the user before the run starts, each with a one-word label.
    fn remarks(&self) -> Vec<(&'static str, String)>;
    /// Trains for one pass over the training data, of which `epoch` is the first epoch. Returns the mean
    /// loss, and the number of events (or edges) processed.
    ///
    /// # Errors
    /// `Diverged`, with the step, if the loss is not finite.
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)>;
    /// Scores the validation part, continuing from the current state.
    ///
    /// # Errors
    /// The errors of the ops.
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores>;
    /// Scores the test part, continuing from the current state.
    ///
    /// # Errors
    /// The errors of the ops.
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores>;
    /// Returns the training steps of the last epoch.
    fn last_epoch(&self) -> LastEpoch<'_>;
    /// Returns what the classes stand for, if the task predicts classes.
    fn class_table(&self) -> Option<&ClassTable> {
        None
    }
    /// Returns what is recorded of the training only with some plans.
    fn plan_record(&self) -> PlanRecord {
        PlanRecord::default()
    }
    /// Returns what remembers events, if scores depend on memory that a pass leaves behind.
    fn remembering(&mut self) -> Option<&mut dyn Remembers> {
        None
    }
}

/// A task whose model has memory that a pass leaves behind.
pub trait Remembers {
    /// Trains for one more epoch in which the weights that write memory rest at their averages over the last
    /// epochs, so that the rest of the model learns to read the memory that a replay computes. Returns the
    /// same as [`train_epoch`](Task::train_epoch); `None` if the task has nothing to settle.
    ///
    /// # Errors
    /// As [`train_epoch`](Task::train_epoch).
    fn settle(&mut self, _epoch: u32, _progress: Report<'_>) -> Result<Option<(f64, usize)>> {
        Ok(None)
    }
    /// Computes the memory anew: clears it, then replays the training and validation events with fixed
    /// weights.
    ///
    /// # Errors
    /// The errors of the ops.
    fn replay(&mut self, progress: Report<'_>) -> Result<()>;
    /// Updates the memory by a part of the stream, continuing from the current state, as its scoring does.
    ///
    /// # Errors
    /// The errors of the ops.
    fn remember(&mut self, part: Part, progress: Report<'_>) -> Result<()>;
}

/// A task as it is built from its data.
pub(in crate::task) trait DataTask: Task + Sized {
    type Data;
    /// Builds the model of a checkpoint and records its programs.
    fn build(config: &Config, data: &Self::Data, device: Device, manifest: &Manifest) -> Result<Self>;
    /// Refuses data with a class that the model of a checkpoint does not know.
    fn same_classes(_manifest: &Manifest, _config: &Config, _data: &Self::Data) -> Result<()> {
        Ok(())
    }
    /// Describes the data.
    fn describe(data: &Self::Data) -> DataRecord;
    /// Refuses a test that does not begin where the memory of a checkpoint ends.
    fn same_test(_manifest: &Manifest, _config: &Config, _data: &Self::Data) -> Result<()> {
        Ok(())
    }
    /// Prepares a run before its first epoch.
    fn prepare(&mut self, _config: &Config, _data: &Self::Data, _watch: &mut dyn Watch) -> Result<()> {
        Ok(())
    }
    /// Returns an estimate of the bytes of the host that the values of the programs fill in a run.
    ///
    /// # Errors
    /// Those of the ops.
    fn step_bytes(&mut self, uses: Uses) -> Result<usize> {
        Ok(self.core().step_bytes(uses))
    }
    /// Returns the most bytes that a validation takes beside the state, and that the test takes with the
    /// rules that learn nothing.
    fn evaluation_bytes(&self, data: &Self::Data) -> [usize; 2];
    /// Adds the scores of baselines on the test part to a summary.
    ///
    /// # Errors
    /// `Device` if what the test has scored cannot be read; `Interrupted`.
    fn compare(&self, data: &Self::Data, summary: &mut Summary, progress: Report<'_>) -> Result<()>;
}
