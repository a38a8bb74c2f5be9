//! The lines of an input, as they arrive.
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{io::PipeReader, ops::Range, path::PathBuf, time::Instant};
use tgnn::error::{Error, Result};
use tgnn_data::format::LaterBytes;

/// Maximum length of an input line, in bytes.
const LONGEST_LINE: usize = 1 << 24;
/// Number of bytes that are read together.
const READ: usize = 1 << 16;

/// Splits bytes into lines, and can tell without blocking whether a complete line has arrived.
pub(super) struct Lines {
    path: PathBuf,
    bytes: LaterBytes,
    /// Ends a wait as soon as it has a byte.
    woken: PipeReader,
    pub buffer: Vec<u8>,
    /// Start in `buffer` of the bytes that were not returned yet.
    start: usize,
    /// Number of bytes after `start` that are known to contain no end of a line.
    searched: usize,
    /// Whether the end of the file was reached.
    ended: bool,
}

/// The next line of an input.
pub(super) enum Next {
    /// Range of the buffer with a line, without its end.
    Line(Range<usize>),
    /// No complete line has arrived yet.
    Wait,
    /// The input has ended.
    End,
}

impl Lines {
    /// Splits `bytes`. A [wait](Self::wait) ends when `woken` has a byte.
    pub fn new(path: PathBuf, bytes: LaterBytes, woken: PipeReader) -> Self {
        Lines { path, bytes, woken, buffer: Vec::new(), start: 0, searched: 0, ended: false }
    }
    /// Returns the next line if it has arrived.
    pub fn next(&mut self) -> Result<Next> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = rest[self.searched..].iter().position(|&b| b == b'\n') {
                let line = self.start..self.start + self.searched + at;
                (self.start, self.searched) = (line.end + 1, 0);
                return Ok(Next::Line(line));
            }
            self.searched = rest.len();
            match (self.ended, rest.is_empty()) {
                (true, true) => return Ok(Next::End),
                (true, false) => {
                    let line = self.start..self.buffer.len();
                    (self.start, self.searched) = (line.end, 0);
                    return Ok(Next::Line(line));
                }
                _ if self.is_ready()? => self.read()?,
                _ => return Ok(Next::Wait),
            }
        }
    }
    /// Waits until bytes arrive, the file ends or `woken` has a byte, but not longer than `until`.
    pub fn wait(&self, until: Option<Instant>) -> Result<()> {
        let input = PollFd::new(&self.bytes.file, PollFlags::IN);
        let woken = PollFd::new(&self.woken, PollFlags::IN);
        self.poll(&mut [input, woken], until).map(drop)
    }
    /// Whether a read returns at once: bytes have arrived, the file has ended, or it has failed.
    fn is_ready(&self) -> Result<bool> {
        let input = PollFd::new(&self.bytes.file, PollFlags::IN);
        Ok(self.bytes.has_bytes() || self.poll(&mut [input], Some(Instant::now()))?)
    }
    /// Waits until one of `fds` can be read, but not longer than `until`. Returns whether one can.
    fn poll(&self, fds: &mut [PollFd<'_>], until: Option<Instant>) -> Result<bool> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(fds, left.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(Error::io(&self.path, "cannot wait for lines", e.into())),
        }
    }
    /// Reads more bytes; blocks until some arrive or the file ends.
    fn read(&mut self) -> Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let end = self.buffer.len();
        if end > LONGEST_LINE {
            return Err(Error::data(&self.path, format!("a line is longer than {LONGEST_LINE} bytes"))
                .remedy("give one event per line"));
        }
        self.buffer.resize(end + READ, 0);
        let read = self.bytes.read(&mut self.buffer[end..])?;
        self.buffer.truncate(end + read);
        self.ended = read == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{self, Write},
        os::fd::OwnedFd,
    };

    /// Returns the next line, "end" at the end, or `None` if it has not arrived.
    fn next(lines: &mut Lines) -> Option<String> {
        match lines.next().unwrap() {
            Next::Line(at) => Some(String::from_utf8(lines.buffer[at].to_vec()).unwrap()),
            Next::Wait => None,
            Next::End => Some("end".into()),
        }
    }

    fn open(first: &[u8], read: io::PipeReader) -> (Lines, io::PipeWriter) {
        let path = PathBuf::from("pipe");
        let bytes = LaterBytes::new(&path, first.to_vec(), File::from(OwnedFd::from(read))).unwrap();
        let (woken, wake) = io::pipe().unwrap();
        (Lines::new(path, bytes, woken), wake)
    }

    #[test]
    fn lines_are_returned_as_they_arrive_and_the_last_one_needs_no_newline() {
        let (read, mut write) = io::pipe().unwrap();
        let (mut lines, mut wake) = open(b"first\nze", read);
        assert_eq!([(); 2].map(|()| next(&mut lines).unwrap_or_default()), ["first", ""]);
        lines.wait(Some(Instant::now())).unwrap();
        assert_eq!(next(&mut lines), None);
        write.write_all(b"ro\none\ntwo\nthr").unwrap();
        lines.wait(None).unwrap();
        assert_eq!([(); 4].map(|()| next(&mut lines).unwrap_or_default()), ["zero", "one", "two", ""]);
        write.write_all(b"ee\n\nlast").unwrap();
        drop(write);
        assert_eq!([(); 4].map(|()| next(&mut lines).unwrap_or_default()), ["three", "", "last", "end"]);
        wake.write_all(b"!").unwrap();
        lines.wait(None).unwrap();
        assert_eq!(next(&mut lines), Some("end".into()));
    }

    #[test]
    fn a_wait_ends_when_somebody_wakes_it() {
        let (read, _write) = io::pipe().unwrap();
        let (mut lines, mut wake) = open(b"", read);
        wake.write_all(b"!").unwrap();
        lines.wait(None).unwrap();
        assert_eq!(next(&mut lines), None);
    }

    #[test]
    fn a_compressed_pipe_gives_the_lines_that_have_arrived() {
        let mut text = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        text.write_all(b"one\ntw").unwrap();
        text.flush().unwrap();
        let first = text.get_ref().clone();
        let (read, mut write) = io::pipe().unwrap();
        let (mut lines, _wake) = open(&first, read);
        lines.wait(None).unwrap();
        assert_eq!([(); 2].map(|()| next(&mut lines).unwrap_or_default()), ["one", ""]);
        text.write_all(b"o\n").unwrap();
        write.write_all(&text.finish().unwrap()[first.len()..]).unwrap();
        lines.wait(None).unwrap();
        assert_eq!(next(&mut lines).as_deref(), Some("two"));
        write.write_all(b"no gzip").unwrap();
        drop(write);
        lines.wait(None).unwrap();
        assert!(lines.next().is_err_and(|e| e.to_string().contains("gzip")));
    }
}
