//! Labels of nodes from columns of the caller's own.
use super::{
    Events, Ids, NodeId, NodeLabel, NodeLabels,
    node_labels::note_left_out,
    text::{counted, shown},
};
use std::collections::HashSet;
use tgnn::error::{Error, ErrorKind, Result};

/// Labels of nodes at times, in any order: a row has a time, a node, a label and its weight.
/// [`attach`](Self::attach) gives them to the events whose nodes they label.
///
/// ```
/// use tgnn_data::{EventColumns, LabelColumns, NodeId};
/// let (src, dst, time) = (vec![70, 10], vec![10, 30], vec![1_000, 1_060]);
/// let mut events = EventColumns { src, dst, time, ..EventColumns::default() }.build()?;
/// let labels = LabelColumns {
///     time: vec![60, 60],
///     node: vec![0, 1],
///     nodes: vec!["70".into(), "10".into()],
///     label: vec![0, 0],
///     labels: vec![NodeId::parse("jazz")],
///     weight: None,
/// };
/// labels.attach(&mut events)?;
/// assert_eq!(events.node_labels.unwrap().nodes(), [2, 0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LabelColumns {
    /// Times: ticks since the first event.
    pub time: Vec<i64>,
    /// The node of each row: an index of [`nodes`](Self::nodes).
    pub node: Vec<u32>,
    /// Original ids of nodes, as [`NodeNames::find`](super::NodeNames::find) takes them.
    pub nodes: Vec<Box<str>>,
    /// The label of each row: an index of [`labels`](Self::labels).
    pub label: Vec<u32>,
    /// The different labels.
    pub labels: Vec<NodeId>,
    /// The weight of each row; `None` if all are 1.
    pub weight: Option<Vec<f32>>,
}

impl LabelColumns {
    /// Makes the rows the [`node_labels`](Events::node_labels) of `events`, and replaces earlier ones. Labels
    /// that are all numbers become classes in ascending order, others in the order of
    /// [`labels`](Self::labels). Rows of nodes without an event are left out, with a note, and so are those
    /// that a later row of the same time, node and label replaces.
    ///
    /// # Errors
    /// Data if the columns differ in length, an index is too large, a label occurs twice, no row is of a node
    /// of the events, or a source and a destination share an id; or as [`NodeLabels::new`].
    pub fn attach(self, events: &mut Events) -> Result<()> {
        self.check()?;
        let names = events.names();
        let found: Vec<Option<u32>> = self
            .nodes
            .iter()
            .map(|id| names.lookup(id, None))
            .collect::<Result<_>>()
            .map_err(|e| bad(e.to_string()))?;
        if let (Some(id), true) = (self.nodes.first(), found.iter().all(Option::is_none)) {
            let why = names.find(id).err().map_or_else(String::new, |e| e.to_string());
            let what = format!("none of its nodes has an event, such as {}", shown(id.as_bytes()));
            return Err(bad(what).remedy(why));
        }
        let unknown = found.iter().filter(|node| node.is_none()).count();
        let (class_of, ids) = classes(&self.labels);
        let labelled = |i: usize| {
            let class = class_of[self.label[i] as usize];
            let weight = self.weight.as_ref().map_or(1.0, |weight| weight[i]);
            Some(NodeLabel { time: self.time[i], node: found[self.node[i] as usize]?, class, weight })
        };
        let rows = (0..self.time.len()).filter_map(labelled).collect();
        let labels = NodeLabels::new(self.labels.len(), rows)?.with_ids(ids)?;
        if unknown > 0 {
            let nodes = counted(unknown as u64, "labelled node");
            events.notes.push(format!("left out {nodes} without an event"));
        }
        note_left_out(0, labels.repeated(), &mut events.notes);
        events.node_labels = Some(labels);
        Ok(())
    }

