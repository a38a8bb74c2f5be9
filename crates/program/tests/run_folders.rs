//! Run folders: which data a run goes on with, wherever they are, who may write, and how damage is told.
use crate::support::{
    program::{Ran, done, json, made, refused, small as small_words, tgnn},
    trainings::{config, found, run, small},
};
use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};
use tgnn::{
    error::{Error, ErrorKind},
    runtime::Device,
};
use tgnn_data::{Events, Features};
use tgnn_training::{
    model::StaticMode,
    task::{self, Checkpoint, Config, CustomModel, RunOptions, TaskName, Watch},
};

/// Collects the notes of a run.
#[derive(Default)]
struct Notes(Vec<String>);
impl Watch for Notes {
    fn note(&mut self, what: &str) {
        self.0.push(what.to_owned());
    }
}

/// Returns copies of data with as many events, nodes and features, each changed in one thing, with the words
/// that tell it.
fn changed(events: &Events) -> Vec<(&'static str, Events)> {
    let with = |change: &dyn Fn(&mut Events)| {
        let mut other = events.clone();
        change(&mut other);
        other
    };
    let sources = events.first_destination.unwrap();
    let features = |events: &mut Events| {
        let f = events.edge_features.as_ref().unwrap();
        let mut values = f.values().to_vec();
        values[7] += 1.0;
        events.edge_features = Some(Features::from_vec(f.rows(), f.cols(), values).unwrap());
    };
    vec![
        (
            "nodes or times of events differ",
            with(&|e| Arc::make_mut(&mut e.src).iter_mut().for_each(|v| *v = sources - 1 - *v)),
        ),
        ("nodes or times of events differ", with(&|e| Arc::make_mut(&mut e.dst).swap(3, 4))),
        (
            "nodes or times of events differ",
            with(&|e| Arc::make_mut(&mut e.time).iter_mut().for_each(|t| *t *= 2)),
        ),
        ("edge features differ", with(&features)),
        ("node features differ", with(&|e| e.node_features = Some(Features::random(e.nodes, 3, 1)))),
    ]
}

#[test]
fn what_goes_on_from_a_checkpoint_refuses_other_data_of_the_same_size() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    run(&config(1, 8), &events, Some(dir.path()), false).unwrap();
    let (checkpoint, device) = (Checkpoint::at(dir.path()), Device::cpu(1).unwrap());
    let evaluate = |events: &Events| {
        task::evaluate(&checkpoint, &config(1, 8), events, &device, "", false, &mut ()).map(drop)
    };
    let embed = |events: &Events| {
        let after = task::After::Stream;
        task::embed(&checkpoint, &config(1, 8), events, &device, after, &[1], &[9]).map(drop)
    };
    let resume = |events: &Events| run(&config(2, 8), events, Some(dir.path()), true).map(drop);
    let refused = |e: Error, what: &str| {
        assert_eq!(e.kind(), ErrorKind::Checkpoint, "{e}");
        let text = e.to_string();
        assert!(text.starts_with("the checkpoint was trained on other data: ") && text.contains(what), "{e}");
    };
    for (what, other) in changed(&events) {
        refused(evaluate(&other).unwrap_err(), what);
        refused(embed(&other).unwrap_err(), what);
        refused(resume(&other).unwrap_err(), what);
    }
    // What a model of links does not read, and what the nodes are called.
    let mut same = events.clone();
    same.label = Some(vec![1.0; same.len()]);
    (same.name, same.origin) = ("another name".into(), 7);
    evaluate(&same).unwrap();
    embed(&same).unwrap();
    resume(&same).unwrap();
}

