//! Files of one layout, such as a file per day: a folder, or an archive (tar).
//!
//! If the files have no column of times, the time of a file's events is the date in its name, such as
//! `as20000102.txt` or `2023-11-14.csv`; without a date, it is the position of the file in the order of
//! names, in days. Files without content are skipped.
use super::{
    cell::{Cell, Row},
    header::HeaderColumns,
    input::Input,
    names::files_by_name,
    number::Decimal,
    records::Delimiter,
    sample::Sample,
    source::Source,
};
use chrono::NaiveDate;
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Name of the column of times that the files' names give.
const TIME: &str = "time";
/// Place and content of the mark of a tar archive.
const MARK: (usize, &[u8]) = (257, b"ustar");
/// Endings of the names of files with events; an additional ending of a compression is allowed.
const ENDS: [&str; 12] = [
    ".txt",
    ".csv",
    ".tsv",
    ".edges",
    ".edgelist",
    ".el",
    ".jsonl",
    ".ndjson",
    ".json",
    ".parquet",
    ".arrow",
    ".feather",
];

/// Whether the input is a tar archive.
pub(super) fn is_archive(input: &Input) -> bool {
    input.head().get(MARK.0..MARK.0 + MARK.1.len()) == Some(MARK.1)
}

/// Whether the files of a folder are events: typed tables, JSON lines, or text whose header names a time.
/// Lists of edges without times are snapshots, unless options say otherwise.
pub(super) fn has_events(dir: &Path) -> bool {
    let Ok(sample) = FileSet::of_folder(dir).and_then(|files| files.first(None)) else { return false };
    let named = sample.header.as_ref().and_then(|names| HeaderColumns::find(names, &sample).ok());
    named.is_some_and(|named| named.src.and(named.dst).and(named.time).is_some())
}

/// Content of a file of a set.
enum Content {
    /// Member of an archive, decompressed.
    #[cfg_attr(not(feature = "formats"), expect(dead_code, reason = "this build reads no archives"))]
    Bytes(Vec<u8>),
    /// File of a folder.
    File(PathBuf),
}

impl Content {
    /// Returns the size in bytes.
    fn size(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(path) => path.metadata().map_or(0, |meta| meta.len()),
        }
    }

    /// Whether two contents of one size are equal; content that cannot be read is not.
    fn equals(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Bytes(a), Content::Bytes(b)) => a == b,
            (Content::File(a), Content::File(b)) => same_bytes(a, b).unwrap_or(false),
            _ => false,
        }
    }
}

/// Whether two files are equal; the first difference decides.
fn same_bytes(a: &Path, b: &Path) -> io::Result<bool> {
    let [mut a, mut b] = [BufReader::new(File::open(a)?), BufReader::new(File::open(b)?)];
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let n = left.len().min(right.len());
        if n == 0 || left[..n] != right[..n] {
            return Ok(n == 0 && left.len() == right.len());
        }
        a.consume(n);
        b.consume(n);
    }
}

/// Files of one layout, in natural order of their names.
pub(super) struct FileSet {
    path: PathBuf,
    files: Vec<(String, Content)>,
}

impl FileSet {
    /// Reads the files of an archive.
    #[cfg(feature = "formats")]
    pub(super) fn of_archive(input: Input) -> Result<Self> {
        use super::names::natural;
        use std::io::Read;
        let path = input.path.clone();
        let (reader, failure) = input.into_reader();
        let mut archive = tar::Archive::new(reader);
        let mut files = Vec::new();
        for entry in archive.entries().map_err(|e| failure.error(e))? {
            let mut entry = entry.map_err(|e| failure.error(e))?;
            let name = entry.path().map_err(|e| failure.error(e))?.to_string_lossy().into_owned();
            let hidden = name.rsplit('/').next().is_some_and(|file| file.starts_with('.'));
            if !entry.header().entry_type().is_file() || hidden {
                continue;
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|e| failure.error(e))?;
            if !content.is_empty() {
                files.push((name, Content::Bytes(content)));
            }
        }
        files.sort_by_cached_key(|(name, _)| natural(name));
        if files.is_empty() {
            return Err(Error::data(&path, "the archive has no file").remedy("pack the files of events"));
        }
        Ok(FileSet { path, files })
    }

    #[cfg(not(feature = "formats"))]
    pub(super) fn of_archive(input: Input) -> Result<Self> {
        Err(crate::text::needs_formats("tar").in_file(&input.path))
    }

