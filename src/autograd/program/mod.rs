//! A tape made ready to run: dead nodes dropped, memory planned, addresses fixed.
mod filling;
mod timing;

pub use filling::MostRows;
pub use timing::{Alone, OpTime, ShapeTime};

use super::{
    device::{ArenaSizes, OnDevice},
    host::{BoundVariant, NodeWatch, OnHost, ViewBuffers},
    idle::LeftOut,
    lane_threads::{self, LaneThread, OnLanes, one_by_one},
    lanes::{Lanes, MAX_LANES},
    run::{self, NodeTime, OnProgress, RepeatProgress, VariantRuns},
    schedule::Schedule,
    schedule_cache::ScheduleCache,
    stages::Stage,
    trace::{NodeInfo, Ran, Span, Trace},
    variant::{Place, PlannedNode, Variant, bytes_of_zeros, lanes_in_use},
    windows::Window,
};
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    ops::{Backend, Cost, Node, Op, Tape},
    runtime::{changes::Change, comm::Ranks, *},
};
use std::time::Instant;
use timing::Profile;

/// The memory of a step's values.
enum Memory {
    Host(Box<OnHost>),
    Device(Box<OnDevice>),
}

impl Memory {
    /// Allocates the arenas of all variants; on a device, before the first run.
    fn new(
        backend: &Backend,
        variants: &[Variant],
        buffer_depth: [usize; MAX_LANES],
        precision: Precision,
    ) -> Result<Self> {
        if let Backend::Cuda(gpu) = backend {
            let sizes = ArenaSizes::for_variants(variants, buffer_depth);
            return Ok(Memory::Device(Box::new(OnDevice::new(gpu, sizes))));
        }
        let bytes = |lane: usize| variants.iter().map(|v| v.arenas[lane].size()).max().unwrap_or(0);
        let zeros = bytes_of_zeros(variants, precision);
        Ok(Memory::Host(Box::new(OnHost::new(std::array::from_fn(bytes), buffer_depth, zeros)?)))
    }
}

/// A tape with its memory planned.
///
/// Nodes whose results nobody reads are dropped. Every value of the step has a fixed place in an arena; the
/// places of values that are never alive at the same time may overlap. Running allocates no tensor memory.
///
/// A view of a value has the address of the value and is no longer than it. Both live until the last node
/// that accesses either of them. Since a value never changes once it is computed, neither can observe the
/// other.
///
/// ```
/// use tgnn::{autograd::Program, ops::{Backend, Tape}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let id = store.values("x", Spec::real(Rows::fixed(2), 1), &[1.0f32, 2.0])?;
/// let mut t = Tape::new(&store);
/// let x = t.stored(id)?;
/// let y = t.add(x, x)?;
/// let mut program = Program::new(&t, &[y], Precision::F32, Backend::Cpu)?;
/// program.run(&mut store)?;
/// assert_eq!(program.read::<f32>(y, &store)?, [2.0, 4.0]);
/// store.write(id, &[5.0f32, 6.0])?; // the next run reads what is stored then
/// program.run(&mut store)?;
/// assert_eq!(program.read::<f32>(y, &store)?, [10.0, 12.0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub struct Program {
    /// The variants of the step.
    variants: Vec<Variant>,
    /// The values of the first tape, and those that survive a run.
    vars: Vec<Var>,
    keep: Vec<Var>,
    /// The store whose buffers the tapes name; `None` if they name none.
    store: StoreId,
    /// Whether kept values can be read: the last execution was a complete [`run`](Self::run).
    kept: bool,
    memory: Memory,
    precision: Precision,
    backend: Backend,
    /// For each lane, the number of runs whose values it holds at the same time; 0 if the lane is not in use.
    buffer_depth: [usize; MAX_LANES],
    /// The ranks that the device is one of.
    ranks: Option<Ranks>,
    /// On a host with several lanes: the threads that take them.
    threads: Vec<LaneThread>,
    schedules: ScheduleCache,
    /// Times of the nodes, while the program is profiled.
    profile: Option<Profile>,
    trace: Option<Trace>,
}

