//! The first lines of a text: comments, a header, and the first rows.
use super::{
    cell::Row,
    delimiter::Delimiter,
    fields::{Writing, split},
    header_row::{self, Fields, FirstRow},
    input::Input,
    options::ReadOptions,
    records::{Records, Shape, excel_delimiter, is_empty, may_be_comment, text_of_comment},
    sample::ROWS,
};
use std::borrow::Cow;
use tgnn::error::{Error, Result};

/// Number of lines from which the delimiter is recognised.
const LINES: usize = 20;

/// The first rows of a text.
struct Taken {
    rows: Vec<Fields>,
    /// Whether `\"` is a quote in one of them.
    escapes: bool,
    /// Why the next row could not be read.
    fault: Option<Error>,
}

/// The first lines of a text, of which the shape is to be found.
pub(super) struct Beginning<'a> {
    input: &'a Input,
    options: &'a ReadOptions,
    lines: Vec<&'a [u8]>,
    /// Index of the first line that is neither blank nor like a comment.
    plain: usize,
    writing: Writing,
}

impl<'a> Beginning<'a> {
    pub(super) fn of(input: &'a Input, options: &'a ReadOptions) -> Result<Self> {
        let mut lines: Vec<&[u8]> = input.head().split(|b| *b == b'\n').collect();
        if input.is_cut() && lines.len() > 1 {
            lines.pop();
        }
        let excel = lines.first().and_then(|line| excel_delimiter(line));
        let is_plain = |(i, line): (usize, &&[u8])| {
            !(is_empty(line) || may_be_comment(line) || i == 0 && excel.is_some())
        };
        let Some(plain) = lines.iter().enumerate().position(is_plain) else {
            let what = match (lines.iter().any(|line| may_be_comment(line)), input.is_cut()) {
                (true, false) => "there are only comments: every line starts with # or %",
                (false, false) => "the file is empty",
                (true, true) => "no row is among the first 256 KiB, which are comments",
                (false, true) => "no row is among the first 256 KiB, which are blank",
            };
            return Err(Error::data(&input.path, what).remedy("write one event per line: src,dst,time"));
        };
        let rows = quoted_together(&lines[plain..]);
        let mut begin: Vec<&[u8]> =
            rows.iter().filter(|line| !may_be_comment(line)).take(LINES).map(|line| &**line).collect();
        if begin.len() < 2 {
            begin = rows.iter().take(LINES).map(|line| &**line).collect();
        }
        let delimiter = options.delimiter.or(excel).unwrap_or_else(|| Delimiter::of_lines(&begin));
        let mut beginning = Beginning { input, options, lines, plain, writing: Writing::of(delimiter) };
        beginning.writing.escapes = beginning.has_escapes();
        Ok(beginning)
    }

    /// Whether `\"` is a quote within quoted fields: something follows it, or else rows differ in width.
    fn has_escapes(&self) -> bool {
        if memchr::memmem::find(self.input.head(), b"\\\"").is_none() {
            return false;
        }
        let first = Some(self.plain as u64 + 1);
        let shape = |escapes| Shape { writing: Writing { escapes, ..self.writing }, header: (0, 0), first };
        let even = |rows: &[Fields]| rows.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let Taken { rows, escapes, .. } = self.take_rows(shape(false));
        escapes || !even(&rows) && even(&self.take_rows(shape(true)).rows)
    }

    /// Returns the first rows of a shape up to the first one that cannot be read.
    fn take_rows(&self, shape: Shape) -> Taken {
        let mut records = Records::of_bytes(&self.input.path, self.input.head(), shape);
        let (mut rows, mut fault) = (Vec::new(), None);
        while rows.len() < ROWS && fault.is_none() {
            match records.next() {
                Ok(Some(row)) => rows.push((0..row.len()).map(|i| row.field(i).to_vec()).collect()),
                Ok(None) => break,
                Err(e) => fault = Some(e),
            }
        }
        Taken { rows, escapes: records.has_escapes(), fault }
    }

    /// Returns the rows of data, and how many of them are whole.
    pub(super) fn rows(&self, shape: Shape) -> Result<(Vec<Fields>, usize)> {
        let Taken { rows, fault, .. } = self.take_rows(shape);
        if let (Some(fault), true) = (fault, rows.is_empty()) {
            return Err(fault);
        }
        let cut = self.input.is_cut() && rows.len() < ROWS;
        let whole = if cut { rows.len().saturating_sub(1).max(1).min(rows.len()) } else { rows.len() };
        Ok((rows, whole))
    }

    /// Returns the fields of a line.
    fn fields(&self, line: &[u8], delimiter: Delimiter) -> Fields {
        let mut spans = Vec::new();
        split(line, Writing { delimiter, ..self.writing }, &mut spans);
        spans.iter().map(|&(a, b)| line[a..b].to_vec()).collect()
    }

