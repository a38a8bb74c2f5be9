//! `tgnn-bench predict`: scores events as they arrive.
use super::{output::tell, settings::TrainedModelArgs};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Write},
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{Real, is_waiting, peak_memory_bytes},
};
use tgnn_data::{
    NodeId, NodeNames, TimeScale,
    format::{
        EventFormat, EventPart, EventRow, IdRule, LaterBytes, LaterEvent, LaterEvents, LaterInput, LaterTable,
    },
    text::{counted, span},
};
use tgnn_training::task::{
    After, Checkpoint, Config, NewEvent, Predictor, PredictorOptions, training::folder::locked,
};

/// Maximum number of candidates that are scored together.
const SCORED: usize = 1024;
/// Maximum length of an input line, in bytes.
const LONGEST_LINE: usize = 1 << 24;

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
    /// Maximum number of nodes, including nodes that are yet to appear [default: those of the training data]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Number of most recent events kept per node [default: 4 times the number of sampled neighbours, plus
    /// --batch less 1]
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Folder to save the state to at the end, from which another `predict` can continue
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// File to write instead of standard output: `src,dst,time,logit,probability`, one line per event; with
    /// candidates a further field, a JSON list such as [["p9",1.5],["p4",0.2]], the best first
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Predict {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        self.check()?;
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
        let predictor = Predictor::open(&checkpoint, &config, &device, &options)?;
        let known = known(&predictor, self.after);
        // After the model is ready, because this waits for the first bytes of a pipe.
        let input = LaterInput::open(&self.input)?;
        let format = self.format(&predictor, &config);
        let mut run = Run {
            nodes: Nodes::of(&predictor),
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
        let started = Instant::now();
        let (events, scored) = run.score_all(input, format);
        match scored {
            // The reader of the scores has closed the pipe.
            Err(Stop::BrokenPipe) => return Ok(()),
            Err(Stop::Failed(e)) => return Err(e),
            Ok(()) => {}
        }
        let seconds = started.elapsed().as_secs_f64();
        if let Some(dir) = &self.save {
            let _lock = locked(dir)?;
            run.predictor.save(dir, run.nodes.names.added())?;
        }
        run.statistics.print(&known, seconds, self.batch, self.save.as_deref());
        if events.lines().all() > 0 {
            tell(format_args!("lines     {}", events.lines()));
        }
        events.notes().iter().for_each(|note| tell(format_args!("note: {note}")));
        Ok(())
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

/// Why scoring stops before the end of the input.
enum Stop {
    BrokenPipe,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e)
    }
}

/// A line that was read and is not yet scored.
struct Pending {
    src: u32,
    /// `None` if the line only asks.
    dst: Option<u32>,
    candidates: Option<Candidates>,
    event: LaterEvent,
}

/// The destinations that a line compares.
enum Candidates {
    Listed(Vec<u32>),
    /// So many of the first destinations: those that the model knew before the line.
    All(usize),
}

/// The scores of a line.
#[derive(Default)]
struct Scores {
    /// Of its event.
    logit: Option<f32>,
    /// Destinations, the best first.
    candidates: Option<Vec<(NodeId, f32)>>,
}

/// The state of the command.
struct Run {
    predictor: Predictor,
    nodes: Nodes,
    pending: Vec<Pending>,
    /// Maximum number of pending events.
    batch: usize,
    /// Time of the last event read.
    latest: Option<i64>,
    scale: TimeScale,
    /// Whether a note told of an event that is implausibly late.
    told_far: bool,
    embeddings: bool,
    /// Maximum number of candidates that are written.
    top: Option<usize>,
    json: bool,
    out: Out,
    statistics: Statistics,
}

