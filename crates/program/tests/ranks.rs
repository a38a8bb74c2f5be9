//! Several ranks of one process: what they compute equals what a single rank computes.
use crate::support::{
    devices::drawn,
    ranks::{STATE, apart, of_model, parts_plan, sent, tensors, train},
    trainings::{config, event_models, small},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};
use tgnn::{
    autograd::Stage,
    error::{Error, ErrorKind, Result},
    runtime::{
        Device,
        comm::{DEADLINE, TrafficKind},
    },
};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    task::{self, Config, EventTask, HistoryRule, RunOptions, Task, TaskName, TrafficRecord, on_local_ranks},
};

/// Opens the device of a rank: a thread.
fn cpu(_: usize) -> Result<Device> {
    Device::cpu(1)
}

#[test]
fn with_frozen_weights_the_memory_after_an_epoch_has_the_same_bits_for_any_number_of_ranks() {
    let events = small(700);
    let dir = tempfile::tempdir().unwrap();
    // Every occurrence of a node travels, in both directions, with replicated memory and with partitioned.
    let plan_file = |name: &str, memory: &str| {
        let path = dir.path().join(format!("{name}.toml"));
        let ranks = format!("[ranks]\nmemory = \"{memory}\"\nupdate = \"readers\"\ndeduplicate = \"none\"\n");
        fs::write(&path, format!("name = \"{name}\"\n{ranks}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [all, all_replicated] = [plan_file("all", "partitioned"), plan_file("all-replicated", "replicated")];
    let parts = parts_plan(dir.path(), "3");
    for (at, model) in event_models().enumerate() {
        let left = |ranks, plan: &str| {
            let frozen = Config { learning_rate: 1e-30, settle: false, ..of_model(model, plan, 1) };
            let dir = tempfile::tempdir().unwrap();
            train(ranks, &frozen, &events, Some(dir.path()), false).unwrap();
            let state = tensors(dir.path(), 1).into_iter().filter(|t| STATE.contains(&t.0.as_str()));
            state.collect::<Vec<_>>()
        };
        let one = left(1, "sequential");
        assert_eq!(one.is_empty(), of_model(model, "auto", 1).has_memory() == Some(false));
        if one.is_empty() {
            continue;
        }
        let plans = ["auto", "depcache", "depcomm", "sven", "sven-cached", &all, &all_replicated, &parts];
        for (nth, plan) in plans.into_iter().enumerate() {
            for (variant, _) in drawn(at + nth, 1, 4) {
                let ranks = [1, 2, 3, 8][variant];
                for (a, b) in one.iter().zip(left(ranks, plan)) {
                    assert!(*a == b, "{model:?}, {plan}, {ranks} ranks: {}", a.0);
                }
            }
        }
    }
}

#[test]
fn losses_scores_and_weights_of_several_ranks_are_those_of_one() {
    let events = small(700);
    let dir = tempfile::tempdir().unwrap();
    let parts = parts_plan(dir.path(), "3");
    let plans = ["auto", "depcache", "depcomm", "sven", "sven-cached", &parts];
    for (at, model) in event_models().enumerate() {
        // Every second model sees only earlier batches as neighbours, and is evaluated in other batches.
        let (history, eval_batch) =
            if at % 2 == 0 { (HistoryRule::Batch, 70) } else { (HistoryRule::Time, 100) };
        let trained = |ranks, plan: &str| {
            let dir = tempfile::tempdir().unwrap();
            let config = Config { history, eval_batch, ..of_model(model, plan, 2) };
            let summary = train(ranks, &config, &events, Some(dir.path()), false).unwrap();
            (summary, tensors(dir.path(), 2))
        };
        let [fresh, stale] = ["sequential", "sven"].map(|plan| trained(1, plan));
        for (nth, _) in drawn(at, 3, plans.len()) {
            let plan = plans[nth];
            // Old gradients have other results, the same for any number of ranks.
            let (one, weights) = if plan.starts_with("sven") { &stale } else { &fresh };
            for (ranks, _) in drawn(at + nth, 1, 2) {
                let ranks = ranks + 2;
                let (other, other_weights) = trained(ranks, plan);
                let case = format!("{model:?}, {plan}, {ranks} ranks");
                for (a, b) in one.epochs.iter().zip(&other.epochs) {
                    assert!((a.train_loss - b.train_loss).abs() < 1e-5, "{case}: {a:?} {b:?}");
                }
                let [a, b] = [one, &other].map(|s| s.test.unwrap().transductive);
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
fn what_ranks_send_to_train_is_told_apart_from_what_they_send_to_evaluate() {
    let events = small(700);
    for plan in ["sven", "pipetgl", "disttgl:1x1x2"] {
        let of = |evaluate| Config { evaluate, ..of_model(ModelName::Jodie, plan, 2) };
        let sent = |evaluate| train(2, &of(evaluate), &events, None, false).unwrap().ranks.unwrap();
        let (trained, both) = (sent(false), sent(true));
        assert_eq!(trained.traffic, both.traffic, "{plan}");
        assert!(trained.evaluation_traffic.is_empty() && !both.evaluation_traffic.is_empty(), "{plan}");
        let gradients = |t: &TrafficRecord| t.kind == TrafficKind::Gradients.name();
        assert!(both.traffic.iter().any(gradients) && !both.evaluation_traffic.iter().any(gradients));
    }
}

#[test]
fn a_run_is_resumed_with_another_number_of_ranks_and_another_plan() {
    let (events, dir) = (small(700), tempfile::tempdir().unwrap());
    let whole = train(1, &of_model(ModelName::Tgn, "sequential", 3), &events, None, false).unwrap();
    for (epochs, ranks, plan) in [(1, 2, "sequential"), (2, 3, "depcache"), (3, 1, "sequential")] {
        let resumed =
            train(ranks, &of_model(ModelName::Tgn, plan, epochs), &events, Some(dir.path()), epochs > 1);
        assert_eq!(resumed.unwrap().epochs.len(), epochs);
    }
    let last = train(4, &of_model(ModelName::Tgn, "sequential", 3), &events, Some(dir.path()), true).unwrap();
    for (a, b) in whole.epochs.iter().zip(&last.epochs) {
        assert!((a.train_loss - b.train_loss).abs() < 1e-5, "{a:?} {b:?}");
    }
    assert!(dir.path().join("summary.json").exists());
}

#[test]
fn stale_gradients_are_added_up_beside_the_next_step_and_used_by_its_update() {
    let events = small(700);
    let trace = |device| {
        let mut task = EventTask::new(&of_model(ModelName::Tgn, "sven", 1), &events, device)?;
        task.core_mut().trace();
        task.train_epoch(0, &mut |_| {})?;
        let of = |stage: Stage| -> Vec<(usize, f64, f64)> {
            let timeline = task.core().timeline();
            let spans = timeline.spans().iter().filter(|s| s.node_info.stage == stage);
            spans.map(|s| (s.step, s.start, s.end)).collect()
        };
        Ok([of(Stage::ReduceGradients), of(Stage::Step), of(Stage::UpdateMemory)])
    };
    let [reduced, updated, computed] = on_local_ranks(2, DEADLINE, |_| Device::cpu(2), trace).unwrap();
    let steps = reduced.len();
    assert!(steps > 3 && reduced.iter().zip(0..).all(|(r, step)| r.0 == step));
    let updates: BTreeSet<usize> = updated.iter().map(|u| u.0).collect();
    assert_eq!(updates, (0..steps).collect(), "each step updates once, the last one at the end");
    for &(step, start, _) in &updated {
        assert!(reduced[step].2 <= start, "the update of step {step} began before its sums were there");
        let later = computed.iter().filter(|c| c.0 == step + 1);
        assert!(later.clone().count() > 0 || step + 1 == steps);
        assert!(later.clone().all(|c| c.2 <= start), "step {} saw the update of step {step}", step + 1);
        let after = computed.iter().filter(|c| c.0 == step + 2);
        assert!(after.clone().all(|c| start <= c.1), "step {} missed the update of step {step}", step + 2);
    }
}

#[test]
fn the_rows_that_travel_are_those_of_equations_7_and_9_worked_out_from_the_nodes() {
    let (events, ranks) = (small(700), 3);
    let d = 8;
    // Memory, the partner's memory, two times, an event's id.
    let row_bytes = 2 * 4 * d + 2 * 8 + 4;
    for (plan, partitioned) in [("sven", true), ("depcache", false)] {
        let config = Config { partition: "range".into(), ..of_model(ModelName::Jodie, plan, 1) };
        let split = config.split(&events).unwrap();
        let batches = split.train.len().div_ceil(100);
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
        let found = sent(ranks, &config, &events, TrafficKind::Aggregation, &cpu);
        let want: Vec<(u64, u64)> = want.into_iter().map(|rows| (rows, rows * row_bytes)).collect();
        assert_eq!(found, want, "{plan}");
        let dispatched: u64 =
            sent(ranks, &config, &events, TrafficKind::Dispatch, &cpu).iter().map(|s| s.0).sum();
        assert_eq!(dispatched > 0, partitioned);
    }
}

#[test]
fn the_rows_that_are_dispatched_are_those_of_equations_8_and_9() {
    let (events, ranks, d) = (small(700), 3, 8);
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none.toml");
    fs::write(&none, "name = \"none\"\n[ranks]\nupdate = \"readers\"\ndeduplicate = \"none\"\n").unwrap();
    let none = none.to_str().unwrap();
    // Bytes of a row: memory, a mail, two times and an event's id; or updated memory with its time.
    let (with_mail, updated) = (2 * 4 * d + 2 * 8 + 4, 4 * d + 8);
    for (plan, repeated, row_bytes, back) in
        [("sven", false, with_mail, 0), ("depcomm", true, updated, 4 * d), (none, true, with_mail, 0)]
    {
        // Classes of sources: there are no negatives, so a step needs the ends of its events.
        let partition = "interval".to_owned();
        let config = Config { task: TaskName::Node, partition, ..of_model(ModelName::Jodie, plan, 1) };
        let split = config.split(&events).unwrap();
        let mut want = vec![0; ranks];
        for first in split.train.clone().step_by(100) {
            let n = (first + 100).min(split.train.end) - first;
            for reader in 0..ranks {
                let slice = first + n * reader / ranks..first + n * (reader + 1) / ranks;
                let mut ends: Vec<u32> = slice.flat_map(|e| [events.src[e], events.dst[e]]).collect();
                if !repeated {
                    ends.sort_unstable();
                    ends.dedup();
                }
                let owners = ends.into_iter().map(|v| v as usize % ranks);
                owners.filter(|&owner| owner != reader).for_each(|owner| want[owner] += 1);
            }
        }
        let found = sent(ranks, &config, &events, TrafficKind::Dispatch, &cpu);
        assert_eq!(found, want.iter().map(|&rows| (rows, rows * row_bytes)).collect::<Vec<_>>(), "{plan}");
        let found = sent(ranks, &config, &events, TrafficKind::DispatchGradients, &cpu);
        let gradients: u64 = found.iter().map(|sent| sent.1).sum();
        assert_eq!(gradients, want.iter().sum::<u64>() * back, "{plan}");
    }
}

#[test]
fn with_copies_only_rows_travel_that_have_changed_since_a_rank_got_them() {
    let (events, ranks) = (small(700), 3);
    let config = Config {
        task: TaskName::Node,
        partition: "interval".into(),
        ..of_model(ModelName::Jodie, "sven-cached", 1)
    };
    let split = config.split(&events).unwrap();
    // The nodes that have changed, with the ranks whose copies are valid since.
    let mut changed: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    let mut want = vec![0; ranks];
    for first in split.train.clone().step_by(100) {
        let n = (first + 100).min(split.train.end) - first;
        let slice = |rank: usize| first + n * rank / ranks..first + n * (rank + 1) / ranks;
        let ends = |rank: usize| -> BTreeSet<u32> {
            slice(rank).flat_map(|e| [events.src[e], events.dst[e]]).collect()
        };
        for reader in 0..ranks {
            for v in ends(reader) {
                let owner = v as usize % ranks;
                let renewed = changed.get_mut(&v).is_some_and(|valid| valid.insert(reader));
                want[owner] += u64::from(renewed && owner != reader);
            }
        }
        for writer in 0..ranks {
            // The last rank with an event of a node has its new row.
            ends(writer).into_iter().for_each(|v| drop(changed.insert(v, [writer].into())));
        }
    }
    let found = sent(ranks, &config, &events, TrafficKind::Dispatch, &cpu);
    assert_eq!(found.iter().map(|sent| sent.0).collect::<Vec<_>>(), want);
    let sven = sent(ranks, &Config { plan: "sven".into(), ..config }, &events, TrafficKind::Dispatch, &cpu);
    let all = |sent: &[(u64, u64)]| sent.iter().map(|sent| sent.0).sum::<u64>();
    assert!(0 < all(&found) && all(&found) < all(&sven));
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
