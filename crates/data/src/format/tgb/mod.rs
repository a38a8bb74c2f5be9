//! Data sets of the Temporal Graph Benchmark (TGB), in the folders that its package `py-tgb`
//! creates; those of node property prediction are in `nodes.rs`.
//!
//! A folder `tgbl_wiki` contains `tgbl-wiki_edgelist_v2.csv` (without `_v…` in version 1), and the negatives
//! of the validation and test parts in `tgbl-wiki_val_ns_v2.pkl` and `tgbl-wiki_test_ns_v2.pkl`. `tgbl-*` has
//! four layouts, chosen by the name of the set:
//!
//! | sets | columns | node numbering | edge features |
//! | --- | --- | --- | --- |
//! | wiki, subreddit, lastfm, uci, enron | `user_id,item_id,timestamp,state_label,features…` | items after users | unchanged |
//! | coin, review | `ts,src,dst,weight` | by first appearance | log2 of the weight; 0 if the weight is 0 |
//! | comment | `ts,src,dst,num_words,score` | by first appearance | words / 5000 (twice), score |
//! | flight | `ts,src,dst,callsign,typecode` | by first appearance | one number for each of 16 characters |
//!
//! The airports of flight have node features, in `airport_node_feat_v2.csv`. Sets with types of edges and
//! nodes (`tkgl-*`, `thgl-*`) are in [`types`].
//!
//! Node numbers, features and times equal those of `py-tgb` 2.3: [`Ids`](crate::Ids) hold TGB's number
//! of every node, and times are whole seconds. The only difference is the event number in the last column of
//! uci and enron: the package reads it as a feature, this reader ignores it. Source: Huang et al., NeurIPS
//! 2023.
mod appearance;
mod fetch;
mod node_files;
mod nodes;
mod types;

pub(crate) use fetch::SETS_OF_TGB;
pub(crate) use fetch::{name_of, remedy};

use super::{
    delimiter::Delimiter,
    input::Input,
    number::{Clock, Decimal, Fault, parse_decimal, parse_f32, parse_id},
    options::ReadOptions,
    records::{Record, Shape, records},
    table::{IDS, TIMES, VALUES, fault, take},
};
use crate::{
    Features,
    negatives::Part,
    raw::{Labels, Raw},
};
use appearance::Appearance;
use fetch::KINDS;
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};

/// Layout of a set's edge list.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SetKind {
    Jodie,
    Weight,
    Comment,
    Flight,
}

const SETS: [(&str, SetKind); 9] = [
    ("wiki", SetKind::Jodie),
    ("subreddit", SetKind::Jodie),
    ("lastfm", SetKind::Jodie),
    ("uci", SetKind::Jodie),
    ("enron", SetKind::Jodie),
    ("coin", SetKind::Weight),
    ("review", SetKind::Weight),
    ("comment", SetKind::Comment),
    ("flight", SetKind::Flight),
];

/// Divisor of the number of words of a comment.
const MOST_WORDS: f64 = 5000.0;
/// Number of characters to which call signs and type codes of flights are padded.
const CODE: usize = 8;

/// Splits an edge list's file name into the set and the version (`_v2` or empty); `None` for other file
/// names.
fn named(file: &Path) -> Option<(&str, &str)> {
    let name = file.file_name()?.to_str()?;
    let name = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".csv")?;
    let (set, version) = name.split_once("_edgelist")?;
    let is_version =
        version.is_empty() || version.strip_prefix("_v").is_some_and(|v| v.parse::<u32>().is_ok());
    (is_version && KINDS.iter().any(|kind| set.starts_with(kind))).then_some((set, version))
}

/// Returns `path` if it is an edge list, or the newest edge list in the folder `path`.
pub(crate) fn edge_list(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return named(path).is_some().then(|| path.to_owned());
    }
    let files = std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let version = |file: &PathBuf| -> Option<u32> {
        let (_, version) = named(file)?;
        Some(version.strip_prefix("_v").map_or(1, |v| v.parse().unwrap_or(1)))
    };
    files.filter_map(|file| Some((version(&file)?, file))).max().map(|(_, file)| file)
}

/// Returns the file of negatives of `part` next to the edge list of `data`; `None` if there is none.
pub(crate) fn negatives(data: &Path, part: Part) -> Option<PathBuf> {
    let list = edge_list(data)?;
    let (set, version) = named(&list)?;
    Some(list.with_file_name(format!("{set}_{}_ns{version}.pkl", part.name()))).filter(|f| f.is_file())
}

/// Whether the file called `name`, in the folder of an edge list, belongs to it: the edge list itself, its
/// negatives, or the labels, types or features of its nodes, all of its version.
pub(super) fn belongs_to(list: &Path, name: &str) -> bool {
    let Some((set, version)) = named(list) else { return false };
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    let beside = [
        format!("{set}_val_ns{version}.pkl"),
        format!("{set}_test_ns{version}.pkl"),
        format!("{set}_node_labels{version}.csv"),
        format!("{set}_nodetype.csv"),
        format!("airport_node_feat{version}.csv"),
    ];
    list.ends_with(name) || beside.iter().any(|known| known == plain)
}

