//! Trainings with the changes that wait for their measurement on a GPU, and with what was before
//! (`TGNN_BEFORE`), in the plans that keep the bits of results.
use crate::support::{
    devices::soak,
    program::{SYNTH, done, json, program},
};
use std::{path::Path, process::Command};

/// Every change that a training may have, and those of schedules.
const ALL: &str = "attention,order,ahead,products,small,start";
const SETTINGS: [&str; 4] = ["", "order,ahead", "attention,products,small", ALL];
const PLANS: [&str; 3] = ["sequential", "prefetch", "overlap"];

/// Every model with narrow maps, and the data that it trains on.
const MODELS: [(&str, &str); 11] = [
    ("tgn", "--set tgn.memory=12 --set tgn.time=8 --set tgn.embedding=12 --set tgn.neighbors=4"),
    ("jodie", "--set jodie.memory=12 --set jodie.time=8"),
    ("dyrep", "--set dyrep.memory=12 --set dyrep.time=8 --set dyrep.neighbors=3"),
    ("apan", "--set apan.memory=12 --set apan.time=8 --set apan.mails=4 --set apan.neighbors=3"),
    ("tgat", "--set tgat.time=8 --set tgat.embedding=12 --set tgat.neighbors=3"),
    (
        "graph-mixer",
        "--set graph-mixer.width=12 --set graph-mixer.embedding=12 --set graph-mixer.time=8 --set \
         graph-mixer.neighbors=5",
    ),
    ("static", ""),
    ("t-gcn", "--set t-gcn.width=12"),
    ("wd-gcn", "--set wd-gcn.width=12"),
    ("evolve-gcn-o", "--set evolve-gcn.width=12"),
    ("evolve-gcn-h", "--set evolve-gcn.width=12"),
];

/// Makes a stream of events and a series of snapshots.
fn data() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    done(dir.path(), SYNTH);
    let sizes = ["--vertices", "70", "--edges", "200", "--steps", "10", "--features", "5"];
    let snapshots = ["data", "synth-snapshots", "--out", "snapshots", "--trend", "constant"];
    done(dir.path(), &[&snapshots[..], &sizes].concat());
    dir
}

/// Trains a model for two epochs on the emulated device, the second of which replays graphs. Returns their
/// losses, as printed, or what the training says if it fails.
fn trained(
    dir: &Path,
    (model, widths): (&str, &str),
    more: &[&str],
    env: &[(&str, &str)],
) -> Result<String, String> {
    let of_model = match model {
        "t-gcn" | "wd-gcn" | "evolve-gcn-o" | "evolve-gcn-h" => "--data snapshots --group 2",
        "static" | "graph-mixer" => "--data made --batch 40 --max-batches 3",
        _ => "--data made --batch 40 --max-batches 3 --set static.mode=off",
    };
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--no-eval", "--json", "--threads", "1", "--epochs", "2"]);
    command.args(["--model", model]).args(of_model.split(' ')).args(widths.split_whitespace()).args(more);
    let ran = command.envs(env.iter().copied()).current_dir(dir).output().unwrap();
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    let summary = json(std::str::from_utf8(&ran.stdout).unwrap());
    let epochs = summary["epochs"].as_array().unwrap();
    Ok(epochs.iter().map(|epoch| epoch["train_loss"].to_string()).collect::<Vec<_>>().join(" "))
}

/// Returns the losses of a training that must succeed.
fn losses(dir: &Path, model: (&str, &str), more: &[&str], env: &[(&str, &str)]) -> String {
    trained(dir, model, more, env).unwrap_or_else(|said| panic!("{model:?} {more:?} {env:?}: {said}"))
}

/// A soak test tries every model in every plan with every setting; else some models, in the plan with most
/// lanes.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn losses_are_those_of_before_in_every_plan_that_keeps_bits() {
    let dir = data();
    let dir = dir.path();
    let (models, tried): (Vec<usize>, _) = match soak() {
        Some(_) => ((0..MODELS.len()).collect(), &PLANS[..]),
        None => (vec![0, 4, 10], &PLANS[2..]),
    };
    let settings = if soak().is_some() { &SETTINGS[..] } else { &SETTINGS[..1] };
    let mut different = Vec::new();
    for model in models.iter().map(|&at| MODELS[at]) {
        let first = losses(dir, model, &["--plan", "sequential"], &[("TGNN_BEFORE", ALL)]);
        for (plan, before) in tried.iter().flat_map(|plan| settings.iter().map(move |before| (plan, before)))
        {
            let found = losses(dir, model, &["--plan", plan], &[("TGNN_BEFORE", before)]);
            assert_eq!(found, first, "{}, {plan}, `{before}`", model.0);
        }
        println!("{} in {tried:?}, before {settings:?}: {first}", model.0);
        different.push(first);
    }
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), models.len(), "trainings do not differ: {different:?}");
}

/// Ranks that share batches have bits of their own. A soak test tries every setting.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn losses_of_two_ranks_are_those_of_before() {
    let dir = data();
    let settings = if soak().is_some() { &SETTINGS[..3] } else { &SETTINGS[..1] };
    let plans = if soak().is_some() { &["depcache", "depcomm"][..] } else { &["depcomm"] };
    for plan in plans {
        let of = |before| {
            losses(dir.path(), MODELS[0], &["--plan", plan, "--ranks", "2"], &[("TGNN_BEFORE", before)])
        };
        let first = of(ALL);
        for before in settings {
            assert_eq!(of(before), first, "{plan}, `{before}`");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn small_kernels_leave_the_losses_of_those_before_and_do_not_mix_with_them() {
    let dir = data();
    for (model, now, before) in [
        ("tgn", "skip:scatter_add_rows", "skip:scatter_add_rows_before"),
        ("t-gcn", "skip:spmm", "skip:spmm_before"),
        ("wd-gcn", "skip:spmm", "skip:spmm_before"),
        ("evolve-gcn-h", "skip:top_rows_select", "skip:top_rows_select_before"),
    ] {
        let model = MODELS.into_iter().find(|of| of.0 == model).unwrap();
        let of = |switched, defect| {
            trained(dir.path(), model, &[], &[("TGNN_BEFORE", switched), ("TGNN_EMU_DEFECT", defect)])
        };
        // The kernels of the other side do nothing.
        let found = of("", before);
        assert!(found.is_ok(), "{found:?}");
        assert_eq!(found, of("small", now), "{}", model.0);
        assert_ne!(found, of("", now), "{}: the kernel computes nothing that counts", model.0);
    }
}
