//! The output of a run for people: the configuration, a line or a live bar for every pass, and the results.
use super::{
    output::{bar_characters, folded, say, tell, terminal_width},
    plan::{advice, older, over_ranks},
    train_data::Data,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::{collections::BTreeMap, io::IsTerminal, path::Path, time::Instant};
use tgnn::{
    error::Result,
    ops::sample_neighbors::History,
    runtime::{Device, StoredAs, comm::Ranks},
};
use tgnn_data::text::{counted, grouped};
use tgnn_training::{
    model::StaticMode,
    plan::Timeline,
    task::{
        Config, EpochRecord, NegativeKind, Progress, Scores, ScoresByMemory, Summary, Task, TaskName,
        TestScores, Watch,
        training::{BaselineScores, EdgeBankScores},
    },
};

/// Width of the words with which lines begin.
const HEAD: usize = 10;

/// The display of a run: live bars on a terminal, plain lines elsewhere. With `--json` everything goes to
/// standard error.
pub struct Display {
    json: bool,
    profile: bool,
    /// The timeline of the last epoch once it has ended; `None` if it was not requested.
    timeline: Option<Timeline>,
    live: bool,
    bar: Option<(String, ProgressBar)>,
    /// What passes count: events or edges.
    counts: &'static str,
    /// Whether the line about what the plan leaves to measurements is printed.
    chosen: bool,
    /// When the bar was last drawn.
    drawn: Instant,
}

impl Display {
    /// Creates a display. `profile` prints a table of op times at the end; `timeline` keeps the timeline of
    /// the last epoch.
    pub fn new(json: bool, profile: bool, timeline: bool) -> Self {
        let timeline = timeline.then(Timeline::default);
        let live = std::io::stderr().is_terminal();
        Display {
            json,
            profile,
            timeline,
            live,
            bar: None,
            counts: "events",
            chosen: false,
            drawn: Instant::now(),
        }
    }
    /// Prints a line.
    fn line(&self, text: impl std::fmt::Display) {
        if self.json { tell(text) } else { say(text) }
    }
    /// Prints lines that begin with a word and go on in a column of their own; on a terminal, folded to its
    /// width.
    fn head(&self, text: impl std::fmt::Display) {
        match terminal_width(self.json) {
            Some(width) => self.line(folded(&text.to_string(), width, HEAD)),
            None => self.line(text),
        }
    }
    /// Says where the timeline of the last epoch is, and how this rank used its lanes.
    pub fn tell_timeline(&self, path: &Path, device: &Device) {
        let Some(timeline) = &self.timeline else { return };
        let of_rank = device.ranks().map_or("", |_| "rank 0, ");
        self.line(format_args!("\ntimeline  {} (open it at ui.perfetto.dev)", path.display()));
        self.line(format_args!("          {of_rank}{}", timeline.usage()));
    }
    /// Says where the scores of the test are.
    pub fn tell_scores(&self, path: &Path) {
        self.line(format_args!("scores in {}", path.display()));
    }
    /// Prints the configuration of the run that is about to start, with notes.
    ///
    /// # Errors
    /// As [`Config::plan_on`].
    pub fn configuration(&mut self, c: &Config, data: &Data, d: &Device, notes: &[String]) -> Result<()> {
        let plan = c.plan_on(d)?;
        let epochs = c.epochs_trained(&plan, d.ranks().map_or(1, Ranks::size))?;
        self.counts = data.counts();
        let features = match c.features_as {
            StoredAs::F32 => String::new(),
            stored_as => format!(", features in {stored_as}"),
        };
        self.head(format_args!("data      {}{features}", data.describe(c)));
        data.notes().iter().for_each(|n| self.head(format_args!("          note: {n}")));
        let mut described = c.describe_model();
        if c.memory_as != StoredAs::F32 {
            described = format!("{described},\nmemory and mails in {}", c.memory_as);
        }
        let described = described.replace('\n', "\n          ");
        let learned = match c.static_mode() {
            StaticMode::Off => None,
            StaticMode::Pretrained => Some("before"),
            StaticMode::Trained => Some("with it"),
        };
        let rows = learned.map_or_else(String::new, |when| {
            format!(",\n          static memory {}, learned {when}", c.static_memory.width)
        });
        self.head(format_args!("model     {}  {described}{rows}", c.model_name()));
        let text_if = |n: usize, text: String| if n > 0 { text } else { String::new() };
        let chunks = text_if(c.chunks - 1, format!(" of {} chunks", c.chunks));
        let patience = text_if(c.patience, format!(", patience {}", c.patience));
        self.head(format_args!("training  {}", objective(c.task, c.protocol_name(), c.negatives)));
        let step = match c.model.reads_snapshots() {
            true => format!("groups of {}", counted(c.group.length as u64, "snapshot")),
            false => format!("batch {}{chunks}", c.batch) + &evaluated(c),
        };
        self.head(format_args!(
            "          {step}, {}{patience}, {}, seed {}, matmul in {}",
            counted(epochs as u64, "epoch"),
            c.optimizer.describe(c.learning_rate),
            c.seed,
            c.precision.name()
        ));
        notes.iter().for_each(|n| self.head(format_args!("note      {n}")));
        self.head(format_args!(
            "device    {}  {}, {}",
            d.kind(),
            d.name(),
            counted(d.threads() as u64, "thread")
        ));
        over_ranks::described(d, &plan)?.into_iter().for_each(|line| self.head(line));
        Ok(())
    }
    /// Prints the results of a run with configuration `c`.
    pub fn finish(&mut self, s: &Summary, c: &Config, out: Option<&Path>) {
        self.clear();
        if let (true, Some(last), Some(best)) = (s.stopped_early, s.epochs.last(), s.best_epoch) {
            let epochs = counted((last.epoch - best) as u64, "epoch");
            self.line(format_args!("stopped: no better validation for {epochs}"));
        }
        over_ranks::sent(s).into_iter().for_each(|line| self.head(line));
        older::lines(s).into_iter().for_each(|line| self.head(line));
        if let Some(test) = s.test {
            self.tested(s, test);
        }
        same_time(s).into_iter().for_each(|line| self.head(line));
        advice::lines(s, c).into_iter().for_each(|line| self.head(line));
        let mib = |bytes: u64| bytes as f64 / (1u64 << 20) as f64;
        let (host, device) = (mib(s.peak_memory_bytes.host), s.peak_memory_bytes.device);
        let device =
            if device > 0 { format!(", {:.0} MiB on the device", mib(device)) } else { String::new() };
        let parameters = grouped(s.parameters as u64);
        self.line(format_args!("{parameters} parameters, peak memory {host:.0} MiB{device}"));
        if let Some(out) = out {
            self.line(format_args!("run saved in {}", out.display()));
        }
    }
    /// Prints the scores of the model and of the best baselines.
    fn tested(&mut self, s: &Summary, test: TestScores) {
        self.line("");
        let best = s.best_epoch.map_or(String::new(), |e| format!(", epoch {e}"));
        let what = objective(s.task, &s.protocol, s.negatives);
        let batch = s.eval_batch.map_or(String::new(), |batch| format!(", batch {batch}"));
        let earlier = s.history.as_deref() == Some(History::Batch.name());
        let history = if earlier { ", neighbours of earlier batches" } else { "" };
        self.line(format_args!("test ({what}{batch}{history}{best})"));
        // A training has said so at its start.
        if let (Some(classes), true) = (&s.data.classes, s.epochs.is_empty()) {
            self.head(format_args!("classes   {classes}"));
        }
        let replayed_name = format!("{}, memory replayed", s.model);
        let mut rows = vec![(s.model.as_str(), test)];
        match s.test_by_memory {
            Some(ScoresByMemory { as_trained: Some(as_trained), replayed: Some(replayed) }) => {
                rows = vec![(s.model.as_str(), as_trained), (&replayed_name, replayed)];
            }
            Some(ScoresByMemory { replayed: Some(replayed), .. }) => {
                rows = vec![(&replayed_name, replayed)];
            }
            _ => {}
        }
        let (baselines, others) = shown_baselines(s);
        let all = || rows.iter().chain(baselines.iter().flat_map(|(_, rows)| rows));
        let width = all().map(|r| r.0.len()).max().unwrap_or(0);
        let parts: &[_] = match s.task {
            TaskName::Link => &["transductive", "inductive"],
            _ if s.data.snapshots.is_none() => &["transductive", "inductive"],
            _ => &["transductive"],
        };
        for &part in parts {
            let row = |part_here: &str, (name, test): &(&str, TestScores)| {
                let part_scores = if part == "inductive" { test.inductive } else { test.transductive };
                self.line(format_args!("  {part_here:<12}  {name:<width$}  {}", scores(&part_scores)));
            };
            rows.iter().enumerate().for_each(|(i, of)| row(if i == 0 { part } else { "" }, of));
            for (known, of) in &baselines {
                known.iter().for_each(|known| self.line(format_args!("  {:<12}  {known}", "")));
                of.iter().for_each(|of| row("", of));
            }
        }
        if s.task == TaskName::Link && !s.rules {
            self.line("  EdgeBank and the rules that learn nothing are left out (rules = false)");
        }
        if others > 0 {
            self.line(format_args!(
                "  {others} more rules that learn nothing are no better: see summary.json, or --json"
            ));
        }
    }
    /// Prints a line about a training pass that has ended.
    fn passed(&mut self, what: &str, r: &EpochRecord) {
        self.clear();
        let val = r.val.map_or(String::new(), |v| format!("  val {}", scores(&v)));
        self.line(format_args!(
            "{what}  loss {:.4}{val}  {:>6.2} s  {:>9} {}/s",
            r.train_loss,
            r.train_seconds,
            grouped(r.events_per_second as u64),
            self.counts
        ));
    }
    /// Prints what the plan leaves to measurements, once it is chosen.
    fn tell_choice(&mut self, task: &dyn Task) {
        if let (false, Some(choice)) = (self.chosen, task.plan_record().chosen) {
            self.line(format_args!("plan      {}: {choice}", task.core().plan().name));
            self.chosen = true;
        }
    }
    /// Removes the live bar.
    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Watch for Display {
    fn note(&mut self, what: &str) {
        self.head(format_args!("note      {what}"));
    }
    fn start(&mut self, task: &mut dyn Task) {
        if self.timeline.is_some() {
            task.core_mut().trace();
        }
        if self.profile {
            task.core_mut().step_mut().profile();
        }
        for (word, what) in task.remarks() {
            self.head(format_args!("{word:<8}  {what}"));
        }
        self.tell_choice(task);
        let core = task.core();
        let mut places = Vec::new();
        if core.device().gpu().is_some() {
            places.push(core.memory().to_string());
        }
        places.extend(core.host_memory().map(|host| host.to_string()));
        self.head(format_args!("memory    {}\n", places.join("\n          ")));
    }
    fn progress(&mut self, pass: &str, epoch: usize, p: Progress<'_>) {
        if !self.live {
            return;
        }
        let name = format!("epoch {epoch:>3} {pass:<6}");
        if self.bar.as_ref().is_none_or(|(n, _)| *n != name) {
            self.clear();
            let template = "{prefix} {wide_bar:.cyan/blue} {percent:>3}%  {per_sec}  {msg:<11}  {eta} left";
            let bar = ProgressBar::new(p.total as u64).with_prefix(name.clone());
            if let Ok(style) = ProgressStyle::with_template(template) {
                let counts = self.counts;
                let per_sec = move |s: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
                    // The rate is not reliable at the start of a pass.
                    let known = s.elapsed().as_millis() > 200;
                    let rate = if known { grouped(s.per_sec() as u64) } else { String::new() };
                    let _ = write!(w, "{rate:>11} {counts}/s");
                };
                bar.set_style(style.progress_chars(bar_characters()).with_key("per_sec", per_sec));
            }
            self.bar = Some((name, bar));
        }
        if self.drawn.elapsed().as_millis() < 50 && p.events < p.total {
            return;
        }
        self.drawn = Instant::now();
        if let Some((_, bar)) = &self.bar {
            bar.set_position(p.events as u64);
            if let Some(loss) = p.loss {
                bar.set_message(format!("loss {loss:.4}"));
            }
        }
    }
    fn epoch(&mut self, r: &EpochRecord) {
        self.passed(&format!("epoch {:>3}", r.epoch), r);
    }
    fn settled(&mut self, r: &EpochRecord) {
        self.passed("settled  ", r);
    }
    fn end(&mut self, task: &dyn Task) {
        self.clear();
        self.timeline = self.timeline.take().map(|_| task.core().timeline());
        self.tell_choice(task);
        if !self.profile {
            return;
        }
        let times = task.core().step().op_times();
        let total: f64 = times.iter().map(|t| t.seconds).sum();
        let on_device = times.iter().any(|t| t.kernels > 0);
        let head = if on_device { "kernels" } else { "" };
        self.line(format_args!(
            "\n{:<32} {:>6} {head:>8} {:>9} {:>7} {:>9} {:>8} {:>9} {:>8}",
            "op of the training step", "runs", "seconds", "share", "us/run", "MB/run", "MFLOP/run", "GFLOP/s"
        ));
        for t in &times {
            let lane = if t.lane > 0 { format!(", lane {}", t.lane + 1) } else { String::new() };
            let name = format!("{}{lane}", t.op);
            let kernels = if on_device { (t.kernels / t.runs.max(1)).to_string() } else { String::new() };
            self.line(format_args!(
                "{name:<32} {:>6} {kernels:>8} {:>9.3} {:>6.1}% {:>9.1} {:>8.2} {:>9.2} {:>8.1}",
                t.runs,
                t.seconds,
                100.0 * t.seconds / total,
                1e6 * t.seconds / t.runs as f64,
                t.cost.bytes as f64 / t.runs as f64 / 1e6,
                t.cost.flops as f64 / t.runs as f64 / 1e6,
                t.cost.flops as f64 / t.seconds / 1e9
            ));
        }
        if on_device {
            let mut kernels: BTreeMap<usize, usize> = BTreeMap::new();
            times.iter().for_each(|t| *kernels.entry(t.lane).or_default() += t.kernels);
            // At least one op (the cursor) runs exactly once per step, and no op runs less often.
            let steps = times.iter().map(|t| t.runs).min().unwrap_or(1).max(1);
            let lanes = kernels.into_iter().map(|(lane, n)| format!("{} on lane {}", n / steps, lane + 1));
            self.line(format_args!("\nkernels of a step: {}", lanes.collect::<Vec<_>>().join(", ")));
        }
    }
}

/// Describes the task and its negatives.
fn objective(task: TaskName, protocol: &str, negatives: NegativeKind) -> String {
    match (task, protocol) {
        (_, "next-snapshot") => format!("task {}, of the snapshot after each group", task.name()),
        (TaskName::Link, "tgb") => "task link, protocol tgb, given negatives".into(),
        (TaskName::Link, _) => format!("task link, protocol {protocol}, {} negatives", negatives.name()),
        _ => format!("task {}, protocol {protocol}", task.name()),
    }
}

/// Says how many test events happen at the same time as an event of an earlier batch, if they are many.
fn same_time(s: &Summary) -> Option<String> {
    let same = s.same_time.filter(|same| 100 * same.events > same.of)?;
    let known = match (s.test_by_memory.is_some(), s.task) {
        (true, TaskName::Link) => "node memory and the rules of earlier batches know",
        (true, _) => "node memory knows",
        (false, TaskName::Link) => "the rules of earlier batches know",
        (false, _) => return None,
    };
    let (events, of) = (grouped(same.events as u64), grouped(same.of as u64));
    Some(format!(
        "note      {events} of {of} test events are at the time of an event of an earlier batch, which {known}"
    ))
}

/// Number of rules that are shown if there are more; one more is shown, too, since a line would say so.
const SHOWN: usize = 3;
/// Baselines that are always shown.
const ALWAYS: [&str; 2] = ["last snapshot", "EdgeBank"];

/// Scores on the test part with their names.
type Named<'a> = Vec<(&'a str, TestScores)>;

