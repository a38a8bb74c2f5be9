//! Tasks: the one training loop, its evaluation, its configuration and its checkpoints.
mod checkpoint;
mod chunks;
pub mod classify;
mod config;
pub mod edgebank;
mod event_task;
mod memory;
pub mod metrics;
pub mod negatives;
mod pairs;
mod pretrain;
mod run;

pub use checkpoint::{Checkpoint, Manifest};
pub use chunks::{batches, first_batch};
pub use classify::ClassScores;
pub use config::{Config, DataConfig, FeaturesOn, Protocol};
pub use edgebank::EdgeBank;
pub use event_task::{EventTask, Progress};
pub use memory::MemoryPlan;
pub use metrics::Scores;
pub use pairs::Pair;
pub use pretrain::pretrain;
pub use run::{EpochRecord, RunOptions, Summary, TestScores, Watch, embed, evaluate, train};
