//! Models: short files made of layers, recorded on a tape.
//!
//! An [`EventModel`] turns nodes at times into embeddings, and writes what it keeps of a batch; a [`Net`] is a model with the
//! head that predicts from the embeddings. Every model's sizes and choices are a [`ModelConfig`], which builds it.
#![forbid(unsafe_code)]
mod apan;
mod config;
mod evolve_gcn;
mod gcn;
mod heads;
mod inputs;
mod jodie;
mod layers;
mod memory;
mod neighborhood;
mod net;
mod open_end;
mod snapshot;
mod static_memory;
mod t_gcn;
mod tables;
mod tgat;
mod tgn;
mod wd_gcn;

pub use apan::ApanConfig;
pub use config::{ModelConfig, ModelName};
pub use evolve_gcn::EvolveGcn;
pub use gcn::{Exchanged, Gcn, GcnConfig, GraphTables, LayerInput, Order, Orders, convolve};
pub use heads::{EdgeHead, NodeHead};
pub use inputs::NodeInputs;
pub use jodie::JodieConfig;
pub use layers::{Attention, Decoder, Looked, TimeEncoding, TimeStart};
pub use memory::{CellKind, NodeMemory};
pub use neighborhood::{AttentionStack, Neighborhood, StackConfig};
pub use net::{Forward, HeadKind, Negatives, Net};
pub use open_end::{Arrivals, OpenEnd};
pub use snapshot::{SnapshotModel, SnapshotModelConfig, SnapshotTables, VertexInputs};
pub use static_memory::{StaticConfig, StaticMode};
pub use t_gcn::TGcn;
pub use tables::EventTables;
pub use tgat::TgatConfig;
pub use tgn::TgnConfig;
pub use wd_gcn::WdGcn;

use crate::{
    error::Result,
    ops::{Tape, next_batch::Batch, unique::UniqueNodes},
    runtime::*,
};

/// What is to be embedded: nodes at times, with history ending before a batch.
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    /// `[n]` u32 nodes, or [`NONE`].
    pub node: Var,
    /// `[n]` i64 ticks.
    pub time: Var,
    /// `[<= b]` u32: events of the batch; history ends before the first of them.
    pub event: Var,
    /// `[1, 2]` u32: clock of random draws.
    pub now: Var,
    /// Roots an event, where the queries are a batch's roots; else 0.
    pub stride: usize,
    /// Whether drop-out is on.
    pub train: bool,
}

impl Queries {
    /// Clock of the drop-out, where it is on.
    fn drop_now(&self) -> Option<Var> {
        self.train.then_some(self.now)
    }
    /// [`stride`](Self::stride) as the unique nodes take it: without a batch every query counts as a positive root, and
    /// nothing is written then.
    fn classes(&self) -> usize {
        if self.stride == 0 { 2 } else { self.stride }
    }
}

/// A recorded forward pass: the embeddings, and what the model's writes need.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// `[n, width]`, a row for each query.
    pub z: Var,
    /// The unique nodes.
    pub unique: UniqueNodes,
    /// New memory, and its times, where the model has a memory: rows are those of the unique nodes (APAN: of the queries,
    /// without times).
    pub memory: Option<(Var, Option<Var>)>,
}

/// A model of event streams: parameters and state in a store.
pub trait EventModel: Send + Sync {
    /// Buffers of what it keeps of the past: node memory, mailbox.
    fn state(&self) -> Vec<BufferId> {
        Vec::new()
    }
    /// That of its state which holds event ids: which event each mail is of.
    fn mail_event(&self) -> Option<BufferId> {
        None
    }
    /// Empties the state: the start of an epoch.
    fn reset(&self, _store: &mut Store) -> Result<()> {
        Ok(())
    }
    /// Appends the embeddings of queries.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    fn embed(&self, t: &mut Tape, store: &Store, data: &EventTables, q: &Queries) -> Result<Embedded>;
    /// Appends what is written of a batch whose roots, `stride` an event, were embedded. After the backward: it changes the
    /// state that the forward pass read.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    fn write(
        &self,
        _t: &mut Tape,
        _store: &Store,
        _data: &EventTables,
        _batch: &Batch,
        _stride: usize,
        _e: &Embedded,
    ) -> Result<()> {
        Ok(())
    }
}
