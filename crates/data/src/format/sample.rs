//! Delimiter, header and first rows of a file.
use super::{
    cell::Cell,
    column_names::{Role, position, role},
    input::{HEAD, Input},
    number::{is_number, parse_decimal},
    records::{Delimiter, Span, is_skipped, split},
};
use tgnn::error::{Error, Result};

/// Maximum number of rows in a sample.
pub(super) const ROWS: usize = 100;
/// Number of lines from which the delimiter is recognised.
const LINES: usize = 20;

/// Delimiter, header and first rows of a file.
pub(super) struct Sample {
    pub delimiter: Delimiter,
    /// Column names if the first line is a header; an unnamed column has an empty name.
    pub header: Option<Vec<String>>,
    /// Fields of the first rows of data, at most 100 rows; empty if the file has only a header.
    pub rows: Vec<Vec<Vec<u8>>>,
    /// Number of the rows that are whole: the end of the sample may cut off the last one.
    pub whole: usize,
    /// In a table with types, the columns of measurements: floats, and lists of numbers.
    pub measured: Vec<usize>,
    /// What the user should know about the file.
    pub notes: Vec<String>,
}

impl Sample {
    /// Reads the first lines of `input`.
    pub(super) fn read(input: &Input, given: Option<Delimiter>) -> Result<Self> {
        let head = input.head();
        if let Some((what, remedy)) = unreadable(head) {
            return Err(Error::data(&input.path, what).remedy(remedy));
        }
        let mut lines = head.split(|&b| b == b'\n').filter(|l| !is_skipped(l));
        let begin: Vec<&[u8]> = lines.clone().take(LINES).collect();
        let Some(first) = lines.next() else {
            return Err(Error::data(&input.path, "the file is empty")
                .remedy("write one event per line: src,dst,time"));
        };
        // The end of the sample may cut off the last line.
        let whole = begin.len() - usize::from(head.len() >= HEAD && begin.len() > 1 && begin.len() < LINES);
        let delimiter = given.unwrap_or_else(|| Delimiter::of_lines(&begin[..whole]));
        let mut spans = Vec::new();
        let names = fields(first, delimiter, &mut spans);
        let header = is_header(&names)
            .then(|| names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>());
        let start = if header.is_some() { None } else { Some(first) };
        let rows = start.into_iter().chain(lines).take(ROWS).map(|l| fields(l, delimiter, &mut spans));
        let rows: Vec<_> = rows.collect();
        let cut = head.len() >= HEAD && rows.len() < ROWS;
        let whole = if cut { rows.len().saturating_sub(1).max(1) } else { rows.len() };
        Ok(Sample { delimiter, rows, whole, header, measured: Vec::new(), notes: Vec::new() })
    }

    /// Returns a sample without rows, for a header alone.
    #[cfg(feature = "formats")]
    pub(super) fn of_header(names: &[String]) -> Self {
        let (header, delimiter) = (Some(names.to_vec()), Delimiter::Byte(b','));
        Sample { delimiter, header, rows: Vec::new(), whole: 0, measured: Vec::new(), notes: Vec::new() }
    }

