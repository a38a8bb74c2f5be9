//! Snapshots written to a folder of edge lists: all of it, or nothing.
use super::{Snapshots, folder::FEATURES};
use crate::{
    data::{native::Staging, npy},
    error::{Error, Result},
};
use serde::Serialize;
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
};

/// What a folder of ours has beside the edge lists: how they were made.
const MADE: &str = "snapshots.json";

/// A folder of snapshots that is being written.
pub(super) struct Ours(Staging);

impl Ours {
    /// Fails where there is something already, unless `force`, and it is such a folder.
    pub(super) fn create(dir: &Path, force: bool) -> Result<Self> {
        Staging::create(dir, force, |dir| dir.join(MADE).is_file()).map(Ours)
    }

    /// Writes a file a step, called as its label, and `how` they were made; moves the folder in place.
    pub(super) fn write(self, s: &Snapshots, how: &impl Serialize) -> Result<()> {
        for step in 0..s.len() {
            let path = self.0.temporary.join(format!("{}.txt", s.labels[step]));
            edges(&path, s, step).map_err(|e| Error::io(&path, "cannot write", e))?;
        }
        if let Some(f) = &s.features {
            npy::write(self.0.temporary.join(FEATURES), &[f.rows(), f.cols()], f.values())?;
        }
        let path = self.0.temporary.join(MADE);
        serde_json::to_string_pretty(how)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&path, text + "\n"))
            .map_err(|e| Error::io(&path, "cannot write", e))?;
        self.0.commit()
    }
}

fn edges(path: &Path, s: &Snapshots, step: usize) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create_new(path)?);
    s.edges(step).try_for_each(|i| writeln!(file, "{} {}", s.src[i], s.dst[i]))?;
    file.flush()
}
