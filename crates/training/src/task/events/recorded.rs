//! Passes of training over ranks of this process, recorded so that other machines can be predicted.
use super::EventTask;
use crate::{
    plan::{PassSchedule, Recording, Timeline},
    task::{Config, Task, on_local_ranks},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tgnn::{
    error::{Error, Result},
    runtime::Device,
};
use tgnn_data::Events;

/// How long a rank waits for another one: many ranks may share few cores.
const DEADLINE: Duration = Duration::from_secs(600);

/// Passes over the last training events, by ranks of this process.
#[derive(Debug)]
pub struct RecordedPasses {
    /// The schedule of a pass, for each rank.
    pub schedules: Vec<PassSchedule>,
    /// For each pass, what each rank did.
    pub passes: Vec<Vec<RankPass>>,
    /// Number of events of a pass.
    pub events: usize,
    /// Number of steps of a pass.
    pub steps: usize,
}

/// A pass of a rank.
#[derive(Debug)]
pub struct RankPass {
    /// What the rank computed and sent.
    pub recording: Recording,
    /// When it did.
    pub timeline: Timeline,
}

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRun {
    /// Number of ranks. A single one trains as without ranks.
    pub ranks: usize,
    /// CPU threads of each rank.
    pub threads: usize,
    /// Number of passes.
    pub passes: usize,
    /// Number of batches of a pass, the last ones of the training events.
    pub steps: usize,
    /// Whether the lanes of a rank run side by side, as in training. If not, times mean nothing, but any
    /// number of ranks can share a few cores.
    pub on_lanes: bool,
}

/// Trains over ranks of this process, and records what every rank does.
///
/// # Errors
/// Those of [`EventTask::new`] and of training; `Usage` if nothing shall run.
pub fn record_passes(config: &Config, events: &Events, run: RecordedRun) -> Result<RecordedPasses> {
    let RecordedRun { ranks, threads, passes, steps, .. } = run;
    if ranks == 0 || passes == 0 || steps == 0 {
        return Err(Error::usage("no steps to record").remedy("give 1 or more"));
    }
    let of_ranks: Vec<Mutex<RankPasses>> = (0..ranks).map(|_| Mutex::default()).collect();
    let open = |_| Device::cpu(threads);
    let record = |device: Device| {
        let own = &of_ranks[device.ranks().map_or(0, |ranks| ranks.rank())];
        record_rank(config, events, device, run, own)
    };
    let (events, steps) = match ranks {
        1 => record(open(0)?)?,
        _ => on_local_ranks(ranks, DEADLINE, open, record)?,
    };
    let of_ranks = of_ranks.into_iter().map(|rank| rank.into_inner().unwrap_or_else(PoisonError::into_inner));
    let (schedules, by_rank): (Vec<_>, Vec<_>) = of_ranks.map(|rank| (rank.schedule, rank.passes)).unzip();
    let mut by_rank: Vec<_> = by_rank.into_iter().map(Vec::into_iter).collect();
    let pass = |_| by_rank.iter_mut().filter_map(Iterator::next).collect();
    let passes = (0..passes).map(pass).collect();
    Ok(RecordedPasses { schedules, passes, events, steps })
}

/// The passes of a rank, and their schedule.
#[derive(Default)]
struct RankPasses {
    passes: Vec<RankPass>,
    schedule: PassSchedule,
}

/// Trains as one of the ranks. Returns the number of events and of steps.
fn record_rank(
    config: &Config,
    events: &Events,
    device: Device,
    run: RecordedRun,
    recorded: &Mutex<RankPasses>,
) -> Result<(usize, usize)> {
    let ranks = device.ranks().cloned();
    let mut task = EventTask::new(config, events, device)?;
    // Each copy of the memory trains a segment of the events.
    let events = run.steps.saturating_mul(config.batch).saturating_mul(task.core.nodes.turns.copies);
    let train = &mut task.split.train;
    train.start = train.start.max(train.end.saturating_sub(events));
    task.core.trace();
    if !run.on_lanes {
        task.core.step_mut().profile();
    }
    for pass in 0..run.passes {
        ranks.iter().for_each(|ranks| ranks.traffic().record());
        task.train_epoch(pass as u32, &mut |_| {})?;
        let collectives = ranks.as_ref().map(|ranks| ranks.traffic().recorded()).unwrap_or_default();
        let spans = task.core.step().trace();
        let recording = Recording::new(&spans, collectives)?;
        let ran = RankPass { recording, timeline: Timeline::new(spans) };
        recorded.lock().unwrap_or_else(PoisonError::into_inner).passes.push(ran);
    }
    let events = task.split.train.len() * task.core.nodes.epochs_of_pass();
    recorded.lock().unwrap_or_else(PoisonError::into_inner).schedule = task.pass_schedule()?;
    Ok((events, task.steps()))
}
