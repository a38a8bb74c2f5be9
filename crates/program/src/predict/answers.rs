//! The lines that `predict` writes.
use super::scoring::Stop;
use serde::Serialize;
use serde_json::Value;
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::Real,
};
use tgnn_data::{NodeId, format::LaterEvent};

/// The scores of a line.
#[derive(Default)]
pub(super) struct Scores {
    /// Of its event.
    pub logit: Option<f32>,
    /// Destinations, the best first.
    pub candidates: Option<Vec<(NodeId, f32)>>,
}

/// Returns the scores of a line as CSV: its event, the logit and the probability of the event, and, if lines
/// may have `candidates`, these as a list of JSON in one field. What the line does not have is empty.
pub(super) fn as_csv(event: &LaterEvent, scores: &Scores, candidates: bool) -> Result<String> {
    let mut line = event.text.clone();
    match scores.logit {
        Some(logit) => line += &format!(",{logit},{}", logit.sigmoid()),
        None => line += ",,",
    }
    match &scores.candidates {
        Some(candidates) => line += &format!(",\"{}\"", json(candidates)?.replace('"', "\"\"")),
        None if candidates => line.push(','),
        None => {}
    }
    Ok(line)
}

/// Returns a value as JSON in one line.
fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value);
    text.map_err(|e| Error::new(ErrorKind::Io, "cannot write the scores").caused_by(e))
}

/// A line with its scores, as an object of JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    src: &'a NodeId,
    dst: Option<&'a NodeId>,
    /// A number, or else text.
    time: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    logit: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<&'a [(NodeId, f32)]>,
}

/// Returns the scores of a line as an object of JSON.
pub(super) fn as_json(event: &LaterEvent, scores: &Scores) -> Result<String> {
    let time = serde_json::from_str(&event.written);
    json(&JsonLine {
        src: &event.src,
        dst: event.dst.as_ref(),
        time: time.map_or_else(|_| Value::from(event.written.clone()), Value::Number),
        logit: scores.logit,
        probability: scores.logit.map(Real::sigmoid),
        candidates: scores.candidates.as_deref(),
    })
}

/// What is written for a line that is no event: its `src,dst,time` if that much is known, and no scores.
pub(super) enum Skipped {
    /// CSV with so many empty fields after the three.
    Csv(usize),
    /// An object of JSON.
    Json,
}

impl Skipped {
    /// Returns the text of a line that `error` refused.
    pub(super) fn text(&self, known: Option<&str>, error: &Error) -> Result<String> {
        #[derive(Serialize)]
        struct Refused {
            src: (),
            dst: (),
            time: (),
            error: String,
        }
        match self {
            Skipped::Csv(fields) => Ok(format!("{}{}", known.unwrap_or(",,"), ",".repeat(*fields))),
            Skipped::Json => json(&Refused { src: (), dst: (), time: (), error: error.to_string() }),
        }
    }
}

/// The output of the scores.
pub(super) struct Out {
    path: Option<PathBuf>,
    to: BufWriter<Box<dyn Write>>,
}

impl Out {
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let to: Box<dyn Write> = match path {
            Some(path) => Box::new(File::create(path).map_err(|e| Error::io(path, "cannot create", e))?),
            None => Box::new(io::stdout()),
        };
        Ok(Out { path: path.map(Path::to_owned), to: BufWriter::new(to) })
    }
    pub fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), Stop> {
        writeln!(self.to, "{text}").map_err(|e| self.stop(e))
    }
    pub fn flush(&mut self) -> Result<(), Stop> {
        self.to.flush().map_err(|e| self.stop(e))
    }
    /// Converts a write error.
    fn stop(&self, e: io::Error) -> Stop {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Stop::BrokenPipe;
        }
        let name = self.path.as_deref().unwrap_or(Path::new("standard output"));
        Stop::Failed(Error::io(name, "cannot write", e))
    }
}
