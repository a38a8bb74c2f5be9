//! Prediction on a stream that continues after training: a predictor scores arriving events as evaluation
//! does.
use crate::support::{
    devices::device,
    trainings::{config, event_models, narrowed, small},
};
use proptest::prelude::*;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tgnn::ops::write_memory::Combiner;
use tgnn::{
    autograd::Program,
    error::ErrorKind,
    ops::{
        Backend, Tape,
        sample_neighbors::{History, Sampling, Strategy as Draw},
    },
    runtime::*,
};
use tgnn_data::{Events, Features};
use tgnn_training::model::{NeighborSampling, NeighborTime};
use tgnn_training::{
    model::{EventTables, ModelName, OpenEnd, StaticMode},
    task::{
        self, After, Checkpoint, Config, EventTask, NewEvent, Predictor, PredictorOptions, RunOptions, Task,
        TaskName,
    },
};

/// Runs a short training into `dir`.
fn trained(config: &Config, events: &Events, dir: &Path) -> Checkpoint {
    let options = RunOptions { out: Some(dir.into()), command: "test".into(), ..RunOptions::default() };
    task::train(config, events, &Device::cpu(1).unwrap(), &options, &mut ()).unwrap();
    Checkpoint::at(dir)
}

/// Returns every model with the given width, and the choices that change what it keeps of the past.
fn every_model(width: usize) -> Vec<(&'static str, Config)> {
    let mut base = narrowed(&Config { batch: 35, eval_batch: 35, ..config(1, width) }, width, 4, 3);
    base.tgat.neighbor_time = NeighborTime::Query;
    let of = |model| Config { model, ..base.clone() };
    let with = |model, change: fn(&mut Config)| {
        let mut c = of(model);
        change(&mut c);
        c
    };
    let mut models: Vec<_> = event_models().map(|model| (model.name(), of(model))).collect();
    models.extend([
        (
            "tgn of two layers, mean mails",
            with(ModelName::Tgn, |c| {
                (c.tgn.layers, c.tgn.combiner) = (2, Combiner::Mean);
                c.static_memory.mode = StaticMode::Trained;
            }),
        ),
        ("apan, mean mails", with(ModelName::Apan, |c| c.apan.combiner = Combiner::Mean)),
        // The batches of every epoch begin elsewhere, and so the mails of the best epoch are of other events.
        ("apan, random chunks", with(ModelName::Apan, |c| (c.epochs, c.chunks) = (3, 5))),
        (
            "graph-mixer, static memory",
            with(ModelName::GraphMixer, |c| c.static_memory.mode = StaticMode::Trained),
        ),
    ]);
    models
}

/// Generates events with features of edges and of nodes.
fn rich(n: usize) -> Events {
    let mut events = small(n);
    events.node_features = Some(Features::random(events.nodes, 3, 1));
    events
}

fn new_event(events: &Events, i: usize) -> NewEvent<'_> {
    let features = events.edge_features.as_ref().map_or(&[][..], |f| f.row(i));
    NewEvent { src: events.src[i], dst: events.dst[i], time: events.time[i], features }
}

fn test_part(config: &Config, events: &Events) -> Vec<usize> {
    config.split(events).unwrap().test.collect()
}

/// Returns the logits of the test part's events, as bits, as evaluation scores them.
fn evaluated(checkpoint: &Checkpoint, config: &Config, events: &Events, device: &Device) -> Vec<u32> {
    let mut task = EventTask::new(config, events, device.clone()).unwrap();
    let buffers = task.core().checkpoint_buffers();
    checkpoint.load(&mut task.core.store, &buffers, true).unwrap();
    task.test(&mut |_| {}).unwrap();
    let n = task.split.test.len();
    task.scored(n).unwrap().chunks_exact(task.columns()).map(|row| row[0].to_bits()).collect()
}

