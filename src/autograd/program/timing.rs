//! Times of a program's ops: while it runs, or of single ops by themselves.
use super::{Memory, Program};
use crate::{
    autograd::{
        host::{NodeWatch, ViewBuffers},
        run::NodeTime,
        stages::Stage,
        variant::{PlannedNode, Variant},
    },
    error::Result,
    ops::{Backend, Cost},
    runtime::{Store, Var, cache::CacheFlush, cuda::ProfiledRange},
};
use std::{collections::BTreeMap, time::Instant};

/// Time taken by the runs of an op.
#[derive(Clone, Debug)]
pub struct OpTime {
    /// The op's name.
    pub op: &'static str,
    /// Seconds, of all runs.
    pub seconds: f64,
    /// Median seconds of a run; if the step has several nodes of the op, the mean of their medians.
    pub median: f64,
    /// Bytes and operations of all runs, at their row counts.
    pub cost: Cost,
    /// Number of runs.
    pub runs: usize,
    /// Number of kernels launched, of all runs; 0 on the host.
    pub kernels: usize,
    /// The lane that the op is on when the program is repeated.
    pub lane: usize,
    /// The same by the shapes of its operands, in the order in which they first occur.
    pub shapes: Vec<ShapeTime>,
}

impl OpTime {
    fn new(op: &'static str, lane: usize) -> Self {
        let (cost, shapes) = (Cost::default(), Vec::new());
        OpTime { op, seconds: 0.0, median: 0.0, cost, runs: 0, kernels: 0, lane, shapes }
    }
    /// Adds the times of a node whose operands have a shape.
    fn add(&mut self, time: &NodeTime, shape: String) {
        let at = self.shapes.iter().position(|s| s.shape == shape).unwrap_or_else(|| {
            self.shapes.push(ShapeTime { shape, median: 0.0, cost: Cost::default(), runs: 0 });
            self.shapes.len() - 1
        });
        self.shapes[at].add(time);
        self.median = mean(self.median, self.runs, time);
        self.seconds += time.seconds;
        self.runs += time.runs;
        self.kernels += time.kernels;
        self.cost.bytes += time.cost.bytes;
        self.cost.flops += time.cost.flops;
    }
}

/// Returns the mean of the medians of nodes, given that of those so far, and their number of runs.
fn mean(median: f64, runs: usize, time: &NodeTime) -> f64 {
    (median * runs as f64 + time.median() * time.runs as f64) / (runs + time.runs) as f64
}

/// Time taken by the runs of an op on operands of the same shapes.
#[derive(Clone, Debug)]
pub struct ShapeTime {
    /// The shapes of inputs and outputs, as in `600x100 100x100 -> 600x100`: rows that there is room for,
    /// times columns.
    pub shape: String,
    /// Median seconds of a run; if the step has several such nodes, the mean of their medians.
    pub median: f64,
    /// Bytes and operations of all runs, at their row counts.
    pub cost: Cost,
    /// Number of runs.
    pub runs: usize,
}

impl ShapeTime {
    /// Adds the times of a node.
    fn add(&mut self, time: &NodeTime) {
        self.median = mean(self.median, self.runs, time);
        self.cost.bytes += time.cost.bytes;
        self.cost.flops += time.cost.flops;
        self.runs += time.runs;
    }
}

/// Returns the shapes of the operands of a node.
fn shape_of(variant: &Variant, node: &PlannedNode) -> String {
    let listed = |vars: &[Var]| {
        let shape = |v: &Var| {
            let spec = &variant.specs[v.at()];
            format!("{}x{}", spec.rows.capacity, spec.cols)
        };
        vars.iter().map(shape).collect::<Vec<_>>().join(" ")
    };
    format!("{} -> {}", listed(&node.node.ins), listed(&node.node.outs))
}

