//! The integration tests, one crate.
mod layers;
mod ops;