/// Reads the edge list `file`, a path that [`edge_list`] returned.
pub(super) fn read(file: &Path, options: &ReadOptions) -> Result<Raw> {
    let Some((set, version)) = named(file) else {
        return Err(Error::data(file, "the file name is not that of a TGB edge list")
            .remedy("name it like tgbl-wiki_edgelist_v2.csv"));
    };
    if let Some(layout) = types::layout_of(set) {
        return types::read(file, set, layout, options);
    }
    if let Some(known) = nodes::set_called(set) {
        return nodes::read(file, known, version, options);
    }
    let kind = set.strip_prefix("tgbl-").and_then(|name| SETS.iter().find(|(known, _)| *known == name));
    let Some(&(_, kind)) = kind else { return Err(unsupported(file, set)) };
    let mut raw = Raw { name: set.to_owned(), ..Raw::new(file) };
    let reader = read_rows(file, kind, options, &mut raw)?;
    if reader.cut {
        raw.notes.push("times truncated to whole seconds, as TGB does".into());
    }
    if kind == SetKind::Jodie {
        let first_item = raw.ids.src.iter().max().map_or(Some(0), |&last_user| last_user.checked_add(1));
        let shifted =
            raw.ids.dst.iter().map(|&dst| dst.checked_add(first_item?)).collect::<Option<Vec<u64>>>();
        raw.ids.dst = shifted.ok_or_else(|| Error::data(file, "an id is 2^64 - 1").remedy(IDS))?;
        raw.label = Some(Labels::numbers(reader.labels));
        raw.dense_destinations = true;
    } else {
        raw.notes.push("nodes numbered in the order they appear, as TGB does".into());
    }
    if kind == SetKind::Flight {
        let airports = file.with_file_name(format!("airport_node_feat{version}.csv"));
        match airports.is_file() {
            true => {
                let rows = node_files::airports(&airports, &reader.names, &mut raw.notes)?;
                raw.node_features = Some((rows, airports));
            }
            false => raw.notes.push(format!("there is no {}, so no node features", airports.display())),
        }
    }
    let events = raw.ids.src.len();
    if events > 0 && !reader.values.is_empty() {
        raw.edge_features = Some(Features::from_vec(events, reader.values.len() / events, reader.values)?);
    }
    Ok(raw)
}

/// Reads the rows of an edge list of links: ids and times to `raw`, the rest to the reader that is returned.
fn read_rows(file: &Path, kind: SetKind, options: &ReadOptions, raw: &mut Raw) -> Result<Reader> {
    let mut reader =
        Reader { kind, cut: false, names: Appearance::default(), values: Vec::new(), labels: Vec::new() };
    let mut clock = Clock::default();
    let mut records = records(Input::open(file)?, Shape::of(Delimiter::Byte(b',')));
    let (width, features) = match records.header()? {
        Some(header) => reader.features(&header)?,
        None => return Err(Error::data(file, "the file is empty").remedy("fetch the data set again")),
    };
    let mut columns = None;
    while let Some(row) = records.next()? {
        // In the JODIE layout all further columns are features, so every row must have the same width. The
        // other layouts ignore further columns.
        let wanted =
            if kind == SetKind::Jodie { *columns.get_or_insert(row.len().max(width)) } else { width };
        if row.len() < wanted || (kind == SetKind::Jodie && row.len() > wanted) {
            let what = format!("this row has {} columns, expected {wanted}", row.len());
            return Err(row.error(None, what).remedy("fix or remove the row"));
        }
        reader.row(&row, &features, raw, &mut clock, options.strict)?;
    }
    raw.lines = Some(records.counts());
    raw.ticks_per_second = clock.ticks_per_second();
    raw.time = clock.ticks;
    Ok(reader)
}

/// Returns the error for an unknown set, with those that are known.
fn unsupported(file: &Path, set: &str) -> Error {
    let links = SETS.iter().map(|(name, _)| format!("tgbl-{name}"));
    let nodes = nodes::SETS.iter().map(|set| set.name.to_owned());
    let typed = types::SETS.iter().map(|(set, _)| (*set).into());
    let supported: Vec<String> = links.chain(nodes).chain(typed).collect();
    Error::data(file, format!("{set} is not a supported TGB data set"))
        .remedy(format!("supported are {}", supported.join(", ")))
}

/// State of reading an edge list.
struct Reader {
    kind: SetKind,
    /// Whether a time was truncated to whole seconds.
    cut: bool,
    /// Nodes by name, if they are numbered by first appearance.
    names: Appearance,
    /// Edge features, row after row.
    values: Vec<f32>,
    labels: Vec<f32>,
}

