//! Products on a CUDA device, as trainings use them.
use crate::support::program::{done, json, made, program};
use std::{path::Path, process::Command};

/// Trains on the emulated device, with products of before if `before` says so, and returns the loss, as
/// printed.
fn loss(dir: &Path, words: &[&str], before: &str) -> String {
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--no-eval", "--json", "--epochs", "1"]);
    let ran = command.args(words).env("TGNN_BEFORE", before).current_dir(dir).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    json(&String::from_utf8(ran.stdout).unwrap())["epochs"][0]["train_loss"].to_string()
}

/// The widths are above those of narrow maps, which are not multiplied on the matrix units. TGN's messages
/// have 112 columns, so their rows are aligned, and its heads 18.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn products_compiled_for_a_precision_and_an_alignment_give_the_losses_of_those_that_test_both() {
    let dir = made();
    let dir = dir.path();
    let snapshots = ["--vertices", "70", "--edges", "200", "--steps", "5", "--features", "36"];
    let synth = ["data", "synth-snapshots", "--out", "snapshots", "--trend", "constant"];
    done(dir, &[&synth[..], &snapshots].concat());
    let tgn = ["--set", "tgn.memory=36", "--set", "tgn.time=37", "--set", "tgn.embedding=36"];
    let graph_mixer =
        ["--model", "graph-mixer", "--set", "graph-mixer.width=36", "--set", "graph-mixer.neighbors=4"];
    let events = ["--data", "made", "--batch", "20", "--max-batches", "2", "--set", "static.mode=off"];
    let t_gcn = ["--model", "t-gcn", "--data", "snapshots", "--group", "2", "--set", "t-gcn.width=36"];
    for words in [[&events[..], &tgn].concat(), [&events[..], &graph_mixer].concat(), t_gcn.into()] {
        let of = |precision: &str| {
            let words = [&words[..], &["--precision", precision]].concat();
            let [known, tested] = ["", "products"].map(|before| loss(dir, &words, before));
            assert_eq!(known, tested, "{words:?}");
            known
        };
        assert_ne!(of("f32"), of("tf32"), "{words:?}: nothing was multiplied on the matrix units");
    }
}
