//! Records of a text: a beginning of comments and blank lines, then rows, with the exact line and column of
//! every field for error messages.
//!
//! Every line is a comment, blank, or a part of a record, and is counted. Only the beginning has comments:
//! from the first record on, a line that starts with `#` or `%` is a record like any other.
use super::{
    cell::{Cell, Row},
    delimiter::Delimiter,
    fields::{LineEnd, Span, Writing, is_blank, is_escaped, is_quoted, split, unescape},
    input::{Failure, Input},
};
use crate::{
    LineCounts,
    text::{counted, shown},
};
use std::{
    io::{BufRead, BufReader},
    path::Path,
};
use tgnn::error::{Error, Result};

/// Maximum size of a record whose quoted fields contain line ends, in bytes.
pub(super) const LONGEST_QUOTE: usize = 1 << 20;

/// Whether a line has nothing but blanks.
pub(super) fn is_empty(line: &[u8]) -> bool {
    line.iter().all(|b| is_blank(*b) || *b == b'\n')
}

/// Whether a line may be a comment: it starts with `#` or `%`.
pub(super) fn may_be_comment(line: &[u8]) -> bool {
    matches!(line.iter().find(|b| !is_blank(**b)), Some(b'#' | b'%'))
}

/// Returns the text of a comment, without its marks.
pub(super) fn text_of_comment(line: &[u8]) -> &[u8] {
    let mark = line.iter().position(|b| !matches!(b, b'#' | b'%') && !is_blank(*b)).unwrap_or(line.len());
    &line[mark..]
}

/// Returns the delimiter that the first line of a text names in the way of Excel, such as `sep=;`.
pub(super) fn excel_delimiter(line: &[u8]) -> Option<Delimiter> {
    let end = line.iter().rposition(|b| *b != b'\r').map_or(0, |last| last + 1);
    Delimiter::from_bytes(line[..end].strip_prefix(b"sep=").filter(|rest| rest.len() == 1)?)
}

/// Which lines of a text are its beginning, and how the fields of the others are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub writing: Writing,
    /// Line of the header, from 1, and its number of lines; no lines if there is none. A header that is a
    /// comment is one line.
    pub header: (u64, u64),
    /// Line of the first row, from 1; `None` if it is the first line that is neither blank nor a comment.
    pub first: Option<u64>,
}

impl Shape {
    /// Returns the shape of a text of which only the delimiter is known: it begins with comments.
    pub(super) fn of(delimiter: Delimiter) -> Self {
        Shape { writing: Writing::of(delimiter), header: (0, 0), first: None }
    }
}

/// Divides lines into fields, and learns from them how quotes within quotes are written.
pub(super) struct Splitter {
    pub writing: Writing,
    /// Line of a field that ends in a backslash before its closing quote.
    backslash: Option<u64>,
    /// Line of a quoted field with two backslashes in a row. Where `\"` is a quote, they are one.
    pub pair: Option<u64>,
}

impl Splitter {
    pub(super) fn new(writing: Writing) -> Self {
        Splitter { writing, backslash: None, pair: None }
    }

    /// Divides a line into fields, and replaces doubled and escaped quotes in it. `place` is its file and its
    /// number. Returns false if a quoted field is open at its end.
    ///
    /// # Errors
    /// Data if anything but blanks follows a closing quote. If that quote is written `\"`, it is a part of
    /// its field, as are all such quotes from there on.
    pub(super) fn split(
        &mut self,
        line: &mut [u8],
        fields: &mut Vec<Span>,
        place: (&Path, u64),
    ) -> Result<bool> {
        loop {
            match split(line, self.writing, fields) {
                LineEnd::Whole => break,
                LineEnd::InQuotes => return Ok(false),
                LineEnd::Junk(at) => self.take_escapes(line, at, place)?,
            }
        }
        if memchr::memchr(b'"', line).is_some() {
            let ends = |field: &Span| is_quoted(line, *field) && is_escaped(line, field.0, field.1);
            if !self.writing.escapes && self.backslash.is_none() && fields.iter().any(ends) {
                self.backslash = Some(place.1);
            }
            let pairs = |&(a, b): &Span| {
                is_quoted(line, (a, b)) && memchr::memmem::find(&line[a..b], b"\\\\").is_some()
            };
            if !self.writing.escapes && self.pair.is_none() && fields.iter().any(pairs) {
                self.pair = Some(place.1);
            }
            unescape(line, self.writing, fields);
        }
        Ok(true)
    }

