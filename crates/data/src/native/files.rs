//! What the files of a folder share.
use crate::{npy::Array, scalar::Scalar};
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};

/// Returns the path of `file` in `dir`, if it exists.
pub(super) fn optional(dir: &Path, file: &str) -> Option<PathBuf> {
    Some(dir.join(file)).filter(|p| p.is_file())
}

/// Reads a vector of times in ticks.
pub(super) fn ticks(file: &Path) -> Result<Vec<i64>> {
    let whole = |(i, value)| match value {
        Scalar::Int(v) => Ok(v),
        other => Err(Error::data(file, format!("value {i} is {}, not a signed integer", other.text()))
            .remedy("import the data again")),
    };
    let array = Array::open(file)?;
    match array.as_slice::<i64>() {
        Some(plain) => Ok(plain.to_vec()),
        None => array.vector()?.enumerate().map(whole).collect(),
    }
}
