//! Products on a CUDA device, as trainings use them.
use crate::support::program::{done, json, made, program};
use std::{path::Path, process::Command};

/// Trains on the emulated device, with products of before if `before` says so, and returns the loss of every
/// epoch.
fn losses(dir: &Path, words: &[&str], before: &str) -> Vec<f64> {
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--no-eval", "--json", "--threads", "1", "--epochs", "2"]);
    let ran = command.args(words).env("TGNN_BEFORE", before).current_dir(dir).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let summary = json(&String::from_utf8(ran.stdout).unwrap());
    summary["epochs"].as_array().unwrap().iter().map(|e| e["train_loss"].as_f64().unwrap()).collect()
}

/// The widths are above those of narrow maps, which are not multiplied on the matrix units. Those of TGN's
/// messages are odd, so their rows are not aligned.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn products_compiled_for_a_precision_and_an_alignment_give_the_losses_of_those_that_test_both() {
    let dir = made();
    let dir = dir.path();
    let snapshots = ["--vertices", "100", "--edges", "500", "--steps", "6", "--features", "36"];
    let synth = ["data", "synth-snapshots", "--out", "snapshots", "--trend", "constant"];
    done(dir, &[&synth[..], &snapshots].concat());
    let tgn = ["--set", "tgn.memory=36", "--set", "tgn.time=36", "--set", "tgn.embedding=36"];
    let graph_mixer = ["--model", "graph-mixer", "--set", "graph-mixer.width=36"];
    let events = ["--data", "made", "--batch", "100", "--max-batches", "2"];
    let t_gcn = ["--model", "t-gcn", "--data", "snapshots", "--group", "3", "--set", "t-gcn.width=36"];
    for words in [[&events[..], &tgn].concat(), [&events[..], &graph_mixer].concat(), t_gcn.into()] {
        let of = |precision: &str| {
            let words = [&words[..], &["--precision", precision]].concat();
            let [known, tested] = ["", "products"].map(|before| losses(dir, &words, before));
            assert_eq!(known, tested, "{words:?}");
            known
        };
        assert_ne!(of("f32"), of("tf32"), "{words:?}: nothing was multiplied on the matrix units");
    }
}
