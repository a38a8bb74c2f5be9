//! Apache Parquet: a table with typed columns, as written by pandas, Polars, Spark and DuckDB.
//!
//! Columns are found by the same names as in a text table, or counted from 1 with `--columns`. Times are
//! integers or floats in seconds, dates, or timestamps of any unit. Features are all further columns of
//! floats or of lists of numbers, and further columns of numbers with the name of a feature; all lists of a
//! column must have the same length. Needs the cargo feature `parquet`.
use super::{
    columns::{Role, from_header, role},
    number::{Clock, Decimal, Fault},
    options::{Format, ReadOptions},
};
use crate::{
    data::{Features, raw::Raw, scalar::Scalar},
    error::{Error, Result},
};
use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    schema::types::ColumnDescriptor,
};
use std::{
    cell::Cell,
    fs::File,
    io::Read,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

/// First bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Maximum number of rows read at a time.
const ROWS: usize = 1 << 16;
/// Remedy for columns that are not found or have the wrong type.
const COLUMNS: &str = "name the columns with --columns src=1,dst=2,time=3";

/// Whether a file starts like a Parquet file.
pub(super) fn recognises(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *MAGIC
}

/// Reads all rows. Stops at the first fault and reports its column and row.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Raw> {
    if let Some(format) = options.format.filter(|f| *f != Format::Table) {
        return Err(Error::usage(format!("{} is a Parquet file, not {format}", path.display()))
            .remedy("leave out --format"));
    }
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    let table = Table { path, reader: library(path, || SerializedFileReader::new(file))? };
    let columns = table.columns();
    let chosen = Chosen::of(path, &columns, options)?;
    let mut raw = Raw::new(path);
    for (ids, column) in [(&mut raw.src, chosen.src), (&mut raw.dst, chosen.dst)] {
        table.single(column, |row, value| {
            ids.push(value.whole().and_then(|v| u64::try_from(v).ok()).ok_or_else(|| {
                table
                    .error(column, row, &format!("{} is not a node id", value.text()))
                    .remedy("ids are integers from 0; number the nodes")
            })?);
            Ok(())
        })?;
    }
    let mut clock = Clock::default();
    table.single(chosen.time, |row, value| {
        let bad = |fault: Fault| {
            let what = fault.describe(value.text().as_bytes(), "a time");
            table.error(chosen.time, row, &what).remedy("write seconds or timestamps")
        };
        let late = chosen.time.decimal(value).and_then(|t| clock.push(t)).map_err(bad)?;
        if late && options.strict {
            let e = table.error(chosen.time, row, "this event is earlier than one before it");
            return Err(e.remedy("sort the table by time, or leave out --strict"));
        }
        Ok(())
    })?;
    raw.ticks_per_second = clock.ticks_per_second();
    raw.time = clock.ticks;
    if let Some(column) = chosen.label {
        let mut labels = Vec::new();
        table.single(column, |row, value| {
            labels.push(table.finite(column, row, value)?);
            Ok(())
        })?;
        raw.label = Some(labels);
    }
    raw.edge_features = table.features(&chosen.features, raw.src.len())?;
    raw.numbered = chosen.numbered;
    raw.notes = chosen.notes;
    let lengths = [raw.dst.len(), raw.time.len(), raw.label.as_ref().map_or(raw.src.len(), Vec::len)];
    if lengths.iter().any(|n| *n != raw.src.len()) {
        return Err(damaged(path, "its columns have different lengths"));
    }
    Ok(raw)
}

// Set while this thread is inside the Parquet library.
thread_local!(static IN_LIBRARY: Cell<bool> = const { Cell::new(false) });

/// Whether this thread is inside the Parquet library. The library panics on unexpected damage, and
/// [`library`] turns the panic into an error, so a panic hook need not print it.
pub(crate) fn in_library() -> bool {
    IN_LIBRARY.get()
}

/// Calls the Parquet library and reports its errors and panics as a damaged file.
fn library<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T> {
    IN_LIBRARY.set(true);
    // AssertUnwindSafe: a reader that panicked is not used again.
    let outcome = panic::catch_unwind(AssertUnwindSafe(read));
    IN_LIBRARY.set(false);
    match outcome {
        Ok(result) => result.map_err(|e| damaged(path, e)),
        Err(_) => Err(damaged(path, "its contents contradict each other")),
    }
}

