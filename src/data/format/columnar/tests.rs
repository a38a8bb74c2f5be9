//! Tests with valid and faulty tables written by PyArrow; see `tests/golden/foreign.py`.
use crate::{
    data::{Events, ReadOptions, load},
    error::{ErrorKind, Result},
};
use proptest::prelude::*;
use std::fs;

fn path(name: &str) -> String {
    format!("tests/golden/foreign/{name}.parquet")
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
