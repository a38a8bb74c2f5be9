//! How the nodes of a step are shared out to two lanes, and their runs.
use super::{
    host::{BoundVariant, ViewBuffers},
    program::RepeatProgress,
    schedule::ScheduledNode,
    schedule_cache::{ScheduleCache, windows},
    stages::{Stage, stages},
    trace::{Ran, Trace},
    variant::Variant,
};
use crate::{
    error::{Error, ErrorKind, Result},
    ops::Node,
    runtime::*,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
    time::Instant,
};

/// Lanes of a device.
pub const LANES: usize = 2;

/// Steps that a stage may be prefetch_depth: each takes the memory of its values once more.
pub const MAX_PREFETCH_DEPTH: usize = 8;

/// Where a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Which lane, from 0.
    pub lane: usize,
    /// Steps by which it is ahead of what is ahead by none: on its own lane it comes that much earlier, and may be that much ahead of
    /// the other lane.
    pub prefetch_depth: usize,
}

/// How the nodes of a program are shared out to the lanes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// All on the first.
    #[default]
    One,
    /// By their stages, in the order of [`Stage::ALL`]. On a device the second lane is a stream of its own, on the CPU a thread.
    Stages([Placement; Stage::ALL.len()]),
    /// The snapshots of a group and their backward pass, the first few on the first lane, the others and the prediction on the second;
    /// the state goes from lane to lane, and its gradient back (BLAD, section 5.2).
    Groups {
        /// Snapshots of the first lane.
        first: usize,
        /// Whether the first lane goes on to the next group before it returns to the last one's backward pass: where no parameter moves
        /// in between.
        pipelined: bool,
    },
}

/// A node with its stage and its place.
pub(super) struct PlacedNode<'a> {
    pub node: &'a Node,
    pub stage: Stage,
    pub placement: Placement,
}

impl Lanes {
    /// What prepares a step and depends on nothing that steps compute (cursor, negatives, sampling, unique nodes, gathers of
    /// features) on the second lane, a step ahead, beside the arithmetic of the step before.
    pub const PREFETCH: Lanes = {
        let mut placements = [Placement { lane: 0, prefetch_depth: 0 }; Stage::ALL.len()];
        placements[Stage::Sample as usize] = Placement { lane: 1, prefetch_depth: 1 };
        placements[Stage::FetchFeatures as usize] = Placement { lane: 1, prefetch_depth: 1 };
        Lanes::Stages(placements)
    };

    /// The nodes in the order in which they are planned, each with its place.
    ///
    /// # Errors
    /// `Plan` where what is ahead needs what is not, there is no such lane, or a stage is further ahead than anybody wants.
    pub(super) fn share_out<'a>(self, nodes: Vec<&'a Node>, specs: &[Spec]) -> Result<Vec<PlacedNode<'a>>> {
        if let Lanes::Stages(placements) = self
            && let Some(placement) =
                placements.iter().find(|s| s.lane >= LANES || s.prefetch_depth > MAX_PREFETCH_DEPTH)
        {
            let what =
                format!("a stage is on lane {} and {} steps ahead", placement.lane, placement.prefetch_depth);
            let limits = format!("there are {LANES} lanes, and {MAX_PREFETCH_DEPTH} steps ahead is the most");
            return Err(Error::new(ErrorKind::Plan, what).remedy(limits));
        }
        let stages = stages(&nodes, specs);
        let placement = |(n, stage): (&&Node, &Stage)| match self {
            Lanes::One => Placement::default(),
            Lanes::Stages(placements) => placements[*stage as usize],
            Lanes::Groups { first, .. } => {
                let second = n.tag.section.is_some_and(|section| section.index >= first);
                Placement { lane: usize::from(second), prefetch_depth: 0 }
            }
        };
        let mut placements: Vec<Placement> = nodes.iter().zip(&stages).map(placement).collect();
        let ranks = match self {
            Lanes::Groups { .. } => group_ranks(&nodes, &placements, specs),
            _ => placements.iter().map(|placement| usize::MAX - placement.prefetch_depth).collect(),
        };
        let order = merged(&nodes, &stages, &placements, &ranks, specs)?;
        if let Lanes::Groups { pipelined: true, .. } = self {
            // Up to where its backward pass begins, the first lane is a group ahead.
            let own = order.iter().filter(|&&at| placements[at].lane == 0);
            let forward: Vec<usize> = own.copied().take_while(|&at| !nodes[at].tag.backward).collect();
            forward.into_iter().for_each(|at| placements[at].prefetch_depth = 1);
        }
        let placed =
            |&at: &usize| PlacedNode { node: nodes[at], stage: stages[at], placement: placements[at] };
        Ok(order.iter().map(placed).collect())
    }
    /// How many steps of each lane have values at the same time.
    pub(super) fn buffer_depth(self) -> [usize; LANES] {
        match self {
            Lanes::One => [1; LANES],
            Lanes::Stages(placements) => std::array::from_fn(|lane| {
                let own = placements.iter().filter(|s| s.lane == lane);
                1 + own.map(|s| s.prefetch_depth).max().unwrap_or(0)
            }),
            Lanes::Groups { pipelined, .. } => [1 + usize::from(pipelined); LANES],
        }
    }
    /// Threads of the second lane, of `threads`: one where it computes nothing.
    pub(super) fn second_threads(self, threads: usize) -> usize {
        let prepares = |(stage, placement): (&Stage, &Placement)| {
            placement.lane == 0 || matches!(stage, Stage::Sample | Stage::FetchFeatures)
        };
        match self {
            Lanes::Stages(placements) if Stage::ALL.iter().zip(&placements).all(prepares) => 1,
            _ => (threads / 2).max(1),
        }
    }
}

