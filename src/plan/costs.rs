//! How long ops take, predicted: a linear regression for each op on what it moves, computes, and on the edges it meets.
//!
//! Source: BLAD (Fu et al. 2023), section 5.2.2: linear regression of an op's time on vertices, edges and widths. Here bytes and operations
//! stand for vertices and widths, as the op's own `cost` gives them; what depends on the data of a step are its edges.
use crate::autograd::{LANES, NodeInfo, Resource, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the regression knows of a run: one, bytes, operations, and edges times columns.
const KNOWN: usize = 4;
/// Sweeps over the coefficients; the sums they minimize are small and convex.
const SWEEPS: usize = 400;
/// How much of a mean square a coefficient costs: sums that several coefficients explain alike are shared out.
const RIDGE: f64 = 1e-6;
/// What ops compete for.
const RESOURCES: usize = Resource::ALL.len();
/// Nobody, or an op that competes for one of them.
const COMPANY: usize = 1 + RESOURCES;
/// Seconds of predictions that must be seen in a company before it is told apart.
const SEEN: f64 = 5e-3;

/// What is known of a run, and its seconds.
type Timed = ([f64; KNOWN], f64);

fn known(work: &NodeInfo, edges: f64) -> [f64; KNOWN] {
    [1.0, work.cost.bytes as f64, work.cost.flops as f64, edges * work.cols as f64]
}

/// The prediction of one op: seconds are `known . seconds_per`, none of which is below 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpCost {
    /// Seconds a run, a byte, an operation, and an edge of a column.
    pub seconds_per: [f64; KNOWN],
    /// Runs that it is fitted to.
    pub runs: usize,
    /// Their mean seconds.
    pub mean: f64,
    /// Mean absolute error over them, as a share of the mean.
    pub error: f64,
}

impl OpCost {
    fn seconds(&self, known: &[f64; KNOWN]) -> f64 {
        self.seconds_per.iter().zip(known).map(|(per, x)| per * x).sum()
    }
    /// The least squares over `runs`, with no coefficient below 0: by coordinate descent.
    fn fitted(runs: &[Timed]) -> Self {
        let n = runs.len() as f64;
        let unit: [f64; KNOWN] =
            std::array::from_fn(|k| runs.iter().map(|r| r.0[k]).fold(0.0, f64::max).max(f64::MIN_POSITIVE));
        let scaled = |r: &Timed, k: usize| r.0[k] / unit[k];
        let moment = |of: &dyn Fn(&Timed) -> f64| runs.iter().map(of).sum::<f64>() / n;
        let square: [[f64; KNOWN]; KNOWN] = std::array::from_fn(|a| {
            std::array::from_fn(|b| {
                moment(&|r| scaled(r, a) * scaled(r, b)) + if a == b { RIDGE } else { 0.0 }
            })
        });
        let right: [f64; KNOWN] = std::array::from_fn(|k| moment(&|r| scaled(r, k) * r.1));
        let mut per = [0.0; KNOWN];
        for _ in 0..SWEEPS {
            for k in 0..KNOWN {
                let others: f64 = (0..KNOWN).filter(|&o| o != k).map(|o| square[k][o] * per[o]).sum();
                per[k] = ((right[k] - others) / square[k][k]).max(0.0);
            }
        }
        let mut fit = OpCost {
            seconds_per: std::array::from_fn(|k| per[k] / unit[k]),
            runs: runs.len(),
            mean: moment(&|r| r.1),
            error: 0.0,
        };
        fit.error = moment(&|r| (fit.seconds(&r.0) - r.1).abs()) / fit.mean.max(f64::MIN_POSITIVE);
        fit
    }
}

/// Predictions for the ops that were seen; others are taken to run as fast as the fastest of their kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// By the op's name.
    pub ops: BTreeMap<String, OpCost>,
    /// Bytes a second, at best.
    pub bytes_per_second: f64,
    /// Operations a second, at best.
    pub flops_per_second: f64,
    /// By what the prediction of an op is multiplied, for what it competes for, in the order of [`Resource::ALL`]: alone, then beside an
    /// op of the other lane that competes for each of these. Where it was not seen, by 1, or by 2 where both want the same and
    /// [one fills it](Resource::is_exclusive).
    pub in_company: [[f64; COMPANY]; RESOURCES],
}

