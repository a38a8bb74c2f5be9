//! Which layout a file has.
use super::{
    Format, ReadOptions,
    columns::{Columns, from_header},
    dyglib, jodie,
    records::Delimiter,
    sample::Sample,
    signed, snap, tgl,
};
use crate::error::{Error, Result};
use std::path::Path;

/// All that is needed to read a table.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub format: Format,
    pub delimiter: Delimiter,
    pub columns: Columns,
    /// The event's number, which feature files are joined by.
    pub index: Option<usize>,
    /// Which part of the split an event belongs to.
    pub roll: Option<usize>,
    /// Whether the first line holds names.
    pub header: bool,
    /// Whether sources and destinations are numbered apart.
    pub separate: bool,
    /// What the user should know about the guess.
    pub notes: Vec<String>,
}

/// Recognises the layout, or takes it from the options.
pub(super) fn recognise(path: &Path, sample: &Sample, options: &ReadOptions) -> Result<Layout> {
    if sample.rows.is_empty() {
        return Err(Error::data(path, "there is a header but no event").remedy("add one event a line"));
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
        // A user who names a format vouches for its order of columns.
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
        jodie::complete(&mut layout, sample);
    }
    if options.format.is_none() && layout.format == Format::Snap {
        layout.notes.extend(snap::doubt(sample));
    }
    Ok(layout)
}

/// From the most telling header to the least.
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

fn unknown(path: &Path, sample: &Sample) -> Error {
    let by = match sample.delimiter {
        Delimiter::Byte(b',') => "commas",
        Delimiter::Byte(b';') => "semicolons",
        Delimiter::Byte(_) => "tabs",
        Delimiter::Blanks => "blanks",
    };
    let what = format!("no known layout has {} columns, separated by {by}, without a header", sample.width());
    Error::data(path, what).remedy("name it with --format, or the columns with --columns src=1,dst=2,time=3")
}
