//! The stages of a training step, found from what its nodes read and write.
use super::prefetchable::prefetchable;
use crate::{
    ops::{Node, OpKind},
    runtime::{DType, Spec, Var, comm::TrafficKind, nvtx},
};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt};

/// A stage of a training step. Stages are ordered as a step executes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Cursor, negatives, temporal neighbours and unique nodes: everything that depends on the data alone.
    Sample,
    /// Lists by which ranks agree on the rows that they will exchange. They depend on the data alone.
    Route,
    /// Feature rows of the sampled nodes and events.
    FetchFeatures,
    /// Over ranks: rows of node memory and mails, from their owners to the ranks that compute with them.
    Dispatch,
    /// Rows of node memory and mails. A kernel that both gathers and updates them belongs to
    /// [`UpdateMemory`](Self::UpdateMemory).
    FetchMemory,
    /// New node memory, computed from mails.
    UpdateMemory,
    /// Embeddings, logits and the backward pass; for a snapshot group, its snapshots as well.
    Embed,
    /// Results that no other op of [`Embed`](Self::Embed) waits for: gradients that only the update reads,
    /// such as those of weights, and the loss as a number.
    WeightGrads,
    /// Over ranks: a batch's new node memory and mails, to the ranks that keep them.
    Aggregate,
    /// Writes of a batch's new node memory and mails.
    WriteMemory,
    /// Sums of the gradients over ranks.
    ReduceGradients,
    /// The optimiser's update of the parameters.
    Step,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 12] = [
        Stage::Sample,
        Stage::Route,
        Stage::FetchFeatures,
        Stage::Dispatch,
        Stage::FetchMemory,
        Stage::UpdateMemory,
        Stage::Embed,
        Stage::WeightGrads,
        Stage::Aggregate,
        Stage::WriteMemory,
        Stage::ReduceGradients,
        Stage::Step,
    ];
    /// Returns the name of the stage in plans and timelines.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Sample => "sample",
            Stage::Route => "route",
            Stage::FetchFeatures => "fetch_features",
            Stage::FetchMemory => "fetch_memory",
            Stage::Dispatch => "dispatch",
            Stage::UpdateMemory => "update_memory",
            Stage::Embed => "embed",
            Stage::WeightGrads => "weight_grads",
            Stage::Aggregate => "aggregate",
            Stage::WriteMemory => "write_memory",
            Stage::ReduceGradients => "reduce_gradients",
            Stage::Step => "step",
        }
    }
}

/// The profiler range of a stage, around the ranges of the ops of consecutive nodes.
#[derive(Default)]
pub(super) struct StageRange(Option<(Stage, nvtx::Range)>);

