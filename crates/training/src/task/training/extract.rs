//! The extract of a run's data: what a predictor needs of them when training is over.
//!
//! `extract-X.safetensors`, where X is its checksum, has these tensors:
//!
//! | tensor | shape | meaning |
//! | --- | --- | --- |
//! | `event`, `src`, `dst`, `time` | `[n]` | the events before the test part that a predictor may still read |
//! | `edge features` | `[n, width]` | their features, if the data have any |
//! | `node features` | `[nodes, width]` | the features of all nodes, if the data have any |
//! | `ids` | `[nodes]` | the original ids of the nodes, if these are not their numbers |
//!
//! A predictor may read the most recent events of every node, and those that mails of the best epoch refer
//! to. The extract of a saved stream has no events, because the state of the predictor holds them. The
//! numbers that belong to the extract are in the manifest, as an [`ExtractRecord`].
use super::tensor_files::bad;
use bytemuck::Pod;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{Gaps, StoredAs},
};
use tgnn_data::{FeatureEncoding, Features, Ids, TimeFormat};

/// Version of the tensors and of the record.
pub(super) const VERSION: u32 = 1;

/// The record of an [extract](self) in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtractRecord {
    /// Version of the tensors and of this record.
    pub version: u32,
    /// CRC-32 of the file.
    pub checksum: u32,
    /// Number of most recent events that the extract has of every node that has so many.
    pub recent: usize,
    /// Time of the last event before the test part, in ticks.
    pub latest: Option<i64>,
    /// Number of ticks per second.
    pub ticks_per_second: f64,
    /// Original time of the first event of the data, in ticks.
    pub origin: i64,
    /// How the data write times.
    #[serde(default)]
    pub time_format: TimeFormat,
    /// How columns of the data became the edge features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<FeatureEncoding>,
    /// Longer time gaps count as this one, in ticks.
    pub longest_gap: i64,
    /// The first destination if the data are bipartite.
    pub first_destination: Option<u32>,
}

impl ExtractRecord {
    /// Returns the conversion of ticks to seconds.
    pub(in crate::task) fn gaps(&self) -> Gaps {
        let mut gaps = Gaps::unlimited((1.0 / self.ticks_per_second) as f32);
        gaps.longest = self.longest_gap;
        gaps
    }
    /// Whether this can be the record of data with so many nodes.
    pub(super) fn is_of(&self, nodes: usize) -> bool {
        self.first_destination.is_none_or(|first| first as usize <= nodes)
            && self.ticks_per_second.is_finite()
            && self.ticks_per_second > 0.0
            && self.longest_gap >= 0
    }
    /// Checks that the extract has as many events of a node as a model reads.
    pub(in crate::task) fn has_events(&self, read: usize) -> Result<()> {
        if self.recent >= read {
            return Ok(());
        }
        let what =
            format!("the run kept the {} most recent events of a node, the model reads {read}", self.recent);
        Err(Error::new(ErrorKind::Checkpoint, what).remedy("give the configuration of the run"))
    }
}

/// The contents of an extract.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::task) struct Extract {
    /// Ids of the events in the data, ascending.
    pub event: Vec<u32>,
    pub src: Vec<u32>,
    pub dst: Vec<u32>,
    /// In ticks.
    pub time: Vec<i64>,
    /// One row per event.
    pub edge_features: Option<Features>,
    pub node_features: Option<Features>,
    pub ids: Option<Ids>,
}

/// Returns the type of features in a file.
const fn feature_type(kept: StoredAs) -> Dtype {
    match kept {
        StoredAs::F32 => Dtype::F32,
        StoredAs::Bf16 => Dtype::BF16,
        StoredAs::F16 => Dtype::F16,
    }
}

/// Reads a tensor of whole numbers.
fn numbers<T: Pod>(file: &SafeTensors<'_>, path: &Path, name: &str, dtype: Dtype) -> Result<Vec<T>> {
    match file.tensor(name) {
        Ok(view) if view.dtype() == dtype => Ok(bytemuck::pod_collect_to_vec(view.data())),
        _ => Err(bad(path, format!("there is no `{name}` of type {dtype:?}"))),
    }
}

/// Reads features; `None` if the file has none of this name.
fn features(file: &SafeTensors<'_>, path: &Path, name: &str) -> Result<Option<Features>> {
    let Ok(view) = file.tensor(name) else { return Ok(None) };
    let kept = [StoredAs::F32, StoredAs::Bf16, StoredAs::F16];
    let kept = kept.into_iter().find(|&kept| feature_type(kept) == view.dtype());
    match (kept, view.shape()) {
        (Some(kept), &[rows, cols]) => {
            let features = Features::from_bytes((rows, cols), kept, view.data());
            features.map(Some).map_err(|e| bad(path, format!("`{name}` is damaged")).caused_by(e))
        }
        _ => Err(bad(path, format!("`{name}` is {:?} {:?}", view.dtype(), view.shape()))),
    }
}

