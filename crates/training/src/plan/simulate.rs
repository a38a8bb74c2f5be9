//! The simulator: predicts when each lane of each rank would execute each node.
use super::{CostModel, Timeline};
use std::{ops::Range, sync::Arc};
use tgnn::{
    autograd::{MAX_LANES, NodeInfo, Program, Schedule, ScheduledNode, Span},
    error::Result,
};

/// The schedule of a pass, without the program.
#[derive(Clone, Debug, Default)]
pub struct PassSchedule {
    /// For each variant of the program, its nodes in order.
    pub node_infos: Vec<Vec<NodeInfo>>,
    /// The windows of the pass.
    pub windows: Vec<ScheduledWindow>,
}

/// A window of a pass with its schedule.
#[derive(Clone, Debug, Default)]
pub struct ScheduledWindow {
    /// Index in the pass of the schedule's first run.
    pub first_run: usize,
    /// For each run, the index of its variant.
    pub variant_of_run: Vec<usize>,
    /// The schedule of these runs.
    pub schedule: Arc<Schedule>,
}

impl ScheduledWindow {
    /// Returns the window of a pass of `runs` runs of the first variant.
    pub fn new(runs: usize, schedule: Schedule) -> Self {
        ScheduledWindow { first_run: 0, variant_of_run: vec![0; runs], schedule: Arc::new(schedule) }
    }
}

impl PassSchedule {
    /// Returns the schedule of `program` with one run for each entry of `variant_of_run`, the index of its
    /// variant.
    ///
    /// # Errors
    /// `Plan` if lanes would wait for each other.
    ///
    /// # Panics
    /// If a variant does not exist.
    pub fn new(program: &Program, variant_of_run: &[usize]) -> Result<Self> {
        let node_infos = (0..program.variants()).map(|variant| program.node_infos(variant)).collect();
        let of_pass = program.windows(variant_of_run);
        let mut windows: Vec<ScheduledWindow> = Vec::with_capacity(of_pass.len());
        for (at, &window) in of_pass.iter().enumerate() {
            // Successive windows often are alike and can share a schedule.
            let schedule = match windows.last() {
                Some(before) if window.is_like(of_pass[at - 1]) => Arc::clone(&before.schedule),
                _ => Arc::new(program.schedule(window)?),
            };
            let variant_of_run = window.variant_of_run.to_vec();
            windows.push(ScheduledWindow { first_run: window.first, variant_of_run, schedule });
        }
        Ok(PassSchedule { node_infos, windows })
    }
}

/// The time that nodes take.
pub trait Durations {
    /// Returns the seconds of a node in a run of the pass, on one rank, if no other lane runs an op.
    fn seconds(&self, rank: usize, run: usize, node: usize, info: &NodeInfo) -> f64;
    /// Returns the seconds that a collective takes on each rank once all that take part have reached it.
    fn collective_seconds(&self, _run: usize, _node: usize, _info: &NodeInfo) -> Vec<f64> {
        Vec::new()
    }
    /// Returns the ranks, of `ranks` ranks, that take part in a collective of a rank.
    fn group(&self, _rank: usize, _run: usize, _node: usize, ranks: usize) -> Range<usize> {
        0..ranks
    }
}

/// Seconds by the costs of the nodes.
impl Durations for CostModel {
    fn seconds(&self, _: usize, _: usize, _: usize, info: &NodeInfo) -> f64 {
        self.seconds(info, 0.0)
    }
}

/// Seconds by a cost model, and by the number of edges that a node processes in a run.
struct ByEdges<'a> {
    model: &'a CostModel,
    edges: &'a dyn Fn(usize, &NodeInfo) -> f64,
}

impl Durations for ByEdges<'_> {
    fn seconds(&self, _: usize, run: usize, _: usize, info: &NodeInfo) -> f64 {
        self.model.seconds(info, (self.edges)(run, info))
    }
}

/// Predicts the timeline of `program` with one run for each entry of `variant_of_run`, the index of its
/// variant. `edges(run, node)` returns the number of edges that a node processes in a run.
///
/// # Errors
/// `Plan` if lanes would wait for each other.
///
/// # Panics
/// If a variant does not exist.
pub fn predict(
    program: &Program,
    variant_of_run: &[usize],
    model: &CostModel,
    edges: &dyn Fn(usize, &NodeInfo) -> f64,
) -> Result<Timeline> {
    let pass = PassSchedule::new(program, variant_of_run)?;
    Ok(simulate(&[pass], model, &ByEdges { model, edges }).pop().unwrap_or_default())
}

