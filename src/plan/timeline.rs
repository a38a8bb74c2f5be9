//! A timeline: every run of every op with its lane, start and end; as a trace for a viewer, and summed up.
use crate::autograd::{LANES, Resource, Span};
use serde_json::json;
use std::{collections::BTreeMap, fmt};

/// What ran when, in order of the starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    spans: Vec<Span>,
}

/// What the lanes did, as shares of the time between the first start and the last end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds of that time.
    pub seconds: f64,
    /// Of each lane: in which it ran an op.
    pub busy: [f64; LANES],
    /// In which both lanes ran one.
    pub both: f64,
    /// In which one ran an op that memory bounds (a sparse product, a gather, a copy) and the other one that computes: what BLAD
    /// calls overlap (Fu et al. 2023, equation 3).
    pub overlap: f64,
    /// In which no lane ran an op.
    pub idle: f64,
}

impl Usage {
    /// By how much the lane that does less is behind the other, as a share of what that does: what BLAD calls synchronization time (Fu et
    /// al. 2023, section 3.3.2).
    pub fn sync(&self) -> f64 {
        let [least, most] = [f64::min, f64::max].map(|of| self.busy.iter().copied().fold(self.busy[0], of));
        if most > 0.0 { (most - least) / most } else { 0.0 }
    }
}

impl Timeline {
    /// Of these runs.
    pub fn new(mut spans: Vec<Span>) -> Self {
        spans.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.work.lane.cmp(&b.work.lane)));
        Timeline { spans }
    }
    /// In order of the starts.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// What the lanes did. An op of one lane ends before the next one's start.
    pub fn usage(&self) -> Usage {
        let mut edges: Vec<(f64, usize, Option<bool>)> = Vec::with_capacity(2 * self.spans.len());
        for s in &self.spans {
            edges.push((s.start, s.node_info.lane, Some(s.node_info.resource == Resource::Arithmetic)));
            edges.push((s.end, s.node_info.lane, None));
        }
        // Where an op ends as the next one starts, the end comes first.
        edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.is_some().cmp(&b.2.is_some())));
        let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return Usage::default() };
        let mut usage = Usage { seconds: last.0 - first.0, ..Usage::default() };
        let (mut now, mut before) = ([None; LANES], first.0);
        for &(at, lane, doing) in &edges {
            let passed = at - before;
            for (busy, _) in usage.busy.iter_mut().zip(now).filter(|(_, now)| now.is_some()) {
                *busy += passed;
            }
            match now {
                [Some(a), Some(b)] => {
                    usage.both += passed;
                    usage.overlap += if a != b { passed } else { 0.0 };
                }
                [None, None] => usage.idle += passed,
                _ => {}
            }
            (now[lane], before) = (doing, at);
        }
        let share = |x: &mut f64| *x /= usage.seconds.max(f64::MIN_POSITIVE);
        usage.busy.iter_mut().chain([&mut usage.both, &mut usage.overlap, &mut usage.idle]).for_each(share);
        usage
    }
    /// The chain of runs, each beginning when another ends, that leads to the last end; in order. What is not on it could be slower and
    /// the whole would take no longer.
    pub fn critical_path(&self) -> Vec<&Span> {
        let mut by_end: Vec<&Span> = self.spans.iter().collect();
        by_end.sort_by(|a, b| a.end.total_cmp(&b.end));
        let mut path: Vec<&Span> = Vec::new();
        while let Some(last) = by_end.pop() {
            // What ended last before the one that follows began is what that waited for.
            if path.last().is_none_or(|next| last.end <= next.start) {
                path.push(last);
            }
        }
        path.reverse();
        path
    }
    /// What the [critical path](Self::critical_path) is made of: ops with their shares of it, the longest first, and `waiting`, where
    /// between two of its runs nothing ran that the later one can have waited for.
    pub fn bound_by(&self) -> Vec<(&'static str, f64)> {
        let path = self.critical_path();
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return Vec::new() };
        let whole = (last.end - first.start).max(f64::MIN_POSITIVE);
        let mut by_op: BTreeMap<&'static str, f64> = BTreeMap::new();
        for s in &path {
            *by_op.entry(s.node_info.op).or_default() += (s.end - s.start) / whole;
        }
        let waiting = 1.0 - by_op.values().sum::<f64>();
        let mut shares: Vec<_> = by_op.into_iter().chain([("waiting", waiting)]).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
    /// The trace that Perfetto and Chrome's viewer read, as JSON: an event a line, a lane as a thread of rank 0, times in microseconds.
    pub fn trace(&self) -> String {
        let lane = |lane: usize| json!({"ph": "M", "pid": 0, "tid": lane, "name": "thread_name", "args": {"name": format!("lane {}", lane + 1)}});
        let rank = json!({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}});
        let span = |s: &Span| {
            let section = s.node_info.tag.section.map(|section| section.to_string());
            let kind = format!("{:?}", s.node_info.kind).to_lowercase();
            let way = if s.node_info.tag.backward { "backward" } else { "forward" };
            json!({
                "ph": "X", "pid": 0, "tid": s.node_info.lane, "name": s.node_info.op, "cat": kind,
                "ts": 1e6 * s.start, "dur": 1e6 * (s.end - s.start),
                "args": {"step": s.step, "stage": s.node_info.stage.name(), "section": section, "way": way, "resource": s.node_info.resource.name(), "bytes": s.node_info.cost.bytes, "flops": s.node_info.cost.flops},
            })
        };
        let events = std::iter::once(rank).chain((0..LANES).map(lane)).chain(self.spans.iter().map(span));
        let events: Vec<String> = events.map(|e| e.to_string()).collect();
        format!("{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{}\n]}}\n", events.join(",\n"))
    }
}

