//! The settings by which runs are told apart.
use super::FinishedRun;
use crate::{
    model::{ModelName, StaticMode},
    task::config::{TaskName, table::keys_of},
};
use indexmap::IndexMap;
use tgnn::error::Result;
use toml::Value;

/// Keys and values of a run, first model, plan, device and data.
pub(super) type Settings = IndexMap<String, Value>;

/// Keys that [`settings`] replaces by what the run found, and keys without influence on what it measures.
const LEFT_OUT: [&str; 11] = [
    "seed",
    "model",
    "plan",
    "device",
    "threads",
    "data.path",
    "data.strict",
    "tensorboard",
    "deterministic",
    "partition",
    "rules",
];

/// Returns the settings of a run, without the seed and without the sections of other models.
pub(super) fn settings(run: &FinishedRun) -> Result<Settings> {
    let (config, summary) = (&run.config, &run.summary);
    let mut table = config.to_table()?;
    for section in ModelName::ALL.iter().map(|model| model.section()) {
        match table.get_mut(section) {
            // Other models can use static memory, too.
            Some(Value::Table(keys)) if section == "static" && config.model != ModelName::Static => {
                let unused = config.static_mode() == StaticMode::Off;
                keys.retain(|key, _| !unused || key == "mode");
            }
            _ if section != config.model.section() => drop(table.remove(section)),
            _ => {}
        }
    }
    match config.model.reads_snapshots() {
        true => ["batch", "eval_batch", "history"].into_iter().for_each(|key| drop(table.remove(key))),
        false => ["snapshots", "group"].into_iter().for_each(|section| drop(table.remove(section))),
    }
    if let Some(history) = table.get_mut("history") {
        *history = Value::String(config.history().name().to_owned());
    }
    if !matches!(config.task, TaskName::Node | TaskName::Edge) {
        table.remove("classify");
    }
    let mut settings = Settings::new();
    let text = |text: &str| Value::String(text.to_owned());
    settings.insert("model".into(), text(&summary.model));
    settings.insert("plan".into(), text(&summary.plan));
    settings.insert("device".into(), text(&device(run)));
    settings.insert("data".into(), text(&summary.data.name));
    let start = summary.start.clone().unwrap_or_default();
    let given = start.from.or(start.weights);
    settings.insert("start".into(), text(given.as_deref().unwrap_or("random")));
    if let Some(ranks) = &summary.ranks {
        settings.insert("ranks".into(), Value::Integer(ranks.ranks as i64));
        settings.insert("partition".into(), text(&config.partition));
    }
    settings.extend(keys_of(&table).into_iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str())));
    Ok(settings)
}

/// Describes the device of a run.
fn device(run: &FinishedRun) -> String {
    let device = &run.summary.device;
    match (device.kind.as_str(), device.threads) {
        ("cpu", 1) => format!("cpu ({}, 1 thread)", device.name),
        ("cpu", threads) => format!("cpu ({}, {threads} threads)", device.name),
        (kind, _) => format!("{kind} ({})", device.name),
    }
}
