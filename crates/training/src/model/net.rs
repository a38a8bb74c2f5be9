//! A model with the head that predicts from its embeddings, recorded for the batches of a stream.
use super::{
    EdgeHead, Embeddings, EventModel, EventTables, LinkHead, ModelConfig, NodeHead, PropertyHead, Queries,
};
use tgnn::{
    autograd::Parameters,
    error::{Error, Result, ensure},
    ops::{Tape, next_batch::Batch},
    runtime::*,
};

/// The source of a batch's negatives.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Negatives {
    /// Drawn uniformly from a pool.
    Drawn {
        /// `[p]` u32 candidates.
        pool: BufferId,
        /// Negatives per event.
        per_event: usize,
        /// Separates the random draws of training, validation and test.
        salt: u32,
    },
    /// Given: rows of a `[events of the pass, m]` u32 table. [`NONE`] is no candidate, and its score is
    /// meaningless.
    Given(BufferId),
    /// One negative pair per event, with its own source: rows of a `[events of the pass, 2]` u32 table.
    Pairs(BufferId),
    /// No negatives.
    None,
}

/// The prediction of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadKind {
    /// Links: one logit for each candidate of an event.
    Links,
    /// Classes of an event's source.
    Nodes {
        /// Width of the hidden layers.
        width: usize,
        /// Number of classes.
        classes: usize,
    },
    /// Classes of an event.
    Edges {
        /// Width of the hidden layer.
        width: usize,
        /// Number of classes.
        classes: usize,
    },
    /// Weights of the classes of a node at a time.
    Properties {
        /// Number of classes.
        classes: usize,
    },
}

enum Head {
    Links(LinkHead),
    Nodes(NodeHead),
    Edges(EdgeHead),
    Properties(PropertyHead),
}

/// A recorded forward pass: the values that the loss and the writes need.
#[derive(Debug)]
pub struct Forward {
    /// The batch.
    pub batch: Batch,
    /// Logits: `[b, 1 + m]` of links, with the event itself in column 0; `[b, classes]` of classes.
    pub logits: Var,
    /// The embedded roots.
    pub embedded: Embeddings,
    /// Roots per event.
    pub stride: usize,
}

/// A model and its head.
pub struct Net {
    /// The model.
    pub model: Box<dyn EventModel>,
    head: Head,
    width: usize,
    seed: u64,
}

brief_debug!(Net, n => { seed: n.seed });

impl Net {
    /// Prefixes of the names of the heads' parameters.
    pub(crate) const HEADS: &[&str] = &["decoder.", "node_head.", "edge_head.", "property_head."];

    /// Adds the parameters and state of a model, and the parameters of a head, for a stream's nodes.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself, or has no width or no quantile of gaps.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        config: &dyn ModelConfig,
        head: HeadKind,
        seed: u64,
    ) -> Result<Self> {
        let (d, quantile) = (config.width(), config.gap_quantile());
        if d == 0 || !(quantile > 0.0 && quantile <= 1.0) {
            let what = format!("the model has width {d} and gap_quantile {quantile}");
            let remedy = "give a width of 1 or more, and a quantile above 0 and of at most 1";
            return Err(Error::usage(what).remedy(remedy));
        }
        let model = config.build(p, store, data, seed)?;
        let head = match head {
            HeadKind::Links => Head::Links(LinkHead::new(p, store, d, d, None)?),
            HeadKind::Nodes { width, classes } => Head::Nodes(NodeHead::new(p, store, d, width, classes)?),
            HeadKind::Edges { width, classes } => Head::Edges(EdgeHead::new(p, store, d, width, classes)?),
            HeadKind::Properties { classes } => Head::Properties(PropertyHead::new(p, store, d, classes)?),
        };
        Ok(Net { model, head, width: d, seed })
    }
    /// Appends the embeddings of the queries, and checks that there is one of the model's width for each.
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let embedded = self.model.embed(t, data, q)?;
        let (has, want) = (t.spec(embedded.z), Spec::real(t.spec(q.node).rows, self.width));
        ensure!(
            "embed",
            has == want,
            "the model gives {has}, want {want}: a row of its width for each query"
        );
        Ok(embedded)
    }
    /// Appends a batch of at most `capacity` events up to its logits; `train` switches dropout on.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn forward(
        &self,
        t: &mut Tape,
        data: &EventTables,
        capacity: usize,
        negatives: Negatives,
        train: bool,
    ) -> Result<Forward> {
        let batch = data.next_batch(t, capacity)?;
        self.forward_batch(t, data, batch, negatives, train)
    }
    /// Does the same for a given batch.
    pub(crate) fn forward_batch(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: Batch,
        negatives: Negatives,
        train: bool,
    ) -> Result<Forward> {
        let batch_rows = |t: &mut Tape, id| {
            let table = t.stored(id)?;
            t.gather_rows(table, batch.row)
        };
        let others = match negatives {
            Negatives::Drawn { pool, per_event, salt } => {
                let pool = t.stored(pool)?;
                Some(t.draw_negatives(pool, batch.now, batch.src, per_event, self.seed, salt)?)
            }
            Negatives::Given(id) | Negatives::Pairs(id) => Some(batch_rows(t, id)?),
            Negatives::None => None,
        };
        let stride = 2 + others.map_or(0, |others| t.spec(others).cols);
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, others)?;
        let (event, now) = (batch.event, batch.now);
        let q = Queries { node, time, event, now, stride, batch: Some(batch), train };
        let embedded = self.embed(t, data, &q)?;
        let z = embedded.z;
        let logits = match (&self.head, negatives) {
            (Head::Links(decoder), Negatives::Pairs(_)) => {
                // The two pairs of an event are decoded as two events without negatives.
                let logits = decoder.record(t, z, batch.rows.times(2))?;
                t.fold_rows(logits, 2)?
            }
            (Head::Links(decoder), _) => decoder.record(t, z, batch.rows)?,
            (Head::Nodes(head), _) => head.record(t, z, &batch, stride)?,
            (Head::Edges(head), _) => head.record(t, z, &batch, stride)?,
            (Head::Properties(_), _) => {
                return Err(Error::shape("net", "the head predicts labels of nodes, not events"));
            }
        };
        Ok(Forward { batch, logits, embedded, stride })
    }
    /// Appends the logits of the classes of nodes at times, `[n, classes]`; see [`HeadKind::Properties`].
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs, or the head predicts something else.
    pub fn properties(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Var> {
        let Head::Properties(head) = &self.head else {
            return Err(Error::shape("net", "the head predicts events, not labels of nodes"));
        };
        let z = self.embed(t, data, q)?.z;
        head.record(t, z)
    }
    /// Appends a batch of at most `capacity` events that only updates the state: the embeddings of the
    /// positive roots, and the writes.
    pub(crate) fn remember(&self, t: &mut Tape, data: &EventTables, capacity: usize) -> Result<()> {
        let batch = data.next_batch(t, capacity)?;
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let (event, now) = (batch.event, batch.now);
        let q = Queries { node, time, event, now, stride: 2, batch: Some(batch), train: false };
        let embedded = self.embed(t, data, &q)?;
        self.model.write(t, data, &batch, q.stride, &embedded)
    }
    /// Appends the model's writes of the batch; to be recorded after the backward pass.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn write(&self, t: &mut Tape, data: &EventTables, f: &Forward) -> Result<()> {
        self.model.write(t, data, &f.batch, f.stride, &f.embedded)
    }
}
