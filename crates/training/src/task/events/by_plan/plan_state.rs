//! What a plan adds to the passes of a task: a number of micro-batches, older node memory, copies of the
//! memory, and batches in turn. One rank that runs its steps in order needs none of it.
use super::{
    pipeline::{TIMED_ROUNDS, measured},
    staleness::{Online, add_missed},
};
use crate::{
    model::EventModel,
    plan::{Access, Choice, MicroBatchChoice},
    task::{
        config::Config,
        events::setup::Setup,
        training::{BubbleRecord, PlanRecord, StalenessRecord, TaskCore},
    },
};
use tgnn::{
    autograd::Lanes,
    error::Result,
    runtime::{BufferId, comm::Channel},
};
use tgnn_data::Events;

/// What a plan adds to the passes of a task.
#[derive(Default)]
pub(in crate::task::events) struct PlanState {
    /// The number of micro-batches, if the plan has it fitted.
    pub micro_batches: Option<MicroBatchChoice>,
    /// The staleness of node memory, if the plan has the least one found.
    pub online: Option<Online>,
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
    /// Returns the lanes of training steps.
    pub fn lanes(&self, setup: &Setup) -> Lanes {
        let lanes = setup.plan.lanes(0, false);
        self.online.as_ref().map_or(lanes, |online| lanes.with_memory_of(online.choice.most))
    }
    /// Prepares an epoch, given the empty `state`: a copy of the memory goes on where it has ended the epoch
    /// before, and ranks that get batches in turn measure how long they idle.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub fn begin_epoch(&self, core: &mut TaskCore, state: &[BufferId]) -> Result<()> {
        for (&id, bytes) in state.iter().zip(core.nodes.own.take().unwrap_or_default()) {
            core.store.raw_mut(id)?.copy_from_slice(&bytes);
        }
        if let (Some([_, ranks]), false) = (core.nodes.in_turn, core.traced) {
            core.step.start_trace_of(TIMED_ROUNDS * ranks);
        }
        Ok(())
    }
    /// Adds what the steps of a training pass have missed. Collective.
    ///
    /// # Errors
    /// `Device` or `Comm` if the counts cannot be read or added up.
    pub fn end_pass(&mut self, model: &dyn EventModel, core: &mut TaskCore) -> Result<()> {
        self.missed.as_mut().map_or(Ok(()), |record| add_missed(record, model, core))
    }
    /// Ends an epoch: measures how long ranks have idled. Collective.
    ///
    /// # Errors
    /// `Comm`.
    pub fn end_epoch(&mut self, core: &mut TaskCore) -> Result<()> {
        if let Some(place) = core.nodes.in_turn {
            self.idle = measured(core, place)?;
        }
        Ok(())
    }
    /// Returns the record of a run, with this rank's `accesses` to node memory.
    pub fn record(&self, accesses: Vec<Access>) -> PlanRecord {
        let staleness = self.online.as_ref().map(|online| Choice::Staleness(online.choice.clone()));
        let parts = self.micro_batches.clone().map(Choice::MicroBatches);
        PlanRecord {
            chosen: parts.or(staleness),
            costs: None,
            staleness: self.missed.clone(),
            pipeline: self.idle.clone(),
            accesses,
        }
    }
}

/// Gives all ranks the `state` of the first copy, which has seen the whole part of `batches` batches in
/// order. Copies that begin elsewhere keep theirs for the next epoch. Collective.
///
/// # Errors
/// `Comm`; `Device` if the state cannot be read.
pub(in crate::task::events) fn share_state(
    core: &mut TaskCore,
    state: &[BufferId],
    batches: usize,
) -> Result<()> {
    let (Some(ranks), true) = (core.device.ranks().cloned(), core.nodes.turns.copies > 1) else {
        return Ok(());
    };
    let store = &mut core.store;
    store.fetch(state)?;
    if core.nodes.turns.first(batches) > 0 {
        let own = state.iter().map(|&id| Ok(store.raw(id)?.to_vec()));
        core.nodes.own = Some(own.collect::<Result<_>>()?);
    }
    let control = ranks.channel(Channel::Control);
    state.iter().try_for_each(|&id| control.broadcast(0, store.raw_mut(id)?))
}
