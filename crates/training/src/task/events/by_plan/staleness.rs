//! Training steps that read older node memory: the least staleness, found while a run trains (MSPipe, section
//! 3.2), and what the steps have missed.
//!
//! A few steps of an epoch are timed, then some hundred follow with the staleness that these times ask for,
//! then a few are timed again, and so on. So the staleness follows the times of the stages as they change.
use super::variants::StepVariants;
use crate::{
    model::EventModel,
    plan::{
        Mitigation, Plan, StageSeconds, StalenessChoice, Timeline, least_staleness,
        partition::{DemandOptions, needed_nodes},
        stale_rows,
    },
    task::{
        config::Config,
        events::setup::Setup,
        training::{EventCount, Report, StalenessRecord, TaskCore, repeat_and_report},
    },
};
use std::ops::Range;
use tgnn::{
    autograd::{Span, Stage},
    error::{Error, Result},
    runtime::comm::Ranks,
};
use tgnn_data::{Events, Split};

/// Steps that are timed.
const TIMED: usize = 16;
/// Timed steps that do not count: they fill the pipeline.
const FILLING: usize = 4;
/// The fewest and the most steps until others are timed: their number doubles each time.
const FOLLOWING: [usize; 2] = [128, 2048];
/// Batches whose rows are looked at for constraint C3.
const COUNTED: usize = 200;

/// Quantile of the gaps between a node's events after which its memory is stale (MSPipe, section 3.3).
const STALE_AFTER: f64 = 0.99;

/// Finds the staleness of the steps of a run.
pub(in crate::task::events) struct Online {
    pub choice: StalenessChoice,
    /// The times of the last timed steps.
    seconds: Option<StageSeconds>,
    /// The staleness of each step of this pass so far.
    pub of_pass: Vec<usize>,
}

/// Steps that run with a staleness each.
struct Segment {
    staleness: Vec<usize>,
    /// Whether the steps are timed.
    timed: bool,
}

impl Online {
    /// Returns what finds the staleness; `None` if the plan gives it.
    ///
    /// # Errors
    /// Those of counting rows.
    pub fn new(config: &Config, events: &Events, setup: &Setup) -> Result<Option<Self>> {
        if !setup.plan.finds_staleness() {
            return Ok(None);
        }
        let choice = bounded(config, events, setup.split.train.clone())?;
        Ok(Some(Online { choice, seconds: None, of_pass: Vec::new() }))
    }
    /// Trains a pass of `steps` steps. Collective.
    ///
    /// # Errors
    /// As [`repeat_and_report`]; `Comm`.
    pub fn pass(
        &mut self,
        core: &mut TaskCore,
        variants: StepVariants,
        steps: usize,
        count: &EventCount<'_>,
        progress: Report<'_>,
    ) -> Result<(), (Option<usize>, Error)> {
        self.of_pass.clear();
        while self.of_pass.len() < steps {
            let (segment, begins_trace) = (self.next(steps), !core.traced);
            if segment.timed && begins_trace {
                core.step.start_trace();
            }
            let runs = variants.runs_of(&segment.staleness, self.of_pass.len());
            let TaskCore { step, store, losses, .. } = core;
            repeat_and_report(step, &runs, store, Some(*losses), count, progress)?;
            let spans = match segment.timed {
                true if begins_trace => core.step.end_trace(),
                true => core.step.trace(),
                false => Vec::new(),
            };
            self.ran(segment, &spans, core.device.ranks()).map_err(|e| (None, e))?;
        }
        Ok(())
    }
    /// Returns the next steps of a pass of `steps` steps.
    fn next(&self, steps: usize) -> Segment {
        let (mut following, mut end) = (FOLLOWING[0], 0);
        let done = self.of_pass.len();
        // The segment that begins where the last one has ended.
        let (timed, length) = loop {
            if end == done {
                break (true, TIMED);
            }
            end += TIMED;
            if end == done {
                break (false, following);
            }
            end += following;
            following = FOLLOWING[1].min(2 * following);
        };
        let n = length.min(steps - done);
        // Every segment is a run of its own: when it begins, all writes before it have ended. Its first step
        // reads the newest memory without waiting, whatever its staleness.
        let staleness =
            self.seconds.map_or(vec![0; n], |step| least_staleness(&vec![step; n], self.choice.most));
        Segment { staleness, timed }
    }
    /// Takes note of steps that have run, and of when their ops did if they were timed. Collective.
    fn ran(&mut self, segment: Segment, spans: &[Span], ranks: Option<&Ranks>) -> Result<()> {
        self.choice.count(&segment.staleness);
        if segment.timed {
            let own = stage_seconds(spans, segment.staleness.len());
            let seconds = ranks.map_or(Ok(own), |ranks| own.of_slowest(ranks))?;
            (self.seconds, self.choice.seconds) = (Some(seconds), seconds);
        }
        self.of_pass.extend(segment.staleness);
        Ok(())
    }
}

