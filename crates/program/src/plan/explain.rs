//! `tgnn-bench plan explain`: what the planner of DistTGL chooses for data and ranks, and why.
use crate::{
    output::{print_json, say},
    settings::{ReadArgs, check_ending, with_default},
};
use clap::Args;
use serde_json::json;
use std::{fmt::Write as _, path::PathBuf};
use tgnn::error::{Error, Result};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    plan::{CapturedEvents, Machine, Plan, PlannerChoice, PlannerOptions, plan_parallel},
    task::{Config, training::folder::write_whole},
};

/// Columns and rows of the plot.
const COLUMNS: usize = 72;
const ROWS: usize = 14;
/// The marks of its curves.
const MARKS: [char; 6] = ['.', 'o', '+', 'x', '*', '#'];
/// The colours of the curves of the drawing.
const COLORS: [&str; 6] = ["#888888", "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7"];

/// The largest fraction of captured events that the planner loses, unless the caller says otherwise.
const LOST: f64 = 0.1;

/// Returns a configuration in which the planner's choice takes the place of the plan `disttgl`, for `ranks`
/// ranks of which `ranks_of_node` are on a computer, and the planner's reasons; `None` for other plans.
///
/// # Errors
/// Those of [`plan_parallel`] and of splitting the events.
pub fn planned(
    config: &Config,
    events: &Events,
    (ranks, ranks_of_node): (usize, usize),
) -> Result<Option<(Config, [String; 3])>> {
    if config.plan != Plan::PLANNED {
        return Ok(None);
    }
    let options = PlannerOptions {
        ranks,
        ranks_of_node,
        batch: config.batch,
        lost: LOST,
        lost_by_busiest: 1.0,
        copy_bytes: copy_bytes(config, events)?,
    };
    let planned = plan_parallel(events, config.split(events)?.train, options)?;
    let plan = format!("{}:{}", Plan::PLANNED, planned.parallel);
    Ok(Some((Config { plan, batch: planned.batch, ..config.clone() }, planned.reasons)))
}

/// Returns the bytes of a copy of the node memory.
fn copy_bytes(config: &Config, events: &Events) -> Result<usize> {
    Ok(config.event_model()?.state_bytes(events.nodes, events.edge_width(), config.memory_as))
}

/// Arguments of the command.
#[derive(Args)]
#[command(mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
pub struct Explain {
    /// The plan: disttgl
    plan: String,
    /// Event file, folder, or bundled name (wikipedia)
    #[arg(long, value_name = "PATH", default_value = "wikipedia")]
    data: String,
    /// Number of ranks
    #[arg(long, value_name = "N")]
    ranks: usize,
    /// The machine of the ranks: the name of one, as for `plan simulate`, or a file: MACHINE.toml [default:
    /// one computer]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Events of a batch that one rank trains by itself
    #[arg(long, value_name = "B", default_value_t = 200)]
    batch: usize,
    /// Largest fraction that may be lost of the events that node memory captures in these batches
    #[arg(long, value_name = "X", default_value_t = LOST)]
    lost: f64,
    /// The same, of the events of the busiest hundredth of the nodes, which lose most
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    lost_by_busiest: f64,
    /// Model, for the size of its memory
    #[arg(long, default_value = "tgn")]
    model: ModelName,
    /// Also draw the captured events to an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// How to read the events
    #[command(flatten)]
    read: ReadArgs,
}

/// A curve: the captured events of nodes, those with the most events first.
struct Curve {
    name: String,
    by_rank: Vec<u32>,
}

