//! Assigns the snapshots of groups to two lanes if the plan leaves this to predictions: how many snapshots of
//! each group the first lane takes, and which layers do their two products in the other order.
//!
//! Source: BLAD (Fu et al. 2023), section 5.2.2 (predictions, equation 2) and section 6 (topology manager).
//! BLAD's algorithm 1 keeps two lists of operators and exchanges a pair if the lists then differ more. Here a
//! layer of a lane is exchanged, the schedule of both lanes is simulated, backward pass and waiting included,
//! and the exchange is kept if it raises the overlap of equation 3 and costs no time.
use crate::{
    model::SwappedLayers,
    plan::{CostModel, GroupChoice, GroupCost, Usage, balance, predict},
    task::training::Runs,
};
use tgnn::{
    autograd::{Lanes, NodeInfo, Program},
    error::Result,
    ops::{Section, Tape},
    runtime::*,
};

/// Number of groups, the first of an epoch, whose ops are timed before anything is predicted.
const PROFILED_GROUPS: usize = 24;
/// Number of groups that a choice is simulated on.
const SIMULATED_GROUPS: usize = 32;

/// The edges that groups process.
pub(super) struct Loads {
    /// Number of edges of each step.
    pub edges_by_step: Vec<usize>,
    /// Number of snapshots of a group.
    pub length: usize,
}

/// The groups of a pass.
#[derive(Clone, Copy)]
pub(super) struct PassGroups<'a> {
    pub loads: &'a Loads,
    /// The step that each group predicts.
    pub targets: &'a [u32],
}

impl Loads {
    /// Returns the number of edges that nodes of `section` process in the group of `target`: those of one
    /// snapshot, or, in the section after the last snapshot, of the target itself.
    pub fn edges(&self, target: u32, section: Option<Section>) -> f64 {
        let step = section.and_then(|s| (target as usize + s.index).checked_sub(self.length));
        step.and_then(|step| self.edges_by_step.get(step)).map_or(0.0, |&edges| edges as f64)
    }
}

/// Decides how the groups of a run are assigned to lanes.
pub(super) struct GroupPlan {
    /// Whether layers may be exchanged.
    pub exchange: bool,
    /// Number of groups per update.
    pub round: usize,
    /// The decision; `None` until the first groups have been timed.
    pub chosen: Option<CostedChoice>,
}

/// A choice, and the cost model it is based on.
pub(super) struct CostedChoice {
    pub costs: CostModel,
    pub choice: GroupChoice,
    /// The nodes of the step.
    node_infos: Vec<NodeInfo>,
}

/// Where the tapes of the step's variants come from.
pub(super) struct StepSource<'a> {
    /// Records the step with some layers exchanged.
    pub record: &'a mut dyn FnMut(&SwappedLayers) -> Result<Tape>,
    /// The update that follows each round, if it is not part of the step. It becomes the last variant.
    pub update: Option<&'a Tape>,
    /// Number of graph convolutions of a snapshot.
    pub layers: usize,
}

