//! Atomic writer of a folder of `.npy` files: it writes the whole folder or nothing.
use super::{Info, SCHEMA, is_native, node_labels};
use crate::{Classes, Events, Features, GivenNegatives, Ids, NodeLabels, Part, npy};
use half::{bf16, f16};
use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};
use tgnn::{
    error::{Error, Result},
    runtime::StoredAs,
};

/// Writes `events` to the folder `dir`, from which [`load`](crate::load) reads equal events.
///
/// The files are written to a temporary folder beside `dir`, which is moved in place when complete. `dir` is
/// therefore never partially written, even after a failure. With `force`, a data set in `dir` is replaced;
/// other folders are never replaced.
///
/// # Errors
/// Usage if `dir` exists and is not empty (with `force`: and is not a data set); data if `events` are not
/// valid ([`Events::validate`]); io if writing fails.
pub fn save(events: &Events, dir: impl AsRef<Path>, force: bool) -> Result<()> {
    save_with_negatives(events, &[None, None], dir, force)
}

/// Writes `events` as [`save`] does, and the given negatives of the validation and test parts.
///
/// # Errors
/// Those of [`save`]; data if a negative's node number is 2^31 or more.
pub fn save_with_negatives(
    events: &Events,
    negatives: &[Option<GivenNegatives>; 2],
    dir: impl AsRef<Path>,
    force: bool,
) -> Result<()> {
    let dir = dir.as_ref();
    events.validate(dir)?;
    let shape = Shape {
        events: events.len(),
        labelled: events.label.is_some(),
        labels: events.classes.as_ref().map_or(0, Classes::most),
        edge_width: 0,
    };
    let mut folder = FolderWriter::create(dir, force, &shape)?;
    folder.src.extend(&events.src)?;
    folder.dst.extend(&events.dst)?;
    folder.time.extend(&events.time)?;
    if let (Some(file), Some(label)) = (&mut folder.label, &events.label) {
        file.extend(label)?;
    }
    if let (Some(file), Some(classes)) = (&mut folder.classes, &events.classes) {
        file.extend(&classes.table())?;
    }
    if let Some(features) = &events.edge_features {
        folder.features("edge_features.npy", features)?;
    }
    if let Some(features) = &events.node_features {
        folder.features("node_features.npy", features)?;
    }
    if let Some(labels) = &events.node_labels {
        node_labels::write(&folder.staging.temporary, labels)?;
    }
    if let Some(ids) = &events.ids {
        folder.ids(ids)?;
    }
    for (part, given) in [Part::Val, Part::Test].into_iter().zip(negatives) {
        if let Some(given) = given {
            folder.negatives(part, given)?;
        }
    }
    folder.finish(Info {
        name: events.name.clone(),
        events: events.len(),
        nodes: events.nodes,
        first_destination: events.first_destination,
        label_names: events.label_names.as_deref().map(<[_]>::to_vec),
        classes: events.classes.as_ref().map(Classes::count),
        node_classes: events.node_labels.as_ref().map(NodeLabels::classes),
        ticks_per_second: events.ticks_per_second,
        origin: events.origin,
        time_format: events.time_format.clone(),
        encoding: events.encoding.clone(),
        lines: events.lines,
        feature_tables: events.tables.clone(),
        notes: events.notes.clone(),
        ..Info::default()
    })
}

/// The shapes of the arrays, which must be known before the first event is written.
pub(crate) struct Shape {
    /// Number of events.
    pub events: usize,
    /// Whether events have labels.
    pub labelled: bool,
    /// Maximum number of classes of an event; 0 for no sets of classes.
    pub labels: usize,
    /// Width of edge features that are written in chunks; 0 for none.
    pub edge_width: usize,
}

/// An incomplete folder whose arrays are written in chunks.
pub(crate) struct FolderWriter {
    staging: Staging,
    pub src: npy::Writer<u32>,
    pub dst: npy::Writer<u32>,
    pub time: npy::Writer<i64>,
    pub label: Option<npy::Writer<f32>>,
    pub classes: Option<npy::Writer<u32>>,
    pub edge_features: Option<npy::Writer<f32>>,
}

impl FolderWriter {
    /// Creates the temporary folder and its arrays; `dir` and `force` are those of [`save`].
    pub(crate) fn create(dir: &Path, force: bool, shape: &Shape) -> Result<Self> {
        let staging = Staging::create(dir, force, is_native)?;
        let path = |file: &str| staging.temporary.join(file);
        let n = shape.events;
        Ok(FolderWriter {
            src: npy::Writer::create(path("src.npy"), &[n])?,
            dst: npy::Writer::create(path("dst.npy"), &[n])?,
            time: npy::Writer::create(path("time.npy"), &[n])?,
            label: shape.labelled.then(|| npy::Writer::create(path("label.npy"), &[n])).transpose()?,
            classes: (shape.labels > 0)
                .then(|| npy::Writer::create(path("classes.npy"), &[n, shape.labels]))
                .transpose()?,
            edge_features: (shape.edge_width > 0)
                .then(|| npy::Writer::create(path("edge_features.npy"), &[n, shape.edge_width]))
                .transpose()?,
            staging,
        })
    }

