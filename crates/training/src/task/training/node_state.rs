//! The rows of nodes in a task's state, and which batches a rank gets in a pass. One rank gets all of them in
//! order.
use crate::model::RankTables;
use std::ops::Range;
use tgnn::{ops::next_turn::Turns, runtime::BufferId};

/// The part of a task's state that has rows of nodes, such as node memory, and how ranks share it.
#[derive(Debug)]
pub struct NodeState {
    /// The buffers: the model's state.
    pub buffers: Vec<BufferId>,
    /// The one of them with the ids of the events that mails refer to, if there are mails.
    pub(in crate::task) mail_events: Option<BufferId>,
    /// How rows travel between the ranks that train together; `None` for a single rank.
    pub ranks: Option<RankTables>,
    /// The batches that this rank gets in training, and how many copies of the rows there are, each elsewhere
    /// in the stream.
    pub(in crate::task) turns: Turns,
    /// `[rank, ranks]` of the pipeline, if several ranks take whole batches in turn.
    pub(in crate::task) pipeline: Option<[usize; 2]>,
    /// The number of training passes before the next one, in which it says which segment a copy trains.
    pub(in crate::task) pass: usize,
    /// The batches of this rank's copy in the last training pass.
    pub(in crate::task) batches: Range<usize>,
    /// The bytes of this rank's copy, buffer by buffer, with which it begins the next pass, if the state is
    /// another copy's.
    pub own: Option<Vec<Vec<u8>>>,
}

/// No rows.
impl Default for NodeState {
    fn default() -> Self {
        NodeState {
            buffers: Vec::new(),
            mail_events: None,
            ranks: None,
            turns: Turns::ALL,
            pipeline: None,
            pass: 0,
            batches: 0..0,
            own: None,
        }
    }
}

impl NodeState {
    /// Begins a training pass over `batches` batches. Returns this rank's share.
    pub(in crate::task) fn begin_pass(&mut self, batches: usize) -> PassShare {
        self.batches = self.turns.segment(self.pass, batches);
        PassShare {
            batches: self.batches.clone(),
            steps: self.batches.start..self.batches.start + self.turns.steps(batches),
            shares: self.turns.copies,
            epochs: self.epochs_of_pass(),
        }
    }
    /// Returns the number of losses of a training pass over `batches` batches, those of all ranks.
    pub(in crate::task) fn losses(&self, batches: usize) -> usize {
        if batches == 0 { 0 } else { batches + self.turns.groups - 1 }
    }
    /// Returns the copy that trains a segment in this pass.
    pub(in crate::task) fn copy_of_segment(&self, segment: usize) -> usize {
        let copies = self.turns.copies;
        (segment + copies - self.pass % copies) % copies
    }
    /// Returns the same as the steps of the last training pass have it: a pass begins with another rank.
    pub(in crate::task) fn pipeline_of_pass(&self) -> Option<[usize; 2]> {
        let [rank, ranks] = self.pipeline?;
        Some([(rank + ranks - self.batches.start % ranks) % ranks, ranks])
    }
    /// Returns the number of epochs that a training pass counts as: more than one if groups of ranks train
    /// one each.
    pub fn epochs_of_pass(&self) -> usize {
        self.turns.groups
    }
}

/// What a rank does in a pass.
pub(in crate::task) struct PassShare {
    /// The batches of this rank's copy of the state.
    pub batches: Range<usize>,
    /// The steps, numbered by the batches that begin in them.
    pub steps: Range<usize>,
    /// Number of copies, whose batches together are the pass.
    pub shares: usize,
    /// Number of epochs that the pass counts as.
    pub epochs: usize,
}

impl PassShare {
    /// All of `batches` batches, in order.
    pub fn whole(batches: usize) -> Self {
        PassShare { batches: 0..batches, steps: 0..batches, shares: 1, epochs: 1 }
    }
}
