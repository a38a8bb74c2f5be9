//! Checks of the source tree: a file uses only layers below its own, and the documents agree with the code.
use crate::support::paths::root;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Packages of several layers: the folders of their code, and the layers from the bottom up. What a package
/// uses of others is rustc's to check.
const PACKAGES: [(&str, &[&str]); 2] = [
    ("src", &["error", "runtime", "ops", "autograd", "testing"]),
    ("crates/training/src", &["model", "plan", "task"]),
];

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

/// Returns the layers above that of `file`, a path in the package's folder, that its `text` uses. The root of
/// a package is above all of its layers.
fn upward(layers: &[&str], file: &str, text: &str) -> Result<Vec<String>, String> {
    let place = |name: &str| layers.iter().position(|l| *l == name);
    let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let own = match module {
        "lib" => layers.len(),
        _ => place(module).ok_or_else(|| format!("{file}: `{module}` is not among the layers"))?,
    };
    Ok(used(text).into_iter().filter(|name| place(name).is_some_and(|l| l > own)).collect())
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
    for (folder, layers) in PACKAGES {
        let files = sources(&root().join(folder));
        assert!(files.len() > 20, "{folder}: the sources are not where they were");
        for (file, text) in files {
            let found = upward(layers, &file, &text).unwrap();
            assert!(found.is_empty(), "{folder}/{file} uses {found:?}, which are layers above its own");
        }
    }
}

#[test]
fn a_use_of_a_higher_layer_is_seen_in_every_form_it_can_take() {
    let layers = ["error", "runtime", "ops", "model", "plan", "task"];
    let up = |text| upward(&layers, "ops/mean.rs", text).unwrap();
    assert_eq!(up("use crate::task::Config;"), ["task"]);
    assert_eq!(
        up("use crate::{\n    error::{Error, data::x},\n    model::Tgn,\n    plan,\n};"),
        ["model", "plan"]
    );
    assert_eq!(up("fn f() { let x = crate::plan::main(); }"), ["plan"]);
    assert_eq!(up("pub(crate) use crate::task;"), ["task"]);
    assert!(up("use crate::{error::Error, ops::*, runtime::task};").is_empty());
    assert!(up("//! [tasks](crate::task)\n#[cfg(test)]\nmod tests { use crate::task; }").is_empty());
    assert!(upward(&layers, "lib.rs", "use crate::{task, plan};").unwrap().is_empty());
    assert!(upward(&layers, "basement/x.rs", "").is_err());
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
    for dir in ["src", "tests", "benches", "crates", "examples", "python/src"] {
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
fn an_op_without_formula_or_table_is_seen() {
    let table = "//! | value | shape | meaning |\n//! | --- | --- | --- |\n//! | `x` | `[n]` | |\n";
    assert!(documents_an_op(&format!("//! `y = x`\n//!\n{table}")));
    assert!(documents_an_op(&format!("//! `y = x` and\n//! more\n//!\n{table}//! Backward: none.\n")));
    assert!(!documents_an_op(table));
    assert!(!documents_an_op("//! `y = x`\n//!\n//! Backward: none.\n"));
    assert!(!documents_an_op("//! `y = x`\n//!\n//! | value | shape | meaning |\nuse super::*;"));
    assert!(!documents_an_op("use super::*;"));
}
