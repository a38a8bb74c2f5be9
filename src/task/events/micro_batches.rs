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

/// Steps that are trained before any is measured: memory fills, and copies become stale.
const WARM_UP: usize = 3;
/// Measured steps of each kind.
const MEASURED: usize = 12;
/// Kinds of profiled steps: by what the batch size is divided, and the number of micro-batches. The first one
/// has so many that the costs of a part show; the last one tells the bytes of an event from those of a batch.
const PROFILED: [(usize, usize); 3] = [(1, 4), (1, 1), (2, 1)];

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
    for (divisor, parts) in PROFILED {
        let batch = config.batch.min(setup.split.train.len()).div_ceil(divisor);
        // No first batch is shorter than the others, and no pass ends early.
        let config = Config { batch, chunks: 1, max_batches: 0, ..config.clone() };
        let setup = Setup { device: device.clone(), ..setup.in_parts(parts) };
        let mut task = EventTask::with(&config, events, setup)?;
        let dispatches = task.step().stages().filter(|(_, stage)| *stage == Stage::Dispatch).count();
        if dispatches < parts {
            return Ok(None);
        }
        let of_kind = profiled(&mut task, batch, parts)?;
        steps.extend(of_kind.0);
        spans.extend(of_kind.1);
    }
    let costs = CostModel::fit(&spans, &|_| 0.0);
    Ok(Some(Profile { steps, costs }))
}

/// Trains steps of `batch` events in `parts` micro-batches. Returns what they took, and the runs of their
/// ops. They are from the middle of the training part, where nodes have neighbours, and follow one another as
/// in an epoch: rows share the links with gradients, and threads with the preparation of the next step.
fn profiled(task: &mut EventTask, batch: usize, parts: usize) -> Result<(Vec<ProfiledStep>, Vec<Span>)> {
    let train = task.split.train.clone();
    let batches = (train.len() / batch.max(1)).clamp(1, WARM_UP + MEASURED);
    let warm_up = WARM_UP.min(batches - 1);
    let first = train.start + train.len().saturating_sub(batches * batch) / 2;
    let measured = first + warm_up * batch;
    let end = (first + batches * batch).min(train.end);
    task.reset()?;
    task.pass(Pass::Train, 0, first..measured, &mut |_| {})?;
    let ranks = task.device().ranks().cloned();
    let bytes = || ranks.as_ref().map_or(0, |ranks| ranks.traffic().bytes(TrafficKind::Dispatch));
    let before = bytes();
    task.step_mut().start_trace();
    task.pass(Pass::Train, 0, measured..end, &mut |_| {})?;
    let (steps, spans) = (batches - warm_up, task.step().trace());
    let mean_bytes = (bytes() - before) as f64 / steps as f64;
    let of_step = |events| ProfiledStep { events, parts, bytes: mean_bytes, ..ProfiledStep::default() };
    let mut profiled = vec![of_step((end - measured) / steps); steps];
    let lane = task.plan().placement(Stage::UpdateMemory).lane - 1;
    for s in &spans {
        // After the last step there may be an update, in a run of its own.
        let Some(step) = profiled.get_mut(s.step) else { continue };
        let seconds = s.end - s.start;
        match s.node_info.stage {
            Stage::Dispatch => step.dispatch += seconds,
            Stage::FetchMemory | Stage::UpdateMemory => step.update += seconds,
            _ if s.node_info.lane == lane => step.others += seconds,
            _ => {}
        }
    }
    Ok((profiled, spans))
}
