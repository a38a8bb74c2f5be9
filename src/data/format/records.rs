//! Lines and their fields.
//!
//! One splitter serves every text layout: it must tell the exact line and column of a fault, skip comments of two
//! kinds, take runs of blanks for one delimiter, and never build a `String` per field.
use super::input::{Failure, Input};
use crate::error::{Error, Result};
use std::io::{BufRead, BufReader, Read};

/// What separates two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delimiter {
    /// Exactly one byte; blanks around a field do not count, and `"…"` may hold the byte itself.
    Byte(u8),
    /// Any run of spaces and tabs.
    Blanks,
}

/// Start and end of a field in its line.
pub(super) type Span = (usize, usize);

/// Replaces `fields` by those of `line`.
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
        Delimiter::Byte(byte) => loop {
            let mut start = at;
            while start < line.len() && line[start] != byte && is_blank(line[start]) {
                start += 1;
            }
            if line.get(start) == Some(&b'"') {
                let close = closing_quote(line, start + 1);
                fields.push((start + 1, close));
                at = (close + 1).min(line.len());
                at += line[at..].iter().position(|&b| b == byte).unwrap_or(line.len() - at);
            } else {
                at = line[start..].iter().position(|&b| b == byte).map_or(line.len(), |p| start + p);
                let mut end = at;
                while end > start && is_blank(line[end - 1]) {
                    end -= 1;
                }
                fields.push((start, end));
            }
            if at == line.len() {
                return;
            }
            at += 1;
        },
    }
}

/// Position of the quote that closes a field; a doubled quote does not.
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

/// Whether a line holds no record: blank, or a comment of `#` or `%`.
pub(super) fn is_skipped(line: &[u8]) -> bool {
    line.iter().find(|b| !is_blank(**b) && **b != b'\n').is_none_or(|&b| b == b'#' || b == b'%')
}

/// The records of a file in order, one at a time, in one buffer.
pub(super) struct Records<R: Read> {
    reader: BufReader<R>,
    failure: Failure,
    delimiter: Delimiter,
    line: Vec<u8>,
    fields: Vec<Span>,
    number: u64,
}

/// Starts at the first line of `input`.
pub(super) fn records(input: Input, delimiter: Delimiter) -> Records<impl Read> {
    let (reader, failure) = input.into_reader();
    let reader = BufReader::with_capacity(256 << 10, reader);
    Records { reader, failure, delimiter, line: Vec::new(), fields: Vec::new(), number: 0 }
}

impl<R: Read> Records<R> {
    /// The next line that is neither blank nor a comment.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>> {
        loop {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line).map_err(|e| self.failure.error(e))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
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

/// The fields of a line.
pub(super) struct Record<'a> {
    line: &'a [u8],
    fields: &'a [Span],
    /// The line, from 1.
    number: u64,
    failure: &'a Failure,
}

impl<'a> Record<'a> {
    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }
    /// Field `i`, which must exist.
    pub(super) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = self.fields[i];
        &self.line[start..end]
    }
    /// An error at this line; at field `i` where there is one.
    #[cold]
    pub(super) fn error(&self, i: Option<usize>, what: impl Into<String>) -> Error {
        let column = i.and_then(|i| self.fields.get(i)).map_or(0, |f| f.0 as u64 + 1);
        Error::data(&self.failure.path, what).at(self.number, column)
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
    fn a_delimiter_splits_and_blanks_around_fields_do_not_count() {
        assert_eq!(fields("1, 2 ,3\r", Delimiter::Byte(b',')), ["1", "2", "3"]);
        assert_eq!(fields(",u,,", Delimiter::Byte(b',')), ["", "u", "", ""]);
        assert_eq!(fields("\t1\t\t2", Delimiter::Byte(b'\t')), ["", "1", "", "2"]);
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
        assert!(!is_skipped(b"1 2 3"));
    }
}
