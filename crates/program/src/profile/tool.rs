//! Runs this program again under one of NVIDIA's tools, and says what the tool found.
use super::{
    ProfileArgs, Subject, ncu,
    report::{OpDone, Report},
};
use crate::output::{print_json, quoted, say, tell};
use clap::ValueEnum;
use serde_json::json;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output, Stdio},
};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_lab::{ceilings::Ceilings, ncu as counted};
use tgnn_training::task::Config;

/// Exit code of compute-sanitizer if it finds faults; no exit code of this program.
const FAULTS: i32 = 100;

/// A tool of NVIDIA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Tool {
    Ncu,
    Nsys,
    Sanitizer,
}

/// A tool of compute-sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Accesses beyond allocations
    Memcheck,
    /// Races in shared memory
    Racecheck,
    /// Reads of memory that was never written
    Initcheck,
    /// Wrong barriers
    Synccheck,
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl Tool {
    /// Returns the program, and what to install if there is none.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Tool::Ncu => ("ncu", "Nsight Compute"),
            Tool::Nsys => ("nsys", "Nsight Systems"),
            Tool::Sanitizer => ("compute-sanitizer", "the CUDA toolkit"),
        }
    }
    /// Returns the path of the program.
    ///
    /// # Errors
    /// `Device` if it is not in `PATH`.
    fn find(self) -> Result<PathBuf> {
        let (program, from) = self.program();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_program = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(is_program);
        found.ok_or_else(|| {
            Error::new(ErrorKind::Device, format!("{program} is not in PATH")).remedy(format!(
                "install {from}, or add its folder, such as /usr/local/cuda/bin or one in /opt/nvidia"
            ))
        })
    }
}

/// A file for the time of a run. It is in no folder of its own, so that the command line that names it can be
/// run again by hand.
struct Scratch(PathBuf);

