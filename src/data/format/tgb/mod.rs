//! The Temporal Graph Benchmark's link prediction sets, in the folders that its package `py-tgb` fills.
//!
//! A folder `tgbl_wiki` holds `tgbl-wiki_edgelist_v2.csv` (no `_v…` in version 1) and, for both parts, negatives in
//! `tgbl-wiki_val_ns_v2.pkl` and `tgbl-wiki_test_ns_v2.pkl`. Four layouts, told by the name of the set:
//!
//! | sets | columns | nodes | edge features |
//! | --- | --- | --- | --- |
//! | wiki, subreddit, lastfm, uci, enron | `user_id,item_id,timestamp,state_label,features…` | items after users | as they are |
//! | coin, review | `ts,src,dst,weight` | by first appearance | log2 of the weight, of 1 where it is 0 |
//! | comment | `ts,src,dst,num_words,score` | by first appearance | words / 5000, twice, and score |
//! | flight | `ts,src,dst,callsign,typecode` | by first appearance | a number for each of 16 characters |
//!
//! Numbers of nodes, features and times are those that `py-tgb` 2.3 makes: [`Ids`](crate::data::Ids) hold TGB's number
//! of every node, times are whole seconds. One thing is left out: the event's number, which stands last in uci and enron
//! and which the package takes for a feature. Source: Huang et al., NeurIPS 2023.
use super::{
    ReadOptions,
    input::Input,
    number::{Clock, Decimal, Fault, parse_decimal, parse_f32, parse_id},
    records::{Delimiter, Record, records},
    table::{IDS, TIMES, VALUES, fault, take},
};
use crate::{
    data::{Features, negatives::Part, raw::Raw},
    error::{Error, Result},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// How a set writes its events.
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

/// Words of a comment that count as 1.
const MOST_WORDS: f64 = 5000.0;
/// Characters that a call sign and a type code of a flight are each filled up to.
const CODE: usize = 8;

/// The set and the version (`_v2`, or nothing) that an edge list's name says.
fn named(file: &Path) -> Option<(&str, &str)> {
    let name = file.file_name()?.to_str()?;
    let name = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".csv")?;
    let (set, version) = name.split_once("_edgelist")?;
    let is_version =
        version.is_empty() || version.strip_prefix("_v").is_some_and(|v| v.parse::<u32>().is_ok());
    let prefixes = ["tgbl-", "tgbn-", "tkgl-", "thgl-"];
    (is_version && prefixes.iter().any(|p| set.starts_with(p))).then_some((set, version))
}

