//! The rows of TGB's leaderboards: data set, method, and mean and deviation over seeds of the official
//! metric.
use super::table::Kind;
use tgnn::error::{Error, Result};
use tgnn_training::task::{
    comparison::{Comparison, FinishedRun, Line},
    config::{Protocol, TaskName, table::text_of},
};

/// Number of seeds that a result of TGB is a mean over.
const SEEDS: usize = 5;

/// Refuses runs that are no results for a leaderboard of TGB.
///
/// # Errors
/// `Usage`, with the run and the reason.
pub(super) fn check(runs: &[FinishedRun]) -> Result<()> {
    for run in runs {
        let (c, name) = (&run.config, &run.summary.data.name);
        let of_nodes = name.starts_with("tgbn-");
        let task = if of_nodes { TaskName::Property } else { TaskName::Link };
        let (what, remedy) = match () {
            _ if !tgnn_data::is_of_tgb(name) => (
                format!("its data set is {name}, which TGB does not have"),
                "train on a folder of TGB, such as tgbl_wiki",
            ),
            _ if c.task != task => (
                format!("its task is {}, and {name} is for {}", c.task.name(), task.name()),
                "train with the task of the data set",
            ),
            _ if !of_nodes && c.protocol != Protocol::Tgb => (
                format!(
                    "its protocol is {}, which does not rank events against TGB's negatives",
                    c.protocol_name()
                ),
                "train with --protocol tgb",
            ),
            _ if c.max_batches > 0 => (
                format!("max_batches is {}, so only a piece of each part is measured", c.max_batches),
                "train with max_batches 0",
            ),
            _ if run.summary.test.is_none() => ("it has no test".into(), "train without --no-eval"),
            _ => continue,
        };
        return Err(Error::usage(format!("{what}, so it is no result for a leaderboard of TGB"))
            .in_file(&run.path)
            .remedy(remedy));
    }
    Ok(())
}

/// Returns the rows as Markdown, with a remark on lines of fewer seeds than TGB asks for.
pub(super) fn markdown(c: &Comparison) -> String {
    let metric = c.metric;
    let mut out = format!(
        "Results on TGB: mean ± standard deviation of a sample over seeds\n\n\
         | data set | method | test {metric} | validation {metric} | seeds |\n| --- | --- | ---: | ---: | ---: |\n"
    );
    for line in &c.lines {
        let [test, val] = [line.test.get(metric).copied(), line.val].map(|s| Kind::Score.text(s));
        let seeds = match line.seeds.len() {
            n if n < SEEDS => format!("{n}, fewer than {SEEDS}"),
            n => n.to_string(),
        };
        let cells =
            [line.data.as_str(), &method(c, line), &test, &val, &seeds].map(|s| s.replace('|', "\\|"));
        out += &format!("| {} |\n", cells.join(" | "));
    }
    if c.lines.iter().any(|line| line.seeds.len() < SEEDS) {
        out += &format!(
            "\nA result of TGB is a mean over {SEEDS} seeds: `tgnn-bench sweep --seeds {SEEDS}` trains them.\n"
        );
    }
    out
}

/// Returns the model of a line, and what else tells it apart from others of the same data set.
fn method(c: &Comparison, line: &Line) -> String {
    let model = line.settings.get("model").map(text_of).or_else(|| c.common.get("model").cloned());
    let others = line.settings.iter().filter(|(key, _)| !["model", "data"].contains(&key.as_str()));
    let others: Vec<String> = others
        .map(|(key, value)| match key.as_str() {
            "plan" | "device" => text_of(value),
            key => format!("{key}={}", text_of(value)),
        })
        .collect();
    let model = model.unwrap_or_default();
    if others.is_empty() { model } else { format!("{model} ({})", others.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::made_runs::run;

    fn result(path: &str, seed: u64, model: &str, mrr: f64) -> FinishedRun {
        run(path, seed, |c, s| {
            (c.protocol, s.model, s.data.name) = (Protocol::Tgb, model.into(), "tgbl-wiki".into());
            s.epochs[1].val.as_mut().unwrap().mrr = Some(mrr);
            s.test.as_mut().unwrap().transductive.mrr = Some(mrr);
        })
    }

    #[test]
    fn a_line_has_the_metric_of_both_parts_and_says_if_seeds_are_missing() {
        let mut runs: Vec<FinishedRun> =
            (1..=5).map(|seed| result(&seed.to_string(), seed, "tgn", 0.5 + 0.01 * seed as f64)).collect();
        runs.extend([1, 2].map(|seed| result(&format!("j{seed}"), seed, "jodie", 0.25)));
        check(&runs).unwrap();
        let text = markdown(&Comparison::new(runs).unwrap());
        assert_eq!(
            text,
            "Results on TGB: mean ± standard deviation of a sample over seeds

| data set | method | test MRR | validation MRR | seeds |
| --- | --- | ---: | ---: | ---: |
| tgbl-wiki | tgn | 0.5300 ± 0.0158 | 0.5300 ± 0.0158 | 5 |
| tgbl-wiki | jodie | 0.2500 ± 0.0000 | 0.2500 ± 0.0000 | 2, fewer than 5 |

A result of TGB is a mean over 5 seeds: `tgnn-bench sweep --seeds 5` trains them.
"
        );
    }

    #[test]
    fn properties_of_nodes_have_their_own_metric_and_no_protocol() {
        let run = run("a", 1, |c, s| {
            (c.task, s.data.name) = (TaskName::Property, "tgbn-trade".into());
            s.epochs[1].val.as_mut().unwrap().ndcg = Some(0.5);
            s.test.as_mut().unwrap().transductive.ndcg = Some(0.25);
        });
        check(std::slice::from_ref(&run)).unwrap();
        let text = markdown(&Comparison::new(vec![run]).unwrap());
        assert!(text.contains("| test NDCG@10 | validation NDCG@10 |"), "{text}");
        assert!(text.contains("| tgbn-trade | tgn | 0.2500 | 0.5000 | 1, fewer than 5 |"), "{text}");
    }

    #[test]
    fn what_else_differs_is_named_beside_the_model() {
        let mut other = result("b", 1, "tgn", 0.5);
        other.config.tgn.layers = 2;
        let text = markdown(&Comparison::new(vec![result("a", 1, "tgn", 0.25), other]).unwrap());
        assert!(
            text.contains("| tgn (tgn.layers=2) | 0.5000 |") && text.contains("| tgn (tgn.layers=1) |"),
            "{text}"
        );
    }

    #[test]
    fn runs_of_other_protocols_data_and_parts_are_refused_with_the_reason() {
        let refused = |change: fn(&mut FinishedRun)| {
            let mut run = result("r", 1, "tgn", 0.5);
            change(&mut run);
            check(&[result("a", 1, "tgn", 0.5), run]).unwrap_err().to_string()
        };
        for (change, said) in [
            ((|r| r.config.protocol = Protocol::Dyglib) as fn(&mut FinishedRun), "r: its protocol is dyglib"),
            (|r| r.config.task = TaskName::Edge, "r: its task is edge, and tgbl-wiki is for link"),
            (
                |r| r.summary.data.name = "tgbn-trade".into(),
                "r: its task is link, and tgbn-trade is for property",
            ),
            (|r| r.config.max_batches = 3, "r: max_batches is 3"),
            (|r| r.summary.data.name = "made".into(), "r: its data set is made"),
            (|r| r.summary.test = None, "r: it has no test"),
        ] {
            let text = refused(change);
            assert!(
                text.starts_with(said) && text.contains("no result for a leaderboard of TGB; train "),
                "{text}"
            );
        }
    }
}
