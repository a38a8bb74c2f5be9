//! The column of labels: numbers, or text.
use super::{
    cell::{Cell, Row},
    id_rule::may_be_missing,
    number::Fault,
    options::Missing,
    table::{MISSING, VALUES},
};
use crate::{
    raw::Labels,
    text::{counted, grouped, shown},
};
use indexmap::IndexSet;
use std::collections::HashMap;
use tgnn::error::Result;

/// Maximum number of different texts.
const MOST_TEXTS: usize = 1 << 16;
/// 2^24: from here on, 32-bit floats do not tell whole numbers apart.
const EXACT: f32 = 16_777_216.0;
/// Texts that often stand for a label that is not known, beside those that may stand for any value.
const UNKNOWN: [&str; 2] = ["unlabeled", "unlabelled"];

/// Labels read so far. They are numbers until a label is not; then all of them are text.
#[derive(Default)]
pub(super) struct LabelValues {
    /// Numbers, or indices of `texts`; NaN where a label is missing.
    values: Vec<f32>,
    /// How the file writes each number, in case that a later label is text; not all if there are too many.
    /// It does not change once a label is text.
    written: HashMap<u32, Box<str>>,
    /// The different texts, once a label is text.
    texts: Option<IndexSet<Box<str>>>,
    /// The label that made all of them text, after numbers.
    first_text: Option<String>,
    /// Number of large numbers that lost digits.
    rounded: u64,
}

/// Whether a number is not exactly the one that a text writes.
fn is_rounded(text: &str, number: f32) -> bool {
    let is_whole = |fraction: &str| fraction.bytes().all(|b| b == b'0');
    let whole =
        text.split_once('.').filter(|(_, fraction)| is_whole(fraction)).map_or(text, |(whole, _)| whole);
    match whole.parse::<i128>() {
        Ok(exact) => number as i128 != exact,
        Err(_) => text.parse::<f64>().is_ok_and(|exact| exact != f64::from(number)),
    }
}

impl LabelValues {
    /// Appends the label in cell `i` of a row.
    pub(super) fn push(&mut self, row: &dyn Row, i: usize, missing: Missing) -> Result<()> {
        let cell = row.cell(i);
        let fault = |f, remedy: &str| row.error(Some(i), cell.describe(f, "a label")).remedy(remedy);
        let value = match cell.value() {
            Ok(None) if missing == Missing::Refuse => return Err(fault(Fault::Empty, MISSING)),
            Ok(None) => {
                self.values.push(f32::NAN);
                return Ok(());
            }
            Ok(Some(value)) => Some(value + 0.0),
            Err(Fault::Text) if matches!(cell, Cell::Text(_)) => None,
            Err(f) => return Err(fault(f, cell.remedy(VALUES))),
        };
        match (value, &self.texts) {
            (Some(value), None) => self.push_number(value, &cell),
            _ => {
                let text = match value.and_then(|value| self.written.get(&value.to_bits())) {
                    Some(written) => written.clone(),
                    None => cell.text().map_err(|f| fault(f, "write text in UTF-8"))?.into(),
                };
                if !self.push_text(text) {
                    let what = format!(
                        "there are more than {} labels, with {}",
                        grouped(MOST_TEXTS as u64),
                        cell.shown()
                    );
                    return Err(row
                        .error(Some(i), what)
                        .remedy("name another column with --columns label=NAME"));
                }
            }
        }
        Ok(())
    }

    fn push_number(&mut self, value: f32, cell: &Cell<'_>) {
        if value.abs() >= EXACT {
            self.rounded += u64::from(is_rounded(&cell.text().unwrap_or_default(), value));
        }
        // Neighbouring events often have equal labels.
        if self.values.last() != Some(&value) && self.written.len() < MOST_TEXTS {
            self.written.entry(value.to_bits()).or_insert_with(|| cell.text().unwrap_or_default().into());
        }
        self.values.push(value);
    }

    /// Appends a text; false if there are too many different ones.
    fn push_text(&mut self, text: Box<str>) -> bool {
        if self.texts.is_none() {
            if self.written.len() == MOST_TEXTS {
                return false;
            }
            let mut texts: IndexSet<Box<str>> = IndexSet::new();
            for value in self.values.iter_mut().filter(|value| !value.is_nan()) {
                let written = self.written.get(&value.to_bits()).cloned().unwrap_or_default();
                *value = texts.insert_full(written).0 as f32;
            }
            self.first_text = (!texts.is_empty()).then(|| shown(text.as_bytes()));
            self.texts = Some(texts);
        }
        let texts = self.texts.get_or_insert_default();
        let at = texts.insert_full(text).0;
        self.values.push(at as f32);
        texts.len() <= MOST_TEXTS
    }

    /// Starts without rows, to read further rows of the same column.
    pub(super) fn like(&self) -> Self {
        match self.texts {
            // Numbers are then written as before.
            Some(_) => LabelValues {
                written: self.written.clone(),
                texts: Some(IndexSet::new()),
                ..LabelValues::default()
            },
            None => LabelValues::default(),
        }
    }

