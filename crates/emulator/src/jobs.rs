//! Commands that make files, run only if the files are older than what they are made from.
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

/// A command that makes a file from sources. Its output goes to a file beside that one, with `.log` appended
/// to the name.
#[derive(Debug)]
pub struct Job {
    /// The command.
    pub command: Command,
    /// The files that it reads, but for those which all commands read.
    pub sources: Vec<PathBuf>,
    /// The file that it makes.
    pub made: PathBuf,
}

/// Returns the path of `made` with `.extension` appended to its name.
///
/// # Panics
/// If the path has no name.
pub fn beside(made: &Path, extension: &str) -> PathBuf {
    let name = made.file_name().expect("a file").to_string_lossy();
    made.with_file_name(format!("{name}.{extension}"))
}

/// Returns the files of a folder, sorted by path.
///
/// # Panics
/// If the folder cannot be read.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder is readable").path()).filter(|p| p.is_file()).collect();
    paths.sort();
    paths
}

/// Runs the commands whose files are missing, were made by another command, or are older than their sources
/// or a header. Runs as many at a time as cargo allows.
///
/// # Panics
/// If a command fails, with its command line and its output.
pub fn run_all(jobs: Vec<Job>, headers: &[PathBuf]) {
    let changed = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest_header = headers.iter().map(changed).max().flatten();
    let max_running = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize).max(1);
    let mut running: Vec<(Child, String, PathBuf)> = Vec::new();
    let finish = |(mut child, command_line, made): (Child, String, PathBuf)| {
        let status = child.wait().expect("a started command can be waited for");
        let log = fs::read_to_string(beside(&made, "log")).unwrap_or_default();
        assert!(status.success(), "{command_line}\n{log}");
        fs::write(beside(&made, "made-by"), command_line).expect("the target folder is writable");
    };
    for Job { mut command, sources, made } in jobs {
        let (command_line, marker) = (format!("{command:?}"), beside(&made, "made-by"));
        let newest = sources.iter().map(changed).max().flatten().max(newest_header);
        if changed(&made).min(changed(&marker)) > newest
            && fs::read_to_string(&marker).is_ok_and(|made_by| made_by == command_line)
        {
            continue;
        }
        if running.len() == max_running {
            finish(running.remove(0));
        }
        let _ = fs::remove_file(&marker);
        let file = fs::File::create(beside(&made, "log")).expect("the target folder is writable");
        let child = command
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command_line}: {e}"));
        running.push((child, command_line, made));
    }
    running.into_iter().for_each(finish);
}
