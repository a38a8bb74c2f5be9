//! The integration tests, one crate.
mod command_line;
mod emulated;
mod golden;
mod heads;
mod layers;
mod machine_code;
mod ops;
mod properties;
mod replays;
