//! Records the programs of a snapshot task: the training step of a group, the update of a round, and a scored
//! group.
use super::objective::Objective;
use crate::model::{SnapshotModel, SnapshotTables, SwappedLayers};
use tgnn::{
    autograd::{Parameters, Sums},
    error::Result,
    ops::Tape,
    runtime::*,
};

/// The inputs of the recorded programs.
pub(super) struct Parts<'a> {
    pub tables: &'a SnapshotTables,
    pub model: &'a dyn SnapshotModel,
    pub objective: &'a Objective,
}

/// Records programs over groups.
pub(super) struct Recorder {
    /// Snapshots of a group.
    length: usize,
    /// `[groups of an epoch, 1]` f32: the loss of every group.
    pub losses: BufferId,
    /// If an update takes several groups: the weight of a group, `[1]` f32, and the sums of the gradients.
    sums: Option<(BufferId, Sums)>,
}

impl Recorder {
    /// Creates a recorder for groups of `length` snapshots, with `groups` groups per epoch. `sums` says that
    /// an update takes several groups.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(store: &mut Store, length: usize, groups: usize, sums: bool) -> Result<Self> {
        let losses = store.zeros("losses", Spec::real(Rows::fixed(groups.max(1)), 1))?;
        let share = sums.then(|| store.zeros("share", Spec::real(Rows::fixed(1), 1))).transpose()?;
        Ok(Recorder { length, losses, sums: share.map(|share| (share, Sums::default())) })
    }
    /// Records the training step of a group, with the given layers exchanged.
    ///
    /// # Errors
    /// The errors of recording.
    pub fn record(
        &mut self,
        store: &mut Store,
        parts: &Parts<'_>,
        parameters: &Parameters,
        exchanged: &SwappedLayers,
    ) -> Result<Tape> {
        let Parts { tables, model, objective } = parts;
        let mut t = Tape::new(store);
        let group = tables.next_group(&mut t, self.length)?;
        let z = model.embed(&mut t, tables, &group, exchanged)?;
        if let Some(loss) = objective.record(&mut t, tables, &group, z, true)? {
            let table = t.stored(self.losses)?;
            t.write_rows(table, group.index, loss)?;
            match &mut self.sums {
                None => drop(parameters.minimize(&mut t, loss)?),
                Some((share, sums)) => parameters.accumulate(&mut t, store, loss, *share, sums)?,
            }
        }
        Ok(t)
    }
    /// Records the update that follows a round of groups; `None` if every group has its own update.
    ///
    /// # Errors
    /// The errors of recording.
    pub fn update(&self, store: &Store, parameters: &Parameters) -> Result<Option<Tape>> {
        let Some((_, sums)) = &self.sums else { return Ok(None) };
        let mut t = Tape::new(store);
        sums.minimize(parameters, &mut t)?;
        Ok(Some(t))
    }
    /// Records the scores of a group's target.
    ///
    /// # Errors
    /// The errors of recording.
    pub fn score(&self, store: &Store, parts: &Parts<'_>) -> Result<Tape> {
        let Parts { tables, model, objective } = parts;
        let mut t = Tape::new(store);
        let group = tables.next_group(&mut t, self.length)?;
        let z = model.embed(&mut t, tables, &group, &SwappedLayers::default())?;
        objective.record(&mut t, tables, &group, z, false)?;
        Ok(t)
    }
    /// Sets the weight of a group for rounds of `groups`; does nothing if every group has its own update.
    ///
    /// # Errors
    /// `Device` if the weight cannot be written.
    pub fn set_round(&self, store: &mut Store, groups: usize) -> Result<()> {
        match &self.sums {
            Some((share, _)) => store.write(*share, &[1.0 / groups as f32]),
            None => Ok(()),
        }
    }
}
