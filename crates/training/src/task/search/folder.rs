//! The folder of a trial: a run folder, with the file of the keys that the run was started with.
use super::Trial;
use crate::task::{
    comparison::FinishedRun,
    config::{
        Config,
        table::{keys_of, text_of},
    },
    training::{
        Checkpoint, DataRecord,
        folder::{TRIAL, is_free, read_text, write_whole},
    },
};
use indexmap::{IndexMap, map::Entry};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, ErrorKind, Result};
use tgnn_data::text::toml_error;
use toml::{Table, Value};

/// Longer names are cut.
const MOST_CHARS: usize = 120;

/// Returns the name of the folder of a trial: its settings and its seed.
pub(super) fn name(settings: &IndexMap<String, Value>, seed: u64) -> String {
    let seed = Value::Integer(seed as i64);
    let all = settings.iter().map(|(key, value)| (key.as_str(), value)).chain([("seed", &seed)]);
    let exact = all.map(|(key, value)| format!("{key}={}", text_of(value))).collect::<Vec<_>>().join(",");
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-=,:".contains(c);
    let name: String = exact.chars().map(|c| if plain(c) { c } else { '_' }).take(MOST_CHARS).collect();
    // Two trials must not share a folder because their names are cut or changed alike.
    if name == exact { name } else { format!("{name}-{:08x}", crc32fast::hash(exact.as_bytes())) }
}

/// How far a trial has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has no epoch yet.
    New,
    /// It can be resumed.
    Begun,
    /// It has ended.
    Finished,
}

impl Trial {
    /// Returns how far the trial has come in the folder `dir`.
    ///
    /// # Errors
    /// `Usage` if the folder holds something else, or the same settings over another base; `Checkpoint` if
    /// its file is damaged.
    pub fn progress(&self, dir: &Path) -> Result<Progress> {
        let path = dir.join(TRIAL);
        if !path.exists() {
            return if is_free(dir) {
                Ok(Progress::New)
            } else {
                Err(other(dir, "it is not a trial's folder"))
            };
        }
        let text = read_text(&path)?;
        let known: Table = toml::from_str(&text).map_err(|e| {
            let e = toml_error(&e, &text);
            let (line, column) = e.position().unwrap_or_default();
            let damaged = Error::new(ErrorKind::Checkpoint, "the file is damaged").in_file(&path);
            damaged.at(line, column).caused_by(e).remedy("remove the folder: the trial runs again")
        })?;
        let (mut known, mut ours) = (keys_of(&known), keys_of(&self.table));
        // The same data may have another path: see [`SweepData`].
        for keys in [&mut known, &mut ours] {
            keys.shift_remove("data.path");
        }
        if let Some(key) = known.keys().chain(ours.keys()).find(|key| known.get(*key) != ours.get(*key)) {
            let [before, now] = [&known, &ours].map(|keys| keys.get(key).map_or("not set".into(), text_of));
            return Err(other(dir, &format!("{key} was {before} there, and is {now} here")));
        }
        if FinishedRun::read(dir).is_ok() {
            return Ok(Progress::Finished);
        }
        let begun = Checkpoint::at(dir.join("checkpoint")).exists();
        Ok(if begun { Progress::Begun } else { Progress::New })
    }
    /// Makes the folder `dir` ready for a trial that has no epoch yet. Returns the file of its keys.
    ///
    /// # Errors
    /// `Io`.
    pub fn prepare(&self, dir: &Path) -> Result<PathBuf> {
        fs::create_dir_all(dir).map_err(|e| Error::io(dir, "cannot create", e))?;
        // A run that ended before its first checkpoint has left these.
        for name in ["config.toml", "metrics.jsonl"] {
            match fs::remove_file(dir.join(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(dir.join(name), "cannot remove", e));
                }
                _ => {}
            }
        }
        let text = toml::to_string(&self.table)
            .map_err(|e| Error::new(ErrorKind::Io, "cannot write a trial's keys").caused_by(e))?;
        let path = dir.join(TRIAL);
        write_whole(&path, text.as_bytes())?;
        Ok(path)
    }
}