/// After how many runs both lanes are in the depth again in which they began.
pub(super) fn cycle([first, second]: [usize; LANES]) -> usize {
    (1..=second).map(|times| times * first).find(|runs| runs.is_multiple_of(second)).unwrap_or(1)
}

/// Runs two lanes on a host, a run for each entry of `variant_of_run`: which of the variants it takes; `done` is called now and then with how
/// many runs both lanes have behind them, and, where both rest, with the store.
pub(super) fn repeat(
    (variants, variant_of_run): (&[Variant], &[usize]),
    ready: &[BoundVariant<'_>],
    store: &Store,
    devices: &[Device; LANES],
    schedules: &mut ScheduleCache,
    mut trace: Option<&mut Trace>,
    done: &mut dyn FnMut(RepeatProgress<'_>),
) -> Result<(), (Option<usize>, Error)> {
    let last_of = |lane: usize| -> Vec<Option<usize>> {
        variants.iter().map(|f| f.nodes.iter().rposition(|p| p.placement.lane == lane)).collect()
    };
    let last: [Vec<Option<usize>>; LANES] = std::array::from_fn(last_of);
    let (mut first, mut told) = (0, 0);
    let mut tell = |runs: usize, store| {
        if runs > told {
            told = runs;
            done(RepeatProgress { runs, store });
        }
    };
    for variant_of_run in windows(variants, variant_of_run) {
        let schedule = &schedules.of(variants, variant_of_run).map_err(|e| (None, e))?.schedule;
        let noted = trace.as_ref().map(|trace| trace.steps);
        let seen = ViewBuffers::default;
        let mut workers =
            [(); LANES].map(|()| Worker { ready, variant_of_run, seen: seen(), noted, ran: Vec::new() });
        let [of_first, of_second] = &mut workers;
        let ends = |lane: usize, step: ScheduledNode| Some(step.node) == last[lane][variant_of_run[step.run]];
        let second = AtomicUsize::new(0);
        let ran = schedule.execute(
            |lane, work| devices[lane].keep_awake(work),
            |lane, last| devices[lane].help_partner(last),
            &mut |step| {
                of_first.run(step)?;
                if ends(0, step) {
                    // Of runs of which the second lane has nothing, it is at the end, too.
                    let before = second.load(Acquire);
                    let none = variant_of_run[before..]
                        .iter()
                        .take_while(|&&variant| last[1][variant].is_none())
                        .count();
                    // What ends the window is told when both rest.
                    let over = (before + none).min(step.run + 1).min(variant_of_run.len() - 1);
                    tell(first + over, None);
                }
                Ok(())
            },
            &mut |step| {
                of_second.run(step)?;
                if ends(1, step) {
                    second.store(step.run + 1, Release);
                }
                Ok(())
            },
        );
        if let Some(trace) = &mut trace {
            trace.ran.extend(workers.into_iter().flat_map(|w| w.ran));
            trace.steps += variant_of_run.len();
        }
        ran.map_err(|(run, e)| (Some(first + run), e))?;
        first += variant_of_run.len();
        tell(first, Some(store));
    }
    Ok(())
}

/// Who runs the nodes of a lane.
struct Worker<'a> {
    /// By variant.
    ready: &'a [BoundVariant<'a>],
    variant_of_run: &'a [usize],
    seen: ViewBuffers,
    /// Where it is noted down when nodes run: steps that were before these.
    noted: Option<usize>,
    ran: Vec<Ran>,
}

