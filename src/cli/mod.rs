//! The subcommands of `tgnn-bench`.
pub mod data;
mod report;