#[test]
fn labels_belong_to_the_data_of_a_task_that_reads_them() {
    let (mut events, dir) = (small(300), tempfile::tempdir().unwrap());
    events.label = Some((0..300).map(|i| (i % 3 == 0).into()).collect());
    let config = |epochs| Config { task: TaskName::Edge, ..config(epochs, 8) };
    run(&config(1), &events, Some(dir.path()), false).unwrap();
    let mut other = events.clone();
    other.label.as_mut().unwrap()[5] = 1.0;
    let e = run(&config(2), &other, Some(dir.path()), true).unwrap_err().to_string();
    assert!(e.contains("labels differ"), "{e}");
    run(&config(2), &events, Some(dir.path()), true).unwrap();
}

#[test]
fn a_model_of_other_data_is_a_start_with_a_note_unless_it_has_rows_of_their_nodes() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    let from = dir.path().join("from");
    let start = |config: &Config, events: &Events| {
        let options = RunOptions { from: Some(from.clone()), ..RunOptions::default() };
        let mut notes = Notes::default();
        task::train(config, events, &Device::cpu(1)?, &options, &mut notes).map(|_| notes.0)
    };
    run(&config(1, 8), &events, Some(&from), false).unwrap();
    assert_eq!(start(&config(1, 8), &events).unwrap(), [""; 0]);
    for (what, other) in changed(&events).into_iter().skip(1).take(1) {
        let notes = start(&config(1, 8), &other).unwrap();
        assert!(
            notes.len() == 1 && notes[0].starts_with("the model was trained on other data: "),
            "{notes:?}"
        );
        assert!(notes[0].contains(what), "{notes:?}");
        let mut rows = config(1, 8);
        (rows.static_memory.mode, rows.static_memory.width) = (StaticMode::Trained, 4);
        fs::remove_dir_all(&from).unwrap();
        run(&rows, &events, Some(&from), false).unwrap();
        let e = start(&rows, &other).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Checkpoint && e.to_string().contains("static memory of its nodes"),
            "{e}"
        );
        start(&rows, &events).unwrap();
    }
}

#[test]
fn a_checkpoint_without_checksums_of_its_data_is_accepted_with_a_note() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    run(&config(1, 8), &events, Some(dir.path()), false).unwrap();
    let file = dir.path().join("checkpoint/manifest.json");
    let mut manifest = json(&fs::read_to_string(&file).unwrap());
    assert!(manifest.as_object_mut().unwrap().remove("fingerprint").is_some());
    fs::write(&file, manifest.to_string()).unwrap();
    let (checkpoint, device) = (Checkpoint::at(dir.path()), Device::cpu(1).unwrap());
    let other = changed(&events).remove(1).1;
    let mut notes = Notes::default();
    task::evaluate(&checkpoint, &config(1, 8), &other, &device, "", false, &mut notes).unwrap();
    let options = RunOptions { out: Some(dir.path().into()), resume: true, ..RunOptions::default() };
    task::train(&config(2, 8), &events, &device, &options, &mut notes).unwrap();
    assert!(
        notes.0.len() == 2 && notes.0.iter().all(|note| note.contains("of an earlier version")),
        "{notes:?}",
        notes = notes.0
    );
    // The resumed run has them.
    let e = run(&config(3, 8), &other, Some(dir.path()), true).unwrap_err().to_string();
    assert!(e.contains("other data"), "{e}");
}

