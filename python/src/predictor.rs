//! Trained models: embeddings, and prediction on a stream that continues.
use crate::{
    arrays::{Array, Buffer, IdColumn},
    error::Result,
    events::Stream,
};
use pyo3::prelude::*;
use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tgnn::error::{Error, ErrorKind};
use tgnn_data::{NodeId, NodeNames};
use tgnn_training::task::{self, After, Checkpoint, Config, NewEvent, PredictorOptions};

/// Returns the configuration of a trained run, on another device if one is given.
fn config_of(checkpoint: &Checkpoint, device: Option<String>) -> Result<Config, Error> {
    let mut config = checkpoint.manifest()?.config.after_training();
    config.device = device.unwrap_or(config.device);
    config.validate()?;
    Ok(config)
}

/// Returns the embeddings of nodes (i64 numbers) at times (i64 ticks since the first event) by the run in
/// `folder`.
#[pyfunction]
pub fn embed(
    py: Python<'_>,
    folder: PathBuf,
    stream: &Stream,
    nodes: Array,
    times: Array,
    after: String,
    device: Option<String>,
) -> Result<Buffer> {
    py.detach(|| {
        let checkpoint = Checkpoint::at(folder);
        let config = config_of(&checkpoint, device)?;
        let numbers =
            nodes.values::<i64>()?.iter().map(|&v| number(v)).collect::<Result<Vec<u32>, Error>>()?;
        let device = config.open_device()?;
        let after = after.parse()?;
        let (width, z) = if config.model.reads_snapshots() {
            if after == After::Validation {
                let e = Error::usage("after=\"validation\", and the model reads snapshots");
                return Err(e.remedy("leave it out").into());
            }
            task::embed_snapshots(&checkpoint, &config, &config.cut(&stream.events)?, &device, &numbers)?
        } else {
            let events = config.prepare(&stream.events)?;
            task::embed(&checkpoint, &config, &events, &device, after, &numbers, times.values()?)?
        };
        Ok(Buffer::owned(z, vec![numbers.len(), width]))
    })
}

/// Returns the number of a node as the crate counts.
fn number(v: i64) -> Result<u32, Error> {
    u32::try_from(v).map_err(|_| Error::usage(format!("there is no node {v}")))
}

/// A trained model on a stream that continues.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Predictor(Mutex<State>);

struct State {
    predictor: task::Predictor,
    names: NodeNames,
    batch: usize,
}

/// Gives a node its number: of an event, or of a question.
type Number = fn(&mut NodeNames, &NodeId, bool) -> Option<u32>;

impl State {
    /// Runs `work`; if it fails, ids that it saw first are unknown again.
    fn or_forget<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let known = self.names.added().len();
        let result = work(self);
        if result.is_err() {
            self.names.forget(known);
        }
        result
    }
    /// Answers a question, after which ids that it saw first are unknown again.
    fn answer<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let known = self.names.added().len();
        let answer = work(self);
        self.names.forget(known);
        answer
    }
    /// Returns the node numbers of pairs of ids, by what gives one to those that are new.
    fn pairs(&mut self, src: &IdColumn, dst: &IdColumn, number: Number) -> Result<Vec<[u32; 2]>, Error> {
        let (src, dst) = (src.ids()?, dst.ids()?);
        let pairs = src.iter().zip(&dst);
        pairs.map(|(src, dst)| Ok([self.node(src, false, number)?, self.node(dst, true, number)?])).collect()
    }
    /// Returns the node number of an id.
    fn node(&mut self, id: &NodeId, destination: bool, number: Number) -> Result<u32, Error> {
        number(&mut self.names, id, destination).ok_or_else(|| {
            if self.names.are_numbers() && matches!(id, NodeId::Text(_)) {
                let what = format!("node {id} is text, and the ids of the data are numbers");
                return Error::new(ErrorKind::Data, what).remedy("give numbers from 0");
            }
            let what =
                format!("node {id} does not fit: the predictor holds {} nodes", self.predictor.nodes());
            Error::new(ErrorKind::Data, what).remedy("allow more with nodes=")
        })
    }
}

