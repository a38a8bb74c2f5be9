//! Records of when nodes ran.
use super::stages::Stage;
use crate::{
    ops::{Cost, OpKind, Tag},
    runtime::comm::TrafficKind,
};
use std::time::Instant;

/// The resource for which an op competes with an op that runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory bandwidth of the device: sparse products, gathers, copies within the device.
    Memory,
    /// Arithmetic units.
    Arithmetic,
    /// The link from host to device, for rows of a table in host memory.
    ToDevice,
    /// The link from device to host.
    ToHost,
    /// Links between ranks.
    Links,
}

impl Resource {
    /// All resources, in the order in which cost models list them.
    pub const ALL: [Resource; 5] = {
        use Resource::{Arithmetic, Links, Memory, ToDevice, ToHost};
        [Memory, Arithmetic, ToDevice, ToHost, Links]
    };
    /// Returns the resource of an op of kind `kind`, given whether it reads or changes a table in host
    /// memory.
    pub(super) fn for_op(kind: OpKind, reads_host: bool, changes_host: bool) -> Self {
        match kind {
            OpKind::Comm => Resource::Links,
            OpKind::Nn => Resource::Arithmetic,
            _ if changes_host => Resource::ToHost,
            _ if reads_host => Resource::ToDevice,
            OpKind::Graph | OpKind::Copy => Resource::Memory,
        }
    }
    /// Whether two ops at a time take as long as one after the other, because a single copy saturates its
    /// link.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Resource::ToDevice | Resource::ToHost | Resource::Links)
    }
    /// Returns the name of the resource in timelines.
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

/// Description of a node, for timelines and predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeInfo {
    /// Name of the op.
    pub op: &'static str,
    /// Kind of the op.
    pub kind: OpKind,
    /// Resource for which the op competes with ops of other lanes.
    pub resource: Resource,
    /// Stage of the node.
    pub stage: Stage,
    /// Section of the node, and whether it belongs to the backward pass.
    pub tag: Tag,
    /// Lane of the node, from 0.
    pub lane: usize,
    /// Compulsory bytes and operations, at full row counts.
    pub cost: Cost,
    /// What the node exchanges with other ranks; `None` if it does not communicate.
    pub traffic: Option<TrafficKind>,
    /// Number of columns of the first output, or of the first input if the op has no output.
    pub cols: usize,
}

/// One run of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Description of the node.
    pub node_info: NodeInfo,
    /// Index of the node, in the [order](super::Program::stages) of its variant.
    pub node: usize,
    /// Step of the trace, from 0.
    pub step: usize,
    /// Start, in seconds since the trace began.
    pub start: f64,
    /// End, in seconds since the trace began.
    pub end: f64,
    /// Bytes and operations of this run, at its live row counts; on a CUDA device, at full row counts.
    pub cost: Cost,
}

impl Span {
    /// Returns the description of the node with the cost of this run.
    pub fn live(&self) -> NodeInfo {
        NodeInfo { cost: self.cost, ..self.node_info }
    }
}

/// One run of a node, as the executor records it.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub step: usize,
    pub variant: usize,
    pub node: usize,
    pub start: Instant,
    pub end: Instant,
    /// Cost at live row counts; `None` if they are not known.
    pub cost: Option<Cost>,
}

/// The runs of nodes since a trace began.
pub(super) struct Trace {
    pub began: Instant,
    /// Number of steps so far.
    pub steps: usize,
    /// Steps that are recorded: the first ones.
    pub recorded: usize,
    pub ran: Vec<Ran>,
}

impl Trace {
    /// Begins a trace of this many steps.
    pub fn new(recorded: usize) -> Self {
        Trace { began: Instant::now(), steps: 0, recorded, ran: Vec::new() }
    }
}
