//! Tests of times and features as people write them: other units, other zones, commas, missing lists.
use super::tests::{columns, fault, read, read_with, write};
use super::{EventFormat, EventRow, LaterEvent, LaterEvents};
use crate::{Events, Missing, NodeId, ReadOptions, load};
use std::{fs, path::Path};
use tgnn::error::Result;

fn with_format(format: &str) -> ReadOptions {
    ReadOptions { time_format: Some(format.parse().unwrap()), ..ReadOptions::default() }
}

/// Returns the notes of events, one per line.
fn notes(events: &Events) -> String {
    events.notes.join("\n")
}

/// Reads the events and a table of node features called `name`.
fn with_nodes(name: &str, table: impl AsRef<[u8]>) -> Result<Events> {
    let (dir, path) = write("events.csv", "src,dst,time\n0,1,5\n1,2,6\n");
    let file = dir.path().join(name);
    fs::write(&file, table).unwrap();
    load(&path, &ReadOptions { node_features: Some(file), ..ReadOptions::default() })
}

#[test]
fn times_in_other_zones_are_refused_with_what_to_write() {
    let format = with_format("%Y-%m-%d %H:%M:%S %Z");
    let said = fault("src,dst,time\na,b,2023-11-14 17:13:20 EST\n", &format);
    assert!(
        said.starts_with(
            "events.csv:2:5: `2023-11-14 17:13:20 EST` is not a time; write times in the format"
        ),
        "{said}"
    );
    assert!(said.contains("are ambiguous: write +01:00 and give %z"), "{said}");
    let e = read_with("src,dst,time\na,b,2023-11-14 22:13:20 UTC\n", &format).unwrap();
    assert_eq!((e.origin, e.time_scale().text(0).as_str()), (1_700_000_000, "2023-11-14 22:13:20 UTC"));
    // As in events, so in labels and where a time is given.
    assert!(e.time_scale().ticks("2023-11-14 22:13:20 CET").unwrap_err().to_string().contains("and give %z"));
    let (dir, path) = write("events.csv", "src,dst,time\na,b,2023-11-14 22:13:20 UTC\n");
    let labels = dir.path().join("labels.csv");
    fs::write(&labels, "time,node,label\n2023-11-14 22:13:20 PST,a,x\n").unwrap();
    let mut e = load(&path, &format).unwrap();
    let said = super::node_labels::attach(&labels, &mut e).unwrap_err().to_string();
    assert!(said.contains("PST` is not a time") && said.contains("and give %z"), "{said}");
}

#[test]
fn times_of_day_without_a_date_are_of_one_day_and_told() {
    let e = read_with("src,dst,time\n1,2,22:13:20\n2,3,00:01:00\n", &with_format("%H:%M:%S")).unwrap();
    assert_eq!((e.origin, e.time.to_vec()), (60, vec![0, 79_940]));
    assert!(
        notes(&e).contains("in the format %H:%M:%S have no date: all are of 1970-01-01"),
        "{}",
        notes(&e)
    );
}