    /// Finds the files of a folder.
    pub(super) fn of_folder(dir: &Path) -> Result<Self> {
        let has_content = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.len() > 0);
        let files: Vec<_> = files_by_name(dir, &ENDS)?
            .into_iter()
            .filter(has_content)
            .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path))
            .map(|(name, path)| (name, Content::File(path)))
            .collect();
        if files.is_empty() {
            return Err(Error::data(
                dir,
                "the folder has no src.npy, dst.npy and time.npy, and no file of events",
            )
            .remedy("give an event file, or a folder of them, such as a file per day"));
        }
        Ok(FileSet { path: dir.to_owned(), files })
    }

    /// Returns a note if a file has the same content as another.
    fn copies(&self) -> Option<String> {
        let mut by_size: Vec<&(String, Content)> = self.files.iter().collect();
        by_size.sort_by_key(|(_, content)| content.size());
        let same = |a: &Content, b: &Content| a.size() == b.size() && a.equals(b);
        let copy = by_size.windows(2).find(|pair| same(&pair[0].1, &pair[1].1))?;
        let [a, b] = [&copy[0].0, &copy[1].0];
        Some(format!("{b} has the same content as {a}: both are read, so their events count twice"))
    }

    /// Returns the bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, content)| content.size()).sum()
    }

    /// Opens a file.
    fn open(&self, (name, content): &(String, Content)) -> Result<Source> {
        let path = self.path.join(name);
        let source = match content {
            Content::Bytes(bytes) => Source::new(Input::of_bytes(&path, bytes.clone())?)?,
            Content::File(path) => Source::open(path)?,
        };
        match source {
            Source::Set(_) => {
                Err(Error::data(path, "is an archive among files of events").remedy("unpack it"))
            }
            source => Ok(source),
        }
    }

    /// Returns the sample of the first file as it is.
    fn first(&self, delimiter: Option<Delimiter>) -> Result<Sample> {
        self.open(&self.files[0])?.sample(delimiter)
    }

    /// Returns the sample of the first file, with the times of the names if its rows have none.
    pub(super) fn sample(&self, delimiter: Option<Delimiter>) -> Result<Sample> {
        let mut sample = self.first(delimiter)?;
        sample.notes.extend(self.copies());
        if is_timed_by_name(&sample) {
            let names = sample.header.get_or_insert_with(|| {
                let places = ["src", "dst", "weight"].map(str::to_owned);
                places.into_iter().take(sample.rows.first().map_or(0, Vec::len)).collect()
            });
            names.push(TIME.to_owned());
            for row in &mut sample.rows {
                row.push(b"0".to_vec());
            }
        }
        Ok(sample)
    }

    /// Returns about how many rows the files have together; `None` if that is not known before they are read.
    pub(super) fn events(&self) -> Option<u64> {
        let first = self.open(&self.files[0]).ok()?;
        let sample = first.sample(None).ok()?;
        match first {
            Source::Text(_) | Source::JsonLines(_) => first.events(&sample, self.bytes()),
            _ => None,
        }
    }

    /// Calls `take` for every row of every file. Fields of text are separated by `delimiter`.
    pub(super) fn for_each(
        &self,
        delimiter: Delimiter,
        take: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let first = self.open(&self.files[0])?;
        let delimiter = matches!(first, Source::Text(_)).then_some(delimiter);
        let first = first.sample(delimiter)?;
        let by_name = is_timed_by_name(&first);
        for (index, file) in self.files.iter().enumerate() {
            let source = self.open(file)?;
            let sample = source.sample(delimiter)?;
            if sample.header != first.header {
                return Err(self.differs(file, &sample, &first));
            }
            if !by_name {
                source.for_each(&first, take)?;
                continue;
            }
            let time = Decimal::new(day(&file.0).unwrap_or(index as i64) * 86_400, 0);
            source.for_each(&first, &mut |row| take(&TimedRow { row, time }))?;
        }
        Ok(())
    }

    /// Returns the error of a file whose columns are not those of the first.
    fn differs(&self, file: &(String, Content), sample: &Sample, first: &Sample) -> Error {
        let columns = |sample: &Sample| match &sample.header {
            Some(names) => format!("the columns {}", names.join(",")),
            None => "no header".to_owned(),
        };
        let what = format!("has {}, but {} has {}", columns(sample), self.files[0].0, columns(first));
        Error::data(self.path.join(&file.0), what)
            .remedy("give files of one layout, and nothing else beside them")
    }
}

/// Whether the rows of a file have no time: there are two or three columns, and none is named like a time.
fn is_timed_by_name(sample: &Sample) -> bool {
    match &sample.header {
        Some(names) => HeaderColumns::find(names, sample).is_ok_and(|named| named.time.is_none()),
        None => sample.width() == 2,
    }
}

/// Returns the days from 1970-01-01 to the date in a file's name: eight digits, or three groups separated by
/// one character each.
fn day(name: &str) -> Option<i64> {
    let file = name.rsplit('/').next()?;
    let bytes = file.as_bytes();
    let digits = |range: std::ops::Range<usize>| -> Option<u32> {
        let part = bytes.get(range)?;
        part.iter().all(u8::is_ascii_digit).then(|| part.iter().fold(0, |v, b| 10 * v + u32::from(b - b'0')))
    };
    (0..bytes.len()).find_map(|at| {
        let compact = || Some((digits(at..at + 4)?, digits(at + 4..at + 6)?, digits(at + 6..at + 8)?));
        let apart = || Some((digits(at..at + 4)?, digits(at + 5..at + 7)?, digits(at + 8..at + 10)?));
        let (year, month, day) = apart().or_else(compact)?;
        let date =
            NaiveDate::from_ymd_opt(year as i32, month, day).filter(|_| (1800..2200).contains(&year))?;
        Some(date.signed_duration_since(NaiveDate::default()).num_days())
    })
}

/// A row with the time of its file as the last cell.
struct TimedRow<'a> {
    row: &'a dyn Row,
    time: Decimal,
}

impl Row for TimedRow<'_> {
    fn len(&self) -> usize {
        self.row.len() + 1
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        if i == self.row.len() { Cell::Time(self.time) } else { self.row.cell(i) }
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        self.row.error(i, what)
    }
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn the_date_in_a_name_is_found() {
        for (name, want) in [
            ("as-733/as20000102.txt", Some(10_958)),
            ("2000-01-02.csv", Some(10_958)),
            ("events_2000_01_02_v2.csv", Some(10_958)),
            ("2000.01.02/part", None),
            ("day7.csv", None),
            ("20001399.csv", None),
        ] {
            assert_eq!(day(name), want, "{name}");
        }
    }
}