/// Runs of single ops of a program, on the values that its last run has left.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)] // holds a function
pub struct Alone<'a> {
    /// Whether an op runs, by its name.
    pub op: &'a dyn Fn(&str) -> bool,
    /// Number of runs of each op that are timed together, or one by one if they are cold.
    pub runs: usize,
    /// Number of times that warm runs are timed on a device; the median counts.
    pub timings: usize,
    /// Whether the caches are overwritten before each run, outside of its time. Otherwise they hold what the
    /// run before has left.
    pub cold: bool,
    /// On a device, whether each run is launched by itself, so that profiler ranges enclose its kernels; then
    /// it is not timed.
    pub by_launch: bool,
}

/// What a profile of a program has found so far.
pub(super) struct Profile {
    /// By variant and node.
    times: Vec<Vec<NodeTime>>,
    /// Number of runs before the first one that is timed.
    warm_up: usize,
    /// Whether launches of a device stay single ones.
    by_launch: bool,
    /// Whether the timed runs are what a profiler records.
    is_recorded: bool,
    /// The range of the profiler, once it has begun.
    range: Option<ProfiledRange>,
}

impl Profile {
    /// Returns the times, to be added to.
    pub fn times(&mut self) -> &mut [Vec<NodeTime>] {
        &mut self.times
    }
    /// Returns the times, to be added to, and whether launches stay single ones.
    pub fn launches(&mut self) -> (&mut [Vec<NodeTime>], bool) {
        (&mut self.times, self.by_launch)
    }
}

