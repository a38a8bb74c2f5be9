//! The configuration of event models, and checks of configuration values.
use super::{EventModel, EventTables};
use serde::{Deserialize, Serialize};
use std::fmt;
use tgnn::{
    autograd::Parameters,
    error::{Error, Result},
    ops::sample_neighbors::Strategy,
    runtime::{Store, StoredAs},
};

/// Sizes and choices of a model: a section of a run's configuration.
pub trait ModelConfig: Sync {
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// `Usage`, naming the key and its valid values.
    fn validate(&self) -> Result<()>;
    /// Returns the bytes of state for `_nodes` nodes and edge features of width `_width`, with memory and
    /// mails stored as `_kept`.
    fn state_bytes(&self, _nodes: usize, _width: usize, _kept: StoredAs) -> usize {
        0
    }
    /// Returns the quantile of the gaps between a node's events in training to which longer gaps are cut; 1
    /// cuts none. A time encoding carries no information about gaps that training has hardly seen.
    fn gap_quantile(&self) -> f64;
    /// Returns the width of the embeddings.
    fn width(&self) -> usize;
    /// Returns the maximum number of a node's most recent events that an embedding or a write reads: the
    /// history that an open-ended stream must keep.
    ///
    /// # Errors
    /// `Usage` if the model may read any earlier event.
    fn recent_events(&self) -> Result<usize> {
        Ok(0)
    }
    /// Whether an embedding reads the neighbours of its node at the time of the query, and not only state
    /// that earlier batches have written.
    fn reads_neighbors(&self) -> bool {
        self.recent_events().map_or(true, |events| events > 0)
    }
    /// Returns what a step reads and writes around an event, beside the rows of its own nodes.
    fn rows_around(&self) -> RowsAround {
        RowsAround::default()
    }
    /// Whether ranks can keep a share of the features each: whether the model reads features only by
    /// [`EventTables::edge_rows`], [`EventTables::batch_edge_rows`], [`EventTables::mail_edge_rows`],
    /// [`EventTables::each_mail_edge_row`] and [`EventTables::node_rows`].
    fn partitions_features(&self) -> bool {
        false
    }
    /// Whether a step lists each node of a batch once, even if a plan asks for a row for each occurrence.
    fn lists_nodes_once(&self) -> bool {
        false
    }
    /// Describes the model for people, in a line or two.
    fn describe(&self) -> String;
    /// Builds the model for a stream's nodes: adds its parameters and state to the store.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself.
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        seed: u64,
    ) -> Result<Box<dyn EventModel>>;
}

/// Which of a node's earlier events are sampled as its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NeighborSampling {
    /// The most recent ones.
    Recent,
    /// Any, drawn evenly and with replacement.
    Uniform,
}

impl NeighborSampling {
    /// Returns the strategy of the sampler; `seed` is for draws.
    pub fn strategy(self, seed: u64) -> Strategy {
        match self {
            NeighborSampling::Recent => Strategy::Recent,
            NeighborSampling::Uniform => Strategy::Uniform(seed),
        }
    }
}

impl fmt::Display for NeighborSampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NeighborSampling::Recent => "recent",
            NeighborSampling::Uniform => "uniform",
        })
    }
}

/// Rows of node memory and mails that a step reads and writes around an event, by the most recent neighbours
/// of its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsAround {
    /// Number of neighbours of each node whose rows are read.
    pub read: usize,
    /// Number of neighbours of source and destination whose rows are written.
    pub written: usize,
}

/// Checks of the values of one configuration section, whose name it holds. Each returns a usage error that
/// names the key.
#[derive(Clone, Copy)]
pub(super) struct Check(pub &'static str);

impl Check {
    pub fn bad<T>(self, key: &str, found: impl std::fmt::Display, valid: &str) -> Result<T> {
        Err(Error::usage(format!("{}.{key} is {found}", self.0)).remedy(format!("give {valid}")))
    }
    pub fn size(self, key: &str, n: usize, maximum: usize) -> Result<()> {
        if (1..=maximum).contains(&n) { Ok(()) } else { self.bad(key, n, &format!("1 to {maximum}")) }
    }
    pub fn at_most(self, key: &str, n: usize, maximum: usize) -> Result<()> {
        if n <= maximum { Ok(()) } else { self.bad(key, n, &format!("0 to {maximum}")) }
    }
    pub fn sizes(self, sizes: &[(&str, usize)]) -> Result<()> {
        sizes.iter().try_for_each(|&(key, n)| self.size(key, n, 4096))
    }
    pub fn heads(self, heads: usize, width_key: &str, width: usize) -> Result<()> {
        self.size("heads", heads, 4096)?;
        if width.is_multiple_of(heads) {
            Ok(())
        } else {
            self.bad("heads", heads, &format!("a divisor of {width_key}"))
        }
    }
    pub fn positive(self, key: &str, x: f64) -> Result<()> {
        if x > 0.0 && x.is_finite() { Ok(()) } else { self.bad(key, x, "a positive number") }
    }
    pub fn expansion(self, key: &str, x: f64) -> Result<()> {
        if x > 0.0 && x <= 16.0 { Ok(()) } else { self.bad(key, x, "more than 0, and at most 16") }
    }
    pub fn dropout(self, p: f32) -> Result<()> {
        if (0.0..1.0).contains(&p) { Ok(()) } else { self.bad("dropout", p, "0 or more, and less than 1") }
    }
    pub fn gap_quantile(self, q: f64) -> Result<()> {
        if q > 0.0 && q <= 1.0 { Ok(()) } else { self.bad("gap_quantile", q, "more than 0, and at most 1") }
    }
    /// Returns `neighbors` if sampling takes only the most recent events; else a usage error.
    pub fn recent(self, sampling: NeighborSampling, neighbors: usize) -> Result<usize> {
        if sampling == NeighborSampling::Recent {
            return Ok(neighbors);
        }
        let what =
            format!("{}.sampling is `{sampling}`, and a stream keeps only the most recent events", self.0);
        Err(Error::usage(what).remedy(format!("train with {}.sampling=recent", self.0)))
    }
}
