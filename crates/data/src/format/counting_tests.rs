//! Tests that nothing is left out in silence: lines of texts, entries of folders, columns of headers.
use super::tests::{columns, fault, gzip, read, read_with};
use crate::{Events, LineCounts, ReadOptions, load};
use proptest::prelude::*;
use std::{fs, path::Path};
use tempfile::{TempDir, tempdir};
use tgnn::error::Result;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn load_path(path: &Path) -> Result<Events> {
    load(path.to_str().unwrap(), &ReadOptions::default())
}

fn lines(header: u64, comments: u64, blank: u64, events: u64) -> LineCounts {
    LineCounts { header, comments, blank, events, incomplete: 0 }
}

/// The ends of all events as text, and the seconds since the first.
fn told(events: &Events) -> Vec<(String, String, i64)> {
    let id = |node: u32| events.id(node).to_string();
    (0..events.len()).map(|i| (id(events.src[i]), id(events.dst[i]), events.time[i])).collect()
}

#[test]
fn rows_that_start_like_comments_are_events_once_a_row_has_their_width() {
    let text = "# made by hand\nsource,target,time\n#ai,user1,100\n\n%x,user2,101\nrust,#ai,102\n#ml,u,103\n";
    let e = read(text).unwrap();
    let wanted = [("#ai", "user1", 0), ("%x", "user2", 1), ("rust", "#ai", 2), ("#ml", "u", 3)];
    assert_eq!(told(&e), wanted.map(|(a, b, t)| (a.to_owned(), b.to_owned(), t)));
    assert_eq!(e.lines, Some(lines(1, 1, 1, 4)));
    let e = read("src,dst,time\n# from,to,when\n1,2,3\n").unwrap();
    assert_eq!((e.len(), e.lines), (1, Some(lines(1, 1, 0, 1))));
    assert!(fault("src,dst,time\n#a,b,\nc,d,3\n", &ReadOptions::default()).starts_with("events.csv:2:6: "));
    let e = read("# hello\n#t1 b3 100\nt2 b3 101\n").unwrap();
    assert_eq!((e.len(), e.lines), (2, Some(lines(0, 1, 0, 2))));
    let said = fault("src,dst,time\na,b,1\n# the end\n", &ReadOptions::default());
    assert!(
        said.starts_with(
            "events.csv:3: this row has 1 column, the first one has 3; comments stand before the first row"
        ),
        "{said}"
    );
    let said = fault("#a,b,1\n#b,c,2\n", &ReadOptions::default());
    assert!(said.contains("there are only comments: every line starts with # or %"), "{said}");
}

#[test]
fn a_quote_within_quotes_is_doubled_or_after_a_backslash_and_never_ends_a_field_in_silence() {
    let e = read("src,dst,time\n\"a \\\"19\\\" b\",4,100\n\"a \\\"16\\\", b\",4,101\n").unwrap();
    assert_eq!([0, 1].map(|v| e.id(v).to_string()), ["a \"19\" b", "a \"16\", b"]);
    let said = fault("src,dst,time\n\"user\" 7,4,100\n", &ReadOptions::default());
    assert!(said.starts_with("events.csv:2:8: `7,4,100` follows a closing quote; double each"), "{said}");
    let e = read("\"src\" \"dst\" \"time\"\n\"a 19\" \"b\" 100\n").unwrap();
    assert_eq!(e.id(0).to_string(), "a 19");
    let late = "1,2,3\n".repeat(200) + "\"c:\\\",2,3\n\"x \\\"y\\\"\",2,3\n";
    assert!(fault(&late, &ReadOptions::default()).contains("but ends one in line 201"));
}

