//! Tests of every layout and every kind of fault, through [`load`].
use super::*;
use crate::{Events, load, npy};
use proptest::prelude::*;
use std::{fs, io::Write};
use tempfile::{TempDir, tempdir};
use tgnn::error::ErrorKind;

pub(super) fn write(name: &str, content: impl AsRef<[u8]>) -> (TempDir, String) {
    let dir = tempdir().unwrap();
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

pub(super) fn read_with(content: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Events> {
    let (_dir, path) = write("events.csv", content);
    load(&path, options)
}

pub(super) fn read(content: impl AsRef<[u8]>) -> Result<Events> {
    read_with(content, &ReadOptions::default())
}

pub(super) fn columns(text: &str) -> ReadOptions {
    ReadOptions { columns: Some(text.parse().unwrap()), ..ReadOptions::default() }
}

pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(content).unwrap();
    gz.finish().unwrap()
}

fn npy_beside(path: &str, name: &str, rows: usize, cols: usize) -> PathBuf {
    let file = Path::new(path).with_file_name(name);
    let values: Vec<f32> = (0..rows * cols).map(|v| v as f32).collect();
    npy::write(file.clone(), &[rows, cols], &values).unwrap();
    file
}

/// Returns the error text of `content` without the path of the temporary folder.
pub(super) fn fault(content: impl AsRef<[u8]>, options: &ReadOptions) -> String {
    let e = read_with(content, options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Data);
    let text = e.to_string();
    assert!(text.contains("; ") && !text.contains('\n'), "no remedy, or not one line: {text}");
    text[text.find("events.csv").unwrap()..].to_owned()
}

#[test]
fn jodie_numbers_users_and_items_apart() {
    let text = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n\
                0,0,0.0,0,0.5,1\n1,1,54.0,1,2,-3e-1\n0,1,54.0,0,4,5\n";
    let e = read(text).unwrap();
    assert_eq!(
        (e.src.as_slice(), e.dst.as_slice(), e.first_destination),
        (&[0, 1, 0][..], &[2, 3, 3][..], Some(2))
    );
    assert_eq!((e.time.as_slice(), e.ticks_per_second), (&[0, 54, 54][..], 1.0));
    assert_eq!(e.label.unwrap(), [0., 1., 0.]);
    assert_eq!(e.edge_features.unwrap().values(), [0.5, 1., 2., -0.3, 4., 5.]);
    assert_eq!(e.ids.unwrap().numbers().unwrap(), [0, 1, 0, 1]);
    let e =
        read("user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n0,0,1,0\n").unwrap();
    assert!(e.edge_features.is_none());
    let e = read("user_id,item_id,timestamp,state_label\n0,0,1,0,7,8\n").unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [7., 8.]);
}

#[test]
fn a_plain_header_keeps_disjoint_ids_as_they_are() {
    let e = read("u,i,ts,label\n0,2,0,0\n1,3,36,0\n1,3,77,1\n").unwrap();
    assert_eq!((e.dst.as_slice(), e.first_destination), (&[2, 3, 3][..], Some(2)));
    assert!(e.ids.is_none() && e.notes.is_empty());
}

#[test]
fn dyglib_finds_its_features_beside_the_events_with_and_without_padding() {
    let text = ",u,i,ts,label,idx\n0,1,2,5.0,0.0,1\n1,2,3,6.0,1.0,2\n";
    for (name, rows, first) in [("ml_x.npy", 3, 2.0), ("ml_x_edge_features.npy", 2, 0.0)] {
        let (_dir, path) = write("ml_x.csv", text);
        npy_beside(&path, name, rows, 2);
        npy_beside(&path, "ml_x_node.npy", 4, 1);
        let e = load(&path, &ReadOptions::default()).unwrap();
        assert_eq!((e.name.as_str(), e.src.to_vec(), e.dst.to_vec()), ("x", vec![0, 1], vec![1, 2]));
        assert_eq!(e.edge_features.unwrap().row(0)[0], first);
        assert_eq!(e.node_features.unwrap().values(), [1., 2., 3.]);
    }
}

