//! Tests of which columns are read, and as what: no column becomes a feature, a time or a row number by its
//! place alone.
use super::tests::{columns, fault, read, read_with, write};
use crate::{Events, Missing, NodeId, ReadOptions, load};
use std::fs;
use tgnn::error::Result;

fn has_note(e: &Events, said: &str) -> bool {
    e.notes.iter().any(|note| note.contains(said))
}

#[track_caller]
fn assert_note(e: &Events, said: &str) {
    assert!(has_note(e, said), "{said}: {:?}", e.notes);
}

/// The edge features of all events, in order; none if there are none.
fn features(e: &Events) -> Vec<f32> {
    e.edge_features.as_ref().map_or_else(Vec::new, |features| features.values().to_vec())
}

/// Reads events beside a table called `name`, which `add` gives to the options.
fn beside(name: &str, table: &str, add: impl Fn(&mut ReadOptions, std::path::PathBuf)) -> Result<Events> {
    let (dir, path) = write("events.csv", "src,dst,time\n0,1,5\n1,2,6\n2,3,7\n3,0,8\n");
    let file = dir.path().join(name);
    fs::write(&file, table).unwrap();
    let mut options = ReadOptions::default();
    add(&mut options, file);
    load(&path, &options)
}

fn edges(table: &str) -> Events {
    beside("edges.csv", table, |options, file| options.edge_features = Some(file)).unwrap()
}

fn nodes(table: &str) -> Result<Events> {
    beside("nodes.csv", table, |options, file| options.node_features = Some(file))
}

#[test]
fn a_column_called_features_takes_only_columns_without_names() {
    for (text, wanted) in [
        ("src,dst,time,features,label\n1,7,1,0.5,0\n2,8,2,0.25,1\n", &[0.5, 0.25][..]),
        ("src,dst,features,time\n1,7,0.5,1\n2,8,0.25,2\n", &[0.5, 0.25]),
        ("features,src,dst,time,amount\n0.5,1,7,1,9\n0.25,2,8,2,9\n", &[0.5, 0.25]),
        ("src,dst,time,weight,features,label\n1,7,1,3,0.5,0\n2,8,2,4,0.25,1\n", &[3., 0.5, 4., 0.25]),
        ("src,dst,time,features,comment\n1,7,1,0.5,hello\n2,8,2,0.25,you\n", &[0.5, 0.25]),
        ("src,dst,time,features,f1\n1,7,1,0.5,3\n2,8,2,0.25,4\n", &[0.5, 3., 0.25, 4.]),
        ("src,dst,time,features\n3,7,1,0.5,3\n2,8,2,0.25,4\n", &[0.5, 3., 0.25, 4.]),
        ("src,dst,time,features,,\n1,7,1,0.5,3,1\n2,8,2,0.25,4,1\n", &[0.5, 3., 1., 0.25, 4., 1.]),
    ] {
        let e = read(text).unwrap();
        assert_eq!((features(&e).as_slice(), e.time.as_slice()), (wanted, &[0, 1][..]), "{text}");
    }
    assert_note(&read("src,dst,time,features,amount\n1,7,1,0.5,9\n").unwrap(), "columns not read: amount");
    let text = "{\"features\": [1, 2], \"src\": 0, \"dst\": 5, \"time\": 1, \"label\": 1}\n\
                {\"features\": [3, 4], \"src\": 1, \"dst\": 6, \"time\": 2, \"label\": 0}\n";
    let (_dir, path) = write("events.jsonl", text);
    assert_eq!(features(&load(&path, &ReadOptions::default()).unwrap()), [1., 2., 3., 4.]);
}

#[test]
fn a_column_that_is_given_for_something_else_is_no_feature() {
    let rows = |row: &dyn Fn(u32) -> String| (1..30).map(|k| row(k) + "\n").collect::<String>();
    // Without a header, the third of four columns would be a rating.
    let e = read_with(
        rows(&|k| format!("{},{},{k},{}", k % 4, 5 + k % 3, 1_700_000_000 + k)),
        &columns("src=1,dst=2,time=3"),
    );
    let e = e.unwrap();
    assert_eq!((e.time[1], features(&e).len()), (1, 0));
    assert_note(&e, "columns not read: column 4");
    let e = read_with(
        rows(&|k| format!("x{},y{},14/11/2023,0:{k:02}", k % 4, k % 3)),
        &ReadOptions {
            time_format: Some("%d/%m/%Y %H:%M".parse().unwrap()),
            ..columns("src=1,dst=2,time=3+4")
        },
    );
    let e = e.unwrap();
    assert_eq!((e.time[1], features(&e).len()), (60, 0));
    let e = read_with("src,dst,time,f0,f1,f2\n1,2,3,4,5,6\n2,3,4,5,6,7\n", &columns("label=f1")).unwrap();
    assert_eq!((features(&e), e.label.clone().unwrap()), (vec![4., 6., 5., 7.], vec![5., 6.]));
    let e = read_with("1,2,0.5,3\n2,3,0.25,4\n", &columns("src=1,dst=2,time=4,label=3")).unwrap();
    assert_eq!((features(&e).len(), e.label.clone().unwrap()), (0, vec![0.5, 0.25]));
}

