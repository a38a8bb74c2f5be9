//! The native layout: a folder of `.npy` arrays, which NumPy can read and write too.
//!
//! | file | shape and type as written | types that are read |
//! | --- | --- | --- |
//! | `src.npy`, `dst.npy` | `[events]` u32 | any integers, floats that are whole, or text |
//! | `time.npy` | `[events]` i64, ticks since the first event | numbers, text, `datetime64` or `timedelta64`, as the times of a table |
//! | `label.npy` | `[events]` f32, optional; NaN if missing; of text, indices of `label_names` in `info.json` | numbers, or text |
//! | `classes.npy` | `[events, most]` u32, optional: one set of classes per row, padded with 2^32 - 1 | any integers, padded with -1 |
//! | `edge_features.npy` | `[events, width]` f32, f16 or bfloat16, optional | any numbers; the types as written are mapped |
//! | `node_features.npy` | `[nodes, width]` f32, f16 or bfloat16, optional | any numbers; the types as written are mapped |
//! | `ids.npy` | `[nodes]` u64, the original ids, if they are numbers other than the node numbers | as written |
//! | `ids.json` | a list of the original ids, if they are text | as written |
//! | `node_label_time.npy`, `node_label_node.npy` | `[rows]` i64 ticks since the first event, u32: label rows, optional | as written |
//! | `node_label_offsets.npy` | `[rows + 1]` u32: where the entries of each row begin | as written |
//! | `node_label_class.npy`, `node_label_weight.npy` | `[entries]` u32, f32 | as written |
//! | `node_label_ids.json` | a list of the original ids of the classes, if they are not their numbers | as written |
//! | `val_negatives.npy`, `test_negatives.npy` | `[events of the part, m]` i32, padded with -1, optional | any integers |
//! | `info.json` | the [`Info`] | absent in hand-made folders |
//!
//! NumPy has no bfloat16. Such an array has the type `V2`, two untyped bytes, as `ml_dtypes` saves it;
//! `numpy.load(file).view(ml_dtypes.bfloat16)` reads it.
//!
//! A folder without `info.json` is read like a table: times of any unit or dates, ids that are numbers or
//! text, and missing values by the rule of the options.
mod files;
mod node_labels;
mod read;
mod write;

pub(super) use read::{is_imported, is_native, read};
pub(super) use write::{FolderWriter, Shape, Staging};
pub use write::{save, save_with_negatives};

use super::{Encodings, FeatureEncoding, LineCounts, TimeFormat};
use serde::{Deserialize, Serialize};

/// The version of the layout. Other versions are not read.
const SCHEMA: u32 = 1;

/// The content of `info.json`: the fields of a stream that are not arrays.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Info {
    /// Version of the layout; set by [`FolderWriter::finish`].
    pub schema: u32,
    /// Program and version that wrote the folder; set by [`FolderWriter::finish`].
    #[serde(default)]
    pub written_by: String,
    pub name: String,
    pub events: usize,
    pub nodes: usize,
    /// The first destination of a bipartite stream.
    pub first_destination: Option<u32>,
    /// The different labels of events in the order of their letters, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_names: Option<Vec<Box<str>>>,
    /// Number of classes, if events have sets of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// Number of classes of node labels, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_classes: Option<usize>,
    pub ticks_per_second: f64,
    /// Original time of the first event, in ticks.
    pub origin: i64,
    /// How the original file wrote times.
    #[serde(default)]
    pub time_format: TimeFormat,
    /// How columns of the original file became the edge features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<FeatureEncoding>,
    /// What became of the lines of the original file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
    /// How columns of separate tables became features.
    #[serde(default, skip_serializing_if = "Encodings::is_empty")]
    pub feature_tables: Encodings,
    #[serde(default)]
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests;
