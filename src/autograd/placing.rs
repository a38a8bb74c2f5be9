//! Places the nodes of a step on lanes, and orders them.
use super::{
    lanes::{Lanes, MAX_LANES, MAX_PREFETCH_DEPTH, Order, Placement},
    ordering::{Turn, by_longest_path},
    stages::{Stage, stages, state},
    staleness::{Phase, Precedence, Staleness, phases},
};
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{Node, OpKind},
    runtime::{Spec, Var},
};
use std::collections::{HashMap, HashSet};

/// A node with its stage and its placement.
pub(super) struct PlacedNode<'a> {
    pub node: &'a Node,
    pub stage: Stage,
    pub placement: Placement,
    pub precedence: Precedence,
}

/// Returns the nodes in the order in which their memory is planned, each with its placement.
pub(super) fn place<'a>(lanes: Lanes, nodes: &[&'a Node], specs: &[Spec]) -> Result<Vec<PlacedNode<'a>>> {
    check(lanes)?;
    let stages = stages(nodes, specs);
    let placement = |(node, stage): (&&Node, &Stage)| match lanes {
        Lanes::One => Placement::default(),
        Lanes::Stages { placements, .. } => placements[*stage as usize],
        Lanes::Sections { first, .. } => {
            let second = node.tag.section.is_some_and(|section| section.index >= first);
            Placement { lane: usize::from(second), prefetch_depth: 0 }
        }
    };
    let mut placements: Vec<Placement> = nodes.iter().zip(&stages).map(placement).collect();
    let staleness = lanes.staleness();
    let phases = match staleness {
        Staleness::NONE => vec![Phase::Compute; nodes.len()],
        _ => phases(nodes, &stages, specs),
    };
    if staleness.memory > 0 {
        check_reads(nodes, &stages, &phases, specs)?;
    }
    let turns = turns(lanes, nodes, &placements, specs);
    turns.iter().flatten().zip(&mut placements).for_each(|(turn, placement)| placement.lane = turn.lane);
    let precedence = |at: usize, placement: Placement| {
        let precedence = Precedence::new(placement, phases[at], staleness);
        turns.as_ref().map_or(precedence, |turns| precedence.at_turn(turns[at].turn))
    };
    let order = match lanes {
        Lanes::Sections { .. } => {
            merged(nodes, &stages, &placements, &section_priorities(nodes, &placements, specs), specs)
        }
        _ => {
            let within_step = |at: usize| precedence(at, placements[at]).within_step();
            let priorities: Vec<_> = (0..nodes.len()).map(within_step).collect();
            merged(nodes, &stages, &placements, &priorities, specs)
        }
    }?;
    if let Lanes::Sections { pipelined: true, .. } = lanes {
        // The forward pass of the first lane is one step ahead of everything else.
        let first_lane = order.iter().filter(|&&at| placements[at].lane == 0);
        let forward: Vec<usize> = first_lane.copied().take_while(|&at| !nodes[at].tag.backward).collect();
        forward.into_iter().for_each(|at| placements[at].prefetch_depth = 1);
    }
    let placed = |&at: &usize| {
        let (node, stage, placement) = (nodes[at], stages[at], placements[at]);
        PlacedNode { node, stage, placement, precedence: precedence(at, placement) }
    };
    Ok(order.iter().map(placed).collect())
}

/// Returns the turn of each node on its lane; `None` if the program's order counts. It does in steps over
/// ranks, all of which must communicate in the same order.
fn turns(lanes: Lanes, nodes: &[&Node], placements: &[Placement], specs: &[Spec]) -> Option<Vec<Turn>> {
    let Lanes::Stages { order: Order::LongestPath, staleness: Staleness::NONE, .. } = lanes else {
        return None;
    };
    let communicate = nodes.iter().any(|node| node.op.kind() == OpKind::Comm);
    (!communicate).then(|| by_longest_path(nodes, placements, specs))
}

/// Refuses lanes that do not exist, and prefetch depths that are too large.
fn check(lanes: Lanes) -> Result<()> {
    let Lanes::Stages { placements, .. } = lanes else { return Ok(()) };
    match placements.iter().find(|p| p.lane >= MAX_LANES || p.prefetch_depth > MAX_PREFETCH_DEPTH) {
        Some(Placement { lane, prefetch_depth }) => {
            let what = format!("a stage has lane {lane} and prefetch depth {prefetch_depth}");
            let limits = format!("lanes are 0 to {}, depths 0 to {MAX_PREFETCH_DEPTH}", MAX_LANES - 1);
            Err(Error::new(ErrorKind::Plan, what).remedy(limits))
        }
        None => Ok(()),
    }
}