/// Simulates a pass by discrete events, given the schedule of each rank: the same nodes in the same windows,
/// of which some may be left out. Returns the timeline of each rank.
///
/// A node starts when its lane is free and the nodes that it waits for have finished. While several lanes of
/// a rank run a node, each is slowed down by the contention factors of `model`. If there are several ranks, a
/// node that communicates proceeds once all ranks have reached it; its span begins when its own rank has.
pub fn simulate(passes: &[PassSchedule], model: &CostModel, durations: &dyn Durations) -> Vec<Timeline> {
    let mut simulated = vec![SimulatedRank::default(); passes.len()];
    let windows = passes.iter().map(|pass| pass.windows.len()).min().unwrap_or(0);
    for window in 0..windows {
        Window { passes, window, model, durations }.simulate(&mut simulated);
    }
    simulated.into_iter().map(|rank| Timeline::new(rank.spans)).collect()
}

/// The node that runs on a lane.
#[derive(Clone, Debug)]
struct Running {
    scheduled: ScheduledNode,
    node_info: NodeInfo,
    /// When the lane reached the node.
    start: f64,
    /// When the node proceeds: infinite while it waits for other ranks.
    proceeds: f64,
    /// Remaining seconds of its prediction.
    left: f64,
}

/// What has happened on a rank so far.
#[derive(Clone, Debug, Default)]
struct SimulatedRank {
    now: f64,
    /// Number of nodes of the window that each lane has finished.
    finished: [usize; MAX_LANES],
    running: [Option<Running>; MAX_LANES],
    spans: Vec<Span>,
}

impl SimulatedRank {
    /// Whether a lane waits for other ranks at a node of a run.
    fn waits_at(&self, lane: usize, at: (usize, usize)) -> bool {
        self.running[lane].as_ref().is_some_and(|running| {
            let ScheduledNode { run, node, .. } = running.scheduled;
            (run, node) == at && running.proceeds == f64::INFINITY
        })
    }
    /// Returns, for each lane, the factor by which contention slows down its node; `None` if it runs none
    /// that proceeds.
    fn factors(&self, model: &CostModel) -> [Option<f64>; MAX_LANES] {
        let proceeds = |running: &&Running| running.proceeds <= self.now;
        let resource =
            |running: &Option<Running>| Some(running.as_ref().filter(proceeds)?.node_info.resource);
        let resources = self.running.each_ref().map(resource);
        std::array::from_fn(|lane| {
            let others = resources.iter().enumerate().filter(|&(other, _)| other != lane);
            Some(model.contention_of(resources[lane]?, others.filter_map(|(_, other)| *other)))
        })
    }
    /// Returns the seconds until the node of a lane ends, or until it proceeds.
    fn seconds_to_change(&self, lane: usize, factor: Option<f64>) -> Option<f64> {
        let running = self.running[lane].as_ref()?;
        Some(factor.map_or(running.proceeds - self.now, |factor| running.left * factor))
    }
    /// Returns the seconds until a node ends or proceeds; infinite if none will.
    fn seconds_to_next_change(&self, model: &CostModel) -> f64 {
        let factors = self.factors(model);
        let each = (0..MAX_LANES).filter_map(|lane| self.seconds_to_change(lane, factors[lane]));
        each.fold(f64::INFINITY, f64::min)
    }
    /// Goes on to the next end of a node, or the next time at which one proceeds.
    fn go_on(&mut self, model: &CostModel) {
        let (factors, passed) = (self.factors(model), self.seconds_to_next_change(model));
        let ends = |lane: usize| self.seconds_to_change(lane, factors[lane]).is_some_and(|s| s <= passed);
        let ends: [bool; MAX_LANES] = std::array::from_fn(|lane| factors[lane].is_some() && ends(lane));
        self.now += passed;
        for lane in 0..MAX_LANES {
            if let (Some(running), Some(factor)) = (&mut self.running[lane], factors[lane]) {
                running.left -= passed / factor;
            }
            if let Some(running) = self.running[lane].take_if(|_| ends[lane]) {
                let Running { scheduled: ScheduledNode { run, node, .. }, node_info, start, .. } = running;
                let (end, cost) = (self.now, node_info.cost);
                self.spans.push(Span { node_info, node, step: run, start, end, cost });
                self.finished[lane] += 1;
            }
        }
    }
}

