//! What is decided about ranks before a task is built.
use super::owners::owners;
use crate::{
    plan::{Plan, RankFeatures, RankMemory},
    task::{
        config::Config,
        training::{agree, stream},
    },
};
use std::sync::Arc;
use tgnn::{
    error::{Error, Result},
    runtime::{
        Device,
        comm::{Channel, Ranks, launched},
    },
};
use tgnn_data::{Events, Split};

/// What is decided about ranks before a task is built. One rank has all rows, and a single copy of them.
#[derive(Clone)]
pub(in crate::task::events) struct OverRanks {
    /// The owner of each node; `None` if every rank keeps the memory of all nodes, or there is one rank.
    pub owners: Option<Arc<Vec<u32>>>,
    /// Whether ranks may keep a share of the features each if all features do not fit on a device.
    pub may_partition: bool,
    /// Number of copies of the node memory on this computer; the parts of a partitioned memory count as one.
    pub copies_here: usize,
}

impl OverRanks {
    /// Decides by a configuration. Returns the plan for the ranks of a copy of the node memory, too.
    /// Collective.
    ///
    /// # Errors
    /// `Usage` if the plan does not fit the model; `Comm` if the ranks disagree; as [`launched`].
    pub fn new(
        config: &Config,
        events: &Events,
        split: &Split,
        plan: Plan,
        device: &Device,
    ) -> Result<(Plan, Self)> {
        let copies = plan.ranks.unwrap_or_default().parallel.memory;
        let plan = plan.of_ranks(device.ranks().map_or(1, Ranks::size) / copies.max(1));
        let Some(ranks) = device.ranks() else {
            return Ok((plan, OverRanks { owners: None, may_partition: false, copies_here: 1 }));
        };
        let plan = plan.in_program_order();
        agree(ranks, config, &identity(events))?;
        let may_partition = may_partition(config, &plan, ranks)?;
        let owners = owners(config, &plan, events, split, ranks)?.map(Arc::new);
        let copies_here = copies_here(&plan, ranks)?;
        Ok((plan, OverRanks { owners, may_partition, copies_here }))
    }
}

/// Returns the number of copies of the node memory on this computer.
fn copies_here(plan: &Plan, ranks: &Ranks) -> Result<usize> {
    if plan.ranks.unwrap_or_default().memory == RankMemory::Partitioned {
        return Ok(1);
    }
    let here = match ranks.channel(Channel::Control).local() {
        Some(_) => Some(ranks.size()),
        None => launched()?.and_then(|launched| launched.local_size),
    };
    Ok(here.unwrap_or(1))
}

/// Whether ranks may keep a share of the features each if all features do not fit on a device.
fn may_partition(config: &Config, plan: &Plan, ranks: &Ranks) -> Result<bool> {
    let can = config.event_model()?.partitions_features();
    match plan.ranks.unwrap_or_default().features {
        Some(RankFeatures::Partitioned) if !can => {
            let what = format!(
                "the plan {} partitions features, and the model {} reads them from its own rank alone",
                plan.name,
                config.model_name()
            );
            Err(Error::usage(what).remedy("leave out ranks.features"))
        }
        None => Ok(can && ranks.size() > 1),
        Some(_) => Ok(false),
    }
}

/// Returns numbers by which ranks recognise that they have the same events.
fn identity(events: &Events) -> String {
    format!("{} events, {} nodes, checksum {:08x}", events.len(), events.nodes, stream(events))
}
