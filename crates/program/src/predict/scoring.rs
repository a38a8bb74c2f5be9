//! Scores the lines of an input, batch by batch.
use super::{
    answers::{Out, Scores, Skipped, as_csv, as_json},
    lines::{Lines, Next},
    nodes::Nodes,
    saves::Saves,
    statistics::Statistics,
};
use crate::{
    output::tell,
    signals::{note_in, on_ending},
};
use clap::ValueEnum;
use std::{
    io::{self, Write},
    mem,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_data::{
    TimeScale,
    format::{EventFormat, EventPart, EventRow, LaterBytes, LaterEvent, LaterEvents, LaterInput, LaterTable},
    text::{counted, span},
};
use tgnn_training::task::{NewEvent, Predictor};

/// How long a state is tried to be saved where the disk refuses.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same after a signal: what sent it may send one that cannot be caught.
const PATIENCE_AFTER_SIGNAL: Duration = Duration::from_secs(6);

/// Why scoring stops before the end of the input.
pub(super) enum Stop {
    /// The reader of the scores has gone.
    BrokenPipe,
    /// The program was told to end, by this signal.
    Signal(i32),
    /// The input is wrong, or the output cannot be written.
    Failed(Error),
    /// The model has failed, so that its state is not to be saved.
    Model(Error),
}

impl Stop {
    fn model(e: Error) -> Self {
        Stop::Model(e)
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e)
    }
}

/// A line that was read and is not yet scored.
pub(super) struct Pending {
    src: u32,
    /// `None` if the line only asks.
    dst: Option<u32>,
    candidates: Option<Candidates>,
    event: LaterEvent,
}

/// The destinations that a line compares.
pub(super) enum Candidates {
    Listed(Vec<u32>),
    /// So many of the first destinations: those that the model knew before the line.
    All(usize),
}

/// What to do about a line that is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BadLines {
    /// End with its error
    Refuse,
    /// Write a line without scores, and go on
    Skip,
}

/// The state of the command.
pub(super) struct Run {
    pub predictor: Predictor,
    pub nodes: Nodes,
    /// Where the state is saved.
    pub saves: Option<Saves>,
    /// The last signal that came; 0 if none did.
    pub signalled: Arc<AtomicUsize>,
    pub bad_lines: BadLines,
    /// The answers to lines that are no events, each with the number of pending lines before it.
    pub skipped: Vec<(usize, String)>,
    /// `src,dst,time` of the line that was refused last, if they could be read.
    pub refused: Option<String>,
    pub pending: Vec<Pending>,
    /// Maximum number of pending events.
    pub batch: usize,
    /// Time of the last event read.
    pub latest: Option<i64>,
    pub scale: TimeScale,
    /// Whether a note told of an event that is implausibly late.
    pub told_far: bool,
    pub embeddings: bool,
    /// Maximum number of candidates that are written.
    pub top: Option<usize>,
    pub json: bool,
    pub out: Out,
    pub statistics: Statistics,
}

