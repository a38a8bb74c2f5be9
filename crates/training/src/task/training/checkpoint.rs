//! Checkpoints: folders with everything that is needed to evaluate, resume or use a run.
//!
//! - `manifest.json` names the last and the best epoch, and records schema, configuration and data.
//! - `epoch-N.safetensors` holds parameters, optimiser state, node memory and mailbox after the validation of
//!   epoch N. It exists for the last and the best epoch.
//! - `copy-C-X.safetensors`, where X is its checksum, holds the copy of the node memory that goes on with
//!   segment C of the training part after the last epoch, if there are several copies.
//! - `settled-X.safetensors`, where X is its checksum, holds the model that settled after the best epoch. A
//!   test with replayed memory loads it, and so does a run that starts from this model (`--from`).
//! - `latest-X.safetensors`, where X is its checksum, holds node memory and mailbox of the best epoch after
//!   the last event of the stream. It is written when the run ends.
//! - `stream-X.safetensors`, where X is its checksum, holds the state of a predictor after a stream. Such a
//!   checkpoint has no other state; its manifest has a [`StreamRecord`].
//! - `extract-X.safetensors`, where X is its checksum, holds what a predictor needs of the data: see
//!   [`extract`](super::extract). It exists if a predictor can use the model, once for the state after
//!   validation and once for the one after the last event.
//!
//! The manifest is renamed into place after the files that it names are complete and on the disk, and before
//! files that it no longer names are deleted. So, whenever a run is interrupted, also by a power cut, the
//! folder holds a complete checkpoint or none.
use super::{
    DataRecord, Fingerprint, PlanManifest,
    extract::{Extract, ExtractRecord},
    folder::{USE_A_COPY, read_text, write_synced},
    summary::StartRecord,
    tensor_files::{Tensor, TensorFile, bad, crc, dtype_of, write_tensors},
};
use crate::task::config::Config;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, Rows, Spec, Store},
};
use tgnn_data::{ClassTable, Encodings, NodeId};

/// Version of the layout and of the meaning of the keys. In version 1, the data were split by event order,
/// and TGAT embedded neighbours at the time of the query, so its weights belong to a model that is different
/// from today's.
const SCHEMA: u32 = 2;

/// The record of a stream that a predictor processed after training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// Number of nodes that the state has memory for.
    pub nodes: usize,
    /// Maximum number of recent events kept per node.
    pub slots: usize,
    /// Number of events since training.
    pub events: u64,
    /// Id of the next event.
    pub next: u32,
    /// Time of the last event, in ticks.
    pub latest: Option<i64>,
    /// Nodes that the data set does not have, in the order of their numbers: the original id, and 1 for a
    /// destination if sources and destinations are numbered separately, else 0.
    pub new_nodes: Vec<(NodeId, u8)>,
}

/// What a trained model knows of its stream when it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// All events.
    #[default]
    Stream,
    /// The events of training and validation, as when the test part is scored.
    Validation,
}

impl After {
    /// All of them.
    pub const ALL: [After; 2] = [After::Stream, After::Validation];
    /// Returns the name in flags.
    pub const fn name(self) -> &'static str {
        match self {
            After::Stream => "stream",
            After::Validation => "validation",
        }
    }
}

impl std::str::FromStr for After {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let known = After::ALL.into_iter().find(|part| part.name() == s);
        known.ok_or_else(|| Error::unknown(ErrorKind::Usage, "part", s, &After::ALL.map(After::name)))
    }
}

/// The state after the last event of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatestRecord {
    /// CRC-32 of the file.
    pub checksum: u32,
    /// The extract of the data that belongs to the state.
    pub extract: ExtractRecord,
}

/// How a manifest with a checksum begins.
const SUMMED: &str = "{\n  \"manifest_checksum\": ";