impl StageRange {
    /// Says that the next node is of `stage`: the range of another stage ends.
    pub fn enter(&mut self, stage: Stage) {
        if self.0.as_ref().is_none_or(|(open, _)| *open != stage) {
            self.0 = None; // ranges nest: this one ends before the next one begins
            self.0 = Some((stage, nvtx::range(stage)));
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the stage of each node.
///
/// A [`prefetchable`] node belongs to `fetch_features` if all its outputs are real numbers; to `route` if it
/// communicates, or reads what nodes of `route` compute; otherwise to `sample`. The other nodes are told
/// apart by whether they read or write *state*: stored values that some node reads, and that a node writes
/// which is neither prefetchable nor arithmetic. (Arithmetic nodes write parameters and the optimiser's
/// moments.)
pub(super) fn stages(nodes: &[&Node], specs: &[Spec]) -> Vec<Stage> {
    let prefetchable = prefetchable(nodes, specs);
    let mut values = Values::new(nodes, &prefetchable);
    let last_backward = nodes.iter().rposition(|n| n.tag.backward);
    let stage_of = |(at, (n, prefetchable)): (usize, (&&Node, bool))| {
        let stage = match prefetchable {
            true => values.stage_ahead(n, specs),
            false => values.stage(n, last_backward.is_some_and(|last| at > last)),
        };
        values.add_results(n, stage);
        stage
    };
    let mut stages: Vec<Stage> = nodes.iter().zip(prefetchable).enumerate().map(stage_of).collect();
    move_to_weight_grads(nodes, specs, &mut stages);
    stages
}

/// Kinds of values, by which stages are told apart. Those that nodes compute are added node by node.
struct Values {
    /// Stored values that make up node memory.
    state: HashSet<Var>,
    /// What other ranks get dispatched.
    sent: HashSet<Var>,
    /// State and rows gathered from it.
    fetched: HashSet<Var>,
    /// What was computed from these.
    computed: HashSet<Var>,
    /// What nodes of `route` compute.
    routed: HashSet<Var>,
    /// Rows of state that other ranks have dispatched.
    dispatched: HashSet<Var>,
    /// What nodes that write state have prepared.
    prepared: HashSet<Var>,
}

fn written(n: &Node) -> impl Iterator<Item = Var> {
    n.writes.iter().map(|&w| n.ins[w])
}

fn computes(n: &Node) -> bool {
    n.op.kind() == OpKind::Nn
}

/// Whether a node writes a stored value that is a result. The sequence number that an op writes which
/// communicates is none.
fn writes_stored(n: &Node) -> bool {
    !n.writes.is_empty() && n.op.traffic().is_none()
}

/// Returns the stored values that make up node memory.
pub(super) fn state(nodes: &[&Node], specs: &[Spec]) -> HashSet<Var> {
    state_of(nodes, &prefetchable(nodes, specs))
}

fn state_of(nodes: &[&Node], prefetchable: &[bool]) -> HashSet<Var> {
    let read = |v: &Var| {
        nodes.iter().any(|o| o.ins.iter().enumerate().any(|(i, x)| x == v && !o.writes.contains(&i)))
    };
    let writers = nodes.iter().zip(prefetchable).filter(|(n, p)| !**p && !computes(n) && writes_stored(n));
    writers.flat_map(|(n, _)| written(n)).filter(read).collect()
}

impl Values {
    fn new(nodes: &[&Node], prefetchable: &[bool]) -> Self {
        let state = state_of(nodes, prefetchable);
        let dispatches = nodes.iter().filter(|n| n.op.traffic() == Some(TrafficKind::Dispatch));
        Values {
            sent: dispatches.flat_map(|n| n.ins.iter().copied()).collect(),
            fetched: state.clone(),
            state,
            computed: HashSet::new(),
            routed: HashSet::new(),
            dispatched: HashSet::new(),
            prepared: HashSet::new(),
        }
    }
    /// Returns the stage of a node that can be prefetched.
    fn stage_ahead(&self, n: &Node, specs: &[Spec]) -> Stage {
        let real = |o: &Var| specs[o.at()].dtype.widened() == DType::F32;
        let fetches = !n.outs.is_empty() && n.outs.iter().all(real);
        let routes = n.op.traffic().is_some() || n.ins.iter().any(|v| self.routed.contains(v));
        match (fetches, routes) {
            (true, _) => Stage::FetchFeatures,
            (false, true) => Stage::Route,
            (false, false) => Stage::Sample,
        }
    }
    /// Returns the stage of another node; `after` says whether it follows the backward pass.
    fn stage(&self, n: &Node, after: bool) -> Stage {
        let reads = |values: &HashSet<Var>| n.ins.iter().any(|v| values.contains(v));
        if let Some(stage) = n.op.traffic().and_then(exchanging) {
            stage
        } else if n.tag.backward {
            Stage::Embed
        } else if written(n).any(|v| self.state.contains(&v)) {
            // Dispatched rows renew copies of state before it is read.
            if reads(&self.dispatched) { Stage::FetchMemory } else { Stage::WriteMemory }
        } else if computes(n) && !n.writes.is_empty() {
            Stage::Step
        } else if after && !computes(n) && (!writes_stored(n) || reads(&self.prepared)) {
            // After the backward pass, such nodes prepare the rows to be written, or compare them.
            Stage::WriteMemory
        } else if !n.outs.is_empty() && n.outs.iter().all(|v| self.sent.contains(v)) {
            // Picks updated rows for other ranks.
            Stage::UpdateMemory
        } else if reads(&self.computed) {
            Stage::Embed
        } else if computes(n) && reads(&self.fetched) {
            Stage::UpdateMemory
        } else if !computes(n) && reads(&self.fetched) {
            Stage::FetchMemory
        } else {
            Stage::Embed
        }
    }
    /// Adds what a node of a stage computes.
    fn add_results(&mut self, n: &Node, stage: Stage) {
        let outs = n.outs.iter().copied();
        match stage {
            Stage::Sample | Stage::FetchFeatures => {}
            Stage::Route => self.routed.extend(outs),
            Stage::FetchMemory => self.fetched.extend(outs),
            Stage::WriteMemory => {
                self.prepared.extend(outs.clone());
                self.computed.extend(outs);
            }
            Stage::Dispatch if !n.ins.iter().any(|v| self.computed.contains(v)) => {
                self.fetched.extend(outs.clone());
                self.dispatched.extend(outs);
            }
            _ => self.computed.extend(outs),
        }
    }
}

/// Returns the stage of an op that exchanges rows or gradients with other ranks; `None` if it belongs to the
/// pass that it is part of.
fn exchanging(traffic: TrafficKind) -> Option<Stage> {
    match traffic {
        TrafficKind::Dispatch => Some(Stage::Dispatch),
        TrafficKind::Aggregation | TrafficKind::HandOver => Some(Stage::Aggregate),
        TrafficKind::Gradients => Some(Stage::ReduceGradients),
        TrafficKind::Routes | TrafficKind::DispatchGradients | TrafficKind::Features => None,
    }
}

/// Moves `embed` nodes that no other `embed` node waits for to `weight_grads`:
/// - nodes whose results only the update reads, such as gradients of weights;
/// - sums of such results (all inputs and outputs have the same shape), and the nodes that compute their
///   inputs;
/// - nodes that write stored values that no other node reads, such as the loss, and the nodes that compute
///   what is written.
fn move_to_weight_grads(nodes: &[&Node], specs: &[Spec], stages: &mut [Stage]) {
    // Values that later nodes read; the values among them that some node outside `step` and `weight_grads`
    // waits for.
    let (mut read, mut waited_for) = (HashSet::new(), HashSet::new());
    for (at, n) in nodes.iter().enumerate().rev() {
        let writes_stored = writes_stored(n);
        let has_one_user = |v: Var| nodes.iter().filter(|o| o.ins.contains(&v)).count() == 1;
        let moved = stages[at] == Stage::Embed
            && if writes_stored {
                n.writes.iter().all(|&w| has_one_user(n.ins[w]))
            } else {
                n.outs.iter().any(|o| read.contains(o)) && !n.outs.iter().any(|o| waited_for.contains(o))
            };
        if moved {
            stages[at] = Stage::WeightGrads;
        }
        let counts = n.ins.iter().chain(&n.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        let reads: Vec<Var> = n.ins.iter().copied().chain(counts).collect();
        let spec = |v: &Var| specs[v.at()];
        let sums = n.ins.iter().all(|v| n.outs.iter().all(|o| spec(v) == spec(o)));
        let ends = matches!(stages[at], Stage::Step | Stage::ReduceGradients);
        if !(ends || moved && (writes_stored || sums)) {
            waited_for.extend(reads.iter().copied());
        }
        read.extend(reads);
    }
}
