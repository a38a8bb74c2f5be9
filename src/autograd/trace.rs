//! When nodes ran.
use super::stages::Stage;
use crate::ops::{Cost, Kind, Part};
use std::time::Instant;

/// What a node does, as timelines tell of it and predictions go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The op.
    pub op: &'static str,
    /// What it competes for.
    pub kind: Kind,
    /// Of which stage it is.
    pub stage: Stage,
    /// What it is for.
    pub part: Part,
    /// On which lane.
    pub lane: usize,
    /// Compulsory bytes and operations, at full row counts.
    pub cost: Cost,
    /// Columns of what it makes.
    pub cols: usize,
}

/// One run of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// What it does.
    pub work: Work,
    /// Which of the program's nodes, in [order](super::Program::stages).
    pub node: usize,
    /// In which step of the trace.
    pub step: usize,
    /// Seconds since the trace began.
    pub start: f64,
    /// Likewise.
    pub end: f64,
}

/// A node's run as whoever runs it notes it down.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub step: usize,
    pub form: usize,
    pub node: usize,
    pub start: Instant,
    pub end: Instant,
}

/// Runs of nodes since a trace began.
pub(super) struct Trace {
    pub began: Instant,
    /// Steps so far.
    pub steps: usize,
    pub ran: Vec<Ran>,
}

impl Trace {
    pub fn new() -> Self {
        Trace { began: Instant::now(), steps: 0, ran: Vec::new() }
    }
}
