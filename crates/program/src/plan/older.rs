//! What steps with older state have missed, and how long the ranks of a pipeline waited, for people.
use tgnn_training::{
    plan::Choice,
    task::{BubbleRecord, RowErrors, StalenessRecord, Summary},
};

/// Returns a line for each thing that there is to say.
pub fn lines(s: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Choice::Staleness(choice)) = &s.chosen {
        lines.push(format!("older     {choice}"));
    }
    if let Some(staleness) = &s.staleness {
        lines.extend(missed(staleness));
        lines.extend(mixed(staleness));
    }
    if !s.pipeline.is_empty() {
        lines.push(idle(&s.pipeline));
    }
    lines
}

/// Says how many of the fetched rows have missed how many writes.
fn missed(s: &StalenessRecord) -> Option<String> {
    let all: u64 = s.missed_writes.iter().sum();
    let share = |(writes, &rows): (usize, &u64)| match writes {
        0 => format!("{} no write", percent(rows as f64 / all as f64)),
        writes => format!("{} {writes}", percent(rows as f64 / all as f64)),
    };
    let shares: Vec<String> = s.missed_writes.iter().enumerate().map(share).collect();
    (all > 0).then(|| format!("missed    of the fetched rows, {}", shares.join(", ")))
}

/// Says how mixing has changed the error of rows that have missed a write, and of all rows that were mixed.
fn mixed(s: &StalenessRecord) -> Option<String> {
    let mixed = s.mixed.as_ref()?;
    let change = |errors: &RowErrors| 100.0 * (errors.after / errors.before - 1.0);
    (mixed.stale.rows > 0.0 && mixed.stale.before > 0.0).then(|| {
        format!(
            "mixed     {:.0} rows that had missed a write: their error changed by {:+.1} %; of all {:.0} mixed rows by {:+.1} %",
            mixed.stale.rows,
            change(&mixed.stale),
            mixed.all.rows,
            change(&mixed.all)
        )
    })
}

/// Says how long ranks idle for each batch, and how long by the theorem.
fn idle(ranks: &[BubbleRecord]) -> String {
    let ms = |seconds: f64| format!("{:.1}", 1e3 * seconds);
    let of =
        |seconds: &dyn Fn(&BubbleRecord) -> f64| ranks.iter().map(|r| ms(seconds(r))).collect::<Vec<_>>();
    let (idle, round) = (of(&|r| r.measured.idle), of(&|r| r.measured.round));
    let formula = of(&|r| r.idle_by_formula);
    format!(
        "idle      {} of {} ms a batch, by rank; by theorem 4.1 {}",
        idle.join(", "),
        round.join(", "),
        formula.join(", ")
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
