//! The records of a run: a line of `metrics.jsonl` for every epoch, and `summary.json`.
use super::{MemoryPlan, Task, fingerprint::Fingerprint};
use crate::{
    plan::{Bubble, Choice, Parallel, Plan, RankFeatures, RankMemory},
    task::{
        config::{NegativeKind, TaskName},
        evaluation::{Scores, ScoresByMemory, TestScores},
    },
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tgnn::{
    autograd::Stage,
    error::Result,
    ops::sample_neighbors::History,
    runtime::{
        Device, MatmulPrecision, StoredAs,
        comm::{Channel, TrafficKind},
    },
};
use tgnn_data::{ClassTable, Encodings, Events, Snapshots};

/// The record of an epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Number of the epoch, from 1.
    pub epoch: usize,
    /// Mean of the batches' losses.
    pub train_loss: f64,
    /// Seconds of the training pass alone.
    pub train_seconds: f64,
    /// Training events per second; edges per second for snapshots.
    pub events_per_second: f64,
    /// Scores of the validation part; `None` if the run does not evaluate.
    pub val: Option<Scores>,
    /// Time at which the epoch ended, including validation: seconds since 1970, UTC.
    #[serde(default)]
    pub wall_time: f64,
    /// Number of graphs that the device captured in the training pass, which is slower for it; `None` on a
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphs_captured: Option<usize>,
    /// Seconds of the validation; `None` if the run does not evaluate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_seconds: Option<f64>,
}

/// Scores of [`EdgeBank`](crate::task::EdgeBank) on the test part, with the same candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeBankScores {
    /// Scores with every pair remembered.
    pub unlimited: TestScores,
    /// Scores with the pairs of a window remembered that is as long as the test part.
    pub window: TestScores,
}

/// Scores of a baseline that learns nothing on the test part, with the same candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineScores {
    /// Name of the baseline: what it remembers.
    pub name: String,
    /// Scores of the test part.
    pub test: TestScores,
}

/// Scores of EdgeBank and the rules that learn nothing on the test part, with the same candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleScores {
    /// EdgeBank's.
    pub edgebank: EdgeBankScores,
    /// Those of the rules.
    pub baselines: Vec<BaselineScores>,
}

impl RuleScores {
    /// Returns all scores on the test part with their names, EdgeBank's first.
    pub fn named(&self) -> impl Iterator<Item = (&str, &TestScores)> {
        self.edgebank.named().into_iter().chain(self.baselines.iter().map(|b| (b.name.as_str(), &b.test)))
    }
}

impl EdgeBankScores {
    /// Returns the scores of both variants with their names.
    pub fn named(&self) -> [(&str, &TestScores); 2] {
        [("EdgeBank", &self.unlimited), ("EdgeBank, window", &self.window)]
    }
}

/// Test events at the same time as an event of an earlier batch: node memory, and EdgeBank and the rules that
/// know earlier batches, have seen a part of their second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SameTimeRecord {
    /// Number of these events.
    pub events: usize,
    /// Number of all test events.
    pub of: usize,
}

impl SameTimeRecord {
    /// Counts the events of `test` in batches of `batch`, by the times of all events.
    pub(in crate::task) fn count(time: &[i64], test: Range<usize>, batch: usize) -> Self {
        let before = |i: usize| (i - (i - test.start) % batch).checked_sub(1);
        let has_seen = |&i: &usize| before(i).is_some_and(|last| time[last] == time[i]);
        SameTimeRecord { events: test.clone().filter(has_seen).count(), of: test.len() }
    }
}

/// The device of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// The manufacturer's name of the device.
    pub name: String,
    /// Number of CPU threads.
    pub threads: usize,
}

/// The data of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    /// Name of the data set.
    pub name: String,
    /// Number of events of all parts; of edges in all snapshots, if the data are snapshots.
    pub events: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Width of the edge features; of the vertex features, if the data are snapshots.
    pub edge_features: usize,
    /// Number of snapshots; `None` if the data are an event stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<usize>,
    /// How columns became features.
    #[serde(skip)]
    pub columns: Encodings,
    /// What the classes stand for, if the task predicts classes; `None` in the records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassTable>,
    /// Checksums of the data; `None` in the records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

impl DataRecord {
    /// Returns the record of an event stream.
    pub(in crate::task) fn of_events(events: &Events) -> Self {
        DataRecord {
            name: events.name.clone(),
            events: events.len(),
            nodes: events.nodes,
            edge_features: events.edge_width(),
            snapshots: None,
            columns: events.encodings(),
            classes: None,
            fingerprint: Some(Fingerprint::of_events(events)),
        }
    }
    /// Returns the record of a sequence of snapshots.
    pub(in crate::task) fn of_snapshots(data: &Snapshots) -> Self {
        DataRecord {
            name: data.name.clone(),
            events: data.src.len(),
            nodes: data.nodes,
            edge_features: data.width(),
            snapshots: Some(data.len()),
            columns: Encodings { edge: None, node: data.encoding.clone() },
            classes: None,
            fingerprint: Some(Fingerprint::of_snapshots(data)),
        }
    }
    /// Says in what other data differ, as far as scores of `task` depend on it; features may
    /// differ.
    pub(in crate::task) fn differs(&self, other: &Self, task: TaskName) -> Option<&'static str> {
        let sizes = |data: &Self| (data.events, data.nodes, data.snapshots);
        if sizes(self) != sizes(other) {
            return Some("sizes differ");
        }
        let told =
            |data: &Self| data.fingerprint.map(|f| Fingerprint { edge_features: 0, node_features: 0, ..f });
        told(self)?.difference(&told(other)?, self.snapshots.is_some(), task != TaskName::Link)
    }
    /// Returns the sizes of the data: events, nodes and width of the edge features.
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.events, self.nodes, self.edge_features)
    }
}

