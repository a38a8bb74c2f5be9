//! Writes embeddings as Parquet.
use crate::NodeId;
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use std::{
    io::{self, Write},
    sync::Arc,
};

/// Rows that are written together.
const ROWS: usize = 1 << 16;

/// Writes a Parquet file with a row per node: its id in the column `node`, a number if all are, and the
/// `width` values of its row of `values` in `z0`, `z1` and so on.
///
/// # Errors
/// Those of writing to `to`.
///
/// # Panics
/// If there is not a row of values for each id.
#[doc(hidden)]
pub fn write_parquet(to: impl Write + Send, ids: &[NodeId], width: usize, values: &[f32]) -> io::Result<()> {
    assert_eq!(ids.len() * width, values.len(), "a row for each id");
    let are_numbers = ids.iter().all(|id| number(id).is_some());
    let rows = |from: usize| {
        let rows = from..ids.len().min(from + ROWS);
        batch(&ids[rows.clone()], are_numbers, width, &values[rows.start * width..rows.end * width])
    };
    let mut writer = ArrowWriter::try_new(to, rows(ids.len())?.schema(), None)?;
    for from in (0..ids.len()).step_by(ROWS) {
        writer.write(&rows(from)?)?;
        // Else the library would keep many of them in memory.
        writer.flush()?;
    }
    writer.close()?;
    Ok(())
}

/// Returns an id that Parquet has as a number.
fn number(id: &NodeId) -> Option<i64> {
    match id {
        NodeId::Number(n) => i64::try_from(*n).ok(),
        NodeId::Text(_) => None,
    }
}

/// Returns rows as columns.
fn batch(ids: &[NodeId], are_numbers: bool, width: usize, values: &[f32]) -> io::Result<RecordBatch> {
    let node: ArrayRef = match are_numbers {
        true => Arc::new(Int64Array::from_iter_values(ids.iter().filter_map(number))),
        false => Arc::new(StringArray::from_iter_values(ids.iter().map(ToString::to_string))),
    };
    let column = |c: usize| -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(values.iter().skip(c).step_by(width).copied()))
    };
    let columns = (0..width).map(|c| (format!("z{c}"), column(c)));
    let all = std::iter::once(("node".to_owned(), node)).chain(columns);
    RecordBatch::try_from_iter(all).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        cast::AsArray,
        types::{Float32Type, Int64Type},
    };
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn written(
        ids: &[NodeId],
        width: usize,
        values: &[f32],
    ) -> ParquetRecordBatchReaderBuilder<bytes::Bytes> {
        let mut file = Vec::new();
        write_parquet(&mut file, ids, width, values).unwrap();
        ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap()
    }

    fn read(ids: &[NodeId], width: usize, values: &[f32]) -> RecordBatch {
        written(ids, width, values).build().unwrap().next().unwrap().unwrap()
    }

    #[test]
    fn a_file_has_the_ids_as_they_are_and_a_column_for_each_value() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let rows = read(&[NodeId::Number(7), NodeId::Number(3)], 3, &values);
        let names: Vec<String> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["node", "z0", "z1", "z2"]);
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[7, 3]);
        assert_eq!(rows.column(3).as_primitive::<Float32Type>().values(), &[3.0, 6.0]);
        let rows = read(&[NodeId::Number(7), NodeId::Text("Doe, J".into())], 3, &values);
        let ids: Vec<&str> = rows.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(ids, ["7", "Doe, J"]);
    }

    #[test]
    fn many_rows_are_written_in_groups_and_without_rows_there_are_columns() {
        let n = ROWS + 3;
        let ids: Vec<NodeId> = (0..n as u64).map(NodeId::Number).collect();
        let values: Vec<f32> = (0..2 * n).map(|i| i as f32).collect();
        let file = written(&ids, 2, &values);
        assert_eq!(file.metadata().num_row_groups(), 2);
        let (mut nodes, mut last) = (Vec::new(), Vec::new());
        for rows in file.build().unwrap().map(|rows| rows.unwrap()) {
            nodes.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
            last.extend_from_slice(rows.column(2).as_primitive::<Float32Type>().values());
        }
        assert!(nodes.into_iter().eq(0..n as i64));
        assert!(last.into_iter().eq(values.into_iter().skip(1).step_by(2)));
        assert_eq!(written(&[], 2, &[]).schema().fields().len(), 3);
    }
}
