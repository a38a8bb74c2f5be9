//! A program on a CUDA device: the memory of its values, its launches on a stream for each lane in use, and
//! the graphs that capture them.
mod timing;

use super::{
    lanes::MAX_LANES,
    run::{self, OnProgress, VariantRuns},
    schedule::{ScheduledNode, StreamCommand},
    schedule_cache::{CachedSchedule, ScheduleCache},
    trace::{Ran, Trace},
    variant::{Place, PlannedNode, Variant, bytes_of_zeros},
    windows::Window,
};
use crate::{
    error::Result,
    ops::fault_error,
    runtime::{
        cuda::{CudaEvent, CudaStream, DeviceBuffer, DeviceView, Gpu, Launch, Windows, abi},
        *,
    },
};
use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Most windows that are launched before the host waits for the first of them: enough to keep a device busy,
/// and few enough that a caller can stop.
const WINDOWS_AHEAD: usize = 4;

/// Operands of a node as its kernels take them.
struct Operands {
    ins: Vec<DeviceView>,
    outs: Vec<DeviceView>,
    scratch: u64,
    tickets: u64,
    /// Where the node's first fault is recorded.
    status: u64,
}

/// Bytes that the values of a program need on a device.
pub(super) struct ArenaSizes {
    /// For each lane, one block, or one block per value if values are kept apart.
    blocks: [Vec<usize>; MAX_LANES],
    /// Number of copies of each lane's blocks; 0 if the lane is not in use.
    buffer_depth: [usize; MAX_LANES],
    /// Bytes of [`Place::Zeros`].
    zeros: usize,
}

impl ArenaSizes {
    /// Returns sizes that suffice for each of `variants`.
    pub fn for_variants(variants: &[Variant], buffer_depth: [usize; MAX_LANES]) -> Self {
        let blocks = std::array::from_fn(|lane| {
            let mut largest: Vec<usize> = Vec::new();
            for blocks in variants.iter().map(|variant| variant.arenas[lane].blocks()) {
                largest.resize(largest.len().max(blocks.len()), 0);
                largest.iter_mut().zip(blocks).for_each(|(largest, bytes)| *largest = bytes.max(*largest));
            }
            largest
        });
        ArenaSizes { blocks, buffer_depth, zeros: bytes_of_zeros(variants, Precision::F32) }
    }
}

/// A program on a device. Its memory is allocated at the first run.
pub(super) struct OnDevice {
    gpu: Gpu,
    sizes: ArenaSizes,
    bound: Option<BoundProgram>,
    /// Rows and elements of the kept values, as the last run left them.
    kept: HashMap<Var, (usize, Vec<u64>)>,
}

