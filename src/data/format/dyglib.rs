//! DyGLib and TGN: `ml_NAME.csv` with an unnamed index, then `u,i,ts,label,idx`.
//!
//! Ids count from 1 in one space for sources and destinations; `idx` counts events from 1 and is the row of the event
//! in `ml_NAME.npy` (or `ml_NAME_edge_features.npy`), whose row 0 is padding. `ml_NAME_node.npy` (or
//! `ml_NAME_node_features.npy`) has a row per id, row 0 again padding.
use super::{
    columns::{Columns, columns},
    sample::Sample,
};
use std::path::{Path, PathBuf};

/// Where the columns are if no header says otherwise.
pub(super) const COLUMNS: Columns = columns(2, 3, 4, Some(5), None);

/// `u`, `i`, `ts` and the event's number.
pub(super) fn recognises(sample: &Sample) -> bool {
    ["u", "i", "ts", "idx"].iter().all(|n| sample.names(n))
}

/// The edge and node feature files that lie beside the events, where there are any.
pub(super) fn beside(path: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let stem = super::stem(path);
    let find = |endings: [&str; 2]| {
        endings.iter().map(|end| path.with_file_name(format!("{stem}{end}.npy"))).find(|p| p.is_file())
    };
    (find(["", "_edge_features"]), find(["_node", "_node_features"]))
}
