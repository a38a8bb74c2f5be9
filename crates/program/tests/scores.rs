//! `eval --scores`: a row for each test event and candidate.
use crate::support::{
    paths::root,
    program::{done, json, made, refused, small},
};
use arrow_array::{Array, cast::AsArray, types};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use tgnn_training::task::metrics::average_precision;

/// The score of a candidate: its source, itself, whether it is the event, its score and its rank.
type Row = (String, String, bool, f32, f64);

/// Returns the rows of a file of CSV by their events, after checking its first line.
fn read_csv(path: &Path, candidate: &str) -> BTreeMap<usize, Vec<Row>> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), format!("event,source,{candidate},positive,score,rank"));
    let mut rows = BTreeMap::<usize, Vec<Row>>::new();
    for line in lines {
        let [event, source, candidate, positive, score, rank] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let row = (
            source.into(),
            candidate.into(),
            positive.parse().unwrap(),
            score.parse().unwrap(),
            rank.parse().unwrap(),
        );
        rows.entry(event.parse().unwrap()).or_default().push(row);
    }
    rows
}

/// Returns the rows of a Parquet file in the same way.
fn read_parquet(path: &Path) -> BTreeMap<usize, Vec<Row>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let mut rows = BTreeMap::<usize, Vec<Row>>::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().clone();
        let events = column("event");
        for i in 0..batch.num_rows() {
            let row = (
                column("source").as_string::<i32>().value(i).to_owned(),
                column("candidate").as_string::<i32>().value(i).to_owned(),
                column("positive").as_boolean().value(i),
                column("score").as_primitive::<types::Float32Type>().value(i),
                column("rank").as_primitive::<types::Float64Type>().value(i),
            );
            let event = events.as_primitive::<types::Int64Type>().value(i);
            rows.entry(event as usize).or_default().push(row);
        }
        assert_eq!(events.null_count(), 0);
    }
    rows
}

/// Tests a run with its scores in a file. Returns the summary.
fn tested(dir: &Path, run: &str, file: &str, more: &[&str]) -> Value {
    let words = [&["eval", "--checkpoint", run, "--scores", file, "--json"][..], more].concat();
    json(&done(dir, &words).out)
}

fn close(found: f64, want: &Value) -> bool {
    (found - want.as_f64().unwrap()).abs() < 1e-9
}

#[test]
fn the_scores_of_links_are_those_of_the_metrics_under_every_protocol() {
    let dir = made();
    let dir = dir.path();
    let ids: Vec<String> = (0..400).map(|i| format!("{},page {}", i * i % 23, i * i * i % 9)).collect();
    let table = ids
        .iter()
        .enumerate()
        .fold("user,item,time\n".to_owned(), |text, (i, ends)| text + &format!("{ends},{i}\n"));
    fs::write(dir.join("named.csv"), table).unwrap();
    done(dir, &small(&["--data", "named.csv", "--out", "run"]));
    let of = |more: &[&str]| {
        let summary = tested(dir, "run", "s.csv", more);
        (read_csv(&dir.join("s.csv"), "candidate"), summary["test"]["transductive"].clone())
    };
    for kind in ["random", "historical", "inductive"] {
        let (rows, test) = of(&["--negatives", kind]);
        assert_eq!(rows.len(), 60, "the test part");
        let [positive, negative] = [0, 1].map(|at| rows.values().map(|of| of[at].3).collect::<Vec<_>>());
        assert!(close(average_precision(&positive, &negative), &test["ap"]), "{kind}: {test}");
        for (&event, of) in &rows {
            assert_eq!((of.len(), of[0].2, of[1].2), (2, true, false), "{kind}");
            assert_eq!(format!("{},{}", of[0].0, of[0].1), ids[event], "{kind}");
            assert!((kind != "random") || of[0].0 == of[1].0, "a random negative has the event's source");
        }
        assert!(kind != "historical" || rows.values().any(|of| of[0].0 != of[1].0));
    }
    for more in [&["--protocol", "disttgl"][..], &["--protocol", "disttgl", "--replay"]] {
        let (rows, test) = of(more);
        assert!(rows.values().all(|of| of.len() == 50));
        let mrr = rows.values().map(|of| of[0].4.recip()).sum::<f64>() / rows.len() as f64;
        assert!(close(mrr, &test["mrr"]), "{mrr}: {test}");
        for of in rows.values() {
            // Ranks follow the scores, and add up, whatever ties.
            assert!(of.iter().all(|a| of.iter().all(|b| (a.3 > b.3) == (a.4 < b.4))));
            assert_eq!(of.iter().map(|row| row.4).sum::<f64>(), 1275.0);
        }
    }
    tested(dir, "run", "s.parquet", &["--protocol", "disttgl"]);
    tested(dir, "run", "s.csv", &["--protocol", "disttgl"]);
    assert_eq!(read_parquet(&dir.join("s.parquet")), read_csv(&dir.join("s.csv"), "candidate"));
}

