//! Tables of node labels: a time, a node, a label and its weight per row.
use super::{
    cell::{self, Cell, Row},
    column_names::{Role, listed, role, side},
    number::Fault,
    records::wrong_width,
    sample::Sample,
    source::read_beside,
    table::value,
};
use crate::{Events, LabelColumns, NodeId, node_names::Side, text::counted, time_format::TimeScale};
use indexmap::IndexSet;
use std::path::Path;
use tgnn::error::{Error, Result};

const SYNTAX: &str = "name the columns time, node, label and weight; without a weight, every label has 1";
const FILL_IN: &str = "fill it in, or remove the row";

/// Reads the labels of the nodes of `events` from a table into [`Events::node_labels`], which it replaces.
/// Ids and times are written as in the events. Labels of nodes without an event are left out, with a note.
pub(crate) fn attach(file: &Path, events: &mut Events) -> Result<()> {
    let table = LabelTable::read(file, &events.time_scale())?;
    events.notes.extend(table.notes);
    events.notes.extend(distance_note(file, &table.rows.time, events));
    let names = events.names();
    // Of a shared id, the column's name may tell whose it is.
    let named = |id: Box<str>| match table.side {
        Some(Side::Source) if names.lookup(&id, None).is_err() => format!("src:{id}").into(),
        Some(Side::Destination) if names.lookup(&id, None).is_err() => format!("dst:{id}").into(),
        _ => id,
    };
    let columns = LabelColumns {
        nodes: table.nodes.into_iter().map(named).collect(),
        labels: table.labels.into_iter().collect(),
        ..table.rows
    };
    columns.attach(events).map_err(|e| e.in_file(file))
}

/// Returns a note if labels are so far from the events that their times must be in another unit.
fn distance_note(file: &Path, times: &[i64], events: &Events) -> Option<String> {
    let (last, scale) = (*events.time.last()?, events.time_scale());
    let far = times.iter().find(|&&time| scale.is_far(time, last))?;
    Some(format!(
        "a label of {} is of the time {}, far from the events: is it in the same unit?",
        file.display(),
        scale.text(*far)
    ))
}

/// The rows of a table, and the ids of which they have the indices.
#[derive(Default)]
struct LabelTable {
    nodes: IndexSet<Box<str>>,
    labels: IndexSet<NodeId>,
    rows: LabelColumns,
    /// What the user should know: which column the labels are, if its name does not say so.
    notes: Vec<String>,
    /// Whether the name of the column says that all nodes are sources or destinations.
    side: Option<Side>,
}

impl LabelTable {
    fn read(file: &Path, scale: &TimeScale) -> Result<Self> {
        let begin = |sample: &Sample| {
            let columns = TableColumns::find(file, sample)?;
            Ok((LabelTable { side: columns.side, ..LabelTable::default() }, columns))
        };
        let ((mut table, columns), notes) =
            read_beside(file, SYNTAX, begin, |(table, columns), row| table.push(row, columns, scale))?;
        table.notes = [notes, columns.notes].concat();
        Ok(table)
    }

    fn push(&mut self, row: &dyn Row, columns: &TableColumns, scale: &TimeScale) -> Result<()> {
        if row.len() != columns.width {
            return Err(wrong_width(row, columns.width, "the first one has"));
        }
        let cell = row.cell(columns.time);
        let of = |f: Fault| row.error(Some(columns.time), cell.describe(f, "a time")).remedy(scale.remedy());
        let time = cell.time(&scale.format).map_err(of)?;
        let time = scale.to_ticks(time).ok_or_else(|| {
            let what = format!(
                "{} is not a valid time of the events (ticks per second: {})",
                cell.shown(),
                scale.ticks_per_second
            );
            row.error(Some(columns.time), what).remedy(scale.remedy())
        })?;
        let node = cell::id(row, columns.node, "a node id", FILL_IN)?.to_string();
        let weight = columns.weight.map_or(Ok(1.0), |i| value(row, i, "a weight"))?;
        if weight < 0.0 {
            let e = row.error(columns.weight, format!("the weight of a label is {weight}"));
            return Err(e.remedy("weights are 0 or more"));
        }
        let cell = row.cell(columns.label);
        if cell.is_missing() {
            let what = if matches!(cell, Cell::Text([_, ..])) {
                cell.shown() + " is not a label"
            } else {
                cell.describe(Fault::Empty, "a label")
            };
            return Err(row.error(Some(columns.label), what).remedy(FILL_IN));
        }
        let label = self.labels.insert_full(cell::id(row, columns.label, "a label", FILL_IN)?).0 as u32;
        let node = match self.nodes.get_index_of(node.as_str()) {
            Some(known) => known as u32,
            None => self.nodes.insert_full(node.into()).0 as u32,
        };
        self.rows.time.push(time);
        self.rows.node.push(node);
        self.rows.label.push(label);
        self.rows.weight.get_or_insert_default().push(weight);
        Ok(())
    }
}

