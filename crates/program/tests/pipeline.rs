//! Ranks that get whole batches in turn (PipeTGL): the memory of one rank, in strict order, and weights that
//! are as old as there are other ranks.
use crate::support::{
    devices::{devices, drawn},
    ranks::{STATE, frozen, of_model, sent, tensors, train},
    trainings::small,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use tgnn::{
    autograd::Stage,
    error::{ErrorKind, Result},
    runtime::{
        Device,
        comm::{DEADLINE, TrafficKind},
    },
};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    plan::{Parallel, Plan},
    task::{self, Config, EventTask, RunOptions, Task, on_local_ranks},
};

/// Models with node memory.
const MODELS: [ModelName; 4] = [ModelName::Tgn, ModelName::Jodie, ModelName::DyRep, ModelName::Apan];

/// Writes a plan in which ranks get batches in turn and keep memory as `memory` says; returns its path.
fn plan_of(dir: &Path, memory: &str) -> String {
    let plan = Plan::named("pipetgl").unwrap();
    let mut over = plan.ranks.unwrap();
    over.memory = serde_json::from_value(memory.into()).unwrap();
    let plan = Plan { name: format!("pipeline-{memory}"), ranks: Some(over), ..plan };
    let path = dir.join(format!("{memory}.toml"));
    fs::write(&path, toml::to_string(&plan).unwrap()).unwrap();
    path.to_str().unwrap().into()
}

/// The state of the nodes, by the names of the tensors, after an epoch.
fn state(ranks: usize, config: &Config, events: &Events) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    train(ranks, config, events, Some(dir.path()), false).unwrap();
    let all = tensors(dir.path(), 1).into_iter();
    all.filter(|(name, _)| STATE.contains(&name.as_str())).collect()
}

#[test]
fn with_frozen_weights_ranks_in_turn_leave_the_memory_of_one_rank() {
    let (events, dir) = (small(400), tempfile::tempdir().unwrap());
    for (at, model) in MODELS.into_iter().enumerate() {
        let config = |plan: &str| Config { batch: 25, eval_batch: 25, ..frozen(model, plan, 1) };
        let want = state(1, &config("sequential"), &events);
        let most = if model == ModelName::Jodie { 8 } else { 3 };
        for (nth, memory) in ["partitioned", "replicated", "cached"].into_iter().enumerate() {
            let plan = plan_of(dir.path(), memory);
            for (ranks, _) in drawn(at + nth, most / 3, most) {
                let ranks = ranks + 1;
                let found = state(ranks, &config(&plan), &events);
                let differ: Vec<&String> = want.keys().filter(|name| want[*name] != found[*name]).collect();
                assert!(differ.is_empty(), "{model:?}, {memory}, {ranks} ranks: {differ:?} differ");
            }
        }
    }
}

#[test]
fn a_pass_that_is_cut_short_leaves_the_memory_of_one_rank() {
    let events = small(400);
    for model in [ModelName::Jodie, ModelName::Tgn, ModelName::DyRep] {
        let config =
            |plan: &str| Config { batch: 25, max_batches: 4, evaluate: false, ..frozen(model, plan, 1) };
        let batches = roots_of_batches(&config("sequential"), &events);
        assert!(batches[3].intersection(&batches[4]).count() > 5, "rows that the next batch would have had");
        let want = state(1, &config("sequential"), &events);
        for ranks in [2, 3] {
            assert!(state(ranks, &config("pipetgl"), &events) == want, "{model:?}, {ranks} ranks");
        }
    }
}

#[test]
fn ranks_in_turn_train_as_one_rank_whose_weights_are_as_old_as_there_are_other_ranks() {
    let (events, dir) = (small(400), tempfile::tempdir().unwrap());
    for model in MODELS {
        for ranks in [1, 2, 3] {
            let old = dir.path().join("old.toml");
            fs::write(&old, format!("name = \"old\"\n[staleness]\ngradients = {}\n", ranks - 1)).unwrap();
            let config = |plan: &str| Config { batch: 25, eval_batch: 25, ..of_model(model, plan, 1) };
            let mut one =
                EventTask::new(&config(old.to_str().unwrap()), &events, Device::cpu(1).unwrap()).unwrap();
            let want: Vec<f64> = (0..2).map(|epoch| one.train_epoch(epoch, &mut |_| {}).unwrap().0).collect();
            for memory in ["partitioned", "replicated"] {
                let in_turn = config(&plan_of(dir.path(), memory));
                let of_rank = |device: Device| {
                    let mut task = EventTask::new(&in_turn, &events, device)?;
                    for (epoch, want) in want.iter().enumerate() {
                        let loss = task.train_epoch(epoch as u32, &mut |_| {})?.0;
                        assert!((loss - want).abs() < 1e-5, "{model:?}, {memory}, {ranks}: {loss} {want:?}");
                    }
                    Ok(())
                };
                match ranks {
                    1 => of_rank(Device::cpu(1).unwrap()).unwrap(),
                    _ => on_local_ranks(ranks, DEADLINE, |_| Device::cpu(1), of_rank).unwrap(),
                }
            }
        }
    }
}

