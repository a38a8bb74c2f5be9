//! Checks that a checkpoint fits a run: its data, its model and its configuration.
use super::{Checkpoint, DataRecord, Manifest};
use crate::{
    model::StaticMode,
    task::config::{
        Config, TaskName,
        table::{keys_of, set_key},
    },
};
use std::path::Path;
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_data::Events;
use toml::{Table, Value};

fn bad(what: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Checkpoint, what).remedy(remedy.to_owned())
}

/// Returns the first thing in which a checkpoint's data differ from `data`; `None` if they are the same as
/// far as the checkpoint tells. Labels count if `labels` is set.
fn differs(manifest: &Manifest, data: &DataRecord, labels: bool) -> Option<String> {
    if manifest.data != data.sizes() {
        let ((e, v, f), (events, nodes, width)) = (manifest.data, data.sizes());
        return Some(format!(
            "{e} events, {v} nodes and {f} edge features; the data has {events}, {nodes} and {width}"
        ));
    }
    let what = manifest.fingerprint?.difference(&data.fingerprint?, data.snapshots.is_some(), labels)?;
    Some(format!("other data: sizes are the same, but {what}"))
}

impl Manifest {
    /// Says that the checkpoint cannot tell its data from others of the same size, if that is so.
    pub fn doubt(&self) -> Option<&'static str> {
        const DOUBT: &str = "the checkpoint is of an earlier version and has no checksums of its data: only \
                             numbers of events, nodes and features are compared";
        self.fingerprint.is_none().then_some(DOUBT)
    }
}

/// Refuses features whose columns do not mean what they meant to a checkpoint's model: others, in another
/// order, or with other categories. Widths may be equal nevertheless. What neither tells is not compared.
fn same_columns(manifest: &Manifest, data: &DataRecord) -> Result<()> {
    let columns = manifest.columns.as_ref();
    // An earlier version has told the columns of edge features to predictors only.
    let of_extract = manifest.extract.as_ref().and_then(|extract| extract.encoding.as_ref());
    let edge = columns.map_or(of_extract, |columns| columns.edge.as_ref());
    let node = columns.and_then(|columns| columns.node.as_ref());
    for (what, theirs, ours) in [("edge", edge, &data.columns.edge), ("node", node, &data.columns.node)] {
        let difference = theirs.zip(ours.as_ref()).and_then(|(theirs, ours)| theirs.difference(ours));
        if let Some(difference) = difference {
            return Err(bad(
                format!("the {what} features mean something else: {difference}"),
                "give data with the model's columns and categories, or train anew; hashed columns (--columns \
                 hashed=NAME:16) do not depend on the categories that occur",
            ));
        }
    }
    Ok(())
}

/// Refuses weights from a checkpoint whose features mean something else. Returns what the user should know if
/// the file is of no checkpoint.
pub(super) fn may_load(weights: &Path, data: &DataRecord) -> Result<Option<String>> {
    let checkpoint = Checkpoint::at(weights.parent().unwrap_or(Path::new("")));
    if checkpoint.exists() {
        return same_columns(&checkpoint.manifest()?, data).map(|()| None);
    }
    let untold =
        "the weights do not say which columns and categories their features were: compare them yourself";
    Ok((!data.columns.is_empty()).then(|| untold.into()))
}

/// Refuses a checkpoint of other data.
pub(in crate::task) fn same_data(manifest: &Manifest, data: &DataRecord) -> Result<()> {
    same_columns(manifest, data)?;
    let labels = manifest.config.task != TaskName::Link;
    match differs(manifest, data, labels) {
        None => Ok(()),
        Some(what) => Err(bad(
            format!("the checkpoint was trained on {what}"),
            "give the data that the checkpoint was trained on",
        )),
    }
}

/// Refuses to start from a model of other data if it has rows of their nodes. Returns what the user should
/// know if it has none.
pub(super) fn may_start(manifest: &Manifest, config: &Config, data: &DataRecord) -> Result<Option<String>> {
    same_model(manifest, config)?;
    same_columns(manifest, data)?;
    match differs(manifest, data, false) {
        Some(what) if config.static_mode() != StaticMode::Off => Err(bad(
            format!("the model has static memory of its nodes, and was trained on {what}"),
            "give the data that it was trained on, or a model with static.mode=off",
        )),
        Some(what) => Ok(Some(format!("the model was trained on {what}"))),
        None => Ok(manifest.doubt().map(Into::into)),
    }
}

/// Refuses a checkpoint of another kind of model.
fn same_kind(manifest: &Manifest, config: &Config) -> Result<()> {
    let (theirs, ours) = (manifest.config.model_name(), config.model_name());
    // Earlier versions did not record that a model was from outside of the crate.
    let untold = manifest.fingerprint.is_none() && manifest.config.model == config.model;
    if theirs == ours || untold {
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
        let of_model = |key: &str| {
            ["model", "custom_model"].contains(&key)
                || key.starts_with(&section)
                || key.starts_with("static.")
        };
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
pub(super) fn resumed(manifest: Manifest, config: &Config, data: &DataRecord) -> Result<Manifest> {
    same_data(&manifest, data)?;
    same_kind(&manifest, config)?;
    const KEEPS_DATA: [&str; 3] = ["data.train", "data.val", "data.random_edge_features"];
    const FREE: [&str; 11] = [
        "epochs",
        "patience",
        "tensorboard",
        "rules",
        "check_memory",
        "device",
        "threads",
        "plan",
        "partition",
        "features_on",
        "memory_on",
    ];
    // How the data are read is of no importance if they are known to be the same.
    let told = manifest.fingerprint.is_some();
    let is_free = |key: &str| {
        let reads = key.starts_with("data.") && !KEEPS_DATA.contains(&key);
        // A custom model is compared by its name.
        FREE.contains(&key) || ["custom_model", "data.path"].contains(&key) || (told && reads)
    };
    match difference(&manifest.config, config)?.into_iter().find(|d| !is_free(&d.key)) {
        Some(d) => Err(bad(
            format!("the checkpoint was trained with another configuration: {d}"),
            &format!(
                "resume with the flags of the run (its config.toml); only {} and where the data are may differ",
                FREE.join(", ")
            ),
        )),
        None if config.optimizer.depends_on_steps() && manifest.config.epochs != config.epochs => Err(bad(
            format!(
                "learning rates fall to zero over the {} epochs of the checkpoint's run, and this one has {}",
                manifest.config.epochs, config.epochs
            ),
            "resume with its epochs",
        )),
        None => {
            let fingerprint = manifest.fingerprint.or(data.fingerprint);
            Ok(Manifest { config: config.clone(), fingerprint, ..manifest })
        }
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
