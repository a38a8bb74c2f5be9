//! Mixes the memory of nodes that had no event for long with that of similar nodes that had (MSPipe, section
//! 3.3).
//!
//! Nodes are similar that often have a neighbour in common; which ones these are is counted while events
//! arrive, on the device. The counts follow from the data alone, so they are kept ahead of the steps that use
//! them; a step sees the counts of the batches before it. MSPipe's released code instead reads a table that
//! was worked out from the whole stream, the test part included.
use super::RankTables;
use crate::model::EventTables;
use tgnn::{
    error::Result,
    ops::{
        Tape, count_common::CommonVars, next_batch::Batch, pick_similar::NodesToMix,
        sample_neighbors::Strategy,
    },
    runtime::*,
};

/// Similar nodes that are kept for a node.
const SIMILAR: usize = 8;
/// Recent neighbours of each root that have it in common with the root's partner.
const NEIGHBORS: usize = 3;
/// The part of a mixed row that is its own.
const LAMBDA: f32 = 0.95;

/// For each node, the nodes with which it has most neighbours in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimilarNodes {
    /// `[nodes, s]` u32, and how often they had a common neighbour.
    similar: BufferId,
    common: BufferId,
    /// `[1, 6]` f32: how far mixed rows are from the memory as the previous step left it.
    errors: BufferId,
    /// Ticks without an event after which a node's memory is mixed.
    gap: i64,
}

/// Rows of memory, some of them mixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedMemory {
    /// `[n, d]`: the rows.
    pub rows: Var,
    /// `[m]` u32: which rows are mixed, and their nodes.
    row: Var,
    node: Var,
    /// `[m, d]`: these rows before.
    before: Var,
}

impl SimilarNodes {
    /// Adds the lists to `store`; `None` if memory is not mixed.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(store: &mut Store, data: &EventTables) -> Result<Option<Self>> {
        let alone = data.rows.ranks.as_ref().is_none_or(RankTables::is_alone);
        let Some(gap) = data.training.mixed_after.filter(|_| alone) else { return Ok(None) };
        let lists = Spec::ids(Rows::fixed(data.nodes), SIMILAR);
        let (similar, common) =
            (store.zeros("similar nodes", lists)?, store.zeros("common neighbours", lists)?);
        store.fill(similar, NONE)?;
        let errors = store.zeros("errors of rows", Spec::real(Rows::fixed(1), 6))?;
        Ok(Some(SimilarNodes { similar, common, errors, gap }))
    }
    /// Returns the buffer of the errors.
    pub fn errors(self) -> BufferId {
        self.errors
    }
    /// Forgets all similar nodes.
    ///
    /// # Errors
    /// `Shape` if the buffers belong to another store.
    pub fn reset(self, store: &mut Store) -> Result<()> {
        store.clear(self.common)?;
        store.fill(self.similar, NONE)
    }
    /// Appends the similar nodes of each of `node`, u32 `[n]`; then counts the common neighbours of the
    /// batch.
    fn look_up(self, t: &mut Tape, data: &EventTables, node: Var, batch: &Batch) -> Result<Var> {
        let state = t.stored_all([self.similar, self.common])?;
        let similar = t.gather_rows(state[0], node)?;
        let (root, time) = t.roots(batch.src, batch.dst, batch.time, None)?;
        let how = data.sampling(NEIGHBORS, Strategy::Recent);
        let tcsr = data.tcsr(t)?;
        let near = t.sample_neighbors(tcsr, (root, time), (batch.event, batch.now), 2, how)?.node;
        let stamp = data.stamp(t)?;
        let unique = t.unique(stamp, root, &[near], 2)?;
        let rows = t.spec(unique.node).rows;
        let (slots, roots) =
            (t.group_all_slots(unique.psi[1], rows)?, t.group_all_slots(unique.psi[0], rows)?);
        t.count_common(CommonVars { node: unique.node, slots, roots, root, near }, state)?;
        Ok(similar)
    }
    /// Appends the rows of `memory`, `[v, d]`, of the unique nodes `node`, u32 `[n]`, of a batch; mails are
    /// events, u32 `[v, k]`, and times, i64 `[v, k]`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn mixed(
        self,
        t: &mut Tape,
        data: &EventTables,
        (memory, mails): (Var, (Var, Var)),
        node: Var,
        batch: &Batch,
    ) -> Result<MixedMemory> {
        let similar = self.look_up(t, data, node, batch)?;
        let NodesToMix { row, similar } = t.pick_similar(node, similar, mails, batch.time, self.gap)?;
        let near = t.gather_rows(memory, similar)?;
        let rows = t.mix_similar(memory, node, (row, similar), near, LAMBDA)?;
        let node = t.gather_rows(node, row)?;
        Ok(MixedMemory { rows, row, node, before: t.gather_rows(memory, node)? })
    }
    /// Appends the errors of mixed rows, in a step that has not yet written `memory`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn add_errors(self, t: &mut Tape, memory: Var, mixed: &MixedMemory) -> Result<()> {
        let exact = t.gather_rows(memory, mixed.node)?;
        let errors = t.stored(self.errors)?;
        t.row_errors((mixed.before, mixed.rows), mixed.row, exact, errors)
    }
}
