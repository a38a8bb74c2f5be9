//! How a subject is profiled, and what is measured.
use tgnn::autograd::{OpTime, ShapeTime};
use tgnn_lab::ceilings::{Caches, Work};

/// How it runs.
#[derive(Clone, Copy)]
pub struct How {
    pub runs: usize,
    pub caches: Caches,
    /// Whether ops of a device are launched one by one, for a tool.
    pub by_launch: bool,
}

/// The runs of an op.
pub struct MeasuredOp {
    pub op: &'static str,
    /// The case of a single op; the lane of an op of a step if it is not the first one.
    pub place: String,
    pub runs: usize,
    pub kernels: usize,
    /// Median of a run.
    pub seconds: f64,
    pub work: Work,
    /// The same by the shapes of the operands.
    pub shapes: Vec<ShapeTime>,
}

impl MeasuredOp {
    /// Returns what was measured of an op.
    pub fn new(time: &OpTime, place: String) -> Self {
        let (runs, work) = (time.runs, Work::of_run(time));
        let kernels = time.kernels / runs.max(1);
        let shapes = time.shapes.clone();
        MeasuredOp { op: time.op, place, runs, kernels, seconds: time.median, work, shapes }
    }
}