/// A line or two for people.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |x: f64| format!("{:.1} %", 100.0 * x);
        let [first, second] = self.busy.map(percent);
        write!(
            f,
            "{:.3} s: lane 1 busy {first}, lane 2 {second}, both {}, graph beside arithmetic {}, none {}",
            self.seconds,
            percent(self.both),
            percent(self.overlap),
            percent(self.idle)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        autograd::{NodeInfo, Stage},
        ops::{Cost, OpKind, Section, Tag},
    };

    fn span(lane: usize, kind: OpKind, start: f64, end: f64) -> Span {
        let resource = if kind == OpKind::Nn { Resource::Arithmetic } else { Resource::Memory };
        let section = Section { index: 1, name: "snapshot" };
        let tag = Tag { section: Some(section), backward: true };
        let cost = Cost { bytes: 8, flops: 4 };
        let work = NodeInfo { op: "spmm", kind, resource, stage: Stage::Embed, tag, lane, cost, cols: 1 };
        Span { work, node: 0, step: 3, start, end }
    }

    #[test]
    fn shares_of_the_time_are_those_of_the_lanes() {
        let spans = vec![
            span(1, OpKind::Nn, 3.0, 5.0),
            span(0, OpKind::Graph, 0.0, 2.0),
            span(0, OpKind::Copy, 2.0, 4.0),
            span(1, OpKind::Graph, 0.5, 1.0),
            span(0, OpKind::Nn, 9.0, 10.0),
        ];
        let usage = Timeline::new(spans).usage();
        let want = Usage { seconds: 10.0, busy: [0.5, 0.25], both: 0.15, overlap: 0.1, idle: 0.4 };
        let of = |u: Usage| [u.seconds, u.busy[0], u.busy[1], u.both, u.overlap, u.idle];
        for (found, want) in of(usage).into_iter().zip(of(want)) {
            assert!((found - want).abs() < 1e-12, "{usage:?}");
        }
        assert_eq!(Timeline::default().usage(), Usage::default());
        assert!(Timeline::default().bound_by().is_empty());
    }

    #[test]
    fn the_critical_path_goes_back_from_the_last_end_over_what_each_run_waited_for() {
        let spans = vec![
            span(0, OpKind::Graph, 0.0, 3.0),
            span(1, OpKind::Nn, 0.0, 2.0),
            span(1, OpKind::Nn, 3.0, 6.0),
            span(0, OpKind::Graph, 3.0, 4.0),
            span(0, OpKind::Graph, 7.0, 8.0),
        ];
        let timeline = Timeline::new(spans);
        let path: Vec<_> = timeline.critical_path().iter().map(|s| (s.node_info.lane, s.start)).collect();
        assert_eq!(path, [(0, 0.0), (1, 3.0), (0, 7.0)]);
        assert_eq!(timeline.bound_by(), [("spmm", 7.0 / 8.0), ("waiting", 1.0 / 8.0)]);
    }

    #[test]
    fn a_trace_has_an_event_for_every_run_and_names_its_lanes() {
        let t = Timeline::new(vec![span(1, OpKind::Nn, 3.0, 5.5), span(0, OpKind::Graph, 0.0, 2.0)]);
        let trace: serde_json::Value = serde_json::from_str(&t.trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[2]["args"]["name"], "lane 2");
        assert_eq!((&events[4]["ts"], &events[4]["dur"]), (&3e6.into(), &2.5e6.into()));
        let want = json!({"step": 3, "stage": "embed", "section": "snapshot 2", "way": "backward", "resource": "arithmetic", "bytes": 8, "flops": 4});
        assert_eq!((&events[4]["args"], &events[4]["cat"]), (&want, &"nn".into()));
    }
}
