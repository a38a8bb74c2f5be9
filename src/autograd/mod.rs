//! Turns a recorded tape into a training step: parameters with their optimiser, and programs with planned
//! memory.
//!
//! The backward pass itself is appended to the tape by [`Tape::backward`](crate::ops::Tape::backward).
mod arena;
mod average;
mod device;
mod host;
mod idle;
mod lane_threads;
mod lanes;
mod optimizer;
mod optimizer_config;
mod ordering;
mod parts;
mod placing;
mod prefetchable;
mod program;
mod run;
mod schedule;
mod schedule_cache;
mod stages;
mod staleness;
mod timed_graph;
mod trace;
mod variant;
mod windows;

pub use average::Average;
pub use lanes::{Lanes, MAX_LANES, MAX_PREFETCH_DEPTH, Order, Placement};
pub use optimizer::{Parameters, ScaledInit, Sums};
pub use optimizer_config::{LearningRates, Optimizer, RateDecay, UpdateRule};
pub use program::{Alone, MostRows, OpTime, Program, ShapeTime};
pub use run::RepeatProgress;
pub use schedule::{Schedule, ScheduledNode, in_order};
pub use stages::Stage;
pub use staleness::{Precedence, Staleness};
pub use trace::{NodeInfo, Resource, Span};
pub use windows::Window;
