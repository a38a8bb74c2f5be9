//! Models of snapshots, trained and tested.
use crate::support::{
    devices::{device, drawn},
    paths::root,
    program::{done, json, listing, refused},
    snapshots::{config, of_edges, turning},
    trainings::small,
    weights::{OF_SNAPSHOTS, documented},
};
use std::{collections::BTreeSet, path::Path};
use tgnn::runtime::*;
use tgnn_data::{Features, Snapshots};
use tgnn_training::{
    model::ModelName,
    plan::Plan,
    task::{self, Checkpoint, Config, RunOptions, SnapshotTask, Summary, Task, TaskName},
};

const MODELS: [ModelName; 4] =
    [ModelName::WdGcn, ModelName::TGcn, ModelName::EvolveGcnO, ModelName::EvolveGcnH];

fn run(c: &Config, data: &Snapshots, options: &RunOptions) -> tgnn::error::Result<Summary> {
    task::train_snapshots(c, data, &Device::cpu(c.threads)?, options, &mut ())
}

/// Trains two epochs and validates; returns the losses and scores, and the state.
fn trained(c: &Config, data: &Snapshots, device: &Device) -> (Vec<f64>, Vec<Vec<u8>>) {
    let mut task = SnapshotTask::new(c, data, device.clone()).unwrap();
    let mut metrics: Vec<f64> = (0..2).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0).collect();
    let s = task.validate(&mut |_| {}).unwrap();
    metrics.extend([s.ap, s.auc, s.mrr, s.accuracy, s.mae, s.rmse].into_iter().flatten());
    assert!(metrics.len() >= 4, "{s:?}");
    let buffers = task.core().checkpoint_buffers();
    task.core.store.fetch(&buffers).unwrap();
    (metrics, buffers.into_iter().map(|id| task.core.store.raw(id).unwrap().to_vec()).collect())
}

#[test]
fn every_model_learns_a_signal_that_no_pair_reveals() {
    let data = turning(240, 40, 3);
    for model in MODELS {
        // Of seeds 1 to 8, all models scored 0.84 to 0.88, but for WD-GCN with seed 1, which stayed at 0.72.
        let c = Config { seed: 2, epochs: 30, ..config(model, 32) };
        let s = run(&c, &data, &RunOptions::default()).unwrap();
        let (found, last) =
            (s.test.unwrap().transductive.ap.unwrap(), s.baselines[0].test.transductive.ap.unwrap());
        assert!(found > 0.8 && last < 0.6, "{}: {found}, baseline {last}", model.name());
    }
}

