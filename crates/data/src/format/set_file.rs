//! A file of a set: its content, the partitions that it is in, and the rows that it gives.
use super::{
    cell::{Cell, Row},
    input::Input,
    names::{ends_in, is_hidden, uncompressed},
};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};
use tgnn::error::Error;

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
/// Number of bytes by which files are told apart at first.
const START: u64 = 64 << 10;
/// Name that Hive gives to a partition of missing values.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Content of a file of a set.
pub(super) enum Content {
    /// Member of an archive.
    #[cfg_attr(not(feature = "formats"), expect(dead_code, reason = "this build reads no archives"))]
    Bytes(Arc<[u8]>),
    /// File of a folder.
    File(PathBuf),
}

/// A file of a set.
pub(super) struct Member {
    /// Path within the folder or archive.
    pub name: String,
    pub content: Content,
}

impl Member {
    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(path) => path.metadata().map_or(0, |meta| meta.len()),
        }
    }

    /// Opens the content as it is.
    pub(super) fn bytes(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match &self.content {
            Content::Bytes(bytes) => Box::new(&bytes[..]),
            Content::File(path) => Box::new(File::open(path)?),
        })
    }

    /// Returns a checksum of the first bytes.
    pub(super) fn start(&self) -> io::Result<u32> {
        let mut start = Vec::new();
        self.bytes()?.take(START).read_to_end(&mut start)?;
        Ok(crc32fast::hash(&start))
    }

    /// Opens the content, decompressed.
    pub(super) fn decompressed(&self) -> io::Result<Box<dyn Read + Send>> {
        let input = match &self.content {
            Content::Bytes(bytes) => Input::of_bytes(Path::new(&self.name), bytes.clone()),
            Content::File(path) => Input::open(path),
        };
        Ok(Box::new(input.map_err(io::Error::other)?.into_reader().0))
    }

    /// Whether the file has nothing but blanks, or a mark of UTF-8. Only small ones are looked at.
    pub(super) fn is_blank(&self) -> bool {
        const MOST: u64 = 4096;
        let mut text = Vec::new();
        let read = |text: &mut Vec<u8>| self.decompressed()?.take(MOST + 1).read_to_end(text);
        let whole = self.size() <= MOST && read(&mut text).is_ok() && text.len() as u64 <= MOST;
        whole && text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text).trim_ascii().is_empty()
    }

    /// Returns the partitions that the file is in.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        let folders = self.name.rsplit_once('/').map_or("", |(folders, _)| folders);
        folders.split('/').filter_map(partition).collect()
    }
}

/// A column and its value, which is `None` if it is missing.
pub(super) type Partition = (String, Option<String>);

/// Returns the partition that a folder is.
pub(super) fn partition(folder: &str) -> Option<Partition> {
    let (column, value) = folder.split_once('=').filter(|(column, _)| !column.is_empty())?;
    let value = (value != NO_VALUE).then(|| decoded(value));
    Some((decoded(column), value))
}

/// Replaces `%3A` and the like by the bytes that they stand for.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let code =
            rest.get(1..3).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether two readers have the same bytes; the first difference decides.
pub(super) fn same_bytes(a: impl Read, b: impl Read) -> io::Result<bool> {
    let (mut a, mut b) = (BufReader::new(a), BufReader::new(b));
    loop {
        let (of_a, of_b) = (a.fill_buf()?, b.fill_buf()?);
        let n = of_a.len().min(of_b.len());
        if n == 0 || of_a[..n] != of_b[..n] {
            return Ok(of_a.is_empty() && of_b.is_empty());
        }
        a.consume(n);
        b.consume(n);
    }
}

/// Whether a file of an archive or a folder may have events: its name has a known ending, or is that of a
/// part that Hadoop wrote.
pub(super) fn is_member(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !is_hidden(path)
        && (ends_in(name, &ENDS) || name.starts_with("part-") && !uncompressed(name).contains('.'))
}

/// A row with the values of its partitions, or the time of its file, as the last cells.
pub(super) struct WiderRow<'a> {
    pub row: &'a dyn Row,
    pub cells: &'a [Cell<'a>],
}

impl Row for WiderRow<'_> {
    fn len(&self) -> usize {
        self.row.len() + self.cells.len()
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        match i.checked_sub(self.row.len()) {
            None => self.row.cell(i),
            Some(i) => self.cells[i].clone(),
        }
    }

    fn lines(&self) -> u64 {
        self.row.lines()
    }

    fn floats(&self, at: &[usize], to: &mut Vec<f32>) -> bool {
        at.iter().all(|i| *i < self.row.len()) && self.row.floats(at, to)
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        self.row.error(i, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_can_be_a_partition() {
        assert_eq!(partition("date=2023-11-14"), Some(("date".into(), Some("2023-11-14".into()))));
        assert_eq!(partition("at=22%3A13%2"), Some(("at".into(), Some("22:13%2".into()))));
        assert_eq!(partition("kind=__HIVE_DEFAULT_PARTITION__"), Some(("kind".into(), None)));
        assert_eq!((partition("more"), partition("=x")), (None, None));
    }

    #[test]
    fn bytes_are_the_same_up_to_the_end_of_both() {
        let long = vec![7; 20_000];
        let changed = [&long[..19_999], &[8]].concat();
        let same = |a: &[u8], b: &[u8]| same_bytes(a, b).unwrap();
        assert!(same(b"", b"") && same(&long, &long));
        assert!(same_bytes(&long[..], long[..3].chain(&long[3..])).unwrap(), "in other pieces");
        assert!(!same(&long, &long[1..]) && !same(&long[1..], &long) && !same(&long, &changed));
        assert!(!same(b"", b"x") && !same(b"x", b""));
    }
}
