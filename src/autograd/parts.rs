//! Nodes in two parts, the first of which runs during the step before.
use super::{lanes::Lanes, stages::Stage, staleness::Staleness};
use crate::{
    ops::{Backend, Node, OpKind, Parts},
    runtime::{Var, changes::Change},
};
use std::{borrow::Cow, collections::HashSet};

/// Returns the nodes of a step, in which each op that has [two parts](Parts) is two nodes if its first part
/// can run ahead: on a device whose lane for it is another one, and if no update changes what it reads.
pub(super) fn in_parts<'a>(nodes: Vec<&'a Node>, lanes: Lanes, backend: &Backend) -> Vec<Cow<'a, Node>> {
    let split = splits(lanes, backend);
    let updates = |n: &&&Node| n.op.kind() == OpKind::Nn;
    let updated: HashSet<Var> =
        nodes.iter().filter(updates).flat_map(|n| n.writes.iter().map(|&w| n.ins[w])).collect();
    let parts = |n: &'a Node| {
        let fixed = |parts: &Parts| !n.ins[..parts.reads].iter().any(|v| updated.contains(v));
        match split.then(|| n.op.parts()).flatten().filter(fixed) {
            Some(parts) => two(n, parts).map(Cow::Owned).into(),
            None => vec![Cow::Borrowed(n)],
        }
    };
    nodes.into_iter().flat_map(parts).collect()
}

/// Whether the parts of ops are apart.
fn splits(lanes: Lanes, backend: &Backend) -> bool {
    let Lanes::Stages { placements, staleness: Staleness::NONE, .. } = lanes else { return false };
    let [fetch, update] =
        [Stage::FetchMemory, Stage::UpdateMemory].map(|stage| placements[stage as usize].lane);
    fetch != update && matches!(backend, Backend::Cuda(gpu) if gpu.has(Change::Ahead))
}

/// Returns a node as two.
fn two(n: &Node, Parts { ahead, reads, makes, rest }: Parts) -> [Node; 2] {
    let made: Vec<Var> = makes.iter().map(|&k| n.outs[k]).collect();
    let others = n.outs.iter().copied().enumerate().filter(|(k, _)| !makes.contains(k));
    let others = others.map(|(_, out)| out).collect();
    let node = |op, ins, outs| Node { op, ins, outs, writes: Vec::new(), view: false, tag: n.tag };
    let all = n.ins.iter().chain(&made).copied().collect();
    [node(ahead, n.ins[..reads].to_vec(), made), node(rest, all, others)]
}