#[test]
fn the_same_data_are_accepted_wherever_they_are_and_a_lost_path_names_the_flag() {
    let dir = made();
    let dir = dir.path();
    fs::write(
        dir.join("rows.csv"),
        "a,b,when,x\n".to_owned()
            + &(0..90).map(|i| format!("{},{},{i},{i}\n", i % 7, i % 5)).collect::<String>(),
    )
    .unwrap();
    let own = ["--data", "rows.csv", "--columns", "src=a,dst=b,time=when,features=x", "--max-batches", "2"];
    done(dir, &small_words(&[&own[..], &["--out", "run"]].concat()));
    let tested = |words: &[&str], at: &Path| {
        let words = [&["eval", "--json", "--checkpoint"], words].concat();
        json(&done(at, &words).out)["test"].clone()
    };
    let want = tested(&["run"], dir);
    // Another spelling, another folder, and what `data import` makes of them.
    fs::create_dir(dir.join("sub")).unwrap();
    let absolute = dir.join("rows.csv");
    let absolute = absolute.to_str().unwrap();
    assert_eq!(tested(&["run", "--data", "./sub/../rows.csv"], dir), want);
    assert_eq!(tested(&["../run", "--data", "../rows.csv"], &dir.join("sub")), want);
    done(dir, &[&["data", "import", "--out", "arrays"], &own[1..4]].concat());
    assert_eq!(tested(&["run", "--data", "arrays"], dir), want);
    let resume = |path: &str, epochs: &'static str| {
        let own =
            ["--data", path, own[2], own[3], own[4], own[5], "--out", "run", "--resume", "--epochs", epochs];
        done(dir, &small_words(&own))
    };
    resume("./rows.csv", "3");
    resume(absolute, "4");
    let arrays = ["--data", "arrays", "--max-batches", "2", "--out", "run", "--resume", "--epochs", "5"];
    done(dir, &small_words(&arrays));
    assert!(json(&fs::read_to_string(dir.join("run/summary.json")).unwrap())["best_epoch"].is_u64());
    // The path is lost.
    fs::rename(dir.join("arrays"), dir.join("sub/moved")).unwrap();
    let flag = ["arrays: cannot open", "counts from the folder in which it was first given", "--data"];
    refused(dir, &["eval", "--checkpoint", "run"], 10, &flag);
    refused(dir, &["embed", "--checkpoint", "run", "--out", "z.npy"], 10, &flag);
    refused(dir, &["train", "run/config.toml", "--out", "other"], 10, &flag);
    refused(&dir.join("sub"), &["train", "../run/config.toml", "--out", "../run", "--resume"], 10, &flag);
    done(dir, &["eval", "--checkpoint", "run", "--data", "sub/moved"]);
    fs::write(
        dir.join("sub/rows.csv"),
        fs::read_to_string(absolute).unwrap().replacen("3,3,3,3", "3,4,3,3", 1),
    )
    .unwrap();
    let words = ["eval", "--checkpoint", "run", "--data", "sub/rows.csv", own[2], own[3]];
    refused(dir, &words, 9, &["trained on other data", "nodes or times of events differ"]);
    let manifest = dir.join("run/checkpoint/manifest.json");
    let mut text = json(&fs::read_to_string(&manifest).unwrap());
    assert!(text.as_object_mut().unwrap().remove("fingerprint").is_some());
    fs::write(&manifest, text.to_string()).unwrap();
    let words = ["embed", "--checkpoint", "run", "--data", "sub/moved", "--out", "z.csv"];
    assert!(done(dir, &words).out.contains("note: the checkpoint is of an earlier version"));
}

#[test]
fn a_sweep_goes_on_with_its_data_under_another_path_and_refuses_others() {
    let dir = made();
    let dir = dir.path();
    let sweep = |data: &str, seeds: &str| {
        let words = ["sweep", "small.toml", "--data", data, "--epochs", "1", "--max-batches", "2"];
        tgnn(dir, &[&words[..], &["--seeds", seeds, "--jobs", "1", "--out", "s"]].concat())
    };
    assert_eq!(sweep("made", "1").code, 0);
    let other =
        "data synth --out other --events 400 --sources 30 --destinations 10 --edge-features 3 --name made";
    done(dir, &other.split(' ').chain(["--seed", "9"]).collect::<Vec<_>>());
    let ran = sweep("other", "1,2");
    assert!(
        ran.code == 2
            && ran.err.contains(
                "it was trained on made, and other has other data: nodes or times of events differ"
            ),
        "{}",
        ran.err
    );
    fs::rename(dir.join("made"), dir.join("moved")).unwrap();
    fs::rename(dir.join("other"), dir.join("made")).unwrap();
    let ran = sweep("made", "1,2");
    assert!(ran.code == 2 && ran.err.contains("and made has other data"), "{}", ran.err);
    let ran = sweep("./moved", "1,2");
    assert!(ran.code == 0 && ran.out.contains("1 of them finished before"), "{}\n{}", ran.out, ran.err);
}

