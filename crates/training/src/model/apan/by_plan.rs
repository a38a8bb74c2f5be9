//! New memory and mails as rows that travel to other ranks.
use super::Apan;
use crate::model::{Embeddings, EventTables, rows::Writes};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch},
    runtime::Var,
};

/// The numbers of the groups of tables that are written together.
const MEMORY: usize = 0;
const MAILBOX: usize = 1;

impl Apan {
    /// Appends the writes of a batch's memory and mails, as the plan says.
    pub(super) fn write_as_planned(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        let (unique, out) = (e.unique_nodes()?, Self::new_memory(e)?);
        let memory = t.stored(self.memory)?;
        let new_rows = Writes {
            group: MEMORY,
            node: unique.node,
            limit: Some(unique.positives),
            in_place: &|t| self.write_memory(t, e),
            sent: &|t, sent| Ok(vec![(out, t.gather_rows(unique.phi, sent)?)]),
            parts: 1,
            received: &|t, place, rows| t.write_rows(memory, place, rows[0]),
        };
        self.rows.write(t, data, batch, e, &new_rows)?;
        let to = self.recipients(t, data, batch)?;
        let (_, mailbox) = Self::tables(&self.rows.in_place(t, to.node)?)?;
        // A mail holds the memory of both ends of an event.
        let sent = |t: &mut Tape, sent: Var| {
            let each = Some(self.recipients_of_end());
            let from = t.mail_sources(sent, to.phi, unique.psi[0], stride, each)?;
            Ok(vec![(out, from.pair), (batch.event, from.event), (batch.time, from.event)])
        };
        let mails = Writes {
            group: MAILBOX,
            node: to.node,
            limit: None,
            in_place: &|t| self.deliver(t, data, batch, (stride, &to), e),
            sent: &sent,
            parts: 2,
            received: &|t, place, rows| t.append_mails(mailbox, place, rows[0], (rows[1], rows[2])),
        };
        self.rows.write(t, data, batch, e, &mails)
    }
}
