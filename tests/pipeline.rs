//! Ranks that get whole batches in turn (PipeTGL): the memory of one rank, in strict order, and weights that
//! are as old as there are other ranks.
use crate::{
    properties::small,
    ranks::{STATE, of_model, tensors, train},
    turns::frozen,
};
use std::{collections::BTreeMap, fs, path::Path};
use tgnn::{
    data::Events,
    model::ModelName,
    plan::Plan,
    runtime::{Device, comm::DEADLINE},
    task::{Config, EventTask, Task, on_local_ranks},
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
    for model in MODELS {
        let config = |plan: &str| Config { batch: 25, ..frozen(model, plan, 1) };
        let want = state(1, &config("sequential"), &events);
        for memory in ["partitioned", "replicated", "cached"] {
            let plan = plan_of(dir.path(), memory);
            for ranks in 1..=8 {
                if ranks > 3 && model != ModelName::Jodie {
                    continue;
                }
                let found = state(ranks, &config(&plan), &events);
                let differ: Vec<&String> = want.keys().filter(|name| want[*name] != found[*name]).collect();
                assert!(differ.is_empty(), "{model:?}, {memory}, {ranks} ranks: {differ:?} differ");
            }
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
            let config = |plan: &str| Config { batch: 25, ..of_model(model, plan, 1) };
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
