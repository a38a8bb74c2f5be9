//! Options for making snapshots: the `[snapshots]` section of a run's configuration.
use super::Every;
use crate::names;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use tgnn::error::{Error, Result};

/// Maximum of `lags`, `horizon` and `width`.
const MOST: usize = 1 << 16;

/// Edge weights of snapshots; as text `auto`, `none`, `count` or `feature:K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum EdgeWeights {
    /// Weights that a file of snapshots contains; no weights if snapshots are cut from events.
    Auto,
    /// No weights: all edges are equal.
    None,
    /// Number of occurrences of an edge in its step.
    Count,
    /// Sum over the events of an edge of one of their features, which must be above 0; given by its column,
    /// from 1. A file of snapshots has only column 1, the weights.
    Feature(usize),
}

impl FromStr for EdgeWeights {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let column = s.strip_prefix("feature:").map(|k| k.parse().ok().filter(|k| *k > 0));
        match (s, column) {
            ("auto", _) => Ok(EdgeWeights::Auto),
            ("none", _) => Ok(EdgeWeights::None),
            ("count", _) => Ok(EdgeWeights::Count),
            (_, Some(Some(k))) => Ok(EdgeWeights::Feature(k)),
            _ => Err(Error::usage(format!("there is no snapshots.weights `{s}`")).remedy(
                "give auto, none, count, or feature:K, where K is a column of the edge features, from 1",
            )),
        }
    }
}

impl TryFrom<String> for EdgeWeights {
    type Error = Error;
    fn try_from(s: String) -> Result<Self> {
        s.parse()
    }
}

impl From<EdgeWeights> for String {
    fn from(w: EdgeWeights) -> Self {
        match w {
            EdgeWeights::Auto => "auto".into(),
            EdgeWeights::None => "none".into(),
            EdgeWeights::Count => "count".into(),
            EdgeWeights::Feature(k) => format!("feature:{k}"),
        }
    }
}

/// Steps in which a vertex is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Presence {
    /// All steps from the first one in which the vertex has an edge.
    Seen,
    /// The steps in which the vertex has an edge.
    Active,
    /// All steps.
    All,
}

names!(Presence, "snapshots.presence", [Seen => "seen", Active => "active", All => "all"]);

/// Source of vertex features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VertexFeatures {
    /// Features of the data if there are any, otherwise learned ones.
    Auto,
    /// Features of the data; an error if there are none.
    Given,
    /// `ln(1 + incoming edges)` and `ln(1 + outgoing edges)` of the vertex in each step.
    Degree,
    /// One row per vertex, learned by the model.
    Learned,
    /// One row of seeded random values per vertex.
    Random,
    /// The features of the data, which must be degree and transitivity, each as one-hot columns: what the
    /// loader of Twitter Tennis makes of them.
    Encoded,
}

/// Whether series, and features that change over time, are normalised: shifted and scaled to mean 0 and
/// standard deviation 1 over the training steps. A key is `true`, `false` or `"vertex"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NormaliseKey", into = "NormaliseKey")]
#[non_exhaustive]
pub enum Normalise {
    /// Values stay as they are.
    Off,
    /// One mean and one deviation for each column, over all vertices.
    Column,
    /// A mean and a deviation for each vertex and column. Errors are then in deviations of the vertex.
    Vertex,
}

/// [`Normalise`] in a configuration.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NormaliseKey {
    Flag(bool),
    Name(String),
}

impl TryFrom<NormaliseKey> for Normalise {
    type Error = Error;
    fn try_from(key: NormaliseKey) -> Result<Self> {
        match key {
            NormaliseKey::Flag(false) => Ok(Normalise::Off),
            NormaliseKey::Flag(true) => Ok(Normalise::Column),
            NormaliseKey::Name(name) if name == "vertex" => Ok(Normalise::Vertex),
            NormaliseKey::Name(name) => {
                Err(Error::usage(format!("there is no snapshots.normalise `{name}`"))
                    .remedy("give true, false or vertex"))
            }
        }
    }
}

impl From<Normalise> for NormaliseKey {
    fn from(normalise: Normalise) -> Self {
        match normalise {
            Normalise::Off => NormaliseKey::Flag(false),
            Normalise::Column => NormaliseKey::Flag(true),
            Normalise::Vertex => NormaliseKey::Name("vertex".into()),
        }
    }
}