    /// Takes `\"` for a quote within a quoted field from here on, if that is what stands before byte `at`.
    #[cold]
    fn take_escapes(&mut self, line: &[u8], at: usize, place: (&Path, u64)) -> Result<()> {
        let quote = line[..at].iter().rposition(|b| *b == b'"').unwrap_or(0);
        let escaped = is_escaped(line, 0, quote) && !self.writing.escapes;
        let record = Record::of_line(line, &[], place);
        if let (true, Some(other)) = (escaped, self.backslash) {
            let what = format!("`\\\"` is a quote within a field here, but ends one in line {other}");
            return Err(record.error_at(quote, what).remedy("double each quote within quotes: \"\""));
        }
        if !escaped {
            let what = format!("{} follows a closing quote", shown(&line[at..]));
            return Err(record
                .error_at(at, what)
                .remedy("double each quote within quotes (\"\"), or quote no field that does not need it"));
        }
        if let Some(other) = self.pair {
            let what = format!(
                "`\\\"` is a quote within a field here, so two backslashes are one, but line {other} has two"
            );
            return Err(record.error_at(quote, what).remedy("double each quote within quotes: \"\""));
        }
        self.writing.escapes = true;
        Ok(())
    }
}

/// Returns the error for a record whose last field is opened by a quote that none closes. `place` is its file
/// and the number of its first line.
#[cold]
pub(super) fn never_closed(record: &[u8], writing: Writing, place: (&Path, u64)) -> Error {
    let mut fields = Vec::new();
    split(record, writing, &mut fields);
    let quote = fields.last().map_or(0, |field| field.0.saturating_sub(1));
    Record::of_line(record, &[], place)
        .error_at(quote, "a quote is opened and never closed")
        .remedy("close it, or double a quote that is part of a quoted field")
}

/// Iterator over the records of a file, which share one line buffer.
pub(super) struct Records<R: BufRead> {
    reader: R,
    failure: Failure,
    shape: Shape,
    line: Vec<u8>,
    fields: Vec<Span>,
    /// Number of the first line of the record, from 1.
    number: u64,
    /// Number of its last line; a quoted field may contain line ends.
    last: u64,
    splitter: Splitter,
    counts: LineCounts,
    /// Whether these are lines from within a text, whose last record may go on in the next lines.
    is_block: bool,
    /// Whether it does.
    is_open: bool,
}

/// Returns the records of `input`, from the first row on.
pub(super) fn records(input: Input, shape: Shape) -> Records<impl BufRead> {
    let (reader, failure) = input.into_reader();
    Records::new(BufReader::with_capacity(256 << 10, reader), failure, shape)
}

impl<'a> Records<&'a [u8]> {
    /// Returns the records of bytes; errors name `path`.
    pub(super) fn of_bytes(path: &Path, bytes: &'a [u8], shape: Shape) -> Self {
        Self::new(bytes, Failure { path: path.to_owned(), compression: None }, shape)
    }

    /// Returns the records of whole lines from within a text; the first of them is line `first`.
    pub(super) fn of_block(
        path: &Path,
        bytes: &'a [u8],
        (shape, first): (Shape, u64),
        splitter: Splitter,
    ) -> Self {
        Records { splitter, last: first - 1, is_block: true, ..Self::of_bytes(path, bytes, shape) }
    }

    /// Returns the last record and the number of its first line, if a quoted field was open at the end of the
    /// lines; and what was learned of quotes.
    pub(super) fn into_open(self) -> (Option<(Vec<u8>, u64)>, Splitter) {
        let open = self.is_open.then_some((self.line, self.number));
        (open, self.splitter)
    }
}

impl<R: BufRead> Records<R> {
    fn new(reader: R, failure: Failure, shape: Shape) -> Self {
        let (line, fields, counts) = (Vec::new(), Vec::new(), LineCounts::default());
        let splitter = Splitter::new(shape.writing);
        Records {
            reader,
            failure,
            shape,
            line,
            fields,
            number: 0,
            last: 0,
            splitter,
            counts,
            is_block: false,
            is_open: false,
        }
    }

    /// Appends the next line to the record, without its end. Returns false at the end of the file.
    fn read_line(&mut self) -> Result<bool> {
        let read = self.reader.read_until(b'\n', &mut self.line).map_err(|e| self.failure.error(e))?;
        if read > 0 {
            self.last += 1;
            self.line.pop_if(|last| *last == b'\n');
        }
        Ok(read > 0)
    }

