//! Ranks that train several batches at the same time: epoch and memory parallelism (DistTGL).
use crate::{
    properties::small,
    ranks::{STATE, of_model, tensors, train},
};
use std::collections::BTreeMap;
use tgnn::{data::Events, model::ModelName, task::Config};

/// Ranks that share a batch, groups that share a copy of the memory, and copies.
const PARALLEL: [[usize; 3]; 11] = [
    [1, 2, 1],
    [1, 1, 2],
    [1, 3, 1],
    [1, 1, 3],
    [2, 2, 1],
    [2, 1, 2],
    [1, 2, 2],
    [2, 2, 2],
    [3, 1, 2],
    [1, 8, 1],
    [1, 1, 8],
];

/// A configuration whose weights do not change, and without drop-out, so that memory is the same in all epochs.
fn frozen(model: ModelName, plan: &str, epochs: usize) -> Config {
    let mut config = Config { learning_rate: 1e-30, settle: false, ..of_model(model, plan, epochs) };
    config.apan.dropout = 0.0;
    config
}

fn named([i, j, k]: [usize; 3]) -> String {
    format!("disttgl:{i}x{j}x{k}")
}

/// Returns the state of the nodes after `epochs` epochs, and the mean loss of each pass.
fn trained(ranks: usize, config: &Config, events: &Events) -> (BTreeMap<String, Vec<u8>>, Vec<(usize, f64)>) {
    let dir = tempfile::tempdir().unwrap();
    let summary = train(ranks, config, events, Some(dir.path()), false).unwrap();
    let losses: Vec<(usize, f64)> = summary.epochs.iter().map(|e| (e.epoch, e.train_loss)).collect();
    let last = losses.last().unwrap().0;
    let state = tensors(dir.path(), last).into_iter().filter(|(name, _)| STATE.contains(&name.as_str()));
    (state.collect(), losses)
}

#[test]
fn with_frozen_weights_turns_leave_the_memory_of_one_rank_and_train_its_epochs() {
    let events = small(700);
    for model in [ModelName::Tgn, ModelName::Jodie, ModelName::Apan, ModelName::DyRep] {
        let (_, losses) = trained(1, &frozen(model, "sequential", 16), &events);
        for parallel in PARALLEL {
            let [i, j, k] = parallel;
            if i * j * k > 4 && model != ModelName::Jodie {
                continue;
            }
            let what = format!("{model:?}, {}", named(parallel));
            let (state, passes) = trained(i * j * k, &frozen(model, &named(parallel), 2 * j * k), &events);
            let (want, _) = trained(1, &frozen(model, "sequential", 1), &events);
            assert_eq!(state.len(), want.len(), "{what}");
            let differ: Vec<&String> = want.keys().filter(|name| want[*name] != state[*name]).collect();
            assert!(differ.is_empty(), "{what}: {differ:?} differ");
            assert_eq!(passes.iter().map(|pass| pass.0).collect::<Vec<_>>(), [j * k, 2 * j * k], "{what}");
            // In the first pass, copies that begin in the middle of the stream know nothing of what came
            // before. From then on, a pass has the losses of as many epochs of one rank.
            let of_epochs = &losses[j * k..2 * j * k];
            let mean = of_epochs.iter().map(|loss| loss.1).sum::<f64>() / of_epochs.len() as f64;
            assert!((passes[1].1 / mean - 1.0).abs() < 1e-5, "{what}: {} instead of {mean}", passes[1].1);
            assert!(k == 1 || (passes[0].1 / mean - 1.0).abs() > 1e-5, "{what}");
        }
    }
}