#[test]
fn rows_of_features_that_do_not_match_the_events_are_refused() {
    let (_dir, path) = write("ml_x.csv", ",u,i,ts,label,idx\n0,1,2,5,0,1\n1,2,3,6,1,2\n");
    let file = npy_beside(&path, "ml_x.npy", 5, 2);
    let text = load(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(text.contains("ml_x.npy: 5 rows of features for 2 events; "), "{text}");
    fs::write(&path, ",u,i,ts,label,idx\n0,1,2,5,0,1\n1,2,3,6,1,4\n").unwrap();
    fs::remove_file(&file).unwrap();
    assert!(load(&path, &ReadOptions::default()).is_ok());
    npy_beside(&path, "ml_x.npy", 2, 2);
    let text = load(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(text.contains("ml_x.npy: 2 rows of features for event numbers from 1 to 4; write"), "{text}");
    // The numbers are rows of the file, in any order; row 0 may be padding that the file has not.
    for (rows, wanted) in [(3, [4., 5., 2., 3.]), (2, [2., 3., 0., 1.])] {
        fs::write(&path, ",u,i,ts,label,idx\n0,1,2,5,0,2\n1,2,3,6,1,1\n").unwrap();
        fs::remove_file(&file).unwrap();
        npy_beside(&path, "ml_x.npy", rows, 2);
        let e = load(&path, &ReadOptions::default()).unwrap();
        assert_eq!(e.edge_features.unwrap().values(), wanted);
    }
}

#[test]
fn feature_files_given_by_the_user_work_with_any_layout_and_are_sorted_with_the_events() {
    let (_dir, path) = write("x.txt", "0 1 9\n1 2 3\n");
    let options = ReadOptions {
        edge_features: Some(npy_beside(&path, "edges.npy", 2, 1)),
        node_features: Some(npy_beside(&path, "nodes.npy", 3, 2)),
        ..ReadOptions::default()
    };
    let e = load(&path, &options).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [1., 0.]);
    assert_eq!(e.node_features.unwrap().cols(), 2);
}

#[test]
fn tgl_data_is_named_after_its_folder_and_found_in_it() {
    let (dir, path) = write("WIKI/edges.csv", ",src,dst,time,ext_roll\n0,0,1,0.0,0\n1,1,2,9.5,2\n");
    for path in [path.as_str(), dir.path().join("WIKI").to_str().unwrap()] {
        let e = load(path, &ReadOptions::default()).unwrap();
        assert_eq!((e.name.as_str(), e.time.to_vec(), e.ticks_per_second), ("WIKI", vec![0, 95], 10.0));
        assert!(e.label.is_none() && e.edge_features.is_none());
        assert_eq!(
            e.notes,
            ["ext_roll, which is not used, has 1 events to train, 0 to validate and 1 to test"]
        );
    }
    for (tensor, file) in [("f32.pt", "edge_features.pt"), ("old.pt", "node_features.pt")] {
        fs::copy(format!("../../tests/golden/foreign/{tensor}"), dir.path().join("WIKI").join(file)).unwrap();
    }
    let e = load(&path, &ReadOptions::default());
    let text = e.unwrap_err().to_string();
    assert!(
        text.contains("node_features.pt: 2 rows of features for 3 nodes with ids up to 2; write"),
        "{text}"
    );
    fs::remove_file(dir.path().join("WIKI/node_features.pt")).unwrap();
    let e = load(&path, &ReadOptions::default()).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [0., 0.5, 1., 1.5, 2., 2.5]);
    let text = fault(",src,dst,time,ext_roll\n0,0,1,0.0,0\n1,1,2,9.5,3\n", &ReadOptions::default());
    assert!(text.starts_with("events.csv:3:11: `3` is too large for a part; write 0, 1 or 2"), "{text}");
}

#[test]
fn snap_text_takes_any_delimiter_comments_and_line_ends() {
    for text in [
        "0 1 5\n1 2 6",
        "# c\n% d\n\n0\t1\t5\r\n1\t2\t6\r\n",
        " 0  1 \t5\n 1 2 6 \n",
        "0;1;5\n1;2;6",
        "0, 1, 5\n1, 2, 6",
    ] {
        let e = read(text).unwrap();
        assert_eq!(
            (e.src.to_vec(), e.dst.to_vec(), e.time.to_vec(), e.origin),
            (vec![0, 1], vec![1, 2], vec![0, 1], 5),
            "{text:?}"
        );
    }
}

