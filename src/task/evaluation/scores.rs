//! The test part: what is told of it, and where the memory comes from that a model has when it begins.
use super::Scores;
use crate::task::config::Protocol;
use serde::{Deserialize, Serialize};

/// Scores of the test part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestScores {
    /// All its events.
    pub transductive: Scores,
    /// Those with a node that no training event has.
    pub inductive: Scores,
}

/// Scores of the test part by where the memory comes from that the model has when the part begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoresByMemory {
    /// Training left it, and validation after it: rows are written by the weights of their time. `None` where that was not measured.
    pub as_trained: Option<TestScores>,
    /// The settled model made it anew, from the first event on. `None` where that was not measured.
    pub replayed: Option<TestScores>,
}

impl ScoresByMemory {
    /// Those that the protocol asks for, else what there is.
    pub(in crate::task) fn asked(&self, protocol: Protocol) -> Option<TestScores> {
        if protocol.replays() { self.replayed.or(self.as_trained) } else { self.as_trained.or(self.replayed) }
    }
}
