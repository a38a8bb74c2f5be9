//! The dependencies between the stages of steps, and schedules of whole stages.
use super::{RankMemory, RankPlan, RankUpdate};
use tgnn::autograd::{MAX_LANES, Placement, Precedence, Schedule, ScheduledNode, Stage, Staleness, in_order};

/// A dependency: a stage must follow another stage of the same step or of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Stage that waits.
    pub stage: Stage,
    /// Stage that it waits for.
    pub of: Stage,
    /// Number of steps by which the other stage is earlier; 0 for the same step, negative for later steps.
    pub back: isize,
}

const fn need(stage: Stage, of: Stage, back: isize) -> Need {
    Need { stage, of, back }
}

/// The dependencies that no plan may reverse; all others follow from them. A step reads node memory as the
/// previous step left it, and parameters as well, unless the plan has a staleness
/// ([`Plan::needs`](super::Plan::needs)). The backward pass, in `embed` and `weight_grads`, reads
/// the values that the forward pass read, so node memory and parameters are written after it.
pub const NEEDS: [Need; 36] = {
    use Stage::{
        Aggregate, Dispatch, Embed, FetchFeatures, FetchMemory, ReduceGradients, Route, Sample, Step,
        UpdateMemory, WeightGrads, WriteMemory,
    };
    [
        need(Sample, Sample, 1),
        need(Route, Sample, 0),
        need(Route, Route, 1),
        need(FetchFeatures, Sample, 0),
        need(FetchFeatures, Route, 0),
        need(Dispatch, Sample, 0),
        need(Dispatch, Route, 0),
        need(Dispatch, WriteMemory, 1),
        need(Dispatch, Aggregate, 1),
        need(FetchMemory, Sample, 0),
        need(FetchMemory, Dispatch, 0),
        need(FetchMemory, Route, 0),
        need(FetchMemory, WriteMemory, 1),
        need(UpdateMemory, FetchFeatures, 0),
        need(UpdateMemory, Dispatch, 0),
        need(UpdateMemory, FetchMemory, 0),
        need(UpdateMemory, WriteMemory, 1),
        need(UpdateMemory, Step, 1),
        need(Embed, FetchFeatures, 0),
        need(Embed, UpdateMemory, 0),
        need(Embed, WriteMemory, 1),
        need(Embed, Step, 1),
        need(WeightGrads, Embed, 0),
        need(Aggregate, Route, 0),
        need(Aggregate, Dispatch, 0),
        need(Aggregate, Embed, 0),
        need(WriteMemory, Aggregate, 0),
        need(WriteMemory, Embed, 0),
        need(WriteMemory, WeightGrads, 0),
        need(WriteMemory, Route, 0),
        need(ReduceGradients, Embed, 0),
        need(ReduceGradients, WeightGrads, 0),
        need(Step, Embed, 0),
        need(Step, WeightGrads, 0),
        need(Step, ReduceGradients, 0),
        need(ReduceGradients, ReduceGradients, 1),
    ]
};

/// A stage of one of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Stage.
    pub stage: Stage,
    /// Step of the stage, from 0.
    pub step: usize,
}

impl At {
    fn new(node: ScheduledNode) -> Self {
        At { stage: Stage::ALL[node.node], step: node.run }
    }
    /// Returns those of `needs` that this stage must follow.
    fn after(self, needs: &[Need]) -> impl Iterator<Item = At> {
        let needs = needs.iter().filter(move |need| need.stage == self.stage);
        let step = move |need: &Need| self.step.checked_add_signed(-need.back);
        needs.filter_map(move |need| Some(At { stage: need.of, step: step(need)? }))
    }
}

/// A dependency that a plan reverses: `early` would run before `needed`, which it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Stage that would run too early.
    pub early: At,
    /// Stage that `early` needs.
    pub needed: At,
}

/// Returns the dependencies between stages over ranks.
pub(super) fn over_ranks(rank_plan: &RankPlan) -> Vec<Need> {
    let mut needs = NEEDS.to_vec();
    if rank_plan.memory == RankMemory::Partitioned && rank_plan.update == RankUpdate::Owners {
        // Rows are updated before they travel.
        let (dispatch, fetch, update) = (Stage::Dispatch, Stage::FetchMemory, Stage::UpdateMemory);
        needs.retain(|n| !(matches!(n.stage, Stage::FetchMemory | Stage::UpdateMemory) && n.of == dispatch));
        needs.extend([need(dispatch, update, 0), need(Stage::Embed, dispatch, 0)]);
        needs.extend([need(fetch, Stage::Sample, 0), need(fetch, Stage::Route, 0)]);
    }
    needs
}

