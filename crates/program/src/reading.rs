//! What is shown while events are read.
use super::output::{bar_characters, folded, tell, terminal_width};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::IsTerminal,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};
use tgnn::runtime::size_text;
use tgnn_data::{Estimate, ReadOptions, rows_read, text::counted};

/// A large file that is being read. On a terminal, a bar shows how far, until this is dropped.
pub(super) struct Reading(Option<(Sender<()>, JoinHandle<()>)>);

impl Reading {
    /// Tells on standard error how much memory a large file will take, or that a terminal is read.
    pub(super) fn of(path: &str, options: &ReadOptions) -> Self {
        if path == "-" && std::io::stdin().is_terminal() {
            tell("note: the events are read from this terminal, up to Ctrl-D");
        }
        let Some(Estimate { events, bytes, most_name_bytes }) = tgnn_data::estimate(path, options) else {
            return Reading(None);
        };
        let names = match most_name_bytes {
            0 => String::new(),
            more => format!(", up to {} if all ids differ", size_text(bytes + more)),
        };
        let about = counted(events, "event");
        let line = format!("reading   about {about}: {} of memory{names}", size_text(bytes));
        tell(folded(&line, terminal_width(true).unwrap_or(usize::MAX), 10));
        Reading(std::io::stderr().is_terminal().then(|| shown(events)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            // The thread only draws, so that its panic is no matter.
            let _ = thread.join();
        }
    }
}

/// Draws a bar of about so many events, by a thread of its own, until the sender is dropped.
fn shown(events: u64) -> (Sender<()>, JoinHandle<()>) {
    let (end, ended) = channel::<()>();
    let before = rows_read();
    let thread = thread::spawn(move || {
        let bar = ProgressBar::new(events).with_prefix("reading ");
        if let Ok(style) =
            ProgressStyle::with_template("{prefix}  {wide_bar:.cyan/blue} {percent:>3}%  {eta} left")
        {
            bar.set_style(style.progress_chars(bar_characters()));
        }
        while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            // The number of events is an estimate.
            bar.set_position((rows_read() - before).min(events));
        }
        bar.finish_and_clear();
    });
    (end, thread)
}
