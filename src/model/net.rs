//! A model with the head that predicts from its embeddings, recorded for the batches of a stream.
use super::{Decoder, EdgeHead, Embedded, EventModel, EventTables, ModelConfig, NodeHead, Queries};
use crate::{
    autograd::Parameters,
    error::Result,
    ops::{Tape, next_batch::Batch},
    runtime::*,
};

/// Where the negatives of a batch come from.
#[derive(Clone, Copy, Debug)]
pub enum Negatives {
    /// Drawn uniformly from a pool.
    Drawn {
        /// `[p]` u32 candidates.
        pool: BufferId,
        /// Negatives an event.
        per_event: usize,
        /// Keeps training, validation and test apart.
        salt: u32,
    },
    /// Given: rows of a `[events of the pass, m]` u32 table; [`NONE`] is no candidate, and what it scores means nothing.
    Given(BufferId),
    /// A pair an event, its source included: rows of a `[events of the pass, 2]` u32 table.
    Pairs(BufferId),
    /// None.
    None,
}

/// What a head predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// Which candidate an event is of: one logit for each.
    Links,
    /// Classes of an event's source.
    Nodes {
        /// Width of the hidden layers.
        width: usize,
        /// How many there are.
        classes: usize,
    },
    /// Classes of an event.
    Edges {
        /// Width of the hidden layer.
        width: usize,
        /// How many there are.
        classes: usize,
    },
}

enum Head {
    Links(Decoder),
    Nodes(NodeHead),
    Edges(EdgeHead),
}

/// A recorded forward pass: what the loss and the writes need.
pub struct Forward {
    /// The batch.
    pub batch: Batch,
    /// `[b, 1 + m]` logits, the event itself in column 0; of classes, `[b, classes]`.
    pub logits: Var,
    /// The roots, embedded.
    pub embedded: Embedded,
    /// Roots an event.
    pub stride: usize,
}

/// A model and its head.
pub struct Net {
    /// The model.
    pub model: Box<dyn EventModel>,
    head: Head,
    seed: u64,
}

impl Net {
    /// How the names of the heads' parameters begin.
    pub const HEADS: &[&str] = &["decoder.", "node_head.", "edge_head."];

    /// Adds parameters and state of a model, and of a head, for a stream's nodes.
    ///
    /// # Errors
    /// Usage where the configuration contradicts itself.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        config: &dyn ModelConfig,
        head: HeadKind,
        seed: u64,
    ) -> Result<Self> {
        let model = config.build(p, store, data, seed)?;
        let d = config.width();
        let head = match head {
            HeadKind::Links => Head::Links(Decoder::new(p, store, d, d)?),
            HeadKind::Nodes { width, classes } => Head::Nodes(NodeHead::new(p, store, d, width, classes)?),
            HeadKind::Edges { width, classes } => Head::Edges(EdgeHead::new(p, store, d, width, classes)?),
        };
        Ok(Net { model, head, seed })
    }
    /// Appends a batch of at most `capacity` events up to its logits; `train` switches drop-out on.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn forward(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        capacity: usize,
        negatives: Negatives,
        train: bool,
    ) -> Result<Forward> {
        let batch = data.next_batch(t, store, capacity)?;
        let table = |t: &mut Tape, id| {
            let table = t.stored(store, id)?;
            t.gather_rows(table, batch.rank)
        };
        let others = match negatives {
            Negatives::Drawn { pool, per_event, salt } => {
                let pool = t.stored(store, pool)?;
                Some(t.draw_negatives(pool, batch.now, batch.src, per_event, self.seed, salt)?)
            }
            Negatives::Given(id) | Negatives::Pairs(id) => Some(table(t, id)?),
            Negatives::None => None,
        };
        let stride = 2 + others.map_or(0, |others| t.spec(others).cols);
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, others)?;
        let q = Queries { node, time, event: batch.event, now: batch.now, stride, train };
        let embedded = self.model.embed(t, store, data, &q)?;
        let z = embedded.z;
        let logits = match (&self.head, negatives) {
            (Head::Links(decoder), Negatives::Pairs(_)) => {
                // Both pairs of an event are events of their own, without negatives.
                let logits = decoder.record(t, store, z, batch.rows.times(2))?;
                t.fold_rows(logits, 2)?
            }
            (Head::Links(decoder), _) => decoder.record(t, store, z, batch.rows)?,
            (Head::Nodes(head), _) => head.record(t, store, z, &batch, stride)?,
            (Head::Edges(head), _) => head.record(t, store, z, &batch, stride)?,
        };
        Ok(Forward { batch, logits, embedded, stride })
    }
    /// Appends a batch of at most `capacity` events of which only the memory learns: its embeddings as far as they are written, and
    /// the writes.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn remember(&self, t: &mut Tape, store: &Store, data: &EventTables, capacity: usize) -> Result<()> {
        let batch = data.next_batch(t, store, capacity)?;
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let q = Queries { node, time, event: batch.event, now: batch.now, stride: 2, train: false };
        let embedded = self.model.embed(t, store, data, &q)?;
        self.model.write(t, store, data, &batch, q.stride, &embedded)
    }
    /// Appends what the model writes of the batch; after the backward.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn write(&self, t: &mut Tape, store: &Store, data: &EventTables, f: &Forward) -> Result<()> {
        self.model.write(t, store, data, &f.batch, f.stride, &f.embedded)
    }
}