    /// Checks lengths, indices and labels.
    fn check(&self) -> Result<()> {
        let n = self.time.len();
        let weights = self.weight.as_ref().map_or(n, Vec::len);
        let lengths = [("nodes", self.node.len()), ("labels", self.label.len()), ("weights", weights)];
        if let Some((what, len)) = lengths.into_iter().find(|&(_, len)| len != n) {
            return Err(bad(format!("{n} times of labels and {len} {what}")).remedy("give one of each"));
        }
        for (what, indices, known) in
            [("node", &self.node, self.nodes.len()), ("label", &self.label, self.labels.len())]
        {
            if let Some(i) = indices.iter().find(|&&i| i as usize >= known) {
                return Err(bad(format!("a row has {what} {i} of {known}")).remedy("indices count from 0"));
            }
        }
        let mut known = HashSet::new();
        match self.labels.iter().find(|label| !known.insert(*label)) {
            Some(label) => Err(bad(format!("label {label} occurs twice")).remedy("give different labels")),
            None => Ok(()),
        }
    }
}

/// Numbers classes. Returns the number of each label, and the labels in the order of their numbers unless
/// they are equal.
fn classes(labels: &[NodeId]) -> (Vec<u32>, Option<Ids>) {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    let number = |i: usize| match labels[i] {
        NodeId::Number(n) => Some(n),
        NodeId::Text(_) => None,
    };
    let are_numbers = order.iter().all(|&i| number(i).is_some());
    if are_numbers {
        order.sort_by_key(|&i| number(i));
    }
    let mut class_of = vec![0; labels.len()];
    order.iter().zip(0..).for_each(|(&i, class)| class_of[i] = class);
    let same = are_numbers && order.iter().zip(0..).all(|(&i, class)| number(i) == Some(class));
    (class_of, (!same).then(|| order.iter().map(|&i| labels[i].clone()).collect()))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::Data, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventColumns;

    fn events() -> Events {
        let (src, dst, time) = (vec![7, 9], vec![9, 8], vec![10, 20]);
        EventColumns { src, dst, time, ..EventColumns::default() }.build().unwrap()
    }

    fn columns(change: impl FnOnce(&mut LabelColumns)) -> LabelColumns {
        let mut columns = LabelColumns {
            time: vec![5, 3],
            node: vec![1, 0],
            nodes: vec!["9".into(), "7".into()],
            label: vec![0, 1],
            labels: vec![NodeId::Number(4), NodeId::Number(2)],
            weight: Some(vec![1.0, 0.5]),
        };
        change(&mut columns);
        columns
    }

    #[test]
    fn rows_are_those_of_a_table() {
        let mut e = events();
        columns(|_| ()).attach(&mut e).unwrap();
        let labels = e.node_labels.unwrap();
        assert_eq!((labels.times(), labels.nodes()), (&[3, 5][..], &[2, 0][..]));
        assert_eq!([labels.id(0), labels.id(1)], [NodeId::Number(2), NodeId::Number(4)]);
        assert_eq!(labels.row(0).chain(labels.row(1)).collect::<Vec<_>>(), [(0, 0.5), (1, 1.0)]);
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let said =
            |change: fn(&mut LabelColumns)| columns(change).attach(&mut events()).unwrap_err().to_string();
        assert_eq!(said(|c| c.node.truncate(1)), "2 times of labels and 1 nodes; give one of each");
        assert_eq!(said(|c| c.weight = Some(vec![])), "2 times of labels and 0 weights; give one of each");
        assert_eq!(said(|c| c.node[0] = 2), "a row has node 2 of 2; indices count from 0");
        assert_eq!(said(|c| c.label[1] = 9), "a row has label 9 of 2; indices count from 0");
        assert_eq!(said(|c| c.labels[0] = NodeId::Number(2)), "label 2 occurs twice; give different labels");
        let e = said(|c| c.nodes = vec!["1".into(), "2".into()]);
        assert!(e.starts_with("none of its nodes has an event, such as `1`; `1` is not a node; "), "{e}");
        assert!(said(|c| *c = LabelColumns::default()).starts_with("there are no node labels; "));
    }
}
