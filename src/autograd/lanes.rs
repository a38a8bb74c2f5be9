//! Runs of a program on two lanes: which node comes when on which, and for what of the other lane it waits.
//!
//! Found from the declared reads and writes alone. Two nodes of which one makes or changes what the other touches come in the
//! order of the program and of its runs, whatever lanes they are on; all else may happen side by side.
use super::{
    ahead::ahead,
    host::{Ready, Seen},
    program::{Place, Planned},
    trace::{Ran, Trace},
};
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{Node, Part, Share},
    runtime::*,
};
use std::{
    collections::HashMap,
    hint::spin_loop,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Instant,
};

/// Lanes of a device.
pub const LANES: usize = 2;

/// How the nodes of a program are shared out to the lanes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// All on the first.
    #[default]
    One,
    /// What prepares a step and depends on nothing that steps compute (cursor, negatives, sampling, distinct nodes, gathers of
    /// features) on the second, beside the arithmetic of the step before: on a device a stream of its own, on the CPU a thread.
    Prefetch,
    /// The snapshots of a group and their reverse pass, the first few on the first lane, the others and the prediction on the second;
    /// the state goes from lane to lane, and its gradient back (BLAD, section 5.2). For the CPU.
    Groups {
        /// Snapshots of the first lane.
        first: usize,
        /// Whether the first lane goes on to the next group before it returns to the last one's reverse pass: where no parameter moves
        /// in between.
        pipelined: bool,
    },
}

/// Runs that are lined up at a time; even, for runs go in turns.
const WINDOW: usize = 256;

impl Lanes {
    /// The nodes in the order in which they are planned, and the lane of each.
    pub(super) fn share_out<'a>(self, nodes: Vec<&'a Node>, specs: &[Spec]) -> (Vec<&'a Node>, Vec<usize>) {
        let lanes: Vec<usize> = match self {
            Lanes::One => vec![0; nodes.len()],
            Lanes::Prefetch => ahead(&nodes, specs).into_iter().map(usize::from).collect(),
            Lanes::Groups { first, .. } => {
                let second = |part: Part| match part.of {
                    Share::Step => false,
                    Share::Snapshot(place) => place >= first,
                    Share::Prediction => true,
                };
                nodes.iter().map(|n| usize::from(second(n.part))).collect()
            }
        };
        let Lanes::Groups { .. } = self else { return (nodes, lanes) };
        // What the second lane can do without the state comes first there: its graph convolutions, say.
        let mut waits = vec![false; specs.len()];
        let rank = |(n, &lane): (&&Node, &usize)| {
            let begins = lane == 0 && n.part == Part::default();
            let of = |v: &Var| waits[v.0 as usize];
            let free =
                begins || lane == 1 && !n.part.backward && n.writes.is_empty() && !n.ins.iter().any(of);
            n.outs.iter().for_each(|o| waits[o.0 as usize] = !free);
            usize::from(!begins) + usize::from(!free)
        };
        let ranks: Vec<usize> = nodes.iter().zip(&lanes).map(rank).collect();
        // What follows the reverse pass ends a step, however it is labelled.
        let end = nodes.iter().rposition(|n| n.part.backward).unwrap_or(0);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&at| if at > end { 2 } else { ranks[at] });
        (order.iter().map(|&at| nodes[at]).collect(), order.iter().map(|&at| lanes[at]).collect())
    }
    /// How many steps of each lane have values at the same time.
    pub(super) fn turns(self) -> [usize; LANES] {
        match self {
            Lanes::One => [1, 1],
            Lanes::Prefetch => [1, 2],
            Lanes::Groups { pipelined, .. } => [1 + usize::from(pipelined); LANES],
        }
    }
    /// Threads of the second lane, of `threads`.
    pub(super) fn second_threads(self, threads: usize) -> usize {
        if let Lanes::Groups { .. } = self { threads / 2 } else { 1 }
    }
    /// What each lane does in `runs` runs, in order.
    fn order(self, nodes: &[Planned], runs: usize) -> [Vec<(usize, usize)>; LANES] {
        let of = |which: &dyn Fn(&Planned) -> bool| -> Vec<usize> {
            nodes.iter().enumerate().filter(|(_, p)| which(p)).map(|(at, _)| at).collect()
        };
        let each = |nodes: &[usize], run: usize| nodes.iter().map(move |&at| (run, at)).collect::<Vec<_>>();
        let second = of(&|p| p.lane == 1);
        let second = (0..runs).flat_map(|run| each(&second, run)).collect();
        let all = of(&|p| p.lane == 0);
        let first = match self {
            Lanes::Groups { pipelined: true, .. } => {
                let turns_back = all.iter().position(|&at| nodes[at].node.part.backward).unwrap_or(all.len());
                let (forward, back) = all.split_at(turns_back);
                let period = |run: usize| {
                    let on = if run < runs { each(forward, run) } else { Vec::new() };
                    let last = if run > 0 { each(back, run - 1) } else { Vec::new() };
                    [on, last].concat()
                };
                (0..=runs).flat_map(period).collect()
            }
            _ => (0..runs).flat_map(|run| each(&all, run)).collect(),
        };
        [first, second]
    }
    /// Runs two lanes `times` times; `done` hears how many runs the first lane has behind it.
    pub(super) fn repeat(
        self,
        nodes: &[Planned],
        ready: &Ready<'_>,
        devices: &[Device; LANES],
        times: usize,
        mut trace: Option<&mut Trace>,
        done: &mut dyn FnMut(usize),
    ) -> Result<(), (Option<usize>, Error)> {
        let last = nodes.iter().rposition(|p| p.lane == 0);
        let mut full: Option<LineUp> = None;
        for first in (0..times).step_by(WINDOW) {
            let runs = WINDOW.min(times - first);
            let line_up = match full.take() {
                Some(full) if runs == WINDOW => full,
                _ => {
                    LineUp::new(nodes, self.turns(), runs, self.order(nodes, runs)).map_err(|e| (None, e))?
                }
            };
            let noted = trace.as_ref().map(|trace| trace.steps);
            let mut workers =
                [(); LANES].map(|()| Worker { ready, seen: Seen::default(), noted, ran: Vec::new() });
            let [of_first, of_second] = &mut workers;
            let ran = line_up.execute(
                |lane, work| devices[lane].keep_awake(work),
                &mut |step| {
                    of_first.run(step)?;
                    if Some(step.node) == last {
                        done(first + step.run + 1);
                    }
                    Ok(())
                },
                &mut |step| of_second.run(step),
            );
            if let Some(trace) = &mut trace {
                trace.ran.extend(workers.into_iter().flat_map(|w| w.ran));
                trace.steps += runs;
            }
            ran.map_err(|(run, e)| (Some(first + run), e))?;
            full = (runs == WINDOW).then_some(line_up);
        }
        Ok(())
    }
}

