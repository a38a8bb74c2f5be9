//! Which runs may be compared.
use super::FinishedRun;
use crate::task::config::{
    Config, Protocol, TaskName,
    table::{keys_of, text_of},
};
use tgnn::error::{Error, Result};

impl FinishedRun {
    /// Says what the run measures: its task, its protocol, and its negatives if they are open.
    pub(super) fn measures(&self) -> String {
        let c = &self.config;
        match negatives(c) {
            Some(negatives) => {
                format!("task {}, protocol {}, {negatives} negatives", c.task.name(), c.protocol_name())
            }
            None => format!("task {}, protocol {}", c.task.name(), c.protocol_name()),
        }
    }
}

/// Returns the negatives of validation and test, if the protocol leaves them open.
fn negatives(c: &Config) -> Option<&'static str> {
    let open = c.task == TaskName::Link && c.protocol != Protocol::Tgb && !c.model.reads_snapshots();
    open.then(|| c.negatives.name())
}

/// The keys that decide, with task, protocol and negatives, what the scores of a run mean.
const KEYS: [&str; 3] = ["data.train", "data.val", "max_batches"];
/// The same for models of snapshots.
const SNAPSHOT_KEYS: [&str; 7] = [
    "snapshots.every",
    "snapshots.weights",
    "snapshots.presence",
    "snapshots.directed",
    "snapshots.classes",
    "snapshots.horizon",
    "group.negatives",
];

/// Returns what decides the meaning of a run's scores, each with its name.
fn decides(c: &Config) -> Result<Vec<(&'static str, String)>> {
    let table = keys_of(&c.to_table()?);
    let snapshots = c.model.reads_snapshots();
    let more = if snapshots { &SNAPSHOT_KEYS[..] } else { &[] };
    let keys = KEYS.iter().chain(more).map(|&key| (key, table.get(key).map_or(String::new(), text_of)));
    let protocol = ("protocol", c.protocol_name().to_owned());
    let negatives = ("negatives", negatives(c).unwrap_or("given").to_owned());
    let task = ("task", c.task.name().to_owned());
    let history = ("history", c.history().name().to_owned());
    let batch = ("eval_batch", c.evaluation_batch().to_string());
    let of_events = [history, batch].into_iter().filter(|_| !snapshots);
    // If task and protocol are the same, so are the keys that follow.
    Ok([task, protocol, negatives].into_iter().chain(of_events).chain(keys).collect())
}

/// Refuses configurations whose scores do not have the same meaning; each has a name for the message.
///
/// # Errors
/// `Usage`, with the names of two of them and what differs.
pub fn comparable_configs<'a>(configs: impl Iterator<Item = (String, &'a Config)>) -> Result<()> {
    let mut first: Option<(String, Vec<_>)> = None;
    for (name, config) in configs {
        let ours = decides(config)?;
        let Some((other, theirs)) = &first else {
            first = Some((name, ours));
            continue;
        };
        let differs = theirs.iter().zip(&ours).find(|(theirs, ours)| theirs != ours);
        if let Some(((key, theirs), (_, ours))) = differs {
            return Err(Error::usage(format!(
                "{other} and {name} cannot be compared: {key} is {theirs} in the first and {ours} in the second"
            ))
            .remedy("compare runs with the same task, protocol, negatives, history, eval_batch and split"));
        }
    }
    Ok(())
}

const TRAIN_AGAIN: &str = "train again on the same data, or give other data another name";

/// Refuses runs that do not measure the same thing.
pub(super) fn comparable(runs: &[FinishedRun]) -> Result<()> {
    comparable_configs(runs.iter().map(|run| (run.path.display().to_string(), &run.config)))?;
    for (i, run) in runs.iter().enumerate() {
        let data = &run.summary.data;
        let size = |run: &FinishedRun| {
            let data = &run.summary.data;
            (data.events, data.nodes, data.snapshots)
        };
        let other = runs[..i].iter().find(|r| r.summary.data.name == data.name && size(r) != size(run));
        if let Some(other) = other {
            let [(theirs, their_nodes, _), (ours, nodes, _)] = [size(other), size(run)];
            return Err(Error::usage(format!(
                "{} and {} cannot be compared: `{}` has {theirs} events and {their_nodes} nodes in the first, \
                 {ours} and {nodes} in the second",
                other.path.display(),
                run.path.display(),
                data.name
            ))
            .remedy(TRAIN_AGAIN));
        }
        let mut same = runs[..i].iter().filter(|r| r.summary.data.name == data.name);
        if let Some((other, what)) =
            same.find_map(|r| Some((r, r.summary.data.differs(data, run.config.task)?)))
        {
            let [theirs, ours] = [other, run].map(|run| run.path.display());
            let what = format!("{theirs} and {ours} cannot be compared: of `{}`, {what}", data.name);
            return Err(Error::usage(what).remedy(TRAIN_AGAIN));
        }
    }
    Ok(())
}