impl Default for CostModel {
    /// Knows nothing.
    fn default() -> Self {
        let (ops, in_company) = (BTreeMap::new(), unseen_company());
        CostModel { ops, bytes_per_second: 0.0, flops_per_second: 0.0, in_company }
    }
}

impl CostModel {
    /// Fitted to runs of ops, for which `edges(span)` says how many edges each met: those of its snapshot, or those that were predicted.
    pub fn fit(spans: &[Span], edges: &dyn Fn(&Span) -> f64) -> Self {
        let mut by_op: BTreeMap<String, Vec<Timed>> = BTreeMap::new();
        let (mut bytes_per_second, mut flops_per_second) = (0f64, 0f64);
        for s in spans {
            let seconds = (s.end - s.start).max(1e-9);
            by_op.entry(s.node_info.op.to_owned()).or_default().push((known(&s.work, edges(s)), seconds));
            bytes_per_second = bytes_per_second.max(s.node_info.cost.bytes as f64 / seconds);
            flops_per_second = flops_per_second.max(s.node_info.cost.flops as f64 / seconds);
        }
        let ops = by_op.into_iter().map(|(op, runs)| (op, OpCost::fitted(&runs))).collect();
        let mut model = CostModel { ops, bytes_per_second, flops_per_second, in_company: unseen_company() };
        model.see_company(spans, edges);
        model
    }
    /// Finds how long ops take beside others, against their predictions, which are means over all company.
    fn see_company(&mut self, spans: &[Span], edges: &dyn Fn(&Span) -> f64) {
        // What ran and what was predicted.
        let mut sums = [[(0.0, 0.0); COMPANY]; RESOURCES];
        for (s, beside) in spans.iter().zip(beside(spans)) {
            let seconds = s.end - s.start;
            let alone = seconds - beside.iter().sum::<f64>();
            // A run that is in two companies tells of neither.
            let most = std::iter::once(alone).chain(beside).position(|share| share >= 0.9 * seconds);
            if let Some(company) = most {
                let sum: &mut (f64, f64) = &mut sums[s.node_info.resource as usize][company];
                (sum.0, sum.1) = (sum.0 + seconds, sum.1 + self.seconds(&s.work, edges(s)));
            }
        }
        for (factor, (ran, predicted)) in self.in_company.iter_mut().flatten().zip(sums.into_iter().flatten())
        {
            if predicted > SEEN {
                *factor = (ran / predicted).clamp(0.25, 4.0);
            }
        }
    }
    /// Predicted seconds of a node that meets so many edges.
    pub fn seconds(&self, work: &NodeInfo, edges: f64) -> f64 {
        match self.ops.get(work.op) {
            Some(op) => op.seconds(&known(work, edges)),
            None => {
                let per = |n: usize, a_second: f64| n as f64 / a_second.max(1.0);
                per(work.cost.bytes, self.bytes_per_second).max(per(work.cost.flops, self.flops_per_second))
            }
        }
    }
    /// Mean absolute error of all predictions, as a share of the time that the ops took.
    pub fn error(&self) -> f64 {
        let of = |f: &dyn Fn(&OpCost) -> f64| {
            self.ops.values().map(|o| f(o) * o.mean * o.runs as f64).sum::<f64>()
        };
        of(&|o| o.error) / of(&|_| 1.0).max(f64::MIN_POSITIVE)
    }
}

/// By what company multiplies predictions while nothing is known of it.
fn unseen_company() -> [[f64; COMPANY]; RESOURCES] {
    let factor = |own: usize, company: usize| {
        if company == own + 1 && Resource::ALL[own].is_exclusive() { 2.0 } else { 1.0 }
    };
    std::array::from_fn(|own| std::array::from_fn(|company| factor(own, company)))
}

