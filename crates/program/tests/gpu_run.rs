//! `scripts/gpu-run` without a GPU: what it leaves when it is killed, what it does with commands that hang,
//! and what it prints. The program is a script here.
use crate::support::{launcher::is_alive, paths::root};
use serde_json::Value;
use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What the script prints for a training.
const EPOCHS: &str = r#"{"plan": "overlap", "epochs": [{"train_loss": 1.5, "train_seconds": 0.2, "graphs_captured": 1},
  {"train_loss": 1.25, "train_seconds": 0.1, "graphs_captured": 0}]}"#;

/// The longest summary, in characters.
const SUMMARY: usize = 9_000;

/// A folder with a bundle whose program is a script, and with the results.
struct Bundle(TempDir);

/// How a call of `gpu-run` ended.
struct Ran {
    code: Option<i32>,
    out: String,
}

impl Ran {
    fn summary(&self) -> &str {
        self.out.split("######## summary\n").nth(1).unwrap_or_else(|| panic!("no summary: {}", self.out))
    }
}

/// Whether there is Python, which `gpu-run` needs.
fn python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if !there {
        println!("skipped: no python3");
    }
    there
}

impl Bundle {
    /// Makes a bundle. `train` and `kernels` are the script's commands for a training and for the kernels; in
    /// them `$1` is the folder, and `$*` has the arguments of the program, too.
    fn new(train: &str, kernels: &str) -> Self {
        let bundle = Bundle(tempfile::tempdir().unwrap());
        let dir = bundle.0.path().display();
        let script = format!(
            "#!/bin/sh\nset -- '{dir}' \"$@\"\ncase \"$2\" in\n  models) echo \"$4-model\" ;;\n  train) {train} ;;\n  \
             kernels) {kernels} ;;\nesac\n"
        );
        let program = bundle.path("tgnn-bench");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(bundle.path("epochs.json"), EPOCHS).unwrap();
        bundle
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// Returns the text of a file; empty if there is none.
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
    /// Returns a call of `gpu-run`, whose results go to the folder `out`.
    fn call(&self, words: &[&str]) -> Command {
        let mut command = Command::new("python3");
        command.arg("-B").arg(root().join("scripts/gpu-run")).args(words);
        command.arg("--bundle").arg(self.0.path()).env("OUT", self.path("out")).env("TMPDIR", self.0.path());
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }
    fn run(&self, words: &[&str]) -> Ran {
        let ran = self.call(words).output().unwrap();
        Ran { code: ran.status.code(), out: String::from_utf8(ran.stdout).unwrap() }
    }
    /// Returns the lines of the results.
    fn results(&self) -> Vec<Value> {
        self.text("out/results.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Waits until `holds`, for at most ten seconds.
fn wait_until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "it takes too long");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_has_ended_before_the_run_is_killed_is_on_disk() {
    if !python() {
        return;
    }
    thread::scope(|scope| {
        for ended in [2, 3, 5, 8] {
            scope.spawn(move || killed_after(ended, RandomState::new().build_hasher().finish() % 60));
        }
    });
}

/// Kills `gpu-run` some milliseconds after a number of its commands have ended, and reads what is left.
fn killed_after(ended: usize, milliseconds: u64) {
    let bundle = Bundle::new("sleep 0.02; cat $1/epochs.json; echo >> $1/ended", "");
    let commands_ended = || bundle.text("ended").lines().count();
    let mut child = bundle.call(&["ranks", "tgn"]).stdout(Stdio::null()).spawn().unwrap();
    wait_until(|| commands_ended() >= ended);
    thread::sleep(Duration::from_millis(milliseconds));
    child.kill().unwrap();
    child.wait().unwrap();
    let commands = commands_ended();
    let when = format!("killed {milliseconds} ms after {ended} commands");
    let text = bundle.text("out/results.jsonl");
    let mut lines: Vec<_> = text.split_inclusive('\n').map(serde_json::from_str::<Value>).collect();
    // Only the last line can be torn.
    lines.pop_if(|line| line.is_err());
    let lines: Vec<Value> = lines.into_iter().map(|line| line.expect(&when)).collect();
    assert!(lines[0]["date"].is_string() && lines[0]["steps"][1] == "tgn", "{when}: {text}");
    // The run may have been killed before it wrote the line of the command that had just ended.
    assert!(lines.len() >= commands && lines[1..].iter().all(|line| line["well"] == true), "{when}: {text}");
    assert_eq!(lines[1]["result"]["epochs"][1]["train_loss"], 1.25, "{when}: {text}");
    let log = bundle.text("out/log.txt");
    assert!(
        log.contains("== ranks/auto, at ") && log.contains("-- ranks/auto: exit status 0"),
        "{when}: {log}"
    );
    let summary = bundle.text("out/summary.txt");
    assert!(summary.contains("100.00 ms an epoch"), "{when}: {summary}");
}

#[test]
fn a_command_over_its_limit_is_killed_with_all_that_it_started_and_the_rest_runs() {
    if !python() {
        return;
    }
    let hangs = "case \"$*$TGNN_EXCHANGE\" in\n    *sven*|*words*) sleep 600 & echo $! >> $1/pids; wait ;;\n    *) cat $1/epochs.json ;;\n  esac";
    let bundle = Bundle::new(hangs, "");
    let ran = bundle.run(&["ranks", "tgn", "--limit", "0.7"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let pids: Vec<i32> = bundle.text("pids").lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    wait_until(|| !pids.iter().any(|pid| is_alive(*pid)));
    let results = bundle.results();
    let of =
        |name: &str| results.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!((&of("sven")["status"], &of("sven")["well"]), (&"killed after 1 s".into(), &false.into()));
    assert!(of("auto")["well"] == true && of("tgn 200")["well"] == true, "{}", ran.out);
    // What may hang is told, and does not count.
    assert!(ran.summary().contains("FAILED auto by words, killed after"), "{}", ran.summary());
    assert!(ran.summary().contains("failed: ranks/sven\n"), "{}", ran.summary());
}

#[test]
fn a_run_that_is_asked_to_stop_kills_its_command_and_still_tells_what_it_did() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("sleep 600 & echo $! > $1/pid; wait", "");
    let child = bundle.call(&["ranks", "tgn"]).stdout(Stdio::piped()).spawn().unwrap();
    wait_until(|| bundle.text("pid").ends_with('\n'));
    // SAFETY: sends a signal to a child.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let ran = child.wait_with_output().unwrap();
    let ran = Ran { code: ran.status.code(), out: String::from_utf8(ran.stdout).unwrap() };
    let pid = bundle.text("pid").trim().parse().unwrap();
    wait_until(|| !is_alive(pid));
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.summary().contains("failed: stopped by SIGTERM, ranks/auto\n"), "{}", ran.summary());
    assert!(
        ran.summary().contains("ranks/sven (no time left), ")
            && ran.summary().contains("tgn (no time left)\n")
    );
}

#[test]
fn the_summary_is_short_however_long_the_outputs_are_and_names_what_failed() {
    if !python() {
        return;
    }
    let long = "x".repeat(700);
    let kernels = "cat $1/kernels.json; cat $1/noise >&2; echo 'error: 200 cases are off' >&2; exit 5";
    let bundle = Bundle::new("cat $1/noise >&2; cat $1/epochs.json", kernels);
    let worst = |i: usize| if i == 0 { "6.4e301" } else { "1.5" };
    let op = |i: usize| {
        format!(r#"{{"op": "op_{i}_{long}", "cases": 9, "worst": {}, "off": ["{long}"]}}"#, worst(i))
    };
    let ops = (0..200).map(op).collect::<Vec<_>>().join(", ");
    let start = r#"{"launching": "early", "verified": false, "cases": 1800, "not_tried": []"#;
    fs::write(bundle.path("kernels.json"), format!("{start}, \"accuracy\": [{ops}]}}")).unwrap();
    fs::write(bundle.path("noise"), format!("{long}\n").repeat(1_000)).unwrap();
    let ran = bundle.run(&["verify", "ranks", "tgn", "snapshots"]);
    let (summary, characters) = (ran.summary(), ran.summary().chars().count());
    assert!(ran.code == Some(1) && characters < SUMMARY, "{characters} characters: {summary}");
    assert!(ran.out.ends_with(summary), "something follows the summary");
    assert!(summary.contains("failed: verify/f32, verify/f32 before, verify/f32 late\n"), "{summary}");
    // Long names are wrapped.
    let told: String = bundle.text("out/summary.txt").split_whitespace().collect();
    assert!(told.contains(&format!("op_0_{long}>999op_1_{long}1.50")), "{told}");
    // The other steps keep their lines.
    assert!(summary.contains(" lines in summary.txt\n== ranks"), "{summary}");
    assert!(summary.contains("  tgn 200                   100.00 ms an epoch"), "{summary}");
    assert_eq!(bundle.results().iter().filter(|line| line["well"] == false).count(), 3);
    assert!(bundle.text("out/log.txt").len() < 2_000_000);
}

#[test]
fn a_sanitizer_that_finds_nothing_in_a_command_that_fails_is_told_apart_from_one_with_findings() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("", "");
    let tool = bundle.path("compute-sanitizer");
    let status = "case \"$*\" in\n  *planted*) exit 9 ;;\n  *memcheck*) exit 5 ;;\n  *racecheck*) exit 9 ;;\n  \
                  *synccheck*) kill -9 $$ ;;\nesac\n";
    fs::write(&tool, format!("#!/bin/sh\n{status}")).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bundle.0.path().display(), std::env::var("PATH").unwrap());
    let ran = bundle.call(&["sanitizers"]).env("PATH", path).output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    for line in [
        "memcheck: planted mistake found; kernels without findings, but exit status 5\n",
        "racecheck: planted mistake found; kernels of head_linear NOT CLEAN\n",
        "synccheck: planted mistake found; kernels of head_linear not judged: exit status -9\n",
        "initcheck: planted mistake found; kernels of temporal clean\n",
    ] {
        assert!(out.contains(line), "{line} is not in {out}");
    }
}

/// What stands for CUPTI: it has 24 steps of 100 us on two streams, of which one kernel overlaps another.
const CUPTI: &str = r#"
#include <cstdint>
#include <cstring>
using Requested = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);
static Requested requested;
static Completed completed;
static const size_t SIZE = 160;
static uint8_t* add(uint8_t* to, uint64_t start, uint64_t end, uint32_t stream, const char* name) {
  uint32_t kind = 10;
  memset(to, 0, SIZE);
  memcpy(to, &kind, 4), memcpy(to + 16, &start, 8), memcpy(to + 24, &end, 8);
  memcpy(to + 48, &stream, 4), memcpy(to + 104, &name, 8);
  return to + SIZE;
}
extern "C" int cuptiActivityRegisterCallbacks(Requested r, Completed c) { requested = r, completed = c; return 0; }
extern "C" int cuptiActivityEnable(uint32_t kind) { return kind != 10; }
extern "C" int cuptiActivityGetNextRecord(uint8_t* of, size_t valid, void** record) {
  size_t at = *record ? static_cast<uint8_t*>(*record) - of + SIZE : 0;
  *record = of + at;
  return at < valid ? 0 : 12;
}
extern "C" int cuptiActivityFlushAll(uint32_t) {
  uint8_t *of, *to;
  size_t size, most;
  requested(&of, &size, &most);
  to = of;
  for (uint64_t step = 0; step < 24; step++) {
    uint64_t start = 1000000 + 100000 * step;
    to = add(to, start, start + 40000, 13, "gru_memory");
    to = add(to, start + 10000, start + 60000, 14, "unique");
    to = add(to, start + 50000, start + 90000, 13, "adam");
  }
  completed(nullptr, 0, of, size, to - of);
  return 0;
}
"#;

#[test]
fn a_timeline_of_kernels_is_recorded_by_a_library_that_the_driver_loads() {
    if !python() || Command::new("g++").arg("--version").output().is_err() {
        return println!("skipped: no g++");
    }
    // The driver would load the library.
    let load = "import ctypes, os; ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()";
    let bundle = Bundle::new(&format!("python3 -c \"{load}\"; cat $1/epochs.json"), "");
    fs::write(bundle.path("cupti.cpp"), CUPTI).unwrap();
    let compile = |from: PathBuf, to: &str| {
        let flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o"];
        assert!(
            Command::new("g++").args(flags).arg(bundle.path(to)).arg(from).status().unwrap().success(),
            "{to}"
        );
    };
    compile(root().join("scripts/timeline.cpp"), "libtimeline.so");
    compile(bundle.path("cupti.cpp"), "libcupti.so");
    let mut command = bundle.call(&["timeline"]);
    let ran = command.env("TGNN_CUPTI", bundle.path("libcupti.so")).output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    let step = "a step of 100.0 us (4 steps, 2 streams): lane 13 busy 80.0, lane 14 busy 50.0, several at once \
                40.0, none 10.0 us";
    assert!(ran.status.success() && out.contains("nsys: not on this machine"), "{out}");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(&out).contains(step), "{out}");
    assert!(flat(&out).contains("adam (lane 13) 1 x 40.0, after a gap of 10.0"), "{out}");
    assert_eq!(bundle.text("out/timeline.csv").lines().count(), 12);
}

