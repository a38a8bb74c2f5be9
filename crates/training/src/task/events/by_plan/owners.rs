//! Which rank owns the node memory of which node.
use crate::{
    model::RowTravel,
    plan::{
        Deduplicate, Plan, RankMemory, RankPlan, RankUpdate,
        partition::{Demand, DemandOptions, Partition, Partitioner},
    },
    task::config::Config,
};
use std::path::Path;
use tgnn::{error::Result, runtime::comm::Ranks};
use tgnn_data::{Events, Split};

/// By how much a rank may own more nodes than the mean.
const SLACK: f64 = 0.1;

/// Returns the owner of each node; `None` if every rank keeps the memory of all nodes. The first rank works
/// it out, or reads it from the file that the configuration names. Collective.
pub(super) fn owners(
    config: &Config,
    plan: &Plan,
    events: &Events,
    split: &Split,
    ranks: &Ranks,
) -> Result<Option<Vec<u32>>> {
    let rank_plan = plan.ranks.unwrap_or_default();
    if rank_plan.memory == RankMemory::Replicated {
        return Ok(None);
    }
    let partition = || match config.partition.as_str() {
        "auto" => partitioned(rank_plan.partition, config, events, split, ranks.size()),
        file if file.ends_with(".npy") => Partition::read(Path::new(file), events.nodes, ranks.size()),
        name => partitioned(name.parse()?, config, events, split, ranks.size()),
    };
    let bytes = ranks.from_first(|| Ok(bytemuck::cast_slice(partition()?.rank_of()).to_vec()))?;
    Ok(Some(bytemuck::pod_collect_to_vec(&bytes)))
}

/// Returns how the rows of nodes travel by a plan.
pub(super) fn travel(rank_plan: &RankPlan) -> RowTravel {
    RowTravel {
        micro_batches: rank_plan.micro_batches.count(),
        owners_update: rank_plan.update == RankUpdate::Owners,
        dispatch_repeated: rank_plan.deduplicate != Deduplicate::Both,
        aggregate_repeated: rank_plan.deduplicate == Deduplicate::None,
        cached: rank_plan.memory == RankMemory::Cached,
    }
}

/// Divides the nodes by the rows that ranks need in training.
fn partitioned(
    by: Partitioner,
    config: &Config,
    events: &Events,
    split: &Split,
    ranks: usize,
) -> Result<Partition> {
    let demand = match by {
        // These do not look at the rows.
        Partitioner::Range | Partitioner::Interval => Demand::new(events.nodes, ranks, &[])?,
        _ => {
            let around = config.event_model()?.rows_around();
            let options = DemandOptions {
                ranks,
                batch: config.batch.min(split.train.len()),
                neighbors: around.read,
                recipients: around.written,
                history: config.history(),
                seed: config.seed,
                ..DemandOptions::default()
            };
            Demand::count(events, split.train.clone(), &options)?
        }
    };
    by.partition(&demand, SLACK)
}
