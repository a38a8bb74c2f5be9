//! What a run may choose by a word: what is predicted, and how it is measured.
use crate::{
    data::{Events, Split},
    error::{Error, Result},
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How negatives are drawn and what is measured. Figures of different protocols are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One negative from the destinations, in training from those of training events; AP and AUC over the whole split. After
    /// DyGLib, but no event is held out of training.
    Dyglib,
    /// One negative from all nodes; AP and AUC over the whole split (TGL averages over batches).
    Tgl,
    /// Mean reciprocal rank against 49 negatives, from the destinations where the stream is bipartite, else from all
    /// nodes; ties count by the mean of the optimistic and the pessimistic rank.
    Disttgl,
    /// TGB's: for every event the negatives that come with the data; mean reciprocal rank, ties as in `disttgl`. Training
    /// draws one from the destinations.
    Tgb,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 4] = [Protocol::Dyglib, Protocol::Tgl, Protocol::Disttgl, Protocol::Tgb];
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Dyglib => "dyglib",
            Protocol::Tgl => "tgl",
            Protocol::Disttgl => "disttgl",
            Protocol::Tgb => "tgb",
        }
    }
    /// Negatives an event when evaluating, where they are drawn at random.
    pub fn negatives(self) -> usize {
        if self == Protocol::Disttgl { 49 } else { 1 }
    }
    /// Whether a model is tested from memory made anew, as TGL does: it resets memory, and goes over the events that train and
    /// validate with the best epoch's weights before it tests.
    pub fn replays(self) -> bool {
        self == Protocol::Tgl
    }
    /// Nodes that a negative of training may be.
    pub fn training_pool(self, events: &Events, split: &Split) -> Vec<u32> {
        if self == Protocol::Dyglib { unique(&events.dst[split.train.clone()]) } else { self.pool(events) }
    }
    /// Nodes that a random negative of validation and test may be.
    pub fn pool(self, events: &Events) -> Vec<u32> {
        let destinations = match self {
            Protocol::Dyglib | Protocol::Tgb => true,
            Protocol::Tgl => false,
            Protocol::Disttgl => events.first_destination.is_some(),
        };
        if destinations { unique(&events.dst) } else { (0..events.nodes as u32).collect() }
    }
}

fn unique(nodes: &[u32]) -> Vec<u32> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

impl FromStr for Protocol {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Protocol::ALL.into_iter().find(|p| p.name() == s).ok_or_else(|| {
            Error::usage(format!("there is no protocol `{s}`")).remedy("give dyglib, tgl, disttgl or tgb")
        })
    }
}

/// Which negatives validation and test have, where the protocol leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NegativeKind {
    /// Drawn evenly.
    Random,
    /// Pairs that had an event before, and have none in the batch.
    Historical,
    /// Such pairs, that had none before the part.
    Inductive,
}

impl NegativeKind {
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            NegativeKind::Random => "random",
            NegativeKind::Historical => "historical",
            NegativeKind::Inductive => "inductive",
        }
    }
}

impl FromStr for NegativeKind {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "random" => Ok(NegativeKind::Random),
            "historical" => Ok(NegativeKind::Historical),
            "inductive" => Ok(NegativeKind::Inductive),
            _ => Err(Error::usage(format!("there are no negatives `{s}`"))
                .remedy("give random, historical or inductive")),
        }
    }
}

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskName {
    /// Which events happen.
    Link,
    /// Classes of an event's source: the state of a node, as events show it.
    Node,
    /// Classes of an event.
    Edge,
    /// Values of vertices.
    Regression,
}

impl TaskName {
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            TaskName::Link => "link",
            TaskName::Node => "node",
            TaskName::Edge => "edge",
            TaskName::Regression => "regression",
        }
    }
}

impl FromStr for TaskName {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "link" => Ok(TaskName::Link),
            "node" => Ok(TaskName::Node),
            "edge" => Ok(TaskName::Edge),
            "regression" => Ok(TaskName::Regression),
            _ => {
                Err(Error::usage(format!("there is no task `{s}`"))
                    .remedy("give link, node, edge or regression"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn only_dyglib_trains_against_the_destinations_of_training_alone() {
        let events = data::bundled().unwrap();
        let split = Split::by_time(&events, 0.7, 0.15).unwrap();
        let of_training = unique(&events.dst[split.train.clone()]);
        assert!(of_training.len() < unique(&events.dst).len(), "some pages come later");
        for protocol in Protocol::ALL {
            let pool = protocol.training_pool(&events, &split);
            let wants =
                if protocol == Protocol::Dyglib { of_training.clone() } else { protocol.pool(&events) };
            assert_eq!(pool, wants, "{protocol:?}");
        }
        assert_eq!(
            Protocol::Dyglib.pool(&events),
            unique(&events.dst),
            "what is evaluated is drawn from all"
        );
    }
}
