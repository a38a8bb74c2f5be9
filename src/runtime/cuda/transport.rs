//! What makes the windows of other ranks readable.
use super::CudaStream;
use crate::error::Result;
use std::fmt;

/// What makes the windows of a channel readable for all ranks: from the memory of the devices
/// ([`peers`](super::peers)), or from copies that NCCL makes ([`nccl`](super::nccl)). The methods submit work
/// to a stream.
pub(super) trait Transport: fmt::Debug + Send + Sync {
    /// Returns address and bytes of each rank's window, as the kernels of this rank read it.
    fn blocks(&self) -> Vec<[u64; 2]>;
    /// Submits what must be done before this rank writes its window.
    fn before_write(&self, stream: &CudaStream) -> Result<()>;
    /// Submits what must be done after that, and before this rank reads all windows.
    fn before_read(&self, stream: &CudaStream) -> Result<()>;
    /// Submits what must be done after that.
    fn after_read(&self, stream: &CudaStream) -> Result<()>;
    /// Whether a graph can capture the work: its streams wait for the other ranks, and the host does not.
    fn is_captured(&self) -> bool;
    /// Whether another rank is known not to have come as far as this one.
    fn is_behind(&self, rank: usize) -> bool;
    /// Checks that no work has failed.
    fn check(&self) -> Result<()>;
    /// Ends what the streams of this rank wait for now. The channel must not be used any more.
    fn release(&self);
}
