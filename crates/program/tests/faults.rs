//! A system that fails: calls that are refused, memory that is short, a power cut. Whatever happens is one
//! line of error, nothing is half written, and the same command goes on. `support/faults.c` is that system.
use crate::support::program::{done, json, listing, made, program, small};
use std::{
    collections::HashSet,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// The library that lets calls fail; `None` without a C compiler.
static FAULTS: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let library = std::env::temp_dir().join(format!("tgnn-faults-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/faults.c");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    match built {
        Ok(status) => {
            assert!(status.success());
            Some(library)
        }
        Err(_) => {
            println!("skipped: no cc");
            None
        }
    }
});

/// Result of a call of the program.
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    err: String,
    /// The calls of the system, in order, if they were asked for.
    calls: Vec<Vec<String>>,
}

/// Calls the program in a folder, where the system fails as `faults` says: variables of `support/faults.c`.
fn failing(dir: &Path, library: &Path, faults: &[(&str, &str)], words: &[&str]) -> Ended {
    let calls = dir.join("calls");
    let _ = fs::remove_file(&calls);
    let mut command = Command::new(program());
    command.args(words).current_dir(dir).env("LD_PRELOAD", library).env("TGNN_CALLS", &calls);
    let ran = command.envs(faults.iter().copied()).output().unwrap();
    let calls = fs::read_to_string(calls).unwrap_or_default();
    Ended {
        code: ran.status.code(),
        signal: ran.status.signal(),
        err: String::from_utf8(ran.stderr).unwrap(),
        calls: calls.lines().map(|line| line.split_whitespace().map(Into::into).collect()).collect(),
    }
}

/// Returns the tensors of a run folder, and the scores of its test.
fn found(run: &Path) -> (Vec<(PathBuf, Vec<u8>)>, serde_json::Value) {
    let mut files = listing(&run.join("checkpoint"));
    files.retain(|(path, _)| path.extension().is_some_and(|e| e == "safetensors"));
    files.iter_mut().for_each(|(path, _)| *path = path.file_name().unwrap().into());
    (files, json(&fs::read_to_string(run.join("summary.json")).unwrap())["test"].clone())
}

#[test]
fn a_call_that_fails_ends_the_run_in_one_line_and_resuming_gives_the_same_files() {
    let (Some(library), dir) = (&*FAULTS, made()) else { return };
    let dir = dir.path();
    done(dir, &small(&["--out", "whole"]));
    let whole = found(&dir.join("whole"));
    let mut refused = 0;
    for (kind, code, step) in
        [("write", libc::ENOSPC, 5), ("fsync", libc::EIO, 4), ("rename", libc::ENOSPC, 3)]
    {
        for at in (1..).step_by(step) {
            let fault = format!("{kind} {code} {at} {at}");
            let ran = failing(dir, library, &[("TGNN_FAULT", &fault)], &small(&["--out", "run"]));
            let files = listing(&dir.join("run"));
            assert!(files.iter().all(|(path, _)| path.extension().is_none_or(|e| e != "partial")), "{fault}");
            if ran.code != Some(0) {
                let error = ran.err.lines().last().unwrap_or_default();
                assert!(
                    ran.code == Some(10) && error.starts_with("error: "),
                    "{fault}: {:?} {}",
                    ran.code,
                    ran.err
                );
                refused += 1;
            }
            done(dir, &small(&["--out", "run", "--resume"]));
            assert!(found(&dir.join("run")) == whole, "{fault}");
            fs::remove_dir_all(dir.join("run")).unwrap();
            if ran.calls.iter().filter(|call| call[0] == kind).count() < at {
                break;
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

/// A power cut may lose whatever was not synced: the bytes of a file, and the name that a rename gave it.
#[test]
fn a_power_cut_at_any_moment_leaves_a_checkpoint_with_all_its_files() {
    let (Some(library), dir) = (&*FAULTS, made()) else { return };
    // Its whole path, as the calls of files that are open have it.
    let run = dir.path().canonicalize().unwrap().join("run");
    let ran = failing(dir.path(), library, &[], &small(&["--out", run.to_str().unwrap()]));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let folder = run.join("checkpoint").display().to_string();
    // Files whose bytes are on the disk, and whether all names of the folder are.
    let (mut synced, mut named, mut manifests, mut deleted) = (HashSet::new(), true, 0, 0);
    for call in &ran.calls {
        let [kind, path, to] = [0, 1, 2].map(|i| call.get(i).map_or("", String::as_str));
        match kind {
            "write" => drop(synced.remove(path)),
            "fsync" if path == folder => named = true,
            "fsync" => drop(synced.insert(path.to_owned())),
            "rename" if to.starts_with(&folder) || to.ends_with("metrics.jsonl") => {
                assert!(synced.contains(path), "{to} has its name before its bytes");
                if to.ends_with("manifest.json") {
                    assert!(named, "the manifest is written before the names of its files");
                    manifests += 1;
                }
                named = !to.starts_with(&folder);
            }
            "unlink" if path.starts_with(&folder) && path.ends_with(".safetensors") => {
                assert!(named, "{path} is deleted before the manifest that does not name it is on the disk");
                deleted += 1;
            }
            _ => {}
        }
    }
    assert!(manifests >= 3 && deleted >= 1, "{manifests} {deleted}");
}

#[test]
fn threads_and_maps_that_are_refused_are_errors() {
    let (Some(library), dir) = (&*FAULTS, made()) else { return };
    let dir = dir.path();
    for (kind, code, calls) in [("thread", libc::EAGAIN, 1..6), ("mmap", libc::ENOMEM, 1..9)] {
        for at in calls {
            let fault = format!("{kind} {code} {at} {at}");
            let ran = failing(dir, library, &[("TGNN_FAULT", &fault)], &small(&["--threads", "2"]));
            let error = ran.err.lines().last().unwrap_or_default();
            let refused = matches!(ran.code, Some(5 | 6 | 10)) && error.starts_with("error: ");
            assert!(ran.code == Some(0) || refused, "{fault}: {:?} {:?} {}", ran.code, ran.signal, ran.err);
        }
    }
}

#[test]
fn a_run_ends_or_is_refused_on_a_machine_of_any_size() {
    let (Some(library), dir) = (&*FAULTS, made()) else { return };
    let dir = dir.path();
    let synth = "data synth --events 200000 --sources 40000 --destinations 20000 --out many";
    done(dir, &synth.split(' ').collect::<Vec<_>>());
    let run = |mib: u64, more: &[&str]| {
        let words =
            "train --data many --model jodie --epochs 1 --max-batches 20 --threads 1 --set static.mode=off";
        let words: Vec<&str> = words.split(' ').chain(more.iter().copied()).collect();
        failing(dir, library, &[("TGNN_MACHINE", &(1024 * mib).to_string())], &words)
    };
    let mut refused = Vec::new();
    for mib in (30..).step_by(12) {
        let ran = run(mib, &[]);
        match ran.code {
            Some(0) => break,
            Some(6) => refused.push(mib),
            _ => panic!("{mib} MiB: {:?} {:?} {}", ran.code, ran.signal, ran.err),
        }
        assert!(mib < 600, "{}", ran.err);
    }
    let last = *refused.last().unwrap();
    let said = run(last, &[]).err;
    assert!(said.contains("the run needs ") && said.contains("check_memory=false"), "{said}");
    // Whoever wants to try may.
    let tried = run(last, &["--set", "check_memory=false"]);
    assert!(tried.code == Some(0) || tried.signal == Some(libc::SIGKILL), "{}", tried.err);
}
