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
use super::{
    Checkpoint, Manifest,
    checkpoint::{bad, checked},
};
use crate::task::config::{Config, TaskName};
use bytemuck::Pod;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{Gaps, StoredAs},
};
use tgnn_data::{Events, FeatureEncoding, Features, Ids, TimeFormat};

/// Version of the tensors and of the record.
const VERSION: u32 = 1;

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
    fn is_of(&self, nodes: usize) -> bool {
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
    fn parsed(path: &Path, bytes: &[u8]) -> Result<Self> {
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
    fn is_of(&self, (events, nodes, width): (usize, usize, usize)) -> bool {
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

impl Checkpoint {
    /// Reads the extract `of` the data that a manifest names.
    pub(in crate::task) fn extract(
        &self,
        manifest: &Manifest,
        of: Option<&ExtractRecord>,
    ) -> Result<(ExtractRecord, Extract)> {
        let (path, saved) = (self.manifest_file(), manifest.stream.is_some());
        let anew = if saved {
            "go on from the folder of the training run, or use a copy"
        } else {
            "write it anew by resuming the run with its data: `train DIR/config.toml --out DIR --resume`"
        };
        let record = match of {
            Some(record) if record.version == VERSION => record.clone(),
            Some(record) if record.version > VERSION => {
                let what = format!("the extract of the data has version {}", record.version);
                return Err(bad(&path, format!("{what}, this build reads {VERSION}"))
                    .remedy("use the build that wrote it"));
            }
            _ => {
                let made = if saved { "saved this state" } else { "made this run" };
                let what = format!("an earlier version {made}, without an extract of the data for `predict`");
                return Err(bad(&path, what).remedy(anew));
            }
        };
        let path = self.extract_file(record.checksum);
        let extract = checked(&path, record.checksum).and_then(|bytes| Extract::parsed(&path, &bytes));
        let extract = extract.map_err(|e| e.remedy(anew))?;
        if record.is_of(manifest.data.1) && extract.is_of(manifest.data) {
            return Ok((record, extract));
        }
        Err(bad(&path, "the file is not an extract of the data in the manifest").remedy(anew))
    }
}

/// Writes the extracts of a run.
pub(in crate::task) struct Extractor<'a> {
    events: &'a Events,
    /// Storage type of the features.
    kept: StoredAs,
    /// Ids of the most recent events of every node, ascending.
    recent: Vec<u32>,
    record: ExtractRecord,
    /// Ids of the events in the extract that was written last.
    written: Option<Vec<u32>>,
}

impl<'a> Extractor<'a> {
    /// Prepares the extracts of a run, which end before event `first`; `None` if a predictor cannot use the
    /// run.
    pub fn new(config: &Config, events: &'a Events, first: usize, gaps: Gaps) -> Option<Self> {
        let recent = config.event_model().and_then(|model| model.recent_events());
        let recent = recent.ok().filter(|_| config.task == TaskName::Link)?;
        let record = ExtractRecord {
            version: VERSION,
            checksum: 0,
            recent,
            latest: events.time[..first].last().copied(),
            ticks_per_second: events.ticks_per_second,
            origin: events.origin,
            time_format: events.time_format.clone(),
            encoding: events.encoding.clone(),
            longest_gap: gaps.longest,
            first_destination: events.first_destination,
        };
        let (kept, recent) = (config.features_as, most_recent(events, first, recent));
        Some(Extractor { events, kept, recent, record, written: None })
    }
    /// Writes the extract that belongs to a state, whose mails refer to the events `mails`, unless the
    /// checkpoint has it already. Returns its record, for the manifest.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&mut self, checkpoint: &Checkpoint, mails: &[u32]) -> Result<ExtractRecord> {
        let mut held = self.recent.clone();
        // A slot without a mail has an event that does not exist.
        held.extend(mails.iter().filter(|&&event| (event as usize) < self.events.len()));
        held.sort_unstable();
        held.dedup();
        if self.written.as_ref() != Some(&held) {
            self.record.checksum = checkpoint.write_extract(&self.extract(&held)?.serialized()?)?;
            self.written = Some(held);
        }
        Ok(self.record.clone())
    }
    /// Returns the extract with the given events.
    fn extract(&self, held: &[u32]) -> Result<Extract> {
        let (events, at) = (self.events, || held.iter().map(|&event| event as usize));
        let kept = |f: Features| f.kept_as(self.kept);
        Ok(Extract {
            event: held.to_vec(),
            src: at().map(|i| events.src[i]).collect(),
            dst: at().map(|i| events.dst[i]).collect(),
            time: at().map(|i| events.time[i]).collect(),
            edge_features: events.edge_features.as_ref().map(|f| kept(f.gather(at()))).transpose()?,
            node_features: events.node_features.clone().map(kept).transpose()?,
            ids: events.ids.clone(),
        })
    }
}

/// Returns the ids of the events before `first` that a query may read at the time of the last of them or
/// later, if it reads the `recent` most recent events of a node before its time.
///
/// These are all events at that last time, and for every node the `recent` most recent ones before it.
fn most_recent(events: &Events, first: usize, recent: usize) -> Vec<u32> {
    let Some(&last) = events.time[..first].last().filter(|_| recent > 0) else { return Vec::new() };
    let (mut later, mut ids) = (vec![0; events.nodes], Vec::new());
    for i in (0..first).rev() {
        let [src, dst] = [events.src[i] as usize, events.dst[i] as usize];
        if events.time[i] == last || later[src] < recent || later[dst] < recent {
            ids.push(i as u32);
        }
        if events.time[i] < last {
            later[src] += 1;
            later[dst] += usize::from(src != dst);
        }
    }
    ids.reverse();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tgnn_data::Tcsr;

    /// Makes a stream of 6 nodes from the ends of its events and the gaps before them.
    fn stream(ends: &[(u32, u32, i64)]) -> Events {
        let time = ends.iter().scan(0, |now, e| {
            *now += e.2;
            Some(*now)
        });
        let (src, dst) = ends.iter().map(|e| (e.0, e.1)).unzip();
        let mut events = Events::new("test", src, dst, time.collect()).unwrap();
        events.nodes = 6;
        events
    }

    proptest! {
        #[test]
        fn a_query_after_training_reads_the_same_from_the_extract_as_from_all_events(
            ends in prop::collection::vec((0u32..6, 0u32..6, 0i64..3), 1..80), read in 0usize..5, more in 0usize..9,
        ) {
            let events = stream(&ends);
            let n = events.len();
            let kept = most_recent(&events, n, read);
            let [src, dst] = [&events.src, &events.dst].map(|ends| kept.iter().map(|&i| ends[i as usize]).collect());
            let ends: [Vec<u32>; 2] = [src, dst];
            let time: Vec<i64> = kept.iter().map(|&i| events.time[i as usize]).collect();
            // The events that a query at time `at` reads of each node, by their times and other ends.
            let reads = |ends: [&[u32]; 2], time: &[i64], slots: usize, at: i64| -> Vec<Vec<(i64, u32)>> {
                let lists = Tcsr::latest(ends, time, 6, slots);
                let read_of = |list: &[tgnn::ops::sample_neighbors::Entry]| {
                    let earlier = list.iter().filter(|e| e.event != tgnn::runtime::NONE && e.time < at);
                    let all: Vec<_> = earlier.map(|e| (e.time, e.node)).collect();
                    all[all.len().saturating_sub(read)..].to_vec()
                };
                lists.chunks_exact(slots).map(read_of).collect()
            };
            let last = events.time[n - 1];
            for (slots, at) in [(n, last), (n, last + 1), (read + more + 1, last + 1)] {
                let want = reads([&events.src, &events.dst], &events.time, slots, at);
                prop_assert_eq!(want, reads([&ends[0], &ends[1]], &time, slots, at));
            }
        }
    }

    fn extract() -> Extract {
        Extract {
            event: vec![3, 7],
            src: vec![0, 1],
            dst: vec![2, 2],
            time: vec![10, 10],
            edge_features: Features::random(2, 3, 1).kept_as(StoredAs::Bf16).ok(),
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
