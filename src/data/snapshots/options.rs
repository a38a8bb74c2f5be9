//! How snapshots are made: the `[snapshots]` section of a run's configuration.
use super::Every;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Most lags, values ahead, and columns of features.
const MOST: usize = 1 << 16;

/// What the edges of a snapshot weigh; as text `auto`, `none`, `count` or `feature:K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EdgeWeights {
    /// The weights that come with the snapshots of a file; none where snapshots are cut from events.
    Auto,
    /// All edges are alike.
    None,
    /// How often an edge occurs in its step.
    Count,
    /// The sum of a column, from 1, of the features of the events, which must be above 0; a file of snapshots has but one, the
    /// weights.
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
            _ => Err(Error::usage(format!("there are no snapshots.weights `{s}`"))
                .remedy("give auto, none, count, or feature:K, the column K of the features, from 1")),
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

/// When a vertex is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// From the first step in which it has an edge.
    Seen,
    /// In the steps in which it has an edge.
    Active,
    /// Always.
    All,
}

impl FromStr for Presence {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "seen" => Ok(Presence::Seen),
            "active" => Ok(Presence::Active),
            "all" => Ok(Presence::All),
            _ => Err(Error::usage(format!("there is no snapshots.presence `{s}`"))
                .remedy("give seen, active or all")),
        }
    }
}

/// What vertices are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VertexFeatures {
    /// Those of the data where it has any, else learned rows.
    Auto,
    /// Those of the data.
    Given,
    /// `ln(1 + edges to the vertex)` and `ln(1 + edges from it)`, in each step.
    Degree,
    /// A row a vertex that a model learns.
    Learned,
    /// Seeded noise, a row a vertex.
    Random,
}

/// How snapshots are made of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotOptions {
    /// Where a stream of events is cut; files of snapshots are cut already.
    pub every: Every,
    /// What edges weigh.
    pub weights: EdgeWeights,
    /// When a vertex is there; vertices of a series always are.
    pub presence: Presence,
    /// Whether an edge is read in its direction alone; see [`Adjacency`](crate::data::Adjacency).
    pub directed: bool,
    /// Whether the labels of events become classes of vertices: that of a vertex's last event as a source in a step.
    pub classes: bool,
    /// What vertices are known by.
    pub features: VertexFeatures,
    /// Columns of features that are random or learned.
    pub width: usize,
    /// Values of a series that a step's features hold: its own, and those of the steps before it.
    pub lags: usize,
    /// Values of a series that are predicted: a step's own, and those that follow.
    pub horizon: usize,
    /// Whether series, and features that change, are shifted and scaled by mean and deviation over the steps that train.
    pub normalise: bool,
    /// Share of the steps that train, for [`normalise`](Self::normalise): a run's `data.train`, so no key of its own.
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
            normalise: true,
            train: 0.7,
        }
    }
}

impl SnapshotOptions {
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// Usage, naming the key and what it may be.
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

    /// The column of the only weight that a file of snapshots has; none if it is not to be read.
    pub(super) fn reads_weights(&self, file: &std::path::Path) -> Result<bool> {
        match self.weights {
            EdgeWeights::Auto | EdgeWeights::Feature(1) => Ok(true),
            EdgeWeights::None | EdgeWeights::Count => Ok(false),
            EdgeWeights::Feature(k) => Err(Error::usage(format!(
                "snapshots.weights is feature:{k}; {} has one weight an edge",
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
    fn what_is_no_option_is_refused_with_the_choices() {
        let said = |text: &str| toml::from_str::<SnapshotOptions>(text).unwrap_err().to_string();
        assert!(said("every = \"often\"").contains("snapshots.every `often`"));
        assert!(said("weights = \"feature:0\"").contains("give auto, none, count, or feature:K"));
        assert!(said("presence = \"never\"").contains("`seen`, `active`, `all`"));
        assert!(said("lag = 2").contains("unknown field `lag`"));
        assert!("never".parse::<Presence>().unwrap_err().to_string().ends_with("give seen, active or all"));
        let options = SnapshotOptions { lags: 0, ..SnapshotOptions::default() };
        assert!(options.validate().unwrap_err().to_string().starts_with("snapshots.lags is 0; give 1 to "));
    }
}
