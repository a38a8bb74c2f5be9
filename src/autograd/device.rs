//! A program on a CUDA device: its memory there, its launches, and the graph that they are captured into.
use super::program::{Place, Planned, fault};
use crate::{
    error::Result,
    runtime::{
        cuda::{CudaEvent, CudaGraph, CudaStream, DeviceBuffer, DeviceSlot, Gpu, Launch, abi},
        *,
    },
};
use std::collections::HashMap;

/// Replays between two looks at how far they are.
const STRIDE: usize = 16;

/// Operands of a node as its kernels take them.
struct Operands {
    ins: Vec<DeviceSlot>,
    outs: Vec<DeviceSlot>,
    scratch: u64,
}

/// What a program has on a device.
pub(super) struct OnDevice {
    gpu: Gpu,
    stream: CudaStream,
    /// The arena; or a block for every place, where values are kept apart.
    memory: Vec<DeviceBuffer>,
    /// A word a node: its first fault.
    status: DeviceBuffer,
    /// Made at the first run: addresses of stored buffers are known then, and do not change.
    operands: Vec<Operands>,
    graph: Option<CudaGraph>,
    /// Values that survive the run, as it left them: rows and elements.
    kept: HashMap<Var, (usize, Vec<u64>)>,
}

impl OnDevice {
    /// Memory for `places` (bytes of each, or of the arena) and `nodes` nodes.
    pub fn new(gpu: &Gpu, places: &[usize], nodes: usize) -> Result<Self> {
        Ok(OnDevice {
            stream: CudaStream::new(gpu)?,
            memory: places.iter().map(|&bytes| DeviceBuffer::new(gpu, bytes)).collect::<Result<_>>()?,
            status: DeviceBuffer::new(gpu, nodes * size_of::<u64>())?,
            operands: Vec::new(),
            graph: None,
            kept: HashMap::new(),
            gpu: gpu.clone(),
        })
    }
    /// Bytes of device memory.
    pub fn bytes(&self) -> usize {
        self.memory.iter().map(DeviceBuffer::bytes).sum()
    }
    /// The rows and elements of a value that was kept.
    pub fn kept<T: Element>(&self, v: Var) -> Option<(usize, &[T])> {
        self.kept.get(&v).map(|(rows, words)| (*rows, bytemuck::cast_slice(words)))
    }
    fn address(&self, place: Place, store: &mut Store) -> Result<u64> {
        match place {
            Place::Arena(at) if self.gpu.keeps_values_apart() => Ok(self.memory[at].address()),
            Place::Arena(at) => Ok(self.memory[0].address() + at as u64),
            Place::Stored(id) => store.on_device(id, &self.gpu, &self.stream),
        }
    }
    /// Brings what the program reads to the device, and what it needs to know of it.
    fn prepare(&mut self, nodes: &[Planned], places: &[Option<Place>], store: &mut Store) -> Result<()> {
        // Also on later runs: the host may have changed a buffer.
        for &place in places.iter().flatten().filter(|p| matches!(p, Place::Stored(_))) {
            self.address(place, store)?;
        }
        if self.operands.len() == nodes.len() {
            return Ok(());
        }
        let mut operands = Vec::with_capacity(nodes.len());
        for p in nodes {
            let mut slot = |&(place, spec): &(Place, Spec), own: &[Var], wanted| -> Result<DeviceSlot> {
                let live = spec.rows.live.filter(|l| !own.contains(&l.var));
                let (count, times) = match live.and_then(|l| Some((places[l.var.0 as usize]?, l.times))) {
                    Some((place, times)) => (self.address(place, store)?, times as u32),
                    None => (0, 1),
                };
                let rows = abi::Rows { count: count as *const u32, times, cap: spec.rows.cap as u32 };
                Ok(DeviceSlot { address: self.address(place, store)?, spec, rows, wanted })
            };
            let ins = p.ins.iter().map(|x| slot(x, &[], true)).collect::<Result<_>>()?;
            let outs = p.outs.iter().zip(&p.wanted);
            let outs = outs.map(|(x, &wanted)| slot(x, &p.node.outs, wanted)).collect::<Result<_>>()?;
            operands.push(Operands { ins, outs, scratch: self.address(Place::Arena(p.scratch.0), store)? });
        }
        self.operands = operands;
        Ok(())
    }
    fn enqueue(&self, nodes: &[Planned]) -> Result<()> {
        (0..nodes.len()).try_for_each(|at| self.enqueue_node(nodes, at))
    }
    fn enqueue_node(&self, nodes: &[Planned], at: usize) -> Result<()> {
        let (p, o) = (&nodes[at], &self.operands[at]);
        let launch = Launch {
            ins: &o.ins,
            outs: &o.outs,
            writes: &p.node.writes,
            scratch: o.scratch,
            status: self.status.address() + (at * size_of::<u64>()) as u64,
            stream: &self.stream,
        };
        p.node.op.launch(self.gpu.kernels(), &launch)
    }
    /// Seconds of one run of every node, on what the last run left: each is captured `times` times in a row, and the
    /// graph is timed by events, so neither the host nor an event stands between two runs.
    pub fn time_nodes(&mut self, nodes: &[Planned], times: usize) -> Result<Vec<f64>> {
        let mut seconds = Vec::with_capacity(nodes.len());
        for at in 0..nodes.len() {
            let graph = self.stream.capture(|| (0..times).try_for_each(|_| self.enqueue_node(nodes, at)))?;
            let (start, end) = (CudaEvent::new(&self.gpu)?, CudaEvent::new(&self.gpu)?);
            graph.launch(&self.stream)?;
            start.record(&self.stream)?;
            graph.launch(&self.stream)?;
            end.record(&self.stream)?;
            end.synchronize()?;
            seconds.push(end.seconds_since(&start)? / times as f64);
        }
        Ok(seconds)
    }
    /// Runs every node `runs` times with an event on either side, and adds the seconds to `times`.
    pub fn profile(
        &mut self,
        nodes: &[Planned],
        places: &[Option<Place>],
        store: &mut Store,
        runs: usize,
        times: &mut [(f64, usize)],
        done: &mut dyn FnMut(&Store, usize),
    ) -> Result<()> {
        self.prepare(nodes, places, store)?;
        self.status.fill(0, &self.stream)?;
        Self::written(nodes).for_each(|id| store.changed_on_device(id));
        let marks: Vec<CudaEvent> =
            (0..=nodes.len()).map(|_| CudaEvent::new(&self.gpu)).collect::<Result<_>>()?;
        for run in 0..runs {
            for (at, mark) in marks.iter().enumerate() {
                mark.record(&self.stream)?;
                if at < nodes.len() {
                    self.enqueue_node(nodes, at)?;
                }
            }
            self.stream.synchronize()?;
            for (time, between) in times.iter_mut().zip(marks.windows(2)) {
                time.0 += between[1].seconds_since(&between[0])?;
                time.1 += 1;
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
    fn written(nodes: &[Planned]) -> impl Iterator<Item = BufferId> + '_ {
        nodes.iter().flat_map(|p| {
            p.node.writes.iter().filter_map(|&w| match p.ins[w].0 {
                Place::Stored(id) => Some(id),
                Place::Arena(_) => None,
            })
        })
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
        self.prepare(nodes, places, store)?;
        self.status.fill(0, &self.stream)?;
        let ran = self.enqueue(nodes).and_then(|()| self.stream.synchronize());
        Self::written(nodes).for_each(|id| store.changed_on_device(id));
        ran?;
        let written: Vec<BufferId> = Self::written(nodes).collect();
        store.fetch(&written)?;
        self.check(nodes)?;
        for &v in keep {
            let (spec, mut rows) = (specs[v.0 as usize], specs[v.0 as usize].rows.cap);
            if let Some(l) = spec.rows.live {
                let mut count = [0u32];
                self.copy(places[l.var.0 as usize], bytemuck::cast_slice_mut(&mut count), store)?;
                rows = rows.min(count[0] as usize * l.times);
            }
            let bytes = rows * spec.cols * spec.dtype.size(Precision::F32);
            let mut words = vec![0u64; bytes.div_ceil(8)];
            self.copy(places[v.0 as usize], &mut bytemuck::cast_slice_mut(&mut words)[..bytes], store)?;
            self.kept.insert(v, (rows, words));
        }
        Ok(())
    }
    fn copy(&self, place: Option<Place>, to: &mut [u8], store: &Store) -> Result<()> {
        match place {
            Some(Place::Arena(at)) if self.gpu.keeps_values_apart() => {
                self.memory[at].download(to, &self.stream)
            }
            Some(Place::Arena(at)) => self.memory[0].download_at(at, to, &self.stream),
            Some(Place::Stored(id)) => {
                to.copy_from_slice(&store.raw(id)[..to.len()]);
                Ok(())
            }
            None => Ok(()),
        }
    }
    /// Runs every node `times` times, by replays of one captured graph; the host does not wait in between. `done` hears
    /// now and then how many runs are over. What was written stays on the device until it is fetched.
    pub fn repeat(
        &mut self,
        nodes: &[Planned],
        places: &[Option<Place>],
        store: &mut Store,
        times: usize,
        done: &mut dyn FnMut(&Store, usize),
    ) -> Result<()> {
        self.prepare(nodes, places, store)?;
        self.status.fill(0, &self.stream)?;
        // Captured before the first run: what is captured is not run, and nothing is loaded in between.
        if self.graph.is_none() {
            self.graph = Some(self.stream.capture(|| self.enqueue(nodes))?);
        }
        Self::written(nodes).for_each(|id| store.changed_on_device(id));
        let mut marks = Vec::new();
        for at in 0..times {
            if let Some(graph) = &self.graph {
                graph.launch(&self.stream)?;
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