#[test]
fn days_and_ticks_are_read_by_the_name_of_their_column_or_told() {
    let days = |name: &str, first: f64| {
        let rows = (0..20).map(|i| format!("{i},{},{}\n", i + 1, first + f64::from(i)));
        read(format!("src,dst,{name}\n{}", rows.collect::<String>())).unwrap()
    };
    for (name, first, format) in
        [("date", 19_675.0, "d"), ("date", 45_244.0, "excel"), ("jd_date", 2_460_262.5, "julian")]
    {
        let e = days(name, first);
        assert_eq!(
            (e.origin, e.time[19], e.time_format.to_string().as_str()),
            (1_699_920_000, 19 * 86_400, format)
        );
        assert!(notes(&e).contains(&format!("read by --time-format {format}")), "{}", notes(&e));
        assert!(!notes(&e).contains("by their size"), "{}", notes(&e));
        let (first, last) = (e.time_scale().text(0), e.time_scale().text(e.time[19]));
        assert_eq!(e.time_scale().ticks(&first).unwrap(), 0);
        assert_eq!(e.time_scale().ticks(&last).unwrap(), e.time[19]);
    }
    let e = days("time", 2_460_262.5);
    assert_eq!((e.time[19], e.ticks_per_second), (190, 10.0));
    assert!(notes(&e).contains("in julian (Julian days) it is 2023-11-14"), "{}", notes(&e));
    for (first, format, about) in [
        (638_355_968_000_000_000u64, "dotnet", "ticks of .NET"),
        (133_444_736_000_000_000, "filetime", "100 ns since 1601"),
        (13_344_473_600_000_000, "webkit", "microseconds since 1601"),
    ] {
        let e = read(format!("src,dst,time\n1,2,{first}\n2,3,{}\n", first + 5)).unwrap();
        assert_eq!((e.time_format.to_string().as_str(), e.time[1]), (format, 5));
        assert_eq!(e.origin as f64 / e.ticks_per_second, 1.7e9);
        assert!(notes(&e).contains(&format!("times read in {format} ({about}")), "{}", notes(&e));
        assert_eq!(e.time_scale().text(5), (first + 5).to_string());
    }
    let rows = (0..120).map(|i| format!("1,2,{}\n", 19_675 + i)).collect::<String>();
    let said = fault(format!("src,dst,date\n{rows}2,3,today\n"), &ReadOptions::default());
    assert!(
        said.contains("`today` is not a time; write times in the format d, or give --time-format s"),
        "{said}"
    );
}

#[test]
fn later_events_have_the_times_of_the_data() {
    let e = read("src,dst,date\n1,2,43831\n2,3,43832\n").unwrap();
    let format = EventFormat {
        scale: e.time_scale(),
        encoding: crate::FeatureEncoding::default(),
        has_names: true,
        columns: crate::Columns::default(),
        delimiter: None,
        missing: Missing::Zero,
        ids: super::id_rule::IdRule::default(),
        asks: false,
    };
    let mut times = Vec::new();
    let mut later = LaterEvents::new(Path::new("-"), format);
    for line in ["src,dst,date", "1,2,43833", "1,2,43833.5"] {
        let mut take = |event: LaterEvent, _: &EventRow<'_>| {
            times.push(event.time);
            Ok(())
        };
        later.line(line.as_bytes(), &mut take).unwrap();
    }
    assert_eq!(times, [2 * 86_400, 2 * 86_400 + 43_200]);
}

#[test]
fn a_number_with_a_comma_says_which_comma_it_may_be() {
    let said = |amount: &str| {
        fault(format!("src,dst,time,amount\n1,2,3,\"{amount}\"\n"), &columns("features=amount"))
    };
    assert!(
        said("1,000").contains("write 1000 if the comma separates thousands, or 1.000 if it is"),
        "{}",
        said("1,000")
    );
    assert!(said("1,000,000").contains("write 1000, not 1,000"), "{}", said("1,000,000"));
    assert!(said("0,5").contains("write 0.5, not 0,5"), "{}", said("0,5"));
    assert!(said("1.000,5").contains("write 1000.5, not 1.000,5"), "{}", said("1.000,5"));
    let said = fault("src;dst;time\n1;2;1700000000,5\n", &ReadOptions::default());
    assert!(said.contains("write 0.5, not 0,5"), "{said}");
}

