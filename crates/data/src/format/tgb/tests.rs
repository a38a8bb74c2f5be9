//! TGB's folders compared with the results of `py-tgb`; see `tests/golden/foreign.py`.
use crate::{Columns, Events, Format, GivenNegatives, Part, ReadOptions, Split, load, save};
use serde_json::Value;
use std::{fs, path::Path};
use tempfile::{TempDir, tempdir};
use tgnn::error::{ErrorKind, Result};

pub(super) const GOLDEN: &str = "../../tests/golden/foreign";

fn golden(set: &str) -> Value {
    let text = fs::read_to_string(Path::new(GOLDEN).join("tgb.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[set].clone()
}

pub(super) fn read(path: &str) -> Result<Events> {
    load(path, &ReadOptions::default())
}

/// Returns TGB's number of a node.
pub(super) fn number(events: &Events, node: u32) -> u64 {
    events.ids.as_ref().map_or(node.into(), |ids| ids.numbers().unwrap()[node as usize])
}

pub(super) fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Copies a golden folder, so that a test may modify it.
pub(super) fn copy(set: &str) -> (TempDir, String) {
    let dir = tempdir().unwrap();
    let to = dir.path().join(set);
    fs::create_dir(&to).unwrap();
    for file in fs::read_dir(Path::new(GOLDEN).join(set)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let path = to.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn every_layout_has_the_nodes_times_and_features_that_tgbs_own_package_reads() {
    for set in ["wiki", "coin", "uci", "comment", "flight"] {
        let (e, wanted) = (read(&format!("{GOLDEN}/tgbl_{set}")).unwrap(), golden(set));
        assert_eq!((e.name.as_str(), e.ticks_per_second), (format!("tgbl-{set}").as_str(), 1.0));
        let original = |nodes: &[u32]| nodes.iter().map(|&v| number(&e, v)).collect::<Vec<_>>();
        assert_eq!(original(&e.src), numbers::<Vec<u64>>(&wanted["src"]), "{set}");
        assert_eq!(original(&e.dst), numbers::<Vec<u64>>(&wanted["dst"]), "{set}");
        let times: Vec<i64> = e.time.iter().map(|t| t + e.origin).collect();
        assert_eq!(times, numbers::<Vec<i64>>(&wanted["time"]), "{set}");
        let rows: Vec<Vec<f64>> = numbers(&wanted["features"]);
        if set == "uci" {
            // The package reads the event number as a feature.
            assert!(e.edge_features.is_none() && e.notes.iter().any(|n| n.contains("whole seconds")));
            continue;
        }
        let rows: Vec<f32> = rows.concat().into_iter().map(|v| v as f32).collect();
        assert_eq!(e.edge_features.unwrap().values(), rows, "{set}");
    }
}

#[test]
fn parts_and_negatives_equal_those_of_tgb_in_every_pickle_protocol() {
    for set in ["wiki", "coin", "uci"] {
        let path = format!("{GOLDEN}/tgbl_{set}");
        let (e, wanted) = (read(&path).unwrap(), golden(set));
        let split = Split::by_time(&e, 0.70, 0.15).unwrap();
        for (part, range) in [(Part::Val, split.val.clone()), (Part::Test, split.test.clone())] {
            assert_eq!(wanted[part.name()], range.len());
            let given = GivenNegatives::beside(&path, part, &e, range.clone()).unwrap().unwrap();
            let found: Vec<Vec<u64>> =
                range.map(|i| given.get(i).iter().map(|&v| number(&e, v)).collect()).collect();
            assert_eq!(
                found,
                numbers::<Vec<Vec<u64>>>(&wanted[format!("{}_negatives", part.name())]),
                "{set}"
            );
            assert_eq!(given.most(), found.iter().map(Vec::len).max().unwrap());
        }
    }
    let comment = format!("{GOLDEN}/tgbl_comment");
    let e = read(&comment).unwrap();
    assert_eq!(GivenNegatives::beside(&comment, Part::Val, &e, 0..1).unwrap(), None);
    assert_eq!(GivenNegatives::beside("wikipedia", Part::Val, &e, 0..1).unwrap(), None);
}

#[test]
fn an_imported_set_keeps_its_negatives() {
    let dir = tempdir().unwrap();
    for set in ["wiki", "uci"] {
        let path = format!("{GOLDEN}/tgbl_{set}");
        let e = read(&path).unwrap();
        let given = GivenNegatives::all_beside(&path, &e).unwrap();
        let to = dir.path().join(set);
        crate::save_with_negatives(&e, &given, &to, false).unwrap();
        let to = to.to_str().unwrap();
        let back = read(to).unwrap();
        assert_eq!(back, e);
        assert_eq!(GivenNegatives::all_beside(to, &back).unwrap(), given);
        save(&e, to, true).unwrap();
        assert_eq!(GivenNegatives::all_beside(to, &back).unwrap(), [None, None]);
    }
}

#[test]
fn a_folder_gives_the_newest_version_and_a_file_name_any_version() {
    let (_dir, path) = copy("tgbl_wiki");
    let header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n";
    let first = format!("{path}/tgbl-wiki_edgelist.csv");
    fs::write(&first, format!("{header}0,0,5,0\n")).unwrap();
    assert_eq!(read(&path).unwrap().len(), 20);
    let e = read(&first).unwrap();
    assert_eq!((e.len(), e.name.as_str(), e.edge_width()), (1, "tgbl-wiki", 0));
    let plain = ReadOptions { format: Some(Format::Jodie), ..ReadOptions::default() };
    assert_eq!(load(&first, &plain).unwrap().name, "tgbl-wiki_edgelist");
    let columns = Some("src=1,dst=2,time=3".parse::<Columns>().unwrap());
    let e = load(&path, &ReadOptions { format: Some(Format::Tgb), columns, ..ReadOptions::default() });
    assert_eq!(e.unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn a_destination_without_events_may_be_a_negative() {
    let e = read(&format!("{GOLDEN}/tgbl_uci")).unwrap();
    let has_event = |node: u32| e.dst.contains(&node);
    let first = e.first_destination.unwrap();
    assert!((first..e.nodes as u32).any(|v| !has_event(v)), "the ids of the golden file have no gaps");
    assert_eq!(number(&e, e.nodes as u32 - 1) - number(&e, first), e.nodes as u64 - 1 - u64::from(first));
}

#[test]
fn errors_in_an_edge_list_name_line_and_column_in_one_line_of_text() {
    let (_dir, path) = copy("tgbl_coin");
    let list = format!("{path}/tgbl-coin_edgelist_v2.csv");
    let error_of = |text: &str, options: &ReadOptions| {
        fs::write(&list, text).unwrap();
        let e = load(&path, options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Data);
        let line = e.to_string();
        assert!(line.contains("; ") && !line.contains('\n'), "{line}");
        line[line.find("tgbl-coin_edgelist").unwrap()..].to_owned()
    };
    let plain = ReadOptions::default();
    for (text, wanted) in [
        ("", "tgbl-coin_edgelist_v2.csv: the file is empty"),
        ("day,src,dst,weight\n", "tgbl-coin_edgelist_v2.csv: there are no events"),
        ("day,src,dst,weight\n5,a,b\n", "tgbl-coin_edgelist_v2.csv:2: this row has 3 columns, expected 4"),
        (
            "day,src,dst,weight\n5,a,,1\n",
            "tgbl-coin_edgelist_v2.csv:2:5: an empty field is not a node's name",
        ),
        (
            "day,src,dst,weight\n5,a,b,-1\n",
            "tgbl-coin_edgelist_v2.csv:2:7: `-1` is negative, so it is not a weight",
        ),
        (
            "day,src,dst,weight\n2019-01-01,a,b,1\n",
            "tgbl-coin_edgelist_v2.csv:2:1: `2019-01-01` is not a time",
        ),
    ] {
        let line = error_of(text, &plain);
        assert!(line.starts_with(wanted), "{line}");
    }
    let strict = ReadOptions { strict: true, ..ReadOptions::default() };
    let line = error_of("day,src,dst,weight\n5,a,b,1\n4,a,b,1\n", &strict);
    assert!(line.starts_with("tgbl-coin_edgelist_v2.csv:3:1: this event is earlier"), "{line}");
    fs::rename(&list, format!("{path}/tgbl-trade_edgelist.csv")).unwrap();
    let line = read(&path).unwrap_err().to_string();
    assert!(
        line.contains("tgbl-trade is not a supported TGB data set")
            && line.contains("tgbl-wiki, tgbl-subreddit"),
        "{line}"
    );
}

#[test]
fn rows_of_another_width_ids_that_overflow_and_long_codes_are_refused() {
    let (_dir, path) = copy("tgbl_wiki");
    let list = format!("{path}/tgbl-wiki_edgelist_v2.csv");
    for (rows, said) in [
        ("0,0,5,0,1\n0,0,6,0,1,2,3\n", "csv:3: this row has 7 columns, expected 5"),
        ("0,0,5\n", "csv:2: this row has 3 columns, expected 4"),
        ("0,18446744073709551615,5,0\n", "csv: an id is 2^64 - 1"),
    ] {
        fs::write(&list, format!("user_id,item_id,timestamp,state_label,features\n{rows}")).unwrap();
        let line = read(&path).unwrap_err().to_string();
        assert!(line.contains(said), "{line}");
    }
    let (_dir, path) = copy("tgbl_flight");
    let list = format!("{path}/tgbl-flight_edgelist_v2.csv");
    fs::write(list, "day,src,dst,callsign,typecode\n5,a,b,ABCDEFGHI,A320\n").unwrap();
    let line = read(&path).unwrap_err().to_string();
    assert!(
        line.contains("csv:2:7: `ABCDEFGHI` is too large for a call sign; write at most eight"),
        "{line}"
    );
}

#[test]
fn negatives_of_other_events_and_of_unknown_nodes_are_refused() {
    let (_dir, path) = copy("tgbl_coin");
    let e = read(&path).unwrap();
    let split = Split::by_time(&e, 0.70, 0.15).unwrap();
    let line = GivenNegatives::beside(&path, Part::Val, &e, split.train.clone()).unwrap_err().to_string();
    let wanted = "tgbl-coin_val_ns_v2.pkl: no negatives for event 0, from 0 to 1 at time 12884832";
    assert!(line.contains(wanted) && line.contains("; fetch"), "{line}");
    // Only the first two nodes remain.
    let mut fewer = e.clone();
    fewer.nodes = 2;
    let line = GivenNegatives::beside(&path, Part::Test, &fewer, split.test).unwrap_err().to_string();
    assert!(line.contains(&format!(": event {} has the negative ", split.val.end)), "{line}");
    assert!(line.contains(", which is not a node of the events; "), "{line}");
}