/// The data of a sweep that goes on, by which it recognises those of the runs that have ended.
#[derive(Debug, Default)]
pub struct SweepData {
    /// What was loaded, by what decides how it is read.
    loaded: IndexMap<String, DataRecord>,
}

impl SweepData {
    /// Checks that a run was on the data that the configuration of its trial names now. They are loaded for
    /// that, unless no trial follows (`goes_on`) and their path is the same.
    ///
    /// # Errors
    /// `Usage` if they are others; those of loading them.
    pub fn check(&mut self, run: &FinishedRun, now: &Config, goes_on: bool) -> Result<()> {
        let (before, now) = (&run.config.data.path, &now.data.path);
        if !goes_on && same_place(before, now) {
            return Ok(());
        }
        let mut config = run.config.clone();
        config.data.path.clone_from(now);
        let Some(what) = self.record(config)?.differs(&run.summary.data, run.config.task) else {
            return Ok(());
        };
        Err(other(&run.path, &format!("it was trained on {before}, and {now} has other data: {what}")))
    }
    /// Returns the record of the data of a configuration, without random features.
    fn record(&mut self, mut c: Config) -> Result<&DataRecord> {
        c.data.random_edge_features = 0;
        let snapshots = c.model.reads_snapshots().then_some(&c.snapshots);
        Ok(match self.loaded.entry(format!("{:?} {snapshots:?}", c.data)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read(&c)?),
        })
    }
}

/// Reads the data of a configuration.
fn read(c: &Config) -> Result<DataRecord> {
    Ok(match c.model.reads_snapshots() {
        true => DataRecord::of_snapshots(&c.load_snapshots()?),
        false => DataRecord::of_events(&c.load()?),
    })
}

/// Whether two paths are the same, or lead to the same place.
fn same_place(a: &str, b: &str) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Returns the error about a folder that does not belong to a trial.
fn other(dir: &Path, why: &str) -> Error {
    Error::usage(format!("{} is of another sweep: {why}", dir.display()))
        .remedy("give the flags of that sweep, or another --out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{config::table::value_of, search::Space};

    fn trial(base: &str) -> Trial {
        let mut space = Space::default();
        space.add_grid("tgn.layers", vec![value_of("1")]).unwrap();
        space.trials(&toml::from_str(base).unwrap()).unwrap().remove(0)
    }

    #[test]
    fn a_trial_knows_its_folder_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trial_here = trial("batch = 100");
        assert_eq!(trial_here.progress(&path).unwrap(), Progress::New);
        trial_here.prepare(&path).unwrap();
        fs::write(path.join("metrics.jsonl"), "cut").unwrap();
        assert_eq!(trial_here.progress(&path).unwrap(), Progress::New);
        trial_here.prepare(&path).unwrap();
        assert!(!path.join("metrics.jsonl").exists());
        for (base, said) in [
            ("batch = 200", "batch was 100 there, and is 200 here"),
            ("", "batch was 100 there, and is not set here"),
            ("batch = 100\nepochs = 3", "epochs was not set there, and is 3 here"),
        ] {
            let e = trial(base).progress(&path).unwrap_err().to_string();
            assert!(e.contains("t is of another sweep: ") && e.contains(said), "{said} in {e}");
        }
        fs::remove_file(path.join(TRIAL)).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let e = trial_here.progress(&path).unwrap_err().to_string();
        assert!(e.contains("it is not a trial's folder"), "{e}");
    }

    #[test]
    fn names_that_are_cut_or_changed_differ_all_the_same() {
        let named = |value: &str| {
            let settings = [("plan".to_owned(), Value::String(value.into()))].into_iter().collect();
            name(&settings, 3)
        };
        assert_eq!(named("mspipe:k=2"), "plan=mspipe:k=2,seed=3");
        assert!(named("a/b").starts_with("plan=a_b,seed=3-") && named("a/b") != named("a\\b"));
        let long = "x".repeat(300);
        assert!(named(&long).len() < 140 && named(&long) != named(&format!("{long}y")));
    }
}
