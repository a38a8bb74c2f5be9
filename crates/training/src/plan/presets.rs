//! The plans that need no file: a row of [`Plan::PRESETS`] each, from which help texts, completions, errors
//! and the table of docs/plans.md follow.
use super::{
    BatchesOver, Deduplicate, First, FirstRule, Groups, MAX_STALENESS, MemoryStaleness, Mitigation, Parallel,
    Plan, PlanStaleness, RankMemory, RankPlan, RankUpdate, StagePlacement, StalenessRule,
    partition::Partitioner,
};
use std::collections::BTreeMap;
use tgnn::{
    autograd::{Order, Stage},
    error::{Error, Result},
};

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
fn pipelined() -> BTreeMap<Stage, StagePlacement> {
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

/// A plan that needs no file, or a family of them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Preset {
    /// The name, with capital letters for what is to be chosen: `overlap`, `mspipe:k=K`.
    pub form: &'static str,
    /// Whether the plan is for ranks.
    pub over_ranks: bool,
    /// What the plan does, in Markdown, with links from the folder of the documents.
    pub about: &'static str,
    /// Makes the plan, without its name, given what stands behind the colon.
    make: fn(&str) -> Result<Plan>,
}

impl Preset {
    const fn new(form: &'static str, about: &'static str, make: fn(&str) -> Result<Plan>) -> Self {
        Preset { form, over_ranks: false, about, make }
    }
    const fn over_ranks(form: &'static str, about: &'static str, make: fn(&str) -> Result<Plan>) -> Self {
        Preset { form, over_ranks: true, about, make }
    }
    /// Returns what is to be chosen, given a name; empty if nothing is. `None` if it is not a name of this
    /// preset.
    fn chosen<'a>(&self, name: &'a str) -> Option<&'a str> {
        match self.form.split_once(':') {
            Some((family, _)) => name.strip_prefix(family)?.strip_prefix(':'),
            None => (name == self.form).then_some(""),
        }
    }
}

/// Returns a plan on two lanes, with these stages, each so many steps early, on the second one.
fn on_two_lanes(second: &[(Stage, usize)]) -> Plan {
    let placement =
        |&(stage, prefetch_depth): &(Stage, usize)| (stage, StagePlacement { lane: 2, prefetch_depth });
    Plan {
        name: String::new(),
        stages: second.iter().map(placement).collect(),
        order: Order::Program,
        staleness: PlanStaleness::default(),
        groups: None,
        ranks: None,
    }
}

const PREFETCHED: [(Stage, usize); 3] = [(Stage::Sample, 1), (Stage::Route, 1), (Stage::FetchFeatures, 1)];

fn prefetch(_: &str) -> Result<Plan> {
    Ok(on_two_lanes(&PREFETCHED))
}

fn overlap(_: &str) -> Result<Plan> {
    if Order::of_overlap() == Order::LongestPath {
        return Ok(Plan { stages: overlapped(), order: Order::LongestPath, ..on_two_lanes(&[]) });
    }
    let overlapped = [(Stage::WeightGrads, 0), (Stage::WriteMemory, 0)];
    Ok(on_two_lanes(&[&PREFETCHED[..], &overlapped].concat()))
}

/// Returns BLAD's plan: how many snapshots of a group are on the first lane, and whether layers are
/// exchanged.
fn blad(first: FirstRule, exchange: bool) -> Result<Plan> {
    Ok(Plan { groups: Some(Groups { first: First::Rule(first), exchange }), ..on_two_lanes(&[]) })
}

/// Returns `prefetch` for ranks.
fn prefetched_over(ranks: RankPlan) -> Result<Plan> {
    Ok(Plan { ranks: Some(ranks), ..on_two_lanes(&PREFETCHED) })
}

/// Returns a plan with the four parts of Sven.
fn sven(memory: RankMemory) -> Result<Plan> {
    let (partition, update) = (Partitioner::ReFlexBiCut, RankUpdate::Readers);
    let mut plan = prefetched_over(RankPlan { memory, partition, update, ..RankPlan::default() })?;
    plan.staleness.gradients = 1;
    for (stage, lane) in [(Stage::Dispatch, 3), (Stage::Aggregate, 3), (Stage::ReduceGradients, 4)] {
        plan.stages.insert(stage, StagePlacement { lane, prefetch_depth: 0 });
    }
    Ok(plan)
}

/// Returns MSPipe's plan: node memory is `k=K` steps older, or as old as it must be.
fn mspipe(chosen: Option<&str>, mitigation: Mitigation) -> Result<Plan> {
    let memory = match chosen.map(|chosen| (chosen, chosen.strip_prefix("k=").map(str::parse))) {
        None => MemoryStaleness::Rule(StalenessRule::Minimal),
        Some((_, Some(Ok(steps)))) if steps <= MAX_STALENESS => MemoryStaleness::Steps(steps),
        Some((chosen, _)) => {
            let family = if mitigation == Mitigation::Similar { "mspipe-s" } else { "mspipe" };
            let remedy = format!("give {family}:k=0 to {family}:k={MAX_STALENESS}");
            return Err(Error::usage(format!("`{chosen}` is no staleness")).remedy(remedy));
        }
    };
    let staleness = PlanStaleness { memory, gradients: 0, mitigation };
    Ok(Plan { stages: presampled(), staleness, ..on_two_lanes(&[]) })
}

