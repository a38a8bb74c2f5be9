//! Labels of nodes at times: what node property prediction predicts.
use super::{Ids, NodeId};
use std::{collections::HashMap, ops::Range, path::Path};
use tgnn::error::{Error, ErrorKind, Result};

/// Maximum number of classes.
const MAX_CLASSES: usize = 1 << 16;

/// Weight of a class in the label of a node at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLabel {
    /// Ticks since the first event.
    pub time: i64,
    /// The node.
    pub node: u32,
    /// The class.
    pub class: u32,
    /// Its weight: finite, 0 or more.
    pub weight: f32,
}

/// Label rows in the order of their times: a row has a time, a node, and the weights of some classes; all
/// other classes have weight 0. Rows of the same time keep the order in which their nodes were first named.
///
/// ```
/// use tgnn_data::{NodeLabel, NodeLabels};
/// let label = |time, node, class, weight| NodeLabel { time, node, class, weight };
/// let labels = NodeLabels::new(3, vec![label(9, 1, 2, 0.5), label(5, 0, 0, 1.0), label(9, 1, 0, 0.5)])?;
/// assert_eq!((labels.len(), labels.times(), labels.nodes()), (2, &[5, 9][..], &[0, 1][..]));
/// assert_eq!(labels.row(1).collect::<Vec<_>>(), [(0, 0.5), (2, 0.5)]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLabels {
    classes: usize,
    /// The original ids of the classes, unless they are their numbers.
    ids: Option<Ids>,
    time: Vec<i64>,
    node: Vec<u32>,
    /// Row `r` has the entries `offsets[r]..offsets[r + 1]`, in ascending order of their classes.
    offsets: Vec<u32>,
    class: Vec<u32>,
    weight: Vec<f32>,
    repeated: usize,
}

impl NodeLabels {
    /// Collects labels in any order into rows. Of several weights for the same time, node and class, the last
    /// counts; [`repeated`](Self::repeated) is the number of the others.
    ///
    /// # Errors
    /// Data if there are no labels, `classes` is 0 or more than 65,536, a class is `classes` or more, or a
    /// weight is negative or not finite.
    pub fn new(classes: usize, labels: Vec<NodeLabel>) -> Result<Self> {
        let mut order: Vec<u32> = (0..checked_count(labels.len())?).collect();
        order.sort_by_key(|&i| labels[i as usize].time);
        let (mut rows, mut row_of) = (Rows::default(), vec![0u32; labels.len()]);
        for at_once in order.chunk_by(|&a, &b| labels[a as usize].time == labels[b as usize].time) {
            let mut row_of_node = HashMap::new();
            for &i in at_once {
                let NodeLabel { time, node, .. } = labels[i as usize];
                row_of[i as usize] = *row_of_node.entry(node).or_insert_with(|| rows.push(time, node));
            }
        }
        // The sort is stable, so of equal keys the last is the last one given.
        let key = |i: u32| (row_of[i as usize], labels[i as usize].class);
        order.sort_unstable();
        order.sort_by_key(|&i| key(i));
        let mut kept = NodeLabels {
            classes,
            ids: None,
            time: rows.time,
            node: rows.node,
            offsets: vec![0],
            class: Vec::new(),
            weight: Vec::new(),
            repeated: 0,
        };
        for same_row in order.chunk_by(|&a, &b| key(a).0 == key(b).0) {
            for same in same_row.chunk_by(|&a, &b| key(a) == key(b)) {
                let label = labels[same[same.len() - 1] as usize];
                kept.class.push(label.class);
                kept.weight.push(label.weight);
                kept.repeated += same.len() - 1;
            }
            kept.offsets.push(kept.class.len() as u32);
        }
        kept.check()?;
        Ok(kept)
    }

    /// Wraps arrays as [`save`](super::save) writes them.
    pub(super) fn of_arrays(
        classes: usize,
        (time, node): (Vec<i64>, Vec<u32>),
        (offsets, class, weight): (Vec<u32>, Vec<u32>, Vec<f32>),
    ) -> Result<Self> {
        let labels = NodeLabels { classes, ids: None, time, node, offsets, class, weight, repeated: 0 };
        labels.check()?;
        Ok(labels)
    }

