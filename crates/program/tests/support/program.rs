//! Calls of the program, and what they leave in a folder.
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Returns the program: `TGNN_BENCH`, where the tests run on another machine than the one that built them,
/// else the one that was built with the tests.
pub fn program() -> PathBuf {
    env::var_os("TGNN_BENCH").unwrap_or(env!("CARGO_BIN_EXE_tgnn-bench").into()).into()
}

/// Result of one call of the program.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Calls the program in a folder.
pub fn tgnn(dir: &Path, words: &[&str]) -> Ran {
    let ran = Command::new(program()).args(words).current_dir(dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code().unwrap(), out: text(ran.stdout), err: text(ran.stderr) }
}

/// Runs a call that must succeed.
pub fn done(dir: &Path, words: &[&str]) -> Ran {
    let ran = tgnn(dir, words);
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
    ran
}

/// Parses what the program has printed as JSON.
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Runs a call that must be refused: with this exit code, one line of error that contains all of `texts`, and
/// nothing written.
pub fn refused(dir: &Path, words: &[&str], code: i32, texts: &[&str]) {
    let before = listing(dir);
    let ran = tgnn(dir, words);
    assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
    assert_eq!(ran.err.matches('\n').count(), 1, "{words:?}: {}", ran.err);
    assert!(ran.err.starts_with("error: ") && ran.err.ends_with('\n'), "{words:?}: {}", ran.err);
    for text in texts {
        assert!(ran.err.contains(text), "{words:?}: no `{text}` in {}", ran.err);
    }
    assert!(listing(dir) == before, "{words:?}: something was written");
}

/// The words of a call that generates a small stream.
pub const SYNTH: &[&str] = &[
    "data",
    "synth",
    "--out",
    "made",
    "--events",
    "400",
    "--sources",
    "30",
    "--destinations",
    "10",
    "--edge-features",
    "3",
    "--name",
    "made",
];

/// The configuration of a short training on it, without the training of static rows, which takes so few
/// events three times as long as the rest.
const SMALL: &str = "\
epochs = 2
batch = 50
eval_batch = 50
threads = 1
data.path = \"made\"
static.mode = \"off\"
tgn = { memory = 8, time = 8, embedding = 8, neighbors = 3 }
";

/// Makes a folder with a synthetic stream and the configuration of a short training on it.
pub fn made() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    done(dir.path(), SYNTH);
    fs::write(dir.path().join("small.toml"), SMALL).unwrap();
    dir
}

/// Returns the words of a call for that training, followed by `more`.
pub fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "small.toml"], more].concat()
}

/// Makes a folder with a trained model in `run`.
pub fn trained() -> TempDir {
    let dir = made();
    done(dir.path(), &small(&["--out", "run"]));
    dir
}

/// Writes a `.npy` with values of type `descr`.
pub fn write_npy<T: bytemuck::Pod>(path: &Path, descr: &str, rows: usize, cols: usize, values: &[T]) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let header = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    fs::write(path, bytes).unwrap();
}

/// Returns every file below `dir` with its bytes, sorted by path.
pub fn listing(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            entries.push((path.clone(), Vec::new()));
            entries.extend(listing(&path));
        } else {
            entries.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    entries.sort();
    entries
}
