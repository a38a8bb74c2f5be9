//! How groups of snapshots are shared out to two lanes where the plan leaves it to predictions: how many snapshots the first lane takes of
//! each group, and which layers do their products in the other order.
//!
//! Source: BLAD (Fu et al. 2023), section 5.2.2 (predictions, equation 2) and section 6 (topology manager). Its algorithm 1 puts operators on
//! two lists and exchanges a pair where the lists then differ more. Ours exchanges a layer of a lane, simulates what the lanes would do,
//! backward pass and waiting included, and keeps what raises the overlap of equation 3 and takes no longer.
use super::passes::Runs;
use crate::{
    autograd::{LANES, Lanes, NodeInfo, Program},
    error::Result,
    model::Exchanged,
    ops::{Section, Tape},
    plan::{CostModel, GroupCost, Usage, balance, predict},
    runtime::*,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Groups whose ops are timed before anything is predicted; the first of an epoch.
const PROFILED: usize = 24;
/// Groups that a choice is simulated on.
const TRIED: usize = 32;

/// What groups are of: how many edges their snapshots have.
pub(super) struct Loads {
    /// Of each step.
    pub edges_by_step: Vec<usize>,
    /// Snapshots of a group.
    pub length: usize,
}

impl Loads {
    /// Edges that nodes of `section` process in the group of `target`: those of one snapshot, or, in the section after
    /// the last snapshot, of the target itself.
    pub fn edges(&self, target: u32, section: Option<Section>) -> f64 {
        let step = section.and_then(|s| (target as usize + s.index).checked_sub(self.length));
        step.and_then(|step| self.edges_by_step.get(step)).map_or(0.0, |&edges| edges as f64)
    }
}

/// How the groups of a run are shared out, once that is known.
pub(super) struct GroupPlan {
    /// Whether layers may be exchanged.
    pub exchange: bool,
    /// Groups of an update.
    pub round: usize,
    /// None until the first groups were timed.
    pub chosen: Option<Chosen>,
}

/// How the groups of a run are shared out, by predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Snapshots of a group.
    pub snapshots: usize,
    /// Of these the first lane's, where all groups have as many; else each round is balanced by itself.
    pub first: Option<usize>,
    /// Of each lane, whether each layer does its products in the other order; empty where none may.
    pub exchanged: [Vec<bool>; LANES],
    /// Mean absolute error of the predictions of ops, as a share of the time that they took.
    pub op_error: f64,
}

/// A line for people.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.snapshots;
        match self.first {
            Some(first) => write!(f, "the first lane takes {first} of {of} snapshots")?,
            None => write!(f, "the first lane takes so many of {of} snapshots as balance each group")?,
        }
        let lanes = self.exchanged.iter().enumerate();
        let layers = lanes.flat_map(|(lane, layers)| layers.iter().enumerate().map(move |l| (lane, l)));
        let exchanged = layers.filter(|(_, (_, exchanged))| **exchanged);
        let exchanged: Vec<String> =
            exchanged.map(|(lane, (layer, _))| format!("layer {} on lane {}", layer + 1, lane + 1)).collect();
        match &exchanged[..] {
            [] => write!(f, "; no layer exchanged")?,
            some => write!(f, "; exchanged: {}", some.join(", "))?,
        }
        write!(f, "; predictions of ops are off by {:.0} %", 100.0 * self.op_error)
    }
}

/// A choice, and what it goes by.
pub(super) struct Chosen {
    pub costs: CostModel,
    pub choice: Choice,
    /// The nodes of the step.
    node_infos: Vec<NodeInfo>,
}

/// What variants of the step are recorded from.
pub(super) struct Recorded<'a> {
    /// Records the step with layers exchanged.
    pub step: &'a mut dyn FnMut(&Exchanged) -> Result<Tape>,
    /// What comes after each round, where that is not in the step: another variant, the last.
    pub update: Option<&'a Tape>,
    /// Graph convolutions of a snapshot.
    pub layers: usize,
}

