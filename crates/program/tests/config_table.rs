//! The table of settings in the documents is that of the code.
use crate::support::paths::root;
use std::fs;
use tgnn_training::task::Config;

#[test]
fn the_table_of_configuration_keys_is_that_of_the_configuration() {
    let table = fs::read_to_string(root().join("docs/config.md")).unwrap();
    let rows = table.lines().filter(|l| l.starts_with("| `"));
    // A key without a default is one that a configuration leaves out.
    let (optional, rows): (Vec<&str>, Vec<&str>) = rows.partition(|l| l.split('|').nth(2) == Some(" "));
    for row in optional {
        let key = row.split('`').nth(1).unwrap();
        let text = format!("{key} = []");
        let e = Config::of_table(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(!e.contains("unknown field"), "{key}: {e}");
    }
    let mut section = String::new();
    let mut keys = 0;
    for line in Config::default().to_toml().unwrap().lines() {
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
