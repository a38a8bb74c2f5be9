//! DyRep: node memory updated by an RNN over mails that hold the partner's embedding. That embedding is
//! temporal attention over the partner's neighbours, which is DyRep's localised embedding propagation.
//!
//! Source: Trivedi et al., "DyRep: learning representations over dynamic graphs", 2019, in the form of the
//! code of TGN's authors (`--memory_updater rnn --dyrep --use_destination_embedding_in_message`) and of
//! DyGLib (Yu et al. 2023, `models/MemoryModel.py`). A mail of node u from node v is `{s_u | z_v | e | dt}`,
//! while TGN and JODIE send `s_v` instead of `z_v`. Predictions read the memory after the mail, without
//! attention. Here the projections of node features and static memory are added to the memory, as in the
//! other models.
//!
//! **Learned**: the RNN, the time encoding unless it is fixed, and the projections of node features and
//! static memory. **Not learned**: the attention, which keeps its initial weights: a fixed, random projection
//! of the neighbours. Mails are state, and no gradient flows into state; nothing else reads `z_v`. Both
//! sources do the same: a batch's messages are stored after its predictions, and are detached before the next
//! batch reads them (`detach_memory` in the code of TGN's authors, where only `--backprop_every` above 1 lets
//! gradients through; `detach_memory_bank` in DyGLib). Their optimisers find no gradient for these weights.
//!
//! Differences: the sources end the attention with an MLP, this crate with LayerNorm
//! ([`Attention`](super::Attention)). The sources encode `dt` when the mail is sent and detach it as well;
//! here `dt` is encoded when the mail is consumed, with gradients.
use super::{
    Attention, AttentionInputs, CellKind, Embeddings, EventModel, EventTables, ModelConfig, NeighborSampling,
    NodeInputs, NodeMemory, Queries, RowsAround, TimeEncoding, TimeStart, config::Check,
};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::Parameters,
    error::Result,
    ops::{Tape, epilogue::DropRate, sample_neighbors::Strategy, write_memory::Combiner},
    runtime::*,
};

/// Sizes and choices of a DyRep model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DyRepConfig {
    /// Width of the node memory and of the embeddings.
    pub memory: usize,
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random`.
    pub time_encoding: TimeStart,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Attention heads; must divide `memory`.
    pub heads: usize,
    /// Neighbours sampled per positive root.
    pub neighbors: usize,
    /// Sampling strategy: `recent` or `uniform`.
    pub sampling: NeighborSampling,
    /// Dropout probability of the attention's weights and outputs in training.
    pub dropout: f32,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for DyRepConfig {
    fn default() -> Self {
        DyRepConfig {
            memory: 100,
            time: 100,
            time_encoding: TimeStart::Fixed,
            gap_quantile: 0.99,
            heads: 2,
            neighbors: 10,
            sampling: NeighborSampling::Recent,
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

impl ModelConfig for DyRepConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("dyrep");
        check.sizes(&[("memory", self.memory), ("time", self.time)])?;
        check.heads(self.heads, "dyrep.memory", self.memory)?;
        check.size("neighbors", self.neighbors, 1024)?;
        check.dropout(self.dropout)?;
        check.gap_quantile(self.gap_quantile)
    }
    fn state_bytes(&self, nodes: usize, width: usize, kept: StoredAs) -> usize {
        NodeMemory::bytes(nodes, self.memory, width, Combiner::Last, kept)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn recent_events(&self) -> Result<usize> {
        Check("dyrep").recent(self.sampling, self.neighbors)
    }
    /// Only mails read them.
    fn reads_neighbors(&self) -> bool {
        false
    }
    fn rows_around(&self) -> RowsAround {
        RowsAround { read: self.neighbors, written: 0 }
    }
    fn partitions_features(&self) -> bool {
        true
    }
    fn lists_nodes_once(&self) -> bool {
        true
    }
    fn width(&self) -> usize {
        self.memory
    }
    fn describe(&self) -> String {
        let (heads, near, sampling) = (self.heads, self.neighbors, &self.sampling);
        format!(
            "rnn memory {}, {} time {},\nmails of {heads} heads over {near} {sampling} neighbours, dropout {}",
            self.memory, self.time_encoding, self.time, self.dropout
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
        let (d, cell) = (self.memory, CellKind::Rnn);
        let memory = NodeMemory::new(p, store, data, &time, d, cell, Combiner::Last, self.edge_features)?;
        let inputs = NodeInputs::new(p, store, data, d, self.node_features)?;
        let (f, heads) = (data.edge_width_if(self.edge_features), self.heads);
        let drop = DropRate { p: self.dropout, seed, salt: 0xD0 };
        let attention = Attention::new(p, store, 0, d, d, f, self.time, heads, drop)?;
        p.fix("embed.");
        let strategy = self.sampling.strategy(seed);
        let (neighbors, edge_features) = (self.neighbors, self.edge_features);
        Ok(Box::new(DyRep { time, memory, inputs, attention, neighbors, strategy, edge_features }))
    }
}

struct DyRep {
    time: TimeEncoding,
    memory: NodeMemory,
    inputs: NodeInputs,
    attention: Attention,
    neighbors: usize,
    strategy: Strategy,
    edge_features: bool,
}

impl DyRep {
    /// Appends the memory of the unique nodes, those of the queries and of `others`. Returns the embeddings,
    /// without content, and the rows of the unique nodes from which they are gathered.
    fn remembered(
        &self,
        t: &mut Tape,
        data: &EventTables,
        q: &Queries,
        others: &[Var],
    ) -> Result<(Embeddings, Var)> {
        // The others are positive roots again: the rows of the roots are theirs, too.
        let stamp = data.stamp(t)?;
        let unique = t.unique(stamp, q.node, others, q.classes())?;
        let updated = self.memory.update(t, data, &self.time, &unique, q.batch.as_ref())?;
        let h = self.inputs.record(t, data, unique.node, Some(updated.memory))?;
        let z = t.gather_rows(h, unique.psi[0])?;
        Ok((Embeddings::new(z).with_memory(unique, updated), h))
    }
}

impl EventModel for DyRep {
    fn memory(&self) -> Option<&NodeMemory> {
        Some(&self.memory)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        // Only positive roots send mails, so no other query needs neighbours.
        let Some(batch) = q.batch else { return Ok(self.remembered(t, data, q, &[])?.0) };
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let how = data.sampling(self.neighbors, self.strategy);
        let tcsr = data.tcsr(t)?;
        let mut near = t.sample_neighbors(tcsr, (node, time), (q.event, q.now), 2, how)?;
        let (mut embedded, h) = self.remembered(t, data, q, &[node, near.node])?;
        let unique = embedded.unique_nodes()?;
        let (root, row) = (unique.psi[1], unique.psi[2]);
        let edge = data.edge_if(t, self.edge_features)?;
        let (edge, events) = data.edge_rows(t, edge, vec![near.event])?;
        near.event = events[0];
        let roots = t.prefix_rows(h, Rows::live(unique.root_rows.capacity, unique.positives))?;
        let looked =
            AttentionInputs { h, learn_h: false, roots, root, row, near, edge, drop_now: q.drop_now() };
        embedded.content = Some(self.attention.record(t, &self.time, looked)?);
        Ok(embedded)
    }
}
