//! Models: short files made of layers, recorded on a tape.
//!
//! An [`EventModel`] embeds nodes at given times and writes its state (node memory, mails) after each batch.
//! A [`Net`] is a model with the head that predicts from the embeddings. Every model's sizes and choices are
//! a [`ModelConfig`], which builds the model.
//!
//! The models are listed in `list.rs`, one file or folder each; the other files are what models are made of.
//! `by_plan.rs` in a folder says how new rows travel to other ranks.
mod config;
mod features;
mod gcn;
mod heads;
mod inputs;
mod layers;
mod list;
mod memory;
mod neighborhood;
mod net;
mod open_end;
mod rows;
mod snapshot;
mod tables;

pub use config::{ModelConfig, NeighborSampling, RowsAround};
pub use features::FeatureTables;
pub use gcn::{Gcn, GcnConfig, GraphTables, LayerInput, LayerOrders, ProductOrder, SwappedLayers, convolve};
pub use heads::{EdgeHead, LinkHead, NodeHead, PropertyHead};
pub use inputs::NodeInputs;
pub use layers::{Attention, AttentionInputs, TimeEncoding, TimeStart};
pub use list::ModelName;
pub(crate) use list::for_each_model;
pub use memory::{CellKind, FreshMemory, NodeMemory};
pub use neighborhood::{AttentionStack, Neighborhood, StackConfig};
pub use net::{Forward, HeadKind, Negatives, Net};
pub use open_end::OpenEnd;
pub use rows::{RankTables, RowCounts};
pub(crate) use rows::{RowPlan, RowTravel};
pub use snapshot::{SnapshotModel, SnapshotModelConfig, SnapshotTables, VertexInputs};
pub use tables::{Arrivals, Cursor, EventTables, StoredMemory};

/// Declares the file of each model and exports what it makes public.
macro_rules! model_files {
    ($($module:ident: $config:ident, $section:literal, $reads:ident { $($names:tt)* })*) => {
        $(
            mod $module;
            pub use $module::*;
        )*
    };
}
for_each_model!(model_files);

use tgnn::{
    error::{Error, Result},
    ops::{Tape, next_batch::Batch, unique::UniqueNodes},
    runtime::*,
};

/// The nodes to embed, each at its own time. Which events they see, says
/// [`History`](tgnn::ops::sample_neighbors::History).
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    /// `[n]` u32 nodes; [`NONE`] marks an empty row.
    pub node: Var,
    /// `[n]` i64 ticks.
    pub time: Var,
    /// `[<= b]` u32: events of the batch; with `History::Batch`, the history ends before the first of them.
    pub event: Var,
    /// `[1, 2]` u32: clock of the random draws.
    pub now: Var,
    /// Roots per event if the queries are a batch's roots; else 0.
    pub stride: usize,
    /// The batch, if the queries are its roots.
    pub batch: Option<Batch>,
    /// Whether dropout is on.
    pub train: bool,
}

impl Queries {
    /// Returns the clock of the dropout if dropout is on: what ops take that drop.
    pub fn drop_now(&self) -> Option<Var> {
        self.train.then_some(self.now)
    }
    /// Returns [`stride`](Self::stride) as [`EventTables::unique`] expects it. Without a batch every query
    /// counts as a positive root, which is harmless because nothing is written then.
    pub fn classes(&self) -> usize {
        if self.stride == 0 { 2 } else { self.stride }
    }
}

/// A recorded forward pass: the embeddings, and the values that the model's writes need. Example:
/// [`EventModel`].
#[derive(Clone, Debug)]
pub struct Embeddings {
    /// `[n, width]`: one row per query.
    pub z: Var,
    /// The unique nodes, if the model's writes need them.
    pub unique: Option<UniqueNodes>,
    /// New memory and its times, if the model has a memory. Rows are those of the unique nodes; for APAN they
    /// are those of the queries, and there are no times.
    pub memory: Option<(Var, Option<Var>)>,
    /// `[2 b, width of the memory]` rows that the batch's mails hold in place of the partner's memory, one
    /// per positive root: source and destination of each event. `None` if mails hold the memory.
    pub content: Option<Var>,
    /// Other values that the model's own writes need, in its order.
    pub kept: Vec<Var>,
    /// What the writes need to know of the rows of the state that were read.
    read: rows::Read,
}

impl Embeddings {
    /// Returns the embeddings `z`, `[n, width]`, with one row per query, of a model whose writes need nothing
    /// else.
    pub fn new(z: Var) -> Self {
        Embeddings {
            z,
            unique: None,
            memory: None,
            content: None,
            kept: Vec::new(),
            read: rows::Read::default(),
        }
    }
    /// Adds the memory of the unique nodes, for [`NodeMemory::write`].
    #[must_use]
    pub fn with_memory(self, unique: UniqueNodes, updated: FreshMemory) -> Self {
        let FreshMemory { memory, time, read } = updated;
        Embeddings { unique: Some(unique), memory: Some((memory, Some(time))), read, ..self }
    }
    /// Returns the unique nodes.
    ///
    /// # Errors
    /// `Shape` if there are none.
    pub fn unique_nodes(&self) -> Result<&UniqueNodes> {
        self.unique.as_ref().ok_or_else(|| Error::shape("embedded", "the writes need the unique nodes"))
    }
    /// Returns the new memory of the unique nodes, and its times.
    fn new_memory(&self) -> Result<[Var; 2]> {
        match self.memory {
            Some((memory, Some(time))) => Ok([memory, time]),
            _ => Err(Error::shape("write_memory", "there is no new memory")),
        }
    }
}

