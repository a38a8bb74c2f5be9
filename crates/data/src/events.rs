//! A stream of events in time order, with its features, labels and metadata.
use super::{
    Classes, Encodings, FeatureEncoding, Features, Ids, LineCounts, NodeId, NodeLabels, NodeNames,
    TimeFormat, TimeScale,
};
use std::{mem, ops::Range, path::Path, sync::Arc};
use tgnn::{
    error::{Error, Result},
    runtime::{StoredAs, size_text},
};

/// Events `(src, dst, time)` in time order; the index of an event is its id.
///
/// The vectors have one entry per event, and are shared with the tables that models read. The fields are
/// public because the whole crate reads them. Code that builds an `Events` by hand should call
/// [`validate`](Self::validate), because the rest of the crate relies on its checks.
///
/// ```
/// let events = tgnn_data::bundled()?;
/// assert_eq!((events.len(), events.nodes, events.first_destination), (157_474, 9_227, Some(8_227)));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// The data set's name, for reports and results.
    pub name: String,
    /// Source nodes, each below [`nodes`](Self::nodes).
    pub src: Arc<Vec<u32>>,
    /// Destination nodes, each below [`nodes`](Self::nodes).
    pub dst: Arc<Vec<u32>>,
    /// Ticks since the first event: starts at 0 and never decreases.
    pub time: Arc<Vec<i64>>,
    /// A label per event, if the data has labels; NaN if an event has none. If labels are text, the index of
    /// the text in [`label_names`](Self::label_names).
    pub label: Option<Vec<f32>>,
    /// The different labels in the order of their letters, if they are text.
    pub label_names: Option<Arc<[Box<str>]>>,
    /// A set of classes per event, if the data has classes.
    pub classes: Option<Classes>,
    /// Labels of nodes at times, if the data has them.
    pub node_labels: Option<NodeLabels>,
    /// The number of nodes.
    pub nodes: usize,
    /// The first destination `f` of a bipartite stream, whose sources are `0..f` and destinations `f..nodes`;
    /// `None` if the stream is not bipartite.
    pub first_destination: Option<u32>,
    /// The unit of time: 1 if a tick is a second, 1000 if a tick is a millisecond.
    pub ticks_per_second: f64,
    /// The original time of the first event, in ticks.
    pub origin: i64,
    /// How the file writes times, and how they are shown.
    pub time_format: TimeFormat,
    /// The original id of every node; `None` if the ids equal the node numbers.
    pub ids: Option<Ids>,
    /// Edge features, one row per event.
    pub edge_features: Option<Features>,
    /// How columns of the file became the edge features; `None` if they are no columns of it.
    pub encoding: Option<FeatureEncoding>,
    /// How columns of separate tables became edge and node features.
    pub tables: Encodings,
    /// Node features, one row per node.
    pub node_features: Option<Features>,
    /// What became of the lines of the text that the events come from; `None` if they come from no text.
    pub lines: Option<LineCounts>,
    /// Remarks of the reader about changes and doubts, such as `sorted 12 out-of-order events`.
    pub notes: Vec<String>,
}