/// Returns the plan `pipetgl:k=K`.
fn pipelines(copies: &str) -> Result<Plan> {
    let memory = copies.strip_prefix("k=").and_then(|copies| copies.parse().ok());
    let parallel = memory.map(|memory| Parallel { memory, ..Parallel::default() });
    let Some(parallel) = parallel.filter(|parallel| parallel.check().is_ok()) else {
        let what = format!("`{copies}` is no number of memory copies");
        return Err(Error::usage(what).remedy("give pipetgl:k=1, pipetgl:k=2, ..."));
    };
    let (batches, memory) = (BatchesOver::InTurn, RankMemory::Replicated);
    let ranks = Some(RankPlan { batches, memory, parallel, ..RankPlan::default() });
    Ok(Plan { ranks, stages: pipelined(), ..on_two_lanes(&[]) })
}

/// Refuses a plan that a run chooses.
fn later(what: &str, remedy: &str) -> Result<Plan> {
    Err(Error::usage(what).remedy(remedy))
}

impl Plan {
    /// The plans that need no file.
    pub const PRESETS: &[Preset] = &[
        Preset::new("auto", "the default: `overlap` on a CUDA device, else `sequential`", |_| {
            later("the plan auto depends on the device", "give sequential or overlap")
        }),
        Preset::new("sequential", "one stage after the other, on one lane", |_| Ok(on_two_lanes(&[]))),
        Preset::new(
            "prefetch",
            "`sample` and `fetch_features` run one step early, on a second lane",
            prefetch,
        ),
        Preset::new(
            "overlap",
            "`sample`, `fetch_features`, `fetch_memory` and `write_memory` on a third lane; all other ops \
             share the first two, [in the order of their longest paths](plans.md#order)",
            overlap,
        ),
        Preset::new(
            "blad-even",
            "two lanes share the snapshots of a group, half each: [BLAD](systems/blad.md)",
            |_| blad(FirstRule::Even, false),
        ),
        Preset::new("blad-nm", "the same, as many each as balances the lanes", |_| {
            blad(FirstRule::Balanced, false)
        }),
        Preset::new(
            "blad",
            "the same, and layers do their products in the other order where that is faster",
            |_| blad(FirstRule::Balanced, true),
        ),
        Preset::new("presample", "the lanes of MSPipe, with the newest node memory", |_| {
            Ok(Plan { stages: presampled(), ..on_two_lanes(&[]) })
        }),
        Preset::new(
            "mspipe",
            "node memory is as old as it must be for lanes not to wait: [MSPipe](systems/mspipe.md)",
            |_| mspipe(None, Mitigation::None),
        ),
        Preset::new("mspipe:k=K", "node memory is at most K steps older", |steps| {
            mspipe(Some(steps), Mitigation::None)
        }),
        Preset::new("mspipe-s", "`mspipe`, and old memory is mixed with that of similar nodes", |_| {
            mspipe(None, Mitigation::Similar)
        }),
        Preset::new("mspipe-s:k=K", "the same, for K steps", |steps| {
            mspipe(Some(steps), Mitigation::Similar)
        }),
        Preset::over_ranks("depcache", "every rank keeps all node memory: [ranks](ranks.md)", |_| {
            prefetched_over(RankPlan { memory: RankMemory::Replicated, ..RankPlan::default() })
        }),
        Preset::over_ranks("depcomm", "node memory is divided, and all rows that are read travel", |_| {
            let (partition, deduplicate) = (Partitioner::Range, Deduplicate::Aggregation);
            prefetched_over(RankPlan { partition, deduplicate, ..RankPlan::default() })
        }),
        Preset::over_ranks(
            "sven",
            "node memory is divided so that few rows travel, each once: [Sven](systems/sven.md)",
            |_| sven(RankMemory::Partitioned),
        ),
        Preset::over_ranks(
            "sven-cached",
            "the same, and ranks keep copies of rows that they have read",
            |_| sven(RankMemory::Cached),
        ),
        Preset::over_ranks(
            "disttgl",
            "epoch and memory parallelism, planned for the data and the ranks: [DistTGL](systems/disttgl.md)",
            |_| {
                let what = "the plan disttgl depends on the data and on the number of ranks";
                later(what, "give disttgl:IxJxK; plan explain disttgl says which")
            },
        ),
        Preset::over_ranks(
            "disttgl:IxJxK",
            "I ranks share a batch, J groups a copy of the memory, and K copies the stream",
            |numbers| {
                let (memory, parallel) = (RankMemory::Replicated, numbers.parse()?);
                prefetched_over(RankPlan { memory, parallel, ..RankPlan::default() })
            },
        ),
        Preset::over_ranks(
            "pipetgl",
            "whole batches go from rank to rank: [PipeTGL](systems/pipetgl.md)",
            |_| {
                let (batches, update) = (BatchesOver::InTurn, RankUpdate::Readers);
                let ranks = Some(RankPlan { batches, update, ..RankPlan::default() });
                Ok(Plan { ranks, stages: pipelined(), ..on_two_lanes(&[]) })
            },
        ),
        Preset::over_ranks("pipetgl:k=K", "the same, with K copies of the memory", pipelines),
    ];

    /// Returns the preset `name`; `None` if there is no such preset.
    ///
    /// # Errors
    /// `Usage` if what the name chooses is wrong, or if a run chooses the plan.
    pub fn preset(name: &str) -> Option<Result<Self>> {
        let found = Self::PRESETS.iter().find_map(|preset| Some((preset, preset.chosen(name)?)));
        let (preset, chosen) = found?;
        Some((preset.make)(chosen).map(|plan| Plan { name: name.to_owned(), ..plan }))
    }
}
