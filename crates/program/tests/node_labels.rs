//! Node property prediction: labels of nodes at times, from the library and from the command line.
use crate::support::{
    devices,
    paths::root,
    program::{done, json, refused},
    trainings::{every_model, small_config},
};
use std::{fmt::Write, fs, path::Path};
use tgnn::runtime::Device;
use tgnn_data::{Events, Features, NodeLabel, NodeLabels};
use tgnn_training::{
    model::ModelName,
    task::{self, Config, PropertyTask, RunOptions, Summary, Task, TaskName},
};

const USERS: u32 = 8;
const KINDS: u32 = 5;
const PERIODS: u32 = 60;

/// The kind of thing that a user takes in a period: as good as drawn.
fn kind(user: u32, period: u32) -> u32 {
    let mixed = (user * 7919 + period * 104_729).wrapping_mul(2_654_435_761);
    (mixed >> 16) % KINDS
}

/// Events of users with things, one a user and period, whose features tell the kind. In the middle between
/// two periods, every user has a label that follows from the last kind, and not from earlier labels.
fn stream() -> Events {
    let (mut src, mut dst, mut time, mut values, mut labels) = (vec![], vec![], vec![], vec![], vec![]);
    for period in 0..PERIODS {
        for user in 0..USERS {
            let kind = kind(user, period);
            src.push(user);
            dst.push(USERS + kind);
            time.push(i64::from(100 * period + user));
            values.extend((0..KINDS).map(|k| if k == kind { 1.0 } else { 0.0 }));
            for (further, weight) in [(1, 0.75), (3, 0.25)] {
                let (time, class) = (i64::from(100 * period + 50), (kind + further) % KINDS);
                labels.push(NodeLabel { time, node: user, class, weight });
            }
        }
    }
    let mut events = Events::new("made", src, dst, time).unwrap();
    events.edge_features = Some(Features::from_vec(events.len(), KINDS as usize, values).unwrap());
    events.node_labels = Some(NodeLabels::new(KINDS as usize, labels).unwrap());
    events
}

fn config(model: ModelName, epochs: usize) -> Config {
    let small = small_config(model, 12);
    let eval_batch = Config::default().eval_batch;
    Config { task: TaskName::Property, epochs, batch: 20, eval_batch, learning_rate: 0.01, ..small }
}

fn train(config: &Config, events: &Events, device: &Device) -> Summary {
    task::train(config, events, device, &RunOptions::default(), &mut ()).unwrap()
}

fn ndcg(summary: &Summary) -> f64 {
    summary.test.unwrap().transductive.ndcg.unwrap()
}

#[test]
fn models_with_and_without_memory_learn_labels_that_the_baselines_cannot_know() {
    let events = stream();
    for model in [ModelName::Tgn, ModelName::GraphMixer] {
        let summary = train(&config(model, 15), &events, &Device::cpu(1).unwrap());
        let [persistent, average] = &summary.baselines[..] else { panic!("{:?}", summary.baselines) };
        let best = [persistent, average].map(|b| b.test.transductive.ndcg.unwrap());
        assert_eq!(
            (persistent.name.as_str(), average.name.as_str()),
            ("persistent forecast", "moving average")
        );
        assert!(ndcg(&summary) > 0.95 && best.iter().all(|&b| b < 0.9), "{}: {best:?}", ndcg(&summary));
        assert!(summary.edgebank.is_none() && summary.test.unwrap().inductive.ndcg.is_none());
    }
}

#[test]
fn every_model_of_events_trains_validates_and_replays_on_label_rows() {
    let events = stream();
    for (name, small) in every_model(8) {
        let config = Config {
            task: TaskName::Property,
            batch: 30,
            eval_batch: Config::default().eval_batch,
            max_batches: 5,
            learning_rate: 0.01,
            ..small
        };
        let mut task = PropertyTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap();
        let losses = [0, 1, 2, 3, 4, 5].map(|epoch| task.train_epoch(epoch, &mut |_| {}).unwrap().0);
        assert!(losses[5] < losses[0], "{name}: {losses:?}");
        let as_trained = task.validate(&mut |_| {}).unwrap().ndcg.unwrap();
        task.remembering().map_or(Ok(()), |memory| memory.replay(&mut |_| {})).unwrap();
        let replayed = task.test(&mut |_| {}).unwrap().transductive.ndcg.unwrap();
        assert!([as_trained, replayed].iter().all(|score| (0.0..=1.0).contains(score)), "{name}");
    }
}

