//! The folder of a trial: a run folder, with the file of the keys that the run was started with.
use super::Trial;
use crate::{
    data::text::toml_error,
    error::{Error, ErrorKind, Result},
    task::{
        comparison::FinishedRun,
        config::table::{keys_of, text_of},
        training::{
            Checkpoint,
            folder::{TRIAL, write_whole},
        },
    },
};
use indexmap::IndexMap;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
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
    /// `Usage` if the folder holds something else, or the same settings over another base; `Io`.
    pub fn progress(&self, dir: &Path) -> Result<Progress> {
        let path = dir.join(TRIAL);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let empty = fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
                return if empty { Ok(Progress::New) } else { Err(other(dir, "it is not a trial's folder")) };
            }
            Err(e) => return Err(Error::io(&path, "cannot read", e)),
        };
        let known: Table = toml::from_str(&text).map_err(|e| toml_error(&e, &text).in_file(&path))?;
        let (known, ours) = (keys_of(&known), keys_of(&self.table));
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
