//! A matrix of numbers in a mapped file, as a file format describes it.
use super::scalar::ScalarType;
use memmap2::Mmap;
use std::{path::Path, sync::Arc};
use tgnn::error::{Error, Result};

/// A `[rows, cols]` matrix in a mapped file, row-major; its values have not been checked.
pub(super) struct MappedMatrix {
    /// Holds all bytes of the matrix.
    pub map: Arc<Mmap>,
    /// The byte of `map` where the first value begins.
    pub start: usize,
    /// The type of the values.
    pub values: ScalarType,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
}

/// Returns the rows and columns of an array of `shape`; a vector has one column.
pub(super) fn matrix_shape(path: &Path, shape: &[usize]) -> Result<(usize, usize)> {
    match *shape {
        [rows] => Ok((rows, 1)),
        [rows, cols] if cols > 0 => Ok((rows, cols)),
        _ => {
            Err(Error::data(path, format!("features of shape {shape:?}"))
                .remedy("features are [rows, columns]"))
        }
    }
}
