//! How old the state may be that a step reads, and the order of steps that follows from it.
//!
//! With memory staleness k, step n reads node memory as `write_memory` of step n - 1 - k left it (MSPipe,
//! section 3.1). With weight staleness s, it computes with the parameters as `step` of step n - 1 - s left
//! them (PipeDream; Sven, equation 13 with s = 1). Both are versions of tables that are written in place, so
//! they follow from an order alone: the reads of step n come before the write of step n - k, and the update
//! of step n - s after all that step n computes. Whatever the lanes, accesses to the same memory keep this
//! order, so no row is older, newer or half written, and results are the same bits on every device.
use super::{Placement, Stage};
use crate::{
    ops::Node,
    runtime::{Spec, Var},
};
use std::collections::HashSet;

/// How many steps older the state is that a step reads than the previous step left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Staleness {
    /// Steps by which node memory is older: k.
    pub memory: usize,
    /// Steps by which parameters are older: s.
    pub weights: usize,
}

impl Staleness {
    /// Every step reads what the previous step left.
    pub const NONE: Staleness = Staleness { memory: 0, weights: 0 };

    /// Returns the steps by which a phase comes before the update of the same step.
    fn lead(self, phase: Phase) -> usize {
        match phase {
            Phase::Fetch => self.memory + self.weights,
            Phase::Compute => self.weights,
            Phase::Update => 0,
        }
    }
}

/// The part of a step that a node belongs to, by the versions of the state that it reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Prepares the step and reads node memory.
    Fetch,
    /// Reads parameters, and writes node memory. In a step that reads no older state this is all of it.
    Compute,
    /// Writes parameters.
    Update,
}

impl Phase {
    /// Returns the phase of a node of a stage; `late` says whether it depends on nodes of later phases.
    fn new(stage: Stage, late: bool) -> Self {
        match stage {
            Stage::Step => Phase::Update,
            stage if stage <= Stage::FetchMemory && !late => Phase::Fetch,
            _ => Phase::Compute,
        }
    }
}

/// When a node is due, before or after nodes of other steps.
#[derive(Clone, Copy, Debug)]
pub struct Precedence {
    placement: Placement,
    phase: Phase,
    /// Steps by which the node comes before the update of its own step.
    lead: usize,
    /// Order among the nodes that its lane executes between two steps.
    turn: usize,
}

impl Precedence {
    /// Returns when a stage is due in steps with this placement and staleness; `late` says whether it depends
    /// on what steps compute from node memory.
    pub fn of_stage(stage: Stage, late: bool, placement: Placement, staleness: Staleness) -> Self {
        let phase = if staleness == Staleness::NONE { Phase::Compute } else { Phase::new(stage, late) };
        Self::new(placement, phase, staleness)
    }
    /// Returns when a node of `phase` is due in a step with this placement and staleness.
    pub(super) fn new(placement: Placement, phase: Phase, staleness: Staleness) -> Self {
        let turn = usize::MAX - placement.prefetch_depth; // the most deeply prefetched ones first
        Precedence { placement, phase, lead: staleness.lead(phase), turn }
    }
    /// Returns the same with this order among the nodes that the lane executes between two steps.
    pub(super) fn at_turn(self, turn: usize) -> Self {
        Precedence { turn, ..self }
    }
    /// Returns the lane of the node.
    pub fn lane(self) -> usize {
        self.placement.lane
    }
    /// Returns the order of nodes of one step on a lane.
    pub(super) fn within_step(self) -> impl Ord {
        (usize::MAX - self.placement.prefetch_depth, self.phase, self.turn)
    }
    /// Returns the step with whose update a node of step `run` is due; accesses to the same memory are in
    /// the order of these steps, and within them by phase.
    pub(super) fn slot(self, run: usize) -> isize {
        run as isize - self.lead as isize
    }
    /// Returns the step during which the lane of the node executes it for step `run`: earlier ones by its
    /// prefetch depth.
    pub(super) fn during(self, run: usize) -> isize {
        self.slot(run) - self.placement.prefetch_depth as isize
    }
    /// Returns the steps by which the node is executed before the update of its own step.
    pub(super) fn ahead(self) -> usize {
        self.lead + self.placement.prefetch_depth
    }
    /// Returns the order in which nodes of several steps access the same memory.
    pub(super) fn of_accesses(self, run: usize) -> impl Ord {
        (self.slot(run), self.phase, run)
    }
    /// Returns the order of nodes of several steps on a lane.
    pub(super) fn on_lane(self, run: usize) -> impl Ord {
        (self.during(run), self.turn, self.phase, run)
    }
}

/// Returns the phase of each node of a step that reads older state: what is up to [`Stage::FetchMemory`] and
/// does not depend on later stages is fetched.
pub(super) fn phases(nodes: &[&Node], stages: &[Stage], specs: &[Spec]) -> Vec<Phase> {
    let mut computed: HashSet<Var> = HashSet::new();
    let phase_of = |(n, &stage): (&&Node, &Stage)| {
        let counts = n.ins.iter().filter_map(|v| Some(specs[v.at()].rows.live?.var));
        let late = n.ins.iter().copied().chain(counts).any(|v| computed.contains(&v));
        let phase = Phase::new(stage, late);
        if phase != Phase::Fetch {
            computed.extend(n.outs.iter().copied());
        }
        phase
    };
    nodes.iter().zip(stages).map(phase_of).collect()
}
