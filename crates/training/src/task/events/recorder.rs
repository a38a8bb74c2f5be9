//! Records the programs of an event task: the training step, a scored batch, and a batch that only updates
//! memory.
use super::{
    by_plan::{StepPlan, StepVariants},
    objective::LabelTables,
    places::Places,
};
use crate::{
    model::{EventTables, Forward, Negatives, Net},
    task::training::MemoryPlan,
};
use tgnn::{
    autograd::{Average, Parameters, Program},
    error::Result,
    ops::{Tape, next_batch::Batch},
    runtime::*,
};

/// The buffers of the settling epoch: averages of the weights, and decreasing step sizes.
pub(super) struct Settling {
    /// Averages of the parameters over the last epochs.
    pub average: Average,
    /// `[batches, 1]` f32: the step size of each batch of the settling epoch.
    pub rates: BufferId,
}

/// The programs of an event task.
pub(super) struct Programs {
    /// The training step, in variants.
    pub step: Program,
    pub variants: StepVariants,
    /// Scores a batch and updates the memory.
    pub score: Program,
    /// Updates the memory and nothing else; `None` if the model has no memory.
    pub remember: Option<Program>,
}

/// The inputs of the recorded programs.
pub(super) struct Recorder<'a> {
    pub net: &'a Net,
    pub parameters: &'a Parameters,
    pub settling: Option<&'a Settling>,
    /// Negatives of training, and of evaluation.
    pub negatives: [Negatives; 2],
    /// Classes of each event, if the task predicts classes.
    pub labels: Option<LabelTables>,
    pub positive_weight: f32,
    /// Whether only the head learns.
    pub frozen: bool,
    pub losses: BufferId,
    pub scores: BufferId,
    /// Maximum number of events of a batch of training, and of evaluation.
    pub batch: usize,
    pub eval_batch: usize,
    pub device: &'a Device,
    /// How training steps run; all other programs read the state as the step before left it.
    pub step_plan: StepPlan,
}

impl Recorder<'_> {
    /// Records and plans the programs, and decides where tables are: see [`Places::record`]. Collective.
    ///
    /// # Errors
    /// `OutOfMemory` if the device has too little memory; the errors of recording.
    pub fn programs(
        &self,
        store: &mut Store,
        tables: &mut EventTables,
        places: &Places<'_>,
    ) -> Result<(Programs, MemoryPlan)> {
        places.record(store, tables, &mut |store, tables| self.record(store, tables), Programs::all)
    }
    /// Records and plans all programs.
    fn record(&self, store: &Store, tables: &EventTables) -> Result<Programs> {
        let remember = remembering(self.net, store, tables, self.eval_batch, &|tape| self.plan(tape))?;
        // The weights that write memory are those that the memory-only batch reads.
        let writers: Vec<BufferId> = remember.iter().flat_map(Program::stored).collect();
        let in_training = self.step_plan.tables(tables);
        let (step, batch) = self.training_step(store, &in_training)?;
        let settling = self.settling.filter(|_| !writers.is_empty());
        let settling = settling.map(|settling| self.settling_step(store, &in_training, settling, &writers));
        let settling = settling.transpose()?;
        let (step, variants) =
            self.step_plan.program((&step, &batch), settling.as_ref(), &in_training, self.device)?;
        Ok(Programs { step, variants, score: self.score(store, tables)?, remember })
    }
    fn plan(&self, tape: &Tape) -> Result<Program> {
        Program::on_lanes(tape, &[], Precision::F32, self.device, self.step_plan.in_order())
    }
    /// Appends a training step up to its loss; `train` switches the model's dropout on.
    fn loss(&self, t: &mut Tape, tables: &EventTables, train: bool) -> Result<(Forward, Var)> {
        let forward = self.net.forward(t, tables, self.batch, self.negatives[0], train)?;
        let loss = match self.labels {
            None => t.bce_loss(forward.logits)?,
            Some(labels) => labels.loss(t, forward.logits, forward.batch.event, self.positive_weight)?,
        };
        // The losses of the ranks add up to the loss of the whole batch.
        let loss = match tables.rows.ranks {
            Some(_) => t.mul(loss, forward.batch.share)?,
            None => loss,
        };
        let table = t.stored(self.losses)?;
        t.write_rows(table, forward.batch.index, loss)?;
        Ok((forward, loss))
    }
    /// Records the training step; returns its batch, too.
    fn training_step(&self, store: &Store, tables: &EventTables) -> Result<(Tape, Batch)> {
        let mut t = Tape::new(store);
        let (forward, loss) = self.loss(&mut t, tables, !self.frozen)?;
        let average = self.settling.map(|settling| &settling.average);
        self.parameters.minimize_averaging(&mut t, loss, average)?;
        self.net.write(&mut t, tables, &forward)?;
        Ok((t, forward.batch))
    }
    /// Records the step of the settling epoch: all parameters but `writers` learn, with the step sizes of
    /// [`Settling::rates`].
    fn settling_step(
        &self,
        store: &Store,
        tables: &EventTables,
        settling: &Settling,
        writers: &[BufferId],
    ) -> Result<Tape> {
        let mut t = Tape::new(store);
        let train = self.parameters.learns_beyond(Net::HEADS, writers);
        let (forward, loss) = self.loss(&mut t, tables, train)?;
        let rates = t.stored(settling.rates)?;
        let rate = t.gather_rows(rates, forward.batch.index)?;
        self.parameters.minimize_others(&mut t, loss, rate, writers)?;
        self.net.write(&mut t, tables, &forward)?;
        Ok(t)
    }
    /// Records and plans a scored batch.
    fn score(&self, store: &Store, tables: &EventTables) -> Result<Program> {
        let mut t = Tape::new(store);
        let forward = self.net.forward(&mut t, tables, self.eval_batch, self.negatives[1], false)?;
        let table = t.stored(self.scores)?;
        t.write_rows(table, forward.batch.row, forward.logits)?;
        self.net.write(&mut t, tables, &forward)?;
        self.plan(&t)
    }
}

/// Records and plans a batch that only updates the memory; `None` if the model has no memory.
pub(super) fn remembering(
    net: &Net,
    store: &Store,
    tables: &EventTables,
    batch: usize,
    plan: &dyn Fn(&Tape) -> Result<Program>,
) -> Result<Option<Program>> {
    if net.model.state().is_empty() {
        return Ok(None);
    }
    let mut t = Tape::new(store);
    net.remember(&mut t, tables, batch)?;
    Ok(Some(plan(&t)?))
}

impl Programs {
    fn all(&self) -> Vec<&Program> {
        [&self.step, &self.score].into_iter().chain(&self.remember).collect()
    }
}