/// A model of event streams. Its parameters and its state are in a store.
///
/// A model of one's own is a [`ModelConfig`] with its sizes, which [builds](ModelConfig::build) it, and an
/// `EventModel`, which records it. Everything that the crate's models are made of can be used:
///
/// | for | see |
/// | --- | --- |
/// | parameters and state | [`Parameters::add`](tgnn::autograd::Parameters::add), [`Store::zeros`], [`state`](Self::state) |
/// | features of nodes and edges | [`EventTables::features`], [`EventTables::node_rows`], [`EventTables::edge_if`], [`EventTables::edge_rows`] |
/// | recent neighbours | [`EventTables::tcsr`], [`EventTables::sampling`], [`Tape::sample_neighbors`]; say how many by [`ModelConfig::recent_events`] |
/// | attention over neighbours | [`AttentionStack`], [`TimeEncoding`] |
/// | node memory with mails | [`NodeMemory`], [`Embeddings::with_memory`] |
///
/// # Examples
/// A model with one learned row per node (`examples/own_event_model.rs` has one that reads neighbours):
/// ```
/// use tgnn::{autograd::*, error::Result, ops::Tape, runtime::*};
/// use tgnn_data::*;
/// use tgnn_training::{model::*, task::*};
///
/// struct RowsConfig { width: usize }
/// struct LearnedRows { rows: BufferId }
///
/// impl ModelConfig for RowsConfig {
///     fn validate(&self) -> Result<()> { Ok(()) }
///     fn gap_quantile(&self) -> f64 { 1.0 }
///     fn width(&self) -> usize { self.width }
///     fn describe(&self) -> String { format!("rows of width {}", self.width) }
///     fn build(
///         &self, p: &mut Parameters, store: &mut Store, data: &EventTables, _seed: u64,
///     ) -> Result<Box<dyn EventModel>> {
///         let rows = p.add(store, "rows", data.nodes, self.width, ScaledInit::Normal)?;
///         Ok(Box::new(LearnedRows { rows }))
///     }
/// }
/// impl EventModel for LearnedRows {
///     fn embed(&self, t: &mut Tape, _: &EventTables, q: &Queries) -> Result<Embeddings> {
///         let rows = t.stored(self.rows)?;
///         Ok(Embeddings::new(t.gather_rows(rows, q.node)?))
///     }
/// }
///
/// let events = synth(&SynthOptions { events: 2_000, ..SynthOptions::default() })?;
/// let model = CustomModel::new("learned rows", RowsConfig { width: 16 });
/// let config = Config { epochs: 1, custom_model: Some(model), ..Config::default() };
/// let summary = train(&config, &events, &Device::cpu(1)?, &RunOptions::default(), &mut ())?;
/// assert!(summary.test.is_some());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub trait EventModel: Send + Sync {
    /// Returns the node memory, if the model's state is one: the state, what it counts, its reset and its
    /// writes then follow from it.
    fn memory(&self) -> Option<&NodeMemory> {
        None
    }
    /// Returns the buffers of the state, such as node memory and mailbox: what training writes besides the
    /// parameters. Checkpoints hold them. The rows of a buffer must be a multiple of the nodes: a
    /// [`Predictor`](crate::task::Predictor) may have more nodes.
    fn state(&self) -> Vec<BufferId> {
        self.memory().map_or(Vec::new(), NodeMemory::state)
    }
    /// Returns the state buffer that holds event ids, such as the event of each mail: u32, [`NONE`] for none.
    /// A predictor renumbers events.
    fn mail_event(&self) -> Option<BufferId> {
        self.memory().map(NodeMemory::mail_event)
    }
    /// Returns the buffers in which training steps count what the rows of the state that they read were like.
    fn row_counts(&self) -> RowCounts {
        self.memory().map_or(RowCounts::default(), NodeMemory::row_counts)
    }
    /// Empties the state, as at the start of an epoch. A model with state must.
    ///
    /// # Errors
    /// Those of the store.
    fn reset(&self, store: &mut Store) -> Result<()> {
        self.memory().map_or(Ok(()), |memory| memory.reset(store))
    }
    /// Appends the embeddings of the queries. Queries of [`NONE`] get any row of finite numbers. May change
    /// nothing that is stored: predictions would.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings>;
    /// Appends the writes of a batch whose roots, `stride` per event, were embedded in `e`. To be recorded
    /// after the backward pass, because it changes the state that the forward pass read.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    fn write(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        self.memory().map_or(Ok(()), |memory| memory.write(t, data, batch, stride, e))
    }
}
