//! Plans, which lay out the steps of training on lanes; predictions of the time that a plan takes; and
//! timelines of what ran.
//!
//! A [`Plan`] is plain data: the lane and prefetch depth of each stage of a step, or the assignment of a
//! group's snapshots to lanes. [`Program::repeat`](tgnn::autograd::Program::repeat) executes it; whatever
//! the plan, it respects the reads and writes that the nodes declare.
mod accesses;
mod balance;
mod bubble;
mod choice;
mod costs;
mod draw;
mod group_choice;
mod machine;
mod micro_batches;
mod needs;
mod parallel;
pub mod partition;
mod planner;
mod presets;
mod recording;
mod simulate;
mod staleness;
mod timeline;

pub use accesses::{Access, AccessKind, access_log, accesses};
pub use balance::{GroupCost, balance};
pub use bubble::Bubble;
pub use choice::Choice;
pub use costs::{CostModel, OpCost};
pub use group_choice::GroupChoice;
pub use machine::{DeviceRates, Machine, Network, NodeLinks};
pub use micro_batches::{
    Line, MAX_MICRO_BATCHES, MicroBatchChoice, MicroBatchFit, MicroBatchRule, MicroBatches, ProfiledStep,
    StepSeconds,
};
pub(crate) use needs::violation;
pub use needs::{At, NEEDS, Need, Violation};
pub use parallel::Parallel;
pub use planner::{CapturedEvents, PlannerChoice, PlannerOptions, plan_parallel};
pub use presets::Preset;
pub use recording::{Recording, fit_links, predict_ranks};
pub use simulate::{Durations, PassSchedule, ScheduledWindow, predict, simulate};
pub use staleness::{
    MAX_STALENESS, MemoryStaleness, Mitigation, StageEnds, StageSeconds, StalenessChoice, StalenessRule,
    least_staleness, stage_ends, stale_rows, training_idle,
};
pub use timeline::{Timeline, Usage};

use self::partition::Partitioner;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};
use tgnn::{
    autograd::{Lanes, MAX_LANES, MAX_PREFETCH_DEPTH, Order, Placement, Stage, Staleness},
    error::{Error, ErrorKind, Result},
};
use tgnn_data::text::{counted, toml_error};

/// The layout of training on the lanes of a device.
///
/// ```
/// use tgnn_training::plan::Plan;
/// let plan = Plan::named("prefetch")?; // a preset, or a file
/// plan.validate()?;
/// assert!(Plan::parse("nonsense = 1").is_err());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the plan, for results and messages.
    pub name: String,
    /// The order of each lane's ops.
    #[serde(default, skip_serializing_if = "is_default")]
    pub order: Order,
    /// Placements of stages. A stage without one runs on the first lane, with prefetch depth 0. Without one
    /// of their own, `route` runs as `sample` does, `dispatch` as `fetch_memory`, `aggregate` as
    /// `write_memory` and `reduce_gradients` as `step`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<Stage, StagePlacement>,
    /// How much older the state is that a step reads than the previous step left it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub staleness: PlanStaleness,
    /// Assignment of a group's snapshots to the two lanes; `None` if steps are not divided by snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// What ranks keep and exchange, if several train together; `None` leaves it to the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankPlan>,
}

/// How much older the state is that a step reads than the previous step left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanStaleness {
    /// Steps by which node memory is older (MSPipe, section 3.1): with k, a step reads it as the step of k +
    /// 1 steps before left it.
    #[serde(skip_serializing_if = "is_default")]
    pub memory: MemoryStaleness,
    /// Steps by which the gradients are older that an update uses: with 1, those of the step before (Sven,
    /// equation 13), which the ranks then add up while the next step computes.
    #[serde(skip_serializing_if = "is_default")]
    pub gradients: usize,
    /// Whether the memory of nodes that had no event for long is mixed with that of similar nodes that had.
    #[serde(skip_serializing_if = "is_default")]
    pub mitigation: Mitigation,
}

