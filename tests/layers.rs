//! The tree shows the architecture, and stays true: a file uses only floors below its own.
use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the ground up; a floor that has no file yet is only a name.
const FLOORS: [&str; 10] =
    ["error", "runtime", "ops", "autograd", "testing", "data", "model", "plan", "task", "cli"];
/// Above all floors: the tour and the program.
const TOPS: [&str; 2] = ["lib", "main"];
/// Longer files are cut in two.
const MOST_LINES: usize = 600;

/// The place of a module of the crate root; `None` for what is no module.
fn floor(name: &str) -> Option<usize> {
    let top = TOPS.contains(&name).then_some(FLOORS.len());
    FLOORS.iter().position(|f| *f == name).or(top)
}

/// The names that follow each `crate::` of `text`, one for each branch of a `crate::{...}`. Comments and what comes
/// after the first `#[cfg(test)]` do not count: a link may point upward, and so may a test.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().map(|l| l.split("//").next().unwrap_or_default()).collect();
    let name = |path: &str| -> String {
        path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    code.split("crate::")
        .skip(1)
        .flat_map(|path| match path.strip_prefix('{') {
            Some(branches) => outermost(branches).iter().map(|p| name(p)).collect(),
            None => vec![name(path)],
        })
        .collect()
}

/// The comma-separated parts of `text` up to the brace that closes it.
fn outermost(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ if depth == 0 => parts.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    parts
}

/// The floors above that of `file`, a path below `src`, which its `text` uses.
fn upward(file: &str, text: &str) -> Result<Vec<String>, String> {
    let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let own = floor(module).ok_or_else(|| format!("{file}: `{module}` has no place among the floors"))?;
    Ok(used(text).into_iter().filter(|name| floor(name).is_some_and(|f| f > own)).collect())
}

/// Whether the documentation of a module begins with a formula, or a sentence that says what the op makes, and has a
/// table of its values below.
fn documents_an_op(text: &str) -> bool {
    let doc: Vec<&str> = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim).collect();
    let lead = doc.iter().position(|l| l.is_empty()).unwrap_or(doc.len());
    let table = doc.iter().position(|l| *l == "| value | shape | meaning |");
    lead > 0
        && !doc[0].starts_with('|')
        && table == Some(lead + 1)
        && doc.get(lead + 3).is_some_and(|l| l.starts_with('|'))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below `dir`, with their paths from there.
fn sources(dir: &Path) -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, &mut found);
    found.sort();
    let relative = |p: &Path| p.strip_prefix(dir).unwrap().to_str().unwrap().replace('\\', "/");
    found.iter().map(|p| (relative(p), fs::read_to_string(p).unwrap())).collect()
}

#[test]
fn no_file_uses_a_floor_above_its_own() {
    let files = sources(&root().join("src"));
    assert!(files.len() > 20, "the sources are not where they were");
    for (file, text) in files {
        let found = upward(&file, &text).unwrap();
        assert!(found.is_empty(), "{file} uses {found:?}, which stand above it");
    }
}

#[test]
fn a_use_of_a_higher_floor_is_seen_in_every_form_it_can_take() {
    let up = |text| upward("ops/add.rs", text).unwrap();
    assert_eq!(up("use crate::task::Config;"), ["task"]);
    assert_eq!(
        up("use crate::{\n    error::{Error, data::x},\n    model::Tgn,\n    plan,\n};"),
        ["model", "plan"]
    );
    assert_eq!(up("fn f() { let x = crate::cli::main(); }"), ["cli"]);
    assert_eq!(up("pub(crate) use crate::testing;"), ["testing"]);
    assert!(up("use crate::{error::Error, ops::*, runtime::data};").is_empty());
    assert!(up("//! [tasks](crate::task)\n#[cfg(test)]\nmod tests { use crate::testing; }").is_empty());
    assert!(upward("main.rs", "use crate::{task, cli};").unwrap().is_empty());
    assert!(upward("basement/x.rs", "").is_err());
}

