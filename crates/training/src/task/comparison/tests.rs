//! What is compared of runs.
#[path = "made_runs.rs"]
mod made_runs;

use super::*;
use crate::{
    model::StaticMode,
    task::{Config, Protocol, StartRecord, Summary, training::StageRecord},
};
use made_runs::{run, scored};
use serde_json::json;
use std::{fs, path::Path};
use tgnn::ops::sample_neighbors::History;

#[test]
fn runs_that_differ_in_nothing_but_the_seed_are_a_line_with_mean_and_deviation() {
    let runs = vec![
        run("a2", 2, |_, s| scored(s, 0.7, 0.5)),
        run("a1", 1, |_, s| scored(s, 0.9, 0.75)),
        run("b1", 1, |c, s| {
            c.learning_rate = 0.01;
            scored(s, 0.9375, 0.25);
        }),
    ];
    let c = Comparison::new(runs).unwrap();
    assert_eq!((c.metric, c.higher_is_better, c.lines.len()), ("AP", true, 2));
    assert_eq!(c.differing, ["learning_rate"]);
    assert_eq!(
        c.common.values().collect::<Vec<_>>(),
        ["tgn", "sequential", "cpu (A CPU, 2 threads)", "made"]
    );
    assert_eq!(c.metrics, ["AP", "AUC", "inductive AP"]);
    // By validation: the line of one seed is ahead, whatever its test.
    assert_eq!(c.lines[0].name, "learning_rate=0.01");
    assert_eq!(c.best().map(|line| line.name.as_str()), Some("learning_rate=0.01"));
    let line = &c.lines[1];
    assert_eq!((line.name.as_str(), line.seeds.as_slice()), ("learning_rate=0.0005", &[1, 2][..]));
    let ap = line.test["AP"];
    // Each of 0.5 and 0.75 is 0.125 from their mean: the sum of squares is 0.03125.
    assert_eq!((ap.mean, ap.deviation, ap.n), (0.625, Some(0.03125f64.sqrt()), 2));
    assert_eq!(line.test["inductive AP"].mean, 0.5);
    assert_eq!(line.baseline.unwrap().mean, 0.625);
    assert_eq!(line.baseline_name.as_deref(), Some("EdgeBank, window"));
    assert_eq!(line.seconds_per_epoch.unwrap().mean, 3.0);
    assert_eq!((line.training_seconds.unwrap().mean, line.memory_bytes.unwrap().mean), (6.0, 3145728.0));
    assert_eq!(line.device_memory_bytes, None);
    let points: Vec<(usize, f64)> = line.runs[0].epochs.iter().map(|p| (p.epoch, p.seconds)).collect();
    assert_eq!(points, [(1, 2.0), (2, 6.0)]);
}

#[test]
fn settings_without_influence_and_those_of_other_models_make_no_line_of_their_own() {
    let jodie = |path: &str, seed, heads: usize| {
        run(path, seed, move |c, s| {
            c.model = crate::model::ModelName::Jodie;
            (s.model, c.tgn.heads) = ("jodie".into(), heads);
        })
    };
    let c = Comparison::new(vec![
        jodie("a", 1, 1),
        jodie("b", 2, 2),
        run("c", 1, |c, _| (c.tensorboard, c.data.path, c.plan) = (true, "./made".into(), "auto".into())),
        run("d", 2, |c, _| c.plan = "sequential".into()),
    ]);
    let c = c.unwrap();
    let names: Vec<(&str, usize)> = c.lines.iter().map(|l| (l.name.as_str(), l.seeds.len())).collect();
    assert_eq!(names, [("jodie", 2), ("tgn", 2)]);
    // The rows of static memory belong to a model that uses them.
    let trained = |c: &mut Config| c.static_memory.mode = StaticMode::Trained;
    let c = Comparison::new(vec![run("a", 1, |c, _| trained(c)), run("b", 1, |_, _| ())]).unwrap();
    assert_eq!(c.differing, ["static.mode"]);
}

#[test]
fn runs_that_start_from_other_weights_are_lines_of_their_own() {
    let from = |path: &str, seed, from: Option<&str>| {
        run(path, seed, |_, s| {
            s.start = from.map(|from| StartRecord { from: Some(from.into()), weights: None });
        })
    };
    let runs = vec![from("a", 1, None), from("b", 1, Some("runs/link")), from("c", 2, Some("runs/link"))];
    let c = Comparison::new(runs).unwrap();
    assert_eq!(c.differing, ["start"]);
    let names: Vec<(&str, usize)> = c.lines.iter().map(|l| (l.name.as_str(), l.seeds.len())).collect();
    assert_eq!(names, [("start=random", 1), ("start=runs/link", 2)]);
}

