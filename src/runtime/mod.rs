//! Storage of values and execution on a device: shapes ([`Spec`]), stored buffers ([`Store`]), the operands
//! of a running op ([`Io`]), counter-based random numbers ([`philox`]), and the vector and matrix primitives
//! of the CPU.
//!
//! There are two kinds of memory. A [`Store`] holds values that outlive a step: parameters, node memory,
//! tables. An arena holds the values that a step computes; it is planned from the specs before the first
//! step, so nothing is allocated while a step runs.
mod brief_debug;
pub mod cache;
pub(crate) mod changes;
pub mod comm;
pub mod cuda;
mod device;
mod full_memory;
mod gaps;
mod io;
pub mod matmul;
mod matmul_precision;
mod memory;
mod memory_limits;
pub mod nvtx;
pub mod parts;
pub(crate) mod phases;
pub mod philox;
pub(crate) mod simd;
mod spec;
mod status;
mod store;
mod stored;
pub(crate) mod sync;
pub mod team;
pub mod vector;

#[doc(hidden)]
pub use brief_debug::brief_debug;
pub use device::Device;
#[doc(hidden)]
pub use full_memory::{EndsWhenFull, tried};
pub use gaps::Gaps;
pub(crate) use io::BufferView;
pub use io::Io;
pub use matmul_precision::MatmulPrecision;
pub(crate) use memory::{OwnBytes, pages_of};
pub use memory::{available_memory_bytes, peak_memory_bytes};
#[doc(hidden)]
pub use memory::{check_room, size_text, taken_memory_bytes};
pub use spec::{DType, Element, Live, NONE, Precision, Real, Rows, Spec, Var};
pub use status::{Fault, Status};
pub use store::{BufferId, Bytes, Store};
pub(crate) use store::{BufferInfo, Listing, StoreId};
pub use stored::{Stored, StoredAs};