/// Who runs the nodes of a lane.
struct Worker<'a> {
    ready: &'a Ready<'a>,
    seen: Seen,
    /// Where it is noted down when nodes run: steps that were before these.
    noted: Option<usize>,
    ran: Vec<Ran>,
}

impl Worker<'_> {
    fn run(&mut self, step: Step) -> Result<()> {
        let start = self.noted.map(|before| (before, Instant::now()));
        // SAFETY: the line-up keeps the order of what nodes touch.
        unsafe { self.ready.run(step.run, step.node, &mut self.seen)? };
        if let Some((before, start)) = start {
            self.ran.push(Ran { step: before + step.run, node: step.node, start, end: Instant::now() });
        }
        Ok(())
    }
}

/// A node of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Which run.
    pub run: usize,
    /// Which node.
    pub node: usize,
    /// Steps of the other lane that must be over.
    pub after: usize,
}

/// What each lane does, in order.
#[derive(Debug)]
pub(super) struct LineUp(pub [Vec<Step>; LANES]);

/// What touches a thing, by the places of steps on their lanes: for each lane how many steps must be over.
#[derive(Clone, Copy, Default)]
struct Touched {
    /// Up to the last change.
    changed: [usize; LANES],
    /// Up to the last touch of any kind.
    touched: [usize; LANES],
}

/// A thing that nodes of different runs share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
    Stored(BufferId),
    /// A value of a run, by where it lies: views of it lie there, too.
    Value(usize, Place),
    /// The memory of a lane's values in a turn.
    Memory(usize, usize),
}

