//! Tables with typed columns: Apache Parquet, and Arrow as a file (Feather) or a stream, as pandas, Polars,
//! Spark and DuckDB write them.
//!
//! Columns are found by the same names as in a text table. Times are timestamps of any unit, dates, or
//! numbers and text as in a text table. Where the names tell no features, all further columns of floats or of
//! lists of numbers are features. Bytes are hexadecimal text.
mod arrow;
mod embeddings;
mod parquet_file;
mod parquet_pages;

pub use embeddings::write_parquet;

use super::{
    cell::{Cell, Row},
    column_names::listed,
    input::is_stream,
    number::{Decimal, Fault},
    sample::{ROWS, Sample},
};
use crate::scalar::Scalar;
use arrow::{FileBatches, Stream, check_rows};
use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{
        Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
        DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef, TimeUnit};
use parquet_file::ParquetFile;
use std::{
    borrow::Cow,
    cell::Cell as Flag,
    fs::File,
    io::{Read, Seek},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// First bytes of a Parquet file, of an Arrow file and of an Arrow stream.
const PARQUET: &[u8] = b"PAR1";
const ARROW: &[u8] = b"ARROW1";
const STREAM: &[u8] = b"\xff\xff\xff\xff";
/// Arrow's name of the type of UUIDs.
const UUID: &str = "arrow.uuid";
/// Maximum number of rows read at a time.
const BATCH: usize = 1 << 14;

/// Returns the first bytes of a file; none of a pipe, which cannot be read twice.
fn head(path: &Path) -> [u8; 6] {
    let mut head = [0; 6];
    if !is_stream(path)
        && let Ok(mut file) = File::open(path)
    {
        let _ = file.read(&mut head);
    }
    head
}

/// Whether a file starts like a Parquet or Arrow file.
pub(super) fn recognises(path: &Path) -> bool {
    is_typed(&head(path))
}

/// Whether these are the first bytes of a Parquet or Arrow file.
pub(super) fn is_typed(first: &[u8]) -> bool {
    [PARQUET, ARROW, STREAM].iter().any(|mark| first.starts_with(mark))
}

// Set while this thread is inside a library for typed tables.
thread_local!(static IN_LIBRARY: Flag<bool> = const { Flag::new(false) });

/// Whether this thread is inside a library for typed tables. The libraries panic on unexpected damage, and
/// [`library`] turns the panic into an error, so a panic hook need not print it.
#[doc(hidden)]
pub fn in_library() -> bool {
    IN_LIBRARY.get()
}

/// Calls a library and reports its errors and panics as a damaged file.
fn library<T, E>(path: &Path, read: impl FnOnce() -> Result<T, E>) -> Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    IN_LIBRARY.set(true);
    // AssertUnwindSafe: a reader that panicked is not used again.
    let outcome = panic::catch_unwind(AssertUnwindSafe(read));
    IN_LIBRARY.set(false);
    match outcome {
        Ok(result) => result.map_err(|e| damaged(path, e)),
        Err(_) => Err(damaged(path, "its contents contradict each other")),
    }
}

/// Returns the error for a file that a library cannot read.
#[cold]
fn damaged(path: &Path, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let kind = if head(path).starts_with(PARQUET) { "Parquet" } else { "Arrow" };
    Error::data(path, format!("the {kind} file is damaged, or uses an encoding that is not supported"))
        .caused_by(cause)
        .remedy("write it again, uncompressed or compressed by snappy, gzip, lz4 or zstd")
}

/// Open table, read batch by batch.
pub(super) struct Columnar {
    path: PathBuf,
    schema: SchemaRef,
    /// Number of rows, if the file tells it at its beginning or end.
    pub rows: Option<u64>,
    first: Option<RecordBatch>,
    rest: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>,
}

