//! How the nodes of a step are shared out to two lanes, and their runs.
use super::{
    form::Form,
    host::{Ready, Seen},
    line_up::Step,
    line_ups::{LineUps, windows},
    program::Repeated,
    stages::{Stage, stages},
    trace::{Ran, Trace},
};
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{Node, Share},
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

/// Steps that a stage may be ahead: each takes the memory of its values once more.
pub const MOST_AHEAD: usize = 8;

/// Where a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spot {
    /// Which lane, from 0.
    pub lane: usize,
    /// Steps by which it is ahead of what is ahead by none: on its own lane it comes that much earlier, and may be that much ahead of
    /// the other lane.
    pub ahead: usize,
}

/// How the nodes of a program are shared out to the lanes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// All on the first.
    #[default]
    One,
    /// By their stages, in the order of [`Stage::ALL`]. On a device the second lane is a stream of its own, on the CPU a thread.
    Stages([Spot; Stage::ALL.len()]),
    /// The snapshots of a group and their reverse pass, the first few on the first lane, the others and the prediction on the second;
    /// the state goes from lane to lane, and its gradient back (BLAD, section 5.2).
    Groups {
        /// Snapshots of the first lane.
        first: usize,
        /// Whether the first lane goes on to the next group before it returns to the last one's reverse pass: where no parameter moves
        /// in between.
        pipelined: bool,
    },
}

/// A node with its stage and its place.
pub(super) struct Placed<'a> {
    pub node: &'a Node,
    pub stage: Stage,
    pub spot: Spot,
}

impl Lanes {
    /// What prepares a step and depends on nothing that steps compute (cursor, negatives, sampling, distinct nodes, gathers of
    /// features) on the second lane, a step ahead, beside the arithmetic of the step before.
    pub const PREFETCH: Lanes = {
        let mut spots = [Spot { lane: 0, ahead: 0 }; Stage::ALL.len()];
        spots[Stage::Sample as usize] = Spot { lane: 1, ahead: 1 };
        spots[Stage::FetchFeatures as usize] = Spot { lane: 1, ahead: 1 };
        Lanes::Stages(spots)
    };

    /// The nodes in the order in which they are planned, each with its place.
    ///
    /// # Errors
    /// `Plan` where what is ahead needs what is not, there is no such lane, or a stage is further ahead than anybody wants.
    pub(super) fn share_out<'a>(self, nodes: Vec<&'a Node>, specs: &[Spec]) -> Result<Vec<Placed<'a>>> {
        if let Lanes::Stages(spots) = self
            && let Some(spot) = spots.iter().find(|s| s.lane >= LANES || s.ahead > MOST_AHEAD)
        {
            let what = format!("a stage is on lane {} and {} steps ahead", spot.lane, spot.ahead);
            let limits = format!("there are {LANES} lanes, and {MOST_AHEAD} steps ahead is the most");
            return Err(Error::new(ErrorKind::Plan, what).remedy(limits));
        }
        let stages = stages(&nodes, specs);
        let spot = |(n, stage): (&&Node, &Stage)| match self {
            Lanes::One => Spot::default(),
            Lanes::Stages(spots) => spots[*stage as usize],
            Lanes::Groups { first, .. } => {
                let second = match n.part.of {
                    Share::Step => false,
                    Share::Snapshot(place) => place >= first,
                    Share::Prediction => true,
                };
                Spot { lane: usize::from(second), ahead: 0 }
            }
        };
        let mut spots: Vec<Spot> = nodes.iter().zip(&stages).map(spot).collect();
        let ranks = match self {
            Lanes::Groups { .. } => group_ranks(&nodes, &spots, specs),
            _ => spots.iter().map(|spot| usize::MAX - spot.ahead).collect(),
        };
        let order = merged(&nodes, &stages, &spots, &ranks, specs)?;
        if let Lanes::Groups { pipelined: true, .. } = self {
            // Up to where its reverse pass begins, the first lane is a group ahead.
            let own = order.iter().filter(|&&at| spots[at].lane == 0);
            let forward: Vec<usize> = own.copied().take_while(|&at| !nodes[at].part.backward).collect();
            forward.into_iter().for_each(|at| spots[at].ahead = 1);
        }
        let placed = |&at: &usize| Placed { node: nodes[at], stage: stages[at], spot: spots[at] };
        Ok(order.iter().map(placed).collect())
    }
    /// How many steps of each lane have values at the same time.
    pub(super) fn turns(self) -> [usize; LANES] {
        match self {
            Lanes::One => [1; LANES],
            Lanes::Stages(spots) => std::array::from_fn(|lane| {
                let own = spots.iter().filter(|s| s.lane == lane);
                1 + own.map(|s| s.ahead).max().unwrap_or(0)
            }),
            Lanes::Groups { pipelined, .. } => [1 + usize::from(pipelined); LANES],
        }
    }
    /// Threads of the second lane, of `threads`: one where it computes nothing.
    pub(super) fn second_threads(self, threads: usize) -> usize {
        let prepares = |(stage, spot): (&Stage, &Spot)| {
            spot.lane == 0 || matches!(stage, Stage::Sample | Stage::FetchFeatures)
        };
        match self {
            Lanes::Stages(spots) if Stage::ALL.iter().zip(&spots).all(prepares) => 1,
            _ => (threads / 2).max(1),
        }
    }
}

