//! Rows of node memory that a rank hands to the next one, if ranks get whole batches in turn.
//!
//! Most positive roots of a batch are also positive roots of the next one. The rank of the next batch gets
//! their new rows from the rank that has computed them, and their owners get none: the next rank replaces
//! them anyway. Owners get the rows of the other positive roots. So each new row travels once, and to where
//! it is read next. Which rows those are follows from the events alone, so every rank knows it ahead.
//! Source: the direct transfer of memory of PipeTGL, section 4.2.
use super::RankTables;
use crate::model::EventTables;
use tgnn::{
    error::{Error, Result},
    ops::{Tape, batch_roots::Near, exchange_rows::Parts, next_batch::Batch, repeated_roots::RepeatedRows},
    runtime::{comm::TrafficKind, *},
};

/// The rows that this rank has been handed for its next batch, in the order of the batch's positive roots.
#[derive(Debug)]
pub(super) struct HandedRows {
    tables: Vec<BufferId>,
}

/// Which positive roots of a step repeat in the batches next to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedRoots {
    /// The positive roots; [`NONE`] in place of those whose rows this rank has been handed.
    pub asked: Var,
    /// The positive roots that repeat in the next batch.
    pub sent: RepeatedRows,
    /// Of the rows that arrive for this rank's next batch, the numbers of their nodes among its positive
    /// roots.
    arriving: RepeatedRows,
}

impl HandedRows {
    /// Adds tables for handed rows like each of `tables` to `store`; `None` if ranks hand no rows on: if they
    /// do not get batches in turn, or do not send rows to owners once each.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(store: &mut Store, data: &EventTables, tables: &[BufferId]) -> Result<Option<Self>> {
        let hands = |rank_tables: &&RankTables| {
            let travels =
                rank_tables.is_partitioned() && !rank_tables.is_cached() && !rank_tables.owners_update();
            rank_tables.pipeline().is_some() && travels && !rank_tables.repeats()
        };
        let Some(rank_tables) = data.training.ranks.as_ref().filter(hands) else { return Ok(None) };
        let rows = Rows::fixed(2 * rank_tables.most_events());
        let like = |&id: &BufferId| store.zeros("handed rows", Spec { rows, ..store.spec(id) });
        Ok(Some(HandedRows { tables: tables.iter().map(like).collect::<Result<_>>()? }))
    }
    /// Appends the search for positive roots that repeat, given those of this rank's batch, `roots`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn repeated(
        t: &mut Tape,
        (data, rank_tables): (&EventTables, &RankTables),
        roots: Var,
        batch: &Batch,
    ) -> Result<HandedRoots> {
        let [src, dst, range] = t.stored_all([data.cursor.src, data.cursor.dst, data.cursor.range])?;
        let (stamp, slice) = (data.stamp(t)?, rank_tables.slice());
        let near = |t: &mut Tape, near, only| {
            t.batch_roots([src, dst], range, batch.index, rank_tables.most_events(), near, only)
        };
        let before = near(t, Near::Before, None)?;
        let after = near(t, Near::After, None)?;
        let now = near(t, Near::Now, None)?;
        let now = t.unique(stamp, now, &[], 2)?.node;
        let mine = near(t, Near::After, Some([slice.rank, slice.ranks]))?;
        let mine = t.unique(stamp, mine, &[], 2)?.node;
        let mut repeated =
            |node, other, ahead| t.repeated_roots(stamp, node, other, batch.index, ahead, slice.ranks);
        Ok(HandedRoots {
            asked: repeated(roots, before, 0)?.rest,
            sent: repeated(roots, after, 1)?,
            arriving: repeated(now, mine, 0)?,
        })
    }
    /// Appends the dispatch of the rows of `tables` of those positive roots that this rank has not been
    /// handed. Returns tables with the rows of all of them, and the numbers of the `roots` in these tables.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn completed(
        &self,
        t: &mut Tape,
        rank_tables: &RankTables,
        (handed, roots): (HandedRoots, Var),
        tables: &[(Var, usize)],
    ) -> Result<(Var, Vec<Var>)> {
        let dispatched = rank_tables.dispatch(t, handed.asked, tables)?;
        let completed = self.tables.iter().map(|&id| t.stored(id)).collect::<Result<Vec<_>>>()?;
        let written: Vec<(Var, Var)> = completed.iter().copied().zip(dispatched.rows).collect();
        t.write_all_rows(&written, dispatched.order)?;
        Ok((t.root_rows(roots, 1, 0)?, completed))
    }
    /// Appends the hand-over of new rows: of each table the rows of its index, one for each root of
    /// [`HandedRoots::sent`].
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn hand_over(
        &self,
        t: &mut Tape,
        rank_tables: &RankTables,
        handed: HandedRoots,
        tables: &[(Var, Var)],
    ) -> Result<()> {
        let HandedRoots { sent, arriving, .. } = handed;
        let parts = Parts { like: arriving.at, recv_counts: arriving.counts, send_counts: Some(sent.counts) };
        let rows = rank_tables.exchange(t, TrafficKind::HandOver, parts, tables)?;
        if rows.len() != self.tables.len() {
            return Err(Error::shape("hand_over", "a table is missing"));
        }
        let kept = self.tables.iter().map(|&id| t.stored(id)).collect::<Result<Vec<_>>>()?;
        let written: Vec<(Var, Var)> = kept.into_iter().zip(rows).collect();
        t.write_all_rows(&written, arriving.at)
    }
}
