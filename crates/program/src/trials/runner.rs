//! Runs trials, several at the same time.
use super::{
    board::Board,
    child::{self, Event},
};
use crate::{output::tell, signals::on_ending};
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::available_memory_bytes,
};
use tgnn_data::text::counted;
use tgnn_training::task::{
    Config,
    comparison::FinishedRun,
    search::{Progress, SweepData, Trial, jobs},
    training::folder::locked,
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

/// Words of the command line of a trial.
pub(super) struct Words {
    pub always: Vec<OsString>,
    /// Only where the trial is not resumed.
    pub at_start: Vec<OsString>,
}

/// What came of the trials.
pub struct Outcome {
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

/// The trials of a sweep in progress, by their numbers.
struct Progressing {
    folders: Vec<PathBuf>,
    waiting: VecDeque<(usize, Progress)>,
    running: BTreeMap<usize, Running>,
    finished: BTreeMap<usize, FinishedRun>,
    failed: BTreeMap<usize, Error>,
}

impl Progressing {
    /// Finds out which trials have finished already.
    fn open(runner: &Runner<'_>) -> Result<Self> {
        let folders: Vec<PathBuf> = runner.trials.iter().map(|trial| runner.out.join(&trial.name)).collect();
        let (mut waiting, mut finished) = (VecDeque::new(), BTreeMap::new());
        for (at, (trial, dir)) in runner.trials.iter().zip(&folders).enumerate() {
            match trial.progress(dir)? {
                Progress::Finished => drop(finished.insert(at, FinishedRun::read(dir)?)),
                progress => waiting.push_back((at, progress)),
            }
        }
        let mut data = SweepData::default();
        for (&at, run) in &finished {
            data.check(run, &runner.configs[at], !waiting.is_empty())?;
        }
        Ok(Progressing { folders, waiting, running: BTreeMap::new(), finished, failed: BTreeMap::new() })
    }

    /// Records the end of a trial. Returns what came of it; `None` if it was not running.
    fn end(&mut self, at: usize) -> Result<Option<String>> {
        let Some(Running { mut child, started, error }) = self.running.remove(&at) else { return Ok(None) };
        let status = child.wait().map_err(|e| Error::io(&self.folders[at], "lost its process", e))?;
        let result = match status.success() {
            true => FinishedRun::read(&self.folders[at]),
            false => Err(child::reason(status, error)),
        };
        Ok(Some(match result {
            Ok(run) => {
                let said = described(&run, started.elapsed());
                self.finished.insert(at, run);
                said
            }
            Err(why) => {
                // Data that cannot be read fail every trial.
                if why.kind() == ErrorKind::Data && self.finished.is_empty() {
                    self.waiting.clear();
                }
                let said = format!("failed: {why}");
                self.failed.insert(at, why);
                said
            }
        }))
    }
}

impl Runner<'_> {
    /// Runs the trials that have not finished yet.
    ///
    /// # Errors
    /// `Usage` if a folder holds something else; `Io`; the first failure if no trial finished.
    pub fn run(&self, notes: &[String], quiet: bool) -> Result<Outcome> {
        let lock = locked(self.out)?;
        lock.note().iter().for_each(|note| tell(format_args!("note: {note}")));
        let mut trials = Progressing::open(self)?;
        let mut board = Board::new(quiet, self.trials.len(), trials.finished.len());
        notes.iter().for_each(|note| board.line(format_args!("note      {note}")));
        self.describe(&board, trials.finished.len());
        let interrupted = on_interrupt();
        let free = available_memory_bytes();
        let (events, incoming) = mpsc::channel();
        while !trials.waiting.is_empty() || !trials.running.is_empty() {
            while trials.running.len() < self.most(free, &trials.finished) {
                let Some((at, progress)) = trials.waiting.pop_front() else { break };
                let words = self.words(at, &trials.folders[at], progress)?;
                let child = child::start(&words, at, events.clone())?;
                trials.running.insert(at, Running { child, started: Instant::now(), error: None });
                board.start(at, &self.trials[at].name, self.configs[at].epochs);
            }
            match incoming.recv_timeout(TICK) {
                Ok(Event::Line(at, line)) => {
                    board.epoch(at, &line);
                    if let (Some(trial), Some(error)) =
                        (trials.running.get_mut(&at), line.strip_prefix("error: "))
                    {
                        trial.error = Some(error.to_owned());
                    }
                }
                Ok(Event::Ended(at)) => {
                    let Some(said) = trials.end(at)? else { continue };
                    // What Ctrl-C has ended did not fail.
                    if !interrupted.load(Ordering::Relaxed) {
                        let (done, all) = (trials.finished.len() + trials.failed.len(), self.trials.len());
                        board.line(format_args!("{done:>5} of {all}  {}  {said}", self.trials[at].name));
                    }
                    board.end(at, self.best(&trials.finished));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if interrupted.load(Ordering::Relaxed) {
                board.clear();
                drop(lock);
                stop(trials.running, trials.finished.len(), self.trials.len());
            }
        }
        board.clear();
        self.outcome(trials)
    }
    /// Returns what became of the trials.
    ///
    /// # Errors
    /// That of the first trial, if none finished.
    fn outcome(&self, trials: Progressing) -> Result<Outcome> {
        let name = |at: usize| self.trials[at].name.clone();
        if let (true, Some((&at, why))) = (trials.finished.is_empty(), trials.failed.first_key_value()) {
            let what = format!("no trial finished; the first, {}, failed: {why}", name(at));
            return Err(Error::new(why.kind(), what));
        }
        let failed = trials.failed.into_iter().map(|(at, why)| (name(at), why.to_string())).collect();
        Ok(Outcome { finished: trials.finished.into_values().collect(), failed })
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
    fn words(&self, at: usize, dir: &Path, progress: Progress) -> Result<Vec<OsString>> {
        let resumes = progress == Progress::Begun;
        let file = if resumes { dir.join("trial.toml") } else { self.trials[at].prepare(dir)? };
        let mut words = vec!["train".into(), file.into(), "--json".into(), "--out".into(), dir.into()];
        words.extend(self.args.always.iter().cloned());
        match resumes {
            true => {
                let data = &self.configs[at].data.path;
                words.extend(["--resume".into(), "--data".into(), data.into()]);
            }
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

/// Returns a flag that Ctrl-C raises. A second Ctrl-C ends the program.
fn on_interrupt() -> Arc<AtomicBool> {
    let raised = Arc::new(AtomicBool::new(false));
    let flag = raised.clone();
    // Where signals cannot be caught, Ctrl-C ends the program, and the trials with it.
    let _ = on_ending(move |_| flag.store(true, Ordering::Relaxed));
    raised
}

/// Ends the trials that run, says how to go on, and ends the program.
fn stop(running: BTreeMap<usize, Running>, finished: usize, all: usize) -> ! {
    for mut trial in running.into_values() {
        drop(trial.child.stdin.take()); // which ends it
        let _ = trial.child.wait();
    }
    tell(format_args!("interrupted: {finished} of {all} trials are finished; the same command goes on"));
    std::process::exit(INTERRUPTED)
}
