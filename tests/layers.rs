//! The tree shows the architecture, and stays true: a file uses only floors below its own.
use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the ground up.
const FLOORS: [&str; 9] = ["error", "runtime", "ops", "autograd", "data", "model", "task", "cli", ""];

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|f| *f == name)
}

/// Floors above `own` that `text` names.
fn upward(own: usize, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let braced = code.split("use crate::{").skip(1).flat_map(|block| {
        let mut depth = 1;
        let end = block.find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        let mut names = Vec::new();
        let mut depth = 0;
        let mut word = String::new();
        for c in block[..end.unwrap_or(block.len())].chars().chain([',']) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(std::mem::take(&mut word)),
                _ if depth == 0 => word.push(c),
                _ => {}
            }
        }
        names
    });
    let plain = code.split("crate::").skip(1).map(str::to_owned);
    braced
        .chain(plain)
        .filter_map(|path| {
            let name: String = path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            floor(&name).filter(|&f| f > own && !name.is_empty()).map(|_| name)
        })
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries
        .flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] })
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_file_uses_a_floor_above_its_own() {
    let src = root().join("src");
    for path in files(&src) {
        let relative = path.strip_prefix(&src).unwrap();
        let name = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if let Some(own) = floor(name) {
            let found = upward(own, &fs::read_to_string(&path).unwrap());
            assert!(found.is_empty(), "{} uses {found:?}, which stand above `{name}`", relative.display());
        }
    }
}

#[test]
fn an_upward_use_would_be_seen() {
    let ops = floor("ops").unwrap();
    assert_eq!(upward(ops, "use crate::task::Config;"), ["task"]);
    assert_eq!(upward(ops, "use crate::{\n    error::{Error, data::x},\n    model::Tgn,\n};"), ["model"]);
    assert_eq!(upward(ops, "let x = crate::cli::main();"), ["cli"]);
    assert!(upward(ops, "use crate::{error::Error, runtime::*};").is_empty());
}

#[test]
fn no_file_is_longer_than_a_reader_bears() {
    for dir in ["src", "tests", "benches"] {
        for path in files(&root().join(dir)) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= 600, "{} has {lines} lines", path.display());
        }
    }
}

#[test]
fn every_op_begins_with_its_formula_and_the_table_of_its_values() {
    for path in files(&root().join("src/ops")) {
        let relative = path.strip_prefix(root().join("src/ops")).unwrap();
        let name = relative.to_str().unwrap();
        // What is no op, and `add`, whose formula says it all; an op's inner files answer to its own.
        if ["mod.rs", "tape.rs", "case.rs", "add.rs"].contains(&name)
            || name.ends_with("rows.rs") && relative.iter().count() > 1
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let doc: String = text.lines().take_while(|l| l.starts_with("//!")).collect();
        assert!(doc.contains("| value | shape | meaning |"), "{name} has no table of values");
    }
}
