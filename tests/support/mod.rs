//! What the test files share: calls of the program, small data and trainings, ranks of one process.
pub mod program;
pub mod ranks;
pub mod snapshots;
pub mod trainings;
pub mod weights;