impl OnDevice {
    /// Returns a program that will allocate `sizes`.
    pub fn new(gpu: &Gpu, sizes: ArenaSizes) -> Self {
        OnDevice { gpu: gpu.clone(), sizes, bound: None, kept: HashMap::new() }
    }
    /// Returns the bytes of device memory that the first run allocates.
    pub fn bytes(&self) -> usize {
        let lanes = self.sizes.blocks.iter().zip(self.sizes.buffer_depth);
        lanes.map(|(blocks, depth)| depth * blocks.iter().sum::<usize>()).sum()
    }
    /// Returns the number of schedules that were captured as graphs so far.
    pub fn graphs_captured(&self) -> usize {
        self.bound.as_ref().map_or(0, |bound| bound.captured.load(Relaxed))
    }
    /// Returns the rows and elements of a kept value.
    pub fn kept<T: Element>(&self, v: Var) -> Option<(usize, &[T])> {
        self.kept.get(&v).map(|(rows, words)| (*rows, bytemuck::cast_slice(words)))
    }
    /// Binds the program to device memory, and copies the stored buffers that it accesses to the device.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device` if the driver reports an error.
    pub fn bind(&mut self, variants: &[Variant], store: &mut Store) -> Result<&BoundProgram> {
        let bound = match &mut self.bound {
            Some(bound) => bound,
            none => {
                let new = || BoundProgram::new(&self.gpu, &self.sizes, variants, store);
                none.insert(self.gpu.phases().time("memory", new)?)
            }
        };
        // On every run: the host may have changed a buffer.
        for place in variants.iter().flat_map(|variant| variant.places.iter().flatten()) {
            if let Place::Stored(id) = *place {
                store.on_device(id, &bound.gpu, bound.stream())?;
            }
        }
        Ok(bound)
    }
    /// Runs every node of the first variant once and waits. Kept values and written buffers are on the host
    /// afterwards.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); `Diverged` or `Data` if a node reports a fault.
    pub fn run(&mut self, variants: &[Variant], keep: &[Var], store: &mut Store) -> Result<()> {
        let (variant, bound) = (&variants[0], self.bind(variants, store)?);
        let _in_driver = bound.peers.in_driver("starting a run");
        bound.peers.meet()?;
        bound.status.fill(0, bound.stream())?;
        let first = |node: usize| BoundNode { variant: 0, run: 0, node };
        let launch = |node: usize| bound.launch(&variant.nodes[node], first(node), 0);
        let launched = (0..variant.nodes.len()).try_for_each(launch);
        let ran = launched.and_then(|()| bound.synchronize());
        let written: Vec<BufferId> = written(&variants[..1]).collect();
        written.iter().for_each(|&id| store.changed_on_device(id));
        ran?;
        store.fetch(&written)?;
        bound.check(variants)?;
        let kept = keep.iter().map(|&v| Ok((v, bound.fetch(variant, v, store)?)));
        self.kept = kept.collect::<Result<_>>()?;
        Ok(())
    }
}

/// A program bound to device memory, with a stream for each lane in use. Where a node waits for another lane,
/// its stream waits for an event. A schedule that is used again is captured, so that one launch submits all
/// of it.
pub(super) struct BoundProgram {
    gpu: Gpu,
    /// The stream of the first lane.
    first: CudaStream,
    /// The streams of the other lanes in use.
    others: [Option<CudaStream>; MAX_LANES],
    /// For each lane, as many sets of blocks as its buffer depth.
    memory: [Vec<Vec<DeviceBuffer>>; MAX_LANES],
    /// See [`Place::Zeros`].
    zeros: DeviceBuffer,
    /// By which nodes communicate with other ranks.
    peers: Windows,
    /// A word for each node of each variant: its first fault.
    status: DeviceBuffer,
    /// By variant and node; `None` if a node needs no tickets. Zero between two launches: the last block of a
    /// launch resets them.
    tickets: Vec<Vec<Option<DeviceBuffer>>>,
    /// By variant, node, and choice of buffers. Addresses of stored buffers do not change.
    operands: Vec<Vec<Vec<Operands>>>,
    /// Number of schedules captured so far.
    captured: AtomicUsize,
}

/// A node of a variant, with the buffers of a run.
#[derive(Clone, Copy)]
struct BoundNode {
    variant: usize,
    run: usize,
    node: usize,
}

/// A node's launch between two events.
struct TimedLaunch {
    step: usize,
    variant: usize,
    node: usize,
    between: [CudaEvent; 2],
}

/// The timed launches of a trace; the step of the first run of a schedule is `first_step`.
struct Timing<'a> {
    launches: &'a mut Vec<TimedLaunch>,
    first_step: usize,
}

