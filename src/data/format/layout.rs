//! Recognition of a file's layout.
use super::{
    columns::{Columns, from_header},
    dyglib, jodie,
    options::{Format, ReadOptions},
    records::Delimiter,
    sample::Sample,
    signed, snap, tgl,
};
use crate::error::{Error, Result};
use std::path::Path;

/// Description of a table, complete enough to read it. Columns count from 1.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub format: Format,
    pub delimiter: Delimiter,
    pub columns: Columns,
    /// Column of event numbers, by which feature files are joined.
    pub index: Option<usize>,
    /// Column that says to which part of the split an event belongs.
    pub roll: Option<usize>,
    /// Whether the first line holds column names.
    pub header: bool,
    /// Whether sources and destinations are numbered separately, so that equal ids are different nodes.
    pub separate: bool,
    /// Notes to the user about columns that are not read and about doubtful guesses.
    pub notes: Vec<String>,
}

/// Returns the layout given in the options, or else recognises it from the sample.
///
/// # Errors
/// Data if there is a header but no event, or if the layout or the columns cannot be recognised.
pub(super) fn recognise(path: &Path, sample: &Sample, options: &ReadOptions) -> Result<Layout> {
    if sample.rows.is_empty() {
        return Err(Error::data(path, "there is a header but no event").remedy("write one event per line"));
    }
    let mut layout = Layout {
        format: options.format.unwrap_or(Format::Table),
        delimiter: sample.delimiter,
        columns: snap::COLUMNS,
        index: None,
        roll: None,
        header: sample.header.is_some(),
        separate: false,
        notes: Vec::new(),
    };
    if let Some(columns) = options.columns {
        layout.columns = columns;
        layout.separate = options.format == Some(Format::Jodie);
        return Ok(layout);
    }
    layout.format = match options.format {
        Some(format) => format,
        None => guess(sample).ok_or_else(|| unknown(path, sample))?,
    };
    layout.columns = match layout.format {
        Format::Jodie => jodie::COLUMNS,
        Format::Dyglib => dyglib::COLUMNS,
        Format::Tgl => tgl::COLUMNS,
        Format::Signed => signed::COLUMNS,
        Format::Snap | Format::Table | Format::Tgb | Format::Tkg | Format::Native => snap::COLUMNS,
    };
    match sample.header.as_deref().map(from_header) {
        Some(Ok(header)) => {
            layout.columns = header.columns;
            layout.index = header.index;
            layout.roll = sample.position("ext_roll").map(|i| i + 1);
            let ignored: Vec<_> = header.ignored.iter().filter(|n| !n.ends_with("_roll")).cloned().collect();
            if !ignored.is_empty() {
                layout.notes.push(format!("columns not read: {}", ignored.join(", ")));
            }
        }
        // The order of columns is that of the format that the user named.
        Some(Err(_)) if options.format.is_some_and(|f| f != Format::Table) => {}
        Some(Err(what)) => {
            return Err(Error::data(path, what)
                .at(1, 0)
                .remedy("name the columns with --columns src=1,dst=2,time=3"));
        }
        None if layout.format == Format::Table => return Err(unknown(path, sample)),
        None => {}
    }
    if layout.format == Format::Jodie {
        layout.separate = true;
        layout.columns.features = jodie::features(layout.columns.features, sample);
    }
    if options.format.is_none() && layout.format == Format::Snap {
        layout.notes.extend(snap::doubt(sample));
    }
    Ok(layout)
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