impl Run {
    /// Scores the events of `input`, also those that are pending when it ends early. Also returns the reader
    /// of the events.
    pub fn score_all(&mut self, input: LaterInput, format: EventFormat) -> (LaterEvents, Result<(), Stop>) {
        let (events, scored) = match input {
            LaterInput::Lines(path, bytes) => {
                let mut events = LaterEvents::new(&path, format);
                let scored =
                    self.started(path, bytes).and_then(|mut lines| self.score_lines(&mut lines, &mut events));
                (events, scored)
            }
            LaterInput::Table(path, table) => {
                let mut events = LaterEvents::new(&path, format);
                let scored = self.score_table(table, &mut events);
                (events, scored)
            }
        };
        let scored = match scored {
            // The events before have their scores before the error is reported. If that fails, too, the first
            // error is the reason.
            Err(stop @ (Stop::Failed(_) | Stop::Signal(_))) => {
                let _ = self.score_and_flush();
                Err(stop)
            }
            other => other,
        };
        (events, scored)
    }
    /// Saves the state after scoring has ended, unless the model has failed.
    pub fn save(&mut self, scored: &Result<(), Stop>) -> Result<()> {
        let Some(saves) = self.saves.take() else { return Ok(()) };
        let patience = match scored {
            Err(Stop::Model(_)) => return Ok(()),
            Err(Stop::Signal(_)) => PATIENCE_AFTER_SIGNAL,
            _ => PATIENCE,
        };
        saves.finish(&mut self.predictor, self.nodes.names.added(), patience)
    }
    /// Starts to read lines, and to look for signals, which end a wait for lines.
    fn started(&self, path: PathBuf, bytes: LaterBytes) -> Result<Lines, Stop> {
        let unseen = |e| Error::new(ErrorKind::Io, "cannot look for signals").caused_by(e);
        let (woken, mut wake) = io::pipe().map_err(unseen)?;
        let caught = || {
            note_in(&self.signalled)?;
            on_ending(move |_| drop(wake.write_all(b"!")))
        };
        caught().map_err(unseen)?;
        Ok(Lines::new(path, bytes, woken))
    }
    /// Scores every line of `input`. A batch is scored when it has `batch` events, or earlier if no complete
    /// line is waiting.
    fn score_lines(&mut self, input: &mut Lines, events: &mut LaterEvents) -> Result<(), Stop> {
        loop {
            match input.next()? {
                Next::Line(at) => {
                    self.line(&input.buffer[at], events)?;
                    self.score_batch()?;
                }
                Next::Wait => {
                    self.score_and_flush()?;
                    self.between_batches()?;
                    input.wait(self.saves.as_ref().and_then(|saves| saves.due(&self.predictor)))?;
                }
                Next::End => {
                    self.score_and_flush()?;
                    events.finish()?;
                    return self.signal();
                }
            }
        }
    }
    /// Reads a line. One that is no event is answered without scores, if such lines are to be skipped.
    fn line(&mut self, line: &[u8], events: &mut LaterEvents) -> Result<(), Stop> {
        let incomplete = events.lines().incomplete;
        let skips = self.bad_lines == BadLines::Skip;
        match events.line(line, &mut |event, row| self.take(event, row)) {
            // A first row that is wrong may be a header, without which all others would be read wrongly.
            Err(e) if skips && e.kind() == ErrorKind::Data && events.has_begun() => {
                self.skip(&e, events.has_candidates())
            }
            Err(e) => Err(e.into()),
            Ok(()) if skips && events.lines().incomplete > incomplete => {
                let e = Error::new(ErrorKind::Data, "the line lacks a value");
                self.skip(&e, events.has_candidates())
            }
            Ok(()) => Ok(()),
        }
    }
    /// Answers a line that is no event without scores; `candidates` says that lines may list some.
    fn skip(&mut self, e: &Error, candidates: bool) -> Result<(), Stop> {
        let width = self.predictor.width();
        let answer = match (self.json, self.embeddings) {
            (true, _) => Skipped::Json,
            (_, true) => Skipped::Csv(2 * width),
            _ => Skipped::Csv(2 + usize::from(candidates || self.top.is_some())),
        };
        let text = answer.text(self.refused.take().as_deref(), e)?;
        self.skipped.push((self.pending.len(), text));
        self.statistics.skip(e);
        Ok(())
    }
    /// Scores every row of a table.
    fn score_table(&mut self, table: LaterTable, events: &mut LaterEvents) -> Result<(), Stop> {
        if self.bad_lines == BadLines::Skip {
            let e = Error::usage("--bad-lines skip, and the input is no text");
            return Err(e.remedy("leave it out, or give lines of text or JSON").into());
        }
        let caught = note_in(&self.signalled).and_then(|()| on_ending(|_| ()));
        caught.map_err(|e| Error::new(ErrorKind::Io, "cannot look for signals").caused_by(e))?;
        // An error of the reader ends it, and a reason to stop is kept meanwhile.
        let mut stop = None;
        let read = events.table(table, &mut |event, row| {
            self.take(event, row)?;
            self.score_batch().map_err(|reason| {
                stop = Some(reason);
                Error::new(ErrorKind::Interrupted, "scoring has ended")
            })
        });
        match stop {
            Some(reason) => return Err(reason),
            None => read?,
        }
        self.score_and_flush()?;
        self.signal()
    }
    /// Adds an event to the pending ones. One that is refused changes nothing.
    fn take(&mut self, event: LaterEvent, row: &EventRow<'_>) -> Result<()> {
        self.refused = (self.bad_lines == BadLines::Skip).then(|| event.text.clone());
        if let Some(latest) = self.latest.filter(|&t| event.time < t) {
            let before = latest.saturating_sub(event.time);
            let what = format!("the event is {} earlier than one before it", counted(before as u64, "tick"));
            return Err(row.error(EventPart::Time, what).remedy("give events in order of time"));
        }
        self.tell_far(&event, row);
        if self.embeddings && event.candidates.is_some() {
            let e = row
                .error(EventPart::Candidates, "the line has candidates, and --embeddings writes no scores");
            return Err(e.remedy("leave out one of them"));
        }
        let all = self.top.filter(|_| event.candidates.is_none()).map(|_| self.nodes.destinations.len());
        if event.dst.is_none() && event.candidates.is_none() && all.is_none() {
            let e = row.error(EventPart::End(1), "the line has neither a destination nor candidates");
            return Err(e.remedy("give one of them, or --top K for the best of all destinations"));
        }
        let (src, dst, listed) = self.nodes.of_line(&event, row)?;
        let candidates = listed.map(Candidates::Listed).or(all.map(Candidates::All));
        if dst.is_some() {
            self.latest = Some(event.time);
        }
        self.refused = None;
        self.pending.push(Pending { src, dst, candidates, event });
        Ok(())
    }
    /// Tells, once, if an event is so late that its time must be in another unit.
    fn tell_far(&mut self, event: &LaterEvent, row: &EventRow<'_>) {
        let Some(latest) = self.latest.filter(|&t| !self.told_far && self.scale.is_far(event.time, t)) else {
            return;
        };
        let later = span((event.time - latest) as f64 / self.scale.ticks_per_second);
        let what =
            format!("the event is {later} after the one before it; is its time in the unit of the data?");
        tell(format_args!("note: {}", row.error(EventPart::Time, what)));
        self.told_far = true;
    }
    /// Scores the pending events if they are a full batch, or if the last one asks for nodes without an
    /// event.
    fn score_batch(&mut self) -> Result<(), Stop> {
        if self.pending.len() == self.batch || self.nodes.kept.is_some() {
            self.score()?;
            self.between_batches()?;
        }
        Ok(())
    }
    /// Scores the pending lines, and writes all that was not written yet.
    fn score_and_flush(&mut self) -> Result<(), Stop> {
        self.score()?;
        self.out.flush()
    }
    /// Saves the state if it is time, and stops after a signal.
    fn between_batches(&mut self) -> Result<(), Stop> {
        if let Some(saves) = &mut self.saves {
            // What the state knows has its scores written first.
            saves.save_if_due(&mut self.predictor, self.nodes.names.added(), || self.out.flush())?;
        }
        self.signal()
    }
    /// Stops if a signal has arrived.
    fn signal(&self) -> Result<(), Stop> {
        match self.signalled.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Stop::Signal(signal as i32)),
        }
    }
    /// Scores the pending lines and writes the results.
    fn score(&mut self) -> Result<(), Stop> {
        if self.pending.is_empty() {
            return write_skipped(&mut self.out, &mut self.skipped, usize::MAX);
        }
        let started = Instant::now();
        let mut scores = self.candidates().map_err(Stop::model)?;
        let asked = self.pending.iter().filter_map(|p| Some((p.dst?, p)));
        let events: Vec<NewEvent<'_>> = asked
            .map(|(dst, p)| NewEvent { src: p.src, dst, time: p.event.time, features: &p.event.features })
            .collect();
        let n = events.len();
        if n > 0 {
            let logits = self.predictor.advance(&events).map_err(Stop::model)?;
            let of_events = self.pending.iter().zip(&mut scores).filter(|(p, _)| p.dst.is_some());
            of_events.zip(logits).for_each(|((_, scores), logit)| scores.logit = Some(*logit));
        }
        // They are history now, whether or not their scores can be written.
        let pending = mem::take(&mut self.pending);
        self.nodes.forget_asked();
        let scored = started.elapsed();
        if self.embeddings {
            self.statistics.add(scored, n);
            self.write_embeddings(&pending)?;
        } else {
            self.statistics.add(scored, pending.len());
            for (i, (p, scores)) in pending.iter().zip(&scores).enumerate() {
                write_skipped(&mut self.out, &mut self.skipped, i)?;
                let candidates = self.top.is_some() || p.event.has_candidates;
                let line = match self.json {
                    true => as_json(&p.event, scores),
                    false => as_csv(&p.event, scores, candidates),
                };
                self.out.line(format_args!("{}", line?))?;
            }
        }
        write_skipped(&mut self.out, &mut self.skipped, usize::MAX)
    }
    /// Writes the embeddings of events that were scored.
    fn write_embeddings(&mut self, scored: &[Pending]) -> Result<(), Stop> {
        let [sources, destinations] = self.predictor.embeddings(scored.len()).map_err(Stop::model)?;
        let width = sources.len() / scored.len();
        let ends = sources.chunks_exact(width).zip(destinations.chunks_exact(width));
        for (i, (p, (u, v))) in scored.iter().zip(ends).enumerate() {
            let numbers: Vec<String> = u.iter().chain(v).map(ToString::to_string).collect();
            write_skipped(&mut self.out, &mut self.skipped, i)?;
            self.out.line(format_args!("{},{}", p.event.text, numbers.join(",")))?;
        }
        Ok(())
    }
    /// Scores the candidates of the pending lines, by the state before them.
    fn candidates(&mut self) -> Result<Vec<Scores>> {
        let mut all = Vec::with_capacity(self.pending.len());
        for p in &self.pending {
            let Some(candidates) = &p.candidates else {
                all.push(Scores::default());
                continue;
            };
            let candidates = match candidates {
                Candidates::Listed(nodes) => nodes,
                Candidates::All(known) => &self.nodes.destinations[..*known],
            };
            let pairs: Vec<[u32; 2]> = candidates.iter().map(|&dst| [p.src, dst]).collect();
            let logits = self.predictor.score(&pairs, p.event.time)?;
            self.statistics.candidates += pairs.len() as u64;
            let mut best: Vec<(u32, f32)> = candidates.iter().copied().zip(logits).collect();
            // Equal ones stay in their order.
            best.sort_by(|a, b| b.1.total_cmp(&a.1));
            best.truncate(self.top.unwrap_or(usize::MAX));
            let named = best.into_iter().map(|(v, logit)| (self.nodes.id(&self.predictor, v), logit));
            all.push(Scores { logit: None, candidates: Some(named.collect()) });
        }
        Ok(all)
    }
}

/// Writes the answers to lines without scores that come before pending line `i`.
fn write_skipped(out: &mut Out, skipped: &mut Vec<(usize, String)>, i: usize) -> Result<(), Stop> {
    let here = skipped.iter().take_while(|(before, _)| *before <= i).count();
    skipped.drain(..here).try_for_each(|(_, text)| out.line(format_args!("{text}")))
}
