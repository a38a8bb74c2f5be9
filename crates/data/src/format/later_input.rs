//! Where later events come from: lines that arrive one by one, or a table.
use super::{
    columnar,
    input::{Failure, compression, decompressed, first_bytes, opened},
    source::Source,
};
use crate::native::is_native;
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::{Path, PathBuf},
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
    /// The file that they come from, by which a caller can tell whether more have arrived.
    pub file: File,
    bytes: Box<dyn Read + Send>,
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
        let rest = file.try_clone().map_err(|e| Error::io(path, "cannot open", e))?;
        let all = Cursor::new(first).chain(rest);
        let bytes: Box<dyn Read + Send> = match compression {
            Some(name) => decompressed(path, name, BufReader::new(all))?,
            None => Box::new(all),
        };
        Ok(LaterBytes { file, bytes, failure: Failure { path: path.to_owned(), compression } })
    }

    /// Reads bytes into `to`; blocks until some arrive. Returns their number, 0 at the end.
    #[doc(hidden)]
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        loop {
            match self.bytes.read(to) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(|e| self.failure.error(e)),
            }
        }
    }
}
