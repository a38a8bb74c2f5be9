//! Files of one layout, such as a file per day: a folder, or an archive (tar).
//!
//! Folders called `column=value` are partitions, as Hive, Spark and pandas write them: their files have the
//! column. If the files have no column of times, the time of a file's events is the date in its name
//! ([`file_dates`]); without dates, it is the position of the file in the order of names, in days. Files
//! without rows are read, too: they have the header of the others.
use super::{
    cell::{Cell, Row},
    column_names::listed,
    file_dates::{self, FileDates},
    header::HeaderColumns,
    input::Input,
    names::{LeftOut, entries, natural, uncompressed},
    number::Decimal,
    options::ReadOptions,
    sample::Sample,
    set_file::{Content, Member, WiderRow, is_member, partition, same_bytes},
    source::{Outcome, Source},
    table::{Table, add_rows_read},
};
use crate::text::shown;
use std::{
    collections::HashMap,
    mem,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Name of the column of times that the files' names give.
const TIME: &str = "time";
/// Place and content of the mark of a tar archive.
const MARK: (usize, &[u8]) = (257, b"ustar");
/// Log of a Delta table, whose folder has files that do not count.
const DELTA: &str = "_delta_log";

/// Whether the input is a tar archive.
pub(super) fn is_archive(input: &Input) -> bool {
    input.head().get(MARK.0..MARK.0 + MARK.1.len()) == Some(MARK.1)
}

/// Whether the files of a folder are events: typed tables, JSON lines, or text whose header names a time.
/// Lists of edges without times are snapshots, unless options say otherwise.
pub(super) fn has_events(dir: &Path) -> bool {
    let is_events = |sample: &Sample| {
        let named = sample.header.as_ref().and_then(|names| HeaderColumns::find(names, sample).ok());
        named.is_some_and(|named| named.src.and(named.dst).and(named.time).is_some())
    };
    match FileSet::with_copies(dir) {
        // What is wrong with other files is said where they are read.
        Ok(set) => set.first(&ReadOptions::default()).is_some_and(|sample| is_events(&sample)),
        Err(_) => dir.join(DELTA).is_dir(),
    }
}

/// The error for a Delta table.
fn is_delta(path: &Path) -> Error {
    Error::data(path, "is a Delta table, of which some files may be out of date")
        .remedy("write it as Parquet, or copy the files that count to another folder")
}

/// What reads a file of a set, given its own sample without rows, and the cells that its rows get.
type ReadFile<'a> = dyn FnMut(Source, &Sample, &[Cell<'_>]) -> Result<Outcome> + 'a;

/// Files of one layout, in natural order of their names.
pub(super) struct FileSet {
    path: PathBuf,
    files: Vec<Member>,
    left_out: LeftOut,
}

impl FileSet {
    /// Reads the files of an archive.
    #[cfg(feature = "formats")]
    pub(super) fn of_archive(input: Input) -> Result<Self> {
        use std::io::Read;
        let mut set = FileSet { path: input.path.clone(), files: Vec::new(), left_out: LeftOut::default() };
        let (reader, failure) = input.into_reader();
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(|e| failure.error(e))? {
            let mut entry = entry.map_err(|e| failure.error(e))?;
            let name = entry.path().map_err(|e| failure.error(e))?.to_string_lossy().into_owned();
            let kind = entry.header().entry_type();
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            if name.split('/').any(|folder| folder == DELTA) {
                return Err(is_delta(&set.path));
            }
            if !kind.is_file() || !is_member(&name) {
                set.left_out.add(name);
                continue;
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|e| failure.error(e))?;
            set.add(name, Content::Bytes(content.into()));
        }
        set.leave_out_inner();
        set.files.sort_by_cached_key(|file| natural(&file.name));
        Ok(set.checked("the archive has no file of events")?.without_copies())
    }

