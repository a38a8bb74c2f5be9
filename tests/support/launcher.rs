//! Processes that a launcher of MPI starts as ranks.
// Two crates of tests use this file, each a part of it.
#![allow(dead_code)]
use super::paths::root;
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The environment variable that makes a process a rank: its work.
pub const WORK: &str = "TGNN_TEST_RANK";
/// Time after which a test gives up.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Ranks that end sooner have had a machine without much else to do.
pub const QUICK: Duration = Duration::from_secs(6);
/// An installation of MPI in `.mpi/`.
pub struct Installed {
    pub home: PathBuf,
    pub library: &'static str,
    pub options: &'static [&'static str],
}

/// Returns Open MPI and MPICH; nothing, and prints why, if they are not there.
pub fn installed() -> Vec<Installed> {
    let home = |name| root().join(".mpi").join(name);
    let both = [
        Installed {
            home: home("openmpi"),
            library: "libmpi.so.40",
            options: &["--oversubscribe", "--bind-to", "none"],
        },
        Installed { home: home("mpich"), library: "libmpi.so.12", options: &[] },
    ];
    if !both.iter().all(|mpi| mpi.home.is_dir()) {
        println!("skipped: no MPI, see scripts/fetch-mpi");
        return Vec::new();
    }
    both.into()
}

impl Installed {
    pub fn libraries(&self) -> PathBuf {
        self.home.join("lib")
    }
    /// Returns the command that starts `ranks` ranks with `work`; 0 means one without a launcher.
    pub fn ranks(&self, ranks: usize, work: &str) -> Command {
        let mut command = self.start(ranks, &env::current_exe().unwrap());
        command.args(["--exact", "mpi::one_rank_of_another_test", "--nocapture", "--test-threads=1"]);
        command.env(WORK, work);
        command
    }
    /// Returns the command that starts `ranks` processes of `binary`; 0 means one without a launcher.
    pub fn start(&self, ranks: usize, binary: &Path) -> Command {
        let mut command = match ranks {
            0 => Command::new(binary),
            _ => Command::new(self.home.join("bin/mpirun")),
        };
        if ranks > 0 {
            command.arg("-n").arg(ranks.to_string()).args(self.options).arg(binary);
        }
        command.env("TGNN_MPI_LIB", self.libraries().join(self.library));
        command.env_remove("LD_LIBRARY_PATH").env("OMPI_MCA_mpi_yield_when_idle", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }
}

/// What ranks have left behind.
#[derive(Debug)]
pub struct Ran {
    /// Exit code of the launcher.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    took: Duration,
}

impl Ran {
    /// Returns what the ranks have said, in order of the text.
    pub fn said(&self) -> Vec<&str> {
        let mut said: Vec<&str> = self.out.lines().filter_map(|line| line.strip_prefix("says ")).collect();
        said.sort_unstable();
        said
    }
    /// Returns the errors that ranks have printed.
    pub fn errors(&self) -> Vec<&str> {
        // Open MPI's launcher ends what it says with a zero.
        let lines = self.err.lines().map(|line| line.trim_start_matches('\0'));
        lines.filter_map(|line| line.strip_prefix("error: ")).collect()
    }
    /// Checks that all ranks have finished their work.
    pub fn succeeded(&self) -> &Self {
        assert_eq!((self.code, self.errors()), (Some(0), vec![]), "{self:?}");
        self
    }
    /// Checks that the ranks have failed with errors that all contain `text`.
    pub fn failed(&self, text: &str) {
        let errors = self.errors();
        let fits = !errors.is_empty() && errors.iter().all(|e| e.contains(text));
        assert!(self.code == Some(8) && fits, "want {text}: {self:?}");
    }
    /// As `failed`, with a single error, unless the machine was too busy to end the other ranks before it was
    /// their turn.
    pub fn failed_once(&self, text: &str) {
        self.failed(text);
        assert!(self.errors().len() == 1 || self.took > QUICK, "{self:?}");
    }
}

/// Runs a command until it ends, and waits until the ranks that it has started have ended, too.
pub fn run(mut command: Command) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let text = |name| String::from_utf8_lossy(&fs::read(file(name)).unwrap()).into_owned();
    let output = |name| Stdio::from(File::create(file(name)).unwrap());
    command.stdin(Stdio::null()).stdout(output("out")).stderr(output("err"));
    let started = Instant::now();
    let mut launcher = command.spawn().unwrap();
    let ranks = || -> Vec<i32> {
        let out = text("out");
        let ids = out.lines().filter_map(|line| line.strip_prefix("process ")?.parse().ok());
        ids.filter(|id| is_alive(*id)).collect()
    };
    let code = loop {
        match launcher.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if started.elapsed() > LIMIT => {
                let ranks = ranks();
                launcher.kill().unwrap();
                launcher.wait().unwrap();
                ranks.iter().for_each(|id| end(*id));
                panic!("{command:?} has not ended:\n{}\n{}", text("out"), text("err"));
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    let took = started.elapsed();
    while !ranks().is_empty() {
        assert!(started.elapsed() < LIMIT, "{command:?} has left ranks behind: {:?}", ranks());
        thread::sleep(Duration::from_millis(10));
    }
    Ran { code, out: text("out"), err: text("err"), took }
}

/// Whether a process exists and has not ended.
pub fn is_alive(id: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat"));
    status.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| !rest.trim().starts_with('Z')))
}

pub fn end(id: i32) {
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(id, libc::SIGKILL) };
}
