//! Tasks: the objectives of training, the training loop, evaluation, configuration and checkpoints.
//!
//! - [`comparison`]: finished runs, compared.
//! - [`config`]: the configuration of a run.
//! - [`evaluation`]: metrics, hard negatives, baselines that learn nothing.
//! - [`training`]: the training loop, run folders, checkpoints.
//! - [`events`]: training, evaluation, embeddings and online prediction of models of event streams.
//! - [`search`]: the trials of a sweep.
//! - [`snapshots`]: training, evaluation and embeddings of models of snapshot sequences.
pub mod comparison;
pub mod config;
pub mod evaluation;
pub mod events;
mod over_ranks;
pub mod search;
pub mod snapshots;
pub mod training;

#[cfg(feature = "formats")]
pub use config::tgl;
pub use config::{
    ClassifyConfig, Config, CustomModel, DataConfig, GroupConfig, HistoryRule, NegativeKind, OptimizerConfig,
    OptimizerName, PropertyConfig, Protocol, StoredOn, TaskName,
};
pub use evaluation::{
    EdgeBank, Forecast, Pair, Scores, ScoresByMemory, TestScores, edgebank, mean_over_times, metrics, ndcg,
    negatives,
};
pub use events::{
    Candidate, EventTask, NewEvent, OnScore, Predictor, PredictorOptions, PredictorState, PropertyTask,
    RankPass, RecordedPasses, RecordedRun, ScoredCandidate, batches, embed, evaluate, evaluate_each,
    first_batch, predictor, pretrain, record_passes, staleness_of, train,
};
pub use over_ranks::{on_local_ranks, on_watched_ranks};
pub use snapshots::{SnapshotSplit, SnapshotTask, embed_snapshots, evaluate_snapshots, train_snapshots};
pub use training::{
    After, BubbleRecord, Checkpoint, EpochRecord, ExtractRecord, HostMemory, LastEpoch, LatestRecord,
    Manifest, MemoryPlan, MixedRows, NodeState, PhaseRecord, PlanManifest, PlanRecord, Progress, RanksRecord,
    Remembers, Report, RowErrors, RunOptions, StageRecord, StalenessRecord, StartRecord, StreamRecord,
    Summary, Task, TaskCore, TrafficRecord, Watch, tensorboard, with_model_of,
};
