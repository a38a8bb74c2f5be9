//! The plans that need no file.
use super::{
    BatchesOver, Deduplicate, First, FirstRule, Groups, MAX_STALENESS, MemoryStaleness, Mitigation, Parallel,
    Plan, PlanStaleness, RankMemory, RankPlan, RankUpdate, StagePlacement, StalenessRule,
    partition::Partitioner,
};
use std::collections::BTreeMap;
use tgnn::autograd::{Order, Stage};

/// Returns the placements of MSPipe's five stages: sampling, what is copied to the device, training, and what
/// is copied back. Features and node memory are on one lane, so that they never compete for the same link.
fn presampled() -> BTreeMap<Stage, StagePlacement> {
    let at = |lane, prefetch_depth| StagePlacement { lane, prefetch_depth };
    BTreeMap::from([
        (Stage::Sample, at(2, 1)),
        (Stage::FetchFeatures, at(3, 0)),
        (Stage::FetchMemory, at(3, 0)),
        (Stage::WriteMemory, at(4, 0)),
    ])
}

/// Returns the placements of `overlap`: what prepares a step is on a lane of its own, so that it does not
/// queue behind gradients of weights. Node memory is fetched there as soon as the step before has written it.
fn overlapped() -> BTreeMap<Stage, StagePlacement> {
    let at = |lane, prefetch_depth| StagePlacement { lane, prefetch_depth };
    let fetched = Order::fetches_ahead().then_some((Stage::FetchMemory, at(3, 0)));
    let stages = [
        (Stage::Sample, at(3, 1)),
        (Stage::Route, at(3, 1)),
        (Stage::FetchFeatures, at(3, 1)),
        (Stage::WeightGrads, at(2, 0)),
        (Stage::WriteMemory, at(3, 0)),
    ];
    stages.into_iter().chain(fetched).collect()
}

/// Returns the placements of PipeTGL's stages: what a step needs is sampled a round ahead, on a lane where no
/// rank waits for another; features are gathered on a lane of their own, and what the next step waits for is
/// on lanes apart from the training of a batch.
fn in_turn() -> BTreeMap<Stage, StagePlacement> {
    let at = |lane, prefetch_depth| StagePlacement { lane, prefetch_depth };
    BTreeMap::from([
        (Stage::Sample, at(2, 1)),
        (Stage::Route, at(7, 1)),
        (Stage::FetchFeatures, at(6, 1)),
        (Stage::Dispatch, at(3, 0)),
        (Stage::FetchMemory, at(5, 0)),
        (Stage::UpdateMemory, at(5, 0)),
        (Stage::WriteMemory, at(3, 0)),
        (Stage::ReduceGradients, at(4, 0)),
    ])
}

/// Returns what the ranks of `pipetgl:k=K` share; `None` if K is no number of memory copies.
fn pipelines(name: &str) -> Option<RankPlan> {
    let copies = name.strip_prefix("pipetgl:k=")?.parse().ok()?;
    let parallel = Parallel { memory: copies, ..Parallel::default() };
    let (batches, memory) = (BatchesOver::InTurn, RankMemory::Replicated);
    let ranks = RankPlan { batches, memory, parallel, ..RankPlan::default() };
    Some(ranks).filter(|_| parallel.check().is_ok())
}

/// Returns the staleness of `mspipe`, `mspipe-s`, `mspipe:k=K` or `mspipe-s:k=K`; `None` if `name` is none of
/// them.
fn mspipe(name: &str) -> Option<PlanStaleness> {
    let (base, mitigation) = match name.strip_prefix("mspipe-s") {
        Some(rest) => (format!("mspipe{rest}"), Mitigation::Similar),
        None => (name.to_owned(), Mitigation::None),
    };
    let memory = match base.strip_prefix("mspipe:k=") {
        Some(steps) => MemoryStaleness::Steps(steps.parse().ok().filter(|&steps| steps <= MAX_STALENESS)?),
        None if base == "mspipe" => MemoryStaleness::Rule(StalenessRule::Minimal),
        None => return None,
    };
    Some(PlanStaleness { memory, gradients: 0, mitigation })
}