fn opened(checkpoint: &Checkpoint, on: &Device, options: &PredictorOptions) -> Predictor {
    let config = checkpoint.manifest().unwrap().config;
    Predictor::open(checkpoint, &config, on, options).unwrap()
}

/// Returns the logits, as bits, of a predictor that receives the events `which`, `batch` at a time.
fn streamed(p: &mut Predictor, events: &Events, which: &[usize], batch: usize) -> Vec<u32> {
    let mut logits = Vec::new();
    for batch in which.chunks(batch) {
        let events: Vec<NewEvent<'_>> = batch.iter().map(|&i| new_event(events, i)).collect();
        logits.extend(p.advance(&events).unwrap().iter().map(|l| l.to_bits()));
    }
    logits
}

/// Batches are full, and rows are so wide that every product has more than 256 numbers: the CPU sums smaller
/// products in another order, and evaluation has more rows because of its negatives.
#[test]
fn a_predictor_scores_a_stream_bit_for_bit_as_evaluation_does() {
    let (mut events, cpu) = (rich(700), Device::cpu(2).unwrap());
    for features in ["of edges and nodes", "of nodes", "rounded"] {
        match features {
            "of nodes" => events.edge_features = None,
            "rounded" => events = rich(700),
            _ => {}
        }
        for (name, mut config) in every_model(32) {
            config.features_as = if features == "rounded" { StoredAs::Bf16 } else { StoredAs::F32 };
            let dir = TempDir::new().unwrap();
            let checkpoint = trained(&config, &events, dir.path());
            let options = PredictorOptions {
                batch: config.batch,
                after: After::Validation,
                ..PredictorOptions::default()
            };
            let mut p = opened(&checkpoint, &cpu, &options);
            let found = streamed(&mut p, &events, &test_part(&config, &events), config.batch);
            let want = evaluated(&checkpoint, &config, &events, &cpu);
            let differ = want.iter().zip(&found).filter(|(w, f)| w != f).count();
            assert!(found == want, "{name}, features {features}: {differ} of {} differ", want.len());
        }
    }
}

/// Returns the file of the extract of the data that belongs to the state after validation.
fn extract_file(checkpoint: &Path) -> PathBuf {
    let manifest = Checkpoint::at(checkpoint).manifest().unwrap();
    checkpoint.join(format!("extract-{:08x}.safetensors", manifest.extract.unwrap().checksum))
}

/// A predictor at the end of the stream is one after validation that has also received the test part.
#[test]
fn a_predictor_after_all_events_goes_on_as_one_that_received_the_test_part() {
    let (events, cpu) = (rich(700), Device::cpu(2).unwrap());
    for (name, config) in every_model(32) {
        let dir = TempDir::new().unwrap();
        let checkpoint = trained(&config, &events, dir.path());
        let open = |after| {
            let options = PredictorOptions { batch: config.eval_batch, after, ..PredictorOptions::default() };
            opened(&checkpoint, &cpu, &options)
        };
        let (mut at_end, mut grown) = (open(After::Stream), open(After::Validation));
        streamed(&mut grown, &events, &test_part(&config, &events), config.eval_batch);
        assert_eq!(at_end.latest(), grown.latest());
        assert_eq!((at_end.latest(), at_end.seen()), (events.time.last().copied(), 0), "{name}");
        let time = grown.latest().unwrap() + 7;
        let nodes: Vec<u32> = (0..35).collect();
        let embed = |p: &mut Predictor| p.embed(&nodes, &[time; 35]).unwrap();
        assert!(embed(&mut at_end) == embed(&mut grown), "{name}");
        let (_, want) =
            task::embed(&checkpoint, &config, &events, &cpu, After::Stream, &nodes, &[time; 35]).unwrap();
        let off = embed(&mut at_end).iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "{name}: {off}");
        let next = NewEvent { src: 1, dst: 2, time, features: &vec![0.5; events.edge_width()] };
        assert_eq!(at_end.advance(&[next]).unwrap(), grown.advance(&[next]).unwrap(), "{name}");
    }
}

