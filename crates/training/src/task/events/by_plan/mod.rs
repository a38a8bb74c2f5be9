//! What a plan adds to a task on an event stream: which ranks own which rows, older node memory, copies of
//! it, batches in turn, and micro-batches. One rank that runs its steps in order takes the first branch
//! everywhere.
mod micro_batches;
mod over_ranks;
mod owners;
mod pipeline;
mod plan_state;
mod row_plan;
mod staleness;
mod variants;

pub(super) use micro_batches::task_of_run;
pub(super) use over_ranks::OverRanks;
pub(super) use plan_state::PlanState;
pub(super) use row_plan::{set_row_plan, steps_of_run};
pub use staleness::staleness_of;
pub(super) use variants::{StepPlan, StepVariants};
