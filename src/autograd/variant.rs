//! A variant of a step: a tape with its dead nodes dropped, the others placed on lanes, and memory planned
//! for every value.
use super::{
    arena::ArenaPlan,
    lanes::{LaneWork, Lanes, MAX_LANES, Placement},
    parts::in_parts,
    placing::{PlacedNode, place},
    stages::Stage,
    staleness::{Precedence, Staleness},
    trace::Resource,
};
use crate::{
    error::Result,
    ops::{Backend, Cost, Home, Node, OpKind, Tape},
    runtime::*,
};
use std::collections::BTreeMap;

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In the arena of a lane: the lane, and an offset in bytes, or, if values are kept apart, the number of
    /// a block. A lane has as many arenas as its buffer depth.
    Arena(usize, usize),
    Stored(BufferId),
    /// Zeros, which no node writes.
    Zeros,
}

/// Returns the least common multiple of two numbers from 1 on.
pub(super) fn common_multiple(a: usize, b: usize) -> usize {
    (1..=b).map(|times| times * a).find(|multiple| multiple.is_multiple_of(b)).unwrap_or(a)
}

/// Returns the bytes of the largest operand in [`Place::Zeros`].
pub(super) fn bytes_of_zeros(variants: &[Variant], precision: Precision) -> usize {
    let ins = variants.iter().flat_map(|variant| &variant.nodes).flat_map(|p| &p.ins);
    let zeros = ins.filter(|(place, _)| *place == Place::Zeros);
    zeros.map(|(_, spec)| spec.bytes(precision)).max().unwrap_or(0)
}

/// Returns the shape of the live rows of a value, given what `count` tells of the counts of live rows; where
/// it tells nothing, all rows are live.
pub(super) fn live_spec(spec: Spec, count: &dyn Fn(Var) -> Option<usize>) -> Spec {
    let counted = spec.rows.live.and_then(|live| Some(count(live.var)?.saturating_mul(live.times)));
    let rows = counted.unwrap_or(spec.rows.capacity).min(spec.rows.capacity);
    Spec { rows: Rows::fixed(rows), ..spec }
}

/// A node with the places of its operands.
#[derive(Clone)]
pub(super) struct PlannedNode {
    pub node: Node,
    pub ins: Vec<(Place, Spec)>,
    pub outs: Vec<(Place, Spec)>,
    /// Counts of live rows that the node reads.
    pub counts: Vec<Place>,
    /// For each output, whether it is read.
    pub wanted: Vec<bool>,
    /// Place and bytes.
    pub scratch: (Place, usize),
    /// Number of ticket words.
    pub tickets: usize,
    pub stage: Stage,
    pub placement: Placement,
    pub precedence: Precedence,
    /// Resource for which the node competes with nodes that run at the same time.
    pub resource: Resource,
}

impl PlannedNode {
    /// Returns the number of runs after which the buffers that the node accesses repeat: the least common
    /// multiple of the depths of their lanes.
    pub fn buffer_choices(&self, buffer_depth: &[usize; MAX_LANES]) -> usize {
        let operands = self.ins.iter().chain(&self.outs).map(|operand| operand.0);
        let places = operands.chain(self.counts.iter().copied()).chain([self.scratch.0]);
        let depths = places.filter_map(|place| match place {
            Place::Arena(lane, _) => Some(buffer_depth[lane]),
            Place::Stored(_) | Place::Zeros => None,
        });
        depths.fold(1, common_multiple)
    }
    /// Returns the cost of a run with operands of these shapes. What an op reads twice, such as `x` in
    /// `x + x`, moves once, if the op counts every operand in full.
    pub fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let cost = self.node.op.cost(ins, outs);
        if cost != Cost::streaming(ins, outs, cost.flops) {
            return cost;
        }
        let of = &self.node.ins;
        let once = (0..ins.len()).filter(|&i| !of[..i].contains(&of[i])).map(|i| ins[i]);
        Cost::streaming(&once.collect::<Vec<_>>(), outs, cost.flops)
    }
    /// Returns the cost of a run in which `count` tells the counts of live rows; where it tells none, all
    /// rows are live.
    pub fn cost_at(&self, count: impl Fn(Var) -> Option<usize>) -> Cost {
        let specs = |operands: &[(Place, Spec)]| -> Vec<Spec> {
            operands.iter().map(|&(_, spec)| live_spec(spec, &count)).collect()
        };
        self.cost(&specs(&self.ins), &specs(&self.outs))
    }
    fn work(&self) -> LaneWork {
        match (self.node.op.kind(), self.stage) {
            (OpKind::Comm, _) => LaneWork::Communicates,
            (OpKind::Nn, _) => LaneWork::Computes,
            (_, stage) if stage <= Stage::FetchMemory => LaneWork::Copies,
            (_, Stage::Aggregate | Stage::WriteMemory) => LaneWork::Copies,
            _ => LaneWork::Computes,
        }
    }
}

