//! Ranks that get batches in turn: how long each of them idles (PipeTGL, theorem 4.1).
use crate::{
    plan::{Bubble, Timeline},
    task::training::{BubbleRecord, TaskCore},
};
use tgnn::error::Result;

/// Rounds at the beginning of an epoch whose ops are timed.
pub(super) const TIMED_ROUNDS: usize = 16;

/// Returns how long each rank idled in the timed steps of the last pass; this rank is at `place` of the ranks
/// that get batches in turn. Ends the trace, unless it was asked for. Collective.
pub(super) fn measured(core: &mut TaskCore, place: [usize; 2]) -> Result<Vec<BubbleRecord>> {
    let spans = if core.traced { core.step.trace() } else { core.step.end_trace() };
    let [rank, ranks] = place;
    let own = Bubble::measure(&Timeline::new(spans), rank, ranks);
    let Some(all) = core.device.ranks() else { return Ok(Vec::new()) };
    let own = serde_json::to_vec(&own).unwrap_or_default();
    let of_ranks = all.gathered(&own)?.into_iter();
    let of_ranks = of_ranks.filter_map(|json| serde_json::from_slice::<Option<Bubble>>(&json).ok()?);
    Ok(of_ranks.map(|measured| BubbleRecord { idle_by_formula: measured.by_formula(), measured }).collect())
}
