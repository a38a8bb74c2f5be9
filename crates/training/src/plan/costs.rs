//! Predicts how long ops take: for each op a linear regression on the bytes that it moves, its operations and
//! the edges that it processes.
//!
//! Source: BLAD (Fu et al. 2023), section 5.2.2: linear regression of an op's time on vertices, edges and
//! widths. Here bytes and operations, as the op's own `cost` gives them, stand for vertices and widths; edges
//! stand for what depends on the data of a step.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tgnn::autograd::{MAX_LANES, NodeInfo, Resource, Span};

/// Number of regressors: a constant, bytes, operations, and edges times columns.
const REGRESSORS: usize = 4;
/// Sweeps of coordinate descent over the coefficients; the problem is small and convex.
const SWEEPS: usize = 400;
/// Ridge term on the mean squares of the scaled regressors: regressors that explain the same times share
/// them.
const RIDGE: f64 = 1e-6;
/// Number of resources for which ops compete.
const RESOURCES: usize = Resource::ALL.len();
/// Number of contention cases: the op runs alone, or beside an op that competes for one of the resources.
const CONTENTION_CASES: usize = 1 + RESOURCES;
/// Predicted seconds that must have been measured in a contention case before its factor is fitted.
const MIN_CONTENTION_SECONDS: f64 = 5e-3;
/// Smallest and largest contention factor that is fitted.
const MIN_CONTENTION: f64 = 0.25;
const MAX_CONTENTION: f64 = 4.0;

/// Factors on the predictions of ops, by the resource of the op and by contention case.
type Contention = [[f64; CONTENTION_CASES]; RESOURCES];

/// One measured run of an op.
struct TimedRun {
    regressors: [f64; REGRESSORS],
    seconds: f64,
}

fn regressors(node: &NodeInfo, edges: f64) -> [f64; REGRESSORS] {
    [1.0, node.cost.bytes as f64, node.cost.flops as f64, edges * node.cols as f64]
}

/// The prediction for one op: its seconds are the dot product of its regressors and `seconds_per`, whose
/// entries are never negative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpCost {
    /// Seconds per run, per byte, per operation, and per edge and column.
    pub seconds_per: [f64; REGRESSORS],
    /// Number of runs that the prediction is fitted to.
    pub runs: usize,
    /// Mean seconds of these runs.
    pub mean: f64,
    /// Mean absolute error over these runs, as a fraction of `mean`.
    pub error: f64,
}

impl OpCost {
    fn seconds(&self, regressors: &[f64; REGRESSORS]) -> f64 {
        self.seconds_per.iter().zip(regressors).map(|(per, x)| per * x).sum()
    }
    /// Returns the least-squares fit to `runs` without negative coefficients, by coordinate descent.
    fn fitted(runs: &[TimedRun]) -> Self {
        let n = runs.len() as f64;
        let largest = |k: usize| runs.iter().map(|r| r.regressors[k]).fold(0.0, f64::max);
        let unit: [f64; REGRESSORS] = std::array::from_fn(|k| largest(k).max(f64::MIN_POSITIVE));
        let scaled = |r: &TimedRun, k: usize| r.regressors[k] / unit[k];
        let mean = |term: &dyn Fn(&TimedRun) -> f64| runs.iter().map(term).sum::<f64>() / n;
        let square: [[f64; REGRESSORS]; REGRESSORS] = std::array::from_fn(|a| {
            std::array::from_fn(|b| mean(&|r| scaled(r, a) * scaled(r, b)) + if a == b { RIDGE } else { 0.0 })
        });
        let right: [f64; REGRESSORS] = std::array::from_fn(|k| mean(&|r| scaled(r, k) * r.seconds));
        let mut per = [0.0; REGRESSORS];
        for _ in 0..SWEEPS {
            for k in 0..REGRESSORS {
                let others: f64 = (0..REGRESSORS).filter(|&o| o != k).map(|o| square[k][o] * per[o]).sum();
                per[k] = ((right[k] - others) / square[k][k]).max(0.0);
            }
        }
        let mut fit = OpCost {
            seconds_per: std::array::from_fn(|k| per[k] / unit[k]),
            runs: runs.len(),
            mean: mean(&|r| r.seconds),
            error: 0.0,
        };
        let absolute_error = mean(&|r| (fit.seconds(&r.regressors) - r.seconds).abs());
        fit.error = absolute_error / fit.mean.max(f64::MIN_POSITIVE);
        fit
    }
}

