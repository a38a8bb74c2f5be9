//! Training on a device: an epoch is a sequence of replays of captured graphs.
use crate::support::{
    devices::{device, drawn},
    program::{done, json, made, program, small as small_words},
    snapshots::{config as snapshot_config, turning},
    trainings::{config, event_models, small, small_config},
};
use std::path::Path;
use tempfile::TempDir;
use tgnn::ops::write_memory::Combiner;
use tgnn::{
    autograd::RateDecay,
    error::ErrorKind,
    runtime::*,
    testing::{error, largest},
};
use tgnn_data::{Events, Features, GivenNegatives, Split, save_with_negatives};
use tgnn_training::model::{CellKind, NeighborSampling, NeighborTime};
use tgnn_training::{
    model::{ModelName, StaticMode},
    task::{
        Config, EventTask, NegativeKind, OptimizerConfig, OptimizerName, Protocol, SnapshotTask, StoredOn,
        Task, TaskName,
    },
};

/// Results of a short training: losses and scores, and the state, buffer by buffer.
#[derive(PartialEq)]
struct Trained {
    metrics: Vec<f64>,
    state: Vec<(String, Vec<u8>)>,
}

/// Trains two epochs of a few batches, and validates.
fn trained(config: &Config, events: &Events, device: &Device) -> Trained {
    let mut task = EventTask::new(config, events, device.clone()).unwrap();
    let mut metrics: Vec<f64> = (0..2).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0).collect();
    let scores = task.validate(&mut |_| {}).unwrap();
    metrics.extend([scores.ap, scores.auc, scores.mrr, scores.f1].into_iter().flatten());
    assert!(metrics.len() >= 4, "{scores:?}");
    let buffers = task.core().checkpoint_buffers();
    task.core.store.fetch(&buffers).unwrap();
    let raw = |id| (task.core.store.name(id).to_owned(), task.core.store.raw(id).unwrap().to_vec());
    Trained { metrics, state: buffers.into_iter().map(raw).collect() }
}

/// Generates events with node features and with labels of some classes, few enough to try every schedule.
fn featured() -> Events {
    let mut events = small(400);
    events.node_features = Some(Features::random(events.nodes, 3, 1));
    events.label = Some((0..events.len()).map(|i| (i * i % 5) as f32).collect());
    events
}

/// Writes the events to `dir` with given negatives: lists of zero to three nodes.
fn with_lists(events: &Events, dir: &Path) {
    let split = Split::by_time(events, 0.7, 0.15).unwrap();
    let given = [split.val, split.test].map(|range| {
        let lists = range.clone().map(|i| (0..i % 4).map(move |j| (60 + (i + 7 * j) % 20) as u32));
        let offsets = lists.clone().scan(0, |end, list| {
            *end += list.len();
            Some(*end)
        });
        let offsets = [0].into_iter().chain(offsets).collect();
        Some(GivenNegatives { first: range.start, offsets, nodes: lists.flatten().collect() })
    });
    save_with_negatives(events, &given, dir, true).unwrap();
}

/// Returns the configuration of a few short batches of a model, with a change.
fn with(model: ModelName, change: fn(&mut Config)) -> Config {
    let mut c = Config { batch: 30, eval_batch: 30, max_batches: 3, ..small_config(model, 8) };
    change(&mut c);
    c
}

/// Returns the training of a TGN by this optimiser, with everything that one may have.
fn optimized(name: OptimizerName) -> Config {
    let momentum = if name == OptimizerName::Sgd { 0.9 } else { 0.0 };
    let schedule = RateDecay::Cosine;
    let optimizer = OptimizerConfig {
        name,
        weight_decay: 0.01,
        momentum,
        clip_norm: 0.2,
        schedule,
        warmup: 2,
        ..OptimizerConfig::default()
    };
    Config { optimizer, ..with(ModelName::Tgn, |_| {}) }
}

