//! TGN: node memory kept by a recurrent cell over mails, temporal attention over the most recent neighbours.
//!
//! Source: Rossi et al., "Temporal graph networks for deep learning on dynamic graphs", 2020. One step: negatives and
//! neighbours; the distinct nodes; their memory after their mails; attention layers; link decoder; then the writes.
use super::{
    layers::{Attention, Decoder, Looked, TimeEncoding, TimeStart},
    tables::{EventTables, strategy},
};
use crate::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{
        Tape,
        epilogue::{Activation, DropRate},
        gru_memory::Gru,
        memory_update::{Cell, CellVars, FeatureRow, MemoryVars},
        next_batch::Batch,
        rnn_memory::Rnn,
        sample_neighbors::Sampling,
        write_memory::{Combiner, Written},
    },
    runtime::*,
};
use serde::{Deserialize, Serialize};

/// Sizes and choices of a TGN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TgnConfig {
    /// Width of the node memory.
    pub memory: usize,
    /// The cell that updates the memory: `gru` or `rnn`.
    pub updater: String,
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random` (as PyTorch Geometric, learned).
    pub time_encoding: String,
    /// Width of the embeddings.
    pub embedding: usize,
    /// Longer gaps of time count as this quantile of the gaps between a node's events in training; 1: none is cut.
    /// What training has hardly seen, an encoding cannot tell anything about.
    pub gap_quantile: f64,
    /// Attention heads; they divide the embedding.
    pub heads: usize,
    /// Attention layers, 1 or 2.
    pub layers: usize,
    /// Neighbours of a root.
    pub neighbors: usize,
    /// `recent` or `uniform`.
    pub sampling: String,
    /// How mails of one batch are combined: `last` or `mean`.
    pub combiner: String,
    /// Drop-out of attention weights and of the layer's output.
    pub dropout: f32,
    /// Whether edge features are used where there are any.
    pub edge_features: bool,
    /// Whether node features are used where there are any.
    pub node_features: bool,
}

impl Default for TgnConfig {
    fn default() -> Self {
        TgnConfig {
            memory: 100,
            updater: "gru".into(),
            time: 100,
            time_encoding: "fixed".into(),
            gap_quantile: 0.99,
            embedding: 100,
            heads: 2,
            layers: 1,
            neighbors: 10,
            sampling: "recent".into(),
            combiner: "last".into(),
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

impl TgnConfig {
    /// Bytes of memory and mailbox for `nodes` nodes and edge features of `width`.
    pub fn state_bytes(&self, nodes: usize, width: usize) -> usize {
        let features = if self.combiner == "mean" { width } else { 0 };
        nodes * (4 * (2 * self.memory + features) + 2 * size_of::<i64>() + size_of::<u32>())
    }
    /// # Errors
    /// Usage, naming the key and what it may be.
    pub fn validate(&self) -> Result<()> {
        let bad = |key: &str, found: String, want: &str| {
            Err(Error::usage(format!("tgn.{key} is {found}")).remedy(want.to_owned()))
        };
        for (key, n) in [
            ("memory", self.memory),
            ("time", self.time),
            ("embedding", self.embedding),
            ("heads", self.heads),
        ] {
            if n == 0 || n > 4096 {
                return bad(key, n.to_string(), "give 1 to 4096");
            }
        }
        if !self.embedding.is_multiple_of(self.heads) {
            return bad("heads", self.heads.to_string(), "give a divisor of tgn.embedding");
        }
        if !(1..=2).contains(&self.layers) {
            return bad("layers", self.layers.to_string(), "give 1 or 2");
        }
        if !(1..=1024).contains(&self.neighbors) {
            return bad("neighbors", self.neighbors.to_string(), "give 1 to 1024");
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return bad("dropout", self.dropout.to_string(), "give 0 or more, and less than 1");
        }
        if !(self.gap_quantile > 0.0 && self.gap_quantile <= 1.0) {
            return bad("gap_quantile", self.gap_quantile.to_string(), "give more than 0, and at most 1");
        }
        if Updater::named(&self.updater).is_none() {
            return bad("updater", format!("`{}`", self.updater), "give gru or rnn");
        }
        if TimeStart::named(&self.time_encoding).is_none() {
            return bad(
                "time_encoding",
                format!("`{}`", self.time_encoding),
                "give fixed, learned or random",
            );
        }
        if strategy(&self.sampling, 0).is_none() {
            return bad("sampling", format!("`{}`", self.sampling), "give recent or uniform");
        }
        if !["last", "mean"].contains(&self.combiner.as_str()) {
            return bad("combiner", format!("`{}`", self.combiner), "give last or mean");
        }
        Ok(())
    }
}

/// The cell that updates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Updater {
    Gru,
    Rnn,
}

impl Updater {
    /// `gru` or `rnn`.
    fn named(name: &str) -> Option<Self> {
        match name {
            "gru" => Some(Updater::Gru),
            "rnn" => Some(Updater::Rnn),
            _ => None,
        }
    }
    /// Gates, each as many rows of the weights as the memory is wide.
    fn gates(self) -> usize {
        match self {
            Updater::Gru => Gru::GATES,
            Updater::Rnn => Rnn::GATES,
        }
    }
}

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
    /// Given: rows of a `[events, m]` u32 table.
    Given(BufferId),
}

/// A recorded forward pass: what the loss and the writes need.
pub struct Forward {
    /// The batch.
    pub batch: Batch,
    /// `[b, 1 + m]` logits, the event itself in column 0.
    pub logits: Var,
    /// `[(2 + m) b, width]` embeddings of the roots.
    pub z: Var,
    written: Written,
    stride: usize,
}

/// A TGN: parameters and state in a store.
pub struct Tgn {
    config: TgnConfig,
    seed: u64,
    time: TimeEncoding,
    updater: Updater,
    cell: [BufferId; 4],
    memory: BufferId,
    memory_time: BufferId,
    mail: BufferId,
    mail_event: BufferId,
    mail_time: BufferId,
    mail_edge: Option<BufferId>,
    node: Option<[BufferId; 2]>,
    no_edge: BufferId,
    layers: Vec<Attention>,
    decoder: Decoder,
}

impl Tgn {
    /// Adds parameters and state for a stream's nodes.
    ///
    /// # Errors
    /// Usage where the configuration contradicts itself.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        config: &TgnConfig,
        seed: u64,
    ) -> Result<Self> {
        config.validate()?;
        let (v, d, t) = (Rows::fixed(data.nodes), config.memory, config.time);
        let f = if config.edge_features { data.edge_width } else { 0 };
        let start = TimeStart::named(&config.time_encoding)
            .ok_or_else(|| Error::usage(format!("tgn.time_encoding is `{}`", config.time_encoding)))?;
        let updater = Updater::named(&config.updater)
            .ok_or_else(|| Error::usage(format!("tgn.updater is `{}`", config.updater)))?;
        let g = updater.gates();
        let time = TimeEncoding::new(p, store, t, start);
        let mut add = |name: &str, rows, cols, n| p.add(store, name, rows, cols, ScaledInit::FanIn(n));
        let cell = [
            add("memory.w_x", g * d, 2 * d + f + t, d),
            add("memory.w_h", g * d, d, d),
            add("memory.b_x", 1, g * d, d),
            add("memory.b_h", 1, g * d, d),
        ];
        let node = (config.node_features && data.node_width > 0).then(|| {
            [add("node.w", d, data.node_width, data.node_width), add("node.b", 1, d, data.node_width)]
        });
        let layers = (0..config.layers)
            .map(|l| {
                let d_in = if l == 0 { d } else { config.embedding };
                let drop = DropRate { p: config.dropout, seed, salt: 0xD0 + 2 * l as u32 };
                Attention::new(p, store, l, d_in, config.embedding, f, t, config.heads, drop)
            })
            .collect();
        let decoder = Decoder::new(p, store, config.embedding, config.embedding);
        let mut tgn = Tgn {
            config: config.clone(),
            seed,
            time,
            updater,
            cell,
            memory: store.zeros("memory", Spec::real(v, d)),
            memory_time: store.zeros("memory time", Spec::times(v)),
            mail: store.zeros("mail", Spec::real(v, d)),
            mail_event: store.zeros("mail event", Spec::ids(v, 1)),
            mail_time: store.zeros("mail time", Spec::times(v)),
            mail_edge: None,
            node,
            no_edge: store.table(
                "no features",
                Spec::real(Rows::fixed(data.events), 0),
                std::sync::Arc::new(Vec::<f32>::new()),
            ),
            layers,
            decoder,
        };
        if config.combiner == "mean" {
            tgn.mail_edge = Some(store.zeros("mail features", Spec::real(v, f)));
        }
        tgn.reset(store);
        Ok(tgn)
    }
    /// Buffers of node memory and mailbox.
    pub fn state(&self) -> impl Iterator<Item = BufferId> {
        [self.memory, self.memory_time, self.mail, self.mail_event, self.mail_time]
            .into_iter()
            .chain(self.mail_edge)
    }
    /// Empties memory and mailbox: the start of an epoch.
    pub fn reset(&self, store: &mut Store) {
        self.state().for_each(|id| store.clear(id));
        store.fill(self.mail_event, NONE);
    }
    fn combiner(&self) -> Combiner {
        if self.mail_edge.is_some() { Combiner::Mean } else { Combiner::Last }
    }
    fn edge(&self, t: &mut Tape, store: &Store, data: &EventTables) -> Var {
        if self.config.edge_features { data.edge(t, store) } else { t.stored(store, self.no_edge) }
    }
    fn memory_vars(&self, t: &mut Tape, store: &Store, edge: Var) -> MemoryVars {
        let mut v = |id| t.stored(store, id);
        MemoryVars {
            memory: v(self.memory),
            memory_time: v(self.memory_time),
            mail: v(self.mail),
            mail_event: v(self.mail_event),
            mail_time: v(self.mail_time),
            edge: self.mail_edge.map_or(edge, v),
        }
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
        let roots = t.roots(batch.src, batch.dst, batch.time, negatives)?;
        let (z, mut written) =
            self.embed(t, store, data, roots, (batch.event, batch.now), stride, train.then_some(batch.now))?;
        written.event_time = batch.time;
        let logits = self.decoder.record(t, store, z, batch.rows)?;
        Ok(Forward { batch, logits, z, written, stride })
    }
    /// Appends the embeddings of queries `(node, time)`, history ending before the first of `events`. `stride` is the
    /// number of roots an event when the queries are a batch's roots, else 0.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    #[allow(clippy::too_many_arguments)]
    pub fn embed(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &EventTables,
        (node, time): (Var, Var),
        (event, now): (Var, Var),
        stride: usize,
        drop_now: Option<Var>,
    ) -> Result<(Var, Written)> {
        let c = &self.config;
        let strategy = strategy(&c.sampling, self.seed)
            .ok_or_else(|| Error::usage(format!("tgn.sampling is `{}`", c.sampling)))?;
        let how = Sampling { k: c.neighbors, strategy, gaps: data.gaps };
        let tcsr = data.tcsr(t, store);
        let mut near = t.sample_neighbors(tcsr, (node, time), (event, now), stride, how)?;
        let stamp = data.stamp(t, store);
        let mut below = if self.layers.len() == 2 {
            let targets = t.expand_targets(node, time, near.node)?;
            let near = t.sample_neighbors(tcsr, (targets.node, targets.time), (event, now), 0, how)?;
            Some((targets, near))
        } else {
            None
        };
        let mut others = vec![near.node];
        others.extend(below.iter().flat_map(|(targets, near)| [targets.node, near.node]));
        // Without a batch every query counts as a positive root; nothing is written then.
        let distinct = t.distinct(stamp, node, &others, if stride == 0 { 2 } else { stride })?;

        let edge = self.edge(t, store, data);
        let slots = std::iter::once(near.event).chain(below.iter().map(|(_, near)| near.event));
        let (seen, events) = data.edge_rows(t, store, edge, slots.collect())?;
        near.event = events[0];
        if let Some((_, near)) = &mut below {
            near.event = events[1];
        }
        let mut state = self.memory_vars(t, store, edge);
        let cell = {
            let (time_w, time_b) = self.time.vars(t, store);
            let [w_x, w_h, b_x, b_h] = self.cell.map(|id| t.stored(store, id));
            CellVars { time_w, time_b, w_x, w_h, b_x, b_h }
        };
        let row = if self.mail_edge.is_some() {
            FeatureRow::Node
        } else if data.features_on_host() {
            // Which event a mail is of, the step before decides: these rows alone cannot be brought ahead of it.
            let events = t.gather_rows(state.mail_event, distinct.node)?;
            state.edge = t.gather_rows(edge, events)?;
            FeatureRow::Distinct
        } else {
            FeatureRow::Event
        };
        let (memory, memory_time) = match self.updater {
            Updater::Gru => t.memory_update::<Gru>(distinct.node, state, cell, row, data.gaps)?,
            Updater::Rnn => t.memory_update::<Rnn>(distinct.node, state, cell, row, data.gaps)?,
        };
        let mut h = memory;
        if let (Some([w, b]), Some(features)) = (self.node, data.node_features(t, store)) {
            let (w, b) = (t.stored(store, w), t.stored(store, b));
            let own = t.gather_rows(features, distinct.node)?;
            h = t.linear(own, w, Some(b), Some(memory), Activation::Identity)?;
        }

        let look = |h, roots, root, row, near| Looked { h, roots, root, row, near, edge: seen, drop_now };
        let l = if let Some((targets, near_below)) = below {
            let l = look(h, h, distinct.psi[2], distinct.psi[3], near_below);
            let h = self.layers[0].record(t, store, &self.time, l)?;
            let roots = t.gather_rows(h, targets.root_row)?;
            look(h, roots, targets.identity, targets.neighbor_row, near)
        } else {
            let roots = t.prefix_rows(h, distinct.root_rows)?;
            look(h, roots, distinct.psi[0], distinct.psi[1], near)
        };
        let z = self.layers[self.layers.len() - 1].record(t, store, &self.time, l)?;
        let written = Written {
            node: distinct.node,
            phi: distinct.phi,
            positives: distinct.positives,
            psi: distinct.psi[0],
            memory,
            time: memory_time,
            event,
            event_time: time,
            edge,
        };
        Ok((z, written))
    }
    /// Appends the writes of memory and mails. After the backward: it reads the memory that the forward pass read.
    ///
    /// # Errors
    /// `Shape`, as the op's.
    pub fn write(&self, t: &mut Tape, store: &Store, f: &Forward) -> Result<()> {
        let state = self.memory_vars(t, store, f.written.edge);
        t.write_memory(state, &f.written, self.combiner(), f.stride)
    }
}
