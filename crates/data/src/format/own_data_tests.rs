//! Tests of tables as people have them: names, dates, odd headers, missing cells, archives.
use super::tests::{columns, fault, gzip, read, read_with, write};
use crate::{Events, Format, Missing, NodeId, ReadOptions, TimeFormat, load};
use std::fs;
use tgnn::error::Result;

fn names(events: &Events) -> String {
    (0..events.nodes as u32).map(|v| events.id(v).to_string()).collect::<Vec<_>>().join(" ")
}

fn load_file(name: &str, content: impl AsRef<[u8]>) -> Result<Events> {
    let (_dir, path) = write(name, content);
    load(&path, &ReadOptions::default())
}

#[test]
fn names_and_dates_are_ids_and_times() {
    let e =
        read("origin,dest,time_hour\nEWR,IAH,2013-01-01T05:00:00Z\nLGA,IAH,2013-01-01T05:00:30Z\n").unwrap();
    assert_eq!((names(&e).as_str(), e.src.to_vec(), e.dst.to_vec()), ("EWR LGA IAH", vec![0, 1], vec![2, 2]));
    assert_eq!(
        (e.time.to_vec(), e.time_format, e.first_destination),
        (vec![0, 30], TimeFormat::Iso, Some(2))
    );
    let e = read("u36,p9,2023-11-14T22:13:29\nu37,u36,2023-11-14T22:13:30.5\n").unwrap();
    assert_eq!((names(&e).as_str(), e.ticks_per_second, e.time.to_vec()), ("u36 p9 u37", 10.0, vec![0, 15]));
    let e = read("2023-11-14 alice bob\n2023-11-15 bob alice\n").unwrap();
    assert_eq!((names(&e).as_str(), e.time.to_vec()), ("alice bob", vec![0, 86_400]));
    assert_eq!(read("a,b,1700000009250\nb,a,1700000009350\n").unwrap().ticks_per_second, 100.0);
}

#[test]
fn a_first_text_among_numbers_makes_all_ids_text_and_is_told() {
    let e = read("0 1 5\n1 x 6\n").unwrap();
    assert_eq!((names(&e).as_str(), e.notes.len()), ("0 1 x", 1));
    assert!(e.notes[0].starts_with("ids are text, because of `x`"), "{:?}", e.notes);
    let e = read("0,1,5\n1,-2,6\n99999999999999999999,007,7\n").unwrap();
    assert_eq!(names(&e), "0 1 -2 99999999999999999999 007");
}

#[test]
fn columns_may_be_named_and_the_rest_is_recognised() {
    let text = "when,from,who,to,km,kind\n2023-01-02,1,a,2,0.5,x\n2023-01-01,2,b,1,1.5,y\n";
    let e = read_with(text, &columns("src=WHO,features=km,one-hot=kind")).unwrap();
    assert_eq!((names(&e).as_str(), e.time.to_vec(), e.edge_width()), ("a b 2 1", vec![0, 86_400], 3));
    assert_eq!(e.edge_features.unwrap().values(), [1.5, 0., 1., 0.5, 1., 0.]);
    let e = read_with("a,b,d,t\n1,2,2023-01-01,05:30\n", &columns("src=1,dst=b,time=d+t")).unwrap();
    assert_eq!(e.origin % 86_400, 5 * 3600 + 1800);
    for (text, said) in [
        ("src=whom", "events.csv: there is no column `whom`; did you mean `who`?"),
        (
            "src=origin",
            "events.csv: there is no column `origin`; the columns are when, from, who, to, km, kind",
        ),
        ("time=9", "events.csv:2: the row has 6 columns, so there is no column 9 to hold the time; "),
    ] {
        let content = "when,from,who,to,km,kind\n2023-01-02,1,a,2,0.5,x\n";
        let text = fault(content, &columns(text));
        assert!(text.starts_with(said), "{text}");
    }
}