#[test]
fn a_header_names_every_column_or_is_refused() {
    let e = read("src dst time\n1 19 4 100\n2 16 0 101\n").unwrap();
    assert_eq!((told(&e)[0].clone(), e.origin), (("19".into(), "4".into(), 0), 100));
    assert!(e.notes.iter().any(|note| note.starts_with("the first column has no name")), "{:?}", e.notes);
    let e = read("src,dst,time\n1,2,100,\n2,3,101,\n").unwrap();
    assert_eq!((e.origin, e.edge_width()), (100, 0));
    assert_eq!(read("src,dst,time,\n1,2,100\n2,3,101\n").unwrap().origin, 100);
    let said = fault("src,dst,time\nx,1,2,100\ny,2,3,101\n", &ReadOptions::default());
    assert!(said.starts_with("events.csv:1: the header has 3 names, the first row 4 fields; "), "{said}");
    let e = read_with("src,dst,time\nx,1,2,100\ny,2,3,101\n", &columns("src=2,dst=3,time=4")).unwrap();
    assert_eq!(e.origin, 100);
    let said = fault("src,dst,time,a,b\n1,2,100\n", &ReadOptions::default());
    assert!(said.contains("the header has 5 names, the first row 3 fields"), "{said}");
}

#[test]
fn the_first_row_is_an_event_if_the_options_can_read_it_and_a_header_if_pandas_numbered_it() {
    let dates =
        ReadOptions { time_format: Some("%d/%m/%Y %H:%M".parse().unwrap()), ..columns("src=1,dst=2,time=3") };
    let text = "a19,b4,14/11/2023 22:13\na16,b0,14/11/2023 22:14\n";
    assert_eq!(read_with(text, &dates).unwrap().len(), 2);
    let pattern = ReadOptions { columns: None, ..dates };
    assert_eq!(read_with(text, &pattern).unwrap().len(), 2);
    let e = read("to,from,1700000000\nw16,w0,1700000060\n").unwrap();
    assert!(
        e.len() == 2 && e.notes[0].contains("is read as an event, because it has a time"),
        "{:?}",
        e.notes
    );
    assert_eq!(read_with("to,b,7\nw,b,8\n", &columns("src=1,dst=2,time=3")).unwrap().len(), 2);
    for text in ["0,1,2\n18,3,100\n5,2,160\n", ",0,1,2\n0,18,3,100\n1,5,2,160\n"] {
        let options =
            if text.starts_with(',') { columns("src=2,dst=3,time=4") } else { ReadOptions::default() };
        let e = read_with(text, &options).unwrap();
        assert!(
            e.len() == 2 && e.notes.iter().any(|note| note.contains("as pandas writes it")),
            "{:?}",
            e.notes
        );
    }
    let snap = ReadOptions { format: Some(super::Format::Snap), ..ReadOptions::default() };
    assert_eq!(read_with("0,1,2\n18,3,100\n", &snap).unwrap().len(), 2);
    let e = read("0 1 2\n1 2 3\n").unwrap();
    assert!(e.len() == 2 && e.notes[0].contains("if it is a header, remove it"), "{:?}", e.notes);
}

#[test]
fn a_comment_with_a_name_for_every_column_is_a_header() {
    for text in ["# src,time,dst\n19,100,4\n16,101,0\n", "% src time dst\n19 100 4\n16 101 0\n"] {
        let e = read(text).unwrap();
        assert_eq!((told(&e)[0].clone(), e.origin), (("19".into(), "4".into(), 0), 100));
        assert_eq!(e.lines, Some(lines(1, 0, 0, 2)));
    }
    let e = read("# src,time\n19,4,100\n16,0,101\n").unwrap();
    assert!(
        e.notes.iter().any(|n| n == "line 1, a comment, is no header: the rows have 3 columns"),
        "{:?}",
        e.notes
    );
}

