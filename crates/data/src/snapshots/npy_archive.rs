//! Arrays in a zip archive of `.npy` files, such as `METR-LA.zip` or what `numpy.savez` writes.
use crate::npy;
use std::path::{Path, PathBuf};
#[cfg(feature = "formats")]
use tgnn::error::Error;
use tgnn::error::Result;

/// A zip archive and the names of its members.
pub(super) struct Archive {
    path: PathBuf,
    /// Names of the members, in the order of the archive.
    pub members: Vec<String>,
    #[cfg(feature = "formats")]
    zip: zip::ZipArchive<std::fs::File>,
}

#[cfg(feature = "formats")]
impl Archive {
    /// Opens a file; `None` unless it begins like a zip archive.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        use std::io::{Read, Seek};
        let mut file = std::fs::File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
        let mut head = Vec::new();
        let read = file.by_ref().take(4).read_to_end(&mut head).and_then(|_| file.rewind());
        read.map_err(|e| Error::io(path, "cannot read", e))?;
        if head != b"PK\x03\x04" {
            return Ok(None);
        }
        let zip = zip::ZipArchive::new(file).map_err(|e| damaged(path, e))?;
        let members = zip.file_names().filter_map(|name| name.ok()).map(|name| name.to_string()).collect();
        Ok(Some(Archive { path: path.to_owned(), members, zip }))
    }

    /// Reads the array of a member into memory.
    pub(super) fn array(&mut self, member: &str) -> Result<npy::Array> {
        use std::io::Read;
        let path = self.path.join(member);
        let mut entry = self.zip.by_name(member).map_err(|e| damaged(&path, e))?;
        let size = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        tgnn::runtime::check_room("an array in a zip archive", size, "unpack the archive")?;
        let map = memmap2::MmapMut::map_anon(size.max(1));
        let mut map = map.map_err(|e| Error::io(&path, "cannot allocate", e))?;
        entry.read_exact(&mut map[..size]).map_err(|e| damaged(&path, e))?;
        let map = map.make_read_only().map_err(|e| Error::io(&path, "cannot allocate", e))?;
        npy::Array::in_map(&path, map)
    }
}

/// Returns the error of a damaged archive.
#[cfg(feature = "formats")]
fn damaged(path: &Path, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::data(path, "the zip archive is damaged or cut short").caused_by(e).remedy("fetch the file again")
}

#[cfg(not(feature = "formats"))]
impl Archive {
    pub(super) fn open(_: &Path) -> Result<Option<Self>> {
        Ok(None)
    }
    pub(super) fn array(&mut self, member: &str) -> Result<npy::Array> {
        Err(crate::text::needs_formats("a zip archive").in_file(self.path.join(member)))
    }
}
