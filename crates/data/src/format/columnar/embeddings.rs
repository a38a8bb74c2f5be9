//! Writes embeddings as Parquet.
use crate::NodeId;
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use parquet::{arrow::ArrowWriter, errors::ParquetError};
use std::sync::Arc;
use tgnn::error::{Error, ErrorKind, Result};

/// Returns a Parquet file with a row per node: its id in the column `node`, a number if all are, and the
/// `width` values of its row of `values` in `z0`, `z1` and so on.
///
/// # Errors
/// `Io` if the library refuses, which needs more columns or rows than fit into memory.
///
/// # Panics
/// If there is not a row of values for each id.
#[doc(hidden)]
pub fn parquet_of(ids: &[NodeId], width: usize, values: &[f32]) -> Result<Vec<u8>> {
    assert_eq!(ids.len() * width, values.len(), "a row for each id");
    let number = |id: &NodeId| match id {
        NodeId::Number(n) => i64::try_from(*n).ok(),
        NodeId::Text(_) => None,
    };
    let node: ArrayRef = match ids.iter().map(number).collect::<Option<Vec<_>>>() {
        Some(numbers) => Arc::new(Int64Array::from(numbers)),
        None => Arc::new(StringArray::from_iter_values(ids.iter().map(ToString::to_string))),
    };
    let column = |c: usize| -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(values.iter().skip(c).step_by(width).copied()))
    };
    let columns = (0..width).map(|c| (format!("z{c}"), column(c)));
    let written = || -> std::result::Result<_, ParquetError> {
        let rows = RecordBatch::try_from_iter(std::iter::once(("node".to_owned(), node)).chain(columns))?;
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None)?;
        writer.write(&rows)?;
        writer.into_inner()
    };
    written().map_err(|e| Error::new(ErrorKind::Io, "cannot make the Parquet file").caused_by(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        cast::AsArray,
        types::{Float32Type, Int64Type},
    };
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn read(file: Vec<u8>) -> RecordBatch {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        reader.build().unwrap().next().unwrap().unwrap()
    }

    #[test]
    fn a_file_has_the_ids_as_they_are_and_a_column_for_each_value() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let rows = read(parquet_of(&[NodeId::Number(7), NodeId::Number(3)], 3, &values).unwrap());
        let names: Vec<String> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["node", "z0", "z1", "z2"]);
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[7, 3]);
        assert_eq!(rows.column(3).as_primitive::<Float32Type>().values(), &[3.0, 6.0]);
        let rows = read(parquet_of(&[NodeId::Number(7), NodeId::Text("Doe, J".into())], 3, &values).unwrap());
        let ids: Vec<&str> = rows.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(ids, ["7", "Doe, J"]);
    }
}
