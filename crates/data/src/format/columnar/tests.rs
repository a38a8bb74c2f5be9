//! Tests with valid and faulty tables written by PyArrow; see `tests/golden/foreign.py`.
use crate::{Events, ReadOptions, Stats, load};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Date32Array, Decimal128Array, DurationMicrosecondArray,
    DurationNanosecondArray, DurationSecondArray, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, ListArray, RecordBatch, StringArray, StructArray,
    Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
    types::{Float32Type, Int64Type},
};
use arrow_ipc::{
    CompressionType,
    writer::{FileWriter, IpcWriteOptions, StreamWriter},
};
use arrow_schema::{DataType, Field, Schema};
use parquet::{
    data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
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
    assert_eq!((e.name.as_str(), e.src.to_vec(), e.dst.to_vec()), ("all", vec![0, 1, 0], vec![1, 0, 2]));
    assert_eq!(e.ids.unwrap().numbers().unwrap(), [7, 9, 11]);
    assert_eq!(
        (e.time.to_vec(), e.ticks_per_second, e.origin),
        (vec![0, 125, 6_075], 100.0, 128_848_320_025)
    );
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
    assert_eq!(
        (seconds.time.to_vec(), seconds.ticks_per_second, seconds.origin),
        (vec![0, 75, 350], 100.0, 50)
    );
    assert!(seconds.notes.contains(&"columns not read: flag".to_owned()) && seconds.label.is_none());
}

#[test]
fn columns_given_by_the_user_take_precedence() {
    let columns = |text: &str| ReadOptions { columns: Some(text.parse().unwrap()), ..ReadOptions::default() };
    let e = load(&path("seconds"), &columns("src=2,dst=1,time=4,features=3-")).unwrap();
    assert_eq!((e.src.to_vec(), e.origin), (vec![1, 0, 2], 1));
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
        (Arc::new(Time32SecondArray::from_iter_values(0..40)), "a time of day, or a duration,"),
        (Arc::new(DurationSecondArray::from_iter_values(0..40)), "a time of day, or a duration,"),
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

/// Writes columns as an Arrow file and reads them.
fn read_columns(columns: Vec<(&str, ArrayRef)>, options: &ReadOptions) -> Result<Events> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut writer = FileWriter::try_new(fs::File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    load(path.to_str().unwrap(), options)
}

fn ends() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("src", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
        ("dst", Arc::new(Int64Array::from(vec![7, 8, 9]))),
    ]
}

#[test]
fn a_typed_date_and_a_typed_time_of_day_are_one_exact_time() {
    let options = ReadOptions { columns: Some("time=day+clock".parse().unwrap()), ..ReadOptions::default() };
    let of = |day: ArrayRef, clock: ArrayRef| {
        read_columns([ends(), vec![("day", day), ("clock", clock)]].concat(), &options)
    };
    let dates: [ArrayRef; 4] = [
        Arc::new(Date32Array::from(vec![19_675, 19_675, 19_676])),
        Arc::new(TimestampNanosecondArray::from(
            [19_675, 19_675, 19_676].map(|day| day * 86_400_000_000_000).to_vec(),
        )),
        Arc::new(TimestampSecondArray::from([19_675, 19_675, 19_676].map(|day| day * 86_400).to_vec())),
        Arc::new(StringArray::from(vec!["2023-11-14", "2023-11-14", "2023-11-15"])),
    ];
    let micros = [79_999_999_999i64, 80_000_000_001, 0];
    let clocks: [(ArrayRef, i64); 5] = [
        (Arc::new(Time64MicrosecondArray::from(micros.to_vec())), 1),
        (Arc::new(Time64NanosecondArray::from(micros.map(|t| 1_000 * t + 5).to_vec())), 1_000),
        (Arc::new(DurationMicrosecondArray::from(micros.to_vec())), 1),
        (Arc::new(DurationNanosecondArray::from(micros.map(|t| 1_000 * t).to_vec())), 1),
        (Arc::new(StringArray::from(vec!["22:13:19.999999", "22:13:20.000001", "00:00"])), 1),
    ];
    for date in &dates {
        for (clock, finer) in &clocks {
            let e = of(date.clone(), clock.clone()).unwrap();
            let want = [0, 2, 6_400_000_001].map(|t| t * finer);
            assert_eq!(e.time.to_vec(), want, "{:?} {:?}", date.data_type(), clock.data_type());
            assert_eq!(e.origin / finer, 1_699_999_999_999_999);
        }
    }
    let seconds: ArrayRef = Arc::new(Time32SecondArray::from(vec![80_000, 80_001, 3]));
    assert_eq!(of(dates[0].clone(), seconds.clone()).unwrap().time.to_vec(), [0, 1, 6_403]);
    let days: ArrayRef = Arc::new(DurationSecondArray::from(vec![90_000, 90_001, 90_002]));
    let e = of(dates[0].clone(), days).unwrap_err().to_string();
    assert!(e.contains("`2023-11-14 25:00:00` is not a time"), "{e}");
    let alone = ReadOptions { columns: Some("time=clock".parse().unwrap()), ..ReadOptions::default() };
    let e = read_columns([ends(), vec![("clock", seconds)]].concat(), &alone).unwrap_err().to_string();
    assert!(
        e.contains(
            "a time of day, or a duration, is no time without a date, as in --columns time=day+clock;"
        ),
        "{e}"
    );
}

