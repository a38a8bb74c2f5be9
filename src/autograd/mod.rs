//! From a recorded tape to a training step: parameters with their optimiser, and programs planned into an arena.
//!
//! The backward pass itself is [`Tape::backward`](crate::ops::Tape::backward): it appends to the tape.
mod arena;
mod average;
mod device;
mod host;
mod lanes;
mod optimizer;
mod prefetchable;
mod program;
mod schedule;
mod schedule_cache;
mod stages;
mod trace;
mod variant;

pub use average::Average;
pub use lanes::{LANES, Lanes, MAX_PREFETCH_DEPTH, Placement};
pub use optimizer::{Parameters, ScaledInit, Sums};
pub use program::{OpTime, Program, RepeatProgress};
pub use schedule::{Schedule, ScheduledNode, periods};
pub use stages::Stage;
pub use trace::{NodeInfo, Resource, Span};
