//! The interface between the training loop and a task: passes over its data, what a checkpoint holds, and
//! what there is to report.
use super::{BubbleRecord, MemoryPlan, PlanUse, StalenessRecord};
use crate::{
    model::RankTables,
    plan::{Access, Choice, CostModel, Plan, Timeline},
    task::{
        config::Config,
        evaluation::{Scores, TestScores},
    },
};
use std::cell::Cell;
use tgnn::{
    autograd::{Parameters, Program},
    error::{Error, ErrorKind, Result},
    runtime::{
        BufferId, Device, Store, brief_debug,
        comm::{Channel, Ranks},
    },
};
use tgnn_data::Part;

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
    pub(in crate::task) device: Device,
    pub(in crate::task) seed: u64,
    /// The training step.
    pub(in crate::task) step: Program,
    /// Scores a batch or a group without training.
    pub(in crate::task) score: Program,
    /// `[n, 1]` f32: the loss of every batch or group of a training pass.
    pub(in crate::task) losses: BufferId,
    pub(in crate::task) memory: MemoryPlan,
    pub(in crate::task) plan: Plan,
    /// Whether training passes record a trace.
    pub(in crate::task) traced: bool,
    /// Maximum number of batches or groups of a pass.
    pub(in crate::task) max_batches: usize,
    /// What the plan says without effect.
    pub(in crate::task) plan_notes: Vec<String>,
}

brief_debug!(TaskCore, c => { device: c.device, plan: c.plan, parameters: c.parameters });

/// What a task has recorded.
pub(in crate::task) struct Recorded {
    pub step: Program,
    pub score: Program,
    pub losses: BufferId,
    pub memory: MemoryPlan,
    /// Whether the data have features of edges or nodes.
    pub has_features: bool,
}

impl TaskCore {
    /// Puts together what a task has built by a configuration and recorded by a plan.
    pub(in crate::task) fn new(
        config: &Config,
        (device, plan): (Device, Plan),
        (store, parameters): (Store, Parameters),
        recorded: Recorded,
    ) -> Result<Self> {
        let Recorded { step, score, losses, memory, has_features } = recorded;
        let (ranks, on_gpu) = (device.ranks().map_or(1, Ranks::size), device.gpu().is_some());
        let plan_notes = PlanUse { config, plan: &plan, ranks, step: &step, has_features, on_gpu }.notes()?;
        let (seed, max_batches) = (config.seed, config.most_batches());
        Ok(TaskCore {
            store,
            parameters,
            device,
            seed,
            step,
            score,
            losses,
            memory,
            plan,
            traced: false,
            max_batches,
            plan_notes,
        })
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
    /// Returns the buffers of the parameters whose names begin with none of `prefixes`.
    pub(in crate::task) fn parameters_except(&self, prefixes: &[&str]) -> impl Iterator<Item = BufferId> {
        let of_model = |name: &str| !prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.parameters.iter().filter(move |p| of_model(p.0)).map(|p| p.1)
    }
}

/// The part of a task's state that has rows of nodes, such as node memory: what ranks may share.
#[derive(Debug, Default)]
pub struct NodeState<'a> {
    /// The buffers: the model's state.
    pub buffers: Vec<BufferId>,
    /// The one of them with the ids of the events that mails refer to, if there are mails.
    pub mail_events: Option<BufferId>,
    /// How rows travel between the ranks that train together; `None` for a single rank.
    pub ranks: Option<&'a RankTables>,
    /// Number of copies that ranks train with, each elsewhere in the stream; at most 1: there is one.
    pub copies: usize,
    /// The bytes of this rank's copy, buffer by buffer, as the last pass has left it, if the state is another
    /// copy's.
    pub own: Option<&'a [Vec<u8>]>,
}

/// What is recorded of the training only with some plans.
#[derive(Clone, Debug, Default)]
pub struct PlanRecord {
    /// What steps have missed so far, if they read older node memory.
    pub staleness: Option<StalenessRecord>,
    /// How long each rank idled in the last pass that trained, if ranks get batches in turn.
    pub pipeline: Vec<BubbleRecord>,
}

