//! A tape with its memory planned: dead nodes dropped, the others in order and on their lanes, every value in its place.
use super::{
    arena::ArenaPlan,
    lanes::{LANES, Lanes, PlacedNode, Placement},
    stages::Stage,
    trace::Resource,
};
use crate::{
    error::Result,
    ops::{Backend, Home, Node, Tape},
    runtime::*,
};

/// Where an operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In the memory of a lane's values, of which there may be two, for steps in depth: an offset; where values are kept apart, the
    /// number of a block.
    Arena(usize, usize),
    Stored(BufferId),
}

/// A node with its operands' places.
pub(super) struct PlannedNode {
    pub node: Node,
    pub ins: Vec<(Place, Spec)>,
    pub outs: Vec<(Place, Spec)>,
    /// Counts of live rows that it reads.
    pub counts: Vec<Place>,
    /// Whether each output is read.
    pub wanted: Vec<bool>,
    /// Where, and bytes.
    pub scratch: (Place, usize),
    /// Words.
    pub tickets: usize,
    /// Of which stage it is.
    pub stage: Stage,
    /// Where it runs.
    pub placement: Placement,
    /// What it competes for.
    pub resource: Resource,
}

/// A tape with its memory planned, its nodes in order and on their lanes.
pub(super) struct Variant {
    pub nodes: Vec<PlannedNode>,
    pub places: Vec<Option<Place>>,
    pub specs: Vec<Spec>,
    /// What the values of each lane want.
    pub arenas: [ArenaPlan; LANES],
    /// Whether all is on one lane, and nothing goes ahead of it.
    pub alone: bool,
}

impl Variant {
    /// Plans `tape` for `lanes`; values of `keep` survive a run.
    ///
    /// # Errors
    /// `Plan`, where the lanes turn round what must come one after the other.
    pub fn new(
        tape: &Tape,
        keep: &[Var],
        precision: Precision,
        backend: &Backend,
        lanes: Lanes,
    ) -> Result<Self> {
        keep.iter().try_for_each(|&v| tape.check("program", v))?;
        let specs: Vec<Spec> = tape.vars().map(|v| tape.spec(v)).collect();
        let alive = alive(tape, keep, &specs);
        let nodes: Vec<&Node> = tape.nodes().iter().zip(alive).filter(|(_, a)| *a).map(|(n, _)| n).collect();
        let placed = lanes.share_out(nodes, &specs)?;
        // A view of a stored value is copied all the same: the value may be written while the view is still read.
        let mut lies_in: Vec<Var> = tape.vars().collect();
        for n in placed.iter().map(|p| p.node).filter(|n| n.view && tape.home(n.ins[0]) == Home::Step) {
            lies_in[n.outs[0].at()] = lies_in[n.ins[0].at()];
        }
        let last_use = last_uses(&placed, keep, &specs, &lies_in);
        let mut read = vec![false; specs.len()];
        let counts = |v: &Var| specs[v.at()].rows.live.map(|l| l.var);
        for &v in keep.iter().chain(placed.iter().flat_map(|p| &p.node.ins)) {
            read[v.at()] = true;
        }
        for v in placed.iter().flat_map(|p| p.node.ins.iter().chain(&p.node.outs)).filter_map(counts) {
            read[v.at()] = true;
        }
        let apart = backend.keeps_values_apart();
        let mut arenas = [ArenaPlan::new(apart), ArenaPlan::new(apart)];
        let stored = |v| match tape.home(v) {
            Home::Stored { id, .. } => Some(Place::Stored(id)),
            Home::Step => None,
        };
        let mut places: Vec<Option<Place>> = tape.vars().map(stored).collect();
        let scratch = |p: &PlacedNode<'_>| scratch_bytes(tape, p.node, precision);
        let scratch: Vec<usize> = placed.iter().map(scratch).collect::<Result<_>>()?;
        // On the host one op of a lane runs at a time, so all have the same scratch: it stays in a cache, where room in between the
        // values of a step would have to be brought in for every op anew.
        let on_host = !matches!(backend, Backend::Cuda(_));
        let shared: Option<[Place; LANES]> = on_host.then(|| {
            std::array::from_fn(|lane| {
                let those = placed.iter().zip(&scratch).filter(|(p, _)| p.placement.lane == lane);
                let most = those.map(|(_, &bytes)| bytes).max().unwrap_or(0);
                Place::Arena(lane, arenas[lane].place(most, 0, placed.len()))
            })
        });
        let mut planned = Vec::with_capacity(placed.len());
        for (at, &PlacedNode { node, stage, placement }) in placed.iter().enumerate() {
            let lane = placement.lane;
            let mut place = |bytes, until| Place::Arena(lane, arenas[lane].place(bytes, at, until));
            if let [out] = node.outs[..]
                && lies_in[out.at()] != out
            {
                places[out.at()] = places[lies_in[out.at()].at()];
                continue;
            }
            for &o in &node.outs {
                let bytes = specs[o.at()].bytes(precision);
                places[o.at()] = Some(place(bytes, last_use[o.at()]));
            }
            let shared = shared.map(|shared| shared[lane]);
            let scratch = (shared.unwrap_or_else(|| place(scratch[at], at)), scratch[at]);
            let tickets = node.op.tickets(&tape.specs(&node.ins));
            let operand = |v: &Var| {
                // A value is made before it is used: the tape only hands out what it has made.
                (places[v.at()].unwrap_or(Place::Arena(0, 0)), specs[v.at()])
            };
            let (ins, outs) =
                (node.ins.iter().map(operand).collect(), node.outs.iter().map(operand).collect());
            let wanted = node.outs.iter().map(|o| read[o.at()]).collect();
            let own = |v: &Var| node.outs.contains(v);
            let read = node.ins.iter().chain(&node.outs).filter_map(counts).filter(|c| !own(c));
            let counts = read.filter_map(|v| places[v.at()]).collect();
            let on_host = |&v: &Var| matches!(tape.home(v), Home::Stored { on_host: true, .. });
            let changes_host = node.writes.iter().any(|&w| on_host(&node.ins[w]));
            let resource = Resource::of(node.op.kind(), node.ins.iter().any(on_host), changes_host);
            let node = node.clone();
            planned.push(PlannedNode {
                node,
                ins,
                outs,
                counts,
                wanted,
                scratch,
                tickets,
                stage,
                placement,
                resource,
            });
        }
        Ok(Variant { nodes: planned, places, specs, arenas, alone: lanes == Lanes::One })
    }
}

