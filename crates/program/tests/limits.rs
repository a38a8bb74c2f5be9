//! Limits that the system sets to the program: each is one line, and leaves nothing half written.
use crate::support::program::{made, program, small};
use std::{fs, path::Path, process::Command};

/// Runs the program after a command of the shell that sets a limit. Returns its exit code and what it said.
fn limited(dir: &Path, limit: &str, words: &[&str]) -> (Option<i32>, String) {
    let script = format!("{limit} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program()).args(words).current_dir(dir);
    let ran = command.output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_leaves_no_part() {
    let dir = made();
    let dir = dir.path();
    let (code, said) = limited(dir, "ulimit -f 4", &small(&["--out", "run"]));
    assert_eq!(code, Some(10), "{said}");
    assert!(said.contains("cannot write"), "{said}");
    let left = fs::read_dir(dir.join("run/checkpoint")).into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn addresses_that_run_out_are_told_before_anything_aborts() {
    let dir = made();
    let dir = dir.path();
    let words = "data synth --events 2000000 --sources 20000 --destinations 10000 --out many";
    let (code, said) = limited(dir, "true", &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{said}");
    let words = ["train", "--data", "many", "--threads", "1", "--no-eval", "--set", "static.mode=off"];
    for kib in ["150000", "250000", "350000"] {
        let (code, said) = limited(dir, &format!("ulimit -v {kib}"), &words);
        assert_eq!(code, Some(6), "{kib}: {said}");
        assert!(said.lines().last().is_some_and(|line| line.starts_with("error: ")), "{kib}: {said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_import_ends_or_is_refused_within_any_limit() {
    let dir = made();
    let dir = dir.path();
    let lines = (0..200_000).map(|i| format!("u{},p{},{},0.{i}\n", i % 70_000, i % 9_000, 60 * i));
    let text: String = std::iter::once("src,dst,time,weight\n".to_owned()).chain(lines).collect();
    fs::write(dir.join("events.csv"), text).unwrap();
    let mut codes = Vec::new();
    let ran = |mib: usize, words: &[&str]| limited(dir, &format!("ulimit -v {}", mib << 10), words);
    // The system needs room for the program itself.
    let loads = (40..).step_by(20).find(|&mib| ran(mib, &["--version"]).0 == Some(0)).unwrap();
    for mib in (loads..).step_by(20) {
        let (code, said) = ran(mib, &["data", "import", "events.csv", "--out", "imported"]);
        codes.push(code);
        match code {
            Some(0) => break,
            Some(6) => {
                assert!(said.lines().last().is_some_and(|line| line.starts_with("error: ")), "{said}");
                assert!(!dir.join("imported").exists());
            }
            _ => panic!("{mib} MiB: {code:?}: {said}"),
        }
        assert!(mib < 2_000, "{said}");
    }
    assert!(codes.contains(&Some(6)), "{codes:?}");
}
