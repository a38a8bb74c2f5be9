//! The stages of a training step, found from what its nodes read and write.
use super::prefetchable::prefetchable;
use crate::{
    ops::{Node, OpKind},
    runtime::{DType, Spec, Var, comm::TrafficKind},
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
    let written = |n: &Node| -> Vec<Var> { n.writes.iter().map(|&w| n.ins[w]).collect() };
    let computes = |n: &Node| n.op.kind() == OpKind::Nn;
    let mut state: HashSet<Var> = HashSet::new();
    for (n, _) in
        nodes.iter().zip(&prefetchable).filter(|(n, p)| !**p && !computes(n) && n.op.traffic().is_none())
    {
        let read = |v: &Var| {
            nodes.iter().any(|o| o.ins.iter().enumerate().any(|(i, x)| x == v && !o.writes.contains(&i)))
        };
        state.extend(written(n).into_iter().filter(read));
    }
    // An op that communicates writes its sequence number, which is no result.
    let writes_stored = |n: &Node| !n.writes.is_empty() && n.op.traffic().is_none();
    let last_backward = nodes.iter().rposition(|n| n.tag.backward);
    // What other ranks get dispatched.
    let sent: HashSet<Var> = nodes
        .iter()
        .filter(|n| n.op.traffic() == Some(TrafficKind::Dispatch))
        .flat_map(|n| n.ins.iter().copied())
        .collect();
    // State and rows gathered from it, and what was computed from them.
    let (mut fetched, mut computed) = (state.clone(), HashSet::new());
    // What nodes of `route` compute, and rows of state that other ranks have dispatched.
    let (mut routed, mut dispatched) = (HashSet::new(), HashSet::new());
    let stage_of = |(at, (n, prefetchable)): (usize, (&&Node, bool))| {
        let stage = if prefetchable {
            let real = |o: &Var| specs[o.at()].dtype.widened() == DType::F32;
            let fetches = !n.outs.is_empty() && n.outs.iter().all(real);
            let routes = n.op.traffic().is_some() || n.ins.iter().any(|v| routed.contains(v));
            match (fetches, routes) {
                (true, _) => Stage::FetchFeatures,
                (false, true) => Stage::Route,
                (false, false) => Stage::Sample,
            }
        } else if let Some(stage) = n.op.traffic().and_then(exchanging) {
            stage
        } else if n.tag.backward {
            Stage::Embed
        } else if written(n).iter().any(|v| state.contains(v)) {
            let renews = |v| dispatched.contains(v);
            // Dispatched rows renew copies of state before it is read.
            if n.ins.iter().any(renews) { Stage::FetchMemory } else { Stage::WriteMemory }
        } else if computes(n) && !n.writes.is_empty() {
            Stage::Step
        } else if last_backward.is_some_and(|last| at > last) && !computes(n) && !writes_stored(n) {
            // After the backward pass, such nodes prepare the rows to be written.
            Stage::WriteMemory
        } else if !n.outs.is_empty() && n.outs.iter().all(|v| sent.contains(v)) {
            // Picks updated rows for other ranks.
            Stage::UpdateMemory
        } else if n.ins.iter().any(|v| computed.contains(v)) {
            Stage::Embed
        } else if computes(n) && n.ins.iter().any(|v| state.contains(v) || dispatched.contains(v)) {
            Stage::UpdateMemory
        } else if !computes(n) && n.ins.iter().any(|v| fetched.contains(v)) {
            Stage::FetchMemory
        } else {
            Stage::Embed
        };
        let outs = n.outs.iter().copied();
        if stage == Stage::FetchMemory {
            fetched.extend(outs);
        } else if stage == Stage::Dispatch && !n.ins.iter().any(|v| computed.contains(v)) {
            fetched.extend(outs.clone());
            dispatched.extend(outs);
        } else if stage == Stage::Route {
            routed.extend(outs);
        } else if !matches!(stage, Stage::Sample | Stage::FetchFeatures) {
            computed.extend(n.outs.iter().copied());
        }
        stage
    };
    let mut stages: Vec<Stage> = nodes.iter().zip(prefetchable).enumerate().map(stage_of).collect();
    move_to_weight_grads(nodes, specs, &mut stages);
    stages
}

/// Returns the stage of an op that exchanges rows or gradients with other ranks; `None` if it belongs to the
/// pass that it is part of.
fn exchanging(traffic: TrafficKind) -> Option<Stage> {
    match traffic {
        TrafficKind::Dispatch => Some(Stage::Dispatch),
        TrafficKind::Aggregation => Some(Stage::Aggregate),
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
        let writes_stored = !n.writes.is_empty() && n.op.traffic().is_none();
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