#[test]
fn a_header_that_names_two_of_three_columns_is_enough() {
    let e = read("user,movie,timestamp,weight\n1,1,10,3.5\n2,1,11,4\n").unwrap();
    assert_eq!(
        (e.nodes, e.first_destination, e.edge_features.unwrap().values()),
        (3, Some(2), &[3.5, 4.0][..])
    );
    assert!(
        e.notes.iter().any(|n| n.starts_with("no column is named like a destination: read `movie`")),
        "{:?}",
        e.notes
    );
    let e = read("id,payer,payee,amount,booked\n1,a,b,2.5,2023-01-01\n2,b,c,3.5,2023-01-02\n").unwrap();
    assert_eq!((names(&e).as_str(), e.span_seconds()), ("a b c", 86_400.0));
    let e = read("src,dst,created_at,updated_at\n1,2,2023-01-01,2023-02-01\n").unwrap();
    assert!(
        e.notes[0].starts_with("time is `created_at`; for another column, such as `updated_at`, give"),
        "{:?}",
        e.notes
    );
}

#[test]
fn missing_cells_follow_the_stated_rule() {
    let text = "src,dst,time,f0,f1\na,b,1,NA,2\n,b,2,1,1\nb,NA,3,1,nan\n";
    let said = fault(text, &ReadOptions::default());
    assert!(
        said.starts_with("events.csv:3:1: an empty field is not a node id; fill it in, or leave out"),
        "{said}"
    );
    let e = read("src,dst,time,f0,f1\na,b,1,NA,2\nb,NA,3,1,nan\n").unwrap();
    assert_eq!((names(&e).as_str(), e.edge_features.unwrap().values()), ("a b NA", &[0., 2., 1., 0.][..]));
    assert!(e.notes.iter().any(|n| n.starts_with("2 missing features read as 0")), "{:?}", e.notes);
    let with = |missing| read_with(text, &ReadOptions { missing, ..ReadOptions::default() });
    let e = with(Missing::Drop).unwrap_err().to_string();
    assert!(e.contains("there are no events"), "{e}");
    let e = with(Missing::Refuse).unwrap_err().to_string();
    assert!(
        e.contains("events.csv:2:7: an empty field is not a feature") || e.contains("events.csv:2:7: `NA`"),
        "{e}"
    );
    let dropped = "src,dst,time,f0\na,b,1,1\n,b,2,1\nb,NA,3,1\nb,a,,2\n";
    let e = read_with(dropped, &ReadOptions { missing: Missing::Drop, ..ReadOptions::default() }).unwrap();
    assert_eq!((names(&e).as_str(), e.notes[0].as_str()), ("a b NA", "left out 2 rows with a missing value"));
}

#[test]
fn quotes_may_hold_delimiters_and_line_ends() {
    let e = read("src,dst,time\r\n\"Miller, J.\",\"the \"\"x\"\"\",1\r\n\"two\nlines\",b,2\r\n").unwrap();
    assert_eq!(e.id(0), NodeId::parse("Miller, J."));
    assert_eq!([1, 2].map(|v| e.id(v).to_string()), ["two\nlines", "the \"x\""]);
    let said = fault("src,dst,time\na,b,1\n\"a,b,2\nb,a,3\n", &ReadOptions::default());
    assert!(said.starts_with("events.csv:3:1: a quote is opened and never closed; close it"), "{said}");
}

#[test]
fn hashed_text_adds_signed_counts_of_words() {
    let text = "src,dst,time,note\n1,2,1,hello Hello\n2,1,2,\n";
    let e = read_with(text, &columns("hashed=note:4")).unwrap();
    let features = e.edge_features.unwrap();
    let row: f32 = features.row(0).iter().map(|v| v.abs()).sum();
    assert_eq!((features.cols(), row, features.row(1)), (4, 2.0, &[0.0; 4][..]));
    let said = fault("src,dst,time,f0\n1,2,1,red\n", &ReadOptions::default());
    assert!(
        said.starts_with("events.csv:2:7: `red` is not a feature; write a number, or read the column as"),
        "{said}"
    );
}

