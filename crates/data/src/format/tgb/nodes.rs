//! TGB's data sets of node property prediction: trade, genre, reddit and token.
//!
//! A folder `tgbn_genre` contains `tgbn-genre_edgelist.csv` and `tgbn-genre_node_labels.csv`.
//!
//! | set | columns of the edge list | node numbering | edge features |
//! | --- | --- | --- | --- |
//! | trade | `year,nation,trading nation,weight` | by first appearance | the weight |
//! | genre | `time,user,genre,weight` | genres by first appearance, then users likewise from 513 on | the weight |
//! | reddit | `ts,src,subreddit,num_words,score` | subreddits, then users from 698 on | the score |
//! | token | `timestamp,user,token,value,IsSender` | tokens, then users from 1001 on | ln of the value, is sender |
//!
//! A row of labels is `time,node,class,weight`. The classes are the destinations by TGB's numbers; of trade,
//! all nodes. Node numbers, features and times equal those of `py-tgb` 2.3. The value of token is as the
//! package gives it when it reads its own processed files; a value of 0 gives 0.
use super::{appearance::Appearance, node_files::for_each_row, whole};
use crate::{
    Features,
    format::{
        number::{Clock, Decimal, Fault, parse_decimal, parse_f32},
        options::ReadOptions,
        records::Record,
        table::{TIMES, VALUES, fault, take},
    },
    node_labels::RawLabels,
    raw::Raw,
};
use std::path::{Path, PathBuf};
use tgnn::error::Result;

const NAME: &str = "a node's name";

/// A set: its name, its first user, and the columns of its edge features, of which `log` is a logarithm.
pub(super) struct Set {
    pub name: &'static str,
    /// The number of the first user; 0 if nodes are of one kind.
    first_user: u64,
    features: &'static [usize],
    log: bool,
}

pub(super) const SETS: [Set; 4] = [
    Set { name: "tgbn-trade", first_user: 0, features: &[3], log: false },
    Set { name: "tgbn-genre", first_user: 513, features: &[3], log: false },
    Set { name: "tgbn-reddit", first_user: 698, features: &[4], log: false },
    Set { name: "tgbn-token", first_user: 1001, features: &[3, 4], log: true },
];

/// Returns the set called `name`.
pub(super) fn set_called(name: &str) -> Option<&'static Set> {
    SETS.iter().find(|set| set.name == name)
}

/// Reads the edge list `file` of a set, version `version`, and the labels beside it.
pub(super) fn read(file: &Path, set: &Set, version: &str, options: &ReadOptions) -> Result<Raw> {
    let mut raw = Raw::new(file);
    raw.name = set.name.to_owned();
    let mut nodes =
        Nodes { first_user: set.first_user, users: Appearance::default(), others: Appearance::default() };
    let (mut values, mut clock, mut cut) = (Vec::new(), Clock::default(), false);
    let width = 1 + set.features.iter().max().copied().unwrap_or(0);
    let lines = for_each_row(file, width, |row| {
        let (tick, was_cut) = time(row)?;
        cut |= was_cut;
        let late = clock.push(Decimal::new(tick, 0)).map_err(|f| fault(row, 0, f, "a time", TIMES))?;
        if late && options.strict {
            return Err(row
                .error(Some(0), "this event is earlier than one before it")
                .remedy("sort the file by time, or leave out --strict"));
        }
        raw.ids.src.push(nodes.source(row, 1)?);
        raw.ids.dst.push(nodes.others.number_in(row, 2, NAME)?);
        for (i, &column) in set.features.iter().enumerate() {
            let value = |field: &[u8]| if set.log && i == 0 { parse_log(field) } else { parse_f32(field) };
            values.push(take(row, column, value, "a feature", VALUES)?);
        }
        Ok(())
    })?;
    raw.lines = Some(lines);
    raw.ticks_per_second = clock.ticks_per_second();
    raw.time = clock.ticks;
    if cut {
        raw.notes.push("times truncated to whole seconds, as TGB does".into());
    }
    raw.notes.push("nodes numbered in the order they appear, as TGB does".into());
    if !values.is_empty() {
        raw.edge_features = Some(Features::from_vec(raw.time.len(), set.features.len(), values)?);
    }
    raw.node_labels = Some(labels(&label_file(file, set.name, version), &nodes, &mut raw.notes)?);
    Ok(raw)
}