/// Returns the error for a file that the library cannot read.
#[cold]
fn damaged(path: &Path, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::data(path, "the Parquet file is damaged, or uses an encoding that is not supported")
        .caused_by(cause)
        .remedy("write it again, uncompressed or compressed by snappy, gzip or zstd")
}

/// Column of the table.
struct Column {
    name: String,
    /// Index of the leaf column in the file; `None` if the column does not contain numbers or lists of
    /// numbers.
    leaf: Option<usize>,
    /// Definition level at which a value is present.
    present: i16,
    /// Maximum repetition level: 0 for plain values, 1 for lists.
    repeated: i16,
    floats: bool,
    unsigned: bool,
    /// Whether a time counts days, not seconds.
    days: bool,
    /// Digits after the decimal point of a second in the unit of a timestamp: 3 for milliseconds, and so on.
    digits: u32,
}

impl Column {
    /// Describes the column `name` with the leaf columns `leaves` (index and description).
    fn new(name: &str, leaves: &[(usize, &ColumnDescriptor)]) -> Self {
        let mut column = Column {
            name: name.to_owned(),
            leaf: None,
            present: 0,
            repeated: 0,
            floats: false,
            unsigned: false,
            days: false,
            digits: 0,
        };
        let &[(leaf, descriptor)] = leaves else { return column };
        let (physical, converted) = (descriptor.physical_type(), descriptor.converted_type());
        column.present = descriptor.max_def_level();
        column.repeated = descriptor.max_rep_level();
        column.floats = matches!(physical, Type::FLOAT | Type::DOUBLE);
        column.unsigned = match descriptor.logical_type_ref() {
            Some(LogicalType::Integer(kind)) => !kind.is_signed,
            _ => matches!(converted, ConvertedType::UINT_32 | ConvertedType::UINT_64),
        };
        column.days = converted == ConvertedType::DATE;
        column.digits = match (descriptor.logical_type_ref(), converted, physical) {
            (Some(LogicalType::Timestamp(stamp)), ..) => match stamp.unit {
                TimeUnit::MILLIS => 3,
                TimeUnit::MICROS => 6,
                TimeUnit::NANOS => 9,
            },
            (_, ConvertedType::TIMESTAMP_MILLIS, _) => 3,
            (_, ConvertedType::TIMESTAMP_MICROS, _) => 6,
            (_, _, Type::INT96) => 9,
            _ => 0,
        };
        let number = !matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY)
            && converted != ConvertedType::DECIMAL;
        column.leaf = (number && column.repeated <= 1).then_some(leaf);
        column
    }

    /// Converts a value of this column to a time in seconds.
    fn decimal(&self, value: Scalar) -> Result<Decimal, Fault> {
        match value {
            Scalar::Int(v) if self.days => {
                v.checked_mul(86_400).map(|v| Decimal::new(v, 0)).ok_or(Fault::TooLarge)
            }
            Scalar::Int(v) => Ok(Decimal::new(v, self.digits)),
            other => Decimal::of(other),
        }
    }
}

/// Columns of the table by role.
struct Chosen<'a> {
    src: &'a Column,
    dst: &'a Column,
    time: &'a Column,
    label: Option<&'a Column>,
    features: Vec<&'a Column>,
    /// Whether rows of separate feature files can be joined by position.
    numbered: bool,
    notes: Vec<String>,
}

