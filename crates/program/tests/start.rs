//! How a training starts on a device: what runs meanwhile, and what the time goes to.
use crate::support::program::{json, made, program};
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