#[test]
fn a_run_folder_in_use_is_refused_and_one_of_a_dead_process_is_not() {
    let dir = made();
    let dir = dir.path();
    done(dir, &small_words(&["--out", "run"]));
    assert!(!dir.join("run/run.lock").exists());
    for folder in ["run", "new"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
        let lock = File::create(dir.join(folder).join("run.lock")).unwrap();
        lock.lock().unwrap();
        let resume = small_words(&["--out", folder, "--resume", "--epochs", "3"]);
        refused(dir, &resume, 2, &["another run is writing into", folder, "wait until it has ended"]);
        refused(dir, &small_words(&["--out", folder]), 2, &["another run is writing into", folder]);
        refused(dir, &["sweep", "small.toml", "--out", folder], 2, &["another run is writing into"]);
        // A process that another test is starting may still hold the file.
        lock.unlock().unwrap();
        drop(lock);
        // The file that is left locks nothing.
        done(dir, &resume);
        assert!(!dir.join(folder).join("run.lock").exists());
    }
}

#[test]
fn a_requeued_job_starts_its_run_and_says_so() {
    let dir = made();
    let dir = dir.path();
    let resume = small_words(&["--out", "run", "--resume", "--epochs", "1"]);
    let first = done(dir, &resume);
    assert!(
        first.out.contains("note      there is no epoch to resume in run: the run starts\n"),
        "{}",
        first.out
    );
    let again = done(dir, &resume);
    assert!(!again.out.contains("no epoch to resume"), "{}", again.out);
    fs::create_dir(dir.join("empty")).unwrap();
    done(dir, &small_words(&["--out", "empty", "--resume", "--epochs", "1"]));
    // A folder of something else is no run.
    refused(dir, &small_words(&["--out", "made", "--resume"]), 9, &["made", "there is no checkpoint here"]);
}

#[test]
fn damage_of_any_file_of_a_run_folder_is_one_line_and_one_kind_of_error() {
    let dir = made();
    let dir = dir.path();
    done(dir, &small_words(&["--out", "run", "--timeline"]));
    let commands: [&[&str]; 4] = [
        &["train", "small.toml", "--out", "run", "--resume", "--epochs", "3"],
        &["eval", "--checkpoint", "run"],
        &["embed", "--checkpoint", "run", "--out", "z.csv"],
        &["compare", "run"],
    ];
    // Which of the commands read the file.
    let files: [(&str, &[usize]); 4] = [
        ("checkpoint/manifest.json", &[0, 1, 2]),
        ("metrics.jsonl", &[0, 3]),
        ("config.toml", &[3]),
        ("summary.json", &[3]),
    ];
    for (name, readers) in files {
        let path = dir.join("run").join(name);
        let whole = fs::read(&path).unwrap();
        let damages: [(&str, &dyn Fn()); 5] = [
            ("cut", &|| fs::write(&path, &whole[..whole.len() / 2]).unwrap()),
            ("no text", &|| fs::write(&path, b"\xff\xfe\x00\x01").unwrap()),
            ("another type", &|| fs::write(&path, "[1, 2, 3]\n").unwrap()),
            ("missing", &|| fs::remove_file(&path).unwrap()),
            ("a folder", &|| fs::create_dir(&path).unwrap()),
        ];
        for (what, damage) in damages {
            damage();
            for &reader in readers {
                // Without results, a run has not finished; without records, it has not begun.
                let Ran { code, err, .. } = tgnn(dir, commands[reader]);
                assert!(
                    code == 9 && err.lines().count() == 1,
                    "{what} {name}, {:?}: {code} {err}",
                    commands[reader]
                );
                assert!(err.contains("run"), "{err}");
            }
        }
        fs::remove_dir(&path).unwrap();
        fs::write(&path, whole).unwrap();
    }
    // A timeline is left out, with a note.
    for damaged in [&b"["[..], b"\xff", b"{\"traceEvents\": 3}"] {
        fs::write(dir.join("run/timeline.json"), damaged).unwrap();
        let ran = done(dir, &["compare", "run", "--out", "page.html"]);
        assert!(
            ran.err.contains("left out: run/timeline.json: ") && ran.err.contains("is damaged"),
            "{}",
            ran.err
        );
    }
    // Records that end too early, and none at all.
    let path = dir.join("run/metrics.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    for text in [whole.lines().next().unwrap(), ""] {
        fs::write(&path, text).unwrap();
        refused(dir, commands[0], 9, &["metrics.jsonl: the records end with epoch", "of epoch 2"]);
    }
    fs::write(&path, whole).unwrap();
    done(dir, commands[0]);
}