#[test]
fn a_signed_rating_is_a_feature_with_or_without_a_header() {
    for text in [
        "from,to,feature,time\n6,2,4,1289241911.72836\n2,6,-5,1289241941.5\n",
        "6,2,4,1289241911.72836\n2,6,-5,1289241941.5\n",
    ] {
        let e = read(text).unwrap();
        assert_eq!(e.edge_features.unwrap().values(), [4., -5.]);
        assert_eq!(
            (e.ticks_per_second, e.origin, e.time.to_vec()),
            (1e5, 128_924_191_172_836, vec![0, 2_977_164])
        );
        assert_eq!(e.ids.unwrap().numbers().unwrap(), [2, 6]);
    }
}

#[test]
fn a_header_may_name_the_columns_in_any_order() {
    let e = read("time;weight;Target;Source\n5;0.5;1;0\n6;1.5;2;1\n").unwrap();
    assert_eq!((e.src.to_vec(), e.dst.to_vec()), (vec![0, 1], vec![1, 2]));
    assert_eq!(e.edge_features.unwrap().values(), [0.5, 1.5]);
    let e = read("timestamp\tsender\treceiver\tcomment here\n5\t0\t1\thello there\n").unwrap();
    assert_eq!(e.notes, ["columns not read: comment here"]);
}

#[test]
fn columns_given_by_the_user_take_precedence() {
    let e =
        read_with("5 7 0 1 2 3\n6 8 1 2 4 5\n", &columns("src=3,dst=4,time=1,label=2,features=5-")).unwrap();
    assert_eq!(
        (e.src.to_vec(), e.dst.to_vec(), e.origin, e.label.unwrap()),
        (vec![0, 1], vec![1, 2], 5, vec![7., 8.])
    );
    assert_eq!(e.edge_features.unwrap().values(), [2., 3., 4., 5.]);
    let e = read_with("a,b,c\n5,0,1\n", &columns("src=2,dst=3,time=1")).unwrap();
    assert_eq!(e.origin, 5);
}

#[test]
fn a_format_given_by_the_user_takes_precedence() {
    let jodie = ReadOptions { format: Some(Format::Jodie), ..ReadOptions::default() };
    let e = read_with("0,0,5,1,0.5\n", &jodie).unwrap();
    assert_eq!((e.first_destination, e.edge_width(), e.label), (Some(1), 1, Some(vec![1.])));
    let native = ReadOptions { format: Some(Format::Native), ..ReadOptions::default() };
    assert_eq!(read_with("0 1 2", &native).unwrap_err().kind(), ErrorKind::Usage);
    assert!(
        "csv"
            .parse::<Format>()
            .unwrap_err()
            .to_string()
            .ends_with("give jodie, dyglib, tgl, snap, signed, table, tgb, tkg or native")
    );
    assert!(Format::ALL.iter().all(|f| f.to_string().parse::<Format>().unwrap() == *f));
}

#[test]
fn gzip_is_recognised_by_content_and_damage_is_reported() {
    let text: String = (0..5000).map(|i| format!("{} {} {i}\n", i % 7, (i + 1) % 7)).collect();
    let whole = gzip(text.as_bytes());
    assert_eq!(read(&whole).unwrap(), read(&text).unwrap());
    assert_eq!(read([whole.clone(), gzip(b"1 2 9000\n")].concat()).unwrap().len(), 5001);
    let text = fault(&whole[..whole.len() / 2], &ReadOptions::default());
    assert!(text.contains("gzip stream is damaged"), "{text}");
}

#[test]
fn out_of_order_events_are_sorted_with_a_note_or_refused_with_the_line() {
    let text = "# c\n0 1 5\n1 2 4\n0 2 5\n";
    let e = read(text).unwrap();
    assert_eq!((e.src.to_vec(), e.notes), (vec![1, 0, 0], vec!["sorted 1 out-of-order event".to_owned()]));
    let strict = ReadOptions { strict: true, ..ReadOptions::default() };
    let text = fault(text, &strict);
    assert!(text.starts_with("events.csv:3:5: this event is earlier"), "{text}");
    assert!(read_with("0 1 5\n1 2 5\n", &strict).is_ok());
}