impl Extract {
    /// Returns the contents of a file.
    pub(super) fn serialized(&self) -> Result<Vec<u8>> {
        let column = |name, dtype, bytes| (name, dtype, vec![self.event.len()], bytes);
        let mut tensors: Vec<(&str, Dtype, Vec<usize>, &[u8])> = vec![
            column("event", Dtype::U32, bytemuck::cast_slice(&self.event)),
            column("src", Dtype::U32, bytemuck::cast_slice(&self.src)),
            column("dst", Dtype::U32, bytemuck::cast_slice(&self.dst)),
            column("time", Dtype::I64, bytemuck::cast_slice(&self.time)),
        ];
        let features = [("edge features", &self.edge_features), ("node features", &self.node_features)];
        for (name, features) in features {
            let features = features.as_ref();
            tensors.extend(
                features.map(|f| (name, feature_type(f.kept()), vec![f.rows(), f.cols()], f.bytes())),
            );
        }
        let numbers = self.ids.as_ref().and_then(Ids::numbers);
        tensors.extend(numbers.map(|ids| ("ids", Dtype::U64, vec![ids.len()], bytemuck::cast_slice(ids))));
        // Text: a list in JSON.
        let names = self.ids.as_ref().and_then(Ids::names);
        let names = names.map(serde_json::to_vec).transpose().map_err(|e| {
            Error::new(ErrorKind::Checkpoint, "cannot write the ids of the nodes").caused_by(e)
        })?;
        tensors.extend(names.as_ref().map(|json| ("names", Dtype::U8, vec![json.len()], &json[..])));
        let views = tensors
            .into_iter()
            .map(|(name, dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).map(|view| (name, view)));
        let views: Result<Vec<_>, _> = views.collect();
        views.and_then(|views| safetensors::serialize(views, None)).map_err(|e| {
            Error::new(ErrorKind::Checkpoint, "cannot write the extract of the data").caused_by(e)
        })
    }
    /// Reads the contents of a file.
    pub(super) fn parsed(path: &Path, bytes: &[u8]) -> Result<Self> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|e| bad(path, "the file is damaged").caused_by(e))?;
        let ids = match (file.tensor("ids"), file.tensor("names")) {
            (Ok(_), _) => Some(Ids::new(numbers(&file, path, "ids", Dtype::U64)?)),
            (_, Ok(names)) => {
                let names = serde_json::from_slice(names.data());
                Some(Ids::named(names.map_err(|e| bad(path, "`names` is damaged").caused_by(e))?))
            }
            _ => None,
        };
        Ok(Extract {
            event: numbers(&file, path, "event", Dtype::U32)?,
            src: numbers(&file, path, "src", Dtype::U32)?,
            dst: numbers(&file, path, "dst", Dtype::U32)?,
            time: numbers(&file, path, "time", Dtype::I64)?,
            edge_features: features(&file, path, "edge features")?,
            node_features: features(&file, path, "node features")?,
            ids,
        })
    }
    /// Whether this can be an extract of data with so many events, nodes and edge features.
    pub(super) fn is_of(&self, (events, nodes, width): (usize, usize, usize)) -> bool {
        let n = self.event.len();
        let is_node = |&v: &u32| (v as usize) < nodes;
        [self.src.len(), self.dst.len(), self.time.len()] == [n; 3]
            && self.event.is_sorted_by(|a, b| a < b)
            && self.event.last().is_none_or(|&e| (e as usize) < events)
            && self.src.iter().chain(&self.dst).all(is_node)
            && self.time.is_sorted()
            && self
                .edge_features
                .as_ref()
                .map_or(n == 0 || width == 0, |f| (f.rows(), f.cols()) == (n, width))
            && self.node_features.as_ref().is_none_or(|f| f.rows() == nodes)
            && self.ids.as_ref().is_none_or(|ids| ids.len() == nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract() -> Extract {
        Extract {
            event: vec![3, 7],
            src: vec![0, 1],
            dst: vec![2, 2],
            time: vec![10, 10],
            edge_features: Features::random(2, 3, 1).stored_as(StoredAs::Bf16).ok(),
            node_features: Some(Features::random(3, 5, 2)),
            ids: Some(Ids::new(vec![u64::MAX, 4, 0])),
        }
    }

    #[test]
    fn an_extract_survives_being_written_and_read() {
        let empty = Extract { ids: None, ..Extract::default() };
        for extract in [extract(), empty] {
            let bytes = extract.serialized().unwrap();
            assert_eq!(bytes, extract.serialized().unwrap());
            let read = Extract::parsed(Path::new("x"), &bytes).unwrap();
            assert!(read == extract && read.is_of((8, 3, 3)));
        }
    }

    #[test]
    fn an_extract_of_other_data_or_without_a_tensor_is_refused() {
        let good = extract();
        for (events, nodes, width) in [(7, 3, 3), (8, 2, 3), (8, 4, 3), (8, 3, 2), (8, 3, 0)] {
            assert!(!good.is_of((events, nodes, width)), "{events} {nodes} {width}");
        }
        type Damage = fn(&mut Extract);
        let damages: [Damage; 6] = [
            |e| e.event = vec![7, 3],
            |e| e.time = vec![10, 9],
            |e| e.src = vec![0, 3],
            |e| e.dst.truncate(1),
            |e| e.edge_features = None,
            |e| e.ids = Some(Ids::new(vec![1])),
        ];
        for damage in damages {
            let mut extract = good.clone();
            damage(&mut extract);
            assert!(!extract.is_of((8, 3, 3)), "{extract:?}");
        }
        let other = safetensors::serialize::<String, TensorView<'_>, _>([], None).unwrap();
        let e = Extract::parsed(Path::new("x"), &other).unwrap_err().to_string();
        assert!(e.starts_with("x: there is no `event` of type U32"), "{e}");
    }
}
