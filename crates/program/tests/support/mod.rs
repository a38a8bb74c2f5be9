//! What the test files share: calls of the program, small data and trainings, ranks of one process.
#[path = "../../../../tests/support/devices.rs"]
pub mod devices;
#[path = "../../../../tests/support/launcher.rs"]
pub mod launcher;
#[path = "../../../../tests/support/paths.rs"]
pub mod paths;
pub mod program;
pub mod ranks;
pub mod snapshots;
pub mod trainings;
pub mod weights;
