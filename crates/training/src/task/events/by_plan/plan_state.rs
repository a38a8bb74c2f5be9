//! What a plan adds to the passes of a task: a number of micro-batches, older node memory, copies of the
//! memory, and batches in turn. One rank that runs its steps in order takes the first branch everywhere.
use super::{
    pipeline::{TIMED_ROUNDS, measured},
    staleness::{Online, add_missed},
    variants::{StepPlan, StepVariants},
};
use crate::{
    model::EventModel,
    plan::{Choice, MicroBatchChoice, accesses},
    task::{
        config::Config,
        events::setup::Setup,
        training::{
            BubbleRecord, EventCount, NodeState, PlanRecord, Report, StalenessRecord, TaskCore,
            repeat_and_report,
        },
    },
};
use std::ops::Range;
use tgnn::{
    error::{Error, Result},
    ops::next_turn::Turns,
    runtime::comm::{Channel, Ranks},
};
use tgnn_data::Events;

/// What a plan adds to the passes of a task.
#[derive(Default)]
pub(in crate::task::events) struct PlanState {
    /// The number of micro-batches, if the plan has it fitted.
    pub micro_batches: Option<MicroBatchChoice>,
    /// The variants of the training step, once it is recorded.
    pub variants: StepVariants,
    /// The staleness of node memory, if the plan has the least one found.
    online: Option<Online>,
    /// What training steps have missed, if they may read older memory.
    missed: Option<StalenessRecord>,
    /// How long each rank idled, if ranks get batches in turn.
    idle: Vec<BubbleRecord>,
}

impl PlanState {
    /// # Errors
    /// As [`Online::new`].
    pub fn new(config: &Config, events: &Events, setup: &Setup) -> Result<Self> {
        let stale = setup.plan.staleness().memory > 0;
        Ok(PlanState {
            online: Online::new(config, events, setup)?,
            missed: stale.then(StalenessRecord::default),
            ..PlanState::default()
        })
    }
    /// Returns how training steps run.
    pub fn step_plan(&self, setup: &Setup) -> StepPlan {
        StepPlan::new(setup, self.online.as_ref())
    }
    /// Prepares a training pass, or the pass that settles, given the empty state: a copy of the memory goes
    /// on where it has ended the pass before, and ranks that get batches in turn measure how long they idle.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub fn begin_pass(&self, core: &mut TaskCore, settles: bool) -> Result<()> {
        let own = core.nodes.own.take().unwrap_or_default();
        for (&id, bytes) in core.nodes.buffers.iter().zip(own) {
            core.store.raw_mut(id)?.copy_from_slice(&bytes);
        }
        if let (Some([_, ranks]), false) = (core.nodes.pipeline_of_pass(), core.traced || settles) {
            core.step.start_trace_of(TIMED_ROUNDS * ranks);
        }
        Ok(())
    }
    /// Trains a pass, or the pass that settles, in steps numbered by their batches. Over ranks, collective.
    ///
    /// # Errors
    /// Those of the steps, with the batch if it is known.
    pub fn train(
        &mut self,
        core: &mut TaskCore,
        settles: bool,
        steps: Range<usize>,
        count: &EventCount<'_>,
        progress: Report<'_>,
    ) -> Result<(), (Option<usize>, Error)> {
        if let (Some(online), false) = (&mut self.online, settles) {
            return online.pass(core, self.variants, steps.len(), count, progress);
        }
        let (runs, TaskCore { step, store, losses, .. }) = (self.variants.runs(settles, steps), core);
        repeat_and_report(step, &runs, store, Some(*losses), count, progress)
    }
    /// Returns the variant of each run of the last epoch, which had the steps `steps`.
    pub fn runs_of_epoch(&self, steps: Range<usize>) -> Vec<usize> {
        match &self.online {
            Some(online) => self.variants.runs_of(&online.of_pass, 0).variant_of_run,
            None => self.variants.runs(false, steps).variant_of_run,
        }
    }
    /// Ends a training pass, or the pass that settles: counts what its steps have missed and how long ranks
    /// have idled, and gives all ranks the same memory. Collective.
    ///
    /// # Errors
    /// `Device` or `Comm` if the counts or the memory cannot be read.
    pub fn end_pass(&mut self, model: &dyn EventModel, core: &mut TaskCore, settles: bool) -> Result<()> {
        if let (Some(record), false) = (&mut self.missed, settles) {
            add_missed(record, model, core)?;
        }
        if let (Some(place), false) = (core.nodes.pipeline_of_pass(), settles) {
            self.idle = measured(core, place)?;
        }
        share_state(core)
    }
    /// Returns the record of a run.
    pub fn record(&self, core: &TaskCore) -> PlanRecord {
        let staleness = self.online.as_ref().map(|online| Choice::Staleness(online.choice.clone()));
        let parts = self.micro_batches.clone().map(Choice::MicroBatches);
        let rank = core.device.ranks().map_or(0, Ranks::rank);
        let gathers = core.plan.staleness().memory > 0;
        let accesses = match core.nodes.buffers.is_empty() {
            true => Vec::new(),
            false => {
                let NodeState { turns, batches, .. } = &core.nodes;
                accesses(&core.timeline(), rank, *turns, batches.clone(), gathers)
            }
        };
        PlanRecord {
            chosen: parts.or(staleness),
            costs: None,
            staleness: self.missed.clone(),
            pipeline: self.idle.clone(),
            accesses,
        }
    }
}

/// Gives all ranks the state of the copy that has trained the last segment, and so is at the end of the
/// training part. The other copies keep theirs for the next pass. Collective.
///
/// # Errors
/// `Comm`; `Device` if the state cannot be read.
fn share_state(core: &mut TaskCore) -> Result<()> {
    let TaskCore { device, nodes, store, .. } = core;
    let (Some(ranks), Turns { copy, copies, .. }) = (device.ranks(), nodes.turns) else { return Ok(()) };
    if copies == 1 {
        return Ok(());
    }
    store.fetch(&nodes.buffers)?;
    let at_end = nodes.copy_of_segment(copies - 1);
    if copy != at_end {
        let own = nodes.buffers.iter().map(|&id| Ok(store.raw(id)?.to_vec()));
        nodes.own = Some(own.collect::<Result<_>>()?);
    }
    nodes.pass += 1;
    let (control, from) = (ranks.channel(Channel::Control), at_end * (ranks.size() / copies));
    nodes.buffers.iter().try_for_each(|&id| control.broadcast(from, store.raw_mut(id)?))
}
