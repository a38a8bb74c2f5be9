//! Tasks with the state of a checkpoint: to test it, or to go on from it.
use super::{
    Checkpoint, DataTask, Run, RunOptions, Summary, Uses, Watch,
    matching::{same_data, same_model},
    over_ranks::load,
    run::{fits, test_replayed},
};
use crate::task::{config::Config, evaluation::ScoresByMemory};
use tgnn::{error::Result, runtime::Device};
use tgnn_data::Part;

/// Tests a checkpoint: with the memory that its validation left, or, if `replay` is set or the protocol asks
/// for it, the settled model with replayed memory.
///
/// # Errors
/// `Checkpoint` if the checkpoint is damaged, or of other data or another model.
pub(in crate::task) fn evaluate<T: DataTask>(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &T::Data,
    device: &Device,
    (command, replay): (&str, bool),
    watch: &mut dyn Watch,
    on_test: &mut dyn FnMut(&T) -> Result<()>,
) -> Result<Summary> {
    let mut task: T = restored(checkpoint, config, data, device, watch)?;
    let (manifest, mut scores) = (checkpoint.manifest()?, ScoresByMemory::default());
    let (best, replays) = (manifest.best_epoch, replay || config.protocol.replays());
    if !replays {
        T::same_test(&manifest, config, data)?;
    }
    let has_memory = task.remembering().is_some();
    if replays && has_memory {
        let buffers = task.core().checkpoint_buffers();
        load(&mut task, &buffers, |store, buffers| checkpoint.load_settled(store, buffers))?;
        scores.replayed = test_replayed(&mut task, watch, best)?;
    } else {
        scores.as_trained = Some(task.test(&mut |p| watch.progress("test", best, p))?);
    }
    on_test(&task)?;
    let options = RunOptions { command: command.into(), ..RunOptions::default() };
    let run = Run { config, data: T::describe(data), device, options: &options, extractors: None };
    let mut summary = run.summary(&task)?;
    summary.test = scores.asked(config.protocol);
    summary.test_by_memory = has_memory.then_some(scores);
    summary.best_epoch = Some(best);
    run.compare(&task, data, &mut summary, watch)?;
    Ok(summary)
}

/// Builds a task with the state of a checkpoint's best epoch after validation.
///
/// # Errors
/// As [`evaluate`].
pub(in crate::task) fn restored<T: DataTask>(
    checkpoint: &Checkpoint,
    config: &Config,
    data: &T::Data,
    device: &Device,
    watch: &mut dyn Watch,
) -> Result<T> {
    let manifest = checkpoint.manifest()?;
    T::same_classes(&manifest, config, data)?;
    same_data(&manifest, &T::describe(data))?;
    manifest.doubt().iter().for_each(|doubt| watch.note(doubt));
    same_model(&manifest, config)?;
    let mut task = T::build(&config.clone().after_training(), data, device.clone(), &manifest)?;
    if manifest.classes.is_none() && task.class_table().is_some() {
        watch.note(
            "the checkpoint is of an earlier version: every number from 0 to the largest label is a class, also if \
             it never occurs",
        );
    }
    let uses = Uses { trains: false, evaluates: true, settles: true, keeps_best: false };
    fits(&mut task, data, uses, config.check_memory)?;
    let buffers = task.core().checkpoint_buffers();
    load(&mut task, &buffers, |store, buffers| checkpoint.load(store, buffers, true))?;
    // A run that does not evaluate leaves the memory of its training events.
    if !manifest.config.evaluate {
        task.remembering().map_or(Ok(()), |memory| memory.remember(Part::Val, &mut |_| {}))?;
    }
    Ok(task)
}
