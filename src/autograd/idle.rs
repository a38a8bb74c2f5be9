//! The step of a rank that has no events in it, because ranks get whole batches in turn.
//!
//! It still does what others rely on: it sends the rows that they ask for, gets those that it keeps, adds up
//! gradients, and updates the parameters. Nodes that would only compute empty or zero values are left out.
//! On a device each of them would cost a launch.
use super::variant::{Place, PlannedNode, Variant, lies_in};
use crate::{
    error::Result,
    ops::{Cost, Node, Op, OpKind, Tape},
    runtime::{
        cuda::{Kernels, Launch},
        *,
    },
};
use std::{collections::HashSet, sync::Arc};

/// The values of a step that are empty or zero, and how views are told from the values that they view.
struct Empty<'a> {
    /// For each value, the value that it is a view of, or itself.
    lies_in: Vec<Var>,
    specs: &'a [Spec],
    values: HashSet<Var>,
}

impl<'a> Empty<'a> {
    /// Returns what is known before any node of `tape` has run: that the values `empty` have no rows.
    fn new(tape: &Tape, specs: &'a [Spec], empty: &[Var]) -> Self {
        let lies_in = lies_in(tape, tape.nodes().iter());
        Empty { lies_in, specs, values: empty.iter().copied().collect() }
    }
    fn has(&self, v: Var) -> bool {
        self.values.contains(&self.lies_in[v.at()])
    }
    /// Whether a value has no rows because an empty value counts them.
    fn counted(&self, v: Var) -> bool {
        self.specs[v.at()].rows.live.is_some_and(|live| self.has(live.var))
    }
    /// Whether a node computes nothing but empty or zero values, and changes nothing. A node does so if all
    /// that it reads of this step is empty, or the input that its op [needs](crate::ops::Op::empty_without),
    /// or if it has no effect and all its results have no rows, or all that it reads but clocks is empty.
    fn makes(&self, p: &PlannedNode) -> bool {
        let of_step = || {
            let ins = p.node.ins.iter().zip(&p.ins);
            ins.filter(|(_, (place, _))| matches!(place, Place::Arena(..))).map(|(&v, &(_, spec))| (v, spec))
        };
        let clock = |spec: Spec| spec.dtype == DType::U32 && spec.rows == Rows::fixed(1);
        let some = of_step().any(|(v, _)| self.has(v));
        let effect = !p.node.writes.is_empty();
        let all = of_step().all(|(v, spec)| self.has(v) || !effect && clock(spec));
        let no_rows = || !effect && p.node.outs.iter().all(|&out| self.counted(out));
        let needed = || p.node.op.empty_without().is_some_and(|at| self.has(p.node.ins[at]));
        p.node.op.traffic().is_none() && some && (all || needed() || no_rows())
    }
    /// Adds the results of the next node that are empty or zero. Returns whether it need not run for them.
    fn add(&mut self, p: &PlannedNode) -> bool {
        let makes = self.makes(p);
        let outs = p.node.outs.iter().copied().filter(|&out| makes || self.counted(out));
        let outs: Vec<Var> = outs.collect();
        self.values.extend(outs);
        makes
    }
    /// Whether a node sends zeros from an input. They need no memory of the step, which later steps would
    /// wait for.
    fn sends_zeros(&self, p: &PlannedNode, v: Var) -> bool {
        p.node.op.traffic().is_some() && self.specs[v.at()].rows.live.is_none() && self.has(v)
    }
    /// Leaves out the nodes, too, whose results nobody reads then. Returns the values that are read.
    fn read(&self, nodes: &[PlannedNode], left_out: &mut [bool]) -> HashSet<Var> {
        let mut read: HashSet<Var> = HashSet::new();
        for (p, left_out) in nodes.iter().zip(left_out).rev() {
            let needed = !p.node.writes.is_empty() || p.node.outs.iter().any(|out| read.contains(out));
            *left_out |= !needed;
            if !*left_out {
                let operands = p.node.ins.iter().chain(&p.node.outs).copied();
                let counts = operands.filter_map(|v| Some(self.specs[v.at()].rows.live?.var));
                let ins = p.node.ins.iter().copied().filter(|&v| !self.sends_zeros(p, v));
                read.extend(ins.chain(counts).map(|v| self.lies_in[v.at()]));
            }
        }
        read
    }
}

/// In place of a node that is left out: writes zeros to the outputs that others read.
#[derive(Debug)]
pub(super) struct LeftOut;

impl Op for LeftOut {
    const NAME: &'static str = "left_out";
    const KIND: OpKind = OpKind::Copy;
    fn cost(&self, _: &[Spec], _: &[Spec]) -> Cost {
        Cost::default()
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        (0..io.outputs()).for_each(|k| io.out_bytes(k).fill(0));
    }
    unsafe fn launch(&self, _: &Kernels, on: &Launch<'_>) -> Result<()> {
        (0..on.outputs()).try_for_each(|k| on.clear(k))
    }
}

/// Returns [`LeftOut`] in place of a node, with the outputs that are read as `zeros`.
fn without(p: &PlannedNode, zeros: impl Fn(&Var) -> bool) -> PlannedNode {
    let outs = p.node.outs.iter().copied().zip(p.outs.iter().copied());
    let (vars, outs): (Vec<Var>, Vec<(Place, Spec)>) = outs.filter(|(out, _)| zeros(out)).unzip();
    let node = Node {
        op: Arc::new(LeftOut),
        ins: Vec::new(),
        outs: vars,
        writes: Vec::new(),
        view: false,
        tag: p.node.tag,
    };
    let (wanted, scratch) = (vec![true; outs.len()], (p.scratch.0, 0));
    PlannedNode { node, ins: Vec::new(), outs, counts: Vec::new(), wanted, scratch, tickets: 0, ..p.clone() }
}

impl Variant {
    /// Returns the variant of a run in which the values `empty` of `tape`, that of this variant, have no
    /// rows. Its nodes are the same, on the same lanes, in the same order, and in the same memory.
    pub fn idle(&self, tape: &Tape, empty: &[Var]) -> Variant {
        let mut known = Empty::new(tape, &self.specs, empty);
        let mut left_out: Vec<bool> = self.nodes.iter().map(|p| known.add(p)).collect();
        let read = known.read(&self.nodes, &mut left_out);
        let node = |(p, left_out): (&PlannedNode, bool)| {
            if left_out {
                let zeros = |out: &Var| read.contains(out) && self.specs[out.at()].rows.live.is_none();
                return without(p, zeros);
            }
            let place = |(&v, &(place, spec)): (&Var, &(Place, Spec))| {
                (if known.sends_zeros(p, v) { Place::Zeros } else { place }, spec)
            };
            let ins = p.node.ins.iter().zip(&p.ins).map(place).collect();
            PlannedNode { ins, ..p.clone() }
        };
        let nodes = self.nodes.iter().zip(left_out).map(node).collect();
        let (places, specs, lies_in) = (self.places.clone(), self.specs.clone(), self.lies_in.clone());
        let (arenas, alone, staleness) = (self.arenas.clone(), self.alone, self.staleness);
        Variant { nodes, places, specs, lies_in, arenas, alone, staleness, idle: true }
    }
}
