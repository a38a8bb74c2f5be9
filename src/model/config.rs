//! What the configurations of models have in common.
use super::{EventModel, EventTables, TimeStart, tables::strategy};
use crate::{
    autograd::Parameters,
    error::{Error, Result},
    runtime::{Store, StoredAs},
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The models by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelName {
    /// Memory by a recurrent cell, temporal attention over neighbours.
    Tgn,
    /// Memory by an RNN, projected in time.
    Jodie,
    /// Attention over mails, which go to neighbours too.
    Apan,
    /// Temporal attention over neighbours of neighbours, no memory.
    Tgat,
    /// A learned row a node, whatever the time: a baseline, and what pre-trains static memory.
    Static,
    /// Of snapshots: graph convolutions, then an LSTM a vertex.
    WdGcn,
    /// Of snapshots: a GRU whose gates are graph convolutions.
    TGcn,
    /// Of snapshots: graph convolutions whose weights a GRU evolves from themselves.
    EvolveGcnO,
    /// The same, from a summary of the vertices, too.
    EvolveGcnH,
}

impl ModelName {
    /// All of them: those of events, then those of snapshots.
    pub const ALL: [ModelName; 9] = [
        ModelName::Tgn,
        ModelName::Jodie,
        ModelName::Apan,
        ModelName::Tgat,
        ModelName::Static,
        ModelName::WdGcn,
        ModelName::TGcn,
        ModelName::EvolveGcnO,
        ModelName::EvolveGcnH,
    ];
    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            ModelName::Tgn => "tgn",
            ModelName::Jodie => "jodie",
            ModelName::Apan => "apan",
            ModelName::Tgat => "tgat",
            ModelName::Static => "static",
            ModelName::WdGcn => "wd-gcn",
            ModelName::TGcn => "t-gcn",
            ModelName::EvolveGcnO => "evolve-gcn-o",
            ModelName::EvolveGcnH => "evolve-gcn-h",
        }
    }
    /// The name of its section in a configuration.
    pub fn section(self) -> &'static str {
        match self {
            ModelName::EvolveGcnO | ModelName::EvolveGcnH => "evolve-gcn",
            _ => self.name(),
        }
    }
    /// Whether it reads snapshots, not events.
    pub fn reads_snapshots(self) -> bool {
        use ModelName::{EvolveGcnH, EvolveGcnO, TGcn, WdGcn};
        matches!(self, WdGcn | TGcn | EvolveGcnO | EvolveGcnH)
    }
}

impl FromStr for ModelName {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        ModelName::ALL.into_iter().find(|m| m.name() == s).ok_or_else(|| {
            let all = ModelName::ALL.map(ModelName::name).join(", ");
            Error::usage(format!("there is no model `{s}`")).remedy(format!("give one of {all}"))
        })
    }
}

/// Sizes and choices of a model: a section of a run's configuration.
pub trait ModelConfig: Sync {
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// Usage, naming the key and what it may be.
    fn validate(&self) -> Result<()>;
    /// Bytes of what the model keeps of `nodes` nodes, with edge features of `width`, memory and mails in `kept`.
    fn state_bytes(&self, _nodes: usize, _width: usize, _kept: StoredAs) -> usize {
        0
    }
    /// Longer gaps of time count as this quantile of the gaps between a node's events in training; 1: none is cut.
    /// What training has hardly seen, an encoding cannot tell anything about.
    fn gap_quantile(&self) -> f64;
    /// Width of the embeddings.
    fn width(&self) -> usize;
    /// How many of a node's most recent events an embedding or a write reads at most: what a stream without an end keeps.
    ///
    /// # Errors
    /// Usage where any earlier event may be read.
    fn recent_events(&self) -> Result<usize> {
        Ok(0)
    }
    /// A line or two for people.
    fn describe(&self) -> String;
    /// The model for a stream's nodes: adds parameters and state to the store.
    ///
    /// # Errors
    /// Usage where the configuration contradicts itself.
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        seed: u64,
    ) -> Result<Box<dyn EventModel>>;
}

/// Checks of a section's values, each a usage error that names the key.
#[derive(Clone, Copy)]
pub(super) struct Check(pub &'static str);

impl Check {
    pub fn bad<T>(self, key: &str, found: impl std::fmt::Display, want: &str) -> Result<T> {
        Err(Error::usage(format!("{}.{key} is {found}", self.0)).remedy(format!("give {want}")))
    }
    pub fn size(self, key: &str, n: usize, most: usize) -> Result<()> {
        if (1..=most).contains(&n) { Ok(()) } else { self.bad(key, n, &format!("1 to {most}")) }
    }
    pub fn at_most(self, key: &str, n: usize, most: usize) -> Result<()> {
        if n <= most { Ok(()) } else { self.bad(key, n, &format!("0 to {most}")) }
    }
    pub fn sizes(self, all: &[(&str, usize)]) -> Result<()> {
        all.iter().try_for_each(|&(key, n)| self.size(key, n, 4096))
    }
    pub fn heads(self, heads: usize, of: &str, width: usize) -> Result<()> {
        self.size("heads", heads, 4096)?;
        if width.is_multiple_of(heads) {
            Ok(())
        } else {
            self.bad("heads", heads, &format!("a divisor of {of}"))
        }
    }
    pub fn positive(self, key: &str, x: f64) -> Result<()> {
        if x > 0.0 && x.is_finite() { Ok(()) } else { self.bad(key, x, "a positive number") }
    }
    pub fn dropout(self, p: f32) -> Result<()> {
        if (0.0..1.0).contains(&p) { Ok(()) } else { self.bad("dropout", p, "0 or more, and less than 1") }
    }
    pub fn gap_quantile(self, q: f64) -> Result<()> {
        if q > 0.0 && q <= 1.0 { Ok(()) } else { self.bad("gap_quantile", q, "more than 0, and at most 1") }
    }
    pub fn word(self, key: &str, found: &str, words: &[&str]) -> Result<()> {
        if words.contains(&found) {
            return Ok(());
        }
        self.bad(key, format_args!("`{found}`"), &words.join(" or "))
    }
    pub fn time_encoding(self, found: &str) -> Result<TimeStart> {
        self.word("time_encoding", found, &["fixed", "learned", "random"])?;
        TimeStart::named(found).map_or_else(|| self.bad("time_encoding", found, "another"), Ok)
    }
    /// `neighbors`, where only the most recent are sampled.
    pub fn recent(self, sampling: &str, neighbors: usize) -> Result<usize> {
        if sampling == "recent" {
            return Ok(neighbors);
        }
        let what =
            format!("{}.sampling is `{sampling}`, and a stream keeps only the most recent events", self.0);
        Err(Error::usage(what).remedy(format!("train with {}.sampling=recent", self.0)))
    }
    pub fn sampling(self, found: &str, seed: u64) -> Result<crate::ops::sample_neighbors::Strategy> {
        self.word("sampling", found, &["recent", "uniform"])?;
        strategy(found, seed).map_or_else(|| self.bad("sampling", found, "another"), Ok)
    }
}