impl Predictor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Predictor {
    /// Opens the best state of the run in `folder`, or a saved stream.
    #[new]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        batch: usize,
        nodes: Option<usize>,
        slots: Option<usize>,
        after: String,
        device: Option<String>,
    ) -> Result<Self> {
        py.detach(|| {
            let checkpoint = Checkpoint::at(folder);
            let config = config_of(&checkpoint, device)?;
            let options =
                PredictorOptions { batch, nodes, slots, events: None, after: after.parse()?, scored: 0 };
            let predictor = task::Predictor::open(&checkpoint, &config, &config.open_device()?, &options)?;
            let names = predictor.names();
            Ok(Predictor(Mutex::new(State { predictor, names, batch })))
        })
    }
    #[getter]
    fn origin(&self) -> i64 {
        self.state().predictor.time_scale().origin
    }
    #[getter]
    fn ticks_per_second(&self) -> f64 {
        self.state().predictor.time_scale().ticks_per_second
    }
    #[getter]
    fn time_format(&self) -> String {
        self.state().predictor.time_scale().format.to_string()
    }
    #[getter]
    fn edge_width(&self) -> usize {
        self.state().predictor.edge_width()
    }
    #[getter]
    fn nodes(&self) -> usize {
        self.state().predictor.nodes()
    }
    #[getter]
    fn seen(&self) -> u64 {
        self.state().predictor.seen()
    }
    #[getter]
    fn latest(&self) -> Option<i64> {
        self.state().predictor.latest()
    }
    /// Fills `logits` with the scores of events, batch by batch: ids, ticks since the first event, features.
    fn advance(
        &self,
        py: Python<'_>,
        src: IdColumn,
        dst: IdColumn,
        time: Array,
        features: Option<Array>,
        mut logits: Array,
    ) -> Result<()> {
        py.detach(|| {
            let state = &mut *self.state();
            let features =
                features.as_ref().map(|f| Ok::<_, Error>((f.shape()?[1], f.values::<f32>()?))).transpose()?;
            let (width, rows) = features.unwrap_or((0, &[]));
            let nodes = state.or_forget(|state| state.pairs(&src, &dst, NodeNames::number))?;
            let time = time.values::<i64>()?;
            let events: Vec<NewEvent<'_>> = nodes
                .iter()
                .zip(time)
                .enumerate()
                .map(|(i, (&[src, dst], &time))| {
                    let features = rows.get(i * width..(i + 1) * width).unwrap_or(&[]);
                    NewEvent { src, dst, time, features }
                })
                .collect();
            let logits = logits.values_mut::<f32>()?;
            for (events, logits) in events.chunks(state.batch).zip(logits.chunks_mut(state.batch)) {
                logits.copy_from_slice(state.predictor.advance(events)?);
            }
            Ok(())
        })
    }
    /// Returns the logits of pairs at a time (ticks since the first event), after all events so far.
    fn score(&self, py: Python<'_>, src: IdColumn, dst: IdColumn, time: i64) -> Result<Buffer> {
        py.detach(|| {
            let state = &mut *self.state();
            let logits = state.answer(|state| {
                let pairs = state.pairs(&src, &dst, NodeNames::asked)?;
                state.predictor.score(&pairs, time)
            })?;
            let n = logits.len();
            Ok(Buffer::owned(logits, vec![n]))
        })
    }
    /// Returns the embeddings of ids at times after all events so far.
    fn embed(&self, py: Python<'_>, ids: IdColumn, time: Array, destinations: bool) -> Result<Buffer> {
        py.detach(|| {
            let state = &mut *self.state();
            let ids = ids.ids()?;
            let (nodes, z) = state.answer(|state| {
                let number = |id| state.node(id, destinations, NodeNames::asked);
                let nodes: Vec<u32> = ids.iter().map(number).collect::<Result<_, Error>>()?;
                let z = state.predictor.embed(&nodes, time.values()?)?;
                Ok((nodes, z))
            })?;
            let width = z.len().checked_div(nodes.len()).unwrap_or(0);
            Ok(Buffer::owned(z, vec![nodes.len(), width]))
        })
    }
    /// Saves the state, from which prediction can continue.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> Result<()> {
        py.detach(|| {
            let State { predictor, names, .. } = &mut *self.state();
            Ok(predictor.save(&folder, names.added())?)
        })
    }
}
