//! Processes that NCCL connects, as `torchrun` starts them. Here NCCL is the emulated devices' own.
use crate::support::{launcher::run, program::program};
use std::{net::TcpListener, path::Path, process::Command, thread};

/// A run of the program that trains for one short epoch.
fn training(flags: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args("train --epochs 1 --max-batches 3 --batch 60 --no-eval --json --threads 1".split(' '));
    command.args("--set tgn.memory=8 --set tgn.time=8 --set tgn.embedding=8".split(' ')).args(flags);
    command
}

/// The environment in which `torchrun` starts rank `rank` of `size`.
fn as_torchrun(command: &mut Command, rank: usize, size: usize, port: u16) {
    command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("WORLD_SIZE", size.to_string()).env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", port.to_string());
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn processes_that_torchrun_starts_train_as_the_ranks_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let port = free_port();
    let start = |rank: usize| {
        let mut command = training(&["--device", "emu", "--plan", "sven", "--out", &out("torchrun")]);
        as_torchrun(&mut command, rank, 2, port);
        run(command)
    };
    let ran = thread::scope(|scope| {
        let second = scope.spawn(|| start(1));
        [start(0), second.join().unwrap()]
    });
    assert!(ran.iter().all(|ran| ran.code == Some(0)), "{ran:?}");
    assert!(ran[1].out.is_empty(), "only the first rank prints: {}", ran[1].out);
    let summary: serde_json::Value = serde_json::from_str(&ran[0].out).unwrap();
    assert_eq!(summary["ranks"]["by"], "nccl");
    let local = run(training(&["--device", "emu", "--plan", "sven", "--ranks", "2", "--out", &out("local")]));
    assert_eq!(local.code, Some(0), "{local:?}");
    let weights = |name| std::fs::read(Path::new(&out(name)).join("checkpoint/epoch-1.safetensors")).unwrap();
    assert!(weights("torchrun") == weights("local"));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn what_torchrun_cannot_do_is_told() {
    let refused = |flags: &[&str], rank, code: i32, want: &str| {
        let mut command = training(flags);
        as_torchrun(&mut command, rank, 2, free_port());
        let ran = run(command);
        assert!(ran.code == Some(code) && ran.err.contains(want) && ran.err.lines().count() == 1, "{ran:?}");
    };
    refused(
        &[],
        0,
        2,
        "the ranks of torchrun are connected by NCCL, between CUDA devices; give --device cuda",
    );
    // What one process does, the first rank does.
    let mut info = Command::new(program());
    info.arg("models");
    as_torchrun(&mut info, 1, 2, free_port());
    let second = run(info);
    assert!(second.code == Some(0) && second.out.is_empty() && second.err.is_empty(), "{second:?}");
    let alone = ["--device", "emu", "--deadline", "0.3"];
    refused(&alone, 0, 8, "ranks [1] have not come to 127.0.0.1:");
    refused(&alone, 1, 8, "rank 1 cannot reach rank 0 at 127.0.0.1:");
}
