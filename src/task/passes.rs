//! What the training loop asks of a task: passes over its data, and what there is to save and to tell.
use super::{Choice, MemoryPlan, Scores, TestScores};
use crate::{
    autograd::{Parameters, Program},
    error::{Error, Result},
    plan::{CostModel, Plan, Timeline},
    runtime::{BufferId, Store},
};

/// How far a pass is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Events done, or edges of the snapshots that were predicted.
    pub events: usize,
    /// Those of the pass.
    pub total: usize,
    /// Mean loss of the pass so far, where it is training and the host has seen any.
    pub loss: Option<f64>,
}

/// Hears how far a pass is.
pub type Report<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// The runs of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// Of each, the variant that the program takes.
    pub variant_of_run: Vec<usize>,
    /// Of each, how many batches or groups of the pass are over after it.
    pub over: Vec<usize>,
}

impl Runs {
    /// A run for each of `batches`, in this variant.
    pub fn variant_of_run(variant: usize, batches: usize) -> Self {
        Runs { variant_of_run: vec![variant; batches], over: (1..=batches).collect() }
    }
    /// A run for each group, in these variants, after `before` groups of the pass; where a round has several, behind every round a run in variant
    /// `update`.
    pub fn of_groups(variants: &[usize], before: usize, (round, update): (usize, usize)) -> Self {
        let mut runs = Runs::default();
        for (at, &variant) in variants.iter().enumerate() {
            let ends = (at + 1).is_multiple_of(round) || at + 1 == variants.len();
            let update = (round > 1 && ends).then_some(update);
            for variant in std::iter::once(variant).chain(update) {
                runs.variant_of_run.push(variant);
                runs.over.push(before + at + 1);
            }
        }
        runs
    }
    /// The batch or group that a run is of: the last, where it is an update.
    pub fn group(&self, run: usize) -> usize {
        self.over[run] - 1
    }
    /// Other runs after these.
    pub fn append(&mut self, mut other: Runs) {
        self.variant_of_run.append(&mut other.variant_of_run);
        self.over.append(&mut other.over);
    }
}

/// Makes these runs of a program over its store, and reports after each: what `events` counts up to there, of all, and the mean of the
/// losses that the pass wrote, where it does.
///
/// # Errors
/// As the program's, with the number of the batch or group where that is known.
pub(super) fn repeat_and_report(
    (program, runs): (&mut Program, &Runs),
    store: &mut Store,
    losses: Option<BufferId>,
    (events, total): (&(dyn Fn(usize) -> usize + Sync), usize),
    progress: Report<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let (mut counted, mut sum) = (0, 0.0);
    let ran = program.repeat_in(store, &runs.variant_of_run, &mut |done| {
        let over = runs.over[done.runs - 1];
        // Where lanes run on, losses are read when both rest; a device's when the pass is over.
        if let Some(new) = done.store.and_then(|store| store.read::<f32>(losses?).ok()?.get(counted..over)) {
            sum += new.iter().map(|&l| f64::from(l)).sum::<f64>();
            counted = over;
        }
        let loss = if counted == 0 { None } else { Some(sum / counted as f64) };
        progress(Progress { events: events(over), total, loss });
    });
    ran.map_err(|(run, e)| (run.map(|run| runs.group(run)), e))
}

/// A model on data, ready to train and to evaluate: programs for both, over one store.
pub trait Task {
    /// Parameters, state, tables.
    fn store(&self) -> &Store;
    /// Likewise.
    fn store_mut(&mut self) -> &mut Store;
    /// Parameters and optimiser.
    fn parameters(&self) -> &Parameters;
    /// Both, to give the parameters other values.
    fn store_and_parameters(&mut self) -> (&mut Store, &Parameters);
    /// What the run holds in memory.
    fn memory(&self) -> MemoryPlan;
    /// How its steps follow one another.
    fn plan(&self) -> &Plan;
    /// What a person should know before it starts: a word each, and what there is to say.
    fn remarks(&self) -> Vec<(&'static str, String)>;
    /// The training step.
    fn step(&self) -> &Program;
    /// Likewise, to take the time of its ops, say.
    fn step_mut(&mut self) -> &mut Program;
    /// Notes down when the nodes of the training step run, from the next epoch on: of the last one alone.
    fn trace(&mut self);
    /// State beyond the parameters that a checkpoint holds.
    fn state(&self) -> Vec<BufferId>;
    /// Buffers of the model without its head: what another task's run may start from.
    fn model_buffers(&self) -> Vec<BufferId>;
    /// One pass over the training data. Returns the mean loss of its steps, and what [`Progress`] counts.
    ///
    /// # Errors
    /// Diverged, with the step, when the loss is not a number.
    fn train_epoch(&mut self, epoch: u32, progress: Report<'_>) -> Result<(f64, usize)>;
    /// Whether a pass leaves a memory behind that scores depend on.
    fn has_memory(&self) -> bool {
        false
    }
    /// Trains for one more epoch, the weights that write the memory at rest at their averages over the last epochs: what reads it learns
    /// from the memory that a replay makes. Returns what [`train_epoch`](Self::train_epoch) does; `None` where there is nothing to settle.
    ///
    /// # Errors
    /// As `train_epoch`'s.
    fn settle(&mut self, _epoch: u32, _progress: Report<'_>) -> Result<Option<(f64, usize)>> {
        Ok(None)
    }
    /// Makes the memory anew: empties it, and goes over the events that train and validate with the weights at rest.
    ///
    /// # Errors
    /// As the ops'.
    fn replay(&mut self, _progress: Report<'_>) -> Result<()> {
        Ok(())
    }
    /// Scores the validation part, continuing from the state there is.
    ///
    /// # Errors
    /// As the ops'.
    fn validate(&mut self, progress: Report<'_>) -> Result<Scores>;
    /// Scores the test part, continuing from the state there is.
    ///
    /// # Errors
    /// As the ops'.
    fn test(&mut self, progress: Report<'_>) -> Result<TestScores>;

    /// When the nodes of the training step ran in the last epoch that was [traced](Self::trace).
    fn timeline(&self) -> Timeline {
        Timeline::new(self.step().trace())
    }
    /// How long the ops of the last traced epoch take, as a function of what they meet.
    fn costs(&self) -> CostModel;
    /// When the nodes of the training step would have run in the last epoch by these predictions.
    ///
    /// # Errors
    /// `Plan`, where lanes would wait for each other.
    fn predicted(&self, costs: &CostModel) -> Result<Timeline>;
    /// How predictions shared out groups of snapshots, and the predictions; none before there are any, or where the plan asks for none.
    fn chosen(&self) -> Option<(&Choice, &CostModel)> {
        None
    }
    /// Buffers that a checkpoint holds: parameters, optimiser, state.
    fn checkpoint_buffers(&self) -> Vec<BufferId> {
        let parameters = self.parameters().iter().map(|p| p.1);
        parameters.chain(self.parameters().optimizer_buffers()).chain(self.state()).collect()
    }
}
