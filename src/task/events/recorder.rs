//! Records the programs of an event task: the training step, a scored batch, and a batch that only updates
//! memory.
use crate::{
    autograd::{Average, Lanes, Parameters, Program},
    error::Result,
    model::{EventTables, Forward, Negatives, Net},
    ops::Tape,
    runtime::*,
    task::{config::FeaturesOn, training::MemoryPlan},
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
    /// The training step; if the task settles, the settling step is its second variant.
    pub step: Program,
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
    pub labels: Option<BufferId>,
    pub positive_weight: f32,
    /// Whether only the head learns.
    pub frozen: bool,
    pub losses: BufferId,
    pub scores: BufferId,
    pub batch: usize,
    pub device: &'a Device,
    pub lanes: Lanes,
}

impl Recorder<'_> {
    /// Records and plans the programs. `features_on` decides where the features are stored; `Auto` stores
    /// them on the device if they fit there.
    ///
    /// # Errors
    /// `OutOfMemory` if the device has too little memory; the errors of recording.
    pub fn programs(
        &self,
        store: &mut Store,
        tables: &mut EventTables,
        features_on: FeaturesOn,
    ) -> Result<(Programs, MemoryPlan)> {
        let free = self.device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        if features_on == FeaturesOn::Host && free.is_some() {
            tables.keep_features_on_host(store)?;
        }
        let mut programs = self.record(store, tables)?;
        let mut memory = programs.memory(store, tables, free);
        if !memory.fits() && memory.features > 0 && features_on == FeaturesOn::Auto {
            tables.keep_features_on_host(store)?;
            programs = self.record(store, tables)?;
            memory = programs.memory(store, tables, free);
        }
        memory.check()?;
        Ok((programs, memory))
    }
    /// Records and plans all programs.
    fn record(&self, store: &Store, tables: &EventTables) -> Result<Programs> {
        let remember = self.remember(store, tables)?;
        let step = self.training_step(store, tables)?;
        let settling = match (self.settling, &remember) {
            (Some(settling), Some(remember)) => {
                // The weights that write memory are those that the memory-only batch reads.
                let writers: Vec<BufferId> = remember.stored().collect();
                Some(self.settling_step(store, tables, settling, &writers)?)
            }
            _ => None,
        };
        let variants: Vec<(&Tape, Lanes)> =
            std::iter::once(&step).chain(&settling).map(|tape| (tape, self.lanes)).collect();
        let step = Program::with_variants(&variants, Precision::F32, self.device)?;
        Ok(Programs { step, score: self.score(store, tables)?, remember })
    }
    fn plan(&self, tape: &Tape) -> Result<Program> {
        Program::on_lanes(tape, &[], Precision::F32, self.device, self.lanes)
    }
    /// Records and plans a batch that only updates the memory; `None` if the model has no memory.
    fn remember(&self, store: &Store, tables: &EventTables) -> Result<Option<Program>> {
        if self.net.model.state().is_empty() {
            return Ok(None);
        }
        let mut t = Tape::new();
        self.net.remember(&mut t, store, tables, self.batch)?;
        Ok(Some(self.plan(&t)?))
    }
    /// Appends a training step up to its loss; `train` switches the model's drop-out on.
    fn loss(&self, t: &mut Tape, store: &Store, tables: &EventTables, train: bool) -> Result<(Forward, Var)> {
        let forward = self.net.forward(t, store, tables, self.batch, self.negatives[0], train)?;
        let loss = match self.labels {
            None => t.bce_loss(forward.logits)?,
            Some(labels) => {
                let labels = t.stored(store, labels)?;
                let labels = t.gather_rows(labels, forward.batch.event)?;
                t.label_loss(forward.logits, labels, self.positive_weight)?
            }
        };
        // The losses of the ranks add up to the loss of the whole batch.
        let loss = match tables.over {
            Some(_) => t.mul(loss, forward.batch.share)?,
            None => loss,
        };
        let table = t.stored(store, self.losses)?;
        t.write_rows(table, forward.batch.index, loss)?;
        Ok((forward, loss))
    }
    /// Records the training step.
    fn training_step(&self, store: &Store, tables: &EventTables) -> Result<Tape> {
        let mut t = Tape::new();
        let (forward, loss) = self.loss(&mut t, store, tables, !self.frozen)?;
        self.parameters.minimize(&mut t, store, loss)?;
        if let Some(settling) = self.settling {
            settling.average.record(&mut t, store)?;
        }
        self.net.write(&mut t, store, tables, &forward)?;
        Ok(t)
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
        let mut t = Tape::new();
        let train = self.parameters.learns_beyond(Net::HEADS, writers);
        let (forward, loss) = self.loss(&mut t, store, tables, train)?;
        let rates = t.stored(store, settling.rates)?;
        let rate = t.gather_rows(rates, forward.batch.index)?;
        self.parameters.minimize_others(&mut t, store, loss, rate, writers)?;
        self.net.write(&mut t, store, tables, &forward)?;
        Ok(t)
    }
    /// Records and plans a scored batch.
    fn score(&self, store: &Store, tables: &EventTables) -> Result<Program> {
        let mut t = Tape::new();
        let forward = self.net.forward(&mut t, store, tables, self.batch, self.negatives[1], false)?;
        let table = t.stored(store, self.scores)?;
        t.write_rows(table, forward.batch.rank, forward.logits)?;
        self.net.write(&mut t, store, tables, &forward)?;
        self.plan(&t)
    }
}

impl Programs {
    /// Returns the memory that the programs need; `free` bytes are free on the device.
    fn memory(&self, store: &Store, tables: &EventTables, free: Option<usize>) -> MemoryPlan {
        let features: Vec<BufferId> = tables.features().collect();
        let programs: Vec<&Program> = [&self.step, &self.score].into_iter().chain(&self.remember).collect();
        MemoryPlan::of(store, (&features, tables.features_on_host()), &programs, free)
    }
}