impl PlanStaleness {
    /// Checks whether ranks can read older state. An error is what is wrong, and what to do.
    fn check(&self, ranks: Option<&RankPlan>) -> std::result::Result<(), (String, String)> {
        let bad = |what: &str, remedy: &str| Err((what.to_owned(), remedy.to_owned()));
        let (older, rank_plan) = (self.memory.most() > 0, ranks.copied().unwrap_or_default());
        if older && rank_plan.memory == RankMemory::Cached {
            let what = "staleness.memory reads older rows, and with ranks.memory = \"cached\" a rank asks only \
                        for rows newer than its copies";
            return bad(what, "give ranks.memory = \"partitioned\"");
        }
        if older && rank_plan.batches == BatchesOver::InTurn {
            let what = "staleness.memory reads older rows, and with ranks.batches = \"in_turn\" ranks hand on \
                        those of the batch before";
            return bad(what, "leave out one of them");
        }
        if self.gradients > 0 && rank_plan.batches == BatchesOver::InTurn {
            let what = "ranks.batches is \"in_turn\", with which gradients are as many steps old as there are other \
                        ranks in a pipeline";
            return bad(what, "leave out staleness.gradients");
        }
        if older && rank_plan.parallel.takes_turns() {
            let what = "staleness.memory reads older rows, and ranks.parallel lets a memory copy begin anew: \
                        the first steps would read the end of the stream";
            return bad(what, "leave out one of them");
        }
        if self.mitigation == Mitigation::Similar && ranks.is_some() {
            let what = "staleness.mitigation is \"similar\", and a rank counts the common neighbours of its events \
                        alone";
            return bad(what, "leave out [ranks], and train on one rank");
        }
        Ok(())
    }
}

/// What ranks keep and exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RankPlan {
    /// Where node memory is.
    pub memory: RankMemory,
    /// How ranks get batches.
    #[serde(skip_serializing_if = "is_default")]
    pub batches: BatchesOver,
    /// Where features are. `None`: on every rank if they fit on its device, else partitioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<RankFeatures>,
    /// How nodes are divided among ranks, if node memory is partitioned.
    pub partition: Partitioner,
    /// Who updates memory rows that travel, if node memory is partitioned.
    pub update: RankUpdate,
    /// Where repeated rows of a node are left out.
    pub deduplicate: Deduplicate,
    /// Number of parts in which the rows of a step are dispatched and updated, if node memory is partitioned:
    /// one part can travel while another is updated (Sven, section 3.3.2). For models with one mail for each
    /// node.
    pub micro_batches: MicroBatches,
    /// How ranks divide training: mini-batch, epoch and memory parallelism. By default all ranks share every
    /// batch.
    #[serde(skip_serializing_if = "is_default")]
    pub parallel: Parallel,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl RankPlan {
    /// Checks every field. An error is what is wrong, and what to do.
    fn check(&self) -> std::result::Result<(), (String, String)> {
        let bad = |what: String, remedy: &str| Err((what, remedy.to_owned()));
        let &RankPlan { memory, deduplicate, parallel, micro_batches, .. } = self;
        if let Err(what) = parallel.check() {
            return bad(what, "give 1 to 64");
        }
        if parallel.takes_turns() && (memory != RankMemory::Replicated || deduplicate != Deduplicate::Both) {
            let what =
                "ranks.parallel has several epochs or copies, and the memory of a copy is not replicated";
            return bad(what.into(), "give ranks.memory = \"replicated\", and no ranks.deduplicate");
        }
        if self.batches == BatchesOver::InTurn {
            if memory == RankMemory::Partitioned && self.update == RankUpdate::Owners {
                let what = "ranks.batches is \"in_turn\", and owners that update rows would wait for the gradients \
                            of each other's batches";
                return bad(what.into(), "give ranks.update = \"readers\", or ranks.memory = \"replicated\"");
            }
            if parallel.epoch > 1 {
                let what = "ranks.batches is \"in_turn\", and ranks.parallel.epoch lets ranks share a batch";
                return bad(what.into(), "give ranks.parallel.epoch = 1");
            }
            if micro_batches != MicroBatches::Count(1) || deduplicate != Deduplicate::Both {
                let what = "ranks.batches is \"in_turn\", and rows are dispatched in other parts";
                return bad(what.into(), "leave out ranks.micro_batches and ranks.deduplicate");
            }
        }
        if memory == RankMemory::Cached && deduplicate != Deduplicate::Both {
            let what = "ranks.memory is \"cached\", and ranks.deduplicate is not \"both\"";
            return bad(what.into(), "leave out ranks.deduplicate");
        }
        let micro_batches = micro_batches.count();
        if !(1..=MAX_MICRO_BATCHES).contains(&micro_batches) {
            let remedy = format!("give 1 to {MAX_MICRO_BATCHES}, or \"fitted\"");
            return bad(format!("ranks.micro_batches is {micro_batches}"), &remedy);
        }
        Ok(())
    }
}

