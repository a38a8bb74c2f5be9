//! Checks of a configuration.
use super::{Config, HistoryRule, NegativeKind, Protocol, TaskName};
use crate::{
    model::{ModelConfig, StaticMode},
    plan::Plan,
};
use tgnn::{
    error::{Error, Result},
    runtime::Device,
};

impl Config {
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// `Usage`, with the key and its valid values.
    pub fn validate(&self) -> Result<()> {
        self.validate_training()?;
        self.validate_evaluation()?;
        self.static_memory.validate()?;
        if self.model.reads_snapshots() { self.validate_snapshots() } else { self.event_model()?.validate() }
    }
    fn validate_training(&self) -> Result<()> {
        for (key, batch) in [("batch", self.batch), ("eval_batch", self.eval_batch)] {
            if batch == 0 || batch > 1 << 20 {
                return bad(format!("{key} is {batch}"), "give 1 to 1048576");
            }
        }
        if self.seed > i64::MAX as u64 {
            return bad(format!("seed is {}", self.seed), &format!("give 0 to {}", i64::MAX));
        }
        if !(1..=self.batch).contains(&self.chunks) {
            return bad(format!("chunks is {}", self.chunks), "give 1 to the events of a batch");
        }
        if self.epochs == 0 {
            return bad("epochs is 0".into(), "give at least 1");
        }
        if self.patience > 0 && !self.evaluate {
            let what = format!("patience is {}, and nothing is validated", self.patience);
            return bad(what, "leave out patience, or validate");
        }
        if self.plan != "auto" && self.plan != Plan::PLANNED {
            Plan::named(&self.plan)?;
        }
        if self.threads > Device::MOST_THREADS {
            let most = Device::MOST_THREADS;
            return bad(format!("threads is {}", self.threads), &format!("give 0 (every core) to {most}"));
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return bad(format!("learning_rate is {}", self.learning_rate), "give a positive number");
        }
        self.optimizer.validate()?;
        if self.data.random_edge_features > 4096 {
            let what = format!("random_edge_features is {}", self.data.random_edge_features);
            return bad(what, "give 0 to 4096");
        }
        Ok(())
    }
    fn validate_evaluation(&self) -> Result<()> {
        let (task, protocol) = (self.task.name(), self.protocol.name());
        let draws = self.task == TaskName::Link && matches!(self.protocol, Protocol::Dyglib | Protocol::Tgl);
        if self.negatives != NegativeKind::Random && !draws {
            let what = format!("negatives are chosen, and task {task} under {protocol} has none to choose");
            return bad(what, "give them with task=link and protocol=dyglib or tgl");
        }
        let classify = &self.classify;
        if !(1..=4096).contains(&classify.width) {
            return bad(format!("classify.width is {}", classify.width), "give 1 to 4096");
        }
        if !(classify.positive_weight > 0.0 && classify.positive_weight.is_finite()) {
            let what = format!("classify.positive_weight is {}", classify.positive_weight);
            return bad(what, "give a positive number");
        }
        if !(1..=1 << 20).contains(&self.property.rows) {
            return bad(format!("property.rows is {}", self.property.rows), "give 1 to 1048576");
        }
        if self.task == TaskName::Property && self.eval_batch != Config::default().eval_batch {
            return bad(
                "eval_batch is set, and task property evaluates in batches of `batch`".into(),
                "leave it out",
            );
        }
        if classify.positive.is_some() && !matches!(self.task, TaskName::Node | TaskName::Edge) {
            let what = "classify.positive is set, and no labels of events are predicted".into();
            return bad(what, "give task=node or task=edge, or leave it out");
        }
        if classify.frozen && self.task == TaskName::Link {
            return bad("classify.frozen, and the task is link".into(), "give task=node or task=edge");
        }
        Ok(())
    }
    fn validate_snapshots(&self) -> Result<()> {
        let unsupported = [
            (self.static_mode() != StaticMode::Off, "static.mode"),
            (self.chunks != 1, "chunks"),
            (self.data.random_edge_features > 0, "data.random_edge_features"),
            (self.protocol != Protocol::Dyglib, "protocol"),
            (self.classify.frozen, "classify.frozen"),
            (self.classify.positive.is_some(), "classify.positive"),
            (self.optimizer.base_batch > 0, "optimizer.base_batch"),
            (self.history != HistoryRule::Auto, "history"),
            (self.eval_batch != Config::default().eval_batch, "eval_batch"),
        ];
        if let Some((_, key)) = unsupported.iter().find(|(set, _)| *set) {
            return bad(format!("{key} is set, and {} reads snapshots", self.model.name()), "leave it out");
        }
        let group = &self.group;
        if !(1..=1024).contains(&group.length) {
            return bad(format!("group.length is {}", group.length), "give 1 to 1024");
        }
        if group.batch == 0 {
            return bad("group.batch is 0".into(), "give 1 or more");
        }
        if !(1..=10_000).contains(&group.negatives) {
            return bad(format!("group.negatives is {}", group.negatives), "give 1 to 10000");
        }
        self.snapshots.validate()?;
        self.snapshot_model()?.validate()
    }
}

/// A usage error: what was found, and what to give.
fn bad(what: String, remedy: &str) -> Result<()> {
    Err(Error::usage(what).remedy(remedy.to_owned()))
}