brief_debug!(Program, p => { variants: p.variants.len(), kept: p.keep, backend: p.backend, precision: p.precision });

impl Program {
    /// Plans `tape` for reals of `precision`. The values `keep` survive a run and can then be
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// `OutOfMemory` if the values of a step do not fit into memory; `Shape` if a value of `keep` belongs to
    /// another tape.
    pub fn new(tape: &Tape, keep: &[Var], precision: Precision, backend: Backend) -> Result<Self> {
        Self::plan(&[(tape, Lanes::One)], keep, precision, backend, None)
    }
    /// Plans a program that is [repeated](Self::repeat) on `device` with its nodes on the given lanes. The
    /// results are the same, to the last bit, whatever the lanes.
    ///
    /// # Errors
    /// As [`new`](Self::new); `Plan` if the lanes are illegal; `Device` if the system starts no more threads.
    pub fn on_lanes(
        tape: &Tape,
        keep: &[Var],
        precision: Precision,
        device: &Device,
        lanes: Lanes,
    ) -> Result<Self> {
        Self::plan(&[(tape, lanes)], keep, precision, Backend::for_device(device), Some(device))
    }
    /// Plans a step in several variants, one of which each run executes ([`repeat_in`](Self::repeat_in)):
    /// other placements, other orders of products, or work that comes between steps, such as an update.
    /// Nothing is prefetched across a variant that is on [one lane](Lanes::One). The first variant's buffer
    /// depth applies to all.
    ///
    /// # Errors
    /// As [`on_lanes`](Self::on_lanes); `Shape` if there is no tape, or tapes are over different stores.
    pub fn with_variants(tapes: &[(&Tape, Lanes)], precision: Precision, device: &Device) -> Result<Self> {
        Self::plan(tapes, &[], precision, Backend::for_device(device), Some(device))
    }
    /// Plans a step as [`with_variants`](Self::with_variants) does, with one variant more, the last one, for
    /// runs in which the values `empty` of the first tape have no rows. It does what the first variant then
    /// does, but without the nodes that would compute only empty values, or zeros.
    ///
    /// # Errors
    /// As [`with_variants`](Self::with_variants); `Shape` if a value is another tape's.
    pub fn with_idle_variant(
        tapes: &[(&Tape, Lanes)],
        empty: &[Var],
        precision: Precision,
        device: &Device,
    ) -> Result<Self> {
        Self::plan_with(tapes, &[], Some(empty), precision, Backend::for_device(device), Some(device))
    }
    fn plan(
        tapes: &[(&Tape, Lanes)],
        keep: &[Var],
        precision: Precision,
        backend: Backend,
        on: Option<&Device>,
    ) -> Result<Self> {
        Self::plan_with(tapes, keep, None, precision, backend, on)
    }
    fn plan_with(
        tapes: &[(&Tape, Lanes)],
        keep: &[Var],
        empty: Option<&[Var]>,
        precision: Precision,
        backend: Backend,
        on: Option<&Device>,
    ) -> Result<Self> {
        let Some(&(first, lanes)) = tapes.first() else {
            return Err(Error::shape("program", "there is no tape"));
        };
        let store = first.store();
        let same_store = tapes.iter().all(|t| t.0.store() == store);
        ensure!("program", same_store, "its tapes are over different stores");
        let supported = precision == Precision::F32 || !matches!(backend, Backend::Cuda(_));
        ensure!("program", supported, "devices compute in f32: run a reference in f64 on the host");
        let variant = |&(tape, lanes): &(&Tape, Lanes)| Variant::new(tape, keep, precision, &backend, lanes);
        let mut variants = tapes.iter().map(variant).collect::<Result<Vec<Variant>>>()?;
        if let Some(empty) = empty {
            empty.iter().try_for_each(|&v| first.check("program", v))?;
            variants.push(variants[0].idle(first, empty));
        }
        let in_use = lanes_in_use(&variants);
        let least = std::array::from_fn(|lane| in_use.get(&lane).map_or(0, |_| lanes.buffer_depth()[lane]));
        let buffer_depth = match lanes {
            Lanes::Stages { .. } => Schedule::buffer_depth(&variants, least)?,
            _ => least,
        };
        let threads = on.map_or(Ok(Vec::new()), |device| LaneThread::for_lanes(in_use, &variants, device))?;
        // Threads of a host capture nothing: their windows may be long.
        let prepares = matches!(&backend, Backend::Cuda(gpu) if gpu.has(Change::Start))
            && Schedule::can_prepare(&variants, buffer_depth);
        let memory = Memory::new(&backend, &variants, buffer_depth, precision)?;
        Ok(Program {
            variants,
            vars: first.vars().collect(),
            keep: keep.to_vec(),
            store,
            kept: false,
            memory,
            precision,
            backend,
            buffer_depth,
            ranks: on.and_then(|device| device.ranks().cloned()),
            threads,
            schedules: ScheduleCache::new(buffer_depth, prepares),
            profile: None,
            trace: None,
        })
    }
    /// Returns the stored buffers that the program reads or writes.
    pub fn stored(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.variants.iter().flat_map(|variant| &variant.places).filter_map(|p| match p {
            Some(Place::Stored(id)) => Some(*id),
            _ => None,
        })
    }
    /// Returns the bytes of memory for the values of a step, those of prefetched steps included. On a device
    /// they are allocated at the first run.
    pub fn arena_bytes(&self) -> usize {
        match &self.memory {
            Memory::Host(h) => h.bytes(),
            Memory::Device(d) => d.bytes(),
        }
    }
    /// Returns the number of graphs that [repeating](Self::repeat) the program has captured so far; `None` on
    /// a host. A pass that captures none only replays graphs, but for windows that it has for the first time.
    pub fn graphs_captured(&self) -> Option<usize> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Device(d) => Some(d.graphs_captured()),
        }
    }
    /// Returns the shape and type of a value of the first tape.
    ///
    /// # Panics
    /// If the value belongs to another tape.
    pub fn spec(&self, v: Var) -> Spec {
        assert_eq!(self.vars.get(v.at()), Some(&v), "value {v} is another tape's");
        self.variants[0].specs[v.at()]
    }
    /// Returns the nodes of the first variant with their stages, in order.
    pub fn stages(&self) -> impl Iterator<Item = (&Node, Stage)> {
        self.variants[0].nodes.iter().map(|p| (&p.node, p.stage))
    }
    /// Returns descriptions of the nodes of a variant, in order.
    ///
    /// # Panics
    /// If there is no such variant.
    pub fn node_infos(&self, variant: usize) -> Vec<NodeInfo> {
        let info = |p: &PlannedNode| {
            let (ins, outs) = (specs(&p.ins), specs(&p.outs));
            let (op, kind, cost) = (p.node.op.name(), p.node.op.kind(), p.cost(&ins, &outs));
            let cols = outs.first().or(ins.first()).map_or(0, |s| s.cols);
            let (stage, tag, lane, resource) = (p.stage, p.node.tag, p.placement.lane, p.resource);
            let traffic = p.node.op.traffic();
            NodeInfo { op, kind, resource, stage, tag, lane, cost, traffic, cols }
        };
        self.variants[variant].nodes.iter().map(info).collect()
    }
    /// Returns the number of variants.
    pub fn variants(&self) -> usize {
        self.variants.len()
    }
    /// Cuts runs into windows that are scheduled together. Lanes wait for each other at the end of a window.
    ///
    /// # Panics
    /// If there is no such variant.
    pub fn windows<'a>(&self, variant_of_run: &'a [usize]) -> Vec<Window<'a>> {
        self.schedules.windows(&self.variants, variant_of_run)
    }
    /// Returns the schedule of a window.
    ///
    /// # Errors
    /// `Plan` if lanes would wait for each other.
    ///
    /// # Panics
    /// If the window is another program's.
    pub fn schedule(&self, window: Window<'_>) -> Result<Schedule> {
        Schedule::for_window(&self.variants, window, self.buffer_depth)
    }
    /// Returns the nodes of the first variant, in order.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.variants[0].nodes.iter().map(|p| &p.node)
    }
    /// Returns the nodes of the first variant that are prefetched on another lane than the first when the
    /// program is [repeated](Self::repeat).
    pub fn prefetched(&self) -> impl Iterator<Item = &Node> {
        self.variants[0]
            .nodes
            .iter()
            .filter(|p| p.placement.lane > 0 && p.placement.prefetch_depth > 0)
            .map(|p| &p.node)
    }
    #[cfg(test)]
    pub(super) fn planned(&self) -> &[Variant] {
        &self.variants
    }
    /// Starts a new trace of when nodes run; see [`trace`](Self::trace). On a device, nodes are launched one
    /// by one while a trace is recorded, each between two events.
    pub fn start_trace(&mut self) {
        self.start_trace_of(usize::MAX);
    }
    /// Starts a new trace of the next `steps` runs; later ones are as without a trace.
    pub fn start_trace_of(&mut self, steps: usize) {
        self.trace = Some(Trace::new(steps));
    }
    /// Ends the trace, and returns it as [`trace`](Self::trace) does.
    pub fn end_trace(&mut self) -> Vec<Span> {
        let spans = self.trace();
        self.trace = None;
        spans
    }
    /// Returns all runs of nodes since [`start_trace`](Self::start_trace).
    pub fn trace(&self) -> Vec<Span> {
        let Some(trace) = &self.trace else { return Vec::new() };
        let node_infos: Vec<Vec<NodeInfo>> =
            (0..self.variants.len()).map(|variant| self.node_infos(variant)).collect();
        let span = |&Ran { step, variant, node, start, end, cost }: &Ran| {
            let [start, end] = [start, end].map(|at| (at - trace.began).as_secs_f64());
            let node_info = node_infos[variant][node];
            Span { node_info, node, step, start, end, cost: cost.unwrap_or(node_info.cost) }
        };
        trace.ran.iter().map(span).filter(|span| span.node_info.op != LeftOut::NAME).collect()
    }
    /// Refuses a store that the program was not planned for.
    fn check(&self, store: &Store) -> Result<()> {
        ensure!("program", self.store == store.id(), "its tape is over another store");
        let (has, wants) = (store.precision(), self.precision);
        ensure!("program", has == wants, "the store is of {has:?}, the program of {wants:?}");
        Ok(())
    }
    /// Runs the program once over `store` and waits for it.
    ///
    /// # Errors
    /// `Diverged` if an op reports a number that is not finite, as losses and optimisers do; `Data` if it
    /// meets an index outside its table. The message names op and row, and what the step has written by then
    /// stays written. `Shape` if the store is not the tape's, or has another precision than the program.
    pub fn run(&mut self, store: &mut Store) -> Result<()> {
        self.check(store)?;
        self.kept = false;
        match &mut self.memory {
            Memory::Host(h) => {
                let bound = h.bind(&self.variants[..1], store, &self.backend, self.precision)?;
                let (times, trace) = (self.profile.as_mut().map(Profile::times), self.trace.as_mut());
                run_all(&bound, 0, times, trace, &mut ViewBuffers::default())?;
            }
            Memory::Device(d) => {
                let _in_driver = self.ranks.as_ref().map(|ranks| ranks.in_driver("preparing its device"));
                d.run(&self.variants, &self.keep, store)?;
            }
        }
        self.kept = true;
        Ok(())
    }
    /// Runs the program `times` times. `on_progress` is called after every run if one lane of a host
    /// executes, otherwise occasionally. On a device the host does not wait between runs, and written buffers
    /// must be [fetched](Store::fetch). Kept values cannot be read afterwards.
    ///
    /// # Errors
    /// As [`run`](Self::run), with the number of the run if it is known; `Interrupted` if `on_progress` stops
    /// the runs.
    pub fn repeat(
        &mut self,
        store: &mut Store,
        times: usize,
        on_progress: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<(), (Option<usize>, Error)> {
        let mut variant_of_run = Vec::new();
        tried(|| variant_of_run.try_reserve_exact(times)).map_err(|e| {
            (None, Error::new(ErrorKind::OutOfMemory, format!("{times} runs at once")).caused_by(e))
        })?;
        variant_of_run.resize(times, 0);
        self.repeat_in(store, &variant_of_run, on_progress)
    }
    /// Runs the program as [`repeat`](Self::repeat) does, with one run for each entry of `variant_of_run`,
    /// the index of the run's variant.
    ///
    /// # Errors
    /// As [`repeat`](Self::repeat); `Shape` if there is no such variant.
    pub fn repeat_in(
        &mut self,
        store: &mut Store,
        variant_of_run: &[usize],
        on_progress: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<(), (Option<usize>, Error)> {
        self.check(store).and_then(|()| self.check_variants(variant_of_run)).map_err(|e| (None, e))?;
        self.kept = false;
        let warm_up = self.warm_up(variant_of_run.len());
        let (first, rest) = variant_of_run.split_at(warm_up);
        if !first.is_empty() {
            self.execute(store, first, false, on_progress)?;
        }
        if rest.is_empty() && !first.is_empty() {
            return Ok(());
        }
        self.begin_profile().map_err(|e| (None, e))?;
        let mut on_progress =
            |p: RepeatProgress<'_>| on_progress(RepeatProgress { runs: p.runs + warm_up, ..p });
        self.execute(store, rest, true, &mut on_progress).map_err(|(at, e)| (at.map(|at| at + warm_up), e))
    }
    /// Executes runs; `timed` if their times count in a profile.
    fn execute(
        &mut self,
        store: &mut Store,
        variant_of_run: &[usize],
        timed: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<(), (Option<usize>, Error)> {
        let runs = VariantRuns { variants: &self.variants, variant_of_run };
        let profile = self.profile.as_mut().filter(|_| timed);
        match &mut self.memory {
            Memory::Device(d) => {
                let (schedules, trace) = (&mut self.schedules, self.trace.as_mut());
                let _in_driver = self.ranks.as_ref().map(|ranks| ranks.in_driver("preparing its device"));
                let ran = d.bind(&self.variants, store).and_then(|bound| match profile {
                    Some(profile) => bound.profile(runs, store, schedules, profile.launches(), on_progress),
                    None => bound.repeat(runs, store, schedules, trace, on_progress),
                });
                ran.map_err(|e| (None, e))
            }
            Memory::Host(h) => {
                let bound = h.bind(&self.variants, store, &self.backend, self.precision);
                let bound = bound.map_err(|e| (None, e))?;
                let mut times = profile.map(Profile::times);
                if !self.threads.is_empty() {
                    let (threads, schedules) = (&self.threads, &mut self.schedules);
                    let trace = self.trace.as_mut();
                    // While ops are timed, they run one by one.
                    if let Some(times) = times {
                        return one_by_one(runs, &bound, store, schedules, times, trace, on_progress);
                    }
                    let on = OnLanes { threads, ranks: self.ranks.as_ref() };
                    let lanes =
                        || lane_threads::repeat(runs, &bound, store, on, schedules, trace, on_progress);
                    return team::rest(lanes);
                }
                let mut views = ViewBuffers::default();
                for (at, &variant) in variant_of_run.iter().enumerate() {
                    let (times, trace) = (times.as_deref_mut(), self.trace.as_mut());
                    run_all(&bound, variant, times, trace, &mut views).map_err(|e| (Some(at), e))?;
                    run::report(on_progress, at + 1, Some(store)).map_err(|e| (None, e))?;
                }
                Ok(())
            }
        }
    }
    fn check_variants(&self, variant_of_run: &[usize]) -> Result<()> {
        match variant_of_run.iter().find(|&&variant| variant >= self.variants.len()) {
            Some(variant) => Err(Error::shape("program", format_args!("there is no variant {variant}"))),
            None => Ok(()),
        }
    }
    /// Returns the number of live rows of a kept or stored value after the last run.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows(&self, v: Var, store: &Store) -> Result<usize> {
        self.check(store)?;
        self.check_kept(v)?;
        let rows = self.spec(v).rows;
        let Some(live) = rows.live else { return Ok(rows.capacity) };
        if let (Memory::Device(d), Some(Place::Arena(..))) = (&self.memory, self.variants[0].places[v.at()]) {
            return Ok(d.kept::<u32>(v).map_or(0, |k| k.0));
        }
        let count = match (&self.memory, self.variants[0].places[live.var.at()]) {
            (_, Some(Place::Stored(id))) => store.read::<u32>(id)?[0],
            // SAFETY: a count is a `[1]` u32 of the step, computed by an earlier node or zero.
            (Memory::Host(h), Some(Place::Arena(lane, at))) => unsafe {
                h.address(lane, at).cast::<u32>().read()
            },
            _ => 0,
        };
        Ok((count as usize).saturating_mul(live.times).min(rows.capacity))
    }
    /// Returns the live rows of a kept or stored value after the last [`run`](Self::run).
    ///
    /// # Errors
    /// `Shape` if `T` is not the value's element type, if the value is neither kept nor stored, if nothing
    /// has run yet or [`repeat`](Self::repeat) ran last (its runs may overlap), or if value or store are not
    /// the program's.
    pub fn read<'a, T: Element>(&'a self, v: Var, store: &'a Store) -> Result<&'a [T]> {
        let n = self.rows(v, store)?;
        let (spec, name) = (self.spec(v), std::any::type_name::<T>());
        ensure!("program", spec.dtype.holds::<T>(self.precision), "value {v} is {spec}, not of {name}");
        let n = n * spec.cols;
        match (&self.memory, self.variants[0].places[v.at()]) {
            (_, Some(Place::Stored(id))) => Ok(&store.read(id)?[..n]),
            (Memory::Device(d), _) => Ok(d.kept(v).map_or(&[], |(_, values)| &values[..n])),
            // SAFETY: the plan gave the value this memory, which is zeroed or written; every bit pattern is a
            // `T`; nothing runs while the program is borrowed.
            (Memory::Host(h), Some(Place::Arena(lane, at))) => unsafe {
                Ok(std::slice::from_raw_parts(h.address(lane, at).cast(), n))
            },
            (Memory::Host(_), Some(Place::Zeros) | None) => Ok(&[]),
        }
    }
    /// Refuses values that cannot be read: neither stored nor kept, or not computed yet.
    fn check_kept(&self, v: Var) -> Result<()> {
        ensure!("program", self.vars.get(v.at()) == Some(&v), "value {v} is another tape's");
        if let Some(Place::Stored(_)) = self.variants[0].places[v.at()] {
            return Ok(());
        }
        ensure!("program", self.keep.contains(&v), "value {v} is not kept: name it when the program is made");
        ensure!("program", self.kept, "value {v} is not there: run the program once, then read");
        Ok(())
    }
}

/// Returns the shapes and types of operands.
fn specs(operands: &[(Place, Spec)]) -> Vec<Spec> {
    operands.iter().map(|operand| operand.1).collect()
}

/// Runs every node of a variant once, in order, and records its time and when it ran.
fn run_all(
    bound: &[BoundVariant<'_>],
    variant: usize,
    mut times: Option<&mut [Vec<NodeTime>]>,
    mut trace: Option<&mut Trace>,
    views: &mut ViewBuffers,
) -> Result<()> {
    if times.is_none() && trace.is_none() {
        return bound[variant].run_all(None, views);
    }
    let mut after = |node: usize, start: Instant, end: Instant, cost: Cost| {
        if let Some(times) = &mut times {
            times[variant][node].add((end - start).as_secs_f64(), 1, cost);
        }
        if let Some(trace) = &mut trace {
            trace.ran.push(Ran { step: trace.steps, variant, node, start, end, cost: Some(cost) });
        }
    };
    bound[variant].run_all(Some(&mut NodeWatch { before: &mut |_| {}, after: &mut after }), views)?;
    if let Some(trace) = trace {
        trace.steps += 1;
    }
    Ok(())
}