impl BoundProgram {
    fn new(gpu: &Gpu, sizes: &ArenaSizes, variants: &[Variant], store: &mut Store) -> Result<Self> {
        // Work of the other lanes, such as the gradients of weights, fills what the first lane leaves idle.
        let (first, mut others) = (CudaStream::urgent(gpu)?, [const { None }; MAX_LANES]);
        let mut memory: [Vec<Vec<DeviceBuffer>>; MAX_LANES] = Default::default();
        for (lane, &depth) in sizes.buffer_depth.iter().enumerate().filter(|(_, depth)| **depth > 0) {
            let blocks = || sizes.blocks[lane].iter().map(|&bytes| DeviceBuffer::new(gpu, bytes)).collect();
            memory[lane] = (0..depth).map(|_| blocks()).collect::<Result<_>>()?;
            if lane > 0 {
                others[lane] = Some(CudaStream::new(gpu)?);
            }
        }
        let zeros = DeviceBuffer::new(gpu, sizes.zeros)?;
        zeros.fill(0, &first)?;
        let tickets = |planned: &PlannedNode| -> Result<Option<DeviceBuffer>> {
            if planned.tickets == 0 {
                return Ok(None);
            }
            let words = DeviceBuffer::new(gpu, planned.tickets * size_of::<u32>())?;
            words.fill(0, &first)?;
            Ok(Some(words))
        };
        let tickets = variants.iter().map(|variant| variant.nodes.iter().map(tickets).collect());
        let all: usize = variants.iter().map(|variant| variant.nodes.len()).sum();
        let nodes = variants.iter().flat_map(|variant| &variant.nodes);
        let shapes: Vec<_> =
            nodes.map(|planned| (planned, shapes(&planned.ins), shapes(&planned.outs))).collect();
        let windows = shapes.iter().filter_map(|(planned, ins, outs)| planned.node.op.window(ins, outs));
        let mut bound = BoundProgram {
            peers: Windows::open(gpu, windows)?,
            tickets: tickets.collect::<Result<_>>()?,
            memory,
            zeros,
            first,
            others,
            status: DeviceBuffer::new(gpu, all * size_of::<u64>())?,
            operands: Vec::new(),
            captured: 0.into(),
            gpu: gpu.clone(),
        };
        let mut nodes_before = 0;
        for (at, variant) in variants.iter().enumerate() {
            let operands = variant.nodes.iter().enumerate().map(|(node, planned)| {
                let runs = 0..planned.buffer_choices(&sizes.buffer_depth);
                let of_run = |run| BoundNode { variant: at, run, node };
                runs.map(|run| bound.operands(variant, of_run(run), nodes_before, store)).collect()
            });
            let operands = operands.collect::<Result<_>>()?;
            bound.operands.push(operands);
            nodes_before += variant.nodes.len();
        }
        Ok(bound)
    }
    /// Returns the operands of a node; `nodes_before` nodes belong to earlier variants.
    fn operands(
        &self,
        variant: &Variant,
        at: BoundNode,
        nodes_before: usize,
        store: &mut Store,
    ) -> Result<Operands> {
        let mut view = |&(place, spec): &(Place, Spec), outs: &[Var], wanted| -> Result<DeviceView> {
            let live = spec.rows.live.filter(|l| !outs.contains(&l.var));
            let (count, times) = match live.and_then(|l| Some((variant.places[l.var.at()]?, l.times))) {
                Some((place, times)) => (self.address(at.run, place, store)?, times as u32),
                None => (0, 1),
            };
            let rows = abi::Rows { count: count as *const u32, times, capacity: spec.rows.capacity as u32 };
            Ok(DeviceView { address: self.address(at.run, place, store)?, spec, rows, wanted })
        };
        let planned = &variant.nodes[at.node];
        let ins = planned.ins.iter().map(|x| view(x, &[], true)).collect::<Result<_>>()?;
        let outs = planned.outs.iter().zip(&planned.wanted);
        let outs = outs.map(|(x, &wanted)| view(x, &planned.node.outs, wanted)).collect::<Result<_>>()?;
        let tickets = self.tickets[at.variant][at.node].as_ref().map_or(0, DeviceBuffer::address);
        let status = self.status.address() + ((nodes_before + at.node) * size_of::<u64>()) as u64;
        let scratch = self.address(at.run, planned.scratch.0, store)?;
        Ok(Operands { ins, outs, scratch, tickets, status })
    }
    fn address(&self, run: usize, place: Place, store: &mut Store) -> Result<u64> {
        match place {
            Place::Arena(lane, at) => {
                let blocks = &self.memory[lane][run % self.memory[lane].len()];
                let apart = self.gpu.keeps_values_apart();
                Ok(if apart { blocks[at].address() } else { blocks[0].address() + at as u64 })
            }
            Place::Stored(id) => store.on_device(id, &self.gpu, self.stream()),
            Place::Zeros => Ok(self.zeros.address()),
        }
    }
    /// Returns the CUDA stream of the first lane. What is submitted to it before and after a schedule is
    /// ordered with all of the schedule.
    fn stream(&self) -> &CudaStream {
        &self.first
    }
    /// Returns the CUDA stream of a lane.
    fn stream_of(&self, lane: usize) -> &CudaStream {
        self.others[lane].as_ref().unwrap_or(&self.first)
    }
    /// Blocks until the work of all streams is done that the first one waits for.
    fn synchronize(&self) -> Result<()> {
        let end = CudaEvent::new(&self.gpu)?;
        end.record(self.stream())?;
        self.peers.wait(&end)
    }
    /// Launches a node on the stream of a lane.
    fn launch(&self, planned: &PlannedNode, at: BoundNode, lane: usize) -> Result<()> {
        let choices = &self.operands[at.variant][at.node];
        let o = &choices[at.run % choices.len()];
        let op = &planned.node.op;
        let _range = nvtx::range(op.name());
        self.peers.does_for("launching", op.name(), planned.stage.name());
        let launch = Launch {
            ins: &o.ins,
            outs: &o.outs,
            writes: &planned.node.writes,
            scratch: o.scratch,
            tickets: o.tickets,
            status: o.status,
            precision: self.gpu.precision(),
            changes: self.gpu.changes(),
            stream: self.stream_of(lane),
            windows: &self.peers,
        };
        // SAFETY: the operands are those of the node, checked when it was recorded.
        unsafe { op.launch(self.gpu.kernels(), &launch) }
    }
    /// Reports the first fault of a node as an error.
    fn check(&self, variants: &[Variant]) -> Result<()> {
        let nodes = || variants.iter().flat_map(|variant| &variant.nodes);
        let mut words = vec![0u64; nodes().count()];
        self.status.download(&mut words, self.stream())?;
        let mut faults =
            nodes().zip(words).filter_map(|(planned, word)| Some((planned, Status::read(word)?)));
        faults
            .next()
            .map_or(Ok(()), |(planned, (row, fault))| Err(fault_error(&*planned.node.op, row, fault, None)))
    }
    /// Returns the live rows of a value of a variant, and its elements, copied to the host.
    fn fetch(&self, variant: &Variant, v: Var, store: &Store) -> Result<(usize, Vec<u64>)> {
        let spec = variant.specs[v.at()];
        let mut rows = spec.rows.capacity;
        if let Some(live) = spec.rows.live {
            let mut count = [0u32];
            let place = variant.places[live.var.at()];
            self.copy(place, bytemuck::cast_slice_mut(&mut count), store)?;
            rows = rows.min((count[0] as usize).saturating_mul(live.times));
        }
        let bytes = rows * spec.cols * spec.dtype.size(Precision::F32);
        let mut words = vec![0u64; bytes.div_ceil(8)];
        let to = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
        self.copy(variant.places[v.at()], to, store)?;
        Ok((rows, words))
    }
    fn copy(&self, place: Option<Place>, to: &mut [u8], store: &Store) -> Result<()> {
        match place {
            Some(Place::Arena(lane, at)) => {
                let blocks = &self.memory[lane][0];
                let apart = self.gpu.keeps_values_apart();
                let (block, offset) = if apart { (&blocks[at], 0) } else { (&blocks[0], at) };
                block.download_at(offset, to, self.stream())
            }
            Some(Place::Stored(id)) => {
                to.copy_from_slice(&store.raw(id)?[..to.len()]);
                Ok(())
            }
            Some(Place::Zeros) | None => Ok(()),
        }
    }
    /// Submits a schedule to the streams of its lanes, ordered with what the first stream was given before
    /// and is given afterwards. Returns the events, which must live until a capture ends.
    fn enqueue(
        &self,
        variants: &[Variant],
        window: Window<'_>,
        CachedSchedule { schedule, order, .. }: &CachedSchedule,
        mut timing: Option<Timing<'_>>,
    ) -> Result<Vec<CudaEvent>> {
        let record = |lane: usize| -> Result<CudaEvent> {
            let event = CudaEvent::new(&self.gpu)?;
            event.record(self.stream_of(lane))?;
            Ok(event)
        };
        let others: Vec<usize> = (1..MAX_LANES).filter(|&lane| !schedule.0[lane].is_empty()).collect();
        let mut ends = Vec::new();
        if !others.is_empty() {
            let start = record(0)?;
            others.iter().try_for_each(|&lane| self.stream_of(lane).wait(&start))?;
            ends.push(start);
        }
        let mut recorded: [HashMap<usize, CudaEvent>; MAX_LANES] = Default::default();
        schedule.stream_commands(order, |command| {
            match command {
                StreamCommand::Record { lane, nodes } => {
                    recorded[lane].insert(nodes, record(lane)?);
                }
                StreamCommand::Wait { lane, other, nodes } => {
                    if let Some(event) = recorded[other].get(&nodes) {
                        self.stream_of(lane).wait(event)?;
                    }
                }
                StreamCommand::Launch { lane, scheduled } => {
                    let ScheduledNode { run, node, .. } = scheduled;
                    let variant = window.variant_of_run[run];
                    let (planned, at) = (&variants[variant].nodes[node], BoundNode { variant, run, node });
                    let Some(timing) = &mut timing else { return self.launch(planned, at, lane) };
                    let between = [CudaEvent::timed(&self.gpu)?, CudaEvent::timed(&self.gpu)?];
                    between[0].record(self.stream_of(lane))?;
                    self.launch(planned, at, lane)?;
                    between[1].record(self.stream_of(lane))?;
                    let step = timing.first_step + run;
                    timing.launches.push(TimedLaunch { step, variant, node, between });
                }
            }
            Ok(())
        })?;
        for lane in others {
            let end = record(lane)?;
            self.stream().wait(&end)?;
            ends.push(end);
        }
        Ok(recorded.into_iter().flat_map(HashMap::into_values).chain(ends).collect())
    }
    /// Captures a schedule into a graph, unless it has one, cannot be captured, or is used for the first
    /// time: it may never be used again, and kernels that are not loaded yet cannot be captured.
    fn capture(&self, variants: &[Variant], window: Window<'_>, cached: &mut CachedSchedule) -> Result<()> {
        if cached.uses > 1 && cached.graph.is_none() && self.peers.are_captured() {
            let mut events = Vec::new();
            let graph = self.stream().capture(|| {
                events = self.enqueue(variants, window, cached, None)?;
                self.peers.does("making a graph");
                Ok(())
            });
            cached.graph = Some(graph?);
            self.captured.fetch_add(1, Relaxed);
        }
        Ok(())
    }
    /// Executes one run for each entry of `runs`; the host is a few windows ahead. `on_progress` is called
    /// occasionally. Written buffers stay on the device until they are fetched.
    ///
    /// # Errors
    /// `Diverged` or `Data` if a node reports a fault; `Device` if the driver reports an error.
    pub fn repeat(
        &self,
        runs: VariantRuns<'_>,
        store: &mut Store,
        schedules: &mut ScheduleCache,
        trace: Option<&mut Trace>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let _in_driver = self.peers.in_driver("starting a pass");
        self.peers.meet()?;
        let repeated = self.repeat_windows(runs, store, schedules, trace, on_progress);
        repeated.inspect_err(|e| self.peers.fail(e))
    }
    fn repeat_windows(
        &self,
        runs: VariantRuns<'_>,
        store: &mut Store,
        schedules: &mut ScheduleCache,
        mut trace: Option<&mut Trace>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(runs.variants).for_each(|id| store.changed_on_device(id));
        let base = trace.is_some().then(|| TimeBase::new(&self.gpu, stream)).transpose()?;
        let (mut ends, mut launches) = (VecDeque::new(), Vec::new());
        // The events of a window live until it has ended.
        let mut ended = |(runs, end, _events): (usize, CudaEvent, Vec<CudaEvent>), store: &Store| {
            self.peers.wait(&end)?;
            run::report(on_progress, runs, Some(store))
        };
        let variants = runs.variants;
        for window in schedules.windows(variants, runs.variant_of_run) {
            let phases = self.gpu.phases();
            let cached = phases.time("schedule", || schedules.get(variants, window))?;
            let traced = trace.as_ref().filter(|trace| trace.steps + window.first < trace.recorded);
            if traced.is_none() {
                phases.time("capture", || self.capture(variants, window, cached))?;
            }
            let events = match (&cached.graph, &traced) {
                (Some(graph), None) => {
                    self.peers.does("launching a graph");
                    // SAFETY: the program owns the memory of its values, the store that of its buffers, and
                    // both are borrowed.
                    unsafe { graph.launch(stream)? };
                    Vec::new()
                }
                (_, Some(trace)) => {
                    let timing = Timing { launches: &mut launches, first_step: trace.steps + window.first };
                    self.enqueue(variants, window, cached, Some(timing))?
                }
                (None, None) => phases.time("launch", || self.enqueue(variants, window, cached, None))?,
            };
            let end = CudaEvent::new(&self.gpu)?;
            end.record(stream)?;
            ends.push_back((window.ended(), end, events));
            if ends.len() > WINDOWS_AHEAD {
                ends.pop_front().map_or(Ok(()), |end| ended(end, store))?;
            }
        }
        ends.into_iter().try_for_each(|end| ended(end, store))?;
        self.synchronize()?;
        if let (Some(trace), Some(base)) = (&mut trace, base) {
            // A window may prepare a step that is not recorded.
            let recorded = trace.recorded;
            for launch in launches.into_iter().filter(|launch| launch.step < recorded) {
                trace.ran.push(base.ran(launch)?);
            }
            trace.steps += runs.variant_of_run.len();
        }
        self.check(runs.variants)
    }
}

