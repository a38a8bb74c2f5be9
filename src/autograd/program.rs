//! A tape made ready to run: dead nodes dropped, memory planned, addresses fixed.
use super::{
    device::{ArenaSizes, OnDevice},
    host::{self, OnHost, ViewBuffers},
    lanes::{self, LANES, Lanes},
    schedule::Schedule,
    schedule_cache::{ScheduleCache, windows},
    stages::Stage,
    trace::{NodeInfo, Ran, Span, Trace},
    variant::{Place, PlannedNode, Variant},
};
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    ops::{Backend, Node, Tape},
    runtime::*,
};
use std::time::Instant;

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
    /// On which lane it runs when the program is repeated.
    pub lane: usize,
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
    /// The step, in one variant or several.
    variants: Vec<Variant>,
    /// Of the first tape: every value, and those that survive a run.
    vars: Vec<Var>,
    keep: Vec<Var>,
    /// Whose buffers the tapes name; none where they name none.
    store: Option<StoreId>,
    /// Whether the last that ran was [`run`](Self::run), and to its end: then what is kept can be read.
    kept: bool,
    memory: Memory,
    precision: Precision,
    backend: Backend,
    lanes: Lanes,
    /// Who runs two lanes, on a host.
    devices: Option<[Device; LANES]>,
    schedules: ScheduleCache,
    /// Of the nodes of each variant.
    times: Option<Vec<Vec<NodeTime>>>,
    trace: Option<Trace>,
}

