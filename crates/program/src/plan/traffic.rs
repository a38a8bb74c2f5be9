//! The report of `tgnn-bench partition`: numbers of each partitioner, the communication matrix, heat maps.
use crate::report::line;
use serde_json::{Value, json};
use std::fmt::Write;
use tgnn_data::text::{counted, grouped};
use tgnn_training::plan::partition::{DemandOptions, Partitioner, Traffic};

/// Up to this number of ranks, every pair is shown.
const SHOWN: usize = 16;
/// Up to this number of ranks, a cell of a heat map is four characters wide and two lines high, otherwise two
/// and one: about square in a terminal.
const LARGE: usize = 5;
/// The shades of a heat map, from 0 to the maximum.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// A partitioner's result.
pub struct PartitionerResult {
    pub by: Partitioner,
    pub traffic: Traffic,
    pub seconds: f64,
}

/// What the command found.
pub struct TrafficReport {
    pub name: String,
    pub events: usize,
    pub nodes: usize,
    pub options: DemandOptions,
    /// Number of batches of an epoch.
    pub epoch: usize,
    pub lower_bound: u64,
    pub batches: usize,
    pub count_seconds: f64,
    pub tried: Vec<PartitionerResult>,
    pub chosen: usize,
}

impl TrafficReport {
    /// Rows are totals over the counted batches.
    pub fn json(&self) -> Value {
        let o = &self.options;
        let tried = |t: &PartitionerResult| {
            let ranks = 0..t.traffic.ranks();
            let row = |owner| ranks.clone().map(|rank| t.traffic.rows(owner, rank)).collect::<Vec<_>>();
            json!({
                "by": t.by.name(), "cost": t.traffic.cost(), "imbalance": t.traffic.imbalance(),
                "most_received": t.traffic.most_received(), "total": t.traffic.total(),
                "most_residual": t.traffic.residuals().into_iter().max().unwrap_or(0), "seconds": t.seconds,
                "costs": t.traffic.costs(), "matrix": ranks.clone().map(row).collect::<Vec<_>>(),
            })
        };
        json!({
            "data": self.name, "events": self.events, "nodes": self.nodes, "ranks": o.ranks, "batch": o.batch,
            "neighbors": o.neighbors, "recipients": o.recipients, "seed": o.seed,
            "batches": self.batches, "batches_per_epoch": self.epoch, "count_seconds": self.count_seconds,
            "lower_bound": self.lower_bound, "chosen": self.tried[self.chosen].by.name(),
            "partitioners": self.tried.iter().map(tried).collect::<Vec<_>>(),
        })
    }
}

/// Returns the report.
pub fn report(found: &TrafficReport) -> String {
    let mut out = format!("{}\n{}\n", found.name, "─".repeat(found.name.chars().count().max(1)));
    head(&mut out, found);
    table(&mut out, found);
    let chosen = &found.tried[found.chosen];
    if found.options.ranks == 1 {
        out.push_str("\n  One rank owns every row, so none travels.\n");
    } else if found.options.ranks <= SHOWN {
        let _ = writeln!(out, "\n  {}: rows a batch, from the owner (line) to the rank (column)", chosen.by);
        matrix(&mut out, found, true, |t, i, j| t.rows(i, j));
        let _ = writeln!(out, "\n  {}: residual, rows a batch below the busiest pair", chosen.by);
        matrix(&mut out, found, false, Traffic::residual);
        heat_maps(&mut out, found);
    } else {
        quartiles(&mut out, found);
    }
    out
}

/// Formats rows per batch.
fn rows(found: &TrafficReport, rows: u64) -> String {
    let mean = rows as f64 / found.batches.max(1) as f64;
    if mean < 99.95 { format!("{mean:.1}") } else { grouped(mean.round() as u64) }
}

/// Appends what was counted.
fn head(out: &mut String, found: &TrafficReport) {
    let o = &found.options;
    let (events, nodes) =
        (counted(found.events as u64, "training event"), counted(found.nodes as u64, "node"));
    line(out, "data", &format!("{events}, {nodes}"));
    let of_all = if found.batches < found.epoch {
        format!("{} of {} batches", grouped(found.batches as u64), grouped(found.epoch as u64))
    } else {
        format!("all {} batches", grouped(found.batches as u64))
    };
    let mut counted_rows =
        format!("{of_all} of {} events, {} neighbours", grouped(o.batch as u64), o.neighbors);
    if o.recipients > 0 {
        let _ = write!(counted_rows, ", {} recipients", o.recipients);
    }
    let _ = write!(counted_rows, "; {:.1} s", found.count_seconds);
    line(out, "counted", &counted_rows);
    line(out, "ranks", &grouped(o.ranks as u64));
    if o.ranks > 1 {
        line(out, "lower bound", &format!("no partition costs less than {}", rows(found, found.lower_bound)));
    }
}

