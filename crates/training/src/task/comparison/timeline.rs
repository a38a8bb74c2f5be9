//! The timeline that a run folder may hold: when and on which lane the ops of a few steps ran.
use super::FinishedRun;
use crate::task::training::{TIMELINE, folder::read_text};
use serde::{Deserialize, Serialize};
use tgnn::error::{Error, ErrorKind, Result};

/// The run of an op.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneSpan {
    /// The lane, from 0.
    pub lane: usize,
    /// The step of the pass.
    pub step: usize,
    /// Name of the op.
    pub op: String,
    /// Name of its stage.
    pub stage: String,
    /// Start, in microseconds since the first op.
    pub start: f64,
    /// Length, in microseconds.
    pub length: f64,
}

/// A trace in the format of Perfetto and Chrome, as far as it is read here.
#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    ph: String,
    #[serde(default)]
    tid: usize,
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
struct Args {
    step: Option<usize>,
    stage: Option<String>,
}

impl FinishedRun {
    /// Reads the timeline; empty if the run has none.
    ///
    /// # Errors
    /// `Checkpoint` if the file is damaged.
    pub fn timeline(&self) -> Result<Vec<LaneSpan>> {
        let path = self.path.join(TIMELINE);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = read_text(&path)?;
        let trace: Trace = serde_json::from_str(&text).map_err(|e| {
            let damaged = Error::new(ErrorKind::Checkpoint, "is damaged").in_file(&path);
            damaged.caused_by(e).remedy("remove it, or train again with --timeline")
        })?;
        let runs = trace.events.into_iter().filter(|event| event.ph == "X");
        let spans = runs.filter_map(|Event { tid, name, ts, dur, args, .. }| {
            Some(LaneSpan {
                lane: tid,
                step: args.step?,
                op: name,
                stage: args.stage?,
                start: ts,
                length: dur,
            })
        });
        let mut spans: Vec<LaneSpan> = spans.collect();
        let first = spans.iter().map(|span| span.start).fold(f64::INFINITY, f64::min);
        spans.iter_mut().for_each(|span| span.start -= first);
        Ok(spans)
    }
}