#[test]
fn a_run_that_has_not_ended_knows_nothing_after_validation() {
    let (events, cpu) = (rich(300), Device::cpu(1).unwrap());
    let (dir, config) = (TempDir::new().unwrap(), config(1, 8));
    let checkpoint = trained(&config, &events, dir.path());
    let manifest = dir.path().join("checkpoint/manifest.json");
    let mut json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("latest");
    fs::write(&manifest, json.to_string()).unwrap();
    let open = |after| {
        let options = PredictorOptions { after, ..PredictorOptions::default() };
        Predictor::open(&checkpoint, &config, &cpu, &options)
    };
    let e = open(After::Stream).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Checkpoint);
    assert!(
        e.to_string().contains("it has not ended") && e.to_string().contains("--after validation"),
        "{e}"
    );
    assert!(open(After::Validation).is_ok());
}

#[test]
fn a_run_without_evaluation_has_no_state_after_validation_and_a_saved_stream_no_room_for_larger_batches() {
    let (events, cpu) = (rich(300), Device::cpu(1).unwrap());
    let (dir, config) = (TempDir::new().unwrap(), Config { evaluate: false, ..config(1, 8) });
    let checkpoint = trained(&config, &events, dir.path());
    let open = |checkpoint: &Checkpoint, batch, slots, after| {
        let options = PredictorOptions { batch, slots, after, ..PredictorOptions::default() };
        Predictor::open(checkpoint, &config, &cpu, &options).map_err(|e| e.to_string())
    };
    let e = open(&checkpoint, 1, None, After::Validation).err().unwrap();
    assert!(e.contains("did not evaluate") && e.contains("leave out --after"), "{e}");
    let after = dir.path().join("after");
    open(&checkpoint, 1, None, After::Stream).unwrap().save(&after, &[]).unwrap();
    let saved = Checkpoint::at(&after);
    assert!(saved.manifest().unwrap().latest.is_none(), "the folder has no such file");
    let slots = saved.manifest().unwrap().stream.unwrap().slots;
    let most = slots - slots / 4 + 1; // a quarter is read
    assert!(open(&saved, most, None, After::Stream).is_ok());
    let e = open(&saved, most + 1, None, After::Stream).err().unwrap();
    assert!(e.contains(&format!("batches of at most {most}, or accept")), "{e}");
    assert!(open(&saved, most + 1, Some(slots), After::Stream).is_ok());
}

/// Such a checkpoint has neither key; it was trained and evaluated by other rules than today's defaults.
#[test]
fn a_checkpoint_of_an_earlier_version_keeps_its_history_and_its_batch() {
    let (events, dir, config) = (rich(300), TempDir::new().unwrap(), config(1, 8));
    let checkpoint = trained(&config, &events, dir.path());
    let manifest = dir.path().join("checkpoint/manifest.json");
    let mut json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    let keys = json["config"].as_object_mut().unwrap();
    assert!(keys.remove("history").is_some() && keys.remove("eval_batch").is_some());
    fs::write(&manifest, json.to_string()).unwrap();
    let found = checkpoint.manifest().unwrap().config;
    assert_eq!((found.history(), found.eval_batch), (History::Batch, config.batch));
    assert_eq!(config.history(), History::Time);
}

