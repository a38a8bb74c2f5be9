//! EdgeBank and the rules that learn nothing, beside a test of links.
use crate::support::{
    program::{done, json, made, small as small_words},
    trainings::{config, run, small, stream},
};
use tgnn::{error::ErrorKind, ops::sample_neighbors::History, runtime::Device};
use tgnn_training::{
    model::ModelName,
    task::{self, Config, HistoryRule, Progress, Protocol, RunOptions, Watch},
};

#[test]
fn rules_know_either_past_and_do_not_depend_on_the_number_of_threads() {
    let events = small(600);
    let scored =
        |protocol, threads| run(&Config { protocol, threads, ..config(1, 8) }, &events, None, false).unwrap();
    for protocol in [Protocol::Dyglib, Protocol::Disttgl] {
        let [one, two] = [1, 2].map(|threads| scored(protocol, threads));
        assert_eq!((&one.edgebank, &one.baselines), (&two.edgebank, &two.baselines));
        assert_eq!(one.strictly_earlier, two.strictly_earlier);
        let strict = one.strictly_earlier.unwrap();
        assert_ne!(strict.baselines, one.baselines, "{protocol:?}");
        assert_ne!(Some(strict.edgebank), one.edgebank, "{protocol:?}");
    }
}

#[test]
fn one_event_at_a_time_and_no_two_at_once_the_two_pasts_are_the_same() {
    let ends: Vec<(usize, usize)> = (0..200).map(|i| (i * i % 7, 7 + i * i * i % 11)).collect();
    let events = stream(20, &ends, (0..200).collect());
    let s = run(&Config { eval_batch: 1, ..config(1, 8) }, &events, None, false).unwrap();
    let strict = s.strictly_earlier.unwrap();
    assert_eq!((Some(strict.edgebank), strict.baselines), (s.edgebank, s.baselines));
}

#[test]
fn the_past_of_a_model_is_that_of_what_its_queries_read() {
    let past = |model| Config { model, ..Config::default() }.past();
    for model in [ModelName::Tgn, ModelName::Tgat, ModelName::GraphMixer] {
        assert_eq!(past(model), History::Time, "{model:?}");
    }
    for model in [ModelName::Jodie, ModelName::DyRep, ModelName::Apan, ModelName::Static] {
        assert_eq!(past(model), History::Batch, "{model:?}");
    }
    let mut c = Config { history: HistoryRule::Batch, ..Config::default() };
    assert_eq!(c.past(), History::Batch);
    c = Config { protocol: Protocol::Tgb, ..Config::default() };
    assert_eq!(c.past(), History::Batch);
    c = Config::default();
    c.tgn.layers = 0;
    assert_eq!(c.past(), History::Batch, "without layers, the embedding is the memory");
}

#[test]
fn a_better_rule_is_named_with_what_it_knows_and_no_rules_leaves_all_of_them_out() {
    let dir = made();
    let dir = dir.path();
    let slow = ["--set", "learning_rate=1e-30"];
    for (model, knows) in
        [("tgn", "by all strictly earlier events"), ("jodie", "by the events of earlier batches")]
    {
        let words = [&["--model", model, "--out", model][..], &slow].concat();
        let out = done(dir, &small_words(&words)).out;
        let message = out.lines().find(|line| line.starts_with("below ")).unwrap_or_else(|| panic!("{out}"));
        assert!(message.contains(", which learns nothing, has 0.") && message.ends_with(knows), "{message}");
    }
    let text = "EdgeBank and the rules that learn nothing are left out (rules = false)";
    let out = done(dir, &small_words(&[&slow[..], &["--no-rules", "--out", "without"]].concat())).out;
    assert!(out.contains(text) && !out.contains("recency") && !out.contains("below"), "{out}");
    let out = done(dir, &["eval", "--checkpoint", "tgn", "--no-rules"]).out;
    assert!(out.contains(text) && !out.contains("recency"), "{out}");
    let s = json(&done(dir, &["eval", "--checkpoint", "tgn", "--no-rules", "--json"]).out);
    assert!(
        s["rules"] == false && s["edgebank"].is_null() && s["test"]["transductive"]["ap"].is_f64(),
        "{s}"
    );
    for key in ["baselines", "strictly_earlier", "baselines_seconds"] {
        assert!(s.get(key).is_none(), "{key}: {s}");
    }
    // A test scores them unless its own flag leaves them out.
    let s = json(&done(dir, &["eval", "--checkpoint", "without", "--json"]).out);
    assert!(s["rules"] == true && s["baselines"].as_array().unwrap().len() == 11, "{s}");
}

/// Remembers how far the rules have come, and stops a run there if it shall.
struct Rules {
    seen: Vec<(usize, usize)>,
    stops: bool,
}

impl Watch for Rules {
    fn progress(&mut self, pass: &str, _: usize, p: Progress<'_>) {
        if pass == "rules" {
            self.seen.push((p.events, p.total));
            p.stop.set(self.stops);
        }
    }
}

#[test]
fn rules_report_their_progress_and_can_be_stopped() {
    let events = small(600);
    let mut watch = Rules { seen: Vec::new(), stops: false };
    let device = Device::cpu(2).unwrap();
    let train =
        |watch: &mut Rules| task::train(&config(1, 8), &events, &device, &RunOptions::default(), watch);
    train(&mut watch).unwrap();
    let &(events, total) = watch.seen.last().unwrap();
    assert!(events == total && total > 1000, "{events} of {total}");
    watch.stops = true;
    assert_eq!(train(&mut watch).unwrap_err().kind(), ErrorKind::Interrupted);
}