    #[cfg(not(feature = "formats"))]
    pub(super) fn of_archive(input: Input) -> Result<Self> {
        Err(crate::text::needs_formats("tar").in_file(&input.path))
    }

    /// Finds the files of a folder.
    pub(super) fn of_folder(dir: &Path) -> Result<Self> {
        Self::with_copies(dir).map(Self::without_copies)
    }

    /// Leaves out the files in inner folders of an archive but for partitions, as of a folder. A folder that
    /// has all of them is that of the archive.
    #[cfg(feature = "formats")]
    fn leave_out_inner(&mut self) {
        let folders = |name: &str| -> Vec<String> {
            let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
            folders.filter(|folder| !matches!(*folder, "" | ".")).map(str::to_owned).collect()
        };
        let mut root = self.files.first().map_or(Vec::new(), |file| folders(&file.name));
        for file in &self.files {
            let shared = root.iter().zip(folders(&file.name)).take_while(|(a, b)| *a == b).count();
            root.truncate(shared);
        }
        let is_inner =
            |file: &Member| folders(&file.name)[root.len()..].iter().any(|f| partition(f).is_none());
        let (inner, files): (Vec<Member>, Vec<Member>) =
            mem::take(&mut self.files).into_iter().partition(is_inner);
        self.files = files;
        inner.into_iter().for_each(|file| self.left_out.add(file.name));
    }

    /// Finds the files of a folder, and does not compare them.
    fn with_copies(dir: &Path) -> Result<Self> {
        let mut set = FileSet { path: dir.to_owned(), files: Vec::new(), left_out: LeftOut::default() };
        set.add_folder(dir, "", &mut Vec::new())?;
        set.files.sort_by_cached_key(|file| natural(&file.name));
        set.checked("the folder has no src.npy, dst.npy and time.npy, and no file of events")
    }

    /// Adds the files in a folder, of which `prefix` is the path within the set, and in its partitions.
    /// `above` are the folders that it is in.
    fn add_folder(&mut self, dir: &Path, prefix: &str, above: &mut Vec<PathBuf>) -> Result<()> {
        let own = dir.canonicalize().map_err(|e| Error::io(dir, "cannot open", e))?;
        if above.contains(&own) {
            self.left_out.add(format!("{prefix} (a link to a folder above)"));
            return Ok(());
        }
        above.push(own);
        for (name, path) in entries(dir)? {
            let inner = format!("{prefix}{name}");
            match path.is_dir() {
                true if name == DELTA => return Err(is_delta(dir)),
                true if partition(&name).is_some() => self.add_folder(&path, &format!("{inner}/"), above)?,
                true => self.left_out.add(format!("{inner}/")),
                false if path.is_file() && is_member(&name) => self.add(inner, Content::File(path)),
                false => self.left_out.add(inner),
            }
        }
        above.pop();
        Ok(())
    }

    /// Adds a file, unless it is empty.
    fn add(&mut self, name: String, content: Content) {
        let file = Member { name, content };
        match file.is_blank() {
            true => self.left_out.add(format!("{} (empty)", file.name)),
            false => self.files.push(file),
        }
    }

    /// Checks that there is a file.
    fn checked(self, none: &str) -> Result<Self> {
        if self.files.is_empty() {
            let names = self.left_out.listed();
            let what = if names.is_empty() { none.to_owned() } else { format!("{none}, only {names}") };
            return Err(Error::data(&self.path, what)
                .remedy("give an event file, or a folder of them, such as a file per day"));
        }
        Ok(self)
    }

