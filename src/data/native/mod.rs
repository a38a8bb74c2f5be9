//! The native layout: a folder of `.npy` arrays that NumPy reads and writes too.
//!
//! | file | shape and type as written | read from |
//! | --- | --- | --- |
//! | `src.npy`, `dst.npy` | `[events]` u32 | any integers, or floats that are whole |
//! | `time.npy` | `[events]` i64, ticks since the first event | integers, or floats as seconds |
//! | `label.npy` | `[events]` f32, optional | any numbers |
//! | `classes.npy` | `[events, most]` u32, a set of classes a row, the rest 2^32 - 1; optional | any integers, -1 for none |
//! | `edge_features.npy` | `[events, width]` f32, f16 or bfloat16, optional | any numbers; these are mapped |
//! | `node_features.npy` | `[nodes, width]`, likewise, optional | any numbers; these are mapped |
//! | `ids.npy`, `ids.csv` | `[nodes]` u64, the original ids, if they differ | `ids.npy` |
//! | `val_negatives.npy`, `test_negatives.npy` | `[events of the part, m]` i32, -1 where there are fewer, optional | any integers |
//! | `info.json` | the [`Info`] | absent in folders made by hand |
//!
//! NumPy has no bfloat16: such an array has the type `V2`, two bytes without a meaning, as `ml_dtypes` saves it and takes it
//! back (`numpy.load(file).view(ml_dtypes.bfloat16)`).
//!
//! A folder without `info.json` is treated like any other file: sorted, renumbered, times in seconds.
mod read;
mod write;

pub(super) use read::{is_imported, is_native, read};
pub(super) use write::{FolderWriter, Shape, Staging};
pub use write::{save, save_with_negatives};

use serde::{Deserialize, Serialize};

/// The version of the layout; a reader refuses any other.
const SCHEMA: u32 = 1;

/// What `info.json` says beyond the arrays.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Info {
    /// Version of the layout; set when the folder is finished, as is the next.
    pub schema: u32,
    /// What wrote the folder.
    #[serde(default)]
    pub written_by: String,
    pub name: String,
    pub events: usize,
    pub nodes: usize,
    /// Where destinations start in a bipartite stream.
    pub first_destination: Option<u32>,
    /// Classes that events can be labelled with, where there are sets of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    pub ticks_per_second: f64,
    /// Original time of the first event, in ticks.
    pub origin: i64,
    #[serde(default)]
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests;
