//! `tgnn-bench data snapshots` and `data synth-snapshots`: describes the snapshots of a data set, and
//! generates snapshots.
use super::{
    output::{print_json, say},
    report::{WIDTH, bar, line, percentage, width},
    settings::{Keys, ReadArgs, with_default},
};
use clap::Args;
use std::{fmt::Write, path::PathBuf};
use tgnn::error::Result;
use tgnn_data::{
    EdgeWeights, Every, Presence, SnapshotOptions, SnapshotStats, Snapshots, StepStats, SynthSnapshots,
    Trend,
    text::{counted, grouped},
};
use tgnn_training::{model::ModelName, task::TaskName};

/// Number of steps shown at either end if there are too many for a screen.
const ENDS: usize = 12;
/// Maximum width of a step's name.
const NAME: usize = 20;
/// Maximum width of a step's bar.
const BAR: usize = 18;

/// How a data set is cut into snapshots. What no flag sets keeps the value of the configuration.
#[derive(Clone, Debug, Default, Args)]
#[command(mut_args(|arg| with_default(arg, Self::KEYS)))]
pub struct SnapshotArgs {
    /// Length of a step: day, week, month, year, step, or 2w, 7d, 36h, 90m, 600s, 1000e (events)
    #[arg(long, value_name = "STEP")]
    pub every: Option<Every>,
    /// Edge weights: auto, none, count, or feature:K
    #[arg(long, value_name = "WHAT")]
    pub weights: Option<EdgeWeights>,
    /// When a vertex is present: seen, active or all
    #[arg(long, value_name = "WHEN")]
    pub presence: Option<Presence>,
}

impl SnapshotArgs {
    /// The flags, and the keys of the configuration that are the same settings.
    const KEYS: Keys =
        &[("every", "snapshots.every"), ("weights", "snapshots.weights"), ("presence", "snapshots.presence")];

    /// Overrides the options that the flags set.
    pub fn apply(&self, options: &mut SnapshotOptions) {
        options.every = self.every.unwrap_or(options.every);
        options.weights = self.weights.unwrap_or(options.weights);
        options.presence = self.presence.unwrap_or(options.presence);
    }
}

/// Arguments of `data snapshots`.
#[derive(Clone, Debug, Args)]
#[command(mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
pub struct Describe {
    /// Snapshots (JSON, a folder of edge lists, a folder of tables), or events (a file, a folder, a bundled
    /// name)
    pub path: String,
    /// Show every step, not only the first and last ones
    #[arg(long)]
    pub all: bool,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
    /// How to cut events into snapshots
    #[command(flatten)]
    pub snapshots: SnapshotArgs,
    /// How to read the events
    #[command(flatten)]
    pub read: ReadArgs,
}

impl Describe {
    /// Returns the arguments that describe the snapshots at `path`.
    pub(super) fn new(path: &str, json: bool) -> Self {
        Describe {
            path: path.into(),
            all: false,
            json,
            snapshots: SnapshotArgs::default(),
            read: ReadArgs::default(),
        }
    }

    /// Prints the report, or the statistics as JSON.
    ///
    /// # Errors
    /// Those of [`Snapshots::load`].
    pub(super) fn run(&self) -> Result<()> {
        let (stats, task) = self.stats()?;
        if self.json {
            return print_json(&stats);
        }
        say(table(&stats, task, self.all).trim_end());
        Ok(())
    }

    /// Returns the statistics, and the task that the snapshots suit.
    fn stats(&self) -> Result<(SnapshotStats, TaskName)> {
        let mut options = SnapshotOptions::default();
        self.snapshots.apply(&mut options);
        let snapshots = Snapshots::load(&self.path, &self.read.options(), &options, 0)?;
        Ok((SnapshotStats::new(&snapshots), TaskName::suited_to(&snapshots)))
    }
}

/// Arguments of `data synth-snapshots`.
#[derive(Clone, Debug, Args)]
pub struct MakeUp {
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Take the edges of a file, one `src dst` per line, instead of generating a graph
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vertices", "edges", "signal", "exponent"])]
    pub graph: Option<PathBuf>,
    /// Number of vertices
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub vertices: usize,
    /// Number of edges of the graph; each step has some of them
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub edges: usize,
    /// Exponent of the power law of popularity
    #[arg(long, value_name = "X", default_value_t = 0.8)]
    pub exponent: f64,
    /// Probability that an edge joins vertices of the same hidden type
    #[arg(long, value_name = "P", default_value_t = 0.9)]
    pub signal: f64,
    /// Number of steps
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub steps: usize,
    /// Edges of the steps: constant, linear:FRACTION (grows from this fraction to all), as733 (grows like
    /// AS-733), or counts: 100,120,90
    #[arg(long, value_name = "TREND", default_value_t = Trend::As733)]
    pub trend: Trend,
    /// Probability that an edge is not drawn anew from one step to the next
    #[arg(long, value_name = "P", default_value_t = 0.9)]
    pub persist: f64,
    /// Width of the vertex features
    #[arg(long, value_name = "W", default_value_t = 0)]
    pub features: usize,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Replace snapshots that were generated there before
    #[arg(long)]
    pub force: bool,
}

