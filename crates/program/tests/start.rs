//! How a training starts on a device: what runs meanwhile, and what the time goes to.
use crate::support::program::{done, json, made, program};
use serde_json::Value;
use std::{path::Path, process::Command};

/// Trains shortly on the emulated device, and returns the summary.
fn trained(dir: &Path, before: &str) -> Value {
    let words = ["train", "small.toml", "--device", "emu", "--json"];
    let mut command = Command::new(program());
    let ran = command.args(words).current_dir(dir).env("TGNN_BEFORE", before).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    json(std::str::from_utf8(&ran.stdout).unwrap())
}

/// Returns the names of the phases.
fn phases(summary: &Value) -> Vec<&str> {
    let phases = summary["phases"].as_array().unwrap();
    assert!(phases.iter().all(|phase| phase["seconds"].as_f64().unwrap() >= 0.0), "{phases:?}");
    phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect()
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_device_that_is_opened_while_data_are_read_trains_to_the_same_bits() {
    let dir = made();
    let [now, before] = ["", "start"].map(|before| trained(dir.path(), before));
    let kept = |summary: &Value| {
        let epochs = summary["epochs"].as_array().unwrap();
        let epochs: Vec<Value> = epochs.iter().map(|e| e["train_loss"].clone()).collect();
        (epochs, summary["epochs"][1]["val"].clone(), summary["test"].clone())
    };
    assert_eq!(kept(&now), kept(&before));
    let common = ["data", "task", "memory", "upload", "schedule", "launch", "capture"];
    let opened = ["context", "kernels", "probe"];
    for (summary, waits) in [(&now, true), (&before, false)] {
        let found = phases(summary);
        let missing = opened.iter().chain(&common).find(|phase| !found.contains(phase));
        assert_eq!((missing, found.contains(&"wait")), (None, waits), "{found:?}");
        assert!(summary["epochs"][0]["val_seconds"].as_f64().unwrap() > 0.0);
    }
}

/// Trains on the emulated device with `TGNN_BEFORE` as given. Returns what must not depend on how passes are
/// cut into windows, and the graphs that each epoch captured.
fn results(dir: &Path, words: &[&str], before: &str) -> (Vec<Value>, Vec<u64>) {
    let all = [words, &["--device", "emu", "--json"]].concat();
    let ran = Command::new(program()).args(all).current_dir(dir).env("TGNN_BEFORE", before).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let summary = json(std::str::from_utf8(&ran.stdout).unwrap());
    let epochs = summary["epochs"].as_array().unwrap();
    let kept = |e: &Value| [e["train_loss"].clone(), e["val"].clone()];
    let captured = epochs.iter().map(|e| e["graphs_captured"].as_u64().unwrap()).collect();
    (epochs.iter().flat_map(kept).chain([summary["test"].clone()]).collect(), captured)
}

/// 40 steps are windows of 8 to 12, the last of which may be shorter; a pass of up to three steps is one.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn windows_that_prepare_the_next_one_train_validate_and_test_to_the_same_bits() {
    let dir = made();
    let snapshots = "data synth-snapshots --out snapshots --trend constant --vertices 30 --edges 40 --steps 40 \
                     --features 3";
    done(dir.path(), &snapshots.split_whitespace().collect::<Vec<_>>());
    let tgn = "train small.toml --batch 7 --eval-batch 9 --epochs 2 --plan";
    let jodie = "train small.toml --model jodie --set jodie.memory=8 --set jodie.time=8 --batch 7 --epochs 3 \
                 --patience 1 --plan";
    let tgat = "train small.toml --model tgat --set tgat.time=8 --set tgat.embedding=8 --set tgat.neighbors=2 \
                --batch 13 --epochs 2 --plan";
    let few = "train small.toml --batch 7 --epochs 3 --no-eval --plan overlap --max-batches";
    let t_gcn = "train --model t-gcn --data snapshots --set t-gcn.width=8 --epochs 2 --plan";
    for (words, last) in [
        (tgn, "prefetch"),
        (tgn, "overlap"),
        (jodie, "prefetch"),
        (jodie, "overlap"),
        (tgat, "prefetch"),
        (tgat, "overlap"),
        (few, "1"),
        (few, "2"),
        (few, "3"),
        (few, "13"),
        (t_gcn, "overlap"),
    ] {
        let words: Vec<&str> = words.split_whitespace().chain([last]).collect();
        let [now, before] = ["", "start"].map(|before| results(dir.path(), &words, before));
        assert_eq!(now.0, before.0, "{words:?}");
        assert!(now.1.iter().sum::<u64>() > 0, "{words:?}: {:?}", now.1);
    }
}

#[test]
fn a_cpu_has_no_phases_and_a_device_that_is_missing_is_told_after_wrong_data() {
    let dir = made();
    let ran = |words: &[&str], on: &str| {
        let all = [words, &["--device", on, "--json"]].concat();
        Command::new(program()).args(all).current_dir(dir.path()).output().unwrap()
    };
    let cpu = ran(&["train", "small.toml"], "cpu");
    assert!(json(std::str::from_utf8(&cpu.stdout).unwrap())["phases"].is_null());
    // Device 999 is missing with and without a GPU.
    for (words, code) in [(&["train", "small.toml"][..], 5), (&["train", "--data", "none.csv"], 10)] {
        let ran = ran(words, "cuda:999");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{said}");
    }
}
