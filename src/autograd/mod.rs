//! From a recorded tape to a training step: parameters with their optimiser, and programs planned into an arena.
//!
//! The reverse pass itself is [`Tape::backward`](crate::ops::Tape::backward): it appends to the tape.
mod ahead;
mod arena;
mod average;
mod device;
mod form;
mod host;
mod lanes;
mod line_up;
mod line_ups;
mod optimizer;
mod program;
mod stages;
mod trace;

pub use average::Average;
pub use lanes::{LANES, Lanes, MOST_AHEAD, Spot};
pub use line_up::{LineUp, Step, periods};
pub use optimizer::{Parameters, ScaledInit, Sums};
pub use program::{OpTime, Program, Repeated};
pub use stages::Stage;
pub use trace::{Resource, Span, Work};
