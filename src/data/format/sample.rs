//! Delimiter, header and first rows of a file.
use super::{
    cell::Cell,
    header::{Role, is_time, position, role},
    input::{HEAD, Input},
    number::{is_number, parse_decimal},
    records::{Delimiter, Span, is_skipped, split},
};
use crate::error::{Error, Result};

/// Maximum number of rows in a sample.
pub(super) const ROWS: usize = 100;

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
}

impl Sample {
    /// Reads the first lines of `input`.
    ///
    /// # Errors
    /// Data if the file is empty or is not text.
    pub(super) fn of(input: &Input) -> Result<Self> {
        let head = input.head();
        let problem = match head {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
                Some("is one NumPy array; give the folder that holds src.npy")
            }
            [b'P', b'K', 3, 4, ..] => Some("is a zip archive; unpack it first"),
            [b'{' | b'[', ..] => Some(
                "is JSON, but not one object per line; write one event per line: src,dst,time, or one object",
            ),
            _ if head.contains(&0) => {
                Some("is a binary file; write the events as text, or as a folder of .npy")
            }
            _ => None,
        };
        if let Some((what, remedy)) = problem.and_then(|p| p.split_once("; ")) {
            return Err(Error::data(&input.path, what).remedy(remedy));
        }
        let mut lines = head.split(|&b| b == b'\n').filter(|l| !is_skipped(l));
        let Some(first) = lines.next() else {
            return Err(Error::data(&input.path, "the file is empty")
                .remedy("write one event per line: src,dst,time"));
        };
        let delimiter = delimiter(first);
        let mut spans = Vec::new();
        let names = fields(first, delimiter, &mut spans);
        let header = is_header(&names)
            .then(|| names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>());
        let start = if header.is_some() { None } else { Some(first) };
        let rows = start.into_iter().chain(lines).take(ROWS).map(|l| fields(l, delimiter, &mut spans));
        let rows: Vec<_> = rows.collect();
        let cut = head.len() >= HEAD && rows.len() < ROWS;
        let whole = if cut { rows.len().saturating_sub(1).max(1) } else { rows.len() };
        Ok(Sample { delimiter, rows, whole, header, measured: Vec::new() })
    }

    /// Returns a sample without rows, for a header alone.
    #[cfg(feature = "cli")]
    pub(super) fn of_header(names: &[String]) -> Self {
        let (header, delimiter) = (Some(names.to_vec()), Delimiter::Byte(b','));
        Sample { delimiter, header, rows: Vec::new(), whole: 0, measured: Vec::new() }
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
        self.all(i, is_time)
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
        let cells = self.whole_rows().filter_map(|row| row.get(i)).map(|field| Cell::Text(field));
        let mut present = cells.filter(|cell| !cell.is_missing()).peekable();
        present.peek().is_some() && present.all(|cell| holds(&cell))
    }

    /// Returns the sampled rows that are whole.
    fn whole_rows(&self) -> impl Iterator<Item = &Vec<Vec<u8>>> {
        self.rows.iter().take(self.whole)
    }

    /// Returns the numbers in column `i` (from 0) of the sampled rows.
    pub(super) fn numbers(&self, i: usize) -> impl Iterator<Item = f64> {
        self.whole_rows().filter_map(move |row| std::str::from_utf8(row.get(i)?).ok()?.parse().ok())
    }
}

/// Copies the fields of a line; `spans` is scratch space.
fn fields(line: &[u8], delimiter: Delimiter, spans: &mut Vec<Span>) -> Vec<Vec<u8>> {
    split(line, delimiter, spans);
    spans.iter().map(|&(a, b)| line[a..b].to_vec()).collect()
}

/// Guesses the delimiter from the first line: comma before semicolon before tab before blanks.
///
/// A tab delimits fields on its own only if the line has letters: then it is a header, and fields may be
/// empty or contain blanks. Between numbers, any run of blanks is one delimiter.
pub(super) fn delimiter(line: &[u8]) -> Delimiter {
    let text = line.iter().any(|b| b.is_ascii_alphabetic());
    match () {
        _ if line.contains(&b',') => Delimiter::Byte(b','),
        _ if line.contains(&b';') => Delimiter::Byte(b';'),
        _ if line.contains(&b'\t') && text => Delimiter::Byte(b'\t'),
        _ => Delimiter::Blanks,
    }
}

/// Whether a line is a header: it has a known column name, or neither a number nor a date.
fn is_header(fields: &[Vec<u8>]) -> bool {
    let known = |f: &Vec<u8>| {
        let name = String::from_utf8_lossy(f);
        !is_number(f) && role(&name) != Role::Other
    };
    fields.iter().any(known) || !fields.iter().any(|f| is_number(f) || is_time(&Cell::Text(f)))
}
