//! A program on a CUDA device: its memory there, its launches, and the graph that they are captured into.
use super::{
    form::{Place, Planned},
    program::{NodeTime, fault},
};
use crate::{
    error::Result,
    runtime::{
        cuda::{CudaEvent, CudaGraph, CudaStream, DeviceBuffer, DeviceSlot, Gpu, Launch, abi},
        *,
    },
};
use std::collections::HashMap;

/// The lane of the nodes that run a step ahead.
const AHEAD: usize = 1;
/// Replays between two looks at how far they are.
const STRIDE: usize = 16;

/// Operands of a node as its kernels take them.
struct Operands {
    ins: Vec<DeviceSlot>,
    outs: Vec<DeviceSlot>,
    scratch: u64,
    tickets: u64,
}

/// Bytes that the values of a program want on a device: one block, or one a value where values are kept apart.
pub(super) struct Room {
    /// Of the nodes that run when their step does.
    pub step: Vec<usize>,
    /// Of those that run a step ahead; taken twice.
    pub ahead: Vec<usize>,
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
        self.room.step.iter().sum::<usize>() + 2 * self.room.ahead.iter().sum::<usize>()
    }
    /// The rows and elements of a value that was kept.
    pub fn kept<T: Element>(&self, v: Var) -> Option<(usize, &[T])> {
        self.kept.get(&v).map(|(rows, words)| (*rows, bytemuck::cast_slice(words)))
    }
    /// The program with its memory, and what it reads brought to the device.
    pub fn ready(
        &mut self,
        nodes: &[Planned],
        places: &[Option<Place>],
        store: &mut Store,
    ) -> Result<&mut Ready> {
        let ready = match &mut self.ready {
            Some(ready) => ready,
            none => none.insert(Ready::new(&self.gpu, &self.room, nodes, places, store)?),
        };
        // Also on later runs: the host may have changed a buffer.
        for place in places.iter().flatten() {
            if let Place::Stored(id) = *place {
                store.on_device(id, &ready.gpu, &ready.stream)?;
            }
        }
        Ok(ready)
    }
    /// Runs every node once and waits; what it kept and what it wrote is on the host afterwards.
    pub fn run(
        &mut self,
        nodes: &[Planned],
        places: &[Option<Place>],
        specs: &[Spec],
        keep: &[Var],
        store: &mut Store,
    ) -> Result<()> {
        let ready = self.ready(nodes, places, store)?;
        ready.status.fill(0, &ready.stream)?;
        let ran = ready.enqueue(nodes, 0, |_| true).and_then(|()| ready.stream.synchronize());
        let written: Vec<BufferId> = written(nodes).collect();
        written.iter().for_each(|&id| store.changed_on_device(id));
        ran?;
        store.fetch(&written)?;
        ready.check(nodes)?;
        let mut kept = HashMap::new();
        for &v in keep {
            let (spec, mut rows) = (specs[v.0 as usize], specs[v.0 as usize].rows.cap);
            if let Some(l) = spec.rows.live {
                let mut count = [0u32];
                ready.copy(places[l.var.0 as usize], bytemuck::cast_slice_mut(&mut count), store)?;
                rows = rows.min(count[0] as usize * l.times);
            }
            let bytes = rows * spec.cols * spec.dtype.size(Precision::F32);
            let mut words = vec![0u64; bytes.div_ceil(8)];
            ready.copy(places[v.0 as usize], &mut bytemuck::cast_slice_mut(&mut words)[..bytes], store)?;
            kept.insert(v, (rows, words));
        }
        self.kept = kept;
        Ok(())
    }
}

/// A program with its memory.
///
/// Repeated, it goes in turns, even and odd. Its nodes that run ahead fill the values of one turn on `beside` while `stream`
/// works on those of the other; a captured graph holds both, so that a replay is over when both are.
pub(super) struct Ready {
    gpu: Gpu,
    stream: CudaStream,
    beside: CudaStream,
    step: Vec<DeviceBuffer>,
    ahead: [Vec<DeviceBuffer>; 2],
    /// A word a node: its first fault.
    status: DeviceBuffer,
    /// Of the nodes that have any: zero between two launches, so nothing clears them again.
    tickets: Vec<Option<DeviceBuffer>>,
    /// Of all nodes, in the two turns. Addresses of stored buffers do not change.
    operands: [Vec<Operands>; 2],
    /// A step of each turn, beside it the preparation of the next.
    graphs: [Option<CudaGraph>; 2],
}

