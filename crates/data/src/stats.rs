//! Statistics of a stream.
use super::{Classes, Events, LineCounts, NodeLabels};
use rayon::prelude::*;
use serde::Serialize;

/// The statistics of a stream, as plain data to be printed or written as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// The data set's name.
    pub name: String,
    /// Number of events.
    pub events: u64,
    /// Number of nodes, with or without events.
    pub nodes: u64,
    /// Number of nodes that are a source at least once.
    pub sources: u64,
    /// Number of nodes that are a destination at least once.
    pub destinations: u64,
    /// Whether sources and destinations are different kinds of nodes.
    pub bipartite: bool,
    /// Seconds between the first and the last event.
    pub span_seconds: f64,
    /// Unit of time: ticks per second.
    pub ticks_per_second: f64,
    /// Original time of the first event, in ticks.
    pub origin: i64,
    /// Time of the first event, as the file writes it.
    pub first_time: String,
    /// Time of the last event, as the file writes it.
    pub last_time: String,
    /// Number of unique times.
    pub unique_times: u64,
    /// Number of unique ordered pairs of source and destination.
    pub unique_pairs: u64,
    /// Fraction of events whose pair occurred before, from 0 to 1.
    pub repeat_share: f64,
    /// Number of events that are equal to an earlier one: in source, destination, time, label and features.
    pub duplicates: u64,
    /// Number of events from a node to itself.
    pub self_loops: u64,
    /// Statistics of the labels of events; `None` if there are none.
    pub labels: Option<LabelStats>,
    /// Statistics of the sets of classes; `None` if events have none.
    pub classes: Option<ClassStats>,
    /// Statistics of the labels of nodes; `None` if there are none.
    pub node_labels: Option<NodeLabelStats>,
    /// Width of the edge features; 0 if there are none.
    pub edge_feature_width: usize,
    /// Width of the node features; 0 if there are none.
    pub node_feature_width: usize,
    /// Mean number of events per node; an event counts for both of its nodes.
    pub mean_degree: f64,
    /// Maximum number of events of a node.
    pub max_degree: u64,
    /// Nodes by their number of events, in powers of two, from the first bucket that is not empty to the
    /// last.
    pub degrees: Vec<Bucket>,
    /// Events by the time since the source's previous event as a source; a source's first event does not
    /// count.
    pub gaps: Vec<Bucket>,
    /// What became of the lines of the text that the events come from; `None` if they come from no text.
    pub lines: Option<LineCounts>,
    /// Remarks of the reader about changes and doubts.
    pub notes: Vec<String>,
}

/// Statistics of the labels of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelStats {
    /// Number of different labels.
    pub values: u64,
    /// The first of them in ascending order, at most 20, and their numbers of events.
    pub first: Vec<(String, u64)>,
    /// The largest of them.
    pub largest: String,
    /// Number of events without a label.
    pub missing: u64,
}

impl LabelStats {
    /// Most labels that are listed.
    const LISTED: usize = 20;

    /// Computes the statistics of the labels of `events`, if there are any.
    fn new(events: &Events) -> Option<Self> {
        let (values, _) = events.label_values().ok()?;
        let labels = events.label.as_ref()?;
        let codes: Vec<f32> = values.iter().map(|value| events.label_of(value)).collect();
        let count = |code: f32| labels.par_iter().filter(|&&label| label == code).count() as u64;
        let listed = values.iter().zip(&codes).take(Self::LISTED);
        let known = |label: &f32| codes.binary_search_by(|code| code.total_cmp(&(label + 0.0))).is_ok();
        Some(LabelStats {
            values: values.len() as u64,
            first: listed.map(|(value, &code)| (value.to_string(), count(code))).collect(),
            largest: values.last().map(ToString::to_string).unwrap_or_default(),
            missing: labels.par_iter().filter(|label| !known(label)).count() as u64,
        })
    }
}