impl Run {
    /// Scores the events of `input`. Also returns the reader of its events.
    fn score_all(&mut self, input: LaterInput, format: EventFormat) -> (LaterEvents, Result<(), Stop>) {
        match input {
            LaterInput::Lines(path, bytes) => {
                let mut events = LaterEvents::new(&path, format);
                let scored = self.score_lines(&mut Lines::new(path, bytes), &mut events);
                (events, scored)
            }
            LaterInput::Table(path, table) => {
                let mut events = LaterEvents::new(&path, format);
                let scored = self.score_table(table, &mut events);
                (events, scored)
            }
        }
    }
    /// Scores every line of `input`. A batch is scored when it has `batch` events, or earlier if no complete
    /// line is waiting.
    fn score_lines(&mut self, input: &mut Lines, events: &mut LaterEvents) -> Result<(), Stop> {
        loop {
            match input.next()? {
                Next::Line(at) => {
                    let line = &input.buffer[at];
                    if let Err(e) = events.line(line, &mut |event, row| self.take(event, row)) {
                        // The earlier events get their scores before the error is reported.
                        self.score()?;
                        self.out.flush()?;
                        return Err(e.into());
                    }
                    self.score_batch()?;
                }
                Next::Wait => {
                    self.score()?;
                    self.out.flush()?;
                    input.read()?;
                }
                Next::End => {
                    self.score()?;
                    self.out.flush()?;
                    return Ok(events.finish()?);
                }
            }
        }
    }
    /// Scores every row of a table.
    fn score_table(&mut self, table: LaterTable, events: &mut LaterEvents) -> Result<(), Stop> {
        let mut closed = false;
        let read = events.table(table, &mut |event, row| {
            self.take(event, row)?;
            self.score_batch().map_err(|stop| match stop {
                Stop::Failed(e) => e,
                Stop::BrokenPipe => {
                    closed = true;
                    Error::new(ErrorKind::Interrupted, "the reader of the scores has gone")
                }
            })
        });
        if closed {
            return Err(Stop::BrokenPipe);
        }
        self.score()?;
        self.out.flush()?;
        Ok(read?)
    }
    /// Adds an event to the pending ones.
    fn take(&mut self, event: LaterEvent, row: &EventRow<'_>) -> Result<()> {
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
        let ends = event.dst.as_ref().map(|dst| self.nodes.ends(&event.src, dst, row)).transpose()?;
        let (src, listed) = self.nodes.asked(&event, ends, row)?;
        let (dst, candidates) = (ends.map(|[_, dst]| dst), listed.or(all.map(Candidates::All)));
        if dst.is_none() && candidates.is_none() {
            let e = row.error(EventPart::End(1), "the line has neither a destination nor candidates");
            return Err(e.remedy("give one of them, or --top K for the best of all destinations"));
        }
        if dst.is_some() {
            self.latest = Some(event.time);
        }
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
        if self.pending.len() == self.batch || self.nodes.kept.is_some() { self.score() } else { Ok(()) }
    }
    /// Scores the pending lines and writes the results.
    fn score(&mut self) -> Result<(), Stop> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let mut scores = self.candidates()?;
        let asked = self.pending.iter().filter_map(|p| Some((p.dst?, p)));
        let events: Vec<NewEvent<'_>> = asked
            .map(|(dst, p)| NewEvent { src: p.src, dst, time: p.event.time, features: &p.event.features })
            .collect();
        let n = events.len();
        if n > 0 {
            let logits = self.predictor.advance(&events)?;
            let of_events = self.pending.iter().zip(&mut scores).filter(|(p, _)| p.dst.is_some());
            of_events.zip(logits).for_each(|((_, scores), logit)| scores.logit = Some(*logit));
        }
        if self.embeddings {
            let [sources, destinations] = self.predictor.embeddings(n)?;
            self.statistics.add(started.elapsed(), n);
            let width = sources.len() / n;
            let ends = sources.chunks_exact(width).zip(destinations.chunks_exact(width));
            for (p, (u, v)) in self.pending.iter().zip(ends) {
                let numbers: Vec<String> = u.iter().chain(v).map(ToString::to_string).collect();
                self.out.line(format_args!("{},{}", p.event.text, numbers.join(",")))?;
            }
        } else {
            self.statistics.add(started.elapsed(), self.pending.len());
            for (p, scores) in self.pending.iter().zip(&scores) {
                let candidates = self.top.is_some() || p.event.has_candidates;
                let line = match self.json {
                    true => as_json(&p.event, scores),
                    false => as_csv(&p.event, scores, candidates),
                };
                self.out.line(format_args!("{}", line?))?;
            }
        }
        self.pending.clear();
        self.nodes.forget_asked();
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

/// Returns the scores of a line as CSV: its event, the logit and the probability of the event, and, if lines
/// may have `candidates`, these as a list of JSON in one field. What the line does not have is empty.
fn as_csv(event: &LaterEvent, scores: &Scores, candidates: bool) -> Result<String> {
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
fn as_json(event: &LaterEvent, scores: &Scores) -> Result<String> {
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

/// The nodes of a stream.
struct Nodes {
    names: NodeNames,
    /// Number of nodes of the data set.
    known: usize,
    /// Whether only some nodes are destinations.
    separate: bool,
    /// The nodes that may be the best destination: those of the data set, and those that came later.
    destinations: Vec<u32>,
    /// Those that came later.
    new: HashSet<u32>,
    /// How many new nodes stay when the pending lines are scored, if the last one asks for nodes without an
    /// event.
    kept: Option<usize>,
}

impl Nodes {
    fn of(predictor: &Predictor) -> Self {
        let names = predictor.names();
        let known = predictor.destinations();
        let mut nodes = Nodes {
            known: known.end as usize,
            separate: known.start > 0,
            destinations: known.collect(),
            new: HashSet::new(),
            kept: None,
            names,
        };
        for i in 0..nodes.names.added().len() {
            nodes.add(nodes.names.number_of_added(i), nodes.names.added()[i].1.into());
        }
        nodes
    }
    /// Returns the numbers of the ends of an event, which may be new.
    fn ends(&mut self, src: &NodeId, dst: &NodeId, row: &EventRow<'_>) -> Result<[u32; 2]> {
        let src = self.node(src, EventPart::End(0), row, NodeNames::number)?;
        self.add(src, 0);
        let dst = self.node(dst, EventPart::End(1), row, NodeNames::number)?;
        self.add(dst, 1);
        Ok([src, dst])
    }
    /// Returns the numbers of the source of a line and of its candidates, if it lists some. Those that had no
    /// event yet have a number only until the line is scored: a question changes nothing.
    fn asked(
        &mut self,
        line: &LaterEvent,
        ends: Option<[u32; 2]>,
        row: &EventRow<'_>,
    ) -> Result<(u32, Option<Candidates>)> {
        let kept = self.names.added().len();
        let mut number = |id, part| self.node(id, part, row, NodeNames::asked);
        let src = ends.map_or_else(|| number(&line.src, EventPart::End(0)), |[src, _]| Ok(src));
        let listed = line.candidates.as_ref();
        let listed: Option<Result<Vec<u32>>> =
            listed.map(|ids| ids.iter().map(|id| number(id, EventPart::Candidates)).collect());
        self.kept = (self.names.added().len() > kept).then_some(kept);
        let found = src.and_then(|src| Ok((src, listed.transpose()?.map(Candidates::Listed))));
        if found.is_err() {
            self.forget_asked();
        }
        found
    }
    /// Forgets the nodes that were only asked for.
    fn forget_asked(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.names.forget(kept);
        }
    }
    /// Returns the number of a node, by what gives one to those that are new.
    fn node(
        &mut self,
        id: &NodeId,
        part: EventPart,
        row: &EventRow<'_>,
        number: fn(&mut NodeNames, &NodeId, bool) -> Option<u32>,
    ) -> Result<u32> {
        if let (NodeId::Text(text), true) = (id, self.names.are_numbers()) {
            let e = row.error(part, format!("`{text}` is not a node"));
            return Err(e.remedy("nodes are whole numbers from 0"));
        }
        number(&mut self.names, id, !matches!(part, EventPart::End(0))).ok_or_else(|| {
            let nodes = self.names.capacity();
            let what = format!("node {id} does not fit: the predictor holds {nodes} nodes");
            row.error(part, what).remedy("allow more with --nodes")
        })
    }
    /// Adds a node that events may lead to, if it is new.
    fn add(&mut self, node: u32, side: usize) {
        let leads = side == 1 || !self.separate;
        if leads && node as usize >= self.known && self.new.insert(node) {
            self.destinations.push(node);
        }
    }
    /// Returns the original id of a node.
    fn id(&self, predictor: &Predictor, node: u32) -> NodeId {
        let new = || self.names.id_of_added(node).cloned();
        predictor.id(node).or_else(new).unwrap_or(NodeId::Number(node.into()))
    }
}

/// The output of the scores.
struct Out {
    path: Option<PathBuf>,
    to: BufWriter<Box<dyn Write>>,
}

impl Out {
    fn open(path: Option<&Path>) -> Result<Self> {
        let to: Box<dyn Write> = match path {
            Some(path) => Box::new(File::create(path).map_err(|e| Error::io(path, "cannot create", e))?),
            None => Box::new(io::stdout()),
        };
        Ok(Out { path: path.map(Path::to_owned), to: BufWriter::new(to) })
    }
    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), Stop> {
        writeln!(self.to, "{text}").map_err(|e| self.stop(e))
    }
    fn flush(&mut self) -> Result<(), Stop> {
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

/// Splits bytes into lines, and can tell without blocking whether a complete line has arrived.
struct Lines {
    path: PathBuf,
    bytes: LaterBytes,
    buffer: Vec<u8>,
    /// Start in `buffer` of the bytes that were not returned yet.
    start: usize,
    /// Number of bytes after `start` that are known to contain no end of a line.
    searched: usize,
    /// Whether the end of the file was reached.
    ended: bool,
}

/// The next line of an input.
enum Next {
    /// Range of the buffer with a line, without its end.
    Line(Range<usize>),
    /// No complete line has arrived yet.
    Wait,
    /// The input has ended.
    End,
}

impl Lines {
    fn new(path: PathBuf, bytes: LaterBytes) -> Self {
        Lines { path, bytes, buffer: Vec::new(), start: 0, searched: 0, ended: false }
    }
    /// Returns the next line if it has arrived.
    fn next(&mut self) -> Result<Next> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = rest[self.searched..].iter().position(|&b| b == b'\n') {
                let line = self.start..self.start + self.searched + at;
                (self.start, self.searched) = (line.end + 1, 0);
                return Ok(Next::Line(line));
            }
            self.searched = rest.len();
            match (self.ended, rest.is_empty()) {
                (true, true) => return Ok(Next::End),
                (true, false) => {
                    let line = self.start..self.buffer.len();
                    (self.start, self.searched) = (line.end, 0);
                    return Ok(Next::Line(line));
                }
                _ if !is_waiting(&self.bytes.file) => return Ok(Next::Wait),
                _ => self.read()?,
            }
        }
    }
    /// Reads more bytes; blocks until some arrive or the file ends.
    fn read(&mut self) -> Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let end = self.buffer.len();
        if end > LONGEST_LINE {
            return Err(Error::data(&self.path, format!("a line is longer than {LONGEST_LINE} bytes"))
                .remedy("give one event per line"));
        }
        self.buffer.resize(end + (1 << 16), 0);
        let read = self.bytes.read(&mut self.buffer[end..])?;
        self.buffer.truncate(end + read);
        self.ended = read == 0;
        Ok(())
    }
}

