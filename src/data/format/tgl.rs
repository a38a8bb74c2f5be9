//! TGL: `edges.csv` with an unnamed index, then `src,dst,time,ext_roll`.
//!
//! Ids count from 0 in one space. `ext_roll` (and `int_roll`) mark the training, validation and test split, which
//! this crate makes itself by time; they are not read. TGL keeps features in `.pt` files: save them with
//! `numpy.save` and name them with `--edge-features`.
use super::{
    columns::{Columns, columns},
    sample::Sample,
};

/// Where the columns are if no header says otherwise.
pub(super) const COLUMNS: Columns = columns(2, 3, 4, None, None);

/// A column that marks the split.
pub(super) fn recognises(sample: &Sample) -> bool {
    sample.names("ext_roll") || sample.names("int_roll")
}