impl Ready {
    fn new(
        gpu: &Gpu,
        room: &Room,
        nodes: &[Planned],
        places: &[Option<Place>],
        store: &mut Store,
    ) -> Result<Self> {
        let take = |blocks: &[usize]| {
            blocks.iter().map(|&bytes| DeviceBuffer::new(gpu, bytes)).collect::<Result<_>>()
        };
        let stream = CudaStream::new(gpu)?;
        let tickets = |p: &Planned| -> Result<Option<DeviceBuffer>> {
            if p.tickets == 0 {
                return Ok(None);
            }
            let words = DeviceBuffer::new(gpu, p.tickets * size_of::<u32>())?;
            words.fill(0, &stream)?;
            Ok(Some(words))
        };
        let mut ready = Ready {
            tickets: nodes.iter().map(tickets).collect::<Result<_>>()?,
            stream,
            beside: CudaStream::new(gpu)?,
            step: take(&room.step)?,
            ahead: [take(&room.ahead)?, take(&room.ahead)?],
            status: DeviceBuffer::new(gpu, nodes.len() * size_of::<u64>())?,
            operands: [Vec::new(), Vec::new()],
            graphs: [None, None],
            gpu: gpu.clone(),
        };
        for turn in 0..2 {
            let operands = (0..nodes.len()).map(|at| ready.operands(turn, at, &nodes[at], places, store));
            let operands = operands.collect::<Result<_>>()?;
            ready.operands[turn] = operands;
        }
        Ok(ready)
    }
    fn operands(
        &self,
        turn: usize,
        at: usize,
        p: &Planned,
        places: &[Option<Place>],
        store: &mut Store,
    ) -> Result<Operands> {
        let mut slot = |&(place, spec): &(Place, Spec), own: &[Var], wanted| -> Result<DeviceSlot> {
            let live = spec.rows.live.filter(|l| !own.contains(&l.var));
            let (count, times) = match live.and_then(|l| Some((places[l.var.0 as usize]?, l.times))) {
                Some((place, times)) => (self.address(turn, place, store)?, times as u32),
                None => (0, 1),
            };
            let rows = abi::Rows { count: count as *const u32, times, cap: spec.rows.cap as u32 };
            Ok(DeviceSlot { address: self.address(turn, place, store)?, spec, rows, wanted })
        };
        let ins = p.ins.iter().map(|x| slot(x, &[], true)).collect::<Result<_>>()?;
        let outs = p.outs.iter().zip(&p.wanted);
        let outs = outs.map(|(x, &wanted)| slot(x, &p.node.outs, wanted)).collect::<Result<_>>()?;
        let tickets = self.tickets[at].as_ref().map_or(0, DeviceBuffer::address);
        Ok(Operands { ins, outs, scratch: self.address(turn, p.scratch.0, store)?, tickets })
    }
    fn address(&self, turn: usize, place: Place, store: &mut Store) -> Result<u64> {
        match place {
            Place::Arena(0, at) => Ok(self.within(&self.step, at)),
            Place::Arena(_, at) => Ok(self.within(&self.ahead[turn], at)),
            Place::Stored(id) => store.on_device(id, &self.gpu, &self.stream),
        }
    }
    fn within(&self, blocks: &[DeviceBuffer], at: usize) -> u64 {
        if self.gpu.keeps_values_apart() { blocks[at].address() } else { blocks[0].address() + at as u64 }
    }
    /// Gives the nodes of a turn that `which` takes to the stream.
    fn enqueue(&self, nodes: &[Planned], turn: usize, which: impl Fn(&Planned) -> bool) -> Result<()> {
        let taken = (0..nodes.len()).filter(|&at| which(&nodes[at]));
        taken.into_iter().try_for_each(|at| self.enqueue_node(nodes, at, turn, &self.stream))
    }
    fn enqueue_node(&self, nodes: &[Planned], at: usize, turn: usize, stream: &CudaStream) -> Result<()> {
        let (p, o) = (&nodes[at], &self.operands[turn][at]);
        let _range = nvtx::range(p.node.op.name());
        let launch = Launch {
            ins: &o.ins,
            outs: &o.outs,
            writes: &p.node.writes,
            scratch: o.scratch,
            tickets: o.tickets,
            status: self.status.address() + (at * size_of::<u64>()) as u64,
            precision: self.gpu.precision(),
            stream,
        };
        match self.gpu.rival(p.node.op.name()) {
            Some(rival) => rival.launch(self.gpu.kernels(), &launch),
            None => p.node.op.launch(self.gpu.kernels(), &launch),
        }
    }
    /// What `times` runs of every node take, on what the last run left: they are captured in a row, and the graph is timed
    /// by events, so neither the host nor an event stands between two runs.
    pub fn time_nodes(&mut self, nodes: &[Planned], times: usize) -> Result<Vec<NodeTime>> {
        let mut taken = Vec::with_capacity(nodes.len());
        for at in 0..nodes.len() {
            let run = || (0..times).try_for_each(|_| self.enqueue_node(nodes, at, 0, &self.stream));
            let launched = self.stream.launched();
            let graph = self.stream.capture(run)?;
            let kernels = self.stream.launched() - launched;
            let (start, end) = (CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?);
            graph.launch(&self.stream)?;
            start.record(&self.stream)?;
            graph.launch(&self.stream)?;
            end.record(&self.stream)?;
            end.synchronize()?;
            taken.push(NodeTime { seconds: end.seconds_since(&start)?, runs: times, kernels });
        }
        Ok(taken)
    }
    /// Runs every node `runs` times with an event on either side, one after the other, and adds the seconds to `times`.
    pub fn profile(
        &mut self,
        nodes: &[Planned],
        store: &mut Store,
        runs: usize,
        times: &mut [NodeTime],
        done: &mut dyn FnMut(&Store, usize),
    ) -> Result<()> {
        self.status.fill(0, &self.stream)?;
        written(nodes).for_each(|id| store.changed_on_device(id));
        let marks: Vec<CudaEvent> =
            (0..=nodes.len()).map(|_| CudaEvent::new(&self.gpu)).collect::<Result<_>>()?;
        for run in 0..runs {
            for (at, mark) in marks.iter().enumerate() {
                mark.record(&self.stream)?;
                if at < nodes.len() {
                    let launched = self.stream.launched();
                    self.enqueue_node(nodes, at, 0, &self.stream)?;
                    times[at].kernels += self.stream.launched() - launched;
                }
            }
            self.stream.synchronize()?;
            for (time, between) in times.iter_mut().zip(marks.windows(2)) {
                time.seconds += between[1].seconds_since(&between[0])?;
                time.runs += 1;
            }
            done(store, run + 1);
        }
        self.check(nodes)
    }
    /// The first fault of a node, as an error.
    fn check(&self, nodes: &[Planned]) -> Result<()> {
        let mut words = vec![0u64; nodes.len()];
        self.status.download(bytemuck::cast_slice_mut(&mut words), &self.stream)?;
        match words.iter().position(|&w| w != 0) {
            Some(at) => {
                let (row, value) = Status::read(words[at]);
                Err(fault(nodes[at].node.op.name(), row, f32::from_bits(value)))
            }
            None => Ok(()),
        }
    }
    fn copy(&self, place: Option<Place>, to: &mut [u8], store: &Store) -> Result<()> {
        let (blocks, at) = match place {
            Some(Place::Arena(0, at)) => (&self.step, at),
            Some(Place::Arena(_, at)) => (&self.ahead[0], at),
            Some(Place::Stored(id)) => {
                to.copy_from_slice(&store.raw(id)[..to.len()]);
                return Ok(());
            }
            None => return Ok(()),
        };
        if self.gpu.keeps_values_apart() {
            blocks[at].download(to, &self.stream)
        } else {
            blocks[0].download_at(at, to, &self.stream)
        }
    }
    /// Captures a step of `turn`, and beside it what prepares the next.
    fn capture(&self, nodes: &[Planned], turn: usize) -> Result<CudaGraph> {
        let (fork, join) = (CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?);
        self.stream.capture(|| {
            if nodes.iter().any(|p| p.spot.lane == AHEAD) {
                let _range = nvtx::range("next batch");
                fork.record(&self.stream)?;
                self.beside.wait(&fork)?;
                let ahead = (0..nodes.len()).filter(|&at| nodes[at].spot.lane == AHEAD);
                ahead.into_iter().try_for_each(|at| self.enqueue_node(nodes, at, 1 - turn, &self.beside))?;
                join.record(&self.beside)?;
            }
            let _range = nvtx::range("step");
            self.enqueue(nodes, turn, |p| p.spot.lane != AHEAD)?;
            if nodes.iter().any(|p| p.spot.lane == AHEAD) { self.stream.wait(&join) } else { Ok(()) }
        })
    }
    /// Runs every node `times` times, by replays of captured graphs; the host does not wait in between. `done` hears now
    /// and then how many runs are over. What was written stays on the device until it is fetched.
    pub fn repeat(
        &mut self,
        nodes: &[Planned],
        store: &mut Store,
        times: usize,
        done: &mut dyn FnMut(&Store, usize),
    ) -> Result<()> {
        self.status.fill(0, &self.stream)?;
        // Captured before the first run: what is captured is not run, and nothing is loaded in between.
        for turn in 0..2 {
            if self.graphs[turn].is_none() {
                self.graphs[turn] = Some(self.capture(nodes, turn)?);
            }
        }
        written(nodes).for_each(|id| store.changed_on_device(id));
        let mut marks = Vec::new();
        for at in 0..times {
            if at == 0 {
                self.enqueue(nodes, 0, |p| p.spot.lane == AHEAD)?;
            }
            match &self.graphs[at % 2] {
                Some(graph) if at + 1 < times => graph.launch(&self.stream)?,
                // No step follows the last: nothing is prepared.
                _ => self.enqueue(nodes, at % 2, |p| p.spot.lane != AHEAD)?,
            }
            if (at + 1) % STRIDE == 0 || at + 1 == times {
                let mark = CudaEvent::new(&self.gpu)?;
                mark.record(&self.stream)?;
                marks.push((at + 1, mark));
            }
        }
        for (runs, mark) in &marks {
            mark.synchronize()?;
            done(store, *runs);
        }
        self.stream.synchronize()?;
        self.check(nodes)
    }
}

/// The stored buffers that `nodes` change.
fn written(nodes: &[Planned]) -> impl Iterator<Item = BufferId> + '_ {
    nodes.iter().flat_map(|p| {
        p.node.writes.iter().filter_map(|&w| match p.ins[w].0 {
            Place::Stored(id) => Some(id),
            Place::Arena(..) => None,
        })
    })
}