impl Reader {
    /// Returns the minimum number of columns of a row, and the columns that [`row`](Self::row) treats
    /// specially: the columns from which features are computed, or in the JODIE layout the column of event
    /// numbers, if any.
    fn features(&self, header: &Record<'_>) -> Result<(usize, Vec<usize>)> {
        let position = |name: &str| (0..header.len()).find(|&i| header.field(i) == name.as_bytes());
        Ok(match self.kind {
            SetKind::Jodie => (4, position("idx").into_iter().collect()),
            SetKind::Weight => (4, vec![3]),
            // Some copies have the name of the subreddit before these two columns.
            SetKind::Comment => {
                let columns = vec![position("num_words").unwrap_or(3), position("score").unwrap_or(4)];
                (1 + columns.iter().max().copied().unwrap_or(0), columns)
            }
            SetKind::Flight => (5, vec![3, 4]),
        })
    }

    /// Appends the event of a row to `raw`, `clock` and the values of `self`.
    fn row(
        &mut self,
        row: &Record<'_>,
        features: &[usize],
        raw: &mut Raw,
        clock: &mut Clock,
        strict: bool,
    ) -> Result<()> {
        let (src, dst, time) = if self.kind == SetKind::Jodie { (0, 1, 2) } else { (1, 2, 0) };
        let time_of = |field: &[u8]| parse_decimal(field).and_then(whole);
        let (tick, cut) = take(row, time, time_of, "a time", TIMES)?;
        self.cut |= cut;
        let tick = Decimal::new(tick, 0);
        if clock.push(tick).map_err(|f| fault(row, time, f, "a time", TIMES))? && strict {
            return Err(row
                .error(Some(time), "this event is earlier than one before it")
                .remedy("sort the file by time, or leave out --strict"));
        }
        if self.kind != SetKind::Jodie {
            raw.ids.src.push(self.names.number_in(row, src, "a node's name")?);
            raw.ids.dst.push(self.names.number_in(row, dst, "a node's name")?);
        }
        match self.kind {
            SetKind::Jodie => {
                raw.ids.src.push(take(row, src, parse_id, "a node id", IDS)?);
                raw.ids.dst.push(take(row, dst, parse_id, "a node id", IDS)?);
                self.labels.push(take(row, 3, parse_f32, "a label", VALUES)?);
                for i in (4..row.len()).filter(|i| !features.contains(i)) {
                    self.values.push(take(row, i, parse_f32, "a feature", VALUES)?);
                }
            }
            SetKind::Weight => {
                self.values.push(take(
                    row,
                    features[0],
                    parse_weight,
                    "a weight",
                    "write a positive number",
                )?);
            }
            SetKind::Comment => {
                let words = f64::from(take(row, features[0], parse_f32, "a number of words", VALUES)?);
                let words = (words / MOST_WORDS) as f32;
                self.values.extend([words, words, take(row, features[1], parse_f32, "a score", VALUES)?]);
            }
            SetKind::Flight => {
                for (i, what) in [(features[0], "a call sign"), (features[1], "a type code")] {
                    let long = if i == features[0] { Err(Fault::TooLarge) } else { Ok([-1.0; CODE]) };
                    let codes = |field: &[u8]| parse_code(field).map_or(long, Ok);
                    self.values.extend(take(row, i, codes, what, "write at most eight characters")?);
                }
            }
        }
        Ok(())
    }
}

/// Truncates a time to whole seconds, towards zero as NumPy does. Also returns whether digits were cut off.
fn whole(time: Decimal) -> Result<(i64, bool), Fault> {
    let scale = 10i64.pow(time.digits);
    Ok((time.mantissa / scale, time.mantissa % scale != 0 || time.rounded))
}

/// Returns log2 of a weight, which must be non-negative and finite; a weight of 0 gives 0.
fn parse_weight(field: &[u8]) -> Result<f32, Fault> {
    let weight: f64 = std::str::from_utf8(field).ok().and_then(|s| s.parse().ok()).ok_or(Fault::Text)?;
    match weight {
        weight if weight < 0.0 => Err(Fault::Negative),
        weight if !weight.is_finite() => Err(Fault::NotFinite),
        0.0 => Ok(0.0),
        weight => Ok(weight.log2() as f32),
    }
}

/// Returns a number for each character of a flight's code, padded with -1; `None` if the code is too long.
fn parse_code<const LENGTH: usize>(field: &[u8]) -> Option<[f32; LENGTH]> {
    let text = String::from_utf8_lossy(field);
    let mut codes = [-1.0; LENGTH];
    for (i, c) in text.chars().enumerate() {
        let upper = c.to_uppercase().next().unwrap_or(c);
        *codes.get_mut(i)? = match c.to_digit(10) {
            Some(digit) => digit as f32,
            None if c == '!' => -1.0,
            None => upper as u32 as f32 - 35.0,
        };
    }
    Some(codes)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod types_tests;
