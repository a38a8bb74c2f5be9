//! An event stream in a store: the tables that every model reads, and the cursor.
use super::{FeatureTables, RowPlan};
use std::sync::Arc;
use tgnn::{
    autograd::Parameters,
    error::{Error, Result, ensure},
    ops::{
        Tape,
        next_batch::Batch,
        sample_neighbors::{Entry, History, Sampling, Strategy, TcsrVars},
        unique::UniqueNodes,
    },
    runtime::*,
};
use tgnn_data::{Events, Features, Tcsr};

/// The tables of an event stream, and the cursor that walks it.
#[derive(Clone, Debug)]
pub struct EventTables {
    /// Number of nodes of the stream.
    pub nodes: usize,
    /// Number of events of the stream.
    pub events: usize,
    /// Conversion of ticks to seconds; without a longest gap unless the caller sets one.
    pub gaps: Gaps,
    /// Which events a query sees as neighbours; those earlier in time unless the caller sets it before the
    /// model is built.
    pub history: History,
    /// Features of edges and nodes.
    pub features: FeatureTables,
    /// `[nodes, c]`: static memory, if the caller sets it before the model is built.
    pub static_memory: Option<BufferId>,
    /// How node memory and mails are kept; in f32 unless the caller changes it before the model is built.
    pub memory: StoredMemory,
    /// The events, and where a pass is.
    pub cursor: Cursor,
    /// `None` if the model reads no neighbours.
    pub(super) adjacency: Option<Adjacency>,
    /// `[nodes]` u32: stamps of the nodes of which a step makes a list.
    pub(super) stamp: BufferId,
    /// How steps get the rows of nodes, and how training steps do. Set before the model is built.
    pub(crate) rows: RowPlan,
    pub(crate) training: RowPlan,
}

/// How node memory and mails are kept.
#[derive(Clone, Copy, Debug)]
pub struct StoredMemory {
    /// Storage type.
    pub stored_as: StoredAs,
    /// Whether devices keep them in host memory: see [`EventTables::keep_memory_on_host`].
    pub(crate) on_host: bool,
}

/// f32, on the device.
impl Default for StoredMemory {
    fn default() -> Self {
        StoredMemory { stored_as: StoredAs::F32, on_host: false }
    }
}

/// The events of a stream in the order of time, and where a pass over them is.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// `[1, 2]` u32: epoch, and number of batches done in the pass.
    pub clock: BufferId,
    /// `[1, 3]` u32: first event of the pass, one past its last event, and the number of events by which the
    /// first batch is shorter than the others.
    pub range: BufferId,
    pub(super) src: BufferId,
    pub(super) dst: BufferId,
    pub(super) time: BufferId,
    /// Buffers that change as events arrive, for an open-ended stream.
    pub(super) arrivals: Option<Arrivals>,
}

impl Cursor {
    /// Adds a cursor over the events `[src, dst, time]`.
    pub(super) fn new(
        store: &mut Store,
        [src, dst, time]: [BufferId; 3],
        arrivals: Option<Arrivals>,
    ) -> Result<Self> {
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
        let range = store.zeros("range", Spec::ids(Rows::fixed(1), 3))?;
        Ok(Cursor { clock, range, src, dst, time, arrivals })
    }
}

/// The buffers of an open-ended stream that change as events arrive.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// `[batch]` u32: sources of the batch's events.
    pub src: BufferId,
    /// `[batch]` u32: destinations.
    pub dst: BufferId,
    /// `[batch]` i64: times in ticks.
    pub time: BufferId,
    /// `[batch]` u32: event ids.
    pub event: BufferId,
    /// `[batch, width]`: edge features.
    pub features: BufferId,
    /// `[nodes slots, 2]` i64: the most recent events of every node, see [`Entry`]. An empty slot has event
    /// [`NONE`], and comes after all full ones.
    pub entries: BufferId,
    /// `[events, width]`: edge features by event id.
    pub edge: BufferId,
}

