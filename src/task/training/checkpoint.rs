//! Checkpoints: what a run needs to be evaluated, resumed or used, in one folder.
//!
//! `epoch-N.safetensors` holds parameters, optimiser, node memory and mailbox after the validation of epoch N, for the
//! last epoch and the best one; `manifest.json` says which those are, and names schema, configuration and data. The
//! `settled-X.safetensors`, X being its checksum, holds the model that settled after the best epoch: what is used without the
//! memory of its training. The manifest is renamed into place after the files it names are whole, and before those it no longer names go: whenever
//! a run is cut off, the folder holds a checkpoint that is whole, or none. What a predictor saves after a stream is such a
//! folder too: `stream-X.safetensors`, X being its checksum, holds what the stream goes on from, and the manifest tells of it.
use super::folder::write_whole;
use crate::{
    autograd::Parameters,
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, DType, Precision, Rows, Spec, Store},
    task::config::Config,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Version of the layout, and of what the keys mean. With 1 parts were cut by event order, and a TGAT embedded neighbours at the query's
/// time: what it had learned is another model's today.
const SCHEMA: u32 = 2;

/// What a checkpoint says of the stream that came after training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// Nodes that there is room for.
    pub nodes: usize,
    /// Most recent events that are kept of a node.
    pub slots: usize,
    /// Events since training.
    pub events: u64,
    /// Id of the next event.
    pub next: u32,
    /// Time of the last event, in ticks.
    pub latest: Option<i64>,
    /// Nodes that the data set does not have, in the order of their numbers: original id, and 1 where sources and destinations
    /// are numbered apart and it is a destination.
    pub new_nodes: Vec<[u64; 2]>,
}

/// What a checkpoint says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    pub schema: u32,
    /// Epochs done.
    pub epochs: usize,
    /// The best of them, from 1.
    pub best_epoch: usize,
    /// Its validation score.
    pub best_score: Option<f64>,
    /// Events, nodes and width of the edge features it was trained on.
    pub data: (usize, usize, usize),
    /// CRC-32 of the files of the last epoch and of the best.
    pub checksums: [u32; 2],
    /// CRC-32 of the file of the settled model, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<u32>,
    /// How it was trained.
    pub config: Config,
    /// Of the stream that came after training, where a predictor saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamRecord>,
}

/// A checkpoint's folder.
pub struct Checkpoint(PathBuf);

fn bad(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Checkpoint, what).in_file(path)
}

/// The type of a buffer's values in a file.
fn dtype_of(store: &Store, id: BufferId) -> Dtype {
    match (store.spec(id).dtype, store.precision()) {
        (DType::F32, Precision::F32) => Dtype::F32,
        (DType::F32, Precision::F64) => Dtype::F64,
        (DType::U32, _) => Dtype::U32,
        (DType::I64, _) => Dtype::I64,
        (DType::Bf16, _) => Dtype::BF16,
        (DType::F16, _) => Dtype::F16,
    }
}

