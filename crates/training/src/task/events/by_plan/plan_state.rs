//! What a plan adds to the passes of a task: a number of micro-batches, older node memory, copies of the
//! memory, and batches in turn. One rank that runs its steps in order needs none of it.
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
            BubbleRecord, EventCount, PlanRecord, Report, StalenessRecord, TaskCore, repeat_and_report,
        },
    },
};
use tgnn::{
    error::{Error, Result},
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
    /// Prepares an epoch, given the empty state: a copy of the memory goes on where it has ended the epoch
    /// before, and ranks that get batches in turn measure how long they idle.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub fn begin_epoch(&self, core: &mut TaskCore) -> Result<()> {
        let own = core.nodes.own.take().unwrap_or_default();
        for (&id, bytes) in core.nodes.buffers.iter().zip(own) {
            core.store.raw_mut(id)?.copy_from_slice(&bytes);
        }
        if let (Some([_, ranks]), false) = (core.nodes.in_turn, core.traced) {
            core.step.start_trace_of(TIMED_ROUNDS * ranks);
        }
        Ok(())
    }
    /// Trains a pass of `steps` steps, or the pass that settles. Over ranks, collective.
    ///
    /// # Errors
    /// Those of the steps, with the batch if it is known.
    pub fn train(
        &mut self,
        core: &mut TaskCore,
        settles: bool,
        steps: usize,
        count: &EventCount<'_>,
        progress: Report<'_>,
    ) -> Result<(), (Option<usize>, Error)> {
        if let (Some(online), false) = (&mut self.online, settles) {
            return online.pass(core, self.variants, steps, count, progress);
        }
        let (runs, TaskCore { step, store, losses, .. }) = (self.variants.runs(settles, steps), core);
        repeat_and_report(step, &runs, store, Some(*losses), count, progress)
    }
    /// Returns the variant of each run of the last epoch, which had `steps` steps.
    pub fn runs_of_epoch(&self, steps: usize) -> Vec<usize> {
        match &self.online {
            Some(online) => self.variants.runs_of(&online.of_pass, 0).variant_of_run,
            None => self.variants.runs(false, steps).variant_of_run,
        }
    }
    /// Ends a training pass over `batches` batches, or the pass that settles: counts what its steps have
    /// missed and how long ranks have idled, and gives all ranks the same memory. Collective.
    ///
    /// # Errors
    /// `Device` or `Comm` if the counts or the memory cannot be read.
    pub fn end_pass(
        &mut self,
        model: &dyn EventModel,
        core: &mut TaskCore,
        settles: bool,
        batches: usize,
    ) -> Result<()> {
        if let (Some(record), false) = (&mut self.missed, settles) {
            add_missed(record, model, core)?;
        }
        if let (Some(place), false) = (core.nodes.in_turn, settles) {
            self.idle = measured(core, place)?;
        }
        share_state(core, batches)
    }
    /// Returns the record of a run whose last training pass had so many batches.
    pub fn record(&self, core: &TaskCore, batches: usize) -> PlanRecord {
        let staleness = self.online.as_ref().map(|online| Choice::Staleness(online.choice.clone()));
        let parts = self.micro_batches.clone().map(Choice::MicroBatches);
        let rank = core.device.ranks().map_or(0, Ranks::rank);
        let gathers = core.plan.staleness().memory > 0;
        let accesses = match core.nodes.buffers.is_empty() {
            true => Vec::new(),
            false => accesses(&core.timeline(), rank, core.nodes.turns, batches, gathers),
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

/// Gives all ranks the state of the first copy, which has seen the whole part of `batches` batches in
/// order. Copies that begin elsewhere keep theirs for the next epoch. Collective.
///
/// # Errors
/// `Comm`; `Device` if the state cannot be read.
fn share_state(core: &mut TaskCore, batches: usize) -> Result<()> {
    let (Some(ranks), true) = (core.device.ranks().cloned(), core.nodes.turns.copies > 1) else {
        return Ok(());
    };
    let (store, state) = (&mut core.store, &core.nodes.buffers);
    store.fetch(state)?;
    if core.nodes.turns.first(batches) > 0 {
        let own = state.iter().map(|&id| Ok(store.raw(id)?.to_vec()));
        core.nodes.own = Some(own.collect::<Result<_>>()?);
    }
    let control = ranks.channel(Channel::Control);
    state.iter().try_for_each(|&id| control.broadcast(0, store.raw_mut(id)?))
}
