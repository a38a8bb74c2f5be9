//! A plan as a small drawing: what the lanes do in three steps, or three groups; and a timeline, to scale.
use super::{At, NEEDS, Plan, Timeline, in_order};
use crate::autograd::{LANES, NodeInfo, Stage};
use std::fmt::Write;

/// Steps, or groups, that are drawn.
const STEPS: usize = 3;
/// Columns of a unit of time.
const UNIT: usize = 2;

/// Something that a lane does.
struct Block {
    label: String,
    units: usize,
    /// Places in the lanes of what it waits for.
    after: Vec<(usize, usize)>,
}

/// About how long stages take beside one another; only to be drawn.
fn units(stage: Stage) -> usize {
    match stage {
        Stage::Sample | Stage::FetchFeatures => 5,
        Stage::Embed => 10,
        Stage::FetchMemory | Stage::UpdateMemory | Stage::WriteMemory | Stage::Step => 4,
        Stage::WeightGrads => 6,
    }
}

fn short(stage: Stage) -> &'static str {
    match stage {
        Stage::FetchFeatures => "features",
        Stage::FetchMemory => "memory",
        Stage::UpdateMemory => "update",
        Stage::WriteMemory => "write",
        Stage::WeightGrads => "weights",
        stage => stage.name(),
    }
}

impl Plan {
    /// The drawing, a line a lane; lengths are no measurements. Node memory is drawn, whether or not a model has one.
    pub fn drawing(&self) -> String {
        let lanes = if self.groups.is_some() { of_groups() } else { self.of_stages() };
        let starts = scheduled(&lanes);
        let mut text = String::new();
        for (lane, (blocks, starts)) in lanes.iter().zip(starts).enumerate() {
            let mut line = String::new();
            for (block, start) in blocks.iter().zip(starts) {
                let at = line.chars().count();
                line.extend(std::iter::repeat_n(' ', (UNIT * start).saturating_sub(at)));
                let room = UNIT * block.units - 1;
                let label: String = block.label.chars().take(room).collect();
                let _ = write!(line, "│{label:─<room$}");
            }
            if !line.is_empty() {
                let _ = writeln!(text, "lane {}  {line}│", lane + 1);
            }
        }
        text
    }
    fn of_stages(&self) -> [Vec<Block>; LANES] {
        let placements = self.placements();
        let lanes = in_order(&placements, STEPS);
        let place = |wanted: At| {
            let of = |lane: usize| Some((lane, lanes[lane].iter().position(|&at| at == wanted)?));
            (0..LANES).find_map(of)
        };
        std::array::from_fn(|lane| {
            let own = placements.iter().filter(|s| s.lane == lane);
            let depth = 1 + own.map(|s| s.prefetch_depth).max().unwrap_or(0);
            let block = |&At { stage, step }: &At| {
                let needs = NEEDS.iter().filter(|n| n.stage == stage);
                let needs = needs.filter_map(|n| Some(At { stage: n.of, step: step.checked_sub(n.back)? }));
                // Its values lie where those of some steps before did, which somebody may still read.
                let before = step.checked_sub(depth).map(|step| Stage::ALL.map(|stage| At { stage, step }));
                let after = needs.chain(before.into_iter().flatten()).filter_map(place);
                let label = format!("{} {}", short(stage), step + 1);
                Block { label, units: units(stage), after: after.collect() }
            };
            lanes[lane].iter().map(block).collect()
        })
    }
}

/// The label of a node's block in a drawing: its section where it has one, else its stage.
fn label_of(node: &NodeInfo) -> &'static str {
    match (node.tag.section, node.tag.backward) {
        (None, _) => short(node.stage),
        (Some(_), true) => "backward",
        (Some(section), false) => section.name,
    }
}