#[test]
fn keys_of_objects_count_wherever_they_first_occur() {
    let row = |i: u64| format!("{{\"src\": {}, \"dst\": {}, \"time\": {i}}}\n", i % 7, 10 + i % 5);
    let mut text: String = (0..150).map(row).collect();
    text += "{\"src\": 1, \"dst\": 11, \"time\": 150, \"weight\": 2.5}\n";
    let e = read(&text).unwrap();
    assert_eq!((e.edge_width(), e.edge_features.as_ref().unwrap().row(150)[0]), (1, 2.5));
    assert_eq!(e.lines, Some(lines(0, 0, 0, 151)));
    assert_eq!(read_with(&text, &columns("features=weight")).unwrap().edge_features, e.edge_features);
    let said = fault(&text, &columns("features=wieght"));
    assert!(said.ends_with("there is no key `wieght`; did you mean `weight`?"), "{said}");
    let second = b"{\"src\": 1, \"dst\": 11, \"time\": 150, \"weight\": 2.5}\n";
    let files = folder(&[("1.jsonl", row(1).as_bytes()), ("2.jsonl", second)]);
    let e = load_path(files.path()).unwrap();
    assert_eq!(e.edge_features.unwrap().values(), [0.0, 2.5]);
    let said = fault("{\"src\":1,\"dst\":2,\"time\":3,\"w\":NaN}\n", &ReadOptions::default());
    assert!(said.starts_with("events.csv:1:31: NaN is no value of JSON; write null"), "{said}");
}

#[test]
fn more_keys_than_a_table_has_columns_are_refused_unless_some_are_named() {
    let text = |objects: usize| -> String {
        let object = |i: usize| format!("{{\"src\":{},\"dst\":1,\"time\":{i},\"k{i}\":1}}\n", 2 + i % 7);
        (0..objects).map(object).collect()
    };
    assert_eq!(read(text(10_100)).unwrap().len(), 10_100);
    let said = fault(text(10_101), &ReadOptions::default());
    assert_eq!(
        said,
        "events.csv: there are more than 10,000 different keys; name those of the events to read by --columns"
    );
    let e = read_with(text(10_110), &columns("src=src,features=k100+k10100")).unwrap();
    assert_eq!((e.len(), e.edge_width()), (10_110, 2));
    let note = "not read, because the first lines lack their values: more than 10,000 keys; `k101` is first in \
                line 102";
    assert!(e.notes.iter().any(|told| told.starts_with(note)), "{:?}", e.notes);
}

#[test]
fn an_object_with_one_key_twice_is_refused() {
    let text = "{\"src\":1,\"dst\":2,\"time\":3}\n{\"src\":1,\"dst\":2,\"time\":4,\"src\":5}\n";
    let said = fault(text, &ReadOptions::default());
    assert!(
        said.starts_with("events.csv:2:")
            && said.ends_with("two values have the key `src`; give every key once"),
        "{said}"
    );
}

#[test]
fn a_name_that_two_columns_have_is_refused_and_a_number_may_be_a_name() {
    let text = "Account,to,time,Account,amount,Amount\n1,2,3,4,5,6\n2,3,4,5,6,7\n";
    let said = fault(text, &columns("src=Account,dst=to"));
    assert!(said.contains("two columns are called `Account`: 1 and 4; give the number of the one"), "{said}");
    let said = fault(text, &columns("src=account.1,dst=to"));
    assert!(said.contains("there is no column `account.1`; two columns are called"), "{said}");
    assert_eq!(
        read_with(text, &columns("src=1,dst=to,features=Amount")).unwrap().edge_features.unwrap().row(0),
        [6.0]
    );
    let numbered = "src,dst,time,x,y,4\n1,2,3,7,8,9\n2,3,4,7,8,9\n";
    let said = fault(numbered, &columns("features=4"));
    assert!(
        said.contains("`4` is the name of column 6, and the number of `x`; write the name in quotes"),
        "{said}"
    );
    let e = read_with(numbered, &columns("features=\"4\"")).unwrap();
    assert_eq!(e.edge_features.unwrap().row(0), [9.0]);
}

