//! What ends `tgnn-bench predict`, and what it has saved then.
use crate::support::program::{done, json, program, refused, trained};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Events that come after those of the data.
fn events(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{},{},{},0.1,0.{i},1", i % 7, 30 + i % 5, 30_000 + 3 * i)).collect()
}

const KNOWN: [&str; 5] = ["predict", "--checkpoint", "run", "--threads", "1"];

/// Starts `predict` on standard input, with `--save after`.
fn serving(dir: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.args(KNOWN).args(["--save", "after"]).args(more).current_dir(dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Gives lines to a server and reads as many. Returns these.
fn served(child: &mut Child, lines: &[String]) -> Vec<String> {
    let stdin = child.stdin.as_mut().unwrap();
    lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    // A reader of its own for each line would keep bytes of the next ones.
    let mut answers = BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).lines();
    lines.iter().map(|_| answers.next().unwrap().unwrap()).collect()
}

/// Sends a signal to a program.
fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Waits for the end of a program; one that does not end fails the test.
fn ended(mut child: Child) -> Output {
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the program goes on");
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Returns the number of events since training that a saved state knows.
fn known(dir: &Path) -> u64 {
    let manifest = fs::read_to_string(dir.join("after/manifest.json")).unwrap();
    json(&manifest)["stream"]["events"].as_u64().unwrap()
}

/// Scores events by the model in `checkpoint`.
fn scored(dir: &Path, checkpoint: &str, events: &[String]) -> Vec<String> {
    fs::write(dir.join("events.csv"), events.join("\n")).unwrap();
    let words = ["predict", "--checkpoint", checkpoint, "--threads", "1", "--input", "events.csv"];
    done(dir, &words).out.lines().map(str::to_owned).collect()
}

#[test]
fn whatever_ends_a_predictor_it_has_saved_what_it_scored_and_the_rest_of_the_stream_has_the_same_bits() {
    let dir = trained();
    let dir = dir.path();
    let (events, whole) = (events(9), scored(dir, "run", &events(9)));
    let early = "0,30,29999,0,0,0".to_owned();
    type End<'a> = (&'a str, &'a dyn Fn(&mut Child), &'a str, &'a dyn Fn(ExitStatus) -> bool);
    let ends: [End<'_>; 8] = [
        ("the end of the input", &|_| {}, "", &|status| status.code() == Some(0)),
        (
            "a malformed line",
            &|child| writeln!(child.stdin.as_ref().unwrap(), "oops").unwrap(),
            "1 field; give src,dst,time",
            &|status| status.code() == Some(3),
        ),
        (
            "an early event",
            &|child| writeln!(child.stdin.as_ref().unwrap(), "{early}").unwrap(),
            "earlier than one before it",
            &|status| status.code() == Some(3),
        ),
        (
            "a new node",
            &|child| writeln!(child.stdin.as_ref().unwrap(), "0,77,40000,0,0,0").unwrap(),
            "node 77 does not fit: the predictor holds 40 nodes; allow it with --nodes 78 or more",
            &|status| status.code() == Some(3),
        ),
        ("SIGTERM", &|child| send("-TERM", child), "ended by SIGTERM", &|status| status.signal() == Some(15)),
        ("SIGINT", &|child| send("-INT", child), "ended by SIGINT", &|status| status.signal() == Some(2)),
        (
            "SIGINT, and the end of the input before the program goes on",
            &|child| {
                send("-STOP", child);
                send("-INT", child);
                drop(child.stdin.take());
                send("-CONT", child);
            },
            "ended by SIGINT",
            &|status| status.signal() == Some(2),
        ),
        (
            "a reader that closes the pipe",
            &|child| {
                drop(child.stdout.take());
                // The event of this line is known, but its score is read by nobody.
                writeln!(child.stdin.as_ref().unwrap(), "{}", events[5]).unwrap();
            },
            "standard output: the reader of the scores has closed the pipe",
            &|status| status.code() == Some(10),
        ),
    ];
    for (what, end, said, is_right) in ends {
        let mut child = serving(dir, &[]);
        let mut answers = served(&mut child, &events[..5]);
        end(&mut child);
        // A signal or a closed pipe is enough; the input need not end.
        let stdin = child.stdin.take().filter(|_| !what.starts_with("the end"));
        let ended = ended(child);
        drop(stdin);
        let err = String::from_utf8(ended.stderr).unwrap();
        assert!(is_right(ended.status) && err.contains(said), "{what}: {}: {err}", ended.status);
        let known = known(dir) as usize;
        assert_eq!(known, if what.starts_with("a reader") { 6 } else { 5 }, "{what}");
        assert!(err.contains(&format!("saved     after: {known} events since training")), "{what}: {err}");
        answers.extend(whole[5..known].iter().cloned());
        answers.extend(scored(dir, "after", &events[known..]));
        assert_eq!(answers, whole, "{what}");
        fs::remove_dir_all(dir.join("after")).unwrap();
    }
}

#[test]
fn a_state_is_saved_while_scoring_goes_on_and_outlives_a_kill() {
    let dir = trained();
    let dir = dir.path();
    let (events, whole) = (events(30), scored(dir, "run", &events(30)));
    for every in ["4", "1s"] {
        let mut child = serving(dir, &["--save-every", every]);
        let until = Instant::now() + Duration::from_secs(60);
        let mut given = 0;
        while !dir.join("after/manifest.json").exists() {
            assert!(Instant::now() < until, "nothing is saved");
            if given < 20 {
                let answers = served(&mut child, &events[given..=given]);
                assert_eq!(answers, whole[given..=given]);
                given += 1;
            }
            thread::sleep(Duration::from_millis(20));
        }
        send("-KILL", &child);
        assert_eq!(ended(child).status.signal(), Some(9));
        let known = known(dir) as usize;
        assert!((1..=given).contains(&known), "{known} of {given}");
        assert_eq!(scored(dir, "after", &events[known..]), whole[known..]);
        fs::remove_dir_all(dir.join("after")).unwrap();
    }
    // At the end, all is saved, and the report tells how often, and for how long the stream waited.
    let mut child = serving(dir, &["--save-every", "10"]);
    for line in 0..30 {
        served(&mut child, &events[line..=line]);
        thread::sleep(Duration::from_millis(10));
    }
    drop(child.stdin.take());
    let err = String::from_utf8(ended(child).stderr).unwrap();
    assert_eq!(known(dir), 30);
    assert!(err.contains("before, the stream waited "), "{err}");
    refused(dir, &[&KNOWN[..], &["--save-every", "5"]].concat(), 2, &["--save <DIR>"]);
    let wrong = [&KNOWN[..], &["--save", "other", "--save-every", "5d"]].concat();
    refused(dir, &wrong, 2, &["give a number of events, or a time such as 30s, 10m or 1h"]);
}

#[test]
fn a_disk_that_refuses_the_state_is_tried_again() {
    let dir = trained();
    let dir = dir.path();
    let mut child = serving(dir, &[]);
    served(&mut child, &events(5));
    // In the way of the file that the state is written to.
    let blocked = dir.join("after/state.partial");
    fs::create_dir_all(blocked.join("in the way")).unwrap();
    drop(child.stdin.take());
    thread::sleep(Duration::from_millis(800));
    assert!(child.try_wait().unwrap().is_none(), "the program has ended without its state");
    fs::remove_dir_all(&blocked).unwrap();
    let ended = ended(child);
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{err}");
    assert!(err.contains("trying again for 30 s"), "{err}");
    assert_eq!(known(dir), 5);
}

#[test]
fn bad_lines_are_answered_without_scores_and_counted_and_change_nothing() {
    let dir = trained();
    let dir = dir.path();
    let good = events(4);
    let bad = ["oops", "1,31,29000,0,0,0", "1,77,30004,0,0,0", "1,31,30004,0,inf,0", "99,88,30004,0,0,0"];
    let mut lines = vec!["src,dst,time,a,b,c".to_owned()];
    for (good, bad) in good.iter().zip(bad) {
        lines.extend([good.clone(), bad.to_owned()]);
    }
    lines.push(bad[4].to_owned());
    fs::write(dir.join("lines.csv"), lines.join("\n")).unwrap();
    let words = [&KNOWN[..], &["--input", "lines.csv", "--nodes", "50"]].concat();
    refused(dir, &words, 3, &["lines.csv:3: 1 field"]);
    for batch in ["1", "3"] {
        let with = |more: &[&'static str]| done(dir, &[&words[..], &["--batch", batch], more].concat());
        let ran = with(&["--bad-lines", "skip"]);
        let answers: Vec<&str> = ran.out.lines().collect();
        assert_eq!(answers.len(), lines.len() - 1, "{}", ran.out);
        fs::write(dir.join("good.csv"), good.join("\n")).unwrap();
        let alone = done(dir, &[&KNOWN[..], &["--input", "good.csv", "--batch", batch]].concat()).out;
        let scored: Vec<&str> = answers.iter().step_by(2).take(4).copied().collect();
        assert_eq!(scored, alone.lines().collect::<Vec<_>>());
        let skipped = [answers[1], answers[3], answers[5], answers[7], answers[8]];
        assert_eq!(skipped, [",,,,", "1,31,29000,,", "1,77,30004,,", ",,,,", "99,88,30004,,"]);
        assert!(ran.err.contains("skipped   5 lines, the first: lines.csv:3: 1 field"), "{}", ran.err);
        let objects = with(&["--bad-lines", "skip", "--json"]).out;
        let errors: Vec<String> =
            objects.lines().filter_map(|line| Some(json(line).get("error")?.as_str()?.to_owned())).collect();
        assert!(errors.len() == 5 && errors[1].contains("lines.csv:5:6: the event is"), "{errors:?}");
        let z = with(&["--bad-lines", "skip", "--embeddings"]).out;
        assert!(z.lines().count() == 9 && z.lines().all(|line| line.split(',').count() == 3 + 2 * 8), "{z}");
    }
    // Without a known first row, nothing can be skipped.
    fs::write(dir.join("lines.csv"), "who,what\n0,30,30000,0,0,0\n").unwrap();
    refused(dir, &[&words[..], &["--bad-lines", "skip"]].concat(), 3, &["lines.csv:1: "]);
}
