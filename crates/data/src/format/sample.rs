//! Header and first rows of a file.
use super::{
    cell::Cell,
    column_names::position,
    delimiter::Delimiter,
    fields::{Writing, split},
    foreign,
    header_row::{self, Fields, FirstRow},
    input::{HEAD, Input},
    number::{is_number, parse_decimal},
    options::ReadOptions,
    records::{Records, Shape, excel_delimiter, is_empty, may_be_comment},
};
use tgnn::error::{Error, Result};

/// Maximum number of rows in a sample.
pub(super) const ROWS: usize = 100;
/// Number of lines from which the delimiter is recognised.
const LINES: usize = 20;
/// Number of rows of a further file that a sample takes.
const FEW: usize = 10;

/// Header and first rows of a file.
pub(super) struct Sample {
    /// How a text is divided into lines and fields.
    pub shape: Shape,
    /// Column names if there is a header; an unnamed column has an empty name.
    pub header: Option<Vec<String>>,
    /// Fields of the first rows of data, at most 100 rows; empty if the file has only a header.
    pub rows: Vec<Fields>,
    /// Number of the rows that are whole: the end of the sample may cut off the last one.
    pub whole: usize,
    /// In a table with types, the columns of measurements: floats, and lists of numbers.
    pub measured: Vec<usize>,
    /// Number of the last columns that are not in the files of a set: the set adds them to the rows.
    pub added: usize,
    /// How the files of a set are divided, if they are text.
    pub shapes: Vec<Shape>,
    /// Whether the columns are keys of objects, which may lack some.
    pub keyed: bool,
    /// What the user should know about the file.
    pub notes: Vec<String>,
}

impl Sample {
    /// Reads the first lines of `input`.
    pub(super) fn read(input: &Input, options: &ReadOptions) -> Result<Self> {
        if let Some((what, remedy)) = foreign::unreadable(input.head()) {
            return Err(Error::data(&input.path, what).remedy(remedy));
        }
        let beginning = Beginning::of(input, options)?;
        let mut notes = Vec::new();
        let (shape, names) = beginning.shape(&mut notes)?;
        let (rows, whole) = beginning.rows(shape)?;
        let line = (&*input.path, shape.header.0);
        let header = match names {
            Some(names) => header_row::aligned(names, &rows[..whole], line, options, &mut notes)?,
            None => None,
        };
        Ok(Sample {
            shape,
            header,
            rows,
            whole,
            measured: Vec::new(),
            added: 0,
            shapes: Vec::new(),
            keyed: false,
            notes,
        })
    }

    /// Returns a sample of a table that is no text.
    pub(super) fn of_table(names: Vec<String>, rows: Vec<Fields>, measured: Vec<usize>) -> Self {
        let (shape, whole) = (Shape::of(Delimiter::Byte(b',')), rows.len());
        Sample {
            shape,
            header: Some(names),
            rows,
            whole,
            measured,
            added: 0,
            shapes: Vec::new(),
            keyed: false,
            notes: Vec::new(),
        }
    }

    /// Whether another file of a set may have this sample: the columns are the same, or are keys of objects.
    pub(super) fn is_like(&self, other: &Sample) -> bool {
        let named = |sample: &Sample| sample.header.clone().map(without_empty);
        self.keyed || self.header == other.header || self.rows.is_empty() && named(self) == named(other)
    }

    /// Adds what the sample of another file of a set tells: keys, types, and values of columns that have none
    /// so far.
    pub(super) fn merge(&mut self, other: &Sample) {
        let new: Vec<&String> = match (&self.header, &other.header) {
            (Some(own), Some(names)) if self.keyed => {
                names.iter().filter(|name| !own.contains(name)).collect()
            }
            _ => Vec::new(),
        };
        for name in new {
            self.add_key(name.clone());
        }
        let place = |sample: &Sample, i: usize| match (&self.header, &sample.header) {
            (Some(own), Some(names)) => names.iter().position(|name| own.get(i) == Some(name)),
            _ => Some(i),
        };
        let width = self.header.as_ref().map_or(self.width(), Vec::len);
        let lacks = (0..width).any(|i| self.present(i).next().is_none());
        let measured: Vec<usize> = (0..width)
            .filter(|&i| place(other, i).is_some_and(|at| other.measured.contains(&at)))
            .filter(|i| !self.measured.contains(i))
            .collect();
        if lacks && self.whole == self.rows.len() {
            let cell =
                |row: &Fields, i| place(other, i).and_then(|at| row.get(at).cloned()).unwrap_or_default();
            let rows = other.rows.iter().take(other.whole.min(FEW));
            let rows: Vec<Fields> = rows.map(|row| (0..width).map(|i| cell(row, i)).collect()).collect();
            self.whole += rows.len();
            self.rows.extend(rows);
        }
        self.measured.extend(measured);
        let new = other.notes.iter().filter(|note| !self.notes.contains(note)).take(1).cloned();
        self.notes.extend(new.collect::<Vec<_>>());
    }

