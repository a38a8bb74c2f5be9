//! An event stream in a store: the tables that every model reads, and the cursor.
use super::{
    RankTables, RowPlan,
    open_end::Arrivals,
    rows::{FeatureRows, Known},
};
use std::sync::Arc;
use tgnn::{
    autograd::Parameters,
    error::{Result, ensure},
    ops::{
        Tape,
        next_batch::{Batch, Slice},
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
    /// Width of the edge features.
    pub edge_width: usize,
    /// Width of the node features.
    pub node_width: usize,
    /// Conversion of ticks to seconds; without a longest gap unless the caller sets one.
    pub gaps: Gaps,
    /// Which events a query sees as neighbours; those earlier in time unless the caller sets it before the
    /// model is built.
    pub history: History,
    /// `[nodes, width]`: node features, if there are any. Over ranks it may have only this rank's share of
    /// the rows, so rows are read by [`node_rows`](Self::node_rows).
    pub node_features: Option<BufferId>,
    /// `[nodes, c]`: static memory, if the caller sets it before the model is built.
    pub static_memory: Option<BufferId>,
    /// Storage type of node memory and mails; f32 unless the caller changes it before the model is built.
    pub memory_as: StoredAs,
    /// `[1, 2]` u32: epoch, and number of batches done in the pass.
    pub clock: BufferId,
    /// `[1, 3]` u32: first event of the pass, one past its last event, and the number of events by which the
    /// first batch is shorter than the others.
    pub range: BufferId,
    pub(super) src: BufferId,
    pub(super) dst: BufferId,
    pub(super) time: BufferId,
    pub(super) offsets: BufferId,
    pub(super) entries: BufferId,
    pub(super) position: BufferId,
    pub(super) edge: BufferId,
    pub(super) no_edge: BufferId,
    pub(super) stamp: BufferId,
    /// `[events]` u32: stamps of the events whose edge features a step gathers. `None` unless the edge
    /// features stay on the host, are stored in 16 bits or are partitioned.
    pub(super) event_stamp: Option<BufferId>,
    pub(super) on_host: bool,
    /// Whether devices keep node memory and mails on the host.
    pub(super) memory_on_host: bool,
    /// How ranks exchange rows of features, if each keeps a share of them.
    pub(super) feature_rows: Option<FeatureRows>,
    /// How steps get the rows of nodes, and how training steps do. Set before the model is built.
    pub(crate) rows: RowPlan,
    pub(crate) training: RowPlan,
    /// Buffers that change as events arrive, for an open-ended stream.
    pub(super) arrivals: Option<Arrivals>,
}

impl EventTables {
    /// Puts `events` and their adjacency into `store`. Feature tables are shared, not copied, and keep their
    /// storage type.
    pub fn new(store: &mut Store, events: &Events) -> Result<Self> {
        Self::with(store, events, [events.edge_features.clone(), events.node_features.clone()])
    }
    /// As [`new`](Self::new), with the features converted to the storage type `kept` if necessary.
    pub(crate) fn keeping(store: &mut Store, events: &Events, kept: StoredAs) -> Result<Self> {
        let as_kept = |f: &Option<Features>| f.as_ref().map(|f| f.kept_as(kept)).transpose();
        Self::with(store, events, [as_kept(&events.edge_features)?, as_kept(&events.node_features)?])
    }
    /// As [`new`](Self::new), with features of edges and of nodes in place of those of `events`.
    fn with(store: &mut Store, events: &Events, features: [Option<Features>; 2]) -> Result<Self> {
        let [edge_features, node_features] = features;
        let tcsr = Tcsr::new(events)?;
        let (n, v) = (Rows::fixed(events.len()), Rows::fixed(events.nodes));
        let entries = Entry::spec(tcsr.entries.len());
        let mut table = |name, rows, f: Features| {
            let spec = Spec { dtype: f.kept().dtype(), rows, cols: f.cols() };
            store.table(name, spec, Arc::new(f))
        };
        let node_features = node_features.map(|f| table("node features", v, f)).transpose()?;
        let edge = match edge_features {
            Some(f) => table("edge features", n, f)?,
            None => store.table("edge features", Spec::real(n, 0), Arc::new(Vec::<f32>::new()))?,
        };
        let mut tables = EventTables {
            nodes: events.nodes,
            events: events.len(),
            edge_width: events.edge_width(),
            node_width: events.node_width(),
            gaps: Gaps::unlimited(events.seconds_per_tick()),
            history: History::Time,
            node_features,
            static_memory: None,
            memory_as: StoredAs::F32,
            clock: store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?,
            range: store.zeros("range", Spec::ids(Rows::fixed(1), 3))?,
            src: store.table("src", Spec::ids(n, 1), Arc::new(events.src.clone()))?,
            dst: store.table("dst", Spec::ids(n, 1), Arc::new(events.dst.clone()))?,
            time: store.table("time", Spec::times(n), Arc::new(events.time.clone()))?,
            offsets: store.table(
                "offsets",
                Spec::times(Rows::fixed(events.nodes + 1)),
                Arc::new(tcsr.offsets),
            )?,
            entries: store.table("entries", entries, Arc::new(tcsr.entries))?,
            position: store.table("position", Spec::ids(n, 2), Arc::new(tcsr.position))?,
            edge,
            no_edge: store.table("no features", Spec::real(n, 0), Arc::new(Vec::<f32>::new()))?,
            stamp: store.zeros("stamp", Spec::ids(v, 1))?,
            event_stamp: None,
            rows: RowPlan::default(),
            training: RowPlan::default(),
            arrivals: None,
            on_host: false,
            memory_on_host: false,
            feature_rows: None,
        };
        if store.spec(edge).dtype.is_half() {
            tables.stamp_events(store)?;
        }
        Ok(tables)
    }
    pub(super) fn stamp_events(&mut self, store: &mut Store) -> Result<()> {
        let events = Spec::ids(Rows::fixed(self.events), 1);
        if self.event_stamp.is_none() {
            self.event_stamp = Some(store.zeros("event stamp", events)?);
        }
        Ok(())
    }
    /// Returns how neighbours are sampled: `k` of each query's history, by a strategy.
    pub fn sampling(&self, k: usize, strategy: Strategy) -> Sampling {
        Sampling { k, strategy, history: self.history, gaps: self.gaps }
    }
    /// Returns the feature tables.
    pub fn features(&self) -> impl Iterator<Item = BufferId> {
        std::iter::once(self.edge).chain(self.node_features)
    }
    /// Keeps the feature tables out of device memory. To be called before programs are recorded.
    pub(crate) fn keep_features_on_host(&mut self, store: &mut Store) -> Result<()> {
        self.features().try_for_each(|id| store.keep_on_host(id))?;
        self.on_host = true;
        self.stamp_events(store)
    }
    /// Keeps node memory and mails, the buffers `state`, out of device memory. To be called before programs
    /// are recorded.
    pub(crate) fn keep_memory_on_host(&mut self, store: &mut Store, state: &[BufferId]) -> Result<()> {
        self.memory_on_host = true;
        state.iter().try_for_each(|&id| store.keep_on_host(id))
    }
    /// Whether devices keep node memory and mails on the host.
    pub(crate) fn memory_on_host(&self) -> bool {
        self.memory_on_host
    }
    /// Whether devices read features from the host.
    pub(crate) fn features_on_host(&self) -> bool {
        self.on_host
    }
    /// Whether a step gathers into f32 the rows of the edge features `edge` that it reads: true if the table
    /// stays on the host, is stored in 16 bits or is partitioned.
    pub fn gathers(&self, t: &Tape, edge: Var) -> bool {
        self.on_host || t.spec(edge).dtype.is_half() || self.exchanged(t, edge).is_some()
    }
    /// Returns the features of the batch's events `event`, and the events' rows in them, for the writes of a
    /// batch. Rows of a table in 16 bits are gathered into f32; of a table in f32, devices read the rows in
    /// place, even on the host.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn batch_edge_rows(&self, t: &mut Tape, edge: Var, event: Var) -> Result<(Var, Var)> {
        if !t.spec(edge).dtype.is_half() && self.exchanged(t, edge).is_none() {
            return Ok((edge, event));
        }
        let (edge, rows) = self.edge_rows(t, edge, vec![event])?;
        Ok((edge, rows[0]))
    }
    /// Returns a table with the rows of `edge` that the lists `events` refer to, and for each list its row
    /// indices into that table. If `edge` stays on the host, is stored in 16 bits or is partitioned over
    /// ranks, the table is built in the step: each row is read once, ahead of its use. Otherwise it is `edge`
    /// itself. The events must follow from the data alone; for those of mails there is
    /// [`mail_edge_rows`](Self::mail_edge_rows).
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn edge_rows(&self, t: &mut Tape, edge: Var, events: Vec<Var>) -> Result<(Var, Vec<Var>)> {
        if let Some(rows) = self.exchanged(t, edge) {
            return self.fetched(t, (rows, Known::Ahead), edge, &events);
        }
        let Some(stamp) = self.event_stamp.filter(|_| t.spec(edge).cols > 0) else {
            return Ok((edge, events));
        };
        let stamp = t.stored(stamp)?;
        let unique = t.unique(stamp, events[0], &events[1..], 2)?;
        Ok((t.gather_rows(edge, unique.node)?, unique.psi))
    }
    /// Returns the tables as training steps read them. `older` says whether the steps that are recorded may
    /// read older rows than the step before has written.
    pub(crate) fn in_training(&self, older: bool) -> Self {
        EventTables { rows: RowPlan { older, ..self.training.clone() }, ..self.clone() }
    }
    /// Returns the rows of the static memory; `None` if they are a parameter or do not exist.
    pub fn static_rows(&self, parameters: &Parameters) -> Option<BufferId> {
        self.static_memory.filter(|&rows| !parameters.iter().any(|p| p.1 == rows))
    }
    /// Returns the number of nodes whose state this rank keeps: all, unless the state is partitioned.
    pub fn state_rows(&self) -> usize {
        self.rows.ranks.as_ref().map_or(self.nodes, |over| over.own().len())
    }
    /// Returns the spec of a `[rows, cols]` table of node memory or mails.
    pub(super) fn memory_spec(&self, rows: Rows, cols: usize) -> Spec {
        Spec { dtype: self.memory_as.dtype(), rows, cols }
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
        ensure!("seek", self.arrivals.is_some() || end <= events, "a pass up to event {end} of {events}");
        store.write(self.range, &[range.start as u32, range.end as u32, short as u32])?;
        store.write(self.clock, &[epoch, 0])
    }
    /// Appends the next batch of at most `capacity` events; over several ranks, this rank's slice of it.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn next_batch(&self, t: &mut Tape, capacity: usize) -> Result<Batch> {
        let [src, dst, time, range, clock] =
            t.stored_all([self.src, self.dst, self.time, self.range, self.clock])?;
        let slice = self.rows.ranks.as_ref().map_or(Slice::ALL, RankTables::slice);
        let batch = t.next_slice([src, dst, time], range, clock, capacity, slice)?;
        self.arrived(t, batch)
    }
    /// Returns the adjacency as values.
    pub fn tcsr(&self, t: &mut Tape) -> Result<TcsrVars> {
        let [offsets, entries, position] = t.stored_all([self.offsets, self.entries, self.position])?;
        Ok(TcsrVars { offsets, entries, position })
    }
    /// Returns the edge features by event, or a table of width 0 if they are not `used`. Over ranks it may
    /// have only this rank's share of the rows, so rows are read by [`edge_rows`](Self::edge_rows) and
    /// [`mail_edge_rows`](Self::mail_edge_rows).
    pub fn edge_if(&self, t: &mut Tape, used: bool) -> Result<Var> {
        t.stored(if used { self.edge } else { self.no_edge })
    }
    /// Returns the width of [`edge_if`](Self::edge_if).
    pub fn edge_width_if(&self, used: bool) -> usize {
        if used { self.edge_width } else { 0 }
    }
    /// Appends the list of the unique nodes of `roots`, with `stride` roots per event, and of `others`: see
    /// [`Tape::unique`]. Over ranks, a plan may ask for a row for each occurrence of a node instead.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn unique(&self, t: &mut Tape, roots: Var, others: &[Var], stride: usize) -> Result<UniqueNodes> {
        let stamp = self.stamp(t)?;
        match self.rows.ranks.as_ref().is_some_and(RankTables::repeats) {
            true => t.occurrences(stamp, roots, others, stride),
            false => t.unique(stamp, roots, others, stride),
        }
    }
    /// Returns the stamps of the nodes.
    pub fn stamp(&self, t: &mut Tape) -> Result<Var> {
        t.stored(self.stamp)
    }
}
