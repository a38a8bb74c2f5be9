//! Output that nobody can read: full disks, closed pipes, locales without box characters, narrow terminals.
use crate::support::program::{done, made, program, small as small_words};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

/// Calls whose output is their result.
const CALLS: &[&[&str]] = &[
    &["eval", "--checkpoint", "run", "--json"],
    &["eval", "--checkpoint", "run"],
    &["train", "small.toml", "--epochs", "1", "--max-batches", "1", "--json"],
    &["train", "small.toml", "--epochs", "1", "--max-batches", "1"],
    &[
        "sweep",
        "small.toml",
        "--epochs",
        "1",
        "--max-batches",
        "1",
        "--jobs",
        "1",
        "--out",
        "sweep",
        "--json",
    ],
    &["compare", "run"],
    &["compare", "run", "--as", "json"],
    &["compare", "run", "--as", "csv"],
    &["embed", "--checkpoint", "run", "--out", "z.csv"],
    &["predict", "--checkpoint", "run", "--input", "new.csv"],
    &["data", "info", "made"],
    &["data", "info", "made", "--json"],
    &["data", "snapshots", "made", "--every", "10m"],
    &["plan", "show", "overlap"],
    &["plan", "check", "overlap"],
    &["plan", "simulate", "overlap", "--data", "made", "--set", "threads=1", "--json"],
    &["partition", "--data", "made", "--ranks", "2"],
    &["models"],
    &["models", "--names", "events"],
    &["doctor"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["--version"],
    &["help", "train"],
    &["train", "--help"],
];

fn with_run() -> tempfile::TempDir {
    let dir = made();
    done(dir.path(), &small_words(&["--epochs", "1", "--out", "run"]));
    fs::write(dir.path().join("new.csv"), "1,31,1e9,0,0,0\n").unwrap();
    dir
}

#[test]
fn a_full_disk_is_told_by_every_call_and_a_closed_pipe_by_none() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("skipped: no /dev/full, the disk that is always full");
        return;
    };
    let dir = with_run();
    for words in CALLS {
        let call = |out: Stdio, err: Stdio| {
            let mut command = Command::new(program());
            command.args(*words).current_dir(dir.path()).stdout(out).stderr(err);
            command.spawn().unwrap()
        };
        let ran = call(full.try_clone().unwrap().into(), Stdio::piped()).wait_with_output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(10), "{words:?}: {err}");
        let line = "error: standard output: cannot write (No space left on device";
        assert!(err.lines().last().is_some_and(|last| last.starts_with(line)), "{words:?}: {err}");
        let mut closed = call(Stdio::piped(), Stdio::null());
        drop(closed.stdout.take());
        assert_eq!(closed.wait().unwrap().code(), Some(0), "{words:?}");
        // Nobody can be told that standard error is full.
        let status = call(Stdio::null(), full.try_clone().unwrap().into()).wait().unwrap();
        assert_eq!(status.code(), Some(0), "{words:?}");
    }
    let mut long = Command::new(program()).args(["help", "train"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(long.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty() && long.wait().unwrap().success());
}

/// Returns what a call prints in a locale.
fn in_locale(dir: &Path, words: &[&str], locale: &str) -> String {
    let mut command = Command::new(program());
    let ran = command.args(words).current_dir(dir).env("LC_ALL", locale).output().unwrap();
    assert!(ran.status.success(), "{words:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn reports_are_drawn_with_ascii_where_the_locale_has_nothing_else() {
    let dir = with_run();
    for words in
        [&["data", "info", "made"][..], &["compare", "run"], &["partition", "--data", "made", "--ranks", "2"]]
    {
        let [drawn, plain] = ["en_GB.UTF-8", "C"].map(|locale| in_locale(dir.path(), words, locale));
        assert!(!drawn.is_ascii(), "{words:?}: {drawn}");
        // `partition` tells how long it took.
        let lines = |text: &str| text.lines().map(|line| line.chars().count()).take(3).collect::<Vec<_>>();
        assert!(plain.is_ascii() && lines(&plain) == lines(&drawn), "{words:?}: {plain}");
    }
    assert_eq!(
        in_locale(dir.path(), &["data", "info", "made"], "C.UTF-8"),
        in_locale(dir.path(), &["data", "info", "made"], "de_DE.utf8")
    );
}

#[test]
fn a_head_is_as_wide_as_the_terminal() {
    let dir = made();
    let mut command = Command::new(program());
    command.args(small_words(&["--epochs", "1"])).current_dir(dir.path()).env("COLUMNS", "80");
    let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let (head, _) = out.split_once("\n\n").unwrap();
    assert!(head.lines().count() > 5 && head.lines().all(|line| line.chars().count() <= 80), "{head}");
    assert!(head.lines().all(|line| line.len() > 10), "{head}");
}
