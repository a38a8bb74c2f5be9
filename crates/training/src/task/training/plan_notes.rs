//! What a plan says that has no effect in a run, or another one than its name suggests.
//!
//! What a plan asks for that would change results, and that a run cannot do, is refused
//! ([`Config::plan_over`]). What only has no effect is said here.
use crate::{
    plan::{
        Deduplicate, First, Groups, MicroBatches, Plan, RankFeatures, RankMemory, RankPlan, RankUpdate,
        StagePlacement, partition::Partitioner,
    },
    task::config::{Config, StoredOn},
};
use std::collections::BTreeSet;
use tgnn::{
    autograd::{MAX_PREFETCH_DEPTH, Program, Stage},
    error::Result,
    ops::Node,
    runtime::comm::TrafficKind,
};
use tgnn_data::text::counted;

/// What decides whether the keys of a plan have an effect.
pub(in crate::task) struct PlanUse<'a> {
    pub config: &'a Config,
    /// The plan as the ranks execute it.
    pub plan: &'a Plan,
    pub ranks: usize,
    /// The training step.
    pub step: &'a Program,
    /// Whether the data have features of edges or nodes.
    pub has_features: bool,
    pub on_gpu: bool,
}

impl PlanUse<'_> {
    /// Returns a note on everything that the plan says without effect, and on what it does that its user may
    /// not expect.
    ///
    /// # Errors
    /// `Plan` if the plan is for another number of ranks.
    pub fn notes(&self) -> Result<Vec<String>> {
        let mut notes: Vec<String> =
            self.plan.groups.iter().flat_map(|groups| self.of_groups(groups)).collect();
        notes.extend(self.of_lanes().into_iter().chain(self.of_order()));
        match self.ranks {
            1 => notes.extend(self.of_one_rank()),
            _ => notes.extend(self.of_several_ranks()),
        }
        notes.extend(self.of_depth());
        notes.extend(self.of_tables());
        notes.extend(self.of_epochs()?);
        Ok(notes)
    }
    fn of_groups(&self, groups: &Groups) -> Vec<String> {
        let (name, length) = (&self.plan.name, self.config.group.length);
        let waits = (self.config.group.batch == 1).then(|| {
            format!(
                "plan {name}: group.batch is 1, so the first lane waits in every group for the gradient of the \
                 second; with --set group.batch=4 it works on the next group meanwhile"
            )
        });
        let all = match groups.first {
            First::Count(first) if first > length => Some(format!(
                "plan {name}: groups.first is {first}, and a group has {}: all are on the first lane",
                counted(length as u64, "snapshot")
            )),
            _ => None,
        };
        waits.into_iter().chain(all).collect()
    }
    /// The stages of a plan that names lanes, if the step has no op in any of them.
    fn of_lanes(&self) -> Option<String> {
        let placed = |stage: Stage| self.plan.placement(stage) != StagePlacement::default();
        let present: BTreeSet<Stage> = self.step.stages().map(|(_, stage)| stage).collect();
        let named = self.plan.stages.keys().filter(|&&stage| placed(stage));
        let named: Vec<&str> = named.map(|stage| stage.name()).collect();
        (!named.is_empty() && !present.into_iter().any(placed)).then(|| {
            format!(
                "plan {} does what sequential does: a step of {} has no op in {}",
                self.plan.name,
                self.config.model_name(),
                named.join(", ")
            )
        })
    }
    /// The order of ops that a plan asks for, if ranks keep that of the program.
    fn of_order(&self) -> Option<String> {
        let given = Plan::named(&self.config.plan).ok()?;
        (given.order != self.plan.order).then(|| {
            format!("plan {}: over ranks, the ops of a lane keep the order of the program", self.plan.name)
        })
    }
    fn of_one_rank(&self) -> Vec<String> {
        let (name, gradients) = (&self.plan.name, self.plan.staleness.gradients);
        let older = match gradients {
            0 => String::new(),
            _ => format!("; gradients are {} old all the same", counted(gradients as u64, "step")),
        };
        let ranks = self.plan.ranks.map(|_| {
            format!("plan {name} is for several ranks: with one, its section [ranks] has no effect{older}")
        });
        let owner = if self.names_owners() { &["partition"][..] } else { &[] };
        ranks.into_iter().chain(no_effect(owner, "one rank has the memory of all nodes")).collect()
    }
    fn of_several_ranks(&self) -> Vec<String> {
        let (rank_plan, model) = (self.plan.ranks.unwrap_or_default(), self.config.model_name());
        let mut notes = match (self.config.has_memory(), rank_plan.memory) {
            (Some(false), _) => {
                no_effect(&self.of_rows(&rank_plan, true), &format!("{model} has no node memory"))
            }
            (_, RankMemory::Replicated) => {
                no_effect(&self.of_rows(&rank_plan, false), "every rank has the memory of all nodes")
            }
            _ => self.of_dispatch(&rank_plan),
        };
        if rank_plan.features == Some(RankFeatures::Partitioned) && !self.has_features {
            notes.extend(no_effect(&["ranks.features"], "the data have no features"));
        }
        notes
    }
    /// The keys that say how rows of node memory travel, as far as they are set; with that of where it is.
    fn of_rows(&self, rank_plan: &RankPlan, with_memory: bool) -> Vec<&'static str> {
        let set = [
            (with_memory && rank_plan.memory != RankMemory::default(), "ranks.memory"),
            (rank_plan.partition != Partitioner::default(), "ranks.partition"),
            (self.names_owners(), "partition"),
            (rank_plan.update != RankUpdate::default(), "ranks.update"),
            (rank_plan.deduplicate == Deduplicate::Aggregation, "ranks.deduplicate"),
            (rank_plan.micro_batches != MicroBatches::Count(1), "ranks.micro_batches"),
        ];
        set.into_iter().filter(|(set, _)| *set).map(|(_, key)| key).collect()
    }
    /// What a step has not taken up of the parts and the repeats of dispatched rows.
    fn of_dispatch(&self, rank_plan: &RankPlan) -> Vec<String> {
        let (mut notes, model) = (Vec::new(), self.config.model_name());
        let dispatches = |(node, _): &(&Node, Stage)| node.op.traffic() == Some(TrafficKind::Dispatch);
        let parts = self.step.stages().filter(dispatches).count().max(1);
        if rank_plan.micro_batches.count() > parts {
            notes.extend(no_effect(
                &["ranks.micro_batches"],
                &format!("{model} updates its rows in one part"),
            ));
        }
        let once = self.config.event_model().is_ok_and(|model| model.lists_nodes_once());
        if rank_plan.deduplicate != Deduplicate::Both && once {
            notes.extend(no_effect(&["ranks.deduplicate"], &format!("{model} lists a node once in a batch")));
        }
        notes
    }
    /// Whether the configuration names the owners of nodes.
    fn names_owners(&self) -> bool {
        self.config.partition != "auto"
    }
    /// Ranks that get batches in turn prefetch by rounds, but not by more steps than there can be.
    fn of_depth(&self) -> Option<String> {
        let copies = self.plan.ranks.unwrap_or_default().parallel.memory.max(1);
        let round = self.ranks / copies;
        (self.plan.in_turn() && round > MAX_PREFETCH_DEPTH).then(|| {
            format!(
                "plan {}: a round of {round} ranks has as many steps, and stages run at most {MAX_PREFETCH_DEPTH} \
                 steps ahead",
                self.plan.name
            )
        })
    }
    /// The keys that keep tables on the host, where all of them are.
    fn of_tables(&self) -> Vec<String> {
        let tables = [(self.config.features_on, "features_on"), (self.config.memory_on, "memory_on")];
        let set = tables.into_iter().filter(|(on, _)| !self.on_gpu && *on != StoredOn::Auto);
        no_effect(&set.map(|(_, key)| key).collect::<Vec<_>>(), "the device is the CPU")
    }
    fn of_epochs(&self) -> Result<Vec<String>> {
        let (given, trained) = (self.config.epochs, self.config.epochs_trained(self.plan, self.ranks)?);
        let (name, parallel) = (&self.plan.name, self.plan.ranks.unwrap_or_default().parallel);
        let of_pass = parallel.for_ranks(self.ranks)?.epoch;
        let rounded = (trained != given).then(|| {
            format!(
                "{trained} epochs instead of {given}: with plan {name}, ranks train {of_pass} epochs at the same time",
            )
        });
        // Until then, the copy at the end of the training part has begun in the middle.
        let complete = of_pass * parallel.memory;
        let is_few = trained < complete && self.config.has_memory() != Some(false);
        let few = is_few.then(|| {
            let are = if trained == 1 { "is" } else { "are" };
            format!("plan {name}: memory is complete after {complete} epochs, and there {are} {trained}")
        });
        Ok(rounded.into_iter().chain(few).collect())
    }
}

/// Returns a note that keys have no effect, and why; none without keys.
fn no_effect(keys: &[&str], why: &str) -> Vec<String> {
    let have = if keys.len() > 1 { "have" } else { "has" };
    let note = || format!("{} {have} no effect: {why}", keys.join(" and "));
    (!keys.is_empty()).then(note).into_iter().collect()
}