/// The positive roots of each batch of the training part, once each.
fn roots_of_batches(config: &Config, events: &Events) -> Vec<BTreeSet<u32>> {
    let train = config.split(events).unwrap().train;
    let batch = |first: usize| first..(first + config.batch).min(train.end);
    let roots = |first| batch(first).flat_map(|e| [events.src[e], events.dst[e]]).collect();
    train.clone().step_by(config.batch).map(roots).collect()
}

#[test]
fn each_new_row_is_handed_to_the_next_rank_or_sent_to_its_owner_and_none_is_both() {
    let events = small(700);
    for (model, ranks) in [(ModelName::Jodie, 2), (ModelName::Tgn, 3), (ModelName::DyRep, 5)] {
        let config = Config {
            batch: 45,
            eval_batch: 45,
            partition: "interval".into(),
            ..of_model(model, "pipetgl", 1)
        };
        let batches = roots_of_batches(&config, &events);
        // Rows to the rank of the next batch, and to other owners, by the rank that sends them.
        let (mut handed, mut written) = (vec![0; ranks], vec![0; ranks]);
        for (n, roots) in batches.iter().enumerate() {
            let next = batches.get(n + 1);
            let (repeated, others): (Vec<u32>, Vec<u32>) =
                roots.iter().partition(|root| next.is_some_and(|next| next.contains(root)));
            handed[n % ranks] += repeated.len() as u64;
            let elsewhere = |root: &&u32| **root as usize % ranks != n % ranks;
            written[n % ranks] += others.iter().filter(elsewhere).count() as u64;
        }
        assert!(handed.iter().sum::<u64>() > 0 && written.iter().sum::<u64>() > 0);
        let rows = |kind| {
            let sent = sent(ranks, &config, &events, kind, &|_| Device::cpu(1));
            sent.into_iter().map(|sent| sent.0).collect::<Vec<_>>()
        };
        assert_eq!(rows(TrafficKind::HandOver), handed, "{model:?}, {ranks} ranks");
        assert_eq!(rows(TrafficKind::Aggregation), written, "{model:?}, {ranks} ranks");
    }
}

#[test]
fn ranks_in_turn_on_devices_leave_the_memory_of_one_device_and_hand_over_the_rows_of_processors() {
    let events = small(400);
    let Some(devices) = devices(2, 0) else { return };
    let open = |rank: usize| Ok(devices[rank % devices.len()].device());
    for model in [ModelName::Jodie, ModelName::Tgn] {
        let config = |plan: &str| Config { batch: 45, eval_batch: 45, ..frozen(model, plan, 1) };
        let state = |ranks: usize, config: &Config| -> BTreeMap<String, Vec<u8>> {
            let dir = tempfile::tempdir().unwrap();
            let options = RunOptions { out: Some(dir.path().into()), ..RunOptions::default() };
            let train = |device: Device| task::train(config, &events, &device, &options, &mut ());
            match ranks {
                1 => train(devices[0].device()).unwrap(),
                _ => on_local_ranks(ranks, DEADLINE, open, train).unwrap(),
            };
            let all = tensors(dir.path(), 1).into_iter();
            all.filter(|(name, _)| STATE.contains(&name.as_str())).collect()
        };
        assert!(state(1, &config("sequential")) == state(2, &config("pipetgl")), "{model:?}");
        let rows = |open: &(dyn Fn(usize) -> Result<Device> + Sync)| {
            sent(2, &config("pipetgl"), &events, TrafficKind::HandOver, open)
        };
        assert_eq!(rows(&open), rows(&|_| Device::cpu(1)), "{model:?}");
    }
}