impl Columnar {
    /// Opens a file that is [recognised](recognises) and reads its first rows.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Self::of_file(path, File::open(path).map_err(|e| Error::io(path, "cannot open", e))?)
    }

    /// Reads the first rows of an open file, of which errors name `path`.
    pub(super) fn of_file(path: &Path, mut file: File) -> Result<Self> {
        let mut head = [0; 6];
        let first = file.read_exact(&mut head).and_then(|()| file.rewind());
        first.map_err(|e| Error::io(path, "cannot read", e))?;
        let mut rows = None;
        let (schema, mut rest): (SchemaRef, Box<dyn Iterator<Item = _>>) = if head.starts_with(PARQUET) {
            let opened = library(path, || parquet_pages::read(ParquetFile::new(file)?, BATCH))?;
            rows = opened.rows;
            (opened.schema, Box::new(opened.reader))
        } else if head.starts_with(ARROW) {
            let (schema, batches) = library(path, || FileBatches::open(file))?;
            (schema, Box::new(batches.map(|batch| batch.and_then(check_rows))))
        } else {
            let reader = library(path, || Stream::open(file))?;
            (reader.schema(), Box::new(reader.map(|batch| batch.and_then(check_rows))))
        };
        let first = library(path, || rest.next().transpose())?;
        Ok(Columnar { path: path.to_owned(), schema, rows, first, rest })
    }

    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }

    /// Returns the names of the columns, and the first rows as text.
    pub(super) fn sample(&self) -> Result<Sample> {
        let names = self.names();
        let mut rows = Vec::new();
        if let Some(batch) = &self.first {
            let columns = library(&self.path, || Ok::<_, ArrowError>(Columns::new(batch, &self.schema)))?;
            let text = |row: usize, i: usize| {
                columns.cell(i, row).text().unwrap_or_default().into_owned().into_bytes()
            };
            let sampled = 0..batch.num_rows().min(ROWS);
            rows = sampled.map(|row| (0..names.len()).map(|i| text(row, i)).collect()).collect();
        }
        let field = |i: &usize| self.schema.field(*i);
        let measured = (0..names.len()).filter(|i| is_measured(field(i).data_type())).collect();
        let is_hexadecimal = |i: &usize| is_bytes(field(i).data_type()) && !is_uuid(field(i));
        let bytes: Vec<String> = (0..names.len()).filter(is_hexadecimal).map(|i| names[i].clone()).collect();
        let mut sample = Sample::of_table(names, rows, measured);
        if !bytes.is_empty() {
            sample
                .notes
                .push(format!("bytes are read as hexadecimal text, such as `0x0aff`: {}", listed(&bytes)));
        }
        Ok(sample)
    }

    /// Calls `take` for every row.
    pub(super) fn for_each(mut self, take: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()> {
        let names = self.names();
        let (mut first, mut next, schema) = (0, self.first.take(), self.schema.clone());
        while let Some(batch) = next {
            let columns = library(&self.path, || Ok::<_, ArrowError>(Columns::new(&batch, &schema)))?;
            for row in 0..batch.num_rows() {
                take(&TypedRow { path: &self.path, names: &names, columns: &columns, row, first })?;
            }
            first += batch.num_rows();
            let rest = &mut self.rest;
            next = library(&self.path, || rest.next().transpose())?;
        }
        Ok(())
    }
}

/// Whether a column of this type holds measurements: floats, or lists of numbers.
fn is_measured(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_numeric()
        }
        kind => kind.is_floating(),
    }
}

/// Whether the bytes of a column are UUIDs.
fn is_uuid(field: &Field) -> bool {
    field.extension_type_name() == Some(UUID)
}

/// Whether a column of this type holds bytes.
fn is_bytes(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_bytes(values),
        kind => kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_)),
    }
}

/// Row of a batch.
struct TypedRow<'a> {
    path: &'a Path,
    names: &'a [String],
    columns: &'a Columns,
    /// Row in the batch.
    row: usize,
    /// Number of rows before the batch.
    first: usize,
}

