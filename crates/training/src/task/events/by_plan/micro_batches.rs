//! Chooses the number of micro-batches of a run whose plan has it fitted, by a few profiled steps.
//!
//! The steps are trained in tasks of their own, which are dropped afterwards, and their bytes are counted
//! apart. So the profile changes neither weights nor memory, and a run that chooses n has the bits of a run
//! that is given n.
use crate::{
    plan::{MicroBatchChoice, MicroBatchRule, MicroBatches, ProfiledStep},
    task::{
        Config, RunOptions,
        events::{EventTask, setup::Setup, task::Pass},
    },
};
use std::time::Instant;
use tgnn::{
    autograd::Stage,
    error::Result,
    runtime::{
        Device,
        comm::{Ranks, TrafficKind},
    },
};
use tgnn_data::Events;

/// Timed passes of each kind; one more runs before them, which makes schedules and graphs.
const PASSES: usize = 3;
/// Steps of a pass.
const STEPS: usize = 8;
/// Kinds of profiled steps: by what the batch size is divided, and the number of micro-batches. The last one
/// tells the bytes of an event from those of a batch.
const PROFILED: [(usize, usize); 5] = [(1, 8), (1, 4), (1, 2), (1, 1), (2, 1)];

/// Builds the task of a run, with the number of micro-batches that its plan asks for. Collective.
///
/// # Errors
/// As [`EventTask::new`]; the errors of the profiled steps.
pub(in crate::task::events) fn task_of_run(
    config: &Config,
    events: &Events,
    device: Device,
    options: &RunOptions,
) -> Result<EventTask> {
    let known = options.resumed(&device)?;
    let setup = Setup::new(config, events, device, known.as_ref())?;
    let choice = chosen(config, events, &setup, options)?;
    let setup = match &choice {
        Some(choice) => in_parts(&setup, choice.micro_batches),
        None => setup,
    };
    let mut task = EventTask::with(config, events, setup)?;
    task.plan_state.micro_batches = choice;
    Ok(task)
}

/// Returns the same, with a plan that has `n` micro-batches.
fn in_parts(setup: &Setup, n: usize) -> Setup {
    let mut setup = setup.clone();
    if let Some(rank_plan) = &mut setup.plan.ranks {
        rank_plan.micro_batches = MicroBatches::Count(n);
    }
    setup
}

/// Returns the number of micro-batches; `None` if the plan gives a number, or there are no ranks. A run that
/// is resumed with as many ranks keeps its number. Collective.
fn chosen(
    config: &Config,
    events: &Events,
    setup: &Setup,
    options: &RunOptions,
) -> Result<Option<MicroBatchChoice>> {
    let rank_plan = setup.plan.ranks.unwrap_or_default();
    let Some(ranks) = setup.device.ranks() else { return Ok(None) };
    if rank_plan.micro_batches != MicroBatches::Rule(MicroBatchRule::Fitted) {
        return Ok(None);
    }
    if let Some(choice) = kept(&setup.device, ranks.size(), options)? {
        return Ok(Some(choice));
    }
    let lane = |stage| setup.plan.placement(stage).lane;
    let overlap = lane(Stage::Dispatch) != lane(Stage::UpdateMemory);
    let steps = match setup.over_ranks.owners.is_some() && ranks.size() > 1 && overlap {
        true => profile(config, events, setup)?,
        false => Vec::new(),
    };
    Ok(Some(MicroBatchChoice::agreed(ranks, &steps, config.batch.min(setup.split.train.len()))?))
}

/// Returns the choice of the run that is resumed, if it had as many ranks. Collective.
fn kept(device: &Device, ranks: usize, options: &RunOptions) -> Result<Option<MicroBatchChoice>> {
    let choice = options.resumed(device)?.and_then(|manifest| manifest.by_plan.micro_batches);
    Ok(choice.filter(|choice| choice.ranks == ranks))
}

/// Trains the steps of the profile, and returns what they took on this rank; nothing if the model does not
/// divide its rows.
fn profile(config: &Config, events: &Events, setup: &Setup) -> Result<Vec<ProfiledStep>> {
    let apart = setup.device.ranks().map(Ranks::counted_apart);
    let device = apart.map_or(setup.device.clone(), |ranks| setup.device.clone().over(ranks));
    let mut steps = Vec::new();
    for (divisor, parts) in PROFILED {
        let batch = config.batch.min(setup.split.train.len()).div_ceil(divisor);
        // No first batch is shorter than the others, and no pass ends early.
        let config = Config { batch, chunks: 1, max_batches: 0, ..config.clone() };
        let setup = Setup { device: device.clone(), ..in_parts(setup, parts) };
        let mut task = EventTask::with(&config, events, setup)?;
        let dispatches = task.core.step().stages().filter(|(_, stage)| *stage == Stage::Dispatch).count();
        if dispatches < parts {
            return Ok(Vec::new());
        }
        for pass in 0..=PASSES {
            let step = profiled(&mut task, parts)?;
            if pass > 0 {
                steps.push(step);
            }
        }
    }
    Ok(steps)
}

/// Trains a pass of a few steps in `parts` micro-batches, and returns what a step took. The steps are from
/// the middle of the training part, where nodes have neighbours, and follow one another as in an epoch.
fn profiled(task: &mut EventTask, parts: usize) -> Result<ProfiledStep> {
    let (train, batch) = (task.split.train.clone(), task.batch().max(1));
    let steps = (train.len() / batch).clamp(1, STEPS);
    let first = train.start + train.len().saturating_sub(steps * batch) / 2;
    let ranks = task.core.device().ranks().cloned();
    let bytes = || ranks.as_ref().map_or(0, |ranks| ranks.traffic().bytes(TrafficKind::Dispatch));
    task.reset()?;
    let (before, began) = (bytes(), Instant::now());
    task.pass(Pass::Train, 0, first..(first + steps * batch).min(train.end), &mut |_| {})?;
    let (bytes, seconds) = ((bytes() - before) as f64, began.elapsed().as_secs_f64());
    let mean = |sum: f64| sum / steps as f64;
    Ok(ProfiledStep { events: batch, parts, bytes: mean(bytes), seconds: mean(seconds) })
}