impl Events {
    /// Makes a stream of one's own events, in time order: seconds, nodes from 0 on, no features or labels.
    /// Everything else may be set afterwards; times count from the first event on.
    ///
    /// Features are what tells nodes apart: without them, models such as TGN see only when and how often
    /// nodes had events. If you have none, give every node a learned row (`static.mode` in the
    /// configuration) or random features. `first_destination` says that the stream is bipartite, which
    /// only the protocol `disttgl` uses: it then draws negatives from the destinations.
    ///
    /// ```
    /// let events = tgnn_data::Events::new("mine", vec![0, 1], vec![2, 0], vec![1_000, 1_060])?;
    /// assert_eq!((events.nodes, events.origin, &events.time[..]), (3, 1_000, &[0, 60][..]));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn new(name: impl Into<String>, src: Vec<u32>, dst: Vec<u32>, time: Vec<i64>) -> Result<Self> {
        let (name, origin) = (name.into(), time.first().copied().unwrap_or(0));
        let events = Events {
            nodes: src.iter().chain(&dst).max().map_or(0, |&v| v as usize + 1),
            time: Arc::new(time.into_iter().map(|t| t.saturating_sub(origin)).collect()),
            name,
            src: Arc::new(src),
            dst: Arc::new(dst),
            origin,
            time_format: TimeFormat::Seconds,
            label: None,
            label_names: None,
            classes: None,
            node_labels: None,
            first_destination: None,
            ticks_per_second: 1.0,
            ids: None,
            edge_features: None,
            encoding: None,
            tables: Encodings::default(),
            node_features: None,
            lines: None,
            notes: Vec::new(),
        };
        events.validate(&events.name)?;
        Ok(events)
    }
    /// Returns the original id of a node.
    ///
    /// # Panics
    /// If there is no node `node`.
    pub fn id(&self, node: u32) -> NodeId {
        match &self.ids {
            Some(ids) => ids.get(node as usize).expect("a node of the stream"),
            None => NodeId::Number(node.into()),
        }
    }

    /// Returns the nodes by their original ids.
    pub fn names(&self) -> NodeNames {
        NodeNames::new(self.ids.as_ref(), self.first_destination, self.nodes, self.nodes, &[])
    }

    /// Returns the conversion between ticks and the times of the file.
    pub fn time_scale(&self) -> TimeScale {
        let (ticks_per_second, origin) = (self.ticks_per_second, self.origin);
        TimeScale { ticks_per_second, origin, format: self.time_format.clone() }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// Whether there are no events; a reader never returns such a stream.
    pub fn is_empty(&self) -> bool {
        self.src.is_empty()
    }

    /// Returns the length of a tick in seconds.
    pub fn seconds_per_tick(&self) -> f32 {
        (1.0 / self.ticks_per_second) as f32
    }

    /// Returns the seconds between the first and the last event.
    pub fn span_seconds(&self) -> f64 {
        self.time.last().map_or(0.0, |&t| t as f64 / self.ticks_per_second)
    }

    /// Returns for every node whether it has an event in `range`.
    #[doc(hidden)]
    pub fn nodes_in(&self, range: Range<usize>) -> Vec<bool> {
        let mut has = vec![false; self.nodes];
        for &node in self.src[range.clone()].iter().chain(&self.dst[range]) {
            has[node as usize] = true;
        }
        has
    }

    /// Returns how columns of files became edge and node features.
    pub fn encodings(&self) -> Encodings {
        let fits = |encoding: &&FeatureEncoding, width| encoding.width() == width;
        let edge = self.encoding.as_ref().or(self.tables.edge.as_ref());
        Encodings {
            edge: edge.filter(|encoding| fits(encoding, self.edge_width())).cloned(),
            node: self.tables.node.as_ref().filter(|encoding| fits(encoding, self.node_width())).cloned(),
        }
    }

    /// Returns the width of the edge features; 0 if there are none.
    pub fn edge_width(&self) -> usize {
        self.edge_features.as_ref().map_or(0, Features::cols)
    }

    /// Returns the width of the node features; 0 if there are none.
    pub fn node_width(&self) -> usize {
        self.node_features.as_ref().map_or(0, Features::cols)
    }

    /// Converts the edge and node features to storage type `kept`, rounding where needed. Those of a file
    /// become a copy in memory, which a note says.
    ///
    /// # Errors
    /// Those of [`Features::stored_as`].
    pub fn keep_features_as(&mut self, kept: StoredAs) -> Result<()> {
        let all = [("edge", &mut self.edge_features), ("node", &mut self.node_features)];
        for (what, features) in
            all.into_iter().filter_map(|(what, features)| Some((what, features.as_mut()?)))
        {
            let before = mem::replace(features, features.stored_as(kept)?);
            if before.is_mapped() && !features.is_mapped() {
                let size = size_text(features.bytes().len() as u64);
                self.notes.push(format!(
                    "{what} features are {} in their file: a copy in {kept} takes {size}; `data import \
                     --features-as {kept}` writes them so",
                    before.kept()
                ));
            }
        }
        Ok(())
    }

    /// Describes a label that is infinite, or no index of a text.
    fn label_fault(&self) -> Option<String> {
        let mut labels = self.label.iter().flatten().filter(|label| !label.is_nan());
        match &self.label_names {
            None => labels.any(|label| label.is_infinite()).then(|| "a label is not finite".into()),
            Some(names) if !names.is_sorted_by(|a, b| a < b) => {
                Some("texts of labels are not in order".into())
            }
            Some(names) => labels
                .find(|&&l| !(l >= 0.0 && l.fract() == 0.0 && (l as usize) < names.len()))
                .map(|label| format!("a label is text {label} of {}", names.len())),
        }
    }

    /// Checks the invariants of all fields; errors call the stream `name`.
    ///
    /// # Errors
    /// Data, naming the first event that breaks an invariant (events count from 0).
    pub fn validate(&self, name: impl AsRef<Path>) -> Result<()> {
        let bad = |what: String| {
            Err(Error::data(&name, what).remedy("give other arrays, or import the data again"))
        };
        let n = self.len();
        if n == 0 || n > u32::MAX as usize || self.nodes > u32::MAX as usize {
            return bad(format!("{n} events of {} nodes; there must be 1 to 2^32 - 1 of each", self.nodes));
        }
        let lengths = [
            ("dst", self.dst.len()),
            ("time", self.time.len()),
            ("label", self.label.as_ref().map_or(n, Vec::len)),
        ];
        if let Some((what, len)) = lengths.iter().find(|(_, len)| *len != n) {
            return bad(format!("{len} values of {what} for {n} events"));
        }
        let first = self.first_destination.map(|f| f as usize);
        let (sources, destinations) = (0..first.unwrap_or(self.nodes), first.unwrap_or(0)..self.nodes);
        let outside = |ids: &[u32], range: std::ops::Range<usize>| {
            ids.iter().position(|&v| !range.contains(&(v as usize)))
        };
        if let Some(i) = outside(&self.src, sources.clone()) {
            return bad(format!("the source of event {i} is {}, outside {sources:?}", self.src[i]));
        }
        if let Some(i) = outside(&self.dst, destinations.clone()) {
            return bad(format!("the destination of event {i} is {}, outside {destinations:?}", self.dst[i]));
        }
        if self.time[0] != 0 {
            return bad(format!("the first event has time {}, not 0", self.time[0]));
        }
        if let Some(i) = self.time.windows(2).position(|t| t[0] > t[1]) {
            return bad(format!("event {} is earlier than the one before it", i + 1));
        }
        if let Some(what) = self.label_fault() {
            return bad(what);
        }
        if !(self.ticks_per_second.is_finite() && self.ticks_per_second > 0.0) {
            return bad(format!("{} ticks per second", self.ticks_per_second));
        }
        let rows = [
            ("edge features", self.edge_features.as_ref().map(Features::rows), n, "events"),
            ("node features", self.node_features.as_ref().map(Features::rows), self.nodes, "nodes"),
            ("classes", self.classes.as_ref().map(Classes::events), n, "events"),
            ("ids", self.ids.as_ref().map(Ids::len), self.nodes, "nodes"),
        ];
        for (what, actual, wanted, owners) in rows {
            if let Some(actual) = actual.filter(|&actual| actual != wanted) {
                return bad(format!("{actual} rows of {what} for {wanted} {owners}"));
            }
        }
        if let Some(labels) = &self.node_labels {
            labels.validate(self.nodes, name.as_ref())?;
        }
        match self.encoding.as_ref().map(FeatureEncoding::width) {
            Some(width) if width != self.edge_width() => {
                bad(format!("columns of {width} features, and {} edge features", self.edge_width()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        Events {
            name: "test".into(),
            src: vec![0, 1].into(),
            dst: vec![2, 3].into(),
            time: vec![0, 2500].into(),
            label: None,
            label_names: None,
            classes: None,
            node_labels: None,
            nodes: 4,
            first_destination: Some(2),
            ticks_per_second: 1000.0,
            origin: 17,
            time_format: TimeFormat::Seconds,
            ids: None,
            edge_features: None,
            encoding: None,
            tables: Encodings::default(),
            node_features: None,
            lines: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn ticks_become_seconds() {
        let e = events();
        assert_eq!((e.seconds_per_tick(), e.span_seconds(), e.len(), e.is_empty()), (0.001, 2.5, 2, false));
    }

    #[test]
    fn every_broken_invariant_is_named() {
        assert!(events().validate("x").is_ok());
        type Damage = fn(&mut Events);
        let broken: [(&str, Damage); 13] = [
            ("0 events", |e| Arc::make_mut(&mut e.src).clear()),
            ("1 values of dst for 2", |e| Arc::make_mut(&mut e.dst).truncate(1)),
            ("1 values of label", |e| e.label = Some(vec![0.])),
            ("source of event 1 is 2", |e| Arc::make_mut(&mut e.src)[1] = 2),
            ("destination of event 0 is 4, outside 2..4", |e| Arc::make_mut(&mut e.dst)[0] = 4),
            ("first event has time 1", |e| Arc::make_mut(&mut e.time)[0] = 1),
            ("event 1 is earlier", |e| Arc::make_mut(&mut e.time)[1] = -1),
            ("label is not finite", |e| e.label = Some(vec![f32::NAN, f32::INFINITY])),
            ("a label is text 2 of 2", |e| {
                (e.label, e.label_names) = (Some(vec![f32::NAN, 2.]), Some(["a".into(), "b".into()].into()));
            }),
            ("0 ticks per second", |e| e.ticks_per_second = 0.0),
            ("3 rows of edge features for 2 events", |e| e.edge_features = Some(Features::random(3, 1, 0))),
            ("1 rows of classes for 2 events", |e| e.classes = Classes::new(1, 1, vec![0]).ok()),
            ("1 rows of ids for 4 nodes", |e| e.ids = Some(Ids::new(vec![7]))),
        ];
        for (expected, damage) in broken {
            let mut e = events();
            damage(&mut e);
            let text = e.validate("x").unwrap_err().to_string();
            assert!(text.starts_with("x: ") && text.contains(expected), "{text}");
        }
    }
}
