//! `tgnn-bench predict`: scores events as they arrive.
mod answers;
mod lines;
mod nodes;
mod saves;
mod scoring;
mod statistics;

use super::{output::tell, settings::TrainedModelArgs, signals};
use answers::Out;
use clap::Args;
use nodes::Nodes;
use saves::{SaveEvery, Saves};
use scoring::{BadLines, Run, Stop};
use statistics::Statistics;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_data::format::{EventFormat, IdRule, LaterInput};
use tgnn_training::task::{After, Checkpoint, Config, Predictor, PredictorOptions};

/// Maximum number of candidates that are scored together.
const SCORED: usize = 1024;

/// Arguments of `predict`.
#[derive(Args)]
pub struct Predict {
    #[command(flatten)]
    trained: TrainedModelArgs,
    /// Events after those that the model knows, in time order: lines of `src,dst,time` and the columns of
    /// features, written as in the data, or in the order of a header; or any other table that data may be; a
    /// file, or - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// What the model knows at first: stream (all events of the data), or validation (only those of training
    /// and validation: to score the test part)
    #[arg(long, value_name = "PART", default_value = "stream")]
    after: After,
    /// Maximum number of events scored together; their memory is from before the first of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: usize,
    /// Write the embeddings of source and destination instead of the score
    #[arg(long, conflicts_with_all = ["top", "json"])]
    embeddings: bool,
    /// Also write the K best destinations of each line, with their logits, as they are before its event: of
    /// the line's `candidates`, or else of all destinations. A line without a destination is no event, and
    /// only asks
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Write a JSON object per line instead of CSV
    #[arg(long)]
    json: bool,
    /// Maximum number of nodes, including nodes that are yet to appear; where ids are numbers of nodes, the
    /// largest id plus 1 [default: those of the training data]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Number of most recent events kept per node [default: 4 times the number of sampled neighbours, plus
    /// --batch less 1]
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Folder to save the state to, from which another `predict` can continue: at the end of the input, at
    /// a signal such as Ctrl-C, and when anything but the model fails
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Also save the state every so many events, such as 100000, or so often, such as 30s, 10m or 1h, while
    /// scoring goes on
    #[arg(long, value_name = "N|TIME", requires = "save")]
    save_every: Option<SaveEvery>,
    /// What to do about a line that is no event
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = BadLines::Refuse)]
    bad_lines: BadLines,
    /// File to write instead of standard output: `src,dst,time,logit,probability`, one line per event; with
    /// candidates a further field, a JSON list such as [["p9",1.5],["p4",0.2]], the best first
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Predict {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        self.check()?;
        let (mut run, input, format) = self.open()?;
        let known = known(&run.predictor, self.after);
        let started = Instant::now();
        let (events, scored) = run.score_all(input, format);
        let seconds = started.elapsed().as_secs_f64();
        if matches!(scored, Err(Stop::BrokenPipe)) && run.saves.is_none() {
            return Ok(()); // as a command in a pipe before `head` ends
        }
        if matches!(scored, Ok(()) | Err(Stop::Signal(_))) {
            run.statistics.print(&known, seconds, self.batch);
            if events.lines().all() > 0 {
                tell(format_args!("lines     {}", events.lines()));
            }
            events.notes().iter().for_each(|note| tell(format_args!("note: {note}")));
        }
        let saved = run.save(&scored);
        let Err(stop) = scored else { return saved };
        // The first error is the reason to end; what came after it is told.
        if let Err(e) = saved {
            tell(format_args!("note: the state was not saved: {e}"));
        }
        ended(stop)
    }
    /// Opens the model, the input and the outputs. Also returns how the events are written.
    fn open(&self) -> Result<(Run, LaterInput, EventFormat)> {
        if let Some(dir) = &self.save {
            Checkpoint::at(dir).may_hold_stream()?;
        }
        let (checkpoint, config) = self.trained.open(None)?;
        config.event_model()?;
        if let Some(out) = &self.out {
            self.trained.refuse_over("--out", out, &config, Some(&self.input))?;
        }
        let device = config.open_device()?;
        let options = PredictorOptions {
            batch: self.batch,
            nodes: self.nodes,
            slots: self.slots,
            events: None,
            after: self.after,
            scored: SCORED,
        };
        let mut predictor = Predictor::open(&checkpoint, &config, &device, &options)?;
        // After the model is ready, because this waits for the first bytes of a pipe.
        let input = LaterInput::open(&self.input)?;
        let format = self.format(&predictor, &config);
        let saves = self.save.as_deref().map(|dir| Saves::open(dir, self.save_every, &mut predictor));
        let run = Run {
            nodes: Nodes::of(&predictor),
            saves: saves.transpose()?,
            signalled: Arc::default(),
            bad_lines: self.bad_lines,
            skipped: Vec::new(),
            refused: None,
            pending: Vec::new(),
            batch: self.batch,
            embeddings: self.embeddings,
            top: self.top,
            json: self.json,
            latest: predictor.latest(),
            scale: predictor.time_scale(),
            told_far: false,
            predictor,
            out: Out::open(self.out.as_deref())?,
            statistics: Statistics::default(),
        };
        Ok((run, input, format))
    }
    /// Refuses flags that make no sense.
    fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch > 1 << 20 {
            return Err(Error::usage(format!("--batch is {}", self.batch)).remedy("give 1 to 1048576"));
        }
        if self.top == Some(0) {
            return Err(Error::usage("--top 0").remedy("give 1 or more"));
        }
        let Some(out) = &self.out else { return Ok(()) };
        let wrong = match (out.extension().and_then(|end| end.to_str()), self.json) {
            (Some("npy" | "parquet" | "arrow" | "feather" | "gz" | "zst" | "zip"), _) => "scores are text",
            (Some("json" | "jsonl" | "ndjson"), false) => "scores are CSV without --json",
            (Some("csv" | "tsv"), true) => "scores are JSON lines with --json",
            _ => return Ok(()),
        };
        let ending = if self.json { ".jsonl" } else { ".csv" };
        Err(Error::usage(format!("--out {}: {wrong}", out.display()))
            .remedy(format!("let the name end in {ending}")))
    }
    /// Returns how the events are written.
    fn format(&self, predictor: &Predictor, config: &Config) -> EventFormat {
        EventFormat {
            scale: predictor.time_scale(),
            encoding: predictor.encoding(),
            has_names: predictor.has_feature_names(),
            columns: config.data.columns.clone().unwrap_or_default(),
            delimiter: config.data.delimiter,
            missing: config.data.missing,
            ids: IdRule::among(!predictor.names().are_names()),
            asks: !self.embeddings,
        }
    }
}

/// Ends the command early.
fn ended(stop: Stop) -> Result<()> {
    match stop {
        Stop::BrokenPipe => {
            let what = "the reader of the scores has closed the pipe";
            Err(Error::new(ErrorKind::Io, what).in_file(Path::new("standard output")))
        }
        Stop::Signal(signal) => {
            tell(format_args!("ended by {}", signals::name(signal)));
            signals::end_by(signal)
        }
        Stop::Failed(e) | Stop::Model(e) => Err(e),
    }
}

/// Says after which events scoring began.
fn known(predictor: &Predictor, after: After) -> String {
    let what = match after {
        _ if predictor.seen() > 0 => "the stream that was saved",
        After::Stream => "all events of the data",
        After::Validation => "the events of training and validation",
    };
    let until = |t| format!(" ({})", predictor.time_scale().text(t));
    format!("after {what}{}", predictor.latest().map_or(String::new(), until))
}
