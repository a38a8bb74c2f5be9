//! Properties of every model: determinism, checkpoints, embeddings, and degenerate streams.
use crate::support::{
    paths::root,
    program::listing,
    trainings::{every_model, found, run, small, small_config, stream},
    weights::{OF_SNAPSHOTS, documented},
};
use std::collections::BTreeSet;
use tgnn::{error::ErrorKind, runtime::*};
use tgnn_data::{Classes, Events, Features, NodeLabel, NodeLabels, SynthOptions, synth};
use tgnn_training::model::TimeStart;
use tgnn_training::{
    model::ModelName,
    task::{self, After, Checkpoint, Config, EventTask, PropertyTask, Protocol, Scores, Task, TaskName},
};

/// Returns the buffers of a checkpoint: name and bytes.
fn state(task: &EventTask) -> Vec<(String, Vec<u8>)> {
    let raw = |id| (task.core.store.name(id).to_owned(), task.core.store.raw(id).unwrap().to_vec());
    task.core().checkpoint_buffers().into_iter().map(raw).collect()
}

fn task_of(config: &Config, events: &Events, threads: usize) -> EventTask {
    EventTask::new(config, events, Device::cpu(threads).unwrap()).unwrap()
}

/// Trains an epoch and validates. Returns the bits of the loss, the scores, and the final state.
fn trained(config: &Config, events: &Events, threads: usize) -> (u64, Scores, Vec<(String, Vec<u8>)>) {
    let mut task = task_of(config, events, threads);
    let loss = task.train_epoch(0, &mut |_| {}).unwrap().0;
    assert!(loss.is_finite() && loss > 0.0, "{loss}");
    let scores = task.validate(&mut |_| {}).unwrap();
    (loss.to_bits(), scores, state(&task))
}

#[test]
fn one_and_two_threads_and_two_lanes_leave_the_same_bits_of_every_model_and_task() {
    let mut events = small(1500);
    events.node_features = Some(Features::random(events.nodes, 5, 1));
    for (name, config) in every_model(40) {
        for task in [TaskName::Link, TaskName::Node, TaskName::Edge] {
            let config = Config { task, batch: 300, eval_batch: 300, ..config.clone() };
            let one = trained(&config, &events, 1);
            for plan in ["sequential", "prefetch", "overlap"] {
                let config = Config { plan: plan.into(), ..config.clone() };
                let two = trained(&config, &events, 2);
                assert_eq!((one.0, one.1), (two.0, two.1), "{name}, {task:?}, {plan}");
                for ((buffer, one), (_, two)) in one.2.iter().zip(&two.2) {
                    assert!(one == two, "{name}, {task:?}, {plan}: {buffer} differs");
                }
            }
        }
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_with_every_model_also_in_chunks() {
    let (events, dir) = (small(700), tempfile::tempdir().unwrap());
    for (name, config) in every_model(8) {
        let with_epochs = |epochs| Config { epochs, chunks: 5, ..config.clone() };
        let (whole, parts) = (dir.path().join(name).join("whole"), dir.path().join(name).join("parts"));
        let at_once = run(&with_epochs(3), &events, Some(&whole), false).unwrap();
        run(&with_epochs(1), &events, Some(&parts), false).unwrap();
        let resumed = run(&with_epochs(3), &events, Some(&parts), true).unwrap();
        assert_eq!(found(&at_once), found(&resumed), "{name}");
        let bytes = |run: &std::path::Path| -> Vec<_> {
            listing(&run.join("checkpoint")).into_iter().map(|(_, bytes)| bytes).collect()
        };
        assert!(bytes(&whole) == bytes(&parts), "{name}: the checkpoints differ");
        // Whole batches give another training, so the chunks had an effect.
        let plain = run(&Config { chunks: 1, ..with_epochs(3) }, &events, None, false).unwrap();
        assert_ne!(found(&plain), found(&at_once), "{name}");
    }
}

#[test]
fn a_checkpoint_of_one_model_is_refused_by_every_other() {
    let (events, dir) = (small(300), tempfile::tempdir().unwrap());
    let models = every_model(8);
    let saved: Vec<_> = models
        .iter()
        .map(|(name, config)| {
            run(&Config { epochs: 1, ..config.clone() }, &events, Some(&dir.path().join(name)), false)
                .unwrap();
            Checkpoint::at(dir.path().join(name))
        })
        .collect();
    for (name, config) in &models {
        for ((other, _), checkpoint) in models.iter().zip(&saved) {
            let mut task = task_of(config, &events, 1);
            let (before, buffers) = (state(&task), task.core().checkpoint_buffers());
            let loaded = checkpoint.load(&mut task.core.store, &buffers, true);
            assert_eq!(state(&task) != before, loaded.is_ok(), "{other} into {name}: all, or nothing");
            let tested =
                task::evaluate(checkpoint, config, &events, &Device::cpu(1).unwrap(), "", false, &mut ());
            if name == other {
                assert!(loaded.is_ok() && tested.is_ok(), "{name}: {loaded:?}, {tested:?}");
                continue;
            }
            let e = tested.expect_err(&format!("{name} takes a checkpoint of {other}"));
            assert_eq!(e.kind(), ErrorKind::Checkpoint, "{other} into {name}: {e}");
        }
    }
}

#[test]
fn an_embedding_depends_on_its_node_and_time_alone_with_every_model() {
    let (events, dir) = (small(600), tempfile::tempdir().unwrap());
    let end = events.time[events.len() - 1] + 1;
    // Products over other numbers of rows may sum in another order.
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + a.abs()));
    for (name, config) in every_model(8) {
        let out = dir.path().join(name);
        run(&config, &events, Some(&out), false).unwrap();
        let z = |nodes: &[u32], times: &[i64]| -> Vec<Vec<f32>> {
            let device = Device::cpu(1).unwrap();
            let (width, values) =
                task::embed(&Checkpoint::at(&out), &config, &events, &device, After::Stream, nodes, times)
                    .unwrap();
            assert_eq!(
                (width, values.len()),
                (config.event_model().unwrap().width(), nodes.len() * width),
                "{name}"
            );
            assert!(values.iter().all(|x| x.is_finite()), "{name}");
            values.chunks(width).map(<[f32]>::to_vec).collect()
        };
        let many = z(&[3, 70, 3, 8, 3], &[end, end, end, end, 50 * end]);
        assert_eq!(many[0], many[2], "{name}: the same query");
        for (node, row) in [(3, 0), (70, 1)] {
            assert!(near(&many[row], &z(&[node], &[end])[0]), "{name}: node {node} alone");
        }
        assert!(many[0] != many[1] && many[0] != many[3], "{name}: other nodes");
        let timeless = ["static", "tgn without attention", "dyrep", "dyrep, static memory"].contains(&name);
        assert_eq!(many[0] == many[4], timeless, "{name}: another time");
    }
}

