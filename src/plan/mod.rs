//! How steps follow one another: what a plan did, when, and on which lane.
mod timeline;

pub use timeline::{Timeline, Usage};
