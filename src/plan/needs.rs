//! What the stages of a step need of one another, and whether a plan gives it to them.
use crate::autograd::{LANES, Placement, Stage, periods};

/// That a stage comes after another of the same step or of one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What must wait.
    pub stage: Stage,
    /// For what.
    pub of: Stage,
    /// Of how many steps before.
    pub back: usize,
}

const fn need(stage: Stage, of: Stage, back: usize) -> Need {
    Need { stage, of, back }
}

/// What stages need, all else follows: no plan may turn it round. Memory is read as the step before left it (memory staleness 0), and so are
/// parameters (gradient staleness 0); the backward pass, which is of `embed` and `weight_grads`, reads what the step read, so that is written after it.
pub const NEEDS: [Need; 17] = {
    use Stage::{Embed, FetchFeatures, FetchMemory, Sample, Step, UpdateMemory, WeightGrads, WriteMemory};
    [
        need(Sample, Sample, 1),
        need(FetchFeatures, Sample, 0),
        need(FetchMemory, Sample, 0),
        need(FetchMemory, WriteMemory, 1),
        need(UpdateMemory, FetchFeatures, 0),
        need(UpdateMemory, FetchMemory, 0),
        need(UpdateMemory, WriteMemory, 1),
        need(UpdateMemory, Step, 1),
        need(Embed, FetchFeatures, 0),
        need(Embed, UpdateMemory, 0),
        need(Embed, WriteMemory, 1),
        need(Embed, Step, 1),
        need(WeightGrads, Embed, 0),
        need(WriteMemory, Embed, 0),
        need(WriteMemory, WeightGrads, 0),
        need(Step, Embed, 0),
        need(Step, WeightGrads, 0),
    ]
};

/// A stage of one of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Which stage.
    pub stage: Stage,
    /// Of which step.
    pub step: usize,
}

/// What each lane does in `steps` steps, in order: in periods, in each what is furthest ahead first.
pub fn in_order(placements: &[Placement; Stage::ALL.len()], steps: usize) -> [Vec<At>; LANES] {
    std::array::from_fn(|lane| {
        let own = || Stage::ALL.into_iter().zip(placements).filter(|(_, placement)| placement.lane == lane);
        let most = own().map(|(_, placement)| placement.prefetch_depth).max().unwrap_or(0);
        let mut order = Vec::new();
        for (step, ahead) in periods(steps, most) {
            let now = own().filter(|(_, placement)| placement.prefetch_depth == ahead);
            order.extend(now.map(|(stage, _)| At { stage, step }));
        }
        order
    })
}

/// The rule that an order of stages breaks: what comes too early, and what it needs; none where it is legal.
pub fn broken(placements: &[Placement; Stage::ALL.len()]) -> Option<(At, At)> {
    // Nothing new happens once every stage has been ahead of every other.
    let steps = 3 + placements.iter().map(|placement| placement.prefetch_depth).max().unwrap_or(0);
    let lanes = in_order(placements, steps);
    let mut over = [0; LANES];
    let mut done: Vec<At> = Vec::new();
    let missing = |at: At, done: &[At]| {
        let wanted = NEEDS.iter().filter(|n| n.stage == at.stage);
        let wanted = wanted.filter_map(|n| Some(At { stage: n.of, step: at.step.checked_sub(n.back)? }));
        wanted.into_iter().find(|wanted| !done.contains(wanted))
    };
    loop {
        let before = done.len();
        for (lane, over) in lanes.iter().zip(&mut over) {
            while let Some(&at) = lane.get(*over).filter(|&&at| missing(at, &done).is_none()) {
                done.push(at);
                *over += 1;
            }
        }
        if done.len() == before {
            let stuck = lanes.iter().zip(over).filter_map(|(lane, over)| lane.get(over));
            // Of two lanes that wait for each other, the one that is too far ahead.
            return stuck.filter_map(|&at| Some((at, missing(at, &done)?))).max_by_key(|(at, _)| at.step);
        }
    }
}