#[test]
fn no_file_is_longer_than_a_reader_bears() {
    for dir in ["src", "tests", "benches"] {
        for (file, text) in sources(&root().join(dir)) {
            let lines = text.lines().count();
            assert!(lines <= MOST_LINES, "{dir}/{file} has {lines} lines");
        }
    }
}

#[test]
fn every_op_begins_with_what_it_makes_and_the_table_of_its_values() {
    for (file, text) in sources(&root().join("src/ops")) {
        // An op is what has cases; the list of ops, the tape and the inner files of an op have none.
        if text.contains("const CASES:") {
            assert!(
                documents_an_op(&text),
                "{file}: want a formula, a blank line, | value | shape | meaning |"
            );
        }
    }
}

/// The blocks, functions, implementations and traits of `text` that are `unsafe`.
fn unsafe_in(text: &str) -> usize {
    let code = text.lines().map(|l| l.split("//").next().unwrap_or_default());
    code.map(|l| l.split_whitespace().filter(|w| w.trim_start_matches('(') == "unsafe").count()).sum()
}

#[test]
fn unsafe_is_where_the_guide_says_and_as_often() {
    let guide = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let mut found: Vec<(String, usize)> = Vec::new();
    for (file, text) in sources(&root().join("src")) {
        let folders: Vec<&str> = file.split('/').collect();
        let module = match folders[..] {
            ["runtime", inner @ ("cuda" | "simd"), ..] => format!("runtime/{inner}"),
            [top, ..] => top.to_owned(),
            [] => unreachable!("a file has a name"),
        };
        match found.iter_mut().find(|(name, _)| *name == module) {
            Some((_, count)) => *count += unsafe_in(&text),
            None => found.push((module, unsafe_in(&text))),
        }
    }
    found.retain(|(_, count)| *count > 0);
    let rows = guide.split("| module | `unsafe` |").nth(1).expect("the guide counts it");
    let rows = rows.lines().skip(2).map_while(|row| row.strip_prefix("| `"));
    let told: Vec<(String, usize)> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let module = cells.next().unwrap().trim_end_matches('`').to_owned();
            (module, cells.next().unwrap().parse().unwrap())
        })
        .collect();
    found.sort();
    assert_eq!(told, found, "CONTRIBUTING.md against src");
}

#[test]
fn the_example_in_the_guide_is_the_op_as_it_stands() {
    let guide = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let example = guide.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let op = fs::read_to_string(root().join("src/ops/add.rs")).unwrap();
    assert!(op.contains(example), "CONTRIBUTING.md shows another op than src/ops/add.rs");
}

#[test]
fn the_table_of_configuration_keys_is_the_configuration_as_it_stands() {
    let table = fs::read_to_string(root().join("docs/config.md")).unwrap();
    let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("| `")).collect();
    let mut section = String::new();
    let mut keys = 0;
    for line in tgnn::task::Config::default().to_toml().unwrap().lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.replace(']', ".");
        } else if let Some((key, value)) = line.split_once(" = ") {
            let row = format!("| `{section}{key}` | `{value}` | ");
            assert!(rows.get(keys).is_some_and(|r| r.starts_with(&row)), "row {keys} is not {row}");
            keys += 1;
        }
    }
    assert_eq!(rows.len(), keys);
}

#[test]
fn an_op_without_formula_or_table_is_seen() {
    let table = "//! | value | shape | meaning |\n//! | --- | --- | --- |\n//! | `x` | `[n]` | |\n";
    assert!(documents_an_op(&format!("//! `y = x`\n//!\n{table}")));
    assert!(documents_an_op(&format!("//! `y = x` and\n//! more\n//!\n{table}//! Backward: none.\n")));
    assert!(!documents_an_op(table));
    assert!(!documents_an_op("//! `y = x`\n//!\n//! Backward: none.\n"));
    assert!(!documents_an_op("//! `y = x`\n//!\n//! | value | shape | meaning |\nuse super::*;"));
    assert!(!documents_an_op("use super::*;"));
}
