//! The flags that tell how to read event data, shared by the subcommands of `data`.
use crate::data::{Columns, Format, ReadOptions};
use clap::{ArgAction, Args};
use std::path::PathBuf;

/// How to read events. What no flag sets is detected automatically.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadArgs {
    /// Layout: jodie, dyglib, tgl, snap, signed, table, tgb, tkg or native
    #[arg(long, value_name = "NAME")]
    pub format: Option<Format>,
    /// Columns, from 1: src=2,dst=3,time=1 and, if present, label=4,features=5-
    #[arg(long, value_name = "LIST")]
    pub columns: Option<Columns>,
    /// Refuse events out of time order instead of sorting them
    #[arg(long)]
    pub strict: bool,
    /// Treat sources and destinations as two kinds of nodes; with `=false`, as one kind
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          action = ArgAction::Set)]
    pub bipartite: Option<bool>,
    /// Edge features, .npy or .pt: one row per event
    #[arg(long, value_name = "FILE")]
    pub edge_features: Option<PathBuf>,
    /// Node features, .npy or .pt: one row per node id
    #[arg(long, value_name = "FILE")]
    pub node_features: Option<PathBuf>,
}

impl ReadArgs {
    /// Whether no flag is given that only events have.
    pub fn tells_nothing(&self) -> bool {
        let files = self.edge_features.is_none() && self.node_features.is_none();
        self.format.is_none() && self.columns.is_none() && self.bipartite.is_none() && files
    }
    /// Returns the flags as the library's options.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            columns: self.columns,
            strict: self.strict,
            bipartite: self.bipartite,
            edge_features: self.edge_features.clone(),
            node_features: self.node_features.clone(),
        }
    }
}
