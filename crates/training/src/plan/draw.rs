//! Drawings of lanes as text: three steps, or three groups, of a plan; and timelines to scale.
use super::{
    CostModel, OpCost, PassSchedule, Plan, ScheduledWindow, Timeline, needs::stage_schedule, simulate,
};
use std::fmt::Write;
use tgnn::{
    autograd::{MAX_LANES, NodeInfo, Resource, Schedule, ScheduledNode, Stage},
    ops::{Cost, OpKind, Section, Tag},
};

/// Number of steps, or groups, that are drawn.
const STEPS: usize = 3;
/// Seconds per column of a plan's drawing, in which a second is the unit of [`units`].
const COLUMN: f64 = 0.5;

/// Returns the rough relative duration of a stage, for drawings only. Only `over_ranks` do ranks communicate.
fn units(stage: Stage, over_ranks: bool) -> f64 {
    match stage {
        Stage::Route | Stage::Dispatch | Stage::Aggregate | Stage::ReduceGradients if !over_ranks => 0.0,
        Stage::Sample | Stage::FetchFeatures => 5.0,
        Stage::Embed => 10.0,
        Stage::FetchMemory | Stage::UpdateMemory | Stage::WriteMemory | Stage::Step => 4.0,
        Stage::Route | Stage::Dispatch | Stage::Aggregate | Stage::ReduceGradients => 4.0,
        Stage::WeightGrads => 6.0,
    }
}

/// Returns a short name of a stage.
fn short(stage: Stage) -> &'static str {
    match stage {
        Stage::FetchFeatures => "features",
        Stage::FetchMemory => "memory",
        Stage::UpdateMemory => "update",
        Stage::WriteMemory => "write",
        Stage::WeightGrads => "weights",
        Stage::ReduceGradients => "reduce",
        stage => stage.name(),
    }
}

/// Returns the label of a node's block: the direction of the pass if the node belongs to a section, otherwise
/// the stage.
fn label_of(node: &NodeInfo) -> &'static str {
    match node.tag {
        Tag { section: None, .. } => short(node.stage),
        Tag { backward: true, .. } => "backward",
        Tag { backward: false, .. } => "forward",
    }
}

/// Returns a node to draw. The simulator looks up its duration by `op`.
fn block(op: &'static str, stage: Stage, tag: Tag, lane: usize) -> NodeInfo {
    let (kind, resource, cost) = (OpKind::Nn, Resource::Arithmetic, Cost::default());
    NodeInfo { op, kind, resource, stage, tag, lane, cost, traffic: None, cols: 1 }
}

impl Plan {
    /// Draws three steps, or three groups, of the plan: one line per lane. Lengths are illustrative, not
    /// measured. The stages of node memory are drawn whether or not a model has node memory.
    pub fn drawing(&self) -> String {
        let drawn = if self.groups.is_some() { Some(groups()) } else { self.steps() };
        let Some((schedule, blocks)) = drawn else { return String::new() };
        let (nodes, ops) = blocks
            .into_iter()
            .map(|(node, units)| {
                let cost = OpCost { seconds_per: [units, 0.0, 0.0, 0.0], ..OpCost::default() };
                (node, (node.op.to_owned(), cost))
            })
            .unzip();
        let model = CostModel { ops, ..CostModel::default() };
        let windows = vec![ScheduledWindow::new(STEPS, schedule)];
        let pass = PassSchedule { node_infos: vec![nodes], windows };
        simulate(&[pass], &model, &model).remove(0).drawing(STEPS, COLUMN)
    }
    /// Returns a schedule of three steps by stages, with its nodes and their durations; `None` if the plan is
    /// illegal.
    fn steps(&self) -> Option<(Schedule, Vec<(NodeInfo, f64)>)> {
        let (placements, needs, staleness) = (self.placements(), self.needs(), self.staleness());
        let least = self.lanes(0, false).buffer_depth();
        // The least buffer depths with which no lane waits for ever.
        let schedule = |more: usize| {
            let depth = least.map(|depth| depth + more);
            let schedule = stage_schedule(&placements, &needs, staleness, STEPS, Some(depth)).ok()?;
            schedule.linear().is_ok().then_some(schedule)
        };
        let schedule = (0..STEPS).find_map(schedule)?;
        let node = |stage: Stage| {
            let lane = placements[stage as usize].lane;
            (block(stage.name(), stage, Tag::default(), lane), units(stage, self.ranks.is_some()))
        };
        Some((schedule, Stage::ALL.map(node).to_vec()))
    }
}

