//! Fast training of temporal graph neural networks: hand-written ops, a tape that is data, and one training
//! loop.
#![deny(missing_docs)]
pub mod autograd;
pub mod cli;
pub mod data;
pub mod error;
pub mod model;
pub mod ops;
pub mod plan;
pub mod runtime;
pub mod task;
pub mod testing;
