//! Files with one event, or one row of features, per row: text, JSON lines, Parquet, Arrow, and sets of them.
use super::{
    blocks,
    cell::Row,
    column_names::suggestion,
    file_set::{self, FileSet},
    input::{Input, first_bytes, is_stream, opened},
    json_lines,
    options::ReadOptions,
    records::records,
    sample::Sample,
    table::{Table, add_rows_read},
};
#[cfg(feature = "formats")]
use super::{
    columnar::{self, Columnar},
    spool,
};
use crate::LineCounts;
use json_lines::LateKeys;
use std::{
    collections::HashSet,
    fs::File,
    io::{Cursor, Read},
    path::Path,
};
use tgnn::error::{Error, Result};

/// What was met while all rows of a source were read.
#[derive(Default)]
pub(super) struct Outcome {
    /// What its lines are, if it has lines; all rows count as events.
    pub lines: Option<LineCounts>,
    /// Keys of objects that the sample does not have.
    pub late: LateKeys,
    /// Keys that objects have.
    pub keys: HashSet<String>,
}

impl Outcome {
    /// Adds the outcome of another file of a set.
    pub(super) fn add(&mut self, other: Outcome) {
        if let Some(lines) = other.lines {
            *self.lines.get_or_insert_default() += lines;
        }
        self.late.extend(other.late);
        self.keys.extend(other.keys);
    }

    /// Checks that the keys that the options name are there.
    pub(super) fn check_keys(&self, path: &Path, sample: &Sample) -> Result<()> {
        let names = sample.header.as_deref().unwrap_or_default();
        let own = names.split_at(names.len() - sample.added).0;
        match own.iter().find(|name| sample.keyed && !self.keys.contains(*name)) {
            Some(name) => Err(Error::data(path, format!("there is no key `{name}`"))
                .remedy(suggestion(&self.keys.iter().cloned().collect::<Vec<_>>(), name))),
            None => Ok(()),
        }
    }
}

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

    /// Opens bytes in memory; errors name `path`.
    pub(super) fn of_bytes(path: &Path, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<Self> {
        #[cfg(feature = "formats")]
        if columnar::is_typed(bytes.as_ref()) {
            return Columnar::of_file(path, spool::copy(path, bytes.as_ref())?).map(Source::Columnar);
        }
        Self::new(Input::of_bytes(path, bytes)?)
    }

    /// Returns what it is, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Source::Text(_) => "text",
            Source::JsonLines(_) => "JSON lines",
            #[cfg(feature = "formats")]
            Source::Columnar(_) => "a typed table",
            Source::Set(_) => "a set of files",
        }
    }

    /// Returns the header and the first rows.
    pub(super) fn sample(&self, options: &ReadOptions) -> Result<Sample> {
        match self {
            Source::Text(input) => Sample::read(input, options),
            Source::Set(files) => files.sample(options),
            _ if options.delimiter.is_some() => {
                Err(Error::usage(format!("only text has a delimiter, and the data are {}", self.kind()))
                    .remedy("leave out --delimiter"))
            }
            Source::JsonLines(input) => json_lines::sample(input, options),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.sample(),
        }
    }

    /// Returns about how many rows a file of `size` bytes has; `None` if that is not known before it is read.
    pub(super) fn events(&self, sample: &Sample, size: u64) -> Option<u64> {
        match self {
            Source::Text(input) => rows_of_text(size, input, sample),
            // A key and its quotes are about as long as a value.
            Source::JsonLines(input) => rows_of_text(size / 2, input, sample),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.rows,
            Source::Set(files) => files.events(),
        }
    }

    /// Reads all rows into a table. A text is read by several threads.
    pub(super) fn read_into(self, sample: &Sample, table: &mut Table<'_>) -> Result<Outcome> {
        match self {
            Source::Text(input) => {
                let lines = Some(blocks::read(input, sample.shape, table)?);
                Ok(Outcome { lines, ..Outcome::default() })
            }
            Source::Set(files) => files.read_into(sample, table),
            other => other.for_each(sample, &mut |row| {
                add_rows_read(1);
                table.push(row)
            }),
        }
    }

    /// Calls `take` for every row, in order.
    pub(super) fn for_each(
        self,
        sample: &Sample,
        take: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<Outcome> {
        match self {
            Source::Text(input) => {
                let mut records = records(input, sample.shape);
                while let Some(row) = records.next()? {
                    take(&row)?;
                }
                Ok(Outcome { lines: Some(records.counts()), ..Outcome::default() })
            }
            Source::JsonLines(input) => json_lines::for_each(input, sample, take),
            #[cfg(feature = "formats")]
            Source::Columnar(table) => table.for_each(take).map(|()| Outcome::default()),
            Source::Set(files) => files.for_each(sample, take),
        }
    }
}

/// Reads a source by `read`, which gets what `sample` returns. If objects have keys that the first ones lack,
/// `again` opens the source once more; without it, such keys are not read. Returns the sample, too, and what
/// was met in the last reading.
pub(super) fn read_all<T>(
    mut source: Source,
    again: Option<&dyn Fn() -> Result<Source>>,
    sample: impl Fn(&Source) -> Result<Sample>,
    read: impl Fn(Source, &Sample) -> Result<(T, Outcome)>,
) -> Result<(T, Sample, Outcome)> {
    let mut late = LateKeys::default();
    loop {
        let mut sample = sample(&source)?;
        sample.add_late(&late);
        let (result, outcome) = read(source, &sample)?;
        match again {
            Some(open) if outcome.late.are_to_be_read(sample.named)? => {
                late.extend(outcome.late);
                source = open()?;
            }
            _ => return Ok((result, sample, outcome)),
        }
    }
}

/// Reads a table that belongs to the events: `begin` makes something of its header and first rows, to which
/// `push` adds every row. Returns what the user should know, too. `syntax` says what to write into an empty
/// file.
pub(super) fn read_beside<T>(
    file: &Path,
    syntax: &str,
    begin: impl Fn(&Sample) -> Result<T>,
    push: impl Fn(&mut T, &dyn Row) -> Result<()>,
) -> Result<(T, Vec<String>)> {
    let open = || Source::open(file);
    let again: Option<&dyn Fn() -> Result<Source>> = if is_stream(file) { None } else { Some(&open) };
    let sample =
        |source: &Source| source.sample(&ReadOptions::default()).map_err(|e| e.remedy(syntax.to_owned()));
    let (table, sample, outcome) = read_all(open()?, again, sample, |source, sample| {
        let mut table = begin(sample)?;
        let outcome = source.for_each(sample, &mut |row| push(&mut table, row))?;
        Ok((table, outcome))
    })?;
    let own = sample.notes.into_iter().chain(outcome.late.note());
    let mut notes: Vec<String> = own.map(|note| format!("{}: {note}", file.display())).collect();
    notes.extend(outcome.lines.and_then(|lines| lines.note(file)));
    Ok((table, notes))
}

/// Returns the number of rows of a text of `size` bytes, given the bytes of the sampled rows.
fn rows_of_text(size: u64, input: &Input, sample: &Sample) -> Option<u64> {
    let bytes: usize = sample.rows.iter().flatten().map(|field| field.len() + 1).sum();
    let size = (size as f64 * input.expansion()) as u64;
    (bytes > 0).then(|| size * sample.rows.len() as u64 / bytes as u64)
}
