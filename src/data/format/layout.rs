//! Recognition of a file's layout.
use super::{
    columns::{ColumnName, FeatureColumns},
    dyglib,
    header::{Named, listed, position, suggestion},
    jodie,
    options::{Format, ReadOptions},
    records::Delimiter,
    sample::Sample,
    signed, snap, tgl,
};
use crate::error::{Error, Result};
use std::path::Path;

/// Description of a table, complete enough to read it. Columns count from 0.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub format: Format,
    /// Names of the columns; empty if there is no header.
    pub names: Vec<String>,
    pub src: usize,
    pub dst: usize,
    /// Columns whose values, joined by blanks, are the time.
    pub time: Vec<usize>,
    pub label: Option<usize>,
    /// Column of event numbers, by which feature files are joined.
    pub index: Option<usize>,
    /// Column that says to which part of the split an event belongs.
    pub roll: Option<usize>,
    pub features: Vec<FeatureColumns>,
    /// Whether sources and destinations are numbered separately, so that equal ids are different nodes.
    pub separate: bool,
    /// Notes to the user about columns that are not read and about doubtful guesses.
    pub notes: Vec<String>,
}

/// Returns the layout that the options name, completed by what the sample shows.
///
/// # Errors
/// Data if there is a header but no event, or if the layout or the columns cannot be recognised.
pub(super) fn recognise(path: &Path, sample: &Sample, options: &ReadOptions) -> Result<Layout> {
    if sample.rows.is_empty() {
        return Err(Error::data(path, "there is a header but no event").remedy("write one event per line"));
    }
    let names = sample.header.clone().unwrap_or_default();
    let format = match options.format {
        Some(format) => format,
        None if options.columns.is_some() => guess(sample).unwrap_or(Format::Table),
        None => guess(sample).ok_or_else(|| unknown(path, sample))?,
    };
    let mut named = match (format, sample.header.is_some()) {
        (Format::Table, true) => of_header(path, &names, sample)?,
        // A header that names the columns wins over the order of the format.
        (_, true) => match Named::of(&names, sample) {
            Ok(named) if named.src.and(named.dst).and(named.time).is_some() => named,
            _ => fixed(format),
        },
        (Format::Table, false) if options.columns.is_none() => return Err(unknown(path, sample)),
        (Format::Table, false) => Named::default(),
        (Format::Snap, false) => snap::columns(sample),
        (format, false) => fixed(format),
    };
    if format == Format::Jodie {
        named.features = jodie::features(named.features, sample);
    }
    let roll = sample.position("ext_roll");
    let mut layout = Resolver { path, names: &names, options }.layout(format, named, sample)?;
    layout.roll = roll;
    layout.note_unread(sample);
    if options.format.is_none() && options.columns.is_none() && format == Format::Snap {
        layout.notes.extend(snap::doubt(sample));
    }
    Ok(layout)
}

/// Returns the columns of a layout without a header.
fn fixed(format: Format) -> Named {
    match format {
        Format::Jodie => jodie::COLUMNS,
        Format::Dyglib => dyglib::COLUMNS,
        Format::Tgl => tgl::COLUMNS,
        Format::Signed => signed::COLUMNS,
        _ => snap::COLUMNS,
    }
}

/// Returns the columns that a header names.
fn of_header(path: &Path, names: &[String], sample: &Sample) -> Result<Named> {
    Named::of(names, sample)
        .map_err(|what| Error::data(path, what).remedy("name the column with --columns src=NAME"))
}

/// Combines the columns of the options with those of the header or the layout.
struct Resolver<'a> {
    path: &'a Path,
    names: &'a [String],
    options: &'a ReadOptions,
}

