//! Trainings with kernels that wait for their measurement, and with those before.
use crate::support::program::{done, json, program};
use std::{path::Path, process::Command};

/// Trains on the emulated device, with the kernels of before by these names, and returns the mean loss of
/// three steps.
fn loss(dir: &Path, words: &[&str], before: &str) -> f64 {
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--no-eval", "--json", "--threads", "1", "--epochs", "1"]);
    command.args(["--batch", "60", "--max-batches", "3", "--set", "static.mode=\"off\""]);
    command.args(words).current_dir(dir);
    let ran = command.env("TGNN_BEFORE", before).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let summary = json(&String::from_utf8(ran.stdout).unwrap());
    summary["epochs"][0]["train_loss"].as_f64().unwrap()
}

/// More than ten neighbours need several rounds. TGAT's lower layer learns no rows.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn attention_updates_of_memory_and_adam_give_the_losses_of_the_kernels_before() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let size = ["--events", "400", "--sources", "30", "--destinations", "10", "--edge-features", "8"];
    done(dir, &[&["data", "synth", "--out", "made", "--name", "made"][..], &size].concat());
    let tgn = "--set tgn.memory=16 --set tgn.time=8 --set tgn.embedding=16";
    let tgat = "--model tgat --set tgat.time=8 --set tgat.embedding=16";
    let apan = "--model apan --set apan.memory=16 --set apan.time=8";
    let jodie = "--model jodie --set jodie.memory=16 --set jodie.time=8";
    let mut different = Vec::new();
    for words in [
        format!("{tgn} --set tgn.neighbors=10"),
        format!("{tgn} --set tgn.neighbors=12"),
        format!("{tgat} --set tgat.neighbors=3"),
        format!("{apan} --set apan.mails=4"),
        jodie.to_owned(),
    ] {
        let words: Vec<&str> = words.split(' ').chain(["--data", "made"]).collect();
        let [now, before] = ["", "attention,products,small"].map(|before| loss(dir, &words, before));
        assert_eq!(now.to_bits(), before.to_bits(), "{words:?}: {now} {before}");
        different.push(now);
    }
    different.dedup();
    assert_eq!(different.len(), 5, "trainings do not differ: {different:?}");
}