#[test]
fn each_of_several_memory_copies_can_be_a_pipeline() {
    let (events, dir) = (small(700), tempfile::tempdir().unwrap());
    let mut plan = Plan::named(&plan_of(dir.path(), "replicated")).unwrap();
    let over = plan.ranks.as_mut().unwrap();
    over.parallel = Parallel { memory: 2, ..Parallel::default() };
    let path = dir.path().join("copies.toml");
    fs::write(&path, toml::to_string(&plan).unwrap()).unwrap();
    for model in MODELS {
        let after = |ranks: usize, plan: &str, epochs: usize| {
            let dir = tempfile::tempdir().unwrap();
            // Each rank of two pipelines has at least two batches of each segment.
            let config = Config { batch: 45, ..frozen(model, plan, epochs) };
            let summary = train(ranks, &config, &events, Some(dir.path()), false).unwrap();
            let all = tensors(dir.path(), epochs).into_iter();
            let state = all.filter(|(name, _)| STATE.contains(&name.as_str()));
            (state.collect::<BTreeMap<_, _>>(), summary)
        };
        // In the fourth epoch, both copies have begun anew.
        let (want, _) = after(1, "sequential", 1);
        let (found, summary) = after(4, path.to_str().unwrap(), 4);
        let differ: Vec<&String> = want.keys().filter(|name| want[*name] != found[*name]).collect();
        assert!(differ.is_empty(), "{model:?}: {differ:?} differ");
        assert_eq!(summary.pipeline.len(), 4, "{model:?}");
    }
}

#[test]
fn a_rank_without_a_batch_sends_keeps_and_updates_and_computes_nothing_else() {
    let events = small(400);
    for model in MODELS {
        let config = Config { batch: 25, eval_batch: 25, ..of_model(model, "pipetgl", 1) };
        let of_rank = |device: Device| {
            let rank = device.ranks().unwrap().rank();
            let mut task = EventTask::new(&config, &events, device)?;
            task.core_mut().trace();
            task.train_epoch(0, &mut |_| {})?;
            let timeline = task.core().timeline();
            let of_steps = |own: bool| {
                let spans = timeline.spans().iter().filter(|s| (s.step % 3 == rank) == own);
                spans.map(|s| (s.node_info.stage, s.node_info.op)).collect::<BTreeSet<_>>()
            };
            let (with, without) = (of_steps(true), of_steps(false));
            let computes = [Stage::UpdateMemory, Stage::Embed];
            let computed: Vec<_> = without.iter().filter(|(stage, _)| computes.contains(stage)).collect();
            assert!(computed.is_empty(), "{model:?}: {computed:?}");
            assert!(without.is_subset(&with) && 2 * without.len() < with.len(), "{model:?}: {without:?}");
            for stage in [Stage::Dispatch, Stage::Aggregate, Stage::WriteMemory, Stage::Step] {
                assert!(without.iter().any(|(of, _)| *of == stage), "{model:?}, {stage}");
            }
            Ok(())
        };
        on_local_ranks(3, DEADLINE, |_| Device::cpu(1), of_rank).unwrap();
    }
}

#[test]
fn a_summary_has_the_times_of_each_rank_of_a_pipeline_beside_the_formula() {
    let events = small(700);
    let config = Config { batch: 20, eval_batch: 20, ..of_model(ModelName::Jodie, "pipetgl", 2) };
    let summary = train(3, &config, &events, None, false).unwrap();
    assert_eq!(summary.pipeline.len(), 3);
    for record in &summary.pipeline {
        let times = record.measured;
        let parts = [times.sample, times.roots, times.others, times.train, times.step, times.round];
        assert!(parts.iter().all(|&seconds| seconds > 0.0) && times.ranks == 3, "{times:?}");
        assert!((0.0..times.round).contains(&times.idle), "{times:?}");
        assert_eq!(record.idle_by_formula, times.by_formula());
    }
    let divided = train(3, &Config { plan: "sven".into(), ..config }, &events, None, false).unwrap();
    assert!(divided.pipeline.is_empty());
}

#[test]
fn pipelines_that_would_wait_for_each_other_are_refused_with_the_rule() {
    for (keys, said) in [
        ("update = \"owners\"\n", "owners that update rows would wait for the gradients"),
        ("update = \"readers\"\nmicro_batches = 2\n", "rows are dispatched in other parts"),
        ("update = \"readers\"\ndeduplicate = \"none\"\n", "rows are dispatched in other parts"),
        ("memory = \"replicated\"\nparallel = { epoch = 2 }\n", "ranks.parallel.epoch lets ranks share"),
        ("update = \"readers\"\n[staleness]\nmemory = 1\n", "ranks hand on those of the batch before"),
        ("update = \"readers\"\n[staleness]\ngradients = 1\n", "leave out staleness.gradients"),
    ] {
        let text = format!("name = \"p\"\n[ranks]\nbatches = \"in_turn\"\n{keys}");
        let e = Plan::parse(&text).unwrap_err();
        assert!(e.kind() == ErrorKind::Plan && e.to_string().contains(said), "{keys}: {e}");
    }
    let e = Plan::named("pipetgl:k=0").unwrap_err().to_string();
    assert_eq!(e, "`k=0` is no number of memory copies; give pipetgl:k=1, pipetgl:k=2, ...");
}