#[test]
fn node_features_are_used_if_and_only_if_the_configuration_wants_them() {
    let plain = small(400);
    let mut featured = plain.clone();
    featured.node_features = Some(Features::random(plain.nodes, 5, 1));
    for (name, config) in every_model(8) {
        let mut without = config.clone();
        without.tgn.node_features = false;
        (without.jodie.node_features, without.apan.node_features) = (false, false);
        (without.tgat.node_features, without.graph_mixer.node_features) = (false, false);
        without.dyrep.node_features = false;
        let [with, unused, none] = [(&config, &featured), (&without, &featured), (&config, &plain)]
            .map(|(config, events)| trained(config, events, 1));
        assert!(unused == none, "{name}: features that are not wanted");
        assert_eq!(with == none, name == "static", "{name}: features that are wanted");
    }
}

#[test]
fn attention_without_features_sees_time_alone_and_still_learns() {
    let options = SynthOptions {
        edge_features: 0,
        events: 4000,
        sources: 60,
        destinations: 20,
        ..SynthOptions::default()
    };
    let events = synth(&options).unwrap();
    let config =
        Config { learning_rate: 1e-2, batch: 50, eval_batch: 50, ..small_config(ModelName::Tgat, 16) };
    let widths = |task: &EventTask| -> Vec<usize> {
        ["embed.0.w_q", "embed.0.w_k", "embed.0.w_o_root", "embed.1.w_q"]
            .map(|name| task.core.parameters.iter().find(|p| p.0 == name).unwrap().1)
            .map(|id| task.core.store.spec(id).cols)
            .to_vec()
    };
    let mut task = task_of(&config, &events, 1);
    assert_eq!(widths(&task), [0, 16, 0, 16]);
    let losses: Vec<f64> = (0..5).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0).collect();
    assert!(losses[4] < losses[0] && losses[4] < 1.35, "{losses:?}");
    let scores = task.validate(&mut |_| {}).unwrap();
    assert!(scores.ap > Some(0.57), "{scores:?}");
}

/// Returns degenerate streams, each with a description and the fraction of its events that train.
fn bare() -> Vec<(&'static str, Events, f64)> {
    let loops: Vec<(usize, usize)> = (0..60).map(|i| (i % 7, i % 7)).collect();
    let pairs: Vec<(usize, usize)> = (0..40).map(|i| (i % 5, i * 3 + 1)).collect();
    vec![
        ("one event", stream(2, &[(0, 1)], vec![0]), 0.7),
        ("one event of one node", stream(1, &[(0, 0)], vec![0]), 0.7),
        ("one node", stream(1, &[(0, 0); 30], (0..30).collect()), 0.7),
        ("self-loops", stream(7, &loops, (0..60).collect()), 0.7),
        ("one time", stream(9, &pairs, vec![0; 40]), 0.7),
        ("no validation, no test", stream(9, &pairs, (0..40).collect()), 1.0),
    ]
}

