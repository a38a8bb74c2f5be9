//! A stream of events in time order, with everything known about it.
use super::{Classes, Features};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::StoredAs,
};
use std::{borrow::Cow, path::Path};

/// Events `(src, dst, time)` in time order; the position of an event is its id.
///
/// All vectors have one entry per event. The fields are public because every part of the crate reads them; whoever
/// builds a value by hand should call [`validate`](Self::validate), on whose promises the rest relies.
///
/// ```
/// let events = tgnn::data::bundled()?;
/// assert_eq!((events.len(), events.nodes, events.first_destination), (157_474, 9_227, Some(8_227)));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// The data set's name, for reports and results.
    pub name: String,
    /// Source nodes, each below [`nodes`](Self::nodes).
    pub src: Vec<u32>,
    /// Destination nodes, each below [`nodes`](Self::nodes).
    pub dst: Vec<u32>,
    /// Ticks since the first event, from 0, never decreasing.
    pub time: Vec<i64>,
    /// A label per event, where the data has them.
    pub label: Option<Vec<f32>>,
    /// A set of classes per event, where the data has them.
    pub classes: Option<Classes>,
    /// The number of nodes.
    pub nodes: usize,
    /// In a bipartite stream sources are `0..f` and destinations `f..nodes`; `None` if the stream is not bipartite.
    pub first_destination: Option<u32>,
    /// The unit of time: 1 if a tick is a second, 1000 if it is a millisecond.
    pub ticks_per_second: f64,
    /// The original time of the first event, in ticks.
    pub origin: i64,
    /// The original id of every node, where it is not the node's number.
    pub ids: Option<Ids>,
    /// Edge features, a row per event.
    pub edge_features: Option<Features>,
    /// Node features, a row per node.
    pub node_features: Option<Features>,
    /// What a reader changed or doubted, in words: `sorted 12 out-of-order events`.
    pub notes: Vec<String>,
}

impl Events {
    /// The number of events.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// Whether there are no events; a reader never returns such a stream.
    pub fn is_empty(&self) -> bool {
        self.src.is_empty()
    }

    /// Seconds in a tick.
    pub fn seconds_per_tick(&self) -> f32 {
        (1.0 / self.ticks_per_second) as f32
    }

    /// Seconds between the first and the last event.
    pub fn span_seconds(&self) -> f64 {
        self.time.last().map_or(0.0, |&t| t as f64 / self.ticks_per_second)
    }

    /// Columns of the edge features; 0 if there are none.
    pub fn edge_width(&self) -> usize {
        self.edge_features.as_ref().map_or(0, Features::cols)
    }

    /// Columns of the node features; 0 if there are none.
    pub fn node_width(&self) -> usize {
        self.node_features.as_ref().map_or(0, Features::cols)
    }

    /// Keeps features of edges and nodes as `kept`, rounding them where they were not kept so.
    ///
    /// # Errors
    /// As [`Features::kept_as`].
    pub fn keep_features_as(&mut self, kept: StoredAs) -> Result<()> {
        for features in [&mut self.edge_features, &mut self.node_features].into_iter().flatten() {
            *features = features.kept_as(kept)?;
        }
        Ok(())
    }

    /// The sets of classes that a classifier learns: [`classes`](Self::classes), else the [`label`](Self::label)s, where whole
    /// numbers from 0 name a class each, and 0 and 1 alone are the empty set and the only class.
    ///
    /// # Errors
    /// Data where events have no labels, their labels name no classes, or all are 0.
    pub fn class_labels(&self) -> Result<Cow<'_, Classes>> {
        match (&self.classes, &self.label) {
            (Some(classes), _) => Ok(Cow::Borrowed(classes)),
            (None, Some(labels)) => Classes::of_labels(labels).map(Cow::Owned).map_err(|e| e.in_file(&self.name)),
            (None, None) => Err(Error::new(ErrorKind::Data, format!("{} has no labels", self.name)).remedy(
                "name a column with --columns src=1,dst=2,time=3,label=4, or add classes.npy to a folder of .npy",
            )),
        }
    }

    /// Checks every promise of the fields, in one pass; `place` is what errors call the stream.
    ///
    /// # Errors
    /// Data, naming the first event that breaks a promise (events count from 0).
    pub fn validate(&self, place: impl AsRef<Path>) -> Result<()> {
        let bad = |what: String| Err(Error::data(&place, what).remedy("import the data again"));
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
        if self.label.iter().flatten().any(|l| !l.is_finite()) {
            return bad("a label is not a finite number".into());
        }
        if !(self.ticks_per_second.is_finite() && self.ticks_per_second > 0.0) {
            return bad(format!("{} ticks per second", self.ticks_per_second));
        }
        let rows = [
            ("edge features", self.edge_features.as_ref().map(Features::rows), n, "events"),
            ("node features", self.node_features.as_ref().map(Features::rows), self.nodes, "nodes"),
            ("classes", self.classes.as_ref().map(Classes::events), n, "events"),
            ("ids", self.ids.as_ref().map(|ids| ids.original().len()), self.nodes, "nodes"),
        ];
        for (what, has, wants, of) in rows {
            if let Some(has) = has.filter(|&has| has != wants) {
                return bad(format!("{has} rows of {what} for {wants} {of}"));
            }
        }
        Ok(())
    }
}