impl<'a> Chosen<'a> {
    /// Chooses columns by the options, or else by their names.
    fn of(path: &Path, columns: &'a [Column], options: &ReadOptions) -> Result<Self> {
        let bad = |what: String| Error::data(path, what).remedy(COLUMNS);
        let names: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
        let (places, index) = match options.columns {
            Some(places) => (places, None),
            None => from_header(&names).map(|header| (header.columns, header.index)).map_err(bad)?,
        };
        let column = |i: usize| {
            let missing =
                || bad(format!("the table has {} columns, so there is no column {i}", columns.len()));
            columns.get(i - 1).ok_or_else(missing)
        };
        let label = places.label.map(column).transpose()?;
        let (src, dst, time) = (column(places.src)?, column(places.dst)?, column(places.time)?);
        let mut features = Vec::new();
        let mut notes = Vec::new();
        if let Some((first, last)) = options.columns.and_then(|c| c.features) {
            for i in first..=last.unwrap_or(columns.len()) {
                features.push(column(i)?);
            }
        } else if options.columns.is_none() {
            let taken = [Some(places.src), Some(places.dst), Some(places.time), places.label, index];
            let rest = columns.iter().enumerate().filter(|(i, _)| !taken.contains(&Some(i + 1)));
            let is_feature = |c: &Column| {
                let named = matches!(role(&c.name), Role::Feature | Role::Features);
                c.leaf.is_some() && (named || c.floats || c.repeated > 0)
            };
            let (read, ignored): (Vec<_>, Vec<_>) = rest.map(|(_, c)| c).partition(|c| is_feature(c));
            features = read;
            if !ignored.is_empty() {
                let names: Vec<&str> = ignored.iter().map(|c| c.name.as_str()).collect();
                notes.push(format!("columns not read: {}", names.join(", ")));
            }
        }
        // Rows of separate feature files are joined by position. Event numbers are not checked for gaps, so a
        // table with event numbers is never joined.
        let numbered = index.is_none();
        Ok(Chosen { src, dst, time, label, features, numbered, notes })
    }
}

/// Open Parquet file.
struct Table<'a> {
    path: &'a Path,
    reader: SerializedFileReader<File>,
}

impl Table<'_> {
    /// Returns the top-level columns, in order.
    fn columns(&self) -> Vec<Column> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let leaves: Vec<_> = schema.columns().iter().map(|c| &**c).enumerate().collect();
        let fields = schema.root_schema().get_fields().iter().enumerate();
        let leaves_of = |field: usize| {
            leaves.iter().copied().filter(move |(i, _)| schema.get_column_root_idx(*i) == field)
        };
        fields.map(|(i, field)| Column::new(field.name(), &leaves_of(i).collect::<Vec<_>>())).collect()
    }

    /// Returns a data error at a column and a row, given from 0.
    #[cold]
    fn error(&self, column: &Column, row: usize, what: &str) -> Error {
        Error::data(self.path, format!("column `{}`, row {}: {what}", column.name, row + 1))
    }

    /// Converts a value to `f32`, which must be finite.
    fn finite(&self, column: &Column, row: usize, value: Scalar) -> Result<f32> {
        let number = value.to_f32();
        if number.is_finite() {
            return Ok(number);
        }
        let what = format!("{} is not a finite number", value.text());
        Err(self.error(column, row, &what).remedy("write a finite number"))
    }

    /// Calls `take` for every value, as [`each`](Self::each) does; fails if the column contains lists.
    fn single(&self, column: &Column, take: impl FnMut(usize, Scalar) -> Result<()>) -> Result<()> {
        if column.repeated > 0 {
            let what = format!("column `{}` contains lists, but one number per row is required", column.name);
            return Err(Error::data(self.path, what).remedy(COLUMNS));
        }
        self.each(column, take)
    }

    /// Returns one row of features per event, the values of `columns` side by side, with lists expanded.
    /// `None` if there are no features.
    fn features(&self, columns: &[&Column], events: usize) -> Result<Option<Features>> {
        let mut parts = Vec::new();
        for column in columns {
            // `last` is the row of the latest value, and the number of values in it so far.
            let (mut values, mut width, mut last) = (Vec::new(), 0, (0, 0));
            self.each(column, |row, value| {
                last = if row == last.0 { (row, last.1 + 1) } else { (row, 1) };
                width = if row == 0 { last.1 } else { width };
                // A list that is too short is detected when the next one begins, or after the last row.
                if last.1 > width || values.len() != row * width + last.1 - 1 {
                    let what = "this list has another length than those before it";
                    return Err(self.error(column, row, what).remedy("write lists of one length"));
                }
                values.push(self.finite(column, row, value)?);
                Ok(())
            })?;
            if values.len() != events * width {
                let what = "the last list is shorter than those before it";
                return Err(self.error(column, last.0, what).remedy("write lists of one length"));
            }
            parts.push((width, values));
        }
        let width: usize = parts.iter().map(|(width, _)| width).sum();
        if width == 0 || events == 0 {
            return Ok(None);
        }
        let mut rows = Vec::with_capacity(events * width);
        for row in 0..events {
            for (width, values) in &parts {
                rows.extend_from_slice(&values[row * width..][..*width]);
            }
        }
        Features::from_vec(events, width, rows).map(Some)
    }

    /// Calls `take` with the row (from 0) and the value, for every value of `column` in order.
    fn each(&self, column: &Column, mut take: impl FnMut(usize, Scalar) -> Result<()>) -> Result<()> {
        let Some(leaf) = column.leaf else {
            let what = format!("column `{}` does not contain numbers", column.name);
            return Err(Error::data(self.path, what).remedy(COLUMNS));
        };
        let mut rows = Rows { table: self, column, next: 0 };
        let unsigned = column.unsigned;
        for group in 0..self.reader.num_row_groups() {
            let column = || self.reader.get_row_group(group)?.get_column_reader(leaf);
            match library(self.path, column)? {
                ColumnReader::BoolColumnReader(r) => rows.read(r, |&v| Scalar::Uint(v.into()), &mut take)?,
                ColumnReader::Int32ColumnReader(r) if unsigned => {
                    rows.read(r, |&v| Scalar::Uint((v as u32).into()), &mut take)?;
                }
                ColumnReader::Int64ColumnReader(r) if unsigned => {
                    rows.read(r, |&v| Scalar::Uint(v as u64), &mut take)?;
                }
                ColumnReader::Int32ColumnReader(r) => rows.read(r, |&v| Scalar::Int(v.into()), &mut take)?,
                ColumnReader::Int64ColumnReader(r) => rows.read(r, |&v| Scalar::Int(v), &mut take)?,
                ColumnReader::Int96ColumnReader(r) => {
                    rows.read(r, |v| Scalar::Int(v.to_nanos()), &mut take)?
                }
                ColumnReader::FloatColumnReader(r) => rows.read(r, |&v| from_f32(v), &mut take)?,
                ColumnReader::DoubleColumnReader(r) => rows.read(r, |&v| Scalar::Float(v), &mut take)?,
                _ => return Err(damaged(self.path, "a column has another type than the schema says")),
            }
        }
        Ok(())
    }
}