#[test]
fn entries_of_a_folder_that_are_not_read_are_named() {
    let csv = b"src,dst,time\n1,2,3\n";
    let dir = folder(&[
        ("d0.csv", csv),
        ("README.txt", b"four words of text\n"),
        ("d1.dat", csv),
        ("d2.csv.bz2", b"BZh9"),
        ("more/d1.csv", csv),
        ("_SUCCESS", b""),
        (".d0.csv.crc", b"x"),
        ("empty.csv", b""),
    ]);
    let e = load_path(dir.path()).unwrap();
    assert_eq!(e.len(), 1);
    let note = e.notes.iter().find(|note| note.contains("entries")).unwrap();
    assert!(
        note.starts_with("1 of 8 entries of ")
            && note.ends_with("README.txt, d1.dat, d2.csv.bz2, 2 more, 2 hidden entries"),
        "{note}"
    );
    let twice = folder(&[("ev.csv", csv), ("ev.csv.gz", &gzip(csv))]);
    let e = load_path(twice.path()).unwrap();
    assert_eq!((e.len(), e.lines), (1, Some(lines(1, 0, 0, 1))));
    assert!(e.notes[0].ends_with("not ev.csv.gz (a copy of ev.csv)"), "{:?}", e.notes);
    let twins = folder(&[("ev.csv", csv), ("ev.csv.gz", &gzip(b"src,dst,time\n1,2,4\n"))]);
    let e = load_path(twins.path()).unwrap();
    assert!(e.len() == 2 && e.notes[0].starts_with("both ev.csv and ev.csv.gz are read"), "{:?}", e.notes);
    let [a, b] = [&csv[..], b"src,dst,time\n1,3,3\n"];
    let equal = folder(&[("1.csv", a), ("2.csv", b), ("3.csv", a)]);
    let e = load_path(equal.path()).unwrap();
    assert!(e.notes[0].starts_with("3.csv has the same content as 1.csv"), "{:?}", e.notes);
    let mixed = folder(&[("a.csv", csv), ("b.jsonl", b"{\"src\":1,\"dst\":2,\"time\":3}\n")]);
    let said = load_path(mixed.path()).unwrap_err().to_string();
    assert!(said.contains("b.jsonl: is JSON lines, but a.csv is text; give files of one kind"), "{said}");
    let delta = folder(&[("a.csv", csv), ("_delta_log/0.json", b"{}")]);
    assert!(load_path(delta.path()).unwrap_err().to_string().contains("is a Delta table"));
}

#[test]
fn files_without_rows_and_folders_of_partitions_are_read() {
    let spark = folder(&[("part-0.csv", b"src,dst,time\n"), ("part-1.csv", b"src,dst,time\n1,2,3\n")]);
    let e = load_path(spark.path()).unwrap();
    assert_eq!((e.len(), e.lines), (1, Some(lines(2, 0, 0, 1))));
    let hive = folder(&[
        ("date=2023-11-14/part-0.csv", b"src,dst\n1,2\n"),
        ("date=2023-11-16/part-0.csv", b"src,dst\n2,3\n"),
    ]);
    let e = load_path(hive.path()).unwrap();
    assert_eq!(
        (e.time.to_vec(), e.time_scale().text(0)),
        (vec![0, 2 * 86_400], "2023-11-14T00:00:00".into())
    );
    let milliseconds = ReadOptions {
        format: Some(super::Format::Table),
        time_format: Some("ms".parse().unwrap()),
        ..ReadOptions::default()
    };
    let days = folder(&[("2023-11-14.csv", b"src,dst\n1,2\n"), ("2023-11-15.csv", b"src,dst\n2,3\n")]);
    let e = load(days.path().to_str().unwrap(), &milliseconds).unwrap();
    assert_eq!((e.time.to_vec(), e.ticks_per_second), (vec![0, 86_400], 1.0));
    assert!(e.notes.iter().any(|note| note.contains("--time-format only says how")), "{:?}", e.notes);
    let hadoop = folder(&[("part-00000", b"1 2 3\n"), ("part-00001", b"2 3 4\n")]);
    let snap = ReadOptions { format: Some(super::Format::Snap), ..ReadOptions::default() };
    assert_eq!(load(hadoop.path().to_str().unwrap(), &snap).unwrap().len(), 2);
    let other = folder(&[("a=1/x.csv", b"src,dst,time\n1,2,3\n"), ("b=1/x.csv", b"src,dst,time\n1,2,3\n")]);
    assert!(
        load_path(other.path()).unwrap_err().to_string().contains("is in other partitions than a=1/x.csv")
    );
    let other = folder(&[("a=1/x.csv", b"src,dst,time\n"), ("b=1/x.csv", b"src,dst,time\n1,2,3\n")]);
    let said = load_path(other.path()).unwrap_err().to_string();
    assert!(said.contains("a=1/x.csv: is in other partitions than b=1/x.csv"), "{said}");
}