/// Returns a schedule of three groups of one update on two lanes, with its nodes and their durations.
fn groups() -> (Schedule, Vec<(NodeInfo, f64)>) {
    let section = Some(Section { index: 0, name: "snapshot" });
    let [forward, backward] = [false, true].map(|backward| Tag { section, backward });
    let blocks = vec![
        (block("first lane's forward", Stage::Embed, forward, 0), 5.0),
        (block("second lane's forward", Stage::Embed, forward, 1), 6.0),
        (block("second lane's backward", Stage::Embed, backward, 1), 7.0),
        (block("first lane's backward", Stage::Embed, backward, 0), 7.0),
        (block("step", Stage::Step, Tag::default(), 0), 4.0),
    ];
    // Indices into `blocks`.
    const FIRST_FORWARD: usize = 0;
    const SECOND_FORWARD: usize = 1;
    const SECOND_BACKWARD: usize = 2;
    const FIRST_BACKWARD: usize = 3;
    const UPDATE: usize = 4;
    // Returns a node that waits for this many nodes of each lane.
    let scheduled = |run, node, nodes: [usize; 2]| {
        let mut after = [0; MAX_LANES];
        [after[0], after[1]] = nodes;
        ScheduledNode { run, node, after }
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for group in 0..=STEPS {
        if group < STEPS {
            first.push(scheduled(group, FIRST_FORWARD, [0, 0]));
            let forward = scheduled(group, SECOND_FORWARD, [first.len(), 0]);
            second.extend([forward, scheduled(group, SECOND_BACKWARD, [0, 0])]);
        }
        if let Some(before) = group.checked_sub(1) {
            first.push(scheduled(before, FIRST_BACKWARD, [0, 2 * before + 2]));
        }
    }
    first.push(scheduled(STEPS - 1, UPDATE, [0, 0]));
    let mut schedule = Schedule::default();
    [schedule.0[0], schedule.0[1]] = [first, second];
    (schedule, blocks)
}

impl Timeline {
    /// Returns the seconds from the first start to the last end of the first `steps` steps.
    pub fn seconds_of(&self, steps: usize) -> f64 {
        let spans = || self.spans().iter().filter(|s| s.step < steps);
        let start = spans().map(|s| s.start).fold(f64::INFINITY, f64::min);
        (spans().map(|s| s.end).fold(start, f64::max) - start).max(0.0)
    }
    /// Draws the first `steps` steps to scale: one line per lane, one column per `column` seconds. Blocks
    /// shorter than a column are left out; where a line is blank, its lane waits.
    pub fn drawing(&self, steps: usize, column: f64) -> String {
        let spans = || self.spans().iter().filter(|s| s.step < steps);
        let began = spans().map(|s| s.start).fold(f64::INFINITY, f64::min);
        let at = |seconds: f64| ((seconds - began) / column).round() as usize;
        let mut text = String::new();
        for lane in 0..MAX_LANES {
            // Adjacent nodes with the same label form a block.
            let mut blocks: Vec<(String, usize, usize)> = Vec::new();
            for s in spans().filter(|s| s.node_info.lane == lane) {
                let label = format!("{} {}", label_of(&s.node_info), s.step + 1);
                let (start, end) = (at(s.start), at(s.end));
                match blocks.last_mut().filter(|b| b.0 == label && b.2 + 1 >= start) {
                    Some(block) => block.2 = end,
                    None => blocks.push((label, start, end)),
                }
            }
            let mut line = String::new();
            for (label, start, end) in blocks.into_iter().filter(|b| b.2 > b.1) {
                let column = line.chars().count();
                line.extend(std::iter::repeat_n(' ', start.saturating_sub(column)));
                let width = end.saturating_sub(line.chars().count() + 1);
                let label: String = label.chars().take(width).collect();
                let _ = write!(line, "│{label:─<width$}");
            }
            if !line.is_empty() {
                let _ = writeln!(text, "lane {}  {line}│", lane + 1);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::autograd::Span;

    #[test]
    fn prefetched_stages_are_drawn_beside_the_previous_step() {
        let drawing = |name: &str| Plan::named(name).unwrap().drawing();
        let sequential = drawing("sequential");
        assert_eq!(sequential.lines().count(), 1, "{sequential}");
        let prefetch = drawing("prefetch");
        let column = |what: &str| {
            let line = prefetch.lines().find(|l| l.contains(what)).unwrap_or_default();
            line[..line.find(what).unwrap_or(0)].chars().count()
        };
        // The third step reuses the buffer of the first, so its sampling waits until the first step has
        // finished.
        assert!(
            column("features 2") < column("embed 2") && column("embed 1") < column("sample 3"),
            "{prefetch}"
        );
        // A timeline to scale, two columns per second.
        let span = |lane, stage, step, start, end| {
            let node_info = block("linear", stage, Tag::default(), lane);
            Span { node_info, node: 0, step, start, end, cost: node_info.cost }
        };
        let spans = vec![
            span(0, Stage::Embed, 0, 2.0, 4.0),
            span(0, Stage::Embed, 0, 4.0, 7.0),
            span(0, Stage::Step, 0, 7.0, 7.1),
            span(1, Stage::Sample, 1, 3.0, 6.0),
            span(0, Stage::Embed, 1, 8.0, 10.0),
            span(0, Stage::Embed, 2, 10.0, 11.0),
        ];
        let timeline = Timeline::new(spans);
        assert_eq!(timeline.seconds_of(2), 8.0);
        assert_eq!(timeline.drawing(2, 0.5), "lane 1  │embed 1──  │emb│\nlane 2    │sampl│\n");
        assert_eq!(Timeline::default().drawing(2, 0.5), "");
        let blad = drawing("blad");
        assert!(
            blad.contains("│forward 2") && blad.contains("│backward 3") && blad.lines().count() == 2,
            "{blad}"
        );
    }
}
