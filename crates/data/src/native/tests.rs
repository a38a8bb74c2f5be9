//! Tests that write folders, read them back and damage them.
use crate::{
    Classes, Events, Features, GivenNegatives, Ids, Missing, Part, ReadOptions, TimeFormat, bundled, load,
    npy, save,
};
use std::{fs, path::Path};
use tempfile::tempdir;
use tgnn::{
    error::{ErrorKind, Result},
    runtime::{NONE, StoredAs},
};

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
    let mut labelled = full();
    labelled.label = Some(vec![1.0, -1.0, 0.0]);
    labelled.label_names = None;
    save(&labelled, dir.path().join("numbers"), false).unwrap();
    assert_eq!(read(&dir.path().join("numbers")).unwrap(), labelled);
    labelled.label = Some(vec![1.0, f32::NAN, 0.0]);
    labelled.label_names = Some(["fraud".into(), "legit".into()].into());
    save(&labelled, dir.path().join("texts"), false).unwrap();
    let back = read(&dir.path().join("texts")).unwrap();
    assert_eq!(back.label_names, labelled.label_names);
    let labels = back.label.unwrap();
    assert!(labels[0] == 1.0 && labels[1].is_nan() && labels[2] == 0.0, "{labels:?}");
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
    assert_eq!((e.time.to_vec(), e.label.unwrap()), (vec![0, 22_836, 50_000], vec![1., 0., 1.]));
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
        (classes.count(), [classes.get(0), classes.get(1), classes.get(2)]),
        (6, [&[][..], &[3], &[0, 5]])
    );
    assert_eq!(read_with_classes("(3,)", &[2, 0, 1]).unwrap().classes.unwrap().get(1), [2]);
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
    write("time.npy", "<i8", &[1i64, 2, 3].map(i64::to_le_bytes).concat());
    write("dst.npy", "<f8", &f64_bytes(&[7., 9.5, 9.]));
    assert!(message().contains("dst.npy: value 1: 9.5 is not a node id; ids are integers from 0, or text"));
    fs::write(dir.path().join("dst.npy"), npy::tests::bytes("<u8", false, "(1, 3)", &[0; 24])).unwrap();
    assert!(message().contains("dst.npy: an array of shape [1, 3] instead of a vector"));
    write("dst.npy", "<i8", &[7i64, 9, 9].map(i64::to_le_bytes).concat());
    write("src.npy", "<i8", &[5i64, -7, 5].map(i64::to_le_bytes).concat());
    assert!(message().contains("src.npy: value 1: -7 is not a node id"));
}

/// Writes three events between numbered nodes, at times of the type `descr`.
fn write_timed(dir: &Path, descr: &str, times: &[i64]) {
    write_vector(dir, "src.npy", "<i8", &[5i64, 7, 5].map(i64::to_le_bytes).concat());
    write_vector(dir, "dst.npy", "<i8", &[7i64, 9, 9].map(i64::to_le_bytes).concat());
    let data: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
    fs::write(dir.join("time.npy"), npy::tests::bytes(descr, false, &format!("({},)", times.len()), &data))
        .unwrap();
}

#[test]
fn times_of_a_script_are_read_in_their_unit_with_a_note_or_in_that_of_the_options() {
    let dir = tempdir().unwrap();
    let start = 1_700_000_000i64;
    for (factor, unit) in [(1_000, "ms"), (1_000_000, "us"), (1_000_000_000, "ns")] {
        write_timed(dir.path(), "<i8", &[0, 60, 43_200].map(|t| (start + t) * factor));
        let e = read(dir.path()).unwrap();
        assert_eq!((e.span_seconds(), e.time_scale().text(0)), (43_200.0, (start * factor).to_string()));
        let note = format!("times read in {unit}, by their size; else give --time-format s");
        assert!(e.notes.contains(&note), "{:?}", e.notes);
        let options = ReadOptions { time_format: Some(TimeFormat::Seconds), ..ReadOptions::default() };
        let e = load(dir.path().to_str().unwrap(), &options).unwrap();
        assert_eq!(e.span_seconds(), 43_200.0 * factor as f64);
    }
    let options = ReadOptions { time_format: "h".parse().ok(), ..ReadOptions::default() };
    write_timed(dir.path(), "<i8", &[1, 2, 4]);
    assert_eq!(load(dir.path().to_str().unwrap(), &options).unwrap().span_seconds(), 3.0 * 3_600.0);
}

