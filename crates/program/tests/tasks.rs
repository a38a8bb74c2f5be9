//! The program with every model, task and protocol: what it accepts, measures and refuses.
use crate::support::{
    paths::root,
    program::{done, json, made, refused, small, tgnn, write_npy},
};
use serde_json::Value;
use std::{fs, path::Path};

/// Returns the path of a foreign folder beside the tests.
fn foreign(name: &str) -> String {
    format!("{}/tests/golden/foreign/{name}", root().display())
}

fn summary(dir: &Path, words: &[&str]) -> Value {
    json(&done(dir, &small(&[words, &["--json"]].concat())).out)
}

#[test]
fn every_model_trains_tests_and_embeds_by_its_name_with_widths_of_its_own() {
    let dir = made();
    let dir = dir.path();
    for (model, key) in [
        ("tgn", "tgn.embedding=6"),
        ("jodie", "jodie.memory=6"),
        ("dyrep", "dyrep.memory=6"),
        ("apan", "apan.memory=6"),
        ("tgat", "tgat.embedding=6"),
        ("graph-mixer", "graph-mixer.embedding=6"),
        ("static", "static.width=6"),
    ] {
        let found = summary(dir, &["--model", model, "--set", key, "--out", model]);
        assert_eq!(found["model"], model);
        let tested = json(&done(dir, &["eval", "--checkpoint", model, "--json"]).out);
        assert_eq!((&tested["test"], &tested["model"]), (&found["test"], &found["model"]));
        assert!(tested["test"]["transductive"]["ap"].is_f64(), "{tested}");
        let out = format!("{model}.npy");
        let message = done(dir, &["embed", "--checkpoint", model, "--nodes", "0,39", "--out", &out]).out;
        assert!(message.starts_with("2 embeddings of width 6 in "), "{message}");
    }
}

#[test]
fn every_kind_of_negatives_is_measured_and_pairs_seen_before_are_hard_for_edgebank() {
    let dir = made();
    let dir = dir.path();
    let edgebank = ["random", "historical", "inductive"].map(|kind| {
        let found = summary(dir, &["--negatives", kind]);
        assert_eq!(found["negatives"], kind);
        assert!(found["test"]["transductive"]["ap"].is_f64(), "{found}");
        found["edgebank"]["unlimited"]["transductive"]["auc"].as_f64().unwrap()
    });
    // EdgeBank knows only pairs, so it fails among negatives that had an event before.
    assert!(edgebank[1] < edgebank[0] - 0.1, "{edgebank:?}");
}

#[test]
fn classes_of_events_and_of_their_sources_are_predicted_and_missing_labels_are_reported_in_one_line() {
    let dir = made();
    let dir = dir.path();
    for task in ["node", "edge"] {
        let found = summary(dir, &["--task", task, "--set", "classify.width=7"]);
        let scores = &found["test"]["transductive"];
        assert!(scores["auc"].is_f64() && scores["f1"].is_f64() && scores["mrr"].is_null(), "{found}");
        assert_eq!((&found["task"], &found["edgebank"]), (&task.into(), &Value::Null));
    }
    fs::remove_file(dir.join("made/label.npy")).unwrap();
    for task in ["node", "edge"] {
        let texts = ["made has no labels", "add classes.npy to a folder of .npy"];
        refused(dir, &small(&["--task", task, "--out", "run"]), 3, &texts);
    }
}

