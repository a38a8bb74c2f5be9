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

pub use embeddings::parquet_of;

use super::{
    cell::{Cell, Row},
    column_names::listed,
    input::is_stream,
    number::{Decimal, Fault},
    records::Delimiter,
    sample::{ROWS, Sample},
};
use crate::{scalar::Scalar, time_format::TimeFormat};
use arrow::{FileBatches, Stream, check_rows};
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchReader,
    cast::AsArray,
    types::{
        Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{ArrowError, DataType, SchemaRef, TimeUnit};
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
            let (reader, told) = library(path, || parquet_pages::read(ParquetFile::new(file)?, BATCH))?;
            rows = told;
            (reader.schema(), Box::new(reader))
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
            let columns = library(&self.path, || Ok::<_, ArrowError>(Columns::new(batch)))?;
            let text = |row: usize, i: usize| match columns.cell(i, row) {
                Cell::Time(time) => {
                    TimeFormat::Iso.text(time.mantissa, 10f64.powi(time.digits as i32)).into_bytes()
                }
                cell => cell.text().unwrap_or_default().into_owned().into_bytes(),
            };
            let sampled = 0..batch.num_rows().min(ROWS);
            rows = sampled.map(|row| (0..names.len()).map(|i| text(row, i)).collect()).collect();
        }
        let kind = |i: usize| self.schema.field(i).data_type();
        let measured = (0..names.len()).filter(|i| is_measured(kind(*i))).collect();
        let bytes: Vec<String> =
            (0..names.len()).filter(|i| is_bytes(kind(*i))).map(|i| names[i].clone()).collect();
        let whole = rows.len();
        let mut notes = Vec::new();
        if !bytes.is_empty() {
            notes.push(format!("bytes are read as hexadecimal text, such as `0x0aff`: {}", listed(&bytes)));
        }
        Ok(Sample { delimiter: Delimiter::Byte(b','), rows, whole, header: Some(names), measured, notes })
    }

    /// Calls `take` for every row.
    pub(super) fn for_each(mut self, take: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()> {
        let names = self.names();
        let (mut first, mut next) = (0, self.first.take());
        while let Some(batch) = next {
            let columns = library(&self.path, || Ok::<_, ArrowError>(Columns::new(&batch)))?;
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

    fn error(&self, i: Option<usize>, what: String) -> Error {
        let row = self.first + self.row + 1;
        let what = match i.and_then(|i| self.names.get(i)) {
            Some(name) => format!("column `{name}`, row {row}: {what}"),
            None => format!("row {row}: {what}"),
        };
        Error::data(self.path, what)
    }
}

/// Columns of a batch, in the types of cells.
struct Columns(Vec<(ArrayRef, Values)>);

/// Values of a column.
enum Values {
    Int(Vec<i64>),
    Uint(Vec<u64>),
    Float(Vec<f64>),
    /// Ticks of `10^-digits` seconds, times a factor.
    Time(Vec<i64>, u32, i64),
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
    fn new(batch: &RecordBatch) -> Self {
        Columns(batch.columns().iter().map(|array| (array.clone(), Values::new(array))).collect())
    }

    /// Returns the cell in column `i` and row `row`, both of which exist.
    fn cell(&self, i: usize, row: usize) -> Cell<'_> {
        let (array, values) = &self.0[i];
        if array.is_null(row) {
            return Cell::Missing;
        }
        let span = |ends: &[usize]| if row == 0 { 0..ends[0] } else { ends[row - 1]..ends[row] };
        match values {
            Values::Int(values) => Cell::Number(Scalar::Int(values[row])),
            Values::Uint(values) => Cell::Number(Scalar::Uint(values[row])),
            Values::Float(values) => Cell::Number(Scalar::Float(values[row])),
            Values::Time(values, digits, factor) => match values[row].checked_mul(*factor) {
                Some(ticks) => Cell::Time(Decimal::new(ticks, *digits)),
                None => Cell::Other("date too far away"),
            },
            Values::Text(bytes, ends) => Cell::Text(&bytes[span(ends)]),
            Values::Lists(numbers, ends) => Cell::List(Cow::Borrowed(&numbers[span(ends)])),
            Values::Dictionary(values, keys) => values.cell(0, keys[row]),
            Values::Null => Cell::Missing,
            Values::Other(kind) => Cell::Other(kind),
        }
    }
}

impl Values {
    fn new(array: &ArrayRef) -> Self {
        Self::of_numbers(array).or_else(|| Self::of_times(array)).unwrap_or_else(|| Self::of_others(array))
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
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values().iter();
                Values::Float(values.map(|&v| shortest(v)).collect())
            }
            DataType::Float64 => numbers!(Float, f64, Float64Type),
            DataType::Boolean => Values::Uint(array.as_boolean().values().iter().map(u64::from).collect()),
            // As text, because a float does not hold all of their digits.
            DataType::Decimal32(..) => decimals::<Decimal32Type>(array),
            DataType::Decimal64(..) => decimals::<Decimal64Type>(array),
            DataType::Decimal128(..) => decimals::<Decimal128Type>(array),
            DataType::Decimal256(..) => decimals::<Decimal256Type>(array),
            _ => return None,
        })
    }

    fn of_times(array: &ArrayRef) -> Option<Self> {
        macro_rules! times {
            ($type:ty, $digits:expr, $factor:expr) => {
                Values::Time(
                    array.as_primitive::<$type>().values().iter().map(|&v| i64::from(v)).collect(),
                    $digits,
                    $factor,
                )
            };
        }
        Some(match array.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => times!(TimestampSecondType, 0, 1),
            DataType::Timestamp(TimeUnit::Millisecond, _) => times!(TimestampMillisecondType, 3, 1),
            DataType::Timestamp(TimeUnit::Microsecond, _) => times!(TimestampMicrosecondType, 6, 1),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => times!(TimestampNanosecondType, 9, 1),
            DataType::Date32 => times!(Date32Type, 0, 86_400),
            DataType::Date64 => times!(Date64Type, 3, 1),
            _ => return None,
        })
    }

    /// Collects text, lists and dictionaries.
    fn of_others(array: &ArrayRef) -> Self {
        match array.data_type() {
            DataType::Utf8 => text(array.as_string::<i32>().iter()),
            DataType::LargeUtf8 => text(array.as_string::<i64>().iter()),
            DataType::Utf8View => text(array.as_string_view().iter()),
            DataType::Binary => hexadecimal(array.as_binary::<i32>().iter()),
            DataType::LargeBinary => hexadecimal(array.as_binary::<i64>().iter()),
            DataType::BinaryView => hexadecimal(array.as_binary_view().iter()),
            DataType::FixedSizeBinary(1..) => hexadecimal(array.as_fixed_size_binary().iter()),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = dictionary.values();
                let keys = dictionary.normalized_keys();
                Values::Dictionary(Box::new(Columns(vec![(values.clone(), Values::new(values))])), keys)
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
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    for value in values {
        if let Some(value) = value {
            text.extend_from_slice(b"0x");
            let digit = |half: u8| b"0123456789abcdef"[half as usize];
            text.extend(value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
        }
        ends.push(text.len());
    }
    Values::Text(text, ends)
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
    let columns = Columns(vec![(values.clone(), Values::new(values))]);
    let (mut numbers, mut ends, mut from) = (Vec::new(), Vec::new(), offsets.next().unwrap_or(0));
    for to in offsets {
        for i in from..to {
            match columns.cell(0, i).value() {
                Ok(value) => numbers.push(value.unwrap_or(f32::NAN)),
                Err(Fault::NotFinite) => numbers.push(f32::INFINITY),
                Err(_) => return Values::Other(format!("List({})", short(values.data_type()))),
            }
        }
        ends.push(numbers.len());
        from = to;
    }
    Values::Lists(numbers, ends)
}

/// Converts an `f32` to the `f64` nearest to its shortest decimal, so that a time of 0.1f32 is 0.1.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

#[cfg(test)]
mod tests;
