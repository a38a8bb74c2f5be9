//! The values that a memory update reads.
use super::*;

/// Row of the edge features that belongs to a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureRow {
    /// The row of the mail's event: the features of known edges are stored once.
    Event,
    /// The row of the mail's node: features are stored per mail, such as a mean.
    Node,
    /// The row of the mail's node among the unique nodes: features were gathered for this step.
    Unique,
}

impl FeatureRow {
    /// Returns the kernels' code of the rule.
    pub(super) fn code(self) -> u32 {
        match self {
            FeatureRow::Event => 0,
            FeatureRow::Node => 1,
            FeatureRow::Unique => 2,
        }
    }
}

/// Node memory and mailbox as values; all but `edge` are state.
///
/// Example: [`Tape::memory_update`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryVars {
    /// `[v, d]` f32 node memory.
    pub memory: Var,
    /// `[v]` i64 times of the last updates, in ticks.
    pub memory_time: Var,
    /// `[v, d]` f32 memory of the partners.
    pub mail: Var,
    /// `[v]` u32 events of the mails, or `NONE`.
    pub mail_event: Var,
    /// `[v]` i64 times of the mails, in ticks.
    pub mail_time: Var,
    /// `[e, f]`, `[v, f]` or `[n, f]` f32 edge features, see [`FeatureRow`].
    pub edge: Var,
    /// Whether all state is rows of the unique nodes, gathered for this step, as is done for 16-bit tables:
    /// `[n, d]` and `[n]`. State that is written is never gathered.
    pub gathered: bool,
}

/// Weights of an update with a cell of g gates: 3 for a GRU, 1 for an RNN.
///
/// Example: [`Tape::memory_update`].
#[derive(Clone, Copy, Debug)]
pub struct CellVars {
    /// `[1, t]` frequencies of the time encoding.
    pub time_w: Var,
    /// `[1, t]` phases of the time encoding.
    pub time_b: Var,
    /// `[g d, 2 d + f + t]` weights of the message.
    pub w_x: Var,
    /// `[g d, d]` weights of the state.
    pub w_h: Var,
    /// `[1, g d]` biases of the message.
    pub b_x: Var,
    /// `[1, g d]` biases of the state.
    pub b_h: Var,
}