    /// Reads up to the next line of a row, and counts the others. Returns false at the end of the file.
    fn read_row(&mut self) -> Result<bool> {
        loop {
            self.line.clear();
            if !self.read_line()? {
                return Ok(false);
            }
            self.number = self.last;
            let (header, lines) = self.shape.header;
            let begins = match self.shape.first {
                Some(first) => self.number < first,
                None => {
                    may_be_comment(&self.line) || self.number == 1 && excel_delimiter(&self.line).is_some()
                }
            };
            match () {
                _ if (header..header + lines).contains(&self.number) => self.counts.header += 1,
                _ if is_empty(&self.line) => self.counts.blank += 1,
                _ if begins => self.counts.comments += 1,
                _ => {
                    self.shape.first.get_or_insert(self.number);
                    return Ok(true);
                }
            }
        }
    }

    /// Divides the line into fields. Appends the next lines while a quoted field is open at its end. Returns
    /// false if one is open at the end of a block.
    fn split(&mut self) -> Result<bool> {
        while !self.splitter.split(&mut self.line, &mut self.fields, (&self.failure.path, self.number))? {
            let long = self.line.len() > LONGEST_QUOTE;
            self.line.push(b'\n');
            let read = self.read_line()?;
            if !read && self.is_block && !long {
                self.is_open = true;
                return Ok(false);
            }
            if long || !read {
                let place = (&*self.failure.path, self.number);
                return Err(never_closed(&self.line, self.splitter.writing, place));
            }
        }
        Ok(true)
    }

    /// Reads the next record, which is the header; `None` at the end of the file.
    pub(super) fn header(&mut self) -> Result<Option<Record<'_>>> {
        let before = self.counts.events;
        if self.next()?.is_none() {
            return Ok(None);
        }
        self.counts.header += self.counts.events - before;
        self.counts.events = before;
        Ok(Some(self.record()))
    }

    /// Reads the next record; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.read_row()? || !self.split()? {
            return Ok(None);
        }
        self.counts.events += self.last + 1 - self.number;
        Ok(Some(self.record()))
    }

    /// Returns the record that was read last.
    fn record(&self) -> Record<'_> {
        let (line, fields, number) = (&self.line[..], &self.fields[..], self.number);
        Record { line, fields, number, lines: self.last + 1 - number, path: &self.failure.path }
    }

    /// Whether `\"` is a quote within a quoted field.
    pub(super) fn has_escapes(&self) -> bool {
        self.splitter.writing.escapes
    }

    /// Returns the numbers of lines so far. All rows count as events.
    pub(super) fn counts(&self) -> LineCounts {
        self.counts
    }
}

/// Fields of a row.
pub(super) struct Record<'a> {
    line: &'a [u8],
    fields: &'a [Span],
    /// Number of its first line, from 1.
    number: u64,
    /// Number of lines.
    lines: u64,
    path: &'a Path,
}

impl<'a> Record<'a> {
    /// Returns a row that is one line of a file.
    pub(super) fn of_line(line: &'a [u8], fields: &'a [Span], (path, number): (&'a Path, u64)) -> Self {
        Record { line, fields, number, lines: 1, path }
    }

    /// Returns the number of fields.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns field `i`, which must exist.
    pub(super) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = self.fields[i];
        &self.line[start..end]
    }

    /// Returns a data error at this row, and at field `i` if there is such a field.
    #[cold]
    pub(super) fn error(&self, i: Option<usize>, what: impl Into<String>) -> Error {
        match i.and_then(|i| self.fields.get(i)) {
            Some(field) => self.error_at(field.0, what),
            None => Error::data(self.path, what).at(self.number, 0),
        }
    }

    /// Returns a data error at a byte of this row.
    #[cold]
    fn error_at(&self, byte: usize, what: impl Into<String>) -> Error {
        let (line, column) = place(&self.line[..byte]);
        Error::data(self.path, what).at(self.number + line, column)
    }
}

/// Returns how many lines end before the end of `text`, and the column there, from 1.
fn place(text: &[u8]) -> (u64, u64) {
    let lines = text.iter().filter(|b| **b == b'\n').count() as u64;
    let start = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    (lines, (text.len() - start) as u64 + 1)
}

