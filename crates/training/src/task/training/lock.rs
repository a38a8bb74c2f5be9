//! The lock of a folder into which a run, a sweep or a predictor writes: only one at a time does.
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// The file that is locked. It is in the folder as long as the folder is locked, and says who has locked it.
pub(in crate::task) const LOCK: &str = "run.lock";

/// A lock that the operating system releases when the process ends, however that happens. Processes on other
/// computers respect it if their file system passes locks on, as NFS does.
#[doc(hidden)]
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
    /// Why the folder is not locked, if its file system has no locks.
    refused: Option<io::Error>,
}

impl FolderLock {
    /// Locks a folder, which must exist.
    ///
    /// # Errors
    /// `Usage` if another process has locked it; `Io` if it cannot be written.
    pub fn acquire(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK);
        loop {
            let open = File::options().read(true).append(true).create(true).open(&path);
            let file = open.map_err(|e| Error::io(&path, "cannot write", e))?;
            let refused = match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(taken(dir, &path)),
                Err(TryLockError::Error(e)) => Some(e),
                Ok(()) => None,
            };
            // Another process may have removed the file since it was opened.
            if refused.is_some() || is_at(&file, &path) {
                let lock = FolderLock { file, path, refused };
                lock.sign();
                return Ok(lock);
            }
        }
    }
    /// Says that the folder is not locked, if its file system has no locks.
    pub fn note(&self) -> Option<String> {
        let why = self.refused.as_ref()?;
        let dir = self.path.parent().unwrap_or(&self.path).display();
        Some(format!("{dir} cannot be locked ({why}): take care that nothing else writes there"))
    }
    /// Writes into the file who has locked it. Nobody but a person reads that, so it may fail.
    fn sign(&self) {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let on = if name.trim().is_empty() { String::new() } else { format!(" on {}", name.trim()) };
        let _ = self.file.set_len(0);
        let _ =
            io::Write::write_all(&mut &self.file, format!("process {}{on}", std::process::id()).as_bytes());
    }
}

/// While the file is locked, nobody else removes or replaces it.
impl Drop for FolderLock {
    fn drop(&mut self) {
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether `file` is still what is at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |of: &fs::Metadata| (of.dev(), of.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(own), Ok(there)) if id(&own) == id(&there))
}
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn taken(dir: &Path, path: &Path) -> Error {
    let who = fs::read_to_string(path).unwrap_or_default();
    let who = if who.trim().is_empty() { String::new() } else { format!(" ({})", who.trim()) };
    Error::usage(format!("another run{who} is writing into {}", dir.display()))
        .remedy("wait until it has ended, end it, or give another folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_lock_at_a_time_and_none_that_nobody_holds() {
        let dir = tempfile::tempdir().unwrap();
        // What a process that was killed has left.
        fs::write(dir.path().join(LOCK), "process 1 on here").unwrap();
        let lock = FolderLock::acquire(dir.path()).unwrap();
        let e = FolderLock::acquire(dir.path()).map(drop).unwrap_err().to_string();
        let own = format!("another run (process {}", std::process::id());
        assert!(e.starts_with(&own) && e.contains("wait until it has ended"), "{e}");
        drop(lock);
        assert!(!dir.path().join(LOCK).exists());
        drop(FolderLock::acquire(dir.path()).unwrap());
    }
}
