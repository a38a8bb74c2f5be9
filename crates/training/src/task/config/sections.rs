//! The sections of a configuration that no model owns.
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;
use tgnn::{
    error::{Error, Result},
    runtime::check_room,
};
use tgnn_data::{Columns, Delimiter, Events, Features, Format, Missing, ReadOptions, TimeFormat};

/// Classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifyConfig {
    /// Width of the head's hidden layers.
    pub width: usize,
    /// Weight of the classes that an event has, relative to those that it has not.
    pub positive_weight: f32,
    /// Whether only the head learns, on a model that stays as it is.
    pub frozen: bool,
    /// Of two labels of events, the one that is yes, as the data write it; `None` for the larger one.
    #[serde(deserialize_with = "label", skip_serializing_if = "Option::is_none")]
    pub positive: Option<String>,
}

/// Reads a label, which may be written as a number.
fn label<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label {
        Text(String),
        Whole(i64),
        Number(f64),
        Truth(bool),
    }
    Ok(Some(match Label::deserialize(value)? {
        Label::Text(text) => text,
        Label::Whole(number) => number.to_string(),
        Label::Number(number) => number.to_string(),
        Label::Truth(truth) => truth.to_string(),
    }))
}

impl Default for ClassifyConfig {
    fn default() -> Self {
        ClassifyConfig { width: 100, positive_weight: 1.0, frozen: false, positive: None }
    }
}

/// Prediction of labels of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PropertyConfig {
    /// Maximum number of label rows of a step. More rows of the same time are divided among several steps.
    pub rows: usize,
}

impl Default for PropertyConfig {
    fn default() -> Self {
        PropertyConfig { rows: 2000 }
    }
}

/// Snapshot groups and their targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Number of steps that a model reads before the one it predicts.
    pub length: usize,
    /// Number of pairs without an edge that each edge is ranked against in validation and test. AP and AUC
    /// use the first of them.
    pub negatives: usize,
    /// Number of groups per update: their gradients are averaged. The last update of an epoch may have fewer.
    pub batch: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig { length: 8, negatives: 100, batch: 1 }
    }
}

/// Where a CUDA device keeps large tables: features, node memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StoredOn {
    /// In device memory if they fit, else on the host.
    Auto,
    /// In device memory; a run whose tables do not fit is refused.
    Device,
    /// In page-locked host memory, which kernels read and write. The rows of features that a step uses are
    /// prefetched.
    Host,
}

/// The data of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// `wikipedia`, an event file, or a folder of `.npy` files.
    pub path: String,
    /// Layout of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Columns of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// What separates the fields of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<Delimiter>,
    /// How the file writes times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_format: Option<TimeFormat>,
    /// What to do about missing values.
    pub missing: Missing,
    /// Whether sources and destinations are two kinds of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bipartite: Option<bool>,
    /// File of edge features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_features: Option<PathBuf>,
    /// File of node features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_features: Option<PathBuf>,
    /// Table of node labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// Refuse events out of order.
    pub strict: bool,
    /// Width of seeded random edge features, for data without features; 0: none.
    pub random_edge_features: usize,
    /// Fraction of the events that train.
    pub train: f64,
    /// Fraction of the events that validate; the rest tests.
    pub val: f64,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            path: "wikipedia".into(),
            format: None,
            columns: None,
            delimiter: None,
            time_format: None,
            missing: Missing::Zero,
            bipartite: None,
            edge_features: None,
            node_features: None,
            labels: None,
            strict: false,
            random_edge_features: 0,
            train: 0.70,
            val: 0.15,
        }
    }
}

impl DataConfig {
    /// Returns how to read the file.
    pub fn read_options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            columns: self.columns.clone(),
            delimiter: self.delimiter,
            time_format: self.time_format.clone(),
            missing: self.missing,
            strict: self.strict,
            bipartite: self.bipartite,
            edge_features: self.edge_features.clone(),
            node_features: self.node_features.clone(),
            labels: self.labels.clone(),
        }
    }

    /// Reads the events as they are.
    ///
    /// # Errors
    /// As [`tgnn_data::load`].
    pub fn read(&self) -> Result<Events> {
        tgnn_data::load(&self.path, &self.read_options())
    }
    /// Reads the events, and adds random features if they are requested.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Usage` if random features are requested for data that have features.
    pub fn load(&self, seed: u64) -> Result<Events> {
        let mut events = self.read()?;
        self.complete(&mut events, seed)?;
        Ok(events)
    }
    /// Adds random edge features if they are requested.
    pub(super) fn complete(&self, events: &mut Events, seed: u64) -> Result<()> {
        if self.random_edge_features > 0 {
            if events.edge_features.is_some() {
                return Err(Error::usage(format!("{} has edge features of its own", events.name))
                    .remedy("leave out random_edge_features"));
            }
            let bytes = 4 * events.len() * self.random_edge_features;
            check_room("random edge features", bytes, "take a smaller random_edge_features")?;
            events.encoding = None;
            events.edge_features = Some(Features::random(events.len(), self.random_edge_features, seed));
        }
        Ok(())
    }
}