/// How ranks get the batches of training, if several train together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchesOver {
    /// Each batch is divided among all ranks.
    #[default]
    Divided,
    /// Each batch is on one rank, one rank after the other (PipeTGL, section 4.1). Steps have the order of
    /// one rank, but with n ranks the gradients that an update uses are n - 1 steps old: when a rank begins a
    /// batch, those of the batches that the others still have are not there yet.
    InTurn,
}

/// Where node memory is, if several ranks train together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankMemory {
    /// Every rank keeps the memory of all nodes, and sends its new rows to all others (DepCache).
    Replicated,
    /// Each node's memory is on one rank, which dispatches its rows to the ranks that compute with them. Each
    /// row travels once (Sven).
    #[default]
    Partitioned,
    /// As partitioned, but a rank keeps the rows that it gets as copies, with memory for all nodes, and gets
    /// only rows that have changed since. Ours.
    Cached,
}

/// Where the features of edges and nodes are, if several ranks train together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RankFeatures {
    /// Every rank keeps all rows.
    #[default]
    Replicated,
    /// Each row is on one rank: row i on rank i mod ranks. Ranks ask one another for the rows that a step
    /// reads, mostly ahead of the step.
    Partitioned,
}

/// Who updates node memory from mails, if it is partitioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RankUpdate {
    /// The ranks that compute with the rows: rows travel with their mails (Sven).
    Readers,
    /// The owners, once for all ranks: updated rows travel, and the backward pass returns their gradients
    /// (DepComm). Together, the ranks then compute no more than a single one. A model whose update depends on
    /// the query, as APAN's, is updated by the readers all the same.
    #[default]
    Owners,
}

/// Where ranks leave out repeated rows of a node (Sven, Algorithm 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Deduplicate {
    /// In both directions: a rank asks once for a row, and only a node's latest new row travels (Sven).
    #[default]
    Both,
    /// In aggregation only: a row is dispatched for every occurrence of its node (DepComm).
    Aggregation,
    /// Nowhere: a row travels for every occurrence of its node.
    None,
}

/// The lane and prefetch depth of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagePlacement {
    /// Lane, 1 to 8. A lane that no stage names costs nothing.
    pub lane: usize,
    /// Prefetch depth, in steps.
    pub prefetch_depth: usize,
}

impl Default for StagePlacement {
    fn default() -> Self {
        StagePlacement { lane: 1, prefetch_depth: 0 }
    }
}

/// The assignment of a group's snapshots to lanes (BLAD, section 5.2): the first lane gets the first few
/// snapshots, the second lane the others and the prediction, each with their backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// Number of snapshots on the first lane.
    pub first: First,
    /// Whether layers may compute their two products in the other order if more graph work then runs beside
    /// arithmetic (BLAD, section 6). The decision depends on the measured times of the first groups, so
    /// rounding may differ from run to run.
    #[serde(default)]
    pub exchange: bool,
}

/// The number of snapshots of a group on the first lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "groups.first is a number of snapshots, \"even\" or \"balanced\"")]
#[non_exhaustive]
pub enum First {
    /// The same number in every group.
    Count(usize),
    /// A number given by a rule.
    Rule(FirstRule),
}

/// A rule for the number of snapshots of a group on the first lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FirstRule {
    /// Half of the snapshots, rounded down.
    Even,
    /// The number that [balances](fn@balance) the lanes (equation 2), by predictions fitted to the first
    /// groups.
    Balanced,
}

impl Plan {
    /// Name of the plan that [`plan_parallel`] replaces by `disttgl:IxJxK`, for data and ranks.
    pub const PLANNED: &str = "disttgl";

