//! Tasks: the one training loop, its evaluation, its configuration and its checkpoints.
mod checkpoint;
mod config;
mod link;
pub mod metrics;
mod run;

pub use checkpoint::{Checkpoint, Manifest};
pub use config::{Config, DataConfig, Protocol};
pub use link::{LinkTask, Progress};
pub use metrics::Scores;
pub use run::{EpochRecord, RunOptions, Summary, TestScores, Watch, embed, evaluate, train};
