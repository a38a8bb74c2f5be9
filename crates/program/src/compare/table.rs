//! The table of a comparison, as text, Markdown and CSV.
use super::{
    super::output::csv_cell,
    cells::{Cell, Cells, fit},
};
use std::fmt::Write;
use tgnn_training::task::{
    comparison::{Comparison, Line, Statistic},
    config::table::text_of,
};

/// Finds the number of a column in a line.
type Of = Box<dyn Fn(&Line) -> Option<Statistic>>;

/// A column of numbers: its title, how many digits it shows, and its number in a line.
pub(super) struct Column {
    pub title: String,
    pub kind: Kind,
    /// Where there is no room, the columns of the lowest importance go first; those of the highest stay.
    importance: u8,
    of: Of,
}

/// What the numbers of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Metrics: four digits after the point.
    Score,
    /// Epochs: whole, or a mean of several.
    Epoch,
    /// Seconds: three digits that count.
    Seconds,
    /// Bytes, shown in MiB.
    Bytes,
}

impl Kind {
    /// Formats mean and deviation, with the same number of digits after the point.
    pub(super) fn text(self, s: Option<Statistic>) -> String {
        let Some(Statistic { mean, deviation, .. }) = s else { return "–".into() };
        let (unit, digits) = match self {
            Kind::Score => (1.0, 4),
            Kind::Epoch => (1.0, usize::from(deviation.is_some())),
            Kind::Bytes => (f64::from(1u32 << 20), 0),
            Kind::Seconds => (1.0, (2 - mean.max(1e-3).log10().floor() as i32).clamp(0, 4) as usize),
        };
        let number = |x: f64| format!("{:.digits$}", x / unit);
        match deviation.filter(|_| self != Kind::Bytes) {
            Some(deviation) => format!("{} ± {}", number(mean), number(deviation)),
            None => number(mean),
        }
    }
}

/// Returns the columns of numbers of a comparison.
pub(super) fn columns(c: &Comparison) -> Vec<Column> {
    let metric = c.metric;
    let column = |title: String, kind, importance, of: Of| Column { title, kind, importance, of };
    let test = |name: &String| {
        let key = name.clone();
        let importance = match name.as_str() {
            name if name == metric => u8::MAX,
            name if name.starts_with("inductive") => 4,
            _ => 5,
        };
        column(name.clone(), Kind::Score, importance, Box::new(move |line| line.test.get(&key).copied()))
    };
    let mut columns: Vec<Column> = c.metrics.iter().map(test).collect();
    let banks = c.lines.iter().filter_map(|line| line.baseline_name.as_ref());
    let by_name =
        if banks.clone().all(|name| name.starts_with("EdgeBank")) { "EdgeBank" } else { "baseline" };
    columns.extend([
        column(format!("{by_name} {metric}"), Kind::Score, 7, Box::new(|line| line.baseline)),
        column(format!("strict baseline {metric}"), Kind::Score, 7, Box::new(|line| line.strict_baseline)),
        column(format!("val {metric}"), Kind::Score, u8::MAX, Box::new(|line| line.val)),
        column("best epoch".into(), Kind::Epoch, 2, Box::new(|line| line.best_epoch)),
        column("s/epoch".into(), Kind::Seconds, 6, Box::new(|line| line.seconds_per_epoch)),
        column("training s".into(), Kind::Seconds, 3, Box::new(|line| line.training_seconds)),
        column("MiB".into(), Kind::Bytes, 0, Box::new(|line| line.memory_bytes)),
        column("device MiB".into(), Kind::Bytes, 1, Box::new(|line| line.device_memory_bytes)),
    ]);
    columns.retain(|column| c.lines.iter().any(|line| (column.of)(line).is_some()));
    columns
}

/// Returns the settings that head the lines.
fn heads(c: &Comparison) -> Vec<&str> {
    if c.differing.is_empty() { vec!["model"] } else { c.differing.iter().map(String::as_str).collect() }
}

/// Returns the cells of a line that say which one it is.
fn own_cells(c: &Comparison, line: &Line) -> Vec<String> {
    if c.differing.is_empty() {
        return vec![line.name.clone()];
    }
    let cell = |key: &String| line.settings.get(key).map_or_else(|| "–".into(), text_of);
    c.differing.iter().map(cell).collect()
}

