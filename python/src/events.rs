//! Event streams.
use crate::{
    arrays::{Array, Buffer, IdColumn},
    error::Result,
};
use pyo3::prelude::*;
use std::{path::PathBuf, sync::Arc};
use tgnn::error::Error;
use tgnn_data::{EventColumns, Events, Features, Format, LabelColumns, ReadOptions};
use tgnn_training::task::Checkpoint;

/// An event stream.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Stream {
    pub events: Arc<Events>,
    /// Where the events were read, to find them again; `None` if they were made in Python.
    #[pyo3(get)]
    pub path: Option<String>,
}

#[pymethods]
impl Stream {
    fn __len__(&self) -> usize {
        self.events.len()
    }
    #[getter]
    fn name(&self) -> &str {
        &self.events.name
    }
    #[getter]
    fn nodes(&self) -> usize {
        self.events.nodes
    }
    #[getter]
    fn first_destination(&self) -> Option<u32> {
        self.events.first_destination
    }
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.events.notes.clone()
    }
    #[getter]
    fn ticks_per_second(&self) -> f64 {
        self.events.ticks_per_second
    }
    #[getter]
    fn origin(&self) -> i64 {
        self.events.origin
    }
    #[getter]
    fn src(&self) -> Buffer {
        self.column(|e| &e.src)
    }
    #[getter]
    fn dst(&self) -> Buffer {
        self.column(|e| &e.dst)
    }
    #[getter]
    fn time(&self) -> Buffer {
        let time = &self.events.time;
        Buffer::borrowed(self.events.clone(), time, vec![time.len()])
    }
    #[getter]
    fn label(&self) -> Option<Buffer> {
        let label = self.events.label.as_ref()?;
        Some(Buffer::borrowed(self.events.clone(), label, vec![label.len()]))
    }
    /// The different labels, if they are text; labels are then their indices.
    #[getter]
    fn label_names(&self) -> Option<Vec<&str>> {
        let names = self.events.label_names.as_ref()?;
        Some(names.iter().map(|name| &**name).collect())
    }
    /// Original ids by node, if they are numbers.
    #[getter]
    fn ids(&self) -> Option<Buffer> {
        let ids = self.events.ids.as_ref()?.numbers()?;
        Some(Buffer::borrowed(self.events.clone(), ids, vec![ids.len()]))
    }
    /// Original ids by node, if they are text.
    #[getter]
    fn names(&self) -> Option<Vec<&str>> {
        let names = self.events.ids.as_ref()?.names()?;
        Some(names.iter().map(|name| &**name).collect())
    }
    /// How times are written: a unit, `iso`, or a pattern.
    #[getter]
    fn time_format(&self) -> String {
        self.events.time_format.to_string()
    }
    #[getter]
    fn edge_features(&self, py: Python<'_>) -> Option<Buffer> {
        self.features(py, |e| e.edge_features.as_ref())
    }
    #[getter]
    fn node_features(&self, py: Python<'_>) -> Option<Buffer> {
        self.features(py, |e| e.node_features.as_ref())
    }
    /// Whether events have sets of classes.
    #[getter]
    fn has_classes(&self) -> bool {
        self.events.classes.is_some()
    }
    /// Labels of nodes, in order of time: ticks since the first event, node, label as text, weight.
    #[getter]
    fn node_labels(&self) -> Option<Vec<(i64, u32, String, f32)>> {
        let labels = self.events.node_labels.as_ref()?;
        let (times, nodes) = (labels.times(), labels.nodes());
        let row = |i: usize| {
            labels
                .row(i)
                .map(move |(class, weight)| (times[i], nodes[i], labels.id(class).to_string(), weight))
        };
        Some((0..labels.len()).flat_map(row).collect())
    }
    /// Whether labels of nodes are numbers.
    #[getter]
    fn labels_are_numbers(&self) -> bool {
        let ids = self.events.node_labels.as_ref().and_then(|labels| labels.ids());
        ids.is_none_or(|ids| ids.numbers().is_some())
    }
    /// Writes the events to a folder, from which `load` reads the same.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> Result<()> {
        Ok(py.detach(|| tgnn_data::save(&self.events, folder, false))?)
    }
}

impl Stream {
    fn column(&self, of: impl Fn(&Events) -> &Vec<u32>) -> Buffer {
        let values = of(&self.events);
        Buffer::borrowed(self.events.clone(), values, vec![values.len()])
    }
    /// Returns features as f32; 16-bit ones are converted at the first call.
    fn features(&self, py: Python<'_>, of: impl Fn(&Events) -> Option<&Features> + Sync) -> Option<Buffer> {
        let features = of(&self.events)?;
        let values = py.detach(|| features.values());
        Some(Buffer::borrowed(self.events.clone(), values, vec![features.rows(), features.cols()]))
    }
}