#[test]
fn missing_lists_have_the_length_of_the_first_that_is_there() {
    let lists = |rows: Vec<Option<Vec<Option<f32>>>>| {
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows)) as ArrayRef
    };
    let two = |a: f32, b: f32| Some(vec![Some(a), Some(b)]);
    let time: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12]));
    let a = lists(vec![None, two(1., 2.), None]);
    let b = lists(vec![None, None, Some(vec![Some(-3.), None, Some(4.)])]);
    let c: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(0.5), Some(0.25)]));
    let d = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        None,
        Some(vec![Some(5), Some(6)]),
        Some(vec![Some(7), Some(8)]),
    ]));
    let columns = vec![("time", time), ("a", a), ("b", b), ("c", c), ("d", d as ArrayRef)];
    let e = read_columns([ends(), columns].concat(), &ReadOptions::default()).unwrap();
    let values = [
        [0., 0., 0., 0., 0., 0., 0., 0.],
        [1., 2., 0., 0., 0., 0.5, 5., 6.],
        [0., 0., -3., 0., 4., 0.25, 7., 8.],
    ];
    assert_eq!(e.edge_features.as_ref().unwrap().values(), values.concat());
    assert!(e.notes.iter().any(|note| note.starts_with("14 missing features read as 0")), "{:?}", e.notes);
}

#[test]
fn features_of_floats_are_the_same_at_once_and_cell_by_cell() {
    let rows: Vec<[f32; 2]> = (0..40u16).map(|i| [0.1 * f32::from(i), f32::from(i) - 1e-3]).collect();
    let column = |k: usize| rows.iter().map(|row| row[k]).collect::<Vec<f32>>();
    let number = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let read = |a: ArrayRef, b: ArrayRef| {
        let (src, dst) = (number((0..40).collect()), number((100..140).collect()));
        let all = vec![("src", src), ("dst", dst), ("time", number((0..40).collect())), ("a", a), ("b", b)];
        read_columns(all, &ReadOptions::default())
    };
    let single = |values: Vec<f32>| Arc::new(Float32Array::from(values)) as ArrayRef;
    let e = read(single(column(0)), single(column(1))).unwrap();
    assert_eq!(e.edge_features.as_ref().unwrap().values(), rows.concat());
    let wide = Arc::new(Float64Array::from_iter_values(column(1).into_iter().map(f64::from)));
    assert_eq!(read(single(column(0)), wide).unwrap().edge_features, e.edge_features);
    // A value that is missing, NaN or infinite is treated as such in any row.
    let lacking = column(1).into_iter().enumerate().map(|(i, v)| (i != 20).then_some(v));
    let lacking = read(single(column(0)), Arc::new(Float32Array::from_iter(lacking))).unwrap();
    let mut other = column(1);
    other[20] = f32::NAN;
    let not_a_number = read(single(column(0)), single(other.clone())).unwrap();
    for e in [lacking, not_a_number] {
        assert_eq!(e.edge_features.as_ref().unwrap().row(20), [rows[20][0], 0.0]);
        assert!(e.notes.iter().any(|note| note.starts_with("1 missing feature read as 0")), "{:?}", e.notes);
    }
    other[20] = f32::NEG_INFINITY;
    let said = read(single(column(0)), single(other.clone())).unwrap_err().to_string();
    assert!(said.contains("column `b`, row 21: `-inf` is not a finite number"), "{said}");
    other[20] = -5e12;
    let e = read(single(column(0)), single(other)).unwrap();
    assert!(
        e.notes.iter().any(|note| note.starts_with("features of `b` are as large as 5.0e12")),
        "{:?}",
        e.notes
    );
}

#[test]
fn bytes_that_are_uuids_and_names_of_an_enumeration_are_text() {
    let uuid = |i: u8| {
        FixedLenByteArray::from(vec![
            0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0, 0, 0, 0, 0, i,
        ])
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let message = "message m { required fixed_len_byte_array(16) src (UUID); required binary dst (ENUM);
                   required int64 time; required fixed_len_byte_array(16) key; }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut writer =
        SerializedFileWriter::new(fs::File::create(&path).unwrap(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let uuids = [uuid(5), uuid(6)];
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<FixedLenByteArrayType>().write_batch(&uuids, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let names = [ByteArray::from("SHOP"), ByteArray::from("BANK")];
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<parquet::data_type::Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<FixedLenByteArrayType>().write_batch(&uuids, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let e = load(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    let ids: Vec<String> = (0..4).map(|node| e.id(node).to_string()).collect();
    let wanted =
        ["123e4567-e89b-12d3-a456-000000000005", "123e4567-e89b-12d3-a456-000000000006", "SHOP", "BANK"];
    assert_eq!(ids, wanted);
    assert!(e.notes.iter().any(|note| note.ends_with("such as `0x0aff`: key")), "{:?}", e.notes);

    // Arrow's own name of the type.
    let values: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_iter(uuids.iter().map(|uuid| uuid.data().to_vec())).unwrap());
    let mut field = Field::new("src", DataType::FixedSizeBinary(16), false);
    field.metadata_mut().insert("ARROW:extension:name", "arrow.uuid");
    let numbers = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field, numbers("dst"), numbers("time")]));
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let batch = RecordBatch::try_new(schema, vec![values, column(vec![1, 2]), column(vec![3, 4])]).unwrap();
    let path = dir.path().join("x.arrow");
    let mut writer = FileWriter::try_new(fs::File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let e = load(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    assert_eq!((e.id(0).to_string(), e.notes.len()), (wanted[0].to_owned(), 0));
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