#[test]
fn one_and_two_threads_and_two_lanes_leave_the_same_bits_of_every_model() {
    let data = turning(24, 9, 3);
    for (length, batch) in [(3, 1), (3, 2), (4, 3), (1, 2)] {
        for model in MODELS {
            let mut c = config(model, 8);
            (c.group.length, c.group.batch) = (length, batch);
            let one = trained(&c, &data, &Device::cpu(1).unwrap());
            for plan in ["sequential", "prefetch", "overlap", "blad-even", "blad-nm"] {
                let c = Config { plan: plan.into(), ..c.clone() };
                let two = trained(&c, &data, &Device::cpu(2).unwrap());
                assert!(one == two, "{}, {plan}, {batch} groups of {length}", model.name());
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn groups_replayed_on_a_device_follow_the_cpu_with_the_same_bits_under_every_schedule_and_plan() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    let data = turning(24, 9, 3);
    for (at, (model, batch)) in MODELS.into_iter().zip([1, 2, 1, 3]).enumerate() {
        let mut c = config(model, 8);
        c.group.batch = batch;
        let want = trained(&c, &data, &Device::cpu(1).unwrap());
        on.schedule(0);
        let found = trained(&c, &data, &gpu);
        for (found, want) in found.0.iter().zip(&want.0) {
            assert!((found - want).abs() < 2e-3, "{}: {found} here, {want} on the CPU", model.name());
        }
        let plans = ["sequential", "prefetch", "blad-even", "blad-nm", "overlap"];
        for (variant, seed) in drawn(at, 2, plans.len()) {
            on.schedule(seed);
            let plan = plans[variant];
            let again = trained(&Config { plan: plan.into(), ..c.clone() }, &data, &gpu);
            assert!(again == found, "{}: schedule {seed}, plan {plan}", model.name());
        }
    }
}

#[test]
fn a_plan_that_the_model_does_not_support_or_that_does_not_exist_is_refused_in_one_line() {
    let events = small(300);
    let c = Config { plan: "blad-even".into(), ..Config::default() };
    let refused =
        |c: &Config| task::EventTask::new(c, &events, Device::cpu(1).unwrap()).err().unwrap().to_string();
    assert_eq!(
        refused(&c),
        "plan blad-even shares out snapshots, and tgn reads none; give --plan prefetch, or a model of snapshots"
    );
    let c = Config { plan: "nothing".into(), ..config(MODELS[0], 8) };
    let e = SnapshotTask::new(&c, &turning(24, 9, 3), Device::cpu(1).unwrap()).err().unwrap();
    let forms: Vec<&str> = Plan::PRESETS.iter().map(|preset| preset.form).collect();
    let want = format!("there is no plan `nothing`; give {} or a file: PLAN.toml", forms.join(", "));
    assert_eq!(e.to_string(), want);
}

#[test]
fn a_timeline_has_every_run_of_every_op_and_no_lane_runs_two_ops_at_once() {
    let data = turning(24, 12, 3);
    for (plan, lanes) in [("sequential", 1), ("blad-even", 2)] {
        let mut c = Config { plan: plan.into(), ..config(MODELS[0], 8) };
        (c.group.batch, c.max_batches) = (3, 5);
        let mut task = SnapshotTask::new(&c, &data, Device::cpu(2).unwrap()).unwrap();
        task.train_epoch(0, &mut |_| {}).unwrap();
        assert!(task.core().timeline().spans().is_empty());
        task.core_mut().trace();
        for epoch in 0..2 {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
            let timeline = task.core().timeline();
            let products: Vec<usize> =
                timeline.spans().iter().filter(|s| s.node_info.op == "pair_logits").map(|s| s.step).collect();
            // An update follows each round of three groups.
            assert_eq!(products, [0, 1, 2, 4, 5], "{plan}");
            let updates = timeline.spans().iter().filter(|s| s.node_info.op == "adam").map(|s| s.step);
            assert_eq!(updates.collect::<Vec<_>>(), [3, 6], "{plan}");
            for lane in 0..2 {
                let spans: Vec<_> = timeline.spans().iter().filter(|s| s.node_info.lane == lane).collect();
                assert_eq!(spans.is_empty(), lane >= lanes, "{plan}");
                let in_order = spans.windows(2).all(|w| w[0].start <= w[0].end && w[0].end <= w[1].start);
                assert!(in_order, "{plan}");
            }
            let usage = timeline.usage();
            assert!(
                usage.busy[0] > 0.0 && usage.several <= usage.busy[0] && usage.overlap <= usage.several,
                "{usage}"
            );
        }
    }
}

#[test]
fn the_program_writes_a_timeline_and_refuses_a_path_in_a_missing_folder() {
    let dir = tempfile::TempDir::new().unwrap();
    let run = ["train", "--max-batches", "2", "--epochs", "1", "--no-eval", "--timeline"];
    let ran = done(dir.path(), &[&run[..], &["t.json", "--set", "plan=prefetch"]].concat());
    assert!(ran.out.contains("lane 1 busy") && ran.out.contains("ui.perfetto.dev"), "{}", ran.out);
    let trace = json(&std::fs::read_to_string(dir.path().join("t.json")).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    let runs = |lane: u64| events.iter().filter(|e| e["ph"] == "X" && e["tid"] == lane).count();
    assert!(runs(0) > 20 && runs(1) > 4, "{} and {} runs", runs(0), runs(1));
    // Over ranks, each is a process.
    let ran = done(dir.path(), &[&run[..], &["r.json", "--ranks", "3", "--plan", "pipetgl"]].concat());
    assert!(ran.out.contains("rank 0, "), "{}", ran.out);
    let trace = json(&std::fs::read_to_string(dir.path().join("r.json")).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    let runs = |rank: u64| events.iter().filter(|e| e["ph"] == "X" && e["pid"] == rank).count();
    assert!((0..3).all(|rank| runs(rank) > 20) && runs(3) == 0);
    let texts = ["--timeline nowhere/t.json: there is no folder nowhere"];
    refused(dir.path(), &[&run[..], &["nowhere/t.json"]].concat(), 2, &texts);
}

/// Reads the gradients from Adam's first moment, which is a tenth of the last gradient plus nine tenths of
/// its previous value, at weights that hardly move.
#[test]
fn an_update_uses_the_mean_gradient_of_its_groups_and_the_last_of_an_epoch_may_have_fewer() {
    let data = turning(24, 12, 3);
    for model in MODELS {
        let moments = |groups: usize, batch: usize| -> Vec<f64> {
            let mut c = Config { learning_rate: 1e-12, max_batches: groups, ..config(model, 8) };
            c.group.batch = batch;
            let mut task = SnapshotTask::new(&c, &data, Device::cpu(1).unwrap()).unwrap();
            task.train_epoch(0, &mut |_| {}).unwrap();
            let updates = task
                .core
                .store
                .read::<u32>(task.core.parameters.optimizer_buffers().next().unwrap())
                .unwrap()[0];
            assert_eq!(updates as usize, groups.div_ceil(batch));
            let moments = task.core().checkpoint_buffers().into_iter();
            let moments = moments.filter(|&id| task.core.store.name(id).starts_with("adam.m."));
            moments.flat_map(|id| task.core.store.read_f64(id).unwrap()).collect()
        };
        let one_by_one: Vec<Vec<f64>> =
            (0..=5).map(|n| if n == 0 { vec![0.0; moments(1, 1).len()] } else { moments(n, 1) }).collect();
        let gradient = |n: usize, i: usize| 10.0 * one_by_one[n][i] - 9.0 * one_by_one[n - 1][i];
        let found = moments(5, 3);
        let largest = found.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        assert!(largest > 1e-4, "{}: {largest}", model.name());
        for (i, found) in found.iter().enumerate() {
            let mean = |groups: std::ops::RangeInclusive<usize>| {
                let n = groups.clone().count() as f64;
                groups.map(|n| gradient(n, i)).sum::<f64>() / n
            };
            let want = 0.09 * mean(1..=3) + 0.1 * mean(4..=5);
            assert!((found - want).abs() < 1e-4 * largest, "{}: {found}, want {want}", model.name());
        }
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_and_its_checkpoint_gives_its_test() {
    let (data, dir) = (turning(24, 12, 3), tempfile::TempDir::new().unwrap());
    let c = config(ModelName::EvolveGcnO, 8);
    let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(name));
    let into = |out: &Path, resume| RunOptions { out: Some(out.into()), resume, ..RunOptions::default() };
    let longer = Config { epochs: 4, ..c.clone() };
    let once = run(&longer, &data, &into(&whole, false)).unwrap();
    run(&c, &data, &into(&parts, false)).unwrap();
    let resumed = run(&longer, &data, &into(&parts, true)).unwrap();
    assert_eq!((once.test, once.baselines), (resumed.test, resumed.baselines));
    let files =
        |run: &Path| -> Vec<_> { listing(&run.join("checkpoint")).into_iter().map(|file| file.1).collect() };
    assert!(files(&whole) == files(&parts) && !files(&whole).is_empty());
    let (from, cpu) = (Checkpoint::at(&whole), Device::cpu(1).unwrap());
    let again = task::evaluate_snapshots(&from, &longer, &data, &cpu, "", &mut ()).unwrap();
    assert_eq!(again.test, once.test);
    let (width, z) = task::embed_snapshots(&from, &longer, &data, &cpu, &[3, 3, 5]).unwrap();
    assert!(width == 8 && z[..8] == z[8..16] && z[..8] != z[16..] && z.iter().all(|x| x.is_finite()));
    let e = task::embed_snapshots(&from, &longer, &data, &cpu, &[24]).unwrap_err().to_string();
    assert!(e.starts_with("there is no vertex 24"), "{e}");
    let other = Config { model: ModelName::EvolveGcnH, ..longer };
    let e = task::evaluate_snapshots(&from, &other, &data, &cpu, "", &mut ()).unwrap_err().to_string();
    assert!(e.contains("evolve-gcn-o") && e.contains("evolve-gcn-h"), "{e}");
}

#[test]
fn values_and_classes_of_vertices_are_predicted() {
    let mut data = of_edges(24, &vec![vec![]; 30]);
    // A vertex's value alternates, and so does its class: the last one is always wrong as a prediction, and
    // determines the next.
    let value = |at: usize| if (at / 24 + at % 24).is_multiple_of(2) { 1.0f32 } else { -1.0 };
    let values: Vec<f32> = (0..24 * 30).map(value).collect();
    data.classes = Some(values.iter().map(|&x| u32::from(x > 0.0)).collect());
    data.features = Some(Features::from_vec(24 * 30, 1, values.clone()).unwrap());
    data.targets = Some(Features::from_vec(24 * 30, 1, values).unwrap());
    data.target_unit = 3.0;
    for model in MODELS {
        let c = Config { epochs: 20, task: TaskName::Regression, ..config(model, 16) };
        let s = run(&c, &data, &RunOptions::default()).unwrap();
        let (found, last) = (s.test.unwrap().transductive, s.baselines[0].test.transductive);
        assert_eq!((last.mae, last.rmse), (Some(6.0), Some(6.0)), "in the units of the data");
        assert!(found.mae.unwrap() < 3.0, "{}: {found:?}", model.name());
        let s = run(&Config { task: TaskName::Node, ..c }, &data, &RunOptions::default()).unwrap();
        let (found, last) = (s.test.unwrap().transductive, s.baselines[0].test.transductive);
        assert_eq!(last.accuracy, Some(0.0));
        assert!(found.accuracy.unwrap() > 0.8, "{}: {found:?}", model.name());
    }
}

#[test]
fn empty_snapshots_one_vertex_loops_and_too_few_steps_are_trained_or_refused_in_one_line() {
    let cases = [
        ("no edge at all", of_edges(5, &vec![vec![]; 9])),
        (
            "one vertex, a loop now and then",
            of_edges(1, &[vec![(0, 0)], vec![], vec![(0, 0)], vec![], vec![(0, 0)]]),
        ),
        ("two steps", of_edges(3, &[vec![(0, 1)], vec![(1, 2)]])),
        ("every pair", of_edges(3, &vec![(0..9).map(|i| (i / 3, i % 3)).collect(); 8])),
    ];
    for model in MODELS {
        for (what, data) in &cases {
            let s = run(&config(model, 4), data, &RunOptions::default());
            assert!(s.is_ok(), "{}, {what}: {}", model.name(), s.unwrap_err());
        }
    }
    let refused =
        |c: &Config, data: &Snapshots| run(c, data, &RunOptions::default()).unwrap_err().to_string();
    let c = config(ModelName::WdGcn, 4);
    assert!(refused(&c, &of_edges(3, &[vec![(0, 1)]])).contains("has nothing to be predicted from"));
    let no_values = Config { task: TaskName::Regression, ..c.clone() };
    assert!(refused(&no_values, &cases[0].1).starts_with("made has no values to be predicted"));
    let no_classes = Config { task: TaskName::Node, ..c.clone() };
    assert!(refused(&no_classes, &cases[0].1).starts_with("made has no classes of vertices"));
    let edges = Config { task: TaskName::Edge, ..c.clone() };
    assert!(refused(&edges, &cases[0].1).starts_with("snapshots have no task `edge`"));
    let mut long = c;
    long.group.length = 0;
    assert!(refused(&long, &cases[0].1).starts_with("group.length is 0"));
}

#[test]
fn features_aggregated_once_give_the_same_as_features_aggregated_in_every_step() {
    let data = turning(24, 9, 3);
    let trained_in_order = |order: &str| {
        let mut c = config(ModelName::WdGcn, 8);
        c.wd_gcn.order = order.into();
        let task = SnapshotTask::new(&c, &data, Device::cpu(1).unwrap()).unwrap();
        (task.tables.aggregated.is_some(), trained(&c, &data, &Device::cpu(1).unwrap()).0)
    };
    let ((once, a), (never, b)) = (trained_in_order("aggregate"), trained_in_order("transform"));
    assert!(once && !never);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-3), "{a:?} {b:?}");
}

#[test]
fn the_documented_weights_are_those_of_the_snapshot_models() {
    let text = std::fs::read_to_string(root().join("docs/weights.md")).unwrap();
    let of_snapshots = |l: &str| OF_SNAPSHOTS.iter().any(|name| l.starts_with(&format!("| `{name}")));
    let rows: Vec<&str> = text.lines().filter(|l| of_snapshots(l) || l.starts_with("| `decoder.")).collect();
    let mut data = of_edges(7, &vec![vec![(0, 1)]; 9]);
    data.targets = Some(Features::from_vec(7 * 9, 2, vec![1.0; 7 * 9 * 2]).unwrap());
    data.classes = Some((0..7 * 9).map(|i| i % 3).collect());
    let mut named = BTreeSet::new();
    for model in MODELS {
        for task in [TaskName::Link, TaskName::Node, TaskName::Regression] {
            let mut c = Config { task, ..config(model, 8) };
            (c.snapshots.width, c.classify.width) = (5, 11);
            let task = SnapshotTask::new(&c, &data, Device::cpu(1).unwrap()).unwrap();
            for (weight, id) in task.core.parameters.iter() {
                let layer = weight.split('.').nth(1).and_then(|l| l.parse::<usize>().ok());
                let letter = |l: &str| match l {
                    "i" if layer.is_none_or(|l| l == 1) => 5,
                    "d" | "e" | "i" => 8,
                    "v" => 7,
                    "n" => 11,
                    "C" => 3,
                    "o" => 2,
                    number => number.parse().unwrap(),
                };
                let general = layer.map_or(weight.to_owned(), |l| weight.replacen(&l.to_string(), "K", 1));
                let size =
                    rows.iter().flat_map(|row| documented(row, letter)).find(|(name, _)| *name == general);
                let spec = task.core.store.spec(id);
                assert_eq!(
                    size.map(|s| s.1),
                    Some([spec.rows.capacity, spec.cols]),
                    "{}: {weight}",
                    model.name()
                );
                named.insert(general);
            }
        }
    }
    let names: BTreeSet<String> = rows.iter().flat_map(|r| documented(r, |_| 1)).map(|(n, _)| n).collect();
    assert_eq!(names, named, "documented weights against those of the models");
}

#[test]
fn rules_that_learn_nothing_score_the_edges_of_a_step_by_the_steps_before() {
    let dir = tempfile::tempdir().unwrap();
    // Every step has the same ten edges, so the latest step knows all of them and no other pair.
    let pairs = (0..200)
        .fold("src,dst,time\n".to_owned(), |text, i| text + &format!("{},{},{i}\n", i % 10, 10 + i % 10));
    std::fs::write(dir.path().join("pairs.csv"), pairs).unwrap();
    let words = ["train", "--data", "pairs.csv", "--model", "wd-gcn", "--every", "10e", "--epochs", "1"];
    let small = ["--set", "group.length=2", "--set", "group.negatives=7", "--threads", "1", "--json"];
    let summary = json(&done(dir.path(), &[&words[..], &small].concat()).out);
    let rule = |name: &str| {
        let baselines = summary["baselines"].as_array().unwrap();
        baselines.iter().find(|b| b["name"] == name).unwrap()["test"]["transductive"].clone()
    };
    for known in ["last snapshot", "EdgeBank", "local recency", "local popularity, then global recency"] {
        assert_eq!((&rule(known)["mrr"], &rule(known)["ap"]), (&1.0.into(), &1.0.into()), "{known}");
    }
    // All nodes have an edge in every step, so those of an edge tie with all others.
    for unknown in ["global recency", "global popularity"] {
        let [mrr, auc] = ["mrr", "auc"].map(|figure| rule(unknown)[figure].as_f64().unwrap());
        assert!((mrr - 1.0 / 4.5).abs() < 1e-12 && auc == 0.5, "{unknown}: {mrr}, {auc}");
    }
    assert!(summary["baselines_seconds"].as_f64().is_some());
}

#[test]
fn the_program_trains_tests_and_embeds_snapshots_and_refuses_options_of_event_models() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let trend = (0..12).map(|s| (60 + s).to_string()).collect::<Vec<_>>().join(",");
    done(dir, &["data", "synth-snapshots", "--out", "made", "--trend", &trend, "--features", "4"]);
    let words = [
        "train",
        "--model",
        "evolve-gcn-h",
        "--data",
        "made",
        "--epochs",
        "2",
        "--threads",
        "1",
        "--group",
        "3",
    ];
    let trained = done(dir, &[&words[..], &["--out", "run"]].concat());
    for text in ["12 snapshots, 1,000 vertices", "groups of 3 snapshots", "edges/s", "last snapshot", "MRR"] {
        assert!(trained.out.contains(text), "no `{text}` in {}", trained.out);
    }
    let summary = json(&std::fs::read_to_string(dir.join("run/summary.json")).unwrap());
    assert_eq!((&summary["protocol"], &summary["data"]["snapshots"]), (&"next-snapshot".into(), &12.into()));
    let again = json(&done(dir, &["eval", "--checkpoint", "run", "--json"]).out);
    assert_eq!((&again["test"], &again["baselines"]), (&summary["test"], &summary["baselines"]));
    done(dir, &["embed", "--checkpoint", "run", "--nodes", "3,17", "--out", "z.npy"]);
    let timed = ["embed", "--checkpoint", "run", "--nodes", "3", "--times", "9", "--out", "y.npy"];
    refused(dir, &timed, 2, &["--times, and the model reads snapshots"]);
    refused(dir, &["predict", "--checkpoint", "run"], 2, &["evolve-gcn-h is a model of snapshots"]);
    refused(
        dir,
        &["train", "--every", "week"],
        2,
        &["--every and --group are of snapshots, and tgn reads events"],
    );
    refused(dir, &[&words[..], &["--protocol", "tgl"]].concat(), 2, &["protocol is set", "reads snapshots"]);
    refused(
        dir,
        &[&words[..], &["--task", "regression"]].concat(),
        3,
        &["made has no values to be predicted"],
    );
}