#[test]
fn a_padded_gzip_file_is_whole_and_foreign_texts_are_called_by_name() {
    let padded = [gzip(b"1 2 3\n"), vec![0; 700]].concat();
    assert_eq!(read(padded).unwrap().len(), 1);
    let junk = [gzip(b"1 2 3\n"), b"\0\0x".to_vec()].concat();
    assert!(fault(&junk, &ReadOptions::default()).contains("damaged"));
    for (text, what) in [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", "is a pointer of Git LFS"),
        ("INSERT INTO e VALUES (1,2,3);\n", "is SQL"),
        ("FEA1\0\0\0\0", "is a Feather file of version 1"),
    ] {
        let said = fault(text, &ReadOptions::default());
        assert!(said.starts_with(&format!("events.csv: {what}")), "{said}");
    }
}

#[test]
fn a_date_in_three_columns_is_told_how_to_read() {
    let text = "Year,Month,DayofMonth,Origin,Dest\n2008,1,3,a,b\n2008,12,28,b,c\n";
    let said = fault(text, &ReadOptions::default());
    assert!(said.ends_with("give --columns time=Year+Month+DayofMonth --time-format '%Y %m %d'"), "{said}");
    let told = ReadOptions {
        time_format: Some("%Y %m %d".parse().unwrap()),
        ..columns("time=Year+Month+DayofMonth")
    };
    assert_eq!(read_with(text, &told).unwrap().time.to_vec(), [0, 360 * 86_400]);
}

#[test]
fn headers_of_public_tables_are_known() {
    for header in [
        "from_address,to_address,block_timestamp",
        "start_station_id,end_station_id,started_at",
        "nameOrig,nameDest,step",
        ":START_ID(Person),:END_ID(Page),time",
    ] {
        let e = read(format!("{header}\na,b,1700000000\nb,c,1700000001\n")).unwrap();
        assert_eq!((e.len(), e.id(e.src[0]).to_string()), (2, "a".into()), "{header}");
    }
}

/// A line of a text, and how many lines of each kind it is.
#[derive(Clone, Debug)]
enum Planted {
    Row(String, String),
    Blank,
}

fn planted() -> impl Strategy<Value = Planted> {
    let id = "(#|%|)[ab]{1,2}|[\"]x[,\n#]y[\"]|[\"]q[\"][\"]r[\"]|[0-9]{1,2}";
    prop_oneof![
        8 => (id, id).prop_map(|(a, b)| Planted::Row(a, b)),
        1 => Just(Planted::Blank),
    ]
}

