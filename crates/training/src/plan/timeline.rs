//! Timelines: every run of every op with its lane, start and end. A timeline can be written as a trace for a
//! viewer, and summarised.
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use tgnn::autograd::{MAX_LANES, NodeInfo, Resource, Span, Stage};

/// The runs of nodes, sorted by start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    spans: Vec<Span>,
    /// Start and end of the times in which the rank waits for the memory of its next batch.
    waits: Vec<[f64; 2]>,
}

/// How busy the lanes were between the first start and the last end. All fields but `seconds` are fractions
/// of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds between the first start and the last end.
    pub seconds: f64,
    /// Fraction in which each lane ran an op.
    pub busy: [f64; MAX_LANES],
    /// Fraction in which two or more lanes ran an op.
    pub several: f64,
    /// Fraction in which one lane ran an arithmetic op while another ran an op that memory or a link bounds
    /// (a sparse product, a gather, a copy). BLAD calls this overlap (Fu et al. 2023, equation 3).
    pub overlap: f64,
    /// Fraction in which no lane ran an op.
    pub idle: f64,
}

impl Usage {
    /// Returns the lanes that ran an op, each with the fraction in which it did.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, f64)> {
        self.busy.into_iter().enumerate().filter(|(_, busy)| *busy > 0.0)
    }
    /// Returns the difference between the busy times of the busiest lane and the least busy one of those that
    /// ran an op, as a fraction of the longer one. BLAD calls this synchronization time (Fu et al. 2023,
    /// section 3.3.2).
    pub fn sync(&self) -> f64 {
        let [least, most] = [f64::min, f64::max].map(|pick| self.lanes().map(|lane| lane.1).reduce(pick));
        most.zip(least).map_or(0.0, |(most, least)| (most - least) / most)
    }
}