/// Runs that are scheduled together. At the end of a window, the lanes of a rank wait for each other.
struct Window<'a> {
    passes: &'a [PassSchedule],
    /// Index of the window.
    window: usize,
    model: &'a CostModel,
    durations: &'a dyn Durations,
}

impl Window<'_> {
    /// Simulates the window on all ranks, each of which begins when it has finished the window before.
    fn simulate(&self, ranks: &mut [SimulatedRank]) {
        for rank in 0..ranks.len() {
            ranks[rank].finished = [0; MAX_LANES];
            self.start(ranks, rank);
        }
        loop {
            let next = ranks
                .iter()
                .enumerate()
                .map(|(rank, r)| (rank, r.now + r.seconds_to_next_change(self.model)));
            match next.min_by(|a, b| a.1.total_cmp(&b.1)) {
                Some((rank, time)) if time.is_finite() => {
                    ranks[rank].go_on(self.model);
                    self.start(ranks, rank);
                }
                _ => return,
            }
        }
    }
    /// Starts the nodes of a rank whose lanes are free and that wait for no other node.
    fn start(&self, ranks: &mut [SimulatedRank], rank: usize) {
        for lane in 0..MAX_LANES {
            let SimulatedRank { finished, running, .. } = &ranks[rank];
            let PassSchedule { node_infos, windows } = &self.passes[rank];
            let ScheduledWindow { first_run, variant_of_run, schedule } = &windows[self.window];
            let next = schedule.0[lane].get(finished[lane]);
            let ready = next.filter(|scheduled| scheduled.is_ready(finished));
            let (None, Some(&scheduled)) = (&running[lane], ready) else { continue };
            let node_info = node_infos[variant_of_run[scheduled.run]][scheduled.node];
            let scheduled = ScheduledNode { run: first_run + scheduled.run, ..scheduled };
            let ScheduledNode { run, node, .. } = scheduled;
            let is_collective = ranks.len() > 1 && node_info.traffic.is_some();
            let SimulatedRank { running, now, .. } = &mut ranks[rank];
            let (proceeds, left) = match is_collective {
                true => (f64::INFINITY, 0.0),
                false => (*now, self.durations.seconds(rank, run, node, &node_info)),
            };
            running[lane] = Some(Running { scheduled, node_info, start: *now, proceeds, left });
            if is_collective {
                let group = self.durations.group(rank, run, node, ranks.len());
                if ranks[group.clone()].iter().all(|rank| rank.waits_at(lane, (run, node))) {
                    let seconds = self.durations.collective_seconds(run, node, &node_info);
                    release(&mut ranks[group.clone()], lane, seconds.get(group).unwrap_or_default());
                }
            }
        }
    }
}