impl Timeline {
    /// Seconds from the first start to the last end of the first `steps` steps.
    pub fn seconds_of(&self, steps: usize) -> f64 {
        let own = || self.spans().iter().filter(|s| s.step < steps);
        let start = own().map(|s| s.start).fold(f64::INFINITY, f64::min);
        (own().map(|s| s.end).fold(start, f64::max) - start).max(0.0)
    }
    /// The first `steps` steps as a drawing, a line a lane, a column for so many seconds. What is shorter is left out; spaces are
    /// where a lane waits.
    pub fn drawing(&self, steps: usize, column: f64) -> String {
        let own = || self.spans().iter().filter(|s| s.step < steps);
        let began = own().map(|s| s.start).fold(f64::INFINITY, f64::min);
        let at = |seconds: f64| ((seconds - began) / column).round() as usize;
        let mut text = String::new();
        for lane in 0..LANES {
            // Runs that follow one another closely, of one part of a step.
            let mut blocks: Vec<(String, usize, usize)> = Vec::new();
            for s in own().filter(|s| s.work.lane == lane) {
                let (label, start, end) =
                    (format!("{} {}", label_of(&s.work), s.step + 1), at(s.start), at(s.end));
                match blocks.last_mut().filter(|b| b.0 == label && b.2 + 1 >= start) {
                    Some(block) => block.2 = end,
                    None => blocks.push((label, start, end)),
                }
            }
            let mut line = String::new();
            for (label, start, end) in blocks.into_iter().filter(|b| b.2 > b.1) {
                let column = line.chars().count();
                line.extend(std::iter::repeat_n(' ', start.saturating_sub(column)));
                let room = end.saturating_sub(line.chars().count() + 1);
                let label: String = label.chars().take(room).collect();
                let _ = write!(line, "│{label:─<room$}");
            }
            if !line.is_empty() {
                let _ = writeln!(text, "lane {}  {line}│", lane + 1);
            }
        }
        text
    }
}

/// Three groups of an update, in the first lane's order and the second's.
fn of_groups() -> [Vec<Block>; LANES] {
    let block = |label: String, units, after: Vec<(usize, usize)>| Block { label, units, after };
    let (mut first, mut second): (Vec<Block>, Vec<Block>) = (Vec::new(), Vec::new());
    for period in 0..=STEPS {
        if period < STEPS {
            first.push(block(format!("forward {}", period + 1), 5, vec![]));
            second.push(block(
                format!("forward {}, loss, backward", period + 1),
                13,
                vec![(0, first.len() - 1)],
            ));
        }
        if let Some(group) = period.checked_sub(1) {
            first.push(block(format!("backward {}", group + 1), 7, vec![(1, group)]));
        }
    }
    first.push(block("step".into(), 4, vec![]));
    [first, second]
}

/// When each block begins.
fn scheduled(lanes: &[Vec<Block>; LANES]) -> [Vec<usize>; LANES] {
    let mut starts: [Vec<usize>; LANES] = Default::default();
    loop {
        let before: usize = starts.iter().map(Vec::len).sum();
        for lane in 0..LANES {
            let Some(block) = lanes[lane].get(starts[lane].len()) else { continue };
            let end =
                |(lane, place): (usize, usize)| Some(starts[lane].get(place)? + lanes[lane][place].units);
            let own = starts[lane].len().checked_sub(1).map(|place| (lane, place));
            let ends: Option<Vec<usize>> = block.after.iter().copied().chain(own).map(end).collect();
            if let Some(ends) = ends {
                starts[lane].push(ends.into_iter().max().unwrap_or(0));
            }
        }
        if starts.iter().map(Vec::len).sum::<usize>() == before {
            return starts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{Resource, Span},
        ops::{Cost, OpKind, Tag},
    };

    #[test]
    fn what_is_ahead_is_drawn_beside_the_step_before() {
        let of = |name: &str| Plan::preset(name).map(|p| p.drawing()).unwrap_or_default();
        let sequential = of("sequential");
        assert_eq!(sequential.lines().count(), 1, "{sequential}");
        let prefetch = of("prefetch");
        let column = |what: &str| {
            let line = prefetch.lines().find(|l| l.contains(what)).unwrap_or_default();
            line[..line.find(what).unwrap_or(0)].chars().count()
        };
        // The third step's values lie where the first's did, which are read meanwhile.
        assert!(
            column("features 2") < column("embed 2") && column("embed 1") < column("sample 3"),
            "{prefetch}"
        );
        // A timeline to scale: two columns a second.
        let span = |lane, stage, step, start, end| {
            let (kind, resource, cost) = (OpKind::Nn, Resource::Arithmetic, Cost::default());
            let work =
                NodeInfo { op: "linear", kind, resource, stage, tag: Tag::default(), lane, cost, cols: 1 };
            Span { work, node: 0, step, start, end }
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
        let blad = of("blad");
        assert!(
            blad.contains("│forward 2") && blad.contains("│backward 3") && blad.lines().count() == 2,
            "{blad}"
        );
    }
}
