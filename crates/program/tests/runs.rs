//! Runs: how they end, what they start from, what they write, and which checkpoints they refuse.
use crate::support::{
    devices::drawn,
    program::{Ran, done, json, made, refused, small as small_words, tgnn},
    trainings::{config, found, run, small},
};
use safetensors::SafeTensors;
use std::{fs, panic, path::Path};
use tgnn::{
    error::{ErrorKind, Result},
    runtime::Device,
};
use tgnn_data::{Events, SynthOptions, synth};
use tgnn_training::{
    model::{JodieConfig, ModelName, StaticMode},
    task::{self, Checkpoint, Config, EventTask, RunOptions, Summary, Task, TaskName, Watch, tensorboard},
};

#[test]
fn training_stops_without_improvement_and_a_stopped_run_that_is_resumed_is_only_tested_again() {
    let (events, dir) = (small(600), tempfile::tempdir().unwrap());
    // Steps so short that nothing is learned: no epoch is better than the first.
    let slow = |epochs, patience| Config { learning_rate: 1e-30, patience, ..config(epochs, 8) };
    let stopped = run(&slow(9, 3), &events, Some(dir.path()), false).unwrap();
    assert_eq!((stopped.epochs.len(), stopped.best_epoch, stopped.stopped_early), (4, Some(1), true));
    let again = run(&slow(9, 3), &events, Some(dir.path()), true).unwrap();
    assert_eq!((found(&again), again.stopped_early), (found(&stopped), true));
    assert!(again.epochs.iter().zip(&stopped.epochs).all(|(a, b)| a == b), "nothing was trained again");
    // More patience continues the run. If training ends by itself, it was not stopped early.
    let continued = run(&slow(6, 8), &events, Some(dir.path()), true).unwrap();
    assert_eq!((continued.epochs.len(), continued.stopped_early), (6, false));
    let whole = run(&slow(4, 3), &events, None, false).unwrap();
    assert_eq!((whole.epochs.len(), whole.stopped_early), (4, false));
    assert_eq!(found(&whole), found(&stopped));
}

#[test]
fn the_event_file_of_a_resumed_run_equals_one_written_from_all_its_records() {
    let (events, dir) = (small(400), tempfile::tempdir().unwrap());
    let with_epochs = |epochs| Config { tensorboard: true, ..config(epochs, 8) };
    let file = dir.path().join(tensorboard::FILE);
    run(&with_epochs(1), &events, Some(dir.path()), false).unwrap();
    let first = fs::read(&file).unwrap();
    let resumed = run(&with_epochs(3), &events, Some(dir.path()), true).unwrap();
    let last = fs::read(&file).unwrap();
    let count = |bytes: &[u8], tag: &str| bytes.windows(tag.len()).filter(|w| *w == tag.as_bytes()).count();
    let tags = ["train/loss", "train/events_per_second", "val/ap", "val/auc", "test/transductive/ap"];
    assert_eq!(tags.map(|tag| count(&first, tag)), [1; 5]);
    assert_eq!(tags.map(|tag| count(&last, tag)), [3, 3, 3, 3, 1]);
    fs::remove_file(&file).unwrap();
    let test = resumed.best_epoch.zip(resumed.test);
    tensorboard::write(dir.path(), &resumed.epochs, test).unwrap();
    assert!(fs::read(&file).unwrap() == last);
    run(&config(1, 8), &events, Some(&dir.path().join("without")), false).unwrap();
    assert!(!dir.path().join("without").join(tensorboard::FILE).exists());
}

const TGL: &str = "\
sampling: [{layer: 2, neighbor: [3, 3], strategy: recent, prop_time: False, history: 1, duration: 0}]
memory: [{type: node, memory_update: gru, mail_combine: last, dim_time: 8, dim_out: 8}]
gnn: [{arch: transformer_attention, layer: 2, att_head: 2, dim_time: 8, dim_out: 8}]
train: [{epoch: 5, batch_size: 40, lr: 0.0001, dropout: 0.2, reorder: 4}]
";

