//! Times of a program's nodes on a device, and launches for profilers.
use super::{BoundNode, BoundProgram, OnDevice, written};
use crate::{
    autograd::{
        program::Alone,
        run::{self, NodeTime, OnProgress, VariantRuns},
        schedule::ScheduledNode,
        schedule_cache::{CachedSchedule, ScheduleCache},
        stages::StageRange,
        variant::Variant,
        windows::windows,
    },
    error::Result,
    runtime::{
        Store,
        cuda::{CudaEvent, CudaGraph, CudaStream, DeviceBuffer},
    },
};

/// Most nodes that are profiled before the host waits.
const PROFILED: usize = 512;

/// Nodes as a graph that also marks when the first one begins and when each ends: these are times of the
/// device, however long the host takes for a launch.
pub(in crate::autograd) struct TimedGraph {
    graph: CudaGraph,
    marks: Vec<CudaEvent>,
    /// Number of kernels of each node.
    kernels: Vec<usize>,
}

/// Records an event in a stream.
type Record = fn(&CudaEvent, &CudaStream) -> Result<()>;

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
        let flushed =
            alone.cold.then(|| DeviceBuffer::new(&self.gpu, 2 * self.gpu.l2_bytes()?)).transpose()?;
        let together = if alone.cold { 1 } else { alone.runs };
        let timings = if alone.cold || alone.by_launch { alone.runs } else { alone.timings };
        let mut times = vec![NodeTime::default(); nodes.len()];
        let mut stage = StageRange::default();
        for (node, planned) in nodes.iter().enumerate().filter(|(_, p)| (alone.op)(p.node.op.name())) {
            let at = BoundNode { variant: 0, run: 0, node };
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
                match &graph {
                    Some(graph) => times[node].add(bound.time(graph, !alone.cold)?, together),
                    None => {
                        stage.enter(planned.stage);
                        bound.launch(planned, at, 0)?;
                        times[node].runs += 1;
                    }
                }
            }
            times[node].kernels = graph.map_or(0, |graph| graph.kernels.iter().sum::<usize>() * timings);
        }
        self.bind(variants, store)?.synchronize()?;
        Ok(times)
    }
}

impl BoundProgram {
    /// Captures `times` runs of a node, between two marks: nothing stands between the runs.
    fn graph_of(&self, variants: &[Variant], at: BoundNode, times: usize) -> Result<TimedGraph> {
        let (stream, planned) = (self.stream(), &variants[at.variant].nodes[at.node]);
        let marks = self.marks(1)?;
        let launched = stream.launched();
        let graph = stream.capture(|| {
            marks[0].record_in_graph(stream)?;
            (0..times).try_for_each(|_| self.launch(planned, at, 0))?;
            marks[1].record_in_graph(stream)
        })?;
        Ok(TimedGraph { graph, marks, kernels: vec![stream.launched() - launched] })
    }
    /// Returns the seconds between the first two marks of a launch; `warm`: of the second launch in a row.
    fn time(&self, graph: &TimedGraph, warm: bool) -> Result<f64> {
        for _ in 0..=usize::from(warm) {
            // SAFETY: the program owns the memory of its values, the store that of its buffers, and both are
            // borrowed.
            unsafe { graph.graph.launch(self.stream())? };
        }
        self.synchronize()?;
        graph.marks[1].seconds_since(&graph.marks[0])
    }
    /// Returns events for `nodes` nodes: before the first one, and after each.
    fn marks(&self, nodes: usize) -> Result<Vec<CudaEvent>> {
        (0..=nodes).map(|_| CudaEvent::timed(&self.gpu)).collect()
    }
    /// Launches nodes one after the other, within the profiler ranges of their stages, and records a mark
    /// before the first one and after each. Returns the number of kernels of each.
    fn launch_marked(
        &self,
        variants: &[Variant],
        nodes: &[BoundNode],
        marks: &[CudaEvent],
        record: Record,
    ) -> Result<Vec<usize>> {
        let (stream, mut stage) = (self.stream(), StageRange::default());
        record(&marks[0], stream)?;
        let launch = |(&at, end): (&BoundNode, &CudaEvent)| {
            let (planned, launched) = (&variants[at.variant].nodes[at.node], stream.launched());
            stage.enter(planned.stage);
            self.launch(planned, at, 0)?;
            record(end, stream)?;
            Ok(stream.launched() - launched)
        };
        nodes.iter().zip(&marks[1..]).map(launch).collect()
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
        let stream = self.stream();
        self.status.fill(0, stream)?;
        written(runs.variants).for_each(|id| store.changed_on_device(id));
        let launch_marks = self.marks(if by_launch { PROFILED } else { 0 })?;
        for window in windows(runs.variants, runs.variant_of_run, schedules.buffer_depth()) {
            let CachedSchedule { schedule, order, timed, .. } = schedules.of(runs.variants, window)?;
            for (chunk, places) in order.chunks(PROFILED).enumerate() {
                let bound = |&(lane, index): &(usize, usize)| {
                    let ScheduledNode { run, node, .. } = schedule.0[lane][index];
                    BoundNode { variant: window.variant_of_run[run], run, node }
                };
                let nodes: Vec<BoundNode> = places.iter().map(bound).collect();
                if by_launch {
                    let record: Record = CudaEvent::record;
                    let kernels = self.launch_marked(runs.variants, &nodes, &launch_marks, record)?;
                    self.synchronize()?;
                    add_times(times, &nodes, &launch_marks, &kernels)?;
                    continue;
                }
                if chunk == timed.len() {
                    timed.push(self.captured(runs.variants, &nodes)?);
                }
                let TimedGraph { graph, marks, kernels } = &timed[chunk];
                // SAFETY: the program owns the memory of its values, the store that of its buffers, and both
                // are borrowed.
                unsafe { graph.launch(stream)? };
                self.synchronize()?;
                add_times(times, &nodes, marks, kernels)?;
            }
            run::report(on_progress, window.ended(), Some(store))?;
        }
        self.check(runs.variants)
    }
    /// Captures nodes, with a mark before the first one and after each.
    fn captured(&self, variants: &[Variant], nodes: &[BoundNode]) -> Result<TimedGraph> {
        let (marks, mut kernels) = (self.marks(nodes.len())?, Vec::new());
        let graph = self.stream().capture(|| {
            kernels = self.launch_marked(variants, nodes, &marks, CudaEvent::record_in_graph)?;
            Ok(())
        })?;
        Ok(TimedGraph { graph, marks, kernels })
    }
}

/// Adds the times between marks to those of the nodes.
fn add_times(
    times: &mut [Vec<NodeTime>],
    nodes: &[BoundNode],
    marks: &[CudaEvent],
    kernels: &[usize],
) -> Result<()> {
    for ((at, between), kernels) in nodes.iter().zip(marks.windows(2)).zip(kernels) {
        let time = &mut times[at.variant][at.node];
        time.add(between[1].seconds_since(&between[0])?, 1);
        time.kernels += kernels;
    }
    Ok(())
}
