//! Chooses the number of micro-batches of a run whose plan has it fitted, by a few profiled steps.
//!
//! The steps are trained in tasks of their own, which are dropped afterwards, and their bytes are counted
//! apart. So the profile changes neither weights nor memory, and a run that chooses n has the bits of a run
//! that is given n.
use super::{EventTask, setup::Setup, task::Pass};
use crate::{
    autograd::{Span, Stage},
    data::Events,
    error::Result,
    plan::{CostModel, MicroBatchChoice, MicroBatchRule, MicroBatches, ProfiledStep},
    runtime::{
        Device,
        comm::{Ranks, TrafficKind},
    },
    task::{
        Checkpoint, Config, RunOptions,
        training::{Task, from_first},
    },
};
use std::ops::Range;

/// Steps that are trained before any is measured: memory fills, and copies become stale.
const WARM_UP: usize = 3;
/// Measured steps of each number of micro-batches; every other one has half a batch.
const MEASURED: usize = 10;
/// The numbers of micro-batches of profiled steps: so many that the costs of a part show, and one.
const PROFILED_PARTS: [usize; 2] = [4, 1];

/// Returns the number of micro-batches, with the costs of the profile; `None` if the plan gives a number, or
/// there are no ranks. A run that is resumed with as many ranks keeps its number. Collective.
///
/// # Errors
/// Those of building a task and of a step; `Comm`.
pub(super) fn chosen(
    config: &Config,
    events: &Events,
    setup: &Setup,
    options: &RunOptions,
) -> Result<Option<(MicroBatchChoice, Option<CostModel>)>> {
    let over = setup.plan.ranks.unwrap_or_default();
    let Some(ranks) = setup.device.ranks() else { return Ok(None) };
    if over.micro_batches != MicroBatches::Rule(MicroBatchRule::Fitted) {
        return Ok(None);
    }
    if let Some(choice) = kept(&setup.device, ranks.size(), options)? {
        return Ok(Some((choice, None)));
    }
    let lane = |stage| setup.plan.placement(stage).lane;
    let overlap = lane(Stage::Dispatch) != lane(Stage::UpdateMemory);
    let profile = match setup.owners.is_some() && ranks.size() > 1 && overlap {
        true => profile(config, events, setup)?,
        false => None,
    };
    let (steps, costs) = profile.map_or((Vec::new(), None), |p| (p.steps, Some(p.costs)));
    let choice = MicroBatchChoice::agreed(ranks, &steps, config.batch.min(setup.split.train.len()))?;
    Ok(Some((choice, costs)))
}

/// Returns the choice of the run that is resumed, if it had as many ranks. Collective.
fn kept(device: &Device, ranks: usize, options: &RunOptions) -> Result<Option<MicroBatchChoice>> {
    let Some(out) = options.out.as_ref().filter(|_| options.resume) else { return Ok(None) };
    let choice = from_first(device, || {
        let checkpoint = Checkpoint::at(out.join("checkpoint"));
        // A checkpoint that cannot be read is refused when its state is loaded.
        Ok(checkpoint.manifest().ok().and_then(|manifest| manifest.micro_batches))
    })?;
    Ok(choice.filter(|choice| choice.ranks == ranks))
}

/// What profiled steps took on this rank.
struct Profile {
    steps: Vec<ProfiledStep>,
    costs: CostModel,
}

/// Trains the steps of the profile; `None` if the model does not divide its rows.
fn profile(config: &Config, events: &Events, setup: &Setup) -> Result<Option<Profile>> {
    let apart = setup.device.ranks().map(Ranks::counted_apart);
    let device = apart.map_or(setup.device.clone(), |ranks| setup.device.clone().over(ranks));
    let (mut steps, mut spans) = (Vec::new(), Vec::new());
    for parts in PROFILED_PARTS {
        let setup = Setup { device: device.clone(), ..setup.in_parts(parts) };
        let mut task = EventTask::with(config, events, setup)?;
        let dispatches = task.step().stages().filter(|(_, stage)| *stage == Stage::Dispatch).count();
        if dispatches < parts {
            return Ok(None);
        }
        for at in 0..WARM_UP + MEASURED {
            let range = range_of(&task, at);
            let (step, of_step) = profiled(&mut task, range, parts)?;
            if at >= WARM_UP {
                steps.push(step);
                spans.extend(of_step);
            }
        }
    }
    let costs = CostModel::fit(&spans, &|_| 0.0);
    Ok(Some(Profile { steps, costs }))
}

/// Returns the events of the profile's step `at`: batches of the middle of the training part, whose nodes
/// have neighbours, every other one halved.
fn range_of(task: &EventTask, at: usize) -> Range<usize> {
    let (train, batch) = (&task.split.train, task.batch());
    let batches = (train.len() / batch.max(1)).clamp(1, WARM_UP + MEASURED);
    let first = train.start + train.len().saturating_sub(batches * batch) / 2;
    let begin = first + at % batches * batch;
    let length = if at % 2 == 0 { batch } else { batch.div_ceil(2) };
    begin..(begin + length).min(train.end)
}

/// Trains a step of a task on the events of `range`. Returns what it took, and the runs of its ops.
fn profiled(task: &mut EventTask, range: Range<usize>, parts: usize) -> Result<(ProfiledStep, Vec<Span>)> {
    let ranks = task.device().ranks().cloned();
    let bytes = || ranks.as_ref().map_or(0, |ranks| ranks.traffic().bytes(TrafficKind::Dispatch));
    if range.start == range_of(task, 0).start {
        task.reset()?;
    }
    let before = bytes();
    let lane = task.plan().placement(Stage::UpdateMemory).lane - 1;
    task.step_mut().start_trace();
    task.pass(Pass::Train, 0, range.clone(), &mut |_| {})?;
    let spans = task.step().trace();
    let seconds =
        |of: &dyn Fn(&Span) -> bool| spans.iter().filter(|s| of(s)).map(|s| s.end - s.start).sum::<f64>();
    let updates = |s: &Span| matches!(s.node_info.stage, Stage::FetchMemory | Stage::UpdateMemory);
    let step = ProfiledStep {
        events: range.len(),
        parts,
        bytes: (bytes() - before) as f64,
        dispatch: seconds(&|s| s.node_info.stage == Stage::Dispatch),
        update: seconds(&updates),
        others: seconds(&|s| s.node_info.lane == lane && !updates(s) && s.node_info.stage != Stage::Dispatch),
    };
    Ok((step, spans))
}