impl Row for TypedRow<'_> {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        self.columns.cell(i, self.row)
    }

    fn floats(&self, at: &[usize], to: &mut Vec<f32>) -> bool {
        let before = to.len();
        for &i in at {
            let (None, Values::Single(values)) = &self.columns.0[i] else {
                to.truncate(before);
                return false;
            };
            to.push(values[self.row]);
        }
        true
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        let row = self.first + self.row + 1;
        let what = match i.and_then(|i| self.names.get(i)) {
            Some(name) => format!("column `{name}`, row {row}: {what}"),
            None => format!("row {row}: {what}"),
        };
        Error::data(self.path, what)
    }
}

/// Columns of a batch, in the types of cells, and which of their values are missing.
struct Columns(Vec<(Option<NullBuffer>, Values)>);

/// Values of a column.
enum Values {
    Int(Vec<i64>),
    Uint(Vec<u64>),
    Float(Vec<f64>),
    Single(ScalarBuffer<f32>),
    Bool(Vec<bool>),
    /// Points in time: ticks of `10^-digits` seconds, times a factor.
    Time(Vec<i64>, u32, i64),
    /// Times of day, or spans of time: ticks of `10^-digits` seconds.
    Clock(Vec<i64>, u32),
    /// All text, and the end of each value.
    Text(Vec<u8>, Vec<usize>),
    /// Numbers of all lists, and the end of each list.
    Lists(Vec<f32>, Vec<usize>),
    /// Values of a dictionary, and the index of each row's value.
    Dictionary(Box<Columns>, Vec<usize>),
    Null,
    /// Values that no cell can hold: their type.
    Other(String),
}

impl Columns {
    fn new(batch: &RecordBatch, schema: &SchemaRef) -> Self {
        let column = |(i, array)| Self::column(array, is_uuid(schema.field(i)));
        Columns(batch.columns().iter().enumerate().map(column).collect())
    }

    /// Collects the values of a column; `uuid` says that its bytes are UUIDs.
    fn column(array: &ArrayRef, uuid: bool) -> (Option<NullBuffer>, Values) {
        (array.nulls().cloned(), Values::new(array, uuid))
    }

    /// Returns the cell in column `i` and row `row`, both of which exist.
    #[inline]
    fn cell(&self, i: usize, row: usize) -> Cell<'_> {
        let (missing, values) = &self.0[i];
        if missing.as_ref().is_some_and(|missing| missing.is_null(row)) {
            return Cell::Missing;
        }
        let span = |ends: &[usize]| if row == 0 { 0..ends[0] } else { ends[row - 1]..ends[row] };
        match values {
            Values::Int(values) => Cell::Number(Scalar::Int(values[row])),
            Values::Uint(values) => Cell::Number(Scalar::Uint(values[row])),
            Values::Float(values) => Cell::Number(Scalar::Float(values[row])),
            Values::Single(values) => Cell::Number(Scalar::Single(values[row])),
            Values::Bool(values) => Cell::Bool(values[row]),
            Values::Time(values, digits, factor) => match values[row].checked_mul(*factor) {
                Some(ticks) => Cell::Time(Decimal::new(ticks, *digits)),
                None => Cell::Other("date too far away"),
            },
            Values::Clock(values, digits) => Cell::Clock(Decimal::new(values[row], *digits)),
            Values::Text(bytes, ends) => Cell::Text(&bytes[span(ends)]),
            Values::Lists(numbers, ends) => Cell::List(Cow::Borrowed(&numbers[span(ends)])),
            Values::Dictionary(values, keys) => values.cell(0, keys[row]),
            Values::Null => Cell::Missing,
            Values::Other(kind) => Cell::Other(kind),
        }
    }
}

impl Values {
    fn new(array: &ArrayRef, uuid: bool) -> Self {
        Self::of_numbers(array)
            .or_else(|| Self::of_times(array))
            .unwrap_or_else(|| Self::of_others(array, uuid))
    }