impl Checkpoint {
    /// The checkpoint in the folder `dir`, or in its `checkpoint/` where it is a run's folder.
    pub fn at(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        let inner = dir.join("checkpoint");
        Checkpoint(if dir.join("manifest.json").exists() || !inner.exists() { dir.to_owned() } else { inner })
    }
    /// Writes the state of an epoch, the best one's too where `best`, then the manifest.
    ///
    /// # Errors
    /// Io.
    pub fn save(&self, store: &Store, buffers: &[BufferId], manifest: &Manifest, best: bool) -> Result<()> {
        fs::create_dir_all(&self.0).map_err(|e| Error::io(&self.0, "cannot create", e))?;
        let bytes = self.serialized(store, &whole(store, buffers))?;
        let mut manifest = Manifest { settled: None, ..manifest.clone() };
        let sum = crc(&bytes);
        manifest.checksums = [sum, if best { sum } else { self.manifest()?.checksums[1] }];
        let kept = [self.file(manifest.epochs), self.file(manifest.best_epoch)];
        self.write(&kept[0], &bytes, &manifest, &kept)
    }
    /// Writes the state of the model that settled after the best epoch.
    ///
    /// # Errors
    /// Io.
    pub fn save_settled(&self, store: &Store, buffers: &[BufferId], manifest: &Manifest) -> Result<()> {
        let bytes = self.serialized(store, &whole(store, buffers))?;
        let (checksums, sum) = (self.manifest()?.checksums, crc(&bytes));
        let manifest = Manifest { checksums, settled: Some(sum), ..manifest.clone() };
        let path = self.settled_file(sum);
        let kept = [self.file(manifest.epochs), self.file(manifest.best_epoch), path.clone()];
        self.write(&path, &bytes, &manifest, &kept)
    }
    /// Writes the first rows of `buffers`, as many as are given, after a stream of which the manifest tells.
    ///
    /// # Errors
    /// Usage where the folder holds the checkpoint of a training; Io.
    pub(in crate::task) fn save_stream(
        &self,
        store: &Store,
        buffers: &[(BufferId, usize)],
        mut manifest: Manifest,
    ) -> Result<()> {
        self.may_hold_stream()?;
        fs::create_dir_all(&self.0).map_err(|e| Error::io(&self.0, "cannot create", e))?;
        let bytes = self.serialized(store, buffers)?;
        manifest.checksums = [crc(&bytes); 2];
        let path = self.best_file(&manifest);
        self.write(&path, &bytes, &manifest, std::slice::from_ref(&path))
    }
    /// Refuses to put a stream's state in the place of a training's.
    ///
    /// # Errors
    /// Usage.
    pub fn may_hold_stream(&self) -> Result<()> {
        if self.exists() && self.manifest()?.stream.is_none() {
            return Err(Error::usage(format!("{} holds the checkpoint of a training", self.0.display()))
                .remedy("give another folder"));
        }
        Ok(())
    }
    /// The first rows of `buffers`, as many as are given.
    fn serialized(&self, store: &Store, buffers: &[(BufferId, usize)]) -> Result<Vec<u8>> {
        let views: Vec<(String, TensorView<'_>)> = buffers
            .iter()
            .map(|&(id, rows)| {
                let spec = store.spec(id);
                let bytes = rows * spec.cols * spec.dtype.size(store.precision());
                let view =
                    TensorView::new(dtype_of(store, id), vec![rows, spec.cols], &store.raw(id)?[..bytes]);
                view.map(|v| (store.name(id).to_owned(), v)).map_err(|e| self.unwritable(e))
            })
            .collect::<Result<_>>()?;
        safetensors::serialize(views, None).map_err(|e| self.unwritable(e))
    }
    /// Writes a state, then the manifest, then removes the states that are not `kept`.
    fn write(&self, path: &Path, bytes: &[u8], manifest: &Manifest, kept: &[PathBuf]) -> Result<()> {
        write_whole(path, bytes)?;
        let json = serde_json::to_vec_pretty(manifest).map_err(|e| self.unwritable(e))?;
        write_whole(&self.0.join("manifest.json"), &json)?;
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let older = path.extension().is_some_and(|e| e == "safetensors") && !kept.contains(&path);
            if older {
                let _ = fs::remove_file(path); // one that stays does no harm
            }
        }
        Ok(())
    }
    fn file(&self, epoch: usize) -> PathBuf {
        self.0.join(format!("epoch-{epoch}.safetensors"))
    }
    /// The state that is tested and used: of the best epoch, or after a stream.
    fn best_file(&self, manifest: &Manifest) -> PathBuf {
        match &manifest.stream {
            // Of one name are only files of one content: a new one never takes the place of the one that a manifest names.
            Some(_) => self.0.join(format!("stream-{:08x}.safetensors", manifest.checksums[1])),
            None => self.file(manifest.best_epoch),
        }
    }
    /// The settled state of this checksum, by which it is named for the same reason.
    fn settled_file(&self, sum: u32) -> PathBuf {
        self.0.join(format!("settled-{sum:08x}.safetensors"))
    }
    /// Whether there is one.
    pub fn exists(&self) -> bool {
        self.0.join("manifest.json").exists()
    }
    fn unwritable(&self, e: impl std::error::Error + Send + Sync + 'static) -> Error {
        bad(&self.0, "cannot write the checkpoint").caused_by(e)
    }
    /// What the checkpoint says of itself.
    ///
    /// # Errors
    /// Checkpoint when there is none, it is damaged, or it is of another schema.
    pub fn manifest(&self) -> Result<Manifest> {
        let path = self.0.join("manifest.json");
        let text = fs::read_to_string(&path).map_err(|e| {
            bad(&path, "there is no checkpoint here")
                .caused_by(e)
                .remedy("give the folder that `train --out` wrote")
        })?;
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
        }
        let schema: Schema = serde_json::from_str(&text).map_err(|e| {
            bad(&path, "the manifest is damaged").caused_by(e).remedy("train again, or use a copy")
        })?;
        if schema.schema != SCHEMA {
            let age = if schema.schema > SCHEMA { "a newer" } else { "an older" };
            let found = format!("the checkpoint has schema {} and was written by {age} build", schema.schema);
            return Err(
                bad(&path, format!("{found}, this one reads {SCHEMA}")).remedy("use the build that wrote it")
            );
        }
        serde_json::from_str(&text).map_err(|e| {
            // Keys may be added within a schema.
            let newer = if e.is_data() { ", or written by a newer build" } else { "" };
            bad(&path, format!("the manifest is damaged{newer}"))
                .caused_by(e)
                .remedy("train again, or use a copy")
        })
    }
    /// A manifest of this build's schema.
    pub fn describe(config: &Config, data: (usize, usize, usize)) -> Manifest {
        let config = config.clone();
        Manifest {
            schema: SCHEMA,
            epochs: 0,
            best_epoch: 0,
            best_score: None,
            data,
            checksums: [0; 2],
            settled: None,
            config,
            stream: None,
        }
    }
    /// Reads `buffers` from the last or the best epoch's file. Nothing is changed unless all of it fits.
    ///
    /// # Errors
    /// Checkpoint when the file is cut short, changed, or holds another model's values.
    pub fn load(&self, store: &mut Store, buffers: &[BufferId], best: bool) -> Result<()> {
        let manifest = self.of_training()?;
        let path = self.file(if best { manifest.best_epoch } else { manifest.epochs });
        self.read(&path, manifest.checksums[usize::from(best)], store, &whole(store, buffers))
    }
    /// Reads `buffers` from the file of the settled model, or the best epoch's where it did not settle.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_settled(&self, store: &mut Store, buffers: &[BufferId]) -> Result<()> {
        match self.of_training()?.settled {
            Some(sum) => self.read(&self.settled_file(sum), sum, store, &whole(store, buffers)),
            None => self.load(store, buffers, true),
        }
    }
    /// The manifest, if it is of a training.
    fn of_training(&self) -> Result<Manifest> {
        let manifest = self.manifest()?;
        if manifest.stream.is_some() {
            return Err(bad(&self.0, "the checkpoint was saved after a stream")
                .remedy("go on with `predict`, or give the checkpoint of the training"));
        }
        Ok(manifest)
    }
    /// Reads the first rows of `buffers`, of which the file has as many as are given, from the best epoch's file or the one
    /// after a stream. Nothing is changed unless all of it fits.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(in crate::task) fn load_rows(&self, store: &mut Store, buffers: &[(BufferId, usize)]) -> Result<()> {
        let manifest = self.manifest()?;
        self.read(&self.best_file(&manifest), manifest.checksums[1], store, buffers)
    }
    fn read(&self, path: &Path, sum: u32, store: &mut Store, buffers: &[(BufferId, usize)]) -> Result<()> {
        let bytes = fs::read(path).map_err(|e| bad(path, "cannot read").caused_by(e))?;
        if crc(&bytes) != sum {
            return Err(bad(path, "the file is not what its manifest says: cut short or changed")
                .remedy("train again, or use a copy"));
        }
        let file =
            SafeTensors::deserialize(&bytes).map_err(|e| bad(path, "the file is damaged").caused_by(e))?;
        let mut all = Vec::new();
        for &(id, rows) in buffers {
            let name = store.name(id);
            let spec = Spec { rows: Rows::fixed(rows), ..store.spec(id) };
            let view = file.tensor(name).map_err(|_| {
                bad(path, format!("`{name}` is missing")).remedy("this checkpoint is of another model")
            })?;
            let dtype = dtype_of(store, id);
            if view.dtype() != dtype || view.shape() != [rows, spec.cols] {
                let found = format!("`{name}` is {:?} {:?}", view.dtype(), view.shape());
                return Err(bad(path, format!("{found}, want {dtype:?} [{rows}, {}]", spec.cols))
                    .remedy("this checkpoint is of other sizes or other data"));
            }
            all.push((id, view));
        }
        for (id, view) in all {
            store.raw_mut(id)?[..view.data().len()].copy_from_slice(view.data());
        }
        Ok(())
    }
}