#[test]
fn a_header_with_too_few_names_names_the_columns_after_row_numbers_or_is_refused() {
    for text in [
        "src,dst,time,label\n1,7,4,1700000000,0\n2,8,5,1700000060,1\n3,7,5,1700000120,0\n",
        "src dst time label\n1 7 4 1700000000 0\n2 8 5 1700000060 1\n3 7 5 1700000120 0\n",
        "src,dst,time,label,features\n1,7,4,1700000000,0,5\n2,8,5,1700000060,1,6\n3,7,5,1700000120,0,7\n",
        "user_id,item_id,timestamp,label\n1,7,4,1700000000,0\n2,8,5,1700000060,1\n3,7,5,1700000120,0\n",
    ] {
        let e = read(text).unwrap();
        assert_eq!((e.time.to_vec(), e.label.clone()), (vec![0, 60, 120], Some(vec![0., 1., 0.])), "{text}");
        assert_note(&e, "the first column has no name in the header: it numbers the rows, and is not read");
    }
    for (text, said) in [
        ("src,dst,time,label\nr0,4,12,1700000000,0\n", "the header has 4 names, the first row 5 fields"),
        ("src,dst,time,label\n4,12,1700000000,0,a\n", "the header has 4 names, the first row 5 fields"),
        ("src,dst,time,label\n4,12,1700000000,0,1,2,3\n", "the header has 4 names, the first row 7 fields"),
    ] {
        let said_now = fault(text, &ReadOptions::default());
        assert!(said_now.contains(said), "{said_now}");
    }
    // JODIE's own header stands for any number of features.
    let jodie = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n";
    let e = read(format!("{jodie}0,5,1,0,0.5,3\n1,6,2,1,0.25,4\n")).unwrap();
    assert_eq!((features(&e), has_note(&e, "no name")), (vec![0.5, 3., 0.25, 4.], false));
    let e = read("user_id,item_id,timestamp,state_label\n0,5,1,0,7,8\n").unwrap();
    assert_note(&e, "the columns after `state_label` have no name in the header: read as features");
    let e = read("src,dst,time,features\n7,4,12,0.5,1\n5,2,13,0.5,2\n").unwrap();
    assert_note(&e, "the columns after `features` have no name in the header: read as features");
    let e = read("src,dst,time\n7,4,12,,\n5,2,13,,\n").unwrap();
    assert_eq!((e.len(), e.notes.iter().any(|n| n.starts_with("columns not read"))), (2, false));
}

#[test]
fn a_column_without_a_name_is_told_if_it_does_more_than_number_the_rows() {
    assert!(!has_note(&read(",src,dst,time\n0,4,5,6\n1,5,6,7\n").unwrap(), "not read"));
    assert_note(&read(",src,dst,time\n9,4,5,6\n7,5,6,7\n").unwrap(), "columns not read: column 1");
    let e = read_with("a,b,1,x\nb,c,2,y\n", &columns("src=1,dst=2,time=3")).unwrap();
    assert_note(&e, "columns not read: column 4");
}

