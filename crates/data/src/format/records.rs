//! Lines and their fields.
//!
//! One splitter serves every text layout. It records the exact line and column of every field for error
//! messages, skips comments of two kinds, treats runs of blanks as one delimiter, and allocates no `String`
//! per field.
pub(super) use super::delimiter::Delimiter;
use super::{
    cell::{Cell, Row},
    input::{Failure, Input},
};
use std::io::{BufRead, BufReader, Read};
use tgnn::error::{Error, Result};

/// Start and end of a field in its line, in bytes.
pub(super) type Span = (usize, usize);

/// Replaces the contents of `fields` by the spans of the fields of `line`.
pub(super) fn split(line: &[u8], delimiter: Delimiter, fields: &mut Vec<Span>) {
    fields.clear();
    let mut at = 0;
    match delimiter {
        Delimiter::Blanks => {
            while let Some(start) = line[at..].iter().position(|b| !is_blank(*b)).map(|p| at + p) {
                at = line[start..].iter().position(|b| is_blank(*b)).map_or(line.len(), |p| start + p);
                fields.push((start, at));
            }
        }
        Delimiter::Byte(_) | Delimiter::Bytes(_) => {
            let bytes = delimiter.bytes();
            let end_of = |from: usize| find(&line[from..], bytes).map_or(line.len(), |p| from + p);
            loop {
                let mut start = at;
                while start < line.len() && is_blank(line[start]) && !line[start..].starts_with(bytes) {
                    start += 1;
                }
                if line.get(start) == Some(&b'"') {
                    let close = closing_quote(line, start + 1);
                    fields.push((start + 1, close));
                    at = end_of((close + 1).min(line.len()));
                } else {
                    at = end_of(start);
                    let mut end = at;
                    while end > start && is_blank(line[end - 1]) {
                        end -= 1;
                    }
                    fields.push((start, end));
                }
                if at == line.len() {
                    return;
                }
                at += bytes.len();
            }
        }
    }
}

/// Returns the place of `wanted` in a line.
fn find(line: &[u8], wanted: &[u8]) -> Option<usize> {
    match wanted {
        [] => None,
        [byte] => line.iter().position(|b| b == byte),
        _ => line.windows(wanted.len()).position(|bytes| bytes == wanted),
    }
}

/// Returns the position of the quote that closes a field, or the line's length if there is none. A doubled
/// quote does not close a field.
fn closing_quote(line: &[u8], mut at: usize) -> usize {
    while let Some(p) = line[at..].iter().position(|&b| b == b'"').map(|p| at + p) {
        if line.get(p + 1) != Some(&b'"') {
            return p;
        }
        at = p + 2;
    }
    line.len()
}

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t' || b == b'\r'
}

/// Whether a line holds no record: it is blank, a comment that starts with `#` or `%`, or Excel's remark on
/// the delimiter, such as `sep=;`.
pub(super) fn is_skipped(line: &[u8]) -> bool {
    if line.starts_with(b"sep=") {
        return line.trim_ascii_end().len() <= b"sep=;".len();
    }
    line.iter().find(|b| !is_blank(**b) && **b != b'\n').is_none_or(|&b| b == b'#' || b == b'%')
}

/// Maximum size of a record whose quoted fields contain line ends, in bytes.
const LONGEST_QUOTE: usize = 1 << 20;

/// Whether the last field of `line` starts with a quote that is not closed.
fn ends_inside_quotes(line: &[u8], delimiter: Delimiter) -> bool {
    let mut fields = Vec::new();
    split(line, delimiter, &mut fields);
    let open =
        |&(start, _): &Span| start > 0 && line[start - 1] == b'"' && closing_quote(line, start) == line.len();
    fields.last().is_some_and(open)
}

/// Iterator over the records of a file, which share one line buffer.
pub(super) struct Records<R: Read> {
    reader: BufReader<R>,
    failure: Failure,
    delimiter: Delimiter,
    line: Vec<u8>,
    fields: Vec<Span>,
    /// Number of the first line of the record, from 1.
    number: u64,
    /// Number of its last line; a quoted field may contain line ends.
    last: u64,
}

/// Returns the records of `input`, from the first line on.
pub(super) fn records(input: Input, delimiter: Delimiter) -> Records<impl Read> {
    let (reader, failure) = input.into_reader();
    let reader = BufReader::with_capacity(256 << 10, reader);
    Records { reader, failure, delimiter, line: Vec::new(), fields: Vec::new(), number: 0, last: 0 }
}