#[test]
fn a_missing_damaged_or_foreign_extract_is_refused_and_a_resumed_run_writes_it_anew() {
    let (events, cpu) = (rich(300), Device::cpu(1).unwrap());
    let (dir, config) = (TempDir::new().unwrap(), config(1, 8));
    let (checkpoint, options) = (
        trained(&config, &events, dir.path()),
        PredictorOptions { after: After::Validation, ..PredictorOptions::default() },
    );
    let which = test_part(&config, &events);
    let want = streamed(&mut opened(&checkpoint, &cpu, &options), &events, &which, 1);
    let (folder, after) = (dir.path().join("checkpoint"), dir.path().join("after"));
    opened(&checkpoint, &cpu, &options).save(&after, &[]).unwrap();

    let extract = extract_file(&folder);
    let refused = |dir: &Path, texts: &[&str]| {
        let at = if dir == after { After::Stream } else { After::Validation };
        let options = PredictorOptions { after: at, ..PredictorOptions::default() };
        let e = Predictor::open(&Checkpoint::at(dir), &config, &cpu, &options).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Checkpoint, "{e}");
        let e = e.to_string();
        assert!(e.starts_with(dir.to_str().unwrap()) && !e.contains('\n'), "{e}");
        texts.iter().for_each(|text| assert!(e.contains(text), "no `{text}` in {e}"));
    };
    for (dir, remedy) in [
        (
            &folder,
            "; write it anew by resuming the run with its data: `train DIR/config.toml --out DIR --resume`",
        ),
        (&after, "; go on from the folder of the training run, or use a copy"),
    ] {
        let (extract, manifest) = (extract_file(dir), dir.join("manifest.json"));
        let (bytes, text) = (fs::read(&extract).unwrap(), fs::read_to_string(&manifest).unwrap());
        fs::remove_file(&extract).unwrap();
        refused(dir, &["extract-", "the file is missing", remedy]);
        fs::write(&extract, &bytes[..bytes.len() - 1]).unwrap();
        refused(dir, &["extract-", "is truncated or was changed", remedy]);
        fs::write(&extract, &bytes).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["extract"]["version"] = 2.into();
        fs::write(&manifest, json.to_string()).unwrap();
        refused(dir, &["manifest.json", "has version 2, this build reads 1; use the build that wrote it"]);
        json["extract"]["version"] = 1.into();
        json["extract"]["first_destination"] = 1_000.into();
        fs::write(&manifest, json.to_string()).unwrap();
        refused(dir, &["extract-", "is not an extract of the data in the manifest", remedy]);
        json.as_object_mut().unwrap().remove("extract");
        fs::write(&manifest, json.to_string()).unwrap();
        refused(dir, &["manifest.json: an earlier version ", "without an extract of the data", remedy]);
    }
    fs::remove_file(extract).unwrap();
    let options_of_run = RunOptions { out: Some(dir.path().into()), resume: true, ..RunOptions::default() };
    task::train(&config, &events, &cpu, &options_of_run, &mut ()).unwrap();
    assert_eq!(streamed(&mut opened(&checkpoint, &cpu, &options), &events, &which, 1), want);
}

/// Every state in which an interrupted training can leave its folder must be of one epoch.
#[test]
fn a_resumed_run_leaves_the_same_extract_as_an_uninterrupted_one_and_no_other_file() {
    let events = rich(300);
    let mut config = Config { model: ModelName::Apan, batch: 20, eval_batch: 20, chunks: 4, ..config(3, 8) };
    (config.apan.memory, config.apan.time, config.apan.neighbors) = (8, 8, 4);
    let dirs = [(); 2].map(|()| TempDir::new().unwrap());
    trained(&config, &events, dirs[0].path());
    trained(&Config { epochs: 1, ..config.clone() }, &events, dirs[1].path());
    let options = RunOptions { out: Some(dirs[1].path().into()), resume: true, ..RunOptions::default() };
    task::train(&config, &events, &Device::cpu(1).unwrap(), &options, &mut ()).unwrap();
    let [one, other] = dirs.each_ref().map(|dir| extract_file(&dir.path().join("checkpoint")));
    assert_eq!(one.file_name(), other.file_name());
    assert_eq!(fs::read(one).unwrap(), fs::read(other).unwrap());
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn on_a_device_a_predictor_scores_as_evaluation_does_and_resumes_from_its_saved_state() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let events = rich(300);
    for (name, mut config) in every_model(12) {
        (config.batch, config.eval_batch) = (20, 20);
        let dir = TempDir::new().unwrap();
        let checkpoint = trained(&config, &events, dir.path());
        let options = PredictorOptions { batch: 20, after: After::Validation, ..PredictorOptions::default() };
        let which = test_part(&config, &events);
        let mut p = opened(&checkpoint, &gpu, &options);
        let mut found = streamed(&mut p, &events, &which[..20], 20);
        p.save(&dir.path().join("after"), &[]).unwrap();
        let goes_on = PredictorOptions { after: After::Stream, ..options };
        let mut p = opened(&Checkpoint::at(dir.path().join("after")), &gpu, &goes_on);
        found.extend(streamed(&mut p, &events, &which[20..], 20));
        assert!(found == evaluated(&checkpoint, &config, &events, &gpu), "{name}");
    }
}

