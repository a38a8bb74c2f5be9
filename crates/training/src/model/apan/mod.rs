//! APAN: a node attends to the mails in its mailbox; the mails of an event go to its two nodes and to their
//! neighbours.
//!
//! Source: Wang et al., "APAN: asynchronous propagation attention network for real-time temporal graph
//! embedding", 2021, trained as in TGL with three differences. Empty slots take no part in the softmax.
//! Scores are divided by the square root of a head's width, where TGL applies LeakyReLU(0.2). If several
//! mails arrive in one batch, `mean` keeps the latest time, where TGL averages the times.
//!
//! The result of the attention over a node's memory and mails is its new memory and, plus the projected node
//! inputs, its embedding. Keys and values are absorbed
//! ([`temporal_attention`](tgnn::ops::temporal_attention)).
mod by_plan;

use super::{
    Embeddings, EventModel, EventTables, ModelConfig, NodeInputs, Queries, RankTables, RowCounts, RowsAround,
    TimeEncoding, TimeStart,
    config::Check,
    rows::{NodeRows, NodeTable, RowsOf, WrittenTables},
};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{
        Tape,
        deliver_mails::Deliveries,
        epilogue::{Activation, DropRate},
        next_batch::Batch,
        read_mails::Mailbox,
        sample_neighbors::Strategy,
        temporal_attention::AttentionVars,
        unique::UniqueNodes,
        write_memory::Combiner,
    },
    runtime::*,
};

