//! Runs made by hand, for tests. The module around it names the types.
use super::{Config, FinishedRun, Summary};
use serde_json::json;

/// Returns a finished run of TGN with a validation AP of 0.8 in the second of two epochs, after `change`.
pub fn run(path: &str, seed: u64, change: impl FnOnce(&mut Config, &mut Summary)) -> FinishedRun {
    let mut run = unchanged(path, seed);
    change(&mut run.config, &mut run.summary);
    run
}

/// Returns the run as it is. Apart from [`run`], so that it is compiled once and not for every change.
fn unchanged(path: &str, seed: u64) -> FinishedRun {
    let epoch = |epoch: usize, seconds: f64, ap: f64| json!({"epoch": epoch, "train_loss": 1.0, "train_seconds": seconds, "events_per_second": 1.0, "val": {"ap": ap}});
    let test = |ap: f64| json!({"transductive": {"ap": ap, "auc": 0.5}, "inductive": {"ap": ap - 0.25}});
    let summary = json!({
        "schema": 1, "version": "0", "commit": null, "command": "", "model": "tgn", "task": "link",
        "device": {"kind": "cpu", "name": "A CPU", "threads": 2}, "plan": "sequential", "seed": seed,
        "data": {"name": "made", "events": 10, "nodes": 5, "edge_features": 0},
        "protocol": "dyglib", "negatives": "random", "ties": "", "batch": 200, "precision": "f32",
        "features_as": "f32", "memory_as": "f32", "epochs": [epoch(1, 2.0, 0.5), epoch(2, 4.0, 0.8)],
        "best_epoch": 2, "settled": null, "stopped_early": false, "test": test(0.75),
        "edgebank": {"unlimited": test(0.5), "window": test(0.625)},
        "peak_memory_bytes": {"host": 3 << 20, "device": 0}, "parameters": 7,
    });
    let summary = serde_json::from_value(summary).unwrap();
    let config = Config { seed, epochs: 2, ..Config::default() };
    FinishedRun { path: path.into(), config, summary }
}

/// Sets the validation and the test AP of the best epoch.
pub fn scored(summary: &mut Summary, val: f64, test: f64) {
    summary.epochs[1].val.as_mut().unwrap().ap = Some(val);
    summary.test.as_mut().unwrap().transductive.ap = Some(test);
}
