//! When nodes ran.
use crate::ops::{Cost, Kind, Part};
use std::time::Instant;

/// One run of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The op.
    pub op: &'static str,
    /// What it competes for.
    pub kind: Kind,
    /// What it is for.
    pub part: Part,
    /// In which step of the trace.
    pub step: usize,
    /// On which lane.
    pub lane: usize,
    /// Seconds since the trace began.
    pub start: f64,
    /// Likewise.
    pub end: f64,
    /// Compulsory bytes and operations, at full row counts.
    pub cost: Cost,
}

/// A node's run as whoever runs it notes it down.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub step: usize,
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
