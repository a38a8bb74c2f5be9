//! Writes of state by ranks that take turns (DistTGL, section 3.2).
//!
//! Ranks with the same copy of the node memory train on a batch for several steps. Until the last of them
//! they read the memory that they began with, while others already have written later batches. New rows are
//! therefore *held*, and written when the rank's own turn is over.
use super::{RankTables, WrittenTables};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch, next_turn::Turns},
    runtime::*,
};

/// How the rows of a batch are written, by turns.
#[derive(Debug)]
pub(super) struct TurnWrites {
    held: Option<Held>,
    /// Whether later rows of a node follow earlier ones instead of overwriting them.
    appended: bool,
}

/// Appends the writes of rows, given where each belongs.
pub(super) type WriteRows<'a> = dyn Fn(&mut Tape, Var, &[Var]) -> Result<()> + 'a;

/// The rows of the steps of a turn.
#[derive(Debug)]
struct Held {
    /// `[slots]` u32: number of rows in each slot.
    counts: BufferId,
    /// `[slots n, 1]` u32: where each row belongs.
    place: BufferId,
    /// `[slots n, d]`: the rows, for each table of them.
    rows: Vec<BufferId>,
    /// Number of rows of a slot, n.
    each: usize,
}

impl TurnWrites {
    /// Adds what ranks hold to `store`, if those of `over` take turns: the rows of a batch's events, with a
    /// table for each table whose rows are sent.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(
        store: &mut Store,
        rank_tables: Option<&RankTables>,
        written: &WrittenTables<'_>,
    ) -> Result<Self> {
        let turns = rank_tables.map_or(Turns::ALL, RankTables::turns);
        let mut hold = || {
            let each = written.rows_of_event * rank_tables.map_or(0, RankTables::most_events);
            let all = Rows::fixed(turns.groups * each);
            let rows = written.tables.iter().filter_map(|table| table.row);
            let rows = rows.map(|spec| store.zeros("held rows", Spec { rows: all, ..spec }));
            let rows = rows.collect::<Result<_>>()?;
            let counts = store.zeros("numbers of held rows", Spec::ids(Rows::fixed(turns.groups), 1))?;
            Ok(Held { counts, place: store.zeros("places of held rows", Spec::ids(all, 1))?, rows, each })
        };
        let held = if turns.groups > 1 { Some(hold()?) } else { None };
        Ok(TurnWrites { held, appended: written.appended })
    }
    /// Returns the buffers that must be empty when a pass begins.
    pub fn counts(&self) -> Option<BufferId> {
        self.held.as_ref().map(|held| held.counts)
    }
    /// Appends the writes of a batch by `write`, given the rows and where each belongs: at once, or when the
    /// turn of the ranks `over` is over: those of several batches by one call, or, if they are
    /// [appended](Self::appended), batch by batch.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn write(
        &self,
        t: &mut Tape,
        rank_tables: &RankTables,
        batch: &Batch,
        (place, rows): (Var, &[Var]),
        write: &WriteRows<'_>,
    ) -> Result<()> {
        let turns = rank_tables.turns();
        let (Some(held), Some(turn)) = (self.held.as_ref().filter(|_| turns.groups > 1), batch.turn) else {
            return write(t, place, rows);
        };
        let [counts, held_place] = t.stored_all([held.counts, held.place])?;
        let at = t.hold_rows(turn.slot, place, counts, held.each)?;
        let tables = held.rows.iter().map(|&id| t.stored(id)).collect::<Result<Vec<_>>>()?;
        let holds = tables.iter().copied().zip(rows.iter().copied());
        let holds: Vec<(Var, Var)> = std::iter::once((held_place, place)).chain(holds).collect();
        t.write_all_rows(&holds, at)?;
        let slots = if self.appended { 1 } else { turns.groups };
        for first in (0..turns.groups).step_by(slots) {
            let due = t.due_rows(turn.slot, counts, first..first + slots, held.each)?;
            let mut row = due.id;
            if !self.appended {
                let place = t.gather_rows(held_place, row)?;
                let latest = rank_tables.latest(t, place)?;
                row = t.keep_marked(latest, due.count, row, None)?.id;
            }
            let place = t.gather_rows(held_place, row)?;
            let rows = t.gather_all_rows(&tables, row)?;
            write(t, place, &rows)?;
        }
        Ok(())
    }
}