#[test]
fn a_saved_and_resumed_stream_equals_an_uninterrupted_one_and_renumbered_ids_change_nothing() {
    let (events, cpu) = (rich(700), Device::cpu(1).unwrap());
    for (name, config) in every_model(12) {
        let dir = TempDir::new().unwrap();
        let checkpoint = trained(&config, &events, dir.path());
        let which = test_part(&config, &events);
        let sizes = |events| PredictorOptions {
            batch: 4,
            events,
            nodes: Some(90),
            after: After::Validation,
            ..Default::default()
        };
        let want = streamed(&mut opened(&checkpoint, &cpu, &sizes(None)), &events, &which, 4);
        // There are no more ids than are in use at the start, so ids are soon renumbered.
        let mut p = opened(&checkpoint, &cpu, &sizes(Some(1)));
        let mut found = streamed(&mut p, &events, &which[..60], 4);
        let after = dir.path().join("after");
        p.save(&after, &[]).unwrap();
        assert_eq!((p.seen(), p.nodes()), (60, 90));
        let uninterrupted = streamed(&mut p, &events, &which[60..], 4);
        let goes_on = PredictorOptions { after: After::Stream, ..sizes(Some(1)) };
        let mut p = opened(&Checkpoint::at(&after), &cpu, &goes_on);
        found.extend(streamed(&mut p, &events, &which[60..], 4));
        assert!(found == want && uninterrupted == want[60..], "{name}");
        let again = TempDir::new().unwrap();
        p.save(again.path(), &[]).unwrap();
        assert_eq!(fs::read_dir(again.path()).unwrap().count(), 3, "{name}");
        let e =
            task::evaluate(&Checkpoint::at(&after), &config, &events, &cpu, "", false, &mut ()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Checkpoint);
        assert!(e.to_string().contains("was saved after a stream; go on with `predict`"), "{e}");
    }
}

/// The predictor's memory stays as it was before the first event, and ids are renumbered many times.
#[test]
fn memory_does_not_grow_with_the_stream() {
    let (events, cpu) = (small(400), Device::cpu(1).unwrap());
    for model in [ModelName::Tgn, ModelName::Apan] {
        let dir = TempDir::new().unwrap();
        let mut config = Config { batch: 50, eval_batch: 50, model, ..config(1, 4) };
        (config.tgn.neighbors, config.apan.neighbors, config.apan.mails) = (2, 2, 2);
        (config.apan.memory, config.apan.time) = (4, 4);
        let checkpoint = trained(&config, &events, dir.path());
        let options = PredictorOptions {
            batch: 50,
            events: Some(12_000),
            after: After::Validation,
            ..PredictorOptions::default()
        };
        let mut p = opened(&checkpoint, &cpu, &options);
        let (bytes, mut time) = (p.bytes(), p.latest().unwrap());
        let row = [0.5; 4];
        for step in 0..1_000u32 {
            let batch: Vec<NewEvent<'_>> = (0..50)
                .map(|i| {
                    time += 7;
                    let draw = (step * 50 + i).wrapping_mul(2_654_435_761) >> 8;
                    NewEvent { src: draw % 60, dst: 60 + draw / 60 % 20, time, features: &row }
                })
                .collect();
            assert!(p.advance(&batch).unwrap().iter().all(|l| l.is_finite()));
        }
        assert_eq!((p.bytes(), p.seen()), (bytes, 50_000), "{model:?}");
    }
}