/// Returns the trainings to be replayed, which cover the models with their options, the tasks, the kinds of
/// negatives, optimisers, and batches in chunks.
fn trainings(dir: &TempDir) -> Vec<(&'static str, Config, Events)> {
    let (plain, events) = (small(400), featured());
    with_lists(&plain, dir.path());
    // Every model of the list, then the choices of some.
    let each = event_models().map(|model| (model.name(), with(model, |_| {}), events.clone()));
    use ModelName::*;
    let mut given = with(Tgn, |c| c.protocol = Protocol::Tgb);
    given.data.path = dir.path().to_str().unwrap().into();
    let choices = [
        (
            "tgn of two layers, mean, uniform",
            with(Tgn, |c| {
                (c.tgn.layers, c.tgn.combiner, c.tgn.sampling) =
                    (2, Combiner::Mean, NeighborSampling::Uniform);
            }),
            plain.clone(),
        ),
        (
            "tgn of three layers",
            with(Tgn, |c| (c.tgn.layers, c.tgn.neighbors, c.batch) = (3, 2, 12)),
            plain.clone(),
        ),
        (
            "tgn without attention, rnn",
            with(Tgn, |c| (c.tgn.layers, c.tgn.updater) = (0, CellKind::Rnn)),
            plain.clone(),
        ),
        ("jodie, pairs", with(Jodie, |c| c.negatives = NegativeKind::Historical), events.clone()),
        (
            "apan, mean mails, pairs",
            with(Apan, |c| {
                (c.apan.combiner, c.negatives) = (Combiner::Mean, NegativeKind::Inductive);
            }),
            plain.clone(),
        ),
        ("tgat, classes of edges", with(Tgat, |c| c.task = TaskName::Edge), events.clone()),
        ("tgat without node features", with(Tgat, |_| {}), plain.clone()),
        (
            "tgat, neighbours at the time of the query",
            with(Tgat, |c| c.tgat.neighbor_time = NeighborTime::Query),
            plain.clone(),
        ),
        ("tgat, static memory", with(Tgat, |c| c.static_memory.mode = StaticMode::Trained), events.clone()),
        (
            "graph-mixer, static memory, classes of nodes",
            with(GraphMixer, |c| (c.static_memory.mode, c.task) = (StaticMode::Trained, TaskName::Node)),
            plain.clone(),
        ),
        ("static, in chunks", with(Static, |c| c.chunks = 4), plain.clone()),
        (
            "tgn, static memory, in chunks, classes of nodes",
            with(Tgn, |c| {
                (c.static_memory.mode, c.chunks, c.task) = (StaticMode::Trained, 4, TaskName::Node);
            }),
            events.clone(),
        ),
        ("tgn, AdamW, clipped, on a cosine", optimized(OptimizerName::AdamW), plain.clone()),
        ("tgn, SGD, clipped, on a cosine", optimized(OptimizerName::Sgd), plain.clone()),
        ("tgn, no features", with(Tgn, |_| {}), plain.clone()),
        ("tgn against lists", given.clone(), plain.clone()),
        ("apan against lists", Config { model: Apan, ..given }, plain),
    ];
    each.chain(choices).collect()
}

/// An epoch on a device is replays of a captured graph. Its results equal the CPU's up to rounding, and are
/// the same bits under every order of threads, blocks and CUDA streams, whether the next batch is prepared
/// during this one or after it, and with features
/// and node memory on the device or on the host.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn training_by_replays_follows_the_cpu_with_the_same_bits_under_every_schedule() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let dir = tempfile::tempdir().unwrap();
    for (at, (what, config, events)) in trainings(&dir).into_iter().enumerate() {
        let want = trained(&config, &events, &Device::cpu(1).unwrap());
        on.schedule(0);
        let found = trained(&config, &events, &gpu);
        for (w, f) in want.metrics.iter().zip(&found.metrics) {
            assert!((w - f).abs() <= 1e-4 * w.abs(), "{what}: {w} on the CPU, {f} here");
        }
        for ((name, want), (_, found)) in want.state.iter().zip(&found.state) {
            if ["memory time", "mail time", "mail event", "next mail"].contains(&name.as_str()) {
                assert!(want == found, "{what}: {name}");
                continue;
            }
            let reals = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
            let scale = reals(want).iter().fold(0.0f32, |m, x| m.max(x.abs()));
            for (w, f) in reals(want).iter().zip(reals(found)) {
                assert!((w - f).abs() <= 2e-3 * scale.max(1e-3), "{what}, {name}: {w}, {f}");
            }
        }
        let plans = [
            ("auto", StoredOn::Auto, StoredOn::Host),
            ("prefetch", StoredOn::Host, StoredOn::Auto),
            ("sequential", StoredOn::Host, StoredOn::Host),
        ];
        // Usually with every second case.
        for (variant, seed) in drawn(at / 2, 1 - at % 2, plans.len()) {
            on.schedule(seed);
            let (plan, features_on, memory_on) = plans[variant];
            let config = Config { plan: plan.into(), features_on, memory_on, ..config.clone() };
            let again = trained(&config, &events, &gpu);
            assert!(again == found, "{what}, {:?}, schedule {seed}", plans[variant]);
        }
    }
    assert!(!on.emulated || on.early_launches() > 100, "kernels wait for the one before them to end");
}

