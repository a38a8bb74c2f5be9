//! Choices of a run that have a name: the task, the protocol and the kind of negatives.
use serde::{Deserialize, Serialize};
use tgnn::ops::sample_neighbors::History;
use tgnn_data::{Events, Snapshots, Split, names};

/// How negatives are drawn and which metrics are computed. Metrics of different protocols are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// DyGLib's protocol, but without events held out of training: one negative, drawn from the destinations
    /// (in training, from the destinations of the training events); AP and AUC over the whole part (DyGLib
    /// averages over batches).
    Dyglib,
    /// TGL's protocol: one negative, drawn from all nodes; AP and AUC over the whole part (TGL averages over
    /// batches).
    Tgl,
    /// DistTGL's protocol: mean reciprocal rank against 49 negatives, drawn from the destinations if the
    /// stream is bipartite, else from all nodes. The rank of a tied event is the mean of its optimistic and
    /// pessimistic rank.
    Disttgl,
    /// TGB's protocol: mean reciprocal rank against the negatives that come with the data for every event,
    /// with ties as in `disttgl`. Training draws one negative from the destinations.
    Tgb,
}

impl Protocol {
    /// Returns which events a query sees as neighbours. The authors of DyGLib and of TGL search by time
    /// alone; DistTGL has TGL's sampler. TGB's example code fills its neighbour loader with a batch after the
    /// batch is scored.
    pub fn history(self) -> History {
        if self == Protocol::Tgb { History::Batch } else { History::Time }
    }
    /// Returns the number of negatives per event in evaluation, if they are drawn at random.
    pub fn negatives(self) -> usize {
        if self == Protocol::Disttgl { 49 } else { 1 }
    }
    /// Returns whether a model is tested with replayed node memory, as in TGL: before the test, the memory is
    /// cleared and the model processes the training and validation events with the weights of the best epoch.
    pub fn replays(self) -> bool {
        self == Protocol::Tgl
    }
    /// Returns the nodes that training negatives are drawn from.
    pub fn training_pool(self, events: &Events, split: &Split) -> Vec<u32> {
        if self == Protocol::Dyglib { unique(&events.dst[split.train.clone()]) } else { self.pool(events) }
    }
    /// Returns the nodes that random negatives of validation and test are drawn from.
    pub fn pool(self, events: &Events) -> Vec<u32> {
        let destinations = match self {
            Protocol::Dyglib | Protocol::Tgb => true,
            Protocol::Tgl => false,
            Protocol::Disttgl => events.first_destination.is_some(),
        };
        if destinations { unique(&events.dst) } else { (0..events.nodes as u32).collect() }
    }
}

/// Returns the unique values of `nodes`, sorted.
fn unique(nodes: &[u32]) -> Vec<u32> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The kind of negatives in validation and test, for protocols that leave it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NegativeKind {
    /// Drawn uniformly.
    Random,
    /// Pairs that had an event before the batch and have none in it.
    Historical,
    /// Historical negatives whose pair had no event before the part.
    Inductive,
}

/// Which events a query sees as neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HistoryRule {
    /// As the protocol says.
    Auto,
    /// Those strictly earlier in time, events of the query's batch among them.
    Time,
    /// Those of earlier batches that are strictly earlier in time.
    Batch,
}

impl From<History> for HistoryRule {
    fn from(history: History) -> Self {
        match history {
            History::Time => HistoryRule::Time,
            History::Batch => HistoryRule::Batch,
        }
    }
}

/// What a run predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskName {
    /// Events: which pairs of nodes interact.
    Link,
    /// Classes of the source of an event: the state of that node at the time of the event.
    Node,
    /// Classes of events.
    Edge,
    /// Values of vertices.
    Regression,
    /// Labels of nodes at times: weights of classes.
    Property,
}

impl TaskName {
    /// Returns the task that snapshots suit: values if they have values to predict, else classes of vertices
    /// if they have such, else links.
    pub fn suited_to(snapshots: &Snapshots) -> Self {
        match (&snapshots.targets, &snapshots.classes) {
            (Some(_), _) => TaskName::Regression,
            (None, Some(_)) => TaskName::Node,
            (None, None) => TaskName::Link,
        }
    }
}

names!(Protocol, "protocol", [Dyglib => "dyglib", Tgl => "tgl", Disttgl => "disttgl", Tgb => "tgb"]);
names!(NegativeKind, "kind of negatives", [
    Random => "random", Historical => "historical", Inductive => "inductive"
]);
names!(HistoryRule, "history", [Auto => "auto", Time => "time", Batch => "batch"]);
names!(TaskName, "task", [
    Link => "link", Node => "node", Edge => "edge", Property => "property", Regression => "regression"
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dyglib_restricts_training_negatives_to_the_destinations_of_training_events() {
        let events = tgnn_data::bundled().unwrap();
        let split = Split::by_time(&events, 0.7, 0.15).unwrap();
        let training_destinations = unique(&events.dst[split.train.clone()]);
        assert!(training_destinations.len() < unique(&events.dst).len(), "some pages come later");
        for protocol in Protocol::ALL {
            let pool = protocol.training_pool(&events, &split);
            let want = match protocol {
                Protocol::Dyglib => training_destinations.clone(),
                _ => protocol.pool(&events),
            };
            assert_eq!(pool, want, "{protocol:?}");
        }
        assert_eq!(
            Protocol::Dyglib.pool(&events),
            unique(&events.dst),
            "evaluation draws from all destinations"
        );
    }
}