#[test]
fn a_timeline_that_cannot_be_recorded_fails_the_run() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("cat $1/epochs.json", "");
    let ran = bundle.run(&["timeline"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.summary().contains("no timeline: there is neither nsys nor libtimeline.so"), "{}", ran.out);
}

#[test]
fn a_change_that_changes_losses_is_found_when_both_sides_are_measured() {
    if !python() {
        return;
    }
    let before = "case \"$TGNN_BEFORE\" in\n    order) sed s/1.25/1.26/ $1/epochs.json ;;\n    \
                  *) cat $1/epochs.json ;;\n  esac";
    let bundle = Bundle::new(before, "");
    let ran = bundle.run(&["switches", "--small"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(
        ran.summary().contains("failed: switches/tgn 600, before order, switches/tgn 4000, before order"),
        "{}",
        ran.out
    );
    assert!(
        ran.summary().contains("before small        100.00 ms an epoch,  +0.00 %  (100.00)"),
        "{}",
        ran.out
    );
    assert!(ran.summary().contains("before all "), "{}", ran.out);
}

#[test]
fn source_lines_with_most_samples_are_told_of_what_ncu_has_counted() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("", "");
    let script = r##"#!/bin/sh
case "$*" in
  *--import-source*) while [ "$1" != --export ]; do shift; done; echo report > "$2.ncu-rep" ;;
  *'--page raw'*) printf '"ID","Kernel Name","gpu__time_duration.sum","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
