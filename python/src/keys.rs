//! Values of Python as a configuration.
use crate::error::Result;
use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt},
};
use tgnn::error::Error;
use tgnn_training::task::Config;
use toml::{Table, Value};

/// Returns the configuration with the keys of `keys`, and these keys as a table; sections are dictionaries,
/// or dots in a key.
pub fn config(keys: &Bound<'_, PyDict>) -> Result<(Config, Table)> {
    let mut table = Table::new();
    insert_all(&mut table, keys, "")?;
    let config = Config::of_table(&table)?;
    config.validate()?;
    Ok((config, table))
}

/// Adds the keys of a dictionary to the section `prefix` of a table.
fn insert_all(table: &mut Table, keys: &Bound<'_, PyDict>, prefix: &str) -> Result<()> {
    for (key, value) in keys {
        let key: String = key
            .extract()
            .map_err(|_| Error::usage(format!("`{prefix}{key}` is not a key, which is text")))?;
        let name = format!("{prefix}{key}");
        match value.cast::<PyDict>() {
            // Python's keywords have no hyphens: `graph_mixer` is the section `graph-mixer`.
            Ok(section) => insert_all(table, section, &format!("{}.", name.replace('_', "-")))?,
            Err(_) => {
                insert(table, &name, scalar(&name, &value)?)?;
                // Checked one by one, because the error of a value does not name its key.
                Config::of_table(table).map_err(|e| named(&name, &e))?;
            }
        }
    }
    Ok(())
}

/// What serde calls the types of values, and what a user of Python calls them.
const TYPES: [(&str, &str); 9] = [
    ("usize", "a whole number from 0"),
    ("u64", "a whole number from 0"),
    ("u32", "a whole number from 0"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("f32", "a number"),
    ("a boolean", "True or False"),
    ("bool", "True or False"),
    ("a string", "text"),
];

/// Returns the text of an error of serde's in terms of Python.
fn in_python(text: &str) -> String {
    let invalid =
        ["invalid type: ", "invalid value: "].into_iter().find_map(|start| text.strip_prefix(start));
    let Some((what, wanted)) = invalid.and_then(|text| text.split_once(", expected ")) else {
        return text.into();
    };
    let what = ["string ", "integer ", "floating point ", "boolean "]
        .into_iter()
        .find_map(|kind| what.strip_prefix(kind))
        .unwrap_or(what);
    let wanted = match TYPES.iter().find(|(rust, _)| *rust == wanted) {
        Some((_, python)) => python,
        None if wanted.starts_with("struct ") => "a dictionary",
        None => wanted,
    };
    format!("{what} is not {wanted}")
}

/// Returns an error that names the key `name`.
fn named(name: &str, e: &Error) -> Error {
    let text = in_python(&e.to_string());
    let key = name.rsplit('.').next().unwrap_or(name);
    let is_named = text.contains(&format!("`{key}`")) || text.contains(name);
    Error::usage(if is_named { text } else { format!("{name}: {text}") })
}

/// Sets a key; dots separate sections from keys.
fn insert(table: &mut Table, name: &str, value: Value) -> Result<()> {
    let mut parts: Vec<&str> = name.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut at = table;
    for part in parts {
        let section = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        let not_section = || Error::usage(format!("`{name}`: `{part}` is not a section"));
        at = section.as_table_mut().ok_or_else(not_section)?;
    }
    at.insert(last.into(), value);
    Ok(())
}

/// Returns a number, a truth value or text; whatever has an `item` is asked for it, as NumPy's scalars.
fn scalar(name: &str, value: &Bound<'_, PyAny>) -> Result<Value> {
    if let Some(value) = plain(value) {
        return Ok(value);
    }
    let other = value.call_method0("__fspath__").or_else(|_| value.call_method0("item"));
    let value = other.as_ref().unwrap_or(value);
    if let Some(value) = plain(value) {
        return Ok(value);
    }
    let class = value.get_type().name()?;
    let (what, remedy) = match value.is_instance_of::<PyInt>() {
        true => (format!("`{name}` is {value}"), "give a number below 2^63"),
        false if value.is_none() => (format!("`{name}` is None"), "leave it out, or give a number or text"),
        false => (format!("`{name}` is of type {class}"), "give a number, text, True, False or a dictionary"),
    };
    Err(Error::usage(what).remedy(remedy).into())
}

/// Returns a value of one of Python's own types.
fn plain(value: &Bound<'_, PyAny>) -> Option<Value> {
    if value.is_instance_of::<PyBool>() {
        return value.extract().ok().map(Value::Boolean);
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().ok().map(Value::Integer);
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().ok().map(Value::Float);
    }
    value.extract().ok().map(Value::String)
}