#[test]
fn a_run_that_repeats_another_is_left_out_with_a_note() {
    let c = Comparison::new(vec![run("a", 1, |_, _| ()), run("b", 1, |_, _| ())]).unwrap();
    assert_eq!(c.lines[0].runs.len(), 1);
    assert_eq!(c.notes, ["b is left out: it repeats a (same settings, same seed)"]);
    assert_eq!(c.lines[0].name, "tgn");
}

#[test]
fn lines_of_several_data_sets_have_a_best_each() {
    let other = |path: &str, rate: f64, val: f64| {
        run(path, 1, move |c, s| {
            (c.learning_rate, s.data.name, s.data.events) = (rate, "other".into(), 20);
            scored(s, val, 0.5);
        })
    };
    let runs = vec![run("a", 1, |_, _| ()), other("b", 0.1, 0.5), other("c", 0.2, 0.6)];
    let c = Comparison::new(runs).unwrap();
    let best: Vec<(&str, bool)> = c.lines.iter().map(|l| (l.data.as_str(), l.best)).collect();
    assert_eq!(best, [("made", true), ("other", true), ("other", false)]);
    assert_eq!(c.lines[1].name, "other, learning_rate=0.2");
    assert_eq!(c.best(), None, "there is no best over several data sets");
}

#[test]
fn runs_that_do_not_measure_the_same_are_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Config, &mut Summary), said: &str| {
        let runs = vec![run("runs/a", 1, |_, _| ()), run("runs/b", 1, |c, s| change(c, s))];
        let e = Comparison::new(runs).unwrap_err();
        assert_eq!(e.kind(), tgnn::error::ErrorKind::Usage);
        let e = e.to_string();
        assert!(e.starts_with("runs/a and runs/b cannot be compared: ") && !e.contains('\n'), "{e}");
        assert!(e.contains(said), "{said} in {e}");
    };
    refused(&|c, _| c.protocol = Protocol::Tgl, "protocol is dyglib in the first and tgl in the second");
    refused(&|c, _| c.task = TaskName::Node, "task is link in the first and node in the second");
    refused(&|c, _| c.data.val = 0.2, "data.val is 0.15 in the first and 0.2 in the second");
    refused(&|c, _| c.negatives = crate::task::NegativeKind::Historical, "negatives is random in the first");
    refused(&|c, _| c.data.train = 0.5, "data.train is 0.7 in the first and 0.5 in the second");
    refused(&|c, _| c.max_batches = 3, "max_batches is 0 in the first and 3 in the second");
    let snapshots = crate::model::ModelName::TGcn;
    refused(&|c, _| c.model = snapshots, "protocol is dyglib in the first and next-snapshot in the second");
    refused(
        &|_, s| s.data.events = 11,
        "`made` has 10 events and 5 nodes in the first, 11 and 5 in the second",
    );
    // The negatives of protocol tgb are given, whatever the key says.
    let tgb = |kind| move |c: &mut Config, _: &mut Summary| (c.protocol, c.negatives) = (Protocol::Tgb, kind);
    let kinds = [crate::task::NegativeKind::Random, crate::task::NegativeKind::Historical];
    comparable(&kinds.map(|kind| run("a", 1, tgb(kind)))).unwrap();
    let e = Comparison::new(Vec::new()).unwrap_err();
    assert!(e.to_string().starts_with("there is no finished run to compare"), "{e}");
}

#[test]
fn values_of_vertices_are_compared_by_an_error_of_which_less_is_better() {
    let of = |path: &str, rate: f64, rmse: f64| {
        run(path, 1, move |c, s| {
            (c.task, s.task, c.learning_rate) = (TaskName::Regression, TaskName::Regression, rate);
            c.model = crate::model::ModelName::TGcn;
            s.epochs.iter_mut().for_each(|e| {
                let val = e.val.as_mut().unwrap();
                (val.ap, val.rmse) = (None, Some(rmse));
            });
            s.edgebank = None;
            let test = s.test.as_mut().unwrap();
            (test.transductive.ap, test.transductive.auc, test.inductive.ap) = (None, None, None);
            test.transductive.rmse = Some(rmse);
        })
    };
    let c = Comparison::new(vec![of("a", 0.1, 3.0), of("b", 0.2, 2.0)]).unwrap();
    assert_eq!((c.metric, c.higher_is_better), ("RMSE", false));
    assert_eq!(c.best().map(|line| line.name.as_str()), Some("learning_rate=0.2"));
    assert_eq!(c.metrics, ["RMSE"]);
}