impl Timeline {
    /// Returns the timeline of `spans`.
    pub fn new(mut spans: Vec<Span>) -> Self {
        spans.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.node_info.lane.cmp(&b.node_info.lane)));
        Timeline { spans, waits: Vec::new() }
    }
    /// Adds the times, start and end, in which the rank waits for the memory of its next batch.
    #[must_use]
    pub fn with_waits(self, waits: Vec<[f64; 2]>) -> Self {
        Timeline { waits, ..self }
    }
    /// Returns the runs of nodes, sorted by start.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// Returns the seconds of the runs by stage and lane, in the order of the stages.
    pub fn stage_times(&self) -> Vec<(Stage, usize, f64)> {
        let mut seconds: BTreeMap<(Stage, usize), f64> = BTreeMap::new();
        for s in &self.spans {
            *seconds.entry((s.node_info.stage, s.node_info.lane)).or_default() += s.end - s.start;
        }
        seconds.into_iter().map(|((stage, lane), seconds)| (stage, lane, seconds)).collect()
    }
    /// Returns the runs of `steps` steps from the middle, where every lane is busy, without waits.
    pub fn middle(&self, steps: usize) -> Timeline {
        let all: BTreeSet<usize> = self.spans.iter().map(|s| s.step).collect();
        let kept: BTreeSet<usize> =
            all.iter().copied().skip(all.len().saturating_sub(steps) / 2).take(steps).collect();
        Timeline::new(self.spans.iter().filter(|s| kept.contains(&s.step)).copied().collect())
    }
    /// Returns how busy the lanes were. The spans of a lane must not overlap.
    pub fn usage(&self) -> Usage {
        /// A lane starts an op, which is arithmetic or not, or ends one.
        struct Change {
            time: f64,
            lane: usize,
            arithmetic: Option<bool>,
        }
        let mut changes: Vec<Change> = Vec::with_capacity(2 * self.spans.len());
        for s in &self.spans {
            let (lane, arithmetic) = (s.node_info.lane, s.node_info.resource == Resource::Arithmetic);
            changes.push(Change { time: s.start, lane, arithmetic: Some(arithmetic) });
            changes.push(Change { time: s.end, lane, arithmetic: None });
        }
        // If an op ends when the next one starts, the end comes first.
        let starts = |change: &Change| change.arithmetic.is_some();
        changes.sort_by(|a, b| a.time.total_cmp(&b.time).then(starts(a).cmp(&starts(b))));
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Usage::default() };
        let mut usage = Usage { seconds: last.time - first.time, ..Usage::default() };
        // For each lane, whether the op that it runs is arithmetic; `None` if it runs no op.
        let (mut running, mut before) = ([None; MAX_LANES], first.time);
        for &Change { time, lane, arithmetic } in &changes {
            let passed = time - before;
            for (busy, _) in usage.busy.iter_mut().zip(running).filter(|(_, running)| running.is_some()) {
                *busy += passed;
            }
            let of_kind = |arithmetic| running.iter().filter(|&&running| running == Some(arithmetic)).count();
            match [of_kind(true), of_kind(false)] {
                [0, 0] => usage.idle += passed,
                [1, 0] | [0, 1] => {}
                [arithmetic, others] => {
                    usage.several += passed;
                    usage.overlap += if arithmetic > 0 && others > 0 { passed } else { 0.0 };
                }
            }
            (running[lane], before) = (arithmetic, time);
        }
        let whole = usage.seconds.max(f64::MIN_POSITIVE);
        let times = usage.busy.iter_mut().chain([&mut usage.several, &mut usage.overlap, &mut usage.idle]);
        times.for_each(|time| *time /= whole);
        usage
    }
    /// Returns the critical path in order of time: the runs, each of which ends before the next one starts,
    /// that lead to the last end. Any other run could be slower without delaying the last end.
    pub fn critical_path(&self) -> Vec<&Span> {
        let mut by_end: Vec<&Span> = self.spans.iter().collect();
        by_end.sort_by(|a, b| a.end.total_cmp(&b.end));
        let mut path: Vec<&Span> = Vec::new();
        while let Some(last) = by_end.pop() {
            // The next run of the path waited for the run that was the last to end before it started.
            if path.last().is_none_or(|next| last.end <= next.start) {
                path.push(last);
            }
        }
        path.reverse();
        path
    }
    /// Returns the ops on the [critical path](Self::critical_path) with their fractions of its time, the
    /// largest first. The entry `waiting` is for the gaps of the path, in which nothing ran that the next run
    /// can have waited for.
    pub fn bound_by(&self) -> Vec<(&'static str, f64)> {
        let path = self.critical_path();
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return Vec::new() };
        let whole = (last.end - first.start).max(f64::MIN_POSITIVE);
        let mut by_op: BTreeMap<&'static str, f64> = BTreeMap::new();
        for s in &path {
            *by_op.entry(s.node_info.op).or_default() += (s.end - s.start) / whole;
        }
        let waiting = 1.0 - by_op.values().sum::<f64>();
        let mut fractions: Vec<_> = by_op.into_iter().chain([("waiting", waiting)]).collect();
        fractions.sort_by(|a, b| b.1.total_cmp(&a.1));
        fractions
    }
    /// Returns the fraction of the time in which some lane ran an op that does not communicate.
    pub fn computing(&self) -> f64 {
        let (Some(first), seconds) = (self.spans.first(), self.usage().seconds) else { return 0.0 };
        let (mut computing, mut until) = (0.0, first.start);
        for s in self.spans.iter().filter(|s| s.node_info.traffic.is_none()) {
            computing += (s.end - s.start.max(until)).max(0.0);
            until = until.max(s.end);
        }
        computing / seconds.max(f64::MIN_POSITIVE)
    }
    /// Returns a trace for Perfetto and Chrome's viewer, as JSON: one event per line, each lane as a thread
    /// of rank 0, times in microseconds.
    pub fn trace(&self) -> String {
        Self::trace_of_ranks(std::slice::from_ref(self))
    }
    /// Returns the trace of several ranks, each as a process.
    pub fn trace_of_ranks(timelines: &[Timeline]) -> String {
        let events = timelines.iter().enumerate().flat_map(|(rank, timeline)| timeline.trace_events(rank));
        Self::trace_of(&events.collect::<Vec<_>>())
    }
    /// Returns the trace of the events that [`trace_events`](Self::trace_events) of some ranks has returned.
    #[doc(hidden)]
    pub fn trace_of(events: &[String]) -> String {
        format!("{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{}\n]}}\n", events.join(",\n"))
    }
    /// Returns the events of a trace, each as JSON, with the lanes as threads of the process `rank`.
    #[doc(hidden)]
    pub fn trace_events(&self, rank: usize) -> Vec<String> {
        let lane = |lane: usize| {
            let args = json!({"name": format!("lane {}", lane + 1)});
            json!({"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": args})
        };
        let args = json!({"name": format!("rank {rank}")});
        let process = json!({"ph": "M", "pid": rank, "name": "process_name", "args": args});
        let span = |s: &Span| {
            let NodeInfo { op, kind, resource, stage, tag, lane, cost, .. } = s.node_info;
            let section = tag.section.map(|section| section.to_string());
            let way = if tag.backward { "backward" } else { "forward" };
            json!({
                "ph": "X", "pid": rank, "tid": lane, "name": op, "cat": format!("{kind:?}").to_lowercase(),
                "ts": 1e6 * s.start, "dur": 1e6 * (s.end - s.start),
                "args": {
                    "step": s.step, "stage": stage.name(), "section": section, "way": way,
                    "resource": resource.name(), "bytes": cost.bytes, "flops": cost.flops,
                },
            })
        };
        let wait = |&[start, end]: &[f64; 2]| {
            json!({
                "ph": "X", "pid": rank, "tid": MAX_LANES, "name": "waits for memory", "cat": "idle",
                "ts": 1e6 * start, "dur": 1e6 * (end - start),
            })
        };
        let args = json!({"name": "waits"});
        let of_waits = json!({"ph": "M", "pid": rank, "tid": MAX_LANES, "name": "thread_name", "args": args});
        let of_waits = (!self.waits.is_empty()).then_some(of_waits);
        let lanes: BTreeSet<usize> = self.spans.iter().map(|s| s.node_info.lane).collect();
        let heads = std::iter::once(process).chain(lanes.into_iter().map(lane)).chain(of_waits);
        let events = heads.chain(self.spans.iter().map(span)).chain(self.waits.iter().map(wait));
        events.map(|e| e.to_string()).collect()
    }
}

