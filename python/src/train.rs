//! Training, with progress and interruption.
use crate::{error::Result, events::Stream, keys::config};
use pyo3::{prelude::*, types::PyDict};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tgnn::error::{Error, ErrorKind};
use tgnn_data::Events;
use tgnn_training::task::{
    self, Config, EpochRecord, Progress, RunOptions, Summary, Task, Watch, config::table::keys_of,
    with_model_of,
};

/// How often the caller hears of progress, and looks whether the user wants to stop.
const PULSE: Duration = Duration::from_millis(50);

/// What a run tells its caller.
enum Message {
    Remark(&'static str, String),
    Progress { pass: String, epoch: usize, events: usize, total: usize, loss: Option<f64> },
    Epoch(EpochRecord),
    Settled(EpochRecord),
}

/// Watches a run on the thread that trains, and tells the caller's thread, which Python runs on.
struct Teller {
    to: Sender<Message>,
    stop: Arc<AtomicBool>,
    told: Instant,
}

impl Teller {
    fn tell(&self, message: Message) {
        let _ = self.to.send(message); // the caller listens until the run is over
    }
}

impl Watch for Teller {
    fn start(&mut self, task: &mut dyn Task) {
        task.remarks().into_iter().for_each(|(word, what)| self.tell(Message::Remark(word, what)));
    }
    fn note(&mut self, what: &str) {
        self.tell(Message::Remark("note", what.into()));
    }
    fn progress(&mut self, pass: &str, epoch: usize, p: Progress<'_>) {
        p.stop.set(self.stop.load(Relaxed));
        if self.told.elapsed() >= PULSE || p.events == p.total {
            self.told = Instant::now();
            let Progress { events, total, loss, .. } = p;
            self.tell(Message::Progress { pass: pass.into(), epoch, events, total, loss });
        }
    }
    fn epoch(&mut self, record: &EpochRecord) {
        self.tell(Message::Epoch(record.clone()));
    }
    fn settled(&mut self, record: &EpochRecord) {
        self.tell(Message::Settled(record.clone()));
    }
}

impl Message {
    /// Calls `heard` with the kind of the message and its content.
    fn deliver(self, py: Python<'_>, heard: &Py<PyAny>) -> Result<()> {
        match self {
            Message::Remark(word, what) => heard.call1(py, ("remark", word, what))?,
            Message::Progress { pass, epoch, events, total, loss } => {
                heard.call1(py, ("progress", (pass, epoch), (events, total, loss)))?
            }
            Message::Epoch(record) => heard.call1(py, ("epoch", json(&record)?, py.None()))?,
            Message::Settled(record) => heard.call1(py, ("settled", json(&record)?, py.None()))?,
        };
        Ok(())
    }
}

/// Listens until the run is over. Sets `stop` if `heard` raises an exception, or the user has pressed Ctrl-C,
/// and returns that exception.
fn listen(from: &Receiver<Message>, heard: &Py<PyAny>, stop: &AtomicBool) -> Result<()> {
    let mut result = Ok(());
    loop {
        let message = match from.recv_timeout(PULSE) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return result,
        };
        if result.is_err() {
            continue;
        }
        result = Python::attach(|py| {
            py.check_signals()?;
            message.map_or(Ok(()), |message| message.deliver(py, heard))
        });
        stop.store(result.is_err(), Relaxed);
    }
}

/// Trains a model of events, or of snapshots of them.
fn run(
    config: &Config,
    events: &Events,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Summary, Error> {
    let device = config.open_device()?;
    if config.model.reads_snapshots() {
        return task::train_snapshots(config, &config.cut(events)?, &device, options, watch);
    }
    let events = config.prepare(events)?;
    task::train(config, &events, &device, options, watch)
}

/// Trains a model; returns the summary as JSON. `heard` is called with three arguments for every message.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // one for each option
pub fn train(
    py: Python<'_>,
    stream: &Stream,
    keys: &Bound<'_, PyDict>,
    out: PathBuf,
    resume: bool,
    weights: Option<PathBuf>,
    from: Option<PathBuf>,
    heard: Py<PyAny>,
) -> Result<String> {
    let (mut config, mut given) = config(keys)?;
    if let Some(from) = &from {
        given = with_model_of(from, given)?;
        config = Config::of_table(&given)?;
    }
    let given = keys_of(&given);
    let options = RunOptions { out: Some(out), resume, weights, from, command: "tgnn.train".into() };
    let (to, messages) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let messages = Mutex::new(messages);
    let mut teller = Teller { to, stop: stop.clone(), told: Instant::now() };
    py.detach(|| {
        if !config.model.reads_snapshots() {
            let note = config.fit_to(&stream.events, |key| given.contains_key(key))?;
            note.into_iter().for_each(|note| teller.tell(Message::Remark("defaults", note)));
        }
        let messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        // Training has a thread of its own, so that this one, which may be Python's main thread, hears of
        // signals.
        let (listened, trained) = thread::scope(|scope| {
            // The teller ends with the run, and with it the messages.
            let run = scope.spawn(move || run(&config, &stream.events, &options, &mut teller));
            (listen(&messages, &heard, &stop), run.join())
        });
        listened?;
        let summary = trained.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        json(&summary)
    })
}

/// Returns a record as JSON.
fn json(record: &impl serde::Serialize) -> Result<String> {
    let written = serde_json::to_string(record);
    Ok(written.map_err(|e| Error::new(ErrorKind::Io, "cannot write the record").caused_by(e))?)
}
