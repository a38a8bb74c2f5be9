//! Tables of features of edges and nodes, and how a step gets the rows of them that it reads.
use super::{
    EventTables,
    rows::{FeatureRows, KnownWhen},
};
use std::sync::Arc;
use tgnn::{error::Result, ops::Tape, runtime::*};
use tgnn_data::Features;

/// Tables of features of edges and nodes. Over ranks they may have only this rank's share of the rows, and
/// they may stay on the host or be stored in 16 bits: models read rows by the methods of [`EventTables`].
#[derive(Clone, Debug)]
pub struct FeatureTables {
    /// Width of the edge features.
    pub edge_width: usize,
    /// Width of the node features.
    pub node_width: usize,
    /// `[nodes, width]`: node features, if there are any; see [`EventTables::node_rows`].
    pub node: Option<BufferId>,
    /// `[events, width]`: edge features.
    edge: BufferId,
    /// `[events, 0]`: in place of edge features that are not used.
    no_edge: BufferId,
    /// `[events]` u32: stamps of the events whose edge features a step gathers. `None` unless the edge
    /// features stay on the host, are stored in 16 bits or are partitioned.
    pub(super) event_stamp: Option<BufferId>,
    on_host: bool,
    /// How ranks exchange rows, if each keeps a share of them.
    pub(super) rows: Option<FeatureRows>,
}

impl FeatureTables {
    /// Adds the features of `[events, nodes]` to `store`: shared, not copied, in their storage type.
    pub(super) fn new(
        store: &mut Store,
        [events, nodes]: [Rows; 2],
        [edge, node]: [Option<Features>; 2],
    ) -> Result<Self> {
        let mut table = |name, rows, f: Features| {
            let spec = Spec { dtype: f.kept().dtype(), rows, cols: f.cols() };
            store.table(name, spec, Arc::new(f))
        };
        let node = node.map(|f| table("node features", nodes, f)).transpose()?;
        let edge = edge.map(|f| table("edge features", events, f)).transpose()?;
        let edge = match edge {
            Some(edge) => edge,
            None => store.table("edge features", Spec::real(events, 0), Arc::new(Vec::<f32>::new()))?,
        };
        let mut tables = Self::of_tables(store, events, edge, node)?;
        if store.spec(edge).dtype.is_half() {
            tables.stamp_events(store)?;
        }
        Ok(tables)
    }
    /// Describes the features of tables that are in `store`.
    pub(super) fn of_tables(
        store: &mut Store,
        events: Rows,
        edge: BufferId,
        node: Option<BufferId>,
    ) -> Result<Self> {
        Ok(FeatureTables {
            edge_width: store.spec(edge).cols,
            node_width: node.map_or(0, |node| store.spec(node).cols),
            node,
            edge,
            no_edge: store.table("no features", Spec::real(events, 0), Arc::new(Vec::<f32>::new()))?,
            event_stamp: None,
            on_host: false,
            rows: None,
        })
    }
    /// Returns the tables.
    pub fn tables(&self) -> impl Iterator<Item = BufferId> {
        std::iter::once(self.edge).chain(self.node)
    }
    /// Whether there are any features.
    pub fn exist(&self) -> bool {
        self.edge_width + self.node_width > 0
    }
    /// Whether devices read features from the host.
    pub(crate) fn on_host(&self) -> bool {
        self.on_host
    }
    /// Whether this rank keeps only its share of the rows.
    pub(crate) fn partitioned(&self) -> bool {
        self.rows.is_some()
    }
    /// Keeps the tables out of device memory. To be called before programs are recorded.
    pub(crate) fn keep_on_host(&mut self, store: &mut Store) -> Result<()> {
        self.tables().try_for_each(|id| store.keep_on_host(id))?;
        self.on_host = true;
        self.stamp_events(store)
    }
    /// Lets steps gather the edge features that they read.
    pub(super) fn stamp_events(&mut self, store: &mut Store) -> Result<()> {
        let events = store.spec(self.no_edge).rows;
        if self.event_stamp.is_none() {
            self.event_stamp = Some(store.zeros("event stamp", Spec::ids(events, 1))?);
        }
        Ok(())
    }
}

impl EventTables {
    /// Whether a step gathers into f32 the rows of the edge features `edge` that it reads: true if the table
    /// stays on the host, is stored in 16 bits or is partitioned.
    pub fn gathers(&self, t: &Tape, edge: Var) -> bool {
        self.features.on_host || t.spec(edge).dtype.is_half() || self.exchanged(t, edge).is_some()
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
            return self.fetched(t, (rows, KnownWhen::Ahead), edge, &events);
        }
        let Some(stamp) = self.features.event_stamp.filter(|_| t.spec(edge).cols > 0) else {
            return Ok((edge, events));
        };
        let stamp = t.stored(stamp)?;
        let unique = t.unique(stamp, events[0], &events[1..], 2)?;
        Ok((t.gather_rows(edge, unique.node)?, unique.psi))
    }
    /// As [`edge_rows`](Self::edge_rows), for the events of mails, which follow from node memory. The list
    /// must have the same capacity on all ranks.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn mail_edge_rows(&self, t: &mut Tape, edge: Var, events: Var) -> Result<(Var, Var)> {
        let (edge, rows) = match self.exchanged(t, edge) {
            Some(rows) => {
                let known = KnownWhen::WithMails(t.spec(events).len());
                self.fetched(t, (rows, known), edge, &[events])?
            }
            None => self.edge_rows(t, edge, vec![events])?,
        };
        Ok((edge, rows[0]))
    }
    /// Returns the row of `edge` of each of the mails' events `events`, zeros for [`NONE`]. On some ranks the
    /// list may be longer than on others; on N ranks, all lists together have at most N times `each` events.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn each_mail_edge_row(&self, t: &mut Tape, edge: Var, events: Var, each: usize) -> Result<Var> {
        let Some(rows) = self.exchanged(t, edge) else { return t.gather_rows(edge, events) };
        let (rows, index) = self.fetched(t, (rows, KnownWhen::WithMails(each)), edge, &[events])?;
        t.gather_rows(rows, index[0])
    }
    /// Returns the rows of the nodes `node` of a table by node: of node features, which ranks may keep a
    /// share of each, or of another table.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn node_rows(&self, t: &mut Tape, table: BufferId, node: Var) -> Result<Var> {
        let features = self.features.node == Some(table);
        let table = t.stored(table)?;
        match self.features.rows.as_ref().filter(|_| features) {
            None => t.gather_rows(table, node),
            Some(rows) => self.fetched_nodes(t, rows, table, node),
        }
    }
    /// Returns the edge features by event, or a table of width 0 if they are not `used`. Over ranks it may
    /// have only this rank's share of the rows, so rows are read by [`edge_rows`](Self::edge_rows) and
    /// [`mail_edge_rows`](Self::mail_edge_rows).
    pub fn edge_if(&self, t: &mut Tape, used: bool) -> Result<Var> {
        t.stored(if used { self.features.edge } else { self.features.no_edge })
    }
    /// Returns the width of [`edge_if`](Self::edge_if).
    pub fn edge_width_if(&self, used: bool) -> usize {
        if used { self.features.edge_width } else { 0 }
    }
}
