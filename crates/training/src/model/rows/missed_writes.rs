//! What training steps miss that read node memory some steps before they write it (MSPipe).
use super::RankTables;
use crate::model::{Embeddings, EventTables};
use tgnn::{error::Result, ops::Tape, runtime::*};

/// The most missed writes that are told apart.
const MOST_MISSED: usize = 15;

/// Versions of the rows of node memory, and counts of the writes that fetched rows have missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissedWrites {
    /// `[nodes]` u32: number of writes of each row by training steps.
    version: BufferId,
    /// `[bins]` u32: number of fetched rows, by the writes that they have missed.
    missed: BufferId,
}

impl MissedWrites {
    /// Adds the counts to `store`; `None` if no training step reads older memory, or if memory is
    /// partitioned: then no rank knows the versions of all rows that it reads.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(store: &mut Store, data: &EventTables) -> Result<Option<Self>> {
        let partitioned = data.rows.ranks.as_ref().is_some_and(RankTables::is_partitioned);
        if !data.training.older || partitioned {
            return Ok(None);
        }
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let version = store.zeros("versions", ids(data.nodes))?;
        Ok(Some(MissedWrites { version, missed: store.zeros("missed writes", ids(1 + MOST_MISSED))? }))
    }
    /// Returns the buffer of the counts.
    pub fn counts(self) -> BufferId {
        self.missed
    }
    /// Appends a look at the versions of the rows of `node` that the step reads.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn seen(self, t: &mut Tape, node: Var) -> Result<Var> {
        let version = t.stored(self.version)?;
        t.gather_rows(version, node)
    }
    /// Appends the counts of the rows whose versions `seen` a step has read. The step writes the rows of the
    /// first `limit` of the nodes `written`, or of all.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn count(self, t: &mut Tape, e: &Embeddings, seen: Var, written: (Var, Option<Var>)) -> Result<()> {
        let Some((memory, _)) = e.memory else { return Ok(()) };
        let versions = t.stored_all([self.version, self.missed])?;
        t.count_missed((e.unique_nodes()?.node, seen), written, versions, memory)
    }
}