impl Scratch {
    fn new(extension: &str) -> Self {
        let name = format!("tgnn-profile-{}.{extension}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A run of this program under a tool.
struct Session {
    tool: Tool,
    /// The command line.
    words: Vec<OsString>,
    /// What the program reports.
    report: Scratch,
    /// What ncu writes.
    log: Scratch,
}

impl Session {
    /// Runs the command, and returns what the program has done, and the output of the tool.
    ///
    /// # Errors
    /// Those of the program inside of the tool; `Device` if the tool fails, may not work, or finds faults.
    fn run(&self) -> Result<(Vec<OpDone>, String)> {
        // The sanitizer's findings are for people: they are shown as they come.
        let ran = ran(&self.words, self.tool != Tool::Sanitizer)?;
        let log = fs::read_to_string(&self.log.0).unwrap_or_default();
        let said =
            [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text)).join("\n") + "\n" + &log;
        if self.tool == Tool::Sanitizer && ran.status.code() == Some(FAULTS) {
            let what = "compute-sanitizer found faults, which it lists above";
            return Err(Error::new(ErrorKind::Device, what));
        }
        if said.contains("ERR_NVGPUCTRPERM") {
            return Err(no_permission());
        }
        let report = Report::read(&self.report.0).ok_or_else(|| failed(self.tool, ran.status, &said))?;
        let done = report.done()?;
        if ran.status.success() { Ok((done, log)) } else { Err(failed(self.tool, ran.status, &said)) }
    }
}

impl ProfileArgs {
    /// Profiles under a tool.
    pub(super) fn under(&self, tool: Tool, subject: &Subject, config: &Config) -> Result<()> {
        self.how(subject)?;
        let device = config.open_device()?;
        if device.gpu().is_none() {
            let what = format!("--with {} is for GPUs, and the device is the CPU", tool.program().0);
            return Err(Error::new(ErrorKind::Device, what).remedy("give --device cuda, or leave out --with"));
        }
        let out = self.out.clone().unwrap_or_else(|| format!("profile-{}", self.what).into());
        let session = self.session(tool, &out)?;
        let command = session.words.iter().map(|word| quoted(word.to_string_lossy().into_owned()));
        self.note(command.collect::<Vec<_>>().join(" "));
        // Measured here, because a tool would slow it down.
        let ceilings = (tool == Tool::Ncu).then(|| Ceilings::measure(&device)).transpose()?;
        drop(device);
        let (ops, log) = session.run()?;
        match (tool, ceilings) {
            (_, Some(ceilings)) => {
                let kernels = counted::read(&log).map_err(|e| keep(&log, &out, e))?;
                ncu::print(&ceilings, &kernels, &ops, self.caches(), self.json)
            }
            (Tool::Nsys, _) => self.written(&out),
            _ => {
                self.note(format!("{} of compute-sanitizer found nothing", self.tool));
                Ok(())
            }
        }
    }
    /// Returns the run under a tool, with the report of nsys at `out`.
    fn session(&self, tool: Tool, out: &Path) -> Result<Session> {
        let (path, report, log) = (tool.find()?, Scratch::new("json"), Scratch::new("csv"));
        let mut words = vec![path.into_os_string()];
        words.extend(self.tool_words(tool, &log.0, out));
        words.extend(own_words(&report.0)?);
        Ok(Session { tool, words, report, log })
    }
    /// Prints a line for people: to standard error if standard output is JSON.
    fn note(&self, text: impl std::fmt::Display) {
        if self.json { tell(text) } else { say(text) }
    }
    /// Returns the arguments of a tool.
    fn tool_words(&self, tool: Tool, log: &Path, out: &Path) -> Vec<OsString> {
        let plain = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        match tool {
            Tool::Ncu => {
                let cache = if self.cold { "all" } else { "none" };
                // The clocks stay as they are: the floor is measured with them, and not everybody may lock
                // them.
                let mut words = plain(&["--profile-from-start", "off", "--nvtx", "--csv", "--page", "raw"]);
                words.extend(plain(&["--print-units", "base", "--cache-control", cache]));
                words.extend(plain(&["--clock-control", "none", "--metrics", &counted::metrics()]));
                words.extend(["--log-file".into(), log.into()]);
                words
            }
            Tool::Nsys => {
                let mut words = plain(&["profile", "-t", "cuda,nvtx", "-c", "cudaProfilerApi"]);
                words.extend(plain(&["--capture-range-end", "stop", "--force-overwrite", "true", "-o"]));
                words.push(out.into());
                words
            }
            Tool::Sanitizer => {
                plain(&["--tool", &self.tool.to_string(), "--error-exitcode", &FAULTS.to_string()])
            }
        }
    }
    /// Says where nsys has written its report.
    fn written(&self, out: &Path) -> Result<()> {
        let mut file = out.as_os_str().to_owned();
        file.push(".nsys-rep");
        let file = PathBuf::from(file);
        if !file.exists() {
            let what = "nsys wrote no report";
            return Err(Error::new(ErrorKind::Device, what).in_file(&file));
        }
        if self.json {
            return print_json(&json!({"schema": 1, "tool": "nsys", "report": file}));
        }
        let shown = quoted(file.display().to_string());
        self.note(format!("wrote {shown}; open it with nsys-ui, or list the kernels of each op:"));
        self.note(format!("nsys stats -r nvtx_kern_sum {shown}"));
        Ok(())
    }
}

/// Writes a CSV of ncu that cannot be read to `out` with the extension `csv`, so that the measurement is not
/// lost. Returns its error with the name of the file.
fn keep(csv: &str, out: &Path, e: Error) -> Error {
    let file = out.with_extension("csv");
    match fs::write(&file, csv) {
        Ok(()) => e.in_file(file),
        Err(why) => Error::io(file, "cannot keep ncu's CSV, which cannot be read", why).caused_by(e),
    }
}

/// Runs a command to its end. If `kept`, its output is returned and not shown.
fn ran(words: &[OsString], kept: bool) -> Result<Output> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    if !kept {
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    }
    command.output().map_err(|e| {
        Error::new(ErrorKind::Device, format!("cannot run {}", words[0].to_string_lossy())).caused_by(e)
    })
}

/// Returns this program and its arguments, as they are inside of a tool.
fn own_words(report: &Path) -> Result<Vec<OsString>> {
    let program = std::env::current_exe().map_err(|e| Error::io("this program", "has no path", e))?;
    let inside = [OsString::from("--inside"), report.into()];
    Ok(std::iter::once(program.into_os_string()).chain(std::env::args_os().skip(1)).chain(inside).collect())
}

/// Returns the error of a tool that ended before the program had done its work.
fn failed(tool: Tool, status: ExitStatus, said: &str) -> Error {
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.map_or(String::new(), |line| format!(": {line}"));
    Error::new(ErrorKind::Device, format!("{} failed, {status}{last}", tool.program().0))
}

/// Returns the error of counters that the user may not read.
fn no_permission() -> Error {
    Error::new(ErrorKind::Device, "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM)").remedy(
        "run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the kernel module nvidia; a container \
         also needs --cap-add=SYS_ADMIN",
    )
}
