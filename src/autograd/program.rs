//! A tape made ready to run: dead nodes dropped, memory planned, addresses fixed.
use super::{
    arena::ArenaPlan,
    device::{OnDevice, Room},
    host::{self, OnHost, Seen},
    lanes::{LANES, Lanes},
    trace::{Ran, Span, Trace},
};
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{Backend, Home, Node, Tape},
    runtime::*,
};
use std::time::Instant;

/// Where an operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In the memory of a lane's values, of which there may be two, for steps in turns: an offset; where values are kept apart, the
    /// number of a block.
    Arena(usize, usize),
    Stored(BufferId),
}

/// A node with its operands' places.
pub(super) struct Planned {
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
    /// Which lane runs it.
    pub lane: usize,
}

/// Where the values of a step are.
enum Memory {
    Host(OnHost),
    Device(Box<OnDevice>),
}

/// Time that runs of one op took.
#[derive(Clone, Debug)]
pub struct OpTime {
    /// The op.
    pub op: &'static str,
    /// Seconds in all.
    pub seconds: f64,
    /// Its cost at full row counts, in all.
    pub cost: crate::ops::Cost,
    /// Runs.
    pub runs: usize,
    /// Kernels that were launched for it, in all; none on the host.
    pub kernels: usize,
    /// Whether it is for the step after: it runs ahead when the program is repeated.
    pub ahead: bool,
}

/// What the runs of a node took.
#[derive(Clone, Copy, Default)]
pub(super) struct NodeTime {
    pub seconds: f64,
    pub runs: usize,
    pub kernels: usize,
}

/// A tape with its memory planned.
///
/// Nodes whose results nobody reads are dropped. Every value that lives within a step has a fixed place in one arena; places
/// of values that are never alive together overlap. Running allocates no tensor memory.
///
/// A view of a value of the step begins where that value does and is no longer: it has its address, and its room ends at the
/// latest with the value's, whatever its shape. Both last until the last node that touches either; a value is never changed
/// once it is made, so neither sees the other.
pub struct Program {
    nodes: Vec<Planned>,
    places: Vec<Option<Place>>,
    specs: Vec<Spec>,
    keep: Vec<Var>,
    memory: Memory,
    precision: Precision,
    backend: Backend,
    lanes: Lanes,
    /// Who runs two lanes, on a host.
    devices: Option<[Device; LANES]>,
    times: Option<Vec<NodeTime>>,
    trace: Option<Trace>,
}

