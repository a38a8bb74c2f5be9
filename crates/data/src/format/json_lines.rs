//! JSON lines: one object per line, such as `{"from": "u36", "to": "p9", "time": "2023-11-14T22:13:29"}`.
//!
//! The columns are the keys of all objects, in order of first appearance: where a key first occurs after the
//! sample, the file is read again. A key that a line lacks, or whose value is null, is a missing value. A
//! list of numbers is a list of features.
use super::{
    cell::{Cell, Row},
    column_names::listed,
    columns::Columns,
    header_row::Fields,
    input::Input,
    options::ReadOptions,
    sample::{ROWS, Sample},
    source::Outcome,
};
use crate::{LineCounts, scalar::Scalar, text::grouped};
use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Whether the first line is a JSON object. A file with one object over several lines is another layout.
pub(super) fn recognises(input: &Input) -> bool {
    let first = input.head().split(|&b| b == b'\n').find(|line| !line.trim_ascii().is_empty());
    first.is_some_and(|line| {
        let line = line.trim_ascii();
        line.starts_with(b"{")
            && match serde_json::from_slice::<Map<String, Value>>(line) {
                // An object of objects is a whole data set in one line.
                Ok(object) => object.values().any(|v| !v.is_object()),
                Err(_) => no_json(line).is_some() && line.ends_with(b"}"),
            }
    })
}

/// Maximum number of keys that the first lines lack. Objects with more of them are no rows of a table.
const MOST_LATE: usize = 10_000;

/// Keys that have no value in the first lines, in order of first appearance.
#[derive(Default)]
pub(super) struct LateKeys {
    /// The first value of each that is not null, if there is one.
    values: IndexMap<String, Value>,
    /// File and line of the first key.
    first: Option<(PathBuf, u64)>,
    /// Whether there are further ones.
    too_many: bool,
}

impl LateKeys {
    /// Adds a key that is met with a value in a line of a file.
    fn add(&mut self, name: &str, value: &Value, (path, line): (&Path, u64)) {
        let has_room = self.values.len() < MOST_LATE;
        match self.values.get_mut(name) {
            Some(known) if known.is_null() => known.clone_from(value),
            Some(_) => {}
            None if has_room => {
                self.first.get_or_insert_with(|| (path.to_owned(), line));
                self.values.insert(name.to_owned(), value.clone());
            }
            None => self.too_many = true,
        }
    }

    /// Adds the keys of another file, or of another reading.
    pub(super) fn extend(&mut self, other: LateKeys) {
        let Some((path, line)) = other.first else { return };
        other.values.iter().for_each(|(name, value)| self.add(name, value, (&path, line)));
        self.too_many |= other.too_many;
    }

    /// Whether there are values for which a file is to be read again. Keys that are too many are left out if
    /// the user has `named` columns.
    ///
    /// # Errors
    /// Data if they are too many otherwise.
    pub(super) fn are_to_be_read(&self, named: bool) -> Result<bool> {
        match &self.first {
            Some((path, _)) if self.too_many && !named => {
                let what = format!("there are more than {} different keys", grouped(MOST_LATE as u64));
                Err(Error::data(path, what).remedy("name those of the events to read by --columns"))
            }
            _ => Ok(self.values.values().any(|value| !value.is_null()) && !self.too_many),
        }
    }

    /// Says that the keys are not read.
    pub(super) fn note(&self) -> Option<String> {
        let ((_, line), (name, _)) = (self.first.as_ref()?, self.values.first()?);
        let what = match self.too_many {
            true => format!("more than {} keys", grouped(MOST_LATE as u64)),
            false => listed(&self.values.keys().cloned().collect::<Vec<_>>()),
        };
        if self.values.values().all(Value::is_null) && !self.too_many {
            return Some(format!("columns not read, because no line has a value: {what}"));
        }
        Some(format!(
            "not read, because the first lines lack their values: {what}; `{name}` is first in line {line}; name \
             them by --columns, or give a file"
        ))
    }
}

