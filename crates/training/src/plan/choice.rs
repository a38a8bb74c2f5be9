//! What a plan leaves to measurements, as chosen in a run.
use super::{GroupChoice, MicroBatchChoice, StalenessChoice};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a plan leaves to measurements, as chosen in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Choice {
    /// The assignment of a group's snapshots to lanes.
    Groups(GroupChoice),
    /// The number of micro-batches.
    MicroBatches(MicroBatchChoice),
    /// The staleness of node memory.
    Staleness(StalenessChoice),
}

/// One line for the user.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Groups(choice) => choice.fmt(f),
            Choice::MicroBatches(choice) => choice.fmt(f),
            Choice::Staleness(choice) => choice.fmt(f),
        }
    }
}
