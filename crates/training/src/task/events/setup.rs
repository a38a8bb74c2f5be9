//! What is decided before a task is built: the device, the parts of the stream, and the plan.
use super::by_plan::OverRanks;
use crate::{plan::Plan, task::config::Config};
use tgnn::{error::Result, runtime::Device};
use tgnn_data::{Events, Split};

/// What is decided before a task is built. Several tasks can share it.
#[derive(Clone)]
pub(super) struct Setup {
    pub device: Device,
    pub split: Split,
    pub plan: Plan,
    pub over_ranks: OverRanks,
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
        let plan = config.plan_on(&device)?;
        let (plan, over_ranks) = OverRanks::new(config, events, &split, plan, &device)?;
        Ok(Setup { device, split, plan, over_ranks })
    }
}
