//! The tests of the kernels, in one crate.
// A table of cases is read line by line.
#![allow(clippy::too_many_lines)]
mod calls;
mod clusters;
mod device_calls;
mod emulated;
mod functions;
mod layers;
mod machine_code;
mod matrix_units;
mod mpi;
mod operands;
mod ops;
mod ptx;
mod ptx_faults;
mod ptx_instructions;
mod soundness;
mod step_ops;
mod support;