/// Refuses nodes that read node memory itself, later than those that gather its rows: its state is then
/// newer.
fn check_reads(nodes: &[&Node], stages: &[Stage], phases: &[Phase], specs: &[Spec]) -> Result<()> {
    let state = state(nodes, specs);
    let reads = |n: &Node| n.ins.iter().enumerate().any(|(i, v)| state.contains(v) && !n.writes.contains(&i));
    let late = |&(at, n): &(usize, &&Node)| {
        let writes = matches!(stages[at], Stage::Aggregate | Stage::WriteMemory);
        phases[at] != Phase::Fetch && !writes && reads(n)
    };
    match nodes.iter().enumerate().find(late) {
        Some((at, n)) => {
            let what = format!("{} of stage {} reads node memory as it is", n.op.name(), stages[at]);
            let remedy = "gather the rows of steps that read older memory";
            Err(Error::new(ErrorKind::Plan, what).remedy(remedy))
        }
        None => Ok(()),
    }
}

/// Returns the priority of each node within its lane, for steps that are placed by section. 0: starts the
/// step. 1: needs nothing from the other lane, so it runs before the state arrives. 2: all else, and
/// everything after the backward pass.
fn section_priorities(nodes: &[&Node], placements: &[Placement], specs: &[Spec]) -> Vec<usize> {
    let mut waits = vec![false; specs.len()];
    let priority = |(node, placement): (&&Node, &Placement)| {
        let starts = placement.lane == 0 && node.tag == Default::default();
        let needs_waiting = node.ins.iter().any(|v| waits[v.at()]);
        let free =
            starts || placement.lane == 1 && !node.tag.backward && node.writes.is_empty() && !needs_waiting;
        node.outs.iter().for_each(|out| waits[out.at()] = !free);
        usize::from(!starts) + usize::from(!free)
    };
    let mut priorities: Vec<usize> = nodes.iter().zip(placements).map(priority).collect();
    let end = nodes.iter().rposition(|node| node.tag.backward).map_or(0, |end| end + 1);
    priorities[end.min(nodes.len())..].fill(2);
    priorities
}

/// Returns, for each node of `runs` runs, run by run, the nodes that it must follow: those that write what it
/// reads or writes, and those that read what it writes. A value that a node computes is another one in each
/// run.
pub(super) fn must_follow(nodes: &[&Node], specs: &[Spec], runs: usize) -> Vec<Vec<usize>> {
    let computed: HashSet<Var> = nodes.iter().flat_map(|node| node.outs.iter().copied()).collect();
    // For each value, the last node that wrote it, and the nodes that have read it since.
    let mut accesses: HashMap<(Var, usize), (Option<usize>, Vec<usize>)> = HashMap::new();
    let follows = |at: usize| {
        let (run, node) = (at / nodes.len(), nodes[at % nodes.len()]);
        let counts = node.ins.iter().chain(&node.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        let ins = node.ins.iter().enumerate().map(|(i, &v)| (v, node.writes.contains(&i)));
        let outs = node.outs.iter().map(|&v| (v, true));
        let mut follows = Vec::new();
        for (v, writes) in outs.chain(ins).chain(counts.map(|v| (v, false))) {
            let of_run = if computed.contains(&v) { run } else { 0 };
            let (writer, readers) = accesses.entry((v, of_run)).or_default();
            follows.extend(writer.filter(|&other| other != at));
            if writes {
                follows.append(readers);
                *writer = Some(at);
            } else {
                readers.push(at);
            }
        }
        follows.retain(|&other| other != at);
        follows
    };
    (0..runs * nodes.len()).map(follows).collect()
}

/// Returns an order of all nodes in which the nodes of each lane are sorted by priority, and every node
/// follows those that it must follow.
fn merged<R: Ord>(
    nodes: &[&Node],
    stages: &[Stage],
    placements: &[Placement],
    priorities: &[R],
    specs: &[Spec],
) -> Result<Vec<usize>> {
    let follows = must_follow(nodes, specs, 1);
    let lanes: [Vec<usize>; MAX_LANES] = std::array::from_fn(|lane| {
        let mut of_lane: Vec<usize> = (0..nodes.len()).filter(|&at| placements[at].lane == lane).collect();
        of_lane.sort_by(|&a, &b| priorities[a].cmp(&priorities[b]));
        of_lane
    });
    let (mut order, mut placed, mut next) = (Vec::new(), vec![false; nodes.len()], [0; MAX_LANES]);
    while order.len() < nodes.len() {
        let head = |lane: usize| Some((*lanes[lane].get(next[lane])?, lane));
        let ready = |&(at, _): &(usize, usize)| follows[at].iter().all(|&other| placed[other]);
        // If several lanes are ready, the order of the program decides.
        if let Some((at, lane)) = (0..MAX_LANES).filter_map(head).filter(ready).min() {
            order.push(at);
            placed[at] = true;
            next[lane] += 1;
        } else {
            let stuck = lanes.iter().zip(next).filter_map(|(lane, next)| lane.get(next).copied());
            let early = stuck.max_by_key(|&at| placements[at].prefetch_depth).unwrap_or(0);
            let late = follows[early].iter().find(|&&other| !placed[other]).copied().unwrap_or(early);
            let [early, late] = [early, late].map(|at| (nodes[at].op.name(), stages[at]));
            let what = format!(
                "{} of stage {} would come before {} of stage {}, which it must follow",
                early.0, early.1, late.0, late.1
            );
            return Err(Error::new(ErrorKind::Plan, what));
        }
    }
    Ok(order)
}
