//! Orders the nodes of each lane by their longest path to the end of the next step.
//!
//! A list scheduler (HEFT, Topcuoglu et al. 2002) places the nodes of a few steps, those with the longest
//! path first, where they end soonest. A node whose results nothing waits for so gets out of the way of one
//! on the critical path, into a gap or onto another lane. The order of a step in the middle is that of every
//! step.
use super::{
    lanes::{MAX_LANES, Placement},
    placing::must_follow,
};
use crate::{ops::Node, runtime::Spec};
use std::collections::HashMap;

/// Rough seconds of an op: a start, and the bytes or the operations, whichever takes longer. They are those
/// of small ops on an H200 (docs/results.md). Only their ratios count.
const SECONDS_PER_OP: f64 = 3e-6;
const BYTES_PER_SECOND: f64 = 2e12;
const FLOPS_PER_SECOND: f64 = 2e13;
/// Seconds from the end of a node until one on another lane can start.
const SECONDS_BETWEEN_LANES: f64 = 1e-6;

/// Steps that are placed. The one in the middle has a step before it and one behind it.
const STEPS: usize = 3;
const MIDDLE: usize = STEPS / 2;

/// Where a node runs within its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub lane: usize,
    /// The nodes that a lane executes between two steps run in this order.
    pub turn: usize,
}

/// Returns the turn of each node. Lanes on which nothing is prefetched share their nodes; the other lanes
/// keep theirs.
pub(super) fn by_longest_path(nodes: &[&Node], placements: &[Placement], specs: &[Spec]) -> Vec<Turn> {
    let lanes = SharedLanes::new(placements);
    let steps = Steps::new(nodes, placements, specs, &lanes);
    let placed = steps.placed(&lanes);
    let middle = |at: usize| placed[steps.instance(MIDDLE + placements[at].prefetch_depth, at)];
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by(|&a, &b| middle(a).start.total_cmp(&middle(b).start).then(a.cmp(&b)));
    let mut turns: Vec<Turn> = (0..nodes.len()).map(|at| Turn { lane: middle(at).lane, turn: 0 }).collect();
    order.into_iter().enumerate().for_each(|(turn, at)| turns[at].turn = turn);
    turns
}

/// The lanes on which nothing is prefetched, which share their nodes.
struct SharedLanes {
    shared: Vec<usize>,
    /// Deepest prefetch of each lane.
    deepest: [usize; MAX_LANES],
}

impl SharedLanes {
    fn new(placements: &[Placement]) -> Self {
        let (mut in_use, mut deepest) = ([false; MAX_LANES], [0; MAX_LANES]);
        for p in placements {
            in_use[p.lane] = true;
            deepest[p.lane] = p.prefetch_depth.max(deepest[p.lane]);
        }
        SharedLanes { shared: (0..MAX_LANES).filter(|&l| in_use[l] && deepest[l] == 0).collect(), deepest }
    }
    /// Returns the lanes on which a node of `lane` may run.
    fn of(&self, lane: usize) -> &[usize] {
        const ALONE: [usize; MAX_LANES] = [0, 1, 2, 3, 4, 5, 6, 7];
        if self.deepest[lane] == 0 { &self.shared } else { &ALONE[lane..=lane] }
    }
    /// Returns the lane that stands for all those on which a node of `lane` may run.
    fn group(&self, lane: usize) -> usize {
        self.of(lane)[0]
    }
}

/// An instance that has been placed.
#[derive(Clone, Copy, Default)]
struct Placed {
    lane: usize,
    start: f64,
    end: f64,
}

/// The nodes of several runs: *instances*, run by run. After those of a run there is one more for each lane:
/// the end of all accesses to the run's values of this lane, after which a later run reuses their memory.
struct Steps<'a> {
    placements: &'a [Placement],
    /// Rough seconds of each node.
    seconds: Vec<f64>,
    /// For each instance, those that it must follow, all of them before it.
    follows: Vec<Vec<usize>>,
}