#[test]
fn runs_of_data_with_the_same_name_and_size_are_compared_only_if_they_are_the_same() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    let folder = |name: &str| dir.path().join(name);
    run(&config(1, 8), &events, Some(&folder("a")), false).unwrap();
    let others = changed(&events);
    run(&config(1, 8), &others[1].1, Some(&folder("b")), false).unwrap();
    let ran = tgnn(dir.path(), &["compare", "a", "b"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("a and b cannot be compared: of `") && ran.err.contains(others[1].0),
        "{}",
        ran.err
    );
    // Features may differ: that is what a comparison may be about.
    run(&Config { seed: 2, ..config(1, 8) }, &others[3].1, Some(&folder("c")), false).unwrap();
    done(dir.path(), &["compare", "a", "c"]);
    assert!(!found(&run(&config(1, 8), &events, None, false).unwrap()).is_empty());
}

#[test]
fn a_run_of_a_model_from_outside_is_refused_by_its_name_unless_the_model_is_given() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    let mut own = config(1, 8);
    own.custom_model = Some(CustomModel::new("a table", own.tgn.clone()));
    run(&own, &events, Some(&dir.path().join("run")), false).unwrap();
    let checkpoint = Checkpoint::at(dir.path().join("run"));
    let read = checkpoint.manifest().unwrap().config;
    let device = Device::cpu(1).unwrap();
    let evaluate =
        |config: &Config| task::evaluate(&checkpoint, config, &events, &device, "", false, &mut ()).map(drop);
    let name = "the model `a table` is from outside of the crate";
    let e = evaluate(&read).unwrap_err().to_string();
    assert!(e.contains(name), "{e}");
    let e = evaluate(&config(1, 8)).unwrap_err().to_string();
    assert!(e.contains("the checkpoint is of a table, this run is of tgn"), "{e}");
    evaluate(&Config { custom_model: own.custom_model.clone(), ..read }).unwrap();
    let checkpoint_of_run = |words: &[&'static str]| [words, &["--checkpoint", "run"]].concat();
    for words in [
        checkpoint_of_run(&["eval"]),
        checkpoint_of_run(&["embed", "--out", "z.npy"]),
        checkpoint_of_run(&["predict"]),
        vec!["train", "run/config.toml", "--out", "again"],
        vec!["train", "--from", "run", "--out", "again"],
    ] {
        refused(dir.path(), &words, 2, &[name]);
    }
    // Earlier versions did not write the name.
    let file = checkpoint.path().join("manifest.json");
    let mut manifest = json(&fs::read_to_string(&file).unwrap());
    manifest.as_object_mut().unwrap().remove("fingerprint");
    manifest["config"].as_object_mut().unwrap().remove("custom_model").unwrap();
    fs::write(&file, manifest.to_string()).unwrap();
    evaluate(&own).unwrap();
}
