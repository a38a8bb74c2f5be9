//! Scores of the test part, by the node memory that the model starts the part with.
use super::Scores;
use crate::task::config::Protocol;
use serde::{Deserialize, Serialize};

/// Scores of the test part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestScores {
    /// Scores of all events.
    pub transductive: Scores,
    /// Scores of the events with a node that no training event has.
    pub inductive: Scores,
}

/// Scores of the test part, by the node memory that the model starts the part with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoresByMemory {
    /// With the memory that the training and validation passes left, whose rows were written by the weights
    /// of their time; `None` if it was not measured.
    pub as_trained: Option<TestScores>,
    /// With the memory that the settled model replayed from the first event on; `None` if it was not
    /// measured.
    pub replayed: Option<TestScores>,
}

impl ScoresByMemory {
    /// Returns the scores that the protocol prescribes, or the others if those are missing.
    pub(in crate::task) fn asked(&self, protocol: Protocol) -> Option<TestScores> {
        if protocol.replays() { self.replayed.or(self.as_trained) } else { self.as_trained.or(self.replayed) }
    }
}