    /// Appends a column that is not in the files of a set; all its cells are `value`.
    pub(super) fn add_column(&mut self, name: String, value: String) {
        let width = self.width();
        let names = self.header.get_or_insert_with(|| {
            ["src", "dst", "weight"].into_iter().map(str::to_owned).take(width).collect()
        });
        names.push(name);
        self.rows.iter_mut().for_each(|row| row.push(value.clone().into_bytes()));
        self.added += 1;
    }

    /// Appends a key of objects, before the columns that a set adds.
    pub(super) fn add_key(&mut self, name: String) {
        let Some(names) = &mut self.header else { return };
        let at = names.len() - self.added;
        names.insert(at, name);
        self.rows.iter_mut().for_each(|row| row.insert(at, Vec::new()));
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

/// The first rows of a text.
struct Taken {
    rows: Vec<Fields>,
    /// Whether `\"` is a quote in one of them.
    escapes: bool,
    /// Why the next row could not be read.
    fault: Option<Error>,
}

/// The first lines of a text, of which the shape is to be found.
struct Beginning<'a> {
    input: &'a Input,
    options: &'a ReadOptions,
    lines: Vec<&'a [u8]>,
    /// Index of the first line that is neither blank nor like a comment.
    plain: usize,
    writing: Writing,
}

impl<'a> Beginning<'a> {
    fn of(input: &'a Input, options: &'a ReadOptions) -> Result<Self> {
        let mut lines: Vec<&[u8]> = input.head().split(|b| *b == b'\n').collect();
        // The end of the sample may cut off the last line.
        if input.head().len() >= HEAD && lines.len() > 1 {
            lines.pop();
        }
        let excel = lines.first().and_then(|line| excel_delimiter(line));
        let is_plain = |(i, line): (usize, &&[u8])| {
            !is_empty(line) && !may_be_comment(line) && !(i == 0 && excel.is_some())
        };
        let Some(plain) = lines.iter().enumerate().position(is_plain) else {
            let what = match lines.iter().any(|line| may_be_comment(line)) {
                true => "every line starts with # or %, like a comment",
                false => "the file is empty",
            };
            return Err(Error::data(&input.path, what).remedy("write one event per line: src,dst,time"));
        };
        let rows = || lines[plain..].iter().filter(|line| !is_empty(line));
        let mut begin: Vec<&[u8]> =
            rows().filter(|line| !may_be_comment(line)).take(LINES).copied().collect();
        if begin.len() < 2 {
            begin = rows().take(LINES).copied().collect();
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
    fn rows(&self, shape: Shape) -> Result<(Vec<Fields>, usize)> {
        let Taken { rows, fault, .. } = self.take_rows(shape);
        if let (Some(fault), true) = (fault, rows.is_empty()) {
            return Err(fault);
        }
        let cut = self.input.head().len() >= HEAD && rows.len() < ROWS;
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
    fn shape(&self, notes: &mut Vec<String>) -> Result<(Shape, Option<Vec<String>>)> {
        let begin = self.plain as u64 + 1;
        let shape = Shape { writing: self.writing, header: (0, 0), first: Some(begin) };
        let mut records = Records::of_bytes(&self.input.path, self.input.head(), shape);
        let Some(first) = records.next()? else { return Ok((shape, None)) };
        let lines = super::cell::Row::lines(&first);
        let names: Fields = (0..first.len()).map(|i| first.field(i).to_vec()).collect();
        let after = self.plain + lines as usize;
        let rows = self.plain_rows(after);
        let delimiter = self.writing.delimiter;
        match header_row::recognise(&names, &rows, delimiter, self.options, notes) {
            FirstRow::Event => Ok(self.without_header(names, rows, notes)),
            is => {
                let fits = |line: &&[u8]| {
                    let fields = self.fields(line, delimiter);
                    let width = fields.len() == names.len();
                    header_row::fits(&fields, &rows, true) || rows.is_empty() && width
                };
                let is_row = |line: &&[u8]| !is_empty(line) && (!may_be_comment(line) || fits(line));
                let rest = self.lines.get(after..).unwrap_or_default();
                let found = rest.iter().position(|line| is_row(&line)).unwrap_or(rest.len());
                let first = (after + found) as u64 + 1;
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
        let is_row = |i: &usize| header_row::fits(&self.fields(self.lines[*i], delimiter), &rows, false);
        if let Some(row) = comments().find(is_row) {
            shape.first = Some(row as u64 + 1);
            return (shape, None);
        }
        let Some(last) = comments().last() else { return (shape, None) };
        let line = self.lines[last];
        let mark = line.iter().position(|b| !matches!(b, b'#' | b'%' | b' ' | b'\t')).unwrap_or(line.len());
        let text = &line[mark..];
        let own = [delimiter, Delimiter::of_lines(&[text])];
        let names = own.iter().find_map(|d| header_row::of_comment(self.fields(text, *d), width));
        if names.is_some() {
            shape.header = (last as u64 + 1, 1);
        } else if own.iter().any(|d| header_row::names_roles(&self.fields(text, *d))) {
            notes.push(format!("line {}, a comment, is no header: the rows have {width} columns", last + 1));
        }
        (shape, names.map(|names| texts(&names)))
    }
}

/// Returns the names of columns that have one.
fn without_empty(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.is_empty());
    names
}

/// Returns fields as text.
fn texts(fields: &Fields) -> Vec<String> {
    fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect()
}