/// The edge list that `path` is, or that the folder `path` holds: the newest version.
pub(in crate::data) fn edge_list(path: &Path) -> Option<PathBuf> {
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

/// The negatives of `part` that lie beside the edge list of `data`.
pub(in crate::data) fn negatives(data: &Path, part: Part) -> Option<PathBuf> {
    let list = edge_list(data)?;
    let (set, version) = named(&list)?;
    Some(list.with_file_name(format!("{set}_{}_ns{version}.pkl", part.name()))).filter(|f| f.is_file())
}

/// Reads the edge list `file`, a path that [`edge_list`] returned.
pub(super) fn read(file: &Path, options: &ReadOptions) -> Result<Raw> {
    let Some((set, _)) = named(file) else {
        return Err(Error::data(file, "the name is not that of an edge list of TGB")
            .remedy("name it like tgbl-wiki_edgelist_v2.csv"));
    };
    let kind = set.strip_prefix("tgbl-").and_then(|name| SETS.iter().find(|(known, _)| *known == name));
    let Some(&(_, kind)) = kind else {
        return Err(Error::data(file, format!("{set} is not one of TGB's sets that are read"))
            .remedy(format!("those are tgbl- and one of {}", SETS.map(|(name, _)| name).join(", "))));
    };
    let mut raw = Raw::new(file);
    raw.name = set.to_owned();
    let mut reader =
        Reader { kind, cut: false, names: HashMap::new(), values: Vec::new(), labels: Vec::new() };
    let mut clock = Clock::default();
    let mut records = records(Input::open(file)?, Delimiter::Byte(b','));
    let (width, features) = match records.next()? {
        Some(header) => reader.features(&header)?,
        None => return Err(Error::data(file, "the file is empty").remedy("fetch the data set again")),
    };
    let mut columns = None;
    while let Some(row) = records.next()? {
        // All further columns of the first layout are features; those of the others are not looked at.
        let wanted =
            if kind == SetKind::Jodie { *columns.get_or_insert(row.len().max(width)) } else { width };
        if row.len() < wanted || (kind == SetKind::Jodie && row.len() > wanted) {
            let what = format!("this row has {} columns, {wanted} are wanted", row.len());
            return Err(row.error(None, what).remedy("mend or remove the row"));
        }
        reader.row(&row, &features, &mut raw, &mut clock, options.strict)?;
    }
    raw.ticks_per_second = clock.ticks_per_second();
    raw.time = clock.ticks;
    if reader.cut {
        raw.notes.push("times cut to whole seconds, as TGB does".into());
    }
    if kind == SetKind::Jodie {
        let apart = raw.src.iter().max().map_or(Some(0), |&most| most.checked_add(1));
        let moved = raw.dst.iter().map(|&dst| dst.checked_add(apart?)).collect::<Option<Vec<u64>>>();
        raw.dst = moved.ok_or_else(|| Error::data(file, "an id is 2^64 - 1").remedy(IDS))?;
        raw.label = Some(reader.labels);
        raw.dense_destinations = true;
    } else {
        raw.notes.push("nodes numbered in the order they appear, as TGB does".into());
    }
    let events = raw.src.len();
    if events > 0 && !reader.values.is_empty() {
        raw.edge_features = Some(Features::from_vec(events, reader.values.len() / events, reader.values)?);
    }
    Ok(raw)
}

struct Reader {
    kind: SetKind,
    /// Whether a time was no whole number of seconds.
    cut: bool,
    /// Nodes by name, where they are numbered by first appearance.
    names: HashMap<Box<[u8]>, u64>,
    values: Vec<f32>,
    labels: Vec<f32>,
}

impl Reader {
    /// How many columns a row has at least, and which features are made of.
    fn features(&self, header: &Record<'_>) -> Result<(usize, Vec<usize>)> {
        let position = |name: &str| (0..header.len()).find(|&i| header.field(i) == name.as_bytes());
        Ok(match self.kind {
            SetKind::Jodie => (4, position("idx").into_iter().collect()),
            SetKind::Weight => (4, vec![3]),
            // Some copies hold the name of the subreddit before the two.
            SetKind::Comment => {
                let columns = vec![position("num_words").unwrap_or(3), position("score").unwrap_or(4)];
                (1 + columns.iter().max().copied().unwrap_or(0), columns)
            }
            SetKind::Flight => (5, vec![3, 4]),
        })
    }

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
            raw.src.push(self.node(row, src)?);
            raw.dst.push(self.node(row, dst)?);
        }
        match self.kind {
            SetKind::Jodie => {
                raw.src.push(take(row, src, parse_id, "a node id", IDS)?);
                raw.dst.push(take(row, dst, parse_id, "a node id", IDS)?);
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

    /// The number of the node that field `i` names.
    fn node(&mut self, row: &Record<'_>, i: usize) -> Result<u64> {
        let name = row.field(i);
        if name.is_empty() {
            return Err(fault(row, i, Fault::Empty, "a node's name", "name the node"));
        }
        let next = self.names.len() as u64;
        Ok(match self.names.get(name) {
            Some(&node) => node,
            None => *self.names.entry(name.into()).or_insert(next),
        })
    }
}

/// A time in whole seconds, and whether something was cut off to get there; towards zero, as NumPy does.
fn whole(time: Decimal) -> Result<(i64, bool), Fault> {
    let scale = 10i64.pow(time.digits);
    Ok((time.mantissa / scale, time.mantissa % scale != 0 || time.rounded))
}

fn parse_weight(field: &[u8]) -> Result<f32, Fault> {
    let weight: f64 = std::str::from_utf8(field).ok().and_then(|s| s.parse().ok()).ok_or(Fault::Text)?;
    match weight {
        w if w < 0.0 => Err(Fault::Negative),
        w if !w.is_finite() => Err(Fault::NotFinite),
        0.0 => Ok(0.0),
        w => Ok(w.log2() as f32),
    }
}

/// A number for each character of a flight's code, filled up with -1; none if it is too long.
fn parse_code(field: &[u8]) -> Option<[f32; CODE]> {
    let text = String::from_utf8_lossy(field);
    let mut codes = [-1.0; CODE];
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
