//! Where the rows of nodes are, and how they come to a step and go back.
//!
//! A model's state has rows by node, such as memory and mails. A model says what is done with the rows of a
//! batch; this folder says where they are. With one rank, this file reads them in place and the model writes
//! them in place. All else belongs to a published system:
//!
//! | file | what | system |
//! | --- | --- | --- |
//! | `planned.rs` | the order of what follows, in an update and in a write | |
//! | `rank_tables.rs` | rows on other ranks: replicated, partitioned by owner, cached | Sven, DepCache, DepComm |
//! | `turns.rs` | rows that are written when a rank's turn is over | DistTGL |
//! | `handed_rows.rs`, `roots_first.rs` | rows that are handed to the next rank; positive roots before the others | PipeTGL |
//! | `missed_writes.rs` | counts of what older rows have missed | MSPipe |
//! | `similar_nodes.rs` | rows that are mixed with those of similar nodes | MSPipe-S |
//! | `feature_rows.rs` | features of which each rank keeps a share | this crate |
mod feature_rows;
mod handed_rows;
mod missed_writes;
mod planned;
mod rank_tables;
mod roots_first;
mod similar_nodes;
mod turns;

pub(super) use feature_rows::{FeatureRows, KnownWhen};
pub use rank_tables::RankTables;
pub(crate) use rank_tables::RowTravel;

use super::EventTables;
use handed_rows::{HandedRoots, HandedRows};
use missed_writes::MissedWrites;
use roots_first::UpdatedRoots;
use similar_nodes::{MixedMemory, SimilarNodes};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch, unique::UniqueNodes},
    runtime::*,
};
use turns::{TurnWrites, WriteRows};

/// How steps get the rows of nodes, as a plan says. By default, one rank reads and writes them in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowPlan {
    /// The ranks among which rows travel.
    pub ranks: Option<RankTables>,
    /// Whether steps may read older rows than the step before has written.
    pub older: bool,
    /// Ticks without an event after which the memory of a node is mixed with that of similar nodes.
    pub mixed_after: Option<i64>,
    /// Whether the rows of positive roots are updated apart from those of other nodes and before them.
    pub roots_first: bool,
}

impl RowPlan {
    /// Whether steps read and write rows in place, one step after the other.
    pub(super) fn is_plain(&self) -> bool {
        self.ranks.is_none() && !self.gathers()
    }
    /// Whether steps gather the rows that they read before they compute, because later steps may write them
    /// in the meantime.
    fn gathers(&self) -> bool {
        self.older || self.mixed_after.is_some() || self.roots_first
    }
    /// Returns the ranks to which new rows are sent; `None` if rows are written in place.
    fn others(&self) -> Option<&RankTables> {
        self.ranks.as_ref().filter(|ranks| !ranks.is_alone())
    }
}

/// A table of a model's state, with rows by node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeTable {
    pub id: BufferId,
    /// The word that fills the table when the state is empty.
    pub empty: u32,
    /// Shape of the rows that are written for one node, in f32; `None` if no rows of it are sent.
    pub row: Option<Spec>,
    /// Number of rows of a node.
    pub each: usize,
}

impl NodeTable {
    /// Describes a table of `spec`, with one row for each node.
    pub fn new(id: BufferId, empty: u32, spec: Spec) -> Self {
        let row = if spec.dtype.is_half() { Spec { dtype: DType::F32, ..spec } } else { spec };
        NodeTable { id, empty, row: Some(row), each: 1 }
    }
}

/// Tables that are written together.
pub(super) struct WrittenTables<'a> {
    pub tables: &'a [NodeTable],
    /// Most rows that are written for an event.
    pub rows_of_event: usize,
    /// Whether later rows of a node follow earlier ones instead of replacing them.
    pub appended: bool,
}

/// The tables of a model's state, and how their rows travel.
#[derive(Debug)]
pub(super) struct NodeRows {
    tables: Vec<NodeTable>,
    /// The table of memory, and those of the events and times of mails.
    memory: BufferId,
    mails: [BufferId; 2],
    /// For each group of tables that are written together.
    turns: Vec<TurnWrites>,
    missed: Option<MissedWrites>,
    similar: Option<SimilarNodes>,
    handed: Option<HandedRows>,
}

/// The rows of some nodes, as an update reads them.
#[derive(Clone, Debug)]
pub(super) struct RowsOf {
    /// The row of each node in the tables.
    pub row: Var,
    /// The tables, in the order in which they were described.
    pub tables: Vec<Var>,
    /// Whether these are the gathered rows in place of stored tables: row i of a table is that of node i.
    pub gathered: bool,
    /// Most nodes whose rows a rank asks for.
    pub most: usize,
    /// Whether the rows have come from other ranks.
    pub received: bool,
}

/// Appends the new memory of rows, and its times.
pub(super) type Update<'a> = dyn Fn(&mut Tape, &RowsOf) -> Result<[Var; 2]> + 'a;

/// The buffers in which steps count what the rows that they read were like.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowCounts {
    /// `[bins]` u32: number of rows by the number of writes that they have missed, if training steps may read
    /// older rows than the step before has written.
    pub missed_writes: Option<BufferId>,
    /// f32 `[1, 6]` ([`row_errors`](tgnn::ops::row_errors)): errors of rows that training steps mix with
    /// those of similar nodes, if they do.
    pub errors: Option<BufferId>,
}

/// Appends tables of new rows, and the rows of them for some nodes.
type SentRows<'a> = dyn Fn(&mut Tape, Var) -> Result<Vec<(Var, Var)>> + 'a;

/// What a step has read, for its writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    /// `[n]` u32: the versions of the rows, if they may be older.
    seen: Option<Var>,
    /// The rows, if some were mixed with those of similar nodes.
    mixed: Option<MixedMemory>,
    /// The positive roots, if they were updated apart.
    roots: Option<UpdatedRoots>,
}

