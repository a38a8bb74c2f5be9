//! Files with one event, or one row of features, per row: text, JSON lines, Parquet, Arrow, and sets of them.
use super::{
    cell::Row,
    file_set::{self, FileSet},
    input::{Input, first_bytes, is_stream, opened},
    json_lines,
    records::{Delimiter, records},
    sample::Sample,
};
#[cfg(feature = "formats")]
use super::{
    columnar::{self, Columnar},
    spool,
};
use std::{
    fs::File,
    io::{Cursor, Read},
    path::Path,
};
use tgnn::error::{Error, Result};

/// How much smaller a compressed file is than its text; a typical ratio.
const RATIO: u64 = 5;

/// An open file with rows.
pub(super) enum Source {
    /// Lines of fields.
    Text(Input),
    /// JSON objects, one per line.
    JsonLines(Input),
    /// Parquet or Arrow.
    #[cfg(feature = "formats")]
    Columnar(Columnar),
    /// Several files of one layout.
    Set(FileSet),
}

impl Source {
    /// Opens a file or a pipe, whose content decides how it is read, or a folder of files of one layout. `-`
    /// is standard input.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if is_stream(path) {
            let (path, mut file) = opened(path)?;
            let first = first_bytes(&path, &mut file)?;
            return Self::of_stream(&path, first, file);
        }
        if path.is_dir() {
            return FileSet::of_folder(path).map(Source::Set);
        }
        #[cfg(feature = "formats")]
        if columnar::recognises(path) {
            return Columnar::open(path).map(Source::Columnar);
        }
        Self::new(Input::open(path)?)
    }

    /// Recognises the content of a stream that starts with the bytes `first`, which are read already.
    pub(super) fn of_stream(path: &Path, first: Vec<u8>, rest: File) -> Result<Self> {
        #[cfg(feature = "formats")]
        let is_typed = columnar::is_typed(&first);
        let all = Cursor::new(first).chain(rest);
        #[cfg(feature = "formats")]
        if is_typed {
            // Typed tables are not read from their start to their end.
            return Columnar::of_file(path, spool::copy(path, all)?).map(Source::Columnar);
        }
        Self::new(Input::new(path, all)?)
    }

    /// Recognises the content of an input.
    pub(super) fn new(input: Input) -> Result<Self> {
        match () {
            _ if file_set::is_archive(&input) => FileSet::of_archive(input).map(Source::Set),
            _ if json_lines::recognises(&input) => Ok(Source::JsonLines(input)),
            _ => Ok(Source::Text(input)),
        }
    }

    /// Returns the header and the first rows. `delimiter` separates the fields of text; if it is `None`, it
    /// is recognised.
    pub(super) fn sample(&self, delimiter: Option<Delimiter>) -> Result<Sample> {
        match (self, delimiter) {
            (Source::Text(input), _) => Sample::read(input, delimiter),
            (Source::Set(files), _) => files.sample(delimiter),
            (_, Some(_)) => Err(Error::usage("only text has a delimiter, and the file is none")
                .remedy("leave out --delimiter")),
            (Source::JsonLines(input), None) => json_lines::sample(input),
            #[cfg(feature = "formats")]
            (Source::Columnar(table), None) => table.sample(),
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
            Source::Set(files) => files.events(),
        }
    }

    /// Calls `take` for every row, in order.
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
            Source::Set(files) => files.for_each(sample.delimiter, take),
        }
    }
}

/// Returns the number of rows of a text of `size` bytes, given the bytes of the sampled rows.
fn rows_of_text(size: u64, compressed: bool, sample: &Sample) -> Option<u64> {
    let bytes: usize = sample.rows.iter().flatten().map(|field| field.len() + 1).sum();
    let size = if compressed { RATIO * size } else { size };
    (bytes > 0).then(|| size * sample.rows.len() as u64 / bytes as u64)
}