/// A model with its data, ready to train and to evaluate.
pub trait Task {
    /// Returns the fields that every task has.
    fn core(&self) -> &TaskCore;
    /// Returns the same, mutable.
    fn core_mut(&mut self) -> &mut TaskCore;
    /// Returns remarks for the user before the run starts, each with a one-word label.
    fn remarks(&self) -> Vec<(&'static str, String)>;
    /// Returns the buffers that a checkpoint holds in addition to parameters and optimiser state.
    fn state(&self) -> Vec<BufferId>;
    /// Returns the part of the state that has rows of nodes.
    fn node_state(&self) -> NodeState<'_> {
        NodeState::default()
    }
    /// Sets the copy of the [rows of nodes](Self::node_state) with which this rank begins the next pass.
    fn set_own_rows(&mut self, _rows: Vec<Vec<u8>>) {}
    /// Returns the buffers of the model without its head, from which a run of another task can start.
    fn model_buffers(&self) -> Vec<BufferId>;
    /// Trains for one pass over the training data, of which `epoch` is the first epoch. Returns the mean
    /// loss, and the number of events (or edges) processed.
    ///
    /// # Errors
    /// `Diverged`, with the step, if the loss is not finite.
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)>;
    /// Returns the number of epochs that a training pass counts as: more than one if ranks train several at
    /// the same time.
    fn epochs_of_pass(&self) -> usize {
        1
    }
    /// Returns whether scores depend on memory that a pass leaves behind.
    fn has_memory(&self) -> bool {
        false
    }
    /// Trains for one more epoch in which the weights that write memory rest at their averages over the last
    /// epochs, so that the rest of the model learns to read the memory that a replay computes. Returns the
    /// same as [`train_epoch`](Self::train_epoch); `None` if the task has nothing to settle.
    ///
    /// # Errors
    /// As [`train_epoch`](Self::train_epoch).
    fn settle(&mut self, _epoch: u32, _progress: Report<'_>) -> Result<Option<(f64, usize)>> {
        Ok(None)
    }
    /// Computes the memory anew: clears it, then replays the training and validation events with fixed
    /// weights.
    ///
    /// # Errors
    /// The errors of the ops.
    fn replay(&mut self, _progress: Report<'_>) -> Result<()> {
        Ok(())
    }
    /// Updates the memory by a part of the stream, continuing from the current state, as its scoring does.
    ///
    /// # Errors
    /// The errors of the ops.
    fn remember(&mut self, _part: Part, _progress: Report<'_>) -> Result<()> {
        Ok(())
    }
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
    /// Fits a cost model of the ops to the trace of the last epoch.
    fn costs(&self) -> CostModel;
    /// Returns the timeline of the last epoch as `costs` predicts it.
    ///
    /// # Errors
    /// `Plan` if lanes would wait for each other.
    fn predicted(&self, costs: &CostModel) -> Result<Timeline>;
    /// Returns this rank's accesses to node memory in the last [traced](Self::trace) pass that trained; none
    /// if there is no node memory.
    fn accesses(&self) -> Vec<Access> {
        Vec::new()
    }
    /// Returns what the plan leaves to measurements, as chosen, and the cost model of ops, if it was chosen
    /// by predictions; `None` if the plan leaves nothing to measurements, or nothing is chosen yet.
    fn chosen(&self) -> Option<(Choice, Option<&CostModel>)> {
        None
    }
    /// Returns what is recorded of the training only with some plans.
    fn plan_record(&self) -> PlanRecord {
        PlanRecord::default()
    }

    /// Returns parameters, state and tables.
    fn store(&self) -> &Store {
        &self.core().store
    }
    /// Returns the same, mutable.
    fn store_mut(&mut self) -> &mut Store {
        &mut self.core_mut().store
    }
    /// Returns the parameters and their optimiser.
    fn parameters(&self) -> &Parameters {
        &self.core().parameters
    }
    /// Returns the device on which the task runs.
    fn device(&self) -> &Device {
        &self.core().device
    }
    /// Returns the memory that the run needs.
    fn memory(&self) -> MemoryPlan {
        self.core().memory
    }
    /// Returns the plan of the training step.
    fn plan(&self) -> &Plan {
        &self.core().plan
    }
    /// Returns the training step.
    fn step(&self) -> &Program {
        &self.core().step
    }
    /// Returns the training step, mutable, for example to profile it.
    fn step_mut(&mut self) -> &mut Program {
        &mut self.core_mut().step
    }
    /// Records a trace of the training step from the next epoch on; each epoch replaces the trace of the one
    /// before.
    fn trace(&mut self) {
        self.core_mut().traced = true;
    }
    /// Returns the timeline of the last [traced](Self::trace) epoch.
    fn timeline(&self) -> Timeline {
        Timeline::new(self.step().trace())
    }
    /// Returns the buffers that a checkpoint holds: parameters, optimiser state, model state.
    fn checkpoint_buffers(&self) -> Vec<BufferId> {
        let parameters = self.parameters().iter().map(|p| p.1);
        parameters.chain(self.parameters().optimizer_buffers()).chain(self.state()).collect()
    }
}