/// Options for making snapshots from a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotOptions {
    /// Length of a step when an event stream is cut; ignored for files of snapshots.
    pub every: Every,
    /// Edge weights.
    pub weights: EdgeWeights,
    /// Steps in which a vertex is present; vertices of a series always are.
    pub presence: Presence,
    /// Whether edges are directed; see [`Adjacency`](crate::Adjacency).
    pub directed: bool,
    /// Whether event labels become vertex classes: a vertex has the class of its last event with a label as a
    /// source in a step.
    pub classes: bool,
    /// Source of vertex features.
    pub features: VertexFeatures,
    /// Width of random or learned features.
    pub width: usize,
    /// Number of values of a series in a step's features: the step's own value and those of the steps before.
    pub lags: usize,
    /// Number of values of a series to predict: a step's own value and those that follow.
    pub horizon: usize,
    /// Column, from 1, of a series of several columns that is predicted; 0: the one that PyTorch Geometric
    /// Temporal's loader predicts.
    pub target: usize,
    /// Whether series, and features that change over time, are normalised.
    pub normalise: Normalise,
    /// Fraction of the steps used for training, needed by [`normalise`](Self::normalise). It is a run's
    /// `data.train`, so it has no key of its own.
    #[serde(skip)]
    pub train: f64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        SnapshotOptions {
            every: Every::Week,
            weights: EdgeWeights::Auto,
            presence: Presence::Seen,
            directed: false,
            classes: false,
            features: VertexFeatures::Auto,
            width: 64,
            lags: 4,
            horizon: 1,
            target: 0,
            normalise: Normalise::Column,
            train: 0.7,
        }
    }
}

impl SnapshotOptions {
    /// Checks the ranges of all numbers.
    ///
    /// # Errors
    /// Usage, naming the key and its range.
    pub fn validate(&self) -> Result<()> {
        for (key, value) in [("width", self.width), ("lags", self.lags), ("horizon", self.horizon)] {
            if !(1..=MOST).contains(&value) {
                return Err(
                    Error::usage(format!("snapshots.{key} is {value}")).remedy(format!("give 1 to {MOST}"))
                );
            }
        }
        Ok(())
    }

    /// Whether to read the weights of a file of snapshots.
    pub(super) fn reads_weights(&self, file: &std::path::Path) -> Result<bool> {
        match self.weights {
            EdgeWeights::Auto | EdgeWeights::Feature(1) => Ok(true),
            EdgeWeights::None | EdgeWeights::Count => Ok(false),
            EdgeWeights::Feature(k) => Err(Error::usage(format!(
                "snapshots.weights is feature:{k}, but {} has only one weight per edge",
                file.display()
            ))
            .remedy("give feature:1, auto, none or count")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_plain_keys_and_read_back() {
        let options = SnapshotOptions {
            every: Every::Events(1000),
            weights: EdgeWeights::Feature(2),
            normalise: Normalise::Vertex,
            ..SnapshotOptions::default()
        };
        let text = toml::to_string(&options).unwrap();
        assert!(
            text.starts_with("every = \"1000e\"\nweights = \"feature:2\"\npresence = \"seen\"\n"),
            "{text}"
        );
        assert_eq!(toml::from_str::<SnapshotOptions>(&text).unwrap(), options);
        assert_eq!(toml::from_str::<SnapshotOptions>("").unwrap(), SnapshotOptions::default());
        assert!(!text.contains("train"), "{text}");
    }

    #[test]
    fn invalid_options_are_refused_and_the_error_names_the_choices() {
        let said = |text: &str| toml::from_str::<SnapshotOptions>(text).unwrap_err().to_string();
        assert!(said("every = \"often\"").contains("snapshots.every `often`"));
        assert!(said("normalise = \"row\"").contains("give true, false or vertex"));
        assert!(said("weights = \"feature:0\"").contains("give auto, none, count, or feature:K"));
        assert!(said("presence = \"never\"").contains("`seen`, `active`, `all`"));
        assert!(said("lag = 2").contains("unknown field `lag`"));
        assert!("never".parse::<Presence>().unwrap_err().to_string().ends_with("give seen, active or all"));
        let options = SnapshotOptions { lags: 0, ..SnapshotOptions::default() };
        assert!(options.validate().unwrap_err().to_string().starts_with("snapshots.lags is 0; give 1 to "));
    }
}