impl GroupPlan {
    /// Returns how many of the `targets` groups of a pass must be timed first; `None` if the decision has
    /// been made.
    pub fn to_be_timed(&self, targets: usize) -> Option<usize> {
        self.chosen.is_none().then(|| PROFILED_GROUPS.next_multiple_of(self.round).min(targets))
    }
    /// Decides for `groups` by `costs`. `step` is the step that was timed; it is replaced by the step to use
    /// from now on.
    ///
    /// # Errors
    /// The errors of recording and planning.
    pub fn choose(
        &mut self,
        costs: CostModel,
        step: &mut Program,
        groups: PassGroups<'_>,
        device: &Device,
        mut from: StepSource<'_>,
    ) -> Result<()> {
        let simulated = groups.targets.len().min(SIMULATED_GROUPS.next_multiple_of(self.round));
        let groups = PassGroups { targets: &groups.targets[..simulated], ..groups };
        let length = groups.loads.length;
        let choice = GroupChoice { snapshots: length, op_error: costs.error(), ..GroupChoice::default() };
        let mut chosen = CostedChoice { costs, choice, node_infos: step.node_infos(0) };
        let usage = self.choose_first(step, &mut chosen, groups)?;
        if self.exchange {
            self.exchange_layers(step, &mut chosen, usage, groups, device, &mut from)?;
        }
        self.chosen = Some(chosen);
        Ok(())
    }
    /// Chooses the number of snapshots of the first lane that minimises the predicted time. Returns the
    /// predicted usage.
    fn choose_first(
        &self,
        step: &Program,
        chosen: &mut CostedChoice,
        groups: PassGroups<'_>,
    ) -> Result<Usage> {
        let mut best: Option<(Option<usize>, Usage)> = None;
        let balanced = (self.round > 1).then_some(None);
        let fixed = (1..=most_of_first_lane(groups.loads.length)).map(Some);
        for first in balanced.into_iter().chain(fixed) {
            chosen.choice.first = first;
            let usage = self.predicted(step, chosen, groups)?;
            if best.as_ref().is_none_or(|(_, least)| usage.seconds < least.seconds) {
                best = Some((first, usage));
            }
        }
        let (first, usage) = best.unwrap_or_default();
        chosen.choice.first = first;
        Ok(usage)
    }
    /// Exchanges the layers whose exchange raises the predicted overlap at no cost of time; `usage` is that
    /// of `step`.
    fn exchange_layers(
        &self,
        step: &mut Program,
        chosen: &mut CostedChoice,
        mut usage: Usage,
        groups: PassGroups<'_>,
        device: &Device,
        from: &mut StepSource<'_>,
    ) -> Result<()> {
        let layers = from.layers;
        chosen.choice.exchanged = [vec![false; layers], vec![false; layers]];
        for (lane, layer) in (0..2).flat_map(|lane| (0..layers).map(move |layer| (lane, layer))) {
            chosen.choice.exchanged[lane][layer] = true;
            let exchanged = self.step(&chosen.choice, device, from)?;
            let then = self.predicted(&exchanged, chosen, groups)?;
            let overlap = |usage: &Usage| usage.overlap * usage.seconds;
            if overlap(&then) > overlap(&usage) && then.seconds <= usage.seconds {
                (*step, usage) = (exchanged, then);
            } else {
                chosen.choice.exchanged[lane][layer] = false;
            }
        }
        Ok(())
    }
    /// Records and plans the step, with one variant for each number of snapshots, from 1, that the first lane
    /// can take. The update, if any, is the last variant.
    ///
    /// # Errors
    /// The errors of recording and planning.
    pub fn step(&self, choice: &GroupChoice, device: &Device, from: &mut StepSource<'_>) -> Result<Program> {
        let layers = &choice.exchanged;
        let variants = (1..=most_of_first_lane(choice.snapshots)).map(|first| {
            let lanes = Lanes::Sections { first, pipelined: self.round > 1 };
            Ok(((from.record)(&SwappedLayers { first, layers: layers.clone() })?, lanes))
        });
        let variants = variants.collect::<Result<Vec<_>>>()?;
        let variants = variants.iter().map(|(tape, lanes)| (tape, *lanes));
        let variants: Vec<(&Tape, Lanes)> =
            variants.chain(from.update.map(|tape| (tape, Lanes::One))).collect();
        Program::with_variants(&variants, Precision::F32, device)
    }
    /// Simulates `groups` and returns the predicted usage of the lanes.
    fn predicted(&self, program: &Program, chosen: &CostedChoice, groups: PassGroups<'_>) -> Result<Usage> {
        let variant_of_run = chosen.variant_of_run(groups, self.round);
        let runs = Runs::of_groups(&variant_of_run, 0, self.round, program.variants() - 1);
        let edges = |run: usize, work: &NodeInfo| {
            groups.loads.edges(groups.targets[runs.group(run)], work.tag.section)
        };
        Ok(predict(program, &runs.variant_of_run, &chosen.costs, &edges)?.usage())
    }
    /// Returns the variant of each group. Before the decision, both lanes take half of the snapshots.
    pub fn variant_of_run(&self, groups: PassGroups<'_>) -> Vec<usize> {
        let halves = || vec![groups.loads.length / 2 - 1; groups.targets.len()];
        self.chosen.as_ref().map_or_else(halves, |c| c.variant_of_run(groups, self.round))
    }
}

/// Returns the maximum number of snapshots of a group of `length` that the first lane can take. The minimum
/// is 1.
fn most_of_first_lane(length: usize) -> usize {
    length - 1
}

impl CostedChoice {
    /// Returns the variant of each group.
    fn variant_of_run(&self, groups: PassGroups<'_>, round: usize) -> Vec<usize> {
        let PassGroups { loads, targets } = groups;
        if let Some(first) = self.choice.first {
            return vec![first - 1; targets.len()];
        }
        let costs: Vec<GroupCost> = targets.iter().map(|&target| self.cost(loads, target)).collect();
        costs.chunks(round).flat_map(balance).map(|first| first - 1).collect()
    }
    /// Returns the predicted seconds of the group of `target`.
    fn cost(&self, loads: &Loads, target: u32) -> GroupCost {
        let mut cost = GroupCost {
            forward: vec![0.0; loads.length],
            backward: vec![0.0; loads.length],
            prediction: 0.0,
        };
        for work in &self.node_infos {
            let seconds = self.costs.seconds(work, loads.edges(target, work.tag.section));
            match (work.tag.section, work.tag.backward) {
                (None, _) => {}
                (Some(s), _) if s.index >= loads.length => cost.prediction += seconds,
                (Some(s), false) => cost.forward[s.index] += seconds,
                (Some(s), true) => cost.backward[s.index] += seconds,
            }
        }
        cost
    }
}
