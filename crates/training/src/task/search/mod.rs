//! The trials of a sweep: every combination of the values of a grid, and values drawn at random.
//!
//! A [`Space`] comes from flags or from a TOML file:
//!
//! ```toml
//! seeds = [1, 2, 3]
//! trials = 20
//! sweep_seed = 7
//! [grid]
//! tgn.layers = [1, 2]
//! [random]
//! learning_rate = "log:1e-5..1e-2"
//! batch = "100..1000"
//! model = ["tgn", "jodie"]
//! ```
mod draw;
mod folder;
mod jobs;
mod values;

pub use draw::Draw;
pub use folder::{Progress, SweepData};
pub use jobs::jobs;
pub use values::values;

use crate::task::config::{
    Config,
    table::{keys_of, set_key, text_of},
};
use indexmap::IndexMap;
use serde::Deserialize;
use std::path::Path;
use tgnn::error::{Error, Result};
use tgnn_data::text::toml_error;
use toml::{Table, Value};

/// More trials than this are taken for a mistake.
const MOST_TRIALS: usize = 10_000;

/// What a sweep tries.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Keys of the configuration with the values of which every combination is tried.
    pub grid: IndexMap<String, Vec<Value>>,
    /// Keys whose values are drawn.
    pub random: IndexMap<String, Draw>,
    /// How many times they are drawn; every draw is combined with the whole grid.
    pub trials: usize,
    /// Seeds of the runs of every combination; none: the seed of the base.
    pub seeds: Vec<u64>,
    /// Seed of the draws.
    pub sweep_seed: u64,
}

impl Default for Space {
    fn default() -> Self {
        Space { grid: IndexMap::new(), random: IndexMap::new(), trials: 10, seeds: Vec::new(), sweep_seed: 1 }
    }
}

/// A run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Name of its folder: its settings and its seed.
    pub name: String,
    /// The keys that the sweep sets, without the seed.
    pub settings: IndexMap<String, Value>,
    /// The seed.
    pub seed: u64,
    /// All keys that the run is started with; the others have their defaults.
    pub table: Table,
}

/// The file of a space.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    grid: Table,
    random: Table,
    trials: Option<usize>,
    seeds: Option<Seeds>,
    sweep_seed: Option<u64>,
}

/// Seeds in the file of a space: how many, or which.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seeds {
    Number(u64),
    List(Vec<u64>),
}

/// Returns the seeds 1 to `number`.
///
/// # Errors
/// `Usage` if these are none, or too many.
pub fn seeds(number: u64) -> Result<Vec<u64>> {
    match number {
        0 => Err(Error::usage("these are no seeds").remedy("give how many, as in 5, or which, as in 1,2,3")),
        _ if number > MOST_TRIALS as u64 => {
            Err(Error::usage(format!("these are {number} seeds, and {MOST_TRIALS} are the most"))
                .remedy("give how many, as in 5; a single seed is --seed"))
        }
        _ => Ok((1..=number).collect()),
    }
}

