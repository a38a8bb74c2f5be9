//! What a plan adds to a checkpoint: the number of micro-batches that a resumed run keeps, and copies of the
//! node memory.
use super::{Checkpoint, Task};
use crate::plan::{Choice, MicroBatchChoice};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tgnn::error::Result;

/// What the manifest of a run with some plans has in addition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanManifest {
    /// CRC-32 of the files of the copies of the node memory after the last epoch, by the segment with which
    /// each goes on, from the second one on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<u32>,
    /// The number of micro-batches, if it was fitted: a resumed run keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<MicroBatchChoice>,
}

impl PlanManifest {
    /// Returns that of a run that starts with `task`.
    pub(super) fn new(task: &dyn Task) -> Self {
        let micro_batches = match task.plan_record().chosen {
            Some(Choice::MicroBatches(choice)) => Some(choice),
            _ => None,
        };
        PlanManifest { micro_batches, copies: Vec::new() }
    }
    /// Returns the files of a checkpoint that belong to it.
    pub(super) fn files(&self, checkpoint: &Checkpoint) -> impl Iterator<Item = PathBuf> {
        (1..).zip(&self.copies).map(|(copy, &sum)| checkpoint.copy_file(copy, sum))
    }
    /// Writes the files of the last epoch. Collective.
    pub(super) fn save(&mut self, checkpoint: &Checkpoint, task: &dyn Task) -> Result<()> {
        self.copies = checkpoint.save_copies(task)?;
        Ok(())
    }
    /// Goes on with the run that has saved `last` in a checkpoint after `epochs` epochs. Returns a note on
    /// what is lost of it. Collective.
    pub(super) fn resume(
        &mut self,
        (last, epochs): (PlanManifest, usize),
        checkpoint: &Checkpoint,
        task: &mut dyn Task,
    ) -> Result<Option<String>> {
        self.copies = last.copies;
        checkpoint.load_copies(task, epochs, &self.copies)
    }
}
