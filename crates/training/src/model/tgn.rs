//! TGN: node memory updated by a recurrent cell over mails, then temporal attention over sampled neighbours,
//! by default the most recent ones. With more than one layer, neighbours are embedded at the time of the
//! query, as in the authors' code.
//!
//! A mail holds its partner's memory as it was when the mail was sent, and a node without a mail keeps its
//! memory. In training mode PyTorch Geometric instead reads the partner's memory when the mail is consumed,
//! and takes a GRU step on zeros if there is no mail. With several mails per node, `mean` averages their
//! contents and encodes the latest time; PyTorch Geometric averages the encodings.
//!
//! Source: Rossi et al., "Temporal graph networks for deep learning on dynamic graphs", 2020. One step:
//! negatives and neighbours; the unique nodes; their memory after their mails; the attention layers; the
//! writes.
use super::{
    CellKind, Embeddings, EventModel, EventTables, ModelConfig, NeighborSampling, NodeInputs, NodeMemory,
    Queries, RowsAround, TimeEncoding, TimeStart,
    config::Check,
    neighborhood::{AttentionStack, StackConfig},
};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::Parameters,
    error::Result,
    ops::{Tape, write_memory::Combiner},
    runtime::*,
};
use tgnn_data::text::counted;

/// Sizes and choices of a TGN model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TgnConfig {
    /// Width of the node memory.
    pub memory: usize,
    /// The cell that updates the memory: `gru` or `rnn`.
    pub updater: CellKind,
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random` (learned, initialised as in PyTorch
    /// Geometric).
    pub time_encoding: TimeStart,
    /// Width of the embeddings.
    pub embedding: usize,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Attention heads; must divide `embedding`.
    pub heads: usize,
    /// Attention layers, 0 to 4. With 0, the embedding of a node is its memory: the paper's module `id`.
    pub layers: usize,
    /// Neighbours sampled per root.
    pub neighbors: usize,
    /// Sampling strategy: `recent` or `uniform`.
    pub sampling: NeighborSampling,
    /// How the mails of one batch are combined: `last`, or `mean` of their contents with the latest time.
    pub combiner: Combiner,
    /// Dropout probability of attention weights and of the layers' outputs.
    pub dropout: f32,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for TgnConfig {
    fn default() -> Self {
        TgnConfig {
            memory: 100,
            updater: CellKind::Gru,
            time: 100,
            time_encoding: TimeStart::Fixed,
            gap_quantile: 0.99,
            embedding: 100,
            heads: 2,
            layers: 1,
            neighbors: 10,
            sampling: NeighborSampling::Recent,
            combiner: Combiner::Last,
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

impl ModelConfig for TgnConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("tgn");
        check.sizes(&[("memory", self.memory), ("time", self.time), ("embedding", self.embedding)])?;
        check.heads(self.heads, "tgn.embedding", self.embedding)?;
        check.at_most("layers", self.layers, 4)?;
        check.size("neighbors", self.neighbors, 1024)?;
        check.dropout(self.dropout)?;
        check.gap_quantile(self.gap_quantile)
    }
    fn state_bytes(&self, nodes: usize, width: usize, kept: StoredAs) -> usize {
        NodeMemory::bytes(nodes, self.memory, width, self.combiner, kept)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn recent_events(&self) -> Result<usize> {
        Check("tgn").recent(self.sampling, self.neighbors)
    }
    fn reads_neighbors(&self) -> bool {
        self.layers > 0
    }
    fn rows_around(&self) -> RowsAround {
        RowsAround { read: if self.layers == 0 { 0 } else { self.neighbors }, written: 0 }
    }
    fn partitions_features(&self) -> bool {
        true
    }
    fn lists_nodes_once(&self) -> bool {
        self.layers > 1
    }
    fn width(&self) -> usize {
        if self.layers == 0 { self.memory } else { self.embedding }
    }
    fn describe(&self) -> String {
        let (memory, time) = (self.memory, self.time);
        let memory = format!("{} memory {memory}, {} time {time}", self.updater, self.time_encoding);
        if self.layers == 0 {
            return format!("{memory}, no attention, {} mail", self.combiner);
        }
        format!(
            "{memory}, embedding {},\n{} of {} heads over {} {} neighbours, {} mail, dropout {}",
            self.embedding,
            counted(self.layers as u64, "layer"),
            self.heads,
            self.neighbors,
            self.sampling,
            self.combiner,
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
        let memory = NodeMemory::new(
            p,
            store,
            data,
            &time,
            self.memory,
            self.updater,
            self.combiner,
            self.edge_features,
        )?;
        let inputs = NodeInputs::new(p, store, data, self.memory, self.node_features)?;
        let attention = StackConfig {
            layers: self.layers,
            below: self.memory,
            learn_below: true,
            width: self.embedding,
            edge: data.edge_width_if(self.edge_features),
            heads: self.heads,
            dropout: self.dropout,
            neighbors: self.neighbors,
            strategy: self.sampling.strategy(seed),
            at_events: false,
            seed,
        };
        let attention = AttentionStack::new(p, store, &time, &attention)?;
        Ok(Box::new(Tgn { time, memory, inputs, attention, edge_features: self.edge_features }))
    }
}

struct Tgn {
    time: TimeEncoding,
    memory: NodeMemory,
    inputs: NodeInputs,
    attention: AttentionStack,
    edge_features: bool,
}

impl EventModel for Tgn {
    fn memory(&self) -> Option<&NodeMemory> {
        Some(&self.memory)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let edge = data.edge_if(t, self.edge_features)?;
        let (near, unique) = self.attention.sample(t, data, q, edge)?;
        let updated = self.memory.update(t, data, &self.time, &unique, q.batch.as_ref())?;
        let h = self.inputs.record(t, data, unique.node, Some(updated.memory))?;
        let z = self.attention.record(t, &self.time, &near, &unique, h, q.drop_now())?;
        Ok(Embeddings::new(z).with_memory(unique, updated))
    }
}