"","","ns","inst"
"0","spmm_rows","2,100","1.5"
' ;;
  *'--page source'*) printf '"Kernel Name","spmm_rows"
"#","Source","Warp Stall Sampling (All Samples)"
"7","  a += b;","30"
"8","c();","10"
' ;;
esac
"##;
    let tool = bundle.path("ncu");
    fs::write(&tool, script).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bundle.0.path().display(), std::env::var("PATH").unwrap());
    let ran = bundle.call(&["ncu"]).env("PATH", path).output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{out}");
    assert!(out.contains("spmm_rows: ns 2,100; waits a warp: wait 1.50"), "{out}");
    assert!(out.contains("spmm, 75 % of samples: 7 a += b;"), "{out}");
    assert!(bundle.path("out/ncu.tar.xz").exists());
}

#[test]
fn the_default_steps_take_no_longer_than_the_gpu_is_lent() {
    if !python() {
        return;
    }
    let ran =
        Command::new("python3").arg("-B").arg(root().join("scripts/gpu-run")).arg("--list").output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let seconds: u32 = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("call ")?.split_once(": ")?.1.strip_suffix(" s")?.parse::<u32>().ok()
        })
        .sum();
    assert!((300..=430).contains(&seconds), "{text}");
}

#[test]
fn what_has_no_time_left_is_named() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("sleep 0.4; cat $1/epochs.json", "");
    let ran = bundle.run(&["ranks", "tgn", "--budget", "3.3"]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let not_run = "ranks/auto by words (no time left), tgn (no time left)\n";
    assert!(ran.summary().contains(not_run), "{}", ran.summary());
    let last = bundle.results().pop().unwrap();
    assert_eq!(last["not_run"].as_array().unwrap().last().unwrap(), "tgn (no time left)");
    assert!(last["failed"].as_array().unwrap().is_empty(), "{last}");
}

