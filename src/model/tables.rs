//! An event stream in a store: what every model reads, and the cursor.
use super::open_end::Arrivals;
use crate::{
    data::{Events, Features, Tcsr},
    error::{Result, ensure},
    ops::{
        Tape,
        next_batch::Batch,
        sample_neighbors::{Entry, Strategy, TcsrVars},
    },
    runtime::*,
};
use std::sync::Arc;

/// The tables of an event stream, and the cursor that walks it.
pub struct EventTables {
    /// Nodes of the stream.
    pub nodes: usize,
    /// Events of the stream.
    pub events: usize,
    /// Width of the edge features.
    pub edge_width: usize,
    /// Width of the node features.
    pub node_width: usize,
    /// Makes seconds of ticks; unlimited unless somebody sets it.
    pub gaps: Gaps,
    /// `[nodes, width]`: features of nodes, where there are any.
    pub node_features: Option<BufferId>,
    /// `[nodes, c]`: static memory, where somebody put it there before the model was built.
    pub static_memory: Option<BufferId>,
    /// What models keep node memory and mails in; f32 unless somebody sets it before the model is built.
    pub memory_as: StoredAs,
    /// `[1, 2]` u32: epoch, and batches done in the pass.
    pub clock: BufferId,
    /// `[1, 3]` u32: first event of the pass, one past its last, and by how many events its first batch is shorter.
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
    /// `[events]` u32, where edge features stay on the host or are kept in 16 bits: stamps of the events whose rows a step
    /// gathers.
    pub(super) event_stamp: Option<BufferId>,
    pub(super) on_host: bool,
    /// What changes as a stream without an end goes on.
    pub(super) arrivals: Option<Arrivals>,
}

impl EventTables {
    /// Puts `events` and its adjacency into `store`. Feature tables are shared, not copied, and stay in what they are kept in.
    pub fn new(store: &mut Store, events: &Events) -> Result<Self> {
        Self::with(store, events, [events.edge_features.clone(), events.node_features.clone()])
    }
    /// [`new`](Self::new) with the features kept as `kept`, converted where they are not yet.
    ///
    /// # Errors
    /// Data, as [`Features::kept_as`].
    pub fn keeping(store: &mut Store, events: &Events, kept: StoredAs) -> Result<Self> {
        let as_kept = |f: &Option<Features>| f.as_ref().map(|f| f.kept_as(kept)).transpose();
        Self::with(store, events, [as_kept(&events.edge_features)?, as_kept(&events.node_features)?])
    }
    /// With features of edges and of nodes.
    fn with(store: &mut Store, events: &Events, features: [Option<Features>; 2]) -> Result<Self> {
        let [edge_features, node_features] = features;
        let tcsr = Tcsr::of(events)?;
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
            arrivals: None,
            on_host: false,
        };
        if store.spec(edge).dtype.is_half() {
            tables.stamp_events(store)?;
        }
        Ok(tables)
    }
    fn stamp_events(&mut self, store: &mut Store) -> Result<()> {
        let events = Spec::ids(Rows::fixed(self.events), 1);
        if self.event_stamp.is_none() {
            self.event_stamp = Some(store.zeros("event stamp", events)?);
        }
        Ok(())
    }
    /// The feature tables.
    pub fn features(&self) -> impl Iterator<Item = BufferId> {
        std::iter::once(self.edge).chain(self.node_features)
    }
    /// Keeps the feature tables out of device memory; to be called before programs are recorded.
    pub fn keep_features_on_host(&mut self, store: &mut Store) -> Result<()> {
        self.features().try_for_each(|id| store.keep_on_host(id))?;
        self.on_host = true;
        self.stamp_events(store)
    }
    /// Whether devices read features from the host.
    pub fn features_on_host(&self) -> bool {
        self.on_host
    }
    /// Whether a step gathers the rows of the edge features `edge` that it reads, all in f32: because the table stays on the
    /// host, or is kept in 16 bits.
    pub fn gathers(&self, t: &Tape, edge: Var) -> bool {
        self.on_host || t.spec(edge).dtype.is_half()
    }
    /// The features of the batch's events `event`, in f32, and their rows in them, for what is written of a batch. A device
    /// reads a table on the host where it lies.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn batch_edge_rows(&self, t: &mut Tape, store: &Store, edge: Var, event: Var) -> Result<(Var, Var)> {
        if !t.spec(edge).dtype.is_half() {
            return Ok((edge, event));
        }
        let (edge, rows) = self.edge_rows(t, store, edge, vec![event])?;
        Ok((edge, rows[0]))
    }
    /// The rows of `edge` that slots of `events` name, and for each of these lists the slots' rows in them. Where the table
    /// stays on the host or is kept in 16 bits that is a table of a step: each row is read once, ahead of its use. Else it is
    /// `edge` itself.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn edge_rows(
        &self,
        t: &mut Tape,
        store: &Store,
        edge: Var,
        events: Vec<Var>,
    ) -> Result<(Var, Vec<Var>)> {
        let Some(stamp) = self.event_stamp.filter(|_| t.spec(edge).cols > 0) else {
            return Ok((edge, events));
        };
        let stamp = t.stored(store, stamp)?;
        let unique = t.unique(stamp, events[0], &events[1..], 2)?;
        Ok((t.gather_rows(edge, unique.node)?, unique.psi))
    }
    /// Shape and type of `[rows, cols]` of node memory or mails.
    pub(super) fn memory_spec(&self, rows: Rows, cols: usize) -> Spec {
        Spec { dtype: self.memory_as.dtype(), rows, cols }
    }
    /// Sets the cursor before the first event of `range`, in `epoch`. The first batch has `short` events less than the others:
    /// 0, but where chunks are scheduled at random (`task::first_batch`).
    ///
    /// # Errors
    /// `Shape` where the stream has no such events.
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
    /// Appends the next batch of at most `capacity` events.
    ///
    /// # Errors
    /// `Shape`, as the op's.
    pub fn next_batch(&self, t: &mut Tape, store: &Store, capacity: usize) -> Result<Batch> {
        let [src, dst, time, range, clock] =
            t.stored_all(store, [self.src, self.dst, self.time, self.range, self.clock])?;
        let batch = t.next_batch([src, dst, time], range, clock, capacity)?;
        self.arrived(t, store, batch)
    }
    /// The adjacency as values.
    pub fn tcsr(&self, t: &mut Tape, store: &Store) -> Result<TcsrVars> {
        let [offsets, entries, position] =
            t.stored_all(store, [self.offsets, self.entries, self.position])?;
        Ok(TcsrVars { offsets, entries, position })
    }
    /// Edge features by event, of no width where they are not `used`.
    pub fn edge_if(&self, t: &mut Tape, store: &Store, used: bool) -> Result<Var> {
        t.stored(store, if used { self.edge } else { self.no_edge })
    }
    /// Their width.
    pub fn edge_width_if(&self, used: bool) -> usize {
        if used { self.edge_width } else { 0 }
    }
    /// Stamps of the unique nodes.
    pub fn stamp(&self, t: &mut Tape, store: &Store) -> Result<Var> {
        t.stored(store, self.stamp)
    }
}

/// `recent` or `uniform`.
pub(super) fn strategy(name: &str, seed: u64) -> Option<Strategy> {
    match name {
        "recent" => Some(Strategy::Recent),
        "uniform" => Some(Strategy::Uniform(seed)),
        _ => None,
    }
}
