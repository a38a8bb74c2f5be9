//! Positive roots are updated apart from the other nodes and before them, because other ranks wait for their
//! new rows.
//!
//! Source: PipeTGL, section 4.1.
use super::{HandedRoots, HandedRows, NodeRows, Read, Update};
use crate::model::{Embeddings, EventTables};
use tgnn::{
    error::Result,
    ops::{Tape, next_batch::Batch, split_rows::Split, unique::UniqueNodes},
    runtime::*,
};

/// Positive roots that were updated apart from the other nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpdatedRoots {
    /// The new memory, and its times.
    pub updated: [Var; 2],
    /// Those that repeat in the next batch or the one before, if ranks hand rows on.
    pub handed: Option<HandedRoots>,
}

impl NodeRows {
    /// Appends the update of the positive roots, and then that of the other nodes.
    pub(super) fn update_roots_first(
        &self,
        t: &mut Tape,
        data: &EventTables,
        unique: &UniqueNodes,
        batch: Option<&Batch>,
        update: &Update<'_>,
    ) -> Result<([Var; 2], Read)> {
        let parts = t.split_rows(unique.node, unique.positives)?;
        let handed = match (self.hands_on(), &data.rows.ranks, batch) {
            (true, Some(ranks), Some(batch)) => {
                Some(HandedRows::repeated(t, (data, ranks), parts.first, batch)?)
            }
            _ => None,
        };
        let first = self.update_part(t, data, parts.first, handed, None, update)?;
        let rest = self.update_part(t, data, parts.rest, None, None, update)?;
        let join =
            |t: &mut Tape, at: usize| t.join_split(unique.node, Split { first: first[at], rest: rest[at] });
        let all = [join(t, 0)?, join(t, 1)?];
        let roots = Some(UpdatedRoots { updated: first, handed });
        Ok((all, Read { roots, ..Read::default() }))
    }
}

impl Embeddings {
    /// Returns the new memory and its times in the order of the nodes whose rows are sent to other ranks: of
    /// the unique nodes, or of the positive roots alone if these were updated apart.
    pub(in crate::model) fn sent_memory(&self, updated: [Var; 2]) -> [Var; 2] {
        self.read.roots.map_or(updated, |roots| roots.updated)
    }
}