impl Explain {
    /// Runs the command.
    ///
    /// # Errors
    /// `Usage` for another plan, or numbers that make no sense; those of [`tgnn_data::load`].
    pub fn run(&self) -> Result<()> {
        if self.plan != "disttgl" {
            let what = format!("plan {} leaves nothing to a planner", self.plan);
            return Err(Error::usage(what).remedy("give disttgl, or see plan show"));
        }
        if self.batch == 0 {
            return Err(Error::usage("--batch 0").remedy("give 1 or more"));
        }
        self.svg.iter().try_for_each(|path| check_ending("--svg", path, "svg"))?;
        let machine = self.machine.as_deref().map(Machine::named).transpose()?;
        machine.iter().try_for_each(|machine| machine.check_ranks(self.ranks))?;
        let ranks_of_node = machine.as_ref().map_or(self.ranks, |machine| machine.node.devices);
        let events = tgnn_data::load(&self.data, &self.read.options())?;
        let config = Config { model: self.model, ..Config::default() };
        let train = config.split(&events)?.train;
        let options = PlannerOptions {
            ranks: self.ranks,
            ranks_of_node,
            batch: self.batch,
            lost: self.lost,
            lost_by_busiest: self.lost_by_busiest,
            copy_bytes: copy_bytes(&config, &events)?,
        };
        let planned = plan_parallel(&events, train.clone(), options)?;
        let mut batches = vec![1];
        batches.extend((0..MARKS.len() as u32 - 1).map(|times| self.batch << (2 * times)));
        batches.retain(|&batch| batch <= train.len().max(1));
        batches.dedup();
        let captured: Vec<CapturedEvents> =
            batches.iter().map(|&batch| CapturedEvents::new(&events, train.clone(), batch)).collect();
        if let Some(path) = &self.svg {
            write_whole(path, svg(&curves(&captured)).as_bytes())?;
        }
        if self.json {
            return print_json(&self.numbers(&planned, &captured));
        }
        say(format_args!("plan disttgl:{}, batches of {}", planned.parallel, planned.batch));
        planned.reasons.iter().for_each(|reason| say(format_args!("  {reason}")));
        say(format_args!(
            "\ncaptured events of the nodes of {}, those with the most events first:\n",
            events.name
        ));
        say(plot(&curves(&captured)).trim_end());
        if let Some(path) = &self.svg {
            say(format_args!("\nwrote {}", path.display()));
        }
        Ok(())
    }
    fn numbers(&self, planned: &PlannerChoice, captured: &[CapturedEvents]) -> serde_json::Value {
        let all = captured.first().map_or(0, CapturedEvents::total).max(1) as f64;
        let of = |c: &CapturedEvents| json!({ "batch": c.batch, "captured": c.total(), "fraction": c.total() as f64 / all });
        json!({
            "plan": format!("disttgl:{}", planned.parallel), "parallel": planned.parallel, "batch": planned.batch,
            "reasons": planned.reasons, "captured": captured.iter().map(of).collect::<Vec<_>>(),
        })
    }
}

/// Returns the curves of the batches; the first one holds all events.
fn curves(captured: &[CapturedEvents]) -> Vec<Curve> {
    let Some(all) = captured.first() else { return Vec::new() };
    let mut order: Vec<usize> = (0..all.by_node.len()).filter(|&v| all.by_node[v] > 0).collect();
    order.sort_by_key(|&v| std::cmp::Reverse(all.by_node[v]));
    let curve = |c: &CapturedEvents| {
        let name = if c.batch == 1 { "all".to_owned() } else { format!("batches of {}", c.batch) };
        Curve { name, by_rank: order.iter().map(|&v| c.by_node[v]).collect() }
    };
    captured.iter().map(curve).collect()
}

/// Returns the mean of each of `columns` groups of nodes, whose sizes grow from left to right.
fn means(curve: &Curve, columns: usize) -> Vec<f64> {
    let nodes = curve.by_rank.len();
    let place = |column: usize| ((nodes + 1) as f64).powf(column as f64 / columns as f64) as usize - 1;
    let mean = |column: usize| {
        let first = place(column).min(nodes.saturating_sub(1));
        let group =
            &curve.by_rank[first..place(column + 1).clamp(first + 1, nodes.max(first + 1)).min(nodes)];
        group.iter().map(|&n| f64::from(n)).sum::<f64>() / group.len().max(1) as f64
    };
    if nodes == 0 { Vec::new() } else { (0..columns).map(mean).collect() }
}

