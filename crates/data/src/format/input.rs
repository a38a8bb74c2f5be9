//! Input files as streams of uncompressed bytes.
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Number of bytes examined to recognise a layout: enough for thousands of rows, or for one very wide row.
const HEAD: usize = 256 << 10;
/// Number of bytes that tell any format.
const LONGEST_MARK: usize = 6;
/// Name and first bytes of each compression.
const COMPRESSIONS: [(&str, &[u8]); 2] = [("gzip", &[0x1f, 0x8b]), ("zstd", &[0x28, 0xb5, 0x2f, 0xfd])];

/// File opened for reading once; its first bytes can be examined before.
pub(super) struct Input {
    /// Path that error messages name.
    pub path: PathBuf,
    head: Vec<u8>,
    /// Whether there may be bytes after the head.
    cut: bool,
    rest: Box<dyn Read + Send>,
    /// Name of the compression.
    compression: Option<&'static str>,
    /// The first bytes of the file if they are compressed.
    compressed: Vec<u8>,
}

impl Input {
    /// Opens a file, or standard input (`-`). Compression is recognised by content, not by name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (path, file) = opened(path)?;
        Self::new(&path, file)
    }

    /// Opens `bytes` in memory; error messages name `path`.
    pub(super) fn of_bytes(path: &Path, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<Self> {
        Self::new(path, Cursor::new(bytes))
    }

    /// Starts to read a source, of which errors name `path`.
    pub(super) fn new(path: &Path, source: impl Read + Send + 'static) -> Result<Self> {
        let mut source = BufReader::with_capacity(HEAD, source);
        let start = io::BufRead::fill_buf(&mut source).map_err(|e| Error::io(path, "cannot read", e))?;
        let compression = compression(start);
        let mut input = Input {
            path: path.to_owned(),
            head: Vec::new(),
            cut: false,
            rest: Box::new(io::empty()),
            compression,
            compressed: if compression.is_some() { start.to_vec() } else { Vec::new() },
        };
        let mut rest: Box<dyn Read + Send> = match compression {
            Some(name) => decompressed(path, name, source)?,
            None => Box::new(source),
        };
        rest.by_ref().take(HEAD as u64).read_to_end(&mut input.head).map_err(|e| input.failure(e))?;
        input.cut = input.head.len() >= HEAD;
        if input.head.starts_with(b"\xef\xbb\xbf") {
            input.head.drain(..3);
        }
        input.rest = rest;
        Ok(input)
    }

    /// Returns how many bytes a byte of the file becomes, by its first ones.
    pub(super) fn expansion(&self) -> f64 {
        let Some(name) = self.compression else { return 1.0 };
        let of_compressed = self.compressed.len().max(1) as f64;
        let Ok(mut bytes) = decompressed(&self.path, name, Cursor::new(self.compressed.clone())) else {
            return 1.0;
        };
        let (mut part, mut all) = (vec![0; 1 << 16], 0);
        // The first bytes end anywhere, which is an error in the end.
        while let Ok(n @ 1..) = bytes.read(&mut part) {
            all += n;
        }
        all as f64 / of_compressed
    }

    /// Returns the first 256 KiB, decompressed; all bytes if there are fewer.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the head may end within the input, and even within a line.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns a reader of all bytes from the first on, and the converter of its I/O errors.
    pub(super) fn into_reader(self) -> (impl Read + Send, Failure) {
        let failure = Failure { path: self.path, compression: self.compression };
        (Cursor::new(self.head).chain(self.rest), failure)
    }

    fn failure(&self, e: io::Error) -> Error {
        Failure { path: self.path.clone(), compression: self.compression }.error(e)
    }
}

/// Whether `path` is standard input (`-`), a pipe or a device: it can be read once, from start to end.
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new("-") || path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Opens a file, or standard input (`-`). Also returns the path that errors name.
pub(super) fn opened(path: &Path) -> Result<(PathBuf, File)> {
    let (path, file) = match path == Path::new("-") {
        true => (PathBuf::from("standard input"), standard_input()),
        false => (path.to_owned(), File::open(path)),
    };
    match file {
        Ok(file) => Ok((path, file)),
        Err(e) => Err(Error::io(path, "cannot open", e)),
    }
}

/// Opens standard input without a buffer, so that a caller can tell which bytes have arrived.
#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}
#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Returns the first bytes of a stream: enough to recognise its format, fewer only if it ends.
pub(super) fn first_bytes(path: &Path, source: &mut impl Read) -> Result<Vec<u8>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while bytes.len() < LONGEST_MARK {
        match source.read(&mut part) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(path, "cannot read", e)),
        }
    }
    Ok(bytes)
}

/// Returns the name of the compression of a stream that starts with `start`.
pub(super) fn compression(start: &[u8]) -> Option<&'static str> {
    COMPRESSIONS.iter().find(|(_, mark)| start.starts_with(mark)).map(|(name, _)| *name)
}

/// Returns the decompressed bytes of a stream, given the name of its compression.
#[cfg(feature = "formats")]
pub(super) fn decompressed(
    path: &Path,
    compression: &str,
    source: impl io::BufRead + Send + 'static,
) -> Result<Box<dyn Read + Send>> {
    if compression == "gzip" {
        return Ok(Box::new(Members::new(source)));
    }
    let decoder = zstd::Decoder::with_buffer(source).map_err(|e| Error::io(path, "cannot decompress", e))?;
    Ok(Box::new(decoder))
}

/// The members of a gzip stream, one after the other. Zeros may follow them, as on tapes and in archives.
#[cfg(feature = "formats")]
struct Members<R: io::BufRead> {
    /// The member that is being read; `None` after an error.
    member: Option<flate2::bufread::GzDecoder<R>>,
}

#[cfg(feature = "formats")]
impl<R: io::BufRead> Members<R> {
    fn new(source: R) -> Self {
        Members { member: Some(flate2::bufread::GzDecoder::new(source)) }
    }

    /// Whether only zeros follow, which are then read.
    fn ends(source: &mut R) -> io::Result<bool> {
        loop {
            let rest = source.fill_buf()?;
            match rest.iter().position(|b| *b != 0) {
                _ if rest.is_empty() => return Ok(true),
                Some(0) => return Ok(false),
                Some(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes follow the last member"));
                }
                None => {
                    let read = rest.len();
                    source.consume(read);
                }
            }
        }
    }
}

#[cfg(feature = "formats")]
impl<R: io::BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let ends = Self::ends(member.get_mut())?;
            let source = self.member.take().map(flate2::bufread::GzDecoder::into_inner);
            self.member = source.filter(|_| !ends).map(flate2::bufread::GzDecoder::new);
        }
        Ok(0)
    }
}

#[cfg(not(feature = "formats"))]
pub(super) fn decompressed(
    path: &Path,
    compression: &str,
    _: impl io::BufRead + Send + 'static,
) -> Result<Box<dyn Read + Send>> {
    Err(crate::text::needs_formats(compression).in_file(path))
}

/// Converts I/O errors, distinguishing damaged archives from read errors.
pub(super) struct Failure {
    /// Path that error messages name.
    pub path: PathBuf,
    /// Name of the compression.
    pub compression: Option<&'static str>,
}

impl Failure {
    /// Returns a data error if a compressed stream is damaged, otherwise an I/O error.
    pub(super) fn error(&self, e: io::Error) -> Error {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
        if let Some(name) = self.compression
            && matches!(e.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
        {
            return Error::data(&self.path, format!("the {name} stream is damaged or cut short"))
                .caused_by(e)
                .remedy("fetch the file again");
        }
        Error::io(&self.path, "cannot read", e)
    }
}