/// Lets the collective of a lane, which all of these ranks have reached, proceed when the last of them has
/// reached it.
fn release(ranks: &mut [SimulatedRank], lane: usize, seconds: &[f64]) {
    let starts = ranks.iter().filter_map(|rank| Some(rank.running[lane].as_ref()?.start));
    let last = starts.fold(0.0, f64::max);
    for (rank, &seconds) in ranks.iter_mut().zip(seconds) {
        if let Some(running) = &mut rank.running[lane] {
            (running.proceeds, running.left) = (last, seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::OpCost;
    use tgnn::{
        autograd::{Resource, Stage},
        ops::{Cost, OpKind, Tag},
        runtime::comm::TrafficKind,
    };

    /// Returns three nodes: an aggregation on the second lane, a product and an update on the first.
    fn node_infos([aggregation, product]: [Resource; 2]) -> Vec<NodeInfo> {
        let node_info = |(op, resource, lane)| {
            let cost = Cost { bytes: 1, flops: 1 };
            NodeInfo {
                op,
                kind: OpKind::Graph,
                resource,
                stage: Stage::Embed,
                tag: Tag::default(),
                lane,
                cost,
                traffic: None,
                cols: 1,
            }
        };
        [("spmm", aggregation, 1), ("linear", product, 0), ("adam", product, 0)].map(node_info).into()
    }

    /// Returns a model in which the aggregation takes 2 s, the product 4 s and the update 1 s. `memory` is
    /// the factor for memory ops beside arithmetic, `arithmetic` the factor for arithmetic beside memory ops.
    fn model([memory, arithmetic]: [f64; 2]) -> CostModel {
        let op = |seconds| OpCost { seconds_per: [seconds, 0.0, 0.0, 0.0], ..OpCost::default() };
        let ops = [("spmm", op(2.0)), ("linear", op(4.0)), ("adam", op(1.0))];
        let ops = ops.map(|(name, op)| (name.to_owned(), op)).into();
        let mut model = CostModel { ops, ..CostModel::default() };
        let [m, a] = [Resource::Memory as usize, Resource::Arithmetic as usize];
        (model.contention[m][1 + a], model.contention[a][1 + m]) = (memory, arithmetic);
        model
    }

    /// Simulates a schedule of `runs` runs on one rank.
    fn on_one_rank(
        schedule: &Schedule,
        runs: usize,
        resources: [Resource; 2],
        model: &CostModel,
    ) -> Timeline {
        let windows = vec![ScheduledWindow::new(runs, schedule.clone())];
        let pass = PassSchedule { node_infos: vec![node_infos(resources)], windows };
        simulate(&[pass], model, model).remove(0)
    }

    #[test]
    fn lanes_wait_for_what_they_need_and_are_slowed_down_by_contention() {
        let scheduled = |run, node, nodes: [usize; 2]| {
            let mut after = [0; MAX_LANES];
            [after[0], after[1]] = nodes;
            ScheduledNode { run, node, after }
        };
        // A product needs the aggregation of its own step. The second aggregation may run meanwhile, the
        // third one once the first step is over.
        let mut schedule = Schedule::default();
        let (product, update) = (|run| scheduled(run, 1, [0, run + 1]), |run| scheduled(run, 2, [0, 0]));
        schedule.0[0] = vec![product(0), update(0), product(1), update(1)];
        schedule.0[1] = vec![scheduled(0, 0, [0, 0]), scheduled(1, 0, [0, 0]), scheduled(2, 0, [2, 0])];
        // Lane, step, start and end of each run of a node.
        let run = |factors, resources| {
            let timeline = on_one_rank(&schedule, 3, resources, &model(factors));
            let spans = timeline.spans().iter().map(|s| (s.node_info.lane, s.step, s.start, s.end));
            spans.collect::<Vec<_>>()
        };
        let want = [
            (1, 0, 0.0, 2.0),
            (0, 0, 2.0, 6.0),
            (1, 1, 2.0, 4.0),
            (0, 0, 6.0, 7.0),
            (0, 1, 7.0, 11.0),
            (1, 2, 7.0, 9.0),
            (0, 1, 11.0, 12.0),
        ];
        let two = [Resource::Memory, Resource::Arithmetic];
        assert_eq!(run([1.0, 1.0], two), want);
        // Aggregations take twice as long beside arithmetic.
        let slower = run([2.0, 1.0], two);
        assert_eq!(slower[2], (1, 1, 2.0, 6.0));
        assert_eq!(slower.last(), Some(&(0, 1, 11.0, 12.0)));
        // Products take twice as long beside aggregations: the first one has an aggregation beside it for 2 s
        // and takes 5 s instead of 4.
        let both = run([1.0, 2.0], two);
        assert_eq!((both[1], both[2]), ((0, 0, 2.0, 7.0), (1, 1, 2.0, 4.0)));
        // Two copies at a time take as long as one after the other: the link is exclusive.
        let copies = run([1.0, 1.0], [Resource::ToDevice; 2]);
        assert_eq!((copies[1], copies[2]), ((0, 0, 2.0, 8.0), (1, 1, 2.0, 6.0)));
        // Three copies of 2 s at a time, on three lanes, take as long as one after the other.
        let mut three = Schedule::default();
        three.0[..3].fill(vec![scheduled(0, 0, [0, 0])]);
        let timeline = on_one_rank(&three, 1, [Resource::ToDevice; 2], &model([1.0, 1.0]));
        assert!(timeline.spans().len() == 3 && timeline.spans().iter().all(|s| s.end == 6.0), "{timeline:?}");
    }

    /// Nodes take 4 s on the first rank of each group and 2 s on the second, collectives 3 s and 1 s. The
    /// second group takes a quarter of that.
    struct Uneven {
        group: usize,
    }

    impl Durations for Uneven {
        fn seconds(&self, rank: usize, _: usize, _: usize, _: &NodeInfo) -> f64 {
            [4.0, 2.0, 1.0, 0.5][rank]
        }
        fn collective_seconds(&self, _: usize, _: usize, _: &NodeInfo) -> Vec<f64> {
            vec![3.0, 1.0, 0.75, 0.25]
        }
        fn group(&self, rank: usize, _: usize, _: usize, _: usize) -> Range<usize> {
            rank / self.group * self.group..(rank / self.group + 1) * self.group
        }
    }

    #[test]
    fn a_collective_proceeds_once_the_last_rank_has_reached_it() {
        let scheduled = |run, node, first: usize| {
            let mut after = [0; MAX_LANES];
            after[0] = first;
            ScheduledNode { run, node, after }
        };
        // On the first lane, a product. On the second one, an aggregation that is sent and needs the product.
        let mut schedule = Schedule::default();
        schedule.0[0] = vec![scheduled(0, 1, 0), scheduled(1, 1, 0)];
        schedule.0[1] = vec![scheduled(0, 0, 1), scheduled(1, 0, 2)];
        let mut infos = node_infos([Resource::Links, Resource::Arithmetic]);
        infos[0].traffic = Some(TrafficKind::Dispatch);
        let window = ScheduledWindow::new(2, schedule.clone());
        let twice = vec![window.clone(), ScheduledWindow { first_run: 2, ..window }];
        let pass = PassSchedule { node_infos: vec![infos.clone()], windows: twice };
        let spans = |timeline: &Timeline| {
            let spans = timeline.spans().iter().map(|s| (s.node_info.lane, s.step, s.start, s.end));
            spans.collect::<Vec<_>>()
        };
        let uneven = Uneven { group: 2 };
        let [first, second] = &simulate(&vec![pass.clone(); 2], &model([1.0, 1.0]), &uneven)[..] else {
            panic!("two ranks")
        };
        // The second rank reaches the collectives at 2 and 4 s, and waits for the first rank until 4 and 8 s.
        let want = [(0, 0, 0.0, 4.0), (0, 1, 4.0, 8.0), (1, 0, 4.0, 7.0), (1, 1, 8.0, 11.0)];
        assert_eq!(spans(first)[..4], want);
        let want = [(0, 0, 0.0, 2.0), (0, 1, 2.0, 4.0), (1, 0, 2.0, 5.0), (1, 1, 5.0, 9.0)];
        assert_eq!(spans(second)[..4], want);
        // The second window begins on each rank when its first one is over.
        assert_eq!((spans(first)[4].2, spans(second)[4].2), (11.0, 9.0));
        assert_eq!((spans(first)[4].1, spans(first).len(), spans(second).len()), (2, 8, 8));
        // Groups of ranks wait for their own ranks alone, all four for the slowest.
        let ends = |group| {
            let ranks = simulate(&vec![pass.clone(); 4], &model([1.0, 1.0]), &Uneven { group });
            ranks.iter().map(|rank| rank.spans().last().map(|s| s.end).unwrap()).collect::<Vec<_>>()
        };
        let (in_pairs, together) = (ends(2), ends(4));
        assert_eq!((in_pairs[0], in_pairs[2]), (4.0 * in_pairs[2], in_pairs[0] / 4.0));
        assert!(together[2] > 2.0 * in_pairs[2] && together[0] == in_pairs[0], "{in_pairs:?} {together:?}");
        // A single rank waits for nobody, and sends nothing.
        let alone = simulate(std::slice::from_ref(&pass), &model([1.0, 1.0]), &uneven);
        assert_eq!(alone[0].spans().iter().map(|s| s.end).fold(0.0, f64::max), 2.0 * (4.0 + 4.0 + 4.0));
    }
}