/// Returns a plan with the four parts of Sven.
fn sven(mut plan: Plan, memory: RankMemory) -> Plan {
    let (partition, update) = (Partitioner::ReFlexBiCut, RankUpdate::Readers);
    plan.ranks = Some(RankPlan { memory, partition, update, ..RankPlan::default() });
    plan.staleness.gradients = 1;
    for (stage, lane) in [(Stage::Dispatch, 3), (Stage::Aggregate, 3), (Stage::ReduceGradients, 4)] {
        plan.stages.insert(stage, StagePlacement { lane, prefetch_depth: 0 });
    }
    plan
}

impl Plan {
    /// Names of the presets: the plans that need no file.
    pub const PRESETS: [&str; 14] = [
        "sequential",
        "prefetch",
        "overlap",
        "blad-even",
        "blad-nm",
        "blad",
        "depcache",
        "depcomm",
        "sven",
        "sven-cached",
        "presample",
        "mspipe",
        "mspipe-s",
        "pipetgl",
    ];

    /// Returns the preset `name`; `None` if there is no such preset.
    pub fn preset(name: &str) -> Option<Self> {
        let plan = |on_second_lane: &[(Stage, usize)], groups| {
            let placement = |&(stage, prefetch_depth): &(Stage, usize)| {
                (stage, StagePlacement { lane: 2, prefetch_depth })
            };
            let stages = on_second_lane.iter().map(placement).collect();
            let (name, staleness) = (name.to_owned(), PlanStaleness::default());
            Plan { name, stages, order: Order::Program, staleness, groups, ranks: None }
        };
        let prefetched = [(Stage::Sample, 1), (Stage::Route, 1), (Stage::FetchFeatures, 1)];
        let groups = |rule, exchange| Some(Groups { first: First::Rule(rule), exchange });
        match name {
            "sequential" => Some(plan(&[], None)),
            "prefetch" => Some(plan(&prefetched, None)),
            "overlap" if Order::of_overlap() == Order::LongestPath => {
                Some(Plan { stages: overlapped(), order: Order::LongestPath, ..plan(&[], None) })
            }
            "overlap" => {
                let overlapped = [(Stage::WeightGrads, 0), (Stage::WriteMemory, 0)];
                Some(plan(&[&prefetched[..], &overlapped].concat(), None))
            }
            "blad-even" => Some(plan(&[], groups(FirstRule::Even, false))),
            "blad-nm" => Some(plan(&[], groups(FirstRule::Balanced, false))),
            "blad" => Some(plan(&[], groups(FirstRule::Balanced, true))),
            "depcache" => {
                let ranks = Some(RankPlan { memory: RankMemory::Replicated, ..RankPlan::default() });
                Some(Plan { ranks, ..plan(&prefetched, None) })
            }
            "depcomm" => {
                let (partition, deduplicate) = (Partitioner::Range, Deduplicate::Aggregation);
                let ranks = Some(RankPlan { partition, deduplicate, ..RankPlan::default() });
                Some(Plan { ranks, ..plan(&prefetched, None) })
            }
            "sven" | "sven-cached" => {
                let memory = if name == "sven" { RankMemory::Partitioned } else { RankMemory::Cached };
                Some(sven(plan(&prefetched, None), memory))
            }
            "pipetgl" => {
                let (batches, update) = (BatchesOver::InTurn, RankUpdate::Readers);
                let ranks = Some(RankPlan { batches, update, ..RankPlan::default() });
                Some(Plan { ranks, stages: in_turn(), ..plan(&[], None) })
            }
            _ if name.starts_with("pipetgl:k=") => {
                pipelines(name).map(|ranks| Plan { ranks: Some(ranks), stages: in_turn(), ..plan(&[], None) })
            }
            "presample" => Some(Plan { stages: presampled(), ..plan(&[], None) }),
            _ if name.starts_with("mspipe") => {
                mspipe(name).map(|staleness| Plan { stages: presampled(), staleness, ..plan(&[], None) })
            }
            _ => {
                let parallel = name.strip_prefix("disttgl:")?.parse().ok()?;
                let memory = RankMemory::Replicated;
                let ranks = Some(RankPlan { memory, parallel, ..RankPlan::default() });
                Some(Plan { ranks, ..plan(&prefetched, None) })
            }
        }
    }
}
