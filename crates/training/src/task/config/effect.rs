//! Keys that change nothing, because their section belongs to another model or task.
use super::{Config, TaskName};
use crate::model::{ModelName, StaticMode};
use tgnn::error::{Error, Result};

/// Keys outside of sections that only models of events read. A configuration with some others is refused as a
/// whole ([`Config::validate`]).
const OF_EVENTS: [&str; 7] =
    ["batch", "features_as", "features_on", "memory_as", "memory_on", "negatives", "settle"];

impl Config {
    /// Refuses a key that the model does not read, such as `tgn.layers` for `jodie`.
    ///
    /// # Errors
    /// `Usage`, with the models that read it.
    pub fn model_reads(&self, key: &str) -> Result<()> {
        let section = key.split_once('.').map_or("", |(section, _)| section);
        let snapshots = self.model.reads_snapshots();
        let of_section = ModelName::ALL.iter().filter(|model| model.section() == section);
        let readers: Vec<&str> = match section {
            "snapshots" | "group" if !snapshots => return self.unread(key, &ModelName::names(true)),
            "" if snapshots && OF_EVENTS.contains(&key) => {
                return self.unread(key, &ModelName::names(false));
            }
            // Any model of events may have rows of nodes.
            "static" if snapshots => return self.unread(key, &ModelName::names(false)),
            "static" => return Ok(()),
            _ => of_section.map(|model| model.name()).collect(),
        };
        if readers.is_empty() || readers.contains(&self.model.name()) {
            return Ok(());
        }
        self.unread(key, &readers.join(" or "))
    }
    /// The error for a key that only other models read.
    fn unread(&self, key: &str, readers: &str) -> Result<()> {
        let what = format!("{key} is set, and the model {} does not read it", self.model_name());
        Err(Error::usage(what).remedy(format!("leave it out, or give model={readers}")))
    }
    /// Refuses a key of a section that the run does not read with this task and these rows of nodes, which
    /// may [follow from the data](Self::fit_to).
    ///
    /// # Errors
    /// `Usage`, with the setting that would read it.
    pub fn run_reads(&self, key: &str) -> Result<()> {
        let (section, name) = key.split_once('.').unwrap_or_default();
        let (read, by) = match section {
            "property" => (self.task == TaskName::Property, "task=property"),
            "classify" => {
                let frozen = name == "frozen" && self.task == TaskName::Property;
                (frozen || matches!(self.task, TaskName::Node | TaskName::Edge), "task=node or task=edge")
            }
            "static" if name != "mode" && self.model != ModelName::Static => {
                (self.static_mode() != StaticMode::Off, "static.mode=pretrained or static.mode=trained")
            }
            _ => return Ok(()),
        };
        if read {
            return Ok(());
        }
        let state = match section {
            "static" => "static.mode is off".to_owned(),
            _ => format!("the task is {}", self.task.name()),
        };
        Err(Error::usage(format!("{key} is set, and {state}")).remedy(format!("leave it out, or give {by}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::config::table::keys_of;

    #[test]
    fn keys_of_other_models_and_tasks_are_refused() {
        let said = |model, task, key: &str| {
            let config = Config { model, task, ..Config::default() };
            config.model_reads(key).and_then(|()| config.run_reads(key)).err().map(|e| e.to_string())
        };
        let of_link = |model, key| said(model, TaskName::Link, key);
        for (model, key, want) in [
            (
                ModelName::Jodie,
                "tgn.layers",
                "the model jodie does not read it; leave it out, or give model=tgn",
            ),
            (ModelName::TGcn, "evolve-gcn.width", "give model=evolve-gcn-o or evolve-gcn-h"),
            (ModelName::TGcn, "batch", "the model t-gcn does not read it; leave it out, or give model=tgn, "),
            (ModelName::Tgn, "snapshots.every", "give model=wd-gcn, t-gcn, evolve-gcn-o or evolve-gcn-h"),
            (
                ModelName::TGcn,
                "static.width",
                "the model t-gcn does not read it; leave it out, or give model=tgn, ",
            ),
            (
                ModelName::Tgn,
                "static.width",
                "static.mode is off; leave it out, or give static.mode=pretrained",
            ),
            (ModelName::Tgn, "property.rows", "the task is link; leave it out, or give task=property"),
            (
                ModelName::Tgn,
                "classify.width",
                "the task is link; leave it out, or give task=node or task=edge",
            ),
        ] {
            let found = of_link(model, key).unwrap();
            assert!(found.starts_with(&format!("{key} is set, and ")) && found.contains(want), "{found}");
        }
        assert_eq!(said(ModelName::Tgn, TaskName::Node, "classify.width"), None);
        assert_eq!(said(ModelName::Tgn, TaskName::Property, "property.rows"), None);
        assert_eq!(of_link(ModelName::EvolveGcnH, "evolve-gcn.width"), None);
        assert_eq!(of_link(ModelName::Static, "static.width"), None);
    }

    #[test]
    fn every_key_is_read_by_some_model_and_task() {
        for key in keys_of(&Config::default().to_table().unwrap()).keys() {
            let read = ModelName::ALL.iter().any(|&model| {
                TaskName::ALL.iter().any(|&task| {
                    let mut config = Config { model, task, ..Config::default() };
                    config.static_memory.mode = StaticMode::Trained;
                    config.model_reads(key).is_ok() && config.run_reads(key).is_ok()
                })
            });
            assert!(read, "{key}");
        }
    }
}