/// Returns the baselines to show, under what they know if that is told, and the number of rules that are left
/// out of each list.
fn shown_baselines(s: &Summary) -> (Vec<(Option<&str>, Named<'_>)>, usize) {
    let (rules, others) = best_baselines(s, &s.baselines);
    let bank = s.edgebank.iter().flat_map(EdgeBankScores::named).map(|(name, test)| (name, *test));
    let batch = bank.chain(rules).collect();
    let Some(strict) = &s.strictly_earlier else { return (vec![(None, batch)], others) };
    let bank = strict.edgebank.named().map(|(name, test)| (name, *test)).into_iter();
    let time = bank.chain(best_baselines(s, &strict.baselines).0).collect();
    let known =
        ["rules that know the events of earlier batches:", "rules that know all strictly earlier events:"];
    (vec![(Some(known[0]), batch), (Some(known[1]), time)], others)
}

/// Returns the baselines that are always shown, then the best of the rules, the best one first, and the
/// number of the others. Rules that are few stay as they are.
fn best_baselines<'a>(s: &Summary, all: &'a [BaselineScores]) -> (Named<'a>, usize) {
    let is_always = |b: &&BaselineScores| ALWAYS.contains(&b.name.as_str());
    let (mut shown, mut rules): (Vec<_>, Vec<_>) = all.iter().partition(is_always);
    let mut others = 0;
    if rules.len() > SHOWN + 1 {
        let figure = |b: &BaselineScores| b.test.transductive.figure(s.task).unwrap_or(f64::NEG_INFINITY);
        rules.sort_by(|a, b| figure(b).total_cmp(&figure(a)));
        others = rules.len() - SHOWN;
        rules.truncate(SHOWN);
    }
    shown.extend(rules);
    (shown.into_iter().map(|b| (b.name.as_str(), b.test)).collect(), others)
}

/// Describes how a run on events is evaluated, where it is not as in training or not as by default.
fn evaluated(c: &Config) -> String {
    let batch = match c.evaluation_batch() {
        same if same == c.batch => String::new(),
        other => format!(", evaluated in {other}"),
    };
    batch + if c.history() == History::Batch { ", neighbours of earlier batches" } else { "" }
}

/// Formats the metrics that are defined.
fn scores(s: &Scores) -> String {
    let defined: Vec<String> =
        s.named().into_iter().filter_map(|(name, x)| x.map(|x| format!("{name} {x:.4}"))).collect();
    if defined.is_empty() { "nothing to score".into() } else { defined.join("  ") }
}
