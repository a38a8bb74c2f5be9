//! The reports of `tgnn-bench data`: plain text at most 80 columns wide.
use super::output::folded;
use std::{fmt::Write, path::Path};
use tgnn_data::{
    Bucket, ClassStats, Events, LabelStats, NodeLabelStats, Stats, SynthOptions,
    text::{counted, grouped, span},
};

/// Maximum width of a report.
pub(super) const WIDTH: usize = 80;
/// Maximum width of a bar.
const BAR: usize = 40;

/// Returns the report of `data info`.
pub(super) fn stats(s: &Stats) -> String {
    let mut out = format!("{}\n{}\n", s.name, "─".repeat(s.name.chars().count().clamp(1, WIDTH)));
    let mut line = |key: &str, value: String| line(&mut out, key, &value);
    line("events", grouped(s.events));
    line(
        "nodes",
        format!(
            "{}  ({}, {}{})",
            grouped(s.nodes),
            counted(s.sources, "source"),
            counted(s.destinations, "destination"),
            if s.bipartite { ", bipartite" } else { "" }
        ),
    );
    line("time span", format!("{}  ({})", span(s.span_seconds), unit(s.ticks_per_second)));
    line("times", format!("{} to {}", s.first_time, s.last_time));
    line("unique times", format!("{}  ({})", grouped(s.unique_times), percentage(s.unique_times, s.events)));
    line("unique pairs", grouped(s.unique_pairs));
    line("repeats", format!("{:.1} % of events repeat an earlier pair", 100.0 * s.repeat_share));
    if s.duplicates > 0 {
        let share = percentage(s.duplicates, s.events);
        line("duplicates", format!("{}  ({share} are equal to an earlier one)", grouped(s.duplicates)));
    }
    line("self-loops", format!("{}  ({})", grouped(s.self_loops), percentage(s.self_loops, s.events)));
    line("labels", s.labels.as_ref().map_or("none".into(), |labels| event_labels(labels, s.events)));
    if let Some(c) = &s.classes {
        line("classes", edge_classes(c));
    }
    if let Some(l) = &s.node_labels {
        line("node labels", node_labels(l));
    }
    line("edge features", width(s.edge_feature_width));
    line("node features", width(s.node_feature_width));
    line("degree", format!("mean {:.1}, largest {}", s.mean_degree, grouped(s.max_degree)));
    if let Some(lines) = s.lines {
        line("lines", lines.to_string());
    }
    for note in &s.notes {
        line("note", note.clone());
    }
    histogram(&mut out, "nodes by number of events", &s.degrees);
    histogram(&mut out, "events by time since the source's previous one", &s.gaps);
    out
}

/// Describes labels: how often each of a few values occurs, or how many there are.
fn event_labels(l: &LabelStats, events: u64) -> String {
    let few = l.values as usize == l.first.len() && l.values <= 5;
    let values = match &l.first[..] {
        listed if few => {
            let each =
                |(value, n): &(String, u64)| format!("{value}: {} ({})", grouped(*n), percentage(*n, events));
            listed.iter().map(each).collect::<Vec<_>>().join(", ")
        }
        listed => {
            let least = listed.first().map_or("", |first| &first.0);
            format!("{}, {least} to {}", counted(l.values, "value"), l.largest)
        }
    };
    match l.missing {
        0 => values,
        n => format!("{values}; none: {} ({})", grouped(n), percentage(n, events)),
    }
}

fn edge_classes(c: &ClassStats) -> String {
    format!(
        "{}  ({:.2} an event, at most {}; class {} in {:.1} % of events)",
        grouped(c.classes),
        c.labels_per_event,
        c.most_labels,
        c.most_frequent,
        100.0 * c.most_frequent_share
    )
}

fn node_labels(l: &NodeLabelStats) -> String {
    format!(
        "{} of {} at {}, {} to {}  ({}, {:.1} a row)",
        counted(l.rows, "row"),
        counted(l.nodes, "node"),
        counted(l.times, "time"),
        l.first_time,
        l.last_time,
        classes(l.classes),
        l.classes_per_row
    )
}

/// Returns the report of `data import`.
pub(super) fn imported(events: &Events, dir: &Path) -> String {
    let mut out = format!(
        "wrote {}: {}, {}, {}\n",
        dir.display(),
        counted(events.len() as u64, "event"),
        counted(events.nodes as u64, "node"),
        span(events.span_seconds())
    );
    events.notes.iter().for_each(|note| line(&mut out, "note", note));
    out
}