impl MakeUp {
    /// Returns the flags as the library's options.
    fn options(&self) -> SynthSnapshots {
        SynthSnapshots {
            graph: self.graph.clone(),
            vertices: self.vertices,
            edges: self.edges,
            exponent: self.exponent,
            signal: self.signal,
            steps: self.steps,
            trend: self.trend.clone(),
            persist: self.persist,
            features: self.features,
            seed: self.seed,
        }
    }

    /// Writes the folder and returns a line that describes it.
    ///
    /// # Errors
    /// Those of [`SynthSnapshots::make_in`].
    pub(super) fn run(&self) -> Result<String> {
        let s = self.options().make_in(&self.out, self.force)?;
        Ok(format!(
            "wrote {}: {}, {} vertices, {} in all\n",
            self.out.display(),
            counted(s.len() as u64, "step"),
            grouped(s.nodes as u64),
            counted(s.src.len() as u64, "edge")
        ))
    }
}

/// Formats the totals and one row per step as plain text at most 80 columns wide. If the graph does not
/// change, there are rows only if `all` are wanted.
fn table(s: &SnapshotStats, task: TaskName, all: bool) -> String {
    let mut out = format!("{}\n{}\n", s.name, "─".repeat(s.name.chars().count().clamp(1, WIDTH)));
    totals(&mut out, s, task);
    let steps = &s.steps;
    if is_static(s) && !all {
        return out;
    }
    let name = steps.iter().map(|s| s.label.chars().count()).max().unwrap_or(0).clamp(4, NAME);
    let most = steps.iter().map(|s| s.edges).max().unwrap_or(0);
    let edges = grouped(most).len().max(7);
    // The other columns, with two blanks before them and one between them, take 42 characters.
    let bar_width = WIDTH.saturating_sub(name + edges + 42).min(BAR);
    let head = ["step", "vertices", "edges", "a vertex", "kept", "Jaccard"];
    let [step, vertices, of_edges, degree, kept, jaccard] = head;
    let _ = writeln!(
        out,
        "\n  {step:<name$} {vertices:>10} {of_edges:>edges$} {degree:>9} {kept:>8} {jaccard:>8}"
    );
    let whole = all || steps.len() <= 2 * ENDS + 1;
    let last = steps.len().saturating_sub(ENDS);
    for (i, step) in steps.iter().enumerate().filter(|(i, _)| whole || *i <= ENDS || *i >= last) {
        if !whole && i == ENDS {
            let _ =
                writeln!(out, "  {:<name$} {:>10}  (--all shows them)", "…", format!("{} more", last - ENDS));
            continue;
        }
        let label: String = step.label.chars().take(NAME).collect();
        let _ = write!(out, "  {label:<name$} {:>10} {:>edges$}", grouped(step.active), grouped(step.edges));
        let kept = step.kept_share.map_or("–".into(), |x| format!("{:.1} %", 100.0 * x));
        let jaccard = step.jaccard.map_or("–".into(), |x| format!("{x:.3}"));
        let bar = bar(step.edges as f64 / most.max(1) as f64, bar_width);
        let row = format!(" {:>9.2} {kept:>8} {jaccard:>8} {bar}", step.edges_per_vertex());
        let _ = writeln!(out, "{}", row.trim_end());
    }
    out
}

/// Whether every step has the same edges, and there are several.
fn is_static(s: &SnapshotStats) -> bool {
    s.steps.len() > 1 && s.steps.iter().all(|step| step.edges == s.unique_edges)
}

