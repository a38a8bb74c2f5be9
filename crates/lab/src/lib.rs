//! The lab: what the kernels of `tgnn` are compared with. A [`Rival`] does the work of an op by other code,
//! on the same operands; [`Rivals`] has those of NVIDIA's libraries, if they are installed. `tgnn-bench
//! kernels` shows them.
mod cublaslt;
mod cusparse;
mod rival;
mod rivals;

pub use rival::Rival;
pub use rivals::{Found, Rivals};