impl Program {
    /// Plans `tape` for reals of `precision`; values of `keep` survive the run, to be [`read`](Self::read).
    ///
    /// # Errors
    /// `OutOfMemory` when the machine or the device does not have what the values of a step need.
    pub fn new(tape: &Tape, keep: &[Var], precision: Precision, backend: Backend) -> Result<Self> {
        Self::plan(tape, keep, precision, backend, None)
    }
    /// [`new`](Self::new) for a program that is [repeated](Self::repeat) on `device`, its nodes on these lanes. Results are the same,
    /// to the last bit.
    ///
    /// # Errors
    /// As `new`; `Device` where there is no thread to be had.
    pub fn on_lanes(
        tape: &Tape,
        keep: &[Var],
        precision: Precision,
        device: &Device,
        lanes: Lanes,
    ) -> Result<Self> {
        Self::plan(tape, keep, precision, Backend::of(device), Some((device, lanes)))
    }
    fn plan(
        tape: &Tape,
        keep: &[Var],
        precision: Precision,
        backend: Backend,
        on: Option<(&Device, Lanes)>,
    ) -> Result<Self> {
        let specs: Vec<Spec> = (0..tape.len() as u32).map(|v| tape.spec(Var(v))).collect();
        let alive = alive(tape, keep, &specs);
        let nodes: Vec<&Node> = tape.nodes().iter().zip(alive).filter(|(_, a)| *a).map(|(n, _)| n).collect();
        let lanes = on.map_or(Lanes::One, |on| on.1);
        let (nodes, lane_of) = lanes.share_out(nodes, &specs);
        let on_host = !matches!(backend, Backend::Cuda(_));
        let devices = match on.filter(|_| on_host && lane_of.contains(&1)) {
            Some((device, _)) => Some(device.lanes(lanes.second_threads(device.threads()))?),
            None => None,
        };
        // A view of a stored value is copied all the same: the value may be written while the view is still read.
        let mut lies_in: Vec<Var> = (0..tape.len() as u32).map(Var).collect();
        for n in nodes.iter().filter(|n| n.op.is_view() && tape.home(n.ins[0]) == Home::Step) {
            lies_in[n.outs[0].0 as usize] = lies_in[n.ins[0].0 as usize];
        }
        let last_use = last_uses(&nodes, &lane_of, keep, &specs, &lies_in);
        let mut read = vec![false; specs.len()];
        let counts = |v: &Var| specs[v.0 as usize].rows.live.map(|l| l.var);
        for &v in keep.iter().chain(nodes.iter().flat_map(|n| &n.ins)) {
            read[v.0 as usize] = true;
        }
        for v in nodes.iter().flat_map(|n| n.ins.iter().chain(&n.outs)).filter_map(counts) {
            read[v.0 as usize] = true;
        }
        let apart = backend.keeps_values_apart();
        let mut arenas = [ArenaPlan::new(apart), ArenaPlan::new(apart)];
        let mut places: Vec<Option<Place>> = (0..tape.len() as u32)
            .map(|v| match tape.home(Var(v)) {
                Home::Stored { id, .. } => Some(Place::Stored(id)),
                Home::Step => None,
            })
            .collect();
        let scratch_of = |n: &Node| n.op.scratch(&tape.specs(&n.ins)) * DType::F32.size(precision);
        // On the host one op of a lane runs at a time, so all have the same scratch: it stays in a cache, where room in between the
        // values of a step would have to be brought in for every op anew.
        let shared: Option<[Place; LANES]> = on_host.then(|| {
            std::array::from_fn(|lane| {
                let those = nodes.iter().zip(&lane_of).filter(|(_, of)| **of == lane);
                let most = those.map(|(n, _)| scratch_of(n)).max().unwrap_or(0);
                Place::Arena(lane, arenas[lane].place(most, 0, nodes.len()))
            })
        });
        let mut planned = Vec::with_capacity(nodes.len());
        for ((at, node), lane) in nodes.into_iter().enumerate().zip(lane_of) {
            let mut place = |bytes, until| Place::Arena(lane, arenas[lane].place(bytes, at, until));
            if let [out] = node.outs[..]
                && lies_in[out.0 as usize] != out
            {
                places[out.0 as usize] = places[lies_in[out.0 as usize].0 as usize];
                continue;
            }
            for &o in &node.outs {
                let bytes = specs[o.0 as usize].bytes(precision);
                places[o.0 as usize] = Some(place(bytes, last_use[o.0 as usize]));
            }
            let scratch = scratch_of(node);
            let shared = shared.map(|shared| shared[lane]);
            let scratch = (shared.unwrap_or_else(|| place(scratch, at)), scratch);
            let tickets = node.op.tickets(&tape.specs(&node.ins));
            let operand = |v: &Var| {
                // A value is made before it is used: the tape only hands out what it has made.
                (places[v.0 as usize].unwrap_or(Place::Arena(0, 0)), specs[v.0 as usize])
            };
            let (ins, outs) =
                (node.ins.iter().map(operand).collect(), node.outs.iter().map(operand).collect());
            let wanted = node.outs.iter().map(|o| read[o.0 as usize]).collect();
            let own = |v: &Var| node.outs.contains(v);
            let read = node.ins.iter().chain(&node.outs).filter_map(counts).filter(|c| !own(c));
            let counts = read.filter_map(|v| places[v.0 as usize]).collect();
            planned.push(Planned { node: node.clone(), ins, outs, counts, wanted, scratch, tickets, lane });
        }
        let memory = match &backend {
            Backend::Cuda(gpu) => {
                let [step, ahead] = arenas.map(ArenaPlan::blocks);
                Memory::Device(Box::new(OnDevice::new(gpu, Room { step, ahead })))
            }
            _ => Memory::Host(OnHost::new(arenas.map(|a| a.size()), lanes.turns())?),
        };
        Ok(Program {
            nodes: planned,
            places,
            specs,
            keep: keep.to_vec(),
            memory,
            precision,
            backend,
            lanes,
            devices,
            times: None,
            trace: None,
        })
    }
    /// The buffers that it reads or writes.
    pub fn stored(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.places.iter().filter_map(|p| match p {
            Some(Place::Stored(id)) => Some(*id),
            _ => None,
        })
    }
    /// Bytes for the values of a step, and of one ahead. On a device they are taken at the first run.
    pub fn arena_bytes(&self) -> usize {
        match &self.memory {
            Memory::Host(h) => h.bytes(),
            Memory::Device(d) => d.bytes(),
        }
    }
    /// Shape and type of a value.
    pub fn spec(&self, v: Var) -> Spec {
        self.specs[v.0 as usize]
    }
    /// Nodes that run.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(|p| &p.node)
    }
    /// Nodes that run a step ahead when the program is [repeated](Self::repeat).
    pub fn ahead(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|p| self.runs_ahead(p)).map(|p| &p.node)
    }
    fn runs_ahead(&self, p: &Planned) -> bool {
        self.lanes == Lanes::Prefetch && p.lane == 1
    }
    #[cfg(test)]
    pub(super) fn planned(&self) -> &[Planned] {
        &self.nodes
    }
    /// Starts to take the time of every op (a few percent slower); see [`op_times`](Self::op_times).
    pub fn profile(&mut self) {
        self.times = Some(vec![NodeTime::default(); self.nodes.len()]);
    }
    /// Starts to note down when nodes run, and forgets what was noted. On a host; see [`trace`](Self::trace).
    pub fn start_trace(&mut self) {
        self.trace = Some(Trace::new());
    }
    /// Every run of a node since [`start_trace`](Self::start_trace).
    pub fn trace(&self) -> Vec<Span> {
        let Some(trace) = &self.trace else { return Vec::new() };
        let span = |r: &Ran| {
            let p = &self.nodes[r.node];
            let [ins, outs] = [&p.ins, &p.outs].map(|of| of.iter().map(|x| x.1).collect::<Vec<Spec>>());
            let [start, end] = [r.start, r.end].map(|at| (at - trace.began).as_secs_f64());
            let (op, kind) = (p.node.op.name(), p.node.op.kind());
            let cost = p.node.op.cost(&ins, &outs);
            Span { op, kind, part: p.node.part, step: r.step, lane: p.lane, start, end, cost }
        };
        trace.ran.iter().map(span).collect()
    }
    /// Times of `times` runs of every op, slowest first, on what the last [`run`](Self::run) left. On a device without the
    /// time that launches take, on the host as [`profile`](Self::profile) does.
    ///
    /// # Errors
    /// As `run`.
    pub fn time_ops(&mut self, store: &mut Store, times: usize) -> Result<Vec<OpTime>> {
        let Memory::Device(d) = &mut self.memory else {
            self.profile();
            (0..times).try_for_each(|_| self.run(store))?;
            return Ok(self.op_times());
        };
        let taken = d.ready(&self.nodes, &self.places, store)?.time_nodes(&self.nodes, times)?;
        Ok(self.by_op(&taken))
    }
    /// Times by op since [`profile`](Self::profile), slowest first.
    pub fn op_times(&self) -> Vec<OpTime> {
        self.by_op(self.times.as_deref().unwrap_or_default())
    }
    /// What every node took, added up by op, the nodes that run ahead apart.
    fn by_op(&self, times: &[NodeTime]) -> Vec<OpTime> {
        let mut by_op: Vec<OpTime> = Vec::new();
        for (p, &NodeTime { seconds, runs, kernels }) in self.nodes.iter().zip(times) {
            let ins: Vec<Spec> = p.ins.iter().map(|x| x.1).collect();
            let outs: Vec<Spec> = p.outs.iter().map(|x| x.1).collect();
            let (op, cost, ahead) = (p.node.op.name(), p.node.op.cost(&ins, &outs), self.runs_ahead(p));
            let at = by_op.iter().position(|t| t.op == op && t.ahead == ahead).unwrap_or_else(|| {
                by_op.push(OpTime { op, seconds: 0.0, cost: Default::default(), runs: 0, kernels: 0, ahead });
                by_op.len() - 1
            });
            by_op[at].seconds += seconds;
            by_op[at].runs += runs;
            by_op[at].kernels += kernels;
            by_op[at].cost.bytes += cost.bytes * runs;
            by_op[at].cost.flops += cost.flops * runs;
        }
        by_op.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        by_op
    }
    /// Runs the program once over `store`, and waits for it.
    ///
    /// # Errors
    /// `Diverged` where an op met a number that is not finite, `Data` where it met an index outside its table; the
    /// text names op and row. What the step had written by then stays written.
    ///
    /// # Panics
    /// When the store's precision is not the program's.
    pub fn run(&mut self, store: &mut Store) -> Result<()> {
        assert_eq!(store.precision(), self.precision, "precision of store and program");
        match &mut self.memory {
            Memory::Host(h) => {
                let ready = h.ready(&self.nodes, &self.places, store, (&self.backend, self.precision));
                run_all(&ready, self.times.as_deref_mut(), self.trace.as_mut(), &mut Seen::default())
            }
            Memory::Device(d) => d.run(&self.nodes, &self.places, &self.specs, &self.keep, store),
        }
    }
    /// [`run`](Self::run) `times` times; `done` hears how many runs are over, on a device only now and then. There the
    /// host does not wait between runs, and what they wrote is to be [fetched](Store::fetch).
    ///
    /// # Errors
    /// As `run`, with the number of the run where that is known.
    pub fn repeat(
        &mut self,
        store: &mut Store,
        times: usize,
        done: &mut dyn FnMut(&Store, usize),
    ) -> Result<(), (Option<usize>, Error)> {
        assert_eq!(store.precision(), self.precision, "precision of store and program");
        match &mut self.memory {
            Memory::Device(d) => {
                let ready = d.ready(&self.nodes, &self.places, store);
                let ran = ready.and_then(|ready| match &mut self.times {
                    Some(taken) => ready.profile(&self.nodes, store, times, taken, done),
                    None => ready.repeat(&self.nodes, store, times, done),
                });
                ran.map_err(|e| (None, e))
            }
            Memory::Host(h) => {
                let ready = h.ready(&self.nodes, &self.places, store, (&self.backend, self.precision));
                // Ops are timed one by one.
                if let (Some(devices), None) = (&self.devices, &self.times) {
                    let mut done = |runs| done(store, runs);
                    let (nodes, lanes, trace) = (&self.nodes, self.lanes, self.trace.as_mut());
                    return team::rest(|| lanes.repeat(nodes, &ready, devices, times, trace, &mut done));
                }
                let mut seen = Seen::default();
                for at in 0..times {
                    let ran = run_all(&ready, self.times.as_deref_mut(), self.trace.as_mut(), &mut seen);
                    ran.map_err(|e| (Some(at), e))?;
                    done(store, at + 1);
                }
                Ok(())
            }
        }
    }
    /// Live rows of a value after a run.
    pub fn rows(&self, v: Var, store: &Store) -> usize {
        match &self.memory {
            Memory::Host(h) => {
                let rows = self.specs[v.0 as usize].rows;
                let Some(live) = rows.live else { return rows.cap };
                let count = match self.places[live.var.0 as usize] {
                    Some(Place::Stored(id)) => store.read::<u32>(id)[0],
                    place => place.and_then(|p| h.address(p)).map_or(0, |at| {
                        // SAFETY: a count is a `[1]` u32 of the step, made by an earlier node or zero.
                        unsafe { at.cast::<u32>().read() }
                    }),
                };
                (count as usize * live.times).min(rows.cap)
            }
            Memory::Device(d) => d.kept::<u32>(v).map_or(0, |k| k.0),
        }
    }
    /// The live rows of a kept or stored value, as the last run left them.
    ///
    /// # Panics
    /// When `T` is not the value's element type.
    pub fn read<'a, T: Element>(&'a self, v: Var, store: &'a Store) -> &'a [T] {
        let spec = self.specs[v.0 as usize];
        assert_eq!(
            (T::DTYPE, size_of::<T>()),
            (spec.dtype, spec.dtype.size(self.precision)),
            "type of {v:?}"
        );
        let n = self.rows(v, store) * spec.cols;
        match (&self.memory, self.places[v.0 as usize]) {
            (_, None) => &[],
            (Memory::Device(d), _) => d.kept(v).map_or(&[], |(_, values)| &values[..n]),
            (_, Some(Place::Stored(id))) => &store.read(id)[..n],
            (Memory::Host(h), Some(place)) => match h.address(place) {
                // SAFETY: the plan gave the value this room; it was zeroed or written; every bit pattern is a `T`.
                Some(at) => unsafe { std::slice::from_raw_parts(at.cast(), n) },
                None => &[],
            },
        }
    }
}

