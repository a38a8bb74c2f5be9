//! `tgnn-bench profile`: alone and under tools, which are scripts here; and the ranges that profilers see.
use crate::support::{
    paths::root,
    program::{Ran, json, made, program, refused},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The settings of a short training in a folder that `made` has made.
const SMALL: [&str; 4] = ["--config", "small.toml", "--warm-up", "3"];

/// What Nsight Compute writes for two runs of `add`: written by hand from the format of its CSV
/// (`--page raw`, `--nvtx`, `--print-units base`), for want of a GPU.
const CSV: &str = r#"==PROF== Connected to process 4711 (/tgnn-bench)
==PROF== Profiling "add" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__occupancy_limit_blocks","launch__occupancy_limit_registers","launch__occupancy_limit_shared_mem","launch__occupancy_limit_warps","launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","","","byte","%","ns","block","block","block","block","register/thread","%","%"
"0","4711","tgnn-bench","127.0.0.1","7  ""<default domain>:profile add:none:none:none:none:none:none""  ""<default domain>:embed:none:none:none:none:none:none""  ""<default domain>:add:none:none:none:none:none:none"" ","","add","1","13","(256, 1, 1)","(581, 1, 1)","0","9.0","1,784,400","40.5","3,000","32","8","32","8","24","12.25","61"
"1","4711","tgnn-bench","127.0.0.1","7  ""<default domain>:profile add:none:none:none:none:none:none""  ""<default domain>:embed:none:none:none:none:none:none""  ""<default domain>:add:none:none:none:none:none:none"" ","","add","1","13","(256, 1, 1)","(581, 1, 1)","0","9.0","1,784,400","40.5","5,000","32","8","32","8","24","12.25","61"
"#;

/// Scripts that stand for the tools: each writes its arguments to `$SEEN`, and runs the program.
const NCU: &str = r#"#!/bin/sh
echo "$@" > "$SEEN"
while [ "$1" != --log-file ]; do shift; done
log=$2; shift 2
"$@" || exit
cp "$CSV" "$log"
"#;
const NSYS: &str = r#"#!/bin/sh
echo "$@" > "$SEEN"
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
"$@" && touch "$out.nsys-rep"
"#;
const SANITIZER: &str = r#"#!/bin/sh
echo "$@" > "$SEEN"
while [ "$1" != --error-exitcode ]; do shift; done
shift 2
"$@" && exit ${FAULTS:-0}
"#;

/// A folder with tools.
struct Tools {
    dir: TempDir,
}

impl Tools {
    fn new(dir: TempDir) -> Self {
        let tools = Tools { dir };
        fs::create_dir(tools.path("bin")).unwrap();
        for (name, script) in [("ncu", NCU), ("nsys", NSYS), ("compute-sanitizer", SANITIZER)] {
            tools.install(name, script);
        }
        fs::write(tools.path("add.csv"), CSV).unwrap();
        tools
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn install(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    /// Runs `profile` on the emulated device with the tools in `PATH`.
    fn profile(&self, words: &[&str]) -> Ran {
        self.with_env(words, &[])
    }
    fn with_env(&self, words: &[&str], env: &[(&str, &str)]) -> Ran {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let ran = Command::new(program())
            .arg("profile")
            .args(words)
            .args(["--device", "emu"])
            .current_dir(self.dir.path())
            .env("PATH", path)
            .env("SEEN", self.path("seen"))
            .env("CSV", self.path("add.csv"))
            .env("TGNN_EMU_PROFILE", self.path("kernels"))
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: ran.status.code().unwrap(), out: text(ran.stdout), err: text(ran.stderr) }
    }
    /// Runs `profile`, which must fail in one line that has all of `texts`.
    fn refused(&self, words: &[&str], code: i32, texts: &[&str]) {
        let ran = self.profile(words);
        assert_eq!((ran.code, ran.err.lines().count()), (code, 1), "{words:?}: {}", ran.err);
        for text in texts {
            assert!(ran.err.starts_with("error: ") && ran.err.contains(text), "no `{text}` in {}", ran.err);
        }
    }
    /// Returns the arguments that the last tool got.
    fn seen(&self) -> String {
        fs::read_to_string(self.path("seen")).unwrap()
    }
    /// Returns the kernels that were launched in the range of profilers, with their numbers, and forgets
    /// them.
    fn kernels(&self) -> BTreeMap<String, usize> {
        let names = fs::read_to_string(self.path("kernels")).unwrap_or_default();
        let _ = fs::remove_file(self.path("kernels"));
        let mut kernels = BTreeMap::new();
        names.lines().for_each(|name| *kernels.entry(name.to_owned()).or_default() += 1);
        kernels
    }
}

#[test]
fn an_op_is_profiled_on_the_cpu_in_the_words_of_the_table_for_gpus() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = |words: &[&str]| {
        crate::support::program::done(
            dir.path(),
            &[&["profile", "--threads", "1", "--runs", "3"], words].concat(),
        )
    };
    let table = cpu(&["linear", "--case", "30x20x10x0x0x0", "--cold"]).out;
    assert!(
        table.contains(", matmul in f32, caches cold\ncopy ") && table.contains("copy within the cache ")
    );
    let (head, row) = table.split_once("\n\n").unwrap().1.split_once('\n').unwrap();
    let columns = "op runs us share GB/s of copy GFLOP/s of product limit x floor place";
    assert_eq!(head.split_whitespace().collect::<Vec<_>>().join(" "), columns);
    assert!(row.starts_with("linear  ") && row.ends_with("linear 30x20x10x0x0x0\n"), "{row}");
    let found = json(&cpu(&["gru_memory_grad", "--case", "50x20x8x3x8x0", "--json"]).out);
    let op = &found["ops"][0];
    assert_eq!(
        (&op["op"], &op["runs"], &found["caches"]),
        (&"gru_memory_grad".into(), &3.into(), &"warm".into())
    );
    assert_eq!(found["ops"].as_array().unwrap().len(), 1, "nothing but the op");
    assert!(op["times_floor"].as_f64().unwrap() > 0.0 && op["us"].as_f64().unwrap() > 0.0, "{op}");
}

#[test]
fn what_cannot_be_profiled_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], texts: &[&str]| {
        refused(dir.path(), &[&["profile"], words].concat(), 2, texts);
    };
    refused(&["gru_memry"], &["there is no op `gru_memry`; did you mean gru_memory?"]);
    refused(&["head"], &["did you mean head_linear, mean?"]);
    refused(&["nonsense"], &["give step, epoch, or one of accumulate, adam, add, ", "write_rows"]);
    refused(&["add", "--case", "3x4"], &["--case 3x4 has 2 sizes, and add has 3", "is --case 700x699x3"]);
    refused(&["add", "--case", "3by4"], &["--case 3by4 is not sizes with an x between them"]);
    refused(&["linear", "--case", "3x4x5x9x9x9"], &["linear 3x4x5x9x9x9 do not suit each other"]);
    refused(&["add", "--runs", "0"], &["--runs 0"]);
    refused(&["add", "--batch", "60"], &["`batch` is a setting of a training, and `add` is an op"]);
    refused(&["step", "--case", "1x1"], &["--case 1x1 is for an op, and this is `step`"]);
    refused(&["epoch", "--cold"], &["--cold is for an op"]);
    refused(&["step", "--ranks", "2"], &["one rank is profiled", "--ranks"]);
    let code = |words: &[&str], code, texts: &[&str]| {
        crate::support::program::refused(dir.path(), &[&["profile"], words].concat(), code, texts);
    };
    code(&["add", "--with", "ncu", "--device", "cpu"], 5, &["--with ncu is for GPUs", "--device cuda"]);
    // Without a GPU that is missing first; with one, the tool is.
    let ran =
        Command::new(program()).args(["profile", "add", "--with", "nsys"]).env("PATH", "").output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), said.lines().count()), (Some(5), 1), "{said}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_profiled_range_has_the_kernels_of_the_op_and_no_others() {
    let tools = Tools::new(tempfile::tempdir().unwrap());
    let linear = ["linear", "--case", "30x40x10x1x1x0", "--runs", "3"];
    assert_eq!(tools.profile(&[&linear[..], &["--cold"]].concat()).code, 0);
    assert_eq!(tools.kernels(), BTreeMap::from([("linear".into(), 3)]), "none of its inputs or gradients");
    assert_eq!(tools.profile(&[&linear[..], &["--with", "nsys", "--out", "here"]].concat()).code, 0);
    assert_eq!(tools.kernels(), BTreeMap::from([("linear".into(), 3)]));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn steps_are_profiled_after_those_that_warm_up_with_the_row_counts_of_the_cpu() {
    let tools = Tools::new(made());
    let words = [&["step", "--runs", "2", "--json"][..], &SMALL].concat();
    let emulated = tools.profile(&words);
    assert_eq!(emulated.code, 0, "{}", emulated.err);
    let kernels = tools.kernels();
    assert_eq!(kernels["next_batch"], 2, "each step has one: {kernels:?}");
    let per_op = |text: &str| -> BTreeMap<String, [Value; 3]> {
        let ops = json(text)["ops"].as_array().unwrap().clone();
        let numbers = |op: &Value| ["runs", "bytes", "flops"].map(|key| op[key].clone());
        ops.iter().map(|op| (op["op"].as_str().unwrap().to_owned(), numbers(op))).collect()
    };
    let cpu = crate::support::program::done(tools.dir.path(), &[&["profile"], &words[..]].concat());
    let mut of_device = per_op(&emulated.out);
    // A device prepares the messages of memory in an op of their own, a step ahead.
    assert_eq!(of_device.remove("memory_messages").unwrap()[0], 2);
    assert_eq!(of_device, per_op(&cpu.out), "the same runs, bytes and operations");
    assert!(per_op(&cpu.out).len() > 20);
    for op in json(&emulated.out)["ops"].as_array().unwrap() {
        let of_shapes = op["shapes"].as_array().unwrap();
        assert_eq!(of_shapes.iter().map(|s| s["runs"].as_u64().unwrap()).sum::<u64>(), op["runs"], "{op}");
    }
    // Up from depth 2 x 4 to 8 columns, and down: `small.toml` has two heads.
    let ops = json(&emulated.out)["ops"].clone();
    let head_linear = ops.as_array().unwrap().iter().find(|op| op["op"] == "head_linear").unwrap();
    assert!(head_linear["shapes"].as_array().unwrap().len() > 1, "{head_linear}");
    let late = ["step", "--config", "small.toml", "--warm-up", "100"];
    tools.refused(&late, 2, &["an epoch has no step after the first 100; give a smaller --warm-up"]);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn the_counters_of_nsight_compute_become_a_table_of_ops_and_their_kernels() {
    let tools = Tools::new(tempfile::tempdir().unwrap());
    let words = ["add", "--case", "10x10x100", "--with", "ncu", "--runs", "1"];
    let ran = tools.profile(&words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let seen = tools.seen();
    let flags = "--profile-from-start off --nvtx --csv --page raw --print-units base --cache-control none \
                 --clock-control none --metrics gpu__time_duration.sum,";
    assert!(seen.starts_with(flags) && seen.contains(" profile add --case 10x10x100 --with ncu"), "{seen}");
    assert!(ran.out.starts_with(&format!("{} --profile-from-start", tools.path("bin/ncu").display())));
    let (op, kernel) = ran.out.split_once("\nadd  ").unwrap().1.split_once("\n  add  ").unwrap();
    let words_of = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Two launches, of 3 and 5 us, in the only run of the op.
    assert_eq!((words_of(op)[0].as_str(), words_of(op).len()), ("8.0", 2), "{op}");
    assert_eq!(words_of(kernel), "2 5.0 40 % 12 % 61 % 24 registers memory".split(' ').collect::<Vec<_>>());
    assert!(!tools.kernels().is_empty());

    let cold = tools.profile(&[&words[..], &["--cold", "--json"]].concat());
    assert!(tools.seen().contains("--cache-control all"));
    let found = json(&cold.out);
    let kernel = &found["ops"][0]["kernels"][0];
    assert_eq!((&found["caches"], &kernel["dram_bytes"]), (&"cold".into(), &1_784_400.0.into()), "{found}");
    assert_eq!((&kernel["held_by"], &kernel["limit"]), (&"registers".into(), &"memory".into()));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn nsight_systems_and_the_sanitizer_say_what_they_have_found() {
    let tools = Tools::new(made());
    let step = [&["step", "--runs", "1", "--with", "nsys"][..], &SMALL].concat();
    let ran = tools.profile(&step);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.ends_with("\nnsys stats -r nvtx_kern_sum profile-step.nsys-rep\n"), "{}", ran.out);
    let flags = "profile -t cuda,nvtx -c cudaProfilerApi --capture-range-end stop --force-overwrite true -o";
    assert!(tools.seen().starts_with(flags), "{}", tools.seen());
    assert_eq!(tools.kernels()["next_batch"], 1);

    let add = ["add", "--case", "1x1x1", "--with", "sanitizer", "--tool", "racecheck"];
    let ran = tools.profile(&add);
    assert!(
        ran.code == 0 && ran.out.ends_with("\nracecheck of compute-sanitizer found nothing\n"),
        "{}",
        ran.out
    );
    assert!(tools.seen().starts_with("--tool racecheck --error-exitcode 100 "), "{}", tools.seen());
    let ran = tools.with_env(&add, &[("FAULTS", "100")]);
    assert_eq!((ran.code, ran.err.lines().count()), (5, 1), "{}", ran.err);
    assert!(ran.err.contains("compute-sanitizer found faults, which it lists above"), "{}", ran.err);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_tool_that_is_missing_fails_or_may_not_work_gives_one_line() {
    let tools = Tools::new(tempfile::tempdir().unwrap());
    let ncu = ["add", "--case", "1x1x1", "--with", "ncu"];
    let refused = |script: &str, texts: &[&str]| {
        tools.install("ncu", script);
        tools.refused(&ncu, 5, texts);
    };
    refused("#!/bin/sh\necho '==ERROR== no such option'\nexit 1\n", &["ncu failed", "no such option"]);
    let denied =
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access GPU Performance Counters";
    refused(
        &NCU.replace("cp \"$CSV\"", &format!("echo '{denied}' >")),
        &["may not read the GPU's counters (ERR_NVGPUCTRPERM)", "NVreg_RestrictProfilingToAdminUsers=0"],
    );
    refused(
        &NCU.replace("cp \"$CSV\"", "echo '==WARNING== No kernels were profiled.' >"),
        &["ncu wrote no table of kernels; it said: ==WARNING== No kernels were profiled."],
    );
    refused(&NCU.replace("cp \"$CSV\"", "head -4 \"$CSV\" >"), &["ncu saw no kernel within the range"]);
    let renamed = "sed s/dram__bytes.sum/dram__bytes_all/ \"$CSV\" >";
    refused(
        &NCU.replace("cp \"$CSV\"", renamed),
        &["profile-add.csv: ncu's CSV has no column `dram__bytes.sum`"],
    );
    // What was measured is not lost.
    assert!(fs::read_to_string(tools.path("profile-add.csv")).unwrap().contains("dram__bytes_all"));
    let missing = "sed 's/40.5/n\\/a/' \"$CSV\" >";
    refused(&NCU.replace("cp \"$CSV\"", missing), &["ncu measured no dram__throughput", "`n/a`"]);
    // What fails inside of the tool keeps its exit code.
    tools.install("ncu", NCU);
    let step = ["step", "--data", "none.csv", "--with", "ncu"];
    tools.refused(&step, 10, &["none.csv: cannot open"]);
    fs::remove_file(tools.path("bin/ncu")).unwrap();
    tools.refused(&ncu, 5, &["ncu is not in PATH; install Nsight Compute"]);
    fs::write(tools.path("bin/nsys"), NSYS.replace(" && touch", " && echo")).unwrap();
    tools.refused(
        &["add", "--case", "1x1x1", "--with", "nsys"],
        5,
        &["profile-add.nsys-rep: nsys wrote no report"],
    );
}

/// Compiles the library that a profiler would load into the program; `None` without NVIDIA's headers.
fn nvtx_tool(dir: &Path) -> Option<PathBuf> {
    let tool = dir.join("tool.so");
    let source = root().join("crates/program/tests/nvtx_tool.cpp");
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("c++".into()));
    compiler.args(["-std=c++17", "-shared", "-fPIC", "-I", option_env!("TGNN_NVTX_HEADERS")?]);
    let made = compiler.arg(source).arg("-o").arg(&tool);
    assert!(made.status().unwrap().success(), "{made:?}");
    Some(tool)
}

/// Returns the ranges that a profiler sees of a call of the program, each with those that enclose it.
fn ranges(dir: &Path, words: &[&str], tool: &Path) -> Vec<Vec<String>> {
    let seen = dir.join("ranges.txt");
    let ran = Command::new(program())
        .args(words)
        .current_dir(dir)
        .envs([("NVTX_INJECTION64_PATH", tool), ("RANGES", &seen)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (mut open, mut ranges) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(&seen).unwrap_or_default().lines() {
        match line.strip_prefix("begin ") {
            Some(name) => {
                open.push(name.to_owned());
                ranges.push(open.clone());
            }
            None => assert!(line == "end" && open.pop().is_some(), "{words:?}: {line}"),
        }
    }
    assert!(open.is_empty(), "{words:?}: {open:?} never ended");
    let _ = fs::remove_file(seen);
    ranges
}

#[test]
#[cfg_attr(not(all(feature = "emu", nvtx_headers)), ignore = "wants --features emu and scripts/fetch-nvcc")]
fn a_profiler_sees_a_range_for_every_pass_stage_and_op() {
    let dir = made();
    let dir = dir.path();
    let Some(tool) = nvtx_tool(dir) else { return };
    let train = |device: &str, tool: &Path| {
        let flags =
            ["--epochs", "1", "--max-batches", "2", "--set", "static.mode=off", "--profile", "--json"];
        ranges(dir, &[&["train", "small.toml", "--device", device], &flags[..]].concat(), tool)
    };
    let mut op_ranges = ["cpu", "emu"].map(|device| {
        let seen = train(device, &tool);
        let passes: Vec<&str> = seen.iter().filter(|r| r.len() == 1).map(|r| r[0].as_str()).collect();
        // Before it, rows are counted for the sum of memory of the host; a run ends by settling, and by both
        // scores of its test.
        let want = ["memory", "train epoch 1", "val", "test", "settle", "val", "replay", "test"];
        assert_eq!(passes, want[usize::from(device != "cpu")..], "{device}");
        let steps = seen.iter().filter(|r| r.len() > 1 && r[0] == "train epoch 1");
        let (stages, ops): (Vec<_>, Vec<_>) = steps.partition(|r| r.len() == 2);
        assert!(
            stages.iter().any(|r| r[1] == "update_memory") && ops.iter().all(|r| r.len() == 3),
            "{ops:?}"
        );
        ops.iter().map(|r| format!("{} {}", r[1], r[2])).collect::<Vec<_>>()
    });
    let (first, second) = op_ranges[0].split_at(op_ranges[0].len() / 2);
    assert!(
        first == second && first.contains(&"weight_grads gru_memory_grad".into()),
        "two steps: {:?}",
        op_ranges[0]
    );
    // A device prefetches by itself, so the order differs.
    op_ranges.iter_mut().for_each(|ops| ops.sort_unstable());
    let of_device: Vec<&String> =
        op_ranges[1].iter().filter(|op| *op != "fetch_memory memory_messages").collect();
    assert_eq!(of_device.len() + 2, op_ranges[1].len(), "a device prepares messages in an op of their own");
    assert_eq!(op_ranges[0].iter().collect::<Vec<_>>(), of_device, "each device runs the same ops");
    assert!(train("emu", &dir.join("none.so")).is_empty(), "a missing tool is harmless");

    // Inside of a tool, the range of an op is open while its kernels are launched: once for every run.
    let inside = ["--inside", "report.json", "--runs", "2", "--device", "emu"];
    let step = ranges(dir, &[&["profile", "step"], &SMALL[..], &inside].concat(), &tool);
    let ops = |name: &str| step.iter().filter(|r| r.len() == 3 && r[2] == name).count();
    assert_eq!((ops("next_batch"), ops("adam")), (2, 2), "{step:?}");
    let add = ranges(dir, &[&["profile", "exp", "--case", "4x3x1"], &inside[..]].concat(), &tool);
    let own = |r: &&Vec<String>| r[0] == "profile exp" && r.len() == 3;
    assert_eq!(add.iter().filter(own).map(|r| r[2].as_str()).collect::<Vec<_>>(), ["exp", "exp"]);
}
