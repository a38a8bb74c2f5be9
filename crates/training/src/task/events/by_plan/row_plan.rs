//! How steps get the rows of nodes, as the plan of a task says: over ranks, in turns, or older ones.
use super::{owners::travel, staleness::mixed_after};
use crate::{
    model::{EventTables, RankTables},
    plan::RankFeatures,
    task::{config::Config, events::setup::Setup},
};
use tgnn::{
    autograd::LearningRates,
    error::Result,
    ops::next_turn::Turns,
    runtime::{Store, comm::Ranks},
};
use tgnn_data::Events;

/// Sets how the steps of training, in batches of at most `batch` events, and of evaluation get rows. Returns
/// the batches that this rank gets in training. To be called before the model is built. Collective.
///
/// # Errors
/// `Usage` if the plan does not fit the number of ranks; `OutOfMemory`; `Comm`.
pub(in crate::task::events) fn set_row_plan(
    setup: &Setup,
    events: &Events,
    batch: usize,
    tables: &mut EventTables,
    store: &mut Store,
) -> Result<Turns> {
    let Setup { device, plan, split, .. } = setup;
    tables.training.older = plan.staleness().memory > 0;
    tables.training.mixed_after = mixed_after(plan, events, split);
    tables.training.roots_first = plan.in_turn();
    device.ranks().map_or(Ok(Turns::ALL), |ranks| over_ranks(setup, ranks, batch, tables, store))
}

/// Lets rows travel between `ranks`.
fn over_ranks(
    setup: &Setup,
    ranks: &Ranks,
    batch: usize,
    tables: &mut EventTables,
    store: &mut Store,
) -> Result<Turns> {
    let rank_plan = setup.plan.ranks.unwrap_or_default();
    let (owners, travel) =
        (setup.over_ranks.owners.as_ref().map(|owners| owners.as_slice()), travel(&rank_plan));
    let all = RankTables::new(store, ranks, tables.nodes, owners, travel)?;
    tables.rows.ranks = Some(all.clone());
    if rank_plan.features == Some(RankFeatures::Partitioned) {
        tables.partition_features(store)?;
    }
    let turns = rank_plan.parallel.for_ranks(ranks.size())?.turns(ranks.rank());
    let training = match turns {
        Turns::ALL => all,
        _ => {
            let with_copy = ranks.split(turns.copies)?;
            RankTables::new(store, &with_copy, tables.nodes, None, travel)?.in_turns(store, turns, batch)?
        }
    };
    let in_turn = setup.plan.in_turn();
    tables.training.ranks = Some(if in_turn { training.with_whole_batches(batch) } else { training });
    Ok(turns)
}

/// Returns the steps of all epochs of so many batches each; 0 if no learning rate depends on them.
///
/// # Errors
/// `Usage` if there are too many.
pub(in crate::task::events) fn steps_of_run(
    config: &Config,
    turns: Turns,
    batches_of_epoch: impl Fn(usize) -> usize,
) -> Result<usize> {
    if !config.optimizer.depends_on_steps() {
        return Ok(0);
    }
    let steps = |epoch| turns.steps(batches_of_epoch(epoch).min(config.most_batches()));
    // Epochs differ by a batch at most.
    LearningRates::check_steps(config.epochs.saturating_mul(1 + steps(0)))?;
    Ok((0..config.epochs).step_by(turns.groups).map(steps).sum())
}
