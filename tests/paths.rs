//! The program and the source tree that the tests use. Both were compiled in; the environment replaces them
//! where the tests run on another machine than the one that built them.
use std::{env, path::PathBuf};

/// Returns the program `tgnn-bench`: `TGNN_BENCH`, or the one that was built with the tests.
pub fn program() -> PathBuf {
    env::var_os("TGNN_BENCH").unwrap_or(env!("CARGO_BIN_EXE_tgnn-bench").into()).into()
}

/// Returns the root of the source tree: `TGNN_ROOT`, or that of the build.
pub fn root() -> PathBuf {
    env::var_os("TGNN_ROOT").unwrap_or(env!("CARGO_MANIFEST_DIR").into()).into()
}
