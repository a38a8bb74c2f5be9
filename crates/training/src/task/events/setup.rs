//! What is decided before a task is built: the device, the parts of the stream, the plan, and which rank owns
//! which node.
use super::by_plan::owners;
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

/// What is decided before a task is built. Several tasks can share it.
#[derive(Clone)]
pub(super) struct Setup {
    pub device: Device,
    pub split: Split,
    pub plan: Plan,
    /// The owner of each node; `None` if every rank keeps the memory of all nodes, or there is one rank.
    pub owners: Option<Arc<Vec<u32>>>,
    /// Whether ranks may keep a share of the features each if all features do not fit on a device.
    pub may_partition: bool,
}

impl Setup {
    /// Decides by a configuration. Over ranks, collective.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself or the device; `Comm` if the ranks disagree.
    pub fn new(config: &Config, events: &Events, device: Device) -> Result<Self> {
        config.validate()?;
        let device = device.multiplying_in(config.precision)?;
        let split = config.split(events)?;
        check_ranks(config, events, &device)?;
        let plan = config.plan_on(&device)?;
        let ranks = device.ranks().map_or(1, Ranks::size);
        let copies = plan.ranks.unwrap_or_default().parallel.memory;
        let plan = plan.of_ranks(ranks / copies.max(1));
        let may_partition = may_partition(config, &plan, &device)?;
        let owners = match device.ranks() {
            Some(ranks) => owners(config, &plan, events, &split, ranks)?.map(Arc::new),
            None => None,
        };
        Ok(Setup { device, split, plan, owners, may_partition })
    }
    /// Returns the number of copies of the node memory on this computer; the parts of a partitioned memory
    /// count as one.
    ///
    /// # Errors
    /// As [`launched`].
    pub fn copies_here(&self) -> Result<usize> {
        let one = self.plan.ranks.unwrap_or_default().memory == RankMemory::Partitioned;
        let Some(ranks) = self.device.ranks().filter(|_| !one) else { return Ok(1) };
        let here = match ranks.channel(Channel::Control).local() {
            Some(_) => Some(ranks.size()),
            None => launched()?.and_then(|launched| launched.local_size),
        };
        Ok(here.unwrap_or(1))
    }
}

/// Whether ranks may keep a share of the features each if all features do not fit on a device.
fn may_partition(config: &Config, plan: &Plan, device: &Device) -> Result<bool> {
    let Some(ranks) = device.ranks() else { return Ok(false) };
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

/// Checks that the ranks, if there are any, agree.
fn check_ranks(config: &Config, events: &Events, device: &Device) -> Result<()> {
    let Some(ranks) = device.ranks() else { return Ok(()) };
    agree(ranks, config, &identity(events))
}

/// Returns numbers by which ranks recognise that they have the same events.
fn identity(events: &Events) -> String {
    format!("{} events, {} nodes, checksum {:08x}", events.len(), events.nodes, stream(events))
}