/// A histogram of times in logarithmic classes about 2 % wide, so that memory does not grow with the number
/// of times.
struct Latencies {
    classes: Vec<u64>,
    max: Duration,
}

impl Latencies {
    /// Number of classes per power of two.
    const CLASSES_PER_OCTAVE: f64 = 32.0;

    /// Returns the class of a time.
    fn class(time: Duration) -> usize {
        ((time.as_nanos().max(1) as f64).log2() * Self::CLASSES_PER_OCTAVE) as usize
    }
    /// Adds a time, `count` times.
    fn add(&mut self, time: Duration, count: u64) {
        let class = Self::class(time);
        self.classes.resize(self.classes.len().max(class + 1), 0);
        self.classes[class] += count;
        self.max = self.max.max(time);
    }
    /// Returns the nanoseconds that the given fraction of all times does not exceed: the upper end of a
    /// class, but at most the largest time.
    fn quantile(&self, fraction: f64) -> f64 {
        let mut left = fraction * self.classes.iter().sum::<u64>() as f64;
        let class = self.classes.iter().position(|&n| {
            left -= n as f64;
            left <= 0.0
        });
        class.map_or(0.0, |c| {
            ((c + 1) as f64 / Self::CLASSES_PER_OCTAVE).exp2().min(self.max.as_nanos() as f64)
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { classes: Vec::new(), max: Duration::ZERO }
    }
}

/// The statistics printed at the end.
#[derive(Default)]
struct Statistics {
    events: u64,
    /// Candidates of lines, beside their events.
    candidates: u64,
    batches: u64,
    batch_latencies: Latencies,
    event_latencies: Latencies,
}

impl Statistics {
    /// Adds a batch of `events` events that took `time`.
    fn add(&mut self, time: Duration, events: usize) {
        self.events += events as u64;
        self.batches += 1;
        self.batch_latencies.add(time, 1);
        self.event_latencies.add(time / events.max(1) as u32, events as u64);
    }
    /// Prints the statistics to standard error.
    fn print(&self, known: &str, seconds: f64, batch: usize, saved: Option<&Path>) {
        let line = |l: &Latencies| {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|fraction| l.quantile(fraction) / 1e3);
            let max = l.max.as_secs_f64() * 1e6;
            format!("p50 {p50:.0} us, p90 {p90:.0} us, p99 {p99:.0} us, at most {max:.0} us")
        };
        let (mut events, steps) = (counted(self.events, "event"), counted(self.batches, "step"));
        if self.candidates > 0 {
            events =
                format!("{} and {}", counted(self.events, "line"), counted(self.candidates, "candidate"));
        }
        tell(format_args!("scored    {events} in {steps} of at most {batch}, {known}"));
        tell(format_args!("speed     {:.0} events/s, {seconds:.2} s", self.events as f64 / seconds));
        tell(format_args!("a step    {}", line(&self.batch_latencies)));
        tell(format_args!("an event  {}", line(&self.event_latencies)));
        tell(format_args!("memory    {:.0} MiB at most", peak_memory_bytes() as f64 / f64::from(1u32 << 20)));
        if let Some(dir) = saved {
            tell(format_args!("saved     {}", dir.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_up_to_a_class_and_the_maximum_is_exact() {
        let mut l = Latencies::default();
        (1..=1000).for_each(|i| l.add(Duration::from_micros(i), 1));
        for (fraction, want) in [(0.5, 500e3), (0.9, 900e3), (0.99, 990e3), (1.0, 1e6)] {
            let found = l.quantile(fraction);
            assert!((want..want * 1.05).contains(&found), "{fraction}: {found}");
        }
        assert_eq!((l.max, Latencies::default().quantile(0.5)), (Duration::from_millis(1), 0.0));
    }

    #[test]
    fn lines_are_returned_as_they_arrive_and_the_last_one_needs_no_newline() {
        let (read, mut write) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(read));
        let path = PathBuf::from("pipe");
        let bytes = LaterBytes::new(&path, Vec::new(), file).unwrap();
        let mut lines = Lines::new(path, bytes);
        fn next(lines: &mut Lines) -> Option<String> {
            match lines.next().unwrap() {
                Next::Line(at) => Some(String::from_utf8(lines.buffer[at].to_vec()).unwrap()),
                Next::Wait => None,
                Next::End => Some("end".into()),
            }
        }
        assert_eq!(next(&mut lines), None);
        write.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(
            [next(&mut lines), next(&mut lines), next(&mut lines)].map(|l| l.unwrap_or_default()),
            ["one", "two", ""]
        );
        write.write_all(b"ee\n\nlast").unwrap();
        drop(write);
        let rest = [(); 5].map(|()| next(&mut lines).unwrap_or_default());
        assert_eq!(rest, ["three", "", "last", "end", "end"]);
    }
}