impl Resolver<'_> {
    fn layout(&self, format: Format, named: Named, sample: &Sample) -> Result<Layout> {
        let given = self.options.columns.clone().unwrap_or_default();
        let one = |given: &Option<ColumnName>, named: Option<usize>| match given {
            Some(column) => self.position(column).map(Some),
            None => Ok(named),
        };
        let time = match &given.time[..] {
            [] => named.time.into_iter().collect(),
            columns => columns.iter().map(|c| self.position(c)).collect::<Result<Vec<_>>>()?,
        };
        let (src, dst) = (one(&given.src, named.src)?, one(&given.dst, named.dst)?);
        let (Some(src), Some(dst), false) = (src, dst, time.is_empty()) else {
            let missing = [
                (src, "source", "src"),
                (dst, "destination", "dst"),
                (time.first().copied(), "time", "time"),
            ];
            let missing = missing.iter().filter(|m| m.0.is_none()).map(|m| (m.1, m.2)).collect::<Vec<_>>();
            return Err(self.missing(&missing));
        };
        let features = match (&given.features[..], named.features) {
            ([], Some((first, last))) => vec![FeatureColumns::Range(first + 1, last.map(|last| last + 1))],
            ([], None) => {
                let taken = [Some(src), Some(dst), named.label, named.index];
                let rest =
                    sample.measured.iter().filter(|i| !taken.contains(&Some(**i)) && !time.contains(i));
                rest.map(|i| FeatureColumns::Values(ColumnName::Number(i + 1))).collect()
            }
            (given, _) => given.to_vec(),
        };
        Ok(Layout {
            format,
            names: self.names.to_vec(),
            src,
            dst,
            time,
            label: one(&given.label, named.label)?,
            index: named.index,
            roll: None,
            features,
            separate: format == Format::Jodie || named.separate,
            notes: named.notes,
        })
    }

    /// Returns the index of a column.
    fn position(&self, column: &ColumnName) -> Result<usize> {
        match column {
            ColumnName::Number(n) => Ok(n - 1),
            ColumnName::Name(name) => column_called(self.path, self.names, name),
        }
    }

    /// Returns the error for columns that neither the options nor the header name.
    fn missing(&self, missing: &[(&str, &str)]) -> Error {
        let what: Vec<&str> = missing.iter().map(|m| m.0).collect();
        let roles: Vec<String> = missing.iter().map(|m| format!("{}=NAME", m.1)).collect();
        let error = Error::data(self.path, format!("no column is named like a {}", what.join(" or a ")));
        error.remedy(format!("give --columns {}; the columns are {}", roles.join(","), listed(self.names)))
    }
}

/// Returns the index of the column called `name`.
fn column_called(path: &Path, names: &[String], name: &str) -> Result<usize> {
    position(names, name).ok_or_else(|| match names {
        [] => Error::data(path, format!("there is no header to name column `{name}`"))
            .remedy("give the number of the column, from 1"),
        names => Error::data(path, format!("there is no column `{name}`")).remedy(suggestion(names, name)),
    })
}

impl Layout {
    /// Adds a note about the named columns that are not read.
    fn note_unread(&mut self, sample: &Sample) {
        let position = |column: &ColumnName| match column {
            ColumnName::Number(n) => n - 1,
            ColumnName::Name(name) => position(&self.names, name).unwrap_or(usize::MAX),
        };
        let is_feature = |i: usize| {
            self.features.iter().any(|part| match part {
                FeatureColumns::Range(first, last) => i + 1 >= *first && last.is_none_or(|last| i < last),
                FeatureColumns::Values(c) | FeatureColumns::OneHot(c) | FeatureColumns::Hashed(c, _) => {
                    position(c) == i
                }
            })
        };
        let known = [Some(self.src), Some(self.dst), self.label, self.index];
        let unread = |&i: &usize| {
            !known.contains(&Some(i))
                && !self.time.contains(&i)
                && !is_feature(i)
                && !self.names[i].is_empty()
        };
        let unread: Vec<String> = (0..self.names.len())
            .filter(unread)
            .map(|i| self.names[i].clone())
            .filter(|name| !name.ends_with("_roll"))
            .collect();
        if !unread.is_empty() && sample.header.is_some() {
            self.notes.push(format!("columns not read: {}", listed(&unread)));
        }
    }
}

/// Guesses the format, testing the most specific headers first.
fn guess(sample: &Sample) -> Option<Format> {
    match () {
        _ if dyglib::recognises(sample) => Some(Format::Dyglib),
        _ if tgl::recognises(sample) => Some(Format::Tgl),
        _ if jodie::recognises(sample) => Some(Format::Jodie),
        _ if signed::recognises(sample) => Some(Format::Signed),
        _ if sample.header.is_some() => Some(Format::Table),
        _ if snap::recognises(sample) => Some(Format::Snap),
        _ => None,
    }
}

/// Returns the error for a table without a header that fits no layout.
fn unknown(path: &Path, sample: &Sample) -> Error {
    let separator = match sample.delimiter {
        Delimiter::Byte(b',') => "commas",
        Delimiter::Byte(b';') => "semicolons",
        Delimiter::Byte(_) => "tabs",
        Delimiter::Blanks => "blanks",
    };
    let what =
        format!("no known layout has {} columns, separated by {separator}, without a header", sample.width());
    Error::data(path, what)
        .remedy("name the layout with --format, or the columns with --columns src=1,dst=2,time=3")
}
