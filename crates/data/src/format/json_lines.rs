//! JSON lines: one object per line, such as `{"from": "u36", "to": "p9", "time": "2023-11-14T22:13:29"}`.
//!
//! The columns are the keys of all objects, in order of first appearance: where a key first occurs after the
//! sample, the file is read again. A key that a line lacks, or whose value is null, is a missing value. A
//! list of numbers is a list of features.
use super::{
    cell::{Cell, Row},
    columns::Columns,
    header_row::Fields,
    input::Input,
    options::ReadOptions,
    sample::{ROWS, Sample},
    source::Outcome,
};
use crate::{LineCounts, scalar::Scalar};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    collections::HashMap,
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

/// Key that the first lines lack.
pub(super) struct LateKey {
    pub name: String,
    /// File and line where it is met first.
    pub place: (PathBuf, u64),
    object: Map<String, Value>,
}

/// Returns the keys and the values of the first lines. A key that the options name is one, too.
pub(super) fn sample(input: &Input, options: &ReadOptions) -> Result<Sample> {
    let head = input.head();
    // The end of the sample may cut off the last line.
    let whole = head.iter().rposition(|&b| b == b'\n').map_or(head.len(), |end| end + 1);
    let lines = head[..whole].split(|&b| b == b'\n').enumerate().filter(|(_, l)| !l.trim_ascii().is_empty());
    let objects: Vec<Map<String, Value>> =
        lines.take(ROWS).map(|(i, line)| parse(&input.path, i as u64 + 1, line)).collect::<Result<_>>()?;
    let mut names: Vec<String> = Vec::new();
    for key in objects.iter().flat_map(|o| o.keys()) {
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
    let lists = |i: &usize| are_lists(objects.iter(), &names[*i]);
    let measured = (0..names.len()).filter(lists).collect();
    Ok(Sample { keyed: true, ..Sample::of_table(names, rows, measured) })
}

/// Returns the values of an object as text; empty where it has none.
fn fields(object: &Map<String, Value>, names: &[String]) -> Fields {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(other) => other.to_string().into_bytes(),
    };
    names.iter().map(|name| text(object.get(name))).collect()
}

/// Whether the values of a key are lists of numbers, or missing.
fn are_lists<'a>(mut objects: impl Iterator<Item = &'a Map<String, Value>>, name: &str) -> bool {
    let is_list = |value: &Value| match value {
        Value::Array(items) => items.iter().all(|item| item.is_number() || item.is_null()),
        value => value.is_null(),
    };
    objects.all(|object| object.get(name).is_none_or(is_list))
}

impl Sample {
    /// Adds the keys that were met after the sample, with the objects in which they were.
    pub(super) fn add_late(&mut self, late: &[LateKey]) {
        for key in late {
            self.add_key(key.name.clone());
        }
        let names = self.header.clone().unwrap_or_default();
        for key in late {
            self.rows.push(fields(&key.object, &names));
            self.whole = self.rows.len();
            let at = names.iter().position(|name| *name == key.name);
            self.measured.extend(at.filter(|_| are_lists([&key.object].into_iter(), &key.name)));
        }
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
    let mut late: Vec<LateKey> = Vec::new();
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
        for name in object.keys() {
            match met.get_mut(name.as_str()) {
                Some(met) => *met = true,
                None if late.iter().any(|key| key.name == *name) => {}
                None => {
                    let (name, object) = (name.clone(), object.clone());
                    late.push(LateKey { name, place: (path.clone(), number), object });
                }
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