/// Returns the file of labels beside the edge list `file`.
fn label_file(file: &Path, name: &str, version: &str) -> PathBuf {
    let end = if file.extension().is_some_and(|end| end == "gz") { "csv.gz" } else { "csv" };
    file.with_file_name(format!("{name}_node_labels{version}.{end}"))
}

/// Reads the labels of nodes that the edge list has named.
fn labels(file: &Path, nodes: &Nodes, notes: &mut Vec<String>) -> Result<RawLabels> {
    let mut labels = Vec::new();
    let lines = for_each_row(file, 4, |row| {
        let (tick, _) = time(row)?;
        let unknown = |i: usize, what: &str| {
            let what = format!("`{}` is not {what} of the edge list", String::from_utf8_lossy(row.field(i)));
            row.error(Some(i), what).remedy("fetch the data set again")
        };
        let node = nodes.known_source(row.field(1)).ok_or_else(|| unknown(1, "a source"))?;
        let class = nodes.others.get(row.field(2)).ok_or_else(|| unknown(2, "a destination"))?;
        labels.push((tick, node, class as u32, take(row, 3, parse_f32, "a weight", VALUES)?));
        Ok(())
    })?;
    notes.extend(lines.note(file));
    Ok(RawLabels { classes: nodes.others.len(), labels })
}

/// Nodes by name, as the edge list has named them.
struct Nodes {
    /// The number of the first user; 0 if nodes are of one kind, all of them in `others`.
    first_user: u64,
    users: Appearance,
    others: Appearance,
}

impl Nodes {
    /// Returns the number of the source in field `i`; a new one gets the next.
    fn source(&mut self, row: &Record<'_>, i: usize) -> Result<u64> {
        let names = if self.first_user > 0 { &mut self.users } else { &mut self.others };
        Ok(self.first_user + names.number_in(row, i, NAME)?)
    }
    /// Returns the number of a source that the edge list has named.
    fn known_source(&self, name: &[u8]) -> Option<u64> {
        let names = if self.first_user > 0 { &self.users } else { &self.others };
        Some(self.first_user + names.get(name)? as u64)
    }
}

/// Returns the time in the first field, in whole seconds, and whether digits were cut off.
fn time(row: &Record<'_>) -> Result<(i64, bool)> {
    take(row, 0, |field| parse_decimal(field).and_then(whole), "a time", TIMES)
}

/// Returns the natural logarithm of a value; 0 of 0.
fn parse_log(field: &[u8]) -> Result<f32, Fault> {
    let value: f64 = std::str::from_utf8(field).ok().and_then(|s| s.parse().ok()).ok_or(Fault::Text)?;
    match value {
        value if value < 0.0 => Err(Fault::Negative),
        value if !value.is_finite() => Err(Fault::NotFinite),
        0.0 => Ok(0.0),
        value => Ok(value.ln() as f32),
    }
}

#[cfg(test)]
mod tests {
    //! The folders and the answers of `py-tgb` are made by `tests/golden/tgb_nodes.py`.
    use crate::{Events, ReadOptions, Split, load, save};
    use serde_json::Value;
    use std::fs;
    use tempfile::tempdir;

    const GOLDEN: &str = "../../tests/golden/foreign/tgbn_";

    fn read(path: &str) -> tgnn::error::Result<Events> {
        load(path, &ReadOptions::default())
    }

    fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn every_set_has_the_nodes_times_features_parts_and_labels_that_tgbs_own_package_reads() {
        let text = fs::read_to_string("../../tests/golden/tgb_nodes.json").unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        for set in ["trade", "genre", "reddit", "token"] {
            let (e, wanted) = (read(&format!("{GOLDEN}{set}")).unwrap(), &golden["sets"][set]);
            let number = |v: u32| match e.id(v) {
                crate::NodeId::Number(n) => n,
                crate::NodeId::Text(name) => panic!("{name} is no number"),
            };
            let numbers = |nodes: &[u32]| nodes.iter().map(|&v| number(v)).collect::<Vec<_>>();
            assert_eq!(numbers(&e.src), parsed::<Vec<u64>>(&wanted["src"]), "{set}");
            assert_eq!(numbers(&e.dst), parsed::<Vec<u64>>(&wanted["dst"]), "{set}");
            let absolute = |times: &[i64]| times.iter().map(|t| t + e.origin).collect::<Vec<_>>();
            assert_eq!(absolute(&e.time), parsed::<Vec<i64>>(&wanted["time"]), "{set}");
            let rows: Vec<f32> = parsed::<Vec<Vec<f32>>>(&wanted["features"]).concat();
            let features = e.edge_features.as_ref().unwrap().values().to_vec();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs();
            assert!(features.len() == rows.len() && features.iter().zip(&rows).all(near), "{set}");
            let split = Split::by_time(&e, 0.70, 0.15).unwrap();
            assert_eq!(
                (split.train.len(), split.val.len()),
                (parsed(&wanted["train"]), parsed(&wanted["val"]))
            );

            let labels = e.node_labels.as_ref().unwrap();
            let dense = |row: usize| {
                let mut weights = vec![0.0f32; labels.classes()];
                labels.row(row).for_each(|(class, weight)| weights[class as usize] = weight);
                (absolute(&labels.times()[row..=row])[0], number(labels.nodes()[row]), weights)
            };
            let found: Vec<(i64, u64, Vec<f32>)> = (0..labels.len()).map(dense).collect();
            assert_eq!(found, parsed::<Vec<(i64, u64, Vec<f32>)>>(&wanted["labels"]), "{set}");
            assert_eq!(labels.repeated(), 1);
        }
    }

    #[test]
    fn an_imported_set_keeps_its_labels() {
        let dir = tempdir().unwrap();
        for set in ["trade", "genre"] {
            let e = read(&format!("{GOLDEN}{set}")).unwrap();
            let to = dir.path().join(set);
            save(&e, &to, false).unwrap();
            let back = read(to.to_str().unwrap()).unwrap();
            let (was, is) = (e.node_labels.unwrap(), back.node_labels.unwrap());
            assert_eq!((is.entries(), is.nodes(), is.times()), (was.entries(), was.nodes(), was.times()));
            fs::write(to.join("node_label_class.npy"), "no array").unwrap();
            let e = read(to.to_str().unwrap()).unwrap_err().to_string();
            assert!(e.contains("node_label_class.npy") && !e.contains('\n'), "{e}");
        }
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let dir = tempdir().unwrap();
        let write = |edges: &str, labels: &str| {
            fs::write(dir.path().join("tgbn-genre_edgelist.csv"), format!("t,u,g,w\n{edges}")).unwrap();
            fs::write(dir.path().join("tgbn-genre_node_labels.csv"), format!("t,u,g,w\n{labels}")).unwrap();
            read(dir.path().to_str().unwrap()).unwrap_err().to_string()
        };
        for (edges, labels, said) in [
            (
                "5,a,x,1\n",
                "6,b,x,1\n",
                "tgbn-genre_node_labels.csv:2:3: `b` is not a source of the edge list; ",
            ),
            ("5,a,x,1\n", "6,a,y,1\n", "tgbn-genre_node_labels.csv:2:5: `y` is not a destination"),
            ("5,a,x,1\n", "6,a,x\n", "tgbn-genre_node_labels.csv:2: this row has 3 columns, expected 4; "),
            ("5,a,x,1\n", "", "there are no node labels; "),
            ("5,,x,1\n", "6,a,x,1\n", "tgbn-genre_edgelist.csv:2:3: an empty field is not a node's name; "),
        ] {
            let e = write(edges, labels);
            assert!(e.contains(said) && !e.contains('\n'), "{e}");
        }
        fs::write(dir.path().join("tgbn-genre_edgelist.csv"), "t,u,g,w\n5,a,x,1\n").unwrap();
        fs::remove_file(dir.path().join("tgbn-genre_node_labels.csv")).unwrap();
        let e = read(dir.path().to_str().unwrap()).unwrap_err().to_string();
        assert!(e.contains("tgbn-genre_node_labels.csv: cannot open"), "{e}");
    }
}
