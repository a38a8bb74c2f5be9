//! A trial that runs as a process of its own, so that what ends it does not end the others.
use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::Sender,
};
use tgnn::error::{Error, ErrorKind, Result};

/// Tells a child that its standard input is open as long as the sweep lives.
const ENDS_WITH_INPUT: &str = "TGNN_ENDS_WITH_INPUT";
/// Of a child that ended with its parent.
const ENDED: i32 = 130;

/// What happens to a trial.
pub(super) enum Event {
    /// It has printed a line.
    Line(usize, String),
    /// It prints no more.
    Ended(usize),
}

/// Starts this program with `words`, as trial `at`. Lines that it prints to standard error arrive as events.
///
/// # Errors
/// `Io` if the process cannot be started.
pub(super) fn start(words: &[OsString], at: usize, events: Sender<Event>) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| Error::io("this program", "cannot be found", e))?;
    let mut command = Command::new(&program);
    command.args(words).env(ENDS_WITH_INPUT, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| Error::io(&program, "cannot start a trial", e))?;
    let errors = child.stderr.take();
    std::thread::spawn(move || {
        for line in errors.into_iter().flat_map(|e| BufReader::new(e).lines()).map_while(|line| line.ok()) {
            if events.send(Event::Line(at, line)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Ended(at));
    });
    Ok(child)
}

/// If a sweep has started this process, ends it when the sweep ends, however that happens.
pub fn end_with_parent() {
    if std::env::var_os(ENDS_WITH_INPUT).is_none() {
        return;
    }
    std::thread::spawn(|| {
        // Nothing is ever written: the read returns when the other end is closed.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(ENDED);
    });
}

/// Says why a trial failed: the error that it printed, or what ended it.
pub(super) fn reason(status: ExitStatus, error: Option<String>) -> Error {
    const KINDS: [ErrorKind; 10] = [
        ErrorKind::Usage,
        ErrorKind::Data,
        ErrorKind::Plan,
        ErrorKind::Device,
        ErrorKind::OutOfMemory,
        ErrorKind::Diverged,
        ErrorKind::Comm,
        ErrorKind::Checkpoint,
        ErrorKind::Io,
        ErrorKind::Shape,
    ];
    if let Some(error) = error {
        let kind = KINDS.into_iter().find(|kind| status.code() == Some(kind.exit_code().into()));
        return Error::new(kind.unwrap_or(ErrorKind::Io), error);
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let memory = if signal == 9 { ", as when memory runs out" } else { "" };
        return Error::new(ErrorKind::OutOfMemory, format!("ended by signal {signal}{memory}"));
    }
    Error::new(ErrorKind::Io, format!("ended with {status}"))
}
