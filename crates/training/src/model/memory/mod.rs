//! Node memory with a mailbox of one lean mail per node, updated by a recurrent cell.
mod by_plan;

use super::{
    Embeddings, EventTables, RankTables, TimeEncoding,
    rows::{NodeRows, NodeTable, Read, RowCounts, RowsOf, WrittenTables},
};
use serde::{Deserialize, Serialize};
use std::fmt;
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{
        Tape,
        gru_memory::Gru,
        memory_update::{Cell, CellVars, FeatureRow, MemoryVars},
        next_batch::Batch,
        rnn_memory::Rnn,
        unique::UniqueNodes,
        write_memory::{self, Combiner},
    },
    runtime::*,
};

/// The cell that updates a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CellKind {
    /// A GRU.
    Gru,
    /// A plain RNN.
    Rnn,
}

impl fmt::Display for CellKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CellKind::Gru => "gru",
            CellKind::Rnn => "rnn",
        })
    }
}

impl CellKind {
    /// Returns the number of gates. Each gate has as many rows of the weights as the memory is wide.
    fn gates(self) -> usize {
        match self {
            CellKind::Gru => Gru::GATES,
            CellKind::Rnn => Rnn::GATES,
        }
    }
}

/// The memory of TGN, JODIE and DyRep: memory rows, mails, and the cell that updates the rows from the mails.
#[derive(Debug)]
pub struct NodeMemory {
    kind: CellKind,
    edge_features: bool,
    cell: [BufferId; 4],
    memory: BufferId,
    memory_time: BufferId,
    mail: BufferId,
    mail_event: BufferId,
    mail_time: BufferId,
    mail_edge: Option<BufferId>,
    rows: NodeRows,
}

/// Updated memory of unique nodes.
#[derive(Clone, Copy, Debug)]
pub struct FreshMemory {
    /// `[n, d]`: the memory after the mails.
    pub memory: Var,
    /// `[n]` i64: its times, in ticks.
    pub time: Var,
    /// What the writes need to know of the rows that were read.
    pub(super) read: Read,
}