#[test]
fn protocol_tgb_uses_the_negatives_beside_the_data_or_reports_what_is_wrong_with_them() {
    let dir = made();
    let dir = dir.path();
    let tgb = small(&["--protocol", "tgb", "--out", "run"]);
    let none = ["made has no negatives for its val part", "val_negatives.npy and test_negatives.npy"];
    refused(dir, &tgb, 3, &none);
    // The sizes of the parts, read from the message about missing rows.
    let write = |part: &str, rows: usize, node: i64| {
        let values: Vec<i64> =
            (0..2 * rows as i64).map(|i| if i == 3 { node } else { 30 + i % 10 }).collect();
        write_npy(&dir.join(format!("made/{part}_negatives.npy")), "<i8", rows, 2, &values);
    };
    let rows = ["val", "test"].map(|part| {
        write(part, 1, 30);
        let err = tgnn(dir, &tgb).err;
        let tail = err.split_once(&format!("{part}_negatives.npy: 1 rows of negatives for the ")).unwrap().1;
        let rows = tail.split_once(' ').unwrap().0.parse().unwrap();
        assert!(
            tail.ends_with(" events of the part; fetch or write the negatives that belong to these events\n")
        );
        write(part, rows, 30);
        rows
    });
    for (part, rows) in ["val", "test"].into_iter().zip(rows) {
        write(part, rows, 40);
        let (position, text) = (
            format!("{part}_negatives.npy: event "),
            " has the negative 40, which is not a node of the events",
        );
        refused(dir, &tgb, 3, &[&position, text]);
        write(part, rows, -1);
    }
    let found = json(&done(dir, &[&tgb[..], &["--json"]].concat()).out);
    let scores = &found["test"]["transductive"];
    assert!(scores["mrr"].is_f64() && scores["hits_at_10"] == 1.0, "{found}");
    assert_eq!(found["protocol"], "tgb");
    assert!(found["edgebank"]["window"]["transductive"]["mrr"].is_f64(), "{found}");
    let eval = json(&done(dir, &["eval", "--checkpoint", "run", "--json"]).out);
    assert_eq!(eval["test"], found["test"]);
}

#[test]
fn a_folder_of_tgb_trains_the_same_as_fetched_and_as_imported() {
    let dir = made();
    let dir = dir.path();
    for name in ["tgbl_wiki", "tgbl_uci", "tgbl_coin"] {
        let data = foreign(name);
        let test_of =
            |data: &str| summary(dir, &["--data", data, "--protocol", "tgb", "--batch", "4"])["test"].clone();
        done(dir, &["data", "import", &data, "--out", name]);
        let fetched = test_of(&data);
        assert!(fetched["transductive"]["mrr"].is_f64(), "{name}: {fetched}");
        assert_eq!(fetched, test_of(name), "{name}");
    }
    let words = ["--data", &foreign("tgbl_flight"), "--protocol", "tgb", "--out", "run"];
    refused(dir, &small(&words), 3, &["tgbl_flight has no negatives for its val part"]);
}

