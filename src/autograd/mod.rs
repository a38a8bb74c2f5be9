//! From a recorded tape to a training step: parameters with their optimiser, and programs planned into an arena.
//!
//! The reverse pass itself is [`Tape::backward`](crate::ops::Tape::backward): it appends to the tape.
mod ahead;
mod arena;
mod device;
mod host;
mod lanes;
mod optimizer;
mod program;
mod trace;

pub use lanes::{LANES, Lanes};
pub use optimizer::{Parameters, ScaledInit, Sums};
pub use program::{OpTime, Program};
pub use trace::Span;