    /// Names the classes by their original ids.
    ///
    /// # Errors
    /// Data if there are more or fewer ids than classes.
    pub fn with_ids(mut self, ids: Option<Ids>) -> Result<Self> {
        match &ids {
            Some(ids) if ids.len() != self.classes => Err(bad(
                format!("{} ids for {} classes of labels", ids.len(), self.classes),
                "give an id for every class",
            )),
            _ => {
                self.ids = ids;
                Ok(self)
            }
        }
    }

    fn check(&self) -> Result<()> {
        let (rows, entries) = (self.time.len(), self.class.len());
        if rows == 0 {
            return Err(bad("there are no node labels".into(), "write at least one"));
        }
        if !(1..=MAX_CLASSES).contains(&self.classes) {
            let what = format!("{} classes of node labels", self.classes);
            return Err(bad(what, &format!("there can be 1 to {MAX_CLASSES}")));
        }
        let shaped = self.node.len() == rows
            && self.weight.len() == entries
            && self.offsets.len() == rows + 1
            && self.offsets.first() == Some(&0)
            && self.offsets.last().is_some_and(|&last| last as usize == entries);
        let ordered = self.time.is_sorted() && self.offsets.is_sorted();
        if !(shaped && ordered) {
            return Err(bad("the arrays of node labels do not fit together".into(), "import the data again"));
        }
        if let Some(class) = self.class.iter().find(|&&c| c as usize >= self.classes) {
            let what = format!("a node label has class {class}, there are {}", self.classes);
            return Err(bad(what, "classes count from 0"));
        }
        if let Some(weight) = self.weight.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            return Err(bad(format!("a node label has the weight {weight}"), "weights are 0 or more"));
        }
        Ok(())
    }

    /// Checks that the rows are of the nodes of a stream with `nodes` nodes; errors call it `name`.
    pub(super) fn validate(&self, nodes: usize, name: &Path) -> Result<()> {
        match self.node.iter().find(|&&v| v as usize >= nodes) {
            None => Ok(()),
            Some(v) => Err(Error::data(name, format!("a label is of node {v}, there are {nodes}"))
                .remedy("import the data again")),
        }
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the original ids of the classes; `None` if they are the numbers of the classes.
    pub fn ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// Returns the original id of a class.
    pub fn id(&self, class: u32) -> NodeId {
        let id = self.ids.as_ref().and_then(|ids| ids.get(class as usize));
        id.unwrap_or(NodeId::Number(class.into()))
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there are no rows, which [`new`](Self::new) refuses.
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Returns the times of the rows, ascending: ticks since the first event.
    pub fn times(&self) -> &[i64] {
        &self.time
    }

    /// Returns the nodes of the rows.
    pub fn nodes(&self) -> &[u32] {
        &self.node
    }

    /// Returns the classes of a row in ascending order, with their weights.
    ///
    /// # Panics
    /// If there is no row `row`.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (u32, f32)> {
        let entries = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        self.class[entries.clone()].iter().copied().zip(self.weight[entries].iter().copied())
    }

    /// Returns the rows of each time, in the order of the times.
    pub fn at_once(&self) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        self.time.chunk_by(|a, b| a == b).map(move |same| {
            first += same.len();
            first - same.len()..first
        })
    }

    /// Returns where the entries of each row begin, the classes of the entries, and their weights.
    pub fn entries(&self) -> (&[u32], &[u32], &[f32]) {
        (&self.offsets, &self.class, &self.weight)
    }

    /// Returns the number of labels that [`new`](Self::new) left out because a later one replaced them.
    pub fn repeated(&self) -> usize {
        self.repeated
    }
}

/// Times and nodes of the rows so far.
#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    node: Vec<u32>,
}

impl Rows {
    /// Appends a row and returns its number.
    fn push(&mut self, time: i64, node: u32) -> u32 {
        self.time.push(time);
        self.node.push(node);
        self.time.len() as u32 - 1
    }
}

/// Returns the number of labels if it fits 32 bits.
fn checked_count(labels: usize) -> Result<u32> {
    u32::try_from(labels)
        .map_err(|_| bad(format!("{labels} node labels"), "give at most 2^32 - 1, such as the latest ones"))
}

