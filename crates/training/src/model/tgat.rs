//! TGAT: temporal attention over neighbours and their neighbours, without memory.
//!
//! Source: Xu et al., "Inductive representation learning on temporal graphs", 2020. As there, a neighbour is
//! embedded at the time of its event, unless `neighbor_time` is `query`. Unlike there, a layer ends as
//! described at [`Attention`](super::Attention). The rows below the first layer are the node features as they
//! are or, with static memory, the sum of both projections. Without either, the rows have width 0: the layers
//! then see times and edge features alone.
use super::{
    Embeddings, EventModel, EventTables, ModelConfig, NeighborSampling, NodeInputs, Queries, TimeEncoding,
    TimeStart,
    config::Check,
    neighborhood::{AttentionStack, StackConfig},
};
use serde::{Deserialize, Serialize};
use std::fmt;
use tgnn::{
    autograd::Parameters,
    error::{Error, Result},
    ops::Tape,
    runtime::*,
};
use tgnn_data::text::counted;

/// The time at which a layer below the last embeds a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NeighborTime {
    /// That of its event, as in the paper.
    Event,
    /// That of the query.
    Query,
}

impl fmt::Display for NeighborTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NeighborTime::Event => "event",
            NeighborTime::Query => "query",
        })
    }
}

/// Sizes and choices of a TGAT model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TgatConfig {
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random`.
    pub time_encoding: TimeStart,
    /// Width of the embeddings.
    pub embedding: usize,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Attention heads; must divide `embedding`.
    pub heads: usize,
    /// Attention layers, 1 to 4.
    pub layers: usize,
    /// Neighbours sampled per root, and per neighbour.
    pub neighbors: usize,
    /// Sampling strategy: `recent` or `uniform`.
    pub sampling: NeighborSampling,
    /// Time at which layers below the last embed a neighbour: that of its `event`, as in the paper, or of the
    /// `query`.
    pub neighbor_time: NeighborTime,
    /// Dropout probability of attention weights and of the layers' outputs.
    pub dropout: f32,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for TgatConfig {
    fn default() -> Self {
        TgatConfig {
            time: 100,
            time_encoding: TimeStart::Fixed,
            gap_quantile: 0.99,
            embedding: 100,
            heads: 2,
            layers: 2,
            neighbors: 10,
            sampling: NeighborSampling::Recent,
            neighbor_time: NeighborTime::Event,
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

impl TgatConfig {
    fn at_events(&self) -> bool {
        self.neighbor_time == NeighborTime::Event
    }
}

impl ModelConfig for TgatConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("tgat");
        check.sizes(&[("time", self.time), ("embedding", self.embedding)])?;
        check.heads(self.heads, "tgat.embedding", self.embedding)?;
        check.size("layers", self.layers, 4)?;
        check.size("neighbors", self.neighbors, 1024)?;
        check.dropout(self.dropout)?;
        check.gap_quantile(self.gap_quantile)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn recent_events(&self) -> Result<usize> {
        if self.layers > 1 && self.at_events() {
            let what =
                "tgat.neighbor_time is `event`, and a stream does not keep what neighbours had seen by then";
            return Err(Error::usage(what).remedy("train with tgat.neighbor_time=query, or tgat.layers=1"));
        }
        Check("tgat").recent(self.sampling, self.neighbors)
    }
    fn partitions_features(&self) -> bool {
        true
    }
    fn width(&self) -> usize {
        self.embedding
    }
    fn describe(&self) -> String {
        format!(
            "{} time {}, embedding {},\n{} of {} heads over {} {} neighbours at the time of their {}, dropout {}",
            self.time_encoding,
            self.time,
            self.embedding,
            counted(self.layers as u64, "layer"),
            self.heads,
            self.neighbors,
            self.sampling,
            self.neighbor_time,
            self.dropout
        )
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        seed: u64,
    ) -> Result<Box<dyn EventModel>> {
        self.validate()?;
        let time = TimeEncoding::new(p, store, self.time, self.time_encoding)?;
        let features = data.features.node.filter(|_| self.node_features);
        let below = match (data.static_memory, features) {
            (Some(_), _) => {
                Below::Projected(NodeInputs::new(p, store, data, self.embedding, self.node_features)?)
            }
            (None, Some(features)) => Below::Features(features),
            (None, None) => {
                let nothing = Spec::real(Rows::fixed(data.nodes), 0);
                Below::Features(store.table(
                    "no node features",
                    nothing,
                    std::sync::Arc::new(Vec::<f32>::new()),
                )?)
            }
        };
        let attention = StackConfig {
            layers: self.layers,
            below: match &below {
                Below::Projected(_) => self.embedding,
                Below::Features(rows) => store.spec(*rows).cols,
            },
            learn_below: matches!(below, Below::Projected(_)),
            width: self.embedding,
            edge: data.edge_width_if(self.edge_features),
            heads: self.heads,
            dropout: self.dropout,
            neighbors: self.neighbors,
            strategy: self.sampling.strategy(seed),
            at_events: self.at_events(),
            seed,
        };
        let attention = AttentionStack::new(p, store, &time, &attention)?;
        Ok(Box::new(Tgat { config: self.clone(), time, below, attention }))
    }
}

/// The rows below the first layer: features as they are, or projected node inputs.
enum Below {
    Features(BufferId),
    Projected(NodeInputs),
}

struct Tgat {
    config: TgatConfig,
    time: TimeEncoding,
    below: Below,
    attention: AttentionStack,
}

impl EventModel for Tgat {
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let edge = data.edge_if(t, self.config.edge_features)?;
        let (near, unique) = self.attention.sample(t, data, q, edge)?;
        let h = match &self.below {
            Below::Features(rows) => data.node_rows(t, *rows, unique.node)?,
            Below::Projected(inputs) => inputs.record(t, data, unique.node, None)?,
        };
        let z = self.attention.record(t, &self.time, &near, &unique, h, q.drop_now())?;
        Ok(Embeddings::new(z))
    }
}
