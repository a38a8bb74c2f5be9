//! The records of a run: a line of `metrics.jsonl` for every epoch, and `summary.json`.
use crate::{
    data::{Events, Snapshots},
    plan::GroupChoice,
    runtime::{MatmulPrecision, StoredAs},
    task::{
        config::{NegativeKind, TaskName},
        evaluation::{Scores, ScoresByMemory, TestScores},
    },
};
use serde::{Deserialize, Serialize};

/// One epoch, a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Mean of the batches' losses.
    pub train_loss: f64,
    /// Seconds of the training pass alone.
    pub train_seconds: f64,
    /// Training events a second.
    pub events_per_second: f64,
    /// Validation; `None` where nothing is evaluated.
    pub val: Option<Scores>,
    /// When it ended, validation included: seconds since 1970, UTC.
    #[serde(default)]
    pub wall_time: f64,
}

/// What [`EdgeBank`] scores on the test part, against the same candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeBankScores {
    /// Remembering every pair.
    pub unlimited: TestScores,
    /// Remembering a window as long as the test part.
    pub window: TestScores,
}

/// What a baseline of snapshots scores on the test part, against the same candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineScores {
    /// What it knows.
    pub name: String,
    /// Its scores.
    pub test: TestScores,
}

/// Device of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// The maker's name.
    pub name: String,
    /// Threads.
    pub threads: usize,
}

/// Data of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    /// Its name.
    pub name: String,
    /// Events of all parts.
    pub events: usize,
    /// Nodes.
    pub nodes: usize,
    /// Width of the edge features; of snapshots, of the vertices' features.
    pub edge_features: usize,
    /// Snapshots, where that is what the data are; `events` are edges then, of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<usize>,
}

impl DataRecord {
    /// The record of an event stream.
    pub(in crate::task) fn of_events(events: &Events) -> Self {
        DataRecord {
            name: events.name.clone(),
            events: events.len(),
            nodes: events.nodes,
            edge_features: events.edge_width(),
            snapshots: None,
        }
    }
    /// The record of a sequence of snapshots.
    pub(in crate::task) fn of_snapshots(data: &Snapshots) -> Self {
        DataRecord {
            name: data.name.clone(),
            events: data.src.len(),
            nodes: data.nodes,
            edge_features: data.width(),
            snapshots: Some(data.len()),
        }
    }
    /// What a checkpoint knows its data by.
    pub(super) fn identity(&self) -> (usize, usize, usize) {
        (self.events, self.nodes, self.edge_features)
    }
}

/// Most memory held, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakMemory {
    /// By the process.
    pub host: u64,
    /// On a device of its own; 0 on the CPU.
    pub device: u64,
}

/// `summary.json`, schema 1: what was run, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // documented in docs/summary.md, key by key
pub struct Summary {
    pub schema: u32,
    pub version: String,
    pub commit: Option<String>,
    pub command: String,
    pub device: DeviceRecord,
    pub data: DataRecord,
    pub model: String,
    pub task: TaskName,
    pub plan: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<GroupChoice>,
    pub seed: u64,
    pub protocol: String,
    pub negatives: NegativeKind,
    pub ties: String,
    pub batch: usize,
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
    pub edgebank: Option<EdgeBankScores>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineScores>,
    pub peak_memory_bytes: PeakMemory,
    pub parameters: usize,
}
