//! Tasks: the one training loop, its evaluation, its configuration and its checkpoints.
mod candidates;
mod checkpoint;
mod chunks;
mod classify;
mod config;
pub mod edgebank;
mod event_task;
mod matching;
mod memory;
pub mod metrics;
pub mod negatives;
mod pairs;
mod pretrain;
mod run;
pub mod tensorboard;
pub mod tgl;

use candidates::Candidates;
pub use checkpoint::{Checkpoint, Manifest};
pub use chunks::{batches, first_batch};
pub use config::{ClassifyConfig, Config, DataConfig, FeaturesOn, NegativeKind, Protocol, TaskName};
pub use edgebank::EdgeBank;
pub use event_task::{EventTask, Progress};
pub use memory::MemoryPlan;
pub use metrics::Scores;
pub use pairs::Pair;
pub use pretrain::pretrain;
pub use run::{EpochRecord, RunOptions, Summary, TestScores, Watch, embed, evaluate, train};