#[test]
fn json_lines_are_rows() {
    let text = "{\"from\": \"u36\", \"to\": 9, \"time\": \"2023-11-14T22:13:29\", \"x\": [1, 2.5]}\n\
                {\"to\": \"p\", \"from\": 9, \"time\": \"2023-11-14T22:13:30Z\", \"x\": [3, null]}\n";
    let e = load_file("events.jsonl", text).unwrap();
    assert_eq!((names(&e).as_str(), e.time.to_vec()), ("u36 9 p", vec![0, 1]));
    assert_eq!(e.edge_features.unwrap().values(), [1., 2.5, 3., 0.]);
    for (line, said) in [
        ("{\"from\": 1, \"to\": 2}", "events.csv:3: `time`: an empty field is not a time; fill it in"),
        ("[1, 2, 3]", "events.csv:3: the line is not a JSON object; write one object per line"),
        (
            "{\"from\": 1, \"to\": {}, \"time\": 1}",
            "events.csv:3: `to`: a value of type object is not a node id",
        ),
        ("{\"from\": 1, \"to\": 2, \"time\": 1}", "events.csv:3: `time`: `1` is not a time; "),
    ] {
        let fault = fault(format!("{text}{line}\n"), &ReadOptions::default());
        assert!(fault.starts_with(said), "{fault}");
    }
}

/// Returns a tar archive of files.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn an_archive_of_days_is_one_stream_and_its_names_are_times() {
    let days =
        [("as/as19971109.txt", "# FromNodeId\tToNodeId\n1\t2\n2\t3\n"), ("as/as19971108.txt", "1\t2\n")];
    for content in [tar(&days), gzip(&tar(&days)), zstd::encode_all(&tar(&days)[..], 1).unwrap()] {
        let e = load_file("as-733.tar.gz", content).unwrap();
        assert_eq!((e.len(), e.time.to_vec(), e.name.as_str()), (3, vec![0, 86_400, 86_400], "as-733"));
        assert_eq!(e.time_scale().text(0), "1997-11-08T00:00:00");
    }
    let timed = tar(&[("2.csv", "src,dst,time\nb,c,20\n"), ("1.csv", "src,dst,time\na,b,10\n")]);
    assert_eq!((names(&load_file("x.tar", timed).unwrap()).as_str()), "a b c");
    let bad = tar(&[("1.csv", "src,dst,time\na,b,10\n"), ("2.csv", "src,dst,time\na,b,soon\n")]);
    let e = load_file("x.tar", bad).unwrap_err().to_string();
    assert!(e.contains("x.tar/2.csv:2:5: `soon` is not a time; "), "{e}");
    assert!(load_file("x.tar", tar(&[])).is_err());
}

#[test]
fn a_folder_of_days_is_one_stream_if_its_files_name_a_time_or_options_say_that_they_are_events() {
    let folder = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        dir
    };
    let read = |dir: &tempfile::TempDir, options: &ReadOptions| load(dir.path().to_str().unwrap(), options);
    let any = ReadOptions::default();
    let timed =
        folder(&[("10.csv", "src,dst,time\nb,c,20\n"), ("9.csv", "src,dst,time\na,b,10\n"), ("11.csv", "")]);
    assert!(super::is_folder_of_events(timed.path()));
    assert_eq!(names(&read(&timed, &any).unwrap()), "a b c");
    fs::write(timed.path().join("12.csv"), "src,time\na,30\n").unwrap();
    let e = read(&timed, &any).unwrap_err().to_string();
    let said = "12.csv: has the columns src, time, but 9.csv has the columns src, dst, time; give files of one layout";
    assert!(e.contains(said), "{e}");
    let lines = folder(&[
        ("1.jsonl", "{\"src\": \"a\", \"dst\": \"b\", \"time\": 1}\n"),
        ("2.jsonl", "{\"src\": \"b\", \"dst\": \"c\", \"time\": 2}\n"),
    ]);
    assert_eq!(names(&read(&lines, &any).unwrap()), "a b c");
    // Lists of edges are steps, unless an option says that they are events.
    let lists = folder(&[("2000-01-02.txt", "1 2\n"), ("2000-01-03.txt", "2 3\n"), ("notes.md", "none\n")]);
    assert!(!super::is_folder_of_events(lists.path()));
    let e = read(&lists, &ReadOptions { format: Some(Format::Table), ..any.clone() }).unwrap();
    assert_eq!((e.time.to_vec(), e.origin), (vec![0, 86_400], 10_958 * 86_400));
    let e = read(&folder(&[("notes.md", "none")]), &any).unwrap_err().to_string();
    assert!(
        e.contains("and no file of events, only notes.md; give an event file, or a folder of them"),
        "{e}"
    );
}

