//! What the program prints, and how it ends. A failed write to standard output does not end a command, whose
//! results may be in files as well: it is remembered, and [`finish`] makes it the error of the program.
use serde::Serialize;
use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
    process::ExitCode,
    sync::{LazyLock, OnceLock},
    time::Duration,
};
use tgnn::{
    error::{Error, Result},
    runtime::comm::launched,
};

/// The first failed write to standard output.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a line for people to standard output.
pub(super) fn say(text: impl Display) {
    print(plain(text.to_string()));
}

/// Writes a line for programs to standard output, as it is.
pub(super) fn print(text: impl Display) {
    keep(writeln!(io::stdout(), "{text}"));
}

/// Writes a value to standard output as JSON.
///
/// # Errors
/// `Usage` if it has no such form.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    print(json(value)?);
    Ok(())
}

/// Returns a value as indented JSON.
///
/// # Errors
/// `Usage` if it has no such form.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|e| Error::usage("cannot write the numbers").caused_by(e))
}

/// Writes a line for people to standard error. Nobody can be told if that fails.
pub(super) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", plain(text.to_string()));
}

/// Remembers a failed write to standard output.
pub(super) fn keep(written: io::Result<()>) {
    if let Err(e) = written {
        let _ = FAILED.set(e); // the first one counts
    }
}

/// Writes what is still in the buffer of standard output.
///
/// # Errors
/// `Io` if this or an earlier write failed. A closed pipe (`| head`) is not an error.
pub(super) fn finish() -> Result<()> {
    keep(io::stdout().flush());
    match FAILED.get() {
        Some(e) if e.kind() != ErrorKind::BrokenPipe => {
            let why =
                e.raw_os_error().map_or_else(|| io::Error::from(e.kind()), io::Error::from_raw_os_error);
            Err(Error::io("standard output", "cannot write", why))
        }
        _ => Ok(()),
    }
}

/// Returns the exit code of a command that has ended.
pub(super) fn ended(result: Result<()>) -> ExitCode {
    match result.and_then(|()| finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

/// Prints an error and returns its exit code. Of several processes that meet the same error, the first one
/// prints it first, and its launcher then ends the others.
pub(super) fn fail(e: &Error) -> ExitCode {
    if let Ok(Some(launched)) = launched() {
        std::thread::sleep(Duration::from_millis(200 * launched.rank.min(20) as u64));
    }
    tell(format_args!("error: {e}"));
    ExitCode::from(e.kind().exit_code())
}

/// Returns the command line, with quotes around arguments that contain white space.
pub(super) fn command_line() -> String {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program).chain(args.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Returns an argument as it is written in a command line.
pub(super) fn quoted(word: String) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) { format!("'{word}'") } else { word }
}

/// Whether the locale has the characters with which reports draw: the first of its variables that is set
/// decides, and none means that nobody has said otherwise.
static DRAWS: LazyLock<bool> = LazyLock::new(|| {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os);
    set.map(|locale| locale.to_string_lossy().to_lowercase())
        .find(|locale| !locale.is_empty())
        .is_none_or(|locale| cfg!(windows) || locale.contains("utf-8") || locale.contains("utf8"))
});

/// Returns the characters of a progress bar.
pub(super) fn bar_characters() -> &'static str {
    if *DRAWS { "━━─" } else { "##-" }
}

/// Returns a text with the characters that reports draw with replaced by ASCII, each by one, if the locale
/// lacks them.
fn plain(text: String) -> String {
    if *DRAWS || text.is_ascii() { text } else { in_ascii(&text) }
}

fn in_ascii(text: &str) -> String {
    let ascii = |c: char| match c {
        '─' | '━' | '–' | '—' => '-',
        '│' => '|',
        '┌' | '┐' | '└' | '┘' => '+',
        '╲' => '\\',
        '·' | '░' => '.',
        '▏' | '▎' | '▍' | '▒' => ':',
        '▌' | '▋' | '▊' | '▉' | '▓' => '=',
        '█' => '#',
        '…' => '~',
        other => other,
    };
    text.replace(" ± ", " +-").chars().map(ascii).collect()
}

/// Returns a text as a cell of CSV: in quotes if it must be.
pub(super) fn csv_cell(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Returns the number of columns of characters that standard output, or standard error, has: the variable
/// `COLUMNS`, or else the width of the terminal; `None` if it is no terminal.
pub(super) fn terminal_width(errors: bool) -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = || match errors {
        true => terminal_size::terminal_size_of(io::stderr()),
        false => terminal_size::terminal_size_of(io::stdout()),
    };
    said.or_else(|| size().map(|(width, _)| width.0.into())).filter(|&width| width > 0)
}

/// Returns lines of at most `width` columns: longer ones are folded at blanks, and what follows is indented.
pub(super) fn folded(text: &str, width: usize, indent: usize) -> String {
    text.split('\n').map(|line| folded_line(line, width, indent)).collect::<Vec<_>>().join("\n")
}

fn folded_line(line: &str, width: usize, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (at, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            out += &format!("\n{:indent$}", "");
            column = indent;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_at_blanks_under_what_they_begin_with() {
        let text = "note  one two three\nshort\n      four five six";
        assert_eq!(
            folded(text, 13, 6),
            "note  one two\n      three\nshort\n      four\n      five\n      six"
        );
        assert_eq!(folded("note  a-word-without-end and", 9, 6), "note  a-word-without-end\n      and");
        assert_eq!(folded("", 9, 6), "");
    }

    #[test]
    fn every_character_that_a_report_draws_with_has_one_of_ascii() {
        let drawn = "─━│┌┐└┘╲·░▒▓█▏▎▍▌▋▊▉…–—";
        let ascii = in_ascii(drawn);
        assert!(ascii.is_ascii() && ascii.len() == drawn.chars().count(), "{ascii}");
        assert_eq!(in_ascii("0.5000 ± 0.0100, Zürich"), "0.5000 +-0.0100, Zürich");
    }
}