#[test]
fn every_model_and_task_handles_degenerate_streams() {
    for (name, config) in every_model(6) {
        for (what, mut events, train) in bare() {
            // Labels 0 and 1, beginning with 1; a single event cannot have both, but a set of classes.
            match events.len() {
                1 => events.classes = Classes::new(1, 1, vec![0]).ok(),
                n => events.label = Some((0..n).map(|i| (i % 3 == 0).into()).collect()),
            }
            for task in [TaskName::Link, TaskName::Node, TaskName::Edge] {
                let mut config =
                    Config { task, batch: 8, eval_batch: 8, protocol: Protocol::Tgl, ..config.clone() };
                config.data.train = train;
                config.data.val = if train == 1.0 { 0.0 } else { 0.15 };
                let s = run(&config, &events, None, false).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
                assert!(s.epochs.iter().all(|e| e.train_loss.is_finite()), "{name}, {what}, {task:?}");
                let test = s.test.unwrap().transductive;
                let empty = train == 1.0 || events.time.first() == events.time.last();
                assert_eq!(test == Scores::default(), empty, "{name}, {what}, {task:?}: {test:?}");
                let scores = [test.ap, test.auc, test.f1].into_iter().flatten();
                assert!(scores.into_iter().all(|x| (0.0..=1.0).contains(&x)), "{name}, {what}: {test:?}");
            }
        }
    }
}

/// Returns the size that a letter of docs/weights.md stands for in the test below, in a weight of attention
/// layer `layer`, if any, of the model `name`.
fn documented_size(
    letter: &str,
    layer: Option<usize>,
    name: &str,
    config: &Config,
    events: &Events,
) -> usize {
    let (tgat, width) = (config.model == ModelName::Tgat, config.event_model().unwrap().width());
    match letter {
        "d" if tgat || config.model == ModelName::GraphMixer => width,
        "k" => config.graph_mixer.neighbors,
        "m" => config.graph_mixer.width,
        "p" => 2,
        "q" => 4 * config.graph_mixer.width,
        "d" | "t" => 8,
        "e" => width,
        "f" => 4,
        "g" => 5,
        "v" => events.nodes,
        "s" => 6,
        "c" if config.model == ModelName::Tgn => 3,
        "c" | "C" => 1,
        "n" => config.classify.width,
        "h" if layer > Some(0) || name == "tgat, static memory" => width,
        "h" if tgat => 5,
        "h" => 8,
        number => number.parse().unwrap(),
    }
}

#[test]
fn the_documented_weights_are_those_of_the_models() {
    let text = std::fs::read_to_string(root().join("docs/weights.md")).unwrap();
    let of_snapshots = |l: &str| OF_SNAPSHOTS.iter().any(|name| l.starts_with(&format!("| `{name}")));
    let rows: Vec<&str> = text.lines().filter(|l| l.starts_with("| `") && !of_snapshots(l)).collect();
    let mut events = small(300);
    events.node_features = Some(Features::random(events.nodes, 5, 1));
    let label = NodeLabel { time: 1, node: 0, class: 0, weight: 1.0 };
    events.node_labels = Some(NodeLabels::new(1, vec![label]).unwrap());
    let mut named = BTreeSet::new();
    for (name, config) in every_model(8) {
        for task in [TaskName::Link, TaskName::Node, TaskName::Edge, TaskName::Property] {
            let mut config = Config { task, ..config.clone() };
            (config.tgn.embedding, config.tgat.embedding, config.graph_mixer.embedding) = (12, 12, 12);
            (config.tgn.time_encoding, config.jodie.time_encoding) = (TimeStart::Learned, TimeStart::Learned);
            config.dyrep.time_encoding = TimeStart::Learned;
            (config.apan.time_encoding, config.tgat.time_encoding) = (TimeStart::Learned, TimeStart::Learned);
            let task: Box<dyn Task> = match task {
                TaskName::Property => {
                    config.eval_batch = Config::default().eval_batch;
                    Box::new(PropertyTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap())
                }
                _ => Box::new(task_of(&config, &events, 1)),
            };
            for (weight, id) in task.core().parameters.iter() {
                let layer = weight.strip_prefix("embed.").and_then(|w| w[..1].parse::<usize>().ok());
                let letter = |l: &str| documented_size(l, layer, name, &config, &events);
                let general = layer.map_or(weight.to_owned(), |l| weight.replacen(&l.to_string(), "L", 1));
                let mut weights = rows.iter().flat_map(|row| documented(row, letter));
                let size = weights.find(|(n, _)| *n == general).map(|(_, size)| size);
                let spec = task.core().store.spec(id);
                assert_eq!(size, Some([spec.rows.capacity, spec.cols]), "{name}: {weight}");
                named.insert(general);
            }
        }
    }
    let names: BTreeSet<String> = rows.iter().flat_map(|r| documented(r, |_| 1)).map(|(n, _)| n).collect();
    assert_eq!(names, named, "documented weights against those of the models");
}
