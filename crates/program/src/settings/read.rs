//! The flags that tell how to read event data.
use super::keys::{keys, set_flag};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use tgnn::error::Result;
use tgnn_data::{Columns, Delimiter, Format, Missing, ReadOptions, TimeFormat};

/// How to read events. What no flag sets is detected automatically.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadArgs {
    /// Layout: jodie, dyglib, tgl, snap, signed, table, tgb, tkg or native
    #[arg(long, value_name = "NAME")]
    pub format: Option<Format>,
    /// Columns by name or number, as in src=origin,dst=3,time=day+clock; also label=x, features=a+5-,
    /// one-hot=b and hashed=c:32. What is not given is recognised by the header
    #[arg(long, value_name = "LIST")]
    pub columns: Option<Columns>,
    /// What separates the fields of a text: , ; | :: or others, tab, or blanks [default: as the lines show]
    #[arg(long, value_name = "TEXT")]
    pub delimiter: Option<Delimiter>,
    /// How times are written: s, ms, us, ns, min, h, d, w, a count such as excel or julian, iso, or a pattern
    /// such as '%d/%m/%Y %H:%M'
    #[arg(long, value_name = "FORMAT")]
    pub time_format: Option<TimeFormat>,
    /// Missing values: zero (features are 0), drop (the row) or refuse
    #[arg(long, value_name = "RULE")]
    pub missing: Option<Missing>,
    /// Refuse events out of time order instead of sorting them
    #[arg(long)]
    pub strict: bool,
    /// Treat sources and destinations as two kinds of nodes; with `=false`, as one kind
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          hide_possible_values = true, action = ArgAction::Set)]
    pub bipartite: Option<bool>,
    /// Edge features: .npy, .pt or a table, with one row per event
    #[arg(long, value_name = "FILE")]
    pub edge_features: Option<PathBuf>,
    /// Node features: .npy or .pt with one row per node id, or a table of ids and features
    #[arg(long, value_name = "FILE")]
    pub node_features: Option<PathBuf>,
    /// Labels of nodes at times, to be predicted: a table of time, node, label and weight
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
}

keys!(ReadArgs {
    format => "data.format",
    columns => "data.columns",
    delimiter => "data.delimiter",
    time_format => "data.time_format",
    missing => "data.missing",
    bipartite => "data.bipartite",
    edge_features => "data.edge_features",
    node_features => "data.node_features",
    labels => "data.labels",
});

impl ReadArgs {
    /// Sets the keys of a configuration that the flags give.
    pub fn set(&self, table: &mut toml::Table) -> Result<()> {
        self.set_given(table)?;
        if self.strict { set_flag(table, "data.strict", &true) } else { Ok(()) }
    }
    /// Whether no flag is given that only events have.
    pub fn tells_nothing(&self) -> bool {
        !self.options().says_events() && self.bipartite.is_none()
    }
    /// Returns the flags as the library's options.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            columns: self.columns.clone(),
            delimiter: self.delimiter,
            time_format: self.time_format.clone(),
            missing: self.missing.unwrap_or_default(),
            strict: self.strict,
            bipartite: self.bipartite,
            edge_features: self.edge_features.clone(),
            node_features: self.node_features.clone(),
            labels: self.labels.clone(),
        }
    }
}
