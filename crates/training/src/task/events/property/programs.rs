//! Records the programs of node property prediction: a step that learns from label rows, one that scores
//! them, and a batch of events that only updates memory.
use super::{super::recorder::remembering, walk::Walk};
use crate::model::{EventTables, Net, Queries};
use std::sync::Arc;
use tgnn::{
    autograd::{Lanes, Parameters, Program},
    error::Result,
    ops::{Tape, soft_label_loss::SoftLabels, step_items::Items},
    runtime::*,
};
use tgnn_data::NodeLabels;

/// The label rows and the cursor that walks over the steps that predict them.
pub(super) struct LabelTables {
    /// `[rows]`: nodes and times of the rows.
    node: BufferId,
    time: BufferId,
    /// Their classes and weights.
    offsets: BufferId,
    classes: BufferId,
    weights: BufferId,
    /// `[steps + 1]`: the first row of each step.
    first_row: BufferId,
    /// `[steps]`: the number of events that the rows of each step see, and a time of them.
    history: BufferId,
    step_time: BufferId,
    /// `[1, 3]` u32: the range of all steps.
    range: BufferId,
    /// `[1, 2]` u32: epoch and next step.
    clock: BufferId,
    /// `[1]` u32: the row that the first row of the table of scores belongs to.
    base: BufferId,
    /// Maximum number of rows of a step.
    capacity: usize,
}

impl LabelTables {
    /// Puts the rows and the steps into `store`.
    pub fn new(store: &mut Store, labels: &NodeLabels, walk: &Walk) -> Result<Self> {
        let ids = |n: usize| Spec::ids(Rows::fixed(n), 1);
        let times = |n: usize| Spec::times(Rows::fixed(n));
        let (offsets, classes, weights) = labels.entries();
        let (rows, steps, entries) = (labels.len(), walk.history.len(), classes.len());
        let step_time: Vec<i64> =
            walk.rows[..steps].iter().map(|&row| labels.times()[row as usize]).collect();
        let capacity = walk.largest().0;
        Ok(LabelTables {
            node: store.table("labelled nodes", ids(rows), Arc::new(labels.nodes().to_vec()))?,
            time: store.table("label times", times(rows), Arc::new(labels.times().to_vec()))?,
            offsets: store.table("label offsets", ids(rows + 1), Arc::new(offsets.to_vec()))?,
            classes: store.table("label classes", ids(entries), Arc::new(classes.to_vec()))?,
            weights: store.table(
                "label weights",
                Spec::real(Rows::fixed(entries), 1),
                Arc::new(weights.to_vec()),
            )?,
            first_row: store.table("first rows", ids(steps + 1), Arc::new(walk.rows.clone()))?,
            history: store.table("label history", ids(steps), Arc::new(walk.history.clone()))?,
            step_time: store.table("step times", times(steps), Arc::new(step_time))?,
            range: store.values("label steps", Spec::ids(Rows::fixed(1), 3), &[0, steps as u32, 0])?,
            clock: store.zeros("label clock", Spec::ids(Rows::fixed(1), 2))?,
            base: store.zeros("first scored row", Spec::count())?,
            capacity,
        })
    }
    /// Goes to a step, in an epoch.
    pub fn seek(&self, store: &mut Store, epoch: u32, step: usize) -> Result<()> {
        store.write(self.clock, &[epoch, step as u32])
    }
    /// Sets the row whose scores the first row of the table of scores gets.
    pub fn score_from(&self, store: &mut Store, row: usize) -> Result<()> {
        store.write(self.base, &[row as u32])
    }
}

/// The programs.
pub(super) struct Programs {
    /// Learns from the rows of a step.
    pub step: Program,
    /// Scores the rows of a step.
    pub score: Program,
    /// Updates the memory by a batch of events; `None` if the model has no memory.
    pub remember: Option<Program>,
}

impl Programs {
    pub fn all(&self) -> Vec<&Program> {
        [&self.step, &self.score].into_iter().chain(&self.remember).collect()
    }
}

/// The inputs of the recorded programs.
pub(super) struct Recorder<'a> {
    pub net: &'a Net,
    pub parameters: &'a Parameters,
    pub labels: &'a LabelTables,
    /// Whether only the head learns.
    pub frozen: bool,
    pub losses: BufferId,
    pub scores: BufferId,
    /// Maximum number of events of a batch.
    pub batch: usize,
    pub device: &'a Device,
    /// The lanes of a training step.
    pub lanes: Lanes,
}

/// The rows of a step, recorded up to their logits.
struct Step {
    logits: Var,
    items: Items,
    /// `[1]` u32: the step.
    index: Var,
}

impl Recorder<'_> {
    /// Records and plans all programs.
    ///
    /// # Errors
    /// The errors of recording.
    pub fn record(&self, store: &Store, tables: &EventTables) -> Result<Programs> {
        let step = self.training_step(store, tables)?;
        let alone = |tape: &Tape| self.plan(tape, self.lanes.fresh());
        Ok(Programs {
            step: self.plan(&step, self.lanes)?,
            score: alone(&self.scoring(store, tables)?)?,
            remember: remembering(self.net, store, tables, self.batch, &alone)?,
        })
    }
    fn plan(&self, tape: &Tape, lanes: Lanes) -> Result<Program> {
        Program::on_lanes(tape, &[], Precision::F32, self.device, lanes)
    }
    /// Appends the next step up to its logits; `train` switches the model's dropout on.
    fn rows(&self, t: &mut Tape, tables: &EventTables, train: bool) -> Result<Step> {
        let of = self.labels;
        let [history, time, range, clock] = t.stored_all([of.history, of.step_time, of.range, of.clock])?;
        // A batch of one "event", which is a step: its source is the number of events that the rows see.
        let step = t.next_batch([history, history, time], range, clock, 1)?;
        let [first_row, base, node, time] = t.stored_all([of.first_row, of.base, of.node, of.time])?;
        let items = t.step_items(first_row, step.index, base, of.capacity)?;
        let (node, time) = (t.gather_rows(node, items.item)?, t.gather_rows(time, items.item)?);
        let q = Queries { node, time, event: step.src, now: step.now, stride: 0, batch: None, train };
        let logits = self.net.properties(t, tables, &q)?;
        Ok(Step { logits, items, index: step.index })
    }
    fn training_step(&self, store: &Store, tables: &EventTables) -> Result<Tape> {
        let mut t = Tape::new(store);
        let Step { logits, items, index } = self.rows(&mut t, tables, !self.frozen)?;
        let [offsets, classes, weights] =
            t.stored_all([self.labels.offsets, self.labels.classes, self.labels.weights])?;
        let loss = t.soft_label_loss(logits, items.item, SoftLabels { offsets, classes, weights })?;
        let table = t.stored(self.losses)?;
        t.write_rows(table, index, loss)?;
        self.parameters.minimize(&mut t, loss)?;
        Ok(t)
    }
    fn scoring(&self, store: &Store, tables: &EventTables) -> Result<Tape> {
        let mut t = Tape::new(store);
        let Step { logits, items, .. } = self.rows(&mut t, tables, false)?;
        let table = t.stored(self.scores)?;
        t.write_rows(table, items.rank, logits)?;
        Ok(t)
    }
}