/// The events of each node in the order of time: a T-CSR.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adjacency {
    pub offsets: BufferId,
    pub entries: BufferId,
    pub position: BufferId,
}

impl Adjacency {
    /// Puts the adjacency of `events` into `store`.
    fn new(store: &mut Store, events: &Events) -> Result<Self> {
        let (tcsr, offsets) = (Tcsr::new(events)?, Spec::times(Rows::fixed(events.nodes + 1)));
        let position = Spec::ids(Rows::fixed(events.len()), 2);
        Ok(Adjacency {
            offsets: store.table("offsets", offsets, Arc::new(tcsr.offsets))?,
            entries: store.table("entries", Entry::spec(tcsr.entries.len()), Arc::new(tcsr.entries))?,
            position: store.table("position", position, Arc::new(tcsr.position))?,
        })
    }
}

impl EventTables {
    /// Puts `events` and their adjacency into `store`. Feature tables are shared, not copied, and keep their
    /// storage type.
    pub fn new(store: &mut Store, events: &Events) -> Result<Self> {
        Self::with(store, events, [events.edge_features.clone(), events.node_features.clone()], true)
    }
    /// As [`new`](Self::new), with the features converted to the storage type `kept` if necessary, and
    /// without adjacency unless the model reads `neighbors`.
    pub(crate) fn keeping(
        store: &mut Store,
        events: &Events,
        kept: StoredAs,
        neighbors: bool,
    ) -> Result<Self> {
        let as_kept = |f: &Option<Features>| f.as_ref().map(|f| f.stored_as(kept)).transpose();
        let features = [as_kept(&events.edge_features)?, as_kept(&events.node_features)?];
        Self::with(store, events, features, neighbors)
    }
    /// As [`keeping`](Self::keeping), with features of edges and of nodes in place of those of `events`.
    fn with(
        store: &mut Store,
        events: &Events,
        features: [Option<Features>; 2],
        neighbors: bool,
    ) -> Result<Self> {
        let (n, v) = (Rows::fixed(events.len()), Rows::fixed(events.nodes));
        let adjacency = neighbors.then(|| Adjacency::new(store, events)).transpose()?;
        let stream = [
            store.table("src", Spec::ids(n, 1), Arc::clone(&events.src) as _)?,
            store.table("dst", Spec::ids(n, 1), Arc::clone(&events.dst) as _)?,
            store.table("time", Spec::times(n), Arc::clone(&events.time) as _)?,
        ];
        Ok(EventTables {
            nodes: events.nodes,
            events: events.len(),
            gaps: Gaps::unlimited(events.seconds_per_tick()),
            history: History::Time,
            features: FeatureTables::new(store, [n, v], features)?,
            static_memory: None,
            memory: StoredMemory::default(),
            cursor: Cursor::new(store, stream, None)?,
            adjacency,
            stamp: store.zeros("stamp", Spec::ids(v, 1))?,
            rows: RowPlan::default(),
            training: RowPlan::default(),
        })
    }
    /// Returns how neighbours are sampled: `k` of each query's history, by a strategy.
    pub fn sampling(&self, k: usize, strategy: Strategy) -> Sampling {
        Sampling { k, strategy, history: self.history, gaps: self.gaps }
    }
    /// Keeps node memory and mails, the buffers `state`, out of device memory. To be called before programs
    /// are recorded.
    pub(crate) fn keep_memory_on_host(&mut self, store: &mut Store, state: &[BufferId]) -> Result<()> {
        self.memory.on_host = true;
        state.iter().try_for_each(|&id| store.keep_on_host(id))
    }
    /// Returns the tables as training steps read them. `older` says whether the steps that are recorded may
    /// read older rows than the step before has written.
    pub(crate) fn in_training(&self, older: bool) -> Self {
        EventTables { rows: RowPlan { older, ..self.training.clone() }, ..self.clone() }
    }
    /// Returns the rows of the static memory; `None` if they are a parameter or do not exist.
    pub(crate) fn static_rows(&self, parameters: &Parameters) -> Option<BufferId> {
        self.static_memory.filter(|&rows| !parameters.iter().any(|p| p.1 == rows))
    }
    /// Returns the number of nodes whose state this rank keeps: all, unless the state is partitioned.
    pub(crate) fn state_rows(&self) -> usize {
        self.rows.ranks.as_ref().map_or(self.nodes, |rank_tables| rank_tables.own().len())
    }
    /// Returns the spec of a `[rows, cols]` table of node memory or mails.
    pub(super) fn memory_spec(&self, rows: Rows, cols: usize) -> Spec {
        Spec { dtype: self.memory.stored_as.dtype(), rows, cols }
    }
    /// Sets the cursor before the first event of `range`, in `epoch`. The first batch has `short` fewer
    /// events than the others: 0 unless chunks are scheduled at random (`task::first_batch`).
    ///
    /// # Errors
    /// `Shape` if the stream has no such events.
    pub fn seek(
        &self,
        store: &mut Store,
        epoch: u32,
        range: std::ops::Range<usize>,
        short: usize,
    ) -> Result<()> {
        let (end, events) = (range.end, self.events);
        ensure!(
            "seek",
            self.cursor.arrivals.is_some() || end <= events,
            "a pass up to event {end} of {events}"
        );
        store.write(self.cursor.range, &[range.start as u32, range.end as u32, short as u32])?;
        store.write(self.cursor.clock, &[epoch, 0])
    }
    /// Lets the pass in `epoch` begin with batch `first` of the range.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub(crate) fn begin_at(&self, store: &mut Store, epoch: u32, first: usize) -> Result<()> {
        store.write(self.cursor.clock, &[epoch, first as u32])?;
        self.training.ranks.as_ref().map_or(Ok(()), |ranks| ranks.begin_at(store, first))
    }
    /// Appends the next batch of at most `capacity` events; over several ranks, this rank's slice of it.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn next_batch(&self, t: &mut Tape, capacity: usize) -> Result<Batch> {
        let Cursor { src, dst, time, range, clock, .. } = self.cursor;
        let [src, dst, time, range, clock] = t.stored_all([src, dst, time, range, clock])?;
        let stream = [src, dst, time];
        let batch = match &self.rows.ranks {
            None => t.next_batch(stream, range, clock, capacity),
            Some(ranks) => ranks.next_batch(t, stream, [range, clock], capacity),
        }?;
        self.arrived(t, batch)
    }
    /// Returns the adjacency as values.
    ///
    /// # Errors
    /// `Usage` if the model says that it reads no neighbours ([`ModelConfig::recent_events`]).
    ///
    /// [`ModelConfig::recent_events`]: super::ModelConfig::recent_events
    pub fn tcsr(&self, t: &mut Tape) -> Result<TcsrVars> {
        let Adjacency { offsets, entries, position } = self.adjacency.ok_or_else(|| {
            Error::usage("the model reads neighbours, and its recent_events says that it reads none")
                .remedy("return their number from ModelConfig::recent_events")
        })?;
        let [offsets, entries, position] = t.stored_all([offsets, entries, position])?;
        Ok(TcsrVars { offsets, entries, position })
    }
    /// Appends the list of the unique nodes of `roots`, with `stride` roots per event, and of `others`: see
    /// [`Tape::unique`]. Over ranks, a plan may ask for a row for each occurrence of a node instead.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn unique(&self, t: &mut Tape, roots: Var, others: &[Var], stride: usize) -> Result<UniqueNodes> {
        let stamp = self.stamp(t)?;
        match &self.rows.ranks {
            None => t.unique(stamp, roots, others, stride),
            Some(ranks) => ranks.unique(t, stamp, (roots, stride), others),
        }
    }
    /// Returns the stamps of the nodes.
    pub fn stamp(&self, t: &mut Tape) -> Result<Var> {
        t.stored(self.stamp)
    }
}