/// The ids that nodes had in their file.
///
/// In a stream whose file numbers sources and destinations apart, a source and a destination may share an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(Vec<u64>);

impl Ids {
    /// Node `n` was `original[n]`.
    pub fn new(original: Vec<u64>) -> Self {
        Ids(original)
    }

    /// The original ids by node.
    pub fn original(&self) -> &[u64] {
        &self.0
    }

    /// The first node that had this id, if any; looks at every node.
    pub fn node(&self, original: u64) -> Option<u32> {
        self.0.iter().position(|&id| id == original).map(|n| n as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        Events {
            name: "test".into(),
            src: vec![0, 1],
            dst: vec![2, 3],
            time: vec![0, 2500],
            label: None,
            classes: None,
            nodes: 4,
            first_destination: Some(2),
            ticks_per_second: 1000.0,
            origin: 17,
            ids: None,
            edge_features: None,
            node_features: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn ticks_become_seconds() {
        let e = events();
        assert_eq!((e.seconds_per_tick(), e.span_seconds(), e.len(), e.is_empty()), (0.001, 2.5, 2, false));
    }

    #[test]
    fn classes_come_from_sets_or_else_from_labels_or_else_not_at_all() {
        let mut e = events();
        assert!(e.class_labels().unwrap_err().to_string().starts_with("test has no labels; name a column "));
        e.label = Some(vec![0.5, 1.0]);
        assert!(e.class_labels().unwrap_err().to_string().starts_with("test: the label of event 0 is 0.5"));
        e.label = Some(vec![0.0, 1.0]);
        assert_eq!((e.class_labels().unwrap().count(), e.class_labels().unwrap().of(1)), (1, &[0][..]));
        e.classes = Classes::new(7, 1, vec![6, 2]).ok();
        assert_eq!((e.class_labels().unwrap().count(), e.class_labels().unwrap().of(1)), (7, &[2][..]));
    }

    #[test]
    fn every_broken_promise_is_named() {
        assert!(events().validate("x").is_ok());
        type Harm = fn(&mut Events);
        let broken: [(&str, Harm); 12] = [
            ("0 events", |e| e.src.clear()),
            ("1 values of dst for 2", |e| e.dst.truncate(1)),
            ("1 values of label", |e| e.label = Some(vec![0.])),
            ("source of event 1 is 2", |e| e.src[1] = 2),
            ("destination of event 0 is 4, outside 2..4", |e| e.dst[0] = 4),
            ("first event has time 1", |e| e.time[0] = 1),
            ("event 1 is earlier", |e| e.time[1] = -1),
            ("label is not a finite", |e| e.label = Some(vec![0., f32::NAN])),
            ("0 ticks per second", |e| e.ticks_per_second = 0.0),
            ("3 rows of edge features for 2 events", |e| e.edge_features = Some(Features::random(3, 1, 0))),
            ("1 rows of classes for 2 events", |e| e.classes = Classes::new(1, 1, vec![0]).ok()),
            ("1 rows of ids for 4 nodes", |e| e.ids = Some(Ids::new(vec![7]))),
        ];
        for (said, harm) in broken {
            let mut e = events();
            harm(&mut e);
            let text = e.validate("x").unwrap_err().to_string();
            assert!(text.starts_with("x: ") && text.contains(said), "{text}");
        }
    }
}