#[test]
fn a_label_row_sees_all_events_before_its_time_and_none_from_then_on() {
    let events = stream();
    let changed_from = |time: i64| {
        let mut events = events.clone();
        let mut values = events.edge_features.as_ref().unwrap().values().to_vec();
        let first = events.time.partition_point(|&t| t < time) * KINDS as usize;
        values[first..].iter_mut().for_each(|x| *x = 3.0 - *x);
        events.edge_features = Some(Features::from_vec(events.len(), KINDS as usize, values).unwrap());
        events
    };
    // The labels of the first five periods train; the last of them are at time 450.
    for model in [ModelName::Tgn, ModelName::Apan, ModelName::Tgat] {
        let config = Config { max_batches: 5, ..config(model, 1) };
        let loss = |events: &Events| {
            let mut task = PropertyTask::new(&config, events, Device::cpu(1).unwrap()).unwrap();
            task.train_epoch(0, &mut |_| {}).unwrap().0
        };
        let whole = loss(&events);
        assert_eq!(loss(&changed_from(451)), whole, "{model:?}");
        assert_eq!(loss(&changed_from(408)), whole, "{model:?}");
        assert_ne!(
            loss(&changed_from(407)),
            whole,
            "{model:?} does not see the last event before the labels"
        );
    }
}

#[test]
fn many_rows_of_a_time_are_divided_among_steps_and_results_do_not_depend_on_threads() {
    let events = stream();
    let steps = |rows: usize, threads: usize| {
        let mut config = Config { max_batches: 12, ..config(ModelName::Tgn, 1) };
        config.property.rows = rows;
        let mut task = PropertyTask::new(&config, &events, Device::cpu(threads).unwrap()).unwrap();
        let loss = task.train_epoch(0, &mut |_| {}).unwrap().0;
        (task.steps(), loss, task.validate(&mut |_| {}).unwrap())
    };
    assert_eq!((steps(100, 1).0, steps(3, 1).0), (12, 12));
    assert_eq!(steps(3, 1), steps(3, 2));
}

#[test]
fn the_emulated_device_learns_and_scores_as_the_cpu_does() {
    let Some(lent) = devices::device(0) else { return };
    let events = stream();
    for model in [ModelName::Tgn, ModelName::GraphMixer] {
        let config = Config { max_batches: 8, ..config(model, 2) };
        let (ours, theirs) =
            (train(&config, &events, &Device::cpu(1).unwrap()), train(&config, &events, &lent.device()));
        for (a, b) in ours.epochs.iter().zip(&theirs.epochs) {
            assert!((a.train_loss - b.train_loss).abs() < 1e-3, "{model:?}: {a:?} and {b:?}");
        }
        assert!(
            (ndcg(&ours) - ndcg(&theirs)).abs() < 0.02,
            "{model:?}: {} and {}",
            ndcg(&ours),
            ndcg(&theirs)
        );
        assert_eq!(ours.baselines, theirs.baselines);
    }
}

#[test]
fn an_interrupted_run_goes_on_with_the_same_results() {
    let (events, device, dir) = (stream(), Device::cpu(1).unwrap(), tempfile::tempdir().unwrap());
    let run = |name: &str, epochs: usize, resume: bool| {
        let out = Some(dir.path().join(name));
        let options = RunOptions { out, resume, ..RunOptions::default() };
        let config = Config { max_batches: 6, ..config(ModelName::Tgn, epochs) };
        task::train(&config, &events, &device, &options, &mut ()).unwrap()
    };
    let whole = run("whole", 3, false);
    run("parts", 1, false);
    let parts = run("parts", 3, true);
    assert_eq!(parts.test, whole.test);
    let losses = |summary: &Summary| summary.epochs.iter().map(|e| e.train_loss).collect::<Vec<_>>();
    assert_eq!(losses(&parts), losses(&whole));
}

/// Writes the stream and its labels as tables of texts and seconds.
fn write(dir: &Path) {
    let events = stream();
    let (mut table, mut labels) = ("who,what,time\n".to_owned(), "time,node,label,weight\n".to_owned());
    for i in 0..events.len() {
        let _ = writeln!(table, "u{},k{},{}", events.src[i], events.dst[i], events.time[i] + 1000);
    }
    let rows = events.node_labels.unwrap();
    for row in 0..rows.len() {
        for (class, weight) in rows.row(row) {
            let (time, node) = (rows.times()[row] + 1000, rows.nodes()[row]);
            let _ = writeln!(labels, "{time},u{node},c{class},{weight}");
        }
    }
    fs::write(dir.join("events.csv"), table).unwrap();
    fs::write(dir.join("labels.csv"), labels).unwrap();
}

const SMALL: [&str; 8] =
    ["--epochs", "2", "--max-batches", "5", "--set", "tgn.memory=8", "--set", "tgn.embedding=8"];