impl Worker<'_> {
    fn run(&mut self, step: ScheduledNode) -> Result<()> {
        let start = self.noted.map(|before| (before, Instant::now()));
        let variant = self.variant_of_run[step.run];
        // SAFETY: the schedule keeps the order of what nodes touch.
        unsafe { self.ready[variant].run(step.run, step.node, &mut self.seen)? };
        if let Some((before, start)) = start {
            let (step, node) = (before + step.run, step.node);
            self.ran.push(Ran { step, variant, node, start, end: Instant::now() });
        }
        Ok(())
    }
}

/// What the nodes of a group are planned by: what begins it, what else a lane can do before the state comes to it, the rest, and what
/// follows the backward pass, which ends a step however it is labelled.
fn group_ranks(nodes: &[&Node], placements: &[Placement], specs: &[Spec]) -> Vec<usize> {
    let mut waits = vec![false; specs.len()];
    let rank = |(n, placement): (&&Node, &Placement)| {
        let begins = placement.lane == 0 && n.tag == Default::default();
        let of = |v: &Var| waits[v.at()];
        let free =
            begins || placement.lane == 1 && !n.tag.backward && n.writes.is_empty() && !n.ins.iter().any(of);
        n.outs.iter().for_each(|o| waits[o.at()] = !free);
        usize::from(!begins) + usize::from(!free)
    };
    let mut ranks: Vec<usize> = nodes.iter().zip(placements).map(rank).collect();
    let end = nodes.iter().rposition(|n| n.tag.backward).map_or(0, |end| end + 1);
    ranks[end.min(nodes.len())..].fill(2);
    ranks
}

/// For each node those that it must follow: that made or changed what it touches, or touched what it changes.
fn must_follow(nodes: &[&Node], specs: &[Spec]) -> Vec<Vec<usize>> {
    // Of each value, the node that changed it last, and those that have read it since.
    let mut known: HashMap<Var, (Option<usize>, Vec<usize>)> = HashMap::new();
    let of = |(at, n): (usize, &&Node)| {
        let counts = n.ins.iter().chain(&n.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        let read = n.ins.iter().enumerate().map(|(i, &v)| (v, n.writes.contains(&i)));
        let made = n.outs.iter().map(|&v| (v, true));
        let mut follows = Vec::new();
        for (v, changes) in made.chain(read).chain(counts.map(|v| (v, false))) {
            let (changed, readers) = known.entry(v).or_default();
            follows.extend(changed.filter(|&other| other != at));
            if changes {
                follows.append(readers);
                *changed = Some(at);
            } else {
                readers.push(at);
            }
        }
        follows.retain(|&other| other != at);
        follows
    };
    nodes.iter().enumerate().map(of).collect()
}

/// One order of all nodes in which those of each lane come by rank, and every node after what it must follow.
///
/// # Errors
/// `Plan` where there is none.
fn merged(
    nodes: &[&Node],
    stages: &[Stage],
    placements: &[Placement],
    ranks: &[usize],
    specs: &[Spec],
) -> Result<Vec<usize>> {
    let follows = must_follow(nodes, specs);
    let lanes: [Vec<usize>; LANES] = std::array::from_fn(|lane| {
        let mut own: Vec<usize> = (0..nodes.len()).filter(|&at| placements[at].lane == lane).collect();
        own.sort_by_key(|&at| ranks[at]);
        own
    });
    let (mut order, mut placed, mut next) = (Vec::new(), vec![false; nodes.len()], [0; LANES]);
    while order.len() < nodes.len() {
        let head = |lane: usize| Some((*lanes[lane].get(next[lane])?, lane));
        let ready = |&(at, _): &(usize, usize)| follows[at].iter().all(|&other| placed[other]);
        // The program's order, where there is a choice.
        if let Some((at, lane)) = (0..LANES).filter_map(head).filter(ready).min() {
            order.push(at);
            placed[at] = true;
            next[lane] += 1;
        } else {
            let stuck = lanes.iter().zip(next).filter_map(|(lane, next)| lane.get(next).copied());
            let early = stuck.max_by_key(|&at| placements[at].prefetch_depth).unwrap_or(0);
            let late = follows[early].iter().find(|&&o| !placed[o]).copied().unwrap_or(early);
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
