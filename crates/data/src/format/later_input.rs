//! Where later events come from: lines that arrive one by one, or a table.
use super::{
    columnar,
    input::{Failure, compression, decompressed, first_bytes, opened},
    source::Source,
};
use crate::native::is_native;
#[cfg(unix)]
use std::os::fd::OwnedFd as Owned;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as Owned;
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};
use tgnn::error::{Error, Result};

/// Open input of later events, and the path that errors name.
#[doc(hidden)]
pub enum LaterInput {
    /// Lines of text or JSON.
    Lines(PathBuf, LaterBytes),
    /// Any other table.
    Table(PathBuf, LaterTable),
}

tgnn::brief_debug!(LaterInput, _input => {});

/// Table of events that is no text: typed columns, an archive, or a folder of files.
#[doc(hidden)]
pub struct LaterTable(pub(super) Source);

tgnn::brief_debug!(LaterTable, _table => {});

/// Bytes of lines, decompressed.
#[doc(hidden)]
pub struct LaterBytes {
    /// Bytes that are read already, if they are not compressed.
    first: Cursor<Vec<u8>>,
    /// What tells, by `poll`, whether more bytes have arrived.
    pub file: File,
    rest: Box<dyn Read + Send>,
    /// The thread that decompresses a pipe: a decoder does not tell what it could return without blocking.
    decoder: Option<JoinHandle<io::Result<u64>>>,
    failure: Failure,
}

tgnn::brief_debug!(LaterBytes, bytes => { file: bytes.file });

impl LaterInput {
    /// Opens a file, a folder or a pipe; `-` is standard input. Of a pipe, only its first bytes are read.
    #[doc(hidden)]
    pub fn open(path: &Path) -> Result<Self> {
        if is_native(path) {
            return Err(Error::data(path, "is a folder of arrays")
                .remedy("give a table of later events: text, JSON lines, Parquet or Arrow"));
        }
        if path.is_dir() || path.is_file() {
            match Source::open(path)? {
                Source::Text(_) | Source::JsonLines(_) => {}
                other => return Ok(LaterInput::Table(path.to_owned(), LaterTable(other))),
            }
        }
        let (path, mut file) = opened(path)?;
        let first = first_bytes(&path, &mut file)?;
        if columnar::is_typed(&first) {
            let source = Source::of_stream(&path, first, file)?;
            return Ok(LaterInput::Table(path, LaterTable(source)));
        }
        LaterBytes::new(&path, first, file).map(|bytes| LaterInput::Lines(path, bytes))
    }
}

impl LaterBytes {
    /// Starts with the bytes `first` of `file`, which are read already.
    #[doc(hidden)]
    pub fn new(path: &Path, first: Vec<u8>, file: File) -> Result<Self> {
        let compression = compression(&first);
        if compression.is_none() && first.contains(&0) {
            return Err(Error::data(path, "is neither text in UTF-8 nor a table that is read")
                .remedy("give text, JSON lines, Parquet or Arrow, which gzip or zstd may compress"));
        }
        let failure = Failure { path: path.to_owned(), compression };
        let of_system = |e| Error::io(path, "cannot open", e);
        let kept = file.try_clone().map_err(of_system)?;
        let Some(name) = compression else {
            let (first, rest) = (Cursor::new(first), Box::new(file));
            return Ok(LaterBytes { first, file: kept, rest, decoder: None, failure });
        };
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        let mut rest = decompressed(path, name, BufReader::new(Cursor::new(first).chain(file)))?;
        let first = Cursor::default();
        if is_file {
            return Ok(LaterBytes { first, file: kept, rest, decoder: None, failure });
        }
        let (read, mut write) = io::pipe().map_err(of_system)?;
        let thread = thread::Builder::new().name("decompress".into());
        let decoder = thread.spawn(move || io::copy(&mut rest, &mut write)).map_err(of_system)?;
        let file = File::from(Owned::from(read));
        let rest = Box::new(file.try_clone().map_err(of_system)?);
        Ok(LaterBytes { first, file, rest, decoder: Some(decoder), failure })
    }

    /// Whether a read returns at once, whatever has arrived.
    #[doc(hidden)]
    pub fn has_bytes(&self) -> bool {
        self.first.position() < self.first.get_ref().len() as u64
    }

    /// Reads bytes into `to`; blocks until some arrive. Returns their number, 0 at the end.
    #[doc(hidden)]
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let read = match self.has_bytes() {
            true => self.first.read(to),
            false => uninterrupted(&mut self.rest, to),
        };
        let ended = matches!(read, Ok(0));
        let read = match self.decoder.take_if(|_| ended).map(JoinHandle::join) {
            None => read,
            Some(Ok(decoded)) => decoded.map(|_| 0),
            Some(Err(_)) => Err(io::Error::other("the thread that decompresses has failed")),
        };
        read.map_err(|e| self.failure.error(e))
    }
}

/// Reads again after a signal.
fn uninterrupted(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(to) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
