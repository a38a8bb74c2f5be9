//! Tests with valid and faulty tables written by PyArrow; see `tests/golden/foreign.py`.
use crate::{Events, ReadOptions, Stats, load};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, Date32Array, Decimal128Array, DurationSecondArray,
    FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StructArray,
    Time32SecondArray,
};
use arrow_ipc::{
    CompressionType,
    writer::{FileWriter, IpcWriteOptions, StreamWriter},
};
use arrow_schema::DataType;
use proptest::prelude::*;
use std::{fs, sync::Arc};
use tgnn::error::{ErrorKind, Result};

fn path(name: &str) -> String {
    format!("../../tests/golden/foreign/{name}.parquet")
}

fn read(name: &str) -> Result<Events> {
    load(&path(name), &ReadOptions::default())
}

#[test]
fn columns_are_found_by_name_and_timestamps_are_exact() {
    let e = read("all").unwrap();
    assert_eq!((e.name.as_str(), e.src, e.dst), ("all", vec![0, 1, 0], vec![1, 0, 2]));
    assert_eq!(e.ids.unwrap().numbers().unwrap(), [7, 9, 11]);
    assert_eq!((e.time, e.ticks_per_second, e.origin), (vec![0, 125, 6_075], 100.0, 128_848_320_025));
    assert_eq!(e.label.unwrap(), [0., 1., 0.]);
    assert_eq!(e.edge_features.unwrap().values(), [0.25, 0.5, 1., 0.5, 1.5, 2., 0.75, 2.5, 3.]);
    assert!(e.notes.contains(&"columns not read: text".to_owned()), "{:?}", e.notes);
}

#[test]
fn every_compression_and_times_of_any_number_are_read() {
    let (zstd, gzip, seconds) = (read("zstd").unwrap(), read("gzip").unwrap(), read("seconds").unwrap());
    assert_eq!((zstd.time.as_slice(), zstd.origin), (&[0, 1, 61][..], 10));
    assert_eq!((&gzip.src, &gzip.dst, &gzip.time), (&zstd.src, &zstd.dst, &zstd.time));
    assert_eq!((zstd.edge_features.unwrap().values(), gzip.edge_features), (&[1f32, 2., 3.][..], None));
    assert_eq!((seconds.time, seconds.ticks_per_second, seconds.origin), (vec![0, 75, 350], 100.0, 50));
    assert!(seconds.notes.contains(&"columns not read: flag".to_owned()) && seconds.label.is_none());
}

#[test]
fn columns_given_by_the_user_take_precedence() {
    let columns = |text: &str| ReadOptions { columns: Some(text.parse().unwrap()), ..ReadOptions::default() };
    let e = load(&path("seconds"), &columns("src=2,dst=1,time=4,features=3-")).unwrap();
    assert_eq!((e.src, e.origin), (vec![1, 0, 2], 1));
    assert_eq!(e.edge_features.unwrap().values(), [0.5, 1., 1.25, 2., 4., 3.]);
    for (text, said) in [
        ("src=1,dst=2,time=9", "the row has 4 columns, so there is no column 9 to hold the time; name"),
        ("src=1,dst=2,time=3,features=4-7", "so there is no column 7 to hold the features; name"),
    ] {
        let e = load(&path("seconds"), &columns(text)).unwrap_err();
        assert!(e.to_string().contains(said), "{e}");
    }
}

#[test]
fn every_error_names_column_and_row_and_a_remedy() {
    for (name, said) in [
        ("null", ": column `ts`, row 2: an empty field is not a time; fill it in, or leave out such rows"),
        ("ragged", ": column `vector`, row 2: 2 in this list, 1 in those before it; write lists of one"),
        ("notime", ": no column is named like a time; give --columns time=NAME; the columns are src, dst"),
        ("infinite", ": column `f0`, row 2: `inf` is not a finite number, so it is not a feature; write"),
    ] {
        let e = read(name).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Data);
        assert!(e.to_string().starts_with(&(path(name) + said)), "{e}");
    }
    assert_eq!(read("late").unwrap().notes[0], "sorted 1 out-of-order event");
    let strict = ReadOptions { strict: true, ..ReadOptions::default() };
    let e = load(&path("late"), &strict).unwrap_err().to_string();
    assert!(e.contains("column `ts`, row 2: this event is earlier than one before it; sort"), "{e}");
}

/// Returns a table of 40 events from `src`, which are of any type, and the name of its file.
fn table(dir: &tempfile::TempDir, src: ArrayRef) -> (RecordBatch, String) {
    let numbers = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let (dst, time) = (numbers((100..140).collect()), numbers((1_600_000_000..1_600_000_040).collect()));
    let batch = RecordBatch::try_from_iter([("src", src), ("dst", dst), ("time", time)]).unwrap();
    (batch, dir.path().join("x.arrow").to_str().unwrap().to_owned())
}