#[test]
fn zstd_is_recognised_by_content() {
    let text = "a b 1\nb a 2\n";
    assert_eq!(read(zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap(), read(text).unwrap());
    let cut = zstd::encode_all("a b 1\n".repeat(9000).as_bytes(), 1).unwrap();
    let said = fault(&cut[..cut.len() / 2], &ReadOptions::default());
    assert!(
        said.contains("the zstd stream is damaged or cut short (incomplete frame); fetch the file again"),
        "{said}"
    );
}

#[test]
fn tables_of_features_are_joined_by_id() {
    let (dir, path) = write("flights.csv", "origin,dest,time\nEWR,IAH,1\nLGA,IAH,2\n");
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        Some(dir.path().join(name))
    };
    let nodes = file("airports.csv", "faa,lat,tz,zone\nIAH,29.9,-6,c\nEWR,40.7,-5,e\nSFO,37.6,-8,w\n");
    let edges = file("edges.csv", "delay\n5\n\n-2.5\n");
    let e =
        load(&path, &ReadOptions { node_features: nodes, edge_features: edges, ..ReadOptions::default() });
    let e = e.unwrap();
    let f = e.node_features.unwrap();
    assert_eq!((f.cols(), f.row(0), f.row(1)), (2, &[40.7, -5.0][..], &[0.0; 2][..]));
    assert_eq!(e.edge_features.unwrap().values(), [5., -2.5]);
    assert!(e.notes.iter().any(|n| n.contains("columns of features not read: zone")), "{:?}", e.notes);
    for (text, said) in [
        ("faa,lat\nEWR,1\nEWR,2\n", "rows 1 and 2 are both of node `EWR`; "),
        (
            "faa,lat\nX,1\n",
            "none of its ids is a node of the events; write the ids as in the events, such as `EWR`",
        ),
        ("faa,lat\nEWR,x\nIAH,2\n", "nodes.csv: the table has no features; "),
        ("faa,lat\nEWR,1,2\n", "nodes.csv:1: the header has 2 names, the first row 3 fields; "),
    ] {
        let options = ReadOptions { node_features: file("nodes.csv", text), ..ReadOptions::default() };
        let e = load(&path, &options).unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    }
}

#[test]
fn a_table_of_edge_features_follows_the_rule_for_missing_values_and_its_event_numbers() {
    let (dir, path) = write("e.csv", "src,dst,time\na,b,1\nb,c,2\nc,a,3\n");
    let with = |text: &str, missing| {
        let file = dir.path().join("f.csv");
        fs::write(&file, text).unwrap();
        load(&path, &ReadOptions { edge_features: Some(file), missing, ..ReadOptions::default() })
    };
    let text = "idx,f\n1,5\n2,\n3,7\n";
    let e = with(text, Missing::Zero).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [5., 0., 7.]);
    assert_eq!(e.notes[0], "no features by their names: idx; rename those that are features");
    assert!(e.notes[1].starts_with("1 missing value of ") && e.notes[1].ends_with("f.csv: read as 0"));
    let e = with(text, Missing::Drop).unwrap();
    assert_eq!((e.time.to_vec(), e.edge_features.unwrap().values()), (vec![0, 2], &[5., 7.][..]));
    for (text, missing, said) in [
        (text, Missing::Refuse, "f.csv:3:3: an empty field is not a feature; "),
        (
            "idx,f\n2,5\n1,6\n3,7\n",
            Missing::Zero,
            "f.csv:3:1: `1` does not follow the event number of the row",
        ),
        ("f\n1\n2\n", Missing::Zero, "f.csv: 2 rows of features for 3 events; "),
    ] {
        let e = with(text, missing).unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    }
    let e = with("src,dst,time,f\na,b,1,5\nb,c,2,6\nc,a,3,7\n", Missing::Zero).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [5., 6., 7.]);
}

