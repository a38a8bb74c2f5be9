//! The integration tests, one crate.
mod ops;
