//! Saving the state of a stream: while it goes on, and when it ends.
use super::scoring::Stop;
use crate::output::tell;
use std::{
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_data::{NodeId, text::counted};
use tgnn_training::task::{
    Checkpoint, Predictor, PredictorState,
    training::folder::{FolderLock, locked},
};

/// Time after which a stream that waits looks whether a state is saved.
const SOON: Duration = Duration::from_millis(20);

/// How often the state is saved while the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SaveEvery {
    Events(u64),
    Time(Duration),
}

impl std::str::FromStr for SaveEvery {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let (number, seconds) = match s.strip_suffix(['s', 'm', 'h']) {
            Some(number) if s.ends_with('s') => (number, Some(1)),
            Some(number) if s.ends_with('m') => (number, Some(60)),
            Some(number) => (number, Some(3600)),
            None => (s, None),
        };
        let number = number.parse::<u64>().ok().filter(|&n| n > 0);
        let every = number.and_then(|n| match seconds {
            Some(seconds) => Some(SaveEvery::Time(Duration::from_secs(n.checked_mul(seconds)?))),
            None => Some(SaveEvery::Events(n)),
        });
        every.ok_or_else(|| {
            Error::usage(format!("--save-every {s}"))
                .remedy("give a number of events, or a time such as 30s, 10m or 1h")
        })
    }
}

/// The folder to which the state of a stream is saved.
pub(super) struct Saves {
    dir: PathBuf,
    every: Option<SaveEvery>,
    _lock: FolderLock,
    /// When the state was copied last, and the number of events then.
    copied: (Instant, u64),
    /// The thread that saves a copy.
    saving: Option<JoinHandle<(PredictorState, Result<()>)>>,
    /// The memory of the copy before.
    spare: Option<PredictorState>,
    /// The longest time for which a copy held up the stream, and the number of copies that were saved.
    pause: Duration,
    saved: u64,
}

impl Saves {
    /// Locks the folder `dir`, which must not hold a training run. If the state is to be saved while the
    /// stream goes on, takes the memory of its copy now: the first touch of a page takes five times as long
    /// as to copy it.
    pub fn open(dir: &Path, every: Option<SaveEvery>, predictor: &mut Predictor) -> Result<Self> {
        Checkpoint::at(dir).may_hold_stream()?;
        Ok(Saves {
            dir: dir.to_owned(),
            every,
            _lock: locked(dir)?,
            copied: (Instant::now(), predictor.seen()),
            saving: None,
            spare: every.map(|_| predictor.copy_state(&[], None)).transpose()?,
            pause: Duration::ZERO,
            saved: 0,
        })
    }
    /// Returns when the state of a stream that waits is to be saved.
    pub fn due(&self, predictor: &Predictor) -> Option<Instant> {
        let Some(SaveEvery::Time(every)) = self.every else { return None };
        let due = self.copied.0 + every;
        // A copy that is still being saved is looked at again soon.
        let soonest = if self.is_saving() { Instant::now() + SOON } else { due };
        (predictor.seen() > self.copied.1).then_some(due.max(soonest))
    }
    /// Whether a copy is still being saved.
    fn is_saving(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| !saving.is_finished())
    }
    /// Copies the state and begins to save it, if it is time; `flush` writes the scores of its events first.
    /// A copy that is still being saved is not overtaken. If saving fails, that is told, and the stream goes
    /// on.
    pub fn save_if_due(
        &mut self,
        predictor: &mut Predictor,
        new_nodes: &[(NodeId, u8)],
        flush: impl FnOnce() -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let is_due = match self.every {
            None => false,
            Some(SaveEvery::Events(every)) => predictor.seen() - self.copied.1 >= every,
            Some(SaveEvery::Time(_)) => self.due(predictor).is_some_and(|due| due <= Instant::now()),
        };
        if !is_due || self.is_saving() {
            return Ok(());
        }
        self.joined();
        flush()?;
        let started = Instant::now();
        let state = predictor.copy_state(new_nodes, self.spare.take())?;
        let dir = self.dir.clone();
        let saving = thread::Builder::new().name("save".into()).spawn(move || {
            let saved = state.save(&dir);
            (state, saved)
        });
        match saving {
            Ok(saving) => self.saving = Some(saving),
            Err(e) => tell(format_args!("note: the state was not saved: cannot start a thread: {e}")),
        }
        self.copied = (Instant::now(), predictor.seen());
        self.pause = self.pause.max(started.elapsed());
        Ok(())
    }
    /// Waits for the thread that saves a copy.
    fn joined(&mut self) {
        match self.saving.take().map(JoinHandle::join) {
            None => {}
            Some(Ok((state, saved))) => {
                match saved {
                    Ok(()) => self.saved += 1,
                    Err(e) => tell(format_args!("note: the state was not saved: {e}")),
                }
                self.spare = Some(state);
            }
            Some(Err(_)) => tell(format_args!("note: the state was not saved: the thread has failed")),
        }
    }
    /// Saves the state at the end of a stream. While the disk is full or refuses, tries again for `patience`.
    pub fn finish(
        mut self,
        predictor: &mut Predictor,
        new_nodes: &[(NodeId, u8)],
        patience: Duration,
    ) -> Result<()> {
        self.joined();
        self.spare = None;
        let until = Instant::now() + patience;
        let mut told = false;
        loop {
            match predictor.save(&self.dir, new_nodes) {
                Err(e) if e.kind() == ErrorKind::Io && Instant::now() < until => {
                    if !told {
                        tell(format_args!("note: {e}; trying again for {} s", patience.as_secs()));
                    }
                    told = true;
                    thread::sleep(Duration::from_millis(500));
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        let since = predictor.seen();
        tell(format_args!("saved     {}: {} since training", self.dir.display(), counted(since, "event")));
        if self.saved > 0 {
            let (saved, pause) = (counted(self.saved, "time"), self.pause.as_secs_f64() * 1e3);
            tell(format_args!("          and {saved} before, the stream waited {pause:.1} ms at most"));
        }
        Ok(())
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        self.joined();
    }
}