/// Returns the cells of a comparison.
pub(super) fn cells(c: &Comparison) -> Cells {
    let (heads, columns) = (heads(c), columns(c));
    let titles = heads.iter().map(|&h| h.to_owned()).chain(["seeds".to_owned()]);
    let titles = titles.chain(columns.iter().map(|column| column.title.clone())).collect();
    let row = |line: &Line| {
        let own = own_cells(c, line).into_iter().map(|text| Cell { value: text.parse().ok(), text });
        let seeds = line.seeds.len();
        let numbers = columns.iter().map(|column| {
            let s = (column.of)(line);
            Cell { text: column.kind.text(s), value: s.map(|s| s.mean) }
        });
        own.chain([Cell { text: seeds.to_string(), value: Some(seeds as f64) }]).chain(numbers).collect()
    };
    let always = heads.iter().map(|_| u8::MAX).chain([u8::MAX]);
    let importance = always.chain(columns.iter().map(|column| column.importance)).collect();
    Cells { titles, rows: c.lines.iter().map(row).collect(), texts: heads.len(), importance }
}

/// Says in a line what all runs have in common.
pub(super) fn about(c: &Comparison) -> String {
    let common: Vec<&str> = c.common.values().map(String::as_str).collect();
    let ends = if common.is_empty() { String::new() } else { format!(" — {}", common.join(", ")) };
    format!("test, {}{ends}", c.measured)
}