    /// Returns the preset `name`, or, if `name` ends in `.toml`, the plan in that file.
    ///
    /// # Errors
    /// `Usage` if `name` is neither, or names a plan that a run chooses; `Io` if the file cannot be read; the
    /// errors of [`parse`](Self::parse), with the file's name.
    pub fn named(name: &str) -> Result<Self> {
        if let Some(preset) = Self::preset(name) {
            return preset;
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|e| e != "toml") {
            let forms = Self::PRESETS.iter().map(|preset| preset.form).chain(["a file: PLAN.toml"]);
            return Err(Error::unknown(ErrorKind::Usage, "plan", name, &forms.collect::<Vec<_>>()));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }
    /// Parses a plan from TOML and validates it.
    ///
    /// # Errors
    /// `Usage`, with line and column, for an unknown key or a value of the wrong type; the errors of
    /// [`validate`](Self::validate).
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Plan = toml::from_str(text).map_err(|e| toml_error(&e, text))?;
        plan.validate()?;
        Ok(plan)
    }
    /// Checks every field, and that every stage runs after the stages that it needs.
    ///
    /// # Errors
    /// `Plan`, with the field and the rule that it breaks.
    pub fn validate(&self) -> Result<()> {
        let bad = |what: String, remedy: &str| {
            Err(Error::new(ErrorKind::Plan, format!("plan {}: {what}", self.name)).remedy(remedy.to_owned()))
        };
        let rank_plan = self.ranks.unwrap_or_default();
        let checked =
            self.check_numbers().and_then(|()| self.check_groups()).and_then(|()| rank_plan.check());
        let checked = checked.and_then(|()| self.staleness.check(self.ranks.as_ref()));
        if let Err((what, remedy)) = checked {
            return bad(what, &remedy);
        }
        if Self::preset(&self.name).is_some_and(|preset| preset.is_ok_and(|preset| preset != *self)) {
            return bad("name is that of a different preset".into(), "give the plan another name");
        }
        if let Some(Violation { early, needed }) =
            violation(&self.placements(), &self.needs(), self.staleness())
        {
            let StagePlacement { lane, prefetch_depth } = self.placement(early.stage);
            let back = match early.step as isize - needed.step as isize {
                0 => "the same step".to_owned(),
                1 => "the step before".to_owned(),
                back if back > 0 => format!("{back} steps before"),
                back => format!("{} later", counted(back.unsigned_abs() as u64, "step")),
            };
            let what = format!(
                "stages.{}.prefetch_depth is {prefetch_depth} on lane {lane}, \
                 where it comes before {} of {back}, which it needs",
                self.listed(early.stage),
                needed.stage
            );
            return bad(what, "lower its prefetch_depth, or put it on another lane");
        }
        Ok(())
    }
    /// Checks the numbers of stages and of staleness. The error is what is wrong, and the remedy.
    fn check_numbers(&self) -> std::result::Result<(), (String, String)> {
        for (stage, &StagePlacement { lane, prefetch_depth }) in &self.stages {
            if !(1..=MAX_LANES).contains(&lane) {
                let remedy = format!("give 1 to {MAX_LANES}");
                return Err((format!("stages.{stage}.lane is {lane}"), remedy));
            }
            if prefetch_depth > MAX_PREFETCH_DEPTH {
                let remedy = format!("give 0 to {MAX_PREFETCH_DEPTH}");
                return Err((format!("stages.{stage}.prefetch_depth is {prefetch_depth}"), remedy));
            }
        }
        if self.order != Order::Program && self.staleness != PlanStaleness::default() {
            let what =
                "steps that read older state keep the order of the program, and order is \"longest_path\"";
            return Err((what.into(), "leave out one of staleness and order".into()));
        }
        let PlanStaleness { memory, gradients, .. } = self.staleness;
        for (kind, steps) in [("memory", memory.most()), ("gradients", gradients)] {
            if steps > MAX_STALENESS {
                let remedy = format!("give 0 to {MAX_STALENESS}");
                return Err((format!("staleness.{kind} is {steps}"), remedy));
            }
        }
        Ok(())
    }
    /// Checks that nothing else is given with groups, and that they can be shared out.
    fn check_groups(&self) -> std::result::Result<(), (String, String)> {
        match self.groups {
            Some(_) if self.staleness != PlanStaleness::default() => {
                return Err(("groups and staleness are both given".into(), "give one of them".into()));
            }
            Some(_) if self.order != Order::Program => {
                return Err(("groups and order are both given".into(), "give one of them".into()));
            }
            Some(_) if !self.stages.is_empty() => {
                return Err(("groups and stages are both given".into(), "give one of them".into()));
            }
            Some(Groups { first: First::Count(0), .. }) => {
                return Err(("groups.first is 0".into(), "give 1 or more, or a rule: even, balanced".into()));
            }
            Some(Groups { first, exchange: true }) if first != First::Rule(FirstRule::Balanced) => {
                let remedy = "give groups.first = \"balanced\": layers are exchanged by its predictions";
                return Err(("groups.exchange is true, but nothing is predicted".into(), remedy.into()));
            }
            _ => {}
        }
        Ok(())
    }
    /// Returns how old the state is that a step reads, at most.
    pub fn staleness(&self) -> Staleness {
        Staleness { memory: self.staleness.memory.most(), weights: self.staleness.gradients }
    }
    /// Whether the staleness of node memory is found while training.
    pub fn finds_staleness(&self) -> bool {
        self.staleness.memory == MemoryStaleness::Rule(StalenessRule::Minimal)
    }
    /// Whether steps may read node memory that is older, or mixed because it may be.
    pub fn reads_older_memory(&self) -> bool {
        self.staleness().memory > 0 || self.staleness.mitigation == Mitigation::Similar
    }
    /// Whether ranks get whole batches, one rank after the other.
    pub fn in_turn(&self) -> bool {
        self.ranks.unwrap_or_default().batches == BatchesOver::InTurn
    }
    /// Returns the plan as `ranks` ranks execute it that share a memory. If they get batches in turn,
    /// gradients are as old as there are other ranks, and stages are prefetched by whole rounds.
    #[must_use]
    pub fn of_ranks(mut self, ranks: usize) -> Self {
        if self.in_turn() {
            self.staleness.gradients = ranks.saturating_sub(1);
            for placement in self.stages.values_mut() {
                placement.prefetch_depth = (placement.prefetch_depth * ranks).min(MAX_PREFETCH_DEPTH);
            }
        }
        self
    }
    /// Returns the plan as ranks execute it that communicate, all of them in the same order: that of the
    /// program. There, a gather of node memory would queue behind the stages that its lane prefetches.
    #[must_use]
    pub fn in_program_order(mut self) -> Self {
        let [fetch, sample] = [Stage::FetchMemory, Stage::Sample].map(|stage| self.placement(stage).lane);
        if self.order == Order::LongestPath && fetch == sample {
            self.stages.remove(&Stage::FetchMemory);
        }
        self.order = Order::Program;
        self
    }
    /// Returns the dependencies between the stages of the plan: [`NEEDS`], but with those differences
    /// that follow from its [`RankPlan`] and from its staleness.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = self.ranks.as_ref().map_or(NEEDS.to_vec(), needs::over_ranks);
        needs::with_staleness(&mut needs, self.staleness());
        needs
    }
    /// Returns the stage whose entry says where a stage runs: its own, if the plan lists it.
    fn listed(&self, stage: Stage) -> Stage {
        if self.stages.contains_key(&stage) {
            return stage;
        }
        match stage {
            Stage::Route => Stage::Sample,
            Stage::Dispatch => Stage::FetchMemory,
            Stage::Aggregate => Stage::WriteMemory,
            Stage::ReduceGradients => Stage::Step,
            stage => stage,
        }
    }
    /// Returns the placement of a stage.
    pub fn placement(&self, stage: Stage) -> StagePlacement {
        self.stages.get(&self.listed(stage)).copied().unwrap_or_default()
    }
    /// Returns the placement of every stage.
    fn placements(&self) -> [Placement; Stage::ALL.len()] {
        Stage::ALL.map(|stage| {
            let StagePlacement { lane, prefetch_depth } = self.placement(stage);
            Placement { lane: lane - 1, prefetch_depth }
        })
    }
    /// Returns the lanes of a program's nodes, for groups of `length` snapshots. `pipelined` lets the first
    /// lane start the forward pass of the next group before the backward pass of the current one; allowed if
    /// no parameter changes in between. `balanced` groups are divided evenly: there are no predictions yet.
    pub fn lanes(&self, length: usize, pipelined: bool) -> Lanes {
        match self.groups {
            Some(Groups { first, .. }) => {
                let first = match first {
                    First::Count(first) => first.min(length),
                    First::Rule(_) => length / 2,
                };
                Lanes::Sections { first, pipelined }
            }
            None => match (self.placements(), self.staleness()) {
                (placements, Staleness::NONE) if placements == [Placement::default(); Stage::ALL.len()] => {
                    Lanes::One
                }
                (placements, staleness) => {
                    // A rank serves the steps of the others while it trains on its own batch.
                    let ahead = if self.in_turn() { 1 + staleness.weights } else { 0 };
                    Lanes::Stages { placements, staleness, ahead, order: self.order }
                }
            },
        }
    }
}