    /// Whether the labels of `other`, which was [`like`](Self::like) this, are still what these are: numbers,
    /// or text.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (&self.texts, &other.texts) {
            (None, None) => true,
            (Some(own), Some(others)) => {
                // What `other` knows of numbers is what these do: none was among its own before a text.
                other.first_text.is_none()
                    && self.written.len() == other.written.len()
                    && own.len() + others.difference(own).count() <= MOST_TEXTS
            }
            _ => false,
        }
    }

    /// Appends the labels of `other`, which [`fits`](Self::fits).
    pub(super) fn append(&mut self, other: Self) {
        self.rounded += other.rounded;
        match (&mut self.texts, other.texts) {
            (Some(own), Some(others)) => {
                let index: Vec<f32> = others.into_iter().map(|text| own.insert_full(text).0 as f32).collect();
                let own = |v: f32| if v.is_nan() { v } else { index[v as usize] };
                self.values.extend(other.values.into_iter().map(own));
            }
            _ => {
                self.values.extend(other.values);
                for (bits, written) in other.written {
                    if self.written.len() < MOST_TEXTS {
                        self.written.entry(bits).or_insert(written);
                    }
                }
            }
        }
    }

    /// Returns the labels, and notes on them.
    pub(super) fn finish(self) -> (Labels, Vec<String>) {
        let mut notes = Vec::new();
        if let Some(text) = &self.first_text {
            notes.push(format!("labels are text, because of {text}; those before it were numbers"));
        }
        let unknown = self
            .texts
            .iter()
            .flatten()
            .find(|text| UNKNOWN.contains(&&*text.to_lowercase()) || may_be_missing(text));
        if let Some(text) = unknown {
            let text = shown(text.as_bytes());
            notes.push(format!(
                "the label {text} is a class like others; leave it empty where it means no label"
            ));
        }
        if self.rounded > 0 {
            let labels = counted(self.rounded, "label");
            notes.push(format!("{labels} beyond 2^24 rounded: different ones may have become equal"));
        }
        let Some(texts) = self.texts else { return (Labels { values: self.values, names: None }, notes) };
        let mut names: Vec<Box<str>> = texts.iter().cloned().collect();
        names.sort();
        let place: HashMap<&str, f32> =
            names.iter().enumerate().map(|(at, name)| (&**name, at as f32)).collect();
        let codes: Vec<f32> = texts.iter().map(|text| place[&**text]).collect();
        let values = self.values.iter().map(|&v| if v.is_nan() { v } else { codes[v as usize] }).collect();
        (Labels { values, names: Some(names.into()) }, notes)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Events, Missing, ReadOptions};
    use tgnn::error::Result;

    fn read(labels: &[&str], missing: Missing) -> Result<Events> {
        let rows: Vec<String> = labels.iter().enumerate().map(|(t, l)| format!("0,1,{t},{l}\n")).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.csv");
        std::fs::write(&path, format!("src,dst,time,label\n{}", rows.concat())).unwrap();
        let options = ReadOptions { missing, ..ReadOptions::default() };
        crate::load(path.to_str().unwrap(), &options)
    }

    /// The labels as text; `-` if one is missing.
    fn labels(given: &[&str]) -> (String, Vec<String>) {
        let e = read(given, Missing::Zero).unwrap();
        let text = |&l: &f32| match &e.label_names {
            _ if l.is_nan() => "-".to_owned(),
            Some(names) => format!("`{}`", names[l as usize]),
            None => l.to_string(),
        };
        (e.label.iter().flatten().map(text).collect::<Vec<_>>().join(" "), e.notes)
    }

    #[test]
    fn labels_are_numbers_or_all_of_them_are_text() {
        assert_eq!(labels(&["0.5", "-1", "true"]).0, "0.5 -1 1");
        assert_eq!(labels(&["legit", "fraud", "legit"]).0, "`legit` `fraud` `legit`");
        let (text, notes) = labels(&["1", "01", "2", "unknown", "2.0", "true", "1"]);
        assert_eq!(text, "`1` `1` `2` `unknown` `2` `1` `1`");
        assert!(notes[0].starts_with("labels are text, because of `unknown`; "), "{notes:?}");
        assert!(notes[1].starts_with("the label `unknown` is a class like others; "), "{notes:?}");
        assert_eq!(labels(&["True", "False", "maybe"]).0, "`True` `False` `maybe`");
    }

    #[test]
    fn an_event_without_a_label_stays_unless_missing_values_are_refused() {
        for missing in [Missing::Zero, Missing::Drop] {
            let e = read(&["1", "", "NaN", "0"], missing).unwrap();
            assert_eq!(e.len(), 4);
            assert_eq!(e.notes, ["2 events have no label"]);
        }
        let e = read(&["1", ""], Missing::Refuse).unwrap_err().to_string();
        assert!(e.contains("events.csv:3:7: an empty field is not a label; fill it in"), "{e}");
        assert_eq!(labels(&["a", "", "b"]).0, "`a` - `b`");
        let e = read(&["", ""], Missing::Zero).unwrap();
        assert_eq!((e.label, &e.notes[..]), (None, &["no event has a label".to_owned()][..]));
    }

    #[test]
    fn labels_that_floats_do_not_tell_apart_are_noted_and_others_refused() {
        let notes = labels(&["16777217", "16777216", "0"]).1;
        assert_eq!(notes, ["1 label beyond 2^24 rounded: different ones may have become equal"]);
        let e = read(&["1", "inf"], Missing::Zero).unwrap_err().to_string();
        assert!(e.contains("events.csv:3:7: `inf` is not a finite"), "{e}");
    }
}
