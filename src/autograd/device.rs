//! A program on a CUDA device: its memory there, its launches on a stream for each lane, and the graphs that they are captured into.
use super::{
    form::{Form, Place, Planned},
    lanes::{LANES, cycle},
    line_up::{LineUp, Queued},
    line_ups::{LineUps, windows},
    program::{NodeTime, Repeated, fault},
    trace::{Ran, Trace},
};
use crate::{
    error::Result,
    runtime::{
        cuda::{CudaEvent, CudaStream, DeviceBuffer, DeviceSlot, Gpu, Launch, abi},
        *,
    },
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Operands of a node as its kernels take them.
struct Operands {
    ins: Vec<DeviceSlot>,
    outs: Vec<DeviceSlot>,
    scratch: u64,
    tickets: u64,
    /// Where its first fault is noted.
    status: u64,
}

/// Bytes that the values of a program want on a device, of each lane: one block, or one a value where values are kept apart.
pub(super) struct Room {
    blocks: [Vec<usize>; LANES],
    /// How often they are taken: runs of a lane go in turns.
    turns: [usize; LANES],
}

impl Room {
    /// Room for any of `forms`.
    pub fn of(forms: &[Form], turns: [usize; LANES]) -> Self {
        let blocks = std::array::from_fn(|lane| {
            let mut most: Vec<usize> = Vec::new();
            for blocks in forms.iter().map(|f| f.arenas[lane].blocks()) {
                most.resize(most.len().max(blocks.len()), 0);
                most.iter_mut().zip(blocks).for_each(|(most, bytes)| *most = bytes.max(*most));
            }
            most
        });
        Room { blocks, turns }
    }
}

/// What a program has on a device.
pub(super) struct OnDevice {
    gpu: Gpu,
    room: Room,
    ready: Option<Ready>,
    /// Values that survive the run, as it left them: rows and elements.
    kept: HashMap<Var, (usize, Vec<u64>)>,
}

impl OnDevice {
    /// A program that will take `room`.
    pub fn new(gpu: &Gpu, room: Room) -> Self {
        OnDevice { gpu: gpu.clone(), room, ready: None, kept: HashMap::new() }
    }
    /// Bytes of device memory that it takes at the first run.
    pub fn bytes(&self) -> usize {
        let lanes = self.room.blocks.iter().zip(self.room.turns);
        lanes.map(|(blocks, turns)| turns * blocks.iter().sum::<usize>()).sum()
    }
    /// The rows and elements of a value that was kept.
    pub fn kept<T: Element>(&self, v: Var) -> Option<(usize, &[T])> {
        self.kept.get(&v).map(|(rows, words)| (*rows, bytemuck::cast_slice(words)))
    }
    /// The program with its memory, and what it reads brought to the device.
    pub fn ready(&mut self, forms: &[Form], store: &mut Store) -> Result<&Ready> {
        let ready = match &mut self.ready {
            Some(ready) => ready,
            none => none.insert(Ready::new(&self.gpu, &self.room, forms, store)?),
        };
        // Also on later runs: the host may have changed a buffer.
        for place in forms.iter().flat_map(|f| f.places.iter().flatten()) {
            if let Place::Stored(id) = *place {
                store.on_device(id, &ready.gpu, ready.stream())?;
            }
        }
        Ok(ready)
    }
    /// Runs every node of the first form once and waits; what it kept and what it wrote is on the host afterwards.
    pub fn run(&mut self, forms: &[Form], keep: &[Var], store: &mut Store) -> Result<()> {
        let (form, ready) = (&forms[0], self.ready(forms, store)?);
        ready.status.fill(0, ready.stream())?;
        let all = (0..form.nodes.len()).try_for_each(|at| ready.launch(&form.nodes[at], (0, 0, at), 0));
        let ran = all.and_then(|()| ready.stream().synchronize());
        let written: Vec<BufferId> = written(&forms[..1]).collect();
        written.iter().for_each(|&id| store.changed_on_device(id));
        ran?;
        store.fetch(&written)?;
        ready.check(forms)?;
        let mut kept = HashMap::new();
        for &v in keep {
            let (spec, mut rows) = (form.specs[v.at()], form.specs[v.at()].rows.cap);
            if let Some(l) = spec.rows.live {
                let mut count = [0u32];
                let place = form.places[l.var.at()];
                ready.copy(place, bytemuck::cast_slice_mut(&mut count), store)?;
                rows = rows.min((count[0] as usize).saturating_mul(l.times));
            }
            let bytes = rows * spec.cols * spec.dtype.size(Precision::F32);
            let mut words = vec![0u64; bytes.div_ceil(8)];
            let to = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
            ready.copy(form.places[v.at()], to, store)?;
            kept.insert(v, (rows, words));
        }
        self.kept = kept;
        Ok(())
    }
}

/// A program with its memory: a stream for each lane. Runs are lined up as on a host, and where a step waits for the other lane its stream
/// waits for an event. A line-up that comes again is captured: then one launch gives the device all of it.
pub(super) struct Ready {
    gpu: Gpu,
    streams: [CudaStream; LANES],
    /// Of each lane, by turn.
    memory: [Vec<Vec<DeviceBuffer>>; LANES],
    /// A word for each node of each form: its first fault.
    status: DeviceBuffer,
    /// Of the nodes that have any, by form: zero between two launches, so nothing clears them again.
    tickets: Vec<Vec<Option<DeviceBuffer>>>,
    /// By form, turn, and node. Addresses of stored buffers do not change.
    operands: Vec<Vec<Vec<Operands>>>,
}

/// A node's launch between two events.
struct Timed {
    step: usize,
    form: usize,
    node: usize,
    between: [CudaEvent; 2],
}

impl Ready {
    fn new(gpu: &Gpu, room: &Room, forms: &[Form], store: &mut Store) -> Result<Self> {
        let streams = [CudaStream::new(gpu)?, CudaStream::new(gpu)?];
        let take = |lane: usize| -> Result<Vec<Vec<DeviceBuffer>>> {
            let turn = || room.blocks[lane].iter().map(|&bytes| DeviceBuffer::new(gpu, bytes)).collect();
            (0..room.turns[lane]).map(|_| turn()).collect()
        };
        let tickets = |p: &Planned| -> Result<Option<DeviceBuffer>> {
            if p.tickets == 0 {
                return Ok(None);
            }
            let words = DeviceBuffer::new(gpu, p.tickets * size_of::<u32>())?;
            words.fill(0, &streams[0])?;
            Ok(Some(words))
        };
        let all: usize = forms.iter().map(|f| f.nodes.len()).sum();
        let mut ready = Ready {
            tickets: forms.iter().map(|f| f.nodes.iter().map(tickets).collect()).collect::<Result<_>>()?,
            memory: [take(0)?, take(1)?],
            streams,
            status: DeviceBuffer::new(gpu, all * size_of::<u64>())?,
            operands: Vec::new(),
            gpu: gpu.clone(),
        };
        let (turns, mut before) = (cycle(room.turns), 0);
        for (form, f) in forms.iter().enumerate() {
            let of = |turn: usize| {
                (0..f.nodes.len()).map(|at| ready.operands(f, (form, turn, at), before, store)).collect()
            };
            let of_form = (0..turns).map(of).collect::<Result<_>>()?;
            ready.operands.push(of_form);
            before += f.nodes.len();
        }
        Ok(ready)
    }
    /// What a node touches in a turn; `before` nodes are of earlier forms.
    fn operands(
        &self,
        f: &Form,
        (form, turn, at): (usize, usize, usize),
        before: usize,
        store: &mut Store,
    ) -> Result<Operands> {
        let mut slot = |&(place, spec): &(Place, Spec), own: &[Var], wanted| -> Result<DeviceSlot> {
            let live = spec.rows.live.filter(|l| !own.contains(&l.var));
            let (count, times) = match live.and_then(|l| Some((f.places[l.var.at()]?, l.times))) {
                Some((place, times)) => (self.address(turn, place, store)?, times as u32),
                None => (0, 1),
            };
            let rows = abi::Rows { count: count as *const u32, times, cap: spec.rows.cap as u32 };
            Ok(DeviceSlot { address: self.address(turn, place, store)?, spec, rows, wanted })
        };
        let p = &f.nodes[at];
        let ins = p.ins.iter().map(|x| slot(x, &[], true)).collect::<Result<_>>()?;
        let outs = p.outs.iter().zip(&p.wanted);
        let outs = outs.map(|(x, &wanted)| slot(x, &p.node.outs, wanted)).collect::<Result<_>>()?;
        let tickets = self.tickets[form][at].as_ref().map_or(0, DeviceBuffer::address);
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
    /// The first lane's: work on it comes before and after what is lined up.
    fn stream(&self) -> &CudaStream {
        &self.streams[0]
    }
    /// Gives a node, of a form in a turn, to the stream of a lane.
    fn launch(&self, p: &Planned, (form, turn, at): (usize, usize, usize), lane: usize) -> Result<()> {
        let o = &self.operands[form][turn][at];
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
    pub fn time_nodes(&self, nodes: &[Planned], times: usize) -> Result<Vec<NodeTime>> {
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
        forms: &[Form],
        store: &mut Store,
        in_form: &[usize],
        times: &mut [Vec<NodeTime>],
        done: &mut dyn FnMut(Repeated<'_>),
    ) -> Result<()> {
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(forms).for_each(|id| store.changed_on_device(id));
        let most = forms.iter().map(|f| f.nodes.len()).max().unwrap_or(0);
        let marks: Vec<CudaEvent> = (0..=most).map(|_| CudaEvent::new(&self.gpu)).collect::<Result<_>>()?;
        for (run, &form) in in_form.iter().enumerate() {
            let times = &mut times[form];
            marks[0].record(stream)?;
            for (at, p) in forms[form].nodes.iter().enumerate() {
                let launched = stream.launched();
                self.launch(p, (form, 0, at), 0)?;
                marks[at + 1].record(stream)?;
                times[at].kernels += stream.launched() - launched;
            }
            stream.synchronize()?;
            for (time, between) in times.iter_mut().zip(marks.windows(2)) {
                time.seconds += between[1].seconds_since(&between[0])?;
                time.runs += 1;
            }
            done(Repeated { runs: run + 1, store: Some(store) });
        }
        self.check(forms)
    }
    /// The first fault of a node, as an error.
    fn check(&self, forms: &[Form]) -> Result<()> {
        let nodes = || forms.iter().flat_map(|f| &f.nodes);
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
    /// Gives all steps of a line-up to the streams, between what the first was given before and what it is given afterwards; `timed` gets
    /// two events for each, of which the first run is the step `timed.1`. Returns the events that must last until a capture ends.
    fn enqueue(
        &self,
        (forms, in_form): (&[Form], &[usize]),
        line_up: &LineUp,
        mut timed: Option<(&mut Vec<Timed>, usize)>,
    ) -> Result<Vec<CudaEvent>> {
        let mark = |lane: usize| -> Result<CudaEvent> {
            let event = CudaEvent::new(&self.gpu)?;
            event.record(&self.streams[lane])?;
            Ok(event)
        };
        let (mut ends, both) = (Vec::new(), !line_up.0[1].is_empty());
        if both {
            ends.push(mark(0)?);
            self.streams[1].wait(&ends[0])?;
        }
        let mut marked: [HashMap<usize, CudaEvent>; LANES] = Default::default();
        line_up.queued(|queued| {
            match queued {
                Queued::Mark { lane, mark: at } => {
                    marked[lane].insert(at, mark(lane)?);
                }
                Queued::Wait { lane, mark } => {
                    if let Some(event) = marked[1 - lane].get(&mark) {
                        self.streams[lane].wait(event)?;
                    }
                }
                Queued::Step { lane, step } => {
                    let (form, turns) = (in_form[step.run], self.operands[in_form[step.run]].len());
                    let what = (form, step.run % turns, step.node);
                    let p = &forms[form].nodes[step.node];
                    let Some((timed, first)) = &mut timed else { return self.launch(p, what, lane) };
                    let between = [CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?];
                    between[0].record(&self.streams[lane])?;
                    self.launch(p, what, lane)?;
                    between[1].record(&self.streams[lane])?;
                    timed.push(Timed { step: *first + step.run, form, node: step.node, between });
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
    /// Makes a run for each entry of `in_form`, its form; the host does not wait in between. `done` hears now and then how many runs
    /// are over. What was written stays on the device until it is fetched.
    pub fn repeat(
        &self,
        (forms, in_form): (&[Form], &[usize]),
        store: &mut Store,
        line_ups: &mut LineUps,
        mut trace: Option<&mut Trace>,
        done: &mut dyn FnMut(Repeated<'_>),
    ) -> Result<()> {
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(forms).for_each(|id| store.changed_on_device(id));
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
        for in_form in windows(forms, in_form) {
            let (known, what) = (line_ups.of(forms, in_form)?, (forms, in_form));
            // Not at its first time, for then a graph may never be used, and kernels that are not loaded yet cannot be captured.
            if known.times > 1 && known.graph.is_none() && trace.is_none() {
                let mut last = Vec::new();
                let capture = stream.capture(|| {
                    last = self.enqueue(what, &known.line_up, None)?;
                    Ok(())
                });
                known.graph = Some(capture?);
            }
            match (&known.graph, &trace) {
                // SAFETY: as in `time_nodes`.
                (Some(graph), None) => unsafe { graph.launch(stream)? },
                (_, Some(trace)) => {
                    let timed = Some((&mut timed, trace.steps + runs));
                    events.extend(self.enqueue(what, &known.line_up, timed)?);
                }
                (None, None) => events.extend(self.enqueue(what, &known.line_up, None)?),
            }
            runs += in_form.len();
            let mark = CudaEvent::new(&self.gpu)?;
            mark.record(stream)?;
            marks.push((runs, mark));
        }
        for (runs, mark) in &marks {
            mark.synchronize()?;
            done(Repeated { runs: *runs, store: Some(store) });
        }
        stream.synchronize()?;
        if let (Some(trace), Some((base, began))) = (&mut trace, base) {
            for Timed { step, form, node, between } in timed {
                let [start, end] = between;
                let at = |event: CudaEvent| -> Result<Instant> {
                    Ok(began + Duration::from_secs_f64(event.seconds_since(&base)?.max(0.0)))
                };
                trace.ran.push(Ran { step, form, node, start: at(start)?, end: at(end)? });
            }
            trace.steps += runs;
        }
        self.check(forms)
    }
}

/// The stored buffers that nodes of `forms` change.
fn written(forms: &[Form]) -> impl Iterator<Item = BufferId> + '_ {
    forms.iter().flat_map(|f| &f.nodes).flat_map(|p| {
        p.node.writes.iter().filter_map(|&w| match p.ins[w].0 {
            Place::Stored(id) => Some(id),
            Place::Arena(..) => None,
        })
    })
}