/// Returns the lanes that nodes of `variants` are on, and the first one, which the calling thread executes;
/// each with its work.
pub(super) fn lanes_in_use(variants: &[Variant]) -> BTreeMap<usize, LaneWork> {
    let mut lanes = BTreeMap::from([(0, LaneWork::Copies)]);
    for planned in variants.iter().flat_map(|variant| &variant.nodes) {
        let work = lanes.entry(planned.placement.lane).or_insert(planned.work());
        *work = planned.work().max(*work);
    }
    lanes
}

/// A tape with its memory planned, its nodes in order and placed on lanes.
pub(super) struct Variant {
    pub nodes: Vec<PlannedNode>,
    /// The place of each value; `None` if nothing reads or writes it.
    pub places: Vec<Option<Place>>,
    pub specs: Vec<Spec>,
    /// For each value, the value that it is a view of, or itself.
    pub lies_in: Vec<Var>,
    /// The arena of each lane.
    pub arenas: [ArenaPlan; MAX_LANES],
    /// Whether all nodes are on one lane and nothing is prefetched across a run.
    pub alone: bool,
    /// How old the state is that a run reads.
    pub staleness: Staleness,
    /// Whether it is that of [idle](Self::idle) runs of the first variant.
    pub idle: bool,
}

impl Variant {
    /// Whether a value is the count of the live rows of another.
    pub fn counts(&self, v: Var) -> bool {
        self.specs.iter().any(|spec| spec.rows.live.is_some_and(|live| live.var == v))
    }
    /// Whether a node of a lane exchanges values with other ranks.
    pub fn communicates_on(&self, lane: usize) -> bool {
        self.nodes.iter().any(|p| p.placement.lane == lane && p.node.op.kind() == OpKind::Comm)
    }
    /// Plans `tape` for `lanes`; the values `keep` survive a run.
    ///
    /// # Errors
    /// `Shape` if a kept value belongs to another tape; `Plan` if the lanes would reverse the order of
    /// conflicting accesses.
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
        let nodes = tape.nodes().iter().zip(alive).filter(|(_, a)| *a).map(|(n, _)| n).collect();
        let nodes = in_parts(nodes, lanes, backend);
        let nodes: Vec<&Node> = nodes.iter().map(|n| &**n).collect();
        let placed = place(lanes, &nodes, &specs)?;
        let planner = Planner::new(tape, &placed, keep, specs, precision, backend)?;
        Ok(planner.plan(lanes))
    }
}

/// Gives every value of a step a place.
struct Planner<'a> {
    tape: &'a Tape,
    placed: &'a [PlacedNode<'a>],
    specs: Vec<Spec>,
    precision: Precision,
    /// Bytes of scratch of each node.
    scratch: Vec<usize>,
    /// On the host, the place that all nodes of a lane share for their scratch: one op of a lane runs at a
    /// time, and memory that is reused stays in the cache.
    shared_scratch: Option<[Place; MAX_LANES]>,
    /// For each value, the value that it is a view of, or itself.
    lies_in: Vec<Var>,
    /// For each value, the last node that accesses it.
    last_use: Vec<usize>,
    /// For each value, whether it is read.
    read: Vec<bool>,
    places: Vec<Option<Place>>,
    arenas: [ArenaPlan; MAX_LANES],
}

