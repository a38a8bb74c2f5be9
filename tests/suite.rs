//! The integration tests, one crate.
mod command_line;
mod emulated;
mod golden;
mod layers;
mod ops;
mod properties;
