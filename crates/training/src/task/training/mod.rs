//! The training loop: epochs with validation, the best epoch's test, and the folder that records the run.
mod checkpoint;
mod copies;
pub mod extract;
mod fingerprint;
#[doc(hidden)]
pub mod folder;
pub(crate) mod lock;
mod matching;
mod memory;
mod over_ranks;
mod plan_notes;
mod run;
mod summary;
mod task;
pub mod tensorboard;

pub use checkpoint::{After, Checkpoint, LatestRecord, Manifest, StreamRecord};
pub use extract::ExtractRecord;
pub(super) use extract::{Extract, Extractor};
pub use fingerprint::Fingerprint;
pub(super) use fingerprint::stream;
pub use matching::with_model_of;
pub(super) use matching::{same_model, same_test};
pub(in crate::task) use memory::KeptTables;
pub use memory::MemoryPlan;
pub(super) use over_ranks::{add_up, agree, from_first, load};
use plan_notes::PlanUse;
pub(in crate::task) use run::TIMELINE;
pub(super) use run::{Run, restored, test_replayed};
pub use run::{RunOptions, Watch};
pub use summary::{
    BaselineScores, BubbleRecord, DataRecord, DeviceRecord, EdgeBankScores, EpochRecord, MixedRows,
    PeakMemory, RanksRecord, RowErrors, SameTimeRecord, StageRecord, StalenessRecord, StartRecord, Summary,
    TrafficRecord,
};
pub(in crate::task) use task::Recorded;
pub(super) use task::{EventCount, Runs, evaluation_clock, located, repeat_and_report};
pub use task::{NodeState, PlanRecord, Progress, Report, Task, TaskCore};