#[test]
fn a_configuration_of_tgl_trains_with_flags_above_it_and_unused_keys_get_a_note() {
    let dir = made();
    let dir = dir.path();
    fs::write(dir.join("tgn.yml"), TGL).unwrap();
    let words = ["train", "tgn.yml", "--data", "made", "--epochs", "1", "--set", "tgn.heads=4"];
    let ran = done(dir, &[&words[..], &["--out", "run"]].concat());
    assert!(ran.out.contains("note      sampling.prop_time: "), "{}", ran.out);
    let config = fs::read_to_string(dir.join("run/config.toml")).unwrap();
    for line in ["protocol = \"tgl\"", "epochs = 1", "batch = 40", "chunks = 4", "heads = 4", "memory = 8"] {
        assert!(config.contains(line), "no {line} in {config}");
    }
    for (from, to, text) in [
        ("strategy", "strategie", "wrong.yaml:1:41: "),
        ("dim_out: 8}]\ntrain", "dim_out: -8}]\ntrain", "wrong.yaml: invalid value"),
        ("layer: 2, att", "layer: 1, att", "wrong.yaml: sampling.layer and gnn.layer differ"),
    ] {
        let wrong = TGL.replacen(from, to, 1);
        assert_ne!(wrong, TGL);
        fs::write(dir.join("wrong.yaml"), wrong).unwrap();
        refused(dir, &["train", "wrong.yaml", "--data", "made", "--out", "no"], 2, &[text]);
    }
}

#[test]
fn the_program_prints_the_task_its_negatives_the_baseline_and_why_training_stopped() {
    let dir = made();
    let words = ["--set", "learning_rate=1e-30", "--epochs", "5", "--patience", "2", "--protocol", "disttgl"];
    let Ran { out, .. } = done(dir.path(), &small_words(&words));
    for text in [
        "training  task link, protocol disttgl, random negatives\n          batch 50, 5 epochs, patience 2, ",
        "hits@10 0.",
        "\nstopped: no better validation for 2 epochs\n\ntest (task link, ",
        "\n  transductive  tgn  ",
        "\n                rules that know the events of earlier batches:\n                EdgeBank  ",
        "\n                rules that know all strictly earlier events:\n                EdgeBank  ",
        " more rules that learn nothing are no better: see summary.json, or --json\n",
        "\n  inductive     tgn ",
        "\n                EdgeBank, window      ",
    ] {
        assert!(out.contains(text), "no `{text}` in\n{out}");
    }
    done(
        dir.path(),
        &["data", "synth", "--out", "classed", "--events", "300", "--classes", "4", "--labels", "1"],
    );
    let words = ["--data", "classed", "--task", "edge", "--set", "static.mode=trained", "--chunks", "2"];
    let Ran { out, .. } = done(dir.path(), &small_words(&words));
    for text in [
        "task edge, protocol dyglib\n          batch 50 of 2 chunks, ",
        "  F1 0.",
        "  accuracy 0.",
        "static memory 100, learned with it\n",
    ] {
        assert!(out.contains(text), "no `{text}` in\n{out}");
    }
    assert!(!out.contains("EdgeBank"));
}

fn classed() -> Events {
    let options = SynthOptions {
        events: 500,
        sources: 40,
        destinations: 20,
        edge_features: 4,
        classes: 5,
        ..SynthOptions::default()
    };
    synth(&options).unwrap()
}

/// Returns the configuration of a node classification on a frozen model.
fn frozen(epochs: usize) -> Config {
    let mut config = Config { task: TaskName::Node, ..config(epochs, 8) };
    config.classify.frozen = true;
    config
}

fn start(
    config: &Config,
    from: Option<&Path>,
    out: Option<&Path>,
    resume: bool,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let (from, out) = (from.map(Into::into), out.map(Into::into));
    let options = RunOptions { from, out, resume, ..RunOptions::default() };
    task::train(config, &classed(), &Device::cpu(1)?, &options, watch)
}

/// Returns every tensor of the best epoch of the run in `dir`, which did not settle, sorted by name.
fn tensors(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let best = Checkpoint::at(dir).manifest().unwrap().best_epoch;
    let bytes = fs::read(dir.join(format!("checkpoint/epoch-{best}.safetensors"))).unwrap();
    let mut tensors: Vec<_> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(name, view)| (name.to_owned(), view.data().to_vec()))
        .collect();
    tensors.sort();
    tensors
}

/// Ends a run before its first epoch.
struct Cut;
impl Watch for Cut {
    fn start(&mut self, _: &mut dyn Task) {
        panic!("interrupted by the test");
    }
}

/// Stops a run in the middle of its second epoch, and counts what it hears afterwards.
#[derive(Default)]
struct Stop {
    heard: usize,
}
impl Watch for Stop {
    fn progress(&mut self, _: &str, epoch: usize, p: task::Progress<'_>) {
        self.heard += usize::from(epoch == 2);
        p.stop.set(epoch == 2);
    }
}

