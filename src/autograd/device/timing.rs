//! Times of a program's nodes on a device, and launches for profilers.
use super::{BoundNode, BoundProgram, OnDevice, written};
use crate::{
    autograd::{
        program::Alone,
        run::{self, NodeTime, OnProgress, VariantRuns},
        schedule::ScheduledNode,
        schedule_cache::{CachedSchedule, ScheduleCache},
        stages::StageRange,
        timed_graph::{Marks, TimedGraph},
        variant::Variant,
    },
    error::Result,
    runtime::{
        Store, Var,
        cuda::{CudaEvent, CudaGraph, CudaStream, DeviceBuffer},
    },
};
use std::collections::HashMap;

/// Most nodes that are profiled before the host waits.
const PROFILED: usize = 512;

/// The least time of a node in seconds.
const LEAST_SECONDS: f64 = 1e-9;

/// Records an event in a stream.
type Record = fn(&CudaEvent, &CudaStream) -> Result<()>;

/// The counts of live rows, by run and value.
type Counts = HashMap<(usize, Var), usize>;

impl OnDevice {
    /// Runs the nodes of some ops by themselves, on the values of the last run. `prepare` is called before
    /// each timing.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); those of `prepare`.
    pub fn alone(
        &mut self,
        variants: &[Variant],
        store: &mut Store,
        alone: &Alone<'_>,
        prepare: &mut dyn FnMut(&mut Store) -> Result<()>,
    ) -> Result<Vec<NodeTime>> {
        let nodes = &variants[0].nodes;
        let counts = self.bind(variants, store)?.counts(&variants[0], store)?;
        let flushed =
            alone.cold.then(|| DeviceBuffer::new(&self.gpu, 2 * self.gpu.l2_bytes()?)).transpose()?;
        let together = if alone.cold || alone.by_launch { 1 } else { alone.runs };
        let timings = if alone.cold || alone.by_launch { alone.runs } else { alone.timings };
        let mut times = vec![NodeTime::default(); nodes.len()];
        let mut stage = StageRange::default();
        for (node, planned) in nodes.iter().enumerate().filter(|(_, p)| (alone.op)(p.node.op.name())) {
            let (at, cost) =
                (BoundNode { variant: 0, run: 0, node }, planned.cost_at(|v| counts.get(&v).copied()));
            let graph = match alone.by_launch {
                true => None,
                false => Some(self.bind(variants, store)?.graph_of(variants, at, together)?),
            };
            for timing in 0..timings {
                prepare(store)?;
                let bound = self.bind(variants, store)?;
                if let Some(flushed) = &flushed {
                    flushed.fill(timing as u8, bound.stream())?;
                }
                if let Some(graph) = &graph {
                    times[node].add(bound.time(graph, !alone.cold)?, together, cost);
                    times[node].kernels += graph.kernels;
                } else {
                    stage.enter(planned.stage);
                    bound.launch(planned, at, 0)?;
                    times[node].count(1, cost);
                }
            }
        }
        self.bind(variants, store)?.synchronize()?;
        Ok(times)
    }
}

/// Runs of a node as a graph, between two events.
struct RunsOfNode {
    graph: CudaGraph,
    between: [CudaEvent; 2],
    kernels: usize,
}