impl NodeMemory {
    /// Adds the parameters `memory.*` and the state, with memory rows of width `d`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        time: &TimeEncoding,
        d: usize,
        kind: CellKind,
        combiner: Combiner,
        edge_features: bool,
    ) -> Result<Self> {
        RankTables::refuse_mean(data.rows.ranks.as_ref(), combiner == Combiner::Mean, "combiner")?;
        let (v, g) = (Rows::fixed(data.state_rows()), kind.gates());
        let f = data.edge_width_if(edge_features);
        let mut add = |name: &str, rows, cols| p.add(store, name, rows, cols, ScaledInit::FanIn(d));
        let cell = [
            add("memory.w_x", g * d, 2 * d + f + time.width)?,
            add("memory.w_h", g * d, d)?,
            add("memory.b_x", 1, g * d)?,
            add("memory.b_h", 1, g * d)?,
        ];
        let memory = store.zeros("memory", data.memory_spec(v, d))?;
        let memory_time = store.zeros("memory time", Spec::times(v))?;
        let mail = store.zeros("mail", data.memory_spec(v, d))?;
        let mail_event = store.zeros("mail event", Spec::ids(v, 1))?;
        let mail_time = store.zeros("mail time", Spec::times(v))?;
        let mail_edge = match combiner {
            Combiner::Mean => Some(store.zeros("mail features", data.memory_spec(v, f))?),
            Combiner::Last => None,
        };
        let tables = [(memory, 0), (memory_time, 0), (mail, 0), (mail_event, NONE), (mail_time, 0)];
        let tables = tables.map(|(id, empty)| NodeTable::new(id, empty, store.spec(id)));
        // Means of mails are not sent.
        let features = mail_edge.map(|id| NodeTable { row: None, ..NodeTable::new(id, 0, store.spec(id)) });
        let tables: Vec<NodeTable> = tables.into_iter().chain(features).collect();
        // A batch writes the rows of its sources and destinations.
        let written = WrittenTables { tables: &tables, rows_of_event: 2, appended: false };
        let rows = NodeRows::new(store, data, memory, [mail_event, mail_time], &[written])?;
        let memory = NodeMemory {
            kind,
            edge_features,
            cell,
            memory,
            memory_time,
            mail,
            mail_event,
            mail_time,
            mail_edge,
            rows: rows.handed_on(store, data)?,
        };
        memory.reset(store)?;
        Ok(memory)
    }
    /// Returns the bytes of memory rows of width `d` and mails for `nodes` nodes, with edge features of
    /// `width`.
    pub fn bytes(nodes: usize, d: usize, width: usize, combiner: Combiner, kept: StoredAs) -> usize {
        let features = if combiner == Combiner::Mean { width } else { 0 };
        nodes * (kept.size() * (2 * d + features) + 2 * size_of::<i64>() + size_of::<u32>())
    }
    /// Returns the buffers of memory rows and mails.
    pub fn state(&self) -> Vec<BufferId> {
        self.rows.state()
    }
    /// Returns the buffer of each mail's event id.
    pub fn mail_event(&self) -> BufferId {
        self.mail_event
    }
    /// Returns the buffers in which steps count what the rows that they read were like.
    pub fn row_counts(&self) -> RowCounts {
        self.rows.counts()
    }
    /// Empties memory and mailbox.
    pub fn reset(&self, store: &mut Store) -> Result<()> {
        self.rows.reset(store)
    }
    /// Appends the update of the unique nodes by their mails.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn update(
        &self,
        t: &mut Tape,
        data: &EventTables,
        time: &TimeEncoding,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
    ) -> Result<FreshMemory> {
        let update = |t: &mut Tape, rows: &RowsOf| self.updated(t, data, time, rows);
        let ([memory, time], read) = self.rows.update(t, data, unique, batch, &update)?;
        Ok(FreshMemory { memory, time, read })
    }
    /// Appends the memory of rows after their mails, and its times.
    fn updated(
        &self,
        t: &mut Tape,
        data: &EventTables,
        time: &TimeEncoding,
        rows: &RowsOf,
    ) -> Result<[Var; 2]> {
        let edge = data.edge_if(t, self.edge_features)?;
        let mut state = self.vars(rows, edge)?;
        let cell = {
            let (time_w, time_b) = time.vars(t)?;
            let [w_x, w_h, b_x, b_h] = t.stored_all(self.cell)?;
            CellVars { time_w, time_b, w_x, w_h, b_x, b_h }
        };
        let row = if self.mail_edge.is_some() {
            if state.gathered { FeatureRow::Unique } else { FeatureRow::Node }
        } else if data.gathers(t, edge) {
            // The previous step decides which event a mail belongs to: of all rows of features, only these
            // cannot be prefetched.
            let events = match state.gathered {
                true => state.mail_event,
                false => t.gather_rows(state.mail_event, rows.row)?,
            };
            state.edge = data.each_mail_edge_row(t, edge, events, rows.most)?;
            FeatureRow::Unique
        } else {
            FeatureRow::Event
        };
        let (memory, time) = match self.kind {
            CellKind::Gru => t.memory_update::<Gru>(rows.row, state, cell, row, data.gaps),
            CellKind::Rnn => t.memory_update::<Rnn>(rows.row, state, cell, row, data.gaps),
        }?;
        Ok([memory, time])
    }
    /// Returns the tables of rows by name; `edge` are the features of events.
    fn vars(&self, rows: &RowsOf, edge: Var) -> Result<MemoryVars> {
        let [memory, memory_time, mail, mail_event, mail_time, ref features @ ..] = rows.tables[..] else {
            return Err(Error::shape("node memory", "a table is missing"));
        };
        let edge = features.first().copied().unwrap_or(edge);
        let gathered = rows.gathered;
        Ok(MemoryVars { memory, memory_time, mail, mail_event, mail_time, edge, gathered })
    }
    /// Appends the writes of a batch's memory and mails.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or if `e` has no memory of the unique nodes.
    pub fn write(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        match data.rows.is_plain() {
            true => self.write_in_place(t, data, batch, stride, e),
            false => self.write_as_planned(t, data, batch, stride, e),
        }
    }
    /// Appends the writes of new memory and mails to the tables of this rank.
    fn write_in_place(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        let (unique, [memory, time]) = (e.unique_nodes()?, e.new_memory()?);
        let edge = data.edge_if(t, self.edge_features)?;
        let state = self.vars(&self.rows.in_place(t, unique.node)?, edge)?;
        let combiner = if self.mail_edge.is_some() { Combiner::Mean } else { Combiner::Last };
        let (edge, edge_row) = match combiner {
            Combiner::Mean => data.batch_edge_rows(t, edge, batch.event)?,
            Combiner::Last => (edge, batch.event),
        };
        let written = write_memory::WrittenBatch {
            node: unique.node,
            phi: unique.phi,
            positives: unique.positives,
            psi: unique.psi[0],
            memory,
            content: e.content,
            time,
            event: batch.event,
            event_time: batch.time,
            edge,
            edge_row,
        };
        t.write_memory(state, &written, combiner, stride)
    }
}
