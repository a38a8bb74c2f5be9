//! Several ranks of one process: what they compute equals what a single rank computes.
use crate::properties::{config, small};
use safetensors::{SafeTensors, tensor::TensorView};
use std::{collections::BTreeSet, fs, path::Path, time::Duration};
use tgnn::{
    data::Events,
    error::{Error, ErrorKind, Result},
    model::{ApanConfig, JodieConfig, ModelName},
    runtime::{
        Device,
        comm::{DEADLINE, TrafficKind},
    },
    task::{self, Config, EventTask, RunOptions, Summary, Task, on_local_ranks},
};

/// Trains over `ranks` ranks, with `out` as the folder of the run.
fn train(
    ranks: usize,
    config: &Config,
    events: &Events,
    out: Option<&Path>,
    resume: bool,
) -> Result<Summary> {
    let options = RunOptions { out: out.map(Into::into), resume, ..RunOptions::default() };
    on_local_ranks(
        ranks,
        DEADLINE,
        |_| Device::cpu(1),
        |device| task::train(config, events, &device, &options, &mut ()),
    )
}

/// Returns the tensors in the file of an epoch, by name.
fn tensors(dir: &Path, epoch: usize) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(dir.join(format!("checkpoint/epoch-{epoch}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let owned = |(name, view): (String, TensorView<'_>)| (name, view.data().to_vec());
    let mut all: Vec<_> = file.tensors().into_iter().map(owned).collect();
    all.sort();
    all
}

/// Returns the largest difference of two lists of f32, relative to the largest magnitude.
fn apart(a: &[u8], b: &[u8]) -> f32 {
    let [a, b]: [Vec<f32>; 2] = [a, b].map(bytemuck::pod_collect_to_vec);
    assert_eq!(a.len(), b.len());
    let largest = a.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

/// Names of the tensors of node memory and mails.
const STATE: [&str; 6] = ["memory", "memory time", "mail", "mail event", "mail time", "next mail"];

/// The models whose state is kept over ranks, and those without state.
const MODELS: [ModelName; 6] = [
    ModelName::Tgn,
    ModelName::Jodie,
    ModelName::Apan,
    ModelName::DyRep,
    ModelName::Tgat,
    ModelName::GraphMixer,
];

fn of_model(model: ModelName, plan: &str, epochs: usize) -> Config {
    // Batches of 100 events do not divide evenly among three ranks.
    let jodie = JodieConfig { memory: 8, time: 8, ..JodieConfig::default() };
    let apan = ApanConfig { memory: 8, time: 8, mails: 3, neighbors: 4, ..ApanConfig::default() };
    Config { model, plan: plan.into(), batch: 100, jodie, apan, ..config(epochs, 8) }
}

#[test]
fn with_frozen_weights_the_memory_after_an_epoch_has_the_same_bits_for_any_number_of_ranks() {
    let events = small(700);
    for model in MODELS {
        for plan in ["depcache", "sven"] {
            let frozen = Config { learning_rate: 1e-30, settle: false, ..of_model(model, plan, 1) };
            let left = |ranks| {
                let dir = tempfile::tempdir().unwrap();
                train(ranks, &frozen, &events, Some(dir.path()), false).unwrap();
                let state = tensors(dir.path(), 1).into_iter().filter(|t| STATE.contains(&t.0.as_str()));
                state.collect::<Vec<_>>()
            };
            let one = left(1);
            assert_eq!(one.is_empty(), matches!(model, ModelName::Tgat | ModelName::GraphMixer));
            for ranks in [2, 3, 8] {
                for (a, b) in one.iter().zip(left(ranks)) {
                    assert!(*a == b, "{model:?}, {plan}, {ranks} ranks: {}", a.0);
                }
            }
        }
    }
}

#[test]
fn losses_scores_and_weights_of_several_ranks_are_those_of_one() {
    let events = small(700);
    for model in MODELS {
        for plan in ["depcache", "sven"] {
            let trained = |ranks| {
                let dir = tempfile::tempdir().unwrap();
                let summary =
                    train(ranks, &of_model(model, plan, 2), &events, Some(dir.path()), false).unwrap();
                (summary, tensors(dir.path(), 2))
            };
            let (one, weights) = trained(1);
            for ranks in [2, 3] {
                let (other, other_weights) = trained(ranks);
                let case = format!("{model:?}, {plan}, {ranks} ranks");
                for (a, b) in one.epochs.iter().zip(&other.epochs) {
                    assert!((a.train_loss - b.train_loss).abs() < 1e-5, "{case}: {a:?} {b:?}");
                }
                let [a, b] = [&one, &other].map(|s| s.test.unwrap().transductive);
                let [a, b] = [a, b].map(|s| [s.ap.unwrap(), s.auc.unwrap()]);
                assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2e-3), "{case}: {a:?} {b:?}");
                let learned = |name: &str| !STATE.contains(&name) && !name.starts_with("adam.");
                for (a, b) in weights.iter().zip(&other_weights).filter(|(a, _)| learned(&a.0)) {
                    assert!(apart(&a.1, &b.1) < 1e-3, "{case}: {} {}", a.0, apart(&a.1, &b.1));
                }
            }
        }
    }
}

#[test]
fn a_run_is_resumed_with_another_number_of_ranks_and_another_plan() {
    let (events, dir) = (small(700), tempfile::tempdir().unwrap());
    let whole = train(1, &of_model(ModelName::Tgn, "sven", 3), &events, None, false).unwrap();
    for (epochs, ranks, plan) in [(1, 2, "sven"), (2, 3, "depcache"), (3, 1, "sequential")] {
        let resumed =
            train(ranks, &of_model(ModelName::Tgn, plan, epochs), &events, Some(dir.path()), epochs > 1);
        assert_eq!(resumed.unwrap().epochs.len(), epochs);
    }
    let last = train(4, &of_model(ModelName::Tgn, "sven", 3), &events, Some(dir.path()), true).unwrap();
    for (a, b) in whole.epochs.iter().zip(&last.epochs) {
        assert!((a.train_loss - b.train_loss).abs() < 1e-5, "{a:?} {b:?}");
    }
    assert!(dir.path().join("summary.json").exists());
}

/// Returns, for each rank, the rows that it sent for `kind` in a training pass, and the bytes.
fn sent(ranks: usize, config: &Config, events: &Events, kind: TrafficKind) -> Vec<(u64, u64)> {
    let of_rank = |device: Device| {
        let ranks = device.ranks().unwrap().clone();
        let mut task = EventTask::new(config, events, device)?;
        task.train_epoch(0, &mut |_| {})?;
        let own = [ranks.traffic().rows(kind) as f32, ranks.traffic().bytes(kind) as f32];
        let mut all = vec![0.0; 2 * ranks.size()];
        all[2 * ranks.rank()..][..2].copy_from_slice(&own);
        ranks.sum(&mut all)?;
        Ok(all.chunks_exact(2).map(|x| (x[0] as u64, x[1] as u64)).collect())
    };
    on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), of_rank).unwrap()
}

