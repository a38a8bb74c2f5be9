//! Checks that a checkpoint fits a run: its data, its model and its configuration.
use super::{Checkpoint, DataRecord, Manifest};
use crate::{
    data::Events,
    error::{Error, ErrorKind, Result},
    model::StaticMode,
    task::config::{
        Config,
        table::{keys_of, set_key},
    },
};
use std::path::Path;
use toml::{Table, Value};

fn bad(what: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Checkpoint, what).remedy(remedy.to_owned())
}

/// Refuses a checkpoint of other data.
pub(in crate::task) fn same_data(manifest: &Manifest, data: &DataRecord) -> Result<()> {
    if manifest.data == data.identity() {
        return Ok(());
    }
    let ((e, v, f), (events, nodes, width)) = (manifest.data, data.identity());
    Err(bad(
        format!(
            "the checkpoint was trained on {e} events, {v} nodes and {f} edge features; the data has {events}, \
             {nodes} and {width}"
        ),
        "give the data that the checkpoint was trained on",
    ))
}

/// Refuses a checkpoint of another kind of model.
fn same_kind(manifest: &Manifest, config: &Config) -> Result<()> {
    let (theirs, ours) = (manifest.config.model.name(), config.model.name());
    if theirs == ours {
        return Ok(());
    }
    Err(bad(format!("the checkpoint is of {theirs}, this run is of {ours}"), "give the checkpoint's model"))
}

/// Refuses a checkpoint of another model, or of the same model with other sizes or choices.
pub(in crate::task) fn same_model(manifest: &Manifest, config: &Config) -> Result<()> {
    same_kind(manifest, config)?;
    let section = format!("{}.", config.model.section());
    let rows = config.static_mode() != StaticMode::Off;
    let belongs_to_model =
        |key: &str| key.starts_with(&section) || key == "static.mode" || (rows && key == "static.width");
    match difference(&manifest.config, config)?.into_iter().find(|d| belongs_to_model(&d.key)) {
        Some(d) => Err(bad(
            format!("the checkpoint's {} has other settings: {d}", config.model.name()),
            "give the checkpoint's value",
        )),
        None => Ok(()),
    }
}

/// Returns the keys that a user has given for a run that starts from the model in the run folder or
/// checkpoint `from`, and, where these are silent, that model's: its name, its section, and the rows of its
/// static memory.
///
/// # Errors
/// `Checkpoint` if there is no checkpoint, or it is damaged.
pub fn with_model_of(from: &Path, mut given: Table) -> Result<Table> {
    let theirs = Checkpoint::at(from).manifest()?.config;
    let (ours, keys) = (keys_of(&given), keys_of(&theirs.to_table()?));
    let section = format!("{}.", theirs.model.section());
    // Another model is refused when the run starts.
    if ours.get("model").is_none_or(|model| keys.get("model") == Some(model)) {
        let of_model = |key: &str| key == "model" || key.starts_with(&section) || key.starts_with("static.");
        for (key, value) in keys.iter().filter(|(key, _)| of_model(key) && !ours.contains_key(*key)) {
            set_key(&mut given, key, value.clone())?;
        }
    }
    Ok(given)
}

/// Refuses a test part that does not begin where the checkpoint's node memory ends.
pub(in crate::task) fn same_test(manifest: &Manifest, config: &Config, events: &Events) -> Result<()> {
    let start = |c: &Config| Ok::<usize, Error>(c.split(events)?.test.start);
    match (start(&manifest.config)?, start(config)?) {
        (trained, ours) if trained == ours => Ok(()),
        (trained, ours) => Err(bad(
            format!(
                "the checkpoint's memory ends before event {trained}, and this test part begins at {ours}"
            ),
            "use the data.train and data.val that the checkpoint was trained with",
        )),
    }
}

/// Returns `manifest` with the configuration replaced by `config`, for a resumed run.
///
/// # Errors
/// `Checkpoint` if the data differ, or the configuration differs in more than a resumed run may change: the
/// number of epochs, and settings that do not change results.
pub(super) fn resumed(manifest: Manifest, config: &Config, data: &DataRecord) -> Result<Manifest> {
    same_data(&manifest, data)?;
    same_kind(&manifest, config)?;
    const FREE: [&str; 9] = [
        "epochs",
        "patience",
        "tensorboard",
        "device",
        "threads",
        "plan",
        "partition",
        "features_on",
        "memory_on",
    ];
    match difference(&manifest.config, config)?.into_iter().find(|d| !FREE.contains(&d.key.as_str())) {
        Some(d) => Err(bad(
            format!("the checkpoint was trained with another configuration: {d}"),
            "resume with the flags of the run (its config.toml); only epochs, patience, tensorboard, device, \
             threads, plan, features_on and memory_on may differ",
        )),
        None if config.optimizer.depends_on_steps() && manifest.config.epochs != config.epochs => Err(bad(
            format!(
                "learning rates fall to zero over the {} epochs of the checkpoint's run, and this one has {}",
                manifest.config.epochs, config.epochs
            ),
            "resume with its epochs",
        )),
        None => Ok(Manifest { config: config.clone(), ..manifest }),
    }
}

/// A key that has different values in two configurations.
struct Differs {
    key: String,
    theirs: String,
    ours: String,
}

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {} in the checkpoint and {} in this run", self.key, self.theirs, self.ours)
    }
}

/// Returns every key that differs, in alphabetical order.
fn difference(theirs: &Config, ours: &Config) -> Result<Vec<Differs>> {
    let theirs = keys_of(&theirs.to_table()?);
    let differs = |(key, ours): (String, Value)| {
        let theirs = theirs.get(&key);
        (theirs != Some(&ours)).then(|| Differs {
            theirs: theirs.map_or_else(|| "not set".into(), Value::to_string),
            ours: ours.to_string(),
            key,
        })
    };
    Ok(keys_of(&ours.to_table()?).into_iter().filter_map(differs).collect())
}
