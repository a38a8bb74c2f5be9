//! JSON lines: one object per line, such as `{"from": "u36", "to": "p9", "time": "2023-11-14T22:13:29"}`.
//!
//! The columns are the keys of the first objects, in order of first appearance. A key that a line lacks, or
//! whose value is null, is a missing value. A list of numbers is a list of features.
use super::{
    cell::{Cell, Row},
    input::Input,
    records::Delimiter,
    sample::{ROWS, Sample},
};
use crate::scalar::Scalar;
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    io::{BufRead, BufReader},
    path::Path,
};
use tgnn::error::{Error, Result};

/// Whether the first line is a JSON object. A file with one object over several lines is another layout.
pub(super) fn recognises(input: &Input) -> bool {
    let first = input.head().split(|&b| b == b'\n').find(|line| !line.trim_ascii().is_empty());
    first.is_some_and(|line| {
        line.trim_ascii().starts_with(b"{")
            && serde_json::from_slice::<Map<String, Value>>(line).is_ok_and(|m| {
                // An object of objects is a whole data set in one line.
                m.values().any(|v| !v.is_object())
            })
    })
}

/// Returns the keys and the values of the first lines.
pub(super) fn sample(input: &Input) -> Result<Sample> {
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
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(other) => other.to_string().into_bytes(),
    };
    let rows: Vec<_> = objects.iter().map(|o| names.iter().map(|name| text(o.get(name))).collect()).collect();
    let is_list = |value: &Value| match value {
        Value::Array(items) => items.iter().all(|item| item.is_number() || item.is_null()),
        value => value.is_null(),
    };
    let lists = |i: &usize| objects.iter().all(|o| o.get(&names[*i]).is_none_or(is_list));
    let measured = (0..names.len()).filter(lists).collect();
    let whole = rows.len();
    Ok(Sample {
        delimiter: Delimiter::Byte(b','),
        rows,
        whole,
        header: Some(names),
        measured,
        notes: Vec::new(),
    })
}

/// Calls `take` for every line.
pub(super) fn for_each(
    input: Input,
    sample: &Sample,
    take: &mut dyn FnMut(&dyn Row) -> Result<()>,
) -> Result<()> {
    let names = sample.header.as_deref().unwrap_or_default();
    let path = input.path.clone();
    let (reader, failure) = input.into_reader();
    let mut reader = BufReader::with_capacity(256 << 10, reader);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|e| failure.error(e))? == 0 {
            return Ok(());
        }
        number += 1;
        if !line.trim_ascii().is_empty() {
            let object = parse(&path, number, &line)?;
            take(&Object { path: &path, number, names, object: &object })?;
        }
    }
}

/// Parses a line.
pub(super) fn parse(path: &Path, number: u64, line: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(line).map_err(|e| {
        Error::data(path, "the line is not a JSON object")
            .at(number, e.column() as u64)
            .remedy("write one object per line, such as {\"src\": 1, \"dst\": 2, \"time\": 3}")
    })
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
            Some(Value::Bool(value)) => Cell::Number(Scalar::Uint((*value).into())),
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