#[test]
fn stage_times_are_means_over_the_runs_that_have_them() {
    let timed = |seconds: f64| {
        move |_: &mut Config, s: &mut Summary| {
            let stage = tgnn::autograd::Stage::Embed;
            s.stages = vec![StageRecord { stage, lane: 1, seconds }];
        }
    };
    let runs = vec![run("a", 1, timed(1.0)), run("b", 2, timed(3.0)), run("c", 3, |_, _| ())];
    let stages = &Comparison::new(runs).unwrap().lines[0].stages;
    assert_eq!(stages.iter().map(|s| (s.lane, s.seconds)).collect::<Vec<_>>(), [(1, 2.0)]);
}

/// Writes the files of a run.
fn written(dir: &Path, run: &FinishedRun) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("config.toml"), run.config.to_toml().unwrap()).unwrap();
    fs::write(dir.join("summary.json"), serde_json::to_string(&run.summary).unwrap()).unwrap();
    let lines = run.summary.epochs.iter().map(|e| serde_json::to_string(e).unwrap() + "\n");
    fs::write(dir.join("metrics.jsonl"), lines.collect::<String>()).unwrap();
}

#[test]
fn a_run_folder_is_read_or_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sweep/one");
    let mut run = run("", 3, |_, s| s.history = Some("time".into()));
    written(&path, &run);
    let read = FinishedRun::read(&path).unwrap();
    assert_eq!((&read.config, &read.summary), (&run.config, &run.summary));
    assert_eq!(run_folders(&dir.path().join("sweep")), std::slice::from_ref(&path));
    assert_eq!(run_folders(&path), std::slice::from_ref(&path));
    assert!(read.timeline().unwrap().is_empty());
    // A run of an earlier version, which had one rule.
    run.summary.history = None;
    written(&path, &run);
    assert_eq!(FinishedRun::read(&path).unwrap().config.history(), History::Batch);

    let refused = |said: &[&str]| {
        let e = FinishedRun::read(&path).unwrap_err().to_string();
        assert!(!e.contains('\n') && said.iter().all(|said| e.contains(said)), "{said:?} in {e}");
    };
    // A run that goes on after its end: more epochs are asked for, then one has ended.
    let longer = Config { epochs: 5, ..run.config.clone() };
    fs::write(path.join("config.toml"), longer.to_toml().unwrap()).unwrap();
    refused(&["sweep/one: the run has not finished: 2 of 5 epochs", "--resume"]);
    written(&path, &run);
    let metrics = fs::read_to_string(path.join("metrics.jsonl")).unwrap();
    let third = metrics.lines().last().unwrap().replace("\"epoch\":2", "\"epoch\":3");
    fs::write(path.join("metrics.jsonl"), format!("{metrics}{third}\n")).unwrap();
    refused(&["the run has not finished: 3 of 2 epochs"]);
    written(&path, &run);
    fs::write(path.join("summary.json"), "{\"schema\": 1").unwrap();
    refused(&["sweep/one/summary.json:1:12: is damaged", "train again"]);
    fs::remove_file(path.join("summary.json")).unwrap();
    refused(&["the run has not finished: 2 of 2 epochs"]);
    fs::write(path.join("config.toml"), "epochs = x").unwrap();
    refused(&["sweep/one/config.toml:1:"]);
    fs::remove_file(path.join("config.toml")).unwrap();
    refused(&["sweep/one: is not a run folder: it has no config.toml"]);
}

#[test]
fn the_timeline_of_a_run_starts_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let run = FinishedRun { path: dir.path().into(), ..run("", 1, |_, _| ()) };
    let trace = json!({"traceEvents": [
        {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name", "args": {"name": "lane 2"}},
        {"ph": "X", "pid": 0, "tid": 1, "name": "spmm", "ts": 30.0, "dur": 4.0, "args": {"step": 7, "stage": "embed"}},
        {"ph": "X", "pid": 0, "tid": 0, "name": "add", "ts": 20.0, "dur": 5.0, "args": {"step": 7, "stage": "step"}},
    ]});
    fs::write(dir.path().join("timeline.json"), trace.to_string()).unwrap();
    let spans = run.timeline().unwrap();
    let found: Vec<_> = spans.iter().map(|s| (s.lane, s.step, s.op.as_str(), s.start, s.length)).collect();
    assert_eq!(found, [(1, 7, "spmm", 10.0, 4.0), (0, 7, "add", 0.0, 5.0)]);
    fs::write(dir.path().join("timeline.json"), "{").unwrap();
    let e = run.timeline().unwrap_err().to_string();
    assert!(e.contains("timeline.json: is damaged"), "{e}");
}
