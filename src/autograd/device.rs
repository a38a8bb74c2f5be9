//! A program on a CUDA device: its memory there, its launches on a stream for each lane, and the graphs that they are captured into.
use super::{
    lanes::{LANES, cycle},
    program::{NodeTime, RepeatProgress, fault},
    schedule::{Schedule, StreamCommand},
    schedule_cache::{ScheduleCache, windows},
    trace::{Ran, Trace},
    variant::{Place, PlannedNode, Variant},
};
use crate::{
    error::Result,
    runtime::{
        cuda::{CudaEvent, CudaStream, DeviceBuffer, DeviceView, Gpu, Launch, abi},
        *,
    },
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Operands of a node as its kernels take them.
struct Operands {
    ins: Vec<DeviceView>,
    outs: Vec<DeviceView>,
    scratch: u64,
    tickets: u64,
    /// Where its first fault is noted.
    status: u64,
}

/// Bytes that the values of a program want on a device, of each lane: one block, or one a value where values are kept apart.
pub(super) struct ArenaSizes {
    blocks: [Vec<usize>; LANES],
    /// How often they are taken: runs of a lane go in depth.
    depth: [usize; LANES],
}

impl ArenaSizes {
    /// ArenaSizes for any of `variants`.
    pub fn of(variants: &[Variant], depth: [usize; LANES]) -> Self {
        let blocks = std::array::from_fn(|lane| {
            let mut most: Vec<usize> = Vec::new();
            for blocks in variants.iter().map(|f| f.arenas[lane].blocks()) {
                most.resize(most.len().max(blocks.len()), 0);
                most.iter_mut().zip(blocks).for_each(|(most, bytes)| *most = bytes.max(*most));
            }
            most
        });
        ArenaSizes { blocks, depth }
    }
}

/// What a program has on a device.
pub(super) struct OnDevice {
    gpu: Gpu,
    room: ArenaSizes,
    ready: Option<BoundProgram>,
    /// Values that survive the run, as it left them: rows and elements.
    kept: HashMap<Var, (usize, Vec<u64>)>,
}

impl OnDevice {
    /// A program that will take `room`.
    pub fn new(gpu: &Gpu, room: ArenaSizes) -> Self {
        OnDevice { gpu: gpu.clone(), room, ready: None, kept: HashMap::new() }
    }
    /// Bytes of device memory that it takes at the first run.
    pub fn bytes(&self) -> usize {
        let lanes = self.room.blocks.iter().zip(self.room.depth);
        lanes.map(|(blocks, depth)| depth * blocks.iter().sum::<usize>()).sum()
    }
    /// The rows and elements of a value that was kept.
    pub fn kept<T: Element>(&self, v: Var) -> Option<(usize, &[T])> {
        self.kept.get(&v).map(|(rows, words)| (*rows, bytemuck::cast_slice(words)))
    }
    /// The program with its memory, and what it reads brought to the device.
    pub fn ready(&mut self, variants: &[Variant], store: &mut Store) -> Result<&BoundProgram> {
        let ready = match &mut self.ready {
            Some(ready) => ready,
            none => none.insert(BoundProgram::new(&self.gpu, &self.room, variants, store)?),
        };
        // Also on later runs: the host may have changed a buffer.
        for place in variants.iter().flat_map(|f| f.places.iter().flatten()) {
            if let Place::Stored(id) = *place {
                store.on_device(id, &ready.gpu, ready.stream())?;
            }
        }
        Ok(ready)
    }
    /// Runs every node of the first variant once and waits; what it kept and what it wrote is on the host afterwards.
    pub fn run(&mut self, variants: &[Variant], keep: &[Var], store: &mut Store) -> Result<()> {
        let (variant, ready) = (&variants[0], self.ready(variants, store)?);
        ready.status.fill(0, ready.stream())?;
        let all = (0..variant.nodes.len()).try_for_each(|at| ready.launch(&variant.nodes[at], (0, 0, at), 0));
        let ran = all.and_then(|()| ready.stream().synchronize());
        let written: Vec<BufferId> = written(&variants[..1]).collect();
        written.iter().for_each(|&id| store.changed_on_device(id));
        ran?;
        store.fetch(&written)?;
        ready.check(variants)?;
        let mut kept = HashMap::new();
        for &v in keep {
            let (spec, mut rows) = (variant.specs[v.at()], variant.specs[v.at()].rows.capacity);
            if let Some(l) = spec.rows.live {
                let mut count = [0u32];
                let place = variant.places[l.var.at()];
                ready.copy(place, bytemuck::cast_slice_mut(&mut count), store)?;
                rows = rows.min((count[0] as usize).saturating_mul(l.times));
            }
            let bytes = rows * spec.cols * spec.dtype.size(Precision::F32);
            let mut words = vec![0u64; bytes.div_ceil(8)];
            let to = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
            ready.copy(variant.places[v.at()], to, store)?;
            kept.insert(v, (rows, words));
        }
        self.kept = kept;
        Ok(())
    }
}

/// A program with its memory: a stream for each lane. Runs are scheduled as on a host, and where a step waits for the other lane its stream
/// waits for an event. A schedule that comes again is captured: then one launch gives the device all of it.
pub(super) struct BoundProgram {
    gpu: Gpu,
    streams: [CudaStream; LANES],
    /// Of each lane, by turn.
    memory: [Vec<Vec<DeviceBuffer>>; LANES],
    /// A word for each node of each variant: its first fault.
    status: DeviceBuffer,
    /// Of the nodes that have any, by variant: zero between two launches, so nothing clears them again.
    tickets: Vec<Vec<Option<DeviceBuffer>>>,
    /// By variant, turn, and node. Addresses of stored buffers do not change.
    operands: Vec<Vec<Vec<Operands>>>,
}

/// A node's launch between two events.
struct Timed {
    step: usize,
    variant: usize,
    node: usize,
    between: [CudaEvent; 2],
}

impl BoundProgram {
    fn new(gpu: &Gpu, room: &ArenaSizes, variants: &[Variant], store: &mut Store) -> Result<Self> {
        let streams = [CudaStream::new(gpu)?, CudaStream::new(gpu)?];
        let take = |lane: usize| -> Result<Vec<Vec<DeviceBuffer>>> {
            let turn = || room.blocks[lane].iter().map(|&bytes| DeviceBuffer::new(gpu, bytes)).collect();
            (0..room.depth[lane]).map(|_| turn()).collect()
        };
        let tickets = |p: &PlannedNode| -> Result<Option<DeviceBuffer>> {
            if p.tickets == 0 {
                return Ok(None);
            }
            let words = DeviceBuffer::new(gpu, p.tickets * size_of::<u32>())?;
            words.fill(0, &streams[0])?;
            Ok(Some(words))
        };
        let all: usize = variants.iter().map(|f| f.nodes.len()).sum();
        let mut ready = BoundProgram {
            tickets: variants.iter().map(|f| f.nodes.iter().map(tickets).collect()).collect::<Result<_>>()?,
            memory: [take(0)?, take(1)?],
            streams,
            status: DeviceBuffer::new(gpu, all * size_of::<u64>())?,
            operands: Vec::new(),
            gpu: gpu.clone(),
        };
        let (depth, mut before) = (cycle(room.depth), 0);
        for (variant, f) in variants.iter().enumerate() {
            let of = |turn: usize| {
                (0..f.nodes.len()).map(|at| ready.operands(f, (variant, turn, at), before, store)).collect()
            };
            let of_variant = (0..depth).map(of).collect::<Result<_>>()?;
            ready.operands.push(of_variant);
            before += f.nodes.len();
        }
        Ok(ready)
    }
    /// What a node touches in a turn; `before` nodes are of earlier variants.
    fn operands(
        &self,
        f: &Variant,
        (variant, turn, at): (usize, usize, usize),
        before: usize,
        store: &mut Store,
    ) -> Result<Operands> {
        let mut slot = |&(place, spec): &(Place, Spec), own: &[Var], wanted| -> Result<DeviceView> {
            let live = spec.rows.live.filter(|l| !own.contains(&l.var));
            let (count, times) = match live.and_then(|l| Some((f.places[l.var.at()]?, l.times))) {
                Some((place, times)) => (self.address(turn, place, store)?, times as u32),
                None => (0, 1),
            };
            let rows = abi::Rows { count: count as *const u32, times, capacity: spec.rows.capacity as u32 };
            Ok(DeviceView { address: self.address(turn, place, store)?, spec, rows, wanted })
        };
        let p = &f.nodes[at];
        let ins = p.ins.iter().map(|x| slot(x, &[], true)).collect::<Result<_>>()?;
        let outs = p.outs.iter().zip(&p.wanted);
        let outs = outs.map(|(x, &wanted)| slot(x, &p.node.outs, wanted)).collect::<Result<_>>()?;
        let tickets = self.tickets[variant][at].as_ref().map_or(0, DeviceBuffer::address);
        let status = self.status.address() + ((before + at) * size_of::<u64>()) as u64;
        Ok(Operands { ins, outs, scratch: self.address(turn, p.scratch.0, store)?, tickets, status })
    }
    fn address(&self, turn: usize, place: Place, store: &mut Store) -> Result<u64> {
        match place {
            Place::Arena(lane, at) => {
                let blocks = &self.memory[lane][turn % self.memory[lane].len()];
                let apart = self.gpu.keeps_values_apart();
                Ok(if apart { blocks[at].address() } else { blocks[0].address() + at as u64 })
            }
            Place::Stored(id) => store.on_device(id, &self.gpu, self.stream()),
        }
    }
    /// The first lane's: work on it comes before and after what is scheduled.
    fn stream(&self) -> &CudaStream {
        &self.streams[0]
    }
    /// Gives a node, of a variant in a turn, to the stream of a lane.
    fn launch(&self, p: &PlannedNode, (variant, turn, at): (usize, usize, usize), lane: usize) -> Result<()> {
        let o = &self.operands[variant][turn][at];
        let _range = nvtx::range(p.node.op.name());
        let launch = Launch {
            ins: &o.ins,
            outs: &o.outs,
            writes: &p.node.writes,
            scratch: o.scratch,
            tickets: o.tickets,
            status: o.status,
            precision: self.gpu.precision(),
            stream: &self.streams[lane],
        };
        match self.gpu.rival(p.node.op.name()) {
            Some(rival) => rival.launch(self.gpu.kernels(), &launch),
            // SAFETY: the operands are those of the node, checked when it was recorded.
            None => unsafe { p.node.op.launch(self.gpu.kernels(), &launch) },
        }
    }
    /// What `times` runs of every node take, on what the last run left: they are captured in a row, and the graph is timed
    /// by events, so neither the host nor an event stands between two runs.
    pub fn time_nodes(&self, nodes: &[PlannedNode], times: usize) -> Result<Vec<NodeTime>> {
        let mut taken = Vec::with_capacity(nodes.len());
        let stream = self.stream();
        for (at, p) in nodes.iter().enumerate() {
            let run = || (0..times).try_for_each(|_| self.launch(p, (0, 0, at), 0));
            let launched = stream.launched();
            let graph = stream.capture(run)?;
            let kernels = stream.launched() - launched;
            let (start, end) = (CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?);
            // SAFETY: the program has the memory of its values and the store that of its buffers, and both are borrowed.
            let launch = || unsafe { graph.launch(stream) };
            launch()?;
            start.record(stream)?;
            launch()?;
            end.record(stream)?;
            end.synchronize()?;
            taken.push(NodeTime { seconds: end.seconds_since(&start)?, runs: times, kernels });
        }
        Ok(taken)
    }
    /// Runs every node of each run with an event on either side, one after the other, and adds the seconds to `times`.
    pub fn profile(
        &self,
        variants: &[Variant],
        store: &mut Store,
        variant_of_run: &[usize],
        times: &mut [Vec<NodeTime>],
        done: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<()> {
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(variants).for_each(|id| store.changed_on_device(id));
        let most = variants.iter().map(|f| f.nodes.len()).max().unwrap_or(0);
        let marks: Vec<CudaEvent> = (0..=most).map(|_| CudaEvent::new(&self.gpu)).collect::<Result<_>>()?;
        for (run, &variant) in variant_of_run.iter().enumerate() {
            let times = &mut times[variant];
            marks[0].record(stream)?;
            for (at, p) in variants[variant].nodes.iter().enumerate() {
                let launched = stream.launched();
                self.launch(p, (variant, 0, at), 0)?;
                marks[at + 1].record(stream)?;
                times[at].kernels += stream.launched() - launched;
            }
            stream.synchronize()?;
            for (time, between) in times.iter_mut().zip(marks.windows(2)) {
                time.seconds += between[1].seconds_since(&between[0])?;
                time.runs += 1;
            }
            done(RepeatProgress { runs: run + 1, store: Some(store) });
        }
        self.check(variants)
    }
    /// The first fault of a node, as an error.
    fn check(&self, variants: &[Variant]) -> Result<()> {
        let nodes = || variants.iter().flat_map(|f| &f.nodes);
        let mut words = vec![0u64; nodes().count()];
        self.status.download(bytemuck::cast_slice_mut(&mut words), self.stream())?;
        match nodes().zip(words).find(|(_, word)| *word != 0) {
            Some((p, word)) => {
                let (row, value) = Status::read(word);
                Err(fault(p.node.op.name(), row, f32::from_bits(value)))
            }
            None => Ok(()),
        }
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
            None => Ok(()),
        }
    }
    /// Gives all steps of a schedule to the streams, between what the first was given before and what it is given afterwards; `timed` gets
    /// two events for each, of which the first run is the step `timed.1`. Returns the events that must last until a capture ends.
    fn enqueue(
        &self,
        (variants, variant_of_run): (&[Variant], &[usize]),
        schedule: &Schedule,
        mut timed: Option<(&mut Vec<Timed>, usize)>,
    ) -> Result<Vec<CudaEvent>> {
        let mark = |lane: usize| -> Result<CudaEvent> {
            let event = CudaEvent::new(&self.gpu)?;
            event.record(&self.streams[lane])?;
            Ok(event)
        };
        let (mut ends, both) = (Vec::new(), !schedule.0[1].is_empty());
        if both {
            ends.push(mark(0)?);
            self.streams[1].wait(&ends[0])?;
        }
        let mut marked: [HashMap<usize, CudaEvent>; LANES] = Default::default();
        schedule.queued(|queued| {
            match queued {
                StreamCommand::Mark { lane, mark: at } => {
                    marked[lane].insert(at, mark(lane)?);
                }
                StreamCommand::Wait { lane, mark } => {
                    if let Some(event) = marked[1 - lane].get(&mark) {
                        self.streams[lane].wait(event)?;
                    }
                }
                StreamCommand::Node { lane, step } => {
                    let (variant, depth) =
                        (variant_of_run[step.run], self.operands[variant_of_run[step.run]].len());
                    let what = (variant, step.run % depth, step.node);
                    let p = &variants[variant].nodes[step.node];
                    let Some((timed, first)) = &mut timed else { return self.launch(p, what, lane) };
                    let between = [CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?];
                    between[0].record(&self.streams[lane])?;
                    self.launch(p, what, lane)?;
                    between[1].record(&self.streams[lane])?;
                    timed.push(Timed { step: *first + step.run, variant, node: step.node, between });
                }
            }
            Ok(())
        })?;
        if both {
            ends.push(mark(1)?);
            self.stream().wait(&ends[1])?;
        }
        Ok(marked.into_iter().flat_map(HashMap::into_values).chain(ends).collect())
    }
    /// Makes a run for each entry of `variant_of_run`, its variant; the host does not wait in between. `done` hears now and then how many runs
    /// are over. What was written stays on the device until it is fetched.
    pub fn repeat(
        &self,
        (variants, variant_of_run): (&[Variant], &[usize]),
        store: &mut Store,
        schedules: &mut ScheduleCache,
        mut trace: Option<&mut Trace>,
        done: &mut dyn FnMut(RepeatProgress<'_>),
    ) -> Result<()> {
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(variants).for_each(|id| store.changed_on_device(id));
        let (mut runs, mut marks, mut events, mut timed) = (0, Vec::new(), Vec::new(), Vec::new());
        let base = match &trace {
            Some(_) => {
                let base = CudaEvent::new(&self.gpu)?;
                base.record(stream)?;
                base.synchronize()?;
                Some((base, Instant::now()))
            }
            None => None,
        };
        for variant_of_run in windows(variants, variant_of_run) {
            let (known, what) = (schedules.of(variants, variant_of_run)?, (variants, variant_of_run));
            // Not at its first time, for then a graph may never be used, and kernels that are not loaded yet cannot be captured.
            if known.times > 1 && known.graph.is_none() && trace.is_none() {
                let mut last = Vec::new();
                let capture = stream.capture(|| {
                    last = self.enqueue(what, &known.schedule, None)?;
                    Ok(())
                });
                known.graph = Some(capture?);
            }
            match (&known.graph, &trace) {
                // SAFETY: as in `time_nodes`.
                (Some(graph), None) => unsafe { graph.launch(stream)? },
                (_, Some(trace)) => {
                    let timed = Some((&mut timed, trace.steps + runs));
                    events.extend(self.enqueue(what, &known.schedule, timed)?);
                }
                (None, None) => events.extend(self.enqueue(what, &known.schedule, None)?),
            }
            runs += variant_of_run.len();
            let mark = CudaEvent::new(&self.gpu)?;
            mark.record(stream)?;
            marks.push((runs, mark));
        }
        for (runs, mark) in &marks {
            mark.synchronize()?;
            done(RepeatProgress { runs: *runs, store: Some(store) });
        }
        stream.synchronize()?;
        if let (Some(trace), Some((base, began))) = (&mut trace, base) {
            for Timed { step, variant, node, between } in timed {
                let [start, end] = between;
                let at = |event: CudaEvent| -> Result<Instant> {
                    Ok(began + Duration::from_secs_f64(event.seconds_since(&base)?.max(0.0)))
                };
                trace.ran.push(Ran { step, variant, node, start: at(start)?, end: at(end)? });
            }
            trace.steps += runs;
        }
        self.check(variants)
    }
}

/// The stored buffers that nodes of `variants` change.
fn written(variants: &[Variant]) -> impl Iterator<Item = BufferId> + '_ {
    variants.iter().flat_map(|f| &f.nodes).flat_map(|p| {
        p.node.writes.iter().filter_map(|&w| match p.ins[w].0 {
            Place::Stored(id) => Some(id),
            Place::Arena(..) => None,
        })
    })
}
