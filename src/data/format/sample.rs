//! Delimiter, header and first rows of a file.
use super::{
    columns::{Role, role},
    input::Input,
    number::is_number,
    records::{Delimiter, Span, is_skipped, split},
};
use crate::error::{Error, Result};

/// Maximum number of rows in a sample.
const ROWS: usize = 100;

/// Error about a Parquet file that is read as text: it is compressed, or this build cannot read Parquet.
const PARQUET: &str = if cfg!(feature = "parquet") {
    "is a compressed Parquet file; decompress it first"
} else {
    "is a Parquet file; build with the cargo feature `parquet`, or write it as CSV first"
};

/// Delimiter, header and first rows of a file.
pub(super) struct Sample {
    pub delimiter: Delimiter,
    /// Column names if the first line is a header; an unnamed column has an empty name.
    pub header: Option<Vec<String>>,
    /// Fields of the first rows of data, at most 100 rows; empty if the file has only a header.
    pub rows: Vec<Vec<Vec<u8>>>,
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
            [b'P', b'A', b'R', b'1', ..] => Some(PARQUET),
            [b'{' | b'[', ..] => {
                Some("is JSON, not a list of events; write one event per line: src,dst,time")
            }
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
        Ok(Sample { delimiter, rows: rows.collect(), header })
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
        self.header.as_ref()?.iter().position(|n| n.eq_ignore_ascii_case(wanted))
    }

    /// Returns the numbers in column `i` (from 0) of the sampled rows. The last of several rows is left out
    /// because the end of the sample may cut it off.
    pub(super) fn numbers(&self, i: usize) -> impl Iterator<Item = f64> {
        let number = move |row: &Vec<Vec<u8>>| std::str::from_utf8(row.get(i)?).ok()?.parse().ok();
        let whole = self.rows.len().saturating_sub(1).max(1).min(self.rows.len());
        self.rows[..whole].iter().filter_map(number)
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

/// Whether a line is a header: it has a known column name, or no number at all.
fn is_header(fields: &[Vec<u8>]) -> bool {
    let known = |f: &Vec<u8>| {
        let name = String::from_utf8_lossy(f);
        !is_number(f) && role(&name) != Role::Other
    };
    fields.iter().any(known) || !fields.iter().any(|f| is_number(f))
}