/// All rows of `buffers`.
fn whole(store: &Store, buffers: &[BufferId]) -> Vec<(BufferId, usize)> {
    buffers.iter().map(|&id| (id, store.spec(id).rows.capacity)).collect()
}

/// Reads parameters from a safetensors file by name: f32, `[rows, columns]`, or `[columns]` for one row; see
/// docs/weights.md. What else the file holds is left alone, and nothing is changed unless every parameter fits.
///
/// # Errors
/// Io when it cannot be read; Checkpoint, naming the parameter, when it is damaged or of another model.
pub fn import_weights(path: &Path, store: &mut Store, parameters: &Parameters) -> Result<()> {
    let bytes = fs::read(path).map_err(|e| Error::io(path, "cannot read", e))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| bad(path, "not a safetensors file").caused_by(e))?;
    let mut all = Vec::new();
    for (name, id) in parameters.iter() {
        let (rows, cols) = (store.spec(id).rows.capacity, store.spec(id).cols);
        let view = file.tensor(name).map_err(|_| {
            bad(path, format!("`{name}` is missing")).remedy("name the weights as docs/weights.md does")
        })?;
        let fits = view.shape() == [rows, cols] || (rows == 1 && view.shape() == [cols]);
        if view.dtype() != Dtype::F32 || !fits {
            let found = format!("`{name}` is {:?} {:?}", view.dtype(), view.shape());
            return Err(bad(path, found).remedy(format!("give F32 [{rows}, {cols}], or configure that size")));
        }
        all.push((id, view));
    }
    for (id, view) in all {
        store.raw_mut(id)?.copy_from_slice(view.data());
    }
    Ok(())
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