impl LineUp {
    /// The line-up of `runs` runs of `nodes`, each lane taking its own in the order given; `turns` are how many runs have values at a time.
    ///
    /// # Errors
    /// `Plan` where the order of a lane turns round what must come one after the other.
    pub fn new(
        nodes: &[Planned],
        turns: [usize; LANES],
        runs: usize,
        order: [Vec<(usize, usize)>; LANES],
    ) -> Result<Self> {
        let mut at: Vec<Option<(usize, usize)>> = vec![None; runs * nodes.len()];
        for (lane, order) in order.iter().enumerate() {
            for (place, &(run, node)) in order.iter().enumerate() {
                at[run * nodes.len() + node] = Some((lane, place));
            }
        }
        let mut line_up = order.map(|order| {
            let step = |(run, node)| Step { run, node, after: 0 };
            order.into_iter().map(step).collect::<Vec<_>>()
        });
        let mut things: HashMap<Thing, Touched> = HashMap::new();
        // Who used a memory in the run that has it now, and in the one before: its values share room only with that one's.
        let mut users: HashMap<Thing, (usize, Touched, Touched)> = HashMap::new();
        for run in 0..runs {
            for (node, p) in nodes.iter().enumerate() {
                let Some((lane, place)) = at[run * nodes.len() + node] else {
                    return Err(broken(p, run, "is on no lane"));
                };
                let mut after = [0; LANES];
                let mut wait = |upto: &[usize; LANES]| {
                    after.iter_mut().zip(upto).for_each(|(after, upto)| *after = (*after).max(*upto));
                };
                for (thing, changes) in touches(p, run, turns) {
                    if let Thing::Memory(..) = thing {
                        let (of, now, before) = users.entry(thing).or_default();
                        if *of != run {
                            (*of, *before, *now) = (run, *now, Touched::default());
                        }
                        if changes {
                            wait(&before.touched);
                        }
                        now.touched[lane] = now.touched[lane].max(place + 1);
                        continue;
                    }
                    let known = things.entry(thing).or_default();
                    wait(if changes { &known.touched } else { &known.changed });
                    if changes {
                        known.changed[lane] = known.changed[lane].max(place + 1);
                    }
                    known.touched[lane] = known.touched[lane].max(place + 1);
                }
                if after[lane] > place {
                    return Err(broken(p, run, "comes before what it waits for, on its own lane"));
                }
                line_up[lane][place].after = after[1 - lane];
            }
        }
        Ok(LineUp(line_up))
    }
    /// Gives the steps of the first lane to `first`, in this thread, and those of the second to `second`, in another; `begin(lane, work)` prepares a
    /// thread for its work. After an error no lane begins another step.
    ///
    /// # Errors
    /// The first, with the number of its run.
    pub fn execute(
        &self,
        begin: impl Fn(usize, &mut dyn FnMut()) + Sync,
        first: &mut dyn FnMut(Step) -> Result<()>,
        second: &mut (dyn FnMut(Step) -> Result<()> + Send),
    ) -> Result<(), (usize, Error)> {
        let (over, stop, failure) =
            ([const { Counter::new() }; LANES], AtomicBool::new(false), Mutex::new(None));
        let lane = |lane: usize, run: &mut dyn FnMut(Step) -> Result<()>| {
            // A lane that panics must not be waited for.
            let _stop = StopOnPanic(&stop);
            for (place, &step) in self.0[lane].iter().enumerate() {
                over[1 - lane].wait_for(step.after, &stop);
                if stop.load(Relaxed) {
                    return;
                }
                if let Err(e) = run(step) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((step.run, e));
                    stop.store(true, Relaxed);
                    return;
                }
                over[lane].0.store(place + 1, Release);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| begin(1, &mut || lane(1, second)));
            begin(0, &mut || lane(0, first));
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Steps that a lane has behind it, in a cache line of its own.
#[repr(align(128))]
struct Counter(AtomicUsize);

impl Counter {
    const fn new() -> Self {
        Counter(AtomicUsize::new(0))
    }
    /// Looks before a lane offers its core to others, some 50 us.
    const PATIENCE: u32 = 2_000;

    fn wait_for(&self, steps: usize, stop: &AtomicBool) {
        let mut looks = 0;
        while self.0.load(Acquire) < steps && !stop.load(Relaxed) {
            looks += 1;
            if looks < Self::PATIENCE { spin_loop() } else { thread::yield_now() }
        }
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);
impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// What a node touches, and whether it makes or changes it.
fn touches(p: &Planned, run: usize, turns: [usize; LANES]) -> Vec<(Thing, bool)> {
    let mut all = Vec::with_capacity(2 * (p.ins.len() + p.outs.len()));
    let mut touch = |place: Place, changes: bool| match place {
        Place::Stored(id) => all.push((Thing::Stored(id), changes)),
        Place::Arena(lane, _) => {
            all.push((Thing::Value(run, place), changes));
            all.push((Thing::Memory(lane, run % turns[lane]), changes));
        }
    };
    p.ins.iter().enumerate().for_each(|(i, x)| touch(x.0, p.node.writes.contains(&i)));
    p.outs.iter().for_each(|x| touch(x.0, true));
    p.counts.iter().for_each(|&place| touch(place, false));
    all
}

fn broken(p: &Planned, run: usize, what: &str) -> Error {
    Error::new(ErrorKind::Plan, format!("{} of run {run} {what}", p.node.op.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{autograd::Program, ops::Tape};

    /// A cursor that is counted up, a row looked up by it, and one that is written: the first two may run ahead.
    fn program(store: &mut Store) -> Program {
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let order = store.values("order", ids(40), &(0..40u32).rev().collect::<Vec<_>>());
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2));
        let table = store.values(
            "table",
            Spec::real(Rows::fixed(40), 1),
            &(0..40).map(|i| i as f32).collect::<Vec<_>>(),
        );
        let [sum, trace] = ["sum", "trace"].map(|name| (name, if name == "sum" { 1 } else { 40 }));
        let [sum, trace] = [sum, trace].map(|(name, n)| store.zeros(name, Spec::real(Rows::fixed(n), 1)));
        let first = store.values("first", ids(1), &[0u32]);
        let mut t = Tape::new();
        let [order, clock, table, sum, trace, first] =
            [order, clock, table, sum, trace, first].map(|id| t.stored(store, id));
        let group = t.next_group(order, clock, 2).unwrap();
        let row = t.gather_rows(table, group.target).unwrap();
        let added = t.add(sum, row).unwrap();
        t.write_rows(sum, first, added).unwrap();
        t.write_rows(trace, group.index, added).unwrap();
        Program::on_lanes(&t, &[], Precision::F32, &Device::cpu(2).unwrap(), Lanes::Prefetch).unwrap()
    }

    #[test]
    fn two_lanes_do_what_one_does_and_the_second_waits_for_memory_that_the_first_still_reads() {
        let run = |program: &mut Program, store: &mut Store, times| {
            let mut heard = Vec::new();
            program.repeat(store, times, &mut |_, runs| heard.push(runs)).unwrap();
            assert_eq!(heard, (1..=times).collect::<Vec<_>>());
            store.read::<f32>(BufferId(4)).to_vec()
        };
        let (mut store, mut alone) = (Store::new(Precision::F32), Store::new(Precision::F32));
        let (mut program, mut sequential) = (program(&mut store), program(&mut alone));
        assert_eq!(program.ahead().map(|n| n.op.name()).collect::<Vec<_>>(), ["next_group", "gather_rows"]);
        sequential.profile();
        let want = run(&mut sequential, &mut alone, 40);
        assert_eq!(want[..3], [39.0, 39.0 + 38.0, 39.0 + 38.0 + 37.0]);
        assert_eq!(run(&mut program, &mut store, 40), want);

        let order = |ahead| {
            (0..6)
                .flat_map(move |run| (if ahead { 0..2 } else { 2..5 }).map(move |node| (run, node)))
                .collect()
        };
        let line_up = LineUp::new(program.planned(), [1, 2], 6, [order(false), order(true)]).unwrap();
        let [first, second] = &line_up.0;
        let waits = |steps: &[Step]| steps.iter().map(|s| s.after).collect::<Vec<_>>();
        // The add wants the row; the trace's row its index.
        assert_eq!(waits(first)[..6], [2, 0, 1, 4, 0, 3]);
        // The third run's values lie where the first's did, which the first lane reads to its last node.
        assert_eq!(waits(second)[..8], [0, 0, 0, 0, 3, 3, 6, 6]);
    }

    #[test]
    fn an_order_that_turns_round_what_must_follow_is_refused() {
        let mut store = Store::new(Precision::F32);
        let program = program(&mut store);
        let ahead = vec![(0, 0), (0, 1)];
        let refused = |order| LineUp::new(program.planned(), [1, 2], 1, order).unwrap_err();
        let e = refused([vec![(0, 3), (0, 2), (0, 4)], ahead.clone()]);
        assert_eq!(e.kind(), ErrorKind::Plan);
        assert!(e.to_string().contains("write_rows of run 0 comes before what it waits for"), "{e}");
        let e = refused([vec![(0, 2), (0, 3)], ahead]);
        assert!(e.to_string().contains("write_rows of run 0 is on no lane"), "{e}");
    }

    #[test]
    fn an_error_or_a_panic_of_a_lane_ends_the_other() {
        let mut store = Store::new(Precision::F32);
        let program = program(&mut store);
        let order = |ahead| {
            (0..9)
                .flat_map(move |run| (if ahead { 0..2 } else { 2..5 }).map(move |node| (run, node)))
                .collect()
        };
        let line_up = LineUp::new(program.planned(), [1, 2], 9, [order(false), order(true)]).unwrap();
        let bad = |step: Step| if step.run == 4 { Err(Error::usage("planted")) } else { Ok(()) };
        let begin = |_: usize, work: &mut dyn FnMut()| work();
        let ran = line_up.execute(begin, &mut |_| Ok(()), &mut |step| bad(step));
        assert_eq!(ran.unwrap_err().0, 4);
        let ran = line_up.execute(begin, &mut |step| bad(step), &mut |_| Ok(()));
        assert_eq!(ran.unwrap_err().1.to_string(), "planted");
        let panicked = std::panic::catch_unwind(|| {
            let _ = line_up.execute(begin, &mut |_| Ok(()), &mut |step| {
                if step.run == 4 { panic!("planted") } else { Ok(()) }
            });
        });
        assert!(panicked.is_err());
    }
}
