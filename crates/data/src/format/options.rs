//! Formats and reading options.
use super::{columns::Columns, delimiter::Delimiter};
use crate::{names, time_format::TimeFormat};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};
use tgnn::error::{Error, Result};

/// Layout of event files; see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Format {
    /// JODIE CSV.
    Jodie,
    /// DyGLib and TGN CSV, with features in adjacent `.npy` files.
    Dyglib,
    /// TGL's `edges.csv`.
    Tgl,
    /// `src dst time` without a header.
    Snap,
    /// `source,target,rating,time`.
    Signed,
    /// Any table with a header.
    Table,
    /// A folder of `subject relation object time` files.
    Tkg,
    /// TGB's folders, and the edge lists in them.
    Tgb,
    /// A folder of `.npy` files.
    Native,
}

names!(Format, "format", [
    Jodie => "jodie",
    Dyglib => "dyglib",
    Tgl => "tgl",
    Snap => "snap",
    Signed => "signed",
    Table => "table",
    Tgb => "tgb",
    Tkg => "tkg",
    Native => "native",
]);

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to do about missing values: empty cells, nulls, and in columns of numbers and times also `NA`, `NaN`,
/// `null` and `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Missing {
    /// A missing feature is 0, with a note; a missing source, destination or time is an error. An event may
    /// have no label, whatever the rule, except with [`Refuse`](Self::Refuse).
    #[default]
    Zero,
    /// Leave out rows with a missing value other than the label, with a note.
    Drop,
    /// Any missing value is an error.
    Refuse,
}

names!(Missing, "rule for missing values", [Zero => "zero", Drop => "drop", Refuse => "refuse"]);

/// How to read an event file; the default recognises everything by itself.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The layout; if `None`, it is recognised from the header, delimiter and content.
    pub format: Option<Format>,
    /// Columns by name or position; what they do not give is recognised by the header or the layout.
    pub columns: Option<Columns>,
    /// What separates the fields of a text; if `None`, it is recognised from the first lines.
    pub delimiter: Option<Delimiter>,
    /// How times are written; if `None`, it is guessed from the first time.
    pub time_format: Option<TimeFormat>,
    /// What to do about missing values.
    pub missing: Missing,
    /// Whether to refuse events that are out of time order instead of sorting them.
    pub strict: bool,
    /// Whether sources and destinations are different kinds of nodes. If `None`, they are when no node is
    /// both a source and a destination, or when the layout numbers sources and destinations separately.
    pub bipartite: Option<bool>,
    /// File of edge features: `.npy` or `.pt` with one row per event in the order of the event file,
    /// optionally preceded by a padding row 0; or a table with one row per event.
    pub edge_features: Option<PathBuf>,
    /// File of node features: `.npy` or `.pt` with one row per original id, or one row per node; or a table
    /// with an id and features per row.
    pub node_features: Option<PathBuf>,
    /// Table of node labels: a time, a node, a label and optionally its weight per row.
    pub labels: Option<PathBuf>,
}

impl ReadOptions {
    /// Whether there is an option that applies to events only, so that a path that may also be snapshots,
    /// such as a folder of lists of edges, holds events.
    pub fn says_events(&self) -> bool {
        let features = self.edge_features.is_some() || self.node_features.is_some() || self.labels.is_some();
        self.format.is_some() || self.columns.is_some() || self.delimiter.is_some() || features
    }

    /// Refuses options that say how columns and times are written, for `what`, in which that is settled.
    #[doc(hidden)]
    pub fn refuse_writing(&self, what: &str) -> Result<()> {
        // Files of features may lack values even if the events cannot.
        let features = self.edge_features.is_some() || self.node_features.is_some();
        let given = [
            ("--columns", self.columns.is_some()),
            ("--time-format", self.time_format.is_some()),
            ("--missing", self.missing != Missing::Zero && !features),
            ("--delimiter", self.delimiter.is_some()),
        ];
        let given: Vec<&str> = given.into_iter().filter(|option| option.1).map(|option| option.0).collect();
        if given.is_empty() {
            return Ok(());
        }
        Err(Error::usage(format!("how {what} are written is settled"))
            .remedy(format!("leave out {}", given.join(" and "))))
    }
}
