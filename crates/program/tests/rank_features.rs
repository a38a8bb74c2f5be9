//! Features over ranks: a rank that keeps only its share of the rows computes the same bits.
use crate::support::{
    devices::{devices, drawn},
    program::{listing, program, refused, write_npy},
    ranks::{plan_file, sent},
    trainings::{every_model, small, small_config},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use tgnn::{
    autograd::{Parameters, Stage},
    error::{ErrorKind, Result},
    runtime::{
        Device, Store, StoredAs,
        comm::{DEADLINE, TrafficKind},
        philox::Key,
    },
};
use tgnn_data::{Events, Features};
use tgnn_training::model::NeighborSampling;
use tgnn_training::{
    model::{EventModel, EventTables, JodieConfig, ModelConfig, ModelName},
    plan::{Plan, RankFeatures},
    task::{
        self, After, Config, CustomModel, EventTask, RunOptions, Summary, Task, TaskName, on_local_ranks,
    },
};

/// Keys of `[ranks]` and stages of plans that move rows in different ways.
const PLANS: [(&str, &str); 6] = [
    ("", ""),
    (
        "update = \"readers\"",
        "[stages.sample]\nlane = 2\nprefetch_depth = 2\n[stages.fetch_features]\nlane = 3\nprefetch_depth = 1",
    ),
    ("memory = \"replicated\"", "[stages.sample]\nlane = 2\nprefetch_depth = 1"),
    (
        "memory = \"cached\"\nupdate = \"readers\"\npartition = \"re-flex-bicut\"\n",
        "[stages.sample]\nlane = 2\nprefetch_depth = 1\n[stages.fetch_features]\nlane = 2\nprefetch_depth = 1\n\
         [stages.dispatch]\nlane = 3",
    ),
    ("update = \"readers\"\nmicro_batches = 3", "[stages.dispatch]\nlane = 2"),
    ("deduplicate = \"none\"", "[stages.fetch_features]\nlane = 2"),
];

/// A stream with features of edges and of nodes, of these widths.
fn stream(events: usize, edge: usize, node: usize) -> Events {
    let mut stream = small(events);
    stream.edge_features = (edge > 0).then(|| Features::random(events, edge, 3));
    stream.node_features = (node > 0).then(|| Features::random(stream.nodes, node, 4));
    stream
}

/// Trains over ranks, on devices that `open` opens.
fn train(
    ranks: usize,
    config: &Config,
    events: &Events,
    (out, resume): (&Path, bool),
    open: &(dyn Fn(usize) -> Result<Device> + Sync),
) -> Result<Summary> {
    let options = RunOptions { out: Some(out.into()), resume, ..RunOptions::default() };
    on_local_ranks(ranks, DEADLINE, open, |device| task::train(config, events, &device, &options, &mut ()))
}

/// The losses and metrics of a run, and the files with its weights and state and with its extract.
type Results = (String, Vec<Vec<u8>>);

/// Trains with features here and there; `over` are the keys and the stages of the plan.
fn results(
    ranks: usize,
    features: &str,
    over: (&str, &str),
    config: &Config,
    events: &Events,
    open: &(dyn Fn(usize) -> Result<Device> + Sync),
) -> Results {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_file(dir.path(), features, over.0, over.1);
    let (config, out) = (Config { plan, ..config.clone() }, dir.path().join("run"));
    let summary = train(ranks, &config, events, (&out, false), open).unwrap();
    if let Some(record) = &summary.ranks {
        let want =
            if features == "partitioned" { RankFeatures::Partitioned } else { RankFeatures::Replicated };
        assert_eq!(record.features, want);
    }
    let epochs: Vec<_> = summary.epochs.iter().map(|e| (e.train_loss, e.val)).collect();
    let files = listing(&out.join("checkpoint")).into_iter();
    let files = files.filter(|(path, _)| path.extension().is_some_and(|e| e == "safetensors"));
    let metrics = format!("{epochs:?} {:?} {:?}", summary.settled.map(|s| s.train_loss), summary.test);
    (metrics, files.map(|(_, bytes)| bytes).collect())
}

#[test]
fn partitioned_features_leave_the_bits_of_replicated_ones() {
    let (widths, key) = ([(4, 3), (5, 0), (0, 3), (0, 0)], Key::new(5, 11, [0, 0]));
    let cpu = |_: usize| Device::cpu(1);
    let models = every_model(8).into_iter().filter(|(name, _)| !name.contains("mean"));
    let mut cases = 0;
    for (at, (name, config)) in models.enumerate() {
        for (width, _) in drawn(at, 2, widths.len()) {
            let (edge, node) = widths[width];
            // Numbers of events that ranks do not divide.
            let draw = key.draw(cases);
            let events = stream(380 + draw[0] as usize % 40, edge, node);
            let kept = StoredAs::ALL[draw[1] as usize % 3];
            let (ranks, plan) = (1 + (cases as usize + at) % 4, (cases as usize + at / 2) % PLANS.len());
            let sampling =
                if draw[2].is_multiple_of(2) { NeighborSampling::Uniform } else { NeighborSampling::Recent };
            let mut c = Config {
                features_as: kept,
                epochs: 1,
                batch: 90,
                eval_batch: 90,
                settle: true,
                ..config.clone()
            };
            (c.tgn.sampling, c.tgat.sampling) = (sampling, sampling);
            let [whole, shares] = ["replicated", "partitioned"]
                .map(|features| results(ranks, features, PLANS[plan], &c, &events, &cpu));
            assert!(!shares.1.is_empty());
            let what = format!("{name}, {ranks} ranks, {edge} and {node} features in {kept}, plan {plan}");
            assert_eq!(shares.0, whole.0, "{what}");
            assert!(shares.1 == whole.1, "{what}");
            cases += 1;
        }
    }
    assert!(cases > 20);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn partitioned_features_leave_the_bits_of_replicated_ones_on_devices() {
    let cases = [
        (ModelName::Tgn, 4, 3),
        (ModelName::Apan, 4, 0),
        (ModelName::GraphMixer, 4, 3),
        (ModelName::DyRep, 5, 0),
        (ModelName::Tgat, 0, 3),
    ];
    for (case, _) in drawn(0, 3, cases.len()) {
        let (model, edge, node) = cases[case];
        let ranks = 2 + case % 2;
        let Some(devices) = devices(ranks, case as u64) else { return };
        let events = stream(360, edge, node);
        let c = Config { features_as: StoredAs::ALL[case % 3], epochs: 1, ..small_config(model, 8) };
        let open = |rank: usize| Ok(devices[rank % devices.len()].device());
        let [whole, shares] =
            ["replicated", "partitioned"].map(|f| results(ranks, f, PLANS[case % 4], &c, &events, &open));
        assert!(shares == whole, "{model:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn the_same_rows_of_features_travel_between_devices_as_between_processors() {
    let (events, dir) = (stream(400, 4, 3), tempfile::tempdir().unwrap());
    let Some(devices) = devices(3, 0) else { return };
    let plan = plan_file(dir.path(), "partitioned", "", "");
    let config = Config { plan, features_as: StoredAs::F16, ..small_config(ModelName::Tgn, 8) };
    let on_devices = |rank: usize| Ok(devices[rank % devices.len()].device());
    let found = sent(3, &config, &events, TrafficKind::Features, &on_devices);
    assert_eq!(found, sent(3, &config, &events, TrafficKind::Features, &|_| Device::cpu(1)));
    assert!(found.iter().all(|sent| sent.0 > 0));
}

/// Returns the recent events of a node before an event that the batch from `first` on has: at most `k`, of
/// earlier batches and of strictly earlier times.
fn recent(events: &Events, v: u32, time: i64, first: usize, k: usize) -> Vec<usize> {
    let of = |&e: &usize| (events.src[e] == v || events.dst[e] == v) && events.time[e] < time;
    (0..first).rev().filter(of).take(k).collect()
}

/// The batches of a training epoch: the first event of each, and the events of each rank's slice.
fn batches(config: &Config, events: &Events, ranks: usize) -> Vec<(usize, Vec<std::ops::Range<usize>>)> {
    let train = config.split(events).unwrap().train;
    let batch = |first: usize| {
        let n = (first + config.batch).min(train.end) - first;
        (first, (0..ranks).map(|r| first + n * r / ranks..first + n * (r + 1) / ranks).collect())
    };
    train.clone().step_by(config.batch).map(batch).collect()
}

/// Counts the rows that each rank sends, given the ids of the rows that a rank reads.
fn count(want: &mut [u64], reader: usize, ids: &BTreeSet<usize>) {
    let ranks = want.len();
    ids.iter().map(|id| id % ranks).filter(|&owner| owner != reader).for_each(|owner| want[owner] += 1);
}

#[test]
fn the_rows_of_features_that_travel_are_those_of_sampled_events_and_nodes_once_for_each_rank() {
    let (ranks, dir) = (3, tempfile::tempdir().unwrap());
    let (edge, node) = (5, 3);
    let events = stream(500, edge, node);
    let plan = plan_file(dir.path(), "partitioned", "", "");
    for kept in [StoredAs::F32, StoredAs::Bf16] {
        // Classes of sources: there are no negatives, so a step samples around the ends of its events.
        let base = small_config(ModelName::GraphMixer, 8);
        let config = Config { task: TaskName::Node, plan: plan.clone(), features_as: kept, ..base };
        let (mut edges, mut nodes) = (vec![0; ranks], vec![0; ranks]);
        for (_, slices) in batches(&config, &events, ranks) {
            for (reader, slice) in slices.into_iter().enumerate() {
                let (mut seen, mut around) = (BTreeSet::new(), BTreeSet::new());
                for e in slice {
                    for v in [events.src[e], events.dst[e]] {
                        around.insert(v as usize);
                        let near =
                            recent(&events, v, events.time[e], events.len(), config.graph_mixer.neighbors);
                        let other =
                            |&e: &usize| if events.src[e] == v { events.dst[e] } else { events.src[e] };
                        around.extend(near.iter().map(|e| other(e) as usize));
                        seen.extend(near);
                    }
                }
                count(&mut edges, reader, &seen);
                count(&mut nodes, reader, &around);
            }
        }
        let size = kept.size() as u64;
        let rows = |(e, n): (&u64, &u64)| (e + n, size * (e * edge as u64 + n * node as u64));
        let want: Vec<(u64, u64)> = edges.iter().zip(&nodes).map(rows).collect();
        let found = sent(ranks, &config, &events, TrafficKind::Features, &|_| Device::cpu(1));
        assert_eq!(found, want, "{kept}");
        assert!(want.iter().all(|want| want.0 > 0));
    }
}

#[test]
fn the_features_of_mails_events_travel_once_for_each_rank_that_updates_memory() {
    let (ranks, dir) = (3, tempfile::tempdir().unwrap());
    let events = stream(500, 5, 0);
    for update in ["owners", "readers"] {
        let over = format!("partition = \"interval\"\nupdate = \"{update}\"\n");
        let plan = plan_file(dir.path(), "partitioned", &over, "");
        let config = Config { task: TaskName::Node, plan, ..small_config(ModelName::Jodie, 8) };
        let (mut mails, mut want): (BTreeMap<u32, usize>, _) = (BTreeMap::new(), vec![0; ranks]);
        for (_, slices) in batches(&config, &events, ranks) {
            let mut read = vec![BTreeSet::new(); ranks];
            for (reader, slice) in slices.iter().enumerate() {
                for v in slice.clone().flat_map(|e| [events.src[e], events.dst[e]]) {
                    let updates = if update == "owners" { v as usize % ranks } else { reader };
                    read[updates].extend(mails.get(&v));
                }
            }
            read.iter().enumerate().for_each(|(rank, events)| count(&mut want, rank, events));
            for e in slices.into_iter().flatten() {
                mails.extend([(events.src[e], e), (events.dst[e], e)]);
            }
        }
        let found = sent(ranks, &config, &events, TrafficKind::Features, &|_| Device::cpu(1));
        assert_eq!(found, want.iter().map(|&rows| (rows, 4 * 5 * rows)).collect::<Vec<_>>(), "{update}");
        assert!(want.iter().all(|&rows| rows > 0));
    }
}

#[test]
fn a_rank_with_few_nodes_sends_all_the_features_that_owners_of_many_nodes_ask_for() {
    let (events, dir) = (stream(500, 5, 0), tempfile::tempdir().unwrap());
    let mut rank_of = vec![1i64; events.nodes];
    rank_of[0] = 0;
    let path = dir.path().join("partition.npy");
    write_npy(&path, "<i8", events.nodes, 1, &rank_of);
    let partition = path.to_str().unwrap().to_owned();
    let config =
        Config { partition, epochs: 1, batch: 90, eval_batch: 90, ..small_config(ModelName::Jodie, 8) };
    let cpu = |_: usize| Device::cpu(1);
    let [whole, shares] =
        ["replicated", "partitioned"].map(|f| results(2, f, ("", ""), &config, &events, &cpu));
    assert!(shares == whole);
}

#[test]
fn a_rank_keeps_only_its_share_of_the_features() {
    let (events, ranks, dir) = (stream(401, 4, 3), 3, tempfile::tempdir().unwrap());
    for kept in [StoredAs::F32, StoredAs::F16] {
        let mut whole = events.clone();
        whole.keep_features_as(kept).unwrap();
        let tables = [whole.edge_features.as_ref().unwrap(), whole.node_features.as_ref().unwrap()];
        let plan = plan_file(dir.path(), "partitioned", "", "");
        let config = Config { plan, features_as: kept, ..small_config(ModelName::Tgn, 8) };
        let work = |device: Device| {
            let rank = device.ranks().unwrap().rank();
            let task = EventTask::new(&config, &events, device)?;
            let mut bytes = 0;
            for (id, table) in task.tables.features.tables().zip(tables) {
                let row = kept.size() * table.cols();
                let want = table.bytes().chunks_exact(row).skip(rank).step_by(ranks);
                assert_eq!(task.core().store.raw(id)?, want.flatten().copied().collect::<Vec<u8>>());
                bytes += task.core().store.raw(id)?.len();
            }
            assert_eq!(
                (task.core().memory().features, task.core().memory().features_partitioned),
                (bytes, true)
            );
            assert!(task.core().memory().to_string().contains("MiB features of this rank, "));
            let mut all = [bytes as f32];
            task.core().device().ranks().unwrap().sum(&mut all)?;
            assert_eq!(all[0] as usize, tables.map(|table| table.bytes().len()).iter().sum::<usize>());
            Ok(())
        };
        on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), work).unwrap();
    }
}

#[test]
fn features_that_follow_from_the_data_travel_ahead_of_the_step() {
    let (events, dir) = (stream(400, 4, 3), tempfile::tempdir().unwrap());
    let plan = plan_file(dir.path(), "partitioned", "", "");
    let stages = |model| {
        let config = Config { plan: plan.clone(), ..small_config(model, 8) };
        let work = |device: Device| {
            let task = EventTask::new(&config, &events, device)?;
            let of = |kind| {
                let nodes = task.core().step().stages().filter(move |(n, _)| n.op.traffic() == Some(kind));
                nodes.map(|(_, stage)| stage).collect::<Vec<_>>()
            };
            Ok((of(TrafficKind::Features), of(TrafficKind::Routes)))
        };
        on_local_ranks(2, DEADLINE, |_| Device::cpu(1), work).unwrap()
    };
    let (rows, routes) = stages(ModelName::Tgn);
    // Of sampled events, of the nodes, and of mails' events.
    assert_eq!(rows.iter().filter(|&&stage| stage == Stage::FetchFeatures).count(), 2, "{rows:?}");
    assert_eq!(rows.iter().filter(|&&stage| stage == Stage::FetchMemory).count(), 1, "{rows:?}");
    assert_eq!(routes.iter().filter(|&&stage| stage != Stage::Route).count(), 1, "{routes:?}");
    let (rows, routes) = stages(ModelName::Tgat);
    assert_eq!(rows, [Stage::FetchFeatures; 2]);
    assert_eq!(routes, [Stage::Route; 2]);
}

#[test]
fn a_run_is_resumed_with_features_elsewhere_and_evaluated_and_embedded() {
    let (events, dir) = (stream(500, 4, 3), tempfile::tempdir().unwrap());
    let (out, cpu) = (dir.path().join("run"), |_: usize| Device::cpu(1));
    let config = |epochs, features| {
        let plan = plan_file(dir.path(), features, "", "");
        Config { epochs, plan, ..small_config(ModelName::Tgn, 8) }
    };
    let whole = results(3, "replicated", ("", ""), &config(2, "replicated"), &events, &cpu);
    train(3, &config(1, "partitioned"), &events, (&out, false), &cpu).unwrap();
    train(3, &config(2, "replicated"), &events, (&out, true), &cpu).unwrap();
    let saved = fs::read(out.join("checkpoint/epoch-2.safetensors")).unwrap();
    assert!(whole.1.contains(&saved));
    let checkpoint = task::Checkpoint::at(&out);
    let evaluated = |ranks, features| {
        let config = config(2, features);
        let work =
            |device: Device| task::evaluate(&checkpoint, &config, &events, &device, "test", true, &mut ());
        on_local_ranks(ranks, DEADLINE, cpu, work).unwrap().test
    };
    assert_eq!(evaluated(3, "partitioned"), evaluated(3, "replicated"));
    let embedded = |features| {
        let (config, alone) = (config(2, features), Device::cpu(1).unwrap());
        task::embed(&checkpoint, &config, &events, &alone, After::Validation, &[0, 3], &[900, 900]).unwrap()
    };
    assert_eq!(embedded("partitioned"), embedded("replicated"));
}

#[test]
fn a_wrong_value_is_refused_with_its_place_and_a_model_that_cannot_before_anything_starts() {
    let e = Plan::parse("name = \"x\"\n[ranks]\nfeatures = \"shared\"\n").unwrap_err();
    assert_eq!(e.position(), Some((3, 12)), "{e}");
    assert!(e.to_string().contains("replicated") && e.to_string().contains("partitioned"), "{e}");
    for (text, want) in [("", None), ("features = \"partitioned\"", Some(RankFeatures::Partitioned))] {
        let plan = Plan::parse(&format!("name = \"x\"\n[ranks]\n{text}\n")).unwrap();
        assert_eq!(plan.ranks.unwrap().features, want);
        assert_eq!(Plan::parse(&toml::to_string(&plan).unwrap()).unwrap(), plan);
    }
    /// A model from outside of the crate, which says nothing about features.
    #[derive(Debug)]
    struct Outside(JodieConfig);
    impl ModelConfig for Outside {
        fn validate(&self) -> Result<()> {
            self.0.validate()
        }
        fn gap_quantile(&self) -> f64 {
            self.0.gap_quantile()
        }
        fn width(&self) -> usize {
            self.0.width()
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
        fn build(
            &self,
            p: &mut Parameters,
            store: &mut Store,
            data: &EventTables,
            seed: u64,
        ) -> Result<Box<dyn EventModel>> {
            self.0.build(p, store, data, seed)
        }
    }
    let (dir, events) = (tempfile::tempdir().unwrap(), stream(300, 4, 0));
    let config = |features| {
        let base = small_config(ModelName::Jodie, 8);
        let custom_model = Some(CustomModel::new("outside", Outside(base.jodie.clone())));
        Config { plan: plan_file(dir.path(), features, "", ""), custom_model, ..base }
    };
    let start = |config: &Config| {
        let work = |device| EventTask::new(config, &events, device).map(drop);
        on_local_ranks(2, DEADLINE, |_| Device::cpu(1), work)
    };
    let e = start(&config("partitioned")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Usage);
    assert_eq!(
        e.to_string(),
        "the plan partitioned partitions features, and the model outside reads them from its own rank alone; \
         leave out ranks.features"
    );
    start(&config("replicated")).unwrap();
}

#[test]
fn models_of_snapshots_and_wrong_values_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for features in ["replicated", "partitioned"] {
        let plan = plan_file(dir.path(), features, "", "");
        let words = ["train", "--model", "wd-gcn", "--ranks", "2", "--plan", &plan];
        refused(dir.path(), &words, 2, &["plan ", " divides events, and wd-gcn reads snapshots"]);
    }
    let plan = plan_file(dir.path(), "shared", "", "");
    let texts = ["shared.toml:3:12: ", "`shared`", "give replicated or partitioned"];
    refused(dir.path(), &["train", "--ranks", "2", "--plan", &plan], 2, &texts);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn features_are_partitioned_if_they_do_not_fit_on_a_device_and_the_plan_leaves_it_open() {
    let Some(_on) = devices(2, 0).filter(|on| on[0].emulated) else { return };
    let dir = tempfile::tempdir().unwrap();
    let whole = plan_file(dir.path(), "replicated", "", "");
    let ran = |mib: usize, more: &[&str]| {
        let words = "train --ranks 2 --device emu --random-edge-features 172 --max-batches 1 --epochs 1 --no-eval \
                     --batch 40 --set tgn.memory=20 --set tgn.time=20 --set tgn.embedding=20";
        let mut command = std::process::Command::new(program());
        command.args(words.split(' ')).args(more).current_dir(&dir);
        let ran = command.env("TGNN_EMU_MEMORY", (mib << 20).to_string()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    for (mib, more, features) in [
        (400, &[][..], "103 MiB features, "),
        (90, &[], "52 MiB features of this rank, "),
        (90, &["--set", "features_on=device"], "52 MiB features of this rank, "),
        (90, &["--plan", &whole], "103 MiB features on the host, "),
        (50, &[], "103 MiB features on the host, "),
    ] {
        let (code, out, err) = ran(mib, more);
        assert!(code == Some(0) && out.contains(features), "{mib} {more:?}: {out}{err}");
    }
}