/// Returns the keys and the values of the first lines. A key that the options name is one, too.
pub(super) fn sample(input: &Input, options: &ReadOptions) -> Result<Sample> {
    let head = input.head();
    let last_end = head.iter().rposition(|&b| b == b'\n').filter(|_| input.is_cut());
    let whole = last_end.map_or(head.len(), |end| end + 1);
    let lines = head[..whole].split(|&b| b == b'\n').enumerate().filter(|(_, l)| !l.trim_ascii().is_empty());
    let objects: Vec<Map<String, Value>> =
        lines.take(ROWS).map(|(i, line)| parse(&input.path, i as u64 + 1, line)).collect::<Result<_>>()?;
    let mut names: Vec<String> = Vec::new();
    // Of a key that is null in all of them, only a later value tells what it is.
    let values = objects.iter().flatten().filter(|(_, value)| !value.is_null());
    let with_values: HashSet<&String> = values.map(|(key, _)| key).collect();
    for key in objects.iter().flat_map(|o| o.keys()).filter(|key| with_values.contains(key)) {
        if !names.contains(key) {
            names.push(key.clone());
        }
    }
    let of_options = options.columns.iter().flat_map(Columns::names);
    let is_called = |names: &[String], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    for name in of_options {
        if !is_called(&names, name) {
            names.push(name.to_owned());
        }
    }
    let rows: Vec<Fields> = objects.iter().map(|object| fields(object, &names)).collect();
    let lists = |i: &usize| objects.iter().all(|object| object.get(&names[*i]).is_none_or(is_list));
    let measured = (0..names.len()).filter(lists).collect();
    Ok(Sample { keyed: true, named: options.columns.is_some(), ..Sample::of_table(names, rows, measured) })
}

/// Returns the values of an object as text; empty where it has none.
fn fields(object: &Map<String, Value>, names: &[String]) -> Fields {
    names.iter().map(|name| object.get(name).map_or_else(Vec::new, text)).collect()
}

/// Returns a value as text; empty if it is null.
fn text(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}

/// Whether a value is a list of numbers, or missing.
fn is_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(|item| item.is_number() || item.is_null()),
        value => value.is_null(),
    }
}

impl Sample {
    /// Adds the keys that were met after the sample, with a row of their values.
    pub(super) fn add_late(&mut self, late: &LateKeys) {
        let Some(names) = self.header.as_mut().filter(|_| !late.values.is_empty()) else { return };
        let first = names.len() - self.added;
        let own = late.values.keys().cloned();
        names.splice(first..first, own);
        let width = names.len();
        for row in &mut self.rows {
            row.splice(first..first, late.values.iter().map(|_| Vec::new()));
        }
        let mut row = vec![Vec::new(); width];
        for (i, value) in late.values.values().enumerate() {
            row[first + i] = text(value);
            self.measured.extend(Some(first + i).filter(|_| !value.is_null() && is_list(value)));
        }
        self.rows.push(row);
        self.whole = self.rows.len();
    }
}

/// Calls `take` for every line.
pub(super) fn for_each(
    input: Input,
    sample: &Sample,
    take: &mut dyn FnMut(&dyn Row) -> Result<()>,
) -> Result<Outcome> {
    let names = sample.header.as_deref().unwrap_or_default();
    let mut met: HashMap<&str, bool> = names.iter().map(|name| (name.as_str(), false)).collect();
    let path = input.path.clone();
    let (reader, failure) = input.into_reader();
    let mut reader = BufReader::with_capacity(256 << 10, reader);
    let (mut line, mut number, mut lines) = (Vec::new(), 0, LineCounts::default());
    let mut late = LateKeys::default();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|e| failure.error(e))? == 0 {
            let keys = met.into_iter().filter(|(_, met)| *met).map(|(name, _)| name.to_owned()).collect();
            return Ok(Outcome { lines: Some(lines), late, keys });
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            lines.blank += 1;
            continue;
        }
        lines.events += 1;
        let object = parse(&path, number, &line)?;
        for (name, value) in &object {
            match met.get_mut(name.as_str()) {
                Some(met) => *met = true,
                None => late.add(name, value, (&path, number)),
            }
        }
        take(&Object { path: &path, number, names, object: &object })?;
    }
}

/// How the error of a key that occurs twice begins.
const TWICE: &str = "two values have the key";

/// An object in which no key occurs twice: of two values, neither is the one that is meant.
struct UniqueKeys(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeys(Map::new()))
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.0.contains_key(&key) {
                return Err(de::Error::custom(format_args!("{TWICE} `{key}`")));
            }
            self.0.insert(key, map.next_value()?);
        }
        Ok(self)
    }
}