/// Returns a training of three batches whose steps have everything: two layers, mean mails, features of nodes
/// and edges.
fn rich() -> (Config, Events) {
    let mut events = small(600);
    events.node_features = Some(Features::random(events.nodes, 3, 1));
    let mut config = config(1, 12);
    (config.batch, config.eval_batch, config.max_batches, config.tgn.layers) = (24, 24, 3, 2);
    config.tgn.combiner = Combiner::Mean;
    (config, events)
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn the_preparation_of_a_batch_is_prefetched_and_its_computation_is_not() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let (mut config, events) = rich();
    let prefetched = |config: &Config| -> Vec<&str> {
        let task = EventTask::new(config, &events, gpu.clone()).unwrap();
        task.core().step().prefetched().map(|n| n.op.name()).collect()
    };
    // Lists of slots are those of attention's gradient in two layers, then those of three sums of rows.
    let both_layers = "next_batch draw_negatives roots sample_neighbors expand_targets sample_neighbors unique \
                       gather_rows group_roots group_roots group_slots group_slots \
                       group_slots group_slots group_slots";
    assert_eq!(prefetched(&config).join(" "), both_layers);
    config.features_on = StoredOn::Host;
    let with_rows = both_layers.replace("unique gather_rows", "unique gather_rows unique gather_rows");
    assert_eq!(prefetched(&config).join(" "), with_rows);
    config.plan = "sequential".into();
    assert!(prefetched(&config).is_empty());
}

/// With unit roundoff u, a product of two rounded operands is off by at most 2 u. A node's memory is the
/// result of one product per update, of at most three updates here, plus the last batch's product that sent
/// its mail: 8 u. A logit is the result of seven products in a row: memory, query, keys, values, two at the
/// end of the layer, the decoder: 14 u. A loss is a mean of softplus over positives plus one over negatives,
/// so it moves no further than two logits: 28 u. A step of Adam moves a weight by about the learning rate, in
/// either direction if its gradient is near zero; the learning rate here is so small that this does not
/// count.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn training_with_products_in_tf32_stays_near_training_in_f32_but_differs() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let events = small(900);
    let train = |precision| {
        trained(&Config { precision, max_batches: 3, learning_rate: 1e-6, ..config(2, 24) }, &events, &gpu)
    };
    let memory = |t: &Trained| -> Vec<f64> {
        let (_, bytes) = t.state.iter().find(|(name, _)| name == "memory").unwrap();
        bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into_iter().map(f64::from).collect()
    };
    let want = train(MatmulPrecision::F32);
    let precision = MatmulPrecision::Tf32;
    let (found, u) = (train(precision), precision.unit_roundoff());
    let off = error(&memory(&found), &memory(&want)) / largest(&memory(&want));
    assert!(off > 0.1 * u && off < 8.0 * u, "memory is off by {off}");
    let losses = want.metrics.iter().zip(&found.metrics).take(2);
    for (want, found) in losses {
        assert!((want - found).abs() < 28.0 * u, "{found}, in f32 {want}");
    }
}

