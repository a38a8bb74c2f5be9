//! Errors of the command line, each in one line.
use super::output::{ended, fail, keep};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::{
    error::Error as _,
    num::{IntErrorKind, ParseFloatError, ParseIntError},
    process::ExitCode,
};
use tgnn::error::Error;

/// Prints help as clap does, and clap's errors as one line. Returns the exit code.
pub(super) fn refuse(e: &clap::Error) -> ExitCode {
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            keep(e.print());
            ended(Ok(()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print(); // to standard error
            ExitCode::from(tgnn::error::ErrorKind::Usage.exit_code())
        }
        _ => fail(&error(e)),
    }
}

/// Returns what is wrong, and what to give instead.
fn error(e: &clap::Error) -> Error {
    let text = |kind| e.get(kind).map(ToString::to_string).unwrap_or_default();
    let (arg, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let what = match e.kind() {
        ErrorKind::UnknownArgument => format!("unexpected argument '{arg}' found"),
        ErrorKind::InvalidSubcommand => {
            format!("unrecognized subcommand '{}'", text(ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("the following required arguments were not provided: {arg}")
        }
        ErrorKind::ArgumentConflict => {
            format!("the argument '{arg}' cannot be used with {}", quoted(e.get(ContextKind::PriorArg)))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("a value is required for '{arg}' but none was supplied")
        }
        ErrorKind::InvalidValue => format!("invalid value '{value}' for '{arg}'"),
        ErrorKind::ValueValidation => format!("invalid value '{value}' for '{arg}': {}", reason(e)),
        ErrorKind::TooManyValues => {
            format!("unexpected value '{value}' for '{arg}' found; no more were expected")
        }
        kind if arg.is_empty() => kind.to_string(),
        kind => format!("{kind}: '{arg}'"),
    };
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].map(|kind| e.get(kind));
    let remedy = match (similar.into_iter().flatten().next(), text(ContextKind::ValidValue)) {
        (Some(similar), _) => format!("did you mean {}?", quoted(Some(similar))),
        (None, valid) if !valid.is_empty() => format!("give one of {valid}"),
        _ => "see --help".to_owned(),
    };
    // A value may have several lines.
    let what = Error::usage(what.lines().collect::<Vec<_>>().join(" "));
    // The crate's own errors have a remedy.
    if e.source().is_some_and(|source| source.is::<Error>()) { what } else { what.remedy(remedy) }
}

/// Returns what a context names, in quotes.
fn quoted(context: Option<&ContextValue>) -> String {
    match context {
        Some(ContextValue::Strings(names)) => {
            names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" or ")
        }
        Some(name) => format!("'{name}'"),
        None => "others".to_owned(),
    }
}

/// Says why a value is refused: numbers have no reasons of their own.
fn reason(e: &clap::Error) -> String {
    let Some(source) = e.source() else { return "it does not fit".to_owned() };
    match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "the number is too large".to_owned(),
        Some(_) => "give a whole number, 0 or more".to_owned(),
        None if source.is::<ParseFloatError>() => "give a number".to_owned(),
        None => source.to_string(),
    }
}