/// For each span the seconds in which the other lane ran an op, by what that competes for.
fn beside(spans: &[Span]) -> Vec<[f64; RESOURCES]> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|&a, &b| spans[a].start.total_cmp(&spans[b].start));
    let (mut seconds, mut last): (Vec<[f64; RESOURCES]>, [Option<usize>; LANES]) =
        (vec![[0.0; RESOURCES]; spans.len()], [None; LANES]);
    for at in order {
        let (s, lane) = (&spans[at], spans[at].work.lane);
        last[lane] = Some(at);
        // Each pair that overlaps meets here once, when the later of both begins; it may go on beside what follows.
        if let Some(other) = last[1 - lane] {
            let o = &spans[other];
            let both = (s.end.min(o.end) - s.start).max(0.0);
            seconds[at][o.work.resource as usize] += both;
            seconds[other][s.node_info.resource as usize] += both;
        }
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::Stage,
        ops::{Cost, OpKind, Section, Tag},
    };

    fn work(op: &'static str, kind: OpKind, bytes: usize, flops: usize, lane: usize) -> NodeInfo {
        let section = Section { index: 0, name: "snapshot" };
        let tag = Tag { section: Some(section), backward: false };
        let resource = if kind == OpKind::Nn { Resource::Arithmetic } else { Resource::Memory };
        NodeInfo { op, kind, resource, stage: Stage::Embed, tag, lane, cost: Cost { bytes, flops }, cols: 64 }
    }

    #[test]
    fn a_regression_finds_what_an_op_costs_by_bytes_operations_and_edges() {
        let mut spans = Vec::new();
        let (mut now, edges) = (0.0, |s: &Span| (s.step % 7 * 100) as f64);
        for step in 0..60 {
            let bytes = 1000 * (1 + step % 3);
            for (node, work) in
                [work("spmm", OpKind::Graph, bytes, 0, 0), work("linear", OpKind::Nn, bytes, 64 * 1000, 0)]
                    .into_iter()
                    .enumerate()
            {
                let mut s = Span { work, node, step, start: now, end: now };
                let edges = if node == 0 { edges(&s) } else { 0.0 };
                s.end += 2e-6 + 1e-9 * bytes as f64 + 3e-10 * 64.0 * edges;
                now = s.end;
                spans.push(s);
            }
        }
        let model = CostModel::fit(&spans, &|s| if s.node == 0 { edges(s) } else { 0.0 });
        assert!(model.error() < 0.01, "{model:?}");
        // Between and beyond what was seen.
        let found = model.seconds(&work("spmm", OpKind::Graph, 1500, 0, 1), 1000.0);
        let want = 2e-6 + 1.5e-6 + 3e-10 * 64_000.0;
        assert!((found / want - 1.0).abs() < 0.02, "{found}, want {want}");
        assert_eq!(model.in_company, unseen_company(), "nothing ran beside another");
        let unseen = model.seconds(&work("adam", OpKind::Nn, 3000, 0, 0), 0.0);
        assert!(unseen > 0.0 && unseen < 1e-5, "{unseen}");
        assert_eq!(CostModel::fit(&[], &|_| 0.0).error(), 0.0);
    }

    #[test]
    fn company_that_slows_ops_down_is_told_from_ops_that_are_slow() {
        // Alone a product takes 1 ms, beside an aggregation 2.
        let mut spans = Vec::new();
        for step in 0..40 {
            let start = step as f64;
            let beside = step % 2 == 0;
            let end = start + if beside { 2e-3 } else { 1e-3 };
            spans.push(Span { work: work("linear", OpKind::Nn, 100, 100, 0), node: 0, step, start, end });
            if beside {
                spans.push(Span { work: work("spmm", OpKind::Graph, 100, 0, 1), node: 1, step, start, end });
            }
        }
        let model = CostModel::fit(&spans, &|_| 0.0);
        let linear = work("linear", OpKind::Nn, 100, 100, 0);
        let [alone, beside] = [0, 1].map(|company| {
            model.in_company[Resource::Arithmetic as usize][company] * model.seconds(&linear, 0.0)
        });
        assert!((alone / 1e-3 - 1.0).abs() < 0.01 && (beside / 2e-3 - 1.0).abs() < 0.01, "{model:?}");
    }
}