    fn of_numbers(array: &ArrayRef) -> Option<Self> {
        macro_rules! numbers {
            ($kind:ident, $wide:ty, $type:ty) => {
                Values::$kind(
                    array.as_primitive::<$type>().values().iter().map(|&v| <$wide>::from(v)).collect(),
                )
            };
        }
        Some(match array.data_type() {
            DataType::Int8 => numbers!(Int, i64, Int8Type),
            DataType::Int16 => numbers!(Int, i64, Int16Type),
            DataType::Int32 => numbers!(Int, i64, Int32Type),
            DataType::Int64 => numbers!(Int, i64, Int64Type),
            DataType::UInt8 => numbers!(Uint, u64, UInt8Type),
            DataType::UInt16 => numbers!(Uint, u64, UInt16Type),
            DataType::UInt32 => numbers!(Uint, u64, UInt32Type),
            DataType::UInt64 => numbers!(Uint, u64, UInt64Type),
            DataType::Float16 => numbers!(Float, f64, Float16Type),
            DataType::Float32 => Values::Single(array.as_primitive::<Float32Type>().values().clone()),
            DataType::Float64 => numbers!(Float, f64, Float64Type),
            DataType::Boolean => Values::Bool(array.as_boolean().values().iter().collect()),
            // As text, because a float does not hold all of their digits.
            DataType::Decimal32(..) => decimals::<Decimal32Type>(array),
            DataType::Decimal64(..) => decimals::<Decimal64Type>(array),
            DataType::Decimal128(..) => decimals::<Decimal128Type>(array),
            DataType::Decimal256(..) => decimals::<Decimal256Type>(array),
            _ => return None,
        })
    }

    fn of_times(array: &ArrayRef) -> Option<Self> {
        macro_rules! ticks {
            ($type:ty) => {
                array.as_primitive::<$type>().values().iter().map(|&v| i64::from(v)).collect()
            };
        }
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        Some(match array.data_type() {
            DataType::Timestamp(Second, _) => Values::Time(ticks!(TimestampSecondType), 0, 1),
            DataType::Timestamp(Millisecond, _) => Values::Time(ticks!(TimestampMillisecondType), 3, 1),
            DataType::Timestamp(Microsecond, _) => Values::Time(ticks!(TimestampMicrosecondType), 6, 1),
            DataType::Timestamp(Nanosecond, _) => Values::Time(ticks!(TimestampNanosecondType), 9, 1),
            DataType::Date32 => Values::Time(ticks!(Date32Type), 0, 86_400),
            DataType::Date64 => Values::Time(ticks!(Date64Type), 3, 1),
            DataType::Time32(Second) => Values::Clock(ticks!(Time32SecondType), 0),
            DataType::Time32(Millisecond) => Values::Clock(ticks!(Time32MillisecondType), 3),
            DataType::Time64(Microsecond) => Values::Clock(ticks!(Time64MicrosecondType), 6),
            DataType::Time64(Nanosecond) => Values::Clock(ticks!(Time64NanosecondType), 9),
            DataType::Duration(Second) => Values::Clock(ticks!(DurationSecondType), 0),
            DataType::Duration(Millisecond) => Values::Clock(ticks!(DurationMillisecondType), 3),
            DataType::Duration(Microsecond) => Values::Clock(ticks!(DurationMicrosecondType), 6),
            DataType::Duration(Nanosecond) => Values::Clock(ticks!(DurationNanosecondType), 9),
            _ => return None,
        })
    }

    /// Collects text, lists and dictionaries.
    fn of_others(array: &ArrayRef, uuid: bool) -> Self {
        match array.data_type() {
            DataType::Utf8 => text(array.as_string::<i32>().iter()),
            DataType::LargeUtf8 => text(array.as_string::<i64>().iter()),
            DataType::Utf8View => text(array.as_string_view().iter()),
            DataType::Binary => hexadecimal(array.as_binary::<i32>().iter()),
            DataType::LargeBinary => hexadecimal(array.as_binary::<i64>().iter()),
            DataType::BinaryView => hexadecimal(array.as_binary_view().iter()),
            DataType::FixedSizeBinary(16) if uuid => uuids(array.as_fixed_size_binary().iter()),
            DataType::FixedSizeBinary(1..) => hexadecimal(array.as_fixed_size_binary().iter()),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = dictionary.values();
                let keys = dictionary.normalized_keys();
                Values::Dictionary(Box::new(Columns(vec![Columns::column(values, uuid)])), keys)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                lists(list.values(), list.offsets().iter().map(|&o| o as usize))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                lists(list.values(), list.offsets().iter().map(|&o| o as usize))
            }
            DataType::FixedSizeList(_, width @ 1..) => {
                let list = array.as_fixed_size_list();
                lists(list.values(), (0..=list.len()).map(|i| i * *width as usize))
            }
            DataType::Null => Values::Null,
            other => Values::Other(short(other)),
        }
    }
}