#[test]
fn the_first_row_is_an_event_if_all_columns_have_numbers_and_it_has_no_name_for_the_time() {
    let rest = "eve,ann,1700000000\nbob,joe,1700000060\n";
    let given = columns("src=1,dst=2,time=3");
    for (first, said) in [
        ("bob,ann,NA", "events.csv:1:9: `NA` is not a time; "),
        ("bob,ann,", "events.csv:1:9: an empty field is not a time; "),
        ("bob,ann,31/11/2023", "events.csv:1:9: `31/11/2023` is not a time; "),
        ("bob,ann,2023-13-45", "events.csv:1:9: `2023-13-45` is not a time; "),
        ("bob,ann,Nov 14 2023 0:00", "events.csv:1:9: `Nov 14 2023 0:00` is not a time; "),
        ("bob,ann,unknown", "events.csv:1:9: `unknown` is not a time; "),
        ("bob,ann,?", "events.csv:1:9: `?` is not a time; "),
    ] {
        let text = format!("{first}\n{rest}");
        let now = fault(&text, &given);
        assert!(now.starts_with(said) || now.starts_with(&said.replace("`NA`", "an empty field")), "{now}");
    }
    let drop = ReadOptions { missing: Missing::Drop, ..given.clone() };
    for first in ["bob,ann,NA", "bob,ann,"] {
        let e = read_with(format!("{first}\n{rest}"), &drop).unwrap();
        assert_eq!((e.len(), e.lines.unwrap().incomplete, e.lines.unwrap().header), (2, 1, 0));
    }
    let dates = ReadOptions { time_format: Some("%d/%m/%Y".parse().unwrap()), ..given.clone() };
    let now = fault("bob,ann,31/11/2023\neve,ann,01/11/2023\n", &dates);
    assert!(now.starts_with("events.csv:1:9: `31/11/2023` is not a time; "), "{now}");
    // Words are names, with a note unless they are known.
    let e = read_with(format!("von,nach,wann\n{rest}"), &given).unwrap();
    assert_eq!(e.len(), 2);
    assert_note(
        &e,
        "the first line, `von,nach,wann`, is read as a header; if it is an event, correct its time",
    );
    let e = read_with(format!("src,dst,time\n{rest}"), &given).unwrap();
    assert!(e.len() == 2 && !has_note(&e, "the first line"), "{:?}", e.notes);
}

#[test]
fn a_table_of_edge_features_has_no_labels_times_nodes_and_row_numbers_as_features() {
    for (header, unread) in [
        (",a", "column 1, without a name"),
        ("Unnamed: 0,a", "Unnamed: 0"),
        ("__index_level_0__,a", "__index_level_0__"),
        ("label,a", "label"),
        ("src,a", "src"),
        ("dst,a", "dst"),
        ("time,a", "time"),
        ("created_at,a", "created_at"),
        ("index,a", "index"),
    ] {
        let e = edges(&format!("{header}\n0,4\n1,5\n2,6\n3,7\n"));
        assert_eq!(features(&e), [4., 5., 6., 7.], "{header}");
        assert_note(&e, &format!("no features by their names: {unread}; rename those that are features"));
    }
    let e = edges("index,a\n7,4\n7,5\n9,6\n8,7\n");
    assert_eq!(e.edge_width(), 2);
}

#[test]
fn a_table_of_node_features_has_one_column_of_ids_and_tells_which() {
    let values = |e: &Events| e.node_features.as_ref().unwrap().values().to_vec();
    for (header, unread) in [
        ("x,id,a", None),
        (",id,a", Some("column 1, without a name")),
        ("label,id,a", Some("label")),
        ("time,id,a", Some("time")),
        ("node,id,a", Some("node")),
        ("user,id,a", Some("user")),
        ("birth_date,id,a", None),
    ] {
        let e = nodes(&format!("{header}\n9,0,4\n8,1,5\n8,2,6\n9,3,7\n")).unwrap();
        match unread {
            None => assert_eq!(values(&e), [9., 4., 8., 5., 8., 6., 9., 7.], "{header}"),
            Some(unread) => {
                assert_eq!(values(&e), [4., 5., 6., 7.], "{header}");
                assert_note(&e, &format!("no features by their names: {unread}; rename"));
            }
        }
    }
    let e = nodes("name,id,a\nx,0,4\ny,1,5\nz,2,6\nw,3,7\n").unwrap();
    assert_eq!(values(&e), [4., 5., 6., 7.]);
    assert_note(&e, "are those of `id`; for another column, such as `name`, give --columns id=name");
    let said = nodes("id,id,a\n0,1,4\n1,2,5\n").unwrap_err().to_string();
    assert!(said.contains("nodes.csv: two columns are called `id`: 1 and 2; give the number"), "{said}");
}

