//! The source tree that the tests use.
use std::{env, path::PathBuf};

/// Returns the root of the source tree: `TGNN_ROOT`, where the tests run on another machine than the one that
/// built them, else that of the build.
pub fn root() -> PathBuf {
    let built: PathBuf = env!("CARGO_MANIFEST_DIR").into();
    let of_workspace = built.ancestors().find(|p| p.join("kernels").is_dir()).unwrap_or(&built).to_owned();
    env::var_os("TGNN_ROOT").map_or(of_workspace, PathBuf::from)
}