/// The columns of a table of node labels, from 0.
struct TableColumns {
    time: usize,
    node: usize,
    label: usize,
    weight: Option<usize>,
    width: usize,
    /// What the user should know about the columns.
    notes: Vec<String>,
    /// Whether the name of the column of nodes says that they are sources or destinations.
    side: Option<Side>,
}

/// Names of the columns, where their [`role`] does not tell.
const NODES: [&str; 6] = ["node", "node_id", "nodeid", "id", "name", "nation"];
const LABELS: [&str; 6] = ["class", "category", "genre", "subreddit", "property", "trading nation"];
const WEIGHTS: [&str; 8] = ["weight", "w", "value", "share", "score", "rating", "count", "proportion"];

impl TableColumns {
    /// Finds the columns by the header, or without one by their order: time, node, label, weight.
    fn find(file: &Path, sample: &Sample) -> Result<Self> {
        let Some(names) = &sample.header else {
            return match sample.width() {
                width @ (3 | 4) => {
                    let weight = (width == 4).then_some(3);
                    Ok(TableColumns {
                        time: 0,
                        node: 1,
                        label: 2,
                        weight,
                        width,
                        notes: Vec::new(),
                        side: None,
                    })
                }
                width => {
                    let columns = counted(width as u64, "column");
                    let what = format!("a row of {columns} is not a label of a node");
                    Err(Error::data(file, what).remedy("write time,node,label,weight"))
                }
            };
        };
        let called = |words: &[&str]| {
            let position = |word: &&str| names.iter().position(|name| name.trim().eq_ignore_ascii_case(word));
            words.iter().find_map(position)
        };
        let with = |wanted: Role| names.iter().position(|name| role(name) == wanted);
        let time = with(Role::Time).or_else(|| with(Role::LikelyTime)).or_else(|| called(&["year", "month"]));
        let node = called(&NODES).or_else(|| with(Role::Src));
        let label = with(Role::Label).or_else(|| called(&LABELS)).or_else(|| with(Role::Dst));
        let missing = |what: &str| {
            let error = Error::data(file, format!("no column is named like a {what} of node labels"));
            error.remedy(format!("{SYNTAX}; the columns are {}", listed(names)))
        };
        let time = time.ok_or_else(|| missing("time"))?;
        let node = node.ok_or_else(|| missing("node"))?;
        let label = label.ok_or_else(|| missing("label"))?;
        let weight = called(&WEIGHTS);
        let read = [Some(time), Some(node), Some(label), weight];
        check_names(file, names, read.into_iter().flatten())?;
        let mut notes = Vec::new();
        if role(&names[label]) == Role::Dst {
            let (file, name) = (file.display(), &names[label]);
            notes.push(format!("no column of {file} is named `label`; the labels are those of `{name}`"));
        }
        let unread = (0..names.len()).filter(|i| !read.contains(&Some(*i)));
        let unread: Vec<String> = unread.map(|i| names[i].clone()).filter(|name| !name.is_empty()).collect();
        if !unread.is_empty() {
            notes.push(format!("columns of {} not read: {}", file.display(), listed(&unread)));
        }
        let side = side(&names[node]);
        Ok(TableColumns { time, node, label, weight, width: names.len(), notes, side })
    }
}