/// The ranks that trained together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksRecord {
    /// Number of ranks.
    pub ranks: usize,
    /// How they were connected.
    pub by: String,
    /// Where node memory was.
    pub memory: RankMemory,
    /// Where features were.
    #[serde(default)]
    pub features: RankFeatures,
    /// How the ranks divided training: ranks that shared a batch, groups that shared a copy of the memory,
    /// and copies.
    #[serde(default)]
    pub parallel: Parallel,
    /// What all ranks together sent to one another in passes that train.
    pub traffic: Vec<TrafficRecord>,
    /// The same in passes that evaluate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evaluation_traffic: Vec<TrafficRecord>,
}

/// What ranks sent to one another for a purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficRecord {
    /// The purpose.
    pub kind: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl RanksRecord {
    /// Returns the record of the ranks of a device under a plan, with the memory that a rank needs; `None`
    /// for a single rank. Collective.
    pub(super) fn gather(device: &Device, plan: &Plan, needed: MemoryPlan) -> Result<Option<Self>> {
        let Some(ranks) = device.ranks() else { return Ok(None) };
        let control = ranks.channel(Channel::Control);
        let record = |(kind, rows, bytes): (TrafficKind, _, _)| TrafficRecord {
            kind: kind.name().into(),
            rows,
            bytes,
        };
        let [traffic, evaluation_traffic] = ranks
            .traffic()
            .of_all(&**control)?
            .map(|sent| sent.into_iter().filter(|t| t.2 > 0).map(record).collect());
        let rank_plan = plan.ranks.unwrap_or_default();
        let parallel = rank_plan.parallel.for_ranks(ranks.size())?;
        let features = match needed.features_partitioned {
            true => RankFeatures::Partitioned,
            false => RankFeatures::Replicated,
        };
        let (ranks, by, memory) = (ranks.size(), control.describe(), rank_plan.memory);
        Ok(Some(RanksRecord { ranks, by, memory, features, parallel, traffic, evaluation_traffic }))
    }
}

/// Peak memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakMemory {
    /// Host memory of the process.
    pub host: u64,
    /// Device memory; 0 on the CPU.
    pub device: u64,
}

/// How long a rank of a pipeline idles, in the first rounds of the last epoch: what was measured, and what
/// PipeTGL's theorem 4.1 says of the same times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BubbleRecord {
    /// Seconds of the rank for each of its batches, as measured.
    #[serde(flatten)]
    pub measured: Bubble,
    /// Seconds that it idles for each of them, by the theorem.
    pub idle_by_formula: f64,
}

/// Seconds of a stage on a lane, in one pass over the training data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageRecord {
    /// The stage.
    pub stage: Stage,
    /// The lane, from 0.
    pub lane: usize,
    /// Seconds.
    pub seconds: f64,
}

impl StageRecord {
    /// Returns the records of a task whose ops are timed or traced; none if they are not. Since the timing
    /// began, the task has made `passes` passes. A trace is of the last one.
    pub(super) fn list(task: &dyn Task, passes: usize) -> Vec<Self> {
        let core = task.core();
        let (times, passes) = match core.step.is_profiled() {
            true => (core.step.stage_times(), passes.max(1)),
            false => (core.timeline().stage_times(), 1),
        };
        let record = |(stage, lane, seconds)| StageRecord { stage, lane, seconds: seconds / passes as f64 };
        times.into_iter().map(record).collect()
    }
}

/// Seconds of a phase of what is done until a device is busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Name of the phase, see docs/summary.md.
    pub phase: String,
    /// Seconds, of all programs of the run.
    pub seconds: f64,
}

impl PhaseRecord {
    /// Returns the phases of a device.
    pub(super) fn list(device: &Device) -> Vec<Self> {
        let record = |(phase, seconds): (&str, f64)| PhaseRecord { phase: phase.into(), seconds };
        device.phases().into_iter().map(record).collect()
    }
}

/// What training steps that read older node memory have missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StalenessRecord {
    /// Number of fetched rows by the number of writes that they have missed, from 0 on, over all training
    /// steps of the run; empty if no rank knows, because memory is partitioned.
    pub missed_writes: Vec<u64>,
    /// Rows that were mixed with those of similar nodes; `None` if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedRows>,
}

