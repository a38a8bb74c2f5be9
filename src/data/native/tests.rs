//! Tests that write folders, read them back and damage them.
use crate::{
    data::{
        Classes, Events, Features, GivenNegatives, Ids, Part, ReadOptions, TimeFormat, bundled, load, npy,
        save,
    },
    error::{ErrorKind, Result},
    runtime::{NONE, StoredAs},
};
use std::{fs, path::Path};
use tempfile::tempdir;

fn read(dir: &Path) -> Result<Events> {
    load(dir.to_str().unwrap(), &ReadOptions::default())
}

/// Returns a stream with all optional fields.
fn full() -> Events {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.csv");
    fs::write(&path, "src,dst,time,label,f0,f1\n9,4,7.25,1,0.5,1\n4,2,7.5,0,2,3\n2,9,7,0,4,5\n").unwrap();
    let mut events = load(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    events.node_features = Some(Features::random(3, 5, 1));
    events.classes = Classes::new(9, 2, vec![7, 1, NONE, NONE, 0, NONE]).ok();
    events
}

/// Returns the sorted names in a folder.
fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_saved_stream_loads_equal_with_mapped_features() {
    let dir = tempdir().unwrap();
    for (name, events) in [("full", full()), ("wikipedia", bundled().unwrap())] {
        let path = dir.path().join("deep").join(name);
        save(&events, &path, false).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(back, events);
        assert!(back.edge_features.iter().chain(&back.node_features).all(Features::is_mapped));
        assert_eq!(path.join("ids.npy").exists(), events.ids.is_some());
    }
    let mut named = full();
    named.ids = Some(Ids::named(["b", "a, \"c\"", "7"].map(Into::into).to_vec()));
    named.time_format = TimeFormat::Pattern("%d.%m.%Y".into());
    let path = dir.path().join("deep/named");
    save(&named, &path, false).unwrap();
    assert_eq!(read(&path).unwrap(), named);
    fs::write(path.join("ids.json"), "{}").unwrap();
    let e = read(&path).unwrap_err().to_string();
    assert!(e.contains("ids.json: not a list of ids") && e.contains("; import the data again"), "{e}");
    fs::remove_dir_all(path).unwrap();
    assert_eq!(entries(&dir.path().join("deep")), ["full", "wikipedia"]);
}

#[test]
fn features_in_16_bits_keep_their_type_when_written_mapped_and_sorted() {
    let dir = tempdir().unwrap();
    for kept in [StoredAs::Bf16, StoredAs::F16] {
        let (path, mut events) = (dir.path().join(kept.name()), full());
        events.keep_features_as(kept).unwrap();
        save(&events, &path, false).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(back, events);
        assert!(
            back.edge_features.iter().chain(&back.node_features).all(|f| f.is_mapped() && f.kept() == kept)
        );
        // With the events in another order, the rows are sorted too.
        fs::remove_file(path.join("info.json")).unwrap();
        npy::write(path.join("late.npy"), &[3], &[3i64, 2, 1]).unwrap();
        fs::rename(path.join("late.npy"), path.join("time.npy")).unwrap();
        let sorted = read(&path).unwrap().edge_features.unwrap();
        assert_eq!((sorted.kept(), sorted.values()), (kept, &[2., 3., 0.5, 1., 4., 5.][..]));
    }
}

#[test]
fn features_of_the_options_replace_those_in_the_folder() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x");
    save(&full(), &path, false).unwrap();
    let file = dir.path().join("f.npy");
    npy::write(file.clone(), &[4, 1], &[9f32, 1., 2., 3.]).unwrap();
    let options = ReadOptions { edge_features: Some(file), ..ReadOptions::default() };
    let events = load(path.to_str().unwrap(), &options).unwrap();
    assert_eq!(events.edge_features.unwrap().values(), [1., 2., 3.]);
}