    /// Leaves out what is a compressed copy of another file.
    fn without_copies(mut self) -> Self {
        let plain: HashMap<String, usize> =
            self.files.iter().enumerate().map(|(i, file)| (file.name.clone(), i)).collect();
        let is_copy = |file: &Member| {
            let other = uncompressed(&file.name);
            let other = plain.get(other).filter(|_| other.len() < file.name.len()).map(|i| &self.files[*i]);
            let same = |other: &Member| same_bytes(other.decompressed()?, file.decompressed()?);
            other.filter(|other| same(other).unwrap_or(false)).map(|other| other.name.clone())
        };
        let copies: Vec<Option<String>> = self.files.iter().map(is_copy).collect();
        let mut files = Vec::new();
        for (file, copy) in mem::take(&mut self.files).into_iter().zip(copies) {
            match copy {
                Some(other) => self.left_out.add(format!("{} (a copy of {other})", file.name)),
                None => files.push(file),
            }
        }
        self.files = files;
        self
    }

    /// Returns the first two files with the same content.
    fn equal_files(&self) -> Option<[&Member; 2]> {
        let sizes: Vec<u64> = self.files.iter().map(Member::size).collect();
        let mut files_of_size: HashMap<u64, usize> = HashMap::new();
        sizes.iter().for_each(|size| *files_of_size.entry(*size).or_default() += 1);
        // Different files differ early: only few are alike in their size and first bytes.
        let mut alike: HashMap<(u64, u32), Vec<&Member>> = HashMap::new();
        for (file, size) in self.files.iter().zip(sizes).filter(|(_, size)| files_of_size[size] > 1) {
            let Ok(start) = file.start() else { continue };
            let others = alike.entry((size, start)).or_default();
            let same = |other: &Member| same_bytes(other.bytes()?, file.bytes()?);
            if let Some(other) = others.iter().find(|other| same(other).unwrap_or(false)) {
                return Some([other, file]);
            }
            others.push(file);
        }
        None
    }

    /// Returns notes on files with the same content, or with the same name before the ending.
    fn doubles(&self) -> Vec<String> {
        let copy = self.equal_files().map(|[a, b]| {
            let [a, b] = [&a.name, &b.name];
            format!("{b} has the same content as {a}: both are read, so their events count twice")
        });
        let stem = |file: &Member| {
            let name = uncompressed(&file.name);
            name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
        };
        let mut by_stem: Vec<&Member> = self.files.iter().collect();
        by_stem.sort_by_cached_key(|file| stem(file));
        let twin = by_stem.windows(2).find(|pair| stem(pair[0]) == stem(pair[1])).filter(|_| copy.is_none());
        let twin = twin.map(|pair| {
            format!(
                "both {} and {} are read; if they have the same events, remove one",
                pair[0].name, pair[1].name
            )
        });
        copy.into_iter().chain(twin).collect()
    }