/// Sizes and choices of an APAN model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApanConfig {
    /// Width of the node memory and of the embeddings.
    pub memory: usize,
    /// Mail slots per node.
    pub mails: usize,
    /// Number of most recent neighbours that also receive a node's mails.
    pub neighbors: usize,
    /// Width of the time encoding.
    pub time: usize,
    /// Frequencies of the time encoding: `fixed`, `learned`, or `random`.
    pub time_encoding: TimeStart,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Attention heads; must divide `memory`.
    pub heads: usize,
    /// How the mails of one batch are combined: `last` or `mean`.
    pub combiner: Combiner,
    /// Dropout probability of attention weights and of the embeddings.
    pub dropout: f32,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for ApanConfig {
    fn default() -> Self {
        ApanConfig {
            memory: 100,
            mails: 10,
            neighbors: 10,
            time: 100,
            time_encoding: TimeStart::Fixed,
            gap_quantile: 0.99,
            heads: 2,
            combiner: Combiner::Last,
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

impl ModelConfig for ApanConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("apan");
        check.sizes(&[("memory", self.memory), ("time", self.time)])?;
        check.heads(self.heads, "apan.memory", self.memory)?;
        check.size("mails", self.mails, 1024)?;
        check.size("neighbors", self.neighbors, 1024)?;
        check.dropout(self.dropout)?;
        check.gap_quantile(self.gap_quantile)
    }
    fn state_bytes(&self, nodes: usize, width: usize, kept: StoredAs) -> usize {
        let features = if self.combiner == Combiner::Mean { width } else { 0 };
        let stamp = if kept == StoredAs::F32 { 0 } else { size_of::<u32>() };
        let mail = kept.size() * (2 * self.memory + features) + size_of::<u32>() + size_of::<i64>() + stamp;
        nodes * (kept.size() * self.memory + size_of::<u32>() + self.mails * mail)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn recent_events(&self) -> Result<usize> {
        Ok(self.neighbors)
    }
    /// Mails are only delivered to them.
    fn reads_neighbors(&self) -> bool {
        false
    }
    fn rows_around(&self) -> RowsAround {
        RowsAround { read: 0, written: self.neighbors }
    }
    fn partitions_features(&self) -> bool {
        true
    }
    fn width(&self) -> usize {
        self.memory
    }
    fn describe(&self) -> String {
        format!(
            "memory {}, {} time {}, {} mails of 1 + {} neighbours,\n{} heads, {} mail, dropout {}",
            self.memory,
            self.time_encoding,
            self.time,
            self.mails,
            self.neighbors,
            self.heads,
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
        RankTables::refuse_mean(data.rows.ranks.as_ref(), self.combiner == Combiner::Mean, "apan.combiner")?;
        let time = TimeEncoding::new(p, store, self.time, self.time_encoding)?;
        let (d, f) = (self.memory, data.edge_width_if(self.edge_features));
        let c = 2 * d + f + self.time;
        let update = Update::new(p, store, d, c)?;
        let inputs = NodeInputs::new(p, store, data, d, self.node_features)?;
        let (v, k) = (data.state_rows(), self.mails);
        let slots = Rows::fixed(v * k);
        let v = Rows::fixed(v);
        let memory = store.zeros("memory", data.memory_spec(v, d))?;
        let mail = store.zeros("mail", data.memory_spec(slots, 2 * d))?;
        let mail_event = store.zeros("mail event", Spec::ids(v, k))?;
        let mail_time = store.zeros("mail time", Spec { cols: k, ..Spec::times(v) })?;
        let next = store.zeros("next mail", Spec::ids(v, 1))?;
        let features = match self.combiner {
            Combiner::Mean => Some(store.zeros("mail features", data.memory_spec(slots, f))?),
            Combiner::Last => None,
        };
        // A node's slots are `k` rows of the mailbox, and one row of the events and times.
        let memory_table = [NodeTable::new(memory, 0, Spec::real(v, d))];
        let mail_tables = [
            NodeTable { each: k, ..NodeTable::new(mail, 0, Spec::real(v, 2 * d)) },
            NodeTable::new(mail_event, NONE, Spec::ids(v, 1)),
            NodeTable::new(mail_time, 0, Spec::times(v)),
            NodeTable { row: None, ..NodeTable::new(next, 0, Spec::ids(v, 1)) },
        ];
        // Means of mails are not sent.
        let features_table =
            features.map(|id| NodeTable { row: None, ..NodeTable::new(id, 0, store.spec(id)) });
        let mail_tables: Vec<NodeTable> = mail_tables.into_iter().chain(features_table).collect();
        let groups = [
            WrittenTables { tables: &memory_table, rows_of_event: 2, appended: false },
            WrittenTables { tables: &mail_tables, rows_of_event: 2 * (1 + self.neighbors), appended: true },
        ];
        let rows = NodeRows::new(store, data, memory, [mail_event, mail_time], &groups)?;
        let apan = Apan {
            config: self.clone(),
            seed,
            time,
            inputs,
            update,
            memory,
            mail_event,
            rows,
            mail_stamp: store.zeros("mail stamp", Spec::ids(slots, 1))?,
        };
        apan.reset(store)?;
        Ok(Box::new(apan))
    }
}

/// Parameters of the attention over mails.
struct Update {
    w_q: BufferId,
    b_q: BufferId,
    w_k: BufferId,
    w_v: BufferId,
    b_v: BufferId,
    norm_gain: BufferId,
    norm_bias: BufferId,
    w: BufferId,
    b: BufferId,
}

impl Update {
    /// Adds the parameters for memory of width `d` and mails of width `c`.
    fn new(p: &mut Parameters, store: &mut Store, d: usize, c: usize) -> Result<Self> {
        use ScaledInit::{Constant, FanIn};
        let mut add =
            |name: &str, rows, cols, init| p.add(store, &format!("update.{name}"), rows, cols, init);
        Ok(Update {
            w_q: add("w_q", d, d, FanIn(d))?,
            b_q: add("b_q", 1, d, FanIn(d))?,
            w_k: add("w_k", d, c, FanIn(c))?,
            w_v: add("w_v", d, c, FanIn(c))?,
            b_v: add("b_v", 1, d, FanIn(c))?,
            norm_gain: add("norm_gain", 1, d, Constant(1.0))?,
            norm_bias: add("norm_bias", 1, d, Constant(0.0))?,
            w: add("w", d, d, FanIn(d))?,
            b: add("b", 1, d, FanIn(d))?,
        })
    }
}

struct Apan {
    config: ApanConfig,
    seed: u64,
    time: TimeEncoding,
    inputs: NodeInputs,
    update: Update,
    memory: BufferId,
    mail_event: BufferId,
    /// Memory, and the mailbox: mails, events, times, next slot, and perhaps features.
    rows: NodeRows,
    /// Stamps of the slots whose mails a step gathers.
    mail_stamp: BufferId,
}

/// The mails that a step's queries attend to.
struct SeenMails {
    /// Contents of the mails.
    mail: Var,
    /// Row of each slot in `mail`, and in `features` if there are any.
    row: Var,
    /// Edge features stored with the mails, if the combiner averages them.
    features: Option<Var>,
}

impl Apan {
    /// Returns the memory and the mailbox of the rows of a step.
    fn tables(rows: &RowsOf) -> Result<(Var, Mailbox)> {
        let [memory, mail, event, time, next, ref features @ ..] = rows.tables[..] else {
            return Err(Error::shape("apan", "a table is missing"));
        };
        Ok((memory, Mailbox { mail, event, time, next, features: features.first().copied() }))
    }
    /// Returns the mails in the rows `row` of `mailbox`: the tables themselves, or the unique rows gathered
    /// into f32: of tables in 16 bits or on the host, or that later steps may write before this one has
    /// computed.
    fn seen(&self, t: &mut Tape, data: &EventTables, mailbox: Mailbox, row: Var) -> Result<SeenMails> {
        if data.memory.stored_as == StoredAs::F32 && !NodeRows::gathers(data) {
            return Ok(SeenMails { mail: mailbox.mail, row, features: mailbox.features });
        }
        let stamp = t.stored(self.mail_stamp)?;
        let unique = t.unique(stamp, row, &[], 2)?;
        let features = mailbox.features.map(|features| t.gather_rows(features, unique.node)).transpose()?;
        Ok(SeenMails { mail: t.gather_rows(mailbox.mail, unique.node)?, row: unique.psi[0], features })
    }
    /// Returns the new memory of the roots that `e` embeds.
    fn new_memory(e: &Embeddings) -> Result<Var> {
        let none = || Error::shape("deliver_mails", "there is no new memory");
        e.memory.map(|(out, _)| out).ok_or_else(none)
    }
    /// Appends the writes of new memory.
    fn write_memory(&self, t: &mut Tape, e: &Embeddings) -> Result<()> {
        let unique = e.unique_nodes()?;
        let memory = t.stored(self.memory)?;
        t.write_latest(memory, (unique.node, unique.phi), Self::new_memory(e)?)
    }
    /// Returns the nodes that get mails: those of a batch's events, and their recent neighbours.
    fn recipients(&self, t: &mut Tape, data: &EventTables, batch: &Batch) -> Result<UniqueNodes> {
        let (node, time) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let how = data.sampling(self.config.neighbors, Strategy::Recent);
        let tcsr = data.tcsr(t)?;
        let near = t.sample_neighbors(tcsr, (node, time), (batch.event, batch.now), 2, how)?;
        let recipients = t.expand_targets((node, time), near.node, None)?.node;
        data.unique(t, recipients, &[], 2)
    }
    /// Returns the number of nodes that get the mail of an end of an event.
    fn recipients_of_end(&self) -> usize {
        1 + self.config.neighbors
    }
    /// Appends the delivery of a batch's mails to the mailboxes of the recipients `to`.
    fn deliver(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        (stride, to): (usize, &UniqueNodes),
        e: &Embeddings,
    ) -> Result<()> {
        let (_, mailbox) = Self::tables(&self.rows.in_place(t, to.node)?)?;
        let edge = data.edge_if(t, self.config.edge_features)?;
        let (edge, edge_row) = match mailbox.features {
            Some(_) => data.batch_edge_rows(t, edge, batch.event)?,
            None => (edge, batch.event),
        };
        let (event, event_time) = (batch.event, batch.time);
        let (each, out) = (self.recipients_of_end(), Self::new_memory(e)?);
        let deliveries = Deliveries { to, each, out, event, event_time, edge, edge_row };
        t.deliver_mails(mailbox, deliveries, stride)
    }
}

impl EventModel for Apan {
    fn state(&self) -> Vec<BufferId> {
        self.rows.state()
    }
    fn mail_event(&self) -> Option<BufferId> {
        Some(self.mail_event)
    }
    fn row_counts(&self) -> RowCounts {
        self.rows.counts()
    }
    fn reset(&self, store: &mut Store) -> Result<()> {
        self.rows.reset(store)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let (config, update) = (&self.config, &self.update);
        let unique = data.unique(t, q.node, &[], q.classes())?;
        let read = self.rows.read(t, data, unique.node, q.batch.as_ref())?;
        let rows = self.rows.fetched(t, data, unique.node, None)?;
        let (memory, mailbox) = Self::tables(&rows)?;
        let query = if rows.received { t.gather_rows(rows.row, unique.psi[0])? } else { q.node };
        let mails = t.read_mails(mailbox, (query, q.time), data.gaps)?;
        let mailed = match rows.received {
            true => SeenMails { mail: mailbox.mail, row: mails.row, features: None },
            false => self.seen(t, data, mailbox, mails.row)?,
        };
        let (edge, event) = match mailed.features {
            Some(features) => (features, mailed.row),
            None => {
                let edge = data.edge_if(t, config.edge_features)?;
                data.mail_edge_rows(t, edge, mails.event)?
            }
        };
        let mut stored = |id| t.stored(id);
        let (w_q, b_q) = (stored(update.w_q)?, stored(update.b_q)?);
        let (w_k, w_v, b_v) = (stored(update.w_k)?, stored(update.w_v)?, stored(update.b_v)?);
        let (w, b) = (stored(update.w)?, stored(update.b)?);
        let (gain, bias) = (stored(update.norm_gain)?, stored(update.norm_bias)?);
        let old = read.memory().map_or_else(|| t.gather_rows(memory, rows.row), Ok)?;
        let query = t.linear(old, w_q, Some(b_q), None, Activation::Identity)?;
        let query = t.head_up(query, w_k, config.heads)?;
        let roots = t.group_roots(unique.psi[0], mails.count, t.spec(query).rows)?;
        let (time_w, time_b) = self.time.vars(t)?;
        let near = AttentionVars {
            query,
            roots,
            h: mailed.mail,
            learn_h: false,
            row: mailed.row,
            event,
            dt: mails.dt,
            count: mails.count,
            edge,
            time_w,
            time_b,
        };
        let drop =
            |salt| q.drop_now().map(|now| (DropRate { p: config.dropout, seed: self.seed, salt }, now));
        let head_width = config.memory / config.heads;
        let (mix, sum) = t.temporal_attention(near, config.heads, head_width, drop(0xD0))?;
        let values = t.head_down(mix, w_v, Some((b_v, sum)), config.heads)?;
        let order = (roots.order, roots.position);
        let y = t.ungroup_norm(values, order, old, unique.psi[0], Activation::Identity, (gain, bias))?;
        let out = t.linear(y, w, Some(b), None, Activation::Relu.then_drop(drop(0xD1)))?;
        let z = self.inputs.record(t, data, q.node, Some(out))?;
        let (unique, memory) = (Some(unique), Some((out, None)));
        Ok(Embeddings { unique, memory, read, ..Embeddings::new(z) })
    }
    fn write(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        if !data.rows.is_plain() {
            return self.write_as_planned(t, data, batch, stride, e);
        }
        self.write_memory(t, e)?;
        let to = self.recipients(t, data, batch)?;
        self.deliver(t, data, batch, (stride, &to), e)
    }
}