impl BoundProgram {
    /// Returns the counts of live rows that the last run has left.
    fn counts(&self, variant: &Variant, store: &Store) -> Result<HashMap<Var, usize>> {
        let live = variant.specs.iter().filter_map(|spec| Some(spec.rows.live?.var));
        let count = |v: Var| {
            let mut count = [0u32];
            self.copy(variant.places[v.at()], bytemuck::cast_slice_mut(&mut count), store)?;
            Ok((v, count[0] as usize))
        };
        live.map(count).collect()
    }
    /// Captures `times` runs of a node, with nothing between the runs.
    fn graph_of(&self, variants: &[Variant], at: BoundNode, times: usize) -> Result<RunsOfNode> {
        let (stream, planned) = (self.stream(), &variants[at.variant].nodes[at.node]);
        let between = [CudaEvent::timed(&self.gpu)?, CudaEvent::timed(&self.gpu)?];
        let launched = stream.launched();
        let graph = stream.capture(|| {
            between[0].record_in_graph(stream)?;
            (0..times).try_for_each(|_| self.launch(planned, at, 0))?;
            between[1].record_in_graph(stream)
        })?;
        Ok(RunsOfNode { graph, between, kernels: stream.launched() - launched })
    }
    /// Returns the seconds of runs of a node; `warm`: when they are launched the second time in a row.
    fn time(&self, runs: &RunsOfNode, warm: bool) -> Result<f64> {
        for _ in 0..=usize::from(warm) {
            // SAFETY: the program owns the memory of its values, the store that of its buffers, and both are
            // borrowed.
            unsafe { runs.graph.launch(self.stream())? };
        }
        self.synchronize()?;
        self.seconds(&runs.between[0], &runs.between[1])
    }
    /// Returns the seconds that the work between two events of a graph took, without the time of the events
    /// themselves. Never 0, so that rates are finite.
    fn seconds(&self, start: &CudaEvent, end: &CudaEvent) -> Result<f64> {
        Ok((end.seconds_since(start)? - self.gpu.empty_seconds()?).max(LEAST_SECONDS))
    }
    /// Runs the nodes of all runs one after the other and adds their times to `times`. They are launched as
    /// graphs, so that the times are those of the device; or, if `by_launch`, each by itself, within the
    /// profiler ranges of its stage and op.
    ///
    /// # Errors
    /// As [`repeat`](Self::repeat).
    pub fn profile(
        &self,
        runs: VariantRuns<'_>,
        store: &mut Store,
        schedules: &mut ScheduleCache,
        (times, by_launch): (&mut [Vec<NodeTime>], bool),
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let (stream, variants) = (self.stream(), runs.variants);
        let by_launch = by_launch || !self.peers.are_captured();
        let _in_driver = self.peers.in_driver("starting a pass");
        self.peers.meet()?;
        self.status.fill(0, stream)?;
        written(variants).for_each(|id| store.changed_on_device(id));
        let (mut counts, mut before) = (Counts::new(), 0);
        for window in schedules.windows(variants, runs.variant_of_run) {
            let CachedSchedule { schedule, order, timed, .. } = schedules.get(variants, window)?;
            // Of runs that an earlier window has prepared.
            counts = counts
                .into_iter()
                .filter_map(|((run, v), n)| Some(((run.checked_sub(before)?, v), n)))
                .collect();
            before = window.ended() - window.first;
            for (chunk, places) in order.chunks(PROFILED).enumerate() {
                let bound = |&(lane, index): &(usize, usize)| {
                    let ScheduledNode { run, node, .. } = schedule.0[lane][index];
                    BoundNode { variant: window.variant_of_run[run], run, node }
                };
                let nodes: Vec<BoundNode> = places.iter().map(bound).collect();
                if by_launch {
                    let mut marked = self.marks(variants, &nodes)?;
                    self.launch_between(variants, &nodes, &mut marked, CudaEvent::record)?;
                    self.synchronize()?;
                    self.add_times(variants, &nodes, &marked, &mut counts, times)?;
                    continue;
                }
                if chunk == timed.len() {
                    timed.push(self.captured(variants, &nodes)?);
                }
                // SAFETY: as in `time`; the graph has the events and the memory of its counts beside it.
                unsafe { timed[chunk].graph.launch(stream)? };
                self.synchronize()?;
                self.add_times(variants, &nodes, &timed[chunk].marked, &mut counts, times)?;
            }
            run::report(on_progress, window.ended(), Some(store))?;
        }
        self.check(variants)
    }
    /// Captures nodes with their marks.
    fn captured(&self, variants: &[Variant], nodes: &[BoundNode]) -> Result<TimedGraph> {
        let mut marked = self.marks(variants, nodes)?;
        let launch = || self.launch_between(variants, nodes, &mut marked, CudaEvent::record_in_graph);
        let graph = self.stream().capture(launch)?;
        Ok(TimedGraph { graph, marked })
    }
    /// Returns marks for nodes: as many events, and as much room for counts, as they need.
    fn marks(&self, variants: &[Variant], nodes: &[BoundNode]) -> Result<Marks> {
        let counts: Vec<usize> = nodes.iter().map(|at| self.counts_of(variants, *at).count()).collect();
        let events = 1 + nodes.len() + counts.iter().filter(|&&n| n > 0).count();
        Ok(Marks {
            events: (0..events).map(|_| CudaEvent::timed(&self.gpu)).collect::<Result<_>>()?,
            between: Vec::new(),
            kernels: Vec::new(),
            counts: DeviceBuffer::new(&self.gpu, counts.iter().sum::<usize>() * size_of::<u32>())?,
            counted: Vec::new(),
        })
    }
    /// Returns the counts of live rows that a node computes, each with its address.
    fn counts_of(&self, variants: &[Variant], at: BoundNode) -> impl Iterator<Item = (Var, u64)> {
        let (variant, choices) = (&variants[at.variant], &self.operands[at.variant][at.node]);
        let (node, operands) = (&variant.nodes[at.node].node, &choices[at.run % choices.len()]);
        let outs = node.outs.iter().zip(&operands.outs);
        let written = node.writes.iter().map(|&w| (&node.ins[w], &operands.ins[w]));
        outs.chain(written).filter(|(v, _)| variant.counts(**v)).map(|(v, view)| (*v, view.address))
    }
    /// Launches nodes one after the other, within the profiler ranges of their stages. An event is recorded
    /// before and after each of them, and counts that it computes are copied outside of this time.
    fn launch_between(
        &self,
        variants: &[Variant],
        nodes: &[BoundNode],
        marks: &mut Marks,
        record: Record,
    ) -> Result<()> {
        let (stream, mut stage, mut last) = (self.stream(), StageRange::default(), 0);
        record(&marks.events[0], stream)?;
        for &at in nodes {
            let (planned, launched) = (&variants[at.variant].nodes[at.node], stream.launched());
            stage.enter(planned.stage);
            self.launch(planned, at, 0)?;
            record(&marks.events[last + 1], stream)?;
            marks.between.push([last, last + 1]);
            marks.kernels.push(stream.launched() - launched);
            last += 1;
            let before = marks.counted.len();
            for (v, address) in self.counts_of(variants, at) {
                let to = marks.counts.address() + (marks.counted.len() * size_of::<u32>()) as u64;
                // SAFETY: `marks` has a word for each count, and lives as long as what it marks.
                unsafe { stream.copy_bytes(to, address, size_of::<u32>())? };
                marks.counted.push((at.run, v));
            }
            if marks.counted.len() > before {
                last += 1;
                record(&marks.events[last], stream)?;
            }
        }
        Ok(())
    }
    /// Adds the times of nodes, and their costs at the row counts that they had. `counts` has those of
    /// earlier nodes.
    fn add_times(
        &self,
        variants: &[Variant],
        nodes: &[BoundNode],
        marked: &Marks,
        counts: &mut Counts,
        times: &mut [Vec<NodeTime>],
    ) -> Result<()> {
        let mut words = vec![0u32; marked.counted.len()];
        marked.counts.download(&mut words, self.stream())?;
        counts.extend(marked.counted.iter().copied().zip(words.iter().map(|&count| count as usize)));
        for ((at, &[start, end]), kernels) in nodes.iter().zip(&marked.between).zip(&marked.kernels) {
            let cost = variants[at.variant].nodes[at.node].cost_at(|v| counts.get(&(at.run, v)).copied());
            let time = &mut times[at.variant][at.node];
            time.add(self.seconds(&marked.events[start], &marked.events[end])?, 1, cost);
            time.kernels += kernels;
        }
        Ok(())
    }
}