/// Statistics of sets of classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassStats {
    /// Number of classes, with or without events.
    pub classes: u64,
    /// Mean number of classes per event.
    pub labels_per_event: f64,
    /// Maximum number of classes of an event.
    pub most_labels: u64,
    /// The class with the most events; the lowest such class.
    pub most_frequent: u32,
    /// Fraction of events that have this class, from 0 to 1.
    pub most_frequent_share: f64,
}

impl ClassStats {
    /// Computes the statistics in one pass over the sets.
    pub fn new(classes: &Classes) -> Self {
        let mut events = vec![0u64; classes.count()];
        let mut most_labels = 0;
        for set in (0..classes.events()).map(|i| classes.get(i)) {
            set.iter().for_each(|&c| events[c as usize] += 1);
            most_labels = most_labels.max(set.len() as u64);
        }
        let n = classes.events().max(1) as f64;
        // `max_by_key` returns the last maximum, so the reversed order makes the lowest class win ties.
        let (class, most) = events.iter().enumerate().rev().max_by_key(|(_, n)| **n).unwrap_or((0, &0));
        ClassStats {
            classes: classes.count() as u64,
            labels_per_event: events.iter().sum::<u64>() as f64 / n,
            most_labels,
            most_frequent: class as u32,
            most_frequent_share: *most as f64 / n,
        }
    }
}

/// Statistics of labels of nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeLabelStats {
    /// Number of label rows: of nodes at times.
    pub rows: u64,
    /// Number of unique times.
    pub times: u64,
    /// Number of nodes that have a label.
    pub nodes: u64,
    /// Number of classes, with or without labels.
    pub classes: u64,
    /// Mean number of classes of a row.
    pub classes_per_row: f64,
    /// The first time, as the file of the events writes it.
    pub first_time: String,
    /// The last time, likewise.
    pub last_time: String,
}

impl NodeLabelStats {
    /// Computes the statistics of the labels of `events`.
    fn new(labels: &NodeLabels, events: &Events) -> Self {
        let mut nodes = labels.nodes().to_vec();
        nodes.sort_unstable();
        let (times, scale) = (labels.times(), events.time_scale());
        let text = |time: Option<&i64>| scale.text(time.copied().unwrap_or(0));
        NodeLabelStats {
            rows: labels.len() as u64,
            times: unique(times),
            nodes: unique(&nodes),
            classes: labels.classes() as u64,
            classes_per_row: labels.entries().1.len() as f64 / labels.len().max(1) as f64,
            first_time: text(times.first()),
            last_time: text(times.last()),
        }
    }
}

/// One bar of a histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Description of the values in this bucket.
    pub label: String,
    /// Number of values.
    pub count: u64,
}

/// Upper bounds of the buckets of gaps, in seconds and inclusive, and their labels.
const GAPS: [(f64, &str); 11] = [
    (0.0, "same time"),
    (1.0, "to 1 s"),
    (10.0, "to 10 s"),
    (60.0, "to 1 min"),
    (600.0, "to 10 min"),
    (3600.0, "to 1 h"),
    (21_600.0, "to 6 h"),
    (86_400.0, "to 1 day"),
    (604_800.0, "to 1 week"),
    (2_592_000.0, "to 30 days"),
    (f64::INFINITY, "longer"),
];

/// What is counted event by event.
struct Counts {
    degree: Vec<u64>,
    is_source: Vec<bool>,
    is_destination: Vec<bool>,
    self_loops: u64,
    /// Time since the source's event before, by bucket of [`GAPS`].
    gaps: [u64; GAPS.len()],
}

