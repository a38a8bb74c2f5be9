//! `tgnn-bench sweep` and `compare`, from trials to the page that a browser shows.
use crate::support::program::{Ran, done, json, made, program, refused, tgnn};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Returns the words of a sweep over the short training, followed by `more`.
fn sweep<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sweep", "small.toml", "--out", "s"], more].concat()
}

/// Returns the times at which the files of a folder were written last.
fn written(dir: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path(), entry.metadata().unwrap().modified().unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_sweep_trains_every_combination_once_goes_on_where_it_ended_and_is_compared() {
    let dir = made();
    let dir = dir.path();
    let grid = ["--grid", "learning_rate=0.001,0.01", "--seeds", "1,2", "--json"];
    let report = json(&done(dir, &sweep(&grid)).out);
    let lines = report["lines"].as_array().unwrap();
    assert_eq!((lines.len(), &report["metric"]), (2, &"AP".into()));
    assert!(lines.iter().all(|line| line["seeds"] == serde_json::json!([1, 2])), "{report}");
    let val = |line: usize| lines[line]["val"]["mean"].as_f64().unwrap();
    assert!(val(0) >= val(1) && report["best"] == 0 && report["failed"] == serde_json::json!([]));
    // The mean is that of the two runs' summaries.
    let summary =
        |name: &str| json(&fs::read_to_string(dir.join("s").join(name).join("summary.json")).unwrap());
    let rate = lines[0]["settings"]["learning_rate"].as_f64().unwrap();
    let aps = [1, 2].map(|seed| {
        summary(&format!("learning_rate={rate},seed={seed}"))["test"]["transductive"]["ap"].as_f64().unwrap()
    });
    assert!((lines[0]["test"]["AP"]["mean"].as_f64().unwrap() - (aps[0] + aps[1]) / 2.0).abs() < 1e-12);
    assert_ne!(aps[0], aps[1], "seeds differ");
    // The command of the report trains the same again.
    let command = report["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).map(|w| if w == "DIR" { "again" } else { w }).collect();
    done(dir, &words);
    let again = json(&fs::read_to_string(dir.join("again/summary.json")).unwrap());
    assert_eq!(again["test"]["transductive"]["ap"], aps[0]);

    // Finished trials stay as they are; one that is missing, and one that has begun, are trained.
    let kept = dir.join("s/learning_rate=0.001,seed=1");
    let before = written(&kept);
    fs::remove_dir_all(dir.join("s/learning_rate=0.001,seed=2")).unwrap();
    let begun = dir.join("s/learning_rate=0.01,seed=2");
    let whole = summary("learning_rate=0.01,seed=2");
    fs::remove_file(begun.join("summary.json")).unwrap();
    let ran = done(dir, &sweep(&["--grid", "learning_rate=0.001,0.01", "--seeds", "1,2"]));
    assert!(ran.out.contains("4 trials in s, 2 of them finished before"), "{}", ran.out);
    assert!(ran.out.contains("best by validation") && ran.out.contains("tgnn-bench train s/learning_rate="));
    assert_eq!(written(&kept), before);
    assert_eq!(summary("learning_rate=0.01,seed=2")["test"], whole["test"]);

    let compared = json(&done(dir, &["compare", "s", "--as", "json"]).out);
    assert_eq!(compared["lines"][0]["test"], lines[0]["test"]);
    let other = ["--grid", "learning_rate=0.001,0.01", "--seeds", "1,2", "--epochs", "3"];
    refused(dir, &sweep(&other), 2, &["is of another sweep: epochs was 2 there, and is 3 here"]);
}

#[test]
fn a_trial_that_fails_is_reported_and_the_others_go_on() {
    let dir = made();
    let dir = dir.path();
    let words = ["--grid", "learning_rate=0.001,1e300", "--jobs", "2", "--json"];
    let Ran { out, err, .. } = done(dir, &sweep(&words));
    let report = json(&out);
    assert_eq!(report["lines"].as_array().unwrap().len(), 1);
    let failed = &report["failed"][0];
    assert!(
        failed[0].as_str().unwrap().starts_with("learning_rate=1e300,seed=1")
            && failed[1].as_str().unwrap().contains("diverged")
    );
    assert!(err.contains(" of 2  learning_rate=0.001,seed=1  validation 0."), "{err}");
    // If none is left, the sweep fails as its first trial does.
    let ran = tgnn(dir, &["sweep", "small.toml", "--out", "t", "--grid", "learning_rate=1e300"]);
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(
        ran.err.starts_with("error: no trial finished; the first, learning_rate=1e300,seed=1"),
        "{}",
        ran.err
    );
    let ran =
        tgnn(dir, &["sweep", "small.toml", "--data", "none.csv", "--out", "u", "--grid", "batch=50,60"]);
    assert_eq!((ran.code, ran.err.contains("none.csv")), (10, true), "{}", ran.err);
}

#[test]
fn wrong_sweeps_and_comparisons_are_refused_before_anything_is_trained() {
    let dir = made();
    let dir = dir.path();
    for (words, said) in [
        (&["--grid", "batch"][..], "--grid batch; give KEY=LIST"),
        (&["--grid", "=1,2"], "--grid =1,2; give KEY=LIST"),
        (&["--grid", "batch=1,,2"], "`1,,2` has an empty value"),
        (&["--grid", "batch=1,1"], "the grid of batch has 1 twice"),
        (&["--grid", "batch=0"], "batch is 0"),
        (&["--grid", "batch=many"], "batch=many: invalid type"),
        (&["--grid", "tgn.depth=2"], "unknown field `depth`"),
        (&["--grid", "seed=1,2"], "give --seeds 1,2,3"),
        (&["--grid", "protocol=dyglib,tgl"], "cannot be compared: protocol is dyglib in the first and tgl"),
        (&["--random", "batch=5..1"], "random batch: `5..1` is not a range"),
        (&["--random", "batch=log:0..1"], "`log:0..1` is not a range"),
        (&["--grid", "batch=50", "--random", "batch=1..9"], "batch is in the grid, and drawn at random"),
        (&["--trials", "3"], "--trials counts draws, and nothing is drawn; give --random"),
        (&["--seeds", "1,x"], "--seeds 1,x: `x` is not a whole number"),
        (&["--seeds", "1,1"], "seed 1 is given twice"),
        (&["--jobs", "0"], "--jobs 0; give 1 or more"),
        (&["--no-eval"], "leave out --no-eval"),
    ] {
        refused(dir, &sweep(words), 2, &[said]);
    }
    refused(dir, &sweep(&["--space", "none.toml"]), 10, &["none.toml: cannot read"]);
    refused(dir, &["sweep"], 2, &["--out"]);
    refused(dir, &["compare"], 2, &["there is nothing to compare; give run folders"]);
    refused(dir, &["compare", "made"], 2, &["made: is not a run folder: it has no config.toml"]);
    refused(dir, &["compare", "made", "--out", "x.pdf"], 2, &["x.pdf: the ending names no format"]);
    refused(dir, &["compare", "made", "--models", "tgn"], 2, &["--models"]);
    refused(
        dir,
        &["compare", "made", "--epochs", "3"],
        2,
        &["settings are for runs that are still to be trained"],
    );
    refused(dir, &["compare", "--models", "tgn"], 2, &["give their folder, --out"]);
    refused(dir, &["compare", "--models", "tgn,gcn", "--out", "x"], 2, &["model=gcn: "]);
}

#[test]
fn runs_of_different_protocols_are_refused_and_an_unfinished_one_is_left_out() {
    let dir = made();
    let dir = dir.path();
    let train = |more: &[&str]| done(dir, &[&["train", "small.toml"], more].concat());
    train(&["--out", "a"]);
    train(&["--out", "b", "--protocol", "tgl"]);
    refused(
        dir,
        &["compare", "a", "b"],
        2,
        &["a and b cannot be compared: protocol is dyglib in the first and tgl in the second"],
    );
    fs::remove_file(dir.join("b/summary.json")).unwrap();
    let ran = done(dir, &["compare", "a", "b", "--out", "table.md"]);
    let note = "note: left out: b: the run has not finished: 2 of 2 epochs; go on with `tgnn-bench train b/config.toml";
    assert!(ran.err.starts_with(note) && ran.err.matches('\n').count() == 1, "{}", ran.err);
    assert_eq!(ran.out, "wrote table.md\n");
    let table = fs::read_to_string(dir.join("table.md")).unwrap();
    assert!(table.contains("| model | seeds | AP | AUC |") && table.contains("\n| tgn | 1 | 0."), "{table}");
    refused(dir, &["compare", "b"], 9, &["b: the run has not finished"]);
    refused(dir, &["compare", "a", "c"], 10, &["c: there is no such folder"]);
}

/// Waits until `ready`, for a minute at most.
fn until(ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[cfg(unix)]
fn an_interrupted_sweep_ends_its_trials_and_goes_on_later() {
    let dir = made();
    let dir = dir.path();
    // So many epochs that the trial does not end by itself.
    let words = ["--grid", "tgn.layers=1", "--epochs", "1000000"];
    for signal in ["TERM", "KILL"] {
        let mut child = Command::new(program())
            .args(sweep(&words))
            .current_dir(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let manifest = dir.join("s/tgn.layers=1,seed=1/checkpoint/manifest.json");
        until(|| manifest.exists());
        let id = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let code = child.wait().unwrap().code();
        if signal == "TERM" {
            assert_eq!(code, Some(130), "{said}");
            assert_eq!(said, "interrupted: 0 of 1 trials are finished; the same command goes on\n");
        }
        // The trial has ended: its epochs grow no more.
        let epochs =
            || fs::read_to_string(dir.join("s/tgn.layers=1,seed=1/metrics.jsonl")).unwrap_or_default();
        until(|| {
            let before = epochs();
            std::thread::sleep(Duration::from_millis(300));
            before == epochs()
        });
    }
    let trial = "s/tgn.layers=1,seed=1";
    refused(dir, &["compare", trial], 9, &["the run has not finished: ", "of 1000000 epochs"]);
}

#[test]
fn models_are_compared_by_name_with_stage_times_and_lanes() {
    let dir = made();
    let dir = dir.path();
    let words =
        ["compare", "--models", "tgn,jodie", "--seeds", "1,2", "--config", "small.toml", "--out", "r"];
    let ran = done(dir, &[&words[..], &["--timeline", "--plan", "prefetch", "--as", "json"]].concat());
    let compared = json(&ran.out);
    assert_eq!(compared["differing"], serde_json::json!(["model"]));
    assert_eq!(compared["common"]["plan"], "prefetch");
    let stages = compared["lines"][0]["stages"].as_array().unwrap();
    assert!(stages.iter().any(|s| s["stage"] == "sample" && s["lane"] == 1), "{stages:?}");
    assert!(stages.iter().all(|s| s["seconds"].as_f64().unwrap() > 0.0), "{stages:?}");
    assert!(dir.join("r/model=jodie,seed=2/timeline.json").is_file());

    done(dir, &["compare", "r", "--out", "page.html"]);
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(!page.contains("/*script*/") && !page.contains("/*content*/"));
    // Without an address there is nothing to request. The name of SVG is none.
    assert!(
        page.contains(
            "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\""
        )
    );
    let addresses = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=", "url(", "@import", "<link"] {
        assert!(!addresses.contains(word), "the page has `{word}`");
    }
    let Some(dom) = in_browser(dir, "page.html") else {
        println!("skipped: no Chromium, see scripts/fetch-chromium");
        return;
    };
    let count = |text: &str| dom.matches(text).count();
    assert!(dom.contains("<p id=\"failed\" role=\"alert\" hidden=\"\"></p>"), "the script has failed: {dom}");
    assert_eq!(count("<tr class=\"best\" data-line=\"0\">"), 1, "{dom}");
    assert_eq!(count("data-line=\"1\"><td"), 1, "{dom}");
    // Two charts with two lines and their bands over seeds.
    assert_eq!((count("class=\"curve\""), count("class=\"band\"")), (4, 4));
    assert_eq!(count("class=\"dot\""), 4);
    assert!(count("class=\"part\"") >= 8, "the stages of two lines");
    assert_eq!(count("class=\"timeline\""), 2);
    assert!(count("class=\"span\"") > 50 && dom.contains(">lane 2</text>"));
}

/// Opens a page in headless Chromium, where nothing may appear in the console: no error, and no request that
/// the page's policy forbids, which is any. Returns the document after its script has run; `None` without
/// Chromium.
fn in_browser(dir: &Path, page: &str) -> Option<String> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let asked = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })?;
    let ran = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--window-size=1280,1600",
            "--virtual-time-budget=5000",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", dir.join(page).display()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let console: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    Some(String::from_utf8(ran.stdout).unwrap())
}