    /// Returns the bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(Member::size).sum()
    }

    /// Opens a file.
    fn open(&self, file: &Member) -> Result<Source> {
        let path = self.path.join(&file.name);
        let source = match &file.content {
            Content::Bytes(bytes) => Source::of_bytes(&path, bytes.clone())?,
            Content::File(path) => Source::open(path)?,
        };
        match source {
            Source::Set(_) => {
                Err(Error::data(path, "is an archive among files of events").remedy("unpack it"))
            }
            source => Ok(source),
        }
    }

    /// Returns the sample of the first file that can be read, if possible one with rows, with the columns of
    /// its partitions.
    fn first(&self, options: &ReadOptions) -> Option<Sample> {
        let sample = |file: &Member| self.open(file).and_then(|source| source.sample(options)).ok();
        let mut samples = self.files.iter().filter_map(|file| Some((file, sample(file)?)));
        let mut first = samples.next()?;
        while first.1.rows.is_empty() {
            let Some(next) = samples.next() else { break };
            first = next;
        }
        let (file, mut sample) = first;
        file.partitions().into_iter().for_each(|(column, value)| {
            sample.add_column(column, value.unwrap_or_default());
        });
        Some(sample)
    }

    /// Returns the sample of every file, which must be of one kind. The delimiter is that of the first.
    fn samples(&self, options: &ReadOptions) -> Result<Vec<Sample>> {
        let (mut options, mut first) = (options.clone(), None);
        let mut samples = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let source = self.open(file)?;
            let (kind, of_first) = (source.kind(), *first.get_or_insert(source.kind()));
            if kind != of_first {
                let what = format!("is {kind}, but {} is {of_first}", self.files[0].name);
                return Err(Error::data(self.path.join(&file.name), what)
                    .remedy("give files of one kind, and nothing else beside them"));
            }
            let sample = source.sample(&options)?;
            if matches!(source, Source::Text(_)) {
                options.delimiter = Some(sample.shape.writing.delimiter);
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Returns the sample of all files, with the columns of partitions, and with the times of the names if
    /// the rows have none.
    pub(super) fn sample(&self, options: &ReadOptions) -> Result<Sample> {
        let mut samples = self.samples(options)?;
        let first = samples.iter().position(|sample| !sample.rows.is_empty()).unwrap_or(0);
        for (file, sample) in self.files.iter().zip(&samples) {
            if !sample.is_like(&samples[first]) {
                return Err(self.differs(file, sample, (&self.files[first], &samples[first])));
            }
            self.check_values(file, sample)?;
        }
        let shapes = samples.iter().map(|sample| sample.shape).collect();
        let mut sample = samples.remove(first);
        sample.shapes = shapes;
        samples.iter().for_each(|other| sample.merge(other));
        sample.notes.extend(self.doubles());
        sample.notes.extend(self.left_out.note(&self.path, self.files.len()));
        self.check_partitions(&self.files[first])?;
        for (column, value) in self.files[first].partitions() {
            match sample.names(&column) {
                true => {
                    sample.notes.push(format!("`{column}` names folders, too: that of the files is read"))
                }
                false => sample.add_column(column, value.unwrap_or_default()),
            }
        }
        if options.columns.as_ref().is_none_or(|columns| columns.time.is_empty()) && has_no_time(&sample) {
            sample.notes.extend(self.days()?.1);
            sample.add_column(TIME.to_owned(), "0".to_owned());
        }
        Ok(sample)
    }

    /// Checks that the first rows of a file have the values of its folders, where these are columns of the
    /// file.
    fn check_values(&self, file: &Member, sample: &Sample) -> Result<()> {
        for (column, value) in file.partitions() {
            let Some(at) = sample.position(&column) else { continue };
            let value = value.unwrap_or_default();
            let number = |text: &str| text.trim().parse::<f64>().ok();
            let is_same = |field: &Vec<u8>| {
                let field = String::from_utf8_lossy(field);
                // A time may be within the day of its folder.
                field.starts_with(&value) || number(&field).is_some_and(|n| Some(n) == number(&value))
            };
            let mut fields = sample.rows.iter().filter_map(|row| row.get(at));
            if let Some(other) = fields.find(|field| !is_same(field)) {
                let what = format!("`{column}` is {} here, and {value} by the folder", shown(other));
                return Err(Error::data(self.path.join(&file.name), what).remedy("rename one of the two"));
            }
        }
        Ok(())
    }

    /// Checks that all files are in partitions of the same columns as `first`.
    fn check_partitions(&self, first: &Member) -> Result<()> {
        let columns = |file: &Member| file.partitions().into_iter().map(|(column, _)| column);
        let is_like = |file: &&Member| columns(file).eq(columns(first));
        match self.files.iter().find(|file| !is_like(file)) {
            None => Ok(()),
            Some(file) => {
                let what = format!("is in other partitions than {}", first.name);
                Err(Error::data(self.path.join(&file.name), what)
                    .remedy("give files in folders of the same columns"))
            }
        }
    }

    /// Returns the time of each file in days since 1970-01-01, and a note if the names have no dates.
    fn days(&self) -> Result<(Vec<i64>, Option<String>)> {
        match file_dates::of_names(self.files.iter().map(|file| &*file.name)) {
            FileDates::Days(days) => Ok((days, None)),
            FileDates::Ambiguous => Err(file_dates::ambiguous(&self.path.join(&self.files[0].name))),
            FileDates::None => {
                let days = (0..self.files.len() as i64).collect();
                let note = format!(
                    "the files have no times, and not every name has a date, such as 2023-11-14: the times are \
                     days 0 to {}, in the order of names",
                    self.files.len() - 1
                );
                Ok((days, Some(note)))
            }
        }
    }

    /// Returns about how many rows the files have together; `None` if that is not known before they are read.
    pub(super) fn events(&self) -> Option<u64> {
        let first = self.open(&self.files[0]).ok()?;
        let sample = first.sample(&ReadOptions::default()).ok()?;
        match first {
            Source::Text(_) | Source::JsonLines(_) => first.events(&sample, self.bytes()),
            _ => None,
        }
    }

    /// Calls `take` for every row of every file. `sample` is that of the set.
    pub(super) fn for_each(
        &self,
        sample: &Sample,
        take: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<Outcome> {
        self.for_each_file(sample, &mut |source, of_file, cells| match cells {
            [] => source.for_each(of_file, take),
            _ => source.for_each(of_file, &mut |row| take(&WiderRow { row, cells })),
        })
    }

    /// Reads all rows into a table.
    pub(super) fn read_into(&self, sample: &Sample, table: &mut Table<'_>) -> Result<Outcome> {
        self.for_each_file(sample, &mut |source, of_file, cells| match cells {
            [] => source.read_into(of_file, table),
            _ => source.for_each(of_file, &mut |row| {
                add_rows_read(1);
                table.push(&WiderRow { row, cells })
            }),
        })
    }

    /// Calls `read` with every file.
    fn for_each_file(&self, sample: &Sample, read: &mut ReadFile<'_>) -> Result<Outcome> {
        let names = sample.header.as_deref().unwrap_or_default();
        let (own, added) = names.split_at(names.len() - sample.added);
        let is_partition = self.files[0].partitions().iter().any(|(column, _)| column == TIME);
        let by_name = !is_partition && added.last().is_some_and(|name| name == TIME);
        let days = if by_name { self.days()?.0 } else { Vec::new() };
        let mut outcome = Outcome::default();
        for (index, file) in self.files.iter().enumerate() {
            let shape = sample.shapes.get(index).copied().unwrap_or(sample.shape);
            let of_file = Sample { shape, ..Sample::of_table(own.to_vec(), Vec::new(), Vec::new()) };
            let partitions: HashMap<String, Option<String>> = file.partitions().into_iter().collect();
            let day = days.get(index).map(|day| Decimal::new(day * 86_400, 0));
            let cell = |name: &String| match (partitions.get(name), day) {
                (Some(Some(value)), _) => Cell::Text(value.as_bytes()),
                (None, Some(day)) => Cell::Time(day),
                _ => Cell::Missing,
            };
            let cells: Vec<Cell<'_>> = added.iter().map(cell).collect();
            outcome.add(read(self.open(file)?, &of_file, &cells)?);
        }
        Ok(outcome)
    }

    /// Returns the error of a file whose columns are not those of another.
    fn differs(&self, file: &Member, sample: &Sample, (other, known): (&Member, &Sample)) -> Error {
        let columns = |sample: &Sample| match &sample.header {
            Some(names) => format!("the columns {}", listed(names)),
            None => "no header".to_owned(),
        };
        let what = format!("has {}, but {} has {}", columns(sample), other.name, columns(known));
        Error::data(self.path.join(&file.name), what)
            .remedy("give files of one layout, and nothing else beside them")
    }
}

/// Whether the rows of a file have no time: there are two or three columns, and none is named like a time.
fn has_no_time(sample: &Sample) -> bool {
    match &sample.header {
        Some(names) => HeaderColumns::find(names, sample).is_ok_and(|named| named.time.is_none()),
        None => sample.width() == 2,
    }
}
