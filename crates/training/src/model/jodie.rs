//! JODIE: node memory updated by an RNN over mails, projected to the time of the query.
//!
//! Source: Kumar et al., "Predicting dynamic embedding trajectory in temporal interaction networks", 2019,
//! with batched mails instead of t-batches, as in TGL. `z = LayerNorm(h (1 + w delta + b))`,
//! `delta = (t - t_s) / (t + 1)`, where t_s is the time of the memory after its mail. TGL differs: it
//! normalises before the projection and takes t_s before the mail.
use super::{
    CellKind, Embeddings, EventModel, EventTables, ModelConfig, NodeInputs, NodeMemory, Queries,
    TimeEncoding, TimeStart, config::Check,
};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{Tape, write_memory::Combiner},
    runtime::*,
};

/// Sizes and choices of a JODIE model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JodieConfig {
    /// Width of the node memory and of the embeddings.
    pub memory: usize,
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random`.
    pub time_encoding: TimeStart,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for JodieConfig {
    fn default() -> Self {
        JodieConfig {
            memory: 100,
            time: 100,
            time_encoding: TimeStart::Fixed,
            gap_quantile: 0.99,
            edge_features: true,
            node_features: true,
        }
    }
}

impl ModelConfig for JodieConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("jodie");
        check.sizes(&[("memory", self.memory), ("time", self.time)])?;
        check.gap_quantile(self.gap_quantile)
    }
    fn state_bytes(&self, nodes: usize, width: usize, kept: StoredAs) -> usize {
        NodeMemory::bytes(nodes, self.memory, width, Combiner::Last, kept)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn partitions_features(&self) -> bool {
        true
    }
    fn width(&self) -> usize {
        self.memory
    }
    fn describe(&self) -> String {
        format!("rnn memory {}, {} time {}", self.memory, self.time_encoding, self.time)
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        _: u64,
    ) -> Result<Box<dyn EventModel>> {
        self.validate()?;
        let time = TimeEncoding::new(p, store, self.time, self.time_encoding)?;
        let d = self.memory;
        let (cell, combiner) = (CellKind::Rnn, Combiner::Last);
        let memory = NodeMemory::new(p, store, data, &time, d, cell, combiner, self.edge_features)?;
        let inputs = NodeInputs::new(p, store, data, d, self.node_features)?;
        use ScaledInit::{Constant, Normal};
        let mut add = |name: &str, init| p.add(store, &format!("project.{name}"), 1, d, init);
        let project = [add("w", Normal)?, add("b", Normal)?];
        let norm = [add("norm_gain", Constant(1.0))?, add("norm_bias", Constant(0.0))?];
        Ok(Box::new(Jodie { time, memory, inputs, project, norm }))
    }
}

struct Jodie {
    time: TimeEncoding,
    memory: NodeMemory,
    inputs: NodeInputs,
    project: [BufferId; 2],
    norm: [BufferId; 2],
}

impl EventModel for Jodie {
    fn memory(&self) -> Option<&NodeMemory> {
        Some(&self.memory)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let unique = data.unique(t, q.node, &[], q.classes())?;
        let updated = self.memory.update(t, data, &self.time, &unique, q.batch.as_ref())?;
        let (memory, time) = (updated.memory, updated.time);
        let h = self.inputs.record(t, data, unique.node, Some(memory))?;
        let [w, b] = t.stored_all(self.project)?;
        let [gain, bias] = t.stored_all(self.norm)?;
        let z = t.project_time((h, time), (unique.psi[0], q.time), (w, b), data.gaps.seconds_per_tick)?;
        let z = t.layer_norm(z, gain, bias)?;
        Ok(Embeddings::new(z).with_memory(unique, updated))
    }
}