/// Runs every node once, in order, and notes down how long each took and when.
fn run_all(
    ready: &host::Ready<'_>,
    mut times: Option<&mut [NodeTime]>,
    mut trace: Option<&mut Trace>,
    seen: &mut Seen,
) -> Result<()> {
    if times.is_none() && trace.is_none() {
        return ready.run_all(None, seen);
    }
    let mut ran = |node: usize, start: Instant, end: Instant| {
        if let Some(times) = &mut times {
            times[node].seconds += (end - start).as_secs_f64();
            times[node].runs += 1;
        }
        if let Some(trace) = &mut trace {
            trace.ran.push(Ran { step: trace.steps, node, start, end });
        }
    };
    ready.run_all(Some(&mut ran), seen)?;
    if let Some(trace) = trace {
        trace.steps += 1;
    }
    Ok(())
}

// SAFETY: the raw pointers made in `run` do not outlive it; everything stored is plain data and `Send + Sync` ops.
unsafe impl Send for Program {}

/// What a status word tells, as an error.
pub(super) fn fault(op: &str, row: u32, value: f32) -> Error {
    if value.is_finite() {
        return Error::new(ErrorKind::Data, format!("{op}: row {row} names row {value} of a smaller table"));
    }
    Error::new(ErrorKind::Diverged, format!("{op}: row {row} is {value}"))
        .remedy("lower the learning rate, or look for extreme values among the features")
}