#[test]
fn a_watch_can_stop_a_run_between_two_steps_and_the_run_goes_on_as_if_nothing_had_happened() {
    let events = small(600);
    let on = crate::support::devices::device(0);
    let gpu = on.as_ref().map(|on| on.device());
    let devices = [Some(Device::cpu(2).unwrap()), gpu].into_iter().flatten();
    for (device, few) in devices.zip([3, 1]) {
        for (plan, _) in drawn(2, few, 3) {
            let plan = ["sequential", "prefetch", "overlap"][plan];
            let dir = tempfile::tempdir().unwrap();
            let config = Config { plan: plan.into(), ..config(3, 8) };
            let start = |out: Option<&Path>, resume, watch: &mut dyn Watch| {
                let options = RunOptions { out: out.map(Into::into), resume, ..RunOptions::default() };
                task::train(&config, &events, &device, &options, watch)
            };
            let mut stop = Stop::default();
            let e = start(Some(dir.path()), false, &mut stop).unwrap_err();
            assert_eq!(
                (e.kind(), e.to_string()),
                (ErrorKind::Interrupted, "interrupted".into()),
                "{device:?}, {plan}"
            );
            assert_eq!((stop.heard, Checkpoint::at(dir.path()).manifest().unwrap().epochs), (1, 1));
            let resumed = start(Some(dir.path()), true, &mut ()).unwrap();
            assert_eq!(found(&resumed), found(&start(None, false, &mut ()).unwrap()), "{device:?}, {plan}");
        }
    }
}

#[test]
fn a_head_learns_on_the_frozen_model_of_another_run_whose_bits_do_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    for mode in [StaticMode::Off, StaticMode::Pretrained] {
        let name = |part: &str| folder(&format!("{part} {mode:?}"));
        let with_rows = |mut config: Config| {
            (config.static_memory.mode, config.static_memory.width, config.static_memory.epochs) =
                (mode, 6, 1);
            config
        };
        let link = with_rows(config(2, 8));
        start(&link, None, Some(&name("link")), false, &mut ()).unwrap();
        let frozen = |epochs| with_rows(frozen(epochs));
        let at_once = start(&frozen(2), Some(&name("link")), Some(&name("node")), false, &mut ()).unwrap();
        let (link, node) = (tensors(&name("link")), tensors(&name("node")));
        let in_the_model = |tensor: &str| {
            ["memory.", "embed.", "static.", "node."].iter().any(|prefix| tensor.starts_with(prefix))
        };
        let model = |tensors: &[(String, Vec<u8>)]| {
            tensors.iter().filter(|t| in_the_model(&t.0)).cloned().collect::<Vec<_>>()
        };
        assert!(model(&link).len() > 8);
        assert!(model(&link) == model(&node), "{mode:?}: the model has changed");
        let task = EventTask::new(&frozen(1), &classed(), Device::cpu(1).unwrap()).unwrap();
        let mut learned_numbers = 0;
        for (tensor, id) in task.core.parameters.iter().filter(|p| p.0.starts_with("node_head.")) {
            learned_numbers += task.core.store.spec(id).len();
            let learned = &node.iter().find(|t| t.0 == tensor).unwrap().1;
            assert!(learned != task.core.store.raw(id).unwrap(), "{tensor} has not learned");
        }
        assert_eq!(at_once.parameters, learned_numbers);
        // A run that was cut off before its first epoch continues from the other run's model.
        let cut = panic::AssertUnwindSafe(|| {
            start(&frozen(2), Some(&name("link")), Some(&name("cut")), false, &mut Cut)
        });
        assert!(panic::catch_unwind(cut).is_err());
        let resumed = start(&frozen(2), None, Some(&name("cut")), true, &mut ()).unwrap();
        assert_eq!(found(&resumed), found(&at_once), "{mode:?}");
        // Both say what they have started from.
        let link = name("link").display().to_string();
        for run in [resumed, at_once] {
            assert_eq!(run.start.unwrap().from.as_ref(), Some(&link));
        }
    }
    // A model that is not frozen learns further.
    let config = Config { task: TaskName::Edge, ..config(1, 8) };
    start(&config, Some(&folder("link Off")), Some(&folder("edge")), false, &mut ()).unwrap();
    let w = |run: &str| tensors(&folder(run)).into_iter().find(|t| t.0 == "memory.w_x").unwrap().1;
    assert!(w("link Off") != w("edge"));
}