/// Changes dependencies to those of steps that read older state.
pub(super) fn with_staleness(needs: &mut Vec<Need>, Staleness { memory, weights }: Staleness) {
    use Stage::{Aggregate, Dispatch, Embed, FetchMemory, Step, UpdateMemory, WeightGrads, WriteMemory};
    let late = computed(needs);
    let reads = |stage| matches!(stage, FetchMemory | Dispatch) && !late(stage);
    if memory > 0 {
        // Only gathered rows are read after the fetch.
        needs.retain(|n| !(matches!(n.stage, UpdateMemory | Embed) && n.of == WriteMemory));
        let of_memory = |n: &&mut Need| reads(n.stage) && matches!(n.of, WriteMemory | Aggregate);
        needs.iter_mut().filter(of_memory).for_each(|n| n.back += memory as isize);
        for read in [FetchMemory, Dispatch].into_iter().filter(|&stage| reads(stage)) {
            needs.extend([Aggregate, WriteMemory].map(|write| need(write, read, -(memory as isize))));
        }
    }
    if weights > 0 {
        let of_weights = |n: &&mut Need| n.of == Step && n.stage != Step;
        needs.iter_mut().filter(of_weights).for_each(|n| n.back += weights as isize);
        let uses = [UpdateMemory, Embed, WeightGrads];
        needs.extend(uses.map(|stage| need(Step, stage, -(weights as isize))));
    }
}

/// Returns whether a stage depends on [`Stage::UpdateMemory`] of its step.
fn computed(needs: &[Need]) -> impl Fn(Stage) -> bool + use<> {
    let (mut late, mut before) = (vec![Stage::UpdateMemory], 0);
    while before < late.len() {
        before = late.len();
        let new = needs.iter().filter(|n| n.back == 0 && late.contains(&n.of) && !late.contains(&n.stage));
        let new: Vec<Stage> = new.map(|n| n.stage).collect();
        late.extend(new);
    }
    move |stage| late.contains(&stage)
}

/// Returns the stages in an order in which each follows the stages of its step that it needs.
fn ordered(needs: &[Need]) -> Vec<Stage> {
    let mut order = Vec::with_capacity(Stage::ALL.len());
    while order.len() < Stage::ALL.len() {
        let ready = |stage: &&Stage| {
            let mut same_step = needs.iter().filter(|n| n.stage == **stage && n.back == 0);
            !order.contains(*stage) && same_step.all(|n| order.contains(&n.of))
        };
        let Some(&next) = Stage::ALL.iter().find(ready) else { break };
        order.push(next);
    }
    order
}

/// Returns the schedule of `steps` steps by stages with these dependencies: a run is a step, and a node is an
/// index into [`Stage::ALL`]. If `buffer_depth` is given, a stage also waits until all stages of the step
/// that used its lane's buffer before have finished.
///
/// # Errors
/// A dependency that the placements reverse.
pub fn stage_schedule(
    placements: &[Placement; Stage::ALL.len()],
    needs: &[Need],
    staleness: Staleness,
    steps: usize,
    buffer_depth: Option<[usize; MAX_LANES]>,
) -> Result<Schedule, Violation> {
    let (stages, late) = (ordered(needs), computed(needs));
    let precedence =
        |&stage: &Stage| Precedence::of_stage(stage, late(stage), placements[stage as usize], staleness);
    let order: [Vec<(usize, usize)>; MAX_LANES] = std::array::from_fn(|lane| {
        let placed = in_order(steps, lane, |_| stages.iter().map(precedence));
        placed.into_iter().map(|(step, at)| (step, stages[at] as usize)).collect()
    });
    let position = |at: At| {
        let item = (at.step, at.stage as usize);
        let index = |lane: usize| order[lane].iter().position(|&scheduled| scheduled == item);
        (0..MAX_LANES).find_map(|lane| Some((lane, index(lane)?)))
    };
    let mut schedule = Schedule::default();
    for lane in 0..MAX_LANES {
        for (index, &(run, node)) in order[lane].iter().enumerate() {
            let early = At { stage: Stage::ALL[node], step: run };
            let reused = buffer_depth.and_then(|depth| run.checked_sub(depth[lane]));
            let readers = reused.into_iter().flat_map(|step| Stage::ALL.map(|stage| At { stage, step }));
            let mut after = [0; MAX_LANES];
            for needed in early.after(needs).chain(readers) {
                match position(needed) {
                    Some((other, at)) if other != lane => after[other] = after[other].max(at + 1),
                    Some((_, at)) if at > index => return Err(Violation { early, needed }),
                    _ => {}
                }
            }
            schedule.0[lane].push(ScheduledNode { run, node, after });
        }
    }
    let Err(stuck) = schedule.linear() else { return Ok(schedule) };
    // If lanes wait for each other, the one that is further ahead is at fault.
    let stuck: Vec<At> = stuck.into_iter().map(At::new).collect();
    let unfinished = |at: &At| {
        let (lane, index) = position(*at)?;
        stuck.iter().filter_map(|s| position(*s)).find(|&(l, i)| l == lane && i <= index)
    };
    let violation = |&early: &At| {
        let needed = early.after(needs).find(|needed| unfinished(needed).is_some())?;
        Some(Violation { early, needed })
    };
    stuck.iter().filter_map(violation).max_by_key(|v| v.early.step).map_or(Ok(schedule), Err)
}

/// Returns a dependency that placements reverse; `None` if they are legal.
pub(crate) fn violation(
    placements: &[Placement; Stage::ALL.len()],
    needs: &[Need],
    staleness: Staleness,
) -> Option<Violation> {
    // The order repeats from step to step once the deepest prefetch has begun, so a few more steps show every
    // violation.
    let depth = placements.iter().map(|placement| placement.prefetch_depth).max().unwrap_or(0);
    let steps = 3 + depth + 2 * (staleness.memory + staleness.weights);
    stage_schedule(placements, needs, staleness, steps, None).err()
}