impl Counts {
    fn new(events: &Events) -> Self {
        let mut counts = Counts {
            degree: vec![0; events.nodes],
            is_source: vec![false; events.nodes],
            is_destination: vec![false; events.nodes],
            self_loops: 0,
            gaps: [0; GAPS.len()],
        };
        // Times start at 0, so `i64::MIN` marks a source without an event.
        let mut previous = vec![i64::MIN; events.nodes];
        for ((&s, &d), &t) in events.src.iter().zip(events.dst.iter()).zip(events.time.iter()) {
            let (s, d) = (s as usize, d as usize);
            counts.degree[s] += 1;
            counts.degree[d] += 1;
            counts.is_source[s] = true;
            counts.is_destination[d] = true;
            counts.self_loops += u64::from(s == d);
            if previous[s] != i64::MIN {
                let seconds = (t - previous[s]) as f64 / events.ticks_per_second;
                counts.gaps[GAPS.iter().position(|g| seconds <= g.0).unwrap_or(GAPS.len() - 1)] += 1;
            }
            previous[s] = t;
        }
        counts
    }
}

impl Stats {
    /// Computes the statistics of a stream. Sorting one 64-bit number per event dominates time and memory.
    pub fn new(events: &Events) -> Self {
        let n = events.len() as u64;
        let Counts { degree, is_source, is_destination, self_loops, gaps } = Counts::new(events);
        let mut pairs: Vec<u64> = events
            .src
            .iter()
            .zip(events.dst.iter())
            .map(|(&s, &d)| u64::from(s) << 32 | u64::from(d))
            .collect();
        pairs.par_sort_unstable();
        let unique_pairs = unique(&pairs);
        let count = |flags: &[bool]| flags.iter().filter(|&&f| f).count() as u64;
        Stats {
            name: events.name.clone(),
            events: n,
            nodes: events.nodes as u64,
            sources: count(&is_source),
            destinations: count(&is_destination),
            bipartite: events.first_destination.is_some(),
            span_seconds: events.span_seconds(),
            ticks_per_second: events.ticks_per_second,
            origin: events.origin,
            first_time: events.time_scale().text(0),
            last_time: events.time_scale().text(events.time.last().copied().unwrap_or(0)),
            unique_times: unique(&events.time),
            unique_pairs,
            repeat_share: (n - unique_pairs) as f64 / n.max(1) as f64,
            duplicates: duplicates(events),
            self_loops,
            labels: LabelStats::new(events),
            classes: events.classes.as_ref().map(ClassStats::new),
            node_labels: events.node_labels.as_ref().map(|labels| NodeLabelStats::new(labels, events)),
            edge_feature_width: events.edge_width(),
            node_feature_width: events.node_width(),
            mean_degree: 2.0 * n as f64 / events.nodes.max(1) as f64,
            max_degree: degree.iter().max().copied().unwrap_or(0),
            degrees: degree_buckets(&degree),
            gaps: trim(
                gaps.iter().zip(GAPS).map(|(&count, g)| Bucket { label: g.1.into(), count }).collect(),
            ),
            lines: events.lines,
            notes: events.notes.iter().cloned().chain(events.note_of_no_label(None)).collect(),
        }
    }
}

/// Counts the events that are equal to an earlier one.
fn duplicates(events: &Events) -> u64 {
    let bytes = events.edge_features.as_ref().map(|features| features.bytes()).unwrap_or_default();
    let width = bytes.len() / events.len().max(1);
    let features = |i: usize| &bytes[i * width..][..width];
    let label = |i: usize| events.label.as_ref().map(|labels| labels[i].to_bits());
    let pair = |i: &usize| (events.src[*i], events.dst[*i]);
    let mut count = 0;
    let mut start = 0;
    for group in events.time.chunk_by(|a, b| a == b) {
        let mut order: Vec<usize> = (start..start + group.len()).collect();
        start += group.len();
        order.sort_unstable_by_key(pair);
        for same in order.chunk_by(|a, b| pair(a) == pair(b)).filter(|same| same.len() > 1) {
            let mut rest: Vec<_> = same.iter().map(|&i| (label(i), features(i))).collect();
            rest.sort_unstable();
            count += rest.len() as u64 - unique(&rest);
        }
    }
    count
}

