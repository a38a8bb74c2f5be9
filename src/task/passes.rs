//! What the training loop asks of a task: passes over its data, and what there is to save and to tell.
use super::{MemoryPlan, Scores, TestScores};
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

/// What comes after every so many runs of a training step: an update by what they have summed up.
pub(super) struct Rounds<'a> {
    /// The update.
    pub update: &'a mut Program,
    /// Runs of a round; the last may have fewer.
    pub size: usize,
    /// `[1, 1]`: what a run's gradient is multiplied with, one over the runs of its round.
    pub share: BufferId,
}

/// Runs a program over its store, a run for each entry of `in_form`, after `before` runs of the same pass, and reports after each: what
/// `events` counts up to there, of all, and the mean of the losses that it wrote, where it does.
///
/// # Errors
/// As the program's, with the number of the run where that is known.
pub(super) fn repeat_and_report(
    (program, in_form, before): (&mut Program, &[usize], usize),
    mut rounds: Option<Rounds<'_>>,
    store: &mut Store,
    losses: Option<BufferId>,
    (events, total): (&(dyn Fn(usize) -> usize + Sync), usize),
    progress: Report<'_>,
) -> Result<(), (Option<usize>, Error)> {
    let (mut counted, mut sum, runs) = (0, 0.0, in_form.len());
    let mut done = |store: &Store, runs: usize| {
        // A device's losses are read when the pass is over.
        if let Some(losses) = losses.filter(|&l| store.is_fresh(l)) {
            sum += store.read::<f32>(losses)[before + counted..before + runs]
                .iter()
                .map(|&l| f64::from(l))
                .sum::<f64>();
            counted = runs;
        }
        let loss = if counted == 0 { None } else { Some(sum / counted as f64) };
        progress(Progress { events: events(before + runs), total, loss });
    };
    let size = rounds.as_ref().map_or(runs, |r| r.size).max(1);
    for first in (0..runs).step_by(size) {
        let own = size.min(runs - first);
        if let Some(r) = &rounds
            && (first == 0 || own < size)
        {
            store.write(r.share, &[1.0 / own as f32]);
        }
        let forms = &in_form[first..first + own];
        let ran = program.repeat_in(store, forms, &mut |store, runs| done(store, first + runs));
        ran.map_err(|(at, e)| (at.map(|at| before + first + at), e))?;
        if let Some(r) = &mut rounds {
            r.update
                .repeat(store, 1, &mut |_, _| {})
                .map_err(|(_, e)| (Some(before + first + own - 1), e))?;
        }
    }
    Ok(())
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
    /// Notes down when the nodes of the training step run, from the next epoch on: of the last one alone. For the CPU.
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
    /// What was chosen for the plan while training, for people.
    fn chosen(&self) -> Option<String> {
        None
    }
    /// Buffers that a checkpoint holds: parameters, optimiser, state.
    fn checkpoint_buffers(&self) -> Vec<BufferId> {
        let parameters = self.parameters().iter().map(|p| p.1);
        parameters.chain(self.parameters().optimizer_buffers()).chain(self.state()).collect()
    }
}
