//! The plan of a run, checked against its model, its other keys and its ranks, or chosen for them.
use super::planned;
use crate::{
    settings::{RankArgs, is_on_gpu},
    train_data::Data,
};
use tgnn::error::Result;
use tgnn_training::{plan::Plan, task::Config};

/// Checks that the plan of a configuration fits its model, its other keys and its ranks. What the planner
/// will choose is not known yet.
///
/// # Errors
/// `Plan` or `Usage` if it does not fit.
pub fn check(config: &Config, ranks: &RankArgs) -> Result<()> {
    if config.plan == Plan::PLANNED && !config.model.reads_snapshots() {
        return Ok(());
    }
    config.plan_over(is_on_gpu(config), ranks.size()?).map(drop)
}

/// Returns the configuration with a plan that fits the data and the ranks. Where the planner chooses it, its
/// reasons are added to `notes`.
///
/// # Errors
/// Those of the planner, and of [`check`].
pub fn fitted(config: Config, data: &Data, ranks: &RankArgs, notes: &mut Vec<String>) -> Result<Config> {
    let Data::Events(events) = data else { return Ok(config) };
    let Some((config, reasons)) = planned(&config, events, (ranks.size()?, ranks.size_of_node()?))? else {
        return Ok(config);
    };
    notes.extend(reasons);
    check(&config, ranks)?;
    Ok(config)
}