#[test]
fn one_event_is_enough() {
    let e = read("7 7 1082040961").unwrap();
    assert_eq!((e.len(), e.nodes, e.origin, e.span_seconds()), (1, 1, 1_082_040_961, 0.0));
}

#[test]
fn a_byte_order_mark_is_not_data() {
    assert_eq!(read("\u{feff}src,dst,time\n0,1,2\n").unwrap().len(), 1);
}

#[test]
fn a_time_first_file_without_a_header_is_read_with_a_warning() {
    let text: String = (0..30).map(|i| format!("{} {} {}\n", 100 + i, i % 5, (i * 7) % 6)).collect();
    assert!(read(text).unwrap().notes.iter().any(|n| n.contains("--columns src=2,dst=3,time=1")));
}

#[test]
fn every_error_names_line_and_column_and_a_remedy() {
    let plain = ReadOptions::default();
    for (content, wanted) in [
        ("0 1 5\n1 2 6s\n", "events.csv:2:5: `6s` is not a time; write seconds"),
        ("0,1,5\n1,,6\n", "events.csv:2:3: an empty field is not a node id; "),
        ("0 1 1e30\n", "events.csv:1:5: `1e30` is too large for a time; "),
        ("0 1 5\n1 2 6 7\n", "events.csv:2:7: this row has 4 columns, the first one has 3; fix"),
        ("0 1 5\n1 2\n", "events.csv:2: this row has 2 columns, the first one has 3; fix"),
        ("u,i,ts,label,f0\n0,1,2,0,inf\n", "events.csv:2:9: `inf` is not a finite"),
        ("u,i,ts,label\n0,1,2,inf\n", "events.csv:2:7: `inf` is not a finite"),
        (
            "u,i,label\n0,1,2\n",
            "events.csv: no column is named like a time; give --columns time=NAME; the columns are u, i, label",
        ),
        (
            "a,b,c\n0,1,2\n",
            "events.csv: no column is named like a source or a destination or a time; give --columns src=NAME,dst",
        ),
        (
            "0 1 2 3 4\n",
            "events.csv: no known layout has 5 columns, separated by blanks, without a header; name the layout",
        ),
        ("0,1,2,3\n", "events.csv: no known layout has 4 columns, separated by commas"),
        ("", "events.csv: the file is empty; "),
        ("# only\n\n", "events.csv: there are only comments: every line starts with # or %; "),
        ("u,i,ts\n", "events.csv: there is a header but no event; "),
        ("{\"edges\":\n []}", "events.csv: is JSON, but not one object per line; "),
        ("PAR1\0\0", "events.csv: the Parquet file is damaged"),
        ("\x7fELF\0\0", "events.csv: is a binary file; "),
        (
            "\"0\",\"1\",\"z\"\n",
            "events.csv:1:10: `z` is not a time; write 2023-11-14T22:13:29 or seconds, or give",
        ),
    ] {
        let text = fault(content, &plain);
        assert!(text.starts_with(wanted), "{content:?}: {text}");
    }
    let text = fault("0 1 5\n", &columns("src=1,dst=2,time=4"));
    assert!(
        text.starts_with("events.csv:1: the row has 3 columns, so there is no column 4 to hold the time;"),
        "{text}"
    );
}

#[test]
fn a_folder_without_events_is_refused() {
    let dir = tempdir().unwrap();
    let text = load(dir.path().to_str().unwrap(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(text.contains("no src.npy, dst.npy and time.npy"), "{text}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[0-9a-z,;# .%\"\t\n-]{0,80}") {
        let _ = read(text);
    }

    #[test]
    fn what_is_written_as_text_is_read_back(
        events in proptest::collection::vec((0u32..40, 0u32..40, 0i64..1_000_000), 1..40), digits in 0u32..7,
    ) {
        let scale = 10i64.pow(digits);
        let text: String = events
            .iter()
            .map(|(s, d, t)| format!("{s},{d},{}.{:0width$}\n", t / scale, t % scale, width = digits.max(1) as usize))
            .collect();
        let e = read(text).unwrap();
        let mut times: Vec<_> = events.iter().map(|e| e.2).collect();
        times.sort_unstable();
        let factor = scale / e.ticks_per_second as i64;
        let back: Vec<_> = e.time.iter().map(|t| (t + e.origin) * factor).collect();
        prop_assert_eq!(back, times);
    }
}
