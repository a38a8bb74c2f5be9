//! The headline kernels as plain functions over the caller's own arrays: no tape, no store, no events.
//!
//! | function | computes |
//! | --- | --- |
//! | [`spmm`], [`spmm_grad`] | a sparse matrix ([`Csr`]) times a dense one, and the gradient of the dense one |
//! | [`recent_neighbors`] | the latest events of nodes before given times ([`EventLists`]) |
//! | [`gru_memory`], [`gru_memory_grad`] | TGN's memory update, and the gradients of its weights |
//! | [`temporal_attention`], [`temporal_attention_grad`] | attention over temporal neighbours, and its gradients |
//!
//! Matrices are slices, row by row. The functions run on the current team of threads: one thread, unless the
//! caller is inside of [`Device::install`](crate::runtime::Device::install) ([`on_threads`] does that).
//! All other ops, other threads, scratch of the caller and devices: see [`Call`](super::Call) and
//! [`DeviceCall`](super::DeviceCall).
mod attention;
mod memory;
mod neighbors;
mod sparse;

use crate::{
    error::Result,
    runtime::{Device, NONE},
};
pub use attention::{
    AttentionGrads, AttentionOutput, AttentionRows, temporal_attention, temporal_attention_grad,
};
pub use memory::{GruGrads, GruWeights, MemoryTables, UpdatedMemory, gru_memory, gru_memory_grad};
pub use neighbors::{EventLists, RecentSlots, recent_neighbors};
pub use sparse::{Csr, CsrRows, CsrTable, CsrVars, DeviceCsr, spmm, spmm_grad};

/// Runs `work` with `threads` threads (0: one per core), which its calls of kernels share. The threads are
/// started once per process, see [`Device::shared_cpu`].
///
/// ```
/// use tgnn::{ops::functions::on_threads, runtime::team};
/// assert_eq!(on_threads(2, team::threads)?, 2);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
///
/// # Errors
/// `Device` if the threads cannot be started, `Usage` if there are too many.
pub fn on_threads<T>(threads: usize, work: impl FnOnce() -> T) -> Result<T> {
    Ok(Device::shared_cpu(threads)?.install(work))
}

/// Returns the number of rows of a table of `len` numbers that `ids` refer to: given by its width, or, if the
/// rows are empty, as many as the ids need.
fn table_rows(len: usize, width: usize, ids: &[u32]) -> usize {
    let needed = || ids.iter().filter(|&&id| id != NONE).max().map_or(0, |&id| id as usize + 1);
    len.checked_div(width).unwrap_or_else(needed)
}