/// Bytes of the scratch that a node's op declares.
fn scratch_bytes(tape: &Tape, node: &Node, precision: Precision) -> Result<usize> {
    let (reals, name) = (node.op.scratch(&tape.specs(&node.ins)), node.op.name());
    Spec::real(Rows::fixed(reals), 1).check_size(name)?;
    Ok(reals * DType::F32.size(precision))
}

/// Which nodes matter: those that write state, and those whose results a kept value or such a node needs.
fn alive(tape: &Tape, keep: &[Var], specs: &[Spec]) -> Vec<bool> {
    let mut needed = vec![false; tape.len()];
    let need = |needed: &mut Vec<bool>, v: Var| {
        needed[v.at()] = true;
        if let Some(l) = specs[v.at()].rows.live {
            needed[l.var.at()] = true;
        }
    };
    keep.iter().for_each(|&v| need(&mut needed, v));
    let mut alive = vec![false; tape.nodes().len()];
    for (at, n) in tape.nodes().iter().enumerate().rev() {
        alive[at] = !n.writes.is_empty() || n.outs.iter().any(|o| needed[o.at()]);
        if alive[at] {
            n.ins.iter().chain(&n.outs).for_each(|&v| need(&mut needed, v));
        }
    }
    alive
}

/// The last node that touches each value, a view of it, or its row count. What one lane makes for the other lasts to the end.
fn last_uses(placed: &[PlacedNode<'_>], keep: &[Var], specs: &[Spec], lies_in: &[Var]) -> Vec<usize> {
    let (mut last, mut made_on) = (vec![0; specs.len()], vec![None; specs.len()]);
    for p in placed {
        p.node.outs.iter().for_each(|o| made_on[o.at()] = Some(p.placement.lane));
    }
    let mut touch = |v: Var, at: usize| {
        for v in std::iter::once(v).chain(specs[v.at()].rows.live.map(|l| l.var)) {
            let v = lies_in[v.at()];
            let elsewhere = |made| placed.get(at).is_some_and(|p| p.placement.lane != made);
            let until = if made_on[v.at()].is_some_and(elsewhere) { placed.len() } else { at };
            last[v.at()] = last[v.at()].max(until);
        }
    };
    for (at, p) in placed.iter().enumerate() {
        p.node.ins.iter().chain(&p.node.outs).for_each(|&v| touch(v, at));
    }
    keep.iter().for_each(|&v| touch(v, placed.len()));
    last
}