impl Row for Record<'_> {
    fn len(&self) -> usize {
        Record::len(self)
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        Cell::Text(self.field(i))
    }

    fn lines(&self) -> u64 {
        self.lines
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        Record::error(self, i, what)
    }
}

/// Returns the error for a row of `width` fields where `wanted` are due.
#[cold]
pub(super) fn wrong_width(row: &dyn Row, wanted: usize, due: &str) -> Error {
    let (width, at) = (row.len(), row.len().min(wanted));
    let what = format!("this row has {}, {due} {wanted}", counted(width as u64, "column"));
    let is_comment = width > 0 && matches!(row.cell(0), Cell::Text(field) if may_be_comment(field));
    row.error((at < width).then_some(at), what).remedy(match is_comment {
        true => "comments stand before the first row: remove the line",
        false => "fix or remove the row",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, shape: Shape) -> Result<(Vec<Vec<String>>, LineCounts)> {
        let input = Input::of_bytes(Path::new("t.csv"), text.as_bytes().to_vec()).unwrap();
        let (mut records, mut rows) = (records(input, shape), Vec::new());
        while let Some(row) = records.next()? {
            let field = |i| String::from_utf8(row.field(i).to_vec()).unwrap();
            rows.push((0..row.len()).map(field).collect());
        }
        Ok((rows, records.counts()))
    }

    fn comma() -> Shape {
        Shape::of(Delimiter::Byte(b','))
    }

    #[test]
    fn only_the_beginning_has_comments_and_every_line_is_counted() {
        let text = "sep=,\n# a\n\n % b\n1,2\n#3,4\n \n\"5\n6\",7\nsep=;\n";
        let (rows, counts) = all(text, comma()).unwrap();
        assert_eq!(rows, [vec!["1", "2"], vec!["#3", "4"], vec!["5\n6", "7"], vec!["sep=;"]]);
        assert_eq!(counts, LineCounts { comments: 3, blank: 2, events: 5, ..LineCounts::default() });
        assert_eq!(counts.all(), text.lines().count() as u64);
        let told = Shape { header: (2, 1), first: Some(4), ..comma() };
        let (rows, counts) = all("x\n# u,v\n\n#1,2\n3,4", told).unwrap();
        assert_eq!(rows, [["#1", "2"], ["3", "4"]]);
        assert_eq!(
            counts,
            LineCounts { header: 1, comments: 1, blank: 1, events: 2, ..LineCounts::default() }
        );
    }

    #[test]
    fn what_follows_a_closing_quote_is_an_error_with_its_line_and_column() {
        for (text, said) in [
            ("1,2\n\"user\" 7,3\n", "t.csv:2:8: `7,3` follows a closing quote; double each quote"),
            ("\"1\n2\" 3\n", "t.csv:2:4: `3` follows a closing quote; "),
            ("1,\"2\n", "t.csv:1:3: a quote is opened and never closed; "),
            (
                "\"c:\\\",1\n\"a \\\"b\\\"\",2\n",
                "t.csv:2:5: `\\\"` is a quote within a field here, but ends one in line 1; double each quote",
            ),
        ] {
            let e = all(text, comma()).unwrap_err().to_string();
            assert!(e.starts_with(said), "{e}");
        }
    }

    #[test]
    fn a_backslash_before_a_quote_within_a_field_makes_it_a_part_from_there_on() {
        let (rows, _) = all("u,v\n\"a \\\"19\\\" b\",4\n\"x \\\", \\\"y\",5\n\"\\\"\",6", comma()).unwrap();
        let wanted = [["u", "v"], ["a \"19\" b", "4"], ["x \", \"y", "5"], ["\"", "6"]];
        assert_eq!(rows, wanted);
    }

    #[test]
    fn the_first_line_may_name_the_delimiter() {
        let delimiter = |line: &[u8]| excel_delimiter(line).map(|delimiter| delimiter.to_string());
        assert_eq!(delimiter(b"sep=;\r"), Some(";".into()));
        assert_eq!(delimiter(b"sep=\t"), Some("tab".into()));
        assert_eq!(delimiter(b"sep=12,3,4"), None);
    }

    #[test]
    fn places_count_lines_and_columns() {
        assert_eq!(
            [place(b""), place(b"ab"), place(b"a\n"), place(b"a\nbc\nd")],
            [(0, 1), (0, 3), (1, 1), (2, 2)]
        );
    }
}