#[test]
fn a_training_that_diverges_ends_with_the_op_and_the_row_on_every_device() {
    let on = device(0);
    let gpu = on.as_ref().map(|on| on.device());
    let config = Config { learning_rate: 1e30, ..config(1, 8) };
    for device in [Some(Device::cpu(1).unwrap()), gpu].into_iter().flatten() {
        let kind = device.kind();
        let mut task = EventTask::new(&config, &small(900), device).unwrap();
        let e = task.train_epoch(0, &mut |_| {}).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Diverged);
        assert!(e.to_string().contains("training diverged in epoch 1, batch 2"), "{kind}: {e}");
        assert!(e.to_string().contains("bce_loss: row 0 is "), "{kind}: {e}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn features_stay_on_the_host_if_the_device_is_small_and_a_too_small_device_is_refused_with_advice() {
    let Some(_on) = device(0).filter(|on| on.emulated) else { return };
    let dir = tempfile::tempdir().unwrap();
    let ran = |mib: usize, more: &[&str]| {
        let words = "train --device emu --random-edge-features 172 --max-batches 1 --epochs 1 --no-eval --batch 40 \
                     --set tgn.memory=20 --set tgn.time=20 --set tgn.embedding=20";
        let mut command = std::process::Command::new(program());
        command.args(words.split(' ')).args(more).current_dir(&dir);
        let ran = command.env("TGNN_EMU_MEMORY", (mib << 20).to_string()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let (code, out, err) = ran(400, &[]);
    assert!(code == Some(0) && out.contains("103 MiB features, "), "{out}{err}");
    let (code, out, err) = ran(90, &[]);
    assert!(code == Some(0) && out.contains("103 MiB features on the host, "), "{out}{err}");
    // Node memory follows if that is not enough.
    let wide = |on: &'static str| ["--set", "tgn.memory=400", "--set", on];
    let (code, out, err) = ran(160, &wide("memory_on=auto"));
    let kept = ["28 MiB node memory on the host, ", "103 MiB features on the host, "];
    assert!(code == Some(0) && kept.iter().all(|kept| out.contains(kept)), "{out}{err}");
    let (code, _, err) = ran(160, &wide("memory_on=device"));
    assert!(code == Some(6) && err.contains("device memory, 160 are free"), "{err}");
    for (mib, more, advice) in [
        (90, &["--set", "features_on=device"][..], "features_on=host"),
        (8, &[], "take a smaller batch, fewer neighbours or narrower layers"),
    ] {
        let (code, out, err) = ran(mib, more);
        assert_eq!(code, Some(6), "{out}{err}");
        let free = format!("MiB of device memory, {mib} are free (");
        assert!(err.contains(&free) && err.contains(advice) && err.lines().count() == 1, "{err}");
    }
}

/// Returns the bytes of device memory that later passes take in addition to the first two, and those that are
/// still taken after the task is dropped.
fn left_behind(gpu: &Device, task: impl FnOnce() -> Box<dyn Task>) -> [usize; 2] {
    let free = || gpu.gpu().unwrap().memory().unwrap().0;
    let before = free();
    let mut task = task();
    let mut passes = |epochs: std::ops::Range<u32>| {
        for epoch in epochs {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
            task.validate(&mut |_| {}).unwrap();
            task.test(&mut |_| {}).unwrap();
        }
    };
    passes(0..2);
    let settled = free();
    passes(2..6);
    let later = free();
    drop(task);
    [settled.saturating_sub(later), before.saturating_sub(free())]
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn epochs_leave_no_device_memory_allocated() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    // A driver allocates memory of its own now and then, but not for every pass.
    let (allowed_by_passes, allowed_by_task) = if on.emulated { (0, 0) } else { (16 << 20, 64 << 20) };
    let events = small(300);
    for plan in ["sequential", "overlap"] {
        let c = Config {
            batch: 60,
            eval_batch: 60,
            max_batches: 2,
            plan: plan.into(),
            ..small_config(ModelName::Tgn, 8)
        };
        let left = left_behind(&gpu, || Box::new(EventTask::new(&c, &events, gpu.clone()).unwrap()));
        assert!(left[0] <= allowed_by_passes && left[1] <= allowed_by_task, "tgn, {plan}: {left:?}");
    }
    for plan in ["prefetch", "blad-nm"] {
        let mut c = Config { plan: plan.into(), ..snapshot_config(ModelName::TGcn, 8) };
        c.group.batch = 2;
        let data = turning(24, 12, 3);
        let left = left_behind(&gpu, || Box::new(SnapshotTask::new(&c, &data, gpu.clone()).unwrap()));
        assert!(left[0] <= allowed_by_passes && left[1] <= allowed_by_task, "t-gcn, {plan}: {left:?}");
    }
}

/// Times of epochs that only replay graphs are comparable; those of an epoch that captures graphs are not.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn graphs_are_captured_in_the_first_two_epochs_and_the_summary_says_so() {
    let dir = made();
    let captured = |plan: &str| {
        let words = "--device emu --model jodie --set jodie.memory=8 --set jodie.time=8 \
                     --batch 7 --epochs 3 --no-eval --json --plan";
        let words: Vec<&str> = words.split(' ').chain([plan]).collect();
        let summary = json(&done(dir.path(), &small_words(&words)).out);
        let epochs = summary["epochs"].as_array().unwrap().iter();
        epochs.map(|epoch| epoch["graphs_captured"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    // 40 steps are several windows of up to 12 that are alike; what prepares the first, and the last, which
    // prepares none, come again in the next epoch.
    assert_eq!(captured("auto"), [1, 2, 0]);
    assert_eq!(captured("sequential"), [1, 0, 0]);
    // Steps that read older state are cut in the same way.
    assert_eq!(captured("mspipe:k=1"), [1, 2, 0]);
}
