//! Pages of Parquet whose counts are compared with their headers before the library allocates for them.
//!
//! A page of text in a delta encoding has, inside the compressed page, a count of the lengths that follow.
use super::{UUID, parquet_file::ParquetFile};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef, extension::EXTENSION_TYPE_NAME_KEY};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, RowGroups},
        parquet_to_arrow_field_levels,
    },
    basic::{Encoding, LogicalType},
    column::page::{Page, PageIterator, PageMetadata, PageReader},
    errors::{ParquetError, Result},
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        serialized_reader::SerializedPageReader,
    },
    schema::types::{SchemaDescriptor, TypePtr},
};
use std::sync::Arc;

/// An open file.
pub(super) struct Opened {
    pub reader: ParquetRecordBatchReader,
    /// The columns, with the names of the types that only Parquet knows.
    pub schema: SchemaRef,
    /// The number of rows that the file says.
    pub rows: Option<u64>,
}

/// Opens the rows of a file, in batches of at most `batch`.
pub(super) fn read(file: ParquetFile, batch: usize) -> Result<Opened> {
    let opened = ArrowReaderMetadata::load(&file, Default::default())?;
    let metadata = Arc::clone(opened.metadata());
    let columns = metadata.file_metadata().schema_descr();
    let schema = with_logical_types(opened.schema(), columns);
    let levels = parquet_to_arrow_field_levels(columns, ProjectionMask::all(), Some(schema.fields()))?;
    let rows = u64::try_from(metadata.file_metadata().num_rows()).ok();
    let batch = batch.min(rows.map_or(0, |rows| rows.try_into().unwrap_or(batch)));
    let groups = CheckedRows { file: Arc::new(file), metadata };
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &groups, batch, None)?;
    Ok(Opened { reader, schema, rows })
}

