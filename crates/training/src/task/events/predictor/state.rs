//! The state of a predictor as it is saved: by the predictor itself, or from a copy while it goes on.
use super::{Error, Predictor, Result};
use crate::task::training::{Checkpoint, Extract, ExtractRecord, Manifest, StreamRecord, Tensor, tensors};
use safetensors::Dtype;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use tgnn::{
    error::ErrorKind,
    runtime::{BufferId, tried},
};
use tgnn_data::NodeId;

/// Bytes that a thread copies at least: less is not worth a thread.
const PIECE: usize = 4 << 20;

/// A copy of a predictor's state, by [`Predictor::copy_state`]. It takes as much memory as the state, and can
/// be saved by another thread while the predictor goes on.
pub struct PredictorState {
    tensors: Vec<Copied>,
    parts: Parts,
}

tgnn::brief_debug!(PredictorState, state => { events: state.events() });

/// A tensor of a state.
struct Copied {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// What is saved with the tensors of a state.
struct Parts {
    manifest: Manifest,
    data: ExtractRecord,
    extract: Arc<KeptExtract>,
}

/// The extract of the data, which is the same in all states of a stream.
pub(super) struct KeptExtract {
    extract: Extract,
    /// The folder that has it, and its checksum.
    written: Mutex<Option<(PathBuf, u32)>>,
}

impl KeptExtract {
    /// Writes the extract into a checkpoint, unless it was written there before. Returns its checksum.
    fn write(&self, checkpoint: &Checkpoint) -> Result<u32> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((folder, sum)) = &*written
            && folder == checkpoint.path()
        {
            return Ok(*sum);
        }
        let sum = checkpoint.write_extract(&self.extract)?;
        *written = Some((checkpoint.path().to_owned(), sum));
        Ok(sum)
    }
}

impl Parts {
    /// Saves the tensors of a state into the folder `dir`.
    fn save<'a>(&self, dir: &Path, tensors: impl IntoIterator<Item = Tensor<'a>>) -> Result<()> {
        let checkpoint = Checkpoint::at(dir);
        checkpoint.may_hold_stream()?;
        let checksum = self.extract.write(&checkpoint)?;
        let extract = Some(ExtractRecord { checksum, ..self.data.clone() });
        checkpoint.save_stream(tensors, Manifest { extract, ..self.manifest.clone() })
    }
}

impl PredictorState {
    /// Returns the number of events since training.
    pub fn events(&self) -> u64 {
        self.parts.manifest.stream.as_ref().map_or(0, |stream| stream.events)
    }
    /// Saves the state into the folder `dir`, as [`Predictor::save`] does.
    ///
    /// # Errors
    /// Those of [`Predictor::save`].
    pub fn save(&self, dir: &Path) -> Result<()> {
        let tensors = self.tensors.iter();
        self.parts.save(dir, tensors.map(|t| (&*t.name, t.dtype, t.shape.clone(), &*t.bytes)))
    }
}

impl Predictor {
    /// Saves the state after the stream so far into the folder `dir`, atomically. It can be
    /// [opened](Self::open) again. Once this returns, a power cut loses nothing of it.
    ///
    /// # Errors
    /// `Usage` if `dir` holds the checkpoint of a training run; `Io`.
    pub fn save(&mut self, dir: &Path, new_nodes: &[(NodeId, u8)]) -> Result<()> {
        Checkpoint::at(dir).may_hold_stream()?;
        self.compact()?;
        let (parts, buffers) = (self.parts(new_nodes), self.fetched()?);
        parts.save(dir, tensors(&self.built.store, &buffers)?)
    }
    /// Copies the state after the stream so far, so that it can be saved while the predictor goes on. Memory
    /// of an earlier copy, `spare`, is used again. The copy is made by all threads of the device.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device` if a copy from the device fails.
    pub fn copy_state(
        &mut self,
        new_nodes: &[(NodeId, u8)],
        spare: Option<PredictorState>,
    ) -> Result<PredictorState> {
        let (parts, buffers) = (self.parts(new_nodes), self.fetched()?);
        let mut spare = spare.map_or_else(Vec::new, |spare| spare.tensors).into_iter();
        let mut copied = Vec::with_capacity(buffers.len());
        for (name, dtype, shape, from) in tensors(&self.built.store, &buffers)? {
            let mut bytes = spare.next().map_or_else(Vec::new, |spare| spare.bytes);
            let more = from.len().saturating_sub(bytes.len());
            tried(|| bytes.try_reserve_exact(more)).map_err(|e| {
                let what = format!("a copy of the state needs {} bytes more", from.len());
                Error::new(ErrorKind::OutOfMemory, what)
                    .caused_by(e)
                    .remedy("save without --save-every, or take fewer nodes or slots")
            })?;
            bytes.resize(from.len(), 0);
            copy(&mut bytes, from, self.device.threads());
            copied.push(Copied { name: name.to_owned(), dtype, shape, bytes });
        }
        Ok(PredictorState { tensors: copied, parts })
    }
    /// Returns what is saved with the tensors of the state.
    fn parts(&mut self, new_nodes: &[(NodeId, u8)]) -> Parts {
        let stream = StreamRecord {
            nodes: self.sizes.nodes,
            slots: self.sizes.slots,
            events: self.seen,
            next: self.next,
            latest: self.latest,
            new_nodes: new_nodes.to_vec(),
        };
        let manifest =
            Manifest { stream: Some(stream), latest: None, settled: None, ..self.manifest.clone() };
        let extract = self.extract.get_or_insert_with(|| {
            let (ids, node_features) = (self.ids.clone(), self.sizes.node_features.clone());
            let extract = Extract { ids, node_features, ..Extract::default() };
            Arc::new(KeptExtract { extract, written: Mutex::new(None) })
        });
        Parts { manifest, data: self.data.clone(), extract: extract.clone() }
    }
    /// Brings the state to the host. Returns its buffers, each with the number of rows that are saved.
    fn fetched(&mut self) -> Result<Vec<(BufferId, usize)>> {
        let (nodes, slots) = (self.sizes.nodes, self.sizes.slots);
        let (entries, edge) = (self.built.arrivals.entries, self.built.arrivals.edge);
        let mut buffers = self.built.rows_of(nodes);
        buffers.extend([(entries, nodes * slots), (edge, self.rows(self.next))]);
        let ids: Vec<BufferId> = buffers.iter().map(|b| b.0).collect();
        self.built.store.fetch(&ids)?;
        Ok(buffers)
    }
}

/// Copies bytes by up to `threads` threads.
fn copy(to: &mut [u8], from: &[u8], threads: usize) {
    let piece = from.len().div_ceil(threads.max(1)).max(PIECE);
    thread::scope(|scope| {
        let mut pieces = to.chunks_mut(piece).zip(from.chunks(piece));
        let own = pieces.next();
        for (to, from) in pieces {
            scope.spawn(move || to.copy_from_slice(from));
        }
        own.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
    });
}
