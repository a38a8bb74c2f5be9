//! TGB's data sets, from their folders to a row of a leaderboard.
use crate::support::{
    paths::root,
    program::{done, json, made, program, refused, tgnn},
};
use std::path::Path;

/// Returns the folder of a small data set in TGB's layout.
fn folder(set: &str) -> String {
    format!("{}/tests/golden/foreign/{}", root().display(), set.replace('-', "_"))
}

/// Returns the words of a short run of `command`, `train` or `sweep`, under TGB's protocol.
fn short<'a>(command: &'a str, data: &'a str, out: &'a str) -> Vec<&'a str> {
    vec![command, "small.toml", "--data", data, "--protocol", "tgb", "--batch", "5", "--out", out]
}

#[test]
fn sets_with_types_are_trained_and_ranked_against_their_official_negatives() {
    let dir = made();
    let dir = dir.path();
    for (set, most) in [("thgl-forum", 3), ("tkgl-yago", 15), ("tkgl-icews", 15)] {
        let data = folder(set);
        let ran = done(dir, &[&short("train", &data, set)[..], &["--json"]].concat());
        let summary = json(&ran.out);
        assert_eq!((&summary["data"]["name"], &summary["protocol"]), (&set.into(), &"tgb".into()));
        let mrr = summary["test"]["transductive"]["mrr"].as_f64().unwrap();
        assert!(mrr >= 1.0 / f64::from(1 + most) && mrr <= 1.0, "{set}: {mrr}");
        assert_eq!(
            ran.err.contains("data.train 0.8 and data.val 0.1, as published"),
            set == "tkgl-yago",
            "{}",
            ran.err
        );
        let config = std::fs::read_to_string(dir.join(set).join("config.toml")).unwrap();
        assert_eq!(config.contains("train = 0.8\n"), set == "tkgl-yago", "{config}");
    }
    // An edge's type is its class.
    let data = folder("thgl-software");
    let ran =
        done(dir, &["train", "--data", &data, "--task", "edge", "--epochs", "1", "--threads", "1", "--json"]);
    assert!(json(&ran.out)["test"]["transductive"]["ap"].as_f64().is_some());
}

#[test]
fn an_import_keeps_types_and_negatives() {
    let dir = made();
    let dir = dir.path();
    let data = folder("thgl-software");
    done(dir, &["data", "import", &data, "--out", "whole"]);
    let stats = |data: &str| json(&done(dir, &["data", "info", data, "--json"]).out);
    let (before, after) = (stats(&data), stats("whole"));
    for key in ["name", "events", "nodes", "classes", "edge_feature_width", "node_feature_width"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    let mrr = |data: &str, out: &str| {
        let summary = json(&done(dir, &[&short("train", data, out)[..], &["--json"]].concat()).out);
        summary["test"]["transductive"]["mrr"].clone()
    };
    assert_eq!(mrr(&data, "a"), mrr("whole", "b"));
}

#[test]
fn a_sweep_over_seeds_gives_the_row_of_a_leaderboard() {
    let dir = made();
    let dir = dir.path();
    let data = folder("tgbl-wiki");
    let ran = done(dir, &[&short("sweep", &data, "s")[..], &["--seeds", "2"]].concat());
    assert!(ran.out.contains("tgnn-bench compare s --as tgb"), "{}", ran.out);
    let text = done(dir, &["compare", "s", "--as", "tgb"]).out;
    let row = text.lines().find(|line| line.starts_with("| tgbl-wiki | tgn | 0.")).unwrap();
    assert!(row.ends_with("| 2, fewer than 5 |") && row.matches(" ± 0.").count() == 2, "{text}");
    let names: Vec<_> = names(&dir.join("s"));
    assert_eq!(names, ["seed=1", "seed=2"]);
    // The table of a narrow terminal says what it leaves out.
    let narrow = std::process::Command::new(program())
        .args(["compare", "s"])
        .env("COLUMNS", "70")
        .current_dir(dir)
        .output()
        .unwrap();
    let text = String::from_utf8(narrow.stdout).unwrap();
    assert!(text.contains("val MRR") && text.contains("no room for "), "{text}");
    let table = text.lines().skip(2).take_while(|line| !line.starts_with("no room"));
    assert!(table.clone().count() > 2 && table.clone().all(|line| line.chars().count() <= 70), "{text}");
    done(dir, &["train", "small.toml", "--out", "own"]);
    refused(
        dir,
        &["compare", "own", "--as", "tgb"],
        2,
        &["own: its data set is made", "no result for a leaderboard"],
    );
    let plain = ["train", "--data", &data, "--epochs", "1", "--threads", "1", "--out", "plain"];
    done(dir, &plain);
    let said = ["plain: its protocol is dyglib", "train with --protocol tgb"];
    refused(dir, &["compare", "plain", "--as", "tgb"], 2, &said);
    refused(
        dir,
        &["sweep", "small.toml", "--out", "t", "--seeds", "0"],
        2,
        &["--seeds 0: these are no seeds"],
    );
}

/// Returns the names in a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_set_that_is_not_there_says_how_to_get_it() {
    let dir = made();
    for set in ["tgbl-wiki", "tgbn-trade", "tkgl-yago", "thgl-software"] {
        let e = tgnn(dir.path(), &["train", "--data", set]);
        assert_eq!((e.code, e.err.matches('\n').count()), (10, 1), "{}", e.err);
        assert!(e.err.contains("pip install py-tgb") && e.err.contains(&format!("D('{set}'")), "{}", e.err);
    }
    let e = tgnn(dir.path(), &["data", "info", "datasets/tgbl_wkii"]).err;
    assert!(e.contains("TGB has no tgbl-wkii; did you mean tgbl-wiki?"), "{e}");
}