/// Returns the table for a terminal, with a star at the best validation of each data set. If a `width` is
/// given, columns that do not fit are left out, which the last line says.
pub(super) fn plain(c: &Comparison, width: Option<usize>) -> String {
    let mut all = cells(c);
    let left_out = width.map_or(Vec::new(), |width| fit(&mut all, width));
    let widths = all.widths();
    let Cells { titles, rows, texts, .. } = all;
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect()).collect();
    let row = |mark: &str, cells: &[String]| {
        let mut text = format!("{mark} ");
        for (at, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match at < texts {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        text.trim_end().to_owned() + "\n"
    };
    let mut out = format!("{}\n\n{}", about(c), row(" ", &titles));
    let rule: usize = widths.iter().sum::<usize>() + 2 * widths.len();
    let _ = writeln!(out, "  {}", "─".repeat(rule.saturating_sub(2)));
    for (line, cells) in c.lines.iter().zip(&rows) {
        out += &row(if line.best { "*" } else { " " }, cells);
    }
    if c.lines.len() > 1 && c.lines.iter().any(|line| line.best) {
        out += "* best validation\n";
    }
    if !left_out.is_empty() {
        let _ =
            writeln!(out, "no room for {}: widen the terminal, or give --as markdown", left_out.join(", "));
    }
    out
}

/// Returns the table as Markdown; the names of the best validation of each data set are bold.
pub(super) fn markdown(c: &Comparison) -> String {
    let Cells { titles, rows, texts, .. } = cells(c);
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect()).collect();
    let row = |cells: &[String], bold: bool| {
        let cell = |(at, cell): (usize, &String)| {
            let cell = cell.replace('|', "\\|");
            if bold && at < texts { format!("**{cell}**") } else { cell }
        };
        format!("| {} |\n", cells.iter().enumerate().map(cell).collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> =
        (0..titles.len()).map(|at| if at < texts { "---".into() } else { "---:".into() }).collect();
    let mut out = format!("{}\n\n{}{}", about(c), row(&titles, false), row(&rule, false));
    for (line, cells) in c.lines.iter().zip(&rows) {
        out += &row(cells, line.best && c.lines.len() > 1);
    }
    out
}

/// Returns the table as CSV: means and deviations in columns of their own, with all digits.
pub(super) fn csv(c: &Comparison) -> String {
    let columns = columns(c);
    let unit = |column: &Column| match column.kind {
        Kind::Bytes => column.title.replace("MiB", "bytes"),
        _ => column.title.clone(),
    };
    let titles = heads(c).into_iter().map(str::to_owned).chain(["seeds".to_owned()]);
    let both = |column: &Column| [unit(column), format!("{} deviation", unit(column))];
    let titles: Vec<String> = titles.chain(columns.iter().flat_map(both)).collect();
    let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
    let mut out = csv_row(&titles);
    for line in &c.lines {
        let numbers = columns
            .iter()
            .map(|column| (column.of)(line))
            .flat_map(|s| [number(s.map(|s| s.mean)), number(s.and_then(|s| s.deviation))]);
        let own = own_cells(c, line).into_iter().map(|cell| if cell == "–" { String::new() } else { cell });
        let cells = own.chain([line.seeds.len().to_string()]).chain(numbers);
        out += &csv_row(&cells.collect::<Vec<_>>());
    }
    out
}

/// Returns a row of CSV.
fn csv_row(cells: &[String]) -> String {
    cells.iter().cloned().map(csv_cell).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::made_runs::{run, scored};
    use tgnn_training::task::{Config, Summary, training::RuleScores};

    fn comparison() -> Comparison {
        let runs = vec![
            run("a", 1, |_, s| scored(s, 0.9, 0.75)),
            run("b", 2, |_, s| scored(s, 0.7, 0.5)),
            run("c", 1, |c, s| {
                (c.data.path, s.plan) = ("x".into(), "a|b, \"c\"".into());
                scored(s, 0.6, 0.5);
            }),
        ];
        Comparison::new(runs).unwrap()
    }

    #[test]
    fn the_table_is_aligned_and_marks_the_best_validation() {
        let want = "\
test, task link, protocol dyglib, random negatives — tgn, cpu (A CPU, 2 threads), made

  plan        seeds               AP              AUC     inductive AP      EdgeBank AP           val AP  best epoch      s/epoch   training s  MiB
  ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
* sequential      2  0.6250 ± 0.1768  0.5000 ± 0.0000  0.5000 ± 0.0000  0.6250 ± 0.0000  0.8000 ± 0.1414   2.0 ± 0.0  3.00 ± 0.00  6.00 ± 0.00    3
  a|b, \"c\"        1           0.5000           0.5000           0.5000           0.6250           0.6000           2         3.00         6.00    3
* best validation
";
        assert_eq!(plain(&comparison(), None), want);
        assert_eq!(plain(&comparison(), Some(200)), want);
    }

    #[test]
    fn a_narrow_terminal_keeps_what_matters_and_names_the_rest() {
        let want = "\
test, task link, protocol dyglib, random negatives — tgn, cpu (A CPU, 2 threads), made

  plan        seeds               AP      EdgeBank AP           val AP
  ────────────────────────────────────────────────────────────────────
* sequential      2  0.6250 ± 0.1768  0.6250 ± 0.0000  0.8000 ± 0.1414
  a|b, \"c\"        1           0.5000           0.6250           0.6000
* best validation
no room for AUC, inductive AP, best epoch, s/epoch, training s, MiB: widen the terminal, or give --as markdown
";
        assert_eq!(plain(&comparison(), Some(80)), want);
    }

    #[test]
    fn rules_that_know_all_strictly_earlier_events_have_a_column_of_their_own() {
        let strict = |_: &mut Config, s: &mut Summary| {
            let edgebank = s.edgebank.unwrap();
            s.strictly_earlier = Some(RuleScores { edgebank, baselines: Vec::new() });
            s.strictly_earlier.as_mut().unwrap().edgebank.unlimited.transductive.ap = Some(0.875);
        };
        let c = Comparison::new(vec![run("a", 1, strict)]).unwrap();
        let text = csv(&c);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let at = |title| lines[0].iter().position(|t| *t == title).unwrap();
        assert_eq!((lines[1][at("EdgeBank AP")], lines[1][at("strict baseline AP")]), ("0.625", "0.875"));
        assert_eq!(c.lines[0].strict_baseline_name.as_deref(), Some("EdgeBank"));
    }

    #[test]
    fn markdown_has_a_row_for_every_line() {
        let want = r#"test, task link, protocol dyglib, random negatives — tgn, cpu (A CPU, 2 threads), made

| plan | seeds | AP | AUC | inductive AP | EdgeBank AP | val AP | best epoch | s/epoch | training s | MiB |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| **sequential** | 2 | 0.6250 ± 0.1768 | 0.5000 ± 0.0000 | 0.5000 ± 0.0000 | 0.6250 ± 0.0000 | 0.8000 ± 0.1414 | 2.0 ± 0.0 | 3.00 ± 0.00 | 6.00 ± 0.00 | 3 |
| a\|b, "c" | 1 | 0.5000 | 0.5000 | 0.5000 | 0.6250 | 0.6000 | 2 | 3.00 | 6.00 | 3 |
"#;
        assert_eq!(markdown(&comparison()), want);
    }

    #[test]
    fn csv_has_all_digits_and_quotes_what_it_must() {
        let text = csv(&comparison());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("plan,seeds,AP,AP deviation,AUC,AUC deviation,inductive AP,"), "{text}");
        assert!(lines[0].ends_with(",training s,training s deviation,bytes,bytes deviation"), "{text}");
        assert!(lines[1].starts_with("sequential,2,0.625,0.1767766952966369,0.5,0,"), "{text}");
        assert!(
            lines[2].starts_with("\"a|b, \"\"c\"\"\",1,0.5,,0.5,,0.5,,0.625,,0.6,,2,,3,,6,,3145728,"),
            "{text}"
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn numbers_show_as_many_digits_as_count() {
        let text = |kind: Kind, x: f64| kind.text(Statistic::new([x]));
        let seconds = [0.00012, 0.0123, 0.5, 1.234, 12.34, 123.4, 12345.0].map(|x| text(Kind::Seconds, x));
        assert_eq!(seconds, ["0.0001", "0.0123", "0.500", "1.23", "12.3", "123", "12345"]);
        assert_eq!((text(Kind::Epoch, 7.0), text(Kind::Score, 0.98765)), ("7".into(), "0.9877".into()));
        assert_eq!(Kind::Score.text(None), "–");
    }
}
