//! Writing a folder of `.npy`: all of it, or nothing.
use super::{Info, SCHEMA, is_native};
use crate::{
    data::{Classes, Events, Features, GivenNegatives, Part, npy},
    error::{Error, Result},
    runtime::StoredAs,
};
use half::{bf16, f16};
use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

/// Writes `events` to the folder `dir`, which [`load`](crate::data::load) reads back equal.
///
/// Everything is written to a folder beside `dir` and moved in place when complete, so that `dir` is never half
/// written, whatever fails. With `force`, a data set in `dir` is replaced; anything else is left alone.
///
/// # Errors
/// Usage if `dir` exists and is not empty (with `force`: and is no data set); data if `events` break a promise;
/// io if the disk refuses.
pub fn save(events: &Events, dir: impl AsRef<Path>, force: bool) -> Result<()> {
    save_with_negatives(events, &[None, None], dir, force)
}

/// As [`save`], with the negatives of the validation and of the test part, where there are any.
///
/// # Errors
/// Those of [`save`].
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
    if let Some(ids) = &events.ids {
        folder.ids(ids.original())?;
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
        classes: events.classes.as_ref().map(Classes::count),
        ticks_per_second: events.ticks_per_second,
        origin: events.origin,
        notes: events.notes.clone(),
        ..Info::default()
    })
}

/// What must be known before the first event is written.
pub(in crate::data) struct Shape {
    pub events: usize,
    pub labelled: bool,
    /// Room for the largest set of classes; 0 for no sets.
    pub labels: usize,
    /// Of edge features that are written piece by piece; 0 for none.
    pub edge_width: usize,
}

/// A folder in the making, whose arrays are written piece by piece.
pub(in crate::data) struct FolderWriter {
    staging: Staging,
    pub src: npy::Writer<u32>,
    pub dst: npy::Writer<u32>,
    pub time: npy::Writer<i64>,
    pub label: Option<npy::Writer<f32>>,
    pub classes: Option<npy::Writer<u32>>,
    pub edge_features: Option<npy::Writer<f32>>,
}

impl FolderWriter {
    pub(in crate::data) fn create(dir: &Path, force: bool, shape: &Shape) -> Result<Self> {
        let staging = Staging::create(dir, force, is_native)?;
        let at = |file: &str| staging.temporary.join(file);
        let n = shape.events;
        Ok(FolderWriter {
            src: npy::Writer::create(at("src.npy"), &[n])?,
            dst: npy::Writer::create(at("dst.npy"), &[n])?,
            time: npy::Writer::create(at("time.npy"), &[n])?,
            label: shape.labelled.then(|| npy::Writer::create(at("label.npy"), &[n])).transpose()?,
            classes: (shape.labels > 0)
                .then(|| npy::Writer::create(at("classes.npy"), &[n, shape.labels]))
                .transpose()?,
            edge_features: (shape.edge_width > 0)
                .then(|| npy::Writer::create(at("edge_features.npy"), &[n, shape.edge_width]))
                .transpose()?,
            staging,
        })
    }

    /// Features as they are kept.
    pub(in crate::data) fn features(&self, file: &str, features: &Features) -> Result<()> {
        let (path, shape) = (self.staging.temporary.join(file), [features.rows(), features.cols()]);
        match features.kept() {
            StoredAs::F32 => npy::write(path, &shape, features.values()),
            StoredAs::Bf16 => npy::write::<bf16>(path, &shape, bytemuck::cast_slice(features.bytes())),
            StoredAs::F16 => npy::write::<f16>(path, &shape, bytemuck::cast_slice(features.bytes())),
        }
    }

    fn ids(&self, ids: &[u64]) -> Result<()> {
        npy::write(self.staging.temporary.join("ids.npy"), &[ids.len()], ids)?;
        let path = self.staging.temporary.join("ids.csv");
        let text = || {
            let mut file = BufWriter::new(fs::File::create_new(&path)?);
            writeln!(file, "node,id")?;
            ids.iter().enumerate().try_for_each(|(node, id)| writeln!(file, "{node},{id}"))?;
            file.flush()
        };
        text().map_err(|e| Error::io(&path, "cannot write", e))
    }

    /// A row per event, filled up with -1.
    fn negatives(&self, part: Part, given: &GivenNegatives) -> Result<()> {
        let path = self.staging.temporary.join(part.file());
        let width = given.most();
        let mut file = npy::Writer::<i32>::create(path.clone(), &[given.events(), width])?;
        for event in given.first..given.first + given.events() {
            let nodes = given.of(event).iter().map(|&node| i32::try_from(node));
            let mut row = nodes.collect::<Result<Vec<_>, _>>().map_err(|_| {
                Error::data(&path, "a negative has a number of 2^31 or more").remedy("import fewer nodes")
            })?;
            row.resize(width, -1);
            file.extend(&row)?;
        }
        file.finish()
    }

    /// Closes the arrays, writes `info.json` and moves the folder in place.
    pub(in crate::data) fn finish(self, mut info: Info) -> Result<()> {
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

/// A temporary folder beside its target; removed unless it is committed.
pub(in crate::data) struct Staging {
    /// Where files are written.
    pub temporary: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// Fails where there is something in `target` already, unless `force`, and it is what `is_data_set` says.
    pub(in crate::data) fn create(
        target: &Path,
        force: bool,
        is_data_set: impl Fn(&Path) -> bool,
    ) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| {
            Error::usage(format!("`{}` is no name for a folder", target.display()))
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
            // A mistyped path must not cost a user more than a data set.
            return Err(Error::usage(format!("{} holds something else than a data set", target.display()))
                .remedy("name another folder; --force replaces data sets only"));
        }
        let beside = |what: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{what}-{}", std::process::id()));
            target.with_file_name(hidden)
        };
        let temporary = beside("partial");
        fs::create_dir_all(target.parent().unwrap_or(Path::new("")))
            .and_then(|()| fs::create_dir(&temporary))
            .map_err(|e| Error::io(&temporary, "cannot create", e))?;
        Ok(Staging { temporary, target: target.to_owned() })
    }

    /// Moves the folder in place.
    pub(in crate::data) fn commit(self) -> Result<()> {
        let old = self.temporary.with_extension("old");
        let moved = || {
            // An existing target steps aside first: a folder cannot be moved over another.
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
        moved().map_err(|e| Error::io(&self.target, "cannot move the finished folder in place", e))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a commit there is nothing left to remove, and a failure here has no one to tell.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