/// Which nodes matter: those that write state, and those whose results a kept value or such a node needs.
fn alive(tape: &Tape, keep: &[Var], specs: &[Spec]) -> Vec<bool> {
    let mut needed = vec![false; tape.len()];
    let need = |needed: &mut Vec<bool>, v: Var| {
        needed[v.0 as usize] = true;
        if let Some(l) = specs[v.0 as usize].rows.live {
            needed[l.var.0 as usize] = true;
        }
    };
    keep.iter().for_each(|&v| need(&mut needed, v));
    let mut alive = vec![false; tape.nodes().len()];
    for (at, n) in tape.nodes().iter().enumerate().rev() {
        alive[at] = !n.writes.is_empty() || n.outs.iter().any(|o| needed[o.0 as usize]);
        if alive[at] {
            n.ins.iter().chain(&n.outs).for_each(|&v| need(&mut needed, v));
        }
    }
    alive
}

/// The last node that touches each value, a view of it, or its row count. What one lane makes for the other lasts to the end.
fn last_uses(
    nodes: &[&Node],
    lane_of: &[usize],
    keep: &[Var],
    specs: &[Spec],
    lies_in: &[Var],
) -> Vec<usize> {
    let (mut last, mut made_on) = (vec![0; specs.len()], vec![None; specs.len()]);
    for (n, &lane) in nodes.iter().zip(lane_of) {
        n.outs.iter().for_each(|o| made_on[o.0 as usize] = Some(lane));
    }
    let mut touch = |v: Var, at: usize| {
        for v in std::iter::once(v).chain(specs[v.0 as usize].rows.live.map(|l| l.var)) {
            let v = lies_in[v.0 as usize];
            let beyond =
                made_on[v.0 as usize].is_some_and(|made| lane_of.get(at).is_some_and(|&lane| lane != made));
            last[v.0 as usize] = last[v.0 as usize].max(if beyond { nodes.len() } else { at });
        }
    };
    for (at, n) in nodes.iter().enumerate() {
        n.ins.iter().chain(&n.outs).for_each(|&v| touch(v, at));
    }
    keep.iter().for_each(|&v| touch(v, nodes.len()));
    last
}