/// Returns the number of unique values of a sorted list.
fn unique<T: PartialEq>(sorted: &[T]) -> u64 {
    sorted.chunk_by(|a, b| a == b).count() as u64
}

/// Counts degrees in the buckets 0, 1, 2-3, 4-7, and so on.
fn degree_buckets(degree: &[u64]) -> Vec<Bucket> {
    let mut counts = [0u64; 65];
    degree.iter().for_each(|d| counts[64 - d.leading_zeros() as usize] += 1);
    let label = |k: usize| match k {
        0 | 1 => k.to_string(),
        _ => format!("{}-{}", 1u64 << (k - 1), (1u128 << k) - 1),
    };
    let skip = counts.iter().position(|&c| c > 0).unwrap_or(0);
    trim(counts.iter().enumerate().skip(skip).map(|(k, &count)| Bucket { label: label(k), count }).collect())
}

/// Drops empty buckets at the end.
fn trim(mut buckets: Vec<Bucket>) -> Vec<Bucket> {
    buckets.truncate(buckets.iter().rposition(|b| b.count > 0).map_or(0, |last| last + 1));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::runtime::NONE;

    #[test]
    fn a_small_stream_is_counted_right() {
        let events = Events {
            name: "small".into(),
            src: vec![0, 0, 1, 0, 1].into(),
            dst: vec![1, 1, 1, 2, 0].into(),
            time: vec![0, 5, 5, 65, 100_000].into(),
            label: Some(vec![0., 1., -0., 2., 0.]),
            label_names: None,
            node_labels: None,
            classes: Classes::new(4, 2, vec![1, 2, 2, NONE, NONE, NONE, 1, NONE, 2, NONE]).ok(),
            nodes: 3,
            first_destination: None,
            ticks_per_second: 1.0,
            encoding: None,
            tables: crate::Encodings::default(),
            time_format: crate::TimeFormat::Seconds,
            origin: 0,
            ids: None,
            edge_features: None,
            node_features: None,
            lines: None,
            notes: Vec::new(),
        };
        let s = Stats::new(&events);
        assert_eq!(
            (s.sources, s.destinations, s.self_loops, s.unique_pairs, s.unique_times),
            (2, 3, 1, 4, 4)
        );
        let labels = s.labels.unwrap();
        assert_eq!((s.repeat_share, labels.values, labels.missing, &labels.largest[..]), (0.2, 3, 0, "2"));
        assert_eq!(labels.first, [("0".into(), 3), ("1".into(), 1), ("2".into(), 1)]);
        let sets = ClassStats {
            classes: 4,
            labels_per_event: 1.0,
            most_labels: 2,
            most_frequent: 2,
            most_frequent_share: 0.6,
        };
        assert_eq!(s.classes, Some(sets));
        let bars = |buckets: &[Bucket]| {
            buckets.iter().map(|b| format!("{}:{}", b.label, b.count)).collect::<Vec<_>>().join(" ")
        };
        // Node 0 has four events, node 1 five (its self-loop counts twice), node 2 one.
        assert_eq!(bars(&s.degrees), "1:1 2-3:0 4-7:2");
        assert_eq!((s.max_degree, s.gaps.iter().map(|b| b.count).sum()), (5, 3u64));
        assert_eq!(s.gaps.last().unwrap().label, "to 1 week");
    }

    #[test]
    fn the_bundled_set_has_known_statistics() {
        let s = Stats::new(&crate::bundled().unwrap());
        assert_eq!((s.unique_pairs, s.sources, s.destinations, s.bipartite), (18_257, 8_227, 1_000, true));
        assert_eq!(s.degrees.iter().map(|b| b.count).sum::<u64>(), s.nodes);
        assert_eq!(s.gaps.iter().map(|b| b.count).sum::<u64>(), s.events - s.sources);
    }
}