#[test]
fn the_rows_that_travel_are_those_of_equations_7_and_9_worked_out_from_the_nodes() {
    let (events, ranks) = (small(700), 3);
    let d = 8;
    // Memory, the partner's memory, two times, an event's id.
    let row_bytes = 2 * 4 * d + 2 * 8 + 4;
    for (plan, partitioned) in [("sven", true), ("depcache", false)] {
        let config = of_model(ModelName::Jodie, plan, 1);
        let split = config.split(&events).unwrap();
        let batches = split.train.len().div_ceil(100);
        // The owner of a node with the default partition.
        let owner = |v: u32| v as usize * ranks / events.nodes;
        let mut want = vec![0; ranks];
        for batch in 0..batches {
            let first = split.train.start + batch * 100;
            let n = (first + 100).min(split.train.end) - first;
            let slice = |r: usize| first + n * r / ranks..first + n * (r + 1) / ranks;
            let ends = |r: usize| -> BTreeSet<u32> {
                slice(r).flat_map(|e| [events.src[e], events.dst[e]]).collect()
            };
            for (r, sent) in want.iter_mut().enumerate() {
                // A node's new rows are sent by the last rank with an event of it.
                let mine =
                    ends(r).into_iter().filter(|v| (r + 1..ranks).all(|later| !ends(later).contains(v)));
                *sent += match partitioned {
                    true => mine.filter(|&v| owner(v) != r).count(),
                    false => mine.count() * (ranks - 1),
                } as u64;
            }
        }
        let found = sent(ranks, &config, &events, TrafficKind::Aggregation);
        let want: Vec<(u64, u64)> = want.into_iter().map(|rows| (rows, rows * row_bytes)).collect();
        assert_eq!(found, want, "{plan}");
        let dispatched: u64 = sent(ranks, &config, &events, TrafficKind::Dispatch).iter().map(|s| s.0).sum();
        assert_eq!(dispatched > 0, partitioned);
    }
}