/// Writes a table as an Arrow file, or as a stream, compressed or not, and reads it.
fn read_arrow(src: ArrayRef, compression: Option<CompressionType>, as_stream: bool) -> Result<Events> {
    let dir = tempfile::tempdir().unwrap();
    let (batch, path) = table(&dir, src);
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let file = fs::File::create(&path).unwrap();
    if as_stream {
        let mut writer = StreamWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        writer.write(&batch).and_then(|()| writer.write(&batch.slice(0, 7))).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        writer.write(&batch).and_then(|()| writer.write(&batch.slice(0, 7))).unwrap();
        writer.finish().unwrap();
    }
    load(&path, &ReadOptions::default())
}

#[test]
fn values_of_a_type_that_is_no_id_are_refused_or_hexadecimal() {
    let bytes: Vec<[u8; 2]> = (0..40u8).map(|i| [0xab, i % 20]).collect();
    let of = |rows: &[[u8; 2]]| rows.iter().map(|row| Some(row.to_vec())).collect::<Vec<_>>();
    let slices: Vec<&[u8]> = bytes.iter().map(|row| &row[..]).collect();
    let fixed = FixedSizeBinaryArray::try_from_iter(of(&bytes).into_iter().flatten()).unwrap();
    let arrays: [ArrayRef; 4] = [
        Arc::new(BinaryArray::from_vec(slices.clone())),
        Arc::new(LargeBinaryArray::from_vec(slices.clone())),
        Arc::new(BinaryViewArray::from_iter_values(slices)),
        Arc::new(fixed),
    ];
    for (k, array) in arrays.into_iter().enumerate() {
        let e = read_arrow(array, Some(CompressionType::ZSTD), k % 2 == 0).unwrap();
        assert_eq!((Stats::new(&e).sources, e.len(), e.id(1).to_string().as_str()), (20, 47, "0xab01"));
        assert!(
            e.notes[0].starts_with("bytes are read as hexadecimal text, such as `0x0aff`: src"),
            "{:?}",
            e.notes
        );
    }
    let numbers = Int32Array::from_iter_values((0..40).map(|i| i % 20));
    let field = Arc::new(arrow_schema::Field::new("a", DataType::Int32, true));
    let others: [(ArrayRef, &str); 4] = [
        (
            Arc::new(StructArray::from(vec![(field, Arc::new(numbers.clone()) as ArrayRef)])),
            "a value of type Struct",
        ),
        (Arc::new(Time32SecondArray::from_iter_values(0..40)), "a value of type Time32(s)"),
        (Arc::new(DurationSecondArray::from_iter_values(0..40)), "a value of type Duration(s)"),
        (Arc::new(Date32Array::from_iter_values(0..40)), "a timestamp"),
    ];
    for (array, kind) in others {
        let e = read_arrow(array, None, false).unwrap_err().to_string();
        assert!(
            e.contains(&format!("column `src`, row 1: {kind} is not a node id; save the column as text")),
            "{e}"
        );
    }
    let large = 10i128.pow(20);
    let decimals = Decimal128Array::from_iter_values((0..40).map(|i| large + i % 20));
    let decimals = Arc::new(decimals.with_precision_and_scale(38, 0).unwrap());
    let e = read_arrow(decimals, Some(CompressionType::LZ4_FRAME), false).unwrap();
    assert_eq!((Stats::new(&e).sources, e.id(1).to_string().as_str()), (20, "100000000000000000001"));
    let floats = Arc::new(Float64Array::from_iter_values((0..40).map(|i| 1e17 + f64::from(i % 20) * 16.0)));
    let e = read_arrow(floats, None, true).unwrap();
    assert!(e.notes.iter().any(|note| note.contains("above 2^53 in a column of floats")), "{:?}", e.notes);
}

#[test]
fn no_length_in_an_arrow_file_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let (batch, path) = table(&dir, Arc::new(Int64Array::from_iter_values(0..40)));
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        let whole = writer.into_inner().unwrap();
        // Lengths of compressed buffers, of messages and in the footer are among these places.
        for at in (8..whole.len() - 8).step_by(4) {
            for length in [1u64 << 58, 1 << 40, u64::MAX >> 1] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
                fs::write(&path, bytes).unwrap();
                let _ = load(&path, &ReadOptions::default());
            }
        }
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let e = load(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(e.contains("the Arrow file is damaged"), "{e}");
    }
}

proptest! {
    #[test]
    fn no_damage_panics(
        name in prop::sample::select(vec!["all", "zstd", "gzip", "ragged"]),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        spots in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = fs::read(path(name)).unwrap();
        for (at, with) in spots {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.parquet");
        fs::write(&file, bytes).unwrap();
        let _ = load(file.to_str().unwrap(), &ReadOptions::default());
    }
}