/// Rows of node memory that were mixed with those of similar nodes, and how far they are from the memory as
/// the step before left it: sums of Euclidean norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MixedRows {
    /// All of them.
    pub all: RowErrors,
    /// Those that had missed a write.
    pub stale: RowErrors,
}

/// Errors of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowErrors {
    /// Number of rows.
    pub rows: f64,
    /// Sum of their errors before they were mixed.
    pub before: f64,
    /// Sum of their errors afterwards.
    pub after: f64,
}

impl MixedRows {
    /// Adds the sums of a pass, as [`row_errors`](tgnn::ops::row_errors) has left them.
    pub(in crate::task) fn add(&mut self, sums: &[f32]) {
        for (errors, sums) in [&mut self.all, &mut self.stale].into_iter().zip(sums.chunks(3)) {
            for (sum, add) in [&mut errors.rows, &mut errors.before, &mut errors.after].into_iter().zip(sums)
            {
                *sum += f64::from(*add);
            }
        }
    }
}

/// The files that a run has started from, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The safetensors file of its first weights (`--weights`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// The run whose model it goes on with (`--from`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The contents of `summary.json`, schema 1: configuration, device, data and results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // documented in docs/summary.md, key by key
pub struct Summary {
    pub schema: u32,
    pub version: String,
    pub commit: Option<String>,
    pub command: String,
    pub device: DeviceRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksRecord>,
    pub data: DataRecord,
    pub model: String,
    pub task: TaskName,
    pub plan: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Choice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<StalenessRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<BubbleRecord>,
    pub seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartRecord>,
    pub protocol: String,
    pub negatives: NegativeKind,
    pub ties: String,
    pub batch: usize,
    /// Events per step of validation, test and replay; `None` for models of snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_batch: Option<usize>,
    /// Which events a query sees as neighbours, `time` or `batch`; `None` for models of snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    pub precision: MatmulPrecision,
    pub features_as: StoredAs,
    pub memory_as: StoredAs,
    pub epochs: Vec<EpochRecord>,
    pub best_epoch: Option<usize>,
    #[serde(default)]
    pub settled: Option<EpochRecord>,
    pub stopped_early: bool,
    pub test: Option<TestScores>,
    #[serde(default)]
    pub test_by_memory: Option<ScoresByMemory>,
    /// Whether a test of links scores EdgeBank and the rules that learn nothing.
    #[serde(default = "scored")]
    pub rules: bool,
    /// `time` or `batch`: which events a query of the model knows at most; `None` for models of snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<String>,
    /// EdgeBank's scores, given the events of earlier batches.
    pub edgebank: Option<EdgeBankScores>,
    /// Those of other baselines; of rules, given the events of earlier batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineScores>,
    /// Scores of EdgeBank and the rules, given all strictly earlier events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strictly_earlier: Option<RuleScores>,
    /// Seconds to score EdgeBank and the rules, given either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baselines_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_time: Option<SameTimeRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
    pub peak_memory_bytes: PeakMemory,
    pub parameters: usize,
}

/// Earlier versions always scored the rules.
fn scored() -> bool {
    true
}

impl Summary {
    /// Returns the scores of the baselines that may be compared with the model, with their names: those of
    /// rules that know all strictly earlier events if the model's queries do, else of those that know the
    /// events of earlier batches.
    pub fn fair_baselines(&self) -> Vec<(&str, &TestScores)> {
        match &self.strictly_earlier {
            Some(rules) if self.past.as_deref() == Some(History::Time.name()) => rules.named().collect(),
            _ => {
                let bank = self.edgebank.iter().flat_map(EdgeBankScores::named);
                bank.chain(self.baselines.iter().map(|b| (b.name.as_str(), &b.test))).collect()
            }
        }
    }
    /// Returns the best of the [`fair_baselines`](Self::fair_baselines) that score higher than the model on
    /// all test events, by the figure that compares epochs: its name, its figure, and the model's. `None` if
    /// there is none.
    pub fn better_baseline(&self) -> Option<(&str, f64, f64)> {
        let figure = |test: &TestScores| test.transductive.figure(self.task);
        let own = self.test.as_ref().and_then(figure)?;
        let figures =
            self.fair_baselines().into_iter().filter_map(|(name, test)| Some((name, figure(test)?)));
        let best = figures.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 > own).then_some((best.0, best.1, own))
    }
}

#[cfg(test)]
mod tests {
    use super::SameTimeRecord;

    #[test]
    fn events_at_the_time_of_the_batch_before_are_counted() {
        // Batches of two from event 1 on: [5 5] [5 6] [6 6] [7].
        let time = [3, 5, 5, 5, 6, 6, 6, 7];
        let count = |batch| SameTimeRecord::count(&time, 1..8, batch).events;
        assert_eq!([count(1), count(2), count(7)], [4, 3, 0]);
        // Without an event before the first batch.
        assert_eq!(SameTimeRecord::count(&time, 0..2, 5), SameTimeRecord { events: 0, of: 2 });
    }
}