#[test]
fn a_rank_that_fails_ends_the_others_and_its_error_is_told() {
    let events = small(300);
    let failed = on_local_ranks(
        3,
        DEADLINE,
        |_| Device::cpu(1),
        |device| {
            if device.ranks().unwrap().rank() == 1 {
                return Err(Error::usage("planted"));
            }
            task::train(&config(1, 8), &events, &device, &RunOptions::default(), &mut ()).map(drop)
        },
    );
    assert_eq!(failed.unwrap_err().to_string(), "planted");
    // A rank that stays away is named after the deadline.
    let away = on_local_ranks(
        2,
        Duration::from_millis(300),
        |_| Device::cpu(1),
        |device| {
            if device.ranks().unwrap().rank() == 1 {
                std::thread::sleep(Duration::from_secs(1));
                return Ok(());
            }
            task::train(&config(1, 8), &events, &device, &RunOptions::default(), &mut ()).map(drop)
        },
    );
    let e = away.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Comm);
    assert!(e.to_string().contains("no answer from rank 1"), "{e}");
    assert_eq!(
        on_local_ranks(0, DEADLINE, |_| Device::cpu(1), |_| Ok(())).unwrap_err().kind(),
        ErrorKind::Usage
    );
}

#[test]
fn ranks_that_disagree_are_told_what_differs() {
    let (events, others) = (small(300), small(301));
    let start = |config: &(dyn Fn(usize) -> Config + Sync), events: &(dyn Fn(usize) -> Events + Sync)| {
        let work = |device: Device| {
            let rank = device.ranks().unwrap().rank();
            EventTask::new(&config(rank), &events(rank), device).map(drop)
        };
        on_local_ranks(2, DEADLINE, |_| Device::cpu(1), work).unwrap_err().to_string()
    };
    let same = |_: usize| events.clone();
    let seeds = start(&|rank| Config { seed: rank as u64, ..config(1, 8) }, &same);
    assert!(seeds.contains("the ranks disagree on configuration: rank"), "{seeds}");
    assert!(seeds.contains("`seed = 0`") && seeds.contains("`seed = 1`"), "{seeds}");
    let data = start(&|_| config(1, 8), &|rank| if rank == 0 { events.clone() } else { others.clone() });
    assert!(data.contains("disagree on data") && data.contains("300 events"), "{data}");
    // Devices and threads may differ.
    let devices = |rank| Config { threads: 1 + rank, ..config(1, 8) };
    let work = |device: Device| {
        let rank = device.ranks().unwrap().rank();
        EventTask::new(&devices(rank), &events, device).map(drop)
    };
    on_local_ranks(2, DEADLINE, |rank| Device::cpu(1 + rank), work).unwrap();
}