#[test]
fn node_features_with_commas_are_refused_or_told_and_large_ones_are_told() {
    let rows =
        |value: &dyn Fn(u32) -> String| (0..12).map(|i| format!("{i};{}\n", value(i))).collect::<String>();
    let e = with_nodes("nodes.csv", format!("id;income\n{}", rows(&|i| format!("{},001", i + 1))))
        .unwrap_err()
        .to_string();
    assert!(e.contains("nodes.csv:2:3: `1,001` is not a feature; write 1000 if the comma separates"), "{e}");
    let e = with_nodes("nodes.csv", format!("id;income\n{}", rows(&|i| format!("{i},5"))))
        .unwrap_err()
        .to_string();
    assert!(e.contains("nodes.csv:2:3: `0,5` is not a feature; write 0.5, not 0,5"), "{e}");
    let e = with_nodes("nodes.csv", format!("id;income\n{}", rows(&|i| format!("{},5", i % 2)))).unwrap();
    assert!(
        notes(&e)
            .contains("`income` is read as categories, such as `0,5`: if it has numbers, write 0.5, not 0,5"),
        "{}",
        notes(&e)
    );
    assert_eq!(e.node_features.as_ref().unwrap().cols(), 2);
    let e = with_nodes("nodes.csv", "id,phone\n0,4912345678901\n1,4912345678902\n").unwrap();
    assert!(notes(&e).contains("features of `phone` are as large as 4.9e12"), "{}", notes(&e));
    let mut array = crate::npy::tests::bytes("<f4", false, "(3, 2)", &[]);
    array.extend([1.0f32, 0.0, 2.0, -3e9, 0.0, 1.0].iter().flat_map(|v| v.to_le_bytes()));
    let e = with_nodes("nodes.npy", array).unwrap();
    assert!(
        notes(&e).contains("features of column 2 of ")
            && notes(&e).contains("nodes.npy are as large as 3.0e9"),
        "{}",
        notes(&e)
    );
}

#[test]
fn lists_that_are_missing_first_have_the_length_of_those_after() {
    let text = "{\"src\": 1, \"dst\": 2, \"time\": 3, \"emb\": null, \"x\": 7}\n\
                {\"src\": 1, \"dst\": 2, \"time\": 4, \"emb\": null, \"x\": 8}\n\
                {\"src\": 1, \"dst\": 2, \"time\": 5, \"emb\": [1, null, 3], \"x\": 9}\n\
                {\"src\": 1, \"dst\": 2, \"time\": 6, \"emb\": null, \"x\": null}\n";
    let (_dir, path) = write("events.jsonl", text);
    let e = load(&path, &columns("features=emb+x")).unwrap();
    let values = [0., 0., 0., 7., 0., 0., 0., 8., 1., 0., 3., 9., 0., 0., 0., 0.];
    assert_eq!((e.edge_width(), e.edge_features.as_ref().unwrap().values()), (4, &values[..]));
    assert!(notes(&e).contains("11 missing features read as 0"), "{}", notes(&e));
    let refused = |text: &str| {
        let (_dir, path) = write("events.jsonl", text);
        load(&path, &columns("features=emb")).unwrap_err().to_string()
    };
    for (lists, said) in [
        (["null", "[1, 2]", "[1]"], "1 in this list, 2 in those before it"),
        (["null", "5", "[1, 2]"], "2 in this list, 1 in those before it"),
        (["null", "[]", "[1, 2]"], "2 in this list, 0 in those before it"),
        (["[]", "null", "[1, 2]"], "2 in this list, 0 in those before it"),
    ] {
        let line = |(i, list)| format!("{{\"src\": 1, \"dst\": 2, \"time\": {i}, \"emb\": {list}}}\n");
        let e = refused(&lists.into_iter().enumerate().map(line).collect::<String>());
        assert!(e.contains(said), "{lists:?}: {e}");
    }
    let nodes = "{\"id\": 0, \"emb\": null}\n{\"id\": 1, \"emb\": [1.5, 2]}\n{\"id\": 2, \"emb\": [3, 4]}\n";
    let e = with_nodes("nodes.jsonl", nodes).unwrap();
    assert_eq!(e.node_features.as_ref().unwrap().values(), [0., 0., 1.5, 2., 3., 4.]);
    assert_eq!(e.id(0), NodeId::Number(0));
}