impl<'a> Steps<'a> {
    fn new(nodes: &[&Node], placements: &'a [Placement], specs: &[Spec], lanes: &SharedLanes) -> Self {
        let runs = STEPS + lanes.deepest.iter().max().copied().unwrap_or(0);
        let seconds = nodes.iter().map(|node| seconds(node, specs)).collect();
        let mut steps = Steps { placements, seconds, follows: Vec::new() };
        steps.follows = vec![Vec::new(); runs * (nodes.len() + MAX_LANES)];
        for (at, follows) in must_follow(nodes, specs, runs).into_iter().enumerate() {
            let instance = |at: usize| steps.instance(at / nodes.len(), at % nodes.len());
            let follows = follows.into_iter().map(instance).collect();
            let at = instance(at);
            steps.follows[at] = follows;
        }
        let group = |at: usize| lanes.group(placements[at].lane);
        let made: HashMap<_, _> = nodes
            .iter()
            .enumerate()
            .flat_map(|(at, n)| n.outs.iter().map(move |&v| (v, group(at))))
            .collect();
        for (at, node) in nodes.iter().enumerate() {
            let counts = node.ins.iter().chain(&node.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
            let groups = node.ins.iter().chain(&node.outs).copied().chain(counts);
            let mut groups: Vec<usize> = groups.filter_map(|v| made.get(&v).copied()).collect();
            groups.sort_unstable();
            groups.dedup();
            let reused = 1 + lanes.deepest[group(at)];
            for run in 0..runs {
                let instance = steps.instance(run, at);
                groups
                    .iter()
                    .for_each(|lane| steps.follows[instance - at + nodes.len() + lane].push(instance));
                if let Some(before) = run.checked_sub(reused).filter(|_| !node.outs.is_empty()) {
                    let end = steps.instance(before, nodes.len() + group(at));
                    steps.follows[instance].push(end);
                }
            }
        }
        steps
    }
    /// Returns the number of an instance: a node of a run, or, behind all nodes, the end of a lane.
    fn instance(&self, run: usize, at: usize) -> usize {
        run * (self.seconds.len() + MAX_LANES) + at
    }
    /// Returns the node of an instance and the step in which its lane executes it; `None` for the end of a
    /// lane.
    fn node(&self, instance: usize) -> Option<(usize, isize)> {
        let (run, at) =
            (instance / (self.seconds.len() + MAX_LANES), instance % (self.seconds.len() + MAX_LANES));
        let depth = self.placements.get(at)?.prefetch_depth;
        Some((at, run as isize - depth as isize))
    }
    /// Returns the seconds of the longest path from each instance to the end, its own included.
    fn paths(&self) -> Vec<f64> {
        let mut paths = vec![0.0; self.follows.len()];
        for instance in (0..paths.len()).rev() {
            paths[instance] += self.node(instance).map_or(0.0, |(at, _)| self.seconds[at]);
            self.follows[instance].iter().for_each(|&other| paths[other] = paths[instance].max(paths[other]));
        }
        paths
    }
    /// Places each instance, those with the longest path first, into the first gap of a lane that it fits in.
    /// It takes another lane than the first one only if it ends there sooner by more than a wait for a lane.
    fn placed(&self, lanes: &SharedLanes) -> Vec<Placed> {
        let paths = self.paths();
        let mut order: Vec<usize> = (0..paths.len()).collect();
        order.sort_by(|&a, &b| paths[b].total_cmp(&paths[a]).then(a.cmp(&b)));
        let mut placed = vec![Placed::default(); paths.len()];
        let mut busy: [Vec<[f64; 2]>; MAX_LANES] = Default::default();
        for instance in order {
            let ready = |lane: Option<usize>| {
                let of = |&other: &usize| {
                    let Placed { lane: from, end, .. } = placed[other];
                    let waits = end > 0.0 && lane.is_some_and(|lane| lane != from);
                    end + if waits { SECONDS_BETWEEN_LANES } else { 0.0 }
                };
                self.follows[instance].iter().map(of).fold(0.0, f64::max)
            };
            placed[instance] = match self.node(instance) {
                None => Placed { lane: 0, start: ready(None), end: ready(None) },
                // Steps before the first one have ended, and those after the last one do not count.
                Some((_, step)) if !(0..STEPS as isize).contains(&step) => Placed::default(),
                Some((at, _)) => {
                    let place = |lane: usize| {
                        let start = gap(&busy[lane], ready(Some(lane)), self.seconds[at]);
                        Placed { lane, start, end: start + self.seconds[at] }
                    };
                    let all = lanes.of(self.placements[at].lane).iter().map(|&lane| place(lane));
                    let sooner = |a: &Placed, b: &Placed| b.end + SECONDS_BETWEEN_LANES < a.end;
                    let soonest = all.reduce(|a, b| if sooner(&a, &b) { b } else { a }).unwrap_or_default();
                    let of_lane = &mut busy[soonest.lane];
                    let index = of_lane.partition_point(|other| other[0] < soonest.start);
                    of_lane.insert(index, [soonest.start, soonest.end]);
                    soonest
                }
            };
        }
        placed
    }
}

/// Returns the first time from `ready` on at which a lane that is `busy` has `seconds` free.
fn gap(busy: &[[f64; 2]], ready: f64, seconds: f64) -> f64 {
    let mut start = ready;
    for &[begins, ends] in busy {
        if start + seconds <= begins {
            break;
        }
        start = start.max(ends);
    }
    start
}

/// Returns the rough seconds of a node with all rows live.
fn seconds(node: &Node, specs: &[Spec]) -> f64 {
    let of = |vars: &[crate::runtime::Var]| vars.iter().map(|v| specs[v.at()]).collect::<Vec<_>>();
    let cost = node.op.cost(&of(&node.ins), &of(&node.outs));
    let (bytes, flops) = (cost.bytes as f64 / BYTES_PER_SECOND, cost.flops as f64 / FLOPS_PER_SECOND);
    SECONDS_PER_OP + bytes.max(flops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::Tape,
        runtime::{Precision, Rows, Store},
    };

    #[test]
    fn the_longest_path_keeps_the_first_lane_and_what_nothing_waits_for_goes_to_another_one() {
        let mut store = Store::new(Precision::F32);
        let [table, state, log] =
            ["table", "state", "log"].map(|name| store.zeros(name, Spec::real(Rows::fixed(1), 1)).unwrap());
        let index = store.values("index", Spec::ids(Rows::fixed(1), 1), &[0u32]).unwrap();
        let mut t = Tape::new(&store);
        let [table, state, log, index] = t.stored_all([table, state, log, index]).unwrap();
        let row = t.gather_rows(table, index).unwrap();
        let first = t.add(state, row).unwrap();
        let aside = t.exp(first).unwrap();
        t.write_rows(log, index, aside).unwrap();
        let second = t.exp(first).unwrap();
        let third = t.exp(second).unwrap();
        t.write_rows(state, index, third).unwrap();
        let nodes: Vec<&Node> = t.nodes().iter().collect();
        let specs: Vec<Spec> = t.vars().map(|v| t.spec(v)).collect();
        let placements = [(2, 1), (0, 0), (0, 0), (1, 0), (0, 0), (0, 0), (0, 0)]
            .map(|(lane, prefetch_depth)| Placement { lane, prefetch_depth });
        let turns = by_longest_path(&nodes, &placements, &specs);
        let of = |lane: usize| {
            let mut of_lane: Vec<usize> = (0..nodes.len()).filter(|&at| turns[at].lane == lane).collect();
            of_lane.sort_by_key(|&at| turns[at].turn);
            of_lane
        };
        assert_eq!([of(0), of(1), of(2)], [vec![1, 4, 5, 6], vec![2, 3], vec![0]]);
        // With one lane, each node comes before those with shorter paths.
        let turns =
            by_longest_path(&nodes, &placements.map(|p| Placement { lane: 2 * (p.lane / 2), ..p }), &specs);
        let mut order: Vec<usize> = (1..nodes.len()).collect();
        order.sort_by_key(|&at| turns[at].turn);
        assert_eq!(order, [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn a_gap_is_the_first_that_is_long_enough() {
        let busy = [[1.0, 2.0], [3.0, 6.0], [6.5, 8.0]];
        assert_eq!([0.5, 1.0, 2.0].map(|seconds| gap(&busy, 0.0, seconds)), [0.0, 0.0, 8.0]);
        assert_eq!([0.5, 1.0].map(|seconds| gap(&busy, 1.5, seconds)), [2.0, 2.0]);
        assert_eq!(gap(&busy, 5.0, 0.5), 6.0);
    }
}
