//! Runs the trials of a sweep, several at the same time, each as a process.
use super::{
    Words,
    board::Board,
    child::{self, Event},
};
use crate::{
    data::text::counted,
    error::{Error, ErrorKind, Result},
    runtime::available_memory_bytes,
    task::{
        Config,
        comparison::FinishedRun,
        search::{Progress, Trial, jobs},
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Exit code after Ctrl-C, as shells expect it.
const INTERRUPTED: i32 = 130;
/// How often Ctrl-C is looked for.
const TICK: Duration = Duration::from_millis(100);

/// The trials of a sweep.
pub(super) struct Runner<'a> {
    pub out: &'a Path,
    pub trials: &'a [Trial],
    pub configs: &'a [Config],
    pub cores: usize,
    /// Trials at the same time; `None` finds the number.
    pub jobs: Option<usize>,
    pub args: Words,
}

/// What came of the trials.
pub(in crate::cli) struct Outcome {
    /// The finished runs, in the order of the trials.
    pub finished: Vec<FinishedRun>,
    /// Names of the trials that failed, with the reasons.
    pub failed: Vec<(String, String)>,
}

/// A trial that runs.
struct Running {
    child: Child,
    started: Instant,
    /// The error that it has printed.
    error: Option<String>,
}

impl Runner<'_> {
    /// Runs the trials that have not finished yet.
    ///
    /// # Errors
    /// `Usage` if a folder holds something else; `Io`; the first failure if no trial finished.
    pub fn run(&self, notes: &[String], quiet: bool) -> Result<Outcome> {
        let folders: Vec<PathBuf> = self.trials.iter().map(|trial| self.out.join(&trial.name)).collect();
        let mut waiting = VecDeque::new();
        let mut finished: BTreeMap<usize, FinishedRun> = BTreeMap::new();
        for (at, (trial, dir)) in self.trials.iter().zip(&folders).enumerate() {
            match trial.progress(dir)? {
                Progress::Finished => drop(finished.insert(at, FinishedRun::read(dir)?)),
                progress => waiting.push_back((at, progress)),
            }
        }
        let mut board = Board::new(quiet, self.trials.len(), finished.len());
        notes.iter().for_each(|note| board.line(format_args!("note      {note}")));
        self.describe(&board, finished.len());
        let interrupted = on_interrupt();
        let free = available_memory_bytes();
        let (events, incoming) = mpsc::channel();
        let mut running: BTreeMap<usize, Running> = BTreeMap::new();
        let mut failed: BTreeMap<usize, Error> = BTreeMap::new();
        while !waiting.is_empty() || !running.is_empty() {
            while running.len() < self.most(free, &finished) {
                let Some((at, progress)) = waiting.pop_front() else { break };
                let words = self.words(at, &folders[at], progress)?;
                let child = child::start(&words, at, events.clone())?;
                running.insert(at, Running { child, started: Instant::now(), error: None });
                board.start(at, &self.trials[at].name, self.configs[at].epochs);
            }
            match incoming.recv_timeout(TICK) {
                Ok(Event::Line(at, line)) => {
                    board.epoch(at, &line);
                    if let (Some(trial), Some(error)) = (running.get_mut(&at), line.strip_prefix("error: ")) {
                        trial.error = Some(error.to_owned());
                    }
                }
                Ok(Event::Ended(at)) => {
                    let Some(Running { mut child, started, error }) = running.remove(&at) else { continue };
                    let status = child.wait().map_err(|e| Error::io(&folders[at], "lost its process", e))?;
                    let result = match status.success() {
                        true => FinishedRun::read(&folders[at]),
                        false => Err(child::reason(status, error)),
                    };
                    let said = match &result {
                        Ok(run) => described(run, started.elapsed()),
                        Err(why) => format!("failed: {why}"),
                    };
                    match result {
                        Ok(run) => drop(finished.insert(at, run)),
                        // Data that cannot be read fail every trial.
                        Err(why) if why.kind() == ErrorKind::Data && finished.is_empty() => {
                            waiting.clear();
                            failed.insert(at, why);
                        }
                        Err(why) => drop(failed.insert(at, why)),
                    }
                    // What Ctrl-C has ended did not fail.
                    if !interrupted.load(Ordering::Relaxed) {
                        let (done, all) = (finished.len() + failed.len(), self.trials.len());
                        board.line(format_args!("{done:>5} of {all}  {}  {said}", self.trials[at].name));
                    }
                    board.end(at, self.best(&finished));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if interrupted.load(Ordering::Relaxed) {
                board.clear();
                stop(running, finished.len(), self.trials.len());
            }
        }
        board.clear();
        if let (true, Some((&at, why))) = (finished.is_empty(), failed.first_key_value()) {
            let what = format!("no trial finished; the first, {}, failed: {why}", self.trials[at].name);
            return Err(Error::new(why.kind(), what));
        }
        let failed =
            failed.into_iter().map(|(at, why)| (self.trials[at].name.clone(), why.to_string())).collect();
        Ok(Outcome { finished: finished.into_values().collect(), failed })
    }
    /// Prints what is about to be done.
    fn describe(&self, board: &Board, finished: usize) {
        let trials = counted(self.trials.len() as u64, "trial");
        let done = match finished {
            0 => String::new(),
            all if all == self.trials.len() => ", all finished before".into(),
            some => format!(", {some} of them finished before"),
        };
        board.line(format_args!("sweep     {trials} in {}{done}", self.out.display()));
        let threads = self.configs.first().map_or(0, |config| config.threads);
        let threads = if threads == 0 { "all threads".into() } else { counted(threads as u64, "thread") };
        let at_once = match self.jobs {
            Some(jobs) => format!("{jobs} at a time, each with {threads}"),
            None => format!("each with {threads}, as many at a time as memory and cores allow"),
        };
        board.line(format_args!("          {at_once}"));
    }
    /// Returns how many trials may run at the same time, with `free` bytes of memory when none runs.
    fn most(&self, free: Option<u64>, finished: &BTreeMap<usize, FinishedRun>) -> usize {
        let summaries = || finished.values().map(|run| &run.summary);
        let peak = summaries().map(|summary| summary.peak_memory_bytes.host).max();
        let on_gpu = summaries().any(|summary| summary.device.kind != "cpu");
        let threads = self.configs.iter().map(|config| config.threads);
        let threads = if threads.clone().any(|n| n == 0) { 0 } else { threads.max().unwrap_or(0) };
        self.jobs.unwrap_or_else(|| jobs(self.cores, threads, free, peak, on_gpu))
    }
    /// Returns the words of the command of a trial.
    fn words(&self, at: usize, dir: &Path, progress: Progress) -> Result<Vec<std::ffi::OsString>> {
        let resumes = progress == Progress::Begun;
        let file = if resumes { dir.join("trial.toml") } else { self.trials[at].prepare(dir)? };
        let mut words = vec!["train".into(), file.into(), "--json".into(), "--out".into(), dir.into()];
        words.extend(self.args.always.iter().cloned());
        match resumes {
            true => words.push("--resume".into()),
            false => words.extend(self.args.at_start.iter().cloned()),
        }
        Ok(words)
    }
    /// Names the finished run with the best validation.
    fn best(&self, finished: &BTreeMap<usize, FinishedRun>) -> Option<String> {
        let scored = finished.iter().filter_map(|(&at, run)| Some((at, figure(run)?)));
        let (at, _) = scored.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(self.trials[at].name.clone())
    }
}

/// Returns the figure by which the best epoch of a run was chosen.
fn figure(run: &FinishedRun) -> Option<f64> {
    let records = run.summary.epochs.iter();
    let best = records.into_iter().find(|record| Some(record.epoch) == run.summary.best_epoch)?;
    best.val?.figure(run.config.task)
}

/// Describes a run that has ended.
fn described(run: &FinishedRun, took: Duration) -> String {
    let epoch = run.summary.best_epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}"));
    let val = figure(run).map_or(String::new(), |x| format!("validation {:.4}{epoch}, ", x.abs()));
    format!("{val}{:.1} s", took.as_secs_f64())
}

/// Returns a flag that Ctrl-C raises.
fn on_interrupt() -> Arc<AtomicBool> {
    let raised = Arc::new(AtomicBool::new(false));
    let flag = raised.clone();
    // Where there is no such handler, Ctrl-C ends the program, and the trials with it.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
    raised
}

/// Ends the trials that run, says how to go on, and ends the program.
fn stop(running: BTreeMap<usize, Running>, finished: usize, all: usize) -> ! {
    for mut trial in running.into_values() {
        drop(trial.child.stdin.take()); // which ends it
        let _ = trial.child.wait();
    }
    eprintln!("interrupted: {finished} of {all} trials are finished; the same command goes on");
    std::process::exit(INTERRUPTED)
}
