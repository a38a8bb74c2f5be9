//! Graphs that time ops on a device.
use crate::runtime::{
    Var,
    cuda::{CudaEvent, CudaGraph, DeviceBuffer},
};

/// Nodes as a graph that also marks when each begins and ends: these are times of the device, however long
/// the host takes for a launch.
pub struct TimedGraph {
    pub graph: CudaGraph,
    pub marked: Marks,
}

/// What launches of nodes leave to be read: when each ran, and how many rows were live.
pub struct Marks {
    pub events: Vec<CudaEvent>,
    /// For each node, the events before and after it.
    pub between: Vec<[usize; 2]>,
    /// Number of kernels of each node.
    pub kernels: Vec<usize>,
    /// Counts of live rows, one u32 after another.
    pub counts: DeviceBuffer,
    /// The run and the value of each count.
    pub counted: Vec<(usize, Var)>,
}