/// Checks that no other column is called like one that is read.
fn check_names(file: &Path, names: &[String], read: impl Iterator<Item = usize>) -> Result<()> {
    for at in read {
        let is_same = |name: &String| name.trim().eq_ignore_ascii_case(names[at].trim());
        if let Some(other) = (0..names.len()).find(|&i| i != at && is_same(&names[i])) {
            let what = format!("two columns are called `{}`: {} and {}", names[at], at + 1, other + 1);
            return Err(Error::data(file, what).remedy(SYNTAX));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadOptions, load};
    use std::fs;

    /// Reads events and labels, each from a file with this content.
    fn read(events: &str, labels: &str) -> Result<Events> {
        let dir = tempfile::tempdir().unwrap();
        let (path, labels_path) = (dir.path().join("events.csv"), dir.path().join("labels.csv"));
        fs::write(&path, events).unwrap();
        fs::write(&labels_path, labels).unwrap();
        load(path.to_str().unwrap(), &ReadOptions { labels: Some(labels_path), ..ReadOptions::default() })
    }

    const EVENTS: &str = "src,dst,time\na,b,100\nb,c,105.5\na,c,110\n";

    #[test]
    fn labels_have_the_users_ids_and_times_and_any_order() {
        let text = "weight,node,label,time\n0.5,b,jazz,110\n1,a,rock,105.5\n0.25,b,rock,110\n3,x,rock,110\n";
        let e = read(EVENTS, text).unwrap();
        let labels = e.node_labels.as_ref().unwrap();
        assert_eq!((labels.times(), labels.nodes(), labels.classes()), (&[55, 100][..], &[0, 1][..], 2));
        let named: Vec<(String, f32)> = labels.row(1).map(|(c, w)| (labels.id(c).to_string(), w)).collect();
        assert_eq!(named, [("jazz".to_owned(), 0.5), ("rock".to_owned(), 0.25)]);
        assert_eq!(e.notes.last().unwrap(), "left out 1 labelled node without an event");
    }

    #[test]
    fn without_a_header_the_order_is_time_node_label_weight_and_a_weight_is_1() {
        for (text, weight) in [("100,a,7\n101,b,3\n", 1.0), ("100 a 7 0.5\n101 b 3 2\n", 0.5)] {
            let e = read(EVENTS, text).unwrap();
            let labels = e.node_labels.unwrap();
            assert_eq!(labels.row(0).collect::<Vec<_>>(), [(1, weight)], "{text}");
            assert_eq!([labels.id(0), labels.id(1)], [NodeId::Number(3), NodeId::Number(7)]);
        }
        let e = read(EVENTS, "ts,user,genre,weight\n100,a,1,1\n100,a,0,2\n100,a,1,3\n").unwrap();
        let labels = e.node_labels.unwrap();
        assert_eq!((labels.ids(), labels.row(0).collect::<Vec<_>>()), (None, vec![(0, 2.0), (1, 3.0)]));
        assert!(e.notes.last().unwrap().contains("1 label that a later one"), "{:?}", e.notes);
    }

    #[test]
    fn an_id_of_two_nodes_is_refused_unless_the_columns_name_tells_and_distant_times_are_noted() {
        let events = "user_id,item_id,time\n1,1,1600000000\n2,2,1600000060\n";
        let e = read(events, "time,node,label\n1600000060,2,a\n").unwrap_err().to_string();
        assert!(e.ends_with("labels.csv: `2` is a source and a destination; write src:2 or dst:2"), "{e}");
        let e =
            read(events, "time,node,label\n1600000060,src:1,a\n1600000060,2,a\n").unwrap_err().to_string();
        assert!(e.contains("`2` is a source and a destination"), "{e}");
        let nodes = |text: &str| read(events, text).unwrap().node_labels.unwrap().nodes().to_vec();
        assert_eq!(nodes("time,user_id,label\n1600000060,2,a\n"), [1]);
        assert_eq!(nodes("time,node,label\n1600000060,dst:2,a\n"), [3]);
        let e = read(events, "time,user_id,label\n1600000060000,2,a\n").unwrap();
        let note = "is of the time 1600000060000, far from the events: is it in the same unit?";
        assert!(e.notes.iter().any(|n| n.ends_with(note)), "{:?}", e.notes);
    }

    #[test]
    fn a_fault_is_named_with_its_place() {
        let header = "time,node,label,weight\n";
        for (text, said) in [
            ("100,a,x,1\nsoon,a,x,1\n", "labels.csv:3:1: `soon` is not a time; "),
            ("100.25,a,x,1\n", "labels.csv:2:1: `100.25` is not a valid time of the events"),
            ("100,,x,1\n", "labels.csv:2:5: an empty field is not a node id; "),
            ("100,a,x,-1\n", "labels.csv:2:9: the weight of a label is -1; "),
            ("100,a,x,heavy\n", "labels.csv:2:9: `heavy` is not a weight; "),
            ("100,a,x\n", "labels.csv:1: the header has 4 names, the first row 3 fields; "),
            ("100,z,x,1\n", "labels.csv: none of its nodes has an event, such as `z`; `z` is not a node; "),
            ("", "labels.csv: there are no node labels; "),
        ] {
            let e = read(EVENTS, &format!("{header}{text}")).unwrap_err().to_string();
            assert!(e[e.find("labels.csv").unwrap()..].starts_with(said), "{e}");
        }
        let e = read(EVENTS, "src,dst,time\na,b,100\n").unwrap();
        let note = e.notes.last().unwrap();
        assert!(note.ends_with("labels.csv is named `label`; the labels are those of `dst`"), "{note}");
        let e = read(EVENTS, "time,who,what\n100,a,x\n").unwrap_err().to_string();
        assert!(e.contains("no column is named like a node of node labels; name the columns time, "), "{e}");
        let e = read(EVENTS, "100,a\n").unwrap_err().to_string();
        assert!(e.contains("a row of 2 columns is not a label of a node; "), "{e}");
        let e = read(EVENTS, "").unwrap_err().to_string();
        assert!(e.contains("labels.csv: the file is empty; name the columns time, node, "), "{e}");
    }
}