/// Collects text; a missing value is empty.
fn text<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Values {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for value in values {
        bytes.extend_from_slice(value.unwrap_or_default().as_bytes());
        ends.push(bytes.len());
    }
    Values::Text(bytes, ends)
}

/// Collects bytes as text such as `0x0aff`.
fn hexadecimal<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Values {
    written(values, |value, text| {
        text.extend_from_slice(b"0x");
        text.extend(value.iter().flat_map(|byte| digits(*byte)));
    })
}

/// Collects UUIDs as text such as `123e4567-e89b-12d3-a456-426614174000`.
fn uuids<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Values {
    written(values, |value, text| {
        for (i, byte) in value.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push(b'-');
            }
            text.extend(digits(*byte));
        }
    })
}

/// Collects bytes as text, which `write` appends; a missing value is empty.
fn written<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    write: impl Fn(&[u8], &mut Vec<u8>),
) -> Values {
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    for value in values {
        if let Some(value) = value {
            write(value, &mut text);
        }
        ends.push(text.len());
    }
    Values::Text(text, ends)
}

/// Returns the hexadecimal digits of a byte.
fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|half| b"0123456789abcdef"[half as usize])
}

/// Collects decimals as text.
fn decimals<T: DecimalType>(array: &ArrayRef) -> Values {
    let array = array.as_primitive::<T>();
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    for row in 0..array.len() {
        text.extend_from_slice(array.value_as_string(row).as_bytes());
        ends.push(text.len());
    }
    Values::Text(text, ends)
}

/// Returns the name of a type, without the names of the fields in it.
fn short(kind: &DataType) -> String {
    let name = kind.to_string();
    match name.split_once('(') {
        Some((name, _)) if kind.is_nested() => name.to_owned(),
        _ => name,
    }
}

/// Collects the numbers of lists, which begin and end at `offsets` of `values`.
fn lists(values: &ArrayRef, mut offsets: impl Iterator<Item = usize>) -> Values {
    let start = offsets.next().unwrap_or(0);
    let ends: Vec<usize> = offsets.map(|end| end - start).collect();
    let values = values.slice(start, ends.last().copied().unwrap_or(0));
    match numbers(&values) {
        Some(numbers) => Values::Lists(numbers, ends),
        None => Values::Other(format!("List({})", short(values.data_type()))),
    }
}

/// Converts the values of a column to f32: NaN where one is missing, infinite where one is not finite; `None`
/// if one is no number.
fn numbers(array: &ArrayRef) -> Option<Vec<f32>> {
    let mut numbers: Vec<f32> = match Values::new(array, false) {
        Values::Int(values) => values.into_iter().map(|v| v as f32).collect(),
        Values::Uint(values) => values.into_iter().map(|v| v as f32).collect(),
        Values::Float(values) => values.into_iter().map(|v| v as f32).collect(),
        Values::Single(values) => values.to_vec(),
        values => {
            let columns = Columns(vec![(array.nulls().cloned(), values)]);
            let number = |i| match columns.cell(0, i).value() {
                Ok(value) => Some(value.unwrap_or(f32::NAN)),
                Err(Fault::NotFinite) => Some(f32::INFINITY),
                Err(_) => None,
            };
            return (0..array.len()).map(number).collect();
        }
    };
    if array.null_count() > 0 {
        (0..numbers.len()).filter(|&i| array.is_null(i)).for_each(|i| numbers[i] = f32::NAN);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests;
