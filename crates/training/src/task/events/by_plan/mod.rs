//! What a plan adds to a task on an event stream: which ranks own which rows, older node memory, copies of
//! it, batches in turn, and micro-batches. One rank that runs its steps in order needs none of it.
pub(super) mod micro_batches;
mod owners;
mod pipeline;
mod plan_state;
mod row_plan;
mod staleness;

pub(super) use owners::owners;
pub(super) use plan_state::{PlanState, share_state};
pub(super) use row_plan::set_row_plan;
pub use staleness::staleness_of;
