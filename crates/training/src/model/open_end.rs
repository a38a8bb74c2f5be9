//! Open-ended streams, whose events arrive batch by batch. The tables hold the history that is still needed
//! and the events of the latest batch.
use super::{
    EventTables, FeatureTables, RowPlan,
    tables::{Adjacency, Arrivals, Cursor, StoredMemory},
};
use std::sync::Arc;
use tgnn::{
    error::Result,
    ops::{
        MOST_ITEMS, Tape,
        next_batch::Batch,
        sample_neighbors::{Entry, History},
    },
    runtime::*,
};
use tgnn_data::Features;

/// Sizes of the tables of an open-ended stream.
#[derive(Clone, Debug)]
pub struct OpenEnd {
    /// Number of nodes.
    pub nodes: usize,
    /// Maximum number of events in a batch.
    pub batch: usize,
    /// Number of most recent events kept per node.
    pub slots: usize,
    /// Number of event ids, which count from 0; also the number of rows of the edge features, if these have a
    /// width.
    pub events: usize,
    /// Width of the edge features.
    pub edge_width: usize,
    /// Features of nodes; nodes beyond their rows get zeros.
    pub node_features: Option<Features>,
    /// Conversion of ticks to seconds.
    pub gaps: Gaps,
    /// Which events a query sees as neighbours.
    pub history: History,
    /// Storage type of node memory and mails.
    pub memory_as: StoredAs,
}

impl EventTables {
    /// Adds the tables of a stream whose events arrive batch by batch, without history yet.
    pub fn open_ended(store: &mut Store, room: &OpenEnd) -> Result<(Self, Arrivals)> {
        let (b, v, f) = (Rows::fixed(room.batch), Rows::fixed(room.nodes), room.edge_width);
        let offsets: Vec<i64> = (0..=room.nodes).map(|v| (v * room.slots) as i64).collect();
        // Rows of no features take no memory, but mails still name them.
        let rows = room.events.min(MOST_ITEMS);
        let came = Arrivals {
            src: store.zeros("src", Spec::ids(b, 1))?,
            dst: store.zeros("dst", Spec::ids(b, 1))?,
            time: store.zeros("time", Spec::times(b))?,
            event: store.zeros("event", Spec::ids(b, 1))?,
            features: store.zeros("features", Spec::real(b, f))?,
            entries: store.zeros("entries", Entry::spec(room.nodes * room.slots))?,
            edge: store.zeros("edge features", Spec::real(Rows::fixed(rows), f))?,
        };
        let empty = Entry { event: NONE, ..Entry::default() };
        bytemuck::cast_slice_mut::<i64, Entry>(store.get_mut(came.entries)?).fill(empty);
        let node_features = room.node_features.as_ref().map(|features| -> Result<BufferId> {
            let mut all = features.values().to_vec();
            all.resize(room.nodes * features.cols(), 0.0);
            store.table("node features", Spec::real(v, features.cols()), Arc::new(all))
        });
        let adjacency = Adjacency {
            offsets: store.table("offsets", Spec::times(Rows::fixed(room.nodes + 1)), Arc::new(offsets))?,
            entries: came.entries,
            position: store.table("position", Spec::ids(Rows::fixed(0), 2), Arc::new(Vec::<u32>::new()))?,
        };
        let node_features = node_features.transpose()?;
        let tables = EventTables {
            nodes: room.nodes,
            events: rows,
            gaps: room.gaps,
            history: room.history,
            features: FeatureTables::of_tables(store, Rows::fixed(rows), came.edge, node_features)?,
            static_memory: None,
            memory: StoredMemory { stored_as: room.memory_as, on_host: false },
            cursor: Cursor::new(store, [came.src, came.dst, came.time], Some(came))?,
            adjacency: Some(adjacency),
            stamp: store.zeros("stamp", Spec::ids(v, 1))?,
            rows: RowPlan::default(),
            training: RowPlan::default(),
        };
        Ok((tables, came))
    }
    /// Appends the batch's events to the history of an open-ended stream, as the latest of their nodes. To be
    /// recorded before everything that reads history, if queries see earlier events of their batch, else
    /// after it.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn append(&self, t: &mut Tape, batch: &Batch) -> Result<()> {
        let Some(came) = self.cursor.arrivals else { return Ok(()) };
        let entries = t.stored(came.entries)?;
        if t.spec(entries).is_empty() {
            return Ok(());
        }
        let (node, _) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let stamp = t.stored(self.stamp)?;
        let to = t.unique(stamp, node, &[], 2)?;
        let roots = t.group_roots(to.psi[0], None, to.root_rows)?;
        let lists = (self.tcsr(t)?.offsets, entries);
        t.append_history(lists, batch, &to, roots, 2)
    }
    /// Completes a batch that arrived on an open-ended stream: its events have ids of their own, and their
    /// features have rows in the feature table.
    pub(super) fn arrived(&self, t: &mut Tape, mut batch: Batch) -> Result<Batch> {
        let Some(came) = self.cursor.arrivals else { return Ok(batch) };
        let event = t.stored(came.event)?;
        batch.event = t.gather_rows(event, batch.row)?;
        if self.features.edge_width > 0 {
            let (table, features) = (t.stored(came.edge)?, t.stored(came.features)?);
            let rows = t.gather_rows(features, batch.row)?;
            t.write_rows(table, batch.event, rows)?;
        }
        Ok(batch)
    }
}
