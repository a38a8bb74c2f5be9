//! The emulated device finds a missing CUDA event between the lanes of a step.
use crate::support::program::{json, made, program, small};
use std::{collections::BTreeSet, path::Path, process::Command, thread};

/// Waits up to the end of the first step, those of the probe of the device included; and of each later step.
const BEFORE: usize = 17;
const OF_A_STEP: usize = 12;

/// Trains for four steps without a wait (0: with all). Returns the loss, or none after a fault, and the
/// streams of the ignored wait, as the emulated device names them.
fn trained(dir: &Path, plan: &str, unwaited: usize) -> (Option<f64>, Option<String>) {
    let mut command = Command::new(program());
    let words =
        ["--device", "emu", "--plan", plan, "--epochs", "1", "--max-batches", "4", "--no-eval", "--json"];
    command.args(small(&words)).args(["--set", "settle=false"]).current_dir(dir);
    let ran = command.env("TGNN_EMU_DEFECT", format!("unwaited:{unwaited}")).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    let ignored = said.lines().find_map(|line| {
        let streams = line.strip_prefix(&format!("emulated device: wait {unwaited}, of "))?;
        Some(streams.strip_suffix(", is ignored")?.to_owned())
    });
    assert!(ran.status.success() || ignored.is_some(), "{said}");
    let loss =
        || json(std::str::from_utf8(&ran.stdout).unwrap())["epochs"][0]["train_loss"].as_f64().unwrap();
    (ran.status.success().then(loss), ignored)
}

/// The waits are those of any step but the first ones and the last.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_missing_event_between_the_lanes_of_a_step_changes_the_loss_or_is_a_fault() {
    let dir = made();
    let dir = dir.path();
    let (loss, ignored) = trained(dir, "overlap", 0);
    assert_eq!((trained(dir, "sequential", 0).0, ignored), (loss, None));
    assert!(loss.is_some());
    // Every third one in each of three threads.
    let ran: Vec<_> = thread::scope(|scope| {
        let part = |first| {
            move || (first..OF_A_STEP).step_by(3).map(|n| trained(dir, "overlap", BEFORE + 1 + n)).collect()
        };
        let parts: Vec<_> = (0..3).map(|first| scope.spawn(part(first))).collect();
        parts.into_iter().flat_map(|part| -> Vec<_> { part.join().unwrap() }).collect()
    });
    let named: Vec<(bool, String)> = ran
        .into_iter()
        .map(|(without, streams)| (without != loss, streams.expect("a wait was ignored")))
        .collect();
    assert!(named.iter().all(|(found, _)| *found), "{named:?}");
    let found: BTreeSet<&str> = named.iter().map(|(_, streams)| &**streams).collect();
    let all =
        [(2, 3), (2, 4), (3, 2), (4, 2), (4, 3)].map(|(of, other)| format!("stream {of} for stream {other}"));
    assert_eq!(found, all.iter().map(String::as_str).collect());
}
