//! The training loop: epochs with validation, the best epoch's test, and the folder that records the run.
mod by_plan;
mod checkpoint;
mod copies;
mod evaluate;
pub mod extract;
mod extractor;
mod fingerprint;
#[doc(hidden)]
pub mod folder;
mod host_memory;
pub(crate) mod lock;
mod matching;
mod memory;
mod node_state;
mod over_ranks;
mod pass;
mod plan_notes;
mod run;
mod summary;
mod task;
mod tensor_files;
pub mod tensorboard;

pub use by_plan::PlanManifest;
pub(in crate::task) use checkpoint::tensors;
pub use checkpoint::{After, Checkpoint, LatestRecord, Manifest, StreamRecord};
pub(super) use evaluate::{evaluate, restored};
pub(super) use extract::Extract;
pub use extract::ExtractRecord;
pub(super) use extractor::Extractor;
pub use fingerprint::Fingerprint;
pub(super) use fingerprint::stream;
pub use host_memory::HostMemory;
pub(in crate::task) use host_memory::Uses;
pub use matching::with_model_of;
pub(super) use matching::{same_model, same_test};
pub use memory::MemoryPlan;
pub(in crate::task) use memory::StoredTables;
pub use node_state::NodeState;
pub(in crate::task) use node_state::PassShare;
pub(super) use over_ranks::{add_up, agree, begin_pass, of_whole_batches};
pub(super) use pass::{EventCount, Runs, Walks, evaluation_clock, located, repeat_and_report};
use plan_notes::PlanUse;
pub(super) use run::Run;
pub(in crate::task) use run::TIMELINE;
pub use run::{RunOptions, Watch};
pub use summary::{
    BaselineScores, BubbleRecord, DataRecord, DeviceRecord, EdgeBankScores, EpochRecord, MixedRows,
    PeakMemory, PhaseRecord, RanksRecord, RowErrors, RuleScores, SameTimeRecord, StageRecord,
    StalenessRecord, StartRecord, Summary, TrafficRecord,
};
pub(in crate::task) use task::{Buffers, DataTask, RecordedTask, parameters_except};
pub use task::{LastEpoch, PlanRecord, Progress, Remembers, Report, Task, TaskCore};
pub(in crate::task) use tensor_files::Tensor;