impl Drop for BoundProgram {
    /// Lets go on what waits for other ranks after an error: memory is freed only when all work is done.
    fn drop(&mut self) {
        let _in_driver = self.peers.in_driver("ending its work");
        for stream in std::iter::once(&self.first).chain(self.others.iter().flatten()) {
            let end = CudaEvent::new(&self.gpu).and_then(|end| end.record(stream).map(|()| end));
            if let Ok(end) = end {
                self.peers.release(&end);
            }
        }
    }
}

/// Returns the shapes of operands.
fn shapes(operands: &[(Place, Spec)]) -> Vec<Spec> {
    operands.iter().map(|&(_, spec)| spec).collect()
}

/// An event and the time of the host when it was recorded.
struct TimeBase {
    event: CudaEvent,
    recorded: Instant,
}

impl TimeBase {
    fn new(gpu: &Gpu, stream: &CudaStream) -> Result<Self> {
        let event = CudaEvent::timed(gpu)?;
        event.record(stream)?;
        event.synchronize()?;
        Ok(TimeBase { event, recorded: Instant::now() })
    }
    fn ran(&self, launch: TimedLaunch) -> Result<Ran> {
        let TimedLaunch { step, variant, node, between: [start, end] } = launch;
        let at = |event: CudaEvent| -> Result<Instant> {
            let seconds = event.seconds_since(&self.event)?.max(0.0);
            Ok(self.recorded + Duration::from_secs_f64(seconds))
        };
        Ok(Ran { step, variant, node, start: at(start)?, end: at(end)?, cost: None })
    }
}

/// Returns the stored buffers that nodes of `variants` write.
fn written(variants: &[Variant]) -> impl Iterator<Item = BufferId> + '_ {
    variants.iter().flat_map(|variant| &variant.nodes).flat_map(|planned| {
        planned.node.writes.iter().filter_map(|&w| match planned.ins[w].0 {
            Place::Stored(id) => Some(id),
            Place::Arena(..) | Place::Zeros => None,
        })
    })
}
