//! Errors of the command line, each in one line.
use super::output::{ended, fail, keep};
use crate::error::{Error, ErrorKind};
use std::process::ExitCode;

/// Prints help as clap does, and clap's errors as one line. Returns the exit code.
pub(super) fn refuse(e: &clap::Error) -> ExitCode {
    if !e.use_stderr() || e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let (printed, wrong) = (e.print(), e.use_stderr());
        if wrong {
            return ExitCode::from(ErrorKind::Usage.exit_code());
        }
        keep(printed);
        return ended(Ok(()));
    }
    let text = e.to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Usage:"));
    let what = lines.next().unwrap_or_default().trim_start_matches("error: ");
    // The words of Rust's parser of whole numbers.
    let what = what.replace("invalid digit found in string", "give a whole number, 0 or more");
    let rest = lines.filter(|l| !l.starts_with("For more")).collect::<Vec<&str>>().join(" ");
    fail(&match what.strip_suffix(':') {
        // Of missing arguments, clap writes one a line.
        Some(what) => Error::usage(format!("{what}: {rest}")).remedy("see --help"),
        None if rest.is_empty() => Error::usage(what).remedy("see --help"),
        None => Error::usage(what).remedy(format!("{rest}; see --help")),
    })
}