/// One line for the user.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |fraction: f64| format!("{:.1} %", 100.0 * fraction);
        write!(f, "{:.3} s: ", self.seconds)?;
        self.lanes().try_for_each(|(lane, busy)| write!(f, "lane {} busy {}, ", lane + 1, percent(busy)))?;
        write!(
            f,
            "several {}, graph beside arithmetic {}, none {}",
            percent(self.several),
            percent(self.overlap),
            percent(self.idle)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::ops::{Cost, OpKind, Section, Tag};

    fn span(lane: usize, kind: OpKind, start: f64, end: f64) -> Span {
        let resource = if kind == OpKind::Nn { Resource::Arithmetic } else { Resource::Memory };
        let section = Section { index: 1, name: "snapshot" };
        let tag = Tag { section: Some(section), backward: true };
        let cost = Cost { bytes: 8, flops: 4 };
        let traffic = None;
        let node_info =
            NodeInfo { op: "spmm", kind, resource, stage: Stage::Embed, tag, lane, cost, traffic, cols: 1 };
        Span { node_info, node: 0, step: 3, start, end, cost }
    }

    #[test]
    fn usage_adds_up_the_times_of_the_lanes_as_fractions() {
        let spans = vec![
            span(1, OpKind::Nn, 3.0, 5.0),
            span(0, OpKind::Graph, 0.0, 2.0),
            span(0, OpKind::Copy, 2.0, 4.0),
            span(1, OpKind::Graph, 0.5, 1.0),
            span(0, OpKind::Nn, 9.0, 10.0),
        ];
        let usage = Timeline::new(spans.clone()).usage();
        let fields = |u: Usage| [u.seconds, u.busy[0], u.busy[1], u.several, u.overlap, u.idle];
        let near = |found: f64, want: f64| (found - want).abs() < 1e-12;
        let want = [10.0, 0.5, 0.25, 0.15, 0.1, 0.4];
        assert!(fields(usage).into_iter().zip(want).all(|(found, want)| near(found, want)), "{usage:?}");
        assert!(near(usage.sync(), 0.5), "{usage:?}");
        // A third lane that aggregates meanwhile, and later than the others.
        let third = span(2, OpKind::Graph, 4.5, 12.0);
        let usage = Timeline::new(spans.into_iter().chain([third]).collect()).usage();
        let want = [12.0, 5.0 / 12.0, 2.5 / 12.0, 3.0 / 12.0, 2.5 / 12.0, 0.0];
        assert!(fields(usage).into_iter().zip(want).all(|(found, want)| near(found, want)), "{usage:?}");
        assert!(near(usage.busy[2], 7.5 / 12.0) && usage.lanes().count() == 3, "{usage:?}");
        assert_eq!(Timeline::default().usage(), Usage::default());
        assert!(Timeline::default().bound_by().is_empty());
    }

    #[test]
    fn the_critical_path_leads_to_the_last_end_by_the_runs_that_were_waited_for() {
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
    fn the_middle_has_whole_steps_and_stage_times_add_up_by_lane() {
        let at = |step: usize, lane: usize| {
            let span = span(lane, OpKind::Nn, step as f64, step as f64 + 0.25);
            Span { step, ..span }
        };
        let timeline = Timeline::new((0..5).flat_map(|step| [at(step, 0), at(step, 1)]).collect());
        let steps = |t: Timeline| t.spans().iter().map(|s| s.step).collect::<Vec<_>>();
        assert_eq!(steps(timeline.middle(3)), [1, 1, 2, 2, 3, 3]);
        assert_eq!(timeline.middle(9), timeline);
        assert_eq!(timeline.stage_times(), [(Stage::Embed, 0, 1.25), (Stage::Embed, 1, 1.25)]);
    }

    #[test]
    fn a_trace_has_an_event_for_every_run_and_names_its_lanes() {
        let t = Timeline::new(vec![span(1, OpKind::Nn, 3.0, 5.5), span(0, OpKind::Graph, 0.0, 2.0)]);
        let trace: serde_json::Value = serde_json::from_str(&t.trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[2]["args"]["name"], "lane 2");
        assert_eq!((&events[4]["ts"], &events[4]["dur"]), (&3e6.into(), &2.5e6.into()));
        let want = json!({
            "step": 3, "stage": "embed", "section": "snapshot 2", "way": "backward",
            "resource": "arithmetic", "bytes": 8, "flops": 4,
        });
        assert_eq!((&events[4]["args"], &events[4]["cat"]), (&want, &"nn".into()));
    }
}
