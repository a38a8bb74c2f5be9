//! Profiles steps or epochs of a training.
use super::measured::{How, MeasuredOp};
use crate::train_data::Data;
use tgnn::{
    autograd::OpTime,
    error::{Error, Result},
    runtime::Device,
};
use tgnn_training::task::{Config, Task};

/// Profiles steps of the first epoch, after `warm_up` steps of it.
///
/// # Errors
/// Those of a training; `Usage` if there are not more steps than that.
pub(super) fn steps(config: &Config, device: &Device, warm_up: usize, how: How) -> Result<Vec<MeasuredOp>> {
    let config = Config { max_batches: warm_up.saturating_add(how.runs), ..config.clone() };
    let mut task = task(&config, device)?;
    task.core_mut().step_mut().profile_after(warm_up, how.by_launch);
    task.train_epoch(0, &mut |_| {})?;
    let times = task.core_mut().step_mut().end_profile();
    if times.is_empty() {
        let what = format!("an epoch has no step after the first {warm_up}");
        return Err(Error::usage(what).remedy("give a smaller --warm-up or --batch"));
    }
    Ok(measured(&times))
}

/// Profiles whole epochs, after a first one.
///
/// # Errors
/// Those of a training.
pub(super) fn epochs(config: &Config, device: &Device, how: How) -> Result<Vec<MeasuredOp>> {
    let mut task = task(config, device)?;
    task.train_epoch(0, &mut |_| {})?;
    task.core_mut().step_mut().profile_after(0, how.by_launch);
    for epoch in 1..=how.runs {
        task.train_epoch(epoch as u32, &mut |_| {})?;
    }
    Ok(measured(&task.core_mut().step_mut().end_profile()))
}

/// Builds the task of a configuration on its data.
fn task(config: &Config, device: &Device) -> Result<Box<dyn Task>> {
    let data = Data::load(config)?;
    let config = data.fitted(config.clone(), |_| true, &mut Vec::new())?;
    data.task(&config, device)
}

/// Returns the ops of a step, each with its lane.
fn measured(times: &[OpTime]) -> Vec<MeasuredOp> {
    let place = |time: &OpTime| if time.lane > 0 { format!("lane {}", time.lane + 1) } else { String::new() };
    times.iter().map(|time| MeasuredOp::new(time, place(time))).collect()
}