#[test]
fn numbers_of_a_script_that_are_dates_are_read_as_dates_with_a_note() {
    let dir = tempdir().unwrap();
    write_timed(dir.path(), "<i8", &[20_200_131, 20_200_201, 20_200_301]);
    let e = read(dir.path()).unwrap();
    assert_eq!((e.span_seconds(), e.time_scale().text(0).as_str()), (30.0 * 86_400.0, "20200131"));
    assert!(e.notes.iter().any(|note| note.contains("--time-format %Y%m%d;")), "{:?}", e.notes);
    let options = ReadOptions { time_format: Some(TimeFormat::Seconds), ..ReadOptions::default() };
    assert_eq!(load(dir.path().to_str().unwrap(), &options).unwrap().span_seconds(), 170.0);
}

#[test]
fn datetime64_is_read_in_every_unit_and_timedelta64_as_seconds() {
    let dir = tempdir().unwrap();
    for (descr, times, first, span) in [
        (
            "<M8[ns]",
            [1_700_000_000_500_000_000, 1_700_000_001_000_000_000, 1_700_000_002_000_000_000],
            "2023-11-14T22:13:20.500",
            1.5,
        ),
        (
            "<M8[us]",
            [1_700_000_000_000_000, 1_700_000_000_000_000, 1_700_000_060_000_000],
            "2023-11-14T22:13:20",
            60.0,
        ),
        ("<M8[10ms]", [100, 200, 300], "1970-01-01T00:00:01", 2.0),
        ("<M8[s]", [-1, 0, 59], "1969-12-31T23:59:59", 60.0),
        ("<M8[m]", [1, 2, 3], "1970-01-01T00:01:00", 120.0),
        ("<M8[h]", [1, 2, 3], "1970-01-01T01:00:00", 7_200.0),
        ("<M8[D]", [19_675, 19_676, 19_677], "2023-11-14T00:00:00", 172_800.0),
        ("<M8[W]", [1, 2, 3], "1970-01-08T00:00:00", 1_209_600.0),
        ("<M8[M]", [-1, 0, 1], "1969-12-01T00:00:00", 62.0 * 86_400.0),
        ("<M8[Y]", [30, 31, 32], "2000-01-01T00:00:00", 731.0 * 86_400.0),
        ("<m8[ms]", [0, 500, 2_500], "0", 2.5),
        ("<m8[D]", [0, 1, 2], "0", 172_800.0),
    ] {
        write_timed(dir.path(), descr, &times);
        let e = read(dir.path()).unwrap();
        assert_eq!((e.time_scale().text(0).as_str(), e.span_seconds()), (first, span), "{descr}");
    }
    let options = ReadOptions { time_format: "ms".parse().ok(), ..ReadOptions::default() };
    let e = load(dir.path().to_str().unwrap(), &options).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Usage && e.to_string().contains("time.npy has the type `<m8[D]`, which"),
        "{e}"
    );
    for (descr, times, said) in [
        ("<M8[s]", [0, i64::MIN, 1], "time.npy: value 1: an empty field is not a time; "),
        (
            "<M8[Y]",
            [0, i64::MAX, 1],
            "time.npy: value 1: 9223372036854775807 of type `<M8[Y]` is too far away; ",
        ),
        ("<M8", [0, 1, 2], "time.npy: times of type `<M8` have no unit of a fixed length; convert them, "),
        ("<m8[M]", [0, 1, 2], "time.npy: times of type `<m8[M]` have no unit of a fixed length; "),
        ("|O", [0, 1, 2], "time.npy: values of type `|O` are Python objects; convert them, "),
    ] {
        write_timed(dir.path(), descr, &times);
        let e = read(dir.path()).unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    }
}

#[test]
fn text_of_a_script_is_ids_and_dates() {
    let dir = tempdir().unwrap();
    write_timed(dir.path(), "<i8", &[1, 2, 3]);
    let wide = |names: [&str; 3], swap: bool| -> Vec<u8> {
        let letter = |c: char| if swap { (c as u32).to_be_bytes() } else { (c as u32).to_le_bytes() };
        let padded = |name: &str| {
            name.chars().chain(std::iter::repeat('\0')).take(10).flat_map(letter).collect::<Vec<_>>()
        };
        names.iter().flat_map(|name| padded(name)).collect()
    };
    let write = |name: &str, descr: &str, data: &[u8]| {
        fs::write(dir.path().join(name), npy::tests::bytes(descr, false, "(3,)", data)).unwrap();
    };
    write("src.npy", "<U10", &wide(["Zürich", "Bern", "Zürich"], false));
    write("dst.npy", "|S4", b"a\0\0\0bern7\0\0\0");
    write("time.npy", ">U10", &wide(["2023-11-14", "2023-11-15", "2023-11-16"], true));
    let e = read(dir.path()).unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|v| e.id(v).to_string()), ["Zürich", "Bern", "a", "bern", "7"]);
    assert_eq!((e.time_scale().text(0), e.span_seconds()), ("2023-11-14T00:00:00".into(), 172_800.0));
    write("src.npy", "<U10", &[0xff; 120]);
    let said = read(dir.path()).unwrap_err().to_string();
    assert!(said.contains("src.npy: value 0 is not Unicode"), "{said}");
    write("src.npy", "<U10", &[0; 80]);
    assert!(read(dir.path()).unwrap_err().to_string().contains("shape [3], but 2 values in the file"));
}