/// Whether the values are equal up to rounding, which depends on how many of them are computed together.
fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0))
}

#[test]
fn scores_and_embeddings_at_a_time_change_nothing_and_equal_those_of_a_checkpoint() {
    let (events, cpu) = (rich(700), Device::cpu(1).unwrap());
    for (name, config) in every_model(12) {
        let dir = TempDir::new().unwrap();
        let checkpoint = trained(&config, &events, dir.path());
        let options = PredictorOptions { batch: 5, after: After::Validation, ..PredictorOptions::default() };
        let which = test_part(&config, &events);
        let want = streamed(&mut opened(&checkpoint, &cpu, &options), &events, &which, 5);
        let mut p = opened(&checkpoint, &cpu, &options);
        let mut found = Vec::new();
        for (step, batch) in which.chunks(5).enumerate() {
            let pairs: Vec<[u32; 2]> = batch.iter().map(|&i| [events.src[i], events.dst[i]]).collect();
            let before = p.score(&pairs[..1], events.time[batch[0]]).unwrap();
            if step == 0 {
                let (nodes, time) = ([0u32, 3, 61, 70, 3, 5, 64], events.time[batch[0]]);
                let (_, want) =
                    task::embed(&checkpoint, &config, &events, &cpu, After::Validation, &nodes, &[time; 7])
                        .unwrap();
                assert!(close(&p.embed(&nodes, &[time; 7]).unwrap(), &want), "{name}");
            }
            let logits = streamed(&mut p, &events, batch, 5);
            assert!(close(&before, &[f32::from_bits(logits[0])]), "{name}");
            found.extend(logits);
        }
        assert!(found == want, "{name}");
    }
}

#[test]
fn embeddings_are_those_of_the_last_batch_that_became_history_whatever_was_scored_since() {
    let (dir, events, config) = (tempfile::tempdir().unwrap(), small(400), config(1, 8));
    let checkpoint = trained(&config, &events, dir.path());
    // Few ids: they are renumbered, and tables resized, between the batches.
    let options = PredictorOptions { batch: 3, events: Some(1), ..PredictorOptions::default() };
    let mut p = opened(&checkpoint, &Device::cpu(1).unwrap(), &options);
    let now = p.latest().unwrap() + 1;
    let event = |i: usize| NewEvent { time: now + i as i64, ..new_event(&events, i) };
    let refused = |e: tgnn::error::Error, text: &str| {
        assert_eq!((e.kind(), e.to_string().starts_with(text)), (ErrorKind::Usage, true), "{e}");
    };
    refused(p.embeddings(1).unwrap_err(), "embeddings of 1 events, and the last batch had 0");
    assert_eq!(p.embeddings(0).unwrap(), [&[] as &[f32]; 2]);
    for first in [0, 2, 4] {
        p.advance(&[event(first), event(first + 1)]).unwrap();
        let want = p.embeddings(2).unwrap().map(<[f32]>::to_vec);
        assert_eq!((want[0].len(), want[1].len()), (2 * 8, 2 * 8));
        p.score(&[[5, 65], [6, 66], [7, 67], [8, 68]], now + 9).unwrap();
        p.embed(&[9, 10, 11], &[now + 9; 3]).unwrap();
        assert_eq!(p.embeddings(2).unwrap(), [&want[0][..], &want[1]]);
        assert_eq!(p.embeddings(1).unwrap(), [&want[0][..8], &want[1][..8]]);
        p.advance(&[NewEvent { src: 9_999, ..event(first) }]).unwrap_err();
        assert_eq!(p.embeddings(2).unwrap(), [&want[0][..], &want[1]]);
        for n in [3, 4, usize::MAX] {
            refused(
                p.embeddings(n).unwrap_err(),
                &format!("embeddings of {n} events, and the last batch had 2"),
            );
        }
    }
    let options = PredictorOptions { batch: usize::MAX, ..PredictorOptions::default() };
    let e = Predictor::open(&checkpoint, &config, &Device::cpu(1).unwrap(), &options).unwrap_err();
    refused(e, &format!("batches of {} events", usize::MAX));
}