/// Appends a line for each partitioner.
fn table(out: &mut String, found: &TrafficReport) {
    let _ = writeln!(
        out,
        "\n  {:<15}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "rows a batch", "cost", "max/mean", "received", "residual", "total", "seconds"
    );
    for t in &found.tried {
        let residual = t.traffic.residuals().into_iter().max().unwrap_or(0);
        let _ = writeln!(
            out,
            "  {:<15}{:>10}{:>10.3}{:>10}{:>10}{:>10}{:>10.2}",
            t.by,
            rows(found, t.traffic.cost()),
            t.traffic.imbalance(),
            rows(found, t.traffic.most_received()),
            rows(found, residual),
            rows(found, t.traffic.total()),
            t.seconds
        );
    }
    for text in [
        "cost: rows that the busiest rank receives and sends; max/mean: over all ranks",
        "received: most rows that a rank receives; residual: of the least busy pair",
    ] {
        let _ = writeln!(out, "  {text}");
    }
}

/// Appends a matrix of the chosen partition, perhaps with the sums of its lines and columns.
fn matrix(out: &mut String, found: &TrafficReport, sums: bool, of: impl Fn(&Traffic, usize, usize) -> u64) {
    let (ranks, traffic) = (found.options.ranks, &found.tried[found.chosen].traffic);
    let cell = |i: usize, j: usize| {
        if i == j { "·".to_owned() } else { rows(found, of(traffic, i, j)) }
    };
    let sent: Vec<String> = (0..ranks).map(|rank| rows(found, traffic.sent(rank))).collect();
    let received: Vec<String> = (0..ranks).map(|rank| rows(found, traffic.received(rank))).collect();
    let cells = (0..ranks).flat_map(|i| (0..ranks).map(move |j| (i, j))).map(|(i, j)| cell(i, j));
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let below = if sums { widest(&mut received.iter().map(|text| text.len())) } else { 0 };
    let width = widest(&mut cells.map(|text| text.chars().count())).max(below).max(2) + 1;
    let _ = write!(out, "  {:8}", "");
    (0..ranks).for_each(|rank| {
        let _ = write!(out, "{rank:>width$}");
    });
    out.push_str(if sums { "      sent\n" } else { "\n" });
    for (i, sent) in sent.iter().enumerate() {
        let _ = write!(out, "  {i:>8}");
        (0..ranks).for_each(|j| {
            let _ = write!(out, "{:>width$}", cell(i, j));
        });
        let _ = if sums { writeln!(out, "{sent:>10}") } else { writeln!(out) };
    }
    if sums {
        let _ = write!(out, "  received");
        received.iter().for_each(|text| {
            let _ = write!(out, "{text:>width$}");
        });
        out.push('\n');
    }
}

/// Appends a heat map of each partitioner's residuals, side by side and on one scale.
fn heat_maps(out: &mut String, found: &TrafficReport) {
    let most = found.tried.iter().flat_map(|t| t.traffic.residuals()).max().unwrap_or(0);
    let ranks = found.options.ranks;
    let height = if ranks <= LARGE { 2 } else { 1 };
    let width = 2 * height * ranks;
    let column = (width + 2).max(15) + 2;
    let side_by_side = |out: &mut String, text: &dyn Fn(&PartitionerResult) -> String| {
        let texts: String = found.tried.iter().map(|t| format!("{:<column$}", text(t))).collect();
        let _ = writeln!(out, "  {}", texts.trim_end());
    };
    let _ = writeln!(out, "\n  residual of every pair of ranks: the darker, the less balanced");
    side_by_side(out, &|t| t.by.name().to_owned());
    side_by_side(out, &|_| format!("┌{}┐", "─".repeat(width)));
    for owner in 0..ranks {
        for half in 0..height {
            side_by_side(out, &|t| {
                let cell = |rank: usize| match [" ╲  ", "  ╲ "].get(half) {
                    Some(line) if owner == rank && height > 1 => (*line).to_owned(),
                    _ if owner == rank => "· ".to_owned(),
                    _ => shade(t.traffic.residual(owner, rank), most).to_string().repeat(2 * height),
                };
                format!("│{}│", (0..ranks).map(cell).collect::<String>())
            });
        }
    }
    side_by_side(out, &|_| format!("└{}┘", "─".repeat(width)));
    let steps = SHADES.len() as u64 - 1;
    let step = |i: u64| format!("{0}{0} to {1}", SHADES[i as usize], rows(found, most * i / steps));
    let _ = writeln!(out, "  blank 0   {}", (1..=steps).map(step).collect::<Vec<_>>().join("   "));
}

/// Returns the shade of a value.
fn shade(value: u64, most: u64) -> char {
    let steps = SHADES.len() as u64 - 1;
    SHADES[(value * steps).div_ceil(most.max(1)).min(steps) as usize]
}

/// Appends quartiles over ranks and pairs, for too many ranks to show.
fn quartiles(out: &mut String, found: &TrafficReport) {
    type Values = fn(&Traffic) -> Vec<u64>;
    let what: [(&str, Values); 2] =
        [("cost of a rank", Traffic::costs), ("residual of a pair", Traffic::residuals)];
    for (title, values) in what {
        let _ = writeln!(
            out,
            "\n  {title:<20}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "least", "1/4", "median", "3/4", "most"
        );
        for t in &found.tried {
            let mut values = values(&t.traffic);
            values.sort_unstable();
            let at = |quarter: usize| values.get((values.len().saturating_sub(1)) * quarter / 4);
            let _ = write!(out, "  {:<20}", t.by);
            (0..=4).for_each(|quarter| {
                let _ = write!(out, "{:>10}", rows(found, at(quarter).copied().unwrap_or(0)));
            });
            out.push('\n');
        }
    }
}