proptest! {
    #[test]
    fn the_counts_of_lines_add_up_and_every_row_is_an_event(
        rows in proptest::collection::vec(planted(), 1..40),
        comments in 0usize..3, header: bool, end: bool,
    ) {
        // Without a header, a first row that starts like a comment may be one.
        let mut firsts = rows.iter().filter_map(|row| match row {
            Planted::Row(a, _) => Some(!a.starts_with(['#', '%'])),
            Planted::Blank => None,
        });
        prop_assume!(firsts.next().is_some_and(|plain| plain || header && firsts.any(|plain| plain)));
        let mut text = "# about, these\n".repeat(comments);
        if header {
            text += "src,dst,time\n";
        }
        let mut wanted = Vec::new();
        for row in &rows {
            match row {
                Planted::Row(a, b) => {
                    text += &format!("{a},{b},{}\n", 1000 + wanted.len());
                    let plain = |id: &str| id.trim_matches('"').replace("\"\"", "\"");
                    wanted.push((plain(a), plain(b), wanted.len() as i64));
                }
                Planted::Blank => text += " \n",
            }
        }
        if !end {
            text.pop();
        }
        let e = read(&text).unwrap();
        prop_assert_eq!(told(&e), wanted);
        let counts = e.lines.unwrap();
        prop_assert_eq!(counts.all(), text.split_terminator('\n').count() as u64);
        let blank = rows.iter().filter(|row| matches!(row, Planted::Blank)).count() as u64;
        prop_assert_eq!((counts.header, counts.comments), (u64::from(header), comments as u64));
        prop_assert!(counts.blank == blank || !end && counts.blank + 1 == blank);
    }

    #[test]
    fn bytes_after_a_closing_quote_are_an_error_wherever_they_stand(
        before in 0usize..200, junk in "[a-z#;]{1,4}", second: bool,
    ) {
        let field = if second { format!("b,\"x\"{junk}") } else { format!("\"x\" {junk},b") };
        let text = format!("src,dst,time\n{}{field},9\n", "a,b,1\n".repeat(before));
        let said = fault(&text, &ReadOptions::default());
        let place = format!("events.csv:{}:", before + 2);
        prop_assert!(said.starts_with(&place) && said.contains("follows a closing quote"), "{}", said);
    }
}

#[test]
fn the_lines_of_labels_and_features_are_told_and_their_keys_count_wherever_they_occur() {
    let events = b"src,dst,time\na,b,100\nb,a,101\n";
    let label = |weight: &str| format!("{{\"time\": 100, \"node\": \"a\", \"label\": \"x\"{weight}}}\n");
    let labels = label("").repeat(150) + "\n" + &label("").replace("\"x\"", "\"y\"");
    let node = |id: usize, age: &str| format!("{{\"id\": \"n{id}\", \"height\": 1{age}}}\n");
    let late_node: String =
        (0..150).map(|id| node(id, "")).chain([node(150, ", \"age\": 7").replace("n150", "a")]).collect();
    let edges = b"# made by hand\nspeed\n1.5\n\n2.5\n";
    let dir = folder(&[
        ("events.csv", events),
        ("labels.jsonl", labels.as_bytes()),
        ("late.jsonl", (label("").repeat(150) + &label(", \"weight\": 0.5")).as_bytes()),
        ("nodes.jsonl", late_node.as_bytes()),
        ("edges.csv", edges),
    ]);
    let at = |name: &str| Some(dir.path().join(name));
    let options = ReadOptions {
        labels: at("labels.jsonl"),
        node_features: at("nodes.jsonl"),
        edge_features: at("edges.csv"),
        ..ReadOptions::default()
    };
    let e = load(at("events.csv").unwrap().to_str().unwrap(), &options).unwrap();
    let labels = e.node_labels.as_ref().unwrap();
    assert_eq!(labels.row(0).map(|(_, weight)| weight).collect::<Vec<_>>(), [1.0, 1.0]);
    let late = ReadOptions { labels: at("late.jsonl"), ..ReadOptions::default() };
    let said = load(at("events.csv").unwrap().to_str().unwrap(), &late).unwrap_err().to_string();
    assert!(said.contains("late.jsonl:1: `weight`: an empty field is not a weight"), "{said}");
    let nodes = e.node_features.as_ref().unwrap();
    assert_eq!((nodes.cols(), nodes.row(0), nodes.row(1)), (2, &[1.0, 7.0][..], &[0.0, 0.0][..]));
    assert_eq!(e.edge_features.as_ref().unwrap().values(), [1.5, 2.5]);
    for (file, said) in [("labels.jsonl", "152 lines of "), ("edges.csv", "5 lines of ")] {
        let note = e.notes.iter().find(|note| note.starts_with(said) && note.contains(file));
        assert!(note.is_some_and(|note| note.contains("1 blank")), "{:?}", e.notes);
    }
}

