//! When nodes ran.
use super::stages::Stage;
use crate::ops::{Cost, OpKind, Tag};
use std::time::Instant;

/// What an op competes for with one that runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The memory of the device: sparse products, gathers, moves within it.
    Memory,
    /// Arithmetic.
    Arithmetic,
    /// The way from the host to the device: rows of a table that the host keeps.
    ToDevice,
    /// The way back.
    ToHost,
    /// Links between ranks.
    Links,
}

impl Resource {
    /// All, in the order in which predictions list them.
    pub const ALL: [Resource; 5] = {
        use Resource::{Arithmetic, Links, Memory, ToDevice, ToHost};
        [Memory, Arithmetic, ToDevice, ToHost, Links]
    };
    /// Of an op of this kind, which reads what the host keeps, or changes it.
    pub(super) fn of(kind: OpKind, reads_host: bool, changes_host: bool) -> Self {
        match kind {
            OpKind::Comm => Resource::Links,
            OpKind::Nn => Resource::Arithmetic,
            _ if changes_host => Resource::ToHost,
            _ if reads_host => Resource::ToDevice,
            OpKind::Graph | OpKind::Copy => Resource::Memory,
        }
    }
    /// Whether two ops at a time take as long as one after the other: a copy alone fills its way.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Resource::ToDevice | Resource::ToHost | Resource::Links)
    }
    /// As timelines write it.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Arithmetic => "arithmetic",
            Resource::ToDevice => "to device",
            Resource::ToHost => "to host",
            Resource::Links => "links",
        }
    }
}

/// What a node does, as timelines tell of it and predictions go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeInfo {
    /// The op.
    pub op: &'static str,
    /// Its kind.
    pub kind: OpKind,
    /// What it competes for.
    pub resource: Resource,
    /// Of which stage it is.
    pub stage: Stage,
    /// What it is for.
    pub tag: Tag,
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
    pub work: NodeInfo,
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
    pub variant: usize,
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