/// The runs of a program that make up a pass.
#[derive(Clone, Debug, Default)]
pub(in crate::task) struct Runs {
    /// For each run, the variant of the program.
    pub variant_of_run: Vec<usize>,
    /// For each run, the number of batches or groups of the pass that are complete after it.
    pub complete: Vec<usize>,
}

impl Runs {
    /// Creates one run per batch, all in the same variant.
    pub fn of_batches(variant: usize, batches: usize) -> Self {
        Runs { variant_of_run: vec![variant; batches], complete: (1..=batches).collect() }
    }
    /// Creates one run per snapshot group in the given variants, after `before` groups of the pass. If an
    /// update takes several groups (`groups_per_update` > 1), a run of variant `update` follows every such
    /// round.
    pub fn of_groups(variants: &[usize], before: usize, groups_per_update: usize, update: usize) -> Self {
        let mut runs = Runs::default();
        for (at, &variant) in variants.iter().enumerate() {
            let ends_round = (at + 1).is_multiple_of(groups_per_update) || at + 1 == variants.len();
            let update = (groups_per_update > 1 && ends_round).then_some(update);
            for variant in std::iter::once(variant).chain(update) {
                runs.variant_of_run.push(variant);
                runs.complete.push(before + at + 1);
            }
        }
        runs
    }
    /// Returns the batch or group that a run belongs to; for an update, the last group of its round.
    pub fn group(&self, run: usize) -> usize {
        self.complete[run] - 1
    }
    /// Appends the runs of `other`.
    pub fn append(&mut self, mut other: Runs) {
        self.variant_of_run.append(&mut other.variant_of_run);
        self.complete.append(&mut other.complete);
    }
}

/// Counts events (or edges) for progress reports.
pub(in crate::task) struct EventCount<'a> {
    /// Events in the first `n` batches or groups.
    pub up_to: &'a (dyn Fn(usize) -> usize + Sync),
    /// Events of the pass.
    pub total: usize,
}

/// Executes `runs` of a program over its store and reports progress after each of them, with the mean of the
/// losses that the pass has written to `losses` so far.
pub(in crate::task) fn repeat_and_report(
    program: &mut Program,
    runs: &Runs,
    store: &mut Store,
    losses: Option<BufferId>,
    count: &EventCount<'_>,
    progress: Report<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let (mut counted, mut sum) = (0, 0.0);
    let ran = program.repeat_in(store, &runs.variant_of_run, &mut |done| {
        let complete = runs.complete[done.runs - 1];
        // While lanes are running, losses cannot be read; a device's losses are read after the pass.
        let new = done.store.and_then(|store| store.read::<f32>(losses?).ok()?.get(counted..complete));
        if let Some(new) = new {
            sum += new.iter().map(|&loss| f64::from(loss)).sum::<f64>();
            counted = complete;
        }
        let loss = if counted == 0 { None } else { Some(sum / counted as f64) };
        progress(Progress { events: (count.up_to)(complete), total: count.total, loss, stop: done.stop });
    });
    ran.map_err(|(run, e)| (run.map(|run| runs.group(run)), e))
}

/// Returns the epoch from which an evaluation pass derives its random draws. It is the same in every epoch,
/// and so are the draws.
pub(in crate::task) fn evaluation_clock(part: Part) -> u32 {
    part as u32
}

/// Adds epoch and batch to an error that says that training diverged, or that a rank was lost.
pub(in crate::task) fn located(e: Error, epoch: u32, batch: Option<usize>) -> Error {
    let what = match e.kind() {
        ErrorKind::Diverged => "training diverged",
        ErrorKind::Comm => "the ranks lost one another",
        _ => return e,
    };
    let batch = batch.map_or(String::new(), |b| format!(", batch {}", b + 1));
    Error::new(e.kind(), format!("{what} in epoch {}{batch}", epoch + 1)).caused_by(e)
}
