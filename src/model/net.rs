//! A model with the head that predicts from its embeddings, recorded for the batches of a stream.
use super::{Decoder, Embedded, EventModel, EventTables, ModelConfig, Queries};
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
    /// Given: rows of a `[events, m]` u32 table; [`NONE`] is no candidate, and what it scores means nothing.
    Given(BufferId),
}

/// A recorded forward pass: what the loss and the writes need.
pub struct Forward {
    /// The batch.
    pub batch: Batch,
    /// `[b, 1 + m]` logits, the event itself in column 0.
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
    decoder: Decoder,
    seed: u64,
}

impl Net {
    /// Adds parameters and state of a model, and of a decoder of links, for a stream's nodes.
    ///
    /// # Errors
    /// Usage where the configuration contradicts itself.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        config: &dyn ModelConfig,
        seed: u64,
    ) -> Result<Self> {
        let model = config.build(p, store, data, seed)?;
        let decoder = Decoder::new(p, store, config.width(), config.width());
        Ok(Net { model, decoder, seed })
    }
    /// Appends a batch of at most `cap` events up to its logits; `train` switches drop-out on.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn forward(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        cap: usize,
        negatives: Negatives,
        train: bool,
    ) -> Result<Forward> {
        let batch = data.next_batch(t, store, cap)?;
        let negatives = match negatives {
            Negatives::Drawn { pool, per_event, salt } => {
                let pool = t.stored(store, pool);
                t.draw_negatives(pool, batch.now, batch.src, per_event, self.seed, salt)?
            }
            Negatives::Given(table) => {
                let table = t.stored(store, table);
                t.gather_rows(table, batch.event)?
            }
        };
        let stride = 2 + t.spec(negatives).cols;
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, negatives)?;
        let q = Queries { node, time, event: batch.event, now: batch.now, stride, train };
        let embedded = self.model.embed(t, store, data, &q)?;
        let logits = self.decoder.record(t, store, embedded.z, batch.rows)?;
        Ok(Forward { batch, logits, embedded, stride })
    }
    /// Appends what the model writes of the batch; after the backward.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn write(&self, t: &mut Tape, store: &Store, data: &EventTables, f: &Forward) -> Result<()> {
        self.model.write(t, store, data, &f.batch, f.stride, &f.embedded)
    }
}