impl Space {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// `Io`; `Usage`, with the place or the key, for a mistake.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        let read = || -> Result<Self> {
            let file: File = toml::from_str(&text).map_err(|e| toml_error(&e, &text))?;
            let mut space = Space::default();
            for (key, value) in keys_of(&file.grid) {
                let list = match value {
                    Value::Array(list) => list,
                    value => vec![value],
                };
                space.add_grid(&key, list)?;
            }
            for (key, value) in keys_of(&file.random) {
                space.add_random(&key, Draw::of_value(&key, &value)?)?;
            }
            space.trials = file.trials.unwrap_or(space.trials);
            space.seeds = match file.seeds {
                Some(Seeds::Number(number)) => seeds(number)?,
                Some(Seeds::List(list)) => list,
                None => space.seeds,
            };
            space.sweep_seed = file.sweep_seed.unwrap_or(space.sweep_seed);
            Ok(space)
        };
        read().map_err(|e| e.in_file(path))
    }
    /// Adds the values of a key to the grid; values that the key had before are replaced.
    ///
    /// # Errors
    /// `Usage` if there is no value, one is there twice, or the key is drawn, too.
    pub fn add_grid(&mut self, key: &str, values: Vec<Value>) -> Result<()> {
        check_key(key)?;
        if values.is_empty() {
            return Err(Error::usage(format!("the grid of {key} has no value"))
                .remedy("give some, as in --grid tgn.layers=1,2"));
        }
        let twice = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value));
        if let Some((_, value)) = twice {
            return Err(Error::usage(format!("the grid of {key} has {} twice", text_of(value)))
                .remedy("give every value once"));
        }
        if self.random.contains_key(key) {
            return Err(both(key));
        }
        self.grid.insert(key.to_owned(), values);
        Ok(())
    }
    /// Lets a key be drawn; how it was drawn before is replaced.
    ///
    /// # Errors
    /// `Usage` if the key is in the grid, too.
    pub fn add_random(&mut self, key: &str, draw: Draw) -> Result<()> {
        check_key(key)?;
        if self.grid.contains_key(key) {
            return Err(both(key));
        }
        self.random.insert(key.to_owned(), draw);
        Ok(())
    }
    /// Returns the trials over the keys of `base`, all seeds of a combination one after another.
    ///
    /// # Errors
    /// `Usage`, with the key, for a key or value that the configuration does not know, for too many trials,
    /// and for a seed that is there twice.
    pub fn trials(&self, base: &Table) -> Result<Vec<Trial>> {
        let mut seeds = self.seeds.clone();
        if seeds.is_empty() {
            seeds.push(Config::of_table(base)?.seed);
        }
        self.check(base, &seeds)?;
        let mut combinations: Vec<IndexMap<String, Value>> = vec![IndexMap::new()];
        for (key, values) in &self.grid {
            let with = |c: &IndexMap<String, Value>, value: &Value| {
                let mut c = c.clone();
                c.insert(key.clone(), value.clone());
                c
            };
            combinations =
                combinations.iter().flat_map(|c| values.iter().map(move |value| with(c, value))).collect();
        }
        if !self.random.is_empty() {
            let drawn = |i: usize, c: &IndexMap<String, Value>| {
                let mut c = c.clone();
                let draws = self.random.iter();
                c.extend(draws.map(|(key, draw)| (key.clone(), draw.value(key, self.sweep_seed, i as u32))));
                c
            };
            let all = (0..self.trials).flat_map(|i| combinations.iter().map(move |c| drawn(i, c)));
            let mut found: Vec<IndexMap<String, Value>> = Vec::new();
            for combination in all.collect::<Vec<_>>() {
                // Draws from few values repeat.
                if !found.contains(&combination) {
                    found.push(combination);
                }
            }
            combinations = found;
        }
        let trials = combinations.iter().flat_map(|c| seeds.iter().map(move |&seed| (c, seed)));
        trials.map(|(settings, seed)| Trial::new(base, settings, seed)).collect()
    }
    /// Checks what can be checked before the trials are made.
    fn check(&self, base: &Table, seeds: &[u64]) -> Result<()> {
        let number = |n: usize, values: &Vec<Value>| n.saturating_mul(values.len());
        let draws = if self.random.is_empty() { 1 } else { self.trials };
        let most = self.grid.values().fold(draws.saturating_mul(seeds.len()), number);
        if most > MOST_TRIALS {
            return Err(Error::usage(format!("these are {most} trials, and {MOST_TRIALS} are the most"))
                .remedy("give fewer values, or draw some with --random"));
        }
        if most == 0 {
            return Err(Error::usage("there is no trial").remedy("give --trials 1 or more"));
        }
        let twice = seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed));
        if let Some((_, seed)) = twice {
            return Err(Error::usage(format!("seed {seed} is given twice")).remedy("give every seed once"));
        }
        let random =
            self.random.iter().flat_map(|(key, draw)| draw.ends().into_iter().map(move |v| (key, v)));
        let grid = self.grid.iter().flat_map(|(key, values)| values.iter().map(move |v| (key, v.clone())));
        grid.chain(random).try_for_each(|(key, value)| {
            let mut table = base.clone();
            set_key(&mut table, key, value.clone())?;
            let wrong = |e: Error| Error::usage(format!("{key}={}: {e}", text_of(&value)));
            Config::of_table(&table).map(drop).map_err(wrong)
        })
    }
}

impl Trial {
    fn new(base: &Table, settings: &IndexMap<String, Value>, seed: u64) -> Result<Self> {
        let mut table = base.clone();
        for (key, value) in settings {
            set_key(&mut table, key, value.clone())?;
        }
        let large = |_| {
            Error::usage(format!("seed {seed} is too large")).remedy(format!("give at most {}", i64::MAX))
        };
        set_key(&mut table, "seed", Value::Integer(seed.try_into().map_err(large)?))?;
        let name = folder::name(settings, seed);
        let config = Config::of_table(&table)?;
        config.validate().map_err(|e| Error::usage(format!("{name}: {e}")))?;
        Ok(Trial { name, settings: settings.clone(), seed, table })
    }
}

/// Refuses keys that a sweep sets itself.
fn check_key(key: &str) -> Result<()> {
    match key {
        "seed" => Err(Error::usage("seed is not a key of a sweep").remedy("give --seeds 1,2,3")),
        _ => Ok(()),
    }
}