/// Converts an `f32` to the `f64` nearest to its shortest decimal, so that a time of 0.1f32 is 0.1.
fn from_f32(value: f32) -> Scalar {
    Scalar::Float(value.to_string().parse().unwrap_or(f64::from(value)))
}

/// Reader of the rows of a column, one row group after another.
struct Rows<'a> {
    table: &'a Table<'a>,
    column: &'a Column,
    /// Number of rows begun so far.
    next: usize,
}

impl Rows<'_> {
    /// Reads one row group and passes its values to `take`, converted by `scalar`.
    fn read<T: DataType>(
        &mut self,
        mut reader: ColumnReaderImpl<T>,
        scalar: impl Fn(&T::T) -> Scalar,
        take: &mut impl FnMut(usize, Scalar) -> Result<()>,
    ) -> Result<()> {
        let (present, repeated) = (self.column.present, self.column.repeated);
        let (mut defined, mut repeats, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            defined.clear();
            repeats.clear();
            values.clear();
            let levels = (present > 0).then_some(&mut defined);
            let lists = (repeated > 0).then_some(&mut repeats);
            let read = || reader.read_records(ROWS, levels, lists, &mut values);
            let (rows, ..) = library(self.table.path, read)?;
            if rows == 0 {
                return Ok(());
            }
            let mut found = values.iter();
            for i in 0..if present > 0 { defined.len() } else { values.len() } {
                self.next += usize::from(repeats.get(i).is_none_or(|&level| level == 0));
                let row = self.next.saturating_sub(1);
                if defined.get(i).is_some_and(|&level| level < present) {
                    return Err(self.table.error(self.column, row, "there is no value").remedy("write one"));
                }
                let missing = || damaged(self.table.path, "a value is missing");
                take(row, scalar(found.next().ok_or_else(missing)?))?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
