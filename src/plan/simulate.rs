//! The simulator: what the lanes would do, and when, if every op took as long as predicted.
use super::{CostModel, Timeline};
use crate::{
    autograd::{LANES, NodeInfo, Program, Schedule, Span},
    error::Result,
};

/// What the lanes would do, and when, in a run of `program` for each entry of `variant_of_run`, its variant; `edges(run, work)` says how many edges a
/// node meets in a run.
///
/// # Errors
/// `Plan`, where lanes would wait for each other.
///
/// # Panics
/// Where there is no such variant.
pub fn predict(
    program: &Program,
    variant_of_run: &[usize],
    model: &CostModel,
    edges: &dyn Fn(usize, &NodeInfo) -> f64,
) -> Result<Timeline> {
    let node_infos: Vec<Vec<NodeInfo>> =
        (0..program.variants()).map(|variant| program.node_infos(variant)).collect();
    let (mut spans, mut known) = (Vec::new(), None::<(&[usize], Schedule)>);
    let (mut began, mut first) = (0.0f64, 0);
    for variants in program.windows(variant_of_run) {
        let schedule = match known.take() {
            Some((before, schedule)) if before == variants => schedule,
            _ => program.schedule(variants)?,
        };
        let of_round =
            simulate(&schedule, (&node_infos, variants), model, &|run, work| edges(first + run, work));
        let later =
            |s: &Span| Span { step: first + s.step, start: began + s.start, end: began + s.end, ..*s };
        spans.extend(of_round.spans().iter().map(later));
        began += of_round.usage().seconds;
        known = Some((variants, schedule));
        first += variants.len();
    }
    Ok(Timeline::new(spans))
}

/// What runs on a lane.
struct Running {
    place: usize,
    work: NodeInfo,
    start: f64,
    /// Predicted seconds that are left of it.
    left: f64,
}

/// The timeline of a schedule whose runs are in variants of these node_infos: a simulation of discrete events. `edges(run, work)` says how many edges
/// a node meets in a run. A node begins when its lane is free and what it waits for is over; beside others it is as much slower as the
/// model says.
pub fn simulate(
    schedule: &Schedule,
    (node_infos, variant_of_run): (&[Vec<NodeInfo>], &[usize]),
    model: &CostModel,
    edges: &dyn Fn(usize, &NodeInfo) -> f64,
) -> Timeline {
    let (mut over, mut now) = ([0; LANES], 0.0);
    let mut running: [Option<Running>; LANES] = [None, None];
    let mut spans = Vec::with_capacity(schedule.0.iter().map(Vec::len).sum());
    loop {
        for lane in 0..LANES {
            let next = schedule.0[lane].get(over[lane]);
            if let (None, Some(step)) = (&running[lane], next.filter(|step| step.after <= over[1 - lane])) {
                let work = node_infos[variant_of_run[step.run]][step.node];
                let left = model.seconds(&work, edges(step.run, &work));
                running[lane] = Some(Running { place: over[lane], work, start: now, left });
            }
        }
        let resources = [0, 1].map(|lane| running[lane].as_ref().map(|r| r.work.resource as usize));
        // Seconds that a predicted second takes.
        let factor = |lane: usize| {
            let company = resources[1 - lane].map_or(0, |other| 1 + other);
            resources[lane].map_or(1.0, |own| model.in_company[own][company])
        };
        let until = |lane: usize| running[lane].as_ref().map(|r| r.left * factor(lane));
        let Some(passes) = [until(0), until(1)].into_iter().flatten().min_by(f64::total_cmp) else { break };
        let factors = [factor(0), factor(1)];
        let ends = [until(0), until(1)].map(|until| until.is_some_and(|u| u <= passes));
        now += passes;
        for lane in 0..LANES {
            if let Some(r) = &mut running[lane] {
                r.left -= passes / factors[lane];
            }
            if let Some(r) = running[lane].take_if(|_| ends[lane]) {
                let step = schedule.0[lane][r.place];
                spans.push(Span { work: r.work, node: step.node, step: step.run, start: r.start, end: now });
                over[lane] += 1;
            }
        }
    }
    Timeline::new(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{Resource, ScheduledNode, Stage},
        ops::{Cost, OpKind, Tag},
        plan::OpCost,
    };

    /// Three nodes: 2 s of memory, 4 s and 1 s of arithmetic.
    fn node_infos([aggregates, multiplies]: [Resource; 2]) -> Vec<NodeInfo> {
        let of = |(op, resource, lane)| {
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
        [("spmm", aggregates, 1), ("linear", multiplies, 0), ("adam", multiplies, 0)].map(of).into()
    }

    /// By what memory is slower beside arithmetic, and the other way round.
    fn model([memory, arithmetic]: [f64; 2]) -> CostModel {
        let op = |seconds| OpCost { seconds_per: [seconds, 0.0, 0.0, 0.0], ..OpCost::default() };
        let ops = [("spmm", op(2.0)), ("linear", op(4.0)), ("adam", op(1.0))];
        let ops = ops.map(|(name, op)| (name.to_owned(), op)).into();
        let mut model = CostModel { ops, ..CostModel::default() };
        let [m, a] = [Resource::Memory as usize, Resource::Arithmetic as usize];
        (model.in_company[m][1 + a], model.in_company[a][1 + m]) = (memory, arithmetic);
        model
    }

    #[test]
    fn lanes_wait_for_what_they_need_and_are_slower_beside_others_as_the_model_says() {
        let step = |run, node, after| ScheduledNode { run, node, after };
        // A product needs its own aggregation; the next one may come meanwhile, the one after that when the first step is over.
        let schedule = Schedule([
            vec![step(0, 1, 1), step(0, 2, 0), step(1, 1, 2), step(1, 2, 0)],
            vec![step(0, 0, 0), step(1, 0, 0), step(2, 0, 2)],
        ]);
        let run = |slower, resources| {
            let timeline =
                simulate(&schedule, (&[node_infos(resources)], &[0; 3]), &model(slower), &|_, _| 0.0);
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
        // An aggregation takes twice as long beside arithmetic.
        let slower = run([2.0, 1.0], two);
        assert_eq!(slower[2], (1, 1, 2.0, 6.0));
        assert_eq!(slower.last(), Some(&(0, 1, 11.0, 12.0)));
        // And a product beside an aggregation: half of it is done when that is over.
        let both = run([1.0, 2.0], two);
        assert_eq!((both[1], both[2]), ((0, 0, 2.0, 7.0), (1, 1, 2.0, 4.0)));
        // Two copies at a time take as long as one after the other.
        let copies = run([1.0, 1.0], [Resource::ToDevice; 2]);
        assert_eq!((copies[1], copies[2]), ((0, 0, 2.0, 8.0), (1, 1, 2.0, 6.0)));
    }
}
