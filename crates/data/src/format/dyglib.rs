//! DyGLib and TGN: `ml_NAME.csv` with an unnamed index, then `u,i,ts,label,idx`.
//!
//! Sources and destinations share one id space that starts at 1. `idx` counts events from 1 and is the row of
//! the event in `ml_NAME.npy` (or `ml_NAME_edge_features.npy`), whose row 0 is padding. `ml_NAME_node.npy`
//! (or `ml_NAME_node_features.npy`) has one row per id; row 0 is padding, too.
use super::{header::HeaderColumns, names, sample::Sample};
use std::path::{Path, PathBuf};

/// Columns if no header says otherwise.
pub(super) const COLUMNS: HeaderColumns = HeaderColumns::fixed(2, 3, 4, Some(5), None);

/// Whether the header names `u`, `i`, `ts` and `idx`.
pub(super) fn recognises(sample: &Sample) -> bool {
    ["u", "i", "ts", "idx"].iter().all(|n| sample.names(n))
}

/// Returns the edge and node feature files next to the events, `None` for each that does not exist.
pub(super) fn beside(path: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let stem = names::stem(path);
    let find = |endings: [&str; 2]| {
        endings.iter().map(|end| path.with_file_name(format!("{stem}{end}.npy"))).find(|p| p.is_file())
    };
    (find(["", "_edge_features"]), find(["_node", "_node_features"]))
}
