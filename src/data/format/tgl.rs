//! TGL: `edges.csv` with an unnamed index, then `src,dst,time,ext_roll`.
//!
//! Ids count from 0 in one space. `ext_roll` marks training, validation and test events as 0, 1 and 2; a note says how
//! many there are, since this crate makes its splits itself. Features lie beside the events in `edge_features.pt` and
//! `node_features.pt`.
use super::{
    columns::{Columns, columns},
    sample::Sample,
};
use crate::data::text::grouped;
use std::path::{Path, PathBuf};

/// Where the columns are if no header says otherwise.
pub(super) const COLUMNS: Columns = columns(2, 3, 4, None, None);

/// A column that marks the split.
pub(super) fn recognises(sample: &Sample) -> bool {
    sample.names("ext_roll") || sample.names("int_roll")
}

/// The edge and node feature files that lie beside the events, where there are any.
pub(super) fn beside(path: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let find = |name| Some(path.with_file_name(name)).filter(|p| p.is_file());
    (find("edge_features.pt"), find("node_features.pt"))
}

/// What a note says of `rolls`, the numbers of events that train, validate and test.
pub(super) fn note(rolls: [u64; 3]) -> String {
    let [train, val, test] = rolls.map(grouped);
    format!("ext_roll, which is not used, has {train} events to train, {val} to validate and {test} to test")
}