/// Appends the totals of all steps, and the task that they suit.
fn totals(out: &mut String, s: &SnapshotStats, task: TaskName) {
    let steps = &s.steps;
    let ends = match (steps.first(), steps.last()) {
        (Some(a), Some(b)) => format!("{}  ({} to {})", grouped(steps.len() as u64), a.label, b.label),
        _ => "0".into(),
    };
    line(out, "steps", &ends);
    let present = |step: Option<&StepStats>| grouped(step.map_or(0, |s| s.present));
    let vertices = format!(
        "{}  ({} present in the first step, {} in the last)",
        grouped(s.vertices),
        present(steps.first()),
        present(steps.last())
    );
    line(out, "vertices", &vertices);
    let more = if s.vertices > s.first_ids.len() as u64 { ", .." } else { "" };
    line(out, "ids", &(s.first_ids.join(", ") + more));
    let unique = format!(
        "{}  ({} unique, {})",
        grouped(s.edges),
        grouped(s.unique_edges),
        percentage(s.unique_edges, s.edges)
    );
    line(out, "edges", &unique);
    let edges_of =
        |pick: fn(std::slice::Iter<'_, StepStats>) -> Option<u64>| grouped(pick(steps.iter()).unwrap_or(0));
    let mean = grouped((s.edges as f64 / steps.len().max(1) as f64).round() as u64);
    let spread = format!(
        "{mean} on average, {} to {}",
        edges_of(|s| s.map(|s| s.edges).min()),
        edges_of(|s| s.map(|s| s.edges).max())
    );
    if is_static(s) {
        line(out, "graph", &format!("{} in every step, the same ones", counted(s.unique_edges, "edge")));
    } else {
        line(out, "edges a step", &spread);
    }
    if let (false, Some(kept), Some(jaccard)) =
        (is_static(s), s.mean(|s| s.kept_share), s.mean(|s| s.jaccard))
    {
        let text =
            format!("{:.1} % of a step's edges are in the next one, Jaccard {jaccard:.3}", 100.0 * kept);
        line(out, "persistence", &text);
    }
    line(out, "weights", if s.weighted { "yes" } else { "none" });
    let change = if s.features_change { ", a row per step and vertex" } else { "" };
    line(out, "features", &(width(s.feature_width) + change));
    if s.target_width > 0 {
        line(out, "targets", &counted(s.target_width as u64, "value"));
    }
    if s.classes > 0 {
        line(out, "classes", &grouped(s.classes));
    }
    line(out, "task", &format!("{}, for the models {}", task.name(), ModelName::names(true)));
    s.notes.iter().for_each(|note| line(out, "note", note));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(every: &str) -> SnapshotStats {
        let events = tgnn_data::bundled().unwrap();
        let mut options = SnapshotOptions::default();
        SnapshotArgs { every: every.parse().ok(), ..SnapshotArgs::default() }.apply(&mut options);
        SnapshotStats::new(&Snapshots::of_events(&events, &options, 0).unwrap())
    }

    #[test]
    fn all_steps_are_shown_if_few_or_on_request_and_else_the_middle_is_left_out() {
        let rows = |text: &str| text.lines().skip_while(|l| !l.starts_with("  step ")).skip(1).count();
        assert_eq!(rows(&table(&stats("7d"), TaskName::Link, false)), 5);
        let many = stats("6h");
        let text = table(&many, TaskName::Link, false);
        assert_eq!(
            (many.steps.len(), rows(&text), rows(&table(&many, TaskName::Link, true))),
            (124, 25, 124)
        );
        assert!(text.contains(" 100 more  (--all shows them)\n"), "{text}");
        assert!(
            text.contains("  +0h ")
                && text.contains("  +66h ")
                && !text.contains("  +72h ")
                && text.contains("  +672h "),
            "{text}"
        );
    }

    #[test]
    fn a_graph_that_stays_is_told_once_with_the_ids_and_the_task() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pox.json");
        let content =
            r#"{"edges": [[0, 1]], "FX": [[1, 2], [3, 4], [5, 6]], "node_ids": {"PEST": 1, "ZALA": 0}}"#;
        std::fs::write(&path, content).unwrap();
        let (stats, task) = Describe::new(path.to_str().unwrap(), false).stats().unwrap();
        let text = table(&stats, task, false);
        for said in
            ["ids             ZALA, PEST\n", "1 edge in every step", "task            regression, for "]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.contains("Jaccard"), "{text}");
    }

    #[test]
    fn the_defaults_of_synth_snapshots_equal_those_of_the_library() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: MakeUp,
        }
        let parse = |words: &[&str]| <Cli as clap::Parser>::try_parse_from(words).map(|cli| cli.args);
        assert_eq!(parse(&["synth", "--out", "d"]).unwrap().options(), SynthSnapshots::default());
        assert_eq!(
            parse(&["synth", "--out", "d", "--trend", "3,4"]).unwrap().trend,
            Trend::Counts(vec![3, 4])
        );
        assert!(parse(&["synth", "--out", "d", "--graph", "g", "--vertices", "3"]).is_err());
    }

    #[test]
    fn the_report_fits_in_80_columns_and_has_the_main_numbers() {
        let text = table(&stats("1d"), TaskName::Link, false);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        for said in
            ["31  (+0d to +30d)", "9,227  (", "18,257 unique", "% of a step's edges are in the next one"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