    /// Finds the header and the first row.
    pub(super) fn shape(&self, notes: &mut Vec<String>) -> Result<(Shape, Option<Vec<String>>)> {
        let begin = self.plain as u64 + 1;
        let shape = Shape { writing: self.writing, header: (0, 0), first: Some(begin) };
        let mut records = Records::of_bytes(&self.input.path, self.input.head(), shape);
        let Some(first) = records.next()? else { return Ok((shape, None)) };
        let lines = first.lines();
        let names: Fields = (0..first.len()).map(|i| first.field(i).to_vec()).collect();
        let after = self.plain + lines as usize;
        let rows = self.plain_rows(after);
        let delimiter = self.writing.delimiter;
        match header_row::recognise(&names, &rows, delimiter, self.options, notes) {
            FirstRow::Event => Ok(self.without_header(names, rows, notes)),
            is => {
                let fits = |at: usize| {
                    let fields = self.fields(&with_quoted(&self.lines[at..]).0, delimiter);
                    let width = fields.len() == names.len();
                    header_row::fits(&fields, &rows, true, delimiter) || rows.is_empty() && width
                };
                let is_row = |at: &usize| {
                    let line = self.lines[*at];
                    !is_empty(line) && (!may_be_comment(line) || fits(*at))
                };
                let first = (after..self.lines.len()).find(is_row).unwrap_or(self.lines.len()) as u64 + 1;
                let names = (is == FirstRow::Names).then(|| texts(&names));
                Ok((Shape { header: (begin, lines), first: Some(first), ..shape }, names))
            }
        }
    }

    /// Returns the first rows from a line on that are not like comments.
    fn plain_rows(&self, from: usize) -> Vec<Fields> {
        let shape = Shape { first: Some(from as u64 + 1), ..Shape::of(self.writing.delimiter) };
        let Taken { mut rows, .. } = self.take_rows(Shape { writing: self.writing, ..shape });
        rows.retain(|row| !row.first().is_some_and(|field| may_be_comment(field)));
        rows
    }

    /// Returns the shape of a text whose first plain line is the row `first`: a line before it may be a row
    /// that only looks like a comment, or a comment that is a header.
    fn without_header(
        &self,
        first: Fields,
        mut rows: Vec<Fields>,
        notes: &mut Vec<String>,
    ) -> (Shape, Option<Vec<String>>) {
        let (delimiter, width) = (self.writing.delimiter, first.len());
        rows.insert(0, first);
        let mut shape = Shape { writing: self.writing, header: (0, 0), first: Some(self.plain as u64 + 1) };
        let comments = || (0..self.plain).filter(|&i| may_be_comment(self.lines[i]));
        let fields = |at: usize| self.fields(&with_quoted(&self.lines[at..]).0, delimiter);
        let is_row = |at: &usize| header_row::fits(&fields(*at), &rows, false, delimiter);
        if let Some(row) = comments().find(is_row) {
            shape.first = Some(row as u64 + 1);
            return (shape, None);
        }
        // The last comment that names the columns, of which others may follow.
        let fields_of = |at: usize| {
            let text = text_of_comment(self.lines[at]);
            [delimiter, Delimiter::of_lines(&[text])].map(|d| self.fields(text, d))
        };
        let named = |at: usize| {
            let names = fields_of(at).into_iter().find_map(|fields| header_row::of_comment(fields, width));
            Some((at as u64 + 1, names?))
        };
        if let Some((line, names)) = comments().rev().find_map(named) {
            shape.header = (line, 1);
            return (shape, Some(texts(&names)));
        }
        let names_some = |at: &usize| fields_of(*at).iter().any(header_row::names_roles);
        if let Some(at) = comments().rev().find(names_some) {
            notes.push(format!("line {}, a comment, is no header: the rows have {width} columns", at + 1));
        }
        (shape, None)
    }
}

/// Returns the first lines that are not blank, each with the lines that its quotes reach to.
fn quoted_together<'a>(lines: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    let (mut rows, mut at) = (Vec::new(), 0);
    while at < lines.len() && rows.len() < 2 * LINES {
        let (row, n) = with_quoted(&lines[at..]);
        rows.extend(Some(row).filter(|row| !is_empty(row)));
        at += n;
    }
    rows
}

/// Returns the first of some lines with those that its quotes reach to, and their number.
fn with_quoted<'a>(lines: &[&'a [u8]]) -> (Cow<'a, [u8]>, usize) {
    let is_open = |line: &[u8]| line.iter().filter(|b| **b == b'"').count() % 2 == 1;
    let rest = lines.iter().skip(1).take(ROWS);
    match rest.enumerate().find(|(_, line)| is_open(line)).filter(|_| is_open(lines[0])) {
        Some((more, _)) => (Cow::Owned(lines[..more + 2].join(&b'\n')), more + 2),
        None => (Cow::Borrowed(lines[0]), 1),
    }
}

/// Returns fields as text.
fn texts(fields: &Fields) -> Vec<String> {
    fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect()
}
