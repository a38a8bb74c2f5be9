//! Events from columns of the caller's own.
use super::{
    Events, Features, TimeFormat,
    ids::IdColumns,
    name_table::NameTable,
    node_rows::NodeRows,
    raw::{Labels, Raw},
};

use std::path::Path;
use tgnn::error::{Error, Result};

/// Events as the caller has them: in any order, with any ids and absolute times. [`build`](Self::build) makes
/// a stream of them, as the readers do.
///
/// ```
/// use tgnn_data::EventColumns;
/// let (src, dst, time) = (vec![70, 10], vec![10, 30], vec![1_060, 1_000]);
/// let events = EventColumns { src, dst, time, ..EventColumns::default() }.build()?;
/// assert_eq!((&events.src[..], &events.dst[..]), (&[0, 2][..], &[1, 0][..]));
/// assert_eq!((&events.time[..], events.origin), (&[0, 60][..], 1_000));
/// assert_eq!(events.notes[0], "sorted 1 out-of-order event");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventColumns {
    /// The data set's name, for reports, results and errors.
    pub name: String,
    /// Ids of the sources; indices of [`names`](Self::names) if there are any.
    pub src: Vec<u64>,
    /// Ids of the destinations, in the same way.
    pub dst: Vec<u64>,
    /// Different texts, if ids are text.
    pub names: Option<Vec<Box<str>>>,
    /// Times in ticks.
    pub time: Vec<i64>,
    /// The unit of time.
    pub ticks_per_second: f64,
    /// How the caller writes times.
    pub time_format: TimeFormat,
    /// A label per event; NaN if it has none.
    pub label: Option<Vec<f32>>,
    /// Different texts in the order of their letters, if labels are text: [`label`](Self::label) are then
    /// their indices.
    pub label_names: Option<Vec<Box<str>>>,
    /// One row per event.
    pub edge_features: Option<Features>,
    /// One row per node in ascending order of ids, or one row per id from 0.
    pub node_features: Option<Features>,
    /// Whether sources and destinations are different kinds of nodes; `None` if they are where no id is both.
    pub bipartite: Option<bool>,
}

impl Default for EventColumns {
    fn default() -> Self {
        EventColumns {
            name: "events".into(),
            src: Vec::new(),
            dst: Vec::new(),
            names: None,
            time: Vec::new(),
            ticks_per_second: 1.0,
            time_format: TimeFormat::Seconds,
            label: None,
            label_names: None,
            edge_features: None,
            node_features: None,
            bipartite: None,
        }
    }
}

impl EventColumns {
    /// Sorts the events by time if they are not, numbers nodes densely, and checks everything.
    /// [`Events::notes`] say what was changed. Features of events in order of time are not copied.
    ///
    /// # Errors
    /// Data if the columns differ in length, an index of a name is too large, or a name occurs twice; or as
    /// [`Events::validate`].
    pub fn build(self) -> Result<Events> {
        let n = self.src.len();
        let lengths = [
            ("destinations", self.dst.len()),
            ("times", self.time.len()),
            ("labels", self.label.as_ref().map_or(n, Vec::len)),
            ("rows of edge features", self.edge_features.as_ref().map_or(n, Features::rows)),
        ];
        if let Some((what, len)) = lengths.into_iter().find(|&(_, len)| len != n) {
            return Err(Error::data(&self.name, format!("{n} sources and {len} {what}"))
                .remedy("give one of each for every event"));
        }
        if let Some(names) = &self.names {
            let unnamed = self.src.iter().chain(&self.dst).find(|&&i| i >= names.len() as u64);
            if let Some(i) = unnamed {
                return Err(Error::data(&self.name, format!("an id is name {i} of {}", names.len()))
                    .remedy("give indices of the names"));
            }
        }
        let count = self.names.as_ref().map_or(0, Vec::len);
        let names: Option<NameTable> = self.names.map(|names| names.iter().map(|name| &**name).collect());
        if names.as_ref().is_some_and(|names| names.len() != count) {
            return Err(Error::data(&self.name, "a name occurs twice").remedy("give different names"));
        }
        Raw {
            ids: IdColumns::new(self.src, self.dst, names),
            time: self.time,
            ticks_per_second: self.ticks_per_second,
            time_format: self.time_format,
            label: self.label.map(|values| Labels { values, names: self.label_names.map(Into::into) }),
            edge_features: self.edge_features,
            node_features: self.node_features.map(|f| (NodeRows::Matrix(f), "node features".into())),
            name: self.name.clone(),
            ..Raw::new(Path::new(&self.name))
        }
        .build(self.bipartite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_different_lengths_are_refused_by_name() {
        let columns =
            EventColumns { src: vec![0, 1], dst: vec![1], time: vec![0, 1], ..EventColumns::default() };
        let e = columns.build().unwrap_err().to_string();
        assert_eq!(e, "events: 2 sources and 1 destinations; give one of each for every event");
    }

    #[test]
    fn ids_may_be_names() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).into()).collect());
        let columns = |names| EventColumns {
            src: vec![2, 0],
            dst: vec![0, 1],
            names,
            time: vec![0, 1],
            ..EventColumns::default()
        };
        let events = columns(names(&["a", "b", "c"])).build().unwrap();
        assert_eq!([events.src[0], events.dst[1]].map(|v| events.id(v).to_string()), ["c", "b"]);
        let e = columns(names(&["a", "b"])).build().unwrap_err().to_string();
        assert_eq!(e, "events: an id is name 2 of 2; give indices of the names");
        let e = columns(names(&["a", "b", "a"])).build().unwrap_err().to_string();
        assert_eq!(e, "events: a name occurs twice; give different names");
    }

    #[test]
    fn features_of_events_in_order_are_not_copied() {
        let values = std::sync::Arc::new(vec![1.0f32, 2.0]);
        let address = values.as_ptr();
        let features = Features::shared(2, 1, values).unwrap();
        let (src, dst, time) = (vec![0, 1], vec![1, 2], vec![3, 4]);
        let columns =
            EventColumns { src, dst, time, edge_features: Some(features), ..EventColumns::default() };
        assert_eq!(columns.build().unwrap().edge_features.unwrap().values().as_ptr(), address);
    }
}