/// Returns the schema with what Parquet's logical types tell beyond it: which bytes are UUIDs, and which are
/// the names of an enumeration, which are text.
fn with_logical_types(schema: &SchemaRef, columns: &SchemaDescriptor) -> SchemaRef {
    let typed = |(field, column): (&FieldRef, &TypePtr)| {
        let mut field = field.as_ref().clone();
        match column.get_basic_info().logical_type_ref() {
            Some(LogicalType::Uuid) => drop(field.metadata_mut().insert(EXTENSION_TYPE_NAME_KEY, UUID)),
            Some(LogicalType::Enum) if *field.data_type() == DataType::Binary => {
                field.set_data_type(DataType::Utf8);
            }
            _ => {}
        }
        Arc::new(field)
    };
    let fields: Vec<FieldRef> =
        schema.fields().iter().zip(columns.root_schema().get_fields()).map(typed).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// All rows of a file.
#[derive(Clone)]
struct CheckedRows {
    file: Arc<ParquetFile>,
    metadata: Arc<ParquetMetaData>,
}

impl RowGroups for CheckedRows {
    fn num_rows(&self) -> usize {
        let rows = self.metadata.row_groups().iter().map(|group| usize::try_from(group.num_rows()));
        rows.map(Result::unwrap_or_default).fold(0, usize::saturating_add)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks { rows: self.clone(), column, group: 0 }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of a column, row group by row group.
struct Chunks {
    rows: CheckedRows,
    column: usize,
    group: usize,
}

impl Iterator for Chunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.rows.metadata.row_groups().get(self.group)?;
        self.group += 1;
        let (column, rows) = (group.column(self.column), usize::try_from(group.num_rows()).unwrap_or(0));
        let levels = [column.column_descr().max_rep_level(), column.column_descr().max_def_level()];
        let pages = SerializedPageReader::new(Arc::clone(&self.rows.file), column, rows, None);
        Some(pages.map(|pages| Box::new(CheckedPages { pages, levels }) as Box<dyn PageReader>))
    }
}

impl PageIterator for Chunks {}

/// The pages of a column of a row group.
struct CheckedPages {
    pages: SerializedPageReader<ParquetFile>,
    /// The largest levels of repetition and of definition.
    levels: [i16; 2],
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        match counts_are_possible(&page, self.levels) {
            true => Ok(Some(page)),
            false => Err(ParquetError::General("a page of text counts more values than it has".into())),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

/// Whether a page of text in a delta encoding counts no more lengths than it has values. Other pages count
/// nothing inside.
fn counts_are_possible(page: &Page, levels: [i16; 2]) -> bool {
    let lists = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        // Lengths of what is shared with the value before, and of the rest.
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return true,
    };
    let most = u64::from(page.num_values());
    let Some(mut bytes) = values(page, levels) else { return false };
    (0..lists).all(|_| delta_count(&mut bytes).is_some_and(|count| count <= most))
}

/// Returns the values of a data page, after its levels.
fn values(page: &Page, levels: [i16; 2]) -> Option<&[u8]> {
    match page {
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get(*def_levels_byte_len as usize + *rep_levels_byte_len as usize..)
        }
        Page::DataPage { buf, .. } => {
            levels.iter().filter(|&&most| most > 0).try_fold(&buf[..], |rest, _| {
                let (length, rest) = rest.split_first_chunk()?;
                rest.get(u32::from_le_bytes(*length) as usize..)
            })
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// Takes numbers in the encoding `DELTA_BINARY_PACKED`, and returns their count: a block's size, the number
/// of its parts, the count, the first number; then for each block the smallest difference, the bits of a
/// difference for each part, and the parts. Parts of the last block that have no numbers may be missing.
fn delta_count(bytes: &mut &[u8]) -> Option<u64> {
    let [block, parts, count] = [varint(bytes)?, varint(bytes)?, varint(bytes)?];
    varint(bytes)?;
    let each = block.checked_div(parts).filter(|each| *each > 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(bytes)?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        *bytes = rest;
        for &width in widths {
            if left == 0 {
                break;
            }
            let length = each.checked_mul(width.into())?.div_ceil(8);
            *bytes = bytes.get(usize::try_from(length).ok()?..).unwrap_or_default();
            left = left.saturating_sub(each);
        }
    }
    Some(count)
}

/// Takes an integer of seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Events, format::ReadOptions};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::{
        arrow::ArrowWriter,
        file::properties::{WriterProperties, WriterVersion},
        schema::types::ColumnPath,
    };
    use std::fs::{self, File};

    /// Writes 300 events whose sources have names in an encoding, and reads them; `damage` may change the
    /// bytes.
    fn read(
        encoding: Encoding,
        version: WriterVersion,
        damage: impl Fn(&mut Vec<u8>),
    ) -> tgnn::error::Result<Events> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.parquet");
        let names = (0..300).map(|i| (i % 7 != 0).then(|| format!("user{:03}", i % 40)));
        let src: ArrayRef =
            Arc::new(StringArray::from_iter(names.map(|name| name.or(Some("someone".into())))));
        let dst: ArrayRef = Arc::new(Int64Array::from_iter_values(500..800));
        let time: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
        let batch = RecordBatch::try_from_iter([("src", src), ("dst", dst), ("time", time)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_column_encoding(ColumnPath::from("src"), encoding)
            .build();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        crate::load(path.to_str().unwrap(), &ReadOptions::default())
    }

    #[test]
    fn text_in_delta_encodings_is_read_and_its_counts_are_not_believed() {
        // Blocks of 128 in 4 parts, and 300 values: 0x80 0x01 0x04 0xac 0x02.
        let head = [0x80, 0x01, 0x04, 0xac, 0x02];
        for encoding in [Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
            for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                let events = read(encoding, version, |_| {}).unwrap();
                assert_eq!((events.len(), events.id(events.src[1]).to_string()), (300, "user001".into()));
                let e = read(encoding, version, |bytes| {
                    let lists = bytes.windows(5).filter(|window| *window == head).count();
                    assert!(lists >= 1, "{encoding:?}: no list of lengths");
                    let last = bytes.windows(5).rposition(|window| window == head).unwrap();
                    // 4 bytes of the count: 127 or more millions.
                    bytes[last + 3..last + 7].copy_from_slice(&[0xff, 0xff, 0xff, 0x3f]);
                });
                let e = e.unwrap_err().to_string();
                assert!(e.contains("the Parquet file is damaged"), "{encoding:?}: {e}");
            }
        }
    }
}