#[test]
fn rows_left_out_keep_files_of_features_in_step() {
    let (dir, path) = write("e.csv", "src,dst,time,idx\na,b,1,1\nb,,2,2\nc,a,3,3\n");
    let file = dir.path().join("f.csv");
    fs::write(&file, "f\n5\n6\n7\n").unwrap();
    let options = ReadOptions { edge_features: Some(file), missing: Missing::Drop, ..ReadOptions::default() };
    assert_eq!(load(&path, &options).unwrap().edge_features.unwrap().values(), [5., 7.]);
}

#[test]
fn the_options_may_name_the_column_of_ids_in_a_table_of_node_features() {
    let (dir, path) = write("e.csv", "src,dst,time\na,b,1\nb,c,2\n");
    let file = dir.path().join("nodes.csv");
    fs::write(&file, "age,who\n1,a\n2,b\n").unwrap();
    let given = |column: &str, node_features| {
        let columns = Some(format!("id={column}").parse().unwrap());
        load(&path, &ReadOptions { columns, node_features, ..ReadOptions::default() })
    };
    for column in ["who", "2"] {
        let e = given(column, Some(file.clone())).unwrap();
        assert_eq!(e.node_features.unwrap().values(), [1., 2., 0.]);
    }
    let said = given("whom", Some(file.clone())).unwrap_err().to_string();
    assert!(said.ends_with("nodes.csv: there is no column `whom`; did you mean `who`?"), "{said}");
    assert!(
        given("who", None).unwrap_err().to_string().starts_with("--columns id= names the ids in a table")
    );
}

#[test]
fn ids_of_users_in_a_table_of_node_features_are_not_those_of_items() {
    let (dir, path) = write("e.csv", "user_id,item_id,timestamp\n1,1,10\n2,2,20\n3,3,30\n");
    let features = |head: &str, rows: &str| {
        let file = dir.path().join("users.csv");
        fs::write(&file, format!("{head}\n{rows}")).unwrap();
        let options = ReadOptions { node_features: Some(file), ..ReadOptions::default() };
        load(&path, &options).map(|e| e.node_features.unwrap().values().to_vec())
    };
    let rows = "1,21\n2,32\n3,43\n";
    assert_eq!(features("user_id,age", rows).unwrap(), [21., 32., 43., 0., 0., 0.]);
    assert_eq!(features("item_id,age", rows).unwrap(), [0., 0., 0., 21., 32., 43.]);
    assert_eq!(features("id,age", "src:1,21\ndst:1,5\n").unwrap(), [21., 0., 0., 5., 0., 0.]);
    let said = features("id,age", rows).unwrap_err().to_string();
    assert!(said.ends_with("row 1: `1` is a source and a destination; write src:1 or dst:1"), "{said}");
}

#[test]
fn negatives_of_tgb_seq_beside_a_table_are_noted() {
    let (dir, path) = write("Local.csv", "src,dst,time,split\n1,2,1,0\n2,3,2,2\n");
    fs::write(dir.path().join("Local_test_ns.npy"), "").unwrap();
    for path in [path.as_str(), dir.path().to_str().unwrap()] {
        let e = load(path, &ReadOptions::default()).unwrap();
        assert!(
            e.notes.iter().any(|n| n.starts_with("not read: Local_test_ns.npy; scores are not")),
            "{:?}",
            e.notes
        );
        assert!(e.notes.contains(&"columns not read: split".into()));
    }
}