impl Program {
    /// Plans `tape` for reals of `precision`; values of `keep` survive the run, to be [`read`](Self::read).
    ///
    /// # Errors
    /// `OutOfMemory` when the machine or the device does not have what the values of a step need; `Shape` where a value to be kept
    /// is another tape's.
    pub fn new(tape: &Tape, keep: &[Var], precision: Precision, backend: Backend) -> Result<Self> {
        Self::plan(&[(tape, Lanes::One)], keep, precision, backend, None)
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
        Self::plan(&[(tape, lanes)], keep, precision, Backend::of(device), Some(device))
    }
    /// [`on_lanes`](Self::on_lanes) for steps in several variants, of which every run takes one ([`repeat_in`](Self::repeat_in)): groups shared
    /// out otherwise, products in another order, or what comes between groups, such as an update; nothing goes ahead of a variant that
    /// is on [one lane](Lanes::One). All go in the first one's depth.
    ///
    /// # Errors
    /// As `on_lanes`; `Shape` where there is no tape, or tapes are over different stores.
    pub fn with_variants(tapes: &[(&Tape, Lanes)], precision: Precision, device: &Device) -> Result<Self> {
        Self::plan(tapes, &[], precision, Backend::of(device), Some(device))
    }
    fn variant(&self) -> &Variant {
        &self.variants[0]
    }
    fn plan(
        tapes: &[(&Tape, Lanes)],
        keep: &[Var],
        precision: Precision,
        backend: Backend,
        on: Option<&Device>,
    ) -> Result<Self> {
        let Some(&(first, lanes)) = tapes.first() else {
            return Err(Error::shape("program", "there is no tape"));
        };
        let store = tapes.iter().find_map(|t| t.0.store());
        let one = tapes.iter().all(|t| t.0.store().is_none_or(|own| Some(own) == store));
        ensure!("program", one, "its tapes are over different stores");
        let product = precision == Precision::F32 || !matches!(backend, Backend::Cuda(_));
        ensure!("program", product, "devices compute in f32: run a reference in f64 on the host");
        let variant = |&(tape, lanes): &(&Tape, Lanes)| Variant::new(tape, keep, precision, &backend, lanes);
        let variants = tapes.iter().map(variant).collect::<Result<Vec<Variant>>>()?;
        let second = variants.iter().flat_map(|f| &f.nodes).any(|p| p.placement.lane == 1);
        let devices = match on.filter(|device| device.gpu().is_none() && second) {
            Some(device) => Some(device.lanes(lanes.second_threads(device.threads()))?),
            None => None,
        };
        let memory = match &backend {
            Backend::Cuda(gpu) => {
                Memory::Device(Box::new(OnDevice::new(gpu, ArenaSizes::of(&variants, lanes.buffer_depth()))))
            }
            _ => {
                let most = |lane: usize| variants.iter().map(|f| f.arenas[lane].size()).max().unwrap_or(0);
                Memory::Host(OnHost::new([most(0), most(1)], lanes.buffer_depth())?)
            }
        };
        Ok(Program {
            variants,
            vars: first.vars().collect(),
            keep: keep.to_vec(),
            store,
            kept: false,
            memory,
            precision,
            backend,
            lanes,
            devices,
            schedules: ScheduleCache::new(lanes.buffer_depth()),
            times: None,
            trace: None,
        })
    }
    /// The buffers that it reads or writes.
    pub fn stored(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.variants.iter().flat_map(|f| &f.places).filter_map(|p| match p {
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
    /// Shape and type of a value of the tape, of the first where there are several.
    ///
    /// # Panics
    /// When it is another tape's.
    pub fn spec(&self, v: Var) -> Spec {
        assert_eq!(self.vars.get(v.at()), Some(&v), "value {v} is another tape's");
        self.variant().specs[v.at()]
    }
    /// Nodes that run, each with its stage; in order.
    pub fn stages(&self) -> impl Iterator<Item = (&Node, Stage)> {
        self.variant().nodes.iter().map(|p| (&p.node, p.stage))
    }
    /// What the nodes of a variant do, in order.
    ///
    /// # Panics
    /// Where there is no such variant.
    pub fn node_infos(&self, variant: usize) -> Vec<NodeInfo> {
        let work = |p: &PlannedNode| {
            let [ins, outs] = [&p.ins, &p.outs].map(|of| of.iter().map(|x| x.1).collect::<Vec<Spec>>());
            let (op, kind, cost) = (p.node.op.name(), p.node.op.kind(), p.node.op.cost(&ins, &outs));
            let cols = outs.first().or(ins.first()).map_or(0, |s| s.cols);
            let (stage, tag, lane, resource) = (p.stage, p.node.tag, p.placement.lane, p.resource);
            NodeInfo { op, kind, resource, stage, tag, lane, cost, cols }
        };
        self.variants[variant].nodes.iter().map(work).collect()
    }
    /// In how many variants it is.
    pub fn variants(&self) -> usize {
        self.variants.len()
    }
    /// Cuts runs into those that are scheduled together: lanes wait for one another at the end of each such window.
    ///
    /// # Panics
    /// Where there is no such variant.
    pub fn windows<'a>(&self, variant_of_run: &'a [usize]) -> Vec<&'a [usize]> {
        windows(&self.variants, variant_of_run)
    }
    /// What each lane does in a run for each entry of `variant_of_run`, and for what it waits.
    ///
    /// # Errors
    /// `Plan`, where lanes would wait for each other.
    ///
    /// # Panics
    /// Where there is no such variant.
    pub fn schedule(&self, variant_of_run: &[usize]) -> Result<Schedule> {
        Schedule::of(&self.variants, variant_of_run, self.lanes.buffer_depth())
    }
    /// Nodes that run.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.variant().nodes.iter().map(|p| &p.node)
    }
    /// Nodes that run a step ahead when the program is [repeated](Self::repeat).
    pub fn prefetched(&self) -> impl Iterator<Item = &Node> {
        self.variant().nodes.iter().filter(|p| runs_ahead(p)).map(|p| &p.node)
    }
    #[cfg(test)]
    pub(super) fn planned(&self) -> &[PlannedNode] {
        &self.variant().nodes
    }
    /// Starts to take the time of every op (a few percent slower); see [`op_times`](Self::op_times).
    pub fn profile(&mut self) {
        self.times = Some(self.variants.iter().map(|f| vec![NodeTime::default(); f.nodes.len()]).collect());
    }
    /// Whether the time of every op is taken: one op runs at a time then, on whatever lane it is.
    pub fn is_profiled(&self) -> bool {
        self.times.is_some()
    }
    /// Starts to note down when nodes run, and forgets what was noted; see [`trace`](Self::trace). On a device nodes are launched one by
    /// one meanwhile, each between two events.
    pub fn start_trace(&mut self) {
        self.trace = Some(Trace::new());
    }
    /// Every run of a node since [`start_trace`](Self::start_trace).
    pub fn trace(&self) -> Vec<Span> {
        let Some(trace) = &self.trace else { return Vec::new() };
        let node_infos: Vec<Vec<NodeInfo>> =
            (0..self.variants.len()).map(|variant| self.node_infos(variant)).collect();
        let span = |&Ran { step, variant, node, start, end }: &Ran| {
            let [start, end] = [start, end].map(|at| (at - trace.began).as_secs_f64());
            Span { work: node_infos[variant][node], node, step, start, end }
        };
        trace.ran.iter().map(span).collect()
    }
    /// Times of `times` runs of every op, slowest first, on what the last [`run`](Self::run) left. On a device without the
    /// time that launches take, on the host as [`profile`](Self::profile) does.
    ///
    /// # Errors
    /// As `run`.
    pub fn time_ops(&mut self, store: &mut Store, times: usize) -> Result<Vec<OpTime>> {
        self.check(store)?;
        let Memory::Device(d) = &mut self.memory else {
            self.profile();
            (0..times).try_for_each(|_| self.run(store))?;
            return Ok(self.op_times());
        };
        let taken = d.ready(&self.variants, store)?.time_nodes(&self.variants[0].nodes, times)?;
        Ok(self.by_op(&[taken]))
    }
    /// Times by op since [`profile`](Self::profile), slowest first.
    pub fn op_times(&self) -> Vec<OpTime> {
        self.by_op(self.times.as_deref().unwrap_or_default())
    }
    /// What every node took, added up by op, those of each lane apart.
    fn by_op(&self, times: &[Vec<NodeTime>]) -> Vec<OpTime> {
        let mut by_op: Vec<OpTime> = Vec::new();
        let timed =
            self.variants.iter().zip(times).flat_map(|(variant, times)| variant.nodes.iter().zip(times));
        for (p, &NodeTime { seconds, runs, kernels }) in timed.filter(|(_, time)| time.runs > 0) {
            let ins: Vec<Spec> = p.ins.iter().map(|x| x.1).collect();
            let outs: Vec<Spec> = p.outs.iter().map(|x| x.1).collect();
            let (op, cost, lane) = (p.node.op.name(), p.node.op.cost(&ins, &outs), p.placement.lane);
            let at = by_op.iter().position(|t| t.op == op && t.lane == lane).unwrap_or_else(|| {
                by_op.push(OpTime { op, seconds: 0.0, cost: Default::default(), runs: 0, kernels: 0, lane });
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
    /// Refuses a store that the program was not planned for.
    fn check(&self, store: &Store) -> Result<()> {
        let own = self.store.is_none_or(|own| own == store.id());
        ensure!("program", own, "its tape is over another store");
        let (has, wants) = (store.precision(), self.precision);
        ensure!("program", has == wants, "the store is of {has:?}, the program of {wants:?}");
        Ok(())
    }
    /// Runs the program once over `store`, and waits for it.
    ///
    /// # Errors
    /// `Diverged` where an op met a number that is not finite, `Data` where it met an index outside its table; the
    /// text names op and row. What the step had written by then stays written. `Shape` where the store is not the tape's, or not of
    /// the program's precision.
    pub fn run(&mut self, store: &mut Store) -> Result<()> {
        self.check(store)?;
        self.kept = false;
        match &mut self.memory {
            Memory::Host(h) => {
                let ready = h.ready(&self.variants[..1], store, (&self.backend, self.precision))?;
                run_all(
                    &ready,
                    0,
                    self.times.as_deref_mut(),
                    self.trace.as_mut(),
                    &mut ViewBuffers::default(),
                )?;
            }
            Memory::Device(d) => d.run(&self.variants, &self.keep, store)?,
        }
        self.kept = true;
        Ok(())
    }
    /// [`run`](Self::run) `times` times; `done` is called after every run on one lane of a host, otherwise occasionally. On a device
    /// the host does not wait between runs, and what they wrote is to be [fetched](Store::fetch). What is kept cannot be read afterwards.
    ///
    /// # Errors
    /// As `run`, with the number of the run where that is known.
    pub fn repeat(
        &mut self,
        store: &mut Store,
        times: usize,
        done: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<(), (Option<usize>, Error)> {
        let mut variant_of_run = Vec::new();
        variant_of_run.try_reserve_exact(times).map_err(|e| {
            (None, Error::new(ErrorKind::OutOfMemory, format!("{times} runs at once")).caused_by(e))
        })?;
        variant_of_run.resize(times, 0);
        self.repeat_in(store, &variant_of_run, done)
    }
    /// [`repeat`](Self::repeat) with a run for each entry of `variant_of_run`, which says the variant of the run.
    ///
    /// # Errors
    /// As `repeat`; `Shape` where there is no such variant.
    pub fn repeat_in(
        &mut self,
        store: &mut Store,
        variant_of_run: &[usize],
        done: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<(), (Option<usize>, Error)> {
        let unknown = variant_of_run.iter().find(|&&variant| variant >= self.variants.len());
        let unknown =
            unknown.map(|variant| Error::shape("program", format_args!("there is no variant {variant}")));
        unknown.map_or_else(|| self.check(store), Err).map_err(|e| (None, e))?;
        self.kept = false;
        match &mut self.memory {
            Memory::Device(d) => {
                let (variants, trace) = (&self.variants[..], self.trace.as_mut());
                let ran = d.ready(variants, store).and_then(|ready| match &mut self.times {
                    Some(taken) => ready.profile(variants, store, variant_of_run, taken, done),
                    None => ready.repeat((variants, variant_of_run), store, &mut self.schedules, trace, done),
                });
                ran.map_err(|e| (None, e))
            }
            Memory::Host(h) => {
                let ready =
                    h.ready(&self.variants, store, (&self.backend, self.precision)).map_err(|e| (None, e))?;
                // Ops are timed one by one.
                if let (Some(devices), None) = (&self.devices, &self.times) {
                    let (what, trace) = ((&self.variants[..], variant_of_run), self.trace.as_mut());
                    let schedules = &mut self.schedules;
                    return team::rest(|| {
                        lanes::repeat(what, &ready, store, devices, schedules, trace, done)
                    });
                }
                let mut seen = ViewBuffers::default();
                for (at, &variant) in variant_of_run.iter().enumerate() {
                    let (times, trace) = (self.times.as_deref_mut(), self.trace.as_mut());
                    run_all(&ready, variant, times, trace, &mut seen).map_err(|e| (Some(at), e))?;
                    done(RepeatProgress { runs: at + 1, store: Some(store) });
                }
                Ok(())
            }
        }
    }
    /// Live rows of a kept or stored value, as the last run left them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows(&self, v: Var, store: &Store) -> Result<usize> {
        self.check(store)?;
        self.check_kept(v)?;
        let rows = self.spec(v).rows;
        let Some(live) = rows.live else { return Ok(rows.capacity) };
        if let (Memory::Device(d), Some(Place::Arena(..))) = (&self.memory, self.variant().places[v.at()]) {
            return Ok(d.kept::<u32>(v).map_or(0, |k| k.0));
        }
        let count = match (&self.memory, self.variant().places[live.var.at()]) {
            (_, Some(Place::Stored(id))) => store.read::<u32>(id)?[0],
            // SAFETY: a count is a `[1]` u32 of the step, made by an earlier node or zero.
            (Memory::Host(h), Some(Place::Arena(lane, at))) => unsafe {
                h.address(lane, at).cast::<u32>().read()
            },
            _ => 0,
        };
        Ok((count as usize).saturating_mul(live.times).min(rows.capacity))
    }
    /// The live rows of a kept or stored value, as the last [`run`](Self::run) left them.
    ///
    /// # Errors
    /// `Shape` when `T` is not the value's element type, the value is neither kept nor stored, nothing has run yet or
    /// [`repeat`](Self::repeat) ran last (whose runs may overlap), or value or store are not the program's.
    pub fn read<'a, T: Element>(&'a self, v: Var, store: &'a Store) -> Result<&'a [T]> {
        let n = self.rows(v, store)?;
        let (spec, name) = (self.spec(v), std::any::type_name::<T>());
        ensure!("program", spec.dtype.holds::<T>(self.precision), "value {v} is {spec}, not of {name}");
        let n = n * spec.cols;
        match (&self.memory, self.variant().places[v.at()]) {
            (_, Some(Place::Stored(id))) => Ok(&store.read(id)?[..n]),
            (Memory::Device(d), _) => Ok(d.kept(v).map_or(&[], |(_, values)| &values[..n])),
            // SAFETY: the plan gave the value this room; it was zeroed or written; every bit pattern is a `T`; nothing runs while the
            // program is borrowed.
            (Memory::Host(h), Some(Place::Arena(lane, at))) => unsafe {
                Ok(std::slice::from_raw_parts(h.address(lane, at).cast(), n))
            },
            (Memory::Host(_), None) => Ok(&[]),
        }
    }
    /// Refuses what cannot be read: neither stored nor kept, or not made yet.
    fn check_kept(&self, v: Var) -> Result<()> {
        ensure!("program", self.vars.get(v.at()) == Some(&v), "value {v} is another tape's");
        if let Some(Place::Stored(_)) = self.variant().places[v.at()] {
            return Ok(());
        }
        ensure!("program", self.keep.contains(&v), "value {v} is not kept: name it when the program is made");
        ensure!("program", self.kept, "value {v} is not there: run the program once, then read");
        Ok(())
    }
}

/// How far [`Program::repeat`] is.
#[derive(Clone, Copy)]
pub struct RepeatProgress<'a> {
    /// Runs that are over.
    pub runs: usize,
    /// What they left, where no lane is running on; on a device without what nobody has fetched.
    pub store: Option<&'a Store>,
}

/// Whether it is for the step after, when the program is repeated.
fn runs_ahead(p: &PlannedNode) -> bool {
    p.placement.lane == 1 && p.placement.prefetch_depth > 0
}

/// Runs every node of a variant once, in order, and notes down how long each took and when.
fn run_all(
    ready: &[host::BoundVariant<'_>],
    variant: usize,
    mut times: Option<&mut [Vec<NodeTime>]>,
    mut trace: Option<&mut Trace>,
    seen: &mut ViewBuffers,
) -> Result<()> {
    if times.is_none() && trace.is_none() {
        return ready[variant].run_all(None, seen);
    }
    let mut ran = |node: usize, start: Instant, end: Instant| {
        if let Some(times) = &mut times {
            times[variant][node].seconds += (end - start).as_secs_f64();
            times[variant][node].runs += 1;
        }
        if let Some(trace) = &mut trace {
            trace.ran.push(Ran { step: trace.steps, variant, node, start, end });
        }
    };
    ready[variant].run_all(Some(&mut ran), seen)?;
    if let Some(trace) = trace {
        trace.steps += 1;
    }
    Ok(())
}

/// What a status word tells, as an error.
pub(super) fn fault(op: &str, row: u32, value: f32) -> Error {
    if value.is_finite() {
        return Error::new(ErrorKind::Data, format!("{op}: row {row} names row {value} of a smaller table"));
    }
    Error::new(ErrorKind::Diverged, format!("{op}: row {row} is {value}"))
        .remedy("lower the learning rate, or look for extreme values among the features")
}
