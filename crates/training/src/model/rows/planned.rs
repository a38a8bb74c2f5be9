//! The order of what plans add to an update and to a write of rows: gathered, mixed, in parts, by owners,
//! sent to other ranks.
use super::{HandedRoots, MixedMemory, NodeRows, RankTables, Read, RowsOf, Update, Writes};
use crate::model::{Embeddings, EventTables};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch, unique::UniqueNodes},
    runtime::*,
};

impl NodeRows {
    /// Appends the update of the unique nodes by `update`, as the plan says.
    pub(super) fn update_as_planned(
        &self,
        t: &mut Tape,
        data: &EventTables,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
        update: &Update<'_>,
    ) -> Result<([Var; 2], Read)> {
        if data.rows.roots_first {
            return self.update_roots_first(t, data, unique, batch, update);
        }
        let read = self.read(t, data, unique.node, batch)?;
        let parts = data.rows.ranks.as_ref().map_or(1, RankTables::micro_batches);
        if parts > 1 {
            return Ok((self.update_in_parts(t, data, (unique.node, parts), update)?, read));
        }
        Ok((self.update_part(t, data, unique.node, None, read.mixed, update)?, read))
    }
    /// Appends the update of micro-batches of the nodes, one after the other: the rows of one can travel
    /// while another is updated (Sven, section 3.3.2).
    fn update_in_parts(
        &self,
        t: &mut Tape,
        data: &EventTables,
        (node, parts): (Var, usize),
        update: &Update<'_>,
    ) -> Result<[Var; 2]> {
        let mut updated = [Vec::new(), Vec::new()];
        for at in 0..parts {
            let part = t.slice_rows(node, at, parts)?;
            let [memory, time] = self.update_part(t, data, part, None, None, update)?;
            updated[0].push(memory);
            updated[1].push(time);
        }
        Ok([t.join_rows(node, &updated[0])?, t.join_rows(node, &updated[1])?])
    }
    /// Appends the update of some of the unique nodes; or of all of them, with memory that is `mixed`; or of
    /// the positive roots, some of which were `handed` on.
    pub(super) fn update_part(
        &self,
        t: &mut Tape,
        data: &EventTables,
        node: Var,
        handed: Option<HandedRoots>,
        mixed: Option<MixedMemory>,
        update: &Update<'_>,
    ) -> Result<[Var; 2]> {
        let Some(owners) = data.rows.ranks.as_ref().filter(|ranks| ranks.owners_update()) else {
            let rows = self.fetched(t, data, node, handed)?;
            let rows = self.gathered(t, data, rows, mixed)?;
            return update(t, &rows);
        };
        // This rank updates rows of its tables that others want, and gets those that it wants.
        let asked = owners.ask(t, node)?;
        let rows = RowsOf { most: t.spec(node).rows.capacity, ..self.in_place(t, asked.row)? };
        let rows = self.gathered(t, data, rows, mixed)?;
        let updated = update(t, &rows)?;
        let answers = owners.answer(t, &asked, &updated)?;
        Ok([answers[0], answers[1]])
    }
    /// Returns where the rows of `node` are for a step: in place, or, if other ranks own them, where they
    /// have been dispatched to.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(in crate::model) fn fetched(
        &self,
        t: &mut Tape,
        data: &EventTables,
        node: Var,
        handed: Option<HandedRoots>,
    ) -> Result<RowsOf> {
        let mut rows = self.in_place(t, node)?;
        let Some(ranks) = data.rows.ranks.as_ref().filter(|ranks| ranks.is_partitioned()) else {
            return Ok(rows);
        };
        let each = self.tables.iter().map(|table| table.each);
        let tables: Vec<(Var, usize)> = rows.tables.iter().copied().zip(each).collect();
        if ranks.is_cached() {
            ranks.renew(t, node, &tables)?;
            return Ok(rows);
        }
        if let (Some(kept), Some(handed)) = (&self.handed, handed) {
            (rows.row, rows.tables) = kept.completed(t, ranks, (handed, node), &tables)?;
            return Ok(rows);
        }
        let dispatched = ranks.dispatch(t, node, &tables)?;
        (rows.row, rows.tables, rows.received) = (dispatched.position, dispatched.rows, true);
        Ok(rows)
    }
    /// Appends what a step looks up about the rows of the unique nodes `node` beside the rows: their
    /// versions, and rows mixed with those of similar nodes, as the plan says.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(in crate::model) fn read(
        &self,
        t: &mut Tape,
        data: &EventTables,
        node: Var,
        batch: Option<&Batch>,
    ) -> Result<Read> {
        if !data.rows.gathers() {
            return Ok(Read::default());
        }
        let seen = self.missed.map(|missed| missed.seen(t, node)).transpose()?;
        let mixed = match (self.similar, batch) {
            (Some(similar), Some(batch)) => {
                let [event, time] = self.mails;
                let [memory, event, time] = t.stored_all([self.memory, event, time])?;
                Some(similar.mixed(t, data, (memory, (event, time)), node, batch)?)
            }
            _ => None,
        };
        Ok(Read { seen, mixed, roots: None })
    }
    /// Appends the writes of new rows, as the plan says. What `e` has read is counted with the group of the
    /// memory, the first.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub(in crate::model) fn write(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        e: &Embeddings,
        writes: &Writes<'_>,
    ) -> Result<()> {
        let read = if writes.group == 0 { e.read } else { Read::default() };
        if let Some(ranks) = data.rows.others() {
            return self.send(t, ranks, batch, e, (writes, read));
        }
        if let (Some(similar), Some(mixed)) = (self.similar, &read.mixed) {
            let memory = t.stored(self.memory)?;
            similar.add_errors(t, memory, mixed)?;
        }
        (writes.in_place)(t)?;
        if let (Some(missed), Some(seen)) = (self.missed, read.seen) {
            missed.count(t, e, seen, (writes.node, writes.limit))?;
        }
        Ok(())
    }
    /// Appends the writes over several ranks: each new row goes to the ranks that keep it.
    fn send(
        &self,
        t: &mut Tape,
        ranks: &RankTables,
        batch: &Batch,
        e: &Embeddings,
        (writes, read): (&Writes<'_>, Read),
    ) -> Result<()> {
        let handed = read.roots.and_then(|roots| roots.handed);
        // The next rank waits for the rows that it is handed.
        if let (Some(kept), Some(handed)) = (&self.handed, handed) {
            let tables = (writes.sent)(t, handed.sent.row)?;
            kept.hand_over(t, ranks, handed, &tables)?;
        }
        let limit = ranks.offered(t, batch, writes.limit)?;
        let node = handed.map_or(writes.node, |handed| handed.sent.rest);
        // A rank keeps the rows that it sends, if all that it keeps of a node is sent.
        let keeps = self.turns.len() == 1;
        let new = ranks.offer(t, node, limit, keeps)?;
        let tables = (writes.sent)(t, new.sent)?;
        let mut rows = ranks.aggregate(t, &new, &tables)?;
        if writes.parts > 1 {
            rows[0] = t.fold_rows(rows[0], writes.parts)?;
        }
        let rows: Vec<Var> = rows.into_iter().map(|rows| new.keep(t, rows)).collect::<Result<_>>()?;
        if let (Some(missed), Some(seen)) = (self.missed, read.seen) {
            missed.count(t, e, seen, (new.place, None))?;
        }
        self.turns[writes.group].write(t, ranks, batch, (new.place, &rows), writes.received)?;
        if keeps && ranks.is_cached() {
            let sent = t.gather_rows(writes.node, new.sent)?;
            for (table, (rows, from)) in self.tables.iter().zip(tables) {
                let table = t.stored(table.id)?;
                t.write_picked(table, sent, rows, from)?;
            }
        }
        Ok(())
    }
}
