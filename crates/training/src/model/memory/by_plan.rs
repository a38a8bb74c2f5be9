//! New memory and mails as rows that travel to other ranks.
use super::NodeMemory;
use crate::model::{Embeddings, EventTables, rows::Writes};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch},
    runtime::Var,
};

impl NodeMemory {
    /// Appends the writes of a batch's memory and mails, as the plan says.
    pub(super) fn write_as_planned(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        let (unique, [memory, time]) = (e.unique_nodes()?, e.new_memory()?);
        let in_place = |t: &mut Tape| self.write_in_place(t, data, batch, stride, e);
        let sent = |t: &mut Tape, sent: Var| {
            let [memory, time] = e.sent_memory([memory, time]);
            let from = t.mail_sources(sent, unique.phi, unique.psi[0], stride, None)?;
            let mail = e.content.map_or((memory, from.partner_row), |content| (content, from.end));
            let (event, event_time) = ((batch.event, from.event), (batch.time, from.event));
            Ok(vec![(memory, sent), (time, sent), mail, event, event_time])
        };
        let received = |t: &mut Tape, place: Var, rows: &[Var]| {
            let ids = [self.memory, self.memory_time, self.mail, self.mail_event, self.mail_time];
            let tables = t.stored_all(ids)?.into_iter().zip(rows.iter().copied());
            t.write_all_rows(&tables.collect::<Vec<_>>(), place)
        };
        let writes = Writes {
            group: 0,
            node: unique.node,
            limit: Some(unique.positives),
            in_place: &in_place,
            sent: &sent,
            parts: 1,
            received: &received,
        };
        self.rows.write(t, data, batch, e, &writes)
    }
}