/// Predictions for the ops that were measured. Any other op is predicted to run at the highest measured
/// rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Predictions by the op's name.
    pub ops: BTreeMap<String, OpCost>,
    /// Highest measured rate of any op, in bytes per second.
    pub bytes_per_second: f64,
    /// Highest measured rate of any op, in operations per second.
    pub flops_per_second: f64,
    /// Seconds of an op that was not measured, in addition to those that follow from the rates.
    #[serde(default)]
    pub seconds_per_op: f64,
    /// Factors by which contention multiplies the prediction of an op. Rows: the resource for which the op
    /// competes, in the order of [`Resource::ALL`]. Columns: the op runs alone, then beside an op of another
    /// lane that competes for each of these resources. A case that was not measured has factor 1, or 2
    /// if both ops compete for the same [exclusive](Resource::is_exclusive) resource.
    #[serde(rename = "in_company")]
    pub contention: Contention,
}

impl Default for CostModel {
    /// Returns a model without measurements.
    fn default() -> Self {
        let (ops, contention) = (BTreeMap::new(), unseen_contention());
        CostModel { ops, bytes_per_second: 0.0, flops_per_second: 0.0, seconds_per_op: 0.0, contention }
    }
}

impl CostModel {
    /// Fits a model to runs of ops. `edges` returns the number of edges that a run processed: those of its
    /// snapshot, or those that were predicted.
    pub fn fit(spans: &[Span], edges: &dyn Fn(&Span) -> f64) -> Self {
        let mut by_op: BTreeMap<String, Vec<TimedRun>> = BTreeMap::new();
        let (mut bytes_per_second, mut flops_per_second) = (0f64, 0f64);
        for s in spans {
            let (node, seconds) = (&s.node_info, (s.end - s.start).max(1e-9));
            let run = TimedRun { regressors: regressors(node, edges(s)), seconds };
            by_op.entry(node.op.to_owned()).or_default().push(run);
            bytes_per_second = bytes_per_second.max(node.cost.bytes as f64 / seconds);
            flops_per_second = flops_per_second.max(node.cost.flops as f64 / seconds);
        }
        let ops = by_op.into_iter().map(|(op, runs)| (op, OpCost::fitted(&runs))).collect();
        let contention = unseen_contention();
        let mut model =
            CostModel { ops, bytes_per_second, flops_per_second, seconds_per_op: 0.0, contention };
        model.fit_contention(spans, edges);
        model
    }
    /// Fits a model to runs of ops at their live row counts, whatever they processed.
    pub fn fit_live(spans: &[Span]) -> Self {
        let live: Vec<Span> = spans.iter().map(|s| Span { node_info: s.live(), ..*s }).collect();
        Self::fit(&live, &|_| 0.0)
    }
    /// Returns the model of a device of which only the rates are known. Two ops at a time that are bound by
    /// the same resource take twice as long.
    pub fn of_rates(bytes_per_second: f64, flops_per_second: f64, seconds_per_op: f64) -> Self {
        let mut model =
            CostModel { bytes_per_second, flops_per_second, seconds_per_op, ..CostModel::default() };
        for resource in [Resource::Memory, Resource::Arithmetic] {
            model.contention[resource as usize][1 + resource as usize] = 2.0;
        }
        model
    }
    /// Fits the contention factors: measured seconds over the predictions of the ops, which are means over
    /// all cases.
    fn fit_contention(&mut self, spans: &[Span], edges: &dyn Fn(&Span) -> f64) {
        // Measured and predicted seconds.
        let mut sums = [[(0.0, 0.0); CONTENTION_CASES]; RESOURCES];
        for (s, beside) in spans.iter().zip(seconds_beside(spans)) {
            let seconds = s.end - s.start;
            let alone = seconds - beside.iter().sum::<f64>();
            // A run that is divided between several cases, or that ran beside several ops at a time, says
            // nothing about any of them.
            let mainly = std::iter::once(alone).chain(beside).position(|in_case| in_case >= 0.9 * seconds);
            if let Some(case) = mainly.filter(|_| alone >= -0.1 * seconds) {
                let sum: &mut (f64, f64) = &mut sums[s.node_info.resource as usize][case];
                (sum.0, sum.1) = (sum.0 + seconds, sum.1 + self.seconds(&s.node_info, edges(s)));
            }
        }
        for (factor, (measured, predicted)) in
            self.contention.iter_mut().flatten().zip(sums.into_iter().flatten())
        {
            if predicted > MIN_CONTENTION_SECONDS {
                *factor = (measured / predicted).clamp(MIN_CONTENTION, MAX_CONTENTION);
            }
        }
    }
    /// Returns the predicted seconds of a node that processes `edges` edges, without contention factors.
    pub fn seconds(&self, node: &NodeInfo, edges: f64) -> f64 {
        match self.ops.get(node.op) {
            Some(op) => op.seconds(&regressors(node, edges)),
            None => {
                let at_rate = |n: usize, per_second: f64| n as f64 / per_second.max(1.0);
                let bytes = at_rate(node.cost.bytes, self.bytes_per_second);
                self.seconds_per_op + bytes.max(at_rate(node.cost.flops, self.flops_per_second))
            }
        }
    }
    /// Returns the factor by which contention multiplies the prediction of an op that competes for `own`
    /// while other lanes run ops that compete for `others`. What each of several others adds is added up.
    pub fn contention_of(&self, own: Resource, others: impl Iterator<Item = Resource>) -> f64 {
        let factors = &self.contention[own as usize];
        let beside = others.map(|other| factors[1 + other as usize]);
        match beside.fold((0, 0.0), |(count, sum), factor| (count + 1, sum + factor)) {
            (0, _) => factors[0],
            (count, sum) => (sum - (count - 1) as f64).max(MIN_CONTENTION),
        }
    }
    /// Returns the mean absolute error of all predictions, as a fraction of the measured time of the ops.
    pub fn error(&self) -> f64 {
        let total = |weight: &dyn Fn(&OpCost) -> f64| {
            self.ops.values().map(|op| weight(op) * op.mean * op.runs as f64).sum::<f64>()
        };
        total(&|op| op.error) / total(&|_| 1.0).max(f64::MIN_POSITIVE)
    }
}

