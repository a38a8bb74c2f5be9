//! The lab: how fast the kernels of `tgnn` are, and beside what. A [`Rival`] does the work of an op by other
//! code, on the same operands; [`Rivals`] has those of NVIDIA's libraries, if they are installed.
//! [`ceilings`] are the peak rates of a device, and [`ncu`] reads what Nsight Compute has counted.
//! `tgnn-bench kernels` and `tgnn-bench profile` show all this.
pub mod ceilings;
mod csv;
mod cublaslt;
mod cusparse;
pub mod ncu;
mod rival;
mod rivals;

pub use rival::Rival;
pub use rivals::{Found, Rivals};
