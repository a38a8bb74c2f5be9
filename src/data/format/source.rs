//! Files with one event, or one row of features, per row: text, JSON lines, Parquet, Arrow, and archives of
//! text.
#[cfg(feature = "formats")]
use super::columnar::{self, Columnar};
use super::{
    archive::{self, Archive},
    cell::Row,
    estimate::rows_of_text,
    input::Input,
    json_lines,
    records::records,
    sample::Sample,
};
use crate::error::Result;
use std::path::Path;

/// An open file with rows.
pub(super) enum Source {
    /// Lines of fields.
    Text(Input),
    /// JSON objects, one per line.
    JsonLines(Input),
    /// Parquet or Arrow.
    #[cfg(feature = "formats")]
    Columnar(Columnar),
    /// Archive of files with lines of fields.
    Archive(Archive),
}

impl Source {
    /// Opens a file; its content decides how it is read.
    ///
    /// # Errors
    /// Io if it cannot be read; data if it is damaged.
    pub(super) fn open(path: &Path) -> Result<Self> {
        #[cfg(feature = "formats")]
        if columnar::recognises(path) {
            return Columnar::open(path).map(Source::Columnar);
        }
        Self::of(Input::open(path)?)
    }

    /// Recognises the content of an input.
    pub(super) fn of(input: Input) -> Result<Self> {
        match () {
            _ if archive::recognises(&input) => Archive::open(input).map(Source::Archive),
            _ if json_lines::recognises(&input) => Ok(Source::JsonLines(input)),
            _ => Ok(Source::Text(input)),
        }
    }

    /// Returns the header and the first rows.
    ///
    /// # Errors
    /// Data if the file is empty or is not a table.
    pub(super) fn sample(&self) -> Result<Sample> {
        match self {
            Source::Text(input) => Sample::of(input),
            Source::JsonLines(input) => json_lines::sample(input),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.sample(),
            Source::Archive(archive) => archive.sample(),
        }
    }

    /// Returns about how many rows a file of `size` bytes has; `None` if that is not known before it is read.
    pub(super) fn events(&self, sample: &Sample, size: u64) -> Option<u64> {
        match self {
            Source::Text(input) => rows_of_text(size, input.is_compressed(), sample),
            // A key and its quotes are about as long as a value.
            Source::JsonLines(input) => rows_of_text(size / 2, input.is_compressed(), sample),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.rows,
            Source::Archive(_) => None,
        }
    }

    /// Calls `take` for every row, in order.
    ///
    /// # Errors
    /// The first error of `take`; data, with the place, where the file is damaged.
    pub(super) fn for_each(
        self,
        sample: &Sample,
        take: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        match self {
            Source::Text(input) => {
                let mut records = records(input, sample.delimiter);
                if sample.header.is_some() {
                    records.next()?;
                }
                while let Some(row) = records.next()? {
                    take(&row)?;
                }
                Ok(())
            }
            Source::JsonLines(input) => json_lines::for_each(input, sample, take),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.for_each(take),
            Source::Archive(archive) => archive.for_each(sample, take),
        }
    }
}