impl GroupPlan {
    /// How many groups to time first, of `targets`; none where that was done.
    pub fn to_be_timed(&self, targets: usize) -> Option<usize> {
        self.chosen.is_none().then(|| PROFILED.next_multiple_of(self.round).min(targets))
    }
    /// Chooses, for groups of these targets, by `costs`; `step` is the step as it was timed, and becomes the one to go on with.
    ///
    /// # Errors
    /// As those of recording and planning.
    pub fn choose(
        &mut self,
        (costs, step): (CostModel, &mut Program),
        (loads, targets): (&Loads, &[u32]),
        device: &Device,
        mut from: Recorded<'_>,
    ) -> Result<()> {
        let targets = &targets[..targets.len().min(TRIED.next_multiple_of(self.round))];
        let choice = Choice { snapshots: loads.length, op_error: costs.error(), ..Choice::default() };
        let mut chosen = Chosen { costs, choice, node_infos: step.node_infos(0) };
        let (mut best, all) = (None::<(Option<usize>, Usage)>, splits(loads.length));
        let balanced = (self.round > 1).then_some(None);
        for first in balanced.into_iter().chain((1..=all).map(Some)) {
            chosen.choice.first = first;
            let usage = self.predicted(step, &chosen, (loads, targets))?;
            if best.as_ref().is_none_or(|(_, least)| usage.seconds < least.seconds) {
                best = Some((first, usage));
            }
        }
        let (first, mut usage) = best.unwrap_or_default();
        chosen.choice.first = first;
        if self.exchange {
            let layers = from.layers;
            chosen.choice.exchanged = [vec![false; layers], vec![false; layers]];
            for (lane, layer) in (0..LANES).flat_map(|lane| (0..layers).map(move |layer| (lane, layer))) {
                chosen.choice.exchanged[lane][layer] = true;
                let tried = self.step(&chosen.choice, device, &mut from)?;
                let then = self.predicted(&tried, &chosen, (loads, targets))?;
                let overlap = |u: &Usage| u.overlap * u.seconds;
                if overlap(&then) > overlap(&usage) && then.seconds <= usage.seconds {
                    (*step, usage) = (tried, then);
                } else {
                    chosen.choice.exchanged[lane][layer] = false;
                }
            }
        }
        self.chosen = Some(chosen);
        Ok(())
    }
    /// The step in one variant for each number of snapshots that the first lane may take, from 1 on, and the update.
    ///
    /// # Errors
    /// As those of recording and planning.
    pub fn step(&self, choice: &Choice, device: &Device, from: &mut Recorded<'_>) -> Result<Program> {
        let layers = &choice.exchanged;
        let variants = (1..=splits(choice.snapshots)).map(|first| {
            let lanes = Lanes::Groups { first, pipelined: self.round > 1 };
            Ok(((from.step)(&Exchanged { first, layers: layers.clone() })?, lanes))
        });
        let variants = variants.collect::<Result<Vec<_>>>()?;
        let variants = variants.iter().map(|(tape, lanes)| (tape, *lanes));
        let variants: Vec<(&Tape, Lanes)> =
            variants.chain(from.update.map(|tape| (tape, Lanes::One))).collect();
        Program::with_variants(&variants, Precision::F32, device)
    }
    /// What the lanes would do with the groups of `targets`.
    fn predicted(
        &self,
        program: &Program,
        chosen: &Chosen,
        (loads, targets): (&Loads, &[u32]),
    ) -> Result<Usage> {
        let variant_of_run = chosen.variant_of_run((loads, targets), self.round);
        let runs = Runs::of_groups(&variant_of_run, 0, (self.round, program.variants() - 1));
        let edges = |run: usize, work: &NodeInfo| loads.edges(targets[runs.group(run)], work.tag.section);
        Ok(predict(program, &runs.variant_of_run, &chosen.costs, &edges)?.usage())
    }
    /// The variant of each group of `targets`; until there is a choice, lanes have as many snapshots.
    pub fn variant_of_run(&self, loads: &Loads, targets: &[u32]) -> Vec<usize> {
        let even = || vec![loads.length / 2 - 1; targets.len()];
        self.chosen.as_ref().map_or_else(even, |c| c.variant_of_run((loads, targets), self.round))
    }
}

/// How many snapshots of a group, of which there are two or more, the first lane may have at most; 1 is the least.
fn splits(length: usize) -> usize {
    length - 1
}

impl Chosen {
    fn variant_of_run(&self, (loads, targets): (&Loads, &[u32]), round: usize) -> Vec<usize> {
        if let Some(first) = self.choice.first {
            return vec![first - 1; targets.len()];
        }
        let costs: Vec<GroupCost> = targets.iter().map(|&target| self.cost(loads, target)).collect();
        costs.chunks(round).flat_map(balance).map(|first| first - 1).collect()
    }
    /// Predicted seconds of a group.
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
