//! Whether a checkpoint is of this run: of its data, its model, its configuration.
use super::{DataRecord, Manifest};
use crate::{
    data::Events,
    error::{Error, ErrorKind, Result},
    model::StaticMode,
    task::config::Config,
};
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
            "the checkpoint is of {e} events, {v} nodes, {f} edge features; the data has {events}, {nodes}, {width}"
        ),
        "give the data it was trained on",
    ))
}

/// Refuses a checkpoint of another model.
fn same_kind(manifest: &Manifest, config: &Config) -> Result<()> {
    let (theirs, ours) = (manifest.config.model.name(), config.model.name());
    if theirs == ours {
        return Ok(());
    }
    Err(bad(format!("the checkpoint is of {theirs}, this run is of {ours}"), "give the checkpoint's model"))
}

/// Refuses a checkpoint of another model, or of one of other sizes or choices.
pub(in crate::task) fn same_model(manifest: &Manifest, config: &Config) -> Result<()> {
    same_kind(manifest, config)?;
    let section = format!("{}.", config.model.section());
    let rows = config.static_mode() != StaticMode::Off;
    let of_the_model =
        |key: &str| key.starts_with(&section) || key == "static.mode" || (rows && key == "static.width");
    match difference(&manifest.config, config)?.into_iter().find(|d| of_the_model(&d.key)) {
        Some(d) => Err(bad(
            format!("the checkpoint is of another {}: {d}", config.model.name()),
            "give the checkpoint's",
        )),
        None => Ok(()),
    }
}

/// Refuses a test part that does not begin where the checkpoint's memory ends.
pub(in crate::task) fn same_test(manifest: &Manifest, config: &Config, events: &Events) -> Result<()> {
    let start = |c: &Config| Ok::<usize, Error>(c.split(events)?.test.start);
    match (start(&manifest.config)?, start(config)?) {
        (had, wants) if had == wants => Ok(()),
        (had, wants) => Err(bad(
            format!("the checkpoint's memory ends before event {had}, and this test part begins at {wants}"),
            "train with the shares of the test: data.train, data.val",
        )),
    }
}

/// `manifest` under this configuration, if it is of this data and of the same but for what a resumed run may change: how
/// long it goes on, and what changes no result.
pub(super) fn resumed(manifest: Manifest, config: &Config, data: &DataRecord) -> Result<Manifest> {
    same_data(&manifest, data)?;
    same_kind(&manifest, config)?;
    const FREE: [&str; 7] = ["epochs", "patience", "tensorboard", "device", "threads", "plan", "features_on"];
    match difference(&manifest.config, config)?.into_iter().find(|d| !FREE.contains(&d.key.as_str())) {
        Some(d) => Err(bad(
            format!("the checkpoint was trained with another configuration: {d}"),
            "resume with the flags of the run (its config.toml); only epochs, patience, tensorboard, device, threads, plan and \
             features_on may differ",
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

/// A key that two configurations set differently.
struct Differs {
    key: String,
    theirs: String,
    ours: String,
}

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {} there and {} here", self.key, self.theirs, self.ours)
    }
}

/// Every key that differs, in the order of a configuration file.
fn difference(theirs: &Config, ours: &Config) -> Result<Vec<Differs>> {
    let table = |c: &Config| {
        Table::try_from(c).map_err(|e| Error::usage("cannot write the configuration").caused_by(e))
    };
    let mut found = Vec::new();
    compare("", &table(theirs)?, &table(ours)?, &mut found);
    Ok(found)
}

fn compare(section: &str, theirs: &Table, ours: &Table, found: &mut Vec<Differs>) {
    for (key, ours) in ours {
        let key_here = format!("{section}{key}");
        match (theirs.get(key), ours) {
            (Some(Value::Table(theirs)), Value::Table(ours)) => {
                compare(&format!("{key_here}."), theirs, ours, found);
            }
            (theirs, ours) if theirs != Some(ours) => found.push(Differs {
                key: key_here,
                theirs: theirs.map_or_else(|| "not set".into(), Value::to_string),
                ours: ours.to_string(),
            }),
            _ => {}
        }
    }
}