impl Read {
    /// Returns the rows of memory of the unique nodes, if they were mixed with those of similar nodes.
    pub fn memory(&self) -> Option<Var> {
        self.mixed.map(|mixed| mixed.rows)
    }
}

/// New rows of nodes, and how they are written: to the tables of this rank, or to those of others.
pub(super) struct Writes<'a> {
    /// The number of the group of tables.
    pub group: usize,
    /// The nodes, of which the first `limit` have new rows, or all.
    pub node: Var,
    pub limit: Option<Var>,
    /// Appends the writes in place.
    pub in_place: &'a dyn Fn(&mut Tape) -> Result<()>,
    /// Returns for each table a table of new rows, and the rows of it to send, for the nodes that its
    /// argument lists; `parts` of them are one row of the table.
    pub sent: &'a SentRows<'a>,
    pub parts: usize,
    /// Appends the writes of received rows to the rows `place` of the tables.
    pub received: &'a WriteRows<'a>,
}

impl NodeRows {
    /// Describes the tables of a state, in groups that are written together: the memory, and the events and
    /// the times of mails, are among them. Adds what their travel needs to `store`.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(
        store: &mut Store,
        data: &EventTables,
        memory: BufferId,
        mails: [BufferId; 2],
        groups: &[WrittenTables<'_>],
    ) -> Result<Self> {
        let ranks = data.training.ranks.as_ref();
        let turns = groups.iter().map(|group| TurnWrites::new(store, ranks, group)).collect::<Result<_>>()?;
        Ok(NodeRows {
            tables: groups.iter().flat_map(|group| group.tables).copied().collect(),
            memory,
            mails,
            turns,
            missed: MissedWrites::new(store, data)?,
            similar: SimilarNodes::new(store, data)?,
            handed: None,
        })
    }
    /// Lets ranks hand rows to one another, if the plan says so. All tables must have one row for each node.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn handed_on(mut self, store: &mut Store, data: &EventTables) -> Result<Self> {
        let tables: Vec<BufferId> = self.tables.iter().map(|table| table.id).collect();
        self.handed = HandedRows::new(store, data, &tables)?;
        Ok(self)
    }
    /// Whether ranks hand rows to one another.
    fn hands_on(&self) -> bool {
        self.handed.is_some()
    }
    /// Returns the buffers of the state.
    pub fn state(&self) -> Vec<BufferId> {
        self.tables.iter().map(|table| table.id).collect()
    }
    /// Returns the buffers in which steps count what the rows that they read were like.
    pub fn counts(&self) -> RowCounts {
        RowCounts {
            missed_writes: self.missed.map(MissedWrites::counts),
            errors: self.similar.map(SimilarNodes::errors),
        }
    }
    /// Empties the state.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub fn reset(&self, store: &mut Store) -> Result<()> {
        self.similar.map_or(Ok(()), |similar| similar.reset(store))?;
        self.turns.iter().filter_map(TurnWrites::counts).try_for_each(|id| store.clear(id))?;
        self.tables.iter().try_for_each(|table| match table.empty {
            0 => store.clear(table.id),
            word => store.fill(table.id, word),
        })
    }
    /// Appends the update of the unique nodes by `update`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn update(
        &self,
        t: &mut Tape,
        data: &EventTables,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
        update: &Update<'_>,
    ) -> Result<([Var; 2], Read)> {
        if !data.rows.is_plain() {
            return self.update_as_planned(t, data, unique, batch, update);
        }
        let rows = self.in_place(t, unique.node)?;
        let rows = self.gathered(t, data, rows, None)?;
        Ok((update(t, &rows)?, Read::default()))
    }
    /// Returns the rows of `node` in the tables of this rank.
    pub fn in_place(&self, t: &mut Tape, node: Var) -> Result<RowsOf> {
        let tables = self.tables.iter().map(|table| t.stored(table.id)).collect::<Result<Vec<_>>>()?;
        let most = t.spec(node).rows.capacity;
        Ok(RowsOf { row: node, tables, gathered: false, most, received: false })
    }
    /// Whether rows that have not come from other ranks are gathered ahead of the arithmetic: rows that
    /// travel over the bus do so once, and rows that later steps may write are copied.
    pub fn gathers(data: &EventTables) -> bool {
        data.memory.on_host || data.rows.gathers()
    }
    /// Gathers rows into f32, if they are stored in 16 bits or must be gathered ahead of the arithmetic. Rows
    /// of memory that were `mixed` are gathered already.
    fn gathered(
        &self,
        t: &mut Tape,
        data: &EventTables,
        rows: RowsOf,
        mixed: Option<MixedMemory>,
    ) -> Result<RowsOf> {
        let memory = self.tables.iter().position(|table| table.id == self.memory);
        let is_half = memory.is_some_and(|at| t.spec(rows.tables[at]).dtype.is_half());
        if !is_half && (rows.received || !Self::gathers(data)) {
            return Ok(rows);
        }
        let is_mixed = |at: &usize| mixed.is_some() && Some(*at) == memory;
        let read: Vec<usize> = (0..rows.tables.len()).filter(|at| !is_mixed(at)).collect();
        let tables: Vec<Var> = read.iter().map(|&at| rows.tables[at]).collect();
        let mut gathered = rows.tables.clone();
        for (at, row) in read.into_iter().zip(t.gather_all_rows(&tables, rows.row)?) {
            gathered[at] = row;
        }
        if let (Some(mixed), Some(at)) = (mixed, memory) {
            gathered[at] = mixed.rows;
        }
        Ok(RowsOf { tables: gathered, gathered: true, ..rows })
    }
}