#[test]
fn a_word_that_is_no_step_is_refused_in_one_line() {
    if !python() {
        return;
    }
    let bundle = Bundle::new("", "");
    let ran = bundle.call(&["tests", "walk"]).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(2) && said.contains("there is no step `walk`"), "{said}");
    assert!(!bundle.path("out").exists());
}

#[test]
fn epochs_that_capture_graphs_are_not_timed() {
    if !python() {
        return;
    }
    let chosen = |epochs: &str, device: &str| {
        let text = format!(
            "import sys; sys.path.insert(0, 'benches/peers'); import compare; \
             print(compare.seconds({{'epochs': {epochs}}}, '{device}'))"
        );
        let ran = Command::new("python3").args(["-B", "-c", &text]).current_dir(root()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    let told =
        "[{'train_seconds': s, 'graphs_captured': n} for s, n in [(9, 2), (5, 1), (2, 0), (6, 1), (3, 0)]]";
    let untold = "[{'train_seconds': s} for s in (9, 5, 2, 3)]";
    assert_eq!(chosen(told, "cuda"), "[2, 3]");
    assert_eq!(chosen("[{'train_seconds': s, 'graphs_captured': 0} for s in (9, 5, 2)]", "cuda"), "[5, 2]");
    assert_eq!(chosen(untold, "cuda"), "[2, 3]");
    assert_eq!(chosen(untold, "cpu"), "[5, 2, 3]");
    assert_eq!(chosen("[{'train_seconds': 9}]", "cuda"), "[9]");
}