/// Makes a stream of columns. Ids and times are i64; ids are the bits of u64, or indices of names.
#[pyfunction]
#[pyo3(signature = (name, src, dst, names, time, ticks_per_second, time_format, label, label_names, edge_features, node_features, bipartite, labels))]
#[allow(clippy::too_many_arguments)] // one for each column
pub fn of_columns(
    py: Python<'_>,
    name: String,
    src: Array,
    dst: Array,
    names: Option<Vec<String>>,
    time: Array,
    ticks_per_second: f64,
    time_format: String,
    label: Option<Array>,
    label_names: Option<Vec<String>>,
    edge_features: Option<Array>,
    node_features: Option<Array>,
    bipartite: Option<bool>,
    labels: Option<Labels>,
) -> Result<Stream> {
    py.detach(|| {
        let ids = |ids: &Array| -> Result<Vec<u64>, Error> {
            Ok(ids.values::<i64>()?.iter().map(|&id| id.cast_unsigned()).collect())
        };
        let features = |array: Array| {
            let [rows, cols] = array.shape()?;
            Features::shared(rows, cols, Arc::new(array))
        };
        let columns = EventColumns {
            name,
            src: ids(&src)?,
            dst: ids(&dst)?,
            names: names.map(|names| names.into_iter().map(Into::into).collect()),
            time: time.values::<i64>()?.to_vec(),
            ticks_per_second,
            time_format: time_format.parse()?,
            label: label.map(|label| label.values::<f32>().map(<[f32]>::to_vec)).transpose()?,
            label_names: label_names.map(|names| names.into_iter().map(Into::into).collect()),
            edge_features: edge_features.map(features).transpose()?,
            node_features: node_features.map(features).transpose()?,
            bipartite,
        };
        let mut events = columns.build()?;
        if let Some(labels) = labels {
            labels.columns(events.origin)?.attach(&mut events)?;
        }
        Ok(Stream { events: Arc::new(events), path: None })
    })
}

/// Labels of nodes: times in ticks, indices of nodes, these as text, indices of labels, these, and weights.
#[derive(FromPyObject)]
pub struct Labels(Array, Array, Vec<String>, Array, IdColumn, Option<Array>);

impl Labels {
    /// Returns the columns, with times since `origin`.
    fn columns(self, origin: i64) -> Result<LabelColumns, Error> {
        let Labels(time, node, nodes, label, labels, weight) = self;
        let index = |indices: &Array| -> Result<Vec<u32>, Error> {
            Ok(indices.values::<i64>()?.iter().map(|&i| i as u32).collect())
        };
        Ok(LabelColumns {
            time: time.values::<i64>()?.iter().map(|t| t.saturating_sub(origin)).collect(),
            node: index(&node)?,
            nodes: nodes.into_iter().map(Into::into).collect(),
            label: index(&label)?,
            labels: labels.ids()?,
            weight: weight.map(|weight| weight.values::<f32>().map(<[f32]>::to_vec)).transpose()?,
        })
    }
}

/// Reads events, as the program does.
#[pyfunction]
#[pyo3(signature = (path, format, columns, time_format, missing, bipartite, strict, edge_features, node_features, labels, delimiter))]
#[allow(clippy::too_many_arguments)] // one for each option
pub fn load(
    py: Python<'_>,
    path: String,
    format: Option<String>,
    columns: Option<String>,
    time_format: Option<String>,
    missing: Option<String>,
    bipartite: Option<bool>,
    strict: bool,
    edge_features: Option<PathBuf>,
    node_features: Option<PathBuf>,
    labels: Option<PathBuf>,
    delimiter: Option<String>,
) -> Result<Stream> {
    py.detach(|| {
        let format = format.map(|name| name.parse::<Format>()).transpose()?;
        let columns = columns.map(|columns| columns.parse()).transpose()?;
        let time_format = time_format.map(|format| format.parse()).transpose()?;
        let missing = missing.map(|rule| rule.parse()).transpose()?;
        let delimiter = delimiter.map(|text| text.parse()).transpose()?;
        // What a configuration can say; events read with other options cannot be found again by it.
        let plain = format.is_none()
            && columns.is_none()
            && time_format.is_none()
            && missing.is_none()
            && delimiter.is_none()
            && bipartite.is_none()
            && edge_features.is_none()
            && node_features.is_none()
            && labels.is_none();
        let missing = missing.unwrap_or_default();
        let options = ReadOptions {
            format,
            columns,
            delimiter,
            time_format,
            missing,
            bipartite,
            strict,
            edge_features,
            node_features,
            labels,
        };
        let events = tgnn_data::load(&path, &options)?;
        // A path that is relative now may be read from another folder later.
        let found = std::path::absolute(&path).ok().filter(|p| p.exists());
        let found = found.map_or(path, |p| p.to_string_lossy().into_owned());
        Ok(Stream { events: Arc::new(events), path: plain.then_some(found) })
    })
}

/// Reads the events that the run in `folder` was trained on, where its configuration says that they are.
#[pyfunction]
pub fn of_run(py: Python<'_>, folder: PathBuf) -> Result<Stream> {
    py.detach(|| {
        let data = Checkpoint::at(folder).manifest()?.config.data;
        Ok(Stream { events: Arc::new(data.read()?), path: Some(data.path) })
    })
}
