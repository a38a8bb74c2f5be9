//! Heads: scores of pairs, and logits of an event's classes, from the embeddings of roots.
//!
//! `z` is the embedding of a batch's roots, `[<= stride b, d]`, one row per root of an event: source,
//! destination, then any further roots.
use tgnn::{
    autograd::{
        Parameters,
        ScaledInit::{self, FanIn},
    },
    error::Result,
    ops::{
        Tape,
        epilogue::Activation::{Identity, Relu},
        next_batch::Batch,
    },
    runtime::*,
};

/// Gathers the rows of `z` of one side of every event (0: source, 1: destination), `[<= b, d]`.
fn side(t: &mut Tape, z: Var, batch: &Batch, stride: usize, side: usize) -> Result<Var> {
    let rows = t.root_rows(batch.src, stride, side)?;
    t.gather_rows(z, rows)
}

/// Scores a pair: `w_out^T relu(W_src z_u + W_dst z_v + b) + b_out`. Parameters `decoder.*`.
#[derive(Debug)]
pub struct LinkHead([BufferId; 5]);

impl LinkHead {
    /// Adds the parameters: embeddings of width `d`, one hidden layer of `width`. Biases start like the
    /// weights, as in PyTorch's `Linear`, unless `bias` says otherwise.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        d: usize,
        width: usize,
        bias: Option<ScaledInit>,
    ) -> Result<Self> {
        let mut add =
            |name: &str, rows, cols, init| p.add(store, &format!("decoder.{name}"), rows, cols, init);
        Ok(LinkHead([
            add("w_src", width, d, FanIn(d))?,
            add("w_dst", width, d, FanIn(d))?,
            add("b", 1, width, bias.unwrap_or(FanIn(d)))?,
            add("w_out", 1, width, FanIn(width))?,
            add("b_out", 1, 1, bias.unwrap_or(FanIn(width)))?,
        ]))
    }
    /// Appends the logits of each event and its negatives, `[b, 1 + negatives]`. `z` holds the embeddings of
    /// the roots.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(&self, t: &mut Tape, z: Var, events: Rows) -> Result<Var> {
        let weights = t.stored_all(self.0)?;
        t.link_decoder(z, events, weights)
    }
    /// Appends the logits of the pairs of each source in `src`, `[n, 1]`, with the candidates in its row of
    /// `dst`, `[n, c]`. `z` holds the embeddings of the vertices; `src` and `dst` are rows of it.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record_pairs(&self, t: &mut Tape, z: Var, src: Var, dst: Var) -> Result<Var> {
        let [w_src, w_dst, b, w_out, b_out] = t.stored_all(self.0)?;
        let p = t.linear(z, w_src, None, None, Identity)?;
        let q = t.linear(z, w_dst, None, None, Identity)?;
        t.pair_logits([p, q], [b, w_out, b_out], src, dst)
    }
}

/// Classifies an event by its source alone, such as the state of a user:
/// `W_3 relu(W_2 relu(W_1 z_u + b_1) + b_2) + b_3`. Parameters `node_head.*`.
#[derive(Debug)]
pub struct NodeHead([BufferId; 6]);

impl NodeHead {
    /// Adds the parameters: embeddings of width `d`, two hidden layers of `width`.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        d: usize,
        width: usize,
        classes: usize,
    ) -> Result<Self> {
        let mut add =
            |name: &str, rows, cols, n| p.add(store, &format!("node_head.{name}"), rows, cols, FanIn(n));
        Ok(NodeHead([
            add("w_1", width, d, d)?,
            add("b_1", 1, width, d)?,
            add("w_2", width, width, width)?,
            add("b_2", 1, width, width)?,
            add("w_out", classes, width, width)?,
            add("b_out", 1, classes, width)?,
        ]))
    }
    /// Appends the logits, `[<= b, classes]`. `z` holds the embeddings of the roots, `stride` rows per event.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(&self, t: &mut Tape, z: Var, batch: &Batch, stride: usize) -> Result<Var> {
        let [w_1, b_1, w_2, b_2, w_out, b_out] = t.stored_all(self.0)?;
        let z = side(t, z, batch, stride, 0)?;
        let hidden = t.linear(z, w_1, Some(b_1), None, Relu)?;
        let hidden = t.linear(hidden, w_2, Some(b_2), None, Relu)?;
        t.linear(hidden, w_out, Some(b_out), None, Identity)
    }
}

/// Weighs classes by the embedding of a node at a time: `W_2 relu(W_1 z + b_1) + b_2`, with hidden layers as
/// wide as the embedding, as TGB's node predictor. Parameters `property_head.*`.
#[derive(Debug)]
pub struct PropertyHead([BufferId; 4]);

impl PropertyHead {
    /// Adds the parameters: embeddings of width `d`.
    pub fn new(p: &mut Parameters, store: &mut Store, d: usize, classes: usize) -> Result<Self> {
        let mut add =
            |name: &str, rows, cols| p.add(store, &format!("property_head.{name}"), rows, cols, FanIn(d));
        Ok(PropertyHead([
            add("w_1", d, d)?,
            add("b_1", 1, d)?,
            add("w_out", classes, d)?,
            add("b_out", 1, classes)?,
        ]))
    }
    /// Appends the logits, `[n, classes]`, of the embeddings `z`, `[n, d]`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(&self, t: &mut Tape, z: Var) -> Result<Var> {
        let [w_1, b_1, w_out, b_out] = t.stored_all(self.0)?;
        let hidden = t.linear(z, w_1, Some(b_1), None, Relu)?;
        t.linear(hidden, w_out, Some(b_out), None, Identity)
    }
}

/// Classifies an event by both ends, such as the relation between them:
/// `W_out relu(W_src z_u + W_dst z_v + b) + b_out`. Parameters `edge_head.*`.
#[derive(Debug)]
pub struct EdgeHead([BufferId; 5]);

impl EdgeHead {
    /// Adds the parameters: embeddings of width `d`, one hidden layer of `width`.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        d: usize,
        width: usize,
        classes: usize,
    ) -> Result<Self> {
        let mut add =
            |name: &str, rows, cols, n| p.add(store, &format!("edge_head.{name}"), rows, cols, FanIn(n));
        Ok(EdgeHead([
            add("w_src", width, d, d)?,
            add("w_dst", width, d, d)?,
            add("b", 1, width, d)?,
            add("w_out", classes, width, width)?,
            add("b_out", 1, classes, width)?,
        ]))
    }
    /// Appends the logits, `[<= b, classes]`. `z` holds the embeddings of the roots, `stride` rows per event.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(&self, t: &mut Tape, z: Var, batch: &Batch, stride: usize) -> Result<Var> {
        let [w_src, w_dst, b, w_out, b_out] = t.stored_all(self.0)?;
        let (src, dst) = (side(t, z, batch, stride, 0)?, side(t, z, batch, stride, 1)?);
        let projected_dst = t.linear(dst, w_dst, Some(b), None, Identity)?;
        let hidden = t.linear(src, w_src, None, Some(projected_dst), Relu)?;
        t.linear(hidden, w_out, Some(b_out), None, Identity)
    }
}