impl<R: Read> Records<R> {
    /// Appends the next lines while a quoted field is open at the end of the line.
    fn join_quoted_lines(&mut self) -> Result<()> {
        if self.delimiter == Delimiter::Blanks {
            return Ok(());
        }
        while self.line.contains(&b'"')
            && !is_skipped(&self.line)
            && ends_inside_quotes(&self.line, self.delimiter)
        {
            let before = self.line.len();
            let read = self.reader.read_until(b'\n', &mut self.line).map_err(|e| self.failure.error(e))?;
            if read == 0 || before > LONGEST_QUOTE {
                let e =
                    Error::data(&self.failure.path, "a quote is opened and never closed").at(self.number, 0);
                return Err(e.remedy("close it, or double a quote that is part of a quoted field"));
            }
            self.last += 1;
        }
        Ok(())
    }

    /// Reads the next line that is neither blank nor a comment; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>> {
        loop {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line).map_err(|e| self.failure.error(e))?;
            if read == 0 {
                return Ok(None);
            }
            self.number = self.last + 1;
            self.last = self.number;
            self.join_quoted_lines()?;
            while self.line.last() == Some(&b'\n') {
                self.line.pop();
            }
            if !is_skipped(&self.line) {
                break;
            }
        }
        split(&self.line, self.delimiter, &mut self.fields);
        Ok(Some(Record {
            line: &self.line,
            fields: &self.fields,
            number: self.number,
            failure: &self.failure,
        }))
    }
}

/// Fields of a line.
pub(super) struct Record<'a> {
    line: &'a [u8],
    fields: &'a [Span],
    /// Line number, from 1.
    number: u64,
    failure: &'a Failure,
}

impl<'a> Record<'a> {
    /// Returns the number of fields.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns field `i`, which must exist.
    pub(super) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = self.fields[i];
        &self.line[start..end]
    }

    /// Returns a data error at this line, and at the column of field `i` if there is such a field.
    #[cold]
    pub(super) fn error(&self, i: Option<usize>, what: impl Into<String>) -> Error {
        let column = i.and_then(|i| self.fields.get(i)).map_or(0, |f| f.0 as u64 + 1);
        Error::data(&self.failure.path, what).at(self.number, column)
    }
}

impl Row for Record<'_> {
    fn len(&self) -> usize {
        Record::len(self)
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        Cell::Text(self.field(i))
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        Record::error(self, i, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, delimiter: Delimiter) -> Vec<&str> {
        let mut spans = Vec::new();
        split(line.as_bytes(), delimiter, &mut spans);
        spans.iter().map(|&(a, b)| &line[a..b]).collect()
    }

    #[test]
    fn blanks_around_delimited_fields_are_trimmed() {
        assert_eq!(fields("1, 2 ,3\r", Delimiter::Byte(b',')), ["1", "2", "3"]);
        assert_eq!(fields(",u,,", Delimiter::Byte(b',')), ["", "u", "", ""]);
        assert_eq!(fields("\t1\t\t2", Delimiter::Byte(b'\t')), ["", "1", "", "2"]);
        assert_eq!(fields(" 1:: \"a::b\" ::x:y::", "::".parse().unwrap()), ["1", "a::b", "x:y", ""]);
    }

    #[test]
    fn quotes_protect_a_delimiter() {
        assert_eq!(fields(r#""1","a, ""b""" ,3"#, Delimiter::Byte(b',')), ["1", r#"a, ""b"""#, "3"]);
        assert_eq!(fields(r#"1,"open, 2"#, Delimiter::Byte(b',')), ["1", "open, 2"]);
    }

    #[test]
    fn runs_of_blanks_are_one_delimiter() {
        assert_eq!(fields("  1 \t 2  3\r", Delimiter::Blanks), ["1", "2", "3"]);
    }

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        assert!(is_skipped(b"") && is_skipped(b" \r\n") && is_skipped(b"# x") && is_skipped(b" % y"));
        assert!(is_skipped(b"sep=;\r") && is_skipped(b"sep=\t") && !is_skipped(b"sep=12,3,4"));
        assert!(!is_skipped(b"1 2 3"));
    }
}
