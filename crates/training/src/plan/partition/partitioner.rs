//! Ways to assign nodes to ranks.
#[cfg(feature = "metis")]
use super::metis;
use super::{
    Demand, Partition, re_flex_bicut,
    simple::{interval, range},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use tgnn::error::{Error, ErrorKind, Result};

/// A way to assign nodes to ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Partitioner {
    /// The least cost that a search finds; never more than `Range` and `Interval` cost.
    #[serde(rename = "re-flex-bicut")]
    ReFlexBiCut,
    /// Consecutive nodes, the same number for each rank.
    Range,
    /// Round robin: rank r owns the nodes r, r + N, r + 2 N, and so on. All ranks then have about the same
    /// number of busy nodes.
    #[default]
    Interval,
    /// The least total that METIS finds, with the same number of nodes for each rank. Its random numbers are
    /// those of the C library.
    #[cfg(feature = "metis")]
    Metis,
}

impl Partitioner {
    /// All partitioners of this build.
    pub const ALL: &'static [Partitioner] = &[
        Partitioner::ReFlexBiCut,
        Partitioner::Range,
        Partitioner::Interval,
        #[cfg(feature = "metis")]
        Partitioner::Metis,
    ];

    /// Returns the name in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Partitioner::ReFlexBiCut => "re-flex-bicut",
            Partitioner::Range => "range",
            Partitioner::Interval => "interval",
            #[cfg(feature = "metis")]
            Partitioner::Metis => "metis",
        }
    }
    /// Partitions the nodes of a demand over its ranks.
    ///
    /// No rank owns more than (1 + `slack`) times the mean number of nodes, rounded down, plus one. Every
    /// rank owns a node if there are enough nodes. The result is the same on every machine, METIS's excepted.
    ///
    /// # Errors
    /// `Usage` if `slack` is negative or not a number, or if METIS refuses the demand.
    pub fn partition(self, demand: &Demand, slack: f64) -> Result<Partition> {
        if !(slack >= 0.0 && slack.is_finite()) {
            return Err(Error::usage(format!("slack {slack}")).remedy("give a number, 0 or more"));
        }
        let (nodes, ranks) = (demand.nodes(), demand.ranks());
        let rank_of = match self {
            Partitioner::ReFlexBiCut => re_flex_bicut::search(demand, slack),
            Partitioner::Range => range(nodes, ranks),
            Partitioner::Interval => interval(nodes, ranks),
            #[cfg(feature = "metis")]
            Partitioner::Metis => metis::search(demand, slack)?,
        };
        Partition::new(rank_of, ranks)
    }
}

impl fmt::Display for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Partitioner {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().find(|p| p.name() == name).copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|p| p.name()).collect();
            Error::unknown(ErrorKind::Usage, "partitioner", name, &names)
        })
    }
}
