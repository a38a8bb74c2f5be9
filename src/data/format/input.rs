//! An input file as a stream of plain bytes, whatever it is packed in.
use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::{Path, PathBuf},
};

/// Bytes looked at to recognise a layout: thousands of rows, or one very wide one.
const HEAD: usize = 256 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file opened for reading once, with its first bytes at hand.
pub(super) struct Input {
    /// What errors call it.
    pub path: PathBuf,
    head: Vec<u8>,
    rest: Box<dyn Read>,
    gzip: bool,
}

impl Input {
    /// Opens a file; gzip is recognised by its content, not its name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
        Self::new(path, file)
    }

    /// Reads from memory under the name `path`.
    pub(super) fn from_bytes(path: &str, bytes: &'static [u8]) -> Result<Self> {
        Self::new(Path::new(path), bytes)
    }

    fn new(path: &Path, source: impl Read + 'static) -> Result<Self> {
        let mut source = BufReader::with_capacity(HEAD, source);
        let start = io::BufRead::fill_buf(&mut source).map_err(|e| Error::io(path, "cannot read", e))?;
        let gzip = start.starts_with(&GZIP);
        let mut input = Input { path: path.to_owned(), head: Vec::new(), rest: Box::new(io::empty()), gzip };
        let mut rest: Box<dyn Read> =
            if gzip { Box::new(MultiGzDecoder::new(source)) } else { Box::new(source) };
        rest.by_ref().take(HEAD as u64).read_to_end(&mut input.head).map_err(|e| input.failure(e))?;
        if input.head.starts_with(b"\xef\xbb\xbf") {
            input.head.drain(..3);
        }
        input.rest = rest;
        Ok(input)
    }

    /// The first bytes, unpacked; all of them when the file is smaller than a quarter of a megabyte.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// All bytes from the first on, and what turns a failure to read them into an error.
    pub(super) fn into_reader(self) -> (impl Read, Failure) {
        let failure = Failure { path: self.path, gzip: self.gzip };
        (Cursor::new(self.head).chain(self.rest), failure)
    }

    fn failure(&self, e: io::Error) -> Error {
        Failure { path: self.path.clone(), gzip: self.gzip }.error(e)
    }
}

/// Knows whether bytes that cannot be read are the disk's fault or the archive's.
pub(super) struct Failure {
    /// What errors call the file.
    pub path: PathBuf,
    gzip: bool,
}

impl Failure {
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