/// Parses a line.
pub(super) fn parse(path: &Path, number: u64, line: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice::<UniqueKeys>(line).map(|object| object.0).map_err(|e| {
        let place = |at: usize| (line[..at].iter().filter(|b| !b.is_ascii_control()).count() + 1) as u64;
        let error = |what: String, column| Error::data(path, what).at(number, column);
        match no_json(line) {
            Some((at, word)) => error(format!("{word} is no value of JSON"), place(at)).remedy("write null"),
            None if serde_json::from_slice::<Value>(line).is_err() && line.trim_ascii().starts_with(b"{") => {
                let cause = e.to_string();
                let cause = cause.split(" at line").next().unwrap_or_default();
                error(format!("the line is not JSON: {cause}"), e.column() as u64)
                    .remedy("write one whole object per line")
            }
            None if e.to_string().starts_with(TWICE) => {
                let what = e.to_string();
                let what = what.split(" at line").next().unwrap_or_default().to_owned();
                error(what, e.column() as u64).remedy("give every key once")
            }
            None => error("the line is not a JSON object".into(), e.column() as u64)
                .remedy("write one object per line, such as {\"src\": 1, \"dst\": 2, \"time\": 3}"),
        }
    })
}

/// Returns the first value outside of texts that Python writes, but that is no JSON, and its place.
fn no_json(line: &[u8]) -> Option<(usize, &'static str)> {
    let (mut at, mut in_text) = (0, false);
    while at < line.len() {
        match line[at] {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            _ => {
                let words = ["NaN", "Infinity", "-Infinity"];
                let found = words.into_iter().find(|word| line[at..].starts_with(word.as_bytes()));
                if let Some(word) = found {
                    return Some((at, word));
                }
            }
        }
        at += 1;
    }
    None
}

/// Row of a line.
pub(super) struct Object<'a> {
    pub path: &'a Path,
    /// Line number, from 1.
    pub number: u64,
    pub names: &'a [String],
    pub object: &'a Map<String, Value>,
}

impl Row for Object<'_> {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        match self.object.get(&self.names[i]) {
            None | Some(Value::Null) => Cell::Missing,
            Some(Value::String(text)) => Cell::Text(text.as_bytes()),
            Some(Value::Bool(value)) => Cell::Bool(*value),
            Some(Value::Number(n)) => Cell::Number(match (n.as_u64(), n.as_i64()) {
                (Some(v), _) => Scalar::Uint(v),
                (_, Some(v)) => Scalar::Int(v),
                _ => Scalar::Float(n.as_f64().unwrap_or(f64::NAN)),
            }),
            Some(Value::Array(values)) => {
                let number =
                    |v: &Value| if v.is_null() { Some(f32::NAN) } else { v.as_f64().map(|v| v as f32) };
                match values.iter().map(number).collect::<Option<Vec<f32>>>() {
                    Some(list) => Cell::List(Cow::Owned(list)),
                    None => Cell::Other("list of other things than numbers"),
                }
            }
            Some(Value::Object(_)) => Cell::Other("object"),
        }
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        let what = match i.and_then(|i| self.names.get(i)) {
            Some(name) => format!("`{name}`: {what}"),
            None => what,
        };
        Error::data(self.path, what).at(self.number, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Input {
        Input::of_bytes(Path::new("e.jsonl"), text.to_owned()).unwrap()
    }

    #[test]
    fn the_last_line_belongs_to_the_sample_if_nothing_follows_it() {
        let keys = |text: &str| sample(&input(text), &ReadOptions::default()).unwrap().header.unwrap();
        assert_eq!(keys("{\"a\":1}\n{\"b\":2}"), ["a", "b"]);
        let long = format!("{{\"a\":\"{}\"}}\n{{\"b\":\"{0}\"}}", "x".repeat(200_000));
        assert_eq!(keys(&long), ["a"]);
    }

    #[test]
    fn keys_that_the_first_lines_lack_add_one_row_to_the_sample() {
        let text = "{\"a\":1}\n".repeat(ROWS) + "{\"a\":2,\"c\":null}\n{\"b\":[1],\"c\":\"x\"}\n{\"b\":3}\n";
        let mut known = sample(&input(&text), &ReadOptions::default()).unwrap();
        let outcome = for_each(input(&text), &known, &mut |_| Ok(())).unwrap();
        known.add_late(&outcome.late);
        assert_eq!(known.header.unwrap(), ["a", "c", "b"]);
        assert_eq!((known.rows.len(), known.whole, known.measured), (ROWS + 1, ROWS + 1, vec![2]));
        assert_eq!(known.rows[ROWS], [&b""[..], b"x", b"[1]"]);
        assert_eq!(known.rows[0], [&b"1"[..], b"", b""]);
        let note = outcome.late.note().unwrap();
        assert!(note.contains(": c, b; `c` is first in line 101; "), "{note}");
    }
}
