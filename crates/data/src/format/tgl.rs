//! TGL: `edges.csv` with an unnamed index, then `src,dst,time,ext_roll`.
//!
//! Sources and destinations share one id space that starts at 0. `ext_roll` marks training, validation and
//! test events as 0, 1 and 2. This crate makes its own splits; a note reports how many events `ext_roll`
//! assigns to each part. Features are in `edge_features.pt` and `node_features.pt` next to the events.
use super::{header::HeaderColumns, sample::Sample};
use crate::text::grouped;
use std::path::{Path, PathBuf};

/// Columns if no header says otherwise.
pub(super) const COLUMNS: HeaderColumns = HeaderColumns::fixed(2, 3, 4, None, None);

/// Whether a column marks the split.
pub(super) fn recognises(sample: &Sample) -> bool {
    sample.names("ext_roll") || sample.names("int_roll")
}

/// Returns the edge and node feature files next to the events, `None` for each that does not exist.
pub(super) fn beside(path: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let find = |name| Some(path.with_file_name(name)).filter(|p| p.is_file());
    (find("edge_features.pt"), find("node_features.pt"))
}

/// Returns the note about `rolls`, the numbers of training, validation and test events.
pub(super) fn note(rolls: [u64; 3]) -> String {
    let [train, val, test] = rolls.map(grouped);
    format!("ext_roll, which is not used, has {train} events to train, {val} to validate and {test} to test")
}
