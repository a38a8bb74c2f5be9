//! Writing snapshots to a folder of edge lists, atomically.
use super::{
    Snapshots,
    folder::{FEATURES, MADE},
};
use crate::{native::Staging, npy};
use serde::Serialize;
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
};
use tgnn::error::{Error, Result};

/// Folder of snapshots that is being written; nothing is visible at its final path before
/// [`write`](Self::write).
pub(super) struct Ours(Staging);

impl Ours {
    /// Creates a temporary folder beside `dir`.
    pub(super) fn create(dir: &Path, force: bool) -> Result<Self> {
        Staging::create(dir, force, |dir| dir.join(MADE).is_file()).map(Ours)
    }

    /// Writes one file per step, named after its label, the features and `how` the snapshots were made; then
    /// moves the folder to its final path.
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

/// Writes the edges of a step, one `src dst` per line.
fn edges(path: &Path, s: &Snapshots, step: usize) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create_new(path)?);
    s.edges(step).try_for_each(|i| writeln!(file, "{} {}", s.src[i], s.dst[i]))?;
    file.flush()
}