#[test]
fn a_table_of_labels_has_one_column_of_each_kind_and_no_missing_labels() {
    let labels = |table: &str| beside("labels.csv", table, |options, file| options.labels = Some(file));
    let named = |e: &Events| e.node_labels.as_ref().unwrap().id(0);
    let said = labels("time,node,label,label\n5,0,a,b\n6,1,a,b\n").unwrap_err().to_string();
    assert!(said.contains("labels.csv: two columns are called `label`: 3 and 4; name the columns"), "{said}");
    let e = labels("time,node,class,label\n5,0,a,b\n6,1,a,b\n").unwrap();
    assert_eq!(named(&e), NodeId::parse("b"));
    assert_note(&e, "labels.csv not read: class");
    let e = labels("id,time,node,label\n9,5,0,b\n8,6,1,b\n").unwrap();
    assert_note(&e, "labels.csv not read: id");
    for (cell, said) in [("NA", "`NA` is not a label"), ("", "an empty field is not a label")] {
        let now = labels(&format!("time,node,label\n5,0,a\n6,1,{cell}\n")).unwrap_err().to_string();
        assert!(now.contains(&format!("labels.csv:3:5: {said}; fill it in, or remove the row")), "{now}");
    }
}

/// A header of times, what the rows have there, and what the error says to give.
type Split<'a> = (&'a str, &'a dyn Fn(u32) -> String, &'a str);

/// A table of 100 rows.
fn rows_of_times(header: &str, row: &dyn Fn(u32) -> String) -> String {
    let rows: String = (0..100).map(|k| format!("{},{},{}\n", k % 5, 10 + k % 4, row(k))).collect();
    format!("src,dst,{header}\n{rows}")
}

/// The date of the hour `k`.
fn dates(k: u32) -> String {
    format!("2023-11-{:02}", 1 + k / 24)
}

