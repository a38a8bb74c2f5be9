//! Checks of the source tree: a file uses only layers below its own, and the documents agree with the code.
use crate::paths::root;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The layers from the bottom up. A layer without a file yet is only a name.
const LAYERS: [&str; 10] =
    ["error", "runtime", "ops", "autograd", "testing", "data", "model", "plan", "task", "cli"];
/// Above all layers: the library's root and the program.
const TOPS: [&str; 2] = ["lib", "main"];

/// Returns the index of the layer of a module of the crate root; `None` if the name is no module.
fn layer(name: &str) -> Option<usize> {
    let top = TOPS.contains(&name).then_some(LAYERS.len());
    LAYERS.iter().position(|l| *l == name).or(top)
}

/// Returns the names that follow each `crate::` of `text`, one for each branch of a `crate::{...}`. Comments
/// and everything after the first `#[cfg(test)]` do not count: links and tests may point upward.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().map(|l| l.split("//").next().unwrap_or_default()).collect();
    let name = |path: &str| -> String {
        path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    code.split("crate::")
        .skip(1)
        .flat_map(|path| match path.strip_prefix('{') {
            Some(branches) => branch_paths(branches).iter().map(|p| name(p)).collect(),
            None => vec![name(path)],
        })
        .collect()
}

/// Splits `text` at the commas outside of inner braces, up to the brace that closes it.
fn branch_paths(text: &str) -> Vec<String> {
    let (mut paths, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => paths.push(String::new()),
            _ if depth == 0 => paths.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    paths
}

/// Returns the layers above that of `file`, a path below `src`, that its `text` uses.
fn upward(file: &str, text: &str) -> Result<Vec<String>, String> {
    let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let own_layer = layer(module).ok_or_else(|| format!("{file}: `{module}` is not among the layers"))?;
    Ok(used(text).into_iter().filter(|name| layer(name).is_some_and(|l| l > own_layer)).collect())
}

/// Whether the documentation of a module begins with a formula, or a sentence on what the op computes,
/// followed by a table of its values; or of its ops, if there are several.
fn documents_an_op(text: &str) -> bool {
    let doc: Vec<&str> = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim).collect();
    let lead = doc.iter().position(|l| l.is_empty()).unwrap_or(doc.len());
    let tables = ["| value | shape | meaning |", "| op | out | backward |"];
    let table = doc.iter().position(|l| tables.contains(l));
    lead > 0
        && !doc[0].starts_with('|')
        && table == Some(lead + 1)
        && doc.get(lead + 3).is_some_and(|l| l.starts_with('|'))
}

/// Returns the Rust files below `dir`: their paths from there, and their texts.
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
fn no_file_uses_a_layer_above_its_own() {
    let files = sources(&root().join("src"));
    assert!(files.len() > 20, "the sources are not where they were");
    for (file, text) in files {
        let found = upward(&file, &text).unwrap();
        assert!(found.is_empty(), "{file} uses {found:?}, which are layers above its own");
    }
}

#[test]
fn a_use_of_a_higher_layer_is_seen_in_every_form_it_can_take() {
    let up = |text| upward("ops/mean.rs", text).unwrap();
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

/// Returns the line numbers of the comments of `text` that are wider than `width` characters. Table rows and
/// lines with a URL do not count, because they cannot be wrapped.
fn wide_comments(text: &str, width: usize) -> Vec<usize> {
    let is_wide = |line: &str| {
        let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim_start();
        line.chars().count() > width && !comment.starts_with('|') && !comment.contains("://")
    };
    text.lines().zip(1..).filter(|(line, _)| is_wide(line)).map(|(_, number)| number).collect()
}

/// Returns rustfmt's `max_width`. rustfmt itself does not wrap comments.
fn max_width() -> usize {
    let options = fs::read_to_string(root().join("rustfmt.toml")).unwrap();
    let width = options.lines().find_map(|l| l.strip_prefix("max_width = ")).expect("a maximum width");
    width.trim().parse().unwrap()
}

#[test]
fn no_comment_is_wider_than_the_code_may_be() {
    let width = max_width();
    let mut wide = Vec::new();
    for dir in ["src", "tests", "benches"] {
        for (file, text) in sources(&root().join(dir)) {
            wide.extend(wide_comments(&text, width).into_iter().map(|line| format!("{dir}/{file}:{line}")));
        }
    }
    assert!(wide.is_empty(), "comments wider than {width} characters; wrap them:\n{}", wide.join("\n"));
}

#[test]
fn a_wide_comment_is_seen_in_every_form_it_can_take() {
    let wide = |text: &str| wide_comments(text, 20);
    assert_eq!(wide("// 45678901234567890\n// 456789012345678901"), [2]);
    assert_eq!(wide("    //! 9012345678901\n    /// 90123 567 9012\n//9012345678901234567 9"), [1, 2, 3]);
    assert!(wide("// éééééééééééééééé\n// ×××××××××××××××××").is_empty(), "characters count, not bytes");
    assert!(wide("let text = \"1234567890\"; // comment").is_empty(), "code is rustfmt's");
    assert!(wide("/// | value | shape | meaning |\n//! | `x` | `[n]` u32 | |\n// | a wide row |").is_empty());
    assert!(wide("// see https://example.org/page").is_empty());
}

#[test]
fn every_op_begins_with_a_summary_and_the_table_of_its_values() {
    for (file, text) in sources(&root().join("src/ops")) {
        // An op has cases; the list of ops, the tape and the inner files of an op have none.
        if text.contains("const CASES:") {
            assert!(
                documents_an_op(&text),
                "{file}: want a formula, a blank line, | value | shape | meaning |"
            );
        }
    }
}

#[test]
fn the_table_of_configuration_keys_is_that_of_the_configuration() {
    let table = fs::read_to_string(root().join("docs/config.md")).unwrap();
    let rows = table.lines().filter(|l| l.starts_with("| `"));
    // A key without a default is one that a configuration leaves out.
    let (optional, rows): (Vec<&str>, Vec<&str>) = rows.partition(|l| l.split('|').nth(2) == Some(" "));
    for row in optional {
        let key = row.split('`').nth(1).unwrap();
        let text = format!("{key} = []");
        let e = tgnn::task::Config::of_table(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(!e.contains("unknown field"), "{key}: {e}");
    }
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