    /// Writes features in their storage type.
    pub(crate) fn features(&self, file: &str, features: &Features) -> Result<()> {
        let (path, shape) = (self.staging.temporary.join(file), [features.rows(), features.cols()]);
        match features.kept() {
            StoredAs::F32 => npy::write(path, &shape, features.values()),
            StoredAs::Bf16 => npy::write::<bf16>(path, &shape, bytemuck::cast_slice(features.bytes())),
            StoredAs::F16 => npy::write::<f16>(path, &shape, bytemuck::cast_slice(features.bytes())),
        }
    }

    /// Writes the original ids: numbers as an array, text as JSON.
    fn ids(&self, ids: &Ids) -> Result<()> {
        if let Some(numbers) = ids.numbers() {
            return npy::write(self.staging.temporary.join("ids.npy"), &[ids.len()], numbers);
        }
        let path = self.staging.temporary.join("ids.json");
        let write = || {
            let mut file = BufWriter::new(fs::File::create_new(&path)?);
            serde_json::to_writer(&mut file, ids.names().unwrap_or_default())?;
            file.flush()
        };
        write().map_err(|e| Error::io(&path, "cannot write", e))
    }

    /// Writes the negatives of a part, one row per event, padded with -1.
    fn negatives(&self, part: Part, given: &GivenNegatives) -> Result<()> {
        let path = self.staging.temporary.join(part.file());
        let width = given.most();
        let mut file = npy::Writer::<i32>::create(path.clone(), &[given.events(), width])?;
        for event in given.first..given.first + given.events() {
            let nodes = given.get(event).iter().map(|&node| i32::try_from(node));
            let mut row = nodes.collect::<Result<Vec<_>, _>>().map_err(|_| {
                Error::data(&path, "a negative has a node number of 2^31 or more")
                    .remedy("import fewer nodes")
            })?;
            row.resize(width, -1);
            file.extend(&row)?;
        }
        file.finish()
    }

    /// Completes the arrays, writes `info.json` and moves the folder in place.
    pub(crate) fn finish(self, mut info: Info) -> Result<()> {
        self.src.finish()?;
        self.dst.finish()?;
        self.time.finish()?;
        self.label.map(npy::Writer::finish).transpose()?;
        self.classes.map(npy::Writer::finish).transpose()?;
        self.edge_features.map(npy::Writer::finish).transpose()?;
        info.schema = SCHEMA;
        info.written_by = concat!("tgnn ", env!("CARGO_PKG_VERSION")).into();
        let path = self.staging.temporary.join("info.json");
        serde_json::to_string_pretty(&info)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&path, text + "\n"))
            .map_err(|e| Error::io(&path, "cannot write", e))?;
        self.staging.commit()
    }
}

/// A temporary folder beside its target; it is removed on drop unless it was committed.
pub(crate) struct Staging {
    /// The temporary folder, to which files are written.
    pub temporary: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// Creates the temporary folder.
    pub(crate) fn create(target: &Path, force: bool, is_data_set: impl Fn(&Path) -> bool) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| {
            Error::usage(format!("`{}` is not a valid name for a folder", target.display()))
                .remedy("name a new folder")
        })?;
        let taken = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
            Err(e) => return Err(Error::io(target, "cannot use as a folder", e)),
        };
        if taken && !force {
            return Err(Error::usage(format!("{} exists and is not empty", target.display()))
                .remedy("name another folder, or replace it with --force"));
        }
        if taken && !is_data_set(target) {
            // A mistyped path must not delete anything but a data set.
            return Err(Error::usage(format!("{} is not a data set", target.display()))
                .remedy("name another folder; --force replaces data sets only"));
        }
        let hidden_sibling = |suffix: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{suffix}-{}", std::process::id()));
            target.with_file_name(hidden)
        };
        let temporary = hidden_sibling("partial");
        fs::create_dir_all(target.parent().unwrap_or(Path::new("")))
            .and_then(|()| fs::create_dir(&temporary))
            .map_err(|e| Error::io(&temporary, "cannot create", e))?;
        Ok(Staging { temporary, target: target.to_owned() })
    }

    /// Moves the folder in place.
    pub(crate) fn commit(self) -> Result<()> {
        let old = self.temporary.with_extension("old");
        let move_in_place = || {
            // A folder cannot be moved over another, so an existing target is renamed first.
            let replaced = self.target.exists();
            if replaced {
                fs::rename(&self.target, &old)?;
            }
            if let Err(e) = fs::rename(&self.temporary, &self.target) {
                if replaced {
                    fs::rename(&old, &self.target)?;
                }
                return Err(e);
            }
            if replaced { fs::remove_dir_all(&old) } else { Ok(()) }
        };
        move_in_place().map_err(|e| Error::io(&self.target, "cannot move the finished folder in place", e))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a commit the folder no longer exists; and an error cannot be reported from `drop`.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