fn bad(what: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Data, what).remedy(remedy.to_owned())
}

/// Labels as in a file, before the nodes of the events are numbered.
pub(super) struct RawLabels {
    /// The number of classes.
    pub classes: usize,
    /// Absolute time, original id of the node, class, weight.
    pub labels: Vec<(i64, u64, u32, f32)>,
}

impl RawLabels {
    /// Numbers the nodes by `node_of` and counts times from `origin`. The rest is left out, with a note.
    pub(super) fn build(
        self,
        origin: i64,
        node_of: impl Fn(u64) -> Option<u32>,
        file: &Path,
        notes: &mut Vec<String>,
    ) -> Result<NodeLabels> {
        let numbered = |(time, id, class, weight): (i64, u64, u32, f32)| {
            Some(NodeLabel { time: time.checked_sub(origin)?, node: node_of(id)?, class, weight })
        };
        let given = self.labels.len();
        let labels: Vec<NodeLabel> = self.labels.into_iter().filter_map(numbered).collect();
        let unknown = given - labels.len();
        let labels = NodeLabels::new(self.classes, labels).map_err(|e| e.in_file(file))?;
        note_left_out(unknown, labels.repeated(), notes);
        Ok(labels)
    }
}

/// Notes how many labels were of nodes without an event, and how many were replaced by later ones.
pub(super) fn note_left_out(unknown: usize, repeated: usize, notes: &mut Vec<String>) {
    use super::text::counted;
    if unknown > 0 {
        notes.push(format!("left out {} of nodes without an event", counted(unknown as u64, "label")));
    }
    if repeated > 0 {
        let labels = counted(repeated as u64, "label");
        notes.push(format!("left out {labels} that a later one of the same node, time and class replaces"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(time: i64, node: u32, class: u32, weight: f32) -> NodeLabel {
        NodeLabel { time, node, class, weight }
    }

    #[test]
    fn rows_are_in_order_of_time_and_then_as_first_named_and_the_last_weight_counts() {
        let given = vec![
            label(7, 3, 1, 0.25),
            label(-2, 9, 0, 1.0),
            label(7, 0, 4, 2.0),
            label(7, 3, 0, 0.5),
            label(7, 3, 1, 0.75),
        ];
        let labels = NodeLabels::new(5, given).unwrap();
        assert_eq!((labels.times(), labels.nodes()), (&[-2, 7, 7][..], &[9, 3, 0][..]));
        assert_eq!((labels.repeated(), labels.at_once().collect::<Vec<_>>()), (1, vec![0..1, 1..3]));
        assert_eq!(labels.row(1).collect::<Vec<_>>(), [(0, 0.5), (1, 0.75)]);
        assert_eq!(labels.row(2).collect::<Vec<_>>(), [(4, 2.0)]);
    }

    #[test]
    fn what_is_no_label_is_refused() {
        let message = |classes, labels: &[NodeLabel]| {
            NodeLabels::new(classes, labels.to_vec()).unwrap_err().to_string()
        };
        assert!(message(2, &[]).contains("there are no node labels; "));
        assert!(message(2, &[label(0, 0, 2, 1.0)]).contains("class 2, there are 2; "));
        assert!(message(2, &[label(0, 0, 1, -1.0)]).contains("the weight -1; "));
        assert!(message(2, &[label(0, 0, 1, f32::NAN)]).contains("the weight NaN; "));
        assert!(message(0, &[label(0, 0, 0, 1.0)]).contains("0 classes of node labels"));
        let one = NodeLabels::new(2, vec![label(0, 0, 1, 1.0)]).unwrap();
        assert!(one.clone().with_ids(Some(Ids::new(vec![4]))).is_err());
        let named = one.with_ids(Some(Ids::new(vec![4, 9]))).unwrap();
        assert_eq!(named.id(1), NodeId::Number(9));
        let arrays = |offsets: Vec<u32>| {
            NodeLabels::of_arrays(2, (vec![0, 1], vec![0, 0]), (offsets, vec![0], vec![1.0]))
        };
        assert!(arrays(vec![0, 1, 1]).is_ok() && arrays(vec![0, 2, 1]).is_err() && arrays(vec![0]).is_err());
    }
}