#[test]
fn events_and_options_that_do_not_fit_a_stream_are_refused_and_change_nothing() {
    let (events, cpu) = (small(400), Device::cpu(1).unwrap());
    let dir = TempDir::new().unwrap();
    let config = Config { batch: 50, eval_batch: 50, ..config(1, 4) };
    let checkpoint = trained(&config, &events, dir.path());
    let options = |nodes, slots| PredictorOptions {
        batch: 2,
        nodes,
        slots,
        after: After::Validation,
        ..PredictorOptions::default()
    };
    let open = |config: &Config, options: &PredictorOptions| {
        Predictor::open(&checkpoint, config, &cpu, options).err().unwrap().to_string()
    };
    let mut uniform = config.clone();
    uniform.tgn.sampling = NeighborSampling::Uniform;
    let message = open(&uniform, &options(None, None));
    assert!(
        message.contains("tgn.sampling is `uniform`, and a stream keeps only the most recent"),
        "{message}"
    );
    let papers = Config { model: ModelName::Tgat, ..Config::default() };
    let message = papers.event_model().unwrap().recent_events().unwrap_err().to_string();
    assert!(message.contains("train with tgat.neighbor_time=query, or tgat.layers=1"), "{message}");
    let message = open(&Config { task: TaskName::Node, ..config.clone() }, &options(None, None));
    assert!(message.contains("the checkpoint is of task node"), "{message}");
    assert!(open(&config, &options(Some(79), None)).contains("79 nodes, and the model knows 80"));
    assert!(open(&config, &options(None, Some(4))).contains("give at least 5"));

    let mut p = opened(&checkpoint, &cpu, &options(Some(82), None));
    let at = p.latest().unwrap();
    let row = [0.0; 4];
    let good = NewEvent { src: 81, dst: 60, time: at, features: &row };
    let want = p.score(&[[81, 60]], at).unwrap();
    for (events, text) in [
        (vec![good; 3], "3 events, in batches of 2"),
        (vec![good, NewEvent { dst: 82, ..good }], "event 1 has node 82, and the predictor holds 82 nodes"),
        (vec![NewEvent { time: at - 1, ..good }], "event 0 has time"),
        (vec![NewEvent { time: at + 1, ..good }, good], "event 1 has time"),
        (vec![NewEvent { features: &row[..3], ..good }], "event 0 has 3 edge features"),
        (vec![NewEvent { features: &[0.0, 1.0, f32::NAN, 0.0], ..good }], "or one that is not finite"),
    ] {
        let e = p.advance(&events).unwrap_err().to_string();
        assert!(e.contains(text), "{e}");
    }
    assert!(p.save(dir.path(), &[]).unwrap_err().to_string().contains("holds the checkpoint of a training"));
    assert_eq!((p.seen(), p.advance(&[good]).unwrap()), (0, &want[..]));
}