#[test]
fn a_run_that_starts_from_another_has_its_model_unless_the_user_says_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    done(dir, &["data", "synth", "--out", "made", "--events", "900", "--classes", "3", "--seed", "4"]);
    let train = |more: &[&str]| {
        let words = ["train", "--data", "made", "--epochs", "1", "--max-batches", "2", "--no-eval"];
        tgnn(dir, &[&words[..], more].concat())
    };
    // Few events: rows are pre-trained, which is so for links alone.
    let narrow = ["--set", "tgn.memory=12", "--set", "tgn.time=8"];
    assert_eq!(train(&[&["--out", "link"], &narrow[..]].concat()).code, 0);
    let ran = train(&["--task", "edge", "--from", "link", "--out", "edge"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let found = Checkpoint::at(dir.join("edge")).manifest().unwrap().config;
    assert_eq!((found.tgn.memory, found.tgn.time), (12, 8));
    assert_eq!(found.static_memory.mode, StaticMode::Pretrained);
    let ran = train(&["--task", "edge", "--from", "link", "--set", "tgn.memory=9"]);
    assert!(ran.code == 9 && ran.err.contains("tgn.memory is 12 in the checkpoint and 9 in"), "{}", ran.err);
    let ran = train(&["--from", "link", "--model", "jodie"]);
    assert!(ran.code == 9 && ran.err.contains("is of tgn, this run is of jodie"), "{}", ran.err);
    let ran = train(&["--from", "none"]);
    assert!(ran.code != 0 && ran.err.contains("none"), "{}", ran.err);
}

#[test]
fn static_memory_is_pretrained_on_links_whatever_the_task() {
    let rows = |task, chunks| {
        let mut config = Config { task, chunks, ..config(1, 8) };
        (config.static_memory.epochs, config.static_memory.batch) = (1, 50);
        config.classify.frozen = task != TaskName::Link;
        task::pretrain(&config, &classed(), &Device::cpu(1).unwrap(), &mut ()).unwrap()
    };
    let link_rows = rows(TaskName::Link, 1);
    assert!(link_rows == rows(TaskName::Node, 60) && link_rows.iter().any(|&x| x != 0.0));
}

#[test]
fn a_run_refuses_to_start_from_another_model_or_to_freeze_an_untrained_one() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    start(&config(1, 8), None, Some(&link), false, &mut ()).unwrap();
    let refused = |config: &Config, from: Option<&Path>, kind, texts: &[&str]| {
        let e = start(config, from, Some(&dir.path().join("out")), false, &mut ()).unwrap_err();
        let text = e.to_string();
        assert_eq!(e.kind(), kind, "{text}");
        texts.iter().for_each(|t| assert!(text.contains(t), "no `{t}` in {text}"));
        assert!(!dir.path().join("out").exists());
    };
    refused(&frozen(1), None, ErrorKind::Usage, &["classify.frozen", "give --from"]);
    let jodie = Config { model: ModelName::Jodie, ..frozen(1) };
    let here = link.to_str().unwrap();
    refused(
        &jodie,
        Some(&link),
        ErrorKind::Checkpoint,
        &[here, "the checkpoint is of tgn, this run is of jodie"],
    );
    let mut wide = frozen(1);
    wide.tgn.memory = 12;
    refused(
        &wide,
        Some(&link),
        ErrorKind::Checkpoint,
        &[here, "tgn.memory is 8 in the checkpoint and 12 in this run"],
    );
    let mut rows = frozen(1);
    rows.static_memory.mode = StaticMode::Trained;
    refused(
        &rows,
        Some(&link),
        ErrorKind::Checkpoint,
        &["static.mode is \"off\" in the checkpoint and \"trained\" in this run"],
    );
    let nowhere = dir.path().join("nowhere");
    refused(&frozen(1), Some(&nowhere), ErrorKind::Checkpoint, &["nowhere", "there is no checkpoint here"]);

    for other in [&["--resume"][..], &["--weights", "w.safetensors"]] {
        let train = ["train", "--task", "node", "--out", "out", "--from", "link"];
        let ran = tgnn(dir.path(), &[&train, other].concat());
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("--from") && ran.err.contains(other[0]), "{}", ran.err);
    }
}

