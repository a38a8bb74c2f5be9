//! What a training step is made of: its stages, found from what its nodes read and write.
use super::prefetchable::prefetchable;
use crate::{
    ops::{Node, OpKind},
    runtime::{DType, Spec, Var},
};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt};

/// A stage of a training step, in the order in which a step does them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The cursor, negatives, temporal neighbours, unique nodes: what depends on the data alone.
    Sample,
    /// Rows of features of what was sampled.
    FetchFeatures,
    /// Rows of node memory and mails. Where one kernel reads them and updates them, that is of [`UpdateMemory`](Self::UpdateMemory).
    FetchMemory,
    /// What mails make of node memory.
    UpdateMemory,
    /// Embeddings, logits, and the backward pass; of a snapshot group its snapshots, too.
    Embed,
    /// What no other op of [`Embed`](Self::Embed) waits for: gradients that only the update reads, those of weights; the loss as a number.
    WeightGrads,
    /// New memory and mails of a batch.
    WriteMemory,
    /// The optimiser's update.
    Step,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 8] = [
        Stage::Sample,
        Stage::FetchFeatures,
        Stage::FetchMemory,
        Stage::UpdateMemory,
        Stage::Embed,
        Stage::WeightGrads,
        Stage::WriteMemory,
        Stage::Step,
    ];
    /// As plans and timelines call it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Sample => "sample",
            Stage::FetchFeatures => "fetch_features",
            Stage::FetchMemory => "fetch_memory",
            Stage::UpdateMemory => "update_memory",
            Stage::Embed => "embed",
            Stage::WeightGrads => "weight_grads",
            Stage::WriteMemory => "write_memory",
            Stage::Step => "step",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The stage of each node. What runs [`prefetchable`] is sampling or, where it makes nothing but reals, a fetch of features. *State* is what the
/// step writes and a later one reads, but for what arithmetic writes: those are parameters.
pub(super) fn stages(nodes: &[&Node], specs: &[Spec]) -> Vec<Stage> {
    let ahead = prefetchable(nodes, specs);
    let written = |n: &Node| -> Vec<Var> { n.writes.iter().map(|&w| n.ins[w]).collect() };
    let computes = |n: &Node| matches!(n.op.kind(), OpKind::Nn | OpKind::Comm);
    let mut state: HashSet<Var> = HashSet::new();
    for (n, _) in nodes.iter().zip(&ahead).filter(|(n, ahead)| !**ahead && !computes(n)) {
        let read = |v: &Var| {
            nodes.iter().any(|o| o.ins.iter().enumerate().any(|(i, x)| x == v && !o.writes.contains(&i)))
        };
        state.extend(written(n).into_iter().filter(read));
    }
    let turned = nodes.iter().rposition(|n| n.tag.backward);
    // What holds rows of state, and what arithmetic made.
    let (mut fetched, mut computed) = (state.clone(), HashSet::new());
    let of = |(at, (n, ahead)): (usize, (&&Node, bool))| {
        let stage = if ahead {
            let real = |o: &Var| specs[o.at()].dtype.widened() == DType::F32;
            let fetches = !n.outs.is_empty() && n.outs.iter().all(real);
            if fetches { Stage::FetchFeatures } else { Stage::Sample }
        } else if n.tag.backward {
            Stage::Embed
        } else if written(n).iter().any(|v| state.contains(v)) {
            Stage::WriteMemory
        } else if computes(n) && !n.writes.is_empty() {
            Stage::Step
        } else if turned.is_some_and(|turned| at > turned) && n.writes.is_empty() && !computes(n) {
            Stage::WriteMemory
        } else if n.ins.iter().any(|v| computed.contains(v)) {
            Stage::Embed
        } else if computes(n) && n.ins.iter().any(|v| state.contains(v)) {
            Stage::UpdateMemory
        } else if !computes(n) && n.ins.iter().any(|v| fetched.contains(v)) {
            Stage::FetchMemory
        } else {
            Stage::Embed
        };
        if stage == Stage::FetchMemory {
            fetched.extend(n.outs.iter().copied());
        } else if !matches!(stage, Stage::Sample | Stage::FetchFeatures) {
            computed.extend(n.outs.iter().copied());
        }
        stage
    };
    let mut stages: Vec<Stage> = nodes.iter().zip(ahead).enumerate().map(of).collect();
    set_aside(nodes, specs, &mut stages);
    stages
}

/// Gives what no other op of `embed` waits for a stage of its own: what only the update reads, or a sum that only the update reads, or
/// what only writes what nobody reads, with its result.
fn set_aside(nodes: &[&Node], specs: &[Spec], stages: &mut [Stage]) {
    // What is read: at all, and by what makes something of it that is waited for.
    let (mut read, mut waited_for) = (HashSet::new(), HashSet::new());
    for (at, n) in nodes.iter().enumerate().rev() {
        let records = !n.writes.is_empty();
        let own = |v: Var| nodes.iter().filter(|o| o.ins.contains(&v)).count() == 1;
        let aside = stages[at] == Stage::Embed
            && if records {
                n.writes.iter().all(|&w| own(n.ins[w]))
            } else {
                n.outs.iter().any(|o| read.contains(o)) && !n.outs.iter().any(|o| waited_for.contains(o))
            };
        if aside {
            stages[at] = Stage::WeightGrads;
        }
        let counts = n.ins.iter().chain(&n.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        let reads: Vec<Var> = n.ins.iter().copied().chain(counts).collect();
        let of = |v: &Var| specs[v.at()];
        let sums = n.ins.iter().all(|v| n.outs.iter().all(|o| of(v) == of(o)));
        if !(stages[at] == Stage::Step || aside && (records || sums)) {
            waited_for.extend(reads.iter().copied());
        }
        read.extend(reads);
    }
}
