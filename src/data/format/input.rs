//! Input files as streams of uncompressed bytes.
use crate::error::{Error, Result};
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::{Path, PathBuf},
};

/// Number of bytes examined to recognise a layout: enough for thousands of rows, or for one very wide row.
const HEAD: usize = 256 << 10;
/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// File opened for reading once; its first bytes can be examined before.
pub(super) struct Input {
    /// Path that error messages name.
    pub path: PathBuf,
    head: Vec<u8>,
    rest: Box<dyn Read>,
    gzip: bool,
}

impl Input {
    /// Opens a file. Gzip is recognised by content, not by name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
        Self::new(path, file)
    }

    /// Opens `bytes` in memory; error messages name `path`.
    pub(super) fn from_bytes(path: &str, bytes: &'static [u8]) -> Result<Self> {
        Self::new(Path::new(path), bytes)
    }

    fn new(path: &Path, source: impl Read + 'static) -> Result<Self> {
        let mut source = BufReader::with_capacity(HEAD, source);
        let start = io::BufRead::fill_buf(&mut source).map_err(|e| Error::io(path, "cannot read", e))?;
        let gzip = start.starts_with(&GZIP);
        let mut input = Input { path: path.to_owned(), head: Vec::new(), rest: Box::new(io::empty()), gzip };
        let mut rest: Box<dyn Read> = if gzip { decompressed(path, source)? } else { Box::new(source) };
        rest.by_ref().take(HEAD as u64).read_to_end(&mut input.head).map_err(|e| input.failure(e))?;
        if input.head.starts_with(b"\xef\xbb\xbf") {
            input.head.drain(..3);
        }
        input.rest = rest;
        Ok(input)
    }

    /// Returns the first 256 KiB, decompressed; all bytes if there are fewer.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns a reader of all bytes from the first on, and the converter of its I/O errors.
    pub(super) fn into_reader(self) -> (impl Read, Failure) {
        let failure = Failure { path: self.path, gzip: self.gzip };
        (Cursor::new(self.head).chain(self.rest), failure)
    }

    fn failure(&self, e: io::Error) -> Error {
        Failure { path: self.path.clone(), gzip: self.gzip }.error(e)
    }
}

/// Returns the decompressed bytes of a gzip stream.
#[cfg(feature = "formats")]
fn decompressed(_: &Path, source: impl io::BufRead + 'static) -> Result<Box<dyn Read>> {
    Ok(Box::new(flate2::bufread::MultiGzDecoder::new(source)))
}

#[cfg(not(feature = "formats"))]
fn decompressed(path: &Path, _: impl io::BufRead + 'static) -> Result<Box<dyn Read>> {
    Err(crate::data::text::needs_formats("gzip").in_file(path))
}

/// Converts I/O errors, distinguishing damaged archives from read errors.
pub(super) struct Failure {
    /// Path that error messages name.
    pub path: PathBuf,
    gzip: bool,
}

impl Failure {
    /// Returns a data error if a gzip stream is damaged, otherwise an I/O error.
    pub(super) fn error(&self, e: io::Error) -> Error {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if self.gzip && matches!(e.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            return Error::data(&self.path, "the gzip stream is damaged or cut short")
                .caused_by(e)
                .remedy("fetch the file again");
        }
        Error::io(&self.path, "cannot read", e)
    }
}