/// Returns the place of a number between 1 and `most` on a logarithmic scale, from 0 to 1.
fn height(x: f64, most: f64) -> f64 {
    (x.max(1.0).ln() / most.max(2.0).ln()).clamp(0.0, 1.0)
}

/// Returns the largest number of the curves.
fn most(curves: &[Curve]) -> f64 {
    f64::from(curves.iter().flat_map(|c| &c.by_rank).copied().max().unwrap_or(1))
}

/// Draws the curves with characters; both axes are logarithmic.
fn plot(curves: &[Curve]) -> String {
    let (most, mut cells) = (most(curves), vec![[' '; COLUMNS]; ROWS]);
    // Later curves are lower, and are drawn last.
    for (curve, mark) in curves.iter().zip(MARKS) {
        for (column, mean) in means(curve, COLUMNS).into_iter().enumerate() {
            let row = ((1.0 - height(mean, most)) * (ROWS - 1) as f64).round() as usize;
            cells[row.min(ROWS - 1)][column] = mark;
        }
    }
    let mut out = String::new();
    for (row, line) in cells.iter().enumerate() {
        let label = match row {
            0 => format!("{most:.0}"),
            _ if row == ROWS - 1 => "1".to_owned(),
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        let _ = writeln!(out, "{label:>8} │{}", line.trim_end());
    }
    let nodes = curves.first().map_or(0, |curve| curve.by_rank.len());
    let _ = writeln!(out, "{:>8} └{}", "", "─".repeat(COLUMNS));
    let _ = writeln!(out, "{:>10}1{:>width$}", "", format!("{nodes} nodes"), width = COLUMNS - 1);
    for (curve, mark) in curves.iter().zip(MARKS) {
        let _ = writeln!(out, "{:>10}{mark} {}", "", curve.name);
    }
    out
}

/// Draws the curves as SVG; both axes are logarithmic.
fn svg(curves: &[Curve]) -> String {
    const SIZE: [f64; 2] = [640.0, 400.0];
    const MARGIN: f64 = 56.0;
    let (most, [width, height_all]) = (most(curves), SIZE);
    let (inner_width, inner_height) = (width - 2.0 * MARGIN, height_all - 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height_all}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let (left, bottom) = (MARGIN, height_all - MARGIN);
    let _ = writeln!(
        out,
        "<path d=\"M{left} {MARGIN}V{bottom}H{}\" fill=\"none\" stroke=\"black\"/>",
        width - MARGIN
    );
    let nodes = curves.first().map_or(0, |curve| curve.by_rank.len());
    for power in 0..=most.log10() as i32 {
        let y = bottom - height(10f64.powi(power), most) * inner_height;
        let _ = writeln!(
            out,
            "<path d=\"M{left} {y:.1}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - MARGIN,
            left - 6.0,
            y + 4.0,
            10i64.pow(power as u32)
        );
    }
    for (at, curve) in curves.iter().enumerate().take(COLORS.len()) {
        let columns = 160;
        let point = |(column, mean): (usize, f64)| {
            let x = left + inner_width * (column as f64 + 0.5) / columns as f64;
            format!("{x:.1},{:.1}", bottom - height(mean, most) * inner_height)
        };
        let points: Vec<String> = means(curve, columns).into_iter().enumerate().map(point).collect();
        let (color, y) = (COLORS[at], MARGIN + 4.0 + 16.0 * at as f64);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"{color}\">{}</text>",
            points.join(" "),
            width - MARGIN,
            curve.name
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{nodes} nodes, those with the most events first (logarithmic)</text>",
        width / 2.0,
        height_all - 16.0
    );
    let _ =
        writeln!(out, "<text x=\"{left}\" y=\"{}\">captured events of a node</text>\n</svg>", MARGIN - 16.0);
    out
}