/// Checks that split times are refused, and that what the error says can be done.
fn are_refused(splits: &[Split<'_>]) {
    for &(header, row, remedy) in splits {
        let now = fault(rows_of_times(header, row), &ReadOptions::default());
        assert!(now.contains(remedy), "{header}: {now}");
        let given = now.split("give --columns ").nth(1).filter(|_| !now.contains("such as"));
        let Some(given) = given.map(|rest| rest.split(", or").next().unwrap()) else { continue };
        let (given, format) = given.split_once(" --time-format ").unwrap_or((given, ""));
        let time_format =
            Some(format.trim_matches('\'')).filter(|f| !f.is_empty()).map(|f| f.parse().unwrap());
        let e =
            read_with(rows_of_times(header, row), &ReadOptions { time_format, ..columns(given) }).unwrap();
        assert!(e.time[99] > 86_400 || header.contains("month"), "{header}: {}", e.time[99]);
        assert!(!has_note(&e, "out-of-order") || now.contains("%p"), "{header}: {:?}", e.notes);
    }
}

#[test]
fn days_and_times_of_day_in_two_columns_are_refused_with_how_to_join_them() {
    let alone = "or --columns time=time if that is the whole time";
    are_refused(&[
        ("date,time", &|k| format!("{},{}", dates(k), k % 24 * 3600), alone),
        ("date,time", &|k| format!("2023-11-01,{k}"), alone),
        ("time,date", &|k| format!("{},{}", k % 24 * 3600, dates(k)), alone),
        (
            "date,time",
            &|k| format!("{},{:02}00", dates(k), k % 24),
            "give --columns time=date+time --time-format '%Y-%m-%d %H%M', or --columns time=time",
        ),
        ("date,time", &|k| format!("{},{}:00:00", dates(k), k % 24), "give --columns time=date+time, or"),
        (
            "date,time",
            &|k| format!("{},{}:00 PM", dates(k), 1 + k % 12),
            "give --columns time=date+time --time-format '%Y-%m-%d %I:%M %p'",
        ),
        (
            "date,time",
            &|k| format!("202311{:02},{:02}:00", 1 + k / 24, k % 24),
            "give --columns time=date+time --time-format '%Y%m%d %H:%M'",
        ),
        (
            "date,time",
            &|k| format!("{}/11/2023,{:02}:00", 13 + k / 24, k % 24),
            "give --columns time=date+time with a pattern of dates, such as --time-format '%d/%m/%Y %H:%M'",
        ),
        ("day,seconds", &|k| format!("{},{}", 1 + k / 24, k % 24 * 3600), "--columns time=seconds if that"),
        ("trip_date,time", &|k| format!("{},{}", dates(k), k % 24 * 3600), alone),
    ]);
}

#[test]
fn parts_of_times_in_columns_are_refused_with_how_to_join_them() {
    are_refused(&[
        (
            "date,hour",
            &|k| format!("{},{}", dates(k), k % 24),
            "would not be read; give --columns time=date+hour",
        ),
        (
            "date,hour,minute",
            &|k| format!("{},{},{}", dates(k), k % 24, k % 60),
            "give --columns time=date+hour+minute --time-format '%Y-%m-%d %H %M'",
        ),
        (
            "order_date,order_time",
            &|k| format!("{},{:02}:00", dates(k), k % 24),
            "time=order_date+order_time",
        ),
        (
            "year,month,day",
            &|k| format!("2023,{},{}", 1 + k / 28, 1 + k % 28),
            "give --columns time=year+month+day --time-format '%Y %m %d'",
        ),
        (
            "day,month,year",
            &|k| format!("{},{},2023", 1 + k % 28, ["Jan", "Feb", "Mar", "Apr"][k as usize / 28]),
            "give --columns time=year+month+day --time-format '%Y %b %d'",
        ),
        ("month,day", &|k| format!("{},{}", 1 + k / 28, 1 + k % 28), "time=month+day --time-format '%m %d'"),
    ]);
}

#[test]
fn a_time_beside_a_date_that_is_another_one_is_read() {
    for (header, row) in [
        (
            "date,time",
            &(|k: u32| format!("{},{}", dates(k), 1_700_000_000 + k * 3600)) as &dyn Fn(u32) -> String,
        ),
        ("date,time", &|k| format!("{},{}", dates(k), k * 3600)),
        ("date,step", &|k| format!("{},{}", dates(k), k / 24)),
        ("birth_date,time", &|k| format!("19{:02}-01-05,{}", k * 37 % 100, k)),
        ("date,time", &|k| format!("{}T05:00:00,{}", dates(k), k % 24)),
    ] {
        let e = read(rows_of_times(header, row)).unwrap();
        assert!(has_note(&e, "columns not read: "), "{header}: {:?}", e.notes);
    }
}

#[test]
fn times_with_and_without_a_zone_and_leap_seconds_that_cannot_be_are_told() {
    let e = read("src,dst,time\n1,7,2023-11-14T10:00:00\n2,8,2023-11-14T10:01:00+05:00\n").unwrap();
    assert_note(
        &e,
        "1 time without a zone read as UTC, although others have one, such as `2023-11-14T10:01:00+05:00`",
    );
    let rows = |zone: &dyn Fn(u32) -> &'static str| {
        let row = |k| format!("{},{},2023-11-14T10:{:02}:00{}\n", k % 5, 10 + k % 4, k % 60, zone(k));
        read(format!("src,dst,time\n{}", (0..3000).map(row).collect::<String>())).unwrap()
    };
    assert_note(&rows(&|k| if k < 2990 { "" } else { "Z" }), "2,990 times without a zone read as UTC");
    assert!(!has_note(&rows(&|_| ""), "zone") && !has_note(&rows(&|_| "-02:00"), "zone"));
    assert!(read("src,dst,time\n1,2,2016-12-31T23:59:60\n2,3,2017-01-01T05:29:60+05:30\n").is_ok());
    for time in ["2023-11-05T12:30:60", "2023-11-05T23:59:60", "2016-12-31T23:59:60+01:00"] {
        let now = fault(format!("src,dst,time\n1,2,{time}\n"), &ReadOptions::default());
        assert!(now.contains(&format!("`{time}` is not a time")), "{now}");
    }
    let pattern =
        ReadOptions { time_format: Some("%d.%m.%Y %H:%M:%S".parse().unwrap()), ..Default::default() };
    assert!(read_with("src,dst,time\n1,2,31.12.2016 23:59:60\n", &pattern).is_ok());
    assert!(fault("src,dst,time\n1,2,05.11.2023 12:30:60\n", &pattern).contains("is not a time"));
}