/// The contents of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    pub schema: u32,
    /// Number of completed epochs.
    pub epochs: usize,
    /// Number of the best epoch, from 1; 0 before the first epoch.
    pub best_epoch: usize,
    /// Validation score of the best epoch.
    pub best_score: Option<f64>,
    /// Number of events, number of nodes and width of the edge features of the training data.
    pub data: (usize, usize, usize),
    /// Checksums of the training data; `None` if an earlier version wrote the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// CRC-32 of the files of the last and the best epoch.
    pub checksums: [u32; 2],
    /// CRC-32 of the file of the settled model; `None` before the model has settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<u32>,
    /// Configuration of the training.
    pub config: Config,
    /// How columns became features; `None` if an earlier version wrote the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Encodings>,
    /// What the classes stand for, if the model predicts classes; `None` in checkpoints of earlier versions,
    /// in which class `c` stands for the number `c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassTable>,
    /// What only runs with some plans have.
    #[serde(flatten)]
    pub by_plan: PlanManifest,
    /// What the training started from, if not from random weights: a resumed run keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartRecord>,
    /// The stream after training, if a predictor saved the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamRecord>,
    /// The extract of the data; `None` if no predictor can use the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extract: Option<ExtractRecord>,
    /// The state after the last event of the stream; `None` before the run has ended, or if no predictor can
    /// use the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<LatestRecord>,
}

/// The folder of a checkpoint.
#[derive(Debug)]
pub struct Checkpoint(PathBuf);

