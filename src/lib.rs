//! Training temporal graph neural networks fast: ops written by hand, a tape that is data, one training loop.
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