#[test]
fn given_negatives_have_as_many_rows_as_their_lists_and_classes_one_each() {
    let dir = made();
    let dir = dir.path();
    let data = format!("{}/tests/golden/foreign/tgbl_wiki", root().display());
    done(dir, &small(&["--data", &data, "--protocol", "tgb", "--batch", "5", "--out", "given"]));
    let summary = tested(dir, "given", "s.csv", &[]);
    let rows = read_csv(&dir.join("s.csv"), "candidate");
    assert!(rows.values().all(|of| of.len() > 1 && of.iter().filter(|row| row.2).count() == 1));
    let mrr = rows.values().map(|of| of[0].4.recip()).sum::<f64>() / rows.len() as f64;
    assert!(close(mrr, &summary["test"]["transductive"]["mrr"]), "{mrr}: {summary}");

    done(dir, &["data", "synth", "--out", "classed", "--events", "300", "--classes", "4", "--labels", "2"]);
    for task in ["edge", "node"] {
        let labels = if task == "node" { "1" } else { "2" };
        done(
            dir,
            &[
                "data",
                "synth",
                "--out",
                "classed",
                "--force",
                "--events",
                "300",
                "--classes",
                "4",
                "--labels",
                labels,
            ],
        );
        done(dir, &small(&["--data", "classed", "--task", task, "--out", task]));
        let summary = tested(dir, task, "s.csv", &[]);
        let rows = read_csv(&dir.join("s.csv"), "class");
        assert!(rows.values().all(|of| of.iter().map(|row| row.1.as_str()).eq(["0", "1", "2", "3"])));
        let all = || rows.values().flatten();
        let [positive, negative] =
            [true, false].map(|is| all().filter(|row| row.2 == is).map(|row| row.3).collect::<Vec<_>>());
        let most = labels.parse::<usize>().unwrap() * rows.len();
        assert!((rows.len()..=most).contains(&positive.len()), "{task}: {}", positive.len());
        assert!(
            close(average_precision(&positive, &negative), &summary["test"]["transductive"]["ap"]),
            "{task}"
        );
    }
}

#[test]
fn a_file_of_scores_is_refused_before_the_test_and_one_that_fails_leaves_nothing() {
    let dir = made();
    let dir = dir.path();
    done(dir, &small(&["--out", "run"]));
    let scores = |file| ["eval", "--checkpoint", "run", "--scores", file];
    refused(dir, &scores("s.json"), 2, &["--scores s.json: the ending names no format", ".parquet or .csv"]);
    refused(dir, &scores("s"), 2, &["--scores s: the ending names no format"]);
    refused(dir, &scores("no/s.csv"), 2, &["there is no folder no"]);
    fs::write(dir.join("s.csv"), "an older file").unwrap();
    done(dir, &["data", "synth", "--out", "other", "--events", "300"]);
    let words = [&scores("s.csv")[..], &["--data", "other"]].concat();
    refused(dir, &words, 9, &["the checkpoint was trained on"]);
    assert_eq!(fs::read_to_string(dir.join("s.csv")).unwrap(), "an older file");
    assert!(!dir.join("s.partial").exists());
    let words = [
        "train", "--model", "wd-gcn", "--data", "made", "--every", "100e", "--epochs", "1", "--out", "weekly",
    ];
    done(dir, &words);
    let words = ["eval", "--checkpoint", "weekly", "--scores", "s.csv"];
    refused(dir, &words, 2, &["--scores is of events, and this run is of wd-gcn", "task link, node or edge"]);
}
