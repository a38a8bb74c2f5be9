//! The program over ranks of MPI: results, mistakes, and ranks that are lost.
use crate::support::{
    launcher::{LIMIT, installed, is_alive, run},
    program::program,
    ranks::plan_file,
};
use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Trains by the program over ranks of MPI, or of one process. Returns the summary and the tensors of the
/// last epoch.
fn trained(mut command: Command, plan: &str, flags: &[&str]) -> (serde_json::Value, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    command.args([
        "train",
        "--epochs",
        "1",
        "--max-batches",
        "6",
        "--batch",
        "100",
        "--json",
        "--threads",
        "1",
    ]);
    command.args([
        "--set",
        "tgn.memory=16",
        "--set",
        "tgn.time=8",
        "--set",
        "tgn.embedding=16",
        "--plan",
        plan,
    ]);
    command.args(flags).arg("--out").arg(&out);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: serde_json::Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let tensors = format!("checkpoint/epoch-{}.safetensors", summary["epochs"][0]["epoch"]);
    let tensors = fs::read(out.join(tensors)).unwrap();
    (summary, tensors)
}

#[test]
fn a_training_over_processes_gives_the_bits_of_one_over_threads() {
    let program = &program();
    let plans = [["sven", "disttgl:1x2x2"], ["depcache", "disttgl:2x1x2"]];
    for (nth, (mpi, plans)) in installed().iter().zip(plans).enumerate() {
        for (ranks, plan) in [(2, plans[0]), (4, plans[1]), (3, "pipetgl")] {
            let (by_mpi, weights) = trained(mpi.start(ranks, program), plan, &[]);
            let (local, local_weights) =
                trained(mpi.start(0, program), plan, &["--ranks", &ranks.to_string()]);
            assert_eq!(by_mpi["epochs"][0]["train_loss"], local["epochs"][0]["train_loss"]);
            assert_eq!(
                (&by_mpi["test"], &by_mpi["ranks"]["traffic"]),
                (&local["test"], &local["ranks"]["traffic"])
            );
            assert!(by_mpi["ranks"]["by"].as_str().unwrap().starts_with("mpi ("), "{}", by_mpi["ranks"]);
            assert!(weights == local_weights, "{ranks} ranks, {plan}");
        }
        // Ranks of all processes are in the log of accesses, in the same order as those of one process.
        let dir = tempfile::tempdir().unwrap();
        let log = |command: Command, more: &[&str]| {
            let path = dir.path().join("log.csv");
            let flags = [&["--accesses", path.to_str().unwrap(), "--no-eval"], more].concat();
            trained(command, plans[1], &flags);
            let text = fs::read_to_string(path).unwrap();
            let order = |line: &str| line.split(',').take(6).map(str::to_owned).collect::<Vec<_>>();
            text.lines().map(order).collect::<Vec<_>>()
        };
        let by_mpi = log(mpi.start(4, program), &[]);
        assert!(by_mpi.len() > 12 && by_mpi == log(mpi.start(0, program), &["--ranks", "4"]), "{by_mpi:?}");
        if nth > 0 {
            continue;
        }
        // Features of edges are on one rank each, or on all.
        let dir = tempfile::tempdir().unwrap();
        let [shares, whole] = ["partitioned", "replicated"].map(|f| plan_file(dir.path(), f, "", ""));
        let features = ["--random-edge-features", "8"];
        let (by_mpi, weights) = trained(mpi.start(3, program), &shares, &features);
        let local = [&features[..], &["--ranks", "3"]].concat();
        let (whole, whole_weights) = trained(mpi.start(0, program), &whole, &local);
        assert_eq!(by_mpi["ranks"]["features"], "partitioned");
        assert_eq!(by_mpi["epochs"][0]["train_loss"], whole["epochs"][0]["train_loss"]);
        assert!(by_mpi["test"] == whole["test"] && weights == whole_weights);
        let (local, _) = trained(mpi.start(0, program), &shares, &local);
        assert_eq!(by_mpi["ranks"]["traffic"], local["ranks"]["traffic"]);
    }
}

#[test]
fn a_mistake_of_the_command_line_is_told_once() {
    let program = &program();
    for mpi in installed() {
        let mut command = mpi.start(2, program);
        command.args(["train", "--ranks", "3"]);
        let ran = run(command);
        assert!(ran.code == Some(2) && ran.err.contains("leave out --ranks"), "{ran:?}");
        let mut command = mpi.start(2, program);
        command.args(["train", "--model", "apan", "--set", "apan.combiner=mean", "--max-batches", "1"]);
        let ran = run(command);
        assert!(ran.code == Some(8) && ran.errors().len() == 1, "{ran:?}");
        assert!(ran.errors()[0].contains("means of mails are not computed over ranks"), "{ran:?}");
    }
}

/// Returns the processes of the program that the launcher `id` has started.
fn ranks_of(launcher: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids: Vec<i32> = processes.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let parent = |id: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let is_rank = |id: &i32| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let of_launcher = std::iter::successors(Some(*id), |id| parent(*id)).any(|id| id == launcher as i32);
        name.trim() == "tgnn-bench" && of_launcher
    };
    ids.into_iter().filter(is_rank).collect()
}

#[test]
fn a_training_that_loses_a_rank_ends_and_is_resumed() {
    let program = &program();
    for (mpi, signal) in installed().iter().zip([libc::SIGSTOP, libc::SIGKILL]) {
        let dir = tempfile::tempdir().unwrap();
        let flags = |epochs: &str| {
            let mut command = mpi.start(2, program);
            command.args(["train", "--epochs", epochs, "--max-batches", "5", "--batch", "60", "--no-eval"]);
            command.args(["--threads", "1", "--deadline", "3", "--out"]).arg(dir.path().join("run"));
            command
        };
        let errors = dir.path().join("errors");
        let mut command = flags("100000");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors).unwrap());
        let mut launcher = command.spawn().unwrap();
        let started = Instant::now();
        let wait = |until: &mut dyn FnMut() -> bool| {
            while !until() {
                assert!(started.elapsed() < LIMIT, "{}", fs::read_to_string(&errors).unwrap_or_default());
                thread::sleep(Duration::from_millis(20));
            }
        };
        wait(&mut || dir.path().join("run/checkpoint/epoch-2.safetensors").exists());
        let ranks = ranks_of(launcher.id());
        assert_eq!(ranks.len(), 2);
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(ranks[1], signal) };
        let mut code = None;
        wait(&mut || {
            code = launcher.try_wait().unwrap();
            code.is_some()
        });
        wait(&mut || ranks.iter().all(|id| !is_alive(*id)));
        let told = fs::read_to_string(&errors).unwrap();
        assert_ne!(code.unwrap().code(), Some(0), "{told}");
        if signal == libc::SIGSTOP {
            // Within an epoch, or where ranks wait for the checkpoint that follows it.
            let place = told.contains("epoch") || told.contains("in barrier");
            assert!(told.contains("within 3 s") && place, "{told}");
        }
        // The last checkpoint is whole.
        let manifest = fs::read_to_string(dir.path().join("run/checkpoint/manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let epochs = manifest["epochs"].as_u64().unwrap();
        let mut command = flags(&(epochs + 1).to_string());
        command.arg("--resume");
        let resumed = run(command);
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
    }
}
