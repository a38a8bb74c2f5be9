//! The keys of a configuration that the command line sets.
use clap::Arg;
use indexmap::IndexMap;
use std::sync::LazyLock;
use tgnn::error::{Error, Result};
use tgnn_training::task::{
    Config,
    config::table::{keys_of, set_key, text_of, value_of},
};

/// Flags, by their ids, and the keys that they set.
pub type Keys = &'static [(&'static str, &'static str)];

/// Says which keys the flags of some arguments set.
macro_rules! keys {
    ($args:ident { $($flag:ident => $key:literal,)* }) => {
        impl $args {
            /// The flags, and the keys that they set.
            pub const KEYS: $crate::settings::Keys = &[$((stringify!($flag), $key),)*];

            /// Sets the keys of the flags that are given.
            fn set_given(&self, table: &mut toml::Table) -> tgnn::error::Result<()> {
                $(if let Some(value) = &self.$flag {
                    $crate::settings::set_flag(table, $key, value)?;
                })*
                Ok(())
            }
        }
    };
}
pub(crate) use keys;

/// The keys that have a default, with it.
static DEFAULTS: LazyLock<IndexMap<String, toml::Value>> =
    LazyLock::new(|| Config::default().to_table().map(|table| keys_of(&table)).unwrap_or_default());

/// Adds to the help of a flag the default of the key that it sets, unless the help has a default of its own.
pub fn with_default(arg: Arg, keys: Keys) -> Arg {
    let key = keys.iter().find(|(flag, _)| arg.get_id() == flag).map(|(_, key)| *key);
    let help = arg.get_help().map(ToString::to_string).filter(|help| !help.contains("[default: "));
    match (key.and_then(|key| DEFAULTS.get(key)), help) {
        (Some(default), Some(help)) => arg.help(format!("{help} [default: {}]", text_of(default))),
        _ => arg,
    }
}

/// Refuses keys of the command line that `reads` refuses. Such keys of a configuration file, which may serve
/// several models, are told in `notes` unless they have their defaults.
pub fn refuse_unread(
    given: &IndexMap<String, toml::Value>,
    flags: &IndexMap<String, toml::Value>,
    reads: impl Fn(&str) -> Result<()>,
    notes: &mut Vec<String>,
) -> Result<()> {
    for (key, value) in given {
        match reads(key) {
            Err(e) if flags.contains_key(key) => return Err(e),
            Err(e) if DEFAULTS.get(key) != Some(value) => notes.push(e.to_string()),
            _ => {}
        }
    }
    Ok(())
}

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