const COLUMNS: [&str; 4] = ["--columns", "src=who,dst=what", "--labels", "labels.csv"];

#[test]
fn tables_of_events_and_labels_train_test_embed_and_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir);
    let info = done(dir, &[&["data", "info", "events.csv"][..], &COLUMNS].concat()).out;
    assert!(info.contains("480 rows of 8 nodes at 60 times, 1050 to 6950  (5 classes, 2.0"), "{info}");
    let train = [&["train", "--data", "events.csv", "--out", "run"][..], &COLUMNS, &SMALL].concat();
    let shown = done(dir, &train).out;
    assert!(
        shown.contains("task property, because nodes have labels (--task link predicts events)"),
        "{shown}"
    );
    assert!(shown.contains("persistent forecast") && shown.contains("NDCG@10 0."), "{shown}");
    let found = json(&fs::read_to_string(dir.join("run/summary.json")).unwrap());
    assert_eq!(found["task"], "property");
    assert!(found["test"]["transductive"]["ndcg"].is_f64() && found["epochs"][0]["val"]["ndcg"].is_f64());
    assert_eq!(found["baselines"][1]["name"], "moving average");
    let eval = json(&done(dir, &["eval", "--checkpoint", "run", "--json"]).out);
    assert_eq!((&eval["test"], &eval["baselines"]), (&found["test"], &found["baselines"]));
    done(dir, &["eval", "--checkpoint", "run", "--replay"]);
    let message = done(dir, &["embed", "--checkpoint", "run", "--nodes", "u3", "--out", "z.npy"]).out;
    assert!(message.starts_with("1 embeddings of width 8 in "), "{message}");
    let table = done(dir, &["compare", "run"]).out;
    assert!(table.contains("NDCG@10"), "{table}");
    // An imported folder keeps the labels, and the task may be another.
    done(dir, &[&["data", "import", "events.csv", "--out", "kept"][..], &COLUMNS].concat());
    let again = done(dir, &[&["train", "--data", "kept", "--json"][..], &SMALL].concat());
    assert_eq!(json(&again.out)["test"], found["test"]);
    let links = done(dir, &[&["train", "--data", "kept", "--task", "link", "--json"][..], &SMALL].concat());
    assert_eq!(json(&links.out)["task"], "link");
    done(
        dir,
        &["sweep", "--data", "kept", "--epochs", "1", "--max-batches", "2", "--seeds", "1,2", "--out", "s"],
    );
}

#[test]
fn a_folder_of_tgb_trains_on_its_labels() {
    let dir = tempfile::tempdir().unwrap();
    for set in ["tgbn_genre", "tgbn_trade"] {
        let data = format!("{}/tests/golden/foreign/{set}", root().display());
        let words = ["train", "--data", &data, "--epochs", "1", "--set", "tgn.memory=8", "--json"];
        let found = json(&done(dir.path(), &words).out);
        assert_eq!(
            (&found["task"], &found["test"]["inductive"]["ndcg"].is_null()),
            (&"property".into(), &true)
        );
        assert!(found["test"]["transductive"]["ndcg"].is_f64(), "{found}");
    }
}

#[test]
fn what_cannot_be_predicted_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir);
    let base = ["train", "--data", "events.csv", "--columns", "src=who,dst=what"];
    let without = [&base[..], &["--task", "property"]].concat();
    refused(dir, &without, 3, &["events has no labels of nodes; give a table of them with --labels FILE"]);
    let with = [&base[..], &["--labels", "labels.csv"]].concat();
    for (more, code, said) in [
        (&["--ranks", "2"][..], 2, "task property trains on one rank"),
        (&["--plan", "mspipe:k=1"], 2, "plan mspipe:k=1 lets steps read older state"),
        (&["--set", "property.rows=0"], 2, "property.rows is 0; give 1 to 1048576"),
        (&["--set", "data.train=0.001"], 3, "no label row of events lies before the last training event"),
    ] {
        refused(dir, &[&with[..], more].concat(), code, &[said]);
    }
    fs::write(dir.join("labels.csv"), "time,node,label\n1050,u1,x\nnever,u1,x\n").unwrap();
    refused(dir, &with, 3, &["labels.csv:3:1: `never` is not a time; write a time as in the data"]);
    fs::remove_file(dir.join("labels.csv")).unwrap();
    refused(dir, &with, 10, &["labels.csv: cannot open"]);
    let snapshots = ["train", "--model", "wd-gcn", "--task", "property", "--data", "wikipedia"];
    refused(dir, &snapshots, 2, &["snapshots have no task `property`"]);
}