#[test]
fn ids_that_are_merged_or_may_be_missing_are_told() {
    let e = read("src,dst,time\nlib,1,1\nlib,1.0,2\nlib,1.00,3\n").unwrap();
    assert_note(
        &e,
        "2 ids such as `1.0` read as whole numbers, without the point: `1` and `1.0` are one node",
    );
    assert!(!has_note(&read("src,dst,time\n1,1.0,1\n2,10,2\n").unwrap(), "without the point"));
    let (_dir, path) =
        write("e.jsonl", "{\"src\": 1, \"dst\": 2, \"time\": 1}\n{\"src\": true, \"dst\": 2, \"time\": 2}\n");
    let e = load(&path, &ReadOptions::default()).unwrap();
    assert_eq!([0, 1, 2].map(|v| e.id(v).to_string()).join(" "), "1 true 2");
    for word in [
        ".",
        "..",
        "--",
        "*",
        "n.a.",
        "(none)",
        "(not set)",
        "(blank)",
        "<null>",
        "void",
        "#NULL!",
        "unk",
        "_",
        "[deleted]",
        "\"\"\"\"\"\"",
        "not available",
    ] {
        let rows: String =
            (0..40).map(|k| format!("u{},{},{k}\n", k % 5, if k % 4 == 0 { word } else { "b" })).collect();
        let e = read(format!("src,dst,time\n{rows}")).unwrap();
        assert_note(&e, "is a node, with 10 events: if that means a missing node");
    }
    let labelled = |labels: [&str; 3]| {
        let rows: String = labels.iter().zip(0..).map(|(label, k)| format!("u,b{k},{k},{label}\n")).collect();
        read(format!("src,dst,time,label\n{rows}")).unwrap()
    };
    assert_note(&labelled(["fraud", "?", "legit"]), "the label `?` is a class like others");
    let e = labelled(["\"fraud \"", "fraud", "\" \""]);
    assert_eq!((e.label_names.as_ref().unwrap().len(), e.notes[0].as_str()), (1, "1 event has no label"));
    let long = "x".repeat(200_001);
    let e = read(format!("1,2,1\n{long},2,2\n")).unwrap();
    assert!(e.notes.iter().all(|note| note.len() < 200), "a note prints the whole id");
    let said = e.names().find(&(long + "y")).unwrap_err().to_string();
    assert!(said.len() < 200, "an error prints the whole id");
}

#[test]
fn rows_in_parentheses_are_refused() {
    for text in ["(1,2,3)\n(2,3,4)\n", "(a,b,3),\n(b,c,4),\n", "src,dst,time\n(1,2,3)\n", "[1,2,3]\n"] {
        let now = fault(text, &ReadOptions::default());
        assert!(now.contains("has rows in parentheses; ") || now.contains("is a JSON array"), "{now}");
    }
}

#[test]
fn numbers_that_may_be_dates_or_days_are_read_as_such_by_name_or_told() {
    let days = |name: &str, day: &dyn Fn(u32) -> String| {
        let rows: String = (1..29).map(|k| format!("{},{},{}\n", k % 5, 10 + k % 4, day(k))).collect();
        read(format!("src,dst,{name}\n{rows}")).unwrap()
    };
    for (name, day, said) in [
        (
            "created_at",
            &(|k: u32| format!("{}", 19_675 + k)) as &dyn Fn(u32) -> String,
            "in d it is 2023-11-15: if so",
        ),
        ("ts", &|k| format!("{}.5", 45_000 + k), "in excel (days since 1899-12-30) it is 2023-03-16"),
        (
            "time",
            &|k| format!("{}", 60_000 + k),
            "in mjd (modified Julian days) it is 2023-02-26: if so, give",
        ),
        ("when", &|k| format!("{}", 50_000 + k), "if so, give --time-format excel or mjd"),
        (
            "time",
            &|k| format!("2311{k:02}"),
            "`231101` is read as a number; if it is a date, give --time-format %y%m%d",
        ),
        ("time", &|k| format!("{k:02}112023"), "if it is a date, give --time-format %d%m%Y"),
        ("time", &|k| format!("2023{k:03}"), "if it is a date, give --time-format %Y%j"),
        ("date", &|k| format!("0{}112023", 1 + k % 9), "give --time-format %d%m%Y or %m%d%Y"),
        ("date", &|k| format!("{}112023", 1 + k % 9), "if it is a date, as the column's name says, give its"),
    ] {
        let e = days(name, day);
        assert!(e.time_format.to_string() == "s", "{name}: {}", e.time_format);
        assert_note(&e, said);
    }
    for (day, format) in [
        (&(|k: u32| format!("{k:02}112023")) as &dyn Fn(u32) -> String, "%d%m%Y"),
        (&|k| format!("11{k:02}2023"), "%m%d%Y"),
        (&|k| format!("2023{k:03}"), "%Y%j"),
        (&|k| format!("0311{k:02}"), "%y%m%d"),
        (&|k| format!("2311{k:02}"), "%y%m%d"),
    ] {
        let e = days("date", day);
        assert_eq!((e.time_format.to_string().as_str(), e.time[27]), (format, 27 * 86_400));
        assert_note(&e, &format!("read as dates, by --time-format {format}"));
    }
}