impl Checkpoint {
    /// Returns the checkpoint in the folder `dir`, or in `dir/checkpoint` if `dir` is a run folder.
    pub fn at(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        let inner = dir.join("checkpoint");
        Checkpoint(if dir.join("manifest.json").exists() || !inner.exists() { dir.to_owned() } else { inner })
    }
    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Saves the state of the last epoch, then the manifest. `best` says that this epoch is the best one so
    /// far.
    ///
    /// # Errors
    /// `Io`.
    pub fn save(&self, store: &Store, buffers: &[BufferId], manifest: &Manifest, best: bool) -> Result<()> {
        let mut manifest = Manifest { settled: None, latest: None, ..manifest.clone() };
        let kept = [self.file(manifest.epochs), self.file(manifest.best_epoch)];
        let before = if best { None } else { Some(self.manifest()?.checksums[1]) };
        let (_, sum) = self.write(tensors(store, &whole(store, buffers))?, |_| kept[0].clone())?;
        manifest.checksums = [sum, before.unwrap_or(sum)];
        self.name_only(&manifest, &kept)
    }
    /// Saves the model that settled after the best epoch, then the manifest.
    ///
    /// # Errors
    /// `Io`.
    pub fn save_settled(&self, store: &Store, buffers: &[BufferId], manifest: &Manifest) -> Result<()> {
        let checksums = self.manifest()?.checksums;
        let (path, sum) =
            self.write(tensors(store, &whole(store, buffers))?, |sum| self.settled_file(sum))?;
        let manifest = Manifest { checksums, settled: Some(sum), ..manifest.clone() };
        self.name_only(&manifest, &[self.file(manifest.epochs), self.file(manifest.best_epoch), path])
    }
    /// Saves node memory and mails after the last event of the stream, then the manifest, in which they
    /// belong to the extract.
    pub(super) fn save_latest(
        &self,
        store: &Store,
        buffers: &[BufferId],
        extract: ExtractRecord,
        manifest: &mut Manifest,
    ) -> Result<()> {
        let (path, checksum) =
            self.write(tensors(store, &whole(store, buffers))?, |sum| self.latest_file(sum))?;
        let latest = LatestRecord { checksum, extract };
        (manifest.checksums, manifest.latest) = (self.manifest()?.checksums, Some(latest));
        self.name_only(manifest, &[self.file(manifest.epochs), self.file(manifest.best_epoch), path])
    }
    /// Saves the tensors of the state after a stream, then the manifest, whose extract must be in the folder.
    pub(in crate::task) fn save_stream<'a>(
        &self,
        tensors: impl IntoIterator<Item = Tensor<'a>>,
        mut manifest: Manifest,
    ) -> Result<()> {
        self.may_hold_stream()?;
        let (path, sum) = self.write(tensors, stream_file(&self.0))?;
        manifest.checksums = [sum; 2];
        self.name_only(&manifest, &[path])
    }
    /// Checks that saving a stream would not overwrite the checkpoint of a training run.
    ///
    /// # Errors
    /// `Usage` if it would.
    pub fn may_hold_stream(&self) -> Result<()> {
        if self.exists() && self.manifest()?.stream.is_none() {
            return Err(Error::usage(format!("{} holds the checkpoint of a training run", self.0.display()))
                .remedy("give another folder"));
        }
        Ok(())
    }
    /// Writes the tensors of a state to the file that `path` names by their checksum. Returns both.
    pub(super) fn write<'a>(
        &self,
        tensors: impl IntoIterator<Item = Tensor<'a>>,
        path: impl FnOnce(u32) -> PathBuf,
    ) -> Result<(PathBuf, u32)> {
        self.create()?;
        write_tensors(&self.0, tensors, path)
    }
    /// Writes the manifest, then deletes the states that are not in `kept`, and extracts that the manifest
    /// does not name.
    fn name_only(&self, manifest: &Manifest, kept: &[PathBuf]) -> Result<()> {
        self.write_manifest(manifest)?;
        let latest = manifest.latest.as_ref();
        let extracts = manifest.extract.iter().chain(latest.map(|latest| &latest.extract));
        let mut named: Vec<PathBuf> = extracts.map(|record| self.extract_file(record.checksum)).collect();
        named.extend(latest.map(|latest| self.latest_file(latest.checksum)));
        named.extend(manifest.by_plan.files(self));
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let named = kept.contains(&path) || named.contains(&path);
            let older = path.extension().is_some_and(|e| e == "safetensors") && !named;
            if older {
                let _ = fs::remove_file(path); // a file that remains is harmless
            }
        }
        Ok(())
    }
    /// Creates the folder.
    pub(super) fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.0).map_err(|e| Error::io(&self.0, "cannot create", e))
    }
    /// Writes the manifest, whose first entry is the checksum of all others. The files that it names must be
    /// complete.
    pub(super) fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let json = serde_json::to_string_pretty(manifest).map_err(|e| self.unwritable(e))?;
        let entries = json.strip_prefix("{\n").unwrap_or(&json);
        let text = format!("{SUMMED}{},\n{entries}", crc(entries.as_bytes()));
        write_synced(&self.manifest_file(), text.as_bytes())
    }
    /// Writes an extract, which no manifest names yet. Returns its checksum.
    pub(in crate::task) fn write_extract(&self, extract: &Extract) -> Result<u32> {
        let bytes = extract.serialized()?;
        self.create()?;
        let sum = crc(&bytes);
        write_synced(&self.extract_file(sum), &bytes)?;
        Ok(sum)
    }
    pub(super) fn manifest_file(&self) -> PathBuf {
        self.0.join("manifest.json")
    }
    /// Returns the file of the extract with this checksum, which is in the name for the same reason as in
    /// [`best_file`](Self::best_file).
    pub(super) fn extract_file(&self, sum: u32) -> PathBuf {
        self.0.join(format!("extract-{sum:08x}.safetensors"))
    }
    /// Returns the file of a copy of the node memory with this checksum.
    pub(super) fn copy_file(&self, copy: usize, sum: u32) -> PathBuf {
        self.0.join(format!("copy-{copy}-{sum:08x}.safetensors"))
    }
    fn file(&self, epoch: usize) -> PathBuf {
        self.0.join(format!("epoch-{epoch}.safetensors"))
    }
    /// Returns the file of the best epoch, or of the state after a stream.
    fn best_file(&self, manifest: &Manifest) -> PathBuf {
        match &manifest.stream {
            // The checksum in the name keeps a new file from replacing the one that the manifest still names.
            Some(_) => stream_file(&self.0)(manifest.checksums[1]),
            None => self.file(manifest.best_epoch),
        }
    }
    /// Returns the file of the settled model with this checksum, which is in the name for the same reason as
    /// in [`best_file`](Self::best_file).
    fn settled_file(&self, sum: u32) -> PathBuf {
        self.0.join(format!("settled-{sum:08x}.safetensors"))
    }
    /// Returns the file of the state after the last event with this checksum, which is in the name for the
    /// same reason as in [`best_file`](Self::best_file).
    fn latest_file(&self, sum: u32) -> PathBuf {
        self.0.join(format!("latest-{sum:08x}.safetensors"))
    }
    /// Returns whether the folder holds a checkpoint.
    pub fn exists(&self) -> bool {
        self.manifest_file().exists()
    }
    pub(super) fn unwritable(&self, e: impl std::error::Error + Send + Sync + 'static) -> Error {
        bad(&self.0, "cannot write the checkpoint").caused_by(e)
    }
    /// Reads the manifest. One without a checksum of its own is of an earlier version, or was written by
    /// other means. A model of events from before `history` and `eval_batch` existed has the rules under
    /// which it was trained: neighbours of earlier batches, and the batch of training.
    ///
    /// # Errors
    /// `Checkpoint` if there is no manifest, it is damaged, or it has another schema.
    pub fn manifest(&self) -> Result<Manifest> {
        let path = self.manifest_file();
        if !path.exists() {
            return Err(
                bad(&path, "there is no checkpoint here").remedy("give the folder that `train --out` wrote")
            );
        }
        let text = read_text(&path)?;
        if let Some((sum, entries)) = text.strip_prefix(SUMMED).and_then(|rest| rest.split_once(",\n"))
            && sum.parse() != Ok(crc(entries.as_bytes()))
        {
            return Err(bad(&path, "the manifest is damaged: it does not have its own checksum")
                .remedy(format!("{USE_A_COPY}; or delete its line 2, if you have changed it")));
        }
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
            #[serde(default)]
            config: serde_json::Map<String, serde_json::Value>,
        }
        let schema: Schema = serde_json::from_str(&text)
            .map_err(|e| bad(&path, "the manifest is damaged").caused_by(e).remedy(USE_A_COPY))?;
        if schema.schema != SCHEMA {
            let age = if schema.schema > SCHEMA { "a newer" } else { "an older" };
            let found = format!("the checkpoint has schema {} and was written by {age} build", schema.schema);
            return Err(
                bad(&path, format!("{found}, this one reads {SCHEMA}")).remedy("use the build that wrote it")
            );
        }
        let mut manifest: Manifest = serde_json::from_str(&text).map_err(|e| {
            // A newer build may have added keys without a new schema.
            let newer = if e.is_data() { ", or written by a newer build" } else { "" };
            bad(&path, format!("the manifest is damaged{newer}")).caused_by(e).remedy(USE_A_COPY)
        })?;
        if !schema.config.contains_key("history") {
            manifest.config.evaluate_as_before();
        }
        Ok(manifest)
    }
    /// Returns the manifest of a run that starts: this build's schema, and no epochs yet.
    pub fn describe(config: &Config, data: &DataRecord) -> Manifest {
        let config = config.clone();
        Manifest {
            schema: SCHEMA,
            epochs: 0,
            best_epoch: 0,
            best_score: None,
            data: data.sizes(),
            fingerprint: data.fingerprint,
            checksums: [0; 2],
            settled: None,
            config,
            columns: Some(data.columns.clone()),
            classes: None,
            by_plan: PlanManifest::default(),
            start: None,
            stream: None,
            extract: None,
            latest: None,
        }
    }
    /// Loads `buffers` from the file of the best epoch if `best`, else of the last one. Changes nothing
    /// unless all buffers fit.
    ///
    /// # Errors
    /// `Checkpoint` if the file is truncated, was changed, or belongs to another model.
    pub fn load(&self, store: &mut Store, buffers: &[BufferId], best: bool) -> Result<()> {
        let manifest = self.of_training()?;
        let path = self.file(if best { manifest.best_epoch } else { manifest.epochs });
        self.read(&path, manifest.checksums[usize::from(best)], store, &whole(store, buffers))
    }
    /// Loads `buffers` from the file of the settled model, or of the best epoch if the model has not settled.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn load_settled(&self, store: &mut Store, buffers: &[BufferId]) -> Result<()> {
        match self.of_training()?.settled {
            Some(sum) => self.read(&self.settled_file(sum), sum, store, &whole(store, buffers)),
            None => self.load(store, buffers, true),
        }
    }
    /// Reads the manifest of a training run.
    fn of_training(&self) -> Result<Manifest> {
        let manifest = self.manifest()?;
        if manifest.stream.is_some() {
            return Err(bad(&self.0, "the checkpoint was saved after a stream")
                .remedy("go on with `predict`, or give the checkpoint of the training run"));
        }
        Ok(manifest)
    }
    /// Loads the first rows of each buffer from the file of the best epoch, or of the state after a stream.
    /// The file must hold exactly the given number of rows. Changes nothing unless all buffers fit.
    pub(in crate::task) fn load_rows(&self, store: &mut Store, buffers: &[(BufferId, usize)]) -> Result<()> {
        let manifest = self.manifest()?;
        self.read(&self.best_file(&manifest), manifest.checksums[1], store, buffers)
    }
    /// Loads the first rows of each buffer from the file of the state after the last event, as
    /// [`load_rows`](Self::load_rows) does.
    pub(in crate::task) fn load_latest(
        &self,
        store: &mut Store,
        buffers: &[(BufferId, usize)],
        latest: &LatestRecord,
    ) -> Result<()> {
        self.read(&self.latest_file(latest.checksum), latest.checksum, store, buffers)
    }
    /// Loads the given number of rows of each buffer from `path`, which must have the checksum `sum`.
    fn read(&self, path: &Path, sum: u32, store: &mut Store, buffers: &[(BufferId, usize)]) -> Result<()> {
        let mut file = TensorFile::open(path, sum)?;
        for &(id, rows) in buffers {
            let (name, cols, dtype) = (store.name(id), store.spec(id).cols, dtype_of(store, id));
            let info = file.info(name).ok_or_else(|| {
                bad(path, format!("`{name}` is missing")).remedy("the checkpoint is of another model")
            })?;
            if info.dtype != dtype || info.shape != [rows, cols] {
                let found = format!("`{name}` is {:?} {:?}", info.dtype, info.shape);
                return Err(bad(path, format!("{found}, want {dtype:?} [{rows}, {cols}]"))
                    .remedy("the checkpoint is of other sizes or other data"));
            }
        }
        for &(id, rows) in buffers {
            let bytes = Spec { rows: Rows::fixed(rows), ..store.spec(id) }.bytes(store.precision());
            let name = store.name(id).to_owned();
            file.read(&name, &mut store.raw_mut(id)?[..bytes])?;
        }
        Ok(())
    }
}

/// Returns the path of the state after a stream, by its checksum.
fn stream_file(folder: &Path) -> impl Fn(u32) -> PathBuf + '_ {
    move |sum| folder.join(format!("stream-{sum:08x}.safetensors"))
}

/// Returns the given number of rows of each buffer.
pub(in crate::task) fn tensors<'a>(
    store: &'a Store,
    buffers: &[(BufferId, usize)],
) -> Result<Vec<Tensor<'a>>> {
    let tensor = |&(id, rows): &(BufferId, usize)| {
        let spec = store.spec(id);
        let bytes = rows * spec.cols * spec.dtype.size(store.precision());
        Ok((store.name(id), dtype_of(store, id), vec![rows, spec.cols], &store.raw(id)?[..bytes]))
    };
    buffers.iter().map(tensor).collect()
}

/// Pairs each buffer with its number of rows.
fn whole(store: &Store, buffers: &[BufferId]) -> Vec<(BufferId, usize)> {
    buffers.iter().map(|&id| (id, store.spec(id).rows.capacity)).collect()
}
