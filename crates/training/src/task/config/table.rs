//! Configurations as tables of keys, where dots separate sections from keys: `tgn.layers`.
use indexmap::IndexMap;
use tgnn::error::{Error, Result};
use toml::{Table, Value};

/// Returns the value that `text` stands for; text that is not valid TOML is a string.
pub fn value_of(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>();
    parsed.ok().and_then(|mut t| t.remove("v")).unwrap_or_else(|| Value::String(text.into()))
}

/// Returns a value as a person writes it: a string without quotes, a very small or large number with its
/// power of ten.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        &Value::Float(x) if x != 0.0 && !(1e-4..1e7).contains(&x.abs()) => format!("{x:e}"),
        value => value.to_string(),
    }
}

/// Sets a key, whose name and value are not checked.
///
/// # Errors
/// `Usage` if the key has an empty name, or what should be a section is none.
pub fn set_key(table: &mut Table, key: &str, value: Value) -> Result<()> {
    let wrong = || Error::usage(format!("`{key}` is not a key")).remedy("give one such as tgn.layers");
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().filter(|p| !p.is_empty()).ok_or_else(wrong)?;
    let mut at = table;
    for part in parts {
        let section = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        at = section.as_table_mut().ok_or_else(wrong)?;
    }
    at.insert(last.into(), value);
    Ok(())
}

/// Returns all keys with their values, in the order of the table.
pub fn keys_of(table: &Table) -> IndexMap<String, Value> {
    fn add(section: &str, table: &Table, keys: &mut IndexMap<String, Value>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => add(&format!("{section}{key}."), inner, keys),
                value => drop(keys.insert(format!("{section}{key}"), value.clone())),
            }
        }
    }
    let mut keys = IndexMap::new();
    add("", table, &mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_set_and_listed_by_their_dotted_names() {
        let mut table = Table::new();
        set_key(&mut table, "tgn.layers", value_of("2")).unwrap();
        set_key(&mut table, "model", value_of("graph-mixer")).unwrap();
        set_key(&mut table, "tgn.dropout", value_of("1e-1")).unwrap();
        let keys = keys_of(&table);
        let text: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={}", text_of(v))).collect();
        assert_eq!(text, ["model=graph-mixer", "tgn.dropout=0.1", "tgn.layers=2"]);
        let again = ["1e-5", "0.0001", "2.5e300", "100", "0.0"].map(|text| text_of(&value_of(text)));
        assert_eq!(again, ["1e-5", "0.0001", "2.5e300", "100", "0.0"]);
        for key in ["", "tgn.", "model.x", "tgn.layers.x"] {
            let e = set_key(&mut table, key, Value::Boolean(true)).unwrap_err();
            assert!(e.to_string().contains("is not a key"), "{e}");
        }
    }
}