/// After how many runs both lanes are in the turns again in which they began.
pub(super) fn cycle([first, second]: [usize; LANES]) -> usize {
    (1..=second).map(|times| times * first).find(|runs| runs.is_multiple_of(second)).unwrap_or(1)
}

/// Runs two lanes on a host, a run for each entry of `in_form`: which of the forms it takes; `done` is called now and then with how
/// many runs both lanes have behind them, and, where both rest, with the store.
pub(super) fn repeat(
    (forms, in_form): (&[Form], &[usize]),
    ready: &[Ready<'_>],
    store: &Store,
    devices: &[Device; LANES],
    line_ups: &mut LineUps,
    mut trace: Option<&mut Trace>,
    done: &mut dyn FnMut(Repeated<'_>),
) -> Result<(), (Option<usize>, Error)> {
    let last_of = |lane: usize| -> Vec<Option<usize>> {
        forms.iter().map(|f| f.nodes.iter().rposition(|p| p.spot.lane == lane)).collect()
    };
    let last: [Vec<Option<usize>>; LANES] = std::array::from_fn(last_of);
    let (mut first, mut told) = (0, 0);
    let mut tell = |runs: usize, store| {
        if runs > told {
            told = runs;
            done(Repeated { runs, store });
        }
    };
    for in_form in windows(forms, in_form) {
        let line_up = &line_ups.of(forms, in_form).map_err(|e| (None, e))?.line_up;
        let noted = trace.as_ref().map(|trace| trace.steps);
        let seen = Seen::default;
        let mut workers =
            [(); LANES].map(|()| Worker { ready, in_form, seen: seen(), noted, ran: Vec::new() });
        let [of_first, of_second] = &mut workers;
        let ends = |lane: usize, step: Step| Some(step.node) == last[lane][in_form[step.run]];
        let second = AtomicUsize::new(0);
        let ran = line_up.execute(
            |lane, work| devices[lane].keep_awake(work),
            |lane, last| devices[lane].help_partner(last),
            &mut |step| {
                of_first.run(step)?;
                if ends(0, step) {
                    // Of runs of which the second lane has nothing, it is at the end, too.
                    let before = second.load(Acquire);
                    let none = in_form[before..].iter().take_while(|&&form| last[1][form].is_none()).count();
                    // What ends the window is told when both rest.
                    let over = (before + none).min(step.run + 1).min(in_form.len() - 1);
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
            trace.steps += in_form.len();
        }
        ran.map_err(|(run, e)| (Some(first + run), e))?;
        first += in_form.len();
        tell(first, Some(store));
    }
    Ok(())
}

/// Who runs the nodes of a lane.
struct Worker<'a> {
    /// By form.
    ready: &'a [Ready<'a>],
    in_form: &'a [usize],
    seen: Seen,
    /// Where it is noted down when nodes run: steps that were before these.
    noted: Option<usize>,
    ran: Vec<Ran>,
}

impl Worker<'_> {
    fn run(&mut self, step: Step) -> Result<()> {
        let start = self.noted.map(|before| (before, Instant::now()));
        let form = self.in_form[step.run];
        // SAFETY: the line-up keeps the order of what nodes touch.
        unsafe { self.ready[form].run(step.run, step.node, &mut self.seen)? };
        if let Some((before, start)) = start {
            let (step, node) = (before + step.run, step.node);
            self.ran.push(Ran { step, form, node, start, end: Instant::now() });
        }
        Ok(())
    }
}

/// What the nodes of a group are planned by: what begins it, what else a lane can do before the state comes to it, the rest, and what
/// follows the reverse pass, which ends a step however it is labelled.
fn group_ranks(nodes: &[&Node], spots: &[Spot], specs: &[Spec]) -> Vec<usize> {
    let mut waits = vec![false; specs.len()];
    let rank = |(n, spot): (&&Node, &Spot)| {
        let begins = spot.lane == 0 && n.part == Default::default();
        let of = |v: &Var| waits[v.at()];
        let free =
            begins || spot.lane == 1 && !n.part.backward && n.writes.is_empty() && !n.ins.iter().any(of);
        n.outs.iter().for_each(|o| waits[o.at()] = !free);
        usize::from(!begins) + usize::from(!free)
    };
    let mut ranks: Vec<usize> = nodes.iter().zip(spots).map(rank).collect();
    let end = nodes.iter().rposition(|n| n.part.backward).map_or(0, |end| end + 1);
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
    spots: &[Spot],
    ranks: &[usize],
    specs: &[Spec],
) -> Result<Vec<usize>> {
    let follows = must_follow(nodes, specs);
    let lanes: [Vec<usize>; LANES] = std::array::from_fn(|lane| {
        let mut own: Vec<usize> = (0..nodes.len()).filter(|&at| spots[at].lane == lane).collect();
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
            let early = stuck.max_by_key(|&at| spots[at].ahead).unwrap_or(0);
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