#[test]
fn a_folder_of_tgb_names_the_entries_that_do_not_belong_to_its_edge_list() {
    let list = b"user_id,item_id,timestamp,state_label,features\n0,0,5,0\n0,1,6,0\n";
    let dir = folder(&[
        ("tgbl-wiki_edgelist_v2.csv", list),
        ("tgbl-wiki_edgelist.csv", list),
        ("tgbl-wiki_val_ns_v2.pkl", b""),
        ("ml_tgbl-wiki.pkl", b""),
        ("more/part-1.csv", list),
    ]);
    let e = load_path(dir.path()).unwrap();
    let note = e.notes.iter().find(|note| note.starts_with("2 of 5 entries")).unwrap();
    assert!(note.ends_with("are read, not ml_tgbl-wiki.pkl, more, tgbl-wiki_edgelist.csv"), "{note}");
}

#[test]
fn a_file_without_rows_does_not_decide_what_a_folder_is() {
    let csv = b"src,dst,time\n1,2,1700000000\n2,3,1700000060\n";
    for (first, content) in
        [("a.csv", &b" \n\n"[..]), ("a.csv", b"\xef\xbb\xbf\n"), ("a.csv.gz", &gzip(b"\n")), ("z.csv", b"\n")]
    {
        let dir = folder(&[(first, content), ("b.csv", csv)]);
        let e = load_path(dir.path()).unwrap();
        assert_eq!((e.len(), e.origin), (2, 1_700_000_000), "{first}");
        assert!(e.notes.iter().any(|note| note.ends_with(&format!("not {first} (empty)"))), "{:?}", e.notes);
    }
    // Only comments may be rows that nobody reads.
    let dir = folder(&[("a.csv", b"#ai,u,1\n"), ("b.csv", csv)]);
    let said = load_path(dir.path()).unwrap_err().to_string();
    assert!(said.contains("a.csv: there are only comments"), "{said}");
}

#[test]
fn an_archive_is_read_like_its_folder_and_links_do_not_lead_in_circles() {
    let csv = |i: u8| format!("src,dst,time\n1,2,{i}\n");
    let members = [
        ("set/a.csv", csv(1)),
        ("set/year=2023/b.csv", csv(2)),
        ("set/old/a.csv", csv(3)),
        ("set/.ipynb_checkpoints/a.csv", csv(4)),
        ("set/__MACOSX/a.csv", csv(5)),
    ];
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in &members[..1].iter().chain(&members[2..]).cloned().collect::<Vec<_>>()[..] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let dir = folder(&[("set.tar", &tar.into_inner().unwrap())]);
    let e = load_path(&dir.path().join("set.tar")).unwrap();
    assert_eq!((e.len(), e.origin), (1, 1));
    let note = e.notes.iter().find(|note| note.contains("entries")).unwrap();
    assert!(
        note.starts_with("1 of 4 entries") && note.ends_with("not set/old/a.csv, 2 hidden entries"),
        "{note}"
    );
    let dir = folder(&[("d/a.csv", csv(1).as_bytes())]);
    for link in ["x=1", "x=2"] {
        std::os::unix::fs::symlink(dir.path().join("d"), dir.path().join("d").join(link)).unwrap();
    }
    let e = load_path(&dir.path().join("d")).unwrap();
    assert!(e.notes.iter().any(|note| note.contains("x=1/ (a link to a folder above)")), "{:?}", e.notes);
}