/// Returns the events and nodes of the `k` most recent neighbours of both ends of every event, sampled batch
/// by batch: from the adjacency of the whole stream, and from lists of `slots` to which every batch is
/// appended: before it samples if it sees its own events, else afterwards.
fn sampled(events: &Events, capacity: usize, k: usize, slots: usize, history: History) -> [Vec<u32>; 2] {
    let how = Sampling { k, strategy: Draw::Recent, history, gaps: Gaps::unlimited(1.0) };
    let sizes = OpenEnd {
        nodes: events.nodes,
        batch: capacity,
        slots,
        events: events.len(),
        edge_width: 0,
        node_features: None,
        gaps: how.gaps,
        history,
        memory_as: StoredAs::F32,
    };
    let mut stores = [Store::new(Precision::F32), Store::new(Precision::F32)];
    let whole = EventTables::new(&mut stores[0], events).unwrap();
    let (open, arrivals) = EventTables::open_ended(&mut stores[1], &sizes).unwrap();
    let mut programs: Vec<(Program, [Var; 2])> = [&whole, &open]
        .into_iter()
        .zip(&stores)
        .map(|(tables, store)| {
            let mut t = Tape::new(store);
            let batch = tables.next_batch(&mut t, capacity).unwrap();
            if history == History::Time {
                tables.append(&mut t, &batch).unwrap();
            }
            let (node, time) = t.roots(batch.src, batch.dst, batch.time, None).unwrap();
            let tcsr = tables.tcsr(&mut t).unwrap();
            let near = t.sample_neighbors(tcsr, (node, time), (batch.event, batch.now), 2, how).unwrap();
            if history == History::Batch {
                tables.append(&mut t, &batch).unwrap();
            }
            let keep = [near.event, near.node];
            (Program::new(&t, &keep, Precision::F32, Backend::Cpu).unwrap(), keep)
        })
        .collect();
    let mut results = [Vec::new(), Vec::new()];
    whole.seek(&mut stores[0], 0, 0..events.len(), 0).unwrap();
    for first in (0..events.len()).step_by(capacity) {
        let which = first..events.len().min(first + capacity);
        let store = &mut stores[1];
        let n = which.len();
        store.get_mut::<u32>(arrivals.src).unwrap()[..n].copy_from_slice(&events.src[which.clone()]);
        store.get_mut::<u32>(arrivals.dst).unwrap()[..n].copy_from_slice(&events.dst[which.clone()]);
        store.get_mut::<i64>(arrivals.time).unwrap()[..n].copy_from_slice(&events.time[which]);
        let ids = store.get_mut::<u32>(arrivals.event).unwrap();
        ids.iter_mut().zip(first as u32..).for_each(|(to, id)| *to = id);
        open.seek(store, 0, 0..n, 0).unwrap();
        for ((result, (program, keep)), store) in results.iter_mut().zip(&mut programs).zip(&mut stores) {
            program.run(store).unwrap();
            keep.iter().for_each(|&v| result.extend_from_slice(program.read::<u32>(v, store).unwrap()));
        }
    }
    results
}

proptest! {
    /// If a node has at most `ties` events at any one time, `k + ties` slots are enough; as many as the batch
    /// has of the node come on top if its events are in the list before it samples.
    #[test]
    fn lists_of_the_latest_events_give_the_same_neighbours_as_the_whole_stream(
        ends in prop::collection::vec((0u32..6, 0u32..6, 0i64..3), 1..120), capacity in 1usize..20, k in 1usize..5,
        by_time: bool,
    ) {
        let mut events = small(100);
        let mut now = -ends[0].2;
        events.time = Arc::new(ends.iter().map(|e| { now += e.2; now }).collect());
        events.label = None;
        events.src = Arc::new(ends.iter().map(|e| e.0).collect());
        events.dst = Arc::new(ends.iter().map(|e| e.1).collect());
        (events.nodes, events.first_destination, events.edge_features) = (6, None, None);
        let touches = |v: u32, i: usize| events.src[i] == v || events.dst[i] == v;
        let at = |v: u32, t: i64| (0..events.len()).filter(|&i| touches(v, i) && events.time[i] == t).count();
        let ties = (0..6).flat_map(|v| events.time.iter().map(move |&t| (v, t))).map(|(v, t)| at(v, t)).max();
        let (history, of_batch) = if by_time { (History::Time, capacity) } else { (History::Batch, 0) };
        let [want, found] = sampled(&events, capacity, k, k + ties.unwrap_or(0) + of_batch, history);
        prop_assert_eq!(want, found);
    }
}
