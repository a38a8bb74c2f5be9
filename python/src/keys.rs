//! Values of Python as a configuration.
use crate::error::Result;
use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyString},
};
use tgnn::{error::Error, task::Config};
use toml::{Table, Value};

/// Returns the configuration with the keys of `keys`, and these keys as a table; sections are dictionaries, or
/// dots in a key.
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
        let key: String = key.extract()?;
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

/// Returns an error that names the key `name`.
fn named(name: &str, e: &Error) -> Error {
    let text = e.to_string();
    let key = name.rsplit('.').next().unwrap_or(name);
    Error::usage(if text.contains(&format!("`{key}`")) { text } else { format!("{name}: {text}") })
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
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Value::Integer(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::String(value.extract()?));
    }
    if let Ok(path) = value.call_method0("__fspath__") {
        return Ok(Value::String(path.extract()?));
    }
    if let Ok(item) = value.call_method0("item")
        && !item.is(value)
    {
        return scalar(name, &item);
    }
    let class = value.get_type().name()?;
    let what = format!("`{name}` is of type {class}");
    Err(Error::usage(what).remedy("give a number, text, True, False or a dictionary").into())
}
