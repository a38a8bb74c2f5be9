//! The integration tests, one crate.
mod ablation;
mod command_line;
mod emulated;
mod golden;
mod half;
mod heads;
mod layers;
mod machine_code;
mod models;
mod ops;
mod predict;
mod predict_command;
mod properties;
mod replays;
mod runs;
mod tasks;