fn both(key: &str) -> Error {
    Error::usage(format!("{key} is in the grid, and drawn at random")).remedy("leave out one of them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::config::table::value_of;

    fn list(text: &str) -> Vec<Value> {
        text.split(',').map(value_of).collect()
    }

    fn names(space: &Space) -> Vec<String> {
        space.trials(&Table::new()).unwrap().into_iter().map(|trial| trial.name).collect()
    }

    #[test]
    fn a_grid_has_every_combination_with_every_seed() {
        let mut space = Space { seeds: vec![1, 2], ..Space::default() };
        space.add_grid("learning_rate", list("0.1,1e-4")).unwrap();
        space.add_grid("tgn.layers", list("1,2")).unwrap();
        let names = names(&space);
        assert_eq!(names.len(), 8);
        assert_eq!(names[0], "learning_rate=0.1,tgn.layers=1,seed=1");
        assert_eq!(names[7], "learning_rate=0.0001,tgn.layers=2,seed=2");
        let trials = space.trials(&Table::new()).unwrap();
        let base = toml::from_str("seed = 5").unwrap();
        assert_eq!(Space::default().trials(&base).unwrap()[0].name, "seed=5");
        let config = Config::of_table(&trials[7].table).unwrap();
        assert_eq!((config.learning_rate, config.tgn.layers, config.seed), (1e-4, 2, 2));
    }

    #[test]
    fn draws_depend_on_the_seed_alone_and_more_trials_go_on() {
        let mut space = Space { trials: 5, sweep_seed: 7, ..Space::default() };
        space.add_random("learning_rate", Draw::parse("learning_rate", "log:1e-5..1e-2").unwrap()).unwrap();
        space.add_random("batch", Draw::parse("batch", "100..1000").unwrap()).unwrap();
        let few = names(&space);
        let many = names(&Space { trials: 9, ..space.clone() });
        assert_eq!((few.len(), many.len()), (5, 9));
        assert_eq!(few, many[..5]);
        assert_ne!(few, names(&Space { sweep_seed: 8, ..space }));
    }

    #[test]
    fn a_space_of_a_file_is_that_of_the_flags() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("space.toml");
        let text = "seeds = [3, 4]\ntrials = 2\nsweep_seed = 9\n[grid]\ntgn.layers = [1, 2]\nplan = \"prefetch\"\n\
                    [random]\nlearning_rate = \"log:1e-5..1e-2\"\nmodel = [\"tgn\", \"jodie\"]\n";
        std::fs::write(&path, text).unwrap();
        let mut want = Space { seeds: vec![3, 4], trials: 2, sweep_seed: 9, ..Space::default() };
        want.add_grid("plan", list("prefetch")).unwrap();
        want.add_grid("tgn.layers", list("1,2")).unwrap();
        want.add_random("learning_rate", Draw::parse("", "log:1e-5..1e-2").unwrap()).unwrap();
        want.add_random("model", Draw::parse("", "tgn,jodie").unwrap()).unwrap();
        assert_eq!(Space::read(&path).unwrap(), want);
        std::fs::write(&path, "seeds = 3").unwrap();
        assert_eq!(Space::read(&path).unwrap().seeds, [1, 2, 3]);
        for (text, said) in [
            ("seeds = 0", "space.toml: these are no seeds"),
            ("seeds = 20000", "space.toml: these are 20000 seeds, and 10000 are the most"),
            ("gird = 3", "space.toml:1:1: "),
            ("[random]\nbatch = \"5..1\"", "space.toml: random batch"),
            ("[grid]\nbatch = []", "space.toml: the grid of batch has no value"),
            ("[grid]\nbatch = [1, 1]", "the grid of batch has 1 twice"),
            ("[grid]\nbatch = 1\n[random]\nbatch = \"1..5\"", "batch is in the grid, and drawn at random"),
            ("[grid]\nseed = [1, 2]", "--seeds 1,2,3"),
        ] {
            std::fs::write(&path, text).unwrap();
            let e = Space::read(&path).unwrap_err();
            assert!(e.to_string().contains(said) && !e.to_string().contains('\n'), "{said} in {e}");
        }
    }

    #[test]
    fn wrong_trials_are_refused_before_any_starts() {
        let refused = |space: &Space, said: &str| {
            let e = space.trials(&Table::new()).unwrap_err();
            assert!(e.to_string().contains(said) && !e.to_string().contains('\n'), "{said} in {e}");
        };
        let grid = |key: &str, values: &str| {
            let mut space = Space::default();
            space.add_grid(key, list(values)).unwrap();
            space
        };
        refused(&grid("tgn.depth", "1,2"), "tgn.depth=1: unknown field `depth`");
        refused(&grid("batch", "10,many"), "batch=many: invalid type");
        refused(&grid("batch", "10,0"), "batch=0,seed=1: batch is 0");
        let mut drawn = Space { trials: 0, ..Space::default() };
        drawn.add_random("batch", Draw::parse("batch", "1..9").unwrap()).unwrap();
        refused(&drawn, "there is no trial");
        refused(&Space { seeds: vec![2, 2], ..Space::default() }, "seed 2 is given twice");
        refused(&Space { seeds: (0..10_001).collect(), ..Space::default() }, "10001 trials");
        let mut space = Space::default();
        space.add_random("batch", Draw::parse("batch", "0.5..2.5").unwrap()).unwrap();
        refused(&space, "batch=0.5: ");
    }
}