/// Returns the contention factors of a model without measurements.
fn unseen_contention() -> Contention {
    let factor = |resource: usize, case: usize| {
        if case == resource + 1 && Resource::ALL[resource].is_exclusive() { 2.0 } else { 1.0 }
    };
    std::array::from_fn(|resource| std::array::from_fn(|case| factor(resource, case)))
}

/// Returns, for each span, the seconds in which other lanes ran an op, by the resource of that op.
fn seconds_beside(spans: &[Span]) -> Vec<[f64; RESOURCES]> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|&a, &b| spans[a].start.total_cmp(&spans[b].start));
    let mut seconds = vec![[0.0; RESOURCES]; spans.len()];
    let mut last: [Option<usize>; MAX_LANES] = [None; MAX_LANES];
    for at in order {
        let (s, lane) = (&spans[at], spans[at].node_info.lane);
        last[lane] = Some(at);
        // Each pair of overlapping spans is counted once, when the later of the two begins.
        for other in last.into_iter().flatten().filter(|&other| spans[other].node_info.lane != lane) {
            let o = &spans[other];
            let both = (s.end.min(o.end) - s.start).max(0.0);
            seconds[at][o.node_info.resource as usize] += both;
            seconds[other][s.node_info.resource as usize] += both;
        }
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::{
        autograd::Stage,
        ops::{Cost, OpKind, Section, Tag},
    };

    fn node_info(op: &'static str, kind: OpKind, bytes: usize, flops: usize, lane: usize) -> NodeInfo {
        let section = Section { index: 0, name: "snapshot" };
        let tag = Tag { section: Some(section), backward: false };
        let resource = if kind == OpKind::Nn { Resource::Arithmetic } else { Resource::Memory };
        let (stage, cost) = (Stage::Embed, Cost { bytes, flops });
        NodeInfo { op, kind, resource, stage, tag, lane, cost, traffic: None, cols: 64 }
    }

    #[test]
    fn the_regression_recovers_the_cost_of_an_op_per_byte_operation_and_edge() {
        let mut spans = Vec::new();
        let (mut now, edges) = (0.0, |s: &Span| (s.step % 7 * 100) as f64);
        for step in 0..60 {
            let bytes = 1000 * (1 + step % 3);
            let spmm = node_info("spmm", OpKind::Graph, bytes, 0, 0);
            let linear = node_info("linear", OpKind::Nn, bytes, 64 * 1000, 0);
            for (node, node_info) in [spmm, linear].into_iter().enumerate() {
                let mut s = Span { node_info, node, step, start: now, end: now, cost: node_info.cost };
                let edges = if node == 0 { edges(&s) } else { 0.0 };
                s.end += 2e-6 + 1e-9 * bytes as f64 + 3e-10 * 64.0 * edges;
                now = s.end;
                spans.push(s);
            }
        }
        let model = CostModel::fit(&spans, &|s| if s.node == 0 { edges(s) } else { 0.0 });
        assert!(model.error() < 0.01, "{model:?}");
        // Bytes between the measured ones, and more edges than were measured.
        let found = model.seconds(&node_info("spmm", OpKind::Graph, 1500, 0, 1), 1000.0);
        let want = 2e-6 + 1.5e-6 + 3e-10 * 64_000.0;
        assert!((found / want - 1.0).abs() < 0.02, "{found}, want {want}");
        assert_eq!(model.contention, unseen_contention(), "no two ops ran at the same time");
        let unseen = model.seconds(&node_info("adam", OpKind::Nn, 3000, 0, 0), 0.0);
        assert!(unseen > 0.0 && unseen < 1e-5, "{unseen}");
        assert_eq!(CostModel::fit(&[], &|_| 0.0).error(), 0.0);
    }

    #[test]
    fn ops_slowed_down_by_contention_are_told_from_slow_ops() {
        // A product takes 1 ms alone, and 2 ms beside an aggregation.
        let mut spans = Vec::new();
        for step in 0..40 {
            let start = step as f64;
            let beside = step % 2 == 0;
            let end = start + if beside { 2e-3 } else { 1e-3 };
            let linear = node_info("linear", OpKind::Nn, 100, 100, 0);
            spans.push(Span { node_info: linear, node: 0, step, start, end, cost: linear.cost });
            if beside {
                let spmm = node_info("spmm", OpKind::Graph, 100, 0, 1);
                spans.push(Span { node_info: spmm, node: 1, step, start, end, cost: spmm.cost });
            }
        }
        let model = CostModel::fit(&spans, &|_| 0.0);
        let linear = node_info("linear", OpKind::Nn, 100, 100, 0);
        let [alone, beside_memory] = [0, 1 + Resource::Memory as usize]
            .map(|case| model.contention[Resource::Arithmetic as usize][case] * model.seconds(&linear, 0.0));
        assert!((alone / 1e-3 - 1.0).abs() < 0.01, "{model:?}");
        assert!((beside_memory / 2e-3 - 1.0).abs() < 0.01, "{model:?}");
    }
}
