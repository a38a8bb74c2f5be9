//! The keys of a configuration that the command line sets.
use crate::{
    error::{Error, Result},
    task::{
        Config,
        config::table::{set_key, value_of},
    },
};

/// Sets the keys of `pairs`, one after another.
///
/// # Errors
/// `Usage`, with the pair, if it is not `key=value`, or the configuration has no such key or value.
pub fn set_keys(table: &mut toml::Table, pairs: &[String]) -> Result<()> {
    pairs.iter().try_for_each(|pair| {
        set(table, pair)?;
        Config::of_table(table).map(drop).map_err(|e| Error::usage(format!("--set {pair}: {e}")))
    })
}

/// Sets the key of a `key=value` pair in `table`. A value that is not valid TOML is taken as a string.
fn set(table: &mut toml::Table, pair: &str) -> Result<()> {
    let wrong = || Error::usage(format!("--set {pair}")).remedy("give KEY=VALUE, as in --set tgn.layers=2");
    let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
    if value.trim().parse::<u128>().is_ok_and(|number| number > i64::MAX as u128) {
        let what = format!("--set {pair}: the number is too large");
        return Err(Error::usage(what).remedy(format!("give at most {}", i64::MAX)));
    }
    set_key(table, key.trim(), value_of(value)).map_err(|_| wrong())
}

/// Sets a key to the value of a flag.
pub fn set_flag(table: &mut toml::Table, key: &str, value: &impl serde::Serialize) -> Result<()> {
    let value = toml::Value::try_from(value).map_err(|_| {
        Error::usage(format!("{key} is too large")).remedy(format!("give at most {}", i64::MAX))
    });
    set_key(table, key, value?)
}