impl Program {
    /// Starts to time every op, which costs a few percent; see [`op_times`](Self::op_times). On a device, the
    /// ops of 16 to 32 steps are captured into graphs that record times between them: the times are
    /// those of the device, not the rate at which the host launches.
    pub fn profile(&mut self) {
        let times = self.variants.iter().map(|f| vec![NodeTime::default(); f.nodes.len()]).collect();
        let profile = Profile { times, warm_up: 0, by_launch: false, is_recorded: false, range: None };
        self.profile = Some(profile);
    }
    /// Starts to time every op as [`profile`](Self::profile) does, after `warm_up` runs that are as without a
    /// profile. The timed runs are the range that profilers record, up to
    /// [`end_profile`](Self::end_profile). If `by_launch`, ops are launched one by one on a device, so that
    /// each is within the profiler ranges of its stage and its name; times then include the host's launches.
    pub fn profile_after(&mut self, warm_up: usize, by_launch: bool) {
        self.profile();
        if let Some(profile) = &mut self.profile {
            (profile.warm_up, profile.by_launch, profile.is_recorded) = (warm_up, by_launch, true);
        }
    }
    /// Ends a profile and the range of profilers. Returns the times by op, slowest first.
    pub fn end_profile(&mut self) -> Vec<OpTime> {
        let times = self.op_times();
        self.profile = None;
        times
    }
    /// Whether every op is timed. Then one op runs at a time, whatever its lane.
    pub fn is_profiled(&self) -> bool {
        self.profile.is_some()
    }
    /// Returns how many of the next `runs` runs only warm up, and counts them.
    pub(super) fn warm_up(&mut self, runs: usize) -> usize {
        let Some(profile) = &mut self.profile else { return 0 };
        let warm_up = profile.warm_up.min(runs);
        profile.warm_up -= warm_up;
        warm_up
    }
    /// Begins the range of profilers, if timed runs are next and are to be recorded.
    pub(super) fn begin_profile(&mut self) -> Result<()> {
        if let (Some(profile), Backend::Cuda(gpu)) = (&mut self.profile, &self.backend)
            && profile.is_recorded
            && profile.range.is_none()
        {
            profile.range = Some(ProfiledRange::begin(gpu)?);
        }
        Ok(())
    }
    /// Runs single ops by themselves, on the values of the last [`run`](Self::run), and returns their times,
    /// slowest op first. On the host, the other ops of the program run, too, before and between them, and are
    /// not timed. `prepare` is called before runs that are timed together; it may write the store.
    ///
    /// # Errors
    /// As [`run`](Self::run); those of `prepare`.
    pub fn time_alone(
        &mut self,
        store: &mut Store,
        alone: &Alone<'_>,
        prepare: &mut dyn FnMut(&mut Store) -> Result<()>,
    ) -> Result<Vec<OpTime>> {
        self.check(store)?;
        self.kept = false;
        let times = match &mut self.memory {
            Memory::Device(d) => d.alone(&self.variants, store, alone, prepare)?,
            Memory::Host(_) => self.time_on_host(store, alone, prepare)?,
        };
        Ok(self.by_op(&[times]))
    }
    /// Runs the whole program `runs` times and times single ops of it.
    fn time_on_host(
        &mut self,
        store: &mut Store,
        alone: &Alone<'_>,
        prepare: &mut dyn FnMut(&mut Store) -> Result<()>,
    ) -> Result<Vec<NodeTime>> {
        let Memory::Host(host) = &mut self.memory else { return Ok(Vec::new()) };
        let nodes = &self.variants[0].nodes;
        let is_timed = |planned: &PlannedNode| (alone.op)(planned.node.op.name());
        let mut times = vec![NodeTime::default(); nodes.len()];
        let (mut flush, mut views) = (alone.cold.then(CacheFlush::new), ViewBuffers::default());
        for _ in 0..alone.runs {
            prepare(store)?;
            let bound = host.bind(&self.variants[..1], store, &self.backend, self.precision)?;
            let mut before = |planned: &PlannedNode| {
                if let Some(flush) = flush.as_mut().filter(|_| is_timed(planned)) {
                    flush.flush();
                }
            };
            let mut after = |node: usize, start: Instant, end: Instant, cost: Cost| {
                if is_timed(&nodes[node]) {
                    times[node].add((end - start).as_secs_f64(), 1, cost);
                }
            };
            let mut watch = NodeWatch { before: &mut before, after: &mut after };
            bound[0].run_all(Some(&mut watch), &mut views)?;
        }
        Ok(times)
    }
    /// Returns the times by op since [`profile`](Self::profile), slowest op first.
    pub fn op_times(&self) -> Vec<OpTime> {
        self.profile.as_ref().map_or_else(Vec::new, |profile| self.by_op(&profile.times))
    }
    /// Returns the seconds by stage and lane since [`profile`](Self::profile), in the order of the stages.
    pub fn stage_times(&self) -> Vec<(Stage, usize, f64)> {
        let mut seconds: BTreeMap<(Stage, usize), f64> = BTreeMap::new();
        let nodes = self.variants.iter().flat_map(|variant| &variant.nodes);
        let times = self.profile.iter().flat_map(|profile| profile.times.iter().flatten());
        for (p, time) in nodes.zip(times) {
            *seconds.entry((p.stage, p.placement.lane)).or_default() += time.seconds;
        }
        seconds.into_iter().map(|((stage, lane), seconds)| (stage, lane, seconds)).collect()
    }
    /// Adds up the times of nodes by op and lane, and by shape.
    fn by_op(&self, times: &[Vec<NodeTime>]) -> Vec<OpTime> {
        let mut by_op: Vec<OpTime> = Vec::new();
        let timed = self.variants.iter().zip(times).flat_map(|(variant, times)| {
            variant.nodes.iter().zip(times).map(move |(node, time)| (variant, node, time))
        });
        for (variant, p, time) in timed.filter(|(.., time)| time.runs > 0) {
            let (op, lane) = (p.node.op.name(), p.placement.lane);
            let at = by_op.iter().position(|t| t.op == op && t.lane == lane).unwrap_or_else(|| {
                by_op.push(OpTime::new(op, lane));
                by_op.len() - 1
            });
            by_op[at].add(time, shape_of(variant, p));
        }
        by_op.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        by_op
    }
}