#[test]
fn a_checkpoint_of_another_model_or_type_or_of_a_newer_build_is_refused_with_the_reason() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    let tgn = config(1, 8);
    run(&tgn, &events, Some(dir.path()), false).unwrap();
    let (checkpoint, device) = (Checkpoint::at(dir.path()), Device::cpu(1).unwrap());
    let evaluate =
        |config: &Config| task::evaluate(&checkpoint, config, &events, &device, "", false, &mut ());
    let refused = |e: tgnn::error::Error, text: &str| {
        assert_eq!(e.kind(), ErrorKind::Checkpoint, "{e}");
        assert!(e.to_string().contains(text), "no `{text}` in {e}");
    };
    let jodie = JodieConfig { memory: 8, time: 8, ..JodieConfig::default() };
    let jodie = Config { model: ModelName::Jodie, jodie, ..config(2, 8) };
    refused(evaluate(&jodie).unwrap_err(), "the checkpoint is of tgn, this run is of jodie");
    refused(
        run(&jodie, &events, Some(dir.path()), true).unwrap_err(),
        "the checkpoint is of tgn, this run is of jodie",
    );
    let mut narrow = tgn.clone();
    narrow.tgn.time = 4;
    refused(
        evaluate(&narrow).unwrap_err(),
        "tgn has other settings: tgn.time is 8 in the checkpoint and 4 in this run",
    );
    let seed = Config { seed: 7, ..config(2, 8) };
    refused(
        run(&seed, &events, Some(dir.path()), true).unwrap_err(),
        "another configuration: seed is 1 in the checkpoint and 7 in this run",
    );

    // Another type with the same number of bytes, in a file with the right checksum.
    let (file, manifest) =
        (dir.path().join("checkpoint/epoch-1.safetensors"), dir.path().join("checkpoint/manifest.json"));
    let (whole, text) = (fs::read(&file).unwrap(), fs::read_to_string(&manifest).unwrap());
    // As whoever changes it by hand: without its own checksum.
    let text: String =
        text.lines().filter(|line| !line.contains("manifest_checksum")).collect::<Vec<_>>().join("\n");
    let sum = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_string()
    };
    let at = whole.windows(12).position(|w| w == b"\"memory.w_x\"").unwrap();
    let at = at + whole[at..].windows(5).position(|w| w == b"\"F32\"").unwrap();
    let damaged = [&whole[..at], b"\"I32\"", &whole[at + 5..]].concat();
    fs::write(&file, &damaged).unwrap();
    fs::write(&manifest, text.replace(&sum(&whole), &sum(&damaged))).unwrap();
    refused(evaluate(&tgn).unwrap_err(), "`memory.w_x` is I32 [24, 28], want F32 [24, 28]");
    fs::write(&file, &whole).unwrap();

    for (damaged, reason) in [
        (
            text.replacen("\"schema\": 2", "\"schema\": 3", 1),
            "schema 3 and was written by a newer build, this one reads 2",
        ),
        (text.replacen("\"schema\": 2", "\"schema\": 1", 1), "written by an older build"),
        (text.replacen("\"seed\"", "\"sown\"", 1), "or written by a newer build (unknown field `sown`"),
        (text.replacen("{", "", 1), "the manifest is damaged ("),
    ] {
        assert_ne!(damaged, text);
        fs::write(&manifest, damaged).unwrap();
        refused(evaluate(&tgn).unwrap_err(), reason);
    }
    fs::write(&manifest, text).unwrap();
    evaluate(&tgn).expect("the restored manifest is read again");
}

#[test]
fn patience_without_validation_and_an_event_file_without_a_folder_are_refused() {
    let dir = made();
    refused(
        dir.path(),
        &small_words(&["--patience", "2", "--no-eval"]),
        2,
        &["patience is 2, and nothing is validated"],
    );
    refused(dir.path(), &small_words(&["--tensorboard"]), 2, &["--out"]);
    refused(dir.path(), &small_words(&["--chunks", "51"]), 2, &["chunks is 51"]);
    done(dir.path(), &small_words(&["--tensorboard", "--epochs", "1", "--out", "run", "--json"]));
    assert!(dir.path().join("run").join(tensorboard::FILE).exists());
    let summary = json(&fs::read_to_string(dir.path().join("run/summary.json")).unwrap());
    assert_eq!((&summary["task"], &summary["negatives"]), (&"link".into(), &"random".into()));
}
