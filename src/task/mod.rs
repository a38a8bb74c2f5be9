//! Tasks: the one training loop, its evaluation, its configuration and its checkpoints.
mod checkpoint;
mod config;
mod link;
mod memory;
pub mod metrics;
mod run;

pub use checkpoint::{Checkpoint, Manifest};
pub use config::{Config, DataConfig, FeaturesOn, Protocol};
pub use link::{LinkTask, Progress};
pub use memory::MemoryPlan;
pub use metrics::Scores;
pub use run::{EpochRecord, RunOptions, Summary, TestScores, Watch, embed, evaluate, train};