    /// Returns the number of fields in the first row of data; 0 if there is none.
    pub(super) fn width(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Whether the header has a column of this name, in any case of letters.
    pub(super) fn names(&self, wanted: &str) -> bool {
        self.position(wanted).is_some()
    }

    /// Returns the index of the column of this name, from 0.
    pub(super) fn position(&self, wanted: &str) -> Option<usize> {
        position(self.header.as_ref()?, wanted)
    }

    /// Whether every cell of column `i` that is not missing is a time, and there is one.
    pub(super) fn are_times(&self, i: usize) -> bool {
        self.all(i, |cell| cell.is_time())
    }

    /// Whether every cell of column `i` that is not missing is a number, and there is one.
    pub(super) fn are_numbers(&self, i: usize) -> bool {
        self.all(i, |cell| cell.value().is_ok())
    }

    /// Whether column `i` has few different values for its number of rows.
    pub(super) fn are_categories(&self, i: usize) -> bool {
        let values: Vec<&[u8]> = self.whole_rows().filter_map(|row| Some(row.get(i)?.as_slice())).collect();
        let distinct = values.iter().collect::<std::collections::HashSet<_>>().len();
        !values.is_empty() && distinct <= 1 + values.len() / 3
    }

    /// Whether every cell of column `i` is a number, and one of them has a fraction.
    pub(super) fn are_decimals(&self, i: usize) -> bool {
        let fraction = |cell: &Cell<'_>| matches!(cell, Cell::Text(field) if parse_decimal(field).is_ok_and(|d| d.digits > 0));
        let any = self.whole_rows().filter_map(|row| row.get(i)).any(|field| fraction(&Cell::Text(field)));
        any && self.all(i, |cell| matches!(cell, Cell::Text(field) if is_number(field)))
    }

    /// Whether column `i` has cells that are not missing, and `holds` is true for all of them.
    fn all(&self, i: usize, holds: impl Fn(&Cell<'_>) -> bool) -> bool {
        let mut present = self.present(i).map(Cell::Text).peekable();
        present.peek().is_some() && present.all(|cell| holds(&cell))
    }

    /// Returns the cells of column `i` that are not missing.
    pub(super) fn present(&self, i: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let cells = self.whole_rows().filter_map(move |row| row.get(i)).map(Vec::as_slice);
        cells.filter(|field| !Cell::Text(field).is_missing())
    }

    /// Returns the sampled rows that are whole.
    fn whole_rows(&self) -> impl Iterator<Item = &Vec<Vec<u8>>> + Clone {
        self.rows.iter().take(self.whole)
    }

    /// Returns the numbers in column `i` (from 0) of the sampled rows.
    pub(super) fn numbers(&self, i: usize) -> impl Iterator<Item = f64> {
        self.whole_rows().filter_map(move |row| std::str::from_utf8(row.get(i)?).ok()?.parse().ok())
    }
}

/// First bytes of texts that are no tables, what they are, and what to do.
const OTHER_TEXTS: [(&[u8], &str, &str); 7] = [
    (b"{", "is JSON, but not one object per line", "write one event per line: src,dst,time, or one object"),
    (
        b"[",
        "is a JSON array",
        "write one object per line, in pandas by to_json(file, orient=\"records\", lines=True)",
    ),
    (b"<!doctype", HTML, "give the address of the data themselves"),
    (b"<html", HTML, "give the address of the data themselves"),
    (b"<?xml", XML, AS_TABLE),
    (b"<gexf", XML, AS_TABLE),
    (b"<graphml", XML, AS_TABLE),
];
const HTML: &str = "is a page of the web";
const XML: &str = "is XML";
/// First bytes of files that are no text, what they are, and what to do.
const FOREIGN: [(&[u8], &str, &str); 17] = [
    (b"\x93NUMPY", "is one NumPy array", "give the folder that holds src.npy"),
    (b"PK\x03\x04", "is a zip archive, or an Excel workbook", "unpack it first, or save it as CSV"),
    (b"\xd0\xcf\x11\xe0", "is an Excel workbook", "save it as CSV"),
    (b"\xff\xfe", UTF_16, AS_UTF_8),
    (b"\xfe\xff", UTF_16, AS_UTF_8),
    (b"BZh", "is compressed by bzip2", "unpack it by bunzip2, or compress it by gzip or zstd"),
    (b"\xfd7zXZ", "is compressed by xz", "unpack it by unxz, or compress it by gzip or zstd"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4", "unpack it by unlz4, or compress it by gzip or zstd"),
    (b"\x1f\x9d", "is compressed by compress", "unpack it by uncompress, or compress it by gzip or zstd"),
    (b"7z\xbc\xaf", "is a 7z archive", "unpack it first"),
    (b"Rar!", "is a RAR archive", "unpack it first"),
    (b"\x89HDF", "is an HDF5 file", "save its table as CSV or Parquet"),
    (b"SQLite format 3", "is an SQLite database", "save its table as CSV or Parquet"),
    (b"\x80\x04", PICKLE, AS_TABLE),
    (b"\x80\x05", PICKLE, AS_TABLE),
    (b"ORC", "is an ORC file", AS_TABLE),
    (b"Obj\x01", "is an Avro file", AS_TABLE),
];
const UTF_16: &str = "is text in UTF-16";
const AS_UTF_8: &str = "save it as UTF-8";
const PICKLE: &str = "is a pickle of Python";
const AS_TABLE: &str = "save its table as CSV or Parquet";

/// Returns what a file is that is no table of text, and what to do about it.
fn unreadable(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = |mark: &[u8]| head.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    let marks: &[_] = if is_text(head) { &OTHER_TEXTS } else { &FOREIGN };
    if let Some((_, what, remedy)) = marks.iter().find(|(mark, ..)| begins(mark)) {
        return Some((*what, *remedy));
    }
    if head.contains(&0) {
        let every_second = |from: usize| head.iter().take(64).skip(from).step_by(2).all(|b| *b == 0);
        return Some(match every_second(0) || every_second(1) {
            true => (UTF_16, AS_UTF_8),
            false => ("is a binary file", "write the events as text, or as a folder of .npy"),
        });
    }
    let is_mac = head.contains(&b'\r') && !head.contains(&b'\n') && head.trim_ascii_end().contains(&b'\r');
    is_mac.then_some(("ends its lines like an old Mac, in CR only", "convert it, such as by tr '\\r' '\\n'"))
}

/// Whether the first bytes of a file are text.
fn is_text(head: &[u8]) -> bool {
    let begin = &head[..head.len().min(256)];
    // The end may cut off a letter.
    let is_utf_8 = std::str::from_utf8(begin).map_or_else(|e| e.error_len().is_none(), |_| true);
    is_utf_8 && begin.iter().all(|b| *b > 8)
}

/// Copies the fields of a line; `spans` is scratch space.
fn fields(line: &[u8], delimiter: Delimiter, spans: &mut Vec<Span>) -> Vec<Vec<u8>> {
    split(line, delimiter, spans);
    spans.iter().map(|&(a, b)| line[a..b].to_vec()).collect()
}

/// Whether a line is a header: it has a known column name, or neither a number nor a date.
fn is_header(fields: &[Vec<u8>]) -> bool {
    let known = |f: &Vec<u8>| {
        let name = String::from_utf8_lossy(f);
        !is_number(f) && role(&name) != Role::Other
    };
    fields.iter().any(known) || !fields.iter().any(|f| is_number(f) || Cell::Text(f).is_time())
}