impl<'a> Planner<'a> {
    fn new(
        tape: &'a Tape,
        placed: &'a [PlacedNode<'a>],
        keep: &[Var],
        specs: Vec<Spec>,
        precision: Precision,
        backend: &Backend,
    ) -> Result<Self> {
        let scratch = placed.iter().map(|p| scratch_bytes(tape, p.node, precision));
        let scratch: Vec<usize> = scratch.collect::<Result<_>>()?;
        let apart = backend.keeps_values_apart();
        let mut arenas: [ArenaPlan; MAX_LANES] = std::array::from_fn(|_| ArenaPlan::new(apart));
        let on_host = !matches!(backend, Backend::Cuda(_));
        let shared_scratch = on_host.then(|| {
            std::array::from_fn(|lane| {
                let of_lane = placed.iter().zip(&scratch).filter(|(p, _)| p.placement.lane == lane);
                let largest = of_lane.map(|(_, &bytes)| bytes).max().unwrap_or(0);
                Place::Arena(lane, arenas[lane].place(largest, 0, placed.len()))
            })
        });
        let stored = |v| match tape.home(v) {
            Home::Stored { id, .. } => Some(Place::Stored(id)),
            Home::Step => None,
        };
        let lies_in = lies_in(tape, placed.iter().map(|p| p.node));
        Ok(Planner {
            tape,
            placed,
            precision,
            scratch,
            shared_scratch,
            last_use: last_uses(placed, keep, &specs, &lies_in),
            lies_in,
            read: read(placed, keep, &specs),
            specs,
            places: tape.vars().map(stored).collect(),
            arenas,
        })
    }
    fn plan(mut self, lanes: Lanes) -> Variant {
        let mut nodes = Vec::with_capacity(self.placed.len());
        for at in 0..self.placed.len() {
            let node = self.placed[at].node;
            if let [out] = node.outs[..]
                && self.lies_in[out.at()] != out
            {
                // A view needs no memory and no work.
                self.places[out.at()] = self.places[self.lies_in[out.at()].at()];
                continue;
            }
            let scratch = self.place_results(at);
            nodes.push(self.planned(at, scratch));
        }
        let (alone, staleness) = (lanes == Lanes::One, lanes.staleness());
        Variant {
            nodes,
            places: self.places,
            specs: self.specs,
            lies_in: self.lies_in,
            arenas: self.arenas,
            alone,
            staleness,
            idle: false,
        }
    }
    /// Gives the outputs of a node their places, and returns that of its scratch.
    fn place_results(&mut self, at: usize) -> Place {
        let PlacedNode { node, placement, .. } = &self.placed[at];
        let lane = placement.lane;
        let arena = &mut self.arenas[lane];
        for &out in &node.outs {
            let bytes = self.specs[out.at()].bytes(self.precision);
            let offset = arena.place(bytes, at, self.last_use[out.at()]);
            self.places[out.at()] = Some(Place::Arena(lane, offset));
        }
        match self.shared_scratch {
            Some(shared) => shared[lane],
            None => Place::Arena(lane, arena.place(self.scratch[at], at, at)),
        }
    }
    fn planned(&self, at: usize, scratch: Place) -> PlannedNode {
        let &PlacedNode { node, stage, placement, precedence } = &self.placed[at];
        let operand = |v: &Var| {
            // A value is computed before it is used: the tape only hands out values that nodes before
            // compute.
            (self.places[v.at()].unwrap_or(Place::Arena(0, 0)), self.specs[v.at()])
        };
        let (ins, outs) = (node.ins.iter().map(operand).collect(), node.outs.iter().map(operand).collect());
        let counts =
            node.ins.iter().chain(&node.outs).filter_map(|v| Some(self.specs[v.at()].rows.live?.var));
        let counts = counts.filter(|count| !node.outs.contains(count));
        let counts = counts.filter_map(|count| self.places[count.at()]).collect();
        let on_host = |&v: &Var| matches!(self.tape.home(v), Home::Stored { on_host: true, .. });
        let writes_host = node.writes.iter().any(|&w| on_host(&node.ins[w]));
        PlannedNode {
            ins,
            outs,
            counts,
            wanted: node.outs.iter().map(|out| self.read[out.at()]).collect(),
            scratch: (scratch, self.scratch[at]),
            tickets: node.op.tickets(&self.tape.specs(&node.ins)),
            stage,
            placement,
            precedence,
            resource: Resource::for_op(node.op.kind(), node.ins.iter().any(on_host), writes_host),
            node: node.clone(),
        }
    }
}

/// Returns, for each value, the value that it is a view of, or itself. A view of a stored value is copied:
/// the stored value may be written while the view is still read.
pub(super) fn lies_in<'a>(tape: &Tape, nodes: impl Iterator<Item = &'a Node>) -> Vec<Var> {
    let mut lies_in: Vec<Var> = tape.vars().collect();
    for node in nodes.filter(|n| n.view && tape.home(n.ins[0]) == Home::Step) {
        lies_in[node.outs[0].at()] = lies_in[node.ins[0].at()];
    }
    lies_in
}

/// Returns, for each value, whether it is read: as an input, as a count, or after the run.
fn read(placed: &[PlacedNode<'_>], keep: &[Var], specs: &[Spec]) -> Vec<bool> {
    let mut read = vec![false; specs.len()];
    for &v in keep.iter().chain(placed.iter().flat_map(|p| &p.node.ins)) {
        read[v.at()] = true;
    }
    for v in placed.iter().flat_map(|p| p.node.ins.iter().chain(&p.node.outs)) {
        if let Some(live) = specs[v.at()].rows.live {
            read[live.var.at()] = true;
        }
    }
    read
}

/// Returns the bytes of scratch that a node's op declares.
fn scratch_bytes(tape: &Tape, node: &Node, precision: Precision) -> Result<usize> {
    let (reals, name) = (node.op.scratch(&tape.specs(&node.ins)), node.op.name());
    Spec::real(Rows::fixed(reals), 1).check_size(name)?;
    Ok(reals * DType::F32.size(precision))
}

/// Returns, for each node, whether it is needed: because it writes state, or because a kept value or a needed
/// node depends on it.
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

/// Returns, for each value, the last node that accesses it, a view of it, or its row count. A value that one
/// lane computes for another lives until the end.
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