#[test]
fn missing_values_of_a_script_follow_the_rule_of_the_options() {
    let dir = tempdir().unwrap();
    write_timed(dir.path(), "<M8[s]", &[10, 20, 30]);
    npy::write(dir.path().join("classes.npy"), &[3, 1], &[4i32, 5, 6]).unwrap();
    npy::write(dir.path().join("edge_features.npy"), &[3, 2], &[1f32, 2., 3., f32::NAN, 5., 6.]).unwrap();
    npy::write(dir.path().join("features.npy"), &[1], &[1f32]).unwrap();
    let with =
        |missing| load(dir.path().to_str().unwrap(), &ReadOptions { missing, ..ReadOptions::default() });
    let e = with(Missing::Zero).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [1., 2., 3., 0., 5., 6.]);
    assert!(
        e.notes
            .iter()
            .any(|n| n.starts_with("1 missing value of ") && n.ends_with("edge_features.npy: read as 0"))
    );
    assert!(e.notes.iter().any(|n| n == "arrays not read: features.npy"), "{:?}", e.notes);
    let e = with(Missing::Drop).unwrap();
    assert_eq!((e.time.to_vec(), e.edge_features.unwrap().values()), (vec![0, 20], &[1., 2., 5., 6.][..]));
    assert_eq!([0, 1].map(|i| e.classes.as_ref().unwrap().get(i)[0]), [4, 6]);
    assert!(e.notes.iter().any(|n| n == "left out 1 row with a missing value"), "{:?}", e.notes);
    let said = with(Missing::Refuse).unwrap_err().to_string();
    assert!(said.contains("edge_features.npy: the feature in row 1, column 1 is NaN; "), "{said}");
    // Rows left out for their times keep the other arrays in step.
    write_timed(dir.path(), "<M8[s]", &[i64::MIN, 20, 30]);
    let e = with(Missing::Drop).unwrap();
    assert_eq!((e.time.to_vec(), e.edge_features.unwrap().values()), (vec![0], &[5., 6.][..]));
    assert_eq!(e.classes.unwrap().get(0), [6]);
}

#[test]
fn options_that_an_imported_folder_cannot_follow_are_refused_and_features_may_be_a_table() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x");
    save(&full(), &path, false).unwrap();
    let read = |options: &ReadOptions| load(path.to_str().unwrap(), options);
    let refused = [
        ReadOptions { time_format: Some(TimeFormat::Milliseconds), ..ReadOptions::default() },
        ReadOptions { missing: Missing::Drop, ..ReadOptions::default() },
        ReadOptions { columns: "src=1".parse().ok(), ..ReadOptions::default() },
    ];
    for (options, flag) in refused.into_iter().zip(["--time-format", "--missing", "--columns"]) {
        let e = read(&options).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Usage && e.to_string().ends_with(&format!("; leave out {flag}")),
            "{e}"
        );
    }
    let nodes = dir.path().join("nodes.csv");
    fs::write(&nodes, "id,age\n4,1\n9,\n").unwrap();
    let e = read(&ReadOptions { node_features: Some(nodes), ..ReadOptions::default() }).unwrap();
    assert_eq!(e.node_features.unwrap().values(), [0., 1., 0.]);
    let edges = dir.path().join("edges.csv");
    fs::write(&edges, "a\n1\nNA\n3\n").unwrap();
    let drop = ReadOptions { edge_features: Some(edges), missing: Missing::Drop, ..ReadOptions::default() };
    assert!(
        read(&drop).unwrap_err().to_string().starts_with("events of an imported data set cannot be left out")
    );
    let zero = ReadOptions { missing: Missing::Zero, ..drop };
    assert_eq!(read(&zero).unwrap().edge_features.unwrap().values(), [1., 0., 3.]);
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
    assert_eq!((given.first, given.get(1), given.get(2), given.most()), (1, &[3, 0][..], &[][..], 2));
    let both = GivenNegatives::all_beside(path, &e).unwrap();
    assert_eq!((both[0].as_ref(), both[1].as_ref().unwrap().get(3)), (Some(&given), &[2][..]));

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
    assert_eq!((none.events(), none.get(2), none.most()), (2, &[][..], 0));
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