#[test]
fn a_fact_that_starts_like_a_comment_is_no_comment_and_any_comment_may_be_the_header() {
    let plain = b"1 0 2 24\n";
    let dir = folder(&[
        ("train.txt", plain),
        ("valid.txt", b"#3 0 1 24\n"),
        ("test.txt", b"# s r o t\n4 0 1 48\n"),
    ]);
    let said = load_path(dir.path()).unwrap_err().to_string();
    assert!(said.contains("valid.txt:1:1: `#3` is not a node id"), "{said}");
    let e = read("# src,time,dst\n# made in 2023\n7,1700000000,8\n").unwrap();
    assert_eq!(
        (e.origin, e.id(1).to_string(), e.lines),
        (1_700_000_000, "8".into(), Some(lines(1, 1, 0, 1)))
    );
    let said = fault("%%MatrixMarket matrix coordinate real\n3 3 1\n1 2 5\n", &ReadOptions::default());
    assert!(said.contains("is a matrix of Matrix Market"), "{said}");
}

#[test]
fn what_changes_its_meaning_late_is_an_error_or_a_note() {
    // Two backslashes become one where `\"` is a quote.
    let late = "src,dst,time\n".to_owned() + &"\"c:\\\\x\",b,1\n".repeat(150) + "\"a \\\"b\\\"\",b,2\n";
    let said = fault(&late, &ReadOptions::default());
    assert!(said.contains("so two backslashes are one, but line 2 has two"), "{said}");
    let blocks = "src,dst,time\n".to_owned() + &"\"c:\\\\x\",b,1\n".repeat(300_000) + "\"a \\\"b\\\"\",b,2\n";
    assert!(fault(&blocks, &ReadOptions::default()).contains("but line 2 has two"));
    for labels in [["9007199254740993", "9007199254740992"], ["16777217.0", "16777216.0"]] {
        let e = read(format!("src,dst,time,label\n1,2,3,{}\n1,2,4,{}\n", labels[0], labels[1])).unwrap();
        let note = e.notes.iter().find(|note| note.contains("beyond 2^24 rounded"));
        assert!(note.is_some_and(|note| note.starts_with("1 label ")), "{:?}", e.notes);
    }
    let dir = folder(&[("src=5/a.csv", b"src,dst,time\n1,2,3\n")]);
    let said = load_path(dir.path()).unwrap_err().to_string();
    assert!(said.contains("`src` is `1` here, and 5 by the folder; rename one"), "{said}");
    let dir = folder(&[("src=1/a.csv", b"src,dst,time\n1,2,3\n")]);
    let e = load_path(dir.path()).unwrap();
    assert!(e.notes.iter().any(|note| note.starts_with("`src` names folders, too")), "{:?}", e.notes);
}

#[test]
fn a_key_that_is_null_at_first_is_read_by_its_later_values() {
    let row = |i: usize, value: &str| {
        format!("{{\"weight\": {value}, \"src\": {i}, \"dst\": 7, \"time\": {i}, \"x\": null}}\n")
    };
    let rows: String = (0..150).map(|i| row(i, if i < 120 { "null" } else { "0.5" })).collect();
    let (_dir, path) = super::tests::write("late.jsonl", rows);
    let e = load(&path, &ReadOptions::default()).unwrap();
    assert_eq!((e.len(), e.edge_width(), e.edge_features.unwrap().row(149)), (150, 1, &[0.5][..]));
    let rows: String = (0..150).map(|i| row(i, if i < 120 { "null" } else { "\"late\"" })).collect();
    let (_dir, path) = super::tests::write("text.jsonl", rows);
    let said = load(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(said.contains("text.jsonl:121") && said.contains("late"), "{said}");
    let rows: String = (0..150).map(|i| row(i, "null")).collect();
    let (_dir, path) = super::tests::write("null.jsonl", rows);
    let e = load(&path, &ReadOptions::default()).unwrap();
    let note = "columns not read, because no line has a value: weight, x";
    assert!(e.notes.iter().any(|told| told == note), "{:?}", e.notes);
}
