//! Events from columns of the caller's own.
use super::{Events, Features, raw::Raw};
use crate::error::{Error, Result};
use std::path::Path;

/// Events as the caller has them: in any order, with any ids and absolute times. [`build`](Self::build) makes
/// a stream of them, as the readers do.
///
/// ```
/// use tgnn::data::EventColumns;
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
    /// Sources.
    pub src: Vec<u64>,
    /// Destinations.
    pub dst: Vec<u64>,
    /// Times in ticks.
    pub time: Vec<i64>,
    /// The unit of time.
    pub ticks_per_second: f64,
    /// A label per event.
    pub label: Option<Vec<f32>>,
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
            time: Vec::new(),
            ticks_per_second: 1.0,
            label: None,
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
    /// Data if the columns differ in length, or as [`Events::validate`].
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
        Raw {
            src: self.src,
            dst: self.dst,
            time: self.time,
            ticks_per_second: self.ticks_per_second,
            label: self.label,
            edge_features: self.edge_features,
            node_features: self.node_features.map(|features| (features, "node features".into())),
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
