//! Header and first rows of a file.
use super::{
    beginning::Beginning,
    cell::Cell,
    column_names::position,
    delimiter::Delimiter,
    foreign,
    header_row::{self, Fields},
    input::Input,
    number::{is_number, parse_decimal},
    options::ReadOptions,
    records::Shape,
};
use tgnn::error::{Error, Result};

/// Maximum number of rows in a sample.
pub(super) const ROWS: usize = 100;
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
    /// Whether they are, and the user has named some of them.
    pub named: bool,
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
            named: false,
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
            named: false,
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

    /// Whether column `i` has nothing in any row.
    pub(super) fn is_blank(&self, i: usize) -> bool {
        self.whole_rows().all(|row| row.get(i).is_none_or(Vec::is_empty))
    }

    /// Whether column `i` is 0, 1, 2, .. or 1, 2, 3, ..
    pub(super) fn numbers_rows(&self, i: usize) -> bool {
        header_row::counts_rows(&self.rows[..self.whole], i)
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

/// Returns the names of columns that have one.
fn without_empty(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_row_that_the_end_of_the_head_cuts_off_is_not_whole_after_a_byte_order_mark_either() {
        let rows = (0..4).map(|i| format!("{i},{i},{i},{}\n", "x".repeat(100_000)));
        let text = "src,dst,time,note\n".to_owned() + &rows.collect::<String>();
        for mark in ["", "\u{feff}"] {
            let input = Input::of_bytes(Path::new("e.csv"), format!("{mark}{text}")).unwrap();
            let sample = Sample::read(&input, &ReadOptions::default()).unwrap();
            assert_eq!((sample.rows.len(), sample.whole), (3, 2), "{mark:?}");
        }
    }
}