#[test]
fn an_option_that_does_not_fit_the_model_task_or_protocol_is_refused_with_valid_values() {
    let dir = made();
    let dir = dir.path();
    for (words, text) in [
        (&["--model=gcn"][..], "no model `gcn`; give tgn, jodie, dyrep, apan, tgat, graph-mixer, static"),
        (&["--task=graph"], "no task `graph`; give link, node, edge, property or regression"),
        (&["--negatives=easy"], "no kind of negatives `easy`; give random, historical or inductive"),
        (&["--protocol=tgbl"], "no protocol `tgbl`; give dyglib, tgl, disttgl or tgb"),
        (
            &["--negatives=historical", "--protocol=tgb"],
            "give them with task=link and protocol=dyglib or tgl",
        ),
        (
            &["--negatives=inductive", "--task=node"],
            "negatives are chosen, and task node under dyglib has none",
        ),
        (&["--set=chunks=0"], "chunks is 0; give 1 to the events of a batch"),
        (&["--set=chunks=51"], "chunks is 51; give 1 to the events of a batch"),
        (&["--set=patience=-1"], "patience=-1"),
        (&["--set=classify.width=0"], "classify.width is 0; give 1 to 4096"),
        (&["--set=classify.positive_weight=0"], "classify.positive_weight is 0; give a positive number"),
        (&["--set=classify.positive_weight=inf"], "classify.positive_weight is inf"),
        (
            &["--set=classify.frozen=true"],
            "classify.frozen, and the task is link; give task=node or task=edge",
        ),
        (&["--set=classify.classes=3"], "unknown field `classes`"),
        (&["--set=static.mode=on"], "unknown variant `on`"),
        (&["--set=static.width=0"], "static.width is 0; give 1 to 4096"),
        (&["--set=static.epochs=0"], "static.epochs is 0; give 1 to 1000"),
        (&["--set=static.batch=0"], "static.batch is 0; give 1 to 1048576"),
        (&["--set=static.learning_rate=-1"], "static.learning_rate is -1; give a positive number"),
        (&["--model=jodie", "--set=jodie.memory=0"], "jodie.memory is 0"),
        (&["--model=dyrep", "--set=dyrep.heads=3"], "dyrep.heads is 3; give a divisor of dyrep.memory"),
        (&["--model=jodie", "--set=jodie.updater=gru"], "unknown field `updater`"),
        (&["--model=apan", "--set=apan.heads=3"], "apan.heads is 3; give a divisor of apan.memory"),
        (&["--model=apan", "--set=apan.mails=0"], "apan.mails is 0; give 1 to 1024"),
        (&["--model=apan", "--set=apan.combiner=sum"], "unknown variant `sum`; give last or mean"),
        (&["--model=tgat", "--set=tgat.layers=0"], "tgat.layers is 0; give 1 to 4"),
        (&["--model=tgat", "--set=tgat.sampling=latest"], "unknown variant `latest`; give recent or uniform"),
        (&["--model=tgat", "--set=tgat.neighbor_time=now"], "unknown variant `now`; give event or query"),
        (&["--model=tgat", "--set=tgat.gap_quantile=2"], "tgat.gap_quantile is 2; give more than 0"),
        (
            &["--model=graph-mixer", "--set=graph-mixer.neighbors=0"],
            "graph-mixer.neighbors is 0; give 1 to 1024",
        ),
        (
            &["--model=graph-mixer", "--set=graph-mixer.channel_expansion=0.0"],
            "graph-mixer.channel_expansion is 0; give more than 0, and at most 16",
        ),
    ] {
        refused(dir, &small(&[words, &["--out", "run"]].concat()), 2, &[text]);
    }
}

#[test]
fn a_model_that_a_baseline_beats_gets_advice_but_none_that_it_follows_already() {
    let dir = tempfile::tempdir().unwrap();
    // Ten pairs that repeat: EdgeBank knows them, and a model that hardly moves does not.
    let pairs = (0..400)
        .fold("src,dst,time\n".to_owned(), |text, i| text + &format!("{},{},{i}\n", i % 10, 10 + i % 10));
    fs::write(dir.path().join("pairs.csv"), pairs).unwrap();
    for (mode, advised) in [("off", true), ("pretrained", false), ("trained", false)] {
        let mode = format!("static.mode={mode}");
        let words = ["train", "--data", "pairs.csv", "--epochs", "1", "--set", "learning_rate=1e-9"];
        let text = done(dir.path(), &[&words[..], &["--set", &mode, "--out", &mode]].concat()).out;
        assert!(text.contains(", which learns nothing,") && text.contains("another model"), "{text}");
        assert_eq!(text.contains("--set static.mode=pretrained"), advised, "{text}");
        assert!(text.contains("--epochs 3"), "{text}");
        let tested = done(dir.path(), &["eval", "--checkpoint", &mode]).out;
        assert!(tested.contains("another model") && !tested.contains("--epochs"), "{tested}");
        assert_eq!(tested.contains("--set static.mode=pretrained"), advised, "{tested}");
    }
    // The labels of a node never change, so that the baselines know them.
    let rows = (1..80).flat_map(|i| (0..10).map(move |node| format!("{},{node},{node},1\n", 5 * i)));
    let labels = "time,node,label,weight\n".to_owned() + &rows.collect::<String>();
    fs::write(dir.path().join("labels.csv"), labels).unwrap();
    let words = ["train", "--data", "pairs.csv", "--labels", "labels.csv", "--epochs", "1", "--set"];
    for (rows, advised) in [("property.rows=40", true), ("property.rows=20", false)] {
        let text = done(dir.path(), &[&words[..], &["learning_rate=1e-9", "--set", rows]].concat()).out;
        assert!(text.contains(", which learns nothing,") && !text.contains("--batch"), "{text}");
        assert_eq!(text.contains("--set property.rows=10"), advised, "{text}");
    }
}