/// Returns the report of `data synth`.
pub(super) fn made(o: &SynthOptions, dir: &Path, seconds: f64) -> String {
    format!(
        "wrote {}: {}, {} in {seconds:.1} s ({:.1} M events/s)\n",
        dir.display(),
        counted(o.events as u64, "event"),
        counted((o.sources + o.destinations) as u64, "node"),
        o.events as f64 / seconds.max(1e-9) / 1e6
    )
}

/// Appends a key and its value; a line that would be too long is folded at blanks.
pub(super) fn line(out: &mut String, key: &str, value: &str) {
    const INDENT: usize = 18;
    *out += &folded(&format!("  {key:<15} {value}\n"), WIDTH, INDENT);
}

/// Appends a histogram, unless it is empty.
fn histogram(out: &mut String, title: &str, buckets: &[Bucket]) {
    let total: u64 = buckets.iter().map(|b| b.count).sum();
    let largest = buckets.iter().map(|b| b.count).max().unwrap_or(0);
    if largest == 0 {
        return;
    }
    let label = buckets.iter().map(|b| b.label.chars().count()).max().unwrap_or(0);
    let count = grouped(largest).len();
    // Two blanks of indent, four between the columns, eight for the percentage.
    let bar_width = BAR.min(WIDTH.saturating_sub(label + count + 14));
    let _ = writeln!(out, "\n  {title}");
    for b in buckets {
        let bar = bar(b.count as f64 / largest as f64, bar_width);
        let number = grouped(b.count);
        let _ = writeln!(
            out,
            "  {:>label$}  {bar:<bar_width$} {number:>count$} {:>7}",
            b.label,
            percentage(b.count, total)
        );
    }
}

/// Returns a bar of `fraction` of `width` characters, in eighths of a character.
pub(super) fn bar(fraction: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (fraction * width as f64 * 8.0).round() as usize;
    // A value above 0 must be visible.
    let eighths = if fraction > 0.0 { eighths.max(1) } else { 0 };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Formats `part` as a percentage of `whole`.
pub(super) fn percentage(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    if percent > 0.0 && percent < 0.05 { "<0.1 %".into() } else { format!("{percent:.1} %") }
}

/// Describes the width of a table of features.
pub(super) fn width(columns: usize) -> String {
    if columns == 0 { "none".into() } else { counted(columns as u64, "column") }
}

/// Counts classes.
fn classes(n: u64) -> String {
    if n == 1 { "1 class".into() } else { format!("{} classes", grouped(n)) }
}

/// Describes the length of a tick.
fn unit(ticks_per_second: f64) -> String {
    if ticks_per_second == 1.0 {
        "1 tick = 1 s".into()
    } else {
        format!("1 tick = {:e} s", 1.0 / ticks_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_the_bundled_data_fits_in_80_columns_and_has_the_main_numbers() {
        let text = stats(&Stats::new(&tgnn_data::bundled().unwrap()));
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        for said in
            ["157,474", "9,227  (8,227 sources, 1,000 destinations, bipartite)", "31.0 days", "88.4 %", "217"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn classes_are_reported_if_there_are_any() {
        let options = SynthOptions { events: 1000, classes: 40, labels: 2, ..SynthOptions::default() };
        let text = stats(&Stats::new(&tgnn_data::synth(&options).unwrap()));
        let line = text.lines().find(|l| l.starts_with("  classes")).unwrap();
        assert!(line.contains("40  (2.00 an event, at most 2; class 6 in 10.4 % of events)"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn written_data_is_reported_in_one_line_with_its_notes() {
        let mut events = tgnn_data::bundled().unwrap();
        events.notes.push("sorted 1 out-of-order event".into());
        let text = imported(&events, Path::new("out"));
        assert!(text.starts_with("wrote out: 157,474 events, 9,227 nodes, 31.0 days\n  note "), "{text}");
        let text = made(&SynthOptions::default(), Path::new("out"), 0.1);
        assert_eq!(text, "wrote out: 157,474 events, 9,227 nodes in 0.1 s (1.6 M events/s)\n");
    }

    #[test]
    fn long_notes_are_folded_under_their_key() {
        let mut out = String::new();
        line(&mut out, "note", &"word ".repeat(30));
        assert_eq!(out.matches("note").count(), 1);
        assert!(out.lines().count() == 3 && out.lines().all(|l| l.chars().count() <= WIDTH), "{out}");
    }

    #[test]
    fn bars_are_proportional_and_never_vanish() {
        assert_eq!((bar(1.0, 4), bar(0.5, 4), bar(0.0, 4)), ("████".into(), "██".into(), String::new()));
        assert_eq!(bar(1e-9, 4), "▏");
    }
}