/// Returns what is known before the first step: how many steps constraint C3 allows.
fn bounded(config: &Config, events: &Events, train: Range<usize>) -> Result<StalenessChoice> {
    let around = config.event_model()?.rows_around();
    let batch = config.batch.min(train.len()).max(1);
    let (neighbors, seed) = (around.read, config.seed);
    let history = config.history();
    let options = DemandOptions { ranks: 1, batch, neighbors, history, seed, ..DemandOptions::default() };
    let needed = needed_nodes(events, train.clone(), &options)?;
    Ok(StalenessChoice::new(stale_rows(events, train, batch, COUNTED, needed)?))
}

/// Returns the least staleness of node memory with which steps do not wait that take as long as those of the
/// timelines of all ranks, `steps` in each.
///
/// # Errors
/// Those of counting the rows that it leaves out of date.
pub fn staleness_of(config: &Config, events: &Events, timelines: &[Timeline], steps: usize) -> Result<usize> {
    let most = bounded(config, events, config.split(events)?.train)?.most;
    let of_ranks = timelines.iter().map(|timeline| stage_seconds(timeline.spans(), steps));
    let step = of_ranks.reduce(StageSeconds::slowest).unwrap_or_default();
    Ok(least_staleness(&[step; FOLLOWING[0]], most).last().copied().unwrap_or(0))
}

/// Returns the seconds of the stages of a step, as a mean over the last of `steps` steps.
fn stage_seconds(spans: &[Span], steps: usize) -> StageSeconds {
    let counted = if steps > 2 * FILLING { steps - FILLING } else { steps };
    let end = spans.iter().map(|span| span.step + 1).max().unwrap_or(0);
    let mut sum = StageSeconds::default();
    for span in spans.iter().filter(|span| span.step + counted >= end) {
        *match span.node_info.stage {
            Stage::Sample | Stage::Route => &mut sum.sample,
            Stage::FetchFeatures => &mut sum.features,
            Stage::Dispatch | Stage::FetchMemory => &mut sum.memory,
            Stage::Aggregate | Stage::WriteMemory => &mut sum.write,
            Stage::UpdateMemory
            | Stage::Embed
            | Stage::WeightGrads
            | Stage::ReduceGradients
            | Stage::Step => &mut sum.train,
        } += span.end - span.start;
    }
    let mean = |sum: f64| sum / counted.max(1) as f64;
    let StageSeconds { sample, features, memory, train, write } = sum;
    let [sample, features, memory, train, write] = [sample, features, memory, train, write].map(mean);
    StageSeconds { sample, features, memory, train, write }
}

/// Returns the ticks without an event after which a node's memory is mixed; `None` if it never is.
pub(super) fn mixed_after(plan: &Plan, events: &Events, split: &Split) -> Option<i64> {
    (plan.staleness.mitigation == Mitigation::Similar).then(|| split.longest_gap(events, STALE_AFTER))
}

/// Adds what the steps of a pass have missed, on all ranks, to that of the passes before. Collective.
pub(super) fn add_missed(
    record: &mut StalenessRecord,
    model: &dyn EventModel,
    core: &mut TaskCore,
) -> Result<()> {
    let TaskCore { store, device, .. } = core;
    let counts = model.row_counts();
    if let Some(errors) = counts.errors {
        store.fetch(&[errors])?;
        record.mixed.get_or_insert_default().add(store.read::<f32>(errors)?);
        store.clear(errors)?;
    }
    let Some(missed) = counts.missed_writes else { return Ok(()) };
    store.fetch(&[missed])?;
    let own = store.read::<u32>(missed)?.to_vec();
    store.clear(missed)?;
    let all = match device.ranks() {
        Some(ranks) => ranks.gathered(bytemuck::cast_slice(&own))?,
        None => vec![bytemuck::cast_slice(&own).to_vec()],
    };
    let rows = &mut record.missed_writes;
    for bytes in all {
        let counts: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        let used = counts.iter().rposition(|&rows| rows > 0).map_or(0, |at| at + 1);
        rows.resize(rows.len().max(used), 0);
        rows.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_is_a_run_whose_first_step_reads_the_newest_memory() {
        let seconds = StageSeconds { memory: 1.0, train: 4.0, write: 2.0, ..StageSeconds::default() };
        let choice = StalenessChoice { most: 8, ..StalenessChoice::default() };
        let mut online = Online { choice, seconds: Some(seconds), of_pass: Vec::new() };
        let mut lengths = Vec::new();
        while online.of_pass.len() < 500 {
            let Segment { staleness, timed } = online.next(500);
            assert_eq!(timed, lengths.len() % 2 == 0);
            assert!(staleness[0] == 0 && staleness[1..].iter().all(|&steps| steps == 1), "{staleness:?}");
            lengths.push(staleness.len());
            online.of_pass.extend(staleness);
        }
        assert_eq!(lengths, [16, 128, 16, 256, 16, 68]);
    }
}