#[test]
fn an_existing_folder_is_replaced_only_by_force_and_only_if_it_is_a_data_set() {
    let dir = tempdir().unwrap();
    let (data, other, empty) = (dir.path().join("data"), dir.path().join("other"), dir.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    save(&full(), &empty, false).unwrap();
    save(&full(), &data, false).unwrap();
    let e = save(&bundled().unwrap(), &data, false).unwrap_err();
    assert_eq!((e.kind(), e.to_string().contains("--force")), (ErrorKind::Usage, true));
    assert_eq!(read(&data).unwrap().len(), 3);
    save(&bundled().unwrap(), &data, true).unwrap();
    assert_eq!(read(&data).unwrap().len(), 157_474);
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "x").unwrap();
    assert_eq!(save(&full(), &other, true).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(entries(&other), ["thesis.tex"]);
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let mut broken = full();
    broken.label = Some(vec![0.0]);
    assert!(save(&broken, dir.path().join("x"), false).is_err());
    let shape = super::Shape { events: 5, labelled: false, labels: 0, edge_width: 2 };
    let mut folder = super::FolderWriter::create(&dir.path().join("x"), false, &shape).unwrap();
    folder.src.extend(&[1, 2]).unwrap();
    assert_eq!(entries(dir.path()).len(), 1);
    drop(folder);
    assert!(entries(dir.path()).is_empty());
}

/// Writes a vector whose values have the type `descr`.
fn write_vector(dir: &Path, name: &str, descr: &str, data: &[u8]) {
    let n = data.len() / descr[2..].parse::<usize>().unwrap();
    fs::write(dir.join(name), npy::tests::bytes(descr, false, &format!("({n},)"), data)).unwrap();
}

fn f64_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Writes three events as a script might; the second is earlier than the first.
fn write_script_folder(dir: &Path) {
    write_vector(dir, "src.npy", "<i8", &[5i64, 7, 5].map(i64::to_le_bytes).concat());
    write_vector(dir, "dst.npy", "<f8", &f64_bytes(&[7., 9., 9.]));
    write_vector(dir, "time.npy", "<f8", &f64_bytes(&[1289241911.72836, 1289241911.5, 1289241912.]));
    write_vector(dir, "label.npy", "|u1", &[0, 1, 1]);
}

#[test]
fn a_folder_made_by_a_script_is_read_like_any_other_file() {
    let dir = tempdir().unwrap();
    write_script_folder(dir.path());
    let e = read(dir.path()).unwrap();
    assert_eq!(
        (e.src.as_slice(), e.dst.as_slice(), e.ticks_per_second),
        (&[1, 0, 0][..], &[2, 1, 2][..], 1e5)
    );
    assert_eq!((e.time, e.label.unwrap()), (vec![0, 22_836, 50_000], vec![1., 0., 1.]));
    assert_eq!(e.notes.len(), 2);
}

#[test]
fn sets_of_classes_of_a_script_are_sorted_with_its_events_and_checked() {
    let dir = tempdir().unwrap();
    write_script_folder(dir.path());
    let read_with_classes = |shape: &str, values: &[i16]| {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        fs::write(dir.path().join("classes.npy"), npy::tests::bytes("<i2", false, shape, &data)).unwrap();
        read(dir.path())
    };
    // The first two events change places, and their sets with them.
    let classes = read_with_classes("(3, 2)", &[3, -1, -1, -1, 5, 0]).unwrap().classes.unwrap();
    assert_eq!(
        (classes.count(), [classes.of(0), classes.of(1), classes.of(2)]),
        (6, [&[][..], &[3], &[0, 5]])
    );
    assert_eq!(read_with_classes("(3,)", &[2, 0, 1]).unwrap().classes.unwrap().of(1), [2]);
    for (shape, values, expected) in [
        ("(2, 1)", &[0, 1][..], "classes.npy: 2 values, but src.npy has 3; "),
        ("(3, 1)", &[0, -2, 1], "classes.npy: row 1: -2 is not a class; "),
        ("(3, 1, 1)", &[0, 0, 1], "classes.npy: sets of classes of shape [3, 1, 1]; "),
    ] {
        let text = read_with_classes(shape, values).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn wrong_arrays_of_a_script_are_noted_or_refused() {
    let dir = tempdir().unwrap();
    write_script_folder(dir.path());
    let write = |name: &str, descr: &str, data: &[u8]| write_vector(dir.path(), name, descr, data);
    let message = || read(dir.path()).unwrap_err().to_string();
    write("time.npy", "<f4", &[1f32, 2., 3.].map(f32::to_le_bytes).concat());
    assert!(read(dir.path()).unwrap().notes.iter().any(|n| n.contains("32-bit")));
    write("time.npy", "<f8", &f64_bytes(&[1., f64::NAN, 2.]));
    assert!(message().contains("time.npy: value 1: `NaN` is not a time"));
    write("time.npy", "<i8", &[1i64, 2].map(i64::to_le_bytes).concat());
    assert!(message().contains("time.npy: 2 values, but src.npy has 3"));
    write("dst.npy", "<f8", &f64_bytes(&[7., 9.5, 9.]));
    assert!(message().contains("dst.npy: value 1 is 9.5, which is not a node id"));
    fs::write(dir.path().join("dst.npy"), npy::tests::bytes("<u8", false, "(1, 3)", &[0; 24])).unwrap();
    assert!(message().contains("dst.npy: an array of shape [1, 3] instead of a vector"));
    write("src.npy", "<i8", &[5i64, -7, 5].map(i64::to_le_bytes).concat());
    assert!(message().contains("src.npy: value 1 is -7"));
}

#[test]
fn negatives_of_a_script_have_the_ids_of_its_events() {
    let dir = tempdir().unwrap();
    let file = |name: &str, shape: &str, values: &[i32]| {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        fs::write(dir.path().join(name), npy::tests::bytes("<i4", false, shape, &data)).unwrap();
    };
    file("src.npy", "(4,)", &[5, 7, 5, 7]);
    file("dst.npy", "(4,)", &[9, 9, 11, 9]);
    file("time.npy", "(4,)", &[1, 2, 3, 4]);
    file("val_negatives.npy", "(2, 2)", &[11, 5, -1, -1]);
    file("test_negatives.npy", "(1, 2)", &[-1, 9]);
    let (path, e) = (dir.path().to_str().unwrap(), read(dir.path()).unwrap());
    let given = GivenNegatives::beside(path, Part::Val, &e, 1..3).unwrap().unwrap();
    assert_eq!((given.first, given.of(1), given.of(2), given.most()), (1, &[3, 0][..], &[][..], 2));
    let both = GivenNegatives::all_beside(path, &e).unwrap();
    assert_eq!((both[0].as_ref(), both[1].as_ref().unwrap().of(3)), (Some(&given), &[2][..]));

    let message = |part| GivenNegatives::beside(path, part, &e, 1..3).unwrap_err().to_string();
    assert!(
        message(Part::Test)
            .contains("test_negatives.npy: 1 rows of negatives for the 2 events of the part; ")
    );
    file("val_negatives.npy", "(2, 2)", &[11, 5, 6, -1]);
    let text = message(Part::Val);
    assert!(
        text.contains("val_negatives.npy: event 2 has the negative 6, which is not a node of the"),
        "{text}"
    );
    file("val_negatives.npy", "(2,)", &[11, 5]);
    assert!(message(Part::Val).contains("an array of shape [2] instead of [events, negatives]"));
    file("val_negatives.npy", "(2, 0)", &[]);
    let none = GivenNegatives::beside(path, Part::Val, &e, 1..3).unwrap().unwrap();
    assert_eq!((none.events(), none.of(2), none.most()), (2, &[][..], 0));
    file("val_negatives.npy", "(4, 1)", &[5, 5, 5, 5]);
    let text = GivenNegatives::all_beside(path, &e).unwrap_err().to_string();
    assert!(text.contains("val_negatives.npy: 4 rows, more than the stream has events; "), "{text}");
}

#[test]
fn a_folder_that_contradicts_itself_is_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x");
    save(&full(), &path, false).unwrap();
    let info = fs::read_to_string(path.join("info.json")).unwrap();
    for (from, to, expected) in [
        ("\"schema\": 1", "\"schema\": 2", "schema 2 is not supported by this version, which reads 1"),
        ("\"events\": 3", "\"events\": 4", "3 events in src.npy, 4 expected"),
        ("\"nodes\": 3", "\"nodes\": 2", "outside 0..2"),
        ("\"classes\": 9", "\"classes\": 5", "classes.npy: event 0 has class 7, there are 5"),
        ("\"name\"", "name", "not a data set's description"),
    ] {
        fs::write(path.join("info.json"), info.replace(from, to)).unwrap();
        let e = read(&path).unwrap_err();
        assert!(e.kind() == ErrorKind::Data && e.to_string().contains(expected), "{e}");
    }
    fs::write(path.join("info.json"), info).unwrap();
    let options = ReadOptions { bipartite: Some(true), ..ReadOptions::default() };
    assert_eq!(load(path.to_str().unwrap(), &options).unwrap_err().kind(), ErrorKind::Usage);
}
