//! The simulator: predicts when each lane would execute each node, from the predicted times of the ops.
use super::{CostModel, Timeline};
use crate::{
    autograd::{MAX_LANES, NodeInfo, Program, Schedule, ScheduledNode, Span},
    error::Result,
};

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
    let node_infos: Vec<Vec<NodeInfo>> =
        (0..program.variants()).map(|variant| program.node_infos(variant)).collect();
    let (mut spans, mut last) = (Vec::new(), None::<(&[usize], Schedule)>);
    let (mut began, mut first_run) = (0.0f64, 0);
    for variants in program.windows(variant_of_run) {
        // Successive windows often have the same variants and can share a schedule.
        let schedule = match last.take() {
            Some((before, schedule)) if before == variants => schedule,
            _ => program.schedule(variants)?,
        };
        let window_edges = |run: usize, node: &NodeInfo| edges(first_run + run, node);
        let window = simulate(&schedule, &node_infos, variants, model, &window_edges);
        let shifted =
            |s: &Span| Span { step: first_run + s.step, start: began + s.start, end: began + s.end, ..*s };
        spans.extend(window.spans().iter().map(shifted));
        began += window.usage().seconds;
        last = Some((variants, schedule));
        first_run += variants.len();
    }
    Ok(Timeline::new(spans))
}

/// The node that runs on a lane.
struct Running {
    /// Index of the node in the lane's list.
    index: usize,
    node_info: NodeInfo,
    start: f64,
    /// Remaining seconds of its prediction.
    left: f64,
}

/// Simulates a schedule by discrete events. `variant_of_run` holds the variant of each run, and `node_infos`
/// the nodes of each variant; `edges(run, node)` returns the number of edges that a node processes in a run.
/// A node starts when its lane is free and the nodes that it waits for have finished. While several lanes run
/// a node, each is slowed down by the model's contention factors.
pub fn simulate(
    schedule: &Schedule,
    node_infos: &[Vec<NodeInfo>],
    variant_of_run: &[usize],
    model: &CostModel,
    edges: &dyn Fn(usize, &NodeInfo) -> f64,
) -> Timeline {
    let (mut finished, mut now) = ([0; MAX_LANES], 0.0);
    let mut running: [Option<Running>; MAX_LANES] = [const { None }; MAX_LANES];
    let mut spans = Vec::with_capacity(schedule.0.iter().map(Vec::len).sum());
    loop {
        for lane in 0..MAX_LANES {
            let next = schedule.0[lane].get(finished[lane]);
            let ready = next.filter(|scheduled| scheduled.is_ready(&finished));
            if let (None, Some(scheduled)) = (&running[lane], ready) {
                let node_info = node_infos[variant_of_run[scheduled.run]][scheduled.node];
                let left = model.seconds(&node_info, edges(scheduled.run, &node_info));
                running[lane] = Some(Running { index: finished[lane], node_info, start: now, left });
            }
        }
        let resources = running.each_ref().map(|running| Some(running.as_ref()?.node_info.resource));
        // Simulated seconds per predicted second.
        let factors: [f64; MAX_LANES] = std::array::from_fn(|lane| {
            let others = resources.iter().enumerate().filter(|&(other, _)| other != lane);
            resources[lane].map_or(1.0, |own| model.contention_of(own, others.filter_map(|other| *other.1)))
        });
        let seconds_left = |lane: usize| Some(running[lane].as_ref()?.left * factors[lane]);
        let left: [Option<f64>; MAX_LANES] = std::array::from_fn(seconds_left);
        let Some(passed) = left.into_iter().flatten().min_by(f64::total_cmp) else { break };
        let ends = left.map(|left| left.is_some_and(|left| left <= passed));
        now += passed;
        for lane in 0..MAX_LANES {
            if let Some(r) = &mut running[lane] {
                r.left -= passed / factors[lane];
            }
            if let Some(r) = running[lane].take_if(|_| ends[lane]) {
                let ScheduledNode { run, node, .. } = schedule.0[lane][r.index];
                spans.push(Span { node_info: r.node_info, node, step: run, start: r.start, end: now });
                finished[lane] += 1;
            }
        }
    }
    Timeline::new(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{Resource, Stage},
        ops::{Cost, OpKind, Tag},
        plan::OpCost,
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
            let (node_infos, model) = ([node_infos(resources)], model(factors));
            let timeline = simulate(&schedule, &node_infos, &[0; 3], &model, &|_, _| 0.0);
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
        let copies = [node_infos([Resource::ToDevice; 2])];
        let timeline = simulate(&three, &copies, &[0], &model([1.0, 1.0]), &|_, _| 0.0);
        assert!(timeline.spans().len() == 3 && timeline.spans().iter().all(|s| s.end == 6.0), "{timeline:?}");
    }
}
